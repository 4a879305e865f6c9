/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_REGISTRAR_H
#define PBOX_REGISTRAR_H

/**
 * @file
 * The control side of the engine: joining, tables, hyper-parameters, leases, status. This header is for who runs it.
 *
 * All functions of the registrar are called by one thread at a time: the control thread, or another one that holds
 * its lock. They may allocate, and never block. What is given by pointer is the caller's, and not kept, unless it says
 * so. What a registrar gives by const pointer is its own, and valid until the next call that is not a const one.
 *
 * - pbox_registrar_operator.h: what an operator asks for
 * - pbox_registrar_view.h: what is to be seen of jobs, workers and tables
 * - pbox_registrar_snapshot.h: copies of tables, and tables that begin with a copy
 */

#include <pbox_arena.h>
#include <pbox_engine.h>
#include <pbox_stats.h>

struct pbox_place; /* pbox_layout.h */

/* clang-format off */
#define PBOX_REGISTRAR_VALUES(X) \
	X(PBOX_RS_RX_FRAMES, COUNTER, rx_frames, "frames", "control frames received") \
	X(PBOX_RS_RX_HELLO, COUNTER, rx_hello, "frames", "HELLOs, answered with a cookie") \
	X(PBOX_RS_RX_JOIN, COUNTER, rx_join, "frames", "JOINs with a good cookie") \
	X(PBOX_RS_RX_DECLARE, COUNTER, rx_declare, "frames", "pages of table declarations") \
	X(PBOX_RS_RX_MAP, COUNTER, rx_map, "frames", "requests for pages of a chunk map") \
	X(PBOX_RS_RX_SET, COUNTER, rx_set, "frames", "hyper-parameter settings") \
	X(PBOX_RS_RX_STATUS, COUNTER, rx_status, "frames", "status requests") \
	X(PBOX_RS_RX_LEAVE, COUNTER, rx_leave, "frames", "sessions ended by their worker") \
	X(PBOX_RS_RX_WORK, COUNTER, rx_work, "frames", "reports and questions of work by plan") \
	X(PBOX_RS_RX_TASK, COUNTER, rx_task, "frames", "workers that ask for slots of others within a round, or say which they have not begun") \
	X(PBOX_RS_RX_BOXES, COUNTER, rx_boxes, "frames", "questions which boxes a job is at") \
	X(PBOX_RS_RX_STATS, COUNTER, rx_stats, "frames", "what workers measured of the boxes of a job") \
	X(PBOX_RS_RX_HOMES, COUNTER, rx_homes, "frames", "workers that ask or say which box has which chunk") \
	X(PBOX_RS_RX_PING, COUNTER, rx_ping, "frames", "pings of workers") \
	X(PBOX_RS_DROP_SESSION_UNKNOWN, COUNTER, drop_session_unknown, "frames", "job or worker does not exist") \
	X(PBOX_RS_DROP_SESSION_TOKEN, COUNTER, drop_session_token, "frames", "token is not that of the worker's session") \
	X(PBOX_RS_DROP_SESSION_INCARNATION, COUNTER, drop_session_incarnation, "frames", "meant for an earlier start of the box") \
	X(PBOX_RS_DROP_AUTH, COUNTER, drop_auth, "frames", "tag missing or wrong (or there, in a job without auth): forged, or replayed") \
	X(PBOX_RS_DROP_REPLAYED, COUNTER, drop_replayed, "frames", "an old frame of a worker, from another address than its own") \
	X(PBOX_RS_DROP_UNPROVEN, COUNTER, drop_unproven, "frames", "requests of a worker from an address that is new: it is asked to prove it") \
	X(PBOX_RS_DROP_MALFORMED, COUNTER, drop_control_malformed, "frames", "payload too short or contradictory") \
	X(PBOX_RS_DROP_COOKIE, COUNTER, drop_cookie, "frames", "JOINs with a wrong or old cookie") \
	X(PBOX_RS_DROP_TYPE, COUNTER, drop_type, "frames", "not a type that workers send here") \
	X(PBOX_RS_REFUSED, COUNTER, refused, "requests", "requests answered with an error") \
	X(PBOX_RS_JOBS, GAUGE, jobs, "jobs", "jobs that exist") \
	X(PBOX_RS_WORKERS, GAUGE, workers, "workers", "workers with a session") \
	X(PBOX_RS_TABLES, GAUGE, tables, "tables", "tables mapped") \
	X(PBOX_RS_EXPIRED, COUNTER, expired, "sessions", "sessions silent beyond their lease") \
	X(PBOX_RS_PINGS, COUNTER, tx_ping, "frames", "pings to sessions whose number another process wants") \
	X(PBOX_RS_TAKEN_OVER, COUNTER, taken_over, "sessions", "sessions that did not answer and lost their number to another process") \
	X(PBOX_RS_REMOVED, COUNTER, removed, "workers", "workers that a job went on without") \
	X(PBOX_RS_RUNS_ENDED, COUNTER, runs_ended, "runs", "runs that made way for another one of their job, or were found dead") \
	X(PBOX_RS_STOLEN, COUNTER, stolen, "slots", "slots that were given to another worker within a round, as their own would have been late")
/* clang-format on */
enum pbox_registrar_stat { PBOX_REGISTRAR_VALUES(PBOX_STAT_SYMBOL) PBOX_RS_STATS };

#define PBOX_RS_FIRST_ACCEPT PBOX_RS_RX_HELLO
#define PBOX_RS_FIRST_DROP   PBOX_RS_DROP_SESSION_UNKNOWN
#define PBOX_RS_LAST_DROP    PBOX_RS_DROP_TYPE

