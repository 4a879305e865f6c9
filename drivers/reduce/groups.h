/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef GROUPS_H
#define GROUPS_H

/**
 * @file
 * What vector sums have in common: the tree over any number of slots (doc/protocol.md R5.2a) becomes passes over
 * groups of GROUP_MAX slots, aligned ones, each a node. A pass has the tree of its group as straight code
 * (sum.h), so the order costs it nothing. Sums of groups wait until what they are added to is complete: a
 * binary counter, at most one sum a level. Each second group is added to what waits in its own pass.
 *
 * A slot without a payload has one of -0.0 here, which changes nothing that it is added to, or of +0.0 (flag ZERO).
 * So a group has no holes, and its tree depends on its number of slots alone. Absent slots at the end of a group are cut
 * off, and a group of these alone is none: what waits for it goes on without it.
 */

#include <string.h>

#include <pbox_base.h>
#include <pbox_block.h>
#include <pbox_reduce.h>

/* More streams at a time than this are slower than going over dst, which stays in a cache, again
 * (measured on Zen 5 for 16 and 32 sources: 120 GB/s in groups of 8, 80 to 95 GB/s in groups of 16). */
#define GROUP_MAX  8
#define GROUP_BITS 3

/* Sums are made in tiles that stay in a cache while they wait, as long as the longest payload of a jumbo
 * frame: its check is over all of it. */
#define TILE 4608

/* Sums that wait, of 4096 slots. They are not all at the same place of a page. */
#define WAITING 12

#define HEADER_MAX 64

struct group {
	const uint8_t *src[GROUP_MAX]; /**< first byte of this tile, any alignment */
	float weight[GROUP_MAX];       /**< where there are any */
	unsigned n;
	const float *acc; /**< NULL, or what the sum is added to: with GROUP_MAX sources only */
};

/** One pass: dst = (acc +) the sum of the group; is all of that finite? dst may be acc. */
typedef bool (*group_sum)(float *dst, const struct group *g, size_t elems);

/** The same, bit by bit, and are the sources intact? (pbox_sources.intact). elems > 0. */
enum { GROUP_FINITE = 1, GROUP_INTACT = 2 };
typedef unsigned (*group_sum_checked)(
	float *dst, const struct group *g, size_t elems, unsigned header, uint32_t *crc_dst);

struct checked_passes {
	group_sum_checked plain; /**< crc_dst is not looked at; NULL: there is none */
	group_sum_checked crc;   /**< sets *crc_dst to the CRC32C of what is in dst; or NULL */
};

/* What is done with each tile. */
struct groups {
	const struct pbox_sources *s;
	unsigned n;           /* sources, without the absent ones at the end */
	group_sum pass, join; /* join: of fp32 */
	struct checked_passes checked;
	bool check, intact, finite;
	bool has_crc; /* that of dst is made, or not asked for */
};

/* As groups_filler(), in a format of blocks: no pass looks at the header of these. */
static __attribute__((noinline, cold)) const uint8_t *
groups_filler_block(enum pbox_format elem, bool zero)
{
	static const uint8_t
		zeros[TILE +
			TILE / PBOX_UNIT * PBOX_UNIT_SCALES]; /* +0.0, by a scale that is finite */
	static _Thread_local uint8_t of[2][sizeof(zeros)];
	uint8_t *p = of[elem == PBOX_FMT_INT8];
	const float minus = -1.0f;

	if (zero)
		return zeros;
	if (elem != PBOX_FMT_INT8) /* -0.0, by the smallest scale */
		memset(p, 0x88, sizeof(zeros));
	for (size_t i = 0; i < TILE; i += PBOX_UNIT) {
		size_t at = pbox_payload_bytes(elem, i);

		if (elem == PBOX_FMT_INT8)
			memcpy(p + at, &minus, sizeof(minus));
		else
			memset(p + at, 0, PBOX_UNIT_SCALES);
	}
	return p;
}

