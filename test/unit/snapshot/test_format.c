/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "made.h"
#include "unit.h"

#define SUPER   4096
#define BLOCK   16384
#define PAYLOAD (BLOCK - 32)
#define STRIPES 16

static void
round_trips(void)
{
	static const uint64_t sizes[] = {1, 353, 100000, 700000};

	for (unsigned i = 0; i < 4; i++)
		for (unsigned way = 0; way < 4; way++) {
			struct pbox_snapshot_report rep;
			struct pbox_error err = {0};
			struct made t;

			made_new(&t, sizes[i]);
			UNIT_EQ_U64(
				made_write(&t, way & 1 ? 4 : 16, way & 1 ? 0 : 2, way & 2, &err),
				0);
			UNIT_EQ_U64(made_compare(&t, &rep, &err), 0);
			UNIT_EQ_U64(rep.damaged, 0);
			UNIT_EQ_U64(rep.blocks, (made_size(&t) - 2 * SUPER) / BLOCK);
			made_free(&t);
		}
}

static void
compression_helps_and_can_be_read(void)
{
	struct pbox_error err = {0};
	struct made t;
	uint64_t plain;

	made_new(&t, 500000);
	CU_ASSERT_FATAL(made_write(&t, 16, 2, false, &err) == 0);
	plain = made_size(&t);
	CU_ASSERT_FATAL(made_write(&t, 16, 2, true, &err) == 0);
	CU_ASSERT(made_size(&t) < plain * 8 / 10);
	made_free(&t);
}

/* Every block alone, data and parity; then the file is as new. */
static void
each_block_is_rebuilt(void)
{
	struct pbox_snapshot_report rep;
	struct pbox_error err = {0};
	struct made t;
	uint64_t blocks;

	made_new(&t, 30000);
	CU_ASSERT_FATAL(made_write(&t, 4, 1, true, &err) == 0);
	blocks = (made_size(&t) - 2 * SUPER) / BLOCK;
	CU_ASSERT(blocks > 10);
	for (uint64_t i = 0; i < blocks; i++) {
		made_damage(&t, SUPER + i * BLOCK + i * 97 % BLOCK / 32 * 32, 16);
		UNIT_EQ_U64(made_compare(&t, &rep, &err), 0);
		if (i * 97 % BLOCK >= 32) /* the reserved bytes of a head are nobody's */
			UNIT_EQ_U64(rep.damaged, 1);
		UNIT_EQ_U64(pbox_snapshot_repair(t.path, &rep, &err), 0);
		UNIT_EQ_U64(made_compare(&t, &rep, &err), 0);
		UNIT_EQ_U64(rep.damaged, 0);
	}
	made_free(&t);
}

static void
a_burst_hits_different_stripes(void)
{
	struct pbox_snapshot_report rep;
	struct pbox_error err = {0};
	struct made t;

	made_new(&t, 700000);
	CU_ASSERT_FATAL(made_write(&t, 16, 2, false, &err) == 0);
	/* parity x stripes blocks in a row, at an odd place of the first group, across its data */
	made_damage(&t, SUPER + 37 * BLOCK, 2 * STRIPES * BLOCK);
	UNIT_EQ_U64(made_compare(&t, &rep, &err), 0);
	UNIT_EQ_U64(rep.damaged, 2 * STRIPES);
	/* one block more is more than a stripe can bear */
	made_damage(&t, SUPER + 69 * BLOCK + 100, 1);
	UNIT_EQ_U64(made_compare(&t, &rep, &err), (unsigned long long)-EIO);
	UNIT_EQ_U64(rep.lost, 3);
	CU_ASSERT(strstr(err.text, "3 of them") != NULL);
	/* what was lost is what lay there, and no more: units touch neighbours */
	CU_ASSERT(rep.lost_bytes >= 3 * PAYLOAD && rep.lost_bytes <= 3 * 2 * 65536);
	UNIT_EQ_U64(pbox_snapshot_repair(t.path, &rep, &err), (unsigned long long)-EIO);
	made_free(&t);
}

