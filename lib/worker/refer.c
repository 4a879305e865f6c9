/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>
#include <stdio.h>

#include "worker_impl.h"

/* A worker without tables is referred to another box (R16.3, R16.17). */

#define REFERS_MOST  4 /* one after the other: then there are pauses */
#define REFERS_PAUSE (250 * NS_PER_MS)

uint64_t
refer_pause(unsigned refers)
{
	return refers > REFERS_MOST ? REFERS_PAUSE : 0;
}

void
refer_to(struct join *j, const struct sockaddr_in *at)
{
	struct session *s = j->s;
	char address[INET_ADDRSTRLEN];

	assert(s->w->boxes == 1 && (s->phase != SESSION_OPEN || s->rejoin.joining));
	s->box = (struct pbox_client_peer){.addr = *at};
	snprintf(s->name, sizeof(s->name), "%s:%u",
		inet_ntop(AF_INET, &at->sin_addr, address, sizeof(address)), ntohs(at->sin_port));
	j->refers++;
	j->cookies = j->tried = j->heard = 0;
	j->doubt.n = 0;
	j->renew = true;
	j->answered = false;
	j->interval = JOIN_INTERVAL;
	j->asked_ns = s->w->now;
	j->next_tx = s->w->now + refer_pause(j->refers);
}

/** The place of that address in the list; w->boxes: it is not there. */
static unsigned
refer_place(const struct pbox_worker *w, const struct sockaddr_in *at)
{
	unsigned box = 0;

	while (box < w->boxes && (w->box[box]->box.addr.sin_addr.s_addr != at->sin_addr.s_addr ||
					 w->box[box]->box.addr.sin_port != at->sin_port))
		box++;
	return box;
}

bool
decider_refer(struct join *j, uint32_t address)
{
	struct session *s = j->s;
	struct pbox_worker *w = s->w;
	struct sockaddr_in at = s->box.addr;
	unsigned box;

	if (w->tables > 0)
		return false;
	if (j->renew) /* this request was answered */
		return true;
	memcpy(&at.sin_addr, &address, sizeof(at.sin_addr));
	if (w->boxes == 1) {
		refer_to(j, &at);
		return true;
	}
	box = refer_place(w, &at);
	if (box == w->boxes || box == w->homes.decider)
		return false;
	j->renew = true;
	w->turn = (uint8_t)(box + 1); /* decider_tick() does it */
	return true;
}
