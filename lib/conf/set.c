/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Values of options by origin: default, file, environment, command line. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "conf_priv.h"

static unsigned
items_max(const struct pbox_conf_table *t, unsigned section)
{
	return section == 0 ? 1 : t->sections[section].max;
}

/* Index of the first item of a section, and of its first value, in the arrays of origins. */
static size_t
first_item(const struct pbox_conf_table *t, unsigned section)
{
	size_t n = 0;

	for (unsigned s = 0; s < section; s++)
		n += items_max(t, s);
	return n;
}

static size_t
first_value(const struct pbox_conf_table *t, unsigned section)
{
	size_t n = 0;

	for (unsigned s = 0; s < section; s++)
		n += (size_t)items_max(t, s) * t->sections[s].n_options;
	return n;
}

struct conf_origin *
conf_item_origin(const struct pbox_conf *conf, struct conf_item it)
{
	return &conf->items[first_item(conf->table, it.section) + it.item];
}

struct conf_origin *
conf_value_origin(const struct pbox_conf *conf, struct conf_item it, unsigned option)
{
	return &conf->values[first_value(conf->table, it.section) +
			     (size_t)it.item * conf->table->sections[it.section].n_options +
			     option];
}

char *
conf_base(const struct pbox_conf *conf, struct conf_item it)
{
	const struct pbox_conf_section *s = &conf->table->sections[it.section];

	if (it.section == 0)
		return conf->target;
	return conf->target + s->items_at + it.item * s->item_size;
}

unsigned
conf_count(const struct pbox_conf *conf, unsigned section)
{
	if (section == 0)
		return 1;
	return *(const unsigned *)(conf->target + conf->table->sections[section].count_at);
}

const char *
conf_place(const struct pbox_conf *conf, struct conf_place at, char buf[CONF_PLACE_MAX])
{
	if (at.arg != 0)
		snprintf(buf, CONF_PLACE_MAX, "command line");
	else
		snprintf(buf, CONF_PLACE_MAX, "%s line %u", conf->file, at.line);
	return buf;
}

/* The values that a fresh item, or the target, starts with. */
static void
set_defaults(const struct pbox_conf *conf, struct conf_item it)
{
	const struct pbox_conf_section *s = &conf->table->sections[it.section];
	char why[256];

	for (unsigned i = 0; i < s->n_options; i++) {
		const struct pbox_conf_option *o = &s->options[i];
		char *member = conf_base(conf, it) + o->offset;
		size_t size = conf_type_size(o->type);

		PBOX_ASSERT(size == 0 ? o->size > 1 : o->size == size);
		PBOX_ASSERT(o->type != PBOX_CONF_ENUM || o->names != NULL);
		PBOX_ASSERT(o->name != NULL && o->brief != NULL);
		memset(member, 0, o->size);
		if (o->def != NULL) {
			int rc = conf_parse(o, o->def, member, why, sizeof(why));

			PBOX_ASSERT(rc == 0);
		}
	}
}

struct pbox_conf *
pbox_conf_new(const struct pbox_conf_table *table, void *target, struct pbox_error *err)
{
	struct pbox_conf *conf = calloc(1, sizeof(*conf));
	struct conf_item global = {0, 0};

	PBOX_ASSERT(table->n_sections > 0 && table->sections[0].name[0] == '\0');
	if (conf == NULL)
		goto no_memory;
	conf->table = table;
	conf->target = target;
	conf->items = calloc(first_item(table, table->n_sections), sizeof(*conf->items));
	conf->values = calloc(first_value(table, table->n_sections), sizeof(*conf->values));
	if (conf->items == NULL || conf->values == NULL)
		goto no_memory;
	for (unsigned s = 1; s < table->n_sections; s++)
		memset(conf->target + table->sections[s].count_at, 0, sizeof(unsigned));
	set_defaults(conf, global);
	return conf;

no_memory:
	pbox_fail(err, ENOMEM, "no memory for the configuration");
	pbox_conf_free(conf);
	return NULL;
}

void
pbox_conf_free(struct pbox_conf *conf)
{
	if (conf == NULL)
		return;
	free(conf->items);
	free(conf->values);
	free(conf);
}

