/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_REGISTRAR_H
#define PBOX_REGISTRAR_H

/**
 * @file
 * The control side of the engine: joining, tables, hyper-parameters, leases, status.
 *
 * All functions: the control thread. May allocate. Never blocks.
 */

#include <pbox_arena.h>
#include <pbox_engine.h>
#include <pbox_stage.h>
#include <pbox_stats.h>

enum pbox_registrar_stat {
	PBOX_RS_RX_FRAMES,
	PBOX_RS_RX_HELLO,
	PBOX_RS_RX_JOIN,
	PBOX_RS_RX_DECLARE,
	PBOX_RS_RX_MAP,
	PBOX_RS_RX_SET,
	PBOX_RS_RX_STATUS,
	PBOX_RS_RX_LEAVE,
	PBOX_RS_RX_PING,
	PBOX_RS_DROP_SESSION_UNKNOWN,
	PBOX_RS_DROP_SESSION_TOKEN,
	PBOX_RS_DROP_SESSION_INCARNATION,
	PBOX_RS_DROP_AUTH,     /**< no tag, a wrong one, or one in a session without (R11.5) */
	PBOX_RS_DROP_REPLAYED, /**< an old frame, from another address (R4.9) */
	PBOX_RS_DROP_UNPROVEN, /**< from an address that has proven nothing yet */
	PBOX_RS_DROP_MALFORMED,
	PBOX_RS_DROP_COOKIE,
	PBOX_RS_DROP_TYPE,
	PBOX_RS_REFUSED, /**< requests answered with ERROR */
	PBOX_RS_JOBS,
	PBOX_RS_WORKERS,
	PBOX_RS_TABLES,
	PBOX_RS_EXPIRED, /**< sessions that fell silent beyond their lease */
	PBOX_RS_PINGS,   /**< PINGs to sessions whose number is claimed (R4.6) */
	PBOX_RS_TAKEN_OVER,
	PBOX_RS_REMOVED,    /**< workers that a job went on without (R8.5) */
	PBOX_RS_RUNS_ENDED, /**< runs that made way for another (R12.3), or were found dead (R12.7) */
	PBOX_RS_STATS
};

#define PBOX_RS_FIRST_ACCEPT PBOX_RS_RX_HELLO
#define PBOX_RS_FIRST_DROP   PBOX_RS_DROP_SESSION_UNKNOWN
#define PBOX_RS_LAST_DROP    PBOX_RS_DROP_TYPE

extern const struct pbox_stat_def pbox_registrar_stat_defs[PBOX_RS_STATS];

struct pbox_registrar_ops {
	void (*send)(void *ctx, const struct pbox_send *s);
	/** Deliver to m->shard, in order, without loss. What workers do leads to at most this for a shard
	 * that does not answer: of each job one OPEN_JOB, MEMBERS, RESTORERS and CLOSE_JOB, and an OPEN_TABLE
	 * of each table; room() is asked before a job or a table is made. The others are an operator's. */
	void (*post)(void *ctx, const struct pbox_mail *m);
	/** Unpredictable bytes: tokens, keys. */
	void (*random)(void *ctx, void *buf, size_t n);
	/** Something an operator wants to know; may be NULL. */
	void (*event)(void *ctx, enum pbox_log_level level, const char *text);
	/**
	 * A table has been laid out, and no shard knows it yet: may it begin with a snapshot? NULL:
	 * there are none. It may fill chunks (param, s0, s1 and wire) and slots (version, samples,
	 * contributors, payload_crc, has_result); without @p restoring the schedules too: workers
	 * that restore a table (R10.2) repeat their SETs. What takes time another thread does: then the
	 * table is loading, and its memory and its record are that thread's to write and to read, until
	 * pbox_registrar_loaded() says that it has let go. The job is not freed before that.
	 * @return 0; -EINPROGRESS: pbox_registrar_loaded() will follow; else the table begins with nothing
	 */
	int (*restore)(void *ctx, const struct pbox_job *job, struct pbox_table *t, bool restoring);
	/**
	 * Is there memory for the mails of one more job or table, should they have to wait? Else it
	 * is refused. NULL: always.
	 */
	bool (*room)(void *ctx);
	/** The job ends: pbox_registrar_loaded() shall come soon. NULL: restore() is never under way. */
	void (*restore_cancel)(void *ctx, const struct pbox_job *job, uint32_t table);
	/** How far it is, for those who wait. NULL as well. */
	void (*restore_text)(
		void *ctx, const struct pbox_job *job, uint32_t table, char *text, size_t cap);
};

