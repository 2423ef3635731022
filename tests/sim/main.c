// SPDX-License-Identifier: Apache-2.0
/* The simulator suite: links, channels and collectives on lane/sim. `sim --help` tells the options. */
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "cases.h"
#include "link/chan.h"

#ifdef SIRCL_PLANT
static const struct {
	const char *name;
	unsigned link, chan;
} plants[] = {
	{ "no-fence", LINK_BREAK_NO_FENCE, 0 },
	{ "no-dedup", LINK_BREAK_NO_DEDUP, 0 },
	{ "early-ack", LINK_BREAK_EARLY_ACK, 0 },
	{ "pool", 0, CHAN_BREAK_POOL },
};
#endif

double seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static int usage(FILE *f, int code)
{
	fprintf(f, "usage: sim [--only a|b|c|d|e] [--seeds N] [--first-seed S] [--jobs J] [--events E] "
		   "[--ranks N] [-v]"
#ifdef SIRCL_PLANT
		   " [--plant no-fence|no-dedup|early-ack|pool]"
#endif
		   "\n"
		   "  a  a lane dies at frame k, for every k of a run\n"
		   "  b  relayed streams, neighbours, one receiver that does not post\n"
		   "  c  every schedule of the first --events E events (default 12) of a small run; alone: "
		   "with\n"
		   "     every lane loss, some minutes for 10 events and ten times that for 12\n"
		   "  d  N random seeds (default 1000; --seeds or --first-seed alone mean d)\n"
		   "  e  rates of large collectives with a lane lost or slow, on --ranks 3, 4 or 5, from "
		   "--first-seed\n"
		   "A seed that fails is printed; --first-seed S --seeds 1 -v replays it.\n");
	return code;
}

static bool plant(const char *name)
{
#ifdef SIRCL_PLANT
	for (size_t i = 0; i < sizeof(plants) / sizeof(plants[0]); i++)
		if (strcmp(plants[i].name, name) == 0) {
			link_plant = plants[i].link;
			chan_plant = plants[i].chan;
			return true;
		}
#endif
	(void)name;
	return false;
}

static bool number(const char *text, uint64_t *out)
{
	char *end;

	errno = 0;
	*out = strtoull(text, &end, 10);
	return errno == 0 && end != text && *end == '\0';
}

int main(int argc, char **argv)
{
	struct options o = { .seeds = 1000, .first_seed = 1, .jobs = 1, .events = 12 };
	const char *only = NULL;
	uint64_t jobs = 1, events = 12, ranks = 0;
	bool ok = true, good = true;

	for (int i = 1; i < argc && good; i++) {
		const char *a = argv[i], *v = i + 1 < argc ? argv[i + 1] : "";

		if (strcmp(a, "-h") == 0 || strcmp(a, "--help") == 0)
			return usage(stdout, 0);
		if (strcmp(a, "-v") == 0) {
			o.verbose = 1;
			continue;
		}
		if (strcmp(a, "--only") == 0) {
			only = v;
			good = strlen(v) == 1 && strchr("abcde", *v);
		} else if (strcmp(a, "--seeds") == 0) {
			good = number(v, &o.seeds) && o.seeds > 0;
			only = only ? only : "d";
		} else if (strcmp(a, "--first-seed") == 0) {
			good = number(v, &o.first_seed);
			only = only ? only : "d";
		} else if (strcmp(a, "--jobs") == 0) {
			good = number(v, &jobs) && jobs >= 1 && jobs <= 256;
		} else if (strcmp(a, "--events") == 0) {
			good = number(v, &events) && events >= 1 && events <= 16;
		} else if (strcmp(a, "--ranks") == 0) {
			good = number(v, &ranks) && ranks >= 3 && ranks <= 5;
		} else if (strcmp(a, "--plant") == 0) {
			good = plant(v);
		} else {
			good = false;
		}
		i++;
	}
	if (!good)
		return usage(stderr, 2);
	o.jobs = (int)jobs;
	o.events = (int)events;
	o.ranks = (int)ranks;
	o.thorough = only != NULL;
	setvbuf(stdout, NULL, _IOLBF, 0);
	/* worlds come and go by the thousand: keep their memory */
	mallopt(M_MMAP_THRESHOLD, 64 << 20);
	mallopt(M_TRIM_THRESHOLD, 256 << 20);
	mallopt(M_TOP_PAD, 16 << 20);
	if (!only || *only == 'a')
		ok = case_every_frame(&o) && ok;
	if (!only || *only == 'b')
		ok = case_relays(&o) && ok;
	if (!only || *only == 'c')
		ok = case_exhaustive(&o) && ok;
	if (!only || *only == 'd')
		ok = case_seeds(&o) && ok;
	if (!only || *only == 'e')
		ok = case_rates(&o) && ok;
	printf("%s\n", ok ? "ok" : "FAILED");
	return ok ? 0 : 1;
}
