/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <pthread.h>
#include <unistd.h>

#include <pbox_wire.h>

#include "harness.h"
#include "unit.h"

const char unit_suite[] = "client: who sees its frames, and answers in the box's name";

static struct pbox_client_error err;

static int
try_open(const struct box *b, const char *secret, struct pbox_client_error *e)
{
	struct pbox_client_conf conf = harness_conf(b, 0, 2);
	struct pbox_client *c = NULL;
	int rc;

	conf.join_timeout_ms = 120000;
	conf.secret = secret;
	rc = pbox_client_open(&c, &conf, e);
	if (rc == 0)
		pbox_client_close(c);
	return rc;
}

struct forged {
	pthread_t thread;
	struct box_conf box;
	int rc;
};

static void *
forged_main(void *arg)
{
	struct forged *f = arg;
	struct box *b = box_start(&f->box);
	struct pbox_client_error e;

	f->rc = try_open(b, f->box.insecure ? "" : "secret", &e);
	box_stop(b);
	return NULL;
}

/* R9.3: somebody sees the requests, and answers each of them before the box does. */
static void
test_forger(void)
{
	static const unsigned code[] = {PBOX_E_SECRET, PBOX_E_NO_JOB, PBOX_E_WORKERS,
		PBOX_E_BAD_REQUEST, PBOX_E_VERSION, PBOX_E_RUN_ENDED, PBOX_E_UNSUPPORTED};
	const unsigned n = 2 * sizeof(code) / sizeof(code[0]);
	struct forged f[2 * sizeof(code) / sizeof(code[0])];

	for (unsigned i = 0; i < n; i++) { /* at the same time: they wait */
		f[i] = (struct forged){
			.box = {.workers = 2, .forger = code[i / 2], .insecure = i % 2 != 0}};
		pthread_create(&f[i].thread, NULL, forged_main, &f[i]);
	}
	for (unsigned i = 0; i < n; i++) {
		pthread_join(f[i].thread, NULL);
		UNIT_EQ_U64(f[i].rc, 0);
	}
}

/* R9.3: and while the box is silent. Three in a row are believed, not two; each is asked for by an id of its own. */
static void
test_refused_while_silent(void)
{
	struct box_conf conf = {.workers = 2};
	struct box *b = box_start(&conf);

	box_refuse(b, PBOX_E_SECRET, 2, NULL);
	CU_ASSERT_EQUAL(try_open(b, "secret", &err), 0);
	UNIT_EQ_U64(box_said(b).asked, 3);
	box_refuse(b, PBOX_E_SECRET, 1000, "not the secret");
	CU_ASSERT_EQUAL(try_open(b, "secret", &err), PBOX_C_SECRET);
	HAS("go away");
	UNIT_EQ_U64(box_said(b).asked, 3 + 3);
	box_refuse(b, PBOX_E_WORKERS, 1000, "secret"); /* of the box itself */
	CU_ASSERT_EQUAL(try_open(b, "secret", &err), PBOX_C_MISMATCH);
	UNIT_EQ_U64(box_said(b).asked, 3 + 3 + 1);
	box_refuse(b, PBOX_E_UNSUPPORTED, 1000, "secret"); /* R4.10: with its sentence, at once */
	CU_ASSERT_EQUAL(try_open(b, "secret", &err), PBOX_C_VERSION);
	HAS("go away");
	UNIT_EQ_U64(box_said(b).asked, 3 + 3 + 2);
	box_stop(b);
}

/* R4.9: what the box asks for comes back once, with the same nonce, to the endpoint that asked. */
static void
test_echoes(void)
{
	struct box_conf conf = {.workers = 1, .endpoints = 2, .lease_ms = 600000};

	for (unsigned auth = 0; auth < 2; auth++) {
		struct pbox_client_conf wanted;
		struct box *b;
		struct pbox_client *c;

		conf.auth = auth != 0;
		b = box_start(&conf);
		wanted = harness_conf(b, 0, 1);
		CU_ASSERT_EQUAL_FATAL(pbox_client_open(&c, &wanted, &err), 0);
		for (unsigned i = 1; i <= 6; i++) {
			uint64_t nonce = UINT64_C(0x123456789ABCDEF0) << i;
			double t0 = harness_seconds();

			box_ping(b, 0, i % 3, nonce);
			while (box_counts(b).echoes < i && harness_seconds() - t0 < 120)
				usleep(100);
			UNIT_EQ_U64(box_counts(b).echoes, i);
			UNIT_EQ_U64(box_counts(b).echo, nonce);
			UNIT_EQ_U64(box_counts(b).echo_at, i % 3);
		}
		pbox_client_close(c);
		box_stop(b);
	}
}

const struct unit_test unit_tests[] = {
	{"somebody refuses before the box answers", test_forger},
	{"somebody refuses while the box is silent", test_refused_while_silent},
	{"the box asks whether an address is this worker's", test_echoes},
	{NULL, NULL},
};