/* The payload of a slot that has none; with a header, as checked passes look at that of each source. */
static __attribute__((noinline, cold)) const uint8_t *
groups_filler(const struct pbox_sources *s, bool zero, size_t bytes)
{
	static _Thread_local struct {
		bool filled;
		unsigned header;
		size_t sealed;
		uint8_t frame[HEADER_MAX + TILE * sizeof(float)];
	} of[2][2];
	size_t size = pbox_format_size(s->elem), end = sizeof(of[0][0].frame);
	__typeof__(of[0][0]) *f = &of[zero][size == sizeof(float)];
	uint8_t *payload = f->frame + HEADER_MAX;
	uint32_t crc;

	if (size == 0)
		return groups_filler_block(s->elem, zero);
	for (size_t i = HEADER_MAX + size - 1; !zero && !f->filled && i < end; i += size)
		f->frame[i] = 0x80;
	f->filled = true;
	if (s->intact != NULL && (f->sealed != bytes || f->header != s->header)) {
		crc = pbox_reduce_crc32c(pbox_reduce_crc32c(0, payload, bytes), payload - s->header,
			s->header - sizeof(crc));
		memcpy(payload - sizeof(crc), &crc, sizeof(crc));
		f->sealed = bytes;
		f->header = s->header;
	}
	return payload;
}

static inline bool
groups_has_payload(const void *src)
{
	return src != NULL && src != pbox_reduce_absent;
}

static inline bool
groups_intact(const struct pbox_sources *s, unsigned k, unsigned n, size_t elems)
{
	bool intact = true;

	for (; n > 0; n--, k++)
		if (groups_has_payload(s->src[k]))
			intact &= pbox_reduce_intact(s->src[k],
				pbox_payload_bytes(pbox_reduce_format(s, k), elems), s->header);
	return intact;
}

/* The header and the first bytes of each of the payloads to come. More of them only cost (measured: 1
 * to 4 lines win 5 % to 10 % in the last-level cache, all lines lose 20 % there and 80 % in L2). */
static inline void
groups_prefetch_next(const struct pbox_sources *s, size_t at)
{
	for (unsigned k = 0; k < s->n_next; k++) {
		const uint8_t *p = (const uint8_t *)s->next[k] + at;

		if (s->next[k] == NULL)
			continue;
		__builtin_prefetch(p - PBOX_CACHE_LINE);
		__builtin_prefetch(p);
		__builtin_prefetch(p + PBOX_CACHE_LINE);
	}
}

/* The weights of the group's sources. Of one whose weight is 0 nothing enters the sum but +0.0 (of an absent one nothing at
 * all). Whether it is what was sent is looked at all the same: it may be its weight that is damaged. */
static __attribute__((noinline)) void
groups_weigh(struct groups *p, struct group *g, unsigned k, size_t bytes, size_t elems)
{
	const struct pbox_sources *s = p->s;

	for (unsigned j = 0; j < g->n; j++) {
		g->weight[j] = s->weight[k + j];
		if (__builtin_expect(g->weight[j] != 0.0f, 1))
			continue;
		g->weight[j] = 1;
		if (p->check)
			p->intact &= groups_intact(s, k + j, 1, elems);
		if (groups_has_payload(s->src[k + j]))
			g->src[j] = groups_filler(s, true, bytes);
	}
}

static inline bool
groups_is_mixed(const struct pbox_sources *s, const struct group *g, unsigned k)
{
	for (unsigned j = 0; s->wide != NULL && j < g->n; j++)
		if (s->wide[k + j])
			return true;
	return false;
}

/* groups_pass() where some of the sources are fp32 and others in a format of blocks: these are widened first. */
static __attribute__((noinline, cold)) void
groups_pass_mixed(
	struct groups *p, float *dst, struct group *g, unsigned k, size_t first, size_t elems)
{
	static _Thread_local float wide[GROUP_MAX][TILE] __attribute__((aligned(PBOX_CACHE_LINE)));
	const struct pbox_sources *s = p->s;

	if (p->check)
		p->intact &= groups_intact(s, k, g->n, elems);
	for (unsigned j = 0; j < g->n; j++) {
		const uint8_t *src = s->src[k + j];

		g->src[j] = (const uint8_t *)wide[j];
		if (!groups_has_payload(src))
			for (size_t i = 0; i < elems; i++)
				wide[j][i] = src == NULL ? 0.0f : -0.0f;
		else if (s->wide[k + j])
			g->src[j] = src + pbox_payload_bytes(PBOX_FMT_FP32, first);
		else
			pbox_block_take(wide[j], src, s->elem, NULL, first, elems);
	}
	p->finite &= p->join(dst, g, elems);
}

