/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <stdio.h>

#include <net/if.h>

#include <linux/if_packet.h>

#include <rte_ethdev.h>
#include <rte_interrupts.h>
#include <rte_malloc.h>

#include "packet.h"
#include "packet_ops.h"
#include "vdev.h"

/* What it has to do with a queue that is kept across stop and start is its size and its pool; the
 * sockets live from start to stop. */

static struct packet_port *
packet_port_of(struct rte_eth_dev *dev)
{
	return dev->data->dev_private;
}

static int
packet_infos_get(struct rte_eth_dev *dev, struct rte_eth_dev_info *info)
{
	struct packet_port *port = packet_port_of(dev);
	int mtu = packet_iface_mtu(port->ifname);

	info->if_index = (unsigned int)port->ifindex;
	info->max_mac_addrs = 1;
	info->min_mtu = RTE_ETHER_MIN_MTU;
	info->max_mtu = mtu > 0 ? (uint16_t)mtu : RTE_ETHER_MTU;
	info->max_rx_pktlen = info->max_mtu + RTE_ETHER_HDR_LEN + RTE_VLAN_HLEN;
	info->min_rx_bufsize = 0;
	info->max_rx_queues = PACKET_QUEUES;
	info->max_tx_queues = PACKET_QUEUES;
	info->rx_offload_capa = RTE_ETH_RX_OFFLOAD_UDP_CKSUM | RTE_ETH_RX_OFFLOAD_TCP_CKSUM;
	info->tx_offload_capa = RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
	info->tx_queue_offload_capa = RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
	info->rx_desc_lim = (struct rte_eth_desc_lim){
		.nb_max = PACKET_SLOTS_MAX, .nb_min = PACKET_SLOTS_MIN, .nb_align = 1};
	info->tx_desc_lim = (struct rte_eth_desc_lim){.nb_max = UINT16_MAX,
		.nb_min = 1,
		.nb_align = 1,
		.nb_seg_max = PACKET_TX_SEGS,
		.nb_mtu_seg_max = PACKET_TX_SEGS};
	info->default_rxportconf.ring_size = 1024;
	info->default_txportconf.ring_size = 1024;
	info->default_rxportconf.burst_size = PACKET_TX_FRAMES;
	info->default_txportconf.burst_size = PACKET_TX_FRAMES; /* more to gather */
	return 0;
}

static int
packet_rx_setup(struct rte_eth_dev *dev, uint16_t id, uint16_t descs, unsigned int socket,
	const struct rte_eth_rxconf *conf, struct rte_mempool *mp)
{
	struct packet_rxq *q =
		rte_zmalloc_socket("net_packet", sizeof(*q), RTE_CACHE_LINE_SIZE, (int)socket);

	if (q == NULL)
		return -ENOMEM;
	q->port = packet_port_of(dev);
	q->pool = mp;
	q->fd = -1;
	q->id = id;
	q->port_id = dev->data->port_id;
	q->room = (uint16_t)(rte_pktmbuf_data_room_size(mp) - RTE_PKTMBUF_HEADROOM);
	q->offload = ((conf->offloads | dev->data->dev_conf.rxmode.offloads) &
			     RTE_ETH_RX_OFFLOAD_UDP_CKSUM) != 0;
	q->descs = descs;
	dev->data->rx_queues[id] = q;
	return 0;
}

/* The queue is the socket's buffer, in bytes. */
static int
packet_tx_setup(struct rte_eth_dev *dev, uint16_t id, uint16_t descs __rte_unused,
	unsigned int socket, const struct rte_eth_txconf *conf __rte_unused)
{
	struct packet_txq *q =
		rte_zmalloc_socket("net_packet", sizeof(*q), RTE_CACHE_LINE_SIZE, (int)socket);

	if (q == NULL)
		return -ENOMEM;
	q->port = packet_port_of(dev);
	q->fd = -1;
	q->id = id;
	dev->data->tx_queues[id] = q;
	return 0;
}

static void
packet_rx_release(struct rte_eth_dev *dev, uint16_t id)
{
	rte_free(dev->data->rx_queues[id]);
	dev->data->rx_queues[id] = NULL;
}

