/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include <pbox_wire.h>

#include "harness.h"
#include "unit.h"

const char unit_suite[] = "client: restarts of the box";

static struct pbox_client_error err;
static const struct pbox_client_tensor model[] = {{"embed", 20000, 0}, {"a", 10, 0}, {"b", 300, 0},
	{"none", 0, 0}, {"fc", 9000, 1}, {"fc.bias", 77, 1}};

/* ---- whole runs: every result is compared with the sum in order ---------------------------------- */

static struct run
base(unsigned workers, unsigned rounds)
{
	return (struct run){.box = {.workers = workers, .seed = 7},
		.tensors = model,
		.n = 6,
		.rounds = rounds,
		.push_format = PBOX_FMT_FP32,
		.pull_format = PBOX_FMT_FP32};
}

static void
expect(const struct run *r, uint64_t restarts)
{
	uint64_t all = 0;
	struct run_result o;

	for (unsigned i = 0; i < r->n; i++)
		all += r->tensors[i].elements;
	harness_run(r, &o);
	if (o.failed > 0)
		printf("\n    %s\n", o.text);
	UNIT_EQ_U64(o.failed, 0);
	UNIT_EQ_U64(o.mismatches, 0);
	UNIT_EQ_U64(o.checked, all * r->rounds * r->box.workers * (r->tables > 0 ? r->tables : 1));
	UNIT_EQ_U64(o.box.malformed, 0);
	UNIT_EQ_U64(o.box.gone, 0);
	if (r->restarts > 0) {
		printf("%u restarts, %llu seen, %llu RESTOREs, %llu given ... ", o.restarts,
			(unsigned long long)o.stats.restarts, (unsigned long long)o.box.restores,
			(unsigned long long)o.box.given);
		CU_ASSERT(o.stats.restarts > 0);
	} else {
		UNIT_EQ_U64(o.stats.restarts, restarts);
	}
	CU_ASSERT(restarts == 0 || o.stats.restored_fragments > 0);
}

static void
restart_at_3(struct box *b, unsigned round)
{
	if (round == 3) {
		usleep(50000); /* the others are in the round, and wait */
		box_restart(b);
	}
}

static void
restart_before_1(struct box *b, unsigned round)
{
	if (round == 1)
		box_restart(b);
}

static void
restart_then_idle(struct box *b, unsigned round)
{
	if (round == 3) {
		usleep(50000);
		box_restart(b);
		usleep(1300000); /* this worker has nothing to push until all tables are reported */
	}
}

static void
twice_at_3(struct box *b, unsigned round)
{
	if (round == 3) {
		box_restart(b);
		usleep(1300000); /* an idle worker looks once a second */
		box_restart(b);
	}
}

static void
again_while_restoring(struct box *b, unsigned round)
{
	if (round == 3) {
		box_restart_after(b, 9, 0);
		box_restart(b);
	}
}

static void
again_while_declaring(struct box *b, unsigned round)
{
	if (round == 3) {
		box_restart_after(b, 0, 2);
		box_restart(b);
	}
}

static void
forge_always(struct box *b, unsigned round)
{
	(void)round;
	box_forge(b);
}

static void
end_sessions(struct box *b, unsigned round)
{
	if (round == 3)
		box_end_sessions(b);
}

static void
test_between_rounds(void)
{
	struct run r = base(1, 6);

	r.before = restart_at_3;
	expect(&r, 1);
	r = base(3, 6);
	r.before = restart_at_3;
	expect(&r, 1);
	r.before = restart_before_1;
	expect(&r, 1);
}

static void
test_twice(void)
{
	struct run r = base(2, 6);

	r.before = twice_at_3;
	expect(&r, 2);
}

static void
test_while_rejoining(void)
{
	struct run r = base(2, 6);

	r.before = again_while_restoring;
	expect(&r, 2);
	r.before = again_while_declaring;
	expect(&r, 2);
}

/** One worker's window is full of pushes, the other's of RESTOREs of the next table. */
static void
test_windows_full(void)
{
	struct run r = base(2, 4);

	r.before = restart_then_idle;
	r.tables = 3;
	for (r.box.window = 1; r.box.window < 64; r.box.window *= 4)
		expect(&r, 1);
}

