/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef CONTROL_PRIV_H
#define CONTROL_PRIV_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include <pbox_registrar_operator.h>
#include <pbox_registrar_view.h>

#include "pbox_control.h"
#include "commands.h"
#include "snapshot.h"

#define NS_PER_MS  UINT64_C(1000000)
#define ONE_SECOND UINT64_C(1000000000)

/* clang-format off */
#define PORT_VALUES(X) \
	X(PORT_RX_PACKETS, COUNTER, rx_packets, "packets", "packets that the device received") \
	X(PORT_RX_BYTES, COUNTER, rx_bytes, "bytes", "bytes of these packets") \
	X(PORT_TX_PACKETS, COUNTER, tx_packets, "packets", "packets that the device sent") \
	X(PORT_TX_BYTES, COUNTER, tx_bytes, "bytes", "bytes of these packets") \
	X(PORT_RX_MISSED, COUNTER, rx_missed, "packets", "lost: the data cores did not fetch them in time") \
	X(PORT_RX_ERRORS, COUNTER, rx_errors, "packets", "received damaged") \
	X(PORT_RX_NO_MBUF, COUNTER, rx_no_mbuf, "packets", "lost: no packet buffer") \
	X(PORT_TX_ERRORS, COUNTER, tx_errors, "packets", "not sent by the device") \
	X(PORT_LINK, GAUGE, link, "", "1 when the link is up")
/* clang-format on */
enum port_stat { PORT_VALUES(PBOX_STAT_SYMBOL) PORT_STATS };
extern const struct pbox_stat_def control_port_stat_defs[PORT_STATS];

/* What the watch saw the last time. */
struct watch {
	uint64_t at, line_at;
	uint64_t loops[PBOX_PORT_CORES];
	uint64_t rx, rx_bytes, tx_bytes, rounds, drops; /* at the last line */
	uint64_t datagrams, partial;                    /* when checksums were last judged */
	bool stuck[PBOX_PORT_CORES], reported_partial, reported_truncated, reported_copied,
		reported_handoff;
};

/* Of a port: what is wrong with its address or its MTU (addresses.c). */
struct address {
	char kernel_if[PBOX_PORT_IFNAME]; /* the kernel has the address there; "": it has not */
	uint64_t claimed_at;              /* another host claimed it; 0: never */
	uint8_t mac[6];                   /* that one's */
	uint16_t mtu;                     /* of the interface, where it is too small; else 0 */
};

/* What was reported to the service manager (service.c). */
struct service {
	bool ready, stopping;
	uint64_t look_at, status_at, sign_ns; /* sign: the last one of life */
	uint64_t turns[PBOX_PORT_CORES];      /* of the data cores then */
	char status[128];
};

/* What had come when, and has been read (listen.c). */
struct listening {
	uint64_t came_ns; /* all until then is being read; */
	unsigned phase;   /* how far that is */
	uint64_t since_ns;
	uint32_t turns[PBOX_PORT_CORES];
	/* datagrams of sessions that must have been taken of each core */
	uint64_t until[PBOX_PORT_CORES];
};

/* What pbox-agent says of the fleet (agent.c); times are those of pbox_dp_now(). */
struct agent_said {
	uint64_t said_ns, until_ns; /* 0: nothing yet */
	bool wrong, harmful;
	char text[200], next[160];
};

struct pbox_uplinks;
struct rte_mbuf;

struct pbox_control {
	struct pbox_control_conf conf;
	struct pbox_registrar *registrar;
	struct pbox_stats *stats;
	uint64_t stat[PBOX_CT_STATS], registrar_stat[PBOX_RS_STATS];
	uint64_t port_stat[RTE_MAX_ETHPORTS][PORT_STATS];
	pthread_mutex_t lock; /* registrar: this thread and telemetry */
	pthread_t thread;
	_Atomic bool stop;
	struct {
		pthread_t thread;
		bool started;
		_Atomic bool quit;
		sem_t wanted;
	} reload;
	uint64_t now_ns, tick_at;
	struct listening listening;
	struct watch watch;
	struct address address[RTE_MAX_ETHPORTS];
	uint64_t conflicts[PBOX_PORT_CORES], probed_at;
	struct service service;
	struct snapshots snapshots;
	struct health *health;
	struct pbox_uplinks *uplinks; /* uplink.c; NULL: this is no rack */
	uint64_t uplinks_due;
	struct { /* rack_waits.c: which job is asked, and which comes next */
		struct pbox_why *why;
		uint64_t at, asked_begun;
		unsigned next, asked_id;
	} rack_waits;
	struct agent_said agent;
	struct commands commands;
	uint64_t started_ns;
	bool stop_when_drained;

