/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "pbox_stats.h"

struct pbox_stats {
	pthread_mutex_t lock;
	unsigned capacity;
	unsigned n;
	struct pbox_stats_block blocks[];
};

struct pbox_stats *
pbox_stats_new(unsigned capacity)
{
	struct pbox_stats *stats;
	size_t size;

	if (!pbox_size_madd(capacity, sizeof(stats->blocks[0]), sizeof(*stats), &size))
		return NULL;
	stats = calloc(1, size);
	if (stats == NULL)
		return NULL;
	pthread_mutex_init(&stats->lock, NULL);
	stats->capacity = capacity;
	return stats;
}

void
pbox_stats_free(struct pbox_stats *stats)
{
	if (stats == NULL)
		return;
	pthread_mutex_destroy(&stats->lock);
	free(stats);
}

/* Length of the lower_snake word at s, 0 if there is none. Exporters take exactly these names. */
static size_t
word_length(const char *s)
{
	size_t n = 0;

	if (*s < 'a' || *s > 'z')
		return 0;
	while ((s[n] >= 'a' && s[n] <= 'z') || (s[n] >= '0' && s[n] <= '9') || s[n] == '_')
		n++;
	return n;
}

static bool
is_name(const char *s)
{
	size_t n = s != NULL ? word_length(s) : 0;

	return n > 0 && s[n] == '\0' && n <= PBOX_STATS_NAME_MAX;
}

static bool
are_labels(const char *s)
{
	if (strlen(s) > PBOX_STATS_LABELS_MAX)
		return false;
	while (*s != '\0') {
		size_t n = word_length(s);

		if (n == 0 || s[n] != '=')
			return false;
		s += n + 1;
		n = 0;
		while (s[n] >= 0x20 && s[n] < 0x7f && strchr(",=\"\\", s[n]) == NULL)
			n++;
		if (n == 0)
			return false;
		s += n;
		if (*s == ',' && s[1] != '\0')
			s++;
		else if (*s != '\0')
			return false;
	}
	return true;
}

static int
check_block(const struct pbox_stats_block *b, const char *prefix, const char *labels,
	struct pbox_error *err)
{
	if (!is_name(prefix))
		return pbox_fail(err, EINVAL, "'%s' cannot be the prefix of statistics", prefix);
	if (!are_labels(labels))
		return pbox_fail(err, EINVAL, "'%s' cannot be labels of statistics", labels);
	if (b->n == 0)
		return pbox_fail(err, EINVAL, "statistics block '%s' is empty", prefix);
	for (unsigned i = 0; i < b->n; i++) {
		const struct pbox_stat_def *d = &b->defs[i];

		if (!is_name(d->name) || d->unit == NULL || d->help == NULL)
			return pbox_fail(err, EINVAL,
				"statistic %u of '%s' has no proper name, unit or help", i, prefix);
		for (unsigned j = 0; j < i; j++)
			if (strcmp(d->name, b->defs[j].name) == 0)
				return pbox_fail(err, EINVAL,
					"statistic '%s' of '%s' is there twice", d->name, prefix);
	}
	return 0;
}

int
pbox_stats_register(struct pbox_stats *stats, const char *prefix, const char *labels,
	const struct pbox_stat_def *defs, unsigned n, const uint64_t *values,
	struct pbox_error *err)
{
	struct pbox_stats_block b = {.defs = defs, .n = n, .values = values};
	int ret = check_block(&b, prefix, labels, err);

	if (ret != 0)
		return ret;
	memcpy(b.prefix, prefix, strlen(prefix) + 1);
	memcpy(b.labels, labels, strlen(labels) + 1);
	pthread_mutex_lock(&stats->lock);
	for (unsigned i = 0; i < stats->n; i++)
		if (strcmp(stats->blocks[i].prefix, prefix) == 0 &&
			strcmp(stats->blocks[i].labels, labels) == 0) {
			ret = pbox_fail(err, EEXIST, "statistics %s{%s} are registered already",
				prefix, labels);
			goto out;
		}
	if (stats->n == stats->capacity) {
		ret = pbox_fail(err, ENOSPC,
			"no room for statistics %s{%s}: all %u blocks are used", prefix, labels,
			stats->capacity);
		goto out;
	}
	stats->blocks[stats->n++] = b;
out:
	pthread_mutex_unlock(&stats->lock);
	return ret;
}

int
pbox_stats_walk(struct pbox_stats *stats,
	int (*fn)(const struct pbox_stats_block *block, void *ctx), void *ctx)
{
	int ret = 0;

	pthread_mutex_lock(&stats->lock);
	for (unsigned i = 0; i < stats->n && ret == 0; i++)
		ret = fn(&stats->blocks[i], ctx);
	pthread_mutex_unlock(&stats->lock);
	return ret;
}

struct total {
	const char *prefix, *name;
	uint64_t sum;
};

static int
total_block(const struct pbox_stats_block *b, void *ctx)
{
	struct total *t = ctx;

	for (unsigned i = 0; i < b->n; i++)
		if (strcmp(b->prefix, t->prefix) == 0 && strcmp(b->defs[i].name, t->name) == 0)
			t->sum += pbox_stat_get(&b->values[i]);
	return 0;
}

uint64_t
pbox_stats_total(struct pbox_stats *stats, const char *prefix, const char *name)
{
	struct total t = {.prefix = prefix, .name = name};

	pbox_stats_walk(stats, total_block, &t);
	return t.sum;
}
