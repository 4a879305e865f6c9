/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_byteorder.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_malloc.h>
#include <sodium.h>

#include "loopback.h"
#include "testps.h"

#define HEAD_ROOM   (RTE_PKTMBUF_HEADROOM + 192)
#define FRAMES      2048 /* whole ones, for control frames */
#define SPARE       4096 /* heads in bursts and caches */
#define MAILS       8192
#define UDP_FIRST   20000 /* port of worker 0 */
#define LINK_WAIT   3000  /* ms */
#define COPY_FRAMES 16384
#define BESIDE      300 /* bytes of a packet buffer beside its room */

static uint32_t
own_ip(const struct testps *t, unsigned n)
{
	uint32_t first;

	memcpy(&first, t->opt.address.addr, sizeof(first));
	return rte_cpu_to_be_32(rte_be_to_cpu_32(first) + n);
}

static int
ports_open_one(struct testps *t, unsigned i, uint16_t id, struct pbox_error *err)
{
	struct pbox_port_conf c = {.id = id,
		.where = "the options",
		.steer = PBOX_STEER_RING,
		.steer_where = "the options",
		.ip = own_ip(t, t->opt.hosts ? 0 : i),
		.prefix_len = t->opt.address.len,
		.mtu = (uint16_t)(t->opt.mtu != 0         ? t->opt.mtu
				  : t->load.fragment != 0 ? t->load.fragment + PBOX_MTU_OVERHEAD
							  : 0),
		.queues = (uint16_t)t->lanes,
		.rx_desc = (uint16_t)t->opt.rxd,
		.tx_desc = (uint16_t)t->opt.txd,
		.n_cores = t->lanes};
	struct pbox_port *p = &t->port[i];
	int ret;

	memcpy(&c.gateway, t->opt.gateway, sizeof(c.gateway));
	for (unsigned k = 0; k < t->lanes; k++)
		c.core[k] = (uint16_t)k;
	ret = pbox_port_open(p, &c, err);
	if (ret != 0)
		return ret;
	t->n_ports++;
	if (p->n_queues < t->lanes)
		return pbox_fail(err, EINVAL,
			"port %u (%s) has %u queue pairs, and --nb-cores wants one for each of %u lcores: use --nb-cores %u",
			id, p->dev.name, p->n_queues, t->lanes, p->n_queues);
	if (pbox_port_shared_queues(id) > t->lanes)
		return pbox_fail(err, EINVAL,
			"port %u (%s) has %u queue pairs, and the box may send in all of them: use --nb-cores %u, or queues=%u at both ends",
			id, p->dev.name, pbox_port_shared_queues(id), pbox_port_shared_queues(id),
			t->lanes);
	ret = pbox_port_start(p, err);
	if (ret != 0)
		return ret;
	if (t->opt.hosts)
		rte_eth_promiscuous_enable(id);
	if (!p->dev.tx_segments)
		t->copy = true;
	if (t->mtu == 0 || p->mtu < t->mtu)
		t->mtu = p->mtu;
	return 0;
}

int
ports_open(struct testps *t, struct pbox_error *err)
{
	uint16_t list[RTE_MAX_ETHPORTS];
	unsigned n = pbox_port_list(list, RTE_MAX_ETHPORTS);

	if (t->loopback != NULL) {
		n = 1;
		list[0] = loopback_port(t->loopback);
	}
	if (n == 0)
		return pbox_fail(err, ENODEV,
			"EAL has found no port: give it one before the -- with --vdev net_af_packet0,iface=eth1, or bind a NIC (dpdk-devbind.py) and allow it with -a");
	if (n > TESTPS_PORTS)
		n = TESTPS_PORTS;
	t->copy = t->loopback != NULL && !t->opt.reflected; /* a box takes no chains */
	for (unsigned i = 0; i < n; i++) {
		int ret = ports_open_one(t, i, list[i], err);

		if (ret != 0)
			return ret;
	}
	for (unsigned i = 0; i < n; i++) {
		char advice[64];

		if (!pbox_port_wait_link(&t->port[i], LINK_WAIT, NULL))
			return pbox_fail(err, ENETDOWN, "port %u (%s) has no link: %s",
				t->port[i].conf.id, t->port[i].dev.name,
				pbox_port_link_advice(&t->port[i], advice, sizeof(advice)));
	}
	return 0;
}

