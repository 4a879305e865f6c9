/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>

#include <sodium.h>

#include "control_priv.h"

static void
on_send(void *ctx, const struct pbox_send *s)
{
	struct pbox_control *c = ctx;

	tally(c, pbox_dp_control_send(c->conf.dp, s) == 0 ? PBOX_CT_TX : PBOX_CT_TX_LOST);
}

/* To each core: the mails that open and close a job or a table, change its members and its quotas, of each
 * job that there may be, and some for operators. */
#define ROOM_JOB   8
#define ROOM_OTHER 64

bool
control_room(void *ctx)
{
	struct pbox_control *c = ctx;
	unsigned enough = c->conf.n_cores * (ROOM_JOB * c->conf.registrar.max_jobs + ROOM_OTHER);

	while (c->n_wait_free < enough) {
		struct waiting_mail *w = malloc(sizeof(*w));

		if (w == NULL)
			return false;
		w->next = c->wait_free;
		c->wait_free = w;
		c->n_wait_free++;
	}
	return true;
}

static struct waiting_mail *
take_free(struct pbox_control *c)
{
	struct waiting_mail *w = c->wait_free;

	if (w == NULL)
		return malloc(sizeof(*w));
	c->wait_free = w->next;
	c->n_wait_free--;
	return w;
}

static void
registry_give_back(struct pbox_control *c, struct waiting_mail *w)
{
	w->next = c->wait_free;
	c->wait_free = w;
	c->n_wait_free++;
}

/* Order is kept: once one waits, all behind it do. */
static void
on_post(void *ctx, const struct pbox_mail *m)
{
	struct pbox_control *c = ctx;
	struct waiting_mail *w;

	if (c->wait_head[m->shard] == NULL && pbox_dp_post(c->conf.dp, m) == 0)
		return;
	w = take_free(c);
	/* it must not get lost: the engine counts on it. Members cannot bring it about: they are refused
	 * what needs mails while there is no room (control_room) */
	PBOX_ASSERT(w != NULL);
	*w = (struct waiting_mail){.m = *m};
	*c->wait_tail[m->shard] = w;
	c->wait_tail[m->shard] = &w->next;
}

void
control_post_waiting(struct pbox_control *c)
{
	for (unsigned i = 0; i < c->conf.n_cores; i++) {
		struct waiting_mail *w;

		while ((w = c->wait_head[i]) != NULL && pbox_dp_post(c->conf.dp, &w->m) == 0) {
			c->wait_head[i] = w->next;
			if (w->next == NULL)
				c->wait_tail[i] = &c->wait_head[i];
			registry_give_back(c, w);
		}
	}
}

static void
free_list(struct waiting_mail *w)
{
	while (w != NULL) {
		struct waiting_mail *next = w->next;

		free(w);
		w = next;
	}
}

void
control_free_waiting(struct pbox_control *c)
{
	for (unsigned i = 0; i < PBOX_PORT_CORES; i++)
		free_list(c->wait_head[i]);
	free_list(c->wait_free);
}

static void
on_random(void *ctx, void *buf, size_t n)
{
	(void)ctx;
	randombytes_buf(buf, n);
}

static void
on_event(void *ctx, enum pbox_log_level level, const char *text)
{
	(void)ctx;
	pbox_log(level, "%s", text);
}

const struct pbox_registrar_ops control_registrar_ops = {
	.send = on_send,
	.post = on_post,
	.random = on_random,
	.event = on_event,
	.restore = snapshot_restore,
	.room = control_room,
	.restore_cancel = snapshot_restore_cancel,
	.restore_text = snapshot_restore_text,
};
