/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Sets of snapshots: the keys, and how one goes on. */

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pbox_fleet_set.h"

#define SETS  "sets/"
#define PARTS "set-parts/"

static const char *const set_state[] = {"asked", "done", "failed"};
static const char *const part_state[] = {"none", "done", "late", "failed"};

const char *
pbox_fleet_key_set(char key[PBOX_FLEET_KEY], const char *fleet, const char *job)
{
	snprintf(key, PBOX_FLEET_KEY, "/pbox/%.63s/" SETS "%.63s", fleet, job);
	return key;
}

const char *
pbox_fleet_key_part(char key[PBOX_FLEET_KEY], const char *fleet, unsigned box, const char *job)
{
	snprintf(key, PBOX_FLEET_KEY, "/pbox/%.63s/" PARTS "%u/%.63s", fleet, box, job);
	return key;
}

static char *
set_text(json_t *j)
{
	char *text = j != NULL ? json_dumps(j, JSON_COMPACT) : NULL;

	json_decref(j);
	return text;
}

char *
pbox_fleet_set_write(const struct pbox_fleet_set *set)
{
	return set_text(json_pack("{s:I, s:b, s:I, s:i, s:s, s:I, s:s}", "id", (json_int_t)set->id,
		"restore", set->restore, "round", (json_int_t)set->round, "tries", (int)set->tries,
		"state", set_state[set->state], "whole", (json_int_t)set->whole, "why", set->why));
}

char *
pbox_fleet_part_write(const struct pbox_fleet_part *part)
{
	return set_text(json_pack("{s:I, s:I, s:s, s:s}", "id", (json_int_t)part->id, "round",
		(json_int_t)part->round, "state", part_state[part->state], "why", part->why));
}

static int
set_name(const json_t *j, const char *const *names, int n)
{
	const char *text = json_string_value(json_object_get(j, "state"));

	for (int i = 0; text != NULL && i < n; i++)
		if (strcmp(text, names[i]) == 0)
			return i;
	return -1;
}

static bool
set_integer(const json_t *j, const char *name, json_int_t most, json_int_t *out)
{
	const json_t *n = json_object_get(j, name);

	*out = json_integer_value(n);
	return json_is_integer(n) && *out >= 0 && *out <= most;
}

static void
set_why(const json_t *j, char *out, size_t size)
{
	const char *why = json_string_value(json_object_get(j, "why"));

	snprintf(out, size, "%s", why != NULL ? why : "");
}

static bool
set_read(const json_t *j, const char *job, struct pbox_fleet_set *set)
{
	json_int_t id, round, tries, whole;
	int state = set_name(j, set_state, 3);

	if (job[0] == '\0' || strlen(job) >= PBOX_FLEET_NAME || state < 0 ||
		!set_integer(j, "id", INT64_MAX, &id) ||
		!set_integer(j, "round", UINT32_MAX, &round) ||
		!set_integer(j, "tries", PBOX_FLEET_SET_TRIES, &tries) ||
		!set_integer(j, "whole", UINT32_MAX, &whole))
		return false;
	*set = (struct pbox_fleet_set){.id = id,
		.restore = json_is_true(json_object_get(j, "restore")),
		.round = (uint32_t)round,
		.tries = (unsigned)tries,
		.state = (enum pbox_fleet_set_state)state,
		.whole = (uint32_t)whole};
	snprintf(set->job, sizeof(set->job), "%s", job);
	set_why(j, set->why, sizeof(set->why));
	return true;
}

static bool
part_read(const json_t *j, struct pbox_fleet_part *part)
{
	json_int_t id, round;
	int state = set_name(j, part_state, 4);

	if (state < 0 || !set_integer(j, "id", INT64_MAX, &id) ||
		!set_integer(j, "round", UINT32_MAX, &round))
		return false;
	*part = (struct pbox_fleet_part){
		.id = id, .round = (uint32_t)round, .state = (enum pbox_fleet_part_state)state};
	set_why(j, part->why, sizeof(part->why));
	return true;
}

unsigned
pbox_fleet_set_of(const struct pbox_fleet_sets *sets, const char *job)
{
	for (unsigned i = 0; i < sets->n; i++)
		if (strcmp(sets->of[i].set.job, job) == 0)
			return i;
	return UINT_MAX;
}

/* A key of the fleet, after its prefix, and what it has. */
static void
key_read(const json_t *kv, const char *what, const json_t *j, bool parts,
	struct pbox_fleet_sets *sets)
{
	const char *number = what + sizeof(PARTS) - 1;
	struct pbox_fleet_part part;
	unsigned long box;
	unsigned i;
	char *end;

