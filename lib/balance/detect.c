/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* A window's figures: how long each box takes, with its confidence interval, who is slow, and who has changed. */

#include <math.h>
#include <stdlib.h>

#include "balance_impl.h"

#define Z       1.96 /* of 95 % */
#define SLOWER  0.10
#define CHANGED 0.30
#define WINDOWS 2   /* in which a box must be slow */
#define OLD     0.7 /* weight of what was known before, in an average over windows */

bool
balance_window_full(const struct pbox_balance *b)
{
	bool any = false;

	for (unsigned w = 0; w < b->conf.workers; w++) {
		if (b->round[w].rounds > 0 && b->round[w].rounds < b->conf.window)
			return false;
		any |= b->round[w].rounds > 0;
	}
	return any;
}

static int
compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* The median over the workers: a worker whose own link is slow finds all boxes slow, and that says nothing about boxes. The rounds
 * are the sample, not rounds x workers: in one round all workers wait for the same box. */
static struct balance_figure
figure(const struct pbox_balance *b, const struct balance_sum *first, unsigned step)
{
	struct balance_figure f = {0};
	unsigned n = 0;
	double var = 0;

	for (unsigned w = 0; w < b->conf.workers; w++) {
		const struct balance_sum *s = &first[w * step];
		double mean;

		if (s->rounds == 0)
			continue;
		mean = s->mean / s->rounds;
		b->sorted[n++] = mean;
		var += fmax(0, s->var / s->rounds - mean * mean);
		f.exposed += s->exposed / s->rounds;
		f.rounds = f.rounds == 0 ? s->rounds : fmin(f.rounds, s->rounds);
	}
	if (n == 0)
		return f;
	qsort(b->sorted, n, sizeof(*b->sorted), compare);
	f.mean = (b->sorted[n / 2] + b->sorted[(n - 1) / 2]) / 2;
	f.sd = sqrt(var / n);
	f.exposed /= n;
	return f;
}

static double
interval(const struct balance_figure *f)
{
	return f->rounds > 0 ? Z * f->sd / sqrt(f->rounds) : 0;
}

/* Seconds of a byte: an average over windows, from the start again when it jumps while the box has the same bytes. */
static bool
learn(struct balance_box *x, uint64_t bytes)
{
	double now = x->last.mean / (double)bytes, jump;
	bool changed = false;

	if (!x->known) {
		x->per_byte = now;
	} else {
		jump = fabs(now - x->per_byte) - interval(&x->last) / (double)bytes;
		changed = jump > CHANGED * x->per_byte;
		x->per_byte = changed ? now : OLD * x->per_byte + (1 - OLD) * now;
		changed = changed && bytes == x->bytes;
	}
	x->known = true;
	return changed;
}

/* Its interval is above that of the others, by more than a little. */
static bool
is_slow(const struct pbox_balance *b, unsigned i, double *ratio)
{
	double mean = 0, var = 0;
	unsigned n = 0;

	*ratio = 1;
	for (unsigned k = 0; k < b->conf.boxes; k++) {
		if (k == i || !b->box[k].measured)
			continue;
		mean += b->box[k].last.mean;
		var += interval(&b->box[k].last) * interval(&b->box[k].last);
		n++;
	}
	if (n == 0 || mean <= 0)
		return false;
	*ratio = b->box[i].last.mean / (mean / n);
	return b->box[i].last.mean - interval(&b->box[i].last) >
	       (1 + SLOWER) * (mean / n + sqrt(var) / n);
}

bool
balance_take_window(struct pbox_balance *b, const struct pbox_balance_box *box)
{
	bool changed = false;
	double ratio;

	b->step = figure(b, b->round, 1);
	for (unsigned i = 0; i < b->conf.boxes; i++) {
		struct balance_box *x = &b->box[i];

		x->last = figure(b, &b->sum[i], b->conf.boxes);
		x->measured = x->last.rounds > 0 && box[i].bytes > 0;
		if (x->measured)
			changed |= learn(x, box[i].bytes);
		x->bytes = box[i].bytes;
	}
	for (unsigned i = 0; i < b->conf.boxes; i++) {
		struct balance_box *x = &b->box[i];

		x->slow = x->measured && is_slow(b, i, &ratio);
		x->windows = x->slow ? x->windows + 1 : 0;
	}
	pbox_balance_discard(b);
	return changed;
}

unsigned
balance_straggler(const struct pbox_balance *b, double *ratio)
{
	unsigned worst = b->conf.boxes;
	double r;

	*ratio = 1;
	for (unsigned i = 0; i < b->conf.boxes; i++) {
		if (b->box[i].windows < WINDOWS || !is_slow(b, i, &r) || r <= *ratio)
			continue;
		worst = i;
		*ratio = r;
	}
	return worst;
}
