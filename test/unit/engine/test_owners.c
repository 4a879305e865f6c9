/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Work by plan (section 15 of the protocol), with the whole engine: each round is the tree's over all slots, whatever the
 * owners are, also when they change while it lasts. */

#include <math.h>
#include <string.h>

#include "slots.h"

const char unit_suite[] = "engine: owners of slots";

static struct pbox_work_ok own[WORKERS]; /* what the box said last to each worker */
static bool dead[WORKERS];
static float params[ELEMENTS];
static unsigned least; /* of JOIN, if workers come and go */
#define MOST 6         /* of them */

static void
join_planned(unsigned i, unsigned workers, unsigned v)
{
	w[i] = (struct fx_worker){.job = "five",
		.worker = (uint16_t)i,
		.workers = (uint16_t)workers,
		.policy = PBOX_POLICY_REASSIGN,
		.least = (uint16_t)least,
		.run = {1},
		.slots = (uint16_t)v};
	CU_ASSERT_TRUE_FATAL(fx_try_join(&w[i]));
}

static void
begin_planned(unsigned workers, unsigned v)
{
	const struct fx_table t = {.elements = ELEMENTS,
		.mode = PBOX_MODE_OPTIMISER,
		.op = PBOX_OP_SUM,
		.optimiser = PBOX_OPT_SGD};
	struct pbox_hdr h;

	fx_begin();
	n_workers = workers;
	slots = v;
	memset(own, 0, sizeof(own));
	memset(dead, 0, sizeof(dead));
	memset(params, 0, sizeof(params));
	for (unsigned i = 0; i < workers; i++)
		join_planned(i, least != 0 ? MOST : workers, v);
	declare_all(0, &t);
	h = fx_data(&w[0], PBOX_INIT, 0, 0, 0);
	h.format = PBOX_FMT_FP32;
	h.length = sizeof(params);
	CU_ASSERT_FALSE(fx_rx(0, &w[0], &h, params));
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_INIT_OK);
	fx_set(&w[0], 0, 1, PBOX_HYPER_LR, 1);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_SET_OK);
	for (unsigned i = 0; i < v; i++)
		for (unsigned k = 0; k < ELEMENTS; k++)
			value[i][k] = ((float)chance(2001) - 1000) * (float)(1u << chance(24));
	fx_clear();
}

static struct pbox_work_ask
question(uint32_t round)
{
	return (struct pbox_work_ask){.round = round,
		.fits = UINT32_MAX,
		.seed = PBOX_WORK_NONE,
		.samples = PBOX_WORK_NONE};
}

static const struct fx_sent *
send_ask(unsigned i, const struct pbox_work_ask *m)
{
	uint8_t payload[512];
	size_t length = pbox_work_ask_encode(payload, sizeof(payload), m);

	return fx_control(&w[i], PBOX_WORK, payload, length);
}

static bool too_many; /* pieces for one worker: that was refused */

/* WORK, until the answer has ranges. */
static void
ask_work_with(unsigned i, const struct pbox_work_ask *m)
{
	for (unsigned n = 0; n < 10; n++) {
		const struct fx_sent *s = send_ask(i, m);

		too_many |= s != NULL && s->hdr.type == PBOX_ERROR && fx_error() == PBOX_E_FULL;
		if (too_many)
			return;
		CU_ASSERT_FATAL(s != NULL && s->hdr.type == PBOX_WORK_OK);
		CU_ASSERT_EQUAL_FATAL(pbox_work_ok_decode(s->payload, s->hdr.length, &own[i]), 0);
		if (own[i].again_ms == 0)
			return;
		fx.now += own[i].again_ms * MS;
		fx_tick();
	}
	CU_FAIL_FATAL("owners are always changing");
}

static void
ask_work(unsigned i, uint32_t round)
{
	const struct pbox_work_ask m = question(round);

	ask_work_with(i, &m);
}

/* With a report of the round before: so many seconds a slot. */
static void
report_work(unsigned i, uint32_t round, double seconds)
{
	struct pbox_work_ask m = question(round);

	for (unsigned r = 0; r < own[i].ranges; r++)
		m.slots = (uint16_t)(m.slots + own[i].range[r].end - own[i].range[r].first);
	m.payloads = m.slots > 0;
	m.compute = m.slots * seconds;
	ask_work_with(i, &m);
}

