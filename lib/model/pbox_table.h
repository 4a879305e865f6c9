/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_TABLE_H
#define PBOX_TABLE_H

/**
 * @file
 * A mapped table: chunks, their parameter and state memory, and the state of their fragments.
 *
 * Built by the control thread and then handed to the shards. From then on each chunk and its
 * fragments belong to the shard of its endpoint alone; the rest of the structure is constant, except
 * for the hyper-parameter schedule (see below).
 */

#include <stdatomic.h>
#include <stdint.h>

#include <pbox_arena.h>
#include <pbox_base.h>
#include <pbox_layout.h>
#include <pbox_optim.h>
#include <pbox_wire.h>

#define PBOX_SCHEDULE 64 /**< SETs of one group that are remembered */

struct pbox_record; /* of lib/shard */

/** Why a fragment takes no contributions (pbox_fragment.closed). */
enum pbox_fragment_closed {
	PBOX_FRAGMENT_UNINITIALISED = 1, /**< mode 1, before INIT */
	PBOX_FRAGMENT_RESTORING = 2,     /**< its restorers have not all reported (R10.6) */
	PBOX_FRAGMENT_LOST = 4,          /**< nobody could give the version that the box had */
	PBOX_FRAGMENT_LATE = 16, /**< it is lost, as the SETs of its next round are (R10.5) */
	PBOX_FRAGMENT_MOVED = 8, /**< another box has its chunk now (R16.10), */
	PBOX_FRAGMENT_NEEDED =
		32, /**< and nobody has fetched what this one alone has of it (R16.13) */
};

/** State of one fragment. Owner: the shard of its endpoint. */
/** Of a fragment in a format of blocks: whether its version is one that a round has made here, and can be answered with codes. */
enum pbox_fragment_plain {
	PBOX_PLAIN_NOT,  /**< there are codes of it */
	PBOX_PLAIN_THIS, /**< there are none: answers are in fp32 (R13.6) */
	PBOX_PLAIN_NEXT, /**< nor will there be of the next version: who holds this one may hold other values (R13.7) */
};

struct pbox_fragment {
	struct pbox_record *record; /**< who contributes to, or waits for, a new version; or NULL */
	uint32_t version;           /**< last finished round */
	uint32_t payload_crc;       /**< of the answer with this version */
	uint32_t samples;           /**< of this version's contributors */
	uint16_t contributors;      /**< of this version */
	uint8_t init;               /**< bit i: INIT piece i has arrived */
	uint8_t has_result;         /**< an answer can be given from memory */
	uint8_t late; /**< this version waited long for its last contribution: who asked has lost nothing */
	uint8_t closed; /**< bits of enum pbox_fragment_closed; 0: takes contributions */
	union {
		uint8_t crc_is_old; /**< clocks: payload_crc is of an earlier version: it is made when somebody asks */
		uint8_t plain; /**< format of blocks: enum pbox_fragment_plain */
	};
	uint8_t stateless; /**< restored here without what only its former home had (R16.13) */
	uint32_t sum;      /**< 1 + where this version is in its extent, floats; 0: in param */
} __attribute__((aligned(32)));
_Static_assert(sizeof(struct pbox_fragment) == 32, "two fragments a cache line");

/** The sum of a fragment's next round, in a table with two phases (R6.15). Owner: as of the fragment. */
struct pbox_held {
	uint32_t samples;
	uint16_t contributors;
	bool summed; /**< its contributions are gone, and the sum waits for the round's coefficient */
};

struct pbox_chunk {
	float *param; /**< parameters, or the latest sums (pbox_chunk_frag_param) */
	float *s0,
		*s1; /**< optimiser state, or NULL; in a format of blocks, mode 0, s0 is the residual of the answers (R13.6) */
	float *replica; /**< the parameters as workers have them, or NULL: these are just so (R13.7) */
	uint8_t *wire; /**< the same in the pull format when that is not fp32, or NULL */
	struct pbox_fragment *fragment;
	uint32_t *clocks;       /**< pbox_table.clocks of each fragment, or NULL */
	float *hold;            /**< sums of a table with two phases, or NULL; */
	struct pbox_held *held; /**< and what they are, by fragment */
	uint32_t elements;
	uint16_t fragments, group, endpoint;
	uint16_t epoch; /**< of the map that has it here: frames for it say the same */
};

