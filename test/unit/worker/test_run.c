/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>

#include "unit.h"
#include "worker_impl.h"

/* run.c by itself: which fragments may be in a run, what a run says of each of them, and what is left of it when it is cut. The simulator
 * has whole workers. */

const char unit_suite[] = "worker: runs of fragments";

#define FRAGMENTS 8
#define ELEMENTS  16
#define WINDOW    64

static struct {
	struct pbox_worker w;
	struct lane *lane;
	struct session s;
	struct ep ep;
	struct pbox_worker_table t, *tables[1];
	struct chunk chunk[2];
	struct frag frag[FRAGMENTS];
	struct piece piece[FRAGMENTS];
	struct flight flight[WINDOW];
	struct pbox_worker_op op;
	struct pbox_worker_entry e, other;
	float in[FRAGMENTS * ELEMENTS];
} x;

static void
begin(void)
{
	memset(&x, 0, sizeof(x));
	x.lane = aligned_alloc(_Alignof(struct lane), sizeof(*x.lane));
	CU_ASSERT_FATAL(x.lane != NULL);
	memset(x.lane, 0, sizeof(*x.lane));
	x.w.table = x.tables;
	x.w.nodes = 1;
	x.tables[0] = &x.t;
	x.lane->w = x.s.w = &x.w;
	x.lane->now = NS_PER_S;
	x.s.ep = &x.ep;
	x.s.endpoints = 1;
	x.ep.lane = x.lane;
	x.ep.s = &x.s;
	x.ep.flight = x.flight;
	x.ep.next_due = UINT64_MAX;
	for (unsigned i = WINDOW; i-- > 0;) {
		x.flight[i].next = x.ep.free;
		x.ep.free = &x.flight[i];
	}
	window_init(&x.ep.win, WINDOW, 5 * NS_PER_MS, x.lane->now);
	x.ep.win.size = WINDOW;
	x.op = (struct pbox_worker_op){.kind = PBOX_CLIENT_PUSHPULL, .table = &x.t};
	x.e = x.other = (struct pbox_worker_entry){.op = &x.op, .in = (const uint8_t *)x.in};
	x.t.discipline = &worker_rounds;
	x.t.chunk = x.chunk;
	x.t.frag = x.frag;
	x.t.frags = FRAGMENTS;
	x.t.piece = x.piece;
	for (unsigned i = 0; i < FRAGMENTS; i++) {
		x.frag[i] = (struct frag){.piece = i,
			.pieces = 1,
			.pushes = 1,
			.index = (uint16_t)i,
			.pushed = true,
			.round = 4};
		x.piece[i] = (struct piece){
			.offset = i * ELEMENTS, .elements = ELEMENTS, .frag = i, .entry = &x.e};
	}
}

static void
end(void)
{
	free(x.lane);
}

static unsigned
most(uint8_t type, bool overtakes)
{
	return run_most(&x.ep, &x.t, &x.frag[0], type, overtakes);
}

static void
test_which(void)
{
	begin();
	UNIT_EQ_U64(most(PBOX_PUSHPULL, false), WINDOW);
	UNIT_EQ_U64(most(PBOX_PUSH, false), WINDOW);
	UNIT_EQ_U64(most(PBOX_PULL, false), WINDOW);
	UNIT_EQ_U64(most(PBOX_INIT, false), 1);
	UNIT_EQ_U64(most(PBOX_FETCH, false), 1);
	x.op.again = true;
	UNIT_EQ_U64(most(PBOX_PUSHPULL, false), 1);
	x.op.again = false;
	x.frag[0].pushed = false; /* any version may come */
	UNIT_EQ_U64(most(PBOX_PULL, false), 1);
	UNIT_EQ_U64(most(PBOX_PUSHPULL, false), WINDOW);
	x.frag[0].pushed = true;
	x.e.in = NULL; /* zeros, which do not lie one after the other */
	UNIT_EQ_U64(most(PBOX_PUSHPULL, false), 1);
	x.e.in = (const uint8_t *)x.in;
	x.w.planned = true;
	UNIT_EQ_U64(most(PBOX_PUSHPULL, false), 1);
	x.w.planned = false;
	x.w.nodes = 2;
	UNIT_EQ_U64(most(PBOX_PUSHPULL, false), 1);
	x.w.nodes = 1;
	x.t.block = PBOX_FMT_INT8;
	UNIT_EQ_U64(most(PBOX_PUSHPULL, false), 1);
	x.t.block = 0;
	x.t.discipline = &worker_clock;
	UNIT_EQ_U64(most(PBOX_PUSHPULL, false), 1);
	x.t.discipline = &worker_rounds;
	x.frag[0].pieces = 2;
	UNIT_EQ_U64(most(PBOX_PUSHPULL, false), 1);
	end();
}

