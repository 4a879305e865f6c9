/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Counters of the registrar: their names and help. */

#include "pbox_registrar.h"

#define COUNTER(id, name, unit, help) [id] = {name, unit, help, PBOX_STAT_COUNTER}
#define GAUGE(id, name, unit, help)   [id] = {name, unit, help, PBOX_STAT_GAUGE}

const struct pbox_stat_def pbox_registrar_stat_defs[PBOX_RS_STATS] = {
	COUNTER(PBOX_RS_RX_FRAMES, "rx_frames", "frames", "control frames received"),
	COUNTER(PBOX_RS_RX_HELLO, "rx_hello", "frames", "HELLOs, answered with a cookie"),
	COUNTER(PBOX_RS_RX_JOIN, "rx_join", "frames", "JOINs with a good cookie"),
	COUNTER(PBOX_RS_RX_DECLARE, "rx_declare", "frames", "pages of table declarations"),
	COUNTER(PBOX_RS_RX_MAP, "rx_map", "frames", "requests for pages of a chunk map"),
	COUNTER(PBOX_RS_RX_SET, "rx_set", "frames", "hyper-parameter settings"),
	COUNTER(PBOX_RS_RX_STATUS, "rx_status", "frames", "status requests"),
	COUNTER(PBOX_RS_RX_LEAVE, "rx_leave", "frames", "sessions ended by their worker"),
	COUNTER(PBOX_RS_RX_WORK, "rx_work", "frames", "reports and questions of work by plan"),
	COUNTER(PBOX_RS_RX_TASK, "rx_task", "frames",
		"workers that ask for slots of others within a round, or say which they have not begun"),
	COUNTER(PBOX_RS_RX_BOXES, "rx_boxes", "frames", "questions which boxes a job is at"),
	COUNTER(PBOX_RS_RX_STATS, "rx_stats", "frames",
		"what workers measured of the boxes of a job"),
	COUNTER(PBOX_RS_RX_HOMES, "rx_homes", "frames",
		"workers that ask or say which box has which chunk"),
	COUNTER(PBOX_RS_RX_PING, "rx_ping", "frames", "pings of workers"),
	COUNTER(PBOX_RS_DROP_SESSION_UNKNOWN, "drop_session_unknown", "frames",
		"job or worker does not exist"),
	COUNTER(PBOX_RS_DROP_SESSION_TOKEN, "drop_session_token", "frames",
		"token is not that of the worker's session"),
	COUNTER(PBOX_RS_DROP_SESSION_INCARNATION, "drop_session_incarnation", "frames",
		"meant for an earlier start of the box"),
	COUNTER(PBOX_RS_DROP_AUTH, "drop_auth", "frames",
		"tag missing or wrong (or there, in a job without auth): forged, or replayed"),
	COUNTER(PBOX_RS_DROP_REPLAYED, "drop_replayed", "frames",
		"an old frame of a worker, from another address than its own"),
	COUNTER(PBOX_RS_DROP_UNPROVEN, "drop_unproven", "frames",
		"requests of a worker from an address that is new: it is asked to prove it"),
	COUNTER(PBOX_RS_DROP_MALFORMED, "drop_control_malformed", "frames",
		"payload too short or contradictory"),
	COUNTER(PBOX_RS_DROP_COOKIE, "drop_cookie", "frames", "JOINs with a wrong or old cookie"),
	COUNTER(PBOX_RS_DROP_TYPE, "drop_type", "frames", "not a type that workers send here"),
	COUNTER(PBOX_RS_REFUSED, "refused", "requests", "requests answered with an error"),
	GAUGE(PBOX_RS_JOBS, "jobs", "jobs", "jobs that exist"),
	GAUGE(PBOX_RS_WORKERS, "workers", "workers", "workers with a session"),
	GAUGE(PBOX_RS_TABLES, "tables", "tables", "tables mapped"),
	COUNTER(PBOX_RS_EXPIRED, "expired", "sessions", "sessions silent beyond their lease"),
	COUNTER(PBOX_RS_PINGS, "tx_ping", "frames",
		"pings to sessions whose number another process wants"),
	COUNTER(PBOX_RS_TAKEN_OVER, "taken_over", "sessions",
		"sessions that did not answer and lost their number to another process"),
	COUNTER(PBOX_RS_RUNS_ENDED, "runs_ended", "runs",
		"runs that made way for another one of their job, or were found dead"),
	COUNTER(PBOX_RS_REMOVED, "removed", "workers", "workers that a job went on without"),
	COUNTER(PBOX_RS_STOLEN, "stolen", "slots",
		"slots that were given to another worker within a round, as their own would have been late"),
};
