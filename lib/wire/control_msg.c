/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Payloads of sections 7 to 9: SET, STATUS, STATUS_OK, ERROR. */

#include <assert.h>

#include "codec.h"
#include "pbox_wire.h"

#define SET_LEN         16 /* without the parameters */
#define PARAM_LEN       16
#define STATUS_LEN      4
#define STATUS_RACK_LEN 4  /* before the text */
#define STATUS_OK_LEN   20 /* without text and members */
#define MEMBER_LEN      32
#define MEMBER_HOST     20
#define ERROR_LEN       12 /* without the text */

#define STATUS_OK_COUNT_AT 6

#define STATUS_OK_TEXT_AT 16
#define ERROR_TEXT_AT     8

static_assert(sizeof(double) == 8, "f64 is IEEE binary64");
static_assert(sizeof(((struct pbox_member_entry *)0)->host) == MEMBER_HOST + 1, "R8.3");
static_assert(sizeof(((struct pbox_status_ok *)0)->text) == TEXT_SIZE &&
		      sizeof(((struct pbox_status *)0)->rack) == TEXT_SIZE &&
		      sizeof(((struct pbox_error_msg *)0)->text) == TEXT_SIZE,
	"texts of messages");

static const struct pbox_field set_fields[] = {
	PBOX_FIELD(pbox_set, table, 0),
	PBOX_FIELD(pbox_set, group, 4),
	PBOX_FIELD(pbox_set, count, 6),
	PBOX_FIELD(pbox_set, from_round, 8),
	{0},
};
static const struct pbox_field param_fields[] = {
	PBOX_FIELD(pbox_param, id, 0),
	PBOX_FIELD(pbox_param, value, 8),
	{0},
};
static const struct pbox_field status_fields[] = {
	PBOX_FIELD(pbox_status, first, 0),
	PBOX_FIELD(pbox_status, flags, 2),
	{0},
};
static const struct pbox_field status_waits_fields[] = {
	PBOX_FIELD(pbox_status, chunk, 0),
	PBOX_FIELD(pbox_status, round, 4),
	PBOX_FIELD(pbox_status, frag, 8),
	{0},
};
/* without the count, which members raise */
static const struct pbox_field status_ok_fields[] = {
	PBOX_FIELD(pbox_status_ok, workers, 0),
	PBOX_FIELD(pbox_status_ok, joined, 2),
	PBOX_FIELD(pbox_status_ok, first, 4),
	PBOX_FIELD(pbox_status_ok, tables, 8),
	PBOX_FIELD(pbox_status_ok, max_round, 12),
	PBOX_FIELD(pbox_status_ok, flags, 18),
	{0},
};
static const struct pbox_field member_fields[] = {
	PBOX_FIELD(pbox_member_entry, worker, 0),
	PBOX_FIELD(pbox_member_entry, state, 2),
	PBOX_FIELD(pbox_member_entry, reason, 3),
	PBOX_FIELD(pbox_member_entry, silent_ms, 4),
	PBOX_FIELD(pbox_member_entry, declared, 8),
	{0},
};
static const struct pbox_field error_fields[] = {
	PBOX_FIELD(pbox_error_msg, code, 0),
	PBOX_FIELD(pbox_error_msg, type, 2),
	PBOX_FIELD(pbox_error_msg, detail, 4),
	{0},
};
static const struct pbox_field error_tail_fields[] = {
	PBOX_FIELD(pbox_error_tail, nonce, 0),
	PBOX_FIELD(pbox_error_tail, request, 8),
	{0},
};

size_t
pbox_set_encode(void *buf, size_t cap, const struct pbox_set *m)
{
	uint8_t *p = buf;
	size_t len = SET_LEN + (size_t)m->count * PARAM_LEN;

	if (m->count > PBOX_SET_MAX || cap < len)
		return 0;
	pbox_fields_put(p, SET_LEN, set_fields, m);
	for (unsigned i = 0; i < m->count; i++)
		pbox_fields_put(p + SET_LEN + i * PARAM_LEN, PARAM_LEN, param_fields, &m->param[i]);
	return len;
}

int
pbox_set_decode(const void *buf, size_t len, struct pbox_set *m)
{
	const uint8_t *p = buf;

	memset(m, 0, sizeof(*m));
	if (record_decode(buf, len, SET_LEN, set_fields, m) != 0 || m->count > PBOX_SET_MAX ||
		len < SET_LEN + (size_t)m->count * PARAM_LEN)
		return -1;
	for (unsigned i = 0; i < m->count; i++)
		pbox_fields_get(p + SET_LEN + i * PARAM_LEN, param_fields, &m->param[i]);
	return 0;
}

/* In the room for the text alone. */
static const struct pbox_field status_rack_fields[] = {{0}};

