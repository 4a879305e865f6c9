/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>

#include <pbox_wire.h>

#include "harness.h"
#include "unit.h"

const char unit_suite[] = "client: rounds through a box";

static const struct pbox_client_tensor model[] = {
	{"conv1.weight", 5000, 0},
	{"conv1.bias", 64, 0},
	{"bn1.weight", 64, 0},
	{"bn1.bias", 64, 0},
	{"scalar", 1, 0},
	{"empty", 0, 0},
	{"fc.weight", 40961, 0},
	{"fc.bias", 353, 1},
	{"one", 1, 1},
	{"fragment", 352, 1},
	{"fragment+1", 353, 0},
};
#define MODEL (sizeof(model) / sizeof(model[0]))

static struct run
plain(unsigned workers)
{
	return (struct run){.box = {.workers = workers, .seed = workers},
		.tensors = model,
		.n = MODEL,
		.rounds = 3,
		.push_format = PBOX_FMT_FP32,
		.pull_format = PBOX_FMT_FP32};
}

static void
good(const struct run *r)
{
	struct run_result out;

	harness_run(r, &out);
	if (out.failed != 0)
		CU_assertImplementation(CU_FALSE, __LINE__, out.text, __FILE__, "", CU_FALSE);
	UNIT_EQ_U64(out.failed, 0);
	UNIT_EQ_U64(out.mismatches, 0);
	CU_ASSERT(out.failed != 0 || out.checked > 0 || r->n < 3);
	UNIT_EQ_U64(out.box.malformed, 0);
}

static void
test_sums(void)
{
	for (unsigned n = 1; n <= 4; n *= 2) {
		struct run r = plain(n);

		good(&r);
		r.per_tensor = true;
		good(&r);
		r.in_place = true;
		r.box.endpoints = 3;
		good(&r);
	}
}

static void
test_formats(void)
{
	struct run r = plain(2);

	r.push_format = r.pull_format = PBOX_FMT_BF16;
	good(&r);
	r.pull_format = PBOX_FMT_FP32;
	r.op = PBOX_OP_MEAN;
	good(&r);
}

static void
test_sizes_of_frames(void)
{
	struct run r = plain(2);

	r.box.mtu = 9000;
	good(&r);
	r.gso = -1;
	r.box.mtu = 4000;
	good(&r);
	r.window = 1;
	r.box.mtu = 1500;
	good(&r);
}

static void
test_empty_list_and_many_tables(void)
{
	static const struct pbox_client_tensor nothing[] = {{"a", 0, 0}, {"b", 0, 0}};
	struct run r = plain(2);

	r.tables = 4;
	good(&r);
	r.n = 0;
	good(&r);
	r.n = 2;
	r.tensors = nothing;
	good(&r);
}

static void
test_push_then_pull(void)
{
	struct run r = plain(2);

	r.push_then_pull = true;
	r.rounds = 4;
	good(&r);
	r.box.loss = 0.02;
	r.box.dup = 0.02;
	good(&r);
}

static void
test_loss(void)
{
	static const double loss[] = {0.02, 0.1, 0.3};

	for (unsigned i = 0; i < 3; i++)
		for (unsigned n = 1; n <= 4; n *= 2) {
			struct run r = plain(n);

			r.box.loss = loss[i];
			r.box.seed = 10 * n + i;
			r.rounds = 2;
			r.per_tensor = i == 1;
			r.box.endpoints = n;
			good(&r);
		}
}

static void
test_taken_back(void)
{
	for (unsigned i = 0; i < 2; i++) {
		struct run r = plain(2);
		struct run_result out;

		r.box.take_back = 7;
		r.box.take_back_ts = i == 1;
		harness_run(&r, &out);
		UNIT_EQ_U64(out.failed, 0);
		UNIT_EQ_U64(out.mismatches, 0);
		CU_ASSERT(out.box.taken_back > 0);
		/* repeated at once, not asked about; but a processor may be away for long */
		CU_ASSERT(out.box.asked_after <= out.box.taken_back / 4);
	}
}

/** Who gets no answer because the box has no CPU asks for a few fragments, not for all. */
static void
test_probes_of_a_slow_box(void)
{
	static const struct pbox_client_tensor big[] = {{"big", 2000000, 0}};
	struct run r = {.box = {.workers = 2, .work_ms = 25, .pause_ms = 75},
		.tensors = big,
		.n = 1,
		.rounds = 3,
		.timeout_ms = 120000,
		.push_format = PBOX_FMT_FP32,
		.pull_format = PBOX_FMT_FP32};
	struct run_result out;
	uint64_t frags = (2000000 / 352 + 1) * 3ull;

	harness_run(&r, &out);
	UNIT_EQ_U64(out.failed, 0);
	UNIT_EQ_U64(out.mismatches, 0);
	printf("\n    %llu probes of %llu fragments, %llu repeated ",
		(unsigned long long)out.stats.probes, (unsigned long long)frags,
		(unsigned long long)out.stats.retransmitted_frames);
	CU_ASSERT(out.stats.probes * 100 < frags);
	UNIT_EQ_U64(out.stats.retransmitted_frames, 0);
}