static void
supers_stand_for_each_other(void)
{
	struct pbox_snapshot_report rep;
	struct pbox_error err = {0};
	struct made t;

	made_new(&t, 10000);
	CU_ASSERT_FATAL(made_write(&t, 16, 2, false, &err) == 0);
	made_damage(&t, 0, SUPER);
	UNIT_EQ_U64(made_compare(&t, &rep, &err), 0);
	UNIT_EQ_U64(rep.supers_damaged, 1);
	UNIT_EQ_U64(pbox_snapshot_repair(t.path, &rep, &err), 0);
	made_damage(&t, made_size(&t) - 10, 1);
	UNIT_EQ_U64(made_compare(&t, &rep, &err), 0);
	UNIT_EQ_U64(rep.supers_damaged, 1);
	made_damage(&t, 10, 1);
	UNIT_EQ_U64(made_compare(&t, &rep, &err), (unsigned long long)-EINVAL);
	made_free(&t);
}

/* As much as parity bears may be missing at the end; beyond that it is said, and nothing crashes. */
static void
truncated_at_every_block(void)
{
	struct pbox_snapshot_report rep;
	struct pbox_error err = {0};
	uint64_t size;
	struct made t;

	made_new(&t, 200000);
	CU_ASSERT_FATAL(made_write(&t, 16, 2, false, &err) == 0);
	size = made_size(&t);
	while (size > 5000) {
		uint64_t gone, whole = size;

		size = size > BLOCK ? size - BLOCK : 4999;
		CU_ASSERT(truncate(t.path, (off_t)size) == 0);
		err.text[0] = '\0';
		if (made_compare(&t, &rep, &err) != 0) {
			CU_ASSERT(err.text[0] != '\0');
			/* the last parity blocks, and the closing block, were not needed */
			gone = rep.damaged;
			CU_ASSERT(gone == 0 || gone > STRIPES || whole < 5000);
		} else {
			CU_ASSERT(rep.damaged <= 2 * STRIPES && rep.supers_damaged == 1);
		}
	}
	made_free(&t);
}

static int
stop(void *ctx, uint64_t at, const uint8_t *bytes, size_t len)
{
	(void)at;
	(void)bytes;
	(void)len;
	return --*(int *)ctx == 0 ? 77 : 0;
}

static void
the_sink_ends_the_reading(void)
{
	struct pbox_snapshot_reader *r;
	struct pbox_snapshot_report rep;
	struct pbox_error err = {0};
	struct made t;
	int left = 3;

	made_new(&t, 200000);
	CU_ASSERT_FATAL(made_write(&t, 16, 2, false, &err) == 0);
	r = pbox_snapshot_open(t.path, &err);
	CU_ASSERT_FATAL(r != NULL);
	UNIT_EQ_U64(pbox_snapshot_read(r, stop, &left, &rep, &err), 77);
	UNIT_EQ_U64(left, 0);
	pbox_snapshot_close(r);
	made_free(&t);
}

/* Descriptions that contradict themselves: each byte changed, each length. None is to crash, and what
 * is accepted can be written again as it was. */
/* The part of box 1 of 3: its three chunks are 1, 2 and 4 of the table's five. */
static void
made_part(struct made *t)
{
	static const uint8_t box[] = {0, 1, 1, 2, 1};

	free(t->m.home);
	t->m.home = calloc(5, sizeof(*t->m.home));
	CU_ASSERT_PTR_NOT_NULL_FATAL(t->m.home);
	t->m.box = 1;
	t->m.boxes = 3;
	t->m.map_epoch = 7;
	t->m.n_homes = 5;
	for (unsigned i = 0; i < 5; i++)
		t->m.home[i] = (struct pbox_snapshot_home){box[i], (uint16_t)(1 + i)};
}

static int
decoded(struct made *t, struct pbox_snapshot_meta *m)
{
	struct pbox_error err;
	size_t len;
	uint8_t *meta = pbox_snapshot_meta_encode(&t->m, &len);
	int ret;

	CU_ASSERT_PTR_NOT_NULL_FATAL(meta);
	ret = pbox_snapshot_meta_decode(m, PBOX_SNAPSHOT_VERSION, meta, len, &err);
	free(meta);
	return ret;
}

