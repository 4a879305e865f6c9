/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>
#include <stdlib.h>

#include "worker_impl.h"

/*
 * Failover: the session is lost, and operations wait (R10.1 to R10.4). The worker joins again with the same nonce. If
 * that brings another session, it declares all tables again. Then for each of them in turn it compares the map, sends
 * the SETs again that matter, and reports its versions (restore.c). The operations on a table go on as soon as that is
 * done for it.
 */

#define FOLLOW_AGAIN (250 * NS_PER_MS)

void
rejoin_close(struct session *s)
{
	struct rejoin *r = &s->rejoin;

	if (r->pages.s != NULL)
		pager_close(&r->pages);
	free(r->map.seen.got);
	r->map = (struct map_again){0};
	spread_end(&r->homes);
}

bool
rejoin_possible(const struct session *s)
{
	return !s->w->shut && (s->w->conf.keep_copies || s->w->tables == 0);
}

void
rejoin_begin(struct session *s, enum rejoin_cause cause)
{
	struct rejoin *r = &s->rejoin;

	if (r->joining && r->cause != REJOIN_SILENT)
		return;
	if (!r->joining && r->phase == PHASE_NONE)
		r->lost_ns = s->w->now;
	if (r->joining) { /* it was only silent so far: ask at once */
		s->join.next_tx = s->w->now;
	} else {
		join_begin(&s->join, s, s->w->worker);
		s->join.patient = true;
	}
	r->cause = cause;
	r->joining = true;
	s->w->times.spoiled = true;
}

bool
rejoin_waits(const struct session *s)
{
	const struct session *first = worker_decider(s->w);

	return s != first && s->w->tables == 0 &&
	       (first->rejoin.joining || first->phase != SESSION_OPEN);
}

void
rejoin_renew(struct session *s)
{
	if (s->rejoin.joining) { /* with the number that it had */
		join_begin(&s->join, s, s->w->worker);
		s->join.patient = true;
	}
	rejoin_begin(s, REJOIN_FORGOTTEN);
}

/* ---- for the session -------------------------------------------------------------------------- */

void
rejoin_heard(struct session *s)
{
	struct rejoin *r = &s->rejoin;

	if (r->joining && r->cause == REJOIN_SILENT)
		r->joining = false;
}

bool
rejoin_frame(struct session *s, const struct rx_frame *f)
{
	uint8_t type = f->hdr.type;

	if (!s->rejoin.joining || !join_asked(&s->join, f->hdr.chunk) ||
		(type != PBOX_RETRY && type != PBOX_WELCOME &&
			(type != PBOX_ERROR || f->hdr.length == 0)))
		return false;
	join_frame(&s->join, f);
	return true;
}

uint64_t
rejoin_due(const struct session *s)
{
	const struct rejoin *r = &s->rejoin;

	if (r->joining && rejoin_waits(s))
		return UINT64_MAX;
	if (r->joining)
		return s->join.done ? 0 : join_due(&s->join);
	if (r->unreported != NULL)
		return 0;
	if (r->phase == PHASE_HOMES)
		return spread_due(s->w, &r->homes);
	return r->phase == PHASE_MAP ? pager_due(&r->pages) : UINT64_MAX;
}

/* ---- a new session ---------------------------------------------------------------------------- */

/** The answer is another one than the request asks for: the session has failed. */
static void
page_refused(struct session *s, const struct page *p, uint8_t want)
{
	struct pbox_client_error err = {.code = PBOX_C_REFUSED};

	pbox_worker_result(&p->request, want, "after a restart of the box", &s->w->fatal, &err);
	text_fail(s->w, err.code, "%s", err.text);
}

static bool
same_session(const struct session *s, const struct pbox_welcome *m)
{
	return m->token == s->token && m->incarnation == s->incarnation &&
	       m->job == s->job_number && m->worker == s->w->worker && m->endpoints == s->endpoints;
}

static void
rejoin_finish(struct session *s)
{
	assert(s->w->tables == 0 || (s->rejoin.left == 0 && s->rejoin.table + 1 == s->w->tables));
	for (uint32_t i = 0; i < s->w->tables; i++)
		assert_walk((s->w->table[i]->restoring >> s->index & 1) == 0);
	s->rejoin.phase = PHASE_NONE;
	s->rejoin.reporting = NULL;
	rejoin_close(s);
	queue_rebuild(s->w);
	s->w->count.restore_ms = (s->w->now - s->rejoin.lost_ns) / NS_PER_MS;
}

