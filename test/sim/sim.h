/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef SIM_H
#define SIM_H

/*
 * The deterministic simulator: the real engine (lib/shard, lib/registrar), the real worker (lib/worker), a network
 * that loses, repeats, delays, cuts, damages, forges and records, and a checker, in virtual time.
 * Everything follows from one seed; nothing reads a clock or a random source of the machine.
 *
 *     scenario.c scenario_plans.c scenario_fleets.c smaller.c  what happens in a run of a seed; the same with less of it
 *     box.c box_rx.c         what is around the engine: shards, mail, crashes
 *     sim_code.h             what is called of the engine and of the worker
 *     worker.c program.c operations.c plans.c  what is around a worker: its port and its clock; the program that uses it
 *     net.c noise.c record.c fault.c fault.h  the network, and who plays tricks in it; the list of what was done
 *     check.c timing.c map.c fleet.c moves.c reference.c restart.c  the checker: boxes, workers
 *     law.h law_rounds.c law_rounds_restart.c law_slots.c law_plan.c law_clock.c  ... and tables
 *     shrink.c case.c words.c         a failing seed becomes one that can be read
 *
 * The checker trusts neither side. It knows what programs push, sees every datagram and what completes, and computes
 * the results itself, from the map that it reads in MAPPED and the keys that it derives from WELCOME.
 */

#include <stdio.h>

#include <pbox_auth.h>
#include <pbox_engine.h>
#include <pbox_job.h>
#include <pbox_registrar_operator.h>
#include <pbox_registrar_snapshot.h>
#include <pbox_registrar_view.h>
#include <pbox_shard.h>
#include <pbox_shard_job.h>
#include <pbox_worker.h>

#include "fault.h"
#include "fleet.h"
#include "phases.h"
#include "plans.h"
#include "sim_code.h"
#include "timing.h"

#define SIM_BOXES    5
#define SIM_JOBS     4
#define SIM_WORKERS  16
#define SIM_SHARDS   4
#define SIM_TABLES   3
#define SIM_TENSORS  24
#define SIM_NODES    2
#define SIM_CRASHES  8
#define SIM_LANES    4
#define SIM_COMMANDS 8
#define SIM_MTU      1500
#define SIM_LEAST    (PBOX_MTU_OVERHEAD + PBOX_JOIN_LEN) /* of an MTU */

#define US        UINT64_C(1000)
#define MS        UINT64_C(1000000)
#define SEC       UINT64_C(1000000000)
#define SIM_BEGIN (1000 * SEC) /* the clock of a box that has been up for a while */

/* Where a datagram goes: an endpoint's number, or this one. */
#define SIM_CONTROL 0xFFFF
#define SIM_BOX     0x0AFF0001u /* the address of box 0; the others follow */

/* ---- engine and worker, real or planted (code_table.c, plant.py) ------------------------ */

extern const struct sim_code sim_code_real, sim_code_planted;
extern int sim_planted;                /* number of the planted bug; 0: none */
extern const char *const sim_plants[]; /* names from 1 on, ended by NULL; [0] is "" */

/* ---- scenario (scenario.c) --------------------------------------------------------------- */

struct sim_law;

struct sim_table_spec {
	const struct sim_law *law;
	struct pbox_declare fixed;
	struct pbox_tensor_entry tensor[SIM_TENSORS];
};

static inline bool
sim_is_clock(const struct sim_table_spec *t)
{
	return t->fixed.discipline == PBOX_DISCIPLINE_CLOCK;
}

static inline bool
sim_is_empty(const struct sim_table_spec *t)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < t->fixed.tensors; i++)
		n += t->tensor[i].elements;
	return n == 0;
}

