/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Payload of section 16: STATS. */

#include <assert.h>

#include "codec.h"
#include "pbox_wire.h"

#define STATS_LEN 24 /* without the boxes */
#define ENTRY_LEN 32

static const struct pbox_field stats_fields[] = {
	PBOX_FIELD(pbox_stats_msg, boxes, 0),
	PBOX_FIELD(pbox_stats_msg, rounds, 4),
	PBOX_FIELD(pbox_stats_msg, seconds, 8),
	PBOX_FIELD(pbox_stats_msg, squares, 16),
	{0},
};
static const struct pbox_field entry_fields[] = {
	PBOX_FIELD(pbox_box_times, rounds, 0),
	PBOX_FIELD(pbox_box_times, seconds, 8),
	PBOX_FIELD(pbox_box_times, squares, 16),
	PBOX_FIELD(pbox_box_times, exposed, 24),
	{0},
};

size_t
pbox_stats_encode(void *buf, size_t cap, const struct pbox_stats_msg *m)
{
	size_t len = STATS_LEN + (size_t)m->boxes * ENTRY_LEN;
	uint8_t *p = buf;

	assert(m->boxes <= PBOX_MAX_BOXES);
	if (cap < len)
		return 0;
	pbox_fields_put(p, STATS_LEN, stats_fields, m);
	for (unsigned i = 0; i < m->boxes; i++)
		pbox_fields_put(
			p + STATS_LEN + (size_t)i * ENTRY_LEN, ENTRY_LEN, entry_fields, &m->box[i]);
	return len;
}

int
pbox_stats_decode(const void *buf, size_t len, struct pbox_stats_msg *m)
{
	const uint8_t *p = buf;

	memset(m, 0, sizeof(*m));
	if (record_decode(buf, len, STATS_LEN, stats_fields, m) != 0 || m->boxes == 0 ||
		m->boxes > PBOX_MAX_BOXES || len < STATS_LEN + (size_t)m->boxes * ENTRY_LEN)
		return -1;
	for (unsigned i = 0; i < m->boxes; i++)
		pbox_fields_get(p + STATS_LEN + (size_t)i * ENTRY_LEN, entry_fields, &m->box[i]);
	return 0;
}
