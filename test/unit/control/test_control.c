/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>

#include <rte_mempool.h>

#include "../dataplane/rig.h"
#include "health.h"

const char unit_suite[] = "control";

static struct rig rig;
static struct worker w[RIG_WORKERS];
static char logged[8192];

static void
remember(enum pbox_log_level level, const char *line, void *ctx)
{
	size_t at = strlen(logged);

	(void)level;
	(void)ctx;
	snprintf(logged + at, sizeof(logged) - at, "%s\n", line);
}

static uint64_t
control(const char *name)
{
	return pbox_stats_total(pbox_control_stats(rig.control), "control", name);
}

/* frames = to_registrar + the drops */
static void
control_conserved(void)
{
	uint64_t sum = control("to_registrar");

	for (unsigned i = PBOX_CT_FIRST_DROP; i <= PBOX_CT_LAST_DROP; i++)
		sum += control(pbox_control_stat_defs[i].name);
	UNIT_EQ_U64(control("frames"), sum);
	UNIT_EQ_U64(control("datagrams"),
		rig_core(&rig, PBOX_CS_RX_CONTROL) + rig_core(&rig, PBOX_CS_PINGS_REPORTED));
}

/* Send bytes to the control port; the answer, if there is one. */
static const struct rig_datagram *
ask(const void *bytes, size_t len)
{
	uint8_t f[2048];

	w[0] = (struct worker){.r = &rig};
	rig_put(&rig, 0, f, worker_frame(0, PBOX_CONTROL_PORT, bytes, len, f));
	return worker_next(&w[0]);
}

/* R2.2: a HELLO of another version is answered ERROR VERSION, in version 1, and not by more. */
static void
version(void)
{
	struct pbox_hdr hello = {.type = PBOX_HELLO, .chunk = 5, .length = PBOX_HELLO_LEN}, a = {0};
	const struct rig_datagram *d;
	struct pbox_error_msg m;
	uint8_t p[256] = {0};
	size_t n = pbox_frame_seal(p, &hello), size;

	rig_start(&rig, &(struct rig_options){.queues = 1, .cores = 1});
	p[1] = 2;
	d = ask(p, n);
	CU_ASSERT_PTR_NOT_NULL_FATAL(d);
	CU_ASSERT(d->len <= n);
	UNIT_EQ_U64(pbox_frame_decode(d->bytes, d->len, true, &a, &size), PBOX_WIRE_OK);
	UNIT_EQ_U64(a.type, PBOX_ERROR);
	UNIT_EQ_U64(a.chunk, 5);
	UNIT_EQ_U64(pbox_error_decode(d->bytes + PBOX_HDR_LEN, a.length, &m), 0);
	UNIT_EQ_U64(m.code, PBOX_E_VERSION);
	UNIT_EQ_U64(m.detail, 1);
	/* less than a HELLO gets nothing */
	CU_ASSERT_PTR_NULL(ask(p, n - 1));
	UNIT_EQ_U64(control("frame_version"), 2);
	/* what is no HELLO gets nothing either: another box's ERROR least of all */
	for (unsigned type = 0; type < 256; type++) {
		p[2] = (uint8_t)type;
		if (type != PBOX_HELLO)
			CU_ASSERT_PTR_NULL(ask(p, sizeof(p)));
	}
	UNIT_EQ_U64(control("frame_version"), 2 + 255);
	UNIT_EQ_U64(pbox_stats_total(pbox_control_stats(rig.control), "registrar", "refused"), 0);
	control_conserved();
	rig_stop(&rig);
}

static void
wrong_frames(void)
{
	struct pbox_hdr h = {.type = PBOX_PUSHPULL}, hello = {.type = PBOX_HELLO, .length = 64};
	uint8_t p[512] = {0};
	size_t n = pbox_frame_seal(p, &h);

	rig_start(&rig, &(struct rig_options){.queues = 1, .cores = 1});
	CU_ASSERT_PTR_NULL(ask(p, n));
	UNIT_EQ_U64(control("frame_endpoint"), 1);
	p[20] ^= 1;
	CU_ASSERT_PTR_NULL(ask(p, n));
	UNIT_EQ_U64(control("frame_crc"), 1);
	CU_ASSERT_PTR_NULL(ask(p, 0));
	CU_ASSERT_PTR_NULL(ask(p, 61));
	UNIT_EQ_U64(control("frame_truncated"), 2);
	/* two HELLOs in a datagram: both are looked at, and one is answered (R4.7) */
	memset(p, 0, sizeof(p));
	n = pbox_frame_seal(p, &hello);
	n += pbox_frame_seal(p + n, &hello);
	CU_ASSERT_PTR_NOT_NULL(ask(p, n));
	UNIT_EQ_U64(rig.n_inbox[0], 1);
	UNIT_EQ_U64(control("to_registrar"), 2);
	control_conserved();
	rig_stop(&rig);
}

