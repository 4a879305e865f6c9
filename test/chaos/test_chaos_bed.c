/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <rte_bus_vdev.h>
#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_eth_ring.h>

#include "bed.h"
#include "unit.h"

struct rte_mempool *bed_pool;

void
bed_eal(void)
{
	static char prefix[64];
	char *argv[] = {"test_chaos", "--no-huge", "--no-pci", "-m", "128", "-l", "0",
		"--log-level", "lib.eal:error", prefix, NULL};

	if (bed_pool != NULL)
		return;
	snprintf(prefix, sizeof(prefix), "--file-prefix=test_chaos_%d", (int)getpid());
	if (rte_eal_init(RTE_DIM(argv) - 1, argv) < 0) {
		fprintf(stderr, "EAL does not start: is 128 MB of memory free?\n");
		exit(1);
	}
	bed_pool = rte_pktmbuf_pool_create(
		"bed", 8191, 0, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	if (bed_pool == NULL)
		exit(1);
}

bool
bed_make(struct bed *b, const char *args, uint16_t queues)
{
	static unsigned int serial;
	char text[512];
	int id;

	bed_eal();
	memset(b, 0, sizeof(*b));
	b->queues = queues;
	snprintf(b->name, sizeof(b->name), "net_chaos%u", serial);
	snprintf(b->ring_name, sizeof(b->ring_name), "net_ring_bed%u", serial++);
	for (uint16_t i = 0; i < queues; i++) {
		snprintf(text, sizeof(text), "%s_rx%u", b->name, i);
		b->rx[i] = rte_ring_create(text, 4096, SOCKET_ID_ANY, 0);
		snprintf(text, sizeof(text), "%s_tx%u", b->name, i);
		b->tx[i] = rte_ring_create(text, 4096, SOCKET_ID_ANY, 0);
	}
	id = rte_eth_from_rings(
		b->ring_name + strlen("net_ring_"), b->rx, queues, b->tx, queues, SOCKET_ID_ANY);
	CU_ASSERT_FATAL(id >= 0);
	b->wrapped = (uint16_t)id;
	snprintf(text, sizeof(text), "port=%s%s%s", b->ring_name, *args ? "," : "", args);
	if (rte_vdev_init(b->name, text) != 0) {
		rte_eth_dev_close(b->wrapped);
		for (uint16_t i = 0; i < queues; i++) {
			rte_ring_free(b->rx[i]);
			rte_ring_free(b->tx[i]);
		}
		return false;
	}
	CU_ASSERT_FATAL(rte_eth_dev_get_port_by_name(b->name, &b->port) == 0);
	return true;
}

void
bed_start(struct bed *b)
{
	struct rte_eth_conf conf = {0};

	CU_ASSERT_FATAL(rte_eth_dev_configure(b->port, b->queues, b->queues, &conf) == 0);
	for (uint16_t i = 0; i < b->queues; i++) {
		CU_ASSERT_FATAL(rte_eth_rx_queue_setup(b->port, i, 256, 0, NULL, bed_pool) == 0);
		CU_ASSERT_FATAL(rte_eth_tx_queue_setup(b->port, i, 256, 0, NULL) == 0);
	}
	CU_ASSERT_FATAL(rte_eth_dev_start(b->port) == 0);
}

void
bed_open(struct bed *b, const char *args)
{
	CU_ASSERT_FATAL(bed_make(b, args, 1));
	bed_start(b);
}

void
bed_close(struct bed *b)
{
	CU_ASSERT_EQUAL(rte_eth_dev_stop(b->port), 0);
	for (uint16_t i = 0; i < b->queues; i++) {
		CU_ASSERT_TRUE(rte_ring_empty(b->rx[i]));
		CU_ASSERT_TRUE(rte_ring_empty(b->tx[i]));
	}
	CU_ASSERT_EQUAL(rte_eth_dev_close(b->port), 0);
	CU_ASSERT_FALSE(rte_eth_dev_is_valid_port(b->wrapped));
	for (uint16_t i = 0; i < b->queues; i++) {
		rte_ring_free(b->rx[i]);
		rte_ring_free(b->tx[i]);
	}
	CU_ASSERT_EQUAL(rte_vdev_uninit(b->name), 0);
	UNIT_EQ_U64(rte_mempool_in_use_count(bed_pool), 0);
}

struct rte_mbuf *
bed_packet(uint32_t number, uint16_t len)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(bed_pool);
	uint8_t *p;

	CU_ASSERT_FATAL(m != NULL);
	p = (uint8_t *)rte_pktmbuf_append(m, len);
	memcpy(p, &number, sizeof(number));
	for (uint16_t i = sizeof(number); i < len; i++)
		p[i] = (uint8_t)(i * 7);
	return m;
}

uint32_t
bed_number(const struct rte_mbuf *m)
{
	uint32_t number;

	memcpy(&number, rte_pktmbuf_mtod(m, void *), sizeof(number));
	return number;
}

