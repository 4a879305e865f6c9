/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <pbox_table.h>

#include "unit.h"

const char unit_suite[] = "model: table";

#define SIZE      (256u << 10)
#define ENDPOINTS 3

static uint8_t region[2][SIZE] __attribute__((aligned(PBOX_CACHE_LINE)));
static struct pbox_arena *arena[PBOX_MAX_NODES];
static const struct pbox_place place[ENDPOINTS] = {{0, 0, 0}, {1, 0, 1}, {0, 0, 2}};
static uint64_t load[ENDPOINTS];
static struct pbox_table t;
static struct pbox_error err;

static void
begin(size_t size0, size_t size1)
{
	memset(region, 0, sizeof(region));
	memset(load, 0, sizeof(load));
	arena[0] = pbox_arena_create(region[0], size0);
	arena[1] = pbox_arena_create(region[1], size1);
	t = (struct pbox_table){
		.id = 5,
		.mode = PBOX_MODE_OPTIMISER,
		.optimiser = PBOX_OPT_ADAM,
		.push_format = PBOX_FMT_BF16,
		.pull_format = PBOX_FMT_BF16,
		.frag_elements = 64,
		.init_elements = 32,
	};
	err = (struct pbox_error){0};
}

static void
end(void)
{
	UNIT_EQ_U64(pbox_arena_used(arena[0]), 0);
	UNIT_EQ_U64(pbox_arena_used(arena[1]), 0);
	for (size_t i = 0; i < SIZE; i++)
		CU_ASSERT_FATAL(region[0][i] == 0 && region[1][i] == 0);
	pbox_arena_destroy(arena[0]);
	pbox_arena_destroy(arena[1]);
}

static int
build(const struct pbox_tensor *tensor, uint32_t n, size_t quota)
{
	return pbox_table_build(&t, tensor, n, 256, place, ENDPOINTS, arena, load, quota, &err);
}

/* Every array of every chunk lies alone in its node's region; fill it with its own pattern. */
static void
paint(void *at, size_t bytes, unsigned node, uint8_t colour)
{
	uint8_t *p = at;

	CU_ASSERT_FATAL(p >= region[node] && p + bytes <= region[node] + SIZE);
	for (size_t i = 0; i < bytes; i++)
		CU_ASSERT_EQUAL_FATAL(p[i], 0);
	memset(p, colour, bytes);
}

static void
test_arrays_do_not_overlap(void)
{
	struct pbox_tensor tensor[] = {
		{.elements = 1000}, {.elements = 3, .group = 2}, {.elements = 70}};

	begin(SIZE, SIZE);
	CU_ASSERT_EQUAL_FATAL(build(tensor, 3, SIZE_MAX), 0);
	UNIT_EQ_U64(t.n_chunks, 17); /* so little is shared out by fragments: 14 + 1, 1, 1 */
	UNIT_EQ_U64(t.n_groups, 3);
	UNIT_EQ_U64(t.init_mask, 3);
	UNIT_EQ_U64(load[0] + load[1] + load[2], 1073);
	UNIT_EQ_U64(t.bytes, pbox_arena_used(arena[0]) + pbox_arena_used(arena[1]));
	for (uint32_t i = 0; i < t.n_chunks; i++) {
		struct pbox_chunk *c = &t.chunk[i];
		unsigned node = place[c->endpoint].node;

		UNIT_EQ_U64((uintptr_t)c->param % 64, 0);
		UNIT_EQ_U64((uintptr_t)c->s1 % 64, 0);
		UNIT_EQ_U64(c->fragments, (c->elements + 63) / 64);
		UNIT_EQ_U64(c->group, c->elements == 3 ? 2 : 0);
		paint(c->param, c->elements * 4ul, node, 1);
		paint(c->s0, c->elements * 4ul, node, 2);
		paint(c->s1, c->elements * 4ul, node, 3);
		paint(c->wire, c->elements * 2ul, node, 4);
		paint(c->fragment, c->fragments * sizeof(*c->fragment), node, 5);
	}
	UNIT_EQ_U64(pbox_chunk_frag_elements(&t, &t.chunk[14], 0), 64);
	UNIT_EQ_U64(pbox_chunk_frag_elements(&t, &t.chunk[14], 1), 1000 - 14 * 64 - 64);
	pbox_table_release(&t, load);
	UNIT_EQ_U64(load[0] + load[1] + load[2], 0);
	end();
}

static void
test_all_reduce_in_fp32_has_one_array_and_spare_room(void)
{
	struct pbox_tensor tensor = {.elements = 256};

	begin(SIZE, SIZE);
	t.mode = PBOX_MODE_ALLREDUCE;
	t.optimiser = PBOX_OPT_NONE;
	t.push_format = t.pull_format = PBOX_FMT_FP32;
	CU_ASSERT_EQUAL_FATAL(build(&tensor, 1, SIZE_MAX), 0);
	CU_ASSERT_PTR_NULL(t.chunk[0].s0);
	CU_ASSERT_PTR_NULL(t.chunk[0].wire);
	/* four chunks, and one fragment in each of three extents */
	UNIT_EQ_U64(t.bytes, 4 * (64 * 4 + 2 * sizeof(struct pbox_fragment)) + ENDPOINTS * 64 * 4);
	for (unsigned i = 0; i < 4; i++) {
		struct pbox_chunk *c = &t.chunk[i];

		paint(c->param, c->elements * 4ul, place[c->endpoint].node, 1);
		paint(c->fragment, c->fragments * sizeof(*c->fragment), place[c->endpoint].node, 2);
	}
	for (unsigned e = 0; e < ENDPOINTS; e++)
		paint(t.spare[e], 64 * 4, place[e].node, 3);
	pbox_table_release(&t, NULL);
	end();
}

