/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Answers of etcd's JSON gateway: numbers, and errors with what helps. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pbox_fleet.h"

int64_t
pbox_etcd_number(const json_t *object, const char *name)
{
	const json_t *j = json_object_get(object, name);

	return json_is_string(j) ? strtoll(json_string_value(j), NULL, 10) : json_integer_value(j);
}

void
pbox_etcd_entry(const json_t *kv, char **key, size_t *key_len, char **value, size_t *len)
{
	const char *k = json_string_value(json_object_get(kv, "key"));
	const char *v = json_string_value(json_object_get(kv, "value"));

	*key_len = *len = 0;
	*key = pbox_unbase64(k != NULL ? k : "", key_len);
	*value = pbox_unbase64(v != NULL ? v : "", len);
}

/* A part of what etcd says, what it is, and what to do. */
static const struct {
	const char *part;
	int code;
	const char *text;
} answer_known[] = {
	{"invalid auth token", ESTALE, "the token has ended"},
	{"requested lease not found", ENOENT, "the lease has ended"},
	{"authentication is not enabled", EOPNOTSUPP, "it has no users"},
	{"revision of auth store is old", ESTALE, "its users have changed"},
	{"invalid user ID or password", EACCES,
		"it refuses the password, or has no such user: look at user and password of [cluster] in pbox.conf"},
	{"user name is empty", EACCES,
		"it wants a user: set user and password of [cluster] in pbox.conf"},
	{"CommonName of client", EACCES,
		"it has users, and refuses over JSON a client's certificate with a common name: make that of cert in [cluster] without one (openssl req -subj /O=pbox)"},
	{"permission denied", EACCES,
		"the user has no right to the fleet's keys: etcdctl role grant-permission ROLE readwrite --prefix=true /pbox/FLEET/"},
	{"database space exceeded", ENOSPC,
		"it has no space (alarm NOSPACE), and changes nothing: etcdctl compact, defrag, then alarm disarm; a larger --quota-backend-bytes"},
	{"corrupt", EIO, "a member is corrupt (alarm CORRUPT): replace it"},
	{"no leader", EAGAIN, "it has no leader: do most of its members run?"},
	{"leader changed", EAGAIN, "its leader changes"},
	{"request timed out", EAGAIN, "most of its members do not answer"},
	{"too many requests", EAGAIN, "it has more to do than it can"},
	{"server stopped", EAGAIN, "this member stops"},
	{"not capable", EAGAIN, "this member is not ready"},
	{"connection closed", EAGAIN, "this member does not serve"},
	{"transport is closing", EAGAIN, "this member stops"},
	{"HTTP request to an HTTPS server", EINVAL,
		"it wants TLS: write https:// and ca in [cluster] of pbox.conf"},
};

int
pbox_etcd_error(long status, const json_t *answer, const char *text, struct pbox_error *err)
{
	const json_t *e = json_object_get(answer, "error");
	/* of a stream it is an object */
	const char *said = json_string_value(json_is_object(e) ? json_object_get(e, "message") : e);

	if (status == 200 && e == NULL && answer != NULL)
		return 0;
	if (said == NULL)
		said = text;
	for (size_t i = 0; i < sizeof(answer_known) / sizeof(answer_known[0]); i++)
		if (strstr(said, answer_known[i].part) != NULL)
			return pbox_fail(err, answer_known[i].code, "%s (%.80s)",
				answer_known[i].text, said);
	if (status == 503 || status == 504 || status == 502)
		return pbox_fail(err, EAGAIN, "this member does not serve: %.120s", said);
	if (status == 404)
		return pbox_fail(err, EPROTO, "there is no /v3 there: is it etcd 3.4 or later?");
	return pbox_fail(err, EPROTO, "HTTP status %ld: %.160s", status, said);
}
