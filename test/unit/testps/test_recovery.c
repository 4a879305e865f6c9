/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* What losses cost: a lane's data side against a box that is a queue with a clock, so that each figure is one of the
 * mechanism and none of the machine. */

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <rte_mbuf.h>

#include "eal.h"
#include "rounds.h"
#include "testps.h"
#include "unit.h"

const char unit_suite[] = "testps_recovery";

#define WORKERS 8
#define BURST   32
#define QUEUE   65536
/* Times of the bed, in ns. The box is what all wait for: a contribution and its result take it 800. */
#define TURN     2000 /* of the lane */
#define TAKES    450
#define GIVES    350
#define QUESTION 200 /* a header each way */
static uint64_t way = 5000;

/* A frame on its way. */
struct frame {
	uint64_t at; /* ns: it arrives */
	uint32_t chunk, round, ts, held;
	uint16_t worker, frag, flags;
	uint8_t type;
};

struct way {
	unsigned head, tail;
	struct frame f[QUEUE];
};

/* What the box knows of a fragment: rules R6.2, R6.4 and R6.7. */
struct kept {
	uint32_t version, has, want;
	uint32_t ts[WORKERS];
	uint64_t asked[WORKERS];
};

struct bed {
	struct testps t;
	struct lane l;
	struct way to, from;
	struct kept *kept;
	uint64_t now, free_at; /* ns */
	double loss;
	struct pbox_random random;
};

static struct bed *bed;
static struct pbox_error err;

/* ---- what a lane has --------------------------------------------------------------------------- */

struct rte_mbuf *
lane_packet(struct lane *l, struct rte_mempool *pool)
{
	(void)l;
	return rte_pktmbuf_alloc(pool);
}

struct rte_mbuf *
lane_head(struct lane *l)
{
	return lane_packet(l, l->frames);
}

static bool
is_lost(void)
{
	return pbox_random_unit(&bed->random) < bed->loss;
}

static void
put(struct way *w, const struct frame *f)
{
	CU_ASSERT_FATAL(w->tail - w->head < QUEUE);
	if (!is_lost())
		w->f[w->tail++ % QUEUE] = *f;
}

static void
to_box(const struct frame *f)
{
	put(&bed->to, f);
}

void
lane_out(struct lane *l, unsigned worker, struct rte_mbuf *m)
{
	const uint8_t *h = rte_pktmbuf_mtod_offset(m, const uint8_t *, PBOX_NET_HEADERS_LEN);
	const struct frame f = {.at = bed->now + way,
		.chunk = pbox_ld32(h + PBOX_AT_CHUNK),
		.round = pbox_ld32(h + PBOX_AT_ROUND),
		.ts = pbox_ld32(h + PBOX_AT_TS),
		.worker = (uint16_t)worker,
		.frag = pbox_ld16(h + PBOX_AT_FRAG),
		.type = h[PBOX_AT_TYPE]};

	(void)l;
	to_box(&f);
	rte_pktmbuf_free(m);
}

void
lane_frame(struct lane *l, unsigned worker, const struct pbox_net_udp_template *to,
	const struct pbox_hdr *h, const void *payload)
{
	const struct frame f = {.at = bed->now + way,
		.chunk = h->chunk,
		.round = h->round,
		.ts = h->ts,
		.worker = (uint16_t)worker,
		.frag = h->frag,
		.type = h->type};

	(void)l;
	(void)to;
	(void)payload;
	to_box(&f);
}

/* No job here has tags. */
bool
auth_tag_good(const struct lane *l, unsigned worker, const uint8_t *head, const uint8_t *payload,
	uint32_t length, const uint8_t *digest)
{
	(void)worker;
	(void)head;
	(void)payload;
	(void)length;
	(void)digest;
	return l->t->auth == NULL;
}

/* ---- the box ------------------------------------------------------------------------------------- */

static void
answer(const struct frame *to, uint8_t type, uint16_t flags, uint32_t ts, uint64_t since)
{
	struct frame f = *to;

	f.type = type;
	f.flags = flags;
	f.ts = ts;
	f.held = (uint32_t)(bed->free_at / 1000 - since / 1000);
	bed->free_at += type == PBOX_RESULT ? GIVES : QUESTION / 2;
	f.at = bed->free_at + way;
	put(&bed->from, &f);
}

static struct kept *
kept_of(const struct frame *f)
{
	const struct plan *p = &bed->t.plan;

	return &bed->kept[p->chunk_first[f->chunk - p->first_chunk] + f->frag];
}

static void
complete(struct kept *k, const struct frame *last)
{
	struct frame to = *last;

	k->version++;
	for (unsigned w = 0; w < WORKERS; w++)
		if (k->want >> w & 1) {
			to.worker = (uint16_t)w;
			answer(&to, PBOX_RESULT, 0, k->ts[w], k->asked[w]);
		}
	k->has = k->want = 0;
}

