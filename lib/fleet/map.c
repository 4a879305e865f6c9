/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* The map of a fleet: as JSON, and changes that a person asks for. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pbox_fleet.h"

static const char *const state_names[] = {"serves", "drained", "gone"};
#define STATES (sizeof(state_names) / sizeof(state_names[0]))

const char *
pbox_fleet_state_name(enum pbox_fleet_state state)
{
	return (unsigned)state < STATES ? state_names[state] : "?";
}

/* A string that fits; false: it is none, or too long. */
static bool
map_text(const json_t *j, char *out, size_t size)
{
	const char *text = json_string_value(j);

	if (text == NULL || strlen(text) >= size)
		return false;
	snprintf(out, size, "%s", text);
	return true;
}

static bool
map_read_boxes(const json_t *boxes, struct pbox_fleet_map *map)
{
	size_t n = json_array_size(boxes);

	if (n == 0 || n > PBOX_FLEET_BOXES)
		return false;
	map->n_boxes = (unsigned)n;
	for (unsigned i = 0; i < n; i++) {
		const json_t *b = json_array_get(boxes, i);
		const char *state = json_string_value(json_object_get(b, "state"));
		unsigned s = 0;

		if (!map_text(json_object_get(b, "address"), map->box[i].address,
			    sizeof(map->box[i].address)) ||
			state == NULL)
			return false;
		while (s < STATES && strcmp(state_names[s], state) != 0)
			s++;
		if (s == STATES)
			return false;
		map->box[i].state = (enum pbox_fleet_state)s;
	}
	return true;
}

static bool
map_read_jobs(json_t *jobs, struct pbox_fleet_map *map)
{
	const char *name;
	json_t *weights;

	PBOX_ASSERT(map->n_boxes > 0 && map->n_boxes <= PBOX_FLEET_BOXES && map->n_jobs == 0);
	json_object_foreach(jobs, name, weights)
	{
		struct pbox_fleet_job *j = &map->job[map->n_jobs];

		if (map->n_jobs == PBOX_FLEET_JOBS || strlen(name) >= sizeof(j->name) ||
			json_array_size(weights) != map->n_boxes)
			return false;
		snprintf(j->name, sizeof(j->name), "%s", name);
		for (unsigned i = 0; i < map->n_boxes; i++) {
			json_int_t w = json_integer_value(json_array_get(weights, i));

			if (w < 0 || w > PBOX_FLEET_HEAVIEST)
				return false;
			j->weight[i] = (uint32_t)w;
		}
		map->n_jobs++;
	}
	return true;
}

static const struct pbox_fleet_job *
map_job(const struct pbox_fleet_map *map, const char *job)
{
	for (unsigned i = 0; i < map->n_jobs; i++)
		if (strcmp(map->job[i].name, job) == 0)
			return &map->job[i];
	return NULL;
}

/* The jobs whose weights are not a person's. */
static void
map_read_balanced(const json_t *names, struct pbox_fleet_map *map)
{
	for (size_t i = 0; i < json_array_size(names); i++) {
		const char *name = json_string_value(json_array_get(names, i));
		struct pbox_fleet_job *j =
			name != NULL ? (struct pbox_fleet_job *)map_job(map, name) : NULL;

		if (j != NULL)
			j->balanced = true;
	}
}

int
pbox_fleet_map_read(
	const char *text, size_t len, struct pbox_fleet_map *map, struct pbox_error *err)
{
	json_t *j = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
	json_int_t epoch = json_integer_value(json_object_get(j, "epoch"));
	bool good;

	memset(map, 0, sizeof(*map));
	map->epoch = (uint64_t)epoch;
	good = epoch > 0 && map_read_boxes(json_object_get(j, "boxes"), map) &&
	       map_read_jobs(json_object_get(j, "jobs"), map) &&
	       pbox_fleet_deciders_read(json_object_get(j, "decide"), map);
	map_read_balanced(json_object_get(j, "balanced"), map);
	snprintf(map->why, sizeof(map->why), "%s",
		json_is_string(json_object_get(j, "why"))
			? json_string_value(json_object_get(j, "why"))
			: "");
	json_decref(j);
	return good ? 0
		    : pbox_fail(err, EPROTO,
			      "the map in etcd cannot be read: was it written by another release, or by hand?");
}

