/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_PORT_H
#define PBOX_PORT_H

/**
 * @file
 * Any DPDK port, made ready for the data cores: queues, packet pools, offloads, steering, link.
 *
 * A missing offload is never an error: it is a line of the report. Control thread only (or main,
 * before the data cores start), except where a function says otherwise. Nothing here prints.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <pbox_base.h>
#include <pbox_modes.h>
#include <pbox_net.h>

struct rte_mempool;
struct rte_flow;

/** Data cores of the box, and queue pairs of one port. */
#define PBOX_PORT_CORES  64
#define PBOX_PORT_QUEUES 64
#define PBOX_PORT_NOTES  8

/** Packets of a burst: what suits caches, and the most for devices that gain by longer ones. */
#define PBOX_PORT_BURST     64
#define PBOX_PORT_BURST_MAX 256

/** Private area and headroom of packet buffers: 128 (struct) + 24 + 128 + 104 bytes of headers put
 * the payload on a 64-byte boundary (doc/protocol.md R1.4). */
#define PBOX_PORT_MBUF_PRIV 24
#define PBOX_PORT_CACHE     256 /**< packets that one core keeps of a pool */

/** Receive interrupts. */
enum pbox_port_intr {
	PBOX_PORT_INTR_NONE,
	PBOX_PORT_INTR_USED,   /**< where the device has them */
	PBOX_PORT_INTR_WANTED, /**< and it gets a note where it has none */
};

struct pbox_port_conf {
	uint16_t id;          /**< of ethdev */
	const char *where;    /**< for messages: "[port 0] (pbox.conf line 3)" */
	uint32_t ip, gateway; /**< network order; gateway 0: none */
	uint8_t prefix_len;
	uint16_t mtu;              /**< 0: what the port has */
	uint16_t queues;           /**< 0: as many as there are cores and the device has */
	uint16_t rx_desc, tx_desc; /**< 0: auto */
	enum pbox_steer steer;
	const char *steer_where; /**< for messages: "[port 0] steer = flow (pbox.conf line 5)" */
	enum pbox_port_intr rx_intr;
	uint32_t hold;         /**< received packets that each core may keep */
	uint16_t control_port; /**< UDP; that of core i is control_port + 1 + i */
	unsigned n_cores;
	uint16_t core[PBOX_PORT_CORES]; /**< data cores that serve the port, by their index */
	const struct pbox_port_core
		*cores; /**< all data cores, for a note about far ones; or NULL */
};

#define PBOX_PORT_IFNAME 16

/** What a device is called and what it can. */
struct pbox_port_device {
	char name[64], driver[32];
	int node; /**< -1: any */
	uint16_t max_rxq, max_txq;
	uint16_t mtu_set;    /**< what DPDK may set; 0: the device refuses the wanted one */
	uint16_t mtu_kernel; /**< of its kernel interface, or 0 */
	char kernel_if[PBOX_PORT_IFNAME]; /**< its name, or "" */
	uint32_t max_frame;               /**< longest frame that it delivers whole; 0: unknown */
	uint32_t min_buffer;              /**< bytes that a receive buffer must have */
	uint32_t max_buffer;              /**< bytes that it may have at most; 0: any number */
	uint16_t burst;                   /**< packets that it likes to get, and give, together */
	bool rx_ip_checksum, rx_udp_checksum, tx_segments, rss, lsc;
};

/** An open port. The data path reads it; control writes link and notes. */
struct pbox_port {
	struct pbox_port_conf conf;
	struct pbox_port_device dev;
	struct pbox_net_if nif;
	uint16_t mtu;
	uint16_t n_queues; /**< pairs: queue q belongs to core conf.core[q] */
	uint16_t n_rxd, n_txd;
	bool rx_intr; /**< granted */
	bool flow;    /**< the device steers by UDP port */
	bool open, started;
	uint32_t data_room; /**< of a packet buffer, headroom included */
	uint32_t n_mbufs;   /**< in each pool */
	size_t pool_bytes;  /**< of all pools */
	struct rte_mempool *pool[PBOX_PORT_QUEUES];
	struct rte_flow *rule[PBOX_PORT_CORES];
	unsigned n_rules;
	char steer_why[96];
	unsigned n_notes;
	char note[PBOX_PORT_NOTES][256]; /**< for the operator: what is not as it should be */
	_Atomic unsigned link_events;
	unsigned link_seen;
	int link_up; /**< -1: not known yet */
	int claim;   /**< a socket that says on this host who serves the address; 0, -1: none */
};

