/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef SHARD_IMPL_H
#define SHARD_IMPL_H

/* What the files of the shard share. */

#include <string.h>

#include <pbox_bits.h>
#include <pbox_error_rate.h>
#include <pbox_fresh.h>
#include <pbox_job_auth.h>
#include <pbox_optim.h>
#include <pbox_slots.h>

#include "discipline.h"
#include "pbox_shard.h"
#include "pbox_shard_job.h"
#include "pbox_staging.h"
#include "pbox_why.h"
#include "shard_quota.h"

/* One worker of a job, as a shard sees it: a cache line for its frames, and one for the rounds that
 * it was the last of. Any thread reads the counters. */
struct shard_member {
	_Atomic uint64_t last_seen; /* when it contributed last, ns; read by the registrar */
	struct repeat_credit repeat;
	uint64_t contributions, bytes; /* counters: struct pbox_worker_stats */
	/* Of the session with that token: when its newest frame here was sent, by its clock (pbox_fresh.h). */
	_Atomic uint64_t token, newest;
	_Atomic uint32_t ts; /* of a contribution of it that was summed */
	uint32_t round;      /* the newest one that it contributed to */
	uint32_t
		refused; /* round of a contribution that was not taken: what it sends later counts */
	bool ce;         /* to be echoed with the next answer */
	bool pushpull;   /* its newest contribution asked for the result */
	bool wide;       /* its newest contribution to a table with MIXED was fp32 */
	bool passed_over; /* slots of it were given to others within a plan (R15.7) */

	uint64_t last __attribute__((aligned(PBOX_CACHE_LINE))); /* counters, too */
	uint64_t waited_ns, pulls, repeats;
	_Atomic uint64_t heard_ns; /* when the newest frame came */
	uint64_t challenged_ns;    /* when it was asked to prove an address */
	uint64_t request_empty_ns; /* shard_control_rate.c */
	uint64_t refused_at;       /* when that was sent, by its clock; 0: none was */
} __attribute__((aligned(PBOX_CACHE_LINE)));
_Static_assert(sizeof(struct shard_member) == 2 * PBOX_CACHE_LINE, "two lines");

/* Where a worker's frames to one endpoint come from, in the session with that token. */
struct shard_peer {
	uint64_t token;
	struct pbox_peer at;
	uint32_t since; /* ts of the newest frame that answers have followed */
};

/* struct pbox_sick, which the control thread reads while the shard writes it: seq is odd then. */
struct shard_sick {
	_Atomic uint64_t fragments, begun_ns, last_ns;
	_Atomic uint32_t seq, first, last, chunk, element, kind;
};

/* What is kept of a contribution, at its first slot; and of a worker's wish for the result, at the worker's number. */
struct contribution {
	void *handle; /* NULL: nothing is held */
	union {
		uint32_t weight; /* its samples */
		uint32_t bound;  /* clock.c: of a pull that waits */
	};
	uint32_t ts, at_us; /* of the wish */
	bool unverified : 1;
	bool wide : 1; /* with round.mixed: its payload is fp32, not in the push format (R13.9) */
	bool whole : 1; /* of the wish: the result itself, not a difference to the one before (R13.7) */
	uint8_t level;   /* of the node that it is */
	uint16_t worker; /* that brought it; in jobs with slots alone */
};

/* Which version a worker holds of a fragment that is being restored: what it has said by RESTORE. */
struct report {
	uint32_t version, ts;
	union { /* by the discipline; as in pbox_restore_rounds and pbox_restore_clock */
		struct {
			uint32_t samples, source;
			uint16_t contributors;
		} rounds;
		struct {
			uint32_t own, answered;
			uint16_t epoch;
		} clock;
	};
};

/*
 * What is kept of a fragment while workers contribute to a version or wait for one, or while it is restored.
 * The arrays, one entry a slot, and the bitmaps follow it in one piece of memory (record_layout). A job has as many slots as
 * workers at least: what is of workers is in the same.
 */
