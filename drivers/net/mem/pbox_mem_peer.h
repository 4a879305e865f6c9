/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_MEM_PEER_H
#define PBOX_MEM_PEER_H

/**
 * @file
 * The other side of a net_mem port: what hardware does at a NIC, for a thread that plays the wire.
 *
 * A queue pair is two rings of 16-byte descriptors in shared memory, each with one producer and one
 * consumer and an index of either side on a cache line of its own:
 *
 *     receive   the driver posts empty buffers; the peer writes into them and completes them
 *     transmit  the driver posts segments of frames; the peer reads them and releases them
 *
 * As with DMA the peer touches no packet buffer but through the addresses it was given, and the
 * driver learns of what was done at its next burst. A buffer that is posted keeps what was in it: a
 * peer that writes headers alone leaves the payload of the last use, in the cache where it lies.
 *
 * Threads: all functions of one peer belong to one thread. It runs between the start and the stop of
 * the port, and opens its peers again after each start.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pbox_mem_desc {
	uint64_t addr;
	uint32_t len; /**< receive: room when posted, length when completed */
	uint16_t flags;
	uint16_t unused;
};

/** Flags of descriptors. */
#define PBOX_MEM_END     0x1u /**< transmit: the last segment of its frame */
#define PBOX_MEM_IP_GOOD 0x2u /**< receive: the IPv4 header checksum is right */
#define PBOX_MEM_L4_GOOD 0x4u /**< receive: so is the UDP or TCP checksum */
#define PBOX_MEM_IP_BAD  0x8u
#define PBOX_MEM_L4_BAD  0x10u

/** A ring: posted is the driver's index, done the peer's; both count on without end. */
struct pbox_mem_ring {
	uint32_t posted __attribute__((aligned(64)));
	uint32_t done __attribute__((aligned(64)));
	uint32_t mask __attribute__((aligned(64)));
	struct pbox_mem_desc desc[] __attribute__((aligned(64)));
};

/** One queue pair as its peer sees it. Owner: the peer's thread. */
struct pbox_mem_peer {
	struct pbox_mem_ring *rx, *tx; /**< named as the driver names them */
	uint32_t rx_next, rx_posted;   /**< next to complete; last seen of the driver's */
	uint32_t tx_next, tx_posted;   /**< next to read */
	uint32_t tx_done;              /**< released */
};

/** Take the peer's side of a queue pair of a started port. -ENODEV: not a net_mem port, -EINVAL: no
 * such queue, or the port is not started. */
int pbox_mem_peer_open(struct pbox_mem_peer *peer, uint16_t port, uint16_t queue);

/* ---- towards the driver ------------------------------------------------------------------- */

/** Buffers that may be filled: at least @p want if there are as many, else all that there are. */
static inline uint32_t
pbox_mem_peer_room(struct pbox_mem_peer *p, uint32_t want)
{
	if (p->rx_posted - p->rx_next < want)
		p->rx_posted = __atomic_load_n(&p->rx->posted, __ATOMIC_ACQUIRE);
	return p->rx_posted - p->rx_next;
}

/** The @p i-th of these buffers, and how many bytes it takes. */
static inline void *
pbox_mem_peer_buffer(const struct pbox_mem_peer *p, uint32_t i, uint32_t *room)
{
	const struct pbox_mem_desc *d = &p->rx->desc[(p->rx_next + i) & p->rx->mask];

	*room = d->len;
	return (void *)(uintptr_t)d->addr;
}

/** Complete the @p i-th buffer with a frame of @p len bytes, no more than its room. */
static inline void
pbox_mem_peer_fill(struct pbox_mem_peer *p, uint32_t i, uint32_t len, unsigned flags)
{
	struct pbox_mem_desc *d = &p->rx->desc[(p->rx_next + i) & p->rx->mask];

	d->len = len;
	d->flags = (uint16_t)flags;
}

/** The first @p n buffers are complete: give them to the driver. Once a burst. */
static inline void
pbox_mem_peer_send(struct pbox_mem_peer *p, uint32_t n)
{
	p->rx_next += n;
	__atomic_store_n(&p->rx->done, p->rx_next, __ATOMIC_RELEASE);
}

/* ---- from the driver ---------------------------------------------------------------------- */

struct pbox_mem_seg {
	const void *addr;
	uint32_t len;
	bool end; /**< last of its frame */
};

/** Segments that wait to be read. The driver posts whole frames. */
static inline uint32_t
pbox_mem_peer_waiting(struct pbox_mem_peer *p)
{
	if (p->tx_posted == p->tx_next)
		p->tx_posted = __atomic_load_n(&p->tx->posted, __ATOMIC_ACQUIRE);
	return p->tx_posted - p->tx_next;
}

/** The @p i-th of the segments that wait. */
static inline struct pbox_mem_seg
pbox_mem_peer_segment(const struct pbox_mem_peer *p, uint32_t i)
{
	const struct pbox_mem_desc *d = &p->tx->desc[(p->tx_next + i) & p->tx->mask];

	return (struct pbox_mem_seg){
		(const void *)(uintptr_t)d->addr, d->len, (d->flags & PBOX_MEM_END) != 0};
}

/** The first @p n segments have been read, but their memory is still needed. */
static inline void
pbox_mem_peer_read(struct pbox_mem_peer *p, uint32_t n)
{
	p->tx_next += n;
}

/** All segments that were read may go back to their owner. Once a burst. */
static inline void
pbox_mem_peer_release(struct pbox_mem_peer *p)
{
	if (p->tx_done == p->tx_next)
		return;
	p->tx_done = p->tx_next;
	__atomic_store_n(&p->tx->done, p->tx_done, __ATOMIC_RELEASE);
}

#endif /* PBOX_MEM_PEER_H */