/** Table @p table goes through @p phase, from the start. */
static void
phase_table(struct session *s, uint32_t table, enum rejoin_phase phase)
{
	/* a table goes through the phases in their order, and tables one after the other */
	assert(phase > s->rejoin.phase || table > s->rejoin.table || phase == PHASE_DECLARE ||
		phase == PHASE_MAP);
	assert(table < s->w->tables || s->w->tables == 0);
	s->rejoin.phase = phase;
	s->rejoin.table = table;
	pager_reset(&s->rejoin.pages);
	spread_end(&s->rejoin.homes);
}

/** A table that a restarted box does not get back; NULL: there is none. */
static const struct pbox_worker_table *
ended_by_restart(const struct pbox_worker *w)
{
	for (uint32_t i = 0; i < w->tables; i++)
		if (w->workers > w->table[i]->discipline->survives)
			return w->table[i];
	return NULL;
}

static void
begin_again(struct session *s)
{
	struct rejoin *r = &s->rejoin;
	struct pbox_worker *w = s->w;
	const struct pbox_welcome *m = &s->join.welcome;
	uint64_t run = s->number;

	assert(s->join.done && s->join.rc == 0 && !r->joining);
	if ((m->worker != w->worker && !(w->turned && s == worker_decider(w))) ||
		m->workers != w->workers) {
		text_fail(w, PBOX_C_REFUSED,
			"the box at %s came back and made worker %u of %u of this one, which is %u of %u",
			s->name, m->worker, m->workers, w->worker, w->workers);
		return;
	}
	if (s->join.number != 0 && m->number != s->join.number) {
		text_fail(w, PBOX_C_RUN_ENDED,
			"the box at %s has another run of job '%s' now (%llu, this worker's is %llu)",
			s->name, w->job, (unsigned long long)m->number,
			(unsigned long long)s->join.number);
		return;
	}
	if (m->incarnation != s->incarnation && ended_by_restart(w) != NULL) {
		text_fail(w, PBOX_C_LOST,
			"the box at %s was restarted, and with that table %u has ended, which is in clocks: nobody knows which pushes have counted in a job of more than %u workers; start the job again from a checkpoint",
			s->name, ended_by_restart(w)->number,
			ended_by_restart(w)->discipline->survives);
		return;
	}
	if (r->cause == REJOIN_SILENT || r->cause == REJOIN_BACK)
		r->cause = m->incarnation != s->incarnation ? REJOIN_RESTARTED : REJOIN_FORGOTTEN;
	rejoin_close(s);
	declare_renew(w);
	homes_renew(s);
	if (m->incarnation != s->incarnation)
		carry_lost(w, s);
	carry_drop(w, s);
	s->rejoin.reporting = NULL;
	s->rejoin.unreported = NULL;
	flight_withdraw_all(s);
	queue_clear(s);
	if (m->incarnation != s->incarnation)
		norm_box_restarted(w);
	if (join_settle(&s->join) != 0 || pager_open(&r->pages, s) != 0) {
		text_fail(w, PBOX_C_MEMORY, "no memory to join the box again");
		return;
	}
	request_renew(s);
	w->count.restarts++;
	if (s->number == run || s->number == w->first_number)
		w->again = true;
	else if (s == worker_decider(w))
		w->again = false;
	for (uint32_t i = 0; i < w->tables; i++)
		w->table[i]->restoring |= 1u << s->index;
	phase_table(s, 0, PHASE_DECLARE);
	if (w->tables == 0)
		rejoin_finish(s);
}

/** The run that this worker asks for has ended, says another box than the one that decides. That one knows which run goes on: it says so,
 * or gives the number of another, or that the run has ended. */
static void
ask_first(struct session *s)
{
	struct pbox_error_msg refused = {.code = PBOX_E_RUN_ENDED};

	snprintf(refused.text, sizeof(refused.text), "%s", s->join.err.text);
	s->w->astray = true;
	rejoin_begin(s, REJOIN_FORGOTTEN);
	s->join.next_tx = s->w->now + FOLLOW_AGAIN;
	s->join.refused = refused;
}

