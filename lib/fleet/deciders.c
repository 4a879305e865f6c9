/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Which box decides in a job whose deciding box is dead: said in the map, so that one alone takes its place, and the other one knows of it. */

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "pbox_fleet.h"

static unsigned
deciders_place(const struct pbox_fleet_map *map, const char *job)
{
	unsigned i = 0;

	PBOX_ASSERT(map->n_deciders <= PBOX_FLEET_JOBS);
	while (i < map->n_deciders && strcmp(map->decider[i].job, job) != 0)
		i++;
	return i;
}

static void
deciders_drop(struct pbox_fleet_map *map, unsigned i)
{
	PBOX_ASSERT(i < map->n_deciders);
	map->n_deciders--;
	memmove(&map->decider[i], &map->decider[i + 1],
		(map->n_deciders - i) * sizeof(map->decider[0]));
	memset(&map->decider[map->n_deciders], 0, sizeof(map->decider[0]));
}

static void
deciders_changed(struct pbox_fleet_map *map, const char *job, const char *why)
{
	map->epoch++;
	snprintf(map->why, sizeof(map->why), "job '%s': %s", job, why);
}

unsigned
pbox_fleet_map_decides(const struct pbox_fleet_map *map, const char *job, uint64_t run)
{
	unsigned i = deciders_place(map, job);

	return i < map->n_deciders && map->decider[i].run == run ? map->decider[i].box : UINT_MAX;
}

void
pbox_fleet_map_take(
	struct pbox_fleet_map *map, const char *job, uint64_t run, unsigned box, const char *why)
{
	unsigned i = deciders_place(map, job);
	struct pbox_fleet_decider *d;

	PBOX_ASSERT(box < map->n_boxes && strlen(job) < PBOX_FLEET_NAME);
	if (i < map->n_deciders)
		deciders_drop(map, i);
	else if (map->n_deciders == PBOX_FLEET_JOBS)
		deciders_drop(map, 0);
	d = &map->decider[map->n_deciders++];
	snprintf(d->job, sizeof(d->job), "%s", job);
	d->run = run;
	d->box = box;
	deciders_changed(map, job, why);
}

void
pbox_fleet_map_untake(struct pbox_fleet_map *map, const char *job, uint64_t run, const char *why)
{
	unsigned i = deciders_place(map, job);

	if (i == map->n_deciders || map->decider[i].run != run)
		return;
	deciders_drop(map, i);
	deciders_changed(map, job, why);
}

json_t *
pbox_fleet_deciders_write(const struct pbox_fleet_map *map)
{
	json_t *all = json_array();

	for (unsigned i = 0; i < map->n_deciders; i++)
		json_array_append_new(all,
			json_pack("{s:s, s:I, s:i}", "job", map->decider[i].job, "run",
				(json_int_t)map->decider[i].run, "box", (int)map->decider[i].box));
	return all;
}

bool
pbox_fleet_deciders_read(json_t *deciders, struct pbox_fleet_map *map)
{
	for (size_t i = 0; i < json_array_size(deciders); i++) {
		const json_t *d = json_array_get(deciders, i);
		const char *job = json_string_value(json_object_get(d, "job"));
		json_int_t run = json_integer_value(json_object_get(d, "run"));
		const json_t *box = json_object_get(d, "box");
		struct pbox_fleet_decider *x = &map->decider[map->n_deciders];

		if (map->n_deciders == PBOX_FLEET_JOBS || job == NULL ||
			strlen(job) >= sizeof(x->job) || run <= 0 || !json_is_integer(box) ||
			json_integer_value(box) < 0 || json_integer_value(box) >= map->n_boxes ||
			deciders_place(map, job) < map->n_deciders)
			return false;
		snprintf(x->job, sizeof(x->job), "%s", job);
		x->run = (uint64_t)run;
		x->box = (uint32_t)json_integer_value(box);
		map->n_deciders++;
	}
	return true;
}

void
pbox_fleet_deciders_carry(const struct pbox_fleet_map *before, struct pbox_fleet_map *next)
{
	PBOX_ASSERT(next->n_deciders == 0);
	for (unsigned i = 0; i < before->n_deciders; i++) {
		const struct pbox_fleet_decider *d = &before->decider[i];
		unsigned k = 0;

		while (k < next->n_boxes &&
			strcmp(next->box[k].address, before->box[d->box].address) != 0)
			k++;
		if (k == next->n_boxes)
			continue;
		next->decider[next->n_deciders] = *d;
		next->decider[next->n_deciders++].box = k;
	}
}
