/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "relay.h"

#define ANSWER_MS 100 /* a reader that takes longer loses its console, not the relay its time */

/* Text that grows up to its end. */
struct text {
	char *at;
	size_t n;
};

static void __attribute__((format(printf, 2, 3))) add(struct text *t, const char *format, ...)
{
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(t->at, t->n, format, args);
	va_end(args);
	n = n < 0 ? 0 : (size_t)n < t->n ? n : (int)t->n - 1;
	t->at += n;
	t->n -= (size_t)n;
}

static void
write_settings(const struct relay *r, struct text *t)
{
	char value[PBOX_FAULT_VALUE_MAX];

	add(t, "{\"seed\": \"%" PRIu64 "\"", r->o.conf[PBOX_FAULT_RX].seed);
	for (int d = 0; d < PBOX_FAULT_DIRS; d++) {
		const char *dir = d == PBOX_FAULT_RX ? "rx" : "tx";

		for (unsigned i = 0; pbox_fault_settings[i].key != NULL; i++) {
			pbox_fault_conf_get(&r->o.conf[d], i, value, sizeof(value));
			add(t, ", \"%s_%s\": \"%s\"", dir, pbox_fault_settings[i].key, value);
		}
		add(t, ", \"%s_target_left\": \"%" PRIu32 "\"", dir, r->target_left[d]);
	}
	add(t, "}\n");
}

void
console_counters(const struct relay *r, char *text, size_t n)
{
	struct text t = {text, n};

	add(&t, "{\"flows\": %u", sockets_flows(r));
	for (int d = 0; d < PBOX_FAULT_DIRS; d++) {
		const char *dir = d == PBOX_FAULT_RX ? "rx" : "tx";
		const struct counts *c = &r->n[d];

		add(&t, ", \"%s_in\": %" PRIu64 ", \"%s_out\": %" PRIu64, dir, c->in, dir, c->out);
		add(&t, ", \"%s_unsent\": %" PRIu64 ", \"%s_refused\": %" PRIu64, dir, c->unsent,
			dir, c->refused);
		add(&t, ", \"%s_missed\": %" PRIu64, dir,
			sockets_missed(r, (enum pbox_fault_dir)d));
		for (unsigned i = 0; i < PBOX_FAULT_COUNTER_MAX; i++)
			if (i != PBOX_FAULT_N_copied) /* no datagram here is shared */
				add(&t, ", \"%s_%s\": %" PRIu64, dir, pbox_fault_counter_names[i],
					pbox_fault_line_count(
						r->line[d], (enum pbox_fault_counter)i));
		add(&t, ", \"%s_held\": %" PRIu32, dir, pbox_fault_line_waiting(r->line[d]));
	}
	add(&t, "}\n");
}

static int
set_one(void *ctx, const char *key, const char *value, char *why, size_t n)
{
	struct relay *r = ctx;
	struct pbox_fault_conf *const side[] = {
		&r->o.conf[PBOX_FAULT_RX], &r->o.conf[PBOX_FAULT_TX]};
	int sides = pbox_fault_conf_set_side(side, key, value, why, n);

	if (sides < 0)
		return sides;
	for (int d = 0; d < PBOX_FAULT_DIRS; d++) {
		if ((sides >> d & 1) == 0)
			continue;
		if (strcmp(key + 3, "target") == 0)
			r->target_left[d] = r->o.conf[d].target_first;
		pbox_fault_line_set(r->line[d], &r->o.conf[d]);
	}
	return 0;
}

/* Words of commands are printable, without what means something in a string of JSON: answers quote
 * them. */
static bool
is_plain(const char *line)
{
	for (; *line != '\0'; line++)
		if (*line < ' ' || *line > '~' || *line == '"' || *line == '\\')
			return false;
	return true;
}

/* One command; its answer. */
static void
command(struct relay *r, char *line, char *answer, size_t n)
{
	struct text t = {answer, n};
	char why[256];

	if (strncmp(line, "set ", 4) == 0 && is_plain(line)) {
		if (pbox_fault_conf_each(line + 4, set_one, r, why, sizeof(why)) == 0)
			write_settings(r, &t);
		else
			add(&t, "{\"error\": \"%s\"}\n", why);
	} else if (strcmp(line, "get") == 0) {
		write_settings(r, &t);
	} else if (strcmp(line, "counters") == 0) {
		console_counters(r, answer, n);
	} else if (strcmp(line, "quit") == 0) {
		r->stop = true;
		add(&t, "{}\n");
	} else {
		add(&t, "{\"error\": \"commands are: set KEY=VALUE[,KEY=VALUE]..., get, counters, quit\"}\n");
	}
}

