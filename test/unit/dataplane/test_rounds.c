/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <string.h>

#include "../../../lib/dataplane/core.h"
#include <pbox_job.h>
#include <pbox_why.h>

#include "rig.h"

const char unit_suite[] = "dataplane: jobs and rounds";

#define ELEMENTS 5000
#define ROUNDS   5

static struct rig rig;
static struct worker w[RIG_WORKERS];

/* Two workers join, declare, map, and sum ROUNDS times. */
static void
all_reduce(const struct rig_options *o)
{
	rig_start(&rig, o);
	for (unsigned i = 0; i < 2; i++) {
		CU_ASSERT_FATAL(worker_join(&rig, &w[i], i, 2));
		UNIT_EQ_U64(w[i].endpoints, o->cores * (o->ports == 2 ? 2 : 1));
	}
	for (unsigned i = 0; i < 2; i++)
		CU_ASSERT_FATAL(worker_declare(&w[i], ELEMENTS));
	for (unsigned i = 0; i < 2; i++)
		CU_ASSERT_FATAL(worker_map(&w[i]));
	for (uint32_t round = 1; round <= ROUNDS; round++) {
		for (unsigned i = 0; i < 2; i++) {
			worker_push(&w[i], o->queues == 2 ? i % 2 : 0, round);
			if (o->ports == 2) /* the other's last frame was at another port */
				rig_pump(&rig);
		}
		for (unsigned i = 0; i < 2; i++)
			UNIT_EQ_U64(worker_results(&w[i], round, 2), ELEMENTS);
	}
	CU_ASSERT(worker_leave(&w[0]));
	CU_ASSERT(worker_leave(&w[1]));
	rig_pump(&rig);
	UNIT_EQ_U64(rig_shard(&rig, PBOX_SS_HELD), 0);
	UNIT_EQ_U64(rig_core(&rig, PBOX_CS_TX_NO_MBUF), 0);
	UNIT_EQ_U64(rig_core(&rig, PBOX_CS_TX_DROPPED), 0);
}

static void
one_core(void)
{
	all_reduce(&(struct rig_options){.queues = 1, .cores = 1});
	/* nothing copied, everything sent from parameter memory */
	UNIT_EQ_U64(rig_core(&rig, PBOX_CS_TX_COPIED_BYTES), 0);
	UNIT_EQ_U64(rig_core(&rig, PBOX_CS_TX_SHARED_BYTES), 2 * ROUNDS * 4 * ELEMENTS);
	UNIT_EQ_U64(rig_core(&rig, PBOX_CS_HANDOFF_OUT), 0);
	/* headers, a payload, and its rest in another page */
	UNIT_EQ_U64(rig.pieces, 3);
	rig_stop(&rig);
}

static void
copying_port(void)
{
	all_reduce(&(struct rig_options){.queues = 1, .cores = 1, .copy = true});
	UNIT_EQ_U64(rig_core(&rig, PBOX_CS_TX_COPIED_BYTES), 2 * ROUNDS * 4 * ELEMENTS);
	UNIT_EQ_U64(rig_core(&rig, PBOX_CS_TX_SHARED_BYTES), 0);
	rig_stop(&rig);
}

/* One queue, two cores: the second gets and sends through the first. */
static void
core_without_queue(void)
{
	all_reduce(&(struct rig_options){.queues = 1, .cores = 2});
	CU_ASSERT(rig_core(&rig, PBOX_CS_HANDOFF_OUT) > 0);
	CU_ASSERT(rig_core(&rig, PBOX_CS_TX_HANDOFF) > 0);
	UNIT_EQ_U64(pbox_stat_get(&pbox_dp_core_stats(rig.dp, 1)[PBOX_CS_RX_PACKETS]), 0);
	CU_ASSERT(pbox_stat_get(&pbox_dp_shard_stats(rig.dp, 1)[PBOX_SS_ROUNDS]) > 0);
	rig_stop(&rig);
}

/* A queue each, but packets come as they like: the right core gets them by ring. */
static void
wrong_queue(void)
{
	all_reduce(&(struct rig_options){.queues = 2, .cores = 2});
	CU_ASSERT(rig_core(&rig, PBOX_CS_HANDOFF_OUT) > 0);
	UNIT_EQ_U64(rig_core(&rig, PBOX_CS_TX_HANDOFF), 0);
	rig_stop(&rig);
}

