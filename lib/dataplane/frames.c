/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Datagrams to frames: for the shard, or for the control thread, as far as the gate lets them. */

#include <rte_cycles.h>

#include "core.h"

/* The parser has checked all lengths, and left where IPv4 begins. */
static inline const uint8_t *
ip_of(const struct rte_mbuf *m)
{
	return rte_pktmbuf_mtod_offset(m, const uint8_t *, m->l2_len);
}

static inline bool
marked(const struct rte_mbuf *m)
{
	return (ip_of(m)[1] & 3) == PBOX_NET_ECN_CE;
}

static inline void
peer_of_packet(const struct rte_mbuf *m, struct pbox_peer *peer)
{
	const uint8_t *ip = ip_of(m), *udp = ip + PBOX_NET_IP_LEN;

	memcpy(&peer->ip, ip + 12, 4);
	memcpy(&peer->local_ip, ip + 16, 4);
	peer->udp = pbox_net_get_be16(udp);
	peer->local_udp = pbox_net_get_be16(udp + 2);
	peer->port = m->port;
	memcpy(peer->mac, rte_pktmbuf_mtod_offset(m, const uint8_t *, 6), 6);
}

static inline uint16_t
frame_bytes(const struct rte_mbuf *m, const uint8_t **at)
{
	const uint8_t *udp = ip_of(m) + PBOX_NET_IP_LEN;

	*at = udp + PBOX_NET_UDP_LEN;
	return (uint16_t)(pbox_net_get_be16(udp + 4) - PBOX_NET_UDP_LEN);
}

void
pbox_dp_datagram(const struct rte_mbuf *m, struct pbox_dp_datagram *d)
{
	d->len = frame_bytes(m, &d->payload);
	d->ce = marked(m);
	d->answered = m->l3_len != 0;
	peer_of_packet(m, &d->peer);
}

void
frames_flush(struct core *c)
{
	uint64_t held, began = 0;
	unsigned n = c->n_frames;

	if (n == 0)
		return;
	PBOX_ASSERT(n <= PBOX_SHARD_BURST);
	if (unlikely(c->sampled))
		began = rte_rdtsc() - counted_tsc(c);
	pbox_shard_away(c->shard, c->now_ns - c->looked_ns);
	held = pbox_shard_rx(c->shard, c->frame, n, c->now_ns);
	c->n_frames = 0;
	/* each frame has a reference of its own: the shard's, or ours to drop */
	for (unsigned i = 0; i < n; i++)
		if ((held >> i & 1) == 0)
			rte_pktmbuf_free(c->frame[i].handle);
	if (unlikely(c->sampled))
		c->engine_tsc += rte_rdtsc() - counted_tsc(c) - began;
}

/* Bytes of a payload that are fetched while packets are looked at: the longest at MTU 1500. The last-
 * level cache has nothing else to do then, and the sum, which waits for it, finds the start of each
 * payload near. (Measured: from there 25 % more of short payloads and 3 % to 10 % more of long ones; where
 * payloads are near anyway 3 % to 5 % less.) */
#define FETCHED 1408

static inline void
fetch_payload(const struct pbox_frame *f)
{
	const uint8_t *p = f->payload;
	unsigned n = f->hdr.length;

	/* not into the first level: it is small */
	if (n >= FETCHED) {
		_Pragma("GCC unroll 32") for (unsigned i = 0; i < FETCHED; i += RTE_CACHE_LINE_SIZE)
			__builtin_prefetch(p + i, 0, 2);
	} else {
		for (unsigned i = 0; i < n; i += RTE_CACHE_LINE_SIZE)
			__builtin_prefetch(p + i, 0, 2);
	}
}

static bool
for_shard(unsigned type)
{
	return type >= PBOX_FIRST_DATA_TYPE || type == PBOX_PING;
}

/* Others wait in half of the ring: the rest is for sessions that have asked little. */
bool
core_to_control(struct core *c, enum pbox_gate gate, struct rte_mbuf *m)
{
	struct rte_ring *r = gate == PBOX_GATE_STRANGER ? c->to_control : c->sessions;

	m->l3_len = gate == PBOX_GATE_ANSWERED;
	if (gate == PBOX_GATE_SESSION && rte_ring_free_count(r) < RING_CONTROL / 2)
		return false;
	if (rte_ring_sp_enqueue(r, m) != 0)
		return false;
	/* of a keep-alive that has its answer it hears when it comes by */
	if (gate != PBOX_GATE_ANSWERED)
		waker_call(&c->dp->control);
	return true;
}

/* Give the control thread a datagram that came to a data port with a control frame at @p at in it. */
static void
lend_to_control(struct core *c, struct rte_mbuf *m, const uint8_t *at, size_t left)
{
	struct pbox_peer peer;
	enum pbox_gate gate;

	peer_of_packet(m, &peer);
	gate = pbox_shard_gate(c->shard, at, left, &peer, c->now_ns);
	if (gate == PBOX_GATE_RATE) {
		core_count(c, PBOX_CS_FRAME_CONTROL_RATE, 1);
		return;
	}
	rte_mbuf_refcnt_update(m, 1);
	if (!core_to_control(c, gate, m)) {
		core_count(c, PBOX_CS_FRAME_CONTROL_FULL, 1);
		rte_pktmbuf_free(m);
	} else {
		core_count(c, PBOX_CS_FRAMES_CONTROL, 1);
	}
}

/* Room for the next frame of the burst. */
static struct pbox_frame *
frame_next(struct core *c)
{
	if (c->n_frames == PBOX_SHARD_BURST)
		frames_flush(c);
	return &c->frame[c->n_frames];
}

/* The frames of one datagram; takes over the packet. */
void
core_datagram_rx(struct core *c, struct rte_mbuf *m)
{
	const uint8_t *at, *end;
	uint16_t len = frame_bytes(m, &at);
	bool first = true, lent = false, ours = true;
	bool ce = marked(m);

	end = at + len;
	core_count(c, PBOX_CS_RX_DATA, 1);
	if (ce)
		core_count(c, PBOX_CS_ECN_CE, 1);
	do { /* an empty datagram is a truncated frame */
		struct pbox_frame *f = frame_next(c);
		size_t size = 0, left = (size_t)(end - at);
		enum pbox_wire_drop why;

		f->unverified = false;
		why = first ? pbox_frame_open(at, left, &f->hdr, &size, &f->unverified)
			    : pbox_frame_decode(at, left, false, &f->hdr, &size);
		core_count(c, PBOX_CS_FRAMES, 1);
		first = false;
		if (why != PBOX_WIRE_OK) {
			core_count(c, PBOX_CS_FRAME_MAGIC + (why - PBOX_WIRE_MAGIC), 1);
			if (size == 0)
				break;
		} else if (for_shard(f->hdr.type)) {
			core_count(c, PBOX_CS_FRAMES_DATA, 1);
			/* the last frame gets our reference: no locked instruction for most */
			ours = at + size < end;
			if (ours)
				rte_mbuf_refcnt_update(m, 1);
			f->payload = at + PBOX_HDR_LEN;
			f->handle = m;
			peer_of_packet(m, &f->peer);
			f->ce = ce;
			if (f->unverified)
				fetch_payload(f);
			c->n_frames++;
		} else if (!lent) {
			lend_to_control(c, m, at, left);
			lent = true;
		} else {
			core_count(c, PBOX_CS_FRAMES_CONTROL, 1);
		}
		at += size;
	} while (at < end);
	if (ours)
		rte_pktmbuf_free(m);
}
