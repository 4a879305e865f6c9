/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <string.h>

#include "conf_priv.h"

typedef void (*differ_report)(void *ctx, enum pbox_conf_change what,
	const struct pbox_conf_section *section, const struct pbox_conf_option *option,
	const char *text);

static bool
differ_same(const struct pbox_conf_option *o, const void *a, const void *b)
{
	const struct pbox_conf_secret *x = a, *y = b;
	char old[PBOX_CONF_LINE_MAX], now[PBOX_CONF_LINE_MAX];

	if (o->type == PBOX_CONF_SECRET)
		return x->len == y->len && memcmp(x->bytes, y->bytes, x->len) == 0;
	conf_format(o, a, old, sizeof(old));
	conf_format(o, b, now, sizeof(now));
	return strcmp(old, now) == 0;
}

/* The item of that name; false: there is none. */
static bool
differ_find(const struct pbox_conf *conf, unsigned section, const char *name, struct conf_item *it)
{
	*it = (struct conf_item){section, 0};
	if (section == 0)
		return true;
	for (; it->item < conf_count(conf, section); it->item++)
		if (strcmp(conf_base(conf, *it), name) == 0)
			return true;
	return false;
}

static void
differ_options(const struct pbox_conf *old, struct conf_item a, const struct pbox_conf *now,
	struct conf_item b, differ_report report, void *ctx)
{
	const struct pbox_conf_section *s = &now->table->sections[b.section];
	char text[256];

	for (unsigned i = 0; i < s->n_options; i++) {
		const struct pbox_conf_option *o = &s->options[i];
		const char *value = conf_base(now, b) + o->offset;

		if (!differ_same(o, conf_base(old, a) + o->offset, value))
			report(ctx, PBOX_CONF_CHANGED, s, o,
				pbox_conf_where(now, value, text, sizeof(text)));
	}
}

void
pbox_conf_differ(
	const struct pbox_conf *old, const struct pbox_conf *now, differ_report report, void *ctx)
{
	const struct pbox_conf_table *t = now->table;
	char text[256];

	PBOX_ASSERT(old->table == t);
	for (unsigned s = 0; s < t->n_sections; s++) {
		struct conf_item a, b = {s, 0};

		for (; b.item < conf_count(now, s); b.item++) {
			const char *item = conf_base(now, b);

			if (differ_find(old, s, item, &a))
				differ_options(old, a, now, b, report, ctx);
			else
				report(ctx, PBOX_CONF_NEW, &t->sections[s], NULL,
					pbox_conf_where(now, item, text, sizeof(text)));
		}
		a = (struct conf_item){s, 0};
		for (; a.item < conf_count(old, s); a.item++)
			if (!differ_find(now, s, conf_base(old, a), &b))
				report(ctx, PBOX_CONF_GONE, &t->sections[s], NULL,
					pbox_conf_where(
						old, conf_base(old, a), text, sizeof(text)));
	}
}
