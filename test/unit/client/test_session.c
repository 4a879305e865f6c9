/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include <pbox_wire.h>

#include "harness.h"
#include "unit.h"

const char unit_suite[] = "client: sessions, errors, deadlines";

static struct pbox_client_error err;

static struct pbox_client *
must_open(struct box *b, int worker, unsigned workers)
{
	struct pbox_client_conf conf = harness_conf(b, worker, workers);
	struct pbox_client *c = NULL;

	err.text[0] = 0;
	if (pbox_client_open(&c, &conf, &err) != 0)
		CU_assertImplementation(CU_FALSE, __LINE__, err.text, __FILE__, "", CU_TRUE);
	return c;
}

static int
try_open(const struct box *b, unsigned workers, unsigned join_ms, const char *job,
	const char *secret)
{
	struct pbox_client_conf conf = harness_conf(b, 0, workers);
	struct pbox_client *c = NULL;
	int rc;

	conf.join_timeout_ms = join_ms;
	conf.job = job;
	conf.secret = secret;
	rc = pbox_client_open(&c, &conf, &err);
	if (rc == 0)
		pbox_client_close(c);
	return rc;
}

/* As open, until it ends with that code and says that: what a process that gets no CPU does not see in a short
 * time it sees in a longer one. */
static bool
ends_with(struct pbox_client_conf *conf, int want, const char *words)
{
	struct pbox_client *c = NULL;
	int rc;

	for (unsigned i = 0; i < 4; i++, conf->join_timeout_ms *= 6) {
		rc = pbox_client_open(&c, conf, &err);
		if (rc == 0)
			pbox_client_close(c);
		if (rc == want && strstr(err.text, words) != NULL)
			return true;
	}
	printf("\n    %d, not %d: %s; ", rc, want, err.text);
	return false;
}

static bool
refused(const struct box *b, unsigned workers, unsigned join_ms, const char *job,
	const char *secret, int want, const char *words)
{
	struct pbox_client_conf conf = harness_conf(b, 0, workers);

	conf.join_timeout_ms = join_ms;
	conf.job = job;
	conf.secret = secret;
	return ends_with(&conf, want, words);
}

static uint32_t
declare(struct pbox_client *c, const struct pbox_client_tensor *t, unsigned n, unsigned mode,
	unsigned timeout_ms, int *rc)
{
	struct pbox_client_table d = {.size = sizeof(d),
		.mode = (uint8_t)mode,
		.optimiser = mode ? PBOX_OPT_SGD : PBOX_OPT_NONE,
		.push_format = PBOX_FMT_FP32,
		.pull_format = PBOX_FMT_FP32,
		.n = n,
		.tensors = t};
	uint32_t table = 99;

	*rc = pbox_client_declare(c, &d, timeout_ms, &table, &err);
	return table;
}

/* It is not taken within a while, and that is said. */
static bool
late(struct pbox_client *c, const struct pbox_client_tensor *t, const char *words, const char *more)
{
	int rc;

	for (unsigned ms = 600; ms < 200000; ms *= 4) {
		declare(c, t, 1, 0, ms, &rc);
		if (rc == PBOX_C_DEADLINE && strstr(err.text, words) != NULL &&
			strstr(err.text, more) != NULL)
			return true;
	}
	printf("\n    %d: %s; ", rc, err.text);
	return false;
}

/* A wait ends with its deadline, and says that. */
static bool
waits(struct pbox_client *c, pbox_client_handle h, int ms, const char *words, const char *more)
{
	int rc = PBOX_C_OK;

	for (; ms < 100000; ms *= 6) {
		rc = pbox_client_wait(c, h, ms, &err);
		if (rc == PBOX_C_DEADLINE && strstr(err.text, words) != NULL &&
			strstr(err.text, more) != NULL)
			return true;
	}
	printf("\n    %d: %s; ", rc, err.text);
	return false;
}

/* ---- joining ---------------------------------------------------------------------------- */

