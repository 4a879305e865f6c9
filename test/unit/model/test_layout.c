/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lists.h"

const char unit_suite[] = "model: layout";

#define F 16u /* elements of a fragment */
#define C 64u /* of a chunk */

static struct pbox_layout l;

static int
build(const struct pbox_tensor *t, uint32_t n, uint32_t chunk, uint32_t frag)
{
	struct pbox_error err;

	return pbox_layout_build(&l, t, n, chunk, frag, &err);
}

/* What one tensor must look like: each element in exactly one segment, chunks of its group. */
static void
check_tensor(const struct pbox_tensor *t, uint32_t tensor, uint32_t frag)
{
	uint8_t *seen = calloc(t->elements + 1, 1);
	uint64_t total = 0;

	for (uint32_t c = 0; c < l.n_chunks; c++)
		for (unsigned s = 0; s < l.chunk[c].segments; s++) {
			const struct pbox_segment *g = &l.segment[l.chunk[c].first_segment + s];

			if (g->tensor != tensor)
				continue;
			CU_ASSERT(g->elements > 0);
			CU_ASSERT_FATAL(g->offset + g->elements <= t->elements);
			CU_ASSERT_EQUAL(l.chunk[c].group, t->group);
			CU_ASSERT(t->elements < frag ||
				  (l.chunk[c].segments == 1 && l.chunk[c].elements >= frag));
			for (uint32_t e = 0; e < g->elements; e++)
				CU_ASSERT_EQUAL(seen[g->offset + e]++, 0);
			total += g->elements;
		}
	UNIT_EQ_U64(total, t->elements);
	free(seen);
}

static void
check(const struct pbox_tensor *t, uint32_t n, uint32_t chunk, uint32_t frag)
{
	uint32_t segments = 0, limit = chunk < frag ? frag : chunk - chunk % frag;
	uint64_t elements = 0;

	for (uint32_t c = 0; c < l.n_chunks; c++) {
		uint32_t sum = 0;

		UNIT_EQ_U64(l.chunk[c].first_segment, segments);
		CU_ASSERT(l.chunk[c].segments >= 1 && l.chunk[c].segments <= PBOX_MAX_SEGMENTS);
		for (unsigned s = 0; s < l.chunk[c].segments; s++)
			sum += l.segment[l.chunk[c].first_segment + s].elements;
		UNIT_EQ_U64(sum, l.chunk[c].elements);
		CU_ASSERT(sum < limit + frag);
		segments += l.chunk[c].segments;
		elements += sum;
	}
	UNIT_EQ_U64(segments, l.n_segments);
	UNIT_EQ_U64(elements, l.elements);
	for (uint32_t i = 0; i < n; i++)
		check_tensor(&t[i], i, frag);
}

static void
test_nothing_makes_nothing(void)
{
	struct pbox_tensor zero[2] = {{.elements = 0}, {.elements = 0, .group = 3}};

	CU_ASSERT_EQUAL(build(NULL, 0, C, F), 0);
	UNIT_EQ_U64(l.n_chunks, 0);
	UNIT_EQ_U64(l.elements, 0);
	pbox_layout_free(&l);
	CU_ASSERT_EQUAL(build(zero, 2, C, F), 0);
	UNIT_EQ_U64(l.n_chunks, 0);
	pbox_layout_free(&l);
}

static void
test_around_one_fragment(void)
{
	static const uint64_t size[] = {
		1, F - 1, F, F + 1, C - 1, C, C + 1, C + F - 1, C + F, 2 * C - 1, 2 * C + 3};

	for (unsigned i = 0; i < sizeof(size) / sizeof(size[0]); i++) {
		struct pbox_tensor t = {.elements = size[i], .group = 2};

		CU_ASSERT_EQUAL(build(&t, 1, C, F), 0);
		UNIT_EQ_U64(l.n_chunks, size[i] < C ? 1 : size[i] / C + (size[i] % C >= F));
		check(&t, 1, C, F);
		/* all chunks but the last are whole numbers of fragments */
		for (uint32_t c = 0; c + 1 < l.n_chunks; c++)
			UNIT_EQ_U64(l.chunk[c].elements % F, 0);
		pbox_layout_free(&l);
	}
}

