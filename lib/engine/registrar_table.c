/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "registrar_impl.h"

/* Tensors of one table: what a DECLARE may make the box remember. */
#define MAX_TENSORS (1u << 20)

static const char *
bad_declare(const struct pbox_declare *m, uint32_t n_tables)
{
	bool optimiser = m->mode == PBOX_MODE_OPTIMISER;

	if (m->table > n_tables)
		return "tables are declared in order, from 0";
	if (m->table >= PBOX_MAX_TABLES || m->table >= UINT32_MAX >> PBOX_CHUNK_BITS)
		return "too many tables in one job";
	if (m->tensors > MAX_TENSORS)
		return "too many tensors in one table";
	if (m->first > m->tensors || m->count > m->tensors - m->first)
		return "the page lies beyond the table";
	if (m->mode > PBOX_MODE_OPTIMISER || m->op > PBOX_OP_WEIGHTED_MEAN)
		return "unknown mode or operation";
	if (optimiser != (m->optimiser != PBOX_OPT_NONE) || m->optimiser > PBOX_OPT_ADAMW)
		return "mode and optimiser do not fit";
	if (pbox_format_size(m->push_format) == 0 || pbox_format_size(m->pull_format) == 0)
		return "unknown element format";
	return NULL;
}

/* Smallest MTU of the box and all workers; they are all there when a table is complete. */
static unsigned
job_mtu(const struct pbox_registrar *r, const struct pbox_job *job)
{
	unsigned mtu = r->conf.mtu;

	for (unsigned w = 0; w < job->workers; w++)
		if (job->member[w].mtu != 0 && job->member[w].mtu < mtu)
			mtu = job->member[w].mtu;
	return mtu;
}

void
registrar_fail_table(struct pbox_registrar *r, struct pbox_job *job, struct pbox_job_table *jt,
	const struct pbox_error *err, int code, uint16_t by)
{
	if (jt->failed)
		return;
	jt->failed = true;
	jt->error = *err;
	jt->error.code = code;
	jt->failed_by = by;
	registrar_event(r, PBOX_LOG_WARN, "job '%s': %s", job->name, err->text);
}

/* Not 0 where it began with a snapshot: these rounds are finished. */
static uint32_t
highest_version(const struct pbox_table *t)
{
	uint32_t max = 0;

	for (uint32_t i = 0; i < t->n_chunks; i++)
		for (unsigned f = 0; f < t->chunk[i].fragments; f++)
			if (pbox_serial_diff(t->chunk[i].slot[f].version, max) > 0)
				max = t->chunk[i].slot[f].version;
	return max;
}

/* All workers have declared it: lay out, place, allocate, hand to the shards. */
static void
build_table(struct pbox_registrar *r, struct pbox_job *job, struct pbox_job_table *jt)
{
	const struct pbox_declare *d = &jt->fixed;
	unsigned mtu = job_mtu(r, job), room = mtu - (job->auth != NULL ? PBOX_TAG_LEN : 0);
	size_t quota = SIZE_MAX;
	struct pbox_error err;
	int ret;

	jt->t = (struct pbox_table){
		.id = d->table,
		.mode = d->mode,
		.op = d->op,
		.optimiser = d->optimiser,
		.push_format = d->push_format,
		.pull_format = d->pull_format,
		.frag_elements = pbox_frag_elements(room, d->push_format, d->pull_format),
		.init_elements = pbox_init_elements(room),
		.first_chunk_id = d->table << PBOX_CHUNK_BITS,
	};
	if (job->conf->memory != 0)
		quota = job->conf->memory > job->bytes ? job->conf->memory - job->bytes : 0;
	ret = pbox_table_build(&jt->t, jt->tensor, d->tensors, r->conf.chunk_elements, r->place,
		r->conf.n_endpoints, r->conf.arena, r->load, quota, &err);
	if (ret < 0) {
		registrar_fail_table(r, job, jt, &err,
			ret == -E2BIG ? PBOX_E_FULL : PBOX_E_NO_MEMORY, PBOX_NO_WORKER);
		return;
	}
	jt->built = true;
	if (mtu > job->map_mtu)
		job->map_mtu = (uint16_t)mtu;
	job->bytes += jt->t.bytes;
	pbox_stat_add(&r->stats[PBOX_RS_TABLES], 1);
	pbox_job_table_settle(jt, job->workers);
	registrar_restore_begin(r, job, jt);
	registrar_event(r, PBOX_LOG_INFO,
		"job '%s': table %u is mapped: %u tensors, %llu elements, %u chunks, %zu bytes",
		job->name, d->table, d->tensors, (unsigned long long)jt->t.layout.elements,
		jt->t.n_chunks, jt->t.bytes);
	for (unsigned i = 0; i < r->conf.n_shards; i++) {
		struct pbox_mail m = {.kind = PBOX_MAIL_OPEN_TABLE,
			.shard = (uint16_t)i,
			.job = job->shard[i],
			.table = shard_table_create(&jt->t)};

		PBOX_ASSERT(m.table != NULL);
		atomic_store_explicit(&m.table->max_round,
			jt->restoring ? 0 : highest_version(&jt->t), memory_order_relaxed);
		registrar_restore_shard(r, jt, i, m.table);
		r->conf.ops->post(r->conf.ctx, &m);
	}
}

