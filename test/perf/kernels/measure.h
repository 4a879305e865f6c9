/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef MEASURE_H
#define MEASURE_H

/**
 * @file
 * Fragments at random places of a working set, and timed runs over them that take turns.
 */

#include <stddef.h>
#include <stdint.h>

#include <pbox_optim.h>

#define WORKERS_MAX 1024
#define HEADER      62 /**< bytes of a frame's header, doc/protocol.md R2.1 */
#define RUNS_MAX    32

/** What a run works on: n frames of `bytes` of payload each a fragment, and the result's places. */
struct workload {
	unsigned workers;
	size_t bytes; /**< of a payload */
	size_t elems;
	enum pbox_format elem;
	size_t fragments; /**< in the working set */
	uint32_t *order;  /**< of the payloads: fragments x workers places */
	uint8_t *payloads;
	size_t stride; /**< from one payload to the next: a header comes before each */
	float *param;  /**< fragments x elems, each; state of the optimisers */
	float *s0, *s1;
	float *scratch; /**< elems */
	size_t mapped;  /**< bytes of payloads, headers included */
};

/** Exits with a message if there is no memory. huge: ask for transparent hugepages. */
void workload_make(struct workload *w, size_t working_set, unsigned workers, size_t bytes,
	enum pbox_format elem, int huge);
void workload_free(struct workload *w);

/** One fragment's worth of work; f counts through the fragments. */
typedef void (*work)(const struct workload *w, size_t f, void *ctx);

/** Seconds of processor time a fragment, in one run of at least `seconds`. */
double measure(const struct workload *w, work one, void *ctx, double seconds);

/** The payloads of fragment f, by slot. */
void fragment_sources(const struct workload *w, size_t f, const void **src);

/** The core's clock now, in GHz: additions that wait for each other, one a cycle. */
double core_clock(void);

double median(const double *x, unsigned n);

#endif /* MEASURE_H */
