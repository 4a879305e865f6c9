/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Work by plan (section 15 of the protocol): reports out, owners in; slots that are stolen within a round. */

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include <pbox_slots.h>

#include "client_impl.h"

#define AGAIN_MOST     100                                     /* ms */
#define WORK_LEAST     offsetof(struct pbox_client_work, keep) /* of programs built before that */
#define WORK_KEEPS     offsetof(struct pbox_client_work, newcomer)
#define WORK_JOINS     offsetof(struct pbox_client_work, memory_known)
#define NEWCOMER_AGAIN (10 * NS_PER_MS)

struct own_cmd {
	struct cmd cmd;
	const struct pbox_work_ok *ok;
	int rc;
};

static void
own_run(struct pbox_client *c, struct cmd *cmd)
{
	struct own_cmd *o = (struct own_cmd *)cmd;

	o->rc = pbox_worker_own(c->w, o->ok->edition, o->ok->range, o->ok->ranges);
}

struct due_cmd {
	struct cmd cmd;
	bool due;
};

static void
due_run(struct pbox_client *c, struct cmd *cmd)
{
	((struct due_cmd *)cmd)->due = pbox_worker_owners_changed(c->w);
}

int
pbox_client_work_due(struct pbox_client *c)
{
	struct due_cmd d = {.cmd = {.run = due_run}};

	if (client_enter(c, NULL) != 0)
		return 0;
	cmd_call(c, &d.cmd);
	client_leave(c);
	return d.due;
}

/* The ranges that its nodes consist of are what the worker claims. */
static void
claim_nodes(struct pbox_client *c, struct pbox_slot_range *range, uint16_t *ranges)
{
	struct pbox_node node[PBOX_RANGE_NODES];
	unsigned n = client_nodes(c, 0, node), slots = pbox_worker_slots(c->w);

	for (unsigned i = 0; i < n; i++)
		range[(*ranges)++] = (struct pbox_slot_range){
			node[i].first, (uint16_t)pbox_node_end(node[i], slots)};
}

static void
work_pause(struct pbox_client *c, uint64_t ns)
{
	uint64_t until = client_clock_ns() + ns;

	pthread_mutex_lock(&c->lock);
	while (!c->closing && client_sleep(c, until))
		;
	pthread_mutex_unlock(&c->lock);
}

/* Ask, and unless it is only a report (@p once) until the box knows. */
static int
work_ask(struct pbox_client *c, const struct pbox_work_ask *m, bool once, struct pbox_work_ok *ok,
	uint64_t deadline, struct pbox_client_error *err)
{
	uint8_t buf[512], answer[1024];
	size_t len = pbox_work_ask_encode(buf, sizeof(buf), m), got;

	for (;;) {
		int rc = request_call(c, PBOX_WORK, PBOX_WORK_OK, buf, len, answer, sizeof(answer),
			&got, "WORK", deadline, err);

		if (rc == PBOX_C_DEADLINE)
			return waiting_no_answer(c, "WORK", err);
		if (rc != 0)
			return rc;
		if (pbox_work_ok_decode(answer, got, ok) != 0)
			return pbox_client_fail(
				err, PBOX_C_REFUSED, "WORK: the box's answer cannot be read");
		if (ok->again_ms == 0 || once)
			return 0;
		if (client_clock_ns() >= deadline)
			return pbox_client_fail(err, PBOX_C_DEADLINE,
				"WORK: owners of slots are still changing: does every worker live?");
		work_pause(c, (ok->again_ms < AGAIN_MOST ? ok->again_ms : AGAIN_MOST) * NS_PER_MS);
	}
}

static bool
reports_only(const struct pbox_client_work *w)
{
	return w->size >= WORK_KEEPS && w->keep != 0;
}

/** How far round a is after b (R6.1). */
static int32_t
rounds_after(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b);
}

static bool
asks_newcomer(const struct pbox_client_work *w, enum pbox_client_newcomer what)
{
	return w->size >= WORK_JOINS && w->newcomer == what;
}

static void
work_fill(struct pbox_client *c, struct table *t, const struct pbox_client_work *w,
	struct pbox_work_ask *m)
{
	*m = (struct pbox_work_ask){.table = t->info.number,
		.round = w->round != 0 ? w->round : client_next_round(c, t),
		.slots = (uint16_t)w->slots,
		.fits = UINT32_MAX,
		.trained = w->trained,
		.compute = w->compute,
		.fixed = w->fixed,
		.up = w->up,
		.down = w->down,
		.seed = w->samples != 0 ? w->seed & PBOX_WORK_NONE : PBOX_WORK_NONE,
		.samples = w->samples != 0 ? w->samples : PBOX_WORK_NONE,
		.batch = w->batch};
	if (w->size >= sizeof(*w) && w->memory_known)
		m->fits = w->fits;
	if (w->size >= WORK_JOINS)
		m->group = (uint16_t)w->group;
	m->edition = w->edition;
	if (asks_newcomer(w, PBOX_CLIENT_LOOK))
		m->trained = PBOX_WORK_UNKNOWN;
	if (w->size >= WORK_JOINS && w->newcomer != PBOX_CLIENT_IN_JOB) {
		m->slots = 0;
		return;
	}
	claim_nodes(c, m->range, &m->ranges);
	m->payloads = m->ranges < m->slots ? m->ranges : m->slots;
	if (m->slots == 0)
		m->payloads = 0;
}

