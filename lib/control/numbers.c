/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "numbers.h"

#define PIECE 24 /* bytes of the longest piece, and of what comes before and after it */

static bool
numbers_has(const uint64_t *map, unsigned n, unsigned i)
{
	return i < n && (map[i / 64] >> i % 64 & 1) != 0;
}

/* The first set bit from i on; n: there is none. */
static unsigned
next_set(const uint64_t *map, unsigned n, unsigned i)
{
	while (i < n && !numbers_has(map, n, i))
		i++;
	return i;
}

/* Ranges of @p shortest numbers and more are FIRST-LAST. */
static void
numbers_join(const uint64_t *map, unsigned n, unsigned shortest, const char *comma,
	const char *last_comma, char *out, size_t cap)
{
	size_t len = 0;

	out[0] = '\0';
	for (unsigned i = next_set(map, n, 0), end; i < n; i = next_set(map, n, end)) {
		const char *between;

		for (end = i + 1; numbers_has(map, n, end); end++)
			;
		if (end - i < shortest)
			end = i + 1;
		between = len == 0 ? "" : next_set(map, n, end) < n ? comma : last_comma;
		if (len + PIECE > cap) {
			snprintf(out + len, cap - len, "%s...", comma);
			return;
		}
		len += (size_t)snprintf(out + len, cap - len, end == i + 1 ? "%s%u" : "%s%u-%u",
			between, i, end - 1);
	}
}

void
numbers_ranges(const uint64_t *map, unsigned n, char *out, size_t cap)
{
	numbers_join(map, n, 2, ",", ",", out, cap);
}

void
numbers_workers(const uint64_t *map, unsigned n, char *out, size_t cap)
{
	unsigned first = next_set(map, n, 0);
	bool one = next_set(map, n, first + 1) >= n;
	int len = snprintf(out, cap, one ? "worker " : "workers ");

	numbers_join(map, n, 3, ", ", " and ", out + len, cap - (size_t)len);
}
