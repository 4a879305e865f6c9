/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>
#include <string.h>

#include "lists.h"

const char unit_suite[] = "model: placement";

/* fp32 at MTU 1500 and 9000, and the box's default chunk */
static const uint32_t frags[] = {352, 2224};
#define CHUNK 8192

static struct pbox_place place[PBOX_MAX_ENDPOINTS];

/* As many cores as endpoints, at one port. */
static void
one_port(unsigned endpoints)
{
	for (unsigned e = 0; e < endpoints; e++)
		place[e] = (struct pbox_place){.core = (uint16_t)e};
}

/* What pbox_table_build() does up to the memory. */
static void
spread(struct pbox_layout *l, const struct pbox_tensor *t, uint32_t n, unsigned endpoints,
	uint32_t chunk, uint32_t frag, uint64_t *load)
{
	struct pbox_error err;

	chunk = pbox_layout_chunk(t, n, pbox_place_cores(place, endpoints), chunk, frag);
	CU_ASSERT_EQUAL_FATAL(pbox_layout_build(l, t, n, chunk, frag, &err), 0);
	CU_ASSERT_EQUAL_FATAL(pbox_layout_place(l, place, endpoints, load), 0);
}

static uint64_t
largest(const uint64_t *load, unsigned n)
{
	uint64_t max = 0;

	for (unsigned i = 0; i < n; i++)
		max = load[i] > max ? load[i] : max;
	return max;
}

/*
 * The promise of pbox_layout_chunk(): max <= mean + a chunk, and max / mean < 1.05 wherever a core
 * gets 20 x (2 x fragment - 1) elements. Fragments in units of elements, that is of 4 bytes.
 */
static void
check_balance(const char *name, const struct pbox_tensor *t, uint32_t n, unsigned endpoints,
	uint32_t frag)
{
	uint64_t load[PBOX_MAX_ENDPOINTS] = {0}, sum[PBOX_MAX_ENDPOINTS] = {0}, max;
	uint64_t chunk = 0;
	struct pbox_layout l;
	double mean, ratio;
	char text[160];

	one_port(endpoints);
	spread(&l, t, n, endpoints, CHUNK, frag, load);
	for (uint32_t i = 0; i < l.n_chunks; i++) {
		CU_ASSERT_FATAL(l.chunk[i].endpoint < endpoints);
		sum[l.chunk[i].endpoint] += l.chunk[i].elements;
		chunk = l.chunk[i].elements > chunk ? l.chunk[i].elements : chunk;
	}
	CU_ASSERT(memcmp(load, sum, sizeof(load)) == 0);
	max = largest(load, endpoints);
	mean = (double)l.elements / endpoints;
	ratio = mean > 0 ? (double)max / mean : 1;
	snprintf(text, sizeof(text), "%s, %u endpoints, fragments of %u: max/mean %.4f", name,
		endpoints, frag, ratio);
	CU_assertImplementation(
		(double)max <= mean + (double)chunk, __LINE__, text, __FILE__, "", CU_FALSE);
	if (mean >= PBOX_LAYOUT_PARTS * (2.0 * frag - 1))
		CU_assertImplementation(ratio < 1.05, __LINE__, text, __FILE__, "", CU_FALSE);
	pbox_layout_free(&l);
}

static const unsigned counts[] = {1, 2, 3, 4, 8, 16};
#define COUNTS (sizeof(counts) / sizeof(*counts))

static void
balance_of_list(const char *name, const struct pbox_tensor *t, uint32_t n)
{
	for (unsigned i = 0; i < COUNTS; i++)
		for (unsigned f = 0; f < 2; f++)
			check_balance(name, t, n, counts[i], frags[f]);
}

static void
test_real_models_are_balanced(void)
{
	CU_ASSERT(lists_each(balance_of_list) >= 16);
}

/* R16.5: all boxes share the same tables out alike, and nobody gets more than the mean and one chunk. */
static void
test_boxes_agree(void)
{
	struct pbox_tensor t[] = {{.elements = 5000}, {.elements = 10}, {.elements = 777}};
	uint64_t first[3] = {0}, second[3] = {0}, own[1] = {0}, mean;
	struct pbox_layout a, b;
	uint32_t mine = 0;

	one_port(1);
	for (unsigned table = 0; table < 2; table++) {
		CU_ASSERT_EQUAL_FATAL(pbox_layout_build(&a, t, 3, 64, 16, NULL), 0);
		CU_ASSERT_EQUAL_FATAL(pbox_layout_build(&b, t, 3, 64, 16, NULL), 0);
		CU_ASSERT_EQUAL(pbox_layout_share(&a, 3, 0, first), 0);
		CU_ASSERT_EQUAL(pbox_layout_share(&b, 3, 2, second), 0);
		CU_ASSERT_EQUAL(pbox_layout_place(&b, place, 1, own), 0);
		for (uint32_t i = 0; i < a.n_chunks; i++) {
			CU_ASSERT_EQUAL(a.chunk[i].box, b.chunk[i].box);
			CU_ASSERT((a.chunk[i].endpoint != PBOX_ELSEWHERE) == (a.chunk[i].box == 0));
			CU_ASSERT((b.chunk[i].endpoint != PBOX_ELSEWHERE) == (b.chunk[i].box == 2));
			mine += b.chunk[i].box == 2 ? b.chunk[i].elements : 0;
		}
		pbox_layout_free(&a);
		pbox_layout_free(&b);
	}
	CU_ASSERT(memcmp(first, second, sizeof(first)) == 0);
	UNIT_EQ_U64(own[0], mine);
	UNIT_EQ_U64(second[2], mine);
	mean = (first[0] + first[1] + first[2]) / 3;
	CU_ASSERT(largest(first, 3) <= mean + 64 + 16);
}

