/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* The rack's box as a worker: its session, and sums that go up and come back as versions. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pbox_bits.h>

#include "uplink_impl.h"

#define LEAVE_NS UINT64_C(1000000000)
/* Nobody waits for the join alone: who joins the rack asks again, as long as it likes. */
#define JOIN_NS (UINT64_C(1) << 60)

static struct uplink_flight *
flight_of(struct pbox_worker_op *op)
{
	return (struct uplink_flight *)(void *)((char *)op - offsetof(struct uplink_flight, op));
}

/* The text by which all racks of a run, and no others, name it (R12.1). */
static void
run_text(const struct pbox_uplink_conf *conf, char out[2 * PBOX_UPLINK_RUN + 8])
{
	int n = snprintf(out, 8, "racks ");

	for (unsigned i = 0; i < PBOX_UPLINK_RUN; i++)
		n += snprintf(out + n, 3, "%02x", conf->run[i]);
}

struct pbox_uplink *
pbox_uplink_create(const struct pbox_uplink_conf *conf, struct pbox_worker_ops *port, uint64_t now)
{
	struct pbox_uplink *u = calloc(1, sizeof(*u));
	char run[2 * PBOX_UPLINK_RUN + 8];
	struct pbox_client_conf c = {
		.size = sizeof(c),
		.job = conf->job,
		.secret = conf->secret,
		.host = conf->host,
		.worker = (int)conf->rack,
		.workers = conf->racks,
		.slots = conf->slots,
		.lease_ms = conf->lease_ms,
		.timeout_ms = 60000,
		.keep_copies = 1,
		.policy = PBOX_POLICY_WAIT,
		.run = run,
		.threads = 1,
	};

	PBOX_ASSERT(conf->rack < conf->racks && conf->slots >= conf->racks);
	if (u == NULL)
		return NULL;
	run_text(conf, run);
	u->rack = conf->rack;
	u->racks = conf->racks;
	u->eyes.seen.missing = -1;
	u->answered_tail = &u->answered;
	u->waiting_tail = &u->waiting;
	u->w = pbox_worker_create(&c, &conf->upper, port);
	if (u->w == NULL) {
		free(u);
		return NULL;
	}
	pbox_worker_join_asked(u->w, true);
	pbox_worker_open(u->w, now, now + JOIN_NS);
	return u;
}

void
pbox_uplink_ask(struct pbox_uplink *u, uint64_t now)
{
	if (!u->failed && !u->left)
		pbox_worker_join_ask(u->w, now);
}

void
pbox_uplink_begin(struct pbox_uplink *u)
{
	pbox_worker_join_asked(u->w, false);
}

static void
flights_free(struct uplink_flight *x)
{
	for (struct uplink_flight *next; x != NULL; x = next) {
		next = x->next;
		free(x);
	}
}

void
pbox_uplink_destroy(struct pbox_uplink *u)
{
	if (u == NULL)
		return;
	pbox_worker_shut(u->w);
	for (struct pbox_worker_op *op = pbox_worker_finished(u->w), *next; op != NULL; op = next) {
		next = op->next;
		free(flight_of(op));
	}
	pbox_worker_destroy(u->w);
	flights_free(u->answered);
	flights_free(u->waiting);
	flights_free(u->free);
	uplink_tables_free(u);
	free(u);
}

enum pbox_uplink_state
pbox_uplink_state(const struct pbox_uplink *u)
{
	if (u->failed)
		return PBOX_UPLINK_FAILED;
	return pbox_worker_state(u->w) == PBOX_WORKER_OPEN ? PBOX_UPLINK_MEMBER
							   : PBOX_UPLINK_JOINING;
}

const char *
pbox_uplink_error(const struct pbox_uplink *u)
{
	return u->error;
}

bool
pbox_uplink_may_pass(const struct pbox_uplink *u)
{
	int code = pbox_worker_error(u->w)->code;

	return u->failed && !u->was_member && (code == PBOX_C_MTU || code == PBOX_C_UNREACHABLE);
}