/* The pass over g->n sources from number k on. last: dst is the sum of all. */
static inline void
groups_pass(struct groups *p, float *dst, struct group *g, unsigned k, size_t first, size_t elems,
	bool last)
{
	const struct pbox_sources *s = p->s;
	size_t at = pbox_payload_bytes(s->elem, first), bytes = pbox_payload_bytes(s->elem, elems);
	bool with_crc = last && !p->has_crc && p->checked.crc != NULL;

	if (__builtin_expect(s->wide != NULL, 0) && groups_is_mixed(s, g, k)) {
		groups_pass_mixed(p, dst, g, k, first, elems);
		return;
	}
	for (unsigned j = 0; j < g->n; j++) {
		const uint8_t *src = s->src[k + j];

		g->src[j] =
			groups_has_payload(src) ? src + at : groups_filler(s, src == NULL, bytes);
	}
	if (s->weight != NULL)
		groups_weigh(p, g, k, bytes, elems);
	if (p->check && p->checked.plain != NULL) {
		unsigned found = (with_crc ? p->checked.crc : p->checked.plain)(
			dst, g, elems, s->header, s->crc_dst);

		p->intact &= (found & GROUP_INTACT) != 0;
		p->finite &= (found & GROUP_FINITE) != 0;
		p->has_crc |= with_crc;
		return;
	}
	if (p->check)
		p->intact &= groups_intact(s, k, g->n, elems);
	p->finite &= p->pass(dst, g, elems);
}

/* How many of n sources there are without the absent ones at the end. */
static inline unsigned
groups_cut(const void *const *src, unsigned n)
{
	while (n > 0 && src[n - 1] == pbox_reduce_absent)
		n--;
	return n;
}

/* Sums that wait for what they are added to, the lowest node's last. */
struct waiting {
	const float *sum[WAITING + 1];
	unsigned n;
	float *dst; /* where the first of them is made; the others have room of their own */
	float (*room)[TILE + 16];
};

static inline float *
groups_place(const struct waiting *w, unsigned i)
{
	return i == 0 ? w->dst : w->room[i - 1];
}

/* The last two become one. */
static inline void
groups_join(struct groups *p, struct waiting *w, size_t elems)
{
	struct group two;
	float *to = groups_place(w, w->n - 2);

	two.n = 2;
	two.acc = NULL;
	two.src[0] = (const void *)w->sum[w->n - 2];
	two.src[1] = (const void *)w->sum[w->n - 1];
	p->finite &= p->join(to, &two, elems);
	w->sum[w->n - 2] = to;
	w->n--;
}

/* The bits of `slot` are the nodes that are before it; of these in `waits` a sum waits, the others have none. */
static inline void
groups_tile(struct groups *p, float *dst, size_t first, size_t elems)
{
	static _Thread_local float room[WAITING][TILE + 16]
		__attribute__((aligned(PBOX_CACHE_LINE)));
	const struct pbox_sources *s = p->s;
	struct waiting w;
	unsigned slot = s->base, waits = 0, size, here;

	w.dst = dst;
	w.room = room;
	w.n = 0;
	for (unsigned left = slot; w.n < s->n_acc; w.n++, left &= left - 1) {
		w.sum[w.n] = s->acc[w.n] + first;
		waits |= left & -left;
	}
	for (unsigned k = 0; k < p->n; slot += size, k += here) {
		struct group g;
		unsigned step;
		bool last, comes;

		size = slot % GROUP_MAX == 0 ? GROUP_MAX : slot & -slot;
		step = size;
		here = p->n - k < size ? p->n - k : size;
		last = k + here == p->n;
		g.n = groups_cut(&s->src[k], here);
		g.acc = NULL;
		comes = g.n > 0;
		if (g.n == GROUP_MAX && w.n > 0 && (last || waits & step)) {
			g.acc = w.sum[--w.n];
			waits &= waits - 1;
			step *= 2;
		}
		if (comes) {
			float *to = groups_place(&w, w.n);

			groups_pass(p, to, &g, k, first, elems, last && w.n == 0);
			w.sum[w.n++] = to;
		}
		if (last) {
			while (w.n > 1)
				groups_join(p, &w, elems);
			return;
		}
		for (; slot & step; step *= 2) {
			if ((waits & step) != 0 && comes)
				groups_join(p, &w, elems);
			comes |= (waits & step) != 0;
			waits &= ~step;
		}
		if (comes)
			waits |= step;
	}
}

