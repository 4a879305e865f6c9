/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <stdlib.h>

#include "worker_impl.h"

#define CARRY_MOST  24 /* under way at once: as many datagrams */
#define CARRY_LEAST (5 * NS_PER_MS)
#define CARRY_LAST  NS_PER_S

void
carry_init(struct carries *k)
{
	k->first = NULL;
	k->tail = &k->first;
}

/* ---- where fragments are ---------------------------------------------------------------------- */

void
carry_is_home(const struct pbox_worker *w, const struct pbox_worker_table *t, struct frag *f)
{
	if (w->boxes < 2)
		return;
	assert(t->chunk[f->chunk].box < w->boxes);
	f->at_box = (uint8_t)(t->chunk[f->chunk].box + 1);
	f->at_endpoint = (uint8_t)t->chunk[f->chunk].endpoint;
}

uint32_t
carry_source(const struct pbox_worker *w, const struct pbox_worker_table *t, const struct frag *f)
{
	assert(f->at_box <= w->boxes);
	if (f->at_box == 0 || f->at_box == t->chunk[f->chunk].box + 1 || w->box[f->at_box - 1]->out)
		return 0;
	return f->at_box;
}

static struct session *
source_of(const struct carry *c, const struct pbox_worker *w)
{
	uint32_t source = carry_source(w, c->t, c->f);

	return source != 0 ? w->box[source - 1] : NULL;
}

static struct session *
home_of(const struct carry *c, const struct pbox_worker *w)
{
	return w->box[c->t->chunk[c->f->chunk].box];
}

/* ---- begin and end -------------------------------------------------------------------------- */

int
carry_begin(struct pbox_worker *w, struct pbox_worker_table *t, struct frag *f, unsigned arrays)
{
	struct carry *c;

	assert(carry_source(w, t, f) != 0); /* else there is nothing to bring */
	if (f->carried)
		return 0;
	c = calloc(1, sizeof(*c));
	if (c == NULL)
		return -ENOMEM;
	c->t = t;
	c->f = f;
	c->arrays = (uint16_t)arrays;
	f->carried = true;
	*w->carries.tail = c;
	w->carries.tail = &c->next;
	return 0;
}

/** Take the carry at @p at out of the list. */
static void
carry_remove(struct pbox_worker *w, struct carry **at)
{
	struct carry *c = *at;

	assert(c->f->carried);
	*at = c->next;
	if (*at == NULL)
		w->carries.tail = at;
	c->f->carried = false;
	free(c->part);
	free(c);
}

void
carry_end(struct pbox_worker *w, const struct frag *f)
{
	if (!f->carried)
		return;
	for (struct carry **at = &w->carries.first; *at != NULL; at = &(*at)->next)
		if ((*at)->f == f) {
			carry_remove(w, at);
			return;
		}
}

void
carry_drop(struct pbox_worker *w, const struct session *s)
{
	for (struct carry **at = &w->carries.first; *at != NULL;)
		if (s == NULL || home_of(*at, w) == s || (*at)->f->at_box == s->index + 1)
			carry_remove(w, at);
		else
			at = &(*at)->next;
}

void
carry_lost(struct pbox_worker *w, const struct session *s)
{
	carry_drop(w, s);
	for (uint32_t i = 0; w->boxes > 1 && i < w->tables; i++)
		for (uint32_t k = 0; k < w->table[i]->frags; k++)
			if (w->table[i]->frag[k].at_box == s->index + 1)
				w->table[i]->frag[k].at_box = 0;
}

/** The box that has asked hears that this worker can bring nothing. */
static void
report_again(struct pbox_worker *w, const struct pbox_worker_table *t, struct frag *f)
{
	struct ep *ep = worker_endpoint(w, &t->chunk[f->chunk]);
	struct flight *fl = &ep->flight[f->flight];

	f->at_box = 0;
	if (f->state == FRAG_FLIGHT && fl->type == PBOX_RESTORE)
		flight_send(ep, fl, false, false);
}

/* ---- frames ------------------------------------------------------------------------------------- */

static uint32_t
part_elements(const struct carry *c)
{
	uint32_t left = frag_elements(c->t, c->f) - c->base;

	return left < c->t->init_elements ? left : c->t->init_elements;
}

static bool
may_send(const struct session *s)
{
	return s != NULL && s->phase == SESSION_OPEN && !s->retired && !rejoin_pauses(s);
}

