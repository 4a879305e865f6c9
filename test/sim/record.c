/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <string.h>

#include "sim.h"

/*
 * Somebody sees what reaches the box, keeps some of it, and sends it again, as it was: soon or late, once or again and
 * again, in the life of its session and after that; from the worker's address, from there with a link address of his
 * own, from another port and from another host. Copies must move nothing (R4.9, R8.2): a worker's answers stay where
 * they are, and who is dead is dead. What is kept has come to the box undamaged, so nobody may say that it is new.
 *
 * From generators of its own: what else happens in a run of a seed follows from it as before.
 */

#define HOST 200  /* his network: 10.200.x.y */
#define PORT 7    /* no worker has it */
#define LINK 0xEE /* begins his link address */

enum { SAME, OTHER_LINK, OTHER_PORT, OTHER_HOST, PLACES };

/* Contributions count wherever they come from, and joins have nothing to be newer than. */
static bool
look_at(const struct sim_packet *p, bool *any_contribution)
{
	size_t at = 0, size = 0;
	struct pbox_hdr h;

	*any_contribution = false;
	for (; at < p->len; at += size) {
		if (pbox_frame_decode(p->data + at, p->len - at, at == 0, &h, &size) !=
			PBOX_WIRE_OK)
			return false;
		if (h.type == PBOX_HELLO || h.type == PBOX_JOIN)
			return false;
		*any_contribution |= h.type == PBOX_PUSHPULL || h.type == PBOX_PUSH;
	}
	return true;
}

static void
draw(struct sim *s, struct sim_fault *k)
{
	struct pbox_random *r = &s->box->recorder;
	uint64_t longest = MS << pbox_random_below(r, 15), times, every, place;

	k->value[0] = pbox_random_below(r, longest);
	times = pbox_random_below(r, 8) == 0 ? 100 : 1 + pbox_random_below(r, 3);
	every = 100 + pbox_random_below(r, 2000);
	place = pbox_random_below(r, PLACES);
	k->value[1] = every << 16 | times << 8 | place;
}

void
sim_record(struct sim *s, struct sim_packet *p, struct sim_fault *k)
{
	bool drawn = pbox_random_below(&s->box->recorder, 1000) < s->sc.recorded;

	k->value[0] = k->value[1] = 0;
	if (drawn)
		draw(s, k);
	if (!sim_fault(s, k, SIM_FAULT_RECORD, drawn))
		return;
	p->kept = true;
	p->later_ns = k->value[0];
	p->every_ns = (k->value[1] >> 16) * MS;
	p->times = (uint8_t)(k->value[1] >> 8);
	p->place = (uint8_t)(k->value[1] % PLACES);
}

static struct sim_packet *
copy(const struct sim_packet *p)
{
	struct sim_packet *c = sim_packet_like(p, p->len);

	c->link = 0;
	return c;
}

void
sim_record_arrival(struct sim *s, const struct sim_packet *p)
{
	struct sim_packet *c;
	bool contribution;

	if (!p->kept || p->damaged || p->times == 0 || !look_at(p, &contribution))
		return;
	c = copy(p);
	c->times = p->times;
	c->every_ns = p->every_ns;
	c->place = p->place;
	/* What was dropped for its rate is not known to the box, and answers follow a new contribution. */
	if (c->place == OTHER_LINK && (contribution || s->sc.rate != 0))
		c->place = SAME;
	sim_at(s, s->now + p->later_ns, SIM_RECORDED, 0, 0, c);
}

void
sim_record_replay(struct sim *s, struct sim_packet *p)
{
	struct sim_packet *c;

	if (s->box->unfinished == 0 && s->box->up &&
		s->code->registrar_jobs(s->box->registrar) == 0) {
		sim_packet_free(p);
		return;
	}
	c = copy(p);
	if (p->place == OTHER_LINK)
		c->link = LINK;
	else if (p->place == OTHER_PORT)
		c->udp = PORT;
	else if (p->place == OTHER_HOST)
		c->ip = (c->ip & 0xFF00FFFF) | HOST << 16;
	sim_note(s, "a copy of a datagram of worker %u/%u is sent, from %s", c->ip >> 8 & 0xFF,
		(c->ip & 0xFF) - 1,
		p->place == SAME         ? "its address"
		: p->place == OTHER_LINK ? "another link address"
		: p->place == OTHER_PORT ? "another port"
					 : "another host");
	sim_at(s, s->now, SIM_TO_BOX, 0, 0, c);
	if (--p->times == 0)
		sim_packet_free(p);
	else
		sim_at(s, s->now + p->every_ns, SIM_RECORDED, 0, 0, p);
}

bool
sim_record_is_his(const struct sim_packet *p)
{
	return p->link == LINK || p->udp == PORT || (p->ip >> 16 & 0xFF) == HOST;
}

void
sim_record_receive(struct sim *s, const struct sim_packet *p)
{
	struct pbox_hdr h;
	size_t size;
	bool asked, unknown;

	if (p->damaged || p->forged ||
		pbox_frame_decode(p->data, p->len, true, &h, &size) != PBOX_WIRE_OK)
		return;
	/* he is asked for a proof, with PONG too, and the answer is that there is no such session */
	asked = (h.type == PBOX_PING && h.length == 0) || h.type == PBOX_PONG;
	unknown = h.type == PBOX_ERROR && h.length == 0 && h.aux == PBOX_E_SESSION;
	if (!unknown &&
		(!asked || (h.type == PBOX_PONG && p->link != LINK && h.round == 0 && h.base == 0)))
		sim_fail(s, "a copy of a frame of worker %u/%u brings its sender %s",
			p->ip >> 8 & 0xFF, (p->ip & 0xFF) - 1, pbox_type_name(h.type));
}
