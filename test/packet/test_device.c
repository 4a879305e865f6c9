/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <net/if.h>
#include <poll.h>
#include <string.h>

#include <rte_bus_vdev.h>
#include <rte_cycles.h>
#include <rte_flow.h>
#include <rte_ip.h>

#include "device.h"
#include "packet_gso.h"
#include "unit.h"
#include "wire.h"

#define FRAMES 128

/* Frames that live on no pool: what packet_gather() reads of them. */
static struct rte_mbuf fake[FRAMES], *list[FRAMES];
static uint8_t bytes[FRAMES][64];
static struct packet_group group[FRAMES];
static uint16_t next[FRAMES];

static void
make(unsigned i, uint8_t host, uint16_t payload)
{
	uint8_t *p = bytes[i];

	memset(p, 0, sizeof(bytes[i]));
	p[12] = 8;
	p[14] = 0x45;
	p[16] = (uint8_t)((payload + 28) >> 8);
	p[17] = (uint8_t)(payload + 28);
	p[20] = 0x40;
	p[23] = 17;
	p[33] = host;
	p[38] = (uint8_t)((payload + 8) >> 8);
	p[39] = (uint8_t)(payload + 8);
	fake[i] = (struct rte_mbuf){
		.buf_addr = p, .data_len = 64, .pkt_len = 42u + payload, .nb_segs = 2};
	list[i] = &fake[i];
}

static bool
is_chain(const struct packet_group *g, const uint16_t *want, unsigned n)
{
	unsigned i = g->first;

	if (g->n != n || g->last != want[n - 1])
		return false;
	for (unsigned k = 0; k < n; k++, i = next[i])
		if (i != want[k])
			return false;
	return true;
}

void
test_gather(void)
{
	/* what keeps a frame out: one byte each */
	static const struct {
		uint8_t at, value;
	} spoilt[] = {{12, 0x86}, {14, 0x46}, {20, 0}, {20, 0x60}, {21, 1}, {23, 6}, {40, 1},
		{17, 1}, {39, 1}};

	/* three hosts in turn, one shorter frame, and on */
	for (unsigned i = 0; i < 9; i++)
		make(i, (uint8_t)(i % 3), i == 4 ? 99 : 100);
	UNIT_EQ_U64(packet_gather(list, 9, group, next), 4);
	CU_ASSERT(is_chain(&group[0], (const uint16_t[]){0, 3, 6}, 3));
	CU_ASSERT(is_chain(&group[1], (const uint16_t[]){1, 4}, 2));
	CU_ASSERT(is_chain(&group[2], (const uint16_t[]){2, 5, 8}, 3));
	CU_ASSERT(is_chain(&group[3], (const uint16_t[]){7}, 1));
	UNIT_EQ_U64(group[1].bytes, 199);
	UNIT_EQ_U64(group[1].payload, 100);
	/* a longer one begins again */
	make(1, 0, 101);
	make(0, 0, 100);
	UNIT_EQ_U64(packet_gather(list, 2, group, next), 2);
	/* 65507 bytes, 64 datagrams */
	for (unsigned i = 0; i < 8; i++)
		make(i, 7, 8972);
	UNIT_EQ_U64(packet_gather(list, 8, group, next), 2);
	UNIT_EQ_U64(group[0].n, 7);
	for (unsigned i = 0; i < FRAMES; i++)
		make(i, 7, 30);
	UNIT_EQ_U64(packet_gather(list, FRAMES, group, next), 2);
	UNIT_EQ_U64(group[0].n, 64);
	for (unsigned s = 0; s < RTE_DIM(spoilt); s++) {
		make(0, 1, 100);
		make(1, 1, 100);
		make(2, 1, 100);
		bytes[1][spoilt[s].at] = spoilt[s].value;
		UNIT_EQ_U64(packet_gather(list, 3, group, next), 2);
		CU_ASSERT(is_chain(&group[0], (const uint16_t[]){0, 2}, 2));
		UNIT_EQ_U64(group[1].payload, 0);
	}
	/* other flows: MAC, TOS, TTL, source, destination, ports */
	for (unsigned s = 0; s < 42; s++) {
		if ((s >= 12 && s != 15 && s != 22 && s < 26) || s >= 38)
			continue;
		make(0, 1, 100);
		make(1, 1, 100);
		bytes[1][s] ^= 0x10;
		UNIT_EQ_U64(packet_gather(list, 2, group, next), 2);
	}
	/* headers in two segments */
	make(0, 1, 100);
	make(1, 1, 100);
	fake[1].data_len = 41;
	UNIT_EQ_U64(packet_gather(list, 2, group, next), 2);
	UNIT_EQ_U64(group[1].payload, 0);
}

