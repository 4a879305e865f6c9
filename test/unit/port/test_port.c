/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include <pbox_port.h>

#include "eal.h"
#include "unit.h"

const char unit_suite[] = "port";

static bool
lcore_is_odd(unsigned lcore, const void *ctx)
{
	(void)ctx;
	return lcore % 2 == 1;
}

static bool
never(unsigned lcore, const void *ctx)
{
	(void)ctx;
	(void)lcore;
	return false;
}

static const struct pbox_port_core cores[] = {{10, 0}, {11, 1}, {12, 0}, {13, 1}};

static void
cores_of_a_port(void)
{
	uint16_t out[4];

	UNIT_EQ_U64(pbox_port_plan_cores(0, NULL, NULL, cores, 4, out), 2);
	UNIT_EQ_U64(out[0], 0);
	UNIT_EQ_U64(out[1], 2);
	/* a port of no node takes all; a port of a node without cores too */
	UNIT_EQ_U64(pbox_port_plan_cores(-1, NULL, NULL, cores, 4, out), 4);
	UNIT_EQ_U64(pbox_port_plan_cores(7, NULL, NULL, cores, 4, out), 4);
	UNIT_EQ_U64(out[3], 3);
	/* the operator's wish beats the node */
	UNIT_EQ_U64(pbox_port_plan_cores(0, lcore_is_odd, NULL, cores, 4, out), 2);
	UNIT_EQ_U64(out[0], 1);
	UNIT_EQ_U64(out[1], 3);
	UNIT_EQ_U64(pbox_port_plan_cores(0, never, NULL, cores, 4, out), 0);
}

/* Machines with two nodes, which the tests run on rarely: the decisions alone. */
static void
far_cores_of_a_port(void)
{
	const uint16_t all[] = {0, 1, 2, 3}, odd[] = {1, 3}, even[] = {0, 2};
	const struct pbox_port_core any[] = {{10, -1}, {11, 1}};
	uint16_t out[4] = {9, 9, 9, 9};

	UNIT_EQ_U64(pbox_port_plan_far(0, cores, even, 2, out), 0);
	UNIT_EQ_U64(pbox_port_plan_far(0, cores, all, 4, out), 2);
	UNIT_EQ_U64(out[0], 1);
	UNIT_EQ_U64(out[1], 3);
	UNIT_EQ_U64(pbox_port_plan_far(0, cores, odd, 2, out), 2);
	UNIT_EQ_U64(out[0], 0);
	UNIT_EQ_U64(pbox_port_plan_far(2, cores, all, 4, out), 4);
	/* a port, or a core, of no node is near everything */
	UNIT_EQ_U64(pbox_port_plan_far(-1, cores, all, 4, out), 0);
	UNIT_EQ_U64(pbox_port_plan_far(0, any, all, 2, out), 1);
	UNIT_EQ_U64(out[0], 1);
}

static void
queues_of_a_port(void)
{
	UNIT_EQ_U64(pbox_port_plan_queues(0, 16, 16, 4), 4);
	UNIT_EQ_U64(pbox_port_plan_queues(0, 1, 16, 4), 1);
	UNIT_EQ_U64(pbox_port_plan_queues(0, 16, 2, 4), 2);
	UNIT_EQ_U64(pbox_port_plan_queues(3, 16, 16, 4), 3);
	UNIT_EQ_U64(pbox_port_plan_queues(8, 16, 16, 4), 4);
	UNIT_EQ_U64(pbox_port_plan_queues(0, 0, 16, 4), 0);
	UNIT_EQ_U64(pbox_port_plan_queues(0, 16, 16, 0), 0);
	UNIT_EQ_U64(pbox_port_plan_queues(0, 1024, 1024, 200), PBOX_PORT_QUEUES);
}

static void
room_of_a_packet(void)
{
	UNIT_EQ_U64(pbox_port_plan_room(1500, 0, 0), 2048 + 128);
	UNIT_EQ_U64(pbox_port_plan_room(9000, 0, 0), 9216 + 128);
	/* a device with larger frames than its MTU needs */
	UNIT_EQ_U64(pbox_port_plan_room(1500, 9184, 0), 9216 + 128);
	/* the largest that 16 bits hold, and beyond */
	UNIT_EQ_U64(pbox_port_plan_room(65000, 0, 0), 65026 + 128);
	UNIT_EQ_U64(pbox_port_plan_room(65500, 0, 0), 0);
	/* buffers of a page: what there is, where whole KiB are too much */
	UNIT_EQ_U64(pbox_port_plan_room(1500, 1770, 3688), 2048 + 128);
	UNIT_EQ_U64(pbox_port_plan_room(3400, 3670, 3688), 3688 + 128);
}

