/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* What a table begins with is what the snapshot was taken of: parameters, state, and all that holds
 * for the rounds to come. */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "snapshot.h"
#include "unit.h"

const char unit_suite[] = "control: restore";

#define ELEMENTS 1000
#define ARRAYS   3
#define FRAGS    64
#define ROUND    10

static const struct pbox_tensor tensors[] = {
	{.elements = ELEMENTS - 100, .name = "w"}, {.elements = 100, .name = "b", .group = 1}};
static const struct pbox_place place[1];

/* A table of a job, without shards. */
struct side {
	struct pbox_table t;
	struct pbox_table_parts of;
	struct pbox_arena *arena[PBOX_MAX_NODES];
	uint64_t load[1];
	uint8_t region[1u << 20] __attribute__((aligned(PBOX_CACHE_LINE)));
};
static struct side before, after;
static char dir[64];

static void
side_new(struct side *s)
{
	struct pbox_error err;

	memset(s, 0, sizeof(*s));
	s->of = (struct pbox_table_parts){
		.name = "j1", .workers = 2, .t = &s->t, .tensor = tensors, .n_tensors = 2};
	s->t = (struct pbox_table){
		.mode = PBOX_MODE_OPTIMISER,
		.op = PBOX_OP_MEAN,
		.optimiser = PBOX_OPT_ADAM,
		.push_format = PBOX_FMT_FP32,
		.pull_format = PBOX_FMT_FP32,
		.frag_elements = 64,
		.init_elements = 64,
	};
	s->arena[0] = pbox_arena_create(s->region, sizeof(s->region));
	CU_ASSERT_EQUAL_FATAL(pbox_table_build(&s->t, tensors, 2, 256, place, 1, s->arena, s->load,
				      SIZE_MAX, &err),
		0);
}

static void
side_free(struct side *s)
{
	pbox_table_release(&s->t, s->load);
	pbox_arena_destroy(s->arena[0]);
}

static void
begin(void)
{
	snprintf(dir, sizeof(dir), "/tmp/pbox-restore-XXXXXX");
	CU_ASSERT_FATAL(mkdtemp(dir) != NULL);
	side_new(&before);
	side_new(&after);
}

static void
end(void)
{
	DIR *d = opendir(dir);
	struct dirent *e;

	side_free(&before);
	side_free(&after);
	while (d != NULL && (e = readdir(d)) != NULL)
		unlinkat(dirfd(d), e->d_name, 0);
	if (d != NULL)
		closedir(d);
	rmdir(dir);
}

static void
set(unsigned group, uint32_t from, uint16_t id, double value)
{
	const struct pbox_finished done = {.highest = from - 1, .lowest = from - 1, .known = true};
	struct pbox_set m = {
		.group = (uint16_t)group, .count = 1, .from_round = from, .param = {{id, value}}};
	struct pbox_error err;

	UNIT_EQ_U64(
		pbox_schedule_add(&before.t.schedule[group], PBOX_OPT_ADAM, &m, &done, &err), 0);
}

/* A snapshot of the one table. */
static void
write_it(void)
{
	struct pbox_staging_fragment frag[FRAGS];
	struct pbox_staging staging = {
		.round = ROUND, .arrays = ARRAYS, .elements = ELEMENTS, .fragment = frag};
	struct pbox_snapshot_written written;
	struct pbox_snapshot_meta m;
	struct pbox_error err = {0, ""};
	struct snapshot_described at = {0};
	float *data = malloc(ARRAYS * ELEMENTS * sizeof(*data));

	CU_ASSERT_FATAL(data != NULL);
	for (unsigned i = 0; i < ARRAYS * ELEMENTS; i++)
		data[i] = (float)i;
	for (unsigned i = 0; i < FRAGS; i++)
		frag[i] = (struct pbox_staging_fragment){ROUND, 2, 2, true};
	for (uint32_t i = 0; i < before.t.n_chunks; i++)
		staging.n_fragments += before.t.chunk[i].fragments;
	CU_ASSERT_EQUAL_FATAL(snapshot_describe(&m, &before.of, &staging, 7), 0);
	while (!snapshot_describe_more(&m, &before.of, &at))
		;
	snapshot_describe_copy(&m, &staging);
	{
		const struct pbox_snapshot_write w = {.dir = dir,
			.meta = &m,
			.data = (uint8_t *)data,
			.stripe_data = 4,
			.stripe_parity = 1};

		CU_ASSERT_EQUAL_FATAL(pbox_snapshot_write(&w, &written, &err), 0);
	}
	pbox_snapshot_meta_free(&m);
	free(data);
}

