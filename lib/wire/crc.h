/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef CRC_H
#define CRC_H

/* Ways to make a CRC32C; the room's own. */

#include <stddef.h>
#include <stdint.h>

/** Bytes from which on crc_vector() is the faster one; SIZE_MAX: this CPU cannot. Set at start. */
extern size_t crc_vector_least;
/** As pbox_crc32c(), of crc_vector_least bytes at least. */
uint32_t crc_vector(uint32_t crc, const void *buf, size_t len);
/** ... which are copied in the same pass. */
uint32_t crc_vector_copy(uint32_t crc, void *to, const void *buf, size_t len);

#endif /* CRC_H */
