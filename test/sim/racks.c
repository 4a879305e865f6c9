/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "racks.h"

/* The run of a seed: events, mishaps, the network between all. */

#define TICK     (20 * MS)
#define PATIENCE (120 * SEC) /* without progress: a circle of waits, or a wait that nobody ends */
#define EMPTY    (700 * SEC) /* after the last worker has left: grace of what was killed ends */
#define AGAIN    (50 * MS)   /* a mishap that would come into another one's is put off */

void
racks_fail(struct racks *w, const char *fmt, ...)
{
	va_list ap;

	if (w->failed)
		return;
	w->failed = true;
	va_start(ap, fmt);
	vsnprintf(w->why, sizeof(w->why), fmt, ap);
	va_end(ap);
	racks_note(w, "FAILED: %s", w->why);
}

void
racks_note(const struct racks *w, const char *fmt, ...)
{
	va_list ap;

	if (!w->verbose)
		return;
	printf("%10.3f ms  ", (double)(w->now - SIM_BEGIN) / 1e6);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
}

bool
racks_chance(struct racks *w, double p)
{
	return p > 0.0 && pbox_random_unit(&w->random) < p;
}

uint64_t
racks_below(struct racks *w, uint64_t n)
{
	return n == 0 ? 0 : pbox_random_below(&w->random, n);
}

void
racks_at(struct racks *w, uint64_t at, enum racks_event kind, unsigned box, unsigned index, void *p)
{
	const struct sim_event e = {
		.at = at, .kind = (enum sim_kind)kind, .box = box, .worker = index, .p = p};

	sim_queue_push(&w->queue, &e);
}

/* ---- the network ------------------------------------------------------------------------------- */

struct racks_packet *
racks_packet_new(uint32_t len)
{
	struct racks_packet *p = malloc(sizeof(*p) + len);

	PBOX_ASSERT(p != NULL);
	memset(p, 0, sizeof(*p));
	p->len = len;
	return p;
}

struct racks_packet *
racks_packet_of(const struct pbox_client_tx *d)
{
	struct racks_packet *p = racks_packet_new(d->bytes);
	uint32_t at = 0;

	p->to_ip = ntohl(d->to->addr.sin_addr.s_addr);
	p->to = ntohs(d->to->addr.sin_port);
	for (unsigned k = 0; k < d->n; k++) {
		PBOX_ASSERT(at + d->iov[k].iov_len <= d->bytes);
		memcpy(p->data + at, d->iov[k].iov_base, d->iov[k].iov_len);
		at += (uint32_t)d->iov[k].iov_len;
	}
	p->len = at;
	return p;
}

/* The rack that a datagram comes from, or goes to, between racks; -1: it stays in one. */
static int
rack_of(const struct racks_packet *p)
{
	if (p->from_ip == RACKS_BOX_IP)
		return (int)(p->to_ip - RACKS_BOX_IP) - 1;
	return p->to_ip == RACKS_BOX_IP ? (int)(p->from_ip - RACKS_BOX_IP) - 1 : -1;
}

static void
deliver(struct racks *w, const struct racks_net *n, const struct racks_packet *from)
{
	struct racks_packet *p = racks_packet_new(from->len);
	uint64_t at = w->now + n->delay_ns + racks_below(w, n->jitter_ns);

	memcpy(p, from, sizeof(*p) + from->len);
	if (racks_chance(w, n->reorder))
		at += racks_below(w, n->reorder_ns);
	if (p->len > 0 && racks_chance(w, n->damage))
		p->data[racks_below(w, p->len)] ^= (uint8_t)(1 + racks_below(w, 255));
	racks_at(w, at, RACKS_ARRIVE, 0, 0, p);
}

void
racks_net_send(struct racks *w, struct racks_packet *p)
{
	int rack = rack_of(p);
	const struct racks_net *n = rack >= 0 ? &w->sp.between : &w->sp.within;

	if (!racks_chance(w, n->loss) && (rack < 0 || w->now >= w->cut_until[rack])) {
		deliver(w, n, p);
		if (racks_chance(w, n->dup))
			deliver(w, n, p);
	}
	free(p);
}

