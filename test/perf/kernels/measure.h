/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef MEASURE_H
#define MEASURE_H

/**
 * @file
 * Fragments at random places of a working set, and the median of some timed runs over them.
 */

#include <stddef.h>
#include <stdint.h>

#include <pbox_optim.h>

#define WORKERS_MAX 64

/** What a run works on: n payloads of `bytes` each a fragment, and the result's places. */
struct workload {
	unsigned workers;
	size_t bytes; /**< of a payload */
	size_t elems;
	enum pbox_elem elem;
	size_t fragments;  /**< in the working set */
	uint32_t *order;   /**< of the payloads: fragments x workers places */
	uint8_t *payloads; /**< fragments x workers x bytes */
	float *param;      /**< fragments x elems, each; state of the optimisers */
	float *s0, *s1;
	size_t mapped; /**< bytes of payloads mapped */
};

/** Exits with a message if there is no memory. huge: ask for transparent huge pages. */
void workload_make(struct workload *w, size_t working_set, unsigned workers, size_t bytes,
	enum pbox_elem elem, int huge);
void workload_free(struct workload *w);

/** One fragment's worth of work; f counts through the fragments. */
typedef void (*work)(const struct workload *w, size_t f, void *ctx);

/** Seconds a fragment: the median of 5 runs of at least `seconds` each, after one to warm up. */
double measure(const struct workload *w, work one, void *ctx, double seconds);

/** The payloads of fragment f, in worker order. */
void fragment_sources(const struct workload *w, size_t f, const void **src);

#endif /* MEASURE_H */
