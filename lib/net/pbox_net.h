/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_NET_H
#define PBOX_NET_H

/**
 * @file
 * Ethernet, ARP, IPv4, ICMP echo and UDP, as far as a box that answers needs them: a strict parser
 * and the writers of the few frames that the box sends. Flat bytes in and out, no packet buffers,
 * no memory of its own, no clock: every function may be called by any thread on its own data.
 *
 * Byte order: MAC addresses are six bytes as they are in the frame. IPv4 addresses are a
 * uint32_t that holds the four bytes as they are in the frame (network order: compare, copy,
 * but do not calculate). Ports, lengths and ids are host order.
 *
 * Decisions of the parser:
 * - A tag 802.1Q with VLAN id 0 (priority only) is read through and remembered; any other tag,
 *   and a second one, is the drop eth_vlan: what belongs to another VLAN is not for us.
 * - IP options are the drop ip_options. No sender of PBox frames sets them, and source routing
 *   must not steer the answers of the box.
 * - The time to live is not looked at: a host must take what reached it (RFC 1122, 3.2.1.7).
 * - A frame to the broadcast or a multicast MAC is looked at for ARP only: a datagram to our
 *   address in a broadcast frame is a forgery or a loop (RFC 1122, 3.3.6).
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define PBOX_NET_ETH_LEN     14    /**< untagged Ethernet header */
#define PBOX_NET_IP_LEN      20    /**< IPv4 header without options */
#define PBOX_NET_UDP_LEN     8     /**< UDP header */
#define PBOX_NET_HEADERS_LEN 42    /**< what pbox_net_udp_header() writes */
#define PBOX_NET_ARP_LEN     42    /**< an ARP frame without padding */
#define PBOX_NET_PAYLOAD_MAX 65507 /**< UDP payload that an IPv4 total length allows */

/** Every verdict of the parser: what to do with a frame, then each reason to drop one.
 * X(symbol, name, help) generates the enum and the table of names. */
#define PBOX_NET_ACCEPTS(X)                                                        \
	X(UDP, "udp", "UDP datagrams for this port")                               \
	X(ARP_REQUEST, "arp_request", "ARP requests for the address of this port") \
	X(ARP_REPLY, "arp_reply", "ARP replies to this port")                      \
	X(ICMP_ECHO, "icmp_echo", "ICMP echo requests (ping) for this port")
#define PBOX_NET_DROPS(X)                                                                          \
	X(ETH_SHORT, "eth_short", "shorter than an Ethernet header")                               \
	X(ETH_SOURCE, "eth_source", "source MAC is a group address, zero or our own (a loop)")     \
	X(ETH_VLAN, "eth_vlan", "802.1Q tag of a VLAN, or a second tag")                           \
	X(ETH_TYPE, "eth_type", "neither IPv4 nor ARP")                                            \
	X(NOT_OURS_MAC, "not_ours_mac", "destination MAC is not this port's")                      \
	X(NOT_OURS_IP, "not_ours_ip", "destination IPv4 address is not this port's")               \
	X(ARP_SHORT, "arp_short", "shorter than an ARP packet")                                    \
	X(ARP_MALFORMED, "arp_malformed", "ARP not for IPv4 on Ethernet, or an impossible sender") \
	X(ARP_OPERATION, "arp_operation", "ARP operation is neither request nor reply")            \
	X(ARP_CONFLICT, "arp_conflict", "another host claims the IPv4 address of this port")       \
	X(IP_SHORT, "ip_short", "shorter than an IPv4 header")                                     \
	X(IP_VERSION, "ip_version", "IP version is not 4")                                         \
	X(IP_HEADER_LENGTH, "ip_header_length", "IPv4 header length below 20 bytes")               \
	X(IP_OPTIONS, "ip_options", "IPv4 header with options")                                    \
	X(IP_TOTAL_LENGTH, "ip_total_length", "IPv4 total length below the header length")         \
	X(IP_TRUNCATED, "ip_truncated",                                                            \
		"IPv4 packet cut off: offload of the sender, or frame size")                       \
	X(IP_CHECKSUM, "ip_checksum", "IPv4 header checksum is wrong")                             \
	X(IP_FRAGMENT, "ip_fragment", "IPv4 fragments: a sender uses a larger MTU than the path")  \
	X(IP_SOURCE, "ip_source",                                                                  \
		"source IPv4 address is zero, loopback, multicast, broadcast or our own")          \
	X(IP_PROTOCOL, "ip_protocol", "neither UDP nor ICMP")                                      \
	X(ICMP_SHORT, "icmp_short", "shorter than an ICMP echo header")                            \
	X(ICMP_CHECKSUM, "icmp_checksum", "ICMP checksum is wrong")                                \
	X(ICMP_OTHER, "icmp_other", "ICMP that is not an echo request")                            \
	X(UDP_SHORT, "udp_short", "shorter than a UDP header")                                     \
	X(UDP_LENGTH, "udp_length", "UDP length is not what the IPv4 header says")                 \
	X(UDP_PORT, "udp_port", "source or destination UDP port is 0")

