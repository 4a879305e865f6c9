/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_ARP_H
#define PBOX_ARP_H

/**
 * @file
 * The next hop's MAC address, for workers that send Ethernet frames themselves (drivers/client/dpdk). The box needs no
 * table: it answers to the source MAC of a request.
 *
 * Fixed size, no memory of its own, no clock, no lock: one thread owns it. It sends nothing: it
 * says when the caller shall send a request. It learns from replies to requests of its own alone,
 * while they are open, the first reply wins: gratuitous and forged ARP change nothing.
 */

#include "pbox_net.h"

#define PBOX_ARP_ENTRIES        64
#define PBOX_ARP_VALID_US       UINT64_C(60000000) /**< a reply is good for a minute */
#define PBOX_ARP_REFRESH_US     UINT64_C(45000000) /**< asked again from this age on, if in use */
#define PBOX_ARP_RETRY_US       UINT64_C(1000000)  /**< between two requests for one address */
#define PBOX_ARP_TRIES          3
#define PBOX_ARP_DEAD_US        UINT64_C(5000000) /**< no request after PBOX_ARP_TRIES without reply */
#define PBOX_ARP_REQUESTS_PER_S 16                /**< over all addresses */

enum pbox_arp_state {
	PBOX_ARP_RESOLVED,    /**< mac is valid */
	PBOX_ARP_WAIT,        /**< asked, or about to be: try again */
	PBOX_ARP_UNREACHABLE, /**< several requests without a reply */
	PBOX_ARP_NO_ROUTE,    /**< outside of the subnet, and there is no gateway */
	PBOX_ARP_FULL,        /**< no room: all entries wait for replies */
};

struct pbox_arp_answer {
	enum pbox_arp_state state;
	bool ask;          /**< send pbox_net_arp_request() for next_hop now (any state) */
	uint32_t next_hop; /**< network order; 0 with NO_ROUTE */
	uint8_t mac[6];    /**< with RESOLVED */
};

/** Private: an entry; ip 0 means free. */
struct pbox_arp_entry {
	uint32_t ip;
	uint8_t mac[6];
	bool valid;
	uint8_t tries;    /* requests since the last reply; 0: none is open */
	uint64_t replied; /* when valid */
	uint64_t asked;   /* when tries > 0 */
	uint64_t used;
};

struct pbox_arp {
	struct pbox_net_if nif;
	uint32_t gateway;
	uint32_t budget; /* requests left in this second */
	uint64_t budget_since;
	uint64_t learned; /**< replies taken */
	uint64_t refused; /**< replies that nobody asked for */
	struct pbox_arp_entry entries[PBOX_ARP_ENTRIES];
};

/** Start empty. @p gateway: network order, 0 for none. */
void pbox_arp_init(struct pbox_arp *arp, const struct pbox_net_if *nif, uint32_t gateway);

/** Where frames to @p dst_ip go. @p now_us never runs backwards. */
struct pbox_arp_answer pbox_arp_lookup(struct pbox_arp *arp, uint32_t dst_ip, uint64_t now_us);

/** Give it a frame that pbox_net_parse() called ARP_REPLY. False: not asked for, ignored. */
bool pbox_arp_reply(struct pbox_arp *arp, const struct pbox_net_pkt *reply, uint64_t now_us);

#endif /* PBOX_ARP_H */
