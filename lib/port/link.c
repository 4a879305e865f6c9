/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <net/if.h>
#include <stdatomic.h>
#include <stdio.h>

#include <rte_cycles.h>

#include "port_priv.h"

#define POLL_MS 10

/* On EAL's interrupt thread. */
static int
on_link(uint16_t id __rte_unused, enum rte_eth_event_type event __rte_unused, void *ctx,
	void *ret __rte_unused)
{
	struct pbox_port *p = ctx;

	atomic_fetch_add_explicit(&p->link_events, 1, memory_order_relaxed);
	return 0;
}

void
port_link_watch(struct pbox_port *p)
{
	if (p->dev.lsc)
		rte_eth_dev_callback_register(p->conf.id, RTE_ETH_EVENT_INTR_LSC, on_link, p);
}

void
port_link_unwatch(struct pbox_port *p)
{
	if (p->dev.lsc)
		rte_eth_dev_callback_unregister(p->conf.id, RTE_ETH_EVENT_INTR_LSC, on_link, p);
}

/* What became of the interface that the device was opened on. */
enum interface {
	IFACE_NONE, /* it has none */
	IFACE_SAME,
	IFACE_GONE,
	IFACE_OTHER, /* one of the same name, which the device does not have: deleted, and made again */
};

static enum interface
iface_of(const struct pbox_port *p)
{
	struct rte_eth_dev_info info;
	unsigned now;

	if (p->dev.kernel_if[0] == '\0')
		return IFACE_NONE;
	now = if_nametoindex(p->dev.kernel_if);
	if (now == 0)
		return IFACE_GONE;
	return rte_eth_dev_info_get(p->conf.id, &info) == 0 && info.if_index != 0 &&
			       info.if_index != now
		       ? IFACE_OTHER
		       : IFACE_SAME;
}

/* Virtual drivers claim a link whatever their interface does: ask the kernel too. */
static bool
is_up(const struct pbox_port *p)
{
	int flags = p->dev.kernel_if[0] != '\0' ? port_kernel_flags(p->dev.kernel_if) : -1;
	struct rte_eth_link link = {0};
	bool up;

	/* a device that does not know counts as connected; net_packet takes up an interface that was made again */
	up = rte_eth_link_get_nowait(p->conf.id, &link) != 0 || link.link_status == RTE_ETH_LINK_UP;
	return up && !(flags >= 0 && (flags & IFF_RUNNING) == 0) && iface_of(p) != IFACE_GONE &&
	       iface_of(p) != IFACE_OTHER;
}

/* Switched off by the administrator: waiting does not help. */
static bool
switched_off(const struct pbox_port *p)
{
	int flags = p->dev.kernel_if[0] != '\0' ? port_kernel_flags(p->dev.kernel_if) : -1;

	return flags >= 0 && (flags & IFF_UP) == 0;
}

const char *
pbox_port_link_advice(const struct pbox_port *p, char *buf, size_t size)
{
	enum interface is = iface_of(p);

	if (is == IFACE_GONE)
		snprintf(buf, size, "interface %s is gone: make it again", p->dev.kernel_if);
	else if (is == IFACE_OTHER)
		snprintf(buf, size, "interface %s was deleted and made again: restart pbox",
			p->dev.kernel_if);
	else if (switched_off(p))
		snprintf(buf, size, "ip link set %s up", p->dev.kernel_if);
	else
		snprintf(buf, size, "check the cable and the other side");
	return buf;
}

bool
pbox_port_wait_link(struct pbox_port *p, unsigned timeout_ms, bool (*stop)(void))
{
	char advice[96];

	for (unsigned waited = 0;
		!is_up(p) && !switched_off(p) && waited < timeout_ms && (stop == NULL || !stop());
		waited += POLL_MS)
		rte_delay_us_sleep(POLL_MS * 1000);
	p->link_up = is_up(p);
	if (!p->link_up)
		port_note(p, "link down: %s, or remove %s",
			pbox_port_link_advice(p, advice, sizeof(advice)), p->conf.where);
	return p->link_up;
}

int
pbox_port_link_change(struct pbox_port *p)
{
	unsigned events = atomic_load_explicit(&p->link_events, memory_order_relaxed);
	int up;

	/* with interrupts nothing is asked of the device until it says something; one of a single vector, which is that
	 * of packets, never says it */
	if (p->dev.lsc && !p->rx_intr && p->dev.kernel_if[0] == '\0' && p->link_up >= 0 &&
		events == p->link_seen)
		return 0;
	p->link_seen = events;
	up = is_up(p);
	if (up == p->link_up)
		return 0;
	p->link_up = up;
	return up ? 1 : -1;
}
