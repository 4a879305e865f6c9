/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_PAIRS_H
#define PBOX_PAIRS_H

/**
 * @file
 * What a job uses, and which two of that do not go together: written once. The checks of the box's configuration, of JOIN and
 * DECLARE, of the client library and of Python are made of these lists, and so is doc/modes.md (.ci/modes.py --write).
 */

#include "pbox_wire_enums.h"

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* clang-format off */

/** X(symbol, column of the page, name in messages, what it is) */
#define PBOX_USES(X) \
	X(ROUNDS, rounds, "rounds", "tables in rounds: each version is a sum over all workers") \
	X(SLOTS, slots, "slots", "slots=V: a round is divided into V micro-batches") \
	X(PLAN, plan, "policy reassign", "policy reassign: the box gives each worker its slots") \
	X(STEAL, steal, "steal", "steal=True: a worker that is done takes slots of another one") \
	X(AHEAD, ahead, "ahead", "ahead=: slots are computed on parameters of the round before") \
	X(CLOCKS, clocks, "clocks", "tables in clocks (Eager): no worker waits for another") \
	X(BOXES, boxes, "several boxes", "several boxes (boxes): each has a part of each table") \
	X(GPU, gpu, "a GPU", "parameters of torch on a GPU") \
	X(THREADS, threads, "several threads", "threads=: several progress threads of a client") \
	X(SNAPSHOTS, snapshots, "snapshots", "snapshots of the box (snapshot-dir)") \
	X(SHRINK, shrink, "policy shrink", "policy shrink: rounds go on without a dead worker") \
	X(OPTIMISER, optimiser, "an optimiser on the box", "an optimiser on the box (mode 1)") \
	X(UP, push, "pushes in blocks", "push=\"int8\" or \"mxfp4\" to a table in rounds") \
	X(DOWN, pull, "results in blocks", "pull=\"int8\" or \"mxfp4\" with an optimiser") \
	X(RACKS, racks, "racks", "racks (upstream): a box for each rack below an upper box") \
	X(HOLD, hold, "two phases a round", "max_norm= or skip_nonfinite= (HOLD): two phases a round")

/** X(use, what it needs): who uses the one uses the other, and is refused with it. */
#define PBOX_USE_NEEDS(X) \
	X(SLOTS, ROUNDS) \
	X(PLAN, SLOTS) \
	X(PLAN, OPTIMISER) \
	X(STEAL, PLAN) \
	X(AHEAD, PLAN) \
	X(CLOCKS, OPTIMISER) \
	X(DOWN, OPTIMISER) \
	X(HOLD, ROUNDS) \
	X(HOLD, OPTIMISER)

/** X(use, use, who refuses it, reason and next step). Of several in one request the first one is said. */
#define PBOX_PAIRS(X) \
	X(PLAN, BOXES, UNSUPPORTED, "each box would share out slots by itself, as boxes do not talk to each other: take policy wait, or one box") \
	X(PLAN, GPU, PYTHON, "slots that others take over are summed in host memory: move the model to the CPU (model.cpu()), or take policy wait with slots") \
	X(PLAN, SHRINK, BAD_REQUEST, "a job has one policy: give all workers the same, or set policy in the job's section") \
	X(STEAL, AHEAD, PYTHON, "who steals a slot would need the parameters of a round before: leave one of the two out") \
	X(BOXES, SHRINK, UNSUPPORTED, "each box would go on without a worker by itself, as boxes do not talk to each other: take policy wait, or one box") \
	X(PLAN, RACKS, UNSUPPORTED, "the slots of a rack are fixed, and its box gives their sum to the upper one: take policy wait") \
	X(SHRINK, RACKS, UNSUPPORTED, "the sum of a rack is of all its workers: take policy wait") \
	X(CLOCKS, RACKS, UNSUPPORTED, "a rack's box sums rounds, and tables in clocks have none: declare the table in rounds, or let all workers join one box") \
	X(OPTIMISER, RACKS, UNSUPPORTED, "a rack's box has sums, and no parameters: let the workers run the optimiser (all-reduce)") \
	X(UP, RACKS, UNSUPPORTED, "racks sum in fp32, bf16 or fp16: take one of these") \
	X(BOXES, RACKS, CONF, "a rack's box is no part of several boxes: remove boxes or upstream") \
	X(SNAPSHOTS, RACKS, CONF, "a rack's box has nothing of its own to keep: remove snapshot-dir or upstream") \
	X(CLOCKS, HOLD, UNSUPPORTED, "tables in clocks have no rounds that could have phases: declare the table in rounds, or let the workers clip") \
	X(PLAN, HOLD, UNSUPPORTED, "the norm would have to be asked again where slots change hands between the phases: take policy wait") \
	X(SHRINK, HOLD, UNSUPPORTED, "the norm would have to be asked again where a worker goes between the phases: take policy wait") \
	X(GPU, HOLD, PYTHON, "two phases are for parameters on the CPU so far: take an optimiser of torch.optim with the hook (pbox.torch.register), where clip_grad_norm_ sees the mean") \
	X(UP, HOLD, UNSUPPORTED, "two phases are for plain formats so far: push fp32, bf16 or fp16") \
	X(DOWN, HOLD, UNSUPPORTED, "two phases are for plain formats so far: pull fp32, bf16 or fp16") \
	X(CLOCKS, DOWN, UNSUPPORTED, "workers are at different versions, so results cannot be differences: pull fp32, bf16 or fp16; pushes alone take a format of blocks") \
	X(PLAN, CLOCKS, BAD_REQUEST, "a plan shares out the slots of a round, and tables in clocks have no rounds: take policy wait or shrink, without slots") \
	X(SLOTS, CLOCKS, BAD_REQUEST, "slots are shares of a round, and tables in clocks have no rounds: start the job without slots, or declare the table in rounds") \
	X(SLOTS, DOWN, UNSUPPORTED, "results as differences are for jobs without slots so far: start the job without slots, or pull fp32, bf16 or fp16") \
	X(BOXES, UP, UNSUPPORTED, "what is kept beside such sums does not move with a chunk: use fp32, bf16 or fp16, or one box") \
	X(BOXES, DOWN, UNSUPPORTED, "what is kept beside such results does not move with a chunk: use fp32, bf16 or fp16, or one box")

