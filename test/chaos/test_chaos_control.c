/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>
#include <string.h>

#include <rte_bus_vdev.h>
#include <rte_cycles.h>
#include <rte_log.h>

#include "bed.h"
#include "control.h"
#include "unit.h"

static struct rte_mbuf *
take_sent(struct bed *b)
{
	struct rte_mbuf *m = NULL;

	rte_ring_dequeue(b->tx[0], (void **)&m);
	return m;
}

/* A packet that the application still holds (to send it again, or to another worker) is damaged
 * and cut in a copy. */
void
test_shared(void)
{
	static const char *const args[] = {"tx_corrupt=1:4", "tx_truncate=1:50", "rx_corrupt=1:4"};

	for (unsigned int i = 0; i < RTE_DIM(args); i++) {
		struct rte_mbuf *m, *out = NULL;
		struct bed b;

		bed_open(&b, args[i]);
		m = bed_packet(i, BED_LEN);
		rte_mbuf_refcnt_update(m, 1);
		if (i < 2) {
			UNIT_EQ_U64(rte_eth_tx_burst(b.port, 0, &m, 1), 1);
			out = take_sent(&b);
			UNIT_EQ_U64(bed_xstat(&b, "tx_copied"), 1);
		} else {
			rte_ring_enqueue(b.rx[0], m);
			UNIT_EQ_U64(rte_eth_rx_burst(b.port, 0, &out, 1), 1);
		}
		CU_ASSERT_FATAL(out != NULL && out != m);
		CU_ASSERT_TRUE(bed_intact(m, BED_LEN));
		CU_ASSERT_FALSE(bed_intact(out, BED_LEN));
		UNIT_EQ_U64(rte_mbuf_refcnt_read(m), 1);
		rte_pktmbuf_free(m);
		rte_pktmbuf_free(out);
		bed_close(&b);
	}
}

static unsigned int external_freed;

static void
free_external(void *addr, void *ctx)
{
	(void)addr;
	(void)ctx;
	external_freed++;
}

/* A header chained to shared memory, as answers are: what was sent must not change while it is
 * held, even if the memory does, and the memory is given back at once. */
void
test_external(void)
{
	static uint8_t memory[1024];
	struct rte_mbuf_ext_shared_info info = {.free_cb = free_external};
	struct rte_mbuf *head, *ext, *out;
	struct bed b;

	bed_open(&b, "tx_delay_us=2000");
	rte_mbuf_ext_refcnt_set(&info, 1);
	head = bed_packet(77, 40);
	ext = rte_pktmbuf_alloc(bed_pool);
	rte_pktmbuf_attach_extbuf(ext, memory, RTE_BAD_IOVA, sizeof(memory), &info);
	memset(memory, 0x11, sizeof(memory));
	rte_pktmbuf_append(ext, 1000);
	CU_ASSERT_EQUAL_FATAL(rte_pktmbuf_chain(head, ext), 0);
	external_freed = 0;
	UNIT_EQ_U64(rte_eth_tx_burst(b.port, 0, &head, 1), 1);
	UNIT_EQ_U64(external_freed, 1);
	memset(memory, 0x22, sizeof(memory));
	CU_ASSERT_PTR_NULL(take_sent(&b));
	bed_drain_rx(&b, 4000, NULL, 0);
	out = take_sent(&b);
	CU_ASSERT_FATAL(out != NULL);
	UNIT_EQ_U64(out->pkt_len, 1040);
	UNIT_EQ_U64(out->nb_segs, 1);
	UNIT_EQ_U64(bed_number(out), 77);
	UNIT_EQ_U64(*rte_pktmbuf_mtod_offset(out, uint8_t *, 40), 0x11);
	UNIT_EQ_U64(*rte_pktmbuf_mtod_offset(out, uint8_t *, 1039), 0x11);
	rte_pktmbuf_free(out);
	bed_close(&b);
}

/* Who sends seldom polls nevertheless: its delayed packets leave with rx bursts. */
void
test_idle_sender(void)
{
	struct rte_mbuf *m, *out;
	struct bed b;

	bed_open(&b, "tx_reorder=1:8:1000,tx_dup=1");
	m = bed_packet(5, BED_LEN);
	UNIT_EQ_U64(rte_eth_tx_burst(b.port, 0, &m, 1), 1);
	CU_ASSERT_PTR_NULL(take_sent(&b));
	bed_drain_rx(&b, 3000, NULL, 0);
	for (unsigned int i = 0; i < 2; i++) {
		out = take_sent(&b);
		CU_ASSERT_FATAL(out != NULL && bed_intact(out, BED_LEN));
		rte_pktmbuf_free(out);
	}
	bed_conserves(&b);
	bed_close(&b);
}

