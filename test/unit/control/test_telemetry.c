/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* What the box says at telemetry's socket, as pbox-ctl asks. */

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>
#include <rte_eal.h>
#include <rte_ethdev.h>

#include "../dataplane/rig.h"
#include "control_priv.h"

#define DEADLINE_S 120 /* of what comes at once: it only bounds a hang */
#define ANSWER     (1 << 16)

const char unit_suite[] = "telemetry";

static struct rig rig;
static struct worker w[RIG_WORKERS];
static bool up; /* the rig */
static int sock = -1;
static char logged[16384];

static void
remember(enum pbox_log_level level, const char *line, void *ctx)
{
	size_t at = strlen(logged);

	(void)level;
	(void)ctx;
	snprintf(logged + at, sizeof(logged) - at, "%s\n", line);
}

static void
start(unsigned cores, const char *report, const char *snapshot_dir)
{
	struct pbox_error err = {0};

	rig_telemetry = true;
	rig_start(&rig, &(struct rig_options){.queues = 1,
				.cores = cores,
				.lcores = true,
				.threads = true,
				.report = report,
				.snapshot_dir = snapshot_dir});
	UNIT_EQ_U64(pbox_control_start(rig.control, &err), 0);
	up = true;
}

static void
stop(void)
{
	up = false;
	pbox_control_stop(rig.control);
	pbox_control_join(rig.control);
	rig_stop(&rig);
}

static bool
receive(char *text)
{
	time_t end = time(NULL) + DEADLINE_S;
	ssize_t n;

	while ((n = recv(sock, text, ANSWER - 1, MSG_DONTWAIT)) <= 0) {
		if (time(NULL) > end)
			return false;
		if (up)
			rig_pump(&rig);
		usleep(200);
	}
	text[n] = '\0';
	return true;
}

static void
dial(char *text)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};

	snprintf(a.sun_path, sizeof(a.sun_path), "%.80s/dpdk_telemetry.v2",
		rte_eal_get_runtime_dir());
	sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	CU_ASSERT_FATAL(connect(sock, (struct sockaddr *)&a, sizeof(a)) == 0);
	CU_ASSERT_FATAL(receive(text));
}

/* The answer to a command; json_decref() it. */
static json_t *
ask(const char *cmd)
{
	static char text[ANSWER];
	char name[64];
	json_t *all, *one;

	if (sock < 0)
		dial(text);
	CU_ASSERT_FATAL(send(sock, cmd, strlen(cmd), 0) == (ssize_t)strlen(cmd));
	CU_ASSERT_FATAL(receive(text));
	all = json_loads(text, 0, NULL);
	snprintf(name, sizeof(name), "%.*s", (int)strcspn(cmd, ","), cmd);
	one = json_incref(json_object_get(all, name));
	if (one == NULL)
		printf("%s: %s\n", cmd, text);
	CU_ASSERT_PTR_NOT_NULL_FATAL(one);
	json_decref(all);
	return one;
}

static const char *
string(const json_t *d, const char *key)
{
	const char *s = json_string_value(json_object_get(d, key));

	return s != NULL ? s : "(none)";
}

static uint64_t
number(const json_t *d, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(d, key));
}

/* Until that number is as large, within the deadline: data cores take what was sent when they come by. */
static json_t *
ask_until(const char *cmd, const char *key, uint64_t n)
{
	time_t end = time(NULL) + DEADLINE_S;
	json_t *d;

	while (number(d = ask(cmd), key) < n && time(NULL) <= end) {
		json_decref(d);
		usleep(2000);
	}
	return d;
}

/* The string @p key of an answer is @p want, or begins with it. */
static void
says(const char *cmd, const char *key, const char *want)
{
	json_t *d = ask(cmd);

	if (strncmp(string(d, key), want, strlen(want)) != 0)
		printf("%s: %s = %s, not %s\n", cmd, key, string(d, key), want);
	CU_ASSERT(strncmp(string(d, key), want, strlen(want)) == 0);
	json_decref(d);
}

