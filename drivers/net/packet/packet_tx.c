/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <string.h>

#include <rte_branch_prediction.h>
#include <rte_mbuf.h>

#include "packet.h"

static struct virtio_net_hdr packet_plain; /* nothing to say about a frame; never written */

/* The segments of a frame without its first @p skip bytes, which are in the first. */
static unsigned
put_segments(struct iovec *iov, const struct rte_mbuf *m, uint32_t skip)
{
	unsigned n = 0;

	for (; m != NULL; m = m->next, skip = 0)
		if (m->data_len > skip)
			iov[n++] = (struct iovec){
				rte_pktmbuf_mtod_offset(m, void *, skip), m->data_len - skip};
	return n;
}

/* One message: a frame as it is, or the datagrams of a group after headers of their own. */
static unsigned
put_message(struct packet_txq *q, struct rte_mbuf **pkts, unsigned at, struct iovec *iov)
{
	const struct packet_group *g = &q->group[at];
	unsigned n = 0, i = g->first;

	if (g->n == 1) {
		iov[n++] = (struct iovec){&packet_plain, sizeof(packet_plain)};
		n += put_segments(iov + n, pkts[i], 0);
	} else {
		packet_super_headers(
			q->head[at], &q->vnet[at], rte_pktmbuf_mtod(pkts[i], const uint8_t *), g);
		iov[n++] = (struct iovec){&q->vnet[at], sizeof(q->vnet[at])};
		iov[n++] = (struct iovec){q->head[at], PACKET_HEADERS};
		for (unsigned k = 0; k < g->n; k++, i = q->next[i])
			n += put_segments(iov + n, pkts[i], PACKET_HEADERS);
	}
	q->msg[at].msg_hdr = (struct msghdr){.msg_iov = iov, .msg_iovlen = n};
	return n;
}

/* What became of a group: sent, or refused for good. Its mbufs are done with. */
static void
settle(struct packet_txq *q, struct rte_mbuf **pkts, const struct packet_group *g, bool sent)
{
	uint64_t bytes = 0;
	unsigned i = g->first;

	for (unsigned k = 0; k < g->n; k++, i = q->next[i]) {
		q->sent[i] = true;
		bytes += pkts[i]->pkt_len;
	}
	if (!sent) {
		packet_count(&q->count, PACKET_N_refused, g->n);
		return;
	}
	packet_count(&q->count, PACKET_N_packets, g->n);
	packet_count(&q->count, PACKET_N_bytes, bytes);
	if (g->n > 1) {
		packet_count(&q->count, PACKET_N_super_frames, 1);
		packet_count(&q->count, PACKET_N_gathered, g->n);
	}
}

static bool
is_full(int error)
{
	return error == EAGAIN || error == ENOBUFS || error == ENOMEM;
}

/* Send the messages of groups [from, to). @return the first that must wait, or @p to. */
static unsigned
send_groups(struct packet_txq *q, struct rte_mbuf **pkts, unsigned from, unsigned to)
{
	while (from < to) {
		int n = sendmmsg(q->fd, &q->msg[from], to - from, MSG_DONTWAIT);

		packet_count(&q->count, PACKET_N_calls, 1);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && is_full(errno))
			return from;
		if (n < 0 && q->group[from].n > 1 && errno == EINVAL) {
			/* a kernel before 6.2 */
			PACKET_LOG(WARNING,
				"%s: this kernel takes no UDP super-frames: one by one from here on",
				q->port->ifname);
			q->gso = false;
			return from;
		}
		if (n <= 0)
			settle(q, pkts, &q->group[from++], false);
		for (; n > 0; n--)
			settle(q, pkts, &q->group[from++], true);
	}
	return to;
}

static unsigned
make_groups(struct packet_txq *q, struct rte_mbuf **pkts, unsigned n)
{
	if (q->gso)
		return packet_gather(pkts, n, q->group, q->next);
	for (unsigned i = 0; i < n; i++)
		q->group[i] = (struct packet_group){.first = (uint16_t)i,
			.last = (uint16_t)i,
			.n = 1,
			.iovs = (uint16_t)(pkts[i]->nb_segs + 2)};
	return n;
}

/* Free what was sent, all together; the others go to the end, in their order. @return how many were sent */
static uint16_t
collect(struct packet_txq *q, struct rte_mbuf **pkts, unsigned n)
{
	struct rte_mbuf *done[PACKET_TX_FRAMES];
	unsigned waiting = n, sent = 0;

	for (unsigned i = n; i-- > 0;)
		if (q->sent[i])
			done[sent++] = pkts[i];
		else
			pkts[--waiting] = pkts[i];
	rte_pktmbuf_free_bulk(done, sent);
	return (uint16_t)waiting;
}

/* At most PACKET_TX_FRAMES. */
static uint16_t
send_some(struct packet_txq *q, struct rte_mbuf **pkts, unsigned n)
{
	unsigned groups = make_groups(q, pkts, n), done = 0, iovs = 0;

	memset(q->sent, 0, n * sizeof(q->sent[0]));
	for (unsigned g = 0; g < groups; g++) {
		bool endless = q->group[g].iovs > PACKET_TX_IOVS;

		if (endless || iovs + q->group[g].iovs > PACKET_TX_IOVS) {
			done = send_groups(q, pkts, done, g);
			if (done < g)
				return collect(q, pkts, n);
			iovs = 0;
		}
		if (unlikely(endless)) {
			settle(q, pkts, &q->group[g], false);
			done = g + 1;
			continue;
		}
		iovs += put_message(q, pkts, g, q->iov + iovs);
	}
	send_groups(q, pkts, done, groups);
	return collect(q, pkts, n);
}

uint16_t
packet_tx_burst(void *txq, struct rte_mbuf **pkts, uint16_t n)
{
	struct packet_txq *q = txq;
	uint16_t sent = 0;

	if (unlikely(q->fd < 0))
		return 0;
	while (sent < n) {
		unsigned some = RTE_MIN((unsigned)(n - sent), (unsigned)PACKET_TX_FRAMES);
		uint16_t took = send_some(q, pkts + sent, some);

		sent += took;
		if (took < some)
			break;
	}
	return sent;
}
