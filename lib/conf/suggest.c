/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <string.h>

#include "conf_priv.h"

#define WORD_MAX 40 /* longer ones are no slips of an option's name */

/* log_level and LOG-LEVEL are log-level to a person */
static char
plain(char c)
{
	if (c >= 'A' && c <= 'Z')
		return (char)(c - 'A' + 'a');
	return c == '_' ? '-' : c;
}

static unsigned
min3(unsigned a, unsigned b, unsigned c)
{
	if (b < a)
		a = b;
	return c < a ? c : a;
}

/* Optimal string alignment: insertions, deletions, replacements and swaps of neighbours. */
static unsigned
distance(const char *a, size_t na, const char *b, size_t nb)
{
	unsigned rows[3][WORD_MAX + 1], *before = rows[0], *last = rows[1], *row = rows[2];

	for (unsigned j = 0; j <= nb; j++)
		last[j] = j;
	for (unsigned i = 1; i <= na; i++) {
		unsigned *spare = before;

		row[0] = i;
		for (unsigned j = 1; j <= nb; j++) {
			bool same = plain(a[i - 1]) == plain(b[j - 1]);

			row[j] = min3(last[j] + 1, row[j - 1] + 1, last[j - 1] + !same);
			if (i > 1 && j > 1 && plain(a[i - 1]) == plain(b[j - 2]) &&
				plain(a[i - 2]) == plain(b[j - 1]) && before[j - 2] + 1 < row[j])
				row[j] = before[j - 2] + 1;
		}
		before = last;
		last = row;
		row = spare;
	}
	return last[nb];
}

void
conf_nearer(struct conf_nearest *n, const char *candidate)
{
	size_t na = strlen(n->word), nb = strlen(candidate), shorter = na < nb ? na : nb;
	unsigned d;

	if (na == 0 || na > WORD_MAX || nb > WORD_MAX)
		return;
	d = distance(n->word, na, candidate, nb);
	if (d > (shorter < 6 ? 1 : shorter / 3))
		return;
	if (n->best == NULL || d < n->distance) {
		n->best = candidate;
		n->distance = d;
	}
}
