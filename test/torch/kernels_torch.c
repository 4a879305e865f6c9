/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Flat functions over the kernels, for Python's ctypes. */

#include <pbox_optim.h>

#include "kernels_torch.h"

const char *
kt_name(unsigned i)
{
	const struct pbox_reduce_ops *ops = pbox_reduce_at(i);

	return ops == NULL ? NULL : ops->name;
}

int
kt_usable(const char *name)
{
	return pbox_reduce_select(name) != NULL && pbox_optim_select(name) != NULL;
}

void
kt_pack(const char *name, int elem, void *dst, const float *src, size_t n)
{
	pbox_reduce_select(name)->pack(dst, elem, src, n);
}

void
kt_unpack(const char *name, int elem, float *dst, const void *src, size_t n)
{
	pbox_reduce_select(name)->unpack(dst, src, elem, n);
}

const char *
kt_update(const char *name, int kind, const double *hyper, unsigned t, float *p, const float *g,
	float *s0, float *s1, size_t n)
{
	struct pbox_hyper h = {.lr = hyper[0],
		.momentum = hyper[1],
		.dampening = hyper[2],
		.weight_decay = hyper[3],
		.beta1 = hyper[4],
		.beta2 = hyper[5],
		.eps = hyper[6],
		.clip_value = hyper[7],
		.has_lr = 1};
	const void *src[] = {g};
	struct pbox_sources s = {src, NULL, 1, PBOX_FMT_FP32, NULL};
	struct pbox_optim_scalars k;
	const char *wrong = pbox_hyper_check(&h, kind);

	if (wrong != NULL)
		return wrong;
	pbox_optim_scalars(&k, &h, kind, t);
	pbox_optim_update(
		&(struct pbox_update){
			.reduce = pbox_reduce_select(name),
			.optim = pbox_optim_select(name),
			.kind = kind,
			.k = &k,
			.factor = 1.0f,
			.clip = k.clip,
			.param = p,
			.s0 = s0,
			.s1 = s1,
		},
		&s, n);
	return NULL;
}
