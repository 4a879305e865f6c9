/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_WIRE_ENUMS_H
#define PBOX_WIRE_ENUMS_H

/**
 * @file
 * The numbers of the protocol and their names, each written once: X(symbol, number, name, ...).
 *
 * The enumerations, pbox_*_name() and pbox_number() are made of these lists, and with them options,
 * telemetry, messages, counters, the table of optimisers (lib/optim), what pbox_client_name() gives Python,
 * and the Wireshark dissector's tables (usertools/mkdissector).
 */

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PBOX_LIST_SYMBOL(symbol, number, ...)     symbol = number,
#define PBOX_LIST_NAME(symbol, number, name, ...) [number] = #name,

/** Types of frames (R3.1). */
#define PBOX_TYPES(X)                        \
	X(PBOX_HELLO, 0x01, HELLO)           \
	X(PBOX_RETRY, 0x02, RETRY)           \
	X(PBOX_JOIN, 0x03, JOIN)             \
	X(PBOX_WELCOME, 0x04, WELCOME)       \
	X(PBOX_DECLARE, 0x05, DECLARE)       \
	X(PBOX_DECLARED, 0x06, DECLARED)     \
	X(PBOX_MAP, 0x07, MAP)               \
	X(PBOX_MAPPED, 0x08, MAPPED)         \
	X(PBOX_SET, 0x09, SET)               \
	X(PBOX_SET_OK, 0x0A, SET_OK)         \
	X(PBOX_STATUS, 0x0B, STATUS)         \
	X(PBOX_STATUS_OK, 0x0C, STATUS_OK)   \
	X(PBOX_LEAVE, 0x0D, LEAVE)           \
	X(PBOX_LEFT, 0x0E, LEFT)             \
	X(PBOX_ERROR, 0x0F, ERROR)           \
	X(PBOX_PING, 0x10, PING)             \
	X(PBOX_PONG, 0x11, PONG)             \
	X(PBOX_NOT_READY, 0x12, NOT_READY)   \
	X(PBOX_WORK, 0x13, WORK)             \
	X(PBOX_WORK_OK, 0x14, WORK_OK)       \
	X(PBOX_TASK, 0x15, TASK)             \
	X(PBOX_TASK_OK, 0x16, TASK_OK)       \
	X(PBOX_BOXES, 0x17, BOXES)           \
	X(PBOX_BOXES_OK, 0x18, BOXES_OK)     \
	X(PBOX_STATS, 0x19, STATS)           \
	X(PBOX_STATS_OK, 0x1A, STATS_OK)     \
	X(PBOX_HOMES, 0x1B, HOMES)           \
	X(PBOX_HOMES_OK, 0x1C, HOMES_OK)     \
	X(PBOX_PUSH, 0x20, PUSH)             \
	X(PBOX_PUSH_OK, 0x21, PUSH_OK)       \
	X(PBOX_PULL, 0x22, PULL)             \
	X(PBOX_RESULT, 0x23, RESULT)         \
	X(PBOX_PUSHPULL, 0x24, PUSHPULL)     \
	X(PBOX_WAIT, 0x25, WAIT)             \
	X(PBOX_INIT, 0x26, INIT)             \
	X(PBOX_INIT_OK, 0x27, INIT_OK)       \
	X(PBOX_RESTORE, 0x28, RESTORE)       \
	X(PBOX_RESTORE_OK, 0x29, RESTORE_OK) \
	X(PBOX_MOVED, 0x2A, MOVED)           \
	X(PBOX_FETCH, 0x2B, FETCH)           \
	X(PBOX_FETCHED, 0x2C, FETCHED)       \
	X(PBOX_NORM, 0x2D, NORM)             \
	X(PBOX_NORM_OK, 0x2E, NORM_OK)
enum pbox_type { PBOX_TYPES(PBOX_LIST_SYMBOL) };

/** Formats of elements (R2.3), with their bytes: those narrower than fp32, and all. */
#define PBOX_FORMATS_16(X)           \
	X(PBOX_FMT_BF16, 2, bf16, 2) \
	X(PBOX_FMT_FP16, 3, fp16, 2)
#define PBOX_FORMATS(X) X(PBOX_FMT_FP32, 1, fp32, 4) PBOX_FORMATS_16(X)
/** Elements in blocks, with a scale each (R13.5): X(symbol, number, name, fmt_arg), */
#define PBOX_FORMATS_BLOCK(X)         \
	X(PBOX_FMT_INT8, 16, int8, 7) \
	X(PBOX_FMT_MXFP4, 20, mxfp4, 5)
