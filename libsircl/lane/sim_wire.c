// SPDX-License-Identifier: Apache-2.0
/*
 * Between two ends: puts in flight, what lands when, and death. Invariants: a byte lands only while the
 * receiving end has neither fenced its epoch nor closed; the notes of one direction and epoch come in order,
 * each after all bytes of its put; a source is read when its bytes land, or at the latest when the sender's
 * own fence is complete (what is then still in the network lands from a copy).
 *
 * Time on a fabric with rates: a lane sends one chunk after the other; a chunk also takes its turn at the
 * sender's PCI domain and host side, all at once (cut-through: it has left when the slowest has passed it
 * on), and after the latency at the receiver's host side and domain. Every server serves first come, first
 * served, so lanes that share one share it evenly, to within a chunk.
 */
#include <stdlib.h>
#include <string.h>
#include "lane/sim_internal.h"

static void list_add(struct sim_list *l, struct flight *f)
{
	f->next = NULL;
	f->prev = l->tail;
	*(l->tail ? &l->tail->next : &l->head) = f;
	l->tail = f;
	l->n++;
}

static void list_del(struct sim_list *l, struct flight *f)
{
	*(f->prev ? &f->prev->next : &l->head) = f->next;
	*(f->next ? &f->next->prev : &l->tail) = f->prev;
	l->n--;
}

static void release(struct flight *f)
{
	struct sim *s = f->wire->sim;

	f->next = s->spare;
	s->spare = f;
}

void wire_unref(struct flight *f)
{
	if (--f->refs == 0 && f->gone)
		release(f);
}

/* Takes a put out of the world: nothing of it lands any more. */
static void drop(struct flight *f)
{
	struct sim_dir *d = &f->wire->dir[f->dir];

	list_del(f->orphan ? &d->orphans : &d->queue, f);
	f->gone = true;
	f->gen++;
	f->wire->sim->flights--;
	if (f->refs == 0)
		release(f);
}

static struct flight *flight_new(struct sim *s)
{
	struct flight *f = s->spare;
	uint8_t *copy = NULL;
	size_t room = 0;
	uint32_t gen = 0;

	if (f) {
		s->spare = f->next;
		copy = f->copy;
		room = f->copy_room;
		gen = f->gen + 1;
	} else {
		f = malloc(sizeof(*f));
		sircl_assert(f != NULL);
	}
	memset(f, 0, sizeof(*f));
	f->copy = copy;
	f->copy_room = room;
	f->gen = gen;
	return f;
}

/* The sender learns some time later that what it posted went nowhere. */
static void tell_sender(struct sim_wire *w, int dir, uint64_t delay, enum sim_reason why)
{
	struct sim_port *tx = &w->end[dir];

	if (w->dir[dir].error_due || tx->state != PORT_UP || tx->suspected)
		return;
	w->dir[dir].error_due = true;
	sim_push(w->sim, sim_here(w->sim) + delay, SE_ERROR, tx, tx->epoch, (unsigned)why | tx->life << 4);
}

static uint64_t refusal_delay(struct sim *s)
{
	return s->fabric.latency_ns + (s->fabric.jitter_ns && !s->choose ? sim_late(s) : 0);
}

static void schedule(struct flight *f, uint64_t when)
{
	struct sim *s = f->wire->sim;
	uint32_t n = s->choose ? 1 : (uint32_t)sim_random(s, s->fabric.pieces) + 1;

	if (n > f->len)
		n = f->len ? f->len : 1;
	f->npieces = f->left = (uint8_t)n;
	f->cut[0] = 0;
	f->cut[n] = f->len;
	for (uint32_t i = 1; i < n; i++) { /* sorted as they are drawn; an empty piece is harmless */
		uint32_t c = (uint32_t)sim_random(s, f->len), j = i;

		for (; j > 1 && f->cut[j - 1] > c; j--)
			f->cut[j] = f->cut[j - 1];
		f->cut[j] = c;
	}
	for (uint32_t i = 0; i < n; i++) {
		uint64_t late = s->choose ? 0 : sim_random(s, s->fabric.jitter_ns + 1);

		f->refs++;
		sim_push(s, when + late, SE_PIECE, f, f->gen, i);
	}
}

