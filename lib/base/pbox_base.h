/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_BASE_H
#define PBOX_BASE_H

/**
 * @file
 * What every library of the box needs: errors with a text, a log sink, seeded random numbers,
 * overflow-checked sizes. No clock: time is always an argument.
 */

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Assertions stay on in release builds: a broken invariant stops the process, it never corrupts
 * a sum. Not for input from outside. */
#define PBOX_ASSERT(cond) ((cond) ? (void)0 : pbox_assert_failed(#cond, __FILE__, __LINE__))
/** One that walks an array: in tests alone (meson.build says in which). */
#ifdef PBOX_WALKS
#define PBOX_ASSERT_WALK(cond) PBOX_ASSERT(cond)
#else
#define PBOX_ASSERT_WALK(cond) ((void)sizeof(cond))
#endif
void pbox_assert_failed(const char *cond, const char *file, int line) __attribute__((noreturn));

#define PBOX_CACHE_LINE 64

/** Up to the next cache line; @p bytes at most SIZE_MAX - 63. */
static inline size_t
pbox_pad_line(size_t bytes)
{
	return (bytes + PBOX_CACHE_LINE - 1) & ~(size_t)(PBOX_CACHE_LINE - 1);
}

/** An error for a person: what is wrong, with what, and the next step. */
struct pbox_error {
	int code; /**< errno value or a protocol code */
	char text[384];
};

/** Fill @p err (may be NULL) and return -code, so that callers can `return pbox_fail(...)`. */
int pbox_fail(struct pbox_error *err, int code, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

enum pbox_log_level { PBOX_LOG_ERROR, PBOX_LOG_WARN, PBOX_LOG_INFO, PBOX_LOG_DEBUG };

/** Where lines go; libraries never print. Set once before threads start; NULL: nowhere. */
typedef void (*pbox_log_sink)(enum pbox_log_level level, const char *line, void *ctx);
void pbox_log_to(pbox_log_sink sink, void *ctx, enum pbox_log_level max);
/** What is logged from now on. Any thread. */
void pbox_log_level(enum pbox_log_level max);
enum pbox_log_level pbox_log_level_get(void);
/** The level of another logging system follows this one: @p follow is called now, and at each change, by the thread
 * that makes it. NULL: no more. Set once, as the sink. */
void pbox_log_follow(void (*follow)(enum pbox_log_level max));
/** "error", "warn", "info", "debug", as in the configuration; NULL after the last. */
const char *pbox_log_level_name(unsigned level);
/** By its name; warning is warn. False: there is none of that name. */
bool pbox_log_level_named(const char *name, enum pbox_log_level *level);
/** Of a text that others chose: control characters, those of 8 bits (U+0080 to U+009F) as well, and bytes that
 * are no UTF-8 become '?'. */
void pbox_mask(char *text);
/** Control path only: any thread, never a data core. */
void pbox_log(enum pbox_log_level level, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/** xoshiro256** (Blackman, Vigna 2018), seeded through splitmix64. Not for secrets. */
struct pbox_random {
	uint64_t s[4];
};
void pbox_random_seed(struct pbox_random *r, uint64_t seed);
uint64_t pbox_random_u64(struct pbox_random *r);
/** Uniform in [0, n), n > 0, without modulo bias. */
uint64_t pbox_random_below(struct pbox_random *r, uint64_t n);
/** Uniform in [0, 1). */
double pbox_random_unit(struct pbox_random *r);

/** From now on freed blocks of up to 1 MiB stay with the process. A page that is given back makes the kernel
 * interrupt every CPU that runs one of its threads, data cores too. Of a program with data cores: once, before
 * threads start. */
void pbox_keep_heap(void);

/** a * b + c without overflow; false when it does not fit. */
static inline bool
pbox_size_madd(size_t a, size_t b, size_t c, size_t *out)
{
	size_t m;

	return !__builtin_mul_overflow(a, b, &m) && !__builtin_add_overflow(m, c, out);
}

/** (a - b) in serial-number arithmetic (RFC 1982): rounds wrap. */
static inline int32_t
pbox_serial_diff(uint32_t a, uint32_t b)
{
	return (int32_t)(a - b);
}

#endif /* PBOX_BASE_H */
