/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "racks.h"

/* What is around a box: registrar, shards and uplinks as they ship, with mail and rings that take their time and may be full. */

#define REGION   (4u << 20)
#define TRAIN    24 /* frames of one datagram, at most */
#define MAX_JOBS 4
#define WINDOW   256 /* full datagrams that may arrive at an uplink at once */

/* Zero at the end of every run, so that it serves the next as it is. */
static uint8_t region[RACKS_BOXES][REGION] __attribute__((aligned(PBOX_CACHE_LINE)));

/* A frame that was given to a shard, with its memory: exactly as long as it is. */
struct buffer {
	bool in_burst, early, held;
	uint32_t len;
	uint8_t data[];
};

/* A zero-copy answer on its way out: its payload is read later. */
struct dma {
	struct pbox_send out;
	struct pbox_peer peer;
	uint8_t tag_key[PBOX_AUTH_KEY_LEN], digest[PBOX_AUTH_DIGEST_LEN];
};

static void
buffer_free(struct buffer *f)
{
	memset(f->data, 0xDB, f->len);
	free(f);
}

static void
queue(struct racks_box *b, uint64_t at, enum racks_event kind, unsigned index, void *p)
{
	racks_at(b->w, at, kind, b->number, index, p);
}

static void
links_soon(struct racks_box *b, uint64_t at)
{
	if (b->uplinks == NULL || (b->links_at != 0 && b->links_at <= at))
		return;
	b->links_at = at < b->w->now ? b->w->now : at;
	queue(b, b->links_at, RACKS_LINKS, b->generation, NULL);
}

/* ---- what it sends --------------------------------------------------------------------------- */

static void
transmit(struct racks_box *b, const struct pbox_send *out)
{
	struct racks_packet *p =
		racks_packet_new(PBOX_HDR_LEN + out->hdr.length + pbox_tag_len(out->hdr.flags));

	p->from_ip = RACKS_BOX_IP + b->number;
	p->from = out->peer->local_udp;
	p->to_ip = ntohl(out->peer->ip);
	p->to = out->peer->udp;
	pbox_send_payload(p->data + PBOX_HDR_LEN, out);
	pbox_frame_encode(p->data, &out->hdr, out->payload_crc);
	if (out->tag_key != NULL)
		pbox_auth_tag(out->tag_key, p->data, out->digest,
			p->data + PBOX_HDR_LEN + out->hdr.length);
	if (b->w->verbose)
		racks_note(b->w,
			"box %u -> %x:%u %s chunk %x frag %u round %u flags %x aux %u base %u weight %u",
			b->number, p->to_ip, p->to, pbox_type_name(out->hdr.type), out->hdr.chunk,
			out->hdr.frag, out->hdr.round, out->hdr.flags, out->hdr.aux, out->hdr.base,
			out->hdr.weight);
	racks_net_send(b->w, p);
}

static void
box_send(struct racks_box *b, const struct pbox_send *out)
{
	struct dma *d;

	if (!out->shared || !b->w->sp.late_dma) {
		transmit(b, out);
		return;
	}
	d = malloc(sizeof(*d));
	PBOX_ASSERT(d != NULL && out->n_tail == 0);
	*d = (struct dma){.out = *out, .peer = *out->peer};
	d->out.peer = &d->peer;
	if (out->tag_key != NULL) {
		memcpy(d->tag_key, out->tag_key, sizeof(d->tag_key));
		memcpy(d->digest, out->digest, sizeof(d->digest));
		d->out.tag_key = d->tag_key;
		d->out.digest = d->digest;
	}
	queue(b, b->w->now + racks_below(b->w, 50 * US), RACKS_DMA, b->generation, d);
}

static void
shard_send(void *ctx, const struct pbox_send *out)
{
	const struct racks_shard *sh = ctx;

	box_send(sh->box, out);
}

static void
shard_release(void *ctx, void *const *handle, unsigned n)
{
	struct racks_shard *sh = ctx;

	for (unsigned i = 0; i < n; i++) {
		struct buffer *f = handle[i];

		if (f->in_burst) {
			f->early = true;
			continue;
		}
		PBOX_ASSERT(f->held && sh->held > 0);
		sh->held--;
		buffer_free(f);
	}
}

/* Mail keeps its order, whatever its delay. */
static uint64_t
in_order(struct racks *w, uint64_t *last, uint64_t most)
{
	uint64_t at = w->now + racks_below(w, racks_chance(w, 0.05) ? 20 * most : most);

	*last = at > *last ? at : *last;
	return *last;
}

