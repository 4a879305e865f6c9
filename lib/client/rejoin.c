/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>
#include <stdlib.h>

#include "restart.h"

/*
 * A session that was lost, while the program goes on waiting (R10.1 to R10.4): join again with the same
 * nonce; if that brings another session, declare all tables again, and then for each of them in turn
 * compare the map, repeat the SETs that matter, and tell the box what we hold (restore.c). Operations
 * on a table go on as soon as that is done for it.
 */

#define SILENCE     (2 * NS_PER_S)
#define FIRST_PAUSE (2 * NS_PER_MS)
#define LAST_PAUSE  (50 * NS_PER_MS)

int
rejoin_open(struct pbox_client *c)
{
	c->rejoin = calloc(1, sizeof(*c->rejoin));
	return c->rejoin != NULL ? 0 : -1;
}

static void
room_free(struct rejoin *r)
{
	free(r->room);
	free(r->map.got);
	r->room = NULL;
	r->map = (struct map_again){0};
}

void
rejoin_close(struct pbox_client *c)
{
	if (c->rejoin != NULL) {
		room_free(c->rejoin);
		join_end(&c->rejoin->join);
	}
	free(c->rejoin);
	c->rejoin = NULL;
}

void
rejoin_begin(struct pbox_client *c, enum rejoin_cause cause)
{
	struct rejoin *r = c->rejoin;

	if (r->joining && r->cause != REJOIN_SILENT)
		return;
	if (!r->joining && r->stage == STAGE_NONE)
		r->lost_ns = c->now;
	if (r->joining) { /* we had a suspicion, now we know: ask at once */
		r->join.next_tx = c->now;
	} else {
		join_begin(&r->join, c, c->nonce, c->worker, &r->err);
		r->join.patient = true;
	}
	r->cause = cause;
	r->joining = true;
}

/* ---- what others ask ------------------------------------------------------------------------ */

bool
rejoin_pauses(const struct pbox_client *c)
{
	/* a box that is only silent may answer what was sent to it */
	return c->rejoin->joining && c->rejoin->cause != REJOIN_SILENT;
}

bool
rejoin_restoring(const struct pbox_client *c)
{
	return c->rejoin->stage != STAGE_NONE;
}

bool
rejoin_admits(const struct pbox_client *c, const struct request *q)
{
	if (q->type == PBOX_LEAVE)
		return true;
	if (rejoin_pauses(c))
		return false;
	return q->own || q->type == PBOX_STATUS || c->rejoin->stage == STAGE_NONE;
}

void
rejoin_heard(struct pbox_client *c)
{
	struct rejoin *r = c->rejoin;

	if (r->joining && r->cause == REJOIN_SILENT)
		r->joining = false;
}

bool
rejoin_frame(struct pbox_client *c, const struct rx_frame *f)
{
	struct rejoin *r = c->rejoin;
	uint8_t type = f->hdr.type;

	if (!r->joining || !join_asked(&r->join, f->hdr.chunk) ||
		(type != PBOX_RETRY && type != PBOX_WELCOME &&
			(type != PBOX_ERROR || f->hdr.length == 0)))
		return false;
	join_frame(&r->join, f);
	return true;
}

uint64_t
rejoin_due(const struct pbox_client *c)
{
	const struct rejoin *r = c->rejoin;

	if (r->joining)
		return r->join.done ? 0 : r->join.next_tx;
	if (r->stage == STAGE_MAP && r->stride == 0 && !r->page[0].busy)
		return r->ask_ns;
	return UINT64_MAX;
}

/* ---- pages -------------------------------------------------------------------------------- */

static int
room_make(struct pbox_client *c)
{
	struct rejoin *r = c->rejoin;

	r->cap = c->mtu - PBOX_MTU_OVERHEAD;
	r->room = malloc(2 * REJOIN_PAGES * r->cap);
	if (r->room == NULL)
		return -1;
	for (unsigned i = 0; i < REJOIN_PAGES; i++) {
		r->page[i].payload = r->room + 2 * i * r->cap;
		r->page[i].answer = r->page[i].payload + r->cap;
	}
	return 0;
}

static void
pages_drop(struct pbox_client *c)
{
	for (unsigned i = 0; i < REJOIN_PAGES; i++) {
		if (c->rejoin->page[i].busy)
			request_drop(c, &c->rejoin->page[i].request);
		c->rejoin->page[i].busy = false;
	}
}

static struct rejoin_page *
page_free(struct rejoin *r)
{
	for (unsigned i = 0; i < REJOIN_PAGES; i++)
		if (!r->page[i].busy)
			return &r->page[i];
	return NULL;
}

