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
#define SLOTS_AT  (CAN_AT + 8)
#define NUMBER_AT (PBOX_WELCOME_PROOF_AT + PBOX_PROOF_LEN) /* of WELCOME */

static_assert(SLOTS_AT + 4 + 284 == PBOX_JOIN_LEN, "R4.3");
static_assert(NUMBER_AT + 8 == PBOX_WELCOME_LEN, "R4.5");

static const struct pbox_field hello_fields[] = {
	PBOX_FIELD(pbox_hello, min_version, 0),
	PBOX_FIELD(pbox_hello, max_version, 1),
	{0},
};
static const struct pbox_field retry_fields[] = {
	PBOX_FIELD(pbox_retry, cookie, 0),
	PBOX_FIELD(pbox_retry, incarnation, 8),
	{0},
};
static const struct pbox_field join_fields[] = {
	PBOX_FIELD(pbox_join, cookie, 0),
	PBOX_FIELD(pbox_join, nonce, 8),
	PBOX_FIELD(pbox_join, worker, 16),
	PBOX_FIELD(pbox_join, workers, 18),
	PBOX_FIELD(pbox_join, mtu, 20),
	PBOX_FIELD(pbox_join, window, 22),
	PBOX_FIELD(pbox_join, policy, 24),
	PBOX_FIELD(pbox_join, auth, 25),
	PBOX_FIELD(pbox_join, revision, 26),
	PBOX_FIELD(pbox_join, lease_ms, 28),
	PBOX_FIELD_BYTES(pbox_join, proof, PBOX_JOIN_PROOF_AT),
	PBOX_FIELD_BYTES(pbox_join, run, RUN_AT),
	PBOX_FIELD(pbox_join, number, RUN_AT + PBOX_RUN_LEN),
	PBOX_FIELD(pbox_join, can, CAN_AT),
	PBOX_FIELD(pbox_join, needs, CAN_AT + 4),
	PBOX_FIELD(pbox_join, slots, SLOTS_AT),
	PBOX_FIELD(pbox_join, least, SLOTS_AT + 2),
	{0},
};
static const struct pbox_field welcome_fields[] = {
	PBOX_FIELD(pbox_welcome, token, 0),
	PBOX_FIELD(pbox_welcome, nonce, 8),
	PBOX_FIELD(pbox_welcome, job, 16),
	PBOX_FIELD(pbox_welcome, worker, 18),
	PBOX_FIELD(pbox_welcome, workers, 20),
	PBOX_FIELD(pbox_welcome, endpoints, 22),
	PBOX_FIELD(pbox_welcome, incarnation, 24),
	PBOX_FIELD(pbox_welcome, lease_ms, 28),
	PBOX_FIELD(pbox_welcome, mtu, 32),
	PBOX_FIELD(pbox_welcome, window, 34),
	PBOX_FIELD(pbox_welcome, flags, 36),
	PBOX_FIELD_BYTES(pbox_welcome, proof, PBOX_WELCOME_PROOF_AT),
	PBOX_FIELD(pbox_welcome, number, NUMBER_AT),
	{0},
};
static const struct pbox_field endpoint_fields[] = {
	PBOX_FIELD_BYTES(pbox_endpoint, ipv4, 0),
	PBOX_FIELD(pbox_endpoint, udp, 4),
	{0},
};

size_t
pbox_hello_encode(void *buf, size_t cap, const struct pbox_hello *m)
{
	return record_encode(buf, cap, PBOX_HELLO_LEN, hello_fields, m);
}

int
pbox_hello_decode(const void *buf, size_t len, struct pbox_hello *m)
{
	return record_decode(buf, len, PBOX_HELLO_LEN, hello_fields, m);
}

size_t
pbox_retry_encode(void *buf, size_t cap, const struct pbox_retry *m)
{
	return record_encode(buf, cap, RETRY_LEN, retry_fields, m);
}

int
pbox_retry_decode(const void *buf, size_t len, struct pbox_retry *m)
{
	return record_decode(buf, len, RETRY_LEN, retry_fields, m);
}

size_t
pbox_join_encode(void *buf, size_t cap, const struct pbox_join *m)
{
	uint8_t *p = buf;

	if (record_encode(buf, cap, PBOX_JOIN_LEN, join_fields, m) == 0)
		return 0;
	text_pad(p + 32, PBOX_NAME_LEN, m->job, sizeof(m->job), PBOX_NAME_LEN - 1);
	text_pad(p + 96, PBOX_NAME_LEN, m->host, sizeof(m->host), PBOX_NAME_LEN - 1);
	return PBOX_JOIN_LEN;
}

int
pbox_join_decode(const void *buf, size_t len, struct pbox_join *m)
{
	const uint8_t *p = buf;

	/* A job name is looked up and must not be cut to another job's; a host name is for people. */
	if (len < PBOX_JOIN_LEN || memchr(p + 32, 0, PBOX_NAME_LEN) == NULL)
		return -1;
	pbox_fields_get(p, join_fields, m);
	text_get(m->job, sizeof(m->job), p + 32, PBOX_NAME_LEN);
	text_get(m->host, sizeof(m->host), p + 96, PBOX_NAME_LEN);
	return 0;
}

size_t
pbox_welcome_encode(void *buf, size_t cap, const struct pbox_welcome *m)
{
	uint8_t *p = buf;
	size_t len = PBOX_WELCOME_LEN + (size_t)m->endpoints * PBOX_ENDPOINT_LEN;

	if (m->endpoints > PBOX_MAX_ENDPOINTS || cap < len)
		return 0;
	pbox_fields_put(p, PBOX_WELCOME_LEN, welcome_fields, m);
	for (unsigned i = 0; i < m->endpoints; i++)
		pbox_fields_put(p + PBOX_WELCOME_LEN + i * PBOX_ENDPOINT_LEN, PBOX_ENDPOINT_LEN,
			endpoint_fields, &m->endpoint[i]);
	return len;
}

int
pbox_welcome_decode(const void *buf, size_t len, struct pbox_welcome *m)
{
	const uint8_t *p = buf;

	memset(m, 0, sizeof(*m));
	if (record_decode(buf, len, PBOX_WELCOME_LEN, welcome_fields, m) != 0 ||
		m->endpoints > PBOX_MAX_ENDPOINTS ||
		len < PBOX_WELCOME_LEN + (size_t)m->endpoints * PBOX_ENDPOINT_LEN)
		return -1;
	for (unsigned i = 0; i < m->endpoints; i++)
		pbox_fields_get(p + PBOX_WELCOME_LEN + i * PBOX_ENDPOINT_LEN, endpoint_fields,
			&m->endpoint[i]);
	return 0;
}
