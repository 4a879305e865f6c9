/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <netinet/in.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#include <rte_byteorder.h>
#include <rte_cycles.h>
#include <rte_ethdev.h>
#include <rte_prefetch.h>

#include <pbox_port_mbuf.h>

#include "library.h"

#define PREFETCH 4
#define SLEEP_NS 20000

uint64_t
testps_now(const struct testps *t)
{
	return (uint64_t)((double)(rte_rdtsc() - t->tsc0) * t->us_tick);
}

/* ---- ARP -------------------------------------------------------------------------------------- */

static void
raw_out(struct lane *l, unsigned port, struct rte_mbuf *m, size_t len)
{
	pbox_port_pad(m, len);
	lane_out(l, port, m); /* worker p is one of port p */
}

/* Ask for the next hosts that main wants to know. */
static void
ask_hops(struct lane *l)
{
	struct testps *t = l->t;
	unsigned n = atomic_load(&t->hops);

	for (unsigned p = 0; p < t->n_ports && p < t->workers; p++)
		for (unsigned i = 0; i < n; i++) {
			struct rte_mbuf *m;

			if (atomic_load(&t->hop[p][i].known))
				continue;
			m = lane_packet(l, l->frames);
			if (m != NULL)
				raw_out(l, p, m,
					pbox_net_arp_request(rte_pktmbuf_mtod(m, void *),
						rte_pktmbuf_tailroom(m), &t->nif[p],
						t->hop[p][i].ip));
		}
}

static void
learn_hop(struct testps *t, unsigned port, const struct pbox_net_pkt *k)
{
	unsigned n = atomic_load(&t->hops);

	for (unsigned i = 0; i < n; i++) {
		struct hop *h = &t->hop[port][i];

		if (h->ip == k->src_ip && !atomic_load(&h->known)) {
			memcpy(h->mac, k->arp_mac, sizeof(h->mac));
			atomic_store_explicit(&h->known, true, memory_order_release);
		}
	}
}

/* ---- receiving -------------------------------------------------------------------------------- */

/* The worker that a frame is for, by what the parser needs to know before it looks: -1: none. */
static int
addressee(const struct testps *t, unsigned port, const uint8_t *frame, size_t len)
{
	uint32_t ip, first;
	size_t at;

	if (!t->opt.hosts)
		return (int)port;
	if (len < 42)
		return -1;
	at = frame[12] == 8 && frame[13] == 6 ? 38 : 30; /* ARP, IPv4 */
	memcpy(&ip, frame + at, sizeof(ip));
	memcpy(&first, t->opt.address.addr, sizeof(first));
	ip = rte_be_to_cpu_32(ip) - rte_be_to_cpu_32(first);
	return ip < t->workers && lane_port_of(t, ip) == port ? (int)ip : -1;
}

static void
arp_request(struct lane *l, unsigned port, const struct pbox_net_if *nif, const struct rte_mbuf *m,
	const struct pbox_net_pkt *k)
{
	struct rte_mbuf *r = lane_packet(l, l->frames);

	if (r == NULL)
		return;
	memcpy(rte_pktmbuf_mtod(r, void *), rte_pktmbuf_mtod(m, const void *), PBOX_NET_ARP_LEN);
	raw_out(l, port, r,
		pbox_net_arp_reply(rte_pktmbuf_mtod(r, void *), rte_pktmbuf_tailroom(r), nif, k));
}

/* What a box answers to data, with a header alone: of sessions lib/worker judges. */
static bool
is_data_error(const struct pbox_hdr *h)
{
	return h->type == PBOX_ERROR && h->length == 0 && pbox_code_get(h) != PBOX_E_SESSION &&
	       pbox_code_get(h) != PBOX_E_SHUTDOWN;
}

static void
data_frame(struct lane *l, unsigned worker, const struct pbox_hdr *h, const uint8_t *at)
{
	if (h->token != l->t->token[worker])
		lane_count(l, LS_DROP_SESSION, 1);
	else if (h->type == PBOX_RESULT) /* its tag is looked at with its payload */
		rounds_result(l, worker, at, at + PBOX_HDR_LEN, false);
	else if (!auth_data_good(l, worker, h, at + PBOX_HDR_LEN))
		lane_count(l, LS_DROP_AUTH, 1);
	else if (h->type == PBOX_ERROR)
		lane_fail(l, "worker %u: the box answered %s", worker,
			pbox_errcode_name(pbox_code_get(h)));
	else if (h->type == PBOX_WAIT)
		rounds_wait(l, worker, h);
	else if (h->type == PBOX_INIT_OK || h->type == PBOX_RESTORE_OK)
		restore_ok(l, worker, h);
}

