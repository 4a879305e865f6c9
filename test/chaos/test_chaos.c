/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* What happens to packets. Settings, telemetry and the device are in test_chaos_control.c. */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>

#include "bed.h"
#include "control.h"
#include "unit.h"

const char unit_suite[] = "net_chaos";

#define N 20000
static uint32_t got[2 * N], again[2 * N];

/* within five standard deviations of a binomial distribution: seeds are fixed, so this holds once
 * and for all */
static void
binomial(uint64_t k, uint64_t n, double p)
{
	double sigma = sqrt((double)n * p * (1 - p));

	CU_ASSERT(fabs((double)k - (double)n * p) < 5 * sigma);
	if (fabs((double)k - (double)n * p) >= 5 * sigma)
		printf("%g of %g at %g\n", (double)k, (double)n, p);
}

static void
test_pass_through(void)
{
	struct bed b;

	bed_open(&b, "");
	UNIT_EQ_U64(bed_receive(&b, 0, N, got, N), N);
	for (uint32_t i = 0; i < N; i++)
		if (got[i] != i)
			UNIT_EQ_U64(got[i], i);
	UNIT_EQ_U64(bed_send(&b, 0, N, got, N), N);
	for (uint32_t i = 0; i < N; i++)
		if (got[i] != i)
			UNIT_EQ_U64(got[i], i);
	bed_conserves(&b);
	bed_close(&b);
}

static void
test_loss(void)
{
	struct bed b;
	uint32_t n;

	bed_open(&b, "seed=1,rx_loss=0.1,tx_loss=0.02");
	n = bed_receive(&b, 0, N, got, N);
	binomial(N - n, N, 0.1);
	UNIT_EQ_U64(bed_xstat(&b, "rx_lost"), N - n);
	for (uint32_t i = 1; i < n; i++)
		if (got[i] <= got[i - 1])
			UNIT_EQ_U64(got[i], got[i - 1] + 1);
	n = bed_send(&b, 0, N, got, N);
	binomial(N - n, N, 0.02);
	UNIT_EQ_U64(bed_xstat(&b, "tx_lost"), N - n);
	bed_conserves(&b);
	bed_close(&b);
	bed_open(&b, "rx_loss=1");
	UNIT_EQ_U64(bed_receive(&b, 0, 1000, got, N), 0);
	bed_close(&b);
}

static void
test_seed(void)
{
	static const char *const args[] = {"seed=7,rx_loss=0.1", "seed=7,rx_loss=0.1",
		"seed=7,rx_loss=0.1,rx_corrupt=0.5:4,rx_reorder=0:1,rx_delay_us=0",
		"seed=8,rx_loss=0.1"};
	struct bed b;
	uint32_t n = 0, m;

	for (unsigned int i = 0; i < RTE_DIM(args); i++) {
		bed_open(&b, args[i]);
		m = bed_receive(&b, 0, N, i == 0 ? got : again, N);
		if (i == 0)
			n = m;
		else
			CU_ASSERT(
				(m == n && memcmp(got, again, n * sizeof(got[0])) == 0) == (i < 3));
		if (i == 1) { /* a restart starts the sequence again */
			CU_ASSERT_EQUAL(rte_eth_dev_stop(b.port), 0);
			CU_ASSERT_EQUAL(rte_eth_dev_start(b.port), 0);
			UNIT_EQ_U64(bed_receive(&b, 0, N, again, N), n);
			CU_ASSERT_EQUAL(memcmp(got, again, n * sizeof(got[0])), 0);
		}
		bed_close(&b);
	}
}

static void
test_burst(void)
{
	struct bed b;
	uint32_t n, gap, next = 0, bursts = 0;

	bed_open(&b, "seed=3,rx_burst=0.01:3");
	n = bed_receive(&b, 0, N, got, N);
	for (uint32_t i = 0; i < n; i++) {
		gap = got[i] - next;
		UNIT_EQ_U64(gap % 3, 0);
		bursts += gap / 3;
		next = got[i] + 1;
	}
	binomial(bursts, n, 0.01);
	UNIT_EQ_U64(bed_xstat(&b, "rx_burst_lost"), N - n);
	bed_conserves(&b);
	bed_close(&b);
}

