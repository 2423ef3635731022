/* SPDX-License-Identifier: Apache-2.0 */
/* The record of a rank and the checks over all of them; see record.h. */
#include "fabric/record.h"
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/crc32c.h"
#include "fabric/wire.h"

#define RECORD_WIRE 4 /* format of frames between ranks; a change that old ranks cannot read raises it */

/* Everything that decides what ranks send each other and when, or which bits come out. */
static const enum param_id must_agree[] = { PARAM_TRANSPORT, PARAM_ALGO,      PARAM_DETERMINISTIC,
					    PARAM_CHECKSUM,  PARAM_WINDOW,    PARAM_RELAY_WINDOW,
					    PARAM_SLICE,     PARAM_HEARTBEAT, PARAM_SUSPECT };
#define AGREE ((int)(sizeof(must_agree) / sizeof(*must_agree)))
_Static_assert(sizeof(must_agree) / sizeof(*must_agree) <= RECORD_PARAMS_MAX,
	       "RECORD_PARAMS_MAX is too small");

static void machine_id(uint8_t id[16])
{
	char boot[64] = "";
	struct stat net = { 0 }, pid = { 0 };
	FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
	uint64_t a;
	uint32_t b[2];

	if (f) {
		if (!fgets(boot, sizeof(boot), f))
			boot[0] = '\0';
		fclose(f);
	}
	stat("/proc/self/ns/net", &net); /* abstract sockets do not cross it */
	stat("/proc/self/ns/pid", &pid); /* nor do process ids */
	a = (uint64_t)net.st_ino << 32 ^ (uint64_t)pid.st_ino;
	b[0] = crc32c(0, boot, strlen(boot));
	b[1] = (uint32_t)geteuid();
	memcpy(id, &a, 8);
	memcpy(id + 8, b, 8);
}

void record_make(struct record *r, struct sircl_ctx *ctx, uint64_t limit)
{
	uint64_t t = ctx->clock(ctx->clock_arg);

	memset(r, 0, sizeof(*r));
	r->version = SIRCL_VERSION;
	r->wire = RECORD_WIRE;
	snprintf(r->host, sizeof(r->host), "%s", ctx->host);
	machine_id(r->machine);
	r->pid = (int32_t)getpid();
	r->limit_ms = limit > t ? (uint32_t)tick_min((limit - t) / MSEC, UINT32_MAX) : 0;
	r->max_lanes = (uint32_t)param_num(&ctx->params, PARAM_LANES);
	for (int i = 0; i < AGREE; i++)
		r->params[i] = param_num(&ctx->params, must_agree[i]);
}

size_t record_write(const struct record *r, void *buf, size_t n)
{
	struct wire w = wire_over(buf, n);

	wire_put(&w, r->version, 4);
	wire_put(&w, r->wire, 4);
	wire_put_text(&w, r->host, sizeof(r->host));
	wire_put_bytes(&w, r->machine, sizeof(r->machine));
	wire_put(&w, (uint32_t)r->pid, 4);
	wire_put(&w, r->limit_ms, 4);
	wire_put(&w, r->max_lanes, 4);
	wire_put(&w, (uint64_t)AGREE, 1);
	for (int i = 0; i < AGREE; i++)
		wire_put(&w, (uint64_t)r->params[i], 8);
	wire_put(&w, (uint64_t)r->nports, 1);
	for (int i = 0; i < r->nports; i++) {
		wire_put_text(&w, r->port[i].name, sizeof(r->port[i].name));
		wire_put(&w, r->port[i].index, 4);
		wire_put(&w, r->port[i].pci_domain, 4);
		wire_put(&w, r->port[i].mtu, 4);
		wire_put(&w, r->port[i].excluded, 1);
	}
	sircl_assert(!w.bad);
	return w.pos;
}

