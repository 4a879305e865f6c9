/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* What arrives and what is sent, over a veth. The pure part and the device are in test_device.c. */

#include <arpa/inet.h>
#include <netinet/udp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_ip.h>
#include <rte_udp.h>

#include "device.h"
#include "unit.h"
#include "wire.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

const char unit_suite[] = "net_packet";

#define CHECKSUMS RTE_ETH_RX_OFFLOAD_UDP_CKSUM

static uint8_t frame[65600], big[65600];

static void
fill(uint8_t *p, uint32_t n, uint32_t tag)
{
	for (uint32_t i = 0; i < n; i++)
		p[i] = wire_byte(tag, i);
}

/* Frames of all sizes, of no protocol, bit for bit both ways. */
static void
test_frames(void)
{
	struct wire w;
	struct virtio_net_hdr vnet;
	struct rte_mbuf *m;

	if (!wire_setup())
		return;
	wire_open(&w, "", 1, CHECKSUMS);
	for (uint32_t len = 60; len <= WIRE_MTU + 14; len += len < 130 ? 1 : 509) {
		fill(frame, len, len);
		memcpy(frame, w.mac, 6);
		frame[12] = 0x88;
		frame[13] = 0xB5;
		wire_raw_send(frame, len);
		CU_ASSERT_FATAL(wire_await(&w, 0, &m, 1, 1) == 1);
		UNIT_EQ_U64(m->pkt_len, len);
		CU_ASSERT(memcmp(rte_pktmbuf_mtod(m, void *), frame, len) == 0);
		UNIT_EQ_U64(m->port, w.port);
		UNIT_EQ_U64(m->ol_flags, 0);
		/* and back */
		memcpy(rte_pktmbuf_mtod(m, void *), w.peer_mac, 6);
		memcpy(frame, w.peer_mac, 6);
		UNIT_EQ_U64(rte_eth_tx_burst(w.port, 0, &m, 1), 1);
		UNIT_EQ_U64(wire_raw_receive(big, sizeof(big), &vnet), len);
		CU_ASSERT(memcmp(big, frame, len) == 0);
	}
	wire_close(&w);
}

static void
test_vlan(void)
{
	struct wire w;
	struct rte_mbuf *m;

	if (!wire_setup())
		return;
	wire_open(&w, "", 1, CHECKSUMS);
	fill(frame, 200, 1);
	memcpy(frame, w.mac, 6);
	memcpy(frame + 12, "\x81\x00\x01\x23\x88\xB5", 6);
	wire_raw_send(frame, 200);
	CU_ASSERT_FATAL(wire_await(&w, 0, &m, 1, 1) == 1);
	UNIT_EQ_U64(m->pkt_len, 200);
	CU_ASSERT(memcmp(rte_pktmbuf_mtod(m, void *), frame, 200) == 0);
	rte_pktmbuf_free(m);
	wire_close(&w);
}

/* Datagrams of a plain UDP socket, `size` bytes cut at `segment`; what arrives are these. */
static void
super_frame(
	struct wire *w, uint32_t size, uint16_t segment, uint16_t burst, bool whole, bool finished)
{
	struct sockaddr_in to = {.sin_family = AF_INET,
		.sin_port = htons(7000),
		.sin_addr.s_addr = inet_addr("10.9.0.1")};
	unsigned n = (size + segment - 1) / segment;
	struct rte_mbuf *m[128] = {NULL};
	uint64_t before = wire_xstat(w, "rx_super_frames");
	int cut = segment, first_id = 0;

