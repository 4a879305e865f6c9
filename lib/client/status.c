/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>
#include <stdlib.h>

#include "client_impl.h"

/* The next round of a table, hyper-parameters (SET) and the status of the job (STATUS). */

#define RESTORING_AGAIN (2 * NS_PER_MS)

struct next_cmd {
	struct cmd cmd;
	struct table *t;
	uint32_t round;
	bool restoring;
};

static void
next_run(struct pbox_client *c, struct cmd *cmd)
{
	struct next_cmd *n = (struct next_cmd *)cmd;

	n->round = pbox_worker_next_round(c->w, n->t->t, &n->restoring);
}

uint32_t
client_next_round(struct pbox_client *c, struct table *t)
{
	uint64_t deadline = client_deadline(c, 0);
	struct next_cmd n = {.cmd = {.run = next_run}, .t = t};

	if (pthread_equal(pthread_self(), c->thread)) { /* in a call of pbox_client_notify */
		lanes_lock_all(c);
		progress_submit(c);
		pbox_worker_together(c->w, client_clock_ns());
		next_run(c, &n.cmd);
		lanes_unlock_all(c);
		return n.round;
	}
	cmd_call(c, &n.cmd);
	while (n.restoring && client_clock_ns() < deadline) {
		uint64_t until = client_clock_ns() + RESTORING_AGAIN;
		bool closing;

		pthread_mutex_lock(&c->lock);
		while (!c->closing && client_sleep(c, until))
			;
		closing = c->closing;
		pthread_mutex_unlock(&c->lock);
		if (closing)
			break;
		cmd_call(c, &n.cmd);
	}
	return n.round;
}

struct versions_cmd {
	struct cmd cmd;
	const struct table *t;
	uint32_t tensor;
	struct pbox_client_versions out;
	bool good;
};

static void
versions_run(struct pbox_client *c, struct cmd *cmd)
{
	struct versions_cmd *v = (struct versions_cmd *)cmd;

	(void)c;
	v->good = pbox_worker_versions(v->t->t, v->tensor, &v->out);
}

int
pbox_client_versions(struct pbox_client *c, uint32_t table, uint32_t tensor,
	struct pbox_client_versions *versions, struct pbox_client_error *err)
{
	struct versions_cmd v = {.cmd = {.run = versions_run}, .tensor = tensor};
	int rc;

	if (versions == NULL || versions->size < sizeof(*versions))
		return pbox_client_fail(
			err, PBOX_C_INVALID, "no room is given for the versions (size field)");
	rc = client_enter(c, err);
	if (rc != 0)
		return rc;
	v.t = client_table(c, table);
	if (v.t != NULL && pthread_equal(pthread_self(), c->thread)) {
		lanes_lock_all(c);
		versions_run(c, &v.cmd);
		lanes_unlock_all(c);
	} else if (v.t != NULL)
		cmd_call(c, &v.cmd);
	client_leave(c);
	if (!v.good)
		return pbox_client_fail(err, PBOX_C_INVALID,
			v.t == NULL ? "table %u has not been declared"
				    : "table %u is not in clocks, or has no tensor %u",
			table, tensor);
	v.out.size = sizeof(v.out);
	*versions = v.out;
	return 0;
}

int
pbox_client_set(struct pbox_client *c, uint32_t table, uint16_t group, uint32_t from_round,
	const struct pbox_client_hyper *h, unsigned n, struct pbox_client_error *err)
{
	uint8_t buf[512], answer[1024];
	char what[80];
	struct table *t;
	size_t len;
	int rc;

	if (n == 0 || n > PBOX_SET_MAX || h == NULL)
		return pbox_client_fail(err, PBOX_C_INVALID,
			"%u hyper-parameters given, 1 to %d are taken", n, PBOX_SET_MAX);
	rc = client_enter(c, err);
	if (rc != 0)
		return rc;
	t = client_table(c, table);
	if (t == NULL) {
		rc = pbox_client_fail(err, PBOX_C_INVALID, "table %u has not been declared", table);
		goto out;
	}
	if (from_round == 0)
		from_round = client_next_round(c, t);
	len = pbox_worker_set(buf, sizeof(buf), t->t, group, from_round, h, n);
	if (group == PBOX_ALL_GROUPS)
		snprintf(what, sizeof(what), "SET of all groups of table %u from round %u on",
			table, from_round);
	else
		snprintf(what, sizeof(what), "SET of group %u of table %u from round %u on", group,
			table, from_round);
	rc = request_call(c, PBOX_SET, PBOX_SET_OK, buf, len, answer, sizeof(answer), NULL, what,
		client_deadline(c, 0), err);
	if (rc == PBOX_C_DEADLINE)
		rc = waiting_no_answer(c, what, err);
out:
	client_leave(c);
	return rc;
}