/* Take the snapshot of one table, and let the other begin with it. */
static void
take_and_restore(void)
{
	struct snapshot_load load = {.of = after.of, .wished = true};

	write_it();
	snapshot_load(dir, &load);
	CU_ASSERT_EQUAL_FATAL(load.ret, 0);
	UNIT_EQ_U64(load.round, ROUND);
}

static void
arrays_and_versions(void)
{
	const struct pbox_table *t = &after.t;
	unsigned at = 0;

	begin();
	take_and_restore();
	for (uint32_t i = 0; i < t->n_chunks; i++) {
		const struct pbox_chunk *c = &t->chunk[i];

		for (uint32_t k = 0; k < c->elements; k++, at++)
			CU_ASSERT(c->param[k] == (float)at && c->s0[k] == (float)(at + ELEMENTS) &&
				  c->s1[k] == (float)(at + 2 * ELEMENTS));
		for (unsigned f = 0; f < c->fragments; f++)
			CU_ASSERT(c->fragment[f].version == ROUND && c->fragment[f].has_result);
	}
	UNIT_EQ_U64(at, ELEMENTS);
	end();
}

/* How a table begins whose workers go on in run @p run after a restart of the box. */
static int
restore_run(uint64_t run, bool told)
{
	struct snapshot_load load = {.of = after.of, .restoring = true};

	load.of.run = run;
	load.of.run_reported = told;
	snapshot_load(dir, &load);
	return load.ret;
}

/* State of one run is not added to parameters of another, whichever is younger. */
static void
of_its_run(void)
{
	begin();
	before.of.run = 50;
	write_it();
	CU_ASSERT_EQUAL(restore_run(49, true), -ENOENT);
	CU_ASSERT_EQUAL(restore_run(51, true), -ENOENT);
	CU_ASSERT_EQUAL(restore_run(50, true), 0);
	/* a worker that does not name its run, a file of a box that wrote none */
	CU_ASSERT_EQUAL(restore_run(51, false), 0);
	before.of.run = 0;
	write_it();
	CU_ASSERT_EQUAL(restore_run(51, true), 0);
	end();
}

static bool
same(const struct pbox_hyper *a, const struct pbox_hyper *b)
{
	return a->lr == b->lr && a->momentum == b->momentum && a->dampening == b->dampening &&
	       a->weight_decay == b->weight_decay && a->beta1 == b->beta1 && a->beta2 == b->beta2 &&
	       a->eps == b->eps && a->clip_value == b->clip_value && a->steps == b->steps &&
	       a->maximize == b->maximize && a->plain == b->plain && a->has_lr == b->has_lr;
}

/* Each hyper-parameter by itself, from a round of its own on; a group without any SET has defaults. */
static void
hyper_parameters(void)
{
	struct pbox_schedule *s;

	begin();
	for (uint16_t id = 1; id < PBOX_HYPER_IDS; id++)
		if (pbox_hyper_name(id)[0] != '?')
			set(1, ROUND - 4 + id, id,
				id == PBOX_HYPER_STEPS                                ? 5000
				: id == PBOX_HYPER_MAXIMIZE || id == PBOX_HYPER_PLAIN ? 1
										      : 0.01 * id);
	take_and_restore();
	for (unsigned g = 0; g < 2; g++) {
		s = &after.t.schedule[g];
		UNIT_EQ_U64(s->count, before.t.schedule[g].count);
		for (uint32_t round = 1; round < ROUND + 20; round++)
			CU_ASSERT(same(pbox_schedule_at(s, round),
				pbox_schedule_at(&before.t.schedule[g], round)));
		CU_ASSERT_TRUE(pbox_schedule_at(s, ROUND + 1)->has_lr);
		for (uint32_t i = 0; i < s->count; i++)
			UNIT_EQ_U64(s->entry[i].set, before.t.schedule[g].entry[i].set);
	}
	end();
}

/* After a restart of the box workers repeat their SETs, and who is gone repeats none: its values hold as they did, and
 * give way to theirs. */
static void
hyper_parameters_of_the_gone(void)
{
	struct snapshot_load load = {.restoring = true};
	struct pbox_set m = {
		.group = 1, .count = 1, .from_round = 1, .param = {{PBOX_HYPER_LR, 0.5}}};
	struct pbox_schedule *s;
	struct pbox_error err;

	begin();
	s = &after.t.schedule[1];
	load.of = after.of;
	set(1, 1, PBOX_HYPER_LR, 0.25);
	set(1, 2, PBOX_HYPER_BETA1, 0.5);
	set(1, ROUND + 1, PBOX_HYPER_BETA2, 0.75);
	set(1, ROUND + 2, PBOX_HYPER_BETA2, 0.875);
	write_it();
	snapshot_load(dir, &load);
	CU_ASSERT_EQUAL_FATAL(load.ret, 0);
	UNIT_EQ_U64(s->count, 1);
	UNIT_EQ_U64(s->entry[0].set, 0);
	UNIT_EQ_U64(s->entry[0].from_round, 0);
	for (uint32_t round = ROUND; round < ROUND + 3; round++)
		CU_ASSERT(same(pbox_schedule_at(s, round),
			pbox_schedule_at(&before.t.schedule[1], ROUND + 1)));
	CU_ASSERT(same(pbox_schedule_at(&after.t.schedule[0], ROUND + 1),
		pbox_schedule_at(&before.t.schedule[0], ROUND + 1)));
	UNIT_EQ_U64(pbox_schedule_restore(s, PBOX_OPT_ADAM, &m, &err), 0);
	CU_ASSERT(pbox_schedule_at(s, ROUND)->lr == 0.5);
	CU_ASSERT(pbox_schedule_at(s, ROUND)->beta1 == 0.5);
	end();
}

