/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "restart.h"

/* The progress thread. */

#define PUBLISH_EVERY (10 * NS_PER_MS)
#define LONGEST_SLEEP NS_PER_S
#define LONGEST_QUIET NS_PER_S
#define DOUBTFUL      (100 * NS_PER_MS)

/* Where clocks begin: bits above 32 are never 0, for that would say that they are not told (R4.9). */
#define CLOCK_ORIGIN (UINT64_C(1) << 32)

void
session_header(const struct pbox_client *c, struct pbox_hdr *h, uint8_t type)
{
	uint64_t us = CLOCK_ORIGIN + c->now / NS_PER_US;

	*h = (struct pbox_hdr){
		.type = type,
		.flags = c->link.auth != NULL ? PBOX_F_AUTH : 0,
		.token = c->token,
		.job = c->job_number,
		.worker = c->worker,
		.incarnation = c->incarnation,
		.ts = (uint32_t)us,
		.held = (uint32_t)(us >> 32),
	};
}

void
session_fail(struct pbox_client *c, int code, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	if (c->failed)
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	c->failed = true;
	pthread_mutex_lock(&c->lock);
	c->fatal = code;
	memcpy(c->fatal_text, text, sizeof(text));
	pthread_mutex_unlock(&c->lock);
	control_fail_all(c);
	/* nothing is sent any more: every operation ends here, also those half sent */
	while (c->ops != NULL) {
		op_fail(c, c->ops, code, text);
		op_finish(c, c->ops);
	}
}

/* ---- chunk id -> chunk ------------------------------------------------------------------- */

static uint32_t
ref_hash(uint32_t id, uint32_t cap)
{
	return (uint32_t)((id * 0x9E3779B97F4A7C15ull) >> 32) & (cap - 1);
}

static void
ref_put(struct chunk_ref *refs, uint32_t cap, struct chunk_ref r)
{
	uint32_t i = ref_hash(r.id, cap);

	while (refs[i].table != NULL && refs[i].id != r.id)
		i = (i + 1) & (cap - 1);
	refs[i] = r;
}

const struct chunk_ref *
refs_find(const struct pbox_client *c, uint32_t id)
{
	uint32_t i;

	if (c->refs_cap == 0)
		return NULL;
	for (i = ref_hash(id, c->refs_cap); c->refs[i].table != NULL;
		i = (i + 1) & (c->refs_cap - 1))
		if (c->refs[i].id == id)
			return &c->refs[i];
	return NULL;
}

int
refs_add(struct pbox_client *c, struct table *t)
{
	uint32_t cap = c->refs_cap > 0 ? c->refs_cap : 1024;
	uint64_t need = 2ull * ((uint64_t)c->refs_used + t->chunks);

	while (cap < need && cap < 1u << 31)
		cap *= 2;
	if (cap < need)
		return -ENOMEM;
	if (t->number >= c->table_of_cap) {
		uint32_t n = t->number * 2 + 8;
		struct table **list = reallocarray(c->table_of, n, sizeof(*list));

		if (list == NULL)
			return -ENOMEM;
		c->table_of = list;
		c->table_of_cap = n;
	}
	c->table_of[t->number] = t;
	if (cap != c->refs_cap) {
		struct chunk_ref *refs = calloc(cap, sizeof(*refs));

		if (refs == NULL)
			return -ENOMEM;
		for (uint32_t i = 0; i < c->refs_cap; i++)
			if (c->refs[i].table != NULL)
				ref_put(refs, cap, c->refs[i]);
		free(c->refs);
		c->refs = refs;
		c->refs_cap = cap;
	}
	for (uint32_t i = 0; i < t->chunks; i++)
		ref_put(c->refs, cap, (struct chunk_ref){t->chunk[i].id, i, t});
	c->refs_used += t->chunks;
	return 0;
}

/* ---- receiving --------------------------------------------------------------------------- */

static bool
from_box(const struct pbox_client *c, const struct sockaddr_in *a)
{
	if (a->sin_addr.s_addr == c->box.addr.sin_addr.s_addr)
		return true;
	for (unsigned i = 0; i < c->endpoints; i++)
		if (a->sin_addr.s_addr == c->ep[i].peer.addr.sin_addr.s_addr)
			return true;
	return false;
}

