/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef ENCODE_H
#define ENCODE_H

/* Tables in a format of blocks (R13.6): encode.c. The lane of a fragment calls. */

#include <stdint.h>
#include <sys/uio.h>

struct frag;
struct pbox_hdr;
struct pbox_worker_table;

/** Room for codes and residuals, if the table is in such a format; -1: no memory. */
int encode_open(struct pbox_worker_table *t);
/** The payload of the fragment's contribution to f->round, with format and length in the header; entries of @p iov that were
 * filled. */
unsigned encode_payload(const struct pbox_worker_table *t, const struct frag *f, struct pbox_hdr *h,
	struct iovec *iov);
/** The box has refused the contribution to @p round: its residual is what it was before. */
void encode_refused(struct pbox_worker_table *t, const struct frag *f, uint32_t round);
/** What the payload of a RESULT says in the format of the program's buffers: itself, or, of codes, the place of the copy, where
 * they have been decoded to. */
const uint8_t *encode_value(const struct pbox_worker_table *t, const struct frag *f,
	const struct pbox_hdr *h, const uint8_t *payload);

#endif /* ENCODE_H */
