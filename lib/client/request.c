/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>

#include "client_impl.h"

/* Control requests of other threads: send through the worker, and wait for the answer. */

static void
call_run(struct pbox_client *c, struct cmd *cmd)
{
	pbox_worker_request(c->w, &((struct call *)cmd)->request);
}

struct cancel {
	struct cmd cmd;
	struct call *call;
};

static void
cancel_run(struct pbox_client *c, struct cmd *cmd)
{
	pbox_worker_request_cancel(c->w, &((struct cancel *)cmd)->call->request);
}

int
request_call(struct pbox_client *c, uint8_t type, uint8_t want, const void *payload, size_t length,
	void *answer, size_t cap, size_t *answer_len, const char *what, uint64_t deadline,
	struct pbox_client_error *err)
{
	return request_call_at(
		c, 0, type, want, payload, length, answer, cap, answer_len, what, deadline, err);
}

int
request_call_at(struct pbox_client *c, unsigned box, uint8_t type, uint8_t want,
	const void *payload, size_t length, void *answer, size_t cap, size_t *answer_len,
	const char *what, uint64_t deadline, struct pbox_client_error *err)
{
	struct call call = {.cmd = {.run = call_run, .open = true},
		.request = {.type = type,
			.box = (uint8_t)box,
			.payload = payload,
			.length = (uint16_t)length,
			.answer = answer,
			.answer_cap = cap}};
	struct cancel cancel = {.cmd = {.run = cancel_run}, .call = &call};
	struct pbox_client_error ended = {.code = PBOX_C_CLOSED};
	bool expired = false;
	int rc;

	if (what == NULL)
		what = pbox_type_name(type);
	cmd_issue(c, &call.cmd);
	pthread_mutex_lock(&c->lock);
	while (!call.cmd.done && !expired)
		expired = !client_sleep(c, deadline);
	expired = !call.cmd.done;
	pthread_mutex_unlock(&c->lock);
	if (expired)
		cmd_call(c, &cancel.cmd);
	if (expired && call.request.answer_type == 0)
		return PBOX_C_DEADLINE;
	pthread_mutex_lock(&c->lock);
	snprintf(ended.text, sizeof(ended.text), "%s: the client was closed", what);
	if (c->fatal.code != 0)
		ended = c->fatal;
	pthread_mutex_unlock(&c->lock);
	rc = pbox_worker_result(&call.request, want, what, &ended, err);
	if (rc == 0 && answer_len != NULL)
		*answer_len = call.request.answer_len;
	return rc;
}
