/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handshakes: from a connect request to a connection whose two ends have proved that they know a key of the
 * job and mean the same lane and epoch. Message 1 of base/auth.h travels in the private data of the request,
 * message 2 in that of the reply, message 3 in the first SEND, with what the connecting end tells of its
 * memory. The answer to it, the same of the accepting end, brings the connecting end up.
 *
 * Nothing a stranger sends has an effect but one warning a minute. The accepting end answers at once, also
 * while it is up or not yet allowed; a connection that is proved waits until allow() lets its epoch come up.
 * So a newer epoch that knocks while this end is up is noticed (suspect), and taken as soon as the link has
 * fenced. A queue pair is made only for a request that is well-formed, of an allowed epoch, and names a key
 * of this end.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "lane/handshake.h"
#include "lane/verbs_internal.h"

#define RESOLVE_MS 2000
#define REJECTED_NO_LISTENER 8 /* IB_CM_REJ_INVALID_SERVICE_ID: nobody listens at that port */

static const char magic[8] = { 'S', 'I', 'R', 'C', 'L', 'r', 'd', 'm' };
static const char other_version[] =
	"another version of the verbs lane's protocol; all ranks need the same libsircl";

/* The accepting end's hello is its RoCE MTU of now; the connecting end's, at most, is in the request. */
static void start_auth(struct verbs_lane *l, struct verbs_hs *h)
{
	uint8_t mtu[VERBS_MTU_BYTES];
	uint8_t ctx[LANE_AUTH_CONTEXT];

	lane_auth_context(ctx, magic, &l->cfg, h->connects, h->epoch, VERBS_VERSION);
	if (!h->connects)
		verbs_refresh_mtu(l);
	put32(mtu, l->mtu);
	auth_start(&h->auth, l->cfg.keys, h->connects, ctx, sizeof(ctx), mtu, h->connects ? 0 : sizeof(mtu));
	auth_offer(&h->auth, VERBS_KEYS);
}

static void hs_free(struct verbs_lane *l, struct verbs_hs *h)
{
	if (h->state == VERBS_HS_FREE)
		return;
	if (h->qp.id)
		verbs_qp_destroy(l, &h->qp);
	h->state = VERBS_HS_FREE;
	if (!h->connects)
		l->nhalf--;
}

/* The connecting side's handshake has failed. */
static void down(struct verbs_lane *l, struct verbs_hs *h, bool gone, const char *what)
{
	if (l->ndown == VERBS_DOWNS) {
		memmove(l->down, l->down + 1, sizeof(l->down) - sizeof(l->down[0]));
		l->ndown--;
	}
	l->down[l->ndown++] = h->epoch;
	l->gone_down = gone;
	snprintf(l->why_down, sizeof(l->why_down), "%s", what);
	hs_free(l, h);
}

/* One line a minute, whatever knocks. */
static bool may_warn(struct verbs_lane *l)
{
	if (l->now < l->warn_next)
		return false;
	l->warn_next = l->now + VERBS_WARN_NS;
	return true;
}

static void stranger(struct verbs_lane *l, const char *what)
{
	char where[VERBS_WHERE_MAX];

	l->strangers++;
	if (!may_warn(l))
		return;
	log_warn(&l->cfg.ctx->log,
		 "verbs lane %u of cable %u (%s, to position %u): dropped %u connection%s that did not "
		 "belong here: %s",
		 l->cfg.lane, l->cfg.cable, verbs_where(l, where), l->cfg.peer, l->strangers,
		 l->strangers == 1 ? "" : "s", what);
	l->strangers = 0;
}

/* `fmt` NULL: not worth a word (accepting side only). */
void verbs_hs_fail(struct verbs_lane *l, struct verbs_hs *h, bool gone, const char *fmt, ...)
{
	char text[320] = "";
	va_list ap;

	if (fmt) {
		va_start(ap, fmt);
		vsnprintf(text, sizeof(text), fmt, ap);
		va_end(ap);
	}
	if (h->connects) {
		down(l, h, gone, text);
		return;
	}
	hs_free(l, h);
	if (fmt)
		stranger(l, text);
}

/* Our own trouble; at the accepting end it is no stranger's doing. */
static void fail_errno(struct verbs_lane *l, struct verbs_hs *h, const char *what, int err)
{
	char text[ERROR_MSG_MAX];

	/* also where the limit of locked memory is the cause, it says so */
	verbs_error(l, what, err);
	snprintf(text, sizeof(text), "%s", error_last()->msg);
	if (h->connects) {
		down(l, h, false, text);
		return;
	}
	hs_free(l, h);
	if (may_warn(l))
		log_warn(&l->cfg.ctx->log, "a connection of the peer was not taken, it may try again: %s",
			 text);
}

