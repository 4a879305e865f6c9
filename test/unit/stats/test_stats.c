/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include <pbox_stats.h>

#include "unit.h"

const char unit_suite[] = "stats";

enum { RX_FRAMES, RX_BYTES, DROP_ROUND_STALE, RX_STATS };

static const struct pbox_stat_def rx_defs[RX_STATS] = {
	[RX_FRAMES] = {"rx_frames", "frames", "frames received", PBOX_STAT_COUNTER},
	[RX_BYTES] = {"rx_bytes", "bytes", "bytes received", PBOX_STAT_COUNTER},
	[DROP_ROUND_STALE] = {"drop_round_stale", "frames", "frames of an old round",
		PBOX_STAT_COUNTER},
};

static void
test_index_and_upper_agree(void)
{
	struct pbox_random r;

	pbox_random_seed(&r, 1);
	for (unsigned i = 0; i < PBOX_HIST_BUCKETS - 1; i++) {
		UNIT_EQ_U64(pbox_hist_index(pbox_hist_upper(i)), i);
		UNIT_EQ_U64(pbox_hist_index(pbox_hist_upper(i) + 1), i + 1);
	}
	UNIT_EQ_U64(pbox_hist_index(UINT64_MAX), PBOX_HIST_BUCKETS - 1);
	UNIT_EQ_U64(pbox_hist_index((UINT64_C(1) << PBOX_HIST_BITS) - 1), PBOX_HIST_BUCKETS - 1);
	for (unsigned i = 0; i < 100000; i++) {
		uint64_t v = pbox_random_u64(&r) >> (25 + pbox_random_below(&r, 39)), upper;

		upper = pbox_hist_upper(pbox_hist_index(v));
		CU_ASSERT(upper >= v);
		if (upper != UINT64_MAX)
			CU_ASSERT(upper - v <= v / 32);
	}
}

static int
compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void
test_percentiles(void)
{
	static const double percents[] = {0, 1, 50, 90, 99, 99.9, 100};
	static struct pbox_hist h, empty;
	static uint64_t v[20000];
	struct pbox_random r;
	uint64_t sum = 0;

	UNIT_EQ_U64(pbox_hist_percentile(&empty, 50), 0);
	pbox_random_seed(&r, 7);
	for (unsigned i = 0; i < 20000; i++) {
		v[i] = pbox_random_u64(&r) >> (30 + pbox_random_below(&r, 34));
		sum += v[i];
		pbox_hist_add(&h, v[i]);
	}
	qsort(v, 20000, sizeof(v[0]), compare);
	UNIT_EQ_U64(pbox_hist_count(&h), 20000);
	UNIT_EQ_U64(h.sum, sum);
	UNIT_EQ_U64(h.max, v[19999]);
	for (unsigned i = 0; i < 7; i++) {
		double at = percents[i] / 100 * 20000;
		uint64_t rank = (uint64_t)at + ((double)(uint64_t)at < at), got, want;

		want = v[rank > 0 ? rank - 1 : 0];
		got = pbox_hist_percentile(&h, percents[i]);
		CU_ASSERT(got >= want && got - want <= want / 32);
	}
	UNIT_EQ_U64(pbox_hist_percentile(&h, 100), h.max);
	UNIT_EQ_U64(pbox_hist_percentile(&h, 1e9), h.max);
	CU_ASSERT(pbox_hist_percentile(&h, -3) <= v[0] + v[0] / 32);
}

static void
test_merge_is_the_union(void)
{
	static struct pbox_hist a, b, both;

	for (uint64_t i = 0; i < 5000; i++) {
		pbox_hist_add(i % 3 ? &a : &b, i * i);
		pbox_hist_add(&both, i * i);
	}
	pbox_hist_merge(&a, &b);
	CU_ASSERT_EQUAL(memcmp(&a, &both, sizeof(a)), 0);
}

static void
test_huge_values_share_the_last_bucket(void)
{
	static struct pbox_hist h;

	pbox_hist_add(&h, UINT64_C(1) << 62);
	pbox_hist_add(&h, 3);
	UNIT_EQ_U64(pbox_hist_percentile(&h, 50), 3);
	UNIT_EQ_U64(pbox_hist_percentile(&h, 99), UINT64_C(1) << 62);
}

static void
test_register(void)
{
	struct pbox_stats *s = pbox_stats_new(2);
	uint64_t v[RX_STATS] = {1, 2, 3}, w[RX_STATS] = {10, 20, 30};
	struct pbox_error err;

	UNIT_EQ_U64(pbox_stats_register(s, "core", "core=1", rx_defs, RX_STATS, v, &err), 0);
	CU_ASSERT_EQUAL(
		pbox_stats_register(s, "core", "core=1", rx_defs, RX_STATS, v, &err), -EEXIST);
	CU_ASSERT_STRING_EQUAL(err.text, "statistics core{core=1} are registered already");
	UNIT_EQ_U64(pbox_stats_register(s, "core", "core=2", rx_defs, RX_STATS, w, &err), 0);
	CU_ASSERT_EQUAL(
		pbox_stats_register(s, "core", "core=3", rx_defs, RX_STATS, v, &err), -ENOSPC);
	UNIT_EQ_U64(pbox_stats_total(s, "core", "rx_bytes"), 22);
	UNIT_EQ_U64(pbox_stats_total(s, "port", "rx_bytes"), 0);
	UNIT_EQ_U64(pbox_stats_total(s, "core", "nothing"), 0);
	pbox_stats_free(s);
	pbox_stats_free(NULL);
}