static void
test_small_ones_share(void)
{
	struct pbox_tensor t[40];

	for (unsigned i = 0; i < 40; i++)
		t[i] = (struct pbox_tensor){.elements = 5};
	CU_ASSERT_EQUAL(build(t, 40, C, F), 0);
	UNIT_EQ_U64(l.n_chunks, 3); /* 200 elements: 64, 64, 64 + 8 */
	UNIT_EQ_U64(l.chunk[0].elements, C);
	UNIT_EQ_U64(l.chunk[2].elements, C + 8);
	UNIT_EQ_U64(l.n_segments, 43); /* three tensors straddle two chunks */
	check(t, 40, C, F);
	pbox_layout_free(&l);
	t[39].elements = F - 1; /* a rest of 18 is a fragment and more */
	CU_ASSERT_EQUAL(build(t, 40, C, F), 0);
	UNIT_EQ_U64(l.n_chunks, 4);
	UNIT_EQ_U64(l.chunk[3].elements, 18);
	check(t, 40, C, F);
	pbox_layout_free(&l);
}

static void
test_at_most_64_segments(void)
{
	struct pbox_tensor t[200];

	for (unsigned i = 0; i < 200; i++)
		t[i] = (struct pbox_tensor){.elements = 1};
	CU_ASSERT_EQUAL(build(t, 200, 1024, F), 0);
	UNIT_EQ_U64(l.n_chunks, 4); /* 64, 64, 64, 8 */
	UNIT_EQ_U64(l.chunk[2].segments, 64);
	UNIT_EQ_U64(l.chunk[3].segments, 8);
	check(t, 200, 1024, F);
	pbox_layout_free(&l);
}

static void
test_groups_do_not_mix(void)
{
	struct pbox_tensor t[] = {
		{.elements = 3, .group = 1},
		{.elements = 4, .group = 0},
		{.elements = 100, .group = 1},
		{.elements = 5, .group = 1},
		{.elements = 0, .group = 7},
		{.elements = 6, .group = 0},
	};

	CU_ASSERT_EQUAL(build(t, 6, C, F), 0);
	UNIT_EQ_U64(l.n_chunks, 4); /* {0,3}, {1,5}, 64 and 36 of tensor 2 */
	check(t, 6, C, F);
	pbox_layout_free(&l);
}

/* Fragments of a chunk are counted in 16 bits: 4 MiB of fp32 in fragments of 64 bytes would be 65,536. */
static void
test_many_fragments(void)
{
	struct pbox_tensor t = {.elements = (3u << 20) + 5};
	uint64_t all = 0;

	CU_ASSERT_EQUAL_FATAL(build(&t, 1, 1u << 20, 16), 0);
	for (uint32_t c = 0; c < l.n_chunks; c++) {
		CU_ASSERT((l.chunk[c].elements + 15) / 16 <= UINT16_MAX);
		all += l.chunk[c].elements;
	}
	UNIT_EQ_U64(all, t.elements);
	pbox_layout_free(&l);
}

static void
test_chunk_sizes_are_whole_fragments(void)
{
	struct pbox_tensor t = {.elements = 1000};

	CU_ASSERT_EQUAL(build(&t, 1, C + F - 1, F), 0); /* rounded down */
	UNIT_EQ_U64(l.chunk[0].elements, C);
	check(&t, 1, C, F);
	pbox_layout_free(&l);
	CU_ASSERT_EQUAL(build(&t, 1, 1, F), 0); /* at least one fragment */
	UNIT_EQ_U64(l.chunk[0].elements, F);
	check(&t, 1, F, F);
	pbox_layout_free(&l);
}

static void
test_random_lists_are_covered(void)
{
	struct pbox_tensor t[60];
	struct pbox_random r;

	pbox_random_seed(&r, 7);
	for (unsigned round = 0; round < 300; round++) {
		uint32_t n = (uint32_t)pbox_random_below(&r, 60);
		uint32_t frag = 1 + (uint32_t)pbox_random_below(&r, 40);
		uint32_t chunk = 1 + (uint32_t)pbox_random_below(&r, 300);

		for (unsigned i = 0; i < n; i++)
			t[i] = (struct pbox_tensor){
				.elements = pbox_random_below(&r, i % 5 == 0 ? 500 : 20),
				.group = (uint16_t)pbox_random_below(&r, 3)};
		CU_ASSERT_EQUAL_FATAL(build(t, n, chunk, frag), 0);
		check(t, n, chunk, frag);
		pbox_layout_free(&l);
	}
}

static uint64_t
packets(uint32_t frag)
{
	uint64_t n = 0;

	for (uint32_t c = 0; c < l.n_chunks; c++)
		n += (l.chunk[c].elements + frag - 1) / frag;
	return n;
}

/* In real networks every chunk is a full packet and more (but for the one chunk of all small tensors
 * where these are less: alexnet's biases), and a round takes hardly more packets than if there were
 * one tensor only. */
