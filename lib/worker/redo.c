/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>

#include "worker_impl.h"

/*
 * The redo log of a table in clocks (R14.12): own pushes that no RESULT has shown yet, as they were sent. A box that is started
 * again goes on from a version that some worker holds, and says which of this worker's pushes that has. Those after them go again, in
 * order, before anything else of the fragment.
 *
 * Pushes in a format of blocks (R14.14) are encoded into the log when they leave for the first time, and go from there each time. So what is
 * kept is what was sent: one that is in flight stays, also where a version has shown it, until the box has answered it.
 *
 * A place of the log is the first that is free, so that a worker that pulls after each push touches the memory of a model or two.
 */

/** Bytes of all fragments once. */
static size_t
place_bytes(const struct pbox_worker_table *t)
{
	const struct chunk *last = &t->chunk[t->chunks - 1];

	if (t->update != 0)
		return t->frags * pbox_payload_bytes(t->update, t->frag_elements);
	return pbox_payload_bytes(t->push_format, last->at + last->elements);
}

int
redo_open(struct pbox_worker_table *t)
{
	if (t->chunks == 0)
		return 0;
	t->redo = calloc(t->frags, sizeof(*t->redo));
	t->redo_payload = pbox_worker_room(REDO_MAX * place_bytes(t));
	t->retained_vector = malloc((size_t)t->frags * t->vector);
	return t->redo != NULL && t->redo_payload != NULL && t->retained_vector != NULL ? 0 : -1;
}

static uint8_t *
redo_bytes_of(const struct pbox_worker_table *t, const struct frag *f, unsigned slot)
{
	uint8_t *place = t->redo_payload + slot * place_bytes(t);

	/* codes begin with a unit */
	return t->update != 0 ? place + table_frag_number(t, f) *
						pbox_payload_bytes(t->update, t->frag_elements)
			      : place + pbox_payload_bytes(t->push_format, table_frag_at(t, f));
}

bool
redo_is_last(const struct pbox_worker_table *t, const struct frag *f)
{
	return t->redo != NULL && redo_of(t, f)->n >= REDO_MAX - 1;
}

static uint8_t
free_slot(const struct redo *r)
{
	unsigned used = 0;

	assert(r->n < REDO_MAX);
	for (unsigned i = 0; i < r->n; i++)
		used |= 1u << r->slot[i];
	return (uint8_t)__builtin_ctz(~used);
}

static void
keep_bytes(const struct pbox_worker_table *t, const struct frag *f, uint8_t *to)
{
	uint32_t count = frag_elements(t, f);
	struct iovec iov[MAX_PIECES];
	unsigned n = table_gather(t, f, 0, 0, count, t->push_format, iov, MAX_PIECES);

	for (unsigned k = 0; k < n; k++) {
		aside_copy(to, iov[k].iov_base, iov[k].iov_len);
		to += iov[k].iov_len;
	}
}

static float
factor_at(const struct redo *r, unsigned i)
{
	return half_widen(r->factor[i] != 0 ? r->factor[i] : PBOX_LR_MUL_ONE, PBOX_FMT_BF16);
}

/** Is the push of that clock the last one in the log? */
static bool
is_last(const struct redo *r, uint32_t clock)
{
	return r->n > 0 && r->first + r->n - 1 == clock;
}

void
redo_keep(struct pbox_worker_table *t, const struct frag *f)
{
	struct redo *r = redo_of(t, f);
	unsigned i = r->n;

	assert(r->owed == 0 && !f->owes); /* what is owed goes first, and clocks do not fall */
	if (is_last(r, f->round)) {       /* sent before, and never answered: */
		r->counted = false;
		if (t->update != 0 && !r->ended)
			return; /* codes are made once */
		i = --r->n;     /* what is sent now counts */
	}
	r->counted = r->ended = false;
	assert(i < REDO_MAX && (i == 0 || r->first + i == f->round));
	if (i == 0)
		r->first = f->round;
	r->slot[i] = free_slot(r);
	r->weight[i] = table_weight(t, f, 0);
	r->factor[i] = table_first_op(t, f)->factor;
	r->n++;
	if (t->update == 0) {
		keep_bytes(t, f, redo_bytes_of(t, f, r->slot[i]));
		return;
	}
	encode_update(t, f, redo_bytes_of(t, f, r->slot[i]), factor_at(r, i), r->half);
	r->half = !r->half;
}

void
redo_refused(struct pbox_worker_table *t, const struct frag *f)
{
	struct redo *r = t->redo != NULL ? redo_of(t, f) : NULL;

	if (r == NULL)
		return;
	if (t->update != 0 && !r->ended && is_last(r, f->round + 1))
		r->half = !r->half;
	r->ended = true;
}

