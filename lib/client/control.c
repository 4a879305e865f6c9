/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "restart.h"

/* Commands to the progress thread, and control requests with their repetition (R3.1). */

#define FIRST_INTERVAL (50 * NS_PER_MS)
#define MAX_INTERVAL   NS_PER_S
#define MAX_TRIES      9

void
client_kick(struct pbox_client *c)
{
	if (!atomic_exchange(&c->kicked, true))
		c->link.t->ops->wake(c->link.t);
}

void
cmd_issue(struct pbox_client *c, struct cmd *cmd)
{
	pthread_mutex_lock(&c->lock);
	cmd->next = NULL;
	cmd->done = false;
	*c->cmds_tail = cmd;
	c->cmds_tail = &cmd->next;
	pthread_mutex_unlock(&c->lock);
	client_kick(c);
}

void
cmd_call(struct pbox_client *c, struct cmd *cmd)
{
	cmd_issue(c, cmd);
	pthread_mutex_lock(&c->lock);
	while (!cmd->done)
		pthread_cond_wait(&c->cond, &c->lock);
	pthread_mutex_unlock(&c->lock);
}

/* ---- progress thread ------------------------------------------------------------------- */

static void
request_unlist(struct pbox_client *c, struct request *r)
{
	struct request **p = &c->requests;

	while (*p != NULL && *p != r)
		p = &(*p)->next;
	if (*p == r)
		*p = r->next;
	r->listed = false;
}

static void
request_done(struct pbox_client *c, struct request *r)
{
	request_unlist(c, r);
	pthread_mutex_lock(&c->lock);
	r->cmd.done = true;
	pthread_cond_broadcast(&c->cond);
	pthread_mutex_unlock(&c->lock);
}

static void
request_send(struct pbox_client *c, struct request *r, bool again)
{
	struct iovec iov = {(void *)(uintptr_t)r->payload, r->length};
	struct pbox_hdr h;

	session_header(c, &h, r->type);
	h.chunk = r->id;
	h.length = r->length;
	if (again)
		h.flags |= PBOX_F_RETX;
	link_frame(&c->link, &c->box, &h, &iov, r->length > 0, false);
	/* double at every second try: see recover.c */
	r->next_tx =
		c->now + (r->tries < MAX_TRIES ? FIRST_INTERVAL << r->tries / 2 : MAX_INTERVAL);
	r->tries++;
}

static void
request_start(struct pbox_client *c, struct cmd *cmd)
{
	struct request *r = (struct request *)cmd;

	if (c->failed || (c->shut && r->type != PBOX_LEAVE)) {
		cmd->hold = false;
		return;
	}
	if (r->generation != 0 && r->generation != c->generation) {
		r->renewed = true;
		cmd->hold = false;
		return;
	}
	r->next = c->requests;
	c->requests = r;
	r->listed = true;
	r->next_tx = c->now;
	if (rejoin_admits(c, r))
		request_send(c, r, false);
}

static void
request_fill(struct pbox_client *c, struct request *r, uint8_t type, const void *payload,
	size_t length, void *answer, size_t cap)
{
	*r = (struct request){
		.cmd = {.run = request_start, .hold = true},
		.payload = payload,
		.length = (uint16_t)length,
		.answer = answer,
		.answer_cap = cap,
		.type = type,
		.id = atomic_fetch_add(&c->next_id, 1),
	};
}

void
request_begin(struct pbox_client *c, struct request *r, uint8_t type, const void *payload,
	size_t length, void *answer, size_t cap)
{
	request_fill(c, r, type, payload, length, answer, cap);
	r->own = true;
	request_start(c, &r->cmd);
}

void
request_drop(struct pbox_client *c, struct request *r)
{
	if (r->listed)
		request_unlist(c, r);
}

void
control_renewed(struct pbox_client *c)
{
	struct request *r = c->requests, *next;

	for (; r != NULL; r = next) {
		next = r->next;
		r->next_tx = c->now;
		r->tries = 0;
		if (r->generation != 0 && r->generation != c->generation) {
			r->renewed = true;
			request_done(c, r);
		}
	}
}

void
control_tick(struct pbox_client *c)
{
	for (struct request *r = c->requests; r != NULL; r = r->next)
		if (r->next_tx <= c->now && rejoin_admits(c, r))
			request_send(c, r, r->tries > 0);
}

uint64_t
control_due(const struct pbox_client *c)
{
	uint64_t due = UINT64_MAX;

	for (const struct request *r = c->requests; r != NULL; r = r->next)
		if (r->next_tx < due && rejoin_admits(c, r))
			due = r->next_tx;
	return due;
}

void
control_fail_all(struct pbox_client *c)
{
	while (c->requests != NULL)
		request_done(c, c->requests);
}