static void
test_gilbert(void)
{
	struct bed b;
	uint32_t n, next = 0, runs = 0;
	double share;

	/* bad for 1 / (1 + 4) of the time, for 5 packets on the average, and 3 of 4 are lost then */
	bed_open(&b, "seed=5,rx_gilbert=0.05:0.2:0.75");
	n = bed_receive(&b, 0, N, got, N);
	share = (double)(N - n) / N;
	CU_ASSERT(share > 0.13 && share < 0.17);
	for (uint32_t i = 0; i < n; i++) {
		runs += got[i] != next;
		next = got[i] + 1;
	}
	CU_ASSERT((double)(N - n) / runs > 2); /* in bursts: 1.18 if they were independent */
	UNIT_EQ_U64(bed_xstat(&b, "rx_gilbert_lost"), N - n);
	bed_conserves(&b);
	bed_close(&b);
}

static void
test_dup(void)
{
	struct bed b;
	uint32_t n, twice = 0;

	bed_open(&b, "seed=2,rx_dup=0.1,tx_dup=0.1");
	n = bed_receive(&b, 0, N, got, 2 * N);
	binomial(n - N, N, 0.1);
	for (uint32_t i = 1; i < n; i++)
		twice += got[i] == got[i - 1];
	UNIT_EQ_U64(twice, n - N);
	UNIT_EQ_U64(bed_xstat(&b, "rx_duplicated"), n - N);
	n = bed_send(&b, 0, N, got, 2 * N);
	binomial(n - N, N, 0.1);
	bed_conserves(&b);
	bed_close(&b);
}

static uint16_t
ip_sum(const uint8_t *ip)
{
	uint32_t sum = 0;

	for (unsigned int i = 0; i < 20; i += 2)
		sum += (uint32_t)(ip[i] << 8 | ip[i + 1]);
	sum = (sum & 0xFFFF) + (sum >> 16);
	return (uint16_t)((sum & 0xFFFF) + (sum >> 16));
}

/* One IPv4 header each with ECN bits and a checksum field that makes its sum 0xFFFF. */
static void
test_mark(void)
{
	static const uint8_t out[] = {0, 3, 3, 3};
	struct bed b;

	bed_open(&b, "rx_mark=1");
	for (unsigned int i = 0; i < 4000; i++) {
		struct rte_mbuf *m = bed_packet(i, BED_LEN);
		uint8_t *eth = rte_pktmbuf_mtod(m, uint8_t *), *ip = eth + 14;
		uint16_t sum;

		memset(ip, 0, 20);
		eth[12] = 8;
		eth[13] = 0;
		ip[0] = 0x45;
		ip[1] = (uint8_t)(0xB8 | i % 4);
		memcpy(ip + 12, &i, sizeof(i));
		sum = (uint16_t)~ip_sum(ip);
		ip[10] = (uint8_t)(sum >> 8);
		ip[11] = (uint8_t)sum;
		CU_ASSERT_EQUAL(rte_ring_enqueue(b.rx[0], m), 0);
		CU_ASSERT_EQUAL_FATAL(rte_eth_rx_burst(b.port, 0, &m, 1), 1);
		ip = rte_pktmbuf_mtod_offset(m, uint8_t *, 14);
		UNIT_EQ_U64(ip[1], 0xB8 | out[i % 4]);
		UNIT_EQ_U64(ip_sum(ip), 0xFFFF);
		rte_pktmbuf_free(m);
	}
	UNIT_EQ_U64(bed_xstat(&b, "rx_marked"), 2000);
	bed_close(&b);
}

static void
test_corrupt_and_truncate(void)
{
	struct rte_mbuf *pkts[BED_BURST];
	unsigned int damaged = 0, cut = 0, n = 0;
	struct bed b;

	bed_open(&b, "seed=4,rx_corrupt=0.3:42,rx_truncate=0.2:60");
	for (uint32_t i = 0; i < N; i++) {
		uint8_t *p;
		unsigned int wrong = 0;

		CU_ASSERT_FATAL(rte_ring_enqueue(b.rx[0], bed_packet(i, BED_LEN)) == 0);
		CU_ASSERT_FATAL(rte_eth_rx_burst(b.port, 0, pkts, BED_BURST) == 1);
		p = rte_pktmbuf_mtod(pkts[0], uint8_t *);
		for (uint32_t k = 4; k < pkts[0]->pkt_len; k++) {
			wrong += p[k] != (uint8_t)(k * 7);
			CU_ASSERT(p[k] == (uint8_t)(k * 7) || k >= 42);
		}
		CU_ASSERT(wrong <= 1 && pkts[0]->pkt_len >= 60);
		CU_ASSERT(pkts[0]->pkt_len == pkts[0]->data_len);
		damaged += wrong;
		cut += pkts[0]->pkt_len < BED_LEN;
		n++;
		rte_pktmbuf_free(pkts[0]);
	}
	binomial(bed_xstat(&b, "rx_corrupted"), n, 0.3);
	binomial(cut, n, 0.2);
	UNIT_EQ_U64(bed_xstat(&b, "rx_truncated"), cut);
	CU_ASSERT(damaged <= bed_xstat(&b, "rx_corrupted")); /* some of it was cut off */
	bed_close(&b);
}

