/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef CONF_WRITE_H
#define CONF_WRITE_H

#include <stdio.h>

#include "pbox_conf.h"

/* The word for the value in a synopsis: "SIZE", "" for a bool. */
const char *conf_argument(const struct pbox_conf_option *o);

/* Write text and a newline, broken at spaces before column `width`; `used` columns of the first
 * line are taken (by what looks like the indent), the others begin with `indent`. */
void conf_wrap(const char *text, const char *indent, size_t used, size_t width, FILE *to);

#endif /* CONF_WRITE_H */
