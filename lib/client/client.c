/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <sodium.h>

#include "restart.h"

/* Opening, closing, and what is small. Operations are in operation.c. */

#define LEAVE_PATIENCE NS_PER_S
#define MEMORY_ALIGN   64

int
client_fail(struct pbox_client_error *err, int code, const char *fmt, ...)
{
	va_list ap;

	if (err == NULL)
		return code;
	err->code = code;
	va_start(ap, fmt);
	vsnprintf(err->text, sizeof(err->text), fmt, ap);
	va_end(ap);
	return code;
}

void
text_add(char *text, size_t cap, const char *fmt, ...)
{
	size_t len = strnlen(text, cap);
	va_list ap;

	if (len + 1 >= cap)
		return;
	va_start(ap, fmt);
	vsnprintf(text + len, cap - len, fmt, ap);
	va_end(ap);
}

/** C0 and DEL; C1 in UTF-8. */
static bool
steers(const uint8_t *p)
{
	return p[0] < 0x20 || p[0] == 0x7f || (p[0] == 0xc2 && (p[1] & 0xe0) == 0x80);
}

const char *
text_name(char *out, const char *name)
{
	const uint8_t *p = (const uint8_t *)name;
	size_t at = 0;

	for (; *p != 0 && at + 5 < TEXT_NAME; p++) {
		if (steers(p) || (p > (const uint8_t *)name && steers(p - 1) && p[-1] == 0xc2))
			at += (size_t)snprintf(out + at, TEXT_NAME - at, "\\x%02x", *p);
		else if (*p == '\'' || *p == '"' || *p == '\\')
			at += (size_t)snprintf(out + at, TEXT_NAME - at, "\\%c", *p);
		else
			out[at++] = (char)*p;
	}
	out[at] = 0;
	return out;
}

void
text_tame(char *text)
{
	for (uint8_t *p = (uint8_t *)text; *p != 0; p++) {
		if (!steers(p))
			continue;
		if (*p == 0xc2)
			*p++ = '?';
		*p = '?';
	}
}

const char *
pbox_client_version(void)
{
	return PBOX_VERSION;
}

const char *
pbox_client_code_name(int code)
{
	static const char *const name[] = {"OK", "INVALID", "SYSTEM", "UNREACHABLE", "VERSION",
		"NO_JOB", "SECRET", "REFUSED", "MISMATCH", "DEADLINE", "LOST", "MTU", "MEMORY",
		"CLOSED", "RUNNING", "RUN_ENDED"};

	if (code == PBOX_C_PENDING)
		return "PENDING";
	return code <= 0 && -code < (int)(sizeof(name) / sizeof(name[0])) ? name[-code] : "?";
}

const char *
pbox_client_name(const char *what, unsigned number)
{
	static const struct {
		const char *what, *(*name)(unsigned);
	} list[] = {{"format", pbox_format_name}, {"op", pbox_op_name},
		{"optimiser", pbox_optimiser_name}, {"hyper", pbox_hyper_name},
		{"policy", pbox_policy_name}};
	bool reserved = strcmp(what, "format") == 0 && pbox_format_size(number) == 0;

	for (unsigned i = 0; i < sizeof(list) / sizeof(list[0]) && !reserved; i++)
		if (strcmp(what, list[i].what) == 0 && list[i].name(number)[0] != '?')
			return list[i].name(number);
	return NULL;
}

void
pbox_client_conf_init_sized(struct pbox_client_conf *conf, size_t size)
{
	struct pbox_client_conf all = {
		.worker = -1,
		.timeout_ms = 60000,
		.join_timeout_ms = 10000,
		.gso = -1,
		.keep_copies = 1,
		.patience_ms = 1800000,
		.left_ms = 1200,
	};

	all.size = size < sizeof(all) ? size : sizeof(all);
	memcpy(conf, &all, all.size);
}

#undef pbox_client_conf_init
void
pbox_client_conf_init(struct pbox_client_conf *conf)
{
	pbox_client_conf_init_sized(conf, offsetof(struct pbox_client_conf, keep_copies));
}

/* ---- entering and leaving calls, time ------------------------------------------------------ */

int
client_enter(struct pbox_client *c, struct pbox_client_error *err)
{
	int rc = 0;

	pthread_mutex_lock(&c->lock);
	if (c->closing)
		rc = client_fail(err, PBOX_C_CLOSED, "the client was closed");
	else if (c->fatal != 0)
		rc = client_fail(err, c->fatal, "%s", c->fatal_text);
	else
		c->users++;
	pthread_mutex_unlock(&c->lock);
	return rc;
}

