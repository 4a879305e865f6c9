/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_WIRE_AT_H
#define PBOX_WIRE_AT_H

/**
 * @file
 * Single fields of a frame where it lies, for programs that look at a few of them in every frame and do
 * not want all decoded; and numbers in files. Nothing here checks anything: pbox_frame_decode() does. Any thread.
 */

#include <endian.h>
#include <stdint.h>
#include <string.h>

/** Offsets of the header's fields (section 2 of the protocol): bytes. */
enum pbox_wire_at {
	PBOX_AT_MAGIC = 0,
	PBOX_AT_VERSION = 1,
	PBOX_AT_TYPE = 2,
	PBOX_AT_PRIO = 3,
	PBOX_AT_FLAGS = 4,
	PBOX_AT_TOKEN = 6,
	PBOX_AT_JOB = 14,
	PBOX_AT_WORKER = 16,
	PBOX_AT_INCARNATION = 18,
	PBOX_AT_CHUNK = 22,
	PBOX_AT_FRAG = 26,
	PBOX_AT_LENGTH = 28,
	PBOX_AT_ROUND = 30,
	PBOX_AT_BASE = 34,
	PBOX_AT_MAP_EPOCH = 38,
	PBOX_AT_SERVED = 40,
	PBOX_AT_FORMAT = 42,
	PBOX_AT_FMT_ARG = 43,
	PBOX_AT_AUX = 44,
	PBOX_AT_WEIGHT = 46,
	PBOX_AT_TS = 50,
	PBOX_AT_HELD = 54,
	PBOX_AT_CRC = 58,
};

/* Nothing in a datagram is aligned; the memcpy of a constant size is one mov. */

/** @return 2 little-endian bytes at @p p. */
static inline uint16_t
pbox_ld16(const uint8_t *p)
{
	uint16_t v;

	memcpy(&v, p, sizeof(v));
	return le16toh(v);
}

/** @return 4 little-endian bytes at @p p. */
static inline uint32_t
pbox_ld32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return le32toh(v);
}

/** @return 8 little-endian bytes at @p p. */
static inline uint64_t
pbox_ld64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return le64toh(v);
}

/** Write @p v in 2 little-endian bytes at @p p. */
static inline void
pbox_st16(uint8_t *p, uint16_t v)
{
	v = htole16(v);
	memcpy(p, &v, sizeof(v));
}

/** Write @p v in 4 little-endian bytes at @p p. */
static inline void
pbox_st32(uint8_t *p, uint32_t v)
{
	v = htole32(v);
	memcpy(p, &v, sizeof(v));
}

/** Write @p v in 8 little-endian bytes at @p p. */
static inline void
pbox_st64(uint8_t *p, uint64_t v)
{
	v = htole64(v);
	memcpy(p, &v, sizeof(v));
}

#endif /* PBOX_WIRE_AT_H */
