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

static void
test_workers_agree_in_any_order(void)
{
	struct pbox_declare m = fixed(3);
	struct pbox_job_table *jt = pbox_job_table_create(&m, 2);
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
	pbox_job_table_settle(jt, 2);
	pbox_job_table_settle(jt, 2);
	pbox_job_table_free(jt, 2);
	pbox_job_table_free(NULL, 2);
}

/* After settling, a worker that has declared all may repeat itself, and contradictions are found. */
static void
test_repetition_after_settling(void)
{
	struct pbox_declare m = fixed(1);
	struct pbox_job_table *jt = pbox_job_table_create(&m, 1);
	struct pbox_tensor_entry e = entry("t", 5, 0);

	CU_ASSERT_EQUAL(pbox_job_table_declare(jt, 0, 0, &e, &err), 0);
	pbox_job_table_settle(jt, 1);
	CU_ASSERT_EQUAL(pbox_job_table_declare(jt, 0, 0, &e, &err), 0);
	UNIT_EQ_U64(jt->n_has[0], 1);
	e.elements = 6;
	CU_ASSERT_EQUAL(pbox_job_table_declare(jt, 0, 0, &e, &err), -EEXIST);
	pbox_job_table_free(jt, 1);
}

static void
test_tensor_mismatch_texts(void)
{
	struct pbox_declare m = fixed(2);
	struct pbox_job_table *jt = pbox_job_table_create(&m, 2);
	struct pbox_tensor_entry a = entry("fc.weight", 100, 1), b;

	CU_ASSERT_EQUAL(pbox_job_table_declare(jt, 0, 1, &a, &err), 0);
	b = entry("fc.weight", 101, 1);
	CU_ASSERT_EQUAL(pbox_job_table_declare(jt, 1, 1, &b, &err), -EEXIST);
	CU_ASSERT_STRING_EQUAL(err.text,
		"table 3, tensor 1: worker 1 declares 'fc.weight' with 101 elements, another "
		"worker "
		"declared 'fc.weight' with 100: all workers must declare the same tensors");
	b = entry("fc.bias", 100, 1);
	CU_ASSERT_EQUAL(pbox_job_table_declare(jt, 1, 1, &b, &err), -EEXIST);
	CU_ASSERT_STRING_EQUAL(err.text,
		"table 3, tensor 1: worker 1 declares 'fc.bias' in group 1, another worker "
		"declared "
		"'fc.weight' in group 1: all workers must declare the same tensors");
	b = entry("fc.weight", 100, 2);
	CU_ASSERT_EQUAL(pbox_job_table_declare(jt, 1, 1, &b, &err), -EEXIST);
	UNIT_EQ_U64(jt->n_has[1], 0);
	UNIT_EQ_U64(jt->tensor[1].elements, 100);
	pbox_job_table_free(jt, 2);
}

static void
test_fixed_part_mismatch_texts(void)
{
	struct pbox_declare m = fixed(2), other;
	struct pbox_job_table *jt = pbox_job_table_create(&m, 2);

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
	pbox_job_table_free(jt, 2);
}

const struct unit_test unit_tests[] = {
	{"sessions are counted", test_joined_counts_sessions},
	{"workers agree, in any order of pages", test_workers_agree_in_any_order},
	{"repetition after settling", test_repetition_after_settling},
	{"tensors that differ", test_tensor_mismatch_texts},
	{"tables that differ", test_fixed_part_mismatch_texts},
	{NULL, NULL},
};
