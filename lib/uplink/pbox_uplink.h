/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_UPLINK_H
#define PBOX_UPLINK_H

/**
 * @file
 * The uplink of one job of a rack (section 18 of the protocol): the rack's box as a worker of the upper box. No threads, sockets
 * and clocks.
 *
 * Its tables have one tensor for each fragment of the rack's tables, filled up with zeros to a whole fragment, so that fragments are pushed
 * and answered one by one, in whatever order they become complete. How the upper box cuts its chunks does not matter.
 *
 * One thread at a time, and it owns what it gives by pointer. Times are ns of any monotonic clock that is never 0.
 */

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#include <pbox_base.h>
#include <pbox_shard.h>
#include <pbox_worker.h>

struct pbox_table;
struct pbox_uplink;

#define PBOX_UPLINK_RUN 16

struct pbox_uplink_conf {
	const char *job, *secret;     /**< of the job, at both boxes; copied */
	const char *host;             /**< of this box, for messages; copied */
	uint8_t run[PBOX_UPLINK_RUN]; /**< identity of the workers' run; never zeros */
	unsigned rack, racks,
		slots; /**< this one, from 0; slots of the whole job: a power of two for each rack */
	struct sockaddr_in upper; /**< control endpoint of the upper box */
	uint32_t lease_ms;
};

/** @param port  outlives the uplink. NULL: out of memory */
struct pbox_uplink *pbox_uplink_create(
	const struct pbox_uplink_conf *conf, struct pbox_worker_ops *port, uint64_t now);
void pbox_uplink_destroy(struct pbox_uplink *u);

/** A worker has asked to join the run. Until one is a member of it the uplink joins when that is called, and never by a clock: else the run
 * of a start whose processes are dead would end the one after it. */
void pbox_uplink_ask(struct pbox_uplink *u, uint64_t now);
/** One is: it joins again by itself. */
void pbox_uplink_begin(struct pbox_uplink *u);

enum pbox_uplink_state {
	PBOX_UPLINK_JOINING,
	PBOX_UPLINK_MEMBER, /**< of the run, at the upper box */
	PBOX_UPLINK_FAILED, /**< for good: pbox_uplink_error() */
};
enum pbox_uplink_state pbox_uplink_state(const struct pbox_uplink *u);
const char *pbox_uplink_error(const struct pbox_uplink *u);
/** It has failed, and another one may not: datagrams were lost while it looked for the way to the upper box, and it was no member yet. */
bool pbox_uplink_may_pass(const struct pbox_uplink *u);
/** Frames in flight that the upper box has granted at each of its endpoints; 0: not yet. */
unsigned pbox_uplink_window(const struct pbox_uplink *u);

void pbox_uplink_rx(
	struct pbox_uplink *u, const struct pbox_client_rx *d, unsigned n, uint64_t now);
/** @return when to call again at the latest, ns; 0: at once */
uint64_t pbox_uplink_tick(struct pbox_uplink *u, uint64_t now);

/**
 * A table of the rack has been laid out: declare it at the upper box, after all with a lower number.
 * @param t  read until pbox_uplink_table_state() is not 0 any more
 * @param restored  the rack's box was started again, and its workers bring what they hold
 * @return 0, -ENOMEM, -EOPNOTSUPP with @p err
 */
int pbox_uplink_table(
	struct pbox_uplink *u, const struct pbox_table *t, bool restored, struct pbox_error *err);
/** 1: it is mapped; 0: not yet; below: it cannot be, with @p err. */
int pbox_uplink_table_state(const struct pbox_uplink *u, uint32_t table, struct pbox_error *err);

/** All fragments of a table that was restored have a version. The uplink reports them to the upper box (section 10), and sends no sum of the
 * table before that is done. They stay as they are until the first sum of each has come back. @p t  is read now */
void pbox_uplink_restored(struct pbox_uplink *u, const struct pbox_table *t);

/** A sum of a table that is mapped goes up. Its value is the uplink's until it comes back. */
void pbox_uplink_up(struct pbox_uplink *u, const struct pbox_up *up);
/** The next one that was answered: its value is the version. False: there is none. */
bool pbox_uplink_down(struct pbox_uplink *u, struct pbox_up *out);
/** How many are up. */
unsigned pbox_uplink_pending(const struct pbox_uplink *u);

/** What the rack waits for itself; "": nobody of its own. The upper box hears it (R18.8). */
void pbox_uplink_says(struct pbox_uplink *u, const char *text);

/** What is to be seen of an uplink. */
struct pbox_uplink_view {
	enum pbox_uplink_state state;
	unsigned window, pending;
	uint64_t heard_ns;  /**< when the upper box answered last; 0: never */
	int missing;        /**< the rack that it waits for; -1: none that is known */
	uint8_t rack_state; /**< of that one: enum pbox_member_state */
	uint32_t rack_silent_ms;
	char rack_host[24];
	char rack_waits[256]; /**< and whom that one waits for; "": it has not said so lately */
};
void pbox_uplink_view(const struct pbox_uplink *u, struct pbox_uplink_view *out);

/** It ends: the values that are up are the caller's again, and nothing comes down any more. @p leaves  it leaves the run; else the upper box
 * waits for it to come again, as after a crash */
void pbox_uplink_leave(struct pbox_uplink *u, bool leaves, uint64_t now);
/** Has the upper box said that it knows, or has it been silent for a second? Then destroy it. */
bool pbox_uplink_left(const struct pbox_uplink *u, uint64_t now);

#endif /* PBOX_UPLINK_H */