static void
refused(unsigned i, const struct pbox_work_ask *m, unsigned code, const char *text)
{
	const struct fx_sent *s = send_ask(i, m);

	CU_ASSERT_FATAL(s != NULL && s->hdr.type == PBOX_ERROR);
	UNIT_EQ_U64(fx_error(), code);
	CU_ASSERT_STRING_EQUAL(fx_error_text(), text);
}

static unsigned
own_nodes(unsigned i, struct pbox_node *n)
{
	unsigned count = 0;

	for (unsigned r = 0; r < own[i].ranges; r++)
		count += pbox_range_nodes(
			own[i].range[r].first, own[i].range[r].end, slots, n + count);
	CU_ASSERT_FATAL(count <= PBOX_RANGE_NODES);
	return count;
}

static bool
bring_node(unsigned i, uint32_t round, struct pbox_node n)
{
	return push_at(i, PBOX_PUSHPULL, 0, 0, round, n, false, false);
}

/* All nodes of its ranges. */
static void
bring_own(unsigned i, uint32_t round)
{
	struct pbox_node n[PBOX_RANGE_NODES * PBOX_RANGE_NODES];
	unsigned count = own_nodes(i, n);

	for (unsigned k = 0; k < count; k++)
		bring_node(i, round, n[k]);
}

static void
expect_stepped(uint32_t round)
{
	const struct fx_sent *s = NULL;
	float sum[ELEMENTS];

	for (unsigned i = 0; i < fx.n_sent; i++)
		if (fx.sent[i].hdr.type == PBOX_RESULT && fx.sent[i].hdr.round == round)
			s = &fx.sent[i];
	sum_of(sum, 0, slots, -1);
	for (unsigned k = 0; k < ELEMENTS; k++)
		params[k] -= sum[k];
	CU_ASSERT_PTR_NOT_NULL_FATAL(s);
	UNIT_EQ_U64(s->hdr.aux, slots);
	CU_ASSERT_EQUAL(memcmp(s->payload, params, sizeof(params)), 0);
}

/* A round by all that live, each by its ranges. */
static void
whole_round(uint32_t round)
{
	fx_clear();
	for (unsigned i = 0; i < n_workers; i++)
		if (!dead[i])
			bring_own(i, round);
	expect_stepped(round);
}

/* Each slot of a round has one owner, by the ranges of all that live. */
static void
expect_all_owned(void)
{
	unsigned owners[PBOX_MAX_SLOTS] = {0}, bad = 0;

	for (unsigned i = 0; i < n_workers; i++)
		for (unsigned r = 0; !dead[i] && r < own[i].ranges; r++)
			for (unsigned s = own[i].range[r].first; s < own[i].range[r].end; s++)
				owners[s]++;
	for (unsigned s = 0; s < slots; s++)
		bad += owners[s] != 1;
	UNIT_EQ_U64(bad, 0);
}

static void
ask_all(uint32_t round)
{
	for (unsigned i = 0; i < n_workers; i++)
		if (!dead[i])
			ask_work(i, round);
	if (!too_many)
		expect_all_owned();
}

static void
leave(unsigned i)
{
	fx_leave(&w[i]);
	dead[i] = true;
}

/* What a job and its table must be (R15.1), and WORK in a job without plans. */
static void
test_refused_jobs(void)
{
	static const struct fx_table bad[] = {
		{.elements = ELEMENTS, .op = PBOX_OP_SUM},
		{.elements = ELEMENTS,
			.mode = PBOX_MODE_OPTIMISER,
			.op = PBOX_OP_WEIGHTED_MEAN,
			.optimiser = PBOX_OPT_SGD},
	};
	struct pbox_work_ask m = question(1);

	fx_begin();
	w[0] = (struct fx_worker){.job = "five", .workers = 2, .policy = PBOX_POLICY_REASSIGN};
	CU_ASSERT_FALSE(fx_try_join(&w[0]));
	UNIT_EQ_U64(fx_error(), PBOX_E_BAD_REQUEST);
	fx_end();
	for (unsigned i = 0; i < 2; i++) {
		fx_begin();
		join_planned(0, 1, 4);
		refused(0, &m, PBOX_E_BAD_REQUEST, "table 0 is not mapped yet");
		fx_declare(&w[0], 0, &bad[i]);
		UNIT_EQ_U64(fx_error(), PBOX_E_BAD_REQUEST);
		fx_end();
	}
	begin("speech", 2, 4);
	refused(0, &m, PBOX_E_BAD_REQUEST,
		"job 'speech' has policy wait: only one with policy reassign has work by plan");
	fx_end();
}

