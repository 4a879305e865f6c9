/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "utf7.h"
#include "health.h"

/* What is wrong with snapshots. */

#define SLACK_NS ONE_SECOND /* a clock that is brought into step moves back by less */
/* Of a job that is gone: as long as somebody may look for the reason. */
#define REMEMBER (600 * ONE_SECOND)

void
snapshot_clock(struct snapshots *s, uint64_t newest_ns, uint64_t now_ns)
{
	uint64_t behind = newest_ns > now_ns + SLACK_NS ? newest_ns - now_ns : 0;

	if (behind > 0 && s->clock_behind_ns == 0)
		pbox_log(PBOX_LOG_WARN,
			"the clock is %" PRIu64
			" s behind the newest snapshot in %s: times of files are wrong, their order (sequence) is not: does a time service run?",
			behind / ONE_SECOND, s->conf->dir);
	s->clock_behind_ns = behind;
}

void
snapshot_look_at_clock(struct snapshots *s)
{
	struct pbox_snapshot_file *f;
	int n = pbox_snapshot_list(s->conf->dir, NULL, -1, &f, NULL);

	if (n > 0)
		snapshot_clock(s, f[0].created_ns, snapshot_real_ns());
	if (n >= 0)
		free(f);
}

static void
advise(const struct snapshots *s, const struct snapshot_result *x, struct health_finding *f)
{
	char dir[UTF7_BRIEF];

	if (x->bound)
		snprintf(f->next, sizeof(f->next),
			"raise snapshot-space (pbox-ctl snapshots names how far), or remove files of jobs that are over");
	else if (x->code == ENOSPC || x->code == EDQUOT)
		snprintf(f->next, sizeof(f->next),
			"%" PRIu64 " MB free in %s: make room there, or lower snapshot-keep",
			x->free_bytes == UINT64_MAX ? 0 : x->free_bytes / 1000000,
			utf7_brief(dir, s->conf->dir, 40));
	else if (x->code != 0)
		snprintf(f->next, sizeof(f->next), "is %s there, and may the box write to it?",
			utf7_brief(dir, s->conf->dir, 60));
	else
		snprintf(f->next, sizeof(f->next),
			"pbox-ctl snapshots says why; is snapshot-memory large enough, do workers wait?");
}

static bool
failing(struct pbox_control *c, const struct snapshot_result *x)
{
	struct pbox_job_view j;

	return x->error[0] != '\0' &&
	       (snapshot_job(c, x->job, &j) || c->now_ns - x->failed_ns < REMEMBER);
}

static void
fill_failing(const struct snapshots *s, const struct snapshot_result *x, struct health_finding *f)
{
	char why[48] = "", job[UTF7_BRIEF];

	if (x->bound)
		snprintf(why, sizeof(why), ": snapshot-space is too small");
	else if (x->code != 0)
		snprintf(why, sizeof(why), ": %s", strerror(x->code));
	*f = (struct health_finding){.cause = "snapshots_fail", .harmful = true, .worker = -1};
	snprintf(f->job, sizeof(f->job), "%s", x->job);
	snprintf(f->text, sizeof(f->text), "job '%s': table %u has no new snapshot%s",
		utf7_brief(job, x->job, 24), x->table, why);
	advise(s, x, f);
}

/* Not harmful: the bounds are an operator's. But who looks for a snapshot shall learn where it went. */
static bool
pruned(struct pbox_control *c, struct health_finding *f)
{
	struct snapshots *s = &c->snapshots;
	char job[UTF7_BRIEF];
	bool found;

	*f = (struct health_finding){.cause = "snapshots_pruned", .worker = -1};
	pthread_mutex_lock(&s->lock);
	found = s->pruned.tables > 0 && c->now_ns - s->pruned.at_ns < REMEMBER;
	snprintf(f->job, sizeof(f->job), "%s", s->pruned.job);
	snprintf(f->text, sizeof(f->text),
		"the last snapshot of job '%s', table %u, round %u was removed for its age or for room (%u such)",
		utf7_brief(job, s->pruned.job, 24), s->pruned.table, s->pruned.round,
		s->pruned.tables);
	pthread_mutex_unlock(&s->lock);
	snprintf(f->next, sizeof(f->next),
		"if it is still wanted: raise snapshot-space or snapshot-age, or keep files elsewhere");
	return found;
}

bool
snapshot_finding(struct pbox_control *c, unsigned i, struct health_finding *f)
{
	struct snapshots *s = &c->snapshots;

	for (unsigned k = 0; k < s->n_results; k++)
		if (failing(c, &s->result[k]) && i-- == 0) {
			fill_failing(s, &s->result[k], f);
			return true;
		}
	if (pruned(c, f) && i-- == 0)
		return true;
	if (s->clock_behind_ns == 0 || i > 0)
		return false;
	*f = (struct health_finding){.cause = "clock_behind", .harmful = true, .worker = -1};
	snprintf(f->text, sizeof(f->text), "the clock is %" PRIu64 " s behind the newest snapshot",
		s->clock_behind_ns / ONE_SECOND);
	snprintf(f->next, sizeof(f->next),
		"set it, by a time service: files are in order all the same, but say wrong times");
	return true;
}
