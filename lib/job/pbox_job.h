/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_JOB_H
#define PBOX_JOB_H

/**
 * @file
 * Jobs, their members and tables.
 *
 * A job is created and changed by the control thread (lib/registrar). Shards read its
 * constant fields, the tokens and the tables handed to them; nothing of a job is freed before
 * every shard has let go of it.
 */

#include <stdatomic.h>
#include <stdint.h>

#include <pbox_base.h>
#include <pbox_proof.h>
#include <pbox_table.h>
#include <pbox_wire.h>

#include "pbox_job_types.h"

struct pbox_auth_job;  /* pbox_auth.h */
struct pbox_job_parts; /* of lib/registrar */

struct pbox_member {
	uint64_t nonce;
	uint64_t last_seen;     /**< by the control thread, ns */
	uint64_t challenged_ns; /**< when it was asked to prove an address */
	/** What is newest of it, anywhere, and when that was noticed: on the clock by which leases end */
	uint64_t noticed_ns, listened_ns;
	struct pbox_peer peer;
	uint32_t lease_ms;
	uint32_t join_request; /**< id of the JOIN to answer once the shards know the job */
	uint16_t window, mtu;
	uint8_t state; /**< enum pbox_member_state */
	uint8_t left;  /**< how its session ended, or that it was refused: enum pbox_left */
	bool welcome_owed;
	bool removed;      /**< the job goes on without it (R8.5) */
	bool missed;       /**< policy reassign: it has not come back after a restart of the box */
	bool holds_none;   /**< a new process: it declared the first table without RESTORE */
	uint32_t declared; /**< tables declared completely */
	/** Tables that this session has been given all of the map of, and earlier ones of its number (R12.6). */
	uint32_t mapped, mapped_before;
	/** Whom it has said to wait for, and with what (R8.3a); at_ns 0: nobody. */
	struct {
		uint64_t at_ns;
		uint32_t chunk, round;
		uint16_t worker, frag;
	} waits;
	char host[PBOX_NAME_LEN];
};

/** What a rack says that it waits for (R18.8). */
struct pbox_job_rack {
	uint64_t at_ns; /**< 0: it has said nothing, or is no rack */
	char text[256]; /**< "": for nobody of its own */
};

/** A table between its first DECLARE and its release. */
struct pbox_job_table {
	struct pbox_job *job;
	struct pbox_table t;
	struct pbox_declare fixed;  /**< of the first page seen */
	uint16_t declared_by;       /**< worker of that page, for messages */
	struct pbox_tensor *tensor; /**< name NULL: nobody has declared it */
	struct pbox_job_names *names;
	uint64_t **has;       /**< per worker: bitmap of what it has declared, until that is all */
	uint32_t *n_has;      /**< how many, per worker */
	size_t heap;          /**< charged to the job: this, and what it points to */
	unsigned shards_open; /**< shards that acknowledged it */
	bool built, failed;
	bool waits_memory; /**< declared by all; memory that it needs is being cleared */
	/** Built, and somebody else fills it (pbox_registrar_loaded()): its memory is his alone. */
	bool loading;
	/** Then its fragments are made ready, chunk by chunk from next_chunk on. After that its shards get it. */
	bool preparing;
	uint32_t next_chunk;
	struct pbox_shard_table
		*shard[PBOX_MAX_SHARDS]; /**< what shards will get, until they have it */
	/** R10.2: who declared it with RESTORE. The control thread writes, shards read. */
	_Atomic uint64_t restorer[PBOX_MAX_WORKERS / 64];
	unsigned restorers;
	bool restoring; /**< built, and its restorers have not reported all yet */
	bool moving;    /**< and some of that are chunks that come from another box (R16.10) */
	bool restored;  /**< it was built so */
	uint16_t epoch; /**< the latest map_epoch that its restorers had; 0: none has said one */
	bool stateless; /**< and no snapshot has brought what its optimiser keeps (R10.8) */
	uint32_t
		stateless_said; /**< fragments of which the operator has heard that they lack it (R16.13) */
	/** Who declared it so that he goes on in a run that has begun (R12.6): RESTORE or CONTINUE. */
	uint64_t goes_on[PBOX_MAX_WORKERS / 64];
	bool begins_known;       /**< it was built with a version: */
	uint32_t begins;         /**< the highest of its fragments */
	uint16_t failed_by;      /**< worker whose page differed; PBOX_NO_WORKER: nobody's fault */
	struct pbox_error error; /**< why it failed: MISMATCH or NO_MEMORY */
	/** What is known of the round that all fragments have finished, and which one was the last. */
	struct pbox_finished finished;
	uint32_t last_chunk;
	uint16_t last_frag;
	/** The look that goes on, in slices, after that: finished is what the one before it has found. */
	struct {
		bool on;
		bool asked; /**< a SET waits for what it finds */
		uint64_t
			waited_ns; /**< when one was done that a SET waited for; 0: that is answered */
		uint32_t chunk, frag, lowest, last_chunk;
		uint16_t last_frag;
		bool any;
		uint32_t round,
			last_round; /**< highest finished one when it began, and the last one */
	} look;
	uint32_t aged; /**< round at which its schedules were aged */
};

