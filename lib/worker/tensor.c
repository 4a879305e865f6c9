/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>

#include "worker_impl.h"

/* Tensors of a host whose own fragments they are: each has rounds of its own. */

int
pbox_worker_tensor_begin(struct pbox_worker_table *t, uint32_t tensor, uint32_t round,
	bool may_have, uint32_t *version)
{
	struct tensor *x = &t->tensor[tensor];

	assert(t->own_rounds);
	if (x->by_count == 0)
		return -EINVAL;
	if (t->untold || (t->restoring != 0 && may_have)) /* or is to hear it */
		return -EAGAIN;
	for (uint32_t k = 0; k < x->by_count; k++) {
		const struct frag *f = &t->frag[t->piece[t->by_tensor[x->by_first + k]].frag];

		*version = f->round;
		if (f->pushed)
			return -EINVAL;
		if (f->state != FRAG_IDLE) /* the box hears what is held of it */
			return -EAGAIN;
		if (f->round != round - 1 && !(may_have && f->round == round))
			return -ERANGE;
	}
	for (uint32_t k = 0; k < x->by_count; k++)
		t->frag[t->piece[t->by_tensor[x->by_first + k]].frag].round = round - 1;
	x->pushed_to = round - 1;
	table_recounts(t);
	return 0;
}

void
pbox_worker_tensor_holds(struct pbox_worker_table *t, uint32_t tensor,
	const struct pbox_worker_tensor_result *what, const float *value, uint32_t elements)
{
	const struct tensor *x = &t->tensor[tensor];

	assert(t->untold && t->retained != NULL && t->pull_format == PBOX_FMT_FP32);
	for (uint32_t k = 0; k < x->by_count; k++) {
		const struct piece *p = &t->piece[t->by_tensor[x->by_first + k]];
		struct frag *f = &t->frag[p->frag];
		uint32_t n = p->offset >= elements ? 0 : elements - (uint32_t)p->offset;

		assert(f->pieces == 1 && f->state == FRAG_IDLE && !f->pushed);
		if (n > p->elements)
			n = p->elements;
		f->round = what->version;
		t->retained[p->frag] = (struct retained){.version = what->version,
			.samples = what->samples,
			.contributors = what->contributors,
			.have = value != NULL};
		if (value == NULL)
			continue;
		memset(retained_place(t, f), 0, p->elements * sizeof(*value));
		if (n > 0)
			memcpy(retained_place(t, f), value + p->offset, n * sizeof(*value));
	}
}

void
pbox_worker_table_told(struct pbox_worker_table *t)
{
	assert(t->untold && t->restoring != 0);
	t->untold = false;
}

bool
pbox_worker_tensor_result(
	const struct pbox_worker_table *t, uint32_t tensor, struct pbox_worker_tensor_result *out)
{
	const struct tensor *x = &t->tensor[tensor];
	const struct retained *k;

	if (x->by_count == 0 || t->retained == NULL)
		return false;
	k = &t->retained[t->piece[t->by_tensor[x->by_first]].frag];
	if (!k->have)
		return false;
	*out = (struct pbox_worker_tensor_result){
		.version = k->version, .samples = k->samples, .contributors = k->contributors};
	return true;
}
