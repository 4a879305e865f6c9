/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Transmit queues, and the rings to the cores that own them. */

#include <rte_cycles.h>
#include <rte_pause.h>

#include "core.h"

/* A full queue is asked again this often before the rest is dropped: the workers ask again. */
#define TX_TRIES 64

static unsigned
push(const struct outbox *o, struct rte_mbuf **m, unsigned n)
{
	if (o->via != NULL)
		return rte_ring_sp_enqueue_burst(o->via, (void **)m, n, NULL);
	return rte_eth_tx_burst(o->port, o->queue, m, (uint16_t)n);
}

static void
outbox_flush(struct core *c, struct outbox *o)
{
	uint64_t bytes = 0, began = unlikely(c->sampled) ? rte_rdtsc() : 0;
	unsigned sent = 0;

	PBOX_ASSERT(o->n <= o->burst && o->burst <= PBOX_PORT_BURST_MAX);
	/* before they are gone; less what is dropped below */
	for (unsigned i = 0; i < o->n; i++)
		bytes += o->m[i]->pkt_len;
	for (unsigned tries = 0; sent < o->n && tries < TX_TRIES; tries++) {
		if (tries > 0)
			rte_pause();
		sent += push(o, o->m + sent, o->n - sent);
	}
	for (unsigned i = sent; i < o->n; i++)
		bytes -= o->m[i]->pkt_len;
	if (sent < o->n) {
		core_count(c, PBOX_CS_TX_DROPPED, o->n - sent);
		rte_pktmbuf_free_bulk(o->m + sent, o->n - sent);
	}
	if (o->via != NULL) {
		core_count(c, PBOX_CS_TX_HANDOFF, sent);
		core_call(o->owner);
	} else {
		core_count(c, PBOX_CS_TX_PACKETS, sent);
		core_count(c, PBOX_CS_TX_BYTES, bytes);
	}
	o->n = 0;
	if (unlikely(c->sampled))
		c->transmit_tsc += rte_rdtsc() - began;
}

/* Send packets through a port, at the end of this turn at the latest. */
void
core_tx_all(struct core *c, unsigned port, struct rte_mbuf **m, unsigned n)
{
	struct outbox *o;

	if (port >= ETHDEVS || c->outbox_of[port] < 0) {
		core_count(c, PBOX_CS_TX_DROPPED, n);
		rte_pktmbuf_free_bulk(m, n);
		return;
	}
	o = &c->out[c->outbox_of[port]];
	for (unsigned i = 0; i < n; i++) {
		o->m[o->n++] = m[i];
		if (o->n == o->burst)
			outbox_flush(c, o);
	}
}

void
core_tx(struct core *c, unsigned port, struct rte_mbuf *m)
{
	core_tx_all(c, port, &m, 1);
}

void
tx_flush(struct core *c)
{
	for (unsigned i = 0; i < c->n_out; i++)
		if (c->out[i].n > 0)
			outbox_flush(c, &c->out[i]);
}

static unsigned
take_ring(struct core *c, struct rte_ring *r)
{
	struct rte_mbuf *m[BURST];
	unsigned n = rte_ring_sc_dequeue_burst(r, (void **)m, BURST, NULL);

	for (unsigned i = 0; i < n; i++)
		core_tx(c, m[i]->port, m[i]);
	return n;
}

/* What others send through our queues: the control thread, and cores without a queue. */
unsigned
core_take_tx(struct core *c)
{
	unsigned n = take_ring(c, c->from_control);

	for (unsigned r = 0; r < c->n_tx_in; r++)
		n += take_ring(c, c->tx_in[r]);
	return n;
}