static void
restart_often(struct box *b, unsigned round)
{
	if (round % 3 == 2) {
		usleep(20000);
		box_restart(b);
	}
}

/** Each thread of a client waits at sockets of its own, and gets others while it does. */
static void
test_other_endpoints(void)
{
	struct run r = base(2, 12);

	r.box.turns = true;
	r.before = restart_often;
	expect(&r, 4);
}

static void
test_in_mid_round(void)
{
	struct run r = base(3, 300);

	r.restarts = 15;
	expect(&r, 15);
	r.per_tensor = true;
	r.box.endpoints = 3;
	r.box.window = 5;
	expect(&r, 15);
}

static void
test_formats_tables_ops(void)
{
	struct run r = base(2, 150);

	r.restarts = 8;
	r.tables = 3;
	r.op = PBOX_OP_MEAN;
	expect(&r, 8);
	r.tables = 1;
	r.push_format = r.pull_format = PBOX_FMT_BF16;
	r.in_place = true;
	expect(&r, 8);
}

static void
test_with_loss(void)
{
	struct run r = base(3, 60);

	r.restarts = 6;
	r.restart_ms = 600;
	r.box.loss = 0.1;
	r.box.dup = 0.05;
	r.box.reorder = 0.05;
	expect(&r, 6);
}

static void
test_forged(void)
{
	struct run r = base(2, 20);

	r.before = forge_always;
	expect(&r, 0);
}

static void
test_session_ended(void)
{
	struct run r = base(2, 6);

	r.before = end_sessions;
	expect(&r, 1);
}

/* ---- single steps ---------------------------------------------------------------------------------- */

struct peer {
	pthread_t thread;
	struct box *b;
	int id;
	unsigned workers, rounds;
	uint32_t first_round;
	uint8_t mode;
	int rc;
	struct pbox_client_error err;
	struct pbox_client *c; /* left open */
	float last[1000];
};

static const struct pbox_client_tensor one[] = {{"fc.weight", 1000, 0}};

static int
open_table(struct peer *p)
{
	struct pbox_client_conf conf = harness_conf(p->b, p->id, p->workers);
	struct pbox_client_table d = {.size = sizeof(d),
		.mode = p->mode,
		.optimiser = p->mode ? PBOX_OPT_SGD : PBOX_OPT_NONE,
		.push_format = PBOX_FMT_FP32,
		.pull_format = PBOX_FMT_FP32,
		.n = 1,
		.tensors = one,
		.first_round = p->first_round};
	uint32_t table;

	p->rc = pbox_client_open(&p->c, &conf, &p->err);
	if (p->rc == 0)
		p->rc = pbox_client_declare(p->c, &d, 0, &table, &p->err);
	return p->rc;
}

static void *
peer_main(void *arg)
{
	struct peer *p = arg;
	struct pbox_client_io io = {0, p->last, p->last};

	if (open_table(p) != 0)
		return NULL;
	for (unsigned i = 0; i < p->rounds && p->rc == 0; i++) {
		for (unsigned k = 0; k < 1000; k++)
			p->last[k] = (float)p->id + (float)i;
		p->rc = pbox_client_run(p->c, 0, PBOX_CLIENT_PUSHPULL, &io, 1, 1, 0, &p->err);
	}
	return NULL;
}

static void
peers_start(struct box *b, struct peer *p, unsigned n, unsigned rounds)
{
	for (unsigned i = 0; i < n; i++) {
		p[i] = (struct peer){.b = b, .id = (int)i, .workers = n, .rounds = rounds};
		pthread_create(&p[i].thread, NULL, peer_main, &p[i]);
	}
}

static void
peers_join(struct peer *p, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		pthread_join(p[i].thread, NULL);
		if (p[i].rc != 0)
			printf("\n    worker %u: %s\n", i, p[i].err.text);
		CU_ASSERT_EQUAL(p[i].rc, 0);
	}
}

