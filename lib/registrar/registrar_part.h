/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef REGISTRAR_PART_H
#define REGISTRAR_PART_H

/*
 * The parts of the registrar. A part is a file with one constant: the frames, mails and moments that it is called for, and
 * the size of what it keeps. What it keeps is its own: no other file knows the type. registrar_parts.c has the
 * table of them; all hooks may be NULL.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pbox_frame;
struct pbox_job;
struct pbox_job_table;
struct pbox_mail;
struct pbox_registrar;

/* A frame in a session that is good, from an address that is proven. */
typedef void (*registrar_handler)(
	struct pbox_registrar *r, const struct pbox_frame *f, struct pbox_job *job);

/* Parts, in the order in which their hooks are called. */
#define REGISTRAR_PARTS(X) \
	X(event)           \
	X(nonce)           \
	X(address)         \
	X(claim)           \
	X(measure)         \
	X(work)            \
	X(task)            \
	X(restore)         \
	X(rounds)          \
	X(lease)           \
	X(keep)            \
	X(open)            \
	X(table)           \
	X(boxes)           \
	X(rack)            \
	X(times)           \
	X(homes)           \
	X(moves)           \
	X(requests)        \
	X(staging)         \
	X(sick)            \
	X(refused)         \
	X(view)            \
	X(join)            \
	X(close)           \
	X(operator)

#define REGISTRAR_PART_ID(name) PART_##name,
enum registrar_part_id { REGISTRAR_PARTS(REGISTRAR_PART_ID) REGISTRAR_PARTS_END };

struct registrar_part {
	const char *name;
	/* Frames that are its; the last row has no function. */
	struct registrar_type {
		registrar_handler on;
		uint8_t type;
	} types[5];
	uint32_t mails; /* bits of the kinds of mail that are its, when they are back */
	void (*mail)(struct pbox_registrar *r, const struct pbox_mail *m);

	/* A session of worker w has begun, or ended: its token is there, or gone. */
	void (*session_begin)(struct pbox_registrar *r, struct pbox_job *job, unsigned w);
	void (*session_end)(struct pbox_registrar *r, struct pbox_job *job, unsigned w);
	/* Workers are not waited for any more (R8.5). */
	void (*members)(struct pbox_registrar *r, struct pbox_job *job);
	/* Again and again: of all, and of each open job. */
	void (*tick_all)(struct pbox_registrar *r);
	void (*tick)(struct pbox_registrar *r, struct pbox_job *job);
	/* All workers have declared a table, and it is not mapped: is it this part that keeps it? In what words. */
	bool (*why)(const struct pbox_registrar *r, const struct pbox_job *job,
		const struct pbox_job_table *jt, char *text, size_t cap);
	/* The shards have let go of a job, and it is about to be freed; and so is the registrar. */
	void (*job_end)(struct pbox_registrar *r, struct pbox_job *job);
	void (*end)(struct pbox_registrar *r);

	/* Bytes that it keeps: one piece, one a job, one a worker. They begin with zeros; those of a worker each time that
	 * a session of it begins. */
	size_t state, job_state, member_state;
};

/* registrar_parts.c */
extern const struct registrar_part *const registrar_parts[REGISTRAR_PARTS_END];

/* registrar_part.c: the hooks of all parts, and their memory. */
/* False: out of memory, and nothing is left. */
bool registrar_parts_create(struct pbox_registrar *r, const struct registrar_part *const *parts);
void registrar_parts_destroy(struct pbox_registrar *r);
/* Bytes of heap of a job with so many workers. */
size_t registrar_parts_heap(const struct pbox_registrar *r, unsigned workers);
bool registrar_parts_job_begin(const struct pbox_registrar *r, struct pbox_job *job);
void registrar_parts_job_end(struct pbox_registrar *r, struct pbox_job *job);
/* NULL: no part has this type. */
registrar_handler registrar_parts_handler(const struct pbox_registrar *r, unsigned type);
/* False: no part has this kind of mail. */
bool registrar_parts_mail(struct pbox_registrar *r, const struct pbox_mail *m);
void registrar_parts_session_begin(struct pbox_registrar *r, struct pbox_job *job, unsigned w);
void registrar_parts_session_end(struct pbox_registrar *r, struct pbox_job *job, unsigned w);
void registrar_parts_members(struct pbox_registrar *r, struct pbox_job *job);
void registrar_parts_tick(struct pbox_registrar *r);
bool registrar_parts_why(const struct pbox_registrar *r, const struct pbox_job *job,
	const struct pbox_job_table *jt, char *text, size_t cap);

/* What a part keeps: for its own file alone. */
void *registrar_state(const struct pbox_registrar *r, enum registrar_part_id part);
void *registrar_job_state(const struct pbox_job *job, enum registrar_part_id part);
void *registrar_member_state(const struct pbox_job *job, enum registrar_part_id part, unsigned w);

#endif /* REGISTRAR_PART_H */