/* ---- lanes ---------------------------------------------------------------------------------- */

static struct rte_mempool *
pool(const char *what, unsigned lane, unsigned n, uint16_t priv, uint32_t room, int node)
{
	char name[RTE_MEMPOOL_NAMESIZE];

	snprintf(name, sizeof(name), "%s%u", what, lane);
	return pbox_port_pool(name, n, priv, (uint16_t)room, node);
}

static int
make_lane(struct testps *t, unsigned i, unsigned lcore, struct pbox_error *err)
{
	int node = (int)rte_lcore_to_socket_id(lcore);
	struct lane *l = rte_zmalloc_socket("lane", sizeof(*l), 64, node);
	/* a box in this process holds packets: these are copies then. In formats of blocks they are copies, too, and a device holds them
	 * until it sends again */
	unsigned frames = FRAMES + (t->copy ? COPY_FRAMES : t->port[0].n_txd * t->n_ports), heads;
	uint32_t room = 0;
	char name[32];

	if (l == NULL)
		return pbox_fail(
			err, ENOMEM, "no memory for lcore %u: give EAL more with -m", lcore);
	t->lane[i] = l;
	l->t = t;
	l->index = i;
	l->lcore = lcore;
	for (unsigned p = 0; p < t->n_ports; p++) {
		l->out[p].id = t->port[p].conf.id;
		l->out[p].queue = (uint16_t)i;
		room = RTE_MAX(room, t->port[p].data_room);
	}
	heads = t->opt.mbufs != 0 ? t->opt.mbufs : 2u * t->port[0].n_txd * t->n_ports + SPARE;
	if (t->copy && t->opt.mbufs != 0)
		frames = t->opt.mbufs;
	l->frames = pool("testps_frames", i, frames, PBOX_PORT_MBUF_PRIV, room, node);
	l->heads = pool("testps_heads", i, heads, 0, HEAD_ROOM, node);
	snprintf(name, sizeof(name), "testps_mail%u", i);
	l->mail = rte_ring_create(name, MAILS, node, RING_F_SC_DEQ);
	l->flat = malloc(UINT16_MAX + 64);
	if (l->frames == NULL || l->heads == NULL || l->mail == NULL || l->flat == NULL)
		return pbox_fail(err, ENOMEM,
			"no memory for %u packets of %u bytes and %u heads of lcore %u, about %zu MiB: give EAL more with -m, or use less with --total-num-mbufs",
			frames, room, heads, lcore,
			(((size_t)room + BESIDE) * frames + (HEAD_ROOM + BESIDE) * (size_t)heads) >>
				20);
	pbox_random_seed(&l->random, 77 + i);
	return 0;
}

int
ports_lanes(struct testps *t, struct pbox_error *err)
{
	unsigned lcore, i = 0;

	RTE_LCORE_FOREACH_WORKER(lcore)
	{
		int ret;

		if (i == t->lanes)
			break;
		ret = make_lane(t, i, lcore, err);
		if (ret != 0)
			return ret;
		i++;
	}
	return 0;
}

/* ---- payloads as packets: each is one buffer that all frames with it share --------------------
 *
 * A device gives back what it has sent when it sends again, perhaps in a later session. So these are heads too: their pool
 * outlives the ports. The counter of who shares a payload is where no head is written, at the begin of the room in
 * front of its headers. */

static void
shared_done(void *addr __rte_unused, void *opaque __rte_unused)
{
}

