/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PERF_H
#define PERF_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <pbox_client.h>
#include <pbox_optim.h>

#define MAX_LOCAL 256

#define LENGTH(array) (sizeof(array) / sizeof((array)[0]))

/** Exit codes; also in pbox-perf(1). */
enum exit_code {
	EXIT_GOOD = 0,
	EXIT_MISMATCH = 1, /* a verified element was wrong */
	EXIT_USAGE = 2,
	EXIT_JOIN = 3,  /* could not join or declare */
	EXIT_ROUND = 4, /* a round failed or did not end in time */
};

enum check { CHECK_ALL, CHECK_FIRST, CHECK_NONE };

struct options {
	const char *box, *job, *bind, *model, *transport, *transport_args, *run;
	char *secret;
	unsigned workers, local;
	unsigned slots;    /* of the job; 0: as many as workers, each worker is one */
	int worker;        /* -1: any */
	uint64_t elements; /* until they are checked ELEMENTS_UNKNOWN: not given */
	double size;       /* bytes, instead of elements; 0: not given */
	unsigned rounds, warmup;
	double seconds, interval;
	unsigned op, optimiser, push_format, pull_format;
	struct pbox_hyper hyper; /* below 0: not given */
	unsigned mtu, window, timeout_ms, join_timeout_ms, spin_us, lease_ms, threads;
	int gso, keep_copies;
	bool auth;
	uint64_t seed;
	enum check check;
	bool per_tensor, json, quiet;
};

#define ELEMENTS_UNKNOWN UINT64_MAX

/** Those that a round has, named or not. */
static inline unsigned
perf_slots(const struct options *o)
{
	return o->slots != 0 ? o->slots : o->workers;
}

/** Hyper-parameters of an optimiser that there are options for, bits 1 << id. */
static inline uint32_t
perf_uses(unsigned optimiser)
{
	return optimiser == PBOX_OPT_NONE
		       ? 0
		       : pbox_optim_scalar.of[optimiser]->uses | 1u << PBOX_HYPER_LR |
				 1u << PBOX_HYPER_WEIGHT_DECAY;
}

/** Parse; exits for --help, --version and errors. */
void options_parse(struct options *o, int argc, char **argv);

/* ---- data.c: what workers push, and what must come back --------------------------------- */

struct model {
	struct pbox_client_tensor *tensor;
	uint64_t *first; /* element of the whole */
	unsigned n;
	uint64_t elements;
};

int model_load(struct model *m, const struct options *o, char *err, size_t cap);
void model_free(struct model *m);

/** fp32 <-> what programs push and pull, round to nearest even; in formats of blocks that is fp32. */
float from_wire(const void *p, unsigned format, uint64_t i);
void to_wire(void *p, unsigned format, uint64_t i, float f);
unsigned wire_size(unsigned format);

/**
 * Are the data of each round new? Where they are checked, so that a result of another round shows. But a worker that
 * names its run may be started again alone, with fragments that are in different rounds.
 */
static inline bool
data_varies(const struct options *o)
{
	return o->check == CHECK_ALL && o->run == NULL;
}
/** What a worker pushes in @p round for a node, elements first .. first + n - 1, in the push format: the sum over its slots. */
void data_fill(const struct options *o, struct pbox_client_node node, unsigned round,
	uint64_t first, uint64_t n, void *out);
/** Its sample count. */
uint32_t data_weight(const struct options *o, struct pbox_client_node node, unsigned round);
/** Initial parameters. */
void data_init(const struct options *o, uint64_t first, uint64_t n, float *out);

/* ---- block.c: formats of blocks ---------------------------------------------------------------- */

/** Elements in a row, or those that are listed. */
struct place {
	uint64_t first;
	const uint64_t *scattered; /* NULL: first, first + 1, ... */
};

/** Where the fragments of the table begin. */
struct blocks {
	const struct model *m;
	uint32_t fragment; /* elements of one */
	uint64_t *packed;  /* elements of the tensors that are smaller, as they share fragments */
	uint64_t n_packed;
};

typedef void blocks_fn(void *arg, struct place at, uint64_t n);

