/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef SNAPSHOT_H
#define SNAPSHOT_H

/* Snapshots: when, of what, and the thread that writes them. All but the writer: the control thread,
 * or telemetry with the control's lock. */

#include <pthread.h>

#include <pbox_registrar_snapshot.h>
#include <pbox_registrar_view.h>
#include <pbox_snapshot.h>

#include "pbox_control.h"

#define SNAPSHOT_ASKED   16  /* jobs that operators named and that are not done yet */
#define SNAPSHOT_RESULTS 256 /* tables whose last snapshot is remembered */

/* What became of a table's latest snapshot. */
struct snapshot_result {
	char job[PBOX_NAME_LEN];
	uint32_t table, round;
	uint64_t
		begun_ns; /* of the job that it was taken of: another run may be at the same round */
	uint64_t at_ns, bytes, copy_us, write_us; /* at: pbox_dp_now(); 0: there is none yet */
	uint32_t taken, failed;
	char error[PBOX_SNAPSHOT_PATH]; /* of the last one that failed after the last good one */
	uint64_t failed_ns;             /* when that was */
	int code;                       /* and its errno, where the disk said no; else 0 */
	uint64_t free_bytes;            /* of snapshot-dir then */
	bool bound;                     /* it is snapshot-space that said no */
	bool late; /* the last one failed: it was to be of a round that has passed */
};

/* A job that an operator wants to begin with its snapshot. */
struct snapshot_wish {
	char job[PBOX_NAME_LEN];
	bool exact; /* with that of just this round: */
	uint32_t of_round;
	struct snapshot_homes *homes; /* by its files of that round */
	bool begun;                   /* this job has taken it: */
	uint16_t id;
	bool loaded, broken;   /* a table has been read; one could not be */
	bool forgotten;        /* on disk it is no more, or will be */
	uint32_t table, round; /* the one that was read last, and what it began with */
};

/* How far snapshot_describe_more() is: tensors, then chunks of the table; and what of these is described. */
struct snapshot_described {
	uint32_t at, chunks, segments;
};

/* What an operator asked for. */
struct snapshot_asked {
	char job[PBOX_NAME_LEN];
	bool exact; /* of just this round */
	uint32_t round;
};

/* One file; from control to the writer and back. */
struct snapshot_order {
	struct pbox_snapshot_meta meta;      /* its arrays are gone when it comes back */
	struct snapshot_described described; /* of them */
	uint8_t *data;
	int ret;
	struct pbox_error err;
	struct pbox_snapshot_written written;
	uint64_t free_bytes; /* of the disk, where it failed */
	bool bound;          /* by snapshot-space */
	uint64_t us;
};

enum snapshot_state {
	SNAPSHOT_IDLE,
	SNAPSHOT_MOVING, /* chunks of the job move: the copy begins when they have */
	SNAPSHOT_COPYING,
	SNAPSHOT_DESCRIBING,
	SNAPSHOT_WRITING
};

/* Where the chunks of a table were whose snapshot of several boxes a job is to begin with, if they had moved. */
struct snapshot_homes {
	struct snapshot_homes *next;
	uint32_t table, n;
	uint16_t map;
	uint8_t box[]; /* n */
};

/* A table that may begin with a snapshot; from control to the loader and back. While it is there, the job stays,
 * and the memory of the table is the loader's alone. */
struct snapshot_load {
	struct snapshot_load *next;
	struct pbox_table_parts of;
	bool restoring; /* by its workers: they have the parameters, the file brings the state */
	bool wished;    /* an operator wants it, */
	bool exact;     /* of just that round */
	uint32_t of_round;
	_Atomic bool give_up;
	_Atomic uint64_t at, bytes; /* of the arrays: read, all; 0: not begun */
	/* 0, -ENOENT: nothing to begin with, -EEXIST: an earlier run's could not be set aside, -EIO, -ECANCELED */
	int ret;
	uint32_t round; /* with 0 */
	struct pbox_error err;
};