static void
on_lcores(void)
{
	all_reduce(&(struct rig_options){.queues = 1, .cores = 2, .lcores = true});
	rig_stop(&rig);
	all_reduce(&(struct rig_options){.queues = 2, .cores = 2, .lcores = true});
	rig_stop(&rig);
}

/* Two ports, which both cores serve: an answer leaves through the port of its chunk. */
static void
two_ports(void)
{
	all_reduce(&(struct rig_options){.ports = 2, .cores = 2});
	rig_stop(&rig);
	all_reduce(&(struct rig_options){.ports = 2, .cores = 1});
	rig_stop(&rig);
}

/* Both workers' answers are the same bytes in memory, on a cache line. */
static void
payload_shared(void)
{
	const struct rig_datagram *a, *b;
	const uint8_t *base;

	rig_start(&rig, &(struct rig_options){.queues = 1, .cores = 1});
	for (unsigned i = 0; i < 2; i++)
		CU_ASSERT_FATAL(worker_join(&rig, &w[i], i, 2));
	for (unsigned i = 0; i < 2; i++)
		CU_ASSERT_FATAL(worker_declare(&w[i], 300));
	for (unsigned i = 0; i < 2; i++)
		CU_ASSERT_FATAL(worker_map(&w[i]));
	for (unsigned i = 0; i < 2; i++)
		worker_push(&w[i], 0, 1);
	a = worker_next(&w[0]);
	b = worker_next(&w[1]);
	CU_ASSERT_FATAL(a != NULL && b != NULL);
	CU_ASSERT_PTR_EQUAL(a->payload_at, b->payload_at);
	UNIT_EQ_U64((uintptr_t)a->payload_at % 64, 0);
	base = rig.memory;
	CU_ASSERT((const uint8_t *)a->payload_at >= base &&
		  (const uint8_t *)a->payload_at < base + rig.memory_size);
	rig_stop(&rig);
}

static unsigned
served(const struct rig_datagram *d)
{
	struct pbox_hdr h = {0};
	size_t size;

	CU_ASSERT_FATAL(d != NULL);
	UNIT_EQ_U64(pbox_frame_decode(d->bytes, d->len, true, &h, &size), PBOX_WIRE_OK);
	UNIT_EQ_U64(h.type, PBOX_RESULT);
	return h.served;
}

/* Answers with one payload that leave in different turns: each has the time of its own. */
static void
served_is_of_this_turn(void)
{
	struct rig_datagram first;
	uint64_t us_mult;

	rig_start(&rig, &(struct rig_options){.queues = 1, .cores = 1});
	CU_ASSERT_FATAL(worker_join(&rig, &w[0], 0, 1));
	CU_ASSERT_FATAL(worker_declare(&w[0], 300));
	CU_ASSERT_FATAL(worker_map(&w[0]));
	worker_push(&w[0], 0, 1);
	CU_ASSERT_PTR_NOT_NULL(worker_next(&w[0]));
	us_mult = rig.dp->us_mult;
	rig.dp->us_mult = UINT64_C(1) << 60; /* a slow turn: served saturates */
	worker_pull(&w[0], 0);
	first = *worker_next(&w[0]);
	rig.dp->us_mult = 0; /* and one that takes no time */
	worker_pull(&w[0], 0);
	UNIT_EQ_U64(served(&first), UINT16_MAX);
	UNIT_EQ_U64(served(worker_next(&w[0])), 0);
	rig.dp->us_mult = us_mult;
	rig_stop(&rig);
}

