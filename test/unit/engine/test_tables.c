/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <string.h>

#include "../../../lib/shard/shard_impl.h"
#include "fixture.h"

const char unit_suite[] = "engine: tables";

static struct fx_worker w[3];

static struct pbox_not_ready *
not_ready(const struct fx_sent *s)
{
	static struct pbox_not_ready m;

	memset(&m, 0, sizeof(m));
	CU_ASSERT_EQUAL(s->hdr.type, PBOX_NOT_READY);
	if (s->hdr.type == PBOX_NOT_READY)
		CU_ASSERT_EQUAL(pbox_not_ready_decode(s->payload, s->hdr.length, &m), 0);
	return &m;
}

static void
test_not_ready_names_who_is_missing(void)
{
	struct fx_table t = {.elements = 100};
	struct pbox_not_ready *m;

	fx_begin();
	fx_join(&w[0], "vision", 0, 3);
	fx_map(&w[0], 0, 0);
	UNIT_EQ_U64(fx_error(), PBOX_E_BAD_REQUEST); /* declare first */
	fx_declare(&w[0], 0, &t);
	m = not_ready(fx_map(&w[0], 0, 0));
	UNIT_EQ_U64(m->expected, 3);
	UNIT_EQ_U64(m->joined, 1);
	UNIT_EQ_U64(m->declared, 1);
	UNIT_EQ_U64(m->first_missing, 1);
	UNIT_EQ_U64(m->silent_ms, UINT32_MAX);
	CU_ASSERT_STRING_EQUAL(m->text, "worker 1 has not joined");
	fx_join(&w[1], "vision", 1, 3);
	fx_join(&w[2], "vision", 2, 3);
	fx.now += UINT64_C(1500000000);
	m = not_ready(fx_map(&w[0], 0, 0));
	UNIT_EQ_U64(m->joined, 3);
	UNIT_EQ_U64(m->first_missing, 1);
	UNIT_EQ_U64(m->silent_ms, 1500);
	CU_ASSERT_STRING_EQUAL(m->text,
		"worker 1 (host1) has joined but not declared table 0; last heard 1500 ms ago");
	fx_declare(&w[1], 0, &t);
	fx_leave(&w[2]);
	m = not_ready(fx_map(&w[0], 0, 0));
	UNIT_EQ_U64(m->first_missing, 2);
	CU_ASSERT_STRING_EQUAL(m->text, "worker 2 has left");
	fx_join(&w[2], "vision", 2, 3);
	fx_declare(&w[2], 0, &t);
	CU_ASSERT_EQUAL(fx_map(&w[0], 0, 0)->hdr.type, PBOX_MAPPED);
	fx_end();
}

static void
test_mapped_waits_for_the_shards(void)
{
	struct fx_table t = {.elements = 100};

	fx_begin();
	fx_join(&w[0], "vision", 0, 1);
	fx.hold_mail = true;
	fx_declare(&w[0], 0, &t);
	CU_ASSERT_PTR_NOT_NULL(strstr(not_ready(fx_map(&w[0], 0, 0))->text, "are taking table 0"));
	fx_mail();
	CU_ASSERT_EQUAL(fx_map(&w[0], 0, 0)->hdr.type, PBOX_MAPPED);
	fx_end();
}

