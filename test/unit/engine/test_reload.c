/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <string.h>

#include "fixture.h"

/* Another configuration while jobs run. */

const char unit_suite[] = "engine: another configuration";

#define LEASE 7000

static struct fx_worker w[2], late;
static const struct fx_table sum = {.elements = 64};

/* One section for the name, or none. */
static void
reload(const char *name, struct pbox_job_conf conf)
{
	static struct pbox_job_conf now;
	static char secret[16];

	now = conf;
	now.name = name;
	snprintf(secret, sizeof(secret), "%s", conf.secret != NULL ? conf.secret : "key");
	now.secret = secret;
	now.secret_len = strlen(secret);
	pbox_registrar_reload(fx.registrar, &now, name != NULL, LEASE, 0, fx.now);
}

static struct fx_sent *
join_with(struct fx_worker *x, const char *job, uint16_t worker, const char *secret)
{
	struct pbox_join m;

	*x = (struct fx_worker){.job = job,
		.worker = worker,
		.workers = 2,
		.mtu = 1500,
		.ip = 0x0a000020u + worker,
		.udp = 4100,
		.nonce = 0x1000u + ++fx.joins};
	fx_hello(x);
	m = fx_join_message(x);
	return fx_join_with(x, &m, secret);
}

static void
test_sections_come_and_go(void)
{
	fx_begin();
	fx_join(&w[0], "vision", 0, 2);
	reload("robot", (struct pbox_job_conf){0});
	CU_ASSERT_STRING_EQUAL(fx.event,
		"job 'vision' has no section any more: it runs on, and does not begin again");
	/* it runs on: its other worker still comes */
	fx_join(&w[1], "vision", 1, 2);
	fx_declare(&w[0], 0, &sum);
	fx_declare(&w[1], 0, &sum);
	CU_ASSERT_EQUAL(fx_map(&w[0], 0, 0)->hdr.type, PBOX_MAPPED);
	fx_join(&late, "robot", 0, 2);
	fx_leave(&w[0]);
	fx_leave(&w[1]);
	join_with(&w[0], "vision", 0, "key");
	UNIT_EQ_U64(fx_error(), PBOX_E_NO_JOB);
	fx_leave(&late);
	fx_end();
}

/* Workers of one job have one secret; the next job of that name has the new one. */
static void
test_secrets_are_of_the_next_job(void)
{
	fx_begin();
	fx_join(&w[0], "vision", 0, 2);
	reload("vision", (struct pbox_job_conf){.secret = "another"});
	join_with(&w[1], "vision", 1, "another");
	UNIT_EQ_U64(fx_error(), PBOX_E_SECRET);
	fx_join(&w[1], "vision", 1, 2);
	fx_leave(&w[0]);
	fx_leave(&w[1]);
	join_with(&w[0], "vision", 0, "key");
	UNIT_EQ_U64(fx_error(), PBOX_E_SECRET);
	CU_ASSERT_EQUAL(join_with(&w[0], "vision", 0, "another")->hdr.type, PBOX_WELCOME);
	fx_end();
}

/* What a job began with stays, also where the new section asks for more. */
static void
test_a_running_job_keeps_its_kind(void)
{
	fx_begin();
	fx_join(&w[0], "vision", 0, 2);
	reload("vision",
		(struct pbox_job_conf){.workers = 3, .auth = true, .policy = PBOX_POLICY_SHRINK});
	fx_join(&w[1], "vision", 1, 2);
	UNIT_EQ_U64(w[1].welcome.flags, 1u << PBOX_CAN_SLOTS | 1u << PBOX_CAN_CLOCK |
						1u << PBOX_CAN_WORK | 1u << PBOX_CAN_BLOCK |
						1u << PBOX_CAN_NORM);
	fx_leave(&w[0]);
	fx_leave(&w[1]);
	join_with(&w[0], "vision", 0, "key");
	UNIT_EQ_U64(fx_error(), PBOX_E_WORKERS);
	fx_end();
}

