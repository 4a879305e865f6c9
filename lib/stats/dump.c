/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "stats_priv.h"

struct out {
	char *buf;
	size_t size, used; /* used counts what did not fit, too */
	const char *prefix;
	unsigned flags;
	unsigned blocks;
};

static void dump_put(struct out *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void
dump_put(struct out *o, const char *fmt, ...)
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

static const struct {
	const char *name;
	double percent;
} percentiles[] = {{"p50", 50}, {"p90", 90}, {"p99", 99}, {"p999", 99.9}};

#define PERCENTILES (sizeof(percentiles) / sizeof(percentiles[0]))

static bool
left_out(const struct out *o, const struct pbox_stats_block *b)
{
	return o->prefix != NULL && strcmp(o->prefix, b->prefix) != 0;
}

static void
text_hist(struct out *o, const struct pbox_stats_block *b)
{
	struct pbox_hist h = {0};
	uint64_t n;

	pbox_hist_merge(&h, b->hist); /* a copy that stands still */
	n = pbox_hist_count(&h);
	if (n == 0 && (o->flags & PBOX_STATS_NONZERO))
		return;
	dump_put(o, "%s{%s} %s count %" PRIu64 " mean %" PRIu64, b->prefix, b->labels,
		b->defs[0].name, n, n > 0 ? h.sum / n : 0);
	for (unsigned i = 0; i < PERCENTILES; i++)
		dump_put(o, " %s %" PRIu64, percentiles[i].name,
			pbox_hist_percentile(&h, percentiles[i].percent));
	dump_put(o, " max %" PRIu64 " %s\n", h.max, b->defs[0].unit);
}

static int
text_block(const struct pbox_stats_block *b, void *ctx)
{
	struct out *o = ctx;

	if (left_out(o, b))
		return 0;
	if (b->hist != NULL) {
		text_hist(o, b);
		return 0;
	}
	for (unsigned i = 0; i < b->n; i++) {
		uint64_t v = pbox_stat_get(&b->values[i]);

		if (v != 0 || !(o->flags & PBOX_STATS_NONZERO))
			dump_put(o, "%s{%s} %s %" PRIu64 " %s\n", b->prefix, b->labels,
				b->defs[i].name, v, b->defs[i].unit);
	}
	return 0;
}

size_t
pbox_stats_text(
	struct pbox_stats *stats, const char *prefix, unsigned flags, char *buf, size_t size)
{
	struct out o = {.buf = buf, .size = size, .prefix = prefix, .flags = flags};

	if (size > 0)
		buf[0] = '\0';
	pbox_stats_walk(stats, text_block, &o);
	return o.used;
}

/* a=b,c=d -> "a":"b","c":"d"; registration has refused what JSON would have to escape */
static void
json_labels(struct out *o, const char *labels)
{
	const char *sep = "";

	while (*labels != '\0') {
		int key = (int)strcspn(labels, "="), value = (int)strcspn(labels + key + 1, ",");

		dump_put(o, "%s\"%.*s\":\"%.*s\"", sep, key, labels, value, labels + key + 1);
		sep = ",";
		labels += key + 1 + value;
		labels += *labels == ',';
	}
}

static void
json_hist(struct out *o, const struct pbox_stats_block *b)
{
	struct pbox_hist h = {0};
	uint64_t n;

	dump_put(o, "\"histograms\":{");
	pbox_hist_merge(&h, b->hist);
	n = pbox_hist_count(&h);
	if (n > 0 || !(o->flags & PBOX_STATS_NONZERO)) {
		dump_put(o, "\"%s\":{\"unit\":\"%s\",\"count\":%" PRIu64 ",\"sum\":%" PRIu64,
			b->defs[0].name, b->defs[0].unit, n, h.sum);
		for (unsigned i = 0; i < PERCENTILES; i++)
			dump_put(o, ",\"%s\":%" PRIu64, percentiles[i].name,
				pbox_hist_percentile(&h, percentiles[i].percent));
		dump_put(o, ",\"max\":%" PRIu64 "}", h.max);
	}
	dump_put(o, "}}");
}

static int
json_block(const struct pbox_stats_block *b, void *ctx)
{
	struct out *o = ctx;
	const char *sep = "";

	if (left_out(o, b))
		return 0;
	dump_put(o, "%s{\"block\":\"%s\",\"labels\":{", o->blocks++ > 0 ? ",\n" : "", b->prefix);
	json_labels(o, b->labels);
	dump_put(o, "},");
	if (b->hist != NULL) {
		json_hist(o, b);
		return 0;
	}
	dump_put(o, "\"values\":{");
	for (unsigned i = 0; i < b->n; i++) {
		uint64_t v = pbox_stat_get(&b->values[i]);

		if (v == 0 && (o->flags & PBOX_STATS_NONZERO))
			continue;
		dump_put(o, "%s\"%s\":%" PRIu64, sep, b->defs[i].name, v);
		sep = ",";
	}
	dump_put(o, "}}");
	return 0;
}

size_t
pbox_stats_json(
	struct pbox_stats *stats, const char *prefix, unsigned flags, char *buf, size_t size)
{
	struct out o = {.buf = buf, .size = size, .prefix = prefix, .flags = flags};

	dump_put(&o, "[");
	pbox_stats_walk(stats, json_block, &o);
	dump_put(&o, "]\n");
	return o.used;
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
	dump_put(o, "\"%s\":\"", name);
	for (; *text != '\0'; text++)
		dump_put(o, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
	dump_put(o, "\"");
}

size_t
pbox_stats_defs_json(const struct pbox_stats_table *table, unsigned n, char *buf, size_t size)
{
	struct out o = {.buf = buf, .size = size};
	const char *sep = "[";

	for (unsigned t = 0; t < n; t++)
		for (unsigned i = 0; i < table[t].n; i++) {
			const struct pbox_stat_def *d = &table[t].defs[i];

			dump_put(&o,
				"%s{\"block\":\"%s\",\"name\":\"%s\",\"unit\":\"%s\",\"kind\":\"%s\",",
				sep, table[t].block, d->name, d->unit,
				pbox_stat_kind_name(d->kind));
			json_text(&o, "help", d->help);
			dump_put(&o, "}");
			sep = ",\n";
		}
	dump_put(&o, "]\n");
	return o.used;
}