static void
test_refusals(void)
{
	static const struct {
		struct box_conf box;
		unsigned workers;
		const char *job, *secret;
		int want;
		const char *words;
	} cases[] = {
		{{0}, 2, "other", "secret", PBOX_C_NO_JOB, "no job 'other' is configured here"},
		{{0}, 2, "job", "wrong", PBOX_C_SECRET, "the secret of job 'job' is another one"},
		{{0}, 3, "job", "secret", PBOX_C_MISMATCH, "job 'job' has 2 workers"},
		{{.terse = true}, 2, "job", "wrong", PBOX_C_SECRET, "secret is wrong"},
		{{.terse = true}, 3, "job", "secret", PBOX_C_MISMATCH,
			"this worker says 3 workers, the others say 2"},
		{{.version_error = true}, 2, "job", "secret", PBOX_C_VERSION, "version 9"},
		/* on its way, so that it seemed to be of another version */
		{{.hello_damaged = true}, 2, "job", "secret", PBOX_C_OK, ""},
		{{.other_secret = true}, 2, "job", "secret", PBOX_C_SECRET, "could not prove"},
		/* what says so, and has another secret */
		{{.other_secret = true, .insecure = true}, 2, "job", "secret", PBOX_C_SECRET, ""},
		{{.full = true}, 2, "job", "secret", PBOX_C_REFUSED, "max_jobs"},
	};

	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct box_conf conf = cases[i].box;
		struct box *b;

		conf.workers = 2;
		b = box_start(&conf);
		CU_ASSERT(refused(b, cases[i].workers, 2000, cases[i].job, cases[i].secret,
			cases[i].want, cases[i].words));
		box_stop(b);
	}
}

/* R4.5: a box that can prove nothing is taken where its job is insecure, and not by who asks for auth. */
static void
test_insecure(void)
{
	struct pbox_client_stats s = {.size = sizeof(s)};
	struct box_conf fc = {.workers = 2, .insecure = true};
	struct box *b = box_start(&fc);
	struct pbox_client_conf conf;
	struct pbox_client *c;

	for (unsigned i = 0; i < 2; i++) {
		conf = harness_conf(b, (int)i, 2);
		conf.secret = i == 0 ? "any" : "";
		CU_ASSERT_EQUAL_FATAL(pbox_client_open(&c, &conf, &err), 0);
		pbox_client_stats(c, &s);
		UNIT_EQ_U64(s.unproven, i == 0);
		pbox_client_close(c);
	}
	conf.secret = "any";
	conf.auth = 1;
	CU_ASSERT_EQUAL(pbox_client_open(&c, &conf, &err), PBOX_C_SECRET);
	HAS("has no secret (insecure = yes), and this worker requires auth");
	conf.auth = 0;
	conf.job = "j\xff";
	CU_ASSERT_EQUAL(pbox_client_open(&c, &conf, &err), PBOX_C_INVALID);
	HAS("not UTF-8");
	conf.job = "job";
	conf.threads = 65;
	CU_ASSERT_EQUAL(pbox_client_open(&c, &conf, &err), PBOX_C_INVALID);
	HAS("threads is 65; 1 to 64 are taken");
	box_stop(b);
}

static void
test_unreachable(void)
{
	struct box_conf conf = {.workers = 1, .silent = true};
	struct box *b = box_start(&conf);
	struct pbox_client_conf cc;

	CU_ASSERT(
		refused(b, 1, 500, "job", "secret", PBOX_C_UNREACHABLE, "HELLOs went unanswered"));
	box_stop(b);
	conf.silent = false;
	conf.no_data = true;
	b = box_start(&conf);
	CU_ASSERT(refused(b, 1, 700, "job", "secret", PBOX_C_UNREACHABLE, "does not answer PING"));
	cc = harness_conf(b, 0, 1);
	box_stop(b); /* the port is closed now: ICMP */
	cc.box = "127.0.0.1:9";
	cc.join_timeout_ms = 400;
	CU_ASSERT(ends_with(&cc, PBOX_C_UNREACHABLE, "nothing listens"));
}

