/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tool.h"

#define NPY_HEAD 128

/* One tensor of one array, piece by piece, to its place in a file. */
struct target {
	const struct pbox_snapshot_meta *m;
	struct pbox_snapshot_piece *piece;
	uint32_t tensor;
	unsigned array;
	FILE *out;
	long head;
	uint64_t lost; /* elements */
};

static int
extract_put(struct target *x, uint64_t offset, const uint8_t *bytes, uint64_t n)
{
	if (bytes == NULL) {
		x->lost += n;
		return 0;
	}
	if (fseeko(x->out, x->head + (off_t)(offset * 4), SEEK_SET) != 0 ||
		fwrite(bytes, 4, n, x->out) != n)
		return -EIO;
	return 0;
}

static int
extract_sink(void *ctx, uint64_t at, const uint8_t *bytes, size_t len)
{
	struct target *x = ctx;
	uint64_t e = at / 4, end = (at + len) / 4;
	int ret = 0;

	while (ret == 0 && e < end) {
		uint64_t in = e % x->m->elements, n;
		const struct pbox_snapshot_piece *p =
			pbox_snapshot_piece_at(x->piece, x->m->n_segments, in);

		if (p == NULL)
			break;
		n = p->at + p->elements - in;
		n = n < end - e ? n : end - e;
		if (e / x->m->elements == x->array && p->tensor == x->tensor)
			ret = extract_put(x, p->offset + (in - p->at),
				bytes != NULL ? bytes + (e * 4 - at) : NULL, n);
		e += n;
	}
	return ret;
}

/* NumPy's format 1.0: a dictionary, padded so that the data begin at a multiple of 64. */
static int
npy_head(FILE *f, uint64_t elements)
{
	char head[NPY_HEAD];
	int n;

	memset(head, ' ', sizeof(head));
	memcpy(head, "\x93NUMPY\x01\x00\x76\x00", 10);
	n = snprintf(head + 10, sizeof(head) - 10,
		"{'descr': '<f4', 'fortran_order': False, 'shape': (%" PRIu64 ",), }", elements);
	head[10 + n] = ' ';
	head[sizeof(head) - 1] = '\n';
	return fwrite(head, 1, sizeof(head), f) == sizeof(head) ? 0 : -EIO;
}

static int
extract_find(const struct pbox_snapshot_meta *m, const char *name, uint32_t *out)
{
	for (uint32_t i = 0; i < m->n_tensors; i++)
		if (strcmp(m->tensor[i].name, name) == 0) {
			*out = i;
			return 0;
		}
	return -ENOENT;
}

static int
extract_read_into(struct pbox_snapshot_reader *r, struct target *x, const struct tool *t)
{
	struct pbox_snapshot_report report;
	struct pbox_error err = {0};
	int ret = x->head > 0 ? npy_head(x->out, x->m->tensor[x->tensor].elements) : 0;

	if (ret == 0)
		ret = pbox_snapshot_read(r, extract_sink, x, &report, &err);
	/* damage elsewhere is no matter */
	if (ret == -EIO && err.text[0] != '\0' && x->lost == 0 && !report.wrong)
		ret = 0;
	if (ret != 0)
		fprintf(stderr, "pbox-snapshot: %s: %s\n", t->output,
			err.text[0] != '\0' ? err.text : strerror(-ret));
	return ret;
}

int
extract(const struct tool *t)
{
	struct pbox_error err;
	struct pbox_snapshot_reader *r = pbox_snapshot_open(t->file, &err);
	struct target x = {.head = t->npy ? NPY_HEAD : 0};
	int ret;

	if (r == NULL) {
		fprintf(stderr, "pbox-snapshot: %s\n", err.text);
		return BAD;
	}
	x.m = pbox_snapshot_meta(r);
	if (x.m->boxes > 0) {
		fprintf(stderr,
			"pbox-snapshot: %s has the chunks of box %u of %u: parts of tensors, which are not extracted\n",
			t->file, x.m->box, x.m->boxes);
		pbox_snapshot_close(r);
		return BAD;
	}
	while (x.array < x.m->arrays && strcmp(snapshot_array_name(x.m, x.array), t->array) != 0)
		x.array++;
	if (extract_find(x.m, t->tensor, &x.tensor) != 0 || x.array == x.m->arrays) {
		fprintf(stderr, "pbox-snapshot: %s has no such tensor or array: see inspect\n",
			t->file);
		pbox_snapshot_close(r);
		return BAD;
	}
	x.piece = pbox_snapshot_pieces(x.m);
	x.out = fopen(t->output, "wbe");
	if (x.piece == NULL || x.out == NULL) {
		fprintf(stderr, "pbox-snapshot: %s: %s\n", t->output, strerror(errno));
		ret = -EIO;
	} else {
		ret = extract_read_into(r, &x, t);
	}
	if (x.out != NULL && fclose(x.out) != 0 && ret == 0) {
		fprintf(stderr, "pbox-snapshot: %s: %s\n", t->output, strerror(errno));
		ret = -EIO;
	}
	if (ret != 0 && x.out != NULL)
		remove(t->output);
	free(x.piece);
	pbox_snapshot_close(r);
	return ret == 0 ? GOOD : BAD;
}