void wire_put(struct sim_port *tx, uint64_t now, const struct lane_put *p)
{
	struct sim *s = tx->sim;
	struct sim_wire *w = tx->wire;
	int dir = tx->end;
	struct sim_dir *d = &w->dir[dir];
	struct flight *f;

	if (s->puts++ == s->kill_at) {
		s->kill_at = NEVER;
		sim_push(s, now, SE_KILL, w, 0, s->kill_seen);
	}
	if (d->kill_in && --d->kill_in == 0)
		sim_push(s, now, SE_KILL, w, 0, d->kill_seen);
	if (w->dead || d->broken || tx->suspected) {
		bool there = !w->dead && w->end[!dir].fenced >= tx->epoch;

		d->lost = true;
		tell_sender(w, dir, there ? refusal_delay(s) : SIM_RETRY, there ? WHY_CLOSED : WHY_NO_ANSWER);
		return;
	}
	f = flight_new(s);
	f->wire = w;
	f->dir = (uint8_t)dir;
	f->epoch = tx->epoch;
	f->rx_life = tx->peer_life;
	f->len = p->len;
	f->src = p->src;
	f->note = p->note;
	f->left = 1;
	if (p->len) {
		f->dst = *p->dst;
		f->dst_off = p->dst_off;
		f->src_region = p->smem->id;
		f->src_life = tx->region[p->smem->id].life;
	}
	list_add(&d->queue, f);
	s->flights++;
	if (tx->cfg.max_notes && d->queue.n + w->end[!dir].unpolled > tx->cfg.max_notes)
		sim_violation(s, "cable %d lane %d: %u puts from position %d outstanding, %u promised",
			      w->cable, w->lane, d->queue.n + w->end[!dir].unpolled, tx->cfg.self,
			      tx->cfg.max_notes);
	if (!s->rated) {
		f->sent = true;
		schedule(f, now + s->fabric.latency_ns);
		return;
	}
	f->queued = f->arriving = p->len;
	if (!d->pumping) {
		d->pumping = true;
		sim_push(s, now > d->busy ? now : d->busy, SE_PUMP, w, 0, (unsigned)dir);
	}
}

/* When `bytes` that come to a server at `now` have left it, in order of coming. */
static uint64_t serve(uint64_t *free_at, uint64_t now, uint32_t bytes, double rate)
{
	if (rate <= 0)
		return now;
	*free_at = (*free_at > now ? *free_at : now) + (uint64_t)((double)bytes / rate + 0.5);
	return *free_at;
}

/* The same at the receiving side, where the bytes have already been coming in for as long as they take. */
static uint64_t take_in(uint64_t *free_at, uint64_t now, uint32_t bytes, double rate)
{
	uint64_t t;

	if (rate <= 0)
		return now;
	t = *free_at + (uint64_t)((double)bytes / rate + 0.5);
	*free_at = t > now ? t : now;
	return *free_at;
}

