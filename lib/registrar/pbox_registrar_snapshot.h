/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_REGISTRAR_SNAPSHOT_H
#define PBOX_REGISTRAR_SNAPSHOT_H

/**
 * @file
 * Copies of tables, and tables that begin with a copy.
 *
 * Threads as in pbox_registrar.h, but for the memory of a table that is loading: that is the loader's.
 */

#include <pbox_registrar.h>
#include <pbox_staging.h>

/** A table for those who write it to files and read it from them: what it was declared and laid out as, and its
 * memory. While its job is there nothing of it goes; what changes is chunks' memory and schedules. */
struct pbox_table_parts {
	const struct pbox_job *job; /**< whose it is */
	const char *name;           /**< of the job */
	uint64_t run;               /**< number of its run, */
	bool run_reported; /**< which a worker has sent: it had begun before this box did */
	uint32_t workers;
	uint16_t map_epoch; /**< newest map of the job (R16.9) */
	struct pbox_table *t;
	const struct pbox_tensor *tensor;
	uint32_t n_tensors;
};
/** @p table is built. */
struct pbox_table_parts pbox_registrar_parts(const struct pbox_job *job, uint32_t table);

/**
 * Begin to copy table @p table of @p job into @p memory (64-byte aligned): as it is after the round
 * that is its highest finished one plus @p ahead. One copy at a time.
 *
 * @return 0; -ENOENT, -EAGAIN (no round is finished), -ENOMEM (@p size is too small) with @p err
 */
int pbox_registrar_staging(struct pbox_registrar *r, const struct pbox_job *job, uint32_t table,
	uint32_t ahead, struct pbox_staging *staging, void *memory, size_t size, uint64_t now_ns,
	struct pbox_error *err);
/**
 * The same at just @p round, which may be to come, and no other. Of a table at several boxes there is no other copy: each box
 * has a part of it, and the parts must be of one round (R16.16).
 *
 * @return as above; -ESTALE with @p err: the round has passed; -EBUSY with @p err: chunks move, ask again
 */
int pbox_registrar_staging_at(struct pbox_registrar *r, const struct pbox_job *job, uint32_t table,
	uint32_t round, struct pbox_staging *staging, void *memory, size_t size, uint64_t now_ns,
	struct pbox_error *err);
/** Go on; call it often. -EINPROGRESS; or how it ended, and memory is the caller's again: 0, -ESTALE
 * (a fragment was beyond the round: try a later one), -EAGAIN (fragments are rounds apart:
 * pbox_registrar_staging_why()), -EBUSY (chunks have moved: begin again), -ECANCELED (the job ended), -ETIMEDOUT
 * (cancelled). */
int pbox_registrar_staging_step(struct pbox_registrar *r, uint64_t now_ns);
/** All is copied but what has not come to the round yet: workers are waited for, and nothing else. */
bool pbox_registrar_staging_waits(const struct pbox_registrar *r);
/** In words, after -EAGAIN, and after -ESTALE of pbox_registrar_staging_at(); valid until the next copy. */
const char *pbox_registrar_staging_why(const struct pbox_registrar *r);
/** Give up: pbox_registrar_staging_step() reports when. */
void pbox_registrar_staging_cancel(struct pbox_registrar *r, uint64_t now_ns);

/** A table that ops.restore said -EINPROGRESS of is nobody else's again: filled, or as it was. @p err: NULL, or
 * why its workers cannot have it. */
void pbox_registrar_loaded(struct pbox_registrar *r, const struct pbox_job *job, uint32_t table,
	const struct pbox_error *err, uint64_t now_ns);

#endif /* PBOX_REGISTRAR_SNAPSHOT_H */
