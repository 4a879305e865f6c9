/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Copies of a table taken while rounds go on (pbox_staging.h), and a table that begins with one. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"

const char unit_suite[] = "engine: copies of a table";

#define WORKERS  3
#define ELEMENTS (352 * 60 + 100)
#define ROUNDS   40
#define FRAGS    64

static struct fx_worker w[WORKERS];
static struct pbox_random rnd;
static float history[ROUNDS + 1][3][ELEMENTS + 64]; /* what was there, by round */
static struct pbox_staging staging;
static uint8_t memory[1 << 19] __attribute__((aligned(64)));
static const struct fx_table adam = {.elements = ELEMENTS,
	.mode = PBOX_MODE_OPTIMISER,
	.op = PBOX_OP_MEAN,
	.optimiser = PBOX_OPT_ADAM};

static struct pbox_table *
table(void)
{
	return &pbox_registrar_job(fx.registrar, 0)->table[0]->t;
}

static const struct pbox_job *
job(void)
{
	return pbox_registrar_job(fx.registrar, 0);
}

/* First element of a chunk's copy. */
static size_t
first_of(uint32_t chunk)
{
	size_t n = 0;

	for (uint32_t i = 0; i < chunk; i++)
		n += table()->chunk[i].elements;
	return n;
}

static void
note(uint32_t chunk, uint16_t frag, uint32_t round)
{
	const struct pbox_table *t = table();
	const struct pbox_chunk *c = &t->chunk[chunk];
	size_t in = (size_t)frag * t->frag_elements, n = pbox_chunk_frag_elements(t, c, frag);
	const float *state[] = {c->s0, c->s1};

	memcpy(&history[round][0][first_of(chunk) + in], pbox_chunk_frag_param(t, c, frag), n * 4);
	for (unsigned a = 1; a < 3 && state[a - 1] != NULL; a++)
		memcpy(&history[round][a][first_of(chunk) + in], state[a - 1] + in, n * 4);
}

static void
contribute(unsigned worker, uint32_t chunk, uint16_t frag, uint32_t round)
{
	const struct pbox_table *t = table();
	const struct pbox_chunk *c = &t->chunk[chunk];
	uint32_t n = pbox_chunk_frag_elements(t, c, frag);
	struct pbox_hdr h = fx_data(&w[worker], PBOX_PUSHPULL, chunk, frag, round);
	static float kept[WORKERS * FRAGS * 16]
			 [452]; /* payloads that are held stay where they are */
	float *v = kept[(worker * FRAGS + chunk) * 2 + frag];

	for (uint32_t i = 0; i < n; i++)
		v[i] = (float)((worker + 1) * round + chunk) / (float)(i + 1) - 1;
	h.format = PBOX_FMT_FP32;
	h.length = (uint16_t)(n * 4);
	h.weight = worker + 1;
	fx_rx(c->endpoint, &w[worker], &h, v);
}

/* A fragment goes one round further. */
static void
advance(uint32_t chunk, uint16_t frag)
{
	uint32_t round = table()->chunk[chunk].fragment[frag].version + 1;

	for (unsigned i = 0; i < WORKERS; i++)
		contribute((i + round) % WORKERS, chunk, frag, round);
	UNIT_EQ_U64(table()->chunk[chunk].fragment[frag].version, round);
	note(chunk, frag, round);
	fx_clear();
}

static void
initialise(void)
{
	const struct pbox_table *t = table();
	float v[452];

	for (uint32_t i = 0; i < t->n_chunks; i++)
		for (uint16_t f = 0; f < t->chunk[i].fragments; f++) {
			uint32_t n = pbox_chunk_frag_elements(t, &t->chunk[i], f);
			struct pbox_hdr h = fx_data(&w[0], PBOX_INIT, i, f, 0);

			for (uint32_t k = 0; k < n; k++)
				v[k] = (float)(i * 100 + k) * 0.01f;
			h.format = PBOX_FMT_FP32;
			h.length = (uint16_t)(n * 4);
			fx_rx(t->chunk[i].endpoint, &w[0], &h, v);
		}
	fx_clear();
}

static void
begin(const struct fx_table *t)
{
	fx_begin();
	fx_job(w, "vision", WORKERS, t);
	if (t->mode == PBOX_MODE_OPTIMISER) {
		initialise();
		fx_set(&w[0], 0, 1, PBOX_HYPER_LR, 0.01);
	}
	CU_ASSERT(table()->n_chunks >= 8);
}

