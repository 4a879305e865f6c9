/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * The box that decides in a job is lost, and this one takes its place (R16.17), as 'pbox-ctl failover' there does. Three steps, each of which begins
 * with the keys as they are in etcd then:
 *
 *   - the box is asked whether it would; it would not while rounds end, for then the other one lives, and is cut off from etcd alone;
 *   - the map says that it does: one box of a run, by compare-and-swap, and only while this agent has its key;
 *   - the map says so: the box does it.
 *
 * What came in between is seen in the next step: the map says so no more, if the box does not take that place.
 */

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "agent.h"

bool
take_is_lost(const struct agent *a, unsigned box, uint64_t now)
{
	return a->conf->failover_ns != 0 && box < a->view.map.n_boxes &&
	       a->view.map.box[box].state != PBOX_FLEET_SERVES && a->away_ns[box] != 0 &&
	       now - a->away_ns[box] >= a->conf->failover_ns;
}

/* Is this box the next one of the list that lives? @p dead: bit by box, those between that are lost as well. */
static bool
take_is_next(const struct agent *a, const struct box_job *job, uint64_t now, uint32_t *dead)
{
	unsigned me = a->box.number;

	*dead = 0;
	if (job->decider >= a->box.n || (job->out >> me & 1) != 0 ||
		!take_is_lost(a, job->decider, now))
		return false;
	for (unsigned b = (job->decider + 1) % a->box.n; b != me; b = (b + 1) % a->box.n) {
		if ((job->out >> b & 1) != 0)
			continue;
		if (!take_is_lost(a, b, now))
			return false;
		*dead |= 1u << b;
	}
	return true;
}

/* Write the map that says so, or no more. This agent's key must be there still: another agent may have taken its box for lost. */
static bool
take_write(struct agent *a, const struct box_job *job, bool takes, const char *why)
{
	static struct pbox_fleet_map next;
	struct pbox_etcd_compare compare[2] = {{.revision = a->view.map_revision},
		{.revision = a->view.member[a->box.number].revision}};
	char key[PBOX_FLEET_KEY], mine[PBOX_FLEET_KEY];
	struct pbox_error err = {0};
	int ret;

	PBOX_ASSERT(a->view.has_map && a->box.number < a->view.map.n_boxes);
	if (!a->view.member[a->box.number].here || a->view.member[a->box.number].lease != a->lease)
		return false;
	next = a->view.map;
	if (takes)
		pbox_fleet_map_take(&next, job->name, job->run, a->box.number, why);
	else
		pbox_fleet_map_untake(&next, job->name, job->run, why);
	compare[0].key = pbox_fleet_key(key, a->fleet, "map");
	compare[1].key = pbox_fleet_key_box(mine, a->fleet, a->box.number);
	ret = ask_put(&a->etcd, compare, 2, key, pbox_fleet_map_write(&next), 0, &err);
	if (ret == 1)
		pbox_log(PBOX_LOG_INFO, "map of epoch %" PRIu64 ": %s", next.epoch, next.why);
	else if (ret < 0)
		pbox_log(PBOX_LOG_WARN, "job '%s': the map cannot say which box decides: %s",
			job->name, err.text);
	return ret >= 0;
}

/* The box is asked, to try it or to do it. */
static int
take_ask(struct agent *a, struct box_job *job, const char *how, uint32_t dead)
{
	char command[64 + 3 * PBOX_FLEET_BOXES];
	size_t n = (size_t)snprintf(command, sizeof(command), "/pbox/failover,#%u,%u,%s",
		job->number, job->decider, how);
	struct pbox_error err = {0};
	json_t *answer;
	int ret;

	for (unsigned b = 0; b < a->box.n; b++)
		if ((dead >> b & 1) != 0)
			n += (size_t)snprintf(command + n, sizeof(command) - n, "+%u", b);
	PBOX_ASSERT(n < sizeof(command));
	ret = box_ask(&a->box, command, &answer, &err);
	json_decref(answer);
	if (ret != 0)
		pbox_fail(&a->lost, -ret, "job '%s' cannot go on without box %u: %s", job->name,
			job->decider, err.text);
	return ret;
}

static bool
take_do(struct agent *a, struct box_job *job, uint32_t dead, uint64_t now)
{
	char why[96];

	if (take_ask(a, job, "take", dead) != 0) {
		snprintf(why, sizeof(why), "box %u does not take the place of box %u",
			a->box.number, job->decider);
		return take_write(a, job, false, why);
	}
	pbox_log(PBOX_LOG_WARN,
		"box %u has had no lease for %" PRIu64
		" s: job '%s' goes on without it, and box %u decides",
		job->decider, (now - a->away_ns[job->decider]) / AGENT_S, job->name, a->box.number);
	job->out |= 1u << job->decider | dead;
	job->decider = a->box.number;
	return false;
}

/* Its box decides: the map says so, where it says nothing, or names one that is out. Then a person has given the command. */
static bool
take_say(struct agent *a, const struct box_job *job, unsigned said)
{
	unsigned me = a->box.number;
	char why[96];

	if (said == me || (said == UINT_MAX && me == 0) ||
		(said < a->box.n && (job->out >> said & 1) == 0))
		return false;
	snprintf(why, sizeof(why), "box %u decides", me);
	return take_write(a, job, true, why);
}

static bool
take_for(struct agent *a, struct box_job *job, uint64_t now)
{
	unsigned said = pbox_fleet_map_decides(&a->view.map, job->name, job->run);
	unsigned me = a->box.number;
	uint32_t dead;
	char why[96];

	if (job->decider == me)
		return take_say(a, job, said);
	if (!take_is_next(a, job, now, &dead)) {
		if (said != me)
			return false;
		snprintf(why, sizeof(why), "box %u does not take the place of box %u", me,
			job->decider);
		return take_write(a, job, false, why);
	}
	/* another one is about to, or has: unless it is lost itself */
	if (said < a->box.n && said != me && said != job->decider &&
		((dead | job->out) >> said & 1) == 0)
		return false;
	if (said == me)
		return take_do(a, job, dead, now);
	if (take_ask(a, job, "try", dead) != 0)
		return false;
	snprintf(why, sizeof(why), "box %u is to decide in place of box %u, which has no lease", me,
		job->decider);
	return take_write(a, job, true, why);
}

bool
take_step(struct agent *a, uint64_t now)
{
	for (unsigned i = 0; i < a->box.n_jobs; i++)
		if (a->box.job[i].run != 0 && take_for(a, &a->box.job[i], now))
			return true;
	return false;
}
