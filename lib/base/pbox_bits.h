/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_BITS_H
#define PBOX_BITS_H

/**
 * @file
 * Bitmaps of workers and slots, in words of 64 bits. The caller keeps @p i within the map.
 */

#include <stdbool.h>
#include <stdint.h>

static inline bool
pbox_bit_get(const uint64_t *map, unsigned i)
{
	return map[i / 64] >> i % 64 & 1;
}

static inline void
pbox_bit_set(uint64_t *map, unsigned i)
{
	map[i / 64] |= UINT64_C(1) << i % 64;
}

static inline void
pbox_bit_clear(uint64_t *map, unsigned i)
{
	map[i / 64] &= ~(UINT64_C(1) << i % 64);
}

#endif /* PBOX_BITS_H */
