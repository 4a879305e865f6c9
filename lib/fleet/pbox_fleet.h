/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_FLEET_H
#define PBOX_FLEET_H

/**
 * @file
 * A fleet of boxes as etcd has it: the keys, the map, and what follows from them. Pure: no socket, no clock, no thread
 * of its own; any thread, nothing is shared. Times are ns of a clock that is never set (CLOCK_BOOTTIME).
 *
 * Keys of fleet F, values are JSON:
 *
 *     /pbox/F/boxes/N         box N is here: address, release, its list of boxes; under the lease of its agent
 *     /pbox/F/election/HEX    a candidate, by its lease; the one with the lowest create revision decides
 *     /pbox/F/map             which boxes serve, the weights of jobs, and which box decides in a job when another one did; written by compare-and-swap
 *
 * Errors return -errno and fill @p err, which may be NULL: -EPROTO: what etcd says makes no sense; -EINVAL: what a person
 * wrote; -ENOMEM.
 */

#include <jansson.h>

#include <pbox_base.h>

#define PBOX_FLEET_BOXES   16
#define PBOX_FLEET_JOBS    64
#define PBOX_FLEET_NAME    64 /**< of a fleet or a job, with its NUL */
#define PBOX_FLEET_ADDRESS 32 /**< "10.0.0.1:7269", with its NUL */
#define PBOX_FLEET_KEY     160
/** The weight of a box that a job says nothing of. */
#define PBOX_FLEET_FULL     1000
#define PBOX_FLEET_HEAVIEST 1000000
#define PBOX_FLEET_KEEP     UINT32_MAX /**< for pbox_fleet_map_balance(): as it is */

/** What a box is to do. */
enum pbox_fleet_state {
	PBOX_FLEET_SERVES,
	PBOX_FLEET_DRAINED, /**< an operator has taken it out: it has no chunks */
	PBOX_FLEET_GONE,    /**< its lease has ended: it has no chunks, and comes back by itself */
};
/** "serves", "drained", "gone". */
const char *pbox_fleet_state_name(enum pbox_fleet_state state);

struct pbox_fleet_job {
	char name[PBOX_FLEET_NAME];
	uint32_t weight[PBOX_FLEET_BOXES]; /**< of its bytes, by box; 0: none */
	bool balanced; /**< pbox-agent may change them; else a person has set them, and they stay */
};

/** In this run of a job that box decides (R16.14), or is about to: another one did, and is dead. */
struct pbox_fleet_decider {
	char job[PBOX_FLEET_NAME];
	uint64_t run;
	uint32_t box;
};

/** The value of the key map. Boxes have the numbers of their places in the list (R16.1). */
struct pbox_fleet_map {
	uint64_t epoch; /**< one more with each change; the first one is 1 */
	unsigned n_boxes, n_jobs;
	struct {
		char address[PBOX_FLEET_ADDRESS];
		enum pbox_fleet_state state;
	} box[PBOX_FLEET_BOXES];
	struct pbox_fleet_job job[PBOX_FLEET_JOBS];
	unsigned n_deciders; /**< of each job's name one at most, the oldest first */
	struct pbox_fleet_decider decider[PBOX_FLEET_JOBS];
	char why[256]; /**< the reason of the last change, a sentence */
};

/** Read a map; names and addresses that are too long, or a map without boxes, are -EPROTO. */
int pbox_fleet_map_read(
	const char *text, size_t len, struct pbox_fleet_map *map, struct pbox_error *err);
/** As JSON, to be freed; NULL: no memory. */
char *pbox_fleet_map_write(const struct pbox_fleet_map *map);
/** The share of a box of the bytes of a job: 0 unless it serves. */
uint32_t pbox_fleet_weight(const struct pbox_fleet_map *map, const char *job, unsigned box);
/** The first box that serves: it has the numbers of workers and runs. n_boxes: there is none. */
unsigned pbox_fleet_first(const struct pbox_fleet_map *map);
/** Set a box's state, for a person: counts the epoch and writes the reason. -EINVAL: no such box, it is so already, or
 * it is the last one that serves. */
int pbox_fleet_map_state(struct pbox_fleet_map *map, unsigned box, enum pbox_fleet_state state,
	struct pbox_error *err);
/** Set a job's weights, for a person, from "1000,500,0": one for each box, not all 0. They stay. */
int pbox_fleet_map_weights(
	struct pbox_fleet_map *map, const char *job, const char *weights, struct pbox_error *err);