static void
shutting_down(struct pbox_client *c)
{
	if (rejoin_possible(c))
		rejoin_begin(c, REJOIN_SHUTDOWN);
	else
		session_fail(c, PBOX_C_LOST,
			"the box at %s is shutting down: open the client again when it is back",
			c->box_name);
}

static void
session_unknown(struct pbox_client *c, bool restarted, const char *why)
{
	if (rejoin_possible(c))
		rejoin_begin(c, restarted ? REJOIN_RESTARTED : REJOIN_FORGOTTEN);
	else if (why[0] != 0)
		session_fail(c, PBOX_C_LOST, "the box at %s: %s", c->box_name, why);
	else
		session_fail(c, PBOX_C_LOST,
			restarted ? "the box at %s was restarted, and the job's state went with "
				    "it: open the client again"
				  : "the box at %s does not know this session any more (silent for "
				    "longer than its lease, or the job ended): open the client "
				    "again",
			c->box_name);
}

/** ERRORs and LEFT that end the session. */
static bool
ends_session(struct pbox_client *c, const struct rx_frame *f)
{
	const struct pbox_hdr *h = &f->hdr;
	uint16_t code = h->aux;
	struct pbox_error_msg m = {0};

	if (h->type == PBOX_LEFT && h->chunk == 0 && h->aux == 1) {
		shutting_down(c);
		return true;
	}
	if (h->type != PBOX_ERROR)
		return false;
	if (h->length > 0 && pbox_error_decode(f->payload, h->length, &m) == 0)
		code = m.code;
	if (code == PBOX_E_SESSION)
		session_unknown(c, h->incarnation != c->incarnation, m.text);
	else if (code == PBOX_E_SHUTDOWN)
		shutting_down(c);
	return code == PBOX_E_SESSION || code == PBOX_E_SHUTDOWN;
}

void
session_echo(struct pbox_client *c, const struct rx_frame *f)
{
	struct pbox_client_peer *to = &c->box;
	struct pbox_hdr h;

	for (unsigned i = 0; i < c->endpoints; i++)
		if (c->ep[i].peer.addr.sin_addr.s_addr == f->from.sin_addr.s_addr &&
			c->ep[i].peer.addr.sin_port == f->from.sin_port)
			to = &c->ep[i].peer;
	session_header(c, &h, PBOX_PING);
	h.round = f->hdr.round;
	h.base = f->hdr.base;
	link_frame(&c->link, to, &h, NULL, 0, false);
}

static void
send_ping(struct pbox_client *c)
{
	struct pbox_hdr h;

	session_header(c, &h, PBOX_PING);
	link_frame(&c->link, &c->box, &h, NULL, 0, false);
}

/** ERROR SESSION: a box that does not have the session has no key for a tag either (R11.6). */
static bool
unsure_session(const struct pbox_client *c, const struct rx_frame *f)
{
	return f->hdr.type == PBOX_ERROR && f->hdr.length == 0 && f->hdr.aux == PBOX_E_SESSION &&
	       f->hdr.token == c->token;
}

static void
session_frame(void *ctx, const struct rx_frame *f)
{
	struct pbox_client *c = ctx;
	const struct pbox_hdr *h = &f->hdr;
	bool error = h->type == PBOX_ERROR;

	if (c->failed || rejoin_frame(c, f))
		return;
	if (!f->sure && !unsure_session(c, f)) {
		c->link.rx_drop_auth++;
		return;
	}
	/* an ERROR SESSION of a restarted box cannot know more of us than what it echoes */
	if (!from_box(c, &f->from) || h->token != c->token ||
		(!error && (h->incarnation != c->incarnation || h->job != c->job_number ||
				   h->worker != c->worker))) {
		c->count.rx_dropped++;
		return;
	}
	if (!f->sure && auth_doubts(c)) /* keep_alive() asks */
		return;
	c->last_rx = c->now;
	c->doubt_ns = 0;
	if (session_asks(h)) /* is this where our answers may go (R4.9)? */
		session_echo(c, f);
	else if (h->type == PBOX_PING) /* somebody claims our number, and the box asks (R4.6) */
		send_ping(c);
	if (h->type == PBOX_PING)
		return;
	if (ends_session(c, f))
		return;
	rejoin_heard(c);
	if (h->type >= PBOX_FIRST_DATA_TYPE || (error && h->length == 0))
		transfer_frame(c, f);
	else if (h->type != PBOX_PONG)
		control_frame(c, f);
}

