/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <string.h>
#include <sys/mman.h>

#include "relay.h"

#define ECN 3 /* of the TOS byte: 0 not capable, 1 and 2 capable, 3 congestion experienced */

struct frame *
frame_get(struct relay *r)
{
	struct frame *f = r->free;

	if (f != NULL)
		r->free = f->next;
	return f;
}

void
frame_put(struct relay *r, struct frame *f)
{
	f->next = r->free;
	r->free = f;
}

static uint32_t
frame_length(const void *frame)
{
	return ((const struct frame *)frame)->len;
}

static const void *
frame_read(const void *frame, uint32_t offset, uint32_t len, void *copy)
{
	const struct frame *f = frame;

	(void)copy;
	return offset <= f->len && len <= f->len - offset ? f->data + offset : NULL;
}

static void *
frame_copy(void *ctx, void *frame)
{
	const struct frame *f = frame;
	struct frame *copy = frame_get(ctx);

	if (copy != NULL)
		memcpy(copy, f, offsetof(struct frame, data) + f->len);
	return copy;
}

static int
frame_corrupt(void *ctx, void **frame, uint32_t at, uint8_t change)
{
	(void)ctx;
	((struct frame *)*frame)->data[at] ^= change;
	return 0;
}

static int
frame_truncate(void *ctx, void **frame, uint32_t len)
{
	(void)ctx;
	((struct frame *)*frame)->len = len;
	return 0;
}

static int
frame_mark(void *ctx, void **frame)
{
	struct frame *f = *frame;

	(void)ctx;
	if ((f->tos & ECN) == 0 || (f->tos & ECN) == ECN)
		return 0;
	f->tos |= ECN;
	return 1;
}

/* nobody else sees it */
static int
frame_keep(void *ctx, void **frame)
{
	(void)ctx;
	(void)frame;
	return 0;
}

static void
frame_drop(void *ctx, void *frame)
{
	frame_put(ctx, frame);
}

static const struct pbox_fault_ops ops = {
	.length = frame_length,
	.read = frame_read,
	.copy = frame_copy,
	.corrupt = frame_corrupt,
	.truncate = frame_truncate,
	.mark = frame_mark,
	.keep = frame_keep,
	.drop = frame_drop,
};

/* As many as both lines can hold, and a batch that is read: the last one used is the next, so that
 * memory is touched only as far as it is needed. */
int
frames_open(struct relay *r)
{
	struct pbox_fault_line_conf conf = {
		.ops = &ops, .ctx = r, .limit = r->o.limit, .ticks_per_us = 1000};
	size_t line = (pbox_fault_line_size(r->o.limit) + 63) / 64 * 64;
	size_t n = 2 * (r->o.limit + PBOX_FAULT_WINDOW_MAX + 1024) + RELAY_BATCH;
	size_t bytes = PBOX_FAULT_DIRS * line + n * sizeof(struct frame);
	char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct frame *frames;

	if (memory == MAP_FAILED)
		return failed("no address space for %zu datagrams: see --limit", n);
	for (int d = 0; d < PBOX_FAULT_DIRS; d++) {
		conf.dir = (enum pbox_fault_dir)d;
		conf.target_left = &r->target_left[d];
		r->line[d] = pbox_fault_line_init(memory + (size_t)d * line, &conf);
		r->target_left[d] = r->o.conf[d].target_first;
		pbox_fault_line_set(r->line[d], &r->o.conf[d]);
	}
	frames = (struct frame *)(void *)(memory + PBOX_FAULT_DIRS * line);
	for (size_t i = n; i-- > 0;)
		frame_put(r, &frames[i]);
	return 0;
}
