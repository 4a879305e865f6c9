/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/if_ether.h>
#include <linux/if_packet.h>

#include <rte_bus_vdev.h>
#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_ip.h>
#include <rte_udp.h>

#include "unit.h"
#include "wire.h"

#define MBUFS 4095

struct rte_mempool *wire_pool;
int wire_raw = -1, wire_udp[WIRE_UDPS];
static int wire_host_ns = -1, wire_box_ns = -1;
static uint8_t wire_host_mac[6];

static bool
run(const char *command)
{
	char text[512];

	snprintf(text, sizeof(text), "PATH=$PATH:/usr/sbin:/sbin; %s", command);
	return system(text) == 0;
}

static bool
run_in(int ns, const char *command)
{
	bool ok;

	if (setns(ns, CLONE_NEWNET) != 0)
		return false;
	ok = run(command);
	return setns(wire_box_ns, CLONE_NEWNET) == 0 && ok;
}

bool
wire_host(const char *command)
{
	return run_in(wire_host_ns, command);
}

bool
wire_box(const char *command)
{
	return run_in(wire_box_ns, command);
}

void
wire_offloads(const char *state)
{
	char host[160], box[160];

	snprintf(host, sizeof(host), "ethtool -K w0 tx %s gso %s tso %s gro %s >/dev/null", state,
		state, state, state);
	snprintf(box, sizeof(box), "ethtool -K b0 tx %s gso %s tso %s gro %s >/dev/null", state,
		state, state, state);
	CU_ASSERT(wire_host(host));
	CU_ASSERT(wire_box(box));
	if (strcmp(state, "on") == 0) {
		CU_ASSERT(wire_host("ethtool -K w0 tx-udp-segmentation on"));
		CU_ASSERT(wire_box("ethtool -K b0 tx-udp-segmentation on"));
	}
}

/* Descriptors stay in the namespace where they were opened. */
static void
open_sockets(void)
{
	struct sockaddr_ll at = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL)};
	int one = 1, big = 16 << 20;

	at.sll_ifindex = (int)if_nametoindex("w0");
	wire_raw = socket(AF_PACKET, SOCK_RAW, 0);
	CU_ASSERT(setsockopt(wire_raw, SOL_PACKET, PACKET_VNET_HDR, &one, sizeof(one)) == 0);
	CU_ASSERT(setsockopt(wire_raw, SOL_PACKET, 23 /* PACKET_IGNORE_OUTGOING */, &one,
			  sizeof(one)) == 0);
	setsockopt(wire_raw, SOL_SOCKET, SO_RCVBUFFORCE, &big, sizeof(big));
	setsockopt(wire_raw, SOL_SOCKET, SO_SNDBUFFORCE, &big, sizeof(big));
	CU_ASSERT(bind(wire_raw, (struct sockaddr *)&at, sizeof(at)) == 0);
	for (unsigned i = 0; i < WIRE_UDPS; i++) {
		struct sockaddr_in me = {.sin_family = AF_INET,
			.sin_port = htons((uint16_t)(WIRE_UDP + i)),
			.sin_addr.s_addr = inet_addr("10.9.0.2")};

		wire_udp[i] = socket(AF_INET, SOCK_DGRAM, 0);
		setsockopt(wire_udp[i], SOL_SOCKET, SO_RCVBUFFORCE, &big, sizeof(big));
		CU_ASSERT(bind(wire_udp[i], (struct sockaddr *)&me, sizeof(me)) == 0);
	}
}

static int
own_ns(void)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/self/task/%d/ns/net", gettid());
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd;
}

static void
read_mac(const char *ifname, uint8_t mac[6])
{
	char command[96];
	unsigned b[6] = {0};
	FILE *f;

	snprintf(command, sizeof(command), "PATH=$PATH:/sbin:/usr/sbin; ip -br link show %s",
		ifname);
	f = popen(command, "r");
	CU_ASSERT(f != NULL && fscanf(f, "%*s %*s %x:%x:%x:%x:%x:%x", b, b + 1, b + 2, b + 3, b + 4,
				       b + 5) == 6);
	if (f != NULL)
		pclose(f);
	for (unsigned i = 0; i < 6; i++)
		mac[i] = (uint8_t)b[i];
}

