/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* The uplinks of a box: which run each is of, what its tables wait for, and when it ends. */

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pbox_bits.h>
#include <pbox_job.h>

#include "pbox_uplinks.h"
#include "uplink_impl.h"

/* Nobody has asked to join its run for so long, and there is no job: it leaves. */
#define UNASKED_NS UINT64_C(30000000000)
/* So long an uplink that has failed answers for its run; then a JOIN tries again. Where that may pass, JOINs wait meanwhile. */
#define FAILED_NS UINT64_C(1000000000)

struct link {
	struct pbox_uplink *u; /* NULL: free */
	struct pbox_uplinks *set;
	struct pbox_worker_ops port;
	char job[PBOX_NAME_LEN];
	uint8_t run[PBOX_RUN_LEN];
	const struct pbox_job *of;         /* NULL: none yet, or not any more */
	uint64_t asked_ns, failed_ns, due; /* failed_ns 0: it has not */
	bool ended;                        /* it leaves */
	bool told;                         /* that it has failed */
	bool has_down;
	struct pbox_up down; /* there was no room for it */
	uint64_t loading[PBOX_MAX_TABLES / 64], cancelled[PBOX_MAX_TABLES / 64];
};

/* Runs that have made way for another one while no worker had joined (R12.4). */
struct ended {
	char job[PBOX_NAME_LEN];
	uint8_t run[PBOX_RUN_LEN];
};
#define ENDED 16

struct pbox_uplinks {
	struct pbox_uplinks_conf conf;
	struct link link[PBOX_UPLINKS];
	struct ended ended[ENDED];
	unsigned n_ended;
};

struct pbox_uplinks *
pbox_uplinks_create(const struct pbox_uplinks_conf *conf)
{
	struct pbox_uplinks *s = calloc(1, sizeof(*s));

	if (s != NULL)
		s->conf = *conf;
	return s;
}

void
pbox_uplinks_destroy(struct pbox_uplinks *s)
{
	for (unsigned i = 0; s != NULL && i < PBOX_UPLINKS; i++)
		pbox_uplink_destroy(s->link[i].u);
	free(s);
}

static void
link_send(void *ctx, const struct pbox_client_tx *d, unsigned n)
{
	struct link *l = ctx;
	struct pbox_uplinks *s = l->set;

	s->conf.ops->send(s->conf.ctx, (unsigned)(l - s->link), d, n);
}

static uint64_t
link_random(void *ctx)
{
	const struct link *l = ctx;

	return l->set->conf.ops->random(l->set->conf.ctx);
}

static struct link *
link_of(struct pbox_uplinks *s, const struct pbox_job *job)
{
	for (unsigned i = 0; i < PBOX_UPLINKS; i++)
		if (s->link[i].u != NULL && s->link[i].of == job && !s->link[i].ended)
			return &s->link[i];
	return NULL;
}

static struct link *
link_of_run(struct pbox_uplinks *s, const char *job, const uint8_t *run)
{
	for (unsigned i = 0; i < PBOX_UPLINKS; i++) {
		struct link *l = &s->link[i];

		if (l->u != NULL && !l->ended && strcmp(l->job, job) == 0 &&
			memcmp(l->run, run, PBOX_RUN_LEN) == 0)
			return l;
	}
	return NULL;
}

static void
link_end(struct link *l, bool leaves, uint64_t now)
{
	l->of = NULL;
	l->ended = true;
	l->has_down = false;
	pbox_uplink_leave(l->u, leaves, now);
}

/* ---- for the registrar --------------------------------------------------------------------------- */

static struct link *
link_begin(struct pbox_uplinks *s, const struct pbox_registrar_uplink *run, uint64_t now,
	struct pbox_error *err)
{
	struct pbox_uplink_conf c = {.job = run->job,
		.host = s->conf.host,
		.rack = s->conf.rack.rack,
		.racks = s->conf.rack.racks,
		.slots = run->slots,
		.upper = s->conf.upper};
	struct link *l = s->link;
	char *secret;

	while (l < s->link + PBOX_UPLINKS && l->u != NULL)
		l++;
	if (l == s->link + PBOX_UPLINKS) {
		pbox_fail(err, EAGAIN, "this rack's box has %u runs at its upper box already",
			PBOX_UPLINKS);
		return NULL;
	}
	memset(l, 0, sizeof(*l));
	l->set = s;
	l->port = (struct pbox_worker_ops){.send = link_send,
		.random = link_random,
		.ctx = l,
		.mtu = s->conf.mtu,
		.batch = 16,
		.window = s->conf.window};
	memcpy(c.run, run->run, sizeof(c.run));
	snprintf(l->job, sizeof(l->job), "%s", run->job);
	memcpy(l->run, run->run, sizeof(l->run));
	/* that of a job that is there does not end with a zero */
	secret = strndup(run->conf->secret_len > 0 ? run->conf->secret : "", run->conf->secret_len);
	c.secret = secret;
	if (secret != NULL)
		l->u = pbox_uplink_create(&c, &l->port, now);
	if (l->u == NULL)
		pbox_fail(err, EAGAIN, "no memory for an uplink");
	if (secret != NULL)
		explicit_bzero(secret, run->conf->secret_len);
	free(secret);
	return l->u != NULL ? l : NULL;
}