/** -1 and @p err: it is not known, or no memory. */
int blocks_cut(struct blocks *b, const struct model *m, uint32_t fragment, char *err, size_t cap);
/** @p fn of fragments first, first + step, ... */
void blocks_each(const struct blocks *b, unsigned first, unsigned step, blocks_fn *fn, void *arg);
/** @p n elements from the begin of a unit on become what their codes decode to, with error feedback. */
void block_pass(unsigned format, float *v, float *residual, uint64_t n);

/** Replica of the box, for checking: the result of each round, computed here. */
struct reference {
	const struct options *o;
	float *result; /* sum or parameters, fp32 */
	float *s0, *s1;
	unsigned steps;
	/* with formats of blocks */
	struct blocks blocks;
	uint64_t elements;
	float *up, *down; /* residuals: of all workers, one after the other; of the box */
};
int reference_open(struct reference *r, const struct options *o, uint64_t elements);
void reference_close(struct reference *r);
/** Advance by one round what is @p part of @p parts. */
void reference_round(
	struct reference *r, unsigned round, unsigned step, unsigned part, unsigned parts);
/** Elements of @p got that differ in any bit; *bad is the first of them. *off becomes the largest
 * difference if that is larger. */
uint64_t reference_compare(const struct reference *r, const void *got, uint64_t first, uint64_t n,
	uint64_t *bad, double *off);

/* ---- worker.c ----------------------------------------------------------------------------- */

#define HIST_SUB     32 /* buckets per power of two: 3 % wide */
#define HIST_BUCKETS (40 * HIST_SUB)

struct perf;

struct worker {
	struct perf *p;
	pthread_t thread;
	unsigned index;  /* among the local ones */
	unsigned number; /* of the job */
	struct pbox_client *c;
	uint32_t table;
	uint32_t before; /* rounds of the run before it came: it was started again alone (--run) */
	unsigned nodes;  /* that it pushes in each round */
	struct pbox_client_node *node;
	uint8_t *in, *out; /* in: by node */
	const void **push; /* room for the pointers of an operation, by node */
	uint32_t *weight;  /* by node */
	float *param;      /* where INIT has not ended */
	struct pbox_client_io *io;
	pbox_client_handle *handle;
	/* workers of several processes agree on the last round of --time by a sum of their own */
	uint32_t vote_table;
	float vote, votes;
	struct pbox_client_error err;
	struct pbox_client_stats begin, stats;
	enum exit_code code;
	uint64_t checked, mismatches, first_bad;
	/* results that the reference does not know: without the contributions of all, or after such */
	uint64_t partial;
	unsigned unchecked, contributors; /* rounds; of the first of them, 0: not known */
	bool lost_residuals;              /* the box may have lost them */
	unsigned first_bad_round;
	float first_got, first_want;
	double largest_off;
	uint32_t hist[HIST_BUCKETS]; /* of round times in ns */
	/* read by the reporter while running */
	atomic_uint_fast64_t rounds, busy_ns, last_ns;
	atomic_uint_fast64_t retransmitted, probes;
};

struct perf {
	struct options o;
	struct model m;
	struct reference ref;
	struct worker *w;
	pthread_barrier_t barrier;
	pthread_mutex_t lock;
	bool abort; /* lock; set before a barrier, looked at after it */
	bool stop;  /* lock; the leader has decided that the round is the last one */
	uint64_t end_ns;
	double cpu_begin,
		cpu_end; /* of the process, before the first and after the last counted round */
	atomic_bool interrupted;
	atomic_uint running;
};

void *worker_main(void *arg);
uint64_t now_ns(void);
/** Do workers of other processes take part in the decision to stop? */
static inline bool
uses_votes(const struct options *o)
{
	return o->seconds > 0 && o->local < o->workers;
}
/* ---- histogram.c ------------------------------------------------------------------------- */

void hist_add(uint32_t *hist, uint64_t ns);
/** Value below which @p share of the entries lie, in ns. */
double hist_percentile(const uint32_t *hist, double share);

/* ---- report.c ----------------------------------------------------------------------------- */

void report_start(const struct perf *p);
void report_interval(struct perf *p, double from, double to, uint64_t *seen);
void report_end(struct perf *p);

#endif /* PERF_H */