/** What holds from one round on. */
struct pbox_schedule_entry {
	_Atomic uint32_t from_round;
	uint32_t set; /**< bit id: this SET named that hyper-parameter */
	struct pbox_hyper hyper;
};

/**
 * The SETs of one group. The control thread appends: it writes entry[count % PBOX_SCHEDULE] and
 * then raises count with release order; shards read count with acquire order and search
 * backwards. An entry is never changed while a shard may still need it (pbox_schedule_add).
 * The count of a schedule that lives long starts again at a small one; each SET changes it.
 */
struct pbox_schedule {
	_Atomic uint32_t count;
	struct pbox_schedule_entry entry[PBOX_SCHEDULE];
};

/** Which box has a chunk, by the map of that epoch. */
struct pbox_table_home {
	uint8_t box;
	uint16_t epoch;
};

/** Memory of chunks that have come from another box. */
struct pbox_table_extent {
	void *at;
	size_t bytes;
	uint8_t node;
};

struct pbox_table {
	uint32_t id;
	uint8_t mode, op, optimiser, push_format, pull_format, discipline;
	bool hold; /**< sums wait for a coefficient (R6.15) */
	bool mixed; /**< contributions may be fp32 as well as in the push format, one of blocks (R13.9) */
	uint16_t clocks; /**< words that the discipline keeps of a fragment */
	uint16_t vector; /**< bytes after the elements of RESULT and RESTORE (R14.10) */
	uint16_t epoch;  /**< of its chunks */
	uint16_t
		mark; /**< of the snapshot of several boxes that it has begun with; 0: none (R16.16) */
	/** Boxes that it is shared out over (0: this one has all), and which of them this is. A chunk of another box has
	 * endpoint PBOX_ELSEWHERE and no fragments. */
	uint8_t boxes, box;
	/** With boxes, while it is built: which box is to have each of n_given chunks, by the map of given_epoch. NULL, or where the table has
	 * another number of them: as pbox_layout_share() has them, by PBOX_MAP_EPOCH. */
	const uint8_t *given;
	uint32_t n_given;
	uint16_t given_epoch;
	uint16_t
		begun_map; /**< map of the snapshot whose homes it was given; PBOX_MAP_EPOCH: of none */
	/** With boxes, by chunk: where it is, as far as this box knows, and, at the box that decides, where it shall be.
	 * The control thread's. */
	struct pbox_table_home *home, *plan;
	struct pbox_table_extent *extent; /**< n_extents */
	uint32_t n_extents;
	uint64_t *box_load; /**< with boxes: in/out for pbox_layout_share(), while it is built */
	uint8_t init_mask;  /**< pbox_fragment.init of a fragment that is complete */
	uint32_t frag_elements, init_elements;
	uint32_t first_chunk_id, n_chunks;
	uint32_t n_fragments; /**< of this box */
	uint16_t n_groups;    /**< highest group + 1 */
	uint32_t tensors_crc; /**< of names, sizes and groups of its tensors, in order */
	struct pbox_layout layout;
	struct pbox_chunk *chunk;
	struct pbox_schedule *schedule; /**< n_groups */
	size_t bytes;                   /**< taken from the arenas */
	size_t needs;                   /**< of them, or of those that there were not, at least */
	size_t heap;                    /**< and besides: chunks, layout, schedule */

	struct pbox_arena *arena[PBOX_MAX_NODES];
	void *block[PBOX_MAX_ENDPOINTS]; /**< one extent for each endpoint used */
	size_t block_bytes[PBOX_MAX_ENDPOINTS];
	uint8_t block_node[PBOX_MAX_ENDPOINTS];
	/** All-reduce with fp32 answers, and tables in clocks: room for one more fragment in each extent. The next
	 * version is made there, and is not copied: what it replaces is the next one's room. Else NULL. */
	float *spare[PBOX_MAX_ENDPOINTS];
};

