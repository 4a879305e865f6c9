/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <string.h>

#include "conf_priv.h"
#include "conf_write.h"

/* roff takes \ as its escape, - as a hyphen and a . or ' in front as a request */
static void
roff(const char *text, FILE *to)
{
	if (*text == '.' || *text == '\'')
		fputs("\\&", to);
	for (; *text != '\0'; text++) {
		if (*text == '\\')
			fputs("\\e", to);
		else if (*text == '-')
			fputs("\\-", to);
		else
			fputc(*text, to);
	}
}

static void
man_option(const struct pbox_conf_option *o, bool global, FILE *to)
{
	const char *argument = conf_argument(o);
	char range[200];

	fputs(".TP\n", to);
	if (!global) {
		fprintf(to, "\\fB%s\\fR = \\fI%s\\fR\n", o->name,
			o->type == PBOX_CONF_BOOL ? "yes|no" : argument);
	} else {
		if (o->letter != 0)
			fprintf(to, "\\fB\\-%c\\fR, ", o->letter);
		fputs("\\fB\\-\\-", to);
		roff(o->name, to);
		fputs("\\fR", to);
		if (argument[0] != '\0')
			fprintf(to,
				o->flags & PBOX_CONF_OPTIONAL_ARG ? " [\\fI%s\\fR]" : " \\fI%s\\fR",
				argument);
		fputc('\n', to);
	}
	fputc(o->brief[0] & ~0x20, to);
	roff(o->brief + 1, to);
	conf_format_range(o, range, sizeof(range));
	if (range[0] != '\0') {
		fputs(": ", to);
		roff(range, to);
	}
	fputs(".\n", to);
	if (o->flags & PBOX_CONF_REQUIRED)
		fputs("Required.\n", to);
	if (o->flags & PBOX_CONF_LIVE)
		fputs("SIGHUP reads it again.\n", to);
	if (o->flags & PBOX_CONF_NEXT)
		fputs("SIGHUP reads it again, for what begins from then on.\n", to);
	if (o->more != NULL) {
		roff(o->more, to);
		fputc('\n', to);
	}
	if (o->def != NULL) {
		fputs("The default is \\fB", to);
		roff(o->def, to);
		fputs("\\fR.\n", to);
	}
}

void
pbox_conf_man(const struct pbox_conf_table *table, FILE *to)
{
	fputs(".SH OPTIONS\n", to);
	for (unsigned s = 0; s < table->n_sections; s++) {
		const struct pbox_conf_section *sec = &table->sections[s];

		if (s > 0) {
			fprintf(to, ".SS [%s \\fINAME\\fP]\n", sec->name);
			roff(sec->brief, to);
			fputc('\n', to);
			if (sec->more != NULL) {
				roff(sec->more, to);
				fputc('\n', to);
			}
			fprintf(to,
				"On the command line:\n\\fB\\-\\-%s\\fR \\fINAME\\fB:\\fIKEY\\fB=\\fIVALUE\\fB,\\fR...\n",
				sec->name);
		}
		for (unsigned i = 0; i < sec->n_options; i++)
			man_option(&sec->options[i], s == 0, to);
	}
}
