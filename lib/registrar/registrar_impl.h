/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef REGISTRAR_IMPL_H
#define REGISTRAR_IMPL_H

/*
 * What the files of the registrar share.
 *
 *     registrar.c                    what its host calls: frames, mails, time in
 *     registrar_parts.c              the table of parts (registrar_part.h)
 *     registrar_join.c               HELLO and JOIN: a session begins
 *     registrar_operator.c           what an operator does
 *     registrar_requests.c           SET, STATUS, LEAVE
 *     registrar_table.c              DECLARE and MAP
 *     registrar_gone.c               why a worker is not there
 *     registrar_run.c                which run a JOIN is of; a table that is past its beginning
 *     registrar_check.c              what a JOIN must agree with
 *     registrar_slices.c             what is done in slices
 *     registrar_task.c               slots that are stolen within a round
 *     registrar_work.c _training.c   work by plan; what its workers train with
 *     registrar_plan.c               when a plan is made
 *     registrar_steal.c              who owns these slots in it
 *     registrar_view.c               what is to be seen
 *     registrar_sick.c _refused.c    whose contributions are not finite; who was refused lately
 *     registrar_room.c               what a job gets of the box
 *     registrar_boxes.c              a job at several boxes
 *     registrar_rack.c               a rack's box
 *     registrar_moves.c registrar_homes.c registrar_shares.c  and its chunks that move
 *     registrar_build.c              a table is laid out, and
 *     registrar_open.c               made ready
 *     registrar_lease.c _keep.c      the end of leases, runs that are kept
 *     registrar_members.c            who is waited for
 *     registrar_measure.c _claim.c   round trips; numbers that are claimed
 *     registrar_close.c              the end of a session, and of a job
 *     registrar_restore.c            after a restart of the box
 *     registrar_table_end.c          the end of a table
 *     registrar_silence.c _nonce.c _address.c  what is heard of a session, sessions that were, addresses
 *     registrar_staging.c _rounds.c  versions: for snapshots, for schedules
 *     registrar_unsupported.c        what this box does not know
 *     registrar_event.c _answer.c _jobs.c _part.c _counters.c  lines of the log, answers and mails, look-ups, hooks
 *
 * Calls go down this list, never back up: what is above is called through its part.
 */

#include <pbox_bits.h>
#include <pbox_error_rate.h>
#include <pbox_fresh.h>
#include <pbox_job_auth.h>
#include <pbox_shard_job.h>

#include "pbox_registrar.h"
#include "pbox_registrar_operator.h"
#include "pbox_registrar_snapshot.h"
#include "pbox_registrar_view.h"
#include "registrar_part.h"

#define NS_PER_US  UINT64_C(1000)
#define NS_PER_MS  UINT64_C(1000000)
#define NEVER_SEEN UINT32_MAX
/* When who joins is to ask again, where its obstacle is ending already: a run, a job, or memory of one. */
#define ENDING_AGAIN_MS 50
/* When who joins a job that remembers too many sessions is to ask again. */
#define NONCE_AGAIN_MS 1000

/* Pages of the control endpoint fit the MTU that each path has, with a tag after them. */
#define PBOX_CONTROL_MTU 1500
#define CONTROL_PAYLOAD  (PBOX_CONTROL_MTU - PBOX_MTU_OVERHEAD - PBOX_TAG_LEN)

#define RUNS_ENDED  8  /* R12.4: of each job */
#define RUN_RECORDS 64 /* names of jobs that are not there */

struct ended_run {
	uint8_t id[PBOX_RUN_LEN]; /* zeros: none that is not to come again */
	uint64_t number, ns;
	char host[PBOX_NAME_LEN]; /* of who began the one that took its place */
};

/* What is remembered of the runs of a job, by its name, also when it is not there. */
struct run_record {
	char name[PBOX_NAME_LEN];
	uint64_t used_ns;
	struct ended_run ended[RUNS_ENDED];
	unsigned n_ended; /* all of them: the newest are kept */
	uint64_t floor;   /* numbers up to this one are ended, too */
	uint64_t last;    /* number of the run that began last in this incarnation; 0: none did */
	uint64_t highest; /* number of any that began */
	/* the one that begins when the job has ended; number 0: it gets one, or there is none */
	struct pbox_run next;
	bool has_next;
};

/* Types of frames are below that. */
#define REGISTRAR_TYPES 64

/* A request at hand, and what has become of it. */
struct request {
	struct pbox_peer answer_at;
	struct pbox_error refusal; /* code 0: it was not refused */
	/* A JOIN that has proven it: its refusal is proven, too (R9.2); NULL: no such JOIN. */
	const struct pbox_job_conf *prover;
	uint64_t nonce; /* of that */
	bool uncounted; /* what is refused is no frame of PBOX_RS_RX_FRAMES */
};