#define TRIES 1000

static uint64_t
us_since(uint64_t start)
{
	return (rte_rdtsc() - start) * 1000000 / rte_get_tsc_hz();
}

static void
test_reorder(void)
{
	static uint32_t passed_by[N];
	struct bed b;
	uint32_t n, late = 0;

	bed_open(&b, "seed=6,rx_reorder=0.1:64:1000000");
	n = bed_receive(&b, 0, N, got, N);
	memset(passed_by, 0, sizeof(passed_by));
	for (uint32_t i = 1, high = got[0]; i < n; i++) {
		if (got[i] < high) {
			late++;
			/* at most 64 that were not held themselves */
			CU_ASSERT(high - got[i] <= 64 * 2);
		} else {
			high = got[i];
		}
	}
	CU_ASSERT(late > N / 20);
	binomial(bed_xstat(&b, "rx_reordered"), N, 0.1);
	CU_ASSERT(N - n < 64);
	UNIT_EQ_U64(bed_xstat(&b, "rx_held"), N - n);
	bed_conserves(&b);
	bed_close(&b); /* frees what is held */
	/* alone, a packet is held for its time and no longer; where the process was kept off its CPU for
	 * that long, nobody can know, and it is tried again */
	for (unsigned i = 0; i < TRIES; i++) {
		uint64_t start;

		bed_open(&b, "rx_reorder=1:64:3000");
		start = rte_rdtsc();
		n = bed_receive(&b, 0, 5, got, N);
		if (us_since(start) < 3000 || i + 1 == TRIES) {
			UNIT_EQ_U64(n, 0);
			break;
		}
		bed_close(&b);
	}
	UNIT_EQ_U64(bed_drain_rx(&b, 20000, got, N), 5);
	for (uint32_t i = 0; i < 5; i++)
		UNIT_EQ_U64(got[i], i);
	bed_close(&b);
}

static void
test_delay(void)
{
	struct bed b;
	uint64_t start, held;
	uint32_t n;

	for (unsigned i = 0; i < TRIES; i++) {
		bed_open(&b, "rx_delay_us=5000");
		start = rte_rdtsc();
		n = bed_receive(&b, 0, 100, got, N);
		held = bed_xstat(&b, "rx_held");
		if (us_since(start) < 5000 || i + 1 == TRIES) {
			UNIT_EQ_U64(n, 0);
			UNIT_EQ_U64(held, 100);
			break;
		}
		bed_close(&b);
	}
	while (bed_drain_rx(&b, 0, got, N) == 0)
		;
	CU_ASSERT(us_since(start) >= 5000);
	bed_drain_rx(&b, 20000, got + 1, N);
	UNIT_EQ_U64(bed_xstat(&b, "rx_delayed"), 100);
	UNIT_EQ_U64(bed_xstat(&b, "rx_held"), 0);
	bed_conserves(&b);
	bed_close(&b);
	/* order is kept without jitter, and not with it */
	bed_open(&b, "rx_delay_us=100");
	bed_receive(&b, 0, 1000, NULL, 0);
	bed_drain_rx(&b, 5000, NULL, 0);
	UNIT_EQ_U64(bed_xstat(&b, "rx_held"), 0);
	bed_close(&b);
	bed_open(&b, "rx_delay_us=30000000:30000000,limit=200");
	CU_ASSERT(bed_receive(&b, 0, 300, got, N) < 300);
	CU_ASSERT(bed_xstat(&b, "rx_overflow") > 0);
	bed_drain_rx(&b, 20000, NULL, 0);
	bed_conserves(&b);
	bed_close(&b);
}

static void
test_target(void)
{
	struct bed b;
	uint32_t n;

	/* byte 10 is 70 in all; the number is little-endian: every 256th has 9 in its first byte */
	bed_open(&b, "rx_target=5:0:09+10:46");
	n = bed_receive(&b, 0, 256 * 8, got, N);
	UNIT_EQ_U64(n, 256 * 8 - 5);
	for (uint32_t i = 0; i < n; i++)
		CU_ASSERT(got[i] % 256 != 9 || got[i] >= 256 * 5);
	UNIT_EQ_U64(bed_xstat(&b, "rx_target_dropped"), 5);
	bed_close(&b);
	bed_open(&b, "tx_target=1000:0:10/f0+200:00"); /* the frame has no byte 200 */
	UNIT_EQ_U64(bed_send(&b, 0, 256, got, N), 256);
	bed_close(&b);
	bed_open(&b, "tx_target=1000:0:1f/f0"); /* bits outside of the mask do not count */
	UNIT_EQ_U64(bed_send(&b, 0, 256, got, N), 240);
	bed_conserves(&b);
	bed_close(&b);
}

