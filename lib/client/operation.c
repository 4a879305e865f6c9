/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "client_impl.h"

/* Operations that were submitted: wait for them, and notify. */

/* ---- waiting ------------------------------------------------------------------------------- */

static const char *
op_text(const struct op *op)
{
	return op->w.text[0] != 0 ? op->w.text : pbox_client_code_name(op->w.code);
}

/** Result of an operation that is done; lock held. Its last waiter frees it. */
static int
op_result(struct pbox_client *c, struct op *op, struct pbox_client_error *err)
{
	int code = op->w.code == 0 && op->w.more ? PBOX_C_MORE : op->w.code;

	handle_take(c, op);
	if (code != 0)
		pbox_client_fail(err, code, "%s", op_text(op));
	if (op->waiters == 0)
		free(op);
	return code;
}

/** What the operation (0: the oldest one) waits for, and what the box knows of the missing worker. */
static void
why_text(struct pbox_client *c, pbox_client_handle handle, double seconds, char *text, size_t cap)
{
	struct waiting_why w = {.handle = handle};
	uint64_t moved;

	waiting_why(c, &w);
	if (w.on.missing >= 0)
		waiting_member_text(c, (unsigned)w.on.missing, w.text, sizeof(w.text));
	text[0] = 0;
	moved = w.on.bytes - w.on.left;
	if (moved > 0 && w.on.left > 0)
		pbox_text_add(text, cap, "%.3g of %.3g MB are through", (double)moved / 1e6,
			(double)w.on.bytes / 1e6);
	if (moved > 0 && w.on.left > 0 && seconds > 0)
		pbox_text_add(text, cap, " (%.2g Mbit/s)", (double)moved * 8e-6 / seconds);
	if (moved > 0 && w.on.left > 0)
		pbox_text_add(text, cap, "; ");
	pbox_text_add(text, cap, "%s", w.text[0] != 0 ? w.text : "nothing");
}

/** Ask the box: is the wait in vain? */
static bool
ask_on(struct pbox_client *c, pbox_client_handle handle, struct waiting *w)
{
	struct waiting_why why = {.handle = handle};

	waiting_why(c, &why);
	waiting_progress(w, why.on.bytes, why.on.left, client_clock_ns());
	/* with policy reassign nobody waits for one that has left, but a restarted box, and that for a while only (R15.8a) */
	return waiting_ask(
		c, w, &why.on, c->conf.policy == PBOX_POLICY_REASSIGN ? UINT_MAX : c->conf.left_ms);
}

static int
wait_ends(struct pbox_client *c, pbox_client_handle handle, const struct waiting *w, bool left,
	struct pbox_client_error *err)
{
	char text[440] = "";
	double s = w->exact && !left ? (double)w->timeout / NS_PER_S : waiting_seconds(w);

	if (err != NULL)
		why_text(c, handle, waiting_seconds(w), text, sizeof(text));
	return pbox_client_fail(err, PBOX_C_DEADLINE,
		left ? "given up after %.1f s, as a worker has left or was refused: %.440s"
		     : "not complete after %.1f s: %.440s",
		s, text);
}

/** Wait until it is done, or the wait is in vain, or @p until (PENDING). Lock held. */
static int
operation_wait_for(
	struct pbox_client *c, struct op *op, struct waiting *w, uint64_t until, bool *left)
{
	*left = false;
	while (!op->done) {
		uint64_t now = client_clock_ns(), wake = w->next_ask;

		if (now >= w->deadline || *left)
			return PBOX_C_DEADLINE;
		if (now >= until)
			return PBOX_C_PENDING;
		if (now >= w->next_ask) {
			pthread_mutex_unlock(&c->lock);
			*left = ask_on(c, op->handle, w);
			pthread_mutex_lock(&c->lock);
			continue;
		}
		wake = wake < w->deadline ? wake : w->deadline;
		client_sleep(c, wake < until ? wake : until);
	}
	return 0;
}

static int
wait_slice(struct pbox_client *c, pbox_client_handle handle, struct waiting *w, uint64_t until,
	struct pbox_client_error *err)
{
	bool left;
	struct op *op;
	int rc;

	pthread_mutex_lock(&c->lock);
	op = handle_find(c, handle);
	if (op == NULL || op->notify != NULL) {
		pthread_mutex_unlock(&c->lock);
		return pbox_client_fail(err, PBOX_C_INVALID,
			op == NULL ? "the handle is unknown, or was released already"
				   : "the handle belongs to a notify call");
	}
	op->waiters++;
	c->users++;
	rc = operation_wait_for(c, op, w, until, &left);
	if (op->done)
		rc = 0;
	if (rc == PBOX_C_DEADLINE) {
		pthread_mutex_unlock(&c->lock);
		rc = wait_ends(c, op->handle, w, left, err);
		pthread_mutex_lock(&c->lock);
	}
	op->waiters--;
	if (rc == 0)
		rc = op_result(c, op, err);
	else if (op->waiters == 0 && op->done && handle_find(c, handle) != op)
		op_result(c, op, NULL); /* released by another waiter meanwhile */
	pthread_mutex_unlock(&c->lock);
	client_leave(c);
	return rc;
}