/* What a worker says in WORK (R15.4). */
static void
test_refused_reports(void)
{
	static const double no_number[] = {NAN, INFINITY, -1, 1e300};
	struct pbox_work_ask m;
	uint8_t payload[512];
	size_t len;

	begin_planned(2, 8);
	m = question(1);
	m.table = 1;
	refused(0, &m, PBOX_E_BAD_REQUEST, "table 1 is not mapped yet");
	ask_all(1);
	whole_round(1);
	m = question(4);
	refused(0, &m, PBOX_E_BAD_REQUEST, "worker 0 asks for round 4, and round 2 is in progress");
	for (unsigned i = 0; i < 4 * 4; i++) {
		m = question(2);
		m.slots = 4;
		m.payloads = 1;
		m.compute = 1;
		*(&m.compute + i % 4) = no_number[i / 4];
		CU_ASSERT_EQUAL_FATAL(send_ask(0, &m)->hdr.type, PBOX_ERROR);
		UNIT_EQ_U64(fx_error(), PBOX_E_BAD_REQUEST);
	}
	m = question(2);
	m.slots = 9; /* more than there are */
	m.payloads = 1;
	m.compute = 1;
	CU_ASSERT_EQUAL_FATAL(send_ask(0, &m)->hdr.type, PBOX_ERROR);
	/* ranges that are none are no frame */
	m = question(2);
	m.ranges = 2;
	for (unsigned i = 0; i < 3; i++) {
		static const struct pbox_slot_range r[3][2] = {
			{{0, 0}, {4, 8}}, {{0, 4}, {3, 8}}, {{0, 4}, {4, PBOX_MAX_SLOTS + 1}}};

		memcpy(m.range, r[i], sizeof(r[i]));
		len = pbox_work_ask_encode(payload, sizeof(payload), &m);
		CU_ASSERT_PTR_NULL(fx_control(&w[0], PBOX_WORK, payload, len));
	}
	/* nothing is lost */
	ask_all(2);
	whole_round(2);
	fx_end();
}

/* A worker that trains with something else would compute other slots. */
static void
test_trains_alike(void)
{
	struct pbox_work_ask m = question(1), other;

	begin_planned(2, 8);
	m.seed = 7;
	m.samples = 60000;
	m.batch = 256;
	m.trained = 0;
	ask_work_with(0, &m);
	ask_work_with(1, &m);
	other = m;
	other.seed = 8;
	refused(1, &other, PBOX_E_MISMATCH, "seed is 8 here and 7 at worker 0: give all the same");
	other = m;
	other.samples = 5;
	refused(1, &other, PBOX_E_MISMATCH,
		"the data has 5 samples here and 60000 at worker 0: give all the same data");
	other = m;
	other.batch = 128;
	refused(1, &other, PBOX_E_MISMATCH,
		"batch_size is 128 here and 256 at worker 0: give all the same");
	other = m;
	other.trained = 3;
	refused(1, &other, PBOX_E_MISMATCH,
		"trained_rounds is 3 before round 1 here, and 0 at worker 0: begin at the checkpoint of the others");
	whole_round(1);
	fx_end();
}

/* A newcomer has declared, and asks what is going on: nobody waits for it, and no plan is made. */
static void
comes(unsigned i, uint32_t round)
{
	const struct fx_table t = {.elements = ELEMENTS,
		.mode = PBOX_MODE_OPTIMISER,
		.op = PBOX_OP_SUM,
		.optimiser = PBOX_OPT_SGD,
		.flags = PBOX_DECLARE_CONTINUE};
	struct pbox_work_ask look = question(round);
	unsigned members = own[0].members;

	look.trained = PBOX_WORK_UNKNOWN;
	join_planned(i, MOST, slots);
	dead[i] = true; /* it does nothing yet */
	n_workers = i + 1 > n_workers ? i + 1 : n_workers;
	UNIT_EQ_U64(fx_declare(&w[i], 0, &t)->hdr.type, PBOX_DECLARED);
	UNIT_EQ_U64(fx_map(&w[i], 0, 0)->hdr.type, PBOX_MAPPED);
	for (unsigned n = 0; n < 3; n++) {
		ask_work_with(i, &look);
		UNIT_EQ_U64(own[i].ranges + own[i].next_from, 0);
		UNIT_EQ_U64(own[i].members, members);
		UNIT_EQ_U64(own[i].now, round);
		CU_ASSERT_EQUAL(own[i].hyper[0], 1);
	}
}

