/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef CLIENT_IMPL_H
#define CLIENT_IMPL_H

/**
 * @file
 * Inside of libpbox-client; not installed. The protocol is lib/worker's; here are the thread that drives it, the
 * transport, and calls of other threads.
 *
 * Who may touch what:
 *   - the *progress thread* alone (open, before it starts): the worker and the transport. With several threads (lanes.c) that
 *     is the first one. It has the session, commands, and a lane like each of the others; the lanes' locks say who may touch the worker;
 *   - *under client.lock*: lists of commands and submitted operations, handles, done flags, what is published, the
 *     list of tables;
 *   - *fixed after open or declare*: configuration, names, sizes.
 * Everything else reaches the progress thread as a command (struct cmd).
 */

#include <assert.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <pbox_wire.h>
#include <pbox_worker.h>

#include "pbox_client.h"
#include "pbox_client_transport.h"

#define NS_PER_US 1000ull
#define NS_PER_MS 1000000ull
#define NS_PER_S  1000000000ull

#define MAX_FRAME 65507 /* largest UDP payload */

static inline uint64_t
client_clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

/* ---- operations, tables ---------------------------------------------------------------------- */

struct op {
	pbox_client_handle handle;
	bool done;                                             /* lock */
	unsigned waiters;                                      /* lock */
	void (*notify)(void *ctx, int code, const char *text); /* lock until done */
	void *notify_ctx;
	struct pbox_worker_op w;
};

static inline struct op *
op_of(struct pbox_worker_op *w)
{
	return (struct op *)(void *)((char *)w - offsetof(struct op, w));
}

struct table {
	struct pbox_worker_table *t;
	struct pbox_worker_table_info info;
	bool pushed[]; /* by tensor: the program has pushed it; lock */
};

struct handle {
	struct op *op;
	uint32_t generation;
	uint32_t next; /* free list: index + 1 */
};

/** Memory that the caller gave back while an operation, maybe of this memory, was in flight. */
struct freed {
	struct freed *next;
	void *memory;
};

/* ---- commands -------------------------------------------------------------------------------- */

/** Runs in the progress thread; the issuer waits for done, or does not free it until it is. */
struct cmd {
	struct cmd *next;
	void (*run)(struct pbox_client *c, struct cmd *cmd);
	bool done; /* lock */
	bool open; /* not done when run returns: its answer sets done */
};

/** A control request of another thread. */
struct call {
	struct cmd cmd; /* done: it is answered, or never will be */
	struct pbox_worker_request request;
};

/** A declaration, and its last copy for the caller's thread. */
struct declare {
	struct cmd cmd;
	struct pbox_worker_declaration d, seen;
	bool ended; /* lock */
};

/* ---- threads --------------------------------------------------------------------------------- */

#define MAX_LANES PBOX_WORKER_LANES

/** A thread's part of the worker (lib/worker has the rules), its transport and its port. The first one's thread is the progress
 * thread. Nothing is locked while there is one. */
struct lane {
	struct pbox_client *c;
	unsigned number;
	struct pbox_client_transport *t; /* lock, but for waiting */
	struct pbox_worker_ops port;     /* lock */
	struct sockaddr_in *from;        /* endpoints of the lane, which t is aimed at; lock */
	unsigned n;                      /* of them; lock */
	bool moved;                      /* t is still aimed at others; lock */
	pthread_mutex_t lock;
	pthread_t thread;
	atomic_bool kicked; /* the thread has been woken and not yet looked */
	atomic_bool ending;
};

/* ---- the client ------------------------------------------------------------------------------ */

struct pbox_client {
	/* fixed after open */
	struct pbox_client_conf conf;
	struct sockaddr_in box; /* the first one */
	struct sockaddr_in boxes[PBOX_WORKER_BOXES];
	unsigned n_boxes; /* control endpoint */
	char host[256];

	/* progress thread (open uses them before it starts) */
	struct pbox_client_transport *t; /* of the first lane */
	struct lane lane[MAX_LANES];
	unsigned lanes;      /* fixed after open; 1: one thread */
	unsigned lanes_made; /* that have a lock and, but for the first one, a transport */
	bool together;       /* the progress thread has the locks of all lanes */
	struct pbox_worker *w;
	struct declare *declare; /* under way */
	uint64_t published_at, spin_until;
	bool ending; /* the thread leaves its loop */
	pthread_t thread;

