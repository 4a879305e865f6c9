/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef FIXTURE_H
#define FIXTURE_H

/*
 * A registrar and its shards, driven by hand: frames in, answers collected, time as given. Mail is
 * delivered at once, unless a test holds it back.
 */

#include <pbox_auth.h>
#include <pbox_job.h>
#include <pbox_registrar_operator.h>
#include <pbox_registrar_snapshot.h>
#include <pbox_registrar_view.h>
#include <pbox_shard.h>

#include "unit.h"

#include "../../join_payload.h"

#define FX_SHARDS 2
#define FX_ARENA  (8u << 20)
#define FX_SENT   256
#define FX_QUOTA  (1u << 20) /* of job "quota", unless said otherwise */

/* A captured answer. */
struct fx_sent {
	struct pbox_hdr hdr;
	struct pbox_peer peer;
	uint8_t payload[1500], tag[PBOX_TAG_LEN];
	bool shared;
};

struct fx {
	struct pbox_registrar *registrar;
	struct pbox_shard *shard[FX_SHARDS];
	uint64_t rs[PBOX_RS_STATS], ss[FX_SHARDS][PBOX_SS_STATS];
	struct pbox_arena *arena, *arena_1; /* arena_1: of node 1, if there is one */
	uint64_t now, heard;
	struct fx_sent sent[FX_SENT];
	unsigned n_sent;
	uint64_t random; /* what the next random bytes are made of */
	bool hold_mail;
	struct pbox_mail mail[64]; /* held back */
	unsigned n_mail;
	unsigned joins;    /* each with a nonce of its own */
	uint32_t stamps;   /* frames that workers have sent */
	unsigned released; /* handles given back */
	void *last_released;
	size_t request; /* frame bytes of the last request */
	char event[600];
	unsigned events;
	struct pbox_auth_job *auth; /* of job "tagged", once there is a session */
	uint8_t frame[32][2048];    /* with tags, in turn */
	unsigned n_frames;
	int (*restore)(const struct pbox_job *job, struct pbox_table *t, bool restoring);
	/* set before fx_begin(), or left 0 */
	const struct pbox_reduce_ops *reduce;
	uint32_t hold, lease_ms, chunk_elements;
	uint16_t map_epoch; /* of control frames */
	bool tells;         /* workers send the upper half of their clocks (R4.9) */
	uint16_t mtu, max_jobs;
	uint64_t memory; /* quota of job "quota" */
	uint64_t first_run;
	uint32_t grace_ms;
	size_t arena_size;
	struct pbox_registrar_boxes boxes;
	struct pbox_registrar_rack rack; /* its tables must not become complete */
	bool nodes; /* shard i, its arena and half of the memory are on NUMA node i */
};

/* A worker's session. */
struct fx_worker {
	const char *job;
	uint16_t worker, workers, job_no, mtu;
	uint32_t ip;
	uint16_t udp;
	uint64_t token, nonce, cookie;
	uint32_t request;
	struct pbox_welcome welcome;
	bool tagged; /* the session has tags: what is sent has them */
	struct pbox_auth_keys keys;
	uint8_t policy;
	bool boxes;                /* it knows jobs at several */
	uint16_t slots, least;     /* of its JOIN (R5.2b, R15.1a) */
	uint8_t run[PBOX_RUN_LEN]; /* of its JOIN, as is number: of the run that it comes back to */
	uint64_t number;
};

/* What a table looks like; one tensor unless said otherwise. */
struct fx_table {
	uint32_t elements;
	uint8_t mode, op, optimiser, push, pull, discipline;
	uint16_t group;
	uint32_t flags; /* of DECLARE */
};

extern struct fx fx;

/* Memory of the arenas. */
extern uint8_t fx_region[FX_ARENA];
void fx_begin(void);
/* Everything must be given back: the arena is zero, counters conserve. */
void fx_end(void);

struct fx_sent *fx_last(void);
/* The i-th answer since fx_clear(), or a failure. */
struct fx_sent *fx_nth(unsigned i);
void fx_clear(void);
/* Number of captured frames of a type. */
unsigned fx_count(enum pbox_type type);
const char *fx_error_text(void);
/* Code of the last answer, which must be an ERROR with a payload; 0: it is none. */
unsigned fx_error(void);
/* The box has listened until now, whatever time has passed; fx_tick(), fx_control() and fx_rx() say so. A test that
 * lets it be away sets fx.heard. */
void fx_listen(void);
void fx_tick(void);
void fx_work(
	void); /* all slices of what there is to do: a table that is made ready can be mapped then */
void fx_mail(void); /* deliver what was held back */

/* The clock of all workers: later with each frame. */
uint32_t fx_ts(void);
/* Its upper half, if that is sent. */
uint32_t fx_upper(void);
/* A control frame; returns the last answer. */
struct fx_sent *fx_control(
	struct fx_worker *w, enum pbox_type type, const void *payload, size_t len);
void fx_hello(struct fx_worker *w);
struct pbox_join fx_join_message(const struct fx_worker *w);
/* Sign with a secret and send. */
struct fx_sent *fx_join_with(struct fx_worker *w, const struct pbox_join *m, const char *secret);
/* HELLO and JOIN; the session must come up. */
void fx_join(struct fx_worker *w, const char *job, uint16_t worker, uint16_t workers);
/* The same as it is: job, worker, workers, policy, run and number are sent. False: it was refused. */
bool fx_try_join(struct fx_worker *w);
void fx_leave(struct fx_worker *w);

struct fx_sent *fx_declare(struct fx_worker *w, uint32_t table, const struct fx_table *t);
struct fx_sent *fx_declare_list(struct fx_worker *w, const struct pbox_declare *fixed,
	const struct pbox_tensor_entry *e, unsigned n);
struct fx_sent *fx_map(struct fx_worker *w, uint32_t table, uint32_t first);
struct fx_sent *fx_set(
	struct fx_worker *w, uint32_t table, uint32_t round, unsigned id, double value);
/* Join n workers to a job and declare table 0 by all. */
void fx_job(struct fx_worker *w, const char *job, uint16_t n, const struct fx_table *t);

/* A data frame as the worker would send it; fields may be changed before fx_rx(). */
struct pbox_hdr fx_data(const struct fx_worker *w, enum pbox_type type, uint32_t chunk,
	uint16_t frag, uint32_t round);
/* A whole frame with the worker's tag, its payload at the address that is returned. */
uint8_t *fx_tagged(const struct fx_worker *w, struct pbox_hdr *h, const void *payload);
/* To one shard; true: the frame is held. */
bool fx_rx(
	unsigned shard, const struct fx_worker *w, const struct pbox_hdr *h, const void *payload);
/* To that shard's endpoint. */
void fx_at(unsigned shard, struct pbox_peer *peer);
/* The last answer asked this worker, at a new address, for its proof: here it is. */
void fx_prove(unsigned shard, const struct fx_worker *w);
/* PUSHPULL of fp32 values to shard 0, chunk 0, fragment 0. */
bool fx_pushpull(const struct fx_worker *w, uint32_t round, const float *v, unsigned n);

/* Counters of shard 0 before a step, and: just these two have changed, rx_frames and one other. */
void fx_mark(void);
void fx_only(enum pbox_shard_stat what, const char *file, int line);
#define FX_ONLY(what) fx_only(what, __FILE__, __LINE__)

#endif /* FIXTURE_H */