/* Some fragment goes on that is not more than a round ahead of the last one. */
static void
advance_any(void)
{
	struct pbox_table *t = table();
	uint32_t low = UINT32_MAX, chunk, v;
	uint16_t frag;

	for (uint32_t i = 0; i < t->n_chunks; i++)
		for (uint16_t f = 0; f < t->chunk[i].fragments; f++)
			if (t->chunk[i].fragment[f].version < low)
				low = t->chunk[i].fragment[f].version;
	do {
		chunk = (uint32_t)pbox_random_below(&rnd, t->n_chunks);
		frag = (uint16_t)pbox_random_below(&rnd, t->chunk[chunk].fragments);
		v = t->chunk[chunk].fragment[frag].version;
	} while (v > low);
	if (v < ROUNDS)
		advance(chunk, frag);
}

static void
check_copy(void)
{
	CU_ASSERT_FATAL(staging.round <= ROUNDS);
	for (uint32_t i = 0; i < staging.n_fragments; i++) {
		CU_ASSERT(staging.fragment[i].copied);
		UNIT_EQ_U64(staging.fragment[i].version, staging.round);
		UNIT_EQ_U64(staging.fragment[i].contributors, WORKERS);
		UNIT_EQ_U64(staging.fragment[i].samples, 1 + 2 + 3);
	}
	for (unsigned a = 0; a < staging.arrays; a++)
		CU_ASSERT_EQUAL(memcmp(staging.array[a], history[staging.round][a],
					staging.elements * sizeof(float)),
			0);
}

/* Mails travel while rounds go on, in any order. */
static int
take(uint32_t ahead, unsigned per_step)
{
	struct pbox_error err;
	int ret = pbox_registrar_staging(
		fx.registrar, job(), 0, ahead, &staging, memory, sizeof(memory), fx.now, &err);

	if (ret != 0)
		fprintf(stderr, "%s\n", err.text);
	CU_ASSERT_FATAL(ret == 0);
	while ((ret = pbox_registrar_staging_step(fx.registrar, fx.now)) == -EINPROGRESS) {
		for (unsigned i = 0; i < per_step; i++)
			advance_any();
		if (pbox_random_below(&rnd, 3) == 0)
			fx_mail();
		fx.now += 3000000;
		if (per_step == 0)
			fx_mail();
	}
	return ret;
}

static void
test_while_rounds_go_on(void)
{
	unsigned good = 0, missed = 0;

	for (unsigned seed = 0; seed < 60; seed++) {
		pbox_random_seed(&rnd, seed);
		begin(&adam);
		for (unsigned i = 0; i < 200 + 37 * seed % 200; i++)
			advance_any();
		fx.hold_mail = true;
		int ret = take(seed % 3, 1 + seed % 4);

		CU_ASSERT(ret == 0 || ret == -ESTALE);
		if (ret == 0)
			check_copy();
		good += ret == 0;
		missed += ret != 0;
		fx.hold_mail = false;
		fx_mail();
		fx_end();
	}
	/* both ways were gone */
	CU_ASSERT(good > 30);
	CU_ASSERT(missed > 0);
}

static void
test_of_a_table_at_rest(void)
{
	begin(&adam);
	pbox_random_seed(&rnd, 1);
	for (uint32_t i = 0; i < 350; i++)
		advance_any();
	while (table()->chunk[0].fragment[0].version != table()->chunk[1].fragment[0].version)
		advance_any();
	/* some are a round behind: they come, and nothing else does */
	UNIT_EQ_U64(take(0, 1), 0);
	check_copy();
	fx_end();
}

static void
test_of_all_reduce(void)
{
	struct fx_table t = {.elements = ELEMENTS, .op = PBOX_OP_SUM};

	begin(&t);
	pbox_random_seed(&rnd, 2);
	for (unsigned i = 0; i < 175; i++)
		advance_any();
	UNIT_EQ_U64(take(1, 2), 0);
	UNIT_EQ_U64(staging.arrays, 1);
	check_copy();
	fx_end();
}