/* The resend time of both ends. An old kernel has no such option: its own time is longer, that is all. */
static void set_timeout(struct verbs_lane *l, struct rdma_cm_id *id)
{
	uint8_t v = VERBS_ACK_TIMEOUT;
	char where[VERBS_WHERE_MAX], buf[96];

	if (!l->lib->cm.rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &v, sizeof(v)) ||
	    l->no_option)
		return;
	l->no_option = true;
	log_info(&l->cfg.ctx->log, LOG_LANE,
		 "verbs lane %u of cable %u on %s: the kernel does not take an ACK timeout (%s); a dead lane "
		 "is noticed later",
		 l->cfg.lane, l->cfg.cable, verbs_where(l, where), verbs_errno(errno, buf, sizeof(buf)));
}

/* ---- connecting ---- */

void verbs_hs_connect(struct verbs_lane *l, const struct sockaddr_storage *to, uint32_t epoch)
{
	struct verbs_hs *h = &l->out;
	struct sockaddr_storage src = l->local, dst = *to;
	char where[VERBS_WHERE_MAX];

	h->state = VERBS_HS_ADDR;
	h->epoch = epoch;
	h->began = l->now;
	h->limit = l->now + VERBS_HANDSHAKE_NS;
	h->qp = (struct verbs_qp){ 0 };
	if (l->dead) {
		verbs_hs_fail(l, h, false,
			      "%s: the RDMA device was removed or has failed; this communicator cannot use "
			      "it again, a new one can",
			      verbs_where(l, where));
		return;
	}
	if (l->lib->cm.rdma_create_id(l->events, &h->qp.id, NULL, RDMA_PS_TCP)) {
		h->qp.id = NULL;
		fail_errno(l, h, "rdma_create_id", errno);
		return;
	}
	/* before the route: its packet life time, which the request tells the peer, follows from it */
	set_timeout(l, h->qp.id);
	if (l->lib->cm.rdma_resolve_addr(h->qp.id, (struct sockaddr *)&src, (struct sockaddr *)&dst,
					 RESOLVE_MS))
		fail_errno(l, h, "rdma_resolve_addr", errno);
}

/* The route is known: the request, with message 1. */
static void request(struct verbs_lane *l, struct verbs_hs *h)
{
	uint8_t first[AUTH_MSG_MAX], data[4 + AUTH_BARE_BYTES(KEYRING_MAX)];
	struct rdma_conn_param param = {
		.private_data = data,
		.responder_resources = 1,
		.initiator_depth = 1,
		.flow_control = 1,
		.retry_count = VERBS_RETRY,
		.rnr_retry_count = VERBS_RNR_RETRY,
	};
	size_t n;
	int err;

	if (h->qp.id->verbs != l->pd->context) {
		char where[VERBS_WHERE_MAX];

		verbs_hs_fail(l, h, false, "%s: the way to the peer goes through another RDMA device",
			      verbs_where(l, where));
		return;
	}
	err = verbs_qp_create(l, &h->qp, h->qp.id);
	if (err) {
		fail_errno(l, h, "making a queue pair", err);
		return;
	}
	start_auth(l, h);
	if (auth_step(&h->auth, NULL, 0, first, &n) != SIRCL_SUCCESS) {
		verbs_hs_fail(l, h, false, "%s", error_last()->msg);
		return;
	}
	put32(data, h->epoch);
	n = 4 + auth_bare(&h->auth, data + 4);
	sircl_assert(n <= VERBS_REQUEST_BYTES);
	param.private_data_len = (uint8_t)n;
	param.qp_num = h->qp.qp->qp_num;
	if (l->lib->cm.rdma_connect(h->qp.id, &param)) {
		fail_errno(l, h, "rdma_connect", errno);
		return;
	}
	h->state = VERBS_HS_REPLY;
}

/* The reply is here, with message 2: the peer is proved. Everything that it may send from its answer on finds
 * a receive. */
