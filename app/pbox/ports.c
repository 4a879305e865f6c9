/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "box.h"

/* How long ports may take for their links, together. */
#define LINK_MS 3000

static bool
ports_wanted(unsigned lcore, const void *ctx)
{
	return pbox_conf_core_in(ctx, lcore);
}

static int
no_cores(const struct box *b, const struct pbox_port_options *o, struct pbox_error *err)
{
	char where[256], there[128] = "";

	for (unsigned i = 0; i < b->n_cores; i++) {
		size_t at = strlen(there);

		snprintf(
			there + at, sizeof(there) - at, "%s%u", i > 0 ? "," : "", b->core[i].lcore);
	}
	return pbox_fail(err, EINVAL,
		"%s: none of its cores is an lcore: EAL has data cores %s. Take of these, or give EAL others with -l, if this host has them (it has %ld CPUs)",
		pbox_conf_where(b->conf, &o->cores, where, sizeof(where)), there,
		sysconf(_SC_NPROCESSORS_ONLN));
}

/* Cores that sleep take them, too, after a while without packets. */
static enum pbox_port_intr
ports_interrupts(enum pbox_idle idle)
{
	return idle == PBOX_IDLE_INTERRUPT ? PBOX_PORT_INTR_WANTED
	       : idle == PBOX_IDLE_SLEEP   ? PBOX_PORT_INTR_USED
					   : PBOX_PORT_INTR_NONE;
}

static int
port_conf(struct box *b, const struct pbox_port_options *o, struct pbox_port_conf *c,
	struct pbox_error *err)
{
	char *where = b->where[o - b->opt.ports];
	char *steer_where = b->steer_where[o - b->opt.ports];
	bool choice = pbox_conf_cores_count(&o->cores) > 0;
	int ret;

	pbox_conf_where(b->conf, o, where, sizeof(b->where[0]));
	pbox_conf_where(b->conf, &o->steer, steer_where, sizeof(b->steer_where[0]));
	*c = (struct pbox_port_conf){
		.where = where,
		.prefix_len = o->address.len,
		.mtu = (uint16_t)o->mtu,
		.queues = (uint16_t)o->queues,
		.rx_desc = (uint16_t)o->rx_desc,
		.tx_desc = (uint16_t)o->tx_desc,
		.steer = o->steer,
		.steer_where = steer_where,
		.rx_intr = ports_interrupts(b->idle),
		.hold = b->opt.hold,
		.control_port = (uint16_t)b->opt.control_port,
		.cores = b->core,
	};
	memcpy(&c->ip, o->address.addr, 4);
	ret = pbox_port_find(o->name, &c->id, err);
	if (ret != 0)
		return ret;
	c->n_cores = pbox_port_plan_cores(pbox_port_node(c->id), choice ? ports_wanted : NULL,
		&o->cores, b->core, b->n_cores, c->core);
	return c->n_cores > 0 ? 0 : no_cores(b, o, err);
}

/* A port that EAL has and nobody configured is a mistake: say which. */
static int
check_all_named(struct box *b, struct pbox_error *err)
{
	uint16_t list[PBOX_OPTIONS_PORTS];
	unsigned n = pbox_port_list(list, PBOX_OPTIONS_PORTS);

	for (unsigned i = 0; i < n && i < PBOX_OPTIONS_PORTS; i++) {
		unsigned k = 0;

		while (k < b->n_ports && b->port[k].conf.id != list[i])
			k++;
		if (k == b->n_ports)
			return pbox_fail(err, EINVAL,
				"port %u (%s) has no address: add a [port %s] section with one, or --port '%s:address=10.0.0.1/24', or keep EAL off it (-b, -a)",
				list[i], pbox_port_name(list[i]), pbox_port_name(list[i]),
				pbox_port_name(list[i]));
	}
	return 0;
}

static int
plan_endpoints(struct box *b, struct pbox_error *err)
{
	struct pbox_port_conf c[PBOX_OPTIONS_PORTS];
	int n;

	b->mtu = UINT16_MAX;
	for (unsigned i = 0; i < b->n_ports; i++) {
		c[i] = b->port[i].conf;
		if (b->port[i].mtu < b->mtu)
			b->mtu = b->port[i].mtu;
	}
	n = pbox_dp_plan(c, b->n_ports, b->node_of, (uint16_t)b->opt.control_port, b->endpoint,
		PBOX_MAX_ENDPOINTS, err);
	if (n < 0)
		return n;
	b->n_endpoints = (unsigned)n;
	return 0;
}

int
ports_prepare(struct box *b, struct pbox_error *err)
{
	int ret;

	for (unsigned i = 0; i < b->opt.n_ports; i++) {
		struct pbox_port_conf c;

		ret = port_conf(b, &b->opt.ports[i], &c, err);
		for (unsigned k = 0; ret == 0 && k < b->n_ports; k++)
			if (b->port[k].conf.id == c.id)
				ret = pbox_fail(err, EEXIST, "%s and %s are the same port",
					b->port[k].conf.where, c.where);
		if (ret == 0)
			ret = pbox_port_prepare(&b->port[b->n_ports], &c, err);
		if (ret != 0)
			return ret;
		b->n_ports++;
	}
	ret = check_all_named(b, err);
	return ret != 0 ? ret : plan_endpoints(b, err);
}

int
ports_open(struct box *b, struct pbox_error *err)
{
	int ret = 0;

	for (unsigned i = 0; ret == 0 && i < b->n_ports; i++)
		ret = pbox_port_queues(&b->port[i], err);
	return ret;
}

int
ports_start(struct box *b, struct pbox_error *err)
{
	unsigned wait_ms = LINK_MS;

	for (unsigned i = 0; i < b->n_ports; i++) {
		/* a configuration may be checked beside the box that serves it */
		int ret = b->opt.check ? 0 : pbox_port_claim(&b->port[i], err);

		if (ret == 0)
			ret = pbox_port_start(&b->port[i], err);
		if (ret != 0)
			return ret;
	}
	for (unsigned i = 0; i < b->n_ports; i++)
		if (!pbox_port_wait_link(&b->port[i], wait_ms, serve_stop_wanted))
			wait_ms = 0; /* the others have had the same time */
	return 0;
}

void
ports_close(struct box *b)
{
	for (unsigned i = b->n_ports; i-- > 0;)
		pbox_port_close(&b->port[i]);
}

void
ports_free(struct box *b)
{
	for (unsigned i = b->n_ports; i-- > 0;)
		pbox_port_free(&b->port[i]);
}
