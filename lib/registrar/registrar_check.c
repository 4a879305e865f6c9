/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* What a JOIN must prove and ask for, before it changes anything: rows of the table of R4.4 (registrar_join.c). */

#include <arpa/inet.h>
#include <string.h>

#include <pbox_pairs.h>
#include <pbox_slots.h>

#include "registrar_impl.h"

/* The operator reads the same text in the log. */
#define refuse_and_log(r, q, code, detail, ...)          \
	(registrar_event(r, PBOX_LOG_WARN, __VA_ARGS__), \
		registrar_refuse(r, (q)->f, code, detail, __VA_ARGS__))

static bool
proven_by(const struct registrar_join *q, const char *secret, size_t len)
{
	return pbox_proof_good(secret, len, PBOX_JOIN_PROOF_PREFIX, q->f->payload, PBOX_JOIN_LEN,
		PBOX_JOIN_PROOF_AT);
}

/* A job without a secret takes everybody, with whatever secret. */
bool
registrar_proves(struct pbox_registrar *r, struct registrar_join *q)
{
	bool none;
	char ip[INET_ADDRSTRLEN] = "";

	if (q->conf->secret_len == 0 || proven_by(q, q->conf->secret, q->conf->secret_len))
		return true;
	none = proven_by(q, "", 0);
	inet_ntop(AF_INET, &q->f->peer.ip, ip, sizeof(ip));
	registrar_event(r, PBOX_LOG_WARN, "job '%s': a worker (%s, %s) has %s secret", q->m.job,
		q->m.host, ip, none ? "no" : "another");
	if (none)
		return registrar_refuse(r, q->f, PBOX_E_SECRET, 0,
			"job '%s' has a secret, and this worker was given none", q->m.job);
	return registrar_refuse(
		r, q->f, PBOX_E_SECRET, 0, "the secret of job '%s' is another one", q->m.job);
}

static bool
same_workers(struct pbox_registrar *r, const struct registrar_join *q, unsigned have)
{
	return have == q->m.workers ||
	       refuse_and_log(r, q, PBOX_E_WORKERS, have,
		       "job '%s' has %u workers, and a worker (%s) says %u: give all the same number",
		       q->m.job, have, q->m.host, q->m.workers);
}

static bool
asks_workers(struct pbox_registrar *r, struct registrar_join *q)
{
	unsigned most = r->conf.max_workers;

	return (q->m.workers != 0 && q->m.workers <= most) ||
	       registrar_refuse(r, q->f, PBOX_E_BAD_REQUEST, most,
		       "%u workers: this box takes 1 to %u a job", q->m.workers, most);
}

static bool
asks_mtu(struct pbox_registrar *r, struct registrar_join *q)
{
	unsigned least = PBOX_MTU_OVERHEAD + 64 + (q->conf->auth ? PBOX_TAG_LEN : 0);

	return q->m.mtu >= least || registrar_refuse(r, q->f, PBOX_E_BAD_REQUEST, least,
					    "an MTU of %u is too small", q->m.mtu);
}

static bool
asks_section(struct pbox_registrar *r, struct registrar_join *q)
{
	return q->conf->workers == 0 || same_workers(r, q, q->conf->workers);
}

static bool
asks_number(struct pbox_registrar *r, struct registrar_join *q)
{
	return q->m.worker == PBOX_NO_WORKER || q->m.worker < q->m.workers ||
	       registrar_refuse(r, q->f, PBOX_E_BAD_REQUEST, q->m.workers,
		       "worker %u of a job with %u workers: numbers begin at 0", q->m.worker,
		       q->m.workers);
}

static bool
asks_slots(struct pbox_registrar *r, struct registrar_join *q)
{
	unsigned slots = q->m.slots;

	if (slots > PBOX_MAX_SLOTS)
		return registrar_refuse(r, q->f, PBOX_E_BAD_REQUEST, PBOX_MAX_SLOTS,
			"%u slots: a job has %u at most", slots, PBOX_MAX_SLOTS);
	if (slots != 0 && (q->m.needs & 1u << PBOX_CAN_SLOTS) == 0)
		return registrar_refuse(r, q->f, PBOX_E_BAD_REQUEST, 0,
			"%u slots, and SLOTS is not in needs: who asks for slots needs a box that has them (R4.3)",
			slots);
	return slots == 0 || slots >= q->m.workers ||
	       registrar_refuse(r, q->f, PBOX_E_BAD_REQUEST, q->m.workers,
		       "%u slots for %u workers: each worker needs one at least, so give more slots or start fewer workers",
		       slots, q->m.workers);
}

static bool
asks_policy(struct pbox_registrar *r, struct registrar_join *q)
{
	const uint32_t needs = 1u << PBOX_CAN_WORK | 1u << PBOX_CAN_SLOTS;

	if (q->m.policy > PBOX_POLICY_REASSIGN)
		return registrar_refuse(r, q->f, PBOX_E_BAD_REQUEST, PBOX_POLICY_REASSIGN,
			"policy %u is unknown: 0 wait, 1 shrink, 2 reassign", q->m.policy);
	return q->m.policy != PBOX_POLICY_REASSIGN ||
	       (q->m.slots != 0 && (q->m.needs & needs) == needs) ||
	       registrar_refuse(r, q->f, PBOX_E_BAD_REQUEST, 0,
		       "policy reassign gives slots of a worker to others: the job needs slots (slots=V at the optimiser), and workers that know them");
}

