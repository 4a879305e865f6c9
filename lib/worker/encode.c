/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

#include <pbox_reduce.h>

#include "encode.h"
#include "worker_impl.h"

/*
 * Formats of blocks (R13.6, R13.8): programs push and pull fp32, frames carry codes. The codes of a fragment and round are made once,
 * when a frame of it leaves for the first time, and go as they are in every frame of that round: the box may have them
 * already, and what they do not say has gone to the residual. So it is until codes of the next round are made, or the box
 * refuses them with ERROR: then the residual is what it was before. The program pushes the gradient again, so that is not
 * added to it.
 *
 * A worker with several nodes encodes them together, in the order of their slots: the residual goes from node to node, so that one
 * error a round is left. The box may have taken some before it refuses another one: so what it refuses counts as refused only if no
 * other node has been sent.
 *
 * By plan a worker gets slots of others within a round, which the box may have from them: so these go in fp32, and without the residual,
 * of which nobody could know whether it has counted (R13.9). So does any node that is cut otherwise than those that codes were made of, and
 * all of a round for which the program has said so (R13.10): the residual waits for the next codes.
 *
 * With an optimiser on the box codes of a RESULT (R13.7) say by how much the parameters have changed
 * since the version before. They are added to the copy, never to what the program has, which may have changed that.
 *
 * In clocks (R14.14) pushes alone are codes. They are made in the redo log, which keeps what was sent (redo.c), and the residual is of what
 * the box adds: the push times its factor.
 *
 * An element's residual is at its place in the table, whichever box has its chunk. A fragment belongs to one lane, and so do its
 * codes and residuals.
 */

#define ENCODE_BLOCK \
	(8 * PBOX_UNIT) /* elements that are gathered at a time, where they are not in one piece */

/** Residuals by their factor are below it, or taken by a later push: larger ones would make a block that is not finite. */
#define ENCODE_REST 0x1p100f

/** Of a fragment. */
struct encoded {
	uint32_t round; /* that there are codes of, if made */
	bool made;
	uint8_t half; /* which array has its residual; the other one has that before these codes, if made */
	uint8_t sent;  /* so many of its nodes have been sent, the first ones */
	uint8_t nodes; /* in coded */
};

/** What a contribution goes as: coded_node.as. */
enum coded_as { CODED_FP32, CODED_CODES, CODED_ZERO };

int
encode_room(struct pbox_worker_table *t, unsigned nodes)
{
	struct coded *coded;

	if (t->encoded == NULL || nodes <= t->n_coded)
		return 0;
	coded = realloc(t->coded, nodes * sizeof(*coded));
	if (coded == NULL)
		return -1;
	t->coded = coded;
	for (; t->n_coded < nodes; t->n_coded++) {
		struct coded *c = &t->coded[t->n_coded];

		c->codes =
			pbox_worker_room(t->frags * pbox_payload_bytes(t->block, t->frag_elements));
		c->of = calloc(t->frags, sizeof(*c->of));
		if (c->codes == NULL || c->of == NULL) {
			free(c->codes);
			free(c->of);
			return -1;
		}
	}
	return 0;
}

int
encode_open(const struct pbox_worker *w, struct pbox_worker_table *t)
{
	const struct chunk *last = t->chunks > 0 ? &t->chunk[t->chunks - 1] : NULL;
	uint64_t elements = last != NULL ? last->at + last->elements : 0;

	if ((t->block == 0 && t->difference == 0 && t->update == 0) || elements == 0)
		return 0;
	t->reduce = pbox_reduce_select(NULL);
	if (t->block == 0 && t->update == 0)
		return t->reduce != NULL ? 0 : -1;
	for (unsigned i = 0; i < 2; i++)
		t->residual[i] = pbox_worker_room(elements * sizeof(float));
	if (t->reduce == NULL || t->residual[0] == NULL || t->residual[1] == NULL)
		return -1;
	memset(t->residual[0], 0, elements * sizeof(float));
	if (t->update != 0)
		return 0;
	t->encoded = calloc(t->frags, sizeof(*t->encoded));
	return t->encoded != NULL ? encode_room(t, nodes_of(w, t)) : -1;
}

static uint8_t *
codes_of(const struct pbox_worker_table *t, const struct frag *f, unsigned node)
{
	return t->coded[node].codes +
	       table_frag_number(t, f) * pbox_payload_bytes(t->block, t->frag_elements);
}

