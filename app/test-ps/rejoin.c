/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* The box was started again, or has ended the sessions: all workers join again, say what they hold (restore.c),
 * and go on with their rounds. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "session.h"

bool
session_lost(const struct testps *t)
{
	for (unsigned i = 0; t->open && i < t->lanes; i++)
		if (atomic_load(&t->lane[i]->lost))
			return true;
	return false;
}

static bool
has_forgotten(const struct lane *l, int want __rte_unused)
{
	return !atomic_load(&l->forget);
}

/* Lanes begin at HELLO again; rounds rest. */
static int
rejoin_forget(struct testps *t, bool running[], struct pbox_error *err)
{
	atomic_store(&t->rejoining, true);
	for (unsigned i = 0; i < t->lanes; i++) {
		struct lane *l = t->lane[i];

		running[i] = atomic_load(&l->running);
		atomic_store(&l->level_wanted, LEVEL_NONE);
		atomic_store(&l->running, false);
		atomic_store(&l->forget, true);
	}
	return session_await(t, has_forgotten, 0, US_SECOND, err);
}

/* R10.3 */
static bool
same_map(const struct map *a, const struct map *b)
{
	if (a->info.chunks != b->info.chunks || a->info.frag_elements != b->info.frag_elements)
		return false;
	for (uint32_t i = 0; i < a->info.chunks; i++)
		if (a->chunk[i].id != b->chunk[i].id ||
			a->chunk[i].elements != b->chunk[i].elements ||
			a->chunk[i].endpoint != b->chunk[i].endpoint)
			return false;
	return true;
}

static int
map(struct testps *t, struct pbox_error *err)
{
	struct map before = t->map;
	unsigned endpoints = t->session.endpoints;
	int ret;

	t->map = (struct map){0};
	ret = session_reach(t, LEVEL_JOINED, "joining again", err);
	if (ret == 0)
		ret = session_reach(t, LEVEL_MAPPED, "declaring the tensors again", err);
	if (ret == 0 && t->session.endpoints != endpoints)
		ret = pbox_fail(err, EPROTO,
			"the box has %u endpoints now, and had %u: with another number of cores start again",
			t->session.endpoints, endpoints);
	if (ret == 0)
		ret = session_find_endpoints(t, err);
	if (ret == 0)
		ret = auth_make(t, err);
	if (ret == 0 && !same_map(&before, &t->map))
		ret = pbox_fail(err, EPROTO,
			"the box cuts the tensors otherwise than before: its MTU, cores or chunk-size have changed: start again");
	t->plan.map_epoch = t->map.info.map_epoch;
	free(before.chunk);
	return ret;
}

static int
rejoin_join(struct testps *t, struct pbox_error *err)
{
	int ret = session_find_box(t, err);

	if (ret == 0)
		ret = map(t, err);
	if (ret == 0)
		data_keys(&t->data, &t->plan, t->auth);
	for (unsigned i = 0; ret == 0 && i < t->lanes; i++)
		reference_keys(&t->lane[i]->reference, &t->data, &t->plan);
	if (ret == 0)
		ret = session_reach(t, LEVEL_READY, "restoring what the workers hold", err);
	return ret;
}

int
session_rejoin(struct testps *t, struct pbox_error *err)
{
	bool running[TESTPS_CORES_MAX] = {false};
	bool blocks = pbox_format_is_block(t->now.push);
	uint64_t began = testps_now(t);
	int ret =
		blocks ? pbox_fail(err, ENOTSUP,
				 "the sessions are gone, and with them what the box had left over of its sums in %s: results after that cannot be checked; start again",
				 pbox_format_name(t->now.push))
		       : rejoin_forget(t, running, err);

	if (!blocks)
		printf("the sessions are gone: joining again\n");
	if (ret == 0)
		ret = rejoin_join(t, err);
	for (unsigned i = 0; i < t->lanes; i++) {
		atomic_store(&t->lane[i]->again, true);
		if (ret == 0)
			atomic_store(&t->lane[i]->running, running[i]);
		else
			atomic_store(&t->lane[i]->failed, true);
	}
	atomic_store(&t->rejoining, false);
	if (ret != 0) {
		t->lane[0]->err = *err;
		return ret;
	}
	t->rejoined++;
	printf("joined again after %.1f s\n", (double)(testps_now(t) - began) / US_SECOND);
	return 0;
}
