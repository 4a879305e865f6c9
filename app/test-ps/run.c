/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "json.h"
#include "run.h"
#include "testps.h"

#define DURATION_US (10 * US_SECOND)
#define NAP_NS      2000000

static volatile sig_atomic_t stop_wanted;

static void
run_on_signal(int sig __rte_unused)
{
	stop_wanted = 1;
}

bool
run_stop_wanted(void)
{
	return stop_wanted != 0;
}

void
run_stop_signals(void)
{
	struct sigaction sa = {.sa_handler = run_on_signal};

	sigaction(SIGINT, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
}

static void
run_nap(void)
{
	static const struct timespec t = {.tv_nsec = NAP_NS};

	nanosleep(&t, NULL);
}

void
run_settings(struct testps *t)
{
	atomic_store(&t->loss, (uint32_t)(t->load.loss * (double)UINT32_MAX));
	atomic_store(&t->rate, t->load.rate);
	atomic_store(&t->straggler_us, t->load.straggler_us);
	atomic_store(&t->straggler, t->load.straggler);
}

void
run_ports(const struct testps *t, FILE *to)
{
	for (unsigned p = 0; p < t->n_ports; p++) {
		pbox_port_describe(&t->port[p], to);
		for (unsigned k = 0; k < t->port[p].n_notes; k++)
			fprintf(to, "port %u: %s\n", t->port[p].conf.id, t->port[p].note[k]);
	}
}

static void
joined_line(const struct testps *t)
{
	printf("%s: %u worker%s, %u tensors, %" PRIu64
	       " elements in %u fragments of %zu bytes, %u endpoint%s, window %s%u\n",
		t->opt.reflected ? "reflected" : "joined", t->workers, t->workers == 1 ? "" : "s",
		t->model.n, t->model.elements, t->plan.n,
		pbox_payload_bytes(t->data.push, t->plan.frag_elements), t->session.endpoints,
		t->session.endpoints == 1 ? "" : "s",
		t->now.window == 0 && !t->opt.reflected ? "auto, at most " : "",
		t->now.window != 0 && t->now.window < t->session.window ? t->now.window
									: t->session.window);
}

/* --fragment is the most that this program takes; the box maps what its own MTU holds. */
static void
fragment_line(const struct testps *t)
{
	const struct testps_load *l = &t->now;
	unsigned wanted = l->fragment + PBOX_MTU_OVERHEAD + (t->session.tags ? PBOX_TAG_LEN : 0);
	size_t wide = RTE_MAX(pbox_format_wide(l->push), pbox_format_wide(l->pull));
	size_t used = wide * t->plan.frag_elements; /* R5.8 */

	if (used < l->fragment && !t->opt.reflected && t->opt.worker == TESTPS_FAST)
		printf("fragments of %zu bytes, not of %u: these would need an MTU of %u, and the box has %u\n",
			used, l->fragment, wanted, t->session.mtu);
}

int
run_start(struct testps *t, struct pbox_error *err)
{
	int ret = 0;

	if (t->open && session_failed(t, NULL))
		session_leave(t);
	if (!t->open) {
		ret = session_join(t, err);
		if (ret == 0) {
			joined_line(t);
			fragment_line(t);
		}
	}
	return ret;
}

static bool
run_wrong(struct testps *t, struct pbox_error *err)
{
	struct figures f;

	figures_take(t, &f);
	if (f.v[LS_WRONG] == 0)
		return false;
	for (unsigned i = 0; i < t->lanes; i++)
		if (t->lane[i]->stats[LS_WRONG] > 0)
			pbox_fail(err, EBADMSG, "%" PRIu64 " results were wrong, the first: %s",
				f.v[LS_WRONG], t->lane[i]->err.text);
	return true;
}

int
run_stop(struct testps *t, struct pbox_error *err)
{
	int ret = session_stop(t, err);

	if (ret == 0 && run_wrong(t, err))
		ret = -EBADMSG;
	return ret;
}

/* Until @p us have passed or there is another end. */
static int
wait_until(struct testps *t, uint64_t until, struct pbox_error *err)
{
	while (testps_now(t) < until && session_running(t)) {
		if (run_stop_wanted())
			return pbox_fail(err, EINTR, "interrupted");
		session_hops(t);
		if (session_failed(t, err))
			return -EIO;
		if (session_lost(t) && session_rejoin(t, err) != 0)
			return -EIO;
		run_nap();
	}
	return 0;
}

int
run_trial(
	struct testps *t, uint64_t warm_us, uint64_t us, struct figures *f, struct pbox_error *err)
{
	struct figures from;
	int ret = run_start(t, err);

	if (ret == 0)
		ret = session_run(t, 0, err);
	if (ret == 0)
		ret = wait_until(t, testps_now(t) + warm_us, err);
	if (ret != 0)
		return ret;
	stats_clear_latency(t);
	figures_take(t, &from);
	ret = wait_until(t, testps_now(t) + us, err);
	figures_take(t, f);
	figures_latency(t, f);
	figures_since(f, &from, t->workers);
	if (ret == 0)
		ret = run_stop(t, err);
	return ret;
}

void
run_summary(const struct figures *f, FILE *to)
{
	fprintf(to, "%.2f s: ", f->seconds);
	figures_rates(f, to);
	fprintf(to,
		"latency p50 %.1f us, p90 %.1f us, p99 %.1f us, max %.1f us\n"
		"checked %" PRIu64 " results, %" PRIu64 " wrong; %" PRIu64
		" rounds of %u worker%s, %" PRIu64 " repeated, %" PRIu64 " lost results, %" PRIu64
		" probes\n",
		(double)f->p50 * 1e-3, (double)f->p90 * 1e-3, (double)f->p99 * 1e-3,
		(double)f->max * 1e-3, f->v[LS_CHECKED], f->v[LS_WRONG],
		f->v[LS_ROUNDS] / f->workers, f->workers, f->workers == 1 ? "" : "s",
		f->v[LS_REPEATED], f->v[LS_LOST_RESULTS], f->v[LS_PROBES]);
}

/* As the options say, with a line every --stats-period. */
static int
run_rounds(struct testps *t, struct figures *f, struct pbox_error *err)
{
	uint64_t us = t->opt.duration_ns / 1000, end;
	struct stats_lines lines;
	struct figures begin;
	int ret = run_start(t, err);

	if (ret != 0)
		return ret;
	stats_clear(t);
	figures_take(t, &begin);
	ret = session_run(t, t->opt.rounds, err);
	if (us == 0)
		us = t->opt.rounds > 0 ? UINT64_MAX / 4 : DURATION_US;
	end = t->begun_us + us;
	stats_lines_begin(t, &lines, stdout);
	while (ret == 0 && testps_now(t) < end && session_running(t) && !run_stop_wanted()) {
		ret = wait_until(t, lines.next_us < end ? lines.next_us : end, err);
		if (run_stop_wanted())
			ret = 0;
		if (ret == 0 && testps_now(t) >= lines.next_us)
			stats_lines_next(t, &lines, stdout);
	}
	if (ret == 0)
		ret = run_stop(t, err);
	figures_take(t, f);
	f->at_us = t->ended_us != 0 ? t->ended_us : f->at_us;
	begin.at_us = t->begun_us;
	figures_latency(t, f);
	figures_since(f, &begin, t->workers);
	return ret;
}

static int
rounds_as_asked(struct testps *t, struct pbox_error *err)
{
	struct pbox_error why = {0};
	struct figures f = {0};
	int ret = run_rounds(t, &f, err);

	if (f.v[LS_CONTRIBUTIONS] > 0)
		run_summary(&f, stdout);
	if (t->opt.json[0] != '\0' && json_write(t, &f, ret == 0 ? err : &why) != 0)
		ret = ret != 0 ? ret : -EIO;
	return ret;
}

/* Commands of a file; then the prompt, or the end. */
static int
commands(struct testps *t)
{
	int status = EXIT_SUCCESS;

	if (t->opt.cmdline_file[0] != '\0') {
		int fd = open(t->opt.cmdline_file, O_RDONLY | O_CLOEXEC);

		if (fd < 0) {
			fprintf(stderr, "pbox-testps: --cmdline-file %s: %s\n", t->opt.cmdline_file,
				strerror(errno));
			return EXIT_FAILURE;
		}
		status = prompt(t, fd, true);
		close(fd);
	}
	if (t->opt.interactive && status >= 0)
		status = prompt(t, STDIN_FILENO, false);
	return status > 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

int
run(struct testps *t)
{
	struct pbox_error err = {0};
	int ret;

	if (t->opt.interactive || t->opt.cmdline_file[0] != '\0')
		return commands(t);
	if (t->opt.search != TESTPS_SEARCH_NONE || t->opt.sweep_workers[0] != '\0')
		ret = search(t, &err);
	else
		ret = rounds_as_asked(t, &err);
	if (ret != 0)
		fprintf(stderr, "pbox-testps: %s\n", err.text);
	return ret == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