unsigned
pbox_uplink_window(const struct pbox_uplink *u)
{
	struct pbox_worker_session s;

	return pbox_worker_session(u->w, &s) ? s.window : 0;
}

void
pbox_uplink_view(const struct pbox_uplink *u, struct pbox_uplink_view *out)
{
	*out = u->eyes.seen;
	out->state = pbox_uplink_state(u);
	out->window = pbox_uplink_window(u);
	out->pending = u->pending;
}

void
pbox_uplink_rx(struct pbox_uplink *u, const struct pbox_client_rx *d, unsigned n, uint64_t now)
{
	pbox_worker_rx(u->w, d, n, now);
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* A fragment's first push in this uplink. The upper box is at the version before it; or it has the round already, from the uplink of
 * this rack's box before it was started again. Any other is of another training. False: it fails, or comes later. A table that was restored
 * is reported first. */
static bool
tensor_begins(
	struct pbox_uplink *u, struct uplink_table *t, const struct pbox_up *up, uint32_t tensor)
{
	uint32_t version = 0;
	int ret;

	if (pbox_bit_get(t->begun, tensor))
		return true;
	ret = pbox_worker_tensor_begin(t->d.table, tensor, up->round, t->restored, &version);
	if (ret == 0) {
		pbox_bit_set(t->begun, tensor);
		return true;
	}
	if (ret == -EAGAIN)
		return false;
	PBOX_ASSERT(ret == -ERANGE);
	uplink_fail(u,
		"table %u, chunk %u, fragment %u: the upper box has version %u, and this rack begins round %u: they are of different trainings, or what this rack had was lost: start the job again",
		t->number, up->chunk & ((1u << PBOX_CHUNK_BITS) - 1), up->frag, version, up->round);
	return false;
}

static struct uplink_flight *
flight_new(struct pbox_uplink *u, const struct pbox_up *up)
{
	size_t bytes = sizeof(struct uplink_flight) + sizeof(struct pbox_worker_entry);
	struct uplink_flight *x = u->free;

	if (x != NULL)
		u->free = x->next;
	else
		x = malloc(bytes);
	if (x == NULL)
		return NULL;
	memset(x, 0, bytes);
	x->up = *up;
	return x;
}

static void
flight_begins(struct pbox_uplink *u, struct uplink_flight *x, uint32_t tensor)
{
	const struct pbox_up *up = &x->up;

	x->op.table = u->table[up->chunk >> PBOX_CHUNK_BITS]->d.table;
	x->op.kind = PBOX_CLIENT_PUSHPULL;
	x->op.weight = (uint32_t)up->samples;
	x->op.n = 1;
	x->op.e[0].op = &x->op;
	x->op.e[0].tensor = tensor;
	x->op.e[0].in = (const uint8_t *)up->value;
	x->op.e[0].out = (uint8_t *)up->value;
	pbox_worker_submit(u->w, &x->op);
}

/* In their order; have any begun? While the upper box hears what is held of a fragment that has not gone up yet, all wait: that needs none of them. */
static bool
waiting_begin(struct pbox_uplink *u)
{
	bool any = false;

	while (u->waiting != NULL && !u->failed) {
		struct uplink_flight *x = u->waiting;
		uint32_t chunk = x->up.chunk;
		struct uplink_table *t = u->table[chunk >> PBOX_CHUNK_BITS];
		uint32_t tensor =
			uplink_tensor(t, chunk & ((1u << PBOX_CHUNK_BITS) - 1), x->up.frag);

		if (!tensor_begins(u, t, &x->up, tensor))
			break;
		u->waiting = x->next;
		if (u->waiting == NULL)
			u->waiting_tail = &u->waiting;
		flight_begins(u, x, tensor);
		any = true;
	}
	return any;
}

void
pbox_uplink_up(struct pbox_uplink *u, const struct pbox_up *up)
{
	uint32_t number = up->chunk >> PBOX_CHUNK_BITS;
	const struct uplink_table *t = number < u->n_tables ? u->table[number] : NULL;
	struct uplink_flight *x;

	PBOX_ASSERT(t != NULL);
	if (u->failed || u->left)
		return;
	PBOX_ASSERT(t->state == TABLE_MAPPED);
	if (up->samples > UINT32_MAX) {
		uplink_fail(u,
			"table %u, round %u: the samples of this rack are %llu, and a contribution says 4294967295 at most: let workers push smaller counts",
			number, up->round, (unsigned long long)up->samples);
		return;
	}
	x = flight_new(u, up);
	if (x == NULL) {
		uplink_fail(u, "no memory for a sum on its way up");
		return;
	}
	u->pending++;
	*u->waiting_tail = x;
	u->waiting_tail = &x->next;
	waiting_begin(u);
}

static void
flight_ends(struct pbox_uplink *u, struct uplink_flight *x)
{
	struct uplink_table *t = u->table[x->up.chunk >> PBOX_CHUNK_BITS];
	struct pbox_worker_tensor_result m;

	u->pending--;
	if (x->op.code != PBOX_C_OK) {
		uplink_fail(u, "the upper box: %s", x->op.text);
		x->next = u->free;
		u->free = x;
		return;
	}
	/* its own answer, of its own round */
	PBOX_ASSERT(pbox_worker_tensor_result(t->d.table, x->op.e[0].tensor, &m) &&
		    m.version == x->up.round);
	x->up.samples = m.samples;
	x->up.contributors = m.contributors;
	x->next = NULL;
	*u->answered_tail = x;
	u->answered_tail = &x->next;
}

bool
pbox_uplink_down(struct pbox_uplink *u, struct pbox_up *out)
{
	struct uplink_flight *x = u->answered;

	if (x == NULL || u->left)
		return false;
	u->answered = x->next;
	if (u->answered == NULL)
		u->answered_tail = &u->answered;
	*out = x->up;
	x->next = u->free;
	u->free = x;
	return true;
}

unsigned
pbox_uplink_pending(const struct pbox_uplink *u)
{
	return u->pending;
}

uint64_t
pbox_uplink_tick(struct pbox_uplink *u, uint64_t now)
{
	uint64_t due, eyes;

	u->was_member |= pbox_worker_state(u->w) == PBOX_WORKER_OPEN;
	if (!u->left && pbox_worker_state(u->w) == PBOX_WORKER_OPEN)
		uplink_tables_step(u);
	if (!u->left)
		waiting_begin(u);
	eyes = uplink_eyes_step(u, now);
	due = pbox_worker_tick(u->w, now, now);
	for (struct pbox_worker_op *op = pbox_worker_finished(u->w), *next; op != NULL; op = next) {
		next = op->next;
		flight_ends(u, flight_of(op));
	}
	if (!u->left && pbox_worker_state(u->w) == PBOX_WORKER_FAILED)
		uplink_fail(u, "the upper box: %s", pbox_worker_error(u->w)->text);
	for (struct pbox_worker_request *r = pbox_worker_answered(u->w), *next; r != NULL;
		r = next) {
		next = r->next;
		if (!uplink_eyes_answer(u, r, now) && u->left)
			u->leave_at = 0;
	}
	if (!u->left)
		uplink_tables_step(u);
	if (!u->left && waiting_begin(u)) /* what they waited for is reported */
		due = 0;
	return due < eyes ? due : eyes;
}

/* ---- the end ----------------------------------------------------------------------------------- */

void
pbox_uplink_leave(struct pbox_uplink *u, bool leaves, uint64_t now)
{
	bool member = leaves && pbox_worker_state(u->w) == PBOX_WORKER_OPEN;

	if (u->left)
		return;
	u->left = true;
	pbox_worker_shut(u->w);
	u->leave_at = member ? now + LEAVE_NS : 0;
	if (!member)
		return;
	u->leave = (struct pbox_worker_request){.type = PBOX_LEAVE};
	pbox_worker_request(u->w, &u->leave);
}

bool
pbox_uplink_left(const struct pbox_uplink *u, uint64_t now)
{
	return u->left && now >= u->leave_at;
}
