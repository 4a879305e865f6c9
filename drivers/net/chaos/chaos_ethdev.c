/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_malloc.h>

#include "chaos.h"
#include "chaos_ops.h"
#include "driver_sdk.h"
#include "vdev.h"

#define DEFAULT_LIMIT  1024
#define DEFAULT_COPIES 2048
#define MAX_LIMIT      65536

RTE_LOG_REGISTER(chaos_logtype, pmd.net.chaos, NOTICE);

pthread_mutex_t chaos_lock = PTHREAD_MUTEX_INITIALIZER;
struct chaos_port *chaos_ports;

int
chaos_port_set(struct chaos_port *port, const char *key, const char *value, char *why, size_t n)
{
	struct pbox_fault_conf *const side[PBOX_FAULT_DIRS] = {
		&port->side[PBOX_FAULT_RX].conf, &port->side[PBOX_FAULT_TX].conf};
	int sides = pbox_fault_conf_set_side(side, key, value, why, n);

	if (sides < 0)
		return sides;
	for (int d = 0; d < PBOX_FAULT_DIRS; d++)
		if ((sides >> d & 1) != 0)
			chaos_side_publish(&port->side[d], strcmp(key + 3, "target") == 0);
	return 0;
}

/* One `key=value` of the device's arguments. */
static int
chaos_take_argument(const char *key, const char *value, void *ctx)
{
	struct chaos_port *port = ctx;
	char why[256];
	uint16_t wrapped;

	if (value == NULL) {
		CHAOS_LOG(ERR, "argument %s has no value", key);
		return -EINVAL;
	}
	if (strcmp(key, "port") == 0) {
		if (rte_eth_dev_get_port_by_name(value, &wrapped) != 0) {
			CHAOS_LOG(ERR, "no port '%s': name it in a --vdev or -a before this one",
				value);
			return -ENODEV;
		}
		port->wrapped = wrapped;
		return 0;
	}
	if (strcmp(key, "limit") == 0 || strcmp(key, "copies") == 0) {
		char *end;
		unsigned long v = strtoul(value, &end, 10);

		if (*value < '0' || *value > '9' || *end != '\0' || v < 1 || v > MAX_LIMIT) {
			CHAOS_LOG(ERR, "%s=%s is not a number from 1 to %d", key, value, MAX_LIMIT);
			return -EINVAL;
		}
		*(key[0] == 'l' ? &port->limit : &port->copies) = (uint32_t)v;
		return 0;
	}
	if (chaos_port_set(port, key, value, why, sizeof(why)) != 0) {
		CHAOS_LOG(ERR, "%s=%s: %s", key, value, why);
		return -EINVAL;
	}
	return 0;
}

static int
chaos_parse_arguments(struct chaos_port *port, struct rte_vdev_device *vdev)
{
	int ret = vdev_arguments(
		vdev, chaos_logtype, "port=NAME[,key=value]...", chaos_take_argument, port);

	if (ret == 0 && port->wrapped == RTE_MAX_ETHPORTS) {
		CHAOS_LOG(ERR, "port=NAME is missing: which port to wrap");
		return -EINVAL;
	}
	return ret;
}

/* What the library says of the wrapped port must be where we believe, too. */
static bool
wrapped_is_right(const struct rte_eth_dev *dev, uint16_t wrapped)
{
	const struct rte_eth_dev *other = dev - dev->data->port_id + wrapped;
	uint16_t mtu = 0;

	rte_eth_dev_get_mtu(wrapped, &mtu);
	return other->data->port_id == wrapped && other->data->mtu == mtu &&
	       other->state == RTE_ETH_DEV_ATTACHED && other->dev_ops != NULL &&
	       other->data->numa_node == rte_eth_dev_socket_id(wrapped);
}

/* Events of the wrapped port are events of this one. */
static int
wrapped_event(uint16_t wrapped __rte_unused, enum rte_eth_event_type event, void *ctx,
	void *ret __rte_unused)
{
	struct chaos_port *port = ctx;

	if (event == RTE_ETH_EVENT_DESTROY)
		port->gone = true;
	else
		rte_eth_dev_callback_process(port->dev, event, NULL);
	return 0;
}

/* Own the wrapped port, so that RTE_ETH_FOREACH_DEV passes over it. */
static int
chaos_own(struct chaos_port *port)
{
	struct rte_eth_dev_owner owner = {.name = "net_chaos"};
	int ret = rte_eth_dev_owner_new(&owner.id);

	if (ret != 0)
		return ret;
	ret = rte_eth_dev_owner_set(port->wrapped, &owner);
	if (ret != 0) {
		CHAOS_LOG(ERR, "port %u cannot be wrapped: another device owns it (%s)",
			port->wrapped, rte_strerror(-ret));
		return ret;
	}
	port->owner = owner.id;
	rte_eth_dev_callback_register(port->wrapped, RTE_ETH_EVENT_INTR_LSC, wrapped_event, port);
	rte_eth_dev_callback_register(port->wrapped, RTE_ETH_EVENT_DESTROY, wrapped_event, port);
	return 0;
}

