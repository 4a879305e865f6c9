/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>
#include <string.h>

#include "box.h"

/* Frames of one datagram, at most: the longest train fits. */
#define MAX_TRAIN 24

static unsigned
decode(struct sim *s, struct sim_packet *p, struct pbox_frame *frame)
{
	size_t at = 0, size = 0;
	unsigned n = 0;

	while (at < p->len && n < MAX_TRAIN) {
		struct pbox_frame *f = &frame[n];
		enum pbox_wire_drop drop;

		memset(f, 0, sizeof(*f));
		/* as the data plane does it: what comes alone is verified when it is summed */
		drop = at == 0 && p->endpoint != SIM_CONTROL
			       ? pbox_frame_open(p->data, p->len, &f->hdr, &size, &f->unverified)
			       : pbox_frame_decode(
					 p->data + at, p->len - at, at == 0, &f->hdr, &size);
		if (drop != PBOX_WIRE_OK) {
			s->box->rejected++;
			if (!p->damaged)
				sim_fail(s, "the codec refuses an undamaged frame: %s",
					pbox_wire_drop_name(drop));
			if (drop == PBOX_WIRE_MAGIC || drop == PBOX_WIRE_VERSION ||
				drop == PBOX_WIRE_TRUNCATED || drop == PBOX_WIRE_TRAILING)
				break;
			at += size;
			continue;
		}
		f->payload = p->data + at + PBOX_HDR_LEN;
		f->handle = p;
		f->peer = (struct pbox_peer){.ip = htonl(p->ip),
			.udp = p->udp,
			.mac = {p->link},
			.local_ip = htonl(SIM_BOX + p->box),
			.local_udp = p->endpoint == SIM_CONTROL
					     ? PBOX_CONTROL_PORT
					     : (uint16_t)(PBOX_CONTROL_PORT + 1 + p->endpoint)};
		at += size;
		n++;
	}
	return n;
}

static void
control(struct sim *s, struct sim_packet *p)
{
	struct pbox_frame frame[MAX_TRAIN];
	uint64_t before[PBOX_RS_STATS];
	unsigned n = decode(s, p, frame);

	for (unsigned i = 0; i < n; i++) {
		const struct pbox_hdr *h = &frame[i].hdr;

		s->box->frames++;
		/* R4.7; WELCOME is excepted where answers are checked */
		s->box->request = h->type == PBOX_HELLO || h->type == PBOX_JOIN
					  ? (size_t)h->length + PBOX_HDR_LEN
					  : 0;
		memcpy(before, s->box->stats, sizeof(before));
		if (!p->forged)
			sim_restart_arrival(s, h, frame[i].payload, p->ip >> 8 & 0xFF);
		if (h->type == PBOX_TASK)
			sim_plan_gives(s, p->ip >> 8 & 0xFF, h, frame[i].payload);
		s->code->registrar_rx(s->box->registrar, &frame[i], s->now);
		s->box->request = 0;
		if (p->forged)
			sim_check_forged_control(s, before, h, p->stray);
	}
	sim_packet_free(p);
}

void
sim_box_arrive(struct sim *s, struct sim_packet *p)
{
	struct sim_shard *sh;
	unsigned job = p->ip >> 8 & 0xFF;

	sim_trace(s, "%u/%u -> box %u %s %u bytes%s%s", job, (p->ip & 0xFF) - 1, p->box,
		p->endpoint == SIM_CONTROL ? "control" : "data", p->len,
		p->damaged ? " damaged" : "", p->forged ? " forged" : "");
	sim_record_arrival(s, p);
	if (p->endpoint == SIM_CONTROL) {
		control(s, p);
		return;
	}
	sh = &s->box->shard[s->box->endpoint[p->endpoint].shard];
	p->next = NULL;
	*sh->last = p;
	sh->last = &p->next;
	if (!sh->poll_due) {
		sh->poll_due = true;
		sim_at(s, s->now + sim_below(s, 20 * US), SIM_POLL, s->box->generation, sh->id,
			NULL);
	}
}