static void
test_mtu(void)
{
	struct box_conf conf = {.workers = 1, .mtu = 9000, .max_datagram = 1472};
	struct box *b = box_start(&conf);
	struct pbox_client_conf cc = harness_conf(b, 0, 1);
	struct pbox_client *c;

	cc.mtu = 9000;
	cc.join_timeout_ms = 1000;
	CU_ASSERT(ends_with(&cc, PBOX_C_MTU, "9000 bytes"));
	cc.mtu = 1500;
	cc.join_timeout_ms = 120000;
	c = NULL;
	CU_ASSERT_EQUAL(pbox_client_open(&c, &cc, &err), 0);
	pbox_client_close(c);
	cc.mtu = 100;
	CU_ASSERT_EQUAL(pbox_client_open(&c, &cc, &err), PBOX_C_INVALID);
	box_stop(b);
	/* what the box says of its own must carry a page */
	conf = (struct box_conf){.workers = 1, .mtu = 100};
	b = box_start(&conf);
	CU_ASSERT(refused(b, 1, 2000, "job", "secret", PBOX_C_REFUSED, "mtu 100"));
	box_stop(b);
}

/* @p taken, @p all: what is said of the number of one that lives, and of all. */
static void
worker_numbers(const struct box_conf *conf, const char *taken, const char *more, const char *all)
{
	struct box *b = box_start(conf);
	struct pbox_client *c0 = must_open(b, -1, 2), *c1;
	struct pbox_client_conf any;

	UNIT_EQ_U64(pbox_client_worker(c0), 0);
	UNIT_EQ_U64(pbox_client_workers(c0), 2);
	CU_ASSERT(refused(b, 2, 600, "job", "secret", PBOX_C_REFUSED, taken));
	HAS(more);
	c1 = must_open(b, -1, 2);
	UNIT_EQ_U64(pbox_client_worker(c1), 1);
	any = harness_conf(b, -1, 2);
	any.join_timeout_ms = 600;
	CU_ASSERT(ends_with(&any, PBOX_C_REFUSED, all));
	pbox_client_close(c0);
	c0 = must_open(b, 0, 2); /* free again */
	pbox_client_close(c0);
	pbox_client_close(c1);
	box_stop(b);
}

static void
test_worker_numbers(void)
{
	worker_numbers(&(struct box_conf){.workers = 2}, "worker 0 of job 'job' is taken by any, ",
		"'pbox-ctl workers job' names the hosts",
		"all 2 workers of job 'job' have joined; worker ");
	worker_numbers(&(struct box_conf){.workers = 2, .terse = true},
		"worker 0 has a live session", "'pbox-ctl workers job' names its host",
		"all 2 workers have a live session");
}

static void
test_arguments(void)
{
	static const struct pbox_client_tensor t[] = {{"a", 10, 0}};
	struct box_conf conf = {.workers = 1};
	struct box *b = box_start(&conf);
	struct pbox_client *c = must_open(b, 0, 1);
	float v[10] = {0};
	struct pbox_client_io io = {0, v, v};
	pbox_client_handle h;
	uint32_t table;
	int rc;

	CU_ASSERT_EQUAL(try_open(b, 0, 100, "job", "secret"), PBOX_C_INVALID);
	CU_ASSERT_EQUAL(try_open(b, 1, 100, "", "secret"), PBOX_C_INVALID);
	CU_ASSERT_EQUAL(harness_submit(c, PBOX_CLIENT_PUSH, &io, 1, 0, &h, &err), PBOX_C_INVALID);
	table = declare(c, t, 1, 0, 0, &rc);
	CU_ASSERT_EQUAL(rc, 0);
	UNIT_EQ_U64(table, 0);
	CU_ASSERT_EQUAL(harness_submit(c, PBOX_CLIENT_INIT, &io, 1, 0, &h, &err), PBOX_C_INVALID);
	CU_ASSERT_EQUAL(harness_submit(c, PBOX_CLIENT_PULL, &io, 1, 0, &h, &err), PBOX_C_INVALID);
	HAS("before its first push");
	io.tensor = 1;
	CU_ASSERT_EQUAL(harness_submit(c, PBOX_CLIENT_PUSH, &io, 1, 0, &h, &err), PBOX_C_INVALID);
	HAS("tensor 1 does not exist");
	CU_ASSERT_EQUAL(pbox_client_wait(c, 12345, 10, &err), PBOX_C_INVALID);
	CU_ASSERT_EQUAL(pbox_client_test(c, 0, &err), PBOX_C_INVALID);
	pbox_client_close(c);
	pbox_client_close(NULL);
	box_stop(b);
}

