/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* At build time: writes the sample file or the man page of a program to standard output.
 *     pbox-conf-gen sample | man TEMPLATE | help | help-all
 * Whose: GEN_HEADER declares GEN_TABLE; without them that of pbox.
 */

#include <stdio.h>
#include <string.h>

#ifdef GEN_HEADER
#include GEN_HEADER
#else
#include "pbox_options.h"
#define GEN_TABLE pbox_options_table
#endif

/* The template, with the options in place of the line @OPTIONS@. */
static int
man(const char *template)
{
	FILE *from = fopen(template, "r");
	char line[1024];

	if (from == NULL) {
		perror(template);
		return 1;
	}
	while (fgets(line, sizeof(line), from) != NULL) {
		if (strcmp(line, "@OPTIONS@\n") == 0)
			pbox_conf_man(&GEN_TABLE, stdout);
		else
			fputs(line, stdout);
	}
	fclose(from);
	return 0;
}

int
main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "sample") == 0)
		pbox_conf_sample(&GEN_TABLE, stdout);
	else if (argc == 2 && strncmp(argv[1], "help", 4) == 0)
		pbox_conf_help(&GEN_TABLE, strcmp(argv[1], "help-all") == 0, stdout);
	else if (argc == 3 && strcmp(argv[1], "man") == 0)
		return man(argv[2]);
	else {
		fprintf(stderr, "usage: %s sample | man TEMPLATE | help | help-all\n", argv[0]);
		return 2;
	}
	return fflush(stdout) == 0 ? 0 : 1;
}