void
client_leave(struct pbox_client *c)
{
	pthread_mutex_lock(&c->lock);
	c->users--;
	if (c->closing && c->users == 0)
		pthread_cond_broadcast(&c->cond);
	pthread_mutex_unlock(&c->lock);
}

uint64_t
client_deadline(const struct pbox_client *c, unsigned timeout_ms)
{
	return clock_ns() + (timeout_ms != 0 ? timeout_ms : c->conf.timeout_ms) * NS_PER_MS;
}

bool
client_sleep(struct pbox_client *c, uint64_t deadline)
{
	struct timespec t = {(time_t)(deadline / NS_PER_S), (long)(deadline % NS_PER_S)};

	return pthread_cond_timedwait(&c->cond, &c->lock, &t) != ETIMEDOUT;
}

struct table *
client_table(struct pbox_client *c, uint32_t table)
{
	struct table *t;

	pthread_mutex_lock(&c->lock);
	t = table < c->tables ? c->table[table] : NULL;
	pthread_mutex_unlock(&c->lock);
	return t;
}

void *
pbox_client_alloc(struct pbox_client *c, size_t bytes)
{
	struct pbox_client_transport *t = c->link.t;

	if (t->ops->alloc != NULL)
		return t->ops->alloc(t, bytes);
	return bytes <= SIZE_MAX - MEMORY_ALIGN
		       ? aligned_alloc(MEMORY_ALIGN,
				 (bytes + MEMORY_ALIGN - 1) & ~(size_t)(MEMORY_ALIGN - 1))
		       : NULL;
}

static void
memory_free(struct pbox_client *c, void *memory)
{
	struct pbox_client_transport *t = c->link.t;

	if (t->ops->free != NULL)
		t->ops->free(t, memory);
	else
		free(memory);
}

static void
freed_release(struct pbox_client *c)
{
	for (struct freed *f; (f = c->freed) != NULL; free(f)) {
		c->freed = f->next;
		memory_free(c, f->memory);
	}
}

static bool
is_busy(const struct pbox_client *c)
{
	for (uint32_t i = 0; i < c->slots; i++)
		if (c->slot[i].op != NULL && !c->slot[i].op->done)
			return true;
	return false;
}

void
pbox_client_free(struct pbox_client *c, void *memory)
{
	struct freed *f;

	pthread_mutex_lock(&c->lock);
	if (!is_busy(c)) {
		freed_release(c);
		memory_free(c, memory);
	} else if (memory != NULL &&
		   (f = malloc(sizeof(*f))) != NULL) { /* else it is lost: that harms less */
		*f = (struct freed){c->freed, memory};
		c->freed = f;
	}
	pthread_mutex_unlock(&c->lock);
}

uint32_t
pbox_client_next_round(struct pbox_client *c, uint32_t table)
{
	struct table *t = client_table(c, table);
	uint32_t round;

	if (t == NULL)
		return 0;
	pthread_mutex_lock(&c->lock);
	round = t->base_version + t->max_submitted + 1;
	pthread_mutex_unlock(&c->lock);
	return round;
}

unsigned
pbox_client_worker(const struct pbox_client *c)
{
	return c->worker;
}

unsigned
pbox_client_workers(const struct pbox_client *c)
{
	return c->workers;
}

void
pbox_client_stats(const struct pbox_client *c, struct pbox_client_stats *stats)
{
	struct pbox_client *w = (struct pbox_client *)(uintptr_t)c;
	size_t size = stats->size < sizeof(*stats) ? stats->size : sizeof(*stats);

	pthread_mutex_lock(&w->lock);
	memcpy(stats, &w->stats, size);
	pthread_mutex_unlock(&w->lock);
	stats->size = size;
}

/* ---- open ---------------------------------------------------------------------------------- */

