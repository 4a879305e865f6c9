/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Workers of two starts of a job meet at the box: named or not, of a start that waits, works, has died or has left. */

#include <string.h>

#include "fixture.h"

const char unit_suite[] = "engine: workers of two starts";

#define MS UINT64_C(1000000)

static struct fx_worker w[2], other[2];

/* A worker of "vision" as it will join: its run as a text. */
static struct fx_worker
worker(uint16_t number, const char *run)
{
	struct fx_worker x = {.job = "vision", .worker = number, .workers = 2};

	memcpy(x.run, run, strlen(run));
	return x;
}

/* What the earlier start has, and whether its processes live. Its worker 1 has no session while it waits. */
enum earlier {
	WAITS,
	MAPPED,
	GOES_ON, /* past a round */
	WAITED_AND_DIED,
	DIED,   /* mapped; the leases go on */
	KEPT,   /* the leases have ended */
	LEFT,   /* all of them */
	ENDING, /* and memory is being released */
};

static const char *const earlier_name[] = {
	"waits", "mapped", "goes on", "waited and died", "died", "kept", "left", "ending"};

static bool
lives(enum earlier state)
{
	return state <= GOES_ON;
}

/* Worker 1 of a later start asks for its place. */
enum meets {
	JOINS_IT, /* the run of the earlier one */
	SHUT_OUT, /* as long as the earlier one lives, to which nothing happens */
	BEGINS, /* another run: that of the earlier one ends at once, and none of its workers comes back */
};

/* Where neither names a run, or both the same, the box takes the later start for workers that were started again; the rules
 * of the number and of RUNNING (R4.6, R12.6) hold then. All others are kept apart. */
static const struct meeting {
	enum earlier state;
	enum meets none, same, names, other, unnames;
	/* names of both: none and none, one, none and one, two, one and none */
} meeting[] = {
	{WAITS, JOINS_IT, JOINS_IT, BEGINS, BEGINS, SHUT_OUT},
	{MAPPED, SHUT_OUT, SHUT_OUT, BEGINS, BEGINS, SHUT_OUT},
	{GOES_ON, SHUT_OUT, SHUT_OUT, BEGINS, BEGINS, SHUT_OUT},
	{WAITED_AND_DIED, JOINS_IT, JOINS_IT, BEGINS, BEGINS, BEGINS},
	{DIED, JOINS_IT, JOINS_IT, BEGINS, BEGINS, BEGINS},
	{KEPT, JOINS_IT, JOINS_IT, BEGINS, BEGINS, BEGINS},
	{LEFT, BEGINS, BEGINS, BEGINS, BEGINS, BEGINS},
	{ENDING, BEGINS, BEGINS, BEGINS, BEGINS, BEGINS},
};

static void
earlier_start(enum earlier state, const char *run)
{
	static const struct fx_table table = {.elements = 4, .op = PBOX_OP_SUM};
	static const float one[4] = {1, 2, 3, 4};
	unsigned n = state == WAITS || state == WAITED_AND_DIED ? 1 : 2;

	for (uint16_t i = 0; i < 2; i++)
		w[i] = worker(i, run);
	for (unsigned i = 0; i < n; i++)
		CU_ASSERT_TRUE_FATAL(fx_try_join(&w[i]));
	for (unsigned i = 0; i < 2 && n == 2; i++)
		UNIT_EQ_U64(fx_declare(&w[i], 0, &table)->hdr.type, PBOX_DECLARED);
	for (unsigned i = 0; i < 2 && n == 2; i++)
		UNIT_EQ_U64(fx_map(&w[i], 0, 0)->hdr.type, PBOX_MAPPED);
	if (state == GOES_ON)
		for (unsigned i = 0; i < 2; i++)
			fx_pushpull(&w[i], 1, one, 4);
	if (state == KEPT)
		fx.now += 100000 * MS;
	fx.hold_mail = state == ENDING;
	for (unsigned i = 0; i < 2 && state >= LEFT; i++) {
		fx_clear();
		fx_leave(&w[i]);
	}
	fx_tick();
}

/* What lives answers the box, and some time goes on. */
static void
time_goes_on(enum earlier state)
{
	for (unsigned i = 0; i < 2; i++) {
		if (lives(state) && w[i].token != 0)
			fx_control(&w[i], PBOX_PING, NULL, 0);
		if (other[i].token != 0)
			fx_control(&other[i], PBOX_PING, NULL, 0);
	}
	fx_mail();
	fx.hold_mail = false;
	fx.now += 100 * MS;
	fx_tick();
}