static int
payloads_of(struct testps *t, struct lane *l, struct pbox_error *err)
{
	unsigned n = t->plan.n_lengths * PATTERNS;

	l->payload = calloc(n, sizeof(struct rte_mbuf *));
	if (l->payload == NULL)
		return pbox_fail(err, ENOMEM, "no memory for %u payloads", n);
	for (unsigned i = 0; i < n; i++) {
		struct rte_mbuf *m = rte_pktmbuf_alloc(l->heads);
		struct rte_mbuf_ext_shared_info *info;
		uint8_t *at = t->data.pattern[i % PATTERNS];
		uint16_t len =
			(uint16_t)pbox_payload_bytes(t->data.push, t->plan.length[i / PATTERNS]);

		if (m == NULL)
			return pbox_fail(err, ENOMEM,
				"%u heads are too few for %u payloads of different lengths: give more with --total-num-mbufs",
				l->heads->size, n);
		info = m->buf_addr;
		info->free_cb = shared_done;
		info->fcb_opaque = NULL;
		rte_mbuf_ext_refcnt_set(info, 1);
		rte_pktmbuf_attach_extbuf(m, at,
			t->data.zone->iova + (size_t)(at - (uint8_t *)t->data.zone->addr), len,
			info);
		m->data_off = 0;
		m->data_len = len;
		m->pkt_len = len;
		l->payload[i] = m;
	}
	return 0;
}

int
ports_payloads(struct testps *t, struct pbox_error *err)
{
	bool shared = !t->copy && t->data.made == t->data.push;

	for (unsigned i = 0; i < t->lanes && shared; i++) {
		int ret = payloads_of(t, t->lane[i], err);

		if (ret != 0)
			return ret;
	}
	return 0;
}

void
ports_payloads_free(struct testps *t)
{
	for (unsigned i = 0; i < t->lanes; i++) {
		struct lane *l = t->lane[i];

		if (l == NULL || l->payload == NULL)
			continue;
		for (unsigned k = 0; k < t->plan.n_lengths * PATTERNS; k++)
			rte_pktmbuf_free(l->payload[k]);
		free(l->payload);
		l->payload = NULL;
	}
}

static void
free_lane(struct lane *l)
{
	while (l->stock_next != l->stock_end)
		rte_pktmbuf_free(l->stock[l->stock_next++ % RTE_DIM(l->stock)]);
	rte_mempool_free(l->frames);
	rte_mempool_free(l->heads);
	rte_ring_free(l->mail);
	free(l->flat);
	rte_free(l);
}

void
ports_close(struct testps *t)
{
	for (unsigned i = 0; i < t->n_ports; i++)
		pbox_port_close(&t->port[i]);
	for (unsigned i = 0; i < t->lanes; i++)
		if (t->lane[i] != NULL)
			free_lane(t->lane[i]);
	for (unsigned i = 0; i < t->n_ports; i++)
		pbox_port_free(&t->port[i]);
	t->n_ports = 0;
}

/* ---- the workers' addresses ------------------------------------------------------------------- */

int
workers_address(struct testps *t, struct pbox_error *err)
{
	unsigned n = t->load.workers;

	workers_free(t);
	t->nif = calloc(n, sizeof(*t->nif));
	t->udp = calloc(n, sizeof(*t->udp));
	t->token = calloc(n, sizeof(*t->token));
	t->keys = calloc(n, sizeof(*t->keys));
	t->control_to = aligned_alloc(64, n * sizeof(*t->control_to));
	if (t->nif == NULL || t->udp == NULL || t->token == NULL || t->keys == NULL ||
		t->control_to == NULL) {
		workers_free(t);
		return pbox_fail(err, ENOMEM, "no memory for %u workers", n);
	}
	t->workers = n;
	for (unsigned w = 0; w < n; w++) {
		const struct pbox_port *p = &t->port[lane_port_of(t, w)];

		t->nif[w] = p->nif;
		t->udp[w] = (uint16_t)(UDP_FIRST + w);
		if (t->opt.hosts) {
			const uint8_t mac[6] = {2, 0x50, 0x42, 0, (uint8_t)(w >> 8), (uint8_t)w};

			memcpy(t->nif[w].mac, mac, sizeof(mac));
			t->nif[w].ip = own_ip(t, w);
		}
	}
	return 0;
}

void
workers_free(struct testps *t)
{
	free(t->nif);
	free(t->udp);
	free(t->token);
	if (t->keys != NULL)
		sodium_memzero(t->keys, t->workers * sizeof(*t->keys));
	free(t->keys);
	free(t->control_to);
	free(t->data_to);
	t->nif = NULL;
	t->udp = NULL;
	t->token = NULL;
	t->keys = NULL;
	t->control_to = t->data_to = NULL;
	t->workers = 0;
}
