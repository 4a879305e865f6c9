/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "pbox_net.h"

/* 2^16 = 1 modulo 2^16 - 1, so words of 32 bits may be added instead of words of 16, and folded at
 * the end (RFC 1071, section 2). Four accumulators: the compiler turns them into vectors. */
uint64_t
pbox_net_sum(const void *data, size_t len, uint64_t sum)
{
	const uint8_t *p = (const uint8_t *)data;
	uint64_t acc[4] = {0, 0, 0, 0};
	uint32_t w[4];
	uint16_t half;

	for (; len >= sizeof(w); p += sizeof(w), len -= sizeof(w)) {
		memcpy(w, p, sizeof(w));
		for (unsigned i = 0; i < 4; i++)
			acc[i] += w[i];
	}
	/* fold what came in so that sums of sums never overflow */
	sum = (sum & 0xFFFFFFFF) + (sum >> 32);
	for (unsigned i = 0; i < 4; i++)
		sum += (acc[i] & 0xFFFFFFFF) + (acc[i] >> 32);
	for (; len >= 2; p += 2, len -= 2) {
		memcpy(&half, p, 2);
		sum += half;
	}
	if (len > 0) {
		uint8_t last[2] = {*p, 0};

		memcpy(&half, last, 2);
		sum += half;
	}
	return sum;
}

uint16_t
pbox_net_checksum(const void *data, size_t len)
{
	return (uint16_t)~pbox_net_sum_fold(pbox_net_sum(data, len, 0));
}
