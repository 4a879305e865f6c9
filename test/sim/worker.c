/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "law_blocks.h"
#include "law_updates.h"

/* What is around a worker: a host with a port, a clock, and processes that begin and are killed. */

#define JOIN_MS 120000
#define WINDOW  1000      /* frames that its receive buffer holds */
#define WAKES   (20 * US) /* how long the host takes to wake up, at most */
#define CALM    (4 * SEC) /* R4.6: leases are 5 s and more */
#define TURNS   100       /* of a program and its worker at one time */

/* ---- its port ---------------------------------------------------------------------------------- */

static struct sim *the_sim; /* of the port's calls */

static uint16_t
endpoint_of(const struct pbox_client_peer *to)
{
	unsigned port = ntohs(to->addr.sin_port);

	return port == PBOX_CONTROL_PORT ? SIM_CONTROL : (uint16_t)(port - PBOX_CONTROL_PORT - 1);
}

static struct sim_packet *
packet(const struct sim_worker *w, const struct pbox_client_tx *d)
{
	struct sim_packet *p = sim_packet_new(d->bytes);
	uint32_t at = 0;

	p->box = (uint8_t)(ntohl(d->to->addr.sin_addr.s_addr) - SIM_BOX);
	p->ip = w->ip;
	p->udp = w->udp;
	p->endpoint = endpoint_of(d->to);
	if (!sim_is_at(&the_sim->sc, &the_sim->sc.job[w->job], p->box))
		sim_fail(the_sim, "worker %u/%u sends to box %u, which its job is not at", w->job,
			w->number, p->box);
	for (unsigned i = 0; i < d->n; i++) {
		PBOX_ASSERT(at + d->iov[i].iov_len <= d->bytes);
		memcpy(p->data + at, d->iov[i].iov_base, d->iov[i].iov_len);
		at += (uint32_t)d->iov[i].iov_len;
	}
	if (at != d->bytes || d->bytes > w->port.mtu - 28)
		sim_fail(the_sim, "worker %u/%u sends a datagram of %u bytes, of %u", w->job,
			w->number, at, d->bytes);
	return p;
}

/* Frames may share a datagram (R1.2): datagrams to the same endpoint become one here. */
static struct sim_packet *
append(struct sim_packet *train, struct sim_packet *p)
{
	struct sim_packet *both = sim_packet_like(train, train->len + p->len);

	memcpy(both->data + train->len, p->data, p->len);
	sim_packet_free(train);
	sim_packet_free(p);
	return both;
}

static void
port_send(void *ctx, const struct pbox_client_tx *d, unsigned n)
{
	struct sim_packet *train = NULL;
	struct sim_worker *w = ctx;
	unsigned in_train = 0;

	for (unsigned i = 0; i < n; i++) {
		struct sim_packet *p = packet(w, &d[i]);

		sim_timing_sent(the_sim, w, p);
		blocks_sent(the_sim, w, p->data, p->len);
		updates_sent(the_sim, w, p->data, p->len);
		p = sim_noise_zero(the_sim, w->job, p);
		if (train != NULL && train->box == p->box && train->endpoint == p->endpoint &&
			p->endpoint != SIM_CONTROL && in_train < the_sim->sc.train &&
			train->len + p->len <= SIM_MTU - 28) {
			train = append(train, p);
			in_train++;
			continue;
		}
		if (train != NULL)
			sim_net_send(the_sim, train, true);
		train = p;
		in_train = 1;
	}
	if (train != NULL)
		sim_net_send(the_sim, train, true);
}

static uint64_t
port_random(void *ctx)
{
	struct sim_worker *w = ctx;
	uint64_t x = pbox_random_u64(&the_sim->box->random);

	if (w->nonce == 0)
		w->nonce = x; /* the first one that it draws */
	return x;
}

/* ---- its boxes ----------------------------------------------------------------------------------- */

static struct sockaddr_in
address_of(unsigned box)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(PBOX_CONTROL_PORT)};

	at.sin_addr.s_addr = htonl(SIM_BOX + box);
	return at;
}

/* Its program names one box of those that have a list, or all of them, in any order (R16.3). */
static void
create(struct sim *s, struct sim_worker *w, const struct pbox_client_conf *conf)
{
	const struct sim_job_spec *spec = &s->sc.job[w->job];
	bool fleet = sim_is_fleet(&s->sc, spec), all = fleet && sim_below(s, 100) < s->sc.named;
	unsigned first = fleet ? (unsigned)sim_below(s, s->sc.fleet) : spec->box;
	struct sockaddr_in at[SIM_BOXES];

	/* who asks the dead one finds no other */
	if (fleet && sim_box_dies(&s->sc) && first == s->sc.dead_box)
		first = s->sc.first != SIM_FIRST_STAYS;
	if (fleet && s->sc.first == SIM_FIRST_TWO && first < 2)
		first = 2;
	at[0] = address_of(first);
	for (unsigned i = 1; i < s->sc.fleet; i++)
		at[i] = address_of((first + i) % s->sc.fleet);
	w->w = s->code->worker_create(conf, &at[0], &w->port);
	PBOX_ASSERT(w->w != NULL);
	if (all)
		s->code->worker_boxes(w->w, at, s->sc.fleet);
}

