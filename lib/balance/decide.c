/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * One action at a time. A box that is gone, first; then whether the last trial holds what it promised; then a box that is slow; then,
 * while none is, spare boxes in, boxes out, and a trial. Trials that fail make later ones rarer (cool-down), so that a fleet without a
 * straggler is left alone; a box that changes begins all that again.
 */

#include <math.h>

#include "balance_impl.h"

#define GAIN_MOVE 0.05 /* share of a round that an action must promise */
#define GAIN_OUT  0.05
#define LOSS_IN   0.02
#define HORIZON   500  /* rounds in which the moved bytes must have paid */
#define PAUSE     0.01 /* seconds, of a move */
#define EXPLORE   0.3
#define RARELY    0.02
#define RARER     0.8
#define TRIED     0.1 /* of a box's bytes */
#define COOL      2
#define COOL_MOST 64
#define ONE_SIDED 1.645 /* of 95 % */

static uint64_t
total_of(const struct pbox_balance *b, const struct pbox_balance_box *box)
{
	uint64_t total = 0;

	for (unsigned i = 0; i < b->conf.boxes; i++)
		total += box[i].bytes;
	return total;
}

/* Seconds of a byte of a box that nobody has measured: as the median of the others. */
static double
usual(const struct pbox_balance *b)
{
	double sorted[PBOX_BALANCE_BOXES];
	unsigned n = 0, k;

	for (unsigned i = 0; i < b->conf.boxes; i++) {
		if (!b->box[i].known)
			continue;
		for (k = n++; k > 0 && sorted[k - 1] > b->box[i].per_byte; k--)
			sorted[k] = sorted[k - 1];
		sorted[k] = b->box[i].per_byte;
	}
	return n > 0 ? (sorted[n / 2] + sorted[(n - 1) / 2]) / 2 : 1;
}

/* Seconds of a byte of each box that is to have chunks; 0 of the others. */
static void
speeds(const struct pbox_balance *b, const struct pbox_balance_box *box, unsigned with,
	unsigned without, double *seconds)
{
	for (unsigned i = 0; i < PBOX_BALANCE_BOXES; i++) {
		bool in = i < b->conf.boxes && box[i].able && i != without &&
			  (box[i].bytes > 0 || i == with);

		seconds[i] = !in ? 0 : b->box[i].known ? b->box[i].per_byte : usual(b);
		if (in && seconds[i] <= 0)
			seconds[i] = 1e-15;
	}
}

/* Predicted seconds of a round. What the program did not wait for up to now it will not wait for: so much is hidden. */
static double
predict(const struct pbox_balance *b, const double *seconds, const uint64_t *bytes)
{
	double now = 0, exposed = 0, next = 0;

	for (unsigned i = 0; i < b->conf.boxes; i++) {
		if (b->box[i].measured) {
			now = fmax(now, b->box[i].last.mean);
			exposed = fmax(exposed, b->box[i].last.exposed);
		}
		if (bytes[i] > 0)
			next = fmax(next, seconds[i] * (double)bytes[i]);
	}
	exposed = fmin(exposed, now);
	return b->step.mean - exposed + fmax(0, next - (now - exposed));
}

static uint64_t
moved(const struct pbox_balance *b, const struct pbox_balance_box *box, const uint64_t *bytes)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < b->conf.boxes; i++)
		sum += bytes[i] > box[i].bytes ? bytes[i] - box[i].bytes : 0;
	return sum;
}

/* The bytes that end at the same time with or without a box. False: nobody would have them. */
static bool
plan(struct pbox_balance *b, const struct pbox_balance_box *box, unsigned with, unsigned without)
{
	struct pbox_balance_action *a = &b->action;
	double seconds[PBOX_BALANCE_BOXES];
	bool any = false;

	*a = (struct pbox_balance_action){.before = b->step.mean};
	speeds(b, box, with, without, seconds);
	for (unsigned i = 0; i < b->conf.boxes; i++)
		any |= seconds[i] > 0;
	if (!any)
		return false;
	pbox_balance_target(total_of(b, box), b->conf.boxes, seconds, a->bytes);
	a->moves = moved(b, box, a->bytes);
	a->after = predict(b, seconds, a->bytes);
	return true;
}