static void reply(struct verbs_lane *l, struct verbs_hs *h, const uint8_t *data, size_t n)
{
	uint8_t third[AUTH_MSG_MAX];
	struct verbs_hello mine;
	size_t len = n >= 2 ? (size_t)(data[0] | data[1] << 8) : 0, nout;
	int err;

	if (len > n || !len || auth_step(&h->auth, data, len, third, &nout) != SIRCL_SUCCESS) {
		verbs_hs_fail(l, h, false, "%s",
			      len > n || !len ? "the peer's reply is no handshake" : error_last()->msg);
		return;
	}
	sircl_assert(h->auth.state == AUTH_OK && nout == AUTH_MSG3_BYTES);
	if (h->auth.npeer_hello != VERBS_MTU_BYTES) {
		verbs_hs_fail(l, h, false, "%s", other_version);
		return;
	}
	verbs_hello_fill(l, &mine);
	memcpy(h->out, third, nout);
	memcpy(h->out + nout, &mine, sizeof(mine));
	err = verbs_qp_ready(l, &h->qp, get32(h->auth.peer_hello));
	if (!err)
		err = verbs_qp_trust(l, &h->qp);
	if (!err)
		err = verbs_post_buffer(l, &h->qp, WR_HELLO_IN, h->in, VERBS_HS_BUF);
	if (!err)
		err = verbs_post_slots(l, &h->qp);
	if (!err && l->lib->cm.rdma_establish(h->qp.id))
		err = errno ? errno : EIO;
	if (!err)
		err = verbs_send_buffer(l, &h->qp, WR_HELLO_OUT, h->out, VERBS_PROOF_BYTES);
	if (err)
		fail_errno(l, h, "answering the peer's reply", err);
	else
		h->state = VERBS_HS_PROOF;
}

/* ---- accepting ---- */

static void refuse(struct verbs_lane *l, struct rdma_cm_id *id, const char *what)
{
	l->lib->cm.rdma_reject(id, NULL, 0);
	l->lib->cm.rdma_destroy_id(id);
	if (what)
		stranger(l, what);
}

/* All slots taken: the oldest has to go. A real peer needs a moment, a stranger that sits there for two
 * seconds must not keep it out. */
static struct verbs_hs *half_slot(struct verbs_lane *l)
{
	struct verbs_hs *h = NULL;

	for (int i = 0; i < VERBS_HALF_OPEN; i++) {
		struct verbs_hs *s = &l->half[i];

		if (s->state == VERBS_HS_FREE)
			return s;
		if (s->state != VERBS_HS_PROVED && (!h || s->began < h->began))
			h = s;
	}
	if (h)
		verbs_hs_fail(l, h, false, "too many at once");
	return h;
}

static void incoming(struct verbs_lane *l, struct rdma_cm_id *id, const uint8_t *data, size_t n)
{
	uint8_t msg[AUTH_MSG_MAX], second[AUTH_MSG_MAX];
	struct rdma_conn_param param = {
		.private_data = second,
		.responder_resources = 1,
		.initiator_depth = 1,
		.flow_control = 1,
		.rnr_retry_count = VERBS_RNR_RETRY,
	};
	struct verbs_hs try = { 0 }, *h;
	size_t nmsg, nsecond;
	int err;

	nmsg = n > 4 ? auth_dress(data + 4, n - 4, msg) : 0;
	if (!nmsg) {
		refuse(l, id, "a request that is no handshake");
		return;
	}
	try.epoch = get32(data);
	/* a floor is a promise; epochs do not wrap */
	if (l->dead || try.epoch < l->min_epoch || try.epoch == UINT32_MAX) {
		refuse(l, id, NULL);
		return;
	}
	start_auth(l, &try);
	if (auth_step(&try.auth, msg, nmsg, second, &nsecond) != SIRCL_SUCCESS) {
		refuse(l, id, error_last()->msg);
		return;
	}
	h = id->verbs == l->pd->context ? half_slot(l) : NULL;
	if (!h) {
		refuse(l, id, NULL);
		return;
	}
	h->state = VERBS_HS_PROOF;
	h->connects = false;
	h->epoch = try.epoch;
	h->auth = try.auth;
	h->began = l->now;
	h->limit = l->now + VERBS_HANDSHAKE_NS;
	h->qp = (struct verbs_qp){ .id = id };
	l->nhalf++;
	err = verbs_qp_create(l, &h->qp, id);
	if (!err)
		err = verbs_post_buffer(l, &h->qp, WR_HELLO_IN, h->in, VERBS_HS_BUF);
	if (err) {
		l->lib->cm.rdma_reject(id, NULL, 0);
		if (err == ENOMEM)
			fail_errno(l, h, "making a queue pair for the peer", err);
		else /* it has hung up already */
			verbs_hs_fail(l, h, false, NULL);
		return;
	}
	set_timeout(l, id); /* before the queue pair asks for its time */
	err = verbs_qp_ready(l, &h->qp, 0);
	if (err) {
		fail_errno(l, h, "a queue pair for the peer", err);
		return;
	}
	param.private_data_len = (uint8_t)nsecond;
	param.qp_num = h->qp.qp->qp_num;
	if (l->lib->cm.rdma_accept(id, &param))
		fail_errno(l, h, "rdma_accept", errno);
}

