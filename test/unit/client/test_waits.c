/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* How long waits go on: while the one that is missing lives, and not for one that has left. */

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "client_impl.h"
#include "unit.h"

#include "harness.h"

const char unit_suite[] = "client: waits";

#define N 100

static struct pbox_client_error err;

static struct pbox_client *
worker(const struct box *b, int id, unsigned timeout_ms, unsigned patience_ms, uint32_t first_round)
{
	struct pbox_client_tensor tensor = {"weight", N, 0};
	struct pbox_client_table t = {.size = sizeof(t),
		.push_format = PBOX_FMT_FP32,
		.pull_format = PBOX_FMT_FP32,
		.n = 1,
		.tensors = &tensor,
		.first_round = first_round};
	struct pbox_client_conf conf = harness_conf(b, id, 2);
	struct pbox_client *c = NULL;
	uint32_t number;

	conf.timeout_ms = timeout_ms;
	conf.patience_ms = patience_ms;
	if (pbox_client_open(&c, &conf, &err) != 0 ||
		pbox_client_declare(c, &t, 120000, &number, &err) != 0)
		fprintf(stderr, "%s\n", err.text);
	return c;
}

struct other {
	const struct box *b;
	struct pbox_client *c;
	pthread_t thread;
	unsigned sleep_ms;
	bool leave, back, circle, no_room;
	uint64_t waits;   /* how often worker 0 has said that it waits for this one */
	atomic_bool over; /* what it is waited for: it need not sleep on */
	int rc;
};

static void
push(struct other *o)
{
	static float v[N];
	struct pbox_client_io io = {0, v, v};
	struct pbox_client_error e;

	o->rc = pbox_client_run(o->c, 0, PBOX_CLIENT_PUSHPULL, &io, 1, 1, 120000, &e);
	if (o->rc != 0)
		fprintf(stderr, "the other: %s\n", e.text);
}

/* Worker 1: has declared, and then computes, or leaves. */
static void *
other_main(void *arg)
{
	struct other *o = arg;

	o->c = worker(o->b, 1, 120000, 120000, 0);
	if (o->leave) {
		usleep(300000);
		pbox_client_close(o->c);
		o->c = NULL;
	}
	for (double t0 = harness_seconds();
		harness_seconds() - t0 < o->sleep_ms / 1e3 && !atomic_load(&o->over);)
		usleep(10000);
	if (o->back)
		o->c = worker(o->b, 1, 120000, 120000, PBOX_CLIENT_ROUND_ANY);
	if (!o->leave || o->back)
		push(o);
	return NULL;
}

/* Worker 0 waits for a round with worker 1; returns the code, and how long it took. */
static int
round_with(struct other *o, unsigned timeout_ms, unsigned patience_ms, unsigned wait_ms,
	double *seconds)
{
	/* workers say so often that they live */
	struct box_conf conf = {
		.workers = 2, .lease_ms = 3000, .circle = o->circle, .no_room = o->no_room};
	struct box *b = box_start(&conf);
	static float v[N];
	struct pbox_client_io io = {0, v, v};
	struct pbox_client *c;
	double began;
	int rc;

	o->b = b;
	pthread_create(&o->thread, NULL, other_main, o);
	c = worker(b, 0, timeout_ms, patience_ms, 0);
	began = harness_seconds();
	rc = pbox_client_run(c, 0, PBOX_CLIENT_PUSHPULL, &io, 1, 1, wait_ms, &err);
	*seconds = harness_seconds() - began;
	atomic_store(&o->over, true);
	pthread_join(o->thread, NULL);
	pbox_client_close(c);
	pbox_client_close(o->c);
	o->waits = box_counts(b).waits;
	box_stop(b);
	return rc;
}

/* It evaluates for longer than the time-out, and its library answers meanwhile. */
static void
test_alive(void)
{
	struct other o = {.sleep_ms = 9000};
	double s;

	CU_ASSERT_EQUAL(round_with(&o, 4000, 200000, 0, &s), 0);
	CU_ASSERT(s > 6);
	CU_ASSERT_EQUAL(o.rc, 0);
}

/* It lives, and waits for this one: it would not come. */
static void
test_circle(void)
{
	struct other o = {.sleep_ms = 120000, .circle = true};
	double s;

	CU_ASSERT_EQUAL(round_with(&o, 1500, 200000, 0, &s), PBOX_C_DEADLINE);
	CU_ASSERT(s >= 1.4 && s < 60);
	CU_ASSERT(o.waits > 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "not complete after "));
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text,
		"), and nobody goes on: worker 1 waits for worker 0, with 'other'. All workers must push"));
}

/* The box does not take what this worker sends: it lives, and is no reason to wait. The other has sent its part, and left. */
static void
test_itself(void)
{
	struct other o = {.leave = true, .no_room = true};
	double s;

	CU_ASSERT_EQUAL(round_with(&o, 1500, 20000, 0, &s), PBOX_C_DEADLINE);
	CU_ASSERT(s >= 1.4 && s < 10);
	HAS("this worker's own part is missing");
	CU_ASSERT_PTR_NULL(strstr(err.text, "init"));
}

