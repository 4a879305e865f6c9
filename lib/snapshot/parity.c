/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * Reed-Solomon over the payloads of a stripe, with a Cauchy matrix: any `parity` blocks may be lost.
 * Data block i of a group belongs to stripe i % stripes, so that a burst hits all of them alike. A
 * stripe of the last group may have fewer rows than the others: the missing ones count as zeros.
 */

#include <stdlib.h>

#include <isa-l/erasure_code.h>

#include "snapshot_impl.h"

#define ROWS (PBOX_SNAPSHOT_DATA_MAX + PBOX_SNAPSHOT_PARITY_MAX)

struct parity {
	struct super s;
	uint8_t matrix[ROWS * PBOX_SNAPSHOT_DATA_MAX]; /* (data + parity) x data */
	uint8_t tables[32 * PBOX_SNAPSHOT_DATA_MAX * PBOX_SNAPSHOT_PARITY_MAX];
	uint8_t square[PBOX_SNAPSHOT_DATA_MAX * PBOX_SNAPSHOT_DATA_MAX];
	uint8_t inverse[PBOX_SNAPSHOT_DATA_MAX * PBOX_SNAPSHOT_DATA_MAX];
	uint8_t rows[PBOX_SNAPSHOT_PARITY_MAX * PBOX_SNAPSHOT_DATA_MAX];
};

struct parity *
parity_new(const struct super *s)
{
	struct parity *p = calloc(1, sizeof(*p));

	if (p == NULL)
		return NULL;
	p->s = *s;
	gf_gen_cauchy1_matrix(p->matrix, s->data + s->parity, s->data);
	return p;
}

void
parity_free(struct parity *p)
{
	free(p);
}

/* Payload of row r of a stripe: rows of data, then parity. */
static uint8_t *
at(const struct parity *p, const struct group *g, uint8_t *blocks, unsigned stripe, unsigned rows,
	unsigned r)
{
	size_t i = r < rows ? (size_t)r * g->stripes + stripe
			    : g->n_data + (size_t)(r - rows) * g->stripes + stripe;

	return blocks + i * p->s.block + FORMAT_HEAD;
}

static unsigned
rows_of(const struct group *g, unsigned stripe)
{
	return (g->n_data - stripe + g->stripes - 1) / g->stripes;
}

/* Coefficients of data row c in row r of a stripe that has only @p rows of data. */
static uint8_t
coefficient(const struct parity *p, unsigned rows, unsigned r, unsigned c)
{
	unsigned full = r < rows ? r : p->s.data + (r - rows);

	return p->matrix[full * p->s.data + c];
}

void
parity_encode(struct parity *p, const struct group *g, uint8_t *blocks)
{
	int len = (int)(p->s.block - FORMAT_HEAD);

	for (unsigned s = 0; p->s.parity > 0 && s < g->stripes; s++) {
		unsigned rows = rows_of(g, s);
		uint8_t *in[PBOX_SNAPSHOT_DATA_MAX], *out[PBOX_SNAPSHOT_PARITY_MAX];

		for (unsigned r = 0; r < rows; r++)
			in[r] = at(p, g, blocks, s, rows, r);
		for (unsigned i = 0; i < p->s.parity; i++) {
			out[i] = at(p, g, blocks, s, rows, rows + i);
			for (unsigned c = 0; c < rows; c++)
				p->rows[i * rows + c] = coefficient(p, rows, rows + i, c);
		}
		ec_init_tables((int)rows, p->s.parity, p->rows, p->tables);
		ec_encode_data(len, (int)rows, p->s.parity, p->tables, in, out);
	}
}

static uint8_t *
good_of(const struct group *g, uint8_t *good, unsigned stripe, unsigned rows, unsigned r)
{
	return &good[r < rows ? (size_t)r * g->stripes + stripe
			      : g->n_data + (size_t)(r - rows) * g->stripes + stripe];
}

/* The lost data of one stripe from the rows that are left. False: too few are. */
static bool
solve(struct parity *p, const struct group *g, uint8_t *blocks, uint8_t *good, unsigned s)
{
	unsigned rows = rows_of(g, s), left[PBOX_SNAPSHOT_DATA_MAX], n = 0, lost = 0;
	uint8_t *in[PBOX_SNAPSHOT_DATA_MAX], *out[PBOX_SNAPSHOT_PARITY_MAX];
	unsigned which[PBOX_SNAPSHOT_PARITY_MAX];

	for (unsigned r = 0; r < rows + p->s.parity && n < rows; r++)
		if (*good_of(g, good, s, rows, r))
			left[n++] = r;
	if (n < rows)
		return false;
	for (unsigned i = 0; i < rows; i++) {
		in[i] = at(p, g, blocks, s, rows, left[i]);
		for (unsigned c = 0; c < rows; c++)
			p->square[i * rows + c] = coefficient(p, rows, left[i], c);
	}
	if (gf_invert_matrix(p->square, p->inverse, (int)rows) != 0)
		return false;
	for (unsigned r = 0; r < rows; r++) {
		if (*good_of(g, good, s, rows, r))
			continue;
		which[lost] = r;
		out[lost] = at(p, g, blocks, s, rows, r);
		memcpy(&p->rows[lost * rows], &p->inverse[r * rows], rows);
		lost++;
	}
	ec_init_tables((int)rows, (int)lost, p->rows, p->tables);
	ec_encode_data((int)(p->s.block - FORMAT_HEAD), (int)rows, (int)lost, p->tables, in, out);
	for (unsigned i = 0; i < lost; i++)
		*good_of(g, good, s, rows, which[i]) = 1;
	return true;
}

unsigned
parity_rebuild(struct parity *p, const struct group *g, uint8_t *blocks, uint8_t *good)
{
	unsigned lost = 0;

	for (unsigned s = 0; s < g->stripes; s++) {
		unsigned rows = rows_of(g, s), bad = 0;

		for (unsigned r = 0; r < rows; r++)
			bad += !*good_of(g, good, s, rows, r);
		if (bad > 0 && !solve(p, g, blocks, good, s))
			lost += bad;
	}
	return lost;
}