/* It asks for slots, until a plan has some for it, and goes on with the first round of that. */
static void
enters(unsigned i, uint32_t *round)
{
	uint32_t from, asked = *round;

	for (ask_work(i, *round); own[i].next_ranges == 0 && *round < asked + 8;
		ask_work(i, *round)) {
		fx_tick();
		ask_all(*round);
		whole_round((*round)++);
	}
	from = own[i].next_from;
	CU_ASSERT_FATAL(own[i].next_ranges > 0 && pbox_serial_diff(from, *round - 1) >= 2);
	for (ask_all(*round); *round < from;)
		whole_round((*round)++);
	dead[i] = false;
	ask_all(*round);
	CU_ASSERT(own[i].ranges > 0);
}

/* Two begin a job of six (R15.1a): two more come, and one of the first goes. Each round is the tree's. */
static void
test_comes_and_goes(void)
{
	uint32_t round = 1;

	least = 2;
	begin_planned(2, 16);
	ask_all(1);
	UNIT_EQ_U64(own[0].range[0].end, 8); /* plan 0 is of those that are there */
	UNIT_EQ_U64(own[0].members, 2);
	whole_round(round++);
	comes(2, round);
	comes(3, round);
	whole_round(round++);
	enters(2, &round);
	enters(3, &round);
	UNIT_EQ_U64(own[0].members, 4);
	CU_ASSERT(own[2].ranges > 0 && own[3].ranges > 0);
	whole_round(round++);
	bring_own(1, round);
	leave(0);
	ask_all(round);
	UNIT_EQ_U64(own[1].members, 3);
	whole_round(round++);
	ask_all(round);
	whole_round(round);
	fx_end();
	least = 0;
}

static void
refused_join(unsigned workers, unsigned policy, unsigned n, bool named, const char *text)
{
	struct fx_worker x = {.job = "five",
		.workers = (uint16_t)workers,
		.policy = (uint8_t)policy,
		.least = (uint16_t)n,
		.run = {named},
		.slots = 16};

	CU_ASSERT_FALSE(fx_try_join(&x));
	UNIT_EQ_U64(fx_error(), PBOX_E_BAD_REQUEST);
	CU_ASSERT_PTR_NOT_NULL(strstr(fx_error_text(), text));
}

/* What an elastic job must be, and a run of which all have died in the middle of a round. */
static void
test_least(void)
{
	fx_begin();
	refused_join(4, PBOX_POLICY_WAIT, 2, true, "policy reassign alone");
	refused_join(4, PBOX_POLICY_REASSIGN, 5, true, "at most");
	refused_join(4, PBOX_POLICY_REASSIGN, 2, false, "finds its run by the name");
	fx_end();
	least = 2;
	begin_planned(2, 16);
	refused_join(MOST, PBOX_POLICY_REASSIGN, 3, true, "says least 3, the others 2");
	fx_end();
	least = 0;
}

static void
wrong(unsigned i, uint32_t round, unsigned first, unsigned level)
{
	fx_clear();
	fx_mark();
	CU_ASSERT_FALSE(bring_node(i, round, (struct pbox_node){(uint16_t)first, (uint16_t)level}));
	FX_ONLY(PBOX_SS_DROP_NODE);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_ERROR);
	UNIT_EQ_U64(fx_last()->hdr.aux, PBOX_E_BAD_REQUEST);
}

