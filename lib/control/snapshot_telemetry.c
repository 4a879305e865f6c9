/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reply.h"

static const char *const state_name[] = {"idle", "moving", "copying", "describing", "writing"};

/* JOB[,ROUND]: the name of a job has no comma that digits alone follow. False: no number. */
static bool
take_round(const char *params, char name[PBOX_NAME_LEN + 1], uint32_t *round, bool *exact)
{
	const char *comma = strrchr(params, ',');
	size_t len = comma != NULL ? (size_t)(comma - params) : strlen(params);
	char *end = NULL;
	unsigned long long n = comma != NULL ? strtoull(comma + 1, &end, 10) : 0;

	*exact = comma != NULL;
	*round = (uint32_t)n;
	snprintf(name, PBOX_NAME_LEN + 1, "%.*s", (int)(len > PBOX_NAME_LEN ? PBOX_NAME_LEN : len),
		params);
	return comma == NULL || (end != comma + 1 && *end == '\0' && n > 0 && n <= UINT32_MAX);
}

static int
on_snapshot(const char *cmd, const char *params, struct rte_tel_data *d)
{
	struct pbox_control *c = telemetry_lock();
	struct pbox_error err = {.text = "which job? /pbox/snapshot,JOB[,ROUND]"};
	char name[PBOX_NAME_LEN + 1];
	unsigned tables = 0;
	uint32_t round;
	bool exact;
	int ret = -1;

	rte_tel_data_start_dict(d);
	if (c != NULL && params != NULL && params[0] != '\0' &&
		take_round(params, name, &round, &exact))
		ret = snapshot_ask(c, name, exact ? &round : NULL, &tables, &err);
	if (c != NULL)
		commands_add(&c->commands, cmd, params, ret != 0 ? err.text : NULL);
	telemetry_unlock(c);
	if (ret != 0) {
		reply_text(d, "error", "%s", err.text);
		return 0;
	}
	reply_text(d, "asked", "%s", "yes");
	rte_tel_data_add_dict_u64(d, "tables", tables);
	reply_text(d, "see", "%s", "/pbox/snapshots");
	return 0;
}

static int
restore(const char *cmd, const char *params, bool withdraw, struct rte_tel_data *d)
{
	struct pbox_control *c = telemetry_hold();
	char text[320] = "which job? JOB[,ROUND] is the parameter";
	char name[PBOX_NAME_LEN + 1];
	uint32_t round;
	bool exact;
	int ret = -1;

	rte_tel_data_start_dict(d);
	if (c != NULL && params != NULL && params[0] != '\0' &&
		take_round(params, name, &round, &exact))
		ret = snapshot_wish(c, name, exact ? &round : NULL, withdraw, text, sizeof(text));
	if (c != NULL)
		commands_add(&c->commands, cmd, params, ret != 0 ? text : NULL);
	telemetry_release();
	reply_text(d, ret == 0 ? "asked" : "error", "%s", text);
	return 0;
}

static int
on_restore(const char *cmd, const char *params, struct rte_tel_data *d)
{
	return restore(cmd, params, false, d);
}

static int
on_withdraw(const char *cmd, const char *params, struct rte_tel_data *d)
{
	return restore(cmd, params, true, d);
}

static struct rte_tel_data *
telemetry_result(struct pbox_control *c, const struct snapshot_result *x, uint64_t now)
{
	struct rte_tel_data *d = rte_tel_data_alloc();
	struct pbox_job_view j;

	if (d == NULL)
		return NULL;
	rte_tel_data_start_dict(d);
	reply_text(d, "job", "%s", x->job);
	rte_tel_data_add_dict_u64(d, "table", x->table);
	rte_tel_data_add_dict_u64(d, "taken", x->taken);
	rte_tel_data_add_dict_u64(d, "failed", x->failed);
	if (x->at_ns > 0) {
		rte_tel_data_add_dict_u64(d, "round", x->round);
		rte_tel_data_add_dict_u64(d, "age_s", (now - x->at_ns) / ONE_SECOND);
		rte_tel_data_add_dict_u64(d, "bytes", x->bytes);
		rte_tel_data_add_dict_u64(d, "copy_ms", x->copy_us / 1000);
		rte_tel_data_add_dict_u64(d, "write_ms", x->write_us / 1000);
		if (snapshot_job(c, x->job, &j) && j.begun_ns == x->begun_ns)
			rte_tel_data_add_dict_u64(d, "of_this_run", 1);
	}
	if (x->error[0] != '\0')
		reply_text(d, "error", "%s", x->error);
	if (x->error[0] != '\0' && x->late)
		rte_tel_data_add_dict_u64(d, "late", 1);
	return d;
}

/* The latest ones of tables, as many as an answer holds. */
static int
on_snapshots(const char *cmd __rte_unused, const char *params __rte_unused, struct rte_tel_data *d)
{
	struct pbox_control *c = telemetry_lock();
	const struct snapshots *s = c != NULL ? &c->snapshots : NULL;

	rte_tel_data_start_dict(d);
	if (s != NULL && s->conf->dir == NULL) {
		reply_text(d, "error", "%s", "off: snapshot-dir and snapshot-memory are not set");
	} else if (s != NULL) {
		uint64_t now = pbox_dp_now(c->conf.dp);

		reply_text(d, "dir", "%s", s->conf->dir);
		reply_text(d, "state", "%s", state_name[s->state]);
		if (s->state != SNAPSHOT_IDLE) {
			reply_text(d, "job", "%s", s->job);
			rte_tel_data_add_dict_u64(d, "table", s->table);
		}
		rte_tel_data_add_dict_u64(d, "waiting", s->n_asked);
		rte_tel_data_add_dict_u64(d, "loading", snapshot_loads(&c->snapshots));
		for (unsigned i = 0; i < s->n_wishes; i++) {
			char name[32];

			snprintf(name, sizeof(name), "restore_%u", i);
			reply_text(d, name, "%s", s->wish[i].job);
		}
		for (unsigned i = 0; i < s->n_results && i < 48; i++) {
			struct rte_tel_data *x = telemetry_result(c, &s->result[i], now);
			char name[32];

			snprintf(name, sizeof(name), "table_%u", i);
			if (x != NULL && rte_tel_data_add_dict_container(d, name, x, 0) != 0)
				rte_tel_data_free(x);
		}
	}
	telemetry_unlock(c);
	return 0;
}

void
snapshot_telemetry(void)
{
	rte_telemetry_register_cmd("/pbox/snapshot", on_snapshot,
		"Take a snapshot of all tables of a job now. Parameter: its name[,ROUND].");
	rte_telemetry_register_cmd("/pbox/snapshots", on_snapshots,
		"Snapshots: what is going on, and the latest ones.");
	rte_telemetry_register_cmd("/pbox/restore", on_restore,
		"The next run of a job begins with its snapshot. Parameter: its name[,ROUND].");
	rte_telemetry_register_cmd("/pbox/restore_withdraw", on_withdraw,
		"It does not, after all. Parameter: the name of the job.");
}
