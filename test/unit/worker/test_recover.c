/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>

#include "unit.h"
#include "worker_impl.h"

/*
 * Two workers and a box in virtual time, on a network that loses, with processors that others take
 * away: loss_recovery.c and window.c decide what is sent, the test is flight.c, transfer.c and the box.
 */

const char unit_suite[] = "worker: recovery in virtual time";

#define WORKERS   2
#define FRAGMENTS 1420
#define QUEUE     (1u << 16) /* frames on their way to one end */
#define BOX       WORKERS
#define SEEDS     30

struct msg {
	uint64_t at;
	struct pbox_hdr h; /* worker, frag, type, flags, ts, held */
};

/** An end of the network; what came is looked at when it has its processor. */
struct end {
	struct msg *queue;
	uint32_t head, tail;
	uint64_t turn;
};

struct worker {
	struct pbox_worker c;
	struct lane *lane;
	struct session s;
	struct ep ep;
	struct pbox_worker_table table, *tables[1];
	struct frag frag[FRAGMENTS];
	bool done[FRAGMENTS];
	uint32_t next, left;
	uint64_t duplicates;
};

struct box_slot {
	bool has[WORKERS], want[WORKERS], bad[WORKERS], done;
	uint32_t ts[WORKERS];
	uint64_t since[WORKERS];
};

/** How long an end does without its processor: most turns up to `often`, few of them to `rare`. */
struct world {
	uint64_t often, rare, now, x;
	double loss;
	bool late; /* a push is not lost but damaged, and that is found when the round is complete */
	struct end end[WORKERS + 1];
	struct worker *worker[WORKERS];
	struct box_slot slot[FRAGMENTS];
};

static struct world *world;

static double
draw(void)
{
	world->x ^= world->x << 13;
	world->x ^= world->x >> 7;
	world->x ^= world->x << 17;
	return (double)(world->x >> 11) * 0x1p-53;
}

static void
post(struct end *to, const struct pbox_hdr *hdr)
{
	struct pbox_hdr copy = *hdr, *h = &copy;

	if (draw() < world->loss) {
		if (!world->late || h->type != PBOX_PUSHPULL)
			return;
		h->base = 1; /* damaged */
	}
	CU_ASSERT_FATAL(to->tail - to->head < QUEUE);
	to->queue[to->tail++ % QUEUE] = (struct msg){world->now + 50 * NS_PER_US, *h};
}

/* ---- the box (R6.4 to R6.7) ---------------------------------------------------------------- */

static void
answer(unsigned w, uint32_t frag, uint8_t type, uint16_t flags, uint32_t ts, uint64_t since)
{
	struct pbox_hdr h = {.type = type, .flags = flags, .ts = ts, .frag = (uint16_t)frag};

	h.held = (uint32_t)((world->now - since) / NS_PER_US);
	h.aux = 1;
	post(&world->end[w], &h);
}

static void
box_frame(const struct pbox_hdr *h)
{
	struct box_slot *s = &world->slot[h->frag];
	unsigned w = h->worker;

	if (s->done) {
		answer(w, h->frag, PBOX_RESULT, 0, h->ts, world->now);
		return;
	}
	if (!s->want[w]) {
		s->want[w] = true;
		s->ts[w] = h->ts;
		s->since[w] = world->now;
	}
	if (h->type == PBOX_PULL || s->has[w]) {
		answer(w, h->frag, PBOX_WAIT, s->has[w] ? PBOX_F_HAVE : 0, h->ts, world->now);
		return;
	}
	s->has[w] = true;
	s->bad[w] = h->base != 0;
	if (!s->has[0] || !s->has[1])
		return;
	for (unsigned i = 0; i < WORKERS; i++)
		if (s->bad[i]) {
			s->has[i] = s->want[i] = false;
			answer(i, h->frag, PBOX_WAIT, 0, s->ts[i], world->now);
		}
	if (!s->has[0] || !s->has[1])
		return;
	s->done = true;
	for (unsigned i = 0; i < WORKERS; i++)
		if (s->want[i])
			answer(i, h->frag, PBOX_RESULT, 0, s->ts[i], s->since[i]);
}

/* ---- a worker, as transfer.c has it ----------------------------------------------------------- */

void
flight_send(struct ep *ep, struct flight *fl, bool probe, bool again)
{
	const struct pbox_worker *c = ep->s->w;
	struct pbox_hdr h = {.type = probe ? PBOX_PULL : fl->type,
		.worker = (uint16_t)c->worker,
		.ts = (uint32_t)(ep->lane->now / NS_PER_US),
		.frag = (uint16_t)(fl->frag - world->worker[c->worker]->frag)};

	if (!probe)
		fl->payload_ts = h.ts;
	(void)again;
	post(&world->end[BOX], &h);
	fl->ts = h.ts;
	fl->seq = ++ep->seq;
	if (fl->order == 0)
		fl->order = fl->seq;
	fl->sent_ns = ep->lane->now;
	timer_append(ep, fl, ep->lane->now);
}