static void
box_takes(const struct frame *f)
{
	struct kept *k = kept_of(f);
	uint32_t bit = 1u << f->worker;
	bool push = f->type == PBOX_PUSHPULL, had = (k->has & bit) != 0;

	bed->free_at += push ? TAKES : QUESTION / 2;
	if (f->round == k->version) {
		answer(f, PBOX_RESULT, 0, f->ts, bed->free_at);
		return;
	}
	CU_ASSERT_FATAL(f->round <= k->version + 1); /* R6.7 */
	if (f->round != k->version + 1)
		return; /* round_stale */
	if ((k->want & bit) == 0) {
		k->ts[f->worker] = f->ts;
		k->asked[f->worker] = bed->free_at;
	}
	k->want |= bit;
	if (push)
		k->has |= bit;
	if (push && k->has == (1u << WORKERS) - 1)
		complete(k, f);
	else if (!push || had)
		answer(f, PBOX_WAIT, had ? PBOX_F_HAVE : 0, f->ts, bed->free_at);
}

static void
box_turn(void)
{
	struct way *w = &bed->to;

	for (; w->head != w->tail; w->head++) {
		const struct frame *f = &w->f[w->head % QUEUE];

		if (f->at > bed->now || bed->free_at > bed->now)
			return;
		bed->free_at = bed->free_at > f->at ? bed->free_at : f->at;
		box_takes(f);
	}
}

/* ---- the lane ------------------------------------------------------------------------------------ */

static void
lane_takes(const struct frame *f)
{
	struct lane *l = &bed->l;
	const struct plan *p = &bed->t.plan;
	struct pbox_hdr h = {.type = f->type,
		.flags = f->flags,
		.worker = f->worker,
		.chunk = f->chunk,
		.frag = f->frag,
		.round = f->round,
		.ts = f->ts,
		.held = f->held};
	uint8_t head[PBOX_HDR_LEN];

	if (f->type == PBOX_WAIT) {
		rounds_wait(l, f->worker, &h);
		return;
	}
	h.length = (uint16_t)(p->f[p->chunk_first[f->chunk - p->first_chunk] + f->frag].elements *
			      sizeof(float));
	h.format = bed->t.data.pull;
	pbox_frame_encode(head, &h, 0);
	rounds_result(l, f->worker, head, NULL, false);
}

static void
lane_turn(void)
{
	struct way *w = &bed->from;
	struct lane *l = &bed->l;

	l->now = bed->now / 1000;
	for (unsigned n = 0; w->head != w->tail && n < bed->t.opt.burst; w->head++, n++) {
		const struct frame *f = &w->f[w->head % QUEUE];

		if (f->at > bed->now)
			break;
		lane_takes(f);
	}
	rounds_turn(l);
}

static void
open_bed(unsigned fragments, unsigned granted, unsigned window)
{
	static const char *const args[] = {"-m", "64", "--no-telemetry", "--lcores", "0@0", NULL};
	static uint64_t token[WORKERS];
	static struct pbox_net_udp_template to[WORKERS];
	const struct model m = {.n = 1,
		.tensor = &(struct tensor){.elements = fragments * 64},
		.elements = fragments * 64};
	struct testps *t;

	unit_eal(args);
	bed = calloc(1, sizeof(*bed));
	CU_ASSERT_FATAL(bed != NULL);
	t = &bed->t;
	t->opt.no_check = true;
	t->opt.burst = BURST;
	t->now.workers = t->workers = WORKERS;
	t->now.push = t->now.pull = PBOX_FMT_FP32;
	t->copy = true;
	t->lanes = 1;
	t->lane[0] = &bed->l;
	t->n_ports = 1;
	t->token = token;
	t->data_to = to;
	t->session.window = (uint16_t)granted;
	t->now.window = window;
	atomic_store(&t->straggler, -1);
	atomic_store(&t->limit, NO_LIMIT);
	CU_ASSERT_FATAL(plan_reflected(&t->plan, 64, &m, &t->now, &err) == 0);
	CU_ASSERT_FATAL(data_make(&t->data, &t->plan, &t->now, false, NULL, &err) == 0);
	bed->kept = calloc(t->plan.n, sizeof(*bed->kept));
	bed->l.t = t;
	bed->l.workers = WORKERS;
	bed->l.frames = rte_pktmbuf_pool_create("frames", 255, 0, 0, 1024, SOCKET_ID_ANY);
	CU_ASSERT_FATAL(bed->kept != NULL && bed->l.frames != NULL);
	CU_ASSERT_FATAL(rounds_make(&bed->l, &err) == 0);
	pbox_random_seed(&bed->random, 1);
	bed->now = 1000000;
	bed->l.now = bed->now / 1000;
	rounds_begin(&bed->l);
}

static void
close_bed(void)
{
	rounds_free(&bed->l);
	data_free(&bed->t.data);
	plan_free(&bed->t.plan);
	rte_mempool_free(bed->l.frames);
	free(bed->kept);
	free(bed);
	bed = NULL;
}

