/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Who was refused lately is there for the operator, until it joins, or a minute is over. */

#include <arpa/inet.h>
#include <string.h>

#include "fixture.h"

const char unit_suite[] = "engine: workers that were refused";

#define MINUTE UINT64_C(60000000000)

static struct fx_worker w[6];
static struct pbox_refused_view v;

static bool
refused(unsigned i)
{
	return pbox_registrar_refused(fx.registrar, i, fx.now, &v);
}

/* A JOIN of worker `number` of `workers`, with that secret, of a job of that name. */
static void
try(struct fx_worker *at, const char *job, uint16_t number, uint16_t workers, const char *secret)
{
	struct pbox_join m;

	*at = (struct fx_worker){.job = job,
		.worker = number,
		.workers = workers,
		.mtu = 1500,
		.ip = 0x0a000001u + number,
		.udp = 4000};
	fx_hello(at);
	m = fx_join_message(at);
	fx_join_with(at, &m, secret);
}

static void
begin(void)
{
	fx_begin();
	fx_join(&w[0], "vision", 0, 3);
	CU_ASSERT_FALSE(refused(0));
}

static void
end(void)
{
	fx_leave(&w[0]);
	fx_end();
}

static void
test_secret(void)
{
	begin();
	try(&w[1], "vision", 1, 3, "other");
	CU_ASSERT_TRUE_FATAL(refused(0));
	CU_ASSERT_STRING_EQUAL(v.job, "vision");
	UNIT_EQ_U64(v.worker, 1);
	UNIT_EQ_U64(v.code, PBOX_E_SECRET);
	UNIT_EQ_U64(v.ip, htonl(w[1].ip));
	CU_ASSERT_TRUE(v.missed);
	CU_ASSERT_STRING_EQUAL(v.text, "the secret of job 'vision' is another one");
	try(&w[1], "vision", 1, 3, "third");
	CU_ASSERT_FALSE(refused(1)); /* it is the same one */
	fx.now += MINUTE / 2;
	CU_ASSERT_TRUE(refused(0));
	UNIT_EQ_U64(v.ago_ns, MINUTE / 2);
	try(&w[1], "vision", 1, 3, "key");
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_WELCOME);
	CU_ASSERT_FALSE(refused(0)); /* what it was refused for is right now */
	w[1].token = 0;
	fx.now += MINUTE;
	fx_listen();
	end();
}

static void
test_minute(void)
{
	begin();
	try(&w[1], "nobody", 1, 3, "key");
	CU_ASSERT_TRUE_FATAL(refused(0));
	UNIT_EQ_U64(v.code, PBOX_E_NO_JOB);
	CU_ASSERT_FALSE(v.missed); /* no such job waits */
	fx.now += MINUTE;
	CU_ASSERT_TRUE(refused(0));
	fx.now++;
	CU_ASSERT_FALSE(refused(0));
	fx_listen();
	end();
}

/* The number of workers, and then who would have been missed is here. */
static void
test_workers(void)
{
	begin();
	try(&w[1], "vision", 1, 4, "key");
	CU_ASSERT_TRUE_FATAL(refused(0));
	UNIT_EQ_U64(v.code, PBOX_E_WORKERS);
	CU_ASSERT_TRUE(v.missed);
	try(&w[2], "vision", 0, 3, "other"); /* its number is another process's, which is here */
	CU_ASSERT_TRUE(refused(1) && v.worker == 0 && !v.missed);
	end();
}

/* Strangers push out no more than a few; the oldest goes first. */
static void
test_many(void)
{
	begin();
	for (uint16_t i = 1; i <= 5; i++) {
		try(&w[i], "nobody", i, 3, "key");
		fx.now += 1000;
	}
	for (unsigned i = 0, seen = 0; i < 5; i++) {
		CU_ASSERT_EQUAL(refused(i), i < 4);
		CU_ASSERT_TRUE(i == 4 || (v.worker > 1 && (seen & 1u << v.worker) == 0));
		seen |= 1u << v.worker;
	}
	end();
}

/* Who asks again by itself was not refused for good. */
static void
test_again(void)
{
	begin();
	try(&w[1], "vision", 0, 3, "key");
	UNIT_EQ_U64(fx_error(), PBOX_E_WORKER_TAKEN);
	CU_ASSERT_FALSE(refused(0));
	end();
}

/* Another model. */
static void
test_declare(void)
{
	const struct fx_table t = {.elements = 100}, other = {.elements = 101};

	begin();
	for (unsigned i = 1; i < 3; i++) {
		w[i] = (struct fx_worker){.ip = 0x0a000001u + i, .udp = 4000};
		fx_join(&w[i], "vision", (uint16_t)i, 3);
	}
	fx_declare(&w[0], 0, &t);
	fx_declare(&w[1], 0, &other);
	CU_ASSERT_TRUE_FATAL(refused(0));
	UNIT_EQ_U64(v.code, PBOX_E_MISMATCH);
	UNIT_EQ_U64(v.worker, 1);
	CU_ASSERT_PTR_NOT_NULL(strstr(v.text, "101"));
	for (unsigned i = 1; i < 3; i++)
		fx_leave(&w[i]);
	CU_ASSERT_TRUE(refused(0) && v.missed);
	end();
}

const struct unit_test unit_tests[] = {
	{"secret, until it joins", test_secret},
	{"no such job, for a minute", test_minute},
	{"number of workers", test_workers},
	{"many", test_many},
	{"a number that is taken", test_again},
	{"another model", test_declare},
	{NULL, NULL},
};
