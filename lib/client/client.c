/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <sodium.h>

#include "client_impl.h"

/* Open, close, configuration, memory and facts of a client. Operations are in operation.c. */

#define LEAVE_PATIENCE NS_PER_S

const char *
pbox_client_version(void)
{
	return PBOX_VERSION;
}

const char *
pbox_client_name(const char *what, unsigned number)
{
	static const struct {
		const char *what, *(*name)(unsigned);
	} list[] = {{"format", pbox_format_name}, {"op", pbox_op_name},
		{"optimiser", pbox_optimiser_name}, {"hyper", pbox_hyper_name},
		{"policy", pbox_policy_name}, {"discipline", pbox_discipline_name}};
	bool reserved = strcmp(what, "format") == 0 && pbox_format_wide(number) == 0;

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

void *
pbox_client_alloc(struct pbox_client *c, size_t bytes)
{
	struct pbox_client_transport *t = c->t;

	if (t->ops->alloc != NULL)
		return t->ops->alloc(t, bytes);
	return pbox_worker_room(bytes);
}

static void
memory_free(struct pbox_client *c, void *memory)
{
	struct pbox_client_transport *t = c->t;

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
	for (uint32_t i = 0; i < c->handles; i++)
		if (c->handle[i].op != NULL && !c->handle[i].op->done)
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
		   (f = malloc(sizeof(*f))) !=
			   NULL) { /* else it leaks, which is better than a use after free */
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

	pthread_mutex_lock(&c->lock);
	if (c->closing)
		t = NULL;
	c->users += t != NULL; /* also when the session is over: a checkpoint asks */
	pthread_mutex_unlock(&c->lock);
	if (t == NULL)
		return 0;
	round = client_next_round(c, t);
	client_leave(c);
	return round;
}

unsigned
pbox_client_worker(const struct pbox_client *c)
{
	return pbox_worker_number(c->w);
}

unsigned
pbox_client_workers(const struct pbox_client *c)
{
	return pbox_worker_workers(c->w);
}

unsigned
pbox_client_slots(const struct pbox_client *c)
{
	return pbox_worker_slots(c->w);
}

struct nodes_cmd {
	struct cmd cmd;
	uint32_t round;
	struct pbox_node *node;
	unsigned n;
};

static void
nodes_run(struct pbox_client *c, struct cmd *cmd)
{
	struct nodes_cmd *n = (struct nodes_cmd *)cmd;

	n->n = pbox_worker_nodes(c->w, n->round, n->node);
}

unsigned
client_nodes(struct pbox_client *c, uint32_t round, struct pbox_node *node)
{
	struct nodes_cmd n = {.cmd = {.run = nodes_run}, .round = round, .node = node};

	if (client_enter(c, NULL) != 0)
		return pbox_worker_nodes(c->w, round, node); /* nothing comes any more */
	cmd_call(c, &n.cmd);
	client_leave(c);
	return n.n;
}

int
pbox_client_nodes(
	struct pbox_client *c, uint32_t round, struct pbox_client_node *nodes, unsigned cap)
{
	struct pbox_node list[PBOX_RANGE_NODES];
	unsigned n = client_nodes(c, round, list), slots = pbox_worker_slots(c->w);

	for (unsigned i = 0; i < n && i < cap; i++)
		nodes[i] = (struct pbox_client_node){
			list[i].first, (uint16_t)(pbox_node_end(list[i], slots) - list[i].first)};
	return (int)n;
}

void
pbox_client_stats(const struct pbox_client *c, struct pbox_client_stats *stats)
{
	struct pbox_client *w = (struct pbox_client *)(uintptr_t)c;
	size_t size = stats->size < sizeof(*stats) ? stats->size : sizeof(*stats);
	struct pbox_client_stats all;

	if (c->lanes > 1) {
		lanes_lock_all(w);
		progress_stats(w, &all);
		lanes_unlock_all(w);
		memcpy(stats, &all, size);
		stats->size = size;
		return;
	}
	pthread_mutex_lock(&w->lock);
	memcpy(stats, &w->stats, size);
	pthread_mutex_unlock(&w->lock);
	stats->size = size;
}

/* ---- open ---------------------------------------------------------------------------------- */

/** "host", "host:port" */
static int
client_resolve_one(struct sockaddr_in *at, const char *box, struct pbox_client_error *err)
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
			return pbox_client_fail(err, PBOX_C_INVALID, "'%s': '%s' is not a UDP port",
				box, colon + 1);
	}
	if (len == 0 || len >= sizeof(host))
		return pbox_client_fail(
			err, PBOX_C_INVALID, "'%s' is not ADDRESS or ADDRESS:PORT", box);
	memcpy(host, box, len);
	host[len] = 0;
	rc = getaddrinfo(host, NULL, &hints, &found);
	if (rc != 0)
		return pbox_client_fail(err, PBOX_C_UNREACHABLE, "box '%s': %s (PBox speaks IPv4)",
			host, gai_strerror(rc));
	memcpy(at, found->ai_addr, sizeof(*at));
	at->sin_port = htons((uint16_t)port);
	freeaddrinfo(found);
	return 0;
}

