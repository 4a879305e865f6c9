/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef HANDSHAKE_H
#define HANDSHAKE_H

/* How a session begins: join.c, refusal.c, path.c; and the tags of its frames: auth.c. */

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include <pbox_wire.h>

#include "link.h"

struct session;

/* ---- how a session begins: join.c, refusal.c, path.c ------------------------------------------ */

#define JOIN_INTERVAL     (100 * NS_PER_MS)
#define JOIN_INTERVAL_MAX NS_PER_S
#define JOIN_COOKIES      16 /* that are kept (R9.3) */

/** Kinds of refusals without a proof: codes of ERROR, or these, of a bad WELCOME. */
#define REFUSAL_PROOF      0x10000u
#define REFUSAL_INSECURE   0x10001u
#define REFUSAL_UNSOUND    0x10002u
#define REFUSAL_UNREADABLE 0x10003u
#define REFUSAL_INCAPABLE  0x10004u

/** R9.3: a refusal that an attacker may have sent, and how often in a row. */
struct doubt {
	unsigned n, kind;
	uint64_t until; /* the last one counts if nothing better has come by then */
	struct pbox_client_error why;
};

struct join {
	struct session *s;
	struct pbox_client_error err; /* of a failure */
	uint64_t next_tx, interval, nonce;
	uint64_t number; /* of the run that it belongs to; 0: it begins here (R12.2) */
	unsigned hellos, joins;
	/* R9.3: what RETRYs have brought since the last HELLO; one of them is the box's */
	struct pbox_retry cookie[JOIN_COOKIES];
	unsigned refers;                /* to other addresses: by boxes, or as one is silent */
	uint64_t asked_ns;              /* since when this address is asked */
	unsigned heard, cookies, tried; /* RETRYs; of them kept; of these, that JOINs went with */
	uint64_t cookie_at;             /* when the first one came */
	uint64_t spree_at;              /* JOINs since then ... */
	unsigned spree;                 /* ... so many */
	uint32_t id, id_before;         /* of its requests; the one before may still be answered */
	int worker;                     /* wanted; -1: any */
	bool answered;
	bool patient; /* ask again after errors that may pass */
	bool done;
	bool renew;                    /* it was refused: the next request has another id */
	bool proven;                   /* a refusal had a proof: the box knows the secret */
	struct doubt doubt;            /* n 0: none */
	bool unproven;                 /* R4.5: the job has no secret, and this worker has one */
	struct auth *auth;             /* of welcome; join_settle takes it */
	int rc;                        /* once done */
	struct pbox_error_msg refused; /* the latest error that was put off; code 0: none */
	struct pbox_welcome welcome;   /* once done with rc 0 */
};

void join_begin(struct join *j, struct session *s, int worker);
/** Send what is due. */
void join_tick(struct join *j);
/** When something is due. */
uint64_t join_due(const struct join *j);
/** Frames that are not for it are ignored. */
void join_frame(struct join *j, const struct rx_frame *f);
/** Is it the id of a request that may still get an answer? */
static inline bool
join_asked(const struct join *j, uint32_t id)
{
	return id != 0 && (id == j->id || id == j->id_before);
}
static inline void
join_finish(struct join *j, int rc)
{
	j->rc = rc;
	j->done = true;
}
/** Its deadline has passed: what has been missing, in its err. */
int join_expired(struct join *j);
/** Take over what WELCOME says. All endpoints begin as new: nothing may be under way. */
int join_settle(struct join *j);
/** The join is over, and its keys were not taken. */
void join_end(struct join *j);
/** ERROR to a HELLO or JOIN. */
void refusal_frame(struct join *j, const struct rx_frame *f);
/** Without a proof: remember it, and ask again. */
void refusal_doubtful(struct join *j, const struct rx_frame *f, unsigned kind,
	const struct pbox_client_error *why);
/** The box has shown that it knows the secret: it would prove a refusal. */
bool refusal_is_provable(const struct join *j);
/** It was repeated often enough, and nothing better has come. */
bool refusal_holds(const struct join *j);
/** The code of the doubtful refusal, and its text in the join's error. */
int refusal_verdict(struct join *j);
/** What an ERROR means for a program. */
int refusal_error(struct pbox_client_error *err, const struct pbox_error_msg *m, const char *what);

#define PATH_TRAIN_MAX 32

/** Path MTU discovery: does the path carry full frames, and trains of them? */
struct path {
	uint64_t began, deadline, next;
	uint64_t answered; /* all small ones are; 0: not yet */
	bool small[PBOX_MAX_ENDPOINTS], full[PBOX_MAX_ENDPOINTS], train[PATH_TRAIN_MAX];
	bool trains;    /* sizes are done */
	unsigned tries; /* trains sent */
	uint32_t full_length;
	uint8_t *payload;
	bool ended;                      /* the session has, for the reason ... */
	struct pbox_error_msg why_ended; /* ... which may have no text */
	bool done;
	int rc; /* once done and not ended */
	struct pbox_client_error err;
};
int path_begin(struct session *s, uint64_t deadline);
void path_frame(struct session *s, const struct rx_frame *f);
void path_tick(struct session *s);
void path_end(struct session *s);

/* auth.c */
void auth_end(struct auth *a);
bool auth_possible(void);
/** What WELCOME (j->welcome, of frame @p f) says of tags: 0 with j->auth as it shall be, a failure, or
 * AUTH_IGNORE: it is not from the box, or of another time. */
#define AUTH_IGNORE 1
int auth_welcome(struct join *j, const struct rx_frame *f);
bool auth_good(const struct auth *a, const struct rx_frame *f);
/** Write the tag of the frame with this header and the payload in @p iov; @p gathered: room for a payload. */
void auth_tag(const struct auth *a, const void *header, const struct iovec *iov, unsigned n,
	uint8_t *gathered, uint8_t *tag);
/** An ERROR SESSION without a tag: not to be believed yet (R11.6)? */
bool auth_doubts(struct session *s);

#endif /* HANDSHAKE_H */
