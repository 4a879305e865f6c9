/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PARAMS_H
#define PARAMS_H

/* The parameters of telemetry's commands, which come from outside: pure functions, no DPDK. */

#include <stdbool.h>

/* "12" and nothing else, at most max. */
bool params_number(const char *text, unsigned max, unsigned *out);
/*
 * Take parameters apart at commas: at most n words, of which each has a place of PARAM_SIZE bytes; the last
 * one takes the rest, commas included. How many there are, or -1 when one is too long.
 */
#define PARAM_SIZE 128
int params_split(const char *params, char word[][PARAM_SIZE], unsigned n);

#endif /* PARAMS_H */
