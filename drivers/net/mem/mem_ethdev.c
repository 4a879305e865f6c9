/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <string.h>

#include <rte_ethdev.h>
#include <rte_malloc.h>

#include "mem.h"
#include "vdev.h"

#define MAX_FRAME 65535u

RTE_LOG_REGISTER(mem_logtype, pmd.net.mem, NOTICE);

struct mem_port *mem_ports[RTE_MAX_ETHPORTS];

static struct mem_port *
mem_port_of(struct rte_eth_dev *dev)
{
	return dev->data->dev_private;
}

static int
mem_infos_get(struct rte_eth_dev *dev, struct rte_eth_dev_info *info)
{
	const struct rte_eth_desc_lim lim = {.nb_max = MEM_DESCS_MAX,
		.nb_min = MEM_DESCS_MIN,
		.nb_align = MEM_REFILL / 4,
		.nb_seg_max = UINT8_MAX,
		.nb_mtu_seg_max = UINT8_MAX};

	info->device = dev->device;
	info->max_mac_addrs = 1;
	info->max_rx_queues = info->max_tx_queues = MEM_QUEUES;
	info->min_rx_bufsize = 64;
	info->max_rx_pktlen = MAX_FRAME;
	info->min_mtu = RTE_ETHER_MIN_MTU;
	info->max_mtu = MAX_FRAME - RTE_ETHER_HDR_LEN - RTE_ETHER_CRC_LEN;
	info->rx_offload_capa = RTE_ETH_RX_OFFLOAD_IPV4_CKSUM | RTE_ETH_RX_OFFLOAD_UDP_CKSUM;
	info->rx_queue_offload_capa = info->rx_offload_capa;
	info->tx_offload_capa = RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
	info->tx_queue_offload_capa = info->tx_offload_capa;
	info->rx_desc_lim = info->tx_desc_lim = lim;
	info->speed_capa = RTE_ETH_LINK_SPEED_100G;
	return 0;
}

static int
mem_rx_setup(struct rte_eth_dev *dev, uint16_t id, uint16_t descs, unsigned int socket,
	const struct rte_eth_rxconf *conf __rte_unused, struct rte_mempool *mp)
{
	struct mem_rxq *q = mem_rxq_create(dev->data->port_id, descs, socket, mp);

	if (q == NULL)
		return -ENOMEM;
	dev->data->rx_queues[id] = q;
	return 0;
}

static int
mem_tx_setup(struct rte_eth_dev *dev, uint16_t id, uint16_t descs, unsigned int socket,
	const struct rte_eth_txconf *conf __rte_unused)
{
	struct mem_txq *q = mem_txq_create(descs, socket);

	if (q == NULL)
		return -ENOMEM;
	dev->data->tx_queues[id] = q;
	return 0;
}

static void
mem_rx_release(struct rte_eth_dev *dev, uint16_t id)
{
	mem_rxq_free(dev->data->rx_queues[id]);
	dev->data->rx_queues[id] = NULL;
}

static void
mem_tx_release(struct rte_eth_dev *dev, uint16_t id)
{
	mem_txq_free(dev->data->tx_queues[id]);
	dev->data->tx_queues[id] = NULL;
}

static void
set_state(struct rte_eth_dev *dev, bool on)
{
	vdev_set_queue_states(dev, on ? RTE_ETH_QUEUE_STATE_STARTED : RTE_ETH_QUEUE_STATE_STOPPED);
	dev->data->dev_link.link_status = on ? RTE_ETH_LINK_UP : RTE_ETH_LINK_DOWN;
	mem_port_of(dev)->started = on;
}

static int
mem_start(struct rte_eth_dev *dev)
{
	for (uint16_t i = 0; i < dev->data->nb_rx_queues; i++) {
		if (mem_rxq_start(dev->data->rx_queues[i]) == 0)
			continue;
		MEM_LOG(ERR, "port %u: the pool of queue %u has not as many buffers as descriptors",
			dev->data->port_id, i);
		while (i-- > 0)
			mem_rxq_stop(dev->data->rx_queues[i]);
		return -ENOMEM;
	}
	set_state(dev, true);
	return 0;
}

static int
mem_stop(struct rte_eth_dev *dev)
{
	set_state(dev, false);
	for (uint16_t i = 0; i < dev->data->nb_rx_queues; i++)
		mem_rxq_stop(dev->data->rx_queues[i]);
	for (uint16_t i = 0; i < dev->data->nb_tx_queues; i++)
		mem_txq_stop(dev->data->tx_queues[i]);
	return 0;
}

