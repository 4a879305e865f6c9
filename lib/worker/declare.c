/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>
#include <stdlib.h>

#include <pbox_pairs.h>

#include "worker_impl.h"

/* A table is declared: DECLARE, MAP, and what it needs in memory (section 5 of the protocol). */

#define FIRST_AGAIN (50 * NS_PER_MS) /* after RUNNING */
#define LAST_AGAIN  NS_PER_S

static void
map_free(struct table_map *m)
{
	free(m->segment);
	free(m->first);
	free(m->count);
	free(m->seen.got);
	*m = (struct table_map){0};
}

/** Free what this attempt has. */
static void
declare_drop(struct declaring *g)
{
	if (g->pages.s != NULL)
		pager_close(&g->pages);
	map_free(&g->map);
	free(g->agreed.got);
	g->agreed = (struct map_seen){0};
	spread_end(&g->homes);
	table_free(g->t);
	g->t = NULL;
	g->mapping = false;
	g->box = 0;
}

static void
end(struct declaring *g, enum pbox_worker_declare_state state)
{
	g->d->state = state;
	g->d = NULL;
	if (state == PBOX_WORKER_DECLARED)
		g->t = NULL;
	declare_drop(g);
}

void
declare_free(struct pbox_worker *w)
{
	declare_drop(&w->declaring);
}

void
declare_fail(struct pbox_worker *w, int code, const char *text)
{
	struct declaring *g = &w->declaring;

	if (g->d == NULL)
		return;
	pbox_client_fail(&g->d->err, code, "%s", text);
	end(g, PBOX_WORKER_REFUSED);
}

void
declare_renew(struct pbox_worker *w)
{
	if (w->declaring.d != NULL)
		w->declaring.d->running_ns = 0;
	declare_drop(&w->declaring);
}

/**
 * May it go on in a run that has begun (R12.6)? A worker that names its round may, and one that has had the map. Under policy
 * shrink workers of the run come and go. Else it is not enough to be of the run: a worker that was started again alone
 * has lost what the others have, and its gradients would be those of another model.
 */
static bool
goes_on(const struct session *s, const struct declaring *g)
{
	const struct pbox_worker *w = s->w;

	return w->goes_on || (w->has_run && w->conf.policy != 0) ||
	       (g->mapped != 0 && g->mapped == s->number);
}

/* By enum pbox_discipline. */
static const struct worker_discipline *const discipline_of[] = {
	[PBOX_DISCIPLINE_ROUNDS] = &worker_rounds,
	[PBOX_DISCIPLINE_CLOCK] = &worker_clock,
};

/** What a table in clocks whose pushes are in such a format cannot be (R14.14): they are made where they are kept. */
static int
declare_check_update(const struct pbox_worker *w, const struct pbox_client_table *what,
	bool own_data, struct pbox_client_error *err)
{
	const char *format = pbox_format_name(what->push_format);

	if (own_data)
		return pbox_client_fail(err, PBOX_C_INVALID,
			"table %u: push format %s in clocks: this program makes frames itself, and keeps no pushes; use fp32, bf16 or fp16",
			w->tables, format);
	if (!w->conf.keep_copies)
		return pbox_client_fail(err, PBOX_C_INVALID,
			"table %u: push format %s in clocks needs keep_copies: what was sent is kept there",
			w->tables, format);
	if (w->workers > PBOX_CLOCK_VECTOR)
		return pbox_client_fail(err, PBOX_C_INVALID,
			"table %u: push format %s in clocks in a job of %u workers: %u at most, as nobody keeps what was pushed in larger ones; push fp32, bf16 or fp16",
			w->tables, format, w->workers, PBOX_CLOCK_VECTOR);
	return 0;
}

/** What a table in a format of blocks cannot be (R13.6 to R13.8). */
static int
declare_check_block(const struct session *s, const struct pbox_client_table *what, bool own_data,
	struct pbox_client_error *err)
{
	const struct pbox_worker *w = s->w;
	bool down = pbox_format_is_block(what->pull_format);
	const char *format = pbox_format_name(down ? what->pull_format : what->push_format);

