/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_WIRE_DATA_H
#define PBOX_WIRE_DATA_H

/**
 * @file
 * What frames say in `round`, `base`, `aux` and `weight` of the header, and in the flags HAVE and LATEST: a structure for each
 * frame and discipline. These fields mean one thing in one frame and something else in the next one (doc/protocol.md, sections 6,
 * 10, 14 and 16); only this file and the codec know what is where.
 *
 * pbox_..._put() writes the fields of its frame, sets flags and clears none, and leaves the rest of the header as it is.
 * pbox_..._get() looks neither at the type nor at the discipline: its caller knows them. Names end with the discipline: rounds;
 * slots, which are rounds of a job whose frames name nodes (R5.2b); clock (section 14). Where there is none, all have the same.
 */

#include <math.h>

#include "pbox_wire.h"
#include "pbox_wire_at.h"

#ifdef __cplusplus
extern "C" {
#endif

static inline uint16_t
pbox_flag_if(bool set, unsigned flag)
{
	return (uint16_t)(set ? flag : 0);
}

/* ---- PUSH, PUSHPULL ------------------------------------------------------------------------ */

/** R6.2 */
struct pbox_push_rounds {
	uint32_t round;
	uint32_t from;    /**< the version that it was computed on; for people */
	uint32_t samples; /**< in this contribution */
};

static inline void
pbox_push_rounds_put(struct pbox_hdr *h, const struct pbox_push_rounds *m)
{
	h->round = m->round;
	h->base = m->from;
	h->aux = PBOX_LR_MUL_ONE; /* ignored */
	h->weight = m->samples;
}

static inline struct pbox_push_rounds
pbox_push_rounds_get(const struct pbox_hdr *h)
{
	return (struct pbox_push_rounds){.round = h->round, .from = h->base, .samples = h->weight};
}

/** R5.2b, R6.2 */
struct pbox_push_slots {
	uint32_t round;
	uint32_t node;    /**< pbox_node_code() */
	uint32_t samples; /**< in this contribution */
};

static inline void
pbox_push_slots_put(struct pbox_hdr *h, const struct pbox_push_slots *m)
{
	h->round = m->round;
	h->base = m->node;
	h->aux = PBOX_LR_MUL_ONE; /* ignored */
	h->weight = m->samples;
}

static inline struct pbox_push_slots
pbox_push_slots_get(const struct pbox_hdr *h)
{
	return (struct pbox_push_slots){.round = h->round, .node = h->base, .samples = h->weight};
}

/** Of a contribution in rounds, whether its frame names a node or not. */
static inline uint32_t
pbox_push_samples(const struct pbox_hdr *h)
{
	return h->weight;
}

/** R14.5 */
struct pbox_push_clock {
	uint32_t clock;
	uint32_t from;    /**< the version that it was computed on; for people */
	uint32_t samples; /**< for people */
	uint16_t factor;  /**< bf16 (R14.4) */
};

static inline void
pbox_push_clock_put(struct pbox_hdr *h, const struct pbox_push_clock *m)
{
	h->round = m->clock;
	h->base = m->from;
	h->aux = m->factor;
	h->weight = m->samples;
}

static inline struct pbox_push_clock
pbox_push_clock_get(const struct pbox_hdr *h)
{
	return (struct pbox_push_clock){
		.clock = h->round, .from = h->base, .samples = h->weight, .factor = h->aux};
}

/* ---- PUSH_OK ------------------------------------------------------------------------------- */

/** R6.3 */
struct pbox_push_ok_rounds {
	uint32_t round;
	uint32_t version; /**< the current one */
};

static inline void
pbox_push_ok_rounds_put(struct pbox_hdr *h, const struct pbox_push_ok_rounds *m)
{
	h->round = m->round;
	h->base = m->version;
}

static inline struct pbox_push_ok_rounds
pbox_push_ok_rounds_get(const struct pbox_hdr *h)
{
	return (struct pbox_push_ok_rounds){.round = h->round, .version = h->base};
}

/** R6.3 */
struct pbox_push_ok_slots {
	uint32_t round;
	uint32_t node; /**< of the PUSH */
};

static inline void
pbox_push_ok_slots_put(struct pbox_hdr *h, const struct pbox_push_ok_slots *m)
{
	h->round = m->round;
	h->base = m->node;
}

static inline struct pbox_push_ok_slots
pbox_push_ok_slots_get(const struct pbox_hdr *h)
{
	return (struct pbox_push_ok_slots){.round = h->round, .node = h->base};
}

/** R14.5 */
struct pbox_push_ok_clock {
	uint32_t clock;
	uint32_t version; /**< that it became; if it was there: the current one */
	uint32_t slowest; /**< clock of any member */
	bool had;         /**< it was there */
};

static inline void
pbox_push_ok_clock_put(struct pbox_hdr *h, const struct pbox_push_ok_clock *m)
{
	h->round = m->clock;
	h->base = m->version;
	h->weight = m->slowest;
	h->flags |= pbox_flag_if(m->had, PBOX_F_HAVE);
}

static inline struct pbox_push_ok_clock
pbox_push_ok_clock_get(const struct pbox_hdr *h)
{
	return (struct pbox_push_ok_clock){.clock = h->round,
		.version = h->base,
		.slowest = h->weight,
		.had = (h->flags & PBOX_F_HAVE) != 0};
}

/* ---- PULL ---------------------------------------------------------------------------------- */

/** R6.4 */
struct pbox_pull_rounds {
	uint32_t round;
	bool latest; /**< whatever the round is */
};

static inline void
pbox_pull_rounds_put(struct pbox_hdr *h, const struct pbox_pull_rounds *m)
{
	h->round = m->round;
	h->flags |= pbox_flag_if(m->latest, PBOX_F_LATEST);
}

static inline struct pbox_pull_rounds
pbox_pull_rounds_get(const struct pbox_hdr *h)
{
	return (struct pbox_pull_rounds){
		.round = h->round, .latest = (h->flags & PBOX_F_LATEST) != 0};
}

/** R14.6 */
struct pbox_pull_clock {
	uint32_t bound; /**< the clock that all members must have, unless latest */
	bool latest;
};

static inline void
pbox_pull_clock_put(struct pbox_hdr *h, const struct pbox_pull_clock *m)
{
	h->round = 0;
	h->base = m->latest ? 0 : m->bound;
	h->flags |= pbox_flag_if(m->latest, PBOX_F_LATEST);
}

static inline struct pbox_pull_clock
pbox_pull_clock_get(const struct pbox_hdr *h)
{
	return (struct pbox_pull_clock){
		.bound = h->base, .latest = (h->flags & PBOX_F_LATEST) != 0};
}

/* ---- PUSHPULL and PULL of a table whose results may be differences -------------------------- */

/** R13.7: so many versions before `round` is the one that the sender has a copy of; 0: it has none, or it is not said. Of PUSHPULL
 * after pbox_push_..._put(). */
static inline void
pbox_copy_age_put(struct pbox_hdr *h, uint16_t age)
{
	h->aux = age;
}

static inline uint16_t
pbox_copy_age_get(const struct pbox_hdr *h)
{
	return h->aux;
}

/* ---- RESULT -------------------------------------------------------------------------------- */

/** R6.5 */
struct pbox_result_rounds {
	uint32_t version;
	uint32_t samples; /**< of all contributors */
	uint16_t contributors;
};

static inline void
pbox_result_rounds_put(struct pbox_hdr *h, const struct pbox_result_rounds *m)
{
	h->round = m->version;
	h->base = m->version;
	h->aux = m->contributors;
	h->weight = m->samples;
}

static inline struct pbox_result_rounds
pbox_result_rounds_get(const struct pbox_hdr *h)
{
	return (struct pbox_result_rounds){
		.version = h->round, .samples = h->weight, .contributors = h->aux};
}

/** R14.5 */
struct pbox_result_clock {
	uint32_t version;
	uint32_t own;     /**< clock of the addressee's last push that is in it */
	uint32_t slowest; /**< clock of any member */
	uint16_t members;
};

static inline void
pbox_result_clock_put(struct pbox_hdr *h, const struct pbox_result_clock *m)
{
	h->round = m->version;
	h->base = m->own;
	h->aux = m->members;
	h->weight = m->slowest;
}

static inline struct pbox_result_clock
pbox_result_clock_get(const struct pbox_hdr *h)
{
	return (struct pbox_result_clock){
		.version = h->round, .own = h->base, .slowest = h->weight, .members = h->aux};
}

/* ---- WAIT; its round is that of the frame answered ----------------------------------------- */

/** `missing` of a WAIT: nobody. */
#define PBOX_WAIT_NOBODY UINT32_MAX

/** R6.6 */
struct pbox_wait_rounds {
	uint32_t version;      /**< the current one */
	uint32_t missing;      /**< the first worker, or PBOX_WAIT_NOBODY */
	uint16_t contributors; /**< so far */
	bool have;             /**< the box holds the addressee's contribution */
};

static inline void
pbox_wait_rounds_put(struct pbox_hdr *h, const struct pbox_wait_rounds *m)
{
	h->base = m->version;
	h->aux = m->contributors;
	h->weight = m->missing;
	h->flags |= pbox_flag_if(m->have, PBOX_F_HAVE);
}

static inline struct pbox_wait_rounds
pbox_wait_rounds_get(const struct pbox_hdr *h)
{
	return (struct pbox_wait_rounds){.version = h->base,
		.missing = h->weight,
		.contributors = h->aux,
		.have = (h->flags & PBOX_F_HAVE) != 0};
}

/** R6.6. version is there with have, slot without: the first of the addressee's that is missing. A job's number of slots: none is, but
 * the round has not begun. */
struct pbox_wait_slots {
	uint32_t version; /**< the current one */
	uint32_t slot;
	uint32_t missing;      /**< the first worker, or PBOX_WAIT_NOBODY */
	uint16_t contributors; /**< slots so far */
	bool have;             /**< the box holds all slots of the addressee */
};

static inline void
pbox_wait_slots_put(struct pbox_hdr *h, const struct pbox_wait_slots *m)
{
	h->base = m->have ? m->version : m->slot;
	h->aux = m->contributors;
	h->weight = m->missing;
	h->flags |= pbox_flag_if(m->have, PBOX_F_HAVE);
}

static inline struct pbox_wait_slots
pbox_wait_slots_get(const struct pbox_hdr *h)
{
	bool have = (h->flags & PBOX_F_HAVE) != 0;

	return (struct pbox_wait_slots){.version = have ? h->base : 0,
		.slot = have ? 0 : h->base,
		.missing = h->weight,
		.contributors = h->aux,
		.have = have};
}

/** R14.5 */
struct pbox_wait_clock {
	uint32_t version; /**< the current one */
	uint32_t missing; /**< the slowest member, before INIT 0, or PBOX_WAIT_NOBODY */
	uint16_t lacks; /**< clocks that a PULL waits for, UINT16_MAX at most; of other frames 0 */
};

static inline void
pbox_wait_clock_put(struct pbox_hdr *h, const struct pbox_wait_clock *m)
{
	h->base = m->version;
	h->aux = m->lacks;
	h->weight = m->missing;
}

static inline struct pbox_wait_clock
pbox_wait_clock_get(const struct pbox_hdr *h)
{
	return (struct pbox_wait_clock){.version = h->base, .missing = h->weight, .lacks = h->aux};
}

/* ---- INIT, INIT_OK, FETCH, FETCHED --------------------------------------------------------- */

/** Elements of an array of a fragment (R6.8, R6.13, R6.14, R16.13). What a frame does not have is 0: INIT without flags has
 * neither version nor array, and only FETCHED, and INIT with HAVE, have samples. */
struct pbox_part {
	uint32_t version;
	uint32_t offset;  /**< of its first element in the fragment */
	uint32_t samples; /**< of the version */
	uint16_t array;   /**< 0: parameters; 1, 2: state */
};

static inline void
pbox_part_put(struct pbox_hdr *h, const struct pbox_part *m)
{
	h->round = m->version;
	h->base = m->offset;
	h->aux = m->array;
	h->weight = m->samples;
}

static inline struct pbox_part
pbox_part_get(const struct pbox_hdr *h)
{
	return (struct pbox_part){
		.version = h->round, .offset = h->base, .samples = h->weight, .array = h->aux};
}

/* ---- NORM ---------------------------------------------------------------------------------- */

/** Payload of a NORM_OK that has the sum (R6.15). */
#define PBOX_NORM_LEN 40
/** The unit of its sum is 2^-80 where max_norm is 1. */
#define PBOX_NORM_UNIT_LOG 80

/** log2 of the unit, which is 2^-80 x 4^e, where 2^e is max_norm rounded up to a power of two (1 for a max_norm of 0). It is even. */
static inline int
pbox_norm_unit(double max_norm)
{
	int e = 0;

	if (max_norm != 0.0 && frexp(max_norm, &e) == 0.5)
		e--;
	return 2 * e - PBOX_NORM_UNIT_LOG;
}

/** What a core has of the sum of squares of a round: whole numbers, so that adding them up in any order gives the same. */
struct pbox_norm {
	uint64_t square[3]; /**< 192 bits, the lowest first; the unit is that of pbox_norm_unit() */
	uint32_t
		fragments; /**< that it is of; 0: it is not there any more, and the coefficient is */
	uint32_t
		non_finite; /**< elements that are no finite number, or beyond what the sum can take */
	double coefficient; /**< that the box has of the round (SET id 12); 0: none yet */
};

static inline void
pbox_norm_put(uint8_t *p, const struct pbox_norm *m)
{
	uint64_t bits;

	for (unsigned i = 0; i < 3; i++)
		pbox_st64(p + 8 * i, m->square[i]);
	pbox_st32(p + 24, m->fragments);
	pbox_st32(p + 28, m->non_finite);
	memcpy(&bits, &m->coefficient, 8);
	pbox_st64(p + 32, bits);
}

static inline struct pbox_norm
pbox_norm_get(const uint8_t *p)
{
	struct pbox_norm m = {.fragments = pbox_ld32(p + 24), .non_finite = pbox_ld32(p + 28)};
	uint64_t bits = pbox_ld64(p + 32);

	for (unsigned i = 0; i < 3; i++)
		m.square[i] = pbox_ld64(p + 8 * i);
	memcpy(&m.coefficient, &bits, 8);
	return m;
}

/** @return 1: the sum has more than 192 bits, and is none (R6.15); 0. */
static inline unsigned
pbox_norm_add(uint64_t to[3], const uint64_t x[3])
{
	unsigned __int128 sum = 0;

	for (unsigned i = 0; i < 3; i++) {
		sum += (unsigned __int128)to[i] + x[i];
		to[i] = (uint64_t)sum;
		sum >>= 64;
	}
	return (unsigned)sum;
}

/** Of NORM_OK without a payload: the first worker that a fragment waits for, or PBOX_WAIT_NOBODY. */
static inline uint32_t
pbox_norm_missing_get(const struct pbox_hdr *h)
{
	return h->weight;
}

static inline void
pbox_norm_missing_put(struct pbox_hdr *h, uint32_t worker)
{
	h->weight = worker;
}

/* ---- RESTORE ------------------------------------------------------------------------------- */

/** R10.5, R16.13 */
struct pbox_restore_rounds {
	uint32_t version;      /**< that the sender holds */
	uint32_t samples;      /**< of it */
	uint32_t source;       /**< 1 + the box from which it can bring the arrays, or 0 */
	uint16_t contributors; /**< of it */
	bool have;             /**< it can give the payload */
};

static inline void
pbox_restore_rounds_put(struct pbox_hdr *h, const struct pbox_restore_rounds *m)
{
	h->round = m->version;
	h->base = m->source;
	h->aux = m->contributors;
	h->weight = m->samples;
	h->flags |= pbox_flag_if(m->have, PBOX_F_HAVE);
}

static inline struct pbox_restore_rounds
pbox_restore_rounds_get(const struct pbox_hdr *h)
{
	return (struct pbox_restore_rounds){.version = h->round,
		.samples = h->weight,
		.source = h->base,
		.contributors = h->aux,
		.have = (h->flags & PBOX_F_HAVE) != 0};
}

/** R14.11. From `own` on the box looks for the sender's clock: with have it is that of its last push in the version, without that of
 * the last one that is not in its redo log. */
struct pbox_restore_clock {
	uint32_t version; /**< that the sender retains */
	uint32_t own;
	uint32_t slowest;  /**< with have: as the RESULT of the version said */
	uint32_t answered; /**< without: clock of the sender's last push that was answered */
	uint16_t epoch;    /**< of the version; 0 without have */
	bool have;         /**< it can give the payload */
};

static inline void
pbox_restore_clock_put(struct pbox_hdr *h, const struct pbox_restore_clock *m)
{
	h->round = m->version;
	h->base = m->own;
	h->aux = m->epoch;
	h->weight = m->have ? m->slowest : m->answered;
	h->flags |= pbox_flag_if(m->have, PBOX_F_HAVE);
}

static inline struct pbox_restore_clock
pbox_restore_clock_get(const struct pbox_hdr *h)
{
	bool have = (h->flags & PBOX_F_HAVE) != 0;

	return (struct pbox_restore_clock){.version = h->round,
		.own = h->base,
		.slowest = have ? h->weight : 0,
		.answered = have ? 0 : h->weight,
		.epoch = h->aux,
		.have = have};
}

/* ---- RESTORE_OK; its round is that of the RESTORE ------------------------------------------ */

/** R10.5, R14.11, R16.13 */
struct pbox_restore_ok {
	uint32_t version; /**< the highest reported so far; restored: that of the fragment */
	uint16_t state;   /**< enum pbox_restore, and what it says besides: */
	union {
		uint32_t missing;   /**< NOTED: for whom it waits, or PBOX_WAIT_NOBODY */
		uint32_t arrays;    /**< FETCH: how many to bring */
		uint32_t stateless; /**< DONE, in rounds: 1 if the optimiser's state is lost */
		uint32_t own; /**< DONE, in clocks: the addressee's last push in the version */
	};
};

static inline void
pbox_restore_ok_put(struct pbox_hdr *h, const struct pbox_restore_ok *m)
{
	h->base = m->version;
	h->aux = m->state;
	h->weight = m->missing;
}

static inline struct pbox_restore_ok
pbox_restore_ok_get(const struct pbox_hdr *h)
{
	return (struct pbox_restore_ok){.version = h->base, .state = h->aux, .missing = h->weight};
}

/* ---- control frames ------------------------------------------------------------------------ */

/** ERROR without a payload (R9.1). */
static inline void
pbox_code_put(struct pbox_hdr *h, enum pbox_errcode code)
{
	h->aux = (uint16_t)code;
}

static inline uint16_t
pbox_code_get(const struct pbox_hdr *h)
{
	return h->aux;
}

/** LEFT that nobody has asked for: the box shuts down (R8.4). */
static inline void
pbox_shutdown_put(struct pbox_hdr *h)
{
	h->aux = 1;
}

static inline bool
pbox_shutdown_get(const struct pbox_hdr *h)
{
	return h->chunk == 0 && h->aux == 1;
}

/** PING and PONG: what proves an address (R4.9); 0: nothing. */
static inline void
pbox_nonce_put(struct pbox_hdr *h, uint64_t nonce)
{
	h->round = (uint32_t)nonce;
	h->base = (uint32_t)(nonce >> 32);
}

static inline uint64_t
pbox_nonce_get(const struct pbox_hdr *h)
{
	return (uint64_t)h->base << 32 | h->round;
}

#ifdef __cplusplus
}
#endif

#endif /* PBOX_WIRE_DATA_H */
