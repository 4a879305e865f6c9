/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* What "set" of the prompt changes. */

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run.h"
#include "testps.h"

static int
set_number(const char *what, const char *text, unsigned long min, unsigned long max, unsigned *out,
	struct pbox_error *err)
{
	char *end;
	unsigned long v = strtoul(text, &end, 10);

	if (min == 0 && strcmp(text, "auto") == 0)
		v = 0;
	else if (end == text || *end != '\0' || v < min || v > max)
		return pbox_fail(err, EINVAL, "%s %s: a number from %lu to %lu%s", what, text,
			min == 0 ? 1 : min, max, min == 0 ? ", or auto" : "");
	*out = (unsigned)v;
	return 0;
}

static int
set_model(struct testps_load *l, const char *text, struct pbox_error *err)
{
	struct model m;
	int ret = model_read(&m, text, err);

	if (ret != 0)
		return ret;
	model_free(&m);
	snprintf(l->model, sizeof(l->model), "%s", text);
	return 0;
}

static int
set_fragment(struct testps *t, struct testps_load *l, const char *text, struct pbox_error *err)
{
	unsigned most = (t->port[0].mtu - PBOX_MTU_OVERHEAD) & ~63u;
	int ret = set_number("fragment", text, 0, most, &l->fragment, err);

	if (ret == 0 && l->fragment % 64 != 0)
		ret = pbox_fail(
			err, EINVAL, "fragment %s: a multiple of 64, at most %u", text, most);
	return ret;
}

static int
set_rate(struct testps_load *l, const char *text, struct pbox_error *err)
{
	char *end;
	unsigned long long v = strtoull(text, &end, 10);

	if (strcmp(text, "none") == 0)
		v = 0;
	else if (!isdigit((unsigned char)*text) || *end != '\0' || v < 1 || v > TESTPS_RATE_MAX)
		return pbox_fail(err, EINVAL, "rate %s: contributions a second, or none", text);
	l->rate = v;
	return 0;
}

/* A straggler is one of the workers. */
static int
set_workers(struct testps_load *l, const char *text, struct pbox_error *err)
{
	int ret = set_number("workers", text, 1, TESTPS_WORKERS_MAX, &l->workers, err);

	if (ret == 0 && l->straggler >= (int)l->workers)
		ret = pbox_fail(err, EINVAL,
			"workers %s: the straggler is worker %d: set straggler none first", text,
			l->straggler);
	return ret;
}

static int
set_straggler(struct testps_load *l, const char *text, struct pbox_error *err)
{
	int ret = testps_straggler(l, text, err);

	return ret == 0 ? testps_straggler_check(l, err) : ret;
}

int
run_set(struct testps *t, struct testps_load *l, const char *what, const char *text,
	struct pbox_error *err)
{
	int ret;

	if (strcmp(what, "workers") == 0)
		return set_workers(l, text, err);
	if (strcmp(what, "window") == 0)
		return set_number(what, text, 0, 4096, &l->window, err);
	if (strcmp(what, "fragment") == 0)
		return set_fragment(t, l, text, err);
	if (strcmp(what, "model") == 0)
		return set_model(l, text, err);
	if (strcmp(what, "dtype") == 0) {
		ret = testps_dtype(l, text, err);
		return ret == 0 ? testps_blocks_check(l, err) : ret;
	}
	if (strcmp(what, "optimiser") == 0 || strcmp(what, "optimizer") == 0) {
		ret = testps_optimiser(l, text, err);
		return ret == 0 ? testps_blocks_check(l, err) : ret;
	}
	if (strcmp(what, "loss") == 0)
		ret = testps_percent(&l->loss, text, err);
	else if (strcmp(what, "straggler") == 0)
		ret = set_straggler(l, text, err);
	else
		ret = set_rate(l, text, err);
	return ret == 0 ? 1 : ret;
}
