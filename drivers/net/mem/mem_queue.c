/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>

#include <rte_branch_prediction.h>
#include <rte_malloc.h>
#include <rte_mempool.h>

#include "mem.h"

/* Mbufs given back to one pool at once. */
#define FREE_BURST 64
/* How many packets ahead their mbufs are fetched. */
#define AHEAD 4

static struct pbox_mem_ring *
ring_create(uint32_t size, unsigned int socket)
{
	struct pbox_mem_ring *r = rte_zmalloc_socket("net_mem",
		sizeof(*r) + size * sizeof(r->desc[0]), RTE_CACHE_LINE_SIZE, (int)socket);

	if (r != NULL)
		r->mask = size - 1;
	return r;
}

/* ---- receive -------------------------------------------------------------------------------- */

struct mem_rxq *
mem_rxq_create(uint16_t port, uint16_t descs, unsigned int socket, struct rte_mempool *pool)
{
	struct rte_mbuf first = {
		.data_off = RTE_PKTMBUF_HEADROOM, .refcnt = 1, .nb_segs = 1, .port = port};
	struct mem_rxq *q =
		rte_zmalloc_socket("net_mem", sizeof(*q), RTE_CACHE_LINE_SIZE, (int)socket);
	uint32_t size = rte_align32pow2(descs);

	if (q == NULL)
		return NULL;
	q->pool = pool;
	q->mask = size - 1;
	/* small rings in small steps, so that buffers are not missing for long */
	q->batch = descs >= 4 * MEM_REFILL ? MEM_REFILL : MEM_REFILL / 4;
	q->descs = descs - descs % q->batch;
	memcpy(&q->rearm, &first.rearm_data, sizeof(q->rearm));
	q->ring = ring_create(size, socket);
	q->sw = rte_zmalloc_socket(
		"net_mem", size * sizeof(*q->sw), RTE_CACHE_LINE_SIZE, (int)socket);
	if (q->ring == NULL || q->sw == NULL) {
		mem_rxq_free(q);
		return NULL;
	}
	return q;
}

/* Post as many buffers as there is room for, in bursts; what the pool lacks is tried again with the
 * next packets. A burst never wraps: its size divides the ring's. */
static void
mem_refill(struct mem_rxq *q)
{
	uint32_t posted = q->posted;

	while (q->descs - (posted - q->head) >= q->batch) {
		struct rte_mbuf **m = &q->sw[posted & q->mask];
		struct pbox_mem_desc *d = &q->ring->desc[posted & q->mask];

		if (unlikely(rte_mempool_get_bulk(q->pool, (void **)m, q->batch) != 0)) {
			q->no_mbuf += q->batch;
			break;
		}
		for (uint32_t i = 0; i < q->batch; i++) {
			d[i].addr = (uintptr_t)m[i]->buf_addr + RTE_PKTMBUF_HEADROOM;
			d[i].len = m[i]->buf_len - RTE_PKTMBUF_HEADROOM;
			d[i].flags = 0;
		}
		posted += q->batch;
	}
	if (posted != q->posted) {
		q->posted = posted;
		__atomic_store_n(&q->ring->posted, posted, __ATOMIC_RELEASE);
	}
}

int
mem_rxq_start(struct mem_rxq *q)
{
	q->head = q->done = q->posted = 0;
	q->ring->posted = q->ring->done = 0;
	mem_refill(q);
	if (q->posted == q->descs)
		return 0;
	mem_rxq_stop(q);
	return -ENOMEM;
}

void
mem_rxq_stop(struct mem_rxq *q)
{
	for (; q->head != q->posted; q->head++)
		rte_mempool_put(q->pool, q->sw[q->head & q->mask]);
}

void
mem_rxq_free(struct mem_rxq *q)
{
	if (q == NULL)
		return;
	mem_rxq_stop(q);
	rte_free(q->ring);
	rte_free(q->sw);
	rte_free(q);
}

/* Flags of a descriptor -> of an mbuf. */
static inline uint64_t
checksum_flags(unsigned flags)
{
	static const uint64_t ip[4] = {RTE_MBUF_F_RX_IP_CKSUM_UNKNOWN, RTE_MBUF_F_RX_IP_CKSUM_GOOD,
		RTE_MBUF_F_RX_IP_CKSUM_BAD, RTE_MBUF_F_RX_IP_CKSUM_BAD};
	static const uint64_t l4[4] = {RTE_MBUF_F_RX_L4_CKSUM_UNKNOWN, RTE_MBUF_F_RX_L4_CKSUM_GOOD,
		RTE_MBUF_F_RX_L4_CKSUM_BAD, RTE_MBUF_F_RX_L4_CKSUM_BAD};

	return ip[(flags >> 1 & 1) | (flags >> 2 & 2)] | l4[(flags >> 2 & 1) | (flags >> 3 & 2)];
}

