/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <string.h>

#include <pbox_reduce.h>

#include "unit.h"

const char unit_suite[] = "reduce: registry";

static void
test_scalar_is_always_there(void)
{
	CU_ASSERT_PTR_EQUAL(pbox_reduce_at(0), &pbox_reduce_scalar);
	CU_ASSERT_PTR_EQUAL(pbox_reduce_select("scalar"), &pbox_reduce_scalar);
	CU_ASSERT_PTR_NULL(pbox_reduce_select("nonesuch"));
	CU_ASSERT_PTR_NULL(pbox_reduce_select(""));
}

static void
test_the_highest_usable_rank_is_chosen(void)
{
	const struct pbox_reduce_ops *chosen = pbox_reduce_select(NULL), *ops;
	unsigned n = 0;

	CU_ASSERT_PTR_NOT_NULL_FATAL(chosen);
	CU_ASSERT(chosen->usable());
	for (; (ops = pbox_reduce_at(n)) != NULL; n++) {
		CU_ASSERT(!ops->usable() || ops->rank <= chosen->rank);
		CU_ASSERT_PTR_EQUAL(pbox_reduce_select(ops->name), ops->usable() ? ops : NULL);
	}
	CU_ASSERT_PTR_NULL(pbox_reduce_at(n + 1));
#ifdef __x86_64__
	CU_ASSERT_EQUAL(n, 3); /* scalar, avx2, avx512: linked whole */
#endif
}

static int
no(void)
{
	return 0;
}

static int
yes(void)
{
	return 1;
}

/* The last test: what is registered stays. */
static void
test_what_is_not_usable_is_never_chosen(void)
{
	static const struct pbox_reduce_ops cannot = {.name = "cannot", .rank = 1000, .usable = no},
					    can = {.name = "can", .rank = 999, .usable = yes};

	pbox_reduce_register(&cannot);
	CU_ASSERT_PTR_NOT_EQUAL(pbox_reduce_select(NULL), &cannot);
	CU_ASSERT_PTR_NULL(pbox_reduce_select("cannot"));
	pbox_reduce_register(&can);
	CU_ASSERT_PTR_EQUAL(pbox_reduce_select(NULL), &can);
	CU_ASSERT_PTR_EQUAL(pbox_reduce_select("can"), &can);
}

const struct unit_test unit_tests[] = {
	{"the scalar implementation is always there", test_scalar_is_always_there},
	{"the highest usable rank is chosen", test_the_highest_usable_rank_is_chosen},
	{"what is not usable is never chosen", test_what_is_not_usable_is_never_chosen},
	{NULL, NULL},
};
