/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>
#include <stdlib.h>

#include "client_impl.h"

/* Submitting operations, their handles, and waiting for them. */

/* ---- handles: slot index + 1 below, generation above --------------------------------------- */

static int
slots_grow(struct pbox_client *c)
{
	uint32_t n = c->slots > 0 ? c->slots * 2 : 64;
	struct slot *slot;

	if (n > 1u << 24)
		return -1;
	slot = reallocarray(c->slot, n, sizeof(*slot));
	if (slot == NULL)
		return -1;
	for (uint32_t i = n; i-- > c->slots;) {
		slot[i] = (struct slot){.next = c->free_slot};
		c->free_slot = i + 1;
	}
	c->slot = slot;
	c->slots = n;
	return 0;
}

static int
handle_give(struct pbox_client *c, struct op *op)
{
	struct slot *s;

	if (c->free_slot == 0 && slots_grow(c) != 0)
		return -1;
	op->handle = c->free_slot;
	s = &c->slot[c->free_slot - 1];
	c->free_slot = s->next;
	s->op = op;
	op->handle |= (uint64_t)s->generation << 32;
	return 0;
}

static struct op *
handle_find(struct pbox_client *c, pbox_client_handle handle)
{
	uint32_t i = (uint32_t)handle;

	if (i == 0 || i > c->slots || c->slot[i - 1].generation != handle >> 32)
		return NULL;
	return c->slot[i - 1].op;
}

static void
handle_take(struct pbox_client *c, struct op *op)
{
	uint32_t i = (uint32_t)op->handle;
	struct slot *s = &c->slot[i - 1];

	if (s->op != op)
		return;
	s->op = NULL;
	s->generation++;
	s->next = c->free_slot;
	c->free_slot = i;
}

void
op_free(struct pbox_client *c, struct op *op)
{
	pthread_mutex_lock(&c->lock);
	handle_take(c, op);
	pthread_mutex_unlock(&c->lock);
	free(op->text);
	free(op);
}

/* ---- submit -------------------------------------------------------------------------------- */

static const char *
kind_name(unsigned kind)
{
	static const char *const name[] = {"push-pull", "push", "pull", "init", "fetch", "give"};

	return kind <= PBOX_CLIENT_GIVE ? name[kind] : "?";
}

static int
check_io(const struct pbox_client *c, const struct table *t, enum pbox_client_kind kind,
	const struct pbox_client_io *io, unsigned n, struct pbox_client_error *err)
{
	bool in = kind != PBOX_CLIENT_PULL && kind != PBOX_CLIENT_FETCH;
	bool out = kind == PBOX_CLIENT_PUSHPULL || kind == PBOX_CLIENT_PULL ||
		   kind == PBOX_CLIENT_FETCH;

	if ((unsigned)kind > PBOX_CLIENT_GIVE)
		return client_fail(err, PBOX_C_INVALID, "operation kind %u does not exist", kind);
	if (n > 0 && io == NULL)
		return client_fail(err, PBOX_C_INVALID, "%u tensors given without their list", n);
	if (kind >= PBOX_CLIENT_FETCH && (n != t->n || t->mode != PBOX_MODE_OPTIMISER))
		return client_fail(err, PBOX_C_INVALID,
			"%s is of all %u tensors of a table with parameters on the box (mode 1)",
			kind_name(kind), t->n);
	if (kind == PBOX_CLIENT_GIVE && c->worker != 0)
		return client_fail(err, PBOX_C_INVALID, "give is for worker 0 alone");
	if (kind == PBOX_CLIENT_INIT && (c->worker != 0 || t->mode != PBOX_MODE_OPTIMISER))
		return client_fail(err, PBOX_C_INVALID,
			c->worker != 0 ? "init is for worker 0 alone; the others pull"
				       : "init is for tables with parameters on the box (mode 1)");
	for (unsigned i = 0; i < n; i++) {
		if (io[i].tensor >= t->n)
			return client_fail(err, PBOX_C_INVALID,
				"tensor %u does not exist: table %u has %u", io[i].tensor,
				t->number, t->n);
		if (t->tensor[io[i].tensor].elements == 0)
			continue;
		if ((in && io[i].in == NULL) || (out && io[i].out == NULL))
			return client_fail(err, PBOX_C_INVALID,
				"%s of tensor '%s' without %s buffer", kind_name(kind),
				t->tensor[io[i].tensor].name,
				in && io[i].in == NULL ? "an input" : "an output");
	}
	return 0;
}

