/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_WIRE_H
#define PBOX_WIRE_H

/**
 * @file
 * Frames of the PBox protocol, version 1 (doc/protocol.md; "R4.2" is rule 2 of its section 4).
 *
 * Pure functions over caller's memory: any thread, no allocation, no I/O. Depends on libc and
 * isa-l alone. Structures here are host structures with natural alignment; the packed layout
 * exists only in the encoders and decoders.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "pbox_wire_enums.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PBOX_MAGIC         0xB5
#define PBOX_VERSION_WIRE  1
#define PBOX_REVISION      1 /**< of version 1: since WELCOME has the number of a run (R4.4) */
#define PBOX_HDR_LEN       62
#define PBOX_TAG_LEN       16
#define PBOX_CONTROL_PORT  7269
#define PBOX_MAX_WORKERS   4096
#define PBOX_MAX_ENDPOINTS 64
#define PBOX_MAX_SEGMENTS  64 /**< segments of one chunk (R5.7) */
#define PBOX_NAME_LEN      64 /**< job and host names, with the final NUL */
#define PBOX_PROOF_LEN     32
#define PBOX_RUN_LEN       16  /**< identity of a run (R12.1) */
#define PBOX_HELLO_LEN     64  /**< payload (R4.1) */
#define PBOX_JOIN_LEN      512 /**< payload (R4.3) */
#define PBOX_MTU_OVERHEAD  90  /**< IPv4 20 + UDP 8 + header 62 */
#define PBOX_NO_WORKER     0xFFFF
#define PBOX_LR_MUL_ONE    0x3F80 /**< 1.0 as bf16 */

/** Types below this one are control frames (R3.1). */
#define PBOX_FIRST_DATA_TYPE 0x20

#define PBOX_F_LAST   0x0001
#define PBOX_F_RETX   0x0002
#define PBOX_F_ECE    0x0004
#define PBOX_F_ZERO   0x0008
#define PBOX_F_AUTH   0x0010
#define PBOX_F_CUT    0x0020
#define PBOX_F_HAVE   0x0040
#define PBOX_F_LATEST 0x0080
#define PBOX_F_KNOWN  0x00FF

enum pbox_mode {
	PBOX_MODE_ALLREDUCE = 0,
	PBOX_MODE_OPTIMISER = 1,
};

/** Flags of DECLARE (R5.1). */
#define PBOX_DECLARE_RESTORE  0x1u /**< the sender holds versions of the table's fragments (R10.2) */
#define PBOX_DECLARE_CONTINUE 0x2u /**< it goes on in a run that may have begun (R12.6) */
#define PBOX_DECLARE_MIXED    0x4u /**< contributions may be fp32 as well, each by itself (R13.9) */
#define PBOX_DECLARE_HOLD     0x8u /**< rounds have two phases: sums wait for a coefficient (R6.15) */
#define PBOX_DECLARE_KNOWN    0xFu
#define PBOX_DECLARE_ARGS     0xFFFF00u /**< fmt_arg of push, and of pull */

/** Bytes of the tag after the payload of a frame with these flags. */
static inline unsigned
pbox_tag_len(unsigned flags)
{
	return flags & PBOX_F_AUTH; /* the flag's value is the tag's length */
}

/** A decoded header: the fields of section 2 of the protocol, in host form. */
struct pbox_hdr {
	uint64_t token;
	uint32_t incarnation;
	uint32_t chunk; /**< control frames: request id */
	uint32_t round;
	uint32_t base;
	uint32_t weight;
	uint32_t ts;
	uint32_t held;
	uint16_t flags;
	uint16_t job;
	uint16_t worker;
	uint16_t frag;
	uint16_t length; /**< payload bytes */
	uint16_t map_epoch;
	uint16_t served;
	uint16_t aux; /**< lr_mul, contributors, or error code */
	uint8_t type;
	uint8_t prio;
	uint8_t format;
	uint8_t fmt_arg;
};

/** CRC32C of @p len bytes, continuing @p crc (start with 0; zlib's convention). R2.4. */
uint32_t pbox_crc32c(uint32_t crc, const void *buf, size_t len);
/** As that, of bytes that are copied to @p to in the same pass: it is the CRC of what is there then, whatever others write to @p from
 * meanwhile. The two do not overlap. */
