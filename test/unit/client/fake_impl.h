/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef FAKE_IMPL_H
#define FAKE_IMPL_H

#include <netinet/in.h>
#include <pthread.h>

#include <pbox_auth.h>
#include <pbox_slots.h>
#include <pbox_wire.h>

#include "fake_box.h"

#define FAKE_WORKERS   16
#define FAKE_TABLES    8
#define FAKE_ENDPOINTS 8
#define FAKE_FRAME     65536

struct fake_frag {
	uint32_t version, have,
		asked;  /* bitmaps, of slots (without their own: of workers) and of workers */
	uint32_t nodes; /* bitmap of the first slots of contributions */
	uint32_t damaged, told; /* contributions not yet, and already, taken back */
	uint32_t told_us[FAKE_WORKERS];
	uint32_t ts[FAKE_WORKERS];
	uint64_t since[FAKE_WORKERS]; /* when the asker came, us */
	uint32_t weight[FAKE_WORKERS], samples;
	uint64_t init; /* bitmap of pieces */
	uint32_t at;   /* first element, in the table */
	uint32_t elements;
	bool ready;
	/* after a restart; version is then the highest reported */
	uint32_t tellers, havers; /* bitmaps: have reported; can give that version */
	uint16_t contributors;    /* of the version */
	bool behind;              /* somebody reported less */
	bool payload, restored;
};

struct fake_chunk {
	struct pbox_chunk_entry e;
	uint32_t frag; /* first */
	uint32_t frags;
};

struct fake_table {
	struct pbox_declare head;
	struct pbox_tensor_entry *tensor;
	uint32_t declared[FAKE_WORKERS]; /* tensors */
	bool begun[FAKE_WORKERS];
	bool mapped;
	uint32_t restorers; /* bitmap */
	bool lost;          /* of a part of it nobody has the latest version */
	uint32_t left;      /* fragments not restored */
	uint32_t elements, frag_elements, n_chunks, n_frags;
	struct fake_chunk *chunk;
	struct fake_frag *frag;
	uint8_t *in[FAKE_WORKERS]; /* contributions */
	uint8_t *out;              /* result, in the pull format */
	float *param, *state;      /* state: the sum of all gradients; array 1 of FETCH */
	double lr;
};

struct fake_member {
	bool live, left;
	uint64_t joins;
	unsigned denied; /* PINGs of the session that somebody else has answered */
	uint64_t token, nonce, heard;
	uint16_t mtu;
	struct sockaddr_in addr;
	char host[PBOX_NAME_LEN];
	struct pbox_auth_keys keys;
};

struct held_frame {
	struct sockaddr_in to;
	int fd;
	size_t len;
	uint8_t *data;
};

struct fake_box {
	struct fake_conf conf;
	pthread_t thread;
	pthread_mutex_t lock; /* everything below; the thread holds it while it works */
	int fd[1 + FAKE_ENDPOINTS];
	uint16_t port[1 + FAKE_ENDPOINTS];
	char address[64];
	bool stop;
	uint32_t incarnation, first_chunk, hellos;
	bool first_seen;
	unsigned refusals, refusal; /* so many JOINs are answered with that error */
	uint64_t proving;           /* nonce of the JOIN at work, if it knows the secret; else 0 */
	uint32_t last_join;         /* its request id */
	const char *prover;         /* with proof by this secret; NULL: without (R9.2) */
	uint64_t random;
	struct fake_member member[FAKE_WORKERS];
	struct fake_table table[FAKE_TABLES];
	unsigned tables;
	char mismatch[512];
	uint64_t contributions;
	unsigned after_restores, after_declares;
	struct held_frame held;
	struct fake_counts counts;
	uint8_t run[PBOX_RUN_LEN]; /* of the job's run */
	uint64_t number, ended;    /* of the run, 0: there is none; all up to this one have ended */
	uint64_t numbers;          /* the last one that was given */
	bool running, misnumber;
	struct fake_said said;
	struct pbox_auth_job *auth; /* since the first JOIN of an incarnation; NULL: no tags */
	bool attacking;             /* what is sent has no tag */
	uint8_t *rx, *tx;
};

uint64_t fake_now(void); /* us */
/** Send a frame whose payload is at b->tx + PBOX_HDR_LEN. */
void fake_send(struct fake_box *b, int fd, const struct sockaddr_in *to, struct pbox_hdr *h);
void fake_control(struct fake_box *b, int fd, const struct sockaddr_in *from,
	const struct pbox_hdr *h, const uint8_t *payload);
void fake_data(struct fake_box *b, int fd, const struct pbox_hdr *h, const uint8_t *payload);
/** RESTORE; the fragment's chunk is at @p fd. */
void fake_restore(struct fake_box *b, struct fake_table *t, struct fake_frag *g, int fd,
	const struct pbox_hdr *q, const uint8_t *payload);
/** Still to be reported by workers. */
static inline bool
fake_restoring(const struct fake_table *t, const struct fake_frag *g)
{
	return t->restorers != 0 && !g->restored;
}
void fake_map(struct fake_box *b, struct fake_table *t);
/** The run that is there makes way for another one. */
void fake_end_run(struct fake_box *b);
void fake_table_free(struct fake_table *t);
void fake_error(struct fake_box *b, int fd, const struct sockaddr_in *to, const struct pbox_hdr *q,
	unsigned code, uint32_t detail, const char *text);

#endif /* FAKE_IMPL_H */
