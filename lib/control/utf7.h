/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef UTF7_H
#define UTF7_H

/* Texts as they leave through telemetry: pure functions, no DPDK. */

#include <stddef.h>

/*
 * DPDK 22.11 makes broken JSON of bytes from 0x80 on, and reads beyond a table while it does. So what it gets is
 * UTF-7 (RFC 2152), which has printable ASCII only: other characters, '"' and '\' go as "+" Base64 of UTF-16
 * "-", a "+" as "+-". A byte that is no part of a UTF-8 character becomes U+FFFD.
 *
 * Writes as much of @p text as has room in @p cap bytes (16 or more) with its NUL, whole characters; what
 * is written ends as it begins, in ASCII. Returns what is left of the text; "" at its end.
 */
const char *utf7_encode(const char *text, char *out, size_t cap);

/* A name for a text that has not much room: max bytes of it, cut at a character. */
#define UTF7_BRIEF 64
const char *utf7_brief(char out[UTF7_BRIEF], const char *name, size_t max);

#endif /* UTF7_H */
