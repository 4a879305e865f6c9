/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* The room against a fleet in virtual time: a round is computation, and then the box that takes longest. */

#include <math.h>
#include <string.h>

#include <pbox_balance.h>

#include "../unit.h"

const char unit_suite[] = "balance: a fleet in virtual time";

#define MODEL   400e6
#define COMPUTE 0.1
#define FULL             \
	(COMPUTE /       \
		(MODEL / \
			4)) /* seconds of a byte: a quarter of the model takes as long as the computation */
#define WORKERS 4
#define ROUNDS  1200

struct fleet {
	unsigned boxes, used;              /* the others are spare */
	double slower[PBOX_BALANCE_BOXES]; /* by this factor */
	double share[PBOX_BALANCE_BOXES];  /* at the start; 0: alike */
	double noise;                      /* share of its time */
	double overlap;                    /* share of the computation that hides transfers */
	unsigned moves_every;              /* rounds, after which another box is the slow one */
	unsigned lost_at, lost;            /* round, and box that is gone from there on */
	bool scales, idle;                 /* idle: nobody decides */
	uint64_t seed;
	/* what came of it */
	double seconds;
	unsigned actions, late_actions, kinds[PBOX_BALANCE_BACK + 1];
	struct pbox_balance_box box[PBOX_BALANCE_BOXES];
};

struct sums {
	double n, sum, square, exposed;
};

static void
note(struct sums *s, double x, double exposed)
{
	s->n++;
	s->exposed += exposed;
	s->sum += x;
	s->square += x * x;
}

static struct pbox_balance_times
times(const struct sums *s)
{
	double mean = s->n > 0 ? s->sum / s->n : 0;

	return (struct pbox_balance_times){.rounds = (uint32_t)s->n,
		.mean = mean,
		.sd = s->n > 0 ? sqrt(fmax(0, s->square / s->n - mean * mean)) : 0,
		.exposed = s->n > 0 ? s->exposed / s->n : 0};
}

static double
noisy(struct pbox_random *r, double x, double noise)
{
	double sum = 0;

	for (unsigned i = 0; i < 12; i++)
		sum += pbox_random_unit(r);
	return fmax(0.2, 1 + noise * (sum - 6)) * x;
}

/* One round; each worker sees each box a little differently, and worker 3 has a link of half the speed. */
static double
one_round(struct fleet *f, struct pbox_random *r, unsigned slow, struct sums *round,
	struct sums (*sum)[PBOX_BALANCE_BOXES])
{
	double last = 0, compute = noisy(r, COMPUTE, f->noise), t, all;

	for (unsigned i = 0; i < f->boxes; i++) {
		double factor = f->slower[i] > 0 ? f->slower[i] : 1;

		if (f->moves_every > 0)
			factor = i == slow ? 4 : 1;
		t = f->box[i].bytes == 0
			    ? 0
			    : noisy(r, FULL * factor * (double)f->box[i].bytes, f->noise);
		last = fmax(last, t);
		for (unsigned w = 0; w < WORKERS; w++)
			if (f->box[i].bytes > 0)
				note(&sum[w][i],
					t * (w == 3 ? 1.2 : 1) * (1 + 0.01 * pbox_random_unit(r)),
					fmax(0, t - f->overlap * compute));
	}
	all = compute + fmax(0, last - f->overlap * compute);
	for (unsigned w = 0; w < WORKERS; w++)
		note(&round[w], all, 0);
	return all;
}

static void
begin(struct fleet *f)
{
	uint64_t left = (uint64_t)MODEL;

	for (unsigned i = f->boxes; i-- > 0;) {
		double share = f->share[i] > 0 ? f->share[i] : i < f->used ? 1.0 / f->used : 0;

		f->box[i] = (struct pbox_balance_box){
			.able = true, .bytes = i == 0 ? left : (uint64_t)(share * MODEL)};
		left -= i == 0 ? 0 : f->box[i].bytes;
	}
}

static void
run(struct fleet *f)
{
	struct pbox_balance_conf conf = {
		.boxes = f->boxes, .workers = WORKERS, .seed = f->seed, .scales = f->scales};
	struct pbox_balance *b = pbox_balance_create(&conf, NULL);
	struct sums round[WORKERS] = {0}, sum[WORKERS][PBOX_BALANCE_BOXES] = {0};
	struct pbox_balance_times times_of[PBOX_BALANCE_BOXES], whole;
	struct pbox_random r;
	char text[PBOX_BALANCE_TEXT];

	CU_ASSERT_FATAL(b != NULL);
	pbox_random_seed(&r, f->seed + 1);
	begin(f);
	for (unsigned k = 0; k < ROUNDS; k++) {
		const struct pbox_balance_action *a;
		uint64_t all = 0;

		if (f->lost_at > 0 && k == f->lost_at)
			f->box[f->lost].able = false;
		f->seconds += one_round(
			f, &r, f->moves_every > 0 ? k / f->moves_every % f->used : 0, round, sum);
		if (k % 5 != 4 || f->idle)
			continue;
		for (unsigned w = 0; w < WORKERS; w++) {
			whole = times(&round[w]);
			for (unsigned i = 0; i < f->boxes; i++)
				times_of[i] = times(&sum[w][i]);
			UNIT_EQ_U64(pbox_balance_report(b, w, &whole, times_of, NULL), 0);
		}
		memset(round, 0, sizeof(round));
		memset(sum, 0, sizeof(sum));
		a = pbox_balance_decide(b, f->box);
		if (a == NULL)
			continue;
		pbox_balance_text(a, text, sizeof(text));
		CU_ASSERT(strlen(text) > 20 && strlen(text) < sizeof(text) - 1);
		f->actions++;
		f->late_actions += k >= 20 * PBOX_BALANCE_WINDOW;
		f->kinds[a->cause]++;
		f->seconds += 0.01 + 2 * FULL * (double)a->moves / 2;
		for (unsigned i = 0; i < f->boxes; i++) {
			f->box[i].bytes = a->bytes[i];
			all += a->bytes[i];
			CU_ASSERT(a->bytes[i] == 0 || f->box[i].able);
		}
		UNIT_EQ_U64(all, (uint64_t)MODEL);
		pbox_balance_discard(b);
	}
	pbox_balance_destroy(b);
}