static void
slow_frame(struct lane *l, unsigned worker, const struct pbox_net_pkt *k, const uint8_t *at,
	size_t len)
{
	struct sockaddr_in from = {.sin_family = AF_INET, .sin_port = htons(k->src_port)};
	struct pbox_hdr h;

	from.sin_addr.s_addr = k->src_ip;
	for (bool first = true; len > 0; first = false) {
		enum pbox_wire_drop why;
		size_t size = 0;

		why = pbox_frame_decode(at, len, first, &h, &size);
		if (why != PBOX_WIRE_OK)
			lane_count(l, LS_DROP_FRAME, 1);
		else if (h.type >= PBOX_FIRST_DATA_TYPE || is_data_error(&h))
			data_frame(l, worker, &h, at);
		else
			control_frame(l, worker, at, size, &from);
		if (size == 0)
			return;
		at += size;
		len -= size;
	}
}

/* A datagram for a worker of this lane. */
static void
datagram(struct lane *l, unsigned worker, const struct rte_mbuf *m, const struct pbox_net_pkt *k)
{
	const uint8_t *p = rte_pktmbuf_mtod(m, const uint8_t *), *head = p + k->payload_offset;
	unsigned in_first = m->data_len - k->payload_offset, len = k->payload_len;
	const uint8_t *payload = head + PBOX_HDR_LEN;
	unsigned wanted = l->t->opt.reflected ? PBOX_PUSHPULL : PBOX_RESULT;

	if (k->ecn == PBOX_NET_ECN_CE)
		lane_count(l, LS_ECN, 1);
	if (in_first == PBOX_HDR_LEN && m->nb_segs == 2 && len <= in_first + m->next->data_len) {
		payload = rte_pktmbuf_mtod(m->next, const uint8_t *);
	} else if (in_first < len) {
		if (rte_pktmbuf_read(m, k->payload_offset, len, l->flat) == NULL) {
			lane_count(l, LS_DROP_NET, 1);
			return;
		}
		head = l->flat;
		payload = head + PBOX_HDR_LEN;
	}
	/* what nearly all are: one result */
	if (len > PBOX_HDR_LEN && head[PBOX_AT_TYPE] == wanted && head[0] == PBOX_MAGIC &&
		head[1] == PBOX_VERSION_WIRE &&
		len == PBOX_HDR_LEN + (unsigned)pbox_ld16(head + PBOX_AT_LENGTH) +
				pbox_tag_len(pbox_ld16(head + PBOX_AT_FLAGS))) {
		if (head == l->flat)
			rounds_result(l, worker, head, payload, k->ecn == PBOX_NET_ECN_CE);
		else
			rounds_result_later(l, worker, head, payload, k->ecn == PBOX_NET_ECN_CE);
		return;
	}
	if (payload != head + PBOX_HDR_LEN) { /* apart, and not what it seemed to be */
		if (rte_pktmbuf_read(m, k->payload_offset, len, l->flat) == NULL)
			return;
		head = l->flat;
	}
	slow_frame(l, worker, k, head, len);
}

static void
packet(struct lane *l, unsigned port, struct rte_mbuf *m)
{
	const uint8_t *p = rte_pktmbuf_mtod(m, const uint8_t *);
	struct testps *t = l->t;
	int to = addressee(t, port, p, m->data_len);
	struct pbox_net_pkt k;
	unsigned worker;

	/* of a chain the first segment has the headers, and the parser reads no more of a datagram */
	if (to < 0 || (unsigned)to >= t->workers ||
		(m->nb_segs > 1 && (m->data_len < FRAME_HEADERS || p[23] != IPPROTO_UDP))) {
		lane_count(l, LS_DROP_NET, 1);
		return;
	}
	switch (pbox_net_parse(p, m->nb_segs > 1 ? m->pkt_len : m->data_len, &t->nif[to],
		PBOX_NET_F_UDP_DEFER, &k)) {
	case PBOX_NET_UDP:
		break;
	case PBOX_NET_ARP_REQUEST:
		arp_request(l, port, &t->nif[to], m, &k);
		return;
	case PBOX_NET_ARP_REPLY:
		learn_hop(t, port, &k);
		return;
	default:
		lane_count(l, LS_DROP_NET, 1);
		return;
	}
	worker = (unsigned)(k.dst_port - t->udp[0]);
	if (worker >= t->workers || (t->opt.hosts && worker != (unsigned)to)) {
		lane_count(l, LS_DROP_NET, 1);
		return;
	}
	if (t->lanes > 1 &&
		worker % t->lanes != l->index) { /* the device gave it to the wrong queue */
		struct lane *other = t->lane[worker % t->lanes];

		rte_mbuf_refcnt_update(m, 1);
		if (rte_ring_enqueue(other->mail, m) != 0) {
			rte_mbuf_refcnt_update(m, -1);
			lane_count(l, LS_DROP_NET, 1);
		}
		return;
	}
	if (__builtin_expect(l->library != NULL, 0))
		library_datagram(l, worker, m, &k);
	else
		datagram(l, worker, m, &k);
}

