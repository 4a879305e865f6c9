/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Bodies of requests to etcd's JSON gateway. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pbox_fleet.h"

/* The key and the end of its range: all that begin with it. */
static json_t *
request_prefix(const char *prefix)
{
	size_t n = strlen(prefix);
	char *from = pbox_base64(prefix, n), *end = strdup(prefix), *to = NULL;
	json_t *j = NULL;

	if (end != NULL && n > 0) {
		end[n - 1]++;
		to = pbox_base64(end, n);
	}
	if (from != NULL && to != NULL)
		j = json_pack("{s:s, s:s}", "key", from, "range_end", to);
	free(from);
	free(end);
	free(to);
	return j;
}

/* etcd writes numbers of 64 bits as strings, and reads both. */
static bool
request_number(json_t *j, const char *name, uint64_t value)
{
	char text[24];

	snprintf(text, sizeof(text), "%" PRIu64, value);
	return json_object_set_new(j, name, json_string(text)) == 0;
}

json_t *
pbox_etcd_range(const char *prefix)
{
	return request_prefix(prefix);
}

json_t *
pbox_etcd_watch(const char *prefix, int64_t from)
{
	json_t *create = request_prefix(prefix);

	if (create == NULL || !request_number(create, "start_revision", (uint64_t)from)) {
		json_decref(create);
		return NULL;
	}
	return json_pack("{s:o}", "create_request", create);
}

json_t *
pbox_etcd_lease(uint64_t lease, uint64_t ttl_s)
{
	json_t *j = json_object();

	if (j == NULL || !request_number(j, "ID", lease) ||
		(ttl_s > 0 && !request_number(j, "TTL", ttl_s))) {
		json_decref(j);
		return NULL;
	}
	return j;
}

static json_t *
request_compare(const struct pbox_etcd_compare *c)
{
	char *key = pbox_base64(c->key, strlen(c->key));
	json_t *j = key == NULL ? NULL
				: json_pack("{s:s, s:s, s:s}", "key", key, "result", "EQUAL",
					  "target", c->create ? "CREATE" : "MOD");

	free(key);
	if (j == NULL || !request_number(j, c->create ? "create_revision" : "mod_revision",
				 (uint64_t)c->revision)) {
		json_decref(j);
		return NULL;
	}
	return j;
}

static json_t *
request_put(const char *key, const char *value, uint64_t lease)
{
	char *k = pbox_base64(key, strlen(key)), *v = pbox_base64(value, strlen(value));
	json_t *j = k != NULL && v != NULL ? json_pack("{s:s, s:s}", "key", k, "value", v) : NULL;

	free(k);
	free(v);
	if (j != NULL && lease != 0 && !request_number(j, "lease", lease)) {
		json_decref(j);
		return NULL;
	}
	return j;
}

json_t *
pbox_etcd_put_if(const struct pbox_etcd_compare *compare, unsigned n, const char *key,
	const char *value, uint64_t lease)
{
	json_t *list = json_array(), *put = request_put(key, value, lease);

	for (unsigned i = 0; i < n; i++)
		if (json_array_append_new(list, request_compare(&compare[i])) != 0) {
			/* a condition less would let it pass */
			json_decref(list);
			json_decref(put);
			return NULL;
		}
	return json_pack("{s:o, s:[{s:o}]}", "compare", list, "success", "request_put", put);
}

json_t *
pbox_etcd_delete(const char *key)
{
	char *k = pbox_base64(key, strlen(key));
	json_t *j = k != NULL ? json_pack("{s:s}", "key", k) : NULL;

	free(k);
	return j;
}