/**
 * Lay out, place and allocate. Control thread. What cannot fit is refused before it is laid out: the
 * time that a table takes is bounded by the memory it gets, not by what a worker declares.
 *
 * @param t        formats, mode, op, optimiser, discipline, hold, clocks, vector, epoch, boxes, box, box_load, given and what
 *                 belongs to it, frag_elements, init_elements, id and first_chunk_id are the caller's; the rest is filled
 * @param chunk_elements  wanted size of chunks (pbox_layout_chunk)
 * @param load     in/out, elements per endpoint (pbox_layout_place)
 * @param quota    most bytes the table may take
 * @return 0 or -errno with @p err: -ENOMEM when the quota is too small, or an arena, -ENOSPC where others
 *         have so much of it that it is, -EAGAIN when it
 *         will fit when memory that was given back is cleared, -E2BIG (pbox_layout_build), -EINVAL
 *         when INIT takes more frames than a fragment can keep
 */
int pbox_table_build(struct pbox_table *t, const struct pbox_tensor *tensors, uint32_t n,
	uint32_t chunk_elements, const struct pbox_place *place, unsigned endpoints,
	struct pbox_arena *const arena[PBOX_MAX_NODES], uint64_t *load, size_t quota,
	struct pbox_error *err);
/**
 * Memory for chunks that come here from another box. One that was here before has its own still. Control thread.
 *
 * @param index  n chunks, each once
 * @param quota  most bytes that they may take
 * @param out    what pbox_chunk is to be of each, but for its epoch; its fragments are zero, or what they were
 * @return 0 or -errno with @p err, as pbox_table_build() has them
 */
int pbox_table_take(struct pbox_table *t, const uint32_t *index, uint32_t n,
	const struct pbox_place *place, unsigned endpoints, uint64_t *load, size_t quota,
	struct pbox_chunk *out, struct pbox_error *err);
/** Zero and give back everything; @p load as for build, or NULL. */
void pbox_table_release(struct pbox_table *t, uint64_t *load);
/** Bytes that a table has of a node's arena. */
size_t pbox_table_bytes_on(const struct pbox_table *t, unsigned node);

/** Are results differences to what workers have (R13.7)? Then chunks have a replica. */
static inline bool
pbox_table_differs(const struct pbox_table *t)
{
	return t->mode == PBOX_MODE_OPTIMISER && pbox_format_is_block(t->pull_format);
}

/** Arrays of a chunk beside its parameters, in fp32 and as long: the optimiser's state, then the residual (mode 0) or the replica of a
 * format of blocks. */
static inline unsigned
pbox_table_states(const struct pbox_table *t)
{
	return pbox_optim_states(t->optimiser) + pbox_format_is_block(t->pull_format);
}

/** Array @p i of them, 1 to pbox_table_states(). */
static inline float *
pbox_chunk_state(const struct pbox_table *t, const struct pbox_chunk *c, unsigned i)
{
	if (c->replica != NULL && i == pbox_table_states(t))
		return c->replica;
	return i == 1 ? c->s0 : c->s1;
}

/** Is there more of a fragment than what its workers hold as its last result: state of an optimiser, or parameters that are more precise?
 * Then a chunk that moves needs all that its former home has of it (R16.13). */
static inline bool
pbox_table_has_more(const struct pbox_table *t)
{
	return (t->mode == PBOX_MODE_OPTIMISER &&
		       (pbox_optim_states(t->optimiser) > 0 || t->pull_format != PBOX_FMT_FP32)) ||
	       pbox_format_is_block(t->pull_format);
}

/** A chunk that this box has; NULL: it has none. */
const struct pbox_chunk *pbox_table_own_chunk(const struct pbox_table *t);

/** Elements of fragment @p f of a chunk. */
static inline uint32_t
pbox_chunk_frag_elements(const struct pbox_table *t, const struct pbox_chunk *c, unsigned f)
{
	uint32_t first = f * t->frag_elements, left = c->elements - first;

	return left < t->frag_elements ? left : t->frag_elements;
}

/** What the discipline keeps of it: pbox_table.clocks words, zeros at first. Owner: as of its fragment. */
static inline uint32_t *
pbox_chunk_frag_clocks(const struct pbox_table *t, const struct pbox_chunk *c, unsigned f)
{
	return c->clocks + (size_t)f * t->clocks;
}

