/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef RACKS_H
#define RACKS_H

/*
 * Racks (section 18 of the protocol): an upper box, the boxes of the racks and their workers, all of them as they ship, in virtual time.
 * A mode of its own, with its own world and laws; of sim.h it uses the queue, random numbers and the tables of functions.
 *
 *     racks_spec.c    what happens in the run of a seed
 *     racks.c         the run: events, mishaps, the network
 *     racks_box.c     what is around a box: shards, mail, rings, its uplinks
 *     racks_worker.c  what is around a worker, and the program that uses it
 *     racks_law.c     what must hold
 *     racks_main.c    many seeds
 */

#include <pbox_uplinks.h>

#include "sim.h"

#define RACKS_MAX     4
#define RACKS_BOXES   (1 + RACKS_MAX) /* 0: the upper one; i: of rack i - 1 */
#define RACKS_WORKERS 16
#define RACKS_SHARDS  3 /* of a box; each has an endpoint */
#define RACKS_TABLES  2
#define RACKS_TENSORS 6
#define RACKS_MISHAPS 8
#define RACKS_ROUNDS  16

/* IPv4 */
#define RACKS_BOX_IP    0x0AFF0001u
#define RACKS_WORKER_IP 0x0A000001u
#define RACKS_UPLINK    (PBOX_CONTROL_PORT - 1) /* an uplink's port; others are below */

/* ---- what happens (racks_spec.c) ------------------------------------------------------------- */

struct racks_table {
	uint8_t op, push, pull; /* formats: fp32, bf16 */
	unsigned tensors;
	uint32_t elements[RACKS_TENSORS];
};

enum racks_kind_of_mishap {
	RACKS_CRASH,   /* the boxes of a mask are killed, and started again after a while */
	RACKS_KILL,    /* a worker is killed, and started again */
	RACKS_CUT,     /* nothing passes between a rack and the upper box for a while */
	RACKS_REPLACE, /* all workers are killed, and another run of the job is started at once */
};

struct racks_mishap {
	enum racks_kind_of_mishap kind;
	unsigned who; /* mask of boxes; worker; rack */
	uint64_t at;  /* not before; */
	uint64_t ns;  /* for so long */
};

struct racks_net {
	double loss, dup, reorder, damage;
	uint64_t delay_ns, jitter_ns, reorder_ns;
};

struct racks_spec {
	uint64_t seed;
	unsigned racks, workers, slots; /* slots 0: one a worker, and JOIN does not say it */
	unsigned tables, rounds, mishaps;
	unsigned shards[2]; /* of the upper box; of the others */
	unsigned mtu, chunk_elements;
	unsigned hold[2]; /* packets that a shard holds */
	bool auth, late_dma;
	bool ahead; /* rounds begin before the one before has ended everywhere */
	bool hasty; /* boxes crash also while what another crash has left is being restored */
	struct racks_net within, between;
	struct racks_table table[RACKS_TABLES];
	struct racks_mishap mishap[RACKS_MISHAPS];
	uint64_t compute_ns;
};

void racks_spec_make(struct racks_spec *sp, uint64_t seed, double loss);
void racks_spec_print(const struct racks_spec *sp);
static inline unsigned
racks_slots(const struct racks_spec *sp)
{
	return sp->slots != 0 ? sp->slots : sp->workers;
}

/* ---- the world ------------------------------------------------------------------------------- */

struct racks;

enum racks_event {
	RACKS_ARRIVE,
	RACKS_POLL,
	RACKS_PACE,
	RACKS_DMA,
	RACKS_MAIL_SHARD,
	RACKS_MAIL_REGISTRAR,
	RACKS_UP,
	RACKS_DOWN,
	RACKS_LINKS, /* uplinks have something to do */
	RACKS_TICK,
	RACKS_WORKER,
	RACKS_START, /* of a worker */
	RACKS_MISHAP,
	RACKS_BOX_START,
};

/* A datagram. */
struct racks_packet {
	struct racks_packet *next;
	uint32_t len, from_ip, to_ip;
	uint16_t from, to;
	uint8_t data[];
};

struct racks_shard {
	struct racks_box *box;
	unsigned id;
	struct pbox_shard *engine;
	uint64_t stats[PBOX_SS_STATS];
	struct racks_packet *first, **last; /* waiting for the poll */
	bool poll_due, pace_due;
	uint64_t mail_to, mail_from, up_at, down_at; /* when the last one arrives */
	unsigned up;                                 /* in the ring */
	uint64_t held;
};

struct racks_box {
	struct racks *w;
	unsigned number, generation, n_shards;
	bool up;
	uint32_t incarnation;
	struct pbox_registrar *registrar;
	struct pbox_uplinks *uplinks; /* NULL: the upper box */
	struct pbox_arena *arena;
	struct racks_shard shard[RACKS_SHARDS];
	struct pbox_engine_endpoint endpoint[RACKS_SHARDS];
	struct pbox_job_conf conf;
	uint64_t stats[PBOX_RS_STATS];
	uint64_t links_at; /* earliest event that is queued for uplinks; 0: none */
	unsigned mails;
	uint64_t fragments,
		expected[2]; /* of all tables, once they are mapped: rounds, contributions */
};

