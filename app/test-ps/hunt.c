/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <math.h>

#include "hunt.h"

#define STEP   0.005 /* of the rate: HUNT_STEPS of them are a factor of 600 */
#define ABOVE  8.0   /* of what went through without a limit */
#define UNLIKE 0.2   /* so likely is it above that */
#define LUCK   0.05  /* a trial of more than the box carries is good */
#define UNLUCK 0.4   /* a trial of what it carries fails: somebody had the CPU meanwhile */
#define SURE   0.9
#define AGAIN  8    /* one trial in so many is of a rate that was good */
#define NEAR   0.02 /* of a rate: no contradiction */

static double
rate_of(const struct hunt *h, unsigned step)
{
	return h->first * exp(STEP * step);
}

/* Make the sum 1. */
static void
scale(struct hunt *h)
{
	double sum = 0;

	for (unsigned i = 0; i < HUNT_STEPS; i++)
		sum += h->p[i];
	for (unsigned i = 0; i < HUNT_STEPS; i++)
		h->p[i] /= sum;
}

void
hunt_begin(struct hunt *h, double most)
{
	*h = (struct hunt){.first = most * ABOVE / exp(STEP * (HUNT_STEPS - 1))};
	/* any rate is as likely as another: a step is the wider the higher it is */
	for (unsigned i = 0; i < HUNT_STEPS; i++) {
		double rate = rate_of(h, i);

		h->p[i] =
			rate * (rate <= most ? (1 - UNLIKE) / most : UNLIKE / (most * (ABOVE - 1)));
	}
	scale(h);
}

/* The rate below which a share of the probability lies. */
static double
quantile(const struct hunt *h, double share)
{
	double sum = 0;
	unsigned i = 0;

	while (i < HUNT_STEPS - 1 && (sum += h->p[i]) < share)
		i++;
	return rate_of(h, i);
}

double
hunt_best(const struct hunt *h)
{
	return quantile(h, 0.5);
}

double
hunt_good(const struct hunt *h)
{
	double best = hunt_best(h), good = 0, least = INFINITY;

	for (unsigned i = 0; i < h->trials; i++) {
		if (!h->trial[i].good)
			continue;
		least = fmin(least, h->trial[i].rate);
		if (h->trial[i].rate <= best)
			good = fmax(good, h->trial[i].rate);
	}
	return good > 0 ? good : isinf(least) ? 0 : least;
}

unsigned
hunt_disagree(const struct hunt *h, double *low, double *high)
{
	double from, to;
	unsigned n = 0;

	hunt_between(h, &from, &to);
	for (unsigned i = 0; i < h->trials; i++) {
		double rate = h->trial[i].rate;

		if (h->trial[i].good ? rate <= to * (1 + NEAR) : rate >= from * (1 - NEAR))
			continue;
		*low = fmin(*low, rate);
		*high = fmax(*high, rate);
		n++;
	}
	return n;
}

static bool
is_again(const struct hunt *h)
{
	return h->good > 0 && h->trials % AGAIN == AGAIN - 1;
}

double
hunt_next(const struct hunt *h)
{
	double below = 0;
	unsigned i = 0;

	if (is_again(h))
		return hunt_good(h);
	/* a trial parts the steps below its rate from the others: as equally as can be */
	while (i < HUNT_STEPS - 1 && below + h->p[i] < 0.5)
		below += h->p[i++];
	if (i < HUNT_STEPS - 1 && below + h->p[i] - 0.5 < 0.5 - below)
		i++;
	return rate_of(h, i);
}

void
hunt_add(struct hunt *h, double rate, bool good)
{
	for (unsigned i = 0; i < HUNT_STEPS; i++) {
		double fails = rate_of(h, i) >= rate * (1 - STEP / 2) ? UNLUCK : 1 - LUCK;

		h->p[i] *= good ? 1 - fails : fails;
	}
	scale(h);
	h->again += is_again(h);
	if (h->trials < HUNT_TRIALS)
		h->trial[h->trials++] = (struct hunt_trial){rate, good};
	h->good += good;
}

void
hunt_between(const struct hunt *h, double *low, double *high)
{
	*low = quantile(h, (1 - SURE) / 2);
	*high = quantile(h, (1 + SURE) / 2);
}

bool
hunt_done(const struct hunt *h, double precision, unsigned trials)
{
	double low, high;

	hunt_between(h, &low, &high);
	return h->trials - h->again >= trials || h->trials == HUNT_TRIALS ||
	       high - low <= precision * high;
}
