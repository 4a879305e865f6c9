/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_FAULT_H
#define PBOX_FAULT_H

/**
 * @file
 * A bad network: frames go into a line, and come out of it lost, doubled, damaged, cut, late or in
 * another order, as seeded models say. What a frame is, who owns its bytes and what time it is are
 * its user's business (net_chaos: mbufs and the TSC).
 *
 * A frame meets, in this order: blackhole, target, loss, burst, Gilbert-Elliott; duplication;
 * then, each copy for itself: ECN mark, damage, truncation, reordering, delay; the ready ring.
 *
 * Every fault of a line has a sequence of random numbers of its own, started by the seed, the
 * direction and the number of the line: the n-th frame that reaches a fault always meets the same
 * fate there, whatever other faults are on.
 *
 * A line belongs to one thread. Counters may be read by any.
 */

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- settings as text (conf.c) ------------------------------------------------------------- */

enum pbox_fault_dir { PBOX_FAULT_RX, PBOX_FAULT_TX, PBOX_FAULT_DIRS };

#define PBOX_FAULT_TERMS      8 /**< of a target: all must match */
#define PBOX_FAULT_TERM_BYTES 16
#define PBOX_FAULT_WINDOW_MAX 1024 /**< frames that reordering lets pass */
#define PBOX_FAULT_VALUE_MAX  640  /**< of text: a target of 8 terms of 16 bytes with masks */

struct pbox_fault_term {
	uint32_t offset;
	uint32_t len;
	uint8_t value[PBOX_FAULT_TERM_BYTES];
	uint8_t mask[PBOX_FAULT_TERM_BYTES];
};

/** The settings of one direction; probabilities are per frame. Whole 64-bit words. */
struct pbox_fault_conf {
	uint64_t seed;
	uint64_t reseed; /**< counts settings of the seed: a line starts its sequences again */
	double loss;
	double burst;
	double gilbert_bad;  /**< good to bad */
	double gilbert_good; /**< bad to good */
	double gilbert_loss; /**< while bad */
	double dup;
	double reorder;
	double corrupt;
	double truncate;
	double mark;
	uint32_t burst_len;
	uint32_t reorder_window;
	uint32_t reorder_us;
	uint32_t delay_us;
	uint32_t jitter_us;
	uint32_t corrupt_from;
	uint32_t truncate_min;
	uint32_t blackhole;
	uint32_t target_first; /**< drop that many, 0: off */
	uint32_t target_terms;
	struct pbox_fault_term target[PBOX_FAULT_TERMS];
};
static_assert(sizeof(struct pbox_fault_conf) % sizeof(uint64_t) == 0, "whole words");
#define PBOX_FAULT_CONF_WORDS (sizeof(struct pbox_fault_conf) / sizeof(uint64_t))

/** A setting: `rx_` or `tx_` and the key. */
struct pbox_fault_setting {
	const char *key;
	const char *form;
	const char *help;
};
extern const struct pbox_fault_setting pbox_fault_settings[]; /**< ended by a NULL key */

void pbox_fault_conf_defaults(struct pbox_fault_conf *conf);
/** Set one from text. @return 0 or -EINVAL with a sentence in @p why. */
int pbox_fault_conf_set(
	struct pbox_fault_conf *conf, const char *key, const char *value, char *why, size_t n);
/** Set one of both directions: "seed" (of both), "rx_KEY" or "tx_KEY".
 * @return the sides that it is of, 1 << direction, or -EINVAL with a sentence in @p why. */
int pbox_fault_conf_set_side(struct pbox_fault_conf *const side[PBOX_FAULT_DIRS], const char *key,
	const char *value, char *why, size_t n);
/** Call @p set for each of "KEY=VALUE[,KEY=VALUE]...", up to the first that fails.
 * @param text  is cut into pieces
 * @return 0, -EINVAL when there is none, or what @p set returned */
int pbox_fault_conf_each(char *text,
	int (*set)(void *ctx, const char *key, const char *value, char *why, size_t n), void *ctx,
	char *why, size_t n);
/** The value of setting @p i in the form that pbox_fault_conf_set() takes. */
void pbox_fault_conf_get(const struct pbox_fault_conf *conf, unsigned i, char *text, size_t n);
/** Whether a frame may meet anything at all. */
bool pbox_fault_conf_active(const struct pbox_fault_conf *conf);

/* ---- counters ------------------------------------------------------------------------------ */

/** Of a line. Always: frames put + duplicated = frames taken + lost + burst_lost + gilbert_lost +
 * blackholed + target_dropped + overflow + waiting. */
