/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_SNAPSHOT_H
#define PBOX_SNAPSHOT_H

/**
 * @file
 * Snapshots of a table on disk: parameters and optimiser state of one round, with all that is
 * needed to read them without the box (doc/snapshot.md).
 *
 * libc and ISA-L only: tools use it too. Any thread, one a reader. Blocks in file operations.
 */

#include <stdatomic.h>
#include <stdint.h>

#include <pbox_base.h>

#define PBOX_SNAPSHOT_NAME 64 /**< bytes of a job's or tensor's name, with its NUL */
#define PBOX_SNAPSHOT_HYPERS \
	13 /**< values of a schedule entry: ids 1 to 13 of SET; 0 for those that there are not */
#define PBOX_SNAPSHOT_ARRAYS 4   /**< parameters, s0, s1, replica */
#define PBOX_SNAPSHOT_PATH   512 /**< longest name of a snapshot with its directory */
/** Version of the format that is written. Those from 1 on are read: what they do not have is 0. */
#define PBOX_SNAPSHOT_VERSION 5

/* Bounds of what a file may say. */
#define PBOX_SNAPSHOT_DATA_MAX   64
#define PBOX_SNAPSHOT_PARITY_MAX 16
#define PBOX_SNAPSHOT_BOXES_MAX  16

struct pbox_snapshot_tensor {
	uint64_t elements;
	uint16_t group;
	char name[PBOX_SNAPSHOT_NAME];
};

struct pbox_snapshot_segment {
	uint64_t offset; /**< element of the tensor */
	uint32_t tensor, elements;
};

struct pbox_snapshot_chunk {
	uint32_t elements, first_segment;
	uint16_t segments, group;
};

struct pbox_snapshot_fragment {
	uint32_t version, samples;
	uint16_t contributors;
};

/** What holds for a group from one round on. Groups ascend, in them rounds do not descend. */
struct pbox_snapshot_entry {
	uint32_t from_round, set; /**< set: bit id, this SET named it */
	uint16_t group;
	bool has_lr;
	double value[PBOX_SNAPSHOT_HYPERS]; /**< [id - 1] */
};

/** Which box of several has a chunk, by the map of that epoch (protocol.md, R16.9). */
struct pbox_snapshot_home {
	uint8_t box;
	uint16_t epoch;
};

/** What a snapshot is of. The numbers of mode, op, optimiser and formats are the protocol's. */
struct pbox_snapshot_meta {
	char job[PBOX_SNAPSHOT_NAME];
	uint32_t table, round, incarnation;
	uint64_t created_ns; /**< since 1970: for people, nothing is ordered by it */
	uint64_t run;        /**< number of the job's run (protocol.md, section 12); 0: not known */
	uint16_t workers;
	uint8_t mode, op, optimiser, push_format, pull_format;
	uint8_t arrays; /**< 1 + arrays of optimiser state, and the residual or replica of a format of blocks */
	uint32_t frag_elements;
	uint64_t elements; /**< of one array: those of all chunks */
	/** Of a job at several boxes the file has the chunks of one of them, in their order; by the map of that epoch. boxes 0: it has all. */
	uint8_t box, boxes;
	uint16_t map_epoch;
	uint32_t n_homes; /**< chunks of the whole table; with boxes 0 it is 0 */
	uint32_t n_tensors, n_chunks, n_segments, n_fragments, n_groups, n_entries;
	struct pbox_snapshot_tensor *tensor;
	struct pbox_snapshot_chunk *chunk;
	struct pbox_snapshot_segment *segment;
	struct pbox_snapshot_fragment *fragment; /**< of chunk 0, then of chunk 1, ... */
	struct pbox_snapshot_entry *entry;
	struct pbox_snapshot_home *home;
};

/** Take memory for the counts in @p m. -ENOMEM or -E2BIG. */
int pbox_snapshot_meta_alloc(struct pbox_snapshot_meta *m);
void pbox_snapshot_meta_free(struct pbox_snapshot_meta *m);
/** As bytes (malloc); NULL: out of memory, or more than a snapshot may have. */
uint8_t *pbox_snapshot_meta_encode(const struct pbox_snapshot_meta *m, size_t *len);
/** The description of a file of format @p version. 0 and @p m to be freed; -EINVAL with @p err, -ENOMEM. */
int pbox_snapshot_meta_decode(struct pbox_snapshot_meta *m, uint32_t version, const uint8_t *at,
	size_t len, struct pbox_error *err);

/* ---- writing --------------------------------------------------------------------------------- */