/** Keys of a session (R11.2), as words that shards read while they change: a frame that meets a torn
 * one is dropped, and its session is no more. */
struct pbox_job_keys {
	_Atomic uint64_t worker[2], box[2];
};

/** What is known of the clock and the addresses of a worker's session (R4.9): pbox_fresh.h. Any core reads. */
struct pbox_job_fresh {
	_Atomic uint64_t
		ahead; /**< the worker's clock less the box's, us, modulo 2^64; 0: not known yet */
	_Atomic uint64_t newest; /**< time of its newest control frame by that clock, us */
	_Atomic uint64_t home;   /**< the address that it has proven last to the control thread */
	uint64_t begun_us;       /**< when the session began, by the box's clock */
	_Atomic uint64_t asked;  /**< time of the newest control frame that was charged to it, us */
	_Atomic uint32_t at_once; /**< and how many of that time were */
	_Atomic bool declared; /**< it has declared a table completely: it may send data frames */
};

/** What makes the sessions of a job one run (section 12 of the protocol). */
struct pbox_run {
	uint8_t id[PBOX_RUN_LEN]; /**< zeros: it has no identity */
	uint64_t number;          /**< never 0 */
	bool reported; /**< the number, by a worker that came again after a restart of the box */
};

/** Who owns the slots of a job with a plan (section 15 of the protocol). An entry: the worker, or PBOX_SLOT_NOBODY, and
 * PBOX_SLOT_CUT where a range begins though the slot before it is the same worker's. */
#define PBOX_SLOT_WORKER 0x1FFFu
#define PBOX_SLOT_NOBODY 0x1FFFu
#define PBOX_SLOT_CUT    0x8000u
#define PBOX_OWNER_MAPS  3
struct pbox_job_owners {
	uint32_t edition;               /**< raised by each change */
	uint32_t from;                  /**< round from which map[1] holds; 0: map[0] does in all */
	uint32_t plan;                  /**< number of map[1], if from is not 0 */
	uint32_t only;                  /**< the one round in which map[2] holds; 0: none */
	uint16_t *map[PBOX_OWNER_MAPS]; /**< one entry a slot */
};

