/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <stdio.h>

#include <rte_ethdev.h>

#include "control_priv.h"

#define FRAME_DROP(symbol, number, name, help) \
	[PBOX_CT_FRAME_##symbol] = {#name, "frames", help, PBOX_STAT_COUNTER},

/* clang-format off */
const struct pbox_stat_def pbox_control_stat_defs[PBOX_CT_STATS] = {
	PBOX_CONTROL_TAKES(PBOX_STAT_DEF)
	PBOX_WIRE_REFUSALS(FRAME_DROP)
	PBOX_CONTROL_OTHERS(PBOX_STAT_DEF)
};
/* clang-format on */
const struct pbox_stat_def control_port_stat_defs[PORT_STATS] = {PORT_VALUES(PBOX_STAT_DEF)};

static int
stats_add(struct pbox_control *c, enum pbox_control_table which, const char *labels,
	const uint64_t *values, struct pbox_error *err)
{
	const struct pbox_stats_table *t = &pbox_control_tables[which];

	return pbox_stats_register(c->stats, t->block, labels, t->defs, t->n, values, err);
}

int
stats_register(struct pbox_control *c, struct pbox_error *err)
{
	const struct pbox_control_conf *k = &c->conf;
	char labels[PBOX_STATS_LABELS_MAX + 1];
	int ret;

	c->stats = pbox_stats_new(2 * k->n_cores + k->n_ports + 8);
	if (c->stats == NULL)
		return pbox_fail(err, ENOMEM, "out of memory");
	ret = stats_add(c, PBOX_COUNTERS_CONTROL, "", c->stat, err);
	if (ret >= 0)
		ret = stats_add(c, PBOX_COUNTERS_REGISTRAR, "", c->registrar_stat, err);
	for (unsigned i = 0; ret >= 0 && i < k->n_ports; i++) {
		snprintf(labels, sizeof(labels), "port=%u,device=%s", k->port[i].conf.id,
			k->port[i].dev.name);
		ret = stats_add(c, PBOX_COUNTERS_PORT, labels, c->port_stat[i], err);
	}
	for (unsigned i = 0; ret >= 0 && i < k->n_cores; i++) {
		snprintf(labels, sizeof(labels), "core=%u,lcore=%u", i, k->core[i].lcore);
		ret = stats_add(c, PBOX_COUNTERS_CORE, labels, pbox_dp_core_stats(k->dp, i), err);
		if (ret >= 0)
			ret = stats_add(
				c, PBOX_COUNTERS_SHARD, labels, pbox_dp_shard_stats(k->dp, i), err);
	}
	return ret < 0 ? ret : 0;
}

void
control_port_stats_update(struct pbox_control *c)
{
	for (unsigned i = 0; i < c->conf.n_ports; i++) {
		uint64_t *v = c->port_stat[i];
		struct rte_eth_stats s;

		if (rte_eth_stats_get(c->conf.port[i].conf.id, &s) != 0)
			continue;
		pbox_stat_set(&v[PORT_RX_PACKETS], s.ipackets);
		pbox_stat_set(&v[PORT_RX_BYTES], s.ibytes);
		pbox_stat_set(&v[PORT_TX_PACKETS], s.opackets);
		pbox_stat_set(&v[PORT_TX_BYTES], s.obytes);
		pbox_stat_set(&v[PORT_RX_MISSED], s.imissed);
		pbox_stat_set(&v[PORT_RX_ERRORS], s.ierrors);
		pbox_stat_set(&v[PORT_RX_NO_MBUF], s.rx_nombuf);
		pbox_stat_set(&v[PORT_TX_ERRORS], s.oerrors);
		pbox_stat_set(&v[PORT_LINK], c->conf.port[i].link_up == 1);
	}
}
