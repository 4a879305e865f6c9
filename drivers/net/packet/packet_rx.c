/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <string.h>

#include <linux/if_packet.h>

#include <rte_branch_prediction.h>
#include <rte_ip.h>
#include <rte_mbuf.h>

#include "packet.h"

#define VLAN_AT 12 /* of a tag in a frame */

static inline struct tpacket2_hdr *
head_of(uint8_t *slot)
{
	return (struct tpacket2_hdr *)(void *)slot;
}

static inline bool
is_filled(uint8_t *slot)
{
	return (__atomic_load_n(&head_of(slot)->tp_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER) != 0;
}

/* Give the place back to the kernel and go on to the next. */
static inline void
packet_release_block(struct packet_rxq *q)
{
	__atomic_store_n(&head_of(q->slot)->tp_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
	q->slot += q->slot_bytes;
	if (++q->at_in_block == q->per_block) {
		q->at_in_block = 0;
		q->slot += q->block_bytes - q->per_block * q->slot_bytes;
	}
	if (++q->at == q->n_slots) {
		q->at = 0;
		q->at_in_block = 0;
		q->slot = q->ring;
	}
}

/* Write the checksum that was left to hardware. */
static void
finish_checksum(struct rte_mbuf *m, const struct virtio_net_hdr *vnet)
{
	uint8_t *p = rte_pktmbuf_mtod(m, uint8_t *);
	uint32_t from = vnet->csum_start, at = from + vnet->csum_offset;
	uint16_t sum;

	if (at + sizeof(sum) > m->data_len)
		return;
	sum = (uint16_t)~rte_raw_cksum(p + from, m->data_len - from);
	if (sum == 0)
		sum = 0xFFFF;
	memcpy(p + at, &sum, sizeof(sum));
}

/* What the kernel knows of a checksum, for the application. */
static inline void
set_checksum_flags(struct packet_rxq *q, struct rte_mbuf *m, const struct virtio_net_hdr *vnet)
{
	if (vnet->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) {
		packet_count(&q->count, PACKET_N_unfinished, 1);
		if (q->offload)
			m->ol_flags |= RTE_MBUF_F_RX_L4_CKSUM_NONE; /* intact, but not there */
		else
			finish_checksum(m, vnet);
	} else if (q->offload && (vnet->flags & VIRTIO_NET_HDR_F_DATA_VALID)) {
		m->ol_flags |= RTE_MBUF_F_RX_L4_CKSUM_GOOD;
	}
}

/* A tag that the kernel took out goes back to where it was. */
static void
insert_tag(uint8_t *p, uint32_t len, uint16_t tpid, uint16_t tci)
{
	uint16_t tag[2] = {rte_cpu_to_be_16(tpid), rte_cpu_to_be_16(tci)};

	memmove(p + VLAN_AT + sizeof(tag), p + VLAN_AT, len - VLAN_AT);
	memcpy(p + VLAN_AT, tag, sizeof(tag));
}

/* An ordinary frame. NULL: dropped and counted. */
static struct rte_mbuf *
packet_take_frame(struct packet_rxq *q, const struct tpacket2_hdr *h, uint32_t status,
	const struct virtio_net_hdr *vnet)
{
	uint32_t len = h->tp_snaplen, tag = status & TP_STATUS_VLAN_VALID ? 4 : 0;
	struct rte_mbuf *m;
	uint8_t *p;

	if (unlikely(len != h->tp_len || len + tag > q->room)) {
		packet_count(&q->count, len != h->tp_len ? PACKET_N_cut : PACKET_N_too_long, 1);
		return NULL;
	}
	m = rte_pktmbuf_alloc(q->pool);
	if (unlikely(m == NULL)) {
		packet_count(&q->count, PACKET_N_nombuf, 1);
		return NULL;
	}
	p = rte_pktmbuf_mtod(m, uint8_t *);
	memcpy(p, (const uint8_t *)h + h->tp_mac, len);
	m->data_len = (uint16_t)len;
	m->pkt_len = len;
	m->port = q->port_id;
	set_checksum_flags(q, m, vnet);
	if (unlikely(tag > 0 && len >= VLAN_AT)) {
		insert_tag(p, len,
			status & TP_STATUS_VLAN_TPID_VALID ? h->tp_vlan_tpid : RTE_ETHER_TYPE_VLAN,
			h->tp_vlan_tci);
		m->data_len = (uint16_t)(len + tag);
		m->pkt_len = len + tag;
	}
	return m;
}

/* The bytes of a super-frame into mbufs: headers only before the first, payloads where they
 * belong. */
static bool
scatter_queued(struct packet_rxq *q, struct rte_mbuf **m, unsigned n, uint32_t len)
{
	struct virtio_net_hdr vnet;
	struct iovec iov[1 + PACKET_PIECES];
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 1 + n};
	ssize_t got;

	iov[0] = (struct iovec){&vnet, sizeof(vnet)};
	for (unsigned i = 0; i < n; i++) {
		uint32_t skip = i == 0 ? 0 : PACKET_HEADERS;

		iov[1 + i] = (struct iovec){
			rte_pktmbuf_mtod_offset(m[i], void *, skip), m[i]->data_len - skip};
	}
	packet_count(&q->count, PACKET_N_calls, 1);
	do
		got = recvmsg(q->fd, &msg, MSG_DONTWAIT);
	while (got < 0 && errno == EINTR);
	return got == (ssize_t)(sizeof(vnet) + len);
}

static void
scatter_slot(const uint8_t *from, struct rte_mbuf **m, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		uint32_t skip = i == 0 ? 0 : PACKET_HEADERS, len = m[i]->data_len - skip;

		memcpy(rte_pktmbuf_mtod_offset(m[i], uint8_t *, skip), from, len);
		from += len;
	}
}

