/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* What others learn of an agent: pbox-ctl cluster from a file, the daemon's health through telemetry. */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent.h"

#define HOLDS 20 /* seconds that a report to the daemon holds */

void
state_path(const char *prefix, char *path, size_t size)
{
	const char *said = getenv("RUNTIME_DIRECTORY"), *own = getenv("XDG_RUNTIME_DIR");

	if (said != NULL && said[0] != '\0')
		snprintf(path, size, "%.*s/agent.%s.json", (int)strcspn(said, ":"), said, prefix);
	else if (geteuid() == 0)
		snprintf(path, size, "/run/pbox-agent/agent.%s.json", prefix);
	else
		snprintf(path, size, "%s/agent.%s.json",
			own != NULL && own[0] != '\0' ? own : "/tmp", prefix);
}

static json_t *
state_boxes(const struct agent *a)
{
	const struct pbox_fleet_map *map = &a->view.map;
	json_t *boxes = json_array();

	for (unsigned i = 0; i < a->box.n; i++) {
		const struct pbox_fleet_member *m = &a->view.member[i];
		json_t *b = json_pack("{s:s, s:b, s:b, s:b}", "address", a->box.address[i], "lease",
			a->seen && m->here, "decides", a->seen && a->view.decides_box == i, "this",
			i == a->box.number);

		if (b != NULL && m->here)
			json_object_set_new(b, "release", json_string(m->release));
		if (b != NULL && a->view.has_map && i < map->n_boxes &&
			strcmp(map->box[i].address, a->box.address[i]) == 0)
			json_object_set_new(
				b, "state", json_string(pbox_fleet_state_name(map->box[i].state)));
		json_array_append_new(boxes, b);
	}
	return boxes;
}

static json_t *
state_jobs(const struct agent *a)
{
	json_t *jobs = json_object();

	for (unsigned k = 0; k < a->box.n_jobs && a->view.has_map; k++) {
		json_t *weights = json_array();

		for (unsigned i = 0; i < a->view.map.n_boxes; i++)
			json_array_append_new(weights, json_integer(pbox_fleet_weight(&a->view.map,
							       a->box.job[k].name, i)));
		json_object_set_new(jobs, a->box.job[k].name, weights);
	}
	return jobs;
}

static json_t *
state_made(const struct agent *a, uint64_t now)
{
	const struct pbox_fleet_map *map = &a->view.map;
	uint64_t end = a->sent_ns + a->ttl_ns;
	json_t *all = json_pack("{s:s, s:I, s:I, s:s, s:b, s:o, s:o, s:o}", "fleet", a->fleet,
		"written_ms", (json_int_t)(now / AGENT_MS), "lease_ms",
		(json_int_t)(a->lease != 0 && end > now ? (end - now) / AGENT_MS : 0), "etcd",
		a->etcd.url[a->etcd.at], "etcd_answers",
		a->seen && (a->bad_ns == 0 || a->bad == ENOSPC), "boxes", state_boxes(a), "jobs",
		state_jobs(a), "load", load_state(a));

	if (all == NULL)
		return NULL;
	if (a->seen)
		json_object_set_new(all, "revision", json_integer(a->view.revision));
	if (a->view.has_map)
		json_object_set_new(all, "map",
			json_pack("{s:I, s:I, s:s, s:b}", "revision",
				(json_int_t)a->view.map_revision, "epoch", (json_int_t)map->epoch,
				"why", map->why, "applied", a->applied == a->history.serial));
	if (a->bad_ns != 0)
		json_object_set_new(
			all, "silent_ms", json_integer((json_int_t)((now - a->bad_ns) / AGENT_MS)));
	if (a->finding.weight > 0)
		json_object_set_new(all, "finding",
			json_pack("{s:s, s:s, s:b}", "text", a->finding.text, "next",
				a->finding.next, "harmful", a->finding.harmful));
	return all;
}

void
state_write(struct agent *a, uint64_t now)
{
	static int said; /* the errno that was logged last */
	char path[256], part[300];
	json_t *all = state_made(a, now);
	char *text = all != NULL ? json_dumps(all, JSON_INDENT(1)) : NULL;
	int fd = -1, error = 0;
	FILE *f;

	json_decref(all);
	if (text == NULL)
		return;
	state_path(a->box.prefix, path, sizeof(path));
	snprintf(part, sizeof(part), "%s", path);
	*strrchr(part, '/') = '\0';
	mkdir(part, 0700);
	/* by its name, whole: who reads it sees one state or the next */
	snprintf(part, sizeof(part), "%s.XXXXXX", path);
	fd = mkstemp(part);
	f = fd >= 0 ? fdopen(fd, "w") : NULL;
	if (f == NULL || fputs(text, f) == EOF || fputc('\n', f) == EOF)
		error = errno;
	if (f != NULL ? fclose(f) != 0 : fd >= 0 && close(fd) != 0)
		error = errno;
	if (fd >= 0 && error == 0 && rename(part, path) != 0)
		error = errno;
	if (fd >= 0 && error != 0)
		unlink(part);
	if (error != 0 && error != said)
		pbox_log(PBOX_LOG_WARN,
			"%s cannot be written: %s: pbox-ctl cluster has nothing to show", path,
			strerror(error));
	said = error;
	free(text);
}

/* Printable ASCII without what separates the parts. */
static void
state_plain(char *text)
{
	for (; *text != '\0'; text++)
		if (*text < 0x20 || *text > 0x7e || *text == '|')
			*text = '?';
}

void
state_report(struct agent *a, uint64_t now)
{
	char command[600], text[200], next[160];
	struct pbox_error err;
	json_t *answer;

	if (a->box.answered_ns == 0)
		return;
	snprintf(text, sizeof(text), "%s", a->finding.text);
	snprintf(next, sizeof(next), "%s", a->finding.next);
	state_plain(text);
	state_plain(next);
	if (a->finding.weight > 0)
		snprintf(command, sizeof(command), "/pbox/agent,%d,%d,%s|%s", HOLDS,
			a->finding.harmful, text, next);
	else
		snprintf(command, sizeof(command), "/pbox/agent,%d", HOLDS);
	if (box_ask(&a->box, command, &answer, &err) == 0)
		a->reported = a->finding;
	json_decref(answer);
	a->report_ns = now + HOLDS * AGENT_S / 4;
}