void
test_headers(void)
{
	struct packet_group g = {.n = 3, .payload = 100, .bytes = 250};
	struct virtio_net_hdr vnet;
	uint8_t super[42], piece[42];
	struct packet_pieces pieces;

	make(0, 9, 100);
	bytes[0][18] = 0xFF;
	bytes[0][19] = 0xFE;
	packet_super_headers(super, &vnet, bytes[0], &g);
	UNIT_EQ_U64(rte_raw_cksum(super + 14, 20), 0xFFFF);
	UNIT_EQ_U64(super[16] << 8 | super[17], 278);
	UNIT_EQ_U64(super[38] << 8 | super[39], 258);
	UNIT_EQ_U64(vnet.gso_size, 100);
	CU_ASSERT(packet_super_check(super, 42, 292));
	CU_ASSERT(!packet_super_check(super, 41, 292));
	CU_ASSERT(!packet_super_check(super, 42, 42));
	packet_pieces_begin(&pieces, super);
	packet_piece_headers(piece, &pieces, 2, 50);
	UNIT_EQ_U64(rte_raw_cksum(piece + 14, 20), 0xFFFF);
	UNIT_EQ_U64(piece[18] << 8 | piece[19], 0); /* 0xFFFE + 2 */
	UNIT_EQ_U64(piece[16] << 8 | piece[17], 78);
	UNIT_EQ_U64(piece[38] << 8 | piece[39], 58);
	super[20] = 0x20;
	CU_ASSERT(!packet_super_check(super, 42, 292));
}

void
test_arguments(void)
{
	static const char *const wrong[] = {"", "iface=", "iface=nobody", "iface=b0,gso=2",
		"iface=b0,mac=xx", "iface=b0,mac=01:00:00:00:00:01", "iface=b0,qpairs=2",
		"iface=a-name-that-is-too-long"};

	if (!wire_setup())
		return;
	for (unsigned i = 0; i < RTE_DIM(wrong); i++)
		CU_ASSERT(rte_vdev_init("net_packet99", wrong[i]) < 0);
	UNIT_EQ_U64(rte_eth_dev_count_avail(), 0);
}

/* Which frames of the veth are for the port. */
static unsigned
arrives(struct wire *w, const uint8_t *mac)
{
	uint8_t frame[100] = {0};
	struct rte_mbuf *m[2];
	unsigned n;

	memcpy(frame, mac, 6);
	wire_raw_send(frame, sizeof(frame));
	n = wire_receive(w, 0, m, 1, 1);
	rte_pktmbuf_free_bulk(m, n);
	return n;
}

void
test_addresses(void)
{
	static const uint8_t all[6] = {255, 255, 255, 255, 255, 255},
			     group_mac[6] = {1, 0, 94, 0, 0, 5};
	static const uint8_t given[6] = {2, 1, 2, 3, 4, 5};
	struct rte_ether_addr mac = {{2, 9, 9, 9, 9, 9}};
	uint8_t kernel[6];
	struct wire w;

	if (!wire_setup())
		return;
	wire_open(&w, ",mac=interface", 1, 0);
	memcpy(kernel, w.mac, 6);
	UNIT_EQ_U64(arrives(&w, kernel), 1);
	wire_close(&w);
	wire_open(&w, "", 1, 0);
	CU_ASSERT(memcmp(w.mac, kernel, 6) != 0 && (w.mac[0] & 3) == 2);
	UNIT_EQ_U64(arrives(&w, w.mac), 1);
	UNIT_EQ_U64(arrives(&w, kernel), 0);
	UNIT_EQ_U64(arrives(&w, all), 1);
	UNIT_EQ_U64(arrives(&w, group_mac), 0);
	CU_ASSERT(rte_eth_allmulticast_enable(w.port) == 0);
	UNIT_EQ_U64(arrives(&w, group_mac), 1);
	UNIT_EQ_U64(arrives(&w, given), 0);
	CU_ASSERT(rte_eth_allmulticast_disable(w.port) == 0);
	UNIT_EQ_U64(arrives(&w, group_mac), 0);
	CU_ASSERT(rte_eth_promiscuous_enable(w.port) == 0);
	UNIT_EQ_U64(arrives(&w, given), 1);
	CU_ASSERT(rte_eth_promiscuous_disable(w.port) == 0);
	UNIT_EQ_U64(arrives(&w, given), 0);
	CU_ASSERT(rte_eth_dev_default_mac_addr_set(w.port, &mac) == 0);
	UNIT_EQ_U64(arrives(&w, mac.addr_bytes), 1);
	UNIT_EQ_U64(arrives(&w, w.mac), 0);
	wire_close(&w);
	wire_open(&w, ",mac=02:01:02:03:04:05", 1, 0);
	CU_ASSERT(memcmp(w.mac, given, 6) == 0);
	UNIT_EQ_U64(arrives(&w, given), 1);
	wire_close(&w);
}

