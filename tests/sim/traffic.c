// SPDX-License-Identifier: Apache-2.0
/* Conversations over channels: post, compare every byte, poison. */
#include "traffic.h"
#include <stdlib.h>
#include <string.h>

#define PERIOD 131101u /* a prime above MSG_BYTES_MAX: a message never repeats inside */
#define CONV_ID (1u << 30) /* above those of the engine's teams */
#define POISON_RX 0xdd
#define POISON_TX 0xaa

struct pattern {
	uint8_t b[PERIOD + MSG_BYTES_MAX];
};

/* Made once per process, before anything runs; read only afterwards. */
static struct pattern *pattern;

static uint64_t mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

static const uint8_t *content(const struct conv *c, int dir, int k)
{
	return pattern->b + mix((uint64_t)c->id << 32 | (uint64_t)dir << 16 | (uint64_t)k) % PERIOD;
}

static uint64_t tag_of(const struct conv *c, int dir, int k)
{
	return mix(0x7a67ull << 40 | (uint64_t)c->id << 20 | (uint64_t)dir << 16 | (uint64_t)k);
}

void traffic_init(struct traffic *t)
{
	if (!pattern) {
		pattern = malloc(sizeof(*pattern));
		if (!pattern)
			abort();
		for (uint32_t i = 0; i < PERIOD; i++) {
			uint8_t v = (uint8_t)mix(i + 12345);

			/* never the poison, so that poison is never right by chance */
			pattern->b[i] = v == POISON_RX || v == POISON_TX ? 1 : v;
		}
		memcpy(pattern->b + PERIOD, pattern->b, MSG_BYTES_MAX);
	}
	memset(t, 0, sizeof(*t));
}

struct conv *traffic_conv(struct traffic *t, int from, int to, enum link_side via, uint32_t window)
{
	struct conv *c = &t->conv[t->nconvs];

	if (t->nconvs == CONVS_MAX)
		abort();
	c->id = CONV_ID + (uint32_t)t->nconvs++;
	c->pos[0] = from;
	c->pos[1] = to;
	c->via = via;
	c->window = window;
	for (int i = 0; i < 2; i++)
		c->way[i].send_depth = c->way[i].recv_depth = 2;
	return c;
}

void traffic_message(struct way *w, uint32_t len, bool view)
{
	if (w->n == MSGS_MAX || len > MSG_BYTES_MAX)
		abort();
	if (view)
		w->view |= 1ull << w->n;
	w->len[w->n++] = len;
}

static uint8_t *take(struct traffic *t, int pos, size_t n, unsigned registered_percent)
{
	struct wnode *node = &t->world->node[pos];
	uint8_t *p;

	n = (n + 127) & ~(size_t)63;
	if (sim_random(t->world->sim, 100) < registered_percent &&
	    t->mem_used[pos] + n <= t->world->cfg.mem_bytes) {
		p = node->mem + t->mem_used[pos];
		t->mem_used[pos] += n;
		return p;
	}
	p = malloc(n);
	if (!p)
		abort();
	return p;
}

void traffic_ready(struct traffic *t, struct world *w, unsigned registered_percent)
{
	t->world = w;
	for (int i = 0; i < t->nconvs; i++)
		for (int d = 0; d < 2; d++) {
			struct conv *c = &t->conv[i];
			struct way *y = &c->way[d];
			uint32_t most = 0;

			for (int k = 0; k < y->n; k++)
				most = y->len[k] > most ? y->len[k] : most;
			for (int k = 0; k < DEPTH_MAX && y->n; k++) {
				y->tx[k].room = y->rx[k].room = most + 32;
				if (k < y->send_depth)
					y->tx[k].buf = take(t, c->pos[d], most + 32, registered_percent);
				if (k < y->recv_depth) {
					y->rx[k].buf = take(t, c->pos[!d], most + 32, registered_percent);
					memset(y->rx[k].buf, POISON_RX, most + 32);
				}
			}
			if (y->recv_from != NEVER)
				t->left += 2 * (uint64_t)y->n;
		}
}