static void
land(struct worker *w, struct flight *fl)
{
	struct ep *ep = &w->ep;

	timer_unlist(ep, fl);
	ep->waiting -= fl->state == FLIGHT_WAITING;
	fl->prev = NULL;
	fl->next = ep->free;
	ep->free = fl;
	ep->in_flight--;
}

static void
worker_frame(struct worker *w, const struct pbox_hdr *h)
{
	struct flight *fl = &w->ep.flight[w->frag[h->frag].flight];

	w->ep.last_rx = w->lane->now;
	if (w->done[h->frag]) {
		w->duplicates += h->type == PBOX_RESULT;
		return;
	}
	loss_answer(&w->ep, fl, 0, h, w->lane->now);
	if (h->type == PBOX_WAIT) {
		loss_wait(&w->ep, fl, h);
		return;
	}
	loss_result(&w->ep, fl, h, w->lane->now);
	window_answered(&w->ep.win, w->ep.limited, w->lane->now);
	w->done[h->frag] = true;
	w->left--;
	land(w, fl);
}

static void
worker_pump(struct worker *w)
{
	struct ep *ep = &w->ep;

	while (w->next < FRAGMENTS && ep->in_flight < ep->win.max &&
		ep->in_flight - ep->waiting < window_frames(&ep->win)) {
		struct flight *fl = ep->free;
		struct frag *f = &w->frag[w->next++];

		ep->free = fl->next;
		f->state = FRAG_FLIGHT;
		*fl = (struct flight){.frag = f, .type = PBOX_PUSHPULL, .state = FLIGHT_SENT};
		fl->first_ns = w->lane->now;
		f->flight = (uint16_t)(fl - ep->flight);
		f->round = 1;
		ep->in_flight++;
		flight_send(ep, fl, false, false);
	}
	ep->limited = w->next < FRAGMENTS;
}

/* ---- the world --------------------------------------------------------------------------------- */

static struct worker *
worker_make(unsigned number, uint32_t window)
{
	struct worker *w = calloc(1, sizeof(*w));

	CU_ASSERT_FATAL(w != NULL);
	w->c.worker = (uint16_t)number;
	w->c.table = w->tables;
	w->lane = aligned_alloc(_Alignof(struct lane), sizeof(*w->lane));
	CU_ASSERT_FATAL(w->lane != NULL);
	memset(w->lane, 0, sizeof(*w->lane));
	w->lane->w = w->s.w = &w->c;
	w->ep.lane = w->lane;
	w->ep.s = &w->s;
	w->tables[0] = &w->table;
	w->table.discipline = &worker_rounds;
	w->left = FRAGMENTS;
	w->ep.flight = calloc(window, sizeof(*w->ep.flight));
	CU_ASSERT_FATAL(w->ep.flight != NULL);
	for (uint32_t i = 0; i < window; i++) {
		w->ep.flight[i].next = w->ep.free;
		w->ep.free = &w->ep.flight[i];
	}
	w->ep.thresh = MIN_THRESH;
	window_init(&w->ep.win, window, 5 * NS_PER_MS, world->now);
	return w;
}

static void
turn(unsigned i)
{
	struct end *e = &world->end[i];
	struct worker *w = i < WORKERS ? world->worker[i] : NULL;

	if (w != NULL)
		w->lane->now = world->now;
	for (; e->head != e->tail && e->queue[e->head % QUEUE].at <= world->now; e->head++) {
		if (w != NULL)
			worker_frame(w, &e->queue[e->head % QUEUE].h);
		else
			box_frame(&e->queue[e->head % QUEUE].h);
	}
	if (w != NULL) {
		loss_evidence(&w->ep);
		loss_timers(&w->ep, w->lane->now);
		worker_pump(w);
	}
	e->turn = world->now + 50 * NS_PER_US +
		  (uint64_t)(draw() * (double)(draw() < 0.05 ? world->rare : world->often));
}

/** Seconds of virtual time that a round takes; what was needless in @p probes and @p duplicates, per
 * fragment. */
