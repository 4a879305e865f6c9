/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* One transfer to etcd: what requests and the watch have in common. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent.h"

#define CONNECT_MS 1000

uint64_t
agent_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_BOOTTIME, &t);
	return (uint64_t)t.tv_sec * AGENT_S + (uint64_t)t.tv_nsec;
}

size_t
etcd_take(char *data, size_t size, size_t n, void *body)
{
	struct etcd_body *b = body;
	char *more;

	PBOX_ASSERT(b->len <= ETCD_BODY);
	n *= size;
	if (n > ETCD_BODY - b->len)
		return 0; /* curl ends the transfer */
	more = realloc(b->text, b->len + n + 1);
	if (more == NULL)
		return 0;
	memcpy(more + b->len, data, n);
	b->text = more;
	b->len += n;
	more[b->len] = '\0';
	return n;
}

/* 0, or -1 without memory. */
static int
etcd_heads(struct etcd *e, struct curl_slist **head)
{
	struct curl_slist *list = curl_slist_append(NULL, "Content-Type: application/json"), *more;
	char text[1024];

	if (list != NULL && e->token != NULL) {
		snprintf(text, sizeof(text), "Authorization: %s", e->token);
		more = curl_slist_append(list, text);
		explicit_bzero(text, sizeof(text));
		if (more == NULL) {
			curl_slist_free_all(list);
			list = NULL;
		}
	}
	*head = list;
	return list != NULL ? 0 : -1;
}

CURL *
etcd_transfer(struct etcd *e, unsigned at, const char *path, const char *request,
	struct curl_slist **head, char error[CURL_ERROR_SIZE])
{
	const struct pbox_cluster_options *c = e->conf;
	CURL *curl = curl_easy_init();
	char url[PBOX_OPTIONS_URL + 64];

	PBOX_ASSERT(at < e->n);
	*head = NULL;
	if (curl == NULL || etcd_heads(e, head) != 0) {
		curl_easy_cleanup(curl);
		return NULL;
	}
	error[0] = '\0';
	snprintf(url, sizeof(url), "%s/v3/%s", e->url[at], path);
	curl_easy_setopt(curl, CURLOPT_URL, url);
	curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
	/* the environment's proxies are not for this */
	curl_easy_setopt(curl, CURLOPT_PROXY, "");
	curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(curl, CURLOPT_HTTPHEADER, *head);
	curl_easy_setopt(curl, CURLOPT_COPYPOSTFIELDS, request);
	curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, error);
	curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, etcd_take);
	/* a member that is cut off is noticed by a watch, too */
	curl_easy_setopt(curl, CURLOPT_TCP_KEEPALIVE, 1L);
	curl_easy_setopt(curl, CURLOPT_TCP_KEEPIDLE, 5L);
	curl_easy_setopt(curl, CURLOPT_TCP_KEEPINTVL, 2L);
	if (c->ca[0] != '\0')
		curl_easy_setopt(curl, CURLOPT_CAINFO, c->ca);
	if (c->cert[0] != '\0') {
		curl_easy_setopt(curl, CURLOPT_SSLCERT, c->cert);
		curl_easy_setopt(curl, CURLOPT_SSLKEY, c->key);
	}
	return curl;
}
