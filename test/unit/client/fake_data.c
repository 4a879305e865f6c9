/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>

#include "fake_impl.h"

#define STALE_US 1000000

/* Sections 5.7 to 6 of the protocol: the map, rounds, exactly once. */

/** Contributors of a round. */
static unsigned
fake_slots(const struct fake_box *b)
{
	return b->conf.slots != 0 ? b->conf.slots : b->conf.workers;
}

/* ---- the map --------------------------------------------------------------------------- */

static void
add_segment(struct fake_chunk *k, uint32_t tensor, uint64_t offset, uint32_t elements)
{
	k->e.segment[k->e.segments++] = (struct pbox_segment){offset, tensor, elements};
	k->e.elements += elements;
}

/** Large tensors have chunks of their own, small ones of one group share them (R5.9). */
static void
place(struct fake_box *b, struct fake_table *t)
{
	uint32_t cap = t->elements / 64 + t->head.tensors + t->elements / b->conf.chunk + 4;
	struct fake_chunk *shared = NULL;
	unsigned group = 0;

	t->chunk = calloc(cap, sizeof(*t->chunk));
	for (uint32_t i = 0; i < t->head.tensors; i++) {
		uint64_t n = t->tensor[i].elements;

		if (n == 0)
			continue;
		if (n < t->frag_elements) {
			if (shared == NULL || group != t->tensor[i].group ||
				shared->e.segments == PBOX_MAX_SEGMENTS ||
				shared->e.elements + n > b->conf.chunk)
				shared = &t->chunk[t->n_chunks++];
			group = t->tensor[i].group;
			add_segment(shared, i, 0, (uint32_t)n);
			continue;
		}
		shared = NULL;
		for (uint64_t at = 0; at < n; at += b->conf.chunk)
			add_segment(&t->chunk[t->n_chunks++], i, at,
				(uint32_t)(n - at < b->conf.chunk ? n - at : b->conf.chunk));
	}
}

void
fake_map(struct fake_box *b, struct fake_table *t)
{
	unsigned mtu = b->conf.mtu, push = pbox_format_size(t->head.push_format);
	unsigned pull = pbox_format_size(t->head.pull_format), id = (unsigned)(t - b->table) << 20;
	uint32_t at = 0;

	for (unsigned i = 0; i < b->conf.workers; i++)
		if (b->member[i].mtu < mtu)
			mtu = b->member[i].mtu;
	for (uint32_t i = 0; i < t->head.tensors; i++)
		t->elements += (uint32_t)t->tensor[i].elements;
	if (b->conf.auth)
		mtu -= PBOX_TAG_LEN;
	t->frag_elements = pbox_frag_elements(mtu, t->head.push_format, t->head.pull_format);
	place(b, t);
	for (uint32_t i = 0; i < t->n_chunks; i++) {
		struct fake_chunk *k = &t->chunk[i];

		k->e.chunk_id = id + i;
		k->e.endpoint = (uint16_t)(i % b->conf.endpoints);
		k->frag = t->n_frags;
		k->frags = (k->e.elements + t->frag_elements - 1) / t->frag_elements;
		t->n_frags += k->frags;
	}
	t->frag = calloc(t->n_frags + 1, sizeof(*t->frag));
	for (uint32_t i = 0; i < t->n_chunks; i++)
		for (uint32_t f = 0, left = t->chunk[i].e.elements; f < t->chunk[i].frags; f++) {
			struct fake_frag *g = &t->frag[t->chunk[i].frag + f];

			g->at = at;
			g->elements = left < t->frag_elements ? left : t->frag_elements;
			g->ready = t->head.mode == PBOX_MODE_ALLREDUCE;
			at += g->elements;
			left -= g->elements;
		}
	for (unsigned i = 0; i < fake_slots(b); i++)
		t->in[i] = malloc((size_t)t->elements * push + 1);
	t->out = malloc((size_t)t->elements * pull + 1);
	t->param = calloc(t->elements + 1, sizeof(float));
	t->state = calloc(t->elements + 1, sizeof(float));
	t->mapped = true;
}