static int
check_new_item(const struct pbox_conf *conf, struct conf_place at,
	const struct pbox_conf_section *s, const char *name, struct pbox_error *err)
{
	char place[CONF_PLACE_MAX];
	struct pbox_error inner;
	size_t n = strlen(name);

	conf_place(conf, at, place);
	if (n == 0)
		return pbox_fail(err, EINVAL, "%s: [%s] needs a name: [%s %s]", place, s->name,
			s->name, s->sample_name);
	if (n > PBOX_CONF_NAME_MAX)
		return pbox_fail(err, EINVAL, "%s: the name of the [%s] is longer than %d bytes",
			place, s->name, PBOX_CONF_NAME_MAX);
	for (size_t i = 0; i < n; i++)
		if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f || name[i] == ']')
			return pbox_fail(err, EINVAL,
				"%s: the name of the [%s] holds a ] or a control character", place,
				s->name);
	if (s->check_name != NULL && s->check_name(name, &inner) != 0)
		return pbox_fail(err, EINVAL, "%s: [%s %s]: %s", place, s->name, name, inner.text);
	return 0;
}

int
conf_open_item(struct pbox_conf *conf, struct conf_place at, unsigned section, const char *name,
	struct conf_item *it, struct pbox_error *err)
{
	const struct pbox_conf_section *s = &conf->table->sections[section];
	unsigned n = conf_count(conf, section), i;
	struct conf_item found = {section, 0};
	struct conf_origin *from;
	char place[CONF_PLACE_MAX];
	int ret;

	for (i = 0; i < n; i++) {
		found.item = i;
		if (strcmp(conf_base(conf, found), name) == 0)
			break;
	}
	found.item = i;
	if (i == n) {
		ret = check_new_item(conf, at, s, name, err);
		if (ret != 0)
			return ret;
		if (n == s->max)
			return pbox_fail(err, EINVAL, "%s: too many [%s] sections: at most %u",
				conf_place(conf, at, place), s->name, s->max);
		memset(conf_base(conf, found), 0, s->item_size);
		memcpy(conf_base(conf, found), name, strlen(name));
		set_defaults(conf, found);
		n++;
		memcpy(conf->target + s->count_at, &n, sizeof(n));
	}
	from = conf_item_origin(conf, found);
	if (at.line != 0 && from->line != 0)
		return pbox_fail(err, EINVAL,
			"%s: [%s %s] is in line %u already: put its options there",
			conf_place(conf, at, place), s->name, name, from->line);
	if (at.line != 0)
		from->line = at.line;
	else if (from->arg == 0)
		from->arg = at.arg;
	*it = found;
	return 0;
}

/* "'mtu' belongs to [port NAME]", or what is spelt alike, or where to look. */
static int
unknown_option(const struct pbox_conf *conf, struct conf_place at, unsigned section,
	const char *key, struct pbox_error *err)
{
	const struct pbox_conf_table *t = conf->table;
	struct conf_nearest near = {.word = key};
	char place[CONF_PLACE_MAX], in[96] = "";

	conf_place(conf, at, place);
	if (section != 0)
		snprintf(in, sizeof(in), " in [%s]", t->sections[section].name);
	for (unsigned s = 0; s < t->n_sections; s++) {
		for (unsigned i = 0; i < t->sections[s].n_options; i++) {
			const struct pbox_conf_option *o = &t->sections[s].options[i];

			if (s == section) {
				if (at.arg != 0 || !(o->flags & PBOX_CONF_CLI_ONLY))
					conf_nearer(&near, o->name);
			} else if (strcmp(o->name, key) == 0 && s == 0) {
				return pbox_fail(err, EINVAL, "%s: '%s' is a global option: %s",
					place, key,
					at.arg != 0 ? "give it by itself"
						    : "write it above the first section");
			} else if (strcmp(o->name, key) == 0 && at.arg != 0) {
				return pbox_fail(err, EINVAL,
					"%s: '%s' belongs to a %s: write --%s NAME:%s=VALUE", place,
					key, t->sections[s].name, t->sections[s].name, key);
			} else if (strcmp(o->name, key) == 0) {
				return pbox_fail(err, EINVAL, "%s: '%s' belongs to [%s NAME]",
					place, key, t->sections[s].name);
			}
		}
		if (section == 0 && s > 0 && at.arg != 0)
			conf_nearer(&near, t->sections[s].name);
	}
	if (near.best != NULL)
		return pbox_fail(err, EINVAL, "%s: unknown option '%.64s'%s: did you mean '%s'?",
			place, key, in, near.best);
	return pbox_fail(err, EINVAL, "%s: unknown option '%.64s'%s: '--help all' lists them",
		place, key, in);
}