static void
test_shutdown_and_back(void)
{
	struct box_conf conf = {.workers = 1};
	struct box *b = box_start(&conf);
	struct pbox_client_stats st = {.size = sizeof(st)};
	float v[1000] = {4};
	struct pbox_client_io io = {0, v, v};
	struct pbox_client_hyper lr = {PBOX_HYPER_LR, 0.5};
	pbox_client_handle h;
	struct peer p;

	peers_start(b, &p, 1, 2);
	peers_join(&p, 1);
	box_shutdown(b);
	CU_ASSERT_EQUAL(harness_submit(p.c, PBOX_CLIENT_PUSHPULL, &io, 1, 0, &h, &err), 0);
	for (int ms = 300; ms < 100000; ms *= 4) { /* longer where this process gets no CPU */
		CU_ASSERT_EQUAL(pbox_client_wait(p.c, h, ms, &err), PBOX_C_DEADLINE);
		if (strstr(err.text, "does not answer yet") != NULL)
			break;
	}
	HAS("shut down");
	HAS("does not answer yet");
	CU_ASSERT_EQUAL(pbox_client_why(p.c, err.text, sizeof(err.text), NULL), 0);
	HAS("shut down");
	box_restart(b);
	CU_ASSERT_EQUAL(pbox_client_set(p.c, 0, PBOX_ALL_GROUPS, 0, &lr, 1, &err), 0);
	CU_ASSERT_EQUAL(pbox_client_wait(p.c, h, 120000, &err), 0);
	pbox_client_stats(p.c, &st);
	CU_ASSERT_EQUAL(st.restarts, 1);
	CU_ASSERT(st.restore_ms >= 300 && st.restore_ms < 200000);
	pbox_client_close(p.c);
	box_stop(b);
}

/* A worker's result after a box, or part of it, was silent that long: nothing was lost. Returns the HELLOs
 * that it sent meanwhile. */
static uint64_t
silent_for(int ms, void (*silence)(struct box *b, bool on))
{
	struct box_conf conf = {.workers = 1};
	struct box *b = box_start(&conf);
	struct pbox_client_stats st = {.size = sizeof(st)};
	float v[1000] = {4};
	struct pbox_client_io io = {0, v, v};
	pbox_client_handle h;
	uint64_t hellos;
	struct peer p;

	peers_start(b, &p, 1, 2);
	peers_join(&p, 1);
	hellos = box_counts(b).hellos;
	silence(b, true);
	harness_submit(p.c, PBOX_CLIENT_PUSHPULL, &io, 1, 0, &h, &err);
	CU_ASSERT_EQUAL(pbox_client_wait(p.c, h, ms, &err), PBOX_C_DEADLINE);
	hellos = box_counts(b).hellos - hellos;
	silence(b, false);
	CU_ASSERT_EQUAL(pbox_client_wait(p.c, h, 120000, &err), 0);
	pbox_client_stats(p.c, &st);
	CU_ASSERT_EQUAL(st.restarts, 0);
	pbox_client_close(p.c);
	box_stop(b);
	return hellos;
}

/* A box that was stopped for a while. */
static void
test_silence(void)
{
	silent_for(3500, box_silence);
	HAS("no answer from the box");
}

/* Its control endpoint answers PINGs, its data endpoints do not: joining is no answer to that. */
static void
test_data_silence(void)
{
	UNIT_EQ_U64(silent_for(5000, box_no_data), 0);
}

static void
test_layout_changed(void)
{
	struct box_conf conf = {.workers = 1, .chunk = 700, .endpoints = 1};
	struct box *b = box_start(&conf);
	float v[1000] = {4};
	struct pbox_client_io io = {0, v, v};
	struct peer p;

	peers_start(b, &p, 1, 2);
	peers_join(&p, 1);
	box_restart_chunk(b, 1400);
	CU_ASSERT_EQUAL(pbox_client_run(p.c, 0, PBOX_CLIENT_PUSHPULL, &io, 1, 1, 120000, &err),
		PBOX_C_MISMATCH);
	HAS("came back with another layout of table 0 (1 chunks, there were 2)");
	pbox_client_close(p.c);
	box_stop(b);
}

