/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* The keys of a fleet, as etcd gives them. */

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pbox_fleet.h"

#define CANDIDATES "election/"
#define MEMBERS    "boxes/"

const char *
pbox_fleet_key(char key[PBOX_FLEET_KEY], const char *fleet, const char *what)
{
	snprintf(key, PBOX_FLEET_KEY, "/pbox/%.63s/%.63s", fleet, what);
	return key;
}

const char *
pbox_fleet_key_box(char key[PBOX_FLEET_KEY], const char *fleet, unsigned box)
{
	char what[32];

	snprintf(what, sizeof(what), MEMBERS "%u", box);
	return pbox_fleet_key(key, fleet, what);
}

const char *
pbox_fleet_key_candidate(char key[PBOX_FLEET_KEY], const char *fleet, uint64_t lease)
{
	char what[32];

	snprintf(what, sizeof(what), CANDIDATES "%" PRIx64, lease);
	return pbox_fleet_key(key, fleet, what);
}

char *
pbox_fleet_member_write(const struct pbox_fleet_member *m)
{
	json_t *j = json_pack(
		"{s:s, s:s, s:s}", "address", m->address, "release", m->release, "boxes", m->list);
	char *text = j != NULL ? json_dumps(j, JSON_COMPACT) : NULL;

	json_decref(j);
	return text;
}

char *
pbox_fleet_candidate_write(unsigned box)
{
	char text[32];

	snprintf(text, sizeof(text), "{\"box\":%u}", box);
	return strdup(text);
}

static void
view_text(const json_t *j, const char *name, char *out, size_t size)
{
	const char *text = json_string_value(json_object_get(j, name));

	snprintf(out, size, "%s", text != NULL ? text : "");
}

static void
view_member(const json_t *kv, const char *value, size_t len, const char *number,
	struct pbox_fleet_view *view)
{
	json_t *j = json_loadb(value, len, 0, NULL);
	char *end;
	unsigned long n = strtoul(number, &end, 10);

	if (*number >= '0' && *number <= '9' && *end == '\0' && n < PBOX_FLEET_BOXES) {
		struct pbox_fleet_member *m = &view->member[n];

		/* who writes it over compares this */
		m->revision = pbox_etcd_number(kv, "mod_revision");
		m->lease = (uint64_t)pbox_etcd_number(kv, "lease");
		/* a key without a lease stays when its box is away: it is no sign of one */
		m->here = m->lease != 0 && json_is_object(j);
		view_text(j, "address", m->address, sizeof(m->address));
		view_text(j, "release", m->release, sizeof(m->release));
		view_text(j, "boxes", m->list, sizeof(m->list));
	}
	json_decref(j);
}

static void
view_candidate(const json_t *kv, const char *value, size_t len, uint64_t lease,
	struct pbox_fleet_view *view)
{
	int64_t created = pbox_etcd_number(kv, "create_revision");
	uint64_t whose = (uint64_t)pbox_etcd_number(kv, "lease");
	json_t *j;

	if (whose == 0) /* nobody: it would be the oldest forever */
		return;
	if (whose == lease)
		view->candidate = created;
	if (view->decides != 0 && view->decides_since < created)
		return;
	j = json_loadb(value, len, 0, NULL);
	view->decides = whose;
	view->decides_since = created;
	view->decides_box = json_is_integer(json_object_get(j, "box"))
				    ? (unsigned)json_integer_value(json_object_get(j, "box"))
				    : UINT_MAX;
	json_decref(j);
}

static int
view_key(const json_t *kv, const char *what, const char *value, size_t len, uint64_t lease,
	struct pbox_fleet_view *view, struct pbox_error *err)
{
	int64_t changed = pbox_etcd_number(kv, "mod_revision");

	if (changed > view->last)
		view->last = changed;
	if (strncmp(what, MEMBERS, sizeof(MEMBERS) - 1) == 0) {
		view_member(kv, value, len, what + sizeof(MEMBERS) - 1, view);
	} else if (strncmp(what, CANDIDATES, sizeof(CANDIDATES) - 1) == 0) {
		view_candidate(kv, value, len, lease, view);
	} else if (strcmp(what, "map") == 0) {
		view->map_revision = changed;
		view->has_map = true;
		return pbox_fleet_map_read(value, len, &view->map, err);
	}
	return 0;
}

int
pbox_fleet_view_read(const json_t *answer, const char *fleet, uint64_t lease,
	struct pbox_fleet_view *view, struct pbox_error *err)
{
	const json_t *kvs = json_object_get(answer, "kvs");
	char prefix[PBOX_FLEET_KEY];
	size_t n = strlen(pbox_fleet_key(prefix, fleet, ""));
	int ret = 0;

	memset(view, 0, sizeof(*view));
	view->decides_box = UINT_MAX;
	view->revision = pbox_etcd_number(json_object_get(answer, "header"), "revision");
	if (view->revision <= 0)
		return pbox_fail(err, EPROTO, "etcd's answer has no revision: is it etcd?");
	for (size_t i = 0; i < json_array_size(kvs) && ret == 0; i++) {
		const json_t *kv = json_array_get(kvs, i);
		size_t key_len, len;
		char *key, *value;

		pbox_etcd_entry(kv, &key, &key_len, &value, &len);
		if (key == NULL || value == NULL)
			ret = pbox_fail(err, EPROTO, "etcd's answer has a key that is no Base64");
		else if (strncmp(key, prefix, n) == 0)
			ret = view_key(kv, key + n, value, len, lease, view, err);
		free(key);
		free(value);
	}
	return ret;
}
