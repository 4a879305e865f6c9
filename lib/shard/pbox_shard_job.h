/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_SHARD_JOB_H
#define PBOX_SHARD_JOB_H

/**
 * @file
 * What a shard keeps of a job and of its tables, as the registrar sees it.
 *
 * The registrar allocates both in the arena of the NUMA node of the shard's core, hands them over by mail (OPEN_JOB,
 * OPEN_TABLE), and frees them after CLOSE_JOB is back. In between they are the shard's: the registrar reads what is
 * atomic here, and writes the inbox. All functions: the control thread.
 */

#include <stdatomic.h>

#include <pbox_engine.h>
#include <pbox_job.h>

#include "pbox_sick.h"
#include "pbox_worker_stats.h"

/** What a job takes of a shard before its first table. */
struct pbox_shard_room {
	unsigned workers, slots; /**< named: they are those of JOIN (R5.2b) */
	bool named, planned;     /**< planned: their owners change (section 15) */
	unsigned peers;          /**< of one worker */
	uint32_t records, hold;  /**< rounds, and packets that may be held for them */
	uint32_t folded;         /**< sums of nodes that may be folded early at the same time, */
	uint32_t kept;           /**< those of them that are for the oldest round alone, */
	size_t acc_bytes;        /**< and the size of one */
	/** A rack (section 18): rounds are of slots first to first + rack_slots - 1, and their sums go up. rack_slots 0: no rack. */
	uint16_t rack_first, rack_slots;
};
/** More folded nodes than that are of no use. */
#define PBOX_SHARD_FOLDED 64u

/** Bytes that pbox_shard_job_create() takes of the arena. */
size_t pbox_shard_job_bytes(const struct pbox_shard_room *room);
/** NULL: the arena has no memory. */
struct pbox_shard_job *pbox_shard_job_create(struct pbox_job *job, uint16_t shard,
	const struct pbox_shard_room *room, struct pbox_arena *arena);
/** With its tables. No shard knows it, or NULL. */
void pbox_shard_job_free(struct pbox_shard_job *j);
struct pbox_job *pbox_shard_job_of(const struct pbox_shard_job *j);

/** What the registrar writes while a shard has the job. */
struct pbox_shard_inbox {
	/** The next set of workers that are waited for, one bit a worker, and the next bounds: the shard's while a mail
	 * MEMBERS, or QUOTA, is out. */
	uint64_t *members;
	/** With these: those that have left by themselves, and are still members (policy wait): the clocks of tables do not wait
	 * for them. */
	uint64_t *left;
	struct pbox_job_bounds bounds;
	/** The same of owners and a mail OWNERS; map NULL: they do not change. */
	struct pbox_job_owners owners;
	uint16_t shard; /**< whose it is */
	/** Mails under way, by kind, and a bit of each kind of which one more must follow: the registrar's alone. */
	uint8_t mails[PBOX_MAIL_KINDS];
	uint16_t mail_again;
};
struct pbox_shard_inbox *pbox_shard_inbox(struct pbox_shard_job *j);

/** Add this shard's to @p out; round: the later one, if out->contributions was not 0. */
void pbox_shard_worker(
	const struct pbox_shard_job *j, unsigned worker, struct pbox_worker_stats *out);
/** What it sent that is not finite; worker = the job's number of workers: sums that overflowed. False: nothing. */
bool pbox_shard_sick(const struct pbox_shard_job *j, unsigned worker, struct pbox_sick *out);
/** It changes with each of these. */
uint64_t pbox_shard_sick_all(const struct pbox_shard_job *j);
/** When the worker contributed last in its session, ns; 0: it has not. */
uint64_t pbox_shard_last_seen(const struct pbox_shard_job *j, unsigned worker);
/** A session of the worker begins: its token is not published yet. */
void pbox_shard_session(struct pbox_shard_job *j, unsigned worker);
/** The newest frame of a session on any core but the control thread, by the worker's clock in us, and when it came (ns);
 * 0: none, and @p heard_ns is as it was. Any thread. */
uint64_t pbox_shard_newest_of_cores(
	const struct pbox_job *job, unsigned worker, uint64_t token, uint64_t *heard_ns);
/** The newest on any core. Any thread. */
uint64_t pbox_shard_newest(const struct pbox_job *job, unsigned worker, uint64_t token);

/** Does a shard know that discipline of tables (enum pbox_discipline)? */
bool pbox_shard_has_discipline(unsigned discipline);
/** pbox_table.clocks of a table with that discipline. */
unsigned pbox_shard_clocks(unsigned discipline, unsigned workers);
/** And pbox_table.vector. */
unsigned pbox_shard_vector(unsigned discipline, unsigned workers);
/** Bytes that pbox_shard_table_create() takes of the arena. */
size_t pbox_shard_table_bytes(const struct pbox_table *t, unsigned workers);
/** NULL: the arena has no memory. To be freed by pbox_arena_free(), unless a shard has it. */
struct pbox_shard_table *pbox_shard_table_create(
	struct pbox_table *t, unsigned workers, struct pbox_arena *arena);
/** The table that the shard has; NULL: it has not got it yet. */
struct pbox_shard_table *pbox_shard_table_of(const struct pbox_shard_job *j, uint32_t table);
uint32_t pbox_shard_table_number(const struct pbox_shard_table *st);

/** Before its shard has it: a fragment of it begins at that round, as finished; */
void pbox_shard_table_begins(struct pbox_shard_table *st, uint32_t round);
/** so many more of its fragments are to be restored; */
void pbox_shard_table_restores(struct pbox_shard_table *st, uint32_t fragments);
/** and by whom: the registrar's bitmap, which lives as long. */
void pbox_shard_table_restorers(struct pbox_shard_table *st, const _Atomic uint64_t *restorer);

/** The highest round that one of its fragments has finished; false: none has, and @p round is as it was. */
bool pbox_shard_table_round(const struct pbox_shard_table *st, uint32_t *round);

/** What becomes of a chunk of this box (R16.10). */
struct pbox_move {
	uint32_t chunk; /**< of the table */
	uint16_t epoch; /**< of the map that says so */
	bool comes;     /**< else it leaves */
	bool apart;     /**< it comes with memory of its own, beside its endpoint's extent */
	struct pbox_chunk memory; /**< comes: what it is to be here, but for its epoch */
};
/** Of one table, at the chunks of one shard; the registrar's again when the mail is back. */
struct pbox_moves {
	uint32_t n;
	struct pbox_move move[];
};

/** How far restoring is (section 10). */
struct pbox_shard_restoring {
	uint32_t left, lost; /**< fragments */
	uint32_t lost_chunk; /**< of the first that is lost, if any */
	uint16_t lost_frag;
	bool lost_late; /**< ... as its SETs are gone */
	/** Fragments, since the table began, that have gone on without what only their former home had of them (R16.13); and the chunk of
	 * the first. */
	uint32_t stateless, stateless_chunk;
	/** Fragments that have moved to another box, and of which nobody has fetched yet what this one alone has. */
	uint32_t needed;
};
struct pbox_shard_restoring pbox_shard_table_restoring(const struct pbox_shard_table *st);

#endif /* PBOX_SHARD_JOB_H */