/* Why a super-frame cannot be taken, PACKET_COUNTER_MAX if it can. */
static enum packet_counter
packet_rx_refuse(const struct packet_rxq *q, const struct tpacket2_hdr *h, uint32_t status,
	const struct virtio_net_hdr *vnet)
{
	const uint8_t *frame = (const uint8_t *)h + h->tp_mac;

	if (h->tp_snaplen != h->tp_len && (status & TP_STATUS_COPY) == 0)
		return PACKET_N_cut;
	if ((vnet->gso_type & ~VIRTIO_NET_HDR_GSO_ECN) != VIRTIO_NET_HDR_GSO_UDP_L4 ||
		(status & TP_STATUS_VLAN_VALID) || vnet->gso_size == 0 ||
		!packet_super_check(frame, h->tp_snaplen, h->tp_len) ||
		h->tp_len - PACKET_HEADERS > (uint32_t)vnet->gso_size * PACKET_PIECES)
		return PACKET_N_alien;
	if ((uint32_t)vnet->gso_size + PACKET_HEADERS > q->room)
		return PACKET_N_too_long;
	return PACKET_COUNTER_MAX;
}

static void
finish_pieces(struct packet_rxq *q, struct rte_mbuf **m, unsigned n)
{
	struct packet_pieces pieces;
	const struct virtio_net_hdr piece = {.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
		.csum_start = RTE_ETHER_HDR_LEN + 20,
		.csum_offset = 6};

	packet_pieces_begin(&pieces, rte_pktmbuf_mtod(m[0], const uint8_t *));
	for (unsigned i = 0; i < n; i++) {
		packet_piece_headers(rte_pktmbuf_mtod(m[i], uint8_t *), &pieces, i,
			(uint16_t)(m[i]->data_len - PACKET_HEADERS));
		set_checksum_flags(q, m[i], &piece);
	}
}

