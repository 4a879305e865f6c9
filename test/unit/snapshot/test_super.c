/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Files that are no snapshots, or say of themselves what cannot be. */

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <pbox_wire.h>

#include "made.h"
#include "unit.h"

#define SUPER 4096

/* Change bytes of the first and of the last block, whose CRCs are right again. */
static void
bend(const struct made *t, unsigned at, unsigned bytes, uint64_t value)
{
	const uint64_t where[2] = {0, made_size(t) - SUPER};
	uint8_t b[SUPER];
	uint32_t crc;
	int fd = open(t->path, O_RDWR | O_CLOEXEC);

	CU_ASSERT_FATAL(fd >= 0);
	for (unsigned i = 0; i < 2; i++) {
		CU_ASSERT_FATAL(pread(fd, b, SUPER, (off_t)where[i]) == SUPER);
		for (unsigned k = 0; k < bytes; k++)
			b[at + k] = (uint8_t)(value >> 8 * k);
		crc = pbox_crc32c(0, b, SUPER - 4);
		for (unsigned k = 0; k < 4; k++)
			b[SUPER - 4 + k] = (uint8_t)(crc >> 8 * k);
		CU_ASSERT_FATAL(pwrite(fd, b, SUPER, (off_t)where[i]) == SUPER);
	}
	close(fd);
}

/* It is not opened, and the error names what is wrong. */
static void
refused(const char *path, const char *why)
{
	struct pbox_error err = {0, ""};
	struct pbox_snapshot_reader *r = pbox_snapshot_open(path, &err);

	CU_ASSERT_PTR_NULL(r);
	CU_ASSERT(strstr(err.text, why) != NULL);
	pbox_snapshot_close(r);
}

static void
sizes_are_bounded(void)
{
	static const struct {
		unsigned at, bytes;
		uint64_t value;
		const char *why;
	} wrong[] = {
		{0, 1, 'X', "no snapshot of PBox"},
		{8, 4, 0, "a snapshot of format 0"},
		{8, 4, PBOX_SNAPSHOT_VERSION + 1,
			"a snapshot of format 6, this program knows 1 to 5"},
		{12, 4, 0x04030201, "a snapshot of format 5"}, /* another byte order */
		{16, 4, 448, "the size of its blocks"},
		{16, 4, 513, "the size of its blocks"},
		{16, 4, (1u << 18) + 64, "the size of its blocks"},
		{20, 2, 0, "the blocks of a stripe"},
		{20, 2, PBOX_SNAPSHOT_DATA_MAX + 1, "the blocks of a stripe"},
		{22, 2, PBOX_SNAPSHOT_PARITY_MAX + 1, "the blocks of a stripe"},
		{24, 2, 0, "the size of a group"},
		{24, 2, 65, "the size of a group"},
		{28, 4, 60, "the size of a unit"},
		{28, 4, 66, "the size of a unit"},
		{28, 4, (1u << 20) + 4, "the size of a unit"},
		{32, 8, 0, "the length of its description"},
		{32, 8, (1u << 30) + 1, "the length of its description"},
		{40, 8, UINT64_MAX, "the length of its data"},
		{48, 8, UINT64_MAX, "the length of its data"},
		{84, 4, 0, "the length of its data"},
		{84, 4, UINT32_MAX, "the length of its data"},
		{151, 1, 'x', "the name of its job"},
		{152, 8, UINT64_MAX, "its sequence number"},
		{169, 1, 1, "its box of the job's boxes"},
		{169, 1, 17, "its box of the job's boxes"},
		{32, 8, 1u << 30, "cut off"},
	};

	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct pbox_error err = {0, ""};
		struct pbox_snapshot_file *f;
		struct made t;

		made_new(&t, 1000);
		CU_ASSERT_FATAL(made_write(&t, 4, 1, false, &err) == 0);
		bend(&t, wrong[i].at, wrong[i].bytes, wrong[i].value);
		refused(t.path, wrong[i].why);
		CU_ASSERT_PTR_NULL(pbox_snapshot_open(t.path, NULL)); /* who does not ask why */
		/* nor is it one to choose from, unless only its contents are too short */
		UNIT_EQ_U64(pbox_snapshot_list(t.dir, NULL, -1, &f, &err),
			strcmp(wrong[i].why, "cut off") == 0);
		free(f);
		made_free(&t);
	}
}

static void
no_files_of_ours(void)
{
	char path[PBOX_SNAPSHOT_PATH + 8];
	struct pbox_error err = {0, ""};
	struct made t;
	int fd;

	made_new(&t, 1000);
	CU_ASSERT_FATAL(made_write(&t, 4, 1, false, &err) == 0);
	refused("/nowhere/at/all", "/nowhere/at/all");
	refused(t.dir, "no regular file");
	snprintf(path, sizeof(path), "%s/x", t.dir);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	CU_ASSERT_FATAL(fd >= 0 && ftruncate(fd, 4095) == 0);
	refused(path, "too short for a snapshot: 4095 bytes");
	CU_ASSERT_FATAL(ftruncate(fd, 8192) == 0);
	refused(path, "no snapshot of PBox");
	close(fd);
	unlink(path);
	/* one damaged byte in both is not a matter of sizes */
	made_damage(&t, 100, 1);
	made_damage(&t, made_size(&t) - 100, 1);
	refused(t.path, "its first or last block is damaged");
	made_free(&t);
}

/* A table of another size than the description says, or arrays of another length. */
static void
what_it_says_of_its_data_holds(void)
{
	struct pbox_error err = {0, ""};
	struct made t;

	made_new(&t, 1000);
	CU_ASSERT_FATAL(made_write(&t, 4, 0, false, &err) == 0);
	bend(&t, 40, 8, t.bytes - 4);
	refused(t.path, "another length than its data");
	bend(&t, 40, 8, t.bytes - 4);
	bend(&t, 48, 8, t.bytes - 4);
	refused(t.path, "its data are not what it describes");
	made_free(&t);
}