static void
few_packets(const char *name, const struct pbox_tensor *t, uint32_t n)
{
	static const uint32_t frag[] = {352, 2224}; /* MTU 1500, 9000 */

	for (unsigned f = 0; f < 2; f++) {
		char text[160];
		uint64_t least;
		double ratio;

		CU_ASSERT_EQUAL_FATAL(build(t, n, 8192, frag[f]), 0);
		for (uint32_t c = 0, small = 0; c < l.n_chunks; c++) {
			small += l.chunk[c].elements < frag[f];
			CU_ASSERT(small <= 1 && l.chunk[c].elements >= 352);
		}
		least = (l.elements + frag[f] - 1) / frag[f];
		ratio = (double)packets(frag[f]) / (double)least;
		snprintf(text, sizeof(text), "%s, fragments of %u: %.4f x the fewest packets", name,
			frag[f], ratio);
		CU_assertImplementation(ratio < 1.05, __LINE__, text, __FILE__, "", CU_FALSE);
		pbox_layout_free(&l);
	}
}

static void
test_real_models_make_few_packets(void)
{
	CU_ASSERT(lists_each(few_packets) >= 16);
}

/* The smallest tensors there are: 64 share a packet, which is what a chunk can name. */
static void
test_tiny_tensors_make_few_packets(void)
{
	static struct pbox_tensor t[10000];

	for (unsigned i = 0; i < 10000; i++)
		t[i].elements = 1;
	CU_ASSERT_EQUAL(build(t, 10000, 8192, 2224), 0);
	UNIT_EQ_U64(packets(2224), 157);
	pbox_layout_free(&l);
	/* of 40 bytes: as few packets as there can be, within 1 of 100 */
	for (unsigned i = 0; i < 10000; i++)
		t[i].elements = 10;
	CU_ASSERT_EQUAL(build(t, 10000, 8192, 352), 0);
	CU_ASSERT(packets(352) < 100000 / 352 * 1.12);
	pbox_layout_free(&l);
}

/* As many chunks as there are ids, and one more. */
static void
test_too_large(void)
{
	struct pbox_tensor t[2] = {{.elements = 5}, {.elements = UINT64_MAX, .name = "huge"}};
	struct pbox_tensor most = {.elements = 1u << PBOX_CHUNK_BITS};
	struct pbox_error err = {0};

	CU_ASSERT_EQUAL(pbox_layout_build(&l, t, 2, C, F, &err), -E2BIG);
	CU_ASSERT_STRING_EQUAL(err.text,
		"tensor 1 ('huge', 18446744073709551615 elements) makes the table too large: at most 1048576 chunks of 64 elements: raise 'chunk-bytes'");
	CU_ASSERT_EQUAL_FATAL(build(&most, 1, 1, 1), 0);
	UNIT_EQ_U64(l.n_chunks, most.elements);
	pbox_layout_free(&l);
	most.elements++;
	CU_ASSERT_EQUAL(build(&most, 1, 1, 1), -E2BIG);
}

/* As many as a worker may declare, in the order that is worst for finding the small ones: if each
 * were looked for among all, this would take minutes. */
static void
test_a_million_tensors(void)
{
	uint32_t n = 1u << 20;
	struct pbox_tensor *t = calloc(n, sizeof(*t));

	CU_ASSERT_PTR_NOT_NULL_FATAL(t);
	for (uint32_t i = 0; i < n; i++)
		t[i] = (struct pbox_tensor){
			.elements = i < n / 2 ? F : 1, .group = (uint16_t)(i % PBOX_MAX_GROUPS)};
	CU_ASSERT_EQUAL_FATAL(build(t, n, C, F), 0);
	/* 64 small ones fill a chunk, and those of a group whole ones */
	UNIT_EQ_U64(l.n_chunks, n / 2 + n / 2 / 64);
	UNIT_EQ_U64(l.n_segments, n);
	UNIT_EQ_U64(l.elements, (uint64_t)n / 2 * (F + 1));
	pbox_layout_free(&l);
	free(t);
}

const struct unit_test unit_tests[] = {
	{"no tensors, and tensors without elements", test_nothing_makes_nothing},
	{"sizes around a fragment and a chunk", test_around_one_fragment},
	{"small tensors share chunks", test_small_ones_share},
	{"at most 64 segments a chunk", test_at_most_64_segments},
	{"groups do not mix", test_groups_do_not_mix},
	{"fragments are counted in 16 bits", test_many_fragments},
	{"chunks are whole fragments", test_chunk_sizes_are_whole_fragments},
	{"random lists are covered exactly", test_random_lists_are_covered},
	{"real models make few packets", test_real_models_make_few_packets},
	{"tiny tensors make few packets", test_tiny_tensors_make_few_packets},
	{"too large for chunk numbers", test_too_large},
	{"a million tensors", test_a_million_tensors},
	{NULL, NULL},
};