/* The moved bytes cross two links. */
static bool
pays(const struct pbox_balance *b)
{
	const struct pbox_balance_action *a = &b->action;

	return (a->before - a->after) * HORIZON > PAUSE + 2 * usual(b) * (double)a->moves;
}

static void
begin_trial(struct pbox_balance *b, const struct pbox_balance_box *box, double tolerance)
{
	b->trial = (struct balance_trial){
		.open = true, .tolerance = tolerance, .before = b->step, .action = b->action};
	for (unsigned i = 0; i < b->conf.boxes; i++)
		b->trial.bytes[i] = box[i].bytes;
}

static struct pbox_balance_action *
lost(struct pbox_balance *b, const struct pbox_balance_box *box)
{
	for (unsigned i = 0; i < b->conf.boxes; i++) {
		if (box[i].able || box[i].bytes == 0)
			continue;
		if (!plan(b, box, b->conf.boxes, i)) {
			/* all that had chunks are gone: a spare one takes them */
			unsigned spare = 0;

			while (spare < b->conf.boxes && !box[spare].able)
				spare++;
			if (spare == b->conf.boxes || !plan(b, box, spare, i))
				return NULL;
		}
		b->action.cause = PBOX_BALANCE_LOST;
		b->action.box = i;
		b->trial.open = false;
		pbox_balance_discard(b);
		return &b->action;
	}
	return NULL;
}

/* Welch's test, one-sided, by the normal distribution: a window has 20 rounds or more. */
static bool
holds(const struct balance_trial *t, const struct balance_figure *after)
{
	const struct balance_figure *x = &t->before;
	double error = sqrt(x->sd * x->sd / x->rounds + after->sd * after->sd / after->rounds);

	if (t->tolerance < 0)
		return x->mean - after->mean > ONE_SIDED * error;
	return after->mean - (1 + t->tolerance) * x->mean <= ONE_SIDED * error;
}

/* The action that takes the trial back; NULL: it stays, or nothing can be taken back. */
static struct pbox_balance_action *
end_trial(struct pbox_balance *b, const struct pbox_balance_box *box)
{
	struct pbox_balance_action *a = &b->action;

	b->trial.open = false;
	if (holds(&b->trial, &b->step))
		return NULL;
	b->explore = fmax(RARELY, RARER * b->explore);
	b->cool_next = b->cool_next * 2 < COOL_MOST ? b->cool_next * 2 : COOL_MOST;
	b->cool = b->cool_next;
	*a = (struct pbox_balance_action){.cause = PBOX_BALANCE_BACK,
		.box = b->trial.action.box,
		.to = b->trial.action.to,
		.before = b->trial.before.mean,
		.after = b->step.mean};
	for (unsigned i = 0; i < b->conf.boxes; i++) {
		a->bytes[i] = b->trial.bytes[i];
		if (a->bytes[i] > 0 && !box[i].able)
			return NULL;
	}
	a->moves = moved(b, box, a->bytes);
	return a->moves > 0 ? a : NULL;
}

static struct pbox_balance_action *
exploit(struct pbox_balance *b, const struct pbox_balance_box *box, unsigned slow, double ratio)
{
	struct pbox_balance_action *a = &b->action;

	if (!plan(b, box, b->conf.boxes, b->conf.boxes) ||
		a->before - a->after <= GAIN_MOVE * a->before || !pays(b))
		return NULL;
	a->cause = PBOX_BALANCE_STRAGGLER;
	a->box = slow;
	a->ratio = ratio;
	return a;
}

