/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <stdio.h>

#include <rte_errno.h>
#include <rte_mbuf.h>

#include "port_priv.h"

struct rte_mempool *
pbox_port_pool(const char *name, unsigned n, uint16_t priv, uint16_t data_room, int node)
{
	unsigned cache = n >= 4 * PBOX_PORT_CACHE ? PBOX_PORT_CACHE : 0;
	struct rte_mempool *mp;

	/* a stack returns the buffer that was used last, a ring the one that rested longest; and
	 * the lock-free one does not care who is preempted (threads may share CPUs) */
	mp = rte_pktmbuf_pool_create_by_ops(name, n, cache, priv, data_room, node, "lf_stack");
	if (mp == NULL && rte_errno != ENOMEM && rte_errno != EEXIST)
		mp = rte_pktmbuf_pool_create(name, n, cache, priv, data_room, node);
	return mp;
}

size_t
pbox_port_pool_bytes(unsigned n, uint16_t priv, uint32_t data_room)
{
	uint32_t size = (uint32_t)sizeof(struct rte_mbuf) + priv + data_room;

	/* the stack takes 16 bytes an object beside the object itself */
	return (size_t)n * (rte_mempool_calc_obj_size(size, 0, NULL) + 16);
}

int
port_pools(struct pbox_port *p, struct pbox_error *err)
{
	p->data_room = pbox_port_plan_room(p->mtu, p->dev.min_buffer);
	if (p->data_room == 0)
		return pbox_fail(err, EINVAL,
			PORT_FMT ": MTU %u, or framesz of the device, does not fit a packet buffer "
				 "of 64 KiB: choose a smaller one",
			PORT_ARGS(p), p->mtu);
	p->n_mbufs = pbox_port_plan_mbufs(&p->conf, p->n_queues, p->n_rxd, p->n_txd);
	p->pool_bytes =
		p->n_queues * pbox_port_pool_bytes(p->n_mbufs, PBOX_PORT_MBUF_PRIV, p->data_room);
	for (unsigned q = 0; q < p->n_queues; q++) {
		char name[RTE_MEMPOOL_NAMESIZE];

		snprintf(name, sizeof(name), "pbox_p%u_q%u", p->conf.id, q);
		p->pool[q] = pbox_port_pool(
			name, p->n_mbufs, PBOX_PORT_MBUF_PRIV, (uint16_t)p->data_room, p->dev.node);
		if (p->pool[q] == NULL) {
			char what[160];

			snprintf(what, sizeof(what),
				PORT_FMT ": packet pools (%u queues of %u buffers of %u bytes)",
				PORT_ARGS(p), p->n_queues, p->n_mbufs, p->data_room);
			return pbox_memory_fail(err, what, p->dev.node, p->pool_bytes);
		}
	}
	return 0;
}

unsigned
pbox_port_mbufs(const struct pbox_port *p)
{
	unsigned n = 0;

	for (unsigned q = 0; q < p->n_queues; q++)
		n += p->pool[q] != NULL ? p->n_mbufs : 0;
	return n;
}

unsigned
pbox_port_mbufs_missing(const struct pbox_port *p)
{
	unsigned n = 0;

	for (unsigned q = 0; q < p->n_queues; q++)
		n += p->pool[q] != NULL ? rte_mempool_in_use_count(p->pool[q]) : 0;
	return n;
}

void
pbox_port_free(struct pbox_port *p)
{
	for (unsigned q = 0; q < p->n_queues; q++) {
		rte_mempool_free(p->pool[q]);
		p->pool[q] = NULL;
	}
}