/** Give the tensors their round; lock held. */
static int
take_rounds(struct table *t, struct op *op, struct pbox_client_error *err)
{
	for (unsigned i = 0; i < op->n; i++) {
		struct tensor *x = &t->tensor[op->e[i].tensor];

		if (op->kind == PBOX_CLIENT_PULL && t->mode == PBOX_MODE_ALLREDUCE &&
			x->submitted == 0 && x->elements > 0)
			return client_fail(err, PBOX_C_INVALID,
				"pull of tensor '%s' before its first push: there is no sum yet",
				x->name);
		if (op->kind == PBOX_CLIENT_PULL && t->resumed && x->submitted == 0 &&
			x->elements > 0)
			return client_fail(err, PBOX_C_INVALID,
				"pull of tensor '%s' before its first push: a worker that goes on "
				"with round %u has the version before it from its checkpoint",
				x->name, t->base_version + 1);
	}
	for (unsigned i = 0; i < op->n; i++) {
		struct tensor *x = &t->tensor[op->e[i].tensor];

		if (op->kind <= PBOX_CLIENT_PUSH && ++x->submitted > t->max_submitted)
			t->max_submitted = x->submitted;
		if (i == 0)
			op->round = t->base_version + x->submitted;
	}
	return 0;
}

static struct op *
op_new(struct table *t, enum pbox_client_kind kind, const struct pbox_client_io *io, unsigned n,
	uint8_t priority, uint32_t weight)
{
	size_t bytes;
	struct op *op;

	if (__builtin_mul_overflow((size_t)n, sizeof(op->e[0]), &bytes) ||
		__builtin_add_overflow(bytes, sizeof(*op), &bytes))
		return NULL;
	op = calloc(1, bytes);
	if (op == NULL)
		return NULL;
	op->table = t;
	op->kind = (uint8_t)kind;
	op->prio = priority;
	op->weight = weight;
	op->submitted_ns = clock_ns();
	op->n = n;
	for (unsigned i = 0; i < n; i++) {
		op->e[i].op = op;
		op->e[i].tensor = io[i].tensor;
		if (kind != PBOX_CLIENT_PULL && kind != PBOX_CLIENT_FETCH)
			op->e[i].in = io[i].in;
		if (kind == PBOX_CLIENT_PUSHPULL || kind == PBOX_CLIENT_PULL ||
			kind == PBOX_CLIENT_FETCH)
			op->e[i].out = io[i].out;
	}
	return op;
}

int
pbox_client_submit(struct pbox_client *c, uint32_t table, enum pbox_client_kind kind,
	const struct pbox_client_io *io, unsigned n, uint8_t priority, uint32_t weight,
	pbox_client_handle *handle, struct pbox_client_error *err)
{
	struct table *t = client_table(c, table);
	struct op *op;
	int rc;

	if (t == NULL)
		return client_fail(err, PBOX_C_INVALID, "table %u has not been declared", table);
	rc = check_io(c, t, kind, io, n, err);
	if (rc != 0)
		return rc;
	op = op_new(t, kind, io, n, priority, weight);
	if (op == NULL)
		return client_fail(
			err, PBOX_C_MEMORY, "no memory for an operation on %u tensors", n);
	pthread_mutex_lock(&c->lock);
	if (c->closing || c->fatal != 0)
		rc = c->closing ? client_fail(err, PBOX_C_CLOSED, "the client was closed")
				: client_fail(err, c->fatal, "%s", c->fatal_text);
	if (rc == 0)
		rc = take_rounds(t, op, err);
	if (rc == 0 && handle_give(c, op) != 0)
		rc = client_fail(err, PBOX_C_MEMORY, "too many operations in flight");
	if (rc == 0) {
		*handle = op->handle;
		*c->submitted_tail = op;
		c->submitted_tail = &op->next;
		c->users++; /* the client must not go away before the kick */
	}
	pthread_mutex_unlock(&c->lock);
	if (rc != 0) {
		free(op);
		return rc;
	}
	client_kick(c);
	client_leave(c);
	return 0;
}

/* ---- waiting ------------------------------------------------------------------------------- */

/** Result of an operation that is done; lock held. The last one out frees it. */
static int
op_result(struct pbox_client *c, struct op *op, struct pbox_client_error *err)
{
	int code = op->code;

	handle_take(c, op);
	if (code != 0)
		client_fail(
			err, code, "%s", op->text != NULL ? op->text : pbox_client_code_name(code));
	if (op->waiters == 0) {
		free(op->text);
		free(op);
	}
	return code;
}

