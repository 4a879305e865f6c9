/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>
#include <string.h>

#include "unit.h"

/* unit_NAME [-t TEST]: all tests, or those whose name has this text in it */
int
main(int argc, char **argv)
{
	const char *only = argc == 3 && strcmp(argv[1], "-t") == 0 ? argv[2] : NULL;
	unsigned failed, n = 0;
	CU_pSuite suite;

	if (argc > 1 && only == NULL) {
		fprintf(stderr, "usage: %s [-t TEST]\n", argv[0]);
		return 2;
	}
	if (CU_initialize_registry() != CUE_SUCCESS)
		return 2;
	suite = CU_add_suite(unit_suite, NULL, NULL);
	for (const struct unit_test *t = unit_tests; suite != NULL && t->name != NULL; t++) {
		if (only != NULL && strstr(t->name, only) == NULL)
			continue;
		CU_add_test(suite, t->name, t->run);
		n++;
	}
	if (only != NULL && n == 0) {
		fprintf(stderr, "no test's name has '%s' in it; there are:\n", only);
		for (const struct unit_test *t = unit_tests; t->name != NULL; t++)
			fprintf(stderr, "  %s\n", t->name);
		return 2;
	}
	CU_basic_set_mode(CU_BRM_VERBOSE);
	if (CU_basic_run_tests() != CUE_SUCCESS)
		return 2;
	failed = CU_get_number_of_tests_failed() + CU_get_number_of_suites_failed();
	CU_cleanup_registry();
	return failed ? 1 : 0;
}
