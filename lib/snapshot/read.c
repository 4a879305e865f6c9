/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* A snapshot file is read and checked; damaged blocks are rebuilt from parity. */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <isa-l/igzip_lib.h>

#include <pbox_wire.h>

#include "snapshot_impl.h"

/* As much as there is: blocks after the end, or that the disk refuses, are damaged ones. */
static void
read_blocks(const struct pbox_snapshot_reader *r, const struct group *g)
{
	uint64_t from = FORMAT_SUPER + g->disk * r->s.block;
	size_t len = (size_t)g->blocks * r->s.block, at = 0;

	while (at < len) {
		ssize_t n = pread(r->fd, r->blocks + at, len - at, (off_t)(from + at));

		if (n < 0 && errno == EINTR)
			continue;
		if (n == 0)
			break;
		if (n < 0) { /* go on after what cannot be read */
			size_t step = r->s.block - at % r->s.block;

			memset(r->blocks + at, 0, step);
			at += step;
			continue;
		}
		at += (size_t)n;
	}
	memset(r->blocks + at, 0, len - at);
}

int
read_group(struct pbox_snapshot_reader *r, uint64_t g, struct group *out,
	struct pbox_snapshot_report *report)
{
	unsigned lost;

	super_group(&r->s, &r->plan, g, out);
	read_blocks(r, out);
	for (uint32_t i = 0; i < out->blocks; i++) {
		r->good[i] =
			super_block_good(&r->s, out->disk + i, r->blocks + (size_t)i * r->s.block);
		report->blocks++;
		report->damaged += !r->good[i];
	}
	lost = parity_rebuild(r->parity, out, r->blocks, r->good);
	report->lost += lost;
	return (int)lost;
}

/* ---- units ------------------------------------------------------------------------------------ */

/* How far the reading of all the content is. */
struct pass {
	struct pbox_snapshot_reader *r;
	pbox_snapshot_sink sink;
	void *ctx;
	struct pbox_snapshot_report *report;
	uint32_t unit, have; /* unit in progress, bytes of it so far */
	bool bad;            /* some of them are lost */
	uint32_t crc;
};

static uint32_t
raw_of(const struct pbox_snapshot_reader *r, uint32_t unit)
{
	uint64_t left = r->s.raw_len - (uint64_t)unit * r->s.unit;

	return left < r->s.unit ? (uint32_t)left : r->s.unit;
}

/* NULL: it is not what it says. */
static const uint8_t *
unpack(struct pbox_snapshot_reader *r, uint32_t unit, uint32_t stored)
{
	struct inflate_state z;

	if ((r->unit[unit] & FORMAT_PACKED) == 0)
		return r->buf;
	isal_inflate_init(&z);
	z.next_in = r->buf;
	z.avail_in = stored;
	z.next_out = r->raw;
	z.avail_out = raw_of(r, unit);
	if (isal_inflate(&z) != ISAL_DECOMP_OK || z.block_state != ISAL_BLOCK_FINISH ||
		z.avail_out != 0)
		return NULL;
	return r->raw;
}

static int
unit_done(struct pass *p)
{
	uint32_t stored = p->r->unit[p->unit] & ~FORMAT_PACKED, raw = raw_of(p->r, p->unit);
	const uint8_t *bytes = p->bad ? NULL : unpack(p->r, p->unit, stored);
	int ret = 0;

	if (bytes == NULL)
		p->report->lost_bytes += raw;
	if (bytes == NULL && !p->bad)
		p->report->wrong = true;
	if (p->sink != NULL)
		ret = p->sink(p->ctx, (uint64_t)p->unit * p->r->s.unit, bytes, raw);
	p->unit++;
	p->have = 0;
	p->bad = false;
	return ret;
}

/* Some bytes of the data; bytes NULL: lost. */
static int
units_take(struct pass *p, const uint8_t *bytes, uint64_t len)
{
	int ret = 0;

	while (ret == 0 && len > 0 && p->unit < p->r->s.n_units) {
		uint32_t want = (p->r->unit[p->unit] & ~FORMAT_PACKED) - p->have;
		uint32_t take = len < want ? (uint32_t)len : want;

		if (bytes != NULL) {
			memcpy(p->r->buf + p->have, bytes, take);
			bytes += take;
		} else {
			p->bad = true;
		}
		p->have += take;
		len -= take;
		if (take == want)
			ret = unit_done(p);
	}
	return ret;
}

