/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reply.h"

/* Telemetry's commands that change something: log level, intervals, kick, drain. Only the owner of the socket can connect. */

#define WHY_MAX 120 /* bytes of a reason; the worker gets it */

static void
on_log(struct pbox_control *c __rte_unused, int n, char word[][PARAM_SIZE], struct rte_tel_data *d)
{
	enum pbox_log_level level;

	if (n > 0 && !pbox_log_level_named(word[0], &level)) {
		reply_error(d, "LEVEL is error, warn, info or debug");
		return;
	}
	if (n > 0) {
		pbox_log_level(level);
		pbox_log(PBOX_LOG_INFO, "log-level is %s now", pbox_log_level_name(level));
	}
	reply_text(d, "level", "%s", pbox_log_level_name(pbox_log_level_get()));
}

/* "10s", "500ms", "off". */
static bool
set_duration(const char *text, uint64_t *ns)
{
	char *end;

	*ns = 0;
	if (strcmp(text, "off") == 0)
		return true;
	if (*text < '0' || *text > '9' || strlen(text) > 9)
		return false;
	*ns = strtoull(text, &end, 10);
	if (strcmp(end, "ms") == 0)
		*ns *= NS_PER_MS;
	else if (strcmp(end, "s") == 0)
		*ns *= ONE_SECOND;
	else
		return false;
	return *ns > 0;
}

static const struct setting {
	const char *name;
	size_t offset;
	uint64_t min;
	bool off; /* may be "off" */
} settings[] = {
	{"stats-interval", offsetof(struct pbox_control_conf, stats_interval_ns), ONE_SECOND, true},
	{"drain", offsetof(struct pbox_control_conf, drain_ns), NS_PER_MS, false},
	{"snapshot-interval", offsetof(struct pbox_control_conf, snapshot.interval_ns), ONE_SECOND,
		true},
};
#define SETTINGS (sizeof(settings) / sizeof(settings[0]))

static uint64_t *
place(struct pbox_control *c, const struct setting *s)
{
	return (uint64_t *)(void *)((uint8_t *)&c->conf + s->offset);
}

/* Names of answers have no dashes. */
static void
set_duration_reply(struct rte_tel_data *d, const char *name, uint64_t ns)
{
	char key[32];

	snprintf(key, sizeof(key), "%s", name);
	for (char *p = key; *p != '\0'; p++)
		if (*p == '-')
			*p = '_';
	if (ns == 0)
		reply_text(d, key, "off");
	else if (ns % ONE_SECOND == 0)
		reply_text(d, key, "%us", (unsigned)(ns / ONE_SECOND));
	else
		reply_text(d, key, "%ums", (unsigned)(ns / NS_PER_MS));
}

static void
on_set(struct pbox_control *c, int n, char word[][PARAM_SIZE], struct rte_tel_data *d)
{
	const struct setting *s = NULL;
	uint64_t ns;

	if (n == 2 && strcmp(word[0], "log-level") == 0) {
		on_log(c, 1, &word[1], d);
		return;
	}
	for (unsigned i = 0; n > 0 && i < SETTINGS; i++)
		if (strcmp(word[0], settings[i].name) == 0)
			s = &settings[i];
	if (n == 2 && s != NULL) {
		if (!set_duration(word[1], &ns) || (ns == 0 ? !s->off : ns < s->min)) {
			reply_error(d, "%s is a time as 10s or 500ms, at least %u ms%s", s->name,
				(unsigned)(s->min / NS_PER_MS), s->off ? ", or off" : "");
			return;
		}
		*place(c, s) = ns;
		pbox_log(PBOX_LOG_INFO, "%s is %s now", s->name, word[1]);
	} else if (n > 0) {
		reply_error(d, "NAME,VALUE: log-level, stats-interval, drain or snapshot-interval");
		return;
	}
	reply_text(d, "log_level", "%s", pbox_log_level_name(pbox_log_level_get()));
	for (unsigned i = 0; i < SETTINGS; i++)
		set_duration_reply(d, settings[i].name, *place(c, &settings[i]));
}

static void
on_kick(struct pbox_control *c, int n, char word[][PARAM_SIZE], struct rte_tel_data *d)
{
	const struct pbox_job *job;
	struct pbox_error err = {0};
	struct pbox_job_view j;
	unsigned worker;

	if (n < 2) {
		reply_error(d, "whom? /pbox/kick,JOB,WORKER[,WHY]");
		return;
	}
	job = reply_job(c, word[0], d);
	if (job == NULL)
		return;
	pbox_registrar_view_job(c->registrar, job, &j);
	if (!params_number(word[1], j.workers - 1u, &worker)) {
		reply_error(d, "WORKER is a worker of the job, 0 to %u", j.workers - 1u);
		return;
	}
	if (n > 2 && strlen(word[2]) > WHY_MAX) {
		reply_error(d, "WHY has %u bytes at most", WHY_MAX);
		return;
	}
	if (pbox_registrar_kick(c->registrar, j.id, worker, n > 2 ? word[2] : "",
		    pbox_dp_now(c->conf.dp), &err) != 0) {
		reply_error(d, "%s", err.text);
		return;
	}
	reply_text(d, "kicked", "%u", worker);
}