#define PBOX_FAULT_COUNTERS(X)                                                           \
	X(lost)                                                                          \
	X(burst_lost)                                                                    \
	X(gilbert_lost)                                                                  \
	X(blackholed)                                                                    \
	X(target_dropped)                                                                \
	X(duplicated)                                                                    \
	X(reordered)                                                                     \
	X(delayed)                                                                       \
	X(corrupted)                                                                     \
	X(truncated)                                                                     \
	X(marked)                                                                        \
	X(copied)   /* so that a held or spoilt frame is not shared with anybody */      \
	X(overflow) /* dropped: no room to hold, or no buffer to copy what is to wait */ \
	X(nombuf)   /* a duplicate or damage left out for want of a buffer */

enum pbox_fault_counter {
#define PBOX_FAULT_COUNTER_SYMBOL(name) PBOX_FAULT_N_##name,
	PBOX_FAULT_COUNTERS(PBOX_FAULT_COUNTER_SYMBOL)
#undef PBOX_FAULT_COUNTER_SYMBOL
		PBOX_FAULT_COUNTER_MAX
};
extern const char *const pbox_fault_counter_names[PBOX_FAULT_COUNTER_MAX];

/* ---- a line (line.c) ----------------------------------------------------------------------- */

struct pbox_fault_line;

/** What a line needs to know of frames. All are called from within put, release and reset; those
 * that get the address of a frame may put another one in its place. */
struct pbox_fault_ops {
	uint32_t (*length)(const void *frame);
	/** @p len bytes at @p offset, in place or in @p copy; NULL: it is shorter. */
	const void *(*read)(const void *frame, uint32_t offset, uint32_t len, void *copy);
	/** Another one with the same bytes; NULL: no buffer. */
	void *(*copy)(void *ctx, void *frame);
	/** Change the byte at @p at, exclusive-or. 0 or -ENOMEM. */
	int (*corrupt)(void *ctx, void **frame, uint32_t at, uint8_t change);
	/** Keep the first @p len bytes. 0 or -ENOMEM. */
	int (*truncate)(void *ctx, void **frame, uint32_t len);
	/** Congestion experienced. 1: marked; 0: not capable of it; -ENOMEM. */
	int (*mark)(void *ctx, void **frame);
	/** It will wait: nobody else may change it meanwhile. 0 or -ENOMEM, then it is dropped. */
	int (*keep)(void *ctx, void **frame);
	void (*drop)(void *ctx, void *frame);
};

struct pbox_fault_line_conf {
	const struct pbox_fault_ops *ops;
	void *ctx; /**< for them */
	enum pbox_fault_dir dir;
	uint16_t number;       /**< among the lines of the direction */
	uint32_t limit;        /**< frames that it holds back or delays, each, at most */
	uint64_t ticks_per_us; /**< of the times that it is given */
	uint32_t *
		target_left; /**< shared by the lines of a direction, set by the thread that sets targets */
};

/** Bytes of a line that holds so many. */
size_t pbox_fault_line_size(uint32_t limit);
/** Make a line, without faults, in @p memory (zeroed, aligned to 8), which stays its caller's. */
struct pbox_fault_line *pbox_fault_line_init(void *memory, const struct pbox_fault_line_conf *conf);
/** New settings; a new @c reseed starts the sequences again. */
void pbox_fault_line_set(struct pbox_fault_line *line, const struct pbox_fault_conf *conf);
/** Drop all that waits, and start the sequences again. Counters stay. */
void pbox_fault_line_reset(struct pbox_fault_line *line);

/** No fault is on and nothing waits: frames may pass it by. */
bool pbox_fault_line_passive(const struct pbox_fault_line *line);
/** Free places in the ready ring; a frame takes up to two, and frees those it was held for. */
uint32_t pbox_fault_line_room(const struct pbox_fault_line *line);
/** Give it a frame; there must be room for two. What that lets go takes places of the ready ring
 * too, as long as @p reserve stay free. */
void pbox_fault_line_put(struct pbox_fault_line *line, void *frame, uint64_t now, uint32_t reserve);
/** Let go what has waited long enough, as far as the ready ring goes. */
void pbox_fault_line_release(struct pbox_fault_line *line, uint64_t now);
/** What is ready: @p frames gets the address of as many as the return value says; 0: none.
 * Call again after pbox_fault_line_taken(): the ring is seen in up to two pieces. */
uint32_t pbox_fault_line_ready(struct pbox_fault_line *line, void ***frames);
/** The first @p n of them are now their taker's. */
void pbox_fault_line_taken(struct pbox_fault_line *line, uint32_t n);

/** Frames in it, as of the last release, take or reset; any thread. */
uint32_t pbox_fault_line_waiting(const struct pbox_fault_line *line);
uint64_t pbox_fault_line_count(const struct pbox_fault_line *line, enum pbox_fault_counter c);
/** For the operations on frames: they count what they copied. */
void pbox_fault_line_add(struct pbox_fault_line *line, enum pbox_fault_counter c, uint64_t n);

#endif /* PBOX_FAULT_H */