struct pbox_snapshot_write {
	const char *dir;
	const struct pbox_snapshot_meta
		*meta;             /**< its first fields name the file; or with bytes: */
	const uint8_t *meta_bytes; /**< NULL, or pbox_snapshot_meta_encode()d */
	size_t meta_len;
	/** The arrays one after the other, meta->arrays x meta->elements floats: consumed where
	 * compressed. */
	uint8_t *data;
	unsigned stripe_data, stripe_parity; /**< blocks of a stripe; parity 0: none */
	bool compress;
	const _Atomic bool
		*give_up; /**< NULL, or: becomes true, and it ends with -ECANCELED soon */
	/** NULL, or called before the file is begun, which will have so many bytes: 0 lets it be written, -errno with
	 * @p err ends it. */
	int (*room)(void *ctx, uint64_t bytes, struct pbox_error *err);
	void *room_ctx;
};

struct pbox_snapshot_written {
	char path[PBOX_SNAPSHOT_PATH];
	uint64_t bytes;     /**< of the file */
	uint64_t sequence;  /**< one more than that of any file there before */
	uint64_t newest_ns; /**< when the newest of these was taken, by its own word; 0: none */
};

/** Write a new file, make it durable, then give it its name. On failure nothing is left of it.
 * -errno with @p err. */
int pbox_snapshot_write(const struct pbox_snapshot_write *w, struct pbox_snapshot_written *done,
	struct pbox_error *err);

/* ---- reading --------------------------------------------------------------------------------- */

struct pbox_snapshot_report {
	uint64_t blocks;         /**< of the file, parity too */
	uint64_t damaged;        /**< of these unreadable or not what was written */
	uint64_t lost;           /**< data blocks that parity cannot rebuild */
	uint64_t lost_bytes;     /**< of the arrays */
	unsigned supers_damaged; /**< of the two copies */
	bool wrong;              /**< rebuilt, but not what was written */
};

struct pbox_snapshot_reader;

/** Open, and read what it is of. NULL and @p err (-ENOENT, -EINVAL, -EIO beyond repair, -ENOMEM). */
struct pbox_snapshot_reader *pbox_snapshot_open(const char *path, struct pbox_error *err);
/** The same of an open file, which stays the caller's. @p name: for messages. */
struct pbox_snapshot_reader *pbox_snapshot_open_fd(
	int fd, const char *name, struct pbox_error *err);
void pbox_snapshot_close(struct pbox_snapshot_reader *r);
const struct pbox_snapshot_meta *pbox_snapshot_meta(const struct pbox_snapshot_reader *r);
/** How it was written: blocks of a stripe, size of a block, compressed or not. */
void pbox_snapshot_shape(const struct pbox_snapshot_reader *r, unsigned *data, unsigned *parity,
	unsigned *block, bool *compressed);

/** Bytes @p at to @p at + @p len of the arrays; NULL: lost. @return 0, or what ends the reading. */
typedef int (*pbox_snapshot_sink)(void *ctx, uint64_t at, const uint8_t *bytes, size_t len);
/** Read everything, from the beginning; @p sink may be NULL. 0 when all of it is what was written
 * (rebuilt where need be), -EIO with @p err when something is beyond repair, -errno, or what the sink
 * returned. @p report is filled in any case. */
int pbox_snapshot_read(struct pbox_snapshot_reader *r, pbox_snapshot_sink sink, void *ctx,
	struct pbox_snapshot_report *report, struct pbox_error *err);
/** Write the file again with everything rebuilt. -EIO: something is beyond repair, and the file stays
 * as it is. */
int pbox_snapshot_repair(
	const char *path, struct pbox_snapshot_report *report, struct pbox_error *err);

/** A piece of a tensor that lies in one place of an array. */
struct pbox_snapshot_piece {
	uint64_t at;     /**< element of the array */
	uint64_t offset; /**< element of the tensor */
	uint32_t tensor, elements;
};
/** All pieces in the order of the array, n_segments of them (malloc). NULL: out of memory. */
struct pbox_snapshot_piece *pbox_snapshot_pieces(const struct pbox_snapshot_meta *m);
/** The piece that has element @p at of an array. */
const struct pbox_snapshot_piece *pbox_snapshot_piece_at(
	const struct pbox_snapshot_piece *p, uint32_t n, uint64_t at);

/* ---- a directory of them ---------------------------------------------------------------------- */

struct pbox_snapshot_file {
	char path[PBOX_SNAPSHOT_PATH];
	char job[PBOX_SNAPSHOT_NAME];
	uint32_t table, round, incarnation;
	uint64_t sequence; /**< a later file has a higher one; 0: of a box that wrote none */
	uint64_t run;      /**< as in pbox_snapshot_meta, */
	uint8_t box, boxes;
	uint64_t created_ns, bytes;
	bool aside; /**< of an earlier run of the job: pbox_snapshot_set_aside() */
};

/** Most files that are looked at. */
#define PBOX_SNAPSHOT_FILES 4096

/** All snapshots, newest first: by their sequence; those without one after all others, by the clock
 * of then. Of @p job alone, of @p table alone (NULL, -1: all). Files whose first
 * and last block are damaged are left out.
 * @return how many, in @p out (malloc); or -errno with @p err */
