/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* The box was started again, or has ended the sessions: all workers join anew, tell what they hold (restore.c),
 * and go on with their rounds as if nothing had been. */

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
has_forgotten(const struct lane *l, int want)
{
	(void)want;
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
same_map(const struct map_chunk *a, const struct map_chunk *b, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (a[i].id != b[i].id || a[i].elements != b[i].elements ||
			a[i].endpoint != b[i].endpoint)
			return false;
	return true;
}

static int
map(struct testps *t, struct pbox_error *err)
{
	struct map_chunk *before = t->chunk;
	uint32_t n = t->n_chunks, elements = t->frag_elements;
	unsigned endpoints = t->session.endpoints;
	int ret;

	t->chunk = NULL;
	t->n_chunks = 0;
	atomic_store(&t->mapped, false);
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
	if (ret == 0 && (t->n_chunks != n || t->frag_elements != elements ||
				!same_map(before, t->chunk, n)))
		ret = pbox_fail(err, EPROTO,
			"the box cuts the tensors otherwise than before: its MTU, cores or chunk-size have changed: start again");
	t->plan.map_epoch = t->map_epoch;
	free(before);
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
	for (unsigned i = 0; ret == 0 && i < t->lanes; i++) {
		mirror_keys(&t->lane[i]->mirror, &t->data, &t->plan);
		if (restore_make(t->lane[i]) != 0)
			ret = pbox_fail(err, ENOMEM, "no memory for %u workers", t->workers);
	}
	if (ret == 0)
		ret = session_reach(t, LEVEL_READY, "telling the box what the workers hold", err);
	return ret;
}

int
session_rejoin(struct testps *t, struct pbox_error *err)
{
	bool running[TESTPS_CORES_MAX];
	uint64_t began = testps_now(t);
	int ret = rejoin_forget(t, running, err);

	printf("the sessions are gone: joining again\n");
	if (ret == 0)
		ret = rejoin_join(t, err);
	for (unsigned i = 0; i < t->lanes; i++) {
		restore_free(t->lane[i]);
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