void
fake_table_free(struct fake_table *t)
{
	free(t->tensor);
	free(t->chunk);
	free(t->frag);
	for (unsigned i = 0; i < FAKE_WORKERS; i++)
		free(t->in[i]);
	free(t->out);
	free(t->param);
	free(t->state);
}

/* ---- rounds ---------------------------------------------------------------------------- */

static float
load(const uint8_t *p, unsigned format, uint32_t i)
{
	uint16_t h;
	float f;

	if (format == PBOX_FMT_BF16) {
		memcpy(&h, p + 2 * (size_t)i, 2);
		return from_bf16(h);
	}
	memcpy(&f, p + 4 * (size_t)i, 4);
	return f;
}

static void
store(uint8_t *p, unsigned format, uint32_t i, float f)
{
	uint16_t h = to_bf16(f);

	if (format == PBOX_FMT_BF16)
		memcpy(p + 2 * (size_t)i, &h, 2);
	else
		memcpy(p + 4 * (size_t)i, &f, 4);
}

/** In the order of slots: where that is not the tree's, tests have values whose sums are exact. */
static void
finish(struct fake_box *b, struct fake_table *t, struct fake_frag *g)
{
	unsigned n = fake_slots(b);
	double by = t->head.op == PBOX_OP_MEAN ? n : 1;
	float scale;

	g->samples = 0;
	for (unsigned w = 0; w < n; w++)
		if ((g->nodes >> w & 1) != 0)
			g->samples += g->weight[w];
	if (t->head.op >= PBOX_OP_SAMPLE_MEAN)
		by = g->samples;
	scale = (float)(1.0 / by);
	for (uint32_t i = g->at; i < g->at + g->elements; i++) {
		float s = 0;

		for (unsigned w = 0; w < n; w++) {
			float v;

			if ((g->nodes >> w & 1) == 0)
				continue;
			v = load(t->in[w], t->head.push_format, i);
			if (t->head.op == PBOX_OP_WEIGHTED_MEAN)
				v *= (float)g->weight[w];
			s = w == 0 ? v : s + v;
		}
		if (t->head.op != PBOX_OP_SUM)
			s *= scale;
		if (t->head.mode == PBOX_MODE_OPTIMISER) {
			t->state[i] += s;
			s = t->param[i] -= (float)t->lr * s;
		}
		store(t->out, t->head.pull_format, i, s);
	}
	g->version++;
	g->have = g->nodes = 0;
	b->counts.rounds++;
}

struct place {
	struct fake_box *b;
	struct fake_table *t;
	struct fake_frag *g;
	const struct pbox_hdr *q;
	int fd;
};

static void
reply(const struct place *p, unsigned worker, uint8_t type, uint16_t flags, uint32_t ts,
	uint32_t held)
{
	struct pbox_hdr h = {.type = type,
		.flags = flags,
		.token = p->b->member[worker].token,
		.job = 1,
		.worker = (uint16_t)worker,
		.incarnation = p->b->incarnation,
		.chunk = p->q->chunk,
		.frag = p->q->frag,
		.round = p->q->round,
		.base = p->q->base,
		.map_epoch = 7,
		.aux = (uint16_t)__builtin_popcount(p->g->have),
		.weight = 0xFFFFFFFF,
		.ts = ts,
		.held = held};

	if (type == PBOX_WAIT)
		for (unsigned i = fake_slots(p->b); i-- > 0;)
			if ((p->g->have >> i & 1) == 0)
				h.weight = i * p->b->conf.workers / fake_slots(p->b);
	if (type == PBOX_RESULT) {
		unsigned size = pbox_format_size(p->t->head.pull_format);

		h.round = h.base = p->g->version;
		h.aux = (uint16_t)fake_slots(p->b);
		h.weight = p->g->samples;
		h.format = p->t->head.pull_format;
		h.length = (uint16_t)(p->g->elements * size);
		memcpy(p->b->tx + PBOX_HDR_LEN, p->t->out + (size_t)p->g->at * size, h.length);
	}
	if (type == PBOX_ERROR)
		h.aux = PBOX_E_NO_LR;
	fake_send(p->b, p->fd, &p->b->member[worker].addr, &h);
}

