/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <pbox_wire.h>

#include "harness.h"
#include "unit.h"

/* Sessions with tags (section 11 of the protocol). */

const char unit_suite[] = "client: authentication";

/* Fragments in one piece, of many pieces, and short ones. */
static const struct pbox_client_tensor tensors[] = {{"conv", 20000, 0}, {"bias", 64, 0},
	{"none", 0, 0}, {"bn", 3, 0}, {"bn.bias", 5, 0}, {"fc", 9000, 1}, {"fc.bias", 77, 1}};

static struct run
base(unsigned workers, unsigned rounds)
{
	return (struct run){
		.box = {.workers = workers, .auth = true, .endpoints = 2},
		.tensors = tensors,
		.n = sizeof(tensors) / sizeof(tensors[0]),
		.rounds = rounds,
		.push_format = PBOX_FMT_FP32,
		.pull_format = PBOX_FMT_FP32,
	};
}

static void
check_exact(const struct run *r, const struct run_result *o)
{
	if (o->failed > 0)
		printf("\n    %s\n", o->text);
	UNIT_EQ_U64(o->failed, 0);
	UNIT_EQ_U64(o->mismatches, 0);
	CU_ASSERT(o->checked > 0);
	UNIT_EQ_U64(o->stats.auth, r->box.auth);
	UNIT_EQ_U64(o->box.malformed, 0);
	UNIT_EQ_U64(o->stats.mtu, 1500);
}

static struct run_result
expect_exact(const struct run *r)
{
	struct run_result o;

	harness_run(r, &o);
	check_exact(r, &o);
	return o;
}

static void
test_exact(void)
{
	struct run r = base(3, 10);
	struct run_result o = expect_exact(&r);

	UNIT_EQ_U64(o.stats.rx_drop_auth, 0);
	r.per_tensor = true;
	r.push_format = r.pull_format = PBOX_FMT_BF16;
	expect_exact(&r);
	r = base(2, 10);
	r.gso = -1;
	r.push_then_pull = true;
	expect_exact(&r);
	r = base(2, 5);
	r.box.auth = false;
	expect_exact(&r);
}

static void
test_with_loss(void)
{
	struct run r = base(3, 10);

	r.box.loss = r.box.dup = r.box.reorder = 0.05;
	r.box.seed = 7;
	expect_exact(&r);
}

static void
restart_at_3(struct box *b, unsigned round)
{
	if (round == 3)
		box_restart(b);
}

static void
end_sessions_at_3(struct box *b, unsigned round)
{
	if (round == 3)
		box_end_sessions(b);
}

/* Keys change with the incarnation, and with the session. */
static void
test_restarts(void)
{
	struct run r = base(2, 6);

	r.timeout_ms = 120000;
	r.before = restart_at_3;
	UNIT_EQ_U64(expect_exact(&r).stats.restarts, 1);
	r.before = end_sessions_at_3;
	UNIT_EQ_U64(expect_exact(&r).stats.restarts, 1);
}

/* What becomes of the JOINs after round 3. */
struct refusal {
	pthread_t thread;
	unsigned code, joins;
	const char *prover;
	struct run r;
	struct run_result o;
};

static void
refuse_at_3(struct box *b, unsigned round)
{
	const struct refusal *f = box_ctx(b);

	if (round == 3)
		box_refuse(b, f->code, f->joins, f->prover);
	end_sessions_at_3(b, round);
}

static void *
refusal_main(void *arg)
{
	struct refusal *f = arg;

	f->r.box.ctx = f;
	f->r.timeout_ms = 120000;
	f->r.before = refuse_at_3;
	harness_run(&f->r, &f->o);
	return NULL;
}

/** All at the same time: they wait. */
static void
refusals_run(struct refusal *f, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		pthread_create(&f[i].thread, NULL, refusal_main, &f[i]);
	for (unsigned i = 0; i < n; i++)
		pthread_join(f[i].thread, NULL);
}

/* R10.1: somebody without keys answers a JOIN before the box does, more often than R9.3 asks for where nobody can prove
 * anything. */
static void
test_forged_refusals(void)
{
	static const unsigned code[] = {PBOX_E_SECRET, PBOX_E_NO_JOB, PBOX_E_WORKERS,
		PBOX_E_MISMATCH, PBOX_E_BAD_REQUEST, PBOX_E_SECRET};
	struct refusal f[2 * 6];

	for (unsigned i = 0; i < 2 * 6; i++) {
		f[i] = (struct refusal){.code = code[i % 6],
			.joins = 2 * 4, /* of both workers */
			.prover = i % 6 == 5 ? "not the secret" : NULL,
			.r = base(2, 6)};
		f[i].r.box.auth = i >= 6;
	}
	refusals_run(f, 2 * 6);
	for (unsigned i = 0; i < 2 * 6; i++) {
		check_exact(&f[i].r, &f[i].o);
		UNIT_EQ_U64(f[i].o.stats.restarts, 1);
	}
}

/* R9.2: the box itself refuses. Were it not believed, a later JOIN would be welcome. */
static void
test_proven_refusal(void)
{
	struct refusal f[2];

	for (unsigned auth = 0; auth < 2; auth++) {
		f[auth] = (struct refusal){
			.code = PBOX_E_NO_JOB, .joins = 3, .prover = "secret", .r = base(2, 6)};
		f[auth].r.box.auth = auth != 0;
	}
	refusals_run(f, 2);
	for (unsigned auth = 0; auth < 2; auth++) {
		CU_ASSERT(f[auth].o.failed > 0);
		CU_ASSERT(strstr(f[auth].o.text, "go away") != NULL);
	}
}