static bool
run_has_ended(const struct pbox_uplinks *s, const struct pbox_registrar_uplink *run)
{
	for (unsigned i = 0; i < ENDED; i++)
		if (strcmp(s->ended[i].job, run->job) == 0 &&
			memcmp(s->ended[i].run, run->run, PBOX_RUN_LEN) == 0)
			return true;
	return false;
}

/* Another run of the job comes, as R12.3 has it. What was to be its uplink would join above as one that is alive, and end this run. */
static void
others_end(struct pbox_uplinks *s, const struct pbox_registrar_uplink *run, uint64_t now)
{
	for (unsigned i = 0; i < PBOX_UPLINKS; i++) {
		struct link *l = &s->link[i];
		struct ended *e = &s->ended[s->n_ended % ENDED];

		if (l->u == NULL || l->ended || l->of != NULL || strcmp(l->job, run->job) != 0)
			continue;
		memcpy(e->job, l->job, sizeof(e->job));
		memcpy(e->run, l->run, sizeof(e->run));
		s->n_ended++;
		link_end(l, true, now);
	}
}

int
pbox_uplinks_uplink(struct pbox_uplinks *s, const struct pbox_registrar_uplink *run, uint64_t now,
	unsigned *window, struct pbox_error *err)
{
	struct link *l = link_of_run(s, run->job, run->run);
	char upper[INET_ADDRSTRLEN] = "";

	if (run_has_ended(s, run)) {
		pbox_fail(err, EIO, "another run of job '%s' has begun", run->job);
		return -EIO;
	}
	if (l == NULL) {
		others_end(s, run, now);
		l = link_begin(s, run, now, err);
	}
	if (l == NULL)
		return -EAGAIN;
	l->asked_ns = now;
	l->due = 0;
	pbox_uplink_ask(l->u, now);
	inet_ntop(AF_INET, &s->conf.upper.sin_addr, upper, sizeof(upper));
	if (pbox_uplink_state(l->u) == PBOX_UPLINK_FAILED) {
		pbox_fail(err, EIO, "rack %u at its upper box %s: %s", s->conf.rack.rack, upper,
			pbox_uplink_error(l->u));
		return pbox_uplink_may_pass(l->u) ? -EAGAIN : -EIO;
	}
	*window = pbox_uplink_window(l->u);
	if (pbox_uplink_state(l->u) == PBOX_UPLINK_MEMBER && *window > 0)
		return 0;
	pbox_fail(err, EAGAIN, "rack %u joins job '%s' at its upper box %s:%u", s->conf.rack.rack,
		run->job, upper, ntohs(s->conf.upper.sin_port));
	return -EAGAIN;
}

void
pbox_uplinks_begin(struct pbox_uplinks *s, const struct pbox_job *job, const uint8_t *run)
{
	struct link *l = link_of_run(s, job->name, run);

	PBOX_ASSERT(l != NULL && l->of == NULL); /* its JOIN has passed pbox_uplinks_uplink() */
	l->of = job;
	pbox_uplink_begin(l->u);
}

void
pbox_uplinks_end(struct pbox_uplinks *s, const struct pbox_job *job, bool leaves, uint64_t now)
{
	struct link *l = link_of(s, job);

	if (l != NULL)
		link_end(l, leaves, now);
}

int
pbox_uplinks_restore(struct pbox_uplinks *s, const struct pbox_job *job, const struct pbox_table *t,
	bool restoring)
{
	struct link *l = link_of(s, job);
	struct pbox_error err;

	PBOX_ASSERT(l != NULL && t->id < PBOX_MAX_TABLES);
	if (pbox_uplink_table(l->u, t, restoring, &err) != 0)
		uplink_fail(l->u, "%s", err.text);
	pbox_bit_set(l->loading, t->id);
	l->due = 0;
	return -EINPROGRESS;
}

void
pbox_uplinks_restored(
	struct pbox_uplinks *s, const struct pbox_job *job, const struct pbox_table *t)
{
	struct link *l = link_of(s, job);

	if (l == NULL)
		return;
	pbox_uplink_restored(l->u, t);
	l->due = 0;
}

void
pbox_uplinks_restore_cancel(struct pbox_uplinks *s, const struct pbox_job *job, uint32_t table)
{
	struct link *l = link_of(s, job);

	if (l != NULL && pbox_bit_get(l->loading, table))
		pbox_bit_set(l->cancelled, table);
}

