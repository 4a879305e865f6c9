/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>

#include "pbox_port.h"

/* What takes memory of a node, line by line; hugepages.c says how many hugepages that is. */

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
pbox_budget_padded(size_t bytes)
{
	return bytes + bytes / 50;
}

size_t
pbox_budget_pages(size_t bytes, size_t page)
{
	size_t all = pbox_budget_padded(bytes);

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

void
pbox_budget_report(const struct pbox_budget *b, FILE *to)
{
	char text[24];

	for (unsigned i = 0; i < b->n; i++) {
		const struct pbox_budget_item *it = &b->item[i];
		char node[32] = "";

		if (it->node >= 0)
			snprintf(node, sizeof(node), " on NUMA node %d", it->node);
		fprintf(to, "memory %s: %s%s\n", it->what,
			pbox_budget_size(it->bytes, text, sizeof(text)), node);
	}
	fprintf(to, "memory total: %s\n",
		pbox_budget_size(pbox_budget_sum(b, -2), text, sizeof(text)));
}

/* A header of EAL's allocator and the alignment after it. */
#define PIECE_HEADER ((size_t)4096)

size_t
pbox_budget_fresh(size_t heap, size_t largest, size_t page, size_t piece, size_t others)
{
	size_t fresh = 0;

	piece += PIECE_HEADER;
	others = pbox_budget_padded(others);
	if (piece <= largest) {
		heap -= piece;
	} else {
		/* whole pages: it does not begin in what is left of others */
		fresh = (piece + page - 1) / page;
		heap += fresh * page - piece;
	}
	if (others > heap)
		fresh += (others - heap + page - 1) / page;
	return fresh;
}