	fill(big, size, size);
	CU_ASSERT(setsockopt(wire_udp[0], IPPROTO_UDP, UDP_SEGMENT, &cut, sizeof(cut)) == 0);
	CU_ASSERT(sendto(wire_udp[0], big, size, 0, (struct sockaddr *)&to, sizeof(to)) ==
		  (ssize_t)size);
	UNIT_EQ_U64(wire_await(w, 0, m, n, burst), n);
	UNIT_EQ_U64(wire_xstat(w, "rx_super_frames") - before, whole);
	for (unsigned i = 0; i < n && m[i] != NULL; i++) {
		const uint8_t *p = rte_pktmbuf_mtod(m[i], const uint8_t *);
		int len = wire_parse(p, m[i]->pkt_len), id = p[18] << 8 | p[19];
		uint32_t want = RTE_MIN(size - i * segment, (uint32_t)segment);

		UNIT_EQ_U64(len, want);
		CU_ASSERT(wire_is(p + 42, want, size, i * segment));
		if (i == 0)
			first_id = id;
		UNIT_EQ_U64(id, (first_id + (int)i) & 0xFFFF);
		CU_ASSERT(memcmp(p, w->mac, 6) == 0 && memcmp(p + 6, w->peer_mac, 6) == 0);
		UNIT_EQ_U64(p[36] << 8 | p[37], 7000);
		if (finished) {
			UNIT_EQ_U64(wire_udp_sum(p), 0xFFFF);
			UNIT_EQ_U64(m[i]->ol_flags, 0);
		} else { /* only the pseudo header's, and the port says so */
			uint16_t sum, pseudo = rte_ipv4_phdr_cksum((const void *)(p + 14), 0);

			memcpy(&sum, p + 40, 2);
			UNIT_EQ_U64(sum, pseudo);
			UNIT_EQ_U64(m[i]->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK,
				RTE_MBUF_F_RX_L4_CKSUM_NONE);
		}
	}
	rte_pktmbuf_free_bulk(m, n);
}

static void
test_super_in(void)
{
	struct wire w;

	if (!wire_setup())
		return;
	wire_offloads("on");
	wire_open(&w, "", 1, CHECKSUMS);
	super_frame(&w, 44 * 1472, 1472, 64, true, false);
	super_frame(&w, 44 * 1472 - 1471, 1472, 64, true, false);
	super_frame(&w, 7 * 8972, 8972, 64, true, false);
	super_frame(&w, 100 * 40, 40, 3, true, false); /* fits the ring; more than a burst */
	super_frame(&w, 40 * 1400 + 7, 1400, 5, true, false);
	super_frame(&w, 900, 1400, 5, false, false); /* one, no super-frame */
	CU_ASSERT(wire_xstat(&w, "rx_gathered") > 200);
	UNIT_EQ_U64(wire_stats(&w).ierrors + wire_stats(&w).imissed, 0);
	wire_close(&w);
	/* an application that does not read flags gets whole checksums */
	wire_open(&w, "", 1, 0);
	super_frame(&w, 44 * 1472 - 1, 1472, 64, true, true);
	super_frame(&w, 901, 1400, 64, false, true);
	wire_close(&w);
	wire_offloads("off");
	wire_open(&w, "", 1, CHECKSUMS);
	super_frame(&w, 44 * 1472 - 1, 1472, 64, false, true);
	super_frame(&w, 7 * 8972, 8972, 64, false, true);
	wire_close(&w);
}

/* A stop while datagrams of a super-frame wait for the next burst. */
static void
test_stop_with_pieces(void)
{
	struct sockaddr_in to = {.sin_family = AF_INET,
		.sin_port = htons(7000),
		.sin_addr.s_addr = inet_addr("10.9.0.1")};
	struct rte_mbuf *m[4];
	struct wire w;
	int cut = 1000;

	if (!wire_setup())
		return;
	wire_offloads("on");
	wire_open(&w, "", 1, CHECKSUMS);
	setsockopt(wire_udp[0], IPPROTO_UDP, UDP_SEGMENT, &cut, sizeof(cut));
	CU_ASSERT(sendto(wire_udp[0], big, 30000, 0, (struct sockaddr *)&to, sizeof(to)) == 30000);
	UNIT_EQ_U64(wire_await(&w, 0, m, 4, 4), 4);
	CU_ASSERT(rte_mempool_in_use_count(wire_pool) > 4);
	CU_ASSERT(rte_eth_rx_queue_count(w.port, 0) >= 26);
	rte_pktmbuf_free_bulk(m, 4);
	wire_close(&w); /* checks the pool */
}

