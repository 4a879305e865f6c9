/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "control_priv.h"

/* What the control thread reports to the service manager. A sign of life means that all of the box
 * lives: this thread comes by, and each data core has turned since the last sign. */

#define STATUS_EVERY ONE_SECOND
/* Looks at the cores in the time that the manager waits for a sign. */
#define LOOKS 4

static uint64_t
turns(const struct pbox_control *c, unsigned core)
{
	return pbox_stat_get(&pbox_dp_core_stats(c->conf.dp, core)[PBOX_CS_LOOPS]);
}

/* The first core that has not turned since the last sign; the number of cores: all have. */
static unsigned
still(const struct pbox_control *c)
{
	unsigned i = 0;

	while (i < c->conf.n_cores && turns(c, i) != c->service.turns[i])
		i++;
	return i;
}

/* @p line NULL: nobody waits for it, but the status goes by the last one. */
static bool
sign(struct pbox_control *c, const char *line)
{
	/* what was not heard is said again at the next look */
	if (line != NULL && !pbox_notify_send(c->conf.notify, "%s", line))
		return false;
	for (unsigned i = 0; i < c->conf.n_cores; i++)
		c->service.turns[i] = turns(c, i);
	c->service.sign_ns = c->now_ns;
	return true;
}

/* One line for people, when it is another one. */
static void
status(struct pbox_control *c)
{
	struct service *s = &c->service;
	unsigned late = still(c), up = 0;
	char text[sizeof(s->status)];

	for (unsigned i = 0; i < c->conf.n_ports; i++)
		up += c->conf.port[i].link_up == 1;
	if (s->stopping)
		snprintf(text, sizeof(text), "stopping: %" PRIu64 " jobs",
			pbox_stat_get(&c->registrar_stat[PBOX_RS_JOBS]));
	else if (late < c->conf.n_cores && c->now_ns - s->sign_ns >= STATUS_EVERY)
		snprintf(text, sizeof(text), "data core %u (lcore %u) does not turn", late,
			c->conf.core[late].lcore);
	else
		snprintf(text, sizeof(text),
			"serving: %" PRIu64 " jobs, %" PRIu64
			" workers; %u of %u ports have a link",
			pbox_stat_get(&c->registrar_stat[PBOX_RS_JOBS]),
			pbox_stat_get(&c->registrar_stat[PBOX_RS_WORKERS]), up, c->conf.n_ports);
	s->status_at = c->now_ns + STATUS_EVERY;
	if (strcmp(text, s->status) != 0 && pbox_notify_send(c->conf.notify, "STATUS=%s", text))
		memcpy(s->status, text, sizeof(text));
}

void
service_step(struct pbox_control *c)
{
	struct service *s = &c->service;
	uint64_t every = STATUS_EVERY;

	if (c->conf.notify == NULL || c->now_ns < s->look_at)
		return;
	if (c->conf.notify->watchdog_ns > 0 && c->conf.notify->watchdog_ns / LOOKS < every)
		every = c->conf.notify->watchdog_ns / LOOKS;
	if (!s->ready && still(c) < c->conf.n_cores)
		return; /* soon */
	s->look_at = c->now_ns + every;
	if (!s->ready)
		s->ready = sign(c, "READY=1");
	else if (still(c) == c->conf.n_cores)
		sign(c, c->conf.notify->watchdog_ns > 0 ? "WATCHDOG=1" : NULL);
	if (c->now_ns >= s->status_at)
		status(c);
}

void
service_stopping(struct pbox_control *c)
{
	if (c->conf.notify == NULL || c->service.stopping)
		return;
	c->service.stopping = true;
	pbox_notify_send(c->conf.notify, "STOPPING=1");
	status(c);
}