struct pbox_record {
	union {
		struct pbox_record *next; /* free list */
		uint64_t since_ns;        /* when it was opened */
	};
	union {
		struct record_round {
			uint16_t folded;     /* slots 0 to folded - 1 are summed, by nodes */
			uint16_t need;       /* complete when as many have arrived */
			uint16_t unverified; /* of those that are held */
			bool partial;        /* expect holds; else all slots are expected */
			bool paced; /* complete, and in the line of those that end at the job's rate */
			bool up; /* complete and summed, and waits for the upper box (rounds_up.c) */
			bool sick;                 /* it is known why its sums are not finite */
			bool mixed;                /* contributions are wide, or were */
			struct pbox_record *later; /* in that line: the next one */
		} round;
		struct record_restoring {
			uint32_t highest; /* the latest version that was reported */
			uint32_t
				brought; /* the version that parts have come of (rounds_carry.c), */
			uint32_t parts;  /* and which ones */
			uint16_t carrier;  /* who was asked for them, or PBOX_NO_WORKER, */
			uint16_t asked_ms; /* and when */
		} restoring;
	};
	uint16_t arrived; /* bits of has */
	uint16_t frag;
	uint32_t chunk; /* id */
	bool open;
	uint8_t level; /* of a round: no node that has come is of a lower one; */
	bool listed;   /* it has its place by age: older, newer */
	const void **
		payload; /* of the first slot of a node, NULL: all zeros; of a folded one: its sum */
	union {
		struct contribution *from;
		struct report *report;
	};
	uint64_t *has; /* slots that have come, or workers that have reported */
	uint64_t *
		nodes; /* first slots of the contributions that these came with; without names it is has */
	uint64_t *want; /* who wants the result, or can give the payload that it reported */
	uint64_t *
		expect; /* slots that are waited for, of a round that is partial; or workers that can bring nothing of use */
	/* Of a job with slots: rounds in the order of their first contributions (rounds_sum.c). */
	struct pbox_record *older, *newer;
};

struct pbox_shard_job {
	struct pbox_job *job;
	uint16_t tagged; /* PBOX_F_AUTH where the job has auth, else 0 */
	uint16_t slots;  /* of a round */
	bool named;      /* frames name nodes of them (R5.2b); else slot i is worker i's */
	const struct slots_policy *policy; /* whose slots are (shard_slots.h) */
	uint8_t edition;                   /* of the owners, as RESULT says it */
	struct shard_member *member;
	uint64_t *stale;           /* PBOX_STALE_CLASSES counters of each worker: clock.c */
	struct shard_sick *sick;   /* of each worker, and one of sums that overflow: sick.c */
	_Atomic uint64_t sick_all; /* it grows with each of their fragments */
	/* Where a worker's frames to each endpoint of the shard come from: its answers leave through
	 * the port of the chunk, to the worker's address there. */
	struct shard_peer *peer;
	unsigned peers;                  /* of one worker */
	struct pbox_shard_table **table; /* PBOX_MAX_TABLES */
	struct pbox_record *free_record;
	uint8_t *record_mem;
	size_t record_size;
	uint32_t n_records;
	void *free_acc;                      /* list through the first word */
	uint32_t n_free_acc, acc_kept;       /* kept: for the oldest round alone */
	struct pbox_record *oldest, *newest; /* rounds_sum.c */
	uint32_t held, hold_share;
	uint64_t given_token,
		given_at; /* the newest array that was given (R6.14): session, and when by its clock */
	struct job_rate rate;
	struct pbox_record *paced, *paced_last; /* rounds_pace.c: complete rounds, oldest first */
	struct pbox_shard_job *next_paced;      /* of the shard's list of jobs that have such */
	uint32_t repeat_ns;                     /* repeat_earn() */
	uint32_t request_ns;                    /* of one control frame of a session; 0: no limit */
	uint64_t request_empty_ns;              /* shard_control_rate.c */
	uint16_t n_expected;                    /* slots that new rounds wait for, */
	uint64_t *expected;                     /* and which */
	uint64_t *left;                         /* pbox_shard_inbox.left */
	uint32_t members_set;                   /* they are others with each MEMBERS */
	struct pbox_job_owners owners;          /* shard_owners.c */
	struct pbox_shard_inbox inbox;
	size_t up_bytes;          /* a rack: of the sum at the end of each record; 0: it is none */
	struct pbox_arena *arena; /* of all of it: on the NUMA node of the core */
	void *acc_mem;
};

