/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "core.h"

#define NET_DROP(symbol, name, help) \
	[PBOX_CS_DROP_##symbol] = {"drop_" name, "packets", help, PBOX_STAT_COUNTER},
#define FRAME_DROP(symbol, number, name, help) \
	[PBOX_CS_FRAME_##symbol] = {#name, "frames", help, PBOX_STAT_COUNTER},

/* clang-format off */
const struct pbox_stat_def pbox_core_stat_defs[PBOX_CS_STATS] = {
	PBOX_CORE_PACKETS(PBOX_STAT_DEF)
	PBOX_NET_DROPS(NET_DROP)
	PBOX_CORE_FRAMES(PBOX_STAT_DEF)
	PBOX_WIRE_REFUSALS(FRAME_DROP)
	PBOX_CORE_OTHERS(PBOX_STAT_DEF)
};
/* clang-format on */

const uint64_t *
pbox_dp_core_stats(const struct pbox_dp *dp, unsigned i)
{
	return dp->core[i]->stat;
}

const uint64_t *
pbox_dp_shard_stats(const struct pbox_dp *dp, unsigned i)
{
	return dp->core[i]->shard_stat;
}

bool
pbox_dp_running(const struct pbox_dp *dp, unsigned i)
{
	return atomic_load_explicit(&dp->core[i]->running, memory_order_acquire);
}

int
pbox_dp_core_tid(const struct pbox_dp *dp, unsigned i)
{
	return atomic_load_explicit(&dp->core[i]->tid, memory_order_relaxed);
}

uint64_t
pbox_dp_total(const struct pbox_dp *dp, enum pbox_core_stat what)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < dp->conf.n_cores; i++)
		sum += pbox_stat_get(&dp->core[i]->stat[what]);
	return sum;
}
