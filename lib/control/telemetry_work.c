/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "control_priv.h"
#include "reply.h"

/* Telemetry's /pbox/work,JOB: who does which share of a round, how long that takes, and what has changed (policy reassign). */

#define PAGE 48 /* workers: an answer has 16 KiB */

static uint64_t
work_us(double seconds)
{
	return (uint64_t)(seconds * 1e6 + 0.5);
}

static void
add_changes(const struct pbox_job_work *work, uint64_t now, struct rte_tel_data *d)
{
	for (unsigned i = 0; i < work->changes; i++) {
		const struct registrar_work_change *change = &work->change[i];
		struct rte_tel_data *e = reply_dict();

		rte_tel_data_add_dict_u64(e, "round", change->round);
		rte_tel_data_add_dict_u64(
			e, "ms", now > change->ns ? (now - change->ns) / NS_PER_MS : 0);
		reply_text(e, "text", "%s", change->text);
		reply_add_numbered(d, "change", i, e);
	}
}

/* The longest that a worker's own part of a round took, of those that are there. */
static double
longest(struct pbox_control *c, const struct pbox_job_view *j)
{
	double most = 0;

	for (unsigned w = 0; w < j->workers; w++) {
		struct pbox_member_work m;

		pbox_registrar_view_worker_work(c->registrar, j->job, w, &m);
		if (m.member && m.slots > 0 && m.seen > most)
			most = m.seen;
	}
	return most;
}

static void
add_share(const struct pbox_member_work *m, double most, struct rte_tel_data *d)
{
	rte_tel_data_add_dict_u64(d, "here", m->member);
	rte_tel_data_add_dict_u64(d, "slots", m->slots);
	rte_tel_data_add_dict_u64(d, "slot_us", work_us(m->slot_seconds));
	rte_tel_data_add_dict_u64(d, "predicted_us", work_us(m->predicted));
	rte_tel_data_add_dict_u64(d, "stolen_slots", m->got);
	rte_tel_data_add_dict_u64(d, "lost_slots", m->gave);
	if (m->samples > 0) {
		rte_tel_data_add_dict_u64(d, "memory_samples", m->fits);
		rte_tel_data_add_dict_u64(d, "slot_samples", m->samples);
	}
	if (m->seen <= 0) /* it has not reported yet */
		return;
	rte_tel_data_add_dict_u64(d, "seen_us", work_us(m->seen));
	rte_tel_data_add_dict_u64(d, "seen_round", m->round);
	if (m->member && most > 0)
		rte_tel_data_add_dict_u64(
			d, "idle_permille", (uint64_t)(1000 * (1 - m->seen / most) + 0.5));
}

static void
on_plan(struct pbox_control *c, int n, char word[][PARAM_SIZE], struct rte_tel_data *d)
{
	const struct pbox_job *job;
	struct pbox_job_work work;
	struct pbox_job_view j;
	unsigned first = 0, end;
	double most;

	job = reply_job_workers(c, "work", n, word, &j, &first, d);
	if (job == NULL)
		return;
	if (!pbox_registrar_view_work(c->registrar, job, &work)) {
		if (j.policy == PBOX_POLICY_REASSIGN)
			reply_error(d,
				"its first round has not begun: /pbox/why says what it waits for");
		else
			reply_error(d, "its policy is %s: work by plan needs reassign",
				pbox_policy_name(j.policy));
		return;
	}
	end = first + PAGE < j.workers ? first + PAGE : j.workers;
	rte_tel_data_add_dict_u64(d, "clock_ns", pbox_dp_now(c->conf.dp));
	reply_text(d, "job", "%s", j.name);
	rte_tel_data_add_dict_u64(d, "workers", j.workers);
	rte_tel_data_add_dict_u64(d, "slots", j.slots);
	rte_tel_data_add_dict_u64(d, "round", work.round);
	rte_tel_data_add_dict_u64(d, "plan", work.plan);
	if (work.next_from != 0)
		rte_tel_data_add_dict_u64(d, "next_from", work.next_from);
	rte_tel_data_add_dict_u64(d, "predicted_us", work_us(work.predicted));
	rte_tel_data_add_dict_u64(d, "steals", work.steals);
	rte_tel_data_add_dict_u64(d, "stolen_slots", work.stolen);
	if (end < j.workers)
		rte_tel_data_add_dict_u64(d, "next", end);
	most = longest(c, &j);
	for (unsigned w = first; w < end; w++) {
		struct rte_tel_data *e = reply_dict();
		struct pbox_member_work m;

		pbox_registrar_view_worker_work(c->registrar, job, w, &m);
		add_share(&m, m.slots > 0 ? most : 0, e);
		reply_add_numbered(d, "worker", w, e);
	}
	if (first == 0)
		add_changes(&work, pbox_dp_now(c->conf.dp), d);
}

const struct telemetry_command telemetry_work_commands[] = {
	{"/pbox/work", 2, on_plan,
		"Work by plan: slots and seconds of workers, changes. Parameters: JOB[,FIRST]."},
	{0},
};