void
control_frame(struct pbox_client *c, const struct rx_frame *f)
{
	struct request *r = c->requests;

	while (r != NULL && r->id != f->hdr.chunk)
		r = r->next;
	if (r == NULL) {
		c->count.rx_duplicates++;
		return;
	}
	if (f->hdr.length > r->answer_cap) {
		c->count.rx_dropped++;
		return;
	}
	memcpy(r->answer, f->payload, f->hdr.length);
	r->answer_len = f->hdr.length;
	r->answer_type = f->hdr.type;
	r->answer_aux = f->hdr.aux;
	r->map_epoch = f->hdr.map_epoch;
	if (r->answered != NULL)
		r->answered(c, r);
	request_done(c, r);
}

/* ---- any thread -------------------------------------------------------------------------- */

void
request_issue(struct pbox_client *c, struct request *r, uint32_t generation, uint8_t type,
	const void *payload, size_t length, void *answer, size_t cap)
{
	request_fill(c, r, type, payload, length, answer, cap);
	r->generation = generation;
	cmd_issue(c, &r->cmd);
}

struct cancel {
	struct cmd cmd;
	struct request *request;
};

static void
cancel_run(struct pbox_client *c, struct cmd *cmd)
{
	struct request *r = ((struct cancel *)cmd)->request;

	if (r->listed)
		request_done(c, r);
}

void
request_cancel(struct pbox_client *c, struct request *r)
{
	struct cancel k = {.cmd = {.run = cancel_run}, .request = r};

	cmd_call(c, &k.cmd);
}

int
request_result(struct pbox_client *c, const struct request *r, uint8_t want, const char *what,
	struct pbox_client_error *err)
{
	struct pbox_error_msg m;
	int rc;

	if (r->answer_type == want)
		return 0;
	if (r->renewed)
		return CLIENT_RENEWED;
	if (r->answer_type == PBOX_ERROR) {
		if (pbox_error_decode(r->answer, r->answer_len, &m) != 0)
			m = (struct pbox_error_msg){.code = r->answer_aux};
		return join_error(err, &m, what);
	}
	if (r->answer_type != 0)
		return client_fail(err, PBOX_C_REFUSED, "%s: the box answered %s, not %s", what,
			pbox_type_name(r->answer_type), pbox_type_name(want));
	pthread_mutex_lock(&c->lock);
	rc = c->fatal != 0 ? client_fail(err, c->fatal, "%s", c->fatal_text)
			   : client_fail(err, PBOX_C_CLOSED, "%s: the client was closed", what);
	pthread_mutex_unlock(&c->lock);
	return rc;
}

/** Wait until answered or @p deadline. */
static int
request_wait(struct pbox_client *c, struct request *r, uint8_t want, const char *what,
	uint64_t deadline, struct pbox_client_error *err)
{
	bool late = false;
	char text[400];

	pthread_mutex_lock(&c->lock);
	while (!r->cmd.done && !late)
		late = !client_sleep(c, deadline);
	late = !r->cmd.done;
	pthread_mutex_unlock(&c->lock);
	if (!late)
		return request_result(c, r, want, what, err);
	request_cancel(c, r);
	if (r->answer_type != 0)
		return request_result(c, r, want, what, err);
	if (err != NULL) {
		rejoin_text(c, text, sizeof(text));
		if (text[0] != 0)
			return client_fail(err, PBOX_C_DEADLINE, "%s: %s", what, text);
	}
	return client_fail(err, PBOX_C_DEADLINE,
		"%s: no answer from the box at %s; check that it is up ('pbox-perf' and 'ping' "
		"reach it?)",
		what, c->box_name);
}

int
request_call(struct pbox_client *c, uint8_t type, uint8_t want, const void *payload, size_t length,
	void *answer, size_t cap, size_t *answer_len, uint64_t deadline,
	struct pbox_client_error *err)
{
	struct request r;
	int rc;

	request_issue(c, &r, 0, type, payload, length, answer, cap);
	rc = request_wait(c, &r, want, pbox_type_name(type), deadline, err);
	if (rc == 0 && answer_len != NULL)
		*answer_len = r.answer_len;
	return rc;
}

/* ---- SET, STATUS -------------------------------------------------------------------------- */

struct set_request {
	struct request request;
	struct table *table;
	struct pbox_set m;
};

/** What the box has taken it must be told again after a restart. */
static void
set_answered(struct pbox_client *c, struct request *r)
{
	struct set_request *q = (struct set_request *)r;

	if (r->answer_type == PBOX_SET_OK && c->conf.keep_copies && sets_add(q->table, &q->m) != 0)
		session_fail(c, PBOX_C_MEMORY, "no memory to remember hyper-parameters");
}

