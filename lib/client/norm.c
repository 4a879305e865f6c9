/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* The norm of a round, of a table with two phases (R6.15). The dialogue with the box is lib/worker's. */

#include <math.h>
#include <stddef.h>
#include <string.h>

#include <pbox_worker_norm.h>

#include "client_impl.h"

struct normed {
	struct cmd cmd;
	struct pbox_worker_norm q;
};

static void
norm_run(struct pbox_client *c, struct cmd *cmd)
{
	pbox_worker_norm_ask(c->w, &((struct normed *)cmd)->q);
}

void
norm_publish(struct pbox_worker_norm *q)
{
	while (q != NULL) {
		struct pbox_worker_norm *next = q->next;

		((struct normed *)(void *)((char *)q - offsetof(struct normed, q)))->cmd.done =
			true;
		q = next;
	}
}

/** Each step is rounded as IEEE 754 has it, so that all workers get the same. */
static double
square_of(const struct pbox_norm *m, double max_norm)
{
	double sum = 0;

	for (unsigned i = 3; i-- > 0;)
		sum = sum * 0x1p64 + (double)m->square[i];
	return ldexp(sum, pbox_norm_unit(max_norm));
}

static int
norm_call(struct pbox_client *c, struct table *t, uint32_t round, double max_norm,
	struct pbox_client_norm *out, uint64_t deadline, struct pbox_client_error *err)
{
	struct normed n = {.q = {.table = t->t, .round = round, .deadline = deadline}};
	const struct pbox_client_error *e = &n.q.err;

	n.cmd.run = norm_run;
	n.cmd.open = true;
	cmd_call(c, &n.cmd);
	if (e->code == PBOX_C_DEADLINE && e->text[0] == 0)
		return waiting_no_answer(c, "NORM", err);
	if (e->code != PBOX_C_OK) {
		if (err != NULL)
			*err = *e;
		return e->code;
	}
	out->square = square_of(&n.q.sum, max_norm);
	out->non_finite = n.q.sum.non_finite;
	out->coefficient = n.q.sum.coefficient;
	out->known = n.q.sum.fragments > 0 || t->info.chunks == 0;
	return 0;
}

int
pbox_client_norm(struct pbox_client *c, uint32_t table, uint32_t round, double max_norm,
	struct pbox_client_norm *out, unsigned timeout_ms, struct pbox_client_error *err)
{
	struct table *t;
	int rc;

	if (out == NULL || out->size < sizeof(*out))
		return pbox_client_fail(
			err, PBOX_C_INVALID, "no room is given for the norm (size field)");
	if (!(max_norm >= 0.0 && max_norm <= 0x1p127))
		return pbox_client_fail(
			err, PBOX_C_INVALID, "max_norm is %g: 0 or more is taken", max_norm);
	rc = client_enter(c, err);
	if (rc != 0)
		return rc;
	t = client_table(c, table);
	if (t == NULL)
		rc = pbox_client_fail(err, PBOX_C_INVALID, "table %u has not been declared", table);
	else if (!t->info.hold)
		rc = pbox_client_fail(err, PBOX_C_INVALID,
			"table %u was declared without hold: its rounds have one phase, and no norm",
			table);
	else
		rc = norm_call(c, t, round, max_norm, out, client_deadline(c, timeout_ms), err);
	client_leave(c);
	return rc;
}
