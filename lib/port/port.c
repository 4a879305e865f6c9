/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "port_priv.h"

/* Rings: long enough for bursts of many workers, short enough for the cache. */
#define RX_DESC 1024
#define TX_DESC 1024

void
port_note(struct pbox_port *p, const char *fmt, ...)
{
	va_list ap;

	if (p->n_notes == PBOX_PORT_NOTES)
		return;
	va_start(ap, fmt);
	vsnprintf(p->note[p->n_notes++], sizeof(p->note[0]), fmt, ap);
	va_end(ap);
}

static struct rte_eth_conf
wanted_conf(const struct pbox_port *p, const struct rte_eth_dev_info *info)
{
	const struct pbox_port_device *d = &p->dev;
	struct rte_eth_conf c = {0};

	c.rxmode.mtu = d->mtu_set;
	c.rxmode.offloads = (d->rx_ip_checksum ? RTE_ETH_RX_OFFLOAD_IPV4_CKSUM : 0) |
			    (d->rx_udp_checksum ? RTE_ETH_RX_OFFLOAD_UDP_CKSUM : 0);
	/* never MBUF_FAST_FREE: answers share their payload and are counted */
	c.txmode.offloads =
		d->tx_segments ? RTE_ETH_TX_OFFLOAD_MULTI_SEGS & info->tx_offload_capa : 0;
	if (p->n_queues > 1 && d->rss) {
		c.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		c.rx_adv_conf.rss_conf.rss_hf = (RTE_ETH_RSS_NONFRAG_IPV4_UDP | RTE_ETH_RSS_IPV4) &
						info->flow_type_rss_offloads;
	}
	c.intr_conf.lsc = d->lsc;
	c.intr_conf.rxq = p->rx_intr;
	return c;
}

static int
try_configure(struct pbox_port *p, const struct rte_eth_dev_info *info, struct rte_eth_conf *c)
{
	*c = wanted_conf(p, info);
	return rte_eth_dev_configure(p->conf.id, p->n_queues, p->n_queues, c);
}

static void
note_interrupts(struct pbox_port *p)
{
	if (p->conf.rx_intr == PBOX_PORT_INTR_WANTED)
		port_note(p, "no receive interrupts: its cores sleep instead");
}

/*
 * net_failsafe says that it has receive interrupts, makes them with a service core, which a box has not, and does not survive the
 * failure of a start without one (DPDK 22.11).
 */
static bool
has_interrupts(const struct rte_eth_dev_info *info)
{
	return strcmp(info->driver_name, "net_failsafe") != 0;
}

/* Configure. Interrupts, and more than one queue, are asked for and done without: a bond says it has
 * queues that its slaves do not have. */
static int
configure(struct pbox_port *p, const struct rte_eth_dev_info *info, struct rte_eth_conf *c,
	struct pbox_error *err)
{
	unsigned wanted = p->n_queues;
	int ret;

	p->rx_intr = p->conf.rx_intr != PBOX_PORT_INTR_NONE && has_interrupts(info);
	if (!has_interrupts(info))
		note_interrupts(p);
	ret = try_configure(p, info, c);
	if (ret != 0 && p->rx_intr) {
		p->rx_intr = false;
		ret = try_configure(p, info, c);
		if (ret == 0)
			note_interrupts(p);
	}
	if (ret != 0 && wanted > 1) {
		p->n_queues = 1;
		ret = try_configure(p, info, c);
		if (ret == 0)
			port_note(p, "one queue: the device refuses %u", wanted);
	}
	if (ret != 0)
		return pbox_fail(err, -ret,
			PORT_FMT
			" refuses its configuration (%u queue pairs, MTU %u): %s. Try another mtu in %s",
			PORT_ARGS(p), wanted, p->mtu, strerror(-ret), p->conf.where);
	return 0;
}

static int
set_mtu(struct pbox_port *p, struct pbox_error *err)
{
	uint16_t now = 0;
	int ret;

	if (p->dev.mtu_set == 0)
		return 0;
	if (rte_eth_dev_get_mtu(p->conf.id, &now) == 0 && now == p->mtu)
		return 0;
	ret = rte_eth_dev_set_mtu(p->conf.id, p->mtu);
	if (ret == 0)
		return 0;
	if (ret != -ENOTSUP && ret != -EINVAL)
		return pbox_fail(err, -ret, PORT_FMT ": MTU %u cannot be set: %s. Change mtu in %s",
			PORT_ARGS(p), p->mtu, strerror(-ret), p->conf.where);
	p->dev.mtu_set = 0;
	return 0;
}

