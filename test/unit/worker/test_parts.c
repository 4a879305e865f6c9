/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>

#include "unit.h"
#include "worker_impl.h"

const char unit_suite[] = "worker: windows, layout, gathering, texts";

/* ---- window ------------------------------------------------------------------------------ */

static void
test_rtt_and_rto(void)
{
	struct window w;

	window_init(&w, 64, 5 * NS_PER_MS, 0);
	UNIT_EQ_U64(w.rto, 20 * NS_PER_MS); /* nothing known */
	for (unsigned i = 1; i <= 1000; i++)
		rtt_sample(&w, 100 * NS_PER_US, i * NS_PER_US);
	CU_ASSERT(w.srtt > 99 * NS_PER_US && w.srtt < 101 * NS_PER_US);
	UNIT_EQ_U64(w.rto, 5 * NS_PER_MS); /* the floor */
	rtt_sample(&w, 12 * NS_PER_MS, 2 * NS_PER_MS);
	for (unsigned i = 0; i < 1000; i++)
		rtt_sample(&w, 100 * NS_PER_US, 3 * NS_PER_MS);
	CU_ASSERT(w.rto >= 15 * NS_PER_MS); /* a pause of the scheduler is remembered */
	for (unsigned i = 1; i < 100; i++)
		rtt_sample(&w, 100 * NS_PER_US, i * 60 * NS_PER_MS);
	UNIT_EQ_U64(w.rto, 5 * NS_PER_MS); /* and forgotten */
	UNIT_EQ_U64(w.rtt_min, 100 * NS_PER_US);
}

static double
settle(double loss, unsigned seed)
{
	struct window w;
	uint64_t now = 0, x = seed * 7919 + 1;
	double sum = 0;

	window_init(&w, 1000, 5 * NS_PER_MS, 0);
	for (unsigned rtt = 0; rtt < 3000; rtt++) {
		uint32_t n = window_frames(&w);

		now += 100 * NS_PER_US;
		rtt_sample(&w, 100 * NS_PER_US, now);
		for (uint32_t i = 0; i < n; i++) {
			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
			if ((double)(x >> 11) / 9007199254740992.0 < loss)
				window_lost(&w, now);
			else
				window_answered(&w, true, now);
		}
		if (rtt >= 1000)
			sum += w.size / 2000;
	}
	return sum;
}

static void
test_window_grows_and_settles(void)
{
	double one = settle(0.01, 1), four = settle(0.04, 5), ten = settle(0.1, 2);

	CU_ASSERT_EQUAL(settle(0, 4), 1000);
	CU_ASSERT(one > 950);                /* a bad link is used none the less */
	CU_ASSERT(four > 125 && four < 400); /* near 2/(p - 1/32) */
	CU_ASSERT(ten >= 125 && ten < 130);  /* an eighth of what the box granted */
	CU_ASSERT(settle(0.5, 3) < 130);
}

/* A queue that takes so many frames a round trip, and loses what exceeds them. */
static void
test_window_fits_a_queue(void)
{
	struct window w;
	uint64_t now = 0;
	double sent = 0, lost = 0, largest = 0;

	window_init(&w, 1000, 5 * NS_PER_MS, 0);
	for (unsigned rtt = 0; rtt < 3000; rtt++) {
		uint32_t n = window_frames(&w), fits = 400;

		now += 100 * NS_PER_US;
		rtt_sample(&w, 100 * NS_PER_US, now);
		for (uint32_t i = 0; i < n; i++)
			if (i < fits)
				window_answered(&w, true, now);
			else
				window_lost(&w, now);
		if (rtt < 1000)
			continue;
		sent += n;
		lost += n > fits ? n - fits : 0;
		largest = n > largest ? n : largest;
	}
	CU_ASSERT(sent / 2000 > 390);
	CU_ASSERT(lost / sent < 0.04);
	CU_ASSERT(largest < 440);
}

