/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>

#include "conf_priv.h"

static void
format_number(enum pbox_conf_type type, uint64_t v, char *buf, size_t size)
{
	static const struct {
		uint64_t factor;
		const char *suffix;
	} sizes[] = {{1u << 30, "G"}, {1u << 20, "M"}, {1u << 10, "K"}},
	  times[] = {{1000000000, "s"}, {1000000, "ms"}, {1000, "us"}};

	for (unsigned i = 0; i < 3 && v != 0; i++) {
		if (type == PBOX_CONF_SIZE && v % sizes[i].factor == 0) {
			snprintf(buf, size, "%" PRIu64 "%s", v / sizes[i].factor, sizes[i].suffix);
			return;
		}
		if (type == PBOX_CONF_DURATION && v % times[i].factor == 0) {
			snprintf(buf, size, "%" PRIu64 "%s", v / times[i].factor, times[i].suffix);
			return;
		}
	}
	snprintf(buf, size, "%" PRIu64, v);
}

static void
format_cores(const struct pbox_conf_cores *set, char *buf, size_t size)
{
	size_t used = 0;

	buf[0] = '\0';
	for (unsigned i = 0; i < PBOX_CONF_CORES_MAX && used < size; i++) {
		unsigned to = i;

		if (!pbox_conf_core_in(set, i))
			continue;
		while (pbox_conf_core_in(set, to + 1))
			to++;
		used += (size_t)snprintf(buf + used, size - used, used > 0 ? ",%u" : "%u", i);
		if (to > i && used < size)
			used += (size_t)snprintf(buf + used, size - used, "-%u", to);
		i = to;
	}
}

static bool
is_zero(const void *member, size_t size)
{
	const uint8_t *b = member;

	for (size_t i = 0; i < size; i++)
		if (b[i] != 0)
			return false;
	return true;
}

void
conf_format(const struct pbox_conf_option *o, const void *member, char *buf, size_t size)
{
	char addr[INET_ADDRSTRLEN];
	int index;

	buf[0] = '\0';
	if (o->zero != NULL && is_zero(member, o->size)) {
		snprintf(buf, size, "%s", o->zero);
		return;
	}
	switch (o->type) {
	case PBOX_CONF_BOOL:
		snprintf(buf, size, "%s", *(const bool *)member ? "yes" : "no");
		return;
	case PBOX_CONF_U32:
		snprintf(buf, size, "%" PRIu32, *(const uint32_t *)member);
		return;
	case PBOX_CONF_U64:
	case PBOX_CONF_SIZE:
	case PBOX_CONF_DURATION:
		format_number(o->type, *(const uint64_t *)member, buf, size);
		return;
	case PBOX_CONF_ENUM:
		index = *(const int *)member - o->first;
		snprintf(buf, size, "%s", o->names[index]);
		return;
	case PBOX_CONF_IPV4:
		if (!is_zero(member, o->size))
			inet_ntop(AF_INET, member, buf, (socklen_t)size);
		return;
	case PBOX_CONF_PREFIX:
		if (is_zero(member, o->size))
			return;
		inet_ntop(AF_INET, ((const struct pbox_conf_prefix *)member)->addr, addr,
			sizeof(addr));
		snprintf(buf, size, "%s/%u", addr, ((const struct pbox_conf_prefix *)member)->len);
		return;
	case PBOX_CONF_CORES:
		format_cores(member, buf, size);
		return;
	case PBOX_CONF_SECRET:
		if (((const struct pbox_conf_secret *)member)->len > 0)
			snprintf(buf, size, "(set)");
		return;
	case PBOX_CONF_STRING:
	case PBOX_CONF_PATH:
		snprintf(buf, size, "%s", (const char *)member);
		return;
	}
}

/* "poll, yield or sleep"; for OPTIONAL_ARG without the first name, which means "not given" */
static void
format_names(const struct pbox_conf_option *o, char *buf, size_t size)
{
	size_t used = 0;

	for (unsigned i = o->flags & PBOX_CONF_OPTIONAL_ARG ? 1 : 0;
		o->names[i] != NULL && used < size; i++) {
		const char *sep = used == 0 ? "" : o->names[i + 1] == NULL ? " or " : ", ";

		used += (size_t)snprintf(buf + used, size - used, "%s%s", sep, o->names[i]);
	}
}

void
conf_format_range(const struct pbox_conf_option *o, char *buf, size_t size)
{
	char min[32], max[32];
	const char *unit = o->unit != NULL ? o->unit : "";
	size_t used = 0;

	buf[0] = '\0';
	switch (o->type) {
	case PBOX_CONF_U32:
	case PBOX_CONF_U64:
	case PBOX_CONF_SIZE:
	case PBOX_CONF_DURATION:
		if (o->max != 0) {
			format_number(o->type, o->min, min, sizeof(min));
			format_number(o->type, o->max, max, sizeof(max));
			used = (size_t)snprintf(buf, size, "%s to %s", min, max);
		} else if (o->min != 0) {
			format_number(o->type, o->min, min, sizeof(min));
			used = (size_t)snprintf(buf, size, "at least %s", min);
		}
		if (used > 0 && used < size)
			used += (size_t)snprintf(
				buf + used, size - used, "%s%s", unit[0] != '\0' ? " " : "", unit);
		if (used > 0 && used < size && o->zero != NULL)
			snprintf(buf + used, size - used, ", or %s", o->zero);
		return;
	case PBOX_CONF_ENUM:
		format_names(o, buf, size);
		return;
	default:
		return;
	}
}
