/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <math.h>
#include <string.h>

#include <pbox_slots.h>
#include <pbox_work.h>

#include "../unit.h"

const char unit_suite[] = "work: the room";

static struct pbox_work_conf
conf_of(unsigned workers, unsigned slots)
{
	return (struct pbox_work_conf){.workers = workers, .slots = slots};
}

static struct pbox_work *
make_room(unsigned workers, unsigned slots)
{
	struct pbox_work_conf c = conf_of(workers, slots);
	struct pbox_work *w = pbox_work_create(&c, NULL);

	CU_ASSERT_FATAL(w != NULL);
	return w;
}

static struct pbox_work_report
report_of(uint32_t round, unsigned slots, double slot)
{
	return (struct pbox_work_report){.round = round,
		.slots = slots,
		.payloads = 1,
		.fits = true,
		.compute = slots * slot,
		.fixed = 0.01,
		.up = 0.02,
		.down = 0.03};
}

/* A round in which worker i takes slot[i] seconds a slot; then the next plan, for the round after. */
static int
whole_round(struct pbox_work *w, uint32_t round, unsigned workers, const double *slot,
	struct pbox_work_reason *why)
{
	pbox_work_round(w, round);
	for (unsigned i = 0; i < workers; i++) {
		struct pbox_work_report r;
		struct pbox_work_view v;

		pbox_work_view(w, i, &v);
		r = report_of(round, v.slots, slot[i]);
		r.payloads = v.slots > 0;
		if (v.member)
			CU_ASSERT(pbox_work_report(w, i, &r, NULL) == 0);
	}
	return pbox_work_decide(w, round + 1, 0, why, NULL);
}

static unsigned
count(const uint16_t *owner, unsigned slots, unsigned worker)
{
	unsigned n = 0;

	for (unsigned i = 0; i < slots; i++)
		n += owner[i] == worker;
	return n;
}

static void
test_create(void)
{
	struct pbox_work_conf c = conf_of(4, 3);
	struct pbox_error err;

	CU_ASSERT(pbox_work_create(&c, &err) == NULL && err.code == EINVAL);
	CU_ASSERT_STRING_EQUAL(
		err.text, "3 slots for 4 workers: give as many as workers, and 4096 at most");
	c = conf_of(0, 4);
	CU_ASSERT(pbox_work_create(&c, &err) == NULL && err.code == EINVAL);
	c = conf_of(4097, 4097);
	CU_ASSERT(pbox_work_create(&c, &err) == NULL && err.code == EINVAL);
	pbox_work_destroy(NULL);
}

/* At the start: the shares of R5.2b. */
static void
test_start(void)
{
	struct pbox_work *w = make_room(3, 10);

	for (unsigned s = 0; s < 10; s++) {
		unsigned owner = pbox_work_owners(w)[s];

		CU_ASSERT(s >= pbox_slots_of(owner, 3, 10) && s < pbox_slots_of(owner + 1, 3, 10));
		UNIT_EQ_U64(pbox_work_plan(w)->owner[s], owner);
	}
	CU_ASSERT(pbox_work_next(w) == NULL);
	UNIT_EQ_U64(pbox_work_plan(w)->number, 0);
	pbox_work_destroy(w);
}