/* ---- its process ------------------------------------------------------------------------------- */

void
sim_worker_start(struct sim *s, struct sim_worker *w, bool restarted)
{
	const struct sim_job_spec *spec = &s->sc.job[w->job];
	char run[32], host[16];
	struct pbox_client_conf conf = {.size = sizeof(conf),
		.job = s->box->conf[w->job].name,
		.secret = s->box->conf[w->job].secret,
		.host = host,
		.workers = spec->workers,
		.slots = spec->slots,
		.timeout_ms = JOIN_MS,
		.join_timeout_ms = JOIN_MS,
		.keep_copies = 1,
		.policy = spec->plan ? PBOX_POLICY_REASSIGN : spec->shrink,
		.auth = spec->auth,
		.least = spec->least,
		.run = spec->named ? run : NULL};

	if (w->state == SIM_DEAD)
		return;
	if (spec->shrink && restarted && s->job[w->job].done > 0) {
		/* the others have all done their rounds: nobody is left to do some with */
		s->job[w->job].down--;
		sim_worker_finished(s, w);
		return;
	}
	the_sim = s;
	w->restarted = w->was_down = restarted;
	w->began = s->now;
	w->udp = (uint16_t)(1024 + sim_below(s, 60000));
	w->nonce = 0;
	if (!restarted)
		memset(w->done, 0, sizeof(w->done));
	if (!restarted)
		w->id = spec->any_number ? PBOX_NO_WORKER : (uint16_t)w->number;
	conf.worker = w->id == PBOX_NO_WORKER ? -1 : w->id;
	snprintf(run, sizeof(run), "job%u.%u", w->job, s->job[w->job].life);
	snprintf(host, sizeof(host), "host%u", w->number);
	w->port = (struct pbox_worker_ops){.send = port_send,
		.random = port_random,
		.ctx = w,
		.mtu = spec->mtu,
		.batch = 16,
		.window = WINDOW};
	create(s, w, &conf);
	w->state = SIM_OPENING;
	s->code->worker_open(w->w, s->now, s->now + JOIN_MS * MS);
	sim_worker_wake(s, w, s->now);
}

void
sim_worker_kill(struct sim *s, struct sim_worker *w)
{
	struct sim_worker old = *w;

	sim_program_drop(w);
	sim_timing_forget(s, w);
	if (w->w != NULL)
		s->code->worker_destroy(w->w);
	*w = (struct sim_worker){.job = old.job,
		.number = old.number,
		.id = old.id,
		.ip = old.ip,
		.timer = old.timer};
	memcpy(w->done, old.done, sizeof(w->done));
}

void
sim_worker_again(struct sim *s, struct sim_worker *w)
{
	bool down = w->was_down;

	sim_note(s, "worker %u/%u: its process ends, and is started again", w->job, w->number);
	sim_inexact(s, w->job);
	s->job[w->job].down += !down;
	sim_worker_kill(s, w);
	sim_at(s, s->now + 100 * MS, SIM_START, w->job, w->number, s);
}

/* ---- its clock --------------------------------------------------------------------------------- */

void
sim_worker_wake(struct sim *s, struct sim_worker *w, uint64_t at)
{
	if (at < s->now)
		at = s->now;
	if (w->timer != 0 && w->timer <= at)
		return;
	w->timer = at;
	sim_at(s, at, SIM_WORKER_TIMER, w->job, w->number, NULL);
}

/* A network on which a worker that was killed is back long before its lease ends. */
static bool
calm(const struct sim *s, unsigned job)
{
	const struct sim_network_spec *n = &s->sc.net;

	return !sim_job_crashes(&s->sc, &s->sc.job[job]) &&
	       n->loss + n->bad_loss + n->corrupt + n->truncate < 0.02 && n->holes == 0 &&
	       n->reorder_ns < 50 * MS;
}

/* What was done may have made something due in any of its lanes. */
static void
lanes_due(struct sim_worker *w)
{
	memset(w->lane_due, 0, sizeof(w->lane_due));
}

/* Its threads; planted bugs are found by seeds, which find them with one. */
static void
open_lanes(struct sim *s, struct sim_worker *w)
{
	struct pbox_worker_ops *port[SIM_LANES];
	unsigned endpoints = s->code->worker_endpoints(w->w, PBOX_WORKER_LANES, NULL, 0),
		 n = s->sc.lanes;

	if (n < 2 || endpoints < 2 ||
		(sim_planted != 0 && strncmp(sim_plants[sim_planted], "lane-", 5) != 0))
		return;
	for (unsigned i = 0; i < SIM_LANES; i++)
		port[i] = &w->port;
	PBOX_ASSERT(s->code->worker_cut(w->w, port, n < endpoints ? n : endpoints) == 0);
	pbox_random_seed(&w->turns, s->now ^ w->ip);
	lanes_due(w);
}

