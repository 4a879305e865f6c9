/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef BOX_IMPL_H
#define BOX_IMPL_H

#include <netinet/in.h>
#include <pthread.h>

#include <pbox_auth.h>
#include <pbox_registrar.h>
#include <pbox_shard.h>

#include "box.h"

#define BOX_ENDPOINTS 8
#define BOX_WORKERS   16
#define BOX_DAMAGED   256
#define BOX_ANOTHER   "another" /* run and host of a worker that is no test's */

/* A worker's session, as its WELCOME has said. */
struct box_member {
	bool live;
	unsigned denied; /* PINGs of the session that somebody else has answered */
	uint16_t job;
	uint64_t token;
	struct sockaddr_in addr;
	struct pbox_auth_keys keys;
};

struct box_held {
	struct sockaddr_in to;
	unsigned endpoint;
	size_t len;
	uint8_t *data;
};

/* A PUSHPULL that is found damaged late. */
struct box_damaged {
	bool is, told;
	uint16_t worker, frag;
	uint32_t chunk, round, ts, told_us;
};

struct box;

struct box_end {
	struct box *b;
	unsigned number; /* 0: of control */
};

struct box {
	struct box_conf conf;
	pthread_t thread;
	pthread_mutex_t lock; /* everything below; the thread holds it while it works */
	int fd[1 + BOX_ENDPOINTS];
	uint16_t port[1 + BOX_ENDPOINTS];
	struct box_end end[1 + BOX_ENDPOINTS];
	char address[64];
	bool stop;
	uint8_t *rx, *tx;
	uint64_t random;
	struct box_held held;

	/* the engine */
	uint32_t incarnation;
	unsigned mtu;
	struct pbox_job_conf job;
	struct pbox_engine_endpoint endpoint[BOX_ENDPOINTS];
	struct pbox_registrar *registrar;
	struct pbox_shard *shard[BOX_ENDPOINTS];
	struct pbox_arena *arena;
	void *region;
	uint64_t rs[PBOX_RS_STATS], ss[BOX_ENDPOINTS][PBOX_SS_STATS];
	uint64_t now, heard, skew;

	/* the filter */
	struct box_member member[BOX_WORKERS];
	struct pbox_auth_job
		*auth; /* of the job, since the first WELCOME of the incarnation; NULL: no tags */
	struct box_counts counts; /* with those of the engine's earlier incarnations */
	struct box_said said;
	unsigned refusals, refusal; /* so many JOINs are answered with that error, */
	const char *prover;         /* with proof by this secret; NULL: without (R9.2) */
	uint32_t last_join;         /* request id */
	unsigned hellos, after_restores, after_declares;
	uint64_t contributions;
	struct box_damaged damaged[BOX_DAMAGED];
	bool running, misnumber;
	bool latest;                     /* the frame at work is a PULL of the latest */
	bool restart_then, sessions_end; /* when the datagram is done */
};

struct box_in {
	const struct pbox_frame *f;
	const struct sockaddr_in *from;
	unsigned endpoint;
};

struct box_out {
	struct pbox_hdr h;
	const struct sockaddr_in *to;
	unsigned endpoint;
	uint8_t *frame; /* its payload is in its place */
};

uint64_t box_now(const struct box *b); /* us */
bool box_chance(struct box *b, double p);
/** A whole frame, as the network takes it. */
void box_put(
	struct box *b, unsigned e, const struct sockaddr_in *to, const uint8_t *frame, size_t len);
/** The same of a frame that is not the engine's, and has no tag. */
void box_say(struct box *b, unsigned e, const struct sockaddr_in *to, struct pbox_hdr *h,
	const void *payload);
void engine_restart(struct box *b);
/** So much later all leases have run out; the run ends, or is kept. */
void engine_leases_end(struct box *b, bool kept);
/** Add what the engine has counted. */
void engine_counters(const struct box *b, struct box_counts *c);

/** What comes; true: the engine does not get it. */
bool filter_in(struct box *b, const struct box_in *in, const uint8_t *payload);
/** What the engine sends: with a tag it stays what it is. True: it is not sent. */
bool filter_out(struct box *b, struct box_out *o);
/** After each datagram. */
void filter_later(struct box *b);

#endif /* BOX_IMPL_H */
