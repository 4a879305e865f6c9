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
#include <rte_log.h>

#include "box.h"

/*
 * The log of the daemon. All lines go through DPDK's logging: PBox's with a type of their own, so that EAL's
 * --log-level=pbox:debug concerns them alone, and EAL's and the drivers' lines get the same time and queue.
 *
 * While the box serves, lines go into a queue, and a thread of its own writes them: a log that takes nothing (a pipe
 * without a reader, a disk that hangs) stops that thread alone. Lines that find the queue full are counted, and the
 * count is written. Before and after that, the thread that has a line writes it.
 */

#define LINES    512
#define LINE     1200
#define END_TIME 2 /* seconds that the last lines may take */

RTE_LOG_REGISTER(pbox_logtype, pbox, INFO);

static FILE *to;
static FILE *stream; /* where DPDK writes its lines: dpdk_line() gets them */

static char eal_error[256]; /* EAL's first one */

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

static uint32_t
dpdk_level(enum pbox_log_level level)
{
	static const uint32_t of[] = {RTE_LOG_ERR, RTE_LOG_WARNING, RTE_LOG_INFO, RTE_LOG_DEBUG};

	return of[level];
}

static void
format(char *out, size_t cap, const char *who, uint32_t level, const char *line)
{
	/* of RTE_LOG_EMERG, 1, and so on */
	static const char *const name[] = {"", "emergency", "alert", "critical", "error", "warning",
		"notice", "info", "debug"};
	struct timespec now;
	struct tm tm;
	char when[32], zone[8];

	clock_gettime(CLOCK_REALTIME, &now);
	localtime_r(&now.tv_sec, &tm);
	strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%S", &tm);
	strftime(zone, sizeof(zone), "%z", &tm); /* +0100 */
	snprintf(out, cap, "%s.%03ld%.3s:%s %s %s: %s\n", when, now.tv_nsec / 1000000, zone,
		zone + 3, who, level < RTE_DIM(name) ? name[level] : "", line);
}

/* Not by stdio: a thread that hangs in here would keep its lock, and the end of the process waits for that. */
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
writer(void *arg __rte_unused)
{
	char out[LINE], lost[128];

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
			format(out, sizeof(out), "pbox", RTE_LOG_WARNING, lost);
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
log_line(const char *who, uint32_t level, const char *line)
{
	char out[LINE];
	bool now;

	format(out, sizeof(out), who, level, line);
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

/* Why EAL does not start: its last lines say only that it does not. */
static void
note_error(const char *line)
{
	static const char who[] = "EAL: ";

	if (eal_error[0] != '\0' || rte_log_cur_msg_logtype() == pbox_logtype ||
		rte_log_cur_msg_loglevel() > (int)RTE_LOG_ERR)
		return;
	if (strncmp(line, who, sizeof(who) - 1) == 0)
		line += sizeof(who) - 1;
	snprintf(eal_error, sizeof(eal_error), "%.*s", (int)sizeof(eal_error) - 1, line);
}

const char *
log_error_of_eal(void)
{
	return eal_error;
}

/* What DPDK writes, with the stream's lock: PBox's lines and others, in pieces of any length. */
static ssize_t
dpdk_line(void *cookie __rte_unused, const char *text, size_t n)
{
	static char line[LINE];
	static size_t used;

	for (size_t i = 0; i < n; i++) {
		if (text[i] != '\n') {
			if (used < sizeof(line) - 1)
				line[used++] = text[i];
			continue;
		}
		line[used] = '\0';
		note_error(line);
		if (used > 0)
			log_line(rte_log_cur_msg_logtype() == pbox_logtype ? "pbox" : "dpdk",
				(uint32_t)rte_log_cur_msg_loglevel(), line);
		used = 0;
	}
	return (ssize_t)n;
}

static void
log_sink(enum pbox_log_level level, const char *line, void *ctx __rte_unused)
{
	rte_log(dpdk_level(level), (uint32_t)pbox_logtype, "%s\n", line);
}

/* PBox's own level changes: DPDK's level of its type does, too. */
static void
log_level_changed(enum pbox_log_level max)
{
	rte_log_set_level((uint32_t)pbox_logtype, dpdk_level(max));
}

void
log_level_of_eal(void)
{
	int level = rte_log_get_level((uint32_t)pbox_logtype);

	pbox_log_level(level >= (int)RTE_LOG_DEBUG     ? PBOX_LOG_DEBUG
		       : level >= (int)RTE_LOG_NOTICE  ? PBOX_LOG_INFO
		       : level >= (int)RTE_LOG_WARNING ? PBOX_LOG_WARN
						       : PBOX_LOG_ERROR);
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
	static const cookie_io_functions_t io = {.write = dpdk_line};
	int code = 0;

	to = stderr;
	if (o->log_file[0] != '\0') {
		to = fopen(o->log_file, "ae");
		if (to == NULL) {
			code = errno;
			to = stderr;
		}
	}
	setvbuf(to, NULL, _IOLBF, 0);
	stream = fopencookie(NULL, "w", io);
	if (stream == NULL)
		return pbox_fail(err, ENOMEM, "no memory for the log");
	setvbuf(stream, NULL, _IOLBF, 0);
	rte_openlog_stream(stream);
	pbox_log_to(log_sink, NULL, o->log_level);
	pbox_log_follow(log_level_changed);
	return code == 0 ? 0
			 : pbox_fail(err, code, "log-file %s cannot be opened: %s", o->log_file,
				   strerror(code));
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
	pbox_log_follow(NULL);
	pbox_log_to(NULL, NULL, PBOX_LOG_ERROR);
	rte_openlog_stream(NULL);
	if (stream != NULL)
		fclose(stream);
	if (to != NULL && to != stderr && !queue.dead)
		fclose(to);
}
