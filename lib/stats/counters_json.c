/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "pbox_stats.h"

/* The definitions of counters as JSON: `pbox --counters`, from which documents and tools are made. */

const char *
pbox_stat_kind_name(enum pbox_stat_kind kind)
{
	return kind == PBOX_STAT_GAUGE ? "gauge" : "counter";
}

/* Texts of definitions are ours: of what JSON would have to escape they have at most quotes. */
static void
json_text(FILE *to, const char *name, const char *text)
{
	fprintf(to, "\"%s\":\"", name);
	for (; *text != '\0'; text++)
		fprintf(to, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
	fputc('"', to);
}

void
pbox_stats_defs_json(const struct pbox_stats_table *table, unsigned n, FILE *to)
{
	const char *sep = "[";

	for (unsigned t = 0; t < n; t++)
		for (unsigned i = 0; i < table[t].n; i++) {
			const struct pbox_stat_def *d = &table[t].defs[i];

			fprintf(to,
				"%s{\"block\":\"%s\",\"name\":\"%s\",\"unit\":\"%s\",\"kind\":\"%s\",",
				sep, table[t].block, d->name, d->unit,
				pbox_stat_kind_name(d->kind));
			json_text(to, "help", d->help);
			fputc('}', to);
			sep = ",\n";
		}
	fputs("]\n", to);
}
