/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>

#include "client_impl.h"

/* Calls of other threads: entry and exit of the library, waiting, commands to the progress thread. */

int
client_enter(struct pbox_client *c, struct pbox_client_error *err)
{
	int rc = 0;

	pthread_mutex_lock(&c->lock);
	if (c->closing)
		rc = pbox_client_fail(err, PBOX_C_CLOSED, "the client was closed");
	else if (c->fatal.code != 0)
		rc = pbox_client_fail(err, c->fatal.code, "%s", c->fatal.text);
	else
		c->users++;
	pthread_mutex_unlock(&c->lock);
	return rc;
}

int
client_enter_text(struct pbox_client *c, char *text, size_t cap, struct pbox_client_error *err)
{
	if (text == NULL || cap == 0)
		return pbox_client_fail(err, PBOX_C_INVALID, "no room for the text");
	text[0] = 0;
	return client_enter(c, err);
}

void
client_leave(struct pbox_client *c)
{
	pthread_mutex_lock(&c->lock);
	assert(c->users > 0);
	c->users--;
	if (c->closing && c->users == 0)
		pthread_cond_broadcast(&c->cond);
	pthread_mutex_unlock(&c->lock);
}

uint64_t
client_deadline(const struct pbox_client *c, unsigned timeout_ms)
{
	return client_clock_ns() + (timeout_ms != 0 ? timeout_ms : c->conf.timeout_ms) * NS_PER_MS;
}

bool
client_sleep(struct pbox_client *c, uint64_t deadline)
{
	struct timespec t = {(time_t)(deadline / NS_PER_S), (long)(deadline % NS_PER_S)};

	return pthread_cond_timedwait(&c->cond, &c->lock, &t) != ETIMEDOUT;
}

struct table *
client_table(struct pbox_client *c, uint32_t table)
{
	struct table *t;

	pthread_mutex_lock(&c->lock);
	t = table < c->tables ? c->table[table] : NULL;
	pthread_mutex_unlock(&c->lock);
	return t;
}

void
cmd_kick(struct pbox_client *c)
{
	if (!atomic_exchange(&c->kicked, true))
		c->t->ops->wake(c->t);
}

void
cmd_issue(struct pbox_client *c, struct cmd *cmd)
{
	pthread_mutex_lock(&c->lock);
	cmd->next = NULL;
	cmd->done = false;
	*c->cmds_tail = cmd;
	c->cmds_tail = &cmd->next;
	pthread_mutex_unlock(&c->lock);
	cmd_kick(c);
}

void
cmd_call(struct pbox_client *c, struct cmd *cmd)
{
	assert(!pthread_equal(pthread_self(), c->thread)); /* it would wait for itself */
	cmd_issue(c, cmd);
	pthread_mutex_lock(&c->lock);
	while (!cmd->done)
		pthread_cond_wait(&c->cond, &c->lock);
	pthread_mutex_unlock(&c->lock);
}

const char *
pbox_client_code_name(int code)
{
	static const char *const name[] = {"OK", "INVALID", "SYSTEM", "UNREACHABLE", "VERSION",
		"NO_JOB", "SECRET", "REFUSED", "MISMATCH", "DEADLINE", "LOST", "MTU", "MEMORY",
		"CLOSED", "RUNNING", "RUN_ENDED", "MORE"};

	if (code == PBOX_C_PENDING)
		return "PENDING";
	return code <= 0 && -code < (int)(sizeof(name) / sizeof(name[0])) ? name[-code] : "?";
}
