/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Changes of the map by a person: read, change, compare-and-swap. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent.h"

#define TRIES 5

/* Exactly: its number, or its address with or without the port. */
static int
command_box(
	const struct pbox_fleet_map *map, const char *text, unsigned *box, struct pbox_error *err)
{
	char number[12];

	for (unsigned i = 0; i < map->n_boxes; i++) {
		const char *address = map->box[i].address;
		size_t host = strcspn(address, ":");

		snprintf(number, sizeof(number), "%u", i);
		if (strcmp(text, number) != 0 && strcmp(text, address) != 0 &&
			(strlen(text) != host || strncmp(text, address, host) != 0))
			continue;
		*box = i;
		return 0;
	}
	return pbox_fail(err, EINVAL,
		"'%.40s' is no number or address of a box: pbox-ctl cluster shows them", text);
}

static int
command_change(struct pbox_fleet_map *map, char **argv, struct pbox_error *err)
{
	unsigned box = 0;
	int ret;

	if (strcmp(argv[0], "weigh") == 0)
		return pbox_fleet_map_weights(map, argv[1], argv[2], err);
	if (strcmp(argv[0], "balance") == 0)
		return pbox_fleet_map_leave(map, argv[1], argv[2], err);
	ret = command_box(map, argv[1], &box, err);
	if (ret != 0)
		return ret;
	return pbox_fleet_map_state(map, box,
		strcmp(argv[0], "drain") == 0 ? PBOX_FLEET_DRAINED : PBOX_FLEET_SERVES, err);
}

static int
command_once(struct etcd *e, const struct pbox_options *opt, char **argv,
	struct pbox_fleet_map *map, struct pbox_error *err)
{
	const char *fleet = opt->clusters[0].name;
	static struct pbox_fleet_view view;
	struct pbox_etcd_compare compare;
	struct pbox_error list;
	char key[PBOX_FLEET_KEY];
	int ret = ask_view(e, fleet, 0, &view, NULL, err);

	if (ret != 0)
		return ret;
	if (!view.has_map)
		return pbox_fail(err, ENOENT,
			"fleet %s has no map yet: it is written when an agent of it runs", fleet);
	*map = view.map;
	/* a person whose list is another one means another box, or one that is none */
	if (ask_list(map, opt, &list) != 0)
		return pbox_fail(err, EINVAL,
			"%s: nothing was changed. Give all boxes the same list (boxes in pbox.conf), or use a configuration with that of the map",
			list.text);
	ret = command_change(map, argv, err);
	if (ret != 0)
		return ret;
	compare = (struct pbox_etcd_compare){
		.key = pbox_fleet_key(key, fleet, "map"), .revision = view.map_revision};
	ret = ask_put(e, &compare, 1, key, pbox_fleet_map_write(map), 0, err);
	if (ret == 0)
		return pbox_fail(err, EBUSY, "others change the map at the same time: try again");
	return ret < 0 ? ret : 0;
}

/* 0, or main()'s 2 after a line that says how the command is written. */
static int
command_usage(int argc, char **argv)
{
	static const struct {
		const char *name, *takes;
		int least, most;
	} form[] = {{"drain", "BOX", 1, 1}, {"serve", "BOX", 1, 1},
		{"weigh", "JOB WEIGHT,WEIGHT,...", 2, 2},
		{"balance", "JOB [WEIGHT,WEIGHT,...]", 1, 2}, {"snapshot", "JOB", 1, 1},
		{"restore", "JOB [ROUND]", 1, 2}, {"withdraw", "JOB", 1, 1}, {"sets", "", 0, 0}};

	for (unsigned i = 0; i < sizeof(form) / sizeof(form[0]); i++) {
		if (strcmp(argv[0], form[i].name) != 0)
			continue;
		if (argc - 1 >= form[i].least && argc - 1 <= form[i].most)
			return 0;
		fprintf(stderr, "pbox-agent: it is '%s %s': see pbox-agent --help\n", form[i].name,
			form[i].takes);
		return 2;
	}
	fprintf(stderr,
		"pbox-agent: there is no command '%s'; there are drain BOX, serve BOX, weigh JOB WEIGHT,WEIGHT,..., balance JOB [WEIGHT,WEIGHT,...], snapshot JOB, restore JOB [ROUND], withdraw JOB, and sets: see pbox-agent --help\n",
		argv[0]);
	return 2;
}

int
command_run(struct etcd *e, const struct pbox_options *opt, int argc, char **argv)
{
	static struct pbox_fleet_map map;
	struct pbox_error err = {0};
	int ret = -EBUSY;

	if (command_usage(argc, argv) != 0)
		return 2;
	if (strcmp(argv[0], "snapshot") == 0 || strcmp(argv[0], "restore") == 0 ||
		strcmp(argv[0], "withdraw") == 0 || strcmp(argv[0], "sets") == 0)
		return set_command(e, opt, argc, argv);
	for (unsigned i = 0; i < TRIES && ret == -EBUSY; i++)
		ret = command_once(e, opt, argv, &map, &err);
	if (ret != 0) {
		fprintf(stderr, "pbox-agent: %s%s\n", err.text,
			ret == -EAGAIN
				? ": is etcd up there? 'pbox-agent --check' asks each endpoint of it"
				: "");
		return 1;
	}
	printf("map of epoch %llu: %s\n", (unsigned long long)map.epoch, map.why);
	if (strcmp(argv[0], "weigh") == 0)
		printf("they hold for each job of that name, now and later ('pbox-ctl jobs' names those that run); pbox-agent balance %s leaves them to the agent\n",
			argv[1]);
	return 0;
}