static void
test_map_pages(void)
{
	struct fx_table t = {.elements = 16 * 4 * 100 + 5};
	struct pbox_chunk_entry e;
	struct pbox_mapped m;
	struct pbox_cursor cur;
	uint32_t at = 0, pages = 0;
	uint64_t elements = 0;

	fx.mtu = 154; /* fragments of 16 elements, chunks of 64 */
	fx_begin();
	fx_join(&w[0], "vision", 0, 1);
	fx_declare(&w[0], 0, &t);
	fx_work();
	do {
		struct fx_sent *s = fx_map(&w[0], 0, at);

		CU_ASSERT_EQUAL_FATAL(s->hdr.type, PBOX_MAPPED);
		UNIT_EQ_U64(s->hdr.map_epoch, PBOX_MAP_EPOCH);
		CU_ASSERT_EQUAL_FATAL(pbox_mapped_decode(s->payload, s->hdr.length, &m, &cur), 0);
		UNIT_EQ_U64(m.chunks, 100); /* the rest of 5 goes with the last */
		UNIT_EQ_U64(m.first, at);
		UNIT_EQ_U64(m.frag_elements, 16);
		CU_ASSERT_FATAL(m.count > 0);
		for (unsigned i = 0; i < m.count; i++) {
			CU_ASSERT_EQUAL_FATAL(pbox_mapped_next(&cur, &e), 0);
			UNIT_EQ_U64(e.chunk_id, at + i);
			UNIT_EQ_U64(e.segment[0].offset, elements);
			elements += e.elements;
		}
		at += m.count;
		pages++;
	} while (at < m.chunks);
	CU_ASSERT(pages > 1);
	UNIT_EQ_U64(elements, t.elements);
	fx_map(&w[0], 1, 0);
	UNIT_EQ_U64(fx_error(), PBOX_E_BAD_REQUEST);
	fx_end();
}

static void
test_empty_table(void)
{
	struct pbox_declare d = {.push_format = PBOX_FMT_FP32, .pull_format = PBOX_FMT_FP32};
	struct pbox_mapped m;
	struct pbox_cursor cur;
	struct fx_sent *s;

	fx_begin();
	fx_join(&w[0], "vision", 0, 1);
	CU_ASSERT_EQUAL(fx_declare_list(&w[0], &d, NULL, 0)->hdr.type, PBOX_DECLARED);
	s = fx_map(&w[0], 0, 0);
	CU_ASSERT_EQUAL_FATAL(s->hdr.type, PBOX_MAPPED);
	pbox_mapped_decode(s->payload, s->hdr.length, &m, &cur);
	UNIT_EQ_U64(m.chunks, 0);
	UNIT_EQ_U64(m.count, 0);
	fx_end();
}

static void
test_pages_in_any_order(void)
{
	struct pbox_declare d = {
		.tensors = 3, .push_format = PBOX_FMT_FP32, .pull_format = PBOX_FMT_BF16};
	struct pbox_tensor_entry e[3] = {{.elements = 1, .name = "a"}, {.elements = 2, .name = "b"},
		{.elements = 3, .name = "c"}};
	struct pbox_declared a;
	struct fx_sent *s;

	fx_begin();
	fx_join(&w[0], "vision", 0, 1);
	d.first = 2;
	s = fx_declare_list(&w[0], &d, &e[2], 1);
	CU_ASSERT_EQUAL_FATAL(s->hdr.type, PBOX_DECLARED);
	CU_ASSERT_EQUAL(pbox_declared_decode(s->payload, s->hdr.length, &a), 0);
	UNIT_EQ_U64(a.first, 2);
	UNIT_EQ_U64(a.count, 1);
	fx_map(&w[0], 0, 0);
	UNIT_EQ_U64(fx_error(), PBOX_E_BAD_REQUEST);
	fx_declare_list(&w[0], &d, &e[2], 1);
	d.first = 0;
	fx_declare_list(&w[0], &d, e, 2);
	CU_ASSERT_EQUAL(fx_map(&w[0], 0, 0)->hdr.type, PBOX_MAPPED);
	/* repeated after it is mapped */
	CU_ASSERT_EQUAL(fx_declare_list(&w[0], &d, e, 2)->hdr.type, PBOX_DECLARED);
	fx_end();
}

static void
expect_bad(struct pbox_declare d, const char *text)
{
	struct pbox_tensor_entry e = {.elements = 1, .group = PBOX_MAX_GROUPS};

	fx_declare_list(&w[0], &d, &e, d.count);
	UNIT_EQ_U64(fx_error(), PBOX_E_BAD_REQUEST);
	CU_ASSERT_PTR_NOT_NULL(strstr(fx_error_text(), text));
}