static unsigned
pages_busy(const struct rejoin *r)
{
	unsigned n = 0;

	for (unsigned i = 0; i < REJOIN_PAGES; i++)
		n += r->page[i].busy;
	return n;
}

static void
page_send(struct pbox_client *c, struct rejoin_page *p, uint8_t type, size_t length)
{
	p->busy = true;
	request_begin(c, &p->request, type, p->payload, length, p->answer, c->rejoin->cap);
}

/** A page that was answered, no longer busy; NULL: none. */
static struct rejoin_page *
page_answered(struct rejoin *r)
{
	for (unsigned i = 0; i < REJOIN_PAGES; i++)
		if (r->page[i].busy && !r->page[i].request.listed) {
			r->page[i].busy = false;
			return &r->page[i];
		}
	return NULL;
}

/** Not the answer that was asked for: the end. */
static void
page_refused(struct pbox_client *c, const struct rejoin_page *p, uint8_t want)
{
	struct pbox_client_error err = {.code = PBOX_C_REFUSED};

	request_result(c, &p->request, want, "after a restart of the box", &err);
	session_fail(c, err.code, "%s", err.text);
}

/* ---- a new session ---------------------------------------------------------------------------- */

static bool
same_session(const struct pbox_client *c, const struct pbox_welcome *w)
{
	return w->token == c->token && w->incarnation == c->incarnation &&
	       w->job == c->job_number && w->worker == c->worker && w->endpoints == c->endpoints;
}

static void
finish(struct pbox_client *c)
{
	struct rejoin *r = c->rejoin;

	r->stage = STAGE_NONE;
	restore_end(c);
	room_free(r);
	queue_rebuild(c);
	c->count.restore_ms = (c->now - r->lost_ns) / NS_PER_MS;
}

static void
begin_anew(struct pbox_client *c)
{
	struct rejoin *r = c->rejoin;
	const struct pbox_welcome *w = &r->join.welcome;

	if (w->worker != c->worker || w->workers != c->workers) {
		session_fail(c, PBOX_C_REFUSED,
			"the box at %s came back and made worker %u of %u of this one, which is %u "
			"of %u",
			c->box_name, w->worker, w->workers, c->worker, c->workers);
		return;
	}
	if (r->join.number != 0 && w->number != c->number) {
		session_fail(c, PBOX_C_RUN_ENDED,
			"the box at %s has another run of job '%s' now (%llu, this worker's is "
			"%llu)",
			c->box_name, c->job, (unsigned long long)w->number,
			(unsigned long long)c->number);
		return;
	}
	if (r->cause == REJOIN_SILENT)
		r->cause = w->incarnation != c->incarnation ? REJOIN_RESTARTED : REJOIN_FORGOTTEN;
	pages_drop(c);
	room_free(r);
	restore_end(c);
	transfer_withdraw_all(c);
	queue_clear(c);
	if (join_settle(c, &r->join, &r->err) != 0 || room_make(c) != 0) {
		session_fail(c, PBOX_C_MEMORY, "no memory to join the box again");
		return;
	}
	control_renewed(c);
	c->count.restarts++;
	for (uint32_t i = 0; i < c->tables; i++)
		c->table[i]->restoring = true;
	r->stage = STAGE_DECLARE;
	r->table = r->next = 0;
	r->waits = false;
	if (c->tables == 0)
		finish(c);
}

static void
join_ended(struct pbox_client *c)
{
	struct rejoin *r = c->rejoin;

	r->joining = false;
	if (r->join.rc != 0)
		session_fail(c, r->err.code, "%s", r->err.text);
	else if (!same_session(c, &r->join.welcome))
		begin_anew(c);
	else /* it is there, only what was sent has no answer: no need to ask that at once again */
		c->last_rx = c->now;
	join_end(&r->join);
}

/* ---- tables: DECLARE, MAP, SET ------------------------------------------------------------------ */

static void
stage_table(struct pbox_client *c, uint32_t table, enum rejoin_stage stage)
{
	struct rejoin *r = c->rejoin;

	r->stage = stage;
	r->table = table;
	r->next = 0;
	r->stride = 0;
	r->ask_ns = 0;
	r->pause = FIRST_PAUSE;
	r->waits = false;
}

