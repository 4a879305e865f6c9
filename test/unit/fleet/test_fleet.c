/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pbox_fleet.h>

#include "unit.h"

const char unit_suite[] = "a fleet's keys, map and decisions";

#define SECOND UINT64_C(1000000000)
#define TTL    (15 * SECOND)

static struct pbox_error err;

/* by Python's base64 */
static void
test_base64(void)
{
	static const char *const pairs[][2] = {{"", ""}, {"p", "cA=="}, {"pb", "cGI="},
		{"pbo", "cGJv"}, {"pbox", "cGJveA=="}, {"pbox/", "cGJveC8="},
		{"pbox/f", "cGJveC9m"}};
	static const char *const bad[] = {"Z", "Zg", "Zg=", "Z===", "Zm9!", "Zg==Zg==", "Zm 9"};
	size_t n;

	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
		char *to = pbox_base64(pairs[i][0], strlen(pairs[i][0]));
		char *back = pbox_unbase64(pairs[i][1], &n);

		CU_ASSERT_STRING_EQUAL(to, pairs[i][1]);
		CU_ASSERT_PTR_NOT_NULL_FATAL(back);
		CU_ASSERT_STRING_EQUAL(back, pairs[i][0]);
		UNIT_EQ_U64(n, strlen(pairs[i][0]));
		free(to);
		free(back);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CU_ASSERT_PTR_NULL(pbox_unbase64(bad[i], &n));
}

static void
test_base64_of_all_bytes(void)
{
	struct pbox_random r;
	uint8_t in[200];

	pbox_random_seed(&r, 1);
	for (size_t len = 0; len < sizeof(in); len++) {
		size_t n;
		char *text, *back;

		for (size_t i = 0; i < len; i++)
			in[i] = (uint8_t)pbox_random_u64(&r);
		text = pbox_base64(in, len);
		back = pbox_unbase64(text, &n);
		CU_ASSERT_PTR_NOT_NULL_FATAL(back);
		CU_ASSERT(n == len && memcmp(back, in, len) == 0);
		free(text);
		free(back);
	}
}

static void
test_utf7(void)
{
	static const char *const pairs[][2] = {{"mnist", "mnist"}, {"b+APw-ro", "b\xc3\xbcro"},
		{"1 +- 1", "1 + 1"}, {"+2D3eCg-", "\xf0\x9f\x98\x8a"},
		{"+ZeVnLIqe-", "\xe6\x97\xa5\xe6\x9c\xac\xe8\xaa\x9e"}, {"+", ""}};
	char out[64];

	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
		pbox_fleet_utf7(pairs[i][0], out, sizeof(out));
		CU_ASSERT_STRING_EQUAL(out, pairs[i][1]);
	}
	pbox_fleet_utf7("b+APw-ro", out, 3); /* no half of a character */
	CU_ASSERT_STRING_EQUAL(out, "br");
}

/* ---- maps -------------------------------------------------------------------------------------- */

static const char address[4][PBOX_FLEET_ADDRESS] = {
	"10.0.0.1:7269", "10.0.0.2:7269", "10.0.0.3:7269", "10.0.0.4:7269"};

static void
make_map(struct pbox_fleet_map *map, unsigned n)
{
	memset(map, 0, sizeof(*map));
	map->epoch = 7;
	map->n_boxes = n;
	for (unsigned i = 0; i < n; i++)
		memcpy(map->box[i].address, address[i], sizeof(address[i]));
}

static void
test_map_is_the_same_after_etcd(void)
{
	static struct pbox_fleet_map map, back;
	char *text;

	make_map(&map, 3);
	map.box[1].state = PBOX_FLEET_DRAINED;
	map.box[2].state = PBOX_FLEET_GONE;
	CU_ASSERT_EQUAL(pbox_fleet_map_weights(&map, "m\"nist", "1000,0,7", &err), 0);
	UNIT_EQ_U64(map.epoch, 8);
	text = pbox_fleet_map_write(&map);
	CU_ASSERT_PTR_NOT_NULL_FATAL(text);
	CU_ASSERT_EQUAL(pbox_fleet_map_read(text, strlen(text), &back, &err), 0);
	CU_ASSERT(memcmp(&map, &back, sizeof(map)) == 0);
	free(text);
}

