/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include <rte_telemetry.h>

#include "control_priv.h"

/* Commands cannot be taken back: they find no control when it has gone. */
static struct {
	pthread_mutex_t lock;
	struct pbox_control *c;
	bool registered;
} tel = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const char *const member_state[] = {
	[PBOX_MEMBER_ABSENT] = "absent",
	[PBOX_MEMBER_JOINED] = "joined",
	[PBOX_MEMBER_LEFT] = "left",
	[PBOX_MEMBER_SILENT] = "silent",
};
static const char *const job_state[] = {
	[PBOX_JOB_OPENING] = "opening",
	[PBOX_JOB_OPEN] = "open",
	[PBOX_JOB_CLOSING] = "closing",
};

/* "core=0,lcore=3" of "core" -> "core_0_lcore_3": names have letters, digits, _ and /. */
static void
block_name(const struct pbox_stats_block *b, char *out, size_t size)
{
	snprintf(out, size, "%s%s%s", b->prefix, b->labels[0] != '\0' ? "/" : "", b->labels);
	for (char *p = out; *p != '\0'; p++)
		if (!isalnum((unsigned char)*p) && *p != '/')
			*p = '_';
}

/* Values that are not 0: an answer has 16 KiB. */
static int
add_block(const struct pbox_stats_block *b, void *ctx)
{
	struct rte_tel_data *d;
	char name[192];
	unsigned n = 0;

	if (b->hist != NULL)
		return 0;
	d = rte_tel_data_alloc();
	if (d == NULL)
		return 0;
	rte_tel_data_start_dict(d);
	for (unsigned i = 0; i < b->n; i++) {
		uint64_t v = pbox_stat_get(&b->values[i]);

		if (v != 0 && rte_tel_data_add_dict_u64(d, b->defs[i].name, v) == 0)
			n++;
	}
	block_name(b, name, sizeof(name));
	if (n == 0 || rte_tel_data_add_dict_container(ctx, name, d, 0) != 0)
		rte_tel_data_free(d);
	return 0;
}

static int
on_stats(const char *cmd, const char *params, struct rte_tel_data *d)
{
	(void)cmd;
	(void)params;
	rte_tel_data_start_dict(d);
	pthread_mutex_lock(&tel.lock);
	if (tel.c != NULL)
		pbox_stats_walk(tel.c->stats, add_block, d);
	pthread_mutex_unlock(&tel.lock);
	return 0;
}

static struct rte_tel_data *
workers(struct pbox_control *c, const struct pbox_job *job)
{
	struct rte_tel_data *d = rte_tel_data_alloc();
	uint64_t now = pbox_dp_now(c->conf.dp);

	if (d == NULL)
		return NULL;
	rte_tel_data_start_array(d, RTE_TEL_STRING_VAL);
	for (unsigned w = 0; w < job->workers && w < 64; w++) {
		const struct pbox_member *m = &job->member[w];
		uint64_t ns = pbox_registrar_silence(c->registrar, job, w, now);
		char text[128];

		snprintf(text, sizeof(text), "%u %s %s %lld ms, tables %u", w,
			m->state <= PBOX_MEMBER_SILENT ? member_state[m->state] : "?",
			m->host[0] != '\0' ? m->host : "-",
			ns == UINT64_MAX ? -1 : (long long)(ns / NS_PER_MS), m->declared);
		rte_tel_data_add_array_string(d, text);
	}
	return d;
}

