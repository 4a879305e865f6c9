/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef NET_FORMAT_H
#define NET_FORMAT_H

/* Numbers that parser and writers share: IEEE 802.3, 802.1Q; RFC 826, 791, 792, 768. */

#define ETH_TYPE_IP   0x0800
#define ETH_TYPE_ARP  0x0806
#define ETH_TYPE_VLAN 0x8100
#define ETH_TYPE_QINQ 0x88A8
#define VLAN_LEN      4

#define ARP_PACKET_LEN 28
#define ARP_REQUEST    1
#define ARP_REPLY      2

#define IP_PROTO_ICMP 1
#define IP_PROTO_UDP  17
#define IP_DF         0x4000
#define IP_TTL_SENT   64

#define ICMP_ECHO_LEN     8
#define ICMP_ECHO_REQUEST 8

#include <stdint.h>
#include <string.h>

static inline uint32_t
get_u32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, 4);
	return v;
}

#endif /* NET_FORMAT_H */
