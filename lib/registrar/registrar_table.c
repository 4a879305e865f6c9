/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "registrar_impl.h"

/* Fragments whose versions one MAPPED looks at, if it is not one chunk. */
#define PAGE_FRAGMENTS 1024
/* Tensors of one table: what a DECLARE may make the box remember. */
#define MAX_TENSORS (1u << 20)

static const char *
bad_declare(const struct pbox_declare *m, uint32_t n_tables, uint32_t declared)
{
	bool optimiser = m->mode == PBOX_MODE_OPTIMISER;

	if (m->table > n_tables)
		return "tables are declared in order, from 0";
	if (m->table == n_tables && m->table > declared)
		return "the one before it is not declared completely";
	if (m->table >= PBOX_MAX_TABLES || m->table >= UINT32_MAX >> PBOX_CHUNK_BITS)
		return "too many tables in one job";
	if (m->tensors > MAX_TENSORS)
		return "too many tensors in one table";
	if (m->first > m->tensors || m->count > m->tensors - m->first)
		return "the page lies beyond the table";
	if (m->mode > PBOX_MODE_OPTIMISER || m->op > PBOX_OP_WEIGHTED_MEAN ||
		!pbox_shard_has_discipline(m->discipline))
		return "unknown mode, operation or discipline";
	if (optimiser != (m->optimiser != PBOX_OPT_NONE) || m->optimiser >= PBOX_OPTIMISERS_END)
		return "mode and optimiser do not fit";
	if (pbox_format_wide(m->push_format) == 0 || pbox_format_wide(m->pull_format) == 0)
		return "unknown element format";
	if (pbox_init_pieces(m->push_format, m->pull_format) > PBOX_INIT_PIECES)
		return "both element formats are so narrow that INIT takes too many frames";
	return NULL;
}

/* What a table in clocks cannot be (R14.1, R14.8). 0 or a protocol error. */
static int
bad_clock(const struct pbox_job *job, const struct pbox_declare *m, struct pbox_error *err)
{
	const char *bad = NULL;
	bool built = m->table < job->n_tables && job->table[m->table]->built;

	if (m->discipline != PBOX_DISCIPLINE_CLOCK)
		return 0;
	if ((m->flags & PBOX_DECLARE_RESTORE) != 0 && !built &&
		pbox_shard_vector(m->discipline, job->workers) == 0) {
		pbox_fail(err, PBOX_E_LOST,
			"table %u: the box was restarted, and nobody knows which pushes of a table in clocks have counted in a job of more than %u workers: start the job again from a checkpoint",
			m->table, PBOX_CLOCK_VECTOR);
		return PBOX_E_LOST;
	}
	if (m->op != PBOX_OP_SUM)
		bad = "discipline clock takes op sum alone: there is no round to make a mean of";
	else if (m->optimiser != PBOX_OPT_ADD)
		bad = "discipline clock takes optimiser add alone: others run at the workers, which push updates";
	if (bad == NULL)
		return 0;
	pbox_fail(err, PBOX_E_BAD_REQUEST, "table %u: %s", m->table, bad);
	return PBOX_E_BAD_REQUEST;
}

/* Flags that do not go with the rest of it (R6.15, R13.9). NULL: they do. */
static const char *
bad_flags(const struct pbox_declare *m)
{
	if ((m->flags & PBOX_DECLARE_MIXED) != 0 &&
		(m->discipline == PBOX_DISCIPLINE_CLOCK || !pbox_format_is_block(m->push_format)))
		return "flag MIXED goes with pushes in a format of blocks to a table in rounds";
	if ((m->flags & PBOX_DECLARE_HOLD) != 0 && m->mode != PBOX_MODE_OPTIMISER)
		return "two phases a round (HOLD, max_norm=) are for an optimiser on the box: in mode 0 gradients come back as their mean, and the worker can clip them itself";
	return NULL;
}

/* What a table in a format of blocks cannot be (R13.6 to R13.9, R14.14), but for what doc/modes.md has. NULL: it can. */
static const char *
bad_block(const struct pbox_job *job, const struct pbox_declare *m)
{
	bool up = pbox_format_is_block(m->push_format);

	if (!up && !pbox_format_is_block(m->pull_format))
		return NULL;
	if (m->discipline == PBOX_DISCIPLINE_CLOCK)
		return pbox_shard_vector(m->discipline, job->workers) == 0
			       ? "in a job of more than 256 workers with discipline clock: nobody keeps what was pushed; push fp32, bf16 or fp16"
			       : NULL;
	if (m->mode != PBOX_MODE_OPTIMISER && m->push_format != m->pull_format)
		return "and another one the other way: push and pull take the same one";
	if (up && m->op == PBOX_OP_WEIGHTED_MEAN)
		return "with op weighted_mean: the worker multiplies, and declares sample_mean";
	if (up && registrar_is_planned(job) && (m->flags & PBOX_DECLARE_MIXED) == 0)
		return "from workers with policy reassign, without the flag MIXED: slots that a worker gets within a round come in fp32";
	return NULL;
}