/* No mbufs: what came is dropped and counted, and later frames arrive. */
static void
test_no_mbuf(void)
{
	static struct rte_mbuf *all[8192];
	struct rte_mbuf *m[64];
	struct wire w;
	unsigned n = 0;

	if (!wire_setup())
		return;
	wire_offloads("on");
	wire_open(&w, "", 1, CHECKSUMS);
	while (n < RTE_DIM(all) && (all[n] = rte_pktmbuf_alloc(wire_pool)) != NULL)
		n++;
	memset(frame, 0, 100);
	memcpy(frame, w.mac, 6);
	wire_raw_send(frame, 100);
	UNIT_EQ_U64(wire_receive(&w, 0, m, 1, 1), 0);
	UNIT_EQ_U64(wire_stats(&w).rx_nombuf, 1);
	rte_pktmbuf_free_bulk(all, 20); /* too few for a super-frame */
	{
		struct sockaddr_in to = {.sin_family = AF_INET,
			.sin_port = htons(7000),
			.sin_addr.s_addr = inet_addr("10.9.0.1")};
		int cut = 1000;

		setsockopt(wire_udp[0], IPPROTO_UDP, UDP_SEGMENT, &cut, sizeof(cut));
		CU_ASSERT(sendto(wire_udp[0], big, 30000, 0, (struct sockaddr *)&to, sizeof(to)) ==
			  30000);
	}
	UNIT_EQ_U64(wire_receive(&w, 0, m, 1, 1), 0);
	UNIT_EQ_U64(wire_stats(&w).rx_nombuf, 2);
	rte_pktmbuf_free_bulk(all + 20, n - 20);
	super_frame(&w, 40 * 1400, 1400, 32, true, false); /* and not the one before */
	wire_close(&w);
}

/* More than the ring has places: received and missed are all that was sent. */
static void
test_ring_full(void)
{
	static struct rte_mbuf *m[3000];
	struct wire w;
	unsigned n;

	if (!wire_setup())
		return;
	wire_open(&w, "", 1, CHECKSUMS);
	memset(frame, 0, 100);
	memcpy(frame, w.mac, 6);
	for (unsigned i = 0; i < 2000; i++)
		wire_raw_send(frame, 100);
	n = wire_receive(&w, 0, m, RTE_DIM(m), 32);
	CU_ASSERT(n >= 256 && n < 2000);
	UNIT_EQ_U64(wire_stats(&w).imissed, 2000 - n);
	UNIT_EQ_U64(wire_stats(&w).ipackets, n);
	rte_pktmbuf_free_bulk(m, n);
	rte_eth_stats_reset(w.port);
	UNIT_EQ_U64(wire_stats(&w).imissed + wire_stats(&w).ipackets, 0);
	wire_raw_send(frame, 100);
	UNIT_EQ_U64(wire_await(&w, 0, m, 1, 1), 1);
	rte_pktmbuf_free(m[0]);
	wire_close(&w);
}

/* Interleaved datagrams of three flows in one burst: each socket gets its own, in order. */
static void
gather_out(struct wire *w, unsigned n, uint16_t payload, uint16_t last)
{
	struct rte_mbuf *m[128];
	uint8_t got[10000];

	for (unsigned i = 0; i < n; i++)
		m[i] = wire_datagram(w, i % 3, 1000 + i, i >= n - 3 ? last : payload);
	UNIT_EQ_U64(rte_eth_tx_burst(w->port, 0, m, (uint16_t)n), n);
	for (unsigned i = 0; i < n; i++) {
		uint16_t want = i >= n - 3 ? last : payload;
		ssize_t len = recv(wire_udp[i % 3], got, sizeof(got), MSG_DONTWAIT);

		UNIT_EQ_U64(len, want);
		CU_ASSERT(len != want || wire_is(got, want, 1000 + i, 0));
	}
	for (unsigned s = 0; s < 3; s++)
		CU_ASSERT(recv(wire_udp[s], got, sizeof(got), MSG_DONTWAIT) < 0);
	UNIT_EQ_U64(rte_mempool_in_use_count(wire_pool), 0);
}