static void
two_workers(bool both)
{
	for (unsigned i = 0; i < 1u + both; i++)
		CU_ASSERT_FATAL(worker_join(&rig, &w[i], i, 2));
}

/* The only one of its kind in an answer: "job_1" of "job". */
static const json_t *
the_one(json_t *d, const char *kind)
{
	const json_t *found = NULL;
	const char *key;
	json_t *value;

	json_object_foreach(d, key, value)
	{
		if (strncmp(key, kind, strlen(kind)) != 0 || key[strlen(kind)] != '_')
			continue;
		CU_ASSERT_PTR_NULL(found);
		found = value;
	}
	return found;
}

static void
jobs(void)
{
	const json_t *j;
	json_t *d;

	start(2, NULL, NULL);
	d = ask("/pbox/jobs");
	UNIT_EQ_U64(number(d, "jobs"), 0);
	CU_ASSERT_PTR_NULL(the_one(d, "job"));
	json_decref(d);
	two_workers(false);
	CU_ASSERT_FATAL(worker_declare(&w[0], 100));
	d = ask("/pbox/jobs");
	UNIT_EQ_U64(number(d, "jobs"), 1);
	j = the_one(d, "job");
	CU_ASSERT_STRING_EQUAL(string(j, "name"), "j");
	CU_ASSERT_STRING_EQUAL(string(j, "state"), "open");
	UNIT_EQ_U64(number(j, "workers"), 2);
	UNIT_EQ_U64(number(j, "joined"), 1);
	UNIT_EQ_U64(number(j, "tables"), 1);
	json_decref(d);
	d = ask("/pbox/workers,j");
	UNIT_EQ_U64(number(d, "workers"), 2);
	j = json_object_get(d, "worker_0");
	CU_ASSERT_STRING_EQUAL(string(j, "host"), "unit");
	CU_ASSERT_STRING_EQUAL(string(j, "state"), "joined");
	UNIT_EQ_U64(number(j, "tables"), 1);
	j = json_object_get(d, "worker_1");
	CU_ASSERT_STRING_EQUAL(string(j, "state"), "absent");
	json_decref(d);
	d = ask("/pbox/workers,j,1");
	CU_ASSERT_PTR_NULL(json_object_get(d, "worker_0"));
	CU_ASSERT_PTR_NOT_NULL(json_object_get(d, "worker_1"));
	json_decref(d);
	says("/pbox/workers,j,2", "error", "FIRST is a worker of the job, 0 to 1");
	says("/pbox/tables,j,x", "error", "FIRST is the number of a table");
	d = ask("/pbox/tables,j");
	UNIT_EQ_U64(number(d, "tables"), 1);
	CU_ASSERT_STRING_EQUAL(string(the_one(d, "table"), "state"), "declared");
	json_decref(d);
	stop();
	/* nobody is there to answer for */
	says("/pbox/jobs", "error", "the box is stopping");
	d = ask("/pbox/why,j");
	UNIT_EQ_U64(json_object_size(d), 0);
	json_decref(d);
}

