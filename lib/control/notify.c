/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pbox_notify.h"

/* 0: not for this process, or no number */
static uint64_t
watchdog(void)
{
	const char *pid = getenv("WATCHDOG_PID"), *usec = getenv("WATCHDOG_USEC");
	unsigned long long us;
	char *end;

	if (usec == NULL || (pid != NULL && strtoul(pid, NULL, 10) != (unsigned long)getpid()))
		return 0;
	errno = 0;
	us = strtoull(usec, &end, 10);
	return errno == 0 && *end == '\0' && us <= UINT64_MAX / 1000 ? us * 1000 : 0;
}

int
pbox_notify_open(struct pbox_notify *n, struct pbox_error *err)
{
	const char *name = getenv("NOTIFY_SOCKET");
	size_t len;

	*n = (struct pbox_notify){.fd = -1, .to.sun_family = AF_UNIX};
	if (name == NULL || name[0] == '\0')
		return 0;
	len = strlen(name);
	if ((name[0] != '/' && name[0] != '@') || len < 2 || len >= sizeof(n->to.sun_path))
		return pbox_fail(
			err, EINVAL, "NOTIFY_SOCKET = %s is no path of a socket, nor @name", name);
	memcpy(n->to.sun_path, name, len);
	if (name[0] == '@') /* a name without a file */
		n->to.sun_path[0] = '\0';
	/* a path ends with its zero, a name with its length */
	n->to_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len + (name[0] == '/'));
	n->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (n->fd < 0)
		return pbox_fail(
			err, errno, "no socket for NOTIFY_SOCKET = %s: %s", name, strerror(errno));
	n->watchdog_ns = watchdog();
	return 0;
}

void
pbox_notify_close(struct pbox_notify *n)
{
	if (n->fd >= 0)
		close(n->fd);
	n->fd = -1;
}

bool
pbox_notify_send(const struct pbox_notify *n, const char *fmt, ...)
{
	char text[512];
	va_list ap;
	int len;

	if (n->fd < 0)
		return false;
	va_start(ap, fmt);
	len = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (len < 0 || (size_t)len >= sizeof(text))
		return false;
	return sendto(n->fd, text, (size_t)len, MSG_DONTWAIT | MSG_NOSIGNAL,
		       (const struct sockaddr *)&n->to, n->to_len) == len;
}