static void
packets_of_a_queue(void)
{
	struct pbox_port_conf c = {.hold = 4096, .n_cores = 1};
	uint32_t one = pbox_port_plan_mbufs(&c, 1, 1024, 1024), shared, spread;

	CU_ASSERT(one >= 4096 + 1024 + 1024 + PBOX_PORT_CACHE);
	/* one queue for four cores: all four may hold its packets */
	c.n_cores = 4;
	shared = pbox_port_plan_mbufs(&c, 1, 1024, 1024);
	CU_ASSERT(shared >= 4 * 4096 + 2048);
	/* a queue for each: every pool carries one core's share */
	spread = pbox_port_plan_mbufs(&c, 4, 1024, 1024);
	CU_ASSERT(spread >= 4096 + 2048 && spread < shared);
	/* three cores on two queues: the busier one counts */
	c.n_cores = 3;
	CU_ASSERT(pbox_port_plan_mbufs(&c, 2, 1024, 1024) >= 2 * 4096 + 2048);
}

static void
budget(void)
{
	struct pbox_budget b = {0};
	char text[512];
	FILE *to = fmemopen(text, sizeof(text), "w");

	pbox_budget_add(&b, 0, 100, "packets of port %u", 3);
	pbox_budget_add(&b, 1, 1 << 20, "parameters");
	pbox_budget_add(&b, -1, 28, "rest");
	UNIT_EQ_U64(pbox_budget_sum(&b, 0), 100);
	UNIT_EQ_U64(pbox_budget_sum(&b, -1), 28);
	UNIT_EQ_U64(pbox_budget_sum(&b, -2), (1 << 20) + 128);
	CU_ASSERT_PTR_NOT_NULL_FATAL(to);
	pbox_budget_report(&b, to);
	fclose(to);
	CU_ASSERT_STRING_EQUAL(text, "memory packets of port 3: 100 B on NUMA node 0\n"
				     "memory parameters: 1.0 MiB on NUMA node 1\n"
				     "memory rest: 28 B\nmemory total: 1.0 MiB\n");
	UNIT_EQ_U64(pbox_budget_padded(100), 102);
	/* the piece has room in the heap, and the others too */
	UNIT_EQ_U64(pbox_budget_fresh(1 << 20, 1 << 20, 2 << 20, 900 << 10, 50 << 10), 0);
	/* it has not: pages of its own, whose rest is for the others */
	UNIT_EQ_U64(pbox_budget_fresh(1 << 20, 1 << 19, 2 << 20, 900 << 10, 50 << 10), 1);
	UNIT_EQ_U64(pbox_budget_fresh(0, 0, 2 << 20, 4 << 20, 0), 3);
	UNIT_EQ_U64(pbox_budget_fresh(0, 0, 2 << 20, 4 << 20, 1 << 20), 3);
	UNIT_EQ_U64(pbox_budget_fresh(0, 0, 2 << 20, 4 << 20, 2 << 20), 4);
	UNIT_EQ_U64(pbox_budget_fresh((size_t)1 << 30, 1 << 29, (size_t)1 << 30, (size_t)1 << 30,
			    (size_t)70 << 20),
		2);
	UNIT_EQ_U64(pbox_budget_pages(0, 2 << 20), 0);
	UNIT_EQ_U64(pbox_budget_pages(1, 2 << 20), 1);
	UNIT_EQ_U64(pbox_budget_pages((size_t)100 << 20, 2 << 20), 51);
	UNIT_EQ_U64(pbox_budget_pages(5, 0), 0);
	CU_ASSERT_STRING_EQUAL(pbox_budget_size(1536, text, sizeof(text)), "1.5 KiB");
	CU_ASSERT_STRING_EQUAL(pbox_budget_size((size_t)3 << 40, text, sizeof(text)), "3.0 TiB");
}

static void
start_eal(void)
{
	static const char *const args[] = {"-m", "128", "--no-telemetry", "--lcores", "0@0",
		"--vdev", "net_null0", "--vdev", "net_null1", "--vdev", "net_null2", "--vdev",
		"net_null3", NULL};

	unit_eal(args);
}

