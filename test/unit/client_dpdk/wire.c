/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include <rte_eth_ring.h>

#include "eal.h"
#include "unit.h"
#include "wire.h"

void
wire_eal(void)
{
	static const char *const args[] = {"-m", "256", "--no-telemetry", "--lcores", "0@0", NULL};

	unit_eal(args);
}

struct wire *
wire_open(unsigned room)
{
	static unsigned number;
	struct wire *w = calloc(1, sizeof(*w));
	char name[32];
	int id;

	wire_eal();
	number++;
	snprintf(name, sizeof(name), "wire_in_%u", number);
	w->in = rte_ring_create(name, 1024, SOCKET_ID_ANY, 0);
	snprintf(name, sizeof(name), "wire_out_%u", number);
	w->out = rte_ring_create(name, room, SOCKET_ID_ANY, RING_F_EXACT_SZ);
	snprintf(name, sizeof(name), "wire_pool_%u", number);
	w->pool = rte_pktmbuf_pool_create(name, 1024, 0, 0, 2048 + 128, SOCKET_ID_ANY);
	CU_ASSERT_FATAL(w->in != NULL && w->out != NULL && w->pool != NULL);
	snprintf(name, sizeof(name), "wire%u", number);
	id = rte_eth_from_rings(name, &w->in, 1, &w->out, 1, SOCKET_ID_ANY);
	CU_ASSERT_FATAL(id >= 0);
	w->id = (uint16_t)id;
	w->box = (struct pbox_net_if){.mac = {2, 0, 0, 0, 0, 1}, .prefix_len = 24};
	inet_pton(AF_INET, WIRE_BOX, &w->box.ip);
	return w;
}

void
wire_close(struct wire *w)
{
	/* the port stays open for the process, and so do its rings */
	rte_mempool_free(w->pool);
	free(w);
}

struct rte_mbuf *
wire_take(struct wire *w)
{
	void *m;

	return rte_ring_dequeue(w->out, &m) == 0 ? m : NULL;
}

void
wire_give(struct wire *w, const void *frame, size_t len)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(w->pool);

	CU_ASSERT_FATAL(m != NULL && len <= rte_pktmbuf_tailroom(m));
	memcpy(rte_pktmbuf_mtod(m, void *), frame, len);
	m->data_len = (uint16_t)len;
	m->pkt_len = (uint32_t)len;
	CU_ASSERT_FATAL(rte_ring_enqueue(w->in, m) == 0);
}

void
wire_datagram(struct wire *w, const struct dpdk *s, uint16_t from, uint16_t to, const void *data,
	size_t len, uint8_t tos)
{
	struct pbox_net_udp_template t;
	uint8_t frame[2048];

	pbox_net_udp_template(&t, &w->box, from, s->port->p.nif.mac, s->o.ip, to, tos);
	pbox_net_udp_header(&t, frame, (uint16_t)len, 1);
	memcpy(frame + PBOX_NET_HEADERS_LEN, data, len);
	wire_give(w, frame, PBOX_NET_HEADERS_LEN + len);
}

static void *
answer(void *arg)
{
	struct wire *w = arg;

	while (!atomic_load(&w->stop)) {
		struct rte_mbuf *m = wire_take(w);
		struct pbox_net_pkt k;
		uint8_t frame[64];

		if (m == NULL) {
			usleep(100);
			continue;
		}
		if (pbox_net_parse(rte_pktmbuf_mtod(m, void *), m->data_len, &w->box, 0, &k) ==
			PBOX_NET_ARP_REQUEST)
			wire_give(w, frame, pbox_net_arp_reply(frame, sizeof(frame), &w->box, &k));
		rte_pktmbuf_free(m);
	}
	return NULL;
}

void
wire_arp(struct wire *w)
{
	atomic_store(&w->stop, false);
	CU_ASSERT_FATAL(pthread_create(&w->thread, NULL, answer, w) == 0);
}

void
wire_quiet(struct wire *w)
{
	struct rte_mbuf *m;

	atomic_store(&w->stop, true);
	pthread_join(w->thread, NULL);
	while ((m = wire_take(w)) != NULL)
		rte_pktmbuf_free(m);
}

bool
wire_clean(const struct wire *w, const struct dpdk_port *p)
{
	return rte_mempool_in_use_count(w->pool) == 0 &&
	       rte_mempool_in_use_count(p->headers) == 0 &&
	       rte_mempool_in_use_count(p->p.pool[0]) == 0;
}
