/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdatomic.h>

#include <rte_cycles.h>

#include "port_priv.h"

#define POLL_MS 10

/* On EAL's interrupt thread. */
static int
on_link(uint16_t id, enum rte_eth_event_type event, void *ctx, void *ret)
{
	struct pbox_port *p = ctx;

	(void)id;
	(void)event;
	(void)ret;
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

static bool
is_up(const struct pbox_port *p)
{
	struct rte_eth_link link = {0};

	/* a device that cannot tell is taken for connected */
	return rte_eth_link_get_nowait(p->conf.id, &link) != 0 ||
	       link.link_status == RTE_ETH_LINK_UP;
}

bool
pbox_port_wait_link(struct pbox_port *p, unsigned timeout_ms)
{
	for (unsigned waited = 0; !is_up(p) && waited < timeout_ms; waited += POLL_MS)
		rte_delay_us_sleep(POLL_MS * 1000);
	p->link_up = is_up(p);
	if (!p->link_up)
		port_note(p, "no link: check the cable and the other side, or remove %s",
			p->conf.where);
	return p->link_up;
}

int
pbox_port_link_change(struct pbox_port *p)
{
	unsigned events = atomic_load_explicit(&p->link_events, memory_order_relaxed);
	int up;

	/* with interrupts nothing is asked of the device until it says something */
	if (p->dev.lsc && p->link_up >= 0 && events == p->link_seen)
		return 0;
	p->link_seen = events;
	up = is_up(p);
	if (up == p->link_up)
		return 0;
	p->link_up = up;
	return up ? 1 : -1;
}
