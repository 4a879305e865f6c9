/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* The transport of lib/worker on the ports: each datagram is copied into a packet, whose headers are written once for each address. */

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "library.h"

uint64_t
library_clock_ns(const struct lane *l)
{
	return l->now * 1000 | 1;
}

/* The next host on the way to an address; NULL: it is not known yet, and main and the first lane look for it. */
static const struct hop *
way_to(struct lane *l, unsigned port, uint32_t ip)
{
	struct testps *t = l->t;
	const struct pbox_port *p = &t->port[port];
	uint32_t mask = p->nif.prefix_len == 0 ? 0 : htonl(UINT32_MAX << (32 - p->nif.prefix_len));
	uint32_t next = ((ip ^ p->nif.ip) & mask) == 0 ? ip : p->conf.gateway;
	unsigned n = atomic_load(&t->hops);

	for (unsigned i = 0; i < n; i++)
		if (t->hop[port][i].ip == next)
			return atomic_load_explicit(&t->hop[port][i].known, memory_order_acquire)
				       ? &t->hop[port][i]
				       : NULL;
	atomic_store(&l->hop_wanted, ip);
	return NULL;
}

static const struct pbox_net_udp_template *
route_of(struct library_worker *x, struct pbox_client_peer *peer)
{
	struct testps *t = x->l->t;
	const struct hop *h;
	struct route *r;
	unsigned i = (unsigned)peer->cookie;

	if (i > 0 && x->route[i - 1].to.sin_addr.s_addr == peer->addr.sin_addr.s_addr &&
		x->route[i - 1].to.sin_port == peer->addr.sin_port)
		return &x->route[i - 1].headers;
	h = way_to(x->l, lane_port_of(t, x->number), peer->addr.sin_addr.s_addr);
	if (h == NULL)
		return NULL;
	if (i == 0) {
		r = aligned_alloc(64, (x->routes + 1) * sizeof(*r));
		if (r == NULL)
			return NULL;
		if (x->routes > 0)
			memcpy(r, x->route, x->routes * sizeof(*r));
		free(x->route);
		x->route = r;
		i = ++x->routes;
		peer->cookie = i;
	}
	r = &x->route[i - 1];
	r->to = peer->addr;
	pbox_net_udp_template(&r->headers, &t->nif[x->number], t->udp[x->number], h->mac,
		peer->addr.sin_addr.s_addr, ntohs(peer->addr.sin_port), 0);
	return &r->headers;
}

void
library_send(void *ctx, const struct pbox_client_tx *d, unsigned n)
{
	struct library_worker *x = ctx;

	for (unsigned i = 0; i < n; i++) {
		const struct pbox_net_udp_template *to = route_of(x, d[i].to);

		if (to != NULL) /* else lost like any other */
			lane_datagram(x->l, x->number, to, &d[i]);
	}
}

void
library_wake(struct lane *l, struct library_worker *x)
{
	struct library *b = l->library;

	if (!x->dirty)
		b->dirty[b->side][b->n_dirty++] = (unsigned)(x - b->x);
	x->dirty = true;
}

void
library_datagram(
	struct lane *l, unsigned worker, const struct rte_mbuf *m, const struct pbox_net_pkt *k)
{
	struct library_worker *x = &l->library->x[worker / l->t->lanes];
	struct pbox_client_rx d = {.len = k->payload_len,
		.ecn = (uint8_t)k->ecn,
		.from = {.sin_family = AF_INET,
			.sin_port = htons(k->src_port),
			.sin_addr.s_addr = k->src_ip}};

	d.data = rte_pktmbuf_read(m, k->payload_offset, k->payload_len, l->flat);
	if (d.data == NULL || x->program == PROGRAM_CLOSED || x->program == PROGRAM_LEFT) {
		lane_count(l, LS_DROP_NET, 1);
		return;
	}
	if (k->ecn == PBOX_NET_ECN_CE)
		lane_count(l, LS_ECN, 1);
	pbox_worker_rx(x->w, &d, 1, library_clock_ns(l));
	library_wake(l, x);
}