struct sim_job_spec {
	unsigned box; /* that it lives on; of a job at several boxes the first one */
	unsigned workers, tables, rounds;
	unsigned slots; /* of each round (R5.2b); 0: one a worker, and JOIN does not say it */
	bool plain; /* in spite of slots a worker has one payload, which it brings at its first node */
	struct sim_table_spec table[SIM_TABLES];
	uint16_t mtu;
	bool barrier;             /* a round begins when the last one is complete */
	bool any_number;          /* workers take the number they get */
	bool pull0;               /* workers fetch the initial parameters */
	bool dies;                /* all workers fall silent forever */
	bool shrink;              /* rounds go on without the dead (R8.5) */
	bool plan, steals, ahead; /* policy reassign; slots are stolen, or begin early */
	bool sets;                /* hyper-parameters change on the way */
	bool zeros;               /* contributions of zeros without payload */
	bool auth;                /* frames have tags */
	unsigned setters;
	unsigned restarts, rebinds; /* workers that are killed; that change their address */
	unsigned deaths, stops;     /* by plan: workers killed for good; that stop a while */
	unsigned least; /* workers with which it begins, the others come later; 0: all */
	uint64_t slot_ns, later_ns; /* of the fastest for a slot; in which the others come */
	unsigned push_percent;      /* PUSH and PULL instead of PUSHPULL */
	uint32_t
		pulls_each; /* tables in clocks pull each so many rounds alone, and only push in others; 0: each */
	uint32_t lag;   /* of pulls of tables in clocks: 1 + their bound; 0: they have none */
	unsigned lives; /* how often the whole job runs */
	/* all workers are killed, and so many of another run start at once; 0: that does not happen */
	unsigned replaced;
	bool named;           /* its runs have identities */
	uint32_t first_round; /* rounds before the first: near 2^32 they wrap */
	uint64_t compute_ns;
	uint64_t death_ns;
};

struct sim_network_spec {
	double loss, dup, corrupt, truncate, reorder;
	unsigned burst;     /* datagrams lost in a row */
	double target_loss; /* one chunk of each job, with its retransmissions */
	uint64_t delay_ns, jitter_ns, reorder_ns;
	uint64_t calm_ns; /* from here on nothing goes wrong; 0: it always may */
	unsigned holes;   /* black holes */
	struct {
		uint64_t from, to;
		unsigned boxes; /* a bit each, whose frames are lost; 0: of all */
	} hole[4];
	/* more losses on the way to one box and back */
	unsigned bad_box;
	double bad_loss;
};

struct sim_scenario {
	uint64_t seed;
	unsigned boxes; /* each with so many shards and endpoints */
	unsigned
		fleet; /* so many of them have one list: a job at one of these is at all of them; 0: each job is at one */
	unsigned
		named; /* of 100 workers that many name all boxes of the list, the others any one */
	unsigned shards, endpoints, jobs;
	uint32_t chunk_elements, hold, lease_ms;
	uint16_t mtu;
	bool late_dma;     /* zero-copy answers are read some time after send() */
	unsigned train;    /* frames a worker puts into one datagram */
	unsigned lanes;    /* threads of a worker, at most; 0: 1 */
	uint32_t rate;     /* of each job at each core; 0: no limit */
	unsigned noise;    /* of 1000 datagrams to the box, how many bring a forged one */
	unsigned recorded; /* how many of them somebody keeps, and sends again */
	unsigned stray;    /* how many of them reach another box too */
	bool moves;        /* a worker that changes its address changes host and port */
	/* a box is killed and started again; snapshots are of each box */
	unsigned crashes, snapshots;
	struct {
		uint64_t at, down_ns;
		unsigned box;
	} crash[SIM_CRASHES];
	/* chunks of all jobs at several boxes move (moves.c) */
	unsigned commands;
	struct {
		uint64_t at;
		uint32_t what, x;
		unsigned box;
	} command[SIM_COMMANDS];
	/* a box of the fleet dies, and its jobs go on without it by a command; later it is started again, or stays dead */
	unsigned dead_box, first;           /* 0: none, or the first one by enum sim_first */
	uint64_t dies_ns, told_ns, back_ns; /* back_ns: after that command; 0: never */
	struct sim_network_spec net;
	struct sim_job_spec job[SIM_JOBS];
};