static void
test_malformed_names_are_refused(void)
{
	static const struct pbox_stat_def twice[] = {
		{"rx", "frames", "x", PBOX_STAT_COUNTER}, {"rx", "frames", "x", PBOX_STAT_COUNTER}};
	static const struct pbox_stat_def upper[] = {{"Rx", "frames", "x", PBOX_STAT_COUNTER}};
	static const struct pbox_stat_def no_help[] = {{"rx", "frames", NULL, PBOX_STAT_COUNTER}};
	static const char *const bad_labels[] = {"core", "core=", "=1", "core=1,", "core=1,,a=2",
		"core=\"", "core=1=2", "C=1", "c=\n"};
	struct pbox_stats *s = pbox_stats_new(20);
	uint64_t v[2] = {0};

	CU_ASSERT_EQUAL(pbox_stats_register(s, "x", "", twice, 2, v, NULL), -EINVAL);
	CU_ASSERT_EQUAL(pbox_stats_register(s, "x", "", upper, 1, v, NULL), -EINVAL);
	CU_ASSERT_EQUAL(pbox_stats_register(s, "x", "", no_help, 1, v, NULL), -EINVAL);
	CU_ASSERT_EQUAL(pbox_stats_register(s, "x", "", twice, 0, v, NULL), -EINVAL);
	CU_ASSERT_EQUAL(pbox_stats_register(s, "", "", twice, 1, v, NULL), -EINVAL);
	CU_ASSERT_EQUAL(pbox_stats_register(s, "a-b", "", twice, 1, v, NULL), -EINVAL);
	for (unsigned i = 0; i < sizeof(bad_labels) / sizeof(bad_labels[0]); i++)
		CU_ASSERT_EQUAL(
			pbox_stats_register(s, "x", bad_labels[i], twice, 1, v, NULL), -EINVAL);
	pbox_stats_free(s);
}

static void
test_definitions_are_json(void)
{
	static const struct pbox_stat_def quoted[] = {
		{"rx", "frames", "a \"frame\" of \\", PBOX_STAT_GAUGE}};
	static const struct pbox_stats_table tables[] = {
		{"core", "a core", rx_defs, RX_STATS}, {"x", "more", quoted, 1}};
	char buf[1024];
	FILE *to = fmemopen(buf, sizeof(buf), "w");
	const char *help, *kind;
	json_t *j;

	CU_ASSERT_PTR_NOT_NULL_FATAL(to);
	pbox_stats_defs_json(tables, 2, to);
	fclose(to);
	j = json_loads(buf, 0, NULL);
	CU_ASSERT_PTR_NOT_NULL_FATAL(j);
	UNIT_EQ_U64(json_array_size(j), RX_STATS + 1);
	CU_ASSERT_EQUAL(
		json_unpack(json_array_get(j, RX_STATS), "{ssss}", "help", &help, "kind", &kind),
		0);
	CU_ASSERT_STRING_EQUAL(help, quoted[0].help);
	CU_ASSERT_STRING_EQUAL(kind, "gauge");
	json_decref(j);
}

struct writer {
	uint64_t *v;
	bool *go;
};

static void *
write_values(void *ctx)
{
	struct writer *w = ctx;

	for (unsigned i = 0; i < 1000000; i++) {
		pbox_stat_add(&w->v[RX_FRAMES], 1);
		if (i == 1000)
			__atomic_store_n(w->go, true, __ATOMIC_RELEASE);
	}
	return NULL;
}

static void
test_a_reader_sees_a_growing_counter(void)
{
	uint64_t v[RX_STATS] = {0}, last = 0;
	bool go = false;
	struct writer w = {v, &go};
	struct pbox_stats *s = pbox_stats_new(1);
	pthread_t thread;

	pbox_stats_register(s, "core", "", rx_defs, RX_STATS, v, NULL);
	CU_ASSERT_EQUAL_FATAL(pthread_create(&thread, NULL, write_values, &w), 0);
	while (!__atomic_load_n(&go, __ATOMIC_ACQUIRE))
		;
	while (last < 1000000) {
		uint64_t now = pbox_stats_total(s, "core", "rx_frames");

		CU_ASSERT_FATAL(now >= last && now >= 1000);
		last = now;
	}
	pthread_join(thread, NULL);
	pbox_stats_free(s);
}

const struct unit_test unit_tests[] = {
	{"bucket index and bound agree", test_index_and_upper_agree},
	{"percentiles are within 1/32 of the sorted truth", test_percentiles},
	{"merging is the union", test_merge_is_the_union},
	{"huge values share the last bucket", test_huge_values_share_the_last_bucket},
	{"blocks are registered", test_register},
	{"malformed names are refused", test_malformed_names_are_refused},
	{"definitions are JSON", test_definitions_are_json},
	{"a reader sees a growing counter", test_a_reader_sees_a_growing_counter},
	{NULL, NULL},
};