int
conf_find_option(struct pbox_conf *conf, struct conf_place at, unsigned section, const char *key,
	struct pbox_error *err)
{
	const struct pbox_conf_section *s = &conf->table->sections[section];
	char place[CONF_PLACE_MAX];

	for (unsigned i = 0; i < s->n_options; i++) {
		if (strcmp(s->options[i].name, key) != 0)
			continue;
		if (at.arg == 0 && (s->options[i].flags & PBOX_CONF_CLI_ONLY))
			return pbox_fail(err, EINVAL,
				"%s: '%s' can only be given on the command line: --%s",
				conf_place(conf, at, place), key, key);
		return (int)i;
	}
	return unknown_option(conf, at, section, key, err);
}

static int
given_twice(const struct pbox_conf *conf, struct conf_place at, struct conf_item it,
	const struct pbox_conf_option *o, const struct conf_origin *from, struct pbox_error *err)
{
	const struct pbox_conf_section *s = &conf->table->sections[it.section];
	char in[PBOX_CONF_NAME_MAX + 80] = "";

	if (it.section != 0)
		snprintf(in, sizeof(in), " of [%s %s]", s->name, conf_base(conf, it));
	if (at.arg != 0)
		return pbox_fail(err, EINVAL,
			"command line: '%s'%s is given twice, in arguments %u and %u", o->name, in,
			from->arg, at.arg);
	return pbox_fail(err, EINVAL, "%s line %u: '%s'%s is given twice: first in line %u",
		conf->file, at.line, o->name, in, from->line);
}

int
conf_set(struct pbox_conf *conf, struct conf_place at, struct conf_item it, unsigned option,
	const char *text, struct pbox_error *err)
{
	const struct pbox_conf_section *s = &conf->table->sections[it.section];
	const struct pbox_conf_option *o = &s->options[option];
	struct conf_origin *from = conf_value_origin(conf, it, option);
	char place[CONF_PLACE_MAX], in[PBOX_CONF_NAME_MAX + 80] = "", why[256];
	union {
		char bytes[PBOX_CONF_LINE_MAX];
		uint64_t align;
	} parsed;
	int ret;

	if (at.arg != 0 ? from->arg != 0 : from->line != 0)
		return given_twice(conf, at, it, o, from, err);
	PBOX_ASSERT(o->size <= sizeof(parsed));
	ret = conf_parse(o, text, &parsed, why, sizeof(why));
	if (ret != 0) {
		if (it.section != 0)
			snprintf(in, sizeof(in), "[%s %s] ", s->name, conf_base(conf, it));
		conf_place(conf, at, place);
		if (o->type == PBOX_CONF_SECRET || *text == '\0')
			return pbox_fail(err, EINVAL, "%s: %s%s: %s", place, in, o->name, why);
		return pbox_fail(
			err, EINVAL, "%s: %s%s: '%.64s' %s", place, in, o->name, text, why);
	}
	if (at.arg != 0)
		from->arg = at.arg;
	else
		from->line = at.line;
	if (at.arg != 0 || from->arg == 0) /* the command line wins whatever comes first */
		memcpy(conf_base(conf, it) + o->offset, &parsed, o->size);
	explicit_bzero(&parsed, sizeof(parsed));
	return 0;
}

int
pbox_conf_complete(const struct pbox_conf *conf, struct pbox_error *err)
{
	const struct pbox_conf_table *t = conf->table;
	char where[256];

	for (unsigned s = 0; s < t->n_sections; s++) {
		struct conf_item it = {s, 0};

		for (; it.item < conf_count(conf, s); it.item++) {
			for (unsigned i = 0; i < t->sections[s].n_options; i++) {
				const struct pbox_conf_option *o = &t->sections[s].options[i];
				const struct conf_origin *from = conf_value_origin(conf, it, i);

				if (!(o->flags & PBOX_CONF_REQUIRED) || from->line != 0 ||
					from->arg != 0)
					continue;
				pbox_conf_where(conf, conf_base(conf, it), where, sizeof(where));
				return pbox_fail(err, EINVAL, "%s has no '%s': add %s = %s",
					s > 0 ? where : "the configuration", o->name, o->name,
					o->example != NULL ? o->example : "...");
			}
		}
	}
	return 0;
}
