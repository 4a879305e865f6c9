/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef JOIN_H
#define JOIN_H

/**
 * @file
 * Getting a session (section 4 of the protocol), step by step: who calls brings the time and the
 * frames. Open does it and waits; rejoin.c does it again beside everything else.
 */

#include "client_impl.h"

struct join {
	struct pbox_client *c;
	struct pbox_client_error *err; /* of a failure; may be NULL */
	uint64_t next_tx, interval, cookie_at, nonce, cookie;
	uint64_t number; /* of the run that it belongs to; 0: it begins here (R12.2) */
	unsigned hellos, joins;
	uint32_t id; /* of its requests */
	uint32_t incarnation;
	int worker; /* wanted; -1: any */
	bool have_cookie, answered;
	bool patient; /* ask again after errors that may pass */
	bool done;
	bool unproven;                 /* R4.5: the job has no secret, and this worker has one */
	struct auth *auth;             /* of welcome; join_settle takes it */
	int rc;                        /* once done */
	struct pbox_error_msg refused; /* the latest error that was put off; code 0: none */
	struct pbox_welcome welcome;   /* once done with rc 0 */
};

void join_begin(struct join *j, struct pbox_client *c, uint64_t nonce, int worker,
	struct pbox_client_error *err);
/** Send what is due; returns when to call again. */
uint64_t join_tick(struct join *j, uint64_t now);
/** @param ctx  the struct join; frames that are not for it are ignored */
void join_frame(void *ctx, const struct rx_frame *f);
/** Take over what WELCOME says. All endpoints begin as new: nothing may be under way. */
int join_settle(struct pbox_client *c, struct join *j, struct pbox_client_error *err);
/** The join is over, and nobody took what it has. */
void join_end(struct join *j);

#endif /* JOIN_H */
