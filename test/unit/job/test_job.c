/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <pbox_job.h>

#include "unit.h"

const char unit_suite[] = "job: members and declarations";

static struct pbox_error err;

static struct pbox_declare
fixed(uint32_t tensors)
{
	return (struct pbox_declare){
		.table = 3,
		.tensors = tensors,
		.mode = PBOX_MODE_ALLREDUCE,
		.op = PBOX_OP_MEAN,
		.push_format = PBOX_FMT_BF16,
		.pull_format = PBOX_FMT_FP32,
	};
}

static struct pbox_tensor_entry
entry(const char *name, uint64_t elements, uint16_t group)
{
	struct pbox_tensor_entry e = {.elements = elements, .group = group};

	snprintf(e.name, sizeof(e.name), "%s", name);
	return e;
}

static void
test_joined_counts_sessions(void)
{
	static const struct pbox_job_conf conf = {.name = "j"};
	struct pbox_job *job = pbox_job_create(7, "job", &conf, 5);

	CU_ASSERT_PTR_NOT_NULL_FATAL(job);
	UNIT_EQ_U64(job->id, 7);
	CU_ASSERT_STRING_EQUAL(job->name, "job");
	UNIT_EQ_U64(pbox_job_joined(job), 0);
	job->member[0].state = PBOX_MEMBER_JOINED;
	job->member[1].state = PBOX_MEMBER_SILENT;
	job->member[2].state = PBOX_MEMBER_LEFT;
	UNIT_EQ_U64(pbox_job_joined(job), 2);
	pbox_job_free(job);
	pbox_job_free(NULL);
}

/* A table of a job of so many workers and so much memory; 0: all. */
static struct pbox_job_table *
begin(const struct pbox_declare *m, uint16_t workers, uint64_t memory)
{
	const struct pbox_job_conf conf = {.name = "j", .bounds.memory = memory};
	struct pbox_job *job = pbox_job_create(7, "job", &conf, workers);

	CU_ASSERT_PTR_NOT_NULL_FATAL(job);
	return pbox_job_table_create(job, m, &err);
}

/* All that was charged is given back. */
static void
end(struct pbox_job_table *jt)
{
	static const struct pbox_job_conf conf = {.name = "j"};
	struct pbox_job *job = jt->job, *empty = pbox_job_create(7, "job", &conf, job->workers);

	pbox_job_table_free(jt);
	CU_ASSERT_PTR_NOT_NULL_FATAL(empty);
	UNIT_EQ_U64(job->heap, empty->heap);
	UNIT_EQ_U64(job->tensors, 0);
	pbox_job_free(empty);
	pbox_job_free(job);
}

static void
test_workers_agree_in_any_order(void)
{
	struct pbox_declare m = fixed(3);
	struct pbox_job_table *jt = begin(&m, 2, 0);
	static const uint8_t order[2][3] = {{2, 0, 1}, {0, 1, 2}};

	CU_ASSERT_PTR_NOT_NULL_FATAL(jt);
	for (uint16_t w = 0; w < 2; w++) {
		CU_ASSERT_EQUAL(pbox_job_table_same(jt, w, &m, &err), 0);
		for (unsigned i = 0; i < 3; i++)
			for (unsigned twice = 0; twice < 2; twice++) { /* pages may repeat */
				struct pbox_tensor_entry e = entry("t", 10u + order[w][i], 1);

				CU_ASSERT_EQUAL(
					pbox_job_table_declare(jt, w, order[w][i], &e, &err), 0);
				UNIT_EQ_U64(jt->n_has[w], i + 1);
			}
	}
	for (unsigned i = 0; i < 3; i++)
		UNIT_EQ_U64(jt->tensor[i].elements, 10 + i);
	pbox_job_table_settle(jt);
	pbox_job_table_settle(jt);
	end(jt);
	pbox_job_table_free(NULL);
}

