/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_ethdev.h>

#include "health.h"
#include "reply.h"

/* Telemetry of the box itself: counters, cores, ports, pools, drops. */

#define CORES_PAGE 16
#define STATS_PAGE 4

/* "core=0,lcore=3" of "core" -> "core/core_0_lcore_3": names have letters, digits, _ and /. */
static void
block_name(const struct pbox_stats_block *b, char *out, size_t size)
{
	snprintf(out, size, "%s%s%s", b->prefix, b->labels[0] != '\0' ? "/" : "", b->labels);
	for (char *p = out; *p != '\0'; p++)
		if (!isalnum((unsigned char)*p) && *p != '/')
			*p = '_';
}

/* Which blocks to show. */
struct stats_page {
	struct rte_tel_data *d;
	const char *only; /* NULL: values of all that are not 0 */
	unsigned first, seen;
};

static int
stats_reply_block(const struct pbox_stats_block *b, void *ctx)
{
	struct stats_page *p = ctx;
	struct rte_tel_data *d;
	char name[192];
	unsigned n = 0;

	if ((p->only != NULL && strcmp(b->prefix, p->only) != 0) || p->seen++ < p->first)
		return 0;
	if (p->only != NULL && p->seen > p->first + STATS_PAGE) {
		rte_tel_data_add_dict_u64(p->d, "next", p->seen - 1);
		return 1;
	}
	d = reply_dict();
	for (unsigned i = 0; i < b->n; i++) {
		uint64_t v = pbox_stat_get(&b->values[i]);

		if ((v != 0 || p->only != NULL) &&
			rte_tel_data_add_dict_u64(d, b->defs[i].name, v) == 0)
			n++;
	}
	block_name(b, name, sizeof(name));
	if (n == 0)
		reply_drop(d);
	else
		reply_add(p->d, name, d);
	return 0;
}

static void
on_stats(struct pbox_control *c, int n, char word[][PARAM_SIZE], struct rte_tel_data *d)
{
	struct stats_page p = {.d = d, .only = n > 0 ? word[0] : NULL};

	if (n > 1 && !params_number(word[1], UINT16_MAX, &p.first)) {
		reply_error(d, "FIRST is a number, what next was in the page before");
		return;
	}
	control_port_stats_update(c);
	pbox_stats_walk(c->stats, stats_reply_block, &p);
	if (n > 0 && p.seen == 0)
		reply_error(d, "no block '%.40s' is counted: /pbox/counters names them", word[0]);
}

static void
on_counters(
	struct pbox_control *c __rte_unused, int n, char word[][PARAM_SIZE], struct rte_tel_data *d)
{
	for (unsigned t = 0; t < PBOX_COUNTERS_TABLES; t++) {
		const struct pbox_stats_table *table = &pbox_control_tables[t];

		if (n == 0)
			reply_text(d, table->block, "%s", table->help);
		if (n == 0 || strcmp(word[0], table->block) != 0)
			continue;
		for (unsigned i = 0; i < table->n; i++) {
			struct rte_tel_data *e = reply_dict();

			reply_text(e, "unit", "%s", table->defs[i].unit);
			reply_text(e, "kind", "%s", pbox_stat_kind_name(table->defs[i].kind));
			reply_text(e, "help", "%s", table->defs[i].help);
			reply_add(d, table->defs[i].name, e);
		}
		return;
	}
	if (n > 0)
		reply_error(d, "no block '%.40s': /pbox/counters names them", word[0]);
}