struct pbox_registrar {
	struct pbox_registrar_conf conf;
	uint8_t cookie_key[PBOX_COOKIE_KEY_LEN];
	struct pbox_job **job; /* max_jobs, by number */
	uint64_t load[PBOX_MAX_ENDPOINTS];
	unsigned endpoints_per_shard;
	uint64_t now_ns;
	/* registrar_silence.c: until then all has been heard; and for how long somebody has listened */
	uint64_t heard_ns, listened_ns;
	struct pbox_error_rate error_rate;
	uint64_t version_logged_ns; /* when workers of other releases were last logged; 0: never */
	unsigned versions_unlogged; /* since then */
	struct run_record *run;     /* RUN_RECORDS + max_jobs */
	uint64_t runs; /* the last number that was given by the clock: conf.first_run and on */
	bool stopping, draining;
	struct request request;                   /* the one at hand */
	const struct registrar_part *const *part; /* registrar_part.c: all of them, */
	void *state[REGISTRAR_PARTS_END];         /* what they keep, */
	registrar_handler on[REGISTRAR_TYPES];    /* and whose frames are whose */
	struct pbox_place place[PBOX_MAX_ENDPOINTS];
	uint64_t *stats;
	bool inside; /* its thread is in it: no other may be, and no frame comes from within a call */
	bool unfinished;    /* some tables wait for memory, or are being prepared */
	size_t retry_below; /* bytes to be cleared: then those that wait are tried again */
	struct pbox_job_tag tag;
	uint8_t scratch[CONTROL_PAYLOAD];
};

/* Of the session that worker w has; 0: none. */
static inline uint64_t
registrar_token(const struct pbox_job *job, unsigned w)
{
	return atomic_load_explicit(&job->token[w], memory_order_relaxed);
}

static inline bool
registrar_has_session(const struct pbox_job *job, unsigned w)
{
	return registrar_token(job, w) != 0;
}

static inline void
count_control(struct pbox_registrar *r, enum pbox_registrar_stat what)
{
	pbox_stat_add(&r->stats[what], 1);
}

/* Where an answer goes, and what it repeats of the request that it is to. */
struct registrar_addressee {
	struct pbox_peer peer;
	uint64_t token;
	uint32_t request, ts;
	uint16_t job, worker, length; /* length: of the request's payload */
	uint8_t type;                 /* of the request */
	bool tagged;                  /* the answer has a tag (R11.2) */
	uint16_t epoch; /* map_epoch of the answer; 0: that of chunks that were never moved */
};

struct registrar_join;

