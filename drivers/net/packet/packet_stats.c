/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>

#include <rte_ethdev.h>

#include "packet.h"
#include "packet_ops.h"

static uint64_t
packet_sum(const struct packet_port *port, bool rx, enum packet_counter what)
{
	uint64_t s = 0;

	for (uint16_t i = 0; i < (rx ? port->n_rx : port->n_tx); i++)
		s += packet_counted(rx ? &port->rx[i]->count : &port->tx[i]->count, what);
	return s;
}

int
packet_stats_get(struct rte_eth_dev *dev, struct rte_eth_stats *stats)
{
	struct packet_port *port = dev->data->dev_private;

	stats->ipackets = packet_sum(port, true, PACKET_N_packets);
	stats->ibytes = packet_sum(port, true, PACKET_N_bytes);
	stats->opackets = packet_sum(port, false, PACKET_N_packets);
	stats->obytes = packet_sum(port, false, PACKET_N_bytes);
	stats->rx_nombuf = packet_sum(port, true, PACKET_N_nombuf);
	stats->ierrors =
		packet_sum(port, true, PACKET_N_too_long) + packet_sum(port, true, PACKET_N_alien);
	stats->oerrors = packet_sum(port, false, PACKET_N_refused);
	stats->imissed = packet_sum(port, true, PACKET_N_cut);
	for (uint16_t i = 0; i < port->n_rx; i++) {
		stats->imissed += packet_missed(port->rx[i]);
		if (i < RTE_ETHDEV_QUEUE_STAT_CNTRS) {
			stats->q_ipackets[i] =
				packet_counted(&port->rx[i]->count, PACKET_N_packets);
			stats->q_ibytes[i] = packet_counted(&port->rx[i]->count, PACKET_N_bytes);
		}
	}
	for (uint16_t i = 0; i < port->n_tx && i < RTE_ETHDEV_QUEUE_STAT_CNTRS; i++) {
		stats->q_opackets[i] = packet_counted(&port->tx[i]->count, PACKET_N_packets);
		stats->q_obytes[i] = packet_counted(&port->tx[i]->count, PACKET_N_bytes);
	}
	return 0;
}

/* The queues count on: only what counts as zero is moved. */
int
packet_stats_reset(struct rte_eth_dev *dev)
{
	struct packet_port *port = dev->data->dev_private;

	for (uint16_t i = 0; i < port->n_rx; i++) {
		port->rx[i]->missed_base += packet_missed(port->rx[i]);
		for (unsigned int c = 0; c < PACKET_COUNTER_MAX; c++)
			port->rx[i]->count.base[c] += packet_counted(&port->rx[i]->count, c);
	}
	for (uint16_t i = 0; i < port->n_tx; i++)
		for (unsigned int c = 0; c < PACKET_COUNTER_MAX; c++)
			port->tx[i]->count.base[c] += packet_counted(&port->tx[i]->count, c);
	return 0;
}

#define FIRST    PACKET_N_super_frames
#define PER_SIDE (PACKET_COUNTER_MAX - FIRST)
#define XSTATS   (2 * PER_SIDE)

static const char *const packet_names[] = {
#define NAME(name) #name,
	PACKET_COUNTERS(NAME)
#undef NAME
};

int
packet_xstats_names(
	struct rte_eth_dev *dev __rte_unused, struct rte_eth_xstat_name *names, unsigned int n)
{
	for (unsigned int i = 0; names != NULL && i < n && i < XSTATS; i++)
		snprintf(names[i].name, sizeof(names[i].name), "%s_%s", i < PER_SIDE ? "rx" : "tx",
			packet_names[FIRST + i % PER_SIDE]);
	return XSTATS;
}

int
packet_xstats_get(struct rte_eth_dev *dev, struct rte_eth_xstat *stats, unsigned int n)
{
	if (stats == NULL || n < XSTATS)
		return XSTATS;
	for (unsigned int i = 0; i < XSTATS; i++) {
		stats[i].id = i;
		stats[i].value = packet_sum(dev->data->dev_private, i < PER_SIDE,
			(enum packet_counter)(FIRST + i % PER_SIDE));
	}
	return XSTATS;
}