static void
test_window_on_marks_and_silence(void)
{
	struct window w;

	window_init(&w, 64, 5 * NS_PER_MS, 0);
	UNIT_EQ_U64(window_frames(&w), FIRST_WINDOW);
	rtt_sample(&w, 100 * NS_PER_US, 1);
	for (unsigned i = 0; i < 100; i++)
		window_answered(&w, true, 2);
	UNIT_EQ_U64(window_frames(&w), 64);         /* slow start */
	window_answered(&w, true, 150 * NS_PER_US); /* a round trip ends */
	for (unsigned i = 0; i < 64; i++) {
		window_marked(&w, 200 * NS_PER_US); /* all in the next one */
		window_answered(&w, true, 200 * NS_PER_US);
	}
	window_answered(&w, true, 300 * NS_PER_US);
	UNIT_EQ_U64(window_frames(&w), 32); /* halved once */
	window_silent(&w);
	UNIT_EQ_U64(window_frames(&w), 16);
	for (unsigned i = 0; i < 10; i++)
		window_silent(&w);
	UNIT_EQ_U64(window_frames(&w), 8);
	window_init(&w, 1, 5 * NS_PER_MS, 0);
	window_silent(&w);
	UNIT_EQ_U64(window_frames(&w), 1);
}

static void
test_window_gathers(void)
{
	struct window w;

	window_init(&w, 256, 5 * NS_PER_MS, 0);
	UNIT_EQ_U64(window_gather(&w, 256), 0); /* no round trip is known */
	for (unsigned i = 1; i <= 100; i++)
		rtt_sample(&w, 100 * NS_PER_US, i * NS_PER_MS);
	UNIT_EQ_U64(window_gather(&w, 256), 0); /* nothing queues */
	for (unsigned i = 100; i <= 300; i++)
		rtt_sample(&w, 600 * NS_PER_US, i * NS_PER_MS);
	CU_ASSERT(window_gather(&w, 256) > 140 * NS_PER_US);
	CU_ASSERT(window_gather(&w, 256) <= w.srtt / 4);
	UNIT_EQ_U64(window_gather(&w, 31), 0); /* few: each of them counts */
	UNIT_EQ_U64(window_gather(&w, 0), 0);
	for (unsigned i = 300; i <= 600; i++)
		rtt_sample(&w, 9 * NS_PER_MS, i * NS_PER_MS);
	UNIT_EQ_U64(window_gather(&w, 32), 500 * NS_PER_US); /* the limit */
	for (unsigned i = 600; i <= 900; i++)
		rtt_sample(&w, 160 * NS_PER_US, i * NS_PER_MS);
	UNIT_EQ_U64(window_gather(&w, 256), 0); /* shorter than a sleep is */
}

/* ---- layout --------------------------------------------------------------------------------- */

/** A table of tensors {10, 0, 30, 100} in chunks {tensor 2, tensor 0} and two of tensor 3. */
static uint32_t base_version; /* of the first chunk */

static struct pbox_worker_table *
sample(int *rc, unsigned spoil)
{
	static const struct pbox_client_tensor t[] = {
		{"a", 10, 0}, {"none", 0, 0}, {NULL, 30, 0}, {"d", 100, 0}};
	const struct pbox_client_table d = {.size = sizeof(d),
		.push_format = spoil == 5 ? PBOX_FMT_BF16 : PBOX_FMT_FP32,
		.pull_format = spoil == 5 ? PBOX_FMT_BF16 : PBOX_FMT_FP32,
		.n = 4,
		.tensors = t};
	struct pbox_segment seg[] = {{0, 2, 30}, {0, 0, 10}, {64, 3, 36}, {0, 3, 64}};
	uint32_t first[] = {0, 2, 3}, elements[] = {40, 36, 64};
	uint16_t count[] = {2, 1, 1};
	struct table_map m = {.segment = seg, .first = first, .count = count, .used = 4};
	struct pbox_worker_table *x = table_new(&d, 0, &worker_rounds);
	struct pbox_client_error err;

	if (spoil == 1)
		seg[3].offset = 1; /* a hole */
	if (spoil == 2)
		seg[1].tensor = 9;
	if (spoil == 3)
		seg[1].elements = 11;
	x->chunks = 3;
	x->frag_elements = spoil == 5 ? 1 : 16; /* INIT has no element of fp32 there */
	x->chunk = calloc(3, sizeof(*x->chunk));
	for (unsigned i = 0; i < 3; i++)
		x->chunk[i] = (struct chunk){
			.id = i, .elements = elements[i], .version = base_version + i};
	*rc = table_layout(x, &m, spoil == 4 ? 16 * 4 - 1 : 16 * 4, &err);
	return x;
}