struct snapshots {
	const struct pbox_control_snapshot *conf; /* dir NULL: there are none */
	enum snapshot_state state;
	struct pbox_staging staging;
	uint64_t since, waits_since, due_at;
	uint32_t waits_at; /* the round that the table had then */

	uint64_t
		clock_behind_ns; /* the newest file is of a time that has not come yet; 0: it is not */

	/* the clean stop */
	uint64_t final_by; /* 0: not yet; else until then */
	bool final_due;
	_Atomic bool give_up; /* the writer ends as soon as it can */

	/* the tables in turn: all of one job, or of all */
	bool walking, forced;
	struct snapshot_asked only; /* its job "": all */
	unsigned job_i;
	uint32_t next_table;

	/* the one at hand */
	char job[PBOX_NAME_LEN];
	uint64_t begun_ns; /* when that job did */
	uint32_t table, ahead;
	uint64_t copy_us;

	struct snapshot_asked asked[SNAPSHOT_ASKED];
	unsigned n_asked;
	struct snapshot_wish wish[SNAPSHOT_ASKED];
	unsigned n_wishes;
	struct snapshot_result result[SNAPSHOT_RESULTS];
	unsigned n_results;

	/* the writer */
	pthread_t thread;
	bool started;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	struct snapshot_order order;
	bool ordered, written, quit; /* under lock */
	bool sweep;                  /* as well: what is there shall keep to the bounds */
	uint64_t sweep_at, began_at; /* the next one; when the box began to serve */
	/* under lock as well: the newest one of a table that was removed last, and how many there were */
	struct {
		char job[PBOX_NAME_LEN];
		uint32_t table, round, tables;
		uint64_t at_ns;
	} pruned;

	/* the loader */
	pthread_t loader;
	bool loader_started;
	pthread_cond_t wake_loader;
	struct snapshot_load *loads, *loading, *loaded; /* under lock: waiting, at hand, done */
	char forget[SNAPSHOT_ASKED]
		   [PBOX_NAME_LEN]; /* wishes to be taken off the disk, under lock */
	unsigned n_forget;
	pthread_mutex_t wish_lock; /* of their files; taken before the control's */
};

struct pbox_control;

/* snapshot.c */
/* The first number of a run is above those of all boxes before it. */
void snapshot_runs(struct pbox_control_conf *conf);
int snapshot_create(struct pbox_control *c, struct pbox_error *err);
int snapshot_start(struct pbox_control *c, struct pbox_error *err);
/* Waits for the file that is being written. */
void snapshot_stop(struct pbox_control *c);
void snapshot_destroy(struct pbox_control *c);
/* Called with each turn of the control thread. */
void snapshot_step(struct pbox_control *c);
/* The clean stop: what has moved since its last snapshot is written, as long as the time allows. True:
 * done, or the time is over. */
bool snapshot_final(struct pbox_control *c, uint64_t now);
/* snapshot_step() has more to do, which does not wait for a tick. */
bool snapshot_busy(const struct pbox_control *c);
/* An operator asks, of @p round alone if it is not NULL. 0 or -errno with err. */
int snapshot_ask(struct pbox_control *c, const char *job, const uint32_t *round, unsigned *tables,
	struct pbox_error *err);
/* From now on the next run of the job begins with its snapshot (round NULL: the newest), or (withdraw) it does not. Without the
 * control's lock: it waits for the disk. */
int snapshot_wish(struct pbox_control *c, const char *job, const uint32_t *round, bool withdraw,
	char *text, size_t cap);
/* snapshot_result.c */
/* The job of that name, unless it is ending. */
bool snapshot_job(struct pbox_control *c, const char *name, struct pbox_job_view *out);
struct snapshot_result *snapshot_result(struct snapshots *s, const char *job, uint32_t table);
/* Has a table moved since it was last written, or since it began? All shards know it. */
bool snapshot_moved(const struct snapshots *s, const struct pbox_job_view *j, uint32_t table,
	const struct pbox_table_view *t);