/** and those of a later release. */
#define PBOX_FORMATS_LATER(X)      \
	X(PBOX_FMT_INT4, 17, int4) \
	X(PBOX_FMT_INT2, 18, int2) \
	X(PBOX_FMT_MXFP8, 19, mxfp8)
enum pbox_format {
	PBOX_FMT_NONE = 0,
	PBOX_FORMATS(PBOX_LIST_SYMBOL) PBOX_FORMATS_BLOCK(PBOX_LIST_SYMBOL)
		PBOX_FORMATS_LATER(PBOX_LIST_SYMBOL)
};

/** What a round makes of its contributions (R5.2). */
#define PBOX_OPS(X)                            \
	X(PBOX_OP_SUM, 0, sum)                 \
	X(PBOX_OP_MEAN, 1, mean)               \
	X(PBOX_OP_SAMPLE_MEAN, 2, sample_mean) \
	X(PBOX_OP_WEIGHTED_MEAN, 3, weighted_mean)
enum pbox_op { PBOX_OPS(PBOX_LIST_SYMBOL) };

/** Optimisers (R5.3); lib/optim has a file for each, which has its name. Keep the numbers without gaps. */
#define PBOX_OPTIMISERS(X)                \
	X(PBOX_OPT_SGD, 1, sgd)           \
	X(PBOX_OPT_MOMENTUM, 2, momentum) \
	X(PBOX_OPT_NESTEROV, 3, nesterov) \
	X(PBOX_OPT_ADAM, 4, adam)         \
	X(PBOX_OPT_ADAMW, 5, adamw)       \
	X(PBOX_OPT_ADD, 6, add)
enum pbox_optimiser { PBOX_OPT_NONE = 0, PBOX_OPTIMISERS(PBOX_LIST_SYMBOL) PBOX_OPTIMISERS_END };

/** What makes a version of a fragment (R5.1), and those of a later release. */
#define PBOX_DISCIPLINES(X)       X(PBOX_DISCIPLINE_ROUNDS, 0, rounds) X(PBOX_DISCIPLINE_CLOCK, 1, clock)
#define PBOX_DISCIPLINES_LATER(X) X(PBOX_DISCIPLINE_TURN, 2, turn)
enum pbox_discipline {
	PBOX_DISCIPLINES(PBOX_LIST_SYMBOL) PBOX_DISCIPLINES_LATER(PBOX_LIST_SYMBOL)
};

/** The state of a fragment: aux of RESTORE_OK (R10.5). */
#define PBOX_RESTORES(X)                \
	X(PBOX_RESTORE_DONE, 0, done)   \
	X(PBOX_RESTORE_NOTED, 1, noted) \
	X(PBOX_RESTORE_GIVE, 2, give)   \
	X(PBOX_RESTORE_LOST, 3, lost)   \
	X(PBOX_RESTORE_LATE, 4, late)   \
	X(PBOX_RESTORE_FETCH, 5, fetch)
enum pbox_restore { PBOX_RESTORES(PBOX_LIST_SYMBOL) };

/** Hyper-parameters: ids in SET (R7.1). */
#define PBOX_HYPERS(X)                              \
	X(PBOX_HYPER_LR, 1, lr)                     \
	X(PBOX_HYPER_MOMENTUM, 2, momentum)         \
	X(PBOX_HYPER_DAMPENING, 3, dampening)       \
	X(PBOX_HYPER_WEIGHT_DECAY, 4, weight_decay) \
	X(PBOX_HYPER_BETA1, 5, beta1)               \
	X(PBOX_HYPER_BETA2, 6, beta2)               \
	X(PBOX_HYPER_EPS, 7, eps)                   \
	X(PBOX_HYPER_CLIP_VALUE, 8, clip_value)     \
	X(PBOX_HYPER_STEPS, 9, steps)               \
	X(PBOX_HYPER_PLAIN, 10, plain)              \
	X(PBOX_HYPER_MAXIMIZE, 11, maximize)        \
	X(PBOX_HYPER_COEFFICIENT, 12, coefficient)  \
	X(PBOX_HYPER_MAX_NORM, 13, max_norm)
enum pbox_hyper_id { PBOX_HYPERS(PBOX_LIST_SYMBOL) PBOX_HYPER_IDS };