/** It has missed SETs while it was out: it is to begin with nothing. */
static void
not_again(struct session *s)
{
	const struct spread *x = &s->w->homes.spread;

	if (x->next != NULL && x->decider == s->index) {
		text_fail(s->w, PBOX_C_LOST,
			"job '%s' has two maps: by map %u box %u decides, and by map %u it is out: two boxes were failed over by each other; start the job again from a checkpoint",
			s->w->job, x->out_epoch, s->index, s->w->homes.epoch);
		join_end(&s->join);
		return;
	}
	join_end(&s->join);
	join_begin(&s->join, s, s->w->worker);
	s->join.patient = true;
	s->join.next_tx = s->w->now + NS_PER_S;
	s->join.refused = (struct pbox_error_msg){.code = PBOX_E_RUNNING};
	snprintf(s->join.refused.text, sizeof(s->join.refused.text),
		"it was not started again since the job went on without it: start it again");
	s->rejoin.joining = true;
}

static void
join_ended(struct session *s)
{
	assert(s->join.done && s->rejoin.joining);
	s->rejoin.joining = false;
	if (s != worker_decider(s->w) && s->join.rc == PBOX_C_RUN_ENDED) {
		ask_first(s);
		return;
	}
	if (s->join.rc != 0)
		text_fail(s->w, s->join.err.code, "%s", s->join.err.text);
	else if (s->rejoin.cause == REJOIN_BACK && s->join.welcome.incarnation == s->incarnation) {
		not_again(s);
		return;
	} else if (!same_session(s, &s->join.welcome))
		begin_again(s);
	else /* the box has the session: REJOIN_SILENCE begins again */
		s->last_rx = s->w->now;
	join_end(&s->join);
}

/* ---- tables: DECLARE, MAP, SET ------------------------------------------------------------------ */

static void
tick_declare(struct session *s)
{
	struct rejoin *r = &s->rejoin;
	struct pbox_worker *w = s->w;
	const struct pbox_worker_table *t = w->table[r->table];
	struct page *p;

	if (!pager_declare(&r->pages, t, t->flags | PBOX_DECLARE_RESTORE, &p))
		return;
	if (p != NULL)
		page_refused(s, p, PBOX_DECLARED);
	else if (r->table + 1 < w->tables)
		phase_table(s, r->table + 1, PHASE_DECLARE);
	else
		phase_table(s, 0, PHASE_MAP);
}

static int
rejoin_map_page(void *ctx, const struct page *p, uint32_t *count)
{
	struct session *s = ctx;
	struct rejoin *r = &s->rejoin;

	return map_compare(s, s->w->table[r->table], &r->map, &p->request, count, &s->join.err);
}

static void
tick_map(struct session *s)
{
	struct rejoin *r = &s->rejoin;
	struct pbox_worker_table *t = s->w->table[r->table];
	struct page *p;
	int rc;

	assert((t->restoring >> s->index & 1) != 0);
	if (r->map.seen.got == NULL) {
		r->map.seen.got = calloc(t->chunks + 1, 1);
		if (r->map.seen.got == NULL) {
			text_fail(s->w, PBOX_C_MEMORY, "no memory to compare maps");
			return;
		}
	}
	if (!pager_map(&r->pages, t, &r->map.seen, rejoin_map_page, s, &rc, &p))
		return;
	if (p != NULL) {
		page_refused(s, p, PBOX_MAPPED);
	} else if (rc != 0) {
		text_fail(s->w, rc, "%s", s->join.err.text);
	} else {
		free(r->map.seen.got);
		r->map = (struct map_again){0};
		sets_compact(t);
		phase_table(s, r->table,
			s->w->boxes > 1 && !t->discipline->stays ? PHASE_HOMES : PHASE_SET);
	}
}

/** The box knows the chunks that it had at first: show it which it has. */
static void
tick_homes(struct session *s)
{
	struct spread *x = &s->rejoin.homes;
	struct pbox_worker_table *t = s->w->table[s->rejoin.table];

	assert(s->w->boxes > 1 && !t->discipline->stays && (t->restoring >> s->index & 1) != 0);
	if (x->next == NULL) {
		if (spread_begin(s->w, x, &s->w->table[s->rejoin.table], 1, PBOX_HOMES_RESTORE) !=
			0) {
			text_fail(s->w, PBOX_C_MEMORY, "no memory for another map");
			return;
		}
		spread_only(x, s, s->w->homes.epoch);
	}
	if (spread_step(s->w, x) != 0)
		return;
	for (uint32_t i = 0; i < t->chunks; i++) {
		struct chunk *k = &t->chunk[i];

		if (k->box != s->index)
			continue;
		k->endpoint = x->next[0][i].endpoint < s->endpoints ? x->next[0][i].endpoint : 0;
		lane_moved(s->w, k);
	}
	s->w->homes.again |= x->newer;
	phase_table(s, s->rejoin.table, PHASE_SET);
}

