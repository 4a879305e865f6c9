/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>
#include <string.h>

#include "sim.h"

/*
 * All workers of a run are killed, and another run starts at once, with other data, perhaps with another number of
 * workers. One of the run before was only asleep: what it sends comes later, under its old token, and it joins again.
 * Every result must be of the new run's contributions alone (section 12 of the protocol); the reference knows no other.
 */

#define STRAGGLER 200 /* its place in the network, beside the workers */
#define TRIES     40

void
sim_identity(const struct sim *s, unsigned job, unsigned life, uint8_t out[PBOX_RUN_LEN])
{
	memset(out, 0, PBOX_RUN_LEN);
	if (s->sc.job[job].named)
		snprintf((char *)out, PBOX_RUN_LEN, "job%u.%u", job, life);
}

void
sim_replace_plan(struct sim *s, unsigned job)
{
	struct sim_fault k = {.job = (uint8_t)job};

	if (s->sc.job[job].replaced == 0 || s->job[job].life > 0)
		return;
	k.value[0] = 25 * MS + sim_below(s, 300 * MS);
	if (sim_fault(s, &k, SIM_FAULT_REPLACE, true))
		sim_at(s, s->now + k.value[0], SIM_REPLACE, job, 0, NULL);
}

/* Without identities the box knows a run by its maps: all workers have them. */
static bool
may_be_replaced(const struct sim *s, unsigned job)
{
	const struct sim_job *j = &s->job[job];
	bool working = true, leaving = j->done > 0 || j->finished > 0 || j->over;

	for (unsigned w = 0; w < s->sc.job[job].workers; w++) {
		working &= j->worker[w].state == SIM_WORK;
		leaving |= j->worker[w].state == SIM_LEAVE;
	}
	return !leaving && (working || s->sc.job[job].named);
}

/* One that has a map. */
static void
choose_straggler(struct sim *s, unsigned job)
{
	struct sim_job *j = &s->job[job];
	const struct sim_worker *w = &j->worker[sim_below(s, s->sc.job[job].workers)];

	if (w->state != SIM_WORK)
		return;
	j->straggler = (struct sim_straggler){
		.there = true,
		.left = TRIES,
		.token = w->token,
		.nonce = w->nonce,
		.run = w->run,
		.incarnation = w->incarnation,
		.request = w->request,
		.job_no = w->job_no,
		.id = w->id,
		.workers = s->sc.job[job].workers,
		.life = j->life,
	};
	sim_at(s, s->now + sim_below(s, 100 * MS), SIM_STRAGGLER, job, 0, NULL);
}

void
sim_replace(struct sim *s, unsigned job)
{
	struct sim_job *j = &s->job[job];
	struct sim_job_spec *spec = &s->sc.job[job];

	if (!may_be_replaced(s, job))
		return;
	sim_note(s, "all workers of job %u are killed, and %u of another run start", job,
		spec->replaced);
	choose_straggler(s, job);
	for (unsigned w = 0; w < SIM_WORKERS; w++)
		sim_worker_kill(s, &j->worker[w]);
	sim_forget_map(j);
	memset(j->token, 0, sizeof(j->token));
	j->done = j->finished = j->down = 0;
	j->life++;
	s->exact = false;
	s->progress_at = s->now;
	spec->workers = spec->replaced;
	if (spec->setters > spec->workers)
		spec->setters = spec->workers;
	for (unsigned w = 0; w < spec->workers; w++)
		sim_at(s, s->now + sim_below(s, 20 * MS), SIM_START, job, w, NULL);
}

static bool
was_replaced(const struct sim *s, unsigned job)
{
	return s->sc.job[job].replaced != 0 && s->job[job].life > 0;
}

bool
sim_replaces(const struct sim *s, const struct sim_worker *w)
{
	return was_replaced(s, w->job) && w->work == NULL;
}

static bool
of_now(const struct sim_job *j, uint64_t nonce)
{
	bool any = false;

	for (unsigned w = 0; w < SIM_WORKERS; w++)
		any |= j->worker[w].state != SIM_OFF && j->worker[w].nonce == nonce;
	return any;
}

bool
sim_is_of_before(const struct sim *s, unsigned job, const struct pbox_send *out)
{
	const struct sim_job *j = &s->job[job];
	struct pbox_welcome m;
	bool now = false;

	if (!was_replaced(s, job))
		return false;
	if (out->hdr.type == PBOX_WELCOME)
		return pbox_welcome_decode(out->payload, out->hdr.length, &m) == 0 &&
		       !of_now(j, m.nonce);
	for (unsigned w = 0; w < SIM_WORKERS; w++)
		now |= j->token[w] != 0 && j->token[w] == out->hdr.token;
	return !now;
}

/* ---- the straggler --------------------------------------------------------------------------------- */

static void
send(struct sim *s, unsigned job, const struct pbox_hdr *h, const void *payload, uint16_t endpoint)
{
	struct sim_packet *p = sim_packet_new(PBOX_HDR_LEN + h->length);

	p->ip = 0x0A000001u + (job << 8) + STRAGGLER;
	p->udp = 4000;
	p->endpoint = endpoint;
	if (h->length > 0)
		memcpy(p->data + PBOX_HDR_LEN, payload, h->length);
	pbox_frame_seal(p->data, h);
	sim_net_send(s, p, true);
}