/** The value of PBOX_HYPER_PLAIN (R13.10): results are fp32, or in the pull format, and twice why. */
#define PBOX_PLAIN_SET 1u
#define PBOX_PLAIN_WHYS(X)              \
	X(PBOX_WHY_NOTHING, 0, nothing) \
	X(PBOX_WHY_LISTED, 1, listed)   \
	X(PBOX_WHY_EXPOSED, 2, exposed) \
	X(PBOX_WHY_HIDDEN, 3, hidden)   \
	X(PBOX_WHY_NO_GAIN, 4, no_gain) \
	X(PBOX_WHY_ERROR, 5, error)
enum pbox_plain_why { PBOX_PLAIN_WHYS(PBOX_LIST_SYMBOL) PBOX_PLAIN_WHYS_END };

/** An id in SET that is no hyper-parameter: what the workers of a plan decide before a round (R15.11). */
#define PBOX_SET_DECISION 14

/** Codes of ERROR (R9.1). */
#define PBOX_ERRCODES(X)                         \
	X(PBOX_E_NONE, 0, NONE)                  \
	X(PBOX_E_VERSION, 1, VERSION)            \
	X(PBOX_E_COOKIE, 2, COOKIE)              \
	X(PBOX_E_NO_JOB, 3, NO_JOB)              \
	X(PBOX_E_SECRET, 4, SECRET)              \
	X(PBOX_E_WORKERS, 5, WORKERS)            \
	X(PBOX_E_WORKER_TAKEN, 6, WORKER_TAKEN)  \
	X(PBOX_E_FULL, 7, FULL)                  \
	X(PBOX_E_SESSION, 8, SESSION)            \
	X(PBOX_E_MISMATCH, 9, MISMATCH)          \
	X(PBOX_E_BAD_REQUEST, 10, BAD_REQUEST)   \
	X(PBOX_E_SET_LATE, 11, SET_LATE)         \
	X(PBOX_E_SET_CONFLICT, 12, SET_CONFLICT) \
	X(PBOX_E_SET_ORDER, 13, SET_ORDER)       \
	X(PBOX_E_NO_LR, 14, NO_LR)               \
	X(PBOX_E_NO_MEMORY, 15, NO_MEMORY)       \
	X(PBOX_E_SHUTDOWN, 16, SHUTDOWN)         \
	X(PBOX_E_LOST, 17, LOST)                 \
	X(PBOX_E_RUNNING, 18, RUNNING)           \
	X(PBOX_E_RUN_ENDED, 19, RUN_ENDED)       \
	X(PBOX_E_UNSUPPORTED, 20, UNSUPPORTED)   \
	X(PBOX_E_ELSEWHERE, 21, ELSEWHERE)
enum pbox_errcode { PBOX_ERRCODES(PBOX_LIST_SYMBOL) };

/** What happens when a worker is dead (R8.5), as a JOIN says it. */
#define PBOX_POLICIES(X)                 \
	X(PBOX_POLICY_WAIT, 0, wait)     \
	X(PBOX_POLICY_SHRINK, 1, shrink) \
	X(PBOX_POLICY_REASSIGN, 2, reassign)
enum pbox_policy {
	PBOX_POLICY_ANY =
		-1, /**< what the workers ask for: of the configuration, never on the wire */
	PBOX_POLICIES(PBOX_LIST_SYMBOL)
};

/** What a side may be able to do beyond the first release of version 1 (R4.10): bits of JOIN and of WELCOME's flags. */
#define PBOX_CAPABILITIES(X)        \
	X(PBOX_CAN_CLOCK, 1, clock) \
	X(PBOX_CAN_BLOCK, 2, block) \
	X(PBOX_CAN_WORK, 3, work)   \
	X(PBOX_CAN_BOXES, 4, boxes) \
	X(PBOX_CAN_SLOTS, 6, slots) \
	X(PBOX_CAN_NORM, 7, norm)
enum pbox_capability { PBOX_CAPABILITIES(PBOX_LIST_SYMBOL) };

/** Why a frame was refused (R2.1), in the order of the checks: X(symbol, number, name, help). The counters of
 * data cores and of the control thread are made of it too. */