/** X(use, use, text): they go together, and the page says how. */
#define PBOX_PAIR_NOTES(X) \
	X(ROUNDS, CLOCKS, "a table is one or the other; a job may have tables of both") \
	X(SLOTS, SHRINK, "rounds go on without the slots of a dead worker: bits depend on who lived") \
	X(PLAN, THREADS, "the client has one thread") \
	X(STEAL, THREADS, "the client has one thread") \
	X(AHEAD, THREADS, "the client has one thread") \
	X(CLOCKS, BOXES, "no chunk of the job moves; a dead box is waited for") \
	X(CLOCKS, SNAPSHOTS, "tables in clocks are in no snapshot; the job's tables in rounds are") \
	X(CLOCKS, UP, "256 workers at most; at several boxes, too") \
	X(BOXES, SNAPSHOTS, "of a round that all boxes know before, in jobs with one table with an optimiser") \
	X(BOXES, HOLD, "no chunk of the job moves; a dead box is waited for") \
	X(SLOTS, UP, "what is sent is rounded: bits depend on who has which slots") \
	X(PLAN, UP, "slots that change hands within a round go in fp32") \
	X(ROUNDS, RACKS, "in all-reduce alone") \
	X(SLOTS, RACKS, "the slots of a rack are a power of two")

/* clang-format on */

#define PBOX_USE_AT(symbol, ...) PBOX_USE_AT_##symbol,
#define PBOX_USE_IS(symbol, ...) PBOX_USES_##symbol = 1u << PBOX_USE_AT_##symbol,
enum pbox_use_at { PBOX_USES(PBOX_USE_AT) PBOX_USES_END };
/** Bits of a mask: what a job, a table or a worker uses. */
enum pbox_use { PBOX_USES(PBOX_USE_IS) };

/** Who refuses a pair: the box with that ERROR (and the library and Python before it), its configuration, or Python alone. */
enum pbox_pair_by {
	PBOX_PAIR_CONF = -1,
	PBOX_PAIR_PYTHON = -2,
	PBOX_PAIR_UNSUPPORTED = PBOX_E_UNSUPPORTED,
	PBOX_PAIR_BAD_REQUEST = PBOX_E_BAD_REQUEST,
};

/** The two, and why they do not go together. */
struct pbox_pair {
	uint8_t one, other; /**< enum pbox_use_at */
	int by;             /**< enum pbox_pair_by; above 0: code of ERROR */
	const char *text;   /**< reason: next step */
};

/** For messages: "one with other: text". */
#define PBOX_PAIR_FMT     "%s with %s: %s"
#define PBOX_PAIR_ARGS(p) pbox_use_name((p)->one), pbox_use_name((p)->other), (p)->text

/** What it is called in messages. */
const char *pbox_use_name(unsigned at);
/** @return the first pair of what is used that does not go together; NULL: all does */
const struct pbox_pair *pbox_pair_in(uint32_t uses);
/** All that is used with it, as it needs it. */
uint32_t pbox_use_needs(unsigned at);
/** The format that is refused; PBOX_FMT_NONE: none is, it is something else. */
unsigned pbox_pair_format(const struct pbox_pair *p, unsigned push_format, unsigned pull_format);
/** What the policy says that a job uses. */
uint32_t pbox_uses_of_policy(unsigned policy);
/** What a table uses by its DECLARE. */
uint32_t pbox_uses_of_table(
	bool optimiser, unsigned discipline, bool hold, unsigned push_format, unsigned pull_format);

#ifdef __cplusplus
}
#endif

#endif /* PBOX_PAIRS_H */
