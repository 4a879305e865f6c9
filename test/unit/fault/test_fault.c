/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Lines and their settings by themselves; with mbufs, at length, in test/chaos. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pbox_fault.h>

#include "unit.h"

const char unit_suite[] = "fault";

#define LEN 64

struct frame {
	uint32_t number, len;
	uint8_t bytes[LEN];
	bool kept;
};

/* a line, and buffers for its copies */
struct bed {
	struct pbox_fault_line *line;
	struct pbox_fault_conf conf[PBOX_FAULT_DIRS];
	uint32_t target_left;
	uint32_t alive, most; /* frames */
	uint64_t put, taken;
	void *memory;
};

static struct frame *
frame_new(struct bed *b, uint32_t number)
{
	struct frame *f;

	if (b->alive == b->most)
		return NULL;
	f = calloc(1, sizeof(*f));
	CU_ASSERT_FATAL(f != NULL);
	f->number = number;
	f->len = LEN;
	memset(f->bytes, (int)(number & 0xFF), LEN);
	b->alive++;
	return f;
}

static uint32_t
frame_length(const void *frame)
{
	return ((const struct frame *)frame)->len;
}

static const void *
frame_read(const void *frame, uint32_t offset, uint32_t len, void *copy)
{
	const struct frame *f = frame;

	(void)copy;
	return offset + len <= f->len ? f->bytes + offset : NULL;
}

static void *
frame_copy(void *ctx, void *frame)
{
	struct frame *f = frame_new(ctx, 0);

	if (f != NULL)
		*f = *(struct frame *)frame;
	return f;
}

static int
frame_corrupt(void *ctx, void **frame, uint32_t at, uint8_t change)
{
	struct frame *f = *frame;

	(void)ctx;
	CU_ASSERT_FATAL(at < f->len && change != 0);
	f->bytes[at] ^= change;
	return 0;
}

static int
frame_truncate(void *ctx, void **frame, uint32_t len)
{
	struct frame *f = *frame;

	(void)ctx;
	CU_ASSERT_FATAL(len > 0 && len < f->len);
	f->len = len;
	return 0;
}

static int
frame_mark(void *ctx, void **frame)
{
	(void)ctx;
	return ((struct frame *)*frame)->number % 2 == 1;
}

/* One number is a frame that there is no buffer to keep in. */
static int
frame_keep(void *ctx, void **frame)
{
	struct frame *f = *frame;

	(void)ctx;
	f->kept = true;
	return f->number == UINT32_MAX ? -ENOMEM : 0;
}

static void
frame_drop(void *ctx, void *frame)
{
	struct bed *b = ctx;

	b->alive--;
	free(frame);
}

static const struct pbox_fault_ops ops = {frame_length, frame_read, frame_copy, frame_corrupt,
	frame_truncate, frame_mark, frame_keep, frame_drop};

/* All settings of "rx_KEY=VALUE,..."; false: refused. */
static int
set_one(void *ctx, const char *key, const char *value, char *why, size_t n)
{
	struct bed *b = ctx;
	struct pbox_fault_conf *const side[] = {&b->conf[PBOX_FAULT_RX], &b->conf[PBOX_FAULT_TX]};

	return pbox_fault_conf_set_side(side, key, value, why, n) < 0 ? -EINVAL : 0;
}

static bool
bed_set(struct bed *b, const char *settings)
{
	char text[256], why[128];

	snprintf(text, sizeof(text), "%s", settings);
	if (*text != '\0' && pbox_fault_conf_each(text, set_one, b, why, sizeof(why)) != 0)
		return false;
	b->target_left = b->conf[PBOX_FAULT_RX].target_first;
	pbox_fault_line_set(b->line, &b->conf[PBOX_FAULT_RX]);
	return true;
}

static void
bed_open(struct bed *b, const char *settings, uint32_t limit)
{
	struct pbox_fault_line_conf conf = {.ops = &ops,
		.ctx = b,
		.dir = PBOX_FAULT_RX,
		.limit = limit,
		.ticks_per_us = 1000,
		.target_left = &b->target_left};

	memset(b, 0, sizeof(*b));
	b->most = UINT32_MAX;
	b->memory = calloc(1, pbox_fault_line_size(limit));
	CU_ASSERT_FATAL(b->memory != NULL);
	for (int d = 0; d < PBOX_FAULT_DIRS; d++)
		pbox_fault_conf_defaults(&b->conf[d]);
	b->line = pbox_fault_line_init(b->memory, &conf);
	CU_ASSERT_TRUE(pbox_fault_line_passive(b->line));
	CU_ASSERT_TRUE(bed_set(b, settings));
}

static uint64_t
n(const struct bed *b, enum pbox_fault_counter c)
{
	return pbox_fault_line_count(b->line, c);
}

