/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <sched.h>

#include <rte_lcore.h>

#include "box.h"

/* Index of a NUMA node, -1 when there are too many. */
static int
node_index(struct box *b, int node)
{
	for (unsigned i = 0; i < b->n_nodes; i++)
		if (b->node[i] == node)
			return (int)i;
	if (b->n_nodes == PBOX_MAX_NODES)
		return -1;
	b->node[b->n_nodes] = node;
	return (int)b->n_nodes++;
}

/* @p used: CPUs of data cores, which need not be among those of the process: isolcpus takes them
 * out of its set. */
static enum pbox_idle
idle_mode(const struct box *b, const rte_cpuset_t *used)
{
	rte_cpuset_t all;

	if (b->opt.cores_idle != PBOX_IDLE_AUTO)
		return b->opt.cores_idle;
	CPU_OR(&all, &b->cpus, used);
	return pbox_dp_idle_auto(b->n_cores, (unsigned)CPU_COUNT(&all), b->cpu_shared);
}

/* All lcores are data cores; the control thread is none of EAL's. */
int
cores_find(struct box *b, struct pbox_error *err)
{
	rte_cpuset_t used, both;
	unsigned lcore;

	CPU_ZERO(&used);
	RTE_LCORE_FOREACH (lcore) {
		rte_cpuset_t cpus = rte_lcore_cpuset(lcore);
		int node = (int)rte_lcore_to_socket_id(lcore), i;

		if (b->n_cores == PBOX_PORT_CORES)
			return pbox_fail(err, E2BIG,
				"%u lcores are more than the %u data cores that pbox knows: give EAL fewer with -l",
				rte_lcore_count(), PBOX_PORT_CORES);
		i = node_index(b, node);
		if (i < 0)
			return pbox_fail(err, E2BIG,
				"the lcores are on more than %u NUMA nodes: give EAL others with -l",
				PBOX_MAX_NODES);
		CPU_AND(&both, &used, &cpus);
		if (CPU_COUNT(&both) > 0)
			b->cpu_shared = true;
		CPU_OR(&used, &used, &cpus);
		b->core[b->n_cores] = (struct pbox_port_core){.lcore = lcore, .node = node};
		b->lcore_of[b->n_cores] = lcore;
		b->node_of[b->n_cores++] = (uint8_t)i;
	}
	b->idle = idle_mode(b, &used);
	return 0;
}
