/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "pbox_wire.h"

#define NAME(table, i) ((i) < sizeof(table) / sizeof((table)[0]) && (table)[i] ? (table)[i] : "?")

const char *
pbox_type_name(unsigned type)
{
	static const char *const names[] = {
		[PBOX_HELLO] = "HELLO",
		[PBOX_RETRY] = "RETRY",
		[PBOX_JOIN] = "JOIN",
		[PBOX_WELCOME] = "WELCOME",
		[PBOX_DECLARE] = "DECLARE",
		[PBOX_DECLARED] = "DECLARED",
		[PBOX_MAP] = "MAP",
		[PBOX_MAPPED] = "MAPPED",
		[PBOX_SET] = "SET",
		[PBOX_SET_OK] = "SET_OK",
		[PBOX_STATUS] = "STATUS",
		[PBOX_STATUS_OK] = "STATUS_OK",
		[PBOX_LEAVE] = "LEAVE",
		[PBOX_LEFT] = "LEFT",
		[PBOX_ERROR] = "ERROR",
		[PBOX_PING] = "PING",
		[PBOX_PONG] = "PONG",
		[PBOX_NOT_READY] = "NOT_READY",
		[PBOX_PUSH] = "PUSH",
		[PBOX_PUSH_OK] = "PUSH_OK",
		[PBOX_PULL] = "PULL",
		[PBOX_RESULT] = "RESULT",
		[PBOX_PUSHPULL] = "PUSHPULL",
		[PBOX_WAIT] = "WAIT",
		[PBOX_INIT] = "INIT",
		[PBOX_INIT_OK] = "INIT_OK",
		[PBOX_RESTORE] = "RESTORE",
		[PBOX_RESTORE_OK] = "RESTORE_OK",
		[PBOX_FETCH] = "FETCH",
		[PBOX_FETCHED] = "FETCHED",
	};

	return NAME(names, type);
}

const char *
pbox_wire_drop_name(unsigned drop)
{
	static const char *const names[PBOX_WIRE_DROPS] = {
		[PBOX_WIRE_OK] = "frame_ok",
		[PBOX_WIRE_MAGIC] = "frame_magic",
		[PBOX_WIRE_VERSION] = "frame_version",
		[PBOX_WIRE_TRUNCATED] = "frame_truncated",
		[PBOX_WIRE_CRC] = "frame_crc",
		[PBOX_WIRE_FLAGS] = "frame_flags",
		[PBOX_WIRE_TYPE] = "frame_type",
		[PBOX_WIRE_AUTH] = "frame_auth",
		[PBOX_WIRE_TRAILING] = "frame_trailing",
	};

	return NAME(names, drop);
}

const char *
pbox_errcode_name(unsigned code)
{
	static const char *const names[] = {
		[PBOX_E_NONE] = "NONE",
		[PBOX_E_VERSION] = "VERSION",
		[PBOX_E_COOKIE] = "COOKIE",
		[PBOX_E_NO_JOB] = "NO_JOB",
		[PBOX_E_SECRET] = "SECRET",
		[PBOX_E_WORKERS] = "WORKERS",
		[PBOX_E_WORKER_TAKEN] = "WORKER_TAKEN",
		[PBOX_E_FULL] = "FULL",
		[PBOX_E_SESSION] = "SESSION",
		[PBOX_E_MISMATCH] = "MISMATCH",
		[PBOX_E_BAD_REQUEST] = "BAD_REQUEST",
		[PBOX_E_SET_LATE] = "SET_LATE",
		[PBOX_E_SET_CONFLICT] = "SET_CONFLICT",
		[PBOX_E_SET_ORDER] = "SET_ORDER",
		[PBOX_E_NO_LR] = "NO_LR",
		[PBOX_E_NO_MEMORY] = "NO_MEMORY",
		[PBOX_E_SHUTDOWN] = "SHUTDOWN",
		[PBOX_E_LOST] = "LOST",
		[PBOX_E_RUNNING] = "RUNNING",
		[PBOX_E_RUN_ENDED] = "RUN_ENDED",
	};

	return NAME(names, code);
}

const char *
pbox_format_name(unsigned format)
{
	/* the reserved ones too: "format int8 is not granted" says more than "format 16" */
	static const char *const names[] = {
		[PBOX_FMT_NONE] = "none",
		[PBOX_FMT_FP32] = "fp32",
		[PBOX_FMT_BF16] = "bf16",
		[PBOX_FMT_FP16] = "fp16",
		[16] = "int8",
		[17] = "int4",
		[18] = "int2",
		[19] = "mxfp8",
		[20] = "mxfp4",
	};

	return NAME(names, format);
}

const char *
pbox_optimiser_name(unsigned optimiser)
{
	static const char *const names[] = {
		[PBOX_OPT_NONE] = "none",
		[PBOX_OPT_SGD] = "sgd",
		[PBOX_OPT_MOMENTUM] = "momentum",
		[PBOX_OPT_NESTEROV] = "nesterov",
		[PBOX_OPT_ADAM] = "adam",
		[PBOX_OPT_ADAMW] = "adamw",
	};

	return NAME(names, optimiser);
}

const char *
pbox_op_name(unsigned op)
{
	static const char *const names[] = {
		[PBOX_OP_SUM] = "sum",
		[PBOX_OP_MEAN] = "mean",
		[PBOX_OP_SAMPLE_MEAN] = "sample_mean",
		[PBOX_OP_WEIGHTED_MEAN] = "weighted_mean",
	};

	return NAME(names, op);
}

const char *
pbox_restore_name(unsigned restore)
{
	static const char *const names[] = {
		[PBOX_RESTORE_DONE] = "done",
		[PBOX_RESTORE_NOTED] = "noted",
		[PBOX_RESTORE_GIVE] = "give",
		[PBOX_RESTORE_LOST] = "lost",
	};

	return NAME(names, restore);
}