/* R15.1a */
static bool
asks_least(struct pbox_registrar *r, struct registrar_join *q)
{
	static const uint8_t none[PBOX_RUN_LEN];
	const char *bad = NULL;

	if (q->m.least == 0)
		return true;
	if (q->m.policy != PBOX_POLICY_REASSIGN)
		bad = "workers come and go with policy reassign alone: ask for that, or leave least out";
	else if (q->m.least > q->m.workers)
		bad = "more than the job's workers at most: give fewer";
	else if (memcmp(q->m.run, none, PBOX_RUN_LEN) == 0)
		bad = "a worker that comes later finds its run by the name: give all workers the same one (run=, PBOX_RUN)";
	return bad == NULL ||
	       registrar_refuse(r, q->f, PBOX_E_BAD_REQUEST, q->m.least,
		       "least is %u of %u workers: %s", q->m.least, q->m.workers, bad);
}

static bool
asks_tags(struct pbox_registrar *r, struct registrar_join *q)
{
	return !q->conf->auth || q->m.auth != 0 ||
	       refuse_and_log(r, q, PBOX_E_BAD_REQUEST, 0,
		       "job '%s' has auth = yes, and the library or CPU of a worker (%s) cannot send tags: install the box's release, or run it where there is AES",
		       q->m.job, q->m.host);
}

/* R4.4, what is asked of the box and of the job's section. */
static const struct registrar_check asks[] = {
	{asks_workers, PBOX_E_BAD_REQUEST},
	{asks_mtu, PBOX_E_BAD_REQUEST},
	{asks_section, PBOX_E_WORKERS},
	{asks_number, PBOX_E_BAD_REQUEST},
	{asks_slots, PBOX_E_BAD_REQUEST},
	{asks_policy, PBOX_E_BAD_REQUEST},
	{asks_least, PBOX_E_BAD_REQUEST},
	{asks_tags, PBOX_E_BAD_REQUEST},
	{NULL, 0},
};

bool
registrar_checks(
	struct pbox_registrar *r, struct registrar_join *q, const struct registrar_check *row)
{
	for (; row->passes != NULL; row++)
		if (!row->passes(r, q)) {
			PBOX_ASSERT(row->code == 0 || r->request.refusal.code == (int)row->code);
			return false;
		}
	return true;
}

bool
registrar_asks(struct pbox_registrar *r, struct registrar_join *q)
{
	return registrar_checks(r, q, asks);
}

unsigned
registrar_asked_slots(const struct pbox_job *job)
{
	return job->names_slots ? job->slots : 0;
}

static bool
same_slots(struct pbox_registrar *r, const struct registrar_join *q, const struct pbox_job *job)
{
	unsigned have = registrar_asked_slots(job);

	return have == q->m.slots ||
	       refuse_and_log(r, q, PBOX_E_BAD_REQUEST, have,
		       "job '%s': a worker (%s) asks for %u slots, the others for %u (0: as many as workers): give all the same number",
		       q->m.job, q->m.host, q->m.slots, have);
}

static bool
same_least(struct pbox_registrar *r, const struct registrar_join *q, const struct pbox_job *job)
{
	return job->least == q->m.least ||
	       refuse_and_log(r, q, PBOX_E_BAD_REQUEST, job->least,
		       "job '%s': a worker (%s) says least %u, the others %u (0: all workers are there from the start): give all the same number",
		       q->m.job, q->m.host, q->m.least, job->least);
}

bool
registrar_agrees(
	struct pbox_registrar *r, const struct registrar_join *q, const struct pbox_job *job)
{
	return same_workers(r, q, job->workers) && same_slots(r, q, job) && same_least(r, q, job) &&
	       (job->conf->policy != PBOX_POLICY_ANY || job->policy == q->m.policy ||
		       refuse_and_log(r, q, PBOX_E_BAD_REQUEST, job->policy,
			       "job '%s': a worker (%s) asks for policy %s, the others for %s: %s",
			       q->m.job, q->m.host, pbox_policy_name(q->m.policy),
			       pbox_policy_name(job->policy),
			       pbox_pair_in(PBOX_USES_PLAN | PBOX_USES_SHRINK)->text));
}

bool
registrar_mtu_fits(
	struct pbox_registrar *r, const struct registrar_join *q, const struct pbox_job *job)
{
	return q->m.mtu >= job->map_mtu ||
	       refuse_and_log(r, q, PBOX_E_BAD_REQUEST, job->map_mtu,
		       "the tables of job '%s' are mapped for an MTU of %u, and a worker (%s) has %u: raise it there, or end the job",
		       job->name, job->map_mtu, q->m.host, q->m.mtu);
}

bool
registrar_may_begin(struct pbox_registrar *r, const struct registrar_join *q)
{
	/* the section may be another than the one by which the job began that is there */
	struct registrar_join then = *q;

	then.conf = pbox_registrar_section(r, q->m.job);
	if (r->draining)
		return registrar_refuse(r, q->f, PBOX_E_FULL, 0,
			"the box takes no new runs: its operator drains it");
	if (then.conf == NULL)
		return registrar_refuse(r, q->f, PBOX_E_NO_JOB, 0,
			"no job '%s' is configured here any more", q->m.job);
	return registrar_proves(r, &then) && registrar_asks(r, &then) &&
	       registrar_room_then(r, &then);
}