static void
add_core(struct pbox_control *c, unsigned i, struct rte_tel_data *d)
{
	static const struct {
		enum pbox_core_stat what;
		const char *name;
	} raw[] = {
		{PBOX_CS_RX_PACKETS, "rx_packets"},
		{PBOX_CS_RX_BYTES, "rx_bytes"},
		{PBOX_CS_HANDOFF_IN, "handoff_in"},
		{PBOX_CS_HANDOFF_OUT, "handoff_out"},
		{PBOX_CS_FRAMES_DATA, "frames_data"},
		{PBOX_CS_TX_PACKETS, "tx_packets"},
		{PBOX_CS_TX_BYTES, "tx_bytes"},
		{PBOX_CS_LOOPS, "loops"},
		{PBOX_CS_LOOPS_BUSY, "loops_busy"},
		{PBOX_CS_SLEEPS, "sleeps"},
		{PBOX_CS_CYCLES_BUSY, "cycles_busy"},
		{PBOX_CS_CYCLES_IDLE, "cycles_idle"},
	};
	const uint64_t *v = pbox_dp_core_stats(c->conf.dp, i);
	uint64_t load[LOAD_STATS];
	struct health_core h;

	health_core(c, i, &h);
	rte_tel_data_add_dict_u64(d, "lcore", c->conf.core[i].lcore);
	rte_tel_data_add_dict_int(d, "node", c->conf.core[i].node);
	load[LOAD_HEARTBEAT_MS] = h.heartbeat_ns / NS_PER_MS;
	load[LOAD_BUSY] = h.busy_permille;
	load[LOAD_STOLEN] = h.stolen_permille;
	load[LOAD_CYCLES_PER_PACKET] = h.cycles_per_packet;
	for (unsigned k = 0; k < HEALTH_STAGES; k++)
		load[LOAD_MAIL + k] = h.stage_permille[k];
	load[LOAD_STOLEN_NS] = h.stolen_ns;
	reply_values(d, PBOX_COUNTERS_LOAD, load);
	rte_tel_data_add_dict_u64(
		d, "held", pbox_stat_get(&pbox_dp_shard_stats(c->conf.dp, i)[PBOX_SS_HELD]));
	for (unsigned k = 0; k < sizeof(raw) / sizeof(raw[0]); k++)
		rte_tel_data_add_dict_u64(d, raw[k].name, pbox_stat_get(&v[raw[k].what]));
}

static void
on_cores(struct pbox_control *c, int n, char word[][PARAM_SIZE], struct rte_tel_data *d)
{
	unsigned first = 0, end;

	if (n > 0 && !params_number(word[0], c->conf.n_cores - 1, &first)) {
		reply_error(d, "FIRST is a number of a data core, 0 to %u", c->conf.n_cores - 1);
		return;
	}
	end = first + CORES_PAGE < c->conf.n_cores ? first + CORES_PAGE : c->conf.n_cores;
	rte_tel_data_add_dict_u64(d, "clock_ns", pbox_dp_now(c->conf.dp));
	rte_tel_data_add_dict_u64(d, "tsc_hz", rte_get_tsc_hz());
	rte_tel_data_add_dict_u64(d, "window_ms", health_window_ns(c) / NS_PER_MS);
	rte_tel_data_add_dict_u64(d, "cores", c->conf.n_cores);
	if (end < c->conf.n_cores)
		rte_tel_data_add_dict_u64(d, "next", end);
	for (unsigned i = first; i < end; i++) {
		struct rte_tel_data *e = reply_dict();

		add_core(c, i, e);
		reply_add_numbered(d, "core", i, e);
	}
}

