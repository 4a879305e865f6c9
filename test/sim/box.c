/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "box.h"

/* Zero at the end of every run, so that it serves the next as it is. */
static uint8_t region[SIM_BOXES][SIM_NODES][SIM_NODE_BYTES]
	__attribute__((aligned(PBOX_CACHE_LINE)));

uint8_t *
sim_box_region(unsigned box, unsigned node)
{
	return region[box][node];
}

/* A zero-copy answer on its way out: its payload is read later. */
struct dma {
	struct pbox_send out;
	struct pbox_peer peer;
	uint8_t tag_key[PBOX_AUTH_KEY_LEN], digest[PBOX_AUTH_DIGEST_LEN];
	uint8_t tail[PBOX_CLOCK_VECTOR];
};

static void
transmit(struct sim *s, const struct pbox_send *out)
{
	struct sim_packet *p =
		sim_packet_new(PBOX_HDR_LEN + out->hdr.length + pbox_tag_len(out->hdr.flags));

	p->box = s->box->number;
	p->ip = ntohl(out->peer->ip);
	p->udp = out->peer->udp;
	p->link = out->peer->mac[0];
	p->endpoint = out->peer->local_udp > PBOX_CONTROL_PORT
			      ? (uint16_t)(out->peer->local_udp - PBOX_CONTROL_PORT - 1)
			      : SIM_CONTROL;
	pbox_send_payload(p->data + PBOX_HDR_LEN, out);
	pbox_frame_encode(p->data, &out->hdr, out->payload_crc);
	if (out->tag_key != NULL)
		pbox_auth_tag(out->tag_key, p->data, out->digest,
			p->data + PBOX_HDR_LEN + out->hdr.length);
	sim_trace(s, "box %u -> %u/%u %s chunk %x frag %u round %u flags %x aux %u", p->box,
		p->ip >> 8 & 0xFF, (p->ip & 0xFF) - 1, pbox_type_name(out->hdr.type),
		out->hdr.chunk, out->hdr.frag, out->hdr.round, out->hdr.flags, out->hdr.aux);
	sim_net_send(s, p, false);
}

void
sim_box_dma(struct sim *s, void *p)
{
	struct dma *d = p;

	if (sim_payload_crc(&d->out) != d->out.payload_crc)
		sim_check_overwritten(s, &d->out);
	transmit(s, &d->out);
	free(d);
}

/* The code of a box runs in events of this box alone. */
static struct sim *
of_box(const struct sim_box *b)
{
	if (b->sim->box != b)
		sim_fail(b->sim, "box %u acts in an event of box %u", b->number,
			b->sim->box->number);
	return b->sim;
}

static void
box_send(struct sim *s, const struct pbox_send *out)
{
	/* who forges what comes from a worker gets the refusal, too; it would be about a node that the worker never sent */
	if (s->box->forging && out->hdr.type == PBOX_ERROR && out->hdr.aux == PBOX_E_BAD_REQUEST)
		return;
	sim_check_send(s, out);
	if (out->shared && s->sc.late_dma) {
		struct dma *d = malloc(sizeof(*d));

		PBOX_ASSERT(d != NULL);
		*d = (struct dma){.out = *out, .peer = *out->peer};
		d->out.peer = &d->peer;
		if (out->n_tail > 0) {
			memcpy(d->tail, out->tail, out->n_tail);
			d->out.tail = d->tail;
		}
		if (out->tag_key != NULL) {
			memcpy(d->tag_key, out->tag_key, sizeof(d->tag_key));
			memcpy(d->digest, out->digest, sizeof(d->digest));
			d->out.tag_key = d->tag_key;
			d->out.digest = d->digest;
		}
		sim_at(s, s->now + sim_below(s, 50 * US), SIM_DMA, s->box->generation, 0, d);
		return;
	}
	transmit(s, out);
}

static void
shard_send(void *ctx, const struct pbox_send *out)
{
	struct sim_shard *sh = ctx;

	box_send(of_box(sh->box), out);
}

static void
shard_release(void *ctx, void *const *handle, unsigned n)
{
	struct sim_shard *sh = ctx;

	for (unsigned i = 0; i < n; i++) {
		struct sim_packet *p = handle[i];

		if (p->in_burst) {
			p->early++;
			continue;
		}
		sh->held--;
		if (--p->held == 0)
			sim_packet_free(p);
	}
}