/* After settling, a worker that has declared all may repeat itself, and contradictions are found. */
static void
test_repetition_after_settling(void)
{
	struct pbox_declare m = fixed(1);
	struct pbox_job_table *jt = begin(&m, 1, 0);
	struct pbox_tensor_entry e = entry("t", 5, 0);

	CU_ASSERT_EQUAL(pbox_job_table_declare(jt, 0, 0, &e, &err), 0);
	pbox_job_table_settle(jt);
	CU_ASSERT_EQUAL(pbox_job_table_declare(jt, 0, 0, &e, &err), 0);
	UNIT_EQ_U64(jt->n_has[0], 1);
	e.elements = 6;
	CU_ASSERT_EQUAL(pbox_job_table_declare(jt, 0, 0, &e, &err), -EEXIST);
	end(jt);
}

static void
test_tensor_mismatch_texts(void)
{
	struct pbox_declare m = fixed(2);
	struct pbox_job_table *jt = begin(&m, 2, 0);
	struct pbox_tensor_entry a = entry("fc.weight", 100, 1), b;

	CU_ASSERT_EQUAL(pbox_job_table_declare(jt, 0, 1, &a, &err), 0);
	b = entry("fc.weight", 101, 1);
	CU_ASSERT_EQUAL(pbox_job_table_declare(jt, 1, 1, &b, &err), -EEXIST);
	CU_ASSERT_STRING_EQUAL(err.text,
		"table 3, tensor 1: worker 1 declares 'fc.weight' with 101 elements, another worker declared 'fc.weight' with 100: all workers must declare the same tensors");
	b = entry("fc.bias", 100, 1);
	CU_ASSERT_EQUAL(pbox_job_table_declare(jt, 1, 1, &b, &err), -EEXIST);
	CU_ASSERT_STRING_EQUAL(err.text,
		"table 3, tensor 1: worker 1 declares 'fc.bias' in group 1, another worker declared 'fc.weight' in group 1: all workers must declare the same tensors");
	b = entry("fc.weight", 100, 2);
	CU_ASSERT_EQUAL(pbox_job_table_declare(jt, 1, 1, &b, &err), -EEXIST);
	UNIT_EQ_U64(jt->n_has[1], 0);
	UNIT_EQ_U64(jt->tensor[1].elements, 100);
	end(jt);
}

static void
test_fixed_part_mismatch_texts(void)
{
	struct pbox_declare m = fixed(2), other;
	struct pbox_job_table *jt = begin(&m, 2, 0);

	other = m;
	other.first = 1; /* another page of the same table */
	other.count = 1;
	CU_ASSERT_EQUAL(pbox_job_table_same(jt, 1, &other, &err), 0);
	other.tensors = 9;
	CU_ASSERT_EQUAL(pbox_job_table_same(jt, 1, &other, &err), -EEXIST);
	CU_ASSERT_STRING_EQUAL(
		err.text, "table 3: worker 1 declares 9 tensors, worker 0 declared 2");
	other = m;
	other.op = PBOX_OP_SUM;
	CU_ASSERT_EQUAL(pbox_job_table_same(jt, 1, &other, &err), -EEXIST);
	CU_ASSERT_STRING_EQUAL(
		err.text, "table 3: worker 1 wants sum/none, worker 0 declared mean/none");
	other = m;
	other.optimiser = PBOX_OPT_ADAM;
	CU_ASSERT_EQUAL(pbox_job_table_same(jt, 1, &other, &err), -EEXIST);
	other = m;
	other.mode = PBOX_MODE_OPTIMISER;
	CU_ASSERT_EQUAL(pbox_job_table_same(jt, 1, &other, &err), -EEXIST);
	other = m;
	other.pull_format = PBOX_FMT_FP16;
	CU_ASSERT_EQUAL(pbox_job_table_same(jt, 1, &other, &err), -EEXIST);
	CU_ASSERT_STRING_EQUAL(err.text,
		"table 3: worker 1 pushes bf16 and pulls fp16, worker 0 declared bf16 and fp32");
	end(jt);
}