/* But not forever, and not where the call says how long. */
static void
test_bounds(void)
{
	struct other o = {.sleep_ms = 120000};
	double s;

	CU_ASSERT_EQUAL(round_with(&o, 4000, 6000, 0, &s), PBOX_C_DEADLINE);
	CU_ASSERT(s >= 5.9 && s < 119);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "missing worker 1 (host "));
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "it is alive"));
	o = (struct other){.sleep_ms = 120000};
	CU_ASSERT_EQUAL(round_with(&o, 60000, 200000, 900, &s), PBOX_C_DEADLINE);
	CU_ASSERT(s >= 0.9 && s < 50);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "not complete after 0.9 s"));
}

static void
test_left(void)
{
	struct other o = {.leave = true};
	double s;

	CU_ASSERT_EQUAL(round_with(&o, 60000, 600000, 0, &s), PBOX_C_DEADLINE);
	CU_ASSERT(s < 50);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "as a worker has left or was refused: "));
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "missing worker 1 (host "));
	/* a time-out of the call's own as well */
	o = (struct other){.leave = true};
	CU_ASSERT_EQUAL(round_with(&o, 60000, 600000, 30000, &s), PBOX_C_DEADLINE);
	CU_ASSERT(s < 25);
}

/* Its number is taken again at once: nobody gives up. */
static void
test_back(void)
{
	struct other o = {.leave = true, .back = true, .sleep_ms = 300};
	double s;

	CU_ASSERT_EQUAL(round_with(&o, 60000, 600000, 0, &s), 0);
	CU_ASSERT_EQUAL(o.rc, 0);
}

/* In slices, as bindings do. */
static void
test_slices(void)
{
	struct box_conf conf = {.workers = 2};
	struct box *b = box_start(&conf);
	struct other o = {.b = b, .leave = true};
	struct pbox_client_waiting waiting = {0}, any = {0};
	static float v[N];
	struct pbox_client_io io = {0, v, v};
	pbox_client_handle h, later;
	struct pbox_client *c;
	unsigned slices = 0;
	int rc;

	pthread_create(&o.thread, NULL, other_main, &o);
	c = worker(b, 0, 60000, 600000, 0);
	CU_ASSERT_EQUAL(pbox_client_wait_on(c, 0, &any, 0, &err), PBOX_C_PENDING);
	CU_ASSERT_EQUAL(harness_submit(c, PBOX_CLIENT_PUSHPULL, &io, 1, 0, &h, &err), 0);
	CU_ASSERT_EQUAL(harness_submit(c, PBOX_CLIENT_PUSHPULL, &io, 1, 0, &later, &err), 0);
	CU_ASSERT_EQUAL(pbox_client_wait(c, later, 10, &err), PBOX_C_DEADLINE);
	while ((rc = pbox_client_wait_on(c, h, &waiting, 100, &err)) == PBOX_C_PENDING &&
		slices < 500)
		slices++;
	CU_ASSERT_EQUAL(rc, PBOX_C_DEADLINE);
	CU_ASSERT(slices > 0 && slices < 500);
	CU_ASSERT_EQUAL(pbox_client_wait_on(c, 0, &any, 0, &err), PBOX_C_DEADLINE);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "as a worker has left or was refused: "));
	pthread_join(o.thread, NULL);
	pbox_client_close(c);
	box_stop(b);
}

static void *
data_comes(void *b)
{
	usleep(3000000);
	box_no_data(b, false);
	return NULL;
}

/* A data core that gets no CPU for three seconds: joining has until its own deadline. */
static void
test_slow_data_core(void)
{
	struct box_conf conf = {.workers = 1, .no_data = true};
	struct box *b = box_start(&conf);
	struct pbox_client_conf cc = harness_conf(b, 0, 1);
	struct pbox_client *c = NULL;
	pthread_t thread;

	cc.join_timeout_ms = 120000;
	pthread_create(&thread, NULL, data_comes, b);
	CU_ASSERT_EQUAL(pbox_client_open(&c, &cc, &err), 0);
	pthread_join(thread, NULL);
	pbox_client_close(c);
	box_stop(b);
}

