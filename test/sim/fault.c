/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define ALIKE 65536 /* counters; two that share one are counted together, in every run */

static const char *const kind_name[SIM_FAULT_KINDS] = {"lose", "repeat", "delay", "damage", "cut",
	"forge", "slow-mail", "kill", "rebind", "replace", "crash", "snapshot", "stray", "record",
	"halves", "stop", "move"};

/* By what it hits: the values take no part. */
static int
compare(const struct sim_fault *a, const struct sim_fault *b)
{
#define BY(field)                                            \
	do {                                                 \
		if (a->field != b->field)                    \
			return a->field < b->field ? -1 : 1; \
	} while (0)
	BY(kind);
	BY(to_box);
	BY(job);
	BY(worker);
	BY(box);
	BY(type);
	BY(forged);
	BY(chunk);
	BY(frag);
	BY(round);
	BY(nth);
	BY(copy);
#undef BY
	return 0;
}

static int
compare_void(const void *a, const void *b)
{
	return compare(a, b);
}

void
sim_faults_sort(struct sim_faults *l)
{
	if (l->n > 0)
		qsort(l->f, l->n, sizeof(*l->f), compare_void);
}

void
sim_faults_add(struct sim_faults *l, const struct sim_fault *k)
{
	if (l->n == l->cap) {
		if (l->fixed)
			return;
		l->cap = l->cap == 0 ? 256 : l->cap * 2;
		l->f = reallocarray(l->f, l->cap, sizeof(*l->f));
		PBOX_ASSERT(l->f != NULL);
	}
	l->f[l->n++] = *k;
}

uint32_t
sim_fault_nth(struct sim *s, const struct sim_fault *k)
{
	uint64_t h = sim_mix((uint64_t)k->chunk << 32 | k->round,
		(uint64_t)k->frag << 40 | (uint64_t)k->type << 32 | (uint64_t)k->job << 24 |
			(uint64_t)k->worker << 16 | (uint64_t)k->box << 9 |
			(uint64_t)k->forged << 8 | k->to_box);

	if (s->alike == NULL) {
		if (s->only == NULL && s->made == NULL)
			return 0; /* nobody looks */
		s->alike = calloc(ALIKE, sizeof(*s->alike));
		PBOX_ASSERT(s->alike != NULL);
	}
	return s->alike[h % ALIKE]++;
}

void
sim_fault_of(struct sim *s, struct sim_fault *k, const struct sim_packet *p, bool to_box)
{
	struct pbox_hdr h;
	size_t size;

	*k = (struct sim_fault){
		.to_box = to_box,
		.forged = p->forged,
		.job = (uint8_t)(p->ip >> 8),
		.worker = (uint8_t)((p->ip & 0xFF) - 1),
	};
	if (sim_is_fleet(&s->sc, &s->sc.job[k->job]))
		k->box = p->box;
	if (s->only == NULL && s->made == NULL && !s->words)
		return;
	if (pbox_frame_decode(p->data, p->len, true, &h, &size) == PBOX_WIRE_OK) {
		k->type = h.type;
		if (h.type >= PBOX_FIRST_DATA_TYPE) {
			k->chunk = h.chunk;
			k->frag = h.frag;
			k->round = h.round;
		}
	}
	k->nth = sim_fault_nth(s, k);
}

bool
sim_fault(struct sim *s, struct sim_fault *k, enum sim_fault_kind kind, bool drawn)
{
	const struct sim_fault *found;

	k->kind = (uint8_t)kind;
	if (s->only != NULL) {
		found = s->only->n == 0
				? NULL
				: bsearch(k, s->only->f, s->only->n, sizeof(*k), compare_void);
		drawn = found != NULL;
		if (drawn)
			memcpy(k->value, found->value, sizeof(k->value));
	}
	if (drawn && s->made != NULL)
		sim_faults_add(s->made, k);
	return drawn;
}

void
sim_faults_print(const struct sim_faults *l, FILE *to)
{
	for (size_t i = 0; i < l->n; i++) {
		const struct sim_fault *k = &l->f[i];

		fprintf(to,
			"%-9s %s %u/%u %-10s chunk %" PRIx32 " frag %u round %" PRIu32
			" nth %" PRIu32 " copy %u box %u%s values %" PRIu64 " %" PRIu64 "\n",
			kind_name[k->kind], k->to_box ? "from" : "to", k->job, k->worker,
			k->type != 0 ? pbox_type_name(k->type) : "-", k->chunk, k->frag, k->round,
			k->nth, k->copy, k->box, k->forged ? " forged" : "", k->value[0],
			k->value[1]);
	}
}

static bool
type_of(const char *name, uint8_t *type)
{
	for (unsigned i = 0; i < 256; i++) {
		const char *n = i != 0 ? pbox_type_name((uint8_t)i) : "-";

		if (n != NULL && strcmp(n, name) == 0) {
			*type = (uint8_t)i;
			return true;
		}
	}
	return false;
}

bool
sim_faults_line(struct sim_faults *l, const char *line)
{
	char kind[16], way[8], type[32];
	unsigned job, worker, frag, copy, box;
	struct sim_fault k = {0};
	const char *values = strstr(line, " values ");

	if (values == NULL ||
		sscanf(line,
			"%15s %7s %u/%u %31s chunk %" SCNx32 " frag %u round %" SCNu32
			" nth %" SCNu32 " copy %u box %u",
			kind, way, &job, &worker, type, &k.chunk, &frag, &k.round, &k.nth, &copy,
			&box) != 11 ||
		sscanf(values, " values %" SCNu64 " %" SCNu64, &k.value[0], &k.value[1]) != 2 ||
		!type_of(type, &k.type))
		return false;
	k.to_box = strcmp(way, "from") == 0;
	k.job = (uint8_t)job;
	k.worker = (uint8_t)worker;
	k.frag = (uint16_t)frag;
	k.copy = (uint8_t)copy;
	k.box = (uint8_t)box;
	k.forged = strstr(line, " forged ") != NULL;
	for (k.kind = 0; k.kind < SIM_FAULT_KINDS; k.kind++)
		if (strcmp(kind, kind_name[k.kind]) == 0) {
			sim_faults_add(l, &k);
			return true;
		}
	return false;
}