	if (what->discipline == PBOX_DISCIPLINE_CLOCK)
		return declare_check_update(w, what, own_data, err);
	if (own_data && what->mode == PBOX_MODE_OPTIMISER)
		return pbox_client_fail(err, PBOX_C_INVALID,
			"table %u: format %s with an optimiser on the box: this program makes frames itself, and has no copies that differences could be added to, and no residual; use fp32, bf16 or fp16",
			w->tables, format);
	if (!w->conf.keep_copies)
		return pbox_client_fail(err, PBOX_C_INVALID,
			"table %u: format %s needs keep_copies: results are decoded into the copies, and what was pushed is kept beside them",
			w->tables, format);
	if (w->conf.slots != 0 && what->op == PBOX_OP_WEIGHTED_MEAN)
		return pbox_client_fail(err, PBOX_C_INVALID,
			"table %u: push format %s with op weighted_mean in a job with slots, of which nodes are one slot each: push sums over samples, with op sample_mean",
			w->tables, format);
	return 0;
}

/** What it cannot be in this job (doc/modes.md), by what this worker has asked for; the box knows the job's. */
static int
declare_check_pairs(const struct pbox_worker *w, const struct pbox_client_table *what,
	struct pbox_client_error *err)
{
	char name[32];

	snprintf(name, sizeof(name), "table %u", w->tables);
	return check_pairs(what,
		(w->conf.slots != 0 ? PBOX_USES_SLOTS : 0) | (w->planned ? PBOX_USES_PLAN : 0) |
			(w->boxes > 1 ? PBOX_USES_BOXES : 0),
		name, err);
}

/** The box that is asked; of a new attempt the first one. */
static unsigned
declare_box(const struct pbox_worker *w, const struct declaring *g)
{
	return g->t == NULL ? worker_first_box(w) : g->box;
}

/** What a table whose chunks stay cannot be, once chunks of its job have moved, or a box is out (R16.15, R6.15). */
static int
declare_check_stays(const struct pbox_worker *w, bool hold, struct pbox_client_error *err)
{
	if (w->homes.seen == HOMES_FIRST && w->homes.epoch == HOMES_FIRST && w->homes.out == 0)
		return 0;
	return pbox_client_fail(err, PBOX_C_INVALID,
		"table %u is in %s, and chunks of job '%s' have moved (map %u), or a box is out: declare it before, or start the job again",
		w->tables, hold ? "two phases (max_norm, skip_nonfinite)" : "clocks", w->job,
		w->homes.seen);
}

/** Has the box all that the table needs (R4.10)? */
static int
declare_check(const struct session *s, const struct pbox_client_table *what, bool own_data,
	struct pbox_client_error *err)
{
	const struct worker_discipline *discipline = discipline_of[what->discipline];
	bool block =
		pbox_format_is_block(what->push_format) || pbox_format_is_block(what->pull_format);
	uint32_t lacks = (discipline->needs | (block ? 1u << PBOX_CAN_BLOCK : 0) |
				 (what->hold ? 1u << PBOX_CAN_NORM : 0)) &
			 ~s->can;
	int rc = 0;

	if (lacks == 0)
		rc = declare_check_pairs(s->w, what, err);
	if (rc == 0 && lacks == 0 && (discipline->stays || what->hold) && s->w->boxes > 1)
		rc = declare_check_stays(s->w, what->hold != 0, err);
	if (rc != 0)
		return rc;
	if (lacks == 0)
		return block ? declare_check_block(s, what, own_data, err) : 0;
	return pbox_client_fail(err, PBOX_C_VERSION,
		"table %u: the box at %s does not know %s: install the release of this worker's library there",
		s->w->tables, s->name, pbox_capability_name((unsigned)__builtin_ctz(lacks)));
}

