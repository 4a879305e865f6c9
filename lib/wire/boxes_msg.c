/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Payloads of section 16: BOXES_OK, HOMES and HOMES_OK. */

#include <assert.h>

#include "codec.h"
#include "pbox_wire.h"

#define OK_LEN      40 /* without the boxes */
#define RELEASE_AT  16
#define RELEASE_LEN 24
#define ENTRY_LEN   8

static_assert(sizeof(((struct pbox_boxes_ok *)0)->release) == RELEASE_LEN + 1, "and a NUL");

static const struct pbox_field ok_fields[] = {
	PBOX_FIELD(pbox_boxes_ok, boxes, 0),
	PBOX_FIELD(pbox_boxes_ok, box, 2),
	PBOX_FIELD(pbox_boxes_ok, decides, 3),
	PBOX_FIELD(pbox_boxes_ok, cores, 4),
	PBOX_FIELD(pbox_boxes_ok, chunk_elements, 8),
	PBOX_FIELD(pbox_boxes_ok, mtu, 12),
	PBOX_FIELD(pbox_boxes_ok, out, 14),
	{0},
};

size_t
pbox_boxes_ok_encode(void *buf, size_t cap, const struct pbox_boxes_ok *m)
{
	size_t len = OK_LEN + (size_t)m->boxes * ENTRY_LEN;
	uint8_t *p = buf, *e = p + OK_LEN;

	assert(m->boxes <= PBOX_MAX_BOXES);
	if (cap < len)
		return 0;
	pbox_fields_put(p, OK_LEN, ok_fields, m);
	text_pad(p + RELEASE_AT, RELEASE_LEN, m->release, sizeof(m->release), RELEASE_LEN);
	for (unsigned i = 0; i < m->boxes; i++, e += ENTRY_LEN) {
		e[0] = (uint8_t)i;
		e[1] = 0;
		memcpy(e + 2, m->at[i].ipv4, 4);
		pbox_st16(e + 6, m->at[i].udp);
	}
	return len;
}

int
pbox_boxes_ok_decode(const void *buf, size_t len, struct pbox_boxes_ok *m)
{
	const uint8_t *p = buf, *e = p + OK_LEN;

	memset(m, 0, sizeof(*m));
	if (record_decode(buf, len, OK_LEN, ok_fields, m) != 0 || m->boxes == 0 ||
		m->boxes > PBOX_MAX_BOXES || m->box >= m->boxes || m->decides >= m->boxes ||
		len < OK_LEN + (size_t)m->boxes * ENTRY_LEN)
		return -1;
	text_get(m->release, sizeof(m->release), p + RELEASE_AT,
		strnlen((const char *)p + RELEASE_AT, RELEASE_LEN));
	for (unsigned i = 0; i < m->boxes; i++, e += ENTRY_LEN) {
		if (e[0] != i)
			return -1;
		memcpy(m->at[i].ipv4, e + 2, 4);
		m->at[i].udp = pbox_ld16(e + 6);
	}
	return 0;
}

/* ---- HOMES, HOMES_OK ----------------------------------------------------------------- */

#define HOMES_LEN 20 /* without the homes */
#define HOME_LEN  8

static const struct pbox_field homes_fields[] = {
	PBOX_FIELD(pbox_homes, table, 0),
	PBOX_FIELD(pbox_homes, chunks, 4),
	PBOX_FIELD(pbox_homes, first, 8),
	PBOX_FIELD(pbox_homes, count, 12),
	PBOX_FIELD(pbox_homes, epoch, 14),
	PBOX_FIELD(pbox_homes, flags, 16),
	PBOX_FIELD(pbox_homes, out, 18),
	{0},
};

static const struct pbox_field home_fields[] = {
	PBOX_FIELD(pbox_home, box, 0),
	PBOX_FIELD(pbox_home, endpoint, 1),
	PBOX_FIELD(pbox_home, epoch, 2),
	PBOX_FIELD(pbox_home, version, 4),
	{0},
};

size_t
pbox_homes_encode(void *buf, size_t cap, const struct pbox_homes *m)
{
	size_t len = HOMES_LEN + (size_t)m->count * HOME_LEN;
	uint8_t *e = (uint8_t *)buf + HOMES_LEN;

	assert(m->count <= PBOX_HOMES_MOST);
	if (cap < len)
		return 0;
	pbox_fields_put(buf, HOMES_LEN, homes_fields, m);
	for (unsigned i = 0; i < m->count; i++, e += HOME_LEN)
		pbox_fields_put(e, HOME_LEN, home_fields, &m->home[i]);
	return len;
}

int
pbox_homes_decode(const void *buf, size_t len, struct pbox_homes *m)
{
	const uint8_t *e = (const uint8_t *)buf + HOMES_LEN;

	memset(m, 0, sizeof(*m));
	if (record_decode(buf, len, HOMES_LEN, homes_fields, m) != 0 ||
		m->count > PBOX_HOMES_MOST || m->first > m->chunks ||
		m->count > m->chunks - m->first || len < HOMES_LEN + (size_t)m->count * HOME_LEN)
		return -1;
	for (unsigned i = 0; i < m->count; i++, e += HOME_LEN) {
		pbox_fields_get(e, home_fields, &m->home[i]);
		if (m->home[i].box >= PBOX_MAX_BOXES)
			return -1;
	}
	return 0;
}
