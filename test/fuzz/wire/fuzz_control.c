/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * A control payload through the decoder of its type, which is the first byte. What was accepted is
 * encoded and decoded once more: the second encoding is the first, byte for byte. (The first can
 * differ from the input: reserved fields, tails and long names do not survive.)
 */

#include <stdlib.h>

#include <pbox_wire.h>

#include "../require.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/** Decode @p buf and encode it to @p out; the length, or -1 if it is malformed. */
typedef long (*again)(const uint8_t *buf, size_t len, uint8_t *out, size_t cap);

#define AGAIN(msg)                                                                        \
	static long again_##msg(const uint8_t *buf, size_t len, uint8_t *out, size_t cap) \
	{                                                                                 \
		static struct pbox_##msg m;                                               \
		size_t n;                                                                 \
                                                                                          \
		if (pbox_##msg##_decode(buf, len, &m) != 0)                               \
			return -1;                                                        \
		n = pbox_##msg##_encode(out, cap, &m);                                    \
		REQUIRE(n > 0 && n <= len);                                               \
		return (long)n;                                                           \
	}

AGAIN(hello)
AGAIN(retry)
AGAIN(join)
AGAIN(welcome)
AGAIN(declared)
AGAIN(map)
AGAIN(not_ready)
AGAIN(set)
AGAIN(status)

static long
again_error(const uint8_t *buf, size_t len, uint8_t *out, size_t cap)
{
	static struct pbox_error_msg m;

	if (pbox_error_decode(buf, len, &m) != 0)
		return -1;
	return (long)pbox_error_encode(out, cap, &m);
}

/* All entries of a page can be read, and not one more. */
#define AGAIN_PAGE(msg, entry)                                                            \
	static long again_##msg(const uint8_t *buf, size_t len, uint8_t *out, size_t cap) \
	{                                                                                 \
		static struct pbox_##msg m;                                               \
		static struct pbox_##entry e;                                             \
		struct pbox_cursor cur, to;                                               \
                                                                                          \
		if (pbox_##msg##_decode(buf, len, &m, &cur) != 0)                         \
			return -1;                                                        \
		REQUIRE(pbox_##msg##_begin(out, cap, &m, &to) == 0);                      \
		for (unsigned i = 0; i < m.count; i++) {                                  \
			REQUIRE(pbox_##msg##_next(&cur, &e) == 0);                        \
			REQUIRE(pbox_##msg##_add(out, &to, &e) == 0);                     \
		}                                                                         \
		REQUIRE(pbox_##msg##_next(&cur, &e) == -1);                               \
		REQUIRE(pbox_page_len(out, &to) <= len);                                  \
		return (long)pbox_page_len(out, &to);                                     \
	}

AGAIN_PAGE(declare, tensor_entry)
AGAIN_PAGE(mapped, chunk_entry)
AGAIN_PAGE(status_ok, member_entry)

static const again all[PBOX_FIRST_DATA_TYPE] = {
	[PBOX_HELLO] = again_hello,
	[PBOX_RETRY] = again_retry,
	[PBOX_JOIN] = again_join,
	[PBOX_WELCOME] = again_welcome,
	[PBOX_DECLARE] = again_declare,
	[PBOX_DECLARED] = again_declared,
	[PBOX_MAP] = again_map,
	[PBOX_MAPPED] = again_mapped,
	[PBOX_SET] = again_set,
	[PBOX_STATUS] = again_status,
	[PBOX_STATUS_OK] = again_status_ok,
	[PBOX_ERROR] = again_error,
	[PBOX_NOT_READY] = again_not_ready,
};

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t first[65535], second[65535];
	uint8_t *copy;
	long n;

	if (size < 1 || size > 65535 || data[0] >= PBOX_FIRST_DATA_TYPE || all[data[0]] == NULL)
		return 0;
	copy = malloc(size); /* the payload ends where the allocation does */
	REQUIRE(copy != NULL);
	memcpy(copy, data, size);
	n = all[data[0]](copy + 1, size - 1, first, sizeof(first));
	if (n >= 0) {
		REQUIRE(all[data[0]](first, (size_t)n, second, sizeof(second)) == n);
		REQUIRE(memcmp(first, second, (size_t)n) == 0);
	}
	free(copy);
	return 0;
}