static void
post(struct racks_box *b, const struct pbox_mail *m, bool to_shard)
{
	struct racks_shard *sh = &b->shard[m->shard];
	struct pbox_mail *copy = malloc(sizeof(*copy));

	PBOX_ASSERT(copy != NULL);
	*copy = *m;
	b->mails++;
	queue(b, in_order(b->w, to_shard ? &sh->mail_to : &sh->mail_from, 100 * US),
		to_shard ? RACKS_MAIL_SHARD : RACKS_MAIL_REGISTRAR, b->generation | m->shard << 16,
		copy);
}

static void
shard_mail(void *ctx, const struct pbox_mail *m)
{
	const struct racks_shard *sh = ctx;

	post(sh->box, m, false);
}

static void
pace_later(struct racks_shard *sh)
{
	struct racks_box *b = sh->box;

	if (sh->pace_due)
		return;
	sh->pace_due = true;
	queue(b, b->w->now + racks_below(b->w, 200 * US), RACKS_PACE, b->generation | sh->id << 16,
		NULL);
}

/* Into the ring to the uplinks, which may be full. */
static bool
shard_up(void *ctx, const struct pbox_up *up)
{
	struct racks_shard *sh = ctx;
	struct racks_box *b = sh->box;
	struct pbox_up *copy;

	if (sh->up > 0 && racks_chance(b->w, 0.2)) {
		pace_later(sh);
		return false;
	}
	copy = malloc(sizeof(*copy));
	PBOX_ASSERT(copy != NULL);
	*copy = *up;
	sh->up++;
	queue(b, in_order(b->w, &sh->up_at, 30 * US), RACKS_UP, b->generation | sh->id << 16, copy);
	return true;
}

static const struct pbox_shard_ops shard_ops = {
	.send = shard_send, .release = shard_release, .mail = shard_mail, .up = shard_up};

/* ---- its registrar ----------------------------------------------------------------------------- */

static void
registrar_send(void *ctx, const struct pbox_send *out)
{
	box_send(ctx, out);
}

static void
registrar_post(void *ctx, const struct pbox_mail *m)
{
	post(ctx, m, true);
}

static void
registrar_random(void *ctx, void *buf, size_t n)
{
	struct racks_box *b = ctx;

	for (size_t i = 0; i < n; i++)
		((uint8_t *)buf)[i] = (uint8_t)pbox_random_u64(&b->w->random);
}

static void
registrar_event(void *ctx, enum pbox_log_level level, const char *text)
{
	const struct racks_box *b = ctx;

	(void)level;
	racks_note(b->w, "box %u says: %s", b->number, text);
}

static int
registrar_restore(void *ctx, const struct pbox_job *job, struct pbox_table *t, bool restoring)
{
	struct racks_box *b = ctx;

	if (b->uplinks == NULL)
		return -1; /* there are no snapshots */
	links_soon(b, b->w->now);
	return b->w->code->uplinks_restore(b->uplinks, job, t, restoring);
}

static void
registrar_uplink_restored(void *ctx, const struct pbox_job *job, const struct pbox_table *t)
{
	struct racks_box *b = ctx;

	b->w->code->uplinks_restored(b->uplinks, job, t);
	links_soon(b, b->w->now);
}

static void
registrar_restore_cancel(void *ctx, const struct pbox_job *job, uint32_t table)
{
	struct racks_box *b = ctx;

	links_soon(b, b->w->now);
	b->w->code->uplinks_restore_cancel(b->uplinks, job, table);
}

static int
registrar_uplink(void *ctx, const struct pbox_registrar_uplink *run, unsigned *window,
	struct pbox_error *err)
{
	struct racks_box *b = ctx;

	links_soon(b, b->w->now);
	return b->w->code->uplinks_uplink(b->uplinks, run, b->w->now, window, err);
}

static void
registrar_uplink_begin(void *ctx, const struct pbox_job *job, const uint8_t *run)
{
	struct racks_box *b = ctx;

	b->w->code->uplinks_begin(b->uplinks, job, run);
}

static void
registrar_uplink_end(void *ctx, const struct pbox_job *job)
{
	struct racks_box *b = ctx;

	if (b->uplinks == NULL) /* it has crashed */
		return;
	links_soon(b, b->w->now);
	b->w->code->uplinks_end(b->uplinks, job, true, b->w->now);
}

static const struct pbox_registrar_ops registrar_ops = {
	.send = registrar_send,
	.post = registrar_post,
	.random = registrar_random,
	.event = registrar_event,
	.restore = registrar_restore,
	.restore_cancel = registrar_restore_cancel,
	.uplink = registrar_uplink,
	.uplink_begin = registrar_uplink_begin,
	.uplink_end = registrar_uplink_end,
	.uplink_restored = registrar_uplink_restored,
};

