/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <pbox_base.h>

#include "pbox_arena.h"

/* Extents that are used or not cleared yet, sorted by offset; the gaps between them are free, and zero. */
struct extent {
	size_t at, len;
	bool uncleared;
};

struct pbox_arena {
	uint8_t *base;
	size_t size, used, uncleared;
	size_t at_once; /* may be cleared at once until the next slice */
	pbox_arena_discard discard;
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
	a->at_once = PBOX_ARENA_SLICE;
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

/* The gap in front of extent i (after the last for i == n). */
static size_t
arena_gap(const struct pbox_arena *a, size_t i, size_t *at)
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
		if (arena_gap(a, i, &at) >= size)
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
	a->extent[i] = (struct extent){.at = at, .len = size, .uncleared = false};
	a->n++;
	a->used += size;
	PBOX_ASSERT(a->used + a->uncleared <= a->size);
	return a->base + at;
}

/* The first n bytes of extent i, which is given back: they are free then. */
static void
arena_clear(struct pbox_arena *a, size_t i, size_t n)
{
	struct extent *e = &a->extent[i];
	uint8_t *at = a->base + e->at;

	if (a->discard == NULL || !a->discard(at, n))
		memset(at, 0, n);
	a->uncleared -= n;
	e->at += n;
	e->len -= n;
	if (e->len > 0)
		return;
	memmove(e, e + 1, (a->n - i - 1) * sizeof(*e));
	a->n--;
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
	PBOX_ASSERT(!a->extent[i].uncleared);
	a->used -= a->extent[i].len;
	a->extent[i].uncleared = true;
	a->uncleared += a->extent[i].len;
	if (a->extent[i].len <= a->at_once) {
		a->at_once -= a->extent[i].len;
		arena_clear(a, i, a->extent[i].len);
	}
}

size_t
pbox_arena_clear(struct pbox_arena *a, size_t bytes)
{
	bytes = pbox_pad_line(bytes);
	for (size_t i = 0; i < a->n && bytes > 0 && a->uncleared > 0;) {
		size_t n = a->extent[i].len < bytes ? a->extent[i].len : bytes;

		if (!a->extent[i].uncleared) {
			i++;
			continue;
		}
		arena_clear(a, i, n);
		bytes -= n;
	}
	a->at_once = PBOX_ARENA_SLICE;
	return a->uncleared;
}

size_t
pbox_arena_uncleared(const struct pbox_arena *a)
{
	return a->uncleared;
}

bool
pbox_arena_later(const struct pbox_arena *a, size_t size)
{
	size_t from = 0;

	if (size > a->size)
		return false;
	size = pbox_pad_line(size);
	for (size_t i = 0; i < a->n; i++) {
		if (a->extent[i].uncleared)
			continue;
		if (a->extent[i].at - from >= size)
			return true;
		from = a->extent[i].at + a->extent[i].len;
	}
	return a->size - from >= size;
}

void
pbox_arena_clear_by(struct pbox_arena *a, pbox_arena_discard discard)
{
	a->discard = discard;
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
		size_t g = arena_gap(a, i, &at);

		if (g > best)
			best = g;
	}
	return best;
}
