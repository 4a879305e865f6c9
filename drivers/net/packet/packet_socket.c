/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <sys/mman.h>

#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>

#include <rte_common.h>

#include "packet.h"

#ifndef PACKET_IGNORE_OUTGOING
#define PACKET_IGNORE_OUTGOING 23
#endif

static int
packet_fail(const struct packet_port *port, const char *what)
{
	int error = errno;

	PACKET_LOG(ERR, "%s: %s: %s%s", port->ifname, what, strerror(error),
		error == EPERM ? " (needs CAP_NET_RAW)" : "");
	return -error;
}

static int
set_int(int fd, int what, int value)
{
	return setsockopt(fd, SOL_PACKET, what, &value, sizeof(value));
}

/* Beyond what sysctl allows, where we may. */
static void
packet_set_buffer(int fd, int force, int what)
{
	int bytes = PACKET_SOCKET_BUF;

	if (setsockopt(fd, SOL_SOCKET, force, &bytes, sizeof(bytes)) != 0)
		setsockopt(fd, SOL_SOCKET, what, &bytes, sizeof(bytes));
}

static int
packet_bind_to(int fd, const struct packet_port *port, uint16_t protocol)
{
	struct sockaddr_ll at = {.sll_family = AF_PACKET,
		.sll_ifindex = port->ifindex,
		.sll_protocol = htons(protocol)};

	return bind(fd, (const struct sockaddr *)&at, sizeof(at));
}

/* Nothing arrives before it is bound to a protocol. */
static int
open_socket(const struct packet_port *port)
{
	int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return packet_fail(port, "no AF_PACKET socket");
	if (set_int(fd, PACKET_VNET_HDR, 1) != 0) {
		int ret = packet_fail(port, "PACKET_VNET_HDR");

		close(fd);
		return ret;
	}
	return fd;
}

/* Which frames are for us: our address, broadcasts; more when the application wants it. */
static int
attach_filter(const struct packet_port *port, int fd, bool none)
{
	const uint8_t *a = port->mac.addr_bytes;
	uint32_t high = (uint32_t)a[0] << 24 | (uint32_t)a[1] << 16 | (uint32_t)a[2] << 8 | a[3];
	uint32_t low = (uint32_t)a[4] << 8 | a[5];
	struct sock_filter all[] = {BPF_STMT(BPF_RET | BPF_K, UINT32_MAX)};
	struct sock_filter nothing[] = {BPF_STMT(BPF_RET | BPF_K, 0)};
	struct sock_filter ours[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, high, 0, 2),
		BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 4),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, low, 4, 0),
		BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0xFF, 2, 0),
		/* bit 0: a group of hosts */
		BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, port->all_multicast ? 1 : 0, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, 0),
		BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
	};
	struct sock_fprog prog = {RTE_DIM(ours), ours};

	if (none)
		prog = (struct sock_fprog){RTE_DIM(nothing), nothing};
	else if (port->promiscuous)
		prog = (struct sock_fprog){RTE_DIM(all), all};
	return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &prog, sizeof(prog));
}

int
packet_filter(struct packet_port *port)
{
	for (uint16_t i = 0; i < port->n_rx; i++)
		if (port->rx[i]->fd >= 0 && attach_filter(port, port->rx[i]->fd, false) != 0)
			return packet_fail(port, "filter");
	return 0;
}