/** The version that the table begins with. */
static uint32_t
begin(struct pbox_worker_table *t)
{
	struct pbox_client_error err;
	struct pbox_worker w = {.next_id = 1};
	struct session s = {.w = &w};

	CU_ASSERT_EQUAL(worker_rounds.begin(&s, t, 0, &err), 0);
	return t->base_version;
}

static void
test_layout(void)
{
	int rc;
	struct pbox_worker_table *t = sample(&rc, 0);

	CU_ASSERT_EQUAL(rc, 0);
	UNIT_EQ_U64(t->frags, 3 + 3 + 4);
	UNIT_EQ_U64(t->pieces, 2 + 2 + 3 + 4); /* fragment 1 of the first chunk has two tensors */
	UNIT_EQ_U64(t->frag[1].pieces, 2);
	UNIT_EQ_U64(t->piece[t->frag[1].piece].elements, 14);
	UNIT_EQ_U64(t->piece[t->frag[1].piece + 1].elements, 2);
	UNIT_EQ_U64(frag_elements(t, &t->frag[2]), 8);
	UNIT_EQ_U64(t->tensor[1].by_count, 0);
	UNIT_EQ_U64(t->tensor[3].by_count, 7);
	/* in order of offset, though the chunks were not */
	for (unsigned i = 0, next = 0; i < 7; i++) {
		const struct piece *p = &t->piece[t->by_tensor[t->tensor[3].by_first + i]];

		UNIT_EQ_U64(p->offset, next);
		next += p->elements;
	}
	UNIT_EQ_U64(begin(t), 2);
	table_free(t);
	/* rounds are compared modulo 2^32 */
	base_version = UINT32_MAX - 1;
	t = sample(&rc, 0);
	UNIT_EQ_U64(begin(t), 0);
	base_version = 0;
	CU_ASSERT_STRING_EQUAL(t->tensor[2].name, "2");
	table_free(t);
	for (unsigned spoil = 1; spoil <= 5; spoil++) {
		t = sample(&rc, spoil);
		CU_ASSERT_EQUAL(rc, PBOX_C_REFUSED);
		table_free(t);
	}
}

