/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PEERS_H
#define PEERS_H

/* Workers of a world. */

#include "worker_impl.h"

#include "world.h"

struct peer {
	struct pbox_worker *w;
	struct pbox_worker_ops port;
	unsigned number;
	uint64_t due;
	bool may_fail;
	bool stopped; /* as by SIGSTOP: what comes for it gets lost */
};

struct peers_conf {
	unsigned workers, slots;
	bool tags, path_known;
	uint8_t policy;
};

extern struct peer peer[WORLD_WORKERS];
/** Each datagram that arrives; true: it gets lost. NULL (at the beginning): none does. */
extern bool (*peers_lose)(const struct packet *p);

/** Begin the world, and open its workers. */
void peers_begin(const struct peers_conf *conf);
void peers_end(void);
/** A datagram from the box's port @p from. */
void peers_datagram(struct peer *to, uint16_t from, const uint8_t *data, uint32_t len);
/** The next thing that happens: a datagram, a worker's deadline, a tick of the box. */
void peers_step(uint64_t *tick);
/** Until all have their so many-th session. */
void peers_await_sessions(uint32_t times, uint64_t *tick);
/** Worker i sets the learning rate of all groups to 1, from round 1 on, and has the answer. */
void peers_set_lr(unsigned i, uint64_t *tick);
/** The same, any rate and round. */
void peers_set_lr_from(unsigned i, double lr, uint32_t round, uint64_t *tick);

#endif /* PEERS_H */