int pbox_snapshot_list(const char *dir, const char *job, int64_t table,
	struct pbox_snapshot_file **out, struct pbox_error *err);
/** Remove all but the newest @p keep of a table: of those set aside, and of the others; and of two
 * of the same round of one run the older. @p spare (NULL: none) is the file just written: it stays.
 * @return how many were removed */
int pbox_snapshot_prune(
	const char *dir, const char *job, uint32_t table, unsigned keep, const char *spare);

/** What is known of the job of a file. */
struct pbox_snapshot_claim {
	bool named;     /**< it has a section of its own, not [job *] */
	bool busy;      /**< it runs: its newest ones stay, as pbox_snapshot_room() says */
	bool wished;    /**< it is to begin with its snapshot: its newest ones stay */
	uint64_t space; /**< bound of its section; 0: none */
};
/** Who wants room, and the bounds: bytes of its section's files, and of all. 0: none. */
struct pbox_snapshot_who {
	const char *job; /**< NULL: nobody; all is looked at */
	bool named;
	uint64_t space, dir_space;
};
/**
 * Which files go, so that @p bytes more keep to the bounds: first those set aside, then those that are not the newest of their
 * table, then the newest of jobs that are not busy; of each the oldest first. For its section's bound those of the section
 * alone (all jobs of [job *] are one). For the directory's those of [job *], and then, unless a job of [job *] asks, the
 * first two kinds of all others and the third of its own; for a job with a section of its own at last the newest of jobs of [job *]
 * that are busy, too. By the same order files go where there would be more than PBOX_SNAPSHOT_FILES; one more of a section with a
 * name is written all the same.
 * @param f as pbox_snapshot_list() has sorted them, @param claim of each
 * @param gone of each: set where it goes (and where it is set, it is gone already)
 * @return 0; -EDQUOT with @p err, that names what to raise: what must stay is too much; -ENOMEM
 */
int pbox_snapshot_room(const struct pbox_snapshot_file *f, const struct pbox_snapshot_claim *claim,
	int n, const struct pbox_snapshot_who *who, uint64_t bytes, bool *gone,
	struct pbox_error *err);
/** How old a file may be. */
struct pbox_snapshot_age {
	uint64_t most_ns;
	uint64_t now_ns; /**< since 1970 */
	uint64_t
		up_ns; /**< for how long workers have been able to come, by a clock that nobody sets */
};
/** Which files are too old: of jobs that are neither busy nor wished, by the clock. The newest of a table goes only where workers
 * have had as long to come back for it; how long the box was off, or how far its clock was moved, says nothing of that.
 * @param gone of each: set where it goes */
void pbox_snapshot_old(const struct pbox_snapshot_file *f, const struct pbox_snapshot_claim *claim,
	int n, const struct pbox_snapshot_age *age, bool *gone);
/** The same of files that are there, by bounds that may have become smaller: of the directory, then of each section, once. What
 * must stay is too much for one: that changes nothing, and is for the next file to say.
 * @return sections that were looked at, or -ENOMEM */
int pbox_snapshot_sweep(const struct pbox_snapshot_file *f, const struct pbox_snapshot_claim *claim,
	int n, uint64_t dir_space, bool *gone);
/** A new run begins: the ones that are there belong to an earlier one. Durable when this returns.
 * @return how many, or -errno with @p err: some may be there as if they were the new run's */
int pbox_snapshot_set_aside(
	const char *dir, const char *job, uint32_t table, struct pbox_error *err);
/** An operator wants the next run of a job to begin with its snapshot, of @p round (NULL: the newest): a file
 * DIR/JOB.restore, durable when this returns. 0 or -errno with @p err. */
int pbox_snapshot_wish(
	const char *dir, const char *job, const uint32_t *round, struct pbox_error *err);
/** A job that is wanted so. */
struct pbox_snapshot_wished {
	char job[PBOX_SNAPSHOT_NAME];
	bool exact; /**< of `round` alone */
	uint32_t round;
};
/** Not any more. 0 as well where nobody wanted it. */
int pbox_snapshot_wish_end(const char *dir, const char *job, struct pbox_error *err);
/** Who is wanted so, at most @p max. @return how many */
unsigned pbox_snapshot_wishes(const char *dir, struct pbox_snapshot_wished *out, unsigned max);
/** Numbers of runs, which begin with the clock, grow over restarts of the box where that is set back (R12.2): raises @p first
 * above all that boxes with this directory may have given, and notes it in DIR/runs, durable when this returns.
 * @return 0, or -errno with @p err: @p first is what could be known, and the next box may know no more */
int pbox_snapshot_runs(const char *dir, uint64_t *first, struct pbox_error *err);
/** Remove what a broken write left. @return how many */
int pbox_snapshot_clean(const char *dir);
/** Can files be made there? 0 or -errno with @p err. */
int pbox_snapshot_dir_check(const char *dir, struct pbox_error *err);

#endif /* PBOX_SNAPSHOT_H */
