/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>

#include <rte_mbuf.h>

#include "chaos.h"

/* Mbufs as frames of a line. */

static uint32_t
frame_length(const void *frame)
{
	return ((const struct rte_mbuf *)frame)->pkt_len;
}

static const void *
frame_read(const void *frame, uint32_t offset, uint32_t len, void *copy)
{
	return rte_pktmbuf_read(frame, offset, len, copy);
}

static void
frame_drop(void *ctx __rte_unused, void *frame)
{
	rte_pktmbuf_free(frame);
}

/* Whether nobody else sees the mbufs or the bytes of a packet. */
static bool
is_private(const struct rte_mbuf *m)
{
	for (; m != NULL; m = m->next)
		if (!RTE_MBUF_DIRECT(m) || rte_mbuf_refcnt_read(m) != 1)
			return false;
	return true;
}

/* The first @p len bytes of a packet in mbufs of their own. Received packets are copied within the
 * application's pool, sent ones into ours: theirs may be of any kind. */
static struct rte_mbuf *
copy_of(const struct chaos_queue *q, const struct rte_mbuf *m, uint32_t len)
{
	return rte_pktmbuf_copy(m, q->dir == PBOX_FAULT_RX ? m->pool : q->port->pool, 0, len);
}

static void *
frame_copy(void *ctx, void *frame)
{
	return copy_of(ctx, frame, ((struct rte_mbuf *)frame)->pkt_len);
}

/* Make a packet ours alone, if it is not; -ENOMEM: no mbuf for it, and it stays as it is. */
static int
make_private(struct chaos_queue *q, void **frame, uint32_t len)
{
	struct rte_mbuf *copy;

	if (is_private(*frame))
		return 0;
	copy = copy_of(q, *frame, len);
	if (copy == NULL)
		return -ENOMEM;
	pbox_fault_line_add(q->line, PBOX_FAULT_N_copied, 1);
	rte_pktmbuf_free(*frame);
	*frame = copy;
	return 0;
}

static int
frame_corrupt(void *ctx, void **frame, uint32_t at, uint8_t change)
{
	struct rte_mbuf *m = *frame;

	if (make_private(ctx, frame, m->pkt_len) != 0)
		return -ENOMEM;
	for (m = *frame; at >= m->data_len; m = m->next)
		at -= m->data_len;
	*rte_pktmbuf_mtod_offset(m, uint8_t *, at) ^= change;
	return 0;
}

/* Untagged IPv4 with ECT(0) or ECT(1) gets CE, and its header's checksum the difference (RFC
 * 3168, RFC 1624). */
static int
frame_mark(void *ctx, void **frame)
{
	const struct rte_mbuf *m = *frame;
	const uint8_t *eth = rte_pktmbuf_mtod(m, const uint8_t *);
	uint8_t *ip;
	uint32_t sum;

	if (m->data_len < 34 || eth[12] != 8 || eth[13] != 0 || eth[14] >> 4 != 4 ||
		(eth[15] & 3) == 0 || (eth[15] & 3) == 3)
		return 0;
	if (make_private(ctx, frame, m->pkt_len) != 0)
		return -ENOMEM;
	ip = rte_pktmbuf_mtod_offset((struct rte_mbuf *)*frame, uint8_t *, 14);
	sum = (uint32_t)(ip[10] << 8 | ip[11]) + (ip[1] & 3u) - 3u + 0xFFFF;
	sum = (sum & 0xFFFF) + (sum >> 16);
	ip[1] |= 3;
	ip[10] = (uint8_t)(sum >> 8);
	ip[11] = (uint8_t)sum;
	return 1;
}

static void
cut_in_place(struct rte_mbuf *m, uint32_t len)
{
	struct rte_mbuf *seg = m;

	m->pkt_len = len;
	m->nb_segs = 1;
	for (; len > seg->data_len; seg = seg->next, m->nb_segs++)
		len -= seg->data_len;
	seg->data_len = (uint16_t)len;
	rte_pktmbuf_free(seg->next);
	seg->next = NULL;
}

static int
frame_truncate(void *ctx, void **frame, uint32_t len)
{
	if (make_private(ctx, frame, len) != 0)
		return -ENOMEM;
	cut_in_place(*frame, len);
	return 0;
}

/* What is held must not change under us: in a network, packets do not either. */
static int
frame_keep(void *ctx, void **frame)
{
	struct chaos_queue *q = ctx;
	const struct rte_mbuf *m = *frame;

	return q->dir == PBOX_FAULT_RX ? 0 : make_private(q, frame, m->pkt_len);
}

const struct pbox_fault_ops chaos_frames = {
	.length = frame_length,
	.read = frame_read,
	.copy = frame_copy,
	.corrupt = frame_corrupt,
	.truncate = frame_truncate,
	.mark = frame_mark,
	.keep = frame_keep,
	.drop = frame_drop,
};
