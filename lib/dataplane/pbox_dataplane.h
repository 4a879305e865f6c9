/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_DATAPLANE_H
#define PBOX_DATAPLANE_H

/**
 * @file
 * The data cores. Each polls its queues, owns one shard of the engine, and talks to the other
 * cores and to the control thread by rings of one producer and one consumer.
 *
 *     queue -> parse -> ARP, ping: answered in place
 *                    -> control port: ring to the control thread
 *                    -> data port: this core, or ring to the core that owns it
 *                       -> frames of the datagram -> shard -> answers -> queue of the port
 *
 * The cores never log, allocate, lock or block (except for sleeping when idle, if configured).
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include <pbox_arena.h>
#include <pbox_net.h>
#include <pbox_port.h>
#include <pbox_shard.h>

struct rte_mbuf;

/** Parameter memory, for sending from it without a copy: EAL memory. */
struct pbox_dp_region {
	void *base;
	size_t size;
};

struct pbox_dp_conf {
	struct pbox_port *port; /**< opened; started before the cores run */
	unsigned n_ports;
	const struct pbox_port_core *core;
	unsigned n_cores;
	const struct pbox_engine_endpoint *endpoint; /**< of pbox_dp_plan(); lives as long */
	unsigned n_endpoints;
	uint16_t control_port;
	uint16_t
		uplinks; /**< of a rack's box: so many UDP ports below the control port are theirs; else 0 */
	uint32_t incarnation;
	const uint8_t *cookie_key; /**< of the registrar (pbox_shard_conf); lives as long */
	uint16_t max_jobs;
	enum pbox_idle idle;
	const struct pbox_reduce_ops *reduce;
	const struct pbox_optim_ops *optim;
	const struct pbox_dp_region *region;
	unsigned n_regions;
};

/* Values of a core; after those of PACKETS come its drops of lib/net, after those of FRAMES the frames that lib/wire refuses. */
/* clang-format off */
#define PBOX_CORE_PACKETS(X) \
	X(PBOX_CS_RX_PACKETS, COUNTER, rx_packets, "packets", "packets received from ports") \
	X(PBOX_CS_RX_BYTES, COUNTER, rx_bytes, "bytes", "bytes of these packets") \
	X(PBOX_CS_HANDOFF_IN, COUNTER, handoff_in, "packets", "packets taken over from other cores") \
	X(PBOX_CS_HANDOFF_OUT, COUNTER, handoff_out, "packets", "packets handed to the core that owns them") \
	/* accepted */ \
	X(PBOX_CS_RX_ARP_REQUEST, COUNTER, rx_arp_request, "packets", "ARP requests answered") \
	X(PBOX_CS_RX_ARP_REPLY, COUNTER, rx_arp_reply, "packets", "ARP replies") \
	X(PBOX_CS_RX_ICMP_ECHO, COUNTER, rx_icmp_echo, "packets", "pings answered") \
	X(PBOX_CS_RX_CONTROL, COUNTER, rx_control, "packets", "datagrams for the control thread") \
	X(PBOX_CS_RX_DATA, COUNTER, rx_data, "packets", "datagrams read as data frames")
#define PBOX_CORE_FRAMES(X) \
	X(PBOX_CS_DROP_SEGMENTS, COUNTER, drop_segments, "packets", "packets in several buffers that do not fit one") \
	X(PBOX_CS_DROP_UDP_UNKNOWN_PORT, COUNTER, drop_udp_unknown_port, "packets", "datagrams to a UDP port that is no endpoint here") \
	X(PBOX_CS_DROP_HANDOFF_FULL, COUNTER, drop_handoff_full, "packets", "the ring to the owning core was full") \
	X(PBOX_CS_DROP_CONTROL_FULL, COUNTER, drop_control_full, "packets", "the ring to the control thread was full") \
	X(PBOX_CS_DROP_CONTROL_RATE, COUNTER, drop_control_rate, "packets", "more control frames than their session, job or address may send") \
	X(PBOX_CS_DROP_STOPPED, COUNTER, drop_stopped, "packets", "on the way between cores at the stop") \
	/* frames, those that are no good come after them */ \
	X(PBOX_CS_FRAMES, COUNTER, frames, "frames", "frames found in datagrams") \
	X(PBOX_CS_FRAMES_DATA, COUNTER, frames_data, "frames", "frames given to the shard") \
	X(PBOX_CS_FRAMES_CONTROL, COUNTER, frames_control, "frames", "control frames at a data port, given to the control thread")
