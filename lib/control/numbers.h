/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef NUMBERS_H
#define NUMBERS_H

/* Bitmaps of workers as texts. Where there is no room for all, a text ends with "...". */

#include <stddef.h>
#include <stdint.h>

/* For programs: "1,3-7", the set bits below n. */
void numbers_ranges(const uint64_t *map, unsigned n, char *out, size_t cap);
/* For people: "worker 1", "workers 1 and 2", "workers 1, 3-7 and 9". */
void numbers_workers(const uint64_t *map, unsigned n, char *out, size_t cap);

#endif /* NUMBERS_H */