/* Each fragment has its place in the window (R6.9). */
static void
test_room(void)
{
	begin();
	x.ep.in_flight = x.ep.waiting = WINDOW - 5;
	UNIT_EQ_U64(most(PBOX_PUSHPULL, false), 5);
	UNIT_EQ_U64(most(PBOX_PUSHPULL, true), 4); /* never the last one */
	x.ep.win.size = 3;
	UNIT_EQ_U64(most(PBOX_PUSHPULL, false), 3);
	x.ep.waiting--;
	UNIT_EQ_U64(most(PBOX_PUSHPULL, false), 2);
	x.ep.win.size = WINDOW;
	x.ep.in_flight = x.ep.waiting = 0;
	x.ep.overtaking = WINDOW / 2 - 7;
	UNIT_EQ_U64(most(PBOX_PUSHPULL, true), 7);
	UNIT_EQ_U64(most(PBOX_PUSHPULL, false), WINDOW);
	/* a time-out depends on how many are out, shortly after a loss */
	x.ep.lost_ns = x.lane->now;
	UNIT_EQ_U64(most(PBOX_PUSHPULL, false), 1);
	x.ep.in_flight = PBOX_RECOVERY_FEW - 1;
	UNIT_EQ_U64(most(PBOX_PUSHPULL, false), WINDOW - PBOX_RECOVERY_FEW + 1);
	end();
}

static void
test_next(void)
{
	begin();
	CU_ASSERT(run_is_next(&x.t, &x.frag[0]));
#define NOT_NEXT(field, value)                             \
	do {                                               \
		CU_ASSERT(run_is_next(&x.t, &x.frag[0]));  \
		x.field = (value);                         \
		CU_ASSERT(!run_is_next(&x.t, &x.frag[0])); \
		end();                                     \
		begin();                                   \
	} while (0)
	NOT_NEXT(frag[1].chunk, 1);
	NOT_NEXT(frag[1].pieces, 2);
	NOT_NEXT(frag[1].order, 1);
	NOT_NEXT(frag[1].round, 5);
	NOT_NEXT(frag[1].pushed, false);
	NOT_NEXT(frag[1].lost, true);
	NOT_NEXT(frag[1].moving, true);
	NOT_NEXT(frag[1].owes, true);
	NOT_NEXT(frag[1].carried, true);
	NOT_NEXT(piece[1].entry, &x.other);
	NOT_NEXT(piece[1].offset, 2 * ELEMENTS); /* of the tensor, and not the next elements */
	end();
}

/** A run of @p n, between two other flights. */
static struct flight *
run(unsigned n, struct flight **before, struct flight **after)
{
	struct flight *fl[3];

	for (unsigned i = 0; i < 3; i++) {
		struct frag *f = &x.frag[i == 0 ? 0 : i == 1 ? 1 : 1 + n];

		fl[i] = x.ep.free;
		x.ep.free = fl[i]->next;
		*fl[i] = (struct flight){.frag = f,
			.state = FLIGHT_SENT,
			.type = PBOX_PUSHPULL,
			.overtakes = i == 1,
			.left = i == 1 ? (UINT64_C(1) << n) - 1 : 1,
			.seq = i == 0   ? 1
			       : i == 1 ? 2
					: 2 + n,
			.order = i == 0   ? 1
				 : i == 1 ? 2
					  : 2 + n};
		for (unsigned k = 0; k < (i == 1 ? n : 1); k++) {
			f[k].state = FRAG_FLIGHT;
			f[k].flight = (uint16_t)(fl[i] - x.flight);
		}
		timer_append(&x.ep, fl[i], x.lane->now);
	}
	x.ep.in_flight = n + 2;
	x.ep.overtaking = n;
	*before = fl[0];
	*after = fl[2];
	return fl[1];
}