/* The kernel reports a carrier when it comes to it, within a second or two. */
static bool
link_becomes(const struct wire *w, uint16_t status)
{
	struct rte_eth_link link;

	for (unsigned i = 0; i < 12000; i++) {
		if (rte_eth_link_get_nowait(w->port, &link) == 0 && link.link_status == status)
			return true;
		rte_delay_us_sleep(10000);
	}
	return false;
}

void
test_link(void)
{
	struct wire w;

	if (!wire_setup())
		return;
	wire_open(&w, "", 1, 0);
	CU_ASSERT(link_becomes(&w, RTE_ETH_LINK_UP));
	CU_ASSERT(wire_host("ip link set w0 down"));
	CU_ASSERT(link_becomes(&w, RTE_ETH_LINK_DOWN));
	CU_ASSERT(wire_host("ip link set w0 up"));
	CU_ASSERT(link_becomes(&w, RTE_ETH_LINK_UP));
	CU_ASSERT(rte_eth_dev_set_mtu(w.port, WIRE_MTU) == 0);
	CU_ASSERT(rte_eth_dev_set_mtu(w.port, WIRE_MTU + 1) != 0);
	CU_ASSERT(rte_eth_dev_set_mtu(w.port, 1500) == 0);
	/* started again it receives again */
	CU_ASSERT(rte_eth_dev_stop(w.port) == 0);
	CU_ASSERT(rte_eth_dev_start(w.port) == 0);
	UNIT_EQ_U64(arrives(&w, w.mac), 1);
	/* down while it is open, then up */
	CU_ASSERT(wire_box("ip link set b0 down && ip link set b0 up"));
	CU_ASSERT(link_becomes(&w, RTE_ETH_LINK_UP));
	UNIT_EQ_U64(arrives(&w, w.mac), 1);
	wire_close(&w);
}

/* Another interface has the name: one queue is bound to it. Sockets that share an interface stay with the one that
 * they had: then there is no link until the port is opened again, and the port can say why. */
void
test_made_again(void)
{
	if (!wire_setup())
		return;
	for (uint16_t queues = 1; queues <= 2; queues++) {
		struct rte_eth_dev_info info;
		struct rte_eth_link link;
		struct wire w;
		unsigned now;

		wire_open(&w, "", queues, 0);
		CU_ASSERT(link_becomes(&w, RTE_ETH_LINK_UP));
		CU_ASSERT(wire_box(
			"ip link set b0 down && ip link set b0 name b1 && ip link add b0 type veth peer name b2 && ip link set b2 up"));
		CU_ASSERT(link_becomes(&w, RTE_ETH_LINK_DOWN));
		CU_ASSERT(wire_box("ip link set b0 up"));
		now = if_nametoindex("b0");
		if (queues == 1)
			CU_ASSERT(link_becomes(&w, RTE_ETH_LINK_UP));
		UNIT_EQ_U64(rte_eth_link_get_nowait(w.port, &link), 0);
		UNIT_EQ_U64(link.link_status, queues == 1);
		UNIT_EQ_U64(rte_eth_dev_info_get(w.port, &info), 0);
		CU_ASSERT(now != 0 && (info.if_index == now) == (queues == 1));
		CU_ASSERT(
			wire_box("ip link del b0 && ip link set b1 name b0 && ip link set b0 up"));
		if (queues == 2) { /* that which it had is there again */
			CU_ASSERT(link_becomes(&w, RTE_ETH_LINK_UP));
			UNIT_EQ_U64(rte_eth_dev_info_get(w.port, &info), 0);
			UNIT_EQ_U64(info.if_index, if_nametoindex("b0"));
		}
		wire_close(&w);
	}
}

