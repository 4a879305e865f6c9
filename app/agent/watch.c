/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * A watch of the fleet's keys: a request whose answer does not end. It only says that something has changed: what there
 * is, the agent asks for by itself, also without it, so that a watch which hears nothing costs time and no more.
 */

#include <stdlib.h>
#include <string.h>

#include "agent.h"

#define PAUSE_FIRST (100 * AGENT_MS)
#define PAUSE_MOST  (5 * AGENT_S)

void
watch_stop(struct etcd *e, uint64_t pause_ns)
{
	if (e->watch.curl != NULL) {
		curl_multi_remove_handle(e->multi, e->watch.curl);
		curl_easy_cleanup(e->watch.curl);
	}
	curl_slist_free_all(e->watch.head);
	free(e->watch.request);
	e->watch.curl = NULL;
	e->watch.head = NULL;
	e->watch.request = NULL;
	e->watch.body.len = 0;
	e->watch.created = false;
	e->watch.again_ns = agent_now() + pause_ns;
}

/* It has ended: the next one goes to another endpoint, later each time that none has begun. */
static void
watch_failed(struct etcd *e)
{
	uint64_t pause =
		e->watch.created || e->watch.pause_ns == 0 ? PAUSE_FIRST : e->watch.pause_ns * 2;

	PBOX_ASSERT(e->n > 0);
	e->watch.pause_ns = pause < PAUSE_MOST ? pause : PAUSE_MOST;
	watch_stop(e, e->watch.pause_ns);
	e->watch.at = (e->watch.at + 1) % e->n;
}

/* false: etcd has ended it. */
static bool
etcd_watch_line(struct etcd *e, const char *line, size_t len)
{
	json_t *j = json_loadb(line, len, 0, NULL), *result = json_object_get(j, "result");
	bool good = result != NULL && !json_is_true(json_object_get(result, "canceled"));

	if (good && json_is_true(json_object_get(result, "created")))
		e->watch.created = true;
	if (good && json_array_size(json_object_get(result, "events")) > 0)
		e->watch.dirty = true;
	if (!good && e->token != NULL) {
		/* most of all a token that has ended: requests get the next one */
		free(e->token);
		e->token = NULL;
	}
	json_decref(j);
	return good;
}

void
watch_look(struct etcd *e, bool ended, CURLcode code)
{
	struct etcd_body *b = &e->watch.body;
	bool good = true;
	char *end;

	(void)code;
	while (good && b->len > 0 && (end = memchr(b->text, '\n', b->len)) != NULL) {
		size_t n = (size_t)(end - b->text) + 1;

		good = etcd_watch_line(e, b->text, n);
		memmove(b->text, b->text + n, b->len - n);
		b->len -= n;
	}
	if (e->watch.curl != NULL && (ended || !good)) {
		e->watch.dirty = true; /* what it has missed */
		watch_failed(e);
	}
}

void
watch_step(struct etcd *e, const char *prefix, int64_t from)
{
	json_t *body;

	if (e->watch.curl != NULL || agent_now() < e->watch.again_ns)
		return;
	PBOX_ASSERT(e->watch.head == NULL && e->watch.request == NULL);
	body = pbox_etcd_watch(prefix, from);
	e->watch.request = body != NULL ? json_dumps(body, JSON_COMPACT) : NULL;
	json_decref(body);
	if (e->watch.request != NULL)
		e->watch.curl = etcd_transfer(
			e, e->watch.at, "watch", e->watch.request, &e->watch.head, e->watch.error);
	if (e->watch.curl == NULL) {
		watch_failed(e);
		return;
	}
	curl_easy_setopt(e->watch.curl, CURLOPT_WRITEDATA, &e->watch.body);
	curl_multi_add_handle(e->multi, e->watch.curl);
}
