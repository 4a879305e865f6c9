/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef MADE_H
#define MADE_H

/* A table made up for tests, its snapshot, and a directory for it. */

#include <pbox_snapshot.h>

struct made {
	struct pbox_snapshot_meta m;
	size_t bytes;
	uint8_t *data; /* what was written */
	char dir[64];
	char path[PBOX_SNAPSHOT_PATH];
};

/* Three tensors, the last of @p large elements, Adam. */
void made_new(struct made *t, uint64_t large);
void made_free(struct made *t);
/* Write it; the data of @p t stay. */
int made_write(
	struct made *t, unsigned data, unsigned parity, bool compress, struct pbox_error *err);
/* Read it and compare all of it with what was written. 0, 1 when it differs, or -errno. */
int made_compare(const struct made *t, struct pbox_snapshot_report *report, struct pbox_error *err);
/* Change @p len bytes of the file. */
void made_damage(const struct made *t, uint64_t at, size_t len);
uint64_t made_size(const struct made *t);

#endif /* MADE_H */
