/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <pbox_wire.h>

#include "harness.h"

#define MAX_TENSORS 512

struct worker {
	atomic_uint *busy; /* workers that have not done all rounds yet */
	pthread_t thread;
	const struct run *r;
	struct box *box;
	unsigned id;
	int rc;
	struct pbox_client_error err;
	struct pbox_client_stats stats;
	uint64_t mismatches, checked;
	uint8_t *in[MAX_TENSORS], *out[MAX_TENSORS];
	double seconds;
};

float
harness_value(unsigned worker, unsigned round, unsigned tensor, uint64_t i, unsigned format)
{
	uint64_t x =
		((uint64_t)worker << 56) ^ ((uint64_t)round << 40) ^ ((uint64_t)tensor << 28) ^ i;
	float f;

	x = (x + 0x9E3779B97F4A7C15ull) * 0xBF58476D1CE4E5B9ull;
	x = (x ^ x >> 31) * 0x94D049BB133111EBull;
	f = (float)((double)(int64_t)(x ^ x >> 30) / 9.3e18);
	return format == PBOX_FMT_BF16 ? from_bf16(to_bf16(f)) : f;
}

int
harness_submit(struct pbox_client *c, enum pbox_client_kind kind, const struct pbox_client_io *io,
	unsigned n, uint8_t priority, pbox_client_handle *h, struct pbox_client_error *err)
{
	const struct pbox_client_op op = {.size = sizeof(op),
		.kind = kind,
		.io = io,
		.n = n,
		.weight = 1,
		.priority = priority};

	return pbox_client_submit(c, &op, h, err);
}

struct pbox_client_conf
harness_conf(const struct box *b, int worker, unsigned workers)
{
	struct pbox_client_conf conf;

	pbox_client_conf_init(&conf);
	conf.box = box_address(b);
	conf.job = "job";
	conf.secret = "secret";
	conf.worker = worker;
	conf.workers = workers;
	conf.mtu = 1500;
	conf.threads = box_threads;
	/* only what hangs: the machine may have other work */
	conf.timeout_ms = conf.join_timeout_ms = 120000;
	conf.host = worker >= 0 ? (worker == 0 ? "gpu0" : worker == 1 ? "gpu1" : "gpuN") : "any";
	return conf;
}

static void
store(uint8_t *p, unsigned format, uint64_t i, float f)
{
	uint16_t h = to_bf16(f);

	if (format == PBOX_FMT_BF16)
		memcpy(p + 2 * i, &h, 2);
	else
		memcpy(p + 4 * i, &f, 4);
}

static void
fill(struct worker *w, unsigned round)
{
	const struct run *r = w->r;

	for (unsigned t = 0; t < r->n; t++)
		for (uint64_t i = 0; i < r->tensors[t].elements; i++)
			store(w->in[t], r->push_format, i,
				harness_value(w->id, round, t, i, r->push_format));
}

/** R5.2a: the sum of @p n workers from @p first on is that of its two halves, of which the left one is a power of two. */
static float
tree(const struct run *r, unsigned first, unsigned n, unsigned round, unsigned t, uint64_t i)
{
	unsigned left = 1;

	if (n == 1)
		return harness_value(first, round, t, i, r->push_format);
	while (left * 2 < n)
		left *= 2;
	return tree(r, first, left, round, t, i) + tree(r, first + left, n - left, round, t, i);
}

static void
check(struct worker *w, unsigned round)
{
	const struct run *r = w->r;
	unsigned size = pbox_format_size(r->pull_format);

	for (unsigned t = 0; t < r->n; t++)
		for (uint64_t i = 0; i < r->tensors[t].elements; i++) {
			float s = tree(r, 0, r->box.workers, round, t, i);
			uint8_t want[4];

			if (r->op != PBOX_OP_SUM)
				s *= (float)(1.0 / r->box.workers);
			store(want, r->pull_format, 0, s);
			w->mismatches += memcmp(want, w->out[t] + i * size, size) != 0;
			w->checked++;
		}
}

static int
one_round(struct worker *w, struct pbox_client *c, uint32_t table)
{
	const struct run *r = w->r;
	struct pbox_client_io io[MAX_TENSORS];
	pbox_client_handle h[MAX_TENSORS];
	struct pbox_client_op op = {.size = sizeof(op),
		.table = table,
		.kind = PBOX_CLIENT_PUSHPULL,
		.io = io,
		.n = r->n,
		.weight = 1};
	unsigned n = r->per_tensor ? r->n : 1;
	int rc = 0;

	for (unsigned t = 0; t < r->n; t++)
		io[t] = (struct pbox_client_io){t, w->in[t], w->out[t]};
	if (r->push_then_pull) {
		op.kind = PBOX_CLIENT_PUSH;
		rc = pbox_client_submit(c, &op, &h[0], &w->err);
		if (rc == 0)
			rc = pbox_client_run(
				c, table, PBOX_CLIENT_PULL, io, r->n, 1, r->timeout_ms, &w->err);
		return rc != 0 ? rc : pbox_client_wait(c, h[0], 0, &w->err);
	}
	if (!r->per_tensor)
		return pbox_client_run(
			c, table, PBOX_CLIENT_PUSHPULL, io, r->n, 1, r->timeout_ms, &w->err);
	op.n = 1;
	for (unsigned t = 0; t < n && rc == 0; t++) {
		op.io = &io[t];
		op.priority = (uint8_t)(255 - t % 256);
		rc = pbox_client_submit(c, &op, &h[t], &w->err);
	}
	for (unsigned t = 0; t < n && rc == 0; t++)
		rc = pbox_client_wait(c, h[n - 1 - t], r->timeout_ms, &w->err);
	return rc;
}