/** A person leaves a job's weights to pbox-agent from now on. @p weights: to begin with; NULL: as they are. */
int pbox_fleet_map_leave(
	struct pbox_fleet_map *map, const char *job, const char *weights, struct pbox_error *err);
/** Set a job's weights as measurements say: counts the epoch. A box that does not serve keeps its own, and so does one with PBOX_FLEET_KEEP. @p why: the reason, cut where it is too long. Where the map has no
 * room for one more job, one of those goes that are not in @p names (@p n of them) and that no person has set. -EPERM: a person has set this
 * job's weights; -ENOSPC: no room. */
int pbox_fleet_map_balance(struct pbox_fleet_map *map, const char *job, const uint32_t *weight,
	const char *why, const char (*names)[PBOX_FLEET_NAME], unsigned n, struct pbox_error *err);
/** A job has even weights again: counts the epoch. -ENOENT: it has no others; -EPERM: a person has set them. */
int pbox_fleet_map_forget(
	struct pbox_fleet_map *map, const char *job, const char *why, struct pbox_error *err);
/** May pbox-agent change the weights of a job? */
bool pbox_fleet_balances(const struct pbox_fleet_map *map, const char *job);

/** Which box decides in this run of a job in place of another one; UINT_MAX: the map names none. */
unsigned pbox_fleet_map_decides(const struct pbox_fleet_map *map, const char *job, uint64_t run);
/** A box decides in this run, or is about to: counts the epoch. What was said of an earlier run of that name goes; where there is no room, the oldest.
 * @p why: the reason, a sentence. */
void pbox_fleet_map_take(
	struct pbox_fleet_map *map, const char *job, uint64_t run, unsigned box, const char *why);
/** It does not decide after all: counts the epoch. */
void pbox_fleet_map_untake(
	struct pbox_fleet_map *map, const char *job, uint64_t run, const char *why);
/** Those of a map as JSON, and back; false: it makes no sense. For map.c. */
json_t *pbox_fleet_deciders_write(const struct pbox_fleet_map *map);
bool pbox_fleet_deciders_read(json_t *deciders, struct pbox_fleet_map *map);
/** Those of an earlier map whose boxes are in the list of @p next, by their places there. */
void pbox_fleet_deciders_carry(const struct pbox_fleet_map *before, struct pbox_fleet_map *next);

/** A box as its agent has registered it. */
struct pbox_fleet_member {
	bool here;
	uint64_t lease;
	int64_t revision; /**< of the last change of the key */
	char address[PBOX_FLEET_ADDRESS], release[32];
	char list[PBOX_FLEET_BOXES *
		  (PBOX_FLEET_ADDRESS + 2)]; /**< "10.0.0.1:7269, 10.0.0.2:7269" */
};

/** All keys of a fleet at one revision of etcd. */
struct pbox_fleet_view {
	int64_t revision;
	int64_t last; /**< the highest revision of a key that is there */
	bool has_map;
	int64_t map_revision; /**< of its last change; 0: there is none */
	struct pbox_fleet_map map;
	struct pbox_fleet_member member[PBOX_FLEET_BOXES];
	uint64_t decides;      /**< lease of the one that decides; 0: nobody */
	int64_t decides_since; /**< create revision of its key */
	unsigned decides_box;  /**< UINT_MAX: it does not say */
	int64_t candidate; /**< create revision of the key of the lease asked for; 0: it has none */
};

/** Read the answer to pbox_etcd_range() of a fleet's keys. @p lease: whose candidate key is looked for. Keys of other
 * names are left alone. */
int pbox_fleet_view_read(const json_t *answer, const char *fleet, uint64_t lease,
	struct pbox_fleet_view *view, struct pbox_error *err);
/** The value of boxes/N, and of election/HEX, to be freed; NULL: no memory. */
char *pbox_fleet_member_write(const struct pbox_fleet_member *m);
char *pbox_fleet_candidate_write(unsigned box);

/** "/pbox/F/" and what follows. */
const char *pbox_fleet_key(char key[PBOX_FLEET_KEY], const char *fleet, const char *what);
const char *pbox_fleet_key_box(char key[PBOX_FLEET_KEY], const char *fleet, unsigned box);
const char *pbox_fleet_key_candidate(char key[PBOX_FLEET_KEY], const char *fleet, uint64_t lease);

/** What an agent has seen of the map since it was started; zeroed to begin with. */
struct pbox_fleet_history {
	uint64_t
		serial; /**< of the map seen last, which another one has another of, whatever their epochs; 0: none was seen */
	struct pbox_fleet_map map; /**< that map */
	int64_t revision;          /**< of etcd, with it */
	struct pbox_error fell;    /**< etcd has gone back, and how; code 0: never */
};
void pbox_fleet_history_note(struct pbox_fleet_history *h, const struct pbox_fleet_view *view);