/* Which box decides in a run: of each job's name one entry; those of boxes that stay go with their addresses. */
static void
test_who_decides(void)
{
	static struct pbox_fleet_map map, back, other;
	char *text, name[16];

	make_map(&map, 3);
	CU_ASSERT_EQUAL(pbox_fleet_map_decides(&map, "mnist", 5), UINT_MAX);
	pbox_fleet_map_take(&map, "mnist", 5, 1, "box 1 decides");
	pbox_fleet_map_take(&map, "vision", 6, 2, "box 2 decides");
	CU_ASSERT_STRING_EQUAL(map.why, "job 'vision': box 2 decides");
	CU_ASSERT_EQUAL(pbox_fleet_map_decides(&map, "mnist", 5), 1);
	CU_ASSERT_EQUAL(pbox_fleet_map_decides(&map, "mnist", 6), UINT_MAX); /* another run */
	text = pbox_fleet_map_write(&map);
	CU_ASSERT_PTR_NOT_NULL_FATAL(text);
	CU_ASSERT_EQUAL(pbox_fleet_map_read(text, strlen(text), &back, &err), 0);
	CU_ASSERT(memcmp(&map, &back, sizeof(map)) == 0);
	free(text);
	make_map(&other, 3);
	memcpy(other.box[0].address, address[2], sizeof(address[2]));
	memcpy(other.box[2].address, address[3], sizeof(address[3]));
	memcpy(other.box[1].address, address[0], sizeof(address[0]));
	pbox_fleet_deciders_carry(&map, &other);
	UNIT_EQ_U64(other.n_deciders, 1); /* the box of the other one is not in it */
	CU_ASSERT_EQUAL(pbox_fleet_map_decides(&other, "vision", 6), 0);
	pbox_fleet_map_take(&map, "mnist", 7, 2, "box 2 decides");
	CU_ASSERT_EQUAL(pbox_fleet_map_decides(&map, "mnist", 5), UINT_MAX);
	pbox_fleet_map_untake(&map, "mnist", 5, "not that run");
	pbox_fleet_map_untake(&map, "mnist", 7, "box 2 does not");
	CU_ASSERT_EQUAL(pbox_fleet_map_decides(&map, "mnist", 7), UINT_MAX);
	UNIT_EQ_U64(map.epoch, 11);
	/* the oldest makes room */
	for (unsigned i = 0; i < PBOX_FLEET_JOBS && snprintf(name, sizeof(name), "job%u", i) > 0;
		i++)
		pbox_fleet_map_take(&map, name, 1, 0, "box 0 decides");
	UNIT_EQ_U64(map.n_deciders, PBOX_FLEET_JOBS);
	CU_ASSERT_EQUAL(pbox_fleet_map_decides(&map, "vision", 6), UINT_MAX);
}

static void
test_maps_that_make_no_sense(void)
{
	static const char *const bad[] = {"", "{}", "[]", "null", "{\"epoch\":1}",
		"{\"epoch\":1,\"boxes\":[]}",
		"{\"epoch\":0,\"boxes\":[{\"address\":\"a\",\"state\":\"serves\"}]}",
		"{\"epoch\":-1,\"boxes\":[{\"address\":\"a\",\"state\":\"serves\"}]}",
		"{\"epoch\":1,\"boxes\":[{\"address\":\"a\",\"state\":\"dances\"}]}",
		"{\"epoch\":1,\"boxes\":[{\"address\":\"a\"}]}",
		"{\"epoch\":1,\"boxes\":[{\"state\":\"serves\"}]}",
		"{\"epoch\":1,\"boxes\":[{\"address\":\"0123456789012345678901234567890123456789\",\"state\":\"serves\"}]}",
		"{\"epoch\":1,\"boxes\":[{\"address\":\"a\",\"state\":\"serves\"}],\"jobs\":{\"j\":[1,2]}}",
		"{\"epoch\":1,\"boxes\":[{\"address\":\"a\",\"state\":\"serves\"}],\"jobs\":{\"j\":[-1]}}",
		"{\"epoch\":1,\"boxes\":[{\"address\":\"a\",\"state\":\"serves\"}],\"jobs\":{\"j\":[9999999]}}",
		"{\"epoch\":1,\"boxes\":[{\"address\":\"a\",\"state\":\"serves\"}],\"decide\":[{}]}",
		"{\"epoch\":1,\"boxes\":[{\"address\":\"a\",\"state\":\"serves\"}],\"decide\":[{\"job\":\"j\",\"run\":1,\"box\":1}]}",
		"{\"epoch\":1,\"boxes\":[{\"address\":\"a\",\"state\":\"serves\"}],\"decide\":[{\"job\":\"j\",\"run\":0,\"box\":0}]}",
		"{\"epoch\":1,\"boxes\":[{\"address\":\"a\",\"state\":\"serves\"}],\"decide\":[{\"job\":\"j\",\"run\":1,\"box\":0},{\"job\":\"j\",\"run\":2,\"box\":0}]}",
		"{\"epoch\":1,\"boxes\":[{\"address\":\"a\",\"state\":\"serves\"}"};
	static struct pbox_fleet_map map;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CU_ASSERT_EQUAL(pbox_fleet_map_read(bad[i], strlen(bad[i]), &map, &err), -EPROTO);
}