struct pbox_registrar_conf {
	uint32_t incarnation;
	/** Runs get numbers above this (R12.2): pbox_registrar_first_run(). */
	uint64_t first_run;
	uint16_t max_jobs, max_workers;
	uint32_t chunk_elements;
	uint32_t lease_ms; /**< default and upper bound of what a worker may ask for */
	uint32_t
		grace_ms; /**< how long a run is kept whose workers are all silent; 0: not at all */
	uint16_t mtu;     /**< smallest of the ports */
	uint32_t hold;    /**< packets that each shard may hold for all jobs */
	unsigned n_shards;
	const struct pbox_engine_endpoint *endpoint;
	unsigned n_endpoints;
	struct pbox_arena *arena[PBOX_MAX_NODES];
	const struct pbox_job_conf *job; /**< lives until it is replaced (pbox_registrar_reload) */
	unsigned n_jobs;                 /**< entries of job */
	const struct pbox_registrar_ops *ops;
	void *ctx;
	uint64_t *stats; /**< PBOX_RS_STATS values, zeroed */
};

struct pbox_registrar;

/** Of a box that starts now, nanoseconds since 1970: above all numbers of one that started earlier and has begun no more
 * than a run each microsecond, as far as the clock is right. */
uint64_t pbox_registrar_first_run(uint64_t unix_ns);
struct pbox_registrar *pbox_registrar_create(const struct pbox_registrar_conf *conf);
/** After the shards are destroyed or have let go of all jobs. */
void pbox_registrar_destroy(struct pbox_registrar *r);

/** Take a control frame (any type below PBOX_FIRST_DATA_TYPE). Nothing of it is kept. */
void pbox_registrar_rx(struct pbox_registrar *r, const struct pbox_frame *f, uint64_t now_ns);
/** A HELLO-sized datagram of another protocol @p version (R2.2); hdr as far as readable. */
void pbox_registrar_version(struct pbox_registrar *r, const struct pbox_frame *f, unsigned version);
/** Take a mail that a shard sent back. */
void pbox_registrar_mail(struct pbox_registrar *r, const struct pbox_mail *m, uint64_t now_ns);
/**
 * All that had come by @p ns has been given to the registrar and its shards. Leases go on by this alone, and
 * by a tenth of a second at most each time: for longer nobody has listened (R8.2).
 */
void pbox_registrar_heard(struct pbox_registrar *r, uint64_t ns);
/** Go on with what is done in slices, each below a millisecond or so: memory of ended jobs is cleared, large
 * tables are made ready. True: there is more to do, call it again soon. pbox_registrar_tick() does one
 * slice, too. */
bool pbox_registrar_work(struct pbox_registrar *r, uint64_t now_ns);
/** A table that ops.restore said -EINPROGRESS of is nobody else's again: filled, or as it was. @p err: NULL, or
 * why its workers cannot have it. */
void pbox_registrar_loaded(struct pbox_registrar *r, const struct pbox_job *job, uint32_t table,
	const struct pbox_error *err, uint64_t now_ns);
/** Bytes of memory that ended jobs had and that is not cleared yet. */
size_t pbox_registrar_uncleared(const struct pbox_registrar *r);
/** Leases; call every 10 to 100 ms. */
void pbox_registrar_tick(struct pbox_registrar *r, uint64_t now_ns);
/** Tell all workers that the box stops (LEFT); repeat it a few times, frames get lost. No new
 * session is given from now on. */
void pbox_registrar_shutdown(struct pbox_registrar *r, uint64_t now_ns);
/** End all jobs: they are gone (pbox_registrar_jobs() is 0) when every shard has answered. */
void pbox_registrar_close(struct pbox_registrar *r, uint64_t now_ns);

/**
 * Begin to copy table @p table of @p job into @p memory (64-byte aligned): as it is after the round
 * that is its highest finished one plus @p ahead. One copy at a time.
 *
 * @return 0; -ENOENT, -EAGAIN (no round is finished), -ENOMEM (@p size is too small) with @p err
 */
int pbox_registrar_stage(struct pbox_registrar *r, const struct pbox_job *job, uint32_t table,
	uint32_t ahead, struct pbox_stage *stage, void *memory, size_t size, uint64_t now_ns,
	struct pbox_error *err);
/** Go on; call it often. -EINPROGRESS; or how it ended, and memory is the caller's again: 0, -ESTALE
 * (a fragment was beyond the round: try a later one), -EAGAIN (fragments are rounds apart:
 * pbox_registrar_stage_why()), -ECANCELED (the job ended), -ETIMEDOUT
 * (cancelled). */
