/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>

#include "registrar_impl.h"

struct staged {
	struct pbox_staging *staging; /* NULL: no copy is under way */
	struct pbox_job *job;         /* NULL: it is gone */
	uint32_t table;
	unsigned mails; /* unanswered */
	uint32_t ahead, highest;
	bool exact; /* of `round` alone */
	uint32_t round;
	bool laid_out, looked; /* by all shards at all fragments */
	bool ending;
	struct pbox_error err; /* of -EAGAIN and -ESTALE */
	int outcome;
	uint64_t asked_at;
	uint32_t homes; /* registrar_homes_steady() when it began */
};

static struct staged *
staged_of(const struct pbox_registrar *r)
{
	return registrar_state(r, PART_staging);
}

/* So many rounds fragments may be apart that are summed alike. */
#define APART 8

/* How often shards that wait for the round are asked. */
#define ASK_EVERY (2 * NS_PER_MS)

static void
post(struct pbox_registrar *r, enum pbox_mail_kind kind)
{
	for (unsigned i = 0; i < r->conf.n_shards; i++) {
		struct pbox_shard_job *j = staged_of(r)->job->shard[i];
		struct pbox_mail m = {.kind = kind,
			.job = j,
			.table = pbox_shard_table_of(j, staged_of(r)->table),
			.staging = staged_of(r)->staging};

		staged_of(r)->mails++;
		registrar_mail(r, &m);
	}
}

/* All is laid out: which round is it to be? Not sooner: a fast table would be beyond it. */
static void
go(struct pbox_registrar *r)
{
	struct pbox_staging *staging = staged_of(r)->staging;
	bool any = registrar_finished(
		r, staged_of(r)->job, staged_of(r)->table, &staged_of(r)->highest);

	PBOX_ASSERT(
		any || staging->n_fragments == 0); /* it had before; of nothing there is no round */
	if (!any)
		staged_of(r)->highest = staged_of(r)->round;
	staging->round = staged_of(r)->exact ? staged_of(r)->round
					     : staged_of(r)->highest + staged_of(r)->ahead;
	staging->oldest = staged_of(r)->highest - APART;
	staged_of(r)->laid_out = true;
	post(r, PBOX_MAIL_SNAPSHOT);
	staged_of(r)->asked_at = r->now_ns;
}

static int
passed(uint32_t table, uint32_t round, uint32_t highest, struct pbox_error *err)
{
	return pbox_fail(err, ESTALE,
		"round %u of table %u has passed, this box has finished round %u: name a later one at all boxes",
		round, table, highest);
}

static int
chunks_move(const struct pbox_job *job, struct pbox_error *err)
{
	return pbox_fail(err, EBUSY, "chunks of job '%s' move (map %u)", job->name, job->map_epoch);
}

/* What a copy of a part of a table at several boxes needs besides (R16.16). */
static int
at_boxes(const struct pbox_job *job, const struct pbox_job_table *jt, bool exact, uint32_t *homes,
	struct pbox_error *err)
{
	*homes = 0;
	if (jt->t.boxes < 2)
		return 0;
	if (!exact)
		return pbox_fail(err, ENOTSUP,
			"job '%s' is at %u boxes: a snapshot of it is of a round that all of them know before: pbox-ctl snapshot %s --round R at each",
			job->name, jt->t.boxes, job->name);
	if (job->out != 0)
		return pbox_fail(err, ENOTSUP,
			"job '%s' goes on without a box (map %u): a snapshot is of all boxes; start that one and take it in again (pbox-ctl scale), or wait for the last set that is whole",
			job->name, job->map_epoch);
	if (!registrar_homes_steady(job, jt, homes))
		return chunks_move(job, err);
	return 0;
}

static int
staging_begin(struct pbox_registrar *r, const struct pbox_job *job, uint32_t table, bool exact,
	uint32_t round, struct pbox_staging *staging, void *memory, size_t size,
	struct pbox_error *err)
{
	struct pbox_job_table *jt = table < job->n_tables ? job->table[table] : NULL;
	uint32_t highest, homes;
	size_t need;
	bool any;
	int ret;

