/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Parameter memory: how much on which NUMA node, reserved and cleared before the first job. */

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <rte_bus.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_malloc.h>

#include "box.h"

#define LEAST ((size_t)1 << 20) /* of parameter memory, on a node */
#define ALIGN 64

/* Chunks live on the node of their endpoint's core: others need no memory. */
static bool
has_endpoints(const struct box *b, unsigned node)
{
	unsigned e = 0;

	while (e < b->n_endpoints && b->endpoint[e].node != node)
		e++;
	return e < b->n_endpoints;
}

/* All but the parameters, which are as much as is left. */
static void
budget_packets(const struct box *b, struct pbox_budget *budget)
{
	for (unsigned i = 0; i < b->n_ports; i++)
		pbox_budget_add(budget, b->port[i].dev.node, b->port[i].pool_bytes,
			"packets of port %u", b->port[i].conf.id);
	for (unsigned i = 0; i < b->n_nodes; i++) {
		size_t bytes = 0;
		unsigned n = 0;

		for (unsigned c = 0; c < b->n_cores; c++)
			if (b->node_of[c] == i) {
				bytes += pbox_dp_core_bytes(b->port, b->n_ports, c);
				n++;
			}
		pbox_budget_add(budget, b->node[i], bytes, "answers and rings of %u data core%s", n,
			n == 1 ? "" : "s");
	}
	pbox_budget_add(budget, -1, pbox_dp_control_bytes(b->port, b->n_ports),
		"packets of the control thread");
	if (b->opt.snapshot_memory > 0)
		pbox_budget_add(budget, -1, b->opt.snapshot_memory, "copies for snapshots");
}

void
memory_budget(const struct box *b, struct pbox_budget *budget)
{
	budget->n = 0;
	budget_packets(b, budget);
	for (unsigned i = 0; i < b->n_nodes; i++)
		if (b->memory_size[i] > 0)
			pbox_budget_add(budget, b->node[i], b->memory_size[i], "parameters");
}

/* Each pool begins with pages of its own, and what is left of its last one may stay unused. */
#define POOL_REST ((size_t)2 << 20)

/* Of one node (an index), but for parameters. What wants no node is the main core's. */
static size_t
memory_packets_of(const struct box *b, unsigned i)
{
	struct pbox_budget budget = {0};
	bool main_node = b->node[i] == (int)rte_lcore_to_socket_id(rte_get_main_lcore());
	size_t bytes;

	budget_packets(b, &budget);
	bytes = pbox_budget_sum(&budget, b->node[i]);
	if (main_node)
		bytes += pbox_budget_sum(&budget, -1);
	for (unsigned p = 0; p < b->n_ports; p++)
		if (b->port[p].dev.node == b->node[i] || (b->port[p].dev.node < 0 && main_node))
			bytes += b->port[p].n_queues * POOL_REST;
	for (unsigned c = 0; c < b->n_cores; c++)
		if (b->node_of[c] == i)
			bytes += POOL_REST;
	return bytes;
}

static int
check_node(const struct box *b, unsigned i, struct pbox_error *err)
{
	char what[64];

	snprintf(what, sizeof(what), "packets and parameters of NUMA node %d need", b->node[i]);
	return pbox_memory_check(err, what, b->node[i], b->memory_size[i], memory_packets_of(b, i));
}

/* Without hugepages EAL has one heap for all nodes, and the host need not have what it promised. */
static int
check_host(const struct box *b, struct pbox_error *err)
{
	size_t bytes = 0, host = pbox_memory_host();
	char need[24], have[24];
	int ret;

	for (unsigned i = 0; i < b->n_nodes; i++)
		bytes += memory_packets_of(b, i) + b->memory_size[i];
	ret = pbox_memory_check(err, "packets and parameters need", -1, bytes, 0);
	if (ret != 0 || host == 0 || bytes <= host)
		return ret;
	return pbox_fail(err, ENOMEM,
		"packets and parameters need %s, and the host has %s left: lower memory or hold",
		pbox_budget_size(bytes, need, sizeof(need)),
		pbox_budget_size(host, have, sizeof(have)));
}

int
memory_plan(struct box *b, struct pbox_error *err)
{
	size_t wanted = b->opt.memory & ~(uint64_t)(ALIGN - 1);
	int ret = 0;

	for (unsigned i = 0; i < b->n_nodes; i++)
		if (has_endpoints(b, i))
			b->memory_size[i] = wanted > 0 ? wanted : LEAST;
	if (!rte_eal_has_hugepages())
		return check_host(b, err);
	for (unsigned i = 0; ret == 0 && i < b->n_nodes; i++)
		ret = check_node(b, i, err);
	return ret;
}

/* Three quarters of what packets leave, and less where it is in pieces. Without hugepages all nodes
 * share one heap. */