/* ---- both ---- */

static struct verbs_hs *of_id(struct verbs_lane *l, const struct rdma_cm_id *id)
{
	if (l->out.state != VERBS_HS_FREE && l->out.qp.id == id)
		return &l->out;
	for (int i = 0; l->nhalf && i < VERBS_HALF_OPEN; i++)
		if (l->half[i].state != VERBS_HS_FREE && l->half[i].qp.id == id)
			return &l->half[i];
	return NULL;
}

static void connecting_event(struct verbs_lane *l, struct verbs_hs *h, const struct rdma_cm_event *e,
			     const uint8_t *data, size_t n)
{
	char buf[96];

	switch (e->event) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		if (h->state != VERBS_HS_ADDR)
			return;
		h->state = VERBS_HS_ROUTE;
		if (l->lib->cm.rdma_resolve_route(h->qp.id, RESOLVE_MS))
			fail_errno(l, h, "rdma_resolve_route", errno);
		return;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		if (h->state == VERBS_HS_ROUTE)
			request(l, h);
		return;
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
		if (h->state == VERBS_HS_REPLY)
			reply(l, h, data, n);
		return;
	case RDMA_CM_EVENT_REJECTED:
		if (e->status == REJECTED_NO_LISTENER)
			verbs_hs_fail(l, h, true, "connecting failed: nobody listens there");
		else
			verbs_hs_fail(l, h, false,
				      "the peer refused the connection (reason %d: a fenced epoch, another "
				      "job or another key)",
				      e->status);
		return;
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
		verbs_hs_fail(l, h, false, "connecting failed: %s: %s", l->lib->cm.rdma_event_str(e->event),
			      verbs_errno(e->status < 0 ? -e->status : e->status, buf, sizeof(buf)));
		return;
	case RDMA_CM_EVENT_DISCONNECTED:
		verbs_hs_fail(l, h, false,
			      "the peer closed the connection during the handshake (not ready, a fenced "
			      "epoch, another job or another key)");
		return;
	default:
		return;
	}
}

void verbs_hs_event(struct verbs_lane *l, const struct rdma_cm_event *e, const uint8_t *data, size_t n)
{
	struct verbs_hs *h;

	if (e->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
		incoming(l, e->id, data, n);
		return;
	}
	h = of_id(l, e->id);
	if (!h)
		return;
	if (h->connects)
		connecting_event(l, h, e, data, n);
	else if (e->event == RDMA_CM_EVENT_DISCONNECTED || e->event == RDMA_CM_EVENT_REJECTED ||
		 e->event == RDMA_CM_EVENT_CONNECT_ERROR || e->event == RDMA_CM_EVENT_UNREACHABLE)
		verbs_hs_fail(l, h, false, NULL);
}

/* NULL, or why the peer's hello cannot be. */
static const char *take_hello(const struct verbs_lane *l, struct verbs_hs *h, const uint8_t *p)
{
	struct verbs_hello *o = &h->hello;

	memcpy(o, p, sizeof(*o));
	o->version = le32toh(o->version);
	o->max_notes = le32toh(o->max_notes);
	o->arena = le64toh(o->arena);
	o->arena_len = le64toh(o->arena_len);
	o->arena_key = le32toh(o->arena_key);
	o->ring_key = le32toh(o->ring_key);
	o->ring = le64toh(o->ring);
	o->mtu = le32toh(o->mtu);
	o->netdev_mtu = le32toh(o->netdev_mtu);
	if (o->version != VERBS_VERSION)
		return other_version;
	if (o->max_notes != l->cfg.max_notes)
		return "the peer's window is another; all ranks need the same parameters";
	return NULL;
}

/* The answer: the connecting end is up. */
static void answered(struct verbs_lane *l, struct verbs_hs *h)
{
	struct verbs_qp qp = h->qp;

	if (l->state != VERBS_DOWN || h->epoch < l->min_epoch) {
		verbs_hs_fail(l, h, false, "the epoch is fenced");
		return;
	}
	h->qp.id = NULL;
	hs_free(l, h);
	verbs_up(l, &qp, h->epoch, &h->hello);
}

