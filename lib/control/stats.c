/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <stdio.h>

#include <rte_ethdev.h>

#include "control_priv.h"

#define COUNTER(name, unit, help)                   \
	{                                           \
		name, unit, help, PBOX_STAT_COUNTER \
	}

const struct pbox_stat_def pbox_control_stat_defs[PBOX_CT_STATS] = {
	[PBOX_CT_DATAGRAMS] = COUNTER("datagrams", "packets", "datagrams taken from data cores"),
	[PBOX_CT_FRAMES] = COUNTER("frames", "frames", "frames found in them"),
	[PBOX_CT_TO_REGISTRAR] = COUNTER("to_registrar", "frames", "control frames worked on"),
#define FRAME_DROP(symbol, number, name, help) \
	[PBOX_CT_FRAME_##symbol] = COUNTER(#name, "frames", help),
	PBOX_WIRE_REFUSALS(FRAME_DROP)
#undef FRAME_DROP
		[PBOX_CT_FRAME_ENDPOINT] =
			COUNTER("frame_endpoint", "frames", "data frame at the control port"),
	[PBOX_CT_TX] = COUNTER("tx", "frames", "frames sent"),
	[PBOX_CT_TX_LOST] = COUNTER("tx_lost", "frames", "not sent: no packet or no room"),
	[PBOX_CT_MAILS] = COUNTER("mails", "mails", "answers of shards"),
	[PBOX_CT_STUCK] = COUNTER("stuck", "seconds", "seconds that a data core did not turn"),
	[PBOX_CT_SNAPSHOTS] = COUNTER("snapshots", "files", "snapshots of tables written"),
	[PBOX_CT_SNAPSHOTS_FAILED] = COUNTER(
		"snapshots_failed", "files", "snapshots that could not be taken or written"),
	[PBOX_CT_TURNS] = COUNTER("turns", "turns", "times that the control thread came by"),
	[PBOX_CT_LONGEST_TURN] = {"longest_turn", "us",
		"longest turn of the control thread since the start: so long nobody was answered",
		PBOX_STAT_GAUGE},
};

const struct pbox_stat_def control_port_stat_defs[PORT_STATS] = {
	[PORT_RX_PACKETS] = COUNTER("rx_packets", "packets", "packets that the device received"),
	[PORT_RX_BYTES] = COUNTER("rx_bytes", "bytes", "bytes of these packets"),
	[PORT_TX_PACKETS] = COUNTER("tx_packets", "packets", "packets that the device sent"),
	[PORT_TX_BYTES] = COUNTER("tx_bytes", "bytes", "bytes of these packets"),
	[PORT_RX_MISSED] =
		COUNTER("rx_missed", "packets", "lost: the data cores did not fetch them in time"),
	[PORT_RX_ERRORS] = COUNTER("rx_errors", "packets", "received damaged"),
	[PORT_RX_NO_MBUF] = COUNTER("rx_no_mbuf", "packets", "lost: no packet buffer"),
	[PORT_TX_ERRORS] = COUNTER("tx_errors", "packets", "not sent by the device"),
	[PORT_LINK] = {"link", "", "1 when the link is up", PBOX_STAT_GAUGE},
};

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
