/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef CORE_H
#define CORE_H

/* What the stages of a core share. */

#include <stdatomic.h>

#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_mbuf_dyn.h>
#include <rte_ring.h>

#include "pbox_dataplane.h"
#include "waker.h"

#define BURST         PBOX_SHARD_BURST
#define STASH         64   /* packets taken from a pool at a time */
#define RING_HANDOFF  512  /* packets from one core to another */
#define RING_CONTROL  1024 /* packets from a core to control, and back */
#define ETHDEVS       RTE_MAX_ETHPORTS
#define HEADER_ROOM   (RTE_PKTMBUF_HEADROOM + 128)
#define FRAME_HEADERS (PBOX_NET_HEADERS_LEN + PBOX_HDR_LEN)

/* Packets that leave together: to a queue, or to the core that has one. */
struct outbox {
	uint16_t port, queue;
	struct rte_ring *via; /* NULL: the queue is this core's own */
	struct core *owner;   /* of the ring */
	uint16_t n, burst;
	struct rte_mbuf *m[PBOX_PORT_BURST_MAX];
};

/* Datagrams for the shard of another core. */
struct handoff {
	struct rte_ring *ring; /* NULL: that core needs none from here */
	struct core *owner;    /* that core */
	uint16_t n;
	struct rte_mbuf *m[BURST];
};

/* Packets for answers that were taken from their pool together. */
struct stash {
	struct rte_mempool *pool;
	unsigned n;
	struct rte_mbuf *m[STASH];
};

struct rx_queue {
	struct pbox_port *port;
	uint16_t queue;
};

struct core {
	struct pbox_dp *dp;
	struct pbox_shard *shard;
	uint16_t index;
	int node;
	uint64_t *stat; /* PBOX_CS_STATS */
	uint64_t *shard_stat;

	uint64_t tsc, now_ns; /* when this turn of the loop began */
	bool left;            /* this turn may have left packets in a queue */
	/* What this turn finds came later than the last one before it that left none: of this
	 * core alone, and of those, too, that hand packets over. */
	_Atomic uint64_t emptied_ns; /* also read by the control thread */
	uint64_t looked_ns;
	struct rx_queue rxq[RTE_MAX_ETHPORTS];
	unsigned n_rxq;
	int8_t outbox_of[ETHDEVS]; /* ethdev port -> out[], -1: none */
	struct outbox out[RTE_MAX_ETHPORTS];
	unsigned n_out;
	struct handoff to[PBOX_PORT_CORES]; /* by index of the core */
	uint16_t target[PBOX_PORT_CORES];   /* those with a ring */
	unsigned n_targets;
	struct rte_ring *rx_in[PBOX_PORT_CORES], *tx_in[PBOX_PORT_CORES];
	unsigned n_rx_in, n_tx_in;
	/* to_control: of strangers; sessions: of live sessions (pbox_shard_gate) */
	struct rte_ring *to_control, *sessions, *from_control, *mail_in, *mail_out;
	struct rte_ring *up,
		*down; /* sums of racks, to control and back; NULL: there are no uplinks */

	unsigned n_frames;
	struct pbox_frame frame[PBOX_SHARD_BURST];

	struct stash packets; /* of answers: headers, and the payloads after them */
	const void *payload;  /* of the latest answers; how long it has been served: */
	uint16_t served;
	uint16_t ip_id;

	_Atomic uint64_t conflict; /* port << 48 | MAC, of the latest ARP_CONFLICT; 0: none */
	unsigned empty;            /* turns without work in a row */
	uint64_t worked_ns;        /* when the last turn with work began */
	_Atomic int tid;
	_Atomic bool running; /* pbox_dp_run() */

	/* A turn that is looked at stage by stage (loop.c), and its cycles. */
	bool sampled;
	_Atomic uint32_t turns; /* written by the core alone */
	uint64_t engine_tsc, answer_tsc, transmit_tsc;
	bool wakes;                             /* calls end its waits */
	bool epoll;                             /* receive interrupts do, of all of its queues */
	struct rte_epoll_event called;          /* of the waker's fd */
	struct waker waker __rte_cache_aligned; /* others write it */
};

/* EAL memory that answers are sent from. */
struct region {
	uintptr_t base, end;
	unsigned page_bits; /* a piece for a device ends with such a page, but where iova goes on */
	rte_iova_t *iova;   /* of each page; NULL: addresses are the same */
};

struct pbox_dp {
	struct pbox_dp_conf conf;
	_Atomic bool stop;
	int looked_at; /* of a packet that is handed over: its core's emptied_ns */
	bool iova_is_va;
	uint64_t ns_mult, us_mult; /* TSC ticks -> time, 32 bits after the point */
	struct pbox_port *port_of[ETHDEVS];
	uint64_t serves[ETHDEVS]; /* bit i: core i serves this port */
	struct region region[PBOX_MAX_NODES];
	unsigned n_regions;
	struct core *core[PBOX_PORT_CORES];
	struct pbox_net_udp_origin from[ETHDEVS];     /* datagrams of ports */
	struct rte_mempool *packets[PBOX_PORT_CORES]; /* for answers */
	unsigned n_packets[PBOX_PORT_CORES];

