/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* A snapshot file's parameters and state are put into the tables of a job (thread: snapshot_loader.c). */

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <pbox_reduce.h>

#include "control_priv.h"

/* Where bytes of the arrays go. They come in order. */
struct filling {
	struct snapshot_load *l;
	const struct pbox_table *t;
	unsigned array;
	uint32_t chunk;
	size_t at; /* bytes of that chunk's array */
};

static uint8_t *
restore_array_of(const struct pbox_table *t, const struct pbox_chunk *c, unsigned i)
{
	return (uint8_t *)(i == 0 ? c->param : pbox_chunk_state(t, c, i));
}

/* The first one from @p i on that this box has. */
static uint32_t
chunk_here(const struct pbox_table *t, uint32_t i)
{
	while (i < t->n_chunks && t->chunk[i].endpoint == PBOX_ELSEWHERE)
		i++;
	return i;
}

static int
restore_fill(void *ctx, uint64_t from, const uint8_t *bytes, size_t len)
{
	struct filling *f = ctx;

	if (atomic_load_explicit(&f->l->give_up, memory_order_relaxed))
		return -ECANCELED;
	atomic_store_explicit(&f->l->at, from, memory_order_relaxed);
	/* lost: no more of it is needed, the report names the damage */
	if (bytes == NULL)
		return 0;
	while (len > 0) {
		const struct pbox_chunk *c = &f->t->chunk[f->chunk];
		size_t left = (size_t)c->elements * 4 - f->at, n = len < left ? len : left;

		memcpy(restore_array_of(f->t, c, f->array) + f->at, bytes, n);
		bytes += n;
		f->at += n;
		len -= n;
		if (f->at < (size_t)c->elements * 4)
			continue;
		f->at = 0;
		f->chunk = chunk_here(f->t, f->chunk + 1);
		if (f->chunk == f->t->n_chunks) {
			f->chunk = chunk_here(f->t, 0);
			f->array++;
		}
	}
	return 0;
}

/* What answers need: the packed copy, its CRC, the version. False: given up. */
static bool
restore_set_fragments(const struct snapshot_load *l, const struct pbox_snapshot_meta *m)
{
	const struct pbox_table *t = l->of.t;
	const struct pbox_snapshot_fragment *v = m->fragment;

	for (uint32_t i = chunk_here(t, 0); i < t->n_chunks; i = chunk_here(t, i + 1)) {
		struct pbox_chunk *c = &t->chunk[i];

		if (atomic_load_explicit(&l->give_up, memory_order_relaxed))
			return false;
		bool plain = pbox_format_is_block(t->pull_format);

		if (c->wire != NULL && !plain)
			pbox_reduce_scalar.pack(c->wire, t->pull_format, c->param, c->elements);
		for (unsigned f = 0; f < c->fragments; f++, v++) {
			size_t first = (size_t)f * t->frag_elements;
			const void *at =
				c->wire != NULL && !plain
					? (const void *)pbox_chunk_frag_wire(t, c, f)
					: (c->replica != NULL ? c->replica : c->param) + first;
			struct pbox_fragment *s = &c->fragment[f];

			s->version = v->version;
			s->samples = v->samples;
			s->contributors = v->contributors;
			s->payload_crc = pbox_crc32c(0, at,
				pbox_payload_bytes(plain ? PBOX_FMT_FP32 : t->pull_format,
					pbox_chunk_frag_elements(t, c, f)));
			s->has_result = 1;
			s->plain = c->replica != NULL ? PBOX_PLAIN_NEXT : plain;
		}
	}
	return true;
}

/* The SETs of one group, as they were. */
static void
set_schedule(struct pbox_schedule *s, unsigned group, const struct pbox_snapshot_meta *m)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < m->n_entries && n < PBOX_SCHEDULE; i++) {
		const struct pbox_snapshot_entry *e = &m->entry[i];

		if (e->group == group)
			s->entry[n++] = (struct pbox_schedule_entry){
				.from_round = e->from_round,
				.set = e->set,
				.hyper = snapshot_hyper(e),
			};
	}
	if (n > 0)
		atomic_store_explicit(&s->count, n, memory_order_release);
}

/* Workers that restore a table repeat their SETs. What a worker had set that is gone holds as it did in the round after
 * the snapshot: as what holds without a SET, so that it agrees with all of theirs. */
static void
set_without_set(struct pbox_schedule *s, unsigned group, const struct pbox_snapshot_meta *m)
{
	const struct pbox_snapshot_entry *holds = NULL;

	for (uint32_t i = 0; i < m->n_entries; i++) {
		const struct pbox_snapshot_entry *e = &m->entry[i];

		if (e->group == group &&
			(holds == NULL || pbox_serial_diff(e->from_round, m->round + 1) <= 0))
			holds = e;
	}
	if (holds == NULL)
		return;
	s->entry[0] = (struct pbox_schedule_entry){.hyper = snapshot_hyper(holds)};
	atomic_store_explicit(&s->count, 1, memory_order_release);
}

static void
set_schedules(const struct pbox_table *t, const struct pbox_snapshot_meta *m, bool restoring)
{
	for (unsigned g = 0; g < t->n_groups; g++)
		if (restoring)
			set_without_set(&t->schedule[g], g, m);
		else
			set_schedule(&t->schedule[g], g, m);
}

/* Hyper-parameters of a file are checked as those of a SET are. */
static bool
sound_schedules(const struct pbox_snapshot_meta *m)
{
	for (uint32_t i = 0; i < m->n_entries; i++) {
		const struct pbox_snapshot_entry *e = &m->entry[i];
		const struct pbox_hyper h = snapshot_hyper(e);

		/* the first entry has the defaults, which no optimiser needs to like */
		if (e->set != 0 && pbox_hyper_check(&h, m->optimiser) != NULL)
			return false;
	}
	return true;
}

