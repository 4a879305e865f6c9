/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <sodium.h>

#include "control_priv.h"

static void
on_send(void *ctx, const struct pbox_send *s)
{
	struct pbox_control *c = ctx;

	tally(c, pbox_dp_control_send(c->conf.dp, s) == 0 ? PBOX_CT_TX : PBOX_CT_TX_LOST);
}

static void
on_post(void *ctx, const struct pbox_mail *m)
{
	struct pbox_control *c = ctx;

	pbox_dp_post(c->conf.dp, m);
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

/* What a table begins with is a snapshot's, or the upper box's. */
static int
registry_restore(void *ctx, const struct pbox_job *job, struct pbox_table *t, bool restoring)
{
	const struct pbox_control *c = ctx;

	return c->uplinks != NULL ? uplink_restore(ctx, job, t, restoring)
				  : snapshot_restore(ctx, job, t, restoring);
}

static void
registry_restore_cancel(void *ctx, const struct pbox_job *job, uint32_t table)
{
	const struct pbox_control *c = ctx;

	if (c->uplinks != NULL)
		uplink_restore_cancel(ctx, job, table);
	else
		snapshot_restore_cancel(ctx, job, table);
}

static void
registry_restore_text(void *ctx, const struct pbox_job *job, uint32_t table, char *text, size_t cap)
{
	const struct pbox_control *c = ctx;

	if (c->uplinks != NULL)
		uplink_restore_text(ctx, job, table, text, cap);
	else
		snapshot_restore_text(ctx, job, table, text, cap);
}

const struct pbox_registrar_ops control_registrar_ops = {
	.send = on_send,
	.post = on_post,
	.random = on_random,
	.event = on_event,
	.restore = registry_restore,
	.homes = snapshot_homes_of,
	.restore_cancel = registry_restore_cancel,
	.restore_text = registry_restore_text,
	.uplink = uplink_join,
	.uplink_begin = uplink_begin,
	.uplink_end = uplink_end,
	.uplink_restored = uplink_restored,
};
