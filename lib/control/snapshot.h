/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef SNAPSHOT_H
#define SNAPSHOT_H

/* Snapshots: when, of what, and the thread that writes them. All but the writer: the control thread,
 * or telemetry with the control's lock. */

#include <pthread.h>
#include <stdatomic.h>

#include <pbox_registrar.h>
#include <pbox_snapshot.h>

#include "pbox_control.h"

#define SNAPSHOT_ASKED   16  /* jobs that operators named and that are not done yet */
#define SNAPSHOT_RESULTS 256 /* tables whose last snapshot is remembered */

/* What became of a table's latest snapshot. */
struct snapshot_result {
	char job[PBOX_NAME_LEN];
	uint32_t table, round;
	uint64_t at_ns, bytes, copy_us, write_us; /* at: pbox_dp_now(); 0: there is none yet */
	uint32_t taken, failed;
	char error[PBOX_SNAPSHOT_PATH]; /* of the last one that failed after the last good one */
};

/* A job that an operator wants to begin with its snapshot. */
struct snapshot_wish {
	char job[PBOX_NAME_LEN];
	bool begun; /* this job has taken it: */
	uint16_t id;
};

/* One file; from control to the writer and back. */
struct snapshot_order {
	struct pbox_snapshot_meta meta; /* without its arrays */
	uint8_t *bytes;                 /* all of it */
	size_t len;
	uint8_t *data;
	int ret;
	struct pbox_error err;
	struct pbox_snapshot_written written;
	uint64_t us;
};

enum snapshot_state { SNAPSHOT_IDLE, SNAPSHOT_COPYING, SNAPSHOT_WRITING };

struct snapshots {
	const struct pbox_control_snapshot *conf; /* dir NULL: there are none */
	enum snapshot_state state;
	struct pbox_stage stage;
	uint64_t since, due_at;

	/* the clean stop */
	uint64_t final_by; /* 0: not yet; else until then */
	bool final_due;
	_Atomic bool give_up; /* the writer ends as soon as it can */

	/* the tables in turn: all of one job, or of all */
	bool walking, forced;
	char only[PBOX_NAME_LEN]; /* "": all jobs */
	unsigned job_i;
	uint32_t next_table;

	/* the one at hand */
	uint16_t job_id;
	char job[PBOX_NAME_LEN];
	uint32_t table, ahead;
	uint64_t copy_us;

	char asked[SNAPSHOT_ASKED][PBOX_NAME_LEN];
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
};

struct pbox_control;

/* snapshot.c */
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
/* An operator asks. 0 or -errno with err. */
int snapshot_ask(struct pbox_control *c, const char *job, unsigned *tables, struct pbox_error *err);
int snapshot_wish(struct pbox_control *c, const char *job, char *text, size_t cap);
const struct pbox_job *snapshot_job(struct pbox_control *c, const char *job);
struct snapshot_result *snapshot_result(struct snapshots *s, const char *job, uint32_t table);
/* snapshot_meta.c: what a finished copy is of; with arrays to be freed. */
int snapshot_describe(struct pbox_snapshot_meta *m, const struct pbox_job *job, uint32_t table,
	const struct pbox_stage *stage, uint32_t incarnation);
/* Which difference keeps the snapshot from being the table's? NULL: none. */
const char *snapshot_difference(const struct pbox_snapshot_meta *m, const struct pbox_job *job,
	const struct pbox_table *t, char *text, size_t cap);
/* snapshot_writer.c */
void *snapshot_writer(void *arg);
void snapshot_order(struct snapshots *s);
bool snapshot_written(struct snapshots *s);
/* snapshot_restore.c: ops.restore of the registrar. */
int snapshot_restore(void *ctx, const struct pbox_job *job, struct pbox_table *t, bool restoring);
/* snapshot_telemetry.c */
void snapshot_telemetry(void);

#endif /* SNAPSHOT_H */
