/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* What a worker sends while its program asks for nothing. */

#include <stdio.h>
#include <unistd.h>

#include "client_impl.h"
#include "harness.h"
#include "unit.h"

const char unit_suite[] = "client: signs of life";

static struct pbox_client *
one_worker(const struct box *b)
{
	struct pbox_client_conf conf = harness_conf(b, 0, 1);
	struct pbox_client_error err = {0};
	struct pbox_client *c = NULL;

	if (pbox_client_open(&c, &conf, &err) != 0)
		CU_assertImplementation(CU_FALSE, __LINE__, err.text, __FILE__, "", CU_TRUE);
	return c;
}

static void
test_keep_alive(void)
{
	struct box_conf conf = {.workers = 1, .lease_ms = 200};
	struct box *b = box_start(&conf);
	struct pbox_client *c = one_worker(b);
	uint64_t came = 0;
	double t0 = 0;

	/* a while in which this process had its CPU */
	for (unsigned i = 0; i < 200 && (i == 0 || came < 6); i++) {
		uint64_t before = box_counts(b).rx_frames;

		t0 = harness_seconds();
		usleep(600000);
		came = box_counts(b).rx_frames - before;
	}
	CU_ASSERT(came >= 6);
	CU_ASSERT((double)came <= 20 * (harness_seconds() - t0) / 0.6);
	pbox_client_close(c);
	box_stop(b);
}

/* R4.6: the box asks whether this worker lives; its program is busy, the answer comes at once. */
static void
test_answers_ping(void)
{
	struct box_conf conf = {.workers = 1, .lease_ms = 60000};
	struct box *b = box_start(&conf);
	struct pbox_client *c = one_worker(b);
	uint64_t before = box_counts(b).pings;
	double t0, longest = 0;

	for (unsigned i = 1; i <= 20; i++) {
		box_ping(b, 0, 0, 0);
		for (t0 = harness_seconds(); harness_seconds() - t0 < 120;)
			if (box_counts(b).pings == before + i)
				break;
		if (harness_seconds() - t0 > longest)
			longest = harness_seconds() - t0;
	}
	UNIT_EQ_U64(box_counts(b).pings, before + 20);
	printf("within %.1f ms ... ", 1e3 * longest);
	pbox_client_close(c);
	box_stop(b);
}

/** Several threads go on each by itself as soon as a session is open. */
static void
test_threads_alone(void)
{
	struct box_conf conf = {.workers = 1};
	struct box *b = box_start(&conf);
	struct pbox_client *c = one_worker(b);
	bool steady = box_threads == 1;

	for (unsigned i = 0; i < 4000 && !steady; i++) {
		usleep(5000);
		pthread_mutex_lock(&c->lane[1].lock);
		steady = pbox_worker_steady(c->w, 1, 0);
		pthread_mutex_unlock(&c->lane[1].lock);
	}
	CU_ASSERT(steady);
	pbox_client_close(c);
	box_stop(b);
}

const struct unit_test unit_tests[] = {
	{"keep-alive", test_keep_alive},
	{"a PING of the box is answered", test_answers_ping},
	{"threads by themselves", test_threads_alone},
	{NULL, NULL},
};