int pbox_registrar_stage_step(struct pbox_registrar *r, uint64_t now_ns);
/** All is copied but what has not come to the round yet: workers are waited for, and nothing else. */
bool pbox_registrar_stage_waits(const struct pbox_registrar *r);
/** In words, after -EAGAIN; valid until the next copy. */
const char *pbox_registrar_stage_why(const struct pbox_registrar *r);
/** Give up: pbox_registrar_stage_step() tells when. */
void pbox_registrar_stage_cancel(struct pbox_registrar *r, uint64_t now_ns);

/** Jobs that exist, including those closing. */
unsigned pbox_registrar_jobs(const struct pbox_registrar *r);
/** The i-th existing job, for status and telemetry; NULL behind the last. */
const struct pbox_job *pbox_registrar_job(const struct pbox_registrar *r, unsigned i);
/** The section that a job of this name begins by: its own, or "*"; NULL: it may not begin. Until the next
 * pbox_registrar_reload(). */
const struct pbox_job_conf *pbox_registrar_section(
	const struct pbox_registrar *r, const char *name);
/** ns since anything valid was heard from a worker, as of @p now_ns; UINT64_MAX: never. */
uint64_t pbox_registrar_silence(const struct pbox_registrar *r, const struct pbox_job *job,
	unsigned worker, uint64_t now_ns);

/** What all shards have counted of a worker since the job began. They grow only; sessions of its
 * number add up. */
struct pbox_worker_stats {
	uint64_t contributions; /**< fragments that it brought to a round */
	uint64_t bytes;         /**< payload of these */
	uint64_t repeats;       /**< what it sent or asked for again: packets were lost */
	uint64_t pulls;         /**< pulls and probes */
	uint64_t last;          /**< fragments that were complete with its contribution */
	uint64_t waited_ns;     /**< sum over these: since the first contribution came, without
				* the time in which its core looked for none (pbox_shard_away()) */
	uint32_t round;         /**< the newest one that it contributed to, of any table */
};
/** Any thread that holds what keeps the job from ending. */
void pbox_registrar_worker(const struct pbox_registrar *r, const struct pbox_job *job,
	unsigned worker, struct pbox_worker_stats *out);
/** Highest round that any fragment of a table has finished. */
uint32_t pbox_registrar_round(
	const struct pbox_registrar *r, const struct pbox_job *job, uint32_t table);
/** Fragments of a table that are not restored yet, and that could not be (R10.6). */
void pbox_registrar_restoring(const struct pbox_registrar *r, const struct pbox_job *job,
	uint32_t table, uint32_t *restoring, uint32_t *lost);

/**
 * The next tick asks a worker for its round trip: a PING, which it answers at once (R4.6), once a second
 * at most. What comes of it stands in member.rtt_us of the job: the time until the registrar had the answer.
 */
void pbox_registrar_measure(struct pbox_registrar *r, uint16_t job, unsigned worker);
/** Are answers to these expected now? Whoever calls the registrar then does so often. */
bool pbox_registrar_measuring(const struct pbox_registrar *r, uint64_t now_ns);

/**
 * End the session of a worker for good: it is told so, and @p why, also when it joins again. Its
 * process may be started anew.
 *
 * @return 0; -ENOENT with @p err: it has no session
 */
int pbox_registrar_kick(struct pbox_registrar *r, uint16_t job, unsigned worker, const char *why,
	uint64_t now_ns, struct pbox_error *err);
/**
 * Other sections of jobs, and other defaults of lease and grace, from now on. A job that runs keeps what it began
 * with, but for what can change under it: quotas and snapshots at once, the lease of sessions to
 * come. One whose section is gone runs on, and does not begin again.
 */
void pbox_registrar_reload(struct pbox_registrar *r, const struct pbox_job_conf *job,
	unsigned n_jobs, uint32_t lease_ms, uint32_t grace_ms, uint64_t now_ns);
/** Begin no new jobs from now on (or again); workers of those that exist may still join. */
void pbox_registrar_drain(struct pbox_registrar *r, bool on);
bool pbox_registrar_draining(const struct pbox_registrar *r);

/** What a job waits for; complete when answered == shards. */
struct pbox_why {
	unsigned shards, answered;
	bool abandoned;
	struct pbox_why_page page[];
};
/** Ask all shards; their answers come by mail. NULL: out of memory, or the job is not open. */
struct pbox_why *pbox_registrar_why(struct pbox_registrar *r, const struct pbox_job *job);
/** Give it back, complete or not. */
void pbox_registrar_why_end(struct pbox_why *why);

#endif /* PBOX_REGISTRAR_H */
