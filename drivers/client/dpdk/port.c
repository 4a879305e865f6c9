/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <pthread.h>
#include <stdio.h>

#include <rte_errno.h>

#include "dpdk.h"

/* The ports of this process. A port that was opened stays open, as a virtual device that is closed cannot be opened
 * again. */

#define HEADER_ROOM   (RTE_PKTMBUF_HEADROOM + 192)
#define HEADERS_SPARE 2048 /* bursts that are being built, cache */
#define LINK_PATIENCE 3000 /* ms */

static pthread_mutex_t port_lock = PTHREAD_MUTEX_INITIALIZER;
static struct dpdk_port port_of[RTE_MAX_ETHPORTS];

static int
dpdk_port_refused(struct pbox_client_error *err, const struct pbox_error *why)
{
	int code = why->code == ENOMEM ? PBOX_C_MEMORY : PBOX_C_SYSTEM;

	return dpdk_fail(err, code, "%s", why->text);
}

static int
dpdk_port_choose(uint16_t *id, const char *name, struct pbox_client_error *err)
{
	uint16_t list[RTE_MAX_ETHPORTS];
	unsigned n = pbox_port_list(list, RTE_MAX_ETHPORTS);
	struct pbox_error why;

	if (name[0] != 0) {
		if (pbox_port_find(name, id, &why) != 0)
			return dpdk_fail(err, PBOX_C_INVALID, "port=: %s", why.text);
		if (port_of[*id].used)
			return dpdk_fail(err, PBOX_C_INVALID,
				"port=%s: another client of this process has it", name);
		return 0;
	}
	for (unsigned i = 0; i < n; i++)
		if (!port_of[list[i]].used) {
			*id = list[i];
			return 0;
		}
	return dpdk_fail(err, PBOX_C_INVALID,
		n == 0 ? "EAL has found no port, or does not run: give it one with --vdev, or bind a NIC (dpdk-devbind.py) and allow it with -a, before the '--' of transport_args"
		       : "all %u ports have clients of this process already",
		n);
}

static int
dpdk_port_open(struct dpdk_port *d, uint16_t id, const struct dpdk_options *o, unsigned mtu,
	struct pbox_client_error *err)
{
	struct pbox_port_conf conf = {.id = id,
		.where = "transport_args",
		.steer_where = "transport_args",
		.ip = o->ip,
		.gateway = o->gateway,
		.prefix_len = o->prefix_len,
		.mtu = (uint16_t)(mtu < UINT16_MAX ? mtu : UINT16_MAX),
		.queues =
			(uint16_t)RTE_MIN(RTE_MAX(pbox_port_shared_queues(id), 1), PBOX_PORT_CORES),
		.steer = PBOX_STEER_RING};
	char name[RTE_MEMPOOL_NAMESIZE];
	struct pbox_error why;
	unsigned n;

	conf.n_cores = conf.queues;
	if (pbox_port_open(&d->p, &conf, &why) != 0)
		return dpdk_port_refused(err, &why);
	n = 2u * d->p.n_txd + HEADERS_SPARE;
	snprintf(name, sizeof(name), "pbox_client_%u", id);
	/* the private area has the reference count of a shared payload */
	d->headers = pbox_port_pool(name, n,
		RTE_ALIGN_CEIL(sizeof(struct rte_mbuf_ext_shared_info), RTE_MBUF_PRIV_ALIGN),
		HEADER_ROOM, d->p.dev.node);
	if (d->headers == NULL) {
		dpdk_fail(err, PBOX_C_MEMORY, "no memory for %u packet heads: %s", n,
			rte_strerror(rte_errno));
		goto fail;
	}
	if (pbox_port_start(&d->p, &why) != 0) {
		dpdk_port_refused(err, &why);
		goto fail;
	}
	d->open = true;
	return 0;
fail:
	pbox_port_close(&d->p);
	pbox_port_free(&d->p);
	rte_mempool_free(d->headers);
	d->headers = NULL;
	return err->code;
}

/** An open port gets the address of its next client. */
static int
reuse(struct dpdk_port *d, const struct dpdk_options *o, unsigned mtu,
	struct pbox_client_error *err)
{
	if (mtu > d->p.mtu)
		return dpdk_fail(err, PBOX_C_INVALID,
			"%s was opened in this process with MTU %u: %u is too large now",
			d->p.dev.name, d->p.mtu, mtu);
	d->p.nif.ip = d->p.conf.ip = o->ip;
	d->p.nif.prefix_len = d->p.conf.prefix_len = o->prefix_len;
	d->p.conf.gateway = o->gateway;
	return 0;
}

int
dpdk_port_take(struct dpdk_port **out, const struct dpdk_options *o, unsigned mtu,
	struct pbox_client_error *err)
{
	struct dpdk_port *d = NULL;
	uint16_t id;
	int rc;

	pthread_mutex_lock(&port_lock);
	rc = dpdk_port_choose(&id, o->port, err);
	if (rc == 0) {
		d = &port_of[id];
		rc = d->open ? reuse(d, o, mtu, err) : dpdk_port_open(d, id, o, mtu, err);
	}
	if (rc == 0)
		d->used = true;
	pthread_mutex_unlock(&port_lock);
	if (rc != 0)
		return rc;
	if (!pbox_port_wait_link(&d->p, LINK_PATIENCE, NULL)) {
		char advice[64];

		rc = dpdk_fail(err, PBOX_C_UNREACHABLE, "port %u (%s) has no link: %s",
			d->p.conf.id, d->p.dev.name,
			pbox_port_link_advice(&d->p, advice, sizeof(advice)));
		dpdk_port_give(d);
		return rc;
	}
	*out = d;
	return 0;
}

void
dpdk_port_give(struct dpdk_port *p)
{
	pthread_mutex_lock(&port_lock);
	p->used = false;
	pthread_mutex_unlock(&port_lock);
}
