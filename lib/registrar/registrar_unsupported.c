/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>

#include <pbox_pairs.h>

#include "registrar_impl.h"

/* What has its number in the protocol, and is done by a later release (section 13): refused by its name, so that no
 * worker takes what this box does for what it asked for. */

static bool
is_later(struct pbox_error *what, const char *kind, const char *name)
{
	if (name[0] == '?')
		return false;
	pbox_fail(what, PBOX_E_UNSUPPORTED, "%s %s", kind, name);
	return true;
}

bool
registrar_unsupported_declare(const struct pbox_declare *m, struct pbox_error *what)
{
	uint32_t args = pbox_declare_args(m->push_format, m->pull_format);
	uint32_t flags = m->flags & ~PBOX_DECLARE_KNOWN;

	if (is_later(what, "discipline", pbox_discipline_later(m->discipline)) ||
		is_later(what, "format", pbox_format_later(m->push_format)) ||
		is_later(what, "format", pbox_format_later(m->pull_format)))
		return true;
	if (args != 0 && (flags & PBOX_DECLARE_ARGS) != args) {
		pbox_fail(what, PBOX_E_UNSUPPORTED,
			"formats %s and %s with fmt_arg %u and %u, but with %u and %u",
			pbox_format_name(m->push_format), pbox_format_name(m->pull_format),
			flags >> 8 & 0xFF, flags >> 16 & 0xFF, args >> 8 & 0xFF, args >> 16 & 0xFF);
		return true;
	}
	flags &= ~args;
	if (flags != 0) /* who sends one counts on it */
		pbox_fail(what, PBOX_E_UNSUPPORTED, "flags 0x%x of DECLARE", flags);
	return flags != 0;
}

bool
registrar_unsupported_join(
	const struct pbox_registrar *r, const struct pbox_join *m, struct pbox_error *what)
{
	uint32_t needs = m->needs & ~registrar_can(r);
	char text[160];
	size_t n = 0;

	for (unsigned bit = 0; bit < 32 && n < sizeof(text); bit++) {
		const char *name = pbox_capability_name(bit), *comma = n > 0 ? ", " : "";
		size_t room = sizeof(text) - n;

		if ((needs >> bit & 1) == 0)
			continue;
		n += (size_t)(name[0] != '?'
				      ? snprintf(text + n, room, "%s%s", comma, name)
				      : snprintf(text + n, room, "%scapability %u", comma, bit));
	}
	if (n > 0)
		pbox_fail(what, PBOX_E_UNSUPPORTED, "%s", text);
	return n > 0;
}

/* ---- what does not go together (doc/modes.md) ------------------------------------------------------ */

static uint32_t
uses_of(const struct pbox_registrar *r, unsigned policy, bool slots)
{
	return (r->conf.boxes.boxes > 1 ? PBOX_USES_BOXES : 0) |
	       (r->conf.rack.racks > 0 ? PBOX_USES_RACKS : 0) | pbox_uses_of_policy(policy) |
	       (slots || policy == PBOX_POLICY_REASSIGN ? PBOX_USES_SLOTS : 0);
}

bool
registrar_pairs_join(struct pbox_registrar *r, struct registrar_join *q)
{
	int policy = q->conf->policy == PBOX_POLICY_ANY ? q->m.policy : q->conf->policy;
	const struct pbox_pair *p = pbox_pair_in(uses_of(r, (unsigned)policy, q->m.slots != 0));

	PBOX_ASSERT(p == NULL || p->by > 0); /* the configuration has passed its own check */
	return p == NULL || registrar_refuse(r, q->f, (enum pbox_errcode)p->by, 0,
				    "job '%s': " PBOX_PAIR_FMT, q->m.job, PBOX_PAIR_ARGS(p));
}

int
registrar_pairs_declare(const struct pbox_registrar *r, const struct pbox_job *job,
	const struct pbox_declare *m, struct pbox_error *err)
{
	uint32_t uses =
		uses_of(r, job->policy, job->names_slots) |
		pbox_uses_of_table(m->mode == PBOX_MODE_OPTIMISER, m->discipline,
			(m->flags & PBOX_DECLARE_HOLD) != 0, m->push_format, m->pull_format);
	const struct pbox_pair *p = pbox_pair_in(uses);
	unsigned format;

	if (p == NULL)
		return 0;
	PBOX_ASSERT(p->by > 0);
	format = pbox_pair_format(p, m->push_format, m->pull_format);
	if (format != PBOX_FMT_NONE)
		pbox_fail(err, p->by, "table %u, format %s: " PBOX_PAIR_FMT, m->table,
			pbox_format_name(format), PBOX_PAIR_ARGS(p));
	else
		pbox_fail(err, p->by, "table %u: " PBOX_PAIR_FMT, m->table, PBOX_PAIR_ARGS(p));
	return p->by;
}

/* ---- requests -------------------------------------------------------------------------------------- */

bool
registrar_unsupported(struct pbox_registrar *r, const struct pbox_frame *f, const char *what)
{
	return registrar_refuse(r, f, PBOX_E_UNSUPPORTED, 0,
		"this box does not know %s: install the release of this worker's library there",
		what);
}