static void
test_bad_declarations(void)
{
	struct pbox_declare ok = {.tensors = 1, .push_format = 1, .pull_format = 1}, d;

	fx_begin();
	fx_join(&w[0], "vision", 0, 1);
	d = ok;
	d.table = 1;
	expect_bad(d, "in order");
	d = ok;
	d.mode = 2;
	expect_bad(d, "unknown mode");
	d = ok;
	d.op = 4;
	expect_bad(d, "unknown mode, operation");
	d = ok;
	d.optimiser = 1;
	expect_bad(d, "do not fit");
	d = ok;
	d.mode = 1;
	expect_bad(d, "do not fit");
	d = ok;
	d.push_format = 4;
	expect_bad(d, "format");
	d = ok;
	d.tensors = 1u << 21;
	expect_bad(d, "too many tensors");
	d = ok;
	d.count = 1;
	expect_bad(d, "group 1024");
	d = ok;
	d.first = 2; /* beyond the table: contradicts itself */
	CU_ASSERT_PTR_NULL(fx_declare_list(&w[0], &d, NULL, 0));
	UNIT_EQ_U64(fx.rs[PBOX_RS_DROP_MALFORMED], 1);
	fx_end();
}

static void
test_mismatch(void)
{
	struct fx_table t = {.elements = 100}, other = {.elements = 101};

	fx_begin();
	fx_join(&w[0], "vision", 0, 2);
	fx_join(&w[1], "vision", 1, 2);
	fx_declare(&w[0], 0, &t);
	fx_declare(&w[1], 0, &other);
	UNIT_EQ_U64(fx_error(), PBOX_E_MISMATCH);
	CU_ASSERT_PTR_NOT_NULL(strstr(fx_error_text(),
		"worker 1 declares 'weight' with 101 elements, another worker declared 'weight' with 100"));
	/* the others learn it from MAP */
	fx_map(&w[0], 0, 0);
	UNIT_EQ_U64(fx_error(), PBOX_E_MISMATCH);
	CU_ASSERT_PTR_NOT_NULL(strstr(fx_error_text(), "with 101 elements"));
	fx_end();
}

/* R5.4: the others hear it, though the one who differs has given up; a new try is a new try. */
static void
test_mismatch_ends_with_a_new_try(void)
{
	struct fx_table t = {.elements = 100}, other = {.elements = 101};

	fx_begin();
	fx_join(&w[0], "vision", 0, 2);
	fx_join(&w[1], "vision", 1, 2);
	fx_declare(&w[0], 0, &t);
	fx_declare(&w[1], 0, &other);
	fx_leave(&w[1]);
	fx_map(&w[0], 0, 0);
	UNIT_EQ_U64(fx_error(), PBOX_E_MISMATCH);
	fx_join(&w[1], "vision", 1, 2);
	CU_ASSERT_EQUAL(fx_map(&w[0], 0, 0)->hdr.type, PBOX_NOT_READY);
	CU_ASSERT_EQUAL(fx_declare(&w[1], 0, &t)->hdr.type, PBOX_DECLARED);
	CU_ASSERT_EQUAL(fx_map(&w[0], 0, 0)->hdr.type, PBOX_MAPPED);
	fx_end();
}

/* What only the one who left has declared binds nobody. */
static void
test_declarations_of_the_gone_are_forgotten(void)
{
	struct fx_table t = {.elements = 100}, other = {.elements = 7, .op = PBOX_OP_MEAN};

	fx_begin();
	fx_join(&w[0], "vision", 0, 2);
	fx_join(&w[1], "vision", 1, 2);
	fx_declare(&w[1], 0, &other);
	fx_declare(&w[1], 1, &other);
	fx_leave(&w[1]);
	CU_ASSERT_EQUAL(fx_declare(&w[0], 0, &t)->hdr.type, PBOX_DECLARED);
	fx_join(&w[1], "vision", 1, 2);
	CU_ASSERT_EQUAL(fx_declare(&w[1], 0, &t)->hdr.type, PBOX_DECLARED);
	CU_ASSERT_EQUAL(fx_map(&w[0], 0, 0)->hdr.type, PBOX_MAPPED);
	fx_end();
}