static int
descriptors(struct pbox_port *p, struct pbox_error *err)
{
	int ret;

	p->n_rxd = p->conf.rx_desc != 0 ? p->conf.rx_desc : RX_DESC;
	p->n_txd = p->conf.tx_desc != 0 ? p->conf.tx_desc : TX_DESC;
	ret = rte_eth_dev_adjust_nb_rx_tx_desc(p->conf.id, &p->n_rxd, &p->n_txd);
	if (ret != 0)
		return pbox_fail(err, -ret, PORT_FMT ": %u and %u descriptors are refused: %s",
			PORT_ARGS(p), p->n_rxd, p->n_txd, strerror(-ret));
	if (p->conf.rx_desc != 0 && p->n_rxd != p->conf.rx_desc)
		port_note(p, "rx-desc is %u, not %u: the device wants it so", p->n_rxd,
			p->conf.rx_desc);
	if (p->conf.tx_desc != 0 && p->n_txd != p->conf.tx_desc)
		port_note(p, "tx-desc is %u, not %u: the device wants it so", p->n_txd,
			p->conf.tx_desc);
	return 0;
}

static int
queues(struct pbox_port *p, const struct rte_eth_dev_info *info, struct pbox_error *err)
{
	struct rte_eth_rxconf rx = info->default_rxconf;
	struct rte_eth_txconf tx = info->default_txconf;
	/* a node of "any" is one for these calls */
	unsigned node = p->dev.node < 0 ? (unsigned)SOCKET_ID_ANY : (unsigned)p->dev.node;
	const struct rte_eth_conf c = wanted_conf(p, info);

	rx.offloads = c.rxmode.offloads;
	tx.offloads = c.txmode.offloads;
	if (p->dev.tx_segments)
		tx.offloads |= RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
	for (uint16_t q = 0; q < p->n_queues; q++) {
		int ret = rte_eth_rx_queue_setup(p->conf.id, q, p->n_rxd, node, &rx, p->pool[q]);

		/* some drivers start happily without the queue: the code is all there is */
		if (ret != 0)
			return pbox_fail(err, -ret,
				PORT_FMT
				": receive queue %u (%u descriptors, buffers of %u bytes) is refused: %s",
				PORT_ARGS(p), q, p->n_rxd, p->data_room, strerror(-ret));
		ret = rte_eth_tx_queue_setup(p->conf.id, q, p->n_txd, node, &tx);
		if (ret != 0)
			return pbox_fail(err, -ret,
				PORT_FMT ": transmit queue %u (%u descriptors) is refused: %s",
				PORT_ARGS(p), q, p->n_txd, strerror(-ret));
	}
	return 0;
}

/* A core of another node works, slowly: the operator should know. */
static void
note_far_cores(struct pbox_port *p)
{
	uint16_t far[PBOX_PORT_CORES];
	unsigned n, used = 0;
	char list[64] = "";

	if (p->conf.cores == NULL)
		return;
	n = pbox_port_plan_far(p->dev.node, p->conf.cores, p->conf.core, p->conf.n_cores, far);
	for (unsigned i = 0; i < n && used < sizeof(list) - 8; i++)
		used += (unsigned)snprintf(list + used, sizeof(list) - used, "%s%u",
			i > 0 ? "," : "", p->conf.cores[p->conf.core[far[i]]].lcore);
	if (n > 0)
		port_note(p,
			"lcores %s are not on its NUMA node %d: every packet crosses between nodes. Give EAL lcores of node %d with -l, or change cores in %s",
			list, p->dev.node, p->dev.node, p->conf.where);
}

/* memif connects as many rings as the side with fewer has, and gives each queue beyond them the first ring of
 * the others: packets overwrite each other. Which number that is shows only when the peer is there. */
static unsigned
wanted_queues(struct pbox_port *p)
{
	if (p->conf.queues == 0 && p->conf.n_cores > 1 && strcmp(p->dev.driver, "net_memif") == 0) {
		port_note(p, "one queue pair: more need queues = N, and a peer with N of them");
		return 1;
	}
	return p->conf.queues;
}

