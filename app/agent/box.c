/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* The daemon beside this agent, through its telemetry socket (doc/telemetry.md). */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent.h"

#define ANSWER  (64 * 1024) /* bytes; DPDK's have 16 KiB */
#define PATIENT 2 /* seconds for an answer: shorter than a lease leaves between two keep-alives */
#define SAME    (3 * AGENT_S) /* begins of one run differ by less, as they are computed */
#define PARTS   4             /* NAME, NAME_more, ... */

void
box_close(struct box *b)
{
	if (b->fd >= 0)
		close(b->fd);
	b->fd = -1;
}

static bool
box_connect_at(struct box *b, const char *dir, size_t len)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	struct timeval patience = {.tv_sec = PATIENT};
	char greeting[4096];
	int n = snprintf(to.sun_path, sizeof(to.sun_path), "%.*s/dpdk/%s/dpdk_telemetry.v2",
		(int)len, dir, b->prefix);

	if (n < 0 || (size_t)n >= sizeof(to.sun_path))
		return false;
	b->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (b->fd < 0)
		return false;
	setsockopt(b->fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	setsockopt(b->fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	if (connect(b->fd, (struct sockaddr *)&to, sizeof(to)) == 0 &&
		recv(b->fd, greeting, sizeof(greeting), 0) > 0)
		return true;
	box_close(b);
	return false;
}

/* As pbox-ctl: where it is said, that of the packages' service, DPDK's own. */
static int
box_connect(struct box *b, struct pbox_error *err)
{
	const char *said = getenv("RUNTIME_DIRECTORY"), *own = getenv("XDG_RUNTIME_DIR");

	for (const char *at = said; at != NULL && *at != '\0';) {
		size_t n = strcspn(at, ":");

		if (n > 0 && box_connect_at(b, at, n))
			return 0;
		at += n;
		at += *at == ':';
	}
	if (own == NULL || own[0] == '\0')
		own = "/tmp";
	/* others may write to /tmp: root asks nobody there */
	if (box_connect_at(b, "/run/pbox", 9) ||
		(geteuid() != 0 && box_connect_at(b, own, strlen(own))) ||
		box_connect_at(b, "/var/run", 8))
		return 0;
	return pbox_fail(err, ENOENT,
		"no box with the file prefix '%s' answers this user: is it running? -f names another prefix",
		b->prefix);
}

int
box_ask(struct box *b, const char *command, json_t **answer, struct pbox_error *err)
{
	static char text[ANSWER];
	size_t name = strcspn(command, ",");
	char key[64];
	const char *error;
	json_t *all;
	ssize_t n;
	int ret;

	*answer = NULL;
	if (b->fd < 0) {
		ret = box_connect(b, err);
		if (ret != 0)
			return ret;
	}
	if (send(b->fd, command, strlen(command), MSG_NOSIGNAL) < 0 ||
		(n = recv(b->fd, text, sizeof(text), 0)) <= 0) {
		/* what came later would be taken for the answer to the next question */
		box_close(b);
		return pbox_fail(err, ENOENT, "the box gives no answer to %.60s", command);
	}
	snprintf(key, sizeof(key), "%.*s", (int)name, command);
	all = json_loadb(text, (size_t)n, 0, NULL);
	*answer = json_incref(json_object_get(all, key));
	json_decref(all);
	if (*answer == NULL || json_is_null(*answer)) {
		json_decref(*answer);
		*answer = NULL;
		return pbox_fail(err, ENOTSUP,
			"this box does not know %s: it is still starting, or of an older release",
			key);
	}
	error = json_string_value(json_object_get(*answer, "error"));
	if (error == NULL)
		return 0;
	pbox_fail(err, EPROTO, "%.300s", error);
	json_decref(*answer);
	*answer = NULL;
	return -EPROTO;
}

bool
box_same_run(const struct box_job *x, const struct box_job *y)
{
	uint64_t apart =
		x->begun_ns > y->begun_ns ? x->begun_ns - y->begun_ns : y->begun_ns - x->begun_ns;

	return strcmp(x->name, y->name) == 0 && x->number == y->number && apart < SAME;
}

bool
box_has_run(const struct box *b, const struct box_job *job)
{
	for (unsigned i = 0; i < b->n_jobs; i++)
		if (box_same_run(&b->job[i], job))
			return true;
	return false;
}

void
box_text(const json_t *j, const char *name, char *out, size_t size)
{
	char key[64];
	size_t n = 0;

	PBOX_ASSERT(size > 0);
	out[0] = '\0';
	snprintf(key, sizeof(key), "%s", name);
	for (unsigned i = 0; i < PARTS; i++) {
		const char *part = json_string_value(json_object_get(j, key));

		if (part == NULL)
			break;
		pbox_fleet_utf7(part, out + n, size - n);
		n += strlen(out + n);
		snprintf(key + strlen(key), sizeof(key) - strlen(key), "_more");
	}
}

/* "1 3" */
static uint32_t
box_bits(const char *text)
{
	uint32_t bits = 0;
	char *end;

	while (text != NULL && *text != '\0') {
		unsigned long n = strtoul(text, &end, 10);

		if (end == text || n >= PBOX_FLEET_BOXES)
			break;
		bits |= 1u << n;
		text = end;
	}
	return bits;
}

static int
box_look_jobs(struct box *b, struct pbox_error *err)
{
	json_int_t next = 0;

	b->n_jobs = 0;
	do {
		char command[48];
		const char *name;
		json_t *answer, *j;
		int ret;

		snprintf(command, sizeof(command), "/pbox/jobs,%u", (unsigned)next);
		ret = box_ask(b, command, &answer, err);
		if (ret != 0)
			return ret;
		json_object_foreach(answer, name, j)
		{
			struct box_job *at = &b->job[b->n_jobs];
			uint64_t age = (uint64_t)json_integer_value(json_object_get(j, "age_ms"));

			if (strncmp(name, "job_", 4) != 0 || b->n_jobs == AGENT_JOBS)
				continue;
			box_text(j, "name", at->name, sizeof(at->name));
			at->number = (unsigned)strtoul(name + 4, NULL, 10);
			at->tables = (unsigned)json_integer_value(json_object_get(j, "tables"));
			at->round = (uint32_t)json_integer_value(json_object_get(j, "round"));
			at->begun_ns = agent_now() - age * AGENT_MS;
			at->out = box_bits(json_string_value(json_object_get(j, "out")));
			at->decider = (unsigned)json_integer_value(json_object_get(j, "decides"));
			at->run = (uint64_t)json_integer_value(json_object_get(j, "run"));
			b->n_jobs++;
		}
		j = json_object_get(answer, "next");
		/* a box that names no later page has named the last one */
		next = json_integer_value(j) > next ? json_integer_value(j) : 0;
		json_decref(answer);
	} while (next > 0);
	return 0;
}

int
box_look(struct box *b, struct pbox_error *err)
{
	json_t *answer;
	json_int_t n, number;
	int ret = box_ask(b, "/pbox/boxes", &answer, err);

	if (ret != 0)
		return ret;
	n = json_integer_value(json_object_get(answer, "boxes"));
	number = json_integer_value(json_object_get(answer, "box"));
	if (n < 2 || n > PBOX_FLEET_BOXES || number < 0 || number >= n) {
		json_decref(answer);
		return pbox_fail(err, EINVAL,
			"this box is alone: write boxes = with an address of each box into pbox.conf, and start it again");
	}
	b->n = (unsigned)n;
	b->number = (unsigned)number;
	box_text(answer, "release", b->release, sizeof(b->release));
	for (unsigned i = 0; i < b->n; i++) {
		char key[16];

		snprintf(key, sizeof(key), "box_%u", i);
		box_text(answer, key, b->address[i], sizeof(b->address[i]));
	}
	json_decref(answer);
	ret = box_look_jobs(b, err);
	PBOX_ASSERT(b->n <= PBOX_FLEET_BOXES && b->number < b->n && b->n_jobs <= AGENT_JOBS);
	if (ret == 0)
		b->answered_ns = agent_now();
	return ret;
}