#define PATIENCE_NS UINT64_C(120000000000)

/* The clean stop: every worker hears it, three times; jobs end; the cores stop. */
static void
clean_stop(void)
{
	struct pbox_error err = {0};
	unsigned told[2] = {0, 0};

	/* it ends when the jobs have: the time is for cores that get no CPU */
	rig_start(&rig, &(struct rig_options){
				.queues = 1, .cores = 2, .lcores = true, .drain_ns = PATIENCE_NS});
	for (unsigned i = 0; i < 2; i++)
		CU_ASSERT_FATAL(worker_join(&rig, &w[i], i, 2));
	UNIT_EQ_U64(pbox_stats_total(pbox_control_stats(rig.control), "registrar", "jobs"), 1);
	UNIT_EQ_U64(pbox_control_start(rig.control, &err), 0);
	pbox_control_stop(rig.control);
	pbox_control_join(rig.control);
	CU_ASSERT(pbox_dp_stopping(rig.dp));
	UNIT_EQ_U64(pbox_stats_total(pbox_control_stats(rig.control), "registrar", "jobs"), 0);
	rig_collect(&rig);
	for (unsigned i = 0; i < 2; i++)
		for (unsigned k = rig.got[i]; k < rig.n_inbox[i]; k++) {
			const struct rig_datagram *d = &rig.inbox[i][k];
			struct pbox_hdr h;
			size_t size;

			if (pbox_frame_decode(d->bytes, d->len, true, &h, &size) == PBOX_WIRE_OK)
				told[i] += h.type == PBOX_LEFT && h.aux == 1;
		}
	UNIT_EQ_U64(told[0], 3);
	UNIT_EQ_U64(told[1], 3);
	rig_stop(&rig);
}

/* What an operator can fix is reported, once. */
static void
messages(void)
{
	struct pbox_hdr h = {.type = PBOX_PING};
	uint8_t p[128], f[256];
	size_t n = pbox_frame_seal(p, &h), len;
	time_t end = time(NULL) + 120;
	uint16_t sum;

	rig_start(&rig, &(struct rig_options){.queues = 1, .cores = 1});
	pbox_log_to(remember, NULL, PBOX_LOG_INFO);
	logged[0] = '\0';
	len = worker_frame(0, PBOX_CONTROL_PORT + 1, p, n, f);
	sum = pbox_net_sum_fold(pbox_net_sum(f + 26, 8, 0) + 0x1100 + ((uint64_t)(n + 8) << 8));
	memcpy(f + 40, &sum, 2);
	for (unsigned i = 0; i < 100; i++) {
		rig_put(&rig, 0, f, len);
		rig_turn(&rig);
	}
	rig_put(&rig, 0, f, len - 1);
	rig_turn(&rig);
	UNIT_EQ_U64(rig_core(&rig, PBOX_CS_UDP_CHECKSUM_PARTIAL), 100);
	UNIT_EQ_U64(rig_core(&rig, PBOX_CS_DROP_IP_TRUNCATED), 1);
	/* the core does not turn any more: that is reported too */
	while (strstr(logged, "has not turned") == NULL && time(NULL) < end) {
		pbox_control_step(rig.control);
		usleep(20000);
	}
	CU_ASSERT_PTR_NOT_NULL(strstr(logged, "data core 0 (lcore 1) has not turned"));
	CU_ASSERT_PTR_NOT_NULL(
		strstr(logged, "100 of 100 datagrams came without a finished UDP checksum"));
	CU_ASSERT_PTR_NOT_NULL(strstr(logged, "ethtool -K <if> tx off"));
	CU_ASSERT_PTR_NOT_NULL(strstr(logged, "1 packets were cut off"));
	CU_ASSERT_PTR_NOT_NULL(strstr(logged, "tx-udp-segmentation off"));
	CU_ASSERT_PTR_NULL(strstr(strstr(logged, "cut off") + 1, "cut off"));
	pbox_log_to(NULL, NULL, PBOX_LOG_ERROR);
	rig_stop(&rig);
}

