/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef TOOL_H
#define TOOL_H

#include <pbox_snapshot.h>

/* Exit statuses. */
enum { GOOD = 0, BAD = 1, USAGE = 2 };

struct tool {
	const char *file, *tensor, *output;
	unsigned array; /* 0 parameters, 1 and 2 state */
	bool npy;
};

/* show.c */
int show_list(const char *dir);
int show_inspect(const struct tool *t);
int show_verify(const struct tool *t);
int show_repair(const struct tool *t);
/* extract.c */
int extract(const struct tool *t);

#endif /* TOOL_H */