uint32_t pbox_crc32c_copy(uint32_t crc, void *to, const void *from, size_t len);

/**
 * Decode and check the first frame of a datagram or of the rest of one.
 *
 * @param buf   frame; may be unaligned
 * @param len   bytes from @p buf to the end of the datagram
 * @param hdr   set on PBOX_WIRE_OK; also as far as readable on PBOX_WIRE_VERSION (for R2.2)
 * @param size  bytes to the next frame; set on OK, CRC, FLAGS, TYPE, AUTH; on other drops the rest of
 *              the datagram goes with the frame. The payload is at @p buf + PBOX_HDR_LEN,
 *              and after it the tag of a frame with flag AUTH, unchecked.
 * @return PBOX_WIRE_OK or the reason. A remainder of 1 to 61 bytes is TRAILING if @p first is
 *         false (R1.2) and TRUNCATED if it is true.
 */
enum pbox_wire_drop pbox_frame_decode(
	const void *buf, size_t len, bool first, struct pbox_hdr *hdr, size_t *size);

/** Shorter payloads are cheaper to verify at once than to remember. */
#define PBOX_DEFER_MIN 256

/**
 * pbox_frame_decode() of the first frame of a datagram, but the CRC of a contribution that fills its
 * datagram is left for later (R2.5): a caller that reads the payload anyway, to sum it, computes the CRC in
 * the same pass and calls pbox_frame_verify() with it.
 *
 * @param unverified set: true if the CRC was not looked at. Nothing in such a frame may be acted
 *                   upon for good, and its buffer must stay as it is, before it is verified.
 */
enum pbox_wire_drop pbox_frame_open(
	const void *buf, size_t len, struct pbox_hdr *hdr, size_t *size, bool *unverified);

/** Whether the CRC of a frame is right. @p payload is after its header, as in a datagram;
 * @p payload_crc is pbox_crc32c(0, payload, length). */
bool pbox_frame_verify(const void *payload, uint32_t payload_crc);

/**
 * Write a header, with its CRC, into 62 bytes at @p buf (may be unaligned).
 *
 * @param payload_crc  pbox_crc32c(0, payload, hdr->length); 0 for an empty payload
 */
void pbox_frame_encode(void *buf, const struct pbox_hdr *hdr, uint32_t payload_crc);

/** The fields of a header in which answers with one payload differ. */
struct pbox_hdr_to {
	uint64_t token;
	uint32_t ts, held;
	uint16_t worker, flags;
};

/** The rest of it, ready to be written. */
struct pbox_frame_template {
	uint64_t w[7];
	uint32_t payload_crc;
};

/** As for pbox_frame_encode(); the fields of struct pbox_hdr_to are not looked at. */
void pbox_frame_template(
	struct pbox_frame_template *t, const struct pbox_hdr *hdr, uint32_t payload_crc);
/** What pbox_frame_encode() writes for a header with these fields. */
void pbox_frame_encode_to(
	void *buf, const struct pbox_frame_template *t, const struct pbox_hdr_to *to);

/** Encode header and CRC for the payload that is already at @p buf + PBOX_HDR_LEN; returns
 * the frame's size in bytes. With flag AUTH that includes the tag, which is the caller's to write. */
size_t pbox_frame_seal(void *buf, const struct pbox_hdr *hdr);

/** Elements of a full fragment (R5.8) for an IP MTU and the larger of two element sizes (of blocks: 4);
 * 0 when the MTU is too small for 64 bytes of payload. */
static inline uint32_t
pbox_frag_elements(unsigned mtu, unsigned push_format, unsigned pull_format)
{
	unsigned a = pbox_format_wide(push_format), b = pbox_format_wide(pull_format);

	if (mtu < PBOX_MTU_OVERHEAD + 64 || a == 0 || b == 0)
		return 0;
	return ((mtu - PBOX_MTU_OVERHEAD) & ~63u) / (a > b ? a : b);
}

/** Workers of a job whose tables in clocks have a vector (R14.10). */
#define PBOX_CLOCK_VECTOR 256

/** Bytes after the elements of a RESULT of such a table: one for each worker; 0: it has none. */
static inline unsigned
pbox_clock_vector(unsigned workers)
{
	return workers <= PBOX_CLOCK_VECTOR ? workers : 0;
}

