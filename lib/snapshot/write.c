/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* A snapshot file is written: compressed, with parity, on the disk before it gets its name. */

#include <errno.h>
#include <stdatomic.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#include <isa-l/igzip_lib.h>

#include <pbox_wire.h>

#include "snapshot_impl.h"

static int
write_fail(struct pbox_error *err, const char *what, const char *path)
{
	int code = errno != 0 ? errno : EIO;

	return pbox_fail(err, code, "%s %s: %s", what, path, strerror(code));
}

int
write_open(struct draft *d, const char *path, struct pbox_error *err)
{
	snprintf(d->tmp, sizeof(d->tmp), "%s.tmp", path);
	unlink(d->tmp); /* of a write that was broken off */
	d->fd = open(d->tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	return d->fd >= 0 ? 0 : write_fail(err, "cannot make", d->tmp);
}

int
write_all(struct draft *d, const void *at, size_t len, struct pbox_error *err)
{
	const uint8_t *p = at;

	while (len > 0) {
		ssize_t n;

		errno = 0;
		n = write(d->fd, p, len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return write_fail(err, "cannot write", d->tmp);
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

int
write_sync_dir(const char *dir, struct pbox_error *err)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), ret = 0;

	if (fd < 0)
		return write_fail(err, "cannot open", dir);
	if (fsync(fd) != 0)
		ret = write_fail(err, "cannot sync", dir);
	close(fd);
	return ret;
}

/* Durable under its temporary name first: a file of the real one has all of it. */
int
write_commit(struct draft *d, const char *dir, const char *path, struct pbox_error *err)
{
	int ret = 0;

	if (fsync(d->fd) != 0)
		ret = write_fail(err, "cannot sync", d->tmp);
	if (close(d->fd) != 0 && ret == 0)
		ret = write_fail(err, "cannot close", d->tmp);
	d->fd = -1;
	if (ret == 0 && rename(d->tmp, path) != 0)
		ret = write_fail(err, "cannot rename", d->tmp);
	if (ret == 0)
		return write_sync_dir(dir, err);
	unlink(d->tmp);
	return ret;
}

void
write_drop(struct draft *d)
{
	if (d->fd < 0)
		return;
	close(d->fd);
	d->fd = -1;
	unlink(d->tmp);
}

/* The content of the blocks, in order: description, directory, data. */
struct content {
	const uint8_t *part[3];
	uint64_t len[3];
	unsigned now;
	uint64_t at;
};

static void
content_take(struct content *c, uint8_t *out, size_t n)
{
	while (n > 0 && c->now < 3) {
		uint64_t left = c->len[c->now] - c->at;
		size_t take = left < n ? (size_t)left : n;

		if (take > 0)
			memcpy(out, c->part[c->now] + c->at, take);
		out += take;
		n -= take;
		c->at += take;
		if (c->at == c->len[c->now]) {
			c->now++;
			c->at = 0;
		}
	}
	memset(out, 0, n);
}

static int
write_given_up(const struct pbox_snapshot_write *w, struct pbox_error *err)
{
	if (w->give_up == NULL || !atomic_load_explicit(w->give_up, memory_order_relaxed))
		return 0;
	return pbox_fail(err, ECANCELED, "given up: the box stops");
}

/*
 * Compress the data in place, unit by unit: none becomes larger than it was. Fills the directory with
 * stored lengths. Returns the stored length of all.
 */
static int
pack(const struct pbox_snapshot_write *w, struct super *s, uint8_t *directory,
	struct pbox_error *err)
{
	bool compress = w->compress;
	uint8_t *data = w->data;
	uint8_t *level = NULL, *out = NULL;
	struct isal_zstream *z = NULL;
	uint64_t to = 0;
	int ret = 0;

	if (compress) {
		level = malloc(ISAL_DEF_LVL1_DEFAULT);
		out = malloc(s->unit);
		z = malloc(sizeof(*z));
		if (level == NULL || out == NULL || z == NULL)
			ret = pbox_fail(err, ENOMEM, "out of memory to compress");
	}
	for (uint32_t i = 0; ret == 0 && i < s->n_units; i++) {
		uint64_t from = (uint64_t)i * s->unit, left = s->raw_len - from;
		uint32_t raw = left < s->unit ? (uint32_t)left : s->unit, n = raw;

		if (compress) {
			isal_deflate_init(z);
			z->level = 1;
			z->level_buf = level;
			z->level_buf_size = ISAL_DEF_LVL1_DEFAULT;
			z->end_of_stream = 1;
			z->next_in = data + from;
			z->avail_in = raw;
			z->next_out = out;
			z->avail_out = raw;
			if (isal_deflate(z) == COMP_OK && z->internal_state.state == ZSTATE_END &&
				z->total_out < raw)
				n = z->total_out;
		}
		if (n < raw)
			memcpy(data + to, out, n);
		else if (to != from)
			memmove(data + to, data + from, raw);
		pbox_st32(directory + 4 * (size_t)i, n < raw ? n | FORMAT_PACKED : n);
		to += n;
		ret = write_given_up(w, err);
	}
	s->stored_len = to;
	free(level);
	free(out);
	free(z);
	return ret;
}

static int
write_groups(struct draft *d, const struct pbox_snapshot_write *w, const struct super *s,
	struct content *c, struct pbox_error *err)
{
	struct parity *parity = parity_new(s);
	uint8_t *blocks;
	struct plan plan;
	int ret = 0;

	super_plan(s, &plan);
	blocks = malloc((size_t)s->block * s->stripes * (s->data + (size_t)s->parity));
	if (parity == NULL || blocks == NULL)
		ret = pbox_fail(err, ENOMEM, "out of memory for a group of blocks");
	for (uint64_t g = 0; ret == 0 && g < plan.groups; g++) {
		struct group group;

		super_group(s, &plan, g, &group);
		for (uint32_t i = 0; i < group.n_data; i++)
			content_take(c, blocks + (size_t)i * s->block + FORMAT_HEAD, plan.payload);
		parity_encode(parity, &group, blocks);
		for (uint32_t i = 0; i < group.blocks; i++)
			super_stamp(s, group.disk + i, blocks + (size_t)i * s->block);
		ret = write_given_up(w, err);
		if (ret == 0)
			ret = write_all(d, blocks, (size_t)group.blocks * s->block, err);
	}
	parity_free(parity);
	free(blocks);
	return ret;
}

static int
write_file(const struct pbox_snapshot_write *w, const char *path, const struct super *s,
	struct content *c, struct pbox_error *err)
{
	uint8_t super[FORMAT_SUPER];
	struct draft d = {.fd = -1};
	int ret = write_open(&d, path, err);

	super_encode(super, s);
	if (ret == 0)
		ret = write_all(&d, super, sizeof(super), err);
	if (ret == 0)
		ret = write_groups(&d, w, s, c, err);
	if (ret == 0)
		ret = write_all(&d, super, sizeof(super), err);
	if (ret == 0)
		return write_commit(&d, w->dir, path, err);
	write_drop(&d);
	return ret;
}

static int
write_describe(struct super *s, const struct pbox_snapshot_write *w, size_t meta_len,
	struct pbox_error *err)
{
	const struct pbox_snapshot_meta *m = w->meta;
	uint64_t raw = m->elements * m->arrays * 4, units = (raw + FORMAT_UNIT - 1) / FORMAT_UNIT;

	if (w->stripe_data == 0 || w->stripe_data > PBOX_SNAPSHOT_DATA_MAX ||
		w->stripe_parity > PBOX_SNAPSHOT_PARITY_MAX)
		return pbox_fail(err, EINVAL, "stripes of %u + %u blocks: at most %u + %u",
			w->stripe_data, w->stripe_parity, PBOX_SNAPSHOT_DATA_MAX,
			PBOX_SNAPSHOT_PARITY_MAX);
	if (units > UINT32_MAX || meta_len > FORMAT_META_MAX)
		return pbox_fail(err, E2BIG, "the table is larger than a snapshot may be");
	*s = (struct super){
		.version = PBOX_SNAPSHOT_VERSION,
		.block = FORMAT_BLOCK,
		.unit = FORMAT_UNIT,
		.n_units = (uint32_t)units,
		.data = (uint16_t)w->stripe_data,
		.parity = (uint16_t)w->stripe_parity,
		.stripes = FORMAT_STRIPES,
		.meta_len = meta_len,
		.raw_len = raw,
		.created_ns = m->created_ns,
		.table = m->table,
		.round = m->round,
		.incarnation = m->incarnation,
		.run = m->run,
		.box = m->box,
		.boxes = m->boxes,
	};
	memcpy(s->job, m->job, sizeof(s->job));
	/* blocks of another file that were in the same place are not taken for ours */
	if (getrandom(&s->id, sizeof(s->id), 0) != (ssize_t)sizeof(s->id))
		return write_fail(err, "no random number for", w->dir);
	return 0;
}

int
pbox_snapshot_write(const struct pbox_snapshot_write *w, struct pbox_snapshot_written *done,
	struct pbox_error *err)
{
	size_t meta_len = w->meta_len;
	uint8_t *own = NULL, *directory = NULL;
	struct super s;
	struct plan plan;
	int ret;

	if (w->meta_bytes == NULL)
		own = pbox_snapshot_meta_encode(w->meta, &meta_len);
	if (w->meta_bytes == NULL && own == NULL)
		return pbox_fail(err, ENOMEM, "out of memory for the description");
	ret = write_describe(&s, w, meta_len, err);
	if (ret == 0)
		ret = store_next(w->dir, &s.sequence, &done->newest_ns, err);
	if (ret == 0)
		ret = store_path(done->path, sizeof(done->path), w->dir, w->meta, s.sequence);
	if (ret == -ENAMETOOLONG)
		pbox_fail(err, ENAMETOOLONG, "the name of directory %s is too long", w->dir);
	if (ret == 0) {
		directory = malloc(4 * (size_t)s.n_units + 1);
		ret = directory != NULL ? pack(w, &s, directory, err)
					: pbox_fail(err, ENOMEM, "out of memory for the directory");
	}
	if (ret == 0) {
		struct content c = {
			.part = {own != NULL ? own : w->meta_bytes, directory, w->data},
			.len = {meta_len, 4 * (uint64_t)s.n_units, s.stored_len},
		};

		for (unsigned i = 0; i < 3; i++)
			s.crc = pbox_crc32c(s.crc, c.part[i], c.len[i]);
		super_plan(&s, &plan);
		done->bytes = plan.file;
		done->sequence = s.sequence;
		ret = w->room != NULL ? w->room(w->room_ctx, plan.file, err) : 0;
		if (ret == 0)
			ret = write_file(w, done->path, &s, &c, err);
	}
	free(directory);
	free(own);
	return ret;
}
