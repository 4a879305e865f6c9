/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* R18.8: what each of both waits for, said to the other one. */

#include <stdio.h>
#include <string.h>

#include "uplink_impl.h"

#define EVERY_NS UINT64_C(500000000)

void
pbox_uplink_says(struct pbox_uplink *u, const char *text)
{
	snprintf(u->eyes.says, sizeof(u->eyes.says), "%s", text);
}

/* Whom the upper box waits for, as its answers to the oldest sum say; or to a table. -1: not known. */
static int
eyes_missing(struct pbox_uplink *u)
{
	struct pbox_worker_op *op = pbox_worker_oldest(u->w);
	const struct uplink_table *t = u->asked < u->n_tables ? u->table[u->asked] : NULL;
	struct pbox_worker_wait wait = {.missing = -1};
	char text[512];

	if (op != NULL)
		pbox_worker_why(u->w, op, &wait, text, sizeof(text));
	else if (t != NULL && t->state == TABLE_ASKED && t->d.waits &&
		 t->d.first_missing < u->racks)
		return (int)t->d.first_missing;
	return wait.missing >= 0 && wait.missing < (int)u->racks ? wait.missing : -1;
}

uint64_t
uplink_eyes_step(struct pbox_uplink *u, uint64_t now)
{
	struct pbox_status m = {.flags = PBOX_STATUS_RACK};

	if (u->eyes.asked || u->left || u->failed || pbox_worker_state(u->w) != PBOX_WORKER_OPEN)
		return UINT64_MAX;
	if (now < u->eyes.next_ns)
		return u->eyes.next_ns;
	u->eyes.about = eyes_missing(u);
	m.first = (uint16_t)(u->eyes.about >= 0 ? (unsigned)u->eyes.about : u->rack);
	memcpy(m.rack, u->eyes.says, sizeof(u->eyes.says));
	u->eyes.status = (struct pbox_worker_request){.type = PBOX_STATUS,
		.payload = u->eyes.payload,
		.length =
			(uint16_t)pbox_status_encode(u->eyes.payload, sizeof(u->eyes.payload), &m),
		.answer = u->eyes.answer,
		.answer_cap = sizeof(u->eyes.answer)};
	u->eyes.asked = true;
	u->eyes.next_ns = now + EVERY_NS;
	pbox_worker_request(u->w, &u->eyes.status);
	return u->eyes.next_ns;
}

bool
uplink_eyes_answer(struct pbox_uplink *u, struct pbox_worker_request *r, uint64_t now)
{
	struct pbox_uplink_view *v = &u->eyes.seen;
	struct pbox_member_entry e;
	struct pbox_status_ok a;
	struct pbox_cursor cur;

	if (r != &u->eyes.status)
		return false;
	u->eyes.asked = false;
	if (r->answer_type != PBOX_STATUS_OK ||
		pbox_status_ok_decode(r->answer, r->answer_len, &a, &cur) != 0)
		return true;
	*v = (struct pbox_uplink_view){.heard_ns = now, .missing = u->eyes.about};
	if (v->missing < 0 || a.first != v->missing || a.count == 0 ||
		pbox_status_ok_next(&cur, &e) != 0)
		return true;
	v->rack_state = e.state;
	v->rack_silent_ms = e.silent_ms;
	snprintf(v->rack_host, sizeof(v->rack_host), "%s", e.host);
	if ((a.flags & PBOX_STATUS_RACK) != 0)
		snprintf(v->rack_waits, sizeof(v->rack_waits), "%.255s", a.text);
	return true;
}