/** The bits of DECLARE's flags that these formats ask for (R13.5). */
static inline uint32_t
pbox_declare_args(unsigned push_format, unsigned pull_format)
{
	return pbox_format_arg(push_format) << 8 | pbox_format_arg(pull_format) << 16;
}

/** Elements of one INIT piece (R6.8): what a frame of @p mtu carries in fp32. */
static inline uint32_t
pbox_init_elements(unsigned mtu)
{
	return pbox_frag_elements(mtu, PBOX_FMT_FP32, PBOX_FMT_FP32);
}

/** Most INIT pieces of a fragment: the box keeps a bit for each. */
#define PBOX_INIT_PIECES 8

/** INIT pieces of a full fragment of a table with these formats; 0: unknown formats. */
static inline unsigned
pbox_init_pieces(unsigned push_format, unsigned pull_format)
{
	unsigned a = pbox_format_wide(push_format), b = pbox_format_wide(pull_format);

	return a == 0 || b == 0 ? 0 : 4 / (a > b ? a : b);
}

/* ---- texts (R3.4) --------------------------------------------------------------------- */

/** The UTF-8 character at the beginning of @p text, which ends with a NUL: how many bytes it has, and its
 * code; 0 and nothing where there is none (a byte that is no part of one, a character that is cut). */
size_t pbox_utf8_char(const char *text, uint32_t *code);
/** All of @p text is UTF-8. */
bool pbox_utf8_good(const char *text);

/* ---- control payloads ---------------------------------------------------------------- */
/*
 * Each encoder writes at most `cap` bytes at `buf` and returns the payload's length, or 0 when it
 * does not fit or a count is beyond its limit. Each decoder checks every length before use and
 * returns 0, or -1 for a payload that is too short or contradicts itself (control_malformed, R3.3);
 * it may have written to the message then. It judges no values: a worker number out of range or an
 * unknown optimiser is the caller's to answer. Decoded strings are NUL-terminated copies, padded
 * with zeros; unknown trailing bytes are ignored (R3.3). Texts and names are cut to what fits, at a
 * UTF-8 character.
 */

struct pbox_hello {
	uint8_t min_version, max_version;
};

struct pbox_retry {
	uint64_t cookie;
	uint32_t incarnation;
};

struct pbox_join {
	uint64_t cookie, nonce;
	uint16_t worker, workers, mtu, window;
	uint8_t policy, auth; /**< auth: 1: it can send and check tags */
	uint8_t revision;     /**< PBOX_REVISION of its sender; 0: a release before there was one */
	uint32_t lease_ms;
	uint32_t can, needs; /**< bits of enum pbox_capability (R4.10) */
	uint16_t slots;      /**< of the job (R5.2b); 0: as many as workers */
	uint16_t least;      /**< workers with which the training begins (R15.1a); 0: all */
	char job[PBOX_NAME_LEN], host[PBOX_NAME_LEN];
	uint8_t proof[PBOX_PROOF_LEN];
	uint8_t run[PBOX_RUN_LEN]; /**< identity of the worker's run; zeros: it names none */
	uint64_t number;           /**< of its run, from WELCOME; 0: it begins here */
};

struct pbox_endpoint {
	uint8_t ipv4[4];
	uint16_t udp;
};

struct pbox_welcome {
	uint64_t token, nonce;
	uint16_t job, worker, workers, endpoints;
	uint32_t incarnation, lease_ms;
	uint16_t mtu, window;
	uint32_t flags; /**< PBOX_WELCOME_..., and what the box can do (R4.10) */
	uint8_t proof[PBOX_PROOF_LEN];
	uint64_t number; /**< of the run, never 0 (R12.2) */
	struct pbox_endpoint endpoint[PBOX_MAX_ENDPOINTS];
};

size_t pbox_hello_encode(void *buf, size_t cap, const struct pbox_hello *m);
int pbox_hello_decode(const void *buf, size_t len, struct pbox_hello *m);
size_t pbox_retry_encode(void *buf, size_t cap, const struct pbox_retry *m);
int pbox_retry_decode(const void *buf, size_t len, struct pbox_retry *m);
/** The proof field is written as it is: zero it, compute the HMAC over the prefix string and
 * the bytes, and store it at buf + PBOX_JOIN_PROOF_AT. */
