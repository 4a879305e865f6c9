/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Payloads of sections 7 to 9: SET, STATUS, STATUS_OK, ERROR. */

#include <assert.h>

#include "codec.h"
#include "pbox_wire.h"

#define SET_LEN       16 /* without the parameters */
#define PARAM_LEN     16
#define STATUS_LEN    4
#define STATUS_OK_LEN 20 /* without text and members */
#define MEMBER_LEN    32
#define MEMBER_HOST   20
#define ERROR_LEN     12 /* without the text */

#define STATUS_OK_COUNT_AT 6

static_assert(sizeof(double) == 8, "f64 is IEEE binary64");
static_assert(sizeof(((struct pbox_member_entry *)0)->host) == MEMBER_HOST + 1, "R8.3");

size_t
pbox_set_encode(void *buf, size_t cap, const struct pbox_set *m)
{
	uint8_t *p = buf;
	size_t len = SET_LEN + (size_t)m->count * PARAM_LEN;

	if (m->count > PBOX_SET_MAX || cap < len)
		return 0;
	st32(p, m->table);
	st16(p + 4, m->group);
	st16(p + 6, m->count);
	st32(p + 8, m->from_round);
	st32(p + 12, 0);
	p += SET_LEN;
	for (unsigned i = 0; i < m->count; i++, p += PARAM_LEN) {
		uint64_t bits;

		memcpy(&bits, &m->param[i].value, sizeof(bits));
		st16(p, m->param[i].id);
		st16(p + 2, 0);
		st32(p + 4, 0);
		st64(p + 8, bits);
	}
	return len;
}

int
pbox_set_decode(const void *buf, size_t len, struct pbox_set *m)
{
	const uint8_t *p = buf;
	unsigned count;

	if (len < SET_LEN)
		return -1;
	count = pbox_ld16(p + 6);
	if (count > PBOX_SET_MAX || len < SET_LEN + (size_t)count * PARAM_LEN)
		return -1;
	memset(m, 0, sizeof(*m));
	m->table = pbox_ld32(p);
	m->group = pbox_ld16(p + 4);
	m->count = (uint16_t)count;
	m->from_round = pbox_ld32(p + 8);
	p += SET_LEN;
	for (unsigned i = 0; i < count; i++, p += PARAM_LEN) {
		uint64_t bits = pbox_ld64(p + 8);

		m->param[i].id = pbox_ld16(p);
		memcpy(&m->param[i].value, &bits, sizeof(bits));
	}
	return 0;
}

size_t
pbox_status_encode(void *buf, size_t cap, const struct pbox_status *m)
{
	uint8_t *p = buf;

	if (cap < STATUS_LEN)
		return 0;
	st16(p, m->first);
	st16(p + 2, 0);
	return STATUS_LEN;
}

int
pbox_status_decode(const void *buf, size_t len, struct pbox_status *m)
{
	if (len < STATUS_LEN)
		return -1;
	m->first = pbox_ld16(buf);
	return 0;
}

int
pbox_status_ok_begin(void *buf, size_t cap, const struct pbox_status_ok *m, struct pbox_cursor *cur)
{
	uint8_t *p = buf;
	size_t text;

	if (cap < STATUS_OK_LEN)
		return -1;
	text = text_fit(m->text, sizeof(m->text) - 1, cap - STATUS_OK_LEN);
	st16(p, m->workers);
	st16(p + 2, m->joined);
	st16(p + 4, m->first);
	st16(p + STATUS_OK_COUNT_AT, 0);
	st32(p + 8, m->tables);
	st32(p + 12, m->max_round);
	st16(p + 16, (uint16_t)text);
	st16(p + 18, 0);
	memcpy(p + STATUS_OK_LEN, m->text, text);
	cur->at = p + STATUS_OK_LEN + text;
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
	st16(count, (uint16_t)(pbox_ld16(count) + 1));
	st16(p, e->worker);
	p[2] = e->state;
	p[3] = e->reason;
	st32(p + 4, e->silent_ms);
	st32(p + 8, e->declared);
	text_pad(p + 12, MEMBER_HOST, e->host, sizeof(e->host), MEMBER_HOST);
	cur->at = p + MEMBER_LEN;
	return 0;
}

