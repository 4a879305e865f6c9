/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_OPTIM_H
#define PBOX_OPTIM_H

/**
 * @file
 * Optimisers on the box: the interface, the scalar reference of each, and the fused update.
 *
 * Formulas and order of operations are PyTorch's (torch.optim, 1.13; doc/optimisers.md cites
 * them). All element arithmetic is fp32, no fused multiply-add, one rounding an operation, so
 * that every implementation gives the bits of the scalar reference; per-round scalars are
 * computed in binary64 and rounded once.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <pbox_reduce.h>
#include <pbox_wire_enums.h>

/** Hyper-parameters of one tensor group, in binary64 as they come from SET: a member for each of PBOX_HYPERS. `steps`:
 * that the state had before round 1, where a worker has given it. */
struct pbox_hyper {
#define PBOX_HYPER_MEMBER(symbol, number, name) double name;
	PBOX_HYPERS(PBOX_HYPER_MEMBER)
#undef PBOX_HYPER_MEMBER
	int has_lr; /**< lr was set, or the optimiser has a default for it */
};

/** The member of hyper-parameter @p id, or NULL for an unknown id. */
double *pbox_hyper_at(struct pbox_hyper *h, unsigned id);

/** What the kernels need for one round: derived once a round and group, not per packet. */
struct pbox_optim_scalars {
	float lr;             /**< SGD family: lr */
	float momentum;       /**< momentum */
	float one_minus_damp; /**< 1 - dampening */
	float weight_decay;   /**< added to the gradient (all but AdamW) */
	float decay;          /**< AdamW: 1 - lr * weight_decay */
	float beta1, beta2, one_minus_beta1, one_minus_beta2;
	float step_size;  /**< Adam: lr / (1 - beta1^t) */
	float bias2_sqrt; /**< Adam: sqrt(1 - beta2^t) */
	float eps;
	float factor;   /**< the gradient is multiplied by it; 1: is not */
	float clip;     /**< and clamped to [-clip, clip]; 0: off */
	int first_step; /**< t == 1: momentum buffer starts as the gradient */
};

/** PyTorch's defaults; false in has_lr for the SGD family. Momentum is 0 there too, which
 * pbox_hyper_check does not accept for NESTEROV: neither does PyTorch. */
void pbox_hyper_defaults(struct pbox_hyper *h, enum pbox_optimiser kind);
/** Text of what is out of range (lr < 0, beta >= 1, NaN, ...) or NULL when all is well. Does not
 * ask for has_lr. */
const char *pbox_hyper_check(const struct pbox_hyper *h, enum pbox_optimiser kind);
/** The same of values that may lack what another SET has: what belongs together may come from two workers. */
const char *pbox_hyper_check_part(const struct pbox_hyper *h, enum pbox_optimiser kind);
/** Scalars of the step of a round (t = round + h->steps = 1, 2, ...), as torch.optim computes them in
 * Python. */
void pbox_optim_scalars(struct pbox_optim_scalars *s, const struct pbox_hyper *h,
	enum pbox_optimiser kind, uint32_t round);

/** Number of fp32 state arrays as long as the parameters: 0, 1 or 2. */
unsigned pbox_optim_states(enum pbox_optimiser kind);

/**
 * One step over @p elems elements: p (parameters), g (gradient before factor and clip of k, read
 * only), s0, s1 (state arrays or NULL). p, g, s0, s1 are 64-byte aligned and do not overlap; any
 * elems. With k->first_step the old content of the state is not looked at.
 */
typedef void (*pbox_optim_step)(float *p, const float *g, float *s0, float *s1,
	const struct pbox_optim_scalars *k, size_t elems);

/** An optimiser: lib/optim has a file for each (doc/develop.md, "Add an optimiser"). */
struct pbox_optim_def {
	const char *name; /**< that of the wire */
	unsigned states;  /**< fp32 arrays as long as the parameters: 0, 1 or 2 */
	/** Hyper-parameters, 1u << id, besides those that all have: lr, weight_decay, clip_value, steps. */
	uint32_t uses;
	struct pbox_hyper defaults;
	/** Text of what it never takes among values that are in their ranges; NULL: nothing. */
	const char *(*refuses)(const struct pbox_hyper *h);
	/** Text of what it cannot do without, and lacks. */
	const char *(*lacks)(const struct pbox_hyper *h);
	/** Scalars of its own; those that all have are there. */
	void (*scalars)(struct pbox_optim_scalars *s, const struct pbox_hyper *h, double t);
	pbox_optim_step step;
};

/** An implementation of all of them. */
struct pbox_optim_ops {
	const char *name;
	unsigned rank;
	int (*usable)(void);
	const struct pbox_optim_def *of[PBOX_OPTIMISERS_END]; /**< [NONE] has no step */
};

extern const struct pbox_optim_ops pbox_optim_scalar;
void pbox_optim_register(const struct pbox_optim_ops *ops);
const struct pbox_optim_ops *pbox_optim_select(const char *name);
const struct pbox_optim_ops *pbox_optim_at(unsigned i);

/** A finished fragment: where its result goes. */
struct pbox_update {
	const struct pbox_reduce_ops *reduce;
	const struct pbox_optim_ops *optim;
	enum pbox_optimiser kind;           /**< NONE: all-reduce, param receives the sum */
	const struct pbox_optim_scalars *k; /**< NULL for NONE */
	float factor;                       /**< of R5.2; exactly 1.0f: no multiplication */
	float clip;                         /**< 0: off */
	float *param, *s0, *s1;
	void *wire; /**< packed copy of param for answers in bf16/fp16, or NULL */
	enum pbox_format wire_elem;
	/** NULL, or, with NONE and a wire_elem of blocks: what earlier answers have not said (doc/protocol.md R13.6), as long as
	 * param. It is added to the sum, wire is what is said of that, param what wire decodes to, and this what it does not say. */
	float *residual;
	/** NULL, or, with an optimiser and a wire_elem of blocks: what workers have of param (R13.7). wire is the difference to it, and it
	 * takes what that says. *codes is set to whether that can be said: if not, replica and wire are of no use. */
	float *replica;
	bool *codes;
	/** NULL, or set to the CRC32C of the answer: elems elements of wire, without it of param. */
	uint32_t *answer_crc;

	/** With s->intact: room for elems floats, 64-byte aligned; its content is lost. With
	 * NONE it may be param, whose content is then lost as well. */
	float *scratch;
};

/**
 * The fused pass: sum, scale, clip, optimise and pack, block by block so that the gradient never
 * leaves the L1 cache. Any thread that owns the fragment. With NONE the sum is made in param itself.
 * s->acc is read only and may be param with NONE. elems = 0 does nothing (but check).
 *
 * With s->intact the contributions are checked in the pass that sums them, so the sum of
 * the whole fragment comes first, in scratch, which s->acc may be. Parameters, state and wire change
 * only if all contributions are what was sent.
 *
 * s->next is fetched on the way. s->crc_dst is not looked at.
 * @return false: they are not, and nothing has changed but scratch and *s->intact
 */
bool pbox_optim_update(const struct pbox_update *u, const struct pbox_sources *s, size_t elems);

#endif /* PBOX_OPTIM_H */
