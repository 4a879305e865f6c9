/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef WORLD_H
#define WORLD_H

/**
 * @file
 * What surrounds a client here: a clock that only this moves, a progress thread that is a coroutine
 * of the program's, and a transport whose other end is box.c. So the same input does the same
 * every time, and a wait of seconds takes none.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <pbox_client_transport.h>
#include <pbox_wire.h>

#include "../require.h"

#define WORLD_MTU       1500
#define WORLD_ENDPOINTS 4

void world_begin(void);
void world_end(void);
/** ns of the clock */
uint64_t world_now(void);
void world_pass(uint64_t ns);
/** Let the progress thread do what it can. */
void world_yield(void);
/** A datagram to the client, which comes with the next receive; copied, so that the sanitizer sees
 * a read beyond its end. @p host: last byte of the sender's address, 1 is the box. */
void world_deliver(const uint8_t *data, size_t len, uint8_t host, uint8_t ecn);

extern const struct pbox_client_transport_ops world_transport;

/* box.c */

/** @p script says what is done to the answers, one step of four bytes for each frame. */
void box_begin(const uint8_t *script, size_t len);
/** A frame of the client's. */
void box_frame(const struct pbox_hdr *h, const uint8_t *payload);
/** What was held back. */
void box_idle(void);

#endif /* WORLD_H */
