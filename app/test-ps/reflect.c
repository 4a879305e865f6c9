/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * A peer that sends back what it gets, on an lcore of this process: at the other side of a port in
 * memory (doc/net_mem.md), so that the lanes do what they do at a NIC.
 *
 * No CPU moves the payloads that a NIC receives, and none does here, or the reflector's copies would be what is measured.
 * The lanes send few different payloads, whose memory does not change while they run (check.c), and a posted
 * buffer keeps what was in it: nobody else writes there. So frames wait, up to HOLD of them, until a buffer comes up
 * that has their payload already: it gets their headers. Frames that have waited for too long, the last ones,
 * and short ones are copied.
 */

#include <errno.h>
#include <string.h>
#include <time.h>

#include <pbox_mem_peer.h>
#include <rte_bus_vdev.h>
#include <rte_cycles.h>
#include <rte_ethdev.h>
#include <rte_launch.h>
#include <rte_malloc.h>
#include <rte_pause.h>

#include "reflect.h"
#include "testps.h"

#define DEVICE     "net_memory_reflector"
#define FRAMES     64 /* in a burst */
#define AHEAD      8
#define SWAP_ADDRS 26   /* offset of the IPv4 addresses */
#define SWAP_PORTS 34   /* of the UDP ports */
#define HOLD       96   /* less than a worker's window */
#define WAITING    512  /* frames from the oldest that waits to the newest; half as many wait */
#define PAYLOADS   128  /* that are known, a power of two */
#define BUFFERS    8192 /* the same */
#define PROBES     16
#define LONG       1024 /* bytes of a payload; shorter ones are copied as soon as they are found */
#define IDLE_US    20
#define FORGET_MS  1000
#define NONE       UINT16_MAX

/* Headers whose payload is known. */
struct waiting {
	uint8_t head[FRAME_HEADERS];
	uint16_t payload, next; /* next with that payload */
	bool gone;
} __rte_cache_aligned;

struct payload {
	const void *addr;
	uint32_t len, n; /* frames that wait */
	uint16_t first, last;
};

struct lies {
	const void *buffer;
	uint32_t payload;
};

struct reflect_queue {
	struct pbox_mem_peer peer;
	uint32_t head, tail, n;  /* frame[head % WAITING] is the oldest; n are not gone */
	bool knows;              /* a payload */
	uint64_t heard;          /* tsc */
	uint64_t frames, copies; /* that were sent back, and those of them that were copied */
	struct waiting frame[WAITING];
	struct payload payload[PAYLOADS];
	struct lies lies[BUFFERS];
};

struct reflect {
	unsigned lcore, queues;
	uint64_t idle; /* ticks */
	_Atomic bool end;
	_Atomic unsigned forget, forgot;
	struct reflect_queue queue[];
};

int
reflect_open(uint16_t *port, struct pbox_error *err)
{
	if (rte_vdev_init(DEVICE, "") != 0 || rte_eth_dev_get_port_by_name(DEVICE, port) != 0)
		return pbox_fail(
			err, EIO, "the driver net_mem does not start: give EAL more with -m");
	return 0;
}

static inline uint32_t
hash(const void *p)
{
	return (uint32_t)(((uint64_t)(uintptr_t)p >> 3) * UINT64_C(0x9E3779B97F4A7C15) >> 40);
}

/* Where a payload, or what lies in a buffer, is noted; NULL: there is no room. */
static inline struct payload *
payload_at(struct reflect_queue *q, const void *addr, uint32_t len)
{
	for (uint32_t i = hash(addr) + len, k = 0; k < PROBES; i++, k++) {
		struct payload *p = &q->payload[i % PAYLOADS];

		if (p->addr == NULL)
			*p = (struct payload){.addr = addr, .len = len};
		if (p->addr == addr && p->len == len)
			return p;
	}
	return NULL;
}

static inline struct lies *
lies_at(struct reflect_queue *q, const void *buffer)
{
	for (uint32_t i = hash(buffer), k = 0; k < PROBES; i++, k++) {
		struct lies *b = &q->lies[i % BUFFERS];

		if (b->buffer == NULL)
			*b = (struct lies){buffer, NONE};
		if (b->buffer == buffer)
			return b;
	}
	return NULL;
}

static inline void
swap(uint8_t *a, uint8_t *b, unsigned n)
{
	uint8_t x[8];

	memcpy(x, a, n);
	memcpy(a, b, n);
	memcpy(b, x, n);
}