static void
test_refusals(void)
{
	struct pbox_error err = {0};

	begin(&adam);
	UNIT_EQ_U64(pbox_registrar_staging(fx.registrar, job(), 0, 0, &staging, memory,
			    sizeof(memory), fx.now, &err),
		(unsigned long long)-EAGAIN);
	advance(0, 0);
	UNIT_EQ_U64(pbox_registrar_staging(
			    fx.registrar, job(), 0, 0, &staging, memory, 1000, fx.now, &err),
		(unsigned long long)-ENOMEM);
	CU_ASSERT(strstr(err.text, "snapshot-memory") != NULL);
	UNIT_EQ_U64(pbox_registrar_staging(fx.registrar, job(), 1, 0, &staging, memory,
			    sizeof(memory), fx.now, &err),
		(unsigned long long)-ENOENT);
	fx_end();
}

/* Shards do not touch the memory any more when it is given back. */
static void
test_cancelled(void)
{
	struct pbox_error err;

	begin(&adam);
	advance(0, 0);
	UNIT_EQ_U64(pbox_registrar_staging(fx.registrar, job(), 0, 5, &staging, memory,
			    sizeof(memory), fx.now, &err),
		0);
	UNIT_EQ_U64(pbox_registrar_staging_step(fx.registrar, fx.now),
		(unsigned long long)-EINPROGRESS);
	fx.hold_mail = true;
	fx.now += 10000000;
	pbox_registrar_staging_step(fx.registrar, fx.now);
	pbox_registrar_staging_cancel(fx.registrar, fx.now);
	UNIT_EQ_U64(pbox_registrar_staging_step(fx.registrar, fx.now),
		(unsigned long long)-EINPROGRESS);
	fx.hold_mail = false;
	fx_mail();
	UNIT_EQ_U64(
		pbox_registrar_staging_step(fx.registrar, fx.now), (unsigned long long)-ETIMEDOUT);
	memset(memory, 0x77, sizeof(memory));
	for (unsigned i = 0; i < 8; i++)
		advance(0, 0);
	for (size_t i = 0; i < sizeof(memory); i++)
		CU_ASSERT_FATAL(memory[i] == 0x77);
	fx_end();
}

static void
test_job_ends_meanwhile(void)
{
	struct pbox_error err;

	begin(&adam);
	advance(0, 0);
	fx.hold_mail = true;
	UNIT_EQ_U64(pbox_registrar_staging(fx.registrar, job(), 0, 5, &staging, memory,
			    sizeof(memory), fx.now, &err),
		0);
	pbox_registrar_close(fx.registrar, fx.now);
	UNIT_EQ_U64(pbox_registrar_staging_step(fx.registrar, fx.now),
		(unsigned long long)-EINPROGRESS);
	fx.hold_mail = false;
	fx_mail();
	UNIT_EQ_U64(pbox_registrar_jobs(fx.registrar), 0);
	UNIT_EQ_U64(
		pbox_registrar_staging_step(fx.registrar, fx.now), (unsigned long long)-ECANCELED);
	fx_end();
}

static int
from_staging(const struct pbox_job *j, struct pbox_table *t, bool restoring)
{
	(void)j;
	CU_ASSERT_FALSE(restoring);
	for (uint32_t i = 0; i < t->n_chunks; i++) {
		struct pbox_chunk *c = &t->chunk[i];
		float *to[] = {c->param, c->s0, c->s1};

		for (unsigned a = 0; a < staging.arrays; a++)
			memcpy(to[a], staging.array[a] + staging.chunk[i].element, c->elements * 4);
		for (unsigned f = 0; f < c->fragments; f++) {
			c->fragment[f].version = staging.round;
			c->fragment[f].samples = 6;
			c->fragment[f].contributors = WORKERS;
			c->fragment[f].has_result = 1;
			c->fragment[f].payload_crc = pbox_crc32c(0, c->param + f * t->frag_elements,
				pbox_chunk_frag_elements(t, c, f) * 4);
		}
	}
	return 0;
}

