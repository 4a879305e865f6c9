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

static bool
decide_same_list(const struct pbox_fleet_facts *f)
{
	const struct pbox_fleet_map *map = &f->view->map;

	if (map->n_boxes != f->n_boxes)
		return false;
	for (unsigned i = 0; i < f->n_boxes; i++)
		if (strcmp(map->box[i].address, f->address[i]) != 0)
			return false;
	return true;
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
	memset(next, 0, sizeof(*next));
	next->epoch = epoch;
	next->n_boxes = f->n_boxes;
	for (unsigned i = 0; i < f->n_boxes; i++)
		snprintf(next->box[i].address, sizeof(next->box[i].address), "%s", f->address[i]);
	snprintf(next->why, sizeof(next->why), "%s", why);
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
	char list[sizeof(f->view->member[0].list)];

	decide_list(f, list, sizeof(list));
	if (!f->view->has_map)
		return decide_first(f, 1, "the first map: all boxes of the list serve", next);
	if (!decide_same_list(f)) {
		if (decide_all_have(f, list))
			return decide_first(f, map->epoch + 1, "all boxes have a new list", next);
		return pbox_fail(err, EINVAL,
			"the map has %u boxes, the first is %s, and this box's list is %s: the same list at all boxes (boxes in pbox.conf)",
			map->n_boxes, map->box[0].address, list);
	}
	*next = *map;
	next->epoch++;
	for (unsigned i = 0; i < map->n_boxes; i++) {
		if (map->box[i].state == PBOX_FLEET_SERVES && f->here_ns[i] == 0 &&
			f->now_ns >= decide_removes_at(f) && decide_serving(map) > 1) {
			next->box[i].state = PBOX_FLEET_GONE;
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
