/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "pbox_stats.h"

uint64_t
pbox_hist_upper(unsigned index)
{
	unsigned e;

	PBOX_ASSERT(index < PBOX_HIST_BUCKETS);
	if (index == PBOX_HIST_BUCKETS - 1)
		return UINT64_MAX;
	if (index < 2u << PBOX_HIST_SUB_BITS) /* the first two groups are exact */
		return index;
	e = (index >> PBOX_HIST_SUB_BITS) - 1;
	return ((uint64_t)(index - (e << PBOX_HIST_SUB_BITS) + 1) << e) - 1;
}

void
pbox_hist_merge(struct pbox_hist *to, const struct pbox_hist *from)
{
	uint64_t max = pbox_stat_get(&from->max);

	to->sum += pbox_stat_get(&from->sum);
	if (max > to->max)
		to->max = max;
	for (unsigned i = 0; i < PBOX_HIST_BUCKETS; i++)
		to->bucket[i] += pbox_stat_get(&from->bucket[i]);
}

uint64_t
pbox_hist_count(const struct pbox_hist *h)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < PBOX_HIST_BUCKETS; i++)
		n += pbox_stat_get(&h->bucket[i]);
	return n;
}

uint64_t
pbox_hist_percentile(const struct pbox_hist *h, double percent)
{
	uint64_t n = pbox_hist_count(h), max = pbox_stat_get(&h->max), seen = 0, rank;
	double wanted;

	if (n == 0)
		return 0;
	if (!(percent > 0))
		percent = 0;
	else if (percent > 100)
		percent = 100;
	wanted = percent / 100 * (double)n;
	rank = (uint64_t)wanted;
	if ((double)rank < wanted)
		rank++; /* the smallest count that is at least that share */
	if (rank == 0)
		rank = 1;
	if (rank > n)
		rank = n;
	for (unsigned i = 0; i < PBOX_HIST_BUCKETS; i++) {
		seen += pbox_stat_get(&h->bucket[i]);
		if (seen >= rank) {
			uint64_t upper = pbox_hist_upper(i);

			return upper < max ? upper : max;
		}
	}
	return max;
}
