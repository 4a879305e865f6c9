/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef FUZZ_REQUIRE_H
#define FUZZ_REQUIRE_H

#include <stdlib.h>

/** What must hold in a fuzz target, also in builds without assert(). */
#define REQUIRE(cond)            \
	do {                     \
		if (!(cond))     \
			abort(); \
	} while (0)

#endif /* FUZZ_REQUIRE_H */
