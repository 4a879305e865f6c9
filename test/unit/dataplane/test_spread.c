/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 *
 * The whole way from ports and cores to the memory of each chunk, as the box goes it at its start
 * and at DECLARE, for the tensors of real networks, on machines with one and two NUMA nodes.
 */

#include <sys/mman.h>

#include <pbox_dataplane.h>
#include <pbox_registrar.h>
#include <pbox_table.h>

#include "../model/lists.h"

const char unit_suite[] = "dataplane: spread over ports, queues, cores";

#define PORTS 4
#define CORES 16
#define MTU   9000

struct topology {
	const char *name;
	unsigned endpoints, n_ports, n_cores;
	int port_node[PORTS], core_node[CORES];
	uint16_t max_queues[PORTS];
	uint16_t mask[PORTS]; /* cores that the operator wants; 0: no wish */
	bool equal_ports;     /* all ports get the same */
};

static const struct topology topologies[] = {
	{"a port, a core", 1, 1, 1, {0}, {0}, {8}, {0}, true},
	{"a port, two cores, one queue", 2, 1, 2, {0}, {0, 0}, {1}, {0}, true},
	{"two nodes, a port and a core on each", 2, 2, 2, {0, 1}, {0, 1}, {4, 4}, {0}, true},
	{"ports with two cores and one", 3, 2, 3, {0, 0}, {0, 0, 0}, {4, 4}, {3, 4}, false},
	{"one core serves both ports, one the first", 3, 2, 2, {0, 0}, {0, 0}, {2, 2}, {3, 2},
		true},
	{"two ports served by the same two cores", 4, 2, 2, {0, 0}, {0, 0}, {2, 1}, {0}, true},
	{"two nodes, three cores and five", 8, 2, 8, {0, 1}, {0, 1, 0, 1, 1, 0, 1, 1}, {8, 3}, {0},
		false},
	{"virtual ports, any core of two nodes", 8, 2, 4, {-1, -1}, {0, 0, 1, 1}, {1, 4}, {0},
		true},
	{"two nodes, two ports and four cores on each", 16, 4, 8, {0, 0, 1, 1},
		{0, 0, 0, 0, 1, 1, 1, 1}, {4, 4, 4, 4}, {0}, true},
	{"a port, sixteen cores", 16, 1, 16, {0}, {0}, {64}, {0}, true},
};
#define TOPOLOGIES (sizeof(topologies) / sizeof(*topologies))

/* The machine of one topology, and what is on it. */
static const struct topology *topo;
static struct pbox_port_conf port[PORTS];
static unsigned n_queues[PORTS];
static struct pbox_engine_endpoint endpoint[PBOX_MAX_ENDPOINTS];
static struct {
	unsigned port, queue, core;
} owner[PBOX_MAX_ENDPOINTS];
static struct pbox_place place[PBOX_MAX_ENDPOINTS];
static unsigned n_endpoints;

static bool
in_mask(unsigned lcore, const void *mask)
{
	return *(const uint16_t *)mask >> lcore & 1;
}

static void
make_machine(const struct topology *t)
{
	struct pbox_port_core core[CORES];
	uint8_t node_of[CORES];
	struct pbox_error err;
	int n;

	topo = t;
	for (unsigned c = 0; c < t->n_cores; c++) {
		core[c] = (struct pbox_port_core){.lcore = c, .node = t->core_node[c]};
		node_of[c] = (uint8_t)t->core_node[c];
	}
	for (unsigned p = 0; p < t->n_ports; p++) {
		port[p] = (struct pbox_port_conf){.ip = 0x01004E0A + (p << 16), .where = "test"};
		port[p].n_cores =
			pbox_port_plan_cores(t->port_node[p], t->mask[p] != 0 ? in_mask : NULL,
				&t->mask[p], core, t->n_cores, port[p].core);
		n_queues[p] = pbox_port_plan_queues(
			0, t->max_queues[p], t->max_queues[p], port[p].n_cores);
	}
	n = pbox_dp_plan(port, t->n_ports, node_of, 7269, endpoint, PBOX_MAX_ENDPOINTS, &err);
	CU_ASSERT_EQUAL_FATAL(n, (int)t->endpoints);
	n_endpoints = (unsigned)n;
	pbox_engine_places(endpoint, n_endpoints, place);
}

