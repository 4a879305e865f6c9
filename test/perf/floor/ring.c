/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "floor.h"

/*
 * A packet ring as drivers/net/packet has it: slots of a frame each, and what is larger is queued beside the ring as a
 * whole, and read with a call. What the kernel does for it happens in the context of who sends: it is in the worker's CPU time.
 * Answers leave as super-frames with a virtio-net header.
 */

#define SLOTS     1024
#define SLOT_HEAD 256 /* of the kernel's, before a frame */
#define HEADERS   42  /* Ethernet, IPv4, UDP */
#define BUFFER    (16 << 20)
#define PATIENCE  2000 /* ms */
#ifndef PACKET_IGNORE_OUTGOING
#define PACKET_IGNORE_OUTGOING 23
#endif
#ifndef VIRTIO_NET_HDR_GSO_UDP_L4
#define VIRTIO_NET_HDR_GSO_UDP_L4 5
#endif

struct ring {
	int fd;
	uint8_t *at;
	uint32_t slot, slot_bytes, block_bytes, per_block, slots;
	uint8_t headers[HEADERS]; /* of an answer */
	uint8_t buffer[sizeof(struct virtio_net_hdr) + 65536 + HEADERS];
};

static bool
set(int fd, int what, int value)
{
	return setsockopt(fd, SOL_PACKET, what, &value, sizeof(value)) == 0;
}

static bool
ring_open(struct ring *r, const char *device, uint32_t fragment)
{
	struct sockaddr_ll at = {.sll_family = AF_PACKET,
		.sll_ifindex = (int)if_nametoindex(device),
		.sll_protocol = htons(ETH_P_IP)};
	struct tpacket_req req;
	int bytes = BUFFER;

	r->slot_bytes = (SLOT_HEAD + fragment + HEADERS + 63) & ~63u;
	for (r->block_bytes = 1 << 16; r->block_bytes < r->slot_bytes;)
		r->block_bytes *= 2;
	r->per_block = r->block_bytes / r->slot_bytes;
	req = (struct tpacket_req){.tp_block_size = r->block_bytes,
		.tp_block_nr = (SLOTS + r->per_block - 1) / r->per_block,
		.tp_frame_size = r->slot_bytes};
	r->slots = req.tp_frame_nr = req.tp_block_nr * r->per_block;
	r->fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
	if (r->fd < 0 || at.sll_ifindex == 0 || !set(r->fd, PACKET_VNET_HDR, 1) ||
		!set(r->fd, PACKET_IGNORE_OUTGOING, 1) || !set(r->fd, PACKET_VERSION, TPACKET_V2) ||
		!set(r->fd, PACKET_COPY_THRESH, 1) ||
		setsockopt(r->fd, SOL_PACKET, PACKET_RX_RING, &req, sizeof(req)) != 0)
		return false;
	setsockopt(r->fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes));
	setsockopt(r->fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof(bytes));
	r->at = mmap(NULL, (size_t)req.tp_block_nr * r->block_bytes, PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_POPULATE, r->fd, 0);
	return r->at != MAP_FAILED && bind(r->fd, (const struct sockaddr *)&at, sizeof(at)) == 0;
}

static struct tpacket2_hdr *
slot_of(const struct ring *r)
{
	return (struct tpacket2_hdr *)(void *)(r->at +
					       (size_t)(r->slot / r->per_block) * r->block_bytes +
					       (size_t)(r->slot % r->per_block) * r->slot_bytes);
}

static uint16_t
load16(const uint8_t *p)
{
	return (uint16_t)(p[0] << 8 | p[1]);
}