static void
test_gather(void)
{
	int rc;
	struct pbox_worker_table *t = sample(&rc, 0);
	float a[10], c[60]; /* the third tensor's buffer, and the first's right after it */
	struct pbox_worker_op *op = calloc(1, sizeof(*op) + 2 * sizeof(op->e[0]));
	struct iovec iov[4];

	op->e[0] = (struct pbox_worker_entry){.op = op, .in = (const uint8_t *)a};
	op->e[1] = (struct pbox_worker_entry){.op = op, .in = (const uint8_t *)c};
	for (unsigned i = 0; i < 3; i++)
		for (unsigned k = 0; k < t->frag[i].pieces; k++) {
			struct piece *p = &t->piece[t->frag[i].piece + k];

			p->entry = p->tensor == 0 ? &op->e[0] : p->tensor == 2 ? &op->e[1] : NULL;
		}
	UNIT_EQ_U64(table_gather(t, &t->frag[0], 0, 0, 16, PBOX_FMT_FP32, iov, 4), 1);
	CU_ASSERT(iov[0].iov_base == c && iov[0].iov_len == 64);
	UNIT_EQ_U64(table_gather(t, &t->frag[1], 0, 0, 16, PBOX_FMT_FP32, iov, 4), 2);
	CU_ASSERT(iov[0].iov_base == c + 16 && iov[0].iov_len == 56);
	CU_ASSERT(iov[1].iov_base == a && iov[1].iov_len == 8);
	UNIT_EQ_U64(table_gather(t, &t->frag[1], 0, 0, 16, PBOX_FMT_FP32, iov, 1), 0); /* no room */
	UNIT_EQ_U64(table_gather(t, &t->frag[1], 0, 13, 2, PBOX_FMT_FP32, iov, 4),
		2); /* part, as INIT */
	CU_ASSERT(iov[0].iov_base == c + 29 && iov[0].iov_len == 4);
	CU_ASSERT(iov[1].iov_base == a && iov[1].iov_len == 4);
	UNIT_EQ_U64(table_gather(t, &t->frag[1], 0, 15, 1, PBOX_FMT_FP32, iov, 4), 1);
	CU_ASSERT(iov[0].iov_base == a + 1 && iov[0].iov_len == 4);
	op->e[0].in = (const uint8_t *)(c + 30); /* neighbours in memory are one entry */
	UNIT_EQ_U64(table_gather(t, &t->frag[1], 0, 0, 16, PBOX_FMT_FP32, iov, 4), 1);
	CU_ASSERT(iov[0].iov_base == c + 16 && iov[0].iov_len == 64);
	free(op);
	table_free(t);
}

static void
test_texts(void)
{
	char text[8] = "abc";

	pbox_text_add(text, sizeof(text), "%d", 123456);
	CU_ASSERT_STRING_EQUAL(text, "abc1234");
	pbox_text_add(text, sizeof(text), "x");
	CU_ASSERT_STRING_EQUAL(text, "abc1234");
}

/* ---- what others chose, in a text ----------------------------------------------------------- */

static void
test_names_of_others(void)
{
	char out[PBOX_TEXT_NAME], long_name[400],
		text[] = "a\n'b' \x1b[1m \xc2\x9b"
			 "2J \xc3\xb6";

	CU_ASSERT_STRING_EQUAL(pbox_text_name(out, "gpu-1.example"), "gpu-1.example");
	CU_ASSERT_STRING_EQUAL(pbox_text_name(out, "a'b\"c\\\n\x7f"), "a\\'b\\\"c\\\\\\x0a\\x7f");
	/* C1 as UTF-8, and what only looks like it */
	CU_ASSERT_STRING_EQUAL(
		pbox_text_name(out, "\xc2\x9b \xc2\xb5 \xc3\xb6"), "\\xc2\\x9b \xc2\xb5 \xc3\xb6");
	memset(long_name, '\n', sizeof(long_name) - 1);
	long_name[sizeof(long_name) - 1] = 0;
	CU_ASSERT(strlen(pbox_text_name(out, long_name)) < PBOX_TEXT_NAME);
	pbox_text_tame(text);
	CU_ASSERT_STRING_EQUAL(text, "a?'b' ?[1m ??2J \xc3\xb6");
	CU_ASSERT_STRING_EQUAL(pbox_text_name(out, "\xc2"), "\xc2");
}