/* What this box does not have, by its name. 0 or a protocol error. */
static int
bad_together(const struct pbox_registrar *r, const struct pbox_job *job,
	const struct pbox_declare *m, struct pbox_error *err)
{
	bool up = pbox_format_is_block(m->push_format);
	const char *bad = bad_flags(m);
	int code;

	if (bad != NULL) {
		pbox_fail(err, PBOX_E_UNSUPPORTED, "table %u: %s", m->table, bad);
		return PBOX_E_UNSUPPORTED;
	}
	code = registrar_pairs_declare(r, job, m, err);
	bad = bad_block(job, m);
	if (code != 0 || bad == NULL)
		return code;
	pbox_fail(err, PBOX_E_UNSUPPORTED, "table %u: format %s %s", m->table,
		pbox_format_name(up ? m->push_format : m->pull_format), bad);
	return PBOX_E_UNSUPPORTED;
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
		if (!pbox_utf8_good(e.name)) {
			pbox_fail(err, PBOX_E_BAD_REQUEST,
				"the name of tensor %u is not UTF-8 (R3.4)", m->first + i);
			return PBOX_E_BAD_REQUEST;
		}
		if (pbox_job_table_declare(jt, (uint16_t)w, m->first + i, &e, err) < 0)
			return err->code == ENOMEM ? PBOX_E_NO_MEMORY : PBOX_E_MISMATCH;
	}
	return 0;
}

/* What this box, this job or this worker cannot declare. True: it is refused. */
static bool
bad_table(struct pbox_registrar *r, const struct pbox_frame *f, struct pbox_job *job,
	const struct pbox_declare *m)
{
	const struct pbox_member *mb = &job->member[f->hdr.worker];
	struct pbox_error err;
	const char *bad;
	int code;

	if (registrar_unsupported_declare(m, &err)) {
		registrar_unsupported(r, f, err.text);
		return true;
	}
	if (registrar_boxes_declare(r, job, m, &err)) {
		registrar_refuse(r, f, PBOX_E_UNSUPPORTED, m->table, "%s", err.text);
		return true;
	}
	bad = bad_declare(m, job->n_tables, mb->declared);
	if (bad == NULL && registrar_is_planned(job) &&
		(m->table > 0 || m->mode != PBOX_MODE_OPTIMISER || m->op == PBOX_OP_WEIGHTED_MEAN))
		bad = "with policy reassign a job has one table, with the optimiser on the box and an op other than weighted_mean: use policy wait for others";
	if (bad != NULL) {
		registrar_refuse(r, f, PBOX_E_BAD_REQUEST, m->table, "table %u: %s", m->table, bad);
		return true;
	}
	code = bad_together(r, job, m, &err);
	if (code == 0)
		code = bad_clock(job, m, &err);
	if (code != 0)
		registrar_refuse(r, f, (enum pbox_errcode)code, m->table, "%s", err.text);
	return code != 0 || registrar_running_declare(r, f, job, m);
}

/* The table of a declaration, which its first worker makes. NULL: refused. */
static struct pbox_job_table *
declared_table(struct pbox_registrar *r, const struct pbox_frame *f, struct pbox_job *job,
	const struct pbox_declare *m)
{
	struct pbox_job_table *jt;
	struct pbox_error err;

	if (m->table == job->n_tables) {
		jt = pbox_job_table_create(job, m, &err);
		if (jt == NULL) {
			registrar_refuse(r, f, err.code == ENOSPC ? PBOX_E_FULL : PBOX_E_NO_MEMORY,
				m->table, "%s", err.text);
			return NULL;
		}
		jt->declared_by = f->hdr.worker;
		job->table[job->n_tables++] = jt;
	}
	jt = job->table[m->table];
	PBOX_ASSERT(job->n_tables <= PBOX_MAX_TABLES && jt->fixed.table == m->table);
	return jt;
}

/* The worker has declared all of the table. */
static void
declared_all(
	struct pbox_registrar *r, struct pbox_job *job, unsigned w, const struct pbox_declare *m)
{
	struct pbox_member *mb = &job->member[w];

	mb->declared++;
	PBOX_ASSERT(mb->declared <= job->n_tables); /* tables are declared in order (R5.1) */
	atomic_store_explicit(&job->fresh[w].declared, true, memory_order_relaxed);
	if (m->table == 0) {
		mb->holds_none = (m->flags & PBOX_DECLARE_RESTORE) == 0;
		registrar_build_tables(r, job);
	} else {
		registrar_build_table(r, job, m->table);
	}
}

