/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* The end of a lease: sessions that have been silent for longer are removed, and a job of which nobody is left ends
 * (R8.2). registrar_silence.c measures the silence. */

#include "registrar_impl.h"

static void
lease_tick(struct pbox_registrar *r, struct pbox_job *job)
{
	unsigned alive = 0;
	bool removed = false;

	for (unsigned w = 0; w < job->workers; w++) {
		struct pbox_member *m = &job->member[w];
		uint64_t silent;

		if (m->state != PBOX_MEMBER_JOINED && m->state != PBOX_MEMBER_SILENT)
			continue;
		silent = registrar_unheard(r, job, w);
		if (silent <= m->lease_ms * NS_PER_MS) {
			m->state = PBOX_MEMBER_JOINED;
			alive++;
		} else if (m->state == PBOX_MEMBER_JOINED) {
			m->state = PBOX_MEMBER_SILENT;
			count_control(r, PBOX_RS_EXPIRED);
			registrar_event(r, PBOX_LOG_WARN,
				"job '%s': worker %u (%s) has been silent for %llu ms, longer than its lease",
				job->name, w, m->host,
				(unsigned long long)registrar_silent_ms(r, job, w));
		}
	}
	if (alive == 0) {
		registrar_nobody_lives(r, job);
		return;
	}
	registrar_somebody_lives(r, job);
	for (unsigned w = 0; w < job->workers; w++)
		if (job->member[w].state == PBOX_MEMBER_SILENT)
			removed |= registrar_remove(r, job, w);
	removed |= registrar_remove_absent(r, job);
	if (removed)
		registrar_removed(r, job);
	registrar_miss_absent(r, job);
}

const struct registrar_part registrar_lease_part = {
	.name = "leases",
	.tick = lease_tick,
};
