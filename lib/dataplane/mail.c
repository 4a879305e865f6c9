/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* The control thread's side of a core: mails to and from its shard, control datagrams. */

#include <errno.h>
#include <poll.h>
#include <time.h>

#include "core.h"

#define MAIL_BURST 8

/* On the data core. */
unsigned
core_take_mail(struct core *c)
{
	struct pbox_mail m[MAIL_BURST];
	unsigned n = rte_ring_sc_dequeue_burst_elem(c->mail_in, m, sizeof(*m), MAIL_BURST, NULL);

	for (unsigned i = 0; i < n; i++)
		pbox_shard_mail(c->shard, &m[i], c->now_ns);
	return unlikely(c->down != NULL) ? n + core_take_down(c) : n;
}

/* Each mail is answered once, so that the answers' ring has room, too. */
void
pbox_dp_post(struct pbox_dp *dp, const struct pbox_mail *m)
{
	int ret;

	PBOX_ASSERT(m->shard < dp->conf.n_cores && dp->unanswered[m->shard] < PBOX_DP_MAILS);
	dp->unanswered[m->shard]++;
	ret = rte_ring_sp_enqueue_elem(
		dp->core[m->shard]->mail_in, (void *)(uintptr_t)m, sizeof(*m));
	PBOX_ASSERT(ret == 0);
	core_call(dp->core[m->shard]);
}

bool
pbox_dp_mail(struct pbox_dp *dp, struct pbox_mail *m)
{
	for (unsigned i = 0; i < dp->conf.n_cores; i++) {
		struct core *c = dp->core[dp->next_mail];

		if (rte_ring_sc_dequeue_elem(c->mail_out, m, sizeof(*m)) == 0) {
			PBOX_ASSERT(m->shard == c->index && dp->unanswered[c->index] > 0);
			dp->unanswered[c->index]--;
			return true;
		}
		dp->next_mail = (dp->next_mail + 1) % dp->conf.n_cores;
	}
	return false;
}

unsigned
pbox_dp_control_rx(struct pbox_dp *dp, unsigned i, struct rte_mbuf **m, unsigned n)
{
	const struct core *c = dp->core[i];
	unsigned strangers = n / 4 > 0 ? n / 4 : 1, got;

	PBOX_ASSERT(i < dp->conf.n_cores && n > 0);
	/* sessions first; strangers have their part of each turn, and no more while there are sessions' */
	got = rte_ring_sc_dequeue_burst(c->sessions, (void **)m, n - strangers, NULL);
	dp->taken[i] += got;
	return got + rte_ring_sc_dequeue_burst(c->to_control, (void **)m + got, strangers, NULL);
}

unsigned
pbox_dp_control_waiting(const struct pbox_dp *dp, unsigned i)
{
	return rte_ring_count(dp->core[i]->sessions);
}

uint64_t
pbox_dp_control_taken(const struct pbox_dp *dp, unsigned i)
{
	return dp->taken[i];
}

uint32_t
pbox_dp_turns(const struct pbox_dp *dp, unsigned i)
{
	return atomic_load_explicit(&dp->core[i]->turns, memory_order_acquire);
}

/* A burst of each queue a turn, and no queue is longer than so many bursts. */
#define TURNS_FOR_ALL 256

bool
pbox_dp_looked(const struct pbox_dp *dp, unsigned i, uint64_t ns, uint32_t turns)
{
	return atomic_load_explicit(&dp->core[i]->emptied_ns, memory_order_acquire) >= ns ||
	       pbox_dp_turns(dp, i) - turns > TURNS_FOR_ALL;
}

/* The core that has the first queue of a port sends for control. */
int
core_send_for_control(struct pbox_dp *dp, const struct pbox_port *p, struct rte_mbuf *m)
{
	struct core *c = dp->core[p->conf.core[0]];

	m->port = p->conf.id;
	if (rte_ring_sp_enqueue(c->from_control, m) == 0) {
		core_call(c);
		return 0;
	}
	rte_pktmbuf_free(m);
	dp->control_lost++;
	return -ENOBUFS;
}

int
pbox_dp_control_send(struct pbox_dp *dp, const struct pbox_send *s)
{
	struct pbox_port *p = s->peer->port < ETHDEVS ? dp->port_of[s->peer->port] : NULL;
	struct rte_mbuf *m;

	if (p == NULL)
		return -ENODEV;
	m = rte_pktmbuf_alloc(dp->control_pool);
	if (m == NULL || !core_frame_copy(m, &dp->from[s->peer->port], s, 0, dp->control_ip_id++)) {
		rte_pktmbuf_free(m);
		dp->control_lost++;
		return -ENOBUFS;
	}
	return core_send_for_control(dp, p, m);
}

void
pbox_dp_control_wait(struct pbox_dp *dp, uint64_t ns)
{
	const struct timespec t = {
		.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
	struct pollfd fd = {.fd = dp->control.fd, .events = POLLIN};

	if (!waker_sleep(&dp->control))
		return;
	ppoll(&fd, 1, &t, NULL);
	waker_woke(&dp->control);
}

void
pbox_dp_control_call(struct pbox_dp *dp)
{
	waker_call(&dp->control);
}

uint64_t
pbox_dp_control_lost(const struct pbox_dp *dp)
{
	return dp->control_lost;
}
