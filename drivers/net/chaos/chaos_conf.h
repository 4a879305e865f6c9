/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef CHAOS_CONF_H
#define CHAOS_CONF_H

/**
 * @file
 * Settings as text: pure functions, no DPDK.
 */

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum chaos_dir { CHAOS_RX, CHAOS_TX, CHAOS_DIRS };

#define CHAOS_TERMS      8 /**< of a target: all must match */
#define CHAOS_TERM_BYTES 16
#define CHAOS_WINDOW_MAX 1024 /**< packets that reordering lets pass */

struct chaos_term {
	uint32_t offset;
	uint32_t len;
	uint8_t value[CHAOS_TERM_BYTES];
	uint8_t mask[CHAOS_TERM_BYTES];
};

/** The settings of one direction; probabilities are per packet. Whole 64-bit words. */
struct chaos_conf {
	uint64_t seed;
	uint64_t reseed; /**< counts settings of the seed: a queue starts its sequences again */
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
	struct chaos_term target[CHAOS_TERMS];
};
static_assert(sizeof(struct chaos_conf) % sizeof(uint64_t) == 0, "whole words");
#define CHAOS_CONF_WORDS (sizeof(struct chaos_conf) / sizeof(uint64_t))

/** A setting: `rx_` or `tx_` and the key. */
struct chaos_setting {
	const char *key;
	const char *form;
	const char *help;
};
extern const struct chaos_setting chaos_settings[];

void chaos_conf_defaults(struct chaos_conf *conf);
/** Set one from text. @return 0 or -EINVAL with a sentence in @p why. */
int chaos_conf_set(
	struct chaos_conf *conf, const char *key, const char *value, char *why, size_t n);
/** Set one of a port: "seed" (of both sides), "rx_KEY" or "tx_KEY".
 * @return the sides that it is of, 1 << direction, or -EINVAL with a sentence in @p why. */
int chaos_conf_set_port(struct chaos_conf *const side[CHAOS_DIRS], const char *key,
	const char *value, char *why, size_t n);
/** Call @p set for each of "KEY=VALUE[,KEY=VALUE]...", up to the first that fails.
 * @param text  is cut into pieces
 * @return 0, -EINVAL when there is none, or what @p set returned */
int chaos_conf_each(char *text,
	int (*set)(void *ctx, const char *key, const char *value, char *why, size_t n), void *ctx,
	char *why, size_t n);
/** The value of setting @p i in the form that chaos_conf_set() takes. */
void chaos_conf_get(const struct chaos_conf *conf, unsigned i, char *text, size_t n);
/** Whether a packet may meet anything at all. */
bool chaos_conf_active(const struct chaos_conf *conf);

#endif /* CHAOS_CONF_H */