/* ---- tables ------------------------------------------------------------------------------ */

struct second {
	struct box *b;
	const struct pbox_client_tensor *t;
	unsigned n;
	int rc;
	struct pbox_client_error err;
	pthread_t thread;
	atomic_bool over;
};

static void *
declare_second(void *arg)
{
	struct second *s = arg;
	struct pbox_client_conf conf = harness_conf(s->b, 1, 2);
	struct pbox_client_table d = {.size = sizeof(d),
		.push_format = PBOX_FMT_FP32,
		.pull_format = PBOX_FMT_FP32,
		.n = s->n,
		.tensors = s->t};
	struct pbox_client *c;
	uint32_t table;

	s->rc = pbox_client_open(&c, &conf, &s->err);
	if (s->rc != 0)
		return NULL;
	s->rc = pbox_client_declare(c, &d, 120000, &table, &s->err);
	while (!atomic_load(&s->over)) /* the mismatch holds until its sender leaves */
		usleep(1000);
	pbox_client_close(c);
	return NULL;
}

static void
test_mismatch_at_both_ends(void)
{
	static const struct pbox_client_tensor t[] = {{"a", 10, 0}, {"b", 5, 0}};
	static const struct pbox_client_tensor u[] = {{"a", 10, 0}, {"b", 6, 0}};
	struct box_conf conf = {.workers = 2};
	struct box *b = box_start(&conf);
	struct pbox_client *c = must_open(b, 0, 2);
	struct second s = {.b = b, .t = u, .n = 2};
	int rc;

	pthread_create(&s.thread, NULL, declare_second, &s);
	declare(c, t, 2, 0, 120000, &rc);
	atomic_store(&s.over, true);
	pthread_join(s.thread, NULL);
	CU_ASSERT_EQUAL(rc, PBOX_C_MISMATCH);
	HAS(" elements, another worker declared 'b' with ");
	CU_ASSERT_EQUAL(s.rc, PBOX_C_MISMATCH);
	CU_ASSERT(strstr(s.err.text, "all workers must declare the same tensors") != NULL);
	pbox_client_close(c);
	box_stop(b);
}

static void
test_declare_deadline_names_the_missing(void)
{
	static const struct pbox_client_tensor t[] = {{"a", 10, 0}};
	struct box_conf conf = {.workers = 2};
	struct box *b = box_start(&conf);
	struct pbox_client *c = must_open(b, 0, 2), *second;
	struct pbox_client_conf conf2;
	char text[1024];

	CU_ASSERT(late(c, t,
		"MAP of table 0: 1 of 2 workers joined, 1 declared it; missing worker 1 (has not joined): start it",
		""));
	second = must_open(b, 1, 2);
	CU_ASSERT(late(c, t, "missing worker 1 (host gpu1, silent for ",
		" s): it is alive, and may be in another call than this worker: see its own log"));
	CU_ASSERT_EQUAL(pbox_client_status(c, text, sizeof(text), &err), 0);
	CU_ASSERT(strstr(text, "worker 1: joined, host gpu1") != NULL);
	pbox_client_close(second);
	CU_ASSERT(late(c, t, "missing worker 1 (host gpu1, left, last heard ",
		" s): if its process is dead, start it again with this number"));
	/* a name that would end the text, or write over it */
	conf2 = harness_conf(b, 1, 2);
	conf2.host = "gpu'1\n\x1b[2J";
	CU_ASSERT_EQUAL_FATAL(pbox_client_open(&second, &conf2, &err), 0);
	CU_ASSERT(late(c, t, "missing worker 1 (host gpu\\'1\\x0a\\x1b[2J, silent for ", ""));
	CU_ASSERT_EQUAL(pbox_client_status(c, text, sizeof(text), &err), 0);
	CU_ASSERT(strstr(text, "host gpu\\'1\\x0a\\x1b[2J, 0 tables") != NULL);
	pbox_client_close(second);
	pbox_client_close(c);
	box_stop(b);
}