static void
test_empty_table(void)
{
	begin(SIZE, SIZE);
	CU_ASSERT_EQUAL_FATAL(build(NULL, 0, 0), 0);
	UNIT_EQ_U64(t.n_chunks, 0);
	UNIT_EQ_U64(t.bytes, 0);
	UNIT_EQ_U64(t.n_groups, 1);
	pbox_table_release(&t, load);
	end();
}

static void
test_quota(void)
{
	struct pbox_tensor tensor = {.elements = 64};
	size_t need;

	begin(SIZE, SIZE);
	CU_ASSERT_EQUAL_FATAL(build(&tensor, 1, SIZE_MAX), 0);
	need = t.bytes;
	pbox_table_release(&t, load);
	CU_ASSERT_EQUAL_FATAL(build(&tensor, 1, need), 0);
	pbox_table_release(&t, load);
	CU_ASSERT_EQUAL(build(&tensor, 1, need - 1), -ENOMEM);
	CU_ASSERT_STRING_EQUAL(err.text,
		"table 5 needs 960 bytes and the job may still take 959: raise 'memory' of the job");
	UNIT_EQ_U64(load[0] + load[1] + load[2], 0);
	end();
}

/* The second endpoint's node is too small: what the first got goes back. */
static void
test_arena_too_small(void)
{
	struct pbox_tensor tensor = {.elements = 256 * 6};

	begin(SIZE, 1024);
	load[2] = 7;
	CU_ASSERT_EQUAL(build(&tensor, 1, SIZE_MAX), -ENOMEM);
	CU_ASSERT_STRING_EQUAL(err.text,
		"table 5 needs 7680 bytes on NUMA node 1, where the largest free piece of 1024 has 1024: raise 'memory'");
	UNIT_EQ_U64(load[0], 0);
	UNIT_EQ_U64(load[1], 0);
	UNIT_EQ_U64(load[2], 7);
	end();
}

/* Refused by what it needs at least: a layout of so many chunks would take seconds, or all memory. */
static void
test_hopeless_sizes_are_not_laid_out(void)
{
	struct pbox_tensor tensor[2] = {{.elements = UINT64_MAX / 2}, {.elements = UINT64_MAX / 2}};

	begin(SIZE, SIZE);
	load[1] = 7;
	for (uint32_t n = 1; n <= 2; n++) { /* too many bytes, too many elements */
		CU_ASSERT_EQUAL(build(tensor, n, SIZE_MAX), -ENOMEM);
		CU_ASSERT_STRING_EQUAL(err.text,
			"table 5 needs at least 18446744073709551615 bytes and 524288 are left: raise 'memory'");
		UNIT_EQ_U64(load[1], 7);
		pbox_table_release(&t, NULL); /* harmless */
	}
	tensor[0].elements = 1 << 16;
	CU_ASSERT_EQUAL(build(tensor, 1, 1000), -ENOMEM);
	CU_ASSERT_STRING_EQUAL(err.text,
		"table 5 needs at least 917504 bytes and the job may still take 1000: raise 'memory' of the job");
	CU_ASSERT_EQUAL(build(tensor, 1, SIZE_MAX), -ENOMEM);
	CU_ASSERT_STRING_EQUAL(err.text,
		"table 5 needs at least 917504 bytes and 524288 are left: raise 'memory'");
	end();
}

/* As many INIT pieces as a fragment has bits for, and one more. */
static void
test_init_pieces(void)
{
	static const struct pbox_tensor tensor = {.elements = 600, .name = "narrow"};

	begin(SIZE, SIZE);
	t.frag_elements = 512;
	t.init_elements = 64;
	UNIT_EQ_U64(build(&tensor, 1, SIZE_MAX), 0);
	UNIT_EQ_U64(t.init_mask, 0xff);
	pbox_table_release(&t, load);
	t.frag_elements = 576;
	CU_ASSERT_EQUAL(build(&tensor, 1, SIZE_MAX), -EINVAL);
	CU_ASSERT_STRING_EQUAL(err.text,
		"table 5: INIT of a fragment takes 9 frames, at most 8: use a wider element format for push or pull");
	end();
}

const struct unit_test unit_tests[] = {
	{"arrays do not overlap and lie on their node", test_arrays_do_not_overlap},
	{"all-reduce in fp32 has one array and spare room",
		test_all_reduce_in_fp32_has_one_array_and_spare_room},
	{"an empty table", test_empty_table},
	{"quota", test_quota},
	{"an arena is too small", test_arena_too_small},
	{"hopeless sizes are not laid out", test_hopeless_sizes_are_not_laid_out},
	{"INIT pieces are bounded", test_init_pieces},
	{NULL, NULL},
};
