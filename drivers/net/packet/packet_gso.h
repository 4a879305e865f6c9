/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PACKET_GSO_H
#define PACKET_GSO_H

/**
 * @file
 * Super-frames: which datagrams may share one, and the headers of both kinds. Pure.
 *
 * A super-frame is Ethernet, IPv4 without options, and UDP, and then the payloads of all its
 * datagrams, each `gso_size` bytes long but for the last, which may be shorter.
 */

#include <stdbool.h>
#include <stdint.h>

#include <linux/virtio_net.h>

#ifndef VIRTIO_NET_HDR_GSO_UDP_L4
#define VIRTIO_NET_HDR_GSO_UDP_L4 5 /* headers of Linux 6.2 */
#endif

struct rte_mbuf;

#define PACKET_HEADERS   42    /**< Ethernet, IPv4, UDP */
#define PACKET_PIECES    128   /**< datagrams of a super-frame; the kernel's own limit */
#define PACKET_SUPER_MAX 65507 /**< bytes of payload */

/** Datagrams of a burst that are sent together: a chain of indices, or one frame of any kind. */
struct packet_group {
	uint16_t first, last, n;
	uint16_t payload; /**< of each but the last; 0: not to be gathered */
	uint16_t iovs;    /**< that their segments take */
	bool closed;
	uint32_t bytes; /**< of payload */
};

/**
 * Put the frames of a burst into groups. Frames of a flow keep their order; groups are in the
 * order of their first frames.
 *
 * A frame is gathered when it is an IPv4 datagram without UDP checksum, so that the kernel may
 * write one, and must not be fragmented, so that its IP id says nothing (RFC 6864).
 *
 * @param next   chain: index of the frame after this one in its group
 * @param group  room for @p n
 * @return how many groups
 */
unsigned packet_gather(
	struct rte_mbuf *const *pkts, unsigned n, struct packet_group *group, uint16_t *next);

/** Headers and virtio-net header of a super-frame from those of its first datagram. */
void packet_super_headers(uint8_t *to, struct virtio_net_hdr *vnet, const uint8_t *first,
	const struct packet_group *g);

/** Whether a super-frame that begins so is one that we can split. @p bytes: of all of it. */
bool packet_super_check(const uint8_t *headers, uint32_t have, uint32_t bytes);

/** What the headers of all datagrams of a super-frame have in common. */
struct packet_pieces {
	uint8_t headers[PACKET_HEADERS]; /**< of the super-frame */
	uint16_t id;                     /**< of the first datagram, as a number */
	uint32_t ip_sum, udp_sum;        /**< of header and pseudo header, without lengths and id */
};

/** Begin with the headers of a super-frame. */
void packet_pieces_begin(struct packet_pieces *p, const uint8_t *super);

/**
 * Headers of the @p i th datagram of a super-frame. Its UDP checksum is left unfinished: the sum
 * of the pseudo header, as the kernel leaves it where hardware is to finish it.
 */
void packet_piece_headers(uint8_t *to, const struct packet_pieces *p, unsigned i, uint16_t payload);

#endif /* PACKET_GSO_H */