/** Bitmap of the slots that a contribution brings, 0: they are not its worker's; *@p at: the first of them. */
static uint32_t
node_slots(const struct place *p, unsigned *at)
{
	unsigned w = p->q->worker, workers = p->b->conf.workers, slots = p->b->conf.slots, end;
	struct pbox_node node;

	*at = w;
	if (slots == 0)
		return 1u << w;
	if (!pbox_node_decode(p->q->base, slots, &node))
		return 0;
	*at = node.first;
	end = pbox_node_end(node, slots);
	if (node.first < pbox_slots_of(w, workers, slots) ||
		end > pbox_slots_of(w + 1, workers, slots))
		return 0;
	return ((1u << end) - 1) & ~((1u << node.first) - 1);
}

static void
contribute(const struct place *p, const uint8_t *payload)
{
	struct fake_frag *g = p->g;
	struct fake_table *t = p->t;
	const struct pbox_hdr *q = p->q;
	unsigned w = q->worker, size = pbox_format_size(t->head.push_format), at;
	uint32_t slots = node_slots(p, &at);
	bool had = (g->have & slots) != 0, ask = q->type == PBOX_PUSHPULL;
	bool zero = (q->flags & PBOX_F_ZERO) != 0;

	if (slots == 0 || q->length != (zero ? 0 : g->elements * size) ||
		q->format != t->head.push_format || q->map_epoch != 7) {
		p->b->counts.malformed++;
		return;
	}
	if (p->b->conf.stale)
		reply(p, w, PBOX_ERROR, 0, q->ts - STALE_US, 0);
	if (!g->ready || fake_restoring(t, g) || (p->b->conf.no_room && w == 0)) {
		reply(p, w, PBOX_WAIT, 0, q->ts, 0);
	} else if (t->head.mode == PBOX_MODE_OPTIMISER && t->lr == 0) {
		reply(p, w, PBOX_ERROR, 0, q->ts, 0);
	} else if (q->round == g->version && ask) {
		reply(p, w, PBOX_RESULT, 0, q->ts, 0);
	} else if (q->round == g->version) {
		reply(p, w, PBOX_PUSH_OK, 0, q->ts, 0);
	} else if (q->round == g->version + 1) {
		if (!p->b->first_seen)
			p->b->first_chunk = q->chunk;
		p->b->first_seen = true;
		g->told &= ~(1u << w);
		if (p->b->conf.take_back != 0 && ask && !had && (g->damaged >> w & 1) == 0 &&
			++p->b->contributions % p->b->conf.take_back == 0) {
			g->damaged |= 1u << w;
			g->ts[w] = q->ts;
			return;
		}
		g->damaged &= ~(1u << w); /* in time: the repetition takes its place */
		p->b->counts.duplicates += had;
		if (!had && zero)
			memset(t->in[at] + (size_t)g->at * size, 0, g->elements * size);
		else if (!had)
			memcpy(t->in[at] + (size_t)g->at * size, payload, q->length);
		g->weight[at] = q->weight;
		g->have |= slots;
		g->nodes |= 1u << at;
		if (!ask)
			reply(p, w, PBOX_PUSH_OK, 0, q->ts, 0);
		else {
			g->asked |= 1u << w;
			g->ts[w] = q->ts;
			g->since[w] = fake_now();
			if (had)
				reply(p, w, PBOX_WAIT, PBOX_F_HAVE, q->ts, 0);
		}
		if (__builtin_popcount(g->have) == (int)fake_slots(p->b)) {
			finish(p->b, t, g);
			for (unsigned i = 0; i < p->b->conf.workers; i++)
				if ((g->asked >> i & 1) != 0)
					reply(p, i, PBOX_RESULT, 0, g->ts[i],
						(uint32_t)(fake_now() - g->since[i]));
			g->asked = 0;
		}
	}
}

