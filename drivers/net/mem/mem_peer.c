/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>

#include "mem.h"

int
pbox_mem_peer_open(struct pbox_mem_peer *peer, uint16_t port, uint16_t queue)
{
	const struct mem_port *p = port < RTE_MAX_ETHPORTS ? mem_ports[port] : NULL;
	const struct rte_eth_dev_data *data;
	const struct mem_rxq *rx;
	const struct mem_txq *tx;

	if (p == NULL)
		return -ENODEV;
	data = p->dev->data;
	if (!p->started || queue >= data->nb_rx_queues || queue >= data->nb_tx_queues)
		return -EINVAL;
	rx = data->rx_queues[queue];
	tx = data->tx_queues[queue];
	*peer = (struct pbox_mem_peer){.rx = rx->ring, .tx = tx->ring};
	peer->rx_next = peer->rx_posted = rx->ring->done;
	peer->tx_next = peer->tx_posted = peer->tx_done = tx->ring->done;
	return 0;
}