static void
test_bad_reports(void)
{
	struct pbox_work *w = make_room(2, 8);
	struct pbox_work_report good = report_of(1, 4, 1), r;
	struct pbox_work_view v;
	struct pbox_error err;

	r = good;
	r.compute = NAN;
	CU_ASSERT(pbox_work_report(w, 1, &r, &err) == -EINVAL);
	CU_ASSERT(strstr(err.text, "worker 1") != NULL && strstr(err.text, "computation") != NULL);
	r = good;
	r.up = -1;
	CU_ASSERT(pbox_work_report(w, 1, &r, &err) == -EINVAL);
	r = good;
	r.down = INFINITY;
	CU_ASSERT(pbox_work_report(w, 1, &r, &err) == -EINVAL);
	r = good;
	r.fixed = 1e7;
	CU_ASSERT(pbox_work_report(w, 1, &r, &err) == -EINVAL);
	r = good;
	r.slots = 9;
	CU_ASSERT(pbox_work_report(w, 1, &r, &err) == -EINVAL);
	r = good;
	r.payloads = 0;
	CU_ASSERT(pbox_work_report(w, 1, &r, &err) == -EINVAL);
	r.payloads = 5;
	CU_ASSERT(pbox_work_report(w, 1, &r, &err) == -EINVAL);
	r = good;
	r.compute = 0;
	CU_ASSERT(pbox_work_report(w, 1, &r, &err) == -EINVAL);
	pbox_work_view(w, 1, &v);
	CU_ASSERT(v.cost.slot < 1e-6 && v.cost.up == 0 && v.cost.down == 0);
	CU_ASSERT(pbox_work_report(w, 1, &good, &err) == 0);
	pbox_work_view(w, 1, &v);
	CU_ASSERT(v.cost.slot == 1 && v.cost.up == 0.02);
	/* the same round again, and an older one */
	good.compute = 400;
	CU_ASSERT(pbox_work_report(w, 1, &good, &err) == 0);
	good.round = 0;
	CU_ASSERT(pbox_work_report(w, 1, &good, &err) == 0);
	pbox_work_view(w, 1, &v);
	CU_ASSERT(v.cost.slot == 1);
	pbox_work_destroy(w);
}

/* Two bad rounds of five are not believed, three are. */
static void
test_median(void)
{
	struct pbox_work *w = make_room(1, 4);
	struct pbox_work_report r;
	struct pbox_work_view v;
	uint32_t round = 0;

	for (; round < 20; round++) {
		r = report_of(round, 4, 1 + 0.02 * (round % 3));
		pbox_work_report(w, 0, &r, NULL);
	}
	for (unsigned i = 0; i < 2; i++) {
		r = report_of(round++, 4, 6);
		pbox_work_report(w, 0, &r, NULL);
		pbox_work_view(w, 0, &v);
		CU_ASSERT(v.cost.slot > 0.99 && v.cost.slot < 1.05);
	}
	r = report_of(round, 4, 6);
	pbox_work_report(w, 0, &r, NULL);
	pbox_work_view(w, 0, &v);
	CU_ASSERT(v.cost.slot == 6);
	UNIT_EQ_U64(v.since, 20);
	pbox_work_destroy(w);
}

/* The sentence of the header. */
static void
test_reason(void)
{
	double slot[] = {1, 1, 1, 1};
	struct pbox_work *w = make_room(4, 44);
	struct pbox_work_reason why;
	char text[PBOX_WORK_REASON_TEXT];
	uint32_t round;
	int ret = 0;

	for (round = 1; round < 120; round++)
		CU_ASSERT(whole_round(w, round, 4, slot, &why) == 0);
	slot[2] = 1.9;
	for (; round < 130 && ret == 0; round++)
		ret = whole_round(w, round, 4, slot, &why);
	UNIT_EQ_U64(ret, 1);
	UNIT_EQ_U64(round, 123);
	pbox_work_reason_text(&why, text, sizeof(text));
	printf("\n    %s", text);
	CU_ASSERT(why.cause == PBOX_WORK_SPEED && why.worker == 2 && why.since == 120);
	CU_ASSERT(
		strncmp(text,
			"worker 2 takes 1.9 times as long a slot as the others since round 120: 11 -> ",
			76) == 0);
	UNIT_EQ_U64(why.after, count(pbox_work_next(w)->owner, 44, 2));
	CU_ASSERT(why.after >= 6 && why.after <= 8 && why.gain > 0.3);
	/* nothing while it waits; in force with its round; predicted times are those of the costs */
	UNIT_EQ_U64(pbox_work_decide(w, 200, 0, &why, NULL), 0);
	UNIT_EQ_U64(pbox_work_plan(w)->number, 0);
	pbox_work_round(w, round);
	CU_ASSERT(pbox_work_next(w) == NULL && pbox_work_plan(w)->number == 1);
	for (unsigned i = 0; i < 4; i++) {
		CU_ASSERT(pbox_work_plan(w)->finish[i] > 0);
		CU_ASSERT(pbox_work_plan(w)->finish[i] <= pbox_work_plan(w)->seconds);
	}
	pbox_work_destroy(w);
}

