/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include <sodium.h>

#include "client_impl.h"

/*
 * Several progress threads: each drives a lane of the worker, which is a part of the box's endpoints (lib/worker, struct lane: who holds
 * which locks). The first one is the progress thread: it also has the session, commands, and what has ended. The others
 * send and receive data. They share no lock in steady times: a thread has its own, which nobody else wants.
 */

#define LONGEST_SLEEP NS_PER_S
#define RX_TURNS      4 /* receive bursts in one turn of the loop */

/* ---- the port of a lane ------------------------------------------------------------------------- */

static void
lanes_send(void *ctx, const struct pbox_client_tx *d, unsigned n)
{
	struct lane *l = ctx;

	l->t->train = l->port.train;
	l->t->ops->send(l->t, d, n);
	l->port.train = l->t->train; /* 1: it has found that trains do not leave */
}

static uint64_t
lanes_random(void *ctx)
{
	uint64_t v;

	(void)ctx;
	randombytes_buf(&v, sizeof(v));
	return v;
}

void
lanes_port(struct lane *l)
{
	l->port = (struct pbox_worker_ops){.send = lanes_send,
		.random = lanes_random,
		.ctx = l,
		.mtu = l->t->mtu,
		.batch = l->t->batch,
		.window = l->t->window,
		.train_max = l->t->train_max,
		.train = l->t->train};
}

unsigned
lanes_receive(struct lane *l, const struct pbox_client_rx **d)
{
	struct pbox_client_transport *t = l->t;
	unsigned n = t->ops->recv(t, d);

	if (t->path_errno != 0) {
		l->port.path_errno = t->path_errno;
		l->port.path_mtu = t->path_mtu;
		t->path_errno = 0;
	}
	return n;
}

/* ---- where its datagrams come from ---------------------------------------------------------------- */

/** Has it other endpoints than before? */
static void
lane_look(struct lane *l)
{
	const struct sockaddr_in *from[MAX_LANES];
	unsigned n = pbox_worker_endpoints(l->c->w, l->number, from, MAX_LANES);
	bool same;

	n = n < MAX_LANES ? n : MAX_LANES;
	same = n == l->n;
	for (unsigned i = 0; same && i < n; i++)
		same = memcmp(from[i], &l->from[i], sizeof(*from[i])) == 0;
	if (same)
		return;
	l->n = n;
	for (unsigned i = 0; i < n; i++)
		l->from[i] = *from[i];
	l->moved = true;
}

/** All locks are held: what the box has said may have changed endpoints. Each thread then aims its transport itself. */
static bool
lanes_look(struct pbox_client *c)
{
	bool steady = c->lanes > 1 && pbox_worker_steady(c->w, 1, 0);

	for (unsigned i = 1; steady && i < c->lanes; i++)
		lane_look(&c->lane[i]);
	return steady;
}

/** Its lock is held, by its thread, or this has not begun: that waits for the transport without the lock. */
static int
lane_aim(struct lane *l, struct pbox_client_error *err)
{
	const struct sockaddr_in *from[MAX_LANES];

	if (!l->moved)
		return 0;
	l->moved = false;
	for (unsigned i = 0; i < l->n; i++)
		from[i] = &l->from[i];
	return l->t->ops->aim(l->t, from, l->n, err);
}

/* ---- locks -------------------------------------------------------------------------------------- */

void
lanes_lock(struct pbox_client *c)
{
	if (c->lanes > 1)
		pthread_mutex_lock(&c->lane[0].lock);
}

void
lanes_unlock(struct pbox_client *c)
{
	if (c->lanes > 1)
		pthread_mutex_unlock(&c->lane[0].lock);
}

void
lanes_lock_others(struct pbox_client *c, uint64_t now)
{
	for (unsigned i = 1; i < c->lanes; i++)
		pthread_mutex_lock(&c->lane[i].lock);
	if (c->lanes > 1)
		pbox_worker_together(c->w, now);
}

void
lanes_unlock_others(struct pbox_client *c)
{
	bool steady = lanes_look(c);

	for (unsigned i = c->lanes; i-- > 1;)
		pthread_mutex_unlock(&c->lane[i].lock);
	if (steady) /* something of theirs may be due now */
		lanes_wake(c);
}

void
lanes_lock_all(struct pbox_client *c)
{
	for (unsigned i = 0; c->lanes > 1 && i < c->lanes; i++)
		pthread_mutex_lock(&c->lane[i].lock);
}

void
lanes_unlock_all(struct pbox_client *c)
{
	lanes_look(c);
	for (unsigned i = c->lanes; c->lanes > 1 && i-- > 0;)
		pthread_mutex_unlock(&c->lane[i].lock);
}

static void
lane_wake(struct lane *l)
{
	if (!atomic_exchange(&l->kicked, true))
		l->t->ops->wake(l->t);
}

void
lanes_wake(struct pbox_client *c)
{
	for (unsigned i = 1; i < c->lanes; i++)
		lane_wake(&c->lane[i]);
}

/* ---- a thread ----------------------------------------------------------------------------------- */

/** What has come is not for the lane alone. Its lock is held, and given up for a while. */
static void
take_together(struct lane *l, const struct pbox_client_rx *d, unsigned n, uint64_t now, bool rest)
{
	struct pbox_client *c = l->c;

	pthread_mutex_unlock(&l->lock);
	lanes_lock_all(c);
	if (rest)
		pbox_worker_lane_rest(c->w, l->number, now);
	else
		pbox_worker_rx(c->w, d, n, now);
	lanes_unlock_all(c);
	lanes_wake(c);
	cmd_kick(
		c); /* something may be due in any lane, or of the session; or there is an answer */
	pthread_mutex_lock(&l->lock);
}