static void step_send(struct traffic *t, struct conv *c, int d, struct tick *tick)
{
	struct way *y = &c->way[d];

	while (y->sent < y->queued) {
		struct slot *s = &y->tx[y->sent % y->send_depth];

		if (!s->x.finished)
			break;
		if (s->x.err != SIRCL_SUCCESS)
			world_fail(t->world, "conversation %u way %d: send %d ended with %d: %s",
				   c->id - CONV_ID, d, y->sent, s->x.err, chan_error(c->chan[d])->msg);
		if (s->x.done != y->len[y->sent])
			world_fail(t->world, "conversation %u way %d: send %d finished with %llu of %u bytes",
				   c->id - CONV_ID, d, y->sent, (unsigned long long)s->x.done,
				   y->len[y->sent]);
		memset(s->buf, POISON_TX, y->len[y->sent]);
		y->sent++;
		if (y->recv_from != NEVER)
			t->left--;
	}
	while (y->queued < y->n && y->queued - y->sent < y->send_depth && tick->now >= y->send_from) {
		struct slot *s = &y->tx[y->queued % y->send_depth];
		uint32_t len = y->len[y->queued];

		memcpy(s->buf, content(c, d, y->queued), len);
		memset(&s->x, 0, sizeof(s->x));
		if (!chan_send(c->chan[d], tick, s->buf, len, tag_of(c, d, y->queued), &s->x))
			break;
		y->queued++;
	}
}

static void wrong(struct traffic *t, const struct conv *c, int d, int k, const uint8_t *got,
		  const uint8_t *want, size_t from, size_t n)
{
	size_t i = 0;

	while (i < n && got[i] == want[i])
		i++;
	world_fail(t->world,
		   "conversation %u (%d to %d) message %d of %u bytes: byte %zu is 0x%02x, not 0x%02x: wrong "
		   "data",
		   c->id - CONV_ID, c->pos[d], c->pos[!d], k, c->way[d].len[k], from + i, got[i], want[i]);
}

static bool is_poison(const uint8_t *p, size_t n)
{
	return n == 0 || (p[0] == POISON_RX && memcmp(p, p + 1, n - 1) == 0);
}

static void step_view(struct traffic *t, struct conv *c, int d, struct tick *tick, struct slot *s)
{
	struct way *y = &c->way[d];
	const void *p;
	size_t n;

	while (!s->x.finished && (n = chan_view(c->chan[!d], &s->x, &p)) > 0) {
		/* often less than it gives: a reader may leave some for later */
		size_t use = n > 256 && sim_random(t->world->sim, 3) == 0 ? n / 2 & ~(size_t)15 : n;

		if (s->seen + use > y->len[y->received] ||
		    memcmp(p, content(c, d, y->received) + s->seen, use) != 0) {
			wrong(t, c, d, y->received, p, content(c, d, y->received) + s->seen, s->seen, use);
			return;
		}
		s->seen += use;
		chan_consume(c->chan[!d], tick, &s->x, use);
	}
}

static void step_recv(struct traffic *t, struct conv *c, int d, struct tick *tick)
{
	struct way *y = &c->way[d];
	struct chan *ch = c->chan[!d];

	while (y->received < y->posted) {
		int k = y->received;
		struct slot *s = &y->rx[k % y->recv_depth];

		if (s->view)
			step_view(t, c, d, tick, s);
		if (!s->x.finished)
			break;
		if (s->x.err != SIRCL_SUCCESS) {
			world_fail(t->world, "conversation %u way %d: receive %d ended with %d: %s",
				   c->id - CONV_ID, d, k, s->x.err, chan_error(ch)->msg);
			return;
		}
		if (s->x.len != y->len[k] || !s->x.tagged || s->x.tag != tag_of(c, d, k)) {
			world_fail(t->world,
				   "conversation %u way %d: receive %d has length %llu tag %llx, not %u %llx",
				   c->id - CONV_ID, d, k, (unsigned long long)s->x.len,
				   (unsigned long long)s->x.tag, y->len[k],
				   (unsigned long long)tag_of(c, d, k));
			return;
		}
		if (s->view && s->seen != y->len[k]) {
			world_fail(t->world, "conversation %u way %d: view %d finished with %zu of %u bytes",
				   c->id - CONV_ID, d, k, s->seen, y->len[k]);
			return;
		}
		if (!s->view && memcmp(s->buf, content(c, d, k), y->len[k]) != 0) {
			wrong(t, c, d, k, s->buf, content(c, d, k), 0, y->len[k]);
			return;
		}
		if (!is_poison(s->buf + (s->view ? 0 : y->len[k]), s->room - (s->view ? 0 : y->len[k]))) {
			world_fail(t->world, "conversation %u way %d: message %d wrote beyond its end",
				   c->id - CONV_ID, d, k);
			return;
		}
		memset(s->buf, POISON_RX, y->len[k]);
		s->poisoned = true;
		t->messages++;
		t->bytes += y->len[k];
		y->received++;
		y->finished_at = tick->now;
		t->left--;
	}
	while (y->posted < y->n && y->posted - y->received < y->recv_depth && tick->now >= y->recv_from) {
		int k = y->posted;
		struct slot *s = &y->rx[k % y->recv_depth];

		if (!is_poison(s->buf, s->room)) {
			world_fail(t->world,
				   "conversation %u way %d: something landed in delivered memory before "
				   "receive %d",
				   c->id - CONV_ID, d, k);
			return;
		}
		memset(&s->x, 0, sizeof(s->x));
		s->view = y->view >> k & 1;
		s->seen = 0;
		s->poisoned = false;
		if (!(s->view ? chan_recv_view(ch, tick, y->len[k], &s->x)
			      : chan_recv(ch, tick, s->buf, y->len[k], &s->x)))
			break;
		y->posted++;
	}
}