static int
check_conf(const struct pbox_client_conf *conf, struct pbox_client_error *err)
{
	size_t len;

	if (conf == NULL || conf->size < offsetof(struct pbox_client_conf, min_rto_us))
		return client_fail(err, PBOX_C_INVALID,
			"the configuration was not set up with pbox_client_conf_init");
	if (conf->box == NULL || conf->box[0] == 0)
		return client_fail(err, PBOX_C_INVALID, "no address of the box is given");
	len = conf->job != NULL ? strlen(conf->job) : 0;
	if (len < 1 || len >= PBOX_NAME_LEN)
		return client_fail(err, PBOX_C_INVALID,
			"the job's name has %zu bytes; 1 to %d are taken", len, PBOX_NAME_LEN - 1);
	if (!pbox_utf8_good(conf->job))
		return client_fail(err, PBOX_C_INVALID, "the job's name is not UTF-8");
	if (conf->workers < 1 || conf->workers > PBOX_MAX_WORKERS)
		return client_fail(err, PBOX_C_INVALID,
			"number of workers is %u; 1 to %d are taken", conf->workers,
			PBOX_MAX_WORKERS);
	if (conf->worker < -1 || conf->worker >= (int)conf->workers)
		return client_fail(err, PBOX_C_INVALID,
			"worker is %d; with %u workers it must be 0 to %u, or -1 for any",
			conf->worker, conf->workers, conf->workers - 1);
	if (conf->size >= offsetof(struct pbox_client_conf, policy) + sizeof(conf->policy) &&
		conf->policy > 1)
		return client_fail(err, PBOX_C_INVALID,
			"policy is %u; 0 (wait) and 1 (shrink) are taken", conf->policy);
	if (conf->size >= offsetof(struct pbox_client_conf, auth) + sizeof(conf->auth) &&
		conf->auth > 1)
		return client_fail(err, PBOX_C_INVALID,
			"auth is %u; 0 (as the box has it) and 1 (required) are taken", conf->auth);
	return 0;
}

/** "host", "host:port" -> c->box */
static int
resolve(struct pbox_client *c, const char *box, struct pbox_client_error *err)
{
	struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_DGRAM}, *found;
	char host[256];
	const char *colon = strrchr(box, ':');
	size_t len = colon != NULL ? (size_t)(colon - box) : strlen(box);
	char *end = NULL;
	long port = PBOX_CONTROL_PORT;
	int rc;

	if (colon != NULL) {
		port = strtol(colon + 1, &end, 10);
		if (colon[1] == 0 || *end != 0 || port < 1 || port > 65535)
			return client_fail(err, PBOX_C_INVALID, "'%s': '%s' is not a UDP port", box,
				colon + 1);
	}
	if (len == 0 || len >= sizeof(host))
		return client_fail(err, PBOX_C_INVALID, "'%s' is not ADDRESS or ADDRESS:PORT", box);
	memcpy(host, box, len);
	host[len] = 0;
	rc = getaddrinfo(host, NULL, &hints, &found);
	if (rc != 0)
		return client_fail(err, PBOX_C_UNREACHABLE, "box '%s': %s (PBox speaks IPv4)", host,
			gai_strerror(rc));
	memcpy(&c->box.addr, found->ai_addr, sizeof(c->box.addr));
	c->box.addr.sin_port = htons((uint16_t)port);
	freeaddrinfo(found);
	return 0;
}

/** R12.1 */
static void
run_identity(uint8_t *run, const char *text)
{
	static const char prefix[] = "PBOX-RUN-1";
	uint8_t hash[crypto_hash_sha256_BYTES];
	crypto_hash_sha256_state s;

	crypto_hash_sha256_init(&s);
	crypto_hash_sha256_update(&s, (const uint8_t *)prefix, strlen(prefix));
	crypto_hash_sha256_update(&s, (const uint8_t *)text, strlen(text));
	crypto_hash_sha256_final(&s, hash);
	memcpy(run, hash, PBOX_RUN_LEN);
}

static int
copy_conf(struct pbox_client *c, const struct pbox_client_conf *conf, struct pbox_client_error *err)
{
	char host[256] = "";

	pbox_client_conf_init_sized(&c->conf, sizeof(c->conf));
	memcpy(&c->conf, conf, conf->size < sizeof(*conf) ? conf->size : sizeof(*conf));
	if (c->conf.min_rto_us == 0)
		c->conf.min_rto_us = 5000;
	if (c->conf.timeout_ms == 0)
		c->conf.timeout_ms = 60000;
	if (c->conf.patience_ms == 0)
		c->conf.patience_ms = 1800000;
	if (c->conf.left_ms == 0)
		c->conf.left_ms = 1200;
	if (c->conf.join_timeout_ms == 0)
		c->conf.join_timeout_ms = 10000;
	gethostname(host, sizeof(host) - 1);
	c->has_run = c->conf.run != NULL && c->conf.run[0] != 0;
	if (c->has_run)
		run_identity(c->run, c->conf.run);
	c->job = strdup(conf->job);
	c->secret = strdup(conf->secret != NULL ? conf->secret : "");
	c->host = strdup(conf->host != NULL ? conf->host : host);
	if (c->job == NULL || c->secret == NULL || c->host == NULL)
		return client_fail(err, PBOX_C_MEMORY, "no memory for a client");
	return 0;
}

