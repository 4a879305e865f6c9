/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* A shard's part of a snapshot: its fragments are copied while rounds go on. */

#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "shard_impl.h"

/* What one mail makes a shard do at most: its packets wait meanwhile. */
#define COPY_BYTES (96u << 10)
#define LOOKS      2048

/* Chunks that the box has: one of several has a part of the table. */
static bool
staged_here(const struct pbox_table *t, uint32_t chunk)
{
	return t->home == NULL || t->home[chunk].box == t->box;
}

static uint64_t
elements_here(const struct pbox_table *t, uint32_t *fragments)
{
	uint64_t elements = 0;

	*fragments = 0;
	for (uint32_t i = 0; i < t->n_chunks; i++)
		if (staged_here(t, i)) {
			elements += t->chunk[i].elements;
			*fragments += t->chunk[i].fragments;
		}
	return elements;
}

size_t
pbox_staging_bytes(const struct pbox_table *t)
{
	size_t arrays = 1 + pbox_table_states(t);
	uint32_t fragments;
	uint64_t elements = elements_here(t, &fragments);

	return pbox_pad_line(arrays * elements * sizeof(float)) +
	       pbox_pad_line(t->n_chunks * sizeof(struct pbox_staging_chunk)) +
	       pbox_pad_line(fragments * sizeof(struct pbox_staging_fragment));
}

void
pbox_staging_begin(struct pbox_staging *staging, const struct pbox_table *t, void *memory)
{
	uint8_t *at = memory;

	memset(staging, 0, sizeof(*staging));
	staging->table = t;
	staging->elements = elements_here(t, &staging->n_fragments);
	staging->arrays = 1 + pbox_table_states(t);
	for (unsigned a = 0; a < staging->arrays; a++)
		staging->array[a] = (float *)(void *)at + a * staging->elements;
	at += pbox_pad_line(staging->arrays * staging->elements * sizeof(float));
	staging->chunk = (struct pbox_staging_chunk *)(void *)at;
	at += pbox_pad_line(t->n_chunks * sizeof(*staging->chunk));
	staging->fragment = (struct pbox_staging_fragment *)(void *)at;
}

static struct pbox_staging_chunk
after_chunk(const struct pbox_staging *staging, uint32_t i)
{
	const struct pbox_chunk *c = &staging->table->chunk[i];
	struct pbox_staging_chunk next = staging->chunk[i];

	if (next.here) {
		next.element += c->elements;
		next.fragment += c->fragments;
	}
	return next;
}

bool
pbox_staging_lay_out(struct pbox_staging *staging)
{
	const struct pbox_table *t = staging->table;
	struct pbox_staging_chunk next = {0};
	uint32_t i = staging->laid_out, done = 0;

	if (i > 0)
		next = after_chunk(staging, i - 1);
	for (; i < t->n_chunks && done < PBOX_STAGING_SLICE; i++) {
		next.here = staged_here(t, i);
		staging->chunk[i] = next;
		done++;
		if (!next.here)
			continue;
		staging->n_chunks++;
		memset(staging->fragment + next.fragment, 0,
			t->chunk[i].fragments * sizeof(*staging->fragment));
		next = after_chunk(staging, i);
		done += t->chunk[i].fragments;
	}
	staging->laid_out = i;
	return i == t->n_chunks;
}

/* Past the caches: nobody here reads the copy, and what it would push out of them is needed. */
static void
stream(float *to, const float *from, size_t n)
{
#if defined(__SSE2__)
	while (n > 0 && (uintptr_t)to % 16 != 0) {
		*to++ = *from++;
		n--;
	}
	for (; n >= 16; n -= 16, to += 16, from += 16) {
		__m128i a = _mm_loadu_si128((const __m128i *)(const void *)from);
		__m128i b = _mm_loadu_si128((const __m128i *)(const void *)(from + 4));
		__m128i c = _mm_loadu_si128((const __m128i *)(const void *)(from + 8));
		__m128i d = _mm_loadu_si128((const __m128i *)(const void *)(from + 12));

		_mm_stream_si128((__m128i *)(void *)to, a);
		_mm_stream_si128((__m128i *)(void *)(to + 4), b);
		_mm_stream_si128((__m128i *)(void *)(to + 8), c);
		_mm_stream_si128((__m128i *)(void *)(to + 12), d);
	}
#endif
	memcpy(to, from, n * sizeof(*to));
}

