/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Hugepages: what there is on a NUMA node, and whether a reservation can succeed. */

#include <dirent.h>
#include <errno.h>
#include <numaif.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <rte_common.h>
#include <rte_eal.h>
#include <rte_malloc.h>
#include <rte_memory.h>

#include "pbox_port.h"

/* A number from sysfs, 0 where there is none. */
static size_t
read_number(const char *path)
{
	char text[32] = "";
	FILE *f = fopen(path, "re");

	if (f == NULL)
		return 0;
	if (fgets(text, sizeof(text), f) == NULL)
		text[0] = '\0';
	fclose(f);
	return strtoull(text, NULL, 10);
}

static size_t
memory_hugepages(int node, size_t page, const char *what)
{
	char path[160];

	if (node >= 0) {
		snprintf(path, sizeof(path),
			"/sys/devices/system/node/node%d/hugepages/hugepages-%zukB/%s", node,
			page / 1024, what);
		if (access(path, R_OK) == 0)
			return read_number(path);
	}
	snprintf(path, sizeof(path), "/sys/kernel/mm/hugepages/hugepages-%zukB/%s", page / 1024,
		what);
	return read_number(path);
}

/* All sizes of pages that the kernel has reserved; @p page: the largest of them, else 2 MiB. */
static size_t
all_hugepages(int node, size_t *page)
{
	DIR *dir = opendir("/sys/kernel/mm/hugepages");
	const struct dirent *e;
	size_t sum = 0;

	*page = 0;
	while (dir != NULL && (e = readdir(dir)) != NULL) {
		unsigned long kib;

		if (sscanf(e->d_name, "hugepages-%lukB", &kib) != 1)
			continue;
		sum += memory_hugepages(node, kib * 1024, "free_hugepages") * kib * 1024;
		if (memory_hugepages(node, kib * 1024, "nr_hugepages") > 0 && kib * 1024 > *page)
			*page = kib * 1024;
	}
	if (dir != NULL)
		closedir(dir);
	if (*page == 0)
		*page = (size_t)2 << 20;
	return sum;
}

/* What EAL's heaps of a node (-1: all) have left, and the largest piece of it. */
static size_t
heap_free(int node, size_t *largest)
{
	struct rte_malloc_socket_stats st;
	size_t heap = 0;

	*largest = 0;
	for (unsigned i = 0; i < rte_socket_count(); i++) {
		int s = rte_socket_id_by_idx(i);

		if ((node >= 0 && s != node) || rte_malloc_get_socket_stats(s, &st) != 0)
			continue;
		heap += st.heap_freesz_bytes;
		*largest = RTE_MAX(*largest, st.greatest_free_size);
	}
	return heap;
}

size_t
pbox_memory_free(int node, size_t *page)
{
	size_t largest;

	if (rte_eal_has_hugepages())
		return heap_free(node, &largest) + all_hugepages(node, page);
	/* EAL has all that it will ever have, in one heap for all nodes */
	*page = (size_t)sysconf(_SC_PAGESIZE);
	return heap_free(-1, &largest);
}

size_t
pbox_memory_host(void)
{
	FILE *f = fopen("/proc/meminfo", "re");
	unsigned long long kib = 0;
	char line[128];

	while (f != NULL && fgets(line, sizeof(line), f) != NULL)
		if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
			break;
	if (f != NULL)
		fclose(f);
	return (size_t)kib * 1024;
}

int
pbox_memory_place(void *p, size_t size, int node)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)p & ~(page - 1);
	unsigned long mask[16] = {0};
	const unsigned bits = 8 * sizeof(mask[0]);

	if (rte_eal_has_hugepages() || node < 0)
		return 0; /* EAL has seen to it */
	if ((unsigned)node >= bits * 16)
		return -EINVAL;
	mask[(unsigned)node / bits] = 1ul << (unsigned)node % bits;
	/* preferred, not bound: a full node is no reason to be killed */
	if (mbind((void *)at, (uintptr_t)p + size - at, MPOL_PREFERRED, mask, bits * 16,
		    MPOL_MF_MOVE) != 0)
		return -errno;
	return 0;
}

int
pbox_memory_node_of(const void *p)
{
	void *page = (void *)((uintptr_t)p & ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1));
	int node = -1;

	if (move_pages(0, 1, &page, NULL, &node, 0) != 0 || node < 0)
		return -1;
	return node;
}

int
pbox_memory_fail(struct pbox_error *err, const char *what, int node, size_t bytes)
{
	size_t page, have = pbox_memory_free(node, &page), all = pbox_budget_padded(bytes), missing;
	char a[24], b[24];

	pbox_budget_size(bytes, a, sizeof(a));
	pbox_budget_size(have, b, sizeof(b));
	/* there is enough, but in pieces: more of it will do */
	missing = all > have ? all - have : all / 10;
	if (!rte_eal_has_hugepages())
		return pbox_fail(err, ENOMEM,
			"%s %s, and EAL has %s left: start with -m %zu or more (MiB)", what, a, b,
			(rte_eal_get_physmem_size() + missing) / 1048576 + 1);
	return pbox_fail(err, ENOMEM,
		"%s %s (%zu hugepages of %zu kB), and %s is left%s: echo %zu > /sys/devices/system/node/node%d/hugepages/hugepages-%zukB/nr_hugepages, or lower memory or hold",
		what, a, pbox_budget_pages(bytes, page), page / 1024, b,
		node >= 0 ? " on its NUMA node" : "",
		memory_hugepages(node, page, "nr_hugepages") + (missing + page - 1) / page,
		node >= 0 ? node : 0, page / 1024);
}

int
pbox_memory_check(struct pbox_error *err, const char *what, int node, size_t piece, size_t others)
{
	size_t page, free_pages, largest, heap, fresh;
	char need[24], have[24];

	if (!rte_eal_has_hugepages()) {
		if (pbox_budget_padded(piece + others) <= pbox_memory_free(-1, &page))
			return 0;
		return pbox_memory_fail(err, what, -1, piece + others);
	}
	free_pages = all_hugepages(node, &page) / page;
	heap = heap_free(node, &largest);
	fresh = pbox_budget_fresh(heap, largest, page, piece, others);
	if (fresh <= free_pages)
		return 0;
	return pbox_fail(err, ENOMEM,
		"%s %s: %zu more hugepages of %zu kB than the %zu that are free%s, where EAL has %s besides: echo %zu > /sys/devices/system/node/node%d/hugepages/hugepages-%zukB/nr_hugepages, or lower memory or hold",
		what, pbox_budget_size(piece + others, need, sizeof(need)), fresh - free_pages,
		page / 1024, free_pages, node >= 0 ? " on its NUMA node" : "",
		pbox_budget_size(heap, have, sizeof(have)),
		memory_hugepages(node, page, "nr_hugepages") + fresh - free_pages,
		node >= 0 ? node : 0, page / 1024);
}
