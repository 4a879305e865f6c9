/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "made.h"

#define FRAG 352

static void
layout(struct pbox_snapshot_meta *m, uint64_t large)
{
	static const char *const name[] = {"conv.weight", "conv.bias", "fc.weight"};
	uint64_t elements[] = {2000, 30, large};
	uint32_t at = 0;

	for (unsigned i = 0; i < 3; i++) {
		m->tensor[i].elements = elements[i];
		m->tensor[i].group = (uint16_t)(i == 1);
		snprintf(m->tensor[i].name, sizeof(m->tensor[i].name), "%s", name[i]);
		m->chunk[i] = (struct pbox_snapshot_chunk){.elements = (uint32_t)elements[i],
			.first_segment = i,
			.segments = 1,
			.group = (uint16_t)(i == 1)};
		m->segment[i] = (struct pbox_snapshot_segment){
			.tensor = i, .elements = (uint32_t)elements[i]};
		at += (uint32_t)((elements[i] + FRAG - 1) / FRAG);
	}
	for (uint32_t f = 0; f < at; f++)
		m->fragment[f] = (struct pbox_snapshot_fragment){7, 100 + f, 4};
	for (unsigned i = 0; i < 2; i++)
		m->entry[i] = (struct pbox_snapshot_entry){.from_round = 1 + 3 * i,
			.set = 2,
			.group = (uint16_t)i,
			.has_lr = true,
			.value = {0.1, 0.9, 0, 1e-4, 0.9, 0.999, 1e-8, 0, 5000 + i}};
}

void
made_new(struct made *t, uint64_t large)
{
	struct pbox_random rnd;
	float *f;

	memset(t, 0, sizeof(*t));
	t->m = (struct pbox_snapshot_meta){.job = "a/job.1",
		.table = 2,
		.round = 7,
		.incarnation = 0xabcd1234,
		.created_ns = 1000,
		.workers = 4,
		.mode = 1,
		.op = 1,
		.optimiser = 4,
		.arrays = 3,
		.frag_elements = FRAG,
		.elements = 2030 + large,
		.n_tensors = 3,
		.n_chunks = 3,
		.n_segments = 3,
		.n_fragments = (uint32_t)(6 + 1 + (large + FRAG - 1) / FRAG),
		.n_groups = 2,
		.n_entries = 2};
	PBOX_ASSERT(pbox_snapshot_meta_alloc(&t->m) == 0);
	layout(&t->m, large);
	t->bytes = (size_t)t->m.elements * 12;
	t->data = malloc(t->bytes);
	PBOX_ASSERT(t->data != NULL);
	f = (float *)(void *)t->data;
	pbox_random_seed(&rnd, large);
	/* parameters of any kind, the state half zeros: some units shrink, some do not */
	for (size_t i = 0; i < t->bytes / 4; i++) {
		uint64_t x = pbox_random_u64(&rnd);

		f[i] = i > t->bytes / 8 && x % 16 != 0 ? 0 : (float)pbox_random_unit(&rnd) - 0.5f;
	}
	snprintf(t->dir, sizeof(t->dir), "/tmp/pbox-snapshot-XXXXXX");
	PBOX_ASSERT(mkdtemp(t->dir) != NULL);
}

void
made_free(struct made *t)
{
	DIR *d = opendir(t->dir);
	struct dirent *e;

	while (d != NULL && (e = readdir(d)) != NULL)
		unlinkat(dirfd(d), e->d_name, 0);
	if (d != NULL)
		closedir(d);
	rmdir(t->dir);
	pbox_snapshot_meta_free(&t->m);
	free(t->data);
}

int
made_write(struct made *t, unsigned data, unsigned parity, bool compress, struct pbox_error *err)
{
	struct pbox_snapshot_written done;
	uint8_t *copy = malloc(t->bytes);
	struct pbox_snapshot_write w = {.dir = t->dir,
		.meta = &t->m,
		.data = copy,
		.stripe_data = data,
		.stripe_parity = parity,
		.compress = compress};
	int ret;

	PBOX_ASSERT(copy != NULL);
	memcpy(copy, t->data, t->bytes);
	ret = pbox_snapshot_write(&w, &done, err);
	if (ret == 0) {
		snprintf(t->path, sizeof(t->path), "%s", done.path);
		PBOX_ASSERT(done.bytes == made_size(t));
	}
	free(copy);
	return ret;
}

struct compared {
	const struct made *t;
	uint64_t next;
};

static int
compare(void *ctx, uint64_t at, const uint8_t *bytes, size_t len)
{
	struct compared *c = ctx;

	PBOX_ASSERT(at == c->next && at + len <= c->t->bytes);
	c->next += len;
	if (bytes != NULL && memcmp(bytes, c->t->data + at, len) != 0)
		return 1;
	return 0;
}

static bool
same_meta(const struct pbox_snapshot_meta *a, const struct pbox_snapshot_meta *b)
{
	size_t la, lb;
	uint8_t *x = pbox_snapshot_meta_encode(a, &la), *y = pbox_snapshot_meta_encode(b, &lb);
	bool same = x != NULL && y != NULL && la == lb && memcmp(x, y, la) == 0;

	free(x);
	free(y);
	return same;
}

int
made_compare(const struct made *t, struct pbox_snapshot_report *report, struct pbox_error *err)
{
	struct pbox_snapshot_reader *r = pbox_snapshot_open(t->path, err);
	struct compared c = {.t = t};
	int ret;

	memset(report, 0, sizeof(*report));
	if (r == NULL)
		return -err->code;
	ret = pbox_snapshot_read(r, compare, &c, report, err);
	if ((ret == 0 && c.next != t->bytes) || !same_meta(pbox_snapshot_meta(r), &t->m))
		ret = 1;
	pbox_snapshot_close(r);
	return ret;
}

void
made_damage(const struct made *t, uint64_t at, size_t len)
{
	int fd = open(t->path, O_RDWR);
	uint8_t *b = malloc(len);

	PBOX_ASSERT(fd >= 0 && b != NULL && pread(fd, b, len, (off_t)at) == (ssize_t)len);
	for (size_t i = 0; i < len; i++)
		b[i] ^= 0x55;
	PBOX_ASSERT(pwrite(fd, b, len, (off_t)at) == (ssize_t)len);
	free(b);
	close(fd);
}

uint64_t
made_size(const struct made *t)
{
	struct stat st;

	PBOX_ASSERT(stat(t->path, &st) == 0);
	return (uint64_t)st.st_size;
}
