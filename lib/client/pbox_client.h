/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_CLIENT_H
#define PBOX_CLIENT_H

/**
 * @file
 * The worker side of PBox: push gradients, get sums or parameters, over a kernel UDP socket or
 * another transport (pbox_client_transport.h).
 *
 * A client is one session: one worker of one job. It owns a progress thread, or several
 * (pbox_client_conf.threads), which do all sending, receiving, retransmission and keep-alive; the functions below hand them work and may be
 * called from any thread. Nothing here prints, exits or raises signals.
 *
 * Every blocking call has a deadline in milliseconds (0: that of the configuration). Each failure
 * returns a negative PBOX_C_* code and fills the caller's `struct pbox_client_error` (may be
 * NULL) with a cause that names what is missing and the next step, such as "round 12 of tensor
 * 'fc.weight': 3 of 4 workers have pushed; missing worker 2 (host gpu7, silent for 9.8 s)".
 *
 * Buffers are the caller's. The library sends from and receives into them directly; between
 * submit and completion the caller must neither change `in`, nor read `out`, nor free either.
 * `in` and `out` may be the same buffer.
 */

#include <stddef.h>
#include <stdint.h>

#include "pbox_client_types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PBOX_CLIENT_API __attribute__((visibility("default")))

struct pbox_client;
typedef uint64_t pbox_client_handle; /**< 0 is never valid */

PBOX_CLIENT_API const char *pbox_client_version(void);
PBOX_CLIENT_API const char *pbox_client_code_name(int code); /**< "SECRET" */

/** The protocol's name of a number in structures here: @p what is "format", "op", "optimiser", "hyper", "policy" or
 * "discipline". NULL: there is no such number. */
PBOX_CLIENT_API const char *pbox_client_name(const char *what, unsigned number);

/** The defaults, into as many bytes as the caller's structure has. */
PBOX_CLIENT_API void pbox_client_conf_init_sized(struct pbox_client_conf *conf, size_t size);
#define pbox_client_conf_init(conf) pbox_client_conf_init_sized((conf), sizeof(*(conf)))

/** Join. On success *out owns the session until pbox_client_close. */
PBOX_CLIENT_API int pbox_client_open(struct pbox_client **out, const struct pbox_client_conf *conf,
	struct pbox_client_error *err);

/** Memory for tensors that the client's transport can send from without copying (with kernel
 * sockets: any memory), aligned to 64 bytes, not cleared, and from 4 MiB on in hugepages if the kernel gives any, which takes a
 * tenth of a worker's CPU time away. NULL: there is not enough. Any thread.
 * The caller's until pbox_client_free(), which must come before pbox_client_close(); while operations are
 * in flight, those too whose wait has expired, it stays until they have ended. */
PBOX_CLIENT_API void *pbox_client_alloc(struct pbox_client *c, size_t bytes);
PBOX_CLIENT_API void pbox_client_free(struct pbox_client *c, void *memory);

/** Number given to this worker, and the job's number of workers. */
PBOX_CLIENT_API unsigned pbox_client_worker(const struct pbox_client *c);
PBOX_CLIENT_API unsigned pbox_client_workers(const struct pbox_client *c);
/** The job's number of slots; as many as workers, if conf.slots was 0. */
PBOX_CLIENT_API unsigned pbox_client_slots(const struct pbox_client *c);
/**
 * The nodes that this worker brings in a round: the fewest that its slots consist of, in their order. The worker computes
 * what each slot brings, and sums the slots of a node itself, in fp32, along the tree: the node of the slots first to
 * first + slots - 1 is the sum of its left half, of the largest power of 2 below `slots`, and of the rest (a single slot: what
 * it brings). An example, 8 slots, worker 1 of 3: slots 2 to 4, nodes {2, 2} = fp32(slot 2 + slot 3) and {4, 1}.
 * In a table with op 3 (weighted mean) each slot is a node of its own, whatever this says.
 * @param round  0: this client's next one. All rounds are alike today
 * @param nodes  room for @p cap of them; what exceeds it is left out
 * @return their number, at most 24; 1 in a job without slots of its own
 */
PBOX_CLIENT_API int pbox_client_nodes(
	struct pbox_client *c, uint32_t round, struct pbox_client_node *nodes, unsigned cap);

/**
 * Declare a table and wait until all workers have declared it and the map is here. While the job's run has
 * begun, and may be that of workers that are dead, it is asked again, until the deadline or for half of the
 * configuration's timeout_ms (PBOX_C_RUNNING): the others may wait for just this worker.
 * @param table  set to its number: 0, 1, ... in the order of calls, which must be the same on
 *               all workers
 */
PBOX_CLIENT_API int pbox_client_declare(struct pbox_client *c, const struct pbox_client_table *t,
	unsigned timeout_ms, uint32_t *table, struct pbox_client_error *err);

/** Round of this client's next push to a table, after those that it has submitted; 0: there is no such table. Pushes that
 * the box has refused or lost are pushed again, and rounds may end without this client (policy shrink): neither counts as it
 * was submitted. While a box that was started again asks what its workers have, it waits (timeout_ms at most); of a table of 0 elements
 * nothing is asked. */
