/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "worker_impl.h"

/*
 * How long each box takes for a round (STATS, R16.8). A round is the time from one moment without operations to the next; endpoints
 * count by themselves what they do in it (struct busy, flow.h). All of this is under the first lane's lock; when no operation is
 * left no other lane writes either.
 */

#define EVERY (250 * NS_PER_MS)
/* A round with fewer answers than so much of the largest one is a part of the next one: a loss that is averaged, say. */
#define PART 4

void
times_submitted(struct pbox_worker *w)
{
	w->times.fresh = true;
}

/** The time of a submission is that of the next turn. */
static void
times_begin(struct times *m, uint64_t now)
{
	if (!m->fresh)
		return;
	m->fresh = false;
	m->submitted = now;
}

static void
take_busy(struct session *s, struct busy *sum)
{
	for (unsigned i = 0; i < s->endpoints; i++) {
		struct busy *b = &s->ep[i].busy;

		sum->ns = b->ns > sum->ns ? b->ns : sum->ns;
		sum->asked += b->asked;
		sum->held += b->held;
		sum->answers += b->answers;
		sum->last = b->last > sum->last ? b->last : sum->last;
		*b = (struct busy){.from = b->from};
	}
}

static void
times_add(struct pbox_box_times *t, double seconds, double exposed)
{
	t->rounds++;
	t->seconds += seconds;
	t->squares += seconds * seconds;
	t->exposed += exposed;
}

void
times_ended(struct pbox_worker *w)
{
	struct times *m = &w->times;
	uint64_t answers = 0, end = m->end;
	double whole;

	if (w->boxes < 2)
		return;
	times_begin(m, w->lane[0]->now);
	for (unsigned i = 0; i < w->boxes; i++)
		take_busy(w->box[i], &m->busy[i]);
	for (unsigned i = 0; i < w->boxes; i++) {
		answers += m->busy[i].answers;
		end = m->busy[i].last > end ? m->busy[i].last : end;
	}
	if (answers == 0 || answers * PART < m->most)
		return;
	m->most = answers > m->most ? answers : m->most - m->most / 16;
	whole = (double)(end - m->end) / NS_PER_S;
	if (m->end != 0 && !m->spoiled) {
		m->all.rounds++;
		m->all.seconds += whole;
		m->all.squares += whole * whole;
	}
	for (unsigned i = 0; i < w->boxes; i++) {
		struct busy *b = &m->busy[i];
		double own = b->asked > b->held ? 1 - (double)b->held / (double)b->asked : 0;
		uint64_t after = b->last > m->submitted ? b->last - m->submitted : 0;

		after = after < b->ns ? after : b->ns; /* there were pauses in it */
		if (b->answers > 0 && m->end != 0 && !m->spoiled)
			times_add(&m->all.box[i], own * (double)b->ns / NS_PER_S,
				own * (double)after / NS_PER_S);
		*b = (struct busy){0};
	}
	m->end = end;
	m->spoiled = false;
}

void
times_tick(struct pbox_worker *w)
{
	struct times *m = &w->times;
	uint64_t now = w->now;

	if (w->boxes < 2 || w->shut)
		return;
	times_begin(m, now);
	if (m->request.listed || m->all.rounds == m->told || now < m->next || !w->opened)
		return;
	m->next = now + EVERY;
	m->told = m->all.rounds;
	m->all.boxes = (uint16_t)w->boxes;
	request_begin(worker_decider(w), &m->request, PBOX_STATS, m->payload,
		pbox_stats_encode(m->payload, sizeof(m->payload), &m->all), 0, m->answer,
		sizeof(m->answer));
}