/* Mail keeps its order, whatever its delay. */
static void
post(struct sim *s, const struct pbox_mail *m, bool to_shard)
{
	struct sim_shard *sh = &s->box->shard[m->shard];
	uint64_t *last = to_shard ? &sh->mail_to : &sh->mail_from;
	struct pbox_mail *copy = malloc(sizeof(*copy));
	uint64_t at = s->now;
	bool slow = sim_chance(s, 0.1);
	uint64_t way = sim_below(s, slow ? 20 * MS : 100 * US);
	struct sim_fault k = {.job = s->box->number,
		.to_box = to_shard,
		.worker = (uint8_t)m->shard,
		.round = m->kind,
		.value = {way}};

	PBOX_ASSERT(copy != NULL);
	*copy = *m;
	s->box->mails++;
	k.nth = sim_fault_nth(s, &k);
	at += sim_fault(s, &k, SIM_FAULT_SLOW_MAIL, slow) ? k.value[0] : way % (100 * US);
	*last = at > *last ? at : *last;
	sim_at(s, *last, to_shard ? SIM_MAIL_SHARD : SIM_MAIL_REGISTRAR, s->box->generation,
		m->shard, copy);
}

static void
shard_mail(void *ctx, const struct pbox_mail *m)
{
	struct sim_shard *sh = ctx;
	struct sim *s = of_box(sh->box);

	if (m->shard != sh->id)
		sim_fail(s, "shard %u answered the mail of shard %u", sh->id, m->shard);
	post(s, m, false);
}

void
sim_box_mail(struct sim *s, unsigned shard, void *p, bool to_shard)
{
	struct pbox_mail *m = p;

	s->box->mails--;
	if (to_shard && m->kind == PBOX_MAIL_OWNERS)
		sim_plan_mail(s, m);
	if (to_shard)
		s->code->shard_mail(s->box->shard[shard].engine, m, s->now);
	else
		s->code->registrar_mail(s->box->registrar, m, s->now);
	free(m);
}

static void
registrar_send(void *ctx, const struct pbox_send *out)
{
	box_send(of_box(ctx), out);
}

static void
registrar_post(void *ctx, const struct pbox_mail *m)
{
	post(of_box(ctx), m, true);
}

static void
registrar_random(void *ctx, void *buf, size_t n)
{
	struct sim *s = of_box(ctx);
	uint8_t *p = buf;

	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)pbox_random_u64(&s->box->random);
}

static void
registrar_event(void *ctx, enum pbox_log_level level, const char *text)
{
	struct sim *s = of_box(ctx);

	(void)level;
	sim_note(s, "box %u says: %s", s->box->number, text);
}

static const struct pbox_shard_ops shard_ops = {shard_send, shard_release, shard_mail};
static int
registrar_restore(void *ctx, const struct pbox_job *job, struct pbox_table *t, bool restoring)
{
	struct sim *s = of_box(ctx);

	sim_box_advance_rounds(s);
	return sim_restart_load(s, job, t, restoring);
}

static const struct pbox_registrar_ops registrar_ops = {
	registrar_send, registrar_post, registrar_random, registrar_event, registrar_restore};

static void
start_shard(struct sim *s, unsigned i)
{
	struct sim_shard *sh = &s->box->shard[i];
	struct pbox_shard_conf conf = {
		.id = (uint16_t)i,
		.incarnation = s->box->incarnation,
		.max_jobs = SIM_JOBS,
		.mtu = s->sc.mtu,
		.endpoint = s->box->endpoint,
		.n_endpoints = s->sc.endpoints,
		.reduce = &pbox_reduce_scalar,
		.optim = &pbox_optim_scalar,
		.ops = &shard_ops,
		.ctx = sh,
		.stats = sh->stats,
	};

	sh->box = s->box;
	sh->id = i;
	sh->last = &sh->first;
	sh->engine = s->code->shard_create(&conf);
	PBOX_ASSERT(sh->engine != NULL);
}