/* How much shorter than with the load as it was at the start; over seeds. */
static double
faster(struct fleet f, unsigned *late)
{
	double sum = 0;

	*late = 0;
	for (uint64_t seed = 1; seed <= 5; seed++) {
		struct fleet now = f, still = f;

		now.seed = still.seed = seed * 100;
		still.idle = true;
		run(&now);
		run(&still);
		sum += still.seconds / now.seconds / 5;
		*late = now.late_actions > *late ? now.late_actions : *late;
	}
	return sum;
}

/* One of four boxes at a quarter of its bandwidth: the bound is 2.24, with a spare box 2.58. */
static void
test_quarter(void)
{
	unsigned late;

	CU_ASSERT(faster((struct fleet){.boxes = 4, .used = 4, .slower = {1, 4}, .noise = 0.02},
			  &late) > 2.0);
	CU_ASSERT(faster((struct fleet){.boxes = 4, .used = 4, .slower = {1, 4}, .noise = 0.25},
			  &late) > 1.7);
	CU_ASSERT(faster((struct fleet){.boxes = 5,
				 .used = 4,
				 .slower = {1, 4},
				 .noise = 0.02,
				 .scales = true},
			  &late) > 2.3);
}

/* Nobody is slow: the fleet is left alone. */
static void
test_nobody(void)
{
	unsigned late;

	CU_ASSERT(faster((struct fleet){.boxes = 4, .used = 4, .noise = 0.02}, &late) > 0.99);
	CU_ASSERT(late <= 4); /* in 40 windows */
	CU_ASSERT(faster((struct fleet){.boxes = 4, .used = 4, .noise = 0.25}, &late) > 0.99);
	CU_ASSERT(late <= 4);
}

/* Load as MXNet's hash has it for Inception-BN, one box with 3.72 times the mean: 3.72 / 1 after 4.72 / 2, if nothing is hidden. */
static void
test_imbalance(void)
{
	unsigned late;
	struct fleet f = {.boxes = 4, .used = 4, .share = {0, 0.93, 0.02, 0.02}, .noise = 0.05};

	CU_ASSERT(faster(f, &late) > 2.1);
}

/* Another box is slow every 200 rounds. */
static void
test_moving(void)
{
	unsigned late;
	struct fleet f = {.boxes = 4, .used = 4, .noise = 0.05, .moves_every = 200};

	CU_ASSERT(faster(f, &late) > 1.6);
}

/* Transfers that the computation hides: a slow box costs nothing, and nothing moves for it. */
static void
test_hidden(void)
{
	struct fleet f = {.boxes = 4,
		.used = 4,
		.slower = {0.3, 1, 1, 1},
		.share = {0, 0.1, 0.1, 0.1},
		.noise = 0.02,
		.overlap = 1,
		.seed = 5};

	run(&f);
	UNIT_EQ_U64(f.kinds[PBOX_BALANCE_STRAGGLER], 0);
	f.overlap = 0;
	run(&f);
	UNIT_EQ_U64(f.kinds[PBOX_BALANCE_STRAGGLER], 1);
}

/* Spare boxes come in where they help, and go where they do not. */
static void
test_scale(void)
{
	struct fleet out = {.boxes = 4, .used = 1, .noise = 0.05, .scales = true, .seed = 7};
	struct fleet in = {.boxes = 4,
		.used = 4,
		.slower = {1, 1, 1, 30},
		.noise = 0.02,
		.scales = true,
		.seed = 8};

	run(&out);
	CU_ASSERT(out.kinds[PBOX_BALANCE_OUT] >= 2);
	CU_ASSERT(out.box[1].bytes > 0 && out.box[2].bytes > 0);
	run(&in);
	UNIT_EQ_U64(in.box[3].bytes, 0);
}

/* A box that is gone has no chunks after the next decision, without a window. */
static void
test_lost(void)
{
	struct fleet f = {
		.boxes = 3, .used = 3, .noise = 0.05, .lost_at = 101, .lost = 1, .seed = 9};

	run(&f);
	UNIT_EQ_U64(f.kinds[PBOX_BALANCE_LOST], 1);
	UNIT_EQ_U64(f.box[1].bytes, 0);
	CU_ASSERT(f.box[0].bytes > 0.3 * MODEL && f.box[2].bytes > 0.3 * MODEL);
}

const struct unit_test unit_tests[] = {
	{"a box at a quarter", test_quarter},
	{"nobody is slow", test_nobody},
	{"bytes that are not alike", test_imbalance},
	{"another one is slow", test_moving},
	{"what is hidden does not count", test_hidden},
	{"spare boxes", test_scale},
	{"a box is gone", test_lost},
	{NULL, NULL},
};