static void
test_super_out(void)
{
	struct virtio_net_hdr vnet;
	struct wire w;
	uint64_t supers;

	if (!wire_setup())
		return;
	for (unsigned on = 0; on < 2; on++) {
		wire_offloads(on ? "on" : "off");
		wire_open(&w, "", 1, CHECKSUMS);
		gather_out(&w, 30, 1400, 1400);
		gather_out(&w, 126, 1400, 1);
		gather_out(&w, 24, 8972, 8972); /* 8 each, of which 7 fit */
		gather_out(&w, 3, 100, 100);    /* nothing to gather */
		supers = wire_xstat(&w, "tx_super_frames");
		UNIT_EQ_U64(supers, 3 + 3 + 3);
		UNIT_EQ_U64(wire_xstat(&w, "tx_gathered"), 30 + 126 + 21);
		UNIT_EQ_U64(wire_stats(&w).opackets, 30 + 126 + 24 + 3);
		UNIT_EQ_U64(wire_stats(&w).oerrors, 0);
		wire_close(&w);
	}
	/* what one is on the wire */
	wire_open(&w, "", 1, CHECKSUMS);
	gather_out(&w, 30, 1400, 1400);
	UNIT_EQ_U64(wire_raw_receive(big, sizeof(big), &vnet), 42 + 14000);
	UNIT_EQ_U64(vnet.gso_type, 5);
	UNIT_EQ_U64(vnet.gso_size, 1400);
	wire_close(&w);
	/* and without */
	wire_open(&w, ",gso=0", 1, CHECKSUMS);
	gather_out(&w, 30, 1400, 1400);
	UNIT_EQ_U64(wire_raw_receive(big, sizeof(big), &vnet), 42 + 1400);
	UNIT_EQ_U64(wire_xstat(&w, "tx_super_frames"), 0);
	wire_close(&w);
}

/* Offloads off: packets on the wire are no longer than the MTU, and every checksum is right. */
static void
test_wire_checksums(void)
{
	struct rte_mbuf *m[40];
	struct virtio_net_hdr vnet;
	struct wire w;

	if (!wire_setup())
		return;
	wire_offloads("off");
	wire_open(&w, "", 1, CHECKSUMS);
	for (unsigned i = 0; i < 40; i++)
		m[i] = wire_datagram(&w, 0, i, i == 39 ? 77 : 1472);
	UNIT_EQ_U64(rte_eth_tx_burst(w.port, 0, m, 40), 40);
	for (unsigned i = 0; i < 40; i++) {
		ssize_t len = wire_raw_receive(frame, sizeof(frame), &vnet);
		uint16_t want = i == 39 ? 77 : 1472;

		UNIT_EQ_U64(len, want + 42);
		UNIT_EQ_U64(vnet.gso_type, 0);
		UNIT_EQ_U64(wire_parse(frame, (uint32_t)len), want);
		UNIT_EQ_U64(wire_udp_sum(frame), 0xFFFF);
		UNIT_EQ_U64(frame[18] << 8 | frame[19], i); /* IP ids go on as the sender's did */
		CU_ASSERT(wire_is(frame + 42, want, i, 0));
	}
	for (unsigned i = 0; i < 40; i++)
		recv(wire_udp[0], frame, sizeof(frame), MSG_DONTWAIT);
	wire_close(&w);
}

