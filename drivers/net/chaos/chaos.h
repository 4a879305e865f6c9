/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef CHAOS_H
#define CHAOS_H

/**
 * @file
 * net_chaos inside: settings (chaos_conf.c), what befalls a packet (chaos_faults.c), its way
 * through a queue (chaos_queue.c), the Ethernet device (chaos_ethdev.c, chaos_ops.c), telemetry
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

#include "chaos_conf.h"

struct rte_eth_dev;

extern int chaos_logtype;
#define CHAOS_LOG(level, fmt, ...) \
	rte_log(RTE_LOG_##level, chaos_logtype, "net_chaos: " fmt "\n", ##__VA_ARGS__)

#define CHAOS_READY 1024 /**< packets on their way to the application or to the port */

/** What happened in a queue; all but packets, bytes and port_packets are xstats by these names. */
#define CHAOS_COUNTERS(X)                                                                    \
	X(lost)                                                                              \
	X(burst_lost)                                                                        \
	X(gilbert_lost)                                                                      \
	X(blackholed)                                                                        \
	X(target_dropped)                                                                    \
	X(duplicated)                                                                        \
	X(reordered)                                                                         \
	X(delayed)                                                                           \
	X(corrupted)                                                                         \
	X(truncated)                                                                         \
	X(marked)                                                                            \
	X(copied)       /* so that a held or spoilt packet is not shared with anybody */     \
	X(overflow)     /* dropped: no room to hold, or no mbuf to copy what must be held */ \
	X(nombuf)       /* a duplicate or damage left out for want of an mbuf */             \
	X(port_packets) /* at the wrapped port */                                            \
	X(packets)      /* at the application */                                             \
	X(bytes)

enum chaos_counter {
#define CHAOS_COUNTER_SYMBOL(name) CHAOS_N_##name,
	CHAOS_COUNTERS(CHAOS_COUNTER_SYMBOL)
#undef CHAOS_COUNTER_SYMBOL
		CHAOS_COUNTER_MAX
};

/** Settings on their way from chaos_lock's holder to the queues. */
struct chaos_side {
	struct chaos_conf conf; /* the holder's own */
	uint64_t seq;           /* odd while words change */
	uint64_t words[CHAOS_CONF_WORDS];
	uint32_t target_left;
};

struct chaos_delayed {
	uint64_t due; /* TSC */
	uint64_t order;
	struct rte_mbuf *m;
};

struct chaos_held {
	uint64_t due;    /* TSC, at the latest */
	uint64_t passed; /* when that many have passed */
	struct rte_mbuf *m;
};

/** One independent sequence of random numbers a fault: switching one on does not shift another. */
enum chaos_fault {
	CHAOS_F_LOSS,
	CHAOS_F_BURST,
	CHAOS_F_GILBERT,
	CHAOS_F_DUP,
	CHAOS_F_CORRUPT,
	CHAOS_F_TRUNCATE,
	CHAOS_F_REORDER,
	CHAOS_F_DELAY,
	CHAOS_F_MARK,
	CHAOS_FAULTS
};

struct chaos_queue {
	struct chaos_port *port;
	struct chaos_side *side;
	uint16_t id;
	uint8_t dir;
	bool active;
	bool gilbert_bad;
	uint32_t busy; /* tx: taken by the sender, or by the rx queue that helps */
	uint32_t burst_left;
	uint32_t limit;
	uint64_t conf_seq;
	uint64_t rng[CHAOS_FAULTS];
	uint64_t passed;
	uint64_t order;
	uint32_t n_held, n_delayed, ready_head, ready_tail;
	uint32_t waiting; /* all of them; read by the helping rx queue */
	uint64_t n[CHAOS_COUNTER_MAX];
	uint64_t base[CHAOS_COUNTER_MAX]; /* at the last reset of statistics */
	struct chaos_conf conf;
	struct chaos_held held[CHAOS_WINDOW_MAX];
	struct rte_mbuf *ready[CHAOS_READY];
	struct chaos_delayed delayed[]; /* heap by due and order */
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
	struct chaos_side side[CHAOS_DIRS];
	struct chaos_port *next;
};

extern pthread_mutex_t chaos_lock;
extern struct chaos_port *chaos_ports; /**< under chaos_lock */

/** Hand the settings of a side to its queues. */
void chaos_side_publish(struct chaos_side *side, bool target_again);
/** Set one key ("seed", "rx_...", "tx_...") of a port and publish it; under chaos_lock. */
int chaos_port_set(
	struct chaos_port *port, const char *key, const char *value, char *why, size_t n);

struct chaos_queue *chaos_queue_create(
	struct chaos_port *port, enum chaos_dir dir, uint16_t id, int socket);
/** Free what it holds and start its sequences again; nobody polls it. */
void chaos_queue_reset(struct chaos_queue *q);
void chaos_queue_free(struct chaos_queue *q);
uint16_t chaos_rx_burst(void *rxq, struct rte_mbuf **pkts, uint16_t n);
uint16_t chaos_tx_burst(void *txq, struct rte_mbuf **pkts, uint16_t n);
uint16_t chaos_tx_prepare(void *txq, struct rte_mbuf **pkts, uint16_t n);
/** Statistics may be read by any thread. */
uint64_t chaos_queue_count(const struct chaos_queue *q, enum chaos_counter c);

#endif /* CHAOS_H */
