/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <string.h>

#include <pbox_base.h>

#include "unit.h"

const char unit_suite[] = "base";

static void
test_random_is_xoshiro256ss(void)
{
	/* first outputs for the state 1, 2, 3, 4, computed by hand from the published algorithm */
	struct pbox_random r = {{1, 2, 3, 4}};

	UNIT_EQ_U64(pbox_random_u64(&r), 11520);
	UNIT_EQ_U64(pbox_random_u64(&r), 0);
	UNIT_EQ_U64(pbox_random_u64(&r), 1509978240);
}

static void
test_random_below_is_uniform(void)
{
	struct pbox_random r;
	unsigned seen[7] = {0};

	pbox_random_seed(&r, 42);
	for (unsigned i = 0; i < 70000; i++)
		seen[pbox_random_below(&r, 7)]++;
	for (unsigned i = 0; i < 7; i++)
		CU_ASSERT(seen[i] > 9500 && seen[i] < 10500);
	for (unsigned i = 0; i < 1000; i++) {
		double u = pbox_random_unit(&r);

		CU_ASSERT(u >= 0.0 && u < 1.0);
	}
}

static void
test_fail_fills_the_error(void)
{
	struct pbox_error err;

	CU_ASSERT_EQUAL(pbox_fail(&err, 22, "port %d has no link", 3), -22);
	CU_ASSERT_EQUAL(err.code, 22);
	CU_ASSERT_STRING_EQUAL(err.text, "port 3 has no link");
	CU_ASSERT_EQUAL(pbox_fail(NULL, 5, "x"), -5);
}

static void
collect(enum pbox_log_level level, const char *line, void *ctx)
{
	(void)level;
	strcat(strcat((char *)ctx, line), ";");
}

static void
test_log_respects_the_level(void)
{
	char got[128] = "";

	pbox_log_to(collect, got, PBOX_LOG_WARN);
	pbox_log(PBOX_LOG_ERROR, "e%d", 1);
	pbox_log(PBOX_LOG_WARN, "w");
	pbox_log(PBOX_LOG_INFO, "i");
	pbox_log_to(NULL, NULL, PBOX_LOG_ERROR);
	pbox_log(PBOX_LOG_ERROR, "nowhere");
	CU_ASSERT_STRING_EQUAL(got, "e1;w;");
}

/* Names that others chose are in lines: each stays one line. */
static void
test_log_lines_are_tame(void)
{
	char got[128] = "";

	pbox_log_to(collect, got, PBOX_LOG_WARN);
	pbox_log(PBOX_LOG_WARN, "host '%s'", "a\nb\x1b[2J\x7f\tö");
	pbox_log_to(NULL, NULL, PBOX_LOG_ERROR);
	CU_ASSERT_STRING_EQUAL(got, "host 'a?b?[2J??ö';");
}

static void
test_sizes_and_serials(void)
{
	size_t out = 7;

	CU_ASSERT_TRUE(pbox_size_madd(3, 4, 5, &out));
	UNIT_EQ_U64(out, 17);
	CU_ASSERT_FALSE(pbox_size_madd(SIZE_MAX / 2, 3, 0, &out));
	CU_ASSERT_FALSE(pbox_size_madd(SIZE_MAX, 1, 1, &out));
	CU_ASSERT_EQUAL(pbox_serial_diff(1, UINT32_MAX), 2);
	CU_ASSERT_EQUAL(pbox_serial_diff(UINT32_MAX, 1), -2);
	UNIT_EQ_U64(pbox_pad_line(0), 0);
	UNIT_EQ_U64(pbox_pad_line(1), 64);
	UNIT_EQ_U64(pbox_pad_line(64), 64);
	UNIT_EQ_U64(pbox_pad_line(65), 128);
}

const struct unit_test unit_tests[] = {
	{"random numbers are xoshiro256**", test_random_is_xoshiro256ss},
	{"random_below is uniform", test_random_below_is_uniform},
	{"pbox_fail fills the error", test_fail_fills_the_error},
	{"the log respects its level", test_log_respects_the_level},
	{"log lines are tame", test_log_lines_are_tame},
	{"checked sizes and serial numbers", test_sizes_and_serials},
	{NULL, NULL},
};