static void
test_names_whom_it_waits_for(void)
{
	struct box_conf conf = {.workers = 2};
	struct box *b = box_start(&conf);
	float v[1000] = {4};
	struct pbox_client_io io = {0, v, v};
	struct peer p[2];
	pbox_client_handle h;

	peers_start(b, p, 2, 2);
	peers_join(p, 2);
	pbox_client_close(p[1].c); /* and does not come back */
	box_restart(b);
	CU_ASSERT_EQUAL(harness_submit(p[0].c, PBOX_CLIENT_PUSHPULL, &io, 1, 0, &h, &err), 0);
	for (int ms = 1500; ms < 100000; ms *= 4) {
		CU_ASSERT_EQUAL(pbox_client_wait(p[0].c, h, ms, &err), PBOX_C_DEADLINE);
		if (strstr(err.text, "waiting for worker 1") != NULL)
			break;
	}
	HAS("was restarted");
	HAS("waiting for worker 1 to declare table 0 again (has not joined): start it");
	/* a new process in its place, at the round that it says: it gets what the first one gave */
	p[1] = (struct peer){.b = b, .id = 1, .workers = 2, .rounds = 1, .first_round = 3};
	pthread_create(&p[1].thread, NULL, peer_main, &p[1]);
	peers_join(&p[1], 1);
	CU_ASSERT_EQUAL(pbox_client_wait(p[0].c, h, 120000, &err), 0);
	CU_ASSERT_EQUAL(v[1], 1.0f); /* 0 + 1 */
	CU_ASSERT_EQUAL(p[1].last[0], 5.0f);
	pbox_client_close(p[0].c);
	pbox_client_close(p[1].c);
	box_stop(b);
}

/** As a process that is killed: the box hears nothing of it, and keeps its run. */
static void
die(struct box *b, struct pbox_client *c)
{
	box_silence(b, true);
	pbox_client_close(c);
	box_silence(b, false);
	box_silent_leases(b);
}

static void
test_first_round(void)
{
	struct box_conf conf = {.workers = 1};
	struct box *b = box_start(&conf);
	struct box_counts before;
	struct peer p;

	p = (struct peer){.b = b, .workers = 1, .rounds = 5, .first_round = 77};
	pthread_create(&p.thread, NULL, peer_main, &p); /* the job is new: rounds 1 to 5 */
	peers_join(&p, 1);
	CU_ASSERT_EQUAL(pbox_client_next_round(p.c, 0), 6);
	die(b, p.c);
	before = box_counts(b);
	/* its checkpoint is of round 4: round 5 is not computed once more */
	p = (struct peer){.b = b, .workers = 1, .rounds = 2, .first_round = 5};
	pthread_create(&p.thread, NULL, peer_main, &p);
	peers_join(&p, 1);
	CU_ASSERT_EQUAL(pbox_client_next_round(p.c, 0), 7);
	UNIT_EQ_U64(box_counts(b).rounds - before.rounds, 3); /* fragments of round 6 */
	die(b, p.c);
	for (unsigned round = 3; round <= 9; round += 6) {
		p = (struct peer){.b = b, .workers = 1, .first_round = round};
		CU_ASSERT_EQUAL(open_table(&p), PBOX_C_MISMATCH);
		err = p.err;
		HAS(round == 3 ? "is too old" : "is newer than");
		die(b, p.c);
	}
	box_stop(b);
}

