/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* R4.4: whatever else is wrong with a JOIN, the first check that it does not pass is the answer. */

#include <string.h>

#include "fixture.h"

const char unit_suite[] = "engine: order of a JOIN's checks";

#define FAR_AWAY UINT64_MAX

static struct fx_worker w[3];
static const char *secret;
static uint64_t gone; /* nonce of the session that worker 1 had */

/* What is wrong with the JOIN. */
#define SPOIL(name, statement)                \
	static void name(struct pbox_join *m) \
	{                                     \
		statement;                    \
	}
SPOIL(cookie, m->cookie ^= 1)
SPOIL(revision, m->revision = 0)
SPOIL(later, m->revision = PBOX_REVISION + 1)
SPOIL(not_utf8, strcpy(m->job + strlen(m->job), "\xff"))
SPOIL(nobody, strcpy(m->job, "nobody"))
SPOIL(other_secret, (void)m; secret = "other")
SPOIL(same_session, m->nonce = gone)
SPOIL(needs, m->needs = 1)
SPOIL(no_workers, m->workers = 0)
SPOIL(small_mtu, m->mtu = 100)
SPOIL(four_workers, m->workers = 4)
SPOIL(worker_nine, m->worker = 9)
SPOIL(slots, m->slots = 8; m->can = 1u << PBOX_CAN_SLOTS)
SPOIL(policy_nine, m->policy = 9)
SPOIL(no_tags, m->auth = 0)
SPOIL(far_away, m->number = FAR_AWAY)
SPOIL(shrink, m->policy = PBOX_POLICY_SHRINK)
SPOIL(less_mtu, m->mtu = 1400)
SPOIL(worker_zero, m->worker = 0)

/* What is wrong with the box or with the job. */
static void
kick(void)
{
	struct pbox_error err;

	UNIT_EQ_U64(pbox_registrar_kick(fx.registrar, w[1].job_no, 1, "", fx.now, &err), 0);
}

static void
job_ends(void)
{
	if (w[0].token != 0)
		fx_leave(&w[0]);
	fx_clear();
	if (w[2].token != 0)
		fx_leave(&w[2]);
	w[0].token = w[2].token = 0;
	fx_work();
	fx_tick();
}

static void
job_is_ending(void)
{
	fx.hold_mail = true;
	job_ends();
}

static void
other_job(void)
{
	job_ends();
	fx_join(&w[0], "vision", 0, 1);
}

static void
drain(void)
{
	pbox_registrar_drain(fx.registrar, true);
}

static void
stop(void)
{
	pbox_registrar_shutdown(fx.registrar, fx.now);
}

/* The table of R4.4, in its order. A row with another `job` than the one before needs another state of the job, which
 * rows of no state do not mind. */
static const struct row {
	unsigned code;
	const char *text;
	void (*spoil)(struct pbox_join *m);
	void (*before)(void), (*after)(void);
	enum { ANY, LIVE, ENDED, ENDING, FULL } job;
} rows[] = {
	{PBOX_E_COOKIE, "cookie wrong", cookie, NULL, NULL, ANY},
	{PBOX_E_VERSION, "earlier release", revision, NULL, NULL, ANY},
	{PBOX_E_VERSION, "later release", later, NULL, NULL, ANY},
	{PBOX_E_NO_JOB, "not UTF-8", not_utf8, NULL, NULL, ANY},
	{PBOX_E_NO_JOB, "is configured here", nobody, NULL, NULL, ANY},
	{PBOX_E_SECRET, "is another one", other_secret, NULL, NULL, ANY},
	{PBOX_E_SHUTDOWN, "is stopping", NULL, NULL, stop, ANY},
	{PBOX_E_NO_JOB, "the operator of the box ended worker 1", same_session, kick, NULL, ANY},
	{PBOX_E_UNSUPPORTED, "does not know", needs, NULL, NULL, ANY},
	{PBOX_E_BAD_REQUEST, "0 workers", no_workers, NULL, NULL, ANY},
	{PBOX_E_BAD_REQUEST, "is too small", small_mtu, NULL, NULL, ANY},
	{PBOX_E_WORKERS, "says 4", four_workers, NULL, NULL, ANY},
	{PBOX_E_BAD_REQUEST, "numbers begin at 0", worker_nine, NULL, NULL, ANY},
	{PBOX_E_BAD_REQUEST, "SLOTS is not in needs", slots, NULL, NULL, ANY},
	{PBOX_E_BAD_REQUEST, "is unknown", policy_nine, NULL, NULL, ANY},
	{PBOX_E_BAD_REQUEST, "cannot send tags", no_tags, NULL, NULL, ANY},
	{PBOX_E_BAD_REQUEST, "has left", same_session, NULL, NULL, ANY},
	{PBOX_E_BAD_REQUEST, "no run has the number", far_away, NULL, NULL, ANY},
	{PBOX_E_BAD_REQUEST, "asks for policy shrink", shrink, NULL, NULL, LIVE},
	{PBOX_E_FULL, "takes no new jobs", NULL, job_ends, drain, ENDED},
	{PBOX_E_WORKER_TAKEN, "is ending", NULL, job_is_ending, NULL, ENDING},
	{PBOX_E_FULL, "has its 1 jobs already", NULL, other_job, NULL, FULL},
	{PBOX_E_BAD_REQUEST, "mapped for an MTU of 1500", less_mtu, NULL, NULL, LIVE},
	{PBOX_E_WORKER_TAKEN, "is taken by", worker_zero, NULL, NULL, LIVE},
};
#define ROWS (sizeof(rows) / sizeof(*rows))