int
pbox_client_plain(struct pbox_client *c, uint32_t table, uint32_t from_round, int plain,
	struct pbox_client_error *err)
{
	struct table *t;
	int rc = client_enter(c, err);

	if (rc != 0)
		return rc;
	t = client_table(c, table);
	if (t == NULL) {
		rc = pbox_client_fail(err, PBOX_C_INVALID, "table %u has not been declared", table);
	} else {
		if (from_round == 0)
			from_round = client_next_round(c, t);
		if (!pbox_worker_plain(t->t, from_round, plain != 0))
			rc = pbox_client_fail(err, PBOX_C_INVALID,
				"table %u from round %u on: it was declared without mixed, so its pushes have one format, or a later round has been named",
				table, from_round);
	}
	client_leave(c);
	return rc;
}

static const char *
member_state(unsigned state)
{
	static const char *const name[] = {"absent", "joined", "left", "silent beyond its lease"};

	return state < 4 ? name[state] : "?";
}

/** One page of members; sets *next to the first of the following page. */
static int
status_page(struct pbox_client *c, unsigned *next, char *text, size_t cap,
	struct pbox_client_error *err)
{
	struct pbox_status_ok m;
	struct pbox_member_entry e;
	struct pbox_cursor cur;
	uint8_t buf[64], *answer = malloc(MAX_FRAME);
	char host[PBOX_TEXT_NAME];
	unsigned first = *next;
	size_t len = 0;
	int rc;

	if (answer == NULL)
		return pbox_client_fail(err, PBOX_C_MEMORY, "no memory for the status");
	rc = request_call(c, PBOX_STATUS, PBOX_STATUS_OK, buf,
		pbox_worker_status(buf, sizeof(buf), first, NULL), answer, MAX_FRAME, &len, NULL,
		client_deadline(c, 0), err);
	if (rc == PBOX_C_DEADLINE)
		rc = waiting_no_answer(c, "STATUS", err);
	if (rc == 0 && pbox_status_ok_decode(answer, len, &m, &cur) != 0)
		rc = pbox_client_fail(err, PBOX_C_REFUSED, "the box's STATUS_OK is malformed");
	if (rc == 0)
		pbox_text_tame(m.text);
	if (rc == 0 && *next == 0)
		pbox_text_add(text, cap,
			"job '%s' at %s: %u of %u workers joined, %u tables, round %u%s%s\n",
			pbox_worker_job(c->w), pbox_worker_box(c->w), m.joined, m.workers, m.tables,
			m.max_round, m.text[0] != 0 ? "\n" : "", m.text);
	if (rc == 0) {
		*next = m.count == 0 ? m.workers : m.first + m.count;
		if (*next > m.workers)
			*next = m.workers;
		while (pbox_status_ok_next(&cur, &e) == 0) {
			pbox_text_add(text, cap, "worker %u: %s", e.worker, member_state(e.state));
			if (e.state != PBOX_MEMBER_ABSENT)
				pbox_text_add(text, cap,
					", host %s, %u tables, last heard %.1f s ago",
					pbox_text_name(host, e.host), e.declared,
					e.silent_ms / 1000.0);
			pbox_text_add(text, cap, "\n");
		}
		if (*next<m.workers && * next> first)
			rc = PBOX_C_PENDING;
	}
	free(answer);
	return rc;
}

int
pbox_client_status(struct pbox_client *c, char *text, size_t cap, struct pbox_client_error *err)
{
	struct declare_refusal refusal;
	unsigned next = 0;
	int rc = client_enter_text(c, text, cap, err);

	if (rc != 0)
		return rc;
	do
		rc = status_page(c, &next, text, cap, err);
	while (rc == PBOX_C_PENDING);
	declare_refusal(c, &refusal);
	if (rc == 0 && refusal.text[0] != 0)
		pbox_text_add(text, cap, "this worker asks again: %s\n", refusal.text);
	client_leave(c);
	return rc;
}