/* Whatever the parameters are, the answer is JSON, and what is wrong is said. */
static void
any_parameters(void)
{
	static const char *const cmd[] = {"counters", "cores", "ports", "pools", "drops", "health",
		"jobs", "workers", "tables", "capture", "log", "set", "kick", "drain", "why",
		"snapshot", "snapshots", "restore", "report", "stats", "work"};
	static const char *const wrong[] = {"\"}],\\", "99999999999999999999", "-1", "j,x,y,z",
		",,,", "\t",
		"0123456789012345678901234567890123456789012345678901234567890123456789"};
	char text[256];
	json_t *d;

	start(1, NULL, NULL);
	two_workers(false);
	for (unsigned i = 0; i < sizeof(cmd) / sizeof(cmd[0]); i++) {
		bool takes = strstr("report stats snapshots", cmd[i]) == NULL;

		snprintf(text, sizeof(text), "/pbox/%s", cmd[i]);
		json_decref(ask(text));
		for (unsigned k = 0; k < sizeof(wrong) / sizeof(wrong[0]); k++) {
			snprintf(text, sizeof(text), "/pbox/%s,%s", cmd[i], wrong[k]);
			d = ask(text);
			if (takes && json_object_get(d, "error") == NULL)
				printf("%s: no error\n", text);
			CU_ASSERT(!takes || json_object_get(d, "error") != NULL);
			json_decref(d);
		}
	}
	/* and nothing of that has been done */
	d = ask("/pbox/jobs");
	UNIT_EQ_U64(number(d, "jobs"), 1);
	UNIT_EQ_U64(number(d, "draining"), 0);
	UNIT_EQ_U64(number(the_one(d, "job"), "joined"), 1);
	json_decref(d);
	stop();
}

/* The oldest round of an answer to why. */
static json_t *
round_0(const json_t *d)
{
	return json_object_get(json_object_get(d, "rounds"), "0");
}

static void
why(void)
{
	char cmd[32];
	json_t *d, *e;

	start(2, NULL, NULL);
	says("/pbox/why,j", "error", "no job of that name or number has workers now: /pbox/jobs");
	says("/pbox/why", "error", "which job?");
	two_workers(false);
	d = ask("/pbox/why,j");
	CU_ASSERT_STRING_EQUAL(string(d, "missing"), "0-1"); /* the first table */
	CU_ASSERT_STRING_EQUAL(string(json_object_get(d, "tables"), "0"), "0-1");
	e = json_object_get(json_object_get(d, "waited_for"), "1");
	CU_ASSERT_STRING_EQUAL(string(e, "state"), "never joined");
	json_decref(d);
	CU_ASSERT_FATAL(worker_join(&rig, &w[1], 1, 2));
	CU_ASSERT_FATAL(worker_declare(&w[0], 2000) && worker_declare(&w[1], 2000));
	CU_ASSERT_FATAL(worker_map(&w[0]) && worker_map(&w[1]));
	worker_push(&w[0], 0, 1);
	rig_pump(&rig);
	snprintf(cmd, sizeof(cmd), "/pbox/why,%u", w[0].job);
	d = ask_until(cmd, "rounds_open", (2000 + w[0].frag_elements - 1) / w[0].frag_elements);
	CU_ASSERT_STRING_EQUAL(string(d, "job"), "j");
	CU_ASSERT_STRING_EQUAL(string(d, "missing"), "1");
	UNIT_EQ_U64(number(d, "joined"), 2);
	UNIT_EQ_U64(json_object_size(json_object_get(d, "tables")), 0);
	UNIT_EQ_U64(number(d, "rounds_open"), (2000 + w[0].frag_elements - 1) / w[0].frag_elements);
	CU_ASSERT_STRING_EQUAL(string(round_0(d), "tensor"), "t");
	CU_ASSERT_STRING_EQUAL(string(round_0(d), "missing"), "1");
	UNIT_EQ_U64(number(round_0(d), "round"), 1);
	UNIT_EQ_U64(number(round_0(d), "arrived"), 1);
	e = json_object_get(json_object_get(d, "waited_for"), "1");
	CU_ASSERT_STRING_EQUAL(string(e, "host"), "unit");
	CU_ASSERT_STRING_EQUAL(string(e, "state"), "joined");
	UNIT_EQ_U64(number(e, "tables"), 1);
	json_decref(d);
	worker_push(&w[1], 0, 1);
	UNIT_EQ_U64(worker_results(&w[0], 1, 2), 2000);
	UNIT_EQ_U64(worker_results(&w[1], 1, 2), 2000);
	says("/pbox/why,j", "missing", "");
	stop();
}

