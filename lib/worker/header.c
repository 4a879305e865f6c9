/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "worker_impl.h"

/* Headers of a session's frames, and PINGs, which are a header alone. */

/* Where clocks begin: bits above 32 are never 0, for that would say that the clock is not there (R4.9). */
#define CLOCK_ORIGIN (UINT64_C(1) << 32)

void
header_fill(const struct session *s, struct pbox_hdr *h, uint8_t type, uint64_t now)
{
	uint64_t us = CLOCK_ORIGIN + now / NS_PER_US;

	*h = (struct pbox_hdr){
		.type = type,
		.flags = s->auth != NULL ? PBOX_F_AUTH : 0,
		.token = s->token,
		.job = s->job_number,
		.worker = s->w->worker,
		.incarnation = s->incarnation,
		.ts = (uint32_t)us,
		.held = (uint32_t)(us >> 32),
	};
}

void
header_echo(struct session *s, const struct rx_frame *f)
{
	struct pbox_client_peer *to = &s->box;
	struct pbox_hdr h;

	for (unsigned i = 0; i < s->endpoints; i++)
		if (s->ep[i].peer.addr.sin_addr.s_addr == f->from.sin_addr.s_addr &&
			s->ep[i].peer.addr.sin_port == f->from.sin_port)
			to = &s->ep[i].peer;
	header_fill(s, &h, PBOX_PING, s->w->now);
	pbox_nonce_put(&h, pbox_nonce_get(&f->hdr));
	link_frame(&s->w->lane[0]->link, s, to, &h, NULL, 0, false);
}

void
header_leave(struct session *s)
{
	struct pbox_hdr h;

	if (s->token == 0)
		return;
	header_fill(s, &h, PBOX_LEAVE, s->w->now);
	h.chunk = 1;
	for (unsigned i = 0; i < 2; i++) {
		link_frame(&s->w->lane[0]->link, s, &s->box, &h, NULL, 0, false);
		link_flush(&s->w->lane[0]->link);
	}
}

void
header_ping(struct session *s)
{
	struct pbox_hdr h;

	header_fill(s, &h, PBOX_PING, s->w->now);
	link_frame(&s->w->lane[0]->link, s, &s->box, &h, NULL, 0, false);
}