/* Those of boxes that wrote no sequence come after all that have one, by the clock of then. */
static void
files_without_a_sequence_are_the_oldest(void)
{
	static const uint32_t order[] = {1, 3, 2};
	struct pbox_error err = {0, ""};
	struct pbox_snapshot_file *f;
	char path[PBOX_SNAPSHOT_PATH];
	struct made t;

	made_new(&t, 1000);
	for (uint32_t round = 2; round <= 3; round++) {
		t.m.round = round;
		t.m.created_ns = 5000 + round;
		CU_ASSERT_FATAL(made_write(&t, 4, 1, false, &err) == 0);
		bend(&t, 152, 8, 0);
		snprintf(
			path, sizeof(path), "%s/a%%2Fjob%%2E1.2.%010u.abcd1234.snap", t.dir, round);
		CU_ASSERT_FATAL(rename(t.path, path) == 0);
	}
	t.m.round = 1;
	t.m.created_ns = 10;
	CU_ASSERT_FATAL(made_write(&t, 4, 1, false, &err) == 0);
	CU_ASSERT_FATAL(pbox_snapshot_list(t.dir, NULL, -1, &f, &err) == 3);
	for (unsigned i = 0; i < 3; i++)
		UNIT_EQ_U64(f[i].round, order[i]);
	UNIT_EQ_U64(f[0].sequence, 1);
	UNIT_EQ_U64(f[1].sequence, 0);
	free(f);
	made_free(&t);
}

#define FIXED (PBOX_SNAPSHOT_NAME + 64) /* of the description; and what is of boxes after it */
#define BOXES 8

/* Entries of an older format have fewer hyper-parameters. */
static void
older_format_is_read(uint32_t version, unsigned hypers)
{
	struct pbox_snapshot_reader *r;
	struct pbox_snapshot_written done;
	struct pbox_snapshot_report rep;
	struct pbox_error err = {0, ""};
	struct made t;
	size_t len, entry = 12 + 8 * PBOX_SNAPSHOT_HYPERS,
		    less = 8 * (PBOX_SNAPSHOT_HYPERS - hypers);
	uint8_t *meta;

	made_new(&t, 1000);
	meta = pbox_snapshot_meta_encode(&t.m, &len);
	CU_ASSERT_FATAL(meta != NULL && t.m.n_entries == 2);
	/* nor do they say anything of boxes */
	memmove(meta + FIXED, meta + FIXED + BOXES, len - FIXED - BOXES);
	len -= BOXES;
	memmove(meta + len - entry - less, meta + len - entry, entry - less);
	{
		const struct pbox_snapshot_write w = {.dir = t.dir,
			.meta = &t.m,
			.meta_bytes = meta,
			.meta_len = len - 2 * less,
			.data = t.data,
			.stripe_data = 4,
			.stripe_parity = 1};

		CU_ASSERT_FATAL(pbox_snapshot_write(&w, &done, &err) == 0);
	}
	free(meta);
	snprintf(t.path, sizeof(t.path), "%s", done.path);
	refused(t.path, "the description");
	bend(&t, 8, 4, version);
	/* it stays what it is when it is rebuilt */
	made_damage(&t, SUPER + 100, 1);
	CU_ASSERT_FATAL(pbox_snapshot_repair(t.path, &rep, &err) == 0);
	UNIT_EQ_U64(rep.damaged, 1);
	r = pbox_snapshot_open(t.path, &err);
	CU_ASSERT_FATAL(r != NULL);
	for (unsigned i = 0; i < 2; i++) {
		const struct pbox_snapshot_entry *e = &pbox_snapshot_meta(r)->entry[i];

		UNIT_EQ_U64(e->from_round, t.m.entry[i].from_round);
		UNIT_EQ_U64(e->group, i);
		CU_ASSERT(memcmp(e->value, t.m.entry[i].value, 8 * hypers) == 0);
		for (unsigned k = hypers; k < PBOX_SNAPSHOT_HYPERS; k++)
			CU_ASSERT(e->value[k] == 0);
	}
	pbox_snapshot_close(r);
	made_free(&t);
}

static void
older_formats_are_read(void)
{
	older_format_is_read(1, 8);
	older_format_is_read(2, 9);
	older_format_is_read(3, 9);
	older_format_is_read(4, 13);
}

static void
what_cannot_be_written(void)
{
	static const struct {
		unsigned data, parity;
	} wrong[] = {{0, 1}, {PBOX_SNAPSHOT_DATA_MAX + 1, 1}, {4, PBOX_SNAPSHOT_PARITY_MAX + 1}};

	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		struct pbox_error err = {0, ""};
		struct pbox_snapshot_file *f;
		struct made t;

		made_new(&t, 100);
		UNIT_EQ_U64(made_write(&t, wrong[i].data, wrong[i].parity, false, &err),
			(unsigned long long)-EINVAL);
		CU_ASSERT(strstr(err.text, "stripes of") != NULL);
		UNIT_EQ_U64(pbox_snapshot_list(t.dir, NULL, -1, &f, &err), 0);
		free(f);
		made_free(&t);
	}
}

const char unit_suite[] = "snapshot super";
const struct unit_test unit_tests[] = {
	{"all sizes have bounds", sizes_are_bounded},
	{"what is no snapshot", no_files_of_ours},
	{"what it says of its data holds", what_it_says_of_its_data_holds},
	{"files without a sequence are the oldest", files_without_a_sequence_are_the_oldest},
	{"older formats are read", older_formats_are_read},
	{"what cannot be written", what_cannot_be_written},
	{0},
};
