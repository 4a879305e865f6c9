/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>
#include <stdlib.h>

#include "client_impl.h"

/* Declaration of a table, from another thread: the worker does it, this file waits. */

#define ANSWER_FRESH (2 * NS_PER_S) /* an older NOT_READY says nothing about now */
/* At the start a worker that has left is often one of an earlier run, on its way back. */
#define LEFT_MS 10000

static void
begin_run(struct pbox_client *c, struct cmd *cmd)
{
	struct declare *k = (struct declare *)cmd;

	c->declare = k;
	pbox_worker_declare(c->w, &k->d);
}

static void
look_run(struct pbox_client *c, struct cmd *cmd)
{
	struct declare *k = (struct declare *)cmd;

	(void)c;
	k->seen = k->d;
}

static void
declare_end_run(struct pbox_client *c, struct cmd *cmd)
{
	struct declare *k = (struct declare *)cmd;

	k->seen = k->d; /* it may have ended meanwhile */
	pbox_worker_declare_cancel(c->w, &k->d);
	c->declare = NULL;
}

static void
declare_run(
	struct pbox_client *c, struct declare *k, void (*what)(struct pbox_client *, struct cmd *))
{
	k->cmd.run = what;
	cmd_call(c, &k->cmd);
}

static int
declare_not_ready(struct pbox_client *c, const struct pbox_worker_declaration *d,
	struct pbox_client_error *err)
{
	char who[400] = "";

	if (d->first_missing < pbox_worker_workers(c->w)) {
		pbox_text_add(who, sizeof(who), "missing worker %u", d->first_missing);
		waiting_member_text(c, d->first_missing, who, sizeof(who));
	}
	return pbox_client_fail(err, PBOX_C_DEADLINE,
		"MAP of table %u: %u of %u workers joined, %u declared it; %s%s%s%s%s", c->tables,
		d->joined, d->expected, d->declared, who,
		who[0] != 0 && d->box_says[0] != 0 ? "; the box says: " : "", d->box_says,
		d->running.text[0] != 0 ? "; before that, the box said: " : "", d->running.text);
}

/** The wait has ended without a table. */
static int
declare_given_up(struct pbox_client *c, const struct declare *k, struct pbox_client_error *err)
{
	const struct pbox_worker_declaration *d = &k->seen;
	char what[40];

	if (d->running.code != 0)
		return pbox_client_fail(err, d->running.code, "%s", d->running.text);
	if (d->waits && client_clock_ns() - d->wait_ns < ANSWER_FRESH)
		return declare_not_ready(c, d, err);
	snprintf(what, sizeof(what), "%s of table %u", d->asks_map ? "MAP" : "DECLARE", c->tables);
	return waiting_no_answer(c, what, err);
}

/** Sleep until it has ended, or @p until. */
static bool
sleep_on(struct pbox_client *c, const struct declare *k, uint64_t until)
{
	bool expired = false;

	pthread_mutex_lock(&c->lock);
	while (!k->ended && !expired)
		expired = !client_sleep(c, until);
	pthread_mutex_unlock(&c->lock);
	return !expired;
}

/** A run lives and has gone on without this worker for so long that it was not started again as a whole. The others may
 * wait for just this worker: half of the time-out, so that this ends before theirs. */
static bool
declare_kept_out(const struct pbox_client *c, const struct pbox_worker_declaration *d)
{
	return d->running_ns != 0 &&
	       client_clock_ns() - d->running_ns >= c->conf.timeout_ms * NS_PER_MS / 2;
}

/** Wait until it has ended, or the wait is in vain. */
static void
declare_wait_for(struct pbox_client *c, struct declare *k, struct waiting *w)
{
	bool in_vain = false;

	while (!in_vain && client_clock_ns() < w->deadline &&
		!sleep_on(c, k, w->next_ask < w->deadline ? w->next_ask : w->deadline)) {
		struct pbox_worker_wait on;

		declare_run(c, k, look_run);
		on = (struct pbox_worker_wait){
			.missing = -1, .table = c->tables, .chunk = c->tables};
		if (k->seen.waits && k->seen.first_missing < pbox_worker_workers(c->w)) {
			on.missing = (int)k->seen.first_missing;
			on.answered_ns = k->seen.wait_ns;
		}
		if (client_clock_ns() >= w->next_ask)
			in_vain = waiting_ask(c, w, &on, LEFT_MS) || declare_kept_out(c, &k->seen);
	}
	declare_run(c, k, declare_end_run);
}

/** A new table, and room in the list of tables for it. */
static struct table *
table_room(struct pbox_client *c, unsigned tensors)
{
	struct table **list = c->table;
	struct table *t = calloc(1, sizeof(*t) + tensors * sizeof(t->pushed[0]));

	pthread_mutex_lock(&c->lock);
	if (t != NULL && c->tables == c->tables_cap) {
		list = reallocarray(c->table, c->tables_cap * 2 + 8, sizeof(*list));
		if (list != NULL) {
			c->table = list;
			c->tables_cap = c->tables_cap * 2 + 8;
		}
	}
	pthread_mutex_unlock(&c->lock);
	if (list != NULL)
		return t;
	free(t);
	return NULL;
}

static int
declare_locked(struct pbox_client *c, const struct pbox_client_table *d, unsigned timeout_ms,
	uint32_t *table, struct pbox_client_error *err)
{
	struct declare k = {.d = {.what = d}};
	struct table *t = table_room(c, d->n);
	struct waiting w;
	int rc = 0;

	if (t == NULL)
		return pbox_client_fail(err, PBOX_C_MEMORY, "no memory for table %u of %u tensors",
			c->tables, d->n);
	waiting_begin(c, &w, timeout_ms);
	declare_run(c, &k, begin_run);
	declare_wait_for(c, &k, &w);
	if (k.seen.state == PBOX_WORKER_REFUSED)
		rc = pbox_client_fail(err, k.seen.err.code, "%s", k.seen.err.text);
	else if (k.seen.state == PBOX_WORKER_DECLARING)
		rc = declare_given_up(c, &k, err);
	if (rc != 0) {
		free(t);
		return rc;
	}
	t->t = k.seen.table;
	pbox_worker_table_info(t->t, &t->info);
	*table = t->info.number;
	pthread_mutex_lock(&c->lock);
	c->table[c->tables++] = t;
	pthread_mutex_unlock(&c->lock);
	return 0;
}

static void
refusal_run(struct pbox_client *c, struct cmd *cmd)
{
	struct declare_refusal *r = (struct declare_refusal *)cmd;

	r->text[0] = 0;
	if (c->declare != NULL && c->declare->d.running.code != 0)
		pbox_text_add(r->text, sizeof(r->text), "%s", c->declare->d.running.text);
}

void
declare_refusal(struct pbox_client *c, struct declare_refusal *r)
{
	r->cmd = (struct cmd){.run = refusal_run};
	cmd_call(c, &r->cmd);
}

int
pbox_client_declare(struct pbox_client *c, const struct pbox_client_table *t, unsigned timeout_ms,
	uint32_t *table, struct pbox_client_error *err)
{
	int rc;

	if (t == NULL)
		return pbox_client_fail(err, PBOX_C_INVALID, "no description of a table is given");
	rc = pbox_worker_check_table(t, err);
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