static void
take_declare(struct pbox_registrar *r, const struct pbox_frame *f, struct pbox_job *job)
{
	const struct pbox_member *mb = &job->member[f->hdr.worker];
	struct pbox_declared a;
	struct pbox_declare m;
	struct pbox_cursor cur;
	struct pbox_job_table *jt;
	struct pbox_error err;
	int code;

	if (pbox_declare_decode(f->payload, f->hdr.length, &m, &cur) < 0) {
		count_control(r, PBOX_RS_DROP_MALFORMED);
		return;
	}
	count_control(r, PBOX_RS_RX_DECLARE);
	if (bad_table(r, f, job, &m))
		return;
	jt = declared_table(r, f, job, &m);
	if (jt == NULL)
		return;
	if (registrar_restore_page(jt, f->hdr.worker,
		    mb->declared <= m.table && (jt->built || jt->n_has[f->hdr.worker] == 0),
		    m.flags, &err) < 0) {
		registrar_refuse(r, f, PBOX_E_BAD_REQUEST, m.table, "%s", err.text);
		return;
	}
	registrar_running_note(jt, f->hdr.worker, m.flags);
	registrar_restore_epoch(jt, &f->hdr, m.flags);
	job->resumed |= (m.flags & PBOX_DECLARE_RESTORE) != 0;
	code = take_page(jt, f->hdr.worker, &m, &cur, &err);
	if (code == PBOX_E_MISMATCH && mb->declared == m.table &&
		registrar_number_returns(r, job, jt)) {
		/* the worker repeats it: others are yet to hear of the one that failed */
		pbox_job_table_forget(jt, f->hdr.worker);
		return;
	}
	if (code != 0) {
		if (code == PBOX_E_MISMATCH && !jt->built)
			registrar_fail_table(r, job, jt, &err, code, f->hdr.worker);
		registrar_refuse(r, f, (enum pbox_errcode)code, m.table, "%s", err.text);
		return;
	}
	if (mb->declared == m.table && jt->n_has[f->hdr.worker] == m.tensors)
		declared_all(r, job, f->hdr.worker, &m);
	a = (struct pbox_declared){.table = m.table, .first = m.first, .count = m.count};
	registrar_reply(
		r, f, PBOX_DECLARED, pbox_declared_encode(r->scratch, sizeof(r->scratch), &a));
}

static void
on_declare(struct pbox_registrar *r, const struct pbox_frame *f, struct pbox_job *job)
{
	take_declare(r, f, job);
	if (r->job[f->hdr.job] != job)
		return; /* its run has ended */
	registrar_gone_declare(r, f, job);
	registrar_refused_declare(r, f, job);
}

/* Name the first worker that a table waits for. */
static void
send_not_ready(struct pbox_registrar *r, const struct pbox_frame *f, const struct pbox_job *job,
	uint32_t table)
{
	struct pbox_not_ready m = {.expected = job->workers,
		.joined = (uint16_t)pbox_job_joined(job),
		.first_missing = PBOX_NO_WORKER,
		.silent_ms = NEVER_SEEN};

	if (registrar_is_planned(job) && job->least != 0)
		m.expected = job->least;
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
		if (mb->left == PBOX_LEFT_REFUSED) {
			m.silent_ms = registrar_silent_ms(r, job, w);
			snprintf(m.text, sizeof(m.text), "worker %u (%s) was refused", w, mb->host);
		} else if (here) {
			m.silent_ms = registrar_silent_ms(r, job, w);
			snprintf(m.text, sizeof(m.text),
				"worker %u (%s) has joined but not declared table %u; last heard %u ms ago",
				w, mb->host, table, m.silent_ms);
		} else {
			snprintf(m.text, sizeof(m.text), "worker %u has %s", w,
				mb->state == PBOX_MEMBER_LEFT ? "left" : "not joined");
		}
	}
	if (m.first_missing == PBOX_NO_WORKER &&
		!registrar_parts_why(r, job, job->table[table], m.text, sizeof(m.text)))
		snprintf(m.text, sizeof(m.text), "the cores of the box are taking table %u over",
			table);
	registrar_reply(
		r, f, PBOX_NOT_READY, pbox_not_ready_encode(r->scratch, sizeof(r->scratch), &m));
}

/* R5.7. Its shard writes the fragments meanwhile: a hint for a worker that joins late. */
static uint32_t
lowest_version(const struct pbox_chunk *c)
{
	uint32_t lowest;

	if (c->fragments == 0) /* of another box, which says it */
		return 0;
	lowest = pbox_chunk_frag_version(c, 0);

	for (unsigned f = 1; f < c->fragments; f++) {
		uint32_t v = pbox_chunk_frag_version(c, f);

		if (pbox_serial_diff(v, lowest) < 0)
			lowest = v;
	}
	return lowest;
}

