/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef AGENT_H
#define AGENT_H

/*
 * pbox-agent: a process beside each box of a fleet. It registers its box at etcd under a lease, one of them writes the map,
 * and each makes its box do what the map says. One thread; every wait has an end; times are of CLOCK_BOOTTIME, which
 * nobody sets.
 */

#include <curl/curl.h>

#include <pbox_balance.h>
#include <pbox_fleet.h>
#include <pbox_fleet_set.h>
#include <pbox_options.h>

#define AGENT_MS UINT64_C(1000000)
#define AGENT_S  (1000 * AGENT_MS)
/* Jobs of a box: as many as it can have. */
#define AGENT_JOBS PBOX_OPTIONS_JOBS

/* ---- etcd --------------------------------------------------------------------------------------- */

#define ETCD_BODY (4 * 1024 * 1024) /* longest answer, bytes */

/* What came, and what curl says of it. */
struct etcd_body {
	char *text;
	size_t len;
};

struct etcd {
	const struct pbox_cluster_options *conf;
	char url[PBOX_OPTIONS_ETCDS][PBOX_OPTIONS_URL];
	unsigned n, at; /* endpoints; the one that answered last */
	CURLM *multi;
	char *token;         /* NULL: none yet, or no user */
	bool no_users;       /* it has none: said once */
	uint64_t attempt_ns; /* for one endpoint to answer */

	struct {
		CURL *curl; /* NULL: there is none */
		struct curl_slist *head;
		char *request, error[CURL_ERROR_SIZE];
		struct etcd_body body;
		unsigned at;
		uint64_t again_ns, pause_ns; /* when it may be opened again */
		bool created, dirty;         /* dirty: something has changed since the last look */
	} watch;
};

/* ---- transfer.c --------------------------------------------------------------------------------- */

uint64_t agent_now(void); /* CLOCK_BOOTTIME, ns */
/* A transfer with what all have: endpoint, TLS, token. */
CURL *etcd_transfer(struct etcd *e, unsigned at, const char *path, const char *request,
	struct curl_slist **head, char error[CURL_ERROR_SIZE]);
size_t etcd_take(char *data, size_t size, size_t n, void *body);

/* ---- etcd.c ------------------------------------------------------------------------------------- */

int etcd_open(struct etcd *e, const struct pbox_cluster_options *conf, struct pbox_error *err);
void etcd_close(struct etcd *e);
/* A request, to the endpoint that answered last, then to each of the others once. @p body is taken, NULL is -ENOMEM. 0 and
 * @p answer, to be freed; or as pbox_etcd_error(), -EAGAIN when none answers. @p err names the endpoint. */
int etcd_ask(
	struct etcd *e, const char *path, json_t *body, json_t **answer, struct pbox_error *err);
/* To one endpoint alone. */
int etcd_ask_at(struct etcd *e, unsigned at, const char *path, json_t *body, json_t **answer,
	struct pbox_error *err);
/* Wait for news of any transfer until then, and look at the watch. */
void etcd_wait(struct etcd *e, uint64_t until_ns);

/* ---- watch.c ------------------------------------------------------------------------------------ */

/* Keep a watch of the prefix open, from a revision on. */
void watch_step(struct etcd *e, const char *prefix, int64_t from);
/* Something has come for it: lines, or its end. */
void watch_look(struct etcd *e, bool ended, CURLcode code);
void watch_stop(struct etcd *e, uint64_t pause_ns);

/* ---- ask.c: the questions of an agent ----------------------------------------------------------- */

/* The endpoints of etcd, and whether it takes what the agent does: lines to standard output. Exit status. */
int ask_check(struct etcd *e, const struct pbox_options *opt);
/* Is the list of the configuration that of the map? -EINVAL: @p err has the first entry that differs. */
int ask_list(
	const struct pbox_fleet_map *map, const struct pbox_options *opt, struct pbox_error *err);
/* sets NULL: they are not wanted */
int ask_view(struct etcd *e, const char *fleet, uint64_t lease, struct pbox_fleet_view *view,
	struct pbox_fleet_sets *sets, struct pbox_error *err);
int ask_grant(struct etcd *e, uint64_t ttl_s, uint64_t *lease, struct pbox_error *err);
/* -ENOENT: it has ended. */
int ask_keep(struct etcd *e, uint64_t lease, struct pbox_error *err);
/* 1: it is so now; 0: a condition does not hold. */
int ask_put(struct etcd *e, const struct pbox_etcd_compare *compare, unsigned n, const char *key,
	char *value, uint64_t lease, struct pbox_error *err);
