/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>
#include <string.h>

#include "fixture.h"

/* Leases count only time in which the box listened, and had read what came (R8.2). */

const char unit_suite[] = "engine: leases";

#define MS UINT64_C(1000000)
#define S  (1000 * MS)

static struct fx_worker w[64], late;

/* The box, or its control thread, or one of its data cores, was away so long. */
static void
pause_box(uint64_t ns)
{
	fx_listen();
	fx.now += ns;
	fx.heard = fx.now;
	/* what had come was not read before */
	pbox_registrar_tick(fx.registrar, fx.now);
	pbox_registrar_heard(fx.registrar, fx.now);
}

static void
all_join(const char *job, unsigned n)
{
	fx_begin();
	for (unsigned i = 0; i < n; i++)
		fx_join(&w[i], job, (uint16_t)i, (uint16_t)n);
	fx_tick();
}

static void
test_a_pause_ends_no_lease(void)
{
	static const uint64_t pauses[] = {1 * S, 10 * S, 60 * S, 3600 * S};

	all_join("vision", 2);
	for (unsigned i = 0; i < 4; i++) {
		pause_box(pauses[i]);
		fx_tick();
		UNIT_EQ_U64(fx.rs[PBOX_RS_EXPIRED], 0);
		UNIT_EQ_U64(pbox_registrar_jobs(fx.registrar), 1);
	}
	/* and then it goes on: 10 s, less what was counted of the pauses */
	fx.now += 9 * S;
	fx_tick();
	UNIT_EQ_U64(fx.rs[PBOX_RS_EXPIRED], 0);
	fx.now += 1 * S;
	fx_tick();
	UNIT_EQ_U64(fx.rs[PBOX_RS_EXPIRED], 2);
	UNIT_EQ_U64(pbox_registrar_jobs(fx.registrar), 0);
	fx_end();
}

/* All have sent a PING while the control thread was away; it reads 32 of them, and then ticks. */
static void
test_who_is_behind_in_the_ring(void)
{
	fx.lease_ms = 1000;
	all_join("vision", 64);
	fx.now += 6 * S;
	for (unsigned i = 0; i < 64; i++) {
		fx.heard = fx.now; /* fx_control() shall not say so */
		if (i % 32 == 0)
			pbox_registrar_tick(fx.registrar, fx.now);
		CU_ASSERT_EQUAL(fx_control(&w[i], PBOX_PING, NULL, 0)->hdr.type, PBOX_PONG);
	}
	pbox_registrar_heard(fx.registrar, fx.now);
	fx_tick();
	UNIT_EQ_U64(fx.rs[PBOX_RS_EXPIRED], 0);
	UNIT_EQ_U64(fx.rs[PBOX_RS_WORKERS], 64);
	fx_end();
}

/* While one data core is away, nobody says that all was heard; the control thread goes on. */
static void
test_a_core_is_away(void)
{
	const struct fx_table t = {.elements = 4};

	fx.lease_ms = 1000;
	fx_begin();
	fx_job(w, "six", 2, &t); /* shrink */
	fx_tick();
	for (unsigned i = 0; i < 200; i++) {
		fx.now += 50 * MS;
		fx.heard = fx.now;
		CU_ASSERT_EQUAL(fx_control(&w[1], PBOX_PING, NULL, 0)->hdr.type, PBOX_PONG);
		pbox_registrar_tick(fx.registrar, fx.now);
	}
	UNIT_EQ_U64(fx.rs[PBOX_RS_EXPIRED], 0);
	/* it comes back, and has heard nothing of worker 0 either */
	pbox_registrar_heard(fx.registrar, fx.now);
	for (unsigned i = 0; i < 30; i++) {
		UNIT_EQ_U64(fx.rs[PBOX_RS_REMOVED], i * 50 > 900);
		fx.now += 50 * MS;
		CU_ASSERT_EQUAL(fx_control(&w[1], PBOX_PING, NULL, 0)->hdr.type, PBOX_PONG);
		fx_tick();
	}
	UNIT_EQ_U64(fx.rs[PBOX_RS_REMOVED], 1);
	UNIT_EQ_U64(pbox_registrar_jobs(fx.registrar), 1);
	fx_end();
}

/* The half second of a claim, too: its PINGs may have been answered while the box was away. */
static void
test_a_claim(void)
{
	struct pbox_join m;

	all_join("vision", 2);
	late = (struct fx_worker){.job = "vision",
		.workers = 2,
		.ip = 0x0A000300u,
		.udp = 6000,
		.mtu = 1500,
		.nonce = 7777};
	fx_hello(&late);
	m = fx_join_message(&late);
	fx_join_with(&late, &m, "key");
	UNIT_EQ_U64(fx_error(), PBOX_E_WORKER_TAKEN);
	for (unsigned i = 0; i < 10; i++) { /* three PINGs */
		fx.now += 20 * MS;
		fx_tick();
	}
	UNIT_EQ_U64(fx.rs[PBOX_RS_PINGS], 3);
	fx.now += 3 * S;
	fx.heard = fx.now;
	fx_join_with(&late, &m, "key"); /* came before the answer of worker 0 */
	UNIT_EQ_U64(fx_error(), PBOX_E_WORKER_TAKEN);
	UNIT_EQ_U64(fx.rs[PBOX_RS_TAKEN_OVER], 0);
	CU_ASSERT_EQUAL(fx_control(&w[0], PBOX_PING, NULL, 0)->hdr.type, PBOX_PONG);
	fx_end();
}

/* Nor does it go on while the box waits, after a restart, for those that have not come back: their JOINs may be in
 * its queue (R8.5, R4.6b). */
static void
test_coming_back(void)
{
	const struct fx_table t = {.elements = 4, .flags = PBOX_DECLARE_RESTORE};
	struct pbox_join m;

	fx.lease_ms = 1000;
	fx_begin();
	fx_join(&w[0], "six", 0, 2); /* shrink */
	CU_ASSERT_EQUAL(fx_declare(&w[0], 0, &t)->hdr.type, PBOX_DECLARED);
	fx_tick();
	pause_box(60 * S);
	UNIT_EQ_U64(fx.rs[PBOX_RS_REMOVED], 0);
	late = (struct fx_worker){.job = "six",
		.worker = PBOX_NO_WORKER,
		.workers = 2,
		.ip = 0x0A000300u,
		.udp = 6000,
		.mtu = 1500,
		.nonce = 7777};
	fx_hello(&late);
	m = fx_join_message(&late);
	fx_join_with(&late, &m, "key");
	UNIT_EQ_U64(fx_error(), PBOX_E_WORKER_TAKEN);
	CU_ASSERT_PTR_NOT_NULL(strstr(fx_error_text(), "before a restart"));
	fx_join(&w[1], "six", 1, 2);
	fx_tick();
	UNIT_EQ_U64(fx.rs[PBOX_RS_REMOVED], 0);
	fx_end();
}

const struct unit_test unit_tests[] = {
	{"a pause of the box ends no lease", test_a_pause_ends_no_lease},
	{"who comes last in the ring", test_who_is_behind_in_the_ring},
	{"a data core is away", test_a_core_is_away},
	{"a claim during a pause", test_a_claim},
	{"a pause while workers come back", test_coming_back},
	{NULL, NULL},
};
