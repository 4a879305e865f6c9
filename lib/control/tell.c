/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "tell.h"

struct rte_tel_data *
tell_dict(void)
{
	struct rte_tel_data *d = rte_tel_data_alloc();

	PBOX_ASSERT(d != NULL);
	rte_tel_data_start_dict(d);
	return d;
}

void
tell_add(struct rte_tel_data *all, const char *name, struct rte_tel_data *d)
{
	if (rte_tel_data_add_dict_container(all, name, d, 0) != 0)
		rte_tel_data_free(d);
}

void
tell_add_numbered(struct rte_tel_data *all, const char *prefix, unsigned i, struct rte_tel_data *d)
{
	char name[48];

	snprintf(name, sizeof(name), "%s_%u", prefix, i);
	tell_add(all, name, d);
}

void
tell_text(struct rte_tel_data *d, const char *name, const char *fmt, ...)
{
	char text[RTE_TEL_MAX_STRING_LEN];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	/* JSON is made of it without another look */
	for (char *p = text; *p != '\0'; p++)
		if ((unsigned char)*p < 0x20 || *p == '"' || *p == '\\')
			*p = '\'';
	rte_tel_data_add_dict_string(d, name, text);
}

void
tell_values(struct rte_tel_data *d, enum pbox_control_table which, const uint64_t *v)
{
	const struct pbox_stats_table *t = &pbox_control_tables[which];

	for (unsigned i = 0; i < t->n; i++)
		rte_tel_data_add_dict_u64(d, t->defs[i].name, pbox_stat_get(&v[i]));
}

void
tell_error(struct rte_tel_data *d, const char *fmt, ...)
{
	char text[RTE_TEL_MAX_STRING_LEN];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	tell_text(d, "error", "%s", text);
}

const struct pbox_job *
tell_job(struct pbox_control *c, const char *name, struct rte_tel_data *d)
{
	const struct pbox_job *job;
	char number[16];

	for (unsigned i = 0; (job = pbox_registrar_job(c->registrar, i)) != NULL; i++) {
		snprintf(number, sizeof(number), "%u", job->id);
		if (strcmp(job->name, name) == 0 || strcmp(number, name) == 0)
			return job;
	}
	tell_error(d, "no job of that name or number");
	return NULL;
}

const char *
tell_address(uint32_t ip, uint16_t udp, char buf[TELL_ADDRESS])
{
	char text[INET_ADDRSTRLEN] = "?";

	inet_ntop(AF_INET, &ip, text, sizeof(text));
	snprintf(buf, TELL_ADDRESS, "%s:%u", text, udp);
	return buf;
}