int
pbox_port_prepare(struct pbox_port *p, const struct pbox_port_conf *conf, struct pbox_error *err)
{
	struct rte_eth_dev_info info;
	struct rte_eth_conf c;
	int ret;

	*p = (struct pbox_port){.conf = *conf, .link_up = -1};
	ret = port_pool_drivers(err);
	if (ret == 0)
		ret = port_device(p, &info, err);
	if (ret == 0)
		ret = port_check_mtu(p, err);
	if (ret != 0)
		return ret;
	p->n_queues = (uint16_t)pbox_port_plan_queues(
		wanted_queues(p), p->dev.max_rxq, p->dev.max_txq, conf->n_cores);
	if (p->n_queues == 0)
		return pbox_fail(err, EINVAL,
			PORT_FMT " has no core or no queue: check cores in %s, and -l of EAL",
			PORT_ARGS(p), conf->where);
	if (conf->queues > p->n_queues)
		port_note(p, "queues is %u, not %u: that is what device and cores allow",
			p->n_queues, conf->queues);
	ret = configure(p, &info, &c, err);
	if (ret != 0)
		return ret;
	p->open = true;
	/* a bond has its slaves, and what they can, from now on */
	ret = port_device(p, &info, err);
	if (ret == 0 && c.txmode.offloads != wanted_conf(p, &info).txmode.offloads)
		ret = configure(p, &info, &c, err);
	if (ret == 0)
		ret = set_mtu(p, err);
	if (ret == 0)
		ret = descriptors(p, err);
	if (ret == 0)
		ret = port_pools_plan(p, err);
	if (ret != 0)
		pbox_port_close(p);
	else
		note_far_cores(p);
	return ret;
}

int
pbox_port_queues(struct pbox_port *p, struct pbox_error *err)
{
	struct rte_eth_dev_info info;
	int ret = rte_eth_dev_info_get(p->conf.id, &info);

	if (ret == 0)
		ret = port_pools(p, err);
	else
		pbox_fail(err, -ret, PORT_FMT ": its driver says nothing about it: %s",
			PORT_ARGS(p), strerror(-ret));
	if (ret == 0)
		ret = queues(p, &info, err);
	if (ret != 0) {
		pbox_port_close(p);
		pbox_port_free(p);
	}
	return ret;
}

int
pbox_port_open(struct pbox_port *p, const struct pbox_port_conf *conf, struct pbox_error *err)
{
	int ret = pbox_port_prepare(p, conf, err);

	return ret == 0 ? pbox_port_queues(p, err) : ret;
}

/* Some drivers take the wish for interrupts and have none: after the start it shows. */
static void
check_interrupts(struct pbox_port *p)
{
	for (uint16_t q = 0; p->rx_intr && q < p->n_queues; q++)
		p->rx_intr = rte_eth_dev_rx_intr_ctl_q_get_fd(p->conf.id, q) >= 0;
	if (!p->rx_intr)
		note_interrupts(p);
}

/* A device may find out only now that it has too few vectors. */
static int
start_without_interrupts(struct pbox_port *p, struct pbox_error *err)
{
	struct rte_eth_dev_info info;
	struct rte_eth_conf c;
	int ret = rte_eth_dev_info_get(p->conf.id, &info);

	p->rx_intr = false;
	if (ret == 0)
		ret = try_configure(p, &info, &c);
	if (ret == 0)
		ret = queues(p, &info, err);
	if (ret == 0)
		ret = rte_eth_dev_start(p->conf.id);
	if (ret == 0)
		note_interrupts(p);
	return ret;
}

int
pbox_port_start(struct pbox_port *p, struct pbox_error *err)
{
	int ret;

	port_link_watch(p);
	ret = rte_eth_dev_start(p->conf.id);
	if (ret != 0 && p->rx_intr)
		ret = start_without_interrupts(p, err);
	if (ret != 0)
		return pbox_fail(
			err, -ret, PORT_FMT " does not start: %s", PORT_ARGS(p), strerror(-ret));
	p->started = true;
	/* that of a bond is its slave's, which it has by now */
	port_mac(p);
	if (p->rx_intr)
		check_interrupts(p);
	return port_steer(p, err);
}

void
pbox_port_close(struct pbox_port *p)
{
	if (!p->open)
		return;
	if (p->started) {
		port_steer_stop(p);
		rte_eth_dev_stop(p->conf.id);
	}
	port_link_unwatch(p);
	rte_eth_dev_close(p->conf.id);
	port_unclaim(p);
	p->open = p->started = false;
}