static void
packet_tx_release(struct rte_eth_dev *dev, uint16_t id)
{
	rte_free(dev->data->tx_queues[id]);
	dev->data->tx_queues[id] = NULL;
}

/* Receive interrupts are the sockets themselves: they become readable. */
static int
interrupts_on(struct rte_eth_dev *dev)
{
	struct packet_port *port = packet_port_of(dev);
	struct rte_intr_handle *h = dev->intr_handle;

	if (h == NULL || dev->data->dev_conf.intr_conf.rxq == 0)
		return 0;
	if (rte_intr_vec_list_alloc(h, "net_packet", port->n_rx) != 0 ||
		rte_intr_nb_efd_set(h, port->n_rx) != 0)
		return -ENOMEM;
	for (uint16_t i = 0; i < port->n_rx; i++)
		if (rte_intr_efds_index_set(h, i, port->rx[i]->fd) != 0 ||
			rte_intr_vec_list_index_set(h, i, RTE_INTR_VEC_RXTX_OFFSET + i) != 0)
			return -ENOMEM;
	return 0;
}

static void
interrupts_off(struct rte_eth_dev *dev)
{
	struct rte_intr_handle *h = dev->intr_handle;

	if (h == NULL)
		return;
	rte_intr_free_epoll_fd(h);
	rte_intr_vec_list_free(h);
	rte_intr_nb_efd_set(h, 0);
}

/* Nothing to arm: the descriptor is what is waited for. */
static int
packet_intr(struct rte_eth_dev *dev __rte_unused, uint16_t queue __rte_unused)
{
	return 0;
}

static int
packet_start(struct rte_eth_dev *dev)
{
	struct packet_port *port = packet_port_of(dev);
	int index = packet_iface_index(port->ifname), mtu = packet_iface_mtu(port->ifname), ret;

	if (index < 0 || mtu < 0) {
		PACKET_LOG(ERR, "there is no interface %s any more", port->ifname);
		return -ENODEV;
	}
	port->ifindex = index;
	port->n_rx = dev->data->nb_rx_queues;
	port->n_tx = dev->data->nb_tx_queues;
	for (uint16_t i = 0; i < port->n_rx; i++)
		port->rx[i] = dev->data->rx_queues[i];
	for (uint16_t i = 0; i < port->n_tx; i++)
		port->tx[i] = dev->data->tx_queues[i];
	ret = packet_sockets_open(port, (uint16_t)mtu);
	if (ret == 0)
		ret = interrupts_on(dev);
	if (ret != 0) {
		packet_sockets_close(port);
		return ret;
	}
	port->started = true;
	vdev_set_queue_states(dev, RTE_ETH_QUEUE_STATE_STARTED);
	return 0;
}

static int
packet_stop(struct rte_eth_dev *dev)
{
	struct packet_port *port = packet_port_of(dev);

	interrupts_off(dev);
	packet_sockets_close(port);
	port->started = false;
	vdev_set_queue_states(dev, RTE_ETH_QUEUE_STATE_STOPPED);
	dev->data->dev_link.link_status = RTE_ETH_LINK_DOWN;
	return 0;
}

int
packet_close(struct rte_eth_dev *dev)
{
	struct packet_port *port = packet_port_of(dev);

	if (port->started)
		packet_stop(dev);
	for (uint16_t i = 0; i < dev->data->nb_rx_queues; i++)
		packet_rx_release(dev, i);
	for (uint16_t i = 0; i < dev->data->nb_tx_queues; i++)
		packet_tx_release(dev, i);
	rte_intr_instance_free(dev->intr_handle);
	dev->intr_handle = NULL;
	return 0;
}

/* The sockets are of the interface that there is now. One that was deleted and made again is another one, which
 * they know nothing of: they are bound to it where that is possible, else its link is none of ours. */
static bool
packet_bound(struct packet_port *port)
{
	int index = packet_iface_index(port->ifname), was = port->ifindex, ret;

	if (!port->started || index < 0 || index == was)
		return index >= 0;
	ret = packet_sockets_rebind(port, index);
	if (ret != 0) {
		port->ifindex = was;
		return false;
	}
	PACKET_LOG(NOTICE,
		"interface %s was deleted and made again: its sockets are bound to the new one",
		port->ifname);
	return true;
}