static void
boxes_are_described(void)
{
	struct pbox_snapshot_meta m;
	struct pbox_snapshot_file *f = NULL;
	struct pbox_error err = {0, ""};
	struct made t;

	made_new(&t, 5000);
	made_part(&t);
	CU_ASSERT_EQUAL_FATAL(decoded(&t, &m), 0);
	CU_ASSERT(m.box == 1 && m.boxes == 3 && m.map_epoch == 7 && m.n_homes == 5);
	for (unsigned i = 0; i < 5; i++)
		CU_ASSERT(m.home[i].box == t.m.home[i].box && m.home[i].epoch == 1 + i);
	pbox_snapshot_meta_free(&m);
	CU_ASSERT_EQUAL_FATAL(made_write(&t, 4, 1, false, &err), 0);
	UNIT_EQ_U64(pbox_snapshot_list(t.dir, NULL, -1, &f, &err), 1);
	CU_ASSERT(f != NULL && f[0].box == 1 && f[0].boxes == 3);
	free(f);
	t.m.home[0].box = 1; /* a chunk more than are described */
	CU_ASSERT_EQUAL(decoded(&t, &m), -EINVAL);
	t.m.home[0].box = 3; /* a box that there is not */
	CU_ASSERT_EQUAL(decoded(&t, &m), -EINVAL);
	t.m.home[0].box = 0;
	t.m.box = 3;
	CU_ASSERT_EQUAL(decoded(&t, &m), -EINVAL);
	t.m.box = 1;
	t.m.boxes = PBOX_SNAPSHOT_BOXES_MAX + 1;
	CU_ASSERT_EQUAL(decoded(&t, &m), -EINVAL);
	t.m.boxes = 0; /* homes of a job at one box */
	CU_ASSERT_EQUAL(decoded(&t, &m), -EINVAL);
	made_free(&t);
}

static void
descriptions_are_checked(void)
{
	struct pbox_snapshot_meta m;
	struct pbox_error err;
	struct made t;
	uint8_t *good, *bad;
	size_t len, again;

	made_new(&t, 5000);
	made_part(&t);
	good = pbox_snapshot_meta_encode(&t.m, &len);
	CU_ASSERT_FATAL(good != NULL);
	for (size_t i = 0; i < len; i++) {
		UNIT_EQ_U64(
			pbox_snapshot_meta_decode(&m, PBOX_SNAPSHOT_VERSION, good, i, &err) == 0,
			0);
		bad = malloc(len);
		memcpy(bad, good, len);
		bad[i] ^= 0xff;
		if (pbox_snapshot_meta_decode(&m, PBOX_SNAPSHOT_VERSION, bad, len, &err) == 0) {
			uint8_t *x = pbox_snapshot_meta_encode(&m, &again);

			UNIT_EQ_U64(again, len);
			free(x);
			pbox_snapshot_meta_free(&m);
		}
		free(bad);
	}
	free(good);
	made_free(&t);
}

static void
pieces_are_found(void)
{
	struct pbox_snapshot_piece *p;
	struct made t;

	made_new(&t, 5000);
	p = pbox_snapshot_pieces(&t.m);
	CU_ASSERT_FATAL(p != NULL);
	UNIT_EQ_U64(pbox_snapshot_piece_at(p, 3, 0)->tensor, 0);
	UNIT_EQ_U64(pbox_snapshot_piece_at(p, 3, 1999)->tensor, 0);
	UNIT_EQ_U64(pbox_snapshot_piece_at(p, 3, 2000)->tensor, 1);
	UNIT_EQ_U64(pbox_snapshot_piece_at(p, 3, 2030)->tensor, 2);
	UNIT_EQ_U64(pbox_snapshot_piece_at(p, 3, 7029)->tensor, 2);
	CU_ASSERT_PTR_NULL(pbox_snapshot_piece_at(p, 3, 7030));
	free(p);
	made_free(&t);
}

const char unit_suite[] = "snapshot format";
const struct unit_test unit_tests[] = {
	{"what was written is read, with and without parity and compression", round_trips},
	{"compression", compression_helps_and_can_be_read},
	{"each damaged block is rebuilt and repaired", each_block_is_rebuilt},
	{"a burst within parity x stripes is rebuilt, beyond it is named",
		a_burst_hits_different_stripes},
	{"first and last block replace each other", supers_stand_for_each_other},
	{"cut off at every block", truncated_at_every_block},
	{"the sink ends the reading", the_sink_ends_the_reading},
	{"the part of one box of several", boxes_are_described},
	{"descriptions are checked byte by byte", descriptions_are_checked},
	{"pieces of tensors", pieces_are_found},
	{0},
};
