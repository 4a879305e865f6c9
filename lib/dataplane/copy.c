/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <pbox_auth.h>

#include "core.h"

/* All headers of a frame, 104 bytes. */
void
core_frame_headers(void *at, const struct pbox_net_udp_origin *t, const struct pbox_send *s,
	uint16_t served, uint16_t ip_id)
{
	const struct pbox_peer *p = s->peer;
	struct pbox_net_to to = {.src_port = p->local_udp, .dst_port = p->udp, .ip = p->ip};
	struct pbox_hdr hdr = s->hdr;

	memcpy(to.mac, p->mac, sizeof(to.mac));
	hdr.served = served;
	pbox_net_udp_header_to(
		t, at, &to, (uint16_t)(PBOX_HDR_LEN + hdr.length + pbox_tag_len(hdr.flags)), ip_id);
	pbox_frame_encode((uint8_t *)at + PBOX_NET_HEADERS_LEN, &hdr, s->payload_crc);
}

bool
core_frame_copy(struct rte_mbuf *m, const struct pbox_net_udp_origin *t, const struct pbox_send *s,
	uint16_t served, uint16_t ip_id)
{
	uint32_t len = (uint32_t)FRAME_HEADERS + s->hdr.length + pbox_tag_len(s->hdr.flags);
	uint8_t *at;

	if (len > rte_pktmbuf_tailroom(m))
		return false;
	at = rte_pktmbuf_mtod(m, uint8_t *);
	core_frame_headers(at, t, s, served, ip_id);
	pbox_send_payload(at + FRAME_HEADERS, s);
	if (s->tag_key != NULL)
		pbox_auth_tag(s->tag_key, at + PBOX_NET_HEADERS_LEN, s->digest,
			at + FRAME_HEADERS + s->hdr.length);
	m->data_len = (uint16_t)len;
	m->pkt_len = len;
	m->port = s->peer->port;
	return true;
}