static void
test_weights(void)
{
	static struct pbox_fleet_map map;

	make_map(&map, 3);
	UNIT_EQ_U64(pbox_fleet_weight(&map, "j", 1), PBOX_FLEET_FULL);
	UNIT_EQ_U64(pbox_fleet_weight(&map, "j", 3), 0);
	CU_ASSERT_EQUAL(pbox_fleet_map_weights(&map, "j", "0,500,0", &err), 0);
	UNIT_EQ_U64(pbox_fleet_weight(&map, "j", 0), 0);
	UNIT_EQ_U64(pbox_fleet_weight(&map, "j", 1), 500);
	UNIT_EQ_U64(pbox_fleet_weight(&map, "other", 0), PBOX_FLEET_FULL);
	/* the one that has all of it goes: the others must have it */
	map.box[1].state = PBOX_FLEET_GONE;
	UNIT_EQ_U64(pbox_fleet_weight(&map, "j", 0), PBOX_FLEET_FULL);
	UNIT_EQ_U64(pbox_fleet_weight(&map, "j", 1), 0);
	UNIT_EQ_U64(pbox_fleet_first(&map), 0);
	map.box[0].state = PBOX_FLEET_DRAINED;
	UNIT_EQ_U64(pbox_fleet_first(&map), 2);
	CU_ASSERT_EQUAL(pbox_fleet_map_weights(&map, "j", "1,2,3", &err), 0);
	UNIT_EQ_U64(map.n_jobs, 1);
	for (const char *const *w = (const char *const[]){"", "1,2", "1,2,3,4", "0,0,0", "1,2,x",
		     "1,2,-3", "1,2,1000001", "1,2,3 ", NULL};
		*w != NULL; w++)
		CU_ASSERT_EQUAL(pbox_fleet_map_weights(&map, "j", *w, &err), -EINVAL);
	UNIT_EQ_U64(map.job[0].weight[2], 3);
	UNIT_EQ_U64(map.epoch, 9);
}

static void
test_weights_that_the_agent_sets(void)
{
	static const char names[2][PBOX_FLEET_NAME] = {"a", "j0"};
	static const uint32_t weight[3] = {1000, 1000, 250};
	static struct pbox_fleet_map map, back;
	char name[8], *text;

	make_map(&map, 3);
	CU_ASSERT(pbox_fleet_balances(&map, "a"));
	CU_ASSERT_EQUAL(
		pbox_fleet_map_balance(&map, "a", weight, "box 2 is slow", names, 2, &err), 0);
	CU_ASSERT_STRING_EQUAL(map.why, "job 'a': box 2 is slow");
	UNIT_EQ_U64(map.epoch, 8);
	UNIT_EQ_U64(pbox_fleet_weight(&map, "a", 2), 250);
	/* a person has the last word, until it leaves them to the agent */
	CU_ASSERT_EQUAL(pbox_fleet_map_weights(&map, "a", "5,5,6", &err), 0);
	CU_ASSERT(!pbox_fleet_balances(&map, "a"));
	CU_ASSERT_EQUAL(pbox_fleet_map_balance(&map, "a", weight, "", names, 2, &err), -EPERM);
	CU_ASSERT_EQUAL(pbox_fleet_map_forget(&map, "a", "", &err), -EPERM);
	CU_ASSERT_EQUAL(pbox_fleet_map_forget(&map, "b", "", &err), -ENOENT);
	UNIT_EQ_U64(pbox_fleet_weight(&map, "a", 2), 6);
	CU_ASSERT_EQUAL(pbox_fleet_map_leave(&map, "a", NULL, &err), 0);
	UNIT_EQ_U64(pbox_fleet_weight(&map, "a", 2), 6);
	CU_ASSERT_EQUAL(pbox_fleet_map_leave(&map, "a", "1,2,0", &err), 0);
	CU_ASSERT_EQUAL(pbox_fleet_map_leave(&map, "a", "1,2", &err), -EINVAL);
	UNIT_EQ_U64(pbox_fleet_weight(&map, "a", 2), 0);
	CU_ASSERT(pbox_fleet_balances(&map, "a"));
	UNIT_EQ_U64(map.epoch, 11);
	text = pbox_fleet_map_write(&map);
	CU_ASSERT_PTR_NOT_NULL_FATAL(text);
	CU_ASSERT_EQUAL(pbox_fleet_map_read(text, strlen(text), &back, &err), 0);
	CU_ASSERT(memcmp(&map, &back, sizeof(map)) == 0);
	free(text);
	/* a full map: a job that does not run makes room, if no person has set it */
	for (unsigned i = 0; i < PBOX_FLEET_JOBS - 1; i++) {
		snprintf(name, sizeof(name), "j%u", i);
		CU_ASSERT_EQUAL(
			i == 7 ? pbox_fleet_map_balance(&map, name, weight, "", names, 2, &err)
			       : pbox_fleet_map_weights(&map, name, "1,1,1", &err),
			0);
	}
	CU_ASSERT_EQUAL(pbox_fleet_map_weights(&map, "x", "1,1,1", &err), -ENOSPC);
	CU_ASSERT_EQUAL(pbox_fleet_map_balance(&map, "x", weight, "", names, 2, &err), 0);
	UNIT_EQ_U64(map.n_jobs, PBOX_FLEET_JOBS);
	UNIT_EQ_U64(pbox_fleet_weight(&map, "j7", 0), PBOX_FLEET_FULL);
	CU_ASSERT_EQUAL(pbox_fleet_map_forget(&map, "a", "even again", &err), 0);
	UNIT_EQ_U64(pbox_fleet_weight(&map, "a", 2), PBOX_FLEET_FULL);
	CU_ASSERT_EQUAL(pbox_fleet_map_balance(&map, "y", weight, "", names, 2, &err), 0);
	CU_ASSERT_EQUAL(pbox_fleet_map_balance(&map, "z", weight, "",
				(const char[2][PBOX_FLEET_NAME]){"x", "y"}, 2, &err),
		-ENOSPC);
}

