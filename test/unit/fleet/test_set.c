/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pbox_fleet_set.h>

#include "unit.h"

const char unit_suite[] = "sets of snapshots of a fleet";

static struct pbox_error err;
static struct pbox_fleet_part part[PBOX_FLEET_BOXES];
static struct pbox_fleet_set set, next;

static struct pbox_fleet_set_facts
facts(void)
{
	return (struct pbox_fleet_set_facts){
		.set = &set, .part = part, .n_boxes = 3, .newest = 1000};
}

static void
begin(bool restore, uint32_t round)
{
	memset(part, 0, sizeof(part));
	CU_ASSERT_EQUAL(pbox_fleet_set_ask(NULL, "mnist", restore, round, &set, &err), 0);
}

/* All boxes answer for the round that the set is of. */
static void
answer(enum pbox_fleet_part_state a, enum pbox_fleet_part_state b, enum pbox_fleet_part_state c)
{
	enum pbox_fleet_part_state state[] = {a, b, c};

	for (unsigned i = 0; i < 3; i++)
		part[i] = (struct pbox_fleet_part){.id = set.id,
			.round = set.round,
			.state = state[i],
			.why = "the disk is full"};
}

static int
decide(void)
{
	struct pbox_fleet_set_facts f = facts();
	int ret = pbox_fleet_set_decide(&f, &next);

	set = next;
	return ret;
}

static void
test_whole(void)
{
	begin(false, 0);
	UNIT_EQ_U64(set.round, 0);
	CU_ASSERT_EQUAL(decide(), 1);
	UNIT_EQ_U64(set.round, 1000 + PBOX_FLEET_SET_AHEAD);
	CU_ASSERT_EQUAL(decide(), 0);
	/* two of three are none, and an answer of another round is no answer */
	answer(PBOX_FLEET_PART_DONE, PBOX_FLEET_PART_DONE, PBOX_FLEET_PART_DONE);
	part[1].state = PBOX_FLEET_PART_NONE;
	CU_ASSERT_EQUAL(decide(), 0);
	part[1].state = PBOX_FLEET_PART_DONE;
	part[1].round--;
	CU_ASSERT_EQUAL(decide(), 0);
	part[1].round++;
	part[1].id--;
	CU_ASSERT_EQUAL(decide(), 0);
	part[1].id++;
	CU_ASSERT_EQUAL(decide(), 1);
	CU_ASSERT_EQUAL(set.state, PBOX_FLEET_SET_DONE);
	UNIT_EQ_U64(set.whole, 1000 + PBOX_FLEET_SET_AHEAD);
	CU_ASSERT_EQUAL(decide(), 0);
}

static void
test_late(void)
{
	begin(false, 0);
	CU_ASSERT_EQUAL(decide(), 1);
	for (unsigned i = 1; i < PBOX_FLEET_SET_TRIES; i++) {
		answer(PBOX_FLEET_PART_DONE, PBOX_FLEET_PART_LATE, PBOX_FLEET_PART_NONE);
		CU_ASSERT_EQUAL(decide(), 0);
		answer(PBOX_FLEET_PART_DONE, PBOX_FLEET_PART_LATE, PBOX_FLEET_PART_DONE);
		CU_ASSERT_EQUAL(decide(), 1);
		UNIT_EQ_U64(set.round, 1000 + (PBOX_FLEET_SET_AHEAD << i));
		CU_ASSERT_EQUAL(decide(), 0);
	}
	answer(PBOX_FLEET_PART_LATE, PBOX_FLEET_PART_DONE, PBOX_FLEET_PART_DONE);
	CU_ASSERT_EQUAL(decide(), 1);
	CU_ASSERT_EQUAL(set.state, PBOX_FLEET_SET_FAILED);
	CU_ASSERT_PTR_NOT_NULL(strstr(set.why, "box 0: each round that was chosen had passed"));
}

static void
test_failed(void)
{
	struct pbox_fleet_set_facts f = facts();

	begin(false, 0);
	set.whole = 64;
	CU_ASSERT_EQUAL(decide(), 1);
	answer(PBOX_FLEET_PART_NONE, PBOX_FLEET_PART_NONE, PBOX_FLEET_PART_FAILED);
	CU_ASSERT_EQUAL(decide(), 1);
	CU_ASSERT_EQUAL(set.state, PBOX_FLEET_SET_FAILED);
	CU_ASSERT_STRING_EQUAL(set.why, "box 2: the disk is full");
	UNIT_EQ_U64(set.whole, 64);
	/* a box that is away */
	begin(false, 0);
	f.away = 1u << 1;
	CU_ASSERT_EQUAL(pbox_fleet_set_decide(&f, &next), 1);
	CU_ASSERT_EQUAL(next.state, PBOX_FLEET_SET_FAILED);
	CU_ASSERT_PTR_NOT_NULL(strstr(next.why, "box 1: it has no lease"));
}