static void
test_traffic(void)
{
	struct pbox_work *w = make_room(4, 64);
	struct pbox_work_reason why;
	char text[PBOX_WORK_REASON_TEXT];
	int ret = 0;

	for (uint32_t round = 1; round < 30 && ret == 0; round++) {
		pbox_work_round(w, round);
		for (unsigned i = 0; i < 4; i++) {
			struct pbox_work_report r = report_of(round, 16, 1);

			r.down = i == 1 ? 8 : 0.03;
			pbox_work_report(w, i, &r, NULL);
		}
		ret = pbox_work_decide(w, round + 2, 0, &why, NULL);
	}
	UNIT_EQ_U64(ret, 1);
	CU_ASSERT(why.cause == PBOX_WORK_TRAFFIC && why.worker == 1 && why.after < 14);
	pbox_work_reason_text(&why, text, sizeof(text));
	CU_ASSERT(strstr(text, "worker 1 takes 133.8 times as long as the others for transfers") !=
		  NULL);
	pbox_work_destroy(w);
}

/* Silence counts: before it reports, a worker is as slow as it must be at least. */
static void
test_late(void)
{
	double slot[] = {1, 1, 1, 1};
	struct pbox_work *w = make_room(4, 64);
	struct pbox_work_reason why;
	uint32_t round;

	for (round = 1; round < 40; round++)
		whole_round(w, round, 4, slot, &why);
	slot[3] = 6;
	for (; round < 42; round++)
		UNIT_EQ_U64(whole_round(w, round, 4, slot, &why), 0);
	/* third round: the others are done after 16 s, worker 3 has begun 3 slots */
	pbox_work_round(w, round);
	for (unsigned i = 0; i < 3; i++) {
		struct pbox_work_report r = report_of(round, 16, 1);

		pbox_work_report(w, i, &r, NULL);
	}
	pbox_work_begun(w, 3, 48, 51, 12.01);
	UNIT_EQ_U64(pbox_work_decide(w, round + 1, 0, &why, NULL), 0);
	UNIT_EQ_U64(pbox_work_decide(w, round + 1, 16.1, &why, NULL), 1);
	UNIT_EQ_U64(why.worker, 3);
	CU_ASSERT(why.after <= 4);
	pbox_work_destroy(w);
}

static void
test_memory(void)
{
	double slot[] = {1, 1};
	struct pbox_work *w = make_room(2, 8);
	struct pbox_work_report r;
	struct pbox_work_reason why;
	struct pbox_work_view v;
	char text[PBOX_WORK_REASON_TEXT];
	struct pbox_error err;
	uint32_t round;

	for (round = 1; round < 10; round++)
		UNIT_EQ_U64(whole_round(w, round, 2, slot, &why), 0);
	/* no slots, at once and in the next plan */
	r = report_of(round, 4, 1);
	r.fits = false;
	pbox_work_report(w, 1, &r, NULL);
	pbox_work_view(w, 1, &v);
	CU_ASSERT(v.fits_none && v.member);
	UNIT_EQ_U64(pbox_work_decide(w, round + 1, 0, &why, NULL), 1);
	UNIT_EQ_U64(count(pbox_work_next(w)->owner, 8, 0), 8);
	pbox_work_reason_text(&why, text, sizeof(text));
	CU_ASSERT_STRING_EQUAL(text, "worker 1 has no memory for a micro-batch: 4 -> 0 slots");
	/* without slots it says only what fits: after five times enough it has some again */
	for (unsigned i = 0; i < 5; i++) {
		pbox_work_view(w, 1, &v);
		CU_ASSERT(v.fits_none);
		pbox_work_fits(w, 1, ++round, true);
	}
	pbox_work_view(w, 1, &v);
	CU_ASSERT(!v.fits_none);
	pbox_work_round(w, round);
	UNIT_EQ_U64(pbox_work_decide(w, round + 1, 0, &why, NULL), 1);
	UNIT_EQ_U64(count(pbox_work_next(w)->owner, 8, 1), 4);
	pbox_work_reason_text(&why, text, sizeof(text));
	CU_ASSERT_STRING_EQUAL(text, "worker 1 has memory for a micro-batch: 0 -> 4 slots");
	pbox_work_fits(w, 1, ++round, false);
	pbox_work_view(w, 1, &v);
	CU_ASSERT(v.fits_none);
	/* none holds one */
	pbox_work_round(w, ++round);
	r = report_of(round, 8, 1);
	r.fits = false;
	pbox_work_report(w, 0, &r, NULL);
	UNIT_EQ_U64(-pbox_work_decide(w, round + 1, 0, &why, &err), ENOMEM);
	CU_ASSERT(strstr(err.text, "none of 2 workers has memory for a micro-batch") != NULL);
	pbox_work_destroy(w);
}

