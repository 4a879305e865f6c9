/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_ERROR_RATE_H
#define PBOX_ERROR_RATE_H

/* ERROR SESSION answers a sender with a wrong token, and that may be anybody (R4.8). */

#include <stdbool.h>
#include <stdint.h>

/* To one address: one answer in this time, and how many in a burst: enough for restarted workers, useless for
 * reflection. */
#define PBOX_ERROR_INTERVAL_NS UINT64_C(5000000)
#define PBOX_ERROR_BURST       64

/* Token buckets in units of time, of sources by a hash of their address: who sends much takes the answers of
 * few others. */
#define PBOX_ERROR_SOURCES 256
struct pbox_error_rate {
	uint64_t empty_ns
		[PBOX_ERROR_SOURCES]; /* when it was, or would have been, last empty; 0: full */
};

/* May one more be sent there? Takes it. */
static inline bool
pbox_error_rate_take(struct pbox_error_rate *r, uint32_t ip, uint64_t now_ns)
{
	uint64_t *empty_ns = &r->empty_ns[ip * 2654435761u >> 24];

	if (*empty_ns == 0 || now_ns - *empty_ns > PBOX_ERROR_BURST * PBOX_ERROR_INTERVAL_NS)
		*empty_ns = now_ns - PBOX_ERROR_BURST * PBOX_ERROR_INTERVAL_NS;
	if (now_ns - *empty_ns < PBOX_ERROR_INTERVAL_NS)
		return false;
	*empty_ns += PBOX_ERROR_INTERVAL_NS;
	return true;
}

#endif /* PBOX_ERROR_RATE_H */