struct why {
	struct cmd cmd;
	pbox_client_handle handle; /* 0: the oldest operation */
	char text[512];
	struct waiting_for on;
};

static void
why_run(struct pbox_client *c, struct cmd *cmd)
{
	struct why *w = (struct why *)cmd;
	struct op *op = c->ops;

	while (op != NULL && w->handle != 0 && op->handle != w->handle)
		op = op->all_next;
	w->on.missing = op != NULL ? why_op(c, op, &w->on.told_ns, w->text, sizeof(w->text)) : -1;
	if (op != NULL)
		w->on.table = op->table->number;
}

/** What the operation (0: the oldest one) waits for, with the box's view of who is missing. */
static void
why_text(struct pbox_client *c, pbox_client_handle handle, char *text, size_t cap)
{
	struct why w = {.cmd = {.run = why_run}, .handle = handle};

	cmd_call(c, &w.cmd);
	if (w.on.missing >= 0)
		why_member(c, (unsigned)w.on.missing, w.text, sizeof(w.text));
	text[0] = 0;
	text_add(text, cap, "%s", w.text[0] != 0 ? w.text : "nothing");
}

/** Has a wait been in vain so far? Asks the box. */
static bool
ask_on(struct pbox_client *c, pbox_client_handle handle, struct waiting *w)
{
	struct why why = {.cmd = {.run = why_run}, .handle = handle};

	cmd_call(c, &why.cmd);
	return waiting_ask(c, w, &why.on, c->conf.left_ms);
}

static int
wait_ends(struct pbox_client *c, pbox_client_handle handle, const struct waiting *w, bool left,
	struct pbox_client_error *err)
{
	char text[440] = "";
	double s = w->exact && !left ? (double)w->timeout / NS_PER_S : waiting_seconds(w);

	if (err != NULL)
		why_text(c, handle, text, sizeof(text));
	return client_fail(err, PBOX_C_DEADLINE,
		left ? "given up after %.1f s, as a worker has left or was refused: %.440s"
		     : "not complete after %.1f s: %.440s",
		s, text);
}

/** Until it is done, or waiting is in vain, or @p until. Lock held; PENDING: in time. */
static int
wait_for(struct pbox_client *c, struct op *op, struct waiting *w, uint64_t until, bool *left)
{
	*left = false;
	while (!op->done) {
		uint64_t now = clock_ns(), wake = w->next_ask;

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
		return client_fail(err, PBOX_C_INVALID,
			op == NULL ? "the handle is unknown, or was released already"
				   : "the handle belongs to a notify call");
	}
	op->waiters++;
	c->users++;
	rc = wait_for(c, op, w, until, &left);
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

/** Is it worth to wait on for the oldest operation? Does not wait. */
static int
oldest(struct pbox_client *c, struct waiting *w, struct pbox_client_error *err)
{
	bool left = false;
	int rc = client_enter(c, err);

	if (rc != 0)
		return rc;
	if (clock_ns() >= w->next_ask)
		left = ask_on(c, 0, w);
	rc = left || clock_ns() >= w->deadline ? wait_ends(c, 0, w, left, err) : PBOX_C_PENDING;
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
		rc = wait_slice(c, handle, &w, clock_ns() + slice_ms * NS_PER_MS, err);
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
		rc = client_fail(err, PBOX_C_INVALID,
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
		done(ctx, op->code, op->text != NULL ? op->text : pbox_client_code_name(op->code));
		op_free(c, op);
	}
	return 0;
}

int
pbox_client_run(struct pbox_client *c, uint32_t table, enum pbox_client_kind kind,
	const struct pbox_client_io *io, unsigned n, uint32_t weight, unsigned timeout_ms,
	struct pbox_client_error *err)
{
	pbox_client_handle handle;
	int rc = pbox_client_submit(c, table, kind, io, n, 0, weight, &handle, err);

	return rc != 0 ? rc : pbox_client_wait(c, handle, timeout_ms, err);
}

int
pbox_client_why(struct pbox_client *c, char *text, size_t cap, struct pbox_client_error *err)
{
	int rc;

	if (text == NULL || cap == 0)
		return client_fail(err, PBOX_C_INVALID, "no room for the text");
	text[0] = 0;
	rc = client_enter(c, err);
	if (rc != 0)
		return rc;
	why_text(c, 0, text, cap);
	client_leave(c);
	return 0;
}