static void
hang_up(struct console *c)
{
	/* a descriptor that is closed leaves epoll by itself; standard input is only let go */
	if (c->in > STDERR_FILENO)
		close(c->in);
	c->in = c->out = -1;
	c->len = 0;
}

/* All of an answer within its time; false: the reader does not take it. */
static bool
say(const struct console *c, const char *text)
{
	uint64_t end = now_ns() + ANSWER_MS * UINT64_C(1000000);
	size_t len = strlen(text);

	while (len > 0) {
		struct pollfd p = {.fd = c->out, .events = POLLOUT};
		ssize_t n;

		/* what poll calls writable takes that much of a pipe without waiting */
		if (now_ns() >= end || poll(&p, 1, ANSWER_MS) != 1 || (p.revents & POLLOUT) == 0)
			return false;
		n = write(c->out, text, len < 512 ? len : 512);
		if (n < 0 && errno != EINTR && errno != EAGAIN)
			return false;
		text += n > 0 ? n : 0;
		len -= n > 0 ? (size_t)n : 0;
	}
	return true;
}

void
console_read(struct relay *r, unsigned index)
{
	static char answer[RELAY_TEXT];
	struct console *c = &r->console[index];
	char *begin = c->line, *end;
	ssize_t n;

	if (c->in < 0)
		return;
	n = read(c->in, c->line + c->len, sizeof(c->line) - c->len);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0)
		goto gone;
	c->len += (unsigned)n;
	while ((end = memchr(begin, '\n', (size_t)(c->line + c->len - begin))) != NULL) {
		*end = '\0';
		command(r, begin, answer, sizeof(answer));
		if (!say(c, answer))
			goto gone;
		begin = end + 1;
	}
	c->len = (unsigned)(c->line + c->len - begin);
	memmove(c->line, begin, c->len);
	if (c->len < sizeof(c->line))
		return;
gone: /* the end, an answer that nobody takes, or a line without one */
	if (index == 0)
		sockets_ignore(r, c->in);
	hang_up(c);
}

void
console_accept(struct relay *r)
{
	int fd = accept4(r->control, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	if (fd < 0)
		return;
	for (unsigned i = 1; i < RELAY_CONSOLES; i++) {
		struct console *c = &r->console[i];

		if (c->in >= 0 || sockets_watch(r, fd, SOURCE_CONSOLE, i) != 0)
			continue;
		c->in = c->out = fd;
		c->len = 0;
		return;
	}
	close(fd); /* too many */
}

int
console_open(struct relay *r)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	mode_t mask;
	int fd, ret;

	for (unsigned i = 0; i < RELAY_CONSOLES; i++)
		r->console[i].in = r->console[i].out = -1;
	/* a plain file or /dev/null, which epoll does not take, has no commands */
	if (sockets_watch(r, STDIN_FILENO, SOURCE_CONSOLE, 0) == 0) {
		r->console[0].in = STDIN_FILENO;
		r->console[0].out = STDOUT_FILENO;
	}
	if (r->o.control == NULL)
		return 0;
	if (strlen(r->o.control) >= sizeof(a.sun_path))
		return failed("--control %s: longer than %zu bytes", r->o.control,
			sizeof(a.sun_path) - 1);
	memcpy(a.sun_path, r->o.control, strlen(r->o.control) + 1);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	mask = umask(0077);
	ret = fd < 0 ? -1 : bind(fd, (struct sockaddr *)&a, sizeof(a));
	umask(mask);
	if (ret != 0)
		return failed("--control %s: %s: remove it if no other relay uses it", r->o.control,
			strerror(errno));
	r->control = fd; /* the path is ours to remove */
	if (listen(fd, RELAY_CONSOLES) != 0 || sockets_watch(r, fd, SOURCE_CONTROL, 0) != 0)
		return failed("--control %s: %s", r->o.control, strerror(errno));
	return 0;
}

void
console_close(struct relay *r)
{
	if (r->control >= 0)
		unlink(r->o.control);
}
