/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef REPLY_H
#define REPLY_H

/*
 * What the handlers of telemetry have in common: how an answer is filled. An answer has 16 KiB, a string of it 127 bytes, a dictionary 256
 * entries: long lists come in pages. doc/telemetry.md has their shapes.
 *
 * Handlers run on DPDK's telemetry thread, one at a time, with the control's lock. What data cores write is
 * read with relaxed loads, and nothing is asked of them.
 */

#include <rte_common.h>
#include <rte_telemetry.h>

#include "utf7.h"
#include "tables.h"
#include "params.h"

/* Once, before the first answer. False: no memory. */
bool reply_begin(void);
/* A new dictionary. Without memory for it, it is left out of the answer. */
struct rte_tel_data *reply_dict(void);
void reply_drop(struct rte_tel_data *d);
/* Put it into another one; it is gone then. */
void reply_add(struct rte_tel_data *all, const char *name, struct rte_tel_data *d);
/* The same under "PREFIX_I". */
void reply_add_numbered(
	struct rte_tel_data *all, const char *prefix, unsigned i, struct rte_tel_data *d);
/*
 * A string, of any UTF-8 text: it leaves as utf7.h says. What does not fit one of 127 bytes goes on under
 * NAME_more, NAME_more_more; REPLY_PARTS of them at most. No other function gives texts to telemetry.
 */
#define REPLY_TEXT  256
#define REPLY_PARTS 4
void reply_text(struct rte_tel_data *d, const char *name, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* All values of a table, under their names. */
void reply_values(struct rte_tel_data *d, enum pbox_control_table which, const uint64_t *v);
/* Of a command that cannot be done; d has nothing else. */
void reply_error(struct rte_tel_data *d, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* What reply_error() said last on this thread, since reply_begin_one(); "": nothing. */
void reply_begin_one(void);
const char *reply_refused(void);

/* The job of that name; else of that number, also "#3"; "name:3" is a name for sure. NULL: d has the error. */
const struct pbox_job *reply_job(struct pbox_control *c, const char *name, struct rte_tel_data *d);
/* For a command with parameters JOB[,FIRST]: the job, its view, and its worker FIRST (as it was, if not given). NULL: d has the error. */
const struct pbox_job *reply_job_workers(struct pbox_control *c, const char *command, int n,
	char word[][PARAM_SIZE], struct pbox_job_view *j, unsigned *first, struct rte_tel_data *d);
/* "10.0.0.1:7269" */
#define REPLY_ADDRESS 24
const char *reply_address(uint32_t ip, uint16_t udp, char buf[REPLY_ADDRESS]);

/* A handler: d is an empty dictionary; word[0 .. n-1] are the parameters. */
struct telemetry_command {
	const char *name;
	unsigned words; /* that it takes at most */
	void (*fn)(struct pbox_control *c, int n, char word[][PARAM_SIZE], struct rte_tel_data *d);
	const char *help;
	int changes; /* with so many parameters or more it changes something, and commands.c keeps it; 0: never */
};
/* telemetry_box.c, telemetry_jobs.c, telemetry_work.c, telemetry_times.c, telemetry_racks.c, telemetry_set.c, commands.c: {NULL} is the last one */
extern const struct telemetry_command telemetry_box_commands[], telemetry_job_commands[],
	telemetry_work_commands[], telemetry_times_commands[], telemetry_set_commands[],
	telemetry_rack_commands[], commands_telemetry[];

#endif /* REPLY_H */
