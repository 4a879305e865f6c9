/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Any bytes as a snapshot: the first one says how. Whatever is accepted is read to its end, and its
 * pieces stay within its tensors. */

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <pbox_snapshot.h>
#include <pbox_wire.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SUPER 4096

static uint32_t
get32(const uint8_t *p)
{
	return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void
put32(uint8_t *p, uint32_t v)
{
	for (unsigned i = 0; i < 4; i++)
		p[i] = (uint8_t)(v >> 8 * i);
}

/* Good CRCs everywhere, so that what comes after them is looked at. */
static void
stamp(uint8_t *f, size_t size)
{
	uint32_t block = get32(f + 16), id = get32(f + 60);
	uint64_t index = 0;

	put32(f + SUPER - 4, pbox_crc32c(0, f, SUPER - 4));
	if (block < 64)
		return;
	for (size_t at = SUPER; size - at >= block; at += block, index++) {
		put32(f + at, 0x4b4c4250);
		put32(f + at + 4, id);
		put32(f + at + 8, (uint32_t)index);
		put32(f + at + 12, 0);
		put32(f + at + 16,
			pbox_crc32c(pbox_crc32c(0, f + at, 16), f + at + 32, block - 32));
	}
}

struct seen {
	uint64_t next, total;
};

static int
sink(void *ctx, uint64_t at, const uint8_t *bytes, size_t len)
{
	struct seen *s = ctx;
	volatile uint8_t x = bytes != NULL ? (uint8_t)(bytes[0] + bytes[len - 1]) : 0;

	(void)x;
	PBOX_ASSERT(at == s->next && len > 0);
	s->next += len;
	PBOX_ASSERT(s->next <= s->total);
	return 0;
}

static void
check_pieces(const struct pbox_snapshot_meta *m)
{
	struct pbox_snapshot_piece *p = pbox_snapshot_pieces(m);
	uint64_t at = 0;

	PBOX_ASSERT(p != NULL);
	for (uint32_t i = 0; i < m->n_segments; i++) {
		PBOX_ASSERT(p[i].at == at && p[i].tensor < m->n_tensors);
		PBOX_ASSERT(p[i].offset + p[i].elements <= m->tensor[p[i].tensor].elements);
		PBOX_ASSERT(pbox_snapshot_piece_at(p, m->n_segments, at) == &p[i]);
		at += p[i].elements;
	}
	PBOX_ASSERT(at == m->elements);
	free(p);
}

static void
as_file(const uint8_t *data, size_t size, bool stamped)
{
	struct pbox_snapshot_reader *r;
	struct pbox_snapshot_report report;
	struct pbox_error err = {0, ""};
	int fd = memfd_create("fuzz", 0);
	uint8_t *copy = malloc(size + 1);
	int ret;

	PBOX_ASSERT(fd >= 0 && copy != NULL);
	memcpy(copy, data, size);
	if (stamped && size >= SUPER)
		stamp(copy, size);
	PBOX_ASSERT(write(fd, copy, size) == (ssize_t)size);
	free(copy);
	r = pbox_snapshot_open_fd(fd, "fuzz", &err);
	PBOX_ASSERT((r == NULL) == (err.text[0] != '\0'));
	if (r != NULL) {
		const struct pbox_snapshot_meta *m = pbox_snapshot_meta(r);
		struct seen s = {.total = m->elements * m->arrays * 4};

		check_pieces(m);
		ret = pbox_snapshot_read(r, sink, &s, &report, &err);
		PBOX_ASSERT(s.next == s.total);
		PBOX_ASSERT((ret == 0) == (report.lost == 0 && !report.wrong));
		pbox_snapshot_close(r);
	}
	close(fd);
}

static void
as_description(const uint8_t *data, size_t size, uint32_t version)
{
	struct pbox_error err = {0, ""};
	struct pbox_snapshot_meta m;
	/* values of an entry that its version has; the newest has more */
	unsigned values = version == 1 ? 8 : version < 4 ? 9 : PBOX_SNAPSHOT_HYPERS;
	uint8_t *again;
	size_t len;

	if (pbox_snapshot_meta_decode(&m, version, data, size, &err) != 0) {
		PBOX_ASSERT(err.text[0] != '\0');
		return;
	}
	check_pieces(&m);
	again = pbox_snapshot_meta_encode(&m, &len);
	PBOX_ASSERT(again != NULL &&
		    len == size + 8 * (size_t)(PBOX_SNAPSHOT_HYPERS - values) * m.n_entries +
				    (version < 5 ? 8 : 0));
	free(again);
	pbox_snapshot_meta_free(&m);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < 1)
		return 0;
	if (data[0] % 3 == 2)
		as_description(
			data + 1, size - 1, data[0] / 3 % 2 == 0 ? 1 : PBOX_SNAPSHOT_VERSION);
	else
		as_file(data + 1, size - 1, data[0] % 3 == 1);
	return 0;
}
