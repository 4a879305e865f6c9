/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* The rings between cores, and between them and the control thread. */

#include <stdio.h>

#include <rte_errno.h>

#include "core.h"

#define SPSC (RING_F_SP_ENQ | RING_F_SC_DEQ)

static struct rte_ring *
ring(const struct core *owner, const char *kind, unsigned from, unsigned to, unsigned n,
	unsigned elem)
{
	char name[RTE_RING_NAMESIZE];

	snprintf(name, sizeof(name), "pbox_%s_%u_%u", kind, from, to);
	return rte_ring_create_elem(name, elem, n, owner->node, SPSC | RING_F_EXACT_SZ);
}

/* Packets that @p from receives and @p to owns. */
static int
hand_ring(struct core *from, struct core *to)
{
	struct handoff *h = &from->to[to->index];

	if (from == to || h->ring != NULL)
		return 0;
	h->ring = ring(to, "rx", from->index, to->index, RING_HANDOFF, sizeof(void *));
	if (h->ring == NULL)
		return -rte_errno;
	h->owner = to;
	from->target[from->n_targets++] = to->index;
	to->rx_in[to->n_rx_in++] = h->ring;
	return 0;
}

/* One core serves one port: its queue, or a ring to the core that has one. */
static int
rings_serve(struct pbox_dp *dp, struct pbox_port *p, unsigned i)
{
	struct core *c = dp->core[p->conf.core[i]];
	struct outbox *o = &c->out[c->n_out];
	struct core *via = dp->core[p->conf.core[i % p->n_queues]];

	c->outbox_of[p->conf.id] = (int8_t)c->n_out++;
	o->port = p->conf.id;
	o->burst = p->dev.burst;
	o->queue = (uint16_t)(i % p->n_queues);
	if (i < p->n_queues) {
		c->rxq[c->n_rxq++] = (struct rx_queue){p, (uint16_t)i};
	} else {
		char kind[8];

		snprintf(kind, sizeof(kind), "tx%u", p->conf.id);
		o->via = ring(via, kind, c->index, via->index, RING_HANDOFF, sizeof(void *));
		if (o->via == NULL)
			return -rte_errno;
		o->owner = via;
		via->tx_in[via->n_tx_in++] = o->via;
	}
	for (unsigned q = 0; q < p->n_queues; q++) {
		int ret = hand_ring(dp->core[p->conf.core[q]], c);

		if (ret != 0)
			return ret;
	}
	return 0;
}

static int
control_rings(struct core *c)
{
	unsigned i = c->index;

	c->to_control = ring(c, "up", i, 0, RING_CONTROL, sizeof(void *));
	c->sessions = ring(c, "own", i, 0, RING_CONTROL, sizeof(void *));
	c->from_control = ring(c, "down", 0, i, RING_CONTROL, sizeof(void *));
	c->mail_in = ring(c, "mail", 0, i, PBOX_DP_MAILS, sizeof(struct pbox_mail));
	c->mail_out = ring(c, "reply", i, 0, PBOX_DP_MAILS, sizeof(struct pbox_mail));
	return c->to_control == NULL || c->sessions == NULL || c->from_control == NULL ||
			       c->mail_in == NULL || c->mail_out == NULL
		       ? -rte_errno
		       : 0;
}

static size_t
rings_bytes(unsigned n, unsigned elem)
{
	/* of exact size: one more, then a power of two */
	ssize_t size = rte_ring_get_memsize_elem(elem, rte_align32pow2(n + 1));

	return size > 0 ? (size_t)size : 0;
}

size_t
rings_control_bytes(void)
{
	return 3 * rings_bytes(RING_CONTROL, sizeof(void *)) +
	       2 * rings_bytes(PBOX_DP_MAILS, sizeof(struct pbox_mail));
}

size_t
rings_port_bytes(const struct pbox_port *p)
{
	/* one from each core that has a queue, and one to it */
	return (p->n_queues + 1u) * rings_bytes(RING_HANDOFF, sizeof(void *));
}

int
rings_create(struct pbox_dp *dp, struct pbox_error *err)
{
	int ret = 0;

	_Static_assert(sizeof(struct pbox_mail) % 4 == 0, "rings want it");
	for (unsigned i = 0; ret == 0 && i < dp->conf.n_cores; i++)
		ret = control_rings(dp->core[i]);
	for (unsigned p = 0; ret == 0 && p < dp->conf.n_ports; p++)
		for (unsigned i = 0; ret == 0 && i < dp->conf.port[p].conf.n_cores; i++)
			ret = rings_serve(dp, &dp->conf.port[p], i);
	if (ret != 0)
		return pbox_fail(err, -ret, "rings between %u cores: %s", dp->conf.n_cores,
			rte_strerror(-ret));
	return 0;
}

void
rings_free(struct pbox_dp *dp)
{
	for (unsigned i = 0; i < dp->conf.n_cores; i++) {
		struct core *c = dp->core[i];

		if (c == NULL)
			continue;
		for (unsigned r = 0; r < c->n_rx_in; r++)
			rte_ring_free(c->rx_in[r]);
		for (unsigned r = 0; r < c->n_tx_in; r++)
			rte_ring_free(c->tx_in[r]);
		rte_ring_free(c->to_control);
		rte_ring_free(c->sessions);
		rte_ring_free(c->from_control);
		rte_ring_free(c->mail_in);
		rte_ring_free(c->mail_out);
		rte_ring_free(c->up);
		rte_ring_free(c->down);
	}
}
