/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "worker_impl.h"

/* Frames to datagrams and back: batches, several small frames in one datagram, tags. */

/* ---- sending -------------------------------------------------------------------------- */

void
link_flush(struct link *l)
{
	unsigned n = l->n_tx;

	l->n_tx = l->n_iovs = l->n_hdrs = 0;
	l->head_bytes = l->flat_bytes = 0;
	l->loose = false;
	if (n > 0)
		l->port->send(l->port->ctx, l->tx, n);
}

/** Frames without payload go several in one datagram. */
static bool
link_joins(const struct link *l, const struct pbox_client_tx *d, const struct pbox_client_peer *to,
	uint32_t bytes)
{
	return l->heads && d->to == to && d->bytes + bytes <= l->port->mtu - 28;
}

/**
 * Does the frame leave in a train of many, which the kernel copies? Then it is put together here, by the pass that makes its CRC: the
 * kernel takes a train in one piece, which is in the cache then, for less than a header and a payload in turn. With a tag, which is made
 * of what is gathered, it stays in pieces.
 */
static bool
link_is_flat(const struct link *l, uint32_t tag, unsigned n, uint32_t length)
{
	return n > 0 && tag == 0 && l->port->train > 1 && PBOX_HDR_LEN + length <= LINK_FLAT_MOST;
}

static void
link_frame_flat(struct link *l, struct pbox_client_peer *to, const struct pbox_hdr *hdr,
	const struct iovec *iov, unsigned n)
{
	uint32_t bytes = PBOX_HDR_LEN, crc = 0;
	uint8_t *frame;

	if (l->n_iovs == LINK_IOVS || l->n_tx >= l->port->batch ||
		l->flat_bytes + PBOX_HDR_LEN + hdr->length > LINK_FLAT)
		link_flush(l);
	frame = l->flat + l->flat_bytes;
	for (unsigned i = 0; i < n; i++) {
		assert(l->flat_bytes + bytes + iov[i].iov_len <= LINK_FLAT);
		crc = pbox_crc32c_copy(crc, frame + bytes, iov[i].iov_base, iov[i].iov_len);
		bytes += (uint32_t)iov[i].iov_len;
	}
	pbox_frame_encode(frame, hdr, crc);
	l->flat_bytes += bytes;
	l->iov[l->n_iovs] = (struct iovec){frame, bytes};
	l->tx[l->n_tx++] = (struct pbox_client_tx){
		.to = to, .iov = &l->iov[l->n_iovs++], .n = 1, .bytes = bytes};
	l->heads = false;
	l->tx_frames++;
	l->tx_bytes += bytes;
}

void
link_frame(struct link *l, const struct session *s, struct pbox_client_peer *to,
	const struct pbox_hdr *hdr, const struct iovec *iov, unsigned n, bool stays)
{
	uint32_t tag = pbox_tag_len(hdr->flags), bytes = PBOX_HDR_LEN + tag, crc = 0;
	uint32_t lead = n == 0 ? bytes : PBOX_HDR_LEN; /* of the first entry */
	struct pbox_client_tx *d;
	uint8_t *head;

	if (link_is_flat(l, tag, n, hdr->length)) {
		link_frame_flat(l, to, hdr, iov, n);
		return;
	}
	if (l->n_iovs + n + 2 > LINK_IOVS || l->n_hdrs == LINK_HDRS || l->n_tx >= l->port->batch)
		link_flush(l);
	for (unsigned i = 0; i < n; i++) {
		crc = pbox_crc32c(crc, iov[i].iov_base, iov[i].iov_len);
		bytes += (uint32_t)iov[i].iov_len;
	}
	head = l->head + l->head_bytes;
	l->n_hdrs++;
	l->head_bytes += PBOX_HDR_LEN + tag;
	pbox_frame_encode(head, hdr, crc);
	if (tag > 0)
		auth_tag(s->auth, head, iov, n, l->gathered, head + PBOX_HDR_LEN);
	d = l->n_tx > 0 ? &l->tx[l->n_tx - 1] : NULL;
	if (d == NULL || n > 0 || !link_joins(l, d, to, bytes)) {
		d = &l->tx[l->n_tx++];
		/* a tag does not stay */
		*d = (struct pbox_client_tx){
			.to = to, .iov = &l->iov[l->n_iovs], .stays = stays && tag == 0};
		l->heads = n == 0;
	}
	if (d->n > 0) /* header-only frames are one after the other */
		l->iov[l->n_iovs - 1].iov_len += lead;
	else
		l->iov[l->n_iovs++] = (struct iovec){head, lead};
	for (unsigned i = 0; i < n; i++)
		l->iov[l->n_iovs++] = iov[i];
	l->loose |= n > 0 && !stays;
	if (n > 0 && tag > 0)
		l->iov[l->n_iovs++] = (struct iovec){head + PBOX_HDR_LEN, tag};
	d->n = n + 1 + (n > 0 && tag > 0);
	d->bytes += bytes;
	l->tx_frames++;
	l->tx_bytes += bytes;
}

/* ---- receiving ------------------------------------------------------------------------ */

/** Does the sender of the frame know the job's secret? Sets f->sure; false: drop it. */
static bool
authentic(const struct session *s, struct rx_frame *f)
{
	bool tagged = (f->hdr.flags & PBOX_F_AUTH) != 0;

	f->sure = false;
	if (f->hdr.type == PBOX_WELCOME) /* join.c checks its proof and its tag */
		return true;
	if (tagged)
		return f->sure = s->auth != NULL && auth_good(s->auth, f);
	f->sure = s->auth == NULL;
	return f->sure || f->hdr.type == PBOX_RETRY || f->hdr.type == PBOX_ERROR;
}

void
link_datagram(struct lane *lane, struct session *s, const struct pbox_client_rx *d,
	void (*take)(struct session *s, const struct rx_frame *f))
{
	struct link *l = &lane->link;
	struct rx_frame f; /* the decoder fills the header */
	const uint8_t *at = d->data;
	size_t len = d->len;

	f.from = d->from;
	f.ce = d->ecn == LINK_ECN_CE;
	f.lane = lane;
	for (bool first = true; len > 0; first = false) {
		size_t size = 0;
		enum pbox_wire_drop drop = pbox_frame_decode(at, len, first, &f.hdr, &size);

		if (drop == PBOX_WIRE_OK && size >= PBOX_HDR_LEN && size <= len) {
			l->rx_frames++;
			f.payload = at + PBOX_HDR_LEN;
			if (authentic(s, &f))
				take(s, &f);
			else
				l->rx_drop_auth++;
		} else {
			l->rx_dropped++;
			if ((drop != PBOX_WIRE_CRC && drop != PBOX_WIRE_FLAGS &&
				    drop != PBOX_WIRE_TYPE && drop != PBOX_WIRE_AUTH) ||
				size == 0 || size > len)
				return;
		}
		at += size;
		len -= size;
	}
}