static void
test_later_tables_fill_the_gaps(void)
{
	struct pbox_tensor t = {.elements = 3 * 64};
	uint64_t load[2] = {0, 0};
	struct pbox_layout a, b;

	one_port(2);
	CU_ASSERT_EQUAL(pbox_layout_build(&a, &t, 1, 64, 16, NULL), 0);
	CU_ASSERT_EQUAL(pbox_layout_build(&b, &t, 1, 64, 16, NULL), 0);
	pbox_layout_place(&a, place, 2, load);
	UNIT_EQ_U64(load[0], 128);
	UNIT_EQ_U64(load[1], 64);
	pbox_layout_place(&b, place, 2, load);
	UNIT_EQ_U64(load[0], 192);
	UNIT_EQ_U64(load[1], 192);
	pbox_layout_free(&a);
	pbox_layout_free(&b);
}

static void
test_largest_first_and_ties_to_the_lower(void)
{
	struct pbox_tensor t[] = {{.elements = 20}, {.elements = 50}, {.elements = 50}};
	uint64_t load[3] = {0};
	struct pbox_layout l;

	one_port(3);
	CU_ASSERT_EQUAL(pbox_layout_build(&l, t, 3, 64, 16, NULL), 0);
	pbox_layout_place(&l, place, 3, load);
	UNIT_EQ_U64(l.chunk[0].endpoint, 2);
	UNIT_EQ_U64(l.chunk[1].endpoint, 0);
	UNIT_EQ_U64(l.chunk[2].endpoint, 1);
	pbox_layout_free(&l);
}

static void
test_nothing_to_place(void)
{
	struct pbox_layout l;
	uint64_t load[2] = {5, 6};

	one_port(2);
	CU_ASSERT_EQUAL(pbox_layout_build(&l, NULL, 0, 64, 16, NULL), 0);
	CU_ASSERT_EQUAL(pbox_layout_place(&l, place, 2, load), 0);
	UNIT_EQ_U64(load[0], 5);
	UNIT_EQ_U64(load[1], 6);
	pbox_layout_free(&l);
}

/* A core at two ports is one core, and its two ports get the same of it. */
static void
test_cores_first_then_ports(void)
{
	struct pbox_tensor t = {.elements = 1200 * 16};
	uint64_t load[PBOX_MAX_ENDPOINTS] = {0};
	struct pbox_layout l;

	/* core 0 serves port 0, core 1 both */
	place[0] = (struct pbox_place){.core = 0, .port = 0};
	place[1] = (struct pbox_place){.core = 1, .port = 0};
	place[2] = (struct pbox_place){.core = 1, .port = 9};
	UNIT_EQ_U64(pbox_place_cores(place, 3), 2);
	CU_ASSERT_EQUAL(pbox_layout_build(&l, &t, 1, 16, 16, NULL), 0);
	pbox_layout_place(&l, place, 3, load);
	UNIT_EQ_U64(load[0], 9600);
	UNIT_EQ_U64(load[1] + load[2], 9600);
	/* what core 1 takes goes to port 9, which core 0 does not serve */
	CU_ASSERT(load[2] > 9600 * 0.98);
	/* all cores at all ports */
	memset(load, 0, sizeof(load));
	for (unsigned e = 0; e < 6; e++)
		place[e] = (struct pbox_place){.core = (uint16_t)(e % 3), .port = (uint8_t)(e / 3)};
	pbox_layout_place(&l, place, 6, load);
	for (unsigned e = 0; e < 6; e++)
		UNIT_EQ_U64(load[e], 3200);
	/* three cores at one port, one at the other: equal cores */
	memset(load, 0, sizeof(load));
	for (unsigned e = 0; e < 4; e++)
		place[e] = (struct pbox_place){.core = (uint16_t)e, .port = e == 3};
	pbox_layout_place(&l, place, 4, load);
	for (unsigned e = 0; e < 4; e++)
		UNIT_EQ_U64(load[e], 4800);
	pbox_layout_free(&l);
}