static enum meets
meet(enum earlier state, uint16_t number, const char *run)
{
	struct fx_worker x;

	for (unsigned i = 0; i < 30; i++) {
		x = worker(number, run);
		if (fx_try_join(&x)) {
			other[1] = x;
			return x.welcome.number == w[0].welcome.number ? JOINS_IT : BEGINS;
		}
		UNIT_EQ_U64(fx_error(), PBOX_E_WORKER_TAKEN);
		time_goes_on(state);
	}
	return SHUT_OUT;
}

/* A worker of the earlier start asks for its session again, as the nonce that it keeps says (R10.1). */
static unsigned
comes_back(const struct fx_worker *of, uint64_t number)
{
	struct fx_worker x = *of;
	struct pbox_join m;
	const struct fx_sent *s;

	x.number = number;
	fx_hello(&x);
	m = fx_join_message(&x);
	s = fx_join_with(&x, &m, "key");
	return s->hdr.type == PBOX_WELCOME ? 0 : fx_error();
}

/* The later start has begun: the workers of the earlier one come back, those that were mapped with their number, too. And
 * again when their nonces are forgotten: who names nothing then is no member of a run that has a name. */
static void
stay_out(enum earlier state, bool unnamed)
{
	for (unsigned i = 0; i < 2; i++)
		if (w[i].token != 0 && state < LEFT) {
			UNIT_EQ_U64(comes_back(&w[i], 0), PBOX_E_RUN_ENDED);
			UNIT_EQ_U64(comes_back(&w[i], w[i].welcome.number), PBOX_E_RUN_ENDED);
		}
	for (unsigned i = 0; i < 200; i++)
		time_goes_on(DIED);
	for (unsigned i = 0; i < 2; i++)
		if (w[i].token != 0 && unnamed) {
			UNIT_EQ_U64(comes_back(&w[i], 0), PBOX_E_WORKER_TAKEN);
			CU_ASSERT_PTR_NOT_NULL(strstr(fx_error_text(), "this worker names none"));
		}
	CU_ASSERT_EQUAL(fx_control(&other[1], PBOX_PING, NULL, 0)->hdr.type, PBOX_PONG);
	UNIT_EQ_U64(pbox_job_joined(pbox_registrar_job(fx.registrar, 0)), 1);
}

static void
two_starts(const struct meeting *m, enum meets want, const char *first, const char *second)
{
	/* a number of its own, and any */
	for (unsigned any = 0; any < 2; any++) {
		bool apart = strcmp(first, second) != 0;
		enum meets got;

		memset(other, 0, sizeof(other));
		fx.grace_ms = 600000;
		fx_begin();
		earlier_start(m->state, first);
		got = meet(m->state, any ? PBOX_NO_WORKER : 1, second);
		if (got != want)
			printf("\n%s '%s', then '%s': %u, not %u\n", earlier_name[m->state], first,
				second, got, want);
		CU_ASSERT_EQUAL(got, want);
		if (got == SHUT_OUT) {
			CU_ASSERT_EQUAL(fx_control(&w[0], PBOX_PING, NULL, 0)->hdr.type, PBOX_PONG);
			if (apart)
				CU_ASSERT_EQUAL(comes_back(&w[0], 0), 0);
		}
		if (apart && got == BEGINS)
			stay_out(m->state, first[0] == 0);
		fx_end();
	}
	fx.grace_ms = 0;
}

/* R12.3, R12.5: workers of one start name the same run, or none. So those that differ never train together. */
static void
test_two_starts(void)
{
	for (unsigned i = 0; i < sizeof(meeting) / sizeof(meeting[0]); i++) {
		const struct meeting *m = &meeting[i];

		two_starts(m, m->none, "", "");
		two_starts(m, m->same, "monday", "monday");
		two_starts(m, m->names, "", "tuesday");
		two_starts(m, m->other, "monday", "tuesday");
		two_starts(m, m->unnames, "monday", "");
	}
}

const struct unit_test unit_tests[] = {
	{"all ways to meet", test_two_starts},
	{NULL, NULL},
};
