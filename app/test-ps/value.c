/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>
#include <string.h>

#include "value.h"

static const struct value_token *
value_token(const cmdline_parse_token_hdr_t *hdr)
{
	return (const struct value_token *)(const void *)hdr;
}

/* The @p i-th choice; NULL after the last. */
static const char *
value_of_choice(const cmdline_parse_token_hdr_t *hdr, int i)
{
	const char *c = value_token(hdr)->choices;

	for (; c != NULL && i > 0; i--) {
		c = strchr(c, '#');
		c += c != NULL;
	}
	return c;
}

static int
value_choices(cmdline_parse_token_hdr_t *hdr)
{
	int n = 0;

	while (value_of_choice(hdr, n) != NULL)
		n++;
	return n;
}

static int
value_choice(cmdline_parse_token_hdr_t *hdr, int i, char *buf, unsigned size)
{
	const char *c = value_of_choice(hdr, i);

	if (c == NULL)
		return -1;
	snprintf(buf, size, "%.*s", (int)strcspn(c, "#"), c);
	return 0;
}

static int
value_help(cmdline_parse_token_hdr_t *hdr, char *buf, unsigned size)
{
	snprintf(buf, size, "%s", value_token(hdr)->what);
	return 0;
}

struct cmdline_token_ops value_ops = {
	.parse = cmdline_parse_string,
	.complete_get_nb = value_choices,
	.complete_get_elt = value_choice,
	.get_help = value_help,
};
