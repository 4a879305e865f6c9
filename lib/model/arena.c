/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <pbox_base.h>

#include "pbox_arena.h"

/* Used extents, sorted by offset; the gaps between them are free. */
struct extent {
	size_t at, len;
};

struct pbox_arena {
	uint8_t *base;
	size_t size, used;
	struct extent *extent;
	size_t n, cap;
};

struct pbox_arena *
pbox_arena_create(void *base, size_t size)
{
	struct pbox_arena *a = calloc(1, sizeof(*a));

	PBOX_ASSERT((uintptr_t)base % PBOX_CACHE_LINE == 0);
	if (a == NULL)
		return NULL;
	a->base = base;
	a->size = size & ~(size_t)(PBOX_CACHE_LINE - 1);
	return a;
}

void
pbox_arena_destroy(struct pbox_arena *a)
{
	if (a == NULL)
		return;
	free(a->extent);
	free(a);
}

/* The gap in front of extent i (behind the last for i == n). */
static size_t
gap(const struct pbox_arena *a, size_t i, size_t *at)
{
	size_t end = i == a->n ? a->size : a->extent[i].at;

	*at = i == 0 ? 0 : a->extent[i - 1].at + a->extent[i - 1].len;
	return end - *at;
}

void *
pbox_arena_alloc(struct pbox_arena *a, size_t size)
{
	size_t at, i;

	if (size == 0 || size > a->size)
		return NULL;
	size = pbox_pad_line(size);
	for (i = 0; i <= a->n; i++)
		if (gap(a, i, &at) >= size)
			break;
	if (i > a->n)
		return NULL;
	if (a->n == a->cap) {
		size_t cap = a->cap == 0 ? 16 : a->cap * 2;
		struct extent *e = reallocarray(a->extent, cap, sizeof(*e));

		if (e == NULL)
			return NULL;
		a->extent = e;
		a->cap = cap;
	}
	memmove(a->extent + i + 1, a->extent + i, (a->n - i) * sizeof(*a->extent));
	a->extent[i] = (struct extent){.at = at, .len = size};
	a->n++;
	a->used += size;
	return a->base + at;
}

void
pbox_arena_free(struct pbox_arena *a, void *p)
{
	size_t at, i;

	if (p == NULL)
		return;
	at = (size_t)((uint8_t *)p - a->base);
	for (i = 0; i < a->n && a->extent[i].at != at; i++)
		;
	PBOX_ASSERT(i < a->n);
	memset(p, 0, a->extent[i].len);
	a->used -= a->extent[i].len;
	memmove(a->extent + i, a->extent + i + 1, (a->n - i - 1) * sizeof(*a->extent));
	a->n--;
}

size_t
pbox_arena_size(const struct pbox_arena *a)
{
	return a->size;
}

size_t
pbox_arena_used(const struct pbox_arena *a)
{
	return a->used;
}

size_t
pbox_arena_largest(const struct pbox_arena *a)
{
	size_t at, best = 0;

	for (size_t i = 0; i <= a->n; i++) {
		size_t g = gap(a, i, &at);

		if (g > best)
			best = g;
	}
	return best;
}