struct pbox_shard_table {
	struct pbox_table *t;
	const struct discipline *discipline;
	struct pbox_staging *staging; /* NULL: no copy of it is being taken */
	/* Highest round that a fragment has finished, with SHARD_ROUND_KNOWN; read by the registrar. 0:
	 * none, and rounds may be anywhere: they are compared modulo 2^32. */
	_Atomic uint64_t max_round;
	/* Section 10; the registrar reads how far it is. */
	const _Atomic uint64_t *restorer; /* bitmap of workers, the registrar's */
	_Atomic uint32_t restoring, lost; /* fragments of this shard; */
	_Atomic uint32_t
		stateless; /* of those that are restored so many lack what only their former home had; */
	uint32_t stateless_chunk; /* the first of them is of this */
	_Atomic uint32_t needed;  /* fragments with PBOX_FRAGMENT_NEEDED */
	uint32_t lost_chunk;      /* of the first that is lost, if any */
	uint16_t lost_frag;
	bool lost_late;                   /* ... as its SETs are gone */
	float *spare[PBOX_MAX_ENDPOINTS]; /* the table's, exchanged with those of fragments */
	uint64_t state[];                 /* the discipline's */
};

#define SHARD_ROUND_KNOWN (UINT64_C(1) << 32)

static inline void
shard_finished(struct pbox_shard_table *st, uint32_t round)
{
	uint64_t known = atomic_load_explicit(&st->max_round, memory_order_relaxed);

	if (known == 0 || pbox_serial_diff(round, (uint32_t)known) > 0)
		atomic_store_explicit(
			&st->max_round, SHARD_ROUND_KNOWN | round, memory_order_relaxed);
}

/* What a shard has found out about a frame, each once (verdict.h). */
enum verdict_from {
	VERDICT_KNOWN,    /* it comes from where its worker's answers go */
	VERDICT_FOLLOW,   /* from elsewhere, which is proven: answers go there if it counts */
	VERDICT_UNPROVEN, /* from elsewhere: it may count, and answers stay where they are */
};
struct verdict {
	uint8_t from; /* enum verdict_from */
	bool old;     /* a question that was recorded some time ago */
};

/* Where a frame goes, after all checks but those of the round. */
struct target {
	struct pbox_shard_job *j;
	struct pbox_shard_table *st;
	struct pbox_chunk *c;
	struct pbox_fragment *fragment;
	uint32_t elements; /* of the fragment */
	uint32_t chunk;    /* id, as answers name it */
	uint16_t frag;
	struct verdict verdict; /* of the frame that goes there, if one does */
};

/* What an address without a session may ask; joined_ns: by JOINs whose cookies prove that it is the sender's. */
#define SHARD_SOURCES_LOG 10
#define SHARD_SOURCES     (1u << SHARD_SOURCES_LOG)
struct shard_source {
	uint32_t ip;
	uint64_t empty_ns, joined_ns;
};

/* Answers with one payload that are built together. */
#define SHARD_RECEIVERS 32

/* Elements that the 16-bit length of a frame can say, in the smallest format. */
#define FRAGMENT_MAX (65536 / 2)