static inline void
turn_round(uint8_t *frame)
{
	swap(frame, frame + 6, 6);
	swap(frame + SWAP_ADDRS, frame + SWAP_ADDRS + 4, 4);
	swap(frame + SWAP_PORTS, frame + SWAP_PORTS + 2, 2);
}

static inline void
sent(struct reflect_queue *q, uint32_t i, uint32_t len, bool copied)
{
	pbox_mem_peer_fill(&q->peer, i, len, PBOX_MEM_IP_GOOD | PBOX_MEM_L4_GOOD);
	pbox_stat_add(&q->frames, 1);
	pbox_stat_add(&q->copies, copied);
}

/* A frame that begins at segment @p at, copied into the @p i-th buffer; its number of segments. */
static uint32_t
copy(struct reflect_queue *q, uint32_t at, uint32_t i)
{
	struct pbox_mem_seg s;
	uint32_t room, len = 0, n = 0;
	uint8_t *to = pbox_mem_peer_buffer(&q->peer, i, &room);
	struct lies *b = q->knows ? lies_at(q, to) : NULL;

	do {
		s = pbox_mem_peer_segment(&q->peer, at + n++);
		if (len + s.len <= room)
			memcpy(to + len, s.addr, s.len);
		len += s.len;
	} while (!s.end);
	if (len > room)
		len = 0; /* cannot be: all have one MTU. It is lost, and missed */
	if (len >= PBOX_NET_HEADERS_LEN)
		turn_round(to);
	if (b != NULL)
		b->payload = NONE;
	sent(q, i, len, true);
	return n;
}

/* Headers and a payload, as all lanes send them; false: another form, or not worth it. */
static bool
reflect_note(struct reflect_queue *q, uint32_t at)
{
	struct pbox_mem_seg s = pbox_mem_peer_segment(&q->peer, at), t;
	uint32_t i = q->tail % WAITING;
	struct waiting *w = &q->frame[i];
	struct payload *p;

	if (s.end || s.len != FRAME_HEADERS)
		return false;
	t = pbox_mem_peer_segment(&q->peer, at + 1);
	p = t.end && t.len >= LONG ? payload_at(q, t.addr, t.len) : NULL;
	if (p == NULL)
		return false;
	memcpy(w->head, s.addr, FRAME_HEADERS);
	w->payload = (uint16_t)(p - q->payload);
	w->next = NONE;
	w->gone = false;
	if (p->n++ == 0)
		p->first = (uint16_t)i;
	else
		q->frame[p->last].next = (uint16_t)i;
	p->last = (uint16_t)i;
	q->tail++;
	q->n++;
	q->knows = true;
	return true;
}

/* Those at the front that are gone. */
static inline void
advance(struct reflect_queue *q)
{
	while (q->head != q->tail && q->frame[q->head % WAITING].gone)
		q->head++;
}

static bool
reflect_take(struct reflect_queue *q)
{
	struct pbox_mem_peer *p = &q->peer;
	uint32_t segments = pbox_mem_peer_waiting(p), at = 0, copies = 0;
	uint32_t room = segments > 0 ? pbox_mem_peer_room(p, FRAMES) : 0;

	advance(q);
	for (uint32_t n = 0;
		at < segments && n < FRAMES && q->n < WAITING / 2 && q->tail - q->head < WAITING;
		n++) {
		if (at + 2 * AHEAD < segments) {
			const uint8_t *head = pbox_mem_peer_segment(p, at + 2 * AHEAD).addr;

			__builtin_prefetch(head);
			__builtin_prefetch(head + RTE_CACHE_LINE_SIZE);
		}
		if (reflect_note(q, at))
			at += 2;
		else if (copies < room)
			at += copy(q, at, copies++);
		else
			break;
	}
	pbox_mem_peer_read(p, at);
	pbox_mem_peer_release(p);
	if (copies > 0)
		pbox_mem_peer_send(p, copies);
	return at > 0;
}

