/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef RIG_H
#define RIG_H

/* A box without hardware: its port is a pair of rings for each queue, and its cores turn when the
 * test says so (or on lcores of their own). */

#include <rte_mbuf.h>
#include <rte_ring.h>

#include <pbox_control.h>

#include "unit.h"

#define RIG_QUEUES  2
#define RIG_WORKERS 4
#define RIG_INBOX   512
#define RIG_IP      0x01004E0A /* 10.78.0.1 */
#define RIG_SECRET  "correct horse"
#define RIG_MAC                        \
	{                              \
		0x02, 0, 0, 0, 0, 0x01 \
	}

struct rig_options {
	unsigned queues, cores;
	unsigned ports;    /* 0: one; two have one queue each, ring i is that of port i */
	unsigned out_size; /* packets that the way out holds; 0: many */
	bool copy;         /* the port takes no chained buffers */
	bool lcores;       /* cores run on lcores 1, 2, ... */
	bool threads;      /* and the test starts the control thread */
	uint32_t hold;
	uint64_t drain_ns; /* longest clean stop; 0: a second */
	/* of the job (R6.12a); 0: no limit */
	uint32_t requests;
	const char *report, *snapshot_dir; /* of the control thread; may be NULL */
	const struct pbox_notify *notify;
};

/* A datagram of the box to a worker. */
struct rig_datagram {
	uint16_t len;
	uint8_t ring;           /* it left through */
	uint8_t bytes[2048];    /* UDP payload */
	const void *payload_at; /* where a shared payload is, or NULL */
};

struct rig {
	struct rig_options o;
	struct rte_ring *in[RIG_QUEUES], *out[RIG_QUEUES];
	struct rte_mempool *pool;
	unsigned pool_size;
	struct pbox_port port[RIG_QUEUES];
	struct pbox_port_core core[4];
	struct pbox_engine_endpoint endpoint[4];
	unsigned n_endpoints;
	void *memory, *staging; /* memory: a page ends in it */
	size_t memory_size;
	unsigned pieces; /* of the packet of the box that had most */
	struct pbox_arena *arena;
	struct pbox_job_conf job;
	struct pbox_dp *dp;
	struct pbox_control *control;

	/* UDP datagrams by their destination port - 5000; all else */
	struct rig_datagram *inbox[RIG_WORKERS];
	unsigned n_inbox[RIG_WORKERS], got[RIG_WORKERS];
	uint8_t other[64][2048];
	uint16_t other_len[64];
	unsigned n_other;
};

/* Before the first start: EAL serves telemetry. */
extern bool rig_telemetry;

void rig_start(struct rig *r, const struct rig_options *o);
/* Stop; assert that counters add up and all packets came back. */
void rig_stop(struct rig *r);
/* Turn all cores and the control thread until nothing happens any more, and collect what left. */
void rig_pump(struct rig *r);
/* Only the cores, once each. */
void rig_turn(struct rig *r);
void rig_collect(struct rig *r);
/* A packet of these bytes arrives at a queue (with two ports: at that port). */
void rig_put(struct rig *r, unsigned queue, const void *frame, size_t len);
void rig_put_mbuf(struct rig *r, unsigned queue, struct rte_mbuf *m);
uint64_t rig_core(const struct rig *r, enum pbox_core_stat what); /* all cores */
uint64_t rig_shard(const struct rig *r, enum pbox_shard_stat what);
/* Assert that each layer's counters add up. */
void rig_conserved(const struct rig *r);

/* worker.c */
struct worker {
	struct rig *r;
	unsigned
		n; /* its number; at port p: UDP port 5000 + 100 * p + n, address 10.78.p.(10 + n) */
	uint64_t token;
	uint32_t incarnation, request;
	uint16_t job, workers, endpoints;
	struct pbox_endpoint endpoint[PBOX_MAX_ENDPOINTS];
	uint32_t frag_elements;
	unsigned n_chunks;
	struct pbox_chunk_entry chunk[64];
};

/* Bytes of a frame from worker n to a UDP port of the box: 42 of headers and then the payload. The
 * second port is in a network of its own, and the worker has another socket there. */
size_t worker_frame_at(
	unsigned port, unsigned n, uint16_t to, const void *payload, size_t len, uint8_t *out);
size_t worker_frame(unsigned n, uint16_t to, const void *payload, size_t len, uint8_t *out);
/* Send one PBox frame to an UDP port. */
void worker_send(struct worker *w, unsigned queue, uint16_t to, const struct pbox_hdr *hdr,
	const void *payload);
/* The next datagram, waiting for at most a second; NULL: none. */
const struct rig_datagram *worker_next(struct worker *w);
/* HELLO to WELCOME. Split, because a box answers JOIN at once but a test has several workers. */
bool worker_join(struct rig *r, struct worker *w, unsigned n, unsigned workers);
bool worker_declare(struct worker *w, uint64_t elements);
bool worker_map(struct worker *w);
/* The same, and the box says no, and why. */
bool worker_map_refused(struct worker *w, const char *why);
/* PUSHPULL of all fragments of a round: element i is value(n, i). */
void worker_push(struct worker *w, unsigned queue, uint32_t round);
/* PULL of the first fragment, as it is now. */
void worker_pull(struct worker *w, unsigned queue);
float worker_value(unsigned n, uint32_t round, uint64_t i);
/* Take all results of a round; the number of elements that are the sum of all workers. */
uint64_t worker_results(struct worker *w, uint32_t round, unsigned workers);
bool worker_leave(struct worker *w);

#endif /* RIG_H */