/* Who gets a datagram that is sent to an endpoint: found from its address alone. */
static void
find_owner(unsigned e)
{
	unsigned found = 0;

	for (unsigned p = 0; p < topo->n_ports; p++)
		for (unsigned i = 0; i < port[p].n_cores; i++) {
			if (memcmp(&port[p].ip, endpoint[e].addr.ipv4, 4) != 0 ||
				7270 + port[p].core[i] != endpoint[e].addr.udp)
				continue;
			owner[e].port = p;
			owner[e].queue = i % n_queues[p];
			owner[e].core = port[p].core[i];
			found++;
		}
	UNIT_EQ_U64(found, 1);
	UNIT_EQ_U64(owner[e].core, endpoint[e].shard);
	UNIT_EQ_U64(endpoint[e].node, topo->core_node[owner[e].core]);
	/* near the port, unless there is no near core or the operator wants another */
	if (topo->port_node[owner[e].port] >= 0)
		UNIT_EQ_U64(endpoint[e].node, topo->port_node[owner[e].port]);
}

/* Every element of every tensor is in one chunk, and in its order within the map. */
static void
check_cover(const struct pbox_table *t, const struct pbox_tensor *tensor, uint32_t n)
{
	static uint64_t next[LISTS_TENSORS];
	uint32_t segments = 0;

	memset(next, 0, sizeof(next));
	for (uint32_t c = 0; c < t->n_chunks; c++) {
		const struct pbox_layout_chunk *lc = &t->layout.chunk[c];
		uint64_t elements = 0;

		CU_ASSERT_FATAL(lc->endpoint < n_endpoints);
		CU_ASSERT_EQUAL(lc->endpoint, t->chunk[c].endpoint);
		UNIT_EQ_U64(lc->first_segment, segments);
		for (unsigned s = 0; s < lc->segments; s++) {
			const struct pbox_segment *g = &t->layout.segment[segments++];

			CU_ASSERT_EQUAL_FATAL(g->offset, next[g->tensor]);
			next[g->tensor] += g->elements;
			elements += g->elements;
		}
		CU_ASSERT_EQUAL(elements, lc->elements);
	}
	for (uint32_t i = 0; i < n; i++)
		UNIT_EQ_U64(next[i], tensor[i].elements);
}

static uint8_t *region;
static size_t region_size;
#define REGION(node) (region + (node) * (region_size / 2))

/* Parameters, state and fragments of a chunk are on the node of its core, and nobody else's. */
static void
check_memory(const struct pbox_table *t)
{
	for (uint32_t c = 0; c < t->n_chunks; c++) {
		const struct pbox_chunk *ch = &t->chunk[c];
		const uint8_t *low = REGION(endpoint[ch->endpoint].node);

		CU_ASSERT_FATAL((const uint8_t *)ch->param >= low);
		CU_ASSERT((const uint8_t *)ch->s0 >= (const uint8_t *)(ch->param + ch->elements));
		CU_ASSERT(
			(const uint8_t *)ch->fragment >= (const uint8_t *)(ch->s0 + ch->elements));
		CU_ASSERT_FATAL(
			(const uint8_t *)(ch->fragment + ch->fragments) <= low + region_size / 2);
	}
}

static void
expect_equal(const char *what, const char *list, const uint64_t *load, unsigned n, uint64_t all)
{
	double mean = (double)all / n, max = 0;
	char text[200];

	for (unsigned i = 0; i < n; i++)
		max = (double)load[i] > max ? (double)load[i] : max;
	snprintf(text, sizeof(text), "%s on %s: %s, max/mean %.4f < 1.05", list, topo->name, what,
		max / mean);
	CU_assertImplementation(max < 1.05 * mean, __LINE__, text, __FILE__, "", CU_FALSE);
}

