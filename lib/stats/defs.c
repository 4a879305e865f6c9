/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>

#include "pbox_stats.h"

/* The definitions of counters as JSON: `pbox --counters`, from which documents and tools are made. */

struct out {
	char *buf;
	size_t size, used; /* used counts what did not fit, too */
};

static void defs_put(struct out *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void
defs_put(struct out *o, const char *fmt, ...)
{
	va_list ap;
	size_t room = o->used < o->size ? o->size - o->used : 0;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(room > 0 ? o->buf + o->used : NULL, room, fmt, ap);
	va_end(ap);
	if (n > 0)
		o->used += (size_t)n;
}

const char *
pbox_stat_kind_name(enum pbox_stat_kind kind)
{
	return kind == PBOX_STAT_GAUGE ? "gauge" : "counter";
}

/* Texts of definitions are ours: of what JSON would have to escape they have at most quotes. */
static void
json_text(struct out *o, const char *name, const char *text)
{
	defs_put(o, "\"%s\":\"", name);
	for (; *text != '\0'; text++)
		defs_put(o, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
	defs_put(o, "\"");
}

size_t
pbox_stats_defs_json(const struct pbox_stats_table *table, unsigned n, char *buf, size_t size)
{
	struct out o = {.buf = buf, .size = size};
	const char *sep = "[";

	for (unsigned t = 0; t < n; t++)
		for (unsigned i = 0; i < table[t].n; i++) {
			const struct pbox_stat_def *d = &table[t].defs[i];

			defs_put(&o,
				"%s{\"block\":\"%s\",\"name\":\"%s\",\"unit\":\"%s\",\"kind\":\"%s\",",
				sep, table[t].block, d->name, d->unit,
				pbox_stat_kind_name(d->kind));
			json_text(&o, "help", d->help);
			defs_put(&o, "}");
			sep = ",\n";
		}
	defs_put(&o, "]\n");
	return o.used;
}