#define PBOX_CORE_OTHERS(X) \
	X(PBOX_CS_FRAME_CONTROL_FULL, COUNTER, frame_control_full, "frames", "control frame at a data port, and the control thread was busy") \
	X(PBOX_CS_FRAME_CONTROL_RATE, COUNTER, frame_control_rate, "frames", "control frame at a data port, beyond what its session may send") \
	/* looked at, not judged by */ \
	X(PBOX_CS_UDP_CHECKSUM_PARTIAL, COUNTER, udp_checksum_partial, "packets", "the sender left the UDP checksum to hardware that is not there") \
	X(PBOX_CS_UDP_CHECKSUM_BAD, COUNTER, udp_checksum_bad, "packets", "the port found the UDP checksum wrong; the CRC of the frame decides") \
	X(PBOX_CS_ECN_CE, COUNTER, ecn_ce, "packets", "data datagrams marked: congestion experienced") \
	X(PBOX_CS_PINGS_REPORTED, COUNTER, pings_reported, "frames", "keep-alives that were answered, and that the control thread heard of") \
	/* sent */ \
	X(PBOX_CS_TX_PACKETS, COUNTER, tx_packets, "packets", "packets given to ports") \
	X(PBOX_CS_TX_BYTES, COUNTER, tx_bytes, "bytes", "bytes of these packets") \
	X(PBOX_CS_TX_HANDOFF, COUNTER, tx_handoff, "packets", "packets sent through another core") \
	X(PBOX_CS_TX_DROPPED, COUNTER, tx_dropped, "packets", "not sent: the queue stayed full") \
	X(PBOX_CS_TX_NO_MBUF, COUNTER, tx_no_mbuf, "packets", "not sent: no packet buffer") \
	X(PBOX_CS_TX_COPIED_BYTES, COUNTER, tx_copied_bytes, "bytes", "parameters copied into answers: the port takes no chained buffers") \
	X(PBOX_CS_TX_SHARED_BYTES, COUNTER, tx_shared_bytes, "bytes", "payload sent from parameter memory without a copy") \
	/* the loop */ \
	X(PBOX_CS_LOOPS, COUNTER, loops, "turns", "turns of the loop (its heartbeat)") \
	X(PBOX_CS_LOOPS_BUSY, COUNTER, loops_busy, "turns", "turns that found work") \
	X(PBOX_CS_CYCLES_BUSY, COUNTER, cycles_busy, "cycles", "TSC cycles of turns with work") \
	X(PBOX_CS_CYCLES_IDLE, COUNTER, cycles_idle, "cycles", "TSC cycles of turns without work, sleep excepted") \
	X(PBOX_CS_SLEEPS, COUNTER, sleeps, "sleeps", "times that the core slept") \
	/* where the time of busy turns goes: one turn of PBOX_DP_SAMPLE is looked at */ \
	X(PBOX_CS_STAGE_TURNS, COUNTER, stage_turns, "turns", "turns with work that were looked at stage by stage: one of 64") \
	X(PBOX_CS_STAGE_PACKETS, COUNTER, stage_packets, "packets", "packets and mails of these turns") \
	X(PBOX_CS_STAGE_MAIL, COUNTER, stage_mail, "cycles", "TSC cycles of these turns: mail of control") \
	X(PBOX_CS_STAGE_RECEIVE, COUNTER, stage_receive, "cycles", "TSC cycles of these turns: receiving, parsing, handing to other cores") \
	X(PBOX_CS_STAGE_ENGINE, COUNTER, stage_engine, "cycles", "TSC cycles of these turns: look-up, sums, optimiser") \
	X(PBOX_CS_STAGE_ANSWER, COUNTER, stage_answer, "cycles", "TSC cycles of these turns: making answers") \
	X(PBOX_CS_STAGE_TRANSMIT, COUNTER, stage_transmit, "cycles", "TSC cycles of these turns: giving packets to ports")
#define PBOX_CORE_NET_DROP(symbol, name, help)           PBOX_CS_DROP_##symbol,
#define PBOX_CORE_FRAME_DROP(symbol, number, name, help) PBOX_CS_FRAME_##symbol,

/** What happened to packets and frames on one core. Packets: rx_packets + handoff_in = accepted +
 * dropped + handoff_out. Frames: frames = frames_data + frames_control + dropped frames. */