/* A finished checksum may look like an unfinished one by chance: a few say nothing. */
static void
checksums_by_chance(void)
{
	struct pbox_hdr h = {.type = PBOX_PING};
	uint8_t p[128], good[256], odd[256];
	size_t n = pbox_frame_seal(p, &h), len;
	time_t end = time(NULL) + 120;
	uint16_t sum;

	rig_start(&rig, &(struct rig_options){.queues = 1, .cores = 1});
	pbox_log_to(remember, NULL, PBOX_LOG_INFO);
	logged[0] = '\0';
	len = worker_frame(0, PBOX_CONTROL_PORT + 1, p, n, good);
	memcpy(odd, good, len);
	sum = pbox_net_sum_fold(pbox_net_sum(odd + 26, 8, 0) + 0x1100 + ((uint64_t)(n + 8) << 8));
	memcpy(odd + 40, &sum, 2);
	for (unsigned i = 0; i < 400; i++) {
		rig_put(&rig, 0, i < 4 ? odd : good, len);
		rig_turn(&rig);
	}
	UNIT_EQ_U64(rig_core(&rig, PBOX_CS_UDP_CHECKSUM_PARTIAL), 4);
	while (strstr(logged, "has not turned") == NULL && time(NULL) < end) {
		pbox_control_step(rig.control);
		usleep(20000);
	}
	CU_ASSERT_PTR_NULL(strstr(logged, "UDP checksum"));
	pbox_log_to(NULL, NULL, PBOX_LOG_ERROR);
	rig_stop(&rig);
}

static int
count_block(const struct pbox_stats_block *b, void *seen)
{
	const char *name = b->prefix;

	*(unsigned *)seen += strcmp(name, "core") == 0        ? 1
			     : strcmp(name, "shard") == 0     ? 10
			     : strcmp(name, "port") == 0      ? 100
			     : strcmp(name, "registrar") == 0 ? 1000
			     : strcmp(name, "control") == 0   ? 10000
							      : 0;
	return 0;
}

static void
statistics(void)
{
	unsigned seen = 0;

	rig_start(&rig, &(struct rig_options){.queues = 1, .cores = 2});
	pbox_stats_walk(pbox_control_stats(rig.control), count_block, &seen);
	UNIT_EQ_U64(seen, 11122);
	rig_stop(&rig);
}

/* The finding with that cause, as of now; "" when there is none. */
static const char *
finding(const char *cause)
{
	static struct health_finding f[HEALTH_FINDINGS];
	unsigned n;

	pbox_control_step(rig.control);
	n = health_findings(rig.control, f, HEALTH_FINDINGS);
	for (unsigned i = 0; i < n; i++)
		if (strcmp(f[i].cause, cause) == 0)
			return f[i].text;
	return "";
}

static const char *
full_pool(void)
{
	return finding("full_pool");
}

static void
health(void)
{
	static void *taken[16384];
	struct rte_mempool *pool;
	time_t end = time(NULL) + 120;
	unsigned n;

	rig_start(&rig, &(struct rig_options){.queues = 1, .cores = 1});
	pool = rte_mempool_lookup("pbox_answers_0");
	CU_ASSERT_PTR_NOT_NULL_FATAL(pool);
	while (health_window_ns(rig.control) == 0 && time(NULL) < end) {
		CU_ASSERT_STRING_EQUAL(full_pool(), "");
		usleep(10000);
	}
	CU_ASSERT(health_window_ns(rig.control) > 0);
	/* more than once: this process may get no CPU for longer than a moment is reported */
	for (unsigned tries = 0; tries < 20; tries++) {
		const char *found;

		n = rte_mempool_avail_count(pool) - 5;
		CU_ASSERT_FATAL(n <= 16384 && rte_mempool_get_bulk(pool, taken, n) == 0);
		/* at once: what is free now is looked at when somebody asks */
		CU_ASSERT_PTR_NOT_NULL(strstr(full_pool(), "pool pbox_answers_0 is full: 5 of "));
		for (unsigned i = 0; i < 10; i++) { /* and also when it was so for a moment */
			usleep(10000);
			full_pool();
		}
		rte_mempool_put_bulk(pool, taken, n);
		found = strstr(full_pool(), "pool pbox_answers_0 is full: 5 of ");
		if (found != NULL || tries == 19) {
			CU_ASSERT_PTR_NOT_NULL(found);
			break;
		}
	}
	while (full_pool()[0] != '\0' && time(NULL) < end)
		usleep(20000);
	CU_ASSERT_STRING_EQUAL(full_pool(), "");
	rig_stop(&rig);
}

