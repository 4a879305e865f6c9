/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>

#include "client_impl.h"

/* DECLARE and MAP, in pages with several requests in flight (section 5 of the protocol). */

#define PAGES        32 /* requests in flight */
#define FIRST_PAUSE  (2 * NS_PER_MS)
#define LAST_PAUSE   (50 * NS_PER_MS)
#define MAX_ELEMENTS (1ull << 48)

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
	uint64_t deadline;
	size_t cap;
	unsigned busy;
	uint8_t *room;
	struct page page[PAGES];
};

static int
pager_open(struct pager *g)
{
	g->cap = g->c->mtu - PBOX_MTU_OVERHEAD;
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
	request_issue(g->c, &p->request, type, p->payload, length, p->answer, g->cap);
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
			late = !client_sleep(g->c, g->deadline);
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
	return client_fail(g->err, PBOX_C_DEADLINE,
		"%s of table %u: no answer from the box at %s; check that it is up", what,
		g->t->number, g->c->box_name);
}

/* ---- DECLARE ------------------------------------------------------------------------------ */

/** Fill a page from tensor @p first on; returns how many fit. */
static unsigned
declare_page(struct pager *g, struct page *p, unsigned first, size_t *length)
{
	const struct table *t = g->t;
	struct pbox_declare m = {.table = t->number,
		.tensors = t->n,
		.first = first,
		.mode = t->mode,
		.op = t->op,
		.optimiser = t->optimiser,
		.push_format = t->push_format,
		.pull_format = t->pull_format};
	struct pbox_cursor cur;
	unsigned n = 0;

	*length = 0;
	if (pbox_declare_begin(p->payload, g->cap, &m, &cur) != 0)
		return 0;
	for (; first + n < t->n && n < UINT16_MAX; n++) {
		const struct tensor *x = &t->tensor[first + n];
		struct pbox_tensor_entry e = {.elements = x->elements, .group = x->group};

		memcpy(e.name, x->name, strlen(x->name) + 1);
		if (pbox_declare_add(p->payload, &cur, &e) != 0)
			break;
	}
	*length = pbox_page_len(p->payload, &cur);
	return n;
}

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
			next += declare_page(g, p, next, &length);
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
not_ready(struct pager *g, const struct pbox_not_ready *m)
{
	char who[256] = "";

	if (m->first_missing < g->c->workers) {
		text_add(who, sizeof(who), "missing worker %u", m->first_missing);
		why_member(g->c, m->first_missing, who, sizeof(who));
	}
	return client_fail(g->err, PBOX_C_DEADLINE,
		"table %u: %u of %u workers joined, %u declared it; %s%s%s", g->t->number,
		m->joined, m->expected, m->declared, who, m->text[0] != 0 ? ": " : "", m->text);
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
map_begin(struct pager *g, struct table_map *m, const struct pbox_mapped *h)
{
	struct table *t = g->t;
	uint64_t elements = 0;

	for (unsigned i = 0; i < t->n; i++)
		elements += t->tensor[i].elements;
	if (h->chunks > elements || h->chunks > UINT32_MAX / 2 ||
		(h->chunks == 0) != (elements == 0))
		return client_fail(g->err, PBOX_C_REFUSED,
			"the box's map is not sound: %u chunks for %llu elements", h->chunks,
			(unsigned long long)elements);
	t->chunks = h->chunks;
	t->frag_elements = h->frag_elements;
	t->first_chunk_id = h->first_chunk_id;
	t->chunk = calloc(h->chunks + 1, sizeof(*t->chunk));
	m->first = calloc(h->chunks + 1, sizeof(*m->first));
	m->count = calloc(h->chunks + 1, sizeof(*m->count));
	m->got = calloc(h->chunks + 1, 1);
	if (t->chunk == NULL || m->first == NULL || m->count == NULL || m->got == NULL)
		return client_fail(
			g->err, PBOX_C_MEMORY, "no memory for a map of %u chunks", h->chunks);
	return 0;
}

static int
map_chunk(struct pager *g, struct table_map *m, uint32_t i, const struct pbox_chunk_entry *e)
{
	struct table *t = g->t;

	if (i >= t->chunks || e->endpoint >= g->c->endpoints)
		return client_fail(g->err, PBOX_C_REFUSED,
			"the box's map is not sound: chunk %u at endpoint %u", i, e->endpoint);
	if (m->got[i])
		return 0;
	if (m->used + e->segments > m->cap) {
		size_t cap = m->cap * 2 + t->chunks + PBOX_MAX_SEGMENTS;
		struct pbox_segment *s = reallocarray(m->segment, cap, sizeof(*s));

		if (s == NULL || cap > UINT32_MAX)
			return client_fail(g->err, PBOX_C_MEMORY, "no memory for the map");
		m->segment = s;
		m->cap = cap;
	}
	t->chunk[i] = (struct chunk){.id = e->chunk_id,
		.elements = e->elements,
		.version = e->version,
		.endpoint = e->endpoint};
	m->first[i] = (uint32_t)m->used;
	m->count[i] = e->segments;
	memcpy(m->segment + m->used, e->segment, e->segments * sizeof(e->segment[0]));
	m->used += e->segments;
	m->got[i] = 1;
	m->n_got++;
	return 0;
}

/** Take a page; *count is how many chunks stood in it. */
static int
map_page(struct pager *g, struct table_map *m, const struct page *p, uint32_t *count)
{
	struct pbox_chunk_entry *e = &m->entry;
	struct pbox_mapped h;
	struct pbox_cursor cur;
	int rc = 0;

	if (pbox_mapped_decode(p->answer, p->request.answer_len, &h, &cur) != 0 ||
		h.table != g->t->number)
		return client_fail(g->err, PBOX_C_REFUSED, "the box's MAPPED is malformed");
	if (m->got == NULL) {
		g->t->map_epoch = p->request.map_epoch;
		rc = map_begin(g, m, &h);
	}
	for (unsigned i = 0; rc == 0 && i < h.count; i++) {
		if (pbox_mapped_next(&cur, e) != 0)
			return client_fail(g->err, PBOX_C_REFUSED, "the box's MAPPED is malformed");
		rc = map_chunk(g, m, h.first + i, e);
	}
	*count = h.count;
	if (rc == 0 && h.count == 0 && g->t->chunks > 0)
		return client_fail(g->err, PBOX_C_REFUSED, "the box's MAPPED is empty");
	return rc;
}

/** The first page: asked for until all workers have declared. */
static int
map_first(struct pager *g, struct table_map *m, uint32_t *count)
{
	uint64_t pause = FIRST_PAUSE;
	struct pbox_not_ready wait;
	struct page *p;
	int rc;

	for (;;) {
		map_send(g, pager_free(g), 0);
		p = pager_wait(g);
		if (p == NULL)
			return no_answer(g, "MAP");
		if (p->request.answer_type != PBOX_NOT_READY)
			break;
		if (pbox_not_ready_decode(p->answer, p->request.answer_len, &wait) != 0)
			return client_fail(
				g->err, PBOX_C_REFUSED, "the box's NOT_READY is malformed");
		if (clock_ns() + pause >= g->deadline)
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
	int rc;
};

static void
add_run(struct pbox_client *c, struct cmd *cmd)
{
	struct add *a = (struct add *)cmd;

	a->rc = refs_add(c, a->table);
}

static int
table_add(struct pbox_client *c, struct table *t, struct pbox_client_error *err)
{
	struct add a = {.cmd = {.run = add_run}, .table = t};
	struct table **list;

	cmd_call(c, &a.cmd);
	if (a.rc != 0)
		return client_fail(err, PBOX_C_MEMORY, "no memory for table %u", t->number);
	pthread_mutex_lock(&c->lock);
	if (c->tables == c->tables_cap) {
		list = reallocarray(c->table, c->tables_cap * 2 + 8, sizeof(*list));
		if (list == NULL) {
			pthread_mutex_unlock(&c->lock);
			return client_fail(err, PBOX_C_MEMORY, "no memory for table %u", t->number);
		}
		c->table = list;
		c->tables_cap = c->tables_cap * 2 + 8;
	}
	c->table[c->tables++] = t;
	pthread_mutex_unlock(&c->lock);
	return 0;
}

static int
check_table(const struct pbox_client_table *d, struct pbox_client_error *err)
{
	uint64_t sum = 0;

	if (d == NULL || d->size < sizeof(*d) || (d->n > 0 && d->tensors == NULL))
		return client_fail(err, PBOX_C_INVALID,
			"the table's description is incomplete (size field, list of tensors)");
	if (d->mode > PBOX_MODE_OPTIMISER || d->op > PBOX_OP_WEIGHTED_MEAN ||
		d->optimiser > PBOX_OPT_ADAMW ||
		(d->mode == PBOX_MODE_OPTIMISER) != (d->optimiser != PBOX_OPT_NONE))
		return client_fail(err, PBOX_C_INVALID,
			"mode %u, op %u, optimiser %u do not go together: mode 0 is without, mode "
			"1 "
			"with an optimiser (1 to 5); op is 0 to 3",
			d->mode, d->op, d->optimiser);
	if (pbox_format_size(d->push_format) == 0 || pbox_format_size(d->pull_format) == 0)
		return client_fail(err, PBOX_C_INVALID,
			"element format %u or %u does not exist: 1 fp32, 2 bf16, 3 fp16",
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

static int
declare_locked(struct pbox_client *c, const struct pbox_client_table *d, unsigned timeout_ms,
	uint32_t *table, struct pbox_client_error *err)
{
	struct pager *g = calloc(1, sizeof(*g));
	struct table_map *m = calloc(1, sizeof(*m));
	struct table *t = table_new(d, c->tables);
	int rc = PBOX_C_MEMORY;

	if (g == NULL || m == NULL || t == NULL || c->tables >= MAX_TABLES) {
		client_fail(err, rc, "no memory for table %u of %u tensors", c->tables, d->n);
		goto out;
	}
	g->c = c;
	g->err = err;
	g->t = t;
	g->deadline = client_deadline(c, timeout_ms);
	rc = pager_open(g);
	if (rc == 0)
		rc = declare_all(g);
	if (rc == 0)
		rc = map_all(g, m);
	pager_close(g);
	if (rc == 0)
		rc = table_layout(t, m, err);
	if (rc == 0)
		rc = table_add(c, t, err);
	if (rc == 0)
		*table = t->number;
out:
	if (m != NULL) {
		free(m->segment);
		free(m->first);
		free(m->count);
		free(m->got);
	}
	free(m);
	free(g);
	if (rc != 0)
		table_free(t);
	return rc;
}

int
pbox_client_declare(struct pbox_client *c, const struct pbox_client_table *t, unsigned timeout_ms,
	uint32_t *table, struct pbox_client_error *err)
{
	int rc = check_table(t, err);

	if (rc != 0)
		return rc;
	rc = client_enter(c, err);
	if (rc != 0)
		return rc;
	pthread_mutex_lock(&c->declare_lock);
	rc = declare_locked(c, t, timeout_ms, table, err);
	pthread_mutex_unlock(&c->declare_lock);
	client_leave(c);
	return rc;
}
