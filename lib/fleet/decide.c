/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* What the one that decides does about boxes that come and go. */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "pbox_fleet.h"

static void
decide_list(const struct pbox_fleet_facts *f, char *out, size_t size)
{
	size_t n = 0;

	out[0] = '\0';
	for (unsigned i = 0; i < f->n_boxes && n < size; i++)
		n += (size_t)snprintf(out + n, size - n, "%s%s", i > 0 ? ", " : "", f->address[i]);
}

bool
pbox_fleet_same_list(const struct pbox_fleet_map *map, const char (*address)[PBOX_FLEET_ADDRESS],
	unsigned n_boxes)
{
	if (map->n_boxes != n_boxes)
		return false;
	for (unsigned i = 0; i < n_boxes; i++)
		if (strcmp(map->box[i].address, address[i]) != 0)
			return false;
	return true;
}

void
pbox_fleet_list_text(const struct pbox_fleet_map *map, const char (*address)[PBOX_FLEET_ADDRESS],
	unsigned n_boxes, char text[PBOX_FLEET_DIFFERENCE])
{
	unsigned i = 0;

	while (i < map->n_boxes && i < n_boxes && strcmp(map->box[i].address, address[i]) == 0)
		i++;
	if (i < map->n_boxes && i < n_boxes)
		snprintf(text, PBOX_FLEET_DIFFERENCE,
			"box %u is %s in the map, and %s in this box's list", i,
			map->box[i].address, address[i]);
	else if (i < n_boxes)
		snprintf(text, PBOX_FLEET_DIFFERENCE,
			"the map has %u boxes, and this box's list %u: %s is not in the map",
			map->n_boxes, n_boxes, address[i]);
	else if (i < map->n_boxes)
		snprintf(text, PBOX_FLEET_DIFFERENCE,
			"the map has %u boxes, and this box's list %u: %s is not in the list",
			map->n_boxes, n_boxes, map->box[i].address);
	else
		snprintf(text, PBOX_FLEET_DIFFERENCE, "this box's list is that of the map");
}

/* Has each box that is there this list? */
static bool
decide_all_have(const struct pbox_fleet_facts *f, const char *list)
{
	for (unsigned i = 0; i < PBOX_FLEET_BOXES; i++)
		if (f->view->member[i].here && strcmp(f->view->member[i].list, list) != 0)
			return false;
	return true;
}

static int
decide_first(const struct pbox_fleet_facts *f, uint64_t epoch, const char *why,
	struct pbox_fleet_map *next)
{
	PBOX_ASSERT(epoch > 0 && f->n_boxes > 0 && f->n_boxes <= PBOX_FLEET_BOXES);
	memset(next, 0, sizeof(*next));
	next->epoch = epoch;
	next->n_boxes = f->n_boxes;
	for (unsigned i = 0; i < f->n_boxes; i++)
		snprintf(next->box[i].address, sizeof(next->box[i].address), "%s", f->address[i]);
	snprintf(next->why, sizeof(next->why), "%s", why);
	return 1;
}

/* The place of a box in an earlier map; n_boxes: it is new. */
static unsigned
decide_place(const struct pbox_fleet_map *map, const char *address)
{
	unsigned i = 0;

	while (i < map->n_boxes && strcmp(map->box[i].address, address) != 0)
		i++;
	return i;
}

/* A job's weights for another list; false: none of the boxes that had some stays. */
static bool
decide_carry_job(const struct pbox_fleet_map *before, const struct pbox_fleet_job *job,
	const struct pbox_fleet_map *next, struct pbox_fleet_job *out)
{
	uint64_t sum = 0;
	unsigned n = 0;

	*out = *job;
	memset(out->weight, 0, sizeof(out->weight));
	for (unsigned i = 0; i < next->n_boxes; i++) {
		unsigned k = decide_place(before, next->box[i].address);

		if (k == before->n_boxes)
			continue;
		out->weight[i] = job->weight[k];
		sum += job->weight[k];
		n += job->weight[k] > 0;
	}
	for (unsigned i = 0; i < next->n_boxes && n > 0; i++)
		if (decide_place(before, next->box[i].address) == before->n_boxes)
			out->weight[i] = (uint32_t)((sum + n - 1) / n);
	return n > 0;
}