static void
find_a_port(void)
{
	struct rte_eth_dev_owner owner = {.name = "unit"};
	struct pbox_error err = {0};
	uint16_t id = 99, list[4];

	start_eal();
	UNIT_EQ_U64(pbox_port_list(list, 4), 4);
	UNIT_EQ_U64(pbox_port_find("net_null1", &id, &err), 0);
	UNIT_EQ_U64(id, 1);
	UNIT_EQ_U64(pbox_port_find("0", &id, &err), 0);
	UNIT_EQ_U64(id, 0);
	CU_ASSERT(pbox_port_find("7", &id, &err) < 0);
	CU_ASSERT_PTR_NOT_NULL(
		strstr(err.text, "port 0 (net_null0), port 1 (net_null1), port 2 (net_null2)"));
	CU_ASSERT(pbox_port_find("net_nul", &id, &err) < 0);
	/* a port of somebody else is not ours to use */
	UNIT_EQ_U64(rte_eth_dev_owner_new(&owner.id), 0);
	UNIT_EQ_U64(rte_eth_dev_owner_set(1, &owner), 0);
	UNIT_EQ_U64(pbox_port_list(list, 4), 3);
	CU_ASSERT(pbox_port_find("net_null1", &id, &err) < 0);
	rte_eth_dev_owner_unset(1, owner.id);
}

/* DPDK's, before which the program's own comes: a device that has too few vectors for the interrupts of its queues finds
 * out when it starts. */
static unsigned refuse_starts;

int
rte_eth_dev_start(uint16_t id)
{
	int (*start)(uint16_t) = (int (*)(uint16_t))dlsym(RTLD_NEXT, "rte_eth_dev_start");

	CU_ASSERT_PTR_NOT_NULL_FATAL(start);
	if (refuse_starts == 0)
		return start(id);
	refuse_starts--;
	return -EIO;
}

/* Where interrupts report the link the device is not asked; but where it has a vector for packets alone, they do
 * not. */
static void
link_told(struct pbox_port *p)
{
	struct pbox_port of = *p;

	of.dev.lsc = true;
	of.dev.kernel_if[0] = '\0';
	of.link_up = 0;
	of.link_seen = p->link_events;
	of.rx_intr = false;
	UNIT_EQ_U64((unsigned)pbox_port_link_change(&of), 0);
	of.rx_intr = true;
	UNIT_EQ_U64((unsigned)pbox_port_link_change(&of), 1);
}

static void
open_and_close(void)
{
	const struct pbox_port_conf conf = {.where = "[port 0]",
		.ip = 0x01004E0A,
		.prefix_len = 24,
		.mtu = 9000,
		.hold = 256,
		.control_port = 7269,
		.rx_intr = PBOX_PORT_INTR_USED,
		.n_cores = 2,
		.core = {0, 1}};
	const unsigned lcore[] = {4, 5};
	struct pbox_error err = {0};
	static struct pbox_port p;
	struct rte_mbuf *m;
	char text[2048];
	FILE *to = fmemopen(text, sizeof(text), "w");

	CU_ASSERT_PTR_NOT_NULL_FATAL(to);
	start_eal();
	UNIT_EQ_U64(pbox_port_open(&p, &conf, &err), 0);
	CU_ASSERT_FATAL(p.open);
	UNIT_EQ_U64(p.n_queues, 2);
	UNIT_EQ_U64(p.mtu, 9000);
	CU_ASSERT_TRUE(p.rx_intr);
	refuse_starts = 1;
	UNIT_EQ_U64(pbox_port_start(&p, &err), 0);
	UNIT_EQ_U64(refuse_starts, 0);
	CU_ASSERT_FALSE(p.rx_intr);
	UNIT_EQ_U64(p.n_notes, 0); /* nobody has asked for them by name */
	CU_ASSERT(!p.flow);        /* net_null has no rte_flow */
	CU_ASSERT(pbox_port_wait_link(&p, 100, NULL));
	link_told(&p);
	pbox_port_report(&p, lcore, to);
	fclose(to);
	CU_ASSERT_PTR_NOT_NULL(strstr(text, "driver net_null"));
	CU_ASSERT_PTR_NOT_NULL(strstr(text, "address 10.78.0.1/24"));
	CU_ASSERT_PTR_NOT_NULL(strstr(text, "queue 0 lcore 4 queue 1 lcore 5; steering: ring"));
	CU_ASSERT_PTR_NOT_NULL(strstr(text, "answers: copied"));
	/* after all headers a payload begins on a cache line */
	m = rte_pktmbuf_alloc(p.pool[1]);
	CU_ASSERT_PTR_NOT_NULL_FATAL(m);
	UNIT_EQ_U64((rte_pktmbuf_mtod(m, uintptr_t) + 104) % 64, 0);
	CU_ASSERT(rte_pktmbuf_tailroom(m) >= 9018);
	UNIT_EQ_U64(pbox_port_mbufs_missing(&p), 1);
	rte_pktmbuf_free(m);
	pbox_port_close(&p);
	UNIT_EQ_U64(pbox_port_mbufs_missing(&p), 0);
	UNIT_EQ_U64(pbox_port_mbufs(&p), 2 * p.n_mbufs);
	pbox_port_free(&p);
}

