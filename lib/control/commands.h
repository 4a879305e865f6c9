/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef COMMANDS_H
#define COMMANDS_H

#include <pthread.h>
#include <stdint.h>

/*
 * The latest commands that changed something, or were refused: when, by whom, with what result. Who that is, its
 * program says (/pbox/as): DPDK does not say who asks, and only root and the box's user can connect. Each is a
 * line of the log, too, which keeps them longer.
 */

#define COMMANDS_KEPT 128
#define COMMANDS_WHO  33 /* bytes, with the last 0 */

struct command_done {
	uint64_t unix_ms; /* by the time of day */
	char who[COMMANDS_WHO];
	char what[192];  /* without "/pbox/" */
	char error[192]; /* "": done */
};

struct commands {
	pthread_mutex_t lock;
	uint64_t n; /* all that there were; number N, from 1 on, is at (N - 1) % COMMANDS_KEPT */
	struct command_done done[COMMANDS_KEPT];
};

/* Any thread. @p params may be NULL, @p error NULL or "" where it is done. */
void commands_add(struct commands *s, const char *command, const char *params, const char *error);

#endif /* COMMANDS_H */