PBOX_CLIENT_API uint32_t pbox_client_next_round(struct pbox_client *c, uint32_t table);

/** Hyper-parameters of a group (0xFFFF: all) from a round on; returns when the box has them (R7.3).
 * @param from_round  0: from this client's next round of the table on */
PBOX_CLIENT_API int pbox_client_set(struct pbox_client *c, uint32_t table, uint16_t group,
	uint32_t from_round, const struct pbox_client_hyper *h, unsigned n,
	struct pbox_client_error *err);

/** Pushes of this client to a table that was declared with `mixed` go in fp32 from a round on (@p plain 1), or in the push format again (0), in
 * which they begin. Each worker says it for itself, before it submits a push of that round, and never of a round before one that it has named; of
 * rounds whose pushes have not ended at most 15 changes are known. What codes have not said yet waits for the next ones.
 * @param from_round  0: from this client's next round of the table on, for which it may wait as pbox_client_next_round() does */
PBOX_CLIENT_API int pbox_client_plain(struct pbox_client *c, uint32_t table, uint32_t from_round,
	int plain, struct pbox_client_error *err);

/**
 * Submit an operation on some or all tensors of a table; returns at once.
 *
 * Each PUSHPULL or PUSH of a tensor is its next round. Small tensors may share a fragment, which
 * goes when all of them have been submitted for that round. All workers must submit their pushes
 * in the same order, over all tables; priorities change the order on the wire, not that of submission.
 *
 * By nodes (op->by_nodes) the result of a push does not depend on the number of workers. Push format fp32: in a narrower one each
 * node is rounded once, whatever it consists of. Otherwise a push in a job with slots brings `in` at the first of the worker's
 * nodes, and zeros at the others: right for sums, but its bits depend on the number of workers, and a mean divides by the number
 * of slots.
 *
 * In a table in clocks (pbox_client_table.discipline) each push is applied as soon as it comes. A PULL brings the latest parameters, and
 * all pushes of this client that were submitted before it: those that the box had not applied yet are added to what it sent, from
 * their `in`. Of pushes that are submitted later, while the PULL is under way, some may be in it. PUSH and PULL of one tensor do not
 * wait for each other; pushes do, and pulls do.
 *
 * A PULL with a bound (op->bounded) waits for the slowest worker: then no worker is ever more than `bound` pushes ahead of what it computes on
 * (stale synchronous parallel). It waits for a dead one too, until the job goes on without that (policy shrink), or it leaves. Pulls that wait
 * take at most half of the window.
 */
PBOX_CLIENT_API int pbox_client_submit(struct pbox_client *c, const struct pbox_client_op *op,
	pbox_client_handle *handle, struct pbox_client_error *err);

/**
 * Work by plan (policy reassign): report the last round, and learn which slots are this worker's. No push of this client may be unfinished,
 * unless work->keep is set: then it is only a report.
 * To be called once after the declaration, then where pbox_client_work_due() says so, and every 50 ms or more seldom.
 * After it pbox_client_nodes() is what this worker brings in work->round: it may be nothing.
 * The first call is PBOX_CLIENT_LOOK (work->newcomer) where the job may have begun: a worker that has no slots then, or finds it after round 1, says
 * PBOX_CLIENT_BEGIN.
 */
PBOX_CLIENT_API int pbox_client_work(struct pbox_client *c, uint32_t table,
	struct pbox_client_work *work, unsigned timeout_ms, struct pbox_client_error *err);
/** 1: other workers own other slots than when this client asked last: call pbox_client_work() before the next round. */
PBOX_CLIENT_API int pbox_client_work_due(struct pbox_client *c);
/**
 * The norm of a round of a table with two phases (pbox_client_table.hold): waits until all workers have pushed it.
 *
 * @param round     of the last push (pbox_client_next_round() - 1)
 * @param max_norm  hyper-parameter 13 of the round, the same in all groups: the unit of what the box adds up
 * @param out       its size set; the same at all workers, bit for bit, where known is 1
 * @return 0; PBOX_C_LOST: the box was restarted, and this client pushes the round again (pbox_client_op.again)
 */
PBOX_CLIENT_API int pbox_client_norm(struct pbox_client *c, uint32_t table, uint32_t round,
	double max_norm, struct pbox_client_norm *out, unsigned timeout_ms,
	struct pbox_client_error *err);
/**
 * Slots that are stolen within a round (policy reassign): this client begins a slot of the round now. From the first call for a round on the box may
 * give slots that are not begun to other workers; pbox_client_nodes() is without them then.
 * @return 1; 0: this slot is not this worker's (any more), do not compute it; PBOX_C_INVALID
 */
PBOX_CLIENT_API int pbox_client_slot_begin(
	struct pbox_client *c, uint32_t table, uint32_t round, unsigned slot);