static bool
make_namespaces(void)
{
	char command[160];

	if (geteuid() != 0 || unshare(CLONE_NEWNET) != 0)
		return false;
	wire_host_ns = own_ns();
	run("ip link set lo up; sysctl -qw net.ipv6.conf.default.disable_ipv6=1 2>/dev/null");
	if (wire_host_ns < 0 || unshare(CLONE_NEWNET) != 0)
		return false;
	wire_box_ns = own_ns();
	run("ip link set lo up; sysctl -qw net.ipv6.conf.default.disable_ipv6=1 2>/dev/null");
	snprintf(command, sizeof(command),
		"ip link add b0 mtu %u type veth peer name w0 mtu %u netns /proc/%d/fd/%d",
		WIRE_MTU, WIRE_MTU, (int)getpid(), wire_host_ns);
	if (!run(command) || !wire_host("ip link set w0 up && ip addr add 10.9.0.2/24 dev w0") ||
		!run("ip link set b0 up"))
		return false;
	if (setns(wire_host_ns, CLONE_NEWNET) != 0)
		return false;
	read_mac("w0", wire_host_mac);
	open_sockets();
	return setns(wire_box_ns, CLONE_NEWNET) == 0;
}

bool
wire_setup(void)
{
	static int state = -1;
	char *argv[] = {"test_packet", "--no-huge", "-m", "256", "--no-pci", "--no-telemetry",
		"--no-shconf", "-l", "0", "--log-level", "pmd.net.packet:critical", NULL};

	if (state >= 0)
		return state;
	state = make_namespaces();
	if (!state) {
		printf("skip - net_packet over veth: needs root for network namespaces\n");
		return false;
	}
	CU_ASSERT_FATAL(rte_eal_init((int)RTE_DIM(argv) - 1, argv) >= 0);
	wire_pool = rte_pktmbuf_pool_create(
		"wire", MBUFS, 0, 0, RTE_PKTMBUF_HEADROOM + WIRE_ROOM, SOCKET_ID_ANY);
	CU_ASSERT_FATAL(wire_pool != NULL);
	return true;
}

void
wire_open(struct wire *w, const char *args, uint16_t queues, uint64_t rx_offloads)
{
	static unsigned serial;
	struct rte_eth_conf conf = {.rxmode = {.mtu = WIRE_MTU, .offloads = rx_offloads},
		.txmode.offloads = RTE_ETH_TX_OFFLOAD_MULTI_SEGS,
		.intr_conf.rxq = 1};
	struct rte_eth_dev_info info;
	struct rte_ether_addr mac;
	char text[128];

	memset(w, 0, sizeof(*w));
	w->queues = queues;
	snprintf(w->name, sizeof(w->name), "net_packet%u", serial++);
	snprintf(text, sizeof(text), "iface=b0%s", args);
	CU_ASSERT_FATAL(rte_vdev_init(w->name, text) == 0);
	CU_ASSERT_FATAL(rte_eth_dev_get_port_by_name(w->name, &w->port) == 0);
	CU_ASSERT(rte_eth_dev_info_get(w->port, &info) == 0);
	UNIT_EQ_U64(info.max_mtu, WIRE_MTU);
	UNIT_EQ_U64(info.if_index, if_nametoindex("b0"));
	CU_ASSERT_FATAL(rte_eth_dev_configure(w->port, queues, queues, &conf) == 0);
	for (uint16_t q = 0; q < queues; q++) {
		CU_ASSERT_FATAL(rte_eth_rx_queue_setup(
					w->port, q, 256, SOCKET_ID_ANY, NULL, wire_pool) == 0);
		CU_ASSERT_FATAL(rte_eth_tx_queue_setup(w->port, q, 256, SOCKET_ID_ANY, NULL) == 0);
	}
	CU_ASSERT_FATAL(rte_eth_dev_start(w->port) == 0);
	rte_eth_macaddr_get(w->port, &mac);
	memcpy(w->mac, mac.addr_bytes, 6);
	memcpy(w->peer_mac, wire_host_mac, 6);
	snprintf(text, sizeof(text),
		"ip neigh replace 10.9.0.1 lladdr %02x:%02x:%02x:%02x:%02x:%02x dev w0", w->mac[0],
		w->mac[1], w->mac[2], w->mac[3], w->mac[4], w->mac[5]);
	CU_ASSERT(wire_host(text));
	wire_drain(w);
}