/* The named warning about cores on another node than their port's, and pools on the port's. */
static void
far_cores_are_told(void)
{
	struct pbox_port_core two[] = {{4, 0}, {5, 0}};
	struct pbox_port_conf conf = {.id = 3,
		.where = "[port 3] (x.conf line 7)",
		.ip = 0x01004E0A,
		.prefix_len = 24,
		.hold = 256,
		.control_port = 7269,
		.n_cores = 2,
		.core = {0, 1},
		.cores = two};
	struct pbox_error err = {0};
	static struct pbox_port p;
	int node;

	start_eal();
	node = pbox_port_node(3);
	CU_ASSERT_FATAL(node >= 0);
	two[0].node = node;
	two[1].node = node + 1;
	UNIT_EQ_U64(pbox_port_prepare(&p, &conf, &err), 0);
	CU_ASSERT_PTR_NULL(p.pool[0]); /* computed, not taken */
	CU_ASSERT(p.pool_bytes > 0);
	UNIT_EQ_U64(pbox_port_queues(&p, &err), 0);
	CU_ASSERT_PTR_NOT_NULL_FATAL(p.pool[1]);
	UNIT_EQ_U64(p.pool[1]->socket_id, node);
	CU_ASSERT_FATAL(p.n_notes >= 1);
	CU_ASSERT_PTR_NOT_NULL(strstr(p.note[0], "lcores 5 are not on its NUMA node"));
	CU_ASSERT_PTR_NOT_NULL(strstr(p.note[0], "[port 3] (x.conf line 7)"));
	pbox_port_close(&p);
	pbox_port_free(&p);
}

/* Where memory really lies, and asking the kernel for it. */
static void
memory_of_a_node(void)
{
	size_t page, size = (size_t)1 << 20;
	uint8_t *p;
	int node;

	start_eal();
	CU_ASSERT(pbox_memory_free(-1, &page) > size);
	/* without hugepages there is one heap, whatever the node */
	UNIT_EQ_U64(pbox_memory_free(5, &page), pbox_memory_free(-1, &page));
	CU_ASSERT(pbox_memory_host() > size);
	p = aligned_alloc(4096, size);
	CU_ASSERT_PTR_NOT_NULL_FATAL(p);
	UNIT_EQ_U64(pbox_memory_place(p, size, -1), 0);
	UNIT_EQ_U64(pbox_memory_place(p, size, 0), 0);
	CU_ASSERT(pbox_memory_place(p, size, 100000) < 0);
	memset(p, 1, size);
	node = pbox_memory_node_of(p + size - 1);
	UNIT_EQ_U64(node, 0);
	UNIT_EQ_U64(pbox_memory_node_of((void *)64), -1); /* nobody's */
	free(p);
}

static void
refusals(void)
{
	struct pbox_port_conf conf = {.id = 1,
		.where = "[port 1] (x.conf line 3)",
		.ip = 0x01004E0A,
		.prefix_len = 24,
		.hold = 256,
		.control_port = 7269,
		.n_cores = 2,
		.core = {0, 1},
		.steer = PBOX_STEER_FLOW,
		.steer_where = "[port 1] steer = flow (x.conf line 5)",
		.rx_intr = PBOX_PORT_INTR_WANTED};
	struct pbox_error err = {0};
	static struct pbox_port p;

	start_eal();
	/* the operator insists on what the device does not have */
	UNIT_EQ_U64(pbox_port_open(&p, &conf, &err), 0);
	CU_ASSERT(pbox_port_start(&p, &err) < 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "[port 1] steer = flow (x.conf line 5), and"));
	/* nor has it interrupts: that is reported, and done without */
	CU_ASSERT_FALSE(p.rx_intr);
	UNIT_EQ_U64(p.n_notes, 1);
	CU_ASSERT_PTR_NOT_NULL(strstr(p.note[0], "no receive interrupts: its cores sleep instead"));
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "port 1"));
	pbox_port_close(&p);
	pbox_port_free(&p);
	/* more packets than there is memory: says how much */
	conf.id = 2; /* closed is gone */
	conf.hold = 1 << 20;
	CU_ASSERT(pbox_port_open(&p, &conf, &err) < 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "bytes) need "));
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "start with -m"));
	CU_ASSERT(!p.open);
}

const struct unit_test unit_tests[] = {
	{"cores of a port", cores_of_a_port},
	{"far cores of a port", far_cores_of_a_port},
	{"queues of a port", queues_of_a_port},
	{"room of a packet", room_of_a_packet},
	{"packets of a queue", packets_of_a_queue},
	{"budget", budget},
	{"find a port", find_a_port},
	{"open and close", open_and_close},
	{"far cores are named", far_cores_are_told},
	{"memory of a node", memory_of_a_node},
	{"refusals", refusals},
	{NULL, NULL},
};
