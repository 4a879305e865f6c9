/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * A job at several boxes whose chunks had moved begins with files that say where each of them was (R16.16). The box reads that when its operator asks
 * for them, and at its start: tables are laid out just so before anything is read into them.
 */

#include <stdlib.h>

#include "control_priv.h"

void
snapshot_homes_free(struct snapshot_homes *h)
{
	while (h != NULL) {
		struct snapshot_homes *next = h->next;

		free(h);
		h = next;
	}
}

static struct snapshot_homes *
homes_find(struct snapshot_homes *h, uint32_t table)
{
	while (h != NULL && h->table != table)
		h = h->next;
	return h;
}

/* NULL: the file cannot be read, or is of a job at one box. Then the table has the homes of map 1, and takes no file that says others. */
static struct snapshot_homes *
homes_of_file(const char *path)
{
	struct snapshot_homes *h = NULL;
	struct pbox_error err;
	struct pbox_snapshot_reader *r = pbox_snapshot_open(path, &err);
	const struct pbox_snapshot_meta *m;

	if (r == NULL) {
		pbox_log(PBOX_LOG_ERROR, "%s", err.text);
		return NULL;
	}
	m = pbox_snapshot_meta(r);
	if (m->boxes > 1)
		h = calloc(1, sizeof(*h) + m->n_homes);
	if (h != NULL) {
		h->table = m->table;
		h->n = m->n_homes;
		h->map = m->map_epoch;
		for (uint32_t i = 0; i < h->n; i++)
			h->box[i] = m->home[i].box;
	}
	pbox_snapshot_close(r);
	return h;
}

struct snapshot_homes *
snapshot_homes_read(const char *dir, const char *job, uint32_t round)
{
	struct snapshot_homes *all = NULL, *h;
	struct pbox_snapshot_file *f = NULL;
	struct pbox_error err;
	int n = pbox_snapshot_list(dir, job, -1, &f, &err);

	/* the newest ones first */
	for (int i = 0; i < n; i++) {
		if (f[i].round != round || homes_find(all, f[i].table) != NULL)
			continue;
		h = homes_of_file(f[i].path);
		if (h == NULL)
			continue;
		h->next = all;
		all = h;
	}
	free(f);
	return all;
}

const uint8_t *
snapshot_homes_of(void *ctx, const struct pbox_job *job, uint32_t table, uint32_t *n, uint16_t *map)
{
	struct pbox_control *c = ctx;
	const struct snapshot_homes *h = NULL;
	const struct snapshot_wish *w;
	struct pbox_job_view view;

	pbox_registrar_view_job(c->registrar, job, &view);
	w = c->snapshots.loader_started ? snapshot_wish_of(&c->snapshots, view.name) : NULL;
	if (w != NULL && w->exact)
		h = homes_find(w->homes, table);
	if (h == NULL || h->map == PBOX_MAP_EPOCH)
		return NULL;
	*n = h->n;
	*map = h->map;
	return h->box;
}

uint16_t
snapshot_homes_mark(const struct pbox_snapshot_meta *m)
{
	uint32_t crc = 0;

	if (m->boxes < 2 || m->map_epoch == PBOX_MAP_EPOCH)
		return 0;
	for (uint32_t i = 0; i <= m->n_homes; i++) {
		const bool all = i == m->n_homes; /* at last the map itself */
		const uint16_t epoch = all ? m->map_epoch : m->home[i].epoch;
		const uint8_t bytes[] = {
			all ? 0 : m->home[i].box, 0, (uint8_t)epoch, (uint8_t)(epoch >> 8)};

		crc = pbox_crc32c(crc, bytes, sizeof(bytes));
	}
	return (uint16_t)(crc ^ crc >> 16);
}
