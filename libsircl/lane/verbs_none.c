/* SPDX-License-Identifier: Apache-2.0 */
/* In place of the verbs provider, in a build without the headers of rdma-core. */
#include "lane/verbs.h"

sircl_result_t verbs_probe(struct sircl_ctx *ctx, const char *dev, struct verbs_port *port)
{
	(void)ctx;
	(void)port;
	return error_set(SIRCL_SYSTEM_ERROR,
			 "netdev %s: this libsircl was built without RDMA lanes; to have them: apt-get "
			 "install libibverbs-dev librdmacm-dev, and build it again",
			 dev ? dev : "(any)");
}
