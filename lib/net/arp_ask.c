/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "pbox_arp.h"

/* The addresses that a worker on DPDK asks for. The box needs none: it answers to where a request came from. build.c makes
 * replies to those who ask for ours, the data plane's rx.c sends them. */

#define SECOND_US UINT64_C(1000000)

void
pbox_arp_init(struct pbox_arp *arp, const struct pbox_net_if *nif, uint32_t gateway)
{
	memset(arp, 0, sizeof(*arp));
	arp->nif = *nif;
	arp->gateway = gateway;
	arp->budget = PBOX_ARP_REQUESTS_PER_S;
}

static bool
same_subnet(uint32_t a, uint32_t b, unsigned prefix_len)
{
	uint8_t x[4], y[4];
	unsigned bits = prefix_len < 32 ? prefix_len : 32, i;

	memcpy(x, &a, 4);
	memcpy(y, &b, 4);
	for (i = 0; i < bits / 8; i++)
		if (x[i] != y[i])
			return false;
	return bits % 8 == 0 || (x[i] ^ y[i]) >> (8 - bits % 8) == 0;
}

static struct pbox_arp_entry *
arp_find(struct pbox_arp *arp, uint32_t ip)
{
	for (unsigned i = 0; i < PBOX_ARP_ENTRIES; i++)
		if (arp->entries[i].ip == ip)
			return &arp->entries[i];
	return NULL;
}

/* Whether a reply to the last request may still come. */
static bool
is_open(const struct pbox_arp_entry *e, uint64_t now)
{
	return e->tries > 0 && now - e->asked < PBOX_ARP_RETRY_US;
}

static bool
is_fresh(const struct pbox_arp_entry *e, uint64_t now, uint64_t limit)
{
	return e->valid && now - e->replied < limit;
}

/* A free entry, or the longest unused one of those that do not wait for a reply. */
static struct pbox_arp_entry *
arp_take(struct pbox_arp *arp, uint32_t ip, uint64_t now)
{
	struct pbox_arp_entry *e, *best = NULL;

	for (unsigned i = 0; i < PBOX_ARP_ENTRIES; i++) {
		e = &arp->entries[i];
		if (e->ip == 0) {
			best = e;
			break;
		}
		if (!is_open(e, now) && (best == NULL || e->used < best->used))
			best = e;
	}
	if (best == NULL)
		return NULL;
	memset(best, 0, sizeof(*best));
	best->ip = ip;
	return best;
}

/* Whether to send a request now: bounded for an address, and over all of them. */
static bool
arp_may_ask(struct pbox_arp *arp, struct pbox_arp_entry *e, uint64_t now)
{
	if (is_open(e, now))
		return false;
	if (e->tries >= PBOX_ARP_TRIES) {
		if (now - e->asked < PBOX_ARP_DEAD_US)
			return false;
		e->tries = 0;
	}
	if (now - arp->budget_since >= SECOND_US) {
		arp->budget_since = now;
		arp->budget = PBOX_ARP_REQUESTS_PER_S;
	}
	if (arp->budget == 0)
		return false;
	arp->budget--;
	e->tries++;
	e->asked = now;
	return true;
}

struct pbox_arp_answer
pbox_arp_lookup(struct pbox_arp *arp, uint32_t dst_ip, uint64_t now_us)
{
	struct pbox_arp_answer a = {.state = PBOX_ARP_NO_ROUTE};
	struct pbox_arp_entry *e;

	a.next_hop = same_subnet(dst_ip, arp->nif.ip, arp->nif.prefix_len) ? dst_ip : arp->gateway;
	if (a.next_hop == 0 || a.next_hop == arp->nif.ip) {
		a.next_hop = 0;
		return a;
	}
	e = arp_find(arp, a.next_hop);
	if (e == NULL)
		e = arp_take(arp, a.next_hop, now_us);
	if (e == NULL) {
		a.state = PBOX_ARP_FULL;
		return a;
	}
	e->used = now_us;
	if (is_fresh(e, now_us, PBOX_ARP_VALID_US)) {
		a.state = PBOX_ARP_RESOLVED;
		memcpy(a.mac, e->mac, 6);
		if (!is_fresh(e, now_us, PBOX_ARP_REFRESH_US))
			a.ask = arp_may_ask(arp, e, now_us);
		return a;
	}
	e->valid = false;
	a.ask = arp_may_ask(arp, e, now_us);
	a.state = e->tries >= PBOX_ARP_TRIES && !is_open(e, now_us) ? PBOX_ARP_UNREACHABLE
								    : PBOX_ARP_WAIT;
	return a;
}

bool
pbox_arp_reply(struct pbox_arp *arp, const struct pbox_net_pkt *reply, uint64_t now_us)
{
	struct pbox_arp_entry *e = reply->src_ip == 0 ? NULL : arp_find(arp, reply->src_ip);

	if (e == NULL || !is_open(e, now_us)) {
		arp->refused++;
		return false;
	}
	memcpy(e->mac, reply->arp_mac, 6);
	e->valid = true;
	e->tries = 0;
	e->replied = now_us;
	arp->learned++;
	return true;
}