/* A waiting frame into the @p i-th buffer: the first that has the payload that lies there, or the oldest. */
static void
give(struct reflect_queue *q, uint32_t i)
{
	uint32_t room, oldest, len;
	uint8_t *to = pbox_mem_peer_buffer(&q->peer, i, &room);
	struct lies *b = lies_at(q, to);
	struct payload *p = NULL;
	struct waiting *w;
	bool copied = true;

	advance(q);
	oldest = q->frame[q->head % WAITING].payload;
	if (b != NULL && b->payload != NONE && q->tail - q->head < WAITING - FRAMES) {
		p = &q->payload[b->payload];
		copied = p->n == 0;
	}
	if (copied) {
		p = &q->payload[oldest];
		copied = b == NULL || b->payload != oldest;
	}
	w = &q->frame[p->first];
	p->first = w->next;
	p->n--;
	w->gone = true;
	q->n--;
	len = FRAME_HEADERS + p->len;
	if (len > room) {
		sent(q, i, 0, false);
		return;
	}
	memcpy(to, w->head, FRAME_HEADERS);
	turn_round(to);
	if (copied)
		memcpy(to + FRAME_HEADERS, p->addr, p->len);
	if (copied && b != NULL)
		b->payload = (uint32_t)(p - q->payload);
	sent(q, i, len, copied);
}

/* While more comes some stay, so that a buffer with the right payload comes for each. */
static bool
reflect_give_back(struct reflect_queue *q, bool all)
{
	uint32_t keep = all ? 0 : HOLD, room, n = 0;

	if (q->n <= keep)
		return false;
	room = RTE_MIN(pbox_mem_peer_room(&q->peer, FRAMES), (uint32_t)FRAMES);
	room = RTE_MIN(room, q->n - keep);
	for (uint32_t i = 0; i < room; i++) {
		uint32_t size;
		const uint8_t *to = pbox_mem_peer_buffer(&q->peer, i, &size);

		ask_to_write(to);
		ask_to_write(to + RTE_CACHE_LINE_SIZE);
	}
	while (n < room)
		give(q, n++);
	if (n > 0)
		pbox_mem_peer_send(&q->peer, n);
	return n > 0;
}

static void
reflect_forget_worker(struct reflect_queue *q)
{
	uint32_t n;

	while ((n = pbox_mem_peer_waiting(&q->peer)) > 0) {
		pbox_mem_peer_read(&q->peer, n);
		pbox_mem_peer_release(&q->peer);
	}
	q->head = q->tail = q->n = 0;
	q->knows = false;
	memset(q->payload, 0, sizeof(q->payload));
	memset(q->lies, 0, sizeof(q->lies));
}

static int
reflect_main(void *arg)
{
	struct reflect *r = arg;

	while (!atomic_load_explicit(&r->end, memory_order_acquire)) {
		unsigned wanted = atomic_load_explicit(&r->forget, memory_order_acquire);
		bool busy = false;

		for (unsigned i = 0; i < r->queues; i++) {
			struct reflect_queue *q = &r->queue[i];
			uint64_t now = rte_rdtsc();

			if (wanted != atomic_load_explicit(&r->forgot, memory_order_relaxed))
				reflect_forget_worker(q);
			if (reflect_take(q))
				q->heard = now;
			busy |= reflect_give_back(q, now - q->heard > r->idle);
		}
		atomic_store_explicit(&r->forgot, wanted, memory_order_release);
		if (!busy)
			rte_pause();
	}
	return 0;
}

struct reflect *
reflect_start(uint16_t port, unsigned queues, unsigned lcore, struct pbox_error *err)
{
	struct reflect *r = rte_zmalloc("reflect", sizeof(*r) + queues * sizeof(r->queue[0]), 64);
	bool good = r != NULL;

	for (unsigned q = 0; good && q < queues; q++)
		good = pbox_mem_peer_open(&r->queue[q].peer, port, (uint16_t)q) == 0;
	if (good) {
		r->lcore = lcore;
		r->queues = queues;
		r->idle = rte_get_tsc_hz() / US_SECOND * IDLE_US;
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
reflect_forget(struct reflect *r)
{
	static const struct timespec nap = {.tv_nsec = 1000000};
	unsigned wanted = atomic_fetch_add(&r->forget, 1) + 1;

	for (unsigned i = 0; i < FORGET_MS && atomic_load(&r->forgot) != wanted; i++)
		nanosleep(&nap, NULL);
}

void
reflect_counts(const struct reflect *r, uint64_t *frames, uint64_t *copies)
{
	*frames = *copies = 0;
	for (unsigned i = 0; i < r->queues; i++) {
		*frames += pbox_stat_get(&r->queue[i].frames);
		*copies += pbox_stat_get(&r->queue[i].copies);
	}
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