int ask_delete(struct etcd *e, const char *key, struct pbox_error *err);
/* Has etcd an alarm (NOSPACE, CORRUPT)? Then -ENOSPC or -EIO. */
int ask_alarm(struct etcd *e, struct pbox_error *err);

/* ---- box.c: the daemon, through telemetry -------------------------------------------------------- */

/* A job that runs there. */
struct box_job {
	char name[PBOX_FLEET_NAME];
	unsigned number, tables;
	uint32_t round;    /* the newest */
	uint32_t out;      /* bit by box: it goes on without it */
	unsigned decider;  /* the box that decides, as far as it knows */
	uint64_t run;      /* alike at all boxes */
	uint64_t begun_ns; /* its run, to a second or so */
};

struct box {
	const char *prefix;
	int fd;               /* -1: not connected */
	uint64_t answered_ns; /* 0: never */
	unsigned n, number;   /* boxes of its list, and which of them it is */
	char address[PBOX_FLEET_BOXES][PBOX_FLEET_ADDRESS], release[32];
	unsigned n_jobs;
	struct box_job job[AGENT_JOBS];
};

/* The answer of a command, to be freed; -ENOENT: no box is there; -ENOTSUP: it does not know the command; -EPROTO: it
 * answers with an error, which is in @p err. */
int box_ask(struct box *b, const char *command, json_t **answer, struct pbox_error *err);
/* Its list, and its jobs. */
int box_look(struct box *b, struct pbox_error *err);
/* A text of an answer, whole; "" where there is none. */
void box_text(const json_t *j, const char *name, char *out, size_t size);
bool box_same_run(const struct box_job *x, const struct box_job *y);
/* Does it run there still? */
bool box_has_run(const struct box *b, const struct box_job *job);
void box_close(struct box *b);

/* ---- agent.c -------------------------------------------------------------------------------------- */

/* What a person should know of the fleet; the worst alone is kept. */
struct agent_finding {
	int weight; /* 0: nothing */
	bool harmful;
	char text[200], next[160];
};

/* Sums since a worker began: rounds, their seconds, the squares of these, and what programs waited for. */
struct load_sums {
	double rounds, seconds, squares, exposed;
};

/* A job whose boxes are compared. */
struct load_job {
	struct box_job job;
	struct pbox_balance *room; /* NULL: nothing has been measured yet */
	unsigned boxes, workers;
	unsigned next;          /* worker that is asked for next */
	struct load_sums *last; /* of each worker: all rounds, then those of each box */
	double *from; /* of each worker: rounds before this one do not count; negative: nothing is known */
	uint64_t quiet_ns; /* chunks move until then */
	uint64_t elements[PBOX_FLEET_BOXES];
	uint32_t weight[PBOX_FLEET_BOXES]; /* of the last action */
	uint64_t pending;     /* history.serial of the map that they are not in yet; 0: they are */
	unsigned wait, pause; /* actions that are left out; after the next one that moves nothing */
	const char *left_for; /* why nothing is done, and which boxes were named for that */
	uint32_t left;
	char text[PBOX_BALANCE_TEXT];       /* the last action; "": there was none */
	char refused[200];                  /* why its chunks cannot move; "": they can */
	char said[PBOX_BALANCE_TEXT + 300]; /* what the log has last */
};

/* A part of a set that this box takes (sets.c). */
struct agent_part {
	char job[PBOX_FLEET_NAME];
	int64_t id; /* 0: none */
	uint32_t round;
	unsigned tables;
	json_int_t failed; /* how many had failed before */
};

struct agent {
	const struct pbox_options *opt;
	const struct pbox_cluster_options *conf;
	const char *fleet;
	char prefix[PBOX_FLEET_KEY]; /* of its keys */
	uint64_t ttl_ns;
	struct etcd etcd;
	struct box box;
	struct pbox_random random;