/** What the program pushes of @p n elements of a node from @p from on, in one piece: where it is, or in @p room. */
static const float *
pushed(const struct pbox_worker_table *t, const struct frag *f, unsigned node, uint32_t from,
	uint32_t n, float *room)
{
	struct iovec iov[MAX_PIECES];
	unsigned pieces = table_gather(t, f, node, from, n, PBOX_FMT_FP32, iov, MAX_PIECES);
	float weight = t->weighs ? (float)table_weight(t, f, node) : 1.0f;
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
encode_node(const struct pbox_worker_table *t, const struct frag *f, unsigned node, float *residual)
{
	uint32_t count = frag_elements(t, f);
	uint8_t *codes = codes_of(t, f, node);
	float room[ENCODE_BLOCK];

	for (uint32_t from = 0; from < count; from += ENCODE_BLOCK) {
		uint32_t n = count - from < ENCODE_BLOCK ? count - from : ENCODE_BLOCK;

		t->reduce->encode(codes + pbox_payload_bytes(t->block, from), t->block,
			pushed(t, f, node, from, n, room), residual + from, n);
	}
}

bool
pbox_worker_plain(struct pbox_worker_table *t, uint32_t round, bool plain)
{
	uint32_t n = atomic_load_explicit(&t->plains, memory_order_relaxed);

	if ((t->flags & PBOX_DECLARE_MIXED) == 0 ||
		(n > 0 && (int32_t)(round - t->plain_from[(n - 1) % PLAIN_FROM].round) < 0))
		return false;
	if (n > 0 && t->plain_from[(n - 1) % PLAIN_FROM].plain == plain)
		return true;
	t->plain_from[n % PLAIN_FROM] = (struct plain_from){.round = round, .plain = plain};
	atomic_store_explicit(&t->plains, n + 1, memory_order_release);
	return true;
}

static bool
is_plain_in(const struct pbox_worker_table *t, uint32_t round)
{
	uint32_t n = atomic_load_explicit(&t->plains, memory_order_acquire);

	for (uint32_t i = n; i > 0 && n - i < PLAIN_FROM; i--)
		if ((int32_t)(round - t->plain_from[(i - 1) % PLAIN_FROM].round) >= 0)
			return t->plain_from[(i - 1) % PLAIN_FROM].plain;
	return false;
}

static void
encode_make(const struct pbox_worker *w, const struct pbox_worker_table *t, const struct frag *f)
{
	uint32_t i = table_frag_number(t, f), count = frag_elements(t, f);
	struct encoded *e = &t->encoded[i];
	uint64_t at = table_frag_at(t, f);
	float *residual = t->residual[!e->half] + at;
	bool plain = is_plain_in(t, f->round);

	assert(nodes_of(w, t) <= t->n_coded);
	memcpy(residual, t->residual[e->half] + at, count * sizeof(*residual));
	for (unsigned k = 0; k < nodes_of(w, t); k++) {
		/* of plain operations all nodes but the first are zeros, which bring no residual either */
		bool zero = k > 0 && table_is_zero(t, f, k);
		struct coded_node *of = &t->coded[k].of[i];

		of->node = pbox_node_code(nodes_at(w, t, k));
		of->as = plain                                            ? CODED_FP32
			 : zero                                           ? CODED_ZERO
			 : nodes_are_kept(w, f->round, nodes_at(w, t, k)) ? CODED_CODES
									  : CODED_FP32;
		if (of->as == CODED_CODES)
			encode_node(t, f, k, residual);
	}
	*e = (struct encoded){.round = f->round,
		.made = true,
		.nodes = (uint8_t)nodes_of(w, t),
		.half = !e->half};
}

/** Of an element: what the push takes of it. */
static float
taken_rest(float residual, float factor)
{
	float rest = residual / factor;

	return fabsf(rest) < ENCODE_REST ? rest : 0; /* a factor of 0 takes none */
}

void
encode_update(const struct pbox_worker_table *t, const struct frag *f, uint8_t *codes, float factor,
	unsigned half)
{
	float room[ENCODE_BLOCK], rest[ENCODE_BLOCK];
	uint32_t count = frag_elements(t, f);
	uint64_t at = table_frag_at(t, f);
	const float *was = t->residual[half] + at;
	float *now = t->residual[!half] + at;

	for (uint32_t from = 0; from < count; from += ENCODE_BLOCK) {
		uint32_t n = count - from < ENCODE_BLOCK ? count - from : ENCODE_BLOCK;

		for (uint32_t i = 0; i < n; i++)
			rest[i] = taken_rest(was[from + i], factor);
		t->reduce->encode(codes + pbox_payload_bytes(t->update, from), t->update,
			pushed(t, f, 0, from, n, room), rest, n);
		for (uint32_t i = 0; i < n; i++) {
			float left = factor * rest[i];
			bool all = fabsf(was[from + i] / factor) < ENCODE_REST;

			now[from + i] = all ? left : was[from + i] + left;
		}
	}
}

/** Which of those that codes were made of is the node of the flight? The number of these: it is none. */
static unsigned
coded_find(const struct pbox_worker *w, const struct pbox_worker_table *t, const struct flight *fl)
{
	uint32_t i = table_frag_number(t, fl->frag),
		 node = pbox_node_code(nodes_at(w, t, fl->node));
	unsigned k = 0;

	while (k < t->encoded[i].nodes && t->coded[k].of[i].node != node)
		k++;
	return k;
}

bool
encode_payload(const struct pbox_worker *w, const struct pbox_worker_table *t,
	const struct flight *fl, struct pbox_hdr *h, struct iovec *iov, unsigned *n)
{
	const struct frag *f = fl->frag;
	uint32_t i = table_frag_number(t, f);
	struct encoded *e = &t->encoded[i];
	unsigned k;

	if (!e->made || e->round != f->round)
		encode_make(w, t, f);
	if (e->sent <= fl->node)
		e->sent = (uint8_t)(fl->node + 1);
	k = coded_find(w, t, fl);
	if (k == e->nodes || t->coded[k].of[i].as == CODED_FP32)
		return false;
	h->format = t->block;
	h->fmt_arg = (uint8_t)pbox_format_arg(t->block);
	*n = 0;
	if (t->coded[k].of[i].as == CODED_ZERO) {
		h->flags |= PBOX_F_ZERO;
		return true;
	}
	h->length = (uint16_t)pbox_payload_bytes(t->block, frag_elements(t, f));
	iov[0] = (struct iovec){codes_of(t, f, k), h->length};
	*n = 1;
	return true;
}

void
encode_refused(struct pbox_worker_table *t, const struct frag *f, uint32_t round)
{
	struct encoded *e = t->block != 0 ? &t->encoded[table_frag_number(t, f)] : NULL;

	if (e == NULL || !e->made || e->round != round || e->sent > 1)
		return;
	e->made = false;
	e->half = !e->half;
}

static unsigned
codes_format(const struct pbox_worker_table *t)
{
	return t->value != 0 ? t->value : t->difference;
}

unsigned
encode_format(const struct pbox_worker_table *t, const struct pbox_hdr *h)
{
	unsigned codes = codes_format(t);

	return codes != 0 && h->format == codes && h->fmt_arg == pbox_format_arg(codes)
		       ? codes
		       : t->pull_format;
}

/** How many versions before that one the copy of the fragment is; 0: there is none. */
static uint32_t
copy_age_at(const struct pbox_worker_table *t, const struct frag *f, uint32_t version)
{
	const struct retained *k = &t->retained[table_frag_number(t, f)];
	uint32_t age = version - k->version;

	return k->have ? age : 0;
}

bool
encode_fits(const struct pbox_worker_table *t, const struct frag *f, const struct pbox_hdr *h)
{
	return t->difference == 0 || h->format != t->difference || copy_age_at(t, f, h->round) == 1;
}

static void
add_codes(const struct pbox_worker_table *t, float *value, const uint8_t *payload, uint32_t count)
{
	float by[ENCODE_BLOCK];

	for (uint32_t from = 0; from < count; from += ENCODE_BLOCK) {
		uint32_t n = count - from < ENCODE_BLOCK ? count - from : ENCODE_BLOCK;

		t->reduce->decode(
			by, payload + pbox_payload_bytes(t->difference, from), t->difference, n);
		for (uint32_t i = 0; i < n; i++)
			value[from + i] = value[from + i] + by[i];
	}
}

const uint8_t *
encode_value(const struct pbox_worker_table *t, const struct frag *f, const struct pbox_hdr *h,
	const uint8_t *payload)
{
	float *value;

	if (codes_format(t) == 0 || h->format != codes_format(t))
		return payload;
	value = (float *)(void *)retained_place(t, f);
	if (t->difference != 0)
		add_codes(t, value, payload, frag_elements(t, f));
	else
		t->reduce->decode(value, payload, t->value, frag_elements(t, f));
	return (const uint8_t *)value;
}

uint16_t
encode_age(const struct pbox_worker_table *t, const struct frag *f)
{
	uint32_t age = copy_age_at(t, f, f->round);

	return age <= UINT16_MAX ? (uint16_t)age : 0;
}