/** The list is @p before, the fragments of the bits, @p after; each has what its own flight would have. */
static void
is_cut(const struct flight *before, unsigned bits, const struct flight *after, uint64_t due)
{
	const struct flight *fl = before;

	CU_ASSERT(x.ep.first == before && before->prev == NULL);
	for (unsigned i = 0; i < FRAGMENTS; i++) {
		if ((bits >> i & 1) == 0)
			continue;
		CU_ASSERT_FATAL(fl->next != NULL);
		CU_ASSERT(fl->next->prev == fl);
		fl = fl->next;
		CU_ASSERT(fl->frag == &x.frag[1 + i] && fl == &x.flight[x.frag[1 + i].flight]);
		UNIT_EQ_U64(fl->left, 1);
		UNIT_EQ_U64(fl->seq, 2 + i);
		UNIT_EQ_U64(fl->order, 2 + i);
		UNIT_EQ_U64(fl->due_ns, due);
		UNIT_EQ_U64(fl->gap, MIN_THRESH + 2);
		CU_ASSERT(fl->overtakes && fl->state == FLIGHT_SENT);
		CU_ASSERT(x.frag[1 + i].state == FRAG_FLIGHT);
	}
	CU_ASSERT(fl->next == after && after->prev == fl && after->next == NULL);
	CU_ASSERT(x.ep.last == after);
}

/* Whatever answers have come, and in whatever order: those that have none get their flights. */
static void
test_cut(void)
{
	enum { N = 5 };

	for (unsigned done = 0; done < (1u << N) - 1; done++)
		for (unsigned backwards = 0; backwards < 2; backwards++) {
			struct flight *before, *after, *fl, *last;
			unsigned left = N, free = 0;
			uint64_t due;

			begin();
			x.ep.thresh = MIN_THRESH + 2;
			fl = run(N, &before, &after);
			due = fl->due_ns;
			CU_ASSERT(due > x.lane->now);
			x.lane->now += NS_PER_MS;
			for (unsigned k = 0; k < N && left > 1; k++) {
				unsigned i = backwards ? N - 1 - k : k;

				if ((done >> i & 1) == 0)
					continue;
				run_land(&x.ep, fl, &x.frag[1 + i]);
				CU_ASSERT(x.frag[1 + i].state == FRAG_IDLE);
				left--;
				UNIT_EQ_U64(x.ep.in_flight, left + 2);
				UNIT_EQ_U64(x.ep.overtaking, left);
				UNIT_EQ_U64((unsigned)__builtin_popcountll(fl->left), left);
				CU_ASSERT((fl->left & 1) != 0 && fl->frag->state == FRAG_FLIGHT);
				UNIT_EQ_U64(fl->order, 2 + run_place(fl, fl->frag) +
							       (unsigned)(fl->frag - &x.frag[1]));
			}
			last = run_cut(&x.ep, fl);
			CU_ASSERT(last->next == after);
			is_cut(before, ~done & ((1u << N) - 1), after, due);
			for (const struct flight *one = x.ep.free; one != NULL; one = one->next)
				free++;
			UNIT_EQ_U64(free, WINDOW - 2 - left);
			end();
		}
}

static void
test_cut_all(void)
{
	struct flight *before, *after;

	begin();
	x.ep.thresh = MIN_THRESH + 2;
	run(5, &before, &after);
	run_cut_all(&x.s);
	is_cut(before, 31, after, before->due_ns);
	end();
}

const struct unit_test unit_tests[] = {
	{"which fragments may be in a run", test_which},
	{"each has its place in the window", test_room},
	{"what follows in the queue and is not in the run", test_next},
	{"a run that is cut after any answers", test_cut},
	{"all runs of a session", test_cut_all},
	{0},
};