/* H3: names, records and bitmaps are charged before they are there. */
static void
test_declarations_are_charged(void)
{
	const struct pbox_job_conf conf = {.name = "j", .bounds.memory = 40000};
	struct pbox_job *job = pbox_job_create(7, "job", &conf, 2);
	struct pbox_declare m = fixed(500), large = fixed(1u << 20);
	struct pbox_job_table *jt;
	size_t before;
	int ret = 0;
	unsigned i;

	CU_ASSERT_PTR_NOT_NULL_FATAL(job);
	before = job->heap;
	CU_ASSERT_PTR_NULL(pbox_job_table_create(job, &large, &err));
	CU_ASSERT_EQUAL(err.code, ENOMEM);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "the declaration of table 3 needs 251"));
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "raise 'memory' of the job"));
	UNIT_EQ_U64(job->heap, before);
	jt = pbox_job_table_create(job, &m, &err);
	CU_ASSERT_PTR_NOT_NULL_FATAL(jt);
	for (i = 0; i < 500 && ret == 0; i++) {
		struct pbox_tensor_entry e =
			entry("a name of sixty bytes, nearly as long as names may be at all", 1, 0);

		ret = pbox_job_table_declare(jt, 0, i, &e, &err);
	}
	CU_ASSERT_EQUAL(ret, -ENOMEM);
	CU_ASSERT(i > 50 && i < 500);
	CU_ASSERT(job->heap <= 40000 && job->heap > 39000);
	UNIT_EQ_U64(jt->n_has[0], i - 1);
	pbox_job_table_free(jt);
	UNIT_EQ_U64(job->heap, before);
	pbox_job_free(job);
}

/* The bitmap of who has declared all is given back at once. */
static void
test_honest_jobs_pay_little(void)
{
	struct pbox_declare m = fixed(1000);
	struct pbox_job_table *jt = begin(&m, 64, 0);
	size_t one = 0;

	CU_ASSERT_PTR_NOT_NULL_FATAL(jt);
	for (uint16_t w = 0; w < 64; w++) {
		for (unsigned i = 0; i < 1000; i++) {
			struct pbox_tensor_entry e = entry("layer.weight", 10, 0);

			CU_ASSERT_EQUAL(pbox_job_table_declare(jt, w, i, &e, &err), 0);
		}
		CU_ASSERT_PTR_NULL(jt->has[w]);
		if (w == 0)
			one = jt->heap;
		UNIT_EQ_U64(jt->heap, one);
	}
	CU_ASSERT(one < 1000 * 48 + 64 * 12 + sizeof(*jt));
	end(jt);
}

static void
test_tensors_of_a_job_are_bounded(void)
{
	static const struct pbox_job_conf conf = {.name = "j"};
	struct pbox_job *job = pbox_job_create(7, "job", &conf, 1);
	struct pbox_declare m = fixed(1u << 20);
	struct pbox_job_table *jt[2];

	CU_ASSERT_PTR_NOT_NULL_FATAL(job);
	for (unsigned i = 0; i < 2; i++) {
		jt[i] = pbox_job_table_create(job, &m, &err);
		CU_ASSERT_PTR_NOT_NULL_FATAL(jt[i]);
	}
	m = fixed(1);
	CU_ASSERT_PTR_NULL(pbox_job_table_create(job, &m, &err));
	CU_ASSERT_EQUAL(err.code, ENOSPC);
	CU_ASSERT_STRING_EQUAL(err.text,
		"table 3 has 1 tensors, and the others of the job 2097152: 2097152 at most in all");
	pbox_job_table_free(jt[1]);
	pbox_job_table_free(jt[0]);
	pbox_job_free(job);
}

const struct unit_test unit_tests[] = {
	{"declarations are charged", test_declarations_are_charged},
	{"honest jobs pay little", test_honest_jobs_pay_little},
	{"tensors of a job are bounded", test_tensors_of_a_job_are_bounded},
	{"sessions are counted", test_joined_counts_sessions},
	{"workers agree, in any order of pages", test_workers_agree_in_any_order},
	{"repetition after settling", test_repetition_after_settling},
	{"tensors that differ", test_tensor_mismatch_texts},
	{"tables that differ", test_fixed_part_mismatch_texts},
	{NULL, NULL},
};
