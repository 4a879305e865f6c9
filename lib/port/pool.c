/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <rte_common.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_mbuf.h>
#include <rte_memzone.h>

#include "port_priv.h"

static void
zone_free(struct rte_mempool_memhdr *memhdr __rte_unused, void *zone)
{
	rte_memzone_free(zone);
}

/* One piece of memory, one object after another. */
static int
pool_fill(struct rte_mempool *mp, int node)
{
	size_t min, align;
	ssize_t size = rte_mempool_op_calc_mem_size_default(mp, mp->size, 0, &min, &align);
	const struct rte_memzone *zone;
	char name[RTE_MEMZONE_NAMESIZE];
	int ret;

	if (size < 0)
		return (int)size;
	snprintf(name, sizeof(name), "Z_%s", mp->name);
	zone = rte_memzone_reserve_aligned(name, (size_t)size, node, 0, RTE_CACHE_LINE_SIZE);
	if (zone == NULL)
		return -rte_errno;
	ret = rte_mempool_populate_iova(
		mp, zone->addr, zone->iova, zone->len, zone_free, (void *)(uintptr_t)zone);
	if (ret < 0)
		rte_memzone_free(zone);
	return ret == (int)mp->size ? 0 : ret < 0 ? ret : -ENOMEM;
}

/*
 * What rte_pktmbuf_pool_create() does, but for memory that is contiguous to devices as it is to
 * us: it lets no packet cross a page, which with 4 KiB pages wastes half, and leaves gaps that
 * AF_XDP does not expect (packets after the end that it computes are never received).
 */
static struct rte_mempool *
contiguous_pool(const char *name, unsigned n, unsigned cache, uint16_t priv, uint16_t data_room,
	int node, const char *ops)
{
	struct rte_pktmbuf_pool_private info = {
		.mbuf_data_room_size = data_room, .mbuf_priv_size = priv};
	struct rte_mempool *mp = rte_mempool_create_empty(name, n,
		(unsigned)sizeof(struct rte_mbuf) + priv + data_room, cache, sizeof(info), node,
		RTE_MEMPOOL_F_NO_IOVA_CONTIG);
	int ret;

	if (mp == NULL)
		return NULL;
	ret = rte_mempool_set_ops_byname(mp, ops, NULL);
	if (ret == 0) {
		rte_pktmbuf_pool_init(mp, &info);
		ret = pool_fill(mp, node);
	}
	if (ret != 0) {
		rte_mempool_free(mp);
		rte_errno = -ret;
		return NULL;
	}
	rte_mempool_obj_iter(mp, rte_pktmbuf_init, NULL);
	return mp;
}

/* A stack returns the buffer that was used last, a ring the one that rested longest; and the lock-free one does not care
 * who is preempted (threads may share CPUs). */
static const char *const pool_ops[] = {"lf_stack", "ring_mp_mc"};

int
port_pool_drivers(struct pbox_error *err)
{
	for (unsigned i = 0; i < rte_mempool_ops_table.num_ops; i++)
		for (unsigned k = 0; k < RTE_DIM(pool_ops); k++)
			if (strcmp(rte_mempool_ops_table.ops[i].name, pool_ops[k]) == 0)
				return 0;
	return pbox_fail(err, ENODEV,
		"DPDK has no driver that makes packet pools, neither %s nor %s: install librte_mempool_stack (on Debian the package librte-meta-mempool), or name the folder of its drivers with EAL's -d",
		pool_ops[0], pool_ops[1]);
}

struct rte_mempool *
pbox_port_pool(const char *name, unsigned n, uint16_t priv, uint16_t data_room, int node)
{
	unsigned cache = n >= 4 * PBOX_PORT_CACHE ? PBOX_PORT_CACHE : 0;
	struct rte_mempool *mp = NULL;

	for (unsigned i = 0; mp == NULL && i < RTE_DIM(pool_ops); i++) {
		mp = rte_eal_iova_mode() == RTE_IOVA_VA
			     ? contiguous_pool(name, n, cache, priv, data_room, node, pool_ops[i])
			     : rte_pktmbuf_pool_create_by_ops(
				       name, n, cache, priv, data_room, node, pool_ops[i]);
		if (mp == NULL && (rte_errno == ENOMEM || rte_errno == EEXIST))
			break;
	}
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
port_pools_plan(struct pbox_port *p, struct pbox_error *err)
{
	p->data_room = pbox_port_plan_room(p->mtu, p->dev.min_buffer, p->dev.max_buffer);
	if (p->data_room == 0)
		return pbox_fail(err, EINVAL,
			PORT_FMT
			": MTU %u, or framesz of the device, does not fit a packet buffer of 64 KiB: choose a smaller one",
			PORT_ARGS(p), p->mtu);
	p->n_mbufs = pbox_port_plan_mbufs(&p->conf, p->n_queues, p->n_rxd, p->n_txd);
	p->pool_bytes =
		p->n_queues * pbox_port_pool_bytes(p->n_mbufs, PBOX_PORT_MBUF_PRIV, p->data_room);
	return 0;
}

int
port_pools(struct pbox_port *p, struct pbox_error *err)
{
	for (unsigned q = 0; q < p->n_queues; q++) {
		char name[RTE_MEMPOOL_NAMESIZE];

		snprintf(name, sizeof(name), "pbox_p%u_q%u", p->conf.id, q);
		p->pool[q] = pbox_port_pool(
			name, p->n_mbufs, PBOX_PORT_MBUF_PRIV, (uint16_t)p->data_room, p->dev.node);
		if (p->pool[q] == NULL) {
			char what[160];

			snprintf(what, sizeof(what),
				PORT_FMT
				": packet pools (%u queues of %u buffers of %u bytes) need",
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

/* AF_XDP does not give back what lies in its fill and completion rings. */
unsigned
pbox_port_mbufs_kept(const struct pbox_port *p)
{
	unsigned missing = pbox_port_mbufs_missing(p), most;

	if (strcmp(p->dev.driver, "net_af_xdp") != 0)
		return 0;
	most = p->n_queues * (2048u + p->n_rxd + p->n_txd);
	return missing < most ? missing : most;
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