/* A super-frame becomes the ready datagrams of the queue. */
static void
take_super(struct packet_rxq *q, const struct tpacket2_hdr *h, uint32_t status,
	const struct virtio_net_hdr *vnet)
{
	uint32_t left = h->tp_len - PACKET_HEADERS;
	enum packet_counter why = packet_rx_refuse(q, h, status, vnet);
	unsigned n;

	if (why == PACKET_COUNTER_MAX) {
		n = (left + vnet->gso_size - 1) / vnet->gso_size;
		if (rte_pktmbuf_alloc_bulk(q->pool, q->ready, n) != 0)
			why = PACKET_N_nombuf;
	}
	if (unlikely(why != PACKET_COUNTER_MAX)) {
		packet_count(&q->count, why, 1);
		if (status & TP_STATUS_COPY) /* keep in step with what is beside the ring */
			recv(q->fd, NULL, 0, MSG_DONTWAIT | MSG_TRUNC);
		return;
	}
	for (unsigned i = 0; i < n; i++) {
		uint32_t payload = RTE_MIN(left, (uint32_t)vnet->gso_size);

		q->ready[i]->data_len = (uint16_t)(payload + PACKET_HEADERS);
		q->ready[i]->pkt_len = payload + PACKET_HEADERS;
		q->ready[i]->port = q->port_id;
		left -= payload;
	}
	if ((status & TP_STATUS_COPY) == 0) {
		scatter_slot((const uint8_t *)h + h->tp_mac, q->ready, n);
	} else if (!scatter_queued(q, q->ready, n, h->tp_len)) {
		rte_pktmbuf_free_bulk(q->ready, n);
		packet_count(&q->count, PACKET_N_cut, 1);
		return;
	}
	finish_pieces(q, q->ready, n);
	q->n_ready = n;
	q->next_ready = 0;
	packet_count(&q->count, PACKET_N_super_frames, 1);
	packet_count(&q->count, PACKET_N_gathered, n);
}

static inline uint16_t
take_ready(struct packet_rxq *q, struct rte_mbuf **pkts, uint16_t room)
{
	uint16_t n = (uint16_t)RTE_MIN((uint32_t)room, q->n_ready - q->next_ready);

	memcpy(pkts, q->ready + q->next_ready, n * sizeof(*pkts));
	q->next_ready += n;
	return n;
}

uint16_t
packet_rx_burst(void *rxq, struct rte_mbuf **pkts, uint16_t n)
{
	struct packet_rxq *q = rxq;
	uint64_t bytes = 0;
	uint16_t out;

	if (unlikely(q->fd < 0))
		return 0;
	out = take_ready(q, pkts, n);
	while (out < n && is_filled(q->slot)) {
		struct tpacket2_hdr *h = head_of(q->slot);
		uint32_t status = h->tp_status;
		struct virtio_net_hdr vnet;

		memcpy(&vnet, (uint8_t *)h + h->tp_mac - sizeof(vnet), sizeof(vnet));
		if (vnet.gso_type != VIRTIO_NET_HDR_GSO_NONE) {
			take_super(q, h, status, &vnet);
			out += take_ready(q, pkts + out, (uint16_t)(n - out));
		} else if (unlikely(status & TP_STATUS_COPY)) {
			recv(q->fd, NULL, 0, MSG_DONTWAIT | MSG_TRUNC);
			packet_count(&q->count, PACKET_N_too_long, 1);
		} else {
			pkts[out] = packet_take_frame(q, h, status, &vnet);
			out += pkts[out] != NULL;
		}
		packet_release_block(q);
	}
	if (out == 0)
		return 0;
	for (uint16_t i = 0; i < out; i++)
		bytes += pkts[i]->pkt_len;
	packet_count(&q->count, PACKET_N_packets, out);
	packet_count(&q->count, PACKET_N_bytes, bytes);
	return out;
}

uint32_t
packet_rx_count(void *rxq)
{
	const struct packet_rxq *q = rxq;
	uint32_t n = q->n_ready - q->next_ready, at = q->at;

	while (q->fd >= 0 && n < q->n_slots &&
		is_filled(q->ring + (size_t)(at / q->per_block) * q->block_bytes +
			  (size_t)(at % q->per_block) * q->slot_bytes)) {
		n++;
		at = at + 1 == q->n_slots ? 0 : at + 1;
	}
	return n;
}