static int
packet_link_update(struct rte_eth_dev *dev, int wait __rte_unused)
{
	int flags = packet_iface_flags(packet_port_of(dev)->ifname);
	struct rte_eth_link link = {.link_speed = RTE_ETH_SPEED_NUM_UNKNOWN,
		.link_duplex = RTE_ETH_LINK_FULL_DUPLEX,
		.link_autoneg = RTE_ETH_LINK_AUTONEG};

	link.link_status = packet_bound(packet_port_of(dev)) && flags >= 0 && (flags & IFF_UP) &&
					   (flags & IFF_RUNNING)
				   ? RTE_ETH_LINK_UP
				   : RTE_ETH_LINK_DOWN;
	vdev_set_link(dev, &link);
	return 0;
}

static int
set_mode(struct rte_eth_dev *dev, bool *mode, int what, bool on)
{
	struct packet_port *port = packet_port_of(dev);
	int ret;

	if (*mode == on)
		return 0;
	ret = packet_membership(port, what, on);
	if (ret != 0)
		return ret;
	*mode = on;
	return packet_filter(port);
}

static int
packet_promiscuous_on(struct rte_eth_dev *dev)
{
	return set_mode(dev, &packet_port_of(dev)->promiscuous, PACKET_MR_PROMISC, true);
}

static int
packet_promiscuous_off(struct rte_eth_dev *dev)
{
	return set_mode(dev, &packet_port_of(dev)->promiscuous, PACKET_MR_PROMISC, false);
}

static int
packet_allmulticast_on(struct rte_eth_dev *dev)
{
	return set_mode(dev, &packet_port_of(dev)->all_multicast, PACKET_MR_ALLMULTI, true);
}

static int
packet_allmulticast_off(struct rte_eth_dev *dev)
{
	return set_mode(dev, &packet_port_of(dev)->all_multicast, PACKET_MR_ALLMULTI, false);
}

static int
packet_mac_set(struct rte_eth_dev *dev, struct rte_ether_addr *addr)
{
	struct packet_port *port = packet_port_of(dev);
	int ret;

	if (!rte_is_same_ether_addr(&port->mac, &port->kernel_mac))
		packet_membership(port, PACKET_MR_UNICAST, false);
	port->mac = *addr;
	port->mac_given = true;
	ret = rte_is_same_ether_addr(&port->mac, &port->kernel_mac)
		      ? 0
		      : packet_membership(port, PACKET_MR_UNICAST, true);
	return ret != 0 ? ret : packet_filter(port);
}

/* It is the interface's: this only says what the application will send at most. */
static int
packet_mtu_set(struct rte_eth_dev *dev, uint16_t mtu)
{
	int has = packet_iface_mtu(packet_port_of(dev)->ifname);

	if (has < 0 || mtu > has) {
		PACKET_LOG(ERR, "interface %s has MTU %d, not %u: ip link set %s mtu %u",
			packet_port_of(dev)->ifname, has, mtu, packet_port_of(dev)->ifname, mtu);
		return -EINVAL;
	}
	return 0;
}

const struct eth_dev_ops packet_ops = {
	.dev_configure = vdev_nothing,
	.dev_start = packet_start,
	.dev_stop = packet_stop,
	.dev_close = packet_close,
	.dev_infos_get = packet_infos_get,
	.link_update = packet_link_update,
	.promiscuous_enable = packet_promiscuous_on,
	.promiscuous_disable = packet_promiscuous_off,
	.allmulticast_enable = packet_allmulticast_on,
	.allmulticast_disable = packet_allmulticast_off,
	.mac_addr_set = packet_mac_set,
	.mtu_set = packet_mtu_set,
	.stats_get = packet_stats_get,
	.stats_reset = packet_stats_reset,
	.xstats_get = packet_xstats_get,
	.xstats_reset = packet_stats_reset,
	.xstats_get_names = packet_xstats_names,
	.rx_queue_setup = packet_rx_setup,
	.rx_queue_release = packet_rx_release,
	.rx_queue_intr_enable = packet_intr,
	.rx_queue_intr_disable = packet_intr,
	.tx_queue_setup = packet_tx_setup,
	.tx_queue_release = packet_tx_release,
	.flow_ops_get = packet_flow_ops_get,
};
