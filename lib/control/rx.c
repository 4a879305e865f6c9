/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <rte_mbuf.h>

#include <pbox_wire_at.h>

#include "control_priv.h"

#define BURST 32

/* A frame that is whole. Those at a data port which are the shard's were counted there. */
static void
control_take_frame(struct pbox_control *c, const struct pbox_frame *f, bool at_control)
{
	bool data = f->hdr.type >= PBOX_FIRST_DATA_TYPE;

	if (!at_control && (data || f->hdr.type == PBOX_PING))
		return;
	tally(c, PBOX_CT_FRAMES);
	if (data) {
		tally(c, PBOX_CT_FRAME_ENDPOINT);
		return;
	}
	tally(c, PBOX_CT_TO_REGISTRAR);
	pbox_registrar_rx(c->registrar, f, c->now_ns);
}

static void
take_datagram(struct pbox_control *c, const struct rte_mbuf *m)
{
	struct pbox_frame f = {0};
	struct pbox_dp_datagram d;
	const uint8_t *at, *end;
	bool first = true, at_control;

	pbox_dp_datagram(m, &d);
	tally(c, PBOX_CT_DATAGRAMS);
	f.peer = d.peer;
	f.ce = d.ce;
	f.answered = d.answered;
	at_control = c->conf.n_ports > 0 && d.peer.local_udp == c->conf.port[0].conf.control_port;
	at = d.payload;
	end = at + d.len;
	do {
		size_t left = (size_t)(end - at), size = 0;
		enum pbox_wire_drop why = pbox_frame_decode(at, left, first, &f.hdr, &size);

		if (why == PBOX_WIRE_OK) {
			f.payload = at + PBOX_HDR_LEN;
			f.follows = !first;
			control_take_frame(c, &f, at_control);
		} else if (at_control) {
			tally(c, PBOX_CT_FRAMES);
			tally(c, PBOX_CT_FRAME_MAGIC + (why - PBOX_WIRE_MAGIC));
		}
		/* two boxes of different versions would answer each other's errors forever */
		if (why == PBOX_WIRE_VERSION && at_control && first &&
			at[PBOX_AT_TYPE] == PBOX_HELLO && left >= PBOX_HDR_LEN + PBOX_HELLO_LEN) {
			f.hdr.length = (uint16_t)(left - PBOX_HDR_LEN);
			f.payload = at + PBOX_HDR_LEN;
			pbox_registrar_version(c->registrar, &f, at[PBOX_AT_VERSION]);
		}
		if (size == 0)
			break;
		first = false;
		at += size;
	} while (at < end);
}

/* Up to a burst of each core, so that none waits for another. */
unsigned
control_rx(struct pbox_control *c)
{
	struct rte_mbuf *m[BURST];
	unsigned total = 0;

	for (unsigned i = 0; i < c->conf.n_cores; i++) {
		unsigned n = pbox_dp_control_rx(c->conf.dp, i, m, BURST);

		for (unsigned k = 0; k < n; k++) {
			if (c->uplinks == NULL || !uplink_packet(c, m[k]))
				take_datagram(c, m[k]);
			rte_pktmbuf_free(m[k]);
		}
		total += n;
	}
	return total;
}