static void
add_port(const struct pbox_port *p, const uint64_t *v, struct rte_tel_data *d)
{
	const uint8_t *m = p->nif.mac, *ip = (const uint8_t *)&p->nif.ip;
	struct rte_eth_link link = {0};

	reply_text(d, "name", "%s", p->dev.name);
	reply_text(d, "driver", "%s", p->dev.driver);
	reply_text(d, "address", "%u.%u.%u.%u/%u", ip[0], ip[1], ip[2], ip[3], p->nif.prefix_len);
	reply_text(d, "mac", "%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5]);
	rte_tel_data_add_dict_int(d, "node", p->dev.node);
	rte_tel_data_add_dict_u64(d, "mtu", p->mtu);
	rte_tel_data_add_dict_u64(d, "queues", p->n_queues);
	reply_text(d, "steering", "%s", pbox_port_steering(p));
	if (rte_eth_link_get_nowait(p->conf.id, &link) == 0 &&
		link.link_speed != RTE_ETH_SPEED_NUM_UNKNOWN)
		rte_tel_data_add_dict_u64(d, "link_mbps", link.link_speed);
	reply_values(d, PBOX_COUNTERS_PORT, v);
}

/* Those that are not 0, as many as an answer holds. */
static void
add_xstats(uint16_t id, struct rte_tel_data *d)
{
	int n = rte_eth_xstats_get_names(id, NULL, 0);
	struct rte_eth_xstat_name *name = n > 0 ? calloc((size_t)n, sizeof(*name)) : NULL;
	struct rte_eth_xstat *x = n > 0 ? calloc((size_t)n, sizeof(*x)) : NULL;
	struct rte_tel_data *e = reply_dict();

	if (name != NULL && x != NULL && rte_eth_xstats_get_names(id, name, (unsigned)n) == n &&
		rte_eth_xstats_get(id, x, (unsigned)n) == n)
		for (int i = 0; i < n; i++)
			if (x[i].value != 0 && x[i].id < (uint64_t)n)
				rte_tel_data_add_dict_u64(e, name[x[i].id].name, x[i].value);
	free(name);
	free(x);
	reply_add(d, "xstats", e);
}

static void
on_ports(struct pbox_control *c, int n, char word[][PARAM_SIZE], struct rte_tel_data *d)
{
	unsigned only = 0;

	if (n > 0 && !params_number(word[0], RTE_MAX_ETHPORTS, &only)) {
		reply_error(d, "PORT is the number of a port");
		return;
	}
	control_port_stats_update(c);
	rte_tel_data_add_dict_u64(d, "clock_ns", pbox_dp_now(c->conf.dp));
	for (unsigned i = 0; i < c->conf.n_ports; i++) {
		const struct pbox_port *p = &c->conf.port[i];
		struct rte_tel_data *e;

		if (n > 0 && p->conf.id != only)
			continue;
		e = reply_dict();
		add_port(p, c->port_stat[i], e);
		if (n > 0)
			add_xstats(p->conf.id, e);
		reply_add_numbered(d, "port", p->conf.id, e);
		if (n > 0)
			return;
	}
	if (n > 0)
		reply_error(d, "no port %u serves here: /pbox/ports names them", only);
}

static void
on_pools(struct pbox_control *c, int n __rte_unused, char word[][PARAM_SIZE] __rte_unused,
	struct rte_tel_data *d)
{
	uint64_t v[POOL_STATS];
	struct health_pool p;

	for (unsigned i = 0; health_pool(c, i, &p); i++) {
		struct rte_tel_data *e = reply_dict();

		v[POOL_SIZE] = p.size;
		v[POOL_IN_USE] = p.size - p.free;
		v[POOL_FREE] = p.free;
		v[POOL_CACHED] = p.cached;
		v[POOL_LOW_WATER] = p.low;
		reply_values(e, PBOX_COUNTERS_POOL, v);
		rte_tel_data_add_dict_int(e, "node", p.node);
		reply_add(d, p.name, e);
	}
}

/* Where what is received is counted again and sorted: accepted, or dropped for a reason. */
static const struct level {
	const char *name;
	enum pbox_control_table table;
	unsigned received, first_accept, last_accept, first_drop, last_drop;
} levels[] = {
	{"packets", PBOX_COUNTERS_CORE, PBOX_CS_RX_PACKETS, PBOX_CS_FIRST_ACCEPT,
		PBOX_CS_LAST_ACCEPT, PBOX_CS_FIRST_DROP, PBOX_CS_LAST_DROP},
	{"frames", PBOX_COUNTERS_CORE, PBOX_CS_FRAMES, PBOX_CS_FRAMES_DATA, PBOX_CS_FRAMES_CONTROL,
		PBOX_CS_FIRST_FRAME_DROP, PBOX_CS_LAST_FRAME_DROP},
	{"data_frames", PBOX_COUNTERS_SHARD, PBOX_SS_RX_FRAMES, PBOX_SS_FIRST_ACCEPT,
		PBOX_SS_FIRST_DROP - 1, PBOX_SS_FIRST_DROP, PBOX_SS_LAST_DROP},
	{"control_frames", PBOX_COUNTERS_CONTROL, PBOX_CT_FRAMES, PBOX_CT_TO_REGISTRAR,
		PBOX_CT_TO_REGISTRAR, PBOX_CT_FIRST_DROP, PBOX_CT_LAST_DROP},
	{"requests", PBOX_COUNTERS_REGISTRAR, PBOX_RS_RX_FRAMES, PBOX_RS_FIRST_ACCEPT,
		PBOX_RS_FIRST_DROP - 1, PBOX_RS_FIRST_DROP, PBOX_RS_LAST_DROP},
};
#define LEVELS (sizeof(levels) / sizeof(levels[0]))
#define ALL    UINT32_MAX

static uint64_t
level_value(struct pbox_control *c, const struct level *l, unsigned core, unsigned what)
{
	uint64_t sum = 0;

	if (l->table == PBOX_COUNTERS_CONTROL)
		return pbox_stat_get(&c->stat[what]);
	if (l->table == PBOX_COUNTERS_REGISTRAR)
		return pbox_stat_get(&c->registrar_stat[what]);
	for (unsigned i = 0; i < c->conf.n_cores; i++)
		if (core == ALL || core == i)
			sum += pbox_stat_get(&(l->table == PBOX_COUNTERS_CORE
						       ? pbox_dp_core_stats(c->conf.dp, i)
						       : pbox_dp_shard_stats(c->conf.dp, i))[what]);
	return sum;
}

/* Packets come from other cores, too, and go there. */
static int64_t
handed(struct pbox_control *c, const struct level *l, unsigned core)
{
	if (l->table != PBOX_COUNTERS_CORE || l->received != PBOX_CS_RX_PACKETS)
		return 0;
	return (int64_t)level_value(c, l, core, PBOX_CS_HANDOFF_IN) -
	       (int64_t)level_value(c, l, core, PBOX_CS_HANDOFF_OUT);
}

static void
add_level(struct pbox_control *c, const struct level *l, unsigned core, struct rte_tel_data *all)
{
	const struct pbox_stat_def *defs = pbox_control_tables[l->table].defs;
	uint64_t received = level_value(c, l, core, l->received), accepted = 0, dropped = 0;
	int64_t from_others = handed(c, l, core), left;
	struct rte_tel_data *d = reply_dict(), *drops = reply_dict();

	for (unsigned i = l->first_accept; i <= l->last_accept; i++)
		accepted += level_value(c, l, core, i);
	for (unsigned i = l->first_drop; i <= l->last_drop; i++) {
		uint64_t v = level_value(c, l, core, i);

		dropped += v;
		if (v > 0)
			rte_tel_data_add_dict_u64(drops, defs[i].name, v);
	}
	/* counted one after the other while cores work: exact when nothing is under way */
	left = (int64_t)(received - accepted - dropped) + from_others;
	rte_tel_data_add_dict_u64(d, "received", received);
	if (core != ALL && from_others != 0)
		rte_tel_data_add_dict_int(d, "from_other_cores", (int)from_others);
	rte_tel_data_add_dict_u64(d, "accepted", accepted);
	rte_tel_data_add_dict_u64(d, "dropped", dropped);
	rte_tel_data_add_dict_int(d, "unaccounted", (int)left);
	reply_add(d, "drops", drops);
	reply_add(all, l->name, d);
}

/* What devices lost before a data core saw it, and what could not be sent. */
static void
add_lost(struct pbox_control *c, struct rte_tel_data *all)
{
	static const uint8_t lost[] = {
		PORT_RX_MISSED, PORT_RX_ERRORS, PORT_RX_NO_MBUF, PORT_TX_ERRORS};
	struct rte_tel_data *d = reply_dict();

	for (unsigned k = 0; k < sizeof(lost); k++) {
		uint64_t sum = 0;

		for (unsigned i = 0; i < c->conf.n_ports; i++)
			sum += pbox_stat_get(&c->port_stat[i][lost[k]]);
		rte_tel_data_add_dict_u64(d, control_port_stat_defs[lost[k]].name, sum);
	}
	rte_tel_data_add_dict_u64(d, "tx_dropped", pbox_dp_total(c->conf.dp, PBOX_CS_TX_DROPPED));
	rte_tel_data_add_dict_u64(d, "tx_no_mbuf", pbox_dp_total(c->conf.dp, PBOX_CS_TX_NO_MBUF));
	rte_tel_data_add_dict_u64(d, "tx_lost", pbox_stat_get(&c->stat[PBOX_CT_TX_LOST]));
	reply_add(all, "not_received_or_sent", d);
}

static void
on_drops(struct pbox_control *c, int n, char word[][PARAM_SIZE], struct rte_tel_data *d)
{
	unsigned core = ALL;

	if (n > 0 && !params_number(word[0], c->conf.n_cores - 1, &core)) {
		reply_error(d, "CORE is a number of a data core, 0 to %u", c->conf.n_cores - 1);
		return;
	}
	rte_tel_data_add_dict_u64(d, "clock_ns", pbox_dp_now(c->conf.dp));
	for (unsigned i = 0; i < LEVELS; i++)
		if (core == ALL || levels[i].table == PBOX_COUNTERS_CORE ||
			levels[i].table == PBOX_COUNTERS_SHARD)
			add_level(c, &levels[i], core, d);
	if (core == ALL) {
		control_port_stats_update(c);
		add_lost(c, d);
	}
}

static void
on_health(struct pbox_control *c, int n __rte_unused, char word[][PARAM_SIZE] __rte_unused,
	struct rte_tel_data *d)
{
	struct health_finding f[HEALTH_FINDINGS];
	unsigned found;

	control_port_stats_update(c);
	found = health_findings(c, f, HEALTH_FINDINGS);
	rte_tel_data_add_dict_u64(d, "clock_ns", pbox_dp_now(c->conf.dp));
	rte_tel_data_add_dict_u64(d, "window_ms", health_window_ns(c) / NS_PER_MS);
	rte_tel_data_add_dict_u64(d, "findings", found);
	for (unsigned i = 0; i < found; i++)
		health_reply(&f[i], i, d);
}

/* The boxes of its jobs (section 16). */
static void
on_fleet(struct pbox_control *c, int n __rte_unused, char word[][PARAM_SIZE] __rte_unused,
	struct rte_tel_data *d)
{
	const struct pbox_registrar_boxes *b = &c->conf.registrar.boxes;

	rte_tel_data_add_dict_u64(d, "boxes", b->boxes > 1 ? b->boxes : 1);
	rte_tel_data_add_dict_u64(d, "box", b->box);
	reply_text(d, "release", "%s", PBOX_VERSION);
	rte_tel_data_add_dict_u64(d, "cores", c->conf.n_cores);
	rte_tel_data_add_dict_u64(d, "chunk_elements", c->conf.registrar.chunk_elements);
	rte_tel_data_add_dict_u64(d, "mtu", c->conf.registrar.mtu);
	for (unsigned i = 0; i < b->boxes; i++) {
		char name[16];

		snprintf(name, sizeof(name), "box_%u", i);
		reply_text(d, name, "%u.%u.%u.%u:%u", b->at[i].ipv4[0], b->at[i].ipv4[1],
			b->at[i].ipv4[2], b->at[i].ipv4[3], b->at[i].udp);
	}
}

const struct telemetry_command telemetry_box_commands[] = {
	{"/pbox/stats", 2, on_stats,
		"Counters that are not 0; or all of a block. Parameters: BLOCK[,FIRST]."},
	{"/pbox/counters", 1, on_counters,
		"What the box counts: blocks; of one block names, units, help. Parameter: BLOCK."},
	{"/pbox/cores", 1, on_cores, "Data cores: busy, cycles, stages. Parameter: FIRST."},
	{"/pbox/ports", 1, on_ports, "Ports; of one also xstats. Parameter: PORT."},
	{"/pbox/pools", 0, on_pools, "Packet pools: size, in use, lowest since the start."},
	{"/pbox/drops", 1, on_drops,
		"Received = accepted + dropped by name, on all cores or one. Parameter: CORE."},
	{"/pbox/health", 0, on_health, "What is wrong or bounds the rate, and what to do."},
	{"/pbox/boxes", 0, on_fleet, "The boxes that its jobs are at, and which one this is."},
	{0},
};
