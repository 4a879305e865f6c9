/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
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
tell_error(struct rte_tel_data *d, const char *fmt, ...)
{
	char text[RTE_TEL_MAX_STRING_LEN];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	tell_text(d, "error", "%s", text);
}

bool
tell_number(const char *text, unsigned max, unsigned *out)
{
	unsigned long n = 0;

	if (*text == '\0')
		return false;
	for (; *text != '\0'; text++) {
		if (*text < '0' || *text > '9')
			return false;
		n = n * 10 + (unsigned)(*text - '0');
		if (n > max)
			return false;
	}
	*out = (unsigned)n;
	return true;
}

int
tell_words(const char *params, char word[][TELL_WORD], unsigned n)
{
	unsigned k = 0;

	if (params == NULL || *params == '\0')
		return 0;
	for (;;) {
		size_t len = k + 1 < n ? strcspn(params, ",") : strlen(params);

		if (len >= TELL_WORD)
			return -1;
		memcpy(word[k], params, len);
		word[k++][len] = '\0';
		if (params[len] == '\0')
			return (int)k;
		params += len + 1;
	}
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