/* The engine may give a packet back within the call that takes it; it lives until here. */
static void
settle(struct sim *s, struct sim_shard *sh, const struct pbox_frame *frame, unsigned n,
	uint64_t held)
{
	for (unsigned i = 0; i < n; i++) {
		struct sim_packet *p = frame[i].handle;

		if ((held >> i & 1) != 0) {
			p->held++;
			sh->held++;
		}
	}
	for (unsigned i = 0; i < n; i++) {
		struct sim_packet *p = frame[i].handle;

		if (!p->in_burst)
			continue;
		/* the last frame of this packet settles it */
		if (i + 1 < n && frame[i + 1].handle == p)
			continue;
		if (p->early > p->held) {
			sim_fail(s, "the engine gave back a packet that it did not hold");
			p->early = p->held;
		}
		p->held -= p->early;
		sh->held -= p->early;
		p->early = 0;
		p->in_burst = false;
		if (p->held == 0)
			sim_packet_free(p);
	}
	if (sh->held != s->code->shard_held(sh->engine))
		sim_fail(s, "shard %u says that it holds %u packets, and holds %llu", sh->id,
			s->code->shard_held(sh->engine), (unsigned long long)sh->held);
}

static void
arrival(struct sim *s, const struct pbox_frame *f, bool intact)
{
	const struct sim_packet *p = f->handle;

	sim_check_arrival(s, p, &f->hdr, f->payload, intact);
	if (intact)
		sim_restart_arrival(s, &f->hdr, f->payload, p->ip >> 8 & 0xFF);
}

/* The CRC does not cover the tag: damage there is found by the engine alone. */
static bool
tag_damaged(const struct sim *s, const struct pbox_frame *f)
{
	const struct sim_packet *p = f->handle;
	const struct sim_part *j = &s->job[p->ip >> 8 & 0xFF].part[s->box->number];
	unsigned w = f->hdr.worker;

	return p->damaged && w < SIM_WORKERS && j->auth[w].job != NULL &&
	       f->hdr.token == j->token[w] &&
	       ((f->hdr.flags & PBOX_F_AUTH) == 0 ||
		       !pbox_auth_good(
			       j->auth[w].keys.worker, j->auth[w].job, f->payload, f->hdr.length));
}

static void
give(struct sim *s, struct sim_shard *sh, const struct pbox_frame *frame, unsigned n)
{
	uint64_t before[PBOX_SS_STATS], held;
	const struct sim_packet *p;
	bool forged;

	if (n == 0)
		return;
	p = frame[0].handle;
	forged = p->forged;
	sh->frames += n;
	memcpy(before, sh->stats, sizeof(before));
	if (!forged)
		for (unsigned i = 0; i < n; i++) {
			const struct pbox_frame *f = &frame[i];

			arrival(s, f,
				(!f->unverified ||
					pbox_frame_verify(f->payload,
						pbox_crc32c(0, f->payload, f->hdr.length))) &&
					!tag_damaged(s, f));
		}
	s->box->forging = forged;
	held = s->code->shard_rx(sh->engine, frame, n, s->now);
	s->box->forging = false;
	if (n < 64 && held >> n != 0)
		sim_fail(s, "the engine holds frames that it did not get");
	if (forged)
		sim_check_forged(s, sh, before, held, &frame[0].hdr, n);
	settle(s, sh, frame, n, held);
}

/* Rounds that wait for the rate of their job. */
static void
pace_later(struct sim *s, struct sim_shard *sh)
{
	if (sh->pace_due || sh->stats[PBOX_SS_ROUNDS_PACED] == 0)
		return;
	sh->pace_due = true;
	sim_at(s, s->now + sim_below(s, MS), SIM_PACE, s->box->generation, sh->id, NULL);
}

void
sim_box_pace(struct sim *s, unsigned shard)
{
	struct sim_shard *sh = &s->box->shard[shard];

	sh->pace_due = false;
	s->code->shard_pace(sh->engine, s->now);
	pace_later(s, sh);
}

void
sim_box_poll(struct sim *s, unsigned shard)
{
	struct pbox_frame frame[PBOX_SHARD_BURST];
	struct sim_shard *sh = &s->box->shard[shard];
	unsigned n = 0;

	sh->poll_due = false;
	while (sh->first != NULL && n + MAX_TRAIN <= PBOX_SHARD_BURST) {
		struct sim_packet *p = sh->first;
		unsigned k;

		if (p->forged) { /* alone, so that its effect can be seen */
			give(s, sh, frame, n);
			n = 0;
		}
		sh->first = p->next;
		if (sh->first == NULL)
			sh->last = &sh->first;
		k = decode(s, p, frame + n);
		if (k == 0) {
			sim_packet_free(p);
			continue;
		}
		p->in_burst = true;
		n += k;
		if (p->forged) {
			give(s, sh, frame, n);
			n = 0;
		}
	}
	give(s, sh, frame, n);
	pace_later(s, sh);
	if (sh->first != NULL) {
		sh->poll_due = true;
		sim_at(s, s->now + sim_below(s, 20 * US), SIM_POLL, s->box->generation, shard,
			NULL);
	}
}