/* registrar_event.c */
void registrar_event(struct pbox_registrar *r, enum pbox_log_level level, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* registrar_answer.c */
/* Who has sent the request at hand: its session's address, if it has one. */
struct registrar_addressee registrar_sender(
	const struct pbox_registrar *r, const struct pbox_frame *f);
void registrar_answer(struct pbox_registrar *r, const struct registrar_addressee *to,
	enum pbox_type type, const void *payload, size_t len);
/* Answer with len bytes of scratch. job and worker may be unknown yet. */
void registrar_reply(
	struct pbox_registrar *r, const struct pbox_frame *f, enum pbox_type type, size_t len);
/* Answer ERROR; never longer than the request before the proof (R4.7). Returns false. */
bool registrar_refuse(struct pbox_registrar *r, const struct pbox_frame *f, enum pbox_errcode code,
	uint32_t detail, const char *fmt, ...) __attribute__((format(printf, 5, 6)));
void registrar_refuse_text(struct pbox_registrar *r, const struct registrar_addressee *to,
	enum pbox_errcode code, uint32_t detail, const char *text);
/* Answer that this box does not know what a later release does. Returns false. */
bool registrar_unsupported(struct pbox_registrar *r, const struct pbox_frame *f, const char *what);
/* registrar_boxes.c: section 16. */
/* Does this box give numbers of runs (R16.3)? A box that is alone does. */
bool registrar_boxes_gives(const struct pbox_registrar *r);
/* Does it decide in that job (R16.14)? */
bool registrar_decides(const struct pbox_registrar *r, const struct pbox_job *job);
/* Answer that one that begins joins at that box of the list. Returns false. */
bool registrar_boxes_refer(struct pbox_registrar *r, const struct registrar_join *q, unsigned box);
/* May it join a job at several boxes here? False: it was answered. */
bool registrar_boxes_join(struct pbox_registrar *r, struct registrar_join *q);
/* Is it a table that the job, which is at several boxes, cannot have now? What it asks for, then. */
bool registrar_boxes_declare(const struct pbox_registrar *r, const struct pbox_job *job,
	const struct pbox_declare *m, struct pbox_error *what);
/* 0: chunks of the job may move. -ENOTSUP: one of its tables has chunks that stay where they are (R16.15). */
int registrar_boxes_stay(const struct pbox_job *job, struct pbox_error *err);
/* Which part of the table is this box's. False: not yet, another table comes first. */
bool registrar_boxes_share(
	const struct pbox_registrar *r, struct pbox_job *job, struct pbox_table *t);
/* registrar_rack.c: section 18. */
/* May it join a job of this rack, and is the uplink a member of its run? True also where there is no rack. */
bool registrar_rack_join(struct pbox_registrar *r, struct registrar_join *q);
/* A job begins: only the rack's workers are waited for. */
void registrar_rack_begin(
	struct pbox_registrar *r, const struct registrar_join *q, struct pbox_job *job);
/* A SET would have to go up. False: it was answered. */
bool registrar_rack_set(struct pbox_registrar *r, const struct pbox_frame *f);
/* Its uplink reports the table to the upper box. */
void registrar_rack_restored(
	struct pbox_registrar *r, const struct pbox_job *job, const struct pbox_job_table *jt);
/* At an upper box: a rack says what it waits for. */
void registrar_rack_says(
	struct pbox_registrar *r, struct pbox_job *job, unsigned worker, const char *text);
/* What it has said within the last seconds; NULL: nothing. */
const char *registrar_rack_waits(const struct pbox_job *job, unsigned worker, uint64_t now_ns);
/* registrar_unsupported.c: capabilities of each box (R4.10). */
#define REGISTRAR_CAN                                                        \
	(1u << PBOX_CAN_SLOTS | 1u << PBOX_CAN_CLOCK | 1u << PBOX_CAN_WORK | \
		1u << PBOX_CAN_BLOCK | 1u << PBOX_CAN_NORM)
/* And of this one. */
static inline uint32_t
registrar_can(const struct pbox_registrar *r)
{
	return REGISTRAR_CAN | (r->conf.boxes.boxes > 1 ? 1u << PBOX_CAN_BOXES : 0);
}
/* Does it ask for what a later release does (R4.10, section 13)? What that is. */
bool registrar_unsupported_declare(const struct pbox_declare *m, struct pbox_error *what);
bool registrar_unsupported_join(
	const struct pbox_registrar *r, const struct pbox_join *m, struct pbox_error *what);
/* Do two things that it uses here not go together (doc/modes.md)? Of a JOIN false: it was answered; of a DECLARE the code, with err. */
bool registrar_pairs_join(struct pbox_registrar *r, struct registrar_join *q);
int registrar_pairs_declare(const struct pbox_registrar *r, const struct pbox_job *job,
	const struct pbox_declare *m, struct pbox_error *err);
/* To worker w of the job, in its session, with a tag if that has them. out->peer NULL: to its address. */
void registrar_send(
	struct pbox_registrar *r, const struct pbox_job *job, unsigned w, struct pbox_send *out);
/* To the shard of m->job. */
void registrar_mail(struct pbox_registrar *r, struct pbox_mail *m);
/* A mail that says what holds by then, members and bounds too, which are the shard's until it is back. One is under way
 * at a time; if there is one already, one more follows when that is back. */
void registrar_mail_latest(
	struct pbox_registrar *r, struct pbox_shard_job *j, enum pbox_mail_kind kind);
/* To all shards. */
void registrar_post(struct pbox_registrar *r, struct pbox_job *job, enum pbox_mail_kind kind);

/* registrar_jobs.c */
/* The arenas of all nodes together: pbox_arena_size(), or another such. */
size_t registrar_arenas(const struct pbox_registrar *r, size_t (*of)(const struct pbox_arena *a));
struct pbox_job *registrar_find_job(const struct pbox_registrar *r, const char *name);
/* [job *] */
bool registrar_is_any(const struct pbox_job_conf *conf);
/* Has a table of the job been built? */
bool registrar_has_built(const struct pbox_job *job);
/** What all shards together have of a table. */
struct pbox_shard_restoring registrar_restoring_of(
	const struct pbox_registrar *r, const struct pbox_job *job, uint32_t table);
/* Is some table of a job still somebody else's? */
bool registrar_loading(const struct pbox_job *job);

/* registrar_join.c: a HELLO of who speaks only versions from min to max (R2.2) */
void registrar_other_version(
	struct pbox_registrar *r, const struct registrar_addressee *to, unsigned min, unsigned max);
/* registrar_gone.c: why a worker is not there (R8.3). After a JOIN or DECLARE was answered; */
void registrar_gone_join(struct pbox_registrar *r, const struct pbox_frame *f);
void registrar_gone_declare(
	struct pbox_registrar *r, const struct pbox_frame *f, struct pbox_job *job);
/* when an operator has ended its session; */
void registrar_gone_kicked(struct pbox_job *job, unsigned w, const char *why);
/* in the words that it got; NULL: nobody knows them. */
const char *registrar_gone_why(const struct pbox_job *job, unsigned w);
/* registrar_refused.c: for the operator. After a JOIN or DECLARE was answered. */
void registrar_refused_join(struct pbox_registrar *r, const struct pbox_frame *f);
void registrar_refused_declare(
	struct pbox_registrar *r, const struct pbox_frame *f, const struct pbox_job *job);
/* registrar_address.c: a frame of a session; where to answer it. False: it was counted, and its sender asked to
 * prove its address, if it is new. */
bool registrar_address(struct pbox_registrar *r, struct pbox_job *job, const struct pbox_frame *f,
	struct pbox_peer *to);
/* When anything new was heard from a worker. */
uint64_t registrar_last_seen(
	const struct pbox_registrar *r, const struct pbox_job *job, unsigned worker);

/* registrar_close.c */
/* The session of a worker ends. */
void registrar_end_session(struct pbox_registrar *r, struct pbox_job *job, unsigned worker);
/* How it did; who was refused leaves for that. */
void registrar_left(struct pbox_member *m, enum pbox_left how);
/* All shards have let go of it, or this was the last that waited for its end. */
void registrar_job_done(struct pbox_registrar *r, struct pbox_job *job);
void registrar_close_job(struct pbox_registrar *r, struct pbox_job *job);
/* What a shard had of it, when it can no longer answer: all shards are gone. */
void registrar_free_job(struct pbox_registrar *r, struct pbox_job *job);

/* registrar_check.c: may it join? All of these: false after answering why not. */
/* The JOIN at hand. */
struct registrar_join {
	const struct pbox_frame *f;
	struct pbox_join m;
	struct pbox_job *job; /* NULL: none of that name is there */
	const struct pbox_job_conf *conf;
	unsigned worker;    /* the number that it gets */
	bool repeated;      /* by the session that has that number */
	unsigned up_window; /* of a rack: that of its uplink; 0: it is none */
	uint64_t made_way; /* the run with which its session ended for another one; 0: it did not */
};
/* A row of the table of R4.4. */
struct registrar_check {
	bool (*passes)(struct pbox_registrar *r, struct registrar_join *q);
	enum pbox_errcode code; /* of its refusal; 0: one of several */
};
/* One row after the other; the first that fails is the answer. The last row has no function. */
bool registrar_checks(
	struct pbox_registrar *r, struct registrar_join *q, const struct registrar_check *row);
/* Does it know the secret of a job of that section? */
bool registrar_proves(struct pbox_registrar *r, struct registrar_join *q);
/* What is asked of the box and of the job's section. */
bool registrar_asks(struct pbox_registrar *r, struct registrar_join *q);
/* `slots` of a JOIN of that job. */
unsigned registrar_asked_slots(const struct pbox_job *job);
/* Does it ask for what the other workers of its run do? */
bool registrar_agrees(
	struct pbox_registrar *r, const struct registrar_join *q, const struct pbox_job *job);
/* Can it take the frames of the tables that are mapped (R4.6a)? */
bool registrar_mtu_fits(
	struct pbox_registrar *r, const struct registrar_join *q, const struct pbox_job *job);
/* Could a new run begin by this JOIN when the job that is there has ended? */
bool registrar_may_begin(struct pbox_registrar *r, const struct registrar_join *q);

/* registrar_join.c */
void registrar_on_hello(struct pbox_registrar *r, const struct pbox_frame *f);
void registrar_on_join(struct pbox_registrar *r, const struct pbox_frame *f);

/* registrar_room.c */
/* What a job takes before its first table. */
struct registrar_rounds {
	uint16_t
		window; /* fragments that each worker may have in flight at an endpoint, 1 at least */
	struct pbox_shard_room shard; /* on each */
	size_t arena;                 /* of all shards */
};
/* Contributions to a round of one fragment, of all workers: packets that may be held for it. */
uint32_t registrar_nodes(const struct pbox_join *m);
/* Is there room for a new job of that section? False after answering which limit is reached. */
bool registrar_room(
	struct pbox_registrar *r, const struct registrar_join *q, struct registrar_rounds *out);
/* Would there be, if the job of that name had ended, and all that makes way? The same. */
bool registrar_room_then(struct pbox_registrar *r, const struct registrar_join *q);
/* The NUMA node of a shard's core. */
static inline unsigned
registrar_node_of_shard(const struct pbox_registrar *r, unsigned shard)
{
	for (unsigned e = 0; e < r->conf.n_endpoints; e++)
		if (r->conf.endpoint[e].shard == shard)
			return r->conf.endpoint[e].node;
	return r->conf.endpoint[0].node;
}
/* It has no memory: answered so. */
bool registrar_no_memory_on(
	struct pbox_registrar *r, const struct registrar_join *q, unsigned node);
/* Most heap of one job: a share of the box's memory. */
size_t registrar_heap_most(const struct pbox_registrar *r);

/* registrar_run.c: section 12 of the protocol */
/* Which run does a JOIN mean? True: it may go on, in the job that is there now, with whose workers it agrees, or in
 * a new one where none is. False: it was answered; the job may be gone. */
bool registrar_run_join(struct pbox_registrar *r, struct registrar_join *q);
/* May it be of that run, as far as it says? Nothing is changed. */
bool registrar_run_is(const struct pbox_run *run, const struct pbox_join *m);
/* A JOIN has created a job: its run. */
void registrar_run_begin(struct pbox_registrar *r, struct pbox_job *job, const struct pbox_join *m);
/* registrar_run.c: a DECLARE, or a MAP, of who begins, of a table that is past its beginning (R12.6). True: it
 * was answered; the job may be gone. */
bool registrar_running_declare(struct pbox_registrar *r, const struct pbox_frame *f,
	struct pbox_job *job, const struct pbox_declare *m);
bool registrar_running_map(struct pbox_registrar *r, const struct pbox_frame *f,
	struct pbox_job *job, struct pbox_job_table *jt);
/* What a page of its declaration says about that. */
void registrar_running_note(struct pbox_job_table *jt, unsigned worker, uint32_t flags);

/* registrar_claim.c */
#define CLAIM_AGAIN_MS 200 /* when who wants a number, or a job, is to ask again */
/* Does the session of worker w live? It is asked: who wants to know asks again until it is known. */
enum registrar_life {
	REGISTRAR_ASKED,
	REGISTRAR_ALIVE,
	REGISTRAR_DEAD,
};
enum registrar_life registrar_ask(struct pbox_registrar *r, struct pbox_job *job, unsigned w);
/* The same of one that has become silent again since it answered: an answer says nothing of what came after it. */
enum registrar_life registrar_ask_again(struct pbox_registrar *r, struct pbox_job *job, unsigned w);
/* The first worker but `but` (PBOX_NO_WORKER: of all) that lives; mapped: of those that were given a map, or
 * restore a table. */
#define REGISTRAR_NOBODY (-1)
#define REGISTRAR_ASKING (-2) /* it is not known yet */
int registrar_living(struct pbox_registrar *r, struct pbox_job *job, unsigned but, bool mapped);
/* Somebody (host) claims the number of worker w, who has a session, or any number: true when it is
 * free for him; else he was answered. */
bool registrar_claim(struct pbox_registrar *r, struct pbox_job *job, unsigned w,
	const struct pbox_frame *f, const char *host, bool any);
/* registrar_measure.c: in us; 0: not known. */
uint32_t registrar_rtt_us(const struct pbox_job *job, unsigned w);
/* registrar_claim.c: a PING to a worker with a session, which answers it at once. */
void registrar_ping(struct pbox_registrar *r, const struct pbox_job *job, unsigned w);

/* registrar_keep.c: a job has sessions, and all are silent beyond their leases, or it has none: it is kept, or
 * ends. And when one is heard again. */
void registrar_nobody_lives(struct pbox_registrar *r, struct pbox_job *job);
void registrar_somebody_lives(struct pbox_registrar *r, struct pbox_job *job);
/* It is, and nobody has been heard since the last tick. */
bool registrar_is_kept(struct pbox_registrar *r, struct pbox_job *job);
/* Since when; 0: a worker lives. */
uint64_t registrar_kept_ns(const struct pbox_job *job);
/* Does it make way for a job of that section (R8.2c)? It is kept, or ends for such a reason already. */
bool registrar_makes_way(
	struct pbox_registrar *r, struct pbox_job *job, const struct pbox_job_conf *asker);
/* A job of that section needs a number, packets or memory that there are no more: of those that make way the run
 * that was kept for longest ends, but not that of `but`. True: ask again soon. False: there is none, or `bytes` of
 * parameter memory would be too many even if all had ended. */
bool registrar_make_room(struct pbox_registrar *r, const struct pbox_job_conf *asker,
	const struct pbox_job *but, size_t bytes);
/* The same for a JOIN, which was answered so then. */
bool registrar_room_comes(struct pbox_registrar *r, const struct pbox_frame *f,
	const struct pbox_job_conf *asker, size_t bytes);

/* registrar_shares.c: the chunks of boxes that are out go to those that have chunks, or, if none has, to all others; nothing else moves. */
int registrar_share_lost(struct pbox_job *job, uint16_t out, unsigned boxes, uint16_t epoch);
/* The same for a new table, at the box that decides. */
void registrar_share_new(const struct pbox_registrar *r, struct pbox_job *job, uint32_t table);

/* registrar_homes.c: the plans of some tables are of a new map, and all are to know it; bits of boxes that are out. */
void registrar_homes_new(
	struct pbox_registrar *r, struct pbox_job *job, uint16_t epoch, uint16_t out);
/* A table begins with the homes of a snapshot, by the map of that epoch. */
void registrar_homes_begin(struct pbox_job *job, uint16_t epoch);
/* Is the table where all that is known of the newest map has it, and does nothing come or leave? *changes: how often homes or plans
 * of the job have changed up to now. */
bool registrar_homes_steady(
	const struct pbox_job *job, const struct pbox_job_table *jt, uint32_t *changes);
/* registrar_staging.c: a copy of one of its tables is under way. */
bool registrar_staging_is_of(const struct pbox_registrar *r, const struct pbox_job *job);
/* This box takes the place of the one that decided (R16.17): registrar_homes_new() follows. */
void registrar_homes_take(const struct pbox_registrar *r, struct pbox_job *job);
/* Would a map of that number be so late that another box, which takes this one's place, may give it again (R16.17)? */
bool registrar_homes_unknown(const struct pbox_job *job, uint16_t epoch);
/* Has this box made a map of the job since it was started? */
bool registrar_homes_made(const struct pbox_job *job);
/* Has this box forgotten the job's maps, for it was started again? A worker's session that was lost is no reason to think so. */
bool registrar_homes_forgotten(const struct pbox_job *job);
/* Have all workers with a session asked for the newest map? */
bool registrar_homes_all_asked(const struct pbox_job *job);
/** 0, or -EBUSY with err: some worker has ended a round with the box a short while ago. */
int registrar_times_lives(const struct pbox_registrar *r, const struct pbox_job *job, unsigned box,
	struct pbox_error *err);
/** A box that does not decide: does the job still end rounds here, and so perhaps at the box that does? 0, or -EBUSY with err. */
int registrar_times_still(
	const struct pbox_registrar *r, const struct pbox_job *job, struct pbox_error *err);
/** From now on this box decides: what workers say of the others is new to it. */
void registrar_times_take(const struct pbox_registrar *r, struct pbox_job *job);
/** The latest round that has ended here. */
void registrar_times_ended(const struct pbox_registrar *r, struct pbox_job *job, uint32_t round);
/** All of the view but `more`. */
void registrar_homes_moving(
	const struct pbox_registrar *r, const struct pbox_job *job, struct pbox_moving_view *out);
/* Has the worker asked for the map, or shown all that it knew? */
bool registrar_homes_told(const struct pbox_job *job, unsigned worker);

/* registrar_silence.c */
uint32_t registrar_silent_ms(
	const struct pbox_registrar *r, const struct pbox_job *job, unsigned worker);
/* ns in which the box listened, and heard nothing of a worker with a session. */
uint64_t registrar_unheard(struct pbox_registrar *r, struct pbox_job *job, unsigned w);
/* A session begins. */
void registrar_lease_begin(const struct pbox_registrar *r, struct pbox_member *m);

/* registrar_nonce.c: sessions of a job that have ended, as long as a copy of their JOIN has a good cookie. */
enum registrar_nonce {
	REGISTRAR_NONCE_NEW, /* of no such session, or its worker is back: it has a cookie that is newer than its end */
	REGISTRAR_NONCE_LEFT, /* of one that left */
	REGISTRAR_NONCE_OLD,  /* of one that ended otherwise, after that cookie was given */
};
/* *made_way: the number of the run with which the session ended, for another run (R12.3); 0: it did not */
enum registrar_nonce registrar_nonce_look(const struct pbox_registrar *r, const char *job,
	uint64_t nonce, uint64_t cookie, uint64_t *made_way);
/* One session more can be remembered, when it ends; false after answering why not. */
bool registrar_nonce_room(
	struct pbox_registrar *r, const struct pbox_frame *f, struct pbox_job *job);
/* Bytes that a new job of that name is charged for it with its first session. */
size_t registrar_nonce_heap(const struct pbox_registrar *r, const char *job);
/* The session of a worker ends; and it was this one's wish. */
void registrar_nonce_keep(struct pbox_registrar *r, const struct pbox_job *job, unsigned worker);
void registrar_nonce_left(struct pbox_registrar *r, const struct pbox_job *job);

/* registrar_members.c */
/* Policy shrink: go on without a worker that is silent or has left. True: so it is, and
 * registrar_removed() must follow, once for all that are removed at this moment. */
bool registrar_remove(struct pbox_registrar *r, struct pbox_job *job, unsigned w);
void registrar_removed(struct pbox_registrar *r, struct pbox_job *job);
/* Policy shrink after a restart of the box: who has not come back within its lease is removed. True: somebody
 * was, as of registrar_remove(). */
bool registrar_remove_absent(struct pbox_registrar *r, struct pbox_job *job);
/* Policy reassign after a restart of the box: the table waits no longer for who has not come back within its lease. Its
 * slots are given away. */
void registrar_miss_absent(struct pbox_registrar *r, struct pbox_job *job);
/* And with one that has come back. */
void registrar_expect(struct pbox_registrar *r, struct pbox_job *job, unsigned w);
/* A worker has left by itself, or come back after that: the clocks of tables do not wait for it, or do again, under any policy. */
void registrar_clocks_members(struct pbox_registrar *r, struct pbox_job *job);
/* All shards know who is waited for. */
bool registrar_members_settled(const struct pbox_registrar *r, const struct pbox_job *job);

/* registrar_build.c */
/* If all workers have declared it: lay out, place, allocate, and on to registrar_open.c. */
void registrar_build_table(struct pbox_registrar *r, struct pbox_job *job, uint32_t table);
/* All of a job: some waited only for a worker that is removed now. */
void registrar_build_tables(struct pbox_registrar *r, struct pbox_job *job);

/* registrar_table_end.c */
void registrar_forget_tables(struct pbox_job *job, unsigned worker);
bool registrar_number_returns(const struct pbox_registrar *r, const struct pbox_job *job,
	const struct pbox_job_table *jt);
void registrar_failure_heard(const struct pbox_registrar *r, struct pbox_job *job,
	struct pbox_job_table *jt, uint16_t worker);
void registrar_forgive_tables(struct pbox_job *job);
void registrar_release_tables(struct pbox_registrar *r, struct pbox_job *job);
/* MAP is answered with this error from now on. by: whose fault it is, or PBOX_NO_WORKER. */
void registrar_fail_table(struct pbox_registrar *r, struct pbox_job *job, struct pbox_job_table *jt,
	const struct pbox_error *err, int code, uint16_t by);
void registrar_free_shard_tables(const struct pbox_registrar *r, struct pbox_shard_table **st);

/* registrar_open.c: between the layout of a table and its shards */
/* Laid out: may it begin with a snapshot? Then, or at once, its fragments are made ready. */
void registrar_open_begin(
	struct pbox_registrar *r, struct pbox_job *job, struct pbox_job_table *jt);
/* Some more of its fragments; with the last the table goes to its shards. */
void registrar_open_work(struct pbox_registrar *r, struct pbox_job *job, struct pbox_job_table *jt);
/* It waits for memory: it is tried again. */
void registrar_open_later(struct pbox_registrar *r, struct pbox_job_table *jt);

/* registrar_restore.c */
bool registrar_is_restorer(const struct pbox_job_table *jt, unsigned worker);
/* A page of a declaration, the worker's first of this table or a later one; 0 or -EINVAL. */
int registrar_restore_page(struct pbox_job_table *jt, unsigned worker, bool first, uint32_t flags,
	struct pbox_error *err);
/* Which map_epoch its restorers had, by their headers. */
void registrar_restore_epoch(struct pbox_job_table *jt, const struct pbox_hdr *h, uint32_t flags);
/* No shard knows the fragment yet: does it take contributions, or wait for INIT or for the restorers? */
void registrar_restore_fragment(const struct pbox_job_table *jt, struct pbox_fragment *fragment);
/* Fragments that are not restored yet. With the last one ends the restoring. */
uint32_t registrar_restoring(
	struct pbox_registrar *r, struct pbox_job *job, struct pbox_job_table *jt);
/* Restoring, and no fragment is restored yet: no shard looks at its schedules. */
bool registrar_restore_untouched(const struct pbox_registrar *r, const struct pbox_job *job,
	const struct pbox_job_table *jt);

/* Chunks of the table come from another box: all its workers are restorers, and none stops being one with its session. */
void registrar_restore_moves(struct pbox_job *job, struct pbox_job_table *jt);
/* Its shards have them. */
void registrar_restore_moving(struct pbox_job_table *jt);
/* A process that has the worker's number now has never had the table. */
void registrar_restore_without(
	struct pbox_registrar *r, struct pbox_job *job, struct pbox_job_table *jt, unsigned worker);

/* Highest finished round of a table on any shard; false: there is none. */
bool registrar_finished(const struct pbox_registrar *r, const struct pbox_job *job, uint32_t table,
	uint32_t *round);

/* registrar_rounds.c: the rounds of a table's fragments, all of them */
/* A fragment of a shard that does not know it yet: is its round the highest finished one there? */
void registrar_rounds_begin(struct pbox_shard_table *st, const struct pbox_fragment *fragment);
/* What a shard is about to get: with the others of its table, the version that the table begins with. */
void registrar_rounds_begins(struct pbox_job_table *jt, const struct pbox_shard_table *st);
#define REGISTRAR_LOOK_SLICE 4096u /* fragments, each on a cache line of its own */
enum registrar_look {
	REGISTRAR_LOOK_SAME,    /* as before, or it is not known */
	REGISTRAR_LOOK_GOES_ON, /* a slice of it; pbox_registrar_work() does the rest */
	REGISTRAR_LOOK_DONE,
};
/* Look again which one is the last: begin, or go on. */
enum registrar_look registrar_rounds_look(struct pbox_job_table *jt);
/* Some more of a look that goes on. */
void registrar_rounds_work(struct pbox_registrar *r, struct pbox_job_table *jt);
/* A SET finds no room: is that so by the rounds of now? False: the box looks, and its worker shall ask again. */
bool registrar_rounds_known(struct pbox_registrar *r, struct pbox_job_table *jt);
/* A schedule has one entry more: it is looked at before its entries are needed. */
void registrar_rounds_added(
	struct pbox_registrar *r, struct pbox_job_table *jt, const struct pbox_schedule *s);

/* registrar_operator.c: no operator has ended the session of this JOIN; false: it was answered so. */
bool registrar_not_kicked(struct pbox_registrar *r, struct registrar_join *q);

/* registrar_decision.c: R15.11. May the workers of the job decide so before that round? 0, or an error's code. */
int registrar_decision_check(const struct pbox_job *job, uint32_t table, uint32_t round,
	double value, struct pbox_error *err);
void registrar_decision_take(struct pbox_job *job, uint32_t round, double value);

/* registrar_work.c: section 15. Has the job a plan? */
bool registrar_is_planned(const struct pbox_job *job);
/* Its table is with all shards: do they know who owns the slots? Without a plan: yes. */
bool registrar_work_ready(struct pbox_registrar *r, struct pbox_job *job);
/* When a worker's round was seen last. */
struct registrar_work_seen {
	uint32_t round;
	double seconds;
	uint32_t fits, samples; /* that its memory holds, and of a slot; samples 0: not known */
};

/* registrar_training.c: what workers by plan train with, as the first of them has said. */
struct registrar_training {
	bool said;
	uint64_t seed, samples;
	uint32_t batch, offset; /* trained - round */
	uint16_t first_said;    /* who that was */
};
/* Does it train with what the others do? False: it was answered. */
bool registrar_trains_alike(struct pbox_registrar *r, const struct pbox_frame *f,
	struct registrar_training *k, const struct pbox_work_ask *m);

/* Each in the file of its name. */
extern const struct registrar_part registrar_event_part;
extern const struct registrar_part registrar_nonce_part;
extern const struct registrar_part registrar_address_part;
extern const struct registrar_part registrar_claim_part;
extern const struct registrar_part registrar_measure_part;
extern const struct registrar_part registrar_work_part;
extern const struct registrar_part registrar_task_part;
extern const struct registrar_part registrar_restore_part;
extern const struct registrar_part registrar_rounds_part;
extern const struct registrar_part registrar_lease_part;
extern const struct registrar_part registrar_keep_part;
extern const struct registrar_part registrar_open_part;
extern const struct registrar_part registrar_table_part;
extern const struct registrar_part registrar_boxes_part;
extern const struct registrar_part registrar_rack_part;
extern const struct registrar_part registrar_times_part;
extern const struct registrar_part registrar_homes_part;
extern const struct registrar_part registrar_moves_part;
extern const struct registrar_part registrar_requests_part;
extern const struct registrar_part registrar_staging_part;
extern const struct registrar_part registrar_sick_part;
extern const struct registrar_part registrar_refused_part;
extern const struct registrar_part registrar_view_part;
extern const struct registrar_part registrar_join_part;
extern const struct registrar_part registrar_close_part;
extern const struct registrar_part registrar_operator_part;

#endif /* REGISTRAR_IMPL_H */