static void
disown(struct chaos_port *port)
{
	if (port->gone)
		return;
	rte_eth_dev_callback_unregister(port->wrapped, RTE_ETH_EVENT_INTR_LSC, wrapped_event, port);
	rte_eth_dev_callback_unregister(port->wrapped, RTE_ETH_EVENT_DESTROY, wrapped_event, port);
	rte_eth_dev_owner_unset(port->wrapped, port->owner);
}

static int
chaos_fill_device(struct rte_eth_dev *dev, struct chaos_port *port)
{
	struct rte_eth_dev_info info;
	int ret = rte_eth_dev_info_get(port->wrapped, &info);

	if (ret != 0)
		return ret;
	port->max_macs = RTE_MAX(info.max_mac_addrs, 1u);
	dev->data->mac_addrs = rte_zmalloc_socket("net_chaos",
		port->max_macs * sizeof(struct rte_ether_addr), 0, dev->data->numa_node);
	if (dev->data->mac_addrs == NULL)
		return -ENOMEM;
	rte_eth_macaddr_get(port->wrapped, &dev->data->mac_addrs[0]);
	rte_eth_dev_get_mtu(port->wrapped, &dev->data->mtu);
	dev->data->numa_node = rte_eth_dev_socket_id(port->wrapped);
	dev->data->dev_flags |=
		*info.dev_flags & (RTE_ETH_DEV_INTR_LSC | RTE_ETH_DEV_NOLIVE_MAC_ADDR);
	dev->dev_ops = &chaos_ops;
	dev->rx_pkt_burst = chaos_rx_burst;
	dev->tx_pkt_burst = chaos_tx_burst;
	dev->tx_pkt_prepare = chaos_tx_prepare;
	return 0;
}

static int
chaos_probe(struct rte_vdev_device *vdev)
{
	const char *name = rte_vdev_device_name(vdev);
	struct chaos_port *port;
	struct rte_eth_dev *dev;
	int ret;

	port = rte_zmalloc_socket(name, sizeof(*port), 0, SOCKET_ID_ANY);
	if (port == NULL)
		return -ENOMEM;
	port->wrapped = RTE_MAX_ETHPORTS;
	port->limit = DEFAULT_LIMIT;
	port->copies = DEFAULT_COPIES;
	port->tsc_per_us = RTE_MAX(rte_get_tsc_hz() / 1000000, UINT64_C(1));
	for (int d = 0; d < PBOX_FAULT_DIRS; d++) {
		pbox_fault_conf_defaults(&port->side[d].conf);
		port->side[d].conf.reseed = 1;
		chaos_side_publish(&port->side[d], false);
	}
	ret = chaos_parse_arguments(port, vdev);
	if (ret != 0)
		goto free_port;
	dev = vdev_allocate(vdev, chaos_logtype);
	if (dev == NULL) {
		ret = -rte_errno;
		goto free_port;
	}
	if (!wrapped_is_right(dev, port->wrapped)) {
		/* nothing may be touched: not even to give the port back */
		CHAOS_LOG(ERR, "%s: this DPDK is not laid out like the one net_chaos was built for",
			name);
		ret = -ENOTSUP;
		goto free_port;
	}
	vdev_attach(dev, vdev, port);
	port->dev = dev;
	port->port_id = dev->data->port_id;
	ret = chaos_own(port);
	if (ret != 0)
		goto release;
	ret = chaos_fill_device(dev, port);
	if (ret != 0)
		goto disown;
	pthread_mutex_lock(&chaos_lock);
	port->next = chaos_ports;
	chaos_ports = port;
	pthread_mutex_unlock(&chaos_lock);
	rte_eth_dev_probing_finish(dev);
	return 0;
disown:
	disown(port);
release:
	rte_eth_dev_release_port(dev);
	return ret;
free_port:
	rte_free(port);
	return ret;
}

/* Closes the wrapped port as well: nobody else may. */
int
chaos_close(struct rte_eth_dev *dev)
{
	struct chaos_port *port = dev->data->dev_private, **p;
	int ret = 0;

	if (rte_eal_process_type() != RTE_PROC_PRIMARY)
		return 0;
	pthread_mutex_lock(&chaos_lock);
	for (p = &chaos_ports; *p != NULL && *p != port; p = &(*p)->next)
		;
	if (*p != NULL)
		*p = port->next;
	pthread_mutex_unlock(&chaos_lock);
	for (uint16_t i = 0; i < dev->data->nb_rx_queues; i++) {
		chaos_queue_free(dev->data->rx_queues[i]);
		dev->data->rx_queues[i] = NULL;
	}
	for (uint16_t i = 0; i < dev->data->nb_tx_queues; i++) {
		chaos_queue_free(dev->data->tx_queues[i]);
		dev->data->tx_queues[i] = NULL;
	}
	disown(port);
	if (!port->gone)
		ret = rte_eth_dev_close(port->wrapped);
	chaos_pool_free(port);
	return ret;
}

static struct rte_vdev_driver chaos_driver = {
	.probe = chaos_probe,
	.remove = vdev_remove,
};

RTE_PMD_REGISTER_VDEV(net_chaos, chaos_driver);
RTE_PMD_REGISTER_PARAM_STRING(net_chaos,
	"port=<name> seed=<n> limit=<n> copies=<n> {rx,tx}_{loss,burst,gilbert,dup,reorder,delay_us,corrupt,truncate,mark,blackhole,target}=...");
