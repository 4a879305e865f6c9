/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* The questions that an agent has to etcd. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent.h"

int
ask_view(struct etcd *e, const char *fleet, uint64_t lease, struct pbox_fleet_view *view,
	struct pbox_fleet_sets *sets, struct pbox_error *err)
{
	char key[PBOX_FLEET_KEY];
	json_t *answer;
	int ret = etcd_ask(
		e, "kv/range", pbox_etcd_range(pbox_fleet_key(key, fleet, "")), &answer, err);

	if (ret == 0)
		ret = pbox_fleet_view_read(answer, fleet, lease, view, err);
	if (ret == 0 && sets != NULL)
		pbox_fleet_sets_read(answer, fleet, sets);
	json_decref(answer);
	return ret;
}

int
ask_grant(struct etcd *e, uint64_t ttl_s, uint64_t *lease, struct pbox_error *err)
{
	json_t *answer;
	int ret = etcd_ask(e, "lease/grant", pbox_etcd_lease(0, ttl_s), &answer, err);

	*lease = ret == 0 ? (uint64_t)pbox_etcd_number(answer, "ID") : 0;
	if (ret == 0 && *lease == 0)
		ret = pbox_fail(err, EPROTO, "%s: the lease has no number", e->url[e->at]);
	json_decref(answer);
	return ret;
}

int
ask_keep(struct etcd *e, uint64_t lease, struct pbox_error *err)
{
	json_t *answer, *result;
	int ret = etcd_ask(e, "lease/keepalive", pbox_etcd_lease(lease, 0), &answer, err);

	result = json_object_get(answer, "result");
	if (ret == 0 && pbox_etcd_number(result, "TTL") <= 0)
		ret = pbox_fail(err, ENOENT, "the lease has ended");
	json_decref(answer);
	return ret;
}

int
ask_put(struct etcd *e, const struct pbox_etcd_compare *compare, unsigned n, const char *key,
	char *value, uint64_t lease, struct pbox_error *err)
{
	json_t *answer = NULL;
	int ret;

	if (value == NULL)
		return pbox_fail(err, ENOMEM, "no memory for a key");
	ret = etcd_ask(e, "kv/txn", pbox_etcd_put_if(compare, n, key, value, lease), &answer, err);
	if (ret == 0)
		ret = json_is_true(json_object_get(answer, "succeeded"));
	json_decref(answer);
	free(value);
	return ret;
}

int
ask_delete(struct etcd *e, const char *key, struct pbox_error *err)
{
	json_t *answer;
	int ret = etcd_ask(e, "kv/deleterange", pbox_etcd_delete(key), &answer, err);

	json_decref(answer);
	return ret;
}

static int
ask_alarm_of(const json_t *answer, struct pbox_error *err)
{
	const json_t *alarms = json_object_get(answer, "alarms");

	for (size_t i = 0; i < json_array_size(alarms); i++) {
		const char *which =
			json_string_value(json_object_get(json_array_get(alarms, i), "alarm"));

		if (which != NULL && strcmp(which, "NOSPACE") == 0)
			return pbox_fail(err, ENOSPC,
				"etcd has no space (alarm NOSPACE): no map can be written, and no box can come");
		if (which != NULL && strcmp(which, "NONE") != 0)
			return pbox_fail(err, EIO, "etcd has the alarm %.32s", which);
	}
	return 0;
}

int
ask_alarm(struct etcd *e, struct pbox_error *err)
{
	json_t *answer;
	int ret = etcd_ask(e, "maintenance/alarm",
		json_pack("{s:s, s:s}", "action", "GET", "alarm", "NONE"), &answer, err);

	if (ret == 0)
		ret = ask_alarm_of(answer, err);
	json_decref(answer);
	return ret;
}

int
ask_list(const struct pbox_fleet_map *map, const struct pbox_options *opt, struct pbox_error *err)
{
	uint8_t addr[PBOX_OPTIONS_BOXES][4];
	char address[PBOX_FLEET_BOXES][PBOX_FLEET_ADDRESS], text[PBOX_FLEET_DIFFERENCE];
	int n = opt->boxes[0] != '\0' ? pbox_options_boxes(opt->boxes, addr, err) : 0;

	if (n <= 0) /* a host that has no box may command, too */
		return n;
	PBOX_ASSERT(n <= PBOX_FLEET_BOXES);
	for (int i = 0; i < n; i++)
		snprintf(address[i], sizeof(address[i]), "%u.%u.%u.%u:%u", addr[i][0], addr[i][1],
			addr[i][2], addr[i][3], opt->control_port);
	if (pbox_fleet_same_list(map, (const char(*)[PBOX_FLEET_ADDRESS])address, (unsigned)n))
		return 0;
	pbox_fleet_list_text(map, (const char(*)[PBOX_FLEET_ADDRESS])address, (unsigned)n, text);
	return pbox_fail(err, EINVAL, "%s", text);
}

int
ask_check(struct etcd *e, const struct pbox_options *opt)
{
	const char *fleet = opt->clusters[0].name;
	static struct pbox_fleet_view view;
	struct pbox_error err = {0};
	unsigned good = 0, leaders = 0;
	int ret;

	for (unsigned i = 0; i < e->n; i++) {
		json_t *answer;

		ret = etcd_ask_at(e, i, "maintenance/status", json_object(), &answer, &err);
		if (ret == 0) {
			const char *version = json_string_value(json_object_get(answer, "version"));

			good++;
			leaders += pbox_etcd_number(answer, "leader") != 0;
			printf("OK   %s: etcd %s%s\n", e->url[i], version != NULL ? version : "?",
				pbox_etcd_number(answer, "leader") != 0 ? ""
									: ", without a leader");
		} else {
			printf("%s %s\n", good > 0 || i + 1 < e->n ? "WARN" : "FAIL", err.text);
		}
		json_decref(answer);
	}
	if (good == 0)
		return 1;
	ret = ask_view(e, fleet, 0, &view, NULL, &err);
	if (ret != 0) {
		printf("FAIL %s\n", err.text);
		return 1;
	}
	if (view.has_map)
		printf("OK   fleet %s: a map of %u boxes, epoch %llu\n", fleet, view.map.n_boxes,
			(unsigned long long)view.map.epoch);
	else
		printf("OK   fleet %s: no map yet\n", fleet);
	if (view.has_map && ask_list(&view.map, opt, &err) != 0)
		printf("WARN %s: the map is written again when all boxes that are there have one list\n",
			err.text);
	ret = ask_alarm(e, &err);
	if (ret != 0)
		printf("FAIL %s\n", err.text);
	return ret != 0 || leaders == 0;
}