/* Nothing is measured of a box that is away: when it is back, it has its share again. */
static void
test_weights_of_boxes_that_are_away(void)
{
	static const char names[1][PBOX_FLEET_NAME] = {"a"};
	static const uint32_t weight[4] = {1000, 0, 0, PBOX_FLEET_KEEP};
	static struct pbox_fleet_map map;

	make_map(&map, 4);
	map.box[1].state = PBOX_FLEET_DRAINED;
	map.box[2].state = PBOX_FLEET_GONE;
	CU_ASSERT_EQUAL(pbox_fleet_map_balance(&map, "a", weight, "", names, 1, &err), 0);
	UNIT_EQ_U64(pbox_fleet_weight(&map, "a", 0), 1000);
	UNIT_EQ_U64(pbox_fleet_weight(&map, "a", 1), 0);
	UNIT_EQ_U64(pbox_fleet_weight(&map, "a", 3), PBOX_FLEET_FULL);
	map.box[1].state = map.box[2].state = PBOX_FLEET_SERVES;
	UNIT_EQ_U64(pbox_fleet_weight(&map, "a", 1), PBOX_FLEET_FULL);
	UNIT_EQ_U64(pbox_fleet_weight(&map, "a", 2), PBOX_FLEET_FULL);
	/* one that serves, and is let go, has 0 */
	CU_ASSERT_EQUAL(pbox_fleet_map_balance(&map, "a", weight, "", names, 1, &err), 0);
	UNIT_EQ_U64(pbox_fleet_weight(&map, "a", 1), 0);
}

static void
test_a_person_changes_states(void)
{
	static struct pbox_fleet_map map;

	make_map(&map, 2);
	CU_ASSERT_EQUAL(pbox_fleet_map_state(&map, 2, PBOX_FLEET_DRAINED, &err), -EINVAL);
	CU_ASSERT_EQUAL(pbox_fleet_map_state(&map, 1, PBOX_FLEET_SERVES, &err), -EINVAL);
	CU_ASSERT_EQUAL(pbox_fleet_map_state(&map, 1, PBOX_FLEET_DRAINED, &err), 0);
	CU_ASSERT_EQUAL(map.box[1].state, PBOX_FLEET_DRAINED);
	CU_ASSERT_STRING_EQUAL(map.why, "the operator: box 1 (10.0.0.2:7269) is drained");
	CU_ASSERT_EQUAL(pbox_fleet_map_state(&map, 0, PBOX_FLEET_DRAINED, &err), -EINVAL);
	CU_ASSERT_STRING_EQUAL(err.text,
		"box 0 (10.0.0.1:7269) is the last one that serves: let another one serve first");
	UNIT_EQ_U64(map.epoch, 8);
}

/* ---- answers of etcd ------------------------------------------------------------------------------ */

static void
add_key(json_t *kvs, const char *key, const char *value, int created, int changed, unsigned lease)
{
	char *k = pbox_base64(key, strlen(key)), *v = pbox_base64(value, strlen(value));
	char text[3][24];
	json_t *kv;

	snprintf(text[0], sizeof(text[0]), "%d", created);
	snprintf(text[1], sizeof(text[1]), "%d", changed);
	snprintf(text[2], sizeof(text[2]), "%u", lease);
	kv = json_pack("{s:s, s:s, s:s, s:s}", "key", k, "value", v, "create_revision", text[0],
		"mod_revision", text[1]);
	if (lease != 0)
		json_object_set_new(kv, "lease", json_string(text[2]));
	json_array_append_new(kvs, kv);
	free(k);
	free(v);
}

