/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* The uplinks of a rack's box: their datagrams, sums of the data cores, and what the registrar asks of them. */

#include <arpa/inet.h>
#include <errno.h>

#include <sodium.h>

#include <pbox_registrar_snapshot.h>
#include <pbox_uplinks.h>

#include "rack_waits.h"

/* Full datagrams that may arrive at once: the ring from a data core has room for so many, and others. */
#define WINDOW 256
/* While sums are up, and nothing is due sooner. */
#define REST_NS (NS_PER_MS)

static void
on_link_send(void *ctx, unsigned link, const struct pbox_client_tx *d, unsigned n)
{
	const struct pbox_control *c = ctx;

	for (unsigned i = 0; i < n; i++)
		pbox_dp_uplink_send(c->conf.dp, link, d[i].to->addr.sin_addr.s_addr,
			ntohs(d[i].to->addr.sin_port), d[i].iov, d[i].n, d[i].bytes);
}

static uint64_t
on_link_random(void *ctx)
{
	uint64_t x;

	(void)ctx;
	randombytes_buf(&x, sizeof(x));
	return x;
}

static bool
on_link_down(void *ctx, const struct pbox_up *up)
{
	const struct pbox_control *c = ctx;

	return pbox_dp_down(c->conf.dp, up);
}

static void
on_link_loaded(void *ctx, const struct pbox_job *job, uint32_t table, const struct pbox_error *err)
{
	const struct pbox_control *c = ctx;

	pbox_registrar_loaded(c->registrar, job, table, err, c->now_ns);
}

static void
on_link_failed(void *ctx, const struct pbox_job *job, const char *why)
{
	const struct pbox_control *c = ctx;

	pbox_log(PBOX_LOG_ERROR, "the uplink has failed: %s", why);
	pbox_registrar_uplink_failed(c->registrar, job, why, c->now_ns);
}

static const struct pbox_uplinks_ops uplinks_ops = {
	.send = on_link_send,
	.random = on_link_random,
	.down = on_link_down,
	.loaded = on_link_loaded,
	.failed = on_link_failed,
};

int
uplink_start(struct pbox_control *c, struct pbox_error *err)
{
	struct pbox_uplinks_conf conf = {.rack = c->conf.registrar.rack,
		.upper = {.sin_family = AF_INET, .sin_port = htons(c->conf.upper_udp)},
		.mtu = c->conf.registrar.mtu,
		.window = WINDOW,
		.host = c->conf.host,
		.ops = &uplinks_ops,
		.ctx = c};

	if (conf.rack.racks == 0)
		return 0;
	conf.upper.sin_addr.s_addr = c->conf.upper_ip;
	c->uplinks = pbox_uplinks_create(&conf);
	return c->uplinks != NULL ? 0 : pbox_fail(err, ENOMEM, "out of memory for uplinks");
}

void
uplink_stop(struct pbox_control *c)
{
	rack_waits_stop(c);
	pbox_uplinks_destroy(c->uplinks);
	c->uplinks = NULL;
}

unsigned
uplink_step(struct pbox_control *c)
{
	struct pbox_up up;
	unsigned n = 0;

	while (pbox_dp_up(c->conf.dp, &up)) {
		pbox_uplinks_up(c->uplinks, &up);
		n++;
	}
	c->uplinks_due = pbox_uplinks_step(c->uplinks, c->now_ns);
	rack_waits_step(c);
	return n;
}

bool
uplink_packet(struct pbox_control *c, const struct rte_mbuf *m)
{
	struct pbox_dp_datagram d;
	struct pbox_client_rx rx = {0};
	unsigned link;

	if (!pbox_dp_uplink_packet(c->conf.dp, m, &link, &d))
		return false;
	if (link >= PBOX_UPLINKS) /* ARP */
		return true;
	rx.data = d.payload;
	rx.len = d.len;
	rx.ecn = d.ce ? 3 : 0;
	rx.from.sin_family = AF_INET;
	rx.from.sin_addr.s_addr = d.peer.ip;
	rx.from.sin_port = htons(d.peer.udp);
	pbox_uplinks_rx(c->uplinks, link, &rx, 1, c->now_ns);
	return true;
}

bool
uplink_rest(struct pbox_control *c)
{
	uint64_t ns = REST_NS;

	if (c->uplinks_due == UINT64_MAX)
		return false;
	if (c->uplinks_due <= c->now_ns)
		return true;
	if (c->uplinks_due - c->now_ns < ns)
		ns = c->uplinks_due - c->now_ns;
	pbox_dp_control_wait(c->conf.dp, ns);
	return true;
}

/* ---- the registrar's ------------------------------------------------------------------------- */

int
uplink_join(void *ctx, const struct pbox_registrar_uplink *run, unsigned *window,
	struct pbox_error *err)
{
	struct pbox_control *c = ctx;

	return pbox_uplinks_uplink(c->uplinks, run, c->now_ns, window, err);
}

void
uplink_begin(void *ctx, const struct pbox_job *job, const uint8_t *run)
{
	struct pbox_control *c = ctx;

	pbox_uplinks_begin(c->uplinks, job, run);
}

void
uplink_end(void *ctx, const struct pbox_job *job)
{
	struct pbox_control *c = ctx;

	bool stops = atomic_load_explicit(&c->stop, memory_order_relaxed);

	if (c->uplinks != NULL)
		pbox_uplinks_end(c->uplinks, job, !stops, c->now_ns);
}

int
uplink_restore(void *ctx, const struct pbox_job *job, struct pbox_table *t, bool restoring)
{
	struct pbox_control *c = ctx;

	return pbox_uplinks_restore(c->uplinks, job, t, restoring);
}

void
uplink_restored(void *ctx, const struct pbox_job *job, const struct pbox_table *t)
{
	struct pbox_control *c = ctx;

	pbox_uplinks_restored(c->uplinks, job, t);
}

void
uplink_restore_cancel(void *ctx, const struct pbox_job *job, uint32_t table)
{
	struct pbox_control *c = ctx;

	pbox_uplinks_restore_cancel(c->uplinks, job, table);
}

void
uplink_restore_text(void *ctx, const struct pbox_job *job, uint32_t table, char *text, size_t cap)
{
	struct pbox_control *c = ctx;

	pbox_uplinks_restore_text(c->uplinks, job, table, text, cap);
}