/* What was set of boxes that stay is not forgotten. */
static void
decide_carry(const struct pbox_fleet_map *before, struct pbox_fleet_map *next)
{
	for (unsigned i = 0; i < next->n_boxes; i++) {
		unsigned k = decide_place(before, next->box[i].address);

		if (k < before->n_boxes)
			next->box[i].state = before->box[k].state;
	}
	pbox_fleet_deciders_carry(before, next);
	PBOX_ASSERT(before->n_jobs <= PBOX_FLEET_JOBS && next->n_jobs == 0);
	for (unsigned k = 0; k < before->n_jobs; k++)
		if (decide_carry_job(before, &before->job[k], next, &next->job[next->n_jobs]))
			next->n_jobs++;
	if (pbox_fleet_first(next) < next->n_boxes)
		return;
	for (unsigned i = 0; i < next->n_boxes; i++)
		next->box[i].state = PBOX_FLEET_SERVES;
	snprintf(next->why, sizeof(next->why),
		"all boxes have a new list, of which none served before: all serve");
}

static int
decide_again(const struct pbox_fleet_facts *f, const struct pbox_fleet_map *before, const char *why,
	struct pbox_fleet_map *next)
{
	decide_first(f, before->epoch + 1, why, next);
	decide_carry(before, next);
	/* a map is never without a box that serves, and each has a later epoch */
	PBOX_ASSERT(next->epoch > before->epoch && pbox_fleet_first(next) < next->n_boxes);
	return 1;
}

/* From when on is a box without a lease removed? A lease of office first: who comes to decide after etcd was gone finds
 * boxes that have not come back to it yet. */
static uint64_t
decide_removes_at(const struct pbox_fleet_facts *f)
{
	return f->office_ns + f->ttl_ns;
}

static unsigned
decide_serving(const struct pbox_fleet_map *map)
{
	unsigned n = 0;

	for (unsigned i = 0; i < map->n_boxes; i++)
		n += map->box[i].state == PBOX_FLEET_SERVES;
	return n;
}

int
pbox_fleet_decide(
	const struct pbox_fleet_facts *f, struct pbox_fleet_map *next, struct pbox_error *err)
{
	const struct pbox_fleet_map *map = &f->view->map;
	char list[sizeof(f->view->member[0].list)], difference[PBOX_FLEET_DIFFERENCE];

	decide_list(f, list, sizeof(list));
	if (!f->view->has_map && f->before != NULL)
		return decide_again(
			f, f->before, "etcd has lost the map: it is as it was seen last", next);
	if (!f->view->has_map)
		return decide_first(f, 1, "the first map: all boxes of the list serve", next);
	if (!pbox_fleet_same_list(map, f->address, f->n_boxes)) {
		if (decide_all_have(f, list))
			return decide_again(f, map,
				"all boxes have a new list: those that stay are as they were",
				next);
		pbox_fleet_list_text(map, f->address, f->n_boxes, difference);
		return pbox_fail(err, EINVAL, "%s: the same list at all boxes (boxes in pbox.conf)",
			difference);
	}
	PBOX_ASSERT(map->n_boxes == f->n_boxes);
	*next = *map;
	next->epoch++;
	for (unsigned i = 0; i < map->n_boxes; i++) {
		if (map->box[i].state == PBOX_FLEET_SERVES && f->here_ns[i] == 0 &&
			f->now_ns >= decide_removes_at(f) && decide_serving(map) > 1) {
			next->box[i].state = PBOX_FLEET_GONE;
			PBOX_ASSERT(decide_serving(next) > 0); /* the last one stays */
			snprintf(next->why, sizeof(next->why),
				"box %u (%s) has no lease: the others have its chunks", i,
				map->box[i].address);
			return 1;
		}
		if (map->box[i].state == PBOX_FLEET_GONE && f->here_ns[i] != 0 &&
			f->now_ns - f->here_ns[i] >= f->ttl_ns) {
			next->box[i].state = PBOX_FLEET_SERVES;
			snprintf(next->why, sizeof(next->why), "box %u (%s) is back", i,
				map->box[i].address);
			return 1;
		}
	}
	return 0;
}

uint64_t
pbox_fleet_decide_at(const struct pbox_fleet_facts *f)
{
	const struct pbox_fleet_map *map = &f->view->map;
	uint64_t at = UINT64_MAX;

	for (unsigned i = 0; f->view->has_map && i < map->n_boxes; i++) {
		uint64_t then = UINT64_MAX;

		if (map->box[i].state == PBOX_FLEET_SERVES && f->here_ns[i] == 0 &&
			decide_serving(map) > 1)
			then = decide_removes_at(f);
		else if (map->box[i].state == PBOX_FLEET_GONE && f->here_ns[i] != 0)
			then = f->here_ns[i] + f->ttl_ns;
		if (then < at)
			at = then;
	}
	return at;
}
