/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <stdio.h>

#include <rte_flow.h>

#include "port_priv.h"

const char *
pbox_port_steering(const struct pbox_port *p)
{
	static const char *const name[] = {PBOX_STEERS(PBOX_MODE_NAME)};

	return name[p->flow ? PBOX_STEER_FLOW : PBOX_STEER_RING];
}

/* UDP destination port -> queue, for all that arrives: one rule a core. */
static struct rte_flow *
rule(const struct pbox_port *p, uint16_t udp, uint16_t queue, struct rte_flow_error *e)
{
	const struct rte_flow_attr attr = {.ingress = 1};
	const struct rte_flow_item_udp spec = {.hdr.dst_port = rte_cpu_to_be_16(udp)};
	const struct rte_flow_item_udp mask = {.hdr.dst_port = 0xFFFF};
	const struct rte_flow_item pattern[] = {
		{.type = RTE_FLOW_ITEM_TYPE_ETH},
		{.type = RTE_FLOW_ITEM_TYPE_IPV4},
		{.type = RTE_FLOW_ITEM_TYPE_UDP, .spec = &spec, .mask = &mask},
		{.type = RTE_FLOW_ITEM_TYPE_END},
	};
	const struct rte_flow_action_queue to = {.index = queue};
	const struct rte_flow_action actions[] = {
		{.type = RTE_FLOW_ACTION_TYPE_QUEUE, .conf = &to},
		{.type = RTE_FLOW_ACTION_TYPE_END},
	};

	if (rte_flow_validate(p->conf.id, &attr, pattern, actions, e) != 0)
		return NULL;
	return rte_flow_create(p->conf.id, &attr, pattern, actions, e);
}

void
port_steer_stop(struct pbox_port *p)
{
	struct rte_flow_error e;

	while (p->n_rules > 0)
		rte_flow_destroy(p->conf.id, p->rule[--p->n_rules], &e);
	p->flow = false;
}

int
port_steer(struct pbox_port *p, struct pbox_error *err)
{
	struct rte_flow_error e = {0};

	if (p->n_queues == 1) {
		snprintf(p->steer_why, sizeof(p->steer_why), "one queue");
		return 0;
	}
	if (p->conf.steer == PBOX_STEER_RING) {
		snprintf(p->steer_why, sizeof(p->steer_why), "as configured");
		return 0;
	}
	/* cores without a queue get theirs from the core that has it */
	for (unsigned i = 0; i < p->conf.n_cores; i++) {
		p->rule[i] = rule(p, (uint16_t)(p->conf.control_port + 1 + p->conf.core[i]),
			(uint16_t)(i % p->n_queues), &e);
		if (p->rule[i] == NULL)
			break;
		p->n_rules++;
	}
	if (p->n_rules == p->conf.n_cores) {
		p->flow = true;
		return 0;
	}
	port_steer_stop(p);
	snprintf(p->steer_why, sizeof(p->steer_why), "the device has no such rule: %s",
		e.message != NULL ? e.message : "no reason given");
	if (p->conf.steer == PBOX_STEER_FLOW)
		return pbox_fail(err, ENOTSUP, PORT_FMT ": %s, and %s. Use steer = auto",
			PORT_ARGS(p), p->conf.steer_where, p->steer_why);
	return 0;
}