/**
 * All slots that this client has in the round are computed, and it has not pushed them: are there some of another worker that would end later?
 * @param again_ms  not 0 with a result of 0: the box is asking the others, call again after that time
 * @return > 0: there are, and pbox_client_nodes() is with them, so many, for this round alone: call pbox_client_work() before the next one; 0:
 *         none; PBOX_C_...
 */
PBOX_CLIENT_API int pbox_client_task(struct pbox_client *c, uint32_t table, uint32_t round,
	uint32_t *again_ms, unsigned timeout_ms, struct pbox_client_error *err);
/** The factor that the box takes for this one: rounded to bf16, to nearest, ties to even. */
PBOX_CLIENT_API float pbox_client_factor(float factor);
/** How far a tensor of a table in clocks has come, as this client knows from the answers so far.
 * @param tensor  its index in the table, or PBOX_CLIENT_ALL_TENSORS */
PBOX_CLIENT_API int pbox_client_versions(struct pbox_client *c, uint32_t table, uint32_t tensor,
	struct pbox_client_versions *versions, struct pbox_client_error *err);

/** Wait for a handle and release it. @p timeout_ms 0: those of the configuration (timeout_ms, patience_ms). Ends early
 * (left_ms) when the worker that is missing has left or was refused: the text has the box's words. After DEADLINE the handle is still valid: wait again, or
 * close. Any number of handles may be in flight, completed in any order. */
PBOX_CLIENT_API int pbox_client_wait(struct pbox_client *c, pbox_client_handle handle,
	unsigned timeout_ms, struct pbox_client_error *err);
/** A wait in slices; zeroed before the first one. */
struct pbox_client_waiting {
	unsigned timeout_ms; /**< as of pbox_client_wait */
	uint64_t state[8];
};
/** As pbox_client_wait, but PBOX_C_PENDING after @p slice_ms: call it again, with the same @p waiting.
 * @p handle 0: has waiting for the oldest operation been in vain? At once PENDING, or DEADLINE with the reason. */
PBOX_CLIENT_API int pbox_client_wait_on(struct pbox_client *c, pbox_client_handle handle,
	struct pbox_client_waiting *waiting, unsigned slice_ms, struct pbox_client_error *err);
/** PBOX_C_PENDING, or as wait, and then the handle is released. */
PBOX_CLIENT_API int pbox_client_test(
	struct pbox_client *c, pbox_client_handle handle, struct pbox_client_error *err);
/** Call @p done from the (first) progress thread when the operation ends (at once, from this thread, if
 * it has). It may submit, but must not wait or close. The handle is released when it returns. For bindings that complete futures. */
PBOX_CLIENT_API int pbox_client_notify(struct pbox_client *c, pbox_client_handle handle,
	void (*done)(void *ctx, int code, const char *text), void *ctx);

/** submit and wait in one. After DEADLINE the operation goes on, and uses its memory, until the box has
 * answered it, or pbox_client_close(). */
PBOX_CLIENT_API int pbox_client_run(struct pbox_client *c, uint32_t table,
	enum pbox_client_kind kind, const struct pbox_client_io *io, unsigned n, uint32_t weight,
	unsigned timeout_ms, struct pbox_client_error *err);

/** The job as the box sees it: members, silent ones, tables; text for a person. */
PBOX_CLIENT_API int pbox_client_status(
	struct pbox_client *c, char *text, size_t cap, struct pbox_client_error *err);
/** What this client waits for right now, in words; "nothing" when idle. And what pbox_client_not_finite() says. */
PBOX_CLIENT_API int pbox_client_why(
	struct pbox_client *c, char *text, size_t cap, struct pbox_client_error *err);
/** Is the worker that the oldest operation waits for silent, though the box has it still? @p text names it, its host, how long
 * the box has not heard it, and the next step. Asks the box; any thread.
 * @return 1; 0: nobody is missing, or the box hears it; PBOX_C_... */
PBOX_CLIENT_API int pbox_client_silent(
	struct pbox_client *c, char *text, size_t cap, struct pbox_client_error *err);

/** A result has a NaN or an infinity: whose contribution was it? @p text names the worker, its host, tensor, element and round, or
 * says that what all workers sent was finite and its sum is not, if a box of the job has found something like it within the last minute. Of several
 * that follow each other it names the first: what follows may come of parameters that are not finite. Asks all boxes; any thread but one in pbox_client_notify.
 * @return 1; 0: it has not; PBOX_C_... */
PBOX_CLIENT_API int pbox_client_not_finite(
	struct pbox_client *c, char *text, size_t cap, struct pbox_client_error *err);

PBOX_CLIENT_API void pbox_client_stats(
	const struct pbox_client *c, struct pbox_client_stats *stats);

/** Leave the job (the box gets up to 1 s to answer), stop the thread, fail what is in flight with
 * PBOX_C_CLOSED, free everything. NULL is allowed. */
PBOX_CLIENT_API void pbox_client_close(struct pbox_client *c);

#ifdef __cplusplus
}
#endif

#endif /* PBOX_CLIENT_H */