static int
declare_begin(struct session *s, struct declaring *g)
{
	struct pbox_worker *w = s->w;
	const struct pbox_client_table *what = g->d->what;
	const struct worker_discipline *discipline = discipline_of[what->discipline];
	int rc = declare_check(s, what, g->d->own_data, &g->d->err);

	if (rc != 0)
		return rc;
	if ((g->d->own_data || g->d->restores) && w->boxes > 1)
		return pbox_client_fail(&g->d->err, PBOX_C_INVALID,
			"job '%s' is at %u boxes, and this program knows jobs at one box alone: remove 'boxes' from the configuration of the box",
			w->job, w->boxes);
	g->d->waits = g->d->asks_map = false;
	g->first = g->box = s->index;
	g->t = w->tables < MAX_TABLES ? table_new(what, w->tables, discipline) : NULL;
	if (g->t == NULL || pager_open(&g->pages, s) != 0)
		return pbox_client_fail(&g->d->err, PBOX_C_MEMORY,
			"no memory for table %u of %u tensors", w->tables, what->n);
	if (discipline->vector != NULL)
		g->t->vector = (uint16_t)discipline->vector(w->workers);
	w->goes_on |= what->first_round != 0; /* and so in its tables after this one */
	/* others push to a table in clocks without it: a box that has been started again meanwhile has such pushes */
	if (goes_on(s, g) || (discipline->vector != NULL && w->again))
		g->t->flags = PBOX_DECLARE_CONTINUE;
	if (what->hold)
		g->t->flags |= PBOX_DECLARE_HOLD;
	if (g->t->block != 0 &&
		(what->mixed || w->planned)) /* slots that are got within a round go in fp32 */
		g->t->flags |= PBOX_DECLARE_MIXED;
	g->t->own_rounds = g->d->own_rounds;
	if (g->d->restores)
		g->t->flags |= PBOX_DECLARE_RESTORE;
	return 0;
}

/** Its data is this worker's. */
static int
declare_keep(struct session *s, struct pbox_worker_table *t, struct pbox_client_error *err)
{
	struct pbox_worker *w = s->w;
	bool full = false;
	int rc = 0;

	if (w->conf.keep_copies && w->workers <= t->discipline->survives &&
		(retained_open(t) != 0 || encode_open(w, t) != 0 ||
			(t->vector > 0 && redo_open(t) != 0)))
		rc = pbox_client_fail(err, PBOX_C_MEMORY,
			"no memory for a copy of table %u (keep_copies)", t->number);
	for (unsigned b = 0; b < w->boxes && t->discipline->lanes > 1; b++)
		full |= queue_open_pulls(w->box[b]) != 0;
	if (rc == 0 && (full || chunks_add_table(w, t) != 0))
		rc = pbox_client_fail(err, PBOX_C_MEMORY, "no memory for table %u", t->number);
	return rc;
}

/** Its map is here. */
static int
declare_finish(struct session *s, struct declaring *g)
{
	struct pbox_client_error *err = &g->d->err;
	int rc;

	if (s->w->boxes > 1 && !g->t->discipline->stays) {
		/* by another map, or while another is shown for the tables before it: homes.c asks again */
		s->w->homes.again |= s->w->tables > 0 && (g->homes.epoch != s->w->homes.epoch ||
								 s->w->homes.spread.next != NULL);
		if (s->w->tables == 0) {
			s->w->homes.epoch = g->homes.epoch;
			out_set(s->w, g->homes.out, g->homes.decider);
		}
		spread_end(&g->homes);
	}
	rc = table_layout(g->t, &g->map, (uint32_t)g->pages.cap, err);
	for (uint32_t i = 0; rc == 0 && i < g->t->frags; i++)
		carry_is_home(s->w, g->t, &g->t->frag[i]);
	if (rc == 0)
		rc = g->t->discipline->begin(s, g->t, g->d->what->first_round, err);
	if (rc == 0)
		next_begin(g->t);
	if (rc == 0 && !g->d->own_data)
		rc = declare_keep(s, g->t, err);
	if (rc == 0 && g->d->restores && !g->d->own_data) { /* rejoin.c reports it */
		g->t->untold = true;
		g->t->restoring |= 1u << s->index;
		s->rejoin.unreported = g->t;
	}
	if (rc == 0)
		g->d->table = g->t;
	return rc;
}

/** The box refused a page. A run that has begun without this worker may be that of dead ones, and then ends soon
 * (R12.7): 0, it asks again. */
