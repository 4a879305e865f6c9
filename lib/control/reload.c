/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <string.h>
#include <time.h>

#include <rte_lcore.h>

#include "control_priv.h"

/*
 * The thread that reads the configuration again. Its files may be on a disk that does not answer: nobody waits for
 * them but who wanted them read. What it has read holds from pbox_control_change() on, which takes the control's lock.
 */

#define STOP_TIME 5 /* seconds */

static void *
reloader(void *arg)
{
	struct pbox_control *c = arg;

	for (;;) {
		while (sem_wait(&c->reload.wanted) != 0)
			; /* a signal */
		while (sem_trywait(&c->reload.wanted) == 0)
			; /* once for all who asked until now */
		if (atomic_load(&c->reload.quit))
			return NULL;
		c->conf.reload(c->conf.reload_ctx, c);
		commands_add(&c->commands, "SIGHUP (its effects are in the log)", NULL, NULL);
	}
}

int
reload_start(struct pbox_control *c, struct pbox_error *err)
{
	int ret;

	if (c->conf.reload == NULL)
		return 0;
	ret = rte_ctrl_thread_create(&c->reload.thread, "pbox-reload", NULL, reloader, c);
	if (ret != 0)
		return pbox_fail(err, -ret,
			"the thread that reads the configuration does not start: %s",
			strerror(-ret));
	c->reload.started = true;
	return 0;
}

bool
reload_stop(struct pbox_control *c)
{
	struct timespec until;

	if (!c->reload.started)
		return true;
	atomic_store(&c->reload.quit, true);
	sem_post(&c->reload.wanted);
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += STOP_TIME;
	if (pthread_timedjoin_np(c->reload.thread, NULL, &until) != 0) {
		pbox_log(PBOX_LOG_ERROR,
			"the configuration is still being read %d s after the stop (SIGHUP): does its disk answer? The box ends without it",
			STOP_TIME);
		return false;
	}
	c->reload.started = false;
	return true;
}

void
pbox_control_reload(struct pbox_control *c)
{
	sem_post(&c->reload.wanted);
}