/* Streamed stores are not ordered with those that hand the copy over. */
static void
fence_copy(void)
{
#if defined(__SSE2__)
	_mm_sfence();
#endif
}

/* The fragment is at the round. Returns bytes. */
static size_t
copy_fragment(struct pbox_staging *staging, const struct pbox_chunk *c, uint32_t chunk, uint32_t f)
{
	const struct pbox_table *t = staging->table;
	struct pbox_staging_fragment *to = &staging->fragment[staging->chunk[chunk].fragment + f];
	size_t first = (size_t)f * t->frag_elements, n = pbox_chunk_frag_elements(t, c, f);
	size_t at = staging->chunk[chunk].element + first;

	stream(staging->array[0] + at, pbox_chunk_frag_param(t, c, f), n);
	for (unsigned a = 1; a < staging->arrays; a++)
		stream(staging->array[a] + at, pbox_chunk_state(t, c, a) + first, n);
	to->version = c->fragment[f].version;
	to->samples = c->fragment[f].samples;
	to->contributors = c->fragment[f].contributors;
	to->copied = true;
	return staging->arrays * n * sizeof(float);
}

/* Was it looked at before? */
static bool
looked_at(const struct pbox_staging_shard *p, uint32_t chunk, uint32_t f)
{
	return p->looked || chunk < p->chunk || (chunk == p->chunk && f < p->fragment);
}

static uint32_t
index_of(const struct target *g)
{
	return g->chunk & ((1u << PBOX_CHUNK_BITS) - 1);
}

void
shard_staging_before(struct pbox_staging *staging, const struct target *g)
{
	uint32_t chunk = index_of(g);

	if (staging->chunk[chunk].here &&
		g->st->discipline->at_cut(g->fragment, staging) == CUT_HERE &&
		!staging->fragment[staging->chunk[chunk].fragment + g->frag].copied)
		copy_fragment(staging, g->c, chunk, g->frag);
}

void
shard_staging_after(struct pbox_shard *s, struct pbox_staging *staging, const struct target *g)
{
	struct pbox_staging_shard *p = &staging->shard[s->conf.id];
	uint32_t chunk = index_of(g);

	if (!staging->chunk[chunk].here ||
		g->st->discipline->at_cut(g->fragment, staging) != CUT_HERE)
		return;
	copy_fragment(staging, g->c, chunk, g->frag);
	if (looked_at(p, chunk, g->frag))
		p->waiting--;
}

static size_t
look_at_fragment(const struct discipline *d, struct pbox_staging *staging,
	struct pbox_staging_shard *p, uint32_t f)
{
	const struct pbox_chunk *c = &staging->table->chunk[p->chunk];

	if (staging->fragment[staging->chunk[p->chunk].fragment + f].copied)
		return 0;
	switch (d->at_cut(&c->fragment[f], staging)) {
	case CUT_LAGS:
		if (p->behind++ == 0)
			p->lowest = c->fragment[f].version;
		break;
	case CUT_AHEAD:
		p->waiting++;
		break;
	case CUT_HERE:
		return copy_fragment(staging, c, p->chunk, f);
	case CUT_PASSED:
		p->missed++;
		break;
	}
	return 0;
}

void
shard_staging_mail(struct pbox_shard *s, const struct pbox_mail *m)
{
	struct pbox_staging *staging = m->staging;
	struct pbox_staging_shard *p = &staging->shard[s->conf.id];
	const struct pbox_table *t = staging->table;
	size_t bytes = 0;

	if (m->kind == PBOX_MAIL_SNAPSHOT_END) {
		m->table->staging = NULL;
		fence_copy();
		return;
	}
	m->table->staging = staging;
	for (unsigned looks = 0; !p->looked && looks < LOOKS && bytes < COPY_BYTES; looks++) {
		if (p->chunk == t->n_chunks) {
			p->looked = true;
		} else if (!staging->chunk[p->chunk].here ||
			   !s->own_endpoint[t->chunk[p->chunk].endpoint] ||
			   p->fragment == t->chunk[p->chunk].fragments) {
			p->chunk++;
			p->fragment = 0;
		} else {
			bytes += look_at_fragment(m->table->discipline, staging, p, p->fragment);
			p->fragment++;
		}
	}
	fence_copy();
}
