/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PACKET_H
#define PACKET_H

/**
 * @file
 * net_packet inside: a Linux interface as a DPDK port, through AF_PACKET sockets with virtio-net
 * headers. These say what a frame of the kernel really is: a checksum that was left to hardware,
 * or up to 64 KiB that are many UDP datagrams in one piece (a super-frame). Such pieces are what
 * makes the kernel fast: one walk through its stack for all of them.
 *
 * Receiving (packet_rx.c): a ring shared with the kernel; frames are copied once, into mbufs.
 * Super-frames do not fit a place of the ring: the kernel queues them beside it, and one recvmsg()
 * scatters them into mbufs. The application sees ordinary frames.
 *
 * Sending (packet_tx.c): datagrams of one flow and one length that are sent in one burst become a
 * super-frame, straight from the mbufs; the kernel cuts it where the interface cannot.
 *
 * Threads: a queue belongs to the thread that polls it. Everything else is the control thread's,
 * as ethdev demands it; statistics may be read by any thread.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <linux/virtio_net.h>

#include <rte_ether.h>
#include <rte_log.h>
#include <rte_mbuf.h>

#include "packet_gso.h"

struct rte_eth_dev;

extern int packet_logtype;
#define PACKET_LOG(level, fmt, ...) \
	rte_log(RTE_LOG_##level, packet_logtype, "net_packet: " fmt "\n", ##__VA_ARGS__)

#define PACKET_QUEUES 64
#define PACKET_IFNAME 16

/* Frames before VLAN tags, whole 64-byte lines: what the kernel puts before a frame's network
 * header (its own header, the address, the Ethernet and the virtio-net header) and the rest. */
#define PACKET_SLOT_HEAD  96
#define PACKET_BLOCK_MAX  (256u * 1024)
#define PACKET_SLOTS_MIN  64
#define PACKET_SLOTS_MAX  32768
#define PACKET_SOCKET_BUF (32 << 20)

#define PACKET_TX_FRAMES 256  /* that are looked at together */
#define PACKET_TX_IOVS   1024 /* of one system call */
#define PACKET_TX_SEGS   64   /* of one frame */

/** What queues count; xstats by these names but for the first two. */
#define PACKET_COUNTERS(X)                                                           \
	X(packets)                                                                   \
	X(bytes)                                                                     \
	X(super_frames) /* many datagrams in one piece, from or to the kernel */     \
	X(gathered)     /* datagrams in these */                                     \
	X(unfinished)   /* received with a checksum that was left to hardware */     \
	X(nombuf)       /* received, and there was no mbuf */                        \
	X(cut)          /* larger than a place of the ring, and no room beside it */ \
	X(too_long)     /* does not fit an mbuf */                                   \
	X(alien)        /* a super-frame that is no UDP over plain IPv4 */           \
	X(refused)      /* the kernel does not send this frame */                    \
	X(calls)        /* system calls */

enum packet_counter {
#define PACKET_SYMBOL(name) PACKET_N_##name,
	PACKET_COUNTERS(PACKET_SYMBOL)
#undef PACKET_SYMBOL
		PACKET_COUNTER_MAX
};

/** Counted by one thread; any may read. */
struct packet_counts {
	uint64_t n[PACKET_COUNTER_MAX];
	uint64_t base[PACKET_COUNTER_MAX]; /* at the last reset */
};

static inline void
packet_count(struct packet_counts *c, enum packet_counter what, uint64_t n)
{
	__atomic_store_n(&c->n[what], c->n[what] + n, __ATOMIC_RELAXED);
}

static inline uint64_t
packet_counted(const struct packet_counts *c, enum packet_counter what)
{
	return __atomic_load_n(&c->n[what], __ATOMIC_RELAXED) - c->base[what];
}

struct packet_port;

struct packet_rxq {
	struct packet_port *port;
	struct rte_mempool *pool;
	int fd; /* -1: stopped */
	uint16_t id;
	uint16_t port_id;
	uint16_t room;        /* for a frame, in an mbuf */
	bool offload;         /* the application reads the checksum flags of mbufs */
	uint8_t *ring, *slot; /* the place that is filled next */
	uint32_t slot_bytes, block_bytes, per_block, n_slots;
	uint32_t at, at_in_block;
	uint32_t n_ready, next_ready; /* datagrams of a super-frame that the last burst had no room
					 for */
	uint64_t missed;              /* by the kernel, of sockets closed or asked; control's */
	uint64_t missed_base;
	uint16_t descs;
	struct packet_counts count;
	struct rte_mbuf *ready[PACKET_PIECES];
} __rte_cache_aligned;

struct packet_txq {
	struct packet_port *port;
	int fd;
	uint16_t id;
	bool gso;
	struct packet_counts count;
	struct packet_group group[PACKET_TX_FRAMES];
	uint16_t next[PACKET_TX_FRAMES];
	bool sent[PACKET_TX_FRAMES];
	struct mmsghdr msg[PACKET_TX_FRAMES];
	struct virtio_net_hdr vnet[PACKET_TX_FRAMES];
	uint8_t head[PACKET_TX_FRAMES][PACKET_HEADERS];
	struct iovec iov[PACKET_TX_IOVS];
} __rte_cache_aligned;

#define PACKET_RULES 64 /* of the application, and what a jump of a filter reaches */

/** Steering: UDP destination port -> queue. */
struct rte_flow {
	bool used;
	uint16_t udp, queue; /* host order */
};

struct packet_port {
	struct rte_eth_dev *dev;
	char ifname[PACKET_IFNAME];
	int ifindex;
	struct rte_ether_addr mac, kernel_mac;
	bool mac_given; /* never follows the interface's */
	bool gso;       /* wanted for sending */
	bool promiscuous, all_multicast;
	bool started;
	uint16_t n_rx, n_tx;
	struct packet_rxq *rx[PACKET_QUEUES];
	struct packet_txq *tx[PACKET_QUEUES];
	struct rte_flow rule[PACKET_RULES];
};

/* packet_socket.c: 0 or a negative errno, with a line in the log */
/** Sockets and rings of all queues; frames arrive from here on. */
int packet_sockets_open(struct packet_port *port, uint16_t mtu);
/** An interface was deleted and made again: have that one, with the same sockets, so without any rights. */
int packet_sockets_rebind(struct packet_port *port, int ifindex);
/** Close them; what was received and not fetched is gone, mbufs are not. */
void packet_sockets_close(struct packet_port *port);
/** Say again which addresses are ours. */
int packet_filter(struct packet_port *port);
/** Promiscuous or all-multicast mode of the interface, by PACKET_MR_*. */
int packet_membership(struct packet_port *port, int what, bool on);
/** Hand the rules to the kernel. */
int packet_steer(struct packet_port *port);
/** Frames that the kernel had no room for; asks it. */
uint64_t packet_missed(struct packet_rxq *q);

/* packet_iface.c: about the interface */
int packet_iface_index(const char *ifname);
int packet_iface_mac(const char *ifname, struct rte_ether_addr *mac);
int packet_iface_mtu(const char *ifname);
int packet_iface_flags(const char *ifname);
/** Has it no hardware? */
bool packet_iface_virtual(const char *ifname);

uint16_t packet_rx_burst(void *rxq, struct rte_mbuf **pkts, uint16_t n);
uint32_t packet_rx_count(void *rxq);
uint16_t packet_tx_burst(void *txq, struct rte_mbuf **pkts, uint16_t n);

#endif /* PACKET_H */