enum pbox_core_stat {
	PBOX_CORE_PACKETS(PBOX_STAT_SYMBOL)
	PBOX_NET_DROPS(PBOX_CORE_NET_DROP)
	PBOX_CORE_FRAMES(PBOX_STAT_SYMBOL)
	PBOX_WIRE_REFUSALS(PBOX_CORE_FRAME_DROP)
	PBOX_CORE_OTHERS(PBOX_STAT_SYMBOL)
	PBOX_CS_STATS
};
/* clang-format on */
#define PBOX_DP_SAMPLE           64
#define PBOX_CS_FIRST_ACCEPT     PBOX_CS_RX_ARP_REQUEST
#define PBOX_CS_LAST_ACCEPT      PBOX_CS_RX_DATA
#define PBOX_CS_FIRST_DROP       PBOX_CS_DROP_ETH_SHORT
#define PBOX_CS_LAST_DROP        PBOX_CS_DROP_STOPPED
#define PBOX_CS_FIRST_FRAME_DROP PBOX_CS_FRAME_MAGIC
#define PBOX_CS_LAST_FRAME_DROP  PBOX_CS_FRAME_CONTROL_RATE

extern const struct pbox_stat_def pbox_core_stat_defs[PBOX_CS_STATS];

/**
 * Endpoints of the box: for each address and each core that serves its ports, UDP port control_port
 * + 1 + index of the core. Ports may share an address (links that no switch connects); answers leave
 * by the port that was asked. Pure.
 *
 * @param node_of  index into the arenas for each core
 * @return how many, -E2BIG with @p err when there are more than @p max or the UDP ports end, -EINVAL
 *         when ports with one address have different cores
 */
int pbox_dp_plan(const struct pbox_port_conf *port, unsigned n_ports, const uint8_t *node_of,
	uint16_t control_port, struct pbox_engine_endpoint *out, unsigned max,
	struct pbox_error *err);

/**
 * What auto means: poll if each core has a CPU of its own and two are left, one for the control
 * thread and one for others, else sleep. Pure.
 *
 * @param n_cpus  CPUs of data cores, and those that the process may use besides
 * @param shared  two data cores run on one CPU
 */
enum pbox_idle pbox_dp_idle_auto(unsigned n_cores, unsigned n_cpus, bool shared);

/**
 * Was the UDP checksum left to hardware that is not there (CHECKSUM_PARTIAL)? Then the sender's
 * kernel has put the sum of the pseudo header in its place, not complemented. Exact but for one
 * good checksum in 65536.
 */
bool pbox_dp_checksum_partial(const void *frame, const struct pbox_net_pkt *pkt);

struct pbox_dp;

/** Control path, before the cores run: shards, rings, pools. NULL and @p err. */
struct pbox_dp *pbox_dp_create(const struct pbox_dp_conf *conf, struct pbox_error *err);
/** After the cores have returned: empty all rings, release what shards hold; the packets go back
 * to the pools of the ports. */
void pbox_dp_drain(struct pbox_dp *dp);
/** After pbox_dp_drain() and after the ports are closed. */
void pbox_dp_destroy(struct pbox_dp *dp);
/** Packets of the cores' own pools, and those that did not come back. */
unsigned pbox_dp_mbufs(const struct pbox_dp *dp);
unsigned pbox_dp_mbufs_missing(const struct pbox_dp *dp);
/** What data core @p core will take of its NUMA node's memory: itself, packets for answers, rings (a
 * few more than there will be, where cores serve several ports). Of prepared ports. */
size_t pbox_dp_core_bytes(const struct pbox_port *port, unsigned n_ports, unsigned core);
/** What the control thread's packets take, on any node. Of prepared ports. */
size_t pbox_dp_control_bytes(const struct pbox_port *port, unsigned n_ports);

/** The loop of one core, on its lcore, until pbox_dp_stop(). @p core: pbox_dp_core(). Returns 0. */
int pbox_dp_run(void *core);
/** One turn of that loop without its idling, for programs with loops of their own (tests): packets
 * and mails worked on. One thread at a time for each core. */
unsigned pbox_dp_turn(void *core);
/** Its argument for data core @p i. */
void *pbox_dp_core(struct pbox_dp *dp, unsigned i);
/** Any thread, also a signal handler: cores finish what they are at and return. */
void pbox_dp_stop(struct pbox_dp *dp);
bool pbox_dp_stopping(const struct pbox_dp *dp);

/** Nanoseconds, the time that shards see. Any thread. */
uint64_t pbox_dp_now(const struct pbox_dp *dp);
/** Counters of core @p i. Any thread may read. */
const uint64_t *pbox_dp_core_stats(const struct pbox_dp *dp, unsigned i);
const uint64_t *pbox_dp_shard_stats(const struct pbox_dp *dp, unsigned i);
/** Thread id of core @p i, for the kernel's figures about it; 0: it has not run yet. Any thread. */
int pbox_dp_core_tid(const struct pbox_dp *dp, unsigned i);
/** Is core @p i in pbox_dp_run()? Any thread. */
bool pbox_dp_running(const struct pbox_dp *dp, unsigned i);
/** Sum of a counter over all cores. */
uint64_t pbox_dp_total(const struct pbox_dp *dp, enum pbox_core_stat what);

