/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef MEM_H
#define MEM_H

/**
 * @file
 * net_mem inside: the device (mem_ethdev.c), its bursts (mem_queue.c), the peer's way in
 * (mem_peer.c). Threads are those of any ethdev: control functions one at a time, a queue belongs to
 * who polls it.
 */

#include <stdbool.h>

#include <rte_config.h>
#include <rte_log.h>
#include <rte_mbuf.h>

#include "driver_sdk.h"
#include "pbox_mem_peer.h"

extern int mem_logtype;
#define MEM_LOG(level, fmt, ...) \
	rte_log(RTE_LOG_##level, mem_logtype, "net_mem: " fmt "\n", ##__VA_ARGS__)

#define MEM_QUEUES    64
#define MEM_DESCS_MAX 32768
#define MEM_DESCS_MIN 32
#define MEM_REFILL    32 /* buffers that are taken from the pool at once */

struct mem_rxq {
	struct pbox_mem_ring *ring;
	struct rte_mbuf **sw; /* of each descriptor that is posted */
	struct rte_mempool *pool;
	uint32_t head;   /* next to receive */
	uint32_t done;   /* last seen of the peer's */
	uint32_t posted; /* ours */
	uint32_t mask;
	uint32_t descs; /* posted at most; the ring may be longer */
	uint32_t batch; /* of a refill */
	uint64_t rearm; /* what every received packet begins with */
	uint64_t packets, bytes, no_mbuf;
	uint64_t base[3]; /* at the last reset of statistics */
} __rte_cache_aligned;

struct mem_txq {
	struct pbox_mem_ring *ring;
	struct rte_mbuf **sw; /* of each descriptor: its segment */
	uint32_t tail;        /* next to post */
	uint32_t clean;       /* first that is not given back */
	uint32_t mask;
	uint32_t descs;
	uint64_t packets, bytes, errors;
	uint64_t base[3];
} __rte_cache_aligned;

struct mem_port {
	bool started;
	struct rte_eth_dev *dev;
	struct rte_ether_addr mac;
};

/* By number of the port, under the control thread; NULL: not ours. */
extern struct mem_port *mem_ports[RTE_MAX_ETHPORTS];

struct mem_rxq *mem_rxq_create(
	uint16_t port, uint16_t descs, unsigned int socket, struct rte_mempool *pool);
/* Post all buffers. -ENOMEM: the pool has not as many. */
int mem_rxq_start(struct mem_rxq *q);
/* Every mbuf goes back to its pool; the peer is gone by then. */
void mem_rxq_stop(struct mem_rxq *q);
void mem_rxq_free(struct mem_rxq *q);
struct mem_txq *mem_txq_create(uint16_t descs, unsigned int socket);
void mem_txq_stop(struct mem_txq *q);
void mem_txq_free(struct mem_txq *q);

uint16_t mem_rx_burst(void *rxq, struct rte_mbuf **pkts, uint16_t n);
uint16_t mem_tx_burst(void *txq, struct rte_mbuf **pkts, uint16_t n);
uint32_t mem_rx_count(void *rxq);

#endif /* MEM_H */