/* Sixteen of them, the oldest, are named. */
static void
many_rounds(void)
{
	json_t *d;

	start(2, NULL, NULL);
	two_workers(true);
	CU_ASSERT_FATAL(worker_declare(&w[0], 10000) && worker_declare(&w[1], 10000));
	CU_ASSERT_FATAL(worker_map(&w[0]) && worker_map(&w[1]));
	worker_push(&w[1], 0, 1);
	rig_pump(&rig);
	d = ask_until("/pbox/why,j", "rounds_open", 17);
	UNIT_EQ_U64(json_object_size(json_object_get(d, "rounds")), 16);
	CU_ASSERT(number(d, "rounds_open") > 16);
	CU_ASSERT_STRING_EQUAL(string(d, "missing"), "0");
	json_decref(d);
	stop();
}

static void
report_and_counters(void)
{
	char report[400];
	json_t *d, *e;

	memset(report, 'x', sizeof(report));
	report[0] = 'a';
	report[99] = '\n';
	report[sizeof(report) - 1] = '\0';
	start(1, report, NULL);
	d = ask("/pbox/report");
	UNIT_EQ_U64(json_array_size(d), 4); /* 99 bytes; 299 in pieces of at most 127 */
	UNIT_EQ_U64(strlen(json_string_value(json_array_get(d, 0))), 99);
	UNIT_EQ_U64(strlen(json_string_value(json_array_get(d, 1))) +
			    strlen(json_string_value(json_array_get(d, 2))) +
			    strlen(json_string_value(json_array_get(d, 3))),
		299);
	json_decref(d);
	two_workers(true);
	d = ask("/pbox/stats");
	e = json_object_get(d, "registrar");
	UNIT_EQ_U64(number(e, "jobs"), 1);
	CU_ASSERT(number(json_object_get(d, "control"), "frames") >= 4);
	CU_ASSERT_PTR_NULL(json_object_get(e, "leases_expired")); /* 0 */
	json_decref(d);
	stop();
}

/* ---- snapshots ------------------------------------------------------------------------------- */

static void
no_snapshots(void)
{
	start(1, NULL, NULL);
	says("/pbox/snapshots", "error", "off: ");
	says("/pbox/snapshot", "error", "which job?");
	says("/pbox/snapshot,j", "error", "the box takes no snapshots");
	says("/pbox/restore", "error", "which job?");
	says("/pbox/restore,j", "error", "the box takes no snapshots");
	stop();
	says("/pbox/restore,j", "error", "which job?"); /* and nobody to ask */
}

static void
remove_dir(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *e;

	while (d != NULL && (e = readdir(d)) != NULL)
		unlinkat(dirfd(d), e->d_name, 0);
	if (d != NULL)
		closedir(d);
	UNIT_EQ_U64(rmdir(dir), 0);
}

/* Until table 0 has as many snapshots, or failures. */
static json_t *
until(const char *what, uint64_t n)
{
	time_t end = time(NULL) + DEADLINE_S;
	json_t *d;

	for (;;) {
		d = ask("/pbox/snapshots");
		if (number(json_object_get(d, "table_0"), what) >= n || time(NULL) > end)
			return d;
		json_decref(d);
		usleep(2000);
	}
}

static void
run_once(unsigned elements)
{
	two_workers(true);
	CU_ASSERT_FATAL(worker_declare(&w[0], elements) && worker_declare(&w[1], elements));
	CU_ASSERT_FATAL(worker_map(&w[0]) && worker_map(&w[1]));
}

/* Until the job's memory is given back, and its name is free. */
static void
end_job(void)
{
	time_t end = time(NULL) + DEADLINE_S;
	bool there = true;

	CU_ASSERT(worker_leave(&w[0]) && worker_leave(&w[1]));
	while (there && time(NULL) <= end) {
		json_t *d = ask("/pbox/jobs");

		there = number(d, "jobs") > 0;
		json_decref(d);
	}
	CU_ASSERT(!there);
}