/* The data in block i of a group; what is before it was read when the file was opened. */
static int
block_take(struct pass *p, const struct group *g, uint32_t i)
{
	const struct pbox_snapshot_reader *r = p->r;
	const uint8_t *payload = r->blocks + (size_t)i * r->s.block + FORMAT_HEAD;
	uint64_t at = (g->first + i) * r->plan.payload, skip = 0;
	uint64_t head = r->s.meta_len + 4 * (uint64_t)r->s.n_units;
	uint64_t len = r->plan.content - at;

	len = len < r->plan.payload ? len : r->plan.payload;
	p->crc = pbox_crc32c(p->crc, payload, len);
	if (at < head)
		skip = head - at < len ? head - at : len;
	return units_take(p, r->good[i] ? payload + skip : NULL, len - skip);
}

int
pbox_snapshot_read(struct pbox_snapshot_reader *r, pbox_snapshot_sink sink, void *ctx,
	struct pbox_snapshot_report *report, struct pbox_error *err)
{
	struct pass p = {.r = r, .sink = sink, .ctx = ctx, .report = report};
	int ret = 0;

	*report = (struct pbox_snapshot_report){.supers_damaged = r->supers_damaged};
	for (uint64_t g = 0; ret == 0 && g < r->plan.groups; g++) {
		struct group group;

		read_group(r, g, &group, report);
		for (uint32_t i = 0; ret == 0 && i < group.n_data; i++)
			ret = block_take(&p, &group, i);
	}
	if (ret != 0)
		return ret;
	/* units of no bytes do not exist; those that the content ended before are lost */
	while (ret == 0 && p.unit < r->s.n_units) {
		p.bad = true;
		ret = unit_done(&p);
	}
	if (ret != 0)
		return ret;
	if (report->lost == 0 && p.crc != r->s.crc)
		report->wrong = true;
	if (report->lost > 0)
		return pbox_fail(err, EIO,
			"%s: %llu of %llu blocks are damaged, and %llu of them are more than their parity can rebuild",
			r->name, (unsigned long long)report->damaged,
			(unsigned long long)report->blocks, (unsigned long long)report->lost);
	if (report->wrong)
		return pbox_fail(err, EIO, "%s: its content is not what was written", r->name);
	return 0;
}

/* ---- opening ---------------------------------------------------------------------------------- */

/* Description and directory, from the first groups. */
static int
read_head(struct pbox_snapshot_reader *r, uint8_t *head, uint64_t len, struct pbox_error *err)
{
	struct pbox_snapshot_report report = {0};
	uint64_t done = 0;

	for (uint64_t g = 0; done < len; g++) {
		struct group group;

		read_group(r, g, &group, &report);
		for (uint32_t i = 0; done < len && i < group.n_data; i++) {
			uint64_t n = len - done < r->plan.payload ? len - done : r->plan.payload;

			if (!r->good[i])
				return pbox_fail(err, EIO,
					"%s: its description is damaged beyond repair", r->name);
			memcpy(head + done, r->blocks + (size_t)i * r->s.block + FORMAT_HEAD, n);
			done += n;
		}
	}
	return 0;
}

static int
take_directory(struct pbox_snapshot_reader *r, const uint8_t *at, struct pbox_error *err)
{
	uint64_t stored = 0;

	for (uint32_t i = 0; i < r->s.n_units; i++) {
		uint32_t e = pbox_ld32(at + 4 * (size_t)i), n = e & ~FORMAT_PACKED;

		if (n == 0 || n > raw_of(r, i) || ((e & FORMAT_PACKED) == 0 && n != raw_of(r, i)))
			return pbox_fail(err, EINVAL, "%s: a unit of its data has %u bytes of %u",
				r->name, n, raw_of(r, i));
		r->unit[i] = e;
		stored += n;
	}
	if (stored != r->s.stored_len)
		return pbox_fail(
			err, EINVAL, "%s: its units have another length than its data", r->name);
	return 0;
}

static int
check_meta(const struct pbox_snapshot_reader *r, struct pbox_error *err)
{
	const struct pbox_snapshot_meta *m = &r->meta;

	if (m->elements * m->arrays * 4 != r->s.raw_len || m->box != r->s.box ||
		m->boxes != r->s.boxes)
		return pbox_fail(err, EINVAL, "%s: its data are not what it describes", r->name);
	return 0;
}

