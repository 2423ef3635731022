// SPDX-License-Identifier: Apache-2.0
/* Finds a provider by the name that SIRCL_TRANSPORT uses. */
#include <string.h>
#include "lane/lane.h"

const struct lane_ops *lane_provider(const char *name)
{
	static const struct lane_ops *const all[] = {
		&lane_shm_ops,
		&lane_tcp_ops,
#ifdef SIRCL_VERBS
		&lane_verbs_ops,
#endif
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (strcmp(name, all[i]->name) == 0)
			return all[i];
	return NULL;
}