/** FETCH to the former home, or INIT to the new one. */
static void
part_send(struct pbox_worker *w, struct carry *c)
{
	const struct chunk *k = &c->t->chunk[c->f->chunk];
	struct session *s = c->giving ? home_of(c, w) : source_of(c, w);
	struct ep *ep;
	struct pbox_part m = {.offset = c->base, .array = c->array};
	struct iovec iov;
	struct pbox_hdr h;
	uint64_t pause;

	assert(c->f->carried && c->part != NULL && c->base < frag_elements(c->t, c->f));
	if (!may_send(s)) {
		c->due_ns = w->now + CARRY_LEAST;
		return;
	}
	ep = &s->ep[c->giving ? k->endpoint : c->f->at_endpoint];
	header_fill(s, &h, c->giving ? PBOX_INIT : PBOX_FETCH, w->now);
	h.flags |= c->giving ? PBOX_F_HAVE : PBOX_F_LATEST;
	h.flags |= c->tries > 0 ? PBOX_F_RETX : 0;
	h.chunk = k->id;
	h.frag = c->f->index;
	h.map_epoch = k->epoch;
	h.prio = UINT8_MAX;
	if (c->giving) {
		h.format = PBOX_FMT_FP32;
		h.length = (uint16_t)pbox_payload_bytes(PBOX_FMT_FP32, part_elements(c));
		m.version = c->version;
		m.samples = c->samples;
		iov = (struct iovec){c->part, h.length};
	}
	pbox_part_put(&h, &m);
	/* the bytes are there until the batch has left: only an answer, which comes later, changes them */
	link_frame(&ep->lane->link, s, &ep->peer, &h, &iov, c->giving, false);
	pause = ep->win.rto > CARRY_LEAST ? ep->win.rto : CARRY_LEAST;
	c->due_ns = w->now + timer_shifted(pause, c->tries, CARRY_LAST);
	c->tries += c->tries < 16;
}

static void
carry_tick(struct pbox_worker *w, uint64_t drained)
{
	struct carry *c = w->carries.first;

	(void)drained;
	if (w->failed || w->shut)
		return;
	for (unsigned n = 0; c != NULL && n < CARRY_MOST; n++, c = c->next) {
		if (c->part == NULL) {
			c->part = malloc((size_t)c->t->init_elements * sizeof(float));
			c->due_ns = c->part != NULL ? 0 : w->now + CARRY_LAST;
		}
		if (c->part != NULL && w->now >= c->due_ns)
			part_send(w, c);
	}
}

static uint64_t
carry_due(const struct pbox_worker *w)
{
	const struct carry *c = w->shut ? NULL : w->carries.first;
	uint64_t due = UINT64_MAX;

	for (unsigned n = 0; c != NULL && n < CARRY_MOST; n++, c = c->next)
		due = c->due_ns < due ? c->due_ns : due;
	return due;
}

/** A part has come from the former home; false: it is of no use. */
static bool
on_part(struct pbox_worker *w, struct carry *c, const struct rx_frame *r)
{
	const struct pbox_hdr *h = &r->hdr;
	const struct pbox_part m = pbox_part_get(h);

	assert(!c->giving);
	if (h->length == 0) { /* it has nothing of the fragment */
		struct pbox_worker_table *t = c->t;
		struct frag *f = c->f;

		carry_end(w, f);
		report_again(w, t, f);
		return true;
	}
	if (h->format != PBOX_FMT_FP32 ||
		h->length != pbox_payload_bytes(PBOX_FMT_FP32, part_elements(c)))
		return false;
	if (c->known && m.version != c->version) { /* never of two versions: from the beginning */
		c->known = false;
		c->array = 0;
		c->base = 0;
		c->due_ns = c->tries = 0;
		return true;
	}
	c->known = true;
	c->version = m.version;
	c->samples = m.samples;
	memcpy(c->part, r->payload, h->length);
	c->giving = true;
	c->due_ns = c->tries = 0;
	return true;
}

/** The new home has the part. */
static void
on_part_taken(struct pbox_worker *w, struct carry *c)
{
	assert(c->giving && c->known); /* what was brought had come */
	c->giving = false;
	c->due_ns = c->tries = 0;
	c->base += c->t->init_elements;
	if (c->base < frag_elements(c->t, c->f))
		return;
	c->base = 0;
	if (++c->array == c->arrays)
		carry_end(w, c->f);
}

bool
carry_frame(
	struct session *s, struct pbox_worker_table *t, struct frag *f, const struct rx_frame *r)
{
	struct pbox_worker *w = s->w;
	const struct pbox_hdr *h = &r->hdr;
	const struct pbox_part m = pbox_part_get(h);
	bool part = h->type == PBOX_FETCHED && (h->flags & PBOX_F_LATEST) != 0;
	struct carry *c = f->carried ? w->carries.first : NULL;

	if (!part && (h->type != PBOX_INIT_OK || (h->flags & PBOX_F_HAVE) == 0))
		return false;
	while (c != NULL && c->f != f)
		c = c->next;
	if (c == NULL || c->t != t || c->part == NULL || c->giving == part || m.offset != c->base ||
		m.array != c->array || s != (part ? source_of(c, w) : home_of(c, w)) ||
		(!part && m.version != c->version)) {
		r->lane->count.rx_duplicates++;
		return true;
	}
	if (!part)
		on_part_taken(w, c);
	else if (!on_part(w, c, r))
		r->lane->count.rx_dropped++;
	return true;
}

const struct session *
carry_waits(const struct pbox_worker *w)
{
	const struct carry *c = w->carries.first;

	for (unsigned n = 0; c != NULL && n < CARRY_MOST; n++, c = c->next)
		if (!c->giving && c->tries > 4 && carry_source(w, c->t, c->f) != 0)
			return w->box[carry_source(w, c->t, c->f) - 1];
	return NULL;
}

static void
carry_begins(struct pbox_worker *w)
{
	carry_init(&w->carries);
}

static void
carry_ends(struct pbox_worker *w)
{
	carry_drop(w, NULL);
}

const struct worker_part carry_part = {
	.name = "fragments carried",
	.begin = carry_begins,
	.end = carry_ends,
	.tick = carry_tick,
	.due = carry_due,
};