/* A port that takes no more pushes back; nothing is lost, and all leaves in order later. */
void
test_full_port(void)
{
	uint32_t accepted = 0, freed = 0;
	struct rte_mbuf *m;
	struct bed b;

	bed_open(&b, "tx_dup=0.000001"); /* all but passive */
	for (;;) {
		m = bed_packet(accepted, BED_LEN);
		if (rte_eth_tx_burst(b.port, 0, &m, 1) == 0)
			break;
		accepted++;
	}
	rte_pktmbuf_free(m);
	CU_ASSERT(accepted > 4095 && accepted <= 4095 + 1024);
	bed_conserves(&b);
	while ((m = take_sent(&b)) != NULL) {
		UNIT_EQ_U64(bed_number(m), freed++);
		rte_pktmbuf_free(m);
		rte_eth_tx_burst(b.port, 0, NULL, 0);
	}
	UNIT_EQ_U64(freed, accepted);
	bed_conserves(&b);
	bed_close(&b);
}

/* Queues draw numbers of their own. */
void
test_queues(void)
{
	static uint8_t lost[2][1000];
	struct rte_mbuf *m;
	struct bed b;

	CU_ASSERT_FATAL(bed_make(&b, "seed=1,rx_loss=0.5", 2));
	bed_start(&b);
	for (uint16_t q = 0; q < 2; q++) {
		for (uint32_t i = 0; i < 1000; i++) {
			rte_ring_enqueue(b.rx[q], bed_packet(i, BED_LEN));
			lost[q][i] = rte_eth_rx_burst(b.port, q, &m, 1) == 0;
			if (!lost[q][i])
				rte_pktmbuf_free(m);
		}
	}
	CU_ASSERT(memcmp(lost[0], lost[1], sizeof(lost[0])) != 0);
	bed_conserves(&b);
	bed_close(&b);
}

void
test_device(void)
{
	struct rte_eth_dev_info info, inner;
	struct rte_ether_addr mac, inner_mac, other = {{2, 0, 0, 0, 0, 9}};
	struct rte_eth_link link;
	struct bed b;

	CU_ASSERT_FATAL(bed_make(&b, "", 2));
	CU_ASSERT_EQUAL(rte_eth_dev_info_get(b.port, &info), 0);
	CU_ASSERT_EQUAL(rte_eth_dev_info_get(b.wrapped, &inner), 0);
	CU_ASSERT_STRING_EQUAL(info.driver_name, "net_chaos");
	UNIT_EQ_U64(info.max_rx_queues, inner.max_rx_queues);
	UNIT_EQ_U64(info.max_mtu, inner.max_mtu);
	UNIT_EQ_U64(info.rx_offload_capa, inner.rx_offload_capa);
	UNIT_EQ_U64(info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE, 0);
	CU_ASSERT_EQUAL(rte_eth_macaddr_get(b.port, &mac), 0);
	CU_ASSERT_EQUAL(rte_eth_macaddr_get(b.wrapped, &inner_mac), 0);
	CU_ASSERT_TRUE(rte_is_same_ether_addr(&mac, &inner_mac));
	bed_start(&b);
	CU_ASSERT_EQUAL(rte_eth_link_get_nowait(b.port, &link), 0);
	UNIT_EQ_U64(link.link_status, RTE_ETH_LINK_UP);
	CU_ASSERT_EQUAL(rte_eth_promiscuous_enable(b.port), 0);
	UNIT_EQ_U64(rte_eth_promiscuous_get(b.port), 1);
	UNIT_EQ_U64(rte_eth_promiscuous_get(b.wrapped), 1);
	/* a wrapped port that cannot change its MTU or MAC address says so through us */
	CU_ASSERT_EQUAL(rte_eth_dev_set_mtu(b.port, 1400), rte_eth_dev_set_mtu(b.wrapped, 1400));
	CU_ASSERT_EQUAL(rte_eth_dev_default_mac_addr_set(b.port, &other),
		rte_eth_dev_default_mac_addr_set(b.wrapped, &other));
	CU_ASSERT_EQUAL(rte_eth_dev_stop(b.port), 0);
	CU_ASSERT_EQUAL(rte_eth_link_get_nowait(b.port, &link), 0);
	UNIT_EQ_U64(link.link_status, RTE_ETH_LINK_DOWN);
	b.queues = 1; /* configured again with fewer queues */
	bed_start(&b);
	UNIT_EQ_U64(bed_receive(&b, 0, 100, NULL, 0), 100);
	b.queues = 2;
	bed_close(&b);
}