static void
arrive(struct racks *w, struct racks_packet *p)
{
	uint32_t box = p->to_ip - RACKS_BOX_IP, worker = p->to_ip - RACKS_WORKER_IP;

	w->frames++;
	w->hash = sim_mix(w->hash, (uint64_t)p->len << 32 | p->to_ip);
	if (box <= w->sp.racks && w->box[box].up) {
		racks_box_arrive(w, &w->box[box], p);
		return;
	}
	if (worker < w->sp.workers)
		racks_worker_receive(w, &w->worker[worker], p);
	free(p);
}

/* ---- mishaps -------------------------------------------------------------------------------------- */

static bool
is_over(const struct racks *w)
{
	return w->finished == w->sp.workers;
}

/* Has each worker done a round of each table since something last went wrong, as far as there are any left? */
static bool
is_well(struct racks *w)
{
	if (!w->troubled)
		return true;
	for (unsigned i = 0; i <= w->sp.racks; i++)
		if (!w->box[i].up)
			return false;
	for (unsigned i = 0; i < w->sp.workers; i++)
		for (unsigned t = 0; t < w->sp.tables; t++) {
			const struct racks_worker *x = &w->worker[i];

			if (x->w == NULL ||
				(x->done[t] <= x->since[t] && x->state != RACKS_FINISHED))
				return false;
		}
	w->troubled = false;
	return true;
}

static void
trouble(struct racks *w)
{
	w->troubled = true;
	w->exact = false;
	w->progress_at = w->now;
	for (unsigned i = 0; i < w->sp.workers; i++)
		memcpy(w->worker[i].since, w->worker[i].done, sizeof(w->worker[i].since));
}

static void
start_life(struct racks *w)
{
	w->life++;
	w->done = w->finished = 0;
	racks_law_forget(w);
	for (unsigned i = 0; i < w->sp.workers; i++) {
		racks_worker_kill(w, &w->worker[i]);
		memset(w->worker[i].done, 0, sizeof(w->worker[i].done));
		memset(w->worker[i].since, 0, sizeof(w->worker[i].since));
		racks_at(w, w->now + racks_below(w, 20 * MS), RACKS_START, w->life, i, NULL);
	}
}

static void
crash(struct racks *w, const struct racks_mishap *m)
{
	trouble(w);
	for (unsigned i = 0; i <= w->sp.racks; i++)
		if ((m->who >> i & 1) != 0 && w->box[i].up) {
			racks_note(w, "box %u crashes", i);
			racks_box_stop(w, i);
			racks_at(w, w->now + m->ns / 2 + racks_below(w, m->ns / 2 + 1),
				RACKS_BOX_START, i, 0, NULL);
		}
}

/* A process that has not joined yet is not killed. And a JOIN that is still under way, and of whose run the box knows nothing yet, would end
 * the run after it (R12.3), at a rack as at the upper box: where datagrams overtake each other all have joined before another run begins. */
static bool
may_come(struct racks *w, const struct racks_mishap *m)
{
	if (m->kind == RACKS_CUT)
		return true;
	if (m->kind == RACKS_KILL && w->worker[m->who].state < RACKS_DECLARE)
		return false;
	for (unsigned i = 0; i < w->sp.workers && m->kind == RACKS_REPLACE; i++)
		if ((w->sp.between.reorder > 0.0 && w->worker[i].state < RACKS_WORK) ||
			(w->sp.within.reorder > 0.0 && w->worker[i].state < RACKS_DECLARE))
			return false;
	return (m->kind == RACKS_CRASH && w->sp.hasty) || is_well(w);
}

static void
mishap(struct racks *w, unsigned index)
{
	const struct racks_mishap *m = &w->sp.mishap[index];

	if (is_over(w))
		return;
	if (!may_come(w, m)) {
		racks_at(w, w->now + AGAIN, RACKS_MISHAP, 0, index, NULL);
		return;
	}
	switch (m->kind) {
	case RACKS_CRASH:
		crash(w, m);
		break;
	case RACKS_KILL:
		racks_note(w, "worker %u is killed", m->who);
		trouble(w);
		racks_worker_kill(w, &w->worker[m->who]);
		racks_at(w, w->now + m->ns, RACKS_START, w->life, m->who, w);
		break;
	case RACKS_CUT:
		racks_note(w, "the link of rack %u is cut", m->who);
		w->cut_until[m->who] = w->now + m->ns;
		w->progress_at = w->now + m->ns;
		break;
	case RACKS_REPLACE:
		racks_note(w, "another run begins");
		trouble(w);
		start_life(w);
		break;
	}
}

