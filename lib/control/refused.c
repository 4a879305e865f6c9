/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "health.h"
#include "reply.h"

/* Workers that the box has refused lately, as findings: what waits for one of them shows only that it is not here. */

static const char *
refused_advice(int code)
{
	switch (code) {
	case PBOX_E_SECRET:
		return "give it the job's secret ('secret' of [job NAME] here); if it is none of yours: who is on that network?";
	case PBOX_E_NO_JOB:
		return "correct the job's name there, or add a section [job NAME] here";
	case PBOX_E_WORKERS:
		return "the same number of workers at all of them, and in 'workers' of [job NAME]";
	case PBOX_E_MISMATCH:
		return "the same program and model at all workers of the job";
	case PBOX_E_VERSION:
		return "install this box's release of the client library there";
	case PBOX_E_FULL:
	case PBOX_E_NO_MEMORY:
		return "raise the limit that it names (max-jobs, hold, memory), or end another job";
	default:
		return "correct there what it names, and start it again";
	}
}

bool
refused_finding(const struct pbox_control *c, unsigned i, uint64_t now_ns, struct health_finding *f)
{
	char who[24] = "a worker", at[REPLY_ADDRESS], host[UTF7_BRIEF];
	struct pbox_refused_view v;

	if (!pbox_registrar_refused(c->registrar, i, now_ns, &v))
		return false;
	*f = (struct health_finding){.cause = "refused", .harmful = v.missed, .worker = -1};
	if (v.worker >= 0)
		snprintf(who, sizeof(who), "worker %d", v.worker);
	if (v.missed) {
		snprintf(f->job, sizeof(f->job), "%s", v.job);
		f->worker = v.worker;
	}
	reply_address(v.ip, 0, at);
	snprintf(f->text, sizeof(f->text), "%s (%s, %.*s) was refused %" PRIu64 " s ago: %.200s",
		who, utf7_brief(host, v.host, 20), (int)strcspn(at, ":"), at, v.ago_ns / ONE_SECOND,
		v.text);
	snprintf(f->next, sizeof(f->next), "%s", refused_advice(v.code));
	return true;
}