char *
pbox_fleet_map_write(const struct pbox_fleet_map *map)
{
	json_t *boxes = json_array(), *jobs = json_object(), *balanced = json_array(), *all;
	char *text;

	for (unsigned i = 0; i < map->n_boxes; i++)
		json_array_append_new(
			boxes, json_pack("{s:s, s:s}", "address", map->box[i].address, "state",
				       pbox_fleet_state_name(map->box[i].state)));
	for (unsigned i = 0; i < map->n_jobs; i++) {
		json_t *weights = json_array();

		for (unsigned b = 0; b < map->n_boxes; b++)
			json_array_append_new(weights, json_integer(map->job[i].weight[b]));
		json_object_set_new(jobs, map->job[i].name, weights);
		if (map->job[i].balanced)
			json_array_append_new(balanced, json_string(map->job[i].name));
	}
	/* what was not appended for want of memory is missing here: the map is then refused by who reads it */
	all = json_pack("{s:I, s:o, s:o, s:o, s:o, s:s}", "epoch", (json_int_t)map->epoch, "boxes",
		boxes, "jobs", jobs, "balanced", balanced, "decide", pbox_fleet_deciders_write(map),
		"why", map->why);
	text = all != NULL ? json_dumps(all, JSON_COMPACT) : NULL;
	json_decref(all);
	return text;
}

uint32_t
pbox_fleet_weight(const struct pbox_fleet_map *map, const char *job, unsigned box)
{
	const struct pbox_fleet_job *j = map_job(map, job);
	uint64_t left = 0;

	if (box >= map->n_boxes || map->box[box].state != PBOX_FLEET_SERVES)
		return 0;
	/* where the boxes that it had weights at do not serve, those that do have it */
	for (unsigned i = 0; j != NULL && i < map->n_boxes; i++)
		left += map->box[i].state == PBOX_FLEET_SERVES ? j->weight[i] : 0;
	return left > 0 ? j->weight[box] : PBOX_FLEET_FULL;
}

unsigned
pbox_fleet_first(const struct pbox_fleet_map *map)
{
	unsigned i = 0;

	while (i < map->n_boxes && map->box[i].state != PBOX_FLEET_SERVES)
		i++;
	return i;
}

int
pbox_fleet_map_state(struct pbox_fleet_map *map, unsigned box, enum pbox_fleet_state state,
	struct pbox_error *err)
{
	unsigned others = 0;

	if (box >= map->n_boxes)
		return pbox_fail(
			err, EINVAL, "there is no box %u: they are 0 to %u", box, map->n_boxes - 1);
	if (map->box[box].state == state)
		return pbox_fail(err, EINVAL, "box %u (%s) %s%s already%s", box,
			map->box[box].address, state == PBOX_FLEET_SERVES ? "" : "is ",
			pbox_fleet_state_name(state),
			state == PBOX_FLEET_SERVES
				? ": where a job goes on without it, 'pbox-ctl boxes' at the first box says so, and 'pbox-ctl scale JOB BOXES' there takes it in"
				: "");
	for (unsigned i = 0; i < map->n_boxes; i++)
		others += i != box && map->box[i].state == PBOX_FLEET_SERVES;
	if (state != PBOX_FLEET_SERVES && others == 0)
		return pbox_fail(err, EINVAL,
			"box %u (%s) is the last one that serves: let another one serve first", box,
			map->box[box].address);
	map->box[box].state = state;
	PBOX_ASSERT(pbox_fleet_first(map) < map->n_boxes); /* the last one that serves stays */
	map->epoch++;
	snprintf(map->why, sizeof(map->why), "the operator: box %u (%s) %s%s", box,
		map->box[box].address, state == PBOX_FLEET_SERVES ? "" : "is ",
		pbox_fleet_state_name(state));
	return 0;
}

/* Numbers of a person: of each box one, not all 0. */
static int
map_parse_weights(const struct pbox_fleet_map *map, const char *weights, uint32_t *weight,
	struct pbox_error *err)
{
	const char *at = weights;
	uint64_t sum = 0;

	for (unsigned i = 0; i < map->n_boxes; i++) {
		char *end;
		unsigned long w = strtoul(at, &end, 10);

		if (*at < '0' || *at > '9' || w > PBOX_FLEET_HEAVIEST ||
			*end != (i + 1 < map->n_boxes ? ',' : '\0'))
			return pbox_fail(err, EINVAL,
				"'%s' are no weights of %u boxes: write a number of 0 to %d for each, with commas, as 1000,500,0",
				weights, map->n_boxes, PBOX_FLEET_HEAVIEST);
		weight[i] = (uint32_t)w;
		sum += w;
		at = end + 1;
	}
	return sum > 0 ? 0 : pbox_fail(err, EINVAL, "all weights are 0: no box would have the job");
}

/* The entry of a job, a new one with even weights where it has none. */
static int
map_entry(struct pbox_fleet_map *map, const char *job, struct pbox_fleet_job **out,
	struct pbox_error *err)
{
	struct pbox_fleet_job *j = (struct pbox_fleet_job *)map_job(map, job);