enum pbox_net_verdict {
#define PBOX_NET_ACCEPT_SYMBOL(symbol, name, help) PBOX_NET_##symbol,
#define PBOX_NET_DROP_SYMBOL(symbol, name, help)   PBOX_NET_DROP_##symbol,
	PBOX_NET_ACCEPTS(PBOX_NET_ACCEPT_SYMBOL) PBOX_NET_DROPS(PBOX_NET_DROP_SYMBOL)
		PBOX_NET_VERDICTS
#undef PBOX_NET_ACCEPT_SYMBOL
#undef PBOX_NET_DROP_SYMBOL
};
#define PBOX_NET_DROP_FIRST PBOX_NET_DROP_ETH_SHORT

/** Name and one line of help for each verdict: a counter an entry, in the order of the enum. */
struct pbox_net_verdict_info {
	const char *name;
	const char *help;
};
extern const struct pbox_net_verdict_info pbox_net_verdicts[PBOX_NET_VERDICTS];

/** Whether a verdict is a reason to drop. */
static inline bool
pbox_net_is_drop(enum pbox_net_verdict v)
{
	return v >= PBOX_NET_DROP_FIRST;
}

/** The address of a port of the box. */
struct pbox_net_if {
	uint8_t mac[6];
	uint8_t prefix_len; /**< of the subnet, 0 to 32: gives its broadcast address */
	uint32_t ip;        /**< network order */
};

/** Flags of pbox_net_parse(). */
#define PBOX_NET_F_IP_GOOD   0x1u /**< the port found the IPv4 header checksum right */
#define PBOX_NET_F_UDP_GOOD  0x2u /**< the port found the UDP checksum right */
#define PBOX_NET_F_UDP_DEFER 0x4u /**< do not read the payload: pbox_net_udp_check() may later */

enum pbox_net_udp_checksum {
	PBOX_NET_UDP_UNCHECKED, /**< F_UDP_DEFER, and there is one */
	PBOX_NET_UDP_GOOD,
	PBOX_NET_UDP_ZERO, /**< the sender sent none */
	PBOX_NET_UDP_BAD,  /**< not a drop: the CRC of the frames decides (protocol R2.4) */
};

#define PBOX_NET_ECT0   2 /**< ECN-capable: a switch may mark the packet instead of losing it */
#define PBOX_NET_ECN_CE 3 /**< value of pbox_net_pkt.ecn: congestion experienced (RFC 3168) */

/** What the parser found. Only what the verdict is about is defined. */
struct pbox_net_pkt {
	uint8_t src_mac[6]; /**< all: of the Ethernet header, where an answer goes */
	uint8_t dst_mac[6]; /**< all */
	uint32_t src_ip;    /**< all: of the IPv4 header, or the sender of ARP */
	uint32_t dst_ip;    /**< all: of the IPv4 header, or the target of ARP */
	uint16_t src_port;  /**< UDP */
	uint16_t dst_port;  /**< UDP */
	uint16_t l3_offset; /**< all: 14, or 18 after a tag */
	uint16_t
		payload_offset; /**< UDP, ICMP: first byte after the UDP or ICMP header (8 bytes) */
	uint16_t payload_len; /**< UDP, ICMP; payload_offset + payload_len <= length of the frame */
	uint16_t vlan_tci;    /**< all: priority bits of the tag if tagged, else 0 */
	uint8_t tagged;       /**< all: 1 with an 802.1Q tag */
	uint8_t ecn;          /**< UDP, ICMP: the two ECN bits */
	uint8_t ttl;          /**< UDP, ICMP */
	uint8_t udp_checksum; /**< UDP: enum pbox_net_udp_checksum */
	uint8_t arp_mac[6];   /**< ARP: hardware address of the sender */
};

/**
 * Judge one received frame.
 *
 * @param frame first byte of the Ethernet header; any alignment.
 * @param len bytes that may be read there. Padding after the IPv4 packet is ignored. Of a frame
 *   in several buffers give the first: what does not fit is ip_truncated.
 * @param nif the port's address.
 * @param flags PBOX_NET_F_*.
 * @param out filled as far as parsing went; defined by the verdict.
 * @return what it is, or the one reason to drop it.
 */
enum pbox_net_verdict pbox_net_parse(const void *frame, size_t len, const struct pbox_net_if *nif,
	unsigned flags, struct pbox_net_pkt *out);