/* A box that is gone: what was asked, of whom, and what to do. */
static void
test_requests_without_an_answer(void)
{
	static const struct pbox_client_tensor t[] = {{"a", 10, 0}};
	static const struct pbox_client_hyper h = {PBOX_HYPER_CLIP_VALUE, 1};
	struct box_conf conf = {.workers = 1};
	struct box *b = box_start(&conf);
	struct pbox_client_conf quick = harness_conf(b, 0, 1);
	struct pbox_client *c = NULL;
	char text[256];
	int rc;

	quick.timeout_ms = 300;
	CU_ASSERT_EQUAL_FATAL(pbox_client_open(&c, &quick, &err), 0);
	declare(c, t, 1, 0, 120000, &rc);
	CU_ASSERT_EQUAL_FATAL(rc, 0);
	box_silence(b, true);
	CU_ASSERT_EQUAL(pbox_client_set(c, 0, PBOX_ALL_GROUPS, 7, &h, 1, &err), PBOX_C_DEADLINE);
	snprintf(text, sizeof(text),
		"SET of all groups of table 0 from round 7 on: no answer from the box at %s; check that it is up",
		box_address(b));
	HAS(text);
	declare(c, t, 1, 0, 300, &rc);
	CU_ASSERT_EQUAL(rc, PBOX_C_DEADLINE);
	snprintf(text, sizeof(text),
		"DECLARE of table 1: no answer from the box at %s; check that it is up",
		box_address(b));
	HAS(text);
	CU_ASSERT_EQUAL(pbox_client_status(c, text, sizeof(text), &err), PBOX_C_DEADLINE);
	HAS("STATUS: no answer from the box at ");
	box_silence(b, false);
	pbox_client_close(c);
	box_stop(b);
}

static void
test_large_table(void)
{
	static const struct pbox_client_tensor t[] = {{"huge", 100000000, 0}, {"small", 3, 0}};
	struct box_conf conf = {.workers = 1};
	struct box *b = box_start(&conf);
	struct pbox_client *c = must_open(b, 0, 1);
	double t0 = harness_seconds();
	int rc;

	declare(c, t, 2, 0, 120000, &rc);
	printf("%.0f ms ... ", 1e3 * (harness_seconds() - t0));
	CU_ASSERT_EQUAL(rc, 0);
	pbox_client_close(c);
	box_stop(b);
}

/* ---- rounds that do not end ---------------------------------------------------------------- */

static void
test_deadline_names_worker_and_tensor(void)
{
	static const struct pbox_client_tensor t[] = {{"fc.weight", 1000, 0}};
	struct box_conf conf = {.workers = 2};
	struct box *b = box_start(&conf);
	struct pbox_client *c = must_open(b, 0, 2);
	struct second s = {.b = b, .t = t, .n = 1};
	float v[1000] = {0};
	struct pbox_client_io io = {0, v, v};
	pbox_client_handle h;
	char text[512];
	int rc;

	pthread_create(&s.thread, NULL, declare_second, &s);
	declare(c, t, 1, 0, 120000, &rc);
	CU_ASSERT_EQUAL(rc, 0);
	CU_ASSERT_EQUAL(pbox_client_why(c, text, sizeof(text), &err), 0);
	CU_ASSERT_STRING_EQUAL(text, "nothing");
	rc = harness_submit(c, PBOX_CLIENT_PUSHPULL, &io, 1, 0, &h, &err);
	CU_ASSERT_EQUAL(rc, 0);
	CU_ASSERT_EQUAL(pbox_client_test(c, h, &err), PBOX_C_PENDING);
	CU_ASSERT(waits(c, h, 150,
		"round 1 of tensor 'fc.weight': 1 of 2 workers has pushed; missing worker 1 (host gpu1",
		": it is alive, and may be in another call than this worker: see its own log"));
	CU_ASSERT_EQUAL(pbox_client_why(c, text, sizeof(text), &err), 0);
	CU_ASSERT(strstr(text, "missing worker 1") != NULL);
	CU_ASSERT_EQUAL(pbox_client_wait(c, h, 50, &err), PBOX_C_DEADLINE); /* still valid */
	box_silence(b, true);
	CU_ASSERT(
		waits(c, h, 2500, "no answer from the box's endpoint", "check that the box is up"));
	/* what it had said before may be the reason as well */
	HAS("; when it last answered, 1 of 2 workers had pushed; missing worker 1 (host gpu1)");
	box_silence(b, false);
	atomic_store(&s.over, true);
	pthread_join(s.thread, NULL);
	pbox_client_close(c); /* in flight */
	box_stop(b);
}

