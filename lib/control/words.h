/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef WORDS_H
#define WORDS_H

/* The parameters of telemetry's commands, which come from outside: pure functions, no DPDK. */

#include <stdbool.h>

/* "12" and nothing else, at most max. */
bool tell_number(const char *text, unsigned max, unsigned *out);
/*
 * Take parameters apart at commas: at most n words, of which each has a place of TELL_WORD bytes; the last
 * one takes the rest, commas included. How many there are, or -1 when one is too long.
 */
#define TELL_WORD 128
int tell_words(const char *params, char word[][TELL_WORD], unsigned n);

#endif /* WORDS_H */
