/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* What an agent asks of its box when the map changes. */

#include <stdio.h>
#include <string.h>

#include "agent.h"

#include "../unit.h"

const char unit_suite[] = "agent: the map, made so";

static struct agent a;
static char asked[256]; /* the last command for the box; "": none */

uint64_t
agent_now(void)
{
	return 100 * AGENT_S;
}

int
box_ask(struct box *b, const char *command, json_t **answer, struct pbox_error *err)
{
	(void)b;
	(void)err;
	snprintf(asked, sizeof(asked), "%s", command);
	*answer = json_pack("{s:i}", "chunks", 3);
	return 0;
}

bool
box_same_run(const struct box_job *x, const struct box_job *y)
{
	return x->number == y->number;
}

bool
box_has_run(const struct box *b, const struct box_job *job)
{
	(void)b;
	(void)job;
	return true;
}

/* The first box of three, with a job, and the map of its list. */
static void
begin(void)
{
	static struct pbox_cluster_options conf;

	memset(&a, 0, sizeof(a));
	a.conf = &conf;
	a.box.n = a.view.map.n_boxes = 3;
	a.box.n_jobs = 1;
	a.box.job[0] = (struct box_job){.name = "mnist", .number = 4, .tables = 1};
	a.view.has_map = true;
	a.view.map.epoch = 7;
	a.view.revision = 40;
	for (unsigned i = 0; i < 3; i++) {
		snprintf(a.box.address[i], sizeof(a.box.address[i]), "10.0.0.%u:7269", i + 1);
		snprintf(a.view.map.box[i].address, sizeof(a.view.map.box[i].address), "%s",
			a.box.address[i]);
	}
}

static void
look(void)
{
	asked[0] = '\0';
	pbox_fleet_history_note(&a.history, &a.view);
	apply_map(&a);
}

/* After etcd was restored: another map of the number that was made so already. */
static void
test_the_same_epoch_again(void)
{
	begin();
	look();
	CU_ASSERT_STRING_EQUAL(asked, "/pbox/weigh,#4,1000,1000,1000");
	CU_ASSERT(a.applied == a.history.serial);
	look();
	CU_ASSERT_STRING_EQUAL(asked, "");
	a.view.map.box[2].state = PBOX_FLEET_DRAINED;
	look();
	CU_ASSERT_STRING_EQUAL(asked, "/pbox/weigh,#4,1000,1000,0");
	CU_ASSERT(a.applied == a.history.serial);
}

/* Weights go by place: those of a map of another list are for other boxes. */
static void
test_another_order(void)
{
	begin();
	a.view.map.box[2].state = PBOX_FLEET_DRAINED;
	memcpy(a.view.map.box[2].address, a.box.address[1], sizeof(a.box.address[1]));
	memcpy(a.view.map.box[1].address, a.box.address[2], sizeof(a.box.address[2]));
	look();
	CU_ASSERT_STRING_EQUAL(asked, "");
	CU_ASSERT_NOT_EQUAL(a.unable.code, 0);
	CU_ASSERT(
		strstr(a.unable.text,
			"box 1 is 10.0.0.3:7269 in the map, and 10.0.0.2:7269 in this box's list") !=
		NULL);
	CU_ASSERT(a.applied != a.history.serial);
	memcpy(a.view.map.box[1].address, a.box.address[1], sizeof(a.box.address[1]));
	memcpy(a.view.map.box[2].address, a.box.address[2], sizeof(a.box.address[2]));
	look();
	CU_ASSERT_STRING_EQUAL(asked, "/pbox/weigh,#4,1000,1000,0");
	UNIT_EQ_U64(a.unable.code, 0);
}

/* What is asked of the box 60 s after box 2 has lost its lease. */
static void
stopped(void)
{
	static struct pbox_cluster_options conf = {.failover_ns = 30 * AGENT_S};

	a.conf = &conf;
	a.here_ns[2] = 0;
	a.away_ns[2] = 40 * AGENT_S;
	a.lost_ns = 0;
	look();
}

/* A person drains a box, stops it for long, starts it again and says that it serves: no other word is needed. */
static void
test_drained_stopped_and_back(void)
{
	begin();
	for (unsigned i = 0; i < 3; i++)
		a.here_ns[i] = AGENT_S;
	a.view.map.box[2].state = PBOX_FLEET_DRAINED;
	look();
	CU_ASSERT_STRING_EQUAL(asked, "/pbox/weigh,#4,1000,1000,0");
	stopped(); /* jobs wait for it no more */
	CU_ASSERT_STRING_EQUAL(asked, "/pbox/failover,#4,2");
	UNIT_EQ_U64(a.box.job[0].out, 4);
	a.view.map.box[2].state = PBOX_FLEET_SERVES;
	look(); /* not before it has a lease */
	CU_ASSERT_STRING_EQUAL(asked, "/pbox/weigh,#4,1000,1000,0");
	a.here_ns[2] = 90 * AGENT_S;
	look();
	CU_ASSERT_STRING_EQUAL(asked, "/pbox/weigh,#4,1000,1000,1000");
	look();
	CU_ASSERT_STRING_EQUAL(asked, "");
	a.box.job[0].out = 0;
	look();
	UNIT_EQ_U64(a.drained, 0);
}

/* One that has died comes back by a person's scale alone. */
static void
test_dead_and_back(void)
{
	begin();
	for (unsigned i = 0; i < 3; i++)
		a.here_ns[i] = AGENT_S;
	a.view.map.box[2].state = PBOX_FLEET_GONE;
	look();
	stopped();
	UNIT_EQ_U64(a.box.job[0].out, 4);
	a.view.map.box[2].state = PBOX_FLEET_SERVES;
	a.here_ns[2] = 90 * AGENT_S;
	look();
	CU_ASSERT_STRING_EQUAL(asked, "/pbox/weigh,#4,1000,1000,0");
	UNIT_EQ_U64(apply_back(&a, &a.box.job[0]), 0);
}

const struct unit_test unit_tests[] = {
	{"a box that is drained, stopped, and back", test_drained_stopped_and_back},
	{"a box that died, and is back", test_dead_and_back},
	{"the same epoch again", test_the_same_epoch_again},
	{"boxes in another order", test_another_order},
	{NULL, NULL},
};