int
pbox_client_wait(struct pbox_client *c, pbox_client_handle handle, unsigned timeout_ms,
	struct pbox_client_error *err)
{
	struct waiting w;

	waiting_begin(c, &w, timeout_ms);
	return wait_slice(c, handle, &w, UINT64_MAX, err);
}

/** Is it worth to wait for the oldest operation? Does not wait. */
static int
oldest(struct pbox_client *c, struct waiting *w, struct pbox_client_error *err)
{
	bool left = false;
	int rc = client_enter(c, err);

	if (rc != 0)
		return rc;
	if (client_clock_ns() >= w->next_ask)
		left = ask_on(c, 0, w);
	rc = left || client_clock_ns() >= w->deadline ? wait_ends(c, 0, w, left, err)
						      : PBOX_C_PENDING;
	client_leave(c);
	return rc;
}

_Static_assert(sizeof(struct waiting) <= sizeof(((struct pbox_client_waiting *)NULL)->state),
	"what the caller keeps");

int
pbox_client_wait_on(struct pbox_client *c, pbox_client_handle handle,
	struct pbox_client_waiting *waiting, unsigned slice_ms, struct pbox_client_error *err)
{
	struct waiting w;
	int rc;

	memcpy(&w, waiting->state, sizeof(w));
	if (w.began == 0)
		waiting_begin(c, &w, waiting->timeout_ms);
	if (handle == 0)
		rc = oldest(c, &w, err);
	else
		rc = wait_slice(c, handle, &w, client_clock_ns() + slice_ms * NS_PER_MS, err);
	memcpy(waiting->state, &w, sizeof(w));
	return rc;
}

int
pbox_client_test(struct pbox_client *c, pbox_client_handle handle, struct pbox_client_error *err)
{
	struct op *op;
	int rc;

	pthread_mutex_lock(&c->lock);
	op = handle_find(c, handle);
	if (op == NULL || op->notify != NULL)
		rc = pbox_client_fail(err, PBOX_C_INVALID,
			"the handle is unknown, was released, or belongs to a notify call");
	else if (!op->done)
		rc = PBOX_C_PENDING;
	else
		rc = op_result(c, op, err);
	pthread_mutex_unlock(&c->lock);
	return rc;
}

int
pbox_client_notify(struct pbox_client *c, pbox_client_handle handle,
	void (*done)(void *ctx, int code, const char *text), void *ctx)
{
	struct op *op;
	bool now = false;

	if (done == NULL)
		return PBOX_C_INVALID;
	pthread_mutex_lock(&c->lock);
	op = handle_find(c, handle);
	if (op == NULL || op->notify != NULL || op->waiters > 0) {
		pthread_mutex_unlock(&c->lock);
		return PBOX_C_INVALID;
	}
	op->notify_ctx = ctx;
	op->notify = done;
	now = op->done;
	pthread_mutex_unlock(&c->lock);
	if (now) {
		done(ctx, op->w.code, op_text(op));
		handle_free_op(c, op);
	}
	return 0;
}

int
pbox_client_run(struct pbox_client *c, uint32_t table, enum pbox_client_kind kind,
	const struct pbox_client_io *io, unsigned n, uint32_t weight, unsigned timeout_ms,
	struct pbox_client_error *err)
{
	const struct pbox_client_op op = {.size = sizeof(op),
		.table = table,
		.kind = kind,
		.io = io,
		.n = n,
		.weight = weight};
	pbox_client_handle handle;
	int rc = pbox_client_submit(c, &op, &handle, err);

	return rc != 0 ? rc : pbox_client_wait(c, handle, timeout_ms, err);
}

int
pbox_client_silent(struct pbox_client *c, char *text, size_t cap, struct pbox_client_error *err)
{
	struct waiting_why w = {0};
	int rc = client_enter_text(c, text, cap, err);

	if (rc != 0)
		return rc;
	waiting_why(c, &w);
	text[0] = 0;
	rc = w.on.missing >= 0 && (unsigned)w.on.missing != pbox_worker_number(c->w) &&
	     waiting_is_silent(c, (unsigned)w.on.missing, text, cap);
	client_leave(c);
	return rc;
}

int
pbox_client_why(struct pbox_client *c, char *text, size_t cap, struct pbox_client_error *err)
{
	char found[512] = "";
	int rc = client_enter_text(c, text, cap, err);

	if (rc != 0)
		return rc;
	why_text(c, 0, 0, text, cap);
	if (waiting_not_finite(c, found, sizeof(found)))
		pbox_text_add(text, cap, "; the box has found: %s", found);
	client_leave(c);
	return 0;
}

int
pbox_client_not_finite(struct pbox_client *c, char *text, size_t cap, struct pbox_client_error *err)
{
	int rc = client_enter_text(c, text, cap, err);

	if (rc != 0)
		return rc;
	text[0] = 0;
	rc = waiting_not_finite(c, text, cap);
	client_leave(c);
	return rc;
}