void
pbox_uplinks_restore_text(const struct pbox_uplinks *s, const struct pbox_job *job, uint32_t table,
	char *text, size_t cap)
{
	char upper[INET_ADDRSTRLEN] = "";

	(void)job;
	inet_ntop(AF_INET, &s->conf.upper.sin_addr, upper, sizeof(upper));
	snprintf(text, cap, "table %u is declared at the upper box %s, which waits for all racks",
		table, upper);
}

/* ---- sums ---------------------------------------------------------------------------------------- */

void
pbox_uplinks_up(struct pbox_uplinks *s, const struct pbox_up *up)
{
	for (unsigned i = 0; i < PBOX_UPLINKS; i++) {
		struct link *l = &s->link[i];

		if (l->u == NULL || l->of == NULL || l->of->id != up->job ||
			l->of->begun_ns != up->begun_ns)
			continue;
		if (l->of->state == PBOX_JOB_OPEN)
			pbox_uplink_up(l->u, up);
		l->due = 0;
		return;
	}
}

void
pbox_uplinks_rx(struct pbox_uplinks *s, unsigned link, const struct pbox_client_rx *d, unsigned n,
	uint64_t now)
{
	struct link *l = &s->link[link];

	if (link >= PBOX_UPLINKS || l->u == NULL)
		return;
	pbox_uplink_rx(l->u, d, n, now);
	l->due = 0;
}

static void
link_down(struct link *l)
{
	const struct pbox_uplinks *s = l->set;

	while (l->of != NULL && l->of->state == PBOX_JOB_OPEN &&
		(l->has_down || pbox_uplink_down(l->u, &l->down))) {
		l->has_down = !s->conf.ops->down(s->conf.ctx, &l->down);
		if (l->has_down)
			return;
	}
}

static void
link_tables(struct link *l)
{
	const struct pbox_uplinks *s = l->set;

	for (unsigned i = 0; i < PBOX_MAX_TABLES / 64; i++)
		for (uint64_t left = l->loading[i]; left != 0; left &= left - 1) {
			uint32_t table = i * 64 + (uint32_t)__builtin_ctzll(left);
			struct pbox_error err;
			int state = pbox_uplink_table_state(l->u, table, &err);

			if (pbox_bit_get(l->cancelled, table))
				state = pbox_fail(&err, EIO, "the job ends");
			if (state == 0)
				continue;
			pbox_bit_clear(l->loading, table);
			s->conf.ops->loaded(s->conf.ctx, l->of, table, state < 0 ? &err : NULL);
			if (l->of == NULL) /* the job has ended with it */
				return;
		}
}

/* Nobody needs it any more, or the next JOIN shall try again. */
static bool
link_is_over(const struct link *l, uint64_t now)
{
	if (l->of != NULL || l->ended)
		return false;
	if (l->failed_ns != 0 && pbox_uplink_may_pass(l->u))
		return now - l->failed_ns > FAILED_NS;
	return now - l->asked_ns > (l->failed_ns != 0 ? FAILED_NS : UNASKED_NS);
}

/* False: it is gone. */
static bool
link_step(struct link *l, uint64_t now)
{
	const struct pbox_uplinks *s = l->set;

	if (now >= l->due)
		l->due = pbox_uplink_tick(l->u, now);
	link_down(l);
	if (l->of != NULL)
		link_tables(l);
	if (l->of != NULL && pbox_uplink_state(l->u) == PBOX_UPLINK_FAILED && !l->told) {
		l->told = true;
		s->conf.ops->failed(s->conf.ctx, l->of, pbox_uplink_error(l->u));
	}
	if (l->failed_ns == 0 && pbox_uplink_state(l->u) == PBOX_UPLINK_FAILED)
		l->failed_ns = now;
	if (link_is_over(l, now))
		link_end(l, true, now);
	if (!l->ended || !pbox_uplink_left(l->u, now))
		return true;
	pbox_uplink_destroy(l->u);
	l->u = NULL;
	return false;
}

uint64_t
pbox_uplinks_step(struct pbox_uplinks *s, uint64_t now)
{
	uint64_t due = UINT64_MAX;

	for (unsigned i = 0; i < PBOX_UPLINKS; i++) {
		struct link *l = &s->link[i];

		if (l->u != NULL && link_step(l, now) && l->due < due)
			due = l->due;
	}
	return due;
}

void
pbox_uplinks_says(struct pbox_uplinks *s, const struct pbox_job *job, const char *text)
{
	struct link *l = link_of(s, job);

	if (l != NULL)
		pbox_uplink_says(l->u, text);
}

bool
pbox_uplinks_view(struct pbox_uplinks *s, const struct pbox_job *job, struct pbox_uplink_view *out)
{
	const struct link *l = link_of(s, job);

	if (l != NULL)
		pbox_uplink_view(l->u, out);
	return l != NULL;
}

unsigned
pbox_uplinks_pending(const struct pbox_uplinks *s)
{
	unsigned n = 0;

	for (unsigned i = 0; i < PBOX_UPLINKS; i++)
		n += s->link[i].u != NULL ? pbox_uplink_pending(s->link[i].u) : 0;
	return n;
}
