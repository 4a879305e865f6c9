/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <limits.h>
#include <string.h>

#include <isa-l/crc.h>

#include "crc.h"
#include "pbox_wire.h"

/*
 * isa-l's crc32_iscsi() neither inverts what it takes nor what it returns, and counts in int. Ours
 * does both, so that calls chain as zlib's do.
 */
uint32_t
pbox_crc32c(uint32_t crc, const void *buf, size_t len)
{
	unsigned char *p = (unsigned char *)(uintptr_t)buf; /* isa-l only reads it */

	if (len >= crc_vector_least)
		return crc_vector(crc, buf, len);
	crc = ~crc;
	while (len > INT_MAX) {
		crc = crc32_iscsi(p, INT_MAX, crc);
		p += INT_MAX;
		len -= INT_MAX;
	}
	return ~crc32_iscsi(p, (int)len, crc);
}

uint32_t
pbox_crc32c_copy(uint32_t crc, void *to, const void *from, size_t len)
{
	if (len >= crc_vector_least)
		return crc_vector_copy(crc, to, from, len);
	if (len > 0)
		memcpy(to, from, len);
	return pbox_crc32c(crc, to, len);
}
