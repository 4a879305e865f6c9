/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef LISTS_H
#define LISTS_H

/* The lists of tensors of real networks in test/models, and those that the build makes by formula.
 * PBOX_MODELS=DIR: those in DIR instead of the latter (test/models/make.py --to DIR makes all). */

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include <pbox_layout.h>

#include "unit.h"

#define LISTS_TENSORS 1024 /* of one list, at most */

/* "tensor,elements" lines under a heading. */
static inline uint32_t
lists_read(const char *dir, const char *name, struct pbox_tensor *tensor)
{
	char path[512], line[256];
	uint32_t n = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "r");
	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	while (fgets(line, sizeof(line), f) != NULL) {
		char *comma = strrchr(line, ',');

		if (comma == NULL || n == LISTS_TENSORS || comma[1] < '0' || comma[1] > '9')
			continue;
		*comma = '\0';
		tensor[n] = (struct pbox_tensor){.elements = strtoull(comma + 1, NULL, 10)};
		tensor[n].name = "of a list";
		n++;
	}
	fclose(f);
	return n;
}

typedef void lists_visit(const char *name, const struct pbox_tensor *tensor, uint32_t n);

/* Call visit for every list in dir, in the order of their names; returns how many there are. */
static inline unsigned
lists_in(const char *dir, lists_visit *visit)
{
	static struct pbox_tensor tensor[LISTS_TENSORS];
	struct dirent **e;
	int n = scandir(dir, &e, NULL, alphasort);
	unsigned lists = 0;

	CU_ASSERT_FATAL(n > 0);
	for (int i = 0; i < n; i++) {
		char *dot = strrchr(e[i]->d_name, '.');

		if (dot != NULL && strcmp(dot, ".csv") == 0) {
			uint32_t tensors = lists_read(dir, e[i]->d_name, tensor);

			CU_ASSERT(tensors > 10 && tensors < LISTS_TENSORS);
			*dot = '\0';
			visit(e[i]->d_name, tensor, tensors);
			lists++;
		}
		free(e[i]);
	}
	free(e);
	return lists;
}

static inline unsigned
lists_each(lists_visit *visit)
{
	const char *more = getenv("PBOX_MODELS");

	return lists_in(MODEL_LISTS, visit) +
	       lists_in(more != NULL ? more : MODEL_LISTS_MADE, visit);
}

#endif /* LISTS_H */
