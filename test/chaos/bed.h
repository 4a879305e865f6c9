/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef BED_H
#define BED_H

/* A port net_chaos over a port net_ring: the test puts packets into one ring and finds those that
 * were sent in another. */

#include <stdbool.h>
#include <stdint.h>

#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_ring.h>

#define BED_QUEUES 2
#define BED_BURST  32
#define BED_LEN    100

struct bed {
	uint16_t port;    /* net_chaos */
	uint16_t wrapped; /* net_ring */
	uint16_t queues;
	char name[32], ring_name[32];
	struct rte_ring *rx[BED_QUEUES], *tx[BED_QUEUES];
};

extern struct rte_mempool *bed_pool;

/* One EAL for the program. */
void bed_eal(void);

/* @p args as after "port=...,"; not started: bed_start(). */
bool bed_make(struct bed *b, const char *args, uint16_t queues);
void bed_start(struct bed *b);
/* made and started, with one queue */
void bed_open(struct bed *b, const char *args);
/* stopped and closed; no mbuf may be missing */
void bed_close(struct bed *b);

/* A packet of @p len bytes with a number in its first 4 bytes, and a pattern after it. */
struct rte_mbuf *bed_packet(uint32_t number, uint16_t len);
uint32_t bed_number(const struct rte_mbuf *m);
bool bed_intact(const struct rte_mbuf *m, uint16_t len);

/* Put packets @p first to @p first + n - 1 through the port, a burst at a time, and note the
 * numbers that come out, up to @p max. @return how many came. Frees them. */
uint32_t bed_receive(struct bed *b, uint32_t first, uint32_t n, uint32_t *got, uint32_t max);
uint32_t bed_send(struct bed *b, uint32_t first, uint32_t n, uint32_t *got, uint32_t max);
/* the same without new packets: what was held, for @p us microseconds */
uint32_t bed_drain_rx(struct bed *b, uint64_t us, uint32_t *got, uint32_t max);

uint64_t bed_xstat(const struct bed *b, const char *name);
/* all packets are accounted for, in both directions */
void bed_conserves(const struct bed *b);
/* one telemetry command through its socket */
void bed_telemetry(const char *cmd, char *answer, size_t n);

#endif /* BED_H */