/* The receive ring of a queue. */
static int
map_ring(struct packet_rxq *q, uint16_t mtu)
{
	int version = TPACKET_V2;
	struct tpacket_req req;

	q->slot_bytes = RTE_ALIGN_CEIL(PACKET_SLOT_HEAD + (uint32_t)mtu, 64);
	q->block_bytes = RTE_MIN(rte_align32pow2((uint32_t)q->descs * q->slot_bytes),
		RTE_MAX(PACKET_BLOCK_MAX, rte_align32pow2(q->slot_bytes)));
	q->block_bytes = RTE_MAX(q->block_bytes, (uint32_t)sysconf(_SC_PAGESIZE));
	q->per_block = q->block_bytes / q->slot_bytes;
	req = (struct tpacket_req){.tp_block_size = q->block_bytes,
		.tp_block_nr = (q->descs + q->per_block - 1) / q->per_block,
		.tp_frame_size = q->slot_bytes};
	req.tp_frame_nr = req.tp_block_nr * q->per_block;
	q->n_slots = req.tp_frame_nr;
	if (set_int(q->fd, PACKET_VERSION, version) != 0)
		return packet_fail(q->port, "PACKET_VERSION");
	/* what is larger than a slot: whole, beside the ring */
	if (set_int(q->fd, PACKET_COPY_THRESH, 1) != 0)
		return packet_fail(q->port, "PACKET_COPY_THRESH");
	if (setsockopt(q->fd, SOL_PACKET, PACKET_RX_RING, &req, sizeof(req)) != 0)
		return packet_fail(q->port, "no memory for a receive ring (fewer rx-desc)");
	q->ring = mmap(NULL, (size_t)req.tp_block_nr * req.tp_block_size, PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_POPULATE, q->fd, 0);
	if (q->ring == MAP_FAILED) {
		q->ring = NULL;
		return packet_fail(q->port, "mmap of the receive ring");
	}
	q->slot = q->ring;
	q->at = 0;
	q->at_in_block = 0;
	q->n_ready = 0;
	q->next_ready = 0;
	return 0;
}

static size_t
packet_ring_bytes(const struct packet_rxq *q)
{
	return (size_t)(q->n_slots / q->per_block) * q->block_bytes;
}

/* Several sockets take turns; which one is what packet_steer() says. */
static int
join_group(struct packet_port *port, uint16_t i, int *group)
{
	int fd = port->rx[i]->fd, type = PACKET_FANOUT_CBPF;
	socklen_t len = sizeof(*group);

	if (i == 0)
		*group = (type | PACKET_FANOUT_FLAG_UNIQUEID) << 16;
	if (set_int(fd, PACKET_FANOUT, *group) != 0)
		return packet_fail(port,
			errno == EINVAL ? "no queues (the interface is down: ip link set it up)"
					: "PACKET_FANOUT");
	if (i == 0 && getsockopt(fd, SOL_PACKET, PACKET_FANOUT, group, &len) != 0)
		return packet_fail(port, "PACKET_FANOUT");
	/* the number that we were given, without the wish for one */
	*group = (*group & 0xFFFF) | type << 16;
	return 0;
}

/* A filter under construction. Jumps to the end are filled in when it is known. */
struct code {
	unsigned n, exits;
	struct sock_filter op[32 + 2 * PACKET_RULES];
	unsigned exit[4];
};

static void
packet_put(struct code *c, unsigned what, int k)
{
	c->op[c->n++] = (struct sock_filter)BPF_STMT((uint16_t)what, (uint32_t)k);
}

/* Go on where the comparison holds, else to the end. */
static void
put_unless(struct code *c, unsigned what, uint32_t k)
{
	c->exit[c->exits++] = c->n;
	c->op[c->n++] = (struct sock_filter)BPF_JUMP((uint16_t)(BPF_JMP | what | BPF_K), k, 0, 0);
}

/* Queue by the rules, of UDP datagrams that are no fragments. */
static void
put_rules(struct code *c, const struct packet_port *port)
{
	packet_put(c, BPF_LD | BPF_B | BPF_ABS, SKF_NET_OFF + 9);
	put_unless(c, BPF_JEQ, IPPROTO_UDP);
	packet_put(c, BPF_LD | BPF_H | BPF_ABS, SKF_NET_OFF + 6);
	packet_put(c, BPF_ALU | BPF_AND | BPF_K, 0x3FFF);
	put_unless(c, BPF_JEQ, 0);
	packet_put(c, BPF_LDX | BPF_B | BPF_MSH, SKF_NET_OFF); /* length of the IPv4 header */
	packet_put(c, BPF_LD | BPF_H | BPF_IND, SKF_NET_OFF + 2);
	for (unsigned i = 0; i < PACKET_RULES; i++) {
		if (!port->rule[i].used)
			continue;
		c->op[c->n++] = (struct sock_filter)BPF_JUMP(
			BPF_JMP | BPF_JEQ | BPF_K, port->rule[i].udp, 0, 1);
		packet_put(c, BPF_RET | BPF_K, port->rule[i].queue);
	}
}

