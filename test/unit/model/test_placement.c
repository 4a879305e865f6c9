/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include <pbox_layout.h>

#include "unit.h"

const char unit_suite[] = "model: placement";

#define MAX_TENSORS 1024

static struct pbox_tensor tensor[MAX_TENSORS];

/* "tensor,elements" lines under a heading. */
static uint32_t
read_list(const char *name)
{
	char path[512], line[256];
	uint32_t n = 0;
	FILE *f;

	snprintf(path, sizeof(path), MODEL_LISTS "/%s", name);
	f = fopen(path, "r");
	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	while (fgets(line, sizeof(line), f) != NULL) {
		char *comma = strrchr(line, ',');

		if (comma == NULL || n == MAX_TENSORS || comma[1] < '0' || comma[1] > '9')
			continue;
		*comma = '\0';
		tensor[n] = (struct pbox_tensor){.elements = strtoull(comma + 1, NULL, 10)};
		snprintf(tensor[n].name, sizeof(tensor[n].name), "%.63s", line);
		n++;
	}
	fclose(f);
	return n;
}

static void
check_balance(const char *name, uint32_t n, unsigned endpoints)
{
	uint64_t load[PBOX_MAX_ENDPOINTS] = {0}, sum[PBOX_MAX_ENDPOINTS] = {0}, max = 0;
	struct pbox_layout l;
	struct pbox_error err;
	double ratio;
	char text[128];

	CU_ASSERT_EQUAL_FATAL(pbox_layout_build(&l, tensor, n, 8192, 352, &err), 0);
	CU_ASSERT_EQUAL_FATAL(pbox_layout_place(&l, endpoints, load), 0);
	for (uint32_t i = 0; i < l.n_chunks; i++) {
		CU_ASSERT_FATAL(l.chunk[i].endpoint < endpoints);
		sum[l.chunk[i].endpoint] += l.chunk[i].elements;
	}
	for (unsigned e = 0; e < endpoints; e++) {
		UNIT_EQ_U64(load[e], sum[e]);
		max = load[e] > max ? load[e] : max;
	}
	ratio = (double)max * endpoints / (double)l.elements;
	snprintf(text, sizeof(text), "%s over %u endpoints: max/mean %.4f <= 1.05", name, endpoints,
		ratio);
	CU_assertImplementation(ratio <= 1.05, __LINE__, text, __FILE__, "", CU_FALSE);
	pbox_layout_free(&l);
}

static void
test_real_models_are_balanced(void)
{
	DIR *d = opendir(MODEL_LISTS);
	unsigned lists = 0;

	CU_ASSERT_PTR_NOT_NULL_FATAL(d);
	for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
		uint32_t n;

		if (strstr(e->d_name, ".csv") == NULL)
			continue;
		n = read_list(e->d_name);
		CU_ASSERT(n > 10 && n < MAX_TENSORS);
		for (unsigned endpoints = 2; endpoints <= 8; endpoints *= 2)
			check_balance(e->d_name, n, endpoints);
		lists++;
	}
	closedir(d);
	CU_ASSERT(lists >= 13);
}

static void
test_later_tables_fill_the_gaps(void)
{
	struct pbox_tensor t = {.elements = 3 * 64};
	uint64_t load[2] = {0, 0};
	struct pbox_layout a, b;

	CU_ASSERT_EQUAL(pbox_layout_build(&a, &t, 1, 64, 16, NULL), 0);
	CU_ASSERT_EQUAL(pbox_layout_build(&b, &t, 1, 64, 16, NULL), 0);
	pbox_layout_place(&a, 2, load);
	UNIT_EQ_U64(load[0], 128);
	UNIT_EQ_U64(load[1], 64);
	pbox_layout_place(&b, 2, load);
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

	CU_ASSERT_EQUAL(pbox_layout_build(&l, t, 3, 64, 16, NULL), 0);
	pbox_layout_place(&l, 3, load);
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

	CU_ASSERT_EQUAL(pbox_layout_build(&l, NULL, 0, 64, 16, NULL), 0);
	CU_ASSERT_EQUAL(pbox_layout_place(&l, 2, load), 0);
	UNIT_EQ_U64(load[0], 5);
	UNIT_EQ_U64(load[1], 6);
	pbox_layout_free(&l);
}

const struct unit_test unit_tests[] = {
	{"real models are balanced to 5 % over 2, 4, 8 endpoints", test_real_models_are_balanced},
	{"later tables fill the gaps of earlier ones", test_later_tables_fill_the_gaps},
	{"largest first, ties to the lower number", test_largest_first_and_ties_to_the_lower},
	{"nothing to place", test_nothing_to_place},
	{NULL, NULL},
};