/* A slow interface: the kernel takes what fits its buffer, the rest stays with the caller. */
static void
test_tx_full(void)
{
	static struct rte_mbuf *m[1200], *before[1200];
	struct wire w;
	unsigned n = 1200, sent, total;

	if (!wire_setup())
		return;
	wire_offloads("off");
	CU_ASSERT(wire_box("tc qdisc add dev b0 root tbf rate 1mbit burst 20k limit 400000"));
	wire_open(&w, "", 1, CHECKSUMS);
	for (unsigned i = 0; i < n; i++)
		m[i] = wire_datagram(&w, i % 3, i, 1400);
	memcpy(before, m, sizeof(m));
	sent = rte_eth_tx_burst(w.port, 0, m, (uint16_t)n);
	CU_ASSERT(sent > 0 && sent < n);
	/* all that is not sent is at the end: alive, whole, each once, in order */
	UNIT_EQ_U64(rte_mempool_in_use_count(wire_pool), 3 * (n - sent));
	for (unsigned i = sent; i < n; i++) {
		const uint8_t *p = rte_pktmbuf_mtod(m[i], const uint8_t *);
		uint32_t tag = (uint32_t)(p[18] << 8 | p[19]);

		CU_ASSERT(tag < n && before[tag] == m[i] && wire_is(p + 42, 62, tag, 0));
		if (i > sent && i % 3 == 0) {
			const uint8_t *o = rte_pktmbuf_mtod(m[i - 1], const uint8_t *);

			CU_ASSERT((uint32_t)(o[18] << 8 | o[19]) != tag);
		}
	}
	CU_ASSERT(wire_box("tc qdisc del dev b0 root"));
	/* it goes on where it stopped */
	for (total = sent; total < n;) {
		sent = rte_eth_tx_burst(w.port, 0, m + total, (uint16_t)(n - total));
		total += sent;
		if (sent == 0)
			break;
	}
	UNIT_EQ_U64(total, n);
	UNIT_EQ_U64(wire_stats(&w).opackets, n);
	while (recv(wire_udp[0], frame, sizeof(frame), MSG_DONTWAIT) > 0 ||
		recv(wire_udp[1], frame, sizeof(frame), MSG_DONTWAIT) > 0 ||
		recv(wire_udp[2], frame, sizeof(frame), MSG_DONTWAIT) > 0)
		;
	wire_close(&w);
}

/* What the kernel never takes is dropped and counted; frames around it go. */
static void
test_tx_refused(void)
{
	struct rte_mbuf *m[3];
	uint8_t got[2000];
	struct wire w;

	if (!wire_setup())
		return;
	wire_open(&w, "", 1, CHECKSUMS);
	m[0] = wire_datagram(&w, 0, 1, 500);
	m[1] = rte_pktmbuf_alloc(wire_pool);
	memset(rte_pktmbuf_append(m[1], WIRE_MTU + 100), 0, WIRE_MTU + 100);
	m[2] = wire_datagram(&w, 1, 2, 500);
	UNIT_EQ_U64(rte_eth_tx_burst(w.port, 0, m, 3), 3);
	UNIT_EQ_U64(wire_stats(&w).oerrors, 1);
	UNIT_EQ_U64(wire_stats(&w).opackets, 2);
	UNIT_EQ_U64(recv(wire_udp[0], got, sizeof(got), MSG_DONTWAIT), 500);
	UNIT_EQ_U64(recv(wire_udp[1], got, sizeof(got), MSG_DONTWAIT), 500);
	UNIT_EQ_U64(rte_mempool_in_use_count(wire_pool), 0);
	wire_close(&w);
}

const struct unit_test unit_tests[] = {
	{"gather", test_gather},
	{"headers", test_headers},
	{"frames both ways", test_frames},
	{"VLAN tag", test_vlan},
	{"super-frames in", test_super_in},
	{"stop with datagrams waiting", test_stop_with_pieces},
	{"no mbufs", test_no_mbuf},
	{"ring full", test_ring_full},
	{"super-frames out", test_super_out},
	{"checksums on the wire", test_wire_checksums},
	{"socket full", test_tx_full},
	{"frame refused", test_tx_refused},
	{"arguments", test_arguments},
	{"addresses", test_addresses},
	{"link and MTU", test_link},
	{"an interface that is made again", test_made_again},
	{"queues", test_queues},
	{"interrupts", test_interrupts},
	{NULL, NULL},
};
