/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * A peer that sends back what it gets, on an lcore of this process: at the other side of a port in
 * memory (doc/net_mem.md), so that the lanes do what they do at a NIC. Payloads are not copied by them, and
 * come back in other buffers: the mirror copies them, as two wires would.
 */

#include <errno.h>
#include <string.h>

#include <pbox_mem_peer.h>
#include <rte_bus_vdev.h>
#include <rte_ethdev.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_malloc.h>
#include <rte_pause.h>

#include "reflect.h"
#include "testps.h"

#define DEVICE     "net_memory_mirror"
#define FRAMES     32 /* in a burst */
#define SWAP_ADDRS 26 /* offset of the IPv4 addresses */
#define SWAP_PORTS 34 /* of the UDP ports */

struct reflect {
	unsigned lcore, queues;
	_Atomic bool end;
	struct pbox_mem_peer peer[];
};

int
reflect_open(uint16_t *port, struct pbox_error *err)
{
	if (rte_vdev_init(DEVICE, "") != 0 || rte_eth_dev_get_port_by_name(DEVICE, port) != 0)
		return pbox_fail(
			err, EIO, "the driver net_mem does not start: give EAL more with -m");
	return 0;
}

static void
swap(uint8_t *a, uint8_t *b, unsigned n)
{
	uint8_t x[8];

	memcpy(x, a, n);
	memcpy(a, b, n);
	memcpy(b, x, n);
}

/* The frame that begins at segment @p at, into the @p i-th buffer; its number of segments, 0: it does not fit. */
static uint32_t
copy(struct pbox_mem_peer *p, uint32_t at, uint32_t i)
{
	struct pbox_mem_seg s;
	uint32_t room, len = 0, n = 0;
	uint8_t *to = pbox_mem_peer_buffer(p, i, &room);

	do {
		s = pbox_mem_peer_segment(p, at + n++);
		if (len + s.len <= room)
			memcpy(to + len, s.addr, s.len);
		len += s.len;
	} while (!s.end);
	if (len > room)
		len = 0; /* cannot be: all have one MTU. It is lost, and missed */
	if (len >= PBOX_NET_HEADERS_LEN) {
		swap(to, to + 6, 6);
		swap(to + SWAP_ADDRS, to + SWAP_ADDRS + 4, 4);
		swap(to + SWAP_PORTS, to + SWAP_PORTS + 2, 2);
	}
	pbox_mem_peer_fill(p, i, len, PBOX_MEM_IP_GOOD | PBOX_MEM_L4_GOOD);
	return n;
}

static uint32_t
burst(struct pbox_mem_peer *p)
{
	uint32_t segments = pbox_mem_peer_waiting(p), at = 0, n = 0;
	uint32_t room = segments > 0 ? pbox_mem_peer_room(p, FRAMES) : 0;

	while (at < segments && n < room && n < FRAMES)
		at += copy(p, at, n++);
	if (n == 0)
		return 0;
	pbox_mem_peer_read(p, at);
	pbox_mem_peer_release(p);
	pbox_mem_peer_send(p, n);
	return n;
}

static int
reflect_main(void *arg)
{
	struct reflect *r = arg;

	while (!atomic_load_explicit(&r->end, memory_order_acquire)) {
		uint32_t n = 0;

		for (unsigned q = 0; q < r->queues; q++)
			n += burst(&r->peer[q]);
		if (n == 0)
			rte_pause();
	}
	return 0;
}

struct reflect *
reflect_start(uint16_t port, unsigned queues, unsigned lcore, struct pbox_error *err)
{
	struct reflect *r = rte_zmalloc("reflect", sizeof(*r) + queues * sizeof(r->peer[0]), 64);
	bool good = r != NULL;

	for (unsigned q = 0; good && q < queues; q++)
		good = pbox_mem_peer_open(&r->peer[q], port, (uint16_t)q) == 0;
	if (good) {
		r->lcore = lcore;
		r->queues = queues;
		good = rte_eal_remote_launch(reflect_main, r, lcore) == 0;
	}
	if (!good) {
		rte_free(r);
		pbox_fail(err, EIO, "lcore %u cannot reflect: give EAL more with -m", lcore);
		return NULL;
	}
	return r;
}

void
reflect_stop(struct reflect *r)
{
	if (r == NULL)
		return;
	atomic_store(&r->end, true);
	rte_eal_wait_lcore(r->lcore);
	rte_free(r);
}