static void
test_shared_fragment_names_the_local_tensor(void)
{
	static const struct pbox_client_tensor t[] = {{"bias", 10, 0}, {"scale", 20, 0}};
	struct box_conf conf = {.workers = 1};
	struct box *b = box_start(&conf);
	struct pbox_client *c = must_open(b, 0, 1);
	float v[20] = {1, 2, 3};
	struct pbox_client_io io[2] = {{0, v, v}, {1, v, v}};
	pbox_client_handle h, k;
	int rc;

	declare(c, t, 2, 0, 0, &rc);
	rc = harness_submit(c, PBOX_CLIENT_PUSHPULL, io, 1, 0, &h, &err);
	CU_ASSERT_EQUAL(rc, 0);
	CU_ASSERT(waits(c, h, 100, "'bias' shares a fragment with 'scale'",
		"not submitted by this worker for round 1"));
	rc = harness_submit(c, PBOX_CLIENT_PUSHPULL, &io[1], 1, 0, &k, &err);
	CU_ASSERT_EQUAL(rc, 0);
	CU_ASSERT_EQUAL(pbox_client_wait(c, k, 0, &err), 0);
	CU_ASSERT_EQUAL(pbox_client_wait(c, h, 0, &err), 0);
	CU_ASSERT_EQUAL(pbox_client_wait(c, h, 0, &err), PBOX_C_INVALID);
	pbox_client_close(c);
	box_stop(b);
}

static void
count_done(void *ctx, int code, const char *text)
{
	(void)text;
	__atomic_store_n((int *)ctx, code == 0 ? 1 : code, __ATOMIC_RELEASE);
}

static void
test_notify_and_close_in_flight(void)
{
	static const struct pbox_client_tensor t[] = {{"w", 100000, 0}};
	struct box_conf conf = {.workers = 1};
	struct box *b = box_start(&conf);
	struct pbox_client *c = must_open(b, 0, 1);
	float *v = calloc(100000, 4);
	struct pbox_client_io io = {0, v, v};
	pbox_client_handle h;
	int rc, done = 0, lost = 0;

	declare(c, t, 1, 0, 0, &rc);
	harness_submit(c, PBOX_CLIENT_PUSHPULL, &io, 1, 0, &h, &err);
	CU_ASSERT_EQUAL(pbox_client_notify(c, h, count_done, &done), 0);
	for (int i = 0; i < 120000 && __atomic_load_n(&done, __ATOMIC_ACQUIRE) == 0; i++)
		usleep(1000);
	CU_ASSERT_EQUAL(__atomic_load_n(&done, __ATOMIC_ACQUIRE), 1);
	CU_ASSERT_EQUAL(pbox_client_wait(c, h, 0, &err), PBOX_C_INVALID);
	box_silence(b, true);
	harness_submit(c, PBOX_CLIENT_PUSHPULL, &io, 1, 0, &h, &err);
	CU_ASSERT_EQUAL(pbox_client_notify(c, h, count_done, &lost), 0);
	pbox_client_close(c);
	CU_ASSERT_EQUAL(__atomic_load_n(&lost, __ATOMIC_ACQUIRE), PBOX_C_CLOSED);
	free(v);
	box_stop(b);
}

