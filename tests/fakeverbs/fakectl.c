/* SPDX-License-Identifier: Apache-2.0 */
/* fakectl: the controls of fakeverbs for a lab that runs: SIRCL_LAB=... fakectl cut fake_lo */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "internal.h"

static int hole(const char *dev, const char *index)
{
	return fakeverbs_gid_hole(dev, index != NULL ? atoi(index) : -1);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*run)(const char *dev);
	} verbs[] = { { "cut", fakeverbs_cut },
		      { "mend", fakeverbs_mend },
		      { "gid-shuffle", fakeverbs_gid_shuffle },
		      { "fatal", fakeverbs_fatal } };
	int ret = -2;

	if (argc < 3 || argc > 4) {
		fprintf(stderr,
			"usage: fakectl cut|mend|gid-shuffle|fatal DEV, fakectl gid-hole DEV [INDEX]\n");
		return 2;
	}
	if (!fv_attach(false)) {
		fprintf(stderr, "fakectl: no lab\n");
		return 1;
	}
	if (strcmp(argv[1], "gid-hole") == 0)
		ret = hole(argv[2], argc > 3 ? argv[3] : NULL);
	for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
		if (strcmp(argv[1], verbs[i].name) == 0)
			ret = verbs[i].run(argv[2]);
	if (ret == -2)
		fprintf(stderr, "fakectl: no such command: %s\n", argv[1]);
	else if (ret == -1)
		fprintf(stderr, "fakectl: no device %s in this network namespace is used in the lab\n",
			argv[2]);
	return ret == 0 ? 0 : 1;
}
