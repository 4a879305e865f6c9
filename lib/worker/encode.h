/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef ENCODE_H
#define ENCODE_H

/* Tables in a format of blocks (R13.6 to R13.8, R14.14): encode.c. The lane of a fragment calls. */

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

struct flight;
struct frag;
struct pbox_hdr;
struct pbox_worker;
struct pbox_worker_table;

/** Room for codes and residuals, if the table is in such a format; -1: no memory. */
int encode_open(const struct pbox_worker *w, struct pbox_worker_table *t);
/** Room for the codes of so many nodes, if the table has any; -1: no memory. No push is unfinished. */
int encode_room(struct pbox_worker_table *t, unsigned nodes);
/** The payload of the flight's contribution, at the node that is due, with format and length in the header; @p n entries of @p iov were
 * filled. False: it goes in fp32, as the program brings it. */
bool encode_payload(const struct pbox_worker *w, const struct pbox_worker_table *t,
	const struct flight *fl, struct pbox_hdr *h, struct iovec *iov, unsigned *n);
/** The box has refused the contribution to @p round: its residual is what it was before, unless other nodes of it were sent. */
void encode_refused(struct pbox_worker_table *t, const struct frag *f, uint32_t round);
/** The codes of a push of the fragment to a table in clocks, with the residual that is in that half, by its factor: what they do not say
 * is in the other half then. */
void encode_update(const struct pbox_worker_table *t, const struct frag *f, uint8_t *codes,
	float factor, unsigned half);
/** The format of a RESULT's payload: that of the program's buffers, or of codes. */
unsigned encode_format(const struct pbox_worker_table *t, const struct pbox_hdr *h);
/** Is the RESULT of use? A difference is to the version before it, and another copy than of that gets nowhere with it. */
bool encode_fits(const struct pbox_worker_table *t, const struct frag *f, const struct pbox_hdr *h);
/** What the payload of a RESULT that fits says in the format of the program's buffers: itself, or, of codes, the place of the copy,
 * where they have been decoded to, or added. The copy is of that version then: retained_result() follows. */
const uint8_t *encode_value(const struct pbox_worker_table *t, const struct frag *f,
	const struct pbox_hdr *h, const uint8_t *payload);
/** How many versions before f->round the copy of the fragment is, as PUSHPULL and PULL say it; 0: there is none that a difference could
 * be to. */
uint16_t encode_age(const struct pbox_worker_table *t, const struct frag *f);

#endif /* ENCODE_H */