/* A worker that has never joined has no silence: it is missing since the job began. */
static void
never_joined(void)
{
	time_t end = time(NULL) + 120;
	const char *text = "";
	uint64_t began;

	rig_start(&rig, &(struct rig_options){.queues = 1, .cores = 1});
	began = pbox_dp_now(rig.dp);
	CU_ASSERT_FATAL(worker_join(&rig, &w[0], 0, 3));
	while (text[0] == '\0' && time(NULL) < end) {
		usleep(20000);
		text = finding("dead_worker");
	}
	/* hosts start one after the other */
	CU_ASSERT(pbox_dp_now(rig.dp) - began >= UINT64_C(5000000000));
	CU_ASSERT_PTR_NOT_NULL(strstr(text, " has waited for "));
	CU_ASSERT_PTR_NOT_NULL(strstr(text, " s for workers 1 and 2, which have never joined"));
	CU_ASSERT_FATAL(worker_join(&rig, &w[1], 1, 3));
	CU_ASSERT_PTR_NOT_NULL(
		strstr(finding("dead_worker"), " s for worker 2, which has never joined"));
	CU_ASSERT_FATAL(worker_join(&rig, &w[2], 2, 3));
	CU_ASSERT_STRING_EQUAL(finding("dead_worker"), "");
	rig_stop(&rig);
}

#define AWAY_NS    5000000
#define N_ELEMENTS 5000

/* A round to which worker 0 contributes, those cores look for worker 1's part in vain, and it comes. How
 * long has worker 0 waited, by what the box says? *there_ns: while worker 0's packets came. */
static uint64_t
round_waited(uint32_t round, unsigned looking, uint64_t *there_ns)
{
	const struct pbox_registrar *r = rig.control->registrar;
	const struct pbox_job *job = pbox_registrar_job(r, 0);
	struct pbox_worker_stats a, b;
	uint64_t began = pbox_dp_now(rig.dp), now;
	uint8_t f[64];

	pbox_registrar_worker(r, job, 1, &a);
	worker_push(&w[0], 0, round);
	do
		rig_turn(&rig);
	while (rte_ring_count(rig.in[0]) > 0);
	rig_turn(&rig);
	*there_ns = pbox_dp_now(rig.dp) - began;
	began += *there_ns;
	do {
		now = pbox_dp_now(rig.dp);
		for (unsigned i = 0; i < rig.o.cores; i++)
			if ((looking >> i & 1) != 0)
				pbox_dp_turn(pbox_dp_core(rig.dp, i));
	} while (now - began < AWAY_NS);
	for (unsigned i = 0; i < PBOX_SHARD_BURST - 4; i++) /* it is not all in the first burst */
		rig_put(&rig, 0, f, worker_frame(0, 9, "", 0, f));
	worker_push(&w[1], 0, round);
	for (unsigned i = 0; i < 2; i++)
		UNIT_EQ_U64(worker_results(&w[i], round, 2), N_ELEMENTS);
	pbox_registrar_worker(r, job, 1, &b);
	CU_ASSERT_FATAL(b.last - a.last > 4);
	return (b.waited_ns - a.waited_ns) / (b.last - a.last);
}

/* A worker is late, or a core was not there to see it come: that says nothing of the worker. */
static void
late_or_away(void)
{
	uint64_t there_ns;

	for (unsigned cores = 1; cores <= 2; cores++) {
		rig_start(&rig, &(struct rig_options){.queues = 1, .cores = cores});
		for (unsigned i = 0; i < 2; i++)
			CU_ASSERT_FATAL(worker_join(&rig, &w[i], i, 2));
		for (unsigned i = 0; i < 2; i++)
			CU_ASSERT_FATAL(worker_declare(&w[i], N_ELEMENTS));
		for (unsigned i = 0; i < 2; i++)
			CU_ASSERT_FATAL(worker_map(&w[i]));
		CU_ASSERT(round_waited(1, 3, &there_ns) >= AWAY_NS);
		CU_ASSERT(round_waited(2, 0, &there_ns) <= there_ns);
		/* the one that takes the packets was away, not the one that they are for */
		CU_ASSERT(round_waited(3, 2, &there_ns) <= there_ns);
		rig_stop(&rig);
	}
}