	if (!parts && strncmp(what, SETS, sizeof(SETS) - 1) == 0 && sets->n < PBOX_FLEET_SETS &&
		set_read(j, what + sizeof(SETS) - 1, &sets->of[sets->n].set)) {
		sets->of[sets->n++].revision = pbox_etcd_number(kv, "mod_revision");
		return;
	}
	if (!parts || strncmp(what, PARTS, sizeof(PARTS) - 1) != 0 || *number < '0' ||
		*number > '9')
		return;
	box = strtoul(number, &end, 10);
	i = *end == '/' ? pbox_fleet_set_of(sets, end + 1) : UINT_MAX;
	if (i != UINT_MAX && box < PBOX_FLEET_BOXES && part_read(j, &part))
		sets->of[i].part[box] = part;
}

static void
keys_read(const json_t *kvs, const char *prefix, bool parts, struct pbox_fleet_sets *sets)
{
	size_t n = strlen(prefix);

	for (size_t i = 0; i < json_array_size(kvs); i++) {
		const json_t *kv = json_array_get(kvs, i);
		size_t key_len, len;
		char *key, *value;
		json_t *j;

		pbox_etcd_entry(kv, &key, &key_len, &value, &len);
		j = value != NULL ? json_loadb(value, len, 0, NULL) : NULL;
		if (key != NULL && j != NULL && strlen(key) == key_len &&
			strncmp(key, prefix, n) == 0)
			key_read(kv, key + n, j, parts, sets);
		json_decref(j);
		free(key);
		free(value);
	}
}

void
pbox_fleet_sets_read(const json_t *answer, const char *fleet, struct pbox_fleet_sets *sets)
{
	const json_t *kvs = json_object_get(answer, "kvs");
	char prefix[PBOX_FLEET_KEY];

	memset(sets, 0, sizeof(*sets));
	pbox_fleet_key(prefix, fleet, "");
	/* etcd gives keys in order, and parts come before the sets that they are of */
	keys_read(kvs, prefix, false, sets);
	keys_read(kvs, prefix, true, sets);
}

int
pbox_fleet_set_ask(const struct pbox_fleet_set *before, const char *job, bool restore,
	uint32_t round, struct pbox_fleet_set *next, struct pbox_error *err)
{
	if (before != NULL && before->state == PBOX_FLEET_SET_ASKED)
		return pbox_fail(err, EBUSY,
			"a %s of job '%s' is under way: wait for it, or end it with 'pbox-agent withdraw %s'",
			before->restore ? "restore" : "snapshot", job, job);
	if (restore && round == 0 && (before == NULL || before->whole == 0))
		return pbox_fail(err, ENOENT,
			"etcd knows no whole set of snapshots of job '%s': take one with 'pbox-agent snapshot %s', or name its round with --round",
			job, job);
	*next = (struct pbox_fleet_set){.id = before != NULL ? before->id + 1 : 1,
		.restore = restore,
		.whole = before != NULL ? before->whole : 0};
	if (restore)
		next->round = round != 0 ? round : next->whole;
	snprintf(next->job, sizeof(next->job), "%s", job);
	return 0;
}

static int
set_failed(struct pbox_fleet_set *next, unsigned box, const char *why)
{
	next->state = PBOX_FLEET_SET_FAILED;
	snprintf(next->why, sizeof(next->why), "box %u: %s", box, why);
	return 1;
}

static int
set_choose(const struct pbox_fleet_set_facts *f, struct pbox_fleet_set *next)
{
	uint32_t ahead = PBOX_FLEET_SET_AHEAD << next->tries;

	next->tries++;
	next->round = f->newest + ahead;
	if (next->round == 0) /* rounds are counted modulo 2^32 */
		next->round = 1;
	return 1;
}

int
pbox_fleet_set_decide(const struct pbox_fleet_set_facts *f, struct pbox_fleet_set *next)
{
	unsigned done = 0, late = UINT_MAX;

	*next = *f->set;
	if (next->state != PBOX_FLEET_SET_ASKED)
		return 0;
	for (unsigned i = 0; i < f->n_boxes; i++)
		if ((f->away >> i & 1) != 0)
			return set_failed(next, i,
				"it has no lease, or the job goes on without it, and a set is of all boxes");
	if (next->round == 0)
		return set_choose(f, next);
	for (unsigned i = 0; i < f->n_boxes; i++) {
		const struct pbox_fleet_part *p = &f->part[i];

		if (p->state == PBOX_FLEET_PART_NONE || p->id != next->id ||
			p->round != next->round)
			continue;
		if (p->state == PBOX_FLEET_PART_FAILED)
			return set_failed(next, i, p->why);
		if (p->state == PBOX_FLEET_PART_LATE)
			late = i;
		done++;
	}
	if (done < f->n_boxes)
		return 0;
	if (late != UINT_MAX && next->tries < PBOX_FLEET_SET_TRIES)
		return set_choose(f, next);
	if (late != UINT_MAX)
		return set_failed(next, late,
			"each round that was chosen had passed when it came: rounds are too fast for a set");
	next->state = PBOX_FLEET_SET_DONE;
	if (!next->restore)
		next->whole = next->round;
	snprintf(next->why, sizeof(next->why),
		next->restore ? "the next run begins with the set of round %" PRIu32
			      : "the set of round %" PRIu32 " is whole",
		next->round);
	return 1;
}
