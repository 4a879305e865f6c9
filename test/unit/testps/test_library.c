/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>
#include <string.h>

#include "unit.h"

#include "library.h"

/* What slots bring with --worker library: sums along the tree of R5.2a, and results that are not them. */

const char unit_suite[] = "pbox-testps: the library's data";

#define TENSORS 3

static struct tensor tensor[TENSORS] = {{.elements = 700}, {.elements = 1}, {.elements = 4097}};
static struct testps t;
static struct lane *lane;

void
lane_fail(struct lane *l, const char *fmt, ...)
{
	(void)fmt;
	atomic_store(&l->failed, true);
}

static struct library *
begin(unsigned slots, int discipline, uint8_t optimiser)
{
	struct pbox_error err;

	t = (struct testps){.workers = 2,
		.model = {.n = TENSORS, .tensor = tensor, .elements = 4798},
		.opt = {.slots = slots, .discipline = discipline},
		.now = {.optimiser = optimiser}};
	lane = aligned_alloc(64, sizeof(*lane));
	CU_ASSERT_FATAL(lane != NULL);
	memset(lane, 0, sizeof(*lane));
	lane->t = &t;
	lane->library = calloc(1, sizeof(*lane->library));
	CU_ASSERT_FATAL(lane->library != NULL && library_data_make(lane, &err) == 0);
	return lane->library;
}

static void
end(void)
{
	library_data_free(lane->library);
	free(lane->library);
	free(lane);
}

/* Of any number of slots, from any one on, in any round: the sum that the reference makes of them one by one. */
static void
test_sums(void)
{
	static const unsigned all[] = {1, 2, 3, 5, 8, 11, 13, 64, 100};
	static float want[4097] __attribute__((aligned(64)));

	for (unsigned k = 0; k < sizeof(all) / sizeof(all[0]); k++) {
		struct library *b = begin(all[k], PBOX_DISCIPLINE_ROUNDS, PBOX_OPT_NONE);

		for (unsigned slots = 1; slots <= all[k]; slots++) {
			unsigned first = (all[k] - slots) / 2, round = slots + 3;
			const void *src[100];
			struct pbox_sources s = {.src = src, .n = slots, .elem = PBOX_FMT_FP32};
			const float *got = library_data(b, 2, round, first, slots);

			for (unsigned i = 0; i < slots; i++)
				src[i] = library_data(b, 2, round, first + i, 1);
			pbox_reduce_scalar.sum(want, &s, 0, 4097);
			CU_ASSERT_FATAL(got != NULL);
			CU_ASSERT(memcmp(want, got, sizeof(want)) == 0);
		}
		end();
	}
}

/* All rounds in turn: right, then with one bit of one tensor changed. */
static void
look(int discipline, uint8_t optimiser, void (*make)(struct library *b, float *out, uint32_t round))
{
	struct library *b = begin(11, discipline, optimiser);
	float *out = calloc(b->elements, sizeof(*out));
	unsigned first = 9;

	CU_ASSERT_FATAL(out != NULL);
	for (uint32_t round = 1; round <= 40; round++) {
		unsigned i = round % TENSORS;
		uint8_t *bit = (uint8_t *)(out + b->at[i]) + round % 3;

		make(b, out, round);
		UNIT_EQ_U64(library_wrong(lane, out, round, &first), 0);
		*bit ^= 4;
		UNIT_EQ_U64(library_wrong(lane, out, round, &first), 1);
		UNIT_EQ_U64(first, i);
		*bit ^= 4;
	}
	CU_ASSERT(!atomic_load(&lane->failed));
	free(out);
	end();
}

static void
sums(struct library *b, float *out, uint32_t round)
{
	for (unsigned i = 0; i < TENSORS; i++)
		memcpy(out + b->at[i], library_data(b, i, round, 0, 11),
			tensor[i].elements * sizeof(*out));
}

static void
test_rounds(void)
{
	look(PBOX_DISCIPLINE_ROUNDS, PBOX_OPT_NONE, sums);
}

/* x - lr * (sum / slots), as the box has it */
static void
steps(struct library *b, float *out, uint32_t round)
{
	for (unsigned i = 0; i < TENSORS; i++)
		for (uint64_t k = 0; k < tensor[i].elements; k++) {
			float *x = out + b->at[i] + k;
			float g = library_data(b, i, round, 0, 11)[k] * (float)(1.0 / 11);

			if (round == 1)
				*x = library_init(b, i)[k];
			*x -= (float)0.01 * g;
		}
}

static void
test_optimiser(void)
{
	look(PBOX_DISCIPLINE_ROUNDS, PBOX_OPT_SGD, steps);
}

static void
pushes(struct library *b, float *out, uint32_t round)
{
	for (unsigned i = 0; i < TENSORS; i++)
		for (uint64_t k = 0; k < tensor[i].elements; k++) {
			if (round == 1)
				out[b->at[i] + k] = library_init(b, i)[k];
			for (unsigned s = 0; s < 11; s++)
				out[b->at[i] + k] += library_data(b, i, round, s, 1)[k];
		}
}

static void
test_clocks(void)
{
	look(PBOX_DISCIPLINE_CLOCK, PBOX_OPT_ADD, pushes);
}

const struct unit_test unit_tests[] = {
	{"sums over slots", test_sums},
	{"rounds", test_rounds},
	{"an optimiser", test_optimiser},
	{"clocks", test_clocks},
	{NULL, NULL},
};
