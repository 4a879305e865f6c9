/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Answers of the shard become packets: zero copy, headers before the parameter memory itself, or copied (copy.c). */

#include <rte_cycles.h>

#include <pbox_auth.h>

#include "core.h"

/* A packet of the core's own: one segment, nobody else's. NULL: there is none. */
static inline struct rte_mbuf *
answer_packet(struct stash *s)
{
	if (s->n == 0) {
		if (rte_mempool_get_bulk(s->pool, (void **)s->m, STASH) != 0)
			return NULL;
		s->n = STASH;
	}
	return s->m[--s->n];
}

static inline void
put_back(struct stash *s, struct rte_mbuf *m)
{
	s->m[s->n++] = m;
}

/* Answers that leave together. */
#define ANSWERS 32

/* What the first bytes of a packet are set to in one go. */
static inline uint64_t
rearm(uint16_t data_off, uint16_t segments, uint16_t port)
{
	const uint16_t v[4] = {data_off, 1, segments, port};
	uint64_t all;

	_Static_assert(
		offsetof(struct rte_mbuf, refcnt) == offsetof(struct rte_mbuf, data_off) + 2 &&
			offsetof(struct rte_mbuf, nb_segs) ==
				offsetof(struct rte_mbuf, data_off) + 4 &&
			offsetof(struct rte_mbuf, port) == offsetof(struct rte_mbuf, data_off) + 6,
		"they are neighbours");
	memcpy(&all, v, sizeof(all));
	return all;
}

/* A packet whose data is in its own room, before others of a frame of @p len bytes. */
static inline struct rte_mbuf *
take_header(struct core *c, uint64_t first, uint16_t data_len, uint32_t len)
{
	const size_t room = sizeof(struct rte_mbuf) + PBOX_PORT_MBUF_PRIV;
	struct rte_mbuf *m = answer_packet(&c->packets);

	if (m == NULL)
		return NULL;
	m->buf_addr = (uint8_t *)m + room;
	/* the pool knows it as well, in a line of its own */
	rte_mbuf_iova_set(m, c->dp->iova_is_va ? (rte_iova_t)(uintptr_t)m->buf_addr
					       : rte_mempool_virt2iova(m) + room);
	memcpy(&m->rearm_data, &first, sizeof(first));
	m->ol_flags = 0;
	m->pkt_len = len;
	m->data_len = data_len;
	m->buf_len = HEADER_ROOM;
	m->tx_offload = 0;
	return m;
}

/* Microseconds since this turn began, when the packet was fetched. One reading of the clock serves
 * all answers with the same payload. */
static uint16_t
served_us(struct core *c, const void *payload)
{
	if (payload == NULL || payload != c->payload) {
		uint64_t us =
			(uint64_t)((unsigned __int128)(rte_rdtsc() - c->tsc) * c->dp->us_mult >>
				   32);

		c->served = us < UINT16_MAX ? (uint16_t)us : UINT16_MAX;
		c->payload = payload;
	}
	return c->served;
}

/* Bus address of parameter memory, and how far a device can have it in one piece; 0: not in EAL memory. */
static size_t
answer_bus_address(const struct pbox_dp *dp, const void *at, size_t len, rte_iova_t *iova)
{
	uintptr_t a = (uintptr_t)at;

	for (unsigned i = 0; i < dp->n_regions; i++) {
		const struct region *r = &dp->region[i];
		size_t page, in, page_size;

		if (a < r->base || a + len > r->end)
			continue;
		page_size = (size_t)1 << r->page_bits;
		in = a & (page_size - 1);
		if (r->iova == NULL) {
			*iova = a;
			return RTE_MIN(len, page_size - in);
		}
		page = (a >> r->page_bits) - (r->base >> r->page_bits);
		*iova = r->iova[page] + in;
		if (in + len <= page_size || r->iova[page + 1] == r->iova[page] + page_size)
			return len;
		return page_size - in;
	}
	return 0;
}

/* A packet that is the payload itself (setup.c). */
static inline struct rte_mbuf *
take_segment(struct core *c, const void *at, size_t len, rte_iova_t iova)
{
	uint64_t first = rearm(0, 1, 0);
	struct rte_mbuf *e = answer_packet(&c->packets);

	if (e == NULL)
		return NULL;
	e->buf_addr = (void *)(uintptr_t)at;
	rte_mbuf_iova_set(e, iova);
	memcpy(&e->rearm_data, &first, sizeof(first));
	e->ol_flags = RTE_MBUF_F_EXTERNAL;
	e->pkt_len = (uint32_t)len;
	e->data_len = (uint16_t)len;
	e->buf_len = (uint16_t)len;
	return e;
}

