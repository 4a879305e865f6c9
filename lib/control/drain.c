/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "control_priv.h"

/* LEFT goes to the workers this often: frames get lost. */
#define LEFT_TIMES 3
#define LEFT_EVERY (10 * NS_PER_MS)

/*
 * The clean stop, step by step, each turn of the control thread: take the last snapshots, send LEFT to the workers, end the jobs,
 * wait until the shards have let go of them. true: done, or the time is over.
 */
bool
control_drained(struct pbox_control *c)
{
	uint64_t now = pbox_dp_now(c->conf.dp);
	bool done;

	pthread_mutex_lock(&c->lock);
	/* while workers still work: fragments come to a round together only so */
	if (c->stop_began == 0 && !snapshot_final(c, now)) {
		pthread_mutex_unlock(&c->lock);
		return false;
	}
	if (c->stop_began == 0) {
		c->stop_began = now;
		pbox_log(PBOX_LOG_INFO, "stopping: %u jobs", pbox_registrar_jobs(c->registrar));
	}
	if (c->left_sent < LEFT_TIMES && now >= c->left_at) {
		pbox_registrar_shutdown(c->registrar, now);
		c->left_sent++;
		c->left_at = now + LEFT_EVERY;
		if (pbox_registrar_jobs(c->registrar) == 0)
			c->left_sent = LEFT_TIMES;
	} else if (c->left_sent == LEFT_TIMES && !c->closing && now >= c->left_at) {
		pbox_registrar_close(c->registrar, now);
		c->closing = true;
	}
	done = c->closing && pbox_registrar_jobs(c->registrar) == 0;
	if (!done && now - c->stop_began > c->conf.drain_ns) {
		pbox_log(PBOX_LOG_WARN, "%u jobs were not done within the drain time",
			pbox_registrar_jobs(c->registrar));
		done = true;
	}
	pthread_mutex_unlock(&c->lock);
	return done;
}