/* What was filled is as it was: nobody sees a part of a file. */
static void
restore_clear(const struct filling *f)
{
	const struct pbox_table *t = f->t;

	for (unsigned k = 0; k <= f->array && k < 1 + pbox_table_states(t); k++)
		for (uint32_t i = chunk_here(t, 0);
			i < t->n_chunks && (k < f->array || i <= f->chunk);
			i = chunk_here(t, i + 1))
			memset(restore_array_of(t, &t->chunk[i], k), 0,
				(size_t)t->chunk[i].elements * 4);
}

/* One pass over the file: each block is verified before it goes into the table, which nobody looks at until all of it
 * is there. */
static int
restore_read_into(struct pbox_snapshot_reader *r, struct snapshot_load *l, const char *path,
	struct pbox_error *err)
{
	const struct pbox_snapshot_meta *m = pbox_snapshot_meta(r);
	struct filling f = {.l = l, .t = l->of.t, .chunk = chunk_here(l->of.t, 0)};
	struct pbox_snapshot_report report;
	int ret;

	atomic_store(&l->at, 0);
	atomic_store(&l->bytes, m->elements * m->arrays * 4);
	ret = pbox_snapshot_read(r, restore_fill, &f, &report, err);
	/* its job ends, and memory of jobs that have ended is cleared before anybody gets it */
	if (ret == -ECANCELED)
		return ret;
	if (ret != 0) {
		restore_clear(&f);
		return -EIO;
	}
	if (!restore_set_fragments(l, m))
		return -ECANCELED;
	set_schedules(l->of.t, m, l->restoring);
	l->round = m->round;
	pbox_log(PBOX_LOG_INFO, "job '%s': table %u begins with the snapshot of round %u%s (%s)",
		l->of.name, l->of.t->id, m->round,
		report.damaged > 0 ? ", parts of it rebuilt from parity" : "", path);
	return 0;
}

/* Files of several boxes are of one run and one map: workers compare (R16.16). */
static uint16_t
mark_of(const struct pbox_snapshot_meta *m)
{
	uint16_t mark = (uint16_t)(m->run ^ m->run >> 16 ^ m->run >> 32 ^ m->run >> 48);

	mark ^= snapshot_homes_mark(m);
	return m->boxes == 0 ? 0 : mark == 0 ? 1 : mark;
}

/* 0, -EIO, -ECANCELED */
static int
restore_take(const char *path, struct snapshot_load *l)
{
	struct pbox_snapshot_reader *r;
	struct pbox_error err;
	char text[384];
	const char *differs;
	int ret = -EIO;

	r = pbox_snapshot_open(path, &err);
	if (r == NULL) {
		l->err = err;
		pbox_log(PBOX_LOG_ERROR, "job '%s': %s", l->of.name, err.text);
		return -EIO;
	}
	differs = snapshot_difference(pbox_snapshot_meta(r), &l->of, text, sizeof(text));
	if (differs == NULL && !sound_schedules(pbox_snapshot_meta(r)))
		differs = "a hyper-parameter is out of range";
	if (differs != NULL)
		pbox_fail(&err, EINVAL, "snapshot %.80s is not of table %u: %s", path, l->of.t->id,
			differs);
	else
		ret = restore_read_into(r, l, path, &err);
	if (ret == 0)
		l->of.t->mark = mark_of(pbox_snapshot_meta(r));
	if (ret == -EIO) {
		l->err = err;
		pbox_log(PBOX_LOG_ERROR, "job '%s': %s", l->of.name, err.text);
	}
	pbox_snapshot_close(r);
	return ret;
}

/* Workers bring their parameters: what the file adds to them must be of their run, and not of one that has begun or
 * ended meanwhile. */
static bool
is_of_run(const struct pbox_snapshot_file *f, const struct pbox_table_parts *of)
{
	if (f->aside)
		return false;
	if (!of->run_reported || f->run == 0 || f->run == of->run)
		return true;
	pbox_log(PBOX_LOG_WARN,
		"job '%s': snapshot %s is of run %" PRIu64 ", and run %" PRIu64
		" goes on: it is left alone",
		of->name, f->path, f->run, of->run);
	return false;
}

void
snapshot_load(const char *dir, struct snapshot_load *l)
{
	const char *job = l->of.name;
	struct pbox_snapshot_file *f = NULL;
	uint32_t table = l->of.t->id;
	struct pbox_error err;
	int n;

	l->ret = -ENOENT;
	/* what one box of several had of its run is of an older round than what the others have (R16.16) */
	if (l->restoring && l->of.t->boxes > 1)
		return;
	if (!l->restoring && !l->wished) {
		/* after a restart of the box they would be taken for this run's, and later ones would replace them */
		if (pbox_snapshot_set_aside(dir, job, table, &l->err) < 0)
			l->ret = -EEXIST;
		return;
	}
	n = pbox_snapshot_list(dir, job, table, &f, &err);
	for (int i = 0; i < n && l->ret != 0 && l->ret != -ECANCELED; i++)
		if ((!l->restoring || is_of_run(&f[i], &l->of)) &&
			(!l->exact || f[i].round == l->of_round))
			l->ret = restore_take(f[i].path, l);
	free(f);
	if (n < 0) {
		pbox_log(PBOX_LOG_ERROR, "job '%s': %s", job, err.text);
		l->err = err;
		l->ret = -EIO;
	}
	if (l->ret == -EIO)
		pbox_log(PBOX_LOG_ERROR, "job '%s': no snapshot of table %u can be used", job,
			table);
}