/* What answers with one payload through one port have in common. */
struct common {
	struct pbox_net_udp_origin net;
	struct pbox_frame_template frame;
	const uint8_t *payload;
	rte_iova_t
		iova; /* of its first `whole` bytes; all of them, but where pages are scattered */
	size_t whole;
	uint64_t rearm;
	uint16_t length, udp_len;
	const uint8_t *tag_key, *digest; /* of a job with tags: its answers leave one by one */
};

/* The rest of a payload in as many pieces as it has for a device. False: no packets. */
static __attribute__((noinline)) bool
append_pieces(struct core *c, struct rte_mbuf *m, const uint8_t *at, size_t left)
{
	struct rte_mbuf *tail = m->next;

	while (left > 0) {
		rte_iova_t iova;
		size_t n = answer_bus_address(c->dp, at, left, &iova);

		tail->next = n > 0 ? take_segment(c, at, n, iova) : NULL;
		if (tail->next == NULL)
			return false;
		tail = tail->next;
		m->nb_segs++;
		at += n;
		left -= n;
	}
	return true;
}

/* The tag, in a packet of its own after the payload. False: no packets. */
static __attribute__((noinline)) bool
append_tag(struct core *c, struct rte_mbuf *m, const struct common *a, const void *header)
{
	struct rte_mbuf *tail = m->next, *t = take_header(c, rearm(RTE_PKTMBUF_HEADROOM, 1, 0),
						 PBOX_TAG_LEN, PBOX_TAG_LEN);

	if (t == NULL)
		return false;
	pbox_auth_tag(a->tag_key, header, a->digest, rte_pktmbuf_mtod(t, void *));
	while (tail->next != NULL)
		tail = tail->next;
	tail->next = t;
	m->nb_segs++;
	m->pkt_len += PBOX_TAG_LEN;
	return true;
}

/* Headers in a small packet, then the payload where it is. NULL: no packets. */
static inline struct rte_mbuf *
answer(struct core *c, const struct common *a, const struct pbox_send_to *s)
{
	const struct pbox_peer *p = s->peer;
	struct pbox_net_to to = {.src_port = p->local_udp, .dst_port = p->udp, .ip = p->ip};
	struct rte_mbuf *m,
		*e = a->whole > 0 ? take_segment(c, a->payload, a->whole, a->iova) : NULL;
	uint8_t *at;

	if (e == NULL)
		return NULL;
	m = take_header(c, a->rearm, FRAME_HEADERS, FRAME_HEADERS + (uint32_t)a->length);
	if (m == NULL) {
		rte_pktmbuf_free(e);
		return NULL;
	}
	m->next = e;
	memcpy(to.mac, p->mac, sizeof(to.mac));
	at = (uint8_t *)m->buf_addr + RTE_PKTMBUF_HEADROOM;
	pbox_net_udp_header_sized(&a->net, at, &to, a->udp_len, c->ip_id++);
	pbox_frame_encode_to(at + PBOX_NET_HEADERS_LEN, &a->frame, &s->hdr);
	if (__builtin_expect(a->whole < a->length, 0) &&
		!append_pieces(c, m, a->payload + a->whole, a->length - a->whole)) {
		rte_pktmbuf_free(m);
		return NULL;
	}
	if (__builtin_expect(a->tag_key != NULL, 0) &&
		!append_tag(c, m, a, at + PBOX_NET_HEADERS_LEN)) {
		rte_pktmbuf_free(m);
		return NULL;
	}
	return m;
}

/* Answers with one payload, zero copy, all through the same port. */
static void
send_shared(struct core *c, const struct pbox_port *p, const struct pbox_send *s,
	const struct pbox_send_to *to, unsigned n)
{
	struct rte_mbuf *m[ANSWERS];
	struct pbox_hdr hdr = s->hdr;
	uint16_t port = to->peer->port;
	unsigned k = 0;
	struct common a; /* not zeroed first: that would take as long as an answer */

	a.payload = s->payload;
	a.length = s->hdr.length;
	a.udp_len = (uint16_t)(PBOX_HDR_LEN + a.length + pbox_tag_len(s->hdr.flags));
	a.tag_key = s->tag_key;
	a.digest = s->digest;
	a.rearm = rearm(RTE_PKTMBUF_HEADROOM, 2, port);
	hdr.served = served_us(c, s->payload);
	pbox_frame_template(&a.frame, &hdr, s->payload_crc);
	pbox_net_udp_origin_sized(&a.net, &c->dp->from[port], a.udp_len);
	a.whole = answer_bus_address(c->dp, a.payload, a.length, &a.iova);
	while (k < n && (m[k] = answer(c, &a, &to[k])) != NULL)
		k++;
	core_count(c, PBOX_CS_TX_SHARED_BYTES, (uint64_t)k * a.length);
	core_count(c, PBOX_CS_TX_NO_MBUF, n - k);
	core_tx_all(c, p->conf.id, m, k);
}

