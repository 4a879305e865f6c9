/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* What an operator reads. A stranger needs no secret to be refused, and no line for each time. */

#include <stdarg.h>
#include <stdio.h>

#include "registrar_impl.h"

#define EVENT_KINDS 48
/* Lines of one kind (a format): anybody may bring some of them about, in any number. So many at once, then one in
 * this time; those left out are counted in the next. */
#define EVENT_BURST 128
#define EVENT_EVERY (500 * NS_PER_MS)

struct event_kind {
	const char *fmt;
	uint64_t empty_ns; /* when its bucket was, or would have been, last empty */
	unsigned left_out;
	enum pbox_log_level level;
};

struct events {
	struct event_kind kind[EVENT_KINDS];
};

/* Of this format; the one of which none came for the longest time where there is no room. */
static struct event_kind *
kind_of(struct pbox_registrar *r, const char *fmt)
{
	struct events *e = registrar_state(r, PART_event);
	struct event_kind *oldest = &e->kind[0];

	for (unsigned i = 0; i < EVENT_KINDS; i++) {
		struct event_kind *k = &e->kind[i];

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

/* Kinds that have gone quiet: how many lines were left out. */
static void
events_tick(struct pbox_registrar *r)
{
	struct events *e = registrar_state(r, PART_event);

	for (unsigned i = 0; i < EVENT_KINDS && e->kind[i].fmt != NULL; i++) {
		struct event_kind *k = &e->kind[i];
		char text[128];

		if (k->left_out == 0 || !event_take(k, r->now_ns))
			continue;
		snprintf(text, sizeof(text), "and %u more lines like \"%.60s\"", k->left_out,
			k->fmt);
		k->left_out = 0;
		r->conf.ops->event(r->conf.ctx, k->level, text);
	}
}

const struct registrar_part registrar_event_part = {
	.name = "events",
	.tick_all = events_tick,
	.state = sizeof(struct events),
};