/* ---- the loop ---------------------------------------------------------------------------- */

static void
run_commands(struct pbox_client *c)
{
	struct cmd *cmd;
	struct op *op;

	if (!atomic_exchange(&c->kicked, false))
		return;
	pthread_mutex_lock(&c->lock);
	cmd = c->cmds;
	c->cmds = NULL;
	c->cmds_tail = &c->cmds;
	op = c->submitted;
	c->submitted = NULL;
	c->submitted_tail = &c->submitted;
	pthread_mutex_unlock(&c->lock);
	while (op != NULL) {
		struct op *next = op->next;

		queue_op(c, op);
		op = next;
	}
	while (cmd != NULL) {
		struct cmd *next = cmd->next;

		cmd->run(c, cmd);
		if (!cmd->hold) {
			pthread_mutex_lock(&c->lock);
			cmd->done = true;
			pthread_cond_broadcast(&c->cond);
			pthread_mutex_unlock(&c->lock);
		}
		cmd = next;
	}
}

static void
count_up(struct pbox_client *c)
{
	struct pbox_client_stats *s = &c->count;
	const struct pbox_client_transport *t = c->link.t;
	double window = 0, srtt = 0, rttvar = 0;

	s->tx_frames = c->link.tx_frames;
	s->tx_bytes = c->link.tx_bytes;
	s->rx_frames = c->link.rx_frames;
	s->rx_bytes = c->link.rx_bytes;
	s->tx_by_ref = t->tx_by_ref;
	s->tx_copied = t->tx_copied;
	s->tx_failed = t->tx_failed;
	s->rx_failed = t->rx_failed;
	s->gso_active = t->train > 1;
	s->gro_active = t->merging;
	s->mtu = c->mtu + c->tag;
	s->rx_drop_auth = c->link.rx_drop_auth;
	s->auth = c->tag > 0;
	s->unproven = c->unproven;
	s->endpoints = c->endpoints;
	s->window_max = c->window;
	s->min_rtt_ns = 0;
	for (unsigned i = 0; i < c->endpoints; i++) {
		const struct window *w = &c->ep[i].win;

		window += w->size / c->endpoints;
		srtt += (double)w->srtt / c->endpoints;
		rttvar += (double)w->rttvar / c->endpoints;
		if (s->min_rtt_ns == 0 || (w->rtt_min > 0 && w->rtt_min < s->min_rtt_ns))
			s->min_rtt_ns = w->rtt_min;
	}
	s->window = (uint32_t)window;
	s->srtt_ns = (uint64_t)srtt;
	s->rttvar_ns = (uint64_t)rttvar;
}

/** Hand finished operations to their waiters, and statistics to whoever asks. */
static void
publish(struct pbox_client *c, bool idle)
{
	struct op *op = c->finished, *calls = NULL, **calls_tail = &calls;
	bool any = op != NULL;

	if (op == NULL && !idle && c->now - c->published_at < PUBLISH_EVERY)
		return;
	for (; op != NULL; op = op->next)
		if (op->code != 0) { /* no answer says that what was sent for it has left */
			if (c->link.t->ops->quiesce != NULL)
				c->link.t->ops->quiesce(c->link.t);
			break;
		}
	op = c->finished;
	count_up(c);
	c->published_at = c->now;
	c->finished = NULL;
	c->finished_tail = &c->finished;
	pthread_mutex_lock(&c->lock);
	c->stats = c->count;
	c->stats.rx_dropped += c->link.rx_dropped;
	while (op != NULL) {
		struct op *next = op->next;

		op->next = NULL;
		if (op->notify != NULL) {
			*calls_tail = op;
			calls_tail = &op->next;
		}
		op->done = true; /* without notify it may be gone once the lock is released */
		op = next;
	}
	if (any)
		pthread_cond_broadcast(&c->cond);
	pthread_mutex_unlock(&c->lock);
	while (calls != NULL) {
		struct op *next = calls->next;

		calls->notify(calls->notify_ctx, calls->code,
			calls->text != NULL ? calls->text : pbox_client_code_name(calls->code));
		op_free(c, calls);
		calls = next;
	}
}