/* One page; 0 or a protocol error with err filled. */
static int
take_page(struct pbox_job_table *jt, unsigned w, const struct pbox_declare *m,
	struct pbox_cursor *cur, struct pbox_error *err)
{
	if (pbox_job_table_same(jt, (uint16_t)w, m, err) < 0)
		return PBOX_E_MISMATCH;
	for (unsigned i = 0; i < m->count; i++) {
		struct pbox_tensor_entry e;

		if (pbox_declare_next(cur, &e) < 0) {
			pbox_fail(err, PBOX_E_BAD_REQUEST, "the page ends within tensor %u",
				m->first + i);
			return PBOX_E_BAD_REQUEST;
		}
		if (e.group >= PBOX_MAX_GROUPS) {
			pbox_fail(err, PBOX_E_BAD_REQUEST, "tensor %u: group %u, at most %u",
				m->first + i, e.group, PBOX_MAX_GROUPS - 1);
			return PBOX_E_BAD_REQUEST;
		}
		if (pbox_job_table_declare(jt, (uint16_t)w, m->first + i, &e, err) < 0)
			return err->code == ENOMEM ? PBOX_E_NO_MEMORY : PBOX_E_MISMATCH;
	}
	return 0;
}

/* All workers are here and have declared it. Counted anew each time: workers come and go. Those that
 * the job goes on without are not waited for, but there must be somebody. */
static bool
all_declared(const struct pbox_job *job, uint32_t table)
{
	unsigned n = 0;

	for (unsigned w = 0; w < job->workers; w++) {
		const struct pbox_member *mb = &job->member[w];

		if (mb->removed)
			continue;
		if ((mb->state != PBOX_MEMBER_JOINED && mb->state != PBOX_MEMBER_SILENT) ||
			mb->declared <= table)
			return false;
		n++;
	}
	return n > 0;
}

/* Those that waited only for a worker that is removed now. */
void
registrar_build_tables(struct pbox_registrar *r, struct pbox_job *job)
{
	for (uint32_t i = 0; i < job->n_tables; i++)
		if (!job->table[i]->built && !job->table[i]->failed && all_declared(job, i))
			build_table(r, job, job->table[i]);
}

