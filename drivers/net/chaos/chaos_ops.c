/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <stdio.h>

#include <rte_errno.h>
#include <rte_ethdev.h>

#include "chaos.h"
#include "chaos_ops.h"
#include "vdev.h"

/* The functions of the device. The wrapped port is driven through the public interface alone, as
 * the application would. */

static struct chaos_port *
chaos_port_of(struct rte_eth_dev *dev)
{
	return dev->data->dev_private;
}

static int
chaos_configure(struct rte_eth_dev *dev)
{
	return rte_eth_dev_configure(chaos_port_of(dev)->wrapped, dev->data->nb_rx_queues,
		dev->data->nb_tx_queues, &dev->data->dev_conf);
}

static int
chaos_infos_get(struct rte_eth_dev *dev, struct rte_eth_dev_info *info)
{
	struct chaos_port *port = chaos_port_of(dev);
	int ret = rte_eth_dev_info_get(port->wrapped, info);

	if (ret != 0)
		return ret;
	info->device = dev->device;
	info->max_mac_addrs = port->max_macs;
	/* it promises that all mbufs sent come from one pool and belong to nobody else: copies do
	 * not keep that */
	info->tx_offload_capa &= ~(uint64_t)RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE;
	info->tx_queue_offload_capa &= ~(uint64_t)RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE;
	info->default_txconf.offloads &= ~(uint64_t)RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE;
	info->dev_capa = 0; /* queues are set up while the port is stopped */
	return 0;
}

static int
chaos_rx_setup(struct rte_eth_dev *dev, uint16_t id, uint16_t descs, unsigned int socket,
	const struct rte_eth_rxconf *conf, struct rte_mempool *mp)
{
	struct chaos_queue *q =
		chaos_queue_create(chaos_port_of(dev), PBOX_FAULT_RX, id, (int)socket);
	int ret;

	if (q == NULL)
		return -ENOMEM;
	ret = rte_eth_rx_queue_setup(chaos_port_of(dev)->wrapped, id, descs, socket, conf, mp);
	if (ret != 0) {
		chaos_queue_free(q);
		return ret;
	}
	dev->data->rx_queues[id] = q;
	return 0;
}

static int
chaos_tx_setup(struct rte_eth_dev *dev, uint16_t id, uint16_t descs, unsigned int socket,
	const struct rte_eth_txconf *conf)
{
	struct chaos_queue *q =
		chaos_queue_create(chaos_port_of(dev), PBOX_FAULT_TX, id, (int)socket);
	int ret;

	if (q == NULL)
		return -ENOMEM;
	ret = rte_eth_tx_queue_setup(chaos_port_of(dev)->wrapped, id, descs, socket, conf);
	if (ret != 0) {
		chaos_queue_free(q);
		return ret;
	}
	dev->data->tx_queues[id] = q;
	return 0;
}

static void
chaos_rx_release(struct rte_eth_dev *dev, uint16_t id)
{
	chaos_queue_free(dev->data->rx_queues[id]);
	dev->data->rx_queues[id] = NULL;
}

static void
chaos_tx_release(struct rte_eth_dev *dev, uint16_t id)
{
	chaos_queue_free(dev->data->tx_queues[id]);
	dev->data->tx_queues[id] = NULL;
}

/* Mbufs for copies of what is sent, one segment a frame where that is possible. */
static int
pool_create(struct rte_eth_dev *dev)
{
	struct chaos_port *port = chaos_port_of(dev);
	static unsigned int serial; /* a pool that could not be freed keeps its name */
	char name[RTE_MEMPOOL_NAMESIZE];
	uint32_t room = dev->data->mtu + RTE_ETHER_HDR_LEN + 2 * RTE_VLAN_HLEN + RTE_ETHER_CRC_LEN +
			RTE_PKTMBUF_HEADROOM;

	room = RTE_MAX(room, (uint32_t)RTE_MBUF_DEFAULT_BUF_SIZE);
	room = RTE_MIN(room, (uint32_t)UINT16_MAX);
	if (port->pool != NULL && rte_pktmbuf_data_room_size(port->pool) >= room)
		return 0;
	chaos_pool_free(port);
	snprintf(name, sizeof(name), "net_chaos%u_%u", port->port_id, serial++);
	port->pool = rte_pktmbuf_pool_create(
		name, port->copies, 0, 0, (uint16_t)room, dev->data->numa_node);
	if (port->pool == NULL) {
		CHAOS_LOG(ERR,
			"port %u: no pool of %u mbufs of %u bytes: %s; fewer of them: copies=",
			port->port_id, port->copies, room, rte_strerror(rte_errno));
		return -rte_errno;
	}
	return 0;
}

void
chaos_pool_free(struct chaos_port *port)
{
	/* what was sent may still lie in somebody's ring: memory rather than a crash */
	if (port->pool != NULL && !rte_mempool_full(port->pool))
		CHAOS_LOG(WARNING, "port %u: %u sent copies are still in use, their pool stays",
			port->port_id, rte_mempool_in_use_count(port->pool));
	else
		rte_mempool_free(port->pool);
	port->pool = NULL;
}

