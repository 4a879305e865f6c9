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
 * So a group has no holes, and its tree depends on its number of slots alone; only the last group may have fewer.
 */

#include <string.h>

#include <pbox_base.h>
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

/** One pass: dst = (acc +) the sum of the group. dst may be acc. */
typedef void (*group_sum)(float *dst, const struct group *g, size_t elems);

/** The same, and are the sources, 2 or more, intact? (pbox_sources.intact). elems > 0. */
typedef bool (*group_sum_checked)(
	float *dst, const struct group *g, size_t elems, unsigned header, uint32_t *crc_dst);

struct checked_passes {
	group_sum_checked plain; /**< crc_dst is not looked at; NULL: there is none */
	group_sum_checked crc;   /**< sets *crc_dst to the CRC32C of what is in dst; or NULL */
};

/* What is done with each tile. */
struct groups {
	const struct pbox_sources *s;
	group_sum pass, join; /* join: of fp32 */
	struct checked_passes checked;
	bool check, intact;
	bool has_crc; /* that of dst is made, or not asked for */
};

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
groups_intact(const struct pbox_sources *s, unsigned k, unsigned n, size_t bytes)
{
	bool intact = true;

	for (; n > 0; n--, k++)
		if (groups_has_payload(s->src[k]))
			intact &= pbox_reduce_intact(s->src[k], bytes, s->header);
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

/* The pass over g->n sources from number k on. last: dst is the sum of all. */
static inline void
groups_pass(struct groups *p, float *dst, struct group *g, unsigned k, size_t first, size_t elems,
	bool last)
{
	const struct pbox_sources *s = p->s;
	size_t at = pbox_payload_bytes(s->elem, first), bytes = pbox_payload_bytes(s->elem, elems);
	bool with_crc = last && !p->has_crc && p->checked.crc != NULL;

	for (unsigned j = 0; j < g->n; j++) {
		const uint8_t *src = s->src[k + j];

		g->src[j] =
			groups_has_payload(src) ? src + at : groups_filler(s, src == NULL, bytes);
		if (s->weight != NULL)
			g->weight[j] = s->weight[k + j];
	}
	if (p->check && p->checked.plain != NULL && g->n > 1) {
		p->intact &= (with_crc ? p->checked.crc : p->checked.plain)(
			dst, g, elems, s->header, s->crc_dst);
		p->has_crc |= with_crc;
		return;
	}
	if (p->check)
		p->intact &= groups_intact(s, k, g->n, bytes);
	p->pass(dst, g, elems);
}

/* The bits of `slot` are the nodes that wait, the lowest the last of them. */
static inline void
groups_tile(struct groups *p, float *dst, size_t first, size_t elems)
{
	static _Thread_local float room[WAITING][TILE + 16]
		__attribute__((aligned(PBOX_CACHE_LINE)));
	const struct pbox_sources *s = p->s;
	const float *sum[WAITING + 1];
	unsigned n = 0, slot = s->base, size;

	for (; n < s->n_acc; n++)
		sum[n] = s->acc[n] + first;
	for (unsigned k = 0; k < s->n; slot += size) {
		struct group g;
		unsigned step;
		bool last;

		size = slot % GROUP_MAX == 0 ? GROUP_MAX : slot & -slot;
		step = size;
		g.n = s->n - k < size ? s->n - k : size;
		g.acc = NULL;
		last = k + g.n == s->n;
		if (g.n == GROUP_MAX && n > 0 && (last || slot & step)) {
			g.acc = sum[--n];
			step *= 2;
		}
		sum[n] = n == 0 ? dst : room[n - 1];
		groups_pass(p, n == 0 ? dst : room[n - 1], &g, k, first, elems, last && n == 0);
		for (; n > 0 && (last || slot & step); step *= 2, n--) {
			struct group two;

			two.n = 2;
			two.acc = NULL;
			two.src[0] = (const void *)sum[n - 1];
			two.src[1] = (const void *)sum[n];
			sum[n - 1] = n == 1 ? dst : room[n - 2];
			p->join(n == 1 ? dst : room[n - 2], &two, elems);
		}
		n++;
		k += g.n;
	}
}

static inline void
groups_sum(float *dst, const struct pbox_sources *s, size_t first, size_t elems, group_sum pass,
	group_sum join, struct checked_passes checked)
{
	struct groups p = {.s = s,
		.pass = pass,
		.join = join,
		.checked = checked,
		.check = s->intact != NULL && elems > 0 && elems <= TILE,
		.intact = true,
		.has_crc = s->crc_dst == NULL};

	if (s->n == 0) {
		pbox_reduce_scalar.sum(dst, s, first, elems);
		return;
	}
	if (s->next != NULL)
		groups_prefetch_next(s, pbox_payload_bytes(s->elem, first));
	if (s->intact != NULL && !p.check)
		p.intact = groups_intact(s, 0, s->n, pbox_payload_bytes(s->elem, elems));
	for (size_t done = 0; done < elems; done += TILE)
		groups_tile(
			&p, dst + done, first + done, elems - done < TILE ? elems - done : TILE);
	if (s->intact != NULL)
		*s->intact = p.intact;
	if (!p.has_crc)
		*s->crc_dst = pbox_reduce_crc32c(0, dst, elems * sizeof(*dst));
}

#endif /* GROUPS_H */
