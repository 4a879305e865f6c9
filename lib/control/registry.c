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

/* Order is kept: once one waits, all behind it do. */
static void
on_post(void *ctx, const struct pbox_mail *m)
{
	struct pbox_control *c = ctx;
	struct waiting_mail *w;

	if (c->wait_head[m->shard] == NULL && pbox_dp_post(c->conf.dp, m) == 0)
		return;
	w = malloc(sizeof(*w));
	PBOX_ASSERT(w != NULL); /* it must not get lost: the engine counts on it */
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
			free(w);
		}
	}
}

void
control_free_waiting(struct pbox_control *c)
{
	for (unsigned i = 0; i < PBOX_PORT_CORES; i++)
		for (struct waiting_mail *w = c->wait_head[i], *next; w != NULL; w = next) {
			next = w->next;
			free(w);
		}
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
};
