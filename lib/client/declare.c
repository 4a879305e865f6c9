/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>
#include <stdlib.h>

#include "restart.h"

/* DECLARE and MAP, in pages with several requests in flight (section 5 of the protocol). */

#define PAGES        32 /* requests in flight */
#define FIRST_PAUSE  (2 * NS_PER_MS)
#define LAST_PAUSE   (50 * NS_PER_MS)
#define FIRST_AGAIN  (50 * NS_PER_MS) /* after RUNNING */
#define LAST_AGAIN   NS_PER_S
#define TOLD_HOLDS   (2 * NS_PER_S)
#define MAX_ELEMENTS (1ull << 48)
/* At the start a worker that has left is often one of an earlier run, on its way back. */
#define LEFT_MS 10000

struct page {
	struct request request;
	uint8_t *payload, *answer;
	uint32_t first;
	bool busy;
};

struct pager {
	struct pbox_client *c;
	struct pbox_client_error *err;
	struct table *t;
	struct waiting *waiting; /* of the call */
	size_t cap;
	unsigned busy, endpoints;
	uint32_t generation; /* of the session */
	uint64_t number;     /* of its run */
	uint8_t *room;
	struct page page[PAGES];
};

static int
pager_open(struct pager *g)
{
	pthread_mutex_lock(&g->c->lock);
	g->cap = g->c->mtu - PBOX_MTU_OVERHEAD;
	g->endpoints = g->c->endpoints;
	g->generation = g->c->generation;
	g->number = g->c->number;
	pthread_mutex_unlock(&g->c->lock);
	g->room = malloc(2 * PAGES * g->cap);
	if (g->room == NULL)
		return client_fail(g->err, PBOX_C_MEMORY, "no memory for pages");
	for (unsigned i = 0; i < PAGES; i++) {
		g->page[i].payload = g->room + 2 * i * g->cap;
		g->page[i].answer = g->page[i].payload + g->cap;
	}
	return 0;
}

/** No request may be left behind that points here. */
static void
pager_close(struct pager *g)
{
	for (unsigned i = 0; i < PAGES; i++)
		if (g->page[i].busy)
			request_cancel(g->c, &g->page[i].request);
	free(g->room);
}

static struct page *
pager_free(struct pager *g)
{
	for (unsigned i = 0; i < PAGES; i++)
		if (!g->page[i].busy)
			return &g->page[i];
	return NULL;
}

static void
pager_send(struct pager *g, struct page *p, uint8_t type, size_t length)
{
	p->busy = true;
	g->busy++;
	request_issue(
		g->c, &p->request, g->generation, type, p->payload, length, p->answer, g->cap);
}

/** The next page that has an answer; NULL at the deadline. */
static struct page *
pager_wait(struct pager *g)
{
	struct page *found = NULL;
	bool late = false;

	pthread_mutex_lock(&g->c->lock);
	while (found == NULL) {
		for (unsigned i = 0; i < PAGES && found == NULL; i++)
			if (g->page[i].busy && g->page[i].request.cmd.done)
				found = &g->page[i];
		if (found == NULL && late)
			break;
		if (found == NULL)
			late = !client_sleep(g->c, g->waiting->deadline);
	}
	pthread_mutex_unlock(&g->c->lock);
	if (found != NULL) {
		found->busy = false;
		g->busy--;
	}
	return found;
}

static int
no_answer(struct pager *g, const char *what)
{
	char text[400];

	rejoin_text(g->c, text, sizeof(text));
	if (text[0] != 0)
		return client_fail(
			g->err, PBOX_C_DEADLINE, "%s of table %u: %s", what, g->t->number, text);
	return client_fail(g->err, PBOX_C_DEADLINE,
		"%s of table %u: no answer from the box at %s; check that it is up ('ping' "
		"reaches it?)",
		what, g->t->number, g->c->box_name);
}

/* ---- DECLARE ------------------------------------------------------------------------------ */

static int
declare_all(struct pager *g)
{
	unsigned next = 0;
	bool first = true;

	while (first || next < g->t->n || g->busy > 0) {
		struct page *p = first || next < g->t->n ? pager_free(g) : NULL;
		size_t length;
		int rc;

		if (p != NULL) {
			next += page_declare(g->t, g->t->flags, next, p->payload, g->cap, &length);
			first = false;
			pager_send(g, p, PBOX_DECLARE, length);
			continue;
		}
		p = pager_wait(g);
		if (p == NULL)
			return no_answer(g, "DECLARE");
		rc = request_result(g->c, &p->request, PBOX_DECLARED, "declaring", g->err);
		if (rc != 0)
			return rc;
	}
	return 0;
}

/* ---- MAP ----------------------------------------------------------------------------------- */