	/* the clean stop */
	unsigned left_sent; /* times that LEFT was sent to all workers */
	uint64_t stop_began, left_at;
	bool closing;
};

/* How long the control thread sleeps after a turn without work. Pure. */
struct control_rest {
	unsigned empty;    /* such turns before it, in a row */
	bool busy;         /* it looks for what nobody calls it for */
	uint64_t quiet_ns; /* since the last turn with work */
	uint64_t due_ns;   /* until it has something to do by itself */
};
uint64_t control_rest_ns(const struct control_rest *r);

static inline void
tally(struct pbox_control *c, enum pbox_control_stat what)
{
	pbox_stat_add(&c->stat[what], 1);
}

/* registry.c: the registrar's ops */
extern const struct pbox_registrar_ops control_registrar_ops;
/* uplink.c: of a rack's box; nothing, of others */
int uplink_start(struct pbox_control *c, struct pbox_error *err);
void uplink_stop(struct pbox_control *c);
/* How many sums went up, or came down. */
unsigned uplink_step(struct pbox_control *c);
/* True: it was for an uplink. */
bool uplink_packet(struct pbox_control *c, const struct rte_mbuf *m);
/* Something goes on: rest until it may go on, and not longer. */
bool uplink_rest(struct pbox_control *c);
int uplink_join(void *ctx, const struct pbox_registrar_uplink *run, unsigned *window,
	struct pbox_error *err);
void uplink_begin(void *ctx, const struct pbox_job *job, const uint8_t *run);
void uplink_end(void *ctx, const struct pbox_job *job);
int uplink_restore(void *ctx, const struct pbox_job *job, struct pbox_table *t, bool restoring);
void uplink_restored(void *ctx, const struct pbox_job *job, const struct pbox_table *t);
void uplink_restore_cancel(void *ctx, const struct pbox_job *job, uint32_t table);
void uplink_restore_text(
	void *ctx, const struct pbox_job *job, uint32_t table, char *text, size_t cap);
/* reload.c */
int reload_start(struct pbox_control *c, struct pbox_error *err);
/* false: it has not come back in time: what it reads into must stay. */
bool reload_stop(struct pbox_control *c);
/* rx.c */
unsigned control_rx(struct pbox_control *c);
/* listen.c: each step, before control_rx(); and after it */
void control_listen(struct pbox_control *c);
void control_listened(struct pbox_control *c);
/* watch.c: every second */
void control_watch(struct pbox_control *c);
/* addresses.c: every second, from there */
void control_watch_addresses(struct pbox_control *c);
/* Another host has claimed the address lately. */
bool control_claimed(const struct pbox_control *c, unsigned port);
/* service.c: often; and when the stop begins */
void service_step(struct pbox_control *c);
void service_stopping(struct pbox_control *c);
/* drain.c: true when the cores may stop */
bool control_drained(struct pbox_control *c);
/* stats.c */
int stats_register(struct pbox_control *c, struct pbox_error *err);
void control_port_stats_update(struct pbox_control *c);
/* telemetry.c */
void telemetry_start(struct pbox_control *c);
/* After the last command; false: one still works after some seconds. */
bool telemetry_stop(void);
/* The control with its lock, or NULL when it has gone; both are for telemetry_unlock(). */
struct pbox_control *telemetry_lock(void);
void telemetry_unlock(struct pbox_control *c);
/* Without its lock, for what waits; or NULL. telemetry_release() in any case. */
struct pbox_control *telemetry_hold(void);
void telemetry_release(void);
/* telemetry_why.c: fills d, a dictionary; waits for the data cores, two seconds at most */
struct rte_tel_data;
void control_why(struct pbox_control *c, const char *name, struct rte_tel_data *d);

#endif /* CONTROL_PRIV_H */
