/* SPDX-License-Identifier: Apache-2.0 */
/* Opens rdma-core and fills the tables of verbs_lib.h. */
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include "base/dl.h"
#include "lane/verbs_lib.h"

sircl_result_t verbs_lib_open(const struct verbs_lib **out)
{
	/* As the tables of base/dl.c: the same for all contexts of the process, complete before it is used,
	 * never changed after. */
	static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	static struct verbs_lib lib;
	static bool ready;
	void *const *ibv, *const *cm;

	CHECK(dl_open(DL_IBVERBS, &ibv));
	CHECK(dl_open(DL_RDMACM, &cm));
	pthread_mutex_lock(&mutex);
	if (!ready) {
		memcpy(&lib.ibv, ibv, sizeof(lib.ibv));
		memcpy(&lib.cm, cm, sizeof(lib.cm));
		ready = true;
	}
	pthread_mutex_unlock(&mutex);
	*out = &lib;
	return SIRCL_SUCCESS;
}
