/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>

#include "client_impl.h"

/* Handles of operations: the index in a table + 1 in the lower 32 bits, the generation of that entry above. */

static int
handles_grow(struct pbox_client *c)
{
	uint32_t n = c->handles > 0 ? c->handles * 2 : 64;
	struct handle *list;

	if (n > 1u << 24)
		return -1;
	list = reallocarray(c->handle, n, sizeof(*list));
	if (list == NULL)
		return -1;
	for (uint32_t i = n; i-- > c->handles;) {
		list[i] = (struct handle){.next = c->free_handle};
		c->free_handle = i + 1;
	}
	c->handle = list;
	c->handles = n;
	return 0;
}

int
handle_give(struct pbox_client *c, struct op *op)
{
	struct handle *h;

	if (c->free_handle == 0 && handles_grow(c) != 0)
		return -1;
	op->handle = c->free_handle;
	h = &c->handle[c->free_handle - 1];
	c->free_handle = h->next;
	h->op = op;
	op->handle |= (uint64_t)h->generation << 32;
	return 0;
}

struct op *
handle_find(struct pbox_client *c, pbox_client_handle handle)
{
	uint32_t i = (uint32_t)handle;

	if (i == 0 || i > c->handles || c->handle[i - 1].generation != handle >> 32)
		return NULL;
	return c->handle[i - 1].op;
}

void
handle_take(struct pbox_client *c, struct op *op)
{
	uint32_t i = (uint32_t)op->handle;
	struct handle *h = &c->handle[i - 1];

	if (h->op != op)
		return;
	h->op = NULL;
	h->generation++;
	h->next = c->free_handle;
	c->free_handle = i;
}

void
handle_free_op(struct pbox_client *c, struct op *op)
{
	pthread_mutex_lock(&c->lock);
	handle_take(c, op);
	pthread_mutex_unlock(&c->lock);
	free(op);
}
