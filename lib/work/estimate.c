/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* One figure of a worker: a mean of medians, its noise, and whether it has changed. */

#include <math.h>
#include <string.h>

#include "work_impl.h"

/* the mean has a weight of 1 / n, of 1 / MEAN_ROUNDS at least */
#define MEAN_ROUNDS 32
/* as much certainty as an EWMA with this weight has: 2 / weight - 1 */
#define MEAN_SAMPLES (2 * MEAN_ROUNDS - 1)
/* noise before it is known, as a part of the value */
#define NOISE_GUESS  0.1
#define NOISE_WEIGHT (1.0 / 16)
/* one sample counts for this much more than the noise at most */
#define NOISE_CLIP 3
/* a change: standard errors, and a part of the value */
#define CHANGE_ERRORS 5
#define CHANGE_PART   0.1
/* variance of a median over that of a mean of as many samples: pi / 2 */
#define MEDIAN_VARIANCE 1.57

void
work_estimate_begin(struct work_estimate *e, double value, double noise)
{
	memset(e, 0, sizeof(*e));
	e->value = value;
	e->noise = noise;
}

void
work_estimate_forget(struct work_estimate *e)
{
	e->samples = 0;
	e->filled = 0;
	e->at = 0;
}

double
work_median(double *v, unsigned n)
{
	/* insertion sort up to the window's size; larger ones by Shell's gaps (Ciura 2001) */
	static const unsigned gap[] = {1750, 701, 301, 132, 57, 23, 10, 4, 1};

	PBOX_ASSERT(n > 0);
	for (unsigned g = 0; g < sizeof(gap) / sizeof(gap[0]); g++)
		for (unsigned i = gap[g]; i < n; i++) {
			double x = v[i];
			unsigned j = i;

			for (; j >= gap[g] && v[j - gap[g]] > x; j -= gap[g])
				v[j] = v[j - gap[g]];
			v[j] = x;
		}
	return v[(n - 1) / 2];
}

static double
window_median(const struct work_estimate *e)
{
	double v[WORK_WINDOW];

	memcpy(v, e->window, e->filled * sizeof(v[0]));
	return work_median(v, e->filled);
}

static void
push_sample(struct work_estimate *e, double x)
{
	e->window[e->at] = x;
	e->at = (uint8_t)((e->at + 1) % WORK_WINDOW);
	if (e->filled < WORK_WINDOW)
		e->filled++;
}

/* Standard errors of the median of a window and of the mean, added. */
static bool
is_change(const struct work_estimate *e, double median)
{
	double error = e->noise * sqrt(MEDIAN_VARIANCE / e->filled + MEDIAN_VARIANCE / e->samples);
	double far = fabs(median - e->value);

	return e->filled >= 3 && far > CHANGE_ERRORS * error && far > CHANGE_PART * e->value;
}

/* Mean absolute deviation x sqrt(pi / 2) is the standard deviation of a normal sample. */
static void
learn_noise(struct work_estimate *e, double x)
{
	double sigma = 1.2533 * fabs(x - e->value);

	sigma = work_min(sigma, NOISE_CLIP * e->noise);
	e->noise += NOISE_WEIGHT * (sigma - e->noise);
	e->noise = work_max(e->noise, 0.005 * e->value);
}

bool
work_estimate_add(struct work_estimate *e, double x)
{
	double median;

	push_sample(e, x);
	e->known = true;
	if (e->samples == 0) {
		e->value = x;
		e->noise = NOISE_GUESS * x;
		e->samples = 1;
		return false;
	}
	learn_noise(e, x);
	median = window_median(e);
	if (is_change(e, median)) {
		e->noise = e->value > 0 ? e->noise * median / e->value : NOISE_GUESS * median;
		e->value = median;
		e->samples = 3;
		return true;
	}
	if (e->samples < MEAN_SAMPLES)
		e->samples++;
	e->value += (median - e->value) / (e->samples < MEAN_ROUNDS ? e->samples : MEAN_ROUNDS);
	return false;
}

double
work_estimate_with(const struct work_estimate *e, double x, bool *changed)
{
	struct work_estimate next = *e;

	*changed = work_estimate_add(&next, x);
	return next.value;
}

double
work_estimate_error(const struct work_estimate *e)
{
	return e->noise * sqrt(MEDIAN_VARIANCE / (e->samples > 0 ? e->samples : 1));
}