/** The worker asks about a contribution that is damaged, or was. */
static bool
take_back(const struct place *p)
{
	struct fake_frag *g = p->g;
	const struct pbox_hdr *q = p->q;
	unsigned w = q->worker;

	if ((g->told >> w & 1) != 0 && (int32_t)(q->ts - g->told_us[w]) >= 10000)
		p->b->counts.asked_after++;
	if ((g->damaged >> w & 1) == 0 || q->round != g->version + 1)
		return false;
	reply(p, w, PBOX_WAIT, PBOX_F_HAVE, q->ts, 0);
	reply(p, w, PBOX_WAIT, 0, g->ts[w] ^ (p->b->conf.take_back_ts ? 1u << 20 : 0), 0);
	g->damaged &= ~(1u << w);
	g->told |= 1u << w;
	g->told_us[w] = (uint32_t)fake_now();
	p->b->counts.taken_back++;
	return true;
}

/** The result's bytes, for one that is not what the fragment is now. */
static void
invert(const struct place *p)
{
	unsigned size = pbox_format_size(p->t->head.pull_format);
	uint8_t *at = p->t->out + (size_t)p->g->at * size;

	for (size_t i = 0; i < (size_t)p->g->elements * size; i++)
		at[i] ^= 0x55;
}

static void
on_pull(const struct place *p)
{
	struct fake_frag *g = p->g;
	const struct pbox_hdr *q = p->q;
	unsigned w = q->worker;

	if (take_back(p))
		return;
	if (fake_restoring(p->t, g)) {
		reply(p, w, PBOX_WAIT, 0, q->ts, 0);
		return;
	}
	if (p->b->conf.stale && g->ready && (q->flags & PBOX_F_LATEST) != 0) {
		invert(p);
		g->version--;
		reply(p, w, PBOX_RESULT, 0, q->ts - STALE_US, 0);
		g->version++;
		invert(p);
	}
	if (g->ready && (q->round == g->version || (q->flags & PBOX_F_LATEST) != 0)) {
		if (g->version > 0 || p->t->head.mode == PBOX_MODE_OPTIMISER)
			reply(p, w, PBOX_RESULT, 0, q->ts, 0);
	} else if (q->round == g->version + 1 || !g->ready) {
		g->asked |= 1u << w;
		g->ts[w] = q->ts;
		g->since[w] = fake_now();
		reply(p, w, PBOX_WAIT, (g->have >> w & 1) != 0 ? PBOX_F_HAVE : 0, q->ts, 0);
	}
}

/** Elements of a full piece (R6.8). */
static uint32_t
full_piece(const struct place *p)
{
	const struct pbox_declare *d = &p->t->head;
	bool narrow = d->push_format != PBOX_FMT_FP32 && d->pull_format != PBOX_FMT_FP32;

	return p->t->frag_elements / (narrow ? 2 : 1);
}

/** Those of the piece from base on; 0: there is none. */
static uint32_t
piece_of(const struct place *p)
{
	uint32_t piece = full_piece(p), base = p->q->base, elements = p->g->elements;

	if (base % piece != 0 || base >= elements)
		return 0;
	return elements - base < piece ? elements - base : piece;
}

/** The array that FETCH, or INIT in place of what is there, names (R6.13, R6.14); NULL: none is meant. */
static float *
array_of(const struct place *p)
{
	if (p->t->head.mode != PBOX_MODE_OPTIMISER || p->q->aux > 1 || p->q->round != p->g->version)
		return NULL;
	return (p->q->aux == 0 ? p->t->param : p->t->state) + p->g->at + p->q->base;
}