static void
test_view(void)
{
	static struct pbox_fleet_view view;
	static struct pbox_fleet_map map;
	json_t *kvs = json_array(),
	       *all = json_pack("{s:{s:s}, s:O}", "header", "revision", "40", "kvs", kvs);
	struct pbox_fleet_member m = {.address = "10.0.0.3:7269",
		.release = "1.2.3",
		.list = "10.0.0.1:7269, 10.0.0.3:7269"};
	char *member = pbox_fleet_member_write(&m), *text,
	     *candidate = pbox_fleet_candidate_write(2);

	make_map(&map, 2);
	text = pbox_fleet_map_write(&map);
	add_key(kvs, "/pbox/f/boxes/2", member, 4, 9, 77);
	add_key(kvs, "/pbox/f/boxes/16", member, 4, 9, 77); /* no such number */
	add_key(kvs, "/pbox/f/boxes/1x", member, 4, 9, 77); /* no number */
	add_key(kvs, "/pbox/f/boxes/1", "no JSON", 4, 9, 77);
	add_key(kvs, "/pbox/f/election/4d", candidate, 12, 12, 77);
	add_key(kvs, "/pbox/f/election/4e", "{\"box\":1}", 11, 30, 78);
	add_key(kvs, "/pbox/f/boxes/0", member, 3, 8,
		0); /* without a lease: by hand, or by who knows */
	add_key(kvs, "/pbox/f/election/1", "{\"box\":0}", 2, 2, 0);
	add_key(kvs, "/pbox/f/map", text, 5, 33, 0);
	add_key(kvs, "/pbox/f/later", "what another release has", 5, 34, 0);
	CU_ASSERT_EQUAL(pbox_fleet_view_read(all, "f", 77, &view, &err), 0);
	UNIT_EQ_U64(view.revision, 40);
	UNIT_EQ_U64(view.last, 34);
	UNIT_EQ_U64(view.map_revision, 33);
	UNIT_EQ_U64(view.map.epoch, 7);
	CU_ASSERT(view.member[2].here && !view.member[1].here && !view.member[0].here);
	UNIT_EQ_U64(view.member[0].revision, 8); /* what the box that comes compares */
	CU_ASSERT_STRING_EQUAL(view.member[2].address, m.address);
	CU_ASSERT_STRING_EQUAL(view.member[2].list, m.list);
	UNIT_EQ_U64(view.member[2].lease, 77);
	UNIT_EQ_U64(view.candidate, 12);
	UNIT_EQ_U64(view.decides, 78); /* the lower create revision, wherever it is in the list */
	UNIT_EQ_U64(view.decides_box, 1);
	add_key(kvs, "/pbox/f/map", "{}", 5, 35, 0);
	CU_ASSERT_EQUAL(pbox_fleet_view_read(all, "f", 77, &view, &err), -EPROTO);
	json_decref(all);
	json_decref(kvs);
	all = json_object();
	CU_ASSERT_EQUAL(pbox_fleet_view_read(all, "f", 77, &view, &err), -EPROTO);
	json_decref(all);
	free(member);
	free(candidate);
	free(text);
}

static void
is_json(json_t *j, const char *want)
{
	char *text;

	CU_ASSERT_PTR_NOT_NULL_FATAL(j);
	text = json_dumps(j, JSON_COMPACT | JSON_SORT_KEYS);
	CU_ASSERT_STRING_EQUAL(text, want);
	if (strcmp(text, want) != 0)
		printf("\n%s\n", text);
	free(text);
	json_decref(j);
}

static void
test_requests(void)
{
	const struct pbox_etcd_compare compare[] = {{"/m", false, 33}, {"/e", true, 12}};

	is_json(pbox_etcd_range("/p/"), "{\"key\":\"L3Av\",\"range_end\":\"L3Aw\"}");
	is_json(pbox_etcd_watch("/p/", INT64_MAX),
		"{\"create_request\":{\"key\":\"L3Av\",\"range_end\":\"L3Aw\",\"start_revision\":\"9223372036854775807\"}}");
	is_json(pbox_etcd_lease(UINT64_C(7587848943256534021), 15),
		"{\"ID\":\"7587848943256534021\",\"TTL\":\"15\"}");
	is_json(pbox_etcd_lease(5, 0), "{\"ID\":\"5\"}");
	is_json(pbox_etcd_delete("/m"), "{\"key\":\"L20=\"}");
	is_json(pbox_etcd_put_if(compare, 2, "/m", "v", 5),
		"{\"compare\":[{\"key\":\"L20=\",\"mod_revision\":\"33\",\"result\":\"EQUAL\",\"target\":\"MOD\"},{\"create_revision\":\"12\",\"key\":\"L2U=\",\"result\":\"EQUAL\",\"target\":\"CREATE\"}],\"success\":[{\"request_put\":{\"key\":\"L20=\",\"lease\":\"5\",\"value\":\"dg==\"}}]}");
}

static int
judge(long status, const char *text)
{
	json_t *j = json_loads(text, 0, NULL);
	int ret;

	memset(&err, 0, sizeof(err));
	ret = pbox_etcd_error(status, j, text, &err);
	json_decref(j);
	return ret;
}