struct sim_limits {
	unsigned boxes, jobs, workers, shards; /* 0: what the seed says */
	double loss;                           /* below 0: what the seed says */
	bool crashes_shrink;                   /* policy shrink where a box crashes, too */
	bool fleets, clocks; /* jobs at several boxes, with tables in clocks (scenario_fleets.c) */
	/* chunks move; formats of blocks (law_blocks.c, law_replica.c, law_updates.c); rounds in two phases (phases.c) */
	bool moves, deciders, blocks, nodes, replicas, updates, hold; /* deciders: they die */
	bool recordings; /* copies of old frames are sent, and workers move (record.c) */
};

void sim_scenario_make(struct sim_scenario *sc, uint64_t seed, const struct sim_limits *limits);
void sim_scenario_print(const struct sim_scenario *sc);
/* Some of its jobs work by plan (scenario_plans.c). Returns how many packets the box may have to hold for that beside those that
 * one node a worker makes. */
unsigned sim_scenario_plans(struct sim_scenario *sc, uint64_t seed);
/* Slots of a round, named or not; those that are a worker's: the first, or with worker + 1 the one after the last. */
unsigned sim_slots(const struct sim_job_spec *j);
unsigned sim_slots_of(const struct sim_job_spec *j, unsigned worker);
/* Does the box crash? */
bool sim_crashes(const struct sim_scenario *sc, unsigned box);

/* ---- events (event.c) --------------------------------------------------------------------- */

enum sim_kind {
	SIM_TO_BOX,
	SIM_TO_WORKER,
	SIM_POLL,
	SIM_PACE,
	SIM_DMA,
	SIM_MAIL_SHARD,
	SIM_MAIL_REGISTRAR,
	SIM_TICK,
	SIM_WORKER_TIMER,
	SIM_START,
	SIM_KILL,
	SIM_REBIND,
	SIM_STOP,         /* a process; p: for so many ns */
	SIM_REPLACE,      /* a whole run by another */
	SIM_STRAGGLER_GO, /* a worker of the run before */
	SIM_CRASH,        /* of the box */
	SIM_BOX_START,
	SIM_SNAPSHOT, /* what the disk has is renewed */
	SIM_RECORDED, /* a copy of an old datagram is sent */
	SIM_COMMAND,  /* of an operator; p: how often it was put off */
};

struct sim_event {
	uint64_t at, order;
	enum sim_kind kind;
	unsigned box;         /* what happens does at this box, or to a worker of its jobs */
	unsigned job, worker; /* or shard in worker */
	void *p;
};

struct sim_queue {
	struct sim_event *e;
	size_t n, cap;
	uint64_t order;
};

void sim_queue_push(struct sim_queue *q, const struct sim_event *e);
bool sim_queue_pop(struct sim_queue *q, struct sim_event *e);

/* ---- reference: independent scalar code (reference.c) ------------------------------------ */

/* What a fragment holds of a tensor. */
struct sim_piece {
	uint32_t fragment, tensor, at, elements; /* at: in the fragment */
	uint64_t offset;                         /* in the tensor */
};

/* A slot of a fragment's rounds, as frames show it. */
struct sim_slot {
	uint32_t arrived; /* the latest round of which a contribution has reached the box */
	uint32_t
		opened; /* the same, with those whose payload, or more, is damaged: the box finds out later */
	uint64_t at;    /* when the latest arrived */
	uint16_t width; /* 2^level of the node that begins here; 0: none that is known */
	bool member;    /* policy shrink: it is there in the version that is made now */
};