/** How long nothing needs to be sent: a restart of the box is noticed by what it answers. */
static uint64_t
quiet_for(const struct pbox_client *c)
{
	uint64_t t = c->lease_ms * NS_PER_MS / 4;

	if (c->doubt_ns != 0 && t > DOUBTFUL)
		return DOUBTFUL;
	return t < LONGEST_QUIET || !c->conf.keep_copies ? t : LONGEST_QUIET;
}

static void
keep_alive(struct pbox_client *c)
{
	if (c->link.tx_frames != c->tx_seen) {
		c->tx_seen = c->link.tx_frames;
		c->last_tx = c->now;
	} else if (c->now - c->last_tx >= quiet_for(c)) {
		send_ping(c);
	}
}

/** For how long answers may gather: 0 as soon as one endpoint wants to see them at once. */
static uint64_t
gather(const struct pbox_client *c)
{
	uint64_t least = UINT64_MAX;

	if (c->conf.spin_us > 0 || c->shut || c->failed)
		return 0;
	for (unsigned i = 0; i < c->endpoints; i++) {
		const struct ep *ep = &c->ep[i];
		uint64_t t = window_gather(&ep->win, ep->in_flight - ep->held);

		if (ep->in_flight > ep->held && t < least)
			least = t;
	}
	return least != UINT64_MAX ? least : 0;
}

/** Sleep until something happens; @p gathering: answers are coming, more may come first. */
static void
rest(struct pbox_client *c, uint64_t gathering)
{
	uint64_t due = c->last_tx + quiet_for(c), now = clock_ns(), t;

	for (unsigned i = 0; i < c->endpoints && !c->shut && !rejoin_pauses(c); i++)
		if (c->ep[i].first != NULL && c->ep[i].next_due < due)
			due = c->ep[i].next_due;
	t = control_due(c);
	if (t < due)
		due = t;
	t = c->shut ? UINT64_MAX : rejoin_due(c);
	if (t < due)
		due = t;
	if (c->failed)
		due = now + LONGEST_SLEEP;
	if (now < c->spin_until)
		return;
	t = due > now ? due - now : 0;
	c->link.t->gather_ns = gathering;
	link_wait(&c->link, t < LONGEST_SLEEP ? t : LONGEST_SLEEP);
}

/** @p drained: until then all that came has been looked at; 0: more stands in the port */
static void
transfer_turn(struct pbox_client *c, uint64_t drained)
{
	queue_activate(c, ACTIVATE_BATCH);
	if (rejoin_pauses(c))
		return;
	for (unsigned i = 0; i < c->endpoints; i++) {
		recover_evidence(c, &c->ep[i]);
		if (drained != 0)
			recover_timers(c, &c->ep[i], drained);
	}
	transfer_pump(c);
}

void *
session_main(void *arg)
{
	struct pbox_client *c = arg;
	struct pbox_client_transport *t = c->link.t;
	uint64_t spin = (uint64_t)c->conf.spin_us * NS_PER_US;

	if (t->ops->attach != NULL)
		t->ops->attach(t);
	while (!c->ending) {
		uint64_t gathering, began = clock_ns();
		unsigned got;

		c->now = began;
		got = link_receive(&c->link, RX_TURNS, session_frame, c);
		run_commands(c);
		c->now = clock_ns();
		if (!c->failed && !c->shut)
			rejoin_tick(c);
		if (!c->failed && !c->shut)
			/* no time-out while answers may still stand in the port */
			transfer_turn(c, got == 0 || !t->more ? began : 0);
		if (!c->failed) {
			control_tick(c);
			keep_alive(c);
			link_flush(&c->link);
		}
		if (got > 0)
			c->spin_until = c->now + spin;
		publish(c, got == 0);
		gathering = got > 0 && !t->more ? gather(c) : 0;
		if ((got == 0 || gathering > 0) && !c->ending &&
			(c->activating == NULL || c->failed || c->shut) && !atomic_load(&c->kicked))
			rest(c, gathering);
	}
	publish(c, true);
	if (t->ops->detach != NULL)
		t->ops->detach(t);
	return NULL;
}