void verbs_hs_completion(struct verbs_lane *l, struct verbs_hs *h, const struct ibv_wc *wc)
{
	const size_t want = h->connects ? sizeof(struct verbs_hello) : VERBS_PROOF_BYTES;
	const size_t skip = want - sizeof(struct verbs_hello);
	uint8_t none[AUTH_MSG_MAX];
	const char *bad;
	size_t n;

	if (wc->status != IBV_WC_SUCCESS) {
		verbs_hs_fail(l, h, false, "the handshake failed: %s",
			      l->lib->ibv.ibv_wc_status_str(wc->status));
		return;
	}
	if (verbs_wr_kind(wc->wr_id) != WR_HELLO_IN)
		return;
	if (h->state != VERBS_HS_PROOF || wc->byte_len != want) {
		verbs_hs_fail(l, h, false, "bytes that are no handshake");
		return;
	}
	if (!h->connects && auth_step(&h->auth, h->in, AUTH_MSG3_BYTES, none, &n) != SIRCL_SUCCESS) {
		verbs_hs_fail(l, h, false, "%s", error_last()->msg);
		return;
	}
	bad = take_hello(l, h, h->in + skip);
	if (bad)
		verbs_hs_fail(l, h, false, "%s", bad);
	else if (h->connects)
		answered(l, h);
	else
		h->state = VERBS_HS_PROVED;
}

/* Brings up the newest proved connection if it may come up; else makes it known. */
static void settle(struct verbs_lane *l)
{
	struct verbs_hs *best = NULL;
	struct verbs_hello mine;
	struct verbs_qp qp;
	int err;

	for (int i = 0; i < VERBS_HALF_OPEN; i++) {
		struct verbs_hs *h = &l->half[i];

		if (h->state != VERBS_HS_PROVED)
			continue;
		if (best && best->epoch >= h->epoch) {
			verbs_hs_fail(l, h, false, NULL);
			continue;
		}
		if (best)
			verbs_hs_fail(l, best, false, NULL);
		best = h;
	}
	if (!best)
		return;
	if (best->epoch < l->min_epoch) {
		verbs_hs_fail(l, best, false, NULL);
		return;
	}
	if (l->state == VERBS_UP || l->state == VERBS_SUSPECT) { /* its epoch is newer: min_epoch is above
								    ours */
		verbs_suspect(l, false, "the peer reconnects with epoch %u", best->epoch);
		return;
	}
	if (l->state != VERBS_DOWN || !l->accepting || l->ev_fenced)
		return;
	/* the answer's buffer is the connection's: this one may be taken by the next request */
	verbs_hello_fill(l, &mine);
	memcpy(l->answer, &mine, sizeof(mine));
	err = verbs_qp_trust(l, &best->qp);
	if (!err)
		err = verbs_post_slots(l, &best->qp);
	if (!err)
		err = verbs_send_buffer(l, &best->qp, WR_HELLO_OUT, l->answer, sizeof(mine));
	if (err) {
		fail_errno(l, best, "posting the answer", err);
		return;
	}
	qp = best->qp;
	best->qp.id = NULL;
	hs_free(l, best);
	verbs_up(l, &qp, best->epoch, &best->hello);
}

void verbs_hs_poll(struct verbs_lane *l)
{
	if (l->out.state != VERBS_HS_FREE && l->now >= l->out.limit)
		verbs_hs_fail(l, &l->out, false, "no answer within 2 s");
	if (!l->nhalf)
		return;
	for (int i = 0; i < VERBS_HALF_OPEN; i++)
		if (l->half[i].state != VERBS_HS_FREE && l->now >= l->half[i].limit)
			verbs_hs_fail(l, &l->half[i], false,
				      l->half[i].state == VERBS_HS_PROVED ? NULL
									  : "nothing was proved within 2 s");
	settle(l);
}

void verbs_hs_cancel(struct verbs_lane *l, uint32_t below, const char *why)
{
	if (l->out.state != VERBS_HS_FREE && l->out.epoch < below)
		verbs_hs_fail(l, &l->out, false, "%s", why);
	for (int i = 0; i < VERBS_HALF_OPEN; i++)
		if (l->half[i].state != VERBS_HS_FREE && l->half[i].epoch < below)
			verbs_hs_fail(l, &l->half[i], false, NULL);
}

void verbs_hs_close(struct verbs_lane *l)
{
	hs_free(l, &l->out);
	for (int i = 0; i < VERBS_HALF_OPEN; i++)
		hs_free(l, &l->half[i]);
}

uint64_t verbs_hs_deadline(const struct verbs_lane *l)
{
	uint64_t t = l->out.state != VERBS_HS_FREE ? l->out.limit : NEVER;

	for (int i = 0; l->nhalf && i < VERBS_HALF_OPEN; i++)
		if (l->half[i].state != VERBS_HS_FREE)
			t = tick_min(t, l->half[i].limit);
	return t;
}
