/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>

#include "worker_impl.h"

/*
 * Which box has which chunk of some tables (R16.9): the worker asks the one that decides, and shows it to all, or shows one what it knows. First
 * all boxes take what comes to them, then those that lose chunks close them: none is without a box that has memory for it.
 */

#define SPREAD_FIRST_PAUSE NS_PER_MS
#define SPREAD_LAST_PAUSE  (50 * NS_PER_MS)
#define HOMES_FIXED        20 /* bytes of HOMES, */
#define HOMES_ENTRY        8  /* and for each chunk */

int
spread_begin(const struct pbox_worker *w, struct spread *x, struct pbox_worker_table **table,
	uint32_t tables, uint16_t flags)
{
	spread_end(x);
	x->next = calloc(tables + (size_t)1, sizeof(*x->next));
	if (x->next == NULL)
		return -1;
	x->table = table;
	x->tables = tables;
	x->flags = flags;
	x->out = w->homes.out;
	x->out_epoch = w->homes.epoch;
	x->decider = w->homes.decider;
	x->asks = x->decider;
	x->since_ns = w->now;
	for (uint32_t i = 0; i < tables; i++) {
		x->next[i] = calloc(table[i]->chunks + (size_t)1, sizeof(*x->next[i]));
		if (x->next[i] == NULL) {
			spread_end(x);
			return -1;
		}
		for (uint32_t k = 0; k < table[i]->chunks; k++)
			x->next[i][k] = (struct pbox_home){.box = table[i]->chunk[k].box,
				.endpoint = (uint8_t)table[i]->chunk[k].endpoint,
				.epoch = table[i]->chunk[k].epoch,
				.version = table[i]->chunk[k].version};
	}
	x->phase = SPREAD_ASK;
	return 0;
}

void
spread_only(struct spread *x, const struct session *s, uint16_t epoch)
{
	assert(x->next != NULL && !x->asked);
	x->only = true;
	x->box = s->index;
	x->epoch = epoch;
	x->phase = SPREAD_SHOW;
}

void
spread_again(struct spread *x)
{
	if (x->asked && x->s != NULL)
		request_drop(x->s, &x->request);
	x->asked = x->changed = x->newer = false;
	x->at = x->first = 0;
	x->box = 0;
	x->again_ns = x->since_ns = 0;
	x->asks = x->decider;
	x->phase = SPREAD_ASK;
}

void
spread_end(struct spread *x)
{
	if (x->asked && x->s != NULL)
		request_drop(x->s, &x->request);
	for (uint32_t i = 0; x->next != NULL && i < x->tables; i++)
		free(x->next[i]);
	free(x->next);
	*x = (struct spread){0};
}

/** Chunks that a datagram has room for. */
static uint32_t
page_most(const struct pbox_worker *w, const struct spread *x)
{
	uint32_t room = (w->box[x->box]->mtu - PBOX_MTU_OVERHEAD - HOMES_FIXED) / HOMES_ENTRY;

	return room < PBOX_HOMES_MOST ? room : PBOX_HOMES_MOST;
}

/** The box that is asked or shown. */
static unsigned
spread_at(const struct spread *x)
{
	return x->phase == SPREAD_ASK ? x->asks : x->box;
}

/** The next page goes. */
static void
page_send(struct pbox_worker *w, struct spread *x)
{
	const struct pbox_worker_table *t = x->table[x->at];
	struct pbox_homes m = {.table = t->number, .chunks = t->chunks, .first = x->first};
	uint32_t left = t->chunks - x->first;
	size_t length;

	assert(!x->asked && x->at < x->tables && x->first <= t->chunks);
	if (x->phase != SPREAD_ASK) {
		m.epoch = x->epoch;
		m.out = x->out;
		m.flags = (uint16_t)(x->flags | pbox_homes_decided(x->decider) |
				     (x->phase == SPREAD_PREPARE ? PBOX_HOMES_PREPARE : 0));
		m.count = (uint16_t)(left < page_most(w, x) ? left : page_most(w, x));
		for (unsigned i = 0; i < m.count; i++)
			m.home[i] = (struct pbox_home){.box = x->next[x->at][x->first + i].box,
				.epoch = x->next[x->at][x->first + i].epoch};
	}
	length = pbox_homes_encode(x->payload, sizeof(x->payload), &m);
	x->s = w->box[spread_at(x)];
	x->asked = true;
	request_begin(
		x->s, &x->request, PBOX_HOMES, x->payload, length, 0, x->answer, sizeof(x->answer));
}

