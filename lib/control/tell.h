/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef TELL_H
#define TELL_H

/*
 * What the handlers of telemetry share. An answer has 16 KiB, a string of it 127 bytes, a dictionary 256
 * entries: long lists come in pages. Their shapes stand in doc/telemetry.md.
 *
 * Handlers run on DPDK's telemetry thread, one at a time, with the control's lock. What data cores write is
 * read with relaxed loads, and nothing is asked of them.
 */

#include <rte_telemetry.h>

#include "ascii.h"
#include "tables.h"
#include "words.h"

/* Once, before the first answer. False: no memory. */
bool tell_begin(void);
/* A new dictionary. Without memory for it, it is left out of the answer. */
struct rte_tel_data *tell_dict(void);
void tell_drop(struct rte_tel_data *d);
/* Put it into another one; it is gone then. */
void tell_add(struct rte_tel_data *all, const char *name, struct rte_tel_data *d);
/* The same under "PREFIX_I". */
void tell_add_numbered(
	struct rte_tel_data *all, const char *prefix, unsigned i, struct rte_tel_data *d);
/*
 * A string, of any UTF-8 text: it leaves as ascii.h says. What does not fit one of 127 bytes goes on under
 * NAME_more, NAME_more_more; TELL_PARTS of them at most. No other function gives texts to telemetry.
 */
#define TELL_TEXT  256
#define TELL_PARTS 4
void tell_text(struct rte_tel_data *d, const char *name, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* All values of a table, under their names. */
void tell_values(struct rte_tel_data *d, enum pbox_control_table which, const uint64_t *v);
/* Of a command that cannot be done; d has nothing else. */
void tell_error(struct rte_tel_data *d, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The job of that name; else of that number, also "#3"; "name:3" is a name for sure. NULL: the error is told. */
const struct pbox_job *tell_job(struct pbox_control *c, const char *name, struct rte_tel_data *d);
/* "10.0.0.1:7269" */
#define TELL_ADDRESS 24
const char *tell_address(uint32_t ip, uint16_t udp, char buf[TELL_ADDRESS]);

/* A handler: d is an empty dictionary; word[0 .. n-1] are the parameters. */
struct tell_command {
	const char *name;
	unsigned words; /* that it takes at most */
	void (*fn)(struct pbox_control *c, int n, char word[][TELL_WORD], struct rte_tel_data *d);
	const char *help;
};
/* tell_box.c, tell_jobs.c, operate.c: {NULL} is the last one */
extern const struct tell_command tell_box_commands[], tell_job_commands[], operate_commands[];

#endif /* TELL_H */
