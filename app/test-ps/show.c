/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* What the prompt shows. Lanes go on meanwhile: figures of one table may be a moment apart. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_ethdev.h>

#include "run.h"
#include "show.h"
#include "testps.h"

static const char *const level_name[] = {"absent", "joined", "mapped", "ready"};

static void
port_heading(const struct pbox_port *p, const char *what)
{
	printf("  ######## port %u %s: %s ########\n", p->conf.id, p->dev.name, what);
}

/* What was counted when it was last shown. */
static struct {
	uint64_t us;
	struct rte_eth_stats s;
} shown[TESTPS_PORTS];
static struct figures lanes_shown;

/* of a second */
static uint64_t
per_second(uint64_t now, uint64_t then, uint64_t us)
{
	return now > then && us > 0 ? (uint64_t)((double)(now - then) * US_SECOND / (double)us) : 0;
}

void
show_port_begin(const struct testps *t)
{
	for (unsigned i = 0; i < t->n_ports; i++) {
		shown[i].us = testps_now(t);
		rte_eth_stats_get(t->port[i].conf.id, &shown[i].s);
	}
	figures_take(t, &lanes_shown);
}

static void
port_stats(const struct testps *t, unsigned i)
{
	const struct pbox_port *p = &t->port[i];
	struct rte_eth_stats s = {0}, was = shown[i].s;
	uint64_t now = testps_now(t), us = now - shown[i].us;

	port_heading(p, "statistics");
	rte_eth_stats_get(p->conf.id, &s);
	printf("  RX-packets: %-12" PRIu64 " RX-missed: %-10" PRIu64 " RX-bytes:  %" PRIu64 "\n",
		s.ipackets, s.imissed, s.ibytes);
	printf("  RX-errors:  %-12" PRIu64 " RX-nombuf: %-10" PRIu64 "\n", s.ierrors, s.rx_nombuf);
	printf("  TX-packets: %-12" PRIu64 " TX-errors: %-10" PRIu64 " TX-bytes:  %" PRIu64 "\n",
		s.opackets, s.oerrors, s.obytes);
	printf("  Throughput (since last show)\n"
	       "  Rx-pps: %12" PRIu64 "          Rx-bps: %14" PRIu64 "\n"
	       "  Tx-pps: %12" PRIu64 "          Tx-bps: %14" PRIu64 "\n",
		per_second(s.ipackets, was.ipackets, us),
		per_second(8 * s.ibytes, 8 * was.ibytes, us),
		per_second(s.opackets, was.opackets, us),
		per_second(8 * s.obytes, 8 * was.obytes, us));
	shown[i].us = now;
	shown[i].s = s;
}

static void
port_xstats(const struct pbox_port *p)
{
	int n = rte_eth_xstats_get(p->conf.id, NULL, 0);
	struct rte_eth_xstat *v = n > 0 ? calloc((size_t)n, sizeof(*v)) : NULL;
	struct rte_eth_xstat_name *name = n > 0 ? calloc((size_t)n, sizeof(*name)) : NULL;

	port_heading(p, "extended statistics");
	if (v != NULL && name != NULL && rte_eth_xstats_get(p->conf.id, v, (unsigned)n) == n &&
		rte_eth_xstats_get_names(p->conf.id, name, (unsigned)n) == n)
		for (int i = 0; i < n; i++)
			printf("%s: %" PRIu64 "\n", name[v[i].id].name, v[i].value);
	free(v);
	free(name);
}

static void
port_info(const struct testps *t, const struct pbox_port *p)
{
	unsigned lcore_of[TESTPS_CORES_MAX];

	for (unsigned i = 0; i < t->lanes; i++)
		lcore_of[i] = t->lane[i]->lcore;
	port_heading(p, "information");
	pbox_port_report(p, lcore_of, stdout);
	printf("port %u payloads: %s\n", p->conf.id,
		t->copy ? "copied into packets" : "sent from where they are");
	for (unsigned k = 0; k < p->n_notes; k++)
		printf("port %u: %s\n", p->conf.id, p->note[k]);
}

static void
show_lanes(const struct testps *t)
{
	struct figures f, since;

	figures_take(t, &f);
	printf("  ######## lcores that play workers: %u ########\n", t->lanes);
	for (unsigned k = 0; k < LS_STATS; k++)
		if (f.v[k] != 0)
			printf("  %-14s %14" PRIu64 " %-8s %s\n", lane_stat_defs[k].name, f.v[k],
				lane_stat_defs[k].unit, lane_stat_defs[k].help);
	since = f;
	figures_since(&since, &lanes_shown, t->workers);
	lanes_shown = f;
	fputs("  Since last show: ", stdout);
	figures_rates(&since, stdout);
}

bool
show_port(const struct testps *t, const char *what, int id)
{
	bool any = false;

	for (unsigned i = 0; i < t->n_ports; i++) {
		const struct pbox_port *p = &t->port[i];

		if (id >= 0 && p->conf.id != id)
			continue;
		any = true;
		if (strcmp(what, "stats") == 0)
			port_stats(t, i);
		else if (strcmp(what, "xstats") == 0)
			port_xstats(p);
		else
			port_info(t, p);
	}
	if (id < 0 && strcmp(what, "stats") == 0)
		show_lanes(t);
	return any;
}

static void
nothing(void)
{
	puts("no session: start joins the box");
}

