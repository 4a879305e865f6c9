/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef HARNESS_H
#define HARNESS_H

/**
 * @file
 * N workers as threads against a box; every result is compared bit for bit with the sum in
 * the order of R5.2a.
 */

#include <stdio.h>
#include <string.h>

#include <pbox_client.h>

#include "box.h"

/** Assert that the test's own `err` says so, and show the text when it is another one. */
#define HAS(part)                                                \
	do {                                                     \
		if (strstr(err.text, part) == NULL)              \
			printf("\n    text is: %s\n", err.text); \
		CU_ASSERT(strstr(err.text, part) != NULL);       \
	} while (0)

struct run {
	struct box_conf box;
	const struct pbox_client_tensor *tensors;
	unsigned n, rounds, tables; /* tables: 0 means 1; the same tensors in each */
	uint8_t op, push_format, pull_format;
	bool per_tensor; /* each tensor its own operation, with falling priority */
	bool push_then_pull;
	bool in_place;
	unsigned timeout_ms;
	int gso; /* 0: probe, 1: on, -1: off */
	unsigned window;
	const char *transport, *transport_args;
	/* called by worker 0 before each round (1, ...), with its box; may be NULL */
	void (*before)(struct box *b, unsigned round);
	unsigned restarts;   /* the box is restarted so often, at random moments ... */
	unsigned restart_ms; /* ... with at most this between two; 0: 100 */
};

struct run_result {
	unsigned failed;     /* workers that got an error */
	uint64_t mismatches; /* elements */
	uint64_t checked;
	char text[512];                 /* of the first failure */
	struct pbox_client_stats stats; /* of worker 0 */
	struct box_counts box;
	double seconds;
	unsigned restarts; /* that there were */
};

double harness_seconds(void);
void harness_run(const struct run *r, struct run_result *out);
/** The element that a worker pushes, rounded to the format. */
float harness_value(unsigned worker, unsigned round, unsigned tensor, uint64_t i, unsigned format);
/** Configuration of a worker for the box. */
struct pbox_client_conf harness_conf(const struct box *b, int worker, unsigned workers);
/** Submit to table 0. */
int harness_submit(struct pbox_client *c, enum pbox_client_kind kind,
	const struct pbox_client_io *io, unsigned n, uint8_t priority, pbox_client_handle *h,
	struct pbox_client_error *err);

#endif /* HARNESS_H */