size_t pbox_join_encode(void *buf, size_t cap, const struct pbox_join *m);
int pbox_join_decode(const void *buf, size_t len, struct pbox_join *m);
size_t pbox_welcome_encode(void *buf, size_t cap, const struct pbox_welcome *m);
int pbox_welcome_decode(const void *buf, size_t len, struct pbox_welcome *m);

#define PBOX_WELCOME_AUTH     0x1u  /**< frames of this session have tags (R11.1) */
#define PBOX_WELCOME_INSECURE 0x20u /**< the job has no secret: it takes any (R4.5) */

/** Bytes of WELCOME before its endpoints. */
#define PBOX_WELCOME_LEN  80
#define PBOX_ENDPOINT_LEN 8

#define PBOX_JOIN_PROOF_AT        160
#define PBOX_JOIN_PROOF_PREFIX    "PBOX-JOIN-1"
#define PBOX_WELCOME_PROOF_AT     40
#define PBOX_WELCOME_PROOF_PREFIX "PBOX-WELCOME-1"
#define PBOX_ERROR_PROOF_PREFIX   "PBOX-ERROR-1"

/** The fixed part of DECLARE (R5.1). */
struct pbox_declare {
	uint32_t table, tensors, first;
	uint16_t count;
	uint8_t mode, op, optimiser, push_format, pull_format, discipline;
	uint32_t flags; /**< PBOX_DECLARE_... */
};

struct pbox_tensor_entry {
	uint64_t elements;
	uint16_t group;
	char name[PBOX_NAME_LEN]; /**< cut to 63 bytes (R5.1) */
};

/**
 * Cursor over the variable part of a paged payload: for writing, `at`/`end` bound the buffer's
 * rest; for reading, the entries not yet read, of the payload given to the decoder, which must
 * stay. The decoders of pages walk all entries before they return 0, so that after it `count`
 * calls of the next function succeed, and the one after them returns -1.
 */
struct pbox_cursor {
	uint8_t *at, *end;
};

/** Writes the fixed part with count 0; entries follow by pbox_declare_add, which patches count. */
int pbox_declare_begin(
	void *buf, size_t cap, const struct pbox_declare *m, struct pbox_cursor *cur);
/** 0, or -1 when the page is full (send it and begin the next). */
int pbox_declare_add(void *buf, struct pbox_cursor *cur, const struct pbox_tensor_entry *e);
int pbox_declare_decode(
	const void *buf, size_t len, struct pbox_declare *m, struct pbox_cursor *cur);
int pbox_declare_next(struct pbox_cursor *cur, struct pbox_tensor_entry *e);

struct pbox_declared {
	uint32_t table, first;
	uint16_t count;
};

struct pbox_map {
	uint32_t table, first;
};

struct pbox_not_ready {
	uint16_t expected, joined, declared, first_missing;
	uint32_t silent_ms;
	char text[512];
};

struct pbox_mapped {
	uint32_t table, chunks, first;
	uint16_t count;
	uint16_t mark; /**< of the snapshot that the table has begun with; 0: none (R16.16) */
	uint32_t frag_elements, first_chunk_id;
};

struct pbox_segment {
	uint64_t offset; /**< elements into the tensor */
	uint32_t tensor, elements;
};

struct pbox_chunk_entry {
	uint32_t chunk_id;
	uint16_t endpoint, segments;
	uint32_t elements, version;
	struct pbox_segment segment[PBOX_MAX_SEGMENTS];
};

size_t pbox_declared_encode(void *buf, size_t cap, const struct pbox_declared *m);
int pbox_declared_decode(const void *buf, size_t len, struct pbox_declared *m);
size_t pbox_map_encode(void *buf, size_t cap, const struct pbox_map *m);
int pbox_map_decode(const void *buf, size_t len, struct pbox_map *m);
size_t pbox_not_ready_encode(void *buf, size_t cap, const struct pbox_not_ready *m);
int pbox_not_ready_decode(const void *buf, size_t len, struct pbox_not_ready *m);
int pbox_mapped_begin(void *buf, size_t cap, const struct pbox_mapped *m, struct pbox_cursor *cur);
/** 0, or -1 when the page is full; 1 to PBOX_MAX_SEGMENTS segments. */
int pbox_mapped_add(void *buf, struct pbox_cursor *cur, const struct pbox_chunk_entry *e);
int pbox_mapped_decode(const void *buf, size_t len, struct pbox_mapped *m, struct pbox_cursor *cur);
int pbox_mapped_next(struct pbox_cursor *cur, struct pbox_chunk_entry *e);