static void
add_job(struct pbox_control *c, struct rte_tel_data *all, const struct pbox_job *job)
{
	struct rte_tel_data *d = rte_tel_data_alloc(), *w = workers(c, job);
	char name[PBOX_NAME_LEN];

	if (d == NULL || w == NULL) {
		rte_tel_data_free(d);
		rte_tel_data_free(w);
		return;
	}
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_string(d, "name", job->name);
	rte_tel_data_add_dict_string(d, "state", job_state[job->state]);
	rte_tel_data_add_dict_u64(d, "workers", job->workers);
	rte_tel_data_add_dict_u64(d, "joined", pbox_job_joined(job));
	rte_tel_data_add_dict_u64(d, "tables", job->n_tables);
	rte_tel_data_add_dict_u64(d, "bytes", job->bytes);
	rte_tel_data_add_dict_u64(d, "window", job->window);
	if (rte_tel_data_add_dict_container(d, "members", w, 0) != 0)
		rte_tel_data_free(w);
	snprintf(name, sizeof(name), "%u", job->id);
	if (rte_tel_data_add_dict_container(all, name, d, 0) != 0)
		rte_tel_data_free(d);
}

static int
on_jobs(const char *cmd, const char *params, struct rte_tel_data *d)
{
	const struct pbox_job *job;

	(void)cmd;
	(void)params;
	rte_tel_data_start_dict(d);
	pthread_mutex_lock(&tel.lock);
	if (tel.c != NULL) {
		pthread_mutex_lock(&tel.c->lock);
		for (unsigned i = 0; (job = pbox_registrar_job(tel.c->registrar, i)) != NULL; i++)
			add_job(tel.c, d, job);
		pthread_mutex_unlock(&tel.c->lock);
	}
	pthread_mutex_unlock(&tel.lock);
	return 0;
}

static int
on_why(const char *cmd, const char *params, struct rte_tel_data *d)
{
	(void)cmd;
	pthread_mutex_lock(&tel.lock);
	if (tel.c != NULL && params != NULL)
		control_why(tel.c, params, d);
	else
		rte_tel_data_start_dict(d);
	pthread_mutex_unlock(&tel.lock);
	return 0;
}

static int
on_report(const char *cmd, const char *params, struct rte_tel_data *d)
{
	(void)cmd;
	(void)params;
	rte_tel_data_start_array(d, RTE_TEL_STRING_VAL);
	pthread_mutex_lock(&tel.lock);
	for (const char *p = tel.c != NULL ? tel.c->conf.report : NULL; p != NULL && *p != '\0';) {
		size_t n = strcspn(p, "\n");

		/* a string has 127 bytes here: longer lines go on in the next */
		while (n > 0) {
			size_t part = n < RTE_TEL_MAX_STRING_LEN ? n : RTE_TEL_MAX_STRING_LEN - 1;
			char line[RTE_TEL_MAX_STRING_LEN];

			memcpy(line, p, part);
			line[part] = '\0';
			rte_tel_data_add_array_string(d, line);
			p += part;
			n -= part;
		}
		p += *p == '\n';
	}
	pthread_mutex_unlock(&tel.lock);
	return 0;
}

struct pbox_control *
telemetry_lock(void)
{
	pthread_mutex_lock(&tel.lock);
	if (tel.c != NULL)
		pthread_mutex_lock(&tel.c->lock);
	return tel.c;
}

void
telemetry_unlock(struct pbox_control *c)
{
	if (c != NULL)
		pthread_mutex_unlock(&c->lock);
	pthread_mutex_unlock(&tel.lock);
}

void
telemetry_start(struct pbox_control *c)
{
	pthread_mutex_lock(&tel.lock);
	tel.c = c;
	if (!tel.registered) {
		rte_telemetry_register_cmd("/pbox/stats", on_stats,
			"Counters that are not 0, by core, shard, port, registrar and control.");
		rte_telemetry_register_cmd(
			"/pbox/jobs", on_jobs, "Jobs and their workers (the first 64).");
		rte_telemetry_register_cmd("/pbox/why", on_why,
			"What a job waits for: workers, tables, rounds. Parameter: its name or "
			"number.");
		rte_telemetry_register_cmd(
			"/pbox/report", on_report, "The start-up report: ports, cores, memory.");
		snapshot_telemetry();
		tel.registered = true;
	}
	pthread_mutex_unlock(&tel.lock);
}

void
telemetry_stop(void)
{
	pthread_mutex_lock(&tel.lock);
	tel.c = NULL;
	pthread_mutex_unlock(&tel.lock);
}