static void
bed_conserves(const struct bed *b)
{
	static const enum pbox_fault_counter gone[] = {PBOX_FAULT_N_lost, PBOX_FAULT_N_burst_lost,
		PBOX_FAULT_N_gilbert_lost, PBOX_FAULT_N_blackholed, PBOX_FAULT_N_target_dropped,
		PBOX_FAULT_N_overflow};
	uint64_t in = b->put + n(b, PBOX_FAULT_N_duplicated), out = b->taken + b->alive;

	for (unsigned i = 0; i < sizeof(gone) / sizeof(gone[0]); i++)
		out += n(b, gone[i]);
	UNIT_EQ_U64(in, out);
}

static void
bed_close(struct bed *b)
{
	bed_conserves(b);
	UNIT_EQ_U64(b->alive, pbox_fault_line_waiting(b->line));
	pbox_fault_line_reset(b->line);
	UNIT_EQ_U64(b->alive, 0);
	UNIT_EQ_U64(pbox_fault_line_waiting(b->line), 0);
	free(b->memory);
}

static void
put(struct bed *b, uint32_t number, uint64_t now)
{
	void *f = frame_new(b, number);

	CU_ASSERT_FATAL(f != NULL && pbox_fault_line_room(b->line) >= 2);
	pbox_fault_line_put(b->line, f, now, 0);
	b->put++;
}

/* What comes out: a hash of it goes on in @p h; numbers into @p got. */
static uint32_t
take(struct bed *b, uint64_t now, uint32_t *got, uint64_t *h)
{
	uint32_t k, out = 0;
	void **frames;

	pbox_fault_line_release(b->line, now);
	while ((k = pbox_fault_line_ready(b->line, &frames)) > 0) {
		for (uint32_t i = 0; i < k; i++, out++) {
			struct frame *f = frames[i];

			if (got != NULL)
				got[out] = f->number;
			for (uint32_t j = 0; h != NULL && j < f->len; j++)
				*h = (*h ^ f->bytes[j] ^ f->number) * UINT64_C(0x100000001B3);
			frame_drop(b, f);
		}
		pbox_fault_line_taken(b->line, k);
	}
	b->taken += out;
	return out;
}

static void
test_seed(void)
{
	static const char *const settings[] = {
		"seed=5,rx_loss=0.1,rx_dup=0.1,rx_corrupt=0.2,rx_truncate=0.2:8,rx_reorder=0.2:8",
		"seed=5,rx_loss=0.1,rx_dup=0.1,rx_corrupt=0.2,rx_truncate=0.2:8,rx_reorder=0.2:8",
		"seed=6,rx_loss=0.1,rx_dup=0.1,rx_corrupt=0.2,rx_truncate=0.2:8,rx_reorder=0.2:8"};
	uint64_t h[3] = {0, 0, 0}, lost = 0;
	struct bed b;

	for (unsigned i = 0; i < 3; i++) {
		bed_open(&b, settings[i], 64);
		for (uint32_t k = 0; k < 5000; k++) {
			put(&b, k, 0);
			take(&b, 0, NULL, &h[i]);
		}
		CU_ASSERT_FALSE(pbox_fault_line_passive(b.line));
		if (i == 0)
			lost = n(&b, PBOX_FAULT_N_lost);
		CU_ASSERT((lost == n(&b, PBOX_FAULT_N_lost)) == (i < 2));
		bed_close(&b);
	}
	UNIT_EQ_U64(h[0], h[1]);
	CU_ASSERT(h[0] != h[2]);
}

/* A seed set again starts again, also while faults are on; other settings do not. */
static void
test_again(void)
{
	uint32_t first[300], again[300], k[2];
	struct bed b;

	bed_open(&b, "seed=3,rx_loss=0.5", 64);
	for (uint32_t i = 0; i < 300; i++)
		put(&b, i, 0);
	k[0] = take(&b, 0, first, NULL);
	CU_ASSERT_TRUE(bed_set(&b, "seed=3"));
	for (uint32_t i = 0; i < 150; i++)
		put(&b, i, 0);
	CU_ASSERT_TRUE(bed_set(&b, "rx_dup=0,tx_loss=1"));
	for (uint32_t i = 150; i < 300; i++)
		put(&b, i, 0);
	k[1] = take(&b, 0, again, NULL);
	UNIT_EQ_U64(k[0], k[1]);
	CU_ASSERT_EQUAL(memcmp(first, again, k[0] * sizeof(first[0])), 0);
	bed_close(&b);
}

