/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Memory of the data cores, on the NUMA node of each: shard, counters, packets for answers. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_malloc.h>

#include "core.h"

#define WAKER_FAIL   "no eventfd to wake a %s with: %s. Raise the limit of open files (ulimit -n)"
#define CONTROL_ROOM (RTE_PKTMBUF_HEADROOM + 2048)

/* The smallest page that bounds a piece for a device (2 MiB): QEMU's e1000e cannot take one that goes on in a page
 * elsewhere, and leaves the frame out. An IOMMU's pages of 4 KiB would cost a descriptor for every second answer. */
#define DEVICE_PAGE_BITS 21u

/* Bus addresses of a region, page by page, so that the data path need not look for them. */
static int
region_map(struct region *r, const struct pbox_dp_region *from)
{
	const struct rte_memseg *ms = rte_mem_virt2memseg(from->base, NULL);
	uintptr_t page;
	size_t n;

	r->base = (uintptr_t)from->base;
	r->end = r->base + from->size;
	r->page_bits = ms != NULL ? (unsigned)__builtin_ctzll(ms->hugepage_sz) : 0;
	if (rte_eal_iova_mode() == RTE_IOVA_VA) {
		r->page_bits = RTE_MAX(r->page_bits, DEVICE_PAGE_BITS);
		return 0;
	}
	if (ms == NULL)
		return -EINVAL;
	page = (uintptr_t)1 << r->page_bits;
	n = ((r->end - 1) >> r->page_bits) - (r->base >> r->page_bits) + 1;
	r->iova = calloc(n + 1, sizeof(*r->iova)); /* one more to compare with */
	if (r->iova == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		uintptr_t at = (r->base & ~(page - 1)) + i * page;

		ms = rte_mem_virt2memseg((void *)at, NULL);
		if (ms == NULL)
			return -EINVAL;
		r->iova[i] = ms->iova + (at - ms->addr_64);
	}
	return 0;
}

static void
extbuf_freed(void *addr __rte_unused, void *opaque)
{
	/* parameter memory stays; the count is as before */
	rte_mbuf_ext_refcnt_set(opaque, 1);
}

/*
 * A packet of an answer is its headers, in the packet's own room, or its payload: then it is an external
 * buffer, pinned to it in DPDK's words, of which only the address changes. So that nothing need be
 * attached and detached for every answer, its count is in its private area and is set up
 * once. Both kinds are of one pool, as drivers give packets of one pool back together.
 */
static void
init_packet(struct rte_mempool *mp __rte_unused, void *arg __rte_unused, void *obj,
	unsigned i __rte_unused)
{
	struct rte_mbuf_ext_shared_info *sh = rte_mbuf_to_priv(obj);
	struct rte_mbuf *m = obj;

	sh->free_cb = extbuf_freed;
	sh->fcb_opaque = sh;
	rte_mbuf_ext_refcnt_set(sh, 1);
	m->shinfo = sh;
}

static struct rte_mempool *
packet_pool(const char *name, unsigned n, int node)
{
	struct rte_mempool *mp = pbox_port_pool(name, n, PBOX_PORT_MBUF_PRIV, HEADER_ROOM, node);
	struct rte_pktmbuf_pool_private *info;

	_Static_assert(sizeof(struct rte_mbuf_ext_shared_info) <= PBOX_PORT_MBUF_PRIV, "fits");
	if (mp == NULL)
		return NULL;
	info = rte_mempool_get_priv(mp);
	info->flags |= RTE_PKTMBUF_POOL_F_PINNED_EXT_BUF;
	rte_mempool_obj_iter(mp, init_packet, NULL);
	return mp;
}

static bool
is_served(const struct pbox_port *port, unsigned core)
{
	unsigned i = 0;

	while (i < port->conf.n_cores && port->conf.core[i] != core)
		i++;
	return i < port->conf.n_cores;
}

/* What lies in the transmit queues of its ports: headers, and as many payloads. */
static unsigned
setup_packets_of(const struct pbox_port *port, unsigned n_ports, unsigned core)
{
	unsigned n = 512 + STASH;

	for (unsigned p = 0; p < n_ports; p++)
		if (is_served(&port[p], core))
			n += port[p].n_txd + RING_HANDOFF;
	return 2 * n;
}

static size_t
packets_bytes(unsigned n)
{
	return pbox_port_pool_bytes(n, PBOX_PORT_MBUF_PRIV, HEADER_ROOM);
}

static int
core_packets(struct pbox_dp *dp, struct core *c, struct pbox_error *err)
{
	unsigned i = c->index, n = setup_packets_of(dp->conf.port, dp->conf.n_ports, i);
	char name[RTE_MEMPOOL_NAMESIZE];

	snprintf(name, sizeof(name), "pbox_answers_%u", i);
	dp->packets[i] = packet_pool(name, n, c->node);
	if (dp->packets[i] == NULL)
		return pbox_memory_fail(err, "packets for answers need", c->node, packets_bytes(n));
	dp->n_packets[i] = n;
	c->packets.pool = dp->packets[i];
	return 0;
}