/* The snapshot of an earlier run that stays where it is would be taken for the new one's: that does not begin. */
static void
not_set_aside(void)
{
	char dir[] = "/tmp/pbox-unit-XXXXXX", live[128], old[128], runs[128];
	struct pbox_error err = {0};
	int fd;

	CU_ASSERT_PTR_NOT_NULL_FATAL(mkdtemp(dir));
	snprintf(live, sizeof(live), "%s/j.0.0000000009.0000000009.0badcafe.snap", dir);
	snprintf(old, sizeof(old), "%s/j.0.0000000009.0000000009.0badcafe.old", dir);
	fd = creat(live, 0600);
	CU_ASSERT_FATAL(fd >= 0);
	close(fd);
	CU_ASSERT_EQUAL_FATAL(mkdir(old, 0700), 0);
	rig_start(&rig, &(struct rig_options){.queues = 1,
				.cores = 1,
				.lcores = true,
				.threads = true,
				.snapshot_dir = dir});
	UNIT_EQ_U64(pbox_control_start(rig.control, &err), 0);
	CU_ASSERT_FATAL(worker_join(&rig, &w[0], 0, 1));
	CU_ASSERT_FATAL(worker_declare(&w[0], N_ELEMENTS));
	CU_ASSERT(worker_map_refused(&w[0], "0badcafe.snap of an earlier run cannot be renamed"));
	CU_ASSERT(worker_map_refused(&w[0], "make snapshot-dir writable, or move that file away"));
	UNIT_EQ_U64(access(live, F_OK), 0);
	pbox_control_stop(rig.control);
	pbox_control_join(rig.control);
	rig_stop(&rig);
	snprintf(runs, sizeof(runs), "%s/runs", dir);
	CU_ASSERT(unlink(runs) == 0);
	CU_ASSERT(unlink(live) == 0 && rmdir(old) == 0 && rmdir(dir) == 0);
}

/* Leases go on although there is always more to read than the control thread has time for: when all has been read that
 * was there at a moment. */
static void
always_more(void)
{
	const struct pbox_status first = {0};
	uint64_t came, taken, rounds = 0;
	uint8_t payload[8];
	struct pbox_hdr h;

	rig_start(&rig, &(struct rig_options){.queues = 1, .cores = 1});
	for (unsigned i = 0; i < 2; i++)
		CU_ASSERT_FATAL(worker_join(&rig, &w[i], i, 2));
	h = (struct pbox_hdr){.type = PBOX_STATUS,
		.token = w[0].token,
		.job = w[0].job,
		.incarnation = w[0].incarnation};
	h.length = (uint16_t)pbox_status_encode(payload, sizeof(payload), &first);
	came = rig.control->listening.came_ns;
	taken = pbox_dp_control_taken(rig.dp, 0);
	for (unsigned step = 0; step < 100; step++) {
		for (unsigned i = 0; i < (step == 0 ? 100 : 24); i++) {
			h.chunk++;
			worker_send(&w[0], 0, PBOX_CONTROL_PORT, &h, payload);
			if (i % 24 == 23)
				rig_turn(&rig);
		}
		rig_turn(&rig); /* and the core has looked at all that came */
		pbox_control_step(rig.control);
		rig_collect(&rig);
		CU_ASSERT(pbox_dp_control_waiting(rig.dp, 0) > 0);
		if (rig.control->listening.came_ns == came)
			continue;
		/* not before what was there */
		CU_ASSERT(rounds == 0 || pbox_dp_control_taken(rig.dp, 0) - taken > 50);
		came = rig.control->listening.came_ns;
		taken = pbox_dp_control_taken(rig.dp, 0);
		rounds++;
	}
	CU_ASSERT(rounds > 5);
	rig_pump(&rig);
	rig_stop(&rig);
}

/* How long the control thread sleeps, by what goes on. */
static void
rests(void)
{
	const uint64_t ms = UINT64_C(1000000);
	struct control_rest r = {.quiet_ns = 50 * ms - 1, .due_ns = 20 * ms};

	UNIT_EQ_U64(control_rest_ns(&r), 50000);
	r.empty = 4;
	UNIT_EQ_U64(control_rest_ns(&r), 800000);
	r.empty = 5;
	UNIT_EQ_U64(control_rest_ns(&r), ms);
	r.empty = UINT32_MAX;
	UNIT_EQ_U64(control_rest_ns(&r), ms);
	r.quiet_ns = 50 * ms; /* until the next tick, or sign of life */
	UNIT_EQ_U64(control_rest_ns(&r), 20 * ms);
	r.due_ns = 3 * ms;
	UNIT_EQ_U64(control_rest_ns(&r), 3 * ms);
	r.due_ns = 0;
	UNIT_EQ_U64(control_rest_ns(&r), ms);
	r.due_ns = 20 * ms;
	r.busy = true;
	UNIT_EQ_U64(control_rest_ns(&r), ms);
}

const struct unit_test unit_tests[] = {
	{"rests", rests},
	{"snapshots that are not set aside", not_set_aside},
	{"late or away", late_or_away},
	{"always more", always_more},
	{"health", health},
	{"never joined", never_joined},
	{"another version", version},
	{"wrong frames", wrong_frames},
	{"clean stop", clean_stop},
	{"messages", messages},
	{"checksums by chance", checksums_by_chance},
	{"statistics", statistics},
	{NULL, NULL},
};
