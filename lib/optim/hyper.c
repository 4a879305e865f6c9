/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <float.h>
#include <math.h>
#include <string.h>

#include "pbox_optim.h"

/* A number may come from a file. */
static const struct pbox_optim_def *
def_of(unsigned kind)
{
	return pbox_optim_scalar.of[kind < PBOX_OPTIMISERS_END ? kind : PBOX_OPT_NONE];
}

unsigned
pbox_optim_states(enum pbox_optimiser kind)
{
	return def_of(kind)->states;
}

double *
pbox_hyper_at(struct pbox_hyper *h, unsigned id)
{
	switch (id) {
#define HYPER_CASE(symbol, number, name) \
	case symbol:                     \
		return &h->name;
		PBOX_HYPERS(HYPER_CASE)
#undef HYPER_CASE
	default:
		return NULL;
	}
}

void
pbox_hyper_defaults(struct pbox_hyper *h, enum pbox_optimiser kind)
{
	*h = def_of(kind)->defaults;
}

/* A value that fp32 can hold; also false for NaN. */
static int
in_fp32(double x)
{
	return fabs(x) <= (double)FLT_MAX;
}

#define STEPS_MAX 9007199254740992.0 /* beyond it doubles skip whole numbers */

const char *
pbox_hyper_check_part(const struct pbox_hyper *h, enum pbox_optimiser kind)
{
	const struct pbox_optim_def *def = def_of(kind);

	if (!(in_fp32(h->lr) && h->lr >= 0.0))
		return "lr must be a finite number, 0 or more";
	if (!(in_fp32(h->momentum) && h->momentum >= 0.0))
		return "momentum must be a finite number, 0 or more";
	if (!in_fp32(h->dampening))
		return "dampening must be a finite number";
	if (!(in_fp32(h->weight_decay) && h->weight_decay >= 0.0))
		return "weight_decay must be a finite number, 0 or more";
	if (!(h->beta1 >= 0.0 && h->beta1 < 1.0))
		return "beta1 must be 0 or more and less than 1";
	if (!(h->beta2 >= 0.0 && h->beta2 < 1.0))
		return "beta2 must be 0 or more and less than 1";
	if (!(in_fp32(h->eps) && h->eps >= 0.0))
		return "eps must be a finite number, 0 or more";
	if (!(in_fp32(h->clip_value) && h->clip_value >= 0.0))
		return "clip_value must be a finite number, 0 (off) or more";
	if (!(fabs(h->steps) <= STEPS_MAX && h->steps == floor(h->steps)))
		return "steps must be a whole number, -2^53 to 2^53";
	if (h->maximize != 0.0 && h->maximize != 1.0)
		return "maximize must be 0 or 1";
	if (!(h->plain >= 0.0 && h->plain < 2.0 * PBOX_PLAIN_WHYS_END &&
		    h->plain == floor(h->plain)))
		return "plain must be 0 (results in the pull format) or 1 (in fp32), and twice the number of a reason";
	if (!(h->coefficient == -1.0 || (h->coefficient >= 0.0 && h->coefficient <= 1.0)))
		return "coefficient must be above 0 and at most 1, or -1 (skip)";
	if (!(in_fp32(h->max_norm) && h->max_norm >= 0.0))
		return "max_norm must be a finite number, 0 (off) or more";
	return def->refuses != NULL ? def->refuses(h) : NULL;
}

const char *
pbox_hyper_check(const struct pbox_hyper *h, enum pbox_optimiser kind)
{
	const struct pbox_optim_def *def = def_of(kind);
	const char *wrong = pbox_hyper_check_part(h, kind);

	return wrong == NULL && def->lacks != NULL ? def->lacks(h) : wrong;
}

void
pbox_optim_scalars(struct pbox_optim_scalars *s, const struct pbox_hyper *h,
	enum pbox_optimiser kind, uint32_t round)
{
	/* a round before those that `steps` is meant for has no t of its own */
	double t = fmax((double)round + h->steps, 1.0);

	memset(s, 0, sizeof(*s));
	s->factor = 1.0f;
	s->clip = (float)h->clip_value;
	s->first_step = t == 1.0;
	s->lr = (float)h->lr;
	s->weight_decay = (float)h->weight_decay;
	if (def_of(kind)->scalars != NULL)
		def_of(kind)->scalars(s, h, t);
}