void
wire_close(struct wire *w)
{
	CU_ASSERT(rte_eth_dev_stop(w->port) == 0);
	CU_ASSERT(rte_eth_dev_close(w->port) == 0);
	CU_ASSERT(rte_vdev_uninit(w->name) == 0);
	UNIT_EQ_U64(rte_mempool_in_use_count(wire_pool), 0);
}

static unsigned
receive(struct wire *w, uint16_t queue, struct rte_mbuf **m, unsigned n, uint16_t burst,
	unsigned patience_ms)
{
	unsigned got = 0, idle = 0;

	while (got < n && idle < patience_ms) {
		uint16_t k = rte_eth_rx_burst(
			w->port, queue, m + got, (uint16_t)RTE_MIN(n - got, (unsigned)burst));

		got += k;
		idle = k > 0 ? 0 : idle + 1;
		if (k == 0)
			rte_delay_us_sleep(1000);
	}
	return got;
}

unsigned
wire_receive(struct wire *w, uint16_t queue, struct rte_mbuf **m, unsigned n, uint16_t burst)
{
	return receive(w, queue, m, n, burst, 200);
}

unsigned
wire_await(struct wire *w, uint16_t queue, struct rte_mbuf **m, unsigned n, uint16_t burst)
{
	return receive(w, queue, m, n, burst, 120000);
}

void
wire_drain(struct wire *w)
{
	struct rte_mbuf *m[32];
	uint8_t frame[65600];
	struct virtio_net_hdr vnet;

	for (unsigned i = 0; i < 20; i++) {
		for (uint16_t q = 0; q < w->queues; q++)
			rte_pktmbuf_free_bulk(m, rte_eth_rx_burst(w->port, q, m, 32));
		rte_delay_us_sleep(500);
	}
	do {
		struct iovec iov[2] = {{&vnet, sizeof(vnet)}, {frame, sizeof(frame)}};
		struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};

		if (recvmsg(wire_raw, &msg, MSG_DONTWAIT) < 0)
			break;
	} while (true);
}

ssize_t
wire_raw_receive(void *frame, size_t size, struct virtio_net_hdr *vnet)
{
	struct iovec iov[2] = {{vnet, sizeof(*vnet)}, {frame, size}};
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};
	struct pollfd p = {.fd = wire_raw, .events = POLLIN};
	ssize_t n;

	if (poll(&p, 1, 120000) <= 0)
		return 0;
	n = recvmsg(wire_raw, &msg, MSG_DONTWAIT);
	return n > (ssize_t)sizeof(*vnet) ? n - (ssize_t)sizeof(*vnet) : 0;
}

void
wire_raw_send(const void *frame, size_t len)
{
	struct virtio_net_hdr vnet = {0};
	struct iovec iov[2] = {{&vnet, sizeof(vnet)}, {(void *)(uintptr_t)frame, len}};
	struct msghdr msg = {.msg_iov = iov, .msg_iovlen = 2};
	int error;
	socklen_t size = sizeof(error);

	getsockopt(
		wire_raw, SOL_SOCKET, SO_ERROR, &error, &size); /* of an interface that was down */
	CU_ASSERT(sendmsg(wire_raw, &msg, 0) == (ssize_t)(len + sizeof(vnet)));
}

uint8_t
wire_byte(uint32_t tag, uint32_t i)
{
	return (uint8_t)((tag * 2654435761u + i * 40503u) >> 7);
}

bool
wire_is(const uint8_t *p, uint32_t n, uint32_t tag, uint32_t from)
{
	for (uint32_t i = 0; i < n; i++)
		if (p[i] != wire_byte(tag, from + i))
			return false;
	return true;
}

static void
put_bytes(struct rte_mbuf *m, uint32_t tag, uint32_t from, uint16_t n)
{
	uint8_t *p = (uint8_t *)rte_pktmbuf_append(m, n);

	for (uint32_t i = 0; i < n; i++)
		p[i] = wire_byte(tag, from + i);
}