sircl_result_t record_read(struct record *r, int rank, const void *buf, size_t n)
{
	struct wire w = wire_over((void *)(uintptr_t)buf, n);
	int count;

	memset(r, 0, sizeof(*r));
	r->version = (uint32_t)wire_get(&w, 4);
	r->wire = (uint32_t)wire_get(&w, 4);
	wire_get_text(&w, r->host, sizeof(r->host));
	if (!w.bad && r->wire != RECORD_WIRE)
		return error_set(SIRCL_REMOTE_ERROR,
				 "rank %d (%s) runs libsircl %u with wire format %u, this rank has format "
				 "%d: install the same version "
				 "everywhere",
				 rank, r->host, r->version, r->wire, RECORD_WIRE);
	wire_get_bytes(&w, r->machine, sizeof(r->machine));
	r->pid = (int32_t)wire_get(&w, 4);
	r->limit_ms = (uint32_t)wire_get(&w, 4);
	r->max_lanes = (uint32_t)wire_get(&w, 4);
	count = (int)wire_get(&w, 1);
	for (int i = 0; i < count && !w.bad; i++) {
		int64_t v = (int64_t)wire_get(&w, 8);

		if (i < AGREE)
			r->params[i] = v;
	}
	r->nports = (int)wire_get(&w, 1);
	if (r->nports > MAP_PORTS_MAX)
		w.bad = true;
	for (int i = 0; i < r->nports && !w.bad; i++) {
		wire_get_text(&w, r->port[i].name, sizeof(r->port[i].name));
		r->port[i].index = (uint32_t)wire_get(&w, 4);
		r->port[i].pci_domain = (uint32_t)wire_get(&w, 4);
		r->port[i].mtu = (uint32_t)wire_get(&w, 4);
		r->port[i].excluded = wire_get(&w, 1) != 0;
	}
	if (w.bad)
		return error_set(
			SIRCL_REMOTE_ERROR,
			"the record of rank %d (%s) is malformed: install the same version everywhere", rank,
			r->host);
	return SIRCL_SUCCESS;
}

static const char *shown(enum param_id id, int64_t v, char *buf, size_t n)
{
	const struct param_info *info = param_info(id);
	const char *c = info->choices;

	if (info->type != PARAM_TYPE_ENUM) {
		snprintf(buf, n, "%lld", (long long)v);
		return buf;
	}
	while (v > 0 && c && *c) {
		if (*c++ == '|')
			v--;
	}
	snprintf(buf, n, "%.*s", c ? (int)strcspn(c, "|") : 0, c ? c : "");
	return buf;
}

static long long agreed(const struct record *r, enum param_id id)
{
	int k = 0;

	while (must_agree[k] != id)
		k++;
	return r[0].params[k];
}

sircl_result_t records_agree(const struct record *r, int n)
{
	long long beat, suspect;

	for (int i = 1; i < n; i++)
		for (int k = 0; k < AGREE; k++)
			if (r[i].params[k] != r[0].params[k]) {
				char a[64], b[64];

				return error_set(
					SIRCL_BAD_CONFIG,
					"%s must be the same on all ranks: it is %s on rank 0 (%s) and %s on "
					"rank %d (%s)",
					param_info(must_agree[k])->name,
					shown(must_agree[k], r[0].params[k], a, sizeof(a)), r[0].host,
					shown(must_agree[k], r[i].params[k], b, sizeof(b)), i, r[i].host);
			}
	beat = agreed(r, PARAM_HEARTBEAT);
	suspect = agreed(r, PARAM_SUSPECT);
	if (suspect < 3 * beat)
		return error_set(SIRCL_BAD_CONFIG,
				 "SIRCL_SUSPECT (%lld ms) must be at least three times SIRCL_HEARTBEAT (%lld "
				 "ms), or lanes that only have nothing to send are taken for dead",
				 suspect, beat);
	return SIRCL_SUCCESS;
}

bool record_same_cores(const struct record *a, const struct record *b)
{
	return !memcmp(a->machine + 8, b->machine + 8, 4); /* the boot id's */
}

int records_machines(const struct record *r, int n, uint16_t *leader)
{
	int machines = 0;

	for (int i = 0; i < n; i++) {
		int k = 0;

		while (memcmp(r[k].machine, r[i].machine, sizeof(r[i].machine)) != 0)
			k++;
		leader[i] = (uint16_t)k;
		machines += k == i;
	}
	return machines;
}