	/* control thread */
	struct rte_mempool *control_pool;
	unsigned n_control;
	uint64_t control_lost;
	uint16_t control_ip_id;
	unsigned unanswered[PBOX_PORT_CORES]; /* mails */
	uint64_t taken[PBOX_PORT_CORES];      /* datagrams of sessions */
	unsigned next_mail;
	struct rte_mempool *uplink_pool; /* uplink.c, these as well */
	unsigned n_uplink, next_up;
	struct pbox_arp *arp; /* of each port */
	struct waker control;
};

static inline void
core_count(struct core *c, enum pbox_core_stat what, uint64_t n)
{
	pbox_stat_add(&c->stat[what], n);
}

static inline uint64_t
ticks_to_ns(const struct pbox_dp *dp, uint64_t ticks)
{
	return (uint64_t)((unsigned __int128)ticks * dp->ns_mult >> 32);
}

static inline uint64_t *
looked_of(const struct pbox_dp *dp, struct rte_mbuf *m)
{
	return RTE_MBUF_DYNFIELD(m, dp->looked_at, uint64_t *);
}

/* Cycles that were counted for a stage within another one. */
static inline uint64_t
counted_tsc(const struct core *c)
{
	return c->engine_tsc + c->answer_tsc + c->transmit_tsc;
}

/* rx.c */
unsigned core_take_received(struct core *c);
unsigned core_take_handed(struct core *c);
/* frames.c */
/* The way to the control thread that this datagram may take; false: there is no room. */
bool core_to_control(struct core *c, enum pbox_gate gate, struct rte_mbuf *m);
void core_datagram_rx(struct core *c, struct rte_mbuf *m);
void frames_flush(struct core *c);
/* tx_answer.c: shard ops */
extern const struct pbox_shard_ops core_ops;
/* copy.c: a frame in packet m, which is as it comes from a pool. False: it does not fit, and is
 * unchanged */
bool core_frame_copy(struct rte_mbuf *m, const struct pbox_net_udp_origin *t,
	const struct pbox_send *s, uint16_t served, uint16_t ip_id);
void core_frame_headers(void *at, const struct pbox_net_udp_origin *t, const struct pbox_send *s,
	uint16_t served, uint16_t ip_id);
/* tx.c */
void core_tx(struct core *c, unsigned port, struct rte_mbuf *m);
void core_tx_all(struct core *c, unsigned port, struct rte_mbuf **m, unsigned n);
void tx_flush(struct core *c);
unsigned core_take_tx(struct core *c);
/* arp_announce.c */
/* For the control thread, which logs it: who claims our address? */
void core_note_conflict(struct core *c, const struct pbox_port *p, const struct pbox_net_pkt *pkt);
/* mail.c */
/* The core that has the first queue of a port sends for the control thread; 0 or -ENOBUFS. */
int core_send_for_control(struct pbox_dp *dp, const struct pbox_port *p, struct rte_mbuf *m);
unsigned core_take_mail(struct core *c);
/* uplink.c: of boxes with uplinks; 0 or a negative errno */
int uplink_create(struct pbox_dp *dp);
void uplink_destroy(struct pbox_dp *dp);
/* sums.c */
bool core_up(void *core, const struct pbox_up *up);
unsigned core_take_down(struct core *c);
/* A packet that no endpoint has. True: it is an uplink's, and on its way. */
bool core_uplink_rx(struct core *c, uint16_t dst_port, struct rte_mbuf *m);
/* An answer of ARP; as above. */
bool core_uplink_arp(struct core *c, struct rte_mbuf *m);
/* idle.c */
/* What a core without work does next. */
struct idle_step {
	enum { IDLE_PAUSE, IDLE_YIELD, IDLE_NAP, IDLE_WAIT } what;
	uint64_t ns; /* how long at most, of the last two; only a wait is ended by others */
};
struct idle_state {
	enum pbox_idle mode;
	bool wakes, interrupts; /* as in struct core */
	bool pending;           /* a round waits for the time at which it may end */
	unsigned empty;         /* turns without work in a row, 1 at least */
	uint64_t quiet_ns;      /* since the last one with work */
};
/* Pure. */
struct idle_step idle_next(const struct idle_state *s);
/* After something was put down for core @p to, by another thread than its own. */
void core_call(struct core *to);
void core_idle(struct core *c);
void idle_start(struct core *c);
void idle_stop(struct core *c);
/* rings.c */
int rings_create(struct pbox_dp *dp, struct pbox_error *err);
/* What a core's rings take: those to and from control, and those of a port that it serves. */
size_t rings_control_bytes(void);
size_t rings_port_bytes(const struct pbox_port *p);
void rings_free(struct pbox_dp *dp);

#endif /* CORE_H */