/* R9.3: of an insecure job nobody can prove anything, also not with the empty secret. */
static void
test_insecure_refusals(void)
{
	struct refusal f[2];

	for (unsigned i = 0; i < 2; i++) {
		f[i] = (struct refusal){.code = PBOX_E_NO_JOB,
			.joins = i == 0 ? 2 : 1000,
			.prover = "",
			.r = base(1, 6)};
		f[i].r.box.auth = false;
		f[i].r.box.insecure = true;
	}
	refusals_run(f, 2);
	check_exact(&f[0].r, &f[0].o);
	UNIT_EQ_U64(f[0].o.stats.restarts, 1);
	CU_ASSERT(f[1].o.failed > 0);
	CU_ASSERT(strstr(f[1].o.text, "go away") != NULL);
}

static void
attack(struct box *b, unsigned round)
{
	(void)round;
	box_attack(b);
	box_forge(b);
}

/* Frames that end a session, or fail an operation, or bring a result, if they are believed. */
static void
test_attacked(void)
{
	struct run r = base(2, 20);
	struct run_result o;

	r.before = attack;
	o = expect_exact(&r);
	UNIT_EQ_U64(o.stats.restarts, 0);
	CU_ASSERT(o.stats.rx_drop_auth >= 20 * 7);
}

static int
open_with(struct box *b, unsigned auth, int keep_copies, struct pbox_client **c,
	struct pbox_client_error *err)
{
	struct pbox_client_conf conf = harness_conf(b, 0, 1);

	conf.auth = auth;
	conf.join_timeout_ms = 120000;
	conf.keep_copies = keep_copies;
	return pbox_client_open(c, &conf, err);
}

static void
test_required(void)
{
	struct box_conf conf = {.workers = 1};
	struct box *b = box_start(&conf);
	struct pbox_client_error err;
	struct pbox_client *c;

	UNIT_EQ_U64(open_with(b, 0, 1, &c, &err), 0);
	pbox_client_close(c);
	UNIT_EQ_U64(open_with(b, 1, 1, &c, &err), PBOX_C_REFUSED);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "requires auth"));
	UNIT_EQ_U64(open_with(b, 2, 1, &c, &err), PBOX_C_INVALID);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "auth is 2"));
	box_stop(b);
	conf.auth = true;
	b = box_start(&conf);
	UNIT_EQ_U64(open_with(b, 1, 1, &c, &err), 0);
	pbox_client_close(c);
	box_stop(b);
}

/* R11.6: without copies an ERROR SESSION is the end, so it had better be true. */
static void
test_doubt(void)
{
	struct box_conf conf = {.workers = 1, .auth = true};
	struct box *b = box_start(&conf);
	struct pbox_client_stats s = {.size = sizeof(s)};
	struct pbox_client_table nothing = {.size = sizeof(nothing),
		.push_format = PBOX_FMT_FP32,
		.pull_format = PBOX_FMT_FP32};
	struct pbox_client_error err;
	struct pbox_client *c;
	uint32_t table;
	char text[512];
	double t;
	int rc = 0;

	UNIT_EQ_U64(open_with(b, 0, 0, &c, &err), 0);
	UNIT_EQ_U64(pbox_client_declare(c, &nothing, 0, &table, &err), 0); /* else it joins again */
	for (unsigned i = 0; i < 15 || (i < 1200 && box_counts(b).pings == 0); i++) {
		box_forge(b);
		usleep(100000);
		CU_ASSERT_EQUAL(pbox_client_status(c, text, sizeof(text), &err), 0);
	}
	CU_ASSERT(box_counts(b).pings > 0);
	box_end_sessions(b);
	t = harness_seconds();
	while (rc != PBOX_C_LOST && harness_seconds() - t < 120)
		rc = pbox_client_status(c, text, sizeof(text), &err);
	UNIT_EQ_U64(rc, PBOX_C_LOST);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "does not know this session"));
	pbox_client_close(c);
	box_stop(b);
}

/* R11.6, while a session begins: the box answers too. And a session that has really ended is noticed. */
static void
test_denied(void)
{
	struct box_conf conf = {.workers = 1, .auth = true, .denier = 6, .endpoints = 2};
	struct box *b = box_start(&conf);
	struct pbox_client_error err;
	struct pbox_client *c;

	CU_ASSERT_EQUAL_FATAL(open_with(b, 1, 1, &c, &err), 0);
	pbox_client_close(c);
	box_stop(b);
	conf.denier = 0;
	conf.short_lived = 2;
	b = box_start(&conf);
	CU_ASSERT_EQUAL_FATAL(open_with(b, 1, 1, &c, &err), 0);
	CU_ASSERT(box_said(b).joins >= 3);
	pbox_client_close(c);
	box_stop(b);
}

const struct unit_test unit_tests[] = {
	{"exact", test_exact},
	{"with loss", test_with_loss},
	{"restarts of the box, and sessions that end", test_restarts},
	{"refusals that are forged", test_forged_refusals},
	{"a refusal that is proven", test_proven_refusal},
	{"refusals of an insecure job", test_insecure_refusals},
	{"attacked", test_attacked},
	{"required", test_required},
	{"a session that may be gone", test_doubt},
	{"a session that is denied while it begins", test_denied},
	{NULL, NULL},
};
