/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "reply.h"

/* In place of one that cannot be allocated: filled, and never sent. */
static struct rte_tel_data *spare;

struct rte_tel_data *
reply_dict(void)
{
	struct rte_tel_data *d = rte_tel_data_alloc();

	if (d == NULL)
		d = spare;
	PBOX_ASSERT(d != NULL);
	rte_tel_data_start_dict(d);
	return d;
}

bool
reply_begin(void)
{
	if (spare == NULL)
		spare = rte_tel_data_alloc();
	return spare != NULL;
}

void
reply_drop(struct rte_tel_data *d)
{
	if (d != spare)
		rte_tel_data_free(d);
}

void
reply_add(struct rte_tel_data *all, const char *name, struct rte_tel_data *d)
{
	if (all == spare || (d != spare && rte_tel_data_add_dict_container(all, name, d, 0) != 0))
		reply_drop(d);
}

void
reply_add_numbered(struct rte_tel_data *all, const char *prefix, unsigned i, struct rte_tel_data *d)
{
	char name[48];

	snprintf(name, sizeof(name), "%s_%u", prefix, i);
	reply_add(all, name, d);
}

/* In parts, each a string of its own: what is too long for NAME goes on under NAME_more. */
static void
reply_parts(struct rte_tel_data *d, const char *name, const char *text)
{
	char key[64], part[RTE_TEL_MAX_STRING_LEN];
	unsigned n = 0;

	snprintf(key, sizeof(key), "%s", name);
	do {
		text = utf7_encode(text, part, sizeof(part));
		rte_tel_data_add_dict_string(d, key, part);
		snprintf(key + strlen(key), sizeof(key) - strlen(key), "_more");
	} while (*text != '\0' && ++n < REPLY_PARTS);
}

void
reply_text(struct rte_tel_data *d, const char *name, const char *fmt, ...)
{
	char text[REPLY_TEXT];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	reply_parts(d, name, text);
}

void
reply_values(struct rte_tel_data *d, enum pbox_control_table which, const uint64_t *v)
{
	const struct pbox_stats_table *t = &pbox_control_tables[which];

	for (unsigned i = 0; i < t->n; i++)
		rte_tel_data_add_dict_u64(d, t->defs[i].name, pbox_stat_get(&v[i]));
}

static _Thread_local char reply_last_error[REPLY_TEXT];

void
reply_begin_one(void)
{
	reply_last_error[0] = '\0';
}

const char *
reply_refused(void)
{
	return reply_last_error;
}

void
reply_error(struct rte_tel_data *d, const char *fmt, ...)
{
	char *text = reply_last_error;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(reply_last_error), fmt, ap);
	va_end(ap);
	reply_parts(d, "error", text);
}

const struct pbox_job *
reply_job(struct pbox_control *c, const char *name, struct rte_tel_data *d)
{
	static const char by_name[] = "name:";
	const struct pbox_registrar *r = c->registrar;
	const struct pbox_job *job = pbox_registrar_job_named(r, name);
	unsigned number;

	if (job == NULL && strncmp(name, by_name, strlen(by_name)) == 0)
		job = pbox_registrar_job_named(r, name + strlen(by_name));
	else if (job == NULL &&
		 params_number(name[0] == '#' ? name + 1 : name, UINT16_MAX, &number))
		job = pbox_registrar_job_numbered(r, number);
	if (job == NULL)
		reply_error(d,
			"no job of that name or number has workers now: /pbox/jobs names those that have");
	return job;
}

const struct pbox_job *
reply_job_workers(struct pbox_control *c, const char *command, int n, char word[][PARAM_SIZE],
	struct pbox_job_view *j, unsigned *first, struct rte_tel_data *d)
{
	const struct pbox_job *job;

	if (n == 0) {
		reply_error(d, "which job? /pbox/%s,JOB[,FIRST]", command);
		return NULL;
	}
	job = reply_job(c, word[0], d);
	if (job == NULL)
		return NULL;
	pbox_registrar_view_job(c->registrar, job, j);
	if (n > 1 && !params_number(word[1], j->workers - 1u, first)) {
		reply_error(d, "FIRST is a worker of the job, 0 to %u", j->workers - 1u);
		return NULL;
	}
	return job;
}

const char *
reply_address(uint32_t ip, uint16_t udp, char buf[REPLY_ADDRESS])
{
	char text[INET_ADDRSTRLEN] = "?";

	inet_ntop(AF_INET, &ip, text, sizeof(text));
	snprintf(buf, REPLY_ADDRESS, "%s:%u", text, udp);
	return buf;
}
