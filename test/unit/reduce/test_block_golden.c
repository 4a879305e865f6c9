/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* All implementations against test/golden/blocks.json, which was written from the specification. */

#include <string.h>

#include <jansson.h>

#include <pbox_reduce.h>

#include "unit.h"

const char unit_suite[] = "reduce: golden payloads in formats of blocks";

#define ELEMS_MAX 300

static void
bytes_of(json_t *c, const char *key, void *out, size_t n)
{
	const char *hex = json_string_value(json_object_get(c, key));
	unsigned byte;

	CU_ASSERT_PTR_NOT_NULL_FATAL(hex);
	CU_ASSERT_EQUAL_FATAL(strlen(hex), 2 * n);
	for (size_t i = 0; i < n; i++) {
		sscanf(hex + 2 * i, "%2x", &byte);
		((uint8_t *)out)[i] = (uint8_t)byte;
	}
}

static void
check(const struct pbox_reduce_ops *ops, json_t *c)
{
	const char *format = json_string_value(json_object_get(c, "format"));
	enum pbox_format f = strcmp(format, "int8") == 0 ? PBOX_FMT_INT8 : PBOX_FMT_MXFP4;
	size_t n = (size_t)json_integer_value(json_object_get(c, "elements"));
	size_t bytes = pbox_payload_bytes(f, n);
	float in[ELEMS_MAX], residual[ELEMS_MAX], after[ELEMS_MAX];
	uint8_t want[2 * ELEMS_MAX], got[2 * ELEMS_MAX];

	CU_ASSERT_FATAL(n <= ELEMS_MAX);
	bytes_of(c, "in", in, n * 4);
	bytes_of(c, "residual", residual, n * 4);
	bytes_of(c, "residual_after", after, n * 4);
	bytes_of(c, "payload", want, bytes);
	ops->encode(got, f, in, residual, n);
	if (memcmp(got, want, bytes) != 0 || memcmp(residual, after, n * 4) != 0) {
		printf("\n  %s: %s %s\n", ops->name, format,
			json_string_value(json_object_get(c, "name")));
		CU_FAIL("not the golden payload or residual");
	}
}

static void
test_every_implementation_makes_the_golden_payloads(void)
{
	json_t *golden = json_load_file(GOLDEN_BLOCKS, 0, NULL), *c;
	size_t i;

	CU_ASSERT_PTR_NOT_NULL_FATAL(golden);
	CU_ASSERT(json_array_size(json_object_get(golden, "cases")) > 0);
	for (unsigned k = 0; pbox_reduce_at(k) != NULL; k++) {
		if (!pbox_reduce_at(k)->usable())
			continue;
		json_array_foreach(json_object_get(golden, "cases"), i, c)
			check(pbox_reduce_at(k), c);
	}
	json_decref(golden);
}

const struct unit_test unit_tests[] = {
	{"every implementation makes the golden payloads",
		test_every_implementation_makes_the_golden_payloads},
	{NULL, NULL},
};