static void
test_parameters_on_the_box(void)
{
	struct box_conf conf = {.workers = 1};
	struct box *b = box_start(&conf);
	struct pbox_client_hyper lr = {PBOX_HYPER_LR, 0.5}, lr2 = {PBOX_HYPER_LR, 0.25};
	struct pbox_client_hyper clip = {PBOX_HYPER_CLIP_VALUE, 100};
	struct peer p = {.b = b, .workers = 1, .mode = PBOX_MODE_OPTIMISER};
	float w[1000], g[1000];
	struct pbox_client_io init = {0, w, NULL}, step = {0, g, w};

	for (int i = 0; i < 1000; i++) {
		w[i] = (float)i;
		g[i] = 2;
	}
	CU_ASSERT_EQUAL(open_table(&p), 0);
	CU_ASSERT_EQUAL(pbox_client_set(p.c, 0, PBOX_ALL_GROUPS, 0, &clip, 1, &err), 0);
	CU_ASSERT_EQUAL(pbox_client_set(p.c, 0, 0, 0, &lr, 1, &err), 0);
	CU_ASSERT_EQUAL(pbox_client_run(p.c, 0, PBOX_CLIENT_INIT, &init, 1, 1, 0, &err), 0);
	box_restart(b); /* before the first pull: the parameters are what init sent */
	CU_ASSERT_EQUAL(
		pbox_client_run(p.c, 0, PBOX_CLIENT_PUSHPULL, &step, 1, 1, 120000, &err), 0);
	CU_ASSERT_EQUAL(w[7], 6.0f);
	box_restart(b);
	CU_ASSERT_EQUAL(
		pbox_client_run(p.c, 0, PBOX_CLIENT_PUSHPULL, &step, 1, 1, 120000, &err), 0);
	CU_ASSERT_EQUAL(w[7], 5.0f); /* with the lr that was set once */
	CU_ASSERT_EQUAL(pbox_client_set(p.c, 0, 0, 0, &lr2, 1, &err), 0);
	box_restart(b);
	CU_ASSERT_EQUAL(
		pbox_client_run(p.c, 0, PBOX_CLIENT_PUSHPULL, &step, 1, 1, 120000, &err), 0);
	CU_ASSERT_EQUAL(w[7], 4.5f);
	pbox_client_close(p.c);
	box_stop(b);
}

static void
test_push_alone_is_lost(void)
{
	struct box_conf conf = {.workers = 2};
	struct box *b = box_start(&conf);
	float v[1000] = {4};
	struct pbox_client_io io = {0, v, v};
	struct peer p[2];

	peers_start(b, p, 2, 2);
	peers_join(p, 2);
	CU_ASSERT_EQUAL(pbox_client_run(p[0].c, 0, PBOX_CLIENT_PUSH, &io, 1, 1, 120000, &err), 0);
	box_restart(b);
	CU_ASSERT_EQUAL(
		pbox_client_run(p[0].c, 0, PBOX_CLIENT_PULL, &io, 1, 1, 120000, &err), PBOX_C_LOST);
	HAS("round 3 of tensor 'fc.weight'");
	HAS("push it again");
	pbox_client_close(p[0].c);
	pbox_client_close(p[1].c);
	box_stop(b);
}

/* What is set for the next round after that holds in the round that is pushed again. */
static void
test_set_after_a_loss(void)
{
	struct box_conf conf = {.workers = 2};
	struct box *b = box_start(&conf);
	struct pbox_client_hyper lr = {PBOX_HYPER_LR, 0.5}, then = {PBOX_HYPER_LR, 0.125};
	float w[1000] = {0}, g[1000], out[2][1000];
	struct pbox_client_io init = {0, w, NULL}, push[2] = {{0, g, out[0]}, {0, g, out[1]}};
	pbox_client_handle handle[2];
	struct peer p[2];

	for (unsigned k = 0; k < 1000; k++)
		g[k] = 1;
	for (unsigned i = 0; i < 2; i++) {
		p[i] = (struct peer){
			.b = b, .id = (int)i, .workers = 2, .mode = PBOX_MODE_OPTIMISER};
		pthread_create(&p[i].thread, NULL, peer_main, &p[i]);
	}
	peers_join(p, 2);
	CU_ASSERT_EQUAL(pbox_client_run(p[0].c, 0, PBOX_CLIENT_INIT, &init, 1, 1, 0, &err), 0);
	CU_ASSERT_EQUAL(pbox_client_set(p[0].c, 0, PBOX_ALL_GROUPS, 0, &lr, 1, &err), 0);
	for (unsigned round = 1; round <= 2; round++) {
		for (unsigned i = 0; i < 2; i++)
			CU_ASSERT_EQUAL(harness_submit(p[i].c, PBOX_CLIENT_PUSHPULL, &push[i], 1, 0,
						&handle[i], &err),
				0);
		for (unsigned i = 0; i < 2; i++)
			CU_ASSERT_EQUAL(pbox_client_wait(p[i].c, handle[i], 0, &err), 0);
		for (unsigned i = 0; i < 2; i++)
			CU_ASSERT_EQUAL(out[i][999], round == 1 ? -1 : -1.25);
		if (round == 2)
			break;
		CU_ASSERT_EQUAL(
			pbox_client_run(p[0].c, 0, PBOX_CLIENT_PUSH, push, 1, 1, 0, &err), 0);
		UNIT_EQ_U64(pbox_client_next_round(p[0].c, 0), 3);
		box_restart(b);
		CU_ASSERT_EQUAL(
			pbox_client_run(p[0].c, 0, PBOX_CLIENT_PULL, push, 1, 1, 120000, &err),
			PBOX_C_LOST);
		UNIT_EQ_U64(pbox_client_next_round(p[0].c, 0), 2);
		CU_ASSERT_EQUAL(pbox_client_set(p[0].c, 0, PBOX_ALL_GROUPS, 0, &then, 1, &err), 0);
	}
	for (unsigned i = 0; i < 2; i++) {
		UNIT_EQ_U64(pbox_client_next_round(p[i].c, 0), 3);
		pbox_client_close(p[i].c);
	}
	box_stop(b);
}