static int
declare_refused(struct session *s, struct declaring *g, const struct page *p)
{
	struct pbox_client_error *err = &g->d->err;
	const char *at = s->w->boxes > 1 ? " at " : "", *box = s->w->boxes > 1 ? s->name : "";
	char what[80];
	int rc;

	snprintf(what, sizeof(what), "%s%s%s", g->mapping ? "mapping" : "declaring", at, box);
	rc = pbox_worker_result(
		&p->request, g->mapping ? PBOX_MAPPED : PBOX_DECLARED, what, &s->w->fatal, err);
	if (rc != PBOX_C_RUNNING)
		return rc;
	g->d->running = *err;
	if (g->d->running_ns == 0)
		g->d->running_ns = s->w->now;
	g->again_ns = s->w->now + g->again;
	g->again = g->again * 2 < LAST_AGAIN ? g->again * 2 : LAST_AGAIN;
	declare_drop(g);
	return 0;
}

static int
declare_map_page(void *ctx, const struct page *p, uint32_t *count)
{
	struct declaring *g = ctx;

	if (g->box != g->first)
		return map_agree(
			g->pages.s, g->t, &g->map, &g->agreed, &p->request, count, &g->d->err);
	return map_take(g->pages.s, g->t, &g->map, &p->request, count, &g->d->err);
}

static void
declaring_progress(struct declaring *g)
{
	struct pbox_worker_declaration *d = g->d;
	const struct pbox_not_ready *m = &g->pages.wait;

	d->waits = g->pages.waits;
	if (!d->waits)
		return;
	d->wait_ns = g->pages.wait_ns;
	d->joined = m->joined;
	d->expected = m->expected;
	d->declared = m->declared;
	d->first_missing = m->first_missing;
	snprintf(d->box_says, sizeof(d->box_says), "%s", m->text);
	pbox_text_tame(d->box_says);
}

/** Go on with another box, once its session is there; 1, or a failure. */
static int
declare_at(struct pbox_worker *w, struct declaring *g, unsigned box)
{
	pager_close(&g->pages);
	free(g->agreed.got);
	g->agreed = (struct map_seen){0};
	if (g->mapping && box != g->first)
		g->agreed.got = calloc(g->t->chunks + 1, 1);
	if (g->mapping && box != g->first && g->agreed.got == NULL)
		return pbox_client_fail(&g->d->err, PBOX_C_MEMORY,
			"no memory for table %u of %u tensors", w->tables, g->t->n);
	g->box = box;
	return 1;
}

/** Which box has which chunk now (R16.9); 1: there is more to do. */
static int
declare_homes(struct session *s, struct declaring *g)
{
	struct spread *x = &g->homes;
	bool moved = false;
	int rc;

	if (x->next == NULL && spread_begin(s->w, x, &g->t, 1, 0) != 0)
		return pbox_client_fail(&g->d->err, PBOX_C_MEMORY, "no memory for the map");
	rc = spread_step(s->w, x);
	for (uint32_t i = 0; i < g->t->chunks; i++)
		moved |= x->next != NULL && x->next[0][i].epoch != g->t->chunk[i].epoch;
	if (rc < 0) {
		g->d->err = s->w->fatal;
		return rc;
	}
	/* nothing has: no box has to hear it */
	if (rc > 0 && (x->phase == SPREAD_ASK || moved))
		return 1;
	if (x->changed || x->newer || spread_is_out(x)) {
		spread_again(x);
		x->again_ns = s->w->now + (moved ? 0 : SPREAD_OUT_AGAIN);
		return 1;
	}
	for (uint32_t i = 0; i < g->t->chunks; i++) {
		struct chunk *k = &g->t->chunk[i];
		const struct pbox_home *n = &x->next[0][i];

		/* MAPPED of a box that was started again may have come before the version of a chunk that has not moved */
		k->version = n->version;
		if (n->epoch == k->epoch)
			continue;
		if (n->box >= s->w->boxes || n->endpoint >= s->w->box[n->box]->endpoints)
			return pbox_client_fail(&g->d->err, PBOX_C_REFUSED,
				"the map of table %u is not sound: chunk %u at endpoint %u of box %u",
				g->t->number, i, n->endpoint, n->box);
		k->box = n->box;
		k->endpoint = n->endpoint;
		k->epoch = n->epoch;
	}
	return 0;
}

/**
 * At a box that was started again tables before this one come first. DECLARE goes as soon as they are declared there: other workers may
 * have this table already, and have to show the box, which waits for this declaration, where its chunks are before they report any.
 * While the box that decides is joined again nothing goes on at the others: who joined as one without a table must not have one when it is there,
 * as it would restore it in a run that began with it.
 */