/* Memory that comes and goes: to fit again waits longer each time. */
static void
test_memory_swings(void)
{
	struct pbox_work *w = make_room(1, 4);
	struct pbox_work_view v;
	unsigned changes = 0;
	bool last = false;

	for (uint32_t round = 1; round <= 1000; round++) {
		struct pbox_work_report r = report_of(round, 4, 1);

		r.fits = round % 8 != 0;
		pbox_work_report(w, 0, &r, NULL);
		pbox_work_view(w, 0, &v);
		changes += v.fits_none != last;
		last = v.fits_none;
	}
	UNIT_EQ_U64(changes, 3);
	pbox_work_destroy(w);
}

/* A dead worker's nodes go to those that will have finished first, in halves where that lets them end together. */
static void
test_death(void)
{
	double slot[] = {1, 1, 1, 1};
	struct pbox_work *w = make_room(4, 48);
	const struct pbox_work_move *move;
	struct pbox_work_reason why;
	unsigned n;

	for (uint32_t round = 1; round < 10; round++)
		whole_round(w, round, 4, slot, &why);
	pbox_work_round(w, 10);
	/* worker 1 has 12 to 23: nodes of 4 and 8 slots */
	pbox_work_begun(w, 0, 0, 10, 9);
	pbox_work_begun(w, 2, 24, 28, 9);
	pbox_work_begun(w, 3, 36, 44, 9);
	n = pbox_work_gone(w, 1, 10, &move, &why);
	UNIT_EQ_U64(n, 3);
	for (unsigned i = 0; i < n; i++) {
		UNIT_EQ_U64(move[i].first, 12 + 4 * i);
		UNIT_EQ_U64(move[i].end, 16 + 4 * i);
		UNIT_EQ_U64(move[i].from, 1);
		/* workers 0, 3 and 2 have 2, 4 and 8 slots left */
		UNIT_EQ_U64(move[i].to, i == 1 ? 3 : 0);
		for (unsigned s = move[i].first; s < move[i].end; s++)
			UNIT_EQ_U64(pbox_work_owners(w)[s], move[i].to);
	}
	UNIT_EQ_U64(count(pbox_work_plan(w)->owner, 48, 1), 0);
	UNIT_EQ_U64(why.before, 12);
	/* the next plan is due, and has whole shares again */
	UNIT_EQ_U64(pbox_work_decide(w, 12, 0, &why, NULL), 1);
	CU_ASSERT(why.cause == PBOX_WORK_GONE && why.worker == 1);
	UNIT_EQ_U64(count(pbox_work_next(w)->owner, 48, 0), 16);
	/* one dies while that plan waits: it has no slots there either */
	pbox_work_gone(w, 0, 11, &move, &why);
	UNIT_EQ_U64(count(pbox_work_next(w)->owner, 48, 0), 0);
	UNIT_EQ_U64(count(pbox_work_next(w)->owner, 48, 2) + count(pbox_work_next(w)->owner, 48, 3),
		48);
	pbox_work_destroy(w);
}