static void
test_duplicates_and_reordering(void)
{
	struct run r = plain(4);

	r.box.dup = 0.1;
	good(&r);
	r.box.reorder = 0.3;
	good(&r);
	r.box.loss = 0.05;
	good(&r);
}

static void
test_bytes_under_loss(void)
{
	static const struct pbox_client_tensor big[] = {{"big", 2000000, 0}};
	static const double loss[] = {0, 0.001, 0.01, 0.02, 0.1};

	for (unsigned i = 0; i < 5; i++) {
		struct run r = {.box = {.workers = 2, .seed = 5 + i, .loss = loss[i]},
			.tensors = big,
			.n = 1,
			.rounds = 2,
			.push_format = PBOX_FMT_FP32,
			.pull_format = PBOX_FMT_FP32};
		struct run_result out;
		double useful, factor;

		harness_run(&r, &out);
		UNIT_EQ_U64(out.failed, 0);
		UNIT_EQ_U64(out.mismatches, 0);
		/* each useful payload with one header */
		useful = (double)out.stats.useful_tx_bytes * (1.0 + 62.0 / 1408.0);
		factor = (double)out.stats.tx_bytes / useful;
		printf("\n    loss %5.1f %%: %.2f Gbit/s each way and worker, %.4f bytes sent per useful one, %llu probes, %llu repeated, window %u, rtt %.0f us ",
			loss[i] * 100, 8.0 * 4 * 2000000 * r.rounds / out.seconds / 1e9, factor,
			(unsigned long long)out.stats.probes,
			(unsigned long long)out.stats.retransmitted_frames, out.stats.window,
			(double)out.stats.srtt_ns / 1e3);
		CU_ASSERT(factor <= 1 + 3 * loss[i] + 0.02);
	}
}

/** A table that no cache holds: results and retained copies go past them, also where lines of memory are shared. */
static void
test_large_in_place(void)
{
	static const struct pbox_client_tensor large[] = {
		{"three", 3, 0}, {"large", 2150001, 0}, {"five", 5, 0}};
	struct run r = {.box = {.workers = 2, .mtu = 9000, .seed = 3, .endpoints = 2},
		.tensors = large,
		.n = 3,
		.rounds = 2,
		.in_place = true,
		.timeout_ms = 120000,
		.push_format = PBOX_FMT_FP32,
		.pull_format = PBOX_FMT_FP32};

	good(&r);
	r.box.loss = 0.02;
	r.box.dup = 0.05;
	r.restarts = 1;
	good(&r);
}

/** What is not the box's, or not whole, is written nowhere: not over what is pushed in place, and may go again, nor over results. */
static void
test_shadows(void)
{
	static const struct pbox_client_tensor large[] = {{"three", 3, 0}, {"large", 2150001, 0}};
	struct run r = plain(2), one;
	struct run_result out;

	r.box.shadows = true;
	r.in_place = true;
	for (unsigned i = 0; i < 3; i++) {
		one = r;
		one.per_tensor = i == 1;
		one.box.loss = i == 1 ? 0.1 : 0;
		one.box.dup = i == 1 ? 0.1 : 0;
		if (i == 2) {
			one.tensors = large;
			one.n = 2;
			one.rounds = 2;
			one.box.mtu = 9000;
			one.timeout_ms = 120000;
		}
		harness_run(&one, &out);
		UNIT_EQ_U64(out.failed, 0);
		UNIT_EQ_U64(out.mismatches, 0);
		CU_ASSERT(out.checked > 0);
		CU_ASSERT(out.stats.rx_dropped > 0);
	}
}

const struct unit_test unit_tests[] = {
	{"sums of 1, 2 and 4 workers", test_sums},
	{"bf16 and mixed formats, mean", test_formats},
	{"frame sizes, with and without trains, window of one", test_sizes_of_frames},
	{"empty lists, many tables", test_empty_list_and_many_tables},
	{"push, then pull", test_push_then_pull},
	{"changed results of somebody else come before the box's", test_shadows},
	{"a large table in place, with losses and a restart", test_large_in_place},
	{"loss of 2, 10 and 30 %", test_loss},
	{"contributions that the box takes back", test_taken_back},
	{"probes of a box with a quarter of a CPU", test_probes_of_a_slow_box},
	{"duplicates and reordering", test_duplicates_and_reordering},
	{"bytes sent under loss", test_bytes_under_loss},
	{NULL, NULL},
};
