/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* What an operator reads. A stranger needs no secret to be refused, and no line for each time. */

#include <stdarg.h>
#include <stdio.h>

#include "registrar_impl.h"

/* Of this format; the one of which none came for the longest time where there is no room. */
static struct event_kind *
kind_of(struct pbox_registrar *r, const char *fmt)
{
	struct event_kind *oldest = &r->event[0];

	for (unsigned i = 0; i < EVENT_KINDS; i++) {
		struct event_kind *k = &r->event[i];

		if (k->fmt == fmt)
			return k;
		if (k->fmt == NULL || (oldest->fmt != NULL && k->empty_ns < oldest->empty_ns))
			oldest = k;
		if (k->fmt == NULL)
			break;
	}
	*oldest = (struct event_kind){.fmt = fmt};
	return oldest;
}

static bool
event_take(struct event_kind *k, uint64_t now_ns)
{
	uint64_t full = EVENT_BURST * EVENT_EVERY;

	if (k->empty_ns == 0 || now_ns - k->empty_ns > full)
		k->empty_ns = now_ns > full ? now_ns - full : 1;
	if (now_ns < k->empty_ns + EVENT_EVERY)
		return false;
	k->empty_ns += EVENT_EVERY;
	return true;
}

void
registrar_event(struct pbox_registrar *r, enum pbox_log_level level, const char *fmt, ...)
{
	struct event_kind *k;
	char text[512], more[576];
	va_list ap;

	if (r->conf.ops->event == NULL)
		return;
	k = kind_of(r, fmt);
	k->level = level;
	if (!event_take(k, r->now_ns)) {
		k->left_out++;
		return;
	}
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	snprintf(more, sizeof(more), k->left_out > 0 ? "%s (and %u more like it)" : "%s", text,
		k->left_out);
	k->left_out = 0;
	r->conf.ops->event(r->conf.ctx, level, more);
}

void
registrar_events_tick(struct pbox_registrar *r)
{
	for (unsigned i = 0; i < EVENT_KINDS && r->event[i].fmt != NULL; i++) {
		struct event_kind *k = &r->event[i];
		char text[128];

		if (k->left_out == 0 || !event_take(k, r->now_ns))
			continue;
		snprintf(text, sizeof(text), "and %u more lines like \"%.60s\"", k->left_out,
			k->fmt);
		k->left_out = 0;
		r->conf.ops->event(r->conf.ctx, k->level, text);
	}
}