/* Threads have their turns at different times, in any order, and may be late. */
static uint64_t
tick_lanes(struct sim *s, struct sim_worker *w)
{
	unsigned n = s->code->worker_lanes(w->w), first = (unsigned)pbox_random_below(&w->turns, n);
	uint64_t due = UINT64_MAX;

	for (unsigned i = 0; i < n; i++) {
		unsigned lane = (first + i) % n;

		if (w->lane_due[lane] <= s->now && pbox_random_below(&w->turns, 4) > 0 &&
			s->code->worker_steady(w->w, lane, s->now))
			w->lane_due[lane] = s->code->worker_lane_tick(w->w, lane, s->now, s->now);
		if (w->lane_due[lane] < due)
			due = w->lane_due[lane];
	}
	return due;
}

static uint64_t
tick(struct sim *s, struct sim_worker *w)
{
	if (s->code->worker_lanes(w->w) > 1 && s->code->worker_steady(w->w, 0, s->now))
		return tick_lanes(s, w);
	s->code->worker_together(w->w, s->now);
	lanes_due(w);
	return s->code->worker_tick(w->w, s->now, s->now);
}

/* To the lane whose endpoint it is from, mostly: the kernel gives it to another one while that has no socket yet. */
static void
receive_lane(
	struct sim *s, struct sim_worker *w, const struct pbox_client_rx *rx, unsigned endpoint)
{
	unsigned n = s->code->worker_lanes(w->w);
	unsigned lane = pbox_random_below(&w->turns, 50) > 0
				? endpoint % n
				: (unsigned)pbox_random_below(&w->turns, n);

	w->lane_due[lane] = 0;
	if (!s->code->worker_steady(w->w, lane, s->now)) {
		s->code->worker_together(w->w, s->now);
		s->code->worker_rx(w->w, rx, 1, s->now);
		lanes_due(w);
	} else if (s->code->worker_lane_rx(w->w, lane, rx, 1, s->now)) {
		s->code->worker_lane_rest(w->w, lane, s->now);
		lanes_due(w);
	}
}

static void
opened(struct sim *s, struct sim_worker *w)
{
	struct sim_job *j = &s->job[w->job];

	if (w->restarted && calm(s, w->job) && s->now - w->began > CALM)
		sim_fail(s, "job %u worker %u came back only after %llu ms", w->job, w->id,
			(unsigned long long)((s->now - w->began) / MS));
	open_lanes(s, w);
	w->id = (uint16_t)s->code->worker_number(w->w);
	j->down -= w->was_down;
	w->was_down = false;
}

void
sim_worker_timer(struct sim *s, struct sim_worker *w)
{
	enum sim_worker_state before;
	unsigned turns = 0;
	uint64_t due = 0;
	bool more;

	if (w->timer != s->now)
		return; /* a later one was replaced by an earlier one that has run */
	w->timer = 0;
	if (s->now < w->stopped) {
		sim_worker_wake(s, w, w->stopped);
		return;
	}
	if (w->w == NULL || w->state == SIM_DONE)
		return;
	the_sim = s;
	do {
		before = w->state;
		due = tick(s, w);
		if (s->failed)
			return;
		more = sim_program_step(s, w);
		if (w->w == NULL || w->state == SIM_DONE)
			return;
		lanes_due(w); /* it may have submitted something */
		if (before == SIM_OPENING && w->state != SIM_OPENING)
			opened(s, w);
		if (++turns > TURNS)
			sim_fail(s, "worker %u/%u is never done", w->job, w->number);
	} while (more && !s->failed);
	sim_worker_wake(s, w, due > s->now ? due : s->now + WAKES);
}

void
sim_worker_receive(struct sim *s, struct sim_worker *w, const struct sim_packet *p)
{
	struct pbox_client_rx rx = {.data = p->data, .len = p->len};

	if (w->w == NULL || w->state == SIM_DONE || p->udp != w->udp || p->ip != w->ip)
		return;
	the_sim = s;
	rx.from.sin_family = AF_INET;
	rx.from.sin_addr.s_addr = htonl(SIM_BOX + p->box);
	rx.from.sin_port =
		htons(p->endpoint == SIM_CONTROL ? PBOX_CONTROL_PORT
						 : (uint16_t)(PBOX_CONTROL_PORT + 1 + p->endpoint));
	sim_timing_heard(s, w, p);
	if (s->code->worker_lanes(w->w) > 1)
		receive_lane(s, w, &rx, p->endpoint == SIM_CONTROL ? 0 : p->box + p->endpoint);
	else
		s->code->worker_rx(w->w, &rx, 1, s->now);
	sim_worker_wake(s, w, s->now + sim_below(s, WAKES));
}