static struct pbox_balance_action *
scale_out(struct pbox_balance *b, const struct pbox_balance_box *box)
{
	struct pbox_balance_action *a = &b->action;
	unsigned best = b->conf.boxes;

	for (unsigned i = 0; i < b->conf.boxes; i++) {
		if (!box[i].able || box[i].bytes > 0)
			continue;
		if (best == b->conf.boxes || (b->box[i].known && b->box[best].known &&
						     b->box[i].per_byte < b->box[best].per_byte))
			best = i;
	}
	if (best == b->conf.boxes || !plan(b, box, best, b->conf.boxes) ||
		a->before - a->after <= GAIN_OUT * a->before || !pays(b))
		return NULL;
	a->cause = PBOX_BALANCE_OUT;
	a->box = best;
	begin_trial(b, box, -1);
	return a;
}

static struct pbox_balance_action *
scale_in(struct pbox_balance *b, const struct pbox_balance_box *box)
{
	struct pbox_balance_action *a = &b->action;
	unsigned slowest = b->conf.boxes, used = 0;

	for (unsigned i = 0; i < b->conf.boxes; i++) {
		if (box[i].bytes == 0)
			continue;
		used++;
		if (slowest == b->conf.boxes || b->box[i].per_byte > b->box[slowest].per_byte)
			slowest = i;
	}
	if (used < 2 || !plan(b, box, b->conf.boxes, slowest) ||
		a->after >= (1 + LOSS_IN) * a->before)
		return NULL;
	a->cause = PBOX_BALANCE_IN;
	a->box = slowest;
	begin_trial(b, box, LOSS_IN);
	return a;
}

/* Load of the box that takes longest to the one that takes shortest, if they differ by more than what is noise. */
static struct pbox_balance_action *
explore(struct pbox_balance *b, const struct pbox_balance_box *box)
{
	struct pbox_balance_action *a = &b->action;
	struct pbox_balance_view low = {0}, high = {0}, v;

	*a = (struct pbox_balance_action){.cause = PBOX_BALANCE_TRY, .before = b->step.mean};
	if (pbox_random_unit(&b->random) >= b->explore)
		return NULL;
	for (unsigned i = 0; i < b->conf.boxes; i++) {
		a->bytes[i] = box[i].bytes;
		if (!b->box[i].measured || !box[i].able)
			continue;
		pbox_balance_view(b, i, &v);
		if (!high.measured || v.mean > high.mean) {
			high = v;
			a->box = i;
		}
		if (!low.measured || v.mean < low.mean) {
			low = v;
			a->to = i;
		}
	}
	if (!high.measured || high.mean - high.ci <= low.mean + low.ci)
		return NULL;
	a->moves = (uint64_t)(TRIED * (double)box[a->box].bytes);
	if (a->moves == 0)
		return NULL;
	a->bytes[a->box] -= a->moves;
	a->bytes[a->to] += a->moves;
	a->after = a->before;
	begin_trial(b, box, -1);
	return a;
}

const struct pbox_balance_action *
pbox_balance_decide(struct pbox_balance *b, const struct pbox_balance_box *box)
{
	struct pbox_balance_action *a = lost(b, box);
	bool changed, trial;
	double ratio;
	unsigned slow;

	if (a != NULL || !balance_window_full(b))
		return a;
	changed = balance_take_window(b, box);
	if (changed) {
		b->explore = EXPLORE;
		b->cool = 0;
		b->cool_next = COOL;
	}
	trial = b->trial.open;
	if (trial && !changed) {
		a = end_trial(b, box);
		if (a != NULL)
			return a;
	}
	b->trial.open = false;
	slow = balance_straggler(b, &ratio);
	if (slow < b->conf.boxes)
		a = exploit(b, box, slow, ratio);
	else if (b->cool > 0)
		b->cool--;
	else if (!b->conf.scales || (a = scale_out(b, box)) == NULL)
		a = (b->conf.scales ? scale_in(b, box) : NULL);
	if (a == NULL && slow == b->conf.boxes && b->cool == 0)
		a = explore(b, box);
	return a;
}
