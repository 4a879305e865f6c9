/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

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
	pbox_log(PBOX_LOG_WARN, "host '%s'",
		"a\nb\x1b[2J\x7f\tö\xc2\x9b"
		"2J");
	pbox_log_to(NULL, NULL, PBOX_LOG_ERROR);
	CU_ASSERT_STRING_EQUAL(got, "host 'a?b?[2J??ö??2J';");
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

/* sanitizers bring an allocator of their own */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
#define OTHER_HEAP true
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define OTHER_HEAP true
#endif
#endif
#ifndef OTHER_HEAP
#define OTHER_HEAP false
#endif

enum { BLOCKS = 64, BLOCK = 50000 };

/* As a thread of telemetry does: a lot of blocks, and all given back. */
static void *
take_and_free(void *pages)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	void **seen = pages, *block[BLOCKS];

	for (unsigned i = 0; i < BLOCKS; i++) {
		block[i] = malloc(BLOCK);
		if (block[i] == NULL)
			return NULL;
		memset(block[i], 1, BLOCK);
		/* a whole one inside of it */
		seen[i] = (void *)(((uintptr_t)block[i] + 2 * page) & ~(page - 1));
	}
	for (unsigned i = 0; i < BLOCKS; i++)
		free(block[i]);
	return pages;
}

static void
test_freed_pages_are_kept(void)
{
	void *seen[BLOCKS], *done = NULL;
	unsigned char there = 0;
	unsigned kept = 0;
	pthread_t t;

	if (OTHER_HEAP)
		return;
	pbox_keep_heap();
	CU_ASSERT_EQUAL_FATAL(pthread_create(&t, NULL, take_and_free, seen), 0);
	CU_ASSERT_EQUAL_FATAL(pthread_join(t, &done), 0);
	CU_ASSERT_PTR_NOT_NULL_FATAL(done);
	for (unsigned i = 0; i < BLOCKS; i++)
		kept += mincore(seen[i], 1, &there) == 0 && (there & 1) != 0;
	CU_ASSERT_EQUAL(kept, BLOCKS);
}

static void
test_texts_of_others_are_masked(void)
{
	static const struct {
		const char *text, *masked;
	} t[] = {
		{"", ""},
		{"plain ~ !", "plain ~ !"},
		{"a\nb\tc\033[2J\177", "a?b?c?[2J?"},
		{"b\303\274ro \342\202\254 \360\237\230\200",
			"b\303\274ro \342\202\254 \360\237\230\200"},
		{"\302\233"
		 "31m",
			"??31m"}, /* CSI as a character, */
		{"x\233"
		 "31m",
			"x?31m"}, /* as a byte, */
		{"\303\251\233"
		 "31m",
			"\303\251?31m"}, /* after one that is whole, */
		{"\377\233"
		 "31m",
			"??31m"},                    /* after one that is none */
		{"\302\240\302\205", "\302\240??"},  /* no-break space stays, NEL does not */
		{"\300\233 \340\202\233", "?? ???"}, /* longer than they may be */
		{"cut \342\202", "cut ??"},
		{"\364\217\277\277 \365\200\200\200", "\364\217\277\277 ????"},
	};

	for (unsigned i = 0; i < sizeof(t) / sizeof(t[0]); i++) {
		char text[32];

		snprintf(text, sizeof(text), "%s", t[i].text);
		pbox_mask(text);
		CU_ASSERT_STRING_EQUAL(text, t[i].masked);
	}
}

const struct unit_test unit_tests[] = {
	{"random numbers are xoshiro256**", test_random_is_xoshiro256ss},
	{"random_below is uniform", test_random_below_is_uniform},
	{"pbox_fail fills the error", test_fail_fills_the_error},
	{"the log respects its level", test_log_respects_the_level},
	{"log lines are tame", test_log_lines_are_tame},
	{"texts of others are masked", test_texts_of_others_are_masked},
	{"freed pages stay with the process", test_freed_pages_are_kept},
	{"checked sizes and serial numbers", test_sizes_and_serials},
	{NULL, NULL},
};