static void
work_told(struct pbox_client_work *w, const struct pbox_work_ok *ok)
{
	w->plan = ok->plan;
	w->members = ok->members;
	w->leads = ok->leads;
	if (w->size < WORK_JOINS)
		return;
	w->now = ok->now;
	w->now_trained = ok->trained;
	memcpy(w->hyper, ok->hyper, sizeof(w->hyper));
	if (w->newcomer == PBOX_CLIENT_LOOK)
		w->nodes = ok->ranges;
}

static int
work_own(struct pbox_client *c, const struct table *t, struct pbox_client_work *w,
	const struct pbox_work_ok *ok, struct pbox_client_error *err)
{
	struct own_cmd own = {.cmd = {.run = own_run}, .ok = ok};

	cmd_call(c, &own.cmd);
	if (own.rc == -EBUSY)
		return pbox_client_fail(err, PBOX_C_INVALID,
			"a push is unfinished: wait for it before pbox_client_work()");
	if (own.rc != 0)
		return pbox_client_fail(err, PBOX_C_REFUSED,
			"the box gives this worker slots that the job does not have, or too many pieces");
	w->edition = ok->edition;
	w->nodes = pbox_worker_table_nodes(c->w, t->t);
	w->next_from = ok->next_from;
	w->next_ranges = ok->next_ranges;
	for (unsigned i = 0; i < ok->next_ranges; i++)
		w->next[i] = (struct pbox_client_node){ok->next_range[i].first,
			(uint16_t)(ok->next_range[i].end - ok->next_range[i].first)};
	return 0;
}

struct begin_cmd {
	struct cmd cmd;
	struct pbox_worker_table *t;
	uint32_t round;
	int rc;
};

static void
begin_at_run(struct pbox_client *c, struct cmd *cmd)
{
	struct begin_cmd *b = (struct begin_cmd *)cmd;

	b->rc = pbox_worker_begin_at(c->w, b->t, b->round);
}

/** The first round in which it has slots, by what the box says about a round that is not over; 0: it is not known yet. Then
 * the ranges of @p ok are those of that round. */
static uint32_t
first_with_slots(uint32_t round, struct pbox_work_ok *ok)
{
	if (ok->ranges > 0)
		return round;
	if (ok->next_from == 0 || ok->next_ranges == 0)
		return 0;
	round = ok->next_from;
	ok->ranges = ok->next_ranges;
	memcpy(ok->range, ok->next_range, sizeof(ok->range));
	ok->plan = ok->next_plan;
	ok->next_plan = ok->next_from = ok->next_ranges = 0;
	return round;
}

/** R15.7a: slots, and the round from which on it has them. */
static int
newcomer_begin(struct pbox_client *c, struct table *t, struct pbox_client_work *w,
	uint64_t deadline, struct pbox_client_error *err)
{
	struct begin_cmd begin = {.cmd = {.run = begin_at_run}, .t = t->t};
	struct pbox_work_ask m;
	struct pbox_work_ok ok;

	work_fill(c, t, w, &m);
	for (;;) {
		int rc = work_ask(c, &m, false, &ok, deadline, err);
		uint32_t first;

		if (rc != 0)
			return rc;
		work_told(w, &ok);
		if (rounds_after(ok.now, m.round) > 0) {
			m.trained += ok.now - m.round;
			m.round = ok.now;
			continue;
		}
		first = first_with_slots(m.round, &ok);
		if (first != 0 && rounds_after(ok.now + 1, first) >= 0) {
			begin.round = first;
			break;
		}
		if (client_clock_ns() >= deadline)
			return pbox_client_fail(err, PBOX_C_DEADLINE,
				"WORK: the job goes on with round %u, and has no slots for this worker yet: do the others end their rounds?",
				ok.now);
		work_pause(c, NEWCOMER_AGAIN);
	}
	cmd_call(c, &begin.cmd);
	if (begin.rc != 0)
		return pbox_client_fail(err, PBOX_C_INVALID,
			"this worker has pushed, or an operation is unfinished: it is no newcomer");
	w->trained = m.trained + begin.round - m.round;
	w->round = begin.round;
	w->plan = ok.plan;
	return work_own(c, t, w, &ok, err);
}

static int
work_call(struct pbox_client *c, struct table *t, struct pbox_client_work *w, uint64_t deadline,
	struct pbox_client_error *err)
{
	struct pbox_work_ask m;
	struct pbox_work_ok ok;
	int rc;

