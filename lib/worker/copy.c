/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>

#include "worker_impl.h"

/*
 * What a restarted box is told: of every fragment the last result that came, and its version. The
 * caller's buffers are the caller's, so this is a copy.
 */

int
copy_open(struct pbox_worker_table *t)
{
	const struct chunk *last = t->chunks > 0 ? &t->chunk[t->chunks - 1] : NULL;

	if (last == NULL)
		return 0;
	t->held = calloc(t->frags, sizeof(*t->held));
	t->copy = malloc(pbox_payload_bytes(t->pull_format, last->at + last->elements));
	return t->held != NULL && t->copy != NULL ? 0 : -1;
}

static struct held *
held_of(const struct pbox_worker_table *t, const struct frag *f)
{
	return &t->held[f - t->frag];
}

static uint8_t *
place_of(const struct pbox_worker_table *t, const struct frag *f)
{
	uint64_t at = t->chunk[f->chunk].at + (uint64_t)f->index * t->frag_elements;

	return t->copy + pbox_payload_bytes(t->pull_format, at);
}

void
copy_result(struct pbox_worker_table *t, struct frag *f, const struct pbox_hdr *h,
	const uint8_t *payload)
{
	size_t bytes = pbox_payload_bytes(t->pull_format, frag_elements(t, f));

	if (t->copy == NULL)
		return;
	if (payload != NULL)
		memcpy(place_of(t, f), payload, bytes);
	else
		memset(place_of(t, f), 0, bytes);
	*held_of(t, f) = (struct held){
		.version = h->round, .samples = h->weight, .contributors = h->aux, .have = true};
}

void
copy_init(struct pbox_worker_table *t, struct frag *f)
{
	struct iovec iov[MAX_PIECES];
	uint8_t *to;
	unsigned n;

	/* in another format the box rounds: worker 0 has it once it pulls */
	if (t->copy == NULL || t->pull_format != PBOX_FMT_FP32 || f->round != 0)
		return;
	to = place_of(t, f);
	n = table_gather(t, f, 0, frag_elements(t, f), PBOX_FMT_FP32, iov, MAX_PIECES);
	for (unsigned i = 0; i < n; i++) {
		memcpy(to, iov[i].iov_base, iov[i].iov_len);
		to += iov[i].iov_len;
	}
	*held_of(t, f) = (struct held){.have = n > 0};
}

uint32_t
copy_version(const struct pbox_worker_table *t, const struct frag *f)
{
	uint32_t version = held_of(t, f)->version;

	/* who pushes and never pulls knows from each push that was taken that the round before
	 * it had ended */
	return f->pushed && f->round - version > 1 ? f->round - 1 : version;
}

unsigned
copy_restore(const struct pbox_worker_table *t, const struct frag *f, const struct flight *fl,
	struct pbox_hdr *h, struct iovec *iov)
{
	const struct held *k = held_of(t, f);

	h->round = copy_version(t, f);
	h->format = t->pull_format;
	if (!k->have || h->round != k->version)
		return 0;
	h->flags |= PBOX_F_HAVE;
	h->aux = k->contributors;
	h->weight = k->samples;
	if (!fl->give)
		return 0;
	h->length = (uint16_t)pbox_payload_bytes(t->pull_format, frag_elements(t, f));
	iov[0] = (struct iovec){place_of(t, f), h->length};
	return 1;
}