static void
on_drain(struct pbox_control *c, int n, char word[][PARAM_SIZE], struct rte_tel_data *d)
{
	const char *what = n > 0 ? word[0] : "";

	if (strcmp(what, "on") == 0 || strcmp(what, "stop") == 0) {
		pbox_registrar_drain(c->registrar, true);
		c->stop_when_drained = strcmp(what, "stop") == 0;
	} else if (strcmp(what, "off") == 0) {
		pbox_registrar_drain(c->registrar, false);
		c->stop_when_drained = false;
	} else if (n > 0) {
		reply_error(d, "on, off, or stop: on, and the box stops with its last job");
		return;
	}
	reply_text(d, "draining", "%s",
		!pbox_registrar_draining(c->registrar) ? "off"
		: c->stop_when_drained                 ? "stop"
						       : "on");
	rte_tel_data_add_dict_u64(d, "jobs", pbox_registrar_jobs(c->registrar));
}

/* How many chunks go to other boxes by a command, and by which map; or why none does. */
static void
reply_moved(struct pbox_control *c, const struct pbox_job *job, const char *name, int moved,
	const struct pbox_error *err, struct rte_tel_data *d)
{
	struct pbox_job_view j;

	if (moved < 0) {
		reply_error(d, "%s", err->text);
		return;
	}
	rte_tel_data_add_dict_u64(d, name, (uint64_t)moved);
	pbox_registrar_view_job(c->registrar, job, &j);
	rte_tel_data_add_dict_u64(d, "map", j.map_epoch);
}

/* Chunks go to another box of the job's (section 16). */
static void
on_moves(struct pbox_control *c, int n, char word[][PARAM_SIZE], struct rte_tel_data *d)
{
	const struct pbox_job *job;
	struct pbox_error err = {0};
	struct pbox_job_view j;
	char what[4][PARAM_SIZE]; /* TABLE, FIRST, LAST, BOX */
	unsigned v[4];
	int moved;

	if (n < 3 || params_split(word[2], &what[1], 3) != 3) {
		reply_error(d, "which, and where to? /pbox/moves,JOB,TABLE,FIRST,LAST,BOX");
		return;
	}
	job = reply_job(c, word[0], d);
	if (job == NULL)
		return;
	memcpy(what[0], word[1], sizeof(what[0]));
	for (unsigned i = 0; i < 4; i++)
		if (!params_number(what[i], UINT32_MAX, &v[i])) {
			reply_error(d,
				"TABLE, FIRST, LAST and BOX are numbers, and '%.40s' is none",
				what[i]);
			return;
		}
	pbox_registrar_view_job(c->registrar, job, &j);
	moved = pbox_registrar_move(
		c->registrar, j.id, v[0], v[1], v[2], v[3], pbox_dp_now(c->conf.dp), &err);
	reply_moved(c, job, "chunks", moved, &err, d);
}

/* All tables of a job, by weights of its boxes. */
static void
on_weigh(struct pbox_control *c, int n, char word[][PARAM_SIZE], struct rte_tel_data *d)
{
	char what[PBOX_MAX_BOXES][PARAM_SIZE];
	uint32_t weight[PBOX_MAX_BOXES];
	const struct pbox_job *job;
	struct pbox_error err = {0};
	struct pbox_job_view j;
	int boxes = 1, moved;

	/* the first weight, and all others: of two boxes and more */
	if (n == 3) {
		memcpy(what[0], word[1], sizeof(what[0]));
		boxes += params_split(word[2], &what[1], PBOX_MAX_BOXES - 1);
	}
	if (boxes < 2) {
		reply_error(d,
			"which job, and how? /pbox/weigh,JOB,WEIGHT,WEIGHT,...: one of each box");
		return;
	}
	job = reply_job(c, word[0], d);
	if (job == NULL)
		return;
	for (int i = 0; i < boxes; i++)
		if (!params_number(what[i], UINT32_MAX, &weight[i])) {
			reply_error(d,
				"a weight is a whole number from 0 on, and '%.40s' is none: for 1.5 to 1 write 3,2",
				what[i]);
			return;
		}
	pbox_registrar_view_job(c->registrar, job, &j);
	moved = pbox_registrar_weigh(
		c->registrar, j.id, weight, (unsigned)boxes, pbox_dp_now(c->conf.dp), &err);
	reply_moved(c, job, "chunks", moved, &err, d);
}