void
sim_box_start(struct sim *s)
{
	static const char *const name[SIM_JOBS] = {"job0", "job1", "job2", "job3"};
	struct sim_box *b = s->box;
	struct pbox_registrar_conf conf = {
		.max_jobs = SIM_JOBS,
		.max_workers = SIM_WORKERS,
		.first_run = (uint64_t)b->generation << 20,
		.chunk_elements = s->sc.chunk_elements,
		.lease_ms = s->sc.lease_ms,
		.grace_ms = s->sc.lease_ms % 3 * s->sc.lease_ms,
		.mtu = s->sc.mtu,
		.hold = s->sc.hold,
		.n_shards = s->sc.shards,
		.endpoint = b->endpoint,
		.n_endpoints = s->sc.endpoints,
		.job = b->conf,
		.n_jobs = s->sc.jobs,
		.ops = &registrar_ops,
		.ctx = b,
		.stats = b->stats,
	};

	if (b->number < s->sc.fleet) {
		conf.boxes = (struct pbox_registrar_boxes){
			.boxes = (uint8_t)s->sc.fleet, .box = (uint8_t)b->number, .release = "sim"};
		for (unsigned i = 0; i < s->sc.fleet; i++)
			conf.boxes.at[i] = (struct pbox_endpoint){
				.ipv4 = {10, 255, 0, (uint8_t)(1 + i)}, .udp = PBOX_CONTROL_PORT};
	}
	b->incarnation = conf.incarnation = (uint32_t)pbox_random_u64(&s->box->random) | 1;
	for (unsigned e = 0; e < s->sc.endpoints; e++)
		b->endpoint[e] = (struct pbox_engine_endpoint){
			.addr = {.ipv4 = {10, 255, 0, (uint8_t)(1 + b->number)},
				.udp = (uint16_t)(PBOX_CONTROL_PORT + 1 + e)},
			.shard = (uint16_t)(e % s->sc.shards),
			.node = (uint8_t)(e % s->sc.shards % SIM_NODES)};
	for (unsigned n = 0; n < SIM_NODES; n++)
		conf.arena[n] = b->arena[n] =
			pbox_arena_create(region[b->number][n], SIM_NODE_BYTES);
	for (unsigned i = 0; i < s->sc.jobs; i++)
		b->conf[i] = (struct pbox_job_conf){.name = name[i],
			.secret = name[i],
			.secret_len = 4,
			.auth = s->sc.job[i].auth,
			.bounds.rate = s->sc.rate,
			.policy = PBOX_POLICY_ANY};
	for (unsigned i = 0; i < s->sc.shards; i++)
		start_shard(s, i);
	b->registrar = s->code->registrar_create(&conf);
	PBOX_ASSERT(b->registrar != NULL);
	b->mails = 0;
	b->up = true;
}

void
sim_box_stop(struct sim *s)
{
	if (!s->box->up)
		return;
	s->box->up = false;
	for (unsigned i = 0; i < s->sc.shards; i++) {
		struct sim_shard *sh = &s->box->shard[i];

		while (sh->first != NULL) {
			struct sim_packet *p = sh->first;

			sh->first = p->next;
			sim_packet_free(p);
		}
		s->code->shard_destroy(sh->engine);
	}
	s->code->registrar_destroy(s->box->registrar);
	for (unsigned i = 0; i < s->sc.shards; i++)
		if (s->box->shard[i].held != 0)
			sim_fail(s, "shard %u still holds %llu packets when it is gone", i,
				(unsigned long long)s->box->shard[i].held);
	/* memory that is on its way in a mail is gone with the box */
	if (!s->failed && s->box->mails == 0)
		sim_box_check_memory(s);
	for (unsigned n = 0; n < SIM_NODES; n++)
		pbox_arena_destroy(s->box->arena[n]);
	if (s->failed || s->box->mails > 0) /* nothing is known of what is left there */
		memset(region[s->box->number], 0, sizeof(region[0]));
}

void
sim_box_tick(struct sim *s)
{
	s->code->registrar_heard(s->box->registrar, s->now);
	s->code->registrar_tick(s->box->registrar, s->now);
}

const struct pbox_job *
sim_box_job(const struct sim *s, unsigned job)
{
	for (unsigned i = 0; s->box->up && i < s->code->registrar_jobs(s->box->registrar); i++) {
		const struct pbox_job *j = s->code->registrar_job(s->box->registrar, i);

		if ((unsigned)(j->name[3] - '0') == job)
			return j;
	}
	return NULL;
}

const struct pbox_table *
sim_box_table(const struct sim *s, unsigned job, unsigned table)
{
	const struct pbox_job *j = sim_box_job(s, job);
	const struct pbox_job_table *t = j != NULL ? j->table[table] : NULL;

	return t != NULL && t->built ? &t->t : NULL;
}