static void
test_errors_of_etcd(void)
{
	CU_ASSERT_EQUAL(judge(200, "{\"header\":{}}"), 0);
	CU_ASSERT_EQUAL(
		judge(400,
			"{\"error\":\"etcdserver: authentication failed, invalid user ID or password\",\"code\":3}"),
		-EACCES);
	CU_ASSERT_EQUAL(
		judge(400, "{\"error\":\"etcdserver: user name is empty\",\"code\":3}"), -EACCES);
	/* users and a client's certificate with a name: plain text */
	CU_ASSERT_EQUAL(
		pbox_etcd_error(400, NULL,
			"CommonName of client sending a request against gateway will be ignored and not used as expected\n",
			&err),
		-EACCES);
	CU_ASSERT(strstr(err.text, "without one (openssl req -subj /O=pbox)") != NULL);
	CU_ASSERT_EQUAL(
		judge(403, "{\"error\":\"etcdserver: permission denied\",\"code\":7}"), -EACCES);
	CU_ASSERT_EQUAL(
		judge(401, "{\"error\":\"etcdserver: invalid auth token\",\"code\":16}"), -ESTALE);
	CU_ASSERT_EQUAL(
		judge(429, "{\"error\":\"etcdserver: mvcc: database space exceeded\",\"code\":8}"),
		-ENOSPC);
	CU_ASSERT(strstr(err.text, "alarm disarm") != NULL);
	CU_ASSERT_EQUAL(judge(503, "{\"error\":\"etcdserver: no leader\",\"code\":14}"), -EAGAIN);
	CU_ASSERT_EQUAL(judge(504, "no JSON at all"), -EAGAIN);
	CU_ASSERT_EQUAL(judge(404, "404 page not found\n"), -EPROTO);
	CU_ASSERT_EQUAL(judge(200, "this is no etcd"), -EPROTO);
	CU_ASSERT_EQUAL(judge(400, "Client sent an HTTP request to an HTTPS server.\n"), -EINVAL);
	/* of a stream */
	CU_ASSERT_EQUAL(
		judge(200, "{\"error\":{\"grpc_code\":14,\"message\":\"etcdserver: no leader\"}}"),
		-EAGAIN);
	CU_ASSERT_EQUAL(judge(200, "{\"error\":{\"grpc_code\":2}}"), -EPROTO);
}

/* ---- decisions --------------------------------------------------------------------------------------- */

static struct pbox_fleet_view view;
static struct pbox_fleet_facts facts;
static struct pbox_fleet_map next;

/* Three boxes, all there since 100 s, whose map has one since long; it decides since 100 s; now it is 200 s. */
static void
all_well(void)
{
	memset(&view, 0, sizeof(view));
	make_map(&view.map, 3);
	view.has_map = true;
	facts = (struct pbox_fleet_facts){.view = &view,
		.n_boxes = 3,
		.address = address,
		.here_ns = {100 * SECOND, 100 * SECOND, 100 * SECOND},
		.office_ns = 100 * SECOND,
		.ttl_ns = TTL,
		.now_ns = 200 * SECOND};
}

static void
test_nothing_is_decided_where_all_is_well(void)
{
	all_well();
	CU_ASSERT_EQUAL(pbox_fleet_decide(&facts, &next, &err), 0);
	CU_ASSERT(pbox_fleet_decide_at(&facts) == UINT64_MAX);
}

static void
test_first_map(void)
{
	all_well();
	view.has_map = false;
	facts.here_ns[1] = 0; /* it is still being started */
	CU_ASSERT_EQUAL(pbox_fleet_decide(&facts, &next, &err), 1);
	UNIT_EQ_U64(next.epoch, 1);
	UNIT_EQ_U64(next.n_boxes, 3);
	for (unsigned i = 0; i < 3; i++) {
		CU_ASSERT_EQUAL(next.box[i].state, PBOX_FLEET_SERVES);
		CU_ASSERT_STRING_EQUAL(next.box[i].address, address[i]);
	}
}

static void
test_a_lease_that_has_ended(void)
{
	all_well();
	facts.here_ns[1] = 0;
	CU_ASSERT_EQUAL(pbox_fleet_decide(&facts, &next, &err), 1);
	UNIT_EQ_U64(next.epoch, 8);
	CU_ASSERT_EQUAL(next.box[1].state, PBOX_FLEET_GONE);
	CU_ASSERT_EQUAL(next.box[0].state, PBOX_FLEET_SERVES);
	CU_ASSERT_STRING_EQUAL(
		next.why, "box 1 (10.0.0.2:7269) has no lease: the others have its chunks");
	/* who has just come to decide waits */
	facts.office_ns = facts.now_ns - TTL + 1;
	CU_ASSERT_EQUAL(pbox_fleet_decide(&facts, &next, &err), 0);
	CU_ASSERT(pbox_fleet_decide_at(&facts) == facts.now_ns + 1);
	/* an operator has taken it out: it stays so */
	facts.office_ns = 0;
	view.map.box[1].state = PBOX_FLEET_DRAINED;
	CU_ASSERT_EQUAL(pbox_fleet_decide(&facts, &next, &err), 0);
}

