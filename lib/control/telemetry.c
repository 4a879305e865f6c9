/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "health.h"
#include "reply.h"

#define STOP_TIME 5 /* seconds */

/* Commands cannot be taken back: they find no control when it has gone. */
static const struct telemetry_command *const commands[] = {telemetry_box_commands,
	telemetry_job_commands, telemetry_work_commands, telemetry_times_commands,
	telemetry_set_commands, telemetry_rack_commands, commands_telemetry};
static struct {
	pthread_mutex_t lock;
	struct pbox_control *c;
	bool registered;
} tel = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int
on_why(const char *cmd __rte_unused, const char *params, struct rte_tel_data *d)
{
	pthread_mutex_lock(&tel.lock);
	if (tel.c != NULL && params != NULL && params[0] != '\0') {
		control_why(tel.c, params, d);
	} else {
		rte_tel_data_start_dict(d);
		if (tel.c != NULL)
			reply_error(d, "which job? /pbox/why,JOB");
	}
	pthread_mutex_unlock(&tel.lock);
	return 0;
}

static int
on_agent(const char *cmd __rte_unused, const char *params, struct rte_tel_data *d)
{
	struct pbox_control *c = telemetry_lock();

	rte_tel_data_start_dict(d);
	if (c != NULL)
		control_agent(c, params, d);
	else
		reply_error(d, "the box is stopping");
	telemetry_unlock(c);
	return 0;
}

#define DIFFERENCES 32 /* that an answer has room for */

struct difference_to {
	struct rte_tel_data *d;
	unsigned n;
};

static void
add_difference(void *to, bool restart, const char *text)
{
	struct difference_to *t = to;
	struct rte_tel_data *x;

	if (t->n < DIFFERENCES) {
		x = reply_dict();
		reply_text(x, "text", "%s", text);
		reply_text(x, "holds", "%s", restart ? "after a restart" : "after a reload");
		reply_add_numbered(t->d, "difference", t->n, x);
	}
	t->n++;
}

/* With the telemetry's lock alone: a disk may not answer. */
static int
on_config(const char *cmd __rte_unused, const char *params __rte_unused, struct rte_tel_data *d)
{
	struct pbox_control *c = telemetry_hold();
	struct difference_to to = {.d = d};
	struct pbox_error err = {.text = "not known here"};

	rte_tel_data_start_dict(d);
	if (c == NULL)
		reply_error(d, "the box is stopping");
	else if (c->conf.compare == NULL ||
		 c->conf.compare(c->conf.reload_ctx, add_difference, &to, &err) != 0)
		reply_error(d, "%s", err.text);
	else
		rte_tel_data_add_dict_u64(d, "differences", to.n);
	telemetry_release();
	return 0;
}

static int
on_report(const char *cmd __rte_unused, const char *params __rte_unused, struct rte_tel_data *d)
{
	rte_tel_data_start_array(d, RTE_TEL_STRING_VAL);
	pthread_mutex_lock(&tel.lock);
	for (const char *p = tel.c != NULL ? tel.c->conf.report : NULL; p != NULL && *p != '\0';) {
		size_t n = strcspn(p, "\n");
		char part[RTE_TEL_MAX_STRING_LEN], *line = strndup(p, n);

		/* a string has 127 bytes here: longer lines go on in the next */
		for (const char *rest = line; rest != NULL && *rest != '\0';) {
			rest = utf7_encode(rest, part, sizeof(part));
			rte_tel_data_add_array_string(d, part);
		}
		free(line);
		p += n;
		p += *p == '\n';
	}
	pthread_mutex_unlock(&tel.lock);
	return 0;
}

#define WORDS 3

static void
telemetry_run(const struct telemetry_command *k, struct pbox_control *c, const char *params,
	struct rte_tel_data *d)
{
	char word[WORDS][PARAM_SIZE];
	int n = params_split(params, word, WORDS);

	reply_begin_one();
	if (c == NULL)
		reply_error(d, "the box is stopping");
	else if (n < 0)
		reply_error(d, "a parameter is longer than %u bytes", PARAM_SIZE - 1);
	else if ((unsigned)n > k->words)
		reply_error(d, "%s takes %u parameters at most", k->name, k->words);
	else
		k->fn(c, n, word, d);
	if (c != NULL && k->changes > 0 && (n < 0 || n >= k->changes))
		commands_add(&c->commands, k->name, params, reply_refused());
}

static int
on_command(const char *cmd, const char *params, struct rte_tel_data *d)
{
	struct pbox_control *c = telemetry_lock();

	rte_tel_data_start_dict(d);
	for (unsigned i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		for (const struct telemetry_command *k = commands[i]; k->name != NULL; k++)
			if (strcmp(cmd, k->name) == 0)
				telemetry_run(k, c, params, d);
	telemetry_unlock(c);
	return 0;
}

struct pbox_control *
telemetry_lock(void)
{
	pthread_mutex_lock(&tel.lock);
	if (tel.c != NULL)
		pthread_mutex_lock(&tel.c->lock);
	return tel.c;
}

void
telemetry_unlock(struct pbox_control *c)
{
	if (c != NULL)
		pthread_mutex_unlock(&c->lock);
	pthread_mutex_unlock(&tel.lock);
}

struct pbox_control *
telemetry_hold(void)
{
	pthread_mutex_lock(&tel.lock);
	return tel.c;
}

void
telemetry_release(void)
{
	pthread_mutex_unlock(&tel.lock);
}

void
telemetry_start(struct pbox_control *c)
{
	pthread_mutex_lock(&tel.lock);
	tel.c = c;
	if (!tel.registered && reply_begin()) {
		for (unsigned i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
			for (const struct telemetry_command *k = commands[i]; k->name != NULL; k++)
				rte_telemetry_register_cmd(k->name, on_command, k->help);
		rte_telemetry_register_cmd("/pbox/why", on_why,
			"What a job waits for: workers, tables, rounds. Parameter: its name or number.");
		rte_telemetry_register_cmd(
			"/pbox/report", on_report, "The start-up report: ports, cores, memory.");
		rte_telemetry_register_cmd("/pbox/config", on_config,
			"What the files of the configuration say now, and does not hold.");
		snapshot_telemetry();
		rte_telemetry_register_cmd("/pbox/agent", on_agent,
			"What pbox-agent says of the fleet. Parameters, from it: SECONDS[,HARMFUL,TEXT|NEXT].");
		tel.registered = true;
	}
	pthread_mutex_unlock(&tel.lock);
}

bool
telemetry_stop(void)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += STOP_TIME;
	/* a wish to restore waits for the disk */
	if (pthread_mutex_timedlock(&tel.lock, &until) != 0) {
		pbox_log(PBOX_LOG_ERROR,
			"a command of telemetry has not ended %d s after the stop: does a disk not answer? The box ends without it",
			STOP_TIME);
		return false;
	}
	tel.c = NULL;
	pthread_mutex_unlock(&tel.lock);
	return true;
}
