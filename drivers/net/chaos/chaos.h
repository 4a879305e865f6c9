/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef CHAOS_H
#define CHAOS_H

/**
 * @file
 * net_chaos inside: mbufs as frames of a line of lib/fault (chaos_frames.c), a queue before and
 * after its line (chaos_queue.c), the Ethernet device (chaos_ethdev.c, chaos_ops.c), telemetry
 * (chaos_telemetry.c).
 *
 * Threads: control functions and telemetry hold chaos_lock. A queue belongs to the thread that
 * polls it; settings reach it through a sequence lock that it never waits for. A tx queue has a
 * flag besides, because the rx queue of the same number sends its due packets when the
 * application has nothing to send.
 */

#include <stdbool.h>
#include <stdint.h>

#include <pthread.h>

#include <rte_common.h>
#include <rte_config.h>
#include <rte_log.h>
#include <rte_mbuf.h>

#include <pbox_fault.h>

struct rte_eth_dev;

extern int chaos_logtype;
#define CHAOS_LOG(level, fmt, ...) \
	rte_log(RTE_LOG_##level, chaos_logtype, "net_chaos: " fmt "\n", ##__VA_ARGS__)

/** What a queue counts itself, after the counters of its line (enum pbox_fault_counter). */
enum chaos_counter {
	CHAOS_N_port_packets = PBOX_FAULT_COUNTER_MAX, /* at the wrapped port; an xstat as well */
	CHAOS_N_packets,                               /* at the application */
	CHAOS_N_bytes,
	CHAOS_COUNTER_MAX
};

/** Settings on their way from chaos_lock's holder to the queues. */
struct chaos_side {
	struct pbox_fault_conf conf; /* the holder's own */
	uint64_t seq;                /* odd while words change */
	uint64_t words[PBOX_FAULT_CONF_WORDS];
	uint32_t target_left;
};

struct chaos_queue {
	struct chaos_port *port;
	struct chaos_side *side;
	struct pbox_fault_line *line; /* its memory follows */
	uint16_t id;
	uint8_t dir;
	uint32_t busy; /* tx: taken by the sender, or by the rx queue that helps */
	uint64_t conf_seq;
	uint64_t n[CHAOS_COUNTER_MAX - PBOX_FAULT_COUNTER_MAX];
	uint64_t base[CHAOS_COUNTER_MAX]; /* at the last reset of statistics */
} __rte_cache_aligned;

struct chaos_port {
	struct rte_eth_dev *dev;
	uint16_t port_id;
	uint16_t wrapped;
	bool gone; /* the wrapped port was closed under us */
	uint32_t limit;
	uint32_t copies;
	uint32_t max_macs;
	uint64_t owner;
	uint64_t tsc_per_us;
	struct rte_mempool *pool; /* copies of what is sent */
	uint16_t n_rx, n_tx;      /* queues while started */
	struct chaos_queue *rx[RTE_MAX_QUEUES_PER_PORT];
	struct chaos_queue *tx[RTE_MAX_QUEUES_PER_PORT];
	struct chaos_side side[PBOX_FAULT_DIRS];
	struct chaos_port *next;
};

extern pthread_mutex_t chaos_lock;
extern struct chaos_port *chaos_ports; /**< under chaos_lock */

/** Hand the settings of a side to its queues. */
void chaos_side_publish(struct chaos_side *side, bool target_again);
/** Set one key ("seed", "rx_...", "tx_...") of a port and publish it; under chaos_lock. */
int chaos_port_set(
	struct chaos_port *port, const char *key, const char *value, char *why, size_t n);

extern const struct pbox_fault_ops chaos_frames; /**< mbufs; ctx is the queue */

struct chaos_queue *chaos_queue_create(
	struct chaos_port *port, enum pbox_fault_dir dir, uint16_t id, int socket);
/** Free what it holds and start its sequences again; nobody polls it. */
void chaos_queue_reset(struct chaos_queue *q);
void chaos_queue_free(struct chaos_queue *q);
uint16_t chaos_rx_burst(void *rxq, struct rte_mbuf **pkts, uint16_t n);
uint16_t chaos_tx_burst(void *txq, struct rte_mbuf **pkts, uint16_t n);
uint16_t chaos_tx_prepare(void *txq, struct rte_mbuf **pkts, uint16_t n);
/** A counter of the queue or of its line; any thread. */
uint64_t chaos_queue_count(const struct chaos_queue *q, unsigned int c);

#endif /* CHAOS_H */