/* What is counted is what is there, and no more of it than R6.9 allows. */
static void
check_counts(void)
{
	const struct lane *l = &bed->l;

	for (unsigned s = 0; s < l->streams; s++) {
		const struct stream *x = &l->stream[s];
		unsigned out = 0, held = 0;

		for (uint64_t at = x->oldest; at != x->next; at++) {
			out += lane_flight_of(l, s, at)->state != FLIGHT_DONE;
			held += lane_flight_of(l, s, at)->state == FLIGHT_AT_BOX;
		}
		UNIT_EQ_U64(x->under_way, out);
		UNIT_EQ_U64(x->at_box, held);
		CU_ASSERT(out <= bed->t.session.window);
		CU_ASSERT(x->next - x->oldest <= bed->t.plan.n);
	}
}

static void
run_us(uint64_t us)
{
	uint64_t end = bed->now + us * 1000;

	for (; bed->now < end; bed->now += TURN) {
		box_turn();
		lane_turn();
	}
	check_counts();
}

static void
begin_counts(void)
{
	memset(bed->l.stats, 0, sizeof(bed->l.stats));
}

/* Results in 100 ms, in parts of what the box gives without a loss and a question. */
static double
carried(double loss)
{
	bed->loss = loss;
	run_us(50000); /* windows are what they will be */
	begin_counts();
	run_us(100000);
	return (double)bed->l.stats[LS_RESULTS] * (TAKES + GIVES) / 1e8;
}

/* What no recovery can be better than that has to ask. A lost contribution costs the box nothing, a lost result is given
 * again; and all ask about a fragment of which one has lost its contribution, or a worker its result. */
static double
limit(double loss)
{
	double late = 1 - pow(1 - loss, WORKERS + 1);

	return (TAKES + GIVES) / (TAKES + GIVES * (1 + loss) + late * QUESTION);
}

/* Losses cost the box's time, and next to no waiting; and nobody asks without need. */
static void
check_losses(unsigned fragments, unsigned window, double most, double of_limit)
{
	static const double loss[] = {0, 0.001, 0.005, 0.01, 0.02, 0.05};

	open_bed(fragments, 512, window);
	for (unsigned i = 0; i < RTE_DIM(loss) && loss[i] <= most; i++) {
		const uint64_t *s = bed->l.stats;
		double share = carried(loss[i]), best = limit(loss[i]);
		uint64_t needed = WORKERS * s[LS_REPEATED] + s[LS_LOST_RESULTS];

		if (share < of_limit * best || s[LS_PROBES] > needed + needed / 5) {
			printf("%u fragments, window %u, loss %.3f: %.3f of %.3f, %" PRIu64
			       " questions where %" PRIu64 " do\n",
				fragments, window, loss[i], share, best, s[LS_PROBES], needed);
			CU_FAIL("losses cost more than they must");
		}
		CU_ASSERT(s[LS_WRONG] == 0);
	}
	close_bed();
}

static void
test_losses(void)
{
	check_losses(7544, 0, 0.05, 0.98);
}

/* A user's window is all that may be under way, also what the box has. */
static void
test_window(void)
{
	check_losses(7544, 16, 0.02, 0.7);
}

/* In a round that hardly fills the windows there is less to go on with. */
static void
test_small(void)
{
	check_losses(118, 0, 0.02, 0.7);
}

/* More is under way where the box is farther, or the machine has other work: no loss makes windows smaller than that. */
static void
test_far(void)
{
	way = 25000;
	check_losses(944, 0, 0.05, 0.8);
	way = 100000;
	check_losses(944, 0, 0.05, 0.65);
	way = 5000;
}

/* A lane that has paused reads what has come meanwhile, and asks about none of it. */
static void
test_pause(void)
{
	const uint64_t *s;
	uint64_t end;

	open_bed(7544, 512, 0);
	bed->t.opt.burst = 4; /* of many workers some are heard later */
	s = bed->l.stats;
	carried(0.01);
	begin_counts();
	for (unsigned i = 0; i < 20; i++) {
		for (end = bed->now + 10000000; bed->now < end; bed->now += TURN)
			box_turn();
		run_us(2000);
	}
	CU_ASSERT(s[LS_RESULTS] > 20000);
	CU_ASSERT(s[LS_PROBES] <=
		  WORKERS * s[LS_REPEATED] + s[LS_LOST_RESULTS] + s[LS_RESULTS] / 100);
	close_bed();
}

/* Where nothing goes through for a while, all that was under way is asked about when it does again. */
static void
test_blackhole(void)
{
	open_bed(7544, 512, 0);
	carried(0);
	bed->loss = 1;
	run_us(50000);
	begin_counts();
	bed->loss = 0;
	run_us(20000);
	CU_ASSERT(bed->l.stats[LS_RESULTS] * (TAKES + GIVES) > 20000000 / 3);
	close_bed();
}

const struct unit_test unit_tests[] = {
	{"losses", test_losses},
	{"window", test_window},
	{"small", test_small},
	{"far", test_far},
	{"pause", test_pause},
	{"blackhole", test_blackhole},
	{NULL, NULL},
};
