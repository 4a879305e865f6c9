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

#define JOIN_INTERVAL     (100 * NS_PER_MS)
#define JOIN_INTERVAL_MAX NS_PER_S

/** What refuses without a proof: codes of ERROR, or a WELCOME that is not good. */
#define REFUSAL_PROOF    0x10000u
#define REFUSAL_INSECURE 0x10001u
#define REFUSAL_UNSOUND  0x10002u

/** R9.3: a refusal that anybody may have sent, and how often in a row. */
struct doubt {
	unsigned n, kind;
	uint64_t until; /* the last one stands if nothing better has come by then */
	struct pbox_client_error why;
};

struct join {
	struct pbox_client *c;
	struct pbox_client_error *err; /* of a failure; may be NULL */
	uint64_t next_tx, interval, cookie_at, nonce, cookie;
	uint64_t number; /* of the run that it belongs to; 0: it begins here (R12.2) */
	unsigned hellos, joins;
	unsigned retries;       /* that were taken since the last HELLO */
	uint32_t id, id_before; /* of its requests; the one before may still be answered */
	uint32_t incarnation;
	int worker; /* wanted; -1: any */
	bool have_cookie, answered;
	bool patient; /* ask again after errors that may pass */
	bool done;
	bool renew;                    /* it was refused: the next request has another id */
	bool proven;                   /* a refusal was: the box knows the secret */
	struct doubt doubt;            /* n 0: none */
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
/** Is it the id of a request that may still be answered? */
bool join_asked(const struct join *j, uint32_t id);
void join_finish(struct join *j, int rc);
/** Take over what WELCOME says. All endpoints begin as new: nothing may be under way. */
int join_settle(struct pbox_client *c, struct join *j, struct pbox_client_error *err);
/** The join is over, and nobody took what it has. */
void join_end(struct join *j);
/** HMAC-SHA-256 of @p prefix and the payload, whose proof field is zeroed. */
void join_prove(
	const char *secret, const char *prefix, const uint8_t *payload, size_t len, uint8_t *proof);

/* ---- what refuses (refusal.c) */

/** ERROR to a HELLO or JOIN. */
void refusal_frame(struct join *j, const struct rx_frame *f);
/** Without a proof: remember it, and ask again. */
void refusal_doubtful(struct join *j, const struct rx_frame *f, unsigned kind,
	const struct pbox_client_error *why);
/** The box has shown that it knows the secret: it would prove a refusal. */
bool refusal_is_provable(const struct join *j);
/** It was repeated often enough, and nothing better has come. */
bool refusal_stands(const struct join *j, uint64_t now);
/** The code of the doubtful refusal, and its text in the join's error. */
int refusal_verdict(struct join *j);

#endif /* JOIN_H */
