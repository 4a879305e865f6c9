/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>
#include <string.h>

#include <rte_telemetry.h>

#include "control_priv.h"

static const char *const state_name[] = {"idle", "copying", "writing"};

/* A string of an answer has 127 bytes: what does not fit is cut. */
static void
add_string(struct rte_tel_data *d, const char *name, const char *text)
{
	char cut[RTE_TEL_MAX_STRING_LEN];

	snprintf(cut, sizeof(cut), "%s", text);
	rte_tel_data_add_dict_string(d, name, cut);
}

static int
on_snapshot(const char *cmd, const char *params, struct rte_tel_data *d)
{
	struct pbox_control *c = telemetry_lock();
	struct pbox_error err = {.text = "which job? /pbox/snapshot,JOB"};
	unsigned tables = 0;
	int ret = -1;

	(void)cmd;
	rte_tel_data_start_dict(d);
	if (c != NULL && params != NULL && params[0] != '\0')
		ret = snapshot_ask(c, params, &tables, &err);
	telemetry_unlock(c);
	if (ret != 0) {
		add_string(d, "error", err.text);
		return 0;
	}
	rte_tel_data_add_dict_string(d, "asked", "yes");
	rte_tel_data_add_dict_u64(d, "tables", tables);
	rte_tel_data_add_dict_string(d, "see", "/pbox/snapshots");
	return 0;
}

static int
on_restore(const char *cmd, const char *params, struct rte_tel_data *d)
{
	struct pbox_control *c = telemetry_lock();
	char text[256] = "which job? /pbox/restore,JOB";
	int ret = -1;

	(void)cmd;
	rte_tel_data_start_dict(d);
	if (c != NULL && params != NULL && params[0] != '\0')
		ret = snapshot_wish(c, params, text, sizeof(text));
	telemetry_unlock(c);
	add_string(d, ret == 0 ? "asked" : "error", text);
	return 0;
}

static struct rte_tel_data *
result(const struct snapshot_result *x, uint64_t now)
{
	struct rte_tel_data *d = rte_tel_data_alloc();

	if (d == NULL)
		return NULL;
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_string(d, "job", x->job);
	rte_tel_data_add_dict_u64(d, "table", x->table);
	rte_tel_data_add_dict_u64(d, "taken", x->taken);
	rte_tel_data_add_dict_u64(d, "failed", x->failed);
	if (x->at_ns > 0) {
		rte_tel_data_add_dict_u64(d, "round", x->round);
		rte_tel_data_add_dict_u64(d, "age_s", (now - x->at_ns) / ONE_SECOND);
		rte_tel_data_add_dict_u64(d, "bytes", x->bytes);
		rte_tel_data_add_dict_u64(d, "copy_ms", x->copy_us / 1000);
		rte_tel_data_add_dict_u64(d, "write_ms", x->write_us / 1000);
	}
	if (x->error[0] != '\0')
		add_string(d, "error", x->error);
	return d;
}

/* The latest ones of tables, as many as an answer holds. */
static int
on_snapshots(const char *cmd, const char *params, struct rte_tel_data *d)
{
	struct pbox_control *c = telemetry_lock();
	const struct snapshots *s = c != NULL ? &c->snapshots : NULL;

	(void)cmd;
	(void)params;
	rte_tel_data_start_dict(d);
	if (s != NULL && s->conf->dir == NULL) {
		rte_tel_data_add_dict_string(
			d, "error", "off: snapshot-dir and snapshot-memory are not set");
	} else if (s != NULL) {
		uint64_t now = pbox_dp_now(c->conf.dp);

		add_string(d, "dir", s->conf->dir);
		rte_tel_data_add_dict_string(d, "state", state_name[s->state]);
		if (s->state != SNAPSHOT_IDLE) {
			rte_tel_data_add_dict_string(d, "job", s->job);
			rte_tel_data_add_dict_u64(d, "table", s->table);
		}
		rte_tel_data_add_dict_u64(d, "waiting", s->n_asked);
		for (unsigned i = 0; i < s->n_wishes; i++) {
			char name[32];

			snprintf(name, sizeof(name), "restore_%u", i);
			rte_tel_data_add_dict_string(d, name, s->wish[i].job);
		}
		for (unsigned i = 0; i < s->n_results && i < 48; i++) {
			struct rte_tel_data *x = result(&s->result[i], now);
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
		"Take a snapshot of all tables of a job now. Parameter: its name.");
	rte_telemetry_register_cmd("/pbox/snapshots", on_snapshots,
		"Snapshots: what is going on, and the latest ones.");
	rte_telemetry_register_cmd("/pbox/restore", on_restore,
		"The next run of a job begins with its snapshot. Parameter: its name.");
}
