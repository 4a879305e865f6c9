/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef CLIENT_DPDK_H
#define CLIENT_DPDK_H

/** @file Inside of the DPDK transport. An instance belongs to one thread at a time; what is of the
 * process (EAL, ports) has a lock. */

#include <stdatomic.h>
#include <time.h>

#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include <pbox_arp.h>
#include <pbox_net.h>
#include <pbox_port.h>
#include <pbox_port_mbuf.h>

#include "pbox_client_dpdk.h"

#define DPDK_RX_BURST 32 /* some drivers give no more */
#define DPDK_TX_BURST 64
#define DPDK_PEERS    128 /* control endpoint and at most 64 of data, of boxes to come */
#define DPDK_WORD     128 /* bytes of an argument */
#define DPDK_BLANKS   " \t\n"

#define NS_US UINT64_C(1000)
#define NS_MS UINT64_C(1000000)
#define NS_S  UINT64_C(1000000000)

/** Arguments after the "--". */
struct dpdk_options {
	uint32_t ip, gateway; /* network order */
	uint8_t prefix_len;
	char port[DPDK_WORD]; /* "": the first free one */
	bool sleep, copy;
};

/** A port of this process; never freed. */
struct dpdk_port {
	struct pbox_port p;
	struct rte_mempool *headers; /* small packets, and the heads of shared payload */
	bool open, used;
};

struct dpdk_peer {
	struct pbox_net_udp_template t;
	uint32_t ip;      /* network order */
	uint16_t udp;     /* host order */
	bool ready;       /* t is written */
	uint64_t look_at; /* us: ask the ARP table again */
	uint8_t mac[6];   /* in t */
};

/** Memory that EAL knows: the region that was found last. */
struct dpdk_region {
	uintptr_t base, end;
	const struct rte_memseg_list *list;
	bool va; /* bus addresses are virtual ones */
};

struct dpdk {
	struct pbox_client_transport t;
	struct dpdk_port *port;
	uint16_t id;  /* of ethdev */
	uint16_t udp; /* our port, host order */
	struct dpdk_options o;
	struct pbox_arp arp;
	struct dpdk_peer peer[DPDK_PEERS];
	unsigned n_peers;
	/* sending */
	bool by_ref;       /* the port takes chains */
	bool virtio_user;  /* it reaches EAL's own memory only */
	unsigned max_segs; /* of a packet */
	unsigned refs;     /* zero copy: packets that point to a caller's memory */
	struct dpdk_region region;
	unsigned n_out;
	struct rte_mbuf *out[DPDK_TX_BURST];
	uint16_t ip_id;
	/* receiving */
	uint16_t rx_queue;          /* the last one that was asked */
	unsigned n_viewed, n_ahead; /* packets under views; fetched by wait */
	struct rte_mbuf *viewed[DPDK_RX_BURST], *ahead[DPDK_RX_BURST];
	struct pbox_client_rx view[DPDK_RX_BURST];
	/* waiting */
	atomic_bool woken, sleeping;
	int event;
	bool registered; /* the progress thread has an lcore id */
};

static inline uint64_t
dpdk_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * NS_S + (uint64_t)t.tv_nsec;
}

/** Fill @p err and return @p code. */
int dpdk_fail(struct pbox_client_error *err, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* options.c */
/** Parse the arguments after the "--" of @p args; *eal: how many bytes are before it. */
int dpdk_options(
	struct dpdk_options *o, const char *args, size_t *eal, struct pbox_client_error *err);

/* eal.c */
/** Start EAL if @p text (of @p len bytes) has arguments and it does not run. Any thread. */
int dpdk_eal_start(const char *text, size_t len, struct pbox_client_error *err);

/* port.c */
/** A port for this client, configured and started. Any thread. */
int dpdk_port_take(struct dpdk_port **out, const struct dpdk_options *o, unsigned mtu,
	struct pbox_client_error *err);
void dpdk_port_give(struct dpdk_port *p);

/* rx.c */
/** Packets of the next queue that has some, into `ahead`; each is asked in its turn. */
unsigned dpdk_rx_burst(struct dpdk *s);
unsigned dpdk_recv(struct pbox_client_transport *t, const struct pbox_client_rx **out);
void dpdk_wait(struct pbox_client_transport *t, uint64_t ns);
void dpdk_wake(struct pbox_client_transport *t);
void dpdk_rx_free(struct dpdk *s);

/* tx.c */
void dpdk_send(struct pbox_client_transport *t, const struct pbox_client_tx *d, unsigned n);
/** Send @p m (its length set) at the next flush. */
void dpdk_tx(struct dpdk *s, struct rte_mbuf *m);
void dpdk_tx_flush(struct dpdk *s);
/** Look up the next hop of a peer, and ask by ARP if it is unknown or old. True: it can be sent to. */
bool dpdk_peer_resolve(struct dpdk *s, struct dpdk_peer *p, enum pbox_arp_state *state);
/** The library's peer as ours; NULL: there are too many. */
struct dpdk_peer *dpdk_peer(struct dpdk *s, struct pbox_client_peer *peer);
void dpdk_quiesce(struct pbox_client_transport *t);
/** ARP request for @p ip (our own: an announcement). */
void dpdk_ask(struct dpdk *s, uint32_t ip);

#endif /* CLIENT_DPDK_H */
