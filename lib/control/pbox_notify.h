/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_NOTIFY_H
#define PBOX_NOTIFY_H

/**
 * @file
 * Reports to a service manager: sd_notify(3), one datagram of lines NAME=VALUE to the socket that
 * the environment names.
 *
 * Not libsystemd's function: it brings five compression and cryptography libraries into the process
 * that takes packets from anyone, and it waits when the manager does not read. The protocol is one
 * datagram, and promised to stay. Here nothing waits: what cannot be sent at once is not sent.
 */

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <pbox_base.h>

struct pbox_notify {
	int fd; /**< -1: there is no service manager */
	struct sockaddr_un to;
	socklen_t to_len;
	uint64_t
		watchdog_ns; /**< without a WATCHDOG=1 for so long, the process is stuck; 0: not asked */
};

/**
 * Read NOTIFY_SOCKET, and WATCHDOG_USEC if WATCHDOG_PID names this process or nobody. Before a sandbox.
 *
 * @return 0, also when there is no socket; -errno with @p err, and nothing is reported
 */
int pbox_notify_open(struct pbox_notify *n, struct pbox_error *err);
void pbox_notify_close(struct pbox_notify *n);

/** Send lines like "READY=1\nSTATUS=serving". Any thread. false: nobody got them. */
bool pbox_notify_send(const struct pbox_notify *n, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

#endif /* PBOX_NOTIFY_H */