static void
test_times(void)
{
	uint32_t got[8];
	struct bed b;

	bed_open(&b, "rx_delay_us=100", 4);
	put(&b, 1, 1000);
	put(&b, 2, 500);
	UNIT_EQ_U64(take(&b, 100499, got, NULL), 0);
	UNIT_EQ_U64(take(&b, 100500, got, NULL), 1);
	UNIT_EQ_U64(got[0], 2);
	UNIT_EQ_U64(take(&b, 101000, got, NULL), 1);
	UNIT_EQ_U64(got[0], 1);
	/* no more than its limit, and only what can be kept */
	for (uint32_t i = 0; i < 6; i++)
		put(&b, i, 0);
	UNIT_EQ_U64(n(&b, PBOX_FAULT_N_overflow), 2);
	UNIT_EQ_U64(take(&b, UINT64_MAX, got, NULL), 4);
	put(&b, UINT32_MAX, 0);
	UNIT_EQ_U64(n(&b, PBOX_FAULT_N_overflow), 3);
	bed_conserves(&b);
	/* held for others, or for its time; what passes lets it go */
	CU_ASSERT_TRUE(bed_set(&b, "rx_delay_us=0,rx_reorder=1:1:50"));
	put(&b, 7, 0);
	CU_ASSERT_TRUE(bed_set(&b, "rx_reorder=0"));
	CU_ASSERT_FALSE(pbox_fault_line_passive(b.line));
	put(&b, 8, 0);
	UNIT_EQ_U64(take(&b, 0, got, NULL), 2);
	CU_ASSERT(got[0] == 8 && got[1] == 7);
	CU_ASSERT_TRUE(pbox_fault_line_passive(b.line));
	bed_close(&b);
}

static void
test_kinds(void)
{
	uint32_t got[64];
	struct bed b;

	bed_open(&b, "rx_blackhole=1", 64);
	put(&b, 1, 0);
	UNIT_EQ_U64(n(&b, PBOX_FAULT_N_blackholed), 1);
	CU_ASSERT_TRUE(bed_set(&b, "rx_blackhole=0,rx_mark=1,rx_target=2:10:09"));
	for (uint32_t i = 0; i < 10; i++) {
		put(&b, i, 0);
		put(&b, 9, 0);
	}
	UNIT_EQ_U64(take(&b, 0, got, NULL), 18);
	UNIT_EQ_U64(n(&b, PBOX_FAULT_N_target_dropped), 2);
	UNIT_EQ_U64(n(&b, PBOX_FAULT_N_marked), 4 + 9);
	/* without a buffer a duplicate is left out */
	CU_ASSERT_TRUE(bed_set(&b, "rx_mark=0,rx_target=0,rx_dup=1"));
	b.most = 1;
	put(&b, 1, 0);
	UNIT_EQ_U64(take(&b, 0, got, NULL), 1);
	UNIT_EQ_U64(n(&b, PBOX_FAULT_N_nombuf), 1);
	/* the ready ring says how much it takes, in two pieces where it wraps */
	b.most = UINT32_MAX;
	for (uint32_t i = 0; pbox_fault_line_room(b.line) >= 2; i++)
		put(&b, i, 0);
	CU_ASSERT(b.alive >= 1023);
	UNIT_EQ_U64(take(&b, 0, NULL, NULL), n(&b, PBOX_FAULT_N_duplicated) * 2);
	bed_close(&b);
}

static void
test_text(void)
{
	static const char *const wrong[] = {"", "rx_loss", "rx_loss=2", "rx_burst=0.1", "seed=x",
		"loss=0.1", "rx_target=1:2", "rx_mark=0.1:2", "rx_loss=0.1,rx_los=0.1"};
	char text[PBOX_FAULT_VALUE_MAX], why[128];
	struct bed b;

	bed_open(&b, "", 1);
	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		snprintf(text, sizeof(text), "%s", wrong[i]);
		why[0] = '\0';
		CU_ASSERT(pbox_fault_conf_each(text, set_one, &b, why, sizeof(why)) != 0);
		CU_ASSERT(why[0] != '\0');
	}
	CU_ASSERT_TRUE(bed_set(&b, "rx_gilbert=0.1:0.2,rx_target=3:4:aAbB/ff0f+9:01"));
	for (unsigned i = 0; pbox_fault_settings[i].key != NULL; i++) {
		const char *key = pbox_fault_settings[i].key;

		pbox_fault_conf_get(&b.conf[PBOX_FAULT_RX], i, text, sizeof(text));
		if (strcmp(key, "gilbert") == 0)
			CU_ASSERT_STRING_EQUAL(text, "0.1:0.2:1");
		if (strcmp(key, "target") == 0)
			CU_ASSERT_STRING_EQUAL(text, "3:4:aa0b/ff0f+9:01");
		if (strcmp(key, "loss") == 0)
			CU_ASSERT_STRING_EQUAL(text, "0.1"); /* of the last line above */
	}
	bed_close(&b);
}

const struct unit_test unit_tests[] = {
	{"the seed decides", test_seed},
	{"a seed set again", test_again},
	{"times and limits", test_times},
	{"kinds of faults", test_kinds},
	{"settings as text", test_text},
	{NULL, NULL},
};
