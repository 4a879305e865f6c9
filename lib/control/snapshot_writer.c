/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <sys/resource.h>
#include <time.h>

#include "snapshot.h"

/* Behind everything else that wants the CPU. */
#define NICE 10

static uint64_t
now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static void
write_it(struct snapshots *s)
{
	const struct pbox_control_snapshot *conf = s->conf;
	struct snapshot_order *o = &s->order;
	const struct pbox_snapshot_write w = {
		.dir = conf->dir,
		.meta = &o->meta,
		.meta_bytes = o->bytes,
		.meta_len = o->len,
		.data = o->data,
		.stripe_data = conf->stripe_data,
		.stripe_parity = conf->stripe_parity,
		.compress = conf->compress,
		.give_up = &s->give_up,
	};
	uint64_t begin = now_us();

	o->ret = pbox_snapshot_write(&w, &o->written, &o->err);
	if (o->ret == 0)
		pbox_snapshot_prune(conf->dir, o->meta.job, o->meta.table, conf->keep);
	o->us = now_us() - begin;
}

void *
snapshot_writer(void *arg)
{
	struct snapshots *s = arg;

	setpriority(PRIO_PROCESS, 0, NICE); /* of this thread, on Linux */
	pthread_mutex_lock(&s->lock);
	while (!s->quit || s->ordered) {
		if (!s->ordered) {
			pthread_cond_wait(&s->wake, &s->lock);
			continue;
		}
		pthread_mutex_unlock(&s->lock);
		write_it(s);
		pthread_mutex_lock(&s->lock);
		s->ordered = false;
		s->written = true;
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

void
snapshot_order(struct snapshots *s)
{
	pthread_mutex_lock(&s->lock);
	s->ordered = true;
	pthread_cond_signal(&s->wake);
	pthread_mutex_unlock(&s->lock);
}

bool
snapshot_written(struct snapshots *s)
{
	bool done;

	pthread_mutex_lock(&s->lock);
	done = s->written;
	s->written = false;
	pthread_mutex_unlock(&s->lock);
	return done;
}