/* The headers; and where an mbuf says whether it is a chain, which is looked at when it is freed. */
static void
ask_for(const struct rte_mbuf *m)
{
	const uint8_t *p = rte_pktmbuf_mtod(m, const uint8_t *);

	rte_prefetch0(p);
	rte_prefetch0(p + RTE_CACHE_LINE_SIZE);
	rte_prefetch0(&m->next);
}

static unsigned
lane_take(struct lane *l, unsigned port, struct rte_mbuf **m, unsigned n)
{
	uint32_t loss = atomic_load_explicit(&l->t->loss, memory_order_relaxed);
	uint64_t bytes = 0;

	for (unsigned i = 0; i < n && i < PREFETCH; i++)
		ask_for(m[i]);
	for (unsigned i = 0; i < n; i++) {
		if (i + PREFETCH < n)
			ask_for(m[i + PREFETCH]);
		bytes += m[i]->pkt_len;
		if (loss != 0 && (uint32_t)pbox_random_u64(&l->random) < loss)
			lane_count(l, LS_LOSS, 1);
		else
			packet(l, port, m[i]);
	}
	rounds_results(l);
	rte_pktmbuf_free_bulk(m, n);
	lane_count(l, LS_RX_BYTES, bytes);
	return n;
}

static unsigned
lane_receive(struct lane *l)
{
	struct rte_mbuf *m[TESTPS_BURST_MAX];
	uint16_t burst = (uint16_t)l->t->opt.burst;
	unsigned all = 0;

	for (unsigned p = 0; p < l->t->n_ports; p++) {
		uint16_t n = rte_eth_rx_burst(l->out[p].id, l->out[p].queue, m, burst);

		if (n > 0)
			all += lane_take(l, p, m, n);
	}
	lane_count(l, LS_RX_PACKETS, all);
	if (l->t->lanes > 1) {
		unsigned n = rte_ring_dequeue_burst(l->mail, (void **)m, burst, NULL);

		for (unsigned i = 0; i < n; i++) {
			unsigned p = 0;

			while (p + 1 < l->t->n_ports && l->out[p].id != m[i]->port)
				p++;
			packet(l, p, m[i]);
		}
		rounds_results(l);
		if (n > 0)
			rte_pktmbuf_free_bulk(m, n);
		all += n;
	}
	return all;
}

/* ---- the loop ----------------------------------------------------------------------------------- */

static void
rest(enum pbox_idle how)
{
	static const struct timespec nap = {.tv_nsec = SLEEP_NS};

	if (how == PBOX_IDLE_YIELD)
		sched_yield();
	else
		nanosleep(&nap, NULL);
}

int
lane_main(void *lane)
{
	struct lane *l = lane;
	struct testps *t = l->t;
	bool running = false;

	while (!atomic_load_explicit(&l->end, memory_order_acquire)) {
		bool wanted = atomic_load_explicit(&l->running, memory_order_acquire);
		unsigned work;

		l->now = testps_now(t);
		work = lane_receive(l);
		/* a new session knows nothing of the rounds of the one before */
		wanted = wanted && !atomic_load_explicit(&l->lost, memory_order_relaxed);
		if (l->library != NULL) {
			library_turn(l, wanted, work >= t->opt.burst);
		} else {
			if (wanted && !running)
				rounds_begin(l);
			running = wanted;
			if (running)
				rounds_turn(l);
		}
		if (l->now >= l->tick_us) {
			l->tick_us = l->now + 500;
			control_tick(l);
			if (l->index == 0 && l->now >= l->arp_us) {
				l->arp_us = l->now + US_SECOND / 4;
				ask_hops(l);
			}
		}
		for (unsigned p = 0; p < t->n_ports; p++)
			if (l->out[p].n > 0) {
				work += l->out[p].n;
				lane_flush(l, &l->out[p]);
			}
		lane_count(l, LS_TURNS, 1);
		if (work > 0)
			lane_count(l, LS_TURNS_BUSY, 1);
		else if (t->opt.idle != PBOX_IDLE_POLL)
			rest(t->opt.idle);
	}
	return 0;
}
