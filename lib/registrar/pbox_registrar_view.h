/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_REGISTRAR_VIEW_H
#define PBOX_REGISTRAR_VIEW_H

/**
 * @file
 * What is to be seen of jobs, workers and tables: values, made when they are asked for.
 *
 * Threads as in pbox_registrar.h, where nothing else is said. A job is named by the pointer that a look-up here gives:
 * it is good until the next call that is not a const one, and a view's texts are as long. A view is the caller's.
 */

#include <pbox_registrar.h>
#include <pbox_why.h>
#include <pbox_wire.h>
#include <pbox_worker_stats.h>

/** Jobs that exist, including those closing. */
unsigned pbox_registrar_jobs(const struct pbox_registrar *r);
/** The i-th existing job, for status and telemetry; NULL after the last. */
const struct pbox_job *pbox_registrar_job(const struct pbox_registrar *r, unsigned i);
/** By its name, or number; NULL: there is none. */
const struct pbox_job *pbox_registrar_job_named(const struct pbox_registrar *r, const char *name);
const struct pbox_job *pbox_registrar_job_numbered(const struct pbox_registrar *r, unsigned id);

struct pbox_job_view {
	const struct pbox_job *job; /**< whose it is */
	const char *name;
	uint64_t begun_ns; /**< when it was created: no two jobs of a box have the same */
	uint64_t kept_ns;  /**< kept (R8.2b) since then; 0: a worker lives */
	uint64_t run;      /**< its number */
	uint64_t bytes;    /**< parameter memory of its tables */
	uint32_t tables;   /**< declared by somebody, mapped or not */
	uint32_t hold;     /**< packets that it may hold on each shard */
	uint16_t id, workers;
	uint16_t slots; /**< of a round: as many as workers, unless its workers ask for more */
	uint16_t joined, silent; /**< workers with a session; those beyond their lease */
	uint16_t window;         /**< granted to each worker and endpoint */
	uint8_t policy;          /**< PBOX_POLICY_WAIT or _SHRINK */
	bool snapshots;          /**< its section has snapshots of it taken */
	uint16_t map_epoch;      /**< of the newest map of its chunks that this box knows (R16.9) */
	enum pbox_job_state state;
};
void pbox_registrar_view_job(
	const struct pbox_registrar *r, const struct pbox_job *job, struct pbox_job_view *out);

/** What each of the job's boxes has of it by the newest map; at the box that decides alone that is the whole truth. */
struct pbox_homes_view {
	uint16_t epoch;
	uint16_t out;    /**< bit by box: the job goes on without it */
	uint8_t decider; /**< which box decides (R16.14) */
	uint32_t chunks[PBOX_MAX_BOXES];
	uint64_t elements[PBOX_MAX_BOXES];
};
void pbox_registrar_view_homes(const struct pbox_job *job, struct pbox_homes_view *out);

/** How far moves of a job are at this box: not by the plan, but by what has come and left. */
struct pbox_moving_view {
	uint16_t epoch; /**< of the newest map that this box knows */
	uint32_t here;  /**< chunks that this box has: rounds need it */
	uint32_t
		planned; /**< and by the newest map; at the box that decides alone that is the whole truth */
	uint32_t restoring; /**< fragments that come, and are not complete */
	/** Fragments that have left, and of which nobody has fetched what this box alone has: they would go on without (R16.13). */
	uint32_t needed;
	uint32_t stateless; /**< fragments that went on here without it, since the job began */
	unsigned unshown;   /**< workers that have not shown that map here */
	bool more;          /**< the box that decides: some chunks will be moved by later maps */
	bool busy;          /**< data cores are changing some of this */
};
void pbox_registrar_view_moving(
	const struct pbox_registrar *r, const struct pbox_job *job, struct pbox_moving_view *out);
/** Its `stateless` alone, without a look at each chunk. */
uint32_t pbox_registrar_stateless(const struct pbox_registrar *r, const struct pbox_job *job);

/** Whose contributions make sums that are not finite (R6.16). */
struct pbox_sick_view {
	int worker;         /**< who began with it; -1: nobody, a sum has overflowed */
	uint32_t round;     /**< in which */
	uint32_t last;      /**< the last one so far of those that follow from that */
	uint64_t fragments; /**< of that worker, since the job began */
	const char *what;   /**< it was: "a NaN", ... */
	const char *tensor;
	uint64_t element; /**< of the tensor */
	char text[400];   /**< all of that */
};
/** False: there was nothing of that within the last minute. */
bool pbox_registrar_sick(
	const struct pbox_registrar *r, const struct pbox_job *job, struct pbox_sick_view *out);

/** A worker that the box has refused within the last minute, for something that it does not get right by asking again. */
struct pbox_refused_view {
	char job[PBOX_NAME_LEN], host[PBOX_NAME_LEN]; /**< as it said; nobody has proven them */
	uint32_t ip;                                  /**< its address, network byte order */
	int worker;                                   /**< the number that it asked for; -1: any */
	int code;                                     /**< enum pbox_errcode */
	bool missed;     /**< a job of that name is here, and waits for such a worker */
	uint64_t ago_ns; /**< as of now_ns */
	char text[400];  /**< what it was answered */
};
/** The i-th of them, a few at most; false: there are no more. */
bool pbox_registrar_refused(
	const struct pbox_registrar *r, unsigned i, uint64_t now_ns, struct pbox_refused_view *out);

