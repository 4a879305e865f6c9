/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <string.h>

#include "operations.h"
#include "sim.h"

#define FORGERIES      13
#define FORGERIES_NODE 4 /* more where a frame brings a node (R5.2b) */

static void
forge_node(const struct sim_job_spec *spec, struct pbox_hdr *h, uint64_t x)
{
	unsigned other = (h->worker + 1u) % spec->workers, level = 0;

	switch (x % FORGERIES_NODE) {
	case 0: /* a slot of another worker, or one that there is not */
		h->base = spec->workers > 1 ? sim_slots_of(spec, other) : spec->slots;
		break;
	case 1: /* nowhere does such a node begin */
		h->base = sim_slots_of(spec, h->worker) | 1 | (1 + (uint32_t)(x >> 8) % 12) << 16;
		break;
	case 2:
		h->base = (h->base & 0xFFFF) | (13 + (uint32_t)(x >> 8) % 1000) << 16;
		break;
	case 3: /* all slots: its own and those of others */
		while (1u << level < spec->slots || (spec->workers == 1 && level < 13))
			level++;
		h->base = level << 16;
		break;
	}
}

/* A chunk that another box has (R16.5), where there is one; else one that nobody has. */
static void
forge_chunk(const struct sim_job *j, struct pbox_hdr *h, uint64_t x, unsigned box)
{
	for (uint32_t i = 0; i < j->n_fragments; i++) {
		const struct sim_fragment *f =
			&j->fragment[(i + x % j->n_fragments) % j->n_fragments];

		if (f->box == box)
			continue;
		h->chunk = f->chunk;
		h->frag = f->frag;
		return;
	}
	h->chunk ^= 0x80000000;
}

/*
 * Somebody who sees the traffic sends it again with something changed and a right CRC. Each change
 * is one that the box must notice (R6.11): the forged frame is counted as dropped and changes
 * nothing. Old datagrams sent again as they were are not noise: the network's repetitions do that.
 */
static void
forge(struct sim *s, const struct sim_packet *p, struct pbox_hdr *h, uint64_t x, uint64_t what)
{
	const struct sim_job_spec *spec = &s->sc.job[p->ip >> 8 & 0xFF];

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
	case FORGERIES + FORGERIES_NODE:
		forge_chunk(&s->job[p->ip >> 8 & 0xFF], h, x, p->box);
		break;
	default:
		forge_node(spec, h, x);
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
	const struct sim_job_spec *spec = &s->sc.job[p->ip >> 8 & 0xFF];
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
		k->value[1] = sim_below(
			s, FORGERIES + (spec->slots > 0 && !spec->plan ? FORGERIES_NODE : 0));
		if (sim_is_fleet(&s->sc, spec) && k->value[0] >> 60 == 0)
			k->value[1] = FORGERIES + FORGERIES_NODE;
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
		forge(s, p, &h, k->value[0], k->value[1]);
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
		drawn ? (p->box + 1 + pbox_random_below(r, s->sc.boxes - 1)) % s->sc.boxes : 0;
	k->value[1] = 0;
	if (!sim_fault(s, k, SIM_FAULT_STRAY, drawn) || k->value[0] >= s->sc.boxes ||
		k->value[0] == p->box)
		return;
	f = sim_packet_like(p, p->len);
	f->forged = f->stray = true;
	f->box = (uint8_t)k->value[0];
	sim_note(s, "a copy of this goes astray, to box %u:", f->box);
	sim_at_box(s, f->box,
		&(struct sim_event){.at = s->now + s->sc.net.delay_ns, .kind = SIM_TO_BOX, .p = f});
}

/*
 * Somebody who knows what a node holds brings its halves, too, as a process would that had the worker's number before. They are
 * none of the fewest nodes that it is to bring (R5.2b): the box refuses them, and they change nothing. The refusals say that
 * they answer something of long ago, so that the worker takes none for its own.
 */
static struct sim_packet *
half(const struct sim *s, const struct sim_packet *p, const struct sim_fragment *f, bool right)
{
	struct sim_packet *c = sim_packet_like(p, p->len);
	struct sim_push k = {.job = p->ip >> 8 & 0xFF, .table = f->table};
	struct pbox_hdr h;
	unsigned width;
	size_t size;

	pbox_frame_decode(p->data, p->len, true, &h, &size);
	width = 1u << ((h.base >> 16) - 1);
	k.life = s->job[k.job].life;
	k.round = h.round;
	k.slot = (h.base & 0xFFFF) + (right ? width : 0);
	for (unsigned i = 0; i < f->pieces; i++)
		sim_node(&s->sc, &k, width, &f->piece[i],
			c->data + PBOX_HDR_LEN + (size_t)f->piece[i].at * 4);
	h.type = PBOX_PUSH;
	h.base = k.slot | ((h.base >> 16) - 1) << 16;
	h.weight = sim_node_weight(&s->sc, k, width);
	h.ts -= 1000000000u;
	c->half = true;
	pbox_frame_seal(c->data, &h);
	return c;
}

static void
bring(struct sim *s, uint64_t at, struct sim_packet *p)
{
	sim_at_box(s, p->box,
		&(struct sim_event){
			.at = at, .kind = SIM_TO_BOX, .job = p->ip >> 8 & 0xFF, .p = p});
}

/* Where nobody but this session brings them, and the halves' sum is that of the node. */
static bool
may_halve(const struct sim_scenario *sc, unsigned job)
{
	const struct sim_job_spec *j = &sc->job[job];

	return j->slots != 0 && !j->plain && !j->plan && !j->auth && j->restarts == 0 &&
	       j->rebinds == 0 && j->replaced == 0 && !j->dies && !sim_job_crashes(sc, j);
}

void
sim_noise_halves(struct sim *s, const struct sim_packet *p, struct sim_fault *k)
{
	unsigned job = p->ip >> 8 & 0xFF;
	const struct sim_fragment *f;
	struct pbox_hdr h;
	uint64_t at;
	size_t size;
	bool drawn;

	k->value[0] = k->value[1] = 0;
	if (!may_halve(&s->sc, job) || p->endpoint == SIM_CONTROL || p->forged ||
		pbox_frame_decode(p->data, p->len, true, &h, &size) != PBOX_WIRE_OK ||
		(h.type != PBOX_PUSHPULL && h.type != PBOX_PUSH) || size != p->len ||
		h.length == 0 || h.base >> 16 == 0)
		return;
	f = sim_find(&s->job[job], h.chunk, h.frag);
	if (f == NULL || sim_spec(&s->sc, job, f)->fixed.push_format != PBOX_FMT_FP32)
		return;
	drawn = sim_below(s, 1000) < s->sc.noise;
	if (drawn) {
		k->value[0] = sim_below(s, 2) == 0 ? sim_below(s, MS) : sim_below(s, 20 * MS);
		k->value[1] = sim_below(s, 2) == 0 ? 0 : sim_below(s, 2 * MS);
	}
	if (!sim_fault(s, k, SIM_FAULT_HALVES, drawn))
		return;
	at = s->now + k->value[1];
	bring(s, at, half(s, p, f, k->value[0] % 2 != 0));
	bring(s, at + k->value[0], half(s, p, f, k->value[0] % 2 == 0));
	/* the fragment may not have been initialised, or the box not have had room */
	for (uint64_t later = 20 * MS; later < 20 * SEC; later *= 3)
		for (unsigned right = 0; right < 2; right++)
			bring(s, at + later, half(s, p, f, right != 0));
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
