/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "box.h"

static FILE *to;

static void
sink(enum pbox_log_level level, const char *line, void *ctx)
{
	static const char *const name[] = {"error", "warning", "info", "debug"};
	struct timespec now;
	struct tm tm;
	char when[32];

	(void)ctx;
	clock_gettime(CLOCK_REALTIME, &now);
	localtime_r(&now.tv_sec, &tm);
	strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%S", &tm);
	/* one call: lines of several threads stay whole */
	fprintf(to, "%s.%03ld pbox %s: %s\n", when, now.tv_nsec / 1000000, name[level], line);
}

int
log_open(const struct pbox_options *o, struct pbox_error *err)
{
	to = stderr;
	if (o->log_file[0] != '\0') {
		to = fopen(o->log_file, "ae");
		if (to == NULL) {
			int code = errno;

			to = stderr;
			pbox_log_to(sink, NULL, o->log_level);
			return pbox_fail(err, code, "log-file %s cannot be opened: %s", o->log_file,
				strerror(code));
		}
	}
	setvbuf(to, NULL, _IOLBF, 0);
	pbox_log_to(sink, NULL, o->log_level);
	return 0;
}

void
log_reopen(const struct pbox_options *o)
{
	int fd;

	if (to == NULL || to == stderr)
		return;
	fd = open(o->log_file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
	/* at once for all threads that log */
	if (fd < 0 || dup3(fd, fileno(to), O_CLOEXEC) < 0)
		pbox_log(PBOX_LOG_WARN,
			"log-file %s cannot be opened again: %s; the old one is kept", o->log_file,
			strerror(errno));
	if (fd >= 0)
		close(fd);
}

void
log_close(void)
{
	pbox_log_to(NULL, NULL, PBOX_LOG_ERROR);
	if (to != NULL && to != stderr)
		fclose(to);
}
