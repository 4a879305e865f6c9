/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Reasons, as sentences. */

#include <stdio.h>

#include "work_impl.h"

static void
memory_text(const struct pbox_work_reason *r, char *text, size_t n)
{
	snprintf(text, n, "worker %u has %s for a micro-batch: %u -> %u slots", r->worker,
		r->fits ? "memory" : "no memory", r->before, r->after);
}

void
pbox_work_reason_text(const struct pbox_work_reason *r, char *text, size_t n)
{
	switch (r->cause) {
	case PBOX_WORK_SPEED:
		snprintf(text, n,
			"worker %u takes %.1f times as long a slot as the others since round %u: %u -> %u slots",
			r->worker, r->ratio, r->since, r->before, r->after);
		break;
	case PBOX_WORK_TRAFFIC:
		snprintf(text, n,
			"worker %u takes %.1f times as long as the others for transfers and fixed work: %u -> %u slots",
			r->worker, r->ratio, r->before, r->after);
		break;
	case PBOX_WORK_PAYLOADS:
		snprintf(text, n, "the same slots in other payloads: %u -> %u in a round",
			r->before, r->after);
		break;
	case PBOX_WORK_MEMORY:
		memory_text(r, text, n);
		break;
	case PBOX_WORK_JOINED:
		snprintf(text, n, "worker %u has joined: %u -> %u slots", r->worker, r->before,
			r->after);
		break;
	case PBOX_WORK_GONE:
		snprintf(text, n, "worker %u is gone: %u -> %u slots", r->worker, r->before,
			r->after);
		break;
	case PBOX_WORK_STOLEN:
		snprintf(text, n,
			"worker %u would end round %u last: %u -> %u slots, the others go to worker %u",
			r->worker, r->since, r->before, r->after, r->to);
		break;
	case PBOX_WORK_PROBE:
		snprintf(text, n,
			"worker %u had no slots for long, and is to be measured: %u -> %u slots",
			r->worker, r->before, r->after);
		break;
	}
}
