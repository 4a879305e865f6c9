/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <pbox_reduce.h>

#include "law_replica.h"

/*
 * The reference computes the codes of each version from its own parameters and replica, so that a box that rounds otherwise, or adds to
 * another version, sends other codes. That workers add them to the version before, and once, shows in what their operations
 * complete with (rounds_completed).
 */

#define ELEMENTS (SIM_MTU / 4)

struct sim_replica {
	float x[ELEMENTS], kept[ELEMENTS]; /* kept: of the snapshot */
	uint8_t codes[SIM_MTU];            /* of the version that x is of */
	bool codes_are;                    /* there: the version is finite, and not one without */
	uint32_t
		base; /* the version that no round has made here: it has no codes, nor has the next one */
};

static struct sim_replica *
replica_of(struct sim_fragment *f)
{
	if (f->replica == NULL)
		f->replica = calloc(1, sizeof(struct sim_replica));
	PBOX_ASSERT(f->replica != NULL && f->elements <= ELEMENTS);
	return f->replica;
}

bool
replica_is(const struct sim_scenario *sc, unsigned job, const struct sim_fragment *f)
{
	const struct pbox_declare *d = &sim_spec(sc, job, f)->fixed;

	return d->mode == PBOX_MODE_OPTIMISER && pbox_format_is_block(d->pull_format);
}

void
replica_begins(struct sim_fragment *f)
{
	struct sim_replica *r = replica_of(f);

	memcpy(r->x, f->param, f->elements * sizeof(*r->x));
	r->base = f->version;
}

/* Is all that the codes say a number? */
static bool
is_finite(const float *value, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (isnan(value[i]))
			return false;
	return true;
}

const float *
replica_version(const struct sim_scenario *sc, unsigned job, struct sim_fragment *f, bool plain)
{
	unsigned format = sim_spec(sc, job, f)->fixed.pull_format;
	struct sim_replica *r = replica_of(f);
	float by[ELEMENTS];

	for (uint32_t i = 0; i < f->elements; i++)
		by[i] = f->param[i] - r->x[i];
	pbox_reduce_scalar.encode(r->codes, format, by, NULL, f->elements);
	pbox_reduce_scalar.decode(by, r->codes, format, f->elements);
	r->codes_are = !plain && is_finite(by, f->elements);
	for (uint32_t i = 0; i < f->elements; i++)
		r->x[i] = r->codes_are ? r->x[i] + by[i] : f->param[i];
	return r->x;
}

bool
replica_says(const struct sim_fragment *f, unsigned format, uint32_t v, const struct pbox_hdr *h,
	const void *payload, const uint8_t *want)
{
	const struct sim_replica *r = f->replica;

	if (h->length != pbox_payload_bytes(h->format, f->elements))
		return false;
	if (h->format == PBOX_FMT_FP32)
		return h->fmt_arg == 0 && memcmp(want, payload, h->length) == 0;
	return h->format == format && h->fmt_arg == pbox_format_arg(format) && r->codes_are &&
	       v == f->version && pbox_serial_diff(v, r->base) > 1 &&
	       memcmp(r->codes, payload, h->length) == 0;
}

void
replica_keep(struct sim_fragment *f)
{
	struct sim_replica *r = replica_of(f);

	memcpy(r->kept, r->x, sizeof(r->kept));
}

void
replica_load(const struct sim_fragment *f, float *to)
{
	const struct sim_replica *r = f->replica;

	memcpy(to, r->kept, f->elements * sizeof(*to));
}

const float *
replica_from_snapshot(struct sim_fragment *f)
{
	struct sim_replica *r = replica_of(f);

	memcpy(r->x, r->kept, sizeof(r->x));
	r->base = f->version;
	return r->x;
}

void
replica_free(struct sim_fragment *f)
{
	free(f->replica);
	f->replica = NULL;
}