#define PBOX_SET_MAX    16 /**< parameters of one SET (R7.1) */
#define PBOX_ALL_GROUPS 0xFFFF

struct pbox_set {
	uint32_t table;
	uint16_t group, count;
	uint32_t from_round;
	struct pbox_param {
		uint16_t id;
		double value;
	} param[PBOX_SET_MAX];
};

struct pbox_status {
	uint16_t first, flags;
	/* with PBOX_STATUS_WAITS: what the sender waits for, of worker `first` (R8.3a) */
	uint32_t chunk, round; /**< round 0: no fragment, and chunk is the number of a table */
	uint16_t frag;
	char rack[512]; /**< with PBOX_STATUS_RACK: what the sender's rack waits for (R18.8) */
};

#define PBOX_STATUS_WAITS 1 /**< in pbox_status */
/** In both: is it known why a sum is not finite (R6.16)? Then the text says it. */
#define PBOX_STATUS_FINITE 2
/** In both: the sender is a rack (R18.8); the text is what worker `first`, another one, waits for. */
#define PBOX_STATUS_RACK 4
#define PBOX_STATUS_CIRCLE \
	1 /**< in pbox_status_ok: worker `first` waits, and so does who it waits for, without end */
#define PBOX_STATUS_MAX      16
#define PBOX_STATUS_RACK_MAX (PBOX_STATUS_MAX + 4 + 511)

struct pbox_member_entry {
	uint16_t worker;
	uint8_t state;  /**< enum pbox_member_state */
	uint8_t reason; /**< enum pbox_left: of PBOX_MEMBER_LEFT; REFUSED also of others */
	uint32_t silent_ms, declared;
	char host[21];
};

/** How a session ended (R8.3). */
enum pbox_left {
	PBOX_LEFT_UNKNOWN = 0,
	PBOX_LEFT_ITSELF = 1, /**< LEAVE */
	PBOX_LEFT_KICKED = 2, /**< by the operator of the box */
	PBOX_LEFT_TAKEN =
		3, /**< its number went to another process, or the job went on without it */
	PBOX_LEFT_REFUSED = 4, /**< what it declared, or its JOIN, was refused */
};

enum pbox_member_state {
	PBOX_MEMBER_ABSENT = 0,
	PBOX_MEMBER_JOINED = 1,
	PBOX_MEMBER_LEFT = 2,
	PBOX_MEMBER_SILENT = 3,
};

struct pbox_status_ok {
	uint16_t workers, joined, first, count;
	uint32_t tables, max_round;
	uint16_t flags;
	char text[512];
};

struct pbox_error_msg {
	uint16_t code;
	uint8_t type;
	uint32_t detail;
	char text[512];
};

size_t pbox_set_encode(void *buf, size_t cap, const struct pbox_set *m);
int pbox_set_decode(const void *buf, size_t len, struct pbox_set *m);
size_t pbox_status_encode(void *buf, size_t cap, const struct pbox_status *m);
int pbox_status_decode(const void *buf, size_t len, struct pbox_status *m);
/** Begin with at most 511 bytes of text, or what fits @p cap, and without members. */
int pbox_status_ok_begin(
	void *buf, size_t cap, const struct pbox_status_ok *m, struct pbox_cursor *cur);
int pbox_status_ok_add(void *buf, struct pbox_cursor *cur, const struct pbox_member_entry *e);
int pbox_status_ok_decode(
	const void *buf, size_t len, struct pbox_status_ok *m, struct pbox_cursor *cur);
int pbox_status_ok_next(struct pbox_cursor *cur, struct pbox_member_entry *e);
/* ---- section 15 ------------------------------------------------------------------------------ */