/* A worker that repeats everything: counted once, answered again. */
static void
duplicates(void)
{
	rig_start(&rig, &(struct rig_options){.queues = 1, .cores = 1});
	for (unsigned i = 0; i < 2; i++)
		CU_ASSERT_FATAL(worker_join(&rig, &w[i], i, 2));
	for (unsigned i = 0; i < 2; i++)
		CU_ASSERT_FATAL(worker_declare(&w[i], 1000));
	for (unsigned i = 0; i < 2; i++)
		CU_ASSERT_FATAL(worker_map(&w[i]));
	worker_push(&w[0], 0, 1);
	worker_push(&w[0], 0, 1);
	rig_pump(&rig);
	CU_ASSERT(rig_shard(&rig, PBOX_SS_HELD) > 0);
	worker_push(&w[1], 0, 1);
	UNIT_EQ_U64(worker_results(&w[0], 1, 2), 1000);
	UNIT_EQ_U64(worker_results(&w[1], 1, 2), 1000);
	worker_push(&w[1], 0, 1);
	UNIT_EQ_U64(worker_results(&w[1], 1, 2), 1000);
	CU_ASSERT(rig_shard(&rig, PBOX_SS_RX_DUP_PENDING) > 0);
	CU_ASSERT(rig_shard(&rig, PBOX_SS_RX_DUP_DONE) > 0);
	rig_stop(&rig);
}

/* Packets are held when the box stops in the middle of a round: they come back. */
static void
stop_in_a_round(void)
{
	rig_start(&rig, &(struct rig_options){.queues = 1, .cores = 2});
	for (unsigned i = 0; i < 2; i++)
		CU_ASSERT_FATAL(worker_join(&rig, &w[i], i, 2));
	for (unsigned i = 0; i < 2; i++)
		CU_ASSERT_FATAL(worker_declare(&w[i], ELEMENTS));
	for (unsigned i = 0; i < 2; i++)
		CU_ASSERT_FATAL(worker_map(&w[i]));
	worker_push(&w[1], 0, 1);
	rig_pump(&rig);
	CU_ASSERT(rig_shard(&rig, PBOX_SS_HELD) > 0);
	/* some still on the way between the cores */
	worker_push(&w[1], 0, 1);
	pbox_dp_turn(pbox_dp_core(rig.dp, 0));
	rig_stop(&rig);
}

/* The way out holds one worker's answers, not two's: what does not fit is dropped and counted, none
 * is lost; the workers ask again. */
static void
tx_full(void)
{
	rig_start(&rig, &(struct rig_options){.queues = 1, .cores = 1, .out_size = 16});
	for (unsigned i = 0; i < 2; i++)
		CU_ASSERT_FATAL(worker_join(&rig, &w[i], i, 2));
	for (unsigned i = 0; i < 2; i++)
		CU_ASSERT_FATAL(worker_declare(&w[i], ELEMENTS));
	for (unsigned i = 0; i < 2; i++)
		CU_ASSERT_FATAL(worker_map(&w[i]));
	for (unsigned i = 0; i < 2; i++)
		worker_push(&w[i], 0, 1);
	rig_pump(&rig);
	UNIT_EQ_U64(rig_core(&rig, PBOX_CS_TX_DROPPED), 30 - 16);
	for (unsigned i = 0; i < 2; i++) {
		rig.got[i] = rig.n_inbox[i];
		worker_push(&w[i], 0, 1);
		UNIT_EQ_U64(worker_results(&w[i], 1, 2), ELEMENTS);
	}
	rig_stop(&rig);
}

/* All mails that jobs may have under way have room, those to the core as well as its answers. */
static void
mail_full(void)
{
	static struct pbox_why_page page;
	struct pbox_job job = {.id = 0};
	/* what a shard knows of a job, as far as it looks when it has no rounds */
	struct {
		struct pbox_job *job;
		uint64_t rest[128];
	} of = {.job = &job};
	struct pbox_mail m = {.job = (struct pbox_shard_job *)(void *)&of, .why = &page};
	unsigned n = 0;

	rig_start(&rig, &(struct rig_options){.queues = 1, .cores = 1});
	for (unsigned i = 0; i < PBOX_DP_MAILS; i++) {
		m.kind = i == 0                  ? PBOX_MAIL_OPEN_JOB
			 : i < PBOX_DP_MAILS - 1 ? PBOX_MAIL_WHY
						 : PBOX_MAIL_CLOSE_JOB;
		atomic_store(&rig.dp->core[0]->waker.state, WAKER_ASLEEP);
		atomic_store(&rig.dp->control.state, WAKER_ASLEEP);
		pbox_dp_post(rig.dp, &m);
		UNIT_EQ_U64(atomic_load(&rig.dp->core[0]->waker.state), WAKER_CALLED);
	}
	for (unsigned i = 0; i < PBOX_DP_MAILS; i++)
		pbox_dp_turn(pbox_dp_core(rig.dp, 0));
	UNIT_EQ_U64(atomic_load(&rig.dp->control.state), WAKER_CALLED); /* answers */
	while (pbox_dp_mail(rig.dp, &m))
		n++;
	UNIT_EQ_U64(n, PBOX_DP_MAILS);
	pbox_dp_post(rig.dp, &m); /* there is room again; nobody takes it */
	rig_stop(&rig);
}

