/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef VDEV_H
#define VDEV_H

/**
 * @file
 * What our virtual devices have in common. In a header, since each is a library that DPDK programs load for itself.
 */

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_kvargs.h>
#include <rte_log.h>

#include "driver_sdk.h"

/** A port for @p vdev, which has nothing of ours yet; NULL and rte_errno. What the library has just put into it must be
 * where we believe: else nothing may be touched, not even to give the port back. */
static inline struct rte_eth_dev *
vdev_allocate(struct rte_vdev_device *vdev, int logtype)
{
	const char *name = rte_vdev_device_name(vdev);
	struct rte_eth_dev *dev;

	if (rte_eal_process_type() != RTE_PROC_PRIMARY) {
		rte_log(RTE_LOG_ERR, (uint32_t)logtype, "%s: primary processes only\n", name);
		rte_errno = ENOTSUP;
		return NULL;
	}
	dev = rte_eth_dev_allocate(name);
	if (dev == NULL)
		return NULL;
	if (strcmp(dev->data->name, name) == 0 && dev->data->mtu == RTE_ETHER_MTU &&
		dev->data->port_id < RTE_MAX_ETHPORTS &&
		dev->data->backer_port_id == RTE_MAX_ETHPORTS &&
		rte_eth_dev_allocated(name) == dev && dev->state == RTE_ETH_DEV_UNUSED)
		return dev;
	rte_log(RTE_LOG_ERR, (uint32_t)logtype,
		"%s: this DPDK is not laid out like the one its driver was built for\n", name);
	rte_errno = ENOTSUP;
	return NULL;
}

/** @p port, of rte_malloc, is freed with the port from here on. */
static inline void
vdev_attach(struct rte_eth_dev *dev, struct rte_vdev_device *vdev, void *port)
{
	dev->data->dev_private = port;
	dev->device = &vdev->device;
	dev->data->numa_node = vdev->device.numa_node;
	dev->data->dev_flags = RTE_ETH_DEV_AUTOFILL_QUEUE_XSTATS;
	dev->data->dev_link.link_status = RTE_ETH_LINK_DOWN;
	dev->data->dev_link.link_duplex = RTE_ETH_LINK_FULL_DUPLEX;
}

/** Give each argument of the device to @p take. @p usage  for messages */
static inline int
vdev_arguments(
	struct rte_vdev_device *vdev, int logtype, const char *usage, arg_handler_t take, void *ctx)
{
	const char *args = rte_vdev_device_args(vdev) != NULL ? rte_vdev_device_args(vdev) : "";
	struct rte_kvargs *kv = rte_kvargs_parse(args, NULL);
	int ret;

	if (kv == NULL) {
		rte_log(RTE_LOG_ERR, (uint32_t)logtype, "%s: arguments are %s, not '%s'\n",
			rte_vdev_device_name(vdev), usage, args);
		return -EINVAL;
	}
	ret = rte_kvargs_process(kv, NULL, take, ctx);
	rte_kvargs_free(kv);
	return ret < 0 ? -EINVAL : 0;
}

static inline int
vdev_remove(struct rte_vdev_device *vdev)
{
	uint16_t id;
	int ret;

	/* not there: the application has closed it */
	if (rte_eth_dev_get_port_by_name(rte_vdev_device_name(vdev), &id) != 0)
		return 0;
	ret = rte_eth_dev_stop(id);
	return ret != 0 ? ret : rte_eth_dev_close(id);
}

static inline void
vdev_set_queue_states(struct rte_eth_dev *dev, uint8_t state)
{
	for (uint16_t i = 0; i < dev->data->nb_rx_queues; i++)
		dev->data->rx_queue_state[i] = state;
	for (uint16_t i = 0; i < dev->data->nb_tx_queues; i++)
		dev->data->tx_queue_state[i] = state;
}

/** In one piece: others read it without a lock. */
static inline void
vdev_set_link(struct rte_eth_dev *dev, const struct rte_eth_link *link)
{
	uint64_t word;

	static_assert(sizeof(*link) == sizeof(word), "rte_eth_link is a word");
	memcpy(&word, link, sizeof(word));
	__atomic_store_n((uint64_t *)(void *)&dev->data->dev_link, word, __ATOMIC_SEQ_CST);
}

/** For what needs nothing to be done. */
static inline int
vdev_nothing(struct rte_eth_dev *dev __rte_unused)
{
	return 0;
}

#endif /* VDEV_H */
