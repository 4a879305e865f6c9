/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* The thread that writes snapshot files. */

#include <sys/resource.h>
#include <sys/statvfs.h>
#include <time.h>

#include "control_priv.h"

/* After everything else that wants the CPU. */
#define NICE 10

static uint64_t
now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* UINT64_MAX: not known. */
static uint64_t
free_bytes(const char *dir)
{
	struct statvfs v;

	return statvfs(dir, &v) == 0 ? (uint64_t)v.f_bavail * v.f_frsize : UINT64_MAX;
}

static void
write_it(struct pbox_control *c)
{
	struct snapshots *s = &c->snapshots;
	const struct pbox_control_snapshot *conf = s->conf;
	struct snapshot_order *o = &s->order;
	const struct pbox_snapshot_write w = {
		.dir = conf->dir,
		.meta = &o->meta,
		.data = o->data,
		.stripe_data = conf->stripe_data,
		.stripe_parity = conf->stripe_parity,
		.compress = conf->compress,
		.give_up = &s->give_up,
		.room = snapshot_room,
		.room_ctx = c,
	};
	uint64_t begin = now_us();

	snapshot_describe_copy(&o->meta, &s->staging);
	o->ret = pbox_snapshot_write(&w, &o->written, &o->err);
	/* of several boxes none knows which is the last round that all have a file of (R16.16) */
	if (o->ret == 0 && o->meta.boxes == 0)
		pbox_snapshot_prune(
			conf->dir, o->meta.job, o->meta.table, conf->keep, o->written.path);
	else if (o->ret != 0)
		o->free_bytes = free_bytes(conf->dir);
	pbox_snapshot_meta_free(&o->meta);
	o->us = now_us() - begin;
}

void *
snapshot_writer(void *arg)
{
	struct pbox_control *c = arg;
	struct snapshots *s = &c->snapshots;

	setpriority(PRIO_PROCESS, 0, NICE); /* of this thread, on Linux */
	pthread_mutex_lock(&s->lock);
	while (!s->quit || s->ordered) {
		bool write = s->ordered;

		if (!write && !s->sweep) {
			pthread_cond_wait(&s->wake, &s->lock);
			continue;
		}
		s->sweep &= write;
		pthread_mutex_unlock(&s->lock);
		if (write)
			write_it(c);
		else
			snapshot_sweep(c);
		pthread_mutex_lock(&s->lock);
		s->ordered &= !write;
		s->written |= write;
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