static int
open_head(struct pbox_snapshot_reader *r, struct pbox_error *err)
{
	uint64_t len = r->s.meta_len + 4 * (uint64_t)r->s.n_units;
	struct pbox_error why;
	uint8_t *head;
	int ret;

	/* not more memory than the file has bytes: one that is cut off has lost these anyway */
	if (len > r->size)
		return pbox_fail(err, EINVAL, "%s: shorter than its description", r->name);
	head = malloc((size_t)len);
	r->unit = malloc(4 * (size_t)r->s.n_units + 4);
	r->blocks = malloc((size_t)r->s.block * r->s.stripes * (r->s.data + (size_t)r->s.parity));
	r->good = malloc(r->s.stripes * (r->s.data + (size_t)r->s.parity));
	r->buf = malloc(r->s.unit);
	r->raw = malloc(r->s.unit);
	r->parity = parity_new(&r->s);
	if (head == NULL || r->unit == NULL || r->blocks == NULL || r->good == NULL ||
		r->buf == NULL || r->raw == NULL || r->parity == NULL) {
		free(head);
		return pbox_fail(err, ENOMEM, "%s: out of memory", r->name);
	}
	ret = read_head(r, head, len, err);
	if (ret == 0) {
		ret = pbox_snapshot_meta_decode(&r->meta, r->s.version, head, r->s.meta_len, &why);
		if (ret != 0)
			pbox_fail(err, -ret, "%s: %s", r->name, why.text);
		r->meta.run = r->s.run;
	}
	if (ret == 0)
		ret = check_meta(r, err);
	if (ret == 0)
		ret = take_directory(r, head + r->s.meta_len, err);
	free(head);
	return ret;
}

struct pbox_snapshot_reader *
pbox_snapshot_open_fd(int fd, const char *name, struct pbox_error *err)
{
	struct pbox_snapshot_reader *r = calloc(1, sizeof(*r));
	struct pbox_error why = {0};
	struct stat st;
	int ret;

	if (r == NULL) {
		pbox_fail(err, ENOMEM, "out of memory");
		return NULL;
	}
	r->fd = fd;
	snprintf(r->name, sizeof(r->name), "%s", name);
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
		pbox_fail(err, EINVAL, "%s: no regular file", name);
		pbox_snapshot_close(r);
		return NULL;
	}
	r->size = (uint64_t)st.st_size;
	ret = super_read(&r->s, fd, r->size, &r->supers_damaged, &why);
	if (ret != 0)
		pbox_fail(err, EINVAL, "%s: %s", name, why.text);
	if (ret == 0) {
		super_plan(&r->s, &r->plan);
		/* nor does anybody wait while what is not there is counted */
		ret = r->size >= r->plan.file / 2
			      ? open_head(r, err)
			      : pbox_fail(err, EIO, "%s: cut off: %llu bytes of %llu", name,
					(unsigned long long)r->size,
					(unsigned long long)r->plan.file);
	}
	if (ret != 0) {
		pbox_snapshot_close(r);
		return NULL;
	}
	return r;
}

struct pbox_snapshot_reader *
pbox_snapshot_open(const char *path, struct pbox_error *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	struct pbox_snapshot_reader *r;

	if (fd < 0) {
		int code = errno;

		pbox_fail(err, code, "%s: %s", path, strerror(code));
		return NULL;
	}
	r = pbox_snapshot_open_fd(fd, path, err);
	if (r != NULL)
		r->own_fd = true;
	else
		close(fd);
	return r;
}

void
pbox_snapshot_close(struct pbox_snapshot_reader *r)
{
	if (r == NULL)
		return;
	if (r->own_fd)
		close(r->fd);
	pbox_snapshot_meta_free(&r->meta);
	parity_free(r->parity);
	free(r->unit);
	free(r->blocks);
	free(r->good);
	free(r->buf);
	free(r->raw);
	free(r);
}

const struct pbox_snapshot_meta *
pbox_snapshot_meta(const struct pbox_snapshot_reader *r)
{
	return &r->meta;
}

void
pbox_snapshot_shape(const struct pbox_snapshot_reader *r, unsigned *data, unsigned *parity,
	unsigned *block, bool *compressed)
{
	*data = r->s.data;
	*parity = r->s.parity;
	*block = r->s.block;
	*compressed = r->s.stored_len < r->s.raw_len;
}