/* A plan: announced, and in force two rounds later at least; its owners alone may bring its slots then. */
static void
test_plan(void)
{
	uint32_t round = 1, from = 0;
	unsigned edition;

	begin_planned(2, 16);
	ask_all(1);
	UNIT_EQ_U64(own[0].plan, 0);
	UNIT_EQ_U64(own[0].range[0].end, 8);
	UNIT_EQ_U64(own[0].members, 2);
	UNIT_EQ_U64(own[1].leads, 0);
	wrong(0, 1, 8, 0);
	edition = own[0].edition;
	for (; from == 0 && round < 20; round++) {
		whole_round(round);
		UNIT_EQ_U64(fx_last()->hdr.prio, own[0].edition & 0xff);
		report_work(0, round + 1, 0.25);
		report_work(1, round + 1, 1);
		if (round > 6) /* a plan is looked for in ticks alone */
			fx_tick();
		ask_all(round + 1);
		from = own[1].next_from;
	}
	CU_ASSERT_FATAL(from != 0 && round > 7);
	CU_ASSERT(pbox_serial_diff(from, round - 1) >= 2);
	UNIT_EQ_U64(own[0].next_from, from);
	UNIT_EQ_U64(own[0].edition, edition + 1);
	UNIT_EQ_U64(own[0].next_plan, 1);
	CU_ASSERT(own[0].next_range[0].end > 8);
	for (; round < from; round++) {
		wrong(0, round, 8, 0); /* one round early */
		whole_round(round);
		UNIT_EQ_U64(fx_last()->hdr.prio, own[0].edition & 0xff);
	}
	wrong(1, from, 8, 3); /* its node of the plan before */
	wrong(1, from, 8, 0);
	ask_all(from);
	UNIT_EQ_U64(own[0].plan, 1);
	UNIT_EQ_U64(own[0].next_from, 0);
	CU_ASSERT(own[0].range[0].end > 8);
	whole_round(from);
	whole_round(from + 1);
	fx_end();
}

/* A worker leaves in the middle of a round: what it brought counts, the rest is brought by others. */
static void
test_leaves(void)
{
	for (unsigned some = 0; some < 2; some++) {
		begin_planned(3, 12);
		ask_all(1);
		whole_round(1);
		fx_clear();
		if (some != 0)
			CU_ASSERT_TRUE(bring_node(0, 2, (struct pbox_node){0, 2}));
		bring_own(1, 2);
		leave(0);
		fx_clear();
		ask(1, 2); /* it hears of a slot that it did not own */
		UNIT_EQ_U64(fx_last()->hdr.type, PBOX_WAIT);
		if (some == 0) {
			UNIT_EQ_U64(fx_last()->hdr.flags & PBOX_F_HAVE, 0);
			CU_ASSERT(fx_last()->hdr.base < 4);
		}
		ask_all(2);
		UNIT_EQ_U64(own[1].members, 2);
		UNIT_EQ_U64(own[1].leads, 1);
		whole_round(2);
		UNIT_EQ_U64(fx.ss[0][PBOX_SS_TAKEN_BACK], 0);
		ask_all(3);
		whole_round(3);
		fx_end();
	}
}

/* What the dead one brought is damaged: that is taken back first. */
static void
test_leaves_damaged(void)
{
	begin_planned(3, 12);
	ask_all(1);
	CU_ASSERT_TRUE(push_at(0, PBOX_PUSHPULL, 0, 0, 1, (struct pbox_node){0, 2}, true, true));
	leave(0);
	UNIT_EQ_U64(fx.ss[0][PBOX_SS_TAKEN_BACK], 1);
	ask_all(1);
	whole_round(1);
	fx_end();
}

/* Others have finished rounds without worker 0. */
static void
expect_running(enum pbox_type type, uint32_t round)
{
	struct pbox_hdr h;

	fx_clear();
	fx_mark();
	if (type == PBOX_PULL) {
		h = fx_data(&w[0], PBOX_PULL, 0, 0, round);
		CU_ASSERT_FALSE(fx_rx(0, &w[0], &h, NULL));
	} else {
		CU_ASSERT_FALSE(
			push_at(0, type, 0, 0, round, (struct pbox_node){0, 2}, false, false));
	}
	FX_ONLY(PBOX_SS_DROP_ROUND_STALE);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_ERROR);
	UNIT_EQ_U64(fx_last()->hdr.aux, PBOX_E_RUNNING);
	UNIT_EQ_U64(fx_last()->hdr.round, round);
}

static void
pass_ms(unsigned ms)
{
	for (unsigned t = 0; t < ms; t += 50) {
		fx.now += 50 * MS;
		fx_tick();
		for (unsigned i = 1; i < 3; i++)
			ask(i, 2);
	}
}