/* A job is at other boxes from now on. */
static void
on_scale(struct pbox_control *c, int n, char word[][PARAM_SIZE], struct rte_tel_data *d)
{
	char box[PBOX_MAX_BOXES][PARAM_SIZE];
	const struct pbox_job *job;
	struct pbox_error err = {0};
	struct pbox_job_view j;
	unsigned v, set = 0;
	int boxes, moved;

	if (n != 2) {
		reply_error(d, "which job, and at which boxes? /pbox/scale,JOB,BOX+BOX...");
		return;
	}
	job = reply_job(c, word[0], d);
	if (job == NULL)
		return;
	for (char *p = word[1]; *p != '\0'; p++)
		if (*p == '+')
			*p = ',';
	boxes = params_split(word[1], box, PBOX_MAX_BOXES);
	for (int i = 0; i < boxes; i++) {
		if (!params_number(box[i], PBOX_MAX_BOXES - 1, &v)) {
			reply_error(d, "boxes are numbers, and '%.40s' is none", box[i]);
			return;
		}
		set |= 1u << v;
	}
	pbox_registrar_view_job(c->registrar, job, &j);
	moved = pbox_registrar_scale(
		c->registrar, j.id, (uint16_t)set, pbox_dp_now(c->conf.dp), &err);
	reply_moved(c, job, "moves", moved, &err, d);
}

/* "try+1+2" or "take+1+2", of pbox-agent: boxes that are dead as well. */
static bool
failover_how(char *text, struct pbox_registrar_take *how)
{
	char box[PBOX_MAX_BOXES + 1][PARAM_SIZE];
	unsigned v;
	int n;

	for (char *p = text; *p != '\0'; p++)
		if (*p == '+')
			*p = ',';
	n = params_split(text, box, PBOX_MAX_BOXES + 1);
	how->only_try = n > 0 && strcmp(box[0], "try") == 0;
	if (n < 1 || (!how->only_try && strcmp(box[0], "take") != 0))
		return false;
	for (int i = 1; i < n; i++) {
		if (!params_number(box[i], PBOX_MAX_BOXES - 1, &v))
			return false;
		how->dead |= (uint16_t)(1u << v);
	}
	return true;
}

/* A box is dead, and a job goes on without it. */
static void
on_failover(struct pbox_control *c, int n, char word[][PARAM_SIZE], struct rte_tel_data *d)
{
	bool force = n == 3 && strcmp(word[2], "force") == 0;
	struct pbox_registrar_take how = {0};
	const struct pbox_job *job;
	struct pbox_error err = {0};
	struct pbox_job_view j;
	unsigned box, stateless;
	int moved;

	if (n < 2 || !params_number(word[1], PBOX_MAX_BOXES - 1, &box) ||
		(n == 3 && !force && !failover_how(word[2], &how))) {
		reply_error(d, "which job, and which box is dead? /pbox/failover,JOB,BOX[,force]");
		return;
	}
	job = reply_job(c, word[0], d);
	if (job == NULL)
		return;
	pbox_registrar_view_job(c->registrar, job, &j);
	if (n == 3 && !force)
		moved = pbox_registrar_take(
			c->registrar, j.id, box, &how, pbox_dp_now(c->conf.dp), &stateless, &err);
	else
		moved = pbox_registrar_failover(
			c->registrar, j.id, box, force, pbox_dp_now(c->conf.dp), &stateless, &err);
	reply_moved(c, job, "chunks", moved, &err, d);
	if (moved >= 0)
		rte_tel_data_add_dict_u64(d, "stateless", stateless);
}

static void
on_capture(struct pbox_control *c, int n __rte_unused, char word[][PARAM_SIZE] __rte_unused,
	struct rte_tel_data *d)
{
	if (c->conf.capture)
		reply_text(d, "capture", "possible");
	else
		reply_error(d,
			"nothing can be captured: the box runs without hugepages, or with --in-memory");
}

const struct telemetry_command telemetry_set_commands[] = {
	{"/pbox/capture", 0, on_capture, "Can another process (dpdk-dumpcap) capture packets?"},
	{"/pbox/log", 1, on_log, "What is logged. Parameter, to change it: LEVEL.", 1},
	{"/pbox/set", 2, on_set, "What can be set while the box runs. Parameters: NAME,VALUE.", 1},
	{"/pbox/kick", 3, on_kick,
		"End a worker's session, with a reason. Parameters: JOB,WORKER[,WHY].", 1},
	{"/pbox/moves", 3, on_moves,
		"Chunks go to another box of the job. Parameters: JOB,TABLE,FIRST,LAST,BOX.", 1},
	{"/pbox/scale", 2, on_scale,
		"The boxes that a job's chunks are at. Parameters: JOB,BOX+BOX...", 1},
	{"/pbox/failover", 3, on_failover,
		"A box is dead: a job goes on without it. Parameters: JOB,BOX[,force].", 1},
	{"/pbox/weigh", 3, on_weigh,
		"All tables of a job are shared out again. Parameters: JOB,WEIGHT,WEIGHT,..., one of each box.",
		1},
	{"/pbox/drain", 1, on_drain,
		"Take no new jobs. Parameter: on, off, or stop (with the last job).", 1},
	{0},
};