static struct rte_mbuf *
frame_copied(struct core *c, const struct pbox_port *p, const struct pbox_net_udp_origin *t,
	const struct pbox_send *s)
{
	bool small = s->hdr.length == 0;
	struct rte_mbuf *m =
		small ? take_header(c, rearm(RTE_PKTMBUF_HEADROOM, 1, s->peer->port), 0, 0)
		      : rte_pktmbuf_alloc(p->pool[c->index % p->n_queues]);

	if (m == NULL)
		return NULL;
	if (core_frame_copy(m, t, s, served_us(c, NULL), c->ip_id++))
		return m;
	if (small)
		put_back(&c->packets, m);
	else
		rte_pktmbuf_free(m);
	return NULL;
}

static struct pbox_port *
answer_port_of(const struct core *c, const struct pbox_peer *peer)
{
	return peer->port < ETHDEVS ? c->dp->port_of[peer->port] : NULL;
}

/* Its payload leaves from where it is. */
static inline bool
is_shared(const struct pbox_port *p, const struct pbox_send *s)
{
	return s->shared && s->hdr.length > 0 && p->dev.tx_segments;
}

static inline __attribute__((always_inline)) void
send_frame(struct core *c, const struct pbox_send *s)
{
	struct pbox_port *p = answer_port_of(c, s->peer);
	struct rte_mbuf *m;

	if (p == NULL) {
		core_count(c, PBOX_CS_TX_DROPPED, 1);
		return;
	}
	if (s->tag_key != NULL && is_shared(p, s)) {
		struct pbox_send_to to = {.hdr = {.token = s->hdr.token,
						  .ts = s->hdr.ts,
						  .held = s->hdr.held,
						  .worker = s->hdr.worker,
						  .flags = s->hdr.flags},
			.peer = s->peer};

		send_shared(c, p, s, &to, 1);
		return;
	}
	m = frame_copied(c, p, &c->dp->from[s->peer->port], s);
	/* of parameters: an echo is no matter */
	core_count(c, PBOX_CS_TX_COPIED_BYTES,
		m != NULL && (s->shared || s->hdr.type == PBOX_RESULT) ? s->hdr.length : 0);
	if (m != NULL)
		core_tx(c, p->conf.id, m);
	else
		core_count(c, PBOX_CS_TX_NO_MBUF, 1);
}

static void
core_send(void *ctx, const struct pbox_send *s)
{
	struct core *c = ctx;

	if (unlikely(c->sampled)) {
		uint64_t began = rte_rdtsc() - counted_tsc(c);

		send_frame(c, s);
		c->answer_tsc += rte_rdtsc() - counted_tsc(c) - began;
	} else {
		send_frame(c, s);
	}
}

static inline __attribute__((always_inline)) void
send_frames(struct core *c, const struct pbox_send *s, const struct pbox_send_to *to, unsigned n)
{
	for (unsigned i = 0, end; i < n; i = end) {
		const struct pbox_port *p = answer_port_of(c, to[i].peer);

		end = i + 1;
		if (p != NULL && is_shared(p, s)) {
			while (end < n && end - i < ANSWERS &&
				to[end].peer->port == to[i].peer->port)
				end++;
			send_shared(c, p, s, &to[i], end - i);
		} else {
			struct pbox_send one = pbox_send_for(s, &to[i]);

			send_frame(c, &one);
		}
	}
}

static void
core_send_all(void *ctx, const struct pbox_send *s, const struct pbox_send_to *to, unsigned n)
{
	struct core *c = ctx;

	if (unlikely(c->sampled)) {
		uint64_t began = rte_rdtsc() - counted_tsc(c);

		send_frames(c, s, to, n);
		c->answer_tsc += rte_rdtsc() - counted_tsc(c) - began;
	} else {
		send_frames(c, s, to, n);
	}
}

static void
core_release(void *ctx __rte_unused, void *const *handle, unsigned n)
{
	/* a train's packet has a reference for each of its frames */
	rte_pktmbuf_free_bulk((struct rte_mbuf **)(uintptr_t)handle, n);
}

static void
core_mail(void *ctx, const struct pbox_mail *m)
{
	struct core *c = ctx;
	int ret = rte_ring_sp_enqueue_elem(c->mail_out, (void *)(uintptr_t)m, sizeof(*m));

	PBOX_ASSERT(ret == 0); /* PBOX_DP_MAILS */
	waker_call(&c->dp->control);
}

const struct pbox_shard_ops core_ops = {
	.send = core_send,
	.release = core_release,
	.mail = core_mail,
	.send_all = core_send_all,
	.up = core_up,
};
