/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdarg.h>
#include <stdio.h>

#include "sim.h"

/* A run in plain words: one line a datagram, with what becomes of it, and what else happens. */

/* When nothing moves any more, repetitions say nothing. */
static bool
silent(const struct sim *s)
{
	return !s->words || s->now - sim_progress(s) > SEC;
}

static void
clock_of_line(const struct sim *s)
{
	printf("%12.3f ms  ", (double)(s->now - SIM_BEGIN) / 1e6);
}

void
sim_words(const struct sim *s, const char *fmt, ...)
{
	va_list ap;

	if (silent(s))
		return;
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
}

void
sim_note(const struct sim *s, const char *fmt, ...)
{
	va_list ap;

	if (!s->words && !s->verbose)
		return;
	clock_of_line(s);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
}

static void
print_frame(const struct pbox_hdr *h)
{
	printf("%s", pbox_type_name(h->type));
	if (h->type >= PBOX_FIRST_DATA_TYPE)
		printf(" round %u, table %u chunk %u fragment %u", h->round,
			h->chunk >> PBOX_CHUNK_BITS, h->chunk & ((1u << PBOX_CHUNK_BITS) - 1),
			h->frag);
	else if (h->type == PBOX_ERROR)
		printf(" %s", pbox_errcode_name(h->aux));
	if (h->type >= PBOX_FIRST_DATA_TYPE && (h->flags & PBOX_F_HAVE) != 0)
		printf(" HAVE");
	if (h->base > 0xFFFF &&
		(h->type == PBOX_PUSHPULL || h->type == PBOX_PUSH || h->type == PBOX_PUSH_OK))
		printf(", slots from %u, level %u", h->base & 0xFFFF, h->base >> 16);
	if (h->type == PBOX_WAIT && h->weight != UINT32_MAX)
		printf(", %u there, worker %u is missing", h->aux, h->weight);
	if (h->type == PBOX_RESTORE_OK)
		printf(", version %u is %s", h->base,
			h->aux == PBOX_RESTORE_DONE    ? "there"
			: h->aux == PBOX_RESTORE_NOTED ? "noted"
			: h->aux == PBOX_RESTORE_GIVE  ? "to be given"
			: h->aux == PBOX_RESTORE_LOST  ? "lost"
						       : "without its SETs");
}

void
sim_words_send(const struct sim *s, const struct sim_packet *p, const struct sim_fault *k)
{
	size_t at = 0, size = 0;
	struct pbox_hdr h;

	if (silent(s))
		return;
	clock_of_line(s);
	if (k->to_box)
		printf("%s %u/%u -> box %u  ", k->forged ? "somebody as worker" : "worker", k->job,
			k->worker, p->box);
	else
		printf("box %u -> worker %u/%u  ", p->box, k->job, k->worker);
	for (unsigned i = 0; at < p->len; i++, at += size) {
		if (pbox_frame_decode(p->data + at, p->len - at, at == 0, &h, &size) !=
			PBOX_WIRE_OK) {
			printf("what cannot be read");
			break;
		}
		printf("%s", i > 0 ? " + " : "");
		print_frame(&h);
	}
	printf(": ");
}

void
sim_words_deliver(const struct sim *s, uint64_t at)
{
	sim_words(s, "arrives at %.3f", (double)(at - SIM_BEGIN) / 1e6);
}
