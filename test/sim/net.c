/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>
#include <string.h>

#include "sim.h"

struct sim_packet *
sim_packet_new(uint32_t len)
{
	/* exactly as long as its bytes: a read beyond them is a fault under ASan */
	struct sim_packet *p = malloc(sizeof(*p) + len);

	PBOX_ASSERT(p != NULL);
	memset(p, 0, sizeof(*p));
	p->len = len;
	return p;
}

void
sim_packet_free(struct sim_packet *p)
{
	/* without ASan a use after release gives wrong sums instead */
	memset(p->data, 0xDB, p->len);
	free(p);
}

struct sim_packet *
sim_packet_like(const struct sim_packet *p, uint32_t len)
{
	struct sim_packet *c = sim_packet_new(len);

	c->box = p->box;
	c->endpoint = p->endpoint;
	c->ip = p->ip;
	c->udp = p->udp;
	c->link = p->link;
	memcpy(c->data, p->data, len < p->len ? len : p->len);
	return c;
}

static struct sim_packet *
copy(const struct sim_packet *p, uint32_t len)
{
	struct sim_packet *c = sim_packet_like(p, len);

	c->forged = p->forged;
	return c;
}

bool
sim_net_is_calm(const struct sim *s, uint64_t ns)
{
	return s->sc.net.calm_ns != 0 && s->now >= SIM_BEGIN + s->sc.net.calm_ns + ns;
}

/* As sim_chance(), while something may go wrong. */
static bool
chance(struct sim *s, double p)
{
	return !sim_net_is_calm(s, 0) && sim_chance(s, p);
}

static bool
in_hole(const struct sim *s, const struct sim_packet *p)
{
	const struct sim_network_spec *n = &s->sc.net;

	for (unsigned i = 0; i < n->holes; i++)
		if (s->now >= n->hole[i].from && s->now < n->hole[i].to &&
			(n->hole[i].boxes == 0 || (n->hole[i].boxes >> p->box & 1) != 0))
			return true;
	return false;
}

/* One chunk in seven suffers, whatever is sent about it. */
static bool
targeted(const struct sim *s, const struct sim_packet *p)
{
	struct pbox_hdr h;
	size_t size;

	return s->sc.net.target_loss > 0.0 && p->endpoint != SIM_CONTROL &&
	       pbox_frame_decode(p->data, p->len, true, &h, &size) == PBOX_WIRE_OK &&
	       h.type >= PBOX_FIRST_DATA_TYPE && (h.chunk + h.frag) % 7 == s->sc.seed % 7;
}

static bool
lost(struct sim *s, const struct sim_packet *p)
{
	const struct sim_network_spec *n = &s->sc.net;

	if (in_hole(s, p))
		return true;
	if (s->box->burst_left > 0) {
		s->box->burst_left--;
		return true;
	}
	if (chance(s, n->loss / n->burst)) {
		s->box->burst_left = n->burst - 1;
		return true;
	}
	if (n->bad_loss > 0.0 && p->box == n->bad_box && chance(s, n->bad_loss))
		return true;
	return targeted(s, p) && chance(s, n->target_loss);
}

static void
draw_damage(struct sim *s, const struct sim_packet *p, struct sim_fault *k)
{
	unsigned flips = 1 + (unsigned)sim_below(s, 4);

	for (unsigned i = 0; i < flips; i++) {
		k->value[0] |= sim_below(s, p->len) << (16 * i);
		k->value[1] |= (1 + sim_below(s, 255)) << (8 * i);
	}
}

static struct sim_packet *
damage(struct sim_packet *p, const struct sim_fault *k)
{
	for (unsigned i = 0; i < 4; i++)
		p->data[(k->value[0] >> (16 * i) & 0xFFFF) % p->len] ^=
			(uint8_t)(k->value[1] >> (8 * i));
	p->damaged = true;
	return p;
}

static struct sim_packet *
cut(struct sim_packet *p, const struct sim_fault *k)
{
	struct sim_packet *c = copy(p, (uint32_t)(k->value[0] % p->len));

	c->damaged = true;
	sim_packet_free(p);
	return c;
}

static bool
damaged(struct sim *s, struct sim_packet *p, struct sim_fault *k)
{
	bool drawn = chance(s, s->sc.net.corrupt);

	k->value[0] = k->value[1] = 0;
	if (drawn)
		draw_damage(s, p, k);
	return sim_fault(s, k, SIM_FAULT_DAMAGE, drawn) && p->len > 0;
}

static bool
truncated(struct sim *s, const struct sim_packet *p, struct sim_fault *k)
{
	bool drawn = p->len > 0 && chance(s, s->sc.net.truncate);

	k->value[0] = drawn ? sim_below(s, p->len) : 0;
	k->value[1] = 0;
	return sim_fault(s, k, SIM_FAULT_CUT, drawn) && p->len > 0;
}

static bool
delayed(struct sim *s, struct sim_fault *k)
{
	bool drawn = chance(s, s->sc.net.reorder);

	k->value[0] = drawn ? sim_below(s, s->sc.net.reorder_ns) : 0;
	k->value[1] = 0;
	return sim_fault(s, k, SIM_FAULT_DELAY, drawn);
}

static void
deliver(struct sim *s, struct sim_packet *p, struct sim_fault *k)
{
	const struct sim_network_spec *n = &s->sc.net;
	uint64_t at = s->now + n->delay_ns + sim_below(s, n->jitter_ns);

	if (delayed(s, k))
		at += k->value[0];
	sim_words_deliver(s, at);
	if (damaged(s, p, k)) {
		p = damage(p, k);
		sim_words(s, " damaged");
	} else if (truncated(s, p, k)) {
		p = cut(p, k);
		sim_words(s, " cut to %u bytes", p->len);
	}
	/* a worker is of the box that its job lives on, of whatever sender */
	sim_at_box(s, k->to_box ? p->box : s->sc.job[p->ip >> 8 & 0xFF].box,
		&(struct sim_event){
			.at = at, .kind = k->to_box ? SIM_TO_BOX : SIM_TO_WORKER, .p = p});
}

void
sim_net_send(struct sim *s, struct sim_packet *p, bool to_box)
{
	struct sim_fault k;

	sim_fault_of(s, &k, p, to_box);
	if (!p->forged)
		sim_noise(s, p, &k, sim_below(s, 1000) < s->sc.noise);
	if (to_box && !p->forged)
		sim_record(s, p, &k);
	if (to_box && !p->forged)
		sim_noise_stray(s, p, &k);
	if (to_box)
		sim_noise_halves(s, p, &k);
	sim_words_send(s, p, &k);
	if (sim_fault(s, &k, SIM_FAULT_LOSE, lost(s, p))) {
		sim_words(s, "lost\n");
		sim_packet_free(p);
		return;
	}
	while (sim_fault(s, &k, SIM_FAULT_REPEAT, chance(s, s->sc.net.dup))) {
		deliver(s, copy(p, p->len), &k);
		sim_words(s, "; and again, ");
		if (++k.copy == UINT8_MAX)
			break;
	}
	deliver(s, p, &k);
	sim_words(s, "\n");
}