/** A data core. */
struct pbox_port_core {
	unsigned lcore;
	int node; /**< NUMA node, -1: any */
};

/** Find a port by number or device name. -ENODEV, with @p err naming those that exist. */
int pbox_port_find(const char *name, uint16_t *id, struct pbox_error *err);
/** Ports that a program may use, in order (not owned by others, not slaves of a bond).
 * @return how many; the first @p max are in @p id. */
unsigned pbox_port_list(uint16_t *id, unsigned max);
/** Device name of a port, "?" if there is none. */
const char *pbox_port_name(uint16_t id);
/** Queue pairs that the other side of a port of shared memory (virtio-user, vhost) may send in: who does not open all of
 * them misses what comes there. 0: another device. */
uint16_t pbox_port_shared_queues(uint16_t id);
/** NUMA node of a port, -1: any. */
int pbox_port_node(uint16_t id);

/**
 * Configure the port, and find out what memory it needs: data_room, n_mbufs and pool_bytes of @p p.
 * Takes none yet, so that the whole box can be computed first. On error nothing is left and
 * @p err names the port and the next step.
 */
int pbox_port_prepare(
	struct pbox_port *p, const struct pbox_port_conf *conf, struct pbox_error *err);
/** Then its pools, on its NUMA node, and its queues; not started yet. Errors as there. */
int pbox_port_queues(struct pbox_port *p, struct pbox_error *err);
/** Both. */
int pbox_port_open(struct pbox_port *p, const struct pbox_port_conf *conf, struct pbox_error *err);
/** Say on this host that the port's address is served on its kernel interface, until it is closed. -EADDRINUSE, with
 * @p err naming the process, where another one does. */
int pbox_port_claim(struct pbox_port *p, struct pbox_error *err);
/** Start, and install the steering rules. */
int pbox_port_start(struct pbox_port *p, struct pbox_error *err);
/** Wait for the link. false: none within @p timeout_ms, or before @p stop (or NULL) said so (a note is
 * added). */
bool pbox_port_wait_link(struct pbox_port *p, unsigned timeout_ms, bool (*stop)(void));
/** MTU of the port's kernel interface now, 0 if it has none or it is not known. */
uint16_t pbox_port_kernel_mtu(const struct pbox_port *p);
/** The host's kernel has the port's address, on interface @p ifname: then two answer. */
bool pbox_port_kernel_has(const struct pbox_port *p, char ifname[PBOX_PORT_IFNAME]);
/** What to do about a link that is down: "ip link set eth0 up". Returns @p buf, of 96 bytes
 * or more. */
const char *pbox_port_link_advice(const struct pbox_port *p, char *buf, size_t size);
/** Look at the link. 1: it came up, 0: unchanged, -1: it went down. Call it every second. */
int pbox_port_link_change(struct pbox_port *p);
/** Stop and close the device; its pools stay for pbox_port_mbufs_missing(). */
void pbox_port_close(struct pbox_port *p);
/** Packets that did not come back to the pools. */
unsigned pbox_port_mbufs_missing(const struct pbox_port *p);
/** Of these, what the device's driver is known to keep after its close. */
unsigned pbox_port_mbufs_kept(const struct pbox_port *p);
unsigned pbox_port_mbufs(const struct pbox_port *p);
/** After everything: free the pools. */
void pbox_port_free(struct pbox_port *p);

/** How packets come to their core: "flow" or "ring". */
const char *pbox_port_steering(const struct pbox_port *p);
/** Write a line about an open port: its device, address, MTU and link. */
void pbox_port_describe(const struct pbox_port *p, FILE *to);
/** Write that line and others about an open port. @p lcore_of: lcore of each data core. */
void pbox_port_report(const struct pbox_port *p, const unsigned *lcore_of, FILE *to);

/** A packet pool that is last-in-first-out, so that few buffers stay in the cache, and that any
 * thread may use without spinning on one that was preempted. NULL and rte_errno. */