/* What goes extends the limit, by the time of all bytes at 1 Mbit/s in all. */
static void
test_progress(void)
{
	const uint64_t s = NS_PER_S, mb = 1000000; /* a MB takes 8 s */
	struct waiting w = {
		.began = 100 * s, .deadline = 110 * s, .last = 300 * s, .timeout = 10 * s};

	waiting_progress(&w, 10 * mb, 10 * mb, 105 * s);
	CU_ASSERT(w.deadline == 110 * s);
	waiting_progress(&w, 10 * mb, 9 * mb, 108 * s);
	CU_ASSERT(w.deadline == 118 * s);
	waiting_progress(&w, 10 * mb, 9 * mb, 117 * s); /* nothing more has gone */
	CU_ASSERT(w.deadline == 118 * s);
	waiting_progress(&w, 10 * mb, 8 * mb, 185 * s);
	CU_ASSERT(w.deadline == 190 * s); /* 10 s, and 80 s for the bytes */
	waiting_progress(&w, 10 * mb, 1 * mb, 189 * s);
	CU_ASSERT(w.deadline == 190 * s);
	w = (struct waiting){
		.began = 100 * s, .deadline = 110 * s, .timeout = 10 * s, .exact = true};
	waiting_progress(&w, 10 * mb, 9 * mb, 108 * s);
	CU_ASSERT(w.deadline == 110 * s);
}

#define HALF 60000
struct pair {
	const struct box *b;
	struct pbox_client *c[2];
};

static struct pbox_client *
pair_open(const struct box *b, int id)
{
	struct pbox_client_tensor tensor[2] = {{"first", HALF, 0}, {"second", HALF, 0}};
	struct pbox_client_table t = {.size = sizeof(t),
		.push_format = PBOX_FMT_FP32,
		.pull_format = PBOX_FMT_FP32,
		.n = 2,
		.tensors = tensor};
	struct pbox_client_conf conf = harness_conf(b, id, 2);
	struct pbox_client_error e;
	struct pbox_client *c = NULL;
	uint32_t number;

	if (pbox_client_open(&c, &conf, &e) != 0 ||
		pbox_client_declare(c, &t, 120000, &number, &e) != 0)
		fprintf(stderr, "%s\n", e.text);
	return c;
}

static void *
pair_second(void *arg)
{
	struct pair *p = arg;

	p->c[1] = pair_open(p->b, 1);
	return NULL;
}

/* The error says how much of an operation has gone. */
static void
test_bytes(void)
{
	static float v[2][2 * HALF];
	struct box_conf conf = {.workers = 2};
	struct box *b = box_start(&conf);
	struct pair p = {.b = b};
	struct pbox_client_io io[2][2] = {{{0, v[0], v[0]}, {1, v[0] + HALF, v[0] + HALF}},
		{{0, v[1], v[1]}, {1, v[1] + HALF, v[1] + HALF}}};
	pbox_client_handle h, first, second;
	struct waiting_why why = {0};
	pthread_t thread;

	pthread_create(&thread, NULL, pair_second, &p);
	p.c[0] = pair_open(b, 0);
	pthread_join(thread, NULL);
	CU_ASSERT_PTR_NOT_NULL_FATAL(p.c[0]);
	CU_ASSERT_PTR_NOT_NULL_FATAL(p.c[1]);
	CU_ASSERT_EQUAL(harness_submit(p.c[0], PBOX_CLIENT_PUSHPULL, io[0], 2, 0, &h, &err), 0);
	CU_ASSERT_EQUAL(harness_submit(p.c[1], PBOX_CLIENT_PUSHPULL, io[1], 1, 0, &first, &err), 0);
	/* who is missing is known from the box's answer to a probe, which a box without a CPU gives late */
	for (unsigned i = 0; i < 20; i++) {
		CU_ASSERT_EQUAL(pbox_client_wait(p.c[0], h, 1500, &err), PBOX_C_DEADLINE);
		if (strstr(err.text, "missing worker") != NULL)
			break;
	}
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, " of 0.48 MB are through ("));
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "missing worker 1"));
	waiting_why(p.c[0], &why);
	CU_ASSERT_EQUAL(why.on.bytes, 4 * 2 * HALF);
	CU_ASSERT(why.on.left >= 4 * HALF && why.on.left < 4 * 2 * HALF);
	CU_ASSERT_EQUAL(
		harness_submit(p.c[1], PBOX_CLIENT_PUSHPULL, io[1] + 1, 1, 0, &second, &err), 0);
	CU_ASSERT_EQUAL(pbox_client_wait(p.c[0], h, 120000, &err), 0);
	CU_ASSERT_EQUAL(pbox_client_wait(p.c[1], first, 120000, &err), 0);
	CU_ASSERT_EQUAL(pbox_client_wait(p.c[1], second, 120000, &err), 0);
	pbox_client_close(p.c[0]);
	pbox_client_close(p.c[1]);
	box_stop(b);
}

const struct unit_test unit_tests[] = {
	{"what goes extends the limit", test_progress},
	{"how much has gone is said", test_bytes},
	{"one that computes is waited for", test_alive},
	{"not one that waits for this one", test_circle},
	{"nor itself", test_itself},
	{"but not forever", test_bounds},
	{"one that has left is not waited for", test_left},
	{"unless it comes back", test_back},
	{"in slices", test_slices},
	{"a data core that is slow at the start", test_slow_data_core},
	{NULL, NULL},
};
