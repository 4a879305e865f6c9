/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* What a core does when there is no work: polls, pauses, or sleeps until an interrupt. */

#include <sched.h>
#include <sys/prctl.h>
#include <time.h>

#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_interrupts.h>
#include <rte_pause.h>

#include "core.h"

/* Turns without work before a core that may sleep yields, and before it sleeps. */
#define SPIN_TURNS  16
#define YIELD_TURNS 48
#define SLEEP_MIN   5000  /* ns */
#define SLEEP_MAX   60000 /* ns: what a packet waits at most when nothing went on */
/* Mail and packets of other cores raise no interrupt. */
#define WAIT_MS 1

enum pbox_idle
pbox_dp_idle_auto(unsigned n_cores, unsigned n_cpus, bool shared)
{
	/* one for the control thread, and one for whatever else runs here */
	return shared || n_cpus < n_cores + 2 ? PBOX_IDLE_SLEEP : PBOX_IDLE_POLL;
}

static void
idle_nap(struct core *c)
{
	unsigned doublings = (c->empty - YIELD_TURNS) / 8;
	long ns = doublings < 4 ? SLEEP_MIN << doublings : SLEEP_MAX;
	struct timespec t = {.tv_nsec = ns < SLEEP_MAX ? ns : SLEEP_MAX};

	core_count(c, PBOX_CS_SLEEPS, 1);
	nanosleep(&t, NULL);
}

static void
adaptive(struct core *c)
{
	if (c->empty <= SPIN_TURNS)
		rte_pause();
	else if (c->empty <= YIELD_TURNS)
		sched_yield();
	else
		idle_nap(c);
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

static void
wait_interrupt(struct core *c)
{
	struct rte_epoll_event ev[8];

	if (c->empty <= YIELD_TURNS) {
		adaptive(c);
		return;
	}
	arm(c, true);
	/* what came before the interrupt was armed raises none */
	if (queues_empty(c)) {
		core_count(c, PBOX_CS_SLEEPS, 1);
		rte_epoll_wait(RTE_EPOLL_PER_THREAD, ev, 8, WAIT_MS);
	}
	arm(c, false);
}

void
core_idle(struct core *c)
{
	switch (c->dp->conf.idle) {
	case PBOX_IDLE_POLL:
		rte_pause();
		break;
	case PBOX_IDLE_YIELD:
		sched_yield();
		break;
	case PBOX_IDLE_INTERRUPT:
		if (c->epoll) {
			wait_interrupt(c);
			break;
		}
		__attribute__((fallthrough)); /* no interrupts here */
	case PBOX_IDLE_AUTO:                  /* the caller has decided */
	case PBOX_IDLE_SLEEP:
		adaptive(c);
		break;
	}
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
	if (c->dp->conf.idle != PBOX_IDLE_INTERRUPT || c->n_rxq == 0)
		return;
	for (unsigned q = 0; q < c->n_rxq; q++)
		if (!c->rxq[q].port->rx_intr)
			return;
	c->epoll = epoll_ctl_all(c, RTE_INTR_EVENT_ADD) == 0;
}

void
idle_stop(struct core *c)
{
	if (c->epoll)
		epoll_ctl_all(c, RTE_INTR_EVENT_DEL);
}