/* One fragment as the checker knows it. */
struct sim_fragment {
	struct sim_piece *piece;
	unsigned pieces;
	uint32_t chunk, elements, number; /* number: of the fragment in the job */
	uint16_t frag, endpoint, group;
	uint8_t table, box;      /* box: its owner, */
	uint16_t epoch;          /* by the map of that epoch; */
	uint8_t first_box;       /* and by the first map */
	struct sim_moves *moves; /* moves.c */
	/* the reference */
	bool ready; /* param holds version `version` */
	uint32_t version;
	float *param, *s0, *s1;
	void *clock, *blocks, *replica, *updates; /* law_clock.c, law_blocks.c and so on */
	struct sim_held *held;                    /* law_hold.c */
	uint8_t *answer[2]; /* of the latest version and the one before, in the pull format */
	uint32_t weight[2];
	unsigned contributors[2]; /* slots */
	/* what was seen */
	struct sim_slot *slot;
	unsigned slots;
	struct {
		uint32_t round, n; /* frames about it, */
		uint64_t since;
		/* a PUSHPULL of this round has no result yet; the clock of its latest payload */
		bool flying;
		uint32_t flying_round, payload_ts;
		uint64_t missing; /* since then it knows that the box does not have that; 0: no */
		/* slots of its own before this one have been acknowledged, in this round */
		uint32_t taken_round;
		uint16_t taken;
	} asked[SIM_WORKERS]; /* by process */
	uint32_t published;   /* latest version that the box answered with */
	uint32_t map_of;      /* incarnation and run that named the endpoint (map.c) */
	/* restarts of the box (restart.c) */
	uint32_t restored_in; /* incarnation */
	struct {
		uint64_t token; /* of the session that reported; 0: none */
		uint32_t version;
		bool have;
	} told[SIM_WORKERS];
	uint8_t *given; /* payload that a worker gave, of given_version */
	uint32_t given_version;
	bool has_snapshot, used_snapshot, no_result;
	struct {
		uint32_t version, weight;
		float *param, *s0, *s1;
	} snapshot;
};

/* What slot `slot` contributes to a round; without slots of its own a job has one a worker. With policy shrink that is the
 * same in every round: a worker that comes back does not know which one is next. */
struct sim_push {
	unsigned job, life, table, slot;
	uint32_t round;
};
/* Its sample count. */
uint32_t sim_weight(const struct sim_scenario *sc, const struct sim_push *k);
/* The factor of a push, of a table in clocks, as bf16. */
uint16_t sim_factor(const struct sim_scenario *sc, const struct sim_push *k);
/* Is it all zeros? */
bool sim_is_zero(const struct sim_scenario *sc, const struct sim_push *k);
/* Bytes of a piece of it, in the push format. */
void sim_contribution(const struct sim_scenario *sc, const struct sim_push *k,
	const struct sim_piece *p, uint8_t *out);
/* The same of the initial parameters. */
void sim_initial(const struct sim_scenario *sc, unsigned job, unsigned life, unsigned table,
	const struct sim_piece *p, float *out);
/* Number of hyper-parameters that are set from this round on; fills m's params. */
unsigned sim_hyper_change(const struct sim_scenario *sc, unsigned job, unsigned table,
	unsigned group, uint32_t round, struct pbox_set *m);
unsigned sim_groups(const struct sim_scenario *sc, unsigned job, unsigned table);
/* Bring the reference of f to a version; *weight: samples. The answer it must give. */
void sim_narrow(uint8_t *out, unsigned format, const float *v, uint32_t n);
float sim_widen(const uint8_t *p, unsigned format, uint32_t i);
/* Memory for a reference that has none yet. */
void sim_reference_begin(
	const struct sim_scenario *sc, unsigned job, unsigned life, struct sim_fragment *f);
void sim_reference_forget(struct sim_fragment *f);
const uint8_t *sim_expected(const struct sim_scenario *sc, unsigned job, unsigned life,
	struct sim_fragment *f, uint32_t version, uint32_t *weight);

/* ---- network (net.c) ----------------------------------------------------------------------- */

struct sim_packet {
	unsigned held;  /* frames of it that the engine holds */
	unsigned early; /* of these, given back within the call that took them */
	bool in_burst, damaged, forged;
	bool half;  /* of a node, from somebody who knows what it holds (noise.c) */
	bool stray; /* a copy that reaches a box that it is not for */
	/* record.c: it will be sent again: when, how often, from where */
	bool kept;
	uint8_t times, place;
	uint8_t box;  /* that it goes to, or comes from */
	uint8_t link; /* first byte of the link address at the worker's side */
	uint64_t later_ns, every_ns;
	uint16_t endpoint; /* or SIM_CONTROL */
	uint32_t ip;       /* the worker's side, as a number */
	uint16_t udp;
	uint32_t len;
	struct sim_packet *next;
	uint8_t data[];
};

