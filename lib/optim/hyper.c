/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <float.h>
#include <math.h>
#include <string.h>

#include "pbox_optim.h"

static const struct {
	const char *name;
	unsigned states;
} kinds[PBOX_OPTIM_KINDS] = {
	[PBOX_OPTIM_NONE] = {"none", 0},
	[PBOX_OPTIM_SGD] = {"sgd", 0},
	[PBOX_OPTIM_MOMENTUM] = {"momentum", 1},
	[PBOX_OPTIM_NESTEROV] = {"nesterov", 1},
	[PBOX_OPTIM_ADAM] = {"adam", 2},
	[PBOX_OPTIM_ADAMW] = {"adamw", 2},
};

unsigned
pbox_optim_states(enum pbox_optim_kind kind)
{
	return kinds[kind].states;
}

const char *
pbox_optim_kind_name(enum pbox_optim_kind kind)
{
	return (unsigned)kind < PBOX_OPTIM_KINDS ? kinds[kind].name : "unknown";
}

void
pbox_hyper_defaults(struct pbox_hyper *h, enum pbox_optim_kind kind)
{
	int adam = kind == PBOX_OPTIM_ADAM || kind == PBOX_OPTIM_ADAMW;

	*h = (struct pbox_hyper){
		.lr = adam ? 1e-3 : 0.0,
		.weight_decay = kind == PBOX_OPTIM_ADAMW ? 1e-2 : 0.0,
		.beta1 = 0.9,
		.beta2 = 0.999,
		.eps = 1e-8,
		.has_lr = adam,
	};
}

/* A value that fp32 can hold; also false for NaN. */
static int
in_fp32(double x)
{
	return fabs(x) <= (double)FLT_MAX;
}

#define STEPS_MAX 9007199254740992.0 /* beyond it doubles skip whole numbers */

const char *
pbox_hyper_check(const struct pbox_hyper *h, enum pbox_optim_kind kind)
{
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
	if (kind == PBOX_OPTIM_SGD && h->momentum != 0.0)
		return "sgd keeps no momentum: declare the table with momentum or nesterov";
	if (kind == PBOX_OPTIM_NESTEROV && !(h->momentum > 0.0 && h->dampening == 0.0))
		return "nesterov needs momentum above 0 and dampening 0: set momentum and lr in "
		       "one SET";
	return NULL;
}

void
pbox_optim_scalars(struct pbox_optim_scalars *s, const struct pbox_hyper *h,
	enum pbox_optim_kind kind, uint32_t round)
{
	/* a round before those that `steps` is meant for has no t of its own */
	double t = fmax((double)round + h->steps, 1.0);

	memset(s, 0, sizeof(*s));
	s->factor = 1.0f;
	s->clip = (float)h->clip_value;
	s->first_step = t == 1.0;
	s->lr = (float)h->lr;
	if (kind == PBOX_OPTIM_ADAMW)
		s->decay = (float)(1.0 - h->lr * h->weight_decay);
	else
		s->weight_decay = (float)h->weight_decay;
	if (kind == PBOX_OPTIM_MOMENTUM || kind == PBOX_OPTIM_NESTEROV) {
		s->momentum = (float)h->momentum;
		s->one_minus_damp = (float)(1.0 - h->dampening);
	}
	if (kind == PBOX_OPTIM_ADAM || kind == PBOX_OPTIM_ADAMW) {
		s->beta1 = (float)h->beta1;
		s->beta2 = (float)h->beta2;
		s->one_minus_beta1 = (float)(1.0 - h->beta1);
		s->one_minus_beta2 = (float)(1.0 - h->beta2);
		s->step_size = (float)(h->lr / (1.0 - pow(h->beta1, t)));
		s->bias2_sqrt = (float)sqrt(1.0 - pow(h->beta2, t));
		s->eps = (float)h->eps;
	}
}