struct pbox_member_view {
	const char *host;   /**< "": nobody has joined */
	uint64_t silent_ns; /**< since anything valid was heard of it; UINT64_MAX: never */
	uint32_t ip;        /**< where its answers go, network byte order; 0: nowhere yet */
	uint16_t udp;
	uint16_t window; /**< frames that it may have under way to an endpoint */
	uint32_t lease_ms;
	uint32_t rtt_us;   /**< 0: not known (pbox_registrar_measure()) */
	uint32_t declared; /**< tables that it has declared completely */
	uint8_t state;     /**< enum pbox_member_state */
	bool removed;      /**< the job goes on without it (R8.5) */
	bool rack;         /**< it is a rack (section 18) */
	/** And says that it waits for; "": nobody of its own. NULL: it has said nothing lately. */
	const char *rack_waits;
};
void pbox_registrar_view_member(const struct pbox_registrar *r, const struct pbox_job *job,
	unsigned worker, uint64_t now_ns, struct pbox_member_view *out);

enum pbox_table_state {
	PBOX_TABLE_DECLARED, /**< not by all workers, or it waits for memory */
	PBOX_TABLE_LOADING,  /**< its memory is the loader's */
	PBOX_TABLE_PREPARING,
	PBOX_TABLE_RESTORING, /**< from its workers' copies (R10.2) */
	PBOX_TABLE_MAPPED,
	PBOX_TABLE_FAILED,
};

struct pbox_table_view {
	enum pbox_table_state state;
	const char *error; /**< of one that failed; else NULL */
	bool built;        /**< it is laid out and has its memory: what follows is known */
	bool open;         /**< all shards know it */
	uint8_t mode, optimiser, push_format, pull_format;
	bool mixed;     /**< pushes may be fp32 as well (R13.9) */
	unsigned plain; /**< of the round in progress, as SET says it (R13.10) */
	uint32_t chunks, fragments, frag_elements;
	uint64_t elements, bytes;
	uint32_t version;         /**< of its first fragment */
	uint32_t round;           /**< highest one that any fragment has finished */
	uint32_t restoring, lost; /**< fragments not restored yet; that could not be (R10.6) */
};
void pbox_registrar_view_table(const struct pbox_registrar *r, const struct pbox_job *job,
	uint32_t table, struct pbox_table_view *out);

/** ns since anything valid was heard from a worker, as of @p now_ns; UINT64_MAX: never. */
uint64_t pbox_registrar_silence(const struct pbox_registrar *r, const struct pbox_job *job,
	unsigned worker, uint64_t now_ns);

/** Of all shards. Any thread that holds what keeps the job from ending. */
void pbox_registrar_worker(const struct pbox_registrar *r, const struct pbox_job *job,
	unsigned worker, struct pbox_worker_stats *out);
/** Highest round that any fragment of a table has finished. */
uint32_t pbox_registrar_round(
	const struct pbox_registrar *r, const struct pbox_job *job, uint32_t table);
/** And of all tables of a job that are built. */
uint32_t pbox_registrar_job_round(const struct pbox_registrar *r, const struct pbox_job *job);

/** Name of the tensor that a fragment begins with; "?" where there is none such. */
const char *pbox_registrar_tensor(
	const struct pbox_registrar *r, const struct pbox_job *job, uint32_t chunk, unsigned frag);

/** Ask all shards; their answers come by mail. NULL: out of memory, the job is
 * not open, or two questions about it are unanswered. */
struct pbox_why *pbox_registrar_why(struct pbox_registrar *r, const struct pbox_job *job);
/** Give it back, complete or not. */
void pbox_registrar_why_end(struct pbox_why *why);

/** Changes of owners that are remembered. */
#define REGISTRAR_WORK_CHANGES 10
struct registrar_work_change {
	uint32_t round; /**< in progress then */
	uint64_t ns;
	char text[160]; /**< a sentence: why */
};

/** Work by plan (section 15 of the protocol). */
struct pbox_job_work {
	uint32_t round, plan, edition;
	uint32_t next_from;      /**< round from which the next plan holds; 0: none waits */
	double predicted;        /**< seconds of a round; 0: not known */
	uint64_t steals, stolen; /**< within rounds: how often, and slots (R15.10) */
	unsigned changes;
	struct registrar_work_change change[REGISTRAR_WORK_CHANGES]; /**< the oldest first */
};
/** False: the job has none, or it has not begun. Control thread. */
bool pbox_registrar_view_work(
	const struct pbox_registrar *r, const struct pbox_job *job, struct pbox_job_work *out);

struct pbox_member_work {
	bool member; /**< false: it is gone, or does not answer */
	unsigned slots;
	double slot_seconds;    /**< of one slot */
	double predicted, seen; /**< seconds of a round; 0: not known */
	uint32_t round;         /**< that `seen` is of */
	uint32_t fits;          /**< samples that its memory holds */
	uint32_t samples;       /**< of a slot; 0: `fits` is not known */
	uint64_t got, gave;     /**< slots, stolen within rounds of its session */
};
void pbox_registrar_view_worker_work(const struct pbox_registrar *r, const struct pbox_job *job,
	unsigned worker, struct pbox_member_work *out);

/** What a worker has measured of the boxes of the job (R16.8). False: nothing yet, or this box is not the first one. Control thread. */
bool pbox_registrar_view_times(const struct pbox_registrar *r, const struct pbox_job *job,
	unsigned worker, struct pbox_stats_msg *out);

#endif /* PBOX_REGISTRAR_VIEW_H */
