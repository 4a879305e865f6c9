/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "registrar_impl.h"

/*
 * Leases (R8.2) are measured by a clock of their own: it goes on only as far as the box has read what came to
 * it. A box that was stopped, or whose control thread or one of whose data cores got no CPU, has not heard
 * its workers, and that is not their fault. registrar_lease.c ends sessions that are silent for longer.
 */

/* What one report adds at most. More often than so the control thread comes round, unless it was away. */
#define LISTENED_MAX (100 * NS_PER_MS)

void
pbox_registrar_heard(struct pbox_registrar *r, uint64_t ns)
{
	uint64_t passed = ns > r->heard_ns && r->heard_ns != 0 ? ns - r->heard_ns : 0;

	if (ns > r->heard_ns)
		r->heard_ns = ns;
	r->listened_ns += passed < LISTENED_MAX ? passed : LISTENED_MAX;
}

void
registrar_lease_begin(const struct pbox_registrar *r, struct pbox_member *m)
{
	m->noticed_ns = r->now_ns;
	m->listened_ns = r->listened_ns;
}

uint64_t
registrar_unheard(struct pbox_registrar *r, struct pbox_job *job, unsigned w)
{
	struct pbox_member *m = &job->member[w];
	uint64_t last = registrar_last_seen(r, job, w);

	if (last > m->noticed_ns) {
		m->noticed_ns = last;
		m->listened_ns = r->listened_ns;
	}
	return r->listened_ns - m->listened_ns;
}

uint64_t
pbox_registrar_silence(const struct pbox_registrar *r, const struct pbox_job *job, unsigned worker,
	uint64_t now_ns)
{
	uint64_t last = registrar_last_seen(r, job, worker);

	if (last == 0)
		return UINT64_MAX;
	return now_ns > last ? now_ns - last : 0;
}

uint32_t
registrar_silent_ms(const struct pbox_registrar *r, const struct pbox_job *job, unsigned worker)
{
	uint64_t ns = pbox_registrar_silence(r, job, worker, r->now_ns);

	return ns == UINT64_MAX ? NEVER_SEEN : (uint32_t)(ns / NS_PER_MS);
}
