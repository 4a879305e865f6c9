/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Payloads of section 15: WORK, WORK_OK, TASK, TASK_OK. */

#include <assert.h>

#include "codec.h"
#include "pbox_slots.h"
#include "pbox_wire.h"

#define ASK_LEN     80 /* without the ranges */
#define OK_LEN      112
#define TASK_LEN    24
#define TASK_OK_LEN 12
#define RANGE_LEN   4
#define HYPER_LEN   32 /* after the ranges, since there are ids above 9 */
#define DECIDED_LEN 16 /* and after that */

static_assert(sizeof(((struct pbox_work_ask *)0)->range) / sizeof(struct pbox_slot_range) ==
		      PBOX_RANGE_NODES,
	"each range is a node at least");

static const struct pbox_field ask_fields[] = {
	PBOX_FIELD(pbox_work_ask, table, 0),
	PBOX_FIELD(pbox_work_ask, round, 4),
	PBOX_FIELD(pbox_work_ask, edition, 8),
	PBOX_FIELD(pbox_work_ask, slots, 12),
	PBOX_FIELD(pbox_work_ask, payloads, 14),
	PBOX_FIELD(pbox_work_ask, fits, 16),
	PBOX_FIELD(pbox_work_ask, trained, 20),
	PBOX_FIELD(pbox_work_ask, compute, 24),
	PBOX_FIELD(pbox_work_ask, fixed, 32),
	PBOX_FIELD(pbox_work_ask, up, 40),
	PBOX_FIELD(pbox_work_ask, down, 48),
	PBOX_FIELD(pbox_work_ask, seed, 56),
	PBOX_FIELD(pbox_work_ask, samples, 64),
	PBOX_FIELD(pbox_work_ask, batch, 72),
	PBOX_FIELD(pbox_work_ask, ranges, 76),
	PBOX_FIELD(pbox_work_ask, group, 78),
	{0},
};
static const struct pbox_field ok_fields[] = {
	PBOX_FIELD(pbox_work_ok, table, 0),
	PBOX_FIELD(pbox_work_ok, edition, 4),
	PBOX_FIELD(pbox_work_ok, plan, 8),
	PBOX_FIELD(pbox_work_ok, next_plan, 12),
	PBOX_FIELD(pbox_work_ok, next_from, 16),
	PBOX_FIELD(pbox_work_ok, again_ms, 20),
	PBOX_FIELD(pbox_work_ok, ranges, 22),
	PBOX_FIELD(pbox_work_ok, next_ranges, 24),
	PBOX_FIELD(pbox_work_ok, members, 26),
	PBOX_FIELD(pbox_work_ok, leads, 28),
	PBOX_FIELD(pbox_work_ok, now, 32),
	PBOX_FIELD(pbox_work_ok, trained, 36),
	PBOX_FIELD(pbox_work_ok, hyper[0], 40),
	PBOX_FIELD(pbox_work_ok, hyper[1], 48),
	PBOX_FIELD(pbox_work_ok, hyper[2], 56),
	PBOX_FIELD(pbox_work_ok, hyper[3], 64),
	PBOX_FIELD(pbox_work_ok, hyper[4], 72),
	PBOX_FIELD(pbox_work_ok, hyper[5], 80),
	PBOX_FIELD(pbox_work_ok, hyper[6], 88),
	PBOX_FIELD(pbox_work_ok, hyper[7], 96),
	PBOX_FIELD(pbox_work_ok, hyper[8], 104),
	{0},
};
static const struct pbox_field ok_hyper_fields[] = {
	PBOX_FIELD(pbox_work_ok, hyper[9], 0),
	PBOX_FIELD(pbox_work_ok, hyper[10], 8),
	PBOX_FIELD(pbox_work_ok, hyper[11], 16),
	PBOX_FIELD(pbox_work_ok, hyper[12], 24),
	{0},
};
static const struct pbox_field ok_decided_fields[] = {
	PBOX_FIELD(pbox_work_ok, decided, 0),
	PBOX_FIELD(pbox_work_ok, decision, 8),
	{0},
};
static_assert(PBOX_WORK_HYPERS == 13, "each has a field");
static_assert(
	OK_LEN + 2 * PBOX_WORK_RANGES * RANGE_LEN + HYPER_LEN + DECIDED_LEN == PBOX_WORK_OK_MOST,
	"the longest answer");

static const struct pbox_field task_fields[] = {
	PBOX_FIELD(pbox_task, table, 0),
	PBOX_FIELD(pbox_task, round, 4),
	PBOX_FIELD(pbox_task, wish, 8),
	PBOX_FIELD(pbox_task, since_us, 12),
	PBOX_FIELD(pbox_task, first, 16),
	PBOX_FIELD(pbox_task, end, 18),
	PBOX_FIELD(pbox_task, ranges, 20),
	{0},
};
static const struct pbox_field task_ok_fields[] = {
	PBOX_FIELD(pbox_task_ok, table, 0),
	PBOX_FIELD(pbox_task_ok, round, 4),
	PBOX_FIELD(pbox_task_ok, again_ms, 8),
	PBOX_FIELD(pbox_task_ok, ranges, 10),
	{0},
};

static void
ranges_put(uint8_t *p, const struct pbox_slot_range *r, unsigned n)
{
	for (unsigned i = 0; i < n; i++, p += RANGE_LEN) {
		pbox_st16(p, r[i].first);
		pbox_st16(p + 2, r[i].end);
	}
}