#define PBOX_WIRE_REFUSALS(X)                                                        \
	X(MAGIC, 1, frame_magic, "not a PBox frame")                                 \
	X(VERSION, 2, frame_version,                                                 \
		"frame of another version; a HELLO at the control port is answered") \
	X(TRUNCATED, 3, frame_truncated, "frame longer than its datagram")           \
	X(CRC, 4, frame_crc, "frame damaged on the way")                             \
	X(FLAGS, 5, frame_flags, "unknown flags")                                    \
	X(TYPE, 6, frame_type, "unknown type")                                       \
	X(AUTH, 7, frame_auth, "a tag where there is no session yet")                \
	X(TRAILING, 8, frame_trailing, "bytes after the last frame")
#define PBOX_WIRE_SYMBOL(symbol, number, ...) PBOX_WIRE_##symbol = number,
enum pbox_wire_drop { PBOX_WIRE_OK = 0, PBOX_WIRE_REFUSALS(PBOX_WIRE_SYMBOL) PBOX_WIRE_DROPS };

/** Bytes of one element; 0 for formats of blocks, where none is a number of bytes (pbox_payload_bytes), and for unknown ones. */
static inline unsigned
pbox_format_size(unsigned format)
{
#define PBOX_FORMAT_SIZE(symbol, number, name, bytes) (format) == symbol ? (bytes):
	return PBOX_FORMATS(PBOX_FORMAT_SIZE) 0;
#undef PBOX_FORMAT_SIZE
}

/** log2 of the elements of a block: what frames and DECLARE say besides (R13.5). 0: it is no format of blocks. */
static inline unsigned
pbox_format_arg(unsigned format)
{
#define PBOX_FORMAT_ARG(symbol, number, name, arg) (format) == symbol ? (arg):
	return PBOX_FORMATS_BLOCK(PBOX_FORMAT_ARG) 0;
#undef PBOX_FORMAT_ARG
}

static inline bool
pbox_format_is_block(unsigned format)
{
	return pbox_format_arg(format) != 0;
}

/** Bytes that an element counts as in the size of a fragment (R5.8): fragments of formats of blocks are those of fp32. 0: unknown. */
static inline unsigned
pbox_format_wide(unsigned format)
{
	return pbox_format_is_block(format) ? 4 : pbox_format_size(format);
}

/** Elements of a unit of a format of blocks (R13.5), and bytes of the scales that it begins with. */
#define PBOX_UNIT        128u
#define PBOX_UNIT_SCALES 4u

/** Bytes of a payload of @p elements, and where in it the element after them begins (in a format of blocks: where they
 * are whole units). All lengths come from here, since in such a format none is a multiple of the elements. */
static inline size_t
pbox_payload_bytes(unsigned format, size_t elements)
{
	size_t scales = (elements + PBOX_UNIT - 1) / PBOX_UNIT * PBOX_UNIT_SCALES;

	if (format == PBOX_FMT_INT8)
		return scales + elements;
	if (format == PBOX_FMT_MXFP4)
		return scales + (elements + 1) / 2;
	return elements * pbox_format_size(format);
}

/* ---- names, for messages ------------------------------------------------------------- */

const char *pbox_type_name(unsigned type);             /**< "PUSHPULL"; "?" if unknown */
const char *pbox_wire_drop_name(unsigned drop);        /**< "frame_crc" */
const char *pbox_errcode_name(unsigned code);          /**< "WORKER_TAKEN" */
const char *pbox_format_name(unsigned format);         /**< "fp32" */
const char *pbox_optimiser_name(unsigned optimiser);   /**< "adamw" */
const char *pbox_op_name(unsigned op);                 /**< "weighted_mean" */
const char *pbox_restore_name(unsigned restore);       /**< "noted" */
const char *pbox_hyper_name(unsigned hyper);           /**< "weight_decay" */
const char *pbox_plain_why_name(unsigned why);         /**< "hidden" */
const char *pbox_policy_name(unsigned policy);         /**< "shrink" */
const char *pbox_discipline_name(unsigned discipline); /**< "clock" */
const char *pbox_capability_name(unsigned bit);        /**< "slots" */

/* of what a later release does; "?" for all that this one does */
const char *pbox_format_later(unsigned format);         /**< "int8" */
const char *pbox_discipline_later(unsigned discipline); /**< "turn" */

/** The number of which @p name_of (one of these functions) says the @p len bytes at @p name; -1: there is none. */
int pbox_number(const char *(*name_of)(unsigned), const char *name, size_t len);

#ifdef __cplusplus
}
#endif

#endif /* PBOX_WIRE_ENUMS_H */
