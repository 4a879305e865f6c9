/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <pbox_base.h>

#include "measure.h"

#define HUGE_PAGE ((size_t)2 << 20)

static void *
map(size_t bytes, int huge)
{
	size_t size = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
	uint8_t *p = mmap(
		NULL, size + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED) {
		fprintf(stderr, "no memory for %zu MiB: choose a smaller working set\n",
			size >> 20);
		exit(1);
	}
	/* the part before the first hugepage stays mapped: it takes no memory */
	p = (uint8_t *)(((uintptr_t)p + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1));
	madvise(p, size, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	return p;
}

static void
unmap(void *p, size_t bytes)
{
	munmap(p, (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
}

static void
fill(struct workload *w, struct pbox_random *r)
{
	for (size_t k = 0; k < w->fragments * w->workers; k++) {
		uint8_t *p = w->payloads + k * w->stride;
		uint32_t crc;

		for (size_t i = 0; i < w->elems; i++) {
			float x = (float)pbox_random_unit(r) - 0.5f;

			pbox_reduce_scalar.pack(p + i * pbox_format_size(w->elem), w->elem, &x, 1);
		}
		crc = pbox_reduce_crc32c(0, p, w->bytes);
		crc = pbox_reduce_crc32c(crc, p - HEADER, HEADER - sizeof(crc));
		memcpy(p - sizeof(crc), &crc, sizeof(crc));
	}
	for (size_t i = 0; i < w->fragments * w->elems; i++) {
		w->param[i] = (float)pbox_random_unit(r);
		w->s0[i] = w->s1[i] = 0.0f;
	}
}

void
workload_make(struct workload *w, size_t working_set, unsigned workers, size_t bytes,
	enum pbox_format elem, int huge)
{
	struct pbox_random r;
	size_t places, results;

	pbox_random_seed(&r, 1);
	memset(w, 0, sizeof(*w));
	w->workers = workers;
	w->bytes = bytes;
	w->elem = elem;
	w->elems = bytes / pbox_format_size(elem);
	w->fragments = working_set / (bytes * workers);
	if (w->fragments == 0)
		w->fragments = 1;
	places = w->fragments * workers;
	w->stride = (bytes + HEADER + PBOX_CACHE_LINE - 1) / PBOX_CACHE_LINE * PBOX_CACHE_LINE;
	w->mapped = places * w->stride + PBOX_CACHE_LINE;
	results = w->fragments * w->elems * sizeof(float);
	w->payloads = (uint8_t *)map(w->mapped, huge) + PBOX_CACHE_LINE;
	w->scratch = map(w->elems * sizeof(float), 0);
	w->param = map(results, huge);
	w->s0 = map(results, huge);
	w->s1 = map(results, huge);
	w->order = malloc(places * sizeof(*w->order));
	if (w->order == NULL)
		exit(1);
	for (size_t i = 0; i < places; i++) {
		size_t j = pbox_random_below(&r, i + 1);

		w->order[i] = w->order[j];
		w->order[j] = (uint32_t)i;
	}
	fill(w, &r);
}

void
workload_free(struct workload *w)
{
	size_t results = w->fragments * w->elems * sizeof(float);

	unmap(w->payloads - PBOX_CACHE_LINE, w->mapped);
	unmap(w->scratch, w->elems * sizeof(float));
	unmap(w->param, results);
	unmap(w->s0, results);
	unmap(w->s1, results);
	free(w->order);
}

void
fragment_sources(const struct workload *w, size_t f, const void **src)
{
	for (unsigned k = 0; k < w->workers; k++)
		src[k] = w->payloads + w->order[f * w->workers + k] * w->stride;
}

/* Processor time: what other programs take of a shared core is not counted. */
static double
now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int
by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double
median(const double *x, unsigned n)
{
	double sorted[RUNS_MAX];

	memcpy(sorted, x, n * sizeof(*x));
	qsort(sorted, n, sizeof(*x), by_value);
	return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

double
measure(const struct workload *w, work one, void *ctx, double seconds)
{
	size_t rounds = 1 + 256 / w->fragments; /* between two looks at the clock */
	size_t done = 0;
	double begin, t;

	for (size_t f = 0; f < w->fragments && f < 4096; f++)
		one(w, f, ctx); /* caches as this work leaves them */
	begin = now();
	do {
		for (size_t i = 0; i < rounds; i++)
			for (size_t f = 0; f < w->fragments; f++)
				one(w, f, ctx);
		done += rounds * w->fragments;
		t = now() - begin;
	} while (t < seconds);
	return t / (double)done;
}

double
core_clock(void)
{
	double best = 0;

	for (int run = 0; run < 10; run++) {
		double begin = now(), rate;
		uint64_t x = 1;

		for (int i = 0; i < 200000; i++)
			for (int k = 0; k < 10; k++) {
				x += x; /* one after the other */
				__asm__ volatile("" : "+r"(x));
			}
		rate = 2e6 / (now() - begin) * 1e-9;
		best = rate > best ? rate : best;
	}
	return best;
}