static void
test_restart_and_shutdown(void)
{
	static const struct pbox_client_tensor t[] = {{"w", 100000, 0}};
	struct box_conf conf = {.workers = 2};
	struct box *b = box_start(&conf);

	for (int shutdown = 0; shutdown < 2; shutdown++) {
		struct pbox_client_conf cc = harness_conf(b, 0, 2);
		struct second s = {.b = b, .t = t, .n = 1};
		struct pbox_client *c = NULL;
		float *v = calloc(100000, 4);
		struct pbox_client_io io = {0, v, v};
		pbox_client_handle h;
		int rc;

		cc.keep_copies = 0; /* with them: test_restart.c */
		CU_ASSERT_EQUAL_FATAL(pbox_client_open(&c, &cc, &err), 0);
		pthread_create(&s.thread, NULL, declare_second, &s);
		declare(c, t, 1, 0, 120000, &rc);
		CU_ASSERT_EQUAL(rc, 0);
		atomic_store(&s.over, true);
		pthread_join(s.thread, NULL);
		harness_submit(c, PBOX_CLIENT_PUSHPULL, &io, 1, 0, &h, &err);
		if (shutdown)
			box_shutdown(b);
		else
			box_restart(b);
		CU_ASSERT_EQUAL(pbox_client_wait(c, h, 120000, &err), PBOX_C_LOST);
		HAS(shutdown ? "shutting down" : "was restarted");
		CU_ASSERT_EQUAL(
			harness_submit(c, PBOX_CLIENT_PUSHPULL, &io, 1, 0, &h, &err), PBOX_C_LOST);
		CU_ASSERT_EQUAL(pbox_client_status(c, (char *)v, 100, &err), PBOX_C_LOST);
		memset(v, 'x', 100); /* a call that fails leaves no earlier text */
		CU_ASSERT_EQUAL(pbox_client_why(c, (char *)v, 100, &err), PBOX_C_LOST);
		CU_ASSERT_EQUAL(((char *)v)[0], '\0');
		pbox_client_close(c);
		box_restart(b);
		free(v);
	}
	box_stop(b);
}

/* ---- parameters on the box ------------------------------------------------------------------ */

static void
test_init_pull_set_and_steps(void)
{
	static const struct pbox_client_tensor t[] = {{"w", 1000, 0}, {"b", 10, 0}};
	struct pbox_client_hyper lr = {PBOX_HYPER_LR, 0.5};
	struct box_conf conf = {.workers = 1};
	struct box *b = box_start(&conf);
	struct pbox_client *c = must_open(b, 0, 1);
	float p[1000], g[1000], out[1000];
	struct pbox_client_io init[2] = {{0, p, NULL}, {1, p, NULL}};
	struct pbox_client_io pull[2] = {{0, NULL, out}, {1, NULL, out + 500}};
	struct pbox_client_io step[2] = {{0, g, out}, {1, g, p}};
	pbox_client_handle h;
	int rc;

	for (int i = 0; i < 1000; i++) {
		p[i] = (float)i;
		g[i] = 2;
	}
	declare(c, t, 2, PBOX_MODE_OPTIMISER, 0, &rc);
	CU_ASSERT_EQUAL(rc, 0);
	/* a pull waits for the parameters */
	harness_submit(c, PBOX_CLIENT_PULL, pull, 1, 0, &h, &err);
	CU_ASSERT_EQUAL(pbox_client_wait(c, h, 100, &err), PBOX_C_DEADLINE);
	HAS("this worker gives them (init), and has not");
	/* init queues after the pull on the same tensor, so it goes by another client here:
	 * close, and begin again */
	pbox_client_close(c);
	box_restart(b);
	c = must_open(b, 0, 1);
	declare(c, t, 2, PBOX_MODE_OPTIMISER, 0, &rc);
	CU_ASSERT_EQUAL(pbox_client_run(c, 0, PBOX_CLIENT_INIT, init, 2, 1, 0, &err), 0);
	CU_ASSERT_EQUAL(pbox_client_run(c, 0, PBOX_CLIENT_PULL, pull, 1, 1, 0, &err), 0);
	CU_ASSERT_EQUAL(memcmp(p, out, sizeof(p)), 0);
	CU_ASSERT_EQUAL(
		pbox_client_run(c, 0, PBOX_CLIENT_PUSHPULL, step, 2, 1, 0, &err), PBOX_C_REFUSED);
	HAS("no learning rate");
	CU_ASSERT_EQUAL(pbox_client_set(c, 0, PBOX_ALL_GROUPS, 0, &lr, 1, &err), 0);
	CU_ASSERT_EQUAL(pbox_client_run(c, 0, PBOX_CLIENT_PUSHPULL, step, 2, 1, 0, &err), 0);
	CU_ASSERT_EQUAL(out[7], 6.0f);
	CU_ASSERT_EQUAL(pbox_client_run(c, 0, PBOX_CLIENT_PUSH, step, 2, 1, 0, &err), 0);
	CU_ASSERT_EQUAL(pbox_client_run(c, 0, PBOX_CLIENT_PULL, pull, 1, 1, 0, &err), 0);
	CU_ASSERT_EQUAL(out[7], 5.0f);
	pbox_client_close(c);
	box_stop(b);
}