	if (job[0] == '\0' || strlen(job) >= PBOX_FLEET_NAME)
		return pbox_fail(
			err, EINVAL, "a job's name has 1 to %d bytes", PBOX_FLEET_NAME - 1);
	if (j == NULL && map->n_jobs == PBOX_FLEET_JOBS)
		return pbox_fail(err, ENOSPC,
			"the map has weights of %d jobs, the most there can be", PBOX_FLEET_JOBS);
	if (j == NULL) {
		j = &map->job[map->n_jobs++];
		memset(j, 0, sizeof(*j));
		snprintf(j->name, sizeof(j->name), "%s", job);
		for (unsigned i = 0; i < map->n_boxes; i++)
			j->weight[i] = PBOX_FLEET_FULL;
	}
	PBOX_ASSERT(map->n_jobs <= PBOX_FLEET_JOBS && j < map->job + map->n_jobs);
	*out = j;
	return 0;
}

int
pbox_fleet_map_weights(
	struct pbox_fleet_map *map, const char *job, const char *weights, struct pbox_error *err)
{
	uint32_t weight[PBOX_FLEET_BOXES] = {0};
	struct pbox_fleet_job *j;
	int ret = map_parse_weights(map, weights, weight, err);

	if (ret == 0)
		ret = map_entry(map, job, &j, err);
	if (ret != 0)
		return ret;
	memcpy(j->weight, weight, sizeof(j->weight));
	j->balanced = false;
	map->epoch++;
	snprintf(map->why, sizeof(map->why), "the operator: job '%s' has weights %s", job, weights);
	return 0;
}

int
pbox_fleet_map_leave(
	struct pbox_fleet_map *map, const char *job, const char *weights, struct pbox_error *err)
{
	uint32_t weight[PBOX_FLEET_BOXES] = {0};
	struct pbox_fleet_job *j;
	int ret = weights != NULL ? map_parse_weights(map, weights, weight, err) : 0;

	if (ret == 0)
		ret = map_entry(map, job, &j, err);
	if (ret != 0)
		return ret;
	if (weights != NULL)
		memcpy(j->weight, weight, sizeof(j->weight));
	j->balanced = true;
	map->epoch++;
	snprintf(map->why, sizeof(map->why),
		"the operator: weights of job '%s' are pbox-agent's from now on%s%s", job,
		weights != NULL ? ", beginning with " : "", weights != NULL ? weights : "");
	return 0;
}

bool
pbox_fleet_balances(const struct pbox_fleet_map *map, const char *job)
{
	const struct pbox_fleet_job *j = map_job(map, job);

	return j == NULL || j->balanced;
}

static void
map_remove(struct pbox_fleet_map *map, unsigned i)
{
	PBOX_ASSERT(i < map->n_jobs);
	map->n_jobs--;
	memmove(&map->job[i], &map->job[i + 1], (map->n_jobs - i) * sizeof(map->job[0]));
	memset(&map->job[map->n_jobs], 0, sizeof(map->job[0]));
}

int
pbox_fleet_map_forget(
	struct pbox_fleet_map *map, const char *job, const char *why, struct pbox_error *err)
{
	const struct pbox_fleet_job *j = map_job(map, job);

	if (j == NULL || !j->balanced)
		return pbox_fail(err, j == NULL ? ENOENT : EPERM,
			"job '%s' has no weights that pbox-agent has set", job);
	map_remove(map, (unsigned)(j - map->job));
	map->epoch++;
	snprintf(map->why, sizeof(map->why), "job '%s': %s", job, why);
	return 0;
}

/* One that no person has set, of a job that does not run, makes room. */
static void
map_make_room(struct pbox_fleet_map *map, const char (*names)[PBOX_FLEET_NAME], unsigned n)
{
	for (unsigned i = 0; i < map->n_jobs; i++) {
		unsigned k = 0;

		while (k < n && strcmp(names[k], map->job[i].name) != 0)
			k++;
		if (k < n || !map->job[i].balanced)
			continue;
		map_remove(map, i);
		return;
	}
}

int
pbox_fleet_map_balance(struct pbox_fleet_map *map, const char *job, const uint32_t *weight,
	const char *why, const char (*names)[PBOX_FLEET_NAME], unsigned n, struct pbox_error *err)
{
	struct pbox_fleet_job *j;
	int ret;

	if (!pbox_fleet_balances(map, job))
		return pbox_fail(err, EPERM, "a person has set the weights of job '%s'", job);
	if (map_job(map, job) == NULL && map->n_jobs == PBOX_FLEET_JOBS)
		map_make_room(map, names, n);
	ret = map_entry(map, job, &j, err);
	if (ret != 0)
		return ret;
	for (unsigned i = 0; i < map->n_boxes; i++)
		/* one that is away was not measured: it has its weight when it is back */
		if (map->box[i].state == PBOX_FLEET_SERVES && weight[i] != PBOX_FLEET_KEEP)
			j->weight[i] = weight[i];
	j->balanced = true;
	map->epoch++;
	snprintf(map->why, sizeof(map->why), "job '%s': %s", job, why);
	return 0;
}