void
registrar_on_declare(struct pbox_registrar *r, const struct pbox_frame *f, struct pbox_job *job)
{
	struct pbox_member *mb = &job->member[f->hdr.worker];
	struct pbox_declared a;
	struct pbox_declare m;
	struct pbox_cursor cur;
	struct pbox_job_table *jt;
	struct pbox_error err;
	const char *bad;
	int code;

	if (pbox_declare_decode(f->payload, f->hdr.length, &m, &cur) < 0) {
		count_control(r, PBOX_RS_DROP_MALFORMED);
		return;
	}
	count_control(r, PBOX_RS_RX_DECLARE);
	bad = bad_declare(&m, job->n_tables);
	if (bad != NULL) {
		registrar_refuse(r, f, PBOX_E_BAD_REQUEST, m.table, "table %u: %s", m.table, bad);
		return;
	}
	if (m.table == job->n_tables) {
		jt = pbox_job_table_create(&m, job->workers);
		if (jt == NULL) {
			registrar_refuse(r, f, PBOX_E_NO_MEMORY, m.table,
				"out of memory for table %u", m.table);
			return;
		}
		jt->declared_by = f->hdr.worker;
		job->table[job->n_tables++] = jt;
	}
	jt = job->table[m.table];
	if (registrar_restore_page(jt, f->hdr.worker,
		    mb->declared <= m.table && jt->n_has[f->hdr.worker] == 0, m.flags, &err) < 0) {
		registrar_refuse(r, f, PBOX_E_BAD_REQUEST, m.table, "%s", err.text);
		return;
	}
	code = take_page(jt, f->hdr.worker, &m, &cur, &err);
	if (code != 0) {
		if (code == PBOX_E_MISMATCH && !jt->built)
			registrar_fail_table(r, job, jt, &err, code, f->hdr.worker);
		registrar_refuse(r, f, (enum pbox_errcode)code, m.table, "%s", err.text);
		return;
	}
	if (mb->declared == m.table && jt->n_has[f->hdr.worker] == m.tensors) {
		mb->declared++;
		if (!jt->built && !jt->failed && all_declared(job, m.table))
			build_table(r, job, jt);
	}
	a = (struct pbox_declared){.table = m.table, .first = m.first, .count = m.count};
	registrar_reply(
		r, f, PBOX_DECLARED, pbox_declared_encode(r->scratch, sizeof(r->scratch), &a));
}

/* Name the first worker that a table waits for. */
static void
send_not_ready(struct pbox_registrar *r, const struct pbox_frame *f, const struct pbox_job *job,
	uint32_t table, uint32_t restoring)
{
	struct pbox_not_ready m = {.expected = job->workers,
		.joined = (uint16_t)pbox_job_joined(job),
		.first_missing = PBOX_NO_WORKER,
		.silent_ms = NEVER_SEEN};

	for (unsigned w = 0; w < job->workers; w++) {
		const struct pbox_member *mb = &job->member[w];
		bool here = mb->state == PBOX_MEMBER_JOINED || mb->state == PBOX_MEMBER_SILENT;

		if (here && mb->declared > table) {
			m.declared++;
			continue;
		}
		if (m.first_missing != PBOX_NO_WORKER || mb->removed)
			continue;
		m.first_missing = (uint16_t)w;
		if (here) {
			m.silent_ms = registrar_silent_ms(r, job, w);
			snprintf(m.text, sizeof(m.text),
				"worker %u (%s) has joined but not declared table %u; last heard "
				"%u ms "
				"ago",
				w, mb->host, table, m.silent_ms);
		} else {
			snprintf(m.text, sizeof(m.text), "worker %u has %s", w,
				mb->state == PBOX_MEMBER_LEFT ? "left" : "not joined");
		}
	}
	if (m.first_missing == PBOX_NO_WORKER && restoring > 0)
		registrar_restore_text(job->table[table], restoring, job, m.text, sizeof(m.text));
	else if (m.first_missing == PBOX_NO_WORKER)
		snprintf(m.text, sizeof(m.text), "the cores of the box are taking table %u over",
			table);
	registrar_reply(
		r, f, PBOX_NOT_READY, pbox_not_ready_encode(r->scratch, sizeof(r->scratch), &m));
}

/* R5.7. Its shard writes the slots meanwhile: a hint for a worker that joins late. */
static uint32_t
lowest_version(const struct pbox_chunk *c)
{
	uint32_t lowest = __atomic_load_n(&c->slot[0].version, __ATOMIC_RELAXED);

	for (unsigned f = 1; f < c->fragments; f++) {
		uint32_t v = __atomic_load_n(&c->slot[f].version, __ATOMIC_RELAXED);

		if (pbox_serial_diff(v, lowest) < 0)
			lowest = v;
	}
	return lowest;
}