/* ---- its uplinks --------------------------------------------------------------------------------- */

static void
link_send(void *ctx, unsigned link, const struct pbox_client_tx *d, unsigned n)
{
	struct racks_box *b = ctx;

	for (unsigned i = 0; i < n; i++) {
		struct racks_packet *p = racks_packet_of(&d[i]);

		p->from_ip = RACKS_BOX_IP + b->number;
		p->from = (uint16_t)(RACKS_UPLINK - link);
		if (p->len != d[i].bytes || p->len > b->w->sp.mtu - 28)
			racks_fail(b->w, "box %u sends a datagram of %u bytes, of %u, up",
				b->number, p->len, d[i].bytes);
		racks_net_send(b->w, p);
	}
}

static uint64_t
link_random(void *ctx)
{
	struct racks_box *b = ctx;

	return pbox_random_u64(&b->w->random);
}

static bool
link_down(void *ctx, const struct pbox_up *up)
{
	struct racks_box *b = ctx;
	struct pbox_up *copy;

	if (racks_chance(b->w, 0.1)) { /* the ring is full */
		links_soon(b, b->w->now + 20 * US);
		return false;
	}
	copy = malloc(sizeof(*copy));
	PBOX_ASSERT(copy != NULL);
	*copy = *up;
	queue(b, in_order(b->w, &b->shard[up->shard].down_at, 30 * US), RACKS_DOWN,
		b->generation | (unsigned)up->shard << 16, copy);
	return true;
}

static void
link_loaded(void *ctx, const struct pbox_job *job, uint32_t table, const struct pbox_error *err)
{
	struct racks_box *b = ctx;

	b->w->code->registrar_loaded(b->registrar, job, table, err, b->w->now);
}

static void
link_failed(void *ctx, const struct pbox_job *job, const char *why)
{
	struct racks_box *b = ctx;

	racks_note(b->w, "box %u: its uplink has failed: %s", b->number, why);
	b->w->code->registrar_uplink_failed(b->registrar, job, why, b->w->now);
}

static const struct pbox_uplinks_ops uplinks_ops = {
	link_send, link_random, link_down, link_loaded, link_failed};

static void
start_uplinks(struct racks_box *b)
{
	struct pbox_uplinks_conf c = {.rack = {(uint16_t)(b->number - 1), (uint16_t)b->w->sp.racks},
		.upper = {.sin_family = AF_INET, .sin_port = htons(PBOX_CONTROL_PORT)},
		.mtu = b->w->sp.mtu,
		.window = WINDOW,
		.host = "rack",
		.ops = &uplinks_ops,
		.ctx = b};

	c.upper.sin_addr.s_addr = htonl(RACKS_BOX_IP);
	b->uplinks = b->w->code->uplinks_create(&c);
	PBOX_ASSERT(b->uplinks != NULL);
	b->links_at = 0;
}

/* ---- its life ------------------------------------------------------------------------------------- */

static void
start_shard(struct racks_box *b, unsigned i)
{
	struct racks_shard *sh = &b->shard[i];
	struct pbox_shard_conf conf = {
		.id = (uint16_t)i,
		.incarnation = b->incarnation,
		.max_jobs = MAX_JOBS,
		.mtu = (uint16_t)b->w->sp.mtu,
		.endpoint = b->endpoint,
		.n_endpoints = b->n_shards,
		.reduce = &pbox_reduce_scalar,
		.optim = &pbox_optim_scalar,
		.ops = &shard_ops,
		.ctx = sh,
		.stats = sh->stats,
	};

	*sh = (struct racks_shard){.box = b, .id = i};
	sh->last = &sh->first;
	sh->engine = b->w->code->shard_create(&conf);
	PBOX_ASSERT(sh->engine != NULL);
}