static void
client_destroy(struct pbox_client *c)
{
	for (uint32_t i = 0; i < c->tables; i++)
		table_free(c->table[i]);
	free(c->table);
	for (uint32_t i = 0; i < c->slots; i++)
		if (c->slot[i].op != NULL) {
			free(c->slot[i].op->text);
			free(c->slot[i].op);
		}
	free(c->slot);
	for (unsigned i = 0; c->ep != NULL && i < PBOX_MAX_ENDPOINTS; i++)
		free(c->ep[i].flight);
	free(c->ep);
	free(c->refs);
	free(c->table_of);
	freed_release(c);
	link_close(&c->link);
	rejoin_close(c);
	pthread_mutex_destroy(&c->lock);
	pthread_mutex_destroy(&c->declare_lock);
	pthread_cond_destroy(&c->cond);
	if (c->secret != NULL)
		sodium_memzero(c->secret, strlen(c->secret));
	free(c->box_name);
	free(c->secret);
	free(c->job);
	free(c->host);
	free(c);
}

static struct pbox_client *
client_create(void)
{
	struct pbox_client *c = calloc(1, sizeof(*c));
	pthread_condattr_t attr;

	if (c == NULL)
		return NULL;
	c->cmds_tail = &c->cmds;
	c->submitted_tail = &c->submitted;
	c->finished_tail = &c->finished;
	c->now = clock_ns();
	pthread_mutex_init(&c->lock, NULL);
	pthread_mutex_init(&c->declare_lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&c->cond, &attr);
	pthread_condattr_destroy(&attr);
	return c;
}

int
pbox_client_open(struct pbox_client **out, const struct pbox_client_conf *conf,
	struct pbox_client_error *err)
{
	struct pbox_client *c;
	int rc = check_conf(conf, err);

	if (rc != 0)
		return rc;
	if (sodium_init() < 0)
		return client_fail(err, PBOX_C_SYSTEM, "libsodium has no source of random numbers");
	c = client_create();
	if (c != NULL && rejoin_open(c) != 0) {
		client_destroy(c);
		c = NULL;
	}
	if (c == NULL)
		return client_fail(err, PBOX_C_MEMORY, "no memory for a client");
	rc = copy_conf(c, conf, err);
	if (rc == 0)
		rc = resolve(c, conf->box, err);
	if (rc == 0)
		rc = link_open(&c->link, &c->conf, &c->box.addr, err);
	if (rc == 0)
		rc = join_session(c, err);
	if (rc != 0)
		goto fail;
	rc = pthread_create(&c->thread, NULL, session_main, c);
	if (rc != 0) {
		rc = client_fail(err, PBOX_C_SYSTEM, "cannot start a thread: %s", strerror(rc));
		goto fail;
	}
	*out = c;
	return 0;
fail:
	client_destroy(c);
	return rc;
}

/* ---- close --------------------------------------------------------------------------------- */

static void
close_run(struct pbox_client *c, struct cmd *cmd)
{
	(void)cmd;
	c->shut = true;
	restore_end(c);
	control_fail_all(c);
	while (c->ops != NULL) {
		op_fail(c, c->ops, PBOX_C_CLOSED, "the client was closed");
		op_finish(c, c->ops);
	}
}

static void
end_run(struct pbox_client *c, struct cmd *cmd)
{
	(void)cmd;
	c->ending = true;
}

void
pbox_client_close(struct pbox_client *c)
{
	struct cmd shut = {.run = close_run}, end = {.run = end_run};
	uint8_t answer[1024];

	if (c == NULL)
		return;
	pthread_mutex_lock(&c->lock);
	c->closing = true;
	pthread_cond_broadcast(&c->cond);
	pthread_mutex_unlock(&c->lock);
	cmd_call(c, &shut);
	request_call(c, PBOX_LEAVE, PBOX_LEFT, NULL, 0, answer, sizeof(answer), NULL,
		clock_ns() + LEAVE_PATIENCE, NULL);
	pthread_mutex_lock(&c->lock);
	while (c->users > 0)
		pthread_cond_wait(&c->cond, &c->lock);
	pthread_mutex_unlock(&c->lock);
	cmd_call(c, &end);
	pthread_join(c->thread, NULL);
	client_destroy(c);
}
