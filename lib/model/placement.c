/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Chunks to endpoints: an equal part for each core, then for each port. */

#include <errno.h>
#include <stdlib.h>

#include "pbox_layout.h"

struct item {
	uint32_t elements, chunk;
};

static int
larger_first(const void *a, const void *b)
{
	const struct item *x = a, *y = b;

	if (x->elements != y->elements)
		return x->elements > y->elements ? -1 : 1;
	return x->chunk < y->chunk ? -1 : x->chunk > y->chunk;
}

/*
 * What each endpoint should get of a table, so that cores get the same, ports too as far as cores
 * allow it, and endpoints of one core no more unequal shares than that takes: iterative proportional
 * fitting (Deming, Stephan 1940) from equal shares on. It ends with the cores: their shares are
 * exact, whatever the ports are.
 */
#define FIT_ROUNDS 100

struct fit {
	double share[PBOX_MAX_ENDPOINTS];
	/* numbered by the first endpoint that has them */
	uint8_t core_of[PBOX_MAX_ENDPOINTS], port_of[PBOX_MAX_ENDPOINTS];
};

/* The first endpoint that has the core, or the port, of e. */
static unsigned
first_of(const struct pbox_place *place, unsigned e, bool port)
{
	unsigned i = 0;

	while (port ? place[i].port != place[e].port : place[i].core != place[e].core)
		i++;
	return i;
}

/* Scale the shares so that each member of a side (cores or ports) has 1. */
static void
fit_side(struct fit *f, const uint8_t *of, unsigned endpoints)
{
	double sum[PBOX_MAX_ENDPOINTS] = {0};

	for (unsigned e = 0; e < endpoints; e++)
		sum[of[e]] += f->share[e];
	for (unsigned e = 0; e < endpoints; e++)
		f->share[e] /= sum[of[e]];
}

static void
placement_fit(struct fit *f, const struct pbox_place *place, unsigned endpoints)
{
	for (unsigned e = 0; e < endpoints; e++) {
		f->share[e] = 1;
		f->core_of[e] = (uint8_t)first_of(place, e, false);
		f->port_of[e] = (uint8_t)first_of(place, e, true);
	}
	for (unsigned i = 0; i < FIT_ROUNDS; i++) {
		fit_side(f, f->port_of, endpoints);
		fit_side(f, f->core_of, endpoints);
	}
}

unsigned
pbox_place_cores(const struct pbox_place *place, unsigned endpoints)
{
	unsigned n = 0;

	PBOX_ASSERT(endpoints > 0);
	for (unsigned e = 0; e < endpoints; e++)
		n += first_of(place, e, false) == e;
	return n;
}

/* The core that has least, and there the endpoint that is the last to fill up its share. */
static unsigned
placement_choose(const struct fit *f, unsigned endpoints, const uint64_t *core,
	const uint64_t *load, uint32_t elements)
{
	unsigned best = 0;
	double least = 0;

	for (unsigned e = 0; e < endpoints; e++) {
		double full = (double)(load[e] + elements) / f->share[e];

		if (e > 0 && core[f->core_of[e]] > core[f->core_of[best]])
			continue;
		if (e > 0 && core[f->core_of[e]] == core[f->core_of[best]] && full >= least)
			continue;
		best = e;
		least = full;
	}
	return best;
}

/* All chunks that are to be placed, the largest first; how many. */
static uint32_t
items_by_size(const struct pbox_layout *l, struct item *item)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < l->n_chunks; i++)
		if (l->chunk[i].endpoint != PBOX_ELSEWHERE)
			item[n++] = (struct item){.elements = l->chunk[i].elements, .chunk = i};
	qsort(item, n, sizeof(*item), larger_first);
	return n;
}

int
pbox_layout_share(struct pbox_layout *l, unsigned boxes, unsigned box, uint64_t *load)
{
	struct item *item = reallocarray(NULL, l->n_chunks + 1, sizeof(*item));
	uint32_t n;

	PBOX_ASSERT(boxes > 0 && boxes <= PBOX_MAX_BOXES && box < boxes);
	if (item == NULL)
		return -ENOMEM;
	n = items_by_size(l, item);
	for (uint32_t i = 0; i < n; i++) {
		struct pbox_layout_chunk *c = &l->chunk[item[i].chunk];
		unsigned least = 0;

		for (unsigned b = 1; b < boxes; b++)
			if (load[b] < load[least])
				least = b;
		load[least] += item[i].elements;
		c->box = (uint16_t)least;
		c->endpoint = least == box ? 0 : PBOX_ELSEWHERE;
	}
	free(item);
	return 0;
}

int
pbox_layout_place(
	struct pbox_layout *l, const struct pbox_place *place, unsigned endpoints, uint64_t *load)
{
	struct item *item = reallocarray(NULL, l->n_chunks + 1, sizeof(*item));
	uint64_t core[PBOX_MAX_ENDPOINTS] = {0};
	struct fit f;
	uint32_t n;

	PBOX_ASSERT(endpoints > 0 && endpoints <= PBOX_MAX_ENDPOINTS);
	if (item == NULL)
		return -ENOMEM;
	placement_fit(&f, place, endpoints);
	for (unsigned e = 0; e < endpoints; e++)
		core[f.core_of[e]] += load[e];
	n = items_by_size(l, item);
	for (uint32_t i = 0; i < n; i++) {
		unsigned e = placement_choose(&f, endpoints, core, load, item[i].elements);

		l->chunk[item[i].chunk].endpoint = (uint16_t)e;
		load[e] += item[i].elements;
		core[f.core_of[e]] += item[i].elements;
	}
	free(item);
	return 0;
}
