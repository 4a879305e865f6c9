/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* What a core does when there is no work: polls, pauses, or sleeps until an interrupt. */

#include <sched.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <time.h>

#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_interrupts.h>
#include <rte_pause.h>

#include "core.h"

#define NS_PER_MS UINT64_C(1000000)
/* Turns without work before a core that may sleep yields, and before it sleeps. */
#define SPIN_TURNS  16
#define YIELD_TURNS 48
#define SLEEP_MIN   5000  /* ns */
#define SLEEP_MAX   60000 /* ns: what a packet waits at most when little was quiet before it */
/* A wait for interrupts while frames come now and then, and rounds may wait for their time. */
#define WAIT_SHORT NS_PER_MS
/* So long without work, and nobody is likely to come soon: each turn costs a switch of the CPU, and cold caches. */
#define QUIET_NS (50 * NS_PER_MS)
/* Then: where packets wake a core; and where only others of the box do, and packets wait. It is never long, as turns
 * are watched, and leases go on with them (control's listen.c). */
#define WAIT_WOKEN  (20 * NS_PER_MS)
#define WAIT_UNSEEN (2 * NS_PER_MS)

enum pbox_idle
pbox_dp_idle_auto(unsigned n_cores, unsigned n_cpus, bool shared)
{
	/* one for the control thread, and one for whatever else runs here */
	return shared || n_cpus < n_cores + 2 ? PBOX_IDLE_SLEEP : PBOX_IDLE_POLL;
}

struct idle_step
idle_next(const struct idle_state *s)
{
	unsigned doublings;
	uint64_t ns;

	if (s->mode == PBOX_IDLE_POLL)
		return (struct idle_step){.what = IDLE_PAUSE};
	if (s->mode == PBOX_IDLE_YIELD)
		return (struct idle_step){.what = IDLE_YIELD};
	if (s->empty <= YIELD_TURNS)
		return (struct idle_step){.what = s->empty <= SPIN_TURNS ? IDLE_PAUSE : IDLE_YIELD};
	if (s->wakes && !s->pending && s->quiet_ns >= QUIET_NS)
		return (struct idle_step){IDLE_WAIT, s->interrupts ? WAIT_WOKEN : WAIT_UNSEEN};
	if (s->wakes && s->interrupts && s->mode == PBOX_IDLE_INTERRUPT)
		return (struct idle_step){IDLE_WAIT, WAIT_SHORT};
	doublings = (s->empty - YIELD_TURNS) / 8;
	ns = doublings < 4 ? (uint64_t)SLEEP_MIN << doublings : SLEEP_MAX;
	return (struct idle_step){IDLE_NAP, ns < SLEEP_MAX ? ns : SLEEP_MAX};
}

static void
arm(struct core *c, bool on)
{
	for (unsigned q = 0; q < c->n_rxq; q++)
		if (on)
			rte_eth_dev_rx_intr_enable(c->rxq[q].port->conf.id, c->rxq[q].queue);
		else
			rte_eth_dev_rx_intr_disable(c->rxq[q].port->conf.id, c->rxq[q].queue);
}

static bool
queues_empty(const struct core *c)
{
	for (unsigned q = 0; q < c->n_rxq; q++)
		if (rte_eth_rx_queue_count(c->rxq[q].port->conf.id, c->rxq[q].queue) > 0)
			return false;
	return true;
}

/* Until a packet comes, somebody calls, or the time is over. */
static void
idle_wait(struct core *c, uint64_t ns)
{
	struct rte_epoll_event ev[8];

	if (!waker_sleep(&c->waker))
		return;
	if (c->epoll)
		arm(c, true);
	/* what came before the interrupt was armed raises none */
	if (!c->epoll || queues_empty(c)) {
		core_count(c, PBOX_CS_SLEEPS, 1);
		rte_epoll_wait(RTE_EPOLL_PER_THREAD, ev, 8, (int)(ns / NS_PER_MS));
	}
	if (c->epoll)
		arm(c, false);
	waker_woke(&c->waker);
}

void
core_idle(struct core *c)
{
	const struct idle_state now = {
		.mode = c->dp->conf.idle,
		.wakes = c->wakes,
		.interrupts = c->epoll,
		.pending = pbox_shard_paces(c->shard),
		.empty = c->empty,
		.quiet_ns = c->now_ns - c->worked_ns,
	};
	const struct idle_step next = idle_next(&now);
	const struct timespec t = {.tv_nsec = (long)next.ns};

	switch (next.what) {
	case IDLE_PAUSE:
		rte_pause();
		break;
	case IDLE_YIELD:
		sched_yield();
		break;
	case IDLE_NAP:
		core_count(c, PBOX_CS_SLEEPS, 1);
		nanosleep(&t, NULL);
		break;
	case IDLE_WAIT:
		idle_wait(c, next.ns);
		break;
	}
}

static bool
may_sleep(const struct core *c)
{
	return c->dp->conf.idle != PBOX_IDLE_POLL && c->dp->conf.idle != PBOX_IDLE_YIELD;
}

void
core_call(struct core *to)
{
	if (may_sleep(to))
		waker_call(&to->waker);
}

static int
epoll_ctl_all(struct core *c, int op)
{
	for (unsigned q = 0; q < c->n_rxq; q++) {
		int ret = rte_eth_dev_rx_intr_ctl_q(
			c->rxq[q].port->conf.id, c->rxq[q].queue, RTE_EPOLL_PER_THREAD, op, NULL);

		if (ret != 0)
			return ret;
	}
	return 0;
}

/* On the lcore, before the loop. */
void
idle_start(struct core *c)
{
	/* else the kernel adds 50 us to each sleep */
	prctl(PR_SET_TIMERSLACK, 1UL);
	atomic_store_explicit(&c->tid, rte_sys_gettid(), memory_order_relaxed);
	if (!may_sleep(c))
		return;
	c->called.epdata.event = EPOLLIN;
	c->wakes = rte_epoll_ctl(RTE_EPOLL_PER_THREAD, EPOLL_CTL_ADD, c->waker.fd, &c->called) == 0;
	for (unsigned q = 0; q < c->n_rxq; q++)
		if (!c->rxq[q].port->rx_intr)
			return;
	c->epoll = c->wakes && epoll_ctl_all(c, RTE_INTR_EVENT_ADD) == 0;
}

void
idle_stop(struct core *c)
{
	if (c->epoll)
		epoll_ctl_all(c, RTE_INTR_EVENT_DEL);
	if (c->wakes)
		rte_epoll_ctl(RTE_EPOLL_PER_THREAD, EPOLL_CTL_DEL, c->waker.fd, &c->called);
	c->epoll = c->wakes = false;
}
