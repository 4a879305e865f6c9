/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <inttypes.h>
#include <string.h>

#include "testps.h"

const struct pbox_stat_def lane_stat_defs[LS_STATS] = {LANE_STATS(PBOX_STAT_DEF)};

void
figures_take(const struct testps *t, struct figures *f)
{
	*f = (struct figures){.at_us = testps_now(t)};
	for (unsigned i = 0; i < t->lanes && t->lane[i] != NULL; i++)
		for (unsigned k = 0; k < LS_STATS; k++)
			f->v[k] += pbox_stat_get(&t->lane[i]->stats[k]);
}

void
figures_since(struct figures *f, const struct figures *from, unsigned workers)
{
	double s = (double)(f->at_us - from->at_us) / US_SECOND, sent;

	if (s <= 0)
		s = 1e-6;
	f->workers = workers > 0 ? workers : 1;
	for (unsigned k = 0; k < LS_STATS; k++)
		f->v[k] -= from->v[k];
	sent = (double)f->v[LS_CONTRIBUTIONS];
	f->seconds = s;
	f->push_gbit = (double)f->v[LS_PUSH_BYTES] * 8e-9 / s;
	f->pull_gbit = (double)f->v[LS_PULL_BYTES] * 8e-9 / s;
	f->contributions = (double)f->v[LS_RESULTS] / s;
	f->rounds = (double)f->v[LS_ROUNDS] / f->workers / s;
	f->again = sent > 0 ? (double)(f->v[LS_REPEATED] + f->v[LS_LOST_RESULTS]) / sent : 0;
	f->busy = f->v[LS_TURNS] > 0 ? (double)f->v[LS_TURNS_BUSY] / (double)f->v[LS_TURNS] : 0;
}

void
figures_latency(const struct testps *t, struct figures *f)
{
	static struct pbox_hist all;

	memset(&all, 0, sizeof(all));
	for (unsigned i = 0; i < t->lanes && t->lane[i] != NULL; i++)
		pbox_hist_merge(&all, &t->lane[i]->latency);
	f->p50 = pbox_hist_percentile(&all, 50);
	f->p90 = pbox_hist_percentile(&all, 90);
	f->p99 = pbox_hist_percentile(&all, 99);
	f->max = all.max;
}

/* While lanes count: what is added in between may be lost, which matters to no figure of a run that
 * begins now. */
void
stats_clear(struct testps *t)
{
	for (unsigned i = 0; i < t->lanes && t->lane[i] != NULL; i++)
		for (unsigned k = 0; k < LS_STATS; k++)
			pbox_stat_set(&t->lane[i]->stats[k], 0);
	stats_clear_latency(t);
}

void
stats_clear_latency(struct testps *t)
{
	for (unsigned i = 0; i < t->lanes && t->lane[i] != NULL; i++)
		memset(&t->lane[i]->latency, 0, sizeof(t->lane[i]->latency));
}

static void
stats_line(const struct figures *f, FILE *to)
{
	fprintf(to, "%9.1f %9.2f %7.2f %7.2f %17.1f %9.3f %6" PRIu64 "\n", f->seconds, f->rounds,
		f->push_gbit, f->pull_gbit, f->contributions * 1e-3, f->again * 100,
		f->v[LS_WRONG]);
}

void
stats_lines_begin(const struct testps *t, struct stats_lines *l, FILE *to)
{
	uint64_t period = (uint64_t)t->opt.stats_period * US_SECOND;

	l->next_us = period > 0 ? t->begun_us + period : UINT64_MAX;
	figures_take(t, &l->last);
	if (period > 0)
		fprintf(to,
			"  seconds  rounds/s    push    pull Gbit/s  kcontrib/s   again %%  wrong\n");
}

void
stats_lines_next(const struct testps *t, struct stats_lines *l, FILE *to)
{
	struct figures now, f;

	figures_take(t, &now);
	f = now;
	figures_since(&f, &l->last, t->workers);
	l->last = now;
	l->next_us += (uint64_t)t->opt.stats_period * US_SECOND;
	f.seconds = (double)(now.at_us - t->begun_us) / US_SECOND;
	stats_line(&f, to);
}

void
figures_rates(const struct figures *f, FILE *to)
{
	fprintf(to,
		"%.2f rounds/s, push %.2f Gbit/s, pull %.2f Gbit/s, %.0f contributions/s, sent again %.3f %%\n",
		f->rounds, f->push_gbit, f->pull_gbit, f->contributions, f->again * 100);
}