bool
bed_intact(const struct rte_mbuf *m, uint16_t len)
{
	const uint8_t *p = rte_pktmbuf_mtod(m, const uint8_t *);

	if (m->pkt_len != len || m->data_len != len)
		return false;
	for (uint16_t i = sizeof(uint32_t); i < len; i++)
		if (p[i] != (uint8_t)(i * 7))
			return false;
	return true;
}

static uint32_t
note(struct rte_mbuf **pkts, uint32_t n, uint32_t *got, uint32_t at, uint32_t max)
{
	for (uint32_t i = 0; i < n; i++) {
		if (got != NULL && at + i < max)
			got[at + i] = bed_number(pkts[i]);
		rte_pktmbuf_free(pkts[i]);
	}
	return at + n;
}

uint32_t
bed_receive(struct bed *b, uint32_t first, uint32_t n, uint32_t *got, uint32_t max)
{
	struct rte_mbuf *pkts[BED_BURST];
	uint32_t out = 0;

	for (uint32_t i = 0; i < n;) {
		for (uint32_t k = 0; k < BED_BURST && i < n; k++, i++)
			CU_ASSERT_FATAL(
				rte_ring_enqueue(b->rx[0], bed_packet(first + i, BED_LEN)) == 0);
		do {
			uint16_t k = rte_eth_rx_burst(b->port, 0, pkts, BED_BURST);

			out = note(pkts, k, got, out, max);
		} while (!rte_ring_empty(b->rx[0]));
	}
	return bed_drain_rx(b, 0, got == NULL ? NULL : got + out, max - RTE_MIN(out, max)) + out;
}

uint32_t
bed_drain_rx(struct bed *b, uint64_t us, uint32_t *got, uint32_t max)
{
	uint64_t end = rte_rdtsc() + us * rte_get_tsc_hz() / 1000000;
	struct rte_mbuf *pkts[BED_BURST];
	uint32_t out = 0;
	bool late;
	uint16_t k;

	/* the last burst begins after the end: what is due by then comes out, however long the
	 * process was kept off its CPU in between */
	do {
		late = rte_rdtsc() >= end;
		k = rte_eth_rx_burst(b->port, 0, pkts, BED_BURST);
		out = note(pkts, k, got, out, max);
	} while (k > 0 || !late);
	return out;
}

uint32_t
bed_send(struct bed *b, uint32_t first, uint32_t n, uint32_t *got, uint32_t max)
{
	struct rte_mbuf *pkts[BED_BURST], *m;
	uint32_t out = 0;

	for (uint32_t i = 0; i < n;) {
		uint16_t k = 0, sent = 0;

		for (; k < BED_BURST && i < n; k++, i++)
			pkts[k] = bed_packet(first + i, BED_LEN);
		while (sent < k)
			sent += rte_eth_tx_burst(b->port, 0, pkts + sent, k - sent);
		while (rte_ring_dequeue(b->tx[0], (void **)&m) == 0)
			out = note(&m, 1, got, out, max);
	}
	return out;
}

uint64_t
bed_xstat(const struct bed *b, const char *name)
{
	uint64_t id, value = UINT64_MAX;

	CU_ASSERT_FATAL(rte_eth_xstats_get_id_by_name(b->port, name, &id) == 0);
	CU_ASSERT_FATAL(rte_eth_xstats_get_by_id(b->port, &id, &value, 1) == 1);
	return value;
}

void
bed_conserves(const struct bed *b)
{
	static const char *const gone[] = {"lost", "burst_lost", "gilbert_lost", "blackholed",
		"target_dropped", "overflow", "held"};
	struct rte_eth_stats s;
	char name[64];

	CU_ASSERT_EQUAL(rte_eth_stats_get(b->port, &s), 0);
	for (int tx = 0; tx < 2; tx++) {
		const char *dir = tx ? "tx" : "rx";
		uint64_t in, out;

		snprintf(name, sizeof(name), "%s_port_packets", dir);
		in = tx ? s.opackets : bed_xstat(b, name);
		out = tx ? bed_xstat(b, name) : s.ipackets;
		snprintf(name, sizeof(name), "%s_duplicated", dir);
		in += bed_xstat(b, name);
		for (unsigned int i = 0; i < RTE_DIM(gone); i++) {
			snprintf(name, sizeof(name), "%s_%s", dir, gone[i]);
			out += bed_xstat(b, name);
		}
		UNIT_EQ_U64(in, out);
	}
}

void
bed_telemetry(const char *cmd, char *answer, size_t n)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
	ssize_t got;

	snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/dpdk_telemetry.v2",
		rte_eal_get_runtime_dir());
	answer[0] = '\0';
	if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0 &&
		recv(fd, answer, n - 1, 0) > 0 && /* greeting */
		send(fd, cmd, strlen(cmd), 0) > 0) {
		got = recv(fd, answer, n - 1, 0);
		answer[got > 0 ? got : 0] = '\0';
	}
	close(fd);
}