void
racks_box_start(struct racks *w, unsigned number)
{
	struct racks_box *b = &w->box[number];
	struct pbox_registrar_conf conf = {
		.first_run = pbox_registrar_first_run(w->now),
		.max_jobs = MAX_JOBS,
		.max_workers = RACKS_WORKERS,
		.chunk_elements = w->sp.chunk_elements,
		.lease_ms = 5000,
		.grace_ms = 600000, /* a rack may have one worker, and that may be killed */
		.mtu = (uint16_t)w->sp.mtu,
		.hold = w->sp.hold[number > 0],
		.endpoint = b->endpoint,
		.job = &b->conf,
		.n_jobs = 1,
		.ops = &registrar_ops,
		.ctx = b,
		.stats = b->stats,
	};

	b->w = w;
	b->number = number;
	b->n_shards = conf.n_shards = conf.n_endpoints = w->sp.shards[number > 0];
	b->incarnation = conf.incarnation = (uint32_t)pbox_random_u64(&w->random) | 1;
	b->mails = 0;
	memset(b->stats, 0, sizeof(b->stats));
	b->conf = (struct pbox_job_conf){.name = "job",
		.secret = "key",
		.secret_len = 3,
		.auth = w->sp.auth,
		.policy = PBOX_POLICY_ANY};
	for (unsigned i = 0; i < b->n_shards; i++)
		b->endpoint[i] = (struct pbox_engine_endpoint){
			.addr = {.ipv4 = {10, 255, 0, (uint8_t)(1 + number)},
				.udp = (uint16_t)(PBOX_CONTROL_PORT + 1 + i)},
			.shard = (uint16_t)i};
	conf.arena[0] = b->arena = pbox_arena_create(region[number], REGION);
	if (number > 0) {
		conf.rack =
			(struct pbox_registrar_rack){(uint16_t)(number - 1), (uint16_t)w->sp.racks};
		start_uplinks(b);
	}
	for (unsigned i = 0; i < b->n_shards; i++)
		start_shard(b, i);
	b->registrar = w->code->registrar_create(&conf);
	PBOX_ASSERT(b->registrar != NULL);
	b->up = true;
}

void
racks_box_stop(struct racks *w, unsigned number)
{
	struct racks_box *b = &w->box[number];
	struct pbox_uplinks *links = b->uplinks;

	if (!b->up)
		return;
	b->up = false;
	b->generation++;
	b->uplinks = NULL;
	w->code->uplinks_destroy(links);
	for (unsigned i = 0; i < b->n_shards; i++) {
		struct racks_shard *sh = &b->shard[i];

		for (struct racks_packet *p; (p = sh->first) != NULL; free(p))
			sh->first = p->next;
		w->code->shard_destroy(sh->engine);
		if (sh->held != 0)
			racks_fail(w, "box %u, shard %u holds %llu packets when it is gone", number,
				i, (unsigned long long)sh->held);
	}
	w->code->registrar_destroy(b->registrar);
	pbox_arena_destroy(b->arena);
	memset(region[number], 0, REGION);
}

void
racks_box_tick(struct racks_box *b)
{
	b->w->code->registrar_heard(b->registrar, b->w->now);
	b->w->code->registrar_tick(b->registrar, b->w->now);
}

/* ---- what it receives ------------------------------------------------------------------------------ */

static struct pbox_peer
peer_of(const struct racks_packet *p)
{
	return (struct pbox_peer){.ip = htonl(p->from_ip),
		.udp = p->from,
		.local_ip = htonl(p->to_ip),
		.local_udp = p->to};
}

static void
control(struct racks_box *b, struct racks_packet *p)
{
	const uint8_t *at = p->data;
	size_t len = p->len;

	while (len > 0 && b->up) {
		struct pbox_frame f = {.peer = peer_of(p)};
		size_t size = 0;

		if (pbox_frame_decode(at, len, at == p->data, &f.hdr, &size) != PBOX_WIRE_OK ||
			size > len)
			break;
		f.payload = at + PBOX_HDR_LEN;
		b->w->code->registrar_rx(b->registrar, &f, b->w->now);
		at += size;
		len -= size;
	}
	free(p);
}

static void
poll_later(struct racks_shard *sh)
{
	struct racks_box *b = sh->box;

	if (sh->poll_due)
		return;
	sh->poll_due = true;
	queue(b, b->w->now + racks_below(b->w, 20 * US), RACKS_POLL, b->generation | sh->id << 16,
		NULL);
}

void
racks_box_arrive(struct racks *w, struct racks_box *b, struct racks_packet *p)
{
	struct racks_shard *sh;

	if (p->to == PBOX_CONTROL_PORT) {
		control(b, p);
		return;
	}
	if (p->to < PBOX_CONTROL_PORT) {
		struct pbox_client_rx rx = {.data = p->data, .len = p->len};

		rx.from.sin_family = AF_INET;
		rx.from.sin_addr.s_addr = htonl(p->from_ip);
		rx.from.sin_port = htons(p->from);
		if (b->uplinks != NULL)
			w->code->uplinks_rx(b->uplinks, RACKS_UPLINK - p->to, &rx, 1, w->now);
		links_soon(b, w->now + racks_below(w, 10 * US));
		free(p);
		return;
	}
	PBOX_ASSERT(p->to - PBOX_CONTROL_PORT - 1u < b->n_shards);
	sh = &b->shard[p->to - PBOX_CONTROL_PORT - 1];
	p->next = NULL;
	*sh->last = p;
	sh->last = &p->next;
	poll_later(sh);
}