struct rte_mbuf *
wire_datagram(struct wire *w, unsigned to, uint32_t tag, uint16_t payload)
{
	struct rte_mbuf *m[3];
	struct rte_ether_hdr *eth;
	struct rte_ipv4_hdr *ip;
	struct rte_udp_hdr *udp;
	uint16_t a = RTE_MIN(payload, (uint16_t)62), b = (uint16_t)((payload - a) / 3),
		 c = (uint16_t)(payload - a - b);

	CU_ASSERT_FATAL(rte_pktmbuf_alloc_bulk(wire_pool, m, 3) == 0);
	rte_pktmbuf_append(m[0], 42);
	eth = rte_pktmbuf_mtod(m[0], struct rte_ether_hdr *);
	ip = (struct rte_ipv4_hdr *)(eth + 1);
	udp = (struct rte_udp_hdr *)(ip + 1);
	memset(eth, 0, 42);
	memcpy(eth->dst_addr.addr_bytes, w->peer_mac, 6);
	memcpy(eth->src_addr.addr_bytes, w->mac, 6);
	eth->ether_type = RTE_BE16(RTE_ETHER_TYPE_IPV4);
	ip->version_ihl = 0x45;
	ip->total_length = rte_cpu_to_be_16((uint16_t)(payload + 28));
	ip->packet_id = rte_cpu_to_be_16((uint16_t)tag);
	ip->fragment_offset = RTE_BE16(RTE_IPV4_HDR_DF_FLAG);
	ip->time_to_live = 64;
	ip->next_proto_id = 17;
	ip->src_addr = inet_addr("10.9.0.1");
	ip->dst_addr = inet_addr("10.9.0.2");
	ip->hdr_checksum = rte_ipv4_cksum(ip);
	udp->src_port = RTE_BE16(9000);
	udp->dst_port = rte_cpu_to_be_16((uint16_t)(WIRE_UDP + to));
	udp->dgram_len = rte_cpu_to_be_16((uint16_t)(payload + 8));
	put_bytes(m[0], tag, 0, a);
	put_bytes(m[1], tag, a, b);
	put_bytes(m[2], tag, (uint32_t)a + b, c);
	m[0]->next = m[1];
	m[1]->next = m[2];
	m[0]->nb_segs = 3;
	m[0]->pkt_len = 42u + payload;
	return m[0];
}

int
wire_parse(const uint8_t *frame, uint32_t len)
{
	const struct rte_ether_hdr *eth = (const void *)frame;
	const struct rte_ipv4_hdr *ip = (const void *)(eth + 1);
	const struct rte_udp_hdr *udp = (const void *)(ip + 1);
	uint16_t udp_len;

	if (len < 42 || eth->ether_type != RTE_BE16(RTE_ETHER_TYPE_IPV4) ||
		ip->version_ihl != 0x45 || ip->next_proto_id != 17 ||
		rte_raw_cksum(ip, sizeof(*ip)) != 0xFFFF)
		return -1;
	udp_len = rte_be_to_cpu_16(udp->dgram_len);
	if (rte_be_to_cpu_16(ip->total_length) != udp_len + 20 || udp_len + 34u != len)
		return -1;
	return udp_len - 8;
}

uint16_t
wire_udp_sum(const uint8_t *frame)
{
	const struct rte_ipv4_hdr *ip = (const void *)(frame + 14);
	const struct rte_udp_hdr *udp = (const void *)(ip + 1);
	uint32_t sum;

	if (udp->dgram_cksum == 0)
		return 0;
	sum = rte_ipv4_phdr_cksum(ip, 0);
	sum += rte_raw_cksum(udp, rte_be_to_cpu_16(udp->dgram_len));
	return (uint16_t)((sum & 0xFFFF) + (sum >> 16));
}

uint64_t
wire_xstat(const struct wire *w, const char *name)
{
	uint64_t id, value = UINT64_MAX;

	CU_ASSERT(rte_eth_xstats_get_id_by_name(w->port, name, &id) == 0);
	CU_ASSERT(rte_eth_xstats_get_by_id(w->port, &id, &value, 1) == 1);
	return value;
}

struct rte_eth_stats
wire_stats(const struct wire *w)
{
	struct rte_eth_stats s = {0};

	CU_ASSERT(rte_eth_stats_get(w->port, &s) == 0);
	return s;
}
