/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>

#include "worker_impl.h"

/*
 * Retained results: of each fragment the last result that has arrived, and its version, for a restart of the box
 * (section 10). They are copies, because the buffers of an operation are the caller's.
 */

int
retained_open(struct pbox_worker_table *t)
{
	const struct chunk *last = t->chunks > 0 ? &t->chunk[t->chunks - 1] : NULL;

	if (last == NULL)
		return 0;
	t->retained = calloc(t->frags, sizeof(*t->retained));
	t->retained_payload =
		pbox_worker_room(pbox_payload_bytes(t->pull_format, last->at + last->elements));
	return t->retained != NULL && t->retained_payload != NULL ? 0 : -1;
}

static struct retained *
retained_of(const struct pbox_worker_table *t, const struct frag *f)
{
	return &t->retained[table_frag_number(t, f)];
}

uint8_t *
retained_place(const struct pbox_worker_table *t, const struct frag *f)
{
	return t->retained_payload + pbox_payload_bytes(t->pull_format, table_frag_at(t, f));
}

static uint8_t *
vector_of(const struct pbox_worker_table *t, const struct frag *f)
{
	return t->retained_vector + (size_t)table_frag_number(t, f) * t->vector;
}

struct retained *
retained_result(struct pbox_worker_table *t, const struct frag *f, const struct pbox_hdr *h,
	const uint8_t *payload)
{
	size_t bytes = pbox_payload_bytes(t->pull_format, frag_elements(t, f));
	struct retained *k;

	if (t->retained_payload == NULL)
		return NULL;
	if (payload != NULL && payload != retained_place(t, f)) /* it is there: encode_value() */
		aside_copy(retained_place(t, f), payload, bytes);
	if (payload != NULL && t->vector > 0)
		memcpy(vector_of(t, f), payload + bytes, t->vector);
	if (payload == NULL)
		memset(retained_place(t, f), 0, bytes);
	k = retained_of(t, f);
	*k = (struct retained){.version = h->round, .have = true};
	return k;
}

static void
narrow(uint8_t *to, unsigned format, const struct iovec *from)
{
	for (size_t i = 0; i < from->iov_len / sizeof(float); i++) {
		uint16_t half;
		float x;

		memcpy(&x, (const uint8_t *)from->iov_base + i * sizeof(x), sizeof(x));
		half = half_narrow(x, format);
		memcpy(to + i * sizeof(half), &half, sizeof(half));
	}
}

void
retained_init(struct pbox_worker_table *t, struct frag *f)
{
	struct iovec iov[MAX_PIECES];
	uint8_t *to;
	unsigned n;

	if (t->retained_payload == NULL || f->round != 0)
		return;
	to = retained_place(t, f);
	n = table_gather(t, f, 0, 0, frag_elements(t, f), PBOX_FMT_FP32, iov, MAX_PIECES);
	for (unsigned i = 0; i < n; i++) {
		if (t->pull_format == PBOX_FMT_FP32)
			memcpy(to, iov[i].iov_base, iov[i].iov_len);
		else
			narrow(to, t->pull_format, &iov[i]);
		to += pbox_payload_bytes(t->pull_format, iov[i].iov_len / sizeof(float));
	}
	if (t->vector > 0) /* nobody has pushed */
		memset(vector_of(t, f), 0, t->vector);
	*retained_of(t, f) = (struct retained){.have = n > 0};
}

const struct retained *
retained_at(const struct pbox_worker_table *t, const struct frag *f, uint32_t version)
{
	const struct retained *k = t->retained != NULL ? retained_of(t, f) : NULL;

	return k != NULL && k->have && k->version == version ? k : NULL;
}

unsigned
retained_give(const struct pbox_worker_table *t, const struct frag *f, struct pbox_hdr *h,
	struct iovec *iov)
{
	assert(!table_is_pull_lane(t, f) && t->retained_payload != NULL);
	h->length = (uint16_t)pbox_payload_bytes(t->pull_format, frag_elements(t, f));
	iov[0] = (struct iovec){retained_place(t, f), h->length};
	if (t->vector == 0)
		return 1;
	iov[1] = (struct iovec){vector_of(t, f), t->vector};
	h->length += t->vector;
	return 2;
}