/* FNV-1a of all that comes out, in order: lengths and bytes. */
static uint64_t
hash_on(uint64_t h, struct rte_mbuf *m)
{
	const uint8_t *p = rte_pktmbuf_mtod(m, const uint8_t *);

	for (uint32_t i = 0; i <= m->pkt_len; i++)
		h = (h ^ (i == 0 ? m->pkt_len : p[i - 1])) * UINT64_C(0x100000001B3);
	rte_pktmbuf_free(m);
	return h;
}

/* A seed's fates are forever: failures that somebody noted by their seed can be had again. */
static void
test_frozen(void)
{
	uint64_t rx = 0, tx = 0;
	struct rte_mbuf *m;
	struct bed b;

	bed_open(&b,
		"seed=11,rx_loss=0.02,rx_burst=0.01:3,rx_gilbert=0.01:0.2:0.5,rx_dup=0.05,rx_corrupt=0.1:4,rx_truncate=0.1:20,rx_reorder=0.1:16:60000000,tx_loss=0.02,tx_burst=0.01:3,tx_gilbert=0.01:0.2:0.5,tx_dup=0.05,tx_corrupt=0.1:4,tx_truncate=0.1:20,tx_reorder=0.1:16:60000000,tx_target=3:0:07");
	for (uint32_t i = 0; i < N; i++) {
		CU_ASSERT_FATAL(rte_ring_enqueue(b.rx[0], bed_packet(i, BED_LEN)) == 0);
		while (rte_eth_rx_burst(b.port, 0, &m, 1) == 1)
			rx = hash_on(rx, m);
		m = bed_packet(i, BED_LEN);
		CU_ASSERT_FATAL(rte_eth_tx_burst(b.port, 0, &m, 1) == 1);
		while (rte_ring_dequeue(b.tx[0], (void **)&m) == 0)
			tx = hash_on(tx, m);
	}
	UNIT_EQ_U64(rx, UINT64_C(0xa8ea5fcaf8af2dd9));
	UNIT_EQ_U64(tx, UINT64_C(0xfd0b208b1ad4db8a));
	bed_conserves(&b);
	bed_close(&b);
}

/* Everything at once, both ways: nothing is lost track of, and nothing stays in it. */
static void
test_all_at_once(void)
{
	struct bed b;

	bed_open(&b,
		"seed=9,rx_loss=0.05,rx_burst=0.01:3,rx_gilbert=0.01:0.3,rx_dup=0.1,rx_reorder=0.1:64,rx_delay_us=100:200,rx_corrupt=0.3,rx_truncate=0.1,tx_loss=0.05,tx_burst=0.01:3,tx_gilbert=0.01:0.3,tx_dup=0.1,tx_reorder=0.1:64,tx_delay_us=100:200,tx_corrupt=0.3,tx_truncate=0.1");
	for (unsigned int round = 0; round < 20; round++) {
		bed_receive(&b, round, 500, NULL, 0);
		bed_send(&b, round, 500, NULL, 0);
		bed_conserves(&b);
	}
	CU_ASSERT(bed_xstat(&b, "rx_held") > 0);
	CU_ASSERT(bed_xstat(&b, "tx_held") > 0);
	bed_close(&b);
}

const struct unit_test unit_tests[] = {
	{"pass through", test_pass_through},
	{"loss", test_loss},
	{"the seed decides", test_seed},
	{"forever", test_frozen},
	{"bursts of fixed length", test_burst},
	{"Gilbert-Elliott", test_gilbert},
	{"duplication", test_dup},
	{"corruption and truncation", test_corrupt_and_truncate},
	{"marks", test_mark},
	{"reordering", test_reorder},
	{"delay", test_delay},
	{"target", test_target},
	{"all at once", test_all_at_once},
	{"what is shared is not spoilt", test_shared},
	{"an external buffer is copied while held", test_external},
	{"idle senders", test_idle_sender},
	{"a full port", test_full_port},
	{"several queues", test_queues},
	{"the device", test_device},
	{"ownership", test_ownership},
	{"wrong arguments", test_arguments},
	{"telemetry", test_telemetry},
	{"statistics start again", test_stats_reset},
	{NULL, NULL},
};
