/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>

#include "unit.h"

#include "peers.h"

/*
 * Workers without tables, and the engine as their box, in virtual time: what a host gets to know of its session, and what
 * a worker answers. Rounds, losses and restarts are the simulator's (test/sim).
 */

const char unit_suite[] = "worker: sessions with the engine";

#define WORKERS 3

/* A PING of the box that somebody has recorded, and sends forever: with and without a nonce to give back. */
static void
test_copies_of_pings(void)
{
	for (uint32_t nonce = 0; nonce < 2; nonce++) {
		struct peer *p = &peer[0];
		const struct session *s;
		uint8_t frame[PBOX_HDR_LEN];
		uint64_t tick, sent, until;

		peers_begin(&(struct peers_conf){.workers = WORKERS});
		tick = world.now;
		while (pbox_worker_state(p->w) != PBOX_WORKER_OPEN)
			peers_step(&tick);
		s = p->w->box[0];
		pbox_frame_encode(frame,
			&(struct pbox_hdr){.type = PBOX_PING,
				.token = s->token,
				.job = s->job_number,
				.worker = p->w->worker,
				.incarnation = s->incarnation,
				.base = nonce},
			0);
		sent = p->w->lane[0]->link.tx_frames;
		until = world.now + SEC;
		for (; world.now < until; world.now += 100 * US) {
			struct pbox_client_rx rx = {.data = frame, .len = sizeof(frame)};

			rx.from = s->box.addr;
			pbox_worker_rx(p->w, &rx, 1, world.now);
		}
		pbox_worker_tick(p->w, world.now, world.now);
		sent = p->w->lane[0]->link.tx_frames - sent;
		CU_ASSERT(sent >= 50);  /* the box gets its answer */
		CU_ASSERT(sent <= 500); /* of 10,000 */
		peers_end();
	}
}

/* Tables of hosts: the workers do not keep them. */
static void
own_tables(bool restores, uint64_t *tick)
{
	static const struct pbox_client_tensor tensor[] = {
		{.elements = 700}, {.elements = 1}, {.elements = 0}, {.elements = 1000}};
	static const struct pbox_client_table table = {.size = sizeof(table),
		.mode = PBOX_MODE_ALLREDUCE,
		.optimiser = PBOX_OPT_NONE,
		.push_format = PBOX_FMT_FP32,
		.pull_format = PBOX_FMT_FP32,
		.n = sizeof(tensor) / sizeof(tensor[0]),
		.tensors = tensor};
	struct pbox_worker_declaration declaration[WORKERS];
	struct pbox_worker_table_info info;
	struct pbox_worker_chunk chunk;

	for (unsigned i = 0; i < WORKERS; i++) {
		declaration[i] = (struct pbox_worker_declaration){
			.what = &table, .own_data = true, .restores = restores};
		pbox_worker_declare(peer[i].w, &declaration[i]);
		peer[i].due = world.now;
	}
	for (unsigned i = 0; i < WORKERS; i++) {
		const struct pbox_worker_declaration *d = &declaration[i];

		while (d->state == PBOX_WORKER_DECLARING)
			peers_step(tick);
		CU_ASSERT_FATAL(d->state == PBOX_WORKER_DECLARED);
		UNIT_EQ_U64(peer[i].w->tables, 0);
		UNIT_EQ_U64(d->table->flags, restores ? PBOX_DECLARE_RESTORE : 0);
		pbox_worker_table_info(d->table, &info);
		CU_ASSERT_FATAL(info.chunks > 0);
		for (uint32_t k = 0; k < info.chunks; k++) {
			pbox_worker_chunk(d->table, k, &chunk);
			CU_ASSERT(chunk.tensor < table.n && chunk.endpoint < SHARDS);
		}
		pbox_worker_table_free(d->table);
	}
}

/* A host with a data path of its own: what it is granted, and that the box has forgotten it, with its table. */
static void
test_session_of_host(void)
{
	struct pbox_worker_session first, then;
	uint64_t tick = WORLD_BEGIN;

	peers_begin(&(struct peers_conf){.workers = WORKERS, .tags = true, .path_known = true});
	CU_ASSERT_FALSE(pbox_worker_session(peer[0].w, &first));
	while (!pbox_worker_session(peer[0].w, &first))
		peers_step(&tick);
	UNIT_EQ_U64(peer[0].w->box[0]->path.began, 0); /* nothing was asked of the path */
	UNIT_EQ_U64(first.times, 1);
	UNIT_EQ_U64(first.endpoints, SHARDS);
	UNIT_EQ_U64(first.incarnation, world.incarnation);
	UNIT_EQ_U64(first.mtu, 1500 - PBOX_TAG_LEN);
	CU_ASSERT(first.window > 0 && first.token != 0 && first.keys != NULL);
	UNIT_EQ_U64(ntohs(pbox_worker_endpoint(peer[0].w, 1)->sin_port), 7271);
	peers_await_sessions(1, &tick);
	own_tables(false, &tick);
	world_box_crash();
	world_box_start();
	while (pbox_worker_session(peer[0].w, &then) && then.times == 1)
		peers_step(&tick);
	CU_ASSERT_FALSE(pbox_worker_session(peer[0].w, &then)); /* the old one is none */
	while (!pbox_worker_session(peer[0].w, &then))
		peers_step(&tick);
	UNIT_EQ_U64(then.times, 2);
	UNIT_EQ_U64(then.incarnation, world.incarnation);
	CU_ASSERT(then.token != first.token);
	peers_await_sessions(2, &tick);
	own_tables(true, &tick);
	peers_end();
}

const struct unit_test unit_tests[] = {
	{"copies of PINGs", test_copies_of_pings},
	{"the session of a host with a data path", test_session_of_host},
	{NULL, NULL},
};
