/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_ethdev.h>
#include <rte_interrupts.h>
#include <rte_malloc.h>
#include <rte_string_fns.h>

#include "packet.h"
#include "packet_ops.h"
#include "vdev.h"

static int
take_mac(struct packet_port *port, const char *value, bool *interface)
{
	if (strcmp(value, "interface") == 0) {
		*interface = true;
		return 0;
	}
	if (strcmp(value, "own") == 0) {
		*interface = false;
		return 0;
	}
	if (rte_ether_unformat_addr(value, &port->mac) != 0 ||
		!rte_is_valid_assigned_ether_addr(&port->mac)) {
		PACKET_LOG(ERR,
			"mac=%s is neither 'interface' nor 'own' nor an address of one host",
			value);
		return -EINVAL;
	}
	port->mac_given = true;
	return 0;
}

struct packet_args {
	struct packet_port *port;
	bool interface_mac, mac_seen;
};

/* One `key=value` of the device's arguments. */
static int
packet_take_argument(const char *key, const char *value, void *ctx)
{
	struct packet_args *a = ctx;

	if (value == NULL || *value == '\0') {
		PACKET_LOG(ERR, "argument %s has no value", key);
		return -EINVAL;
	}
	if (strcmp(key, "iface") == 0) {
		if (strlen(value) >= PACKET_IFNAME) {
			PACKET_LOG(ERR, "iface=%s is longer than a name may be", value);
			return -EINVAL;
		}
		rte_strscpy(a->port->ifname, value, sizeof(a->port->ifname));
		return 0;
	}
	if (strcmp(key, "mac") == 0) {
		a->mac_seen = true;
		return take_mac(a->port, value, &a->interface_mac);
	}
	if (strcmp(key, "gso") == 0) {
		if (strcmp(value, "0") != 0 && strcmp(value, "1") != 0) {
			PACKET_LOG(ERR, "gso=%s is neither 0 nor 1", value);
			return -EINVAL;
		}
		a->port->gso = *value == '1';
		return 0;
	}
	PACKET_LOG(ERR, "no argument '%s': iface=NAME, mac=interface|own|ADDRESS, gso=0|1", key);
	return -EINVAL;
}

/*
 * An address beside the kernel's own: its stack then drops each frame for us as one for another
 * host, at its door, instead of looking for a route first. Half a microsecond a frame. Networks of
 * real hardware may allow one address a port, so it is for virtual interfaces.
 */
static void
derive_mac(struct packet_port *port)
{
	port->mac = port->kernel_mac;
	port->mac.addr_bytes[0] |= RTE_ETHER_LOCAL_ADMIN_ADDR;
	port->mac.addr_bytes[0] ^= 0x40;
}

static int
packet_parse_arguments(struct packet_port *port, struct rte_vdev_device *vdev)
{
	struct packet_args a = {.port = port};

	if (vdev_arguments(vdev, packet_logtype, "iface=NAME[,key=value]...", packet_take_argument,
		    &a) != 0)
		return -EINVAL;
	if (port->ifname[0] == '\0') {
		PACKET_LOG(ERR, "iface=NAME is missing: which interface");
		return -EINVAL;
	}
	port->ifindex = packet_iface_index(port->ifname);
	if (port->ifindex < 0 || packet_iface_mac(port->ifname, &port->kernel_mac) != 0) {
		PACKET_LOG(ERR, "there is no interface '%s' in this network namespace: ip link",
			port->ifname);
		return -ENODEV;
	}
	if (port->mac_given)
		return 0;
	if (a.mac_seen ? !a.interface_mac : packet_iface_virtual(port->ifname))
		derive_mac(port);
	else
		port->mac = port->kernel_mac;
	return 0;
}

/* Say now what the start would fail for. */
static int
check_rights(const struct packet_port *port)
{
	int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0), error = errno;

	if (fd < 0) {
		PACKET_LOG(ERR, "%s: no AF_PACKET socket: %s%s", port->ifname, strerror(error),
			error == EPERM ? " (needs CAP_NET_RAW)" : "");
		return -error;
	}
	close(fd);
	return 0;
}

static int
packet_fill_device(struct rte_eth_dev *dev, struct packet_port *port)
{
	int mtu = packet_iface_mtu(port->ifname);

	dev->data->mac_addrs = rte_zmalloc("net_packet", sizeof(struct rte_ether_addr), 0);
	if (dev->data->mac_addrs == NULL)
		return -ENOMEM;
	dev->data->mac_addrs[0] = port->mac;
	dev->data->mtu = mtu > 0 ? (uint16_t)mtu : RTE_ETHER_MTU;
	dev->dev_ops = &packet_ops;
	dev->rx_pkt_burst = packet_rx_burst;
	dev->tx_pkt_burst = packet_tx_burst;
	dev->rx_queue_count = packet_rx_count;
	dev->intr_handle = rte_intr_instance_alloc(RTE_INTR_INSTANCE_F_SHARED);
	if (dev->intr_handle == NULL)
		return -ENOMEM;
	rte_intr_type_set(dev->intr_handle, RTE_INTR_HANDLE_EXT);
	return 0;
}

static int
packet_probe(struct rte_vdev_device *vdev)
{
	struct packet_port *port;
	struct rte_eth_dev *dev;
	int ret;

	port = rte_zmalloc_socket(rte_vdev_device_name(vdev), sizeof(*port), 0, SOCKET_ID_ANY);
	if (port == NULL)
		return -ENOMEM;
	port->gso = true;
	ret = packet_parse_arguments(port, vdev);
	if (ret == 0)
		ret = check_rights(port);
	if (ret != 0)
		goto free_port;
	dev = vdev_allocate(vdev, packet_logtype);
	if (dev == NULL) {
		ret = -rte_errno;
		goto free_port;
	}
	vdev_attach(dev, vdev, port);
	port->dev = dev;
	ret = packet_fill_device(dev, port);
	if (ret != 0) {
		rte_eth_dev_release_port(dev);
		return ret;
	}
	rte_eth_dev_probing_finish(dev);
	return 0;
free_port:
	rte_free(port);
	return ret;
}

static struct rte_vdev_driver packet_driver = {
	.probe = packet_probe,
	.remove = vdev_remove,
};

RTE_PMD_REGISTER_VDEV(net_packet, packet_driver);
RTE_PMD_REGISTER_PARAM_STRING(net_packet, "iface=<name> mac=interface|own|<address> gso=0|1");