/* Inputs that a fixed chunk size would not spread. */
static void
test_planted_lists(void)
{
	static struct pbox_tensor t[10000];

	for (unsigned f = 0; f < 2; f++)
		for (unsigned i = 1; i < COUNTS; i++) {
			unsigned m = counts[i];

			/* one giant tensor; just one chunk more than endpoints; a bucket of 1 MB */
			const uint64_t one[] = {UINT64_C(1) << 30, (m + 1) * CHUNK, 262144, CHUNK,
				CHUNK + 1, frags[f], frags[f] + 1, 1, 0};

			for (unsigned k = 0; k < sizeof(one) / sizeof(*one); k++) {
				t[0] = (struct pbox_tensor){.elements = one[k]};
				check_balance("one tensor", t, 1, m, frags[f]);
			}
			for (unsigned k = 0; k < 10000; k++)
				t[k] = (struct pbox_tensor){.elements = 1 + k % 3};
			check_balance("10,000 tiny tensors", t, 10000, m, frags[f]);
			t[5000].elements = 10000000;
			check_balance("one giant among 9,999 tiny", t, 10000, m, frags[f]);
			for (unsigned k = 0; k < 1000; k++)
				t[k] = (struct pbox_tensor){.elements = CHUNK - 500 + k};
			check_balance("sizes around a chunk", t, 1000, m, frags[f]);
			for (unsigned k = 0; k < 300; k++)
				t[k] = (struct pbox_tensor){.elements = frags[f] - 150 + k};
			check_balance("sizes around a fragment", t, 300, m, frags[f]);
			for (unsigned k = 0; k < 40; k++)
				t[k] = (struct pbox_tensor){.elements = UINT64_C(1) << k / 2};
			check_balance("powers of two", t, 40, m, frags[f]);
		}
}

/* Smaller chunks where there is little for each core, the wanted ones elsewhere. */
static void
test_chunk_size(void)
{
	struct pbox_tensor t[2] = {{.elements = 4000 * 16}, {.elements = 0}};

	UNIT_EQ_U64(pbox_layout_chunk(t, 2, 1, 64, 16), 64);
	UNIT_EQ_U64(pbox_layout_chunk(t, 2, 1, 70, 16), 64);
	UNIT_EQ_U64(pbox_layout_chunk(t, 2, 1, 5, 16), 16);
	UNIT_EQ_U64(pbox_layout_chunk(t, 2, 2, 64, 16), 64);
	/* 3200 for each core: 160 with what a tensor's last chunk may have more */
	UNIT_EQ_U64(pbox_layout_chunk(t, 2, 20, 4096, 16), 144);
	UNIT_EQ_U64(pbox_layout_chunk(t, 2, 64, 4096, 16), 32);
	UNIT_EQ_U64(pbox_layout_chunk(t, 2, 64, 4096, 4000), 4000);
	UNIT_EQ_U64(pbox_layout_chunk(t, 0, 64, 4096, 16), 16);
	t[0].elements = t[1].elements = UINT64_MAX - 1;
	/* no more fragments than 16 bits count */
	UNIT_EQ_U64(pbox_layout_chunk(t, 2, 64, UINT32_MAX, 1), UINT16_MAX - 1);
}

static unsigned pure_endpoints;
static uint64_t pure_hash;

/* FNV-1a over the whole map: who gets which elements. */
static void
hash_list(const char *name, const struct pbox_tensor *t, uint32_t n)
{
	uint64_t load[PBOX_MAX_ENDPOINTS] = {0};
	struct pbox_layout l;

	(void)name;
	one_port(pure_endpoints);
	spread(&l, t, n, pure_endpoints, CHUNK, frags[1], load);
	for (uint32_t i = 0; i < l.n_chunks; i++) {
		const struct pbox_segment *s = &l.segment[l.chunk[i].first_segment];
		const uint64_t v[] = {
			l.chunk[i].endpoint, l.chunk[i].elements, s->tensor, s->offset};

		for (unsigned k = 0; k < 4; k++)
			pure_hash = (pure_hash ^ v[k]) * UINT64_C(0x100000001B3);
	}
	pbox_layout_free(&l);
}

/* The same input gives the same map; another one another. */
static void
test_placement_is_a_function(void)
{
	uint64_t first;

	pure_endpoints = 16;
	lists_each(hash_list);
	first = pure_hash;
	pure_hash = 0;
	lists_each(hash_list);
	UNIT_EQ_U64(pure_hash, first);
	pure_endpoints = 15;
	pure_hash = 0;
	lists_each(hash_list);
	CU_ASSERT(pure_hash != first);
}

const struct unit_test unit_tests[] = {
	{"real models are balanced to 5 % over 1 to 16 endpoints", test_real_models_are_balanced},
	{"boxes share tables out alike", test_boxes_agree},
	{"later tables fill the gaps of earlier ones", test_later_tables_fill_the_gaps},
	{"largest first, ties to the lower number", test_largest_first_and_ties_to_the_lower},
	{"nothing to place", test_nothing_to_place},
	{"equal cores first, then equal ports", test_cores_first_then_ports},
	{"planted lists are balanced", test_planted_lists},
	{"chunks are smaller where there is little", test_chunk_size},
	{"placement is a function of its input", test_placement_is_a_function},
	{NULL, NULL},
};