/** Slots first to end - 1. */
struct pbox_slot_range {
	uint16_t first, end;
};
#define PBOX_WORK_RANGES  24 /**< of one worker, at most */
#define PBOX_WORK_NONE    (UINT64_MAX >> 1)
#define PBOX_WORK_UNKNOWN UINT32_MAX /**< of `trained` */
#define PBOX_WORK_HYPERS  13

/** WORK: a worker's report of a round, and what it owns. */
struct pbox_work_ask {
	uint32_t table, round, edition; /**< round: the report is of the one before */
	uint16_t slots, payloads;
	uint32_t fits;                   /**< samples; UINT32_MAX: not known */
	uint32_t trained;                /**< PBOX_WORK_UNKNOWN: it asks for it */
	double compute, fixed, up, down; /**< seconds */
	uint64_t seed, samples;          /**< PBOX_WORK_NONE: none */
	uint32_t batch;
	uint16_t ranges;
	uint16_t group; /**< whose hyper-parameters it wants to know */
	struct pbox_slot_range range[PBOX_WORK_RANGES];
};

/** WORK_OK: what a worker owns from now on, and by the next plan, if next_from is not 0. */
struct pbox_work_ok {
	uint32_t table, edition, plan, next_plan, next_from;
	uint16_t again_ms; /**< not 0: ask again then, nothing else is here */
	uint16_t ranges, next_ranges, members;
	uint32_t leads;
	uint32_t now;     /**< the round in progress */
	uint32_t trained; /**< rounds of the training before that; or PBOX_WORK_UNKNOWN */
	double hyper[PBOX_WORK_HYPERS]; /**< of the group, ids 1 and on, in the round before that */
	struct pbox_slot_range range[PBOX_WORK_RANGES], next_range[PBOX_WORK_RANGES];
	uint32_t decided; /**< the round that `decision` is of; 0: none (R15.11) */
	double decision;
};

#define PBOX_WORK_MOST    (80 + 4 * PBOX_WORK_RANGES)      /**< bytes */
#define PBOX_WORK_OK_MOST (160 + 2 * 4 * PBOX_WORK_RANGES) /**< bytes */
size_t pbox_work_ask_encode(void *buf, size_t cap, const struct pbox_work_ask *m);
int pbox_work_ask_decode(const void *buf, size_t len, struct pbox_work_ask *m);
size_t pbox_work_ok_encode(void *buf, size_t cap, const struct pbox_work_ok *m);
int pbox_work_ok_decode(const void *buf, size_t len, struct pbox_work_ok *m);

/** TASK (R15.10a): of a worker that wants slots (wish 0), of the box that wishes slots of a worker, and what that says. */
struct pbox_task {
	uint32_t table, round, wish;
	uint32_t since_us;   /**< since it began the last one */
	uint16_t first, end; /**< wished, or given up; first = end: none */
	uint16_t ranges;
	struct pbox_slot_range range[PBOX_WORK_RANGES]; /**< computed (wish 0), or not begun */
};

/** TASK_OK: the slots of a worker in the round, if it has not computed all of them. */
struct pbox_task_ok {
	uint32_t table, round;
	uint16_t again_ms; /**< not 0: ask again then, nothing else is here */
	uint16_t ranges;
	struct pbox_slot_range range[PBOX_WORK_RANGES];
};

#define PBOX_TASK_MOST (24 + 4 * PBOX_WORK_RANGES) /**< bytes */
size_t pbox_task_encode(void *buf, size_t cap, const struct pbox_task *m);
int pbox_task_decode(const void *buf, size_t len, struct pbox_task *m);
size_t pbox_task_ok_encode(void *buf, size_t cap, const struct pbox_task_ok *m);
int pbox_task_ok_decode(const void *buf, size_t len, struct pbox_task_ok *m);

/* ---- section 16 ------------------------------------------------------------------------------ */

#define PBOX_MAX_BOXES 16 /**< that a job is at */

/** BOXES_OK: the boxes of the job, in their order, and what they must have in common. */
struct pbox_boxes_ok {
	uint16_t boxes;
	uint8_t box;     /**< which of them answers */
	uint8_t decides; /**< which of them decides (R16.3), by the newest map that it knows */
	uint32_t cores;  /**< its data cores */
	uint32_t chunk_elements;
	uint16_t mtu;
	uint16_t out; /**< bit by box: the job goes on without it */
	char release[25];
	struct pbox_endpoint at[PBOX_MAX_BOXES]; /**< their control endpoints */
};