	PBOX_ASSERT(staged_of(r)->staging == NULL);
	if (job->state != PBOX_JOB_OPEN || jt == NULL || !jt->built ||
		jt->shards_open < r->conf.n_shards)
		return pbox_fail(err, ENOENT, "table %u is not mapped", table);
	if (jt->t.discipline == PBOX_DISCIPLINE_CLOCK)
		return pbox_fail(err, ENOTSUP,
			"table %u is in clocks, and no snapshot is taken of such a table: its workers save checkpoints",
			table);
	any = registrar_finished(r, job, table, &highest);
	if (exact && any && pbox_serial_diff(highest, round) > 0)
		return passed(table, round, highest, err);
	ret = at_boxes(job, jt, exact, &homes, err);
	if (ret != 0)
		return ret;
	if (jt->restoring)
		return pbox_fail(err, EAGAIN, "table %u is being restored", table);
	need = pbox_staging_bytes(&jt->t);
	if (need > size)
		return pbox_fail(err, ENOMEM,
			"table %u needs %zu bytes and snapshot-memory has %zu: raise it", table,
			need, size);
	pbox_staging_begin(staging, &jt->t, memory);
	if (!any && staging->n_fragments > 0)
		return pbox_fail(err, EAGAIN, "table %u has finished no round yet", table);
	staging->map_epoch = job->map_epoch;
	staged_of(r)->homes = homes;
	staged_of(r)->staging = staging;
	staged_of(r)->job = r->job[job->id];
	staged_of(r)->table = table;
	staged_of(r)->exact = exact;
	staged_of(r)->ahead = staged_of(r)->round = round;
	staged_of(r)->laid_out = staged_of(r)->looked = staged_of(r)->ending = false;
	staged_of(r)->outcome = 0;
	staged_of(r)->mails = 0;
	if (pbox_staging_lay_out(staging))
		go(r);
	return 0;
}

int
pbox_registrar_staging(struct pbox_registrar *r, const struct pbox_job *job, uint32_t table,
	uint32_t ahead, struct pbox_staging *staging, void *memory, size_t size, uint64_t now_ns,
	struct pbox_error *err)
{
	r->now_ns = now_ns;
	return staging_begin(r, job, table, false, ahead, staging, memory, size, err);
}

int
pbox_registrar_staging_at(struct pbox_registrar *r, const struct pbox_job *job, uint32_t table,
	uint32_t round, struct pbox_staging *staging, void *memory, size_t size, uint64_t now_ns,
	struct pbox_error *err)
{
	r->now_ns = now_ns;
	return staging_begin(r, job, table, true, round, staging, memory, size, err);
}

/* All shards let go of the memory; what was copied stays. */
static void
end_staging(struct pbox_registrar *r, int outcome)
{
	staged_of(r)->ending = true;
	staged_of(r)->outcome = outcome;
	post(r, PBOX_MAIL_SNAPSHOT_END);
}

static void
staging_mail(struct pbox_registrar *r, const struct pbox_mail *m)
{
	PBOX_ASSERT(staged_of(r)->staging == m->staging && staged_of(r)->mails > 0);
	staged_of(r)->mails--;
}

/* Its shards are gone, and with them all that wrote to the memory. */
static void
staging_job_end(struct pbox_registrar *r, struct pbox_job *job)
{
	if (staged_of(r)->staging == NULL || staged_of(r)->job != job)
		return;
	staged_of(r)->job = NULL;
	staged_of(r)->mails = 0;
	staged_of(r)->outcome = -ECANCELED;
}

