/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_STATS_H
#define PBOX_STATS_H

/**
 * @file
 * Counters and gauges that have a name, a unit and a help text; histograms for percentiles.
 *
 * A block is a table of definitions and an array of values, index by index. One core owns the
 * values and writes them with pbox_stat_add(); any thread may read them at any time. A registry
 * lists the blocks so that telemetry, the exporter and --stats-interval walk all of them.
 *
 *     #define RX(X) \
 *             X(RX_FRAMES, COUNTER, rx_frames, "frames", "frames received") \
 *             X(DROP_ROUND_STALE, ...)
 *     enum { RX(PBOX_STAT_SYMBOL) RX_STATS };
 *     static const struct pbox_stat_def rx_defs[RX_STATS] = {RX(PBOX_STAT_DEF)};
 *     uint64_t *v = core memory, PBOX_CACHE_LINE aligned, RX_STATS values, zeroed;
 *     pbox_stats_register(stats, "core", "core=3", rx_defs, RX_STATS, v, &err);
 *     pbox_stat_add(&v[RX_FRAMES], n);            (on core 3)
 */

#include <stdio.h>

#include <pbox_base.h>

/** Longest prefix or name (without the NUL), and longest label text. */
#define PBOX_STATS_NAME_MAX   47
#define PBOX_STATS_LABELS_MAX 127

enum pbox_stat_kind {
	PBOX_STAT_COUNTER, /**< only grows: rates make sense */
	PBOX_STAT_GAUGE,   /**< a level: goes up and down */
};

/** What a value means. Lives as long as the blocks that use it: normally static const. */
struct pbox_stat_def {
	const char *name; /**< lower_snake, unique in its block: `rx_frames`, `drop_round_stale` */
	const char *unit; /**< plural noun: "frames", "bytes", "ns" */
	const char *help; /**< one line, no full stop */
	enum pbox_stat_kind kind;
};

