/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>
#include <string.h>

#include "slots.h"

#define SENT 8192

struct fx_worker w[WORKERS];
unsigned n_workers, slots, seed;
/* What is computed for a slot, and what has been sent. */
float value[PBOX_MAX_SLOTS][ELEMENTS];
static struct datagram sent[SENT];
static unsigned n_pushed;

unsigned
chance(unsigned below)
{
	seed = seed * 1664525 + 1013904223;
	return (seed >> 8) % below;
}

void
join_all(const char *job, unsigned workers, unsigned v)
{
	n_workers = workers;
	slots = v;
	for (unsigned i = 0; i < workers; i++) {
		w[i] = (struct fx_worker){.job = job,
			.worker = (uint16_t)i,
			.workers = (uint16_t)workers,
			.slots = (uint16_t)v};
		CU_ASSERT_TRUE_FATAL(fx_try_join(&w[i]));
	}
}

void
declare_all(uint32_t table, const struct fx_table *t)
{
	for (unsigned i = 0; i < n_workers; i++)
		CU_ASSERT_EQUAL_FATAL(fx_declare(&w[i], table, t)->hdr.type, PBOX_DECLARED);
	fx_work();
	CU_ASSERT_EQUAL_FATAL(fx_map(&w[0], table, 0)->hdr.type, PBOX_MAPPED);
	fx_clear();
}

void
begin_with(const char *job, unsigned workers, unsigned v, const struct fx_table *t)
{
	fx_begin();
	join_all(job, workers, v);
	declare_all(0, t);
	/* of many magnitudes: another order gives other bits */
	for (unsigned i = 0; i < v; i++)
		for (unsigned k = 0; k < ELEMENTS; k++)
			value[i][k] = ((float)chance(2001) - 1000) * (float)(1u << chance(24));
}

void
begin(const char *job, unsigned workers, unsigned v)
{
	const struct fx_table t = {.elements = ELEMENTS, .op = PBOX_OP_SUM};

	begin_with(job, workers, v, &t);
}

/* The sum of some slots that are a node, or all; gone: those of this worker are absent. */
void
sum_of(float *dst, unsigned first, unsigned end, int gone)
{
	static const void *src[PBOX_MAX_SLOTS];
	struct pbox_sources s = {.src = src, .n = end - first, .elem = PBOX_FMT_FP32};

	for (unsigned i = first; i < end; i++)
		src[i - first] =
			gone >= 0 && i >= pbox_slots_of((unsigned)gone, n_workers, slots) &&
					i < pbox_slots_of((unsigned)gone + 1, n_workers, slots)
				? (const void *)pbox_reduce_absent
				: value[i];
	pbox_reduce_scalar.sum(dst, &s, 0, ELEMENTS);
}

/* The node of that code, as its worker makes it, with as many samples as slots. late: its CRC is not looked at yet. */
bool
push_at(unsigned i, enum pbox_type type, uint32_t chunk, uint16_t frag, uint32_t round,
	struct pbox_node n, bool late, bool damaged)
{
	struct datagram *d = &sent[n_pushed++ % SENT];
	struct pbox_hdr h = fx_data(&w[i], type, chunk, frag, round);
	struct pbox_frame f = {.payload = d->payload,
		.handle = d,
		.peer = {.ip = htonl(w[i].ip), .udp = w[i].udp}};
	unsigned end = pbox_node_end(n, slots),
		 at = chunk != 0; /* the second table is the other shard's */
	float sum[ELEMENTS];

	sum_of(sum, n.first, end, -1);
	memcpy(d->payload, sum, sizeof(sum));
	h.format = PBOX_FMT_FP32;
	h.length = sizeof(d->payload);
	h.base = pbox_node_code(n);
	h.weight = end - n.first;
	UNIT_EQ_U64(pbox_frame_seal(d, &h), sizeof(*d));
	if (damaged)
		d->payload[5] ^= 16;
	f.hdr = h;
	f.unverified = late;
	fx_at(at, &f.peer);
	fx_listen();
	return pbox_shard_rx(fx.shard[at], &f, 1, fx.now) != 0;
}

bool
push(unsigned i, enum pbox_type type, uint32_t round, unsigned first, unsigned level)
{
	return push_at(i, type, 0, 0, round,
		(struct pbox_node){.first = (uint16_t)first, .level = (uint16_t)level}, false,
		false);
}

/* Not verified yet. */
bool
late(unsigned i, uint16_t frag, uint32_t round, unsigned first, unsigned level, bool damaged)
{
	return push_at(i, PBOX_PUSHPULL, 0, frag, round,
		(struct pbox_node){.first = (uint16_t)first, .level = (uint16_t)level}, true,
		damaged);
}

unsigned
nodes_of(unsigned i, struct pbox_node *n)
{
	return pbox_range_nodes(pbox_slots_of(i, n_workers, slots),
		pbox_slots_of(i + 1, n_workers, slots), slots, n);
}

/* All nodes of a worker, PUSH for all but the last. */
void
bring(unsigned i, uint32_t chunk, uint16_t frag, uint32_t round)
{
	struct pbox_node n[PBOX_RANGE_NODES];
	unsigned count = nodes_of(i, n);

	for (unsigned k = 0; k < count; k++) {
		bool last = k + 1 == count;

		CU_ASSERT_TRUE(push_at(i, last ? PBOX_PUSHPULL : PBOX_PUSH, chunk, frag, round,
			n[k], last, false));
		if (last)
			continue;
		UNIT_EQ_U64(fx_last()->hdr.type, PBOX_PUSH_OK);
		UNIT_EQ_U64(fx_last()->hdr.round, round);
		UNIT_EQ_U64(fx_last()->hdr.base, pbox_node_code(n[k]));
	}
}

void
expect_result(uint32_t round, int gone)
{
	const struct fx_sent *s = fx_last();
	unsigned without = 0;
	float want[ELEMENTS];

	if (gone >= 0)
		without = pbox_slots_of((unsigned)gone + 1, n_workers, slots) -
			  pbox_slots_of((unsigned)gone, n_workers, slots);
	sum_of(want, 0, slots, gone);
	UNIT_EQ_U64(s->hdr.type, PBOX_RESULT);
	UNIT_EQ_U64(s->hdr.round, round);
	UNIT_EQ_U64(s->hdr.aux, slots - without);
	UNIT_EQ_U64(s->hdr.weight, slots - without);
	CU_ASSERT_EQUAL(memcmp(s->payload, want, sizeof(want)), 0);
}

void
expect_wait(bool have, uint32_t base, unsigned there, uint32_t missing)
{
	const struct fx_sent *s = fx_last();

	UNIT_EQ_U64(s->hdr.type, PBOX_WAIT);
	UNIT_EQ_U64(s->hdr.flags & PBOX_F_HAVE, have ? PBOX_F_HAVE : 0);
	UNIT_EQ_U64(s->hdr.base, base);
	UNIT_EQ_U64(s->hdr.aux, there);
	UNIT_EQ_U64(s->hdr.weight, missing);
}

void
ask(unsigned i, uint32_t round)
{
	struct pbox_hdr h = fx_data(&w[i], PBOX_PULL, 0, 0, round);

	fx_rx(0, &w[i], &h, NULL);
}
