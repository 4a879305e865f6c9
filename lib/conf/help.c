/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <string.h>

#include "conf_priv.h"
#include "conf_write.h"

#define COLUMN 29 /* where the explanation starts */
#define WIDTH  79

const char *
conf_argument(const struct pbox_conf_option *o)
{
	switch (o->type) {
	case PBOX_CONF_BOOL:
		return "";
	case PBOX_CONF_U32:
	case PBOX_CONF_U64:
		return "N";
	case PBOX_CONF_SIZE:
		return "SIZE";
	case PBOX_CONF_DURATION:
		return "TIME";
	case PBOX_CONF_STRING:
		return "TEXT";
	case PBOX_CONF_PATH:
		return "FILE";
	case PBOX_CONF_ENUM:
		return "WORD";
	case PBOX_CONF_IPV4:
		return "ADDRESS";
	case PBOX_CONF_PREFIX:
		return "ADDRESS/LENGTH";
	case PBOX_CONF_CORES:
		return "CORES";
	case PBOX_CONF_SECRET:
		return "SECRET";
	}
	return "";
}

void
conf_wrap(const char *text, const char *indent, size_t used, size_t width, FILE *to)
{
	size_t margin = strlen(indent), column = used;

	while (*text != '\0') {
		size_t n = strcspn(text, " ");

		if (column > margin && column + 1 + n > width) {
			fprintf(to, "\n%s", indent);
			column = margin;
		} else if (column > margin) {
			fputc(' ', to);
			column++;
		}
		fprintf(to, "%.*s", (int)n, text);
		column += n;
		text += n;
		text += strspn(text, " ");
	}
	fputc('\n', to);
}

/* "  -c, --config FILE         ", in the file's form "  config = FILE" for sections */
static void
help_option(const struct pbox_conf_option *o, bool global, bool all, FILE *to)
{
	char left[96], text[1200], range[200], indent[COLUMN + 1];
	const char *argument = conf_argument(o);
	size_t used;

	if (!global)
		snprintf(left, sizeof(left), "  %s=%s", o->name,
			o->type == PBOX_CONF_BOOL ? "yes" : argument);
	else if (o->letter != 0)
		snprintf(left, sizeof(left), "  -%c, --%s", o->letter, o->name);
	else
		snprintf(left, sizeof(left), "      --%s", o->name);
	used = strlen(left);
	if (global && argument[0] != '\0')
		snprintf(left + used, sizeof(left) - used,
			o->flags & PBOX_CONF_OPTIONAL_ARG ? " [%s]" : " %s", argument);
	memset(indent, ' ', COLUMN);
	indent[COLUMN] = '\0';
	fprintf(to, "%-*s", COLUMN, left);
	used = strlen(left);
	if (used >= COLUMN) /* too wide: the text starts a line of its own */
		fprintf(to, "\n%s", indent);
	conf_format_range(o, range, sizeof(range));
	snprintf(text, sizeof(text), "%s%s%s%s%s%s%s%s%s", o->brief, o->def != NULL ? " [" : "",
		o->def != NULL ? o->def : "", o->def != NULL ? "]" : "",
		all && range[0] != '\0' ? "; " : "", all ? range : "",
		all && o->more != NULL ? ". " : "", all && o->more != NULL ? o->more : "",
		all && (o->flags & PBOX_CONF_REQUIRED) ? " (required)" : "");
	conf_wrap(text, indent, COLUMN, WIDTH, to);
}

/* The names of a section's options: address, mtu, ... */
static void
help_section_line(const struct pbox_conf_section *s, FILE *to)
{
	char text[512], indent[COLUMN + 1];
	size_t used = 0;

	for (unsigned i = 0; i < s->n_options && used < sizeof(text); i++)
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s",
			i > 0 ? ", " : "", s->options[i].name);
	memset(indent, ' ', COLUMN);
	indent[COLUMN] = '\0';
	fprintf(to, "      --%s NAME:KEY=VALUE,...\n%s", s->name, indent);
	conf_wrap(text, indent, COLUMN, WIDTH, to);
}

void
pbox_conf_help(const struct pbox_conf_table *table, bool all, FILE *to)
{
	fprintf(to, "Usage: %s\n%s\n\n", table->usage, table->summary);
	for (unsigned s = 0; s < table->n_sections; s++) {
		const struct pbox_conf_section *sec = &table->sections[s];

		if (s > 0 && !all) {
			if (!sec->spare)
				help_section_line(sec, to);
			continue;
		}
		if (s > 0) {
			fprintf(to, "\n--%s NAME:KEY=VALUE,KEY=VALUE,..., in the file [%s NAME]:\n",
				sec->name, sec->name);
			conf_wrap(sec->brief, "", 0, WIDTH, to);
		}
		for (unsigned i = 0; i < sec->n_options; i++)
			if (all || (sec->options[i].flags & PBOX_CONF_BASIC))
				help_option(&sec->options[i], s == 0, all, to);
	}
	fprintf(to, "\n%s\n", table->see);
}
