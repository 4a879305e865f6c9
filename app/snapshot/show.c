/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <pbox_wire_enums.h>

#include "tool.h"

static const char *const mode_name[] = {"all-reduce", "optimiser on the box"};

#define NAME_OF(list, i) ((i) < sizeof(list) / sizeof((list)[0]) ? (list)[i] : "?")

/* Names come from workers: what is no text is shown as '?'. */
static const char *
clean(const char *name)
{
	static char out[PBOX_SNAPSHOT_NAME];

	snprintf(out, sizeof(out), "%s", name);
	pbox_mask(out);
	return out;
}

static void
when(uint64_t ns, char *out, size_t cap)
{
	time_t t = (time_t)(ns / 1000000000);
	struct tm tm;

	if (gmtime_r(&t, &tm) == NULL || strftime(out, cap, "%Y-%m-%dT%H:%M:%SZ", &tm) == 0)
		snprintf(out, cap, "?");
}

int
show_list(const char *dir)
{
	struct pbox_snapshot_file *f;
	struct pbox_error err;
	char text[64];
	int n = pbox_snapshot_list(dir, NULL, -1, &f, &err);

	if (n < 0) {
		fprintf(stderr, "pbox-snapshot: %s\n", err.text);
		return BAD;
	}
	for (int i = 0; i < n; i++) {
		when(f[i].created_ns, text, sizeof(text));
		printf("%s job '%s' table %u round %u, number %" PRIu64 ", %" PRIu64
		       " bytes%s: %s\n",
			text, clean(f[i].job), f[i].table, f[i].round, f[i].sequence, f[i].bytes,
			f[i].aside ? ", of an earlier run" : "", f[i].path);
	}
	free(f);
	return GOOD;
}

static struct pbox_snapshot_reader *
open_it(const struct tool *t)
{
	struct pbox_error err;
	struct pbox_snapshot_reader *r = pbox_snapshot_open(t->file, &err);

	if (r == NULL)
		fprintf(stderr, "pbox-snapshot: %s\n", err.text);
	return r;
}

static void
entries(const struct pbox_snapshot_meta *m)
{
	for (uint32_t i = 0; i < m->n_entries; i++) {
		printf("group %u from round %u:", m->entry[i].group, m->entry[i].from_round);
		for (unsigned k = 0; k < PBOX_SNAPSHOT_HYPERS; k++)
			if ((k > 0 || m->entry[i].has_lr) && pbox_hyper_name(k + 1)[0] != '?')
				printf(" %s %.9g", pbox_hyper_name(k + 1), m->entry[i].value[k]);
		putchar('\n');
	}
}

int
show_inspect(const struct tool *t)
{
	struct pbox_snapshot_reader *r = open_it(t);
	const struct pbox_snapshot_meta *m;
	unsigned data, parity, block;
	bool compressed;
	char text[64];

	if (r == NULL)
		return BAD;
	m = pbox_snapshot_meta(r);
	pbox_snapshot_shape(r, &data, &parity, &block, &compressed);
	when(m->created_ns, text, sizeof(text));
	printf("job '%s', table %u, round %u, %s, incarnation %08x", clean(m->job), m->table,
		m->round, text, m->incarnation);
	if (m->run != 0)
		printf(", run %" PRIu64, m->run);
	if (m->boxes != 0)
		printf(", box %u of %u by map %u", m->box, m->boxes, m->map_epoch);
	printf("\n");
	printf("%s, %s, %s, push %s, pull %s, %u workers\n", NAME_OF(mode_name, m->mode),
		pbox_op_name(m->op), pbox_optimiser_name(m->optimiser),
		pbox_format_name(m->push_format), pbox_format_name(m->pull_format), m->workers);
	printf("%u tensors, %" PRIu64
	       " elements, %u arrays, %u chunks, %u fragments of %u elements\n",
		m->n_tensors, m->elements, m->arrays, m->n_chunks, m->n_fragments,
		m->frag_elements);
	printf("blocks of %u bytes, %u + %u in a stripe%s\n", block, data, parity,
		compressed ? ", compressed" : "");
	entries(m);
	for (uint32_t i = 0; i < m->n_tensors; i++)
		printf("tensor %u '%s': %" PRIu64 " elements, group %u\n", i,
			clean(m->tensor[i].name), m->tensor[i].elements, m->tensor[i].group);
	pbox_snapshot_close(r);
	return GOOD;
}