static size_t
values(size_t n)
{
	return RTE_ALIGN_CEIL(n * sizeof(uint64_t), 2 * PBOX_CACHE_LINE);
}

#define CORE_STRUCT RTE_ALIGN_CEIL(sizeof(struct core), 2 * PBOX_CACHE_LINE)

/* The core, then its counters, then its shard. */
static size_t
core_size(void)
{
	return CORE_STRUCT + values(PBOX_CS_STATS) + values(PBOX_SS_STATS) + pbox_shard_bytes();
}

static uint16_t
smallest_mtu(const struct pbox_dp_conf *conf)
{
	uint16_t mtu = UINT16_MAX;

	for (unsigned i = 0; i < conf->n_ports; i++)
		if (conf->port[i].mtu < mtu)
			mtu = conf->port[i].mtu;
	return mtu;
}

static int
core_create(struct pbox_dp *dp, unsigned i, struct pbox_error *err)
{
	int node = dp->conf.core[i].node < 0 ? SOCKET_ID_ANY : dp->conf.core[i].node;
	size_t size = core_size(), at = CORE_STRUCT;
	struct pbox_shard_conf sc;
	struct core *c;
	int ret;

	c = rte_zmalloc_socket("pbox_core", size, 2 * PBOX_CACHE_LINE, node);
	if (c == NULL)
		return pbox_memory_fail(err, "a data core needs", node, size);
	dp->core[i] = c;
	ret = waker_open(&c->waker);
	if (ret != 0)
		return pbox_fail(err, -ret, WAKER_FAIL, "data core", strerror(-ret));
	c->dp = dp;
	c->index = (uint16_t)i;
	c->node = node;
	c->stat = (uint64_t *)((uint8_t *)c + at);
	c->shard_stat = (uint64_t *)((uint8_t *)c->stat + values(PBOX_CS_STATS));
	memset(c->outbox_of, -1, sizeof(c->outbox_of));
	sc = (struct pbox_shard_conf){
		.id = (uint16_t)i,
		.memory = (uint8_t *)c->shard_stat + values(PBOX_SS_STATS),
		.incarnation = dp->conf.incarnation,
		.cookie_key = dp->conf.cookie_key,
		.max_jobs = dp->conf.max_jobs,
		.mtu = smallest_mtu(&dp->conf),
		.endpoint = dp->conf.endpoint,
		.n_endpoints = dp->conf.n_endpoints,
		.reduce = dp->conf.reduce,
		.optim = dp->conf.optim,
		.ops = &core_ops,
		.ctx = c,
		.stats = c->shard_stat,
	};
	c->shard = pbox_shard_create(&sc);
	return core_packets(dp, c, err);
}

/* Many drivers give a packet back only when its place in the queue is needed again, and then the
 * core keeps it: when control is all that is sent, all of this is full of its packets forever. With
 * none left nothing would be sent that could free one. */
static unsigned
control_packets(const struct pbox_port *port, unsigned n_ports)
{
	unsigned n = RING_CONTROL + 64;

	for (unsigned p = 0; p < n_ports; p++)
		n += port[p].n_txd + PBOX_PORT_CACHE * 3 / 2;
	return n;
}

size_t
pbox_dp_control_bytes(const struct pbox_port *port, unsigned n_ports)
{
	return pbox_port_pool_bytes(
		control_packets(port, n_ports), PBOX_PORT_MBUF_PRIV, CONTROL_ROOM);
}

/* Room in each packet for what cores pass on about it. */
static int
packet_field(struct pbox_dp *dp, struct pbox_error *err)
{
	static const struct rte_mbuf_dynfield field = {
		.name = "pbox_looked", .size = sizeof(uint64_t), .align = _Alignof(uint64_t)};

	dp->looked_at = rte_mbuf_dynfield_register(&field);
	return dp->looked_at >= 0 ? 0 : pbox_fail(err, rte_errno, "no room in packets for 8 bytes");
}