struct pbox_job {
	uint16_t id, workers;
	uint16_t slots;    /**< of a round (R5.2a): as many as workers, unless */
	bool names_slots;  /**< they are those of JOIN, and frames name nodes of them (R5.2b) */
	uint32_t nodes;    /**< contributions to a round of a fragment, of all workers */
	uint64_t begun_ns; /**< when it was created: no two jobs of a box have the same */
	uint64_t begun_listened_ns; /**< and on the clock of leases */
	uint16_t window;            /**< granted to each worker and endpoint */
	uint8_t policy;             /**< enum pbox_policy */
	uint16_t least;             /**< workers with which the training begins (R15.1a); 0: all */
	enum pbox_job_state state;
	struct pbox_run run;
	bool made_way; /**< it ends because another run begins: its workers do not join that (R12.3) */
	bool resumed; /**< somebody restores: the job had begun before the box was started again */
	bool table_waits; /**< a table is ready, and shards are opening enough others (PBOX_OPENING) */
	bool numbered;    /**< somebody has joined with a number of its own */
	bool remembers; /**< heap has what the registrar knows of sessions that have ended */
	/** The latest worker that was refused, or ended by an operator, and why (R8.3). */
	struct {
		uint16_t worker;
		char text[384];
	} gone;
	/** Its own copy of its section: as it was when the job began, with the quotas of now (control
	 * thread only). */
	struct pbox_job_conf *conf;
	char name[PBOX_NAME_LEN];
	_Atomic uint64_t *token;    /**< per worker; 0: no session */
	struct pbox_auth_job *auth; /**< NULL: its frames have no tags */
	struct pbox_job_keys *key;  /**< per worker, with auth; written before token */
	struct pbox_member *member;
	struct pbox_job_fresh *fresh;           /**< per worker */
	uint8_t challenge[PBOX_COOKIE_KEY_LEN]; /**< key of what addresses have to echo */
	uint32_t hold_share;                    /**< packets it may hold on each shard */
	unsigned shards_open, shards_closed;
	struct pbox_job_table *table[PBOX_MAX_TABLES];
	uint32_t n_tables;
	/** The last table that failed for all, and whose number was given back (R5.4); code 0: none. */
	struct {
		uint32_t table;
		struct pbox_error error;
	} refused;
	size_t bytes;       /**< parameter memory of its tables */
	size_t round_bytes; /**< from there as well: records of rounds */
	/** Of the process: itself, and all that grows with what its members send. */
	size_t heap;
	size_t heap_most;       /**< of heap; 0: no limit but that of its section */
	uint32_t tensors;       /**< of all its tables */
	uint32_t max_round;     /**< of all tables, as STATUS reports it: */
	uint64_t drift_next_ns; /**< when its workers' clocks are looked at again */
	uint64_t
		dead_logged_ns; /**< when it was last logged that a newcomer finds a run that lives */
	struct pbox_job_rack *rack; /**< by worker, from the first rack's word on; else NULL */
	uint64_t round_looked_ns;   /**< when that was looked at; 0: it is each time */
	/** Of the newest map of chunks that this box knows (R16.9): control frames say it. Any core reads. */
	_Atomic uint16_t map_epoch;
	uint16_t out, out_epoch; /* boxes that are out (bits), by the map of that epoch (R16.12), */
	uint8_t decider;         /* and which box decides, by that map (R16.14) */
	uint16_t map_mtu;        /**< IP MTU that its tables' fragments need; 0: none is mapped */
	struct pbox_shard_job *shard[PBOX_MAX_SHARDS];
	struct pbox_job_owners
		owners; /**< map[0] NULL: each slot's owner is that of pbox_slots_of() */
	struct pbox_job_parts *parts; /**< what parts of the registrar keep of it */
};

/** Heap that a new job is charged with. */
size_t pbox_job_heap(const struct pbox_job_conf *conf, uint16_t workers);
/** @p conf is copied, its secret too. NULL: out of memory. */
struct pbox_job *pbox_job_create(
	uint16_t id, const char *name, const struct pbox_job_conf *conf, uint16_t workers);
/** Tables must have been released by their owner. */
void pbox_job_free(struct pbox_job *job);
/** Workers with a session (joined, perhaps silent). */
unsigned pbox_job_joined(const struct pbox_job *job);

/** Name of the tensor that a fragment begins with; "?" where there is none such. */
const char *pbox_job_tensor(const struct pbox_job *job, uint32_t chunk, unsigned frag);

/**
 * What is charged to a job: parameters (bytes), records of rounds, and the heap. Control thread.
 * pbox_job_left(): what its section lets it take yet, SIZE_MAX: as much as there is.
 */
size_t pbox_job_left(const struct pbox_job *job);
size_t pbox_job_heap_left(const struct pbox_job *job);
/** Charge so much heap; false: it may not take it, and nothing is charged. */
bool pbox_job_charge(struct pbox_job *job, size_t bytes);
void pbox_job_refund(struct pbox_job *job, size_t bytes);
/** -ENOMEM, with the limit that keeps @p what from having so much. */
int pbox_job_short(
	const struct pbox_job *job, size_t need, const char *what, struct pbox_error *err);

/** A table record for the first page of a declaration; NULL with @p err: ENOMEM (the job may not take
 * the memory, or there is none), ENOSPC (too many tensors in the job). */
struct pbox_job_table *pbox_job_table_create(
	struct pbox_job *job, const struct pbox_declare *fixed, struct pbox_error *err);
/** Drop what only the declaration phase needs. */
void pbox_job_table_settle(struct pbox_job_table *jt);
void pbox_job_table_free(struct pbox_job_table *jt);
/** A worker's session has ended: forget what it declared. False: nobody has declared any of it. */
bool pbox_job_table_forget(struct pbox_job_table *jt, uint16_t worker);
/**
 * Take one declared tensor of one worker. 0; or -EEXIST with @p err when it differs from what
 * was declared before (MISMATCH, text names both), or -ENOMEM.
 */
int pbox_job_table_declare(struct pbox_job_table *jt, uint16_t worker, uint32_t index,
	const struct pbox_tensor_entry *e, struct pbox_error *err);
/** The same for the fixed part of a page. */
int pbox_job_table_same(const struct pbox_job_table *jt, uint16_t worker,
	const struct pbox_declare *m, struct pbox_error *err);

#endif /* PBOX_JOB_H */