size_t
pbox_status_encode(void *buf, size_t cap, const struct pbox_status *m)
{
	bool rack = (m->flags & PBOX_STATUS_RACK) != 0;
	size_t len = rack || (m->flags & PBOX_STATUS_WAITS) != 0 ? PBOX_STATUS_MAX : STATUS_LEN,
	       text;

	if (cap < len || record_encode(buf, cap, STATUS_LEN, status_fields, m) == 0)
		return 0;
	if (len == PBOX_STATUS_MAX)
		pbox_fields_put(
			(uint8_t *)buf + STATUS_LEN, len - STATUS_LEN, status_waits_fields, m);
	if (!rack)
		return len;
	text = record_text_encode((uint8_t *)buf + len, cap - len, STATUS_RACK_LEN,
		status_rack_fields, m, 0, m->rack);
	return text > 0 ? len + text : 0;
}

int
pbox_status_decode(const void *buf, size_t len, struct pbox_status *m)
{
	memset(m, 0, sizeof(*m));
	if (record_decode(buf, len, STATUS_LEN, status_fields, m) != 0)
		return -1;
	if ((m->flags & (PBOX_STATUS_WAITS | PBOX_STATUS_RACK)) == 0)
		return 0;
	if (record_decode((const uint8_t *)buf + STATUS_LEN, len - STATUS_LEN,
		    PBOX_STATUS_MAX - STATUS_LEN, status_waits_fields, m) != 0)
		return -1;
	if ((m->flags & PBOX_STATUS_RACK) == 0)
		return 0;
	return record_text_decode((const uint8_t *)buf + PBOX_STATUS_MAX, len - PBOX_STATUS_MAX,
		STATUS_RACK_LEN, status_rack_fields, m, 0, m->rack);
}

int
pbox_status_ok_begin(void *buf, size_t cap, const struct pbox_status_ok *m, struct pbox_cursor *cur)
{
	uint8_t *p = buf;
	size_t len = record_text_encode(
		buf, cap, STATUS_OK_LEN, status_ok_fields, m, STATUS_OK_TEXT_AT, m->text);

	if (len == 0)
		return -1;
	cur->at = p + len;
	cur->end = p + page_cap(cap);
	return 0;
}

int
pbox_status_ok_add(void *buf, struct pbox_cursor *cur, const struct pbox_member_entry *e)
{
	uint8_t *count = (uint8_t *)buf + STATUS_OK_COUNT_AT, *p = cur->at;

	if ((size_t)(cur->end - p) < MEMBER_LEN)
		return -1;
	/* a page of 64 KiB holds fewer than the count can say */
	pbox_st16(count, (uint16_t)(pbox_ld16(count) + 1));
	pbox_fields_put(p, MEMBER_LEN, member_fields, e);
	text_pad(p + 12, MEMBER_HOST, e->host, sizeof(e->host), MEMBER_HOST);
	cur->at = p + MEMBER_LEN;
	return 0;
}

int
pbox_status_ok_decode(
	const void *buf, size_t len, struct pbox_status_ok *m, struct pbox_cursor *cur)
{
	uint8_t *p = (uint8_t *)(uintptr_t)buf; /* a reading cursor is not written through */

	if (record_text_decode(
		    buf, len, STATUS_OK_LEN, status_ok_fields, m, STATUS_OK_TEXT_AT, m->text) != 0)
		return -1;
	m->count = pbox_ld16(p + STATUS_OK_COUNT_AT);
	cur->at = p + STATUS_OK_LEN + pbox_ld16(p + STATUS_OK_TEXT_AT);
	if (m->first + m->count > m->workers ||
		(size_t)(p + len - cur->at) < (size_t)m->count * MEMBER_LEN)
		return -1;
	cur->end = cur->at + (size_t)m->count * MEMBER_LEN;
	return 0;
}

int
pbox_status_ok_next(struct pbox_cursor *cur, struct pbox_member_entry *e)
{
	if (record_decode(cur->at, (size_t)(cur->end - cur->at), MEMBER_LEN, member_fields, e) != 0)
		return -1;
	text_get(e->host, sizeof(e->host), cur->at + 12, MEMBER_HOST);
	cur->at += MEMBER_LEN;
	return 0;
}

size_t
pbox_error_encode(void *buf, size_t cap, const struct pbox_error_msg *m)
{
	return record_text_encode(buf, cap, ERROR_LEN, error_fields, m, ERROR_TEXT_AT, m->text);
}

int
pbox_error_decode(const void *buf, size_t len, struct pbox_error_msg *m)
{
	return record_text_decode(buf, len, ERROR_LEN, error_fields, m, ERROR_TEXT_AT, m->text);
}

size_t
pbox_error_tail_encode(void *buf, size_t len, const struct pbox_error_tail *t)
{
	pbox_fields_put((uint8_t *)buf + len, PBOX_ERROR_TAIL_LEN, error_tail_fields, t);
	return len + PBOX_ERROR_TAIL_LEN;
}

size_t
pbox_error_tail_decode(const void *buf, size_t len, struct pbox_error_tail *t)
{
	const uint8_t *p = buf;
	size_t at;

	if (len < ERROR_LEN)
		return 0;
	at = ERROR_LEN + pbox_ld16(p + ERROR_TEXT_AT);
	if (at + PBOX_ERROR_TAIL_LEN > len)
		return 0;
	pbox_fields_get(p + at, error_tail_fields, t);
	return at + PBOX_ERROR_TAIL_LEN;
}