/** What an answer says of the chunks. */
static void
page_take(struct pbox_worker *w, struct spread *x, const struct pbox_homes *m)
{
	const struct pbox_worker_table *t = x->table[x->at];

	assert(x->at < x->tables && x->box < w->boxes && m->first == x->first);
	homes_heard(&w->homes, m->epoch, x->s->index, x->s->index == x->decider);
	if ((int16_t)(m->epoch - x->out_epoch) > 0) {
		x->out = m->out;
		x->out_epoch = m->epoch;
		x->decider = pbox_homes_decides(m);
	}
	if (x->phase == SPREAD_ASK) {
		if (x->at == 0 && x->first == 0)
			x->epoch = m->epoch;
		x->changed |= m->epoch != x->epoch; /* in the middle of it: ask again */
	}
	for (uint32_t i = m->first; i < m->first + m->count && i < t->chunks; i++) {
		const struct pbox_home *h = &m->home[i - m->first];
		struct pbox_home *n = &x->next[x->at][i];

		if (x->phase == SPREAD_ASK && (int16_t)(h->epoch - n->epoch) > 0)
			*n = (struct pbox_home){.box = h->box, .epoch = h->epoch};
		if (x->phase != SPREAD_ASK && (int16_t)(h->epoch - n->epoch) > 0) {
			/* the box that decides may have been started again, and know it no more: it is shown that, too */
			if (!x->only)
				*n = (struct pbox_home){.box = h->box, .epoch = h->epoch};
			if (x->learned == 0 || (int16_t)(h->epoch - x->learned) > 0)
				x->learned = h->epoch;
			x->newer = true;
		}
		if (x->phase == SPREAD_SHOW && h->epoch == n->epoch && h->box == x->box) {
			n->endpoint = h->endpoint;
			n->version = h->version;
		}
	}
}

/** A box that is one of the job's again needs a session before it is shown anything. */
static void
take_in(struct pbox_worker *w, const struct spread *x)
{
	for (unsigned i = 0; i < w->boxes; i++)
		w->box[i]->out &= (x->out >> i & 1) != 0;
}

/** Nobody waits for those that are out. */
static unsigned
spread_first(const struct pbox_worker *w, const struct spread *x)
{
	unsigned box = 0;

	while (box < w->boxes && (x->out >> box & 1) != 0)
		box++;
	return box;
}

/** On to the next page, table, box, pass; false: that was the last. */
static bool
page_next(struct pbox_worker *w, struct spread *x, const struct pbox_homes *m)
{
	x->first += m->count > 0 ? m->count : 1;
	if (x->first < x->table[x->at]->chunks)
		return true;
	x->first = 0;
	if (++x->at < x->tables)
		return true;
	x->at = 0;
	if (x->only)
		return false;
	if (x->phase == SPREAD_ASK && x->asks != x->decider) {
		/* the one that decides by what has been heard says all of it */
		x->asks = x->decider;
		x->changed = false;
		return true;
	}
	if (x->phase == SPREAD_ASK) {
		x->box = spread_first(w, x);
		if (x->learned != 0 && (int16_t)(x->learned - x->epoch) > 0)
			x->epoch = x->learned;
		x->phase = SPREAD_PREPARE;
		take_in(w, x);
		return true;
	}
	/* nobody waits for those that are out */
	do
		x->box++;
	while (x->box < w->boxes && (x->out >> x->box & 1) != 0);
	if (x->box < w->boxes)
		return true;
	x->box = spread_first(w, x);
	if (x->phase == SPREAD_SHOW)
		return false;
	x->phase = SPREAD_SHOW;
	return true;
}

/** May the request go to that box now? */
static bool
may_talk(const struct pbox_worker *w, const struct spread *x)
{
	const struct session *s = w->box[spread_at(x)];

	if (s->phase != SESSION_OPEN || s->retired || !s->listed || rejoin_pauses(s))
		return false;
	return x->only || s->rejoin.phase == PHASE_NONE || s->rejoin.phase == PHASE_RESTORE;
}