static unsigned
lanes_take(struct lane *l, uint64_t now)
{
	struct pbox_worker *w = l->c->w;
	unsigned total = 0;

	for (unsigned turns = RX_TURNS; turns > 0; turns--) {
		const struct pbox_client_rx *d;
		unsigned n = lanes_receive(l, &d);

		if (n > 0 && !pbox_worker_steady(w, l->number, now))
			take_together(l, d, n, now, false);
		else if (n > 0 && pbox_worker_lane_rx(w, l->number, d, n, now))
			take_together(l, d, n, now, true);
		total += n;
		if (!l->t->more)
			break;
	}
	return total;
}

static void *
lane_main(void *arg)
{
	struct lane *l = arg;
	struct pbox_worker *w = l->c->w;
	struct pbox_client_transport *t = l->t;
	uint64_t spin = (uint64_t)l->c->conf.spin_us * NS_PER_US, spin_until = 0;
	struct pbox_client_error err;

	if (t->ops->attach != NULL)
		t->ops->attach(t);
	while (!atomic_load(&l->ending)) {
		uint64_t began = client_clock_ns(), now, due, gathering = 0;
		unsigned got;

		atomic_store(&l->kicked, false);
		pthread_mutex_lock(&l->lock);
		lane_aim(l, &err); /* else the first socket gets what comes, which is slower */
		got = lanes_take(l, began);
		now = client_clock_ns();
		due = now + LONGEST_SLEEP;
		if (pbox_worker_steady(w, l->number, now)) {
			due = pbox_worker_lane_tick(
				w, l->number, now, got == 0 || !t->more ? began : 0);
			if (got > 0 && !t->more && spin == 0)
				gathering = pbox_worker_lane_gather(w, l->number);
		}
		pthread_mutex_unlock(&l->lock);
		if (pbox_worker_ended(w))
			cmd_kick(l->c);
		if (got > 0)
			spin_until = now + spin;
		if ((got > 0 && gathering == 0) || atomic_load(&l->kicked))
			continue;
		now = client_clock_ns();
		if (due > now && now >= spin_until) {
			t->gather_ns = gathering; /* more answers may come first */
			t->ops->wait(t, due - now);
		}
	}
	if (t->ops->detach != NULL)
		t->ops->detach(t);
	return NULL;
}

/* ---- open and close ----------------------------------------------------------------------------- */

/** CPUs that this process may use, shared with the other workers of its host, as torchrun counts them. */
static unsigned
lanes_auto(void)
{
	const char *local = getenv("LOCAL_WORLD_SIZE");
	long workers = local != NULL ? strtol(local, NULL, 10) : 1;
	cpu_set_t set;
	long n = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;

	n /= workers > 0 ? workers : 1;
	return n > 1 ? (unsigned)n : 1;
}

static unsigned
lanes_wanted(const struct pbox_client *c)
{
	unsigned n = c->conf.threads != 0 ? c->conf.threads : lanes_auto();
	unsigned endpoints = pbox_worker_endpoints(c->w, MAX_LANES, NULL, 0);

	/* by plan a wait of one fragment concerns all */
	if (c->t->ops->lane == NULL || c->conf.policy == PBOX_POLICY_REASSIGN)
		return 1;
	n = n < endpoints ? n : endpoints;
	return n < MAX_LANES ? n : MAX_LANES;
}

/** Its lock and transport. */
static int
lane_make(struct pbox_client *c, unsigned i, struct pbox_client_error *err)
{
	struct lane *l = &c->lane[i];

	l->c = c;
	l->number = i;
	pthread_mutex_init(&l->lock, NULL);
	c->lanes_made = i + 1;
	if (i == 0)
		return 0;
	l->from = calloc(MAX_LANES, sizeof(*l->from));
	if (l->from == NULL)
		return pbox_client_fail(err, PBOX_C_MEMORY, "no memory for a client");
	if (c->t->ops->lane(c->t, &l->t, err) != 0)
		return err->code;
	lanes_port(l);
	return 0;
}

int
lanes_open(struct pbox_client *c, struct pbox_client_error *err)
{
	struct pbox_worker_ops *port[MAX_LANES];
	struct pbox_client_error local;
	unsigned n = lanes_wanted(c);
	int rc = 0;

	err = err != NULL ? err : &local;
	if (n == 1)
		return 0;
	for (unsigned i = 0; i < n && rc == 0; i++) {
		rc = lane_make(c, i, err);
		port[i] = &c->lane[i].port;
	}
	if (rc == 0 && pbox_worker_cut(c->w, port, n) != 0)
		rc = pbox_client_fail(err, PBOX_C_MEMORY, "no memory for %u threads", n);
	for (unsigned i = 1; i < n && rc == 0; i++) {
		lane_look(&c->lane[i]);
		rc = lane_aim(&c->lane[i], err);
	}
	if (rc != 0)
		return rc;
	c->lanes = n;
	for (unsigned i = 1; i < n; i++)
		if (pthread_create(&c->lane[i].thread, NULL, lane_main, &c->lane[i]) != 0) {
			c->lanes = i; /* those that are there end by lanes_close() */
			return pbox_client_fail(
				err, PBOX_C_SYSTEM, "cannot start %u threads: set threads to 1", n);
		}
	return 0;
}

void
lanes_close(struct pbox_client *c)
{
	for (unsigned i = 1; i < c->lanes; i++) {
		atomic_store(&c->lane[i].ending, true);
		lane_wake(&c->lane[i]);
		pthread_join(c->lane[i].thread, NULL);
	}
	for (unsigned i = 0; i < c->lanes_made; i++) {
		if (i > 0 && c->lane[i].t != NULL)
			c->lane[i].t->ops->close(c->lane[i].t);
		free(c->lane[i].from);
		pthread_mutex_destroy(&c->lane[i].lock);
	}
}