static uint64_t latest(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

void wire_pump(struct sim_wire *w, int dir)
{
	struct sim *s = w->sim;
	struct sim_dir *d = &w->dir[dir];
	struct sim_node *n = w->end[dir].node;
	struct flight *f = d->queue.head;
	uint32_t c;
	uint64_t t;

	while (f && f->sent)
		f = f->next;
	if (!f) {
		d->pumping = false;
		return;
	}
	c = f->queued < SIM_CHUNK ? f->queued : SIM_CHUNK;
	t = serve(&d->busy, s->now, c, w->rate);
	t = latest(t, serve(&n->tx_domain[w->lane % 2], s->now, c, s->domain_rate));
	t = latest(t, serve(&n->tx_host, s->now, c, s->tx_rate));
	d->busy = t;
	f->queued -= c;
	f->sent = f->queued == 0;
	f->refs++;
	sim_push(s, t + s->fabric.latency_ns, SE_ARRIVE, f, f->gen, c);
	sim_push(s, t, SE_PUMP, w, 0, (unsigned)dir);
}

void wire_arrive(struct flight *f, uint32_t bytes)
{
	struct sim *s = f->wire->sim;
	struct sim_node *n = f->wire->end[!f->dir].node;
	uint64_t t;

	if (!f->gone) {
		t = take_in(&n->rx_host, s->now, bytes, s->rx_rate);
		t = latest(t, take_in(&n->rx_domain[f->wire->lane % 2], s->now, bytes, s->domain_rate));
		f->arrived_at = latest(f->arrived_at, t);
		f->arriving -= bytes;
		if (f->arriving == 0)
			schedule(f, f->arrived_at);
	}
	wire_unref(f);
}

static bool accepts(const struct sim_port *rx, const struct flight *f)
{
	return rx->open && !rx->node->dead && rx->life == f->rx_life && rx->epoch == f->epoch &&
	       rx->fenced < f->epoch &&
	       (rx->state == PORT_HALF || rx->state == PORT_UP || rx->state == PORT_FENCING);
}

static void check_source(const struct flight *f)
{
	const struct sim_port *tx = &f->wire->end[f->dir];
	const struct sim_region *r = &tx->region[f->src_region];

	if (r->life != f->src_life || f->src < r->base || f->src + f->len > r->base + r->len)
		sim_violation(f->wire->sim,
			      "cable %d lane %d epoch %u: a put of position %d reads %u bytes of a source "
			      "that is no "
			      "longer registered (region %u)",
			      f->wire->cable, f->wire->lane, f->epoch, tx->cfg.self, f->len, f->src_region);
}

/* Lands bytes [from, to) of a put. */
static void land(struct flight *f, uint32_t from, uint32_t to)
{
	struct sim_wire *w = f->wire;
	struct sim_port *rx = &w->end[!f->dir];
	const struct sim_region *r = f->dst.key < LANE_REGIONS_MAX ? &rx->region[f->dst.key] : NULL;

	sircl_assert(w);
	if (from == to)
		return;
	if (!r || !r->life || !r->exported || f->dst_off > r->len || f->len > r->len - f->dst_off) {
		sim_violation(
			w->sim,
			"cable %d lane %d epoch %u: a put of %u bytes lands at %llu of region %u of position "
			"%d, which is not %s there",
			w->cable, w->lane, f->epoch, f->len, (unsigned long long)f->dst_off, f->dst.key,
			rx->cfg.self, r && r->life && !r->exported ? "exported" : "registered");
		return;
	}
	if (!f->src_life) { /* cut loose: from the copy */
		memcpy(r->base + f->dst_off + from, f->copy + from, to - from);
		return;
	}
	check_source(f);
	memcpy(r->base + f->dst_off + from, f->src + from, to - from);
}

void wire_piece(struct flight *f, unsigned piece)
{
	struct sim_wire *w = f->wire;
	struct sim *s = w->sim;
	struct sim_dir *d = &w->dir[f->dir];

	if (f->gone || f->landed[piece])
		return;
	if (d->stalled_until > s->now) {
		f->refs++;
		sim_push(s, d->stalled_until + sim_random(s, s->fabric.jitter_ns + 1), SE_PIECE, f, f->gen,
			 piece);
		return;
	}
	if (!accepts(&w->end[!f->dir], f)) {
		d->broken = d->lost = true;
		if (!f->orphan && !w->dead)
			tell_sender(w, f->dir, refusal_delay(s), WHY_CLOSED);
		drop(f);
		return;
	}
	land(f, f->cut[piece], f->cut[piece + 1]);
	f->landed[piece] = 1;
	if (--f->left)
		return;
	if (f->orphan)
		drop(f);
	else
		wire_deliver(w, f->dir);
}

/* Gives the receiver the notes whose turn has come. */
void wire_deliver(struct sim_wire *w, int dir)
{
	struct sim *s = w->sim;
	struct sim_port *rx = &w->end[!dir], *tx = &w->end[dir];
	struct sim_dir *d = &w->dir[dir];
	struct flight *f;

	while ((f = d->queue.head) && f->left == 0 && f->epoch == rx->epoch &&
	       (rx->state == PORT_UP || rx->state == PORT_FENCING)) {
		port_note(rx, f->epoch, &f->note);
		rx->stats.notes++;
		rx->stats.note_bytes += f->len;
		if (w->dup) {
			w->dup--;
			s->count[FAULT_DUP].struck++;
			port_note(rx, f->epoch, &f->note);
		}
		if (!w->dead && !s->choose)
			sim_push(s, s->now + s->fabric.latency_ns, SE_DONE, tx, f->epoch, tx->life);
		drop(f);
	}
}

/* The sender's network card will not read this memory again: what is under way goes on from a copy. */
static void cut_loose(struct flight *f)
{
	if (!f->len || !f->src_life)
		return;
	check_source(f);
	if (f->copy_room < f->len) {
		free(f->copy);
		f->copy = malloc(f->len);
		sircl_assert(f->copy != NULL);
		f->copy_room = f->len;
	}
	memcpy(f->copy, f->src, f->len);
	f->src_life = 0;
}

static void fence_outgoing(struct sim_list *l, uint32_t epoch)
{
	for (struct flight *f = l->head, *next; f; f = next) {
		next = f->next;
		if (f->epoch > epoch)
			continue;
		if (f->sent)
			cut_loose(f);
		else
			drop(f);
	}
}

void wire_fence(struct sim_port *port, uint32_t epoch)
{
	struct sim_wire *w = port->wire;
	struct sim_dir *in = &w->dir[!port->end], *out = &w->dir[port->end];
	bool lost = false;

	if (epoch > port->fenced)
		port->fenced = epoch;
	for (struct flight *f = in->queue.head, *next; f; f = next) {
		next = f->next;
		if (f->epoch <= epoch) {
			drop(f);
			lost = true;
		}
	}
	for (struct flight *f = in->orphans.head, *next; f; f = next) {
		next = f->next;
		if (f->epoch <= epoch)
			drop(f);
	}
	in->broken = true;
	if (lost) {
		in->lost = true;
		tell_sender(w, !port->end, w->dead ? SIM_RETRY : refusal_delay(w->sim),
			    w->dead ? WHY_NO_ANSWER : WHY_CLOSED);
	}
	fence_outgoing(&out->queue, epoch);
	fence_outgoing(&out->orphans, epoch);
	out->broken = out->lost = true;
}

bool wire_busy(const struct sim_wire *w)
{
	return w->dir[0].queue.n + w->dir[1].queue.n > 0;
}

/*
 * The path dies. Of what is in flight one way, a random number of the first still arrives, notes and all; of
 * each later put any piece may land late, or never, and no note comes.
 */
static void kill_dir(struct sim_wire *w, int dir)
{
	struct sim *s = w->sim;
	struct sim_dir *d = &w->dir[dir];
	uint64_t keep = s->choose ? 0 : sim_random(s, d->queue.n + 1);
	struct flight *f = d->queue.head, *next;

	d->broken = true;
	if (keep && sim_random(s, 4) == 0)
		d->stalled_until = s->now + sim_late(s);
	for (; f && keep && f->sent; keep--)
		f = f->next;
	for (; f; f = next) {
		bool any = false;

		next = f->next;
		d->lost = true;
		if (!f->sent || f->arriving) {
			drop(f);
			continue;
		}
		list_del(&d->queue, f);
		list_add(&d->orphans, f);
		f->orphan = true;
		f->gen++; /* forget when the pieces were to land */
		for (unsigned i = 0; i < f->npieces; i++) {
			if (f->landed[i])
				continue;
			if (!s->choose && sim_random(s, 3) == 0)
				continue;
			any = true;
			f->refs++;
			sim_push(s, s->now + (s->choose ? s->fabric.latency_ns : sim_late(s)), SE_PIECE, f,
				 f->gen, i);
		}
		if (!any)
			drop(f);
	}
	if (d->lost)
		tell_sender(w, dir, SIM_RETRY, WHY_NO_ANSWER);
}

void wire_kill(struct sim_wire *w, unsigned seen, enum sim_reason why)
{
	struct sim *s = w->sim;

	if (w->dead)
		return;
	if (wire_busy(w))
		s->count[FAULT_KILL].struck++;
	w->dead = true;
	for (int i = 0; i < 2; i++) {
		struct sim_port *port = &w->end[i];

		if ((seen >> i & 1) && port->open)
			sim_push(s, s->now + (s->choose ? 0 : sim_random(s, 20 * USEC)), SE_ERROR, port,
				 port->epoch, (unsigned)why | port->life << 4);
		kill_dir(w, i);
	}
}

void wire_revive(struct sim_wire *w)
{
	if (!w->dead)
		return;
	w->sim->count[FAULT_REVIVE].struck++;
	w->dead = false;
	for (int i = 0; i < 2; i++)
		w->dir[i].broken = w->dir[i].lost;
}

void wire_free(struct sim_wire *w)
{
	for (int i = 0; i < 2; i++) {
		while (w->dir[i].queue.head)
			drop(w->dir[i].queue.head);
		while (w->dir[i].orphans.head)
			drop(w->dir[i].orphans.head);
		free(w->end[i].events);
		free(w->end[i].auth);
	}
}