double
harness_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int
rounds(struct worker *w, struct pbox_client *c)
{
	const struct run *r = w->r;
	struct pbox_client_table d = {.size = sizeof(d),
		.op = r->op,
		.push_format = r->push_format,
		.pull_format = r->pull_format,
		.n = r->n,
		.tensors = r->tensors};
	uint32_t table[8] = {0};
	unsigned tables = r->tables != 0 ? r->tables : 1;
	int rc = 0;

	for (unsigned k = 0; k < tables && rc == 0; k++)
		rc = pbox_client_declare(c, &d, 0, &table[k], &w->err);
	for (unsigned i = 1; i <= r->rounds && rc == 0; i++)
		for (unsigned k = 0; k < tables && rc == 0; k++) {
			double t;

			fill(w, i);
			if (r->before != NULL && w->id == 0 && k == 0)
				r->before(w->box, i);
			t = harness_seconds();
			rc = one_round(w, c, table[k]);
			w->seconds += harness_seconds() - t;
			if (rc == 0)
				check(w, i);
		}
	return rc;
}

static void *
worker_main(void *arg)
{
	struct worker *w = arg;
	struct pbox_client_conf conf = harness_conf(w->box, (int)w->id, w->r->box.workers);
	struct pbox_client *c = NULL;

	conf.mtu = w->r->box.mtu != 0 ? w->r->box.mtu : 1500;
	conf.gso = w->r->gso == 0 ? -1 : w->r->gso > 0;
	conf.window = w->r->window;
	conf.transport = w->r->transport;
	conf.transport_args = w->r->transport_args;
	w->stats.size = sizeof(w->stats);
	w->rc = pbox_client_open(&c, &conf, &w->err);
	if (w->rc == 0)
		w->rc = rounds(w, c);
	atomic_fetch_sub(w->busy, 1);
	if (c == NULL)
		return NULL;
	/* who leaves cannot give back what a box that is restarted now has lost */
	while (atomic_load(w->busy) > 0)
		usleep(1000);
	pbox_client_stats(c, &w->stats);
	pbox_client_close(c);
	return NULL;
}

struct restarter {
	struct box *box;
	unsigned n, ms;
	atomic_bool stop;
	unsigned done;
};

static void *
restart_main(void *arg)
{
	struct restarter *s = arg;
	uint64_t x = 88172645463325252ull;

	while (s->done < s->n && !atomic_load(&s->stop)) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		usleep(5000 + (unsigned)(x % (s->ms * 1000)));
		box_restart(s->box);
		s->done++;
	}
	return NULL;
}

void
harness_run(const struct run *r, struct run_result *out)
{
	struct worker *w = calloc(r->box.workers, sizeof(*w));
	unsigned in = pbox_format_size(r->push_format), pull = pbox_format_size(r->pull_format);

	struct restarter restarter = {
		.n = r->restarts, .ms = r->restart_ms != 0 ? r->restart_ms : 100};
	pthread_t restart_thread;

	memset(out, 0, sizeof(*out));
	struct box *box = box_start(&r->box);
	restarter.box = box;
	if (r->restarts > 0)
		pthread_create(&restart_thread, NULL, restart_main, &restarter);
	atomic_uint busy = r->box.workers;

	for (unsigned i = 0; i < r->box.workers; i++) {
		w[i].busy = &busy;
		w[i].r = r;
		w[i].box = box;
		w[i].id = i;
		for (unsigned t = 0; t < r->n; t++) {
			w[i].in[t] = malloc(r->tensors[t].elements * in + 1);
			w[i].out[t] = r->in_place ? w[i].in[t]
						  : malloc(r->tensors[t].elements * pull + 1);
		}
		pthread_create(&w[i].thread, NULL, worker_main, &w[i]);
	}
	for (unsigned i = 0; i < r->box.workers; i++) {
		pthread_join(w[i].thread, NULL);
		if (w[i].rc != 0 && out->failed++ == 0)
			snprintf(out->text, sizeof(out->text), "%.500s", w[i].err.text);
		if (w[i].rc != 0 && getenv("HARNESS_VERBOSE") != NULL)
			fprintf(stderr, "worker %u: %s\n", i, w[i].err.text);
		out->mismatches += w[i].mismatches;
		out->checked += w[i].checked;
		for (unsigned t = 0; t < r->n; t++) {
			free(w[i].in[t]);
			if (!r->in_place)
				free(w[i].out[t]);
		}
	}
	if (r->restarts > 0) {
		atomic_store(&restarter.stop, true);
		pthread_join(restart_thread, NULL);
		out->restarts = restarter.done;
	}
	out->stats = w[0].stats;
	out->seconds = w[0].seconds;
	out->box = box_counts(box);
	box_stop(box);
	free(w);
}
