/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <string.h>

#include "conf_priv.h"

/* Find the item and option of an address in the target; option = n_options: the item itself. */
static bool
locate(const struct pbox_conf *conf, const void *member, struct conf_item *it, unsigned *option)
{
	const struct pbox_conf_table *t = conf->table;
	const char *at = member;

	/* from the last section to the first: the global options are not a closed range */
	for (unsigned s = t->n_sections; s-- > 0;) {
		const struct pbox_conf_section *sec = &t->sections[s];

		it->section = s;
		it->item = 0;
		if (s > 0) {
			const char *first = conf_base(conf, *it);

			if (at < first || at >= first + sec->item_size * conf_count(conf, s))
				continue;
			it->item = (unsigned)((size_t)(at - first) / sec->item_size);
		}
		for (*option = 0; *option < sec->n_options; (*option)++)
			if (conf_base(conf, *it) + sec->options[*option].offset == at)
				return true;
		return s > 0 && conf_base(conf, *it) == at;
	}
	return false;
}

static const struct conf_origin *
origin_of(const struct pbox_conf *conf, struct conf_item it, unsigned option)
{
	if (option == conf->table->sections[it.section].n_options)
		return conf_item_origin(conf, it);
	return conf_value_origin(conf, it, option);
}

static void
format_origin(const struct pbox_conf *conf, const struct conf_origin *from, bool item, char *buf,
	size_t size)
{
	/* an item that the file opened is where the file says, a value where the last word fell */
	if (from->arg != 0 && !(item && from->line != 0))
		snprintf(buf, size, "command line");
	else if (from->line != 0)
		snprintf(buf, size, "%s line %u", conf->file, from->line);
	else
		snprintf(buf, size, "default");
}

enum pbox_conf_source
pbox_conf_source(const struct pbox_conf *conf, const void *member)
{
	const struct conf_origin *from;
	struct conf_item it;
	unsigned option;
	bool found;

	found = locate(conf, member, &it, &option);
	PBOX_ASSERT(found);
	from = origin_of(conf, it, option);
	if (from->arg != 0)
		return PBOX_CONF_ARGS;
	return from->line != 0 ? PBOX_CONF_FILE : PBOX_CONF_DEFAULT;
}

const char *
pbox_conf_where(const struct pbox_conf *conf, const void *member, char *buf, size_t size)
{
	const struct pbox_conf_section *s;
	char in[PBOX_CONF_NAME_MAX + 80] = "", value[PBOX_CONF_LINE_MAX], origin[CONF_PLACE_MAX];
	struct conf_item it;
	unsigned option;
	bool item, found;

	found = locate(conf, member, &it, &option);
	PBOX_ASSERT(found);
	s = &conf->table->sections[it.section];
	item = option == s->n_options;
	if (it.section != 0)
		snprintf(
			in, sizeof(in), "[%s %s]%s", s->name, conf_base(conf, it), item ? "" : " ");
	format_origin(conf, origin_of(conf, it, option), item, origin, sizeof(origin));
	if (item) {
		snprintf(buf, size, "%s (%s)", in, origin);
		return buf;
	}
	conf_format(&s->options[option], member, value, sizeof(value));
	if (value[0] == '\0')
		snprintf(value, sizeof(value), "(not set)");
	snprintf(buf, size, "%s%s = %s (%s)", in, s->options[option].name, value, origin);
	return buf;
}

static bool
needs_quotes(const char *value)
{
	size_t n = strlen(value);

	return strpbrk(value, "#;\"\\") != NULL || value[0] == ' ' ||
	       (n > 0 && value[n - 1] == ' ');
}

static void
dump_quoted(const char *value, FILE *to)
{
	fputc('"', to);
	for (; *value != '\0'; value++) {
		if (*value == '"' || *value == '\\')
			fputc('\\', to);
		fputc(*value, to);
	}
	fputc('"', to);
}

static void
dump_option(const struct pbox_conf *conf, struct conf_item it, unsigned option, FILE *to)
{
	const struct pbox_conf_option *o = &conf->table->sections[it.section].options[option];
	char value[PBOX_CONF_LINE_MAX], origin[CONF_PLACE_MAX];

	conf_format(o, conf_base(conf, it) + o->offset, value, sizeof(value));
	format_origin(conf, conf_value_origin(conf, it, option), false, origin, sizeof(origin));
	if (value[0] == '\0') {
		fprintf(to, "# %s is not set\n", o->name);
		return;
	}
	fprintf(to, "%s%s = ",
		o->type == PBOX_CONF_SECRET || (o->flags & PBOX_CONF_CLI_ONLY) ? "# " : "",
		o->name);
	if (needs_quotes(value))
		dump_quoted(value, to);
	else
		fputs(value, to);
	fprintf(to, "  # %s\n", origin);
}

void
pbox_conf_dump(const struct pbox_conf *conf, FILE *to)
{
	const struct pbox_conf_table *t = conf->table;

	for (unsigned s = 0; s < t->n_sections; s++) {
		struct conf_item it = {s, 0};

		for (; it.item < conf_count(conf, s); it.item++) {
			if (s > 0)
				fprintf(to, "\n[%s %s]\n", t->sections[s].name,
					conf_base(conf, it));
			for (unsigned i = 0; i < t->sections[s].n_options; i++)
				dump_option(conf, it, i, to);
		}
	}
}