static void
test_memory_at_once(void)
{
	struct fx_table t = {.elements = 400000};

	fx.memory = 1 << 20;
	fx_begin();
	fx_join(&w[0], "quota", 0, 1);
	fx_declare(&w[0], 0, &t);
	fx_map(&w[0], 0, 0);
	UNIT_EQ_U64(fx_error(), PBOX_E_NO_MEMORY);
	reload("quota", (struct pbox_job_conf){.bounds.memory = 4 << 20});
	fx_declare(&w[0], 0, &t); /* its number was given back (R5.4) */
	fx_work();
	CU_ASSERT_EQUAL(fx_map(&w[0], 0, 0)->hdr.type, PBOX_MAPPED);
	fx_end();
}

/* Frames of n that are taken. */
static unsigned
pings(unsigned n)
{
	uint64_t before = fx.ss[0][PBOX_SS_DROP_RATE];

	for (unsigned i = 0; i < n; i++) {
		struct pbox_hdr h = fx_data(&w[0], PBOX_PING, 0, 0, 0);

		fx_clear();
		fx_rx(0, &w[0], &h, NULL);
	}
	return n - (unsigned)(fx.ss[0][PBOX_SS_DROP_RATE] - before);
}

static void
test_rates_at_once(void)
{
	fx_begin();
	fx_job(w, "speech", 2, &sum);
	UNIT_EQ_U64(pings(1000), 1000);
	reload("speech", (struct pbox_job_conf){.bounds.rate = 1000});
	UNIT_EQ_U64(pings(100), 64);     /* a window of both */
	fx.now += UINT64_C(20000000000); /* of credit */
	reload("speech", (struct pbox_job_conf){.bounds.repeats = 1000});
	UNIT_EQ_U64(pings(20000), 16384);
	reload("speech", (struct pbox_job_conf){0});
	UNIT_EQ_U64(pings(20000), 20000);
	fx_end();
}

/* What a worker may have under way was granted when it joined: a higher rate widens it for sessions that begin now. */
static void
test_windows_of_a_rate(void)
{
	fx.hold = 4096;
	fx_begin();
	fx_join(&w[0], "slow", 0, 2);
	fx_join(&w[1], "slow", 1, 2);
	UNIT_EQ_U64(w[0].welcome.window, 10); /* 20 ms of 1000 a second, for two */
	reload("slow", (struct pbox_job_conf){.bounds.rate = 4000});
	fx_leave(&w[1]);
	fx_join(&w[1], "slow", 1, 2);
	UNIT_EQ_U64(w[1].welcome.window, 40);
	reload("slow", (struct pbox_job_conf){0});
	fx_leave(&w[1]);
	fx_join(&w[1], "slow", 1, 2);
	UNIT_EQ_U64(w[1].welcome.window, 100); /* all that it can take */
	reload("slow", (struct pbox_job_conf){.bounds.rate = 1});
	fx_leave(&w[1]);
	fx_join(&w[1], "slow", 1, 2);
	UNIT_EQ_U64(w[1].welcome.window, 4); /* the least */
	fx_end();
}

/* The box's default, and a job's own: of sessions that begin now. */
static void
test_leases(void)
{
	fx_begin();
	fx_join(&w[0], "vision", 0, 2);
	CU_ASSERT_NOT_EQUAL(w[0].welcome.lease_ms, LEASE);
	reload("vision", (struct pbox_job_conf){0});
	fx_join(&w[1], "vision", 1, 2);
	UNIT_EQ_U64(w[1].welcome.lease_ms, LEASE);
	fx_leave(&w[1]);
	reload("vision", (struct pbox_job_conf){.bounds.lease_ns = UINT64_C(900000000)});
	fx_join(&w[1], "vision", 1, 2);
	UNIT_EQ_U64(w[1].welcome.lease_ms, 900);
	fx_end();
}

const struct unit_test unit_tests[] = {
	{"sections come and go", test_sections_come_and_go},
	{"a secret is of the next job", test_secrets_are_of_the_next_job},
	{"a running job keeps its kind", test_a_running_job_keeps_its_kind},
	{"memory at once", test_memory_at_once},
	{"rates at once", test_rates_at_once},
	{"windows of a rate", test_windows_of_a_rate},
	{"leases", test_leases},
	{NULL, NULL},
};