/* ---- the run -------------------------------------------------------------------------------------- */

static void
tick(struct racks *w)
{
	bool over = w->done == w->sp.workers, empty = over && racks_law_empty(w);

	for (unsigned i = 0; i <= w->sp.racks; i++)
		if (w->box[i].up)
			racks_box_tick(&w->box[i]);
	if (!over && w->now > w->progress_at + PATIENCE)
		racks_fail(w, "nothing has moved for %u s; worker 0 is in state %u, round %u",
			(unsigned)(PATIENCE / SEC), w->worker[0].state, w->worker[0].round);
	if (over && !empty && w->now > w->progress_at + EMPTY)
		racks_fail(w, "all workers are gone for %u s, and boxes have jobs",
			(unsigned)(EMPTY / SEC));
	if (!empty)
		racks_at(w, w->now + TICK, RACKS_TICK, 0, 0, NULL);
}

static void
handle(struct racks *w, const struct sim_event *e)
{
	switch ((unsigned)e->kind) {
	case RACKS_ARRIVE:
		arrive(w, e->p);
		break;
	case RACKS_TICK:
		tick(w);
		break;
	case RACKS_WORKER:
		racks_worker_timer(w, &w->worker[e->worker]);
		break;
	case RACKS_START:
		if (e->box == w->life)
			racks_worker_start(w, &w->worker[e->worker], e->p != NULL);
		break;
	case RACKS_MISHAP:
		mishap(w, e->worker);
		break;
	case RACKS_BOX_START:
		racks_note(w, "box %u is started again", e->box);
		racks_box_start(w, e->box);
		w->progress_at = w->now > w->progress_at ? w->now : w->progress_at;
		break;
	default:
		if ((e->worker & 0xFFFF) == w->box[e->box].generation)
			racks_box_event(w, &w->box[e->box], e);
		else
			free(e->p); /* of a box that is no more */
	}
}

static void
begin(struct racks *w, const struct racks_spec *sp, bool verbose)
{
	w->sp = *sp;
	w->code = sim_planted != 0 ? &sim_code_planted : &sim_code_real;
	w->verbose = verbose;
	w->now = w->progress_at = SIM_BEGIN;
	w->exact = true;
	pbox_random_seed(&w->random, ~sp->seed);
	if (verbose)
		racks_spec_print(sp);
	for (unsigned i = 0; i <= sp->racks; i++)
		racks_box_start(w, i);
	for (unsigned i = 0; i < sp->workers; i++)
		w->worker[i].number = i;
	start_life(w);
	for (unsigned i = 0; i < sp->mishaps; i++)
		racks_at(w, w->now + sp->mishap[i].at, RACKS_MISHAP, 0, i, NULL);
	racks_at(w, w->now + TICK, RACKS_TICK, 0, 0, NULL);
}

static void
end(struct racks *w)
{
	struct sim_event e;

	if (!w->failed)
		racks_law_end(w);
	while (sim_queue_pop(&w->queue, &e))
		if ((unsigned)e.kind != RACKS_START)
			free(e.p);
	free(w->queue.e);
	for (unsigned i = 0; i < w->sp.workers; i++)
		racks_worker_kill(w, &w->worker[i]);
	for (unsigned i = 0; i <= w->sp.racks; i++)
		racks_box_stop(w, i);
	racks_law_forget(w);
}

void
racks_run(struct racks_result *out, const struct racks_spec *sp, bool verbose)
{
	struct racks *w = calloc(1, sizeof(*w));
	struct sim_event e;

	PBOX_ASSERT(w != NULL);
	begin(w, sp, verbose);
	while (!w->failed && sim_queue_pop(&w->queue, &e)) {
		PBOX_ASSERT(e.at >= w->now);
		w->now = e.at;
		w->events++;
		w->hash =
			sim_mix(w->hash, e.at ^ (uint64_t)e.kind << 56 ^ (uint64_t)e.worker << 40);
		handle(w, &e);
	}
	if (!w->failed && w->done != sp->workers)
		racks_fail(w, "nothing is left to happen, and %u workers are not done",
			sp->workers - w->done);
	end(w);
	*out = (struct racks_result){.ok = !w->failed,
		.hash = w->hash,
		.events = w->events,
		.frames = w->frames,
		.virtual_ns = w->now - SIM_BEGIN};
	memcpy(out->why, w->why, sizeof(out->why));
	free(w);
}