/* The last one dies: slots are nobody's until one comes. */
static void
test_last_death(void)
{
	struct pbox_work *w = make_room(2, 8);
	const struct pbox_work_move *move;
	struct pbox_work_reason why;
	struct pbox_error err;

	pbox_work_round(w, 1);
	pbox_work_gone(w, 0, 1, &move, &why);
	pbox_work_gone(w, 1, 1, &move, &why);
	UNIT_EQ_U64(count(pbox_work_owners(w), 8, PBOX_WORK_NOBODY), 8);
	UNIT_EQ_U64(-pbox_work_decide(w, 3, 0, &why, &err), ENOMEM);
	CU_ASSERT(pbox_work_join(w, 1, &move) > 0);
	UNIT_EQ_U64(move[0].to, 1);
	UNIT_EQ_U64(count(pbox_work_owners(w), 8, 1), 8);
	UNIT_EQ_U64(count(pbox_work_plan(w)->owner, 8, 1), 8);
	pbox_work_destroy(w);
}

static void
test_join(void)
{
	double slot[] = {1, 3, 2, 0};
	struct pbox_work *w = make_room(4, 64);
	const struct pbox_work_move *move;
	struct pbox_work_reason why;
	struct pbox_work_view v;
	char text[PBOX_WORK_REASON_TEXT];

	pbox_work_gone(w, 3, 0, &move, &why);
	for (uint32_t round = 1; round < 10; round++)
		whole_round(w, round, 4, slot, &why);
	pbox_work_round(w, 10);
	UNIT_EQ_U64(pbox_work_join(w, 3, &move), 0);
	pbox_work_view(w, 3, &v);
	CU_ASSERT(v.cost.slot == 2);
	UNIT_EQ_U64(pbox_work_decide(w, 12, 0, &why, NULL), 1);
	pbox_work_reason_text(&why, text, sizeof(text));
	CU_ASSERT(strncmp(text, "worker 3 has joined: 0 -> ", 26) == 0 && why.after > 8);
	pbox_work_destroy(w);
}

static void
test_steal(void)
{
	double slot[] = {1, 1, 1, 1};
	struct pbox_work *w = make_room(4, 64);
	struct pbox_work_move move, again;
	struct pbox_work_reason why;
	char text[PBOX_WORK_REASON_TEXT];

	pbox_work_round(w, 1);
	/* nothing is known: nobody takes anything */
	pbox_work_begun(w, 0, 0, 16, 1);
	CU_ASSERT(!pbox_work_task(w, 0, 2, &move, &why));
	for (uint32_t round = 1; round < 10; round++)
		whole_round(w, round, 4, slot, &why);
	pbox_work_round(w, 10);
	/* its own first */
	pbox_work_begun(w, 0, 0, 10, 9.01);
	CU_ASSERT(pbox_work_task(w, 0, 10, &move, &why));
	CU_ASSERT(move.first == 10 && move.end == 16 && move.from == 0 && move.to == 0);
	/* all go at the same speed: nothing to gain */
	for (unsigned i = 0; i < 4; i++)
		pbox_work_begun(w, i, 16 * i, 16 * i + 16 - (i > 0), 14.01);
	CU_ASSERT(!pbox_work_task(w, 0, 15.01, &move, &why));
	/* worker 2 is 6 times slower than it was */
	pbox_work_round(w, 11);
	for (unsigned i = 0; i < 4; i++)
		pbox_work_begun(w, i, 16 * i, 16 * i + (i == 2 ? 3 : 16), i == 2 ? 12.01 : 15.01);
	CU_ASSERT(pbox_work_task(w, 0, 16, &move, &why));
	CU_ASSERT(move.from == 2 && move.to == 0 && move.end == 48 && move.first > 34 &&
		  move.first < 40);
	for (unsigned s = 32; s < 48; s++)
		UNIT_EQ_U64(pbox_work_owners(w)[s], s < move.first ? 2 : 0);
	pbox_work_reason_text(&why, text, sizeof(text));
	CU_ASSERT(strncmp(text, "worker 2 would end round 11 last: 16 -> ", 40) == 0);
	CU_ASSERT(pbox_work_task(w, 0, 16, &again, &why));
	CU_ASSERT(again.first == move.first && again.end == move.end);
	/* what was just taken is not taken again */
	CU_ASSERT(!pbox_work_task(w, 1, 16, &again, &why) || again.from != 0);
	/* late news of the victim about slots that it has lost */
	pbox_work_begun(w, 2, 35, 48, 17);
	CU_ASSERT(pbox_work_task(w, 0, 17, &again, &why) && again.first == move.first);
	/* the plan has not changed */
	UNIT_EQ_U64(count(pbox_work_plan(w)->owner, 64, 2), 16);
	pbox_work_round(w, 12);
	UNIT_EQ_U64(count(pbox_work_owners(w), 64, 2), 16);
	pbox_work_destroy(w);
}

