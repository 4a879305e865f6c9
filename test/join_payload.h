/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef TEST_JOIN_PAYLOAD_H
#define TEST_JOIN_PAYLOAD_H

/**
 * @file
 * JOIN of a worker that is not lib/worker: what joins wrongly, or must be the same in every run.
 */

#include <string.h>

#include <pbox_proof.h>
#include <pbox_wire.h>

/** The proof (R4.3) of what @p payload, of PBOX_JOIN_LEN bytes, says now. */
static inline void
join_payload_prove(uint8_t *payload, const char *secret)
{
	pbox_proof(payload + PBOX_JOIN_PROOF_AT, secret, strlen(secret), PBOX_JOIN_PROOF_PREFIX,
		payload, PBOX_JOIN_LEN, PBOX_JOIN_PROOF_AT);
}

/** @p payload  of PBOX_JOIN_LEN bytes */
static inline void
join_payload(uint8_t *payload, const struct pbox_join *m, const char *secret)
{
	pbox_join_encode(payload, PBOX_JOIN_LEN, m);
	join_payload_prove(payload, secret);
}

#endif /* TEST_JOIN_PAYLOAD_H */
