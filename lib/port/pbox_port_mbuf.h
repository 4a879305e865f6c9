/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_PORT_MBUF_H
#define PBOX_PORT_MBUF_H

/**
 * @file
 * Packets of a port: what its device has checked already, and the shortest frame of Ethernet. Any thread.
 */

#include <string.h>

#include <rte_config.h>
#include <rte_ether.h>
#include <rte_mbuf.h>

#include "pbox_port.h"

/** For pbox_net_parse(): the checksums that the device vouches for. */
static inline unsigned
pbox_port_rx_flags(const struct pbox_port *p, const struct rte_mbuf *m)
{
	unsigned flags = PBOX_NET_F_UDP_DEFER;

	if (p->dev.rx_ip_checksum &&
		(m->ol_flags & RTE_MBUF_F_RX_IP_CKSUM_MASK) == RTE_MBUF_F_RX_IP_CKSUM_GOOD)
		flags |= PBOX_NET_F_IP_GOOD;
	/* NONE: the port vouches for the data, and nobody has written a checksum */
	if (p->dev.rx_udp_checksum &&
		((m->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK) == RTE_MBUF_F_RX_L4_CKSUM_GOOD ||
			(m->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK) == RTE_MBUF_F_RX_L4_CKSUM_NONE))
		flags |= PBOX_NET_F_UDP_GOOD;
	return flags;
}

/** A packet of one segment has @p len bytes, and zeros up to the least that Ethernet allows. */
static inline void
pbox_port_pad(struct rte_mbuf *m, size_t len)
{
	const size_t least = RTE_ETHER_MIN_LEN - RTE_ETHER_CRC_LEN;

	if (len < least) {
		memset(rte_pktmbuf_mtod_offset(m, uint8_t *, len), 0, least - len);
		len = least;
	}
	m->data_len = (uint16_t)len;
	m->pkt_len = (uint32_t)len;
}

#endif /* PBOX_PORT_MBUF_H */
