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

static struct sim_packet *
copy(const struct sim_packet *p, uint32_t len)
{
	struct sim_packet *c = sim_packet_new(len);

	c->endpoint = p->endpoint;
	c->ip = p->ip;
	c->udp = p->udp;
	c->forged = p->forged;
	memcpy(c->data, p->data, len);
	return c;
}

static bool
in_hole(const struct sim *s)
{
	for (unsigned i = 0; i < s->sc.net.holes; i++)
		if (s->now >= s->sc.net.hole[i].from && s->now < s->sc.net.hole[i].to)
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
	       (h.chunk + h.frag) % 7 == s->sc.seed % 7;
}

static bool
lost(struct sim *s, const struct sim_packet *p)
{
	const struct sim_network_spec *n = &s->sc.net;

	if (in_hole(s))
		return true;
	if (s->burst_left > 0) {
		s->burst_left--;
		return true;
	}
	if (sim_chance(s, n->loss / n->burst)) {
		s->burst_left = n->burst - 1;
		return true;
	}
	return targeted(s, p) && sim_chance(s, n->target_loss);
}

static struct sim_packet *
damage(struct sim *s, struct sim_packet *p)
{
	unsigned flips = 1 + (unsigned)sim_below(s, 4);

	for (unsigned i = 0; i < flips; i++) {
		uint64_t at = sim_below(s, p->len);

		p->data[at] ^= (uint8_t)(1 + sim_below(s, 255));
	}
	p->damaged = true;
	return p;
}

static struct sim_packet *
cut(struct sim *s, struct sim_packet *p)
{
	struct sim_packet *c = copy(p, (uint32_t)sim_below(s, p->len));

	c->damaged = true;
	sim_packet_free(p);
	return c;
}

static void
deliver(struct sim *s, struct sim_packet *p, bool to_box)
{
	const struct sim_network_spec *n = &s->sc.net;
	uint64_t at = s->now + n->delay_ns + sim_below(s, n->jitter_ns);

	if (sim_chance(s, n->reorder))
		at += sim_below(s, n->reorder_ns);
	if (sim_chance(s, n->corrupt))
		p = damage(s, p);
	else if (p->len > 0 && sim_chance(s, n->truncate))
		p = cut(s, p);
	sim_at(s, at, to_box ? SIM_TO_BOX : SIM_TO_WORKER, 0, 0, p);
}

void
sim_net_send(struct sim *s, struct sim_packet *p, bool to_box)
{
	if (to_box && !p->forged && sim_below(s, 1000) < s->sc.noise)
		sim_noise(s, p);
	if (lost(s, p)) {
		sim_packet_free(p);
		return;
	}
	while (sim_chance(s, s->sc.net.dup))
		deliver(s, copy(p, p->len), to_box);
	deliver(s, p, to_box);
}