static void
wishes(void)
{
	char cmd[256] = "/pbox/restore,";

	says("/pbox/restore,j", "error", "job 'j' is running");
	memset(cmd + strlen(cmd), '%', 200);
	says(cmd, "error", ""); /* too long for any job */
	end_job();
	says("/pbox/restore,other", "error", rig.o.snapshot_dir);
	says("/pbox/restore,j", "asked", "its newest snapshot is of round 1");
	says("/pbox/restore,j", "asked", "its newest snapshot is of round 1");
	says("/pbox/snapshots", "restore_0", "j");
}

static void
snapshots(void)
{
	char dir[] = "/tmp/pbox-unit-XXXXXX";
	json_t *d, *e;

	CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(dir));
	pbox_log_to(remember, NULL, PBOX_LOG_INFO);
	logged[0] = '\0';
	start(2, NULL, dir);
	says("/pbox/snapshot,j", "error", "there is no job 'j' now");
	run_once(2000);
	worker_push(&w[0], 0, 1);
	worker_push(&w[1], 0, 1);
	UNIT_EQ_U64(worker_results(&w[0], 1, 2), 2000);
	UNIT_EQ_U64(worker_results(&w[1], 1, 2), 2000);
	d = ask("/pbox/snapshot,j");
	CU_ASSERT_STRING_EQUAL(string(d, "asked"), "yes");
	UNIT_EQ_U64(number(d, "tables"), 1);
	json_decref(d);
	d = until("taken", 1);
	CU_ASSERT_STRING_EQUAL(string(d, "dir"), dir);
	e = json_object_get(d, "table_0");
	CU_ASSERT_STRING_EQUAL(string(e, "job"), "j");
	UNIT_EQ_U64(number(e, "taken"), 1);
	UNIT_EQ_U64(number(e, "failed"), 0);
	UNIT_EQ_U64(number(e, "round"), 1);
	CU_ASSERT(number(e, "bytes") > 8000);
	json_decref(d);
	CU_ASSERT_PTR_NOT_NULL(strstr(logged, "job 'j': snapshot of table 0 at round 1"));
	wishes();
	/* the next run goes on after it */
	run_once(2000);
	CU_ASSERT_PTR_NOT_NULL(strstr(logged, "table 0 begins with the snapshot of round 1"));
	UNIT_EQ_U64(w[0].chunk[0].version, 1);
	worker_push(&w[0], 0, 2);
	worker_push(&w[1], 0, 2);
	UNIT_EQ_U64(worker_results(&w[0], 2, 2), 2000);
	UNIT_EQ_U64(worker_results(&w[1], 2, 2), 2000);
	end_job();
	/* a table of another shape cannot: its workers hear why, until the wish is withdrawn */
	says("/pbox/restore,j", "asked", "its newest snapshot is of round 1");
	two_workers(true);
	CU_ASSERT_FATAL(worker_declare(&w[0], 3000) && worker_declare(&w[1], 3000));
	CU_ASSERT(worker_map_refused(&w[0], "is not of table 0: its tensor 0 is 't' with 2000"));
	CU_ASSERT(worker_map_refused(&w[1], "restore --withdraw lets it begin without one"));
	CU_ASSERT_PTR_NOT_NULL(strstr(logged, "is not of table 0: its tensor 0 is 't' with 2000"));
	end_job();
	says("/pbox/snapshots", "restore_0", "j");
	says("/pbox/restore_withdraw,j", "asked",
		"the next run of job 'j' begins without a snapshot");
	says("/pbox/restore_withdraw,j", "error", "nobody wants");
	run_once(3000);
	UNIT_EQ_U64(w[0].chunk[0].version, 0);
	stop();
	pbox_log_to(NULL, NULL, PBOX_LOG_ERROR);
	remove_dir(dir);
}