/* An answer says nothing of what comes after it: who has answered, and is silent again, is asked again at once. */
static void
test_silent_again(void)
{
	begin_planned(3, 12);
	ask_all(1);
	whole_round(1);
	pass_ms(200);
	CU_ASSERT_EQUAL(fx_control(&w[0], PBOX_PING, NULL, 0)->hdr.type, PBOX_PONG);
	pass_ms(500);
	ask_work(1, 2);
	UNIT_EQ_U64(own[1].members, 3);
	pass_ms(300);
	ask_work(1, 2);
	UNIT_EQ_U64(own[1].members, 2);
	fx_end();
}

/* Silent, and another one answers: its slots go, its session stays, and what it brings then counts for nothing. */
static void
test_silent(void)
{
	begin_planned(3, 12);
	ask_all(1);
	whole_round(1);
	for (unsigned t = 0; t < 20; t++) {
		fx.now += 50 * MS;
		fx_tick();
		for (unsigned i = 1; i < 3; i++)
			ask(i, 2);
	}
	ask_work(1, 2);
	ask_work(2, 2);
	UNIT_EQ_U64(own[1].members, 2);
	dead[0] = true;
	expect_all_owned();
	fx_clear();
	fx_mark();
	CU_ASSERT_FALSE(bring_node(0, 2, (struct pbox_node){0, 2}));
	FX_ONLY(PBOX_SS_RX_DUP_PENDING);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_WAIT);
	UNIT_EQ_U64(fx_last()->hdr.flags & PBOX_F_HAVE, PBOX_F_HAVE);
	CU_ASSERT_FALSE(push_at(0, PBOX_PUSH, 0, 0, 2, (struct pbox_node){0, 2}, false, false));
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_PUSH_OK);
	fx_clear();
	bring_own(1, 2);
	bring_own(2, 2);
	UNIT_EQ_U64(fx_count(PBOX_RESULT), 3); /* also to the one that came late */
	expect_stepped(2);
	ask_all(3);
	whole_round(3);
	expect_running(PBOX_PUSHPULL, 1);
	expect_running(PBOX_PUSH, 2);
	expect_running(PBOX_PULL, 2);
	fx_end();
}

/* Deaths one after the other, pieces of pieces: no node is one that spans what others brought in parts. */
static void
test_deaths(void)
{
	for (unsigned run = 0; run < 400; run++) {
		unsigned n, v, living;

		seed = run + 1;
		n = 2 + chance(5);
		v = n + chance(run % 4 == 0 ? 300 : 40);
		begin_planned(n, v);
		living = n;
		too_many = false;
		for (uint32_t round = 1; round < 7 && !too_many; round++) {
			for (unsigned i = 0; i < n; i++)
				if (!dead[i] && round > 1 && run % 3 == 0)
					report_work(i, round, 0.125 * (1 + (i + run) % 3));
			ask_all(round);
			fx_clear();
			for (unsigned step = chance(3 * n); step > 0 && !too_many; step--) {
				struct pbox_node node[PBOX_RANGE_NODES * PBOX_RANGE_NODES];
				unsigned i = chance(n), count;

				if (!dead[i] && living > 1 && chance(4) == 0) {
					leave(i);
					living--;
					if (chance(2) == 0)
						ask_all(round);
				}
				if (dead[i] || fx.n_sent > FX_SENT / 2)
					continue;
				count = own_nodes(i, node);
				if (count > 0)
					bring_node(i, round, node[chance(count)]);
			}
			if (fx_count(PBOX_RESULT) == 0) {
				ask_all(round);
				if (!too_many)
					whole_round(round);
			} else {
				expect_stepped(round);
			}
		}
		CU_ASSERT(!too_many || (v > 100 && living == 1));
		fx_end();
	}
}

const struct unit_test unit_tests[] = {
	{"refused jobs", test_refused_jobs},
	{"refused reports", test_refused_reports},
	{"trains alike", test_trains_alike},
	{"a plan", test_plan},
	{"leaves", test_leaves},
	{"leaves, and is damaged", test_leaves_damaged},
	{"silent", test_silent},
	{"silent again", test_silent_again},
	{"deaths", test_deaths},
	{"workers come and go", test_comes_and_goes},
	{"least", test_least},
	{NULL, NULL},
};