struct rte_mempool *pbox_port_pool(
	const char *name, unsigned n, uint16_t priv, uint16_t data_room, int node);
/** What such a pool takes of memory, in bytes. */
size_t pbox_port_pool_bytes(unsigned n, uint16_t priv, uint32_t data_room);

/* ---- decisions, pure -------------------------------------------------------------------- */

/**
 * Cores that serve a port: the wanted lcores, or those of the port's NUMA node, or all.
 *
 * @param wanted  says whether the operator wants an lcore; NULL: no wish
 * @return how many, their indices in @p out (room for n)
 */
unsigned pbox_port_plan_cores(int node, bool (*wanted)(unsigned lcore, const void *ctx),
	const void *ctx, const struct pbox_port_core *core, unsigned n, uint16_t *out);
/** Of the @p n cores that serve a port of @p node, those on another node: how many; their places in
 * @p serves are in @p out (room for n). */
unsigned pbox_port_plan_far(int node, const struct pbox_port_core *core, const uint16_t *serves,
	unsigned n, uint16_t *out);
/** Queue pairs: what is wanted (0: n_cores), at most what the device has and there are cores. */
unsigned pbox_port_plan_queues(
	unsigned wanted, unsigned max_rxq, unsigned max_txq, unsigned n_cores);
/** Data room of packet buffers for an MTU: headers, a VLAN tag or two and the FCS, whole KiB as
 * many devices want it; no more than max_buffer (0: any), even if that is too little; 0: does not
 * fit 16 bits. */
uint32_t pbox_port_plan_room(unsigned mtu, uint32_t min_buffer, uint32_t max_buffer);
/** Packets of the pool of one queue. */
uint32_t pbox_port_plan_mbufs(
	const struct pbox_port_conf *c, unsigned n_queues, unsigned n_rxd, unsigned n_txd);

/** One line of the memory budget. */
struct pbox_budget_item {
	char what[48];
	int node;
	size_t bytes;
};
#define PBOX_BUDGET_ITEMS 160
struct pbox_budget {
	unsigned n;
	struct pbox_budget_item item[PBOX_BUDGET_ITEMS];
};

void pbox_budget_add(struct pbox_budget *b, int node, size_t bytes, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/** Sum over one node; node -2: over all. */
size_t pbox_budget_sum(const struct pbox_budget *b, int node);
/** With 2 % for the allocator's own, and for what does not fit the rest of a page. */
size_t pbox_budget_padded(size_t bytes);
/** Pages of @p page bytes that @p bytes, padded, need. */
size_t pbox_budget_pages(size_t bytes, size_t page);
/** Hugepages that one large piece, taken first, and then @p others (padded here) need beside a heap of
 * which @p heap bytes are free, @p largest of them in one piece. */
size_t pbox_budget_fresh(size_t heap, size_t largest, size_t page, size_t piece, size_t others);
/** "12.3 MiB". Returns buf. */
const char *pbox_budget_size(size_t bytes, char *buf, size_t size);
/** Write the budget, one line an item and the sum. */
void pbox_budget_report(const struct pbox_budget *b, FILE *to);

/** Free memory that EAL has, or could still take, on @p node (-1: any; without hugepages it is
 * always any), and the page size. */
size_t pbox_memory_free(int node, size_t *page);
/** Memory that the host could still give to programs, without hugepages. */
size_t pbox_memory_host(void);
/** Have the pages of @p p on @p node (-1: anywhere) where EAL does not see to that: without
 * hugepages. Best before they are used. 0 or -errno. */
int pbox_memory_place(void *p, size_t size, int node);
/** NUMA node that the page of @p p lies on, -1 if it is not known. */
int pbox_memory_node_of(const void *p);
/** Are one large piece and then @p others to be had on @p node? If not -ENOMEM with the number of
 * hugepages, or of MiB, that makes it so. @p what as for pbox_memory_fail(). */
int pbox_memory_check(
	struct pbox_error *err, const char *what, int node, size_t piece, size_t others);
/** @p what, which ends with its verb ("a ring needs"), then "1 GiB (512 hugepages of 2048 kB), and
 * 200 MiB is left on its NUMA node: echo ... > /sys/..." */
int pbox_memory_fail(struct pbox_error *err, const char *what, int node, size_t bytes);

#endif /* PBOX_PORT_H */