/* A slot or two of a long round are not worth a message. */
static void
test_small_steal(void)
{
	double slot[] = {1, 1};
	struct pbox_work *w = make_room(2, 128);
	struct pbox_work_reason why;
	struct pbox_work_move move;

	for (uint32_t round = 1; round < 10; round++)
		whole_round(w, round, 2, slot, &why);
	pbox_work_round(w, 10);
	pbox_work_begun(w, 0, 0, 64, 60.01);
	pbox_work_begun(w, 1, 64, 124, 60.01);
	CU_ASSERT(!pbox_work_task(w, 0, 61.01, &move, &why));
	/* 16 of them are */
	pbox_work_round(w, 11);
	pbox_work_begun(w, 0, 0, 64, 60.01);
	pbox_work_begun(w, 1, 64, 112, 60.01);
	CU_ASSERT(pbox_work_task(w, 0, 61.01, &move, &why) && move.first == 120);
	pbox_work_destroy(w);
}

/* So slow that one slot is too much; later it is measured again, and is fast. */
static void
test_probe(void)
{
	double slot[] = {1, 1, 1, 50};
	struct pbox_work *w = make_room(4, 16);
	struct pbox_work_reason why;
	unsigned probes = 0;
	uint32_t round;

	for (round = 1; round < 20; round++)
		whole_round(w, round, 4, slot, &why);
	UNIT_EQ_U64(count(pbox_work_plan(w)->owner, 16, 3), 0);
	for (; round < 300; round++)
		if (whole_round(w, round, 4, slot, &why) == 1 && why.cause == PBOX_WORK_PROBE) {
			UNIT_EQ_U64(why.worker, 3);
			UNIT_EQ_U64(count(pbox_work_next(w)->owner, 16, 3), 1);
			probes++;
		}
	UNIT_EQ_U64(probes, 2);
	UNIT_EQ_U64(count(pbox_work_plan(w)->owner, 16, 3), 0);
	slot[3] = 1;
	for (; round < 500; round++)
		whole_round(w, round, 4, slot, &why);
	UNIT_EQ_U64(count(pbox_work_plan(w)->owner, 16, 3), 4);
	pbox_work_destroy(w);
}

const struct unit_test unit_tests[] = {
	{"what no room is made of", test_create},
	{"the first plan", test_start},
	{"reports that are refused, or known", test_bad_reports},
	{"a median, and a change", test_median},
	{"a slower worker, in words", test_reason},
	{"slower transfers", test_traffic},
	{"a worker that is late", test_late},
	{"memory that fits", test_memory},
	{"memory that swings", test_memory_swings},
	{"a death", test_death},
	{"the last death", test_last_death},
	{"a join", test_join},
	{"work for those that are done", test_steal},
	{"work that is too little", test_small_steal},
	{"a worker without slots is measured", test_probe},
	{NULL, NULL},
};
