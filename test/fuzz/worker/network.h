/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef NETWORK_H
#define NETWORK_H

/**
 * @file
 * What lies between the workers and the engine (../engine/machine.c): the input decides what becomes of each frame
 * that the box sends.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <pbox_worker.h>

#include "../engine/machine.h"
#include "../require.h"

#define NET_MTU     1500
#define NET_WORKERS 2

/** @param script  one step of four bytes for each frame */
void net_begin(const uint8_t *script, size_t len);
void net_end(void);
/** A datagram of a worker's, to an address of the box. */
void net_to_box(unsigned worker, const struct sockaddr_in *to, const uint8_t *data, size_t len);
/** The next one of the box's, for *worker, valid until the next call; false: none. */
bool net_receive(struct pbox_client_rx *d, unsigned *worker);
/** Time passes, at least 1 us, and the box does what is due. */
void net_pass(uint64_t ns);
/** Nobody who knows the keys has changed what the box said: results must be exact. */
bool net_honest(void);

#endif /* NETWORK_H */