/* In the order of slots, none empty, none that overlaps another. */
static int
ranges_get(const uint8_t *p, struct pbox_slot_range *r, unsigned n)
{
	unsigned from = 0;

	for (unsigned i = 0; i < n; i++, p += RANGE_LEN) {
		r[i] = (struct pbox_slot_range){pbox_ld16(p), pbox_ld16(p + 2)};
		if (r[i].first < from || r[i].end <= r[i].first || r[i].end > PBOX_MAX_SLOTS)
			return -1;
		from = r[i].end;
	}
	return 0;
}

size_t
pbox_work_ask_encode(void *buf, size_t cap, const struct pbox_work_ask *m)
{
	size_t len = ASK_LEN + (size_t)m->ranges * RANGE_LEN;

	assert(m->ranges <= PBOX_RANGE_NODES);
	if (cap < len)
		return 0;
	pbox_fields_put(buf, ASK_LEN, ask_fields, m);
	ranges_put((uint8_t *)buf + ASK_LEN, m->range, m->ranges);
	return len;
}

int
pbox_work_ask_decode(const void *buf, size_t len, struct pbox_work_ask *m)
{
	memset(m, 0, sizeof(*m));
	if (record_decode(buf, len, ASK_LEN, ask_fields, m) != 0 || m->ranges > PBOX_RANGE_NODES ||
		len < ASK_LEN + (size_t)m->ranges * RANGE_LEN)
		return -1;
	return ranges_get((const uint8_t *)buf + ASK_LEN, m->range, m->ranges);
}

size_t
pbox_work_ok_encode(void *buf, size_t cap, const struct pbox_work_ok *m)
{
	size_t len = OK_LEN + ((size_t)m->ranges + m->next_ranges) * RANGE_LEN;
	uint8_t *p = buf;

	assert(m->ranges <= PBOX_RANGE_NODES && m->next_ranges <= PBOX_RANGE_NODES);
	if (cap < len + HYPER_LEN + DECIDED_LEN)
		return 0;
	pbox_fields_put(p, OK_LEN, ok_fields, m);
	ranges_put(p + OK_LEN, m->range, m->ranges);
	ranges_put(p + OK_LEN + m->ranges * RANGE_LEN, m->next_range, m->next_ranges);
	pbox_fields_put(p + len, HYPER_LEN, ok_hyper_fields, m);
	pbox_fields_put(p + len + HYPER_LEN, DECIDED_LEN, ok_decided_fields, m);
	return len + HYPER_LEN + DECIDED_LEN;
}

int
pbox_work_ok_decode(const void *buf, size_t len, struct pbox_work_ok *m)
{
	const uint8_t *p = buf;
	size_t more;

	memset(m, 0, sizeof(*m));
	if (record_decode(buf, len, OK_LEN, ok_fields, m) != 0 || m->ranges > PBOX_RANGE_NODES ||
		m->next_ranges > PBOX_RANGE_NODES ||
		len < OK_LEN + ((size_t)m->ranges + m->next_ranges) * RANGE_LEN)
		return -1;
	more = OK_LEN + ((size_t)m->ranges + m->next_ranges) * RANGE_LEN;
	/* an older box ends here, or after the hyper-parameters, and what it does not have is 0 */
	if (record_decode(p + more, len - more, HYPER_LEN, ok_hyper_fields, m) == 0)
		record_decode(p + more + HYPER_LEN, len - more - HYPER_LEN, DECIDED_LEN,
			ok_decided_fields, m);
	return ranges_get(p + OK_LEN, m->range, m->ranges) == 0
		       ? ranges_get(
				 p + OK_LEN + m->ranges * RANGE_LEN, m->next_range, m->next_ranges)
		       : -1;
}

size_t
pbox_task_encode(void *buf, size_t cap, const struct pbox_task *m)
{
	size_t len = TASK_LEN + (size_t)m->ranges * RANGE_LEN;

	assert(m->ranges <= PBOX_RANGE_NODES);
	if (cap < len)
		return 0;
	memset(buf, 0, TASK_LEN);
	pbox_fields_put(buf, TASK_LEN, task_fields, m);
	ranges_put((uint8_t *)buf + TASK_LEN, m->range, m->ranges);
	return len;
}

int
pbox_task_decode(const void *buf, size_t len, struct pbox_task *m)
{
	memset(m, 0, sizeof(*m));
	if (record_decode(buf, len, TASK_LEN, task_fields, m) != 0 || m->first > m->end ||
		m->end > PBOX_MAX_SLOTS || m->ranges > PBOX_RANGE_NODES ||
		len < TASK_LEN + (size_t)m->ranges * RANGE_LEN)
		return -1;
	return ranges_get((const uint8_t *)buf + TASK_LEN, m->range, m->ranges);
}

size_t
pbox_task_ok_encode(void *buf, size_t cap, const struct pbox_task_ok *m)
{
	size_t len = TASK_OK_LEN + (size_t)m->ranges * RANGE_LEN;

	assert(m->ranges <= PBOX_RANGE_NODES);
	if (cap < len)
		return 0;
	pbox_fields_put(buf, TASK_OK_LEN, task_ok_fields, m);
	ranges_put((uint8_t *)buf + TASK_OK_LEN, m->range, m->ranges);
	return len;
}

int
pbox_task_ok_decode(const void *buf, size_t len, struct pbox_task_ok *m)
{
	memset(m, 0, sizeof(*m));
	if (record_decode(buf, len, TASK_OK_LEN, task_ok_fields, m) != 0 ||
		m->ranges > PBOX_RANGE_NODES || len < TASK_OK_LEN + (size_t)m->ranges * RANGE_LEN)
		return -1;
	return ranges_get((const uint8_t *)buf + TASK_OK_LEN, m->range, m->ranges);
}