/* Its frames, each in memory of its own. */
static unsigned
frames_of(const struct racks_packet *p, struct pbox_frame *frame)
{
	size_t at = 0, size = 0;
	unsigned n = 0;

	while (at < p->len && n < TRAIN) {
		struct pbox_frame *f = &frame[n];
		enum pbox_wire_drop drop;
		struct buffer *m;

		memset(f, 0, sizeof(*f));
		/* as the data plane does it: what comes alone is verified when it is summed */
		drop = at == 0 ? pbox_frame_open(p->data, p->len, &f->hdr, &size, &f->unverified)
			       : pbox_frame_decode(
					 p->data + at, p->len - at, false, &f->hdr, &size);
		if (drop != PBOX_WIRE_OK || at + size > p->len)
			break;
		m = malloc(sizeof(*m) + size);
		PBOX_ASSERT(m != NULL);
		*m = (struct buffer){.in_burst = true, .len = (uint32_t)size};
		memcpy(m->data, p->data + at, size);
		f->payload = m->data + PBOX_HDR_LEN;
		f->handle = m;
		f->peer = peer_of(p);
		at += size;
		n++;
	}
	return n;
}

static void
poll(struct racks_shard *sh)
{
	struct pbox_frame frame[PBOX_SHARD_BURST];
	struct racks *w = sh->box->w;
	uint64_t held = 0;
	unsigned n = 0;

	sh->poll_due = false;
	while (sh->first != NULL && n + TRAIN <= PBOX_SHARD_BURST) {
		struct racks_packet *p = sh->first;

		sh->first = p->next;
		if (sh->first == NULL)
			sh->last = &sh->first;
		n += frames_of(p, frame + n);
		free(p);
	}
	if (n > 0)
		held = w->code->shard_rx(sh->engine, frame, n, w->now);
	for (unsigned i = 0; i < n; i++) {
		struct buffer *m = frame[i].handle;

		m->held = (held >> i & 1) != 0;
		m->in_burst = false;
		if (m->early && !m->held)
			racks_fail(w, "box %u gave back a packet that it did not hold",
				sh->box->number);
		if (m->early || !m->held)
			buffer_free(m);
		else
			sh->held++;
	}
	if (sh->held != w->code->shard_held(sh->engine))
		racks_fail(w, "box %u says that it holds %u packets, and holds %llu",
			sh->box->number, w->code->shard_held(sh->engine),
			(unsigned long long)sh->held);
	w->code->shard_pace(sh->engine, w->now);
	if (sh->first != NULL)
		poll_later(sh);
}

/* ---- what happens there ------------------------------------------------------------------------------ */

static void
links(struct racks *w, struct racks_box *b)
{
	uint64_t due;

	if (w->now != b->links_at)
		return; /* an earlier one has replaced it */
	b->links_at = 0;
	due = w->code->uplinks_step(b->uplinks, w->now);
	if (due != UINT64_MAX)
		links_soon(b, due > w->now ? due : w->now + 5 * US);
}

void
racks_box_event(struct racks *w, struct racks_box *b, const struct sim_event *e)
{
	struct racks_shard *sh = &b->shard[e->worker >> 16 & 0xFF];

	switch ((unsigned)e->kind) {
	case RACKS_POLL:
		poll(sh);
		break;
	case RACKS_PACE:
		sh->pace_due = false;
		w->code->shard_pace(sh->engine, w->now);
		break;
	case RACKS_DMA:
		transmit(b, &((const struct dma *)e->p)->out);
		break;
	case RACKS_MAIL_SHARD:
		b->mails--;
		w->code->shard_mail(sh->engine, e->p, w->now);
		break;
	case RACKS_MAIL_REGISTRAR:
		b->mails--;
		w->code->registrar_mail(b->registrar, e->p, w->now);
		break;
	case RACKS_UP:
		sh->up--;
		w->code->uplinks_up(b->uplinks, e->p);
		links_soon(b, w->now + racks_below(w, 10 * US));
		break;
	case RACKS_DOWN:
		w->code->shard_down(sh->engine, e->p, w->now);
		break;
	case RACKS_LINKS:
		links(w, b);
		break;
	default:
		PBOX_ASSERT(!"an event of a box");
	}
	free(e->p);
}
