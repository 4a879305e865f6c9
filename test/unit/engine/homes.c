/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <string.h>

#include "homes.h"

static const struct pbox_registrar_boxes list = {
	.boxes = 3,
	.at = {{{10, 0, 0, 1}, 7269}, {{10, 0, 0, 2}, 7269}, {{10, 0, 0, 3}, 7269}},
	.release = "0.1.0",
};
const struct fx_table reduce = {.elements = 12 * F, .op = PBOX_OP_SUM};
struct fx_worker w[2];
float v[F], sum[F];
uint8_t home[12]; /* of each chunk by the first map */
struct pbox_homes m;

/* Two workers have the map of a table at that box. */
void
begin(uint8_t box, const struct fx_table *t)
{
	struct pbox_chunk_entry e;
	struct pbox_mapped page;
	struct pbox_cursor cur;
	const struct fx_sent *s;

	fx.boxes = list;
	fx.boxes.box = box;
	fx_begin();
	for (uint16_t i = 0; i < 2; i++) {
		w[i] = (struct fx_worker){.job = "vision",
			.worker = i,
			.workers = 2,
			.number = box == 0 ? 0 : 7,
			.boxes = true};
		CU_ASSERT_TRUE_FATAL(fx_try_join(&w[i]));
	}
	for (unsigned i = 0; i < 2; i++)
		UNIT_EQ_U64(fx_declare(&w[i], 0, t)->hdr.type, PBOX_DECLARED);
	fx_work();
	for (unsigned i = 0; i < 2; i++) {
		s = fx_map(&w[i], 0, 0);
		CU_ASSERT_EQUAL_FATAL(
			pbox_mapped_decode(s->payload, s->hdr.length, &page, &cur), 0);
		UNIT_EQ_U64(page.chunks, 12);
		for (unsigned k = 0; k < page.count; k++) {
			CU_ASSERT_EQUAL(pbox_mapped_next(&cur, &e), 0);
			home[k] = (uint8_t)(e.endpoint >> 8);
		}
	}
	for (unsigned i = 0; i < F; i++) {
		v[i] = (float)i;
		sum[i] = 2 * v[i];
	}
}

/* The n-th chunk that is at the box at first. */
uint32_t
chunk_of(uint8_t box, unsigned n)
{
	for (uint32_t i = 0; i < 12; i++)
		if (home[i] == box && n-- == 0)
			return i;
	CU_FAIL_FATAL("no such chunk");
	return 0;
}

/* HOMES of one chunk; the answer is in m, if it is HOMES_OK. Its type. */
enum pbox_type
say(unsigned worker, uint32_t chunk, uint8_t box, uint16_t epoch, uint16_t flags)
{
	struct pbox_homes ask = {.chunks = 12,
		.first = chunk,
		.count = 1,
		.epoch = epoch,
		.flags = flags,
		.home = {{.box = box, .epoch = epoch}}};
	uint8_t payload[64];
	const struct fx_sent *s = fx_control(
		&w[worker], PBOX_HOMES, payload, pbox_homes_encode(payload, sizeof(payload), &ask));

	if (s->hdr.type == PBOX_HOMES_OK)
		CU_ASSERT_EQUAL(pbox_homes_decode(s->payload, s->hdr.length, &m), 0);
	return s->hdr.type;
}

/* A data frame to whichever shard has the chunk. */
bool
send(unsigned worker, enum pbox_type type, uint32_t chunk, uint32_t round, uint16_t epoch,
	uint16_t flags, const float *payload)
{
	struct pbox_hdr h = fx_data(&w[worker], type, chunk, 0, round);
	bool held = false;

	h.map_epoch = epoch;
	h.flags = flags;
	h.format = type == PBOX_PULL ? 0 : PBOX_FMT_FP32;
	h.length = payload != NULL ? sizeof(v) : 0;
	fx_clear();
	for (unsigned s = 0; s < FX_SHARDS; s++)
		held |= fx_rx(s, &w[worker], &h, payload);
	return held;
}

bool
push(unsigned worker, uint32_t chunk, uint32_t round, uint16_t epoch)
{
	return send(worker, PBOX_PUSHPULL, chunk, round, epoch, PBOX_F_LAST, v);
}

void
join_again(void)
{
	fx.boxes = list;
	fx_begin();
	for (uint16_t i = 0; i < 2; i++) {
		w[i] = (struct fx_worker){
			.job = "vision", .worker = i, .workers = 2, .number = 7, .boxes = true};
		CU_ASSERT_TRUE_FATAL(fx_try_join(&w[i]));
	}
}

void
begin_again(void)
{
	struct fx_table t = reduce;

	t.flags = PBOX_DECLARE_RESTORE;
	join_again();
	for (unsigned i = 0; i < 2; i++)
		fx_declare(&w[i], 0, &t);
	fx_work();
}

uint64_t
homes_take(unsigned box, uint16_t dead, bool only_try)
{
	const struct pbox_registrar_take how = {.dead = dead, .only_try = only_try};
	struct pbox_error err;
	unsigned stateless;

	return (uint64_t)(int64_t)pbox_registrar_take(
		fx.registrar, 0, box, &how, fx.now, &stateless, &err);
}