/** A list of values, X(symbol, COUNTER or GAUGE, name, unit, help), as enumeration and as definitions. */
#define PBOX_STAT_SYMBOL(symbol, ...) symbol,
#define PBOX_STAT_DEF(symbol, kind, name, unit, help) \
	[symbol] = {#name, unit, help, PBOX_STAT_##kind},

/** All definitions of one kind of block: a program lists its tables, and all
 * that shows counters goes by the list. */
struct pbox_stats_table {
	const char *block; /**< the prefix that it is registered with */
	const char *help;  /**< of what: one line, no full stop */
	const struct pbox_stat_def *defs;
	unsigned n;
};

/* ---- values: the owner writes, anyone reads; no locked instruction, no fence ---- */

/** Add to a value. Only the core that owns the block. */
static inline void
pbox_stat_add(uint64_t *value, uint64_t n)
{
#ifdef __x86_64__
	/* compilers make three instructions of an atomic load and an atomic store */
	__asm__("addq %1, %0" : "+m"(*value) : "er"(n) : "cc");
#else
	__atomic_store_n(value, __atomic_load_n(value, __ATOMIC_RELAXED) + n, __ATOMIC_RELAXED);
#endif
}

/** Set a gauge. Only the core that owns the block. */
static inline void
pbox_stat_set(uint64_t *value, uint64_t x)
{
	__atomic_store_n(value, x, __ATOMIC_RELAXED);
}

/** Read a value. Any thread. Values of one block are read one by one: sums over several may be
 * off by what the owner counts meanwhile. */
static inline uint64_t
pbox_stat_get(const uint64_t *value)
{
	return __atomic_load_n(value, __ATOMIC_RELAXED);
}

/* ---- log-linear histograms (the idea of HdrHistogram) ---- */

/** 32 steps per power of two: a reported value is at most 1/32 (3.2 %) above the real one. */
#define PBOX_HIST_SUB_BITS 5
/** Values of 2^40 and above (18 minutes in ns) share the last bucket; max stays exact. */
#define PBOX_HIST_BITS    40
#define PBOX_HIST_BUCKETS ((PBOX_HIST_BITS - PBOX_HIST_SUB_BITS + 1) << PBOX_HIST_SUB_BITS)

/** 9 KiB. Zeroed memory is an empty histogram. */
struct pbox_hist {
	uint64_t sum;
	uint64_t max;
	uint64_t bucket[PBOX_HIST_BUCKETS];
} __attribute__((aligned(PBOX_CACHE_LINE)));

/** Index of the bucket of a value. */
static inline unsigned
pbox_hist_index(uint64_t v)
{
	unsigned e, index;

	if (v < 1u << PBOX_HIST_SUB_BITS)
		return (unsigned)v;
	e = 63 - (unsigned)__builtin_clzll(v) - PBOX_HIST_SUB_BITS;
	/* v >> e is 32 to 63: its top bit carries into the group number */
	index = (e << PBOX_HIST_SUB_BITS) + (unsigned)(v >> e);
	return index < PBOX_HIST_BUCKETS ? index : PBOX_HIST_BUCKETS - 1;
}

/** Count a value. Only the core that owns the histogram; a few cycles, one or two cache lines. */
static inline void
pbox_hist_add(struct pbox_hist *h, uint64_t v)
{
	pbox_stat_add(&h->bucket[pbox_hist_index(v)], 1);
	pbox_stat_add(&h->sum, v);
	if (v > h->max) /* only the owner writes it */
		pbox_stat_set(&h->max, v);
}

/** Largest value that falls into bucket @p index (of the last one: UINT64_MAX). */
uint64_t pbox_hist_upper(unsigned index);

/** Add all of @p from to @p to. @p from may be live; @p to belongs to the caller. To query a live
 * histogram, merge it into an empty one first. Control path. */
void pbox_hist_merge(struct pbox_hist *to, const struct pbox_hist *from);

/** Number of values counted. */
uint64_t pbox_hist_count(const struct pbox_hist *h);

/** The value that @p percent (0 to 100) of the counted values do not exceed: never below the real
 * one, at most 1/32 above it, never above max. 0 for an empty histogram. */
uint64_t pbox_hist_percentile(const struct pbox_hist *h, double percent);

/* ---- registry ---- */

/** The registry. A mutex inside: every function below may be called from any control thread, none
 * from a data core. */
struct pbox_stats;

/** A block as a walker sees it. */
struct pbox_stats_block {
	char prefix[PBOX_STATS_NAME_MAX + 1];   /**< the kind of thing: "core", "port", "job" */
	char labels[PBOX_STATS_LABELS_MAX + 1]; /**< which one: "core=3,port=0", or "" */
	const struct pbox_stat_def *defs;
	unsigned n;
	const uint64_t *values;
};

/** A registry for @p capacity blocks; all memory is taken here. NULL without memory. */
struct pbox_stats *pbox_stats_new(unsigned capacity);
/** NULL is allowed. The blocks' memory belongs to those who registered it. */
void pbox_stats_free(struct pbox_stats *stats);

/**
 * Make a block visible.
 *
 * @param prefix, labels  copied. Labels are `key=value,key=value`, keys lower_snake, values
 *   printable ASCII without , = " and \; prefix and labels together are unique.
 * @param defs, values  stay the caller's and must live as long as @p stats.
 * @return  0; -ENOSPC: no room, -EEXIST: prefix and labels are taken, -EINVAL: a malformed or
 *   repeated name.
 */
int pbox_stats_register(struct pbox_stats *stats, const char *prefix, const char *labels,
	const struct pbox_stat_def *defs, unsigned n, const uint64_t *values,
	struct pbox_error *err);
/** Call @p fn for each block, in order of registration, until it returns non-zero; returns
 * that. @p fn runs under the registry's lock: it must not call the registry. */
int pbox_stats_walk(struct pbox_stats *stats,
	int (*fn)(const struct pbox_stats_block *block, void *ctx), void *ctx);

/** Sum of value @p name over all blocks of @p prefix; 0 if there is none. */
uint64_t pbox_stats_total(struct pbox_stats *stats, const char *prefix, const char *name);
/**
 * Write the definitions of @p n tables as one JSON document, one line each:
 * `[{"block":"core","name":"rx_packets","unit":"packets","kind":"counter","help":"..."},...]`.
 */
void pbox_stats_defs_json(const struct pbox_stats_table *table, unsigned n, FILE *to);
/** "counter" or "gauge". */
const char *pbox_stat_kind_name(enum pbox_stat_kind kind);

#endif /* PBOX_STATS_H */
