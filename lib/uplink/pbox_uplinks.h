/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_UPLINKS_H
#define PBOX_UPLINKS_H

/**
 * @file
 * The uplinks of a rack's box, one for each run of its jobs: between its registrar, its shards, and the wire.
 *
 * The thread of the registrar calls all functions. The names of the first ones are those of struct pbox_registrar_ops.
 */

#include <pbox_registrar.h>

#include "pbox_uplink.h"

#define PBOX_UPLINKS 16 /**< at the same time */

struct pbox_uplinks;

struct pbox_uplinks_ops {
	/** Datagrams of link @p link leave; as pbox_worker_ops.send. */
	void (*send)(void *ctx, unsigned link, const struct pbox_client_tx *d, unsigned n);
	uint64_t (*random)(void *ctx);
	/** To its shard: pbox_shard_down(). False: there is no room now, it comes again. */
	bool (*down)(void *ctx, const struct pbox_up *up);
	/** pbox_registrar_loaded(); pbox_registrar_uplink_failed(). */
	void (*loaded)(void *ctx, const struct pbox_job *job, uint32_t table,
		const struct pbox_error *err);
	void (*failed)(void *ctx, const struct pbox_job *job, const char *why);
};

struct pbox_uplinks_conf {
	struct pbox_registrar_rack rack;
	struct sockaddr_in upper;
	unsigned mtu,
		window; /**< of its ports; full datagrams that may arrive at once without a loss */
	const char *host; /**< lives as long */
	const struct pbox_uplinks_ops *ops;
	void *ctx;
};

struct pbox_uplinks *pbox_uplinks_create(const struct pbox_uplinks_conf *conf);
void pbox_uplinks_destroy(struct pbox_uplinks *s);

int pbox_uplinks_uplink(struct pbox_uplinks *s, const struct pbox_registrar_uplink *run,
	uint64_t now, unsigned *window, struct pbox_error *err);
void pbox_uplinks_begin(struct pbox_uplinks *s, const struct pbox_job *job, const uint8_t *run);
/** @p leaves  the training is over; else the box stops, and may come again */
void pbox_uplinks_end(
	struct pbox_uplinks *s, const struct pbox_job *job, bool leaves, uint64_t now);
/** -EINPROGRESS. */
int pbox_uplinks_restore(struct pbox_uplinks *s, const struct pbox_job *job,
	const struct pbox_table *t, bool restoring);
/** Its shards have restored the table. */
void pbox_uplinks_restored(
	struct pbox_uplinks *s, const struct pbox_job *job, const struct pbox_table *t);
void pbox_uplinks_restore_cancel(
	struct pbox_uplinks *s, const struct pbox_job *job, uint32_t table);
void pbox_uplinks_restore_text(const struct pbox_uplinks *s, const struct pbox_job *job,
	uint32_t table, char *text, size_t cap);

/** A shard has a sum (pbox_shard_ops.up). */
void pbox_uplinks_up(struct pbox_uplinks *s, const struct pbox_up *up);
void pbox_uplinks_rx(struct pbox_uplinks *s, unsigned link, const struct pbox_client_rx *d,
	unsigned n, uint64_t now);
/** Go on. @return when to call again at the latest; UINT64_MAX: nothing goes on */
uint64_t pbox_uplinks_step(struct pbox_uplinks *s, uint64_t now);
/** What the rack waits for in a job, for the upper box: pbox_uplink_says(). */
void pbox_uplinks_says(struct pbox_uplinks *s, const struct pbox_job *job, const char *text);
/** False: the job has no uplink. */
bool pbox_uplinks_view(
	struct pbox_uplinks *s, const struct pbox_job *job, struct pbox_uplink_view *out);
/** Sums that are up, of all. */
unsigned pbox_uplinks_pending(const struct pbox_uplinks *s);

#endif /* PBOX_UPLINKS_H */
