/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <rte_lcore.h>

#include "box.h"

/*
 * While the box serves, who has something to say puts it into a queue, and a thread of its own writes: a log that takes
 * nothing (a pipe whose reader stands still, a disk that hangs) stops that thread alone. What finds the queue full is
 * counted, and the count is written. Before and after that lines are written by who has them.
 */

#define LINES    512
#define LINE     1200
#define END_TIME 2 /* seconds that the last lines may take */

static FILE *to;

static struct {
	pthread_mutex_t lock;
	pthread_cond_t more, empty;
	pthread_t thread;
	bool on, ending,
		dead; /* dead: the log took nothing at the end, and nobody waits for it again */
	bool busy;
	char line[LINES][LINE];
	unsigned first, n;
	unsigned long long lost;
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER,
	.more = PTHREAD_COND_INITIALIZER,
	.empty = PTHREAD_COND_INITIALIZER};

static void
format(char *out, size_t cap, enum pbox_log_level level, const char *line)
{
	static const char *const name[] = {"error", "warning", "info", "debug"};
	struct timespec now;
	struct tm tm;
	char when[32], zone[8];

	clock_gettime(CLOCK_REALTIME, &now);
	localtime_r(&now.tv_sec, &tm);
	strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%S", &tm);
	strftime(zone, sizeof(zone), "%z", &tm); /* +0100 */
	snprintf(out, cap, "%s.%03ld%.3s:%s pbox %s: %s\n", when, now.tv_nsec / 1000000, zone,
		zone + 3, name[level], line);
}

/* Past stdio: who stands still in here would keep its lock, for which the end of the process waits. */
static void
log_put(const char *text)
{
	size_t left = strlen(text);

	while (left > 0) {
		ssize_t n = write(fileno(to), text, left);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return;
		text += n;
		left -= (size_t)n;
	}
}

static void *
writer(void *arg)
{
	char out[LINE], lost[128];

	(void)arg;
	pthread_mutex_lock(&queue.lock);
	while (queue.n > 0 || !queue.ending) {
		unsigned long long missing = queue.lost;

		if (queue.n == 0) {
			pthread_cond_wait(&queue.more, &queue.lock);
			continue;
		}
		memcpy(out, queue.line[queue.first], sizeof(out));
		queue.first = (queue.first + 1) % LINES;
		queue.n--;
		queue.lost = 0;
		queue.busy = true;
		pthread_mutex_unlock(&queue.lock);
		log_put(out);
		if (missing > 0) {
			snprintf(lost, sizeof(lost),
				"%llu lines were lost: the log took them too slowly", missing);
			format(out, sizeof(out), PBOX_LOG_WARN, lost);
			log_put(out);
		}
		pthread_mutex_lock(&queue.lock);
		queue.busy = false;
		if (queue.n == 0)
			pthread_cond_signal(&queue.empty);
	}
	pthread_mutex_unlock(&queue.lock);
	return NULL;
}

static void
log_sink(enum pbox_log_level level, const char *line, void *ctx)
{
	char out[LINE];
	bool now;

	(void)ctx;
	format(out, sizeof(out), level, line);
	pthread_mutex_lock(&queue.lock);
	now = !queue.on && !queue.dead;
	if (queue.on && queue.n < LINES) {
		memcpy(queue.line[(queue.first + queue.n++) % LINES], out, sizeof(out));
		pthread_cond_signal(&queue.more);
	} else if (queue.on) {
		queue.lost++;
	}
	pthread_mutex_unlock(&queue.lock);
	if (now) /* one call: lines of several threads stay whole */
		fputs(out, to);
}

int
log_begin(struct pbox_error *err)
{
	int ret = rte_ctrl_thread_create(&queue.thread, "pbox-log", NULL, writer, NULL);

	if (ret != 0)
		return pbox_fail(err, -ret, "the thread that writes the log does not start: %s",
			strerror(-ret));
	queue.on = true;
	return 0;
}

void
log_end(void)
{
	struct timespec until;
	int ret = 0;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += END_TIME;
	pthread_mutex_lock(&queue.lock);
	if (!queue.on) {
		pthread_mutex_unlock(&queue.lock);
		return;
	}
	queue.ending = true;
	pthread_cond_signal(&queue.more);
	while (ret == 0 && (queue.n > 0 || queue.busy))
		ret = pthread_cond_timedwait(&queue.empty, &queue.lock, &until);
	queue.on = false;
	queue.dead = ret != 0;
	pthread_mutex_unlock(&queue.lock);
	if (!queue.dead)
		pthread_join(queue.thread, NULL);
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
			pbox_log_to(log_sink, NULL, o->log_level);
			return pbox_fail(err, code, "log-file %s cannot be opened: %s", o->log_file,
				strerror(code));
		}
	}
	setvbuf(to, NULL, _IOLBF, 0);
	pbox_log_to(log_sink, NULL, o->log_level);
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
	if (to != NULL && to != stderr && !queue.dead)
		fclose(to);
}
