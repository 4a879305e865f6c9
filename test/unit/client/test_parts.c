/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "client_impl.h"
#include "unit.h"

#include "box.h"

const char unit_suite[] = "client: receive buffers, names of codes, the example";

static void
test_window_of_buffer(void)
{
	UNIT_EQ_U64(transport_window(2304 * 100, 1500), 100);
	UNIT_EQ_U64(transport_window((16384 + 256) * 7, 9000), 7);
	UNIT_EQ_U64(transport_window(0, 1500), 1);
	UNIT_EQ_U64(transport_window(SIZE_MAX / 2, 1500), 65535);
}

static void
test_codes(void)
{
	CU_ASSERT_STRING_EQUAL(pbox_client_code_name(PBOX_C_CLOSED), "CLOSED");
	CU_ASSERT_STRING_EQUAL(pbox_client_code_name(PBOX_C_PENDING), "PENDING");
	CU_ASSERT_STRING_EQUAL(pbox_client_code_name(-99), "?");
	CU_ASSERT_STRING_EQUAL(pbox_client_code_name(PBOX_C_UNREACHABLE), "UNREACHABLE");
	CU_ASSERT_STRING_EQUAL(pbox_client_name("optimiser", 5), "adamw");
	CU_ASSERT_STRING_EQUAL(pbox_client_name("format", 2), "bf16");
	CU_ASSERT_STRING_EQUAL(pbox_client_name("policy", 1), "shrink");
	CU_ASSERT_PTR_NULL(pbox_client_name("format", 0)); /* nothing has it */
	CU_ASSERT_STRING_EQUAL(pbox_client_name("format", 16), "int8");
	CU_ASSERT_PTR_NULL(pbox_client_name("format", 17)); /* reserved */
	CU_ASSERT_PTR_NULL(pbox_client_name("hyper", 0));
	CU_ASSERT_PTR_NULL(pbox_client_name("nonesuch", 1));
}

/* ---- the example ------------------------------------------------------------------------------ */

#define main example_main
int example_main(int argc, char **argv);
#include "example.c"
#undef main

static void
test_example(void)
{
	struct box_conf conf = {.workers = 1, .secret = "s"};
	struct box *b = box_start(&conf);
	char job[] = "job", secret[] = "s", workers[] = "1", name[] = "example";
	char *argv[] = {name, (char *)(uintptr_t)box_address(b), job, secret, workers, NULL};

	CU_ASSERT_EQUAL(example_main(5, argv), 0);
	CU_ASSERT(box_counts(b).rounds > 0);
	box_stop(b);
}

const struct unit_test unit_tests[] = {
	{"what a receive buffer holds", test_window_of_buffer},
	{"names of codes", test_codes},
	{"the example", test_example},
	{NULL, NULL},
};
