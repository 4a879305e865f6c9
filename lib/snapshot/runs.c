/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Numbers of runs begin with a clock, which may be set back: what is remembered of them is beside the snapshots. */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "snapshot_impl.h"

/* More than a box gives before it is started again: a second of its clock. */
#define RUNS (UINT64_C(1) << 20)
/* As far as a clock may have been set back: 136 years. */
#define RUNS_AHEAD (UINT64_C(1) << 52)

/* Raises *first above those of boxes before, if there were any. */
static int
runs_read(const char *path, uint64_t *first, struct pbox_error *err)
{
	FILE *f = fopen(path, "re");
	int code = errno, n;
	uint64_t next = 0;
	char end = 0;

	if (f == NULL)
		return code == ENOENT
			       ? 0
			       : pbox_fail(err, code, "cannot read %s: %s", path, strerror(code));
	n = fscanf(f, "%20" SCNu64 "%c", &next, &end);
	fclose(f);
	if (n == 2 && end == '\n' && (next <= *first || next - *first <= RUNS_AHEAD)) {
		*first = next > *first ? next : *first;
		return 0;
	}
	return pbox_fail(err, EINVAL, "%s is no number of a run", path);
}

int
pbox_snapshot_runs(const char *dir, uint64_t *first, struct pbox_error *err)
{
	char path[PBOX_SNAPSHOT_PATH], line[24];
	int n = snprintf(path, sizeof(path), "%s/runs", dir), ret, wrote;
	struct pbox_error later;
	struct draft d = {.fd = -1};

	if (n < 0 || (size_t)n >= sizeof(path))
		return pbox_fail(err, ENAMETOOLONG, "the name of directory %s is too long", dir);
	ret = runs_read(path, first, err);
	n = snprintf(line, sizeof(line), "%" PRIu64 "\n", *first + RUNS);
	wrote = write_open(&d, path, &later);
	/* who the box becomes reads it when it starts the next one */
	if (wrote == 0 && fchmod(d.fd, 0644) != 0)
		wrote = pbox_fail(&later, errno, "%s cannot be made readable", path);
	if (wrote == 0)
		wrote = write_all(&d, line, (size_t)n, &later);
	if (wrote == 0)
		wrote = write_commit(&d, dir, path, &later);
	write_drop(&d);
	if (ret == 0 && wrote != 0)
		*err = later;
	return ret != 0 ? ret : wrote;
}