/* ---- the control thread's side: one thread -------------------------------------------------- */

/** Take up to @p n datagrams of core @p i; the caller owns them. */
unsigned pbox_dp_control_rx(struct pbox_dp *dp, unsigned i, struct rte_mbuf **m, unsigned n);
/** Datagrams of sessions, of core @p i, that wait to be taken. */
unsigned pbox_dp_control_waiting(const struct pbox_dp *dp, unsigned i);
/** Datagrams of sessions, of core @p i, that have been taken since the start; those that wait come next, in order. */
uint64_t pbox_dp_control_taken(const struct pbox_dp *dp, unsigned i);
/** Turns of core @p i, modulo 2^32. */
uint32_t pbox_dp_turns(const struct pbox_dp *dp, unsigned i);
/**
 * Has core @p i looked at all that had come by @p ns, when its turns were @p turns? It has if a turn that
 * began later left nothing; or, where there is always more, after so many turns that what was there
 * then has had its turn.
 */
bool pbox_dp_looked(const struct pbox_dp *dp, unsigned i, uint64_t ns, uint32_t turns);

/** A datagram that a core accepted. */
struct pbox_dp_datagram {
	const uint8_t *payload; /**< in the packet */
	uint16_t len;
	bool ce;
	bool answered;         /**< a PING: its PONG has left */
	struct pbox_peer peer; /**< its port is the one of ethdev */
};
void pbox_dp_datagram(const struct rte_mbuf *m, struct pbox_dp_datagram *d);

/** Send a frame through a core that has a queue of its port (copied). -ENOBUFS: lost, and
 * counted in pbox_dp_control_lost(). */
int pbox_dp_control_send(struct pbox_dp *dp, const struct pbox_send *s);
/* Of a box with uplinks (section 18). */
/** A sum of any shard that is to go up. False: there is none. */
bool pbox_dp_up(struct pbox_dp *dp, struct pbox_up *up);
/** Its answer, to its shard. False: there is no room now. */
bool pbox_dp_down(struct pbox_dp *dp, const struct pbox_up *up);
/** Is it for an uplink? Which, with the datagram in @p d; or one that ARP answers: then *link is that of none. */
bool pbox_dp_uplink_packet(
	struct pbox_dp *dp, const struct rte_mbuf *m, unsigned *link, struct pbox_dp_datagram *d);
/** Send a datagram of @p n pieces (copied) from the uplink's port, to @p ip and @p udp (network order). While ARP asks for the way, and without room, it is
 * lost. */
void pbox_dp_uplink_send(struct pbox_dp *dp, unsigned link, uint32_t ip, uint16_t udp,
	const struct iovec *iov, unsigned n, unsigned bytes);
/** Announce the address of a port (gratuitous ARP). */
int pbox_dp_announce(struct pbox_dp *dp, unsigned port);
/** Ask who else has the address of a port (RFC 5227): an answer is an ARP conflict. */
int pbox_dp_probe(struct pbox_dp *dp, unsigned port);
/** Who claimed the address of a port of ours last, on a core: false: nobody. @p port is that of ethdev. */
bool pbox_dp_conflict(const struct pbox_dp *dp, unsigned core, uint16_t *port, uint8_t mac[6]);
uint64_t pbox_dp_control_lost(const struct pbox_dp *dp);
/** Sleep until a core has something for the control thread (datagrams, keep-alives that were answered excepted; mails),
 * until somebody calls, or for @p ns. Returns at once, once, if that was so since the last time: look at all of it
 * after each. */
void pbox_dp_control_wait(struct pbox_dp *dp, uint64_t ns);
/** Any thread, also a signal handler: end that sleep, or the next one. */
void pbox_dp_control_call(struct pbox_dp *dp);

/** Mails that are under way to one shard, answers included: all that its jobs may have (pbox_engine.h). Each of the two
 * rings of a core holds as many, so neither is ever full. */
#define PBOX_DP_MAILS (PBOX_MAX_JOBS * PBOX_MAILS_OF_JOB)
/** To its shard. */
void pbox_dp_post(struct pbox_dp *dp, const struct pbox_mail *m);
/** An answer of any shard. false: there is none. */
bool pbox_dp_mail(struct pbox_dp *dp, struct pbox_mail *m);

#endif /* PBOX_DATAPLANE_H */