static void
test_nobody_has_it(void)
{
	struct box_conf conf = {.workers = 2};
	struct box *b = box_start(&conf);
	float v[1000] = {4};
	struct pbox_client_io io = {0, v, v};
	struct peer p[2];

	/* worker 0 holds round 2, and worker 1 of it only that it has been: by a push alone */
	peers_start(b, p, 2, 2);
	peers_join(p, 2);
	for (unsigned i = 0; i < 2; i++)
		CU_ASSERT_EQUAL(
			pbox_client_run(p[i].c, 0, PBOX_CLIENT_PUSH, &io, 1, 1, 120000, &err), 0);
	for (unsigned i = 0; i < 2; i++)
		CU_ASSERT_EQUAL(
			pbox_client_run(p[i].c, 0, PBOX_CLIENT_PUSH, &io, 1, 1, 120000, &err), 0);
	pbox_client_close(p[1].c);
	box_restart(b);
	p[1] = (struct peer){.b = b, .id = 1, .workers = 2};
	pthread_create(&p[1].thread, NULL, peer_main, &p[1]);
	CU_ASSERT_EQUAL(
		pbox_client_run(p[0].c, 0, PBOX_CLIENT_PULL, &io, 1, 1, 120000, &err), PBOX_C_LOST);
	HAS("no worker could give it round 3 of tensor 'fc.weight' back");
	pbox_client_close(p[0].c);
	pthread_join(p[1].thread, NULL);
	CU_ASSERT_EQUAL(p[1].rc, PBOX_C_LOST);
	pbox_client_close(p[1].c);
	box_stop(b);
}

const struct unit_test unit_tests[] = {
	{"between rounds, and before the first", test_between_rounds},
	{"twice in a row", test_twice},
	{"while rejoining", test_while_rejoining},
	{"with full windows", test_windows_full},
	{"endpoints with other ports", test_other_endpoints},
	{"in mid-round, often", test_in_mid_round},
	{"formats, tables, ops", test_formats_tables_ops},
	{"with 10 % loss", test_with_loss},
	{"forged ERROR SESSION", test_forged},
	{"sessions end, the box goes on", test_session_ended},
	{"shutdown, and back", test_shutdown_and_back},
	{"a box that is silent for a while", test_silence},
	{"data endpoints that are silent for a while", test_data_silence},
	{"another layout", test_layout_changed},
	{"names whom it waits for", test_names_whom_it_waits_for},
	{"a worker goes on from its checkpoint", test_first_round},
	{"parameters on the box, SETs", test_parameters_on_the_box},
	{"a push without pull is lost", test_push_alone_is_lost},
	{"what is set after that", test_set_after_a_loss},
	{"what nobody has", test_nobody_has_it},
	{NULL, NULL},
};
