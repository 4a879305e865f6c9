/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_lcore.h>
#include <sodium.h>

#include "health.h"

#define TICK    (20 * NS_PER_MS)
#define WATCH   ONE_SECOND
#define NAP_MIN 50000   /* ns */
#define NAP_MAX 1000000 /* ns: what a request waits at most when nothing went on */
/* So long without work this thread sleeps until it is called, or something is due. */
#define QUIET (50 * NS_PER_MS)

struct pbox_control *
pbox_control_create(const struct pbox_control_conf *conf, struct pbox_error *err)
{
	struct pbox_control *c = calloc(1, sizeof(*c));

	if (c == NULL || sodium_init() < 0) {
		free(c);
		pbox_fail(err, ENOMEM, "out of memory");
		return NULL;
	}
	c->conf = *conf;
	pthread_mutex_init(&c->lock, NULL);
	pthread_mutex_init(&c->commands.lock, NULL);
	sem_init(&c->reload.wanted, 0, 0);
	c->conf.registrar.ops = &control_registrar_ops;
	c->conf.registrar.ctx = c;
	c->conf.registrar.stats = c->registrar_stat;
	snapshot_runs(&c->conf);
	c->registrar = pbox_registrar_create(&c->conf.registrar);
	if (c->registrar == NULL) {
		pbox_fail(err, ENOMEM, "out of memory for %u jobs: lower max-jobs",
			conf->registrar.max_jobs);
		pbox_control_destroy(c);
		return NULL;
	}
	c->health = health_create();
	c->started_ns = pbox_dp_now(conf->dp);
	if (c->health == NULL) {
		pbox_fail(err, ENOMEM, "out of memory");
		pbox_control_destroy(c);
		return NULL;
	}
	if (uplink_start(c, err) != 0 || snapshot_create(c, err) != 0 ||
		stats_register(c, err) != 0) {
		pbox_control_destroy(c);
		return NULL;
	}
	return c;
}

void
pbox_control_destroy(struct pbox_control *c)
{
	if (c == NULL)
		return;
	pbox_registrar_destroy(c->registrar);
	uplink_stop(c);
	snapshot_destroy(c);
	health_destroy(c->health);
	pbox_stats_free(c->stats);
	pthread_mutex_destroy(&c->lock);
	pthread_mutex_destroy(&c->commands.lock);
	sem_destroy(&c->reload.wanted);
	free(c);
}

static unsigned
take_mails(struct pbox_control *c)
{
	struct pbox_mail m;
	unsigned n = 0;

	while (pbox_dp_mail(c->conf.dp, &m)) {
		tally(c, PBOX_CT_MAILS);
		pbox_registrar_mail(c->registrar, &m, c->now_ns);
		n++;
	}
	return n;
}

/* The time that nobody was answered, waiting for the lock and for a CPU included. */
static void
end_turn(struct pbox_control *c, uint64_t began)
{
	uint64_t now = pbox_dp_now(c->conf.dp), us = now > began ? (now - began) / 1000 : 0;

	tally(c, PBOX_CT_TURNS);
	if (us > pbox_stat_get(&c->stat[PBOX_CT_LONGEST_TURN]))
		pbox_stat_set(&c->stat[PBOX_CT_LONGEST_TURN], us);
}

unsigned
pbox_control_step(struct pbox_control *c)
{
	uint64_t began = pbox_dp_now(c->conf.dp);
	unsigned work;

	pthread_mutex_lock(&c->lock);
	c->now_ns = pbox_dp_now(c->conf.dp);
	work = take_mails(c);
	control_listen(c);
	work += control_rx(c);
	control_listened(c);
	work += pbox_registrar_work(c->registrar, c->now_ns);
	if (c->uplinks != NULL)
		work += uplink_step(c);
	if (c->now_ns >= c->tick_at) {
		pbox_registrar_tick(c->registrar, c->now_ns);
		c->tick_at = c->now_ns + TICK;
	}
	snapshot_step(c);
	health_step(c);
	if (c->stop_when_drained && pbox_registrar_jobs(c->registrar) == 0)
		pbox_control_stop(c);
	pthread_mutex_unlock(&c->lock);
	if (c->now_ns >= c->watch.at) {
		control_watch(c);
		c->watch.at = c->now_ns + WATCH;
	}
	service_step(c);
	end_turn(c, began);
	return work;
}

uint64_t
control_rest_ns(const struct control_rest *r)
{
	uint64_t ns = r->empty < 5 ? NAP_MIN << r->empty : NAP_MAX;

	if (!r->busy && r->quiet_ns >= QUIET && r->due_ns > NAP_MAX)
		return r->due_ns;
	return ns < NAP_MAX ? ns : NAP_MAX;
}

static void
control_nap(uint64_t ns)
{
	const struct timespec t = {.tv_nsec = (long)ns};

	nanosleep(&t, NULL);
}

/* The next thing that this thread does by itself. A tick is never far. */
static uint64_t
due_at(const struct pbox_control *c)
{
	uint64_t at = c->tick_at < c->watch.at ? c->tick_at : c->watch.at;

	return c->conf.notify != NULL && c->service.look_at < at ? c->service.look_at : at;
}

