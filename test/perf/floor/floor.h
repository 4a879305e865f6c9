/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef FLOOR_H
#define FLOOR_H

/**
 * @file
 * What kernel sockets cost at least: a program that moves bytes as a worker does, and its far ends.
 *
 *     floor.c   options, the worker, the far end of a socket
 *     ring.c    the far end of a packet ring, as drivers/net/packet has it
 *
 * A datagram ("fragment") has a head of FLOOR_HEAD bytes, whose first four are its number in the order of its sender, and a payload that
 * follows from its place in the sender's buffer. A datagram
 * that is shorter ends a far end.
 */

#include <arpa/inet.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FLOOR_PORT  9000
#define FLOOR_HEAD  62 /* as PBox's */
#define FLOOR_TRAIN 65000
#define FLOOR_MOST  64 /* fragments of a train, UDP_MAX_SEGMENTS */

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

/** What one side sends, or receives: ROUNDS times the same buffer. */
struct floor_side {
	uint8_t *payload; /* all fragments' */
	uint8_t *head;    /* FLOOR_HEAD bytes a fragment; NULL: flat, each before its payload */
	uint32_t fragments, fragment; /* of a buffer; bytes of a datagram */
	uint32_t next;                /* of the buffer */
	uint64_t moved;               /* bytes of datagrams */
	uint64_t numbers;             /* received: the sum of the fragments' numbers */
};

/** The memory of a side, and, with @p fill, what it sends. false: no memory. */
bool floor_side_open(
	struct floor_side *s, uint32_t fragment, uint64_t bytes, bool pieces, bool fill);
/** A train of at most @p most fragments from s->next on as pieces of memory; returns fragments. @p n: pieces. */
unsigned floor_train(const struct floor_side *s, unsigned most, struct iovec *iov, unsigned *n);
/** So many fragments of the train have been moved. */
void floor_moved(struct floor_side *s, unsigned fragments);
/** Count the number of a received fragment; does the sum say that each has come once a round? 0: it does. */
void floor_number(struct floor_side *s, const uint8_t *head);
uint32_t floor_unsummed(const struct floor_side *s);
unsigned floor_train_length(uint32_t fragment);
/** A far end has what it needs: nothing that is sent from now on is lost. */
void floor_ready(void);
/** CPU seconds of the process. */
double floor_cpu(void);

/** A far end that gives back as many fragments as come (@p in: what has; payloads are not kept); false, with a message, when it fails. */
bool floor_ring(const char *device, struct floor_side *in, struct floor_side *answers);

#endif