/* Under way at an endpoint, and of these what the box has. */
static void
under_way(const struct lane *l, unsigned s, uint64_t *out, uint64_t *at_box, uint32_t *oldest_us)
{
	uint64_t from = l->stream[s].oldest, to = l->stream[s].next;

	for (uint64_t at = from; at < to && at - from < l->flights; at++) {
		const struct flight *flight = lane_flight_of(l, s, at);
		uint32_t age = (uint32_t)testps_now(l->t) - flight->begun;

		if (flight->state == FLIGHT_DONE)
			continue;
		++*out;
		*at_box += flight->state == FLIGHT_AT_BOX;
		if ((int32_t)age > 0 && age > *oldest_us)
			*oldest_us = age;
	}
}

void
show_workers(const struct testps *t)
{
	unsigned n = t->plan.endpoints;

	if (!t->open) {
		nothing();
		return;
	}
	puts("worker address               state     round in flight  held  oldest ms");
	for (unsigned w = 0; w < t->workers; w++) {
		const struct lane *l = t->lane[w % t->lanes];
		const uint8_t *ip = (const uint8_t *)&t->nif[w].ip;
		unsigned k = w / t->lanes;
		uint64_t out = 0, at_box = 0;
		uint32_t oldest = 0;
		char where[24];

		for (unsigned e = 0; e < n; e++)
			under_way(l, k * n + e, &out, &at_box, &oldest);
		snprintf(where, sizeof(where), "%u.%u.%u.%u:%u", ip[0], ip[1], ip[2], ip[3],
			t->udp[w]);
		printf("%6u %-21s %-9s %5u %9" PRIu64 " %5" PRIu64 " %10.1f%s\n", w, where,
			t->opt.reflected ? "reflected" : level_name[l->c[k].level],
			l->round_of[k] - 1, out, at_box, oldest * 1e-3,
			atomic_load(&t->straggler) == (int)w ? "  straggler" : "");
	}
}

void
show_jobs(const struct testps *t)
{
	const struct testps_load *l = &t->now;
	struct figures f, zero = {.at_us = t->begun_us};

	if (!t->open) {
		nothing();
		return;
	}
	figures_take(t, &f);
	figures_since(&f, &zero, t->workers);
	printf("job %s: number %u, %u workers, %s, push %s, pull %s\n", t->opt.job, t->session.job,
		t->workers,
		l->optimiser == PBOX_OPT_NONE ? "all-reduce" : pbox_optimiser_name(l->optimiser),
		pbox_format_name(l->push), pbox_format_name(l->pull));
	printf("  model %s: %u tensors, %" PRIu64
	       " elements, %u chunks, %u fragments of %u elements\n",
		l->model, t->model.n, t->model.elements, t->plan.chunks, t->plan.n,
		t->plan.frag_elements);
	printf("  %s, %" PRIu64 " rounds of all workers, %" PRIu64 " results checked, %" PRIu64
	       " wrong\n",
		session_running(t) ? "running" : "stopped", f.v[LS_ROUNDS] / t->workers,
		f.v[LS_CHECKED], f.v[LS_WRONG]);
}

void
show_flights(const struct testps *t)
{
	if (!t->open) {
		nothing();
		return;
	}
	puts("endpoint address               fragments in flight   held  oldest ms  window  srtt us");
	for (unsigned e = 0; e < t->plan.endpoints; e++) {
		const struct sockaddr_in *a = &t->session.endpoint[e];
		const uint8_t *ip = (const uint8_t *)&a->sin_addr;
		uint64_t out = 0, at_box = 0;
		uint32_t oldest = 0, srtt = 0;
		double window = 0;
		char where[24];

		for (unsigned i = 0; i < t->lanes; i++) {
			const struct lane *l = t->lane[i];

			for (unsigned k = 0; k < l->workers; k++)
				under_way(l, k * t->plan.endpoints + e, &out, &at_box, &oldest);
			window = l->path[e].window > window ? l->path[e].window : window;
			srtt = l->path[e].srtt > srtt ? l->path[e].srtt : srtt;
		}
		snprintf(where, sizeof(where), "%u.%u.%u.%u:%u", ip[0], ip[1], ip[2], ip[3],
			ntohs(a->sin_port));
		printf("%8u %-21s %9u %9" PRIu64 " %6" PRIu64 " %10.1f %7.0f %8u\n", e, where,
			t->plan.first[e + 1] - t->plan.first[e], out, at_box, oldest * 1e-3, window,
			srtt);
	}
}

void
show_settings(const struct testps *t)
{
	const struct testps_load *l = &t->load;
	uint64_t rate = atomic_load(&t->rate);
	int straggler = atomic_load(&t->straggler);

	printf("workers %u\nmodel %s\n", l->workers, l->model);
	printf(l->fragment > 0 ? "fragment %u\n" : "fragment auto\n", l->fragment);
	printf(l->window > 0 ? "window %u\n" : "window auto\n", l->window);
	printf("dtype %s,%s\noptimiser %s\nloss %.3g %%\n", pbox_format_name(l->push),
		pbox_format_name(l->pull), pbox_optimiser_name(l->optimiser),
		atomic_load(&t->loss) * 100.0 / UINT32_MAX);
	if (straggler >= 0)
		printf("straggler %d:%uus\n", straggler, atomic_load(&t->straggler_us));
	else
		puts("straggler none");
	if (rate > 0)
		printf("rate %" PRIu64 " contributions/s\n", rate);
	else
		puts("rate no limit");
}
