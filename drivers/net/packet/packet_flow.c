/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <string.h>

#include <rte_flow.h>

#include "packet.h"
#include "packet_ops.h"

/* Rules of one kind: UDP over IPv4 to this destination port goes to that queue. */

static int
packet_flow_refuse(
	struct rte_flow_error *e, enum rte_flow_error_type type, const void *cause, const char *why)
{
	return rte_flow_error_set(e, ENOTSUP, type, cause, why);
}

/* A layer without a match of its own. */
static bool
is_layer(const struct rte_flow_item **at, enum rte_flow_item_type type)
{
	while ((*at)->type == RTE_FLOW_ITEM_TYPE_VOID)
		(*at)++;
	if ((*at)->type != type || (*at)->spec != NULL)
		return false;
	(*at)++;
	return true;
}

static bool
is_port_match(const struct rte_flow_item *item, uint16_t *udp)
{
	const struct rte_flow_item_udp *spec = item->spec, *mask = item->mask;
	struct rte_flow_item_udp only = {.hdr.dst_port = 0xFFFF};

	if (item->type != RTE_FLOW_ITEM_TYPE_UDP || spec == NULL || mask == NULL ||
		item->last != NULL || memcmp(mask, &only, sizeof(only)) != 0)
		return false;
	*udp = rte_be_to_cpu_16(spec->hdr.dst_port);
	return true;
}

static int
parse(struct rte_eth_dev *dev, const struct rte_flow_attr *attr, const struct rte_flow_item *items,
	const struct rte_flow_action *actions, struct rte_flow *rule, struct rte_flow_error *e)
{
	const struct rte_flow_item *at = items;
	const struct rte_flow_action_queue *to = actions[0].conf;

	if (!attr->ingress || attr->egress || attr->transfer || attr->group != 0 ||
		attr->priority != 0)
		return packet_flow_refuse(
			e, RTE_FLOW_ERROR_TYPE_ATTR, attr, "ingress, group 0, priority 0");
	if (!is_layer(&at, RTE_FLOW_ITEM_TYPE_ETH) || !is_layer(&at, RTE_FLOW_ITEM_TYPE_IPV4) ||
		!is_port_match(at, &rule->udp) || at[1].type != RTE_FLOW_ITEM_TYPE_END)
		return packet_flow_refuse(
			e, RTE_FLOW_ERROR_TYPE_ITEM, at, "only eth / ipv4 / udp dst is ... / end");
	if (actions[0].type != RTE_FLOW_ACTION_TYPE_QUEUE || to == NULL ||
		actions[1].type != RTE_FLOW_ACTION_TYPE_END)
		return packet_flow_refuse(
			e, RTE_FLOW_ERROR_TYPE_ACTION, actions, "only queue index ... / end");
	if (to->index >= dev->data->nb_rx_queues)
		return rte_flow_error_set(
			e, EINVAL, RTE_FLOW_ERROR_TYPE_ACTION, actions, "no such queue");
	rule->queue = to->index;
	return 0;
}

static int
packet_flow_validate(struct rte_eth_dev *dev, const struct rte_flow_attr *attr,
	const struct rte_flow_item items[], const struct rte_flow_action actions[],
	struct rte_flow_error *e)
{
	struct rte_flow rule = {0};

	return parse(dev, attr, items, actions, &rule, e);
}

static int
apply(struct packet_port *port, struct rte_flow_error *e)
{
	int ret = packet_steer(port);

	return ret == 0 ? 0
			: rte_flow_error_set(e, -ret, RTE_FLOW_ERROR_TYPE_UNSPECIFIED, NULL,
				  "the kernel refuses the rules");
}

static struct rte_flow *
packet_flow_create(struct rte_eth_dev *dev, const struct rte_flow_attr *attr,
	const struct rte_flow_item items[], const struct rte_flow_action actions[],
	struct rte_flow_error *e)
{
	struct packet_port *port = dev->data->dev_private;
	struct rte_flow wanted = {.used = true}, *rule = NULL;

	if (parse(dev, attr, items, actions, &wanted, e) != 0)
		return NULL;
	for (unsigned i = 0; i < PACKET_RULES; i++) {
		if (port->rule[i].used && port->rule[i].udp == wanted.udp) {
			rte_flow_error_set(e, EEXIST, RTE_FLOW_ERROR_TYPE_ITEM, NULL,
				"there is a rule for this port");
			return NULL;
		}
		if (!port->rule[i].used && rule == NULL)
			rule = &port->rule[i];
	}
	if (rule == NULL) {
		rte_flow_error_set(e, ENOSPC, RTE_FLOW_ERROR_TYPE_HANDLE, NULL, "no room for more");
		return NULL;
	}
	*rule = wanted;
	if (apply(port, e) != 0) {
		rule->used = false;
		return NULL;
	}
	return rule;
}

static int
packet_flow_destroy(struct rte_eth_dev *dev, struct rte_flow *rule, struct rte_flow_error *e)
{
	rule->used = false;
	return apply(dev->data->dev_private, e);
}

static int
packet_flow_flush(struct rte_eth_dev *dev, struct rte_flow_error *e)
{
	struct packet_port *port = dev->data->dev_private;

	memset(port->rule, 0, sizeof(port->rule));
	return apply(port, e);
}

static const struct rte_flow_ops packet_flow_ops = {
	.validate = packet_flow_validate,
	.create = packet_flow_create,
	.destroy = packet_flow_destroy,
	.flush = packet_flow_flush,
};

int
packet_flow_ops_get(struct rte_eth_dev *dev __rte_unused, const struct rte_flow_ops **ops)
{
	*ops = &packet_flow_ops;
	return 0;
}
