/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_malloc.h>
#include <rte_memory.h>

#include "pbox_port.h"

void
pbox_budget_add(struct pbox_budget *b, int node, size_t bytes, const char *fmt, ...)
{
	struct pbox_budget_item *it;
	va_list ap;

	PBOX_ASSERT(b->n < PBOX_BUDGET_ITEMS);
	it = &b->item[b->n++];
	it->node = node;
	it->bytes = bytes;
	va_start(ap, fmt);
	vsnprintf(it->what, sizeof(it->what), fmt, ap);
	va_end(ap);
}

size_t
pbox_budget_sum(const struct pbox_budget *b, int node)
{
	size_t sum = 0;

	for (unsigned i = 0; i < b->n; i++)
		if (node == -2 || b->item[i].node == node)
			sum += b->item[i].bytes;
	return sum;
}

size_t
pbox_budget_pages(size_t bytes, size_t page)
{
	size_t all = bytes + bytes / 50;

	return page > 0 ? all / page + (all % page != 0) : 0;
}

const char *
pbox_budget_size(size_t bytes, char *buf, size_t size)
{
	static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	double v = (double)bytes;
	unsigned u = 0;

	while (v >= 1024 && u < 4) {
		v /= 1024;
		u++;
	}
	snprintf(buf, size, u == 0 ? "%.0f %s" : "%.1f %s", v, unit[u]);
	return buf;
}

size_t
pbox_budget_report(const struct pbox_budget *b, char *buf, size_t size)
{
	char text[24];
	size_t used = 0;

	for (unsigned i = 0; i <= b->n; i++) {
		const struct pbox_budget_item *it = &b->item[i];
		size_t room = used < size ? size - used : 0;
		char node[32] = "";
		int n;

		if (i < b->n && it->node >= 0)
			snprintf(node, sizeof(node), " on NUMA node %d", it->node);
		if (i < b->n)
			n = snprintf(room > 0 ? buf + used : NULL, room, "memory %s: %s%s\n",
				it->what, pbox_budget_size(it->bytes, text, sizeof(text)), node);
		else
			n = snprintf(room > 0 ? buf + used : NULL, room, "memory total: %s\n",
				pbox_budget_size(pbox_budget_sum(b, -2), text, sizeof(text)));
		used += n > 0 ? (size_t)n : 0;
	}
	return used;
}

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
hugepages(int node, size_t page, const char *what)
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
		sum += hugepages(node, kib * 1024, "free_hugepages") * kib * 1024;
		if (hugepages(node, kib * 1024, "nr_hugepages") > 0 && kib * 1024 > *page)
			*page = kib * 1024;
	}
	if (dir != NULL)
		closedir(dir);
	if (*page == 0)
		*page = (size_t)2 << 20;
	return sum;
}

size_t
pbox_memory_free(int node, size_t *page)
{
	struct rte_malloc_socket_stats st;
	size_t heap = 0;

	for (unsigned i = 0; i < rte_socket_count(); i++) {
		int s = rte_socket_id_by_idx(i);

		if ((node < 0 || s == node) && rte_malloc_get_socket_stats(s, &st) == 0)
			heap += st.heap_freesz_bytes;
	}
	if (rte_eal_has_hugepages())
		return heap + all_hugepages(node, page);
	/* EAL has all that it will ever have */
	*page = (size_t)sysconf(_SC_PAGESIZE);
	return heap;
}

int
pbox_memory_fail(struct pbox_error *err, const char *what, int node, size_t bytes)
{
	size_t page, have = pbox_memory_free(node, &page), need, pages;
	char a[24], b[24];

	pbox_budget_size(bytes, a, sizeof(a));
	pbox_budget_size(have, b, sizeof(b));
	if (!rte_eal_has_hugepages())
		return pbox_fail(err, ENOMEM,
			"%s %s, and EAL has %s left: start with -m %zu or more (MiB)", what, a, b,
			(bytes + bytes / 10 + rte_eal_get_physmem_size()) / 1048576 + 1);
	need = bytes > have ? bytes - have : bytes / 10;
	pages = hugepages(node, page, "nr_hugepages") + pbox_budget_pages(need, page);
	return pbox_fail(err, ENOMEM,
		"%s %s (%zu hugepages of %zu kB), and %s is left%s: echo %zu > "
		"/sys/devices/system/node/node%d/hugepages/hugepages-%zukB/nr_hugepages, or lower "
		"memory or hold",
		what, a, pbox_budget_pages(bytes, page), page / 1024, b,
		node >= 0 ? " on its NUMA node" : "", pages, node >= 0 ? node : 0, page / 1024);
}
