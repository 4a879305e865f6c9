/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Sets of snapshots by a person: ask, wait for what agents make of it, show. */

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent.h"

#define TRIES      5
#define LOOK_EVERY 200000000L      /* ns */
#define NOBODY     (30 * AGENT_S)  /* for an agent to begin */
#define SILENT     (600 * AGENT_S) /* without any news */

static struct pbox_fleet_view view;
static struct pbox_fleet_sets sets;

static int
set_look(struct etcd *e, const char *fleet, const char *job, unsigned *at, struct pbox_error *err)
{
	int ret = ask_view(e, fleet, 0, &view, &sets, err);

	*at = ret == 0 ? pbox_fleet_set_of(&sets, job) : UINT_MAX;
	return ret;
}

static int
set_put(struct etcd *e, const char *fleet, const struct pbox_fleet_set *next, int64_t revision,
	struct pbox_error *err)
{
	char key[PBOX_FLEET_KEY];
	struct pbox_etcd_compare compare = {
		.key = pbox_fleet_key_set(key, fleet, next->job), .revision = revision};
	int ret = ask_put(e, &compare, 1, key, pbox_fleet_set_write(next), 0, err);

	return ret == 0 ? pbox_fail(err, EAGAIN, "others change it at the same time") : ret;
}

static int
set_ask(struct etcd *e, const char *fleet, const char *job, bool restore, uint32_t round,
	struct pbox_fleet_set *next, struct pbox_error *err)
{
	unsigned at;
	int ret = set_look(e, fleet, job, &at, err);

	if (ret != 0)
		return ret;
	if (!view.has_map)
		return pbox_fail(err, ENOENT,
			"fleet %s has no map yet: it is written when an agent of it runs", fleet);
	if (at == UINT_MAX && sets.n == PBOX_FLEET_SETS)
		return pbox_fail(err, ENOSPC,
			"etcd has sets of %u jobs: remove that of one which is over (etcdctl del /pbox/%s/sets/JOB)",
			sets.n, fleet);
	ret = pbox_fleet_set_ask(
		at != UINT_MAX ? &sets.of[at].set : NULL, job, restore, round, next, err);
	return ret < 0 ? ret
		       : set_put(e, fleet, next, at != UINT_MAX ? sets.of[at].revision : 0, err);
}

static int
set_withdraw(
	struct etcd *e, const char *fleet, const char *job, const char *why, struct pbox_error *err)
{
	unsigned at;
	int ret = set_look(e, fleet, job, &at, err);

	if (ret != 0)
		return ret;
	if (at == UINT_MAX || sets.of[at].set.state != PBOX_FLEET_SET_ASKED)
		return pbox_fail(
			err, ENOENT, "nothing is under way for job '%s': see pbox-agent sets", job);
	sets.of[at].set.state = PBOX_FLEET_SET_FAILED;
	snprintf(sets.of[at].set.why, sizeof(sets.of[at].set.why), "%s", why);
	return set_put(e, fleet, &sets.of[at].set, sets.of[at].revision, err);
}

/* Until it is over: 0, or what went wrong. */
static int
set_wait(struct etcd *e, const char *fleet, struct pbox_fleet_set *set, struct pbox_error *err)
{
	const struct timespec pause = {.tv_nsec = LOOK_EVERY};
	uint64_t since = agent_now();
	unsigned at;

	for (;;) {
		uint64_t silent = agent_now() - since;
		int ret;

		nanosleep(&pause, NULL);
		ret = set_look(e, fleet, set->job, &at, err);
		if (ret != 0 && silent >= NOBODY)
			return ret;
		if (ret == 0 && (at == UINT_MAX || sets.of[at].set.id != set->id))
			return pbox_fail(err, ESTALE, "somebody else has asked for another one");
		if (ret == 0 && (sets.of[at].set.round != set->round ||
					sets.of[at].set.state != set->state)) {
			*set = sets.of[at].set;
			since = agent_now();
		}
		if (set->state == PBOX_FLEET_SET_DONE)
			return 0;
		if (set->state == PBOX_FLEET_SET_FAILED)
			return pbox_fail(err, EIO, "%s", set->why);
		if (set->round == 0 && silent >= NOBODY)
			return pbox_fail(err, ETIMEDOUT,
				"no agent has begun within %u s: does job '%s' run (pbox-ctl jobs), and pbox-agent beside each box (pbox-ctl cluster)?",
				(unsigned)(NOBODY / AGENT_S), set->job);
		if (silent >= SILENT)
			return pbox_fail(err, ETIMEDOUT,
				"nothing new for %u s: pbox-agent sets shows how far it is, and the logs of pbox-agent why",
				(unsigned)(SILENT / AGENT_S));
	}
}