/* Which queue: by UDP destination port, as the rules say; other IPv4 by addresses and ports;
 * all else the first. The kernel divides by the number of queues. */
int
packet_steer(struct packet_port *port)
{
	struct code c = {0};
	struct sock_fprog prog = {.filter = c.op};
	unsigned rules = 0, other;

	if (port->n_rx < 2 || port->rx[0]->fd < 0)
		return 0;
	for (unsigned i = 0; i < PACKET_RULES; i++)
		rules += port->rule[i].used;
	packet_put(&c, BPF_LD | BPF_H | BPF_ABS, SKF_AD_OFF + SKF_AD_PROTOCOL);
	c.op[c.n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ETH_P_IP, 1, 0);
	packet_put(&c, BPF_RET | BPF_K, 0);
	if (rules > 0)
		put_rules(&c, port);
	other = c.n;
	for (unsigned i = 0; i < c.exits; i++) /* 255 instructions at most */
		c.op[c.exit[i]].jf = (uint8_t)(other - c.exit[i] - 1);
	packet_put(&c, BPF_LD | BPF_W | BPF_ABS, SKF_NET_OFF + 12);
	packet_put(&c, BPF_ALU | BPF_MUL | BPF_K, (int)0x85EBCA6B);
	packet_put(&c, BPF_MISC | BPF_TAX, 0);
	packet_put(&c, BPF_LD | BPF_W | BPF_ABS, SKF_NET_OFF + 20);
	packet_put(&c, BPF_ALU | BPF_XOR | BPF_X, 0);
	packet_put(&c, BPF_ALU | BPF_MUL | BPF_K, (int)0x9E3779B1);
	packet_put(&c, BPF_ALU | BPF_RSH | BPF_K, 16);
	packet_put(&c, BPF_RET | BPF_A, 0);
	prog.len = (unsigned short)c.n;
	if (setsockopt(port->rx[0]->fd, SOL_PACKET, PACKET_FANOUT_DATA, &prog, sizeof(prog)) != 0)
		return packet_fail(port, "PACKET_FANOUT_DATA");
	return 0;
}

int
packet_membership(struct packet_port *port, int what, bool on)
{
	struct packet_mreq req = {.mr_ifindex = port->ifindex, .mr_type = (unsigned short)what};

	if (port->n_rx == 0 || port->rx[0]->fd < 0)
		return 0; /* at the start */
	if (what == PACKET_MR_UNICAST) {
		req.mr_alen = RTE_ETHER_ADDR_LEN;
		memcpy(req.mr_address, &port->mac, RTE_ETHER_ADDR_LEN);
	}
	if (setsockopt(port->rx[0]->fd, SOL_PACKET,
		    on ? PACKET_ADD_MEMBERSHIP : PACKET_DROP_MEMBERSHIP, &req, sizeof(req)) == 0 ||
		!on)
		return 0;
	return packet_fail(port, "PACKET_ADD_MEMBERSHIP");
}

static int
open_rx(struct packet_port *port, uint16_t mtu)
{
	int group = 0, ret = 0;

	for (uint16_t i = 0; i < port->n_rx && ret == 0; i++) {
		struct packet_rxq *q = port->rx[i];

		q->fd = open_socket(port);
		if (q->fd < 0)
			return q->fd;
		set_int(q->fd, PACKET_IGNORE_OUTGOING, 1);
		packet_set_buffer(q->fd, SO_RCVBUFFORCE, SO_RCVBUF);
		ret = map_ring(q, mtu);
		/* in a group each frame is for one queue only: until all have joined, for none */
		if (ret == 0 && attach_filter(port, q->fd, true) != 0)
			ret = packet_fail(port, "filter");
		if (ret == 0 && packet_bind_to(q->fd, port, ETH_P_ALL) != 0)
			ret = packet_fail(port, "bind");
		if (ret == 0 && port->n_rx > 1)
			ret = join_group(port, i, &group);
	}
	return ret;
}

