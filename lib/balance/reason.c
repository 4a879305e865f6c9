/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Actions, as sentences. */

#include <stdio.h>

#include "balance_impl.h"

static unsigned
percent(const struct pbox_balance_action *a, unsigned box)
{
	uint64_t total = 0;

	for (unsigned i = 0; i < PBOX_BALANCE_BOXES; i++)
		total += a->bytes[i];
	return total > 0 ? (unsigned)((double)a->bytes[box] * 100 / (double)total + 0.5) : 0;
}

/* A box that has some never has "0 %". */
static const char *
percent_text(const struct pbox_balance_action *a, unsigned box, char text[24])
{
	unsigned n = percent(a, box);

	snprintf(text, 24, n == 0 && a->bytes[box] > 0 ? "less than 1 %%" : "%u %%", n);
	return text;
}

void
pbox_balance_text(const struct pbox_balance_action *a, char *text, size_t n)
{
	char share[24];

	switch (a->cause) {
	case PBOX_BALANCE_LOST:
		snprintf(text, n, "box %u does not serve: the other boxes take its %.3g MB", a->box,
			(double)a->moves / 1e6);
		break;
	case PBOX_BALANCE_STRAGGLER:
		snprintf(text, n,
			"box %u takes %.1f times as long as the others: %s of the bytes from now on, a round %.3g s -> %.3g s",
			a->box, a->ratio, percent_text(a, a->box, share), a->before, a->after);
		break;
	case PBOX_BALANCE_OUT:
		snprintf(text, n,
			"spare box %u is taken in with %s of the bytes: a round %.3g s -> %.3g s",
			a->box, percent_text(a, a->box, share), a->before, a->after);
		break;
	case PBOX_BALANCE_IN:
		snprintf(text, n, "box %u is let go: a round without it %.3g s -> %.3g s", a->box,
			a->before, a->after);
		break;
	case PBOX_BALANCE_TRY:
		snprintf(text, n,
			"%.3g MB go from box %u to box %u to see whether a round gets shorter than %.3g s",
			(double)a->moves / 1e6, a->box, a->to, a->before);
		break;
	case PBOX_BALANCE_BACK:
		snprintf(text, n,
			"the last change did not make a round as short as predicted (%.3g s before, %.3g s after): %.3g MB go back",
			a->before, a->after, (double)a->moves / 1e6);
		break;
	}
}