int
pbox_client_set(struct pbox_client *c, uint32_t table, uint16_t group, uint32_t from_round,
	const struct pbox_client_hyper *h, unsigned n, struct pbox_client_error *err)
{
	struct set_request q = {.m = {.table = table, .group = group, .from_round = from_round}};
	uint8_t buf[512], answer[1024];
	char what[80];
	struct table *t;
	size_t len;
	int rc;

	if (n == 0 || n > PBOX_SET_MAX || h == NULL)
		return client_fail(err, PBOX_C_INVALID,
			"%u hyper-parameters given, 1 to %d are taken", n, PBOX_SET_MAX);
	rc = client_enter(c, err);
	if (rc != 0)
		return rc;
	t = client_table(c, table);
	if (t == NULL) {
		rc = client_fail(err, PBOX_C_INVALID, "table %u has not been declared", table);
		goto out;
	}
	if (from_round == 0) {
		pthread_mutex_lock(&c->lock);
		q.m.from_round = t->base_version + t->max_submitted + 1;
		pthread_mutex_unlock(&c->lock);
	}
	q.m.count = (uint16_t)n;
	for (unsigned i = 0; i < n; i++) {
		q.m.param[i].id = h[i].id;
		q.m.param[i].value = h[i].value;
	}
	q.table = t;
	len = pbox_set_encode(buf, sizeof(buf), &q.m);
	request_fill(c, &q.request, PBOX_SET, buf, len, answer, sizeof(answer));
	q.request.answered = set_answered;
	cmd_issue(c, &q.request.cmd);
	if (group == PBOX_ALL_GROUPS)
		snprintf(what, sizeof(what), "SET of all groups of table %u from round %u on",
			table, q.m.from_round);
	else
		snprintf(what, sizeof(what), "SET of group %u of table %u from round %u on", group,
			table, q.m.from_round);
	rc = request_wait(c, &q.request, PBOX_SET_OK, what, client_deadline(c, 0), err);
out:
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
	struct pbox_status q = {.first = (uint16_t)*next};
	struct pbox_status_ok m;
	struct pbox_member_entry e;
	struct pbox_cursor cur;
	uint8_t buf[64], *answer = malloc(MAX_FRAME);
	char host[TEXT_NAME];
	size_t len = 0;
	int rc;

	if (answer == NULL)
		return client_fail(err, PBOX_C_MEMORY, "no memory for the status");
	rc = request_call(c, PBOX_STATUS, PBOX_STATUS_OK, buf,
		pbox_status_encode(buf, sizeof(buf), &q), answer, MAX_FRAME, &len,
		client_deadline(c, 0), err);
	if (rc == 0 && pbox_status_ok_decode(answer, len, &m, &cur) != 0)
		rc = client_fail(err, PBOX_C_REFUSED, "the box's STATUS_OK is malformed");
	if (rc == 0)
		text_tame(m.text);
	if (rc == 0 && *next == 0)
		text_add(text, cap,
			"job '%s' at %s: %u of %u workers joined, %u tables, round %u%s%s\n",
			c->job, c->box_name, m.joined, m.workers, m.tables, m.max_round,
			m.text[0] != 0 ? "\n" : "", m.text);
	if (rc == 0) {
		*next = m.count == 0 ? m.workers : m.first + m.count;
		if (*next > m.workers)
			*next = m.workers;
		while (pbox_status_ok_next(&cur, &e) == 0) {
			text_add(text, cap, "worker %u: %s", e.worker, member_state(e.state));
			if (e.state != PBOX_MEMBER_ABSENT)
				text_add(text, cap, ", host %s, %u tables, last heard %.1f s ago",
					text_name(host, e.host), e.declared, e.silent_ms / 1000.0);
			text_add(text, cap, "\n");
		}
		if (*next<m.workers && * next> q.first)
			rc = PBOX_C_PENDING;
	}
	free(answer);
	return rc;
}

int
pbox_client_status(struct pbox_client *c, char *text, size_t cap, struct pbox_client_error *err)
{
	unsigned next = 0;
	int rc;

	if (text == NULL || cap == 0)
		return client_fail(err, PBOX_C_INVALID, "no room for the text");
	text[0] = 0;
	rc = client_enter(c, err);
	if (rc != 0)
		return rc;
	do
		rc = status_page(c, &next, text, cap, err);
	while (rc == PBOX_C_PENDING);
	pthread_mutex_lock(&c->lock);
	if (rc == 0 && c->refusal[0] != 0)
		text_add(text, cap, "this worker asks again: %s\n", c->refusal);
	pthread_mutex_unlock(&c->lock);
	client_leave(c);
	return rc;
}