static double
one_round(const struct world *like, uint64_t seed, double *probes, double *duplicates)
{
	struct world here = *like;

	world = &here;
	here.x = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
	here.now = NS_PER_S;
	*probes = *duplicates = 0;
	for (unsigned i = 0; i <= WORKERS; i++)
		here.end[i].queue = calloc(QUEUE, sizeof(struct msg));
	for (unsigned i = 0; i < WORKERS; i++)
		here.worker[i] = worker_make(i, 512);
	while (here.worker[0]->left + here.worker[1]->left > 0 && here.now < 60 * NS_PER_S) {
		unsigned next = 0;

		for (unsigned i = 1; i <= WORKERS; i++)
			if (here.end[i].turn < here.end[next].turn)
				next = i;
		if (here.end[next].turn > here.now)
			here.now = here.end[next].turn;
		turn(next);
	}
	for (unsigned i = 0; i < WORKERS; i++) {
		struct worker *w = here.worker[i];

		*probes += (double)w->lane->count.probes / FRAGMENTS / WORKERS;
		*duplicates += (double)w->duplicates / FRAGMENTS / WORKERS;
		free(w->ep.flight);
		free(w->lane);
		free(w);
	}
	for (unsigned i = 0; i <= WORKERS; i++)
		free(here.end[i].queue);
	return (double)(here.now - NS_PER_S) / NS_PER_S;
}

struct sum {
	double mean, worst, probes, duplicates; /* seconds; the others per fragment */
};

static struct sum
rounds(const struct world *like)
{
	struct sum sum = {0};

	for (unsigned seed = 1; seed <= SEEDS; seed++) {
		double probes, duplicates, t = one_round(like, seed, &probes, &duplicates);

		sum.mean += t / SEEDS;
		sum.worst = t > sum.worst ? t : sum.worst;
		sum.probes += probes / SEEDS;
		sum.duplicates += duplicates / SEEDS;
	}
	return sum;
}

/* R15.8: the box asks whether a worker lives that waits for another one. It asks about some of what it waits for at once. */
static void
test_asked(void)
{
	struct world here = {.now = NS_PER_S, .x = 1};
	struct worker *w;
	uint64_t probes;

	world = &here;
	for (unsigned i = 0; i <= WORKERS; i++)
		here.end[i].queue = calloc(QUEUE, sizeof(struct msg));
	here.worker[0] = w = worker_make(0, 64);
	while (here.now < 2 * NS_PER_S) { /* the other one sends nothing */
		here.now += 100 * NS_PER_US;
		turn(BOX);
		turn(0);
	}
	CU_ASSERT(w->ep.waiting > 8);
	for (unsigned i = 0; i < 2; i++) { /* the second time about others */
		probes = w->ep.lane->count.probes;
		loss_timers(&w->ep, w->lane->now); /* so long no timer says so */
		UNIT_EQ_U64(w->ep.lane->count.probes, probes);
		loss_asked(&w->ep, w->lane->now);
		loss_timers(&w->ep, w->lane->now);
		CU_ASSERT(w->ep.lane->count.probes >= probes + 4 &&
			  w->ep.lane->count.probes <= probes + 6);
	}
	for (unsigned i = 0; i <= WORKERS; i++)
		free(here.end[i].queue);
	free(w->ep.flight);
	free(w->lane);
	free(w);
}

static void
test_lossless(void)
{
	struct sum s = rounds(&(struct world){.often = 0});

	CU_ASSERT(s.worst < 0.002);
	CU_ASSERT(s.probes == 0 && s.duplicates == 0);
}

/* Three of ten lost each way: half of all exchanges fail, and some ten times in a row. None of the
 * last few fragments may wait for a timer that has grown long. */
static void
test_bad_link(void)
{
	struct sum s = rounds(&(struct world){.loss = 0.3});

	CU_ASSERT(s.mean < 0.1);
	CU_ASSERT(s.worst < 0.4);
}

static void
test_damaged(void)
{
	struct sum s = rounds(&(struct world){.loss = 0.3, .late = true});

	CU_ASSERT(s.mean < 0.1);
	CU_ASSERT(s.worst < 0.4);
}

/* Who gets its processor late finds answers late, which is no reason to ask for them again. */
static void
test_short_of_processors(void)
{
	struct sum s = rounds(
		&(struct world){.often = 2 * NS_PER_MS, .rare = 20 * NS_PER_MS, .loss = 0.02});

	CU_ASSERT(s.duplicates < 0.04);
	s = rounds(&(struct world){.often = 20 * NS_PER_MS, .rare = 200 * NS_PER_MS, .loss = 0.1});
	CU_ASSERT(s.duplicates < 0.05);
	CU_ASSERT(s.worst < 8);
	s = rounds(&(struct world){.often = 100 * NS_PER_MS, .rare = NS_PER_S});
	CU_ASSERT(s.duplicates < 0.02);
}

const struct unit_test unit_tests[] = {
	{"asked whether it lives", test_asked},
	{"without loss", test_lossless},
	{"30 % lost each way", test_bad_link},
	{"30 % damaged each way, found when summed", test_damaged},
	{"short of processors", test_short_of_processors},
	{NULL, NULL},
};
