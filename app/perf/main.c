/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "perf.h"

static struct perf perf;

static void
perf_on_signal(int sig)
{
	(void)sig;
	if (atomic_exchange(&perf.interrupted, true))
		_exit(EXIT_ROUND); /* asked twice */
}

static enum exit_code
perf_result(const struct perf *p)
{
	enum exit_code code = EXIT_GOOD;

	for (unsigned i = 0; i < p->o.local; i++)
		if (p->w[i].code > code)
			code = p->w[i].code;
	for (unsigned i = 0; i < p->o.local && code == EXIT_GOOD; i++)
		if (p->w[i].mismatches > 0)
			code = EXIT_MISMATCH;
	return code;
}

/** Lines while the workers run. */
static void
watch(struct perf *p)
{
	uint64_t seen[4] = {0}, start = 0, step = (uint64_t)(p->o.interval * 1e9), next = 0;
	uint64_t last = 0;

	while (atomic_load(&p->running) > 0) {
		uint64_t now = now_ns();

		usleep(5000);
		if (start == 0 && atomic_load(&p->w[0].rounds) > 0) {
			start = last = now;
			next = now + step;
		}
		if (start != 0 && now >= next) {
			report_interval(
				p, (double)(last - start) / 1e9, (double)(now - start) / 1e9, seen);
			last = now;
			next += step;
		}
	}
}

int
main(int argc, char **argv)
{
	struct perf *p = &perf;
	char err[256] = "no memory";
	enum exit_code code;

	options_parse(&p->o, argc, argv);
	if (model_load(&p->m, &p->o, err, sizeof(err)) != 0) {
		fprintf(stderr, "pbox-perf: %s\n", err);
		return EXIT_USAGE;
	}
	p->w = calloc(p->o.local, sizeof(*p->w));
	if (p->w == NULL ||
		(p->o.check != CHECK_NONE && reference_open(&p->ref, &p->o, p->m.elements) != 0)) {
		fprintf(stderr, "pbox-perf: no memory to check %llu elements; try --check none\n",
			(unsigned long long)p->m.elements);
		return EXIT_USAGE;
	}
	pthread_barrier_init(&p->barrier, NULL, p->o.local);
	pthread_mutex_init(&p->lock, NULL);
	signal(SIGINT, perf_on_signal);
	signal(SIGTERM, perf_on_signal);
	atomic_store(&p->running, p->o.local);
	for (unsigned i = 0; i < p->o.local; i++) {
		p->w[i].p = p;
		p->w[i].index = i;
		if (pthread_create(&p->w[i].thread, NULL, worker_main, &p->w[i]) != 0) {
			fprintf(stderr, "pbox-perf: cannot start %u threads\n", p->o.local);
			return EXIT_USAGE;
		}
	}
	watch(p);
	for (unsigned i = 0; i < p->o.local; i++)
		pthread_join(p->w[i].thread, NULL);
	report_end(p);
	code = perf_result(p);
	reference_close(&p->ref);
	model_free(&p->m);
	free(p->w);
	free(p->o.secret);
	return code;
}