static struct rte_flow *
steer(const struct wire *w, uint16_t udp, uint16_t queue)
{
	const struct rte_flow_attr attr = {.ingress = 1};
	const struct rte_flow_item_udp spec = {.hdr.dst_port = rte_cpu_to_be_16(udp)};
	const struct rte_flow_item_udp mask = {.hdr.dst_port = 0xFFFF};
	const struct rte_flow_item pattern[] = {
		{.type = RTE_FLOW_ITEM_TYPE_ETH},
		{.type = RTE_FLOW_ITEM_TYPE_IPV4},
		{.type = RTE_FLOW_ITEM_TYPE_UDP, .spec = &spec, .mask = &mask},
		{.type = RTE_FLOW_ITEM_TYPE_END},
	};
	const struct rte_flow_action_queue to = {.index = queue};
	const struct rte_flow_action actions[] = {
		{.type = RTE_FLOW_ACTION_TYPE_QUEUE, .conf = &to},
		{.type = RTE_FLOW_ACTION_TYPE_END},
	};
	struct rte_flow_error e;

	return rte_flow_create(w->port, &attr, pattern, actions, &e);
}

/* The queue of a datagram to this port; -1 if it came not, or to two. */
static int
queue_of(struct wire *w, uint16_t udp, uint8_t proto)
{
	uint8_t f[100] = {0};
	struct rte_mbuf *m[8];
	int at = -1;

	memcpy(f, w->mac, 6);
	f[12] = 8;
	f[14] = 0x45;
	f[17] = 86;
	f[22] = 64;
	f[23] = proto;
	f[29] = (uint8_t)udp; /* its hash changes with the port */
	f[36] = (uint8_t)(udp >> 8);
	f[37] = (uint8_t)udp;
	wire_raw_send(f, sizeof(f));
	for (uint16_t q = 0; q < w->queues; q++) {
		unsigned n = wire_receive(w, q, m, 8, 8);

		rte_pktmbuf_free_bulk(m, n);
		if (n > 1 || (n == 1 && at >= 0))
			return -1;
		if (n == 1)
			at = q;
	}
	return at;
}

void
test_queues(void)
{
	struct rte_flow *rule[3];
	struct rte_flow_error e;
	struct wire w;
	unsigned got[3] = {0};

	if (!wire_setup())
		return;
	wire_open(&w, "", 3, 0);
	/* without rules each frame comes to one of them */
	for (uint16_t i = 0; i < 12; i++) {
		int q = queue_of(&w, i, 17);

		CU_ASSERT(q >= 0);
		got[RTE_MAX(q, 0)]++;
	}
	CU_ASSERT(got[0] < 12 && got[1] < 12 && got[2] < 12);
	for (uint16_t i = 0; i < 3; i++) {
		rule[i] = steer(&w, 7270 + i, (uint16_t)(2 - i));
		CU_ASSERT(rule[i] != NULL);
	}
	CU_ASSERT(steer(&w, 7270, 1) == NULL);
	CU_ASSERT(steer(&w, 7280, 3) == NULL);
	for (unsigned k = 0; k < 2; k++)
		for (uint16_t i = 0; i < 3; i++)
			UNIT_EQ_U64(queue_of(&w, (uint16_t)(7270 + i), 17), 2 - i);
	CU_ASSERT(queue_of(&w, 7273, 17) >= 0);
	CU_ASSERT(queue_of(&w, 7270, 6) >= 0);
	CU_ASSERT(rte_flow_destroy(w.port, rule[0], &e) == 0);
	CU_ASSERT(steer(&w, 7270, 1) != NULL);
	UNIT_EQ_U64(queue_of(&w, 7270, 17), 1);
	CU_ASSERT(rte_flow_flush(w.port, &e) == 0);
	CU_ASSERT(queue_of(&w, 7270, 17) >= 0);
	wire_close(&w);
}

void
test_interrupts(void)
{
	struct rte_mbuf *m;
	uint8_t frame[100] = {0};
	struct pollfd p = {.events = POLLIN};
	struct wire w;

	if (!wire_setup())
		return;
	wire_open(&w, "", 1, 0);
	p.fd = rte_eth_dev_rx_intr_ctl_q_get_fd(w.port, 0);
	CU_ASSERT_FATAL(p.fd >= 0);
	CU_ASSERT(rte_eth_dev_rx_intr_enable(w.port, 0) == 0);
	UNIT_EQ_U64(poll(&p, 1, 0), 0);
	UNIT_EQ_U64(rte_eth_rx_queue_count(w.port, 0), 0);
	memcpy(frame, w.mac, 6);
	wire_raw_send(frame, sizeof(frame));
	UNIT_EQ_U64(poll(&p, 1, 120000), 1);
	UNIT_EQ_U64(rte_eth_rx_queue_count(w.port, 0), 1);
	UNIT_EQ_U64(wire_await(&w, 0, &m, 1, 1), 1);
	rte_pktmbuf_free(m);
	UNIT_EQ_U64(poll(&p, 1, 0), 0);
	CU_ASSERT(rte_eth_dev_rx_intr_disable(w.port, 0) == 0);
	wire_close(&w);
}