/* ---- what is lost, by name --------------------------------------------------------------------- */

struct losses {
	const struct pbox_snapshot_meta *m;
	struct pbox_snapshot_piece *piece;
	unsigned array;
	uint32_t tensor;
	uint64_t first, end; /* elements of that tensor; empty: none yet */
};

static void
show_losses(struct losses *l)
{
	if (l->end > l->first)
		printf("lost: %s of tensor '%s', elements %" PRIu64 " to %" PRIu64 "\n",
			snapshot_array_name(l->m, l->array), clean(l->m->tensor[l->tensor].name),
			l->first, l->end - 1);
	l->first = l->end = 0;
}

static int
show_lost(void *ctx, uint64_t at, const uint8_t *bytes, size_t len)
{
	struct losses *l = ctx;
	uint64_t e = at / 4, end = (at + len) / 4;

	while (bytes == NULL && e < end) {
		unsigned array = (unsigned)(e / l->m->elements);
		uint64_t in = e % l->m->elements;
		const struct pbox_snapshot_piece *p =
			pbox_snapshot_piece_at(l->piece, l->m->n_segments, in);
		uint64_t offset, n;

		if (p == NULL)
			break;
		offset = p->offset + (in - p->at);
		n = p->at + p->elements - in;
		n = n < end - e ? n : end - e;
		if (array != l->array || p->tensor != l->tensor || offset != l->end)
			show_losses(l);
		if (l->end == l->first) {
			l->array = array;
			l->tensor = p->tensor;
			l->first = offset;
		}
		l->end = offset + n;
		e += n;
	}
	return 0;
}

static void
report_line(const struct pbox_snapshot_report *p)
{
	printf("blocks: %" PRIu64 ", damaged: %" PRIu64 ", beyond repair: %" PRIu64
	       ", first and last block: %u of 2 good\n",
		p->blocks, p->damaged, p->lost, 2 - p->supers_damaged);
}

int
show_verify(const struct tool *t)
{
	struct pbox_snapshot_reader *r = open_it(t);
	struct pbox_snapshot_report report;
	struct pbox_error err;
	struct losses l = {0};
	int ret;

	if (r == NULL)
		return BAD;
	l.m = pbox_snapshot_meta(r);
	l.piece = pbox_snapshot_pieces(l.m);
	ret = pbox_snapshot_read(r, l.piece != NULL ? show_lost : NULL, &l, &report, &err);
	show_losses(&l);
	report_line(&report);
	if (ret != 0)
		fprintf(stderr, "pbox-snapshot: %s\n", err.text);
	else if (report.damaged > 0 || report.supers_damaged > 0)
		printf("good: what is damaged can be rebuilt: pbox-snapshot repair %s\n", t->file);
	else
		puts("good");
	free(l.piece);
	pbox_snapshot_close(r);
	return ret == 0 ? GOOD : BAD;
}

int
show_repair(const struct tool *t)
{
	struct pbox_snapshot_report report;
	struct pbox_error err = {0};
	int ret = pbox_snapshot_repair(t->file, &report, &err);

	if (report.blocks > 0)
		report_line(&report);
	if (ret != 0)
		fprintf(stderr, "pbox-snapshot: %s\n", err.text);
	else
		puts(report.damaged > 0 || report.supers_damaged > 0 ? "repaired"
								     : "good as it is");
	return ret == 0 ? GOOD : BAD;
}
