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
		{8, 4, 2, "a snapshot of format 2"},
		{12, 4, 0x04030201, "a snapshot of format 1"}, /* another byte order */
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
	{"what cannot be written", what_cannot_be_written},
	{0},
};
