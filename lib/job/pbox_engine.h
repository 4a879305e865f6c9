/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_ENGINE_H
#define PBOX_ENGINE_H

/**
 * @file
 * The protocol, as a pure machine: (frame, sender, now) -> answers. No sockets, packet buffers,
 * clocks or logs, so that the same object code runs in the daemon, in the simulator and under the
 * fuzzer.
 *
 * Two kinds of machine. A *shard* (pbox_shard.h) lives on one data core and owns the fragments of
 * its endpoints: PUSH, PULL, PUSHPULL, INIT, PING. The *registrar* (pbox_registrar.h) lives on
 * the control thread and owns jobs, sessions and tables: all other types. They talk by mail.
 */

#include <stdint.h>
#include <string.h>

#include <pbox_job_types.h>
#include <pbox_wire_data.h>

/** A frame that passed pbox_frame_decode(), or pbox_frame_open(). */
struct pbox_frame {
	struct pbox_hdr hdr;
	const uint8_t *payload;
	void *handle; /**< the packet buffer that payload is in, opaque to the engine */
	struct pbox_peer peer;
	bool ce;       /**< its datagram was marked ECN Congestion Experienced */
	bool follows;  /**< there was a frame before it in its datagram */
	bool answered; /**< a PING whose PONG has left (pbox_shard_gate) */
	/** Its CRC was not looked at yet (R2.5). The header is before payload, also of a frame with
	 * flag AUTH, and after it the tag, which is the engine's to check. */
	bool unverified;
};

/** A frame to send; length is in hdr. */
struct pbox_send {
	struct pbox_hdr hdr;
	const struct pbox_peer *peer;
	const void *payload;
	uint32_t payload_crc; /**< of the payload (R2.4); 0 without one */
	uint16_t n_tail;      /**< the last bytes of the payload that are elsewhere, */
	const void *
		tail; /**< here: gone when send() returns. Never of one that is shared, or has a tag */
	/** The payload is parameter memory: it stays where it is until its receiver has proven
	 * that it needs it no more (R6.7), so that it may be sent without a copy. Otherwise it is
	 * the sender's scratch and gone when send() returns. */
	bool shared;
	/** hdr.flags has AUTH: to be written after the payload, by pbox_auth_tag() with the header as
	 * it leaves. Both are gone when send() returns. */
	const uint8_t *tag_key, *digest;
};

/** Write the payload, hdr.length bytes. */
static inline void
pbox_send_payload(void *to, const struct pbox_send *s)
{
	size_t n = s->hdr.length - (size_t)s->n_tail;

	if (n > 0)
		memcpy(to, s->payload, n);
	if (s->n_tail > 0)
		memcpy((uint8_t *)to + n, s->tail, s->n_tail);
}

/** A receiver of a frame that goes to several. */
struct pbox_send_to {
	struct pbox_hdr_to hdr; /**< in place of these fields of the frame */
	const struct pbox_peer *peer;
};

/** What one of them gets. */
static inline struct pbox_send
pbox_send_for(const struct pbox_send *s, const struct pbox_send_to *to)
{
	struct pbox_send one = *s;

	one.hdr.token = to->hdr.token;
	one.hdr.ts = to->hdr.ts;
	one.hdr.held = to->hdr.held;
	one.hdr.worker = to->hdr.worker;
	one.hdr.flags = to->hdr.flags;
	one.peer = to->peer;
	return one;
}

/** The header of an ERROR without payload to a frame (R4.8). */
static inline struct pbox_hdr
pbox_engine_error(const struct pbox_frame *f, uint32_t incarnation, enum pbox_errcode code)
{
	struct pbox_hdr h = {
		.type = PBOX_ERROR,
		.token = f->hdr.token,
		.job = f->hdr.job,
		.worker = f->hdr.worker,
		.incarnation = incarnation,
		.chunk = f->hdr.chunk,
		.frag = f->hdr.frag,
		.round = f->hdr.round,
		.ts = f->hdr.ts,
	};

	pbox_code_put(&h, code);
	return h;
}

/** Where an endpoint's chunks live. */
struct pbox_engine_endpoint {
	struct pbox_endpoint addr;
	uint16_t shard;
	uint8_t node; /**< NUMA node, index into the arenas */
};

/** Tables of a job that its shards are opening at a time; the others wait (registrar_open.c). */
#define PBOX_OPENING 4

/**
 * Kinds of mail from the registrar to a shard, which answers each with the same mail. The number is how many a job
 * has under way to one shard, answers included, whatever its workers and its operator do: registrar_mail() asserts
 * it. So a queue that holds PBOX_MAX_JOBS x PBOX_MAILS_OF_JOB is never full.
 */
#define PBOX_MAILS(X)                                                               \
	X(OPEN_JOB, 1)                                                              \
	X(OPEN_TABLE, PBOX_OPENING)                                                 \
	X(CLOSE_JOB, 1)    /* afterwards the shard knows nothing of the job */      \
	X(SNAPSHOT, 1)     /* begin, or go on, to copy its part of a table */       \
	X(SNAPSHOT_END, 1) /* let go of the memory of that copy */                  \
	X(RESTORERS, 1)    /* tables of the job have fewer restorers now (R10.7) */ \
	X(MEMBERS, 1)      /* rounds wait for another set of workers */             \
	X(QUOTA, 1)        /* rate, repeats and requests of bounds from now on */   \
	X(OWNERS, 1)       /* other workers own slots (section 15) */               \
	X(MOVES, 1)        /* chunks of a table come, or leave (R16.10) */          \
	X(WHY, 2)          /* why is filled; one is of health, one an operator's */

#define PBOX_MAIL_KIND(symbol, most) PBOX_MAIL_##symbol,
enum pbox_mail_kind { PBOX_MAILS(PBOX_MAIL_KIND) };
#undef PBOX_MAIL_KIND
#define PBOX_MAIL_KINDS (PBOX_MAIL_WHY + 1)

#define PBOX_MAIL_MOST(symbol, most) +(most)
#define PBOX_MAILS_OF_JOB            (0 PBOX_MAILS(PBOX_MAIL_MOST))

struct pbox_shard_job;
struct pbox_shard_table;
struct pbox_staging;
struct pbox_why_page;
struct pbox_moves;

/** A message between registrar and shard. Order is kept; the receiver of a pointer owns what it
 * points to until it sends it back. */
struct pbox_mail {
	enum pbox_mail_kind kind;
	uint16_t shard;
	struct pbox_shard_job *job;
	struct pbox_shard_table *table;
	struct pbox_staging *staging; /**< of a snapshot (pbox_staging.h) */
	struct pbox_why_page *why;    /**< pbox_registrar_view.h */
	struct pbox_moves *moves;     /**< pbox_shard_job.h */
};

#endif /* PBOX_ENGINE_H */
