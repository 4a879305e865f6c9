/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PAYLOAD_H
#define PAYLOAD_H

#include <stdlib.h>
#include <string.h>

#include <pbox_wire.h>

#include "unit.h"

/** One decoder with a common face; the message goes to @p m, which is large enough for any. */
typedef int (*payload_decode)(const void *buf, size_t len, void *m);

union payload_any {
	struct pbox_welcome welcome;
	struct pbox_not_ready not_ready;
	struct pbox_status_ok status_ok;
	struct pbox_error_msg error;
	struct pbox_join join;
	struct pbox_set set;
	uint64_t room[512];
};

/**
 * The @p len bytes of a good payload are refused at every shorter length, without a read beyond
 * the end (each try is at the end of an allocation, for the address sanitiser), and accepted
 * with a tail of unknown bytes (R3.3).
 */
static inline void
payload_lengths(const uint8_t *buf, size_t len, payload_decode decode)
{
	static union payload_any m, tailed;

	memset(&m, 0, sizeof(m));
	memset(&tailed, 0, sizeof(tailed));
	for (size_t n = 0; n <= len; n++) {
		uint8_t *copy = malloc(n ? n : 1);

		memcpy(copy, buf, n);
		CU_ASSERT_EQUAL(decode(copy, n, &m), n == len ? 0 : -1);
		if (n == len) {
			uint8_t *tail = malloc(n + 9);

			memcpy(tail, buf, n);
			memset(tail + n, 0xFF, 9);
			CU_ASSERT_EQUAL(decode(tail, n + 9, &tailed), 0);
			CU_ASSERT_EQUAL(memcmp(&m, &tailed, sizeof(m)), 0);
			free(tail);
		}
		free(copy);
	}
}

/* A fixed-size message: one with the common face. */
#define PAYLOAD_FACE(msg)                                           \
	static int face_##msg(const void *buf, size_t len, void *m) \
	{                                                           \
		return pbox_##msg##_decode(buf, len, m);            \
	}

/* An encoder that has too little room for its @p need bytes writes none of them after it. */
#define PAYLOAD_ROOM(encode, need, m)                          \
	do {                                                   \
		for (size_t cap = 0; cap < (need); cap++) {    \
			uint8_t *room = malloc(cap ? cap : 1); \
                                                               \
			UNIT_EQ_U64(encode(room, cap, m), 0);  \
			free(room);                            \
		}                                              \
	} while (0)

#endif /* PAYLOAD_H */
