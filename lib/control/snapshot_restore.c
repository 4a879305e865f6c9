/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <pbox_reduce.h>

#include "control_priv.h"

/* Where bytes of the arrays go. They come in order. */
struct filling {
	struct pbox_table *t;
	unsigned array;
	uint32_t chunk;
	size_t at; /* bytes of that chunk's array */
};

static uint8_t *
array_of(const struct pbox_chunk *c, unsigned i)
{
	return (uint8_t *)(i == 0 ? c->param : i == 1 ? c->s0 : c->s1);
}

static int
fill(void *ctx, uint64_t from, const uint8_t *bytes, size_t len)
{
	struct filling *f = ctx;

	(void)from;
	while (len > 0) {
		const struct pbox_chunk *c = &f->t->chunk[f->chunk];
		size_t left = (size_t)c->elements * 4 - f->at, n = len < left ? len : left;

		if (bytes != NULL) {
			memcpy(array_of(c, f->array) + f->at, bytes, n);
			bytes += n;
		}
		f->at += n;
		len -= n;
		if (f->at < (size_t)c->elements * 4)
			continue;
		f->at = 0;
		if (++f->chunk == f->t->n_chunks) {
			f->chunk = 0;
			f->array++;
		}
	}
	return 0;
}

/* What answers need: the packed copy, its CRC, the version. */
static void
set_slots(struct pbox_table *t, const struct pbox_snapshot_meta *m)
{
	const struct pbox_snapshot_fragment *v = m->fragment;
	size_t size = pbox_format_size(t->pull_format);

	for (uint32_t i = 0; i < t->n_chunks; i++) {
		struct pbox_chunk *c = &t->chunk[i];

		if (c->wire != NULL)
			pbox_reduce_scalar.pack(
				c->wire, (enum pbox_elem)t->pull_format, c->param, c->elements);
		for (unsigned f = 0; f < c->fragments; f++, v++) {
			size_t first = (size_t)f * t->frag_elements;
			const void *at = c->wire != NULL ? c->wire + first * size
							 : (const uint8_t *)(c->param + first);
			struct pbox_slot *s = &c->slot[f];

			s->version = v->version;
			s->samples = v->samples;
			s->contributors = v->contributors;
			s->payload_crc =
				pbox_crc32c(0, at, pbox_chunk_frag_elements(t, c, f) * size);
			s->has_result = 1;
		}
	}
}

static void
set_schedules(struct pbox_table *t, const struct pbox_snapshot_meta *m)
{
	for (unsigned g = 0; g < t->n_groups; g++) {
		struct pbox_schedule *s = &t->schedule[g];
		uint32_t n = 0;

		for (uint32_t i = 0; i < m->n_entries && n < PBOX_SCHEDULE; i++) {
			const struct pbox_snapshot_entry *e = &m->entry[i];

			if (e->group != g)
				continue;
			s->entry[n++] = (struct pbox_schedule_entry){
				.from_round = e->from_round,
				.set = e->set,
				.hyper = {e->value[0], e->value[1], e->value[2], e->value[3],
					e->value[4], e->value[5], e->value[6], e->value[7],
					e->has_lr},
			};
		}
		if (n > 0)
			atomic_store_explicit(&s->count, n, memory_order_release);
	}
}

/* Hyper-parameters of a file are checked as those of a SET are. */
static bool
sound_schedules(const struct pbox_snapshot_meta *m)
{
	for (uint32_t i = 0; i < m->n_entries; i++) {
		const struct pbox_snapshot_entry *e = &m->entry[i];
		const struct pbox_hyper h = {e->value[0], e->value[1], e->value[2], e->value[3],
			e->value[4], e->value[5], e->value[6], e->value[7], e->has_lr};

		/* the first entry has the defaults, which no optimiser needs to like */
		if (e->set != 0 && pbox_hyper_check(&h, (enum pbox_optim_kind)m->optimiser) != NULL)
			return false;
	}
	return true;
}

/* Once to see that all of it is good, and then into the table. */
static int
take(const char *path, const struct pbox_job *job, struct pbox_table *t, bool restoring)
{
	struct pbox_snapshot_report report;
	struct pbox_snapshot_reader *r;
	struct filling f = {.t = t};
	struct pbox_error err;
	char text[512];
	const char *differs;
	int ret = -EIO;

	r = pbox_snapshot_open(path, &err);
	if (r == NULL) {
		pbox_log(PBOX_LOG_ERROR, "job '%s': %s", job->name, err.text);
		return -EIO;
	}
	differs = snapshot_difference(pbox_snapshot_meta(r), job, t, text, sizeof(text));
	if (differs == NULL && !sound_schedules(pbox_snapshot_meta(r)))
		differs = "a hyper-parameter is out of range";
	if (differs != NULL)
		pbox_log(PBOX_LOG_ERROR, "job '%s': snapshot %s is not of table %u: %s", job->name,
			path, t->id, differs);
	else if (pbox_snapshot_read(r, NULL, NULL, &report, &err) != 0 ||
		 pbox_snapshot_read(r, fill, &f, &report, &err) != 0)
		pbox_log(PBOX_LOG_ERROR, "job '%s': %s", job->name, err.text);
	else
		ret = 0;
	if (ret == 0) {
		set_slots(t, pbox_snapshot_meta(r));
		if (!restoring)
			set_schedules(t, pbox_snapshot_meta(r));
		pbox_log(PBOX_LOG_INFO,
			"job '%s': table %u begins with the snapshot of round %u%s (%s)", job->name,
			t->id, pbox_snapshot_meta(r)->round,
			report.damaged > 0 ? ", parts of it rebuilt from parity" : "", path);
	}
	pbox_snapshot_close(r);
	return ret;
}

static struct snapshot_wish *
wish_of(struct snapshots *s, const struct pbox_job *job)
{
	for (unsigned i = 0; i < s->n_wishes; i++)
		if (strcmp(s->wish[i].job, job->name) == 0) {
			s->wish[i].begun = true;
			s->wish[i].id = job->id;
			return &s->wish[i];
		}
	return NULL;
}

int
snapshot_restore(void *ctx, const struct pbox_job *job, struct pbox_table *t, bool restoring)
{
	struct pbox_control *c = ctx;
	const char *dir = c->conf.snapshot.dir;
	struct pbox_snapshot_file *f = NULL;
	struct pbox_error err;
	int n, ret = -ENOENT;

	if (dir == NULL)
		return -ENOENT;
	if (!restoring && wish_of(&c->snapshots, job) == NULL) {
		pbox_snapshot_set_aside(dir, job->name, t->id);
		return -ENOENT;
	}
	n = pbox_snapshot_list(dir, job->name, t->id, &f, &err);
	for (int i = 0; i < n && ret != 0; i++)
		if (!restoring || !f[i].aside)
			ret = take(f[i].path, job, t, restoring);
	free(f);
	if (n < 0)
		pbox_log(PBOX_LOG_ERROR, "job '%s': %s", job->name, err.text);
	else if (ret == -EIO)
		pbox_log(PBOX_LOG_ERROR, "job '%s': no snapshot of table %u can be used", job->name,
			t->id);
	return ret;
}