	pthread_mutex_t declare_lock; /* one declare at a time; taken before lock */
	pthread_mutex_t lock;
	pthread_cond_t cond;
	struct cmd *cmds, **cmds_tail;
	struct pbox_worker_op *submitted, **submitted_tail;
	atomic_bool kicked; /* the thread has been woken and not yet looked */
	unsigned users;     /* calls inside */
	bool closing;
	struct pbox_client_error fatal; /* of the lost session; code 0: it is not lost */
	struct handle *handle;          /* of handles */
	uint32_t handles, free_handle;  /* free_handle: index + 1, 0: none */
	struct table **table;           /* those declared, by number */
	uint32_t tables, tables_cap;
	struct pbox_client_stats stats;
	struct freed *freed;
	struct pbox_member_entry
		heard; /* what the box said last of another worker; host "": nothing */
	char circle
		[240]; /* that worker waited for this one then, as the box says it; "": it did not */
};

/* call.c */
int client_enter(struct pbox_client *c, struct pbox_client_error *err);
/** The same of a call that writes @p text, which it makes empty. */
int client_enter_text(struct pbox_client *c, char *text, size_t cap, struct pbox_client_error *err);
void client_leave(struct pbox_client *c);
/** Deadline in ns for a time-out in ms; 0 means the configuration's. */
uint64_t client_deadline(const struct pbox_client *c, unsigned timeout_ms);
/** Wait on the condition variable until @p deadline; false when it has passed. Lock held. */
bool client_sleep(struct pbox_client *c, uint64_t deadline);
struct table *client_table(struct pbox_client *c, uint32_t table);
/** Wake the progress thread. */
void cmd_kick(struct pbox_client *c);
void cmd_issue(struct pbox_client *c, struct cmd *cmd);
void cmd_call(struct pbox_client *c, struct cmd *cmd); /* issue and wait */

/** client.c: this worker's nodes, which the box may change at any time (R15.10); any thread but the progress thread. */
unsigned client_nodes(struct pbox_client *c, uint32_t round, struct pbox_node *node);

/* status.c */
/** The round of the next push to the table; waits while a restarted box does not know it, no longer than time-outs are. */
uint32_t client_next_round(struct pbox_client *c, struct table *t);

/* handle.c; lock held, but for the last one */
int handle_give(struct pbox_client *c, struct op *op);
struct op *handle_find(struct pbox_client *c, pbox_client_handle handle);
void handle_take(struct pbox_client *c, struct op *op);
/** Release the handle and the memory of an operation that is done. */
void handle_free_op(struct pbox_client *c, struct op *op);

/* progress.c */
/** Drive the worker until it is open, or has failed: the thread of open. */
int progress_open(struct pbox_client *c, struct pbox_client_error *err);
void *progress_main(void *arg);
/** All locks are held. */
void progress_stats(const struct pbox_client *c, struct pbox_client_stats *s);
/** Give the worker what was submitted: the progress thread. */
void progress_submit(struct pbox_client *c);

/** Frames that have come, for the first lane. Its lock is held. */
void progress_take(struct pbox_client *c, const struct pbox_client_rx *d, unsigned n, uint64_t now);
/** What is due. The first lane's lock is held. */
uint64_t progress_tick(struct pbox_client *c, uint64_t now, uint64_t drained);

/* lanes.c: several threads. Without them all but open and close do nothing. */
/** The worker is open: cut it. The threads begin. */
int lanes_open(struct pbox_client *c, struct pbox_client_error *err);
/** They end; the progress thread has. */
void lanes_close(struct pbox_client *c);
/** The first lane's lock. */
void lanes_lock(struct pbox_client *c);
void lanes_unlock(struct pbox_client *c);
/** All locks; the first one's is held already, or not. Other threads than the progress thread may do so too. */
void lanes_lock_others(struct pbox_client *c, uint64_t now);
void lanes_unlock_others(struct pbox_client *c);
void lanes_lock_all(struct pbox_client *c);
void lanes_unlock_all(struct pbox_client *c);
/** Something is there for them, or due. */
void lanes_wake(struct pbox_client *c);
/** What leaves and comes by the transport of a lane. */
void lanes_port(struct lane *l);
/** A burst, and errors that the network has reported. Its lock is held. */
unsigned lanes_receive(struct lane *l, const struct pbox_client_rx **d);