static void
test_restore(void)
{
	CU_ASSERT_EQUAL(pbox_fleet_set_ask(NULL, "mnist", true, 0, &set, &err), -ENOENT);
	begin(true, 77);
	UNIT_EQ_U64(set.round, 77);
	CU_ASSERT_EQUAL(decide(), 0);
	CU_ASSERT_EQUAL(pbox_fleet_set_ask(&set, "mnist", true, 0, &next, &err), -EBUSY);
	answer(PBOX_FLEET_PART_DONE, PBOX_FLEET_PART_DONE, PBOX_FLEET_PART_DONE);
	CU_ASSERT_EQUAL(decide(), 1);
	CU_ASSERT_EQUAL(set.state, PBOX_FLEET_SET_DONE);
	UNIT_EQ_U64(set.whole, 0); /* nobody has seen that set made */
	set.whole = 64;
	CU_ASSERT_EQUAL(pbox_fleet_set_ask(&set, "mnist", true, 0, &next, &err), 0);
	UNIT_EQ_U64(next.round, 64);
	UNIT_EQ_U64(next.id, set.id + 1);
}

static json_t *
pair(const char *key, char *value)
{
	char *k = pbox_base64(key, strlen(key)), *v = pbox_base64(value, strlen(value));
	json_t *j = json_pack("{s:s, s:s, s:s}", "key", k, "value", v, "mod_revision", "9");

	free(k);
	free(v);
	free(value);
	return j;
}

static void
test_keys(void)
{
	static struct pbox_fleet_sets sets;
	char key[PBOX_FLEET_KEY];
	json_t *kvs = json_array(), *answer_ = json_pack("{s:o}", "kvs", kvs);

	begin(false, 0);
	snprintf(set.why, sizeof(set.why), "why \"so\"");
	set.whole = UINT32_MAX;
	part[0] = (struct pbox_fleet_part){
		.id = 1, .round = 5, .state = PBOX_FLEET_PART_LATE, .why = "late"};
	json_array_append_new(kvs,
		pair(pbox_fleet_key_part(key, "f", 15, "a/b 1,5"), pbox_fleet_part_write(part)));
	json_array_append_new(
		kvs, pair(pbox_fleet_key_set(key, "f", "a/b 1,5"), pbox_fleet_set_write(&set)));
	/* of another fleet, of no box, of no job, and what is none */
	json_array_append_new(
		kvs, pair(pbox_fleet_key_set(key, "g", "x"), pbox_fleet_set_write(&set)));
	json_array_append_new(kvs,
		pair(pbox_fleet_key_part(key, "f", 16, "a/b 1,5"), pbox_fleet_part_write(part)));
	json_array_append_new(kvs, pair(pbox_fleet_key_set(key, "f", "bad"), strdup("{\"id\":1}")));
	json_array_append_new(kvs, pair(pbox_fleet_key_set(key, "f", "worse"), strdup("[")));
	pbox_fleet_sets_read(answer_, "f", &sets);
	UNIT_EQ_U64(sets.n, 1);
	UNIT_EQ_U64(pbox_fleet_set_of(&sets, "a/b 1,5"), 0);
	UNIT_EQ_U64(pbox_fleet_set_of(&sets, "bad"), UINT_MAX);
	UNIT_EQ_U64(sets.of[0].revision, 9);
	UNIT_EQ_U64(sets.of[0].set.whole, UINT32_MAX);
	CU_ASSERT_STRING_EQUAL(sets.of[0].set.why, "why \"so\"");
	CU_ASSERT_EQUAL(sets.of[0].part[15].state, PBOX_FLEET_PART_LATE);
	CU_ASSERT_EQUAL(sets.of[0].part[0].state, PBOX_FLEET_PART_NONE);
	json_decref(answer_);
}

const struct unit_test unit_tests[] = {
	{"a set is whole when all boxes have it", test_whole},
	{"a box that is late: another round, twice as far", test_late},
	{"a box that cannot, or is away", test_failed},
	{"restore", test_restore},
	{"keys", test_keys},
	{NULL, NULL},
};