/** Check the UDP checksum of a frame that pbox_net_parse() accepted as UDP. Never UNCHECKED. */
enum pbox_net_udp_checksum pbox_net_udp_check(const void *frame, const struct pbox_net_pkt *pkt);

/*
 * Checksums (RFC 1071). Sums are of 16-bit words in memory order, so that results are stored as
 * they are, without a byte swap.
 */

/** Add @p len bytes to the sum @p sum (start with 0). All pieces but the last must have an even
 * length. Not folded: exact for 4 GiB and more. */
uint64_t pbox_net_sum(const void *data, size_t len, uint64_t sum);

/** The sum in 16 bits, not complemented. */
static inline uint16_t
pbox_net_sum_fold(uint64_t sum)
{
	sum = (sum & 0xFFFFFFFF) + (sum >> 32);
	sum = (sum & 0xFFFF) + (sum >> 16 & 0xFFFF) + (sum >> 32);
	sum = (sum & 0xFFFF) + (sum >> 16);
	sum = (sum & 0xFFFF) + (sum >> 16);
	return (uint16_t)sum;
}

/** The internet checksum of some bytes, to be stored as it is. 0 over bytes that include theirs. */
uint16_t pbox_net_checksum(const void *data, size_t len);

/*
 * Writers. All return the length of the frame, or 0 if it does not fit @p room. The caller pads to
 * 60 bytes where its port does not.
 */

/** Answer an ARP request. @p frame may be the request itself. */
size_t pbox_net_arp_reply(void *frame, size_t room, const struct pbox_net_if *nif,
	const struct pbox_net_pkt *request);

/** Ask who has @p target, by broadcast. With target = nif->ip: announce ourselves (RFC 5227). */
size_t pbox_net_arp_request(
	void *frame, size_t room, const struct pbox_net_if *nif, uint32_t target);

/** Turn an echo request, parsed from @p frame, into its reply in place (a tag stays). Returns the
 * length without padding. */
size_t pbox_net_icmp_echo_reply(
	void *frame, const struct pbox_net_if *nif, const struct pbox_net_pkt *request);

/** The headers towards one peer, written once. Owner: who sends to the peer; readable by all. */
struct pbox_net_udp_template {
	uint8_t bytes[PBOX_NET_HEADERS_LEN];
	uint16_t ip_sum; /**< folded sum of the IPv4 header without total length, id and checksum */
} __attribute__((aligned(64)));

/** Fill @p t: from nif and @p src_port to the peer, Don't Fragment, TTL 64, DSCP and ECN as in
 * @p tos, UDP checksum 0. */
void pbox_net_udp_template(struct pbox_net_udp_template *t, const struct pbox_net_if *nif,
	uint16_t src_port, const uint8_t dst_mac[6], uint32_t dst_ip, uint16_t dst_port,
	uint8_t tos);

static inline void
pbox_net_put_be16(uint8_t *p, uint16_t v)
{
	p[0] = (uint8_t)(v >> 8);
	p[1] = (uint8_t)v;
}

static inline uint16_t
pbox_net_get_be16(const uint8_t *p)
{
	return (uint16_t)(p[0] << 8 | p[1]);
}

/**
 * Write the 42 bytes of Ethernet, IPv4 and UDP in front of a payload.
 *
 * @param frame room for PBOX_NET_HEADERS_LEN bytes.
 * @param payload_len bytes of UDP payload that follow, <= PBOX_NET_PAYLOAD_MAX.
 * @param ip_id IPv4 identification (any: the packet is never fragmented, RFC 6864).
 */
static inline void
pbox_net_udp_header(
	const struct pbox_net_udp_template *t, void *frame, uint16_t payload_len, uint16_t ip_id)
{
	uint8_t *p = (uint8_t *)frame, len_id[4];
	uint16_t udp_len = (uint16_t)(payload_len + PBOX_NET_UDP_LEN), words[2], check;

	pbox_net_put_be16(len_id, (uint16_t)(udp_len + PBOX_NET_IP_LEN));
	pbox_net_put_be16(len_id + 2, ip_id);
	memcpy(words, len_id, 4);
	check = (uint16_t)~pbox_net_sum_fold((uint64_t)t->ip_sum + words[0] + words[1]);
	memcpy(p, t->bytes, PBOX_NET_HEADERS_LEN);
	memcpy(p + PBOX_NET_ETH_LEN + 2, len_id, 4);
	memcpy(p + PBOX_NET_ETH_LEN + 10, &check, 2);
	pbox_net_put_be16(p + PBOX_NET_ETH_LEN + PBOX_NET_IP_LEN + 4, udp_len);
}

