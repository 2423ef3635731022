/* SPDX-License-Identifier: Apache-2.0 */
/* Where the rendezvous is, which keys this process has, and who serves it. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "fabric/internal.h"

static sircl_result_t add_keys(struct start *s)
{
	const struct params *p = &s->ctx->params;
	const char *file = param_str(p, PARAM_KEY_FILE), *key = param_str(p, PARAM_KEY),
		   *secret = param_str(p, PARAM_SECRET);

	if (file)
		CHECK(key_ring_add_file(&s->f->keys, file));
	if (key)
		CHECK(key_ring_add(&s->f->keys, KEY_FILE, key, strlen(key)));
	if (secret)
		CHECK(key_ring_add(&s->f->keys, KEY_UNIQUE_ID, secret, strlen(secret)));
	return SIRCL_SUCCESS;
}

static sircl_result_t from_environment(struct start *s, struct address *at)
{
	const struct params *p = &s->ctx->params;
	const char *root = param_str(p, PARAM_ROOT), *what = "MASTER_ADDR", *host;
	char text[300];

	if (root)
		return address_parse(root, "SIRCL_ROOT", at);
	host = getenv("MASTER_ADDR");
	if (!host || !*host) {
		what = "SLURM_LAUNCH_NODE_IPADDR";
		host = getenv(what);
	}
	if (!host || !*host)
		return error_set(SIRCL_BAD_CONFIG,
				 "rank %d does not know where to meet the others: start with `sircl run`, or "
				 "set SIRCL_ROOT=HOST:PORT (a "
				 "machine that all can reach; rank 0 runs there), or pass a unique id",
				 s->cfg->rank);
	snprintf(text, sizeof(text), strchr(host, ':') ? "[%.255s]:%d" : "%.255s:%d", host,
		 (int)param_num(p, PARAM_PORT));
	return address_parse(text, what, at);
}

sircl_result_t start_meet(struct start *s)
{
	const struct fabric_cfg *c = s->cfg;
	struct address at;
	char text[ADDRESS_TEXT];

	CHECK(key_ring_init(&s->f->keys));
	CHECK(add_keys(s));
	if (c->id) {
		uint8_t secret[ID_SECRET];

		CHECK(id_unpack(c->id, &at, secret));
		CHECK(key_ring_add(&s->f->keys, KEY_UNIQUE_ID, secret, sizeof(secret)));
	} else {
		CHECK(from_environment(s, &at));
		if (c->rank == 0)
			CHECK(rdv_root_start(s->ctx, &at, &s->f->keys, &s->f->root));
	}
	log_info(&s->ctx->log, LOG_INIT, "rendezvous at %s, %d key%s", address_text(&at, text), s->f->keys.n,
		 s->f->keys.n == 1 ? "" : "s");
	return rdv_join(&s->rdv, s->ctx, &at, &s->f->keys, c->rank, c->n, s->limit);
}

sircl_result_t fabric_make_id(struct sircl_ctx *ctx, sircl_unique_id_t *id, struct rdv_root **root)
{
	uint8_t secret[ID_SECRET];
	struct key_ring keys;
	struct address at;
	sircl_result_t ret;

	*root = NULL;
	CHECK(key_ring_init(&keys));
	CHECK(auth_random(secret, sizeof(secret)));
	CHECK(key_ring_add(&keys, KEY_UNIQUE_ID, secret, sizeof(secret)));
	/* ranks that also have a key file offer that; the root must know it to accept it */
	if (param_str(&ctx->params, PARAM_KEY_FILE))
		CHECK(key_ring_add_file(&keys, param_str(&ctx->params, PARAM_KEY_FILE)));
	CHECK(address_management(ctx, &at));
	ret = rdv_root_start(ctx, &at, &keys, root);
	if (ret == SIRCL_SUCCESS)
		ret = id_pack(id, &at, secret);
	key_ring_wipe(&keys);
	return ret;
}
