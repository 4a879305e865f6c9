/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

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
log_close(void)
{
	pbox_log_to(NULL, NULL, PBOX_LOG_ERROR);
	if (to != NULL && to != stderr)
		fclose(to);
}