/*
 * The same for a sender with thousands of peers, whose templates would not stay in a cache: one
 * template a port.
 */

/** The headers of all datagrams from one port, written once. Readable by all. */
struct pbox_net_udp_origin {
	uint8_t bytes[PBOX_NET_ETH_LEN + PBOX_NET_IP_LEN];
	uint16_t ip_sum; /**< folded sum of the IPv4 header without what is added for a peer */
} __attribute__((aligned(64)));

/** Where a datagram goes, and from which UDP port. */
struct pbox_net_to {
	uint8_t mac[6];
	uint16_t src_port, dst_port; /**< host order */
	uint32_t ip;
};

/** Fill @p o: from nif, Don't Fragment, TTL 64, DSCP and ECN as in @p tos. */
void pbox_net_udp_origin(struct pbox_net_udp_origin *o, const struct pbox_net_if *nif, uint8_t tos);

/** Everything of it but the total length; @p sum is that of the IPv4 header without id, destination
 * and checksum. */
static inline void
pbox_net_udp_header_from(const struct pbox_net_udp_origin *o, void *frame,
	const struct pbox_net_to *to, uint32_t sum, uint16_t udp_len, uint16_t ip_id)
{
	uint8_t *p = (uint8_t *)frame, v[8];
	uint16_t id, check;

	pbox_net_put_be16(v, ip_id);
	memcpy(&id, v, 2);
	sum += id + (to->ip & 0xFFFF) + (to->ip >> 16);
	sum = (sum & 0xFFFF) + (sum >> 16);
	check = (uint16_t) ~((sum & 0xFFFF) + (sum >> 16));
	memcpy(p, o->bytes, PBOX_NET_ETH_LEN + PBOX_NET_IP_LEN);
	memcpy(p, to->mac, 6);
	p += PBOX_NET_ETH_LEN;
	memcpy(p + 4, v, 2);
	memcpy(p + 10, &check, 2);
	memcpy(p + 16, &to->ip, 4);
	p += PBOX_NET_IP_LEN;
	pbox_net_put_be16(v, to->src_port);
	pbox_net_put_be16(v + 2, to->dst_port);
	pbox_net_put_be16(v + 4, udp_len);
	v[6] = v[7] = 0; /* no checksum */
	memcpy(p, v, 8);
}

/** What pbox_net_udp_header() writes. */
static inline void
pbox_net_udp_header_to(const struct pbox_net_udp_origin *o, void *frame,
	const struct pbox_net_to *to, uint16_t payload_len, uint16_t ip_id)
{
	uint16_t udp_len = (uint16_t)(payload_len + PBOX_NET_UDP_LEN), word;
	uint8_t total[2];

	pbox_net_put_be16(total, (uint16_t)(udp_len + PBOX_NET_IP_LEN));
	memcpy(&word, total, 2);
	pbox_net_udp_header_from(o, frame, to, (uint32_t)o->ip_sum + word, udp_len, ip_id);
	memcpy((uint8_t *)frame + PBOX_NET_ETH_LEN + 2, total, 2);
}

/** The headers of datagrams from one port that have one length. */
static inline void
pbox_net_udp_origin_sized(struct pbox_net_udp_origin *sized, const struct pbox_net_udp_origin *o,
	uint16_t payload_len)
{
	uint16_t word;
	uint8_t total[2];

	/* not into its bytes: they are copied in wider pieces at once, and would have to wait for so narrow a store */
	pbox_net_put_be16(total, (uint16_t)(payload_len + PBOX_NET_UDP_LEN + PBOX_NET_IP_LEN));
	memcpy(&word, total, 2);
	*sized = *o;
	sized->ip_sum = pbox_net_sum_fold((uint64_t)o->ip_sum + word);
}

/** What pbox_net_udp_header() writes, for the @p payload_len that @p sized was made with. */
static inline void
pbox_net_udp_header_sized(const struct pbox_net_udp_origin *sized, void *frame,
	const struct pbox_net_to *to, uint16_t payload_len, uint16_t ip_id)
{
	uint16_t udp_len = (uint16_t)(payload_len + PBOX_NET_UDP_LEN);

	pbox_net_udp_header_from(sized, frame, to, sized->ip_sum, udp_len, ip_id);
	pbox_net_put_be16(
		(uint8_t *)frame + PBOX_NET_ETH_LEN + 2, (uint16_t)(udp_len + PBOX_NET_IP_LEN));
}

/** Add the UDP checksum to a header written by pbox_net_udp_header(), whose payload of the same
 * length may be elsewhere. */
void pbox_net_udp_checksum_set(void *frame, const void *payload, size_t payload_len);

#endif /* PBOX_NET_H */