struct sim;

struct sim_packet *sim_packet_new(uint32_t len);
/* With the addresses of another, and as many bytes of it as both have. */
struct sim_packet *sim_packet_like(const struct sim_packet *p, uint32_t len);
void sim_packet_free(struct sim_packet *p);
/* Takes p; delivers none, one or several copies, perhaps damaged. */
void sim_net_send(struct sim *s, struct sim_packet *p, bool to_box);
/* Has nothing gone wrong for so long? */
bool sim_net_is_calm(const struct sim *s, uint64_t ns);
/* A forged variant of a real datagram (noise.c), if one is drawn, or that of the fault list. It goes the same way. */
void sim_noise(struct sim *s, const struct sim_packet *p, struct sim_fault *k, bool drawn);
/* A copy of a datagram to the box may reach another box, which it means nothing to. */
void sim_noise_stray(struct sim *s, const struct sim_packet *p, struct sim_fault *k);
/* The halves of the node that a contribution brings are brought, too. */
void sim_noise_halves(struct sim *s, const struct sim_packet *p, struct sim_fault *k);
/* A contribution of zeros leaves without its payload, which workers do not do of themselves (flag ZERO). */
struct sim_packet *sim_noise_zero(const struct sim *s, unsigned job, struct sim_packet *p);
/* Recordings (record.c): will this datagram be kept? It arrives; a copy is to be sent, p is taken. */
void sim_record(struct sim *s, struct sim_packet *p, struct sim_fault *k);
void sim_record_arrival(struct sim *s, const struct sim_packet *p);
void sim_record_replay(struct sim *s, struct sim_packet *p);
/* Does what the box sends go to him who sends copies? Then he gets it. */
bool sim_record_is_his(const struct sim_packet *p);
void sim_record_receive(struct sim *s, const struct sim_packet *p);

/* ---- the trace in words (words.c) ------------------------------------------------------------ */