/* request.c */
/** A request, and wait until it is answered or @p deadline. 0, DEADLINE without a text, or a failure with one. */
int request_call(struct pbox_client *c, uint8_t type, uint8_t want, const void *payload,
	size_t length, void *answer, size_t cap, size_t *answer_len, const char *what,
	uint64_t deadline, struct pbox_client_error *err);
/** The same, of box @p box - 1 alone (0: as request_call() has it); one that is not there is a failure at once. */
int request_call_at(struct pbox_client *c, unsigned box, uint8_t type, uint8_t want,
	const void *payload, size_t length, void *answer, size_t cap, size_t *answer_len,
	const char *what, uint64_t deadline, struct pbox_client_error *err);

/* work.c */
struct pbox_worker_question;
/** A list of questions that have ended. Lock held. */
void work_publish(struct pbox_worker_question *q);

/* norm.c */
struct pbox_worker_norm;
void norm_publish(struct pbox_worker_norm *q);

/* declare.c */
struct declare_refusal {
	struct cmd cmd;
	char text[512];
};
/** Why a declaration asks again; empty: none does. */
void declare_refusal(struct pbox_client *c, struct declare_refusal *r);

/* transport.c, transport_udp.c */
extern const struct pbox_client_transport_ops transport_udp;
/** By name (NULL or empty: udp), loaded if need be; NULL with @p err. */
const struct pbox_client_transport_ops *transport_find(
	const char *name, struct pbox_client_error *err);
/** Frames of @p mtu that a receive buffer of @p rcvbuf bytes (as the kernel counts) holds. */
uint32_t transport_window(size_t rcvbuf, unsigned mtu);

/* waiting.c: how long a wait goes on, and for which worker */
struct waiting {
	uint64_t began, deadline; /* ns; the deadline moves while the missing worker lives, */
	uint64_t last;            /* up to here */
	uint64_t next_ask, timeout;
	uint64_t refused; /* ns: the missing worker is known to be; 0: it is not */
	uint64_t moved;   /* bytes of the operation that were through when last looked */
	bool exact;       /* the call has its own time-out */
};
void waiting_begin(const struct pbox_client *c, struct waiting *w, unsigned timeout_ms);
/** To be called at next_ask. True: the missing worker has left @p left_ms ago or more, or was refused: the wait is in vain. */
bool waiting_ask(struct pbox_client *c, struct waiting *w, const struct pbox_worker_wait *f,
	unsigned left_ms);
/** Of an operation of so many bytes some are left now: what has gone since the last look extends the time-out of the configuration, by
 * as much in all as all of them take at 1 Mbit/s. */
void waiting_progress(struct waiting *w, uint64_t bytes, uint64_t left, uint64_t now);
double waiting_seconds(const struct waiting *w);
/** The box has the worker, and has not heard it for seconds; @p text names it then. Any thread but the progress thread. */
bool waiting_is_silent(struct pbox_client *c, unsigned worker, char *text, size_t cap);
/** Append what the box knows of a worker; any thread but the progress thread. */
void waiting_member_text(struct pbox_client *c, unsigned worker, char *text, size_t cap);

struct waiting_why {
	struct cmd cmd;
	pbox_client_handle handle; /* 0: the oldest operation */
	bool session;              /* not an operation */
	char text[512];            /* empty: it waits for nothing */
	struct pbox_worker_wait on;
};
/** What an operation or the session waits for; the rest of @p w is zero. */
void waiting_why(struct pbox_client *c, struct waiting_why *w);
/** Append what the box has found of sums that are not finite (R6.16). False: nothing, or it does not answer. Any thread but the
 * progress thread. */
bool waiting_not_finite(struct pbox_client *c, char *text, size_t cap);
/** DEADLINE, with a text that says what the session waits for. */
int waiting_no_answer(struct pbox_client *c, const char *what, struct pbox_client_error *err);

#endif /* CLIENT_IMPL_H */
