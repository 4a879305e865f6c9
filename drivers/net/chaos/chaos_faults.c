/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <rte_mbuf.h>

#include "chaos_faults.h"

static bool
matches(const struct chaos_conf *c, const struct rte_mbuf *m)
{
	for (uint32_t t = 0; t < c->target_terms; t++) {
		const struct chaos_term *term = &c->target[t];
		uint8_t copy[CHAOS_TERM_BYTES];
		const uint8_t *p = rte_pktmbuf_read(m, term->offset, term->len, copy);

		if (p == NULL)
			return false;
		for (uint32_t i = 0; i < term->len; i++)
			if ((p[i] & term->mask[i]) != term->value[i])
				return false;
	}
	return true;
}

/* The first so many over all queues of the direction. */
static bool
is_target(struct chaos_queue *q, const struct rte_mbuf *m)
{
	uint32_t left;

	if (q->conf.target_first == 0 || !matches(&q->conf, m))
		return false;
	left = __atomic_load_n(&q->side->target_left, __ATOMIC_RELAXED);
	while (left > 0)
		if (__atomic_compare_exchange_n(&q->side->target_left, &left, left - 1, true,
			    __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			return true;
	return false;
}

/* CHAOS_COUNTER_MAX: it lives. Each model sees each packet that the ones before let live. */
enum chaos_counter
chaos_cause_of_death(struct chaos_queue *q, const struct rte_mbuf *m)
{
	const struct chaos_conf *c = &q->conf;

	if (c->blackhole)
		return CHAOS_N_blackholed;
	if (is_target(q, m))
		return CHAOS_N_target_dropped;
	if (chaos_strikes(q, CHAOS_F_LOSS, c->loss))
		return CHAOS_N_lost;
	if (q->burst_left == 0 && chaos_strikes(q, CHAOS_F_BURST, c->burst))
		q->burst_left = c->burst_len;
	if (q->burst_left > 0) {
		q->burst_left--;
		return CHAOS_N_burst_lost;
	}
	if (c->gilbert_bad > 0) {
		if (chaos_strikes(
			    q, CHAOS_F_GILBERT, q->gilbert_bad ? c->gilbert_good : c->gilbert_bad))
			q->gilbert_bad = !q->gilbert_bad;
		if (q->gilbert_bad && chaos_strikes(q, CHAOS_F_GILBERT, c->gilbert_loss))
			return CHAOS_N_gilbert_lost;
	}
	return CHAOS_COUNTER_MAX;
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
struct rte_mbuf *
chaos_copy(struct chaos_queue *q, struct rte_mbuf *m, uint32_t len)
{
	return rte_pktmbuf_copy(m, q->dir == CHAOS_RX ? m->pool : q->port->pool, 0, len);
}

/* Make a packet ours alone; NULL: no mbuf for it, and the packet stays as it is. */
static struct rte_mbuf *
make_private(struct chaos_queue *q, struct rte_mbuf *m, uint32_t len)
{
	struct rte_mbuf *copy = chaos_copy(q, m, len);

	if (copy == NULL)
		return NULL;
	chaos_count(q, CHAOS_N_copied, 1);
	rte_pktmbuf_free(m);
	return copy;
}

struct rte_mbuf *
chaos_corrupt(struct chaos_queue *q, struct rte_mbuf *m)
{
	uint32_t at = q->conf.corrupt_from, len = m->pkt_len;
	uint8_t change = (uint8_t)(1 + chaos_random_below(q, CHAOS_F_CORRUPT, 255));
	struct rte_mbuf *own;

	if (at >= len)
		return m;
	at += chaos_random_below(q, CHAOS_F_CORRUPT, len - at);
	own = is_private(m) ? m : make_private(q, m, len);
	if (own == NULL) {
		chaos_count(q, CHAOS_N_nombuf, 1);
		return m;
	}
	m = own;
	for (; at >= own->data_len; own = own->next)
		at -= own->data_len;
	*rte_pktmbuf_mtod_offset(own, uint8_t *, at) ^= change;
	chaos_count(q, CHAOS_N_corrupted, 1);
	return m;
}

/* What a switch does instead of losing a packet (RFC 3168): untagged IPv4 with ECT(0) or ECT(1)
 * gets CE, and its header's checksum the difference (RFC 1624). */
struct rte_mbuf *
chaos_mark(struct chaos_queue *q, struct rte_mbuf *m)
{
	const uint8_t *eth = rte_pktmbuf_mtod(m, const uint8_t *);
	struct rte_mbuf *own;
	uint8_t *ip;
	uint32_t sum;

	if (m->data_len < 34 || eth[12] != 8 || eth[13] != 0 || eth[14] >> 4 != 4 ||
		(eth[15] & 3) == 0 || (eth[15] & 3) == 3)
		return m;
	own = is_private(m) ? m : make_private(q, m, m->pkt_len);
	if (own == NULL) {
		chaos_count(q, CHAOS_N_nombuf, 1);
		return m;
	}
	ip = rte_pktmbuf_mtod_offset(own, uint8_t *, 14);
	sum = (uint32_t)(ip[10] << 8 | ip[11]) + (ip[1] & 3u) - 3u + 0xFFFF;
	sum = (sum & 0xFFFF) + (sum >> 16);
	ip[1] |= 3;
	ip[10] = (uint8_t)(sum >> 8);
	ip[11] = (uint8_t)sum;
	chaos_count(q, CHAOS_N_marked, 1);
	return own;
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

struct rte_mbuf *
chaos_cut_short(struct chaos_queue *q, struct rte_mbuf *m)
{
	uint32_t min = RTE_MAX(q->conf.truncate_min, 1u), len;
	struct rte_mbuf *own = m;

	len = chaos_random_below(q, CHAOS_F_TRUNCATE, m->pkt_len > min ? m->pkt_len - min : 1) +
	      min;
	if (len >= m->pkt_len)
		return m;
	if (is_private(m))
		cut_in_place(m, len);
	else
		own = make_private(q, m, len);
	if (own == NULL) {
		chaos_count(q, CHAOS_N_nombuf, 1);
		return m;
	}
	chaos_count(q, CHAOS_N_truncated, 1);
	return own;
}

/* What is held must not change under us: in a network, packets do not either. */
struct rte_mbuf *
chaos_fit_to_hold(struct chaos_queue *q, struct rte_mbuf *m)
{
	struct rte_mbuf *own;

	if (q->dir == CHAOS_RX || is_private(m))
		return m;
	own = make_private(q, m, m->pkt_len);
	if (own == NULL) {
		rte_pktmbuf_free(m);
		chaos_count(q, CHAOS_N_overflow, 1);
	}
	return own;
}
