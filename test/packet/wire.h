/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef WIRE_H
#define WIRE_H

/* A port net_packet on one end of a veth; on the other, in a network namespace of its own, an
 * ordinary host: its UDP sockets, and a raw socket that sees frames as they are. */

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <linux/virtio_net.h>

#include <rte_ethdev.h>
#include <rte_mbuf.h>

#define WIRE_MTU  9000
#define WIRE_ROOM 9216
#define WIRE_UDP  7270 /* of the first socket; the next has the next */
#define WIRE_UDPS 3

struct wire {
	uint16_t port, queues;
	char name[32];
	uint8_t mac[6], peer_mac[6];
	uint64_t rx_offloads;
};

extern struct rte_mempool *wire_pool;
extern int wire_raw, wire_udp[WIRE_UDPS];

/* Namespaces, veth and EAL, once; false: may not. */
bool wire_setup(void);
/* On the host's side of the veth, in its namespace; and of the port's. */
bool wire_host(const char *command);
bool wire_box(const char *command);
/* `ethtool -K` of both ends: on or off. */
void wire_offloads(const char *state);

/* A port, started. @p args as after "iface=b0". */
void wire_open(struct wire *w, const char *args, uint16_t queues, uint64_t rx_offloads);
/* Stopped and closed; no mbuf may be missing. */
void wire_close(struct wire *w);

/* Receive until @p n are there or 200 ms have passed without any; bursts of @p burst. */
unsigned wire_receive(
	struct wire *w, uint16_t queue, struct rte_mbuf **m, unsigned n, uint16_t burst);
/* The same where they must come, however late the kernel gets to it. */
unsigned wire_await(
	struct wire *w, uint16_t queue, struct rte_mbuf **m, unsigned n, uint16_t burst);
/* Nothing more arrives. */
void wire_drain(struct wire *w);
/* A frame at the host's raw socket, its virtio-net header in @p vnet; 0: none within 200 ms. */
ssize_t wire_raw_receive(void *frame, size_t size, struct virtio_net_hdr *vnet);
/* One frame from there. */
void wire_raw_send(const void *frame, size_t len);

/* A datagram to socket @p to of the host: headers in one mbuf, the payload in two after them. Bytes are
 * wire_byte(tag, i). */
struct rte_mbuf *wire_datagram(struct wire *w, unsigned to, uint32_t tag, uint16_t payload);
uint8_t wire_byte(uint32_t tag, uint32_t i);
/* Whether @p n bytes are those of @p tag, from byte @p from on. */
bool wire_is(const uint8_t *p, uint32_t n, uint32_t tag, uint32_t from);
/* Ethernet, IPv4 and UDP right: lengths and the IP checksum. Payload length, or -1. */
int wire_parse(const uint8_t *frame, uint32_t len);
/* Sum over UDP as the receiver checks it: 0xFFFF is right; 0 when there is no checksum. */
uint16_t wire_udp_sum(const uint8_t *frame);

uint64_t wire_xstat(const struct wire *w, const char *name);
struct rte_eth_stats wire_stats(const struct wire *w);

#endif /* WIRE_H */