/* What shards have found, when none has a mail: does it end? */
static bool
ends(struct pbox_registrar *r, bool *done)
{
	struct pbox_staging *staging = staged_of(r)->staging;

	*done = staged_of(r)->looked = true;
	for (unsigned i = 0; i < r->conf.n_shards; i++) {
		const struct pbox_staging_shard *p = &staging->shard[i];

		if (p->behind > 0) {
			pbox_fail(&staged_of(r)->err, EAGAIN,
				"the tensors of table %u are at different rounds (one is at %u, another at %u), and a snapshot is of one: push all of them in each round",
				staged_of(r)->table, p->lowest, staged_of(r)->highest);
			end_staging(r, -EAGAIN);
			return true;
		}
		if (p->missed > 0) {
			registrar_finished(
				r, staged_of(r)->job, staged_of(r)->table, &staged_of(r)->highest);
			passed(staged_of(r)->table, staging->round, staged_of(r)->highest,
				&staged_of(r)->err);
			end_staging(r, -ESTALE);
			return true;
		}
		*done &= p->looked && p->waiting == 0;
		staged_of(r)->looked &= p->looked;
	}
	return false;
}

/* A map that this box has heard of since, or the rest of one. */
static bool
homes_changed(struct pbox_registrar *r)
{
	const struct staged *s = staged_of(r);
	const struct pbox_job_table *jt = s->job->table[s->table];
	uint32_t homes;

	return jt->t.boxes > 1 &&
	       (s->job->map_epoch != s->staging->map_epoch || s->job->out != 0 ||
		       !registrar_homes_steady(s->job, jt, &homes) || homes != s->homes);
}

int
pbox_registrar_staging_step(struct pbox_registrar *r, uint64_t now_ns)
{
	struct pbox_staging *staging = staged_of(r)->staging;
	bool done;

	PBOX_ASSERT(staging != NULL);
	r->now_ns = now_ns;
	if (staged_of(r)->job == NULL || (staged_of(r)->ending && staged_of(r)->mails == 0)) {
		if (staged_of(r)->outcome == 0 && homes_changed(r))
			staged_of(r)->outcome = chunks_move(staged_of(r)->job, &staged_of(r)->err);
		staged_of(r)->staging = NULL;
		return staged_of(r)->outcome;
	}
	/* a job that closes: CLOSE_JOB comes after the mails that are under way */
	if (staged_of(r)->mails > 0 || staged_of(r)->job->state != PBOX_JOB_OPEN)
		return -EINPROGRESS;
	if (!staged_of(r)->ending && homes_changed(r)) {
		end_staging(r, chunks_move(staged_of(r)->job, &staged_of(r)->err));
		return -EINPROGRESS;
	}
	if (!staged_of(r)->laid_out) {
		if (pbox_staging_lay_out(staging))
			go(r);
		return -EINPROGRESS;
	}
	if (ends(r, &done))
		return -EINPROGRESS;
	if (done) {
		end_staging(r, 0);
	} else if (!staged_of(r)->looked || now_ns - staged_of(r)->asked_at >= ASK_EVERY) {
		post(r, PBOX_MAIL_SNAPSHOT);
		staged_of(r)->asked_at = now_ns;
	}
	return -EINPROGRESS;
}

bool
registrar_staging_is_of(const struct pbox_registrar *r, const struct pbox_job *job)
{
	return staged_of(r)->staging != NULL && staged_of(r)->job == job;
}

bool
pbox_registrar_staging_waits(const struct pbox_registrar *r)
{
	return staged_of(r)->staging != NULL && staged_of(r)->looked;
}

const char *
pbox_registrar_staging_why(const struct pbox_registrar *r)
{
	return staged_of(r)->err.text;
}

void
pbox_registrar_staging_cancel(struct pbox_registrar *r, uint64_t now_ns)
{
	r->now_ns = now_ns;
	if (staged_of(r)->job == NULL || staged_of(r)->ending ||
		staged_of(r)->job->state != PBOX_JOB_OPEN)
		return;
	/* after the mails that are under way: rings keep the order */
	end_staging(r, -ETIMEDOUT);
}

const struct registrar_part registrar_staging_part = {
	.name = "copies for snapshots",
	.mails = 1u << PBOX_MAIL_SNAPSHOT | 1u << PBOX_MAIL_SNAPSHOT_END,
	.mail = staging_mail,
	.job_end = staging_job_end,
	.state = sizeof(struct staged),
};