enum racks_state {
	RACKS_OFF,
	RACKS_OPENING,
	RACKS_DECLARE,
	RACKS_WORK,
	RACKS_FINISHED,
	RACKS_LEAVE,
	RACKS_DONE,
};

struct racks_op {
	struct racks_op *next, **prev;
	unsigned table;
	uint32_t round;
	uint8_t *in, *out;
	const uint8_t **node_in;
	uint32_t *node_weight;
	struct pbox_worker_op op; /* its entries follow */
};

struct racks_worker {
	unsigned number, life;
	enum racks_state state;
	bool restarted;
	uint16_t udp;
	uint64_t timer; /* earliest event that is queued; 0: none */
	struct pbox_worker *w;
	struct pbox_worker_ops port;
	struct racks *world;
	struct pbox_client_table what;
	struct pbox_client_tensor tensor[RACKS_TENSORS];
	struct pbox_worker_declaration declaration;
	unsigned tables;
	struct pbox_worker_table *table[RACKS_TABLES];
	uint32_t done[RACKS_TABLES], round;
	unsigned open[2][RACKS_TABLES];
	uint32_t since[RACKS_TABLES]; /* rounds that were complete when something last went wrong */
	struct racks_op *ops;
	uint64_t not_before;
	struct pbox_worker_request request;
	uint8_t answer[SIM_MTU];
};

struct racks {
	struct racks_spec sp;
	const struct sim_code *code;
	struct sim_queue queue;
	struct pbox_random random;
	uint64_t now, events, frames, hash, progress_at;
	struct racks_box box[RACKS_BOXES];
	struct racks_worker worker[RACKS_WORKERS];
	uint64_t cut_until[RACKS_MAX];
	unsigned life, done;
	unsigned finished; /* workers that have done all rounds */
	bool exact;        /* what boxes count can be computed */
	bool failed, verbose;
	bool troubled; /* something went wrong, and not all have done a round since */
	char why[512];
	float *expected[RACKS_TABLES]
		       [RACKS_ROUNDS + 1]; /* of all tensors, in fp32; NULL: not computed */
};

void racks_fail(struct racks *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void racks_note(const struct racks *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
bool racks_chance(struct racks *w, double p);
uint64_t racks_below(struct racks *w, uint64_t n);
void racks_at(
	struct racks *w, uint64_t at, enum racks_event kind, unsigned box, unsigned index, void *p);
struct racks_packet *racks_packet_new(uint32_t len);
/* What a library sends: its pieces, and where it goes; where it comes from is the caller's. */
struct racks_packet *racks_packet_of(const struct pbox_client_tx *d);
/* Takes p. */
void racks_net_send(struct racks *w, struct racks_packet *p);
static inline unsigned
racks_box_of(const struct racks *w, unsigned worker)
{
	return 1 + worker / (w->sp.workers / w->sp.racks);
}

/* ---- boxes (racks_box.c) ----------------------------------------------------------------------- */

void racks_box_start(struct racks *w, unsigned number);
void racks_box_stop(struct racks *w, unsigned number);
void racks_box_arrive(struct racks *w, struct racks_box *b, struct racks_packet *p);
/* Of this generation of the box. */
void racks_box_event(struct racks *w, struct racks_box *b, const struct sim_event *e);
void racks_box_tick(struct racks_box *b);

/* ---- workers (racks_worker.c) -------------------------------------------------------------------- */

void racks_worker_start(struct racks *w, struct racks_worker *x, bool restarted);
void racks_worker_kill(struct racks *w, struct racks_worker *x);
void racks_worker_receive(struct racks *w, struct racks_worker *x, const struct racks_packet *p);
void racks_worker_timer(struct racks *w, struct racks_worker *x);

/* ---- laws (racks_law.c) ---------------------------------------------------------------------------- */

/* What a worker brings of a tensor at a node, in the push format; samples of the node. */
void racks_fill(const struct racks *w, unsigned table, uint32_t round, unsigned first,
	unsigned width, uint32_t tensor, uint8_t *to);
uint32_t racks_weight(
	const struct racks *w, unsigned table, uint32_t round, unsigned first, unsigned width);
/* An operation has ended well. */
void racks_law_completed(struct racks *w, const struct racks_worker *x, const struct racks_op *o);
/* The tables of a job are mapped: counts its fragments. */
void racks_law_mapped(struct racks *w);
/* All have left, and all boxes are empty. */
bool racks_law_empty(const struct racks *w);
void racks_law_end(struct racks *w);
void racks_law_forget(struct racks *w);

/* ---- runs ------------------------------------------------------------------------------------------ */

struct racks_result {
	bool ok;
	uint64_t hash, events, frames, virtual_ns;
	char why[512];
};
void racks_run(struct racks_result *out, const struct racks_spec *sp, bool verbose);

struct racks_options {
	uint64_t first, end;
	const char *regressions;
	double loss;
	bool verbose, keep_going, twice, caught;
};
/* The exit status. */
int racks_main(const struct racks_options *o);

#endif /* RACKS_H */