/* SETs of rounds around 2^32: those that fragments have all come to are one, the others stay. */
static void
test_sets_where_rounds_wrap(void)
{
	struct frag frag[2] = {{.round = 1}, {.round = UINT32_MAX}};
	struct pbox_worker_table t = {.discipline = &worker_rounds, .frags = 2, .frag = frag};
	struct pbox_set m = {.group = PBOX_ALL_GROUPS, .count = 1};

	m.param[0].id = PBOX_HYPER_LR;
	for (uint32_t i = 0; i < 8; i++) {
		m.from_round = UINT32_MAX - 3 + (i ^ 1); /* some answers overtake others */
		m.param[0].value = i ^ 1;
		CU_ASSERT_EQUAL(sets_add(&t, &m), 0);
	}
	/* up to round 0, which comes next for the last of them */
	UNIT_EQ_U64(sets_compact(&t), 4);
	for (uint32_t i = 0; i < 4; i++) {
		UNIT_EQ_U64(sets_at(&t, i)->from_round, i);
		CU_ASSERT_EQUAL(sets_at(&t, i)->param[0].value, i + 4.0);
	}
	sets_free(&t);
}

/* A coefficient is of one round: it does not go on with what holds from a later one (R6.15). */
static void
test_sets_keep_no_coefficient(void)
{
	struct frag frag = {.round = 6};
	struct pbox_worker_table t = {.discipline = &worker_rounds, .frags = 1, .frag = &frag};
	struct pbox_set m = {.group = PBOX_ALL_GROUPS, .count = 2, .from_round = 5};

	m.param[0].id = PBOX_HYPER_COEFFICIENT;
	m.param[0].value = 0.5;
	m.param[1].id = PBOX_HYPER_STEPS;
	m.param[1].value = -1;
	CU_ASSERT_EQUAL(sets_add(&t, &m), 0);
	UNIT_EQ_U64(sets_compact(&t), 1); /* as it was said */
	UNIT_EQ_U64(sets_at(&t, 0)->count, 2);
	UNIT_EQ_U64(sets_at(&t, 0)->from_round, 5);
	m.from_round = 7;
	m.count = 1;
	m.param[0].id = PBOX_HYPER_LR;
	CU_ASSERT_EQUAL(sets_add(&t, &m), 0);
	UNIT_EQ_U64(sets_compact(&t), 1);
	UNIT_EQ_U64(sets_at(&t, 0)->from_round, 7);
	UNIT_EQ_U64(sets_at(&t, 0)->count, 2);
	for (unsigned i = 0; i < 2; i++)
		CU_ASSERT_NOT_EQUAL(sets_at(&t, 0)->param[i].id, PBOX_HYPER_COEFFICIENT);
	sets_free(&t);
}

/* A program that asks for what another release does is not given something else. */
static void
test_formats_of_later_releases(void)
{
	struct pbox_client_table d = {.size = sizeof(d), .push_format = 17, .pull_format = 1};
	struct pbox_client_error err;

	CU_ASSERT_EQUAL(pbox_worker_check_table(&d, &err), PBOX_C_INVALID);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "int4 is one of a later release"));
	d.push_format = PBOX_FMT_BF16;
	d.pull_format = 19;
	CU_ASSERT_EQUAL(pbox_worker_check_table(&d, &err), PBOX_C_INVALID);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "mxfp8 is one of a later release"));
	d.pull_format = 21;
	CU_ASSERT_EQUAL(pbox_worker_check_table(&d, &err), PBOX_C_INVALID);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "does not exist"));
	d.pull_format = PBOX_FMT_FP16;
	CU_ASSERT_EQUAL(pbox_worker_check_table(&d, &err), 0);
}

const struct unit_test unit_tests[] = {
	{"formats of later releases", test_formats_of_later_releases},
	{"names of others in a text", test_names_of_others},
	{"round trips and time-outs", test_rtt_and_rto},
	{"the window grows, and settles under loss", test_window_grows_and_settles},
	{"the window fits a queue that overflows", test_window_fits_a_queue},
	{"answers may gather where they queue", test_window_gathers},
	{"the window on marks and silence", test_window_on_marks_and_silence},
	{"layout of a map", test_layout},
	{"gathering a fragment", test_gather},
	{"texts", test_texts},
	{"SETs where rounds wrap", test_sets_where_rounds_wrap},
	{"a coefficient is of one round", test_sets_keep_no_coefficient},
	{NULL, NULL},
};
