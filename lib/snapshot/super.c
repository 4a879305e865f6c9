/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <unistd.h>

#include <pbox_wire.h>

#include "snapshot_impl.h"

static const char magic[8] = "PBOXSNAP";
#define BLOCK_MAGIC UINT32_C(0x4b4c4250) /* "PBLK" */

static const struct pbox_field super_fields[] = {
	PBOX_FIELD(super, version, 8),
	PBOX_FIELD(super, block, 16),
	PBOX_FIELD(super, data, 20),
	PBOX_FIELD(super, parity, 22),
	PBOX_FIELD(super, stripes, 24),
	PBOX_FIELD(super, unit, 28),
	PBOX_FIELD(super, meta_len, 32),
	PBOX_FIELD(super, stored_len, 40),
	PBOX_FIELD(super, raw_len, 48),
	PBOX_FIELD(super, crc, 56),
	PBOX_FIELD(super, id, 60),
	PBOX_FIELD(super, created_ns, 64),
	PBOX_FIELD(super, table, 72),
	PBOX_FIELD(super, round, 76),
	PBOX_FIELD(super, incarnation, 80),
	PBOX_FIELD(super, n_units, 84),
	PBOX_FIELD_BYTES(super, job, 88),
	PBOX_FIELD(super, sequence, 152),
	PBOX_FIELD(super, run, 160),
	PBOX_FIELD(super, box, 168),
	PBOX_FIELD(super, boxes, 169),
	{0},
};

void
super_encode(uint8_t out[FORMAT_SUPER], const struct super *s)
{
	pbox_fields_put(out, FORMAT_SUPER, super_fields, s);
	memcpy(out, magic, sizeof(magic));
	pbox_st32(out + 12, FORMAT_ORDER);
	pbox_st32(out + FORMAT_SUPER - 4, pbox_crc32c(0, out, FORMAT_SUPER - 4));
}

/* All bounds, so that no size made of these numbers overflows. */
static const char *
unsound(const struct super *s)
{
	if (s->block < FORMAT_BLOCK_MIN || s->block > FORMAT_BLOCK_MAX || s->block % 64 != 0)
		return "the size of its blocks";
	if (s->data == 0 || s->data > PBOX_SNAPSHOT_DATA_MAX ||
		s->parity > PBOX_SNAPSHOT_PARITY_MAX)
		return "the blocks of a stripe";
	if (s->stripes == 0 || s->stripes > FORMAT_STRIPES_MAX ||
		(uint64_t)s->block * s->stripes * (s->data + s->parity) > FORMAT_GROUP_MAX)
		return "the size of a group";
	if (s->unit < 64 || s->unit > FORMAT_UNIT_MAX || s->unit % 4 != 0)
		return "the size of a unit";
	if (s->meta_len == 0 || s->meta_len > FORMAT_META_MAX)
		return "the length of its description";
	if (s->raw_len > (uint64_t)s->unit * s->n_units || s->stored_len > s->raw_len ||
		(s->raw_len + s->unit - 1) / s->unit != s->n_units)
		return "the length of its data";
	if (s->job[PBOX_SNAPSHOT_NAME - 1] != '\0')
		return "the name of its job";
	if (s->boxes == 1 || s->boxes > PBOX_SNAPSHOT_BOXES_MAX ||
		(s->boxes > 0 && s->box >= s->boxes))
		return "its box of the job's boxes";
	if (s->sequence > FORMAT_SEQUENCE_MAX)
		return "its sequence number";
	return NULL;
}

int
super_decode(struct super *s, const uint8_t in[FORMAT_SUPER], struct pbox_error *err)
{
	const char *wrong;

	if (memcmp(in, magic, sizeof(magic)) != 0)
		return pbox_fail(err, EINVAL, "no snapshot of PBox");
	if (pbox_ld32(in + FORMAT_SUPER - 4) != pbox_crc32c(0, in, FORMAT_SUPER - 4))
		return pbox_fail(err, EINVAL, "its first or last block is damaged");
	if (pbox_ld32(in + 8) == 0 || pbox_ld32(in + 8) > PBOX_SNAPSHOT_VERSION ||
		pbox_ld32(in + 12) != FORMAT_ORDER)
		return pbox_fail(err, EINVAL,
			"a snapshot of format %u, this program knows 1 to %u: use a newer one",
			pbox_ld32(in + 8), PBOX_SNAPSHOT_VERSION);
	pbox_fields_get(in, super_fields, s);
	wrong = unsound(s);
	if (wrong != NULL)
		return pbox_fail(err, EINVAL, "%s is out of range", wrong);
	return 0;
}

int
super_read(struct super *s, int fd, uint64_t size, unsigned *damaged, struct pbox_error *err)
{
	uint8_t in[FORMAT_SUPER];
	struct super last;
	bool first;

	*damaged = 0;
	if (size < FORMAT_SUPER)
		return pbox_fail(err, EINVAL, "too short for a snapshot: %llu bytes",
			(unsigned long long)size);
	first = pread(fd, in, FORMAT_SUPER, 0) == FORMAT_SUPER && super_decode(s, in, err) == 0;
	*damaged += !first;
	if (pread(fd, in, FORMAT_SUPER, (off_t)(size - FORMAT_SUPER)) == FORMAT_SUPER &&
		super_decode(&last, in, first ? NULL : err) == 0) {
		if (!first)
			*s = last;
		return 0;
	}
	(*damaged)++;
	return first ? 0 : -EINVAL;
}

void
super_plan(const struct super *s, struct plan *p)
{
	uint64_t full, rest, stripes;

	p->payload = s->block - FORMAT_HEAD;
	p->content = s->meta_len + 4 * (uint64_t)s->n_units + s->stored_len;
	p->n_data = (p->content + p->payload - 1) / p->payload;
	p->group_data = (uint32_t)s->data * s->stripes;
	p->groups = (p->n_data + p->group_data - 1) / p->group_data;
	full = p->n_data / p->group_data;
	rest = p->n_data % p->group_data;
	stripes = full * s->stripes + (rest < s->stripes ? rest : s->stripes);
	p->file = (p->n_data + stripes * s->parity) * s->block + 2 * FORMAT_SUPER;
}

void
super_group(const struct super *s, const struct plan *p, uint64_t g, struct group *out)
{
	uint64_t left = p->n_data - g * p->group_data;

	out->first = g * p->group_data;
	out->disk = g * (p->group_data + (uint64_t)s->stripes * s->parity);
	out->n_data = left < p->group_data ? (uint32_t)left : p->group_data;
	out->stripes = out->n_data < s->stripes ? out->n_data : s->stripes;
	out->blocks = out->n_data + out->stripes * s->parity;
}

static uint32_t
block_crc(const struct super *s, const uint8_t *block)
{
	return pbox_crc32c(pbox_crc32c(0, block, 16), block + FORMAT_HEAD, s->block - FORMAT_HEAD);
}

void
super_stamp(const struct super *s, uint64_t index, uint8_t *block)
{
	memset(block, 0, FORMAT_HEAD);
	pbox_st32(block, BLOCK_MAGIC);
	pbox_st32(block + 4, s->id);
	pbox_st64(block + 8, index);
	pbox_st32(block + 16, block_crc(s, block));
}

bool
super_block_good(const struct super *s, uint64_t index, const uint8_t *block)
{
	return pbox_ld32(block) == BLOCK_MAGIC && pbox_ld32(block + 4) == s->id &&
	       pbox_ld64(block + 8) == index && pbox_ld32(block + 16) == block_crc(s, block);
}
