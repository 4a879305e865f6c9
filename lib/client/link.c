/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "client_impl.h"

/* Frames to datagrams and back; the datagrams are the transport's business. */

int
link_open(struct link *l, const struct pbox_client_conf *conf, const struct sockaddr_in *box,
	struct pbox_client_error *err)
{
	const struct pbox_client_transport_ops *ops = transport_find(conf->transport, err);
	struct pbox_client_transport_conf tc = {.box = *box,
		.args = conf->transport_args,
		.bind = conf->bind,
		.mtu = conf->mtu,
		.timeout_ms = conf->join_timeout_ms};
	struct pbox_client_error local = {0};
	int rc;

	if (ops == NULL)
		return err != NULL ? err->code : PBOX_C_INVALID;
	rc = ops->open(&l->t, &tc, err != NULL ? err : &local);
	if (rc != 0)
		return rc;
	if (l->t->mtu < LINK_MIN_MTU) {
		rc = client_fail(err, PBOX_C_INVALID, "mtu is %u, at least %d is needed", l->t->mtu,
			LINK_MIN_MTU);
		link_close(l);
	}
	return rc;
}

void
link_close(struct link *l)
{
	if (l->t != NULL)
		l->t->ops->close(l->t);
	l->t = NULL;
	auth_end(l->auth);
	l->auth = NULL;
}

/* ---- sending -------------------------------------------------------------------------- */

void
link_flush(struct link *l)
{
	unsigned n = l->n_tx;

	l->n_tx = l->n_iovs = l->n_hdrs = 0;
	l->head_bytes = 0;
	if (n > 0)
		l->t->ops->send(l->t, l->tx, n);
}

/** Frames without payload go several in one datagram. */
static bool
joins(const struct link *l, const struct pbox_client_tx *d, const struct pbox_client_peer *to,
	uint32_t bytes)
{
	return l->heads && d->to == to && d->bytes + bytes <= l->t->mtu - 28;
}

void
link_frame(struct link *l, struct pbox_client_peer *to, const struct pbox_hdr *hdr,
	const struct iovec *iov, unsigned n, bool stays)
{
	uint32_t tag = pbox_tag_len(hdr->flags), bytes = PBOX_HDR_LEN + tag, crc = 0;
	uint32_t lead = n == 0 ? bytes : PBOX_HDR_LEN; /* of the first entry */
	struct pbox_client_tx *d;
	uint8_t *head;

	if (l->n_iovs + n + 2 > LINK_IOVS || l->n_hdrs == LINK_HDRS || l->n_tx >= l->t->batch)
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
		auth_tag(l->auth, head, iov, n, head + PBOX_HDR_LEN);
	d = l->n_tx > 0 ? &l->tx[l->n_tx - 1] : NULL;
	if (d == NULL || n > 0 || !joins(l, d, to, bytes)) {
		d = &l->tx[l->n_tx++];
		/* a tag does not stay */
		*d = (struct pbox_client_tx){
			.to = to, .iov = &l->iov[l->n_iovs], .stays = stays && tag == 0};
		l->heads = n == 0;
	}
	if (d->n > 0) /* header-only frames stand one behind the other */
		l->iov[l->n_iovs - 1].iov_len += lead;
	else
		l->iov[l->n_iovs++] = (struct iovec){head, lead};
	for (unsigned i = 0; i < n; i++)
		l->iov[l->n_iovs++] = iov[i];
	if (n > 0 && tag > 0)
		l->iov[l->n_iovs++] = (struct iovec){head + PBOX_HDR_LEN, tag};
	d->n = n + 1 + (n > 0 && tag > 0);
	d->bytes += bytes;
	l->tx_frames++;
	l->tx_bytes += bytes;
}

/* ---- receiving ------------------------------------------------------------------------ */

/** Is the frame from somebody who knows the job's secret? Sets f->sure; false: drop it. */
static bool
authentic(const struct link *l, struct rx_frame *f)
{
	bool tagged = (f->hdr.flags & PBOX_F_AUTH) != 0;

	f->sure = false;
	if (f->hdr.type == PBOX_WELCOME) /* who joins looks at its proof and its tag */
		return true;
	if (tagged)
		return f->sure = l->auth != NULL && auth_good(l->auth, f);
	f->sure = l->auth == NULL;
	return f->sure || f->hdr.type == PBOX_RETRY || f->hdr.type == PBOX_ERROR;
}

static void
parse_datagram(struct link *l, const uint8_t *buf, size_t len, struct rx_frame *f,
	rx_handler handler, void *ctx)
{
	bool first = true;

	while (len > 0) {
		size_t size = 0;
		enum pbox_wire_drop drop = pbox_frame_decode(buf, len, first, &f->hdr, &size);

		if (drop == PBOX_WIRE_OK && size >= PBOX_HDR_LEN && size <= len) {
			l->rx_frames++;
			f->payload = buf + PBOX_HDR_LEN;
			if (authentic(l, f))
				handler(ctx, f);
			else
				l->rx_drop_auth++;
		} else {
			l->rx_dropped++;
			if ((drop != PBOX_WIRE_CRC && drop != PBOX_WIRE_FLAGS &&
				    drop != PBOX_WIRE_TYPE && drop != PBOX_WIRE_AUTH) ||
				size == 0 || size > len)
				return;
		}
		buf += size;
		len -= size;
		first = false;
	}
}

unsigned
link_receive(struct link *l, unsigned turns, rx_handler handler, void *ctx)
{
	unsigned total = 0;

	while (turns-- > 0) {
		const struct pbox_client_rx *d;
		unsigned n = l->t->ops->recv(l->t, &d);

		for (unsigned i = 0; i < n; i++) {
			struct rx_frame f = {.from = d[i].from, .ce = d[i].ecn == LINK_ECN_CE};

			l->rx_bytes += d[i].len;
			parse_datagram(l, d[i].data, d[i].len, &f, handler, ctx);
		}
		total += n;
		if (!l->t->more)
			break;
	}
	return total;
}