static void
store16(uint8_t *p, unsigned v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

static uint32_t
sum16(const uint8_t *p, unsigned n)
{
	uint32_t sum = 0;

	for (unsigned i = 0; i < n; i += 2)
		sum += load16(p + i);
	return sum;
}

static unsigned
fold(uint32_t sum)
{
	while (sum > 0xFFFF)
		sum = (sum & 0xFFFF) + (sum >> 16);
	return sum;
}

/** Headers of an answer of so many bytes, in place: back to who sent the frame. */
static void
answer_headers(struct ring *r, unsigned bytes)
{
	uint8_t *ip = r->headers + 14, *udp = ip + 20;

	store16(ip + 2, bytes + 28);
	store16(ip + 10, 0);
	store16(ip + 10, ~fold(sum16(ip, 20)));
	store16(udp + 4, bytes + 8);
	/* of the pseudo header, not complemented: who segments completes it */
	store16(udp + 6, fold(sum16(ip + 12, 8) + IPPROTO_UDP + bytes + 8));
}

static void
learn_headers(struct ring *r, const uint8_t *frame)
{
	uint8_t *h = r->headers, *ip = h + 14;

	memcpy(h, frame + 6, 6);
	memcpy(h + 6, frame, 6);
	memcpy(h + 12, frame + 12, 2);
	memcpy(ip, frame + 14, 28);
	memcpy(ip + 12, frame + 14 + 16, 4);
	memcpy(ip + 16, frame + 14 + 12, 4);
	memcpy(ip + 20, frame + 14 + 22, 2);
	memcpy(ip + 22, frame + 14 + 20, 2);
}

static bool
send_answers(struct ring *r, struct floor_side *s, unsigned most, unsigned *sent)
{
	struct virtio_net_hdr vnet = {.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
		.hdr_len = HEADERS,
		.csum_start = 34,
		.csum_offset = 6,
		.gso_size = (uint16_t)s->fragment};
	struct iovec iov[2 + 2 * FLOOR_MOST] = {{&vnet, sizeof(vnet)}, {r->headers, HEADERS}};
	struct msghdr m = {.msg_iov = iov};
	unsigned n, k = floor_train(s, most, iov + 2, &n);

	if (k > 1)
		vnet.gso_type = VIRTIO_NET_HDR_GSO_UDP_L4;
	else
		vnet.gso_size = 0;
	answer_headers(r, k * s->fragment);
	m.msg_iovlen = 2 + n;
	if (sendmsg(r->fd, &m, 0) < 0)
		return false;
	floor_moved(s, k);
	*sent = k;
	return true;
}

/** The frame of the next slot, from the ring or from beside it; NULL: an error. */
static const uint8_t *
take(struct ring *r, struct tpacket2_hdr *h, uint32_t *bytes)
{
	*bytes = h->tp_len;
	if (h->tp_snaplen == h->tp_len) {
		memcpy(r->buffer, (const uint8_t *)h + h->tp_mac, h->tp_len);
		return r->buffer;
	}
	if ((h->tp_status & TP_STATUS_COPY) == 0)
		return NULL;
	if (recv(r->fd, r->buffer, sizeof(r->buffer), MSG_DONTWAIT) !=
		(ssize_t)(sizeof(struct virtio_net_hdr) + h->tp_len))
		return NULL;
	return r->buffer + sizeof(struct virtio_net_hdr);
}

bool
floor_ring(const char *device, struct floor_side *in, struct floor_side *answers)
{
	static struct ring r;
	struct pollfd p;

	if (!ring_open(&r, device, answers->fragment)) {
		fprintf(stderr, "floor: a packet ring on %s: %s\n", device, strerror(errno));
		return false;
	}
	floor_ready();
	for (p = (struct pollfd){.fd = r.fd, .events = POLLIN};;) {
		struct tpacket2_hdr *h = slot_of(&r);
		const uint8_t *frame;
		uint32_t bytes;
		unsigned n, sent;

		if ((__atomic_load_n(&h->tp_status, __ATOMIC_ACQUIRE) & TP_STATUS_USER) == 0) {
			if (poll(&p, 1, PATIENCE) == 0)
				return in->moved > 0;
			continue;
		}
		frame = take(&r, h, &bytes);
		if (frame == NULL) {
			fprintf(stderr, "floor: a frame of %u bytes is not whole\n", bytes);
			return false;
		}
		__atomic_store_n(&h->tp_status, TP_STATUS_KERNEL, __ATOMIC_RELEASE);
		r.slot = (r.slot + 1) % r.slots;
		if (load16(frame + 12) != ETH_P_IP || frame[23] != IPPROTO_UDP ||
			load16(frame + 36) != FLOOR_PORT)
			continue;
		n = (bytes - HEADERS) / answers->fragment;
		if (n == 0) /* the end */
			return in->moved > 0;
		learn_headers(&r, frame);
		for (unsigned i = 0; i < n; i++)
			floor_number(in, frame + HEADERS + (size_t)i * in->fragment);
		in->moved += (uint64_t)n * in->fragment;
		for (; n > 0; n -= sent)
			if (!send_answers(&r, answers, n, &sent)) {
				perror("floor: answer");
				return false;
			}
	}
}