/* One piece of memory, on the NUMA node of the core. */
struct pbox_shard {
	struct pbox_shard_conf conf;
	uint64_t *stats;
	uint64_t now_ns, away_ns; /* what comes now may have come so long before */
	/* Fragments that are complete since this burst began: finished together at its end, so that
	 * the payloads of the next are fetched while one is summed. */
	bool inside; /* its core is in it: no other may be, and no frame comes from within a call */
	unsigned n_ready;
	struct target ready[PBOX_SHARD_BURST];
	struct pbox_shard_job *paced; /* jobs with rounds that wait for their rate */
	struct pbox_up_line { /* rounds_up.c: sums for which there was no room, oldest first */
		struct pbox_record *first, *last;
	} up;
	/* clock.c: the pushes of this burst to fragments of `ready`, which are applied with them. */
	unsigned n_pushed;
	struct clock_push {
		const struct pbox_frame *f;
		unsigned next; /* of the same fragment: 1 + its number; 0: the last */
		struct verdict verdict;
	} pushed[PBOX_SHARD_BURST];
	/* Results that were asked for in a row, all of one fragment. */
	unsigned n_batched;
	bool batch_whole;
	struct target batch;
	struct pbox_send_to batch_to[SHARD_RECEIVERS];
	bool intact; /* of the sum that is made: its contributions are; */
	bool finite; /* and all of it is */
	struct pbox_error_rate error_rate;
	struct shard_source source[SHARD_SOURCES];
	struct pbox_job_tag tag;                   /* of the frame that is being sent */
	uint8_t vector[PBOX_CLOCK_VECTOR];         /* clock.c: of that frame */
	bool own_endpoint[PBOX_ELSEWHERE + 1];     /* never PBOX_ELSEWHERE */
	uint8_t own_index[PBOX_MAX_ENDPOINTS];     /* among the shard's own */
	bool on_heap;                              /* the shard itself */
	struct pbox_shard_job *job[PBOX_MAX_JOBS]; /* by number */
	float weight[PBOX_MAX_SLOTS];              /* factors of one sum */
	const void *
		present[PBOX_MAX_SLOTS]; /* its sources, where they are not one a slot, and those */
	const void *ahead[PBOX_MAX_SLOTS]; /* of the next one */
	bool wide[PBOX_MAX_SLOTS];         /* which of them are fp32, in a round that is mixed */
	const float *acc[PBOX_NODES_MAX];  /* the sums that it begins with, the last at the end */
	/* a sum that is not verified yet */
	float scratch[FRAGMENT_MAX] __attribute__((aligned(PBOX_CACHE_LINE)));
};

/* Of copies that workers keep of results, and give back: in formats of blocks what these decode to (R13.6). */
static inline unsigned
shard_copy_format(const struct pbox_table *t)
{
	return pbox_format_is_block(t->pull_format) ? PBOX_FMT_FP32 : t->pull_format;
}
/* Of answers with the current version of the fragment, a table in rounds. */
static inline unsigned
shard_answer_format(const struct target *g)
{
	const struct pbox_table *t = g->st->t;

	return __builtin_expect(g->fragment->plain, 0) && pbox_format_is_block(t->pull_format)
		       ? PBOX_FMT_FP32
		       : t->pull_format;
}

/* Of the contribution that begins with the slot. */
static inline unsigned
shard_push_format(const struct target *g, unsigned slot)
{
	const struct pbox_record *r = g->fragment->record;

	return __builtin_expect(r->round.mixed, 0) && r->from[slot].wide ? PBOX_FMT_FP32
									 : g->st->t->push_format;
}

/* What workers have of its parameters (R13.7), of a table that has it. */
static inline float *
shard_replica(const struct target *g)
{
	return g->c->replica + (size_t)g->frag * g->st->t->frag_elements;
}
/* It is the parameters, and a worker that holds something else gets it whole. */
static inline void
shard_replica_begins(const struct target *g)
{
	memcpy(shard_replica(g), pbox_chunk_frag_param(g->st->t, g->c, g->frag),
		g->elements * sizeof(float));
}

static inline struct shard_peer *
peer_of(const struct pbox_shard *s, const struct target *g, unsigned worker)
{
	return &g->j->peer[worker * g->j->peers + s->own_index[g->c->endpoint]];
}

/* Of a bitmap of workers. */
static inline unsigned
words_of(const struct pbox_shard_job *j)
{
	return (j->job->workers + 63u) / 64;
}

/* Of one of slots. */
static inline unsigned
slot_words(const struct pbox_shard_job *j)
{
	return (j->slots + 63u) / 64;
}

static inline struct pbox_record *
record_at(const struct pbox_shard_job *j, uint32_t i)
{
	return (struct pbox_record *)(void *)(j->record_mem + i * j->record_size);
}

static inline void
shard_count(struct pbox_shard *s, enum pbox_shard_stat what)
{
	pbox_stat_add(&s->stats[what], 1);
}

/* In mode 1 a fragment without parameters takes nothing and gives nothing; neither does one that is
 * being restored. */
