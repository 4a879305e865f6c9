/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* What a JOIN must prove and ask for, before it changes anything. */

#include "registrar_impl.h"

static void
other_workers(struct pbox_registrar *r, const struct pbox_frame *f, const struct pbox_join *m,
	unsigned have)
{
	registrar_event(r, PBOX_LOG_WARN, "job '%s' has %u workers, and a worker (%s) says %u",
		m->job, have, m->host, m->workers);
	registrar_refuse(r, f, PBOX_E_WORKERS, have,
		"job '%s' has %u workers, this one (%s) says %u: give all the same number", m->job,
		have, m->host, m->workers);
}

/* What is asked of the box and of the job's section; false after answering why not. */
bool
registrar_possible(struct pbox_registrar *r, const struct pbox_frame *f, const struct pbox_join *m,
	const struct pbox_job_conf *conf)
{
	unsigned least = PBOX_MTU_OVERHEAD + 64 + (conf->auth ? PBOX_TAG_LEN : 0);

	if (m->workers == 0 || m->workers > r->conf.max_workers) {
		registrar_refuse(r, f, PBOX_E_BAD_REQUEST, r->conf.max_workers,
			"%u workers: this box takes 1 to %u a job", m->workers,
			r->conf.max_workers);
	} else if (m->mtu < least) {
		registrar_refuse(
			r, f, PBOX_E_BAD_REQUEST, least, "an MTU of %u is too small", m->mtu);
	} else if (conf->workers != 0 && conf->workers != m->workers) {
		other_workers(r, f, m, conf->workers);
	} else if (m->worker != PBOX_NO_WORKER && m->worker >= m->workers) {
		registrar_refuse(r, f, PBOX_E_BAD_REQUEST, m->workers,
			"worker %u of a job with %u workers: numbers begin at 0", m->worker,
			m->workers);
	} else if (m->policy > PBOX_POLICY_SHRINK) {
		registrar_refuse(r, f, PBOX_E_BAD_REQUEST, PBOX_POLICY_SHRINK,
			"policy %u is unknown: 0 wait, 1 shrink", m->policy);
	} else if (conf->auth && m->auth == 0) {
		registrar_event(r, PBOX_LOG_WARN,
			"job '%s' has auth = yes, and a worker (%s) cannot send tags", m->job,
			m->host);
		registrar_refuse(r, f, PBOX_E_BAD_REQUEST, 0,
			"job '%s' has auth = yes, and this worker's library or CPU (%s) cannot send tags: install the box's release, or run it where there is AES",
			m->job, m->host);
	} else {
		return true;
	}
	return false;
}

bool
registrar_agrees(struct pbox_registrar *r, const struct pbox_frame *f, const struct pbox_join *m,
	const struct pbox_job *job)
{
	if (job->workers != m->workers) {
		other_workers(r, f, m, job->workers);
		return false;
	}
	if (job->conf->policy != PBOX_POLICY_ANY || job->policy == m->policy)
		return true;
	registrar_event(r, PBOX_LOG_WARN,
		"job '%s': a worker (%s) asks for policy %s, the others for %s", m->job, m->host,
		pbox_policy_name(m->policy), pbox_policy_name(job->policy));
	registrar_refuse(r, f, PBOX_E_BAD_REQUEST, job->policy,
		"the other workers of job '%s' ask for policy %s, this one (%s) for %s: give all the same, or set policy in the job's section",
		m->job, pbox_policy_name(job->policy), m->host, pbox_policy_name(m->policy));
	return false;
}

/* Does it know the secret of a job of that section? False: it was answered. */
bool
registrar_proves(struct pbox_registrar *r, const struct pbox_frame *f, const struct pbox_join *m,
	const struct pbox_job_conf *conf)
{
	/* R4.4: a job without a secret takes everybody, with whatever secret */
	if (conf->secret_len == 0 ||
		pbox_proof_good(conf->secret, conf->secret_len, PBOX_JOIN_PROOF_PREFIX, f->payload,
			PBOX_JOIN_LEN, PBOX_JOIN_PROOF_AT))
		return true;
	registrar_event(
		r, PBOX_LOG_WARN, "job '%s': a worker (%s) has another secret", m->job, m->host);
	registrar_refuse(r, f, PBOX_E_SECRET, 0, "the secret of job '%s' is another one", m->job);
	return false;
}

bool
registrar_may_begin(struct pbox_registrar *r, const struct pbox_frame *f, const struct pbox_join *m,
	const struct pbox_job *ends)
{
	const struct pbox_job_conf *conf = pbox_registrar_section(r, m->job);

	if (r->draining || conf == NULL) {
		registrar_refuse(r, f, r->draining ? PBOX_E_FULL : PBOX_E_NO_JOB, 0,
			r->draining ? "the box takes no new runs: its operator drains it"
				    : "no job '%s' is configured here any more",
			m->job);
		return false;
	}
	/* the section may be another than the one by which the job began that is there */
	return registrar_proves(r, f, m, conf) && registrar_possible(r, f, m, conf) &&
	       registrar_room_then(r, f, conf, m, ends);
}
