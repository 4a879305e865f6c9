/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <limits.h>
#include <string.h>

#include <isa-l/crc.h>

#include "pbox_reduce.h"

/* isa-l's crc32_iscsi() neither inverts what it takes nor what it returns, and counts in int. */
uint32_t
pbox_reduce_crc32c(uint32_t crc, const void *buf, size_t len)
{
	unsigned char *p = (unsigned char *)(uintptr_t)buf; /* isa-l only reads it */

	crc = ~crc;
	while (len > INT_MAX) {
		crc = crc32_iscsi(p, INT_MAX, crc);
		p += INT_MAX;
		len -= INT_MAX;
	}
	return ~crc32_iscsi(p, (int)len, crc);
}

bool
pbox_reduce_intact(const void *payload, size_t bytes, unsigned header)
{
	const uint8_t *p = payload;
	uint32_t crc = pbox_reduce_crc32c(0, p, bytes), sent;

	memcpy(&sent, p - sizeof(sent), sizeof(sent));
	return pbox_reduce_crc32c(crc, p - header, header - sizeof(sent)) == sent;
}