/** Its version, while its owner may finish a round. Any thread. */
static inline uint32_t
pbox_chunk_frag_version(const struct pbox_chunk *c, unsigned f)
{
	return __atomic_load_n(&c->fragment[f].version, __ATOMIC_RELAXED);
}

/** Where its parameters or its latest sum are. Owner: as of its fragment. */
static inline float *
pbox_chunk_frag_param(const struct pbox_table *t, const struct pbox_chunk *c, unsigned f)
{
	if (c->fragment[f].sum != 0)
		return (float *)t->block[c->endpoint] + (c->fragment[f].sum - 1);
	return c->param + (size_t)f * t->frag_elements;
}

/** Where its answer is packed, in a pull format other than fp32; else NULL. Owner: as of its fragment. */
static inline uint8_t *
pbox_chunk_frag_wire(const struct pbox_table *t, const struct pbox_chunk *c, unsigned f)
{
	if (c->wire == NULL)
		return NULL;
	return c->wire + f * pbox_payload_bytes(t->pull_format, t->frag_elements);
}

/** Put it elsewhere in its extent. */
static inline void
pbox_chunk_frag_move(
	const struct pbox_table *t, const struct pbox_chunk *c, unsigned f, const float *to)
{
	c->fragment[f].sum = (uint32_t)(to - (const float *)t->block[c->endpoint]) + 1;
}

/** How far the fragments of a table are: rounds are compared modulo 2^32 (R6.1). */
struct pbox_finished {
	uint32_t highest; /**< the latest round that any fragment has finished */
	uint32_t lowest;  /**< no fragment has finished less; may be less than it could be */
	bool known;       /**< lowest is; else any entry may still be needed */
};

/**
 * Append to a schedule. Control thread.
 *
 * @return 0 (also for an exact repetition), PBOX_E_SET_LATE, PBOX_E_SET_CONFLICT,
 *         PBOX_E_SET_ORDER, PBOX_E_FULL (a fragment still needs the oldest entry) or
 *         PBOX_E_BAD_REQUEST; on failure err has the text
 */
int pbox_schedule_add(struct pbox_schedule *s, enum pbox_optimiser kind, const struct pbox_set *m,
	const struct pbox_finished *finished, struct pbox_error *err);
/** What pbox_schedule_add() would return; nothing is changed. */
int pbox_schedule_check(struct pbox_schedule *s, enum pbox_optimiser kind, const struct pbox_set *m,
	const struct pbox_finished *finished, struct pbox_error *err);
/**
 * Entries that have held for very long hold from a later round on, which all fragments have finished:
 * without that they would seem to be of the future 2^31 rounds after their own. Control thread, once in
 * PBOX_SCHEDULE_AGE rounds at least.
 */
void pbox_schedule_age(struct pbox_schedule *s, uint32_t lowest);
#define PBOX_SCHEDULE_AGE (1u << 28)
/**
 * The same for a table that is being restored, before any of it is (R10.4): workers repeat the SETs
 * that still matter, each from its own round on, so they come in any order and for any round. One
 * is put where its round says, and the later ones inherit from it what they did not set.
 * Control thread, while no shard looks at the schedule.
 *
 * @return 0, PBOX_E_SET_CONFLICT, PBOX_E_FULL or PBOX_E_BAD_REQUEST
 */
int pbox_schedule_restore(struct pbox_schedule *s, enum pbox_optimiser kind,
	const struct pbox_set *m, struct pbox_error *err);
/** The value that a SET has given hyper-parameter @p id for just this round; false: none has. Any thread. */
bool pbox_schedule_exact(const struct pbox_schedule *s, uint32_t round, unsigned id, double *value);
/** Is what holds in @p round still there? A fragment that has come from another box may be too late. Any thread, while
 * nothing is appended to a schedule of 64 entries. */
bool pbox_schedule_reaches(const struct pbox_schedule *s, uint32_t round);
/** What holds in @p round. Any thread. */
const struct pbox_hyper *pbox_schedule_at(struct pbox_schedule *s, uint32_t round);

#endif /* PBOX_TABLE_H */
