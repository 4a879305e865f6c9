/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "perf.h"

/* A histogram of times: 32 buckets per power of two. */

static unsigned
bucket_of(uint64_t ns)
{
	unsigned e, b;

	if (ns < HIST_SUB)
		return (unsigned)ns;
	e = 63 - (unsigned)__builtin_clzll(ns);
	b = (e - 4) * HIST_SUB + (unsigned)(ns >> (e - 5) & (HIST_SUB - 1));
	return b < HIST_BUCKETS ? b : HIST_BUCKETS - 1;
}

static double
bucket_value(unsigned b)
{
	unsigned e = b / HIST_SUB + 4;

	if (b < HIST_SUB)
		return b;
	return (double)((uint64_t)(HIST_SUB + b % HIST_SUB) << (e - 5)) * (1 + 0.5 / HIST_SUB);
}

void
hist_add(uint32_t *hist, uint64_t ns)
{
	hist[bucket_of(ns)]++;
}

double
hist_percentile(const uint32_t *hist, double share)
{
	uint64_t total = 0, at = 0;

	for (unsigned i = 0; i < HIST_BUCKETS; i++)
		total += hist[i];
	for (unsigned i = 0; i < HIST_BUCKETS; i++) {
		at += hist[i];
		if (at > 0 && (double)at >= share * (double)total)
			return bucket_value(i);
	}
	return 0;
}
