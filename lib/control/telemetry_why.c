/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "health.h"
#include "numbers.h"
#include "rack_waits.h"
#include "reply.h"

/* Telemetry's /pbox/why,JOB: whom and what a job waits for. */

#define PATIENCE    (2000 * NS_PER_MS) /* for the data cores' answers */
#define ASK_EVERY   200000             /* ns */
#define MAX_ROUNDS  16                 /* of an answer: it has 16 KiB */
#define MAX_MISSING 24
#define MAX_FOUND   8
#define RANGES      100 /* bytes: a string has 127 */

static void
add_rounds(const struct pbox_control *c, const struct pbox_job_view *j, const struct pbox_why *why,
	uint64_t *missing, struct rte_tel_data *d)
{
	const struct pbox_why_round *oldest[MAX_ROUNDS];
	struct rte_tel_data *all = reply_dict();
	uint64_t open = 0, now = pbox_dp_now(c->conf.dp);
	unsigned n = pbox_why_oldest(why, MAX_ROUNDS, oldest);

	for (unsigned s = 0; s < why->shards; s++)
		open += why->page[s].open;
	for (unsigned i = 0; i < n; i++) {
		const struct pbox_why_round *r = oldest[i];
		struct rte_tel_data *e = reply_dict();
		char text[RANGES + 8], number[16];

		for (unsigned k = 0; k < (j->workers + 63u) / 64; k++)
			missing[k] |= r->missing[k];
		numbers_ranges(r->missing, j->workers, text, sizeof(text));
		reply_text(e, "tensor", "%s",
			pbox_registrar_tensor(c->registrar, j->job, r->chunk, r->frag));
		rte_tel_data_add_dict_u64(e, "table", r->chunk >> PBOX_CHUNK_BITS);
		rte_tel_data_add_dict_u64(e, "chunk", r->chunk & ((1u << PBOX_CHUNK_BITS) - 1));
		rte_tel_data_add_dict_u64(e, "fragment", r->frag);
		rte_tel_data_add_dict_u64(e, "round", r->round);
		rte_tel_data_add_dict_u64(e, "arrived", r->arrived);
		reply_text(e, "missing", "%s", r->uninitialised ? "0" : text);
		if (r->uninitialised)
			reply_text(e, "needs", "%s", "init");
		else if (r->paced)
			reply_text(e, "needs", "%s", "rate");
		else if (r->up)
			reply_text(e, "needs", "%s", "upper");
		if (r->clocks) {
			rte_tel_data_add_dict_u64(e, "clock", r->clock);
			rte_tel_data_add_dict_u64(e, "lag", r->lag);
			rte_tel_data_add_dict_u64(e, "bound", r->bound);
		}
		rte_tel_data_add_dict_u64(
			e, "ms", now > r->since_ns ? (now - r->since_ns) / NS_PER_MS : 0);
		snprintf(number, sizeof(number), "%u", i);
		reply_add(all, number, e);
	}
	rte_tel_data_add_dict_u64(d, "rounds_open", open);
	reply_add(d, "rounds", all);
}

static bool
why_has_session(const struct pbox_member_view *m)
{
	return m->state == PBOX_MEMBER_JOINED || m->state == PBOX_MEMBER_SILENT;
}

/* Tables that are not mapped yet wait for workers that have not joined, or not declared them. */
static bool
is_built(const struct pbox_control *c, const struct pbox_job *job, uint32_t table)
{
	struct pbox_table_view t;

	pbox_registrar_view_table(c->registrar, job, table, &t);
	return t.built;
}

static void
add_tables(const struct pbox_control *c, const struct pbox_job_view *j, uint64_t *missing,
	struct rte_tel_data *d)
{
	struct rte_tel_data *all = reply_dict();
	uint32_t last = j->tables > 0 ? j->tables : 1;
	uint64_t now = pbox_dp_now(c->conf.dp);

	for (uint32_t t = 0; t < last; t++) {
		uint64_t wait[PBOX_MAX_WORKERS / 64] = {0};
		char text[RANGES + 8], number[16];
		bool any = false;

		if (t < j->tables && is_built(c, j->job, t))
			continue;
		for (unsigned w = 0; w < j->workers; w++) {
			struct pbox_member_view m;

			pbox_registrar_view_member(c->registrar, j->job, w, now, &m);
			if (m.removed || (why_has_session(&m) && m.declared > t))
				continue;
			wait[w / 64] |= UINT64_C(1) << w % 64;
			missing[w / 64] |= UINT64_C(1) << w % 64;
			any = true;
		}
		if (!any)
			continue;
		numbers_ranges(wait, j->workers, text, sizeof(text));
		snprintf(number, sizeof(number), "%u", t);
		reply_text(all, number, "%s", text);
	}
	reply_add(d, "tables", all);
}

/* Those that are missing, with what is known of them. */
static void
add_missing(const struct pbox_control *c, const struct pbox_job_view *j, const uint64_t *missing,
	struct rte_tel_data *d)
{
	static const char *const state[] = {
		[PBOX_MEMBER_ABSENT] = "never joined",
		[PBOX_MEMBER_JOINED] = "joined",
		[PBOX_MEMBER_LEFT] = "left",
		[PBOX_MEMBER_SILENT] = "silent beyond its lease",
	};
	struct rte_tel_data *all = reply_dict();
	uint64_t now = pbox_dp_now(c->conf.dp);
	unsigned n = 0;

