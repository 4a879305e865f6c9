/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* What an agent asks of its box when the map changes. */

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent.h"

#include "../unit.h"

const char unit_suite[] = "agent: the map, made so";

static struct agent a;
static char asked[256];           /* the last command for the box; "": none */
static bool refuses;              /* the box does, and */
static int takes = 1;             /* etcd: what was put */
static struct pbox_fleet_map put; /* the last map that was written; epoch 0: none */
static char condition[2][PBOX_FLEET_KEY];

uint64_t
agent_now(void)
{
	return 100 * AGENT_S;
}

int
box_ask(struct box *b, const char *command, json_t **answer, struct pbox_error *err)
{
	(void)b;
	snprintf(asked, sizeof(asked), "%s", command);
	*answer = NULL;
	if (refuses)
		return pbox_fail(err, EPROTO, "a round has ended");
	*answer = json_pack("{s:i}", "chunks", 3);
	return 0;
}

int
ask_put(struct etcd *e, const struct pbox_etcd_compare *compare, unsigned n, const char *key,
	char *value, uint64_t lease, struct pbox_error *err)
{
	(void)e;
	CU_ASSERT_STRING_EQUAL(key, "/pbox/prod/map");
	UNIT_EQ_U64(lease, 0);
	CU_ASSERT_EQUAL(n, 2);
	for (unsigned i = 0; i < 2; i++)
		snprintf(condition[i], sizeof(condition[i]), "%s", compare[i].key);
	CU_ASSERT_EQUAL(pbox_fleet_map_read(value, strlen(value), &put, err), 0);
	free(value);
	if (takes == 1)
		a.view.map = put; /* as it is read again */
	return takes;
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

/* The agent of box 1 or 2, and boxes without a lease since so long, in seconds; 0: it has one. */
static void
begin_lost(unsigned me, unsigned box0, unsigned box1)
{
	static struct pbox_cluster_options conf = {.failover_ns = 30 * AGENT_S};
	unsigned away[3] = {box0, box1, 0};

	begin();
	a.conf = &conf;
	a.fleet = "prod";
	a.box.number = me;
	a.lease = 9;
	a.view.member[me] = (struct pbox_fleet_member){.here = true, .lease = 9, .revision = 12};
	a.box.job[0].run = 77;
	for (unsigned i = 0; i < 3; i++) {
		a.here_ns[i] = away[i] == 0 ? AGENT_S : 0;
		a.away_ns[i] = away[i] == 0 ? 0 : agent_now() - away[i] * AGENT_S;
		a.view.map.box[i].state = away[i] == 0 ? PBOX_FLEET_SERVES : PBOX_FLEET_GONE;
	}
	refuses = false;
	takes = 1;
	put.epoch = 0;
}

static void
look_again(void)
{
	a.lost_ns = 0;
	look();
}

static unsigned
says(void)
{
	return pbox_fleet_map_decides(&a.view.map, "mnist", 77);
}

/* Box 0 decides, and is lost: the box is asked, the map says so, the box does it. */
static void
test_takes_the_place(void)
{
	begin_lost(1, 29, 0); /* not yet */
	look_again();
	CU_ASSERT_STRING_EQUAL(asked, "");
	begin_lost(1, 31, 0);
	look_again();
	CU_ASSERT_STRING_EQUAL(asked, "/pbox/failover,#4,0,try");
	CU_ASSERT_STRING_EQUAL(condition[0], "/pbox/prod/map");
	CU_ASSERT_STRING_EQUAL(condition[1], "/pbox/prod/boxes/1");
	UNIT_EQ_U64(put.epoch, 8);
	CU_ASSERT_EQUAL(says(), 1);
	look();
	CU_ASSERT_STRING_EQUAL(asked, "/pbox/weigh,#4,0,1000,1000"); /* after the next one */
	CU_ASSERT_EQUAL(a.box.job[0].decider, 1);
	CU_ASSERT_EQUAL(a.box.job[0].out, 1);
	put.epoch = 0;
	look_again();
	UNIT_EQ_U64(put.epoch, 0);
	CU_ASSERT_STRING_EQUAL(asked, "");
}

/* It is cut off from etcd alone, and lives: nothing is written; nor while another one has changed the map, or this agent's key is another's. */
static void
test_does_not_take_it(void)
{
	begin_lost(1, 31, 0);
	refuses = true;
	look_again();
	UNIT_EQ_U64(put.epoch, 0);
	CU_ASSERT_NOT_EQUAL(a.lost.code, 0);
	refuses = false;
	takes = 0;
	look_again();
	CU_ASSERT_STRING_EQUAL(asked, "/pbox/failover,#4,0,try");
	CU_ASSERT_EQUAL(says(), UINT_MAX);
	begin_lost(1, 31, 0);
	a.view.member[1].lease = 8;
	look_again();
	UNIT_EQ_U64(put.epoch, 0);
	/* the box has refused after the map said so: it says so no more */
	begin_lost(1, 31, 0);
	look_again();
	refuses = true;
	look();
	CU_ASSERT_STRING_EQUAL(asked, "/pbox/failover,#4,0,take");
	CU_ASSERT_EQUAL(says(), UINT_MAX);
	/* or box 0 is back before */
	begin_lost(1, 31, 0);
	look_again();
	CU_ASSERT_EQUAL(says(), 1);
	a.view.map.box[0].state = PBOX_FLEET_SERVES;
	a.away_ns[0] = 0;
	look();
	CU_ASSERT_EQUAL(says(), UINT_MAX);
	CU_ASSERT_STRING_EQUAL(asked, "");
}

/* One box alone: the next that lives, and no other while that one is about to. */
static void
test_the_next_one_alone(void)
{
	begin_lost(2, 31, 0);
	look_again();
	CU_ASSERT_STRING_EQUAL(asked, "");
	begin_lost(2, 31, 29);
	look_again();
	CU_ASSERT_STRING_EQUAL(asked, "");
	begin_lost(2, 31, 31);
	look_again();
	CU_ASSERT_STRING_EQUAL(asked, "/pbox/failover,#4,0,try+1");
	CU_ASSERT_EQUAL(says(), 2);
	/* box 1 is out already */
	begin_lost(2, 31, 1);
	a.box.job[0].out = 2;
	look_again();
	CU_ASSERT_STRING_EQUAL(asked, "/pbox/failover,#4,0,try");
	/* box 2 was about to, when box 1 was lost; both are back */
	begin_lost(1, 31, 0);
	pbox_fleet_map_take(&a.view.map, "mnist", 77, 2, "box 2");
	look_again();
	CU_ASSERT_STRING_EQUAL(asked, "");
	CU_ASSERT_EQUAL(says(), 2);
	/* another run of that name is not meant */
	pbox_fleet_map_take(&a.view.map, "mnist", 76, 2, "box 2");
	look_again();
	CU_ASSERT_EQUAL(says(), 1);
}

/* A box that decides, as it thinks: what the map says counts. */
static void
test_another_one_decides(void)
{
	begin_lost(0, 0, 0);
	pbox_fleet_map_take(&a.view.map, "mnist", 77, 1, "box 1");
	look_again();
	CU_ASSERT_STRING_EQUAL(asked, "");
	UNIT_EQ_U64(put.epoch, 0);
	CU_ASSERT_FALSE(apply_decides(&a, &a.box.job[0]));
	/* after a person's command the map says it, but where it names a box that is not out */
	begin_lost(2, 0, 0);
	a.box.job[0].decider = 2;
	a.box.job[0].out = 1;
	pbox_fleet_map_take(&a.view.map, "mnist", 77, 1, "box 1");
	look_again();
	CU_ASSERT_EQUAL(says(), 1);
	a.box.job[0].out = 3;
	look_again();
	CU_ASSERT_EQUAL(says(), 2);
}

const struct unit_test unit_tests[] = {
	{"takes the place of the box that decides", test_takes_the_place},
	{"does not take it", test_does_not_take_it},
	{"the next one alone", test_the_next_one_alone},
	{"another one decides", test_another_one_decides},
	{"a box that is drained, stopped, and back", test_drained_stopped_and_back},
	{"a box that died, and is back", test_dead_and_back},
	{"the same epoch again", test_the_same_epoch_again},
	{"boxes in another order", test_another_order},
	{NULL, NULL},
};
