/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Payloads of section 4: HELLO, RETRY, JOIN, WELCOME. */

#include <assert.h>

#include "codec.h"
#include "pbox_wire.h"

#define RETRY_LEN 16
#define RUN_AT    (PBOX_JOIN_PROOF_AT + PBOX_PROOF_LEN) /* of JOIN */
#define CAN_AT    (RUN_AT + PBOX_RUN_LEN + 8)
#define NUMBER_AT (PBOX_WELCOME_PROOF_AT + PBOX_PROOF_LEN) /* of WELCOME */

static_assert(CAN_AT + 8 + 288 == PBOX_JOIN_LEN, "R4.3");
static_assert(NUMBER_AT + 8 == PBOX_WELCOME_LEN, "R4.5");

size_t
pbox_hello_encode(void *buf, size_t cap, const struct pbox_hello *m)
{
	uint8_t *p = buf;

	if (cap < PBOX_HELLO_LEN)
		return 0;
	memset(p, 0, PBOX_HELLO_LEN);
	p[0] = m->min_version;
	p[1] = m->max_version;
	return PBOX_HELLO_LEN;
}

int
pbox_hello_decode(const void *buf, size_t len, struct pbox_hello *m)
{
	const uint8_t *p = buf;

	if (len < PBOX_HELLO_LEN)
		return -1;
	m->min_version = p[0];
	m->max_version = p[1];
	return 0;
}

size_t
pbox_retry_encode(void *buf, size_t cap, const struct pbox_retry *m)
{
	uint8_t *p = buf;

	if (cap < RETRY_LEN)
		return 0;
	st64(p, m->cookie);
	st32(p + 8, m->incarnation);
	st32(p + 12, 0);
	return RETRY_LEN;
}

int
pbox_retry_decode(const void *buf, size_t len, struct pbox_retry *m)
{
	const uint8_t *p = buf;

	if (len < RETRY_LEN)
		return -1;
	m->cookie = pbox_ld64(p);
	m->incarnation = pbox_ld32(p + 8);
	return 0;
}

size_t
pbox_join_encode(void *buf, size_t cap, const struct pbox_join *m)
{
	uint8_t *p = buf;

	if (cap < PBOX_JOIN_LEN)
		return 0;
	memset(p, 0, PBOX_JOIN_LEN);
	st64(p, m->cookie);
	st64(p + 8, m->nonce);
	st16(p + 16, m->worker);
	st16(p + 18, m->workers);
	st16(p + 20, m->mtu);
	st16(p + 22, m->window);
	p[24] = m->policy;
	p[25] = m->auth;
	p[26] = m->revision;
	st32(p + 28, m->lease_ms);
	text_pad(p + 32, PBOX_NAME_LEN, m->job, sizeof(m->job), PBOX_NAME_LEN - 1);
	text_pad(p + 96, PBOX_NAME_LEN, m->host, sizeof(m->host), PBOX_NAME_LEN - 1);
	memcpy(p + PBOX_JOIN_PROOF_AT, m->proof, PBOX_PROOF_LEN);
	memcpy(p + RUN_AT, m->run, PBOX_RUN_LEN);
	st64(p + RUN_AT + PBOX_RUN_LEN, m->number);
	st32(p + CAN_AT, m->can);
	st32(p + CAN_AT + 4, m->needs);
	return PBOX_JOIN_LEN;
}

int
pbox_join_decode(const void *buf, size_t len, struct pbox_join *m)
{
	const uint8_t *p = buf;

	/* A job name is looked up and must not be cut to another job's; a host name is for people. */
	if (len < PBOX_JOIN_LEN || memchr(p + 32, 0, PBOX_NAME_LEN) == NULL)
		return -1;
	m->cookie = pbox_ld64(p);
	m->nonce = pbox_ld64(p + 8);
	m->worker = pbox_ld16(p + 16);
	m->workers = pbox_ld16(p + 18);
	m->mtu = pbox_ld16(p + 20);
	m->window = pbox_ld16(p + 22);
	m->policy = p[24];
	m->auth = p[25];
	m->revision = p[26];
	m->lease_ms = pbox_ld32(p + 28);
	text_get(m->job, sizeof(m->job), p + 32, PBOX_NAME_LEN);
	text_get(m->host, sizeof(m->host), p + 96, PBOX_NAME_LEN);
	memcpy(m->proof, p + PBOX_JOIN_PROOF_AT, PBOX_PROOF_LEN);
	memcpy(m->run, p + RUN_AT, PBOX_RUN_LEN);
	m->number = pbox_ld64(p + RUN_AT + PBOX_RUN_LEN);
	m->can = pbox_ld32(p + CAN_AT);
	m->needs = pbox_ld32(p + CAN_AT + 4);
	return 0;
}

size_t
pbox_welcome_encode(void *buf, size_t cap, const struct pbox_welcome *m)
{
	uint8_t *p = buf;
	size_t len = PBOX_WELCOME_LEN + (size_t)m->endpoints * PBOX_ENDPOINT_LEN;

	if (m->endpoints > PBOX_MAX_ENDPOINTS || cap < len)
		return 0;
	st64(p, m->token);
	st64(p + 8, m->nonce);
	st16(p + 16, m->job);
	st16(p + 18, m->worker);
	st16(p + 20, m->workers);
	st16(p + 22, m->endpoints);
	st32(p + 24, m->incarnation);
	st32(p + 28, m->lease_ms);
	st16(p + 32, m->mtu);
	st16(p + 34, m->window);
	st32(p + 36, m->flags);
	memcpy(p + PBOX_WELCOME_PROOF_AT, m->proof, PBOX_PROOF_LEN);
	st64(p + NUMBER_AT, m->number);
	p += PBOX_WELCOME_LEN;
	for (unsigned i = 0; i < m->endpoints; i++, p += PBOX_ENDPOINT_LEN) {
		memcpy(p, m->endpoint[i].ipv4, 4);
		st16(p + 4, m->endpoint[i].udp);
		st16(p + 6, 0);
	}
	return len;
}

int
pbox_welcome_decode(const void *buf, size_t len, struct pbox_welcome *m)
{
	const uint8_t *p = buf;
	unsigned endpoints;

	if (len < PBOX_WELCOME_LEN)
		return -1;
	endpoints = pbox_ld16(p + 22);
	if (endpoints > PBOX_MAX_ENDPOINTS ||
		len < PBOX_WELCOME_LEN + (size_t)endpoints * PBOX_ENDPOINT_LEN)
		return -1;
	memset(m, 0, sizeof(*m));
	m->token = pbox_ld64(p);
	m->nonce = pbox_ld64(p + 8);
	m->job = pbox_ld16(p + 16);
	m->worker = pbox_ld16(p + 18);
	m->workers = pbox_ld16(p + 20);
	m->endpoints = (uint16_t)endpoints;
	m->incarnation = pbox_ld32(p + 24);
	m->lease_ms = pbox_ld32(p + 28);
	m->mtu = pbox_ld16(p + 32);
	m->window = pbox_ld16(p + 34);
	m->flags = pbox_ld32(p + 36);
	memcpy(m->proof, p + PBOX_WELCOME_PROOF_AT, PBOX_PROOF_LEN);
	m->number = pbox_ld64(p + NUMBER_AT);
	p += PBOX_WELCOME_LEN;
	for (unsigned i = 0; i < endpoints; i++, p += PBOX_ENDPOINT_LEN) {
		memcpy(m->endpoint[i].ipv4, p, 4);
		m->endpoint[i].udp = pbox_ld16(p + 4);
	}
	return 0;
}
