/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "snapshot_impl.h"

#define WISH_ROUND "round "
static int
wish_path(char *out, size_t size, const char *dir, const char *job, struct pbox_error *err)
{
	char name[3 * PBOX_SNAPSHOT_NAME];
	int n;

	if (strlen(job) >= PBOX_SNAPSHOT_NAME)
		return pbox_fail(err, EINVAL, "no job has a name as long as that");
	store_escape(name, job);
	n = snprintf(out, size, "%s/%s" STORE_WISH, dir, name);
	if (n < 0 || (size_t)n >= size)
		return pbox_fail(err, ENAMETOOLONG, "the name of directory %s is too long", dir);
	return 0;
}

int
pbox_snapshot_wish(const char *dir, const char *job, const uint32_t *round, struct pbox_error *err)
{
	char path[PBOX_SNAPSHOT_PATH];
	struct draft d = {.fd = -1};
	char text[32];
	int ret = wish_path(path, sizeof(path), dir, job, err);

	if (ret == 0)
		ret = write_open(&d, path, err);
	if (ret == 0 && round != NULL) {
		snprintf(text, sizeof(text), WISH_ROUND "%" PRIu32 "\n", *round);
		ret = write_all(&d, text, strlen(text), err);
		if (ret != 0)
			write_drop(&d);
	}
	return ret == 0 ? write_commit(&d, dir, path, err) : ret;
}

int
pbox_snapshot_wish_end(const char *dir, const char *job, struct pbox_error *err)
{
	char path[PBOX_SNAPSHOT_PATH];
	int ret = wish_path(path, sizeof(path), dir, job, err);

	if (ret != 0)
		return ret;
	if (unlink(path) != 0) {
		int code = errno;

		return code == ENOENT
			       ? 0
			       : pbox_fail(err, code, "cannot remove %s: %s", path, strerror(code));
	}
	return write_sync_dir(dir, err);
}

static int
digit(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The job's name from that of a file, if the box would have given it that one. */
static bool
unescape(char job[PBOX_SNAPSHOT_NAME], const char *file)
{
	size_t len = strlen(file), end = sizeof(STORE_WISH) - 1, n = 0;
	char again[3 * PBOX_SNAPSHOT_NAME];

	if (len <= end || strcmp(file + len - end, STORE_WISH) != 0)
		return false;
	for (size_t i = 0; i < len - end; i++) {
		int c = (unsigned char)file[i];

		if (n == PBOX_SNAPSHOT_NAME - 1)
			return false;
		if (c == '%') {
			if (i + 2 >= len - end || digit(file[i + 1]) < 0 || digit(file[i + 2]) < 0)
				return false;
			c = digit(file[i + 1]) << 4 | digit(file[i + 2]);
			i += 2;
		}
		job[n++] = (char)c;
	}
	job[n] = '\0';
	store_escape(again, job);
	return strncmp(again, file, len - end) == 0 && again[len - end] == '\0';
}

/* Of boxes that knew no rounds here it is empty. */
static void
read_round(DIR *d, const char *file, struct pbox_snapshot_wished *out)
{
	int fd = openat(dirfd(d), file, O_RDONLY | O_CLOEXEC);
	char text[32];
	ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);

	text[n > 0 ? n : 0] = '\0';
	out->exact = sscanf(text, WISH_ROUND "%" SCNu32, &out->round) == 1;
	if (fd >= 0)
		close(fd);
}

unsigned
pbox_snapshot_wishes(const char *dir, struct pbox_snapshot_wished *out, unsigned max)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	unsigned n = 0;

	while (d != NULL && n < max && (e = readdir(d)) != NULL)
		if (unescape(out[n].job, e->d_name))
			read_round(d, e->d_name, &out[n++]);
	if (d != NULL)
		closedir(d);
	return n;
}