size_t pbox_boxes_ok_encode(void *buf, size_t cap, const struct pbox_boxes_ok *m);
int pbox_boxes_ok_decode(const void *buf, size_t len, struct pbox_boxes_ok *m);

/** What a worker has measured of a box since it began: sums over rounds. */
struct pbox_box_times {
	uint32_t rounds;
	double seconds, squares; /**< of a round's seconds, and of their squares */
	double exposed;          /**< seconds after the last submission */
};
/** STATS: its times, of whole rounds and of each box. */
struct pbox_stats_msg {
	uint16_t boxes;
	uint32_t rounds;
	double seconds, squares;
	struct pbox_box_times box[PBOX_MAX_BOXES];
};
#define PBOX_STATS_MOST 536 /**< bytes of its payload */

size_t pbox_stats_encode(void *buf, size_t cap, const struct pbox_stats_msg *m);
int pbox_stats_decode(const void *buf, size_t len, struct pbox_stats_msg *m);
/** HOMES and HOMES_OK: which box has which chunk of a table (R16.9). */
#define PBOX_HOMES_MOST 160 /**< chunks in one */

enum pbox_homes_flags {
	PBOX_HOMES_RESTORE =
		1, /**< HOMES: the worker has had the table before, and will report what it holds */
	PBOX_HOMES_PREPARE = 2, /**< HOMES: the box takes what it gets, and gives up nothing yet */
};
/** And in the flags of HOMES and HOMES_OK which box decides, by that map. */
#define PBOX_HOMES_DECIDES_SHIFT 12

static inline uint16_t
pbox_homes_decided(unsigned box)
{
	return (uint16_t)(box << PBOX_HOMES_DECIDES_SHIFT);
}

struct pbox_home {
	uint8_t box, endpoint; /**< endpoint: of that box, in HOMES_OK of that box alone */
	uint16_t epoch;   /**< of the map that gave it the chunk; frames for the chunk say it */
	uint32_t version; /**< the lowest of its fragments, in HOMES_OK of its box alone */
};

struct pbox_homes {
	uint32_t table, chunks, first;
	uint16_t count;
	uint16_t epoch; /**< of the map; HOMES without entries asks for it */
	uint16_t flags; /**< enum pbox_homes_flags; and pbox_homes_decides() */
	uint16_t out;   /**< bit by box: the job goes on without it */
	struct pbox_home home[PBOX_HOMES_MOST]; /**< of chunks first, first + 1, ... */
};

static inline uint8_t
pbox_homes_decides(const struct pbox_homes *m)
{
	return (uint8_t)(m->flags >> PBOX_HOMES_DECIDES_SHIFT);
}

size_t pbox_homes_encode(void *buf, size_t cap, const struct pbox_homes *m);
int pbox_homes_decode(const void *buf, size_t len, struct pbox_homes *m);

size_t pbox_error_encode(void *buf, size_t cap, const struct pbox_error_msg *m);
int pbox_error_decode(const void *buf, size_t len, struct pbox_error_msg *m);

/** What follows the text of an ERROR to a JOIN that was proven (R9.2): whose JOIN it answers, and proof. */
struct pbox_error_tail {
	uint64_t nonce;
	uint32_t request; /**< id */
};

#define PBOX_ERROR_TAIL_LEN 48
/** Of the last bytes of the payload that the tail ends. */
#define PBOX_ERROR_PROOF_AT(end) ((end)-PBOX_PROOF_LEN)
/** Appended to the @p len bytes that pbox_error_encode() wrote; the proof is zeroed. @return the new length */
size_t pbox_error_tail_encode(void *buf, size_t len, const struct pbox_error_tail *t);
/** @return where the tail ends in the payload; 0: there is none */
size_t pbox_error_tail_decode(const void *buf, size_t len, struct pbox_error_tail *t);

/** Payload length of a page built with begin/add. */
static inline size_t
pbox_page_len(const void *buf, const struct pbox_cursor *cur)
{
	return (size_t)(cur->at - (const uint8_t *)buf);
}

#ifdef __cplusplus
}
#endif

#endif /* PBOX_WIRE_H */