static void
on_fetch(const struct place *p)
{
	const struct pbox_hdr *q = p->q;
	const float *from = array_of(p);
	struct pbox_hdr h = {.type = PBOX_FETCHED,
		.token = p->b->member[q->worker].token,
		.job = 1,
		.worker = q->worker,
		.incarnation = p->b->incarnation,
		.chunk = q->chunk,
		.frag = q->frag,
		.round = q->round,
		.base = q->base,
		.map_epoch = 7,
		.aux = q->aux,
		.format = PBOX_FMT_FP32,
		.length = (uint16_t)(piece_of(p) * sizeof(float)),
		.ts = q->ts};

	if (!p->g->ready || fake_restoring(p->t, p->g)) {
		reply(p, q->worker, PBOX_WAIT, 0, q->ts, 0);
	} else if (from != NULL && h.length > 0) {
		if (p->b->conf.stale) {
			h.ts -= STALE_US;
			memset(p->b->tx + PBOX_HDR_LEN, 0x55, h.length);
			fake_send(p->b, p->fd, &p->b->member[q->worker].addr, &h);
			h.ts = q->ts;
		}
		memcpy(p->b->tx + PBOX_HDR_LEN, from, h.length);
		fake_send(p->b, p->fd, &p->b->member[q->worker].addr, &h);
	}
}

/** In place of what is there (R6.14). */
static void
on_give(const struct place *p, const uint8_t *payload)
{
	float *to = array_of(p), f;

	if (to == NULL || p->g->have != 0 || !p->g->ready)
		return;
	if (p->b->conf.stale && (p->q->flags & PBOX_F_RETX) == 0) {
		reply(p, 0, PBOX_INIT_OK, 0, p->q->ts - STALE_US, 0);
		return;
	}
	for (uint32_t i = 0; i < piece_of(p); i++) {
		memcpy(&f, payload + 4 * (size_t)i, 4);
		to[i] = f;
		if (p->q->aux == 0)
			store(p->t->out, p->t->head.pull_format, p->g->at + p->q->base + i, f);
	}
	reply(p, 0, PBOX_INIT_OK, 0, p->q->ts, 0);
}

static void
on_init(const struct place *p, const uint8_t *payload)
{
	struct fake_frag *g = p->g;
	const struct pbox_hdr *q = p->q;
	uint32_t count = piece_of(p), first = full_piece(p);
	float f;

	if (q->worker != 0 || q->format != PBOX_FMT_FP32 || count == 0 || q->length != 4 * count) {
		p->b->counts.malformed++;
		return;
	}
	if ((q->flags & PBOX_F_LATEST) != 0) {
		on_give(p, payload);
		return;
	}
	for (uint32_t i = 0; !g->ready && i < count; i++) {
		memcpy(&f, payload + 4 * (size_t)i, 4);
		p->t->param[g->at + q->base + i] = f;
		store(p->t->out, p->t->head.pull_format, g->at + q->base + i, f);
	}
	reply(p, 0, PBOX_INIT_OK, 0, q->ts, 0);
	g->init |= 1ull << q->base / first;
	if (!g->ready && g->init == (1ull << (g->elements + first - 1) / first) - 1) {
		g->ready = true;
		for (unsigned i = 0; i < p->b->conf.workers; i++)
			if ((g->asked >> i & 1) != 0)
				reply(p, i, PBOX_RESULT, 0, g->ts[i],
					(uint32_t)(fake_now() - g->since[i]));
		g->asked = 0;
	}
}

void
fake_data(struct fake_box *b, int fd, const struct pbox_hdr *h, const uint8_t *payload)
{
	uint32_t table = h->chunk >> 20, chunk = h->chunk & 0xFFFFF;
	struct place p = {.b = b, .q = h, .fd = fd};

	if (table >= b->tables || !b->table[table].mapped || chunk >= b->table[table].n_chunks ||
		h->frag >= b->table[table].chunk[chunk].frags ||
		fd != b->fd[1 + b->table[table].chunk[chunk].e.endpoint]) {
		b->counts.malformed++;
		return;
	}
	p.t = &b->table[table];
	p.g = &p.t->frag[p.t->chunk[chunk].frag + h->frag];
	if (h->type == PBOX_PUSH || h->type == PBOX_PUSHPULL)
		contribute(&p, payload);
	else if (h->type == PBOX_PULL)
		on_pull(&p);
	else if (h->type == PBOX_RESTORE)
		fake_restore(b, p.t, p.g, fd, h, payload);
	else if (h->type == PBOX_INIT)
		on_init(&p, payload);
	else if (h->type == PBOX_FETCH)
		on_fetch(&p);
}
