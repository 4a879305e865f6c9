/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef FRAMES_H
#define FRAMES_H

/* Frames as another host would write them, byte by byte from the RFCs: not with the writers under
 * test. The host is 10.0.0.7 02:..:07, the box is 10.0.0.1/24 02:..:01. */

#include <pbox_net.h>

#define HOST_MAC                           \
	{                                  \
		0x02, 0x00, 0x00, 0, 0, 7, \
	}
#define BOX_MAC                            \
	{                                  \
		0x02, 0x00, 0x00, 0, 0, 1, \
	}

static inline uint32_t
ip4(uint8_t a, uint8_t b, uint8_t c, uint8_t d)
{
	uint8_t bytes[4] = {a, b, c, d};
	uint32_t ip;

	memcpy(&ip, bytes, 4);
	return ip;
}

static inline struct pbox_net_if
box_if(void)
{
	struct pbox_net_if nif = {.mac = BOX_MAC, .prefix_len = 24, .ip = ip4(10, 0, 0, 1)};

	return nif;
}

/* RFC 1071, the slow and plain way */
static inline uint16_t
plain_checksum(const uint8_t *p, size_t len, uint32_t sum)
{
	for (size_t i = 0; i < len; i++)
		sum += (uint32_t)p[i] << (i % 2 == 0 ? 8 : 0);
	while (sum >> 16)
		sum = (sum & 0xFFFF) + (sum >> 16);
	return (uint16_t)(~sum & 0xFFFF);
}

static inline void
fix_ip_checksum(uint8_t *ip)
{
	uint16_t c;

	ip[10] = ip[11] = 0;
	c = plain_checksum(ip, 20, 0);
	ip[10] = (uint8_t)(c >> 8);
	ip[11] = (uint8_t)c;
}

/* @return length; UDP 10.0.0.7:4242 to 10.0.0.1:7269, checksum good */
static inline size_t
make_udp(uint8_t *f, const void *payload, size_t n)
{
	static const uint8_t head[42] = {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 7, 8, 0,
		/* IPv4 */ 0x45, 0x03, 0, 0, 0x12, 0x34, 0x40, 0, 33, 17, 0, 0, 10, 0, 0, 7, 10, 0,
		0, 1, /* UDP */ 4242 >> 8, 4242 & 255, 7269 >> 8, 7269 & 255, 0, 0, 0, 0};
	uint32_t pseudo = 0;
	uint16_t c;

	memcpy(f, head, 42);
	memcpy(f + 42, payload, n);
	f[16] = (uint8_t)((n + 28) >> 8);
	f[17] = (uint8_t)(n + 28);
	f[38] = (uint8_t)((n + 8) >> 8);
	f[39] = (uint8_t)(n + 8);
	fix_ip_checksum(f + 14);
	for (int i = 26; i < 34; i += 2)
		pseudo += (uint32_t)f[i] << 8 | f[i + 1];
	pseudo += 17 + (uint32_t)n + 8;
	c = plain_checksum(f + 34, n + 8, pseudo);
	if (c == 0)
		c = 0xFFFF;
	f[40] = (uint8_t)(c >> 8);
	f[41] = (uint8_t)c;
	return 42 + n;
}

static inline size_t
make_echo(uint8_t *f, const void *payload, size_t n)
{
	uint16_t c;

	make_udp(f, payload, n);
	f[14 + 9] = 1;
	fix_ip_checksum(f + 14);
	memcpy(f + 34, (const uint8_t[]){8, 0, 0, 0, 0x77, 0x01, 0, 9}, 8);
	c = plain_checksum(f + 34, n + 8, 0);
	f[36] = (uint8_t)(c >> 8);
	f[37] = (uint8_t)c;
	return 42 + n;
}

/* 60 bytes with padding; op 1: broadcast request for the box, op 2: reply to the box */
static inline size_t
make_arp(uint8_t *f, uint8_t op)
{
	static const uint8_t reply[42] = {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 7, 8, 6, 0, 1, 8, 0, 6,
		4, 0, 2, 2, 0, 0, 0, 0, 7, 10, 0, 0, 7, 2, 0, 0, 0, 0, 1, 10, 0, 0, 1};

	memset(f, 0, 60);
	memcpy(f, reply, 42);
	f[21] = op;
	if (op == 1) {
		memset(f, 0xFF, 6);
		memset(f + 32, 0, 6);
	}
	return 60;
}

/* put an 802.1Q tag in; room for 4 bytes more */
static inline size_t
add_tag(uint8_t *f, size_t len, uint16_t tci)
{
	memmove(f + 16, f + 12, len - 12);
	f[12] = 0x81;
	f[13] = 0;
	f[14] = (uint8_t)(tci >> 8);
	f[15] = (uint8_t)tci;
	return len + 4;
}

#endif /* FRAMES_H */