static void
control_rest(struct pbox_control *c, unsigned empty, uint64_t worked_ns)
{
	bool measuring = pbox_registrar_measuring(c->registrar, c->now_ns);
	uint64_t due = due_at(c), ns;

	if (c->uplinks != NULL && uplink_rest(c))
		return;
	ns = control_rest_ns(&(struct control_rest){
		.empty = measuring ? 0 : empty,
		.busy = measuring || snapshot_busy(c) ||
			atomic_load_explicit(&c->stop, memory_order_relaxed),
		.quiet_ns = c->now_ns - worked_ns,
		.due_ns = due > c->now_ns ? due - c->now_ns : 0,
	});
	if (ns > NAP_MAX)
		pbox_dp_control_wait(c->conf.dp, ns);
	else
		control_nap(ns);
}

/* A stuck core never returns: a thread that waits for it must not. */
static void
await_cores(struct pbox_control *c)
{
	uint64_t end = pbox_dp_now(c->conf.dp) + PBOX_CONTROL_LATE_NS;

	for (unsigned i = 0; i < c->conf.n_cores; i++) {
		while (pbox_dp_running(c->conf.dp, i) && pbox_dp_now(c->conf.dp) < end)
			control_nap(NAP_MAX);
		if (!pbox_dp_running(c->conf.dp, i))
			continue;
		pbox_log(PBOX_LOG_ERROR,
			"data core %u (lcore %u) has not returned %u s after the stop: the box ends without it",
			i, c->conf.core[i].lcore, (unsigned)(PBOX_CONTROL_LATE_NS / ONE_SECOND));
		if (c->conf.late != NULL)
			c->conf.late(i);
	}
}

static void *
control_main(void *arg)
{
	struct pbox_control *c = arg;
	uint64_t worked_ns = 0;
	unsigned empty = 0;

	for (unsigned p = 0; p < c->conf.n_ports; p++) {
		pbox_dp_announce(c->conf.dp, p);
		pbox_dp_probe(c->conf.dp, p);
	}
	for (;;) {
		if (atomic_load_explicit(&c->stop, memory_order_relaxed)) {
			service_stopping(c);
			if (control_drained(c))
				break;
		}
		if (pbox_control_step(c) > 0) {
			empty = 0;
			worked_ns = c->now_ns;
		} else {
			control_rest(c, empty++, worked_ns);
		}
	}
	pbox_dp_stop(c->conf.dp);
	await_cores(c);
	return NULL;
}

int
pbox_control_start(struct pbox_control *c, struct pbox_error *err)
{
	int ret = snapshot_start(c, err);

	if (ret == 0)
		ret = reload_start(c, err);
	if (ret != 0)
		return ret;
	ret = rte_ctrl_thread_create(&c->thread, "pbox-control", NULL, control_main, c);

	if (ret != 0)
		return pbox_fail(
			err, -ret, "the control thread does not start: %s", strerror(-ret));
	telemetry_start(c);
	return 0;
}

void
pbox_control_stop(struct pbox_control *c)
{
	atomic_store_explicit(&c->stop, true, memory_order_relaxed);
	pbox_dp_control_call(c->conf.dp);
}

void
pbox_control_change(struct pbox_control *c, const struct pbox_control_live *live)
{
	pthread_mutex_lock(&c->lock); /* telemetry reads it, and sets some of it */
	c->conf.stats_interval_ns = live->stats_interval_ns;
	c->conf.drain_ns = live->drain_ns;
	c->conf.snapshot.interval_ns = live->snapshot_interval_ns;
	c->conf.snapshot.final_ns = live->snapshot_final_ns;
	c->conf.snapshot.space = live->snapshot_space;
	c->conf.snapshot.age_ns = live->snapshot_age_ns;
	pbox_registrar_reload(c->registrar, live->job, live->n_jobs, live->lease_ms, live->grace_ms,
		pbox_dp_now(c->conf.dp));
	pthread_mutex_unlock(&c->lock);
}

void
pbox_control_join(struct pbox_control *c)
{
	bool late;

	pthread_join(c->thread, NULL);
	late = !telemetry_stop();
	late |= !reload_stop(c);
	late |= !snapshot_loader_stop(c);
	if (late && c->conf.late != NULL)
		c->conf.late(UINT_MAX);
	snapshot_stop(c);
}

struct pbox_stats *
pbox_control_stats(struct pbox_control *c)
{
	return c->stats;
}

bool
pbox_control_conserved(
	const struct pbox_dp *dp, uint64_t *received, uint64_t *accepted, uint64_t *dropped)
{
	*received = pbox_dp_total(dp, PBOX_CS_RX_PACKETS);
	*accepted = *dropped = 0;
	for (unsigned i = PBOX_CS_FIRST_ACCEPT; i <= PBOX_CS_LAST_ACCEPT; i++)
		*accepted += pbox_dp_total(dp, i);
	for (unsigned i = PBOX_CS_FIRST_DROP; i <= PBOX_CS_LAST_DROP; i++)
		*dropped += pbox_dp_total(dp, i);
	return *received == *accepted + *dropped &&
	       pbox_dp_total(dp, PBOX_CS_HANDOFF_IN) == pbox_dp_total(dp, PBOX_CS_HANDOFF_OUT);
}
