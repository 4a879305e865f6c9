/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>

#include "worker_impl.h"

/* Requests in pages, several of them in flight: DECLARE and MAP of a table, the first time and after a restart of the box. */

#define FIRST_PAUSE (2 * NS_PER_MS)
#define LAST_PAUSE  (50 * NS_PER_MS)
#define ANSWER      (1500 - PBOX_MTU_OVERHEAD) /* R5.5: a MAPPED, whatever the MTU of the session is */

int
pager_open(struct pager *g, struct session *s)
{
	size_t page;

	g->s = s;
	g->cap = s->mtu - PBOX_MTU_OVERHEAD;
	g->answer_cap = g->cap > ANSWER ? g->cap : ANSWER;
	page = g->cap + g->answer_cap;
	g->room = malloc(PAGES * page);
	if (g->room == NULL)
		return -1;
	for (unsigned i = 0; i < PAGES; i++) {
		g->page[i].payload = g->room + i * page;
		g->page[i].answer = g->page[i].payload + g->cap;
	}
	pager_reset(g);
	return 0;
}

void
pager_drop(struct pager *g)
{
	for (unsigned i = 0; i < PAGES; i++) {
		if (g->page[i].busy)
			request_drop(g->s, &g->page[i].request);
		g->page[i].busy = false;
	}
}

void
pager_close(struct pager *g)
{
	pager_drop(g);
	free(g->room);
	*g = (struct pager){0};
}

void
pager_reset(struct pager *g)
{
	pager_drop(g);
	g->next = g->stride = 0;
	g->ask_ns = 0;
	g->pause = FIRST_PAUSE;
	g->waits = false;
}

struct page *
pager_free(struct pager *g)
{
	for (unsigned i = 0; i < PAGES; i++)
		if (!g->page[i].busy)
			return &g->page[i];
	return NULL;
}

unsigned
pager_busy(const struct pager *g)
{
	unsigned n = 0;

	for (unsigned i = 0; i < PAGES; i++)
		n += g->page[i].busy;
	return n;
}

void
pager_send(struct pager *g, struct page *p, uint8_t type, size_t length)
{
	assert(!p->busy && length <= g->cap);
	p->busy = true;
	request_begin(g->s, &p->request, type, p->payload, length, g->map_epoch, p->answer,
		g->answer_cap);
}

struct page *
pager_answered(struct pager *g)
{
	for (unsigned i = 0; i < PAGES; i++)
		if (g->page[i].busy && !g->page[i].request.listed) {
			g->page[i].busy = false;
			return &g->page[i];
		}
	return NULL;
}

uint64_t
pager_due(const struct pager *g)
{
	return pager_busy(g) == 0 ? g->ask_ns : UINT64_MAX;
}

/* ---- DECLARE ------------------------------------------------------------------------------ */

bool
pager_declare(
	struct pager *g, const struct pbox_worker_table *t, uint32_t flags, struct page **refused)
{
	struct page *p;

	*refused = NULL;
	/* which versions of a table in clocks this worker may have (R14.11) */
	g->map_epoch = t->clock != NULL && (flags & PBOX_DECLARE_RESTORE) != 0
			       ? t->map_epoch[g->s->index]
			       : 0;
	while ((p = pager_answered(g)) != NULL)
		if (p->request.answer_type != PBOX_DECLARED) {
			*refused = p;
			return true;
		}
	/* next: one more than tensors declared, so that a table without any is declared as well */
	while ((g->next == 0 || g->next <= t->n) && (p = pager_free(g)) != NULL) {
		unsigned first = g->next > 0 ? g->next - 1 : 0;
		size_t length;

		g->next = 1 + first + map_declare(t, flags, first, p->payload, g->cap, &length);
		pager_send(g, p, PBOX_DECLARE, length);
	}
	return g->next > t->n && pager_busy(g) == 0;
}

/* ---- MAP ----------------------------------------------------------------------------------- */

static void
map_ask(struct pager *g, struct page *p, uint32_t table, uint32_t first)
{
	g->map_epoch = 0;
	struct pbox_map m = {table, first};

	p->first = first;
	pager_send(g, p, PBOX_MAP, pbox_map_encode(p->payload, g->cap, &m));
}

static void
pager_not_ready(struct pager *g, const struct page *p)
{
	uint64_t now = g->s->w->now;

	g->waits = pbox_not_ready_decode(p->answer, p->request.answer_len, &g->wait) == 0;
	g->wait_ns = now;
	g->ask_ns = now + g->pause;
	g->pause = g->pause * 2 < LAST_PAUSE ? g->pause * 2 : LAST_PAUSE;
}

/** Is chunk @p i asked for already? */
static bool
map_asked(const struct pager *g, uint32_t i)
{
	for (unsigned k = 0; k < PAGES; k++)
		if (g->page[k].busy && i >= g->page[k].first && i - g->page[k].first < g->stride)
			return true;
	return false;
}

/** The next chunk to ask for; t->chunks: none now. Pages hold more or fewer chunks than the first one: gaps are asked
 * for in the next pass. */
static uint32_t
map_gap(struct pager *g, const struct pbox_worker_table *t, const struct map_seen *seen)
{
	for (;;) {
		while (g->next < t->chunks && (seen->got[g->next] || map_asked(g, g->next)))
			g->next++;
		if (g->next < t->chunks || pager_busy(g) > 0)
			return g->next;
		g->next = 0;
	}
}

bool
pager_map(struct pager *g, const struct pbox_worker_table *t, const struct map_seen *seen,
	pager_take take, void *ctx, int *rc, struct page **refused)
{
	struct page *p;
	uint32_t count;

	*rc = 0;
	*refused = NULL;
	while ((p = pager_answered(g)) != NULL) {
		if (p->request.answer_type == PBOX_NOT_READY) {
			pager_not_ready(g, p);
			continue;
		}
		if (p->request.answer_type != PBOX_MAPPED) {
			*refused = p;
			return true;
		}
		*rc = take(ctx, p, &count);
		if (*rc != 0)
			return true;
		g->waits = false;
		if (g->stride == 0)
			g->stride = g->next = count > 0 ? count : 1;
	}
	if (g->stride == 0) { /* one page, until the box has its map */
		if (pager_busy(g) == 0 && g->s->w->now >= g->ask_ns)
			map_ask(g, pager_free(g), t->number, 0);
		return false;
	}
	while (seen->n_got < t->chunks && (p = pager_free(g)) != NULL) {
		uint32_t first = map_gap(g, t, seen);

		if (first >= t->chunks)
			break;
		map_ask(g, p, t->number, first);
		g->next = first + g->stride > first ? first + g->stride : t->chunks;
	}
	return seen->n_got >= t->chunks;
}