extern const struct pbox_stat_def pbox_registrar_stat_defs[PBOX_RS_STATS];

struct pbox_registrar;
struct pbox_table;

/** What a JOIN at a rack says of its run, which the uplink joins above. */
struct pbox_registrar_uplink {
	const char *job;
	const struct pbox_job_conf *conf;
	const uint8_t *run; /**< PBOX_RUN_LEN bytes, never zeros */
	uint16_t workers, slots;
};

struct pbox_registrar_ops {
	void (*send)(void *ctx, const struct pbox_send *s);
	/** Deliver to m->shard, in order, without loss: at most PBOX_MAILS_OF_JOB of a job are under way. */
	void (*post)(void *ctx, const struct pbox_mail *m);
	/** Unpredictable bytes: tokens, keys. */
	void (*random)(void *ctx, void *buf, size_t n);
	/** Something an operator wants to know; may be NULL. */
	void (*event)(void *ctx, enum pbox_log_level level, const char *text);
	/**
	 * A table has been laid out, and no shard knows it yet: may it begin with a snapshot? NULL:
	 * there are none. It may fill chunks (param, s0, s1 and wire) and fragments (version, samples,
	 * contributors, payload_crc, has_result), and schedules: with @p restoring what holds without
	 * a SET, for workers that restore a table (R10.2) repeat theirs. What takes time another thread does: then the
	 * table is loading, and its memory and its record are that thread's to write and to read, until
	 * pbox_registrar_loaded() says that it has let go. The job is not freed before that.
	 * @return 0; -EINPROGRESS: pbox_registrar_loaded() will follow; else the table begins with nothing
	 */
	int (*restore)(void *ctx, const struct pbox_job *job, struct pbox_table *t, bool restoring);
	/**
	 * A table at several boxes is about to be laid out, and nobody restores it: does it begin with a snapshot of a job whose
	 * chunks had moved (R16.16)? Which box has each of its *n chunks then, valid until the caller returns, and the map by which
	 * they have. NULL: it does not. NULL as well: there are none.
	 */
	const uint8_t *(*homes)(
		void *ctx, const struct pbox_job *job, uint32_t table, uint32_t *n, uint16_t *map);
	/** The job ends: pbox_registrar_loaded() shall come soon. NULL: restore() is never under way. */
	void (*restore_cancel)(void *ctx, const struct pbox_job *job, uint32_t table);
	/** How far it is, for those who wait. NULL as well. */
	void (*restore_text)(
		void *ctx, const struct pbox_job *job, uint32_t table, char *text, size_t cap);
	/**
	 * Of a rack (section 18): is the uplink a member of that run above? Begin to join if not. NULL where there is no rack.
	 * @param window  if it is: frames that the upper box has granted at each endpoint
	 * @return 0; -EAGAIN: not yet, with why in @p err; below: it cannot be, with @p err
	 */
	int (*uplink)(void *ctx, const struct pbox_registrar_uplink *run, unsigned *window,
		struct pbox_error *err);
	/** A job of a rack has begun with that run; and it ends: its shards have let go of it. */
	void (*uplink_begin)(void *ctx, const struct pbox_job *job, const uint8_t *run);
	void (*uplink_end)(void *ctx, const struct pbox_job *job);
	/** A table of it is restored: shards change nothing of its fragments' versions until their next round has been answered above. */
	void (*uplink_restored)(void *ctx, const struct pbox_job *job, const struct pbox_table *t);
};

/** The boxes that its jobs are at, in one order at all of them (section 16). */
struct pbox_registrar_boxes {
	uint8_t boxes, box; /**< boxes 0: this one alone; box: which one this is */
	struct pbox_endpoint at[PBOX_MAX_BOXES];
	const char *release; /**< lives as long; that of all boxes */
};

/** Which rack the box is (section 18): its jobs' workers are those of this part of their slots. */
struct pbox_registrar_rack {
	uint16_t rack, racks; /**< racks 0: it is none */
};

struct pbox_registrar_conf {
	struct pbox_registrar_boxes boxes;
	struct pbox_registrar_rack rack;
	uint32_t incarnation;
	/** PBOX_COOKIE_KEY_LEN unpredictable bytes, which the shards know too; NULL: the registrar has its own. */
	const uint8_t *cookie_key;
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

/** What placement must know of endpoints: core, its NUMA node, and the port, which has one address
 * and is numbered by its first endpoint. */
void pbox_engine_places(
	const struct pbox_engine_endpoint *endpoint, unsigned n, struct pbox_place *out);

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
/** Bytes of memory that ended jobs had and that is not cleared yet. */
size_t pbox_registrar_uncleared(const struct pbox_registrar *r);
/** Leases; call every 10 to 100 ms. */
void pbox_registrar_tick(struct pbox_registrar *r, uint64_t now_ns);
/** Notify all workers that the box stops (LEFT); repeat it a few times, frames get lost. No new
 * session is given from now on. */
void pbox_registrar_shutdown(struct pbox_registrar *r, uint64_t now_ns);
/** The uplink of a job has failed for good: its sessions end with @p why. */
void pbox_registrar_uplink_failed(
	struct pbox_registrar *r, const struct pbox_job *job, const char *why, uint64_t now_ns);
/** End all jobs: they are gone (pbox_registrar_jobs() is 0) when every shard has answered. */
void pbox_registrar_close(struct pbox_registrar *r, uint64_t now_ns);

/** Are answers to PINGs expected now (pbox_registrar_measure())? The caller calls the registrar often then. */
bool pbox_registrar_measuring(const struct pbox_registrar *r, uint64_t now_ns);

#endif /* PBOX_REGISTRAR_H */
