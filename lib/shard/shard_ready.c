/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Rounds that are complete, finished together; and the check of a payload. */

#include "shard_impl.h"

bool
shard_verify(const struct pbox_frame *f)
{
	return pbox_frame_verify(f->payload, pbox_crc32c(0, f->payload, f->hdr.length));
}

void
shard_finish_ready(struct pbox_shard *s)
{
	shard_send_batch(s); /* while their versions are the current ones */
	for (unsigned i = 0; i < s->n_ready; i++) {
		const struct target *g = &s->ready[i], *next = g + 1;
		const struct discipline *d = g->st->discipline;
		bool follows = i + 1 < s->n_ready && next->j == g->j && next->st->discipline == d;

		d->burst(s, g, follows ? next : NULL);
	}
	s->n_ready = 0;
}
