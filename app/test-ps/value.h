/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef TESTPS_VALUE_H
#define TESTPS_VALUE_H

/** @file The value after "set NAME" of the prompt. */

#include <cmdline_parse_string.h>

/** Any word: run_set() says best what is wrong with it. Tab and ? show what it may be, and complete it to one of
 * the choices, if there are any. */
struct value_token {
	struct cmdline_token_string string; /**< with value_ops; first */
	const char *what;                   /**< shown in brackets */
	const char *choices;                /**< "one#another", or NULL */
};

extern struct cmdline_token_ops value_ops;

#endif /* TESTPS_VALUE_H */