static void
test_one_at_a_time_and_never_the_last(void)
{
	all_well();
	facts.here_ns[0] = facts.here_ns[1] = facts.here_ns[2] = 0;
	for (unsigned i = 0; i < 2; i++) {
		CU_ASSERT_EQUAL(pbox_fleet_decide(&facts, &next, &err), 1);
		CU_ASSERT_EQUAL(next.box[i].state, PBOX_FLEET_GONE);
		CU_ASSERT_EQUAL(next.box[i + 1].state, PBOX_FLEET_SERVES);
		view.map = next;
	}
	CU_ASSERT_EQUAL(pbox_fleet_decide(&facts, &next, &err), 0);
	CU_ASSERT(pbox_fleet_decide_at(&facts) == UINT64_MAX);
}

static void
test_a_box_that_is_back_must_stay(void)
{
	all_well();
	view.map.box[2].state = PBOX_FLEET_GONE;
	facts.here_ns[2] = facts.now_ns - TTL + 1;
	CU_ASSERT_EQUAL(pbox_fleet_decide(&facts, &next, &err), 0);
	CU_ASSERT(pbox_fleet_decide_at(&facts) == facts.now_ns + 1);
	facts.now_ns++;
	CU_ASSERT_EQUAL(pbox_fleet_decide(&facts, &next, &err), 1);
	CU_ASSERT_EQUAL(next.box[2].state, PBOX_FLEET_SERVES);
}

static void
test_another_list(void)
{
	all_well();
	facts.n_boxes = 4;
	snprintf(view.member[0].list, sizeof(view.member[0].list), "%s, %s, %s", address[0],
		address[1], address[2]);
	view.member[0].here = true;
	CU_ASSERT_EQUAL(pbox_fleet_decide(&facts, &next, &err), -EINVAL);
	CU_ASSERT(
		strstr(err.text,
			"the map has 3 boxes, and this box's list 4: 10.0.0.4:7269 is not in the map") !=
		NULL);
	snprintf(view.member[0].list, sizeof(view.member[0].list), "%s, %s, %s, %s", address[0],
		address[1], address[2], address[3]);
	CU_ASSERT_EQUAL(pbox_fleet_decide(&facts, &next, &err), 1);
	UNIT_EQ_U64(next.n_boxes, 4);
	UNIT_EQ_U64(next.epoch, 8);
}

/* Of four, one differs: that one is named. */
static void
test_the_entry_that_differs(void)
{
	static struct pbox_fleet_map map;
	char text[PBOX_FLEET_DIFFERENCE];

	make_map(&map, 4);
	memcpy(map.box[2].address, "10.0.0.9:7269", 14);
	pbox_fleet_list_text(&map, address, 4, text);
	CU_ASSERT_STRING_EQUAL(
		text, "box 2 is 10.0.0.9:7269 in the map, and 10.0.0.3:7269 in this box's list");
	pbox_fleet_list_text(&map, address, 2, text);
	CU_ASSERT_STRING_EQUAL(text,
		"the map has 4 boxes, and this box's list 2: 10.0.0.9:7269 is not in the list");
}

/* Addresses say which box it is, not places. */
static void
test_what_was_set_survives(void)
{
	static const char(*was)[PBOX_FLEET_ADDRESS];
	static char other[4][PBOX_FLEET_ADDRESS];

	all_well();
	was = facts.address;
	view.map.box[1].state = PBOX_FLEET_DRAINED;
	CU_ASSERT_EQUAL(pbox_fleet_map_weights(&view.map, "ours", "3000,500,1000", &err), 0);
	CU_ASSERT_EQUAL(pbox_fleet_map_weights(&view.map, "theirs", "0,0,7", &err), 0);
	view.map.job[0].balanced = true;
	/* one more, in front, and the last one is gone */
	snprintf(other[0], sizeof(other[0]), "10.9.9.9:7269");
	memcpy(other[1], was[1], sizeof(other[1]));
	memcpy(other[2], was[0], sizeof(other[2]));
	facts.address = (const char(*)[PBOX_FLEET_ADDRESS])other;
	CU_ASSERT_FALSE(pbox_fleet_same_list(&view.map, facts.address, 3));
	CU_ASSERT_TRUE(pbox_fleet_same_list(&view.map, was, 3));
	CU_ASSERT_FALSE(pbox_fleet_same_list(&view.map, was, 2));
	CU_ASSERT_EQUAL(pbox_fleet_decide(&facts, &next, &err), 1);
	CU_ASSERT_EQUAL(next.box[0].state, PBOX_FLEET_SERVES);
	CU_ASSERT_EQUAL(next.box[1].state, PBOX_FLEET_DRAINED);
	CU_ASSERT_EQUAL(next.box[2].state, PBOX_FLEET_SERVES);
	UNIT_EQ_U64(next.n_jobs, view.map.n_jobs - 1); /* of "theirs" no box is left */
	for (unsigned k = 0; k < next.n_jobs; k++)
		CU_ASSERT_STRING_NOT_EQUAL(next.job[k].name, "theirs");
	UNIT_EQ_U64(next.job[next.n_jobs - 1].weight[0], 1750);
	UNIT_EQ_U64(next.job[next.n_jobs - 1].weight[1], 500);
	UNIT_EQ_U64(next.job[next.n_jobs - 1].weight[2], 3000);
	/* none that is left served */
	view.map.box[0].state = view.map.box[1].state = PBOX_FLEET_DRAINED;
	facts.address = (const char(*)[PBOX_FLEET_ADDRESS])other[1];
	facts.n_boxes = 2;
	CU_ASSERT_EQUAL(pbox_fleet_decide(&facts, &next, &err), 1);
	CU_ASSERT_EQUAL(next.box[0].state, PBOX_FLEET_SERVES);
	CU_ASSERT_PTR_NOT_NULL(strstr(next.why, "none served"));
}