void sim_words(const struct sim *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* A line of its own, in both kinds of trace. */
void sim_note(const struct sim *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Begin the line of a datagram; when a copy of it arrives. */
void sim_words_send(const struct sim *s, const struct sim_packet *p, const struct sim_fault *k);
void sim_words_deliver(const struct sim *s, uint64_t at);

/* ---- the box (box.c, box_check.c) ------------------------------------------------------------ */

struct sim_box;

struct sim_shard {
	struct sim_box *box;
	unsigned id;
	struct pbox_shard *engine;
	uint64_t stats[PBOX_SS_STATS];
	struct sim_packet *first, **last; /* waiting for the poll */
	bool poll_due, pace_due;
	uint64_t mail_to, mail_from; /* when the last mail arrives */
	uint64_t frames, held;
	uint64_t due
		[SIM_JOBS]; /* when the rate of a job allows the next round, as the checker has it */
};

/*
 * A box, and all that is of its jobs alone: what happens there follows from its own random numbers, so that no other box
 * has a part in it.
 */
struct sim_box {
	struct sim *sim;
	unsigned number;
	struct pbox_random random, recorder, strayer; /* the latter of record.c and noise.c */
	uint64_t hash, queued, progress_at, moved_at;
	unsigned unfinished; /* jobs */
	unsigned burst_left; /* datagrams still to be lost */
	uint64_t expected_contributions, expected_rounds;
	bool exact;   /* contributions can be counted: nobody dies */
	bool forging; /* the shard has a forged frame now */
	struct pbox_registrar *registrar;
	uint64_t stats[PBOX_RS_STATS];
	uint64_t frames;
	struct sim_shard shard[SIM_SHARDS];
	struct pbox_engine_endpoint endpoint[2 * SIM_SHARDS];
	struct pbox_arena *arena[PBOX_MAX_NODES];
	struct pbox_job_conf conf[SIM_JOBS];
	uint32_t incarnation;
	bool up, dead;       /* dead: nobody starts it again before its jobs go on without it */
	unsigned mails;      /* under way */
	unsigned generation; /* how often it has crashed; events of an earlier one are void */
	uint64_t past_shard[PBOX_SS_STATS], past_registrar[PBOX_RS_STATS];
	unsigned shown; /* flags of the HOMES being answered; 0xFFFF: it is a question */
	size_t request; /* bytes of the request being answered, where answers are bounded; or 0 */
	uint64_t damaged, rejected;
};

void sim_box_start(struct sim *s);
void sim_box_stop(struct sim *s);
void sim_box_arrive(struct sim *s, struct sim_packet *p);
void sim_box_poll(struct sim *s, unsigned shard);
void sim_box_pace(struct sim *s, unsigned shard);
void sim_box_dma(struct sim *s, void *p);
void sim_box_mail(struct sim *s, unsigned shard, void *p, bool to_shard);
void sim_box_tick(struct sim *s);
/* Is everything given back and zero? Counters conserve? */
void sim_box_check_end(struct sim *s);
void sim_box_check_counters(struct sim *s);
void sim_box_check_memory(struct sim *s);

/* ---- restarts of the box (restart.c) ---------------------------------------------------------- */

void sim_restart_plan(struct sim *s);
void sim_restart_crash(struct sim *s, unsigned crash);
void sim_restart_start(struct sim *s);
void sim_restart_snapshot(struct sim *s);
/* The registrar's hook. */
int sim_restart_load(
	struct sim *s, const struct pbox_job *job, struct pbox_table *t, bool restoring);
/* A frame of a worker reaches the box, an answer leaves it. */
void sim_restart_arrival(
	struct sim *s, const struct pbox_hdr *h, const uint8_t *payload, unsigned job);

/* ---- workers (worker.c, program.c) ------------------------------------------------------------ */

enum sim_worker_state {
	SIM_OFF,
	SIM_OPENING,
	SIM_DECLARE,
	SIM_STATUS,
	SIM_INITIAL, /* parameters */
	SIM_WORK,
	SIM_FINISHED, /* all rounds; the others may need it */
	SIM_LEAVE,
	SIM_DONE,
	SIM_DEAD,
};

/* An operation of the program, in a list of those that are open. */
struct sim_op {
	struct sim_op *next, **prev;
	unsigned table;
	uint32_t round;          /* that it belongs to; since first_round */
	uint8_t *in, *out;       /* of all its tensors; in: of one node after the other */
	const uint8_t **node_in; /* NULL: a plain operation */
	uint32_t *node_weight;
	bool counts;              /* for the end of its round */
	struct pbox_worker_op op; /* its entries follow */
};

struct sim_worker {
	unsigned job, number; /* number: of the simulated process; id: of the worker */
	uint16_t id;
	enum sim_worker_state state;
	uint64_t began; /* this life */
	bool restarted;
	bool was_down; /* killed, and has no session yet */
	bool finished; /* all rounds; some wait for the others before they leave */
	uint32_t ip;
	uint16_t udp;
	uint64_t nonce;
	uint64_t heard[SIM_BOXES]; /* when the box last answered it in its session */
	uint64_t timer;            /* earliest timer event that is queued; 0: none */
	struct pbox_worker *w;
	struct pbox_worker_ops port;
	struct pbox_random turns;     /* of its lanes */
	uint64_t lane_due[SIM_LANES]; /* when each has to have a turn */
	/* what its program does */
	struct pbox_client_table what;
	struct pbox_client_tensor tensor[SIM_TENSORS];
	struct pbox_worker_declaration declaration;
	unsigned tables; /* declared */
	struct pbox_worker_table *table[SIM_TABLES];
	uint32_t done[SIM_TABLES]; /* rounds; the checkpoint that a process that starts again has */
	uint32_t round;            /* whose operations are submitted; all since first_round */
	uint32_t last;             /* the last one */
	unsigned open[2][SIM_TABLES]; /* operations that count, of this and the round before */
	struct sim_op *ops;
	uint64_t not_before; /* it computes */
	struct sim_planned plan;
	struct sim_phase phase[SIM_TABLES];
	unsigned pending;   /* tables whose part of the round has not begun, a bit each */
	uint64_t stopped;   /* until then the process does nothing, */
	unsigned in_socket; /* and so many datagrams wait for it */
	struct pbox_worker_request request;
	bool busy, owed; /* request is; it left with pushes that a box had lost (R14.12) */
	uint8_t payload[256], answer[SIM_MTU];
	uint32_t set_round; /* SETs up to this round are answered */
	unsigned set_table, set_group;
	struct sim_asked asked[SIM_ASKED]; /* by id */
	struct sim_flow flow[SIM_BOXES][2 * SIM_SHARDS];
	uint32_t flow_round; /* whose fragments are counted there */
	uint64_t tx;         /* its latest frame that asks for something; */
	uint64_t tx_control; /* that joins, declares, asks for a map, ... */
	unsigned missing;    /* fragments whose contribution was lost, as it knows */
};

void sim_worker_start(struct sim *s, struct sim_worker *w, bool restarted);
void sim_worker_kill(struct sim *s, struct sim_worker *w);
/* The process ends, and is started again at once. */
void sim_worker_again(struct sim *s, struct sim_worker *w);
void sim_worker_receive(struct sim *s, struct sim_worker *w, const struct sim_packet *p);
void sim_worker_timer(struct sim *s, struct sim_worker *w);
/* Queue a timer event for this time, if none is queued before it. */
void sim_worker_wake(struct sim *s, struct sim_worker *w, uint64_t at);

/* What the program does now; true: the worker has something new to do. */
bool sim_program_step(struct sim *s, struct sim_worker *w);
/* Forget what is open. */
void sim_program_drop(struct sim_worker *w);

/* ---- a whole run is replaced by another (replace.c) --------------------------------------------- */

void sim_replace_plan(struct sim *s, unsigned job);
void sim_replace(struct sim *s, unsigned job);
/* The worker of the run before wakes up, or is looked at; an answer to it. */
void sim_straggler_go(struct sim *s, unsigned job);
void sim_straggler_receive(struct sim *s, unsigned job, const struct sim_packet *p);
/* What the box sends is for a session of a run that was replaced. */
bool sim_is_of_before(const struct sim *s, unsigned job, const struct pbox_send *out);

/* ---- jobs and the run (sim.c) ------------------------------------------------------------------ */

#define SIM_STOPS 1000 /* of faults that are alike, those of jobs by plan */
#define SIM_STRAGGLER \
	SIM_WORKERS /* in the list of workers: one of the run before, which was only asleep */
#define SIM_ALL UINT32_MAX

/* What a job is at one of its boxes. */
struct sim_part {
	unsigned window; /* frames per endpoint, as of the last WELCOME */
	uint64_t run;    /* its number, as of the last WELCOME; 0: none; since then: */
	uint64_t begun;
	/* the session that declared the table so; 0: none */
	uint64_t restorer[SIM_TABLES][SIM_WORKERS];
	uint64_t token[SIM_WORKERS], arrived[SIM_WORKERS]; /* 0: none; latest frame */
	struct {
		struct pbox_auth_job *job; /* NULL: no tags */
		struct pbox_auth_keys keys;
	} auth[SIM_WORKERS];
};

#define SIM_GIVEN 256

struct sim_job {
	struct sim_part part[SIM_BOXES]; /* by box */
	/* what the first of several boxes has given, in a ring (fleet.c) */
	struct {
		uint64_t nonce, run;
		unsigned worker;
	} given[SIM_GIVEN];
	unsigned n_given, decider; /* decider: of its boxes the one that decides */
	bool shared;               /* each chunk is where it must be */
	uint64_t run_before;       /* of the straggler */
	uint64_t mapped_run;       /* of which the first box has given a map */
	uint64_t woken;            /* the straggler was; 0: not yet */
	unsigned life, done;       /* done: workers that have finished this life */
	bool over;
	unsigned down;             /* workers that were killed and have no session yet */
	unsigned gone;             /* of a job by plan: that are not to come back */
	struct sim_owners *owners; /* law_plan.c */
	struct sim_held *held[SIM_TABLES];
	unsigned finished; /* workers that have done all rounds */
	bool lost;         /* a restart of the box has lost a fragment */
	struct sim_worker *worker[SIM_WORKERS + 1];
	/* the map, as the first worker got it */
	struct sim_fragment *fragment;
	struct {
		struct sim_piece *piece; /* in no order */
		unsigned n;
	} tensor[SIM_TABLES][SIM_TENSORS];
	uint32_t n_fragments;
	uint32_t chunks[SIM_TABLES];        /* 0xFFFFFFFF: not known */
	uint32_t *first_number[SIM_TABLES]; /* by chunk: number of its first fragment */
	uint32_t frag_elements[SIM_TABLES];
	uint64_t contributions; /* counted by the end */
};

struct sim {
	struct sim_scenario sc;
	const struct sim_code *code;
	struct sim_queue queue;
	uint64_t now, events, frames, moving;
	struct sim_box boxes[SIM_BOXES], *box; /* the latter: whose event it is */
	struct sim_job job[SIM_JOBS];
	bool failed, verbose, words;
	char why[512];
	const char *invariant;         /* the form of why */
	const struct sim_faults *only; /* these faults and no others; NULL: as they are drawn */
	struct sim_faults *made;       /* what was done, or NULL */
	uint32_t *alike;               /* counters for sim_fault_nth(), where one is needed */
};

/* The first failure is kept; the run ends. */
void sim_fail(struct sim *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void sim_trace(struct sim *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void sim_hash(struct sim *s, uint64_t x);
uint64_t sim_mix(uint64_t a, uint64_t b);
bool sim_chance(struct sim *s, double p);
uint64_t sim_below(struct sim *s, uint64_t n); /* n = 0 gives 0 */
/* Of the box whose event it is now; or of another one. */
void sim_at(struct sim *s, uint64_t at, enum sim_kind kind, unsigned job, unsigned worker, void *p);
void sim_at_box(struct sim *s, unsigned box, const struct sim_event *e);
void sim_forget_map(struct sim_job *j);
/* A restart of the box has lost something that nobody can give: all workers of the job end. */
void sim_job_lost(struct sim *s, unsigned job);
struct sim_fragment *sim_find(struct sim_job *j, uint32_t chunk, uint32_t frag);
/* Is the frame of the box and the map that the fragment is at? The epoch of a table in clocks is that of a restart, and none of its chunks moves. */
bool sim_frame_fits(
	const struct sim *s, unsigned job, const struct sim_fragment *f, const struct pbox_hdr *h);
/* A page of the map: the first worker's is kept, the others' must be the same. */
void sim_map_page(
	struct sim *s, unsigned job, const struct pbox_mapped *m, struct pbox_cursor *cur);
void sim_worker_finished(struct sim *s, struct sim_worker *w);
const struct sim_table_spec *sim_spec(
	const struct sim_scenario *sc, unsigned job, const struct sim_fragment *f);

struct sim_result {
	bool ok;
	uint64_t hash, events, virtual_ns, frames;
	uint64_t moving; /* frames until nothing moved any more */
	struct sim_box_result {
		uint64_t hash, shard[PBOX_SS_STATS], registrar[PBOX_RS_STATS];
	} box[SIM_BOXES];
	char why[512];
	const char *invariant; /* NULL: ok */
};

/* How to run a scenario; all zero: as its seed says, in silence. */
struct sim_how {
	bool verbose; /* everything */
	bool words;   /* one line a datagram, and what becomes of it */
	/* The boxes in this mask and their jobs alone, and no copies that go astray; 0: all. */
	unsigned alone;
	uint64_t salt, events; /* events: at most; 0: no limit */
	const struct sim_faults *only;
	struct sim_faults *made;
	struct sim_result *live; /* events and frames as they come, for one who outlives it */
};
void sim_run(struct sim_result *out, const struct sim_scenario *sc, const struct sim_how *how);

#endif /* SIM_H */