	if (asks_newcomer(w, PBOX_CLIENT_BEGIN))
		return newcomer_begin(c, t, w, deadline, err);
	work_fill(c, t, w, &m);
	rc = work_ask(c, &m, reports_only(w), &ok, deadline, err);
	if (rc != 0 || ok.again_ms != 0)
		return rc;
	work_told(w, &ok);
	if (reports_only(w) || asks_newcomer(w, PBOX_CLIENT_LOOK))
		return 0;
	return work_own(c, t, w, &ok, err);
}

int
pbox_client_work(struct pbox_client *c, uint32_t table, struct pbox_client_work *work,
	unsigned timeout_ms, struct pbox_client_error *err)
{
	struct table *t;
	int rc;

	if (work == NULL || work->size < WORK_LEAST)
		return pbox_client_fail(err, PBOX_C_INVALID,
			"size of pbox_client_work is %zu: it is sizeof(struct pbox_client_work), %zu",
			work == NULL ? (size_t)0 : work->size, sizeof(*work));
	if (work->slots > PBOX_MAX_SLOTS)
		return pbox_client_fail(err, PBOX_C_INVALID, "%u slots: a job has %u at most",
			work->slots, PBOX_MAX_SLOTS);
	rc = client_enter(c, err);
	if (rc != 0)
		return rc;
	t = client_table(c, table);
	rc = t != NULL ? work_call(c, t, work, client_deadline(c, timeout_ms), err)
		       : pbox_client_fail(
				 err, PBOX_C_INVALID, "table %u has not been declared", table);
	client_leave(c);
	return rc;
}

/* ---- stealing ---------------------------------------------------------------------------------- */

struct begin_slot_cmd {
	struct cmd cmd;
	uint32_t round;
	unsigned slot;
	bool own;
};

static void
begin_slot_run(struct pbox_client *c, struct cmd *cmd)
{
	struct begin_slot_cmd *b = (struct begin_slot_cmd *)cmd;

	b->own = pbox_worker_slot_begin(c->w, b->round, b->slot, client_clock_ns());
}

int
pbox_client_slot_begin(struct pbox_client *c, uint32_t table, uint32_t round, unsigned slot)
{
	struct begin_slot_cmd b = {.cmd = {.run = begin_slot_run}, .round = round, .slot = slot};
	int rc = client_enter(c, NULL);

	if (rc != 0)
		return rc;
	if (client_table(c, table) == NULL || slot >= pbox_worker_slots(c->w))
		rc = PBOX_C_INVALID;
	else
		cmd_call(c, &b.cmd);
	client_leave(c);
	return rc != 0 ? rc : b.own;
}

struct gain_cmd {
	struct cmd cmd;
	const struct pbox_task_ok *ok;
	int rc;
};

static void
gain_run(struct pbox_client *c, struct cmd *cmd)
{
	struct gain_cmd *g = (struct gain_cmd *)cmd;

	g->rc = pbox_worker_gain(c->w, g->ok->range, g->ok->ranges);
}

static int
task_call(struct pbox_client *c, struct table *t, uint32_t round, uint32_t *again_ms,
	uint64_t deadline, struct pbox_client_error *err)
{
	struct pbox_task m = {.table = t->info.number, .round = round};
	uint8_t buf[PBOX_TASK_MOST], answer[512];
	struct pbox_task_ok ok;
	struct gain_cmd gain = {.cmd = {.run = gain_run}, .ok = &ok};
	size_t got;
	int rc;

	claim_nodes(c, m.range, &m.ranges);
	rc = request_call(c, PBOX_TASK, PBOX_TASK_OK, buf, pbox_task_encode(buf, sizeof(buf), &m),
		answer, sizeof(answer), &got, "TASK", deadline, err);
	if (rc == PBOX_C_DEADLINE)
		return waiting_no_answer(c, "TASK", err);
	if (rc != 0)
		return rc;
	if (pbox_task_ok_decode(answer, got, &ok) != 0)
		return pbox_client_fail(
			err, PBOX_C_REFUSED, "TASK: the box's answer cannot be read");
	*again_ms = ok.again_ms;
	if (ok.again_ms != 0 || ok.ranges == 0)
		return 0;
	cmd_call(c, &gain.cmd);
	if (gain.rc == -EBUSY)
		return pbox_client_fail(err, PBOX_C_INVALID,
			"a push is unfinished: ask for slots before it, or after it has ended");
	if (gain.rc != 0)
		return pbox_client_fail(err, PBOX_C_REFUSED,
			"the box gives this worker slots that the job does not have, or too many pieces");
	return (int)pbox_worker_table_nodes(c->w, t->t);
}

int
pbox_client_task(struct pbox_client *c, uint32_t table, uint32_t round, uint32_t *again_ms,
	unsigned timeout_ms, struct pbox_client_error *err)
{
	struct table *t;
	int rc = client_enter(c, err);

	if (rc != 0)
		return rc;
	t = client_table(c, table);
	rc = t != NULL ? task_call(c, t, round, again_ms, client_deadline(c, timeout_ms), err)
		       : pbox_client_fail(
				 err, PBOX_C_INVALID, "table %u has not been declared", table);
	client_leave(c);
	return rc;
}
