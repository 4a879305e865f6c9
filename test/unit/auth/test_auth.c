/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Keys, digests and tags against the golden frames, which the Python of test/spec has made from the
 * specification and checked with the vectors of the standards; and every implementation of digests. */

#include <stdio.h>
#include <stdlib.h>

#include <jansson.h>
#include <sodium.h>

#include <pbox_auth.h>

#include "unit.h"

#define LONGEST 65535

const char unit_suite[] = "auth: keys, digests, tags";

static json_t *golden;
static struct pbox_auth_keys keys;
static char secret[64];
static uint32_t incarnation;
static uint16_t job_number;

static size_t
from_hex(const char *hex, uint8_t *out, size_t cap)
{
	size_t n = strlen(hex) / 2;

	CU_ASSERT_FATAL(n <= cap);
	for (size_t i = 0; i < n; i++) {
		unsigned byte;

		CU_ASSERT_FATAL(sscanf(hex + 2 * i, "%2x", &byte) == 1);
		out[i] = (uint8_t)byte;
	}
	return n;
}

static uint64_t
number(const char *name)
{
	return (uint64_t)json_integer_value(
		json_object_get(json_object_get(json_object_get(golden, "auth"), "welcome"), name));
}

static const char *
text(const char *name)
{
	return json_string_value(json_object_get(json_object_get(golden, "auth"), name));
}

static void
load(void)
{
	json_error_t error;
	struct pbox_welcome w = {0};

	if (golden != NULL)
		return;
	CU_ASSERT_FATAL(sodium_init() >= 0);
	golden = json_load_file(GOLDEN_FRAMES, 0, &error);
	CU_ASSERT_PTR_NOT_NULL_FATAL(golden);
	snprintf(secret, sizeof(secret), "%s", text("secret"));
	w.token = number("token");
	w.nonce = number("nonce");
	w.worker = (uint16_t)number("worker");
	w.job = job_number = (uint16_t)number("job");
	w.incarnation = incarnation = (uint32_t)number("incarnation");
	pbox_auth_keys(&keys, secret, strlen(secret), &w);
}

static struct pbox_auth_job *
job(const struct pbox_auth_ops *ops)
{
	struct pbox_auth_job *j =
		pbox_auth_job_create(ops, secret, strlen(secret), incarnation, job_number);

	CU_ASSERT_PTR_NOT_NULL_FATAL(j);
	return j;
}

/* R11.2, and that nothing of what keys are made from is left out. */
static void
test_keys(void)
{
	struct pbox_welcome w = {.token = 1, .nonce = 2, .incarnation = 3, .job = 4, .worker = 5};
	struct pbox_auth_keys a, b;
	uint8_t want[PBOX_AUTH_KEY_LEN];

	load();
	from_hex(text("worker_key"), want, sizeof(want));
	CU_ASSERT_EQUAL(memcmp(keys.worker, want, sizeof(want)), 0);
	from_hex(text("box_key"), want, sizeof(want));
	CU_ASSERT_EQUAL(memcmp(keys.box, want, sizeof(want)), 0);
	pbox_auth_keys(&a, "secret", 6, &w);
	pbox_auth_keys(&b, "secret", 5, &w);
	CU_ASSERT_NOT_EQUAL(memcmp(&a, &b, sizeof(a)), 0);
	for (unsigned i = 0; i < 5; i++) {
		struct pbox_welcome x = w;

		x.token += i == 0;
		x.nonce += i == 1;
		x.incarnation += i == 2;
		x.job += i == 3;
		x.worker += i == 4;
		pbox_auth_keys(&b, "secret", 6, &x);
		CU_ASSERT_NOT_EQUAL(memcmp(a.worker, b.worker, sizeof(a.worker)), 0);
		CU_ASSERT_NOT_EQUAL(memcmp(a.box, b.box, sizeof(a.box)), 0);
	}
	CU_ASSERT_NOT_EQUAL(memcmp(a.worker, a.box, sizeof(a.box)), 0);
}