/* The control thread does it, and others wait. */
static void
described_in_slices(void)
{
	struct pbox_snapshot_meta m = {.n_tensors = 20001, .n_chunks = 10000, .n_segments = 20000};
	struct pbox_tensor *many = calloc(m.n_tensors, sizeof(*many));
	struct pbox_table t = {.n_chunks = m.n_chunks};
	struct pbox_table_parts of = {.t = &t, .tensor = many};
	struct snapshot_described at = {0};
	uint32_t before_it = 0, segments = 0;
	unsigned calls = 0;
	bool done = false;

	t.layout.chunk = calloc(m.n_chunks, sizeof(*t.layout.chunk));
	t.layout.segment = calloc(m.n_segments, sizeof(*t.layout.segment));
	CU_ASSERT_FATAL(many != NULL && t.layout.chunk != NULL && t.layout.segment != NULL &&
			pbox_snapshot_meta_alloc(&m) == 0);
	for (uint32_t i = 0; i < m.n_tensors; i++)
		many[i] = (struct pbox_tensor){.elements = i + 1, .name = "t"};
	for (uint32_t i = 0; i < m.n_chunks; i++)
		t.layout.chunk[i] = (struct pbox_layout_chunk){
			.elements = i + 1, .first_segment = 2 * i, .segments = 2};
	for (uint32_t i = 0; i < m.n_segments; i++)
		t.layout.segment[i].tensor = i;
	while (!done && calls++ < 100) {
		done = snapshot_describe_more(&m, &of, &at);
		CU_ASSERT(at.at - before_it <= 4096);
		CU_ASSERT(at.segments - segments <= 4096);
		before_it = at.at;
		segments = at.segments;
	}
	CU_ASSERT(done);
	UNIT_EQ_U64(at.at, 30001);
	UNIT_EQ_U64(at.chunks, 10000);
	UNIT_EQ_U64(at.segments, 20000);
	UNIT_EQ_U64(m.tensor[20000].elements, 20001);
	CU_ASSERT_STRING_EQUAL(m.tensor[4097].name, "t");
	UNIT_EQ_U64(m.chunk[9999].elements, 10000);
	UNIT_EQ_U64(m.chunk[9999].first_segment, 19998);
	UNIT_EQ_U64(m.segment[19999].tensor, 19999);
	pbox_snapshot_meta_free(&m);
	free(t.layout.chunk);
	free(t.layout.segment);
	free(many);
}

/* What another run of the job has written at the same round is not what this one has. */
static void
another_run(void)
{
	static struct snapshots s;
	struct pbox_job_view j = {.name = "j1", .begun_ns = 100};
	struct pbox_table_view v = {.chunks = 1};
	struct snapshot_result *x;

	CU_ASSERT_FALSE(snapshot_moved(&s, &j, 0, &v));
	v.version = ROUND;
	CU_ASSERT_TRUE(snapshot_moved(&s, &j, 0, &v));
	x = snapshot_result(&s, "j1", 0);
	CU_ASSERT_TRUE(snapshot_moved(&s, &j, 0, &v)); /* one has failed */
	x->begun_ns = 100;
	x->at_ns = 1;
	x->round = ROUND;
	CU_ASSERT_FALSE(snapshot_moved(&s, &j, 0, &v));
	v.version = ROUND + 1;
	CU_ASSERT_TRUE(snapshot_moved(&s, &j, 0, &v));
	v.version = ROUND;
	j.begun_ns = 200;
	CU_ASSERT_TRUE(snapshot_moved(&s, &j, 0, &v));
}

const struct unit_test unit_tests[] = {
	{"state of its own run alone", of_its_run},
	{"arrays and versions", arrays_and_versions},
	{"hyper-parameters", hyper_parameters},
	{"hyper-parameters of who is gone", hyper_parameters_of_the_gone},
	{"described in slices", described_in_slices},
	{"another run at the same round", another_run},
	{0},
};
