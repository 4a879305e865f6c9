/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>

#include "registrar_impl.h"

/* So many rounds fragments may be apart that are summed alike. */
#define APART 8

/* How often shards that wait for the round are asked. */
#define ASK_EVERY (2 * NS_PER_MS)

static void
post(struct pbox_registrar *r, enum pbox_mail_kind kind)
{
	for (unsigned i = 0; i < r->conf.n_shards; i++) {
		struct pbox_shard_job *j = r->staged.job->shard[i];
		struct pbox_mail m = {.kind = kind,
			.job = j,
			.table = pbox_shard_table_of(j, r->staged.table),
			.staging = r->staged.staging};

		r->staged.mails++;
		registrar_mail(r, &m);
	}
}

/* All is laid out: which round is it to be? Not sooner: a fast table would be beyond it. */
static void
go(struct pbox_registrar *r)
{
	struct pbox_staging *staging = r->staged.staging;
	bool any = registrar_finished(r, r->staged.job, r->staged.table, &r->staged.highest);

	PBOX_ASSERT(any); /* it had before */
	staging->round = r->staged.highest + r->staged.ahead;
	staging->oldest = r->staged.highest - APART;
	r->staged.laid_out = true;
	post(r, PBOX_MAIL_SNAPSHOT);
	r->staged.asked_at = r->now_ns;
}

int
pbox_registrar_staging(struct pbox_registrar *r, const struct pbox_job *job, uint32_t table,
	uint32_t ahead, struct pbox_staging *staging, void *memory, size_t size, uint64_t now_ns,
	struct pbox_error *err)
{
	struct pbox_job_table *jt = table < job->n_tables ? job->table[table] : NULL;
	uint32_t round;
	size_t need;

	PBOX_ASSERT(r->staged.staging == NULL);
	r->now_ns = now_ns;
	if (job->state != PBOX_JOB_OPEN || jt == NULL || !jt->built ||
		jt->shards_open < r->conf.n_shards)
		return pbox_fail(err, ENOENT, "table %u is not mapped", table);
	if (jt->restoring)
		return pbox_fail(err, EAGAIN, "table %u is being restored", table);
	if (!registrar_finished(r, job, table, &round))
		return pbox_fail(err, EAGAIN, "table %u has finished no round yet", table);
	need = pbox_staging_bytes(&jt->t);
	if (need > size)
		return pbox_fail(err, ENOMEM,
			"table %u needs %zu bytes and snapshot-memory has %zu: raise it", table,
			need, size);
	pbox_staging_begin(staging, &jt->t, memory);
	r->staged.staging = staging;
	r->staged.job = r->job[job->id];
	r->staged.table = table;
	r->staged.ahead = ahead;
	r->staged.laid_out = r->staged.looked = r->staged.ending = false;
	r->staged.outcome = 0;
	r->staged.mails = 0;
	if (pbox_staging_lay_out(staging))
		go(r);
	return 0;
}

/* All shards let go of the memory; what was copied stays. */
static void
end_staging(struct pbox_registrar *r, int outcome)
{
	r->staged.ending = true;
	r->staged.outcome = outcome;
	post(r, PBOX_MAIL_SNAPSHOT_END);
}

void
registrar_staging_mail(struct pbox_registrar *r, const struct pbox_mail *m)
{
	PBOX_ASSERT(r->staged.staging == m->staging && r->staged.mails > 0);
	r->staged.mails--;
}

/* Its shards are gone, and with them all that wrote to the memory. */
void
registrar_staging_job_gone(struct pbox_registrar *r, const struct pbox_job *job)
{
	if (r->staged.staging == NULL || r->staged.job != job)
		return;
	r->staged.job = NULL;
	r->staged.mails = 0;
	r->staged.outcome = -ECANCELED;
}

/* What shards have found, when none has a mail: does it end? */
static bool
ends(struct pbox_registrar *r, bool *done)
{
	struct pbox_staging *staging = r->staged.staging;

	*done = r->staged.looked = true;
	for (unsigned i = 0; i < r->conf.n_shards; i++) {
		const struct pbox_staging_shard *p = &staging->shard[i];

		if (p->behind > 0) {
			pbox_fail(&r->staged.err, EAGAIN,
				"the tensors of table %u are at different rounds (one is at %u, another at %u), and a snapshot is of one: push all of them in each round",
				r->staged.table, p->lowest, r->staged.highest);
			end_staging(r, -EAGAIN);
			return true;
		}
		if (p->missed > 0) {
			end_staging(r, -ESTALE);
			return true;
		}
		*done &= p->looked && p->waiting == 0;
		r->staged.looked &= p->looked;
	}
	return false;
}

int
pbox_registrar_staging_step(struct pbox_registrar *r, uint64_t now_ns)
{
	struct pbox_staging *staging = r->staged.staging;
	bool done;

	PBOX_ASSERT(staging != NULL);
	r->now_ns = now_ns;
	if (r->staged.job == NULL || (r->staged.ending && r->staged.mails == 0)) {
		r->staged.staging = NULL;
		return r->staged.outcome;
	}
	/* a job that closes: CLOSE_JOB comes after the mails that are under way */
	if (r->staged.mails > 0 || r->staged.job->state != PBOX_JOB_OPEN)
		return -EINPROGRESS;
	if (!r->staged.laid_out) {
		if (pbox_staging_lay_out(staging))
			go(r);
		return -EINPROGRESS;
	}
	if (ends(r, &done))
		return -EINPROGRESS;
	if (done) {
		end_staging(r, 0);
	} else if (!r->staged.looked || now_ns - r->staged.asked_at >= ASK_EVERY) {
		post(r, PBOX_MAIL_SNAPSHOT);
		r->staged.asked_at = now_ns;
	}
	return -EINPROGRESS;
}

bool
pbox_registrar_staging_waits(const struct pbox_registrar *r)
{
	return r->staged.staging != NULL && r->staged.looked;
}

const char *
pbox_registrar_staging_why(const struct pbox_registrar *r)
{
	return r->staged.err.text;
}

void
pbox_registrar_staging_cancel(struct pbox_registrar *r, uint64_t now_ns)
{
	r->now_ns = now_ns;
	if (r->staged.job == NULL || r->staged.ending || r->staged.job->state != PBOX_JOB_OPEN)
		return;
	/* after the mails that are under way: rings keep the order */
	end_staging(r, -ETIMEDOUT);
}