static void
map_send(struct pager *g, struct page *p, uint32_t first)
{
	struct pbox_map m = {g->t->number, first};

	p->first = first;
	pager_send(g, p, PBOX_MAP, pbox_map_encode(p->payload, g->cap, &m));
}

static int
not_ready(struct pager *g, struct pbox_not_ready *m)
{
	char who[400] = "";

	if (m->first_missing < g->c->workers) {
		text_add(who, sizeof(who), "missing worker %u", m->first_missing);
		why_member(g->c, m->first_missing, who, sizeof(who));
	}
	text_tame(m->text);
	return client_fail(g->err, PBOX_C_DEADLINE,
		"MAP of table %u: %u of %u workers joined, %u declared it; %s%s%s", g->t->number,
		m->joined, m->expected, m->declared, who,
		who[0] != 0 && m->text[0] != 0 ? "; the box says: " : "", m->text);
}

static bool
missing_gone(struct pager *g, unsigned worker)
{
	struct waiting_for f = {
		.missing = (int)worker, .told_ns = clock_ns(), .table = g->t->number};

	return waiting_ask(g->c, g->waiting, &f, LEFT_MS);
}

/** Sleep @p ns, or until the client is closed or the session lost. */
static void
pause_for(struct pbox_client *c, uint64_t ns)
{
	uint64_t until = clock_ns() + ns;

	pthread_mutex_lock(&c->lock);
	while (!c->closing && c->fatal == 0 && client_sleep(c, until))
		;
	pthread_mutex_unlock(&c->lock);
}

static int
map_page(struct pager *g, struct table_map *m, const struct page *p, uint32_t *count)
{
	return page_mapped(g->t, m, &p->request, g->endpoints, count, g->err);
}

/** The first page: asked for until all workers have declared. */
static int
map_first(struct pager *g, struct table_map *m, uint32_t *count)
{
	uint64_t pause = FIRST_PAUSE, told = 0;
	struct pbox_not_ready wait;
	bool left = false;
	struct page *p;
	int rc;

	for (;;) {
		map_send(g, pager_free(g), 0);
		p = pager_wait(g);
		if (p == NULL) /* asked just before the deadline: what was told last still holds */
			return told != 0 && clock_ns() - told < TOLD_HOLDS ? not_ready(g, &wait)
									   : no_answer(g, "MAP");
		if (p->request.answer_type != PBOX_NOT_READY)
			break;
		if (pbox_not_ready_decode(p->answer, p->request.answer_len, &wait) != 0)
			return client_fail(
				g->err, PBOX_C_REFUSED, "the box's NOT_READY is malformed");
		told = clock_ns();
		if (wait.first_missing < g->c->workers && clock_ns() >= g->waiting->next_ask)
			left = missing_gone(g, wait.first_missing);
		if (left || clock_ns() + pause >= g->waiting->deadline)
			return not_ready(g, &wait);
		pause_for(g->c, pause);
		pause = pause * 2 < LAST_PAUSE ? pause * 2 : LAST_PAUSE;
	}
	rc = request_result(g->c, &p->request, PBOX_MAPPED, "mapping", g->err);
	return rc != 0 ? rc : map_page(g, m, p, count);
}

/** Is chunk @p i asked for already, when pages hold @p stride chunks? */
static bool
map_asked(const struct pager *g, uint32_t i, uint32_t stride)
{
	for (unsigned k = 0; k < PAGES; k++)
		if (g->page[k].busy && i >= g->page[k].first && i - g->page[k].first < stride)
			return true;
	return false;
}

static int
map_all(struct pager *g, struct table_map *m)
{
	uint32_t stride = 0, next = 0, count;
	int rc = map_first(g, m, &stride);

	while (rc == 0 && m->n_got < g->t->chunks) {
		struct page *p = pager_free(g);

		/* pages hold more or fewer chunks than the first one: gaps are asked for in the
		 * next pass */
		while (p != NULL && next < g->t->chunks &&
			(m->got[next] || map_asked(g, next, stride)))
			next++;
		if (p != NULL && next < g->t->chunks) {
			map_send(g, p, next);
			next = next + stride > next ? next + stride : UINT32_MAX;
			continue;
		}
		if (g->busy == 0) {
			next = 0;
			continue;
		}
		p = pager_wait(g);
		if (p == NULL)
			return no_answer(g, "MAP");
		rc = request_result(g->c, &p->request, PBOX_MAPPED, "mapping", g->err);
		if (rc == 0)
			rc = map_page(g, m, p, &count);
	}
	return rc;
}

/* ---- the call ------------------------------------------------------------------------------ */

struct add {
	struct cmd cmd;
	struct table *table;
	uint32_t generation;
	int rc;
};