static int
sets_show(struct etcd *e, const char *fleet, struct pbox_error *err)
{
	static const char *const name[] = {"under way", "done", "failed"};
	unsigned at;
	int ret = set_look(e, fleet, "", &at, err);

	for (unsigned i = 0; ret == 0 && i < sets.n; i++) {
		const struct pbox_fleet_set *s = &sets.of[i].set;

		if (s->whole != 0)
			printf("job '%s': the last whole set is of round %" PRIu32 "\n", s->job,
				s->whole);
		else
			printf("job '%s': no set is whole\n", s->job);
		printf("  %s of round %" PRIu32 ": %s%s%s\n", s->restore ? "restore" : "snapshot",
			s->round, name[s->state], s->why[0] != '\0' ? ": " : "", s->why);
		for (unsigned b = 0; s->state == PBOX_FLEET_SET_ASKED && b < view.map.n_boxes; b++)
			if (sets.of[i].part[b].id != s->id || sets.of[i].part[b].round != s->round)
				printf("  waits for box %u (%s)\n", b, view.map.box[b].address);
	}
	if (ret == 0 && sets.n == 0)
		printf("etcd knows no sets of snapshots of fleet %s\n", fleet);
	return ret;
}

/* -1: it is none */
static int64_t
set_round(const char *text)
{
	char *end;
	unsigned long long n = strtoull(text, &end, 10);

	return *text >= '0' && *text <= '9' && *end == '\0' && n > 0 && n <= UINT32_MAX ? (int64_t)n
											: -1;
}

static int
set_do(struct etcd *e, const char *fleet, int argc, char **argv, struct pbox_error *err)
{
	bool restore = strcmp(argv[0], "restore") == 0;
	int64_t round = argc > 2 ? set_round(argv[2]) : 0;
	struct pbox_fleet_set set;
	struct pbox_error other;
	int ret = -EAGAIN;

	if (strcmp(argv[0], "sets") == 0)
		return sets_show(e, fleet, err);
	if (strlen(argv[1]) >= PBOX_FLEET_NAME || argv[1][0] == '\0')
		return pbox_fail(err, EINVAL, "'%.80s' is no name of a job: 1 to %u bytes", argv[1],
			PBOX_FLEET_NAME - 1);
	if (round < 0)
		return pbox_fail(err, EINVAL, "'%.40s' is no round: 1 to 4294967295", argv[2]);
	if (strcmp(argv[0], "withdraw") == 0) {
		ret = set_withdraw(e, fleet, argv[1], "withdrawn by a person", err);
		if (ret > 0)
			printf("job '%s': withdrawn\n", argv[1]);
		return ret < 0 ? ret : 0;
	}
	for (unsigned i = 0; i < TRIES && ret == -EAGAIN; i++)
		ret = set_ask(e, fleet, argv[1], restore, (uint32_t)round, &set, err);
	if (ret < 0)
		return ret;
	ret = set_wait(e, fleet, &set, err);
	if (ret == 0)
		printf("job '%s': %s\n", set.job, set.why);
	else if (ret == -ETIMEDOUT && set.round == 0)
		set_withdraw(e, fleet, set.job, "no agent had begun", &other);
	return ret;
}

int
set_command(struct etcd *e, const struct pbox_options *opt, int argc, char **argv)
{
	struct pbox_error err = {0};

	if (set_do(e, opt->clusters[0].name, argc, argv, &err) == 0)
		return 0;
	fprintf(stderr, "pbox-agent: %s\n", err.text);
	return 1;
}
