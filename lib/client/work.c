/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Work by plan (section 15 of the protocol): what a program asks, and waits for. The dialogue with the box is lib/worker's. */

#include <stddef.h>
#include <string.h>

#include <pbox_worker_plan.h>

#include "client_impl.h"

#define WORK_HYPERS \
	(sizeof(((struct pbox_client_work *)0)->hyper) / sizeof(double)) /* before hyper_more */
#define STEALS_FOR \
	(100 * NS_PER_MS) /* a worker has ended its own slots, and the others wait for its push */
#define STEALS_AGAIN 10   /* ms */

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

/** A question of the caller's, until the worker has ended it. */
struct asked {
	struct cmd cmd;
	struct pbox_worker_question q;
};

static void
ask_run(struct pbox_client *c, struct cmd *cmd)
{
	pbox_worker_ask(c->w, &((struct asked *)cmd)->q);
}

void
work_publish(struct pbox_worker_question *q)
{
	while (q != NULL) {
		struct pbox_worker_question *next = q->next;

		((struct asked *)(void *)((char *)q - offsetof(struct asked, q)))->cmd.done = true;
		q = next;
	}
}

/** Ask, and wait until the worker has ended it: it has a deadline. */
static int
work_ask(struct pbox_client *c, struct asked *a, const char *what, struct pbox_client_error *err)
{
	const struct pbox_client_error *e = &a->q.err;

	a->cmd.run = ask_run;
	a->cmd.open = true;
	cmd_call(c, &a->cmd);
	if (e->code == PBOX_C_DEADLINE && e->text[0] == 0)
		return waiting_no_answer(c, what, err);
	if (e->code != PBOX_C_OK && err != NULL)
		*err = *e;
	return e->code;
}

static enum pbox_worker_asks
what_it_asks(const struct pbox_client_work *w)
{
	if (w->newcomer != PBOX_CLIENT_IN_JOB)
		return w->newcomer == PBOX_CLIENT_LOOK ? PBOX_WORKER_LOOK : PBOX_WORKER_ENTER;
	if (w->keep == PBOX_CLIENT_TURN)
		return PBOX_WORKER_TURN;
	return w->keep != PBOX_CLIENT_OWN ? PBOX_WORKER_REPORT : PBOX_WORKER_WORK;
}

static void
work_fill(const struct pbox_client_work *w, struct pbox_work_ask *m)
{
	*m = (struct pbox_work_ask){.round = w->round,
		.slots = (uint16_t)w->slots,
		.fits = w->memory_known ? w->fits : UINT32_MAX,
		.trained = w->trained,
		.compute = w->compute,
		.fixed = w->fixed,
		.up = w->up,
		.down = w->down,
		.seed = w->samples != 0 ? w->seed & PBOX_WORK_NONE : PBOX_WORK_NONE,
		.samples = w->samples != 0 ? w->samples : PBOX_WORK_NONE,
		.batch = w->batch,
		.group = (uint16_t)w->group};
}

/** What the box says of the job. */
static void
work_told(struct pbox_client_work *w, const struct pbox_worker_question *q)
{
	const struct pbox_work_ok *ok = &q->ok;

	w->plan = ok->plan;
	w->members = ok->members;
	w->leads = ok->leads;
	if (q->kind == PBOX_WORKER_TURN)
		return;
	w->now = ok->now;
	w->now_trained = ok->trained;
	memcpy(w->hyper, ok->hyper, sizeof(w->hyper));
	memcpy(w->hyper_more, ok->hyper + WORK_HYPERS, sizeof(w->hyper_more));
	w->decided = ok->decided;
	w->decision = ok->decision;
	if (q->kind == PBOX_WORKER_LOOK)
		w->nodes = ok->ranges;
}

/** Which slots are this worker's. */
static void
work_owns(struct pbox_client_work *w, const struct pbox_worker_question *q)
{
	const struct pbox_work_ok *ok = &q->ok;

	if (q->kind == PBOX_WORKER_ENTER) {
		w->trained = q->work.trained;
		w->round = q->work.round;
	}
	w->edition = ok->edition;
	w->nodes = q->nodes;
	w->next_from = ok->next_from;
	w->next_ranges = ok->next_ranges;
	for (unsigned i = 0; i < ok->next_ranges; i++)
		w->next[i] = (struct pbox_client_node){ok->next_range[i].first,
			(uint16_t)(ok->next_range[i].end - ok->next_range[i].first)};
}

static int
work_call(struct pbox_client *c, struct table *t, struct pbox_client_work *w, uint64_t deadline,
	struct pbox_client_error *err)
{
	struct asked a = {.q = {.kind = what_it_asks(w), .table = t->t, .deadline = deadline}};
	int rc;

	work_fill(w, &a.q.work);
	rc = work_ask(c, &a, "WORK", err);
	if (rc != 0 || a.q.open)
		return rc;
	work_told(w, &a.q);
	if (a.q.changed)
		work_owns(w, &a.q);
	w->changed = a.q.changed;
	return 0;
}

int
pbox_client_work(struct pbox_client *c, uint32_t table, struct pbox_client_work *work,
	unsigned timeout_ms, struct pbox_client_error *err)
{
	struct table *t;
	int rc;

	if (work == NULL || work->size < sizeof(*work))
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

static int
task_call(struct pbox_client *c, struct table *t, uint32_t round, uint32_t *again_ms,
	uint64_t deadline, struct pbox_client_error *err)
{
	struct asked a = {.q = {.kind = PBOX_WORKER_STEAL,
				  .table = t->t,
				  .deadline = deadline,
				  .most = STEALS_FOR,
				  .work = {.round = round}}};
	int rc = work_ask(c, &a, "TASK", err);

	if (rc != 0)
		return rc;
	*again_ms = a.q.open ? STEALS_AGAIN : 0;
	return (int)a.q.gained;
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