int
pbox_status_ok_decode(
	const void *buf, size_t len, struct pbox_status_ok *m, struct pbox_cursor *cur)
{
	uint8_t *p = (uint8_t *)(uintptr_t)buf; /* a reading cursor is not written through */
	unsigned workers, first, count;
	size_t text;

	if (len < STATUS_OK_LEN)
		return -1;
	workers = pbox_ld16(p);
	first = pbox_ld16(p + 4);
	count = pbox_ld16(p + STATUS_OK_COUNT_AT);
	text = pbox_ld16(p + 16);
	if (first + count > workers || len < STATUS_OK_LEN + text + (size_t)count * MEMBER_LEN)
		return -1;
	m->workers = (uint16_t)workers;
	m->joined = pbox_ld16(p + 2);
	m->first = (uint16_t)first;
	m->count = (uint16_t)count;
	m->tables = pbox_ld32(p + 8);
	m->max_round = pbox_ld32(p + 12);
	text_get(m->text, sizeof(m->text), p + STATUS_OK_LEN, text);
	cur->at = p + STATUS_OK_LEN + text;
	cur->end = cur->at + (size_t)count * MEMBER_LEN;
	return 0;
}

int
pbox_status_ok_next(struct pbox_cursor *cur, struct pbox_member_entry *e)
{
	const uint8_t *p = cur->at;

	if ((size_t)(cur->end - cur->at) < MEMBER_LEN)
		return -1;
	e->worker = pbox_ld16(p);
	e->state = p[2];
	e->reason = p[3];
	e->silent_ms = pbox_ld32(p + 4);
	e->declared = pbox_ld32(p + 8);
	text_get(e->host, sizeof(e->host), p + 12, MEMBER_HOST);
	cur->at += MEMBER_LEN;
	return 0;
}

size_t
pbox_error_encode(void *buf, size_t cap, const struct pbox_error_msg *m)
{
	uint8_t *p = buf;
	size_t text;

	if (cap < ERROR_LEN)
		return 0;
	text = text_fit(m->text, sizeof(m->text) - 1, cap - ERROR_LEN);
	st16(p, m->code);
	p[2] = m->type;
	p[3] = 0;
	st32(p + 4, m->detail);
	st16(p + 8, (uint16_t)text);
	st16(p + 10, 0);
	memcpy(p + ERROR_LEN, m->text, text);
	return ERROR_LEN + text;
}

int
pbox_error_decode(const void *buf, size_t len, struct pbox_error_msg *m)
{
	const uint8_t *p = buf;
	size_t text;

	if (len < ERROR_LEN)
		return -1;
	text = pbox_ld16(p + 8);
	if (text > len - ERROR_LEN)
		return -1;
	m->code = pbox_ld16(p);
	m->type = p[2];
	m->detail = pbox_ld32(p + 4);
	text_get(m->text, sizeof(m->text), p + ERROR_LEN, text);
	return 0;
}

size_t
pbox_error_tail_encode(void *buf, size_t len, const struct pbox_error_tail *t)
{
	uint8_t *p = (uint8_t *)buf + len;

	memset(p, 0, PBOX_ERROR_TAIL_LEN);
	st64(p, t->nonce);
	st32(p + 8, t->request);
	return len + PBOX_ERROR_TAIL_LEN;
}

size_t
pbox_error_tail_decode(const void *buf, size_t len, struct pbox_error_tail *t)
{
	const uint8_t *p = buf;
	size_t at;

	if (len < ERROR_LEN)
		return 0;
	at = ERROR_LEN + pbox_ld16(p + 8);
	if (at + PBOX_ERROR_TAIL_LEN > len)
		return 0;
	t->nonce = pbox_ld64(p + at);
	t->request = pbox_ld32(p + at + 8);
	return at + PBOX_ERROR_TAIL_LEN;
}
