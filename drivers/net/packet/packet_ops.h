/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PACKET_OPS_H
#define PACKET_OPS_H

#include "driver_sdk.h"

/* Between probing (packet_ethdev.c), the functions of the device (packet_ops.c), its statistics
 * (packet_stats.c) and steering (packet_flow.c). */

extern const struct eth_dev_ops packet_ops;
int packet_close(struct rte_eth_dev *dev);

int packet_stats_get(struct rte_eth_dev *dev, struct rte_eth_stats *stats);
int packet_stats_reset(struct rte_eth_dev *dev);
int packet_xstats_names(struct rte_eth_dev *dev, struct rte_eth_xstat_name *names, unsigned int n);
int packet_xstats_get(struct rte_eth_dev *dev, struct rte_eth_xstat *stats, unsigned int n);

int packet_flow_ops_get(struct rte_eth_dev *dev, const struct rte_flow_ops **ops);

#endif /* PACKET_OPS_H */