static struct pbox_hdr
header(struct sim *s, struct sim_straggler *g, enum pbox_type type)
{
	return (struct pbox_hdr){
		.type = (uint8_t)type,
		.token = g->token,
		.job = g->job_no,
		.worker = g->id,
		.incarnation = g->incarnation,
		.chunk = ++g->request,
		.ts = sim_us(s),
	};
}

/* As a contribution of the new run would be, but for the token. */
static void
contribute(struct sim *s, unsigned job)
{
	struct sim_job *j = &s->job[job];
	struct pbox_hdr h = header(s, &j->straggler, PBOX_PUSHPULL);
	const struct sim_fragment *f;
	uint8_t bytes[SIM_MTU * 2];
	bool zero;

	if (j->n_fragments == 0)
		return;
	f = &j->fragment[sim_below(s, j->n_fragments)];
	h.flags = PBOX_F_LAST;
	h.chunk = f->chunk;
	h.frag = f->frag;
	h.map_epoch = PBOX_MAP_EPOCH;
	h.round = f->published + 1;
	h.format = sim_spec(&s->sc, job, f)->fixed.push_format;
	h.length = (uint16_t)sim_contribution(&s->sc, job, j->straggler.life, f, j->straggler.id,
		h.round, bytes, &h.weight, &zero);
	h.flags |= zero ? PBOX_F_ZERO : 0;
	send(s, job, &h, bytes, f->endpoint);
}

/* Before that the box cannot know that it is late. */
static bool
another_has_begun(const struct sim *s, unsigned job)
{
	const struct sim_job *j = &s->job[job];
	bool any = false;

	for (unsigned w = 0; w < s->sc.job[job].workers; w++)
		any |= j->worker[w].run != 0 && j->worker[w].run != j->straggler.run;
	return any;
}

static void
try(struct sim *s, unsigned job)
{
	static const struct pbox_hello hello = {PBOX_VERSION_WIRE, PBOX_VERSION_WIRE};
	struct sim_straggler *g = &s->job[job].straggler;
	uint8_t payload[PBOX_HELLO_LEN];
	struct pbox_hdr h;

	switch (sim_below(s, 3)) {
	case 0:
		contribute(s, job);
		break;
	case 1:
		h = header(s, g, PBOX_PING);
		send(s, job, &h, "", SIM_CONTROL);
		break;
	case 2:
		h = (struct pbox_hdr){.type = PBOX_HELLO,
			.chunk = ++g->request,
			.length = (uint16_t)pbox_hello_encode(payload, sizeof(payload), &hello)};
		send(s, job, &h, payload, SIM_CONTROL);
		break;
	}
}

void
sim_straggler_go(struct sim *s, unsigned job)
{
	struct sim_straggler *g = &s->job[job].straggler;

	if (another_has_begun(s, job)) {
		g->left--;
		try(s, job);
	}
	if (g->left > 0 && s->unfinished > 0)
		sim_at(s, s->now + sim_below(s, 60 * MS), SIM_STRAGGLER, job, 0, NULL);
}

static void
join(struct sim *s, unsigned job, uint64_t cookie)
{
	const struct pbox_job_conf *conf = &s->box.conf[job];
	struct sim_straggler *g = &s->job[job].straggler;
	bool again = !s->sc.job[job].named || sim_chance(s, 0.5);
	struct pbox_join m = {
		.cookie = cookie,
		.nonce = g->nonce,
		.worker = g->id,
		.workers = (uint16_t)g->workers,
		.mtu = s->sc.job[job].mtu,
		.window = 1000,
		.auth = 1,
		.revision = PBOX_REVISION,
		.number = again ? g->run : 0,
	};
	uint8_t payload[PBOX_JOIN_LEN];
	struct pbox_hdr h = {.type = PBOX_JOIN, .chunk = ++g->request, .length = PBOX_JOIN_LEN};

	sim_identity(s, job, g->life, m.run);
	snprintf(m.job, sizeof(m.job), "%s", conf->name);
	snprintf(m.host, sizeof(m.host), "straggler");
	pbox_join_encode(payload, sizeof(payload), &m);
	pbox_proof(payload + PBOX_JOIN_PROOF_AT, conf->secret, conf->secret_len,
		PBOX_JOIN_PROOF_PREFIX, payload, sizeof(payload), PBOX_JOIN_PROOF_AT);
	send(s, job, &h, payload, SIM_CONTROL);
}

void
sim_straggler_receive(struct sim *s, unsigned job, const struct sim_packet *p)
{
	const struct sim_straggler *g = &s->job[job].straggler;
	struct pbox_welcome w;
	struct pbox_retry m;
	struct pbox_hdr h;
	size_t size;

	if (pbox_frame_decode(p->data, p->len, true, &h, &size) != PBOX_WIRE_OK)
		return;
	if (h.type == PBOX_RETRY && pbox_retry_decode(p->data + PBOX_HDR_LEN, h.length, &m) == 0)
		join(s, job, m.cookie);
	else if (h.type == PBOX_WELCOME &&
		 pbox_welcome_decode(p->data + PBOX_HDR_LEN, h.length, &w) == 0)
		sim_fail(s, "job %u worker %u of run %llu, which has ended, gets into run %llu",
			job, g->id, (unsigned long long)g->run, (unsigned long long)w.number);
	else if (h.type == PBOX_RESULT || h.type == PBOX_WAIT || h.type == PBOX_PONG)
		sim_fail(s, "job %u worker %u of a run that has ended gets %s", job, g->id,
			pbox_type_name(h.type));
}
