/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "reply.h"

#define PAGE 10 /* of an answer: its texts take 1.3 KiB each at most, as reply_text() cuts them */

/* DPDK serves each connection by a thread of its own, which begins with it. */
static _Thread_local char commands_who[COMMANDS_WHO];

static uint64_t
unix_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void
commands_add(struct commands *s, const char *command, const char *params, const char *error)
{
	static const char folder[] = "/pbox/";
	bool given = params != NULL && params[0] != '\0';
	struct command_done d = {.unix_ms = unix_ms()};

	if (strncmp(command, folder, strlen(folder)) == 0)
		command += strlen(folder);
	snprintf(d.who, sizeof(d.who), "%s", commands_who);
	snprintf(d.what, sizeof(d.what), "%s%s%s", command, given ? "," : "", given ? params : "");
	snprintf(d.error, sizeof(d.error), "%s", error != NULL ? error : "");
	pbox_mask(d.what);
	pbox_mask(d.error);
	pthread_mutex_lock(&s->lock);
	s->done[s->n++ % COMMANDS_KEPT] = d;
	pthread_mutex_unlock(&s->lock);
	pbox_log(PBOX_LOG_INFO, "command of %s: %s: %s", d.who[0] != '\0' ? d.who : "(not said)",
		d.what, d.error[0] != '\0' ? d.error : "done");
}

/* What this connection says of who uses it. */
static void
on_as(struct pbox_control *c __rte_unused, int n, char word[][PARAM_SIZE], struct rte_tel_data *d)
{
	if (n != 1 || word[0][0] == '\0' || strlen(word[0]) >= COMMANDS_WHO) {
		reply_error(d, "who? /pbox/as,LOGIN, of %d bytes at most", COMMANDS_WHO - 1);
		return;
	}
	snprintf(commands_who, sizeof(commands_who), "%s", word[0]);
	pbox_mask(commands_who);
	reply_text(d, "as", "%s", commands_who);
}

static void
on_commands(struct pbox_control *c, int n, char word[][PARAM_SIZE], struct rte_tel_data *d)
{
	struct commands *s = &c->commands;
	uint64_t oldest, at;
	unsigned first = 0;

	if (n > 0 && !params_number(word[0], UINT32_MAX, &first)) {
		reply_error(d, "FIRST is the number of a command");
		return;
	}
	pthread_mutex_lock(&s->lock);
	oldest = s->n > COMMANDS_KEPT ? s->n - COMMANDS_KEPT + 1 : 1;
	rte_tel_data_add_dict_u64(d, "unix_ms", unix_ms());
	rte_tel_data_add_dict_u64(d, "commands", s->n);
	rte_tel_data_add_dict_u64(d, "oldest", oldest);
	at = first > oldest ? first : oldest;
	for (uint64_t end = at + PAGE; at <= s->n && at < end; at++) {
		const struct command_done *done = &s->done[(at - 1) % COMMANDS_KEPT];
		struct rte_tel_data *x = reply_dict();

		rte_tel_data_add_dict_u64(x, "unix_ms", done->unix_ms);
		reply_text(x, "who", "%s", done->who);
		reply_text(x, "what", "%s", done->what);
		if (done->error[0] != '\0')
			reply_text(x, "error", "%s", done->error);
		reply_add_numbered(d, "command", (unsigned)at, x);
	}
	if (at <= s->n)
		rte_tel_data_add_dict_u64(d, "next", at);
	pthread_mutex_unlock(&s->lock);
}

const struct telemetry_command commands_telemetry[] = {
	{"/pbox/as", 1, on_as, "Who uses this connection, for /pbox/commands. Parameter: LOGIN."},
	{"/pbox/commands", 1, on_commands,
		"The latest commands that changed something. Parameter, to go on: FIRST."},
	{0},
};
