/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <string.h>

#include <pbox_wire.h>

#include "pbox_reduce.h"

uint32_t
pbox_reduce_crc32c(uint32_t crc, const void *buf, size_t len)
{
	return pbox_crc32c(crc, buf, len);
}

bool
pbox_reduce_intact(const void *payload, size_t bytes, unsigned header)
{
	const uint8_t *p = payload;
	uint32_t crc = pbox_reduce_crc32c(0, p, bytes), sent;

	memcpy(&sent, p - sizeof(sent), sizeof(sent));
	return pbox_reduce_crc32c(crc, p - header, header - sizeof(sent)) == sent;
}
