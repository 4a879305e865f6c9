/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>

#include "client_impl.h"

/* ---- handles: slot index + 1 below, generation above --------------------------------------- */

static int
slots_grow(struct pbox_client *c)
{
	uint32_t n = c->slots > 0 ? c->slots * 2 : 64;
	struct slot *slot;

	if (n > 1u << 24)
		return -1;
	slot = reallocarray(c->slot, n, sizeof(*slot));
	if (slot == NULL)
		return -1;
	for (uint32_t i = n; i-- > c->slots;) {
		slot[i] = (struct slot){.next = c->free_slot};
		c->free_slot = i + 1;
	}
	c->slot = slot;
	c->slots = n;
	return 0;
}

int
handle_give(struct pbox_client *c, struct op *op)
{
	struct slot *s;

	if (c->free_slot == 0 && slots_grow(c) != 0)
		return -1;
	op->handle = c->free_slot;
	s = &c->slot[c->free_slot - 1];
	c->free_slot = s->next;
	s->op = op;
	op->handle |= (uint64_t)s->generation << 32;
	return 0;
}

struct op *
handle_find(struct pbox_client *c, pbox_client_handle handle)
{
	uint32_t i = (uint32_t)handle;

	if (i == 0 || i > c->slots || c->slot[i - 1].generation != handle >> 32)
		return NULL;
	return c->slot[i - 1].op;
}

void
handle_take(struct pbox_client *c, struct op *op)
{
	uint32_t i = (uint32_t)op->handle;
	struct slot *s = &c->slot[i - 1];

	if (s->op != op)
		return;
	s->op = NULL;
	s->generation++;
	s->next = c->free_slot;
	c->free_slot = i;
}

void
handle_free_op(struct pbox_client *c, struct op *op)
{
	pthread_mutex_lock(&c->lock);
	handle_take(c, op);
	pthread_mutex_unlock(&c->lock);
	free(op);
}