/** One box, or several with commas between: c->boxes. */
static int
client_resolve(struct pbox_client *c, const char *list, struct pbox_client_error *err)
{
	const char *all = list;

	while (c->n_boxes < PBOX_WORKER_BOXES) {
		size_t len;
		char one[300];
		int rc;

		list += strspn(list, " ");
		len = strcspn(list, ",");
		snprintf(one, sizeof(one), "%.*s", (int)(len < 299 ? len : 299), list);
		while (one[0] != 0 && one[strlen(one) - 1] == ' ')
			one[strlen(one) - 1] = 0;
		if (one[0] == 0 && (c->n_boxes > 0 || list[len] == ','))
			return pbox_client_fail(err, PBOX_C_INVALID,
				"box '%.200s' has nothing before or after a comma: write one comma between two addresses",
				all);
		rc = client_resolve_one(&c->boxes[c->n_boxes], one, err);
		if (rc != 0)
			return rc;
		for (unsigned i = 0; i < c->n_boxes; i++)
			if (memcmp(&c->boxes[i], &c->boxes[c->n_boxes], sizeof(c->boxes[i])) == 0)
				return pbox_client_fail(err, PBOX_C_INVALID,
					"box '%s' is named twice: name each box of the job once",
					one);
		c->n_boxes++;
		c->box = c->boxes[0];
		if (list[len] == 0)
			return 0;
		list += len + 1;
	}
	return pbox_client_fail(
		err, PBOX_C_INVALID, "more than %u boxes are named", PBOX_WORKER_BOXES);
}

static void
client_copy_conf(struct pbox_client *c, const struct pbox_client_conf *conf)
{
	c->conf = *conf;
	if (c->conf.timeout_ms == 0)
		c->conf.timeout_ms = 60000;
	if (c->conf.patience_ms == 0)
		c->conf.patience_ms = 1800000;
	if (c->conf.left_ms == 0)
		c->conf.left_ms = 1200;
	if (c->conf.join_timeout_ms == 0)
		c->conf.join_timeout_ms = 10000;
	if (c->conf.host == NULL) {
		gethostname(c->host, sizeof(c->host) - 1);
		c->conf.host = c->host;
	}
}

static int
transport_open(struct pbox_client *c, struct pbox_client_error *err)
{
	const struct pbox_client_transport_ops *ops = transport_find(c->conf.transport, err);
	struct pbox_client_transport_conf tc = {.box = c->box,
		.args = c->conf.transport_args,
		.bind = c->conf.bind,
		.mtu = c->conf.mtu,
		.timeout_ms = c->conf.join_timeout_ms};
	struct pbox_client_error local = {0};
	int rc;

	if (ops == NULL)
		return err != NULL ? err->code : PBOX_C_INVALID;
	rc = ops->open(&c->t, &tc, err != NULL ? err : &local);
	c->lane[0].t = c->t;
	return rc != 0 ? rc : pbox_worker_check_mtu(c->t->mtu, err);
}

