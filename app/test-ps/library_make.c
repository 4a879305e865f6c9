/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* The workers of a lane, and their memory. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "library.h"

#define LEAST 16 /* frames that may come at once */

static int
library_worker_make(struct lane *l, unsigned k, const struct pbox_client_conf *conf)
{
	const struct testps *t = l->t;
	struct library_worker *x = &l->library->x[k];
	struct pbox_client_conf own = *conf;
	unsigned each = t->port[0].n_rxd / t->workers;

	*x = (struct library_worker){.l = l, .number = (uint16_t)worker_of(l, k)};
	x->port = (struct pbox_worker_ops){.send = library_send,
		.random = control_port_random,
		.ctx = x,
		.mtu = t->mtu,
		.batch = RTE_MIN(t->opt.burst, (unsigned)PBOX_CLIENT_TX_BATCH),
		.window = RTE_MAX(each, (unsigned)LEAST),
		.path_known = true};
	own.worker = x->number;
	x->w = pbox_worker_create(&own, &t->boxes[0], &x->port);
	if (x->w != NULL && t->n_boxes > 1)
		pbox_worker_boxes(x->w, t->boxes, t->n_boxes);
	return x->w != NULL ? 0 : -ENOMEM;
}

int
library_make(struct lane *l, struct pbox_error *err)
{
	const struct testps *t = l->t;
	char secret[PBOX_CONF_SECRET_MAX + 1] = "";
	struct pbox_client_conf conf = {.size = sizeof(conf),
		.job = t->opt.job,
		.secret = secret,
		.host = "testps",
		.workers = t->workers,
		.window = t->now.window,
		.slots = t->opt.slots,
		.policy = (unsigned)t->opt.policy,
		.timeout_ms = (unsigned)(t->opt.timeout_ns / 1000000), /* of reports of work */
		.keep_copies = 1,
		.auth = t->opt.auth,
		.run = t->run};
	struct library *b = calloc(1, sizeof(*b));
	unsigned n = RTE_MAX(l->workers, 1u);
	int ret = b != NULL ? 0 : -ENOMEM;

	l->library = b;
	l->cap = NO_LIMIT;
	memcpy(secret, t->opt.secret.bytes, t->opt.secret.len);
	if (ret == 0) {
		b->x = calloc(n, sizeof(*b->x));
		b->dirty[0] = calloc(n, sizeof(*b->dirty[0]));
		b->dirty[1] = calloc(n, sizeof(*b->dirty[1]));
		ret = b->x != NULL && b->dirty[0] != NULL && b->dirty[1] != NULL ? 0 : -ENOMEM;
	}
	for (unsigned k = 0; ret == 0 && k < l->workers; k++)
		ret = library_worker_make(l, k, &conf);
	sodium_memzero(secret, sizeof(secret));
	return ret == 0 ? 0 : pbox_fail(err, ENOMEM, "no memory for %u workers", t->workers);
}

int
library_ready(struct lane *l, struct pbox_error *err)
{
	struct library *b = l->library;
	unsigned n = l->t->model.n;
	size_t op = sizeof(struct pbox_worker_op) + n * sizeof(struct pbox_worker_entry);

	atomic_store(&l->round, 0);
	if (library_data_make(l, err) != 0)
		return -ENOMEM;
	for (unsigned k = 0; k < l->workers; k++) {
		struct library_worker *x = &b->x[k];

		x->op = malloc(op);
		x->pull = malloc(op);
		x->node_in = calloc((size_t)PBOX_RANGE_NODES * n, sizeof(*x->node_in));
		x->out = pbox_worker_room(b->elements * sizeof(float) + 64);
		if (x->op == NULL || x->pull == NULL || x->node_in == NULL || x->out == NULL)
			return pbox_fail(err, ENOMEM,
				"no memory for the results of %u workers, %zu MiB: take fewer, or a smaller model",
				l->t->workers, (b->elements * sizeof(float) * l->t->workers) >> 20);
	}
	return 0;
}

void
library_free(struct lane *l)
{
	struct library *b = l->library;

	for (unsigned k = 0; b != NULL && b->x != NULL && k < l->workers; k++) {
		struct library_worker *x = &b->x[k];

		if (x->w != NULL)
			pbox_worker_destroy(x->w);
		free(x->route);
		free(x->op);
		free(x->pull);
		free(x->node_in);
		free(x->out);
	}
	if (b != NULL) {
		library_data_free(b);
		free(b->x);
		free(b->dirty[0]);
		free(b->dirty[1]);
	}
	free(b);
	l->library = NULL;
}