/* etcd counts again where it was restored: the number of a map says nothing. */
static void
test_etcd_goes_back(void)
{
	static struct pbox_fleet_history h;
	static struct pbox_fleet_map late;

	all_well();
	memset(&h, 0, sizeof(h));
	view.revision = 40;
	pbox_fleet_history_note(&h, &view);
	UNIT_EQ_U64(h.serial, 1);
	view.revision++;
	pbox_fleet_history_note(&h, &view);
	UNIT_EQ_U64(h.serial, 1);
	CU_ASSERT_EQUAL(pbox_fleet_map_state(&view.map, 1, PBOX_FLEET_DRAINED, &err), 0);
	view.revision++;
	pbox_fleet_history_note(&h, &view);
	UNIT_EQ_U64(h.serial, 2);
	UNIT_EQ_U64(h.fell.code, 0);
	late = view.map;
	/* another change with the same number, seen without what was in between */
	make_map(&view.map, 3);
	CU_ASSERT_EQUAL(pbox_fleet_map_state(&view.map, 2, PBOX_FLEET_DRAINED, &err), 0);
	UNIT_EQ_U64(view.map.epoch, late.epoch);
	pbox_fleet_history_note(&h, &view);
	UNIT_EQ_U64(h.serial, 3);
	CU_ASSERT_PTR_NOT_NULL(strstr(h.fell.text, "there are two maps of epoch 8"));
	/* an earlier one */
	make_map(&view.map, 3);
	view.revision = 12;
	pbox_fleet_history_note(&h, &view);
	UNIT_EQ_U64(h.serial, 4);
	CU_ASSERT_PTR_NOT_NULL(strstr(h.fell.text, "went back from epoch 8 to 7"));
	/* none at all: what is known is put back */
	h = (struct pbox_fleet_history){0};
	view.map = late;
	pbox_fleet_history_note(&h, &view);
	view.has_map = false;
	pbox_fleet_history_note(&h, &view);
	UNIT_EQ_U64(h.serial, 1);
	CU_ASSERT_PTR_NOT_NULL(strstr(h.fell.text, "has lost the map"));
	facts.before = &h.map;
	CU_ASSERT_EQUAL(pbox_fleet_decide(&facts, &next, &err), 1);
	UNIT_EQ_U64(next.epoch, late.epoch + 1);
	CU_ASSERT_EQUAL(next.box[1].state, PBOX_FLEET_DRAINED);
}

const struct unit_test unit_tests[] = {
	{"what was set survives another list", test_what_was_set_survives},
	{"etcd goes back", test_etcd_goes_back},
	{"Base64: examples, and what is none", test_base64},
	{"Base64: bytes come back", test_base64_of_all_bytes},
	{"UTF-7 of telemetry", test_utf7},
	{"a map is the same after etcd", test_map_is_the_same_after_etcd},
	{"who decides in a run", test_who_decides},
	{"maps that make no sense", test_maps_that_make_no_sense},
	{"weights", test_weights},
	{"weights that the agent sets", test_weights_that_the_agent_sets},
	{"a person changes states", test_a_person_changes_states},
	{"keys of a fleet", test_view},
	{"requests", test_requests},
	{"errors of etcd", test_errors_of_etcd},
	{"nothing is decided where all is well", test_nothing_is_decided_where_all_is_well},
	{"the first map", test_first_map},
	{"a lease that has ended", test_a_lease_that_has_ended},
	{"one box at a time, and never the last", test_one_at_a_time_and_never_the_last},
	{"a box that is back must stay", test_a_box_that_is_back_must_stay},
	{"weights of boxes that are away", test_weights_of_boxes_that_are_away},
	{"another list of boxes", test_another_list},
	{"the entry that differs", test_the_entry_that_differs},
	{NULL, NULL},
};