void
test_ownership(void)
{
	struct bed b;
	unsigned int seen = 0;
	uint16_t id;
	char args[64];

	bed_open(&b, "");
	RTE_ETH_FOREACH_DEV (id) {
		CU_ASSERT(id != b.wrapped);
		seen += id == b.port;
	}
	UNIT_EQ_U64(seen, 1);
	/* what is wrapped cannot be wrapped again */
	snprintf(args, sizeof(args), "port=%s", b.ring_name);
	CU_ASSERT(rte_vdev_init("net_chaos_twice", args) != 0);
	/* but chaos over chaos works */
	snprintf(args, sizeof(args), "port=%s,rx_loss=1", b.name);
	CU_ASSERT_EQUAL(rte_eth_dev_stop(b.port), 0);
	CU_ASSERT_EQUAL(rte_vdev_init("net_chaos_outer", args), 0);
	CU_ASSERT_EQUAL(rte_vdev_uninit("net_chaos_outer"), 0);
	CU_ASSERT_FALSE(rte_eth_dev_is_valid_port(b.port));
	CU_ASSERT_FALSE(rte_eth_dev_is_valid_port(b.wrapped));
	rte_vdev_uninit(b.name);
	rte_ring_free(b.rx[0]);
	rte_ring_free(b.tx[0]);
	UNIT_EQ_U64(rte_mempool_in_use_count(bed_pool), 0);
}

void
test_arguments(void)
{
	static const char *const wrong[] = {"rx_loss=1.1", "rx_loss=-0.1", "rx_loss=x",
		"rx_loss=nan", "rx_loss=", "rx_loss", "rx_loss=0.1:2", "rx_los=0.1", "loss=0.1",
		"rx_burst=0.1", "rx_burst=0.1:0", "rx_gilbert=0.1", "rx_reorder=0.1:1025",
		"rx_reorder=0.1:2.5", "rx_delay_us=60000001", "rx_blackhole=2", "rx_target=1",
		"rx_target=1:2", "rx_target=1:2:3", "rx_target=1:2:zz", "rx_target=1:2:00/f",
		"rx_target=1:2:00+", "rx_target=1:70000:00", "seed=x", "limit=0", "copies=1000000",
		"rx_target=1:0:00+0:00+0:00+0:00+0:00+0:00+0:00+0:00+0:00",
		"rx_target=1:0:0011223344556677889900112233445566"};
	static const char *const right[] = {"rx_burst=0", "rx_gilbert=0", "rx_target=0",
		"seed=0x10", "tx_target=1:2:00Ff/0f0F", "rx_loss=1e-3", "rx_reorder=0.5:1024"};
	struct bed b;

	bed_eal();
	rte_log_set_level_pattern("pmd.net.chaos", RTE_LOG_CRIT);
	rte_log_set_level_pattern("lib.eal", RTE_LOG_CRIT);
	rte_log_set_level_pattern("bus.vdev", RTE_LOG_CRIT);
	for (unsigned int i = 0; i < RTE_DIM(wrong); i++)
		CU_assertImplementation(
			!bed_make(&b, wrong[i], 1), __LINE__, wrong[i], __FILE__, "", CU_FALSE);
	CU_ASSERT(rte_vdev_init("net_chaos_none", "") != 0);
	CU_ASSERT(rte_vdev_init("net_chaos_none", "port=none") != 0);
	rte_log_set_level_pattern("pmd.net.chaos", RTE_LOG_NOTICE);
	for (unsigned int i = 0; i < RTE_DIM(right); i++) {
		CU_ASSERT_FATAL(bed_make(&b, right[i], 1));
		bed_start(&b);
		bed_close(&b);
	}
}

static bool
has(const char *answer, const char *part)
{
	if (strstr(answer, part) != NULL)
		return true;
	printf("%s is not in %s\n", part, answer);
	return false;
}