static inline bool
initialised(const struct target *g)
{
	return g->fragment->closed == 0;
}

/* What it would be asked for is not here (yet). */
#define PBOX_FRAGMENT_NOT_HERE (PBOX_FRAGMENT_RESTORING | PBOX_FRAGMENT_LOST | PBOX_FRAGMENT_MOVED)

/* Then its record holds what workers have reported instead (shard_restore.c). */
static inline bool
is_restoring(const struct target *g)
{
	return (g->fragment->closed & PBOX_FRAGMENT_RESTORING) != 0;
}

/* shard_memory.c: what a job may ask of the core from now on (R6.12) */
void shard_job_quota(struct pbox_shard_job *j, const struct pbox_job_bounds *b);
/* shard_address.c: R4.9. */
void shard_ping(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f);
/* A PING for the control thread that can be answered here; false: it cannot. */
bool shard_keep_alive(struct pbox_shard *s, struct pbox_shard_job *j, const struct pbox_frame *f);
/* Does the frame come from an address of its worker? p: what is known of it at the frame's endpoint, or NULL. */
bool shard_address_is_proven(
	const struct pbox_shard_job *j, const struct shard_peer *p, const struct pbox_frame *f);
/* Its sender is to prove the address, unless it was asked a moment ago. */
void shard_challenge(struct pbox_shard *s, struct pbox_shard_job *j, const struct pbox_frame *f);
/* Is it one of those whose tables these are? A worker may have been refused that (R12.6). */
bool shard_has_declared(const struct pbox_shard_job *j, const struct pbox_frame *f);
/* shard_fresh.c */
/* The newest frame of a session on one core; 0: none. heard_ns: when it came. */
uint64_t shard_newest_of(const struct pbox_job *job, const struct shard_member *m, unsigned worker,
	uint64_t token, uint64_t *heard_ns);
/* After a restart (shard_restore.c). */
void shard_restore(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f);
void shard_restorers_changed(struct pbox_shard *s, struct pbox_shard_job *j);
/* The restorer that sends the frame has reported: into the fragment's record, which is open. The discipline fills the rest. */
struct report *shard_note_report(const struct target *g, const struct pbox_frame *f);
/* The first restorer that has not reported, or PBOX_NO_WORKER. */
unsigned shard_first_silent(const struct target *g);
/* A bitmap of those that are left. */
static inline uint64_t
restorers(const struct target *g, unsigned word)
{
	return atomic_load_explicit(&g->st->restorer[word], memory_order_acquire);
}
/* Is version a later than b? 0 is what nobody has finished. */
static inline bool
shard_is_newer(uint32_t a, uint32_t b)
{
	return a != 0 && (b == 0 || pbox_serial_diff(a, b) > 0);
}
/* An answer to what a worker reported last, asked for or not. */
void shard_answer_report(
	struct pbox_shard *s, const struct target *g, unsigned worker, struct pbox_restore_ok m);
/* Others have not reported, or bring what is needed: the first of them. */
void shard_answer_noted(
	struct pbox_shard *s, const struct target *g, unsigned worker, uint32_t missing);
/* The fragment has the version that it shall have, or (lost) nobody could give that: who reported hears so. */
void shard_restored(struct pbox_shard *s, const struct target *g, bool lost);

/* shard_moves.c: chunks that come from another box, or leave for one (R16.10). */
/* Is the frame, which is of another epoch than its chunk, one that asks for what is left of it here (R16.13)? */
bool shard_is_of_left(const struct pbox_chunk *c, const struct pbox_frame *f);
void shard_moves(struct pbox_shard *s, struct pbox_shard_job *j, struct pbox_shard_table *st,
	const struct pbox_moves *moves);
/* A frame of another epoch than its chunk: its worker may not have heard that this has moved. */
void shard_moved_away(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f);
/** The fragment is here again, or another box has all that this one alone had of it. */
void shard_not_needed(const struct target *g);

/* Records and members (shard_records.c). */
/* Of a fragment that has none; NULL: all are taken. */
struct pbox_record *shard_record_open(struct pbox_shard *s, const struct target *g);
void shard_record_close(
	struct pbox_shard *s, struct pbox_shard_job *j, struct pbox_fragment *fragment);
