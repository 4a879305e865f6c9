/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <inttypes.h>

#include "control_priv.h"

/* Datagrams that are looked at together, and of them how many unfinished checksums, and more than
 * one in how many, are no chance. */
#define PARTIAL_INTERVAL 100
#define PARTIAL_LEAST    8
#define PARTIAL_SHARE    100

static void
watch_cores(struct pbox_control *c)
{
	struct watch *w = &c->watch;

	for (unsigned i = 0; i < c->conf.n_cores; i++) {
		uint64_t loops = pbox_stat_get(&pbox_dp_core_stats(c->conf.dp, i)[PBOX_CS_LOOPS]);
		bool stuck = loops == w->loops[i] && loops > 0 && !pbox_dp_stopping(c->conf.dp);

		w->loops[i] = loops;
		if (stuck)
			tally(c, PBOX_CT_STUCK);
		if (stuck != w->stuck[i])
			pbox_log(stuck ? PBOX_LOG_WARN : PBOX_LOG_INFO,
				stuck ? "data core %u (lcore %u) has not turned for a second: does another program use its CPU?"
				      : "data core %u (lcore %u) turns again",
				i, c->conf.core[i].lcore);
		w->stuck[i] = stuck;
	}
}

static void
watch_links(struct pbox_control *c)
{
	for (unsigned i = 0; i < c->conf.n_ports; i++) {
		struct pbox_port *p = &c->conf.port[i];
		int change = pbox_port_link_change(p);
		char advice[96];

		if (change < 0)
			pbox_log(PBOX_LOG_WARN, "port %u (%s) lost its link: %s", p->conf.id,
				p->dev.name, pbox_port_link_advice(p, advice, sizeof(advice)));
		if (change <= 0)
			continue;
		pbox_log(PBOX_LOG_INFO, "port %u (%s): the link is up", p->conf.id, p->dev.name);
		pbox_dp_announce(c->conf.dp, i);
	}
}

/*
 * One finished checksum in 65536 equals an unfinished one, so single datagrams mean nothing: a
 * sender that leaves them to hardware does so with all of its datagrams. The interval is a second,
 * or longer where little comes.
 */
static void
watch_checksums(struct pbox_control *c)
{
	const struct pbox_dp *dp = c->conf.dp;
	struct watch *w = &c->watch;
	uint64_t all = pbox_dp_total(dp, PBOX_CS_RX_CONTROL) + pbox_dp_total(dp, PBOX_CS_RX_DATA);
	uint64_t partial = pbox_dp_total(dp, PBOX_CS_UDP_CHECKSUM_PARTIAL);
	uint64_t came = all - w->datagrams, bad = partial - w->partial;

	if (w->reported_partial || came < PARTIAL_INTERVAL)
		return;
	w->datagrams = all;
	w->partial = partial;
	if (bad < PARTIAL_LEAST || bad * PARTIAL_SHARE <= came)
		return;
	w->reported_partial = true;
	pbox_log(PBOX_LOG_WARN,
		"%" PRIu64 " of %" PRIu64
		" datagrams came without a finished UDP checksum: their sender leaves it to hardware that its link does not have. They are accepted, their own CRC is good; on the workers, 'ethtool -K <if> tx off' fixes it",
		bad, came);
}

/* Things that an operator can fix, each reported once. */
static void
watch_packets(struct pbox_control *c)
{
	const struct pbox_dp *dp = c->conf.dp;
	struct watch *w = &c->watch;
	uint64_t n;

	watch_checksums(c);
	n = pbox_dp_total(dp, PBOX_CS_DROP_IP_TRUNCATED);
	if (n > 0 && !w->reported_truncated) {
		w->reported_truncated = true;
		pbox_log(PBOX_LOG_WARN,
			"%" PRIu64
			" packets were cut off and dropped: a sender's segmentation offload makes packets larger than the MTU ('ethtool -K <if> tx-udp-segmentation off' on the workers), or framesz of the device is smaller than the workers' MTU",
			n);
	}
	n = pbox_dp_total(dp, PBOX_CS_DROP_HANDOFF_FULL);
	if (n > 0 && !w->reported_handoff) {
		w->reported_handoff = true;
		pbox_log(PBOX_LOG_WARN,
			"%" PRIu64
			" packets were dropped between data cores: one is overloaded, or shares its CPU. Workers send them again",
			n);
	}
}

static uint64_t
shard_total(const struct pbox_control *c, enum pbox_shard_stat what)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < c->conf.n_cores; i++)
		n += pbox_stat_get(&pbox_dp_shard_stats(c->conf.dp, i)[what]);
	return n;
}

static uint64_t
all_drops(const struct pbox_control *c)
{
	uint64_t n = 0;

	for (unsigned i = PBOX_CS_FIRST_DROP; i <= PBOX_CS_LAST_DROP; i++)
		n += pbox_dp_total(c->conf.dp, i);
	for (unsigned i = PBOX_CS_FIRST_FRAME_DROP; i <= PBOX_CS_LAST_FRAME_DROP; i++)
		n += pbox_dp_total(c->conf.dp, i);
	for (unsigned i = PBOX_SS_FIRST_DROP; i <= PBOX_SS_LAST_DROP; i++)
		n += shard_total(c, i);
	return n;
}

/* The periodic line: rates since the last one. */
static void
watch_line(struct pbox_control *c, double s)
{
	struct watch *w = &c->watch;
	uint64_t rx = pbox_dp_total(c->conf.dp, PBOX_CS_RX_PACKETS);
	uint64_t rx_bytes = pbox_dp_total(c->conf.dp, PBOX_CS_RX_BYTES);
	uint64_t tx_bytes = pbox_dp_total(c->conf.dp, PBOX_CS_TX_BYTES);
	uint64_t rounds = shard_total(c, PBOX_SS_ROUNDS), drops = all_drops(c);

	if (s > 0)
		pbox_log(PBOX_LOG_INFO,
			"stats: jobs %" PRIu64 ", workers %" PRIu64
			", rx %.3f Gbit/s (%.0f packets/s), tx %.3f Gbit/s, %.0f fragments/s, held %" PRIu64
			", dropped %" PRIu64,
			pbox_stat_get(&c->registrar_stat[PBOX_RS_JOBS]),
			pbox_stat_get(&c->registrar_stat[PBOX_RS_WORKERS]),
			(double)(rx_bytes - w->rx_bytes) * 8e-9 / s, (double)(rx - w->rx) / s,
			(double)(tx_bytes - w->tx_bytes) * 8e-9 / s,
			(double)(rounds - w->rounds) / s, shard_total(c, PBOX_SS_HELD),
			drops - w->drops);
	w->rx = rx;
	w->rx_bytes = rx_bytes;
	w->tx_bytes = tx_bytes;
	w->rounds = rounds;
	w->drops = drops;
}

void
control_watch(struct pbox_control *c)
{
	struct watch *w = &c->watch;

	watch_cores(c);
	watch_links(c);
	control_watch_addresses(c);
	watch_packets(c);
	control_port_stats_update(c);
	if (c->conf.stats_interval_ns == 0)
		return;
	if (w->line_at == 0) {
		w->line_at = c->now_ns;
		watch_line(c, 0);
	} else if (c->now_ns - w->line_at >= c->conf.stats_interval_ns) {
		watch_line(c, (double)(c->now_ns - w->line_at) * 1e-9);
		w->line_at = c->now_ns;
	}
}
