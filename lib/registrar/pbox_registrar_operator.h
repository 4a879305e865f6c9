/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_REGISTRAR_OPERATOR_H
#define PBOX_REGISTRAR_OPERATOR_H

/**
 * @file
 * What an operator asks of the registrar.
 *
 * Threads as in pbox_registrar.h. Nothing that is given is kept, but for the sections of pbox_registrar_reload().
 */

#include <pbox_registrar.h>

/**
 * End the session of a worker for good: it gets an ERROR with @p why, also when it joins again. Its
 * process may be started again.
 *
 * @return 0; -ENOENT with @p err: it has no session
 */
int pbox_registrar_kick(struct pbox_registrar *r, uint16_t job, unsigned worker, const char *why,
	uint64_t now_ns, struct pbox_error *err);
/**
 * Other sections of jobs, and other defaults of lease and grace, from now on. A job that runs keeps what it began
 * with, but for what can change under it: quotas and snapshots at once, the lease of sessions to
 * come. One whose section is gone runs on, and does not begin again.
 */
void pbox_registrar_reload(struct pbox_registrar *r, const struct pbox_job_conf *job,
	unsigned n_jobs, uint32_t lease_ms, uint32_t grace_ms, uint64_t now_ns);
/** Begin no new jobs from now on (or again); workers of those that exist may still join. */
void pbox_registrar_drain(struct pbox_registrar *r, bool on);
bool pbox_registrar_draining(const struct pbox_registrar *r);

/** The section that a job of this name begins by: its own, or "*"; NULL: it may not begin. Until the next
 * pbox_registrar_reload(). */
const struct pbox_job_conf *pbox_registrar_section(
	const struct pbox_registrar *r, const char *name);
/**
 * The next tick asks a worker for its round trip: a PING, which it answers at once (R4.6), once a second
 * at most. What comes of it is in rtt_us of its view: the time until the registrar had the answer.
 */
void pbox_registrar_measure(struct pbox_registrar *r, uint16_t job, unsigned worker);

/**
 * Chunks first to last of a table go to another box of the job's (R16.11). At the job's deciding box alone (R16.14).
 *
 * @param box  which of the job's, from 0
 * @return how many move: 0 if all are there; or -ENOENT (no such job, table, chunk or box), -EINVAL (not here, or the job
 *         is none whose chunks move), -EAGAIN (not now) with @p err
 */
int pbox_registrar_move(struct pbox_registrar *r, uint16_t job, uint32_t table, uint32_t first,
	uint32_t last, unsigned box, uint64_t now_ns, struct pbox_error *err);
/**
 * All tables of a job are shared out again by weights of its boxes, by one map (pbox_spread). At the job's deciding box alone (R16.14).
 *
 * @param weight  of each of the @p n boxes, up to 2^20
 * @return how many chunks move: 0 if all are where they should be; or as pbox_registrar_move(), also -ENOMEM: nothing has changed then
 */
int pbox_registrar_weigh(struct pbox_registrar *r, uint16_t job, const uint32_t *weight, unsigned n,
	uint64_t now_ns, struct pbox_error *err);

/**
 * The job's chunks shall be at these boxes alone, with equal shares as far as few moves make them so (R16.11). At the job's deciding box
 * alone.
 *
 * @param set  bit by box
 * @return as pbox_registrar_move()
 */
int pbox_registrar_scale(struct pbox_registrar *r, uint16_t job, uint16_t set, uint64_t now_ns,
	struct pbox_error *err);

/**
 * The job goes on without a box that is dead: its chunks go to the others, and nobody waits for it any more (R16.12). It comes back by
 * pbox_registrar_scale(). At the job's deciding box (R16.14); if that is the dead one, at the next one of the list that is not out, which
 * decides from then on (R16.17).
 *
 * @param force  also if it lives: else a box with which a worker has ended a round a short while ago is -EBUSY. Of the box that decides: also where
 *   the next one of the list is another than this one, which is out then as well
 * @param stateless  how many tables lose what their optimiser had gathered of these chunks, or their full precision (R10.8)
 * @return how many chunks go: 0 if it has none, or is out already; or as pbox_registrar_move(), -EINVAL also for the box that decides at that box itself, and at others than the next one
 */
int pbox_registrar_failover(struct pbox_registrar *r, uint16_t job, unsigned box, bool force,
	uint64_t now_ns, unsigned *stateless, struct pbox_error *err);

/** How a box takes the place of the one that decides. */
struct pbox_registrar_take {
	uint16_t
		dead; /**< bit by box: those between the two that are dead as well, whatever the map says */
	bool force;    /**< as of pbox_registrar_failover() */
	bool only_try; /**< would it? Nothing changes: 0, or the error */
};

/** As pbox_registrar_failover() of the box that decides, at another one (R16.17); of another box it is -EINVAL. */
int pbox_registrar_take(struct pbox_registrar *r, uint16_t job, unsigned box,
	const struct pbox_registrar_take *how, uint64_t now_ns, unsigned *stateless,
	struct pbox_error *err);

#endif /* PBOX_REGISTRAR_OPERATOR_H */
