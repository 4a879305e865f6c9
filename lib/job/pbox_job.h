/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_JOB_H
#define PBOX_JOB_H

/**
 * @file
 * Jobs, their members and tables; cookies and proofs of the join.
 *
 * A job is created and changed by the control thread (lib/engine's registrar). Shards read its
 * constant fields, the tokens and the tables handed to them; nothing of a job is freed before
 * every shard has let go of it.
 */

#include <stdatomic.h>
#include <stdint.h>

#include <pbox_base.h>
#include <pbox_table.h>
#include <pbox_wire.h>

#define PBOX_MAX_JOBS   256
#define PBOX_MAX_TABLES 1024
#define PBOX_MAX_SHARDS 128
#define PBOX_MAP_EPOCH  1 /**< version 1 never moves chunks */

/** Where a worker's frames come from and answers go to. Addresses in network byte order. */
struct pbox_peer {
	uint32_t ip, local_ip;   /**< worker's, ours */
	uint16_t udp, local_udp; /**< host byte order */
	uint16_t port;           /**< ethdev port, or what the caller of the engine likes */
	uint8_t mac[6];          /**< worker's, or its router's */
};

/** What happens when a worker is dead (R8.5); the first two are what a JOIN says. */
enum pbox_policy {
	PBOX_POLICY_WAIT,
	PBOX_POLICY_SHRINK,
	PBOX_POLICY_ANY,
};
const char *pbox_policy_name(unsigned policy);

struct pbox_auth_job; /* pbox_auth.h */

/** What the operator configured for a job: a section of the configuration. */
struct pbox_job_conf {
	const char *name; /**< "*": template for names that are not configured */
	const char *secret;
	size_t secret_len;
	uint32_t workers; /**< 0: what the first worker says */
	uint64_t memory;  /**< quota in bytes; 0: no limit but the box's */
	uint64_t rate;    /**< contributions summed a second and core; 0: no limit */
	uint32_t
		repeats; /**< frames that move no round, a second, worker and core (R6.12); 0: no limit */
	uint32_t lease_ms; /**< 0: the box's default */
	bool auth;         /**< frames have tags (section 11 of the protocol) */
	bool snapshot;     /**< its tables are written now and then (lib/control) */
	uint8_t policy;    /**< enum pbox_policy: ANY: what the workers ask for, all the same */
};

struct pbox_member {
	uint64_t nonce;
	uint64_t last_seen; /**< by the control thread, ns */
	struct pbox_peer peer;
	uint32_t lease_ms;
	uint32_t join_request; /**< id of the JOIN to answer once the shards know the job */
	uint16_t window, mtu;
	uint8_t state; /**< enum pbox_member_state */
	bool welcome_owed;
	bool heard;   /**< by the control thread, since WELCOME */
	uint32_t ts;  /**< of its newest control frame, once heard */
	bool removed; /**< the job goes on without it (R8.5) */
	/* R4.6: another process claims this worker's number */
	uint8_t claim_pings;    /**< sent since claim_ns */
	uint64_t claim_ns;      /**< first PING; 0: nobody did */
	uint64_t claim_next_ns; /**< when the next PING may leave */
	uint64_t claim_told_ns; /**< when it was last logged */
	/* its round trip, as an operator sees it */
	bool rtt_wanted;
	uint64_t rtt_asked_ns; /**< a PING that asks for it; 0: none is under way */
	uint64_t rtt_next_ns;  /**< when the next one may leave */
	uint32_t rtt_us;       /**< 0: not known */
	uint32_t declared;     /**< tables declared completely */
	char host[PBOX_NAME_LEN];
};

/** A table between its first DECLARE and its release. */
struct pbox_job_table {
	struct pbox_table t;
	struct pbox_declare fixed; /**< of the first page seen */
	uint16_t declared_by;      /**< worker of that page, for messages */
	struct pbox_tensor *tensor;
	uint8_t *known;       /**< tensor i has been declared by somebody */
	uint8_t **has;        /**< has[w][i]: worker w declared tensor i; freed when complete */
	uint32_t *n_has;      /**< how many, per worker */
	unsigned shards_open; /**< shards that acknowledged it */
	bool built, failed;
	/** R10.2: who declared it with RESTORE. The control thread writes, shards read. */
	_Atomic uint64_t restorer[PBOX_MAX_WORKERS / 64];
	unsigned restorers;
	bool restoring;          /**< built, and its restorers have not told all yet */
	uint16_t failed_by;      /**< worker whose page differed; PBOX_NO_WORKER: nobody's fault */
	struct pbox_error error; /**< why it failed: MISMATCH or NO_MEMORY */
};

