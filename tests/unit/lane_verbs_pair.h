/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two ends of a verbs lane over tests/fakeverbs (no hardware), with a table of functions for each end that a
 * test may change, and the log in a file.
 */
#ifndef LANE_VERBS_PAIR_H
#define LANE_VERBS_PAIR_H
#define HARNESS_VERBS 1
#include <sys/mman.h>
#include "lane/verbs_internal.h"
#include "lane_harness.h"

struct vpair {
	struct pair p;
	struct verbs_lib lib[2];
	struct verbs_tune tune[2];
	int log;
};

static inline struct verbs_lane *v_lane(struct vpair *v, int i)
{
	return (struct verbs_lane *)(void *)v->p.e[i].l;
}

static inline sircl_result_t v_open_end(struct vpair *v, int i)
{
	struct end *e = &v->p.e[i];
	struct lane_cfg cfg = h_cfg(e);

	cfg.provider = &v->tune[i];
	CHECK(v->p.ops->open(&cfg, &e->l, &e->addr));
	return v->p.ops->reg(e->l, 1, arena_base(e->send), H_ARENA, &e->send_mem, NULL);
}

/* Both ends, no lane yet. */
static inline void v_init(struct vpair *v)
{
	memset(v, 0, sizeof(*v));
	v->p.ops = &lane_verbs_ops;
	v->log = memfd_create("log", MFD_CLOEXEC);
	ck_assert_int_ge(v->log, 0);
	for (int i = 0; i < 2; i++) {
		h_end_init(&v->p, i);
		v->p.e[i].ctx.log.fd = v->log;
		v->p.e[i].ctx.log.level = LOG_INFO;
		v->p.e[i].ctx.log.subsys = LOG_ALL;
		v->lib[i] = fakeverbs_lib;
		v->tune[i].lib = &v->lib[i];
	}
}

static inline void v_open(struct vpair *v)
{
	v_init(v);
	for (int i = 0; i < 2; i++)
		if (v_open_end(v, i) != SIRCL_SUCCESS)
			ck_abort_msg("%s", error_last()->msg);
}

/* How often the log has this text. */
static inline int v_logged(const struct vpair *v, const char *text)
{
	static char buf[1 << 16];
	ssize_t n = pread(v->log, buf, sizeof(buf) - 1, 0);
	int count = 0;

	buf[n > 0 ? n : 0] = '\0';
	for (const char *p = buf; (p = strstr(p, text)) != NULL; p++)
		count++;
	return count;
}

/* Everything is closed, nothing of the device is left. */
static inline void v_close(struct vpair *v)
{
	for (int i = 0; i < 2; i++)
		v->p.e[i].ctx.log.fd = 2; /* the harness closes only what log_init opened */
	h_close(&v->p);
	close(v->log);
	if (fakeverbs_open_objects() != 0) {
		fakeverbs_print_objects();
		ck_abort_msg("%d objects of the device were left open", fakeverbs_open_objects());
	}
}
#endif