/** The table becomes one of the session. */
static int
add_table(struct pbox_client *c, struct table *t)
{
	struct table **list = c->table;
	int rc = 0;

	pthread_mutex_lock(&c->lock);
	if (c->tables == c->tables_cap) {
		list = reallocarray(c->table, c->tables_cap * 2 + 8, sizeof(*list));
		if (list != NULL) {
			c->table = list;
			c->tables_cap = c->tables_cap * 2 + 8;
		}
	}
	if (list == NULL || refs_add(c, t) != 0)
		rc = PBOX_C_MEMORY;
	else
		c->table[c->tables++] = t;
	pthread_mutex_unlock(&c->lock);
	return rc;
}

static void
add_run(struct pbox_client *c, struct cmd *cmd)
{
	struct add *a = (struct add *)cmd;

	a->rc = a->generation == c->generation ? add_table(c, a->table) : CLIENT_RENEWED;
}

#define NUMBERED(symbol, number, name, ...) ", " #number " " #name

static int
check_table(const struct pbox_client_table *d, struct pbox_client_error *err)
{
	uint64_t sum = 0;

	if (d->size < offsetof(struct pbox_client_table, first_round) ||
		(d->n > 0 && d->tensors == NULL))
		return client_fail(err, PBOX_C_INVALID,
			"the table's description is incomplete (size field, list of tensors)");
	if (d->mode > PBOX_MODE_OPTIMISER || d->op > PBOX_OP_WEIGHTED_MEAN ||
		d->optimiser >= PBOX_OPTIMISERS_END ||
		(d->mode == PBOX_MODE_OPTIMISER) != (d->optimiser != PBOX_OPT_NONE))
		return client_fail(err, PBOX_C_INVALID,
			"mode %u, op %u, optimiser %u do not go together: mode 0 is without, mode "
			"1 with an optimiser (1 to %u); op is 0 to 3",
			d->mode, d->op, d->optimiser, PBOX_OPTIMISERS_END - 1);
	if (pbox_format_size(d->push_format) == 0 || pbox_format_size(d->pull_format) == 0)
		return client_fail(err, PBOX_C_INVALID,
			"element format %u or %u does not exist: 1 fp32" PBOX_FORMATS_16(NUMBERED),
			d->push_format, d->pull_format);
	for (unsigned i = 0; i < d->n; i++) {
		if (d->tensors[i].elements > MAX_ELEMENTS ||
			(sum += d->tensors[i].elements) > MAX_ELEMENTS)
			return client_fail(err, PBOX_C_INVALID,
				"tensor %u has %llu elements: too many", i,
				(unsigned long long)d->tensors[i].elements);
	}
	return 0;
}

/** Where a resumed worker goes on (pbox_client_table.first_round). */
static int
resume(const struct pbox_client *c, struct table *t, uint32_t first_round,
	struct pbox_client_error *err)
{
	uint32_t low = t->chunks > 0 ? t->chunk[0].version : 0, high = low;

	for (uint32_t i = 1; i < t->chunks; i++) {
		uint32_t version = t->chunk[i].version;

		low = rounds_apart(version, low) < 0 ? version : low;
		high = rounds_apart(version, high) > 0 ? version : high;
	}
	if (first_round == 0 || first_round == PBOX_CLIENT_ROUND_ANY || high == 0)
		return 0;
	if (rounds_apart(high, first_round) > 0)
		return client_fail(err, PBOX_C_MISMATCH,
			"table %u: this worker wants to go on with round %u, but the box at %s "
			"has finished round %u: the checkpoint is too old for a job that goes on; "
			"start all workers from one of the same round",
			t->number, first_round, c->box_name, high);
	if (rounds_apart(low + 1, first_round) < 0)
		return client_fail(err, PBOX_C_MISMATCH,
			"table %u: this worker wants to go on with round %u, but the box at %s "
			"has finished round %u only: the checkpoint is newer than what the box "
			"and the other workers have; start all workers from one of the same round",
			t->number, first_round, c->box_name, low);
	for (uint32_t i = 0; i < t->frags; i++)
		t->frag[i].round = first_round - 1;
	t->base_version = first_round - 1;
	t->resumed = true;
	return 0;
}

static void
map_free(struct table_map *m)
{
	free(m->segment);
	free(m->first);
	free(m->count);
	free(m->got);
	free(m);
}

/** One call, which may see several sessions. */
struct declaring {
	struct waiting waiting;
	uint64_t mapped;                  /* the run in which it has had the map already; 0: none */
	struct pbox_client_error running; /* why the box did not take it last; code 0: it did */
};