/* A wish that was fulfilled just before the stop is off the disk: the next box would fulfil it again. */
static void
forgotten_at_the_stop(void)
{
	struct pbox_snapshot_wished left[4];
	char dir[] = "/tmp/pbox-unit-XXXXXX";
	struct snapshots *s;

	CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(dir));
	start(1, NULL, dir);
	UNIT_EQ_U64(pbox_snapshot_wish(dir, "j", NULL, NULL), 0);
	UNIT_EQ_U64(pbox_snapshot_wishes(dir, left, 4), 1);
	s = &rig.control->snapshots;
	pthread_mutex_lock(&s->lock);
	snprintf(s->forget[s->n_forget++], sizeof(s->forget[0]), "j");
	s->quit = true;
	pthread_cond_signal(&s->wake_loader);
	pthread_mutex_unlock(&s->lock);
	stop();
	UNIT_EQ_U64(pbox_snapshot_wishes(dir, left, 4), 0);
	remove_dir(dir);
}

/* The only job, as /pbox/jobs has it; json_decref() the answer. */
static const json_t *
the_job(json_t **d)
{
	*d = ask("/pbox/jobs");
	return the_one(*d, "job");
}

/* All its workers are silent beyond their leases: it is kept, as the same run. */
static void
kept(void)
{
	const struct pbox_control_live live = {
		.drain_ns = 1, .lease_ms = 1000, .grace_ms = 600000, .job = &rig.job, .n_jobs = 1};
	time_t end = time(NULL) + DEADLINE_S;
	bool is_kept = false;
	uint64_t run, ms = 0;
	const json_t *j;
	json_t *d;

	start(2, NULL, NULL);
	pbox_control_change(rig.control, &live);
	run_once(2000);
	run = number(the_job(&d), "run");
	CU_ASSERT(run > 0);
	json_decref(d);
	while ((!is_kept || ms == 0) && time(NULL) <= end) {
		j = the_job(&d);
		is_kept = strcmp(string(j, "state"), "kept") == 0;
		ms = number(j, "kept_ms");
		CU_ASSERT(is_kept || ms == 0);
		CU_ASSERT(!is_kept || number(j, "silent") == 2);
		UNIT_EQ_U64(number(j, "run"), run);
		json_decref(d);
		usleep(2000);
	}
	CU_ASSERT(is_kept && ms > 0);
	stop();
}

/* ---- what an operator changes ----------------------------------------------------------------- */

static void
settings(void)
{
	struct pbox_control_live live = {.stats_interval_ns = 60000000000,
		.drain_ns = 1500000000,
		.snapshot_final_ns = 1,
		.lease_ms = 1000};

	pbox_log_to(remember, NULL, PBOX_LOG_INFO);
	start(2, NULL, NULL);
	says("/pbox/log", "level", "info");
	says("/pbox/log,debug", "level", "debug");
	CU_ASSERT_EQUAL(pbox_log_level_get(), PBOX_LOG_DEBUG);
	says("/pbox/set,log-level,warn", "level", "warn");
	CU_ASSERT_EQUAL(pbox_log_level_get(), PBOX_LOG_WARN);
	says("/pbox/log,info", "level", "info");
	says("/pbox/log,warning", "level", "warn");
	says("/pbox/log,loud", "error", "LEVEL is error, warn, info or debug");
	says("/pbox/set,stats-interval,10s", "stats_interval", "10s");
	says("/pbox/set,stats-interval,off", "stats_interval", "off");
	says("/pbox/set,drain,500ms", "drain", "500ms");
	says("/pbox/set,snapshot-interval,90s", "snapshot_interval", "90s");
	/* what is refused changes nothing */
	says("/pbox/set,drain,off", "error", "drain is a time as 10s or 500ms, at least 1 ms");
	says("/pbox/set,drain,0s", "error", "drain is a time");
	says("/pbox/set,drain,1h", "error", "drain is a time");
	says("/pbox/set,drain,99999999999s", "error", "drain is a time");
	says("/pbox/set,stats-interval,999ms", "error", "stats-interval is a time");
	says("/pbox/set,max-jobs,3", "error", "NAME,VALUE: log-level, stats-interval");
	says("/pbox/set", "drain", "500ms");
	/* another configuration holds again */
	live.job = &rig.job;
	live.n_jobs = 1;
	pbox_control_change(rig.control, &live);
	says("/pbox/set", "drain", "1500ms");
	says("/pbox/set", "stats_interval", "60s");
	says("/pbox/set", "snapshot_interval", "off");
	says("/pbox/capture", "error", "nothing can be captured");
	stop();
	pbox_log_to(NULL, NULL, PBOX_LOG_ERROR);
}