/* snapshot_meta.c: since 1970, by the clock that people set. */
uint64_t snapshot_real_ns(void);
/* What an entry of a schedule says. */
struct pbox_hyper snapshot_hyper(const struct pbox_snapshot_entry *e);
/* What a finished copy is of; with arrays to be freed. Then the rest, while the job is there: in slices, from *at
 * = 0 on, until true; */
int snapshot_describe(struct pbox_snapshot_meta *m, const struct pbox_table_parts *of,
	const struct pbox_staging *staging, uint32_t incarnation);
bool snapshot_describe_more(struct pbox_snapshot_meta *m, const struct pbox_table_parts *of,
	struct snapshot_described *d);
/* and what the copy itself knows, anywhere. */
void snapshot_describe_copy(struct pbox_snapshot_meta *m, const struct pbox_staging *staging);
/* Which difference keeps the snapshot from being the table's? NULL: none. */
const char *snapshot_difference(const struct pbox_snapshot_meta *m,
	const struct pbox_table_parts *of, char *text, size_t cap);
/* snapshot_space.c: on the writer. 0 when so many bytes more keep to the bounds. */
int snapshot_room(void *ctx, uint64_t bytes, struct pbox_error *err);
void snapshot_sweep(struct pbox_control *c);
/* Control, each turn. */
void snapshot_sweep_step(struct pbox_control *c);
/* snapshot_writer.c: its argument is the control */
void *snapshot_writer(void *arg);
void snapshot_order(struct snapshots *s);
bool snapshot_written(struct snapshots *s);
/* snapshot_restore.c: on the loader; fills the table, or leaves it as it was. */
void snapshot_load(const char *dir, struct snapshot_load *l);
/* snapshot_loader.c: the thread, and ops of the registrar. */
int snapshot_restore(void *ctx, const struct pbox_job *job, struct pbox_table *t, bool restoring);
void snapshot_restore_cancel(void *ctx, const struct pbox_job *job, uint32_t table);
void snapshot_restore_text(
	void *ctx, const struct pbox_job *job, uint32_t table, char *text, size_t cap);
int snapshot_loader_start(struct pbox_control *c, struct pbox_error *err);
/* false: it has not come back in time: what it writes to must stay. */
bool snapshot_loader_stop(struct pbox_control *c);
/* What the loader has done since. */
void snapshot_loader_step(struct pbox_control *c);
unsigned snapshot_loads(struct snapshots *s);
/* snapshot_wish.c: those that the directory remembers */
void snapshot_wishes_read(struct snapshots *s);
struct snapshot_wish *snapshot_wish_of(struct snapshots *s, const char *job);
void snapshot_wishes_step(struct pbox_control *c);
void snapshot_wishes_drop(struct snapshots *s);
/* On the loader. */
void snapshot_wishes_forget(struct pbox_control *c);
/* snapshot_homes.c: what a table begins with (ops of the registrar). */
const uint8_t *snapshot_homes_of(
	void *ctx, const struct pbox_job *job, uint32_t table, uint32_t *n, uint16_t *map);
/* By the newest file of that round of each table of a job; of those that cannot be read there are none. Waits for the disk. */
struct snapshot_homes *snapshot_homes_read(const char *dir, const char *job, uint32_t round);
void snapshot_homes_free(struct snapshot_homes *h);
/* Which map a file was written by, in 16 bits; of map 1: 0. */
uint16_t snapshot_homes_mark(const struct pbox_snapshot_meta *m);
/* snapshot_health.c: the clock against the newest file there; how many files there are. */
void snapshot_clock(struct snapshots *s, uint64_t newest_ns, uint64_t now_ns);
void snapshot_look_at_clock(struct snapshots *s);
struct health_finding;
/* The i-th thing that is wrong with snapshots; false: there are no more. */
bool snapshot_finding(struct pbox_control *c, unsigned i, struct health_finding *f);
/* snapshot_telemetry.c */
void snapshot_telemetry(void);

#endif /* SNAPSHOT_H */
