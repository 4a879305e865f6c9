/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef SNAPSHOT_IMPL_H
#define SNAPSHOT_IMPL_H

/* The file as bytes (doc/snapshot.md section 1). All numbers little-endian. */

#include <string.h>

#include <pbox_wire_at.h>
#include <pbox_wire_fields.h>

#include "pbox_snapshot.h"

#define FORMAT_SUPER       4096 /* bytes of the first and of the last block */
#define FORMAT_ORDER       UINT32_C(0x01020304)
#define FORMAT_HEAD        32    /* bytes of a block before its payload */
#define FORMAT_BLOCK       16384 /* what is written; what is read may have other sizes: */
#define FORMAT_BLOCK_MIN   512
#define FORMAT_BLOCK_MAX   (1u << 18)
#define FORMAT_STRIPES     16 /* of a full group */
#define FORMAT_STRIPES_MAX 64
#define FORMAT_GROUP_MAX   (64u << 20) /* bytes of a group in memory */
#define FORMAT_UNIT        (1u << 16)  /* bytes of the arrays that are compressed together */
#define FORMAT_UNIT_MAX    (1u << 20)
#define FORMAT_META_MAX    (1u << 30)
#define FORMAT_PACKED      UINT32_C(0x80000000) /* of a unit in the directory */

struct super {
	uint32_t version, block, unit, id, crc, n_units;
	uint16_t data, parity, stripes;
	uint64_t meta_len, stored_len, raw_len, created_ns, sequence, run;
	uint32_t table, round, incarnation;
	uint8_t box, boxes;
	char job[PBOX_SNAPSHOT_NAME];
};

/* Where things are, from a super block that is sound. */
struct plan {
	uint32_t payload;    /* bytes of a block's */
	uint64_t content;    /* bytes of all data blocks */
	uint64_t n_data;     /* data blocks */
	uint64_t groups;     /* the last may be smaller */
	uint32_t group_data; /* data blocks of a full group */
	uint64_t file;       /* bytes */
};

/* One group. Blocks: n_data of data, then parity x stripes. */
struct group {
	uint64_t first; /* data block */
	uint64_t disk;  /* block of the file */
	uint32_t n_data, stripes, blocks;
};

/* super.c */
void super_encode(uint8_t out[FORMAT_SUPER], const struct super *s);
/* 0, or -EINVAL: not one, or not sound (err says what). */
int super_decode(struct super *s, const uint8_t in[FORMAT_SUPER], struct pbox_error *err);
/* From the beginning of the file, or from its end. Which of them are damaged is counted. */
int super_read(struct super *s, int fd, uint64_t size, unsigned *damaged, struct pbox_error *err);
void super_plan(const struct super *s, struct plan *p);
void super_group(const struct super *s, const struct plan *p, uint64_t g, struct group *out);
void super_stamp(const struct super *s, uint64_t index, uint8_t *block);
bool super_block_good(const struct super *s, uint64_t index, const uint8_t *block);

/* parity.c: of one group whose blocks are one after the other. */
struct parity;
/* NULL: out of memory. */
struct parity *parity_new(const struct super *s);
void parity_free(struct parity *p);
void parity_encode(struct parity *p, const struct group *g, uint8_t *blocks);
/* Rebuild the payloads of blocks that are not good, and mark them good; those that cannot be stay.
 * @return data blocks that are lost */
unsigned parity_rebuild(struct parity *p, const struct group *g, uint8_t *blocks, uint8_t *good);

/* write.c: a file that has no name yet, or another one. */
struct draft {
	int fd;
	char tmp[PBOX_SNAPSHOT_PATH + 8];
};
int write_open(struct draft *d, const char *path, struct pbox_error *err);
int write_all(struct draft *d, const void *at, size_t len, struct pbox_error *err);
int write_commit(struct draft *d, const char *dir, const char *path, struct pbox_error *err);
void write_drop(struct draft *d);

/* read.c */
struct pbox_snapshot_reader {
	int fd;
	bool own_fd;
	char name[PBOX_SNAPSHOT_PATH];
	uint64_t size;
	struct super s;
	struct plan plan;
	unsigned supers_damaged;
	struct pbox_snapshot_meta meta;
	uint32_t *unit; /* the directory */
	struct parity *parity;
	uint8_t *blocks; /* of one group */
	uint8_t *good;
	uint8_t *buf, *raw; /* one unit: as stored, as it was */
};
/* Read group g and rebuild what can be. @return data blocks lost */
int read_group(struct pbox_snapshot_reader *r, uint64_t g, struct group *out,
	struct pbox_snapshot_report *report);

#define STORE_WISH ".restore" /* DIR/JOB.restore */
/* store.c: all bytes but letters, digits, - and _ become %XX. */
void store_escape(char out[3 * PBOX_SNAPSHOT_NAME], const char *name);
/* write.c: renames and unlinks in it last. */
int write_sync_dir(const char *dir, struct pbox_error *err);

#define FORMAT_SEQUENCE_MAX (UINT64_MAX / 2)

/* store.c: DIR/JOB.TABLE.SEQUENCE.ROUND.INCARNATION.snap */
int store_path(char *out, size_t size, const char *dir, const struct pbox_snapshot_meta *m,
	uint64_t sequence);
/* One more than that of any file there, and when the newest was taken (0: there is none).
 * 0 or -errno with err. */
int store_next(const char *dir, uint64_t *sequence, uint64_t *newest_ns, struct pbox_error *err);

#endif /* SNAPSHOT_IMPL_H */