static int
open_tx(struct packet_port *port)
{
	for (uint16_t i = 0; i < port->n_tx; i++) {
		struct packet_txq *q = port->tx[i];

		q->fd = open_socket(port);
		if (q->fd < 0)
			return q->fd;
		q->gso = port->gso;
		packet_set_buffer(q->fd, SO_SNDBUFFORCE, SO_SNDBUF);
		/* no protocol: it receives nothing */
		if (packet_bind_to(q->fd, port, 0) != 0)
			return packet_fail(port, "bind");
	}
	return 0;
}

int
packet_sockets_open(struct packet_port *port, uint16_t mtu)
{
	int ret = open_rx(port, mtu);

	if (ret == 0)
		ret = open_tx(port);
	if (ret == 0)
		ret = packet_steer(port);
	if (ret == 0 && !rte_is_same_ether_addr(&port->mac, &port->kernel_mac))
		ret = packet_membership(port, PACKET_MR_UNICAST, true);
	if (ret == 0 && port->promiscuous)
		ret = packet_membership(port, PACKET_MR_PROMISC, true);
	if (ret == 0 && port->all_multicast)
		ret = packet_membership(port, PACKET_MR_ALLMULTI, true);
	if (ret == 0)
		ret = packet_filter(port);
	if (ret != 0)
		packet_sockets_close(port);
	return ret;
}

int
packet_sockets_rebind(struct packet_port *port, int ifindex)
{
	int ret = 0;

	/* sockets of a group stay with the interface that they were bound to */
	if (port->n_rx > 1)
		return -ENOTSUP;
	port->ifindex = ifindex;
	for (uint16_t i = 0; i < port->n_rx && ret == 0; i++)
		if (packet_bind_to(port->rx[i]->fd, port, ETH_P_ALL) != 0)
			ret = -errno;
	for (uint16_t i = 0; i < port->n_tx && ret == 0; i++)
		if (packet_bind_to(port->tx[i]->fd, port, 0) != 0)
			ret = -errno;
	if (ret != 0)
		return ret;
	/* our address stays what it was, whatever that of the new interface is */
	packet_iface_mac(port->ifname, &port->kernel_mac);
	if (!rte_is_same_ether_addr(&port->mac, &port->kernel_mac))
		ret = packet_membership(port, PACKET_MR_UNICAST, true);
	if (ret == 0 && port->promiscuous)
		ret = packet_membership(port, PACKET_MR_PROMISC, true);
	if (ret == 0 && port->all_multicast)
		ret = packet_membership(port, PACKET_MR_ALLMULTI, true);
	return ret;
}

void
packet_sockets_close(struct packet_port *port)
{
	for (uint16_t i = 0; i < port->n_rx; i++) {
		struct packet_rxq *q = port->rx[i];

		if (q->fd < 0)
			continue;
		packet_missed(q);
		if (q->ring != NULL)
			munmap(q->ring, packet_ring_bytes(q));
		close(q->fd);
		q->ring = NULL;
		q->fd = -1;
		rte_pktmbuf_free_bulk(q->ready + q->next_ready, q->n_ready - q->next_ready);
		q->n_ready = 0;
		q->next_ready = 0;
	}
	for (uint16_t i = 0; i < port->n_tx; i++) {
		if (port->tx[i]->fd >= 0)
			close(port->tx[i]->fd);
		port->tx[i]->fd = -1;
	}
}

uint64_t
packet_missed(struct packet_rxq *q)
{
	struct tpacket_stats stats = {0};
	socklen_t len = sizeof(stats);

	/* the kernel counts from zero after each answer */
	if (q->fd >= 0 && getsockopt(q->fd, SOL_PACKET, PACKET_STATISTICS, &stats, &len) == 0)
		q->missed += stats.tp_drops;
	return q->missed - q->missed_base;
}