enum pbox_job_state {
	PBOX_JOB_OPENING, /**< shards do not know it yet */
	PBOX_JOB_OPEN,
	PBOX_JOB_CLOSING, /**< shards are letting go of it */
};

/** Keys of a session (R11.2), as words that shards read while they change: a frame that meets a torn
 * one is dropped, and its session is no more. */
struct pbox_job_keys {
	_Atomic uint64_t worker[2], box[2];
};

struct pbox_job {
	uint16_t id, workers;
	uint64_t begun_ns; /**< when it was created: no two jobs of a box have the same */
	uint16_t window;   /**< granted to each worker and endpoint */
	uint8_t policy;    /**< PBOX_POLICY_WAIT or _SHRINK */
	enum pbox_job_state state;
	bool numbered; /**< somebody has joined with a number of its own */
	/** Its own copy of its section: as it was when the job began, with the quotas of now (control
	 * thread only). */
	struct pbox_job_conf *conf;
	char name[PBOX_NAME_LEN];
	_Atomic uint64_t *token;    /**< per worker; 0: no session */
	struct pbox_auth_job *auth; /**< NULL: its frames have no tags */
	struct pbox_job_keys *key;  /**< per worker, with auth; written before token */
	struct pbox_member *member;
	uint32_t hold_share; /**< packets it may hold on each shard */
	unsigned shards_open, shards_closed;
	struct pbox_job_table *table[PBOX_MAX_TABLES];
	uint32_t n_tables;
	size_t bytes;     /**< parameter memory of its tables */
	uint16_t map_mtu; /**< IP MTU that its tables' fragments need; 0: none is mapped */
	struct pbox_shard_job *shard[PBOX_MAX_SHARDS];
};

/** @p conf is copied, its secret too. NULL: out of memory. */
struct pbox_job *pbox_job_create(
	uint16_t id, const char *name, const struct pbox_job_conf *conf, uint16_t workers);
/** Tables must have been released by their owner. */
void pbox_job_free(struct pbox_job *job);
/** Workers with a session (joined, perhaps silent). */
unsigned pbox_job_joined(const struct pbox_job *job);

/** Name of the tensor that a fragment begins with; "?" where there is none such. */
const char *pbox_job_tensor(const struct pbox_job *job, uint32_t chunk, unsigned frag);

/** A table record for the first page of a declaration; NULL: out of memory. */
struct pbox_job_table *pbox_job_table_create(const struct pbox_declare *fixed, uint16_t workers);
/** Drop what only the declaration phase needs. */
void pbox_job_table_settle(struct pbox_job_table *jt, uint16_t workers);
void pbox_job_table_free(struct pbox_job_table *jt, uint16_t workers);
/** A worker's session has ended: forget what it declared. False: nobody has declared any of it. */
bool pbox_job_table_forget(struct pbox_job_table *jt, uint16_t worker, uint16_t workers);
/**
 * Take one declared tensor of one worker. 0; or -EEXIST with @p err when it differs from what
 * was declared before (MISMATCH, text names both).
 */
int pbox_job_table_declare(struct pbox_job_table *jt, uint16_t worker, uint32_t index,
	const struct pbox_tensor_entry *e, struct pbox_error *err);
/** The same for the fixed part of a page. */
int pbox_job_table_same(const struct pbox_job_table *jt, uint16_t worker,
	const struct pbox_declare *m, struct pbox_error *err);

/* ---- cookies and proofs (doc/protocol.md R4.2, R4.3, R4.5) ------------------------------ */

#define PBOX_COOKIE_KEY_LEN 16

/** SipHash-2-4 of address, port and time slot (8 s). @p slot is now / 8 s. */
uint64_t pbox_cookie(
	const uint8_t key[PBOX_COOKIE_KEY_LEN], const struct pbox_peer *peer, uint64_t slot);
/** Of this slot or the one before. */
bool pbox_cookie_good(const uint8_t key[PBOX_COOKIE_KEY_LEN], const struct pbox_peer *peer,
	uint64_t slot, uint64_t cookie);

/**
 * HMAC-SHA-256(secret, prefix ‖ payload with the 32 bytes at @p at zeroed).
 * @p payload is not changed.
 */
void pbox_proof(uint8_t out[PBOX_PROOF_LEN], const void *secret, size_t secret_len,
	const char *prefix, const void *payload, size_t len, size_t at);
/** Constant-time comparison of the proof that stands in @p payload. */
bool pbox_proof_good(const void *secret, size_t secret_len, const char *prefix, const void *payload,
	size_t len, size_t at);

#endif /* PBOX_JOB_H */
