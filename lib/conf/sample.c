/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <string.h>

#include "conf_priv.h"
#include "conf_write.h"

#define WIDTH 79

static void
comment(const char *text, FILE *to)
{
	fputs("# ", to);
	conf_wrap(text, "# ", 2, WIDTH, to);
}

static void
sample_option(const struct pbox_conf_option *o, bool spare, FILE *to)
{
	const char *value = o->example != NULL ? o->example : o->def;
	char range[200], text[512];

	fputc('\n', to);
	conf_format_range(o, range, sizeof(range));
	snprintf(text, sizeof(text), "%c%s%s%s.%s%s%s", o->brief[0] & ~0x20, o->brief + 1,
		range[0] != '\0' ? ": " : "", range, o->def != NULL ? " Default: " : "",
		o->def != NULL ? o->def : "", o->def != NULL ? "." : "");
	comment(text, to);
	if (o->more != NULL)
		comment(o->more, to);
	spare = spare || !(o->flags & (PBOX_CONF_REQUIRED | PBOX_CONF_IN_SAMPLE));
	fprintf(to, "%s%s = %s\n", spare ? "#" : "", o->name, value != NULL ? value : "");
}

void
pbox_conf_sample(const struct pbox_conf_table *table, FILE *to)
{
	char text[256];

	snprintf(text, sizeof(text),
		"Configuration of %s. Take the # off a line like #key = value to set an option; the value is the default or an example.",
		table->program);
	comment(text, to);
	comment("Sizes take K, M, G (powers of 1024), times us, ms, s. A comment starts with # or ; at the beginning of a line or after a space; a value in double quotes is taken as it is. The command line overrides this file.",
		to);
	for (unsigned s = 0; s < table->n_sections; s++) {
		const struct pbox_conf_section *sec = &table->sections[s];

		if (s > 0) {
			fputc('\n', to);
			comment(sec->brief, to);
			if (sec->more != NULL)
				comment(sec->more, to);
			fprintf(to, "%s[%s %s]\n", sec->spare ? "#" : "", sec->name,
				sec->sample_name);
		}
		for (unsigned i = 0; i < sec->n_options; i++)
			if (!(sec->options[i].flags & PBOX_CONF_CLI_ONLY))
				sample_option(&sec->options[i], sec->spare, to);
	}
}
