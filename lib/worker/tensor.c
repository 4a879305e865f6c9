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

	if (x->by_count == 0)
		return -EINVAL;
	for (uint32_t k = 0; k < x->by_count; k++) {
		const struct frag *f = &t->frag[t->piece[t->by_tensor[x->by_first + k]].frag];

		*version = f->round;
		if (f->pushed || f->state != FRAG_IDLE)
			return -EINVAL;
		if (f->round != round - 1 && !(may_have && f->round == round))
			return -ERANGE;
	}
	for (uint32_t k = 0; k < x->by_count; k++)
		t->frag[t->piece[t->by_tensor[x->by_first + k]].frag].round = round - 1;
	x->pushed_to = round - 1;
	table_recounts(t);
	return 0;
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