struct pbox_dp *
pbox_dp_create(const struct pbox_dp_conf *conf, struct pbox_error *err)
{
	struct pbox_dp *dp = calloc(1, sizeof(*dp));
	int ret = 0;

	if (dp == NULL) {
		pbox_fail(err, ENOMEM, "out of memory");
		return NULL;
	}
	PBOX_ASSERT(conf->n_cores <= PBOX_PORT_CORES && conf->n_regions <= PBOX_MAX_NODES);
	dp->conf = *conf;
	ret = waker_open(&dp->control);
	if (ret != 0)
		pbox_fail(err, -ret, WAKER_FAIL, "control thread", strerror(-ret));
	dp->iova_is_va = rte_eal_iova_mode() == RTE_IOVA_VA;
	dp->ns_mult = (uint64_t)(1e9 * 4294967296.0 / (double)rte_get_tsc_hz());
	dp->us_mult = (uint64_t)(1e6 * 4294967296.0 / (double)rte_get_tsc_hz());
	if (ret == 0)
		ret = packet_field(dp, err);
	for (unsigned p = 0; p < conf->n_ports; p++) {
		struct pbox_port *port = &conf->port[p];

		dp->port_of[port->conf.id] = port;
		/* the window of a worker answers to marks on what it gets as well (R6.10) */
		pbox_net_udp_origin(&dp->from[port->conf.id], &port->nif, PBOX_NET_ECT0);
		for (unsigned i = 0; i < port->conf.n_cores; i++)
			dp->serves[port->conf.id] |= UINT64_C(1) << port->conf.core[i];
	}
	for (unsigned i = 0; ret == 0 && i < conf->n_regions; i++) {
		ret = region_map(&dp->region[dp->n_regions++], &conf->region[i]);
		if (ret != 0)
			pbox_fail(err, -ret, "parameter memory: no bus addresses for it");
	}
	for (unsigned i = 0; ret == 0 && i < conf->n_cores; i++)
		ret = core_create(dp, i, err);
	if (ret == 0)
		ret = rings_create(dp, err);
	if (ret == 0) {
		dp->n_control = control_packets(conf->port, conf->n_ports);
		dp->control_pool = pbox_port_pool("pbox_control", dp->n_control,
			PBOX_PORT_MBUF_PRIV, CONTROL_ROOM, SOCKET_ID_ANY);
		if (dp->control_pool == NULL)
			ret = pbox_memory_fail(err, "packets of the control thread need", -1,
				pbox_dp_control_bytes(conf->port, conf->n_ports));
	}
	if (ret == 0 && conf->uplinks > 0)
		ret = uplink_create(dp);
	if (ret != 0 && conf->uplinks > 0 && err->code == 0)
		pbox_fail(err, -ret, "no memory for the uplink's packets and rings");
	if (ret != 0) {
		pbox_dp_destroy(dp);
		return NULL;
	}
	return dp;
}

void *
pbox_dp_core(struct pbox_dp *dp, unsigned i)
{
	return dp->core[i];
}

/* Free what is in a ring of packets. @p why: PBOX_CS_STATS for none. */
static void
empty_ring(struct core *c, struct rte_ring *r, bool received)
{
	void *m;

	while (r != NULL && rte_ring_sc_dequeue(r, &m) == 0) {
		if (received) {
			core_count(c, PBOX_CS_HANDOFF_IN, 1);
			core_count(c, PBOX_CS_DROP_STOPPED, 1);
		} else {
			core_count(c, PBOX_CS_TX_DROPPED, 1);
		}
		rte_pktmbuf_free(m);
	}
}

static void
empty_stash(struct stash *s)
{
	if (s->n > 0)
		rte_mempool_put_bulk(s->pool, (void **)s->m, s->n);
	s->n = 0;
}

void
pbox_dp_drain(struct pbox_dp *dp)
{
	for (unsigned i = 0; i < dp->conf.n_cores; i++) {
		struct core *c = dp->core[i];
		void *m;

		for (unsigned r = 0; r < c->n_rx_in; r++)
			empty_ring(c, c->rx_in[r], true);
		for (unsigned r = 0; r < c->n_tx_in; r++)
			empty_ring(c, c->tx_in[r], false);
		empty_ring(c, c->from_control, false);
		/* the control thread has counted what it took: these it has not */
		while (rte_ring_sc_dequeue(c->to_control, &m) == 0 ||
			rte_ring_sc_dequeue(c->sessions, &m) == 0)
			rte_pktmbuf_free(m);
		pbox_shard_destroy(c->shard);
		c->shard = NULL;
		empty_stash(&c->packets);
	}
}

unsigned
pbox_dp_mbufs(const struct pbox_dp *dp)
{
	unsigned n = dp->n_control;

	for (unsigned i = 0; i < dp->conf.n_cores; i++)
		n += dp->n_packets[i];
	return n;
}

unsigned
pbox_dp_mbufs_missing(const struct pbox_dp *dp)
{
	unsigned n = rte_mempool_in_use_count(dp->control_pool);

	if (dp->uplink_pool != NULL)
		n += rte_mempool_in_use_count(dp->uplink_pool);

	for (unsigned i = 0; i < dp->conf.n_cores; i++)
		n += rte_mempool_in_use_count(dp->packets[i]);
	return n;
}

size_t
pbox_dp_core_bytes(const struct pbox_port *port, unsigned n_ports, unsigned core)
{
	size_t n = core_size() + rings_control_bytes();

	for (unsigned p = 0; p < n_ports; p++)
		if (is_served(&port[p], core))
			n += rings_port_bytes(&port[p]);
	return n + packets_bytes(setup_packets_of(port, n_ports, core));
}

void
pbox_dp_destroy(struct pbox_dp *dp)
{
	if (dp == NULL)
		return;
	rings_free(dp);
	for (unsigned i = 0; i < dp->conf.n_cores; i++) {
		if (dp->core[i] != NULL) {
			pbox_shard_destroy(dp->core[i]->shard);
			waker_close(&dp->core[i]->waker);
		}
		rte_free(dp->core[i]);
		rte_mempool_free(dp->packets[i]);
	}
	rte_mempool_free(dp->control_pool);
	uplink_destroy(dp);
	waker_close(&dp->control);
	for (unsigned i = 0; i < dp->n_regions; i++)
		free(dp->region[i].iova);
	free(dp);
}