static int
chaos_start(struct rte_eth_dev *dev)
{
	struct chaos_port *port = chaos_port_of(dev);
	int ret = pool_create(dev);

	if (ret != 0)
		return ret;
	port->n_rx = dev->data->nb_rx_queues;
	port->n_tx = dev->data->nb_tx_queues;
	for (uint16_t i = 0; i < port->n_rx; i++) {
		port->rx[i] = dev->data->rx_queues[i];
		chaos_queue_reset(port->rx[i]);
	}
	for (uint16_t i = 0; i < port->n_tx; i++) {
		port->tx[i] = dev->data->tx_queues[i];
		chaos_queue_reset(port->tx[i]);
	}
	ret = rte_eth_dev_start(port->wrapped);
	if (ret == 0)
		vdev_set_queue_states(dev, RTE_ETH_QUEUE_STATE_STARTED);
	return ret;
}

static int
chaos_stop(struct rte_eth_dev *dev)
{
	struct chaos_port *port = chaos_port_of(dev);
	int ret = port->gone ? 0 : rte_eth_dev_stop(port->wrapped);

	if (ret != 0)
		return ret;
	for (uint16_t i = 0; i < port->n_rx; i++)
		chaos_queue_reset(port->rx[i]);
	for (uint16_t i = 0; i < port->n_tx; i++)
		chaos_queue_reset(port->tx[i]);
	vdev_set_queue_states(dev, RTE_ETH_QUEUE_STATE_STOPPED);
	dev->data->dev_link.link_status = RTE_ETH_LINK_DOWN;
	return 0;
}

static int
chaos_link_update(struct rte_eth_dev *dev, int wait)
{
	struct rte_eth_link link = {.link_status = RTE_ETH_LINK_DOWN};
	int ret;

	ret = wait ? rte_eth_link_get(chaos_port_of(dev)->wrapped, &link)
		   : rte_eth_link_get_nowait(chaos_port_of(dev)->wrapped, &link);
	if (ret != 0)
		return ret;
	vdev_set_link(dev, &link);
	return 0;
}

#define PASS_THROUGH(name, function)                          \
	static int name(struct rte_eth_dev *dev)              \
	{                                                     \
		return function(chaos_port_of(dev)->wrapped); \
	}
PASS_THROUGH(chaos_link_up, rte_eth_dev_set_link_up)
PASS_THROUGH(chaos_link_down, rte_eth_dev_set_link_down)
PASS_THROUGH(chaos_promiscuous_on, rte_eth_promiscuous_enable)
PASS_THROUGH(chaos_promiscuous_off, rte_eth_promiscuous_disable)
PASS_THROUGH(chaos_allmulticast_on, rte_eth_allmulticast_enable)
PASS_THROUGH(chaos_allmulticast_off, rte_eth_allmulticast_disable)

static void
chaos_mac_remove(struct rte_eth_dev *dev, uint32_t index)
{
	rte_eth_dev_mac_addr_remove(chaos_port_of(dev)->wrapped, &dev->data->mac_addrs[index]);
}

static int
chaos_mac_add(struct rte_eth_dev *dev, struct rte_ether_addr *addr, uint32_t index __rte_unused,
	uint32_t pool)
{
	return rte_eth_dev_mac_addr_add(chaos_port_of(dev)->wrapped, addr, pool);
}

static int
chaos_mac_set(struct rte_eth_dev *dev, struct rte_ether_addr *addr)
{
	return rte_eth_dev_default_mac_addr_set(chaos_port_of(dev)->wrapped, addr);
}

static int
chaos_mc_set(struct rte_eth_dev *dev, struct rte_ether_addr *addrs, uint32_t n)
{
	return rte_eth_dev_set_mc_addr_list(chaos_port_of(dev)->wrapped, addrs, n);
}

static int
chaos_mtu_set(struct rte_eth_dev *dev, uint16_t mtu)
{
	return rte_eth_dev_set_mtu(chaos_port_of(dev)->wrapped, mtu);
}

static uint64_t
chaos_sum(void **queues, uint16_t n, unsigned int c)
{
	uint64_t s = 0;

	for (uint16_t i = 0; i < n; i++)
		if (queues[i] != NULL)
			s += chaos_queue_count(queues[i], c);
	return s;
}

