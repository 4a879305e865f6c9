/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <rte_lcore.h>
#include <rte_malloc.h>
#include <rte_random.h>

#include "dpdk.h"

/* The transport "dpdk": open and close, address resolution, memory for zero copy. */

#define FIRST_UDP    49152 /* of the ports that nobody is assigned (RFC 6335) */
#define ARP_PATIENCE (4 * NS_S)
#define ARP_INTERVAL (5 * NS_MS)
#define DRAIN_BURSTS 256
#define MEMORY_ALIGN 64

static void
dpdk_close(struct pbox_client_transport *t)
{
	struct dpdk *s = (struct dpdk *)t;

	if (s->port != NULL) {
		dpdk_quiesce(t);
		dpdk_rx_free(s);
		if (s->refs > 0)
			return; /* packets in the driver still point to the counter: the instance leaks */
		dpdk_port_give(s->port);
	}
	if (s->event >= 0)
		close(s->event);
	free(s);
}

/** Free what an earlier client of the port may have left in it. */
static void
drain(struct dpdk *s)
{
	for (unsigned i = 0; i < DRAIN_BURSTS; i++) {
		unsigned n = dpdk_rx_burst(s);

		if (n == 0)
			break;
		rte_pktmbuf_free_bulk(s->ahead, n);
	}
}

/** Resolve the next hop to the box, before the session depends on it. */
static int
dpdk_resolve(struct dpdk *s, const struct pbox_client_transport_conf *conf,
	struct pbox_client_error *err)
{
	struct dpdk_peer p = {
		.ip = conf->box.sin_addr.s_addr, .udp = rte_be_to_cpu_16(conf->box.sin_port)};
	uint64_t patience = conf->timeout_ms * NS_MS;
	uint64_t until = dpdk_now_ns() + (patience < ARP_PATIENCE ? patience : ARP_PATIENCE);
	enum pbox_arp_state state;
	char box[INET_ADDRSTRLEN], own[INET_ADDRSTRLEN];

	dpdk_ask(s, s->o.ip);
	while (!dpdk_peer_resolve(s, &p, &state) && state != PBOX_ARP_NO_ROUTE &&
		dpdk_now_ns() < until) {
		const struct pbox_client_rx *v;

		dpdk_wait(&s->t, ARP_INTERVAL);
		dpdk_recv(&s->t, &v);
	}
	if (p.ready)
		return 0;
	inet_ntop(AF_INET, &p.ip, box, sizeof(box));
	inet_ntop(AF_INET, &s->o.ip, own, sizeof(own));
	if (state == PBOX_ARP_NO_ROUTE)
		return dpdk_fail(err, PBOX_C_UNREACHABLE,
			"the box at %s is not in the subnet of %s/%u, and transport_args name no gateway= to it",
			box, own, s->o.prefix_len);
	return dpdk_fail(err, PBOX_C_UNREACHABLE,
		"nobody answers ARP for %s%s on %s: is the box up and on the same wire, and address=%s/%u of its network?",
		s->o.gateway != 0 ? "the gateway, or " : "", box, s->port->p.dev.name, own,
		s->o.prefix_len);
}

static void
facts(struct dpdk *s, const struct pbox_client_transport_conf *conf)
{
	const struct pbox_port *p = &s->port->p;
	struct rte_eth_dev_info info;

	s->id = p->conf.id;
	s->t.mtu = conf->mtu != 0 ? conf->mtu : p->mtu;
	s->t.batch = DPDK_TX_BURST;
	s->t.window = p->n_rxd / 2; /* drivers refill the queue in large steps */
	s->virtio_user = strcmp(p->dev.driver, "net_virtio_user") == 0;
	s->by_ref = !s->o.copy && p->dev.tx_segments;
	s->max_segs = UINT16_MAX;
	if (rte_eth_dev_info_get(s->id, &info) == 0 && info.tx_desc_lim.nb_mtu_seg_max > 0)
		s->max_segs = info.tx_desc_lim.nb_mtu_seg_max;
}

static int
dpdk_open(struct pbox_client_transport **out, const struct pbox_client_transport_conf *conf,
	struct pbox_client_error *err)
{
	struct dpdk_options o;
	struct dpdk *s;
	size_t eal;
	int rc = dpdk_options(&o, conf->args, &eal, err);

	if (rc == 0 && conf->bind != NULL)
		rc = dpdk_fail(err, PBOX_C_INVALID,
			"bind is for kernel sockets: give the address in transport_args");
	if (rc == 0)
		rc = dpdk_eal_start(conf->args, eal, err);
	if (rc != 0)
		return rc;
	s = aligned_alloc(_Alignof(struct dpdk), sizeof(*s));
	if (s == NULL)
		return dpdk_fail(err, PBOX_C_MEMORY, "no memory for a client");
	memset(s, 0, sizeof(*s));
	s->t.ops = &pbox_client_transport_dpdk;
	s->o = o;
	s->event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	s->udp = (uint16_t)(FIRST_UDP + rte_rand_max(UINT16_MAX - FIRST_UDP));
	if (s->event < 0)
		rc = dpdk_fail(err, PBOX_C_SYSTEM, "cannot open an eventfd: %s", strerror(errno));
	if (rc == 0)
		rc = dpdk_port_take(&s->port, &o, conf->mtu, err);
	if (rc != 0)
		goto fail;
	facts(s, conf);
	drain(s);
	pbox_arp_init(&s->arp, &s->port->p.nif, o.gateway);
	rc = dpdk_resolve(s, conf, err);
	if (rc != 0)
		goto fail;
	*out = &s->t;
	return 0;
fail:
	dpdk_close(&s->t);
	return rc;
}

/** With an lcore id the packet pools keep a cache for the thread. */
static void
dpdk_attach(struct pbox_client_transport *t)
{
	struct dpdk *s = (struct dpdk *)t;

	s->registered = rte_lcore_id() == LCORE_ID_ANY && rte_thread_register() == 0;
}

static void
dpdk_detach(struct pbox_client_transport *t)
{
	struct dpdk *s = (struct dpdk *)t;

	if (s->registered)
		rte_thread_unregister();
	s->registered = false;
}

static void *
dpdk_alloc(struct pbox_client_transport *t, size_t bytes)
{
	return rte_malloc_socket(
		"pbox_tensor", bytes, MEMORY_ALIGN, ((struct dpdk *)t)->port->p.dev.node);
}

static void
dpdk_free(struct pbox_client_transport *t __rte_unused, void *memory)
{
	rte_free(memory);
}

const struct pbox_client_transport_ops pbox_client_transport_dpdk = {
	.abi = PBOX_CLIENT_TRANSPORT_ABI,
	.name = "dpdk",
	.open = dpdk_open,
	.close = dpdk_close,
	.send = dpdk_send,
	.recv = dpdk_recv,
	.wait = dpdk_wait,
	.wake = dpdk_wake,
	.quiesce = dpdk_quiesce,
	.attach = dpdk_attach,
	.detach = dpdk_detach,
	.alloc = dpdk_alloc,
	.free = dpdk_free,
};