static int
state_of(unsigned core)
{
	return atomic_load(&rig.dp->core[core]->waker.state);
}

static void
all_asleep(void)
{
	atomic_store(&rig.dp->control.state, WAKER_ASLEEP);
	for (unsigned i = 0; i < rig.o.cores; i++)
		atomic_store(&rig.dp->core[i]->waker.state, WAKER_ASLEEP);
}

/* Whatever is put down for a thread that may sleep calls it. Core 1 has no queue: all that it gets, and sends, goes
 * through core 0. */
static void
who_is_called(void)
{
	rig_start(&rig, &(struct rig_options){.queues = 1, .cores = 2});
	all_asleep();
	CU_ASSERT_FATAL(worker_join(&rig, &w[0], 0, 1)); /* frames of control, and answers */
	UNIT_EQ_U64(atomic_load(&rig.dp->control.state), WAKER_CALLED);
	UNIT_EQ_U64(state_of(0), WAKER_CALLED);
	CU_ASSERT_FATAL(worker_declare(&w[0], 3000));
	CU_ASSERT_FATAL(worker_map(&w[0]));
	rig_pump(&rig);
	all_asleep();
	worker_push(&w[0], 0, 1); /* to both cores */
	pbox_dp_turn(pbox_dp_core(rig.dp, 0));
	UNIT_EQ_U64(state_of(1), WAKER_CALLED);
	UNIT_EQ_U64(state_of(0), WAKER_ASLEEP);
	pbox_dp_turn(pbox_dp_core(rig.dp, 1));
	UNIT_EQ_U64(state_of(0), WAKER_CALLED); /* its answers */
	all_asleep();
	pbox_dp_announce(rig.dp, 0);
	UNIT_EQ_U64(state_of(0), WAKER_CALLED);
	UNIT_EQ_U64(state_of(1), WAKER_ASLEEP);
	rig_pump(&rig);
	all_asleep();
	pbox_control_stop(rig.control);
	UNIT_EQ_U64(atomic_load(&rig.dp->control.state), WAKER_CALLED);
	/* a datagram; but it is not woken to hear of a keep-alive that has its answer */
	all_asleep();
	CU_ASSERT_TRUE(
		core_to_control(rig.dp->core[0], PBOX_GATE_ANSWERED, rte_pktmbuf_alloc(rig.pool)));
	UNIT_EQ_U64(atomic_load(&rig.dp->control.state), WAKER_ASLEEP);
	CU_ASSERT_TRUE(
		core_to_control(rig.dp->core[0], PBOX_GATE_STRANGER, rte_pktmbuf_alloc(rig.pool)));
	UNIT_EQ_U64(atomic_load(&rig.dp->control.state), WAKER_CALLED);
	all_asleep();
	pbox_dp_stop(rig.dp);
	UNIT_EQ_U64(state_of(0), WAKER_CALLED);
	UNIT_EQ_U64(state_of(1), WAKER_CALLED);
	rig_stop(&rig);
}

const struct unit_test unit_tests[] = {
	{"who is called", who_is_called},
	{"one core", one_core},
	{"a port that copies", copying_port},
	{"a core without a queue", core_without_queue},
	{"packets at the wrong queue", wrong_queue},
	{"two ports", two_ports},
	{"cores on lcores", on_lcores},
	{"payload shared", payload_shared},
	{"served: of this turn", served_is_of_this_turn},
	{"duplicates", duplicates},
	{"stop in a round", stop_in_a_round},
	{"the way out is full", tx_full},
	{"mail boxes are full", mail_full},
	{NULL, NULL},
};
