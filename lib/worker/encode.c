/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>

#include <pbox_reduce.h>

#include "encode.h"
#include "worker_impl.h"

/*
 * Formats of blocks (R13.6): programs push and pull fp32, frames carry codes. The codes of a fragment and round are made once,
 * when a frame of it leaves for the first time, and go as they are in every frame of that round: the box may have them
 * already, and what they do not say has gone to the residual. So it is until codes of the next round are made, or the box
 * refuses them with ERROR: then the residual is what it was before. The program pushes the gradient again, so that is not
 * added to it.
 *
 * An element's residual is at its place in the table, whichever box has its chunk. A fragment belongs to one lane, and so do its
 * codes and residuals.
 */

#define ENCODE_BLOCK \
	(8 * PBOX_UNIT) /* elements that are gathered at a time, where they are not in one piece */

/** Of a fragment. */
struct encoded {
	uint32_t round; /* that there are codes of, if made */
	bool made;
	uint8_t half; /* which array has its residual; the other one has that before these codes, if made */
};

int
encode_open(struct pbox_worker_table *t)
{
	const struct chunk *last = t->chunks > 0 ? &t->chunk[t->chunks - 1] : NULL;
	uint64_t elements = last != NULL ? last->at + last->elements : 0;

	if (t->block == 0 || elements == 0)
		return 0;
	t->reduce = pbox_reduce_select(NULL);
	t->encoded = calloc(t->frags, sizeof(*t->encoded));
	t->codes = pbox_worker_room(t->frags * pbox_payload_bytes(t->block, t->frag_elements));
	for (unsigned i = 0; i < 2; i++)
		t->residual[i] = pbox_worker_room(elements * sizeof(float));
	if (t->reduce == NULL || t->encoded == NULL || t->codes == NULL || t->residual[0] == NULL ||
		t->residual[1] == NULL)
		return -1;
	memset(t->residual[0], 0, elements * sizeof(float));
	return 0;
}

static uint8_t *
codes_of(const struct pbox_worker_table *t, const struct frag *f)
{
	return t->codes + table_frag_number(t, f) * pbox_payload_bytes(t->block, t->frag_elements);
}

/** What the program pushes of @p n elements from @p from on, in one piece: where it is, or in @p room. */
static const float *
pushed(const struct pbox_worker_table *t, const struct frag *f, uint32_t from, uint32_t n,
	float *room)
{
	struct iovec iov[MAX_PIECES];
	unsigned pieces = table_gather(t, f, 0, from, n, PBOX_FMT_FP32, iov, MAX_PIECES);
	float weight = t->weighs ? (float)table_weight(t, f, 0) : 1.0f;
	uint8_t *to = (uint8_t *)room;

	if (pieces == 1 && !t->weighs && (uintptr_t)iov[0].iov_base % _Alignof(float) == 0)
		return iov[0].iov_base;
	for (unsigned i = 0; i < pieces; to += iov[i++].iov_len)
		memcpy(to, iov[i].iov_base, iov[i].iov_len);
	for (uint32_t i = 0; t->weighs && i < n; i++) /* a mean of no samples may be NaN */
		room[i] = weight != 0 ? weight * room[i] : 0;
	return room;
}

static void
encode_make(const struct pbox_worker_table *t, const struct frag *f)
{
	struct encoded *e = &t->encoded[table_frag_number(t, f)];
	uint32_t count = frag_elements(t, f);
	uint64_t at = table_frag_at(t, f);
	float *residual = t->residual[!e->half] + at, room[ENCODE_BLOCK];
	uint8_t *codes = codes_of(t, f);

	memcpy(residual, t->residual[e->half] + at, count * sizeof(*residual));
	for (uint32_t from = 0; from < count; from += ENCODE_BLOCK) {
		uint32_t n = count - from < ENCODE_BLOCK ? count - from : ENCODE_BLOCK;

		t->reduce->encode(codes + pbox_payload_bytes(t->block, from), t->block,
			pushed(t, f, from, n, room), residual + from, n);
	}
	*e = (struct encoded){.round = f->round, .made = true, .half = !e->half};
}

unsigned
encode_payload(const struct pbox_worker_table *t, const struct frag *f, struct pbox_hdr *h,
	struct iovec *iov)
{
	const struct encoded *e = &t->encoded[table_frag_number(t, f)];

	if (!e->made || e->round != f->round)
		encode_make(t, f);
	h->format = t->block;
	h->fmt_arg = (uint8_t)pbox_format_arg(t->block);
	h->length = (uint16_t)pbox_payload_bytes(t->block, frag_elements(t, f));
	iov[0] = (struct iovec){codes_of(t, f), h->length};
	return 1;
}

void
encode_refused(struct pbox_worker_table *t, const struct frag *f, uint32_t round)
{
	struct encoded *e = t->block != 0 ? &t->encoded[table_frag_number(t, f)] : NULL;

	if (e == NULL || !e->made || e->round != round)
		return;
	e->made = false;
	e->half = !e->half;
}

const uint8_t *
encode_value(const struct pbox_worker_table *t, const struct frag *f, const struct pbox_hdr *h,
	const uint8_t *payload)
{
	float *value;

	if (t->block == 0 || h->format != t->block)
		return payload;
	value = (float *)(void *)retained_place(t, f);
	t->reduce->decode(value, payload, t->block, frag_elements(t, f));
	return (const uint8_t *)value;
}