static void
tick_declare(struct pbox_client *c)
{
	struct rejoin *r = c->rejoin;
	const struct table *t = c->table[r->table];
	struct rejoin_page *p;

	while ((p = page_answered(r)) != NULL)
		if (p->request.answer_type != PBOX_DECLARED) {
			page_refused(c, p, PBOX_DECLARED);
			return;
		}
	/* next: one more than tensors told, so that a table without any is told as well */
	while ((r->next == 0 || r->next <= t->n) && (p = page_free(r)) != NULL) {
		unsigned first = r->next > 0 ? r->next - 1 : 0;
		size_t length;

		r->next = 1 + first +
			  page_declare(t, t->flags | PBOX_DECLARE_RESTORE, first, p->payload,
				  r->cap, &length);
		page_send(c, p, PBOX_DECLARE, length);
	}
	if (r->next > t->n && pages_busy(r) == 0) {
		if (r->table + 1 < c->tables)
			stage_table(c, r->table + 1, STAGE_DECLARE);
		else
			stage_table(c, 0, STAGE_MAP);
	}
}

static void
map_ask(struct pbox_client *c, struct rejoin_page *p, uint32_t first)
{
	struct pbox_map m = {c->rejoin->table, first};

	p->first = first;
	page_send(c, p, PBOX_MAP, pbox_map_encode(p->payload, c->rejoin->cap, &m));
}

static void
map_answer(struct pbox_client *c, const struct rejoin_page *p)
{
	struct rejoin *r = c->rejoin;
	uint32_t count = 0;
	int rc;

	if (p->request.answer_type == PBOX_NOT_READY) {
		r->waits = pbox_not_ready_decode(p->answer, p->request.answer_len, &r->wait) == 0;
		r->ask_ns = c->now + r->pause;
		r->pause = r->pause * 2 < LAST_PAUSE ? r->pause * 2 : LAST_PAUSE;
		return;
	}
	if (p->request.answer_type != PBOX_MAPPED) {
		page_refused(c, p, PBOX_MAPPED);
		return;
	}
	rc = page_compare(c, c->table[r->table], &r->map, &p->request, &count, &r->err);
	if (rc != 0)
		session_fail(c, rc, "%s", r->err.text);
	else if (r->stride == 0)
		r->stride = r->next = count > 0 ? count : 1;
}

static void
tick_map(struct pbox_client *c)
{
	struct rejoin *r = c->rejoin;
	const struct table *t = c->table[r->table];
	struct rejoin_page *p;

	if (r->map.got == NULL) {
		r->map.got = calloc(t->chunks + 1, 1);
		if (r->map.got == NULL) {
			session_fail(c, PBOX_C_MEMORY, "no memory to compare maps");
			return;
		}
	}
	while (!c->failed && (p = page_answered(r)) != NULL)
		map_answer(c, p);
	if (c->failed)
		return;
	if (r->stride == 0) { /* one page, until the box has its map */
		if (!r->page[0].busy && c->now >= r->ask_ns)
			map_ask(c, &r->page[0], 0);
		return;
	}
	while (r->map.n_got < t->chunks && (p = page_free(r)) != NULL) {
		while (r->next < t->chunks && r->map.got[r->next])
			r->next++;
		if (r->next >= t->chunks) {
			if (pages_busy(r) > 0)
				break;
			r->next = 0; /* pages held fewer than the first one: ask for the gaps */
			continue;
		}
		map_ask(c, p, r->next);
		r->next += r->stride;
	}
	if (r->map.n_got < t->chunks)
		return;
	pages_drop(c);
	free(r->map.got);
	r->map = (struct map_again){0};
	sets_compact(c->table[r->table]);
	stage_table(c, r->table, STAGE_SET);
}

/** One after the other: the box takes none that is earlier than the last of its group. */
static void
tick_set(struct pbox_client *c)
{
	struct rejoin *r = c->rejoin;
	struct table *t = c->table[r->table];
	unsigned n = sets_count(t);
	struct rejoin_page *p = page_answered(r);
	struct pbox_error_msg m = {0};

	if (p != NULL && p->request.answer_type != PBOX_SET_OK) {
		if (pbox_error_decode(p->answer, p->request.answer_len, &m) != 0)
			m.code = p->request.answer_aux;
		/* a box that was not restarted has it; another worker has told what holds later */
		if (m.code != PBOX_E_SET_LATE && m.code != PBOX_E_SET_ORDER) {
			page_refused(c, p, PBOX_SET_OK);
			return;
		}
	}
	if (pages_busy(r) > 0)
		return;
	if (r->next < n) {
		p = page_free(r);
		page_send(
			c, p, PBOX_SET, pbox_set_encode(p->payload, r->cap, sets_at(t, r->next++)));
		return;
	}
	stage_table(c, r->table, STAGE_RESTORE);
	restore_begin(c, t);
}

static void
tick_restore(struct pbox_client *c)
{
	struct rejoin *r = c->rejoin;

	if (!restore_done(c))
		return;
	restore_end(c);
	c->table[r->table]->restoring = false;
	if (r->table + 1 < c->tables) {
		stage_table(c, r->table + 1, STAGE_MAP);
		queue_rebuild(c);
	} else {
		finish(c);
	}
}