/* A job with tables, whose worker 1 is gone. */
static void
begin(const struct row *a, const struct row *b)
{
	static const struct pbox_job_conf conf[] = {
		{.name = "tagged",
			.secret = "key",
			.secret_len = 3,
			.workers = 3,
			.auth = true,
			.policy = PBOX_POLICY_ANY},
		{.name = "vision", .secret = "key", .secret_len = 3},
	};
	const struct fx_table t = {.elements = 4, .op = PBOX_OP_SUM};

	fx.max_jobs = 1;
	fx_begin();
	pbox_registrar_reload(fx.registrar, conf, 2, 10000, 0, fx.now);
	fx_job(w, "tagged", 3, &t);
	fx_work();
	fx_clear();
	gone = w[1].nonce;
	secret = "key";
	if (a->before == kick || b->before == kick)
		kick();
	else
		fx_leave(&w[1]);
	if (a->before != NULL && a->before != kick)
		a->before();
	else if (b->before != NULL && b->before != kick)
		b->before();
	if (a->after != NULL)
		a->after();
	if (b->after != NULL && b->after != a->after)
		b->after();
}

/* The answer to a JOIN with what is wrong in rows `a` and `b`. */
static const struct fx_sent *
answer(const struct row *a, const struct row *b)
{
	struct fx_worker x = {.job = "tagged",
		.worker = 1,
		.workers = 3,
		.ip = 0x0A000200,
		.udp = 6000,
		.mtu = 1500,
		.nonce = 77};
	struct pbox_join m;

	begin(a, b);
	fx_hello(&x);
	m = fx_join_message(&x);
	if (b->spoil != NULL)
		b->spoil(&m);
	if (a->spoil != NULL && a->spoil != b->spoil)
		a->spoil(&m);
	return fx_join_with(&x, &m, secret);
}

static void
end(void)
{
	fx.hold_mail = false;
	fx_mail();
	fx_end();
}

static void
test_nothing_wrong(void)
{
	const struct row none = {0};

	UNIT_EQ_U64(answer(&none, &none)->hdr.type, PBOX_WELCOME);
	end();
}

static void
test_order(void)
{
	for (unsigned i = 0; i < ROWS; i++)
		for (unsigned k = i; k < ROWS; k++) {
			const struct row *a = &rows[i], *b = &rows[k];

			if (a->job != ANY && b->job != ANY && a->job != b->job)
				continue;
			/* a copy is answered as the other workers' policy says */
			if (a->spoil == same_session && b->spoil == shrink && a->before == NULL)
				continue;
			answer(a, b);
			if (fx_error() != a->code || strstr(fx_error_text(), a->text) == NULL)
				printf("\nrows %u and %u: %u, \"%s\"\n", i, k, fx_error(),
					fx_error_text());
			UNIT_EQ_U64(fx_error(), a->code);
			CU_ASSERT_PTR_NOT_NULL(strstr(fx_error_text(), a->text));
			end();
		}
}

const struct unit_test unit_tests[] = {
	{"a JOIN that passes them all", test_nothing_wrong},
	{"each check comes before those after it", test_order},
	{NULL, NULL},
};