static void
send_page(struct pbox_registrar *r, const struct pbox_frame *f, struct pbox_job *job,
	const struct pbox_table *t, uint32_t first)
{
	struct pbox_mapped m = {.table = t->id,
		.chunks = t->n_chunks,
		.first = first,
		.mark = t->mark,
		.frag_elements = t->frag_elements,
		.first_chunk_id = t->first_chunk_id};
	struct registrar_addressee to = registrar_sender(r, f);
	struct pbox_cursor cur;
	struct pbox_member *mb = &job->member[f->hdr.worker];
	uint32_t fragments = 0, i;

	PBOX_ASSERT(first <= t->n_chunks && mb->declared > t->id);
	if (pbox_mapped_begin(r->scratch, sizeof(r->scratch), &m, &cur) < 0)
		return;
	/* with small fragments a page has fewer chunks: it costs others no more time */
	for (i = first; i < t->n_chunks && fragments < PAGE_FRAGMENTS; i++) {
		const struct pbox_layout_chunk *lc = &t->layout.chunk[i];
		struct pbox_chunk_entry e = {
			.chunk_id = t->first_chunk_id + i,
			.endpoint = (uint16_t)(lc->box << 8 |
					       (lc->box == t->box && lc->endpoint != PBOX_ELSEWHERE
							       ? lc->endpoint
							       : 0)),
			.segments = lc->segments,
			.elements = lc->elements,
			.version = lowest_version(&t->chunk[i]),
		};

		fragments += t->chunk[i].fragments;

		memcpy(e.segment, &t->layout.segment[lc->first_segment],
			lc->segments * sizeof(e.segment[0]));
		if (pbox_mapped_add(r->scratch, &cur, &e) < 0)
			break;
	}
	if (i == t->n_chunks && mb->mapped <= t->id)
		mb->mapped = t->id + 1;
	to.epoch = t->epoch;
	registrar_answer(r, &to, PBOX_MAPPED, r->scratch, pbox_page_len(r->scratch, &cur));
}

/* R8.5: who comes back is waited for from now on. Its map has versions: they are read when all
 * shards know. */
static bool
taken_in(struct pbox_registrar *r, const struct pbox_frame *f, struct pbox_job *job)
{
	if (job->member[f->hdr.worker].removed)
		registrar_expect(r, job, f->hdr.worker);
	return (job->policy != PBOX_POLICY_SHRINK || registrar_members_settled(r, job)) &&
	       registrar_work_ready(r, job);
}

/* The worker has not declared it; its answer may be lost, and it asks again about one that failed. */
static void
refuse_map(struct pbox_registrar *r, const struct pbox_frame *f, const struct pbox_job *job,
	uint32_t table)
{
	const struct pbox_error *e = &job->refused.error;

	if (e->code != 0 && job->refused.table == table)
		registrar_refuse(r, f, (enum pbox_errcode)e->code, table, "%s", e->text);
	else
		registrar_refuse(r, f, PBOX_E_BAD_REQUEST, table, "declare table %u first", table);
}

static void
on_map(struct pbox_registrar *r, const struct pbox_frame *f, struct pbox_job *job)
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
			refuse_map(r, f, job, m.table);
			return;
		}
	}
	jt = job->table[m.table];
	PBOX_ASSERT(m.table < job->n_tables && jt != NULL);
	restoring = registrar_restoring(r, job, jt);
	if (jt->failed) {
		registrar_refuse(
			r, f, (enum pbox_errcode)jt->error.code, m.table, "%s", jt->error.text);
		registrar_failure_heard(r, job, jt, f->hdr.worker);
	} else if (!jt->built || jt->shards_open < r->conf.n_shards || !taken_in(r, f, job) ||
		   (restoring > 0 && !registrar_is_restorer(jt, f->hdr.worker))) {
		send_not_ready(r, f, job, m.table);
	} else if (!registrar_running_map(r, f, job, jt)) {
		/* beyond the table: none */
		send_page(r, f, job, &jt->t, m.first < jt->t.n_chunks ? m.first : jt->t.n_chunks);
	}
}

static void
table_session_end(struct pbox_registrar *r, struct pbox_job *job, unsigned w)
{
	(void)r;
	registrar_forget_tables(job, w);
}

const struct registrar_part registrar_table_part = {
	.name = "tables",
	.types = {{on_declare, PBOX_DECLARE}, {on_map, PBOX_MAP}},
	.session_end = table_session_end,
	.members = registrar_build_tables,
};