void shard_target_of(struct pbox_shard_job *j, const struct pbox_record *r, struct target *g);
void shard_members(struct pbox_shard *s, struct pbox_shard_job *j);
/* Those of fragments that are not being restored, from number *at on; NULL: there is none left. */
struct pbox_record *shard_record_next(struct pbox_shard_job *j, uint32_t *at, struct target *g);
void shard_drop_records(struct pbox_shard *s, struct pbox_shard_job *j);
void shard_why(struct pbox_shard_job *j, struct pbox_why_page *page);

/* slots_plan.c: the inbox has other owners. */
void shard_owners_begin(struct pbox_shard_job *j);
void shard_owners_changed(struct pbox_shard *s, struct pbox_shard_job *j);

/* What is ready (shard.c): at the end of a burst, or where room is needed. */
void shard_finish_ready(struct pbox_shard *s);
/* Parameters and state of the current version (shard_state.c): from worker 0, and to any worker. */
void shard_initialise(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f);
void shard_fetch(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f);
void shard_give(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f);
/* Of a chunk that has left this box (R16.13): whatever version there is, all of it stays as it is. */
void shard_fetch_left(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f);
/* A part of it where the chunk is now: false: there is no such array. */
bool shard_write_part(const struct target *g, const struct pbox_frame *f);
/* Parameters have changed without a round: so has the answer with them. */
void shard_refresh_answer(struct pbox_shard *s, const struct target *g);
/* Copies of a table (shard_staging.c): before a fragment gets a new version, and with that. */
void shard_staging_mail(struct pbox_shard *s, const struct pbox_mail *m);
void shard_staging_before(struct pbox_staging *staging, const struct target *g)
	__attribute__((cold));
void shard_staging_after(struct pbox_shard *s, struct pbox_staging *staging, const struct target *g)
	__attribute__((cold));

/* Answers (shard_answer.c). ts: of the frame that is answered. */
/* At the end of the burst at the latest, and before the fragment gets a new version. whole: not as a difference (R13.7). */
void shard_send_result(
	struct pbox_shard *s, const struct target *g, unsigned worker, uint32_t ts, bool whole);
void shard_send_batch(struct pbox_shard *s);
/* A RESULT to one worker, which the caller has made: its payload is copied. */
void shard_send_copy(
	struct pbox_shard *s, const struct target *g, struct pbox_send *out, unsigned worker);
/* To all that want it. */
void shard_send_results(struct pbox_shard *s, const struct target *g);
void shard_send_wait(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f);
/* Without being asked: the worker's contribution is not there. */
void shard_send_taken_back(
	struct pbox_shard *s, const struct target *g, unsigned worker, uint32_t ts);
/* To the worker, wherever the frame came from (R4.9); g NULL: of no session, to where it came from. */
void shard_send_error(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f,
	enum pbox_errcode code);
/* To what its fragment is not ready for: WAIT, or ERROR LOST where it never will be (R10.5). */
void shard_send_unready(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f);
/* to: the address of f, or that of its worker. nonce: to be echoed, if that is not proven; else 0 */
void shard_send_pong(struct pbox_shard *s, struct pbox_shard_job *j, const struct pbox_frame *f,
	const struct pbox_peer *to, uint64_t nonce);
/* A frame without payload to somewhere else than the worker's address. */
void shard_send_at(struct pbox_shard *s, struct pbox_shard_job *j, struct pbox_send *out,
	unsigned worker, const struct pbox_peer *peer);
/* An answer without payload that the caller has made. */
void shard_send_to(
	struct pbox_shard *s, const struct target *g, struct pbox_send *out, unsigned worker);
/* What an answer about a fragment begins with, in all frames that are not shared. ts: of the frame that it answers. */
static inline struct pbox_send
shard_answer(const struct target *g, uint8_t type, uint32_t ts)
{
	return (struct pbox_send){
		.hdr = {.type = type, .chunk = g->chunk, .frag = g->frag, .ts = ts}};
}

/* Where answers in that format read the fragment's payload. */
const void *shard_answer_at(const struct target *g, unsigned format);

#endif /* SHARD_IMPL_H */