static void
kick_and_drain(void)
{
	json_t *d;

	start(2, NULL, NULL);
	says("/pbox/kick,j", "error", "whom?");
	says("/pbox/kick,j,0", "error",
		"no job of that name or number has workers now: /pbox/jobs");
	two_workers(false);
	says("/pbox/kick,j,2", "error", "WORKER is a worker of the job, 0 to 1");
	says("/pbox/kick,j,1", "error", "worker 1 of job 'j' has no session");
	says("/pbox/drain,on", "draining", "on");
	/* workers of a job that runs still come */
	CU_ASSERT_FATAL(worker_join(&rig, &w[1], 1, 2));
	says("/pbox/kick,j,1,made for it", "kicked", "1");
	d = ask("/pbox/workers,j,1");
	CU_ASSERT_STRING_EQUAL(string(json_object_get(d, "worker_1"), "state"), "left");
	json_decref(d);
	says("/pbox/drain,off", "draining", "off");
	says("/pbox/drain,maybe", "error", "on, off, or stop");
	says("/pbox/drain,stop", "draining", "stop");
	says("/pbox/drain", "draining", "stop");
	says("/pbox/drain,off", "draining", "off");
	stop();
}

/* What the samples of a second say of a link that is down, and of who keeps a job waiting. */
static void
findings(void)
{
	time_t end = time(NULL) + DEADLINE_S;
	bool link = false, slow = false;

	start(2, NULL, NULL);
	two_workers(true);
	CU_ASSERT_FATAL(worker_declare(&w[0], 2000) && worker_declare(&w[1], 2000));
	CU_ASSERT_FATAL(worker_map(&w[0]) && worker_map(&w[1]));
	worker_push(&w[0], 0, 1);
	CU_ASSERT_EQUAL(rte_eth_dev_set_link_down(rig.port[0].conf.id), 0);
	while ((!link || !slow) && time(NULL) < end) {
		json_t *d = ask("/pbox/health"), *f;
		const char *key;

		json_object_foreach(d, key, f)
		{
			if (strncmp(key, "finding_", 8) != 0)
				continue;
			link |= strcmp(string(f, "cause"), "link_down") == 0;
			if (strcmp(string(f, "cause"), "slow_worker") != 0)
				continue;
			slow = true;
			UNIT_EQ_U64(number(f, "worker"), 1);
			CU_ASSERT_STRING_EQUAL(string(f, "job"), "j");
			CU_ASSERT_PTR_NOT_NULL(
				strstr(string(f, "text"), "job 'j' waits for worker 1 (unit)"));
		}
		json_decref(d);
		usleep(20000);
	}
	CU_ASSERT_TRUE(link);
	CU_ASSERT_TRUE(slow);
	stop();
}

const struct unit_test unit_tests[] = {
	{"settings", settings},
	{"kick and drain", kick_and_drain},
	{"findings", findings},
	{"jobs", jobs},
	{"kept", kept},
	{"any parameters", any_parameters},
	{"why", why},
	{"many rounds", many_rounds},
	{"report and counters", report_and_counters},
	{"no snapshots", no_snapshots},
	{"snapshots", snapshots},
	{"a wish that ends with the box", forgotten_at_the_stop},
	{NULL, NULL},
};
