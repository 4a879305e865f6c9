/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Requests to etcd's JSON gateway: over its endpoints, with TLS and a user where it wants them. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent.h"

int
etcd_open(struct etcd *e, const struct pbox_cluster_options *conf, struct pbox_error *err)
{
	int n;

	memset(e, 0, sizeof(*e));
	e->conf = conf;
	n = pbox_options_etcd(conf->etcd, e->url, err);
	if (n < 0)
		return n;
	e->n = (unsigned)n;
	/* an endpoint that is cut off must leave time for the others within a lease */
	e->attempt_ns = conf->lease_ns / 8;
	e->multi = curl_multi_init();
	return e->multi != NULL ? 0 : pbox_fail(err, ENOMEM, "no memory for etcd's connections");
}

void
etcd_close(struct etcd *e)
{
	watch_stop(e, 0);
	free(e->watch.body.text);
	if (e->multi != NULL)
		curl_multi_cleanup(e->multi);
	if (e->token != NULL)
		explicit_bzero(e->token, strlen(e->token));
	free(e->token);
	memset(e, 0, sizeof(*e));
}

/* The transfer of a request has ended; others are the watch. */
static bool
etcd_ended(struct etcd *e, const CURL *curl, CURLcode *code)
{
	bool mine = false;
	CURLMsg *msg;
	int left;

	while ((msg = curl_multi_info_read(e->multi, &left)) != NULL) {
		CURL *which = msg->easy_handle;
		CURLcode result = msg->data.result;

		if (msg->msg != CURLMSG_DONE)
			continue;
		if (which == curl) {
			mine = true;
			*code = result;
		} else if (which == e->watch.curl) {
			watch_look(e, true, result);
		}
	}
	watch_look(e, false, CURLE_OK);
	return mine;
}

/* Let transfers go on until then, or until this one has ended. */
static bool
etcd_drive(struct etcd *e, const CURL *curl, uint64_t until_ns, CURLcode *code)
{
	bool knew = e->watch.dirty;

	for (;;) {
		uint64_t now;
		int running;

		curl_multi_perform(e->multi, &running);
		if (etcd_ended(e, curl, code))
			return true;
		now = agent_now();
		if (now >= until_ns || (curl == NULL && e->watch.dirty && !knew))
			return false;
		curl_multi_poll(e->multi, NULL, 0, (int)((until_ns - now) / AGENT_MS) + 1, NULL);
	}
}

void
etcd_wait(struct etcd *e, uint64_t until_ns)
{
	CURLcode code;

	etcd_drive(e, NULL, until_ns, &code);
}

/* What a transfer that failed says to a person. */
static int
etcd_why(
	const struct etcd *e, unsigned at, CURLcode code, const char *error, struct pbox_error *err)
{
	const char *said = error[0] != '\0' ? error : curl_easy_strerror(code);
	struct tm tm;
	char when[32];
	time_t now;

	if (strstr(said, "not yet valid") != NULL || strstr(said, "has expired") != NULL) {
		now = time(NULL);
		gmtime_r(&now, &tm);
		strftime(when, sizeof(when), "%Y-%m-%d %H:%M", &tm);
		return pbox_fail(err, EKEYEXPIRED,
			"%s: %.120s: this host's clock says %s UTC: set it, or renew the certificate",
			e->url[at], said, when);
	}
	switch (code) {
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_SSL_CACERT_BADFILE:
	case CURLE_SSL_CERTPROBLEM:
	case CURLE_SSL_CONNECT_ERROR:
		return pbox_fail(err, EPROTO,
			"%s: TLS: %.160s: look at ca, cert and key of [cluster]", e->url[at], said);
	case CURLE_RECV_ERROR:
	case CURLE_SEND_ERROR:
	case CURLE_GOT_NOTHING:
		if (strstr(said, "alert") != NULL)
			return pbox_fail(err, EPROTO,
				"%s: TLS: it refuses this client (%.120s): set cert and key of [cluster], signed by what etcd trusts",
				e->url[at], said);
		if (strncmp(e->url[at], "https", 5) != 0)
			return pbox_fail(err, EAGAIN, "%s: %.120s: has it TLS? Then write https://",
				e->url[at], said);
		if (e->conf->cert[0] == '\0')
			return pbox_fail(err, EAGAIN,
				"%s: %.120s: does it want a certificate? Set cert and key of [cluster]",
				e->url[at], said);
		break;
	default:
		break;
	}
	return pbox_fail(err, EAGAIN, "%s: %.160s", e->url[at], said);
}

static int
etcd_once(struct etcd *e, unsigned at, const char *path, const char *request, json_t **answer,
	struct pbox_error *err)
{
	char error[CURL_ERROR_SIZE];
	struct etcd_body body = {0};
	struct pbox_error why = {0};
	struct curl_slist *head;
	CURL *curl = etcd_transfer(e, at, path, request, &head, error);
	CURLcode code = CURLE_OK;
	long status = 0;
	int ret;