/* Packets and bytes as the application sees them; what the wrapped port lost, as it counts it. */
static int
chaos_stats_get(struct rte_eth_dev *dev, struct rte_eth_stats *stats)
{
	struct rte_eth_dev_data *data = dev->data;
	struct rte_eth_stats inner;
	int ret = rte_eth_stats_get(chaos_port_of(dev)->wrapped, &inner);

	if (ret != 0)
		return ret;
	stats->imissed = inner.imissed;
	stats->ierrors = inner.ierrors;
	stats->oerrors = inner.oerrors;
	stats->rx_nombuf = inner.rx_nombuf;
	stats->ipackets = chaos_sum(data->rx_queues, data->nb_rx_queues, CHAOS_N_packets);
	stats->ibytes = chaos_sum(data->rx_queues, data->nb_rx_queues, CHAOS_N_bytes);
	stats->opackets = chaos_sum(data->tx_queues, data->nb_tx_queues, CHAOS_N_packets);
	stats->obytes = chaos_sum(data->tx_queues, data->nb_tx_queues, CHAOS_N_bytes);
	for (uint16_t i = 0; i < RTE_ETHDEV_QUEUE_STAT_CNTRS; i++) {
		if (i < data->nb_rx_queues && data->rx_queues[i] != NULL) {
			stats->q_ipackets[i] = chaos_sum(&data->rx_queues[i], 1, CHAOS_N_packets);
			stats->q_ibytes[i] = chaos_sum(&data->rx_queues[i], 1, CHAOS_N_bytes);
		}
		if (i < data->nb_tx_queues && data->tx_queues[i] != NULL) {
			stats->q_opackets[i] = chaos_sum(&data->tx_queues[i], 1, CHAOS_N_packets);
			stats->q_obytes[i] = chaos_sum(&data->tx_queues[i], 1, CHAOS_N_bytes);
		}
	}
	return 0;
}

/* The queues count on: only what counts as zero is moved. */
static int
chaos_stats_reset(struct rte_eth_dev *dev)
{
	struct rte_eth_dev_data *data = dev->data;

	for (uint16_t i = 0; i < data->nb_rx_queues + data->nb_tx_queues; i++) {
		struct chaos_queue *q = i < data->nb_rx_queues
						? data->rx_queues[i]
						: data->tx_queues[i - data->nb_rx_queues];

		for (unsigned int c = 0; q != NULL && c < CHAOS_COUNTER_MAX; c++)
			q->base[c] += chaos_queue_count(q, c);
	}
	return rte_eth_stats_reset(chaos_port_of(dev)->wrapped);
}

/* rx_lost, ...; then packets held now, the last of a direction */
#define XSTATS_PER_SIDE (CHAOS_N_packets + 1)
#define XSTATS          (PBOX_FAULT_DIRS * XSTATS_PER_SIDE)

static const char *
xstat_name(unsigned int c)
{
	if (c < PBOX_FAULT_COUNTER_MAX)
		return pbox_fault_counter_names[c];
	return c == CHAOS_N_port_packets ? "port_packets" : "held";
}

static int
chaos_xstats_names(
	struct rte_eth_dev *dev __rte_unused, struct rte_eth_xstat_name *names, unsigned int n)
{
	for (unsigned int i = 0; names != NULL && i < n && i < XSTATS; i++) {
		unsigned int c = i % XSTATS_PER_SIDE;

		snprintf(names[i].name, sizeof(names[i].name), "%s_%s",
			i < XSTATS_PER_SIDE ? "rx" : "tx", xstat_name(c));
	}
	return XSTATS;
}

static int
chaos_xstats_get(struct rte_eth_dev *dev, struct rte_eth_xstat *stats, unsigned int n)
{
	struct rte_eth_dev_data *data = dev->data;

	if (stats == NULL || n < XSTATS)
		return XSTATS;
	for (unsigned int i = 0; i < XSTATS; i++) {
		bool rx = i < XSTATS_PER_SIDE;
		void **queues = rx ? data->rx_queues : data->tx_queues;
		uint16_t n_queues = rx ? data->nb_rx_queues : data->nb_tx_queues;
		unsigned int c = i % XSTATS_PER_SIDE;

		stats[i].id = i;
		stats[i].value = 0;
		if (c < CHAOS_N_packets) {
			stats[i].value = chaos_sum(queues, n_queues, c);
			continue;
		}
		for (uint16_t k = 0; k < n_queues; k++) {
			const struct chaos_queue *q = queues[k];

			if (q != NULL)
				stats[i].value += pbox_fault_line_waiting(q->line);
		}
	}
	return XSTATS;
}

const struct eth_dev_ops chaos_ops = {
	.dev_configure = chaos_configure,
	.dev_start = chaos_start,
	.dev_stop = chaos_stop,
	.dev_close = chaos_close,
	.dev_infos_get = chaos_infos_get,
	.dev_set_link_up = chaos_link_up,
	.dev_set_link_down = chaos_link_down,
	.link_update = chaos_link_update,
	.promiscuous_enable = chaos_promiscuous_on,
	.promiscuous_disable = chaos_promiscuous_off,
	.allmulticast_enable = chaos_allmulticast_on,
	.allmulticast_disable = chaos_allmulticast_off,
	.mac_addr_remove = chaos_mac_remove,
	.mac_addr_add = chaos_mac_add,
	.mac_addr_set = chaos_mac_set,
	.set_mc_addr_list = chaos_mc_set,
	.mtu_set = chaos_mtu_set,
	.stats_get = chaos_stats_get,
	.stats_reset = chaos_stats_reset,
	.xstats_get = chaos_xstats_get,
	.xstats_reset = chaos_stats_reset,
	.xstats_get_names = chaos_xstats_names,
	.rx_queue_setup = chaos_rx_setup,
	.rx_queue_release = chaos_rx_release,
	.tx_queue_setup = chaos_tx_setup,
	.tx_queue_release = chaos_tx_release,
};