void traffic_step(struct wnode *node, struct tick *tick)
{
	struct traffic *t = node->user;

	if (!t->world)
		return;
	for (int i = 0; i < t->nconvs; i++) {
		struct conv *c = &t->conv[i];

		for (int e = 0; e < 2 && !t->world->failure[0]; e++) {
			if (c->pos[e] != node->pos)
				continue;
			if (!c->chan[e] && tick->now >= c->open_at[e]) {
				struct chan_cfg cfg = { .id = c->id,
							.peer = (uint16_t)c->pos[!e],
							.via = e ? (enum link_side) !c->via : c->via,
							.window = c->window };

				if (chan_open(node->net, tick, &cfg, &c->chan[e]) != SIRCL_SUCCESS)
					world_fail(t->world, "chan_open: %s", error_last()->msg);
			}
			if (!c->chan[e])
				continue;
			step_recv(t, c, !e, tick);
			step_send(t, c, e, tick);
		}
	}
}

uint64_t traffic_deadline(struct wnode *node)
{
	const struct traffic *t = node->user;
	uint64_t d = NEVER;

	if (!t->world)
		return NEVER;
	for (int i = 0; i < t->nconvs; i++)
		for (int e = 0; e < 2; e++) {
			const struct conv *c = &t->conv[i];

			if (c->pos[e] != node->pos)
				continue;
			if (!c->chan[e])
				d = tick_min(d, c->open_at[e]);
			if (c->way[!e].posted < c->way[!e].n && c->way[!e].posted == 0)
				d = tick_min(d, c->way[!e].recv_from);
			if (c->way[e].queued == 0 && c->way[e].n)
				d = tick_min(d, c->way[e].send_from);
		}
	return d;
}

bool traffic_done(struct world *w)
{
	const struct traffic *t = w->cfg.user;

	return t->left == 0;
}

void traffic_check_poison(struct traffic *t)
{
	for (int i = 0; i < t->nconvs; i++)
		for (int d = 0; d < 2; d++)
			for (int k = 0; k < t->conv[i].way[d].recv_depth; k++) {
				const struct slot *s = &t->conv[i].way[d].rx[k];

				if (s->poisoned && !is_poison(s->buf, s->room))
					world_fail(t->world,
						   "conversation %u way %d: something landed in delivered "
						   "memory",
						   t->conv[i].id - CONV_ID, d);
			}
}

void traffic_close(struct traffic *t)
{
	for (int i = 0; i < t->nconvs; i++)
		for (int e = 0; e < 2; e++) {
			struct tick tick = { .now = sim_now(t->world->sim) };

			if (t->conv[i].chan[e])
				chan_close(t->conv[i].chan[e], &tick);
			t->conv[i].chan[e] = NULL;
			t->conv[i].open_at[e] = NEVER;
		}
}

static void give(struct traffic *t, int pos, uint8_t *p)
{
	const struct wnode *n = &t->world->node[pos];

	if (p && !(n->mem && p >= n->mem && p < n->mem + t->world->cfg.mem_bytes))
		free(p);
}

void traffic_free(struct traffic *t)
{
	for (int i = 0; i < t->nconvs && t->world; i++)
		for (int d = 0; d < 2; d++)
			for (int k = 0; k < DEPTH_MAX; k++) {
				give(t, t->conv[i].pos[d], t->conv[i].way[d].tx[k].buf);
				give(t, t->conv[i].pos[!d], t->conv[i].way[d].rx[k].buf);
			}
}

void traffic_where(const struct traffic *t, char *buf, size_t n)
{
	size_t at = 0;

	buf[0] = '\0';
	for (int i = 0; i < t->nconvs; i++)
		for (int d = 0; d < 2; d++) {
			const struct conv *c = &t->conv[i];
			const struct way *y = &c->way[d];

			if (!y->n || y->recv_from == NEVER || y->received == y->n || at + 96 > n)
				continue;
			at += (size_t)snprintf(
				buf + at, n - at, " %u: %d to %d via %s, %d of %d received, %d sent;",
				c->id - CONV_ID, c->pos[d], c->pos[!d], c->via == LINK_NEXT ? "next" : "prev",
				y->received, y->n, y->sent);
		}
}
