/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * What the workers of a plan decide before a round (R15.11): to stop, or a number. The leading worker sends it by SET, WORK_OK has it
 * for all others, and each that has heard it sends it as well: so it survives a restart of the box, and two that differ are found.
 *
 * Silent wrong results that this could give: two decisions for one round (SET_CONFLICT), one for a round that has ended (SET_LATE), and an
 * earlier round's taken for this one's (it goes with its round).
 */

#include <string.h>

#include "registrar_work.h"

static const struct decision *
decision_of(const struct work *k, uint32_t round)
{
	for (unsigned i = 0; i < DECISIONS && i < k->decisions; i++) {
		const struct decision *d = &k->decision[(k->decisions - 1 - i) % DECISIONS];

		if (d->round == round)
			return d;
	}
	return NULL;
}

int
registrar_decision_check(const struct pbox_job *job, uint32_t table, uint32_t round, double value,
	struct pbox_error *err)
{
	const struct work *k = work_of(job);
	const struct decision *d;

	if (job->policy != PBOX_POLICY_REASSIGN || table != TABLE) {
		pbox_fail(err, PBOX_E_BAD_REQUEST,
			"table %u is not of a job with policy reassign: its workers decide by an all-reduce",
			table);
		return PBOX_E_BAD_REQUEST;
	}
	d = decision_of(k, round);
	if (d != NULL && memcmp(&d->value, &value, sizeof(value)) != 0) {
		pbox_fail(err, PBOX_E_SET_CONFLICT,
			"the decision before round %u is %.17g here, and %.17g by another worker",
			round, value, d->value);
		return PBOX_E_SET_CONFLICT;
	}
	if (d == NULL && k->round != 0 && pbox_serial_diff(round, k->round) < 0) {
		pbox_fail(err, PBOX_E_SET_LATE,
			"the decision before round %u comes late, round %u is in progress: all workers decide after the same round",
			round, k->round);
		return PBOX_E_SET_LATE;
	}
	return 0;
}

void
registrar_decision_take(struct pbox_job *job, uint32_t round, double value)
{
	struct work *k = work_of(job);

	if (decision_of(k, round) == NULL)
		k->decision[k->decisions++ % DECISIONS] = (struct decision){round, value};
}

void
registrar_decision_say(const struct pbox_job *job, uint32_t round, struct pbox_work_ok *a)
{
	const struct work *k = work_of(job);
	const struct decision *d = decision_of(k, round);

	/* one who asks about a round that others are past finds that out */
	if (d == NULL && k->decisions > 0)
		d = &k->decision[(k->decisions - 1) % DECISIONS];
	if (d == NULL)
		return;
	a->decided = d->round;
	a->decision = d->value;
}