static inline void
groups_sum(float *dst, const struct pbox_sources *s, size_t first, size_t elems, group_sum pass,
	group_sum join, struct checked_passes checked)
{
	struct groups p = {.s = s,
		.n = groups_cut(s->src, s->n),
		.pass = pass,
		.join = join,
		.checked = checked,
		.check = s->intact != NULL && elems > 0 && elems <= TILE,
		.intact = true,
		.finite = true,
		.has_crc = s->crc_dst == NULL};

	if (p.n == 0) {
		pbox_reduce_scalar.sum(dst, s, first, elems);
		return;
	}
	if (s->next != NULL)
		groups_prefetch_next(s, pbox_payload_bytes(s->elem, first));
	if (s->intact != NULL && !p.check)
		p.intact = groups_intact(s, 0, s->n, elems);
	for (size_t done = 0; done < elems; done += TILE)
		groups_tile(
			&p, dst + done, first + done, elems - done < TILE ? elems - done : TILE);
	if (s->intact != NULL)
		*s->intact = p.intact;
	if (s->finite != NULL)
		*s->finite &= p.finite;
	if (!p.has_crc)
		*s->crc_dst = pbox_reduce_crc32c(0, dst, elems * sizeof(*dst));
}

/* Elements first to first + elems - 1 of pbox_reduce_ops.add; as checked. */
static inline unsigned
groups_add_tile(float *dst, const struct pbox_sources *s, size_t first, size_t elems,
	group_sum pass, group_sum_checked checked)
{
	size_t at = pbox_payload_bytes(s->elem, first), bytes = pbox_payload_bytes(s->elem, elems);
	unsigned most = checked != NULL ? GROUP_MAX : 1;
	struct group g = {.acc = s->acc[0] + first};
	unsigned found = GROUP_FINITE | GROUP_INTACT;

	for (unsigned k = 0; k < s->n; k += g.n, g.acc = dst) {
		g.n = s->n - k < most ? s->n - k : most;
		for (unsigned j = 0; j < g.n; j++) {
			const uint8_t *src = s->src[k + j];

			g.src[j] = src != NULL ? src + at : groups_filler(s, true, bytes);
			g.weight[j] = s->weight[k + j];
		}
		if (checked != NULL)
			found &= checked(dst, &g, elems, s->header, NULL);
		else if (!pass(dst, &g, elems))
			found &= ~(unsigned)GROUP_FINITE;
	}
	return found;
}

/* pbox_reduce_ops.add. pass: of one source; checked: of 1 to GROUP_MAX, or NULL. */
static inline void
groups_add(float *dst, const struct pbox_sources *s, size_t elems, group_sum pass,
	group_sum_checked checked)
{
	bool check = s->intact != NULL && checked != NULL && elems > 0 && elems <= TILE;
	unsigned found = GROUP_FINITE | GROUP_INTACT;
	bool intact = true;

	if (s->next != NULL)
		groups_prefetch_next(s, 0);
	if (s->intact != NULL && !check)
		intact = groups_intact(s, 0, s->n, elems);
	for (size_t done = 0; done < elems; done += TILE)
		found &= groups_add_tile(dst + done, s, done,
			elems - done < TILE ? elems - done : TILE, pass, check ? checked : NULL);
	if (s->intact != NULL)
		*s->intact = intact && (found & GROUP_INTACT) != 0;
	if (s->finite != NULL)
		*s->finite &= (found & GROUP_FINITE) != 0;
}

#endif /* GROUPS_H */