static void
test_quota(void)
{
	struct fx_table t = {.elements = 1000000};

	fx.memory = 1 << 20;
	fx_begin();
	fx_join(&w[0], "quota", 0, 1);
	CU_ASSERT_EQUAL(fx_declare(&w[0], 0, &t)->hdr.type, PBOX_DECLARED);
	fx_map(&w[0], 0, 0);
	UNIT_EQ_U64(fx_error(), PBOX_E_NO_MEMORY);
	CU_ASSERT_PTR_NOT_NULL(strstr(fx_error_text(),
		"table 0 needs at least 4000000 bytes and the job may still take "));
	fx_end();
}

/* R5.4: a table that the box cannot build gives its number back, once all that declared it have the error. */
static void
test_number_given_back(void)
{
	struct fx_table huge = {.elements = 1000000}, small = {.elements = 100};
	const struct pbox_job *job;

	fx.memory = 1 << 20;
	fx_begin();
	fx_join(&w[0], "quota", 0, 2);
	fx_join(&w[1], "quota", 1, 2);
	job = pbox_registrar_job(fx.registrar, 0);
	fx_declare(&w[0], 0, &huge);
	fx_declare(&w[1], 0, &huge);
	fx_map(&w[0], 0, 0);
	UNIT_EQ_U64(fx_error(), PBOX_E_NO_MEMORY);
	/* worker 1 has not: it would get the map of another table */
	CU_ASSERT_PTR_NULL(fx_declare(&w[0], 0, &small));
	CU_ASSERT(job->table[0]->failed);
	/* worker 0's answer was lost */
	fx_map(&w[0], 0, 0);
	UNIT_EQ_U64(fx_error(), PBOX_E_NO_MEMORY);
	fx_map(&w[1], 0, 0);
	UNIT_EQ_U64(fx_error(), PBOX_E_NO_MEMORY);
	UNIT_EQ_U64(job->n_tables, 0);
	UNIT_EQ_U64(job->tensors, 0);
	/* worker 1's too */
	fx_map(&w[1], 0, 0);
	UNIT_EQ_U64(fx_error(), PBOX_E_NO_MEMORY);
	CU_ASSERT_EQUAL(fx_declare(&w[0], 0, &small)->hdr.type, PBOX_DECLARED);
	fx_map(&w[1], 0, 0);
	UNIT_EQ_U64(fx_error(), PBOX_E_NO_MEMORY);
	CU_ASSERT_EQUAL(fx_map(&w[0], 0, 0)->hdr.type, PBOX_NOT_READY);
	CU_ASSERT_EQUAL(fx_declare(&w[1], 0, &small)->hdr.type, PBOX_DECLARED);
	CU_ASSERT_EQUAL(fx_map(&w[0], 0, 0)->hdr.type, PBOX_MAPPED);
	CU_ASSERT_EQUAL(fx_map(&w[1], 0, 0)->hdr.type, PBOX_MAPPED);
	fx_end();
}

/* R5.5: beyond the table there are no chunks, and that is no error. */
static void
test_map_beyond_the_table(void)
{
	static const uint32_t first[] = {1, 2, 1000, UINT32_MAX};
	struct fx_table t = {.elements = 100};

	fx_begin();
	fx_job(w, "vision", 1, &t);
	for (unsigned i = 0; i < 4; i++) {
		struct fx_sent *s = fx_map(&w[0], 0, first[i]);
		struct pbox_mapped m;
		struct pbox_cursor cur;

		CU_ASSERT_EQUAL_FATAL(s->hdr.type, PBOX_MAPPED);
		CU_ASSERT_EQUAL(pbox_mapped_decode(s->payload, s->hdr.length, &m, &cur), 0);
		UNIT_EQ_U64(m.chunks, 1);
		UNIT_EQ_U64(m.first, 1);
		UNIT_EQ_U64(m.count, 0);
	}
	fx_end();
}

/* A worker that comes again finds the table, and need only declare the same. */
static void
test_rejoin(void)
{
	struct fx_table t = {.elements = 100};

	fx_begin();
	fx_job(w, "vision", 2, &t);
	fx_leave(&w[1]);
	fx_join(&w[1], "vision", 1, 2);
	fx_map(&w[1], 0, 0);
	UNIT_EQ_U64(fx_error(), PBOX_E_BAD_REQUEST);
	fx_declare(&w[1], 0, &t);
	CU_ASSERT_EQUAL(fx_map(&w[1], 0, 0)->hdr.type, PBOX_MAPPED);
	UNIT_EQ_U64(fx.rs[PBOX_RS_TABLES], 1);
	fx_end();
}

