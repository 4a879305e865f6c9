/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <string.h>

#include "sim.h"

/*
 * Somebody who sees the traffic sends it again with something changed and a right CRC. Each change
 * is one that the box must notice (R6.11): the forged frame is counted as dropped and changes
 * nothing. Old datagrams sent again as they were are not noise: the network's repetitions do that.
 */
static void
forge(struct pbox_hdr *h, uint64_t x, uint64_t what)
{
	switch (what) {
	case 0:
		h->token ^= x | 1;
		break;
	case 1:
		h->incarnation ^= (uint32_t)x | 1;
		break;
	case 2:
		h->map_epoch = (uint16_t)(h->map_epoch + 1 + x % 60000);
		break;
	case 3:
		h->chunk ^= 0x80000000;
		break;
	case 4:
		h->frag |= 0x8000;
		break;
	case 5:
		h->round -= 2 + (uint32_t)(x % 1000);
		break;
	case 6:
		h->round += 1000 + (uint32_t)(x % 1000); /* later than any copy can be late */
		break;
	case 7:
		h->job = (uint16_t)(h->job + 1000);
		break;
	case 8:
		h->format = (uint8_t)(h->format + 3 + x % 200);
		break;
	case 9:
		h->flags &= (uint16_t)~PBOX_F_LAST;
		break;
	case 10:
		h->type = PBOX_INIT; /* nowhere does a piece begin at element 1 */
		h->base = 1;
		break;
	case 11:
		h->type = x % 2 == 0 ? PBOX_RESULT : PBOX_WAIT;
		break;
	case 12:
		h->flags ^= PBOX_F_ZERO; /* a payload where none belongs, or none */
		break;
	}
}

/* The same for a request to the registrar: its session does not fit. */
static void
forge_control(struct pbox_hdr *h, uint32_t x)
{
	if (x % 2 == 0)
		h->token ^= x | 1;
	else
		h->incarnation ^= x | 1;
}

/* What a worker must notice without tags: it is for another session (R4.8). */
static void
forge_answer(struct pbox_hdr *h, uint64_t x)
{
	switch (x % 3) {
	case 0:
		h->token ^= x | 1;
		break;
	case 1:
		h->incarnation ^= (uint32_t)x | 1;
		break;
	case 2:
		h->worker = (uint16_t)(h->worker + 1);
		break;
	}
}

static bool
worth_forging(const struct pbox_hdr *h, bool control, bool to_box)
{
	if (!to_box) /* an ERROR of another incarnation is believed (R4.8) */
		return h->type == PBOX_RESULT || h->type == PBOX_WAIT || h->type == PBOX_PUSH_OK ||
		       h->type == PBOX_INIT_OK || h->type == PBOX_RESTORE_OK;
	/* ERROR SESSION to a forged LEAVE looks like the answer to a real one whose LEFT was lost */
	if (control)
		return h->type != PBOX_HELLO && h->type != PBOX_JOIN && h->type != PBOX_LEAVE;
	return h->type == PBOX_PUSHPULL || h->type == PBOX_PUSH;
}

void
sim_noise(struct sim *s, const struct sim_packet *p, struct sim_fault *k, bool drawn)
{
	bool control = p->endpoint == SIM_CONTROL, changed;
	struct pbox_hdr h;
	struct sim_packet *f;
	size_t size;

	if (!drawn && s->only == NULL)
		return;
	if (pbox_frame_decode(p->data, p->len, true, &h, &size) != PBOX_WIRE_OK)
		return;
	k->value[0] = k->value[1] = 0;
	/* drawn for control frames that are not forged, too: seeds stay what they were */
	if (drawn && control)
		k->value[0] = pbox_random_u64(&s->box->random);
	if (!worth_forging(&h, control, k->to_box))
		return;
	if (drawn && !control) {
		k->value[0] = pbox_random_u64(&s->box->random);
		k->value[1] = sim_below(s, 13);
	}
	if (!sim_fault(s, k, SIM_FAULT_FORGE, drawn))
		return;
	f = sim_packet_like(p, (uint32_t)size);
	f->forged = true;
	/* another payload, so that a forged contribution that is taken gives a wrong sum */
	for (size_t i = PBOX_HDR_LEN; i < size; i++)
		f->data[i] ^= 0x11;
	/* with tags the box notices any change: that of the payload is enough */
	changed = (h.flags & PBOX_F_AUTH) == 0 || k->value[0] >> 63 != 0;
	if (!k->to_box && (h.flags & PBOX_F_AUTH) == 0)
		forge_answer(&h, k->value[0]);
	else if (!k->to_box && h.length == 0)
		h.base ^= 1; /* any change does */
	else if (!k->to_box)
		;
	else if (changed && control)
		forge_control(&h, (uint32_t)k->value[0]);
	else if (changed)
		forge(&h, k->value[0], k->value[1]);
	pbox_frame_seal(f->data, &h);
	sim_net_send(s, f, k->to_box);
}

/*
 * A switch or a route is wrong for a moment: a copy reaches the same port of another box, unchanged. That box answers HELLO
 * and JOIN, which begin nothing without a cookie of its own (R4.7), and drops the rest.
 */
void
sim_noise_stray(struct sim *s, const struct sim_packet *p, struct sim_fault *k)
{
	struct pbox_random *r = &s->box->strayer;
	bool drawn = s->sc.boxes > 1 && pbox_random_below(r, 1000) < s->sc.stray;
	struct sim_packet *f;

	k->value[0] =
		drawn ? (s->box->number + 1 + pbox_random_below(r, s->sc.boxes - 1)) % s->sc.boxes
		      : 0;
	k->value[1] = 0;
	if (!sim_fault(s, k, SIM_FAULT_STRAY, drawn) || k->value[0] >= s->sc.boxes ||
		k->value[0] == s->box->number)
		return;
	f = sim_packet_like(p, p->len);
	f->forged = true;
	f->box = (uint8_t)k->value[0];
	sim_note(s, "a copy of this goes astray, to box %u:", f->box);
	sim_at_box(s, f->box,
		&(struct sim_event){.at = s->now + s->sc.net.delay_ns, .kind = SIM_TO_BOX, .p = f});
}

struct sim_packet *
sim_noise_zero(const struct sim *s, unsigned job, struct sim_packet *p)
{
	struct pbox_hdr h;
	size_t size;

	if (!s->sc.job[job].zeros || s->sc.job[job].auth || p->endpoint == SIM_CONTROL ||
		pbox_frame_decode(p->data, p->len, true, &h, &size) != PBOX_WIRE_OK ||
		(h.type != PBOX_PUSHPULL && h.type != PBOX_PUSH) || size != p->len)
		return p;
	for (size_t i = PBOX_HDR_LEN; i < p->len; i++)
		if (p->data[i] != 0)
			return p;
	h.flags |= PBOX_F_ZERO;
	h.length = 0;
	p->len = PBOX_HDR_LEN;
	pbox_frame_seal(p->data, &h);
	return p;
}
