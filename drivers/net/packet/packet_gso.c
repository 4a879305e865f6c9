/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <string.h>

#include <rte_byteorder.h>
#include <rte_ether.h>
#include <rte_ip.h>
#include <rte_mbuf.h>
#include <rte_prefetch.h>
#include <rte_udp.h>

#include "packet_gso.h"

#define SLOTS     64 /* open groups that are found again: 6 bits of a hash */
#define GROUP_MAX 64 /* datagrams: more gain nothing */
#define IOVS_MAX  500
#define AHEAD     4 /* frames whose headers are fetched before they are looked at */

#define IP(headers)  ((struct rte_ipv4_hdr *)(void *)((headers) + RTE_ETHER_HDR_LEN))
#define UDP(headers) ((struct rte_udp_hdr *)(void *)((headers) + RTE_ETHER_HDR_LEN + 20))

static inline uint16_t
load16(const uint8_t *p)
{
	uint16_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static inline uint32_t
load32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

/* IPv4 without options, UDP */
static inline bool
is_udp(const uint8_t *h)
{
	return load16(h + 12) == RTE_BE16(RTE_ETHER_TYPE_IPV4) && h[14] == 0x45 && h[23] == 17;
}

/* Bytes of UDP payload if the frame may share a super-frame, else 0. */
static uint16_t
payload_of(const struct rte_mbuf *m)
{
	const uint8_t *h = rte_pktmbuf_mtod(m, const uint8_t *);
	uint32_t len = m->pkt_len;

	if (m->data_len < PACKET_HEADERS || len <= PACKET_HEADERS || len > UINT16_MAX ||
		!is_udp(h) || load16(h + 20) != RTE_BE16(RTE_IPV4_HDR_DF_FLAG) ||
		load16(h + 40) != 0 ||
		load16(h + 16) != rte_cpu_to_be_16((uint16_t)(len - RTE_ETHER_HDR_LEN)) ||
		load16(h + 38) != rte_cpu_to_be_16((uint16_t)(len - RTE_ETHER_HDR_LEN - 20)))
		return 0;
	return (uint16_t)(len - PACKET_HEADERS);
}

/* All that a super-frame has once: all but lengths, the id and checksums. */
static inline bool
same_flow(const struct rte_mbuf *x, const struct rte_mbuf *y)
{
	const uint8_t *a = rte_pktmbuf_mtod(x, const uint8_t *);
	const uint8_t *b = rte_pktmbuf_mtod(y, const uint8_t *);

	return memcmp(a, b, 16) == 0 && load32(a + 20) == load32(b + 20) &&
	       memcmp(a + 26, b + 26, 12) == 0;
}

static inline unsigned
packet_gso_entry(const struct rte_mbuf *m)
{
	const uint8_t *h = rte_pktmbuf_mtod(m, const uint8_t *);

	/* the upper bits of the product depend on all of the address and the ports */
	return ((load32(h + 30) ^ load32(h + 34)) * 0x9E3779B1u) >> 26;
}

static inline bool
fits(const struct packet_group *g, const struct rte_mbuf *m, uint16_t payload)
{
	return !g->closed && payload <= g->payload && g->n < GROUP_MAX &&
	       g->bytes + payload <= PACKET_SUPER_MAX && g->iovs + m->nb_segs <= IOVS_MAX;
}

unsigned
packet_gather(struct rte_mbuf *const *pkts, unsigned n, struct packet_group *group, uint16_t *next)
{
	uint16_t open[SLOTS] = {0}; /* a group's number + 1 */
	unsigned groups = 0;

	for (unsigned i = 0; i < n; i++) {
		const struct rte_mbuf *m = pkts[i];
		struct packet_group *g;
		uint16_t payload;
		unsigned s;

		if (i + AHEAD < n)
			rte_prefetch0(rte_pktmbuf_mtod(pkts[i + AHEAD], const void *));
		payload = payload_of(m);
		s = payload > 0 ? packet_gso_entry(m) : 0;

		if (payload > 0 && open[s] > 0) {
			g = &group[open[s] - 1];
			if (fits(g, m, payload) && same_flow(pkts[g->first], m)) {
				next[g->last] = (uint16_t)i;
				g->last = (uint16_t)i;
				g->n++;
				g->bytes += payload;
				g->iovs += m->nb_segs;
				g->closed = payload < g->payload;
				continue;
			}
		}
		group[groups] = (struct packet_group){.first = (uint16_t)i,
			.last = (uint16_t)i,
			.n = 1,
			.payload = payload,
			/* of the first frame the headers are replaced */
			.iovs = (uint16_t)(m->nb_segs + 2),
			.bytes = payload};
		groups++;
		if (payload > 0)
			open[s] = (uint16_t)groups;
	}
	return groups;
}

/* The sum of the pseudo header, not complemented. */
static uint16_t
pseudo(const struct rte_ipv4_hdr *ip)
{
	return rte_ipv4_phdr_cksum(ip, 0);
}

void
packet_super_headers(uint8_t *to, struct virtio_net_hdr *vnet, const uint8_t *first,
	const struct packet_group *g)
{
	struct rte_ipv4_hdr *ip = IP(to);
	struct rte_udp_hdr *udp = UDP(to);

	memcpy(to, first, PACKET_HEADERS);
	ip->total_length = rte_cpu_to_be_16((uint16_t)(g->bytes + 28));
	ip->hdr_checksum = 0;
	ip->hdr_checksum = rte_ipv4_cksum(ip);
	udp->dgram_len = rte_cpu_to_be_16((uint16_t)(g->bytes + 8));
	udp->dgram_cksum = pseudo(ip);
	*vnet = (struct virtio_net_hdr){
		.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
		.gso_type = VIRTIO_NET_HDR_GSO_UDP_L4,
		.hdr_len = PACKET_HEADERS,
		.gso_size = g->payload,
		.csum_start = RTE_ETHER_HDR_LEN + 20,
		.csum_offset = 6,
	};
}

bool
packet_super_check(const uint8_t *h, uint32_t have, uint32_t bytes)
{
	/* the lengths may say 0 or less than there is: the frame itself knows better */
	return have >= PACKET_HEADERS && bytes > PACKET_HEADERS && is_udp(h) &&
	       (load16(h + 20) & RTE_BE16(RTE_IPV4_HDR_MF_FLAG | RTE_IPV4_HDR_OFFSET_MASK)) == 0;
}

/* One's complement sums do not depend on the order of bytes: words as they lie in memory. */
static inline uint16_t
piece_sum_fold(uint32_t sum)
{
	sum = (sum & 0xFFFF) + (sum >> 16);
	return (uint16_t)((sum & 0xFFFF) + (sum >> 16));
}

void
packet_pieces_begin(struct packet_pieces *p, const uint8_t *super)
{
	struct rte_ipv4_hdr *ip = IP(p->headers);

	memcpy(p->headers, super, PACKET_HEADERS);
	p->id = rte_be_to_cpu_16(ip->packet_id);
	ip->packet_id = 0;
	ip->hdr_checksum = 0;
	ip->total_length = rte_cpu_to_be_16(20); /* a pseudo header of no bytes */
	p->udp_sum = pseudo(ip);
	ip->total_length = 0;
	p->ip_sum = rte_raw_cksum(ip, sizeof(*ip));
}

void
packet_piece_headers(uint8_t *to, const struct packet_pieces *p, unsigned i, uint16_t payload)
{
	struct rte_ipv4_hdr *ip = IP(to);
	struct rte_udp_hdr *udp = UDP(to);
	rte_be16_t total = rte_cpu_to_be_16((uint16_t)(payload + 28));
	rte_be16_t length = rte_cpu_to_be_16((uint16_t)(payload + 8));
	rte_be16_t id = rte_cpu_to_be_16((uint16_t)(p->id + i));

	/* Sums are made of values: fields that were just written in other widths would have to be waited for. */
	memcpy(to, p->headers, PACKET_HEADERS);
	ip->total_length = total;
	ip->packet_id = id;
	ip->hdr_checksum = (uint16_t)~piece_sum_fold(p->ip_sum + total + id);
	udp->dgram_len = length;
	udp->dgram_cksum = piece_sum_fold(p->udp_sum + length);
}