static int
mem_close(struct rte_eth_dev *dev)
{
	if (rte_eal_process_type() != RTE_PROC_PRIMARY)
		return 0;
	mem_ports[dev->data->port_id] = NULL;
	for (uint16_t i = 0; i < dev->data->nb_rx_queues; i++)
		mem_rx_release(dev, i);
	for (uint16_t i = 0; i < dev->data->nb_tx_queues; i++)
		mem_tx_release(dev, i);
	dev->data->mac_addrs = NULL; /* it is part of the private data */
	return 0;
}

static int
mem_link_update(struct rte_eth_dev *dev __rte_unused, int wait __rte_unused)
{
	return 0;
}

static int
mem_mac_set(struct rte_eth_dev *dev __rte_unused, struct rte_ether_addr *addr __rte_unused)
{
	return 0;
}

static int
mem_mtu_set(struct rte_eth_dev *dev __rte_unused, uint16_t mtu __rte_unused)
{
	return 0;
}

static int
mem_stats_get(struct rte_eth_dev *dev, struct rte_eth_stats *stats)
{
	for (uint16_t i = 0; i < dev->data->nb_rx_queues; i++) {
		const struct mem_rxq *q = dev->data->rx_queues[i];

		if (q == NULL)
			continue;
		stats->ipackets += q->packets - q->base[0];
		stats->ibytes += q->bytes - q->base[1];
		stats->rx_nombuf += q->no_mbuf - q->base[2];
	}
	for (uint16_t i = 0; i < dev->data->nb_tx_queues; i++) {
		const struct mem_txq *q = dev->data->tx_queues[i];

		if (q == NULL)
			continue;
		stats->opackets += q->packets - q->base[0];
		stats->obytes += q->bytes - q->base[1];
		stats->oerrors += q->errors - q->base[2];
	}
	return 0;
}

/* The queues count on: only what counts as zero is moved. */
static int
mem_stats_reset(struct rte_eth_dev *dev)
{
	for (uint16_t i = 0; i < dev->data->nb_rx_queues; i++) {
		struct mem_rxq *q = dev->data->rx_queues[i];

		q->base[0] = q->packets;
		q->base[1] = q->bytes;
		q->base[2] = q->no_mbuf;
	}
	for (uint16_t i = 0; i < dev->data->nb_tx_queues; i++) {
		struct mem_txq *q = dev->data->tx_queues[i];

		q->base[0] = q->packets;
		q->base[1] = q->bytes;
		q->base[2] = q->errors;
	}
	return 0;
}

static const struct eth_dev_ops mem_ops = {
	.dev_configure = vdev_nothing,
	.dev_start = mem_start,
	.dev_stop = mem_stop,
	.dev_close = mem_close,
	.dev_infos_get = mem_infos_get,
	.dev_set_link_up = vdev_nothing,
	.dev_set_link_down = vdev_nothing,
	.link_update = mem_link_update,
	.promiscuous_enable = vdev_nothing,
	.promiscuous_disable = vdev_nothing,
	.allmulticast_enable = vdev_nothing,
	.allmulticast_disable = vdev_nothing,
	.mac_addr_set = mem_mac_set,
	.mtu_set = mem_mtu_set,
	.stats_get = mem_stats_get,
	.stats_reset = mem_stats_reset,
	.rx_queue_setup = mem_rx_setup,
	.rx_queue_release = mem_rx_release,
	.tx_queue_setup = mem_tx_setup,
	.tx_queue_release = mem_tx_release,
};

static int
mem_probe(struct rte_vdev_device *vdev)
{
	const char *name = rte_vdev_device_name(vdev), *args = rte_vdev_device_args(vdev);
	struct mem_port *port;
	struct rte_eth_dev *dev;

	if (args != NULL && *args != '\0') {
		MEM_LOG(ERR, "%s takes no arguments, not '%s'", name, args);
		return -EINVAL;
	}
	port = rte_zmalloc_socket(name, sizeof(*port), 0, vdev->device.numa_node);
	if (port == NULL)
		return -ENOMEM;
	dev = vdev_allocate(vdev, mem_logtype);
	if (dev == NULL) {
		rte_free(port);
		return -rte_errno;
	}
	rte_eth_random_addr(port->mac.addr_bytes);
	port->dev = dev;
	vdev_attach(dev, vdev, port);
	dev->data->mac_addrs = &port->mac;
	dev->data->dev_link.link_speed = RTE_ETH_SPEED_NUM_100G;
	dev->dev_ops = &mem_ops;
	dev->rx_pkt_burst = mem_rx_burst;
	dev->tx_pkt_burst = mem_tx_burst;
	dev->rx_queue_count = mem_rx_count;
	mem_ports[dev->data->port_id] = port;
	rte_eth_dev_probing_finish(dev);
	return 0;
}

static struct rte_vdev_driver mem_driver = {
	.probe = mem_probe,
	.remove = vdev_remove,
};

/* a driver takes all devices whose names begin with its own: net_mem would take those of net_memif */
RTE_PMD_REGISTER_VDEV(net_memory, mem_driver);