/** The one that decides may be silent. A box says that there is a later map than any that has been answered, and it is not the one that should answer
 * now. */
static bool
others_know(const struct pbox_worker *w, const struct spread *x)
{
	return !x->only && w->homes.from != spread_at(x) &&
	       (int16_t)(w->homes.seen - x->out_epoch) > 0 &&
	       (x->phase == SPREAD_ASK || spread_at(x) == x->decider ||
		       w->box[x->decider]->rejoin.joining);
}

/** The box that should answer is silent: which box decides now says another one (R16.17). */
static bool
ask_another(struct pbox_worker *w, struct spread *x)
{
	if (x->since_ns == 0)
		x->since_ns = w->now;
	if (w->now - x->since_ns < SPREAD_PATIENT || !others_know(w, x))
		return false;
	if (x->phase != SPREAD_ASK)
		return true;
	if (x->asked)
		request_drop(x->s, &x->request);
	x->asked = x->changed = false;
	x->asks = x->asks == x->decider ? w->homes.from : x->decider;
	x->at = x->first = 0;
	x->again_ns = 0;
	x->since_ns = w->now;
	return false;
}

int
spread_step(struct pbox_worker *w, struct spread *x)
{
	struct pbox_client_error err = {.code = PBOX_C_REFUSED};
	struct pbox_homes m;

	/* there is a newer map already, perhaps as the box that is shown this one is dead */
	if (!x->only && x->phase != SPREAD_ASK && (int16_t)(w->homes.first - x->epoch) > 0) {
		x->newer = true;
		return 0;
	}
	if (x->tables == 0)
		return 0;
	if (ask_another(w, x)) {
		x->newer = true;
		return 0;
	}
	/* it was out by an earlier map (R16.12) */
	if (x->phase == SPREAD_ASK && w->box[x->asks]->out && (x->out >> x->asks & 1) == 0)
		take_in(w, x);
	if (!x->asked) {
		if (w->now < x->again_ns || !may_talk(w, x))
			return 1;
		page_send(w, x);
	}
	if (x->request.listed)
		return 1;
	x->asked = false;
	x->since_ns = w->now;
	if (x->request.answer_type == PBOX_NOT_READY) {
		homes_heard(
			&w->homes, x->request.map_epoch, x->s->index, x->s->index == x->decider);
		x->pause = x->pause == 0 ? SPREAD_FIRST_PAUSE : x->pause * 2;
		if (x->pause > SPREAD_LAST_PAUSE)
			x->pause = SPREAD_LAST_PAUSE;
		x->again_ns = w->now + x->pause;
		return 1;
	}
	x->pause = 0;
	if (x->request.answer_type != PBOX_HOMES_OK ||
		pbox_homes_decode(x->answer, x->request.answer_len, &m) != 0 ||
		m.table != x->table[x->at]->number || m.chunks != x->table[x->at]->chunks ||
		m.first != x->first || (m.count == 0 && m.chunks > 0)) {
		pbox_worker_result(
			&x->request, PBOX_HOMES_OK, "which box has which chunk", &w->fatal, &err);
		if (err.text[0] == 0)
			pbox_client_fail(&err, PBOX_C_REFUSED, "the box's HOMES_OK is not sound");
		text_fail(w, err.code, "%s", err.text);
		return -1;
	}
	page_take(w, x, &m);
	if (page_next(w, x, &m))
		return spread_step(w, x);
	return 0;
}

bool
spread_is_out(const struct spread *x)
{
	for (uint32_t i = 0; i < x->tables; i++)
		for (uint32_t k = 0; k < x->table[i]->chunks; k++)
			if ((x->out >> x->next[i][k].box & 1) != 0)
				return true;
	return false;
}

uint64_t
spread_due(const struct pbox_worker *w, const struct spread *x)
{
	uint64_t another =
		x->tables > 0 && others_know(w, x) ? x->since_ns + SPREAD_PATIENT : UINT64_MAX;

	if (x->tables == 0 || x->asked || !may_talk(w, x))
		return another;
	return x->again_ns < another ? x->again_ns : another;
}