static bool
declare_waits(const struct session *s, const struct declaring *g)
{
	return rejoin_pauses(worker_decider(s->w)) || rejoin_pauses(s) ||
	       (rejoin_restoring(s) && (g->mapping || rejoin_declares(s)));
}

/** DECLARE at all boxes, then MAP; 1: there is more to do. */
static int
proceed(struct session *s, struct declaring *g)
{
	struct page *p;
	int rc = 0;

	if (!g->mapping) {
		if (!pager_declare(&g->pages, g->t, g->t->flags, &p))
			return 1;
		if (p != NULL)
			return declare_refused(s, g, p);
		if (worker_next_box(s->w, g->box) < s->w->boxes)
			return declare_at(s->w, g, worker_next_box(s->w, g->box));
		g->d->running.code = 0;
		g->d->running_ns = 0;
		g->mapping = g->d->asks_map = true;
		/* a box may have given it, and its session may end before the others have */
		g->mapped = s->number;
		if (g->box != g->first)
			return declare_at(s->w, g, g->first);
		pager_reset(&g->pages);
		if (declare_waits(s, g))
			return 1;
	}
	if (!pager_map(&g->pages, g->t, g->box != g->first ? &g->agreed : &g->map.seen,
		    declare_map_page, g, &rc, &p)) {
		declaring_progress(g);
		return 1;
	}
	if (p != NULL)
		return declare_refused(s, g, p);
	if (rc == 0 && worker_next_box(s->w, g->box) < s->w->boxes)
		return declare_at(s->w, g, worker_next_box(s->w, g->box));
	if (rc == 0 && g->homes.next == NULL && g->t->discipline->alike != NULL)
		rc = g->t->discipline->alike(s, g->t, g->d->what->first_round, &g->d->err);
	if (rc == 0 && s->w->boxes > 1 && !g->t->discipline->stays)
		rc = declare_homes(s, g);
	return rc != 0 ? rc : declare_finish(s, g);
}

void
declare_tick(struct session *s)
{
	struct declaring *g = &s->w->declaring;
	int rc = 0;

	if (g->d == NULL || s->index != declare_box(s->w, g) || declare_waits(s, g) ||
		s->w->now < g->again_ns)
		return;
	if (g->t == NULL)
		rc = declare_begin(s, g);
	if (rc == 0 && g->pages.s == NULL && pager_open(&g->pages, s) != 0)
		rc = pbox_client_fail(&g->d->err, PBOX_C_MEMORY,
			"no memory for table %u of %u tensors", s->w->tables, g->t->n);
	if (rc == 0)
		rc = proceed(s, g);
	if (rc < 0)
		end(g, PBOX_WORKER_REFUSED);
	else if (rc == 0 && g->t != NULL)
		end(g, PBOX_WORKER_DECLARED);
}

uint64_t
declare_due(const struct session *s)
{
	const struct declaring *g = &s->w->declaring;

	if (g->d == NULL || s->index != declare_box(s->w, g) || declare_waits(s, g) ||
		!s->w->opened || !s->listed)
		return UINT64_MAX;
	if (g->t == NULL)
		return g->again_ns;
	if (g->pages.s == NULL)
		return 0;
	if (g->homes.next != NULL)
		return spread_due(s->w, &g->homes);
	return pager_due(&g->pages);
}

/* ---- the host's ----------------------------------------------------------------------------- */

void
pbox_worker_declare(struct pbox_worker *w, struct pbox_worker_declaration *d)
{
	struct declaring *g = &w->declaring;

	assert(g->d == NULL && d->what != NULL);
	d->state = PBOX_WORKER_DECLARING;
	g->d = d;
	g->again_ns = g->mapped = 0;
	g->again = FIRST_AGAIN;
	if (w->failed)
		declare_fail(w, w->fatal.code, w->fatal.text);
	else if (w->shut)
		declare_fail(w, PBOX_C_CLOSED, "the client was closed");
}

void
pbox_worker_declare_cancel(struct pbox_worker *w, struct pbox_worker_declaration *d)
{
	if (w->declaring.d != d)
		return;
	w->declaring.d = NULL;
	declare_drop(&w->declaring);
}