static void *
take_auto(const struct box *b, unsigned i, size_t *size)
{
	size_t page, left = pbox_memory_free(b->node[i], &page), host = pbox_memory_host();
	size_t keep = memory_packets_of(b, i);
	unsigned sharers = 1;

	if (!rte_eal_has_hugepages()) {
		left = host > 0 && host < left ? host : left;
		for (unsigned k = i + 1; k < b->n_nodes; k++) {
			keep += memory_packets_of(b, k);
			sharers += has_endpoints(b, k);
		}
	}
	keep = pbox_budget_padded(keep);
	left = left > keep ? (left - keep) / 4 * 3 / sharers : 0;
	for (; left >= LEAST; left = left / 4 * 3) {
		void *p = rte_zmalloc_socket(
			"pbox_arena", left & ~(size_t)(ALIGN - 1), ALIGN, b->node[i]);

		if (p != NULL) {
			*size = left & ~(size_t)(ALIGN - 1);
			return p;
		}
	}
	*size = LEAST;
	return NULL;
}

/* The first and the last page show it. */
static int
far_node(const uint8_t *p, size_t size, int node)
{
	int first = pbox_memory_node_of(p), last = pbox_memory_node_of(p + size - 1);

	if (node < 0 || first < 0 || last < 0)
		return -1;
	return first != node ? first : last != node ? last : -1;
}

/* Does a device have addresses of its own into memory? It would go on to see pages that are given back. */
static bool
only_virtual_ports(const struct box *b)
{
	for (unsigned i = 0; i < b->n_ports; i++) {
		struct rte_eth_dev_info info;

		if (rte_eth_dev_info_get(b->port[i].conf.id, &info) != 0 || info.device == NULL ||
			strcmp(rte_bus_name(rte_dev_bus(info.device)), "vdev") != 0)
			return false;
	}
	return true;
}

/* Pages that were never touched are not made to be cleared; those that were go back to the host. */
static bool
memory_discard(void *at, size_t len)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)at, end = from + len;
	uintptr_t first = (from + page - 1) / page * page, last = end / page * page;

	if (first >= last || madvise((void *)first, last - first, MADV_REMOVE) != 0)
		return false;
	memset(at, 0, first - from);
	memset((void *)last, 0, end - last);
	return true;
}

/* Without hugepages memory is a file of the kernel's: is a page of it gone, and zero again, when it says so? */
static void
clear_by_discarding(struct box *b, unsigned i)
{
	uint8_t *p = b->memory[i];
	size_t page = 2 * (size_t)sysconf(_SC_PAGESIZE);

	if (rte_eal_has_hugepages() || b->memory_size[i] < page || !only_virtual_ports(b))
		return;
	memset(p, 0xA5, page);
	if (!memory_discard(p, page)) {
		memset(p, 0, page);
		return;
	}
	for (size_t k = 0; k < page; k++)
		if (p[k] != 0) {
			memset(p, 0, page);
			return;
		}
	pbox_arena_clear_by(b->arena[i], memory_discard);
}

static int
memory_take_socket(struct box *b, unsigned i, struct pbox_error *err)
{
	size_t size = b->memory_size[i];
	char what[64];

	b->memory_far[i] = -1;
	if (size == 0)
		return 0;
	if (b->opt.memory > 0)
		b->memory[i] = rte_zmalloc_socket("pbox_arena", size, ALIGN, b->node[i]);
	else
		b->memory[i] = take_auto(b, i, &size);
	if (b->memory[i] == NULL) {
		snprintf(what, sizeof(what), "parameter memory of NUMA node %d needs", b->node[i]);
		return pbox_memory_fail(err, what, b->node[i], size);
	}
	b->memory_size[i] = size;
	if (pbox_memory_place(b->memory[i], size, b->node[i]) == 0)
		b->memory_far[i] = far_node(b->memory[i], size, b->node[i]);
	b->arena[i] = pbox_arena_create(b->memory[i], size);
	if (b->arena[i] == NULL)
		return pbox_fail(err, ENOMEM, "out of memory");
	clear_by_discarding(b, i);
	return 0;
}

/* Before the pools: the largest piece wants pages of its own, and leaves them what it does not fill. */
int
memory_take(struct box *b, struct pbox_error *err)
{
	int ret = 0;

	for (unsigned i = 0; ret == 0 && i < b->n_nodes; i++)
		ret = memory_take_socket(b, i, err);
	if (ret == 0 && b->opt.snapshot_memory > 0) {
		b->snapshot = rte_zmalloc("pbox_snapshot", b->opt.snapshot_memory, ALIGN);
		if (b->snapshot == NULL)
			ret = pbox_memory_fail(
				err, "copies for snapshots need", -1, b->opt.snapshot_memory);
	}
	return ret;
}

void
memory_give_back(struct box *b)
{
	/* EAL clears what it gets back: pages that were never touched would be made for that alone, and all of these
	 * end with the process. Hugepages may outlive it. */
	bool clear = rte_eal_has_hugepages();

	if (clear)
		rte_free(b->snapshot);
	b->snapshot = NULL;
	for (unsigned i = 0; i < b->n_nodes; i++) {
		pbox_arena_destroy(b->arena[i]);
		if (clear)
			rte_free(b->memory[i]);
	}
}
