/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef FUZZ_RESEAL_H
#define FUZZ_RESEAL_H

#include <pbox_wire.h>

/** The right CRC for the frame at @p p, if it is all there. */
static inline void
reseal(uint8_t *p, size_t len)
{
	size_t payload;
	uint32_t crc;

	if (len < PBOX_HDR_LEN)
		return;
	payload = p[28] | (size_t)p[29] << 8;
	if (PBOX_HDR_LEN + payload > len)
		return;
	crc = pbox_crc32c(pbox_crc32c(0, p + PBOX_HDR_LEN, payload), p, 58);
	for (unsigned i = 0; i < 4; i++)
		p[58 + i] = (uint8_t)(crc >> 8 * i);
}

#endif /* FUZZ_RESEAL_H */