void
rejoin_tick(struct pbox_client *c)
{
	struct rejoin *r = c->rejoin;

	if (!rejoin_possible(c))
		return;
	if (c->last_rx == 0)
		c->last_rx = c->now;
	if (!r->joining && c->now - c->last_rx > SILENCE)
		rejoin_begin(c, REJOIN_SILENT);
	if (r->joining) {
		if (!r->join.done)
			join_tick(&r->join, c->now);
		if (r->join.done)
			join_ended(c);
		if (r->joining || c->failed)
			return;
	}
	if (r->stage == STAGE_DECLARE)
		tick_declare(c);
	if (r->stage == STAGE_MAP && !c->failed)
		tick_map(c);
	if (r->stage == STAGE_SET && !c->failed)
		tick_set(c);
	if (r->stage == STAGE_RESTORE && !c->failed)
		tick_restore(c);
}

/* ---- in words --------------------------------------------------------------------------------- */

static void
why_joining(const struct pbox_client *c, char *text, size_t cap)
{
	const struct join *j = &c->rejoin->join;

	if (j->refused.code == 0)
		text_add(text, cap,
			", and does not answer yet: check that it is up ('ping' reaches it?)");
	else if (j->refused.text[0] != 0)
		text_add(text, cap, ", and does not take this worker in: %s", j->refused.text);
	else
		text_add(text, cap, ", and does not take this worker in: %s",
			pbox_errcode_name(j->refused.code));
}

/** Whom RESTORE waits for, from the oldest one that has been answered. */
static int
why_restore(const struct pbox_client *c, char *text, size_t cap)
{
	const struct rejoin *r = c->rejoin;
	const struct flight *found = NULL;

	for (unsigned i = 0; i < c->endpoints; i++)
		for (const struct flight *fl = c->ep[i].first; fl != NULL; fl = fl->next)
			if (fl->type == PBOX_RESTORE && fl->waited &&
				(found == NULL || fl->first_ns < found->first_ns))
				found = fl;
	if (found == NULL || found->wait_missing >= c->workers) {
		text_add(text, cap, ", and has been told %u of the %u fragments of table %u",
			r->told->frags - r->left, r->told->frags, r->told->number);
		return -1;
	}
	text_add(text, cap, ", waiting for worker %u to tell what it holds of tensor '%s'",
		found->wait_missing,
		r->told->tensor[r->told->piece[found->frag->piece].tensor].name);
	return (int)found->wait_missing;
}

bool
rejoin_why(const struct pbox_client *c, const struct table *t, int *missing, char *text, size_t cap)
{
	static const char *const happened[] = {
		[REJOIN_SILENT] = "the box at %s has been silent for %.1f s",
		[REJOIN_RESTARTED] = "the box at %s was restarted %.1f s ago",
		[REJOIN_FORGOTTEN] = "the box at %s ended this worker's session %.1f s ago",
		[REJOIN_SHUTDOWN] = "the box at %s shut down %.1f s ago",
	};
	const struct rejoin *r = c->rejoin;

	*missing = -1;
	if (c->failed || !(rejoin_pauses(c) || r->stage != STAGE_NONE) ||
		(!r->joining && t != NULL && !t->restoring))
		return false;
	text_add(text, cap, happened[r->cause], c->box_name,
		(double)(c->now - r->lost_ns) / NS_PER_S);
	if (r->joining) {
		why_joining(c, text, cap);
	} else if (r->stage == STAGE_MAP && r->waits && r->wait.first_missing < c->workers) {
		*missing = r->wait.first_missing;
		text_add(text, cap, ", waiting for worker %d to declare table %u again", *missing,
			r->table);
	} else if (r->stage == STAGE_RESTORE && r->told != NULL) {
		*missing = why_restore(c, text, cap);
	} else {
		text_add(text, cap, ", and is being told of table %u", r->table);
	}
	return true;
}

struct text_cmd {
	struct cmd cmd;
	char *text;
	size_t cap;
	int missing;
};

static void
text_run(struct pbox_client *c, struct cmd *cmd)
{
	struct text_cmd *t = (struct text_cmd *)cmd;

	rejoin_why(c, NULL, &t->missing, t->text, t->cap);
}

void
rejoin_text(struct pbox_client *c, char *text, size_t cap)
{
	struct text_cmd t = {.cmd = {.run = text_run}, .text = text, .cap = cap};

	text[0] = 0;
	cmd_call(c, &t.cmd);
	if (t.missing >= 0)
		why_member(c, (unsigned)t.missing, text, cap);
}
