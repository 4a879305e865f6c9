/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "box.h"

/*
 * SIGHUP: the configuration again, while the box serves. All of it is read and checked before any of
 * it holds. What needs a restart is named and left as it was; jobs that run keep what they began
 * with but for their quotas (pbox_registrar_reload).
 */

struct reloaded {
	struct pbox_options opt;
	struct pbox_conf *conf;
	struct pbox_job_conf job[PBOX_OPTIONS_JOBS];
};

/* One at a time reads the files, and compares with what the other one may replace. */
static pthread_mutex_t reload_lock = PTHREAD_MUTEX_INITIALIZER;

static void
reload_discard(struct reloaded *r)
{
	if (r == NULL)
		return;
	pbox_conf_free(r->conf);
	pbox_options_wipe(&r->opt);
	free(r);
}

/* Which part of the differences is reported, and how many there were. */
struct report_of {
	bool live;
	unsigned n;
};

/* Does that option, or section, hold at once, or when its job begins again? */
static bool
reload_is_live(const struct pbox_conf_section *section, const struct pbox_conf_option *o)
{
	return o != NULL ? (o->flags & (PBOX_CONF_NEXT | PBOX_CONF_LIVE)) != 0
			 : strcmp(section->name, "job") == 0;
}

static void
reload_report(void *ctx, enum pbox_conf_change what, const struct pbox_conf_section *section,
	const struct pbox_conf_option *o, const char *text)
{
	struct report_of *t = ctx;
	bool next = o != NULL && (o->flags & PBOX_CONF_NEXT) != 0;
	bool live = reload_is_live(section, o);

	if (live != t->live)
		return;
	t->n++;
	if (!live)
		pbox_log(PBOX_LOG_WARN, "SIGHUP: %s%s: not before a restart",
			what == PBOX_CONF_GONE ? "without " : "", text);
	else if (what == PBOX_CONF_GONE)
		pbox_log(PBOX_LOG_INFO, "SIGHUP: %s is gone", text);
	else
		pbox_log(PBOX_LOG_INFO, "SIGHUP: %s%s", text,
			next ? ", when the job begins again" : "");
}

/* What the configuration says holds again. Who has set another level while the box runs (pbox-ctl log, EAL's
 * --log-level) reads that in the log, whichever of the two shows less. */
static void
log_level_again(enum pbox_log_level configured, enum pbox_log_level level)
{
	enum pbox_log_level was = pbox_log_level_get();

	if (was != configured && was != level) {
		pbox_log_level(was > level ? was : level);
		pbox_log(PBOX_LOG_WARN,
			"SIGHUP: log-level is %s again, as the configuration has it; it was %s",
			pbox_log_level_name(level), pbox_log_level_name(was));
	}
	pbox_log_level(level);
}

static void
change(struct box *b, struct pbox_control *c, const struct reloaded *r)
{
	const struct pbox_options *o = &r->opt;
	struct pbox_control_live live = {
		.job = r->job,
		.n_jobs = o->n_jobs,
		.lease_ms = (uint32_t)(o->lease_ns / 1000000),
		.grace_ms = (uint32_t)(o->grace_ns / 1000000),
		.stats_interval_ns = o->stats_interval_ns,
		.drain_ns = o->drain_ns,
		.snapshot_interval_ns = o->snapshot_interval_ns,
		.snapshot_final_ns = o->snapshot_final_ns,
		.snapshot_space = o->snapshot_space,
		.snapshot_age_ns = o->snapshot_age_ns,
	};

	log_level_again(
		b->reloaded != NULL ? b->reloaded->opt.log_level : b->opt.log_level, o->log_level);
	pbox_control_change(c, &live);
}

void
reload(void *box, struct pbox_control *c)
{
	struct box *b = box;
	struct reloaded *r = calloc(1, sizeof(*r));
	struct report_of fixed = {.live = false}, live = {.live = true};
	struct pbox_error err = {.text = "out of memory"};

	pthread_mutex_lock(&reload_lock);
	log_reopen(&b->opt);
	if (r != NULL)
		r->conf = pbox_options_load(&r->opt, b->argc, b->argv, &err);
	if (r == NULL || r->conf == NULL) {
		pbox_log(PBOX_LOG_ERROR, "SIGHUP: %s: nothing has changed", err.text);
		free(r);
		pthread_mutex_unlock(&reload_lock);
		return;
	}
	jobs_conf(&r->opt, r->job);
	change(b, c, r);
	pbox_conf_differ(b->conf, r->conf, reload_report, &fixed);
	pbox_conf_differ(
		b->reloaded != NULL ? b->reloaded->conf : b->conf, r->conf, reload_report, &live);
	jobs_warn(&r->opt, r->conf, false);
	cluster_warn(&r->opt, r->conf, false);
	pbox_log(PBOX_LOG_INFO, "SIGHUP: %s is read again: %u jobs; %u changes hold, %u do not",
		b->opt.config, r->opt.n_jobs, live.n, fixed.n);
	reload_discard(b->reloaded);
	b->reloaded = r;
	pthread_mutex_unlock(&reload_lock);
}

struct compare_of {
	bool live; /* of which differences */
	void (*differs)(void *to, bool restart, const char *text);
	void *to;
};

static void
compare_report(void *ctx, enum pbox_conf_change what, const struct pbox_conf_section *section,
	const struct pbox_conf_option *o, const char *text)
{
	const struct compare_of *t = ctx;
	char line[300];

	if (reload_is_live(section, o) != t->live)
		return;
	snprintf(line, sizeof(line), "%s%s", what == PBOX_CONF_GONE ? "without " : "", text);
	t->differs(t->to, !t->live, line);
}

int
reload_compare(void *box, void (*differs)(void *to, bool restart, const char *text), void *to,
	struct pbox_error *err)
{
	struct compare_of fixed = {false, differs, to}, live = {true, differs, to};
	struct box *b = box;
	struct reloaded *r = calloc(1, sizeof(*r));

	if (r == NULL)
		return pbox_fail(err, ENOMEM, "out of memory");
	pthread_mutex_lock(&reload_lock);
	r->conf = pbox_options_load(&r->opt, b->argc, b->argv, err);
	if (r->conf == NULL) {
		pthread_mutex_unlock(&reload_lock);
		free(r);
		return -EINVAL;
	}
	pbox_conf_differ(b->conf, r->conf, compare_report, &fixed);
	pbox_conf_differ(
		b->reloaded != NULL ? b->reloaded->conf : b->conf, r->conf, compare_report, &live);
	pthread_mutex_unlock(&reload_lock);
	reload_discard(r);
	return 0;
}

void
reload_free(struct box *b)
{
	reload_discard(b->reloaded);
	b->reloaded = NULL;
}