	*answer = NULL;
	if (curl == NULL)
		return pbox_fail(err, ENOMEM, "no memory for a request");
	curl_easy_setopt(curl, CURLOPT_WRITEDATA, &body);
	curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)(e->attempt_ns / AGENT_MS));
	curl_multi_add_handle(e->multi, curl);
	if (!etcd_drive(e, curl, agent_now() + e->attempt_ns + AGENT_S, &code))
		code = CURLE_OPERATION_TIMEDOUT;
	curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
	curl_multi_remove_handle(e->multi, curl);
	curl_easy_cleanup(curl);
	curl_slist_free_all(head);
	if (code != CURLE_OK) {
		ret = etcd_why(e, at, code, error, err);
	} else {
		*answer = json_loads(body.text != NULL ? body.text : "", 0, NULL);
		ret = pbox_etcd_error(status, *answer, body.text != NULL ? body.text : "", &why);
		if (ret != 0)
			pbox_fail(err, -ret, "%s: %s", e->url[at], why.text);
	}
	if (ret != 0) {
		json_decref(*answer);
		*answer = NULL;
	}
	free(body.text);
	return ret;
}

/* A token for the user, if there is one. */
static int
etcd_login(struct etcd *e, unsigned at, struct pbox_error *err)
{
	const struct pbox_cluster_options *c = e->conf;
	json_t *body, *answer;
	const char *token;
	char *request;
	int ret;

	if (c->user[0] == '\0' || e->token != NULL || e->no_users)
		return 0;
	body = json_pack("{s:s, s:s#}", "name", c->user, "password",
		(const char *)c->password.bytes, (size_t)c->password.len);
	request = body != NULL ? json_dumps(body, JSON_COMPACT) : NULL;
	json_decref(body);
	if (request == NULL)
		return pbox_fail(err, EINVAL, "user and password of [cluster] are no UTF-8");
	ret = etcd_once(e, at, "auth/authenticate", request, &answer, err);
	explicit_bzero(request, strlen(request));
	free(request);
	if (ret == -EOPNOTSUPP) {
		pbox_log(PBOX_LOG_WARN,
			"etcd has no users (auth enable), so anyone who reaches it may change the map");
		e->no_users = true;
		return 0;
	}
	token = json_string_value(json_object_get(answer, "token"));
	if (ret == 0 && token == NULL)
		ret = pbox_fail(err, EPROTO, "%s gives no token for user %s", e->url[at], c->user);
	if (ret == 0) {
		e->token = strdup(token);
		ret = e->token != NULL ? 0 : pbox_fail(err, ENOMEM, "no memory for a token");
	}
	json_decref(answer);
	return ret;
}

static void
etcd_logout(struct etcd *e)
{
	free(e->token);
	e->token = NULL;
	e->no_users = false;
}

/* Once more with a new token where the old one has ended, or where users have been switched on meanwhile. */
static int
etcd_as_user(struct etcd *e, unsigned at, const char *path, const char *request, json_t **answer,
	struct pbox_error *err)
{
	int ret;

	for (int once = 0; once < 2; once++) {
		*answer = NULL;
		ret = etcd_login(e, at, err);
		if (ret == 0)
			ret = etcd_once(e, at, path, request, answer, err);
		if (ret != -ESTALE && !(ret == -EACCES && e->no_users))
			return ret;
		etcd_logout(e);
	}
	return ret;
}

int
etcd_ask_at(struct etcd *e, unsigned at, const char *path, json_t *body, json_t **answer,
	struct pbox_error *err)
{
	char *request = body != NULL ? json_dumps(body, JSON_COMPACT) : NULL;
	int ret;

	*answer = NULL;
	json_decref(body);
	if (request == NULL)
		return pbox_fail(err, ENOMEM, "no memory for a request");
	ret = etcd_as_user(e, at, path, request, answer, err);
	free(request);
	return ret;
}

int
etcd_ask(struct etcd *e, const char *path, json_t *body, json_t **answer, struct pbox_error *err)
{
	char *request = body != NULL ? json_dumps(body, JSON_COMPACT) : NULL;
	unsigned first = e->at;
	int ret = -EAGAIN;

	*answer = NULL;
	json_decref(body);
	if (request == NULL)
		return pbox_fail(err, ENOMEM, "no memory for a request");
	for (unsigned i = 0; i < e->n; i++) {
		e->at = (first + i) % e->n;
		ret = etcd_as_user(e, e->at, path, request, answer, err);
		/* what the members agree on, another one does not say otherwise */
		if (ret == 0 || ret == -EACCES || ret == -ENOSPC || ret == -ENOENT ||
			ret == -ENOMEM)
			break;
	}
	free(request);
	return ret;
}