	uint64_t lease, sent_ns; /* when the keep-alive was sent that etcd took last */
	uint64_t keep_ns, box_ns, look_ns, retry_ns, pause_ns, state_ns, report_ns;
	struct pbox_fleet_view view;
	struct pbox_fleet_sets sets;
	struct agent_part part;
	struct pbox_fleet_history history;
	bool seen;       /* the view is one */
	bool registered; /* with this lease */
	int box_bad;     /* errno of the last look at the box */
	uint64_t view_ns;
	uint64_t here_ns[PBOX_FLEET_BOXES], away_ns[PBOX_FLEET_BOXES], office_ns;
	uint64_t bad_ns; /* since when etcd gives no answer; 0: it does */
	int bad;         /* errno */
	struct pbox_error why, alarm, taken, wrong, unable, lost; /* code 0: none */
	int64_t wall_ns;             /* CLOCK_REALTIME less CLOCK_BOOTTIME when last looked */
	uint64_t set_ns, set_back_s; /* when the clock was set back, and how far */
	/* Jobs that the box has been made to share out as the map says: of which (history.serial), run and tables. */
	unsigned n_done;
	struct {
		struct box_job job;
		uint64_t serial, tried_ns,
			bad_ns; /* bad_ns: since when it cannot be done; 0: it is done */
		uint32_t back;  /* boxes that were taken in again with it */
	} done[AGENT_JOBS];
	/* Jobs in which this box decides: whose boxes are compared. */
	unsigned n_load;
	struct load_job load[AGENT_JOBS];
	uint64_t load_ns;
	uint64_t lost_ns; /* when boxes that are dead are looked at again */
	/* Bit by box: a person has drained it, so a person's word takes it in again where jobs went on without it. */
	uint32_t drained;
	uint64_t looked;  /* history.serial of the map before which the box was looked at */
	uint64_t applied; /* history.serial of the map that the box has been made to follow */
	struct agent_finding finding, reported;
};

/* The list of its box, as lib/fleet takes it. */
#define AGENT_LIST(a) ((const char(*)[PBOX_FLEET_ADDRESS])(a)->box.address)

/* Until a signal asks it to end. */
int agent_run(struct agent *a, volatile const int *quit);
void agent_blame(struct agent *a, int weight, bool harmful, const char *next, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
/* Holds the lease now, as far as this agent knows. */
bool agent_holds(const struct agent *a, uint64_t now);
bool agent_decides(const struct agent *a);

/* ---- state.c ------------------------------------------------------------------------------------- */

/* Where pbox-ctl cluster looks. */
void state_path(const char *prefix, char *path, size_t size);
void state_write(struct agent *a, uint64_t now);
/* To the daemon, for its health. */
void state_report(struct agent *a, uint64_t now);

/* ---- apply.c ------------------------------------------------------------------------------------- */

/* Make the box do what the map says. */
void apply_map(struct agent *a);
/* Boxes that the job goes on without (a bit for each) and that are to be taken in again: a person has drained each of them, which lost nothing, and
 * has said since that it serves; and it has a lease. */
uint32_t apply_back(const struct agent *a, const struct box_job *job);
/* Does its box decide in that job (R16.14)? */
bool apply_decides(const struct agent *a, const struct box_job *job);
/* Is it so for this job? @p refused_ns: since when the box refuses it, 0: it does not. */
bool apply_done(const struct agent *a, const struct box_job *job, uint64_t *refused_ns);
/* These weights, now; @p moved: chunks. */
int apply_weights(struct agent *a, const struct box_job *job, const uint32_t *weight,
	int64_t *moved, struct pbox_error *err);

/* ---- take.c -------------------------------------------------------------------------------------- */

/* Has that box been dead for so long that jobs go on without it? */
bool take_is_lost(const struct agent *a, unsigned box, uint64_t now);
/* The box of this agent takes the place of one that decided and is lost (R16.17). True: the map has changed by that, or another one has changed it. */
bool take_step(struct agent *a, uint64_t now);

/* ---- sets.c -------------------------------------------------------------------------------------- */

/* Sets of snapshots go on; @p decides: this agent decides for the fleet. When to look again; UINT64_MAX: when something has changed. */
uint64_t sets_step(struct agent *a, bool decides, uint64_t now);

/* ---- set_command.c -------------------------------------------------------------------------------- */

/* A person's: snapshot JOB, restore JOB [ROUND], withdraw JOB, sets. Exit status. */
int set_command(struct etcd *e, const struct pbox_options *opt, int argc, char **argv);

/* ---- measure.c ----------------------------------------------------------------------------------- */

/* Ask the box what workers of a job have measured. 1: all of them were asked; 0: the others in the next turn. */
int measure_job(struct agent *a, struct load_job *j, struct pbox_error *err);
/* Chunks move from now on. */
void measure_moved(struct load_job *j);
void measure_free(struct load_job *j);

/* ---- load.c -------------------------------------------------------------------------------------- */

/* Look which box is slow, and move load away from it; does nothing between two looks. */
void load_step(struct agent *a);
/* A box that is slow, as a sentence; false: none is. */
bool load_finding(const struct agent *a, char *text, size_t size);
/* Who decides on a job's weights, in a word or two. */
const char *load_rule(const struct agent *a, const struct load_job *j);
json_t *load_state(const struct agent *a);

/* ---- command.c ----------------------------------------------------------------------------------- */

/* drain, serve, weigh, balance: a change of the map by a person. Exit status. */
int command_run(struct etcd *e, const struct pbox_options *opt, int argc, char **argv);

#endif /* AGENT_H */