static void
test_smallest_mtu_decides(void)
{
	struct fx_table t = {.elements = 100};
	struct pbox_mapped m;
	struct pbox_cursor cur;
	struct fx_sent *s;

	fx.mtu = 200;
	fx_begin();
	for (uint16_t i = 0; i < 2; i++) {
		struct pbox_join j;

		fx_join(&w[i], "vision", i, 2);
		fx_leave(&w[i]);
		w[i].token = 0;
		w[i].mtu = i == 0 ? 160 : 1500;
		w[i].nonce++;
		fx_hello(&w[i]);
		j = fx_join_message(&w[i]);
		s = fx_join_with(&w[i], &j, "key");
		CU_ASSERT_EQUAL_FATAL(s->hdr.type, PBOX_WELCOME);
		w[i].token = s->hdr.token;
	}
	fx_declare(&w[0], 0, &t);
	fx_declare(&w[1], 0, &t);
	s = fx_map(&w[1], 0, 0);
	CU_ASSERT_EQUAL_FATAL(s->hdr.type, PBOX_MAPPED);
	pbox_mapped_decode(s->payload, s->hdr.length, &m, &cur);
	UNIT_EQ_U64(m.frag_elements, 16);
	fx_end();
}

/* What a shard keeps of a job and of a table is on the NUMA node of its core. */
static void
on_node(unsigned node, const void *at, size_t bytes)
{
	const uint8_t *low = fx_region + node * (FX_ARENA / 2), *p = at;

	CU_ASSERT(p >= low && p + bytes <= low + FX_ARENA / 2);
}

static void
test_memory_by_node(void)
{
	const struct fx_table t = {.elements = 1000, .op = PBOX_OP_SUM};

	fx.nodes = true;
	fx_begin();
	fx_join(&w[0], "vision", 0, 1);
	fx.hold_mail = true;
	fx_declare(&w[0], 0, &t);
	fx_work();
	UNIT_EQ_U64(fx.n_mail, FX_SHARDS); /* OPEN_TABLE */
	for (unsigned i = 0; i < FX_SHARDS; i++) {
		const struct pbox_shard_job *j = fx.mail[i].job;

		UNIT_EQ_U64(fx.mail[i].shard, i);
		on_node(i, j, sizeof(*j));
		on_node(i, j->member, sizeof(*j->member));
		on_node(i, j->peer, j->peers * sizeof(*j->peer));
		on_node(i, j->table, PBOX_MAX_TABLES * sizeof(*j->table));
		on_node(i, j->expected, sizeof(*j->expected));
		on_node(i, j->inbox.members, sizeof(*j->inbox.members));
		on_node(i, j->record_mem, j->n_records * j->record_size);
		on_node(i, j->acc_mem, 1);
		on_node(i, fx.mail[i].table, sizeof(*fx.mail[i].table));
	}
	fx.hold_mail = false;
	fx_end();
}

const struct unit_test unit_tests[] = {
	{"NOT_READY names who is missing", test_not_ready_names_who_is_missing},
	{"MAPPED waits for the shards", test_mapped_waits_for_the_shards},
	{"memory of a shard is near its core", test_memory_by_node},
	{"pages of the map", test_map_pages},
	{"an empty table", test_empty_table},
	{"pages of a declaration", test_pages_in_any_order},
	{"bad declarations", test_bad_declarations},
	{"mismatch", test_mismatch},
	{"mismatch ends with a new try", test_mismatch_ends_with_a_new_try},
	{"declarations of the gone are forgotten", test_declarations_of_the_gone_are_forgotten},
	{"the quota of a job", test_quota},
	{"a table that cannot be built gives its number back", test_number_given_back},
	{"a worker comes again", test_rejoin},
	{"the smallest MTU decides", test_smallest_mtu_decides},
	{"MAP beyond the table", test_map_beyond_the_table},
	{NULL, NULL},
};