/**
 * May it go on in a run that has begun (R12.6)? One that says its round may, and one that has had the map. Under policy
 * shrink workers of the run come and go. Else to be of the run is not enough: what was started again alone has lost
 * what the others have, and its gradients would be those of another model.
 */
static bool
goes_on(const struct pbox_client *c, const struct declaring *call, uint64_t number)
{
	return c->goes_on || (c->has_run && c->conf.policy != 0) ||
	       (call->mapped != 0 && call->mapped == number);
}

/** Within one session; CLIENT_RENEWED if that was lost. */
static int
declare_once(struct pbox_client *c, const struct pbox_client_table *d, struct declaring *call,
	uint32_t *table, struct pbox_client_error *err)
{
	struct pager *g = calloc(1, sizeof(*g));
	struct table_map *m = calloc(1, sizeof(*m));
	struct table *t = table_new(d, c->tables);
	struct add a = {.cmd = {.run = add_run}, .table = t};
	int rc = PBOX_C_MEMORY;

	if (g == NULL || m == NULL || t == NULL || c->tables >= MAX_TABLES) {
		client_fail(err, rc, "no memory for table %u of %u tensors", c->tables, d->n);
		goto out;
	}
	*g = (struct pager){.c = c, .err = err, .t = t, .waiting = &call->waiting};
	rc = pager_open(g);
	c->goes_on |= d->first_round != 0; /* and so in its tables after this one */
	if (goes_on(c, call, g->number))
		t->flags = PBOX_DECLARE_CONTINUE;
	if (rc == 0)
		rc = declare_all(g);
	if (rc == 0)
		call->running.code = 0;
	if (rc == 0)
		rc = map_all(g, m);
	if (rc == 0)
		call->mapped = g->number;
	pager_close(g);
	if (rc == 0)
		rc = table_layout(t, m, g->cap, err);
	if (rc == 0)
		rc = resume(c, t, d->first_round, err);
	if (rc == 0 && c->conf.keep_copies && copy_open(t) != 0)
		rc = client_fail(err, PBOX_C_MEMORY,
			"no memory for a copy of table %u (keep_copies)", t->number);
	if (rc == 0) {
		a.generation = g->generation;
		cmd_call(c, &a.cmd);
		rc = a.rc;
		if (rc == PBOX_C_MEMORY)
			client_fail(err, rc, "no memory for table %u", t->number);
	}
	if (rc == 0)
		*table = t->number;
out:
	if (m != NULL)
		map_free(m);
	free(g);
	if (rc != 0)
		table_free(t);
	return rc;
}

static void
refusal_set(struct pbox_client *c, const char *text)
{
	pthread_mutex_lock(&c->lock);
	snprintf(c->refusal, sizeof(c->refusal), "%s", text);
	pthread_mutex_unlock(&c->lock);
}

/** A run that has begun without this worker may be that of dead ones, and then ends soon (R12.7). */
static int
declare_locked(struct pbox_client *c, const struct pbox_client_table *d, unsigned timeout_ms,
	uint32_t *table, struct pbox_client_error *err)
{
	struct pbox_client_error why = {0};
	struct declaring call = {0};
	uint64_t pause = FIRST_AGAIN;
	int rc;

	waiting_begin(c, &call.waiting, timeout_ms);
	for (;;) {
		rc = declare_once(c, d, &call, table, &why);
		if (rc == CLIENT_RENEWED)
			continue;
		if (rc != PBOX_C_RUNNING || clock_ns() + pause >= call.waiting.deadline)
			break;
		call.running = why;
		refusal_set(c, why.text);
		pause_for(c, pause);
		pause = pause * 2 < LAST_AGAIN ? pause * 2 : LAST_AGAIN;
	}
	refusal_set(c, "");
	if (rc == PBOX_C_DEADLINE &&
		call.running.code != 0) { /* the last question was one too many */
		why = call.running;
		rc = why.code;
	}
	if (rc != 0 && err != NULL)
		*err = why;
	return rc;
}

int
pbox_client_declare(struct pbox_client *c, const struct pbox_client_table *t, unsigned timeout_ms,
	uint32_t *table, struct pbox_client_error *err)
{
	struct pbox_client_table d = {0};
	int rc;

	if (t == NULL)
		return client_fail(err, PBOX_C_INVALID, "no description of a table is given");
	memcpy(&d, t, t->size < sizeof(d) ? t->size : sizeof(d));
	rc = check_table(&d, err);
	if (rc != 0)
		return rc;
	rc = client_enter(c, err);
	if (rc != 0)
		return rc;
	pthread_mutex_lock(&c->declare_lock);
	rc = declare_locked(c, &d, timeout_ms, table, err);
	pthread_mutex_unlock(&c->declare_lock);
	client_leave(c);
	return rc;
}