/* A table that begins with a copy goes on as the one that it is of: the same bits. */
static void
test_goes_on_alike(void)
{
	static float undisturbed[3][ELEMENTS + 64];
	uint32_t at;

	begin(&adam);
	pbox_random_seed(&rnd, 9);
	for (unsigned i = 0; i < 400; i++)
		advance_any();
	UNIT_EQ_U64(take(1, 1), 0);
	at = staging.round;
	for (uint32_t i = 0; i < table()->n_chunks; i++)
		for (uint16_t f = 0; f < table()->chunk[i].fragments; f++)
			while (table()->chunk[i].fragment[f].version < at + 5)
				advance(i, f);
	memcpy(undisturbed, history[at + 5], sizeof(undisturbed));
	fx_end();
	memset(history, 0, sizeof(history));
	fx_begin();
	fx.restore = from_staging;
	fx_job(w, "vision", WORKERS, &adam);
	fx.restore = NULL;
	/* rounds of the past are finished: hyper-parameters are for those to come */
	fx_set(&w[0], 0, at, PBOX_HYPER_LR, 0.01);
	UNIT_EQ_U64(fx_error(), PBOX_E_SET_LATE);
	fx_set(&w[0], 0, at + 1, PBOX_HYPER_LR, 0.01);
	UNIT_EQ_U64(fx_last()->hdr.type, PBOX_SET_OK);
	for (uint32_t i = 0; i < table()->n_chunks; i++)
		for (uint16_t f = 0; f < table()->chunk[i].fragments; f++)
			while (table()->chunk[i].fragment[f].version < at + 5)
				advance(i, f);
	CU_ASSERT_EQUAL(memcmp(undisturbed, history[at + 5], sizeof(undisturbed)), 0);
	fx_end();
}

static int
all_have_it(const struct pbox_job *j, struct pbox_table *t, bool restoring)
{
	(void)j;
	(void)restoring;
	for (uint32_t i = 0; i < t->n_chunks; i++)
		for (unsigned f = 0; f < t->chunk[i].fragments; f++)
			t->chunk[i].fragment[f].version = 5;
	return 0;
}

/* All-reduce after a restart of the box: all workers hold the version, and the box nothing. There is no such
 * copy, which is said at once; the one of the next round is whole. */
static void
test_without_a_result(void)
{
	struct fx_table t = {.elements = ELEMENTS, .op = PBOX_OP_SUM};

	for (unsigned n = 0; n < 2; n++) {
		struct pbox_error err;
		unsigned steps = 0;
		int ret;

		fx_begin();
		fx.restore = all_have_it;
		fx_job(w, "vision", WORKERS, &t);
		fx.restore = NULL;
		fx.hold_mail = true;
		UNIT_EQ_U64(pbox_registrar_staging(fx.registrar, job(), 0, 0, &staging, memory,
				    sizeof(memory), fx.now, &err),
			0);
		if (n == 1) /* some go on before they are looked at */
			advance(0, 0);
		fx.hold_mail = false;
		fx_mail();
		while ((ret = pbox_registrar_staging_step(fx.registrar, fx.now)) == -EINPROGRESS &&
			++steps < 100)
			fx.now += 3000000;
		CU_ASSERT_EQUAL(ret, -ESTALE);
		if (ret == -EINPROGRESS) {
			pbox_registrar_staging_cancel(fx.registrar, fx.now);
			while (pbox_registrar_staging_step(fx.registrar, fx.now) == -EINPROGRESS)
				fx.now += 3000000;
		}
		fx_end();
	}
}

static void
test_tensors_apart(void)
{
	begin(&adam);
	for (unsigned i = 0; i < 20; i++)
		advance(0, 0);
	advance(1, 0);
	UNIT_EQ_U64(take(0, 0), (unsigned long long)-EAGAIN);
	CU_ASSERT(strstr(pbox_registrar_staging_why(fx.registrar),
			  "the tensors of table 0 are at different rounds (one is at ") != NULL);
	CU_ASSERT(strstr(pbox_registrar_staging_why(fx.registrar), "another at 20") != NULL);
	fx_end();
}

const struct unit_test unit_tests[] = {
	{"a copy is of one round, whatever goes on", test_while_rounds_go_on},
	{"of a table that waits", test_of_a_table_at_rest},
	{"of all-reduce", test_of_all_reduce},
	{"what cannot be copied is said", test_refusals},
	{"cancelled: the memory is let go of", test_cancelled},
	{"the job ends meanwhile", test_job_ends_meanwhile},
	{"a table that begins with a copy goes on alike", test_goes_on_alike},
	{"all have the version, and the box no result", test_without_a_result},
	{"tensors at different rounds", test_tensors_apart},
	{0},
};
