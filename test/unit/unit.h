/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef UNIT_H
#define UNIT_H

/**
 * @file
 * One test program = one table of tests. Define `const struct unit_test unit_tests[]`, ended by
 * an entry without a name, and `const char unit_suite[]`; unit_main.c has main().
 */

#include <stdio.h>

#include <CUnit/Basic.h>

struct unit_test {
	const char *name;
	void (*run)(void);
};

extern const char unit_suite[];
extern const struct unit_test unit_tests[];

/** Assert with the values of both sides in the message. */
#define UNIT_EQ_U64(a, b)                                                                     \
	unit_eq_u64((unsigned long long)(a), (unsigned long long)(b), #a " == " #b, __FILE__, \
		__LINE__)
static inline void
unit_eq_u64(
	unsigned long long a, unsigned long long b, const char *what, const char *file, int line)
{
	char text[256];

	snprintf(text, sizeof(text), "%s: %llu (0x%llx) and %llu (0x%llx)", what, a, a, b, b);
	CU_assertImplementation(a == b, (unsigned)line, text, file, "", CU_FALSE);
}

#endif /* UNIT_H */
