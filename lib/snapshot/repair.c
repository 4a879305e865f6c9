/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <libgen.h>
#include <stdio.h>

#include "snapshot_impl.h"

static int
rewrite(struct pbox_snapshot_reader *r, struct draft *d, struct pbox_error *err)
{
	struct pbox_snapshot_report report = {0};
	uint8_t super[FORMAT_SUPER];
	int ret;

	super_encode(super, &r->s);
	ret = write_all(d, super, sizeof(super), err);
	for (uint64_t g = 0; ret == 0 && g < r->plan.groups; g++) {
		struct group group;

		if (read_group(r, g, &group, &report) > 0)
			return pbox_fail(err, EIO, "%s: it is damaged further", r->name);
		parity_encode(r->parity, &group, r->blocks);
		for (uint32_t i = 0; i < group.blocks; i++)
			super_stamp(&r->s, group.disk + i, r->blocks + (size_t)i * r->s.block);
		ret = write_all(d, r->blocks, (size_t)group.blocks * r->s.block, err);
	}
	return ret == 0 ? write_all(d, super, sizeof(super), err) : ret;
}

int
pbox_snapshot_repair(const char *path, struct pbox_snapshot_report *report, struct pbox_error *err)
{
	struct pbox_snapshot_reader *r = pbox_snapshot_open(path, err);
	char dir[PBOX_SNAPSHOT_PATH];
	struct draft d = {.fd = -1};
	int ret;

	*report = (struct pbox_snapshot_report){0};
	if (r == NULL)
		return err != NULL && err->code > 0 ? -err->code : -EIO;
	ret = pbox_snapshot_read(r, NULL, NULL, report, err);
	if (ret == 0 &&
		(report->damaged > 0 || report->supers_damaged > 0 || r->size != r->plan.file)) {
		snprintf(dir, sizeof(dir), "%s", path);
		ret = write_open(&d, path, err);
		if (ret == 0)
			ret = rewrite(r, &d, err);
		if (ret == 0)
			ret = write_commit(&d, dirname(dir), path, err);
		else
			write_drop(&d);
	}
	pbox_snapshot_close(r);
	return ret;
}