/** One after the other, as the box takes none that is earlier than the last of its group. */
static void
tick_set(struct session *s)
{
	struct pager *g = &s->rejoin.pages;
	struct pbox_worker_table *t = s->w->table[s->rejoin.table];
	struct page *p = pager_answered(g);
	struct pbox_error_msg m = {0};

	if (p != NULL && p->request.answer_type != PBOX_SET_OK) {
		if (pbox_error_decode(p->answer, p->request.answer_len, &m) != 0)
			m.code = p->request.answer_code;
		/* a box that was not restarted has it; or another worker has sent a later one */
		if (m.code != PBOX_E_SET_LATE && m.code != PBOX_E_SET_ORDER) {
			page_refused(s, p, PBOX_SET_OK);
			return;
		}
	}
	if (pager_busy(g) > 0)
		return;
	if (g->next < sets_count(t)) {
		p = pager_free(g);
		pager_send(
			g, p, PBOX_SET, pbox_set_encode(p->payload, g->cap, sets_at(t, g->next++)));
		return;
	}
	if (t->untold)
		return;
	phase_table(s, s->rejoin.table, PHASE_RESTORE);
	restore_begin(s, t);
}

static void
tick_restore(struct session *s)
{
	struct rejoin *r = &s->rejoin;

	if (s->rejoin.left > 0)
		return;
	assert(r->reporting == s->w->table[r->table]);
	s->rejoin.reporting = NULL;
	s->w->table[r->table]->restoring &= ~(1u << s->index);
	if (r->table + 1 < s->w->tables) {
		phase_table(s, r->table + 1, PHASE_MAP);
		queue_rebuild(s->w);
	} else {
		rejoin_finish(s);
	}
}

/** A new table that was declared with RESTORE: its host says what it holds of it, and then that is reported as after a restart of the box. */
static void
report_new(struct session *s)
{
	struct rejoin *r = &s->rejoin;
	uint32_t table = r->unreported->number;

	assert(!r->joining && r->phase == PHASE_NONE && table + 1 == s->w->tables);
	r->unreported = NULL;
	rejoin_close(s);
	if (pager_open(&r->pages, s) != 0) {
		text_fail(s->w, PBOX_C_MEMORY, "no memory to report table %u", table);
		return;
	}
	r->lost_ns = s->w->now;
	r->cause = REJOIN_FORGOTTEN;
	phase_table(s, table, PHASE_SET);
}

void
rejoin_tick(struct session *s)
{
	struct rejoin *r = &s->rejoin;
	const struct pbox_worker *w = s->w;

	if (!rejoin_possible(s))
		return;
	if (s->last_rx == 0)
		s->last_rx = w->now;
	if (!r->joining && w->now - s->last_rx > REJOIN_SILENCE &&
		w->now - lane_heard(s) > REJOIN_SILENCE)
		rejoin_begin(s, REJOIN_SILENT);
	if (r->joining && rejoin_waits(s))
		return;
	if (r->joining) {
		if (!s->join.done)
			join_tick(&s->join);
		if (s->join.done)
			join_ended(s);
		if (r->joining || w->failed)
			return;
	}
	assert(r->phase == PHASE_NONE || r->table < w->tables);
	if (!s->listed) /* boxes.c */
		return;
	if (r->unreported != NULL)
		report_new(s);
	if (r->phase == PHASE_DECLARE)
		tick_declare(s);
	if (r->phase == PHASE_MAP && !w->failed)
		tick_map(s);
	if (r->phase == PHASE_HOMES && !w->failed)
		tick_homes(s);
	if (r->phase == PHASE_SET && !w->failed)
		tick_set(s);
	if (r->phase == PHASE_RESTORE && !w->failed)
		tick_restore(s);
}

/* ---- a box that the job goes on without (R16.12) -------------------------------------------------- */

/** Nothing of the session is waited for any more; its chunks have moved, and what was on its way is withdrawn (homes.c). */
static void
retire(struct session *s)
{
	struct pbox_worker *w = s->w;

	assert(s != worker_decider(w) && s->out);
	if (s->rejoin.joining || s->phase == SESSION_JOINING)
		join_end(&s->join);
	s->rejoin.joining = false;
	rejoin_close(s);
	path_end(s);
	s->rejoin.phase = PHASE_NONE;
	s->rejoin.reporting = NULL;
	carry_lost(w, s);
	flight_withdraw_all(s);
	out_drop(s);
	if (w->declaring.d != NULL)
		declare_renew(w);
	request_retire(s);
	for (uint32_t i = 0; i < w->tables; i++)
		w->table[i]->restoring &= ~(1u << s->index);
	s->retired = true;
	queue_rebuild(w);
}

