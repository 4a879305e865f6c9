/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef TOOL_H
#define TOOL_H

#include <pbox_snapshot.h>
#include <pbox_wire.h>

/* Exit statuses. */
enum { GOOD = 0, BAD = 1, USAGE = 2 };

struct tool {
	const char *file, *tensor, *output, *array;
	bool npy;
};

/* Of array i of the file. */
static inline const char *
snapshot_array_name(const struct pbox_snapshot_meta *m, unsigned i)
{
	static const char *const names[] = {"parameters", "s0", "s1"};
	bool differs = m->mode == PBOX_MODE_OPTIMISER && pbox_format_is_block(m->pull_format);

	return differs && i + 1u == m->arrays ? "replica" : i < 3 ? names[i] : "?";
}

/* show.c */
int show_list(const char *dir);
int show_inspect(const struct tool *t);
int show_verify(const struct tool *t);
int show_repair(const struct tool *t);
/* extract.c */
int extract(const struct tool *t);

#endif /* TOOL_H */