static void
client_destroy(struct pbox_client *c)
{
	for (uint32_t i = 0; i < c->tables; i++)
		free(c->table[i]);
	free(c->table);
	for (uint32_t i = 0; i < c->handles; i++)
		free(c->handle[i].op);
	free(c->handle);
	lanes_close(c);
	if (c->t != NULL) {
		freed_release(c);
		c->t->ops->close(c->t);
	}
	if (c->w != NULL)
		pbox_worker_destroy(c->w);
	pthread_mutex_destroy(&c->lock);
	pthread_mutex_destroy(&c->declare_lock);
	pthread_cond_destroy(&c->cond);
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
	c->lanes = 1;
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
	int rc = pbox_worker_check(conf, err);

	if (rc != 0)
		return rc;
	if (sodium_init() < 0)
		return pbox_client_fail(
			err, PBOX_C_SYSTEM, "libsodium has no source of random numbers");
	c = client_create();
	if (c == NULL)
		return pbox_client_fail(err, PBOX_C_MEMORY, "no memory for a client");
	client_copy_conf(c, conf);
	rc = client_resolve(c, conf->box, err);
	if (rc == 0)
		rc = transport_open(c, err);
	if (rc == 0)
		rc = progress_open(c, err);
	if (rc == 0)
		rc = lanes_open(c, err);
	if (rc != 0)
		goto fail;
	rc = pthread_create(&c->thread, NULL, progress_main, c);
	if (rc != 0) {
		rc = pbox_client_fail(
			err, PBOX_C_SYSTEM, "cannot start a thread: %s", strerror(rc));
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
	pbox_worker_shut(c->w);
}

static void
client_end_run(struct pbox_client *c, struct cmd *cmd)
{
	(void)cmd;
	c->ending = true;
}

struct owes {
	struct cmd cmd;
	bool owes;
};

static void
owes_run(struct pbox_client *c, struct cmd *cmd)
{
	((struct owes *)cmd)->owes = pbox_worker_owes(c->w);
}

/* A box that was started again gets the pushes that it has lost; after LEAVE nobody has them. */
static void
await_redone(struct pbox_client *c)
{
	uint64_t until = client_clock_ns() + LEAVE_PATIENCE;
	struct owes o = {.cmd = {.run = owes_run}};

	for (;;) {
		cmd_call(c, &o.cmd);
		if (!o.owes || client_clock_ns() >= until)
			return;
		pthread_mutex_lock(&c->lock);
		client_sleep(c, client_clock_ns() + 5 * NS_PER_MS);
		pthread_mutex_unlock(&c->lock);
	}
}

void
pbox_client_close(struct pbox_client *c)
{
	struct cmd shut = {.run = close_run}, end = {.run = client_end_run};
	uint8_t answer[1024];

	if (c == NULL)
		return;
	pthread_mutex_lock(&c->lock);
	c->closing = true;
	pthread_cond_broadcast(&c->cond);
	pthread_mutex_unlock(&c->lock);
	await_redone(c);
	cmd_call(c, &shut);
	request_call(c, PBOX_LEAVE, PBOX_LEFT, NULL, 0, answer, sizeof(answer), NULL, NULL,
		client_clock_ns() + LEAVE_PATIENCE, NULL);
	pthread_mutex_lock(&c->lock);
	while (c->users > 0)
		pthread_cond_wait(&c->cond, &c->lock);
	pthread_mutex_unlock(&c->lock);
	cmd_call(c, &end);
	pthread_join(c->thread, NULL);
	client_destroy(c);
}