void
rejoin_turn(struct session *s)
{
	assert(s->out != s->retired);
	if (s->out) {
		retire(s);
		return;
	}
	s->retired = false;
	if (!rejoin_possible(s)) {
		text_fail(s->w, PBOX_C_LOST,
			"the box at %s is one of job '%s' again, and this worker keeps no copies to go on with it: open the client with keep_copies",
			s->name, s->w->job);
		return;
	}
	s->phase = SESSION_OPEN;
	s->last_rx = s->pinged_ns = s->w->now;
	rejoin_begin(s, REJOIN_BACK);
}

/* ---- in words --------------------------------------------------------------------------------- */

static void
why_joining(const struct session *s, char *text, size_t cap)
{
	const struct join *j = &s->join;

	if (j->refused.code == 0) {
		pbox_text_add(text, cap,
			", and does not answer yet: check that it is up ('ping' reaches it?)");
		out_why(s, text, cap);
	} else if (j->refused.text[0] != 0) {
		pbox_text_add(text, cap, ", and does not take this worker in: %s", j->refused.text);
	} else {
		pbox_text_add(text, cap, ", and does not take this worker in: %s",
			pbox_errcode_name(j->refused.code));
	}
}

/** Whom RESTORE waits for, from the oldest one that has been answered. */
static int
why_restore(const struct session *s, char *text, size_t cap)
{
	const struct rejoin *r = &s->rejoin;
	const struct flight *found = NULL;

	for (unsigned i = 0; i < s->endpoints; i++)
		for (const struct flight *fl = s->ep[i].first; fl != NULL; fl = fl->next)
			if (fl->type == PBOX_RESTORE && fl->waited &&
				(found == NULL || fl->first_ns < found->first_ns))
				found = fl;
	if (found == NULL || found->wait_missing >= s->w->workers) {
		pbox_text_add(text, cap,
			", and %u of the %u fragments of table %u are reported to it",
			table_frags_at(r->reporting, s->index) - r->left,
			table_frags_at(r->reporting, s->index), r->reporting->number);
		return -1;
	}
	pbox_text_add(text, cap, ", waiting for worker %u to report its version of tensor '%s'",
		found->wait_missing,
		r->reporting->tensor[r->reporting->piece[found->frag->piece].tensor].name);
	return (int)found->wait_missing;
}

bool
rejoin_why(const struct session *s, const struct pbox_worker_table *t, int *missing, char *text,
	size_t cap)
{
	static const char *const happened[] = {
		[REJOIN_SILENT] = "the box at %s has been silent for %.1f s",
		[REJOIN_RESTARTED] = "the box at %s was restarted %.1f s ago",
		[REJOIN_FORGOTTEN] = "the box at %s ended this worker's session %.1f s ago",
		[REJOIN_SHUTDOWN] = "the box at %s shut down %.1f s ago",
		[REJOIN_BACK] =
			"the box at %s, which was out, is one of the job's again since %.1f s ago",
	};
	const struct rejoin *r = &s->rejoin;

	*missing = -1;
	if (s->w->failed || s->out || !(rejoin_pauses(s) || r->phase != PHASE_NONE) ||
		(!r->joining && t != NULL && (t->restoring >> s->index & 1) == 0))
		return false;
	pbox_text_add(text, cap, happened[r->cause], s->name,
		(double)(s->w->now - r->lost_ns) / NS_PER_S);
	if (r->joining) {
		why_joining(s, text, cap);
	} else if (r->phase == PHASE_MAP && r->pages.waits &&
		   r->pages.wait.first_missing < s->w->workers) {
		*missing = r->pages.wait.first_missing;
		pbox_text_add(text, cap, ", waiting for worker %d to declare table %u again",
			*missing, r->table);
	} else if (r->phase == PHASE_SET && s->w->table[r->table]->untold) {
		pbox_text_add(text, cap, ", and table %u is not restored here yet", r->table);
	} else if (r->phase == PHASE_RESTORE && r->reporting != NULL) {
		*missing = why_restore(s, text, cap);
	} else {
		pbox_text_add(text, cap, ", and gets table %u again", r->table);
	}
	return true;
}
