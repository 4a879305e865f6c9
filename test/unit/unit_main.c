/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "unit.h"

int
main(void)
{
	unsigned failed;
	CU_pSuite suite;

	if (CU_initialize_registry() != CUE_SUCCESS)
		return 2;
	suite = CU_add_suite(unit_suite, NULL, NULL);
	for (const struct unit_test *t = unit_tests; suite != NULL && t->name != NULL; t++)
		CU_add_test(suite, t->name, t->run);
	CU_basic_set_mode(CU_BRM_VERBOSE);
	if (CU_basic_run_tests() != CUE_SUCCESS)
		return 2;
	failed = CU_get_number_of_tests_failed() + CU_get_number_of_suites_failed();
	CU_cleanup_registry();
	return failed ? 1 : 0;
}