static void
send_page(struct pbox_registrar *r, const struct pbox_frame *f, const struct pbox_table *t,
	uint32_t first)
{
	struct pbox_mapped m = {.table = t->id,
		.chunks = t->n_chunks,
		.first = first,
		.frag_elements = t->frag_elements,
		.first_chunk_id = t->first_chunk_id};
	struct pbox_cursor cur;

	if (pbox_mapped_begin(r->scratch, sizeof(r->scratch), &m, &cur) < 0)
		return;
	for (uint32_t i = first; i < t->n_chunks; i++) {
		const struct pbox_layout_chunk *lc = &t->layout.chunk[i];
		struct pbox_chunk_entry e = {
			.chunk_id = t->first_chunk_id + i,
			.endpoint = lc->endpoint,
			.segments = lc->segments,
			.elements = lc->elements,
			.version = lowest_version(&t->chunk[i]),
		};

		memcpy(e.segment, &t->layout.segment[lc->first_segment],
			lc->segments * sizeof(e.segment[0]));
		if (pbox_mapped_add(r->scratch, &cur, &e) < 0)
			break;
	}
	registrar_reply(r, f, PBOX_MAPPED, pbox_page_len(r->scratch, &cur));
}

/* R8.5: who comes back is waited for from now on. Its map tells versions: they are read when all
 * shards know. */
static bool
taken_in(struct pbox_registrar *r, const struct pbox_frame *f, struct pbox_job *job)
{
	if (job->member[f->hdr.worker].removed)
		registrar_expect(r, job, f->hdr.worker);
	return job->policy != PBOX_POLICY_SHRINK || registrar_members_settled(r, job);
}

void
registrar_on_map(struct pbox_registrar *r, const struct pbox_frame *f, struct pbox_job *job)
{
	struct pbox_job_table *jt;
	struct pbox_map m;
	uint32_t restoring;

	if (pbox_map_decode(f->payload, f->hdr.length, &m) < 0) {
		count_control(r, PBOX_RS_DROP_MALFORMED);
		return;
	}
	count_control(r, PBOX_RS_RX_MAP);
	if (m.table >= job->member[f->hdr.worker].declared) {
		/* declared by nobody, not by this worker, or differently */
		jt = m.table < job->n_tables ? job->table[m.table] : NULL;
		if (jt == NULL || !jt->failed) {
			registrar_refuse(r, f, PBOX_E_BAD_REQUEST, m.table,
				"declare table %u first", m.table);
			return;
		}
	}
	jt = job->table[m.table];
	restoring = registrar_restoring(r, job, jt);
	if (jt->failed) {
		registrar_refuse(
			r, f, (enum pbox_errcode)jt->error.code, m.table, "%s", jt->error.text);
	} else if (!jt->built || jt->shards_open < r->conf.n_shards || !taken_in(r, f, job) ||
		   (restoring > 0 && !registrar_is_restorer(jt, f->hdr.worker))) {
		send_not_ready(r, f, job, m.table, restoring);
	} else if (m.first > jt->t.n_chunks) {
		registrar_refuse(r, f, PBOX_E_BAD_REQUEST, jt->t.n_chunks, "table %u has %u chunks",
			m.table, jt->t.n_chunks);
	} else {
		send_page(r, f, &jt->t, m.first);
	}
}

/* R5.4: a worker that comes back may declare anew; until then the others are told why they wait. */
void
registrar_forgive_tables(struct pbox_job *job)
{
	for (uint32_t i = 0; i < job->n_tables; i++)
		if (job->table[i]->failed && job->table[i]->failed_by != PBOX_NO_WORKER)
			job->table[i]->failed = false;
}

/* What only a worker that is gone declared binds nobody. */
void
registrar_forget_tables(struct pbox_job *job, unsigned worker)
{
	bool last = true;

	for (uint32_t i = job->n_tables; i-- > 0;) {
		struct pbox_job_table *jt = job->table[i];

		if (jt->built) {
			last = false;
			continue;
		}
		last &= !pbox_job_table_forget(jt, (uint16_t)worker, job->workers);
		for (unsigned w = 0; w < job->workers;
			w++) /* an empty table leaves no other trace */
			last &= job->member[w].declared <= i;
		if (last) {
			pbox_job_table_free(jt, job->workers);
			job->table[i] = NULL;
			job->n_tables = i;
		}
	}
}

void
registrar_release_tables(struct pbox_registrar *r, struct pbox_job *job)
{
	for (uint32_t i = 0; i < job->n_tables; i++) {
		if (!job->table[i]->built)
			continue;
		pbox_table_release(&job->table[i]->t, r->load);
		job->table[i]->built = false;
		pbox_stat_add(&r->stats[PBOX_RS_TABLES], (uint64_t)-1);
	}
}