/** Has the map these boxes, in this order? Weights and states go by place. */
bool pbox_fleet_same_list(const struct pbox_fleet_map *map,
	const char (*address)[PBOX_FLEET_ADDRESS], unsigned n_boxes);

#define PBOX_FLEET_DIFFERENCE 160
/** Where a list is another one than the map's, as a sentence: the first entry that differs. */
void pbox_fleet_list_text(const struct pbox_fleet_map *map,
	const char (*address)[PBOX_FLEET_ADDRESS], unsigned n_boxes,
	char text[PBOX_FLEET_DIFFERENCE]);

/** What the one that decides knows. */
struct pbox_fleet_facts {
	const struct pbox_fleet_view *view;
	const struct pbox_fleet_map
		*before;  /**< the map that it saw last; NULL: it has seen none */
	unsigned n_boxes; /**< the list of its own box */
	const char (*address)[PBOX_FLEET_ADDRESS];
	uint64_t here_ns
		[PBOX_FLEET_BOXES]; /**< since when each has had a lease, as far as is known; 0: it has none */
	uint64_t office_ns; /**< since when it decides */
	uint64_t ttl_ns;    /**< of leases */
	uint64_t now_ns;
};

/**
 * What is the next map? One change at a time: the first map, in which all serve; a box without a lease is gone; one that
 * is back, and has stayed for a lease, serves again. Who has just come to decide removes nobody for a lease. The last box
 * that serves stays. A new list of boxes replaces the map when all boxes that are there have it: states and weights of boxes that stay
 * go with their addresses, and a new box serves, with the mean weight of those that have some. Where etcd has lost the map it is again as
 * this agent saw it last.
 *
 * @return 1: @p next is to be written; 0: nothing is to be done; -EINVAL: the map's boxes are others, @p err has both.
 */
int pbox_fleet_decide(
	const struct pbox_fleet_facts *f, struct pbox_fleet_map *next, struct pbox_error *err);
/** When it may come to another result without a change of the view; UINT64_MAX: never. */
uint64_t pbox_fleet_decide_at(const struct pbox_fleet_facts *f);

/** Text of UTF-7, as telemetry has it (doc/telemetry.md), to UTF-8 with a NUL, cut to @p cap. What is no UTF-7 is copied. */
void pbox_fleet_utf7(const char *text, char *out, size_t cap);

/*
 * etcd's JSON gateway (v3): bodies of requests, to be freed with json_decref(); NULL: no memory.
 */

/** A key that must be as it is expected to be. */
struct pbox_etcd_compare {
	const char *key;
	bool create; /**< the create revision, else that of the last change */
	int64_t revision;
};
json_t *pbox_etcd_range(const char *prefix);
/** From a revision on. */
json_t *pbox_etcd_watch(const char *prefix, int64_t from);
json_t *pbox_etcd_lease(uint64_t lease, uint64_t ttl_s);
/** lease 0: none. */
json_t *pbox_etcd_put_if(const struct pbox_etcd_compare *compare, unsigned n, const char *key,
	const char *value, uint64_t lease);
json_t *pbox_etcd_delete(const char *key);

/** A key and its value of an entry of `kvs`, each with a NUL, to be freed; NULL: it is no Base64, or no memory. */
void pbox_etcd_entry(const json_t *kv, char **key, size_t *key_len, char **value, size_t *len);

/** A number of an answer: etcd writes those of 64 bits as strings, and leaves 0 out. */
int64_t pbox_etcd_number(const json_t *object, const char *name);
/**
 * The error in an answer, with what helps, where there is one: 0: there is none. -EACCES: user, password or rights;
 * -ENOSPC; -ENOENT: the lease; -EOPNOTSUPP: it has no users; -EAGAIN: no leader, or a member that does not serve: another one may; -ESTALE: the token must be got again;
 * -EPROTO: anything else.
 *
 * @param status  of HTTP
 */
int pbox_etcd_error(long status, const json_t *answer, const char *text, struct pbox_error *err);

/** Base64 (RFC 4648): of bytes, to be freed; NULL: no memory. */
char *pbox_base64(const void *bytes, size_t n);
/** And back: bytes with a NUL after them, to be freed; NULL: it is none, or no memory. */
char *pbox_unbase64(const char *text, size_t *n);

#endif /* PBOX_FLEET_H */