void
redo_withdrawn(struct pbox_worker_table *t, const struct frag *f)
{
	if (t->update != 0 && !table_is_pull_lane(t, f) && is_last(redo_of(t, f), f->round + 1))
		redo_refused(t, f);
}

bool
redo_counted(const struct pbox_worker_table *t, const struct frag *f)
{
	return t->redo != NULL && !table_is_pull_lane(t, f) && redo_of(t, f)->counted;
}

void
redo_shown(struct pbox_worker_table *t, const struct frag *f, uint32_t own)
{
	struct redo *r = redo_of(t, f);
	unsigned n = 0;

	if (r->owed > 0 && rounds_apart(own, f->round - r->owed) > 0)
		own = f->round - r->owed; /* the one after that is in flight */
	while (n < r->n && rounds_apart(r->first + n, own) <= 0)
		n++;
	r->first += n;
	r->n -= (uint8_t)n;
	memmove(r->weight, r->weight + n, r->n * sizeof(r->weight[0]));
	memmove(r->factor, r->factor + n, r->n * sizeof(r->factor[0]));
	memmove(r->slot, r->slot + n, r->n * sizeof(r->slot[0]));
	assert(r->owed <= r->n && r->n <= REDO_MAX);
}

static void
set_owes(struct pbox_worker_table *t, struct frag *f, bool owes)
{
	if (owes != f->owes)
		__atomic_add_fetch(&t->owing, owes ? 1u : UINT32_MAX, __ATOMIC_RELAXED);
	f->owes = owes;
}

uint32_t
redo_begin(struct pbox_worker_table *t, struct frag *f, uint32_t clock)
{
	struct redo *r = redo_of(t, f);
	uint32_t from = r->n > 0 ? r->first - 1 : f->round, lost = 0;
	bool has;

	if (rounds_apart(from, clock) > 0) { /* they have other clocks from now on */
		lost = from - clock;
		r->first -= lost;
		f->round -= lost;
	}
	r->owed = rounds_apart(f->round, clock) > 0 ? (uint8_t)(f->round - clock) : 0;
	set_owes(t, f, r->owed > 0);
	has = clock == f->round + 1;
	r->counted = has && !r->ended;
	if (has && r->ended) { /* no operation brings it again */
		f->round = clock;
		r->half = t->update != 0 ? !r->half : 0; /* its codes have counted */
		/* room for the next push; if the box loses the first one, that is counted */
		if (r->n == REDO_MAX)
			redo_shown(t, f, r->first);
	}
	if (has || t->update == 0) /* else its codes stay void */
		r->ended = false;
	return lost;
}

void
redo_done(struct pbox_worker_table *t, struct frag *f)
{
	assert(f->owes && redo_of(t, f)->owed > 0);
	set_owes(t, f, --redo_of(t, f)->owed > 0);
}

static unsigned
redo_place_of(const struct redo *r, uint32_t clock)
{
	assert(clock - r->first < r->n);
	return clock - r->first;
}

void
redo_push(const struct pbox_worker_table *t, const struct frag *f, struct pbox_push_clock *m)
{
	const struct redo *r = redo_of(t, f);
	unsigned i = redo_place_of(r, m->clock);

	m->factor = r->factor[i] != 0 ? r->factor[i] : PBOX_LR_MUL_ONE;
	m->samples = r->weight[i];
}

unsigned
redo_payload(const struct pbox_worker_table *t, const struct frag *f, struct pbox_hdr *h,
	struct iovec *iov)
{
	const struct redo *r = redo_of(t, f);
	unsigned i = redo_place_of(r, h->round);

	h->format = t->update != 0 ? t->update : t->push_format;
	h->fmt_arg = (uint8_t)pbox_format_arg(h->format);
	h->length = (uint16_t)pbox_payload_bytes(h->format, frag_elements(t, f));
	iov[0] = (struct iovec){redo_bytes_of(t, f, r->slot[i]), h->length};
	return 1;
}

const uint8_t *
redo_find(const struct pbox_worker_table *t, const struct frag *f, uint32_t clock, float *factor)
{
	const struct redo *r = t->redo != NULL ? redo_of(t, f) : NULL;

	if (r == NULL || clock - r->first >= r->n ||
		(t->update != 0 && r->ended && is_last(r, clock)))
		return NULL;
	*factor = factor_at(r, clock - r->first);
	return redo_bytes_of(t, f, r->slot[clock - r->first]);
}