	for (unsigned w = 0; w < j->workers && n < MAX_MISSING; w++) {
		struct pbox_member_view m;
		struct rte_tel_data *e;
		char number[16];

		if ((missing[w / 64] >> w % 64 & 1) == 0)
			continue;
		pbox_registrar_view_member(c->registrar, j->job, w, now, &m);
		e = reply_dict();
		reply_text(e, "host", "%s", m.host);
		reply_text(e, "state", "%s", state[m.state]);
		if (m.silent_ns != UINT64_MAX)
			rte_tel_data_add_dict_u64(e, "silent_ms", m.silent_ns / NS_PER_MS);
		rte_tel_data_add_dict_u64(e, "tables", m.declared);
		if (m.rack)
			reply_text(e, "rack", "%s", m.rack_waits != NULL ? m.rack_waits : "");
		snprintf(number, sizeof(number), "%u", w);
		reply_add(all, number, e);
		n++;
	}
	reply_add(d, "waited_for", all);
}

/* What is known of the box or of this job that makes it slow. */
static void
add_findings(struct pbox_control *c, const char *job, struct rte_tel_data *d)
{
	struct health_finding f[HEALTH_FINDINGS];
	unsigned found = health_findings(c, f, HEALTH_FINDINGS), n = 0;
	struct rte_tel_data *all = reply_dict();

	for (unsigned i = 0; i < found && n < MAX_FOUND; i++)
		if (f[i].job[0] == '\0' || strcmp(f[i].job, job) == 0)
			health_reply(&f[i], n++, all);
	reply_add(d, "findings", all);
}

/* At a rack's box: the one above, while sums are there or it does not answer. */
static void
add_upper(struct pbox_control *c, const struct pbox_job *job, struct rte_tel_data *d)
{
	struct rte_tel_data *e;
	struct pbox_uplink_view v;
	char address[REPLY_ADDRESS], text[RACK_WAITS_TEXT];
	bool waits;

	if (c->uplinks == NULL || !pbox_uplinks_view(c->uplinks, job, &v))
		return;
	waits = rack_waits_above(c, &v, pbox_dp_now(c->conf.dp), text);
	e = reply_dict();
	rte_tel_data_add_dict_u64(e, "rack", c->conf.registrar.rack.rack);
	rte_tel_data_add_dict_u64(e, "racks", c->conf.registrar.rack.racks);
	reply_text(e, "address", "%s", reply_address(c->conf.upper_ip, c->conf.upper_udp, address));
	rte_tel_data_add_dict_u64(e, "sums_up", v.pending);
	if (waits)
		reply_text(e, "waits_for", "%s", text);
	reply_add(d, "upper", e);
}

static bool
why_answered(struct pbox_control *c, const struct pbox_why *why)
{
	bool yes;

	pthread_mutex_lock(&c->lock);
	yes = why->answered == why->shards;
	pthread_mutex_unlock(&c->lock);
	return yes;
}

static void
add_all(struct pbox_control *c, const char *name, const struct pbox_why *why,
	struct rte_tel_data *d)
{
	uint64_t missing[PBOX_MAX_WORKERS / 64] = {0};
	const struct pbox_job *job = reply_job(c, name, d);
	struct pbox_job_view j;
	char text[RANGES + 8];

	if (job == NULL)
		return;
	pbox_registrar_view_job(c->registrar, job, &j);
	reply_text(d, "job", "%s", j.name);
	reply_text(d, "policy", "%s", pbox_policy_name(j.policy));
	rte_tel_data_add_dict_u64(d, "workers", j.workers);
	rte_tel_data_add_dict_u64(d, "joined", j.joined);
	add_tables(c, &j, missing, d);
	if (why != NULL && why->answered == why->shards)
		add_rounds(c, &j, why, missing, d);
	else if (j.state == PBOX_JOB_OPEN)
		reply_text(d, "error", "%s", "a data core does not answer");
	numbers_ranges(missing, j.workers, text, sizeof(text));
	reply_text(d, "missing", "%s", text);
	add_upper(c, j.job, d);
	add_missing(c, &j, missing, d);
	add_findings(c, j.name, d);
}

void
control_why(struct pbox_control *c, const char *name, struct rte_tel_data *d)
{
	struct timespec nap = {.tv_nsec = ASK_EVERY};
	const struct pbox_job *job;
	struct pbox_why *why;
	uint64_t end;

	rte_tel_data_start_dict(d);
	pthread_mutex_lock(&c->lock);
	job = reply_job(c, name, d);
	why = job != NULL ? pbox_registrar_why(c->registrar, job) : NULL;
	pthread_mutex_unlock(&c->lock);
	if (job == NULL)
		return;
	end = pbox_dp_now(c->conf.dp) + PATIENCE;
	while (why != NULL && !why_answered(c, why) && pbox_dp_now(c->conf.dp) < end)
		nanosleep(&nap, NULL);
	pthread_mutex_lock(&c->lock);
	add_all(c, name, why, d);
	pbox_registrar_why_end(why);
	pthread_mutex_unlock(&c->lock);
}