static void
test_priorities(void)
{
	/* what is less urgent takes much longer than this thread needs to look at it */
	static const struct pbox_client_tensor t[] = {
		{"plug", 70000, 0}, {"late", 2000000, 0}, {"soon", 20000, 0}};
	struct box_conf conf = {.workers = 1, .window = 4};
	struct box *b = box_start(&conf);
	struct pbox_client *c = must_open(b, 0, 1);
	float *v = calloc(2000000, 4);
	struct pbox_client_io io[3] = {{0, v, v}, {1, v, v}, {2, v, v}};
	pbox_client_handle h[3];
	int rc;

	declare(c, t, 3, 0, 0, &rc);
	box_silence(b, true); /* the window fills with the first tensor, the others queue */
	harness_submit(c, PBOX_CLIENT_PUSHPULL, &io[0], 1, 9, &h[0], &err);
	harness_submit(c, PBOX_CLIENT_PUSHPULL, &io[1], 1, 9, &h[1], &err);
	harness_submit(c, PBOX_CLIENT_PUSHPULL, &io[2], 1, 1, &h[2], &err);
	box_silence(b, false);
	CU_ASSERT_EQUAL(pbox_client_wait(c, h[2], 0, &err), 0);
	CU_ASSERT_EQUAL(pbox_client_test(c, h[1], &err), PBOX_C_PENDING);
	CU_ASSERT_EQUAL(pbox_client_wait(c, h[1], 0, &err), 0);
	CU_ASSERT_EQUAL(pbox_client_wait(c, h[0], 0, &err), 0);
	pbox_client_close(c);
	free(v);
	box_stop(b);
}

const struct unit_test unit_tests[] = {
	{"refusals have their code and text", test_refusals},
	{"a job without a secret", test_insecure},
	{"a box that does not answer", test_unreachable},
	{"a path that is too narrow", test_mtu},
	{"worker numbers", test_worker_numbers},
	{"arguments", test_arguments},
	{"mismatch at both ends", test_mismatch_at_both_ends},
	{"declare names the missing worker", test_declare_deadline_names_the_missing},
	{"requests without an answer", test_requests_without_an_answer},
	{"a table of 100 M elements", test_large_table},
	{"deadline names worker and tensor", test_deadline_names_worker_and_tensor},
	{"shared fragment names the local tensor", test_shared_fragment_names_the_local_tensor},
	{"notify; close while in flight", test_notify_and_close_in_flight},
	{"restart and shutdown of the box, without copies", test_restart_and_shutdown},
	{"init, pull, set, steps", test_init_pull_set_and_steps},
	{"urgent tensors overtake", test_priorities},
	{NULL, NULL},
};