void
test_telemetry(void)
{
	static char answer[16384];
	char cmd[256];
	struct bed b;

	bed_open(&b, "seed=12");
	bed_telemetry("/net_chaos/list", answer, sizeof(answer));
	snprintf(cmd, sizeof(cmd), "[%u]", b.port);
	CU_ASSERT_TRUE(has(answer, cmd));
	snprintf(cmd, sizeof(cmd), "/net_chaos/get,%u", b.port);
	bed_telemetry(cmd, answer, sizeof(answer));
	CU_ASSERT_TRUE(has(answer, "\"seed\":\"12\""));
	CU_ASSERT_TRUE(has(answer, "\"rx_loss\":\"0\""));
	CU_ASSERT_TRUE(has(answer, "\"tx_target\":\"0\""));
	/* takes effect at once */
	UNIT_EQ_U64(bed_receive(&b, 0, 100, NULL, 0), 100);
	snprintf(cmd, sizeof(cmd), "/net_chaos/set,%s,rx_blackhole=1,tx_reorder=0.25:64", b.name);
	bed_telemetry(cmd, answer, sizeof(answer));
	CU_ASSERT_TRUE(has(answer, "\"rx_blackhole\":\"1\""));
	CU_ASSERT_TRUE(has(answer, "\"tx_reorder\":\"0.25:64:2000\""));
	UNIT_EQ_U64(bed_receive(&b, 0, 100, NULL, 0), 0);
	UNIT_EQ_U64(bed_xstat(&b, "rx_blackholed"), 100);
	snprintf(cmd, sizeof(cmd), "/net_chaos/set,%u,rx_blackhole=0,rx_target=2:0:0a+10:46/ff",
		b.port);
	bed_telemetry(cmd, answer, sizeof(answer));
	CU_ASSERT_TRUE(has(answer, "\"rx_target\":\"2:0:0a+10:46\""));
	CU_ASSERT_TRUE(has(answer, "\"rx_target_left\":\"2\""));
	UNIT_EQ_U64(bed_receive(&b, 0, 100, NULL, 0), 99);
	snprintf(cmd, sizeof(cmd), "/net_chaos/get,%s", b.name);
	bed_telemetry(cmd, answer, sizeof(answer));
	CU_ASSERT_TRUE(has(answer, "\"rx_target_left\":\"1\""));
	/* what is wrong is reported, and changes nothing */
	snprintf(cmd, sizeof(cmd), "/net_chaos/set,%u,rx_loss=2", b.port);
	bed_telemetry(cmd, answer, sizeof(answer));
	CU_ASSERT_TRUE(has(answer, "\"error\""));
	snprintf(cmd, sizeof(cmd), "/net_chaos/set,%u", b.port);
	bed_telemetry(cmd, answer, sizeof(answer));
	CU_ASSERT_TRUE(has(answer, "KEY=VALUE"));
	bed_telemetry("/net_chaos/set,nobody,rx_loss=1", answer, sizeof(answer));
	CU_ASSERT_TRUE(has(answer, "no such port"));
	bed_telemetry("/net_chaos/get", answer, sizeof(answer));
	CU_ASSERT_TRUE(has(answer, "null"));
	bed_close(&b);
	bed_telemetry("/net_chaos/list", answer, sizeof(answer));
	CU_ASSERT_TRUE(has(answer, "[]"));
}

void
test_stats_reset(void)
{
	struct rte_eth_stats s;
	struct bed b;

	bed_open(&b, "rx_loss=0.5");
	bed_receive(&b, 0, 1000, NULL, 0);
	CU_ASSERT_EQUAL(rte_eth_stats_reset(b.port), 0);
	CU_ASSERT_EQUAL(rte_eth_stats_get(b.port, &s), 0);
	UNIT_EQ_U64(s.ipackets, 0);
	UNIT_EQ_U64(s.ibytes, 0);
	UNIT_EQ_U64(bed_xstat(&b, "rx_lost"), 0);
	bed_receive(&b, 0, 1000, NULL, 0);
	CU_ASSERT_EQUAL(rte_eth_stats_get(b.port, &s), 0);
	UNIT_EQ_U64(s.ipackets + bed_xstat(&b, "rx_lost"), 1000);
	UNIT_EQ_U64(s.ibytes, s.ipackets * BED_LEN);
	CU_ASSERT_EQUAL(rte_eth_xstats_reset(b.port), 0);
	UNIT_EQ_U64(bed_xstat(&b, "rx_lost"), 0);
	bed_close(&b);
}