uint16_t
mem_rx_burst(void *rxq, struct rte_mbuf **pkts, uint16_t n)
{
	struct mem_rxq *q = rxq;
	uint32_t head = q->head;
	uint64_t bytes = 0;

	if (q->done - head < n)
		q->done = __atomic_load_n(&q->ring->done, __ATOMIC_ACQUIRE);
	if (q->done - head < n)
		n = (uint16_t)(q->done - head);
	for (unsigned i = 0; i < n && i < AHEAD; i++)
		__builtin_prefetch(q->sw[(head + i) & q->mask], 1);
	for (unsigned i = 0; i < n; i++) {
		const struct pbox_mem_desc *d = &q->ring->desc[(head + i) & q->mask];
		struct rte_mbuf *m = q->sw[(head + i) & q->mask];

		if (i + AHEAD < n)
			__builtin_prefetch(q->sw[(head + i + AHEAD) & q->mask], 1);
		memcpy(&m->rearm_data, &q->rearm, sizeof(q->rearm));
		m->ol_flags = checksum_flags(d->flags);
		m->packet_type = 0;
		m->pkt_len = d->len;
		m->data_len = (uint16_t)d->len;
		bytes += d->len;
		pkts[i] = m;
	}
	q->head = head + n;
	q->packets += n;
	q->bytes += bytes;
	if (q->descs - (q->posted - q->head) >= q->batch)
		mem_refill(q);
	return n;
}

uint32_t
mem_rx_count(void *rxq)
{
	const struct mem_rxq *q = rxq;

	return __atomic_load_n(&q->ring->done, __ATOMIC_RELAXED) - q->head;
}

/* ---- transmit ------------------------------------------------------------------------------- */

struct mem_txq *
mem_txq_create(uint16_t descs, unsigned int socket)
{
	struct mem_txq *q =
		rte_zmalloc_socket("net_mem", sizeof(*q), RTE_CACHE_LINE_SIZE, (int)socket);
	uint32_t size = rte_align32pow2(descs);

	if (q == NULL)
		return NULL;
	q->mask = size - 1;
	q->descs = descs;
	q->ring = ring_create(size, socket);
	q->sw = rte_zmalloc_socket(
		"net_mem", size * sizeof(*q->sw), RTE_CACHE_LINE_SIZE, (int)socket);
	if (q->ring == NULL || q->sw == NULL) {
		mem_txq_free(q);
		return NULL;
	}
	return q;
}

/* Give back the segments [q->clean, end), those of one pool together. */
static void
mem_give_back(struct mem_txq *q, uint32_t end)
{
	struct rte_mbuf *batch[FREE_BURST];
	unsigned n = 0;

	for (uint32_t i = q->clean; i != end; i++) {
		struct rte_mbuf *m = rte_pktmbuf_prefree_seg(q->sw[i & q->mask]);

		if (unlikely(m == NULL))
			continue;
		if (n == FREE_BURST || (n > 0 && m->pool != batch[0]->pool)) {
			rte_mempool_put_bulk(batch[0]->pool, (void **)batch, n);
			n = 0;
		}
		batch[n++] = m;
	}
	if (n > 0)
		rte_mempool_put_bulk(batch[0]->pool, (void **)batch, n);
	q->clean = end;
}

/* What the peer has read goes back, at once: mbufs that are used again soon are in the cache. */
static inline void
mem_complete(struct mem_txq *q)
{
	uint32_t done;

	if (q->tail == q->clean)
		return;
	done = __atomic_load_n(&q->ring->done, __ATOMIC_ACQUIRE);
	if (done != q->clean)
		mem_give_back(q, done);
}

void
mem_txq_stop(struct mem_txq *q)
{
	mem_give_back(q, q->tail);
	q->tail = q->clean = 0;
	q->ring->posted = q->ring->done = 0;
}

void
mem_txq_free(struct mem_txq *q)
{
	if (q == NULL)
		return;
	if (q->sw != NULL && q->ring != NULL)
		mem_txq_stop(q);
	rte_free(q->ring);
	rte_free(q->sw);
	rte_free(q);
}

uint16_t
mem_tx_burst(void *txq, struct rte_mbuf **pkts, uint16_t n)
{
	struct mem_txq *q = txq;
	uint32_t tail = q->tail;
	uint64_t bytes = 0, gone = 0;
	uint16_t i;

	mem_complete(q);
	for (i = 0; i < n; i++) {
		struct rte_mbuf *m = pkts[i], *next;
		uint32_t at;

		if (unlikely(m->nb_segs > q->descs)) { /* would never fit */
			rte_pktmbuf_free(m);
			q->errors++;
			gone++;
			continue;
		}
		if (unlikely(q->descs - (tail - q->clean) < m->nb_segs))
			break;
		bytes += m->pkt_len;
		do {
			struct pbox_mem_desc *d;

			next = m->next;
			at = tail++ & q->mask;
			d = &q->ring->desc[at];
			d->addr = (uintptr_t)rte_pktmbuf_mtod(m, const void *);
			d->len = m->data_len;
			d->flags = next == NULL ? PBOX_MEM_END : 0;
			q->sw[at] = m;
			m = next;
		} while (m != NULL);
	}
	if (tail != q->tail) {
		q->tail = tail;
		__atomic_store_n(&q->ring->posted, tail, __ATOMIC_RELEASE);
	}
	q->packets += i - gone;
	q->bytes += bytes;
	return i;
}
