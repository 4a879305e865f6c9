/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef TESTPS_COMPARE_H
#define TESTPS_COMPARE_H

/** @file Results and references, byte by byte. Any thread. */

#include <stdbool.h>
#include <stdint.h>

/** Are all @p n bytes of @p a and @p b the same? On the way @p n bytes at @p ahead, which need not be there,
 * are asked for: those that are compared next, which another core has written. */
typedef bool compare_fn(const uint8_t *a, const uint8_t *b, uint32_t n, const uint8_t *ahead);

/** The fastest that this CPU has. */
compare_fn *compare_select(void);
compare_fn compare_plain;

#endif /* TESTPS_COMPARE_H */