static void
check_frame(const struct pbox_auth_job *j, json_t *f)
{
	static uint8_t raw[4096], out[4096];
	size_t n = from_hex(json_string_value(json_object_get(f, "hex")), raw, sizeof(raw)), size;
	bool box = json_is_true(json_object_get(f, "from_box"));
	const uint8_t *key = box ? keys.box : keys.worker;
	uint8_t *payload = raw + PBOX_HDR_LEN;
	struct pbox_hdr h;

	UNIT_EQ_U64(pbox_frame_decode(raw, n, true, &h, &size), PBOX_WIRE_OK);
	UNIT_EQ_U64(size, n);
	CU_ASSERT(pbox_auth_good(key, j, payload, h.length));
	CU_ASSERT_FALSE(pbox_auth_good(box ? keys.worker : keys.box, j, payload, h.length));
	memcpy(out + PBOX_HDR_LEN, payload, h.length);
	UNIT_EQ_U64(pbox_auth_seal(key, j, out, &h), n);
	CU_ASSERT_EQUAL(memcmp(out, raw, n), 0);
	/* any bit: of the header, its CRC, the payload, the tag */
	for (size_t i = 0; i < 8 * n; i++) {
		raw[i / 8] ^= (uint8_t)(1 << i % 8);
		CU_ASSERT_FALSE(pbox_auth_good(key, j, payload, h.length));
		raw[i / 8] ^= (uint8_t)(1 << i % 8);
	}
}

static void
test_golden(void)
{
	json_t *names, *frames;
	const struct pbox_auth_ops *ops;
	unsigned checked = 0, usable = 0;

	load();
	names = json_object_get(json_object_get(golden, "auth"), "frames");
	frames = json_object_get(golden, "frames");
	for (unsigned i = 0; (ops = pbox_auth_at(i)) != NULL; i++) {
		struct pbox_auth_job *j;

		if (!ops->usable())
			continue;
		usable++;
		j = job(ops);
		for (size_t k = 0; k < json_array_size(frames); k++) {
			json_t *f = json_array_get(frames, k), *name = json_object_get(f, "name");

			for (size_t m = 0; m < json_array_size(names); m++)
				if (json_equal(json_array_get(names, m), name)) {
					check_frame(j, f);
					checked++;
				}
		}
		pbox_auth_job_destroy(j);
	}
	printf("  %u implementations, %u frames\n", usable, checked);
	CU_ASSERT(usable > 0);
	UNIT_EQ_U64(checked, usable * json_array_size(names));
}

/* All implementations make the same digests, of every length and from every address. */
static void
test_digests(void)
{
	static uint8_t room[LONGEST + 64];
	const struct pbox_auth_ops *ops;
	struct pbox_auth_job *first, *other;

	load();
	for (size_t i = 0; i < sizeof(room); i++)
		room[i] = (uint8_t)(i * 7 + (i >> 8));
	first = job(&pbox_auth_sodium);
	for (unsigned i = 0; (ops = pbox_auth_at(i)) != NULL; i++) {
		if (!ops->usable())
			continue;
		CU_ASSERT_PTR_EQUAL(pbox_auth_select(ops->name), ops);
		other = job(ops);
		for (size_t n = 0; n <= LONGEST; n += n < 300 ? 1 : n / 5) {
			const uint8_t *p = room + n % 64;
			uint8_t a[PBOX_AUTH_DIGEST_LEN], b[PBOX_AUTH_DIGEST_LEN];

			pbox_auth_digest(first, p, n, a);
			pbox_auth_digest(other, p, n, b);
			CU_ASSERT_EQUAL(memcmp(a, b, sizeof(a)), 0);
			CU_ASSERT_EQUAL(sodium_is_zero(a, sizeof(a)), n == 0);
		}
		pbox_auth_job_destroy(other);
	}
	pbox_auth_job_destroy(first);
	CU_ASSERT_PTR_NULL(pbox_auth_select("none such"));
	pbox_auth_job_destroy(NULL);
}

/* The digest depends on the secret, the incarnation and the job. */
static void
test_job_keys(void)
{
	uint8_t d[4][PBOX_AUTH_DIGEST_LEN];
	struct pbox_auth_job *j[4];

	load();
	j[0] = pbox_auth_job_create(NULL, "a", 1, 1, 1);
	j[1] = pbox_auth_job_create(NULL, "b", 1, 1, 1);
	j[2] = pbox_auth_job_create(NULL, "a", 1, 2, 1);
	j[3] = pbox_auth_job_create(NULL, "a", 1, 1, 2);
	for (unsigned i = 0; i < 4; i++) {
		CU_ASSERT_PTR_NOT_NULL_FATAL(j[i]);
		pbox_auth_digest(j[i], "payload", 7, d[i]);
		for (unsigned k = 0; k < i; k++)
			CU_ASSERT_NOT_EQUAL(memcmp(d[i], d[k], sizeof(d[i])), 0);
	}
	for (unsigned i = 0; i < 4; i++)
		pbox_auth_job_destroy(j[i]);
}

const struct unit_test unit_tests[] = {
	{"keys of sessions (R11.2)", test_keys},
	{"golden frames, and any bit of them", test_golden},
	{"digests are the same by all", test_digests},
	{"keys of jobs", test_job_keys},
	{NULL, NULL},
};