static void
place_list(const char *name, const struct pbox_tensor *tensor, uint32_t n)
{
	uint64_t load[PBOX_MAX_ENDPOINTS] = {0}, of_core[CORES] = {0}, of_port[PORTS] = {0};
	uint64_t of_queue[PORTS][CORES] = {{0}}, all;
	struct pbox_arena *arena[PBOX_MAX_NODES] = {NULL};
	struct pbox_error err = {0};
	struct pbox_table t = {
		.mode = PBOX_MODE_OPTIMISER,
		.optimiser = PBOX_OPT_MOMENTUM,
		.push_format = PBOX_FMT_FP32,
		.pull_format = PBOX_FMT_FP32,
		.frag_elements = pbox_frag_elements(MTU, PBOX_FMT_FP32, PBOX_FMT_FP32),
		.init_elements = pbox_init_elements(MTU),
	};

	/* addresses only: nothing touches it, and nothing of it is given back one by one */
	for (unsigned i = 0; i < 2; i++)
		arena[i] = pbox_arena_create(REGION(i), region_size / 2);
	CU_ASSERT_EQUAL_FATAL(pbox_table_build(&t, tensor, n, 8192, place, n_endpoints, arena, load,
				      SIZE_MAX, &err),
		0);
	check_cover(&t, tensor, n);
	check_memory(&t);
	for (uint32_t c = 0; c < t.n_chunks; c++) {
		unsigned e = t.chunk[c].endpoint;

		of_core[owner[e].core] += t.chunk[c].elements;
		of_port[owner[e].port] += t.chunk[c].elements;
		of_queue[owner[e].port][owner[e].queue] += t.chunk[c].elements;
	}
	all = t.layout.elements;
	expect_equal("cores", name, of_core, topo->n_cores, all);
	if (topo->equal_ports)
		expect_equal("ports", name, of_port, topo->n_ports, all);
	for (unsigned p = 0; topo->equal_ports && p < topo->n_ports; p++)
		if (port[p].n_cores % n_queues[p] == 0 &&
			port[p].n_cores * topo->n_ports == topo->endpoints)
			expect_equal("queues", name, of_queue[p], n_queues[p], of_port[p]);
	for (unsigned i = 0; i < 2; i++)
		pbox_arena_destroy(arena[i]);
	free(t.chunk);
	free(t.schedule);
	pbox_layout_free(&t.layout);
}

static void
real_networks(void)
{
	region_size = (size_t)64 << 30;
	region = mmap(
		NULL, region_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CU_ASSERT_FATAL(region != MAP_FAILED);
	for (unsigned i = 0; i < TOPOLOGIES; i++) {
		make_machine(&topologies[i]);
		for (unsigned e = 0; e < n_endpoints; e++)
			find_owner(e);
		/* no two endpoints are the same port, queue and core */
		for (unsigned e = 0; e < n_endpoints; e++)
			for (unsigned k = 0; k < e; k++)
				CU_ASSERT(memcmp(&owner[e], &owner[k], sizeof(owner[e])) != 0);
		CU_ASSERT(lists_each(place_list) >= 16);
	}
	munmap(region, region_size);
}

/* Cores of a job's shards and the ports of an address, as the registrar numbers them. */
static void
places(void)
{
	make_machine(&topologies[5]);
	UNIT_EQ_U64(pbox_place_cores(place, n_endpoints), 2);
	UNIT_EQ_U64(place[0].port, place[1].port);
	UNIT_EQ_U64(place[2].port, place[3].port);
	CU_ASSERT(place[0].port != place[2].port);
	make_machine(&topologies[6]);
	UNIT_EQ_U64(pbox_place_cores(place, n_endpoints), 8);
	UNIT_EQ_U64(place[0].node, 0);
	UNIT_EQ_U64(place[7].node, 1);
}

const struct unit_test unit_tests[] = {
	{"real networks on all kinds of machines", real_networks},
	{"places", places},
	{NULL, NULL},
};
