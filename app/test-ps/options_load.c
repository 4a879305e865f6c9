/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pbox_pairs.h>

#include "options.h"

#define ARGS_MAX     256
#define DURATION_LEN 48

int
testps_box(const char *text, uint32_t *ip, uint16_t *port, struct pbox_error *err)
{
	char host[64];
	const char *colon = strchr(text, ':');
	size_t n = colon != NULL ? (size_t)(colon - text) : strlen(text);
	unsigned long number = PBOX_CONTROL_PORT;
	char *end = NULL;

	if (n >= sizeof(host))
		n = sizeof(host) - 1;
	memcpy(host, text, n);
	host[n] = '\0';
	if (colon != NULL)
		number = strtoul(colon + 1, &end, 10);
	if (inet_pton(AF_INET, host, ip) != 1 ||
		(colon != NULL && (end == colon + 1 || *end != '\0')) || number < 1 ||
		number > UINT16_MAX)
		return pbox_fail(err, EINVAL,
			"--box %s: an IPv4 address, or one with a port: --box 10.0.0.1 or --box 10.0.0.1:7269",
			text);
	*port = (uint16_t)number;
	return 0;
}

int
testps_box_at(const char *text, unsigned i, uint32_t *ip, uint16_t *port, struct pbox_error *err)
{
	char one[64];

	for (; i > 0 && *text != '\0'; i--) {
		text += strcspn(text, ",");
		text += *text == ',';
	}
	if (*text == '\0')
		return 0;
	snprintf(one, sizeof(one), "%.*s", (int)strcspn(text, ","), text);
	return testps_box(one, ip, port, err) == 0 ? 1 : -EINVAL;
}

#define TESTPS_LIST(symbol, number, name, ...) ", " #name

static int
load_format_of(const char *name, size_t n)
{
	int f = pbox_number(pbox_format_name, name, n);

	return f >= 0 && pbox_format_wide((unsigned)f) > 0 ? f : -1;
}

int
testps_dtype(struct testps_load *l, const char *text, struct pbox_error *err)
{
	size_t n = strcspn(text, ",");
	int push = load_format_of(text, n);
	int pull = text[n] == ',' ? load_format_of(text + n + 1, strlen(text + n + 1)) : push;

	if (push < 0 || pull < 0)
		return pbox_fail(err, EINVAL,
			"dtype %s: one of fp32" PBOX_FORMATS_16(TESTPS_LIST) PBOX_FORMATS_BLOCK(
				TESTPS_LIST) ", or two of them for push and pull: bf16,fp32",
			text);
	if (push != pull &&
		(pbox_format_is_block((unsigned)push) || pbox_format_is_block((unsigned)pull)))
		return pbox_fail(
			err, EINVAL, "dtype %s: formats of blocks go both ways: give one", text);
	l->push = (uint8_t)push;
	l->pull = (uint8_t)pull;
	return 0;
}

int
testps_blocks_check(const struct testps_load *l, struct pbox_error *err)
{
	if (!pbox_format_is_block(l->push) || l->optimiser == PBOX_OPT_NONE)
		return 0;
	return pbox_fail(err, EINVAL,
		"dtype %s with optimiser %s: tables in it only sum: leave one of them out",
		pbox_format_name(l->push), pbox_optimiser_name(l->optimiser));
}

int
testps_percent(double *share, const char *text, struct pbox_error *err)
{
	char *end;
	double v = strtod(text, &end);

	if (end != text && *end == '%')
		end++;
	if (end == text || *end != '\0' || !(v >= 0 && v <= 90))
		return pbox_fail(err, EINVAL, "loss %s: per cent of the frames, 0 to 90", text);
	*share = v / 100;
	return 0;
}

/* "250us", "20ms", "1s", at most an hour; -1 */
static int64_t
microseconds(const char *text)
{
	char *end;
	double v = strtod(text, &end);

	if (end == text || !(v >= 0))
		return -1;
	if (strcmp(end, "ms") == 0)
		v *= 1e3;
	else if (strcmp(end, "s") == 0)
		v *= 1e6;
	else if (strcmp(end, "us") != 0 && !(v == 0 && *end == '\0'))
		return -1;
	return v <= 3600e6 ? (int64_t)v : -1;
}

int
testps_straggler(struct testps_load *l, const char *text, struct pbox_error *err)
{
	char *end;
	unsigned long worker = strtoul(text, &end, 10);
	int64_t us;

	if (strcmp(text, "none") == 0) {
		l->straggler = -1;
		l->straggler_us = 0;
		return 0;
	}
	us = end != text && *end == ':' ? microseconds(end + 1) : -1;
	if (us < 0 || worker >= TESTPS_WORKERS_MAX)
		return pbox_fail(err, EINVAL,
			"straggler %s: a worker and how late it is in every round: 3:20ms, or none",
			text);
	l->straggler = (int)worker;
	l->straggler_us = (uint32_t)us;
	return 0;
}

int
testps_straggler_check(const struct testps_load *l, struct pbox_error *err)
{
	if (l->straggler < (int)l->workers)
		return 0;
	return pbox_fail(err, EINVAL, "straggler %d: there are %u workers, numbered from 0",
		l->straggler, l->workers);
}

int
testps_optimiser(struct testps_load *l, const char *text, struct pbox_error *err)
{
	int k = pbox_number(pbox_optimiser_name, text, strlen(text));

	if (k < 0)
		return pbox_fail(err, EINVAL,
			"optimiser %s: one of none" PBOX_OPTIMISERS(TESTPS_LIST), text);
	l->optimiser = (uint8_t)k;
	return 0;
}

int
testps_numbers(const char *text, unsigned *out, unsigned max, struct pbox_error *err)
{
	unsigned n = 0;

	for (const char *p = text; *p != '\0';) {
		char *end;
		unsigned long v = strtoul(p, &end, 10);

		if (end == p || v < 1 || v > TESTPS_WORKERS_MAX || n == max ||
			(*end != ',' && *end != '\0'))
			return pbox_fail(err, EINVAL,
				"sweep-workers %s: at most %u numbers from 1 to %d, apart by commas: 1,8,64",
				text, max, TESTPS_WORKERS_MAX);
		out[n++] = (unsigned)v;
		p = *end == ',' ? end + 1 : end;
	}
	return (int)n;
}

static int
compute_of(struct testps_load *l, const char *text, struct pbox_error *err)
{
	int64_t us =
		strcmp(text, "zero") == 0 || strcmp(text, "profile") == 0 ? 0 : microseconds(text);

	if (us < 0)
		return pbox_fail(err, EINVAL,
			"compute %s: zero, profile, or the time of a round such as 20ms", text);
	l->profile = strcmp(text, "profile") == 0;
	l->compute_us = (uint64_t)us;
	return 0;
}

int
testps_load_of(struct testps_load *l, const struct testps_options *o, struct pbox_error *err)
{
	int ret;

	*l = (struct testps_load){.workers = o->workers,
		.fragment = o->fragment,
		.window = o->window,
		.optimiser = (uint8_t)o->optimiser,
		.rate = o->rate,
		.straggler = -1};
	if (o->discipline == PBOX_DISCIPLINE_CLOCK)
		l->optimiser = PBOX_OPT_ADD;
	snprintf(l->model, sizeof(l->model), "%s", o->model);
	if (o->fragment % 64 != 0)
		return pbox_fail(err, EINVAL, "--fragment %u: a multiple of 64", o->fragment);
	ret = testps_dtype(l, o->dtype, err);
	if (ret == 0)
		ret = testps_blocks_check(l, err);
	if (ret == 0)
		ret = testps_percent(&l->loss, o->loss, err);
	if (ret == 0)
		ret = testps_straggler(l, o->straggler, err);
	if (ret == 0)
		ret = testps_straggler_check(l, err);
	if (ret == 0)
		ret = compute_of(l, o->compute, err);
	return ret;
}

/* ---- --worker library -------------------------------------------------------------------------- */

/* What the fast path has not; NULL: nothing of it is asked for. */
static const char *
asks_library(const struct testps_options *o)
{
	return o->slots != 0                             ? "--slots"
	       : o->policy != PBOX_POLICY_WAIT           ? "--policy"
	       : o->discipline != PBOX_DISCIPLINE_ROUNDS ? "--discipline"
	       : strcmp(o->bound, "none") != 0           ? "--bound"
	       : strcmp(o->slot_time, "0") != 0          ? "--slot-time"
	       : o->wrong_round != 0                     ? "--wrong-round"
	       : strchr(o->box, ',') != NULL             ? "several boxes"
							 : NULL;
}

/* What only the fast path has. */
static const char *
asks_fast(const struct testps_options *o)
{
	return o->reflected                      ? "--reflected"
	       : o->interactive || o->auto_start ? "--interactive"
	       : o->cmdline_file[0] != '\0'      ? "--cmdline-file"
	       : o->search != TESTPS_SEARCH_NONE ? "--search"
	       : o->sweep_workers[0] != '\0'     ? "--sweep-workers"
	       : o->rate != 0                    ? "--rate"
	       : strcmp(o->compute, "zero") != 0 ? "--compute"
	       : strcmp(o->dtype, "fp32") != 0   ? "--dtype"
						 : NULL;
}

static int
slot_times(struct testps_options *o, struct pbox_error *err)
{
	char copy[sizeof(o->slot_time)], *at = copy;

	o->n_slot_times = 0;
	snprintf(copy, sizeof(copy), "%s", o->slot_time);
	for (const char *word; (word = strsep(&at, ",")) != NULL;) {
		int64_t us = microseconds(word);

		if (us < 0 || o->n_slot_times == TESTPS_SLOT_TIMES)
			return pbox_fail(err, EINVAL,
				"--slot-time %s: at most %d times apart by commas, such as 1ms or 1ms,4ms: each is that of a slot",
				o->slot_time, TESTPS_SLOT_TIMES);
		o->slot_time_us[o->n_slot_times++] = (uint64_t)us;
	}
	return 0;
}

static int
bound_of(struct testps_options *o, struct pbox_error *err)
{
	char *end;
	unsigned long v = strtoul(o->bound, &end, 10);

	o->bounded = strcmp(o->bound, "none") != 0;
	o->bound_steps = o->bounded ? (uint32_t)v : 0;
	if (o->bounded && (end == o->bound || *end != '\0' || o->bound[0] == '-' || v >= 1u << 30))
		return pbox_fail(err, EINVAL,
			"--bound %s: pushes that another worker may be behind, such as 0 or 4, or none",
			o->bound);
	if (o->bounded && o->discipline != PBOX_DISCIPLINE_CLOCK)
		return pbox_fail(err, EINVAL,
			"--bound %s: workers in rounds wait for each other anyway: add --discipline clock, or leave it out",
			o->bound);
	return 0;
}

/* The table of what goes together is that of box and library. */
static int
pairs(const struct testps_options *o, struct pbox_error *err)
{
	bool clock = o->discipline == PBOX_DISCIPLINE_CLOCK;
	bool optimises = clock || o->optimiser != PBOX_OPT_NONE;
	uint32_t uses = pbox_uses_of_policy((unsigned)o->policy) |
			pbox_uses_of_table(optimises, (unsigned)o->discipline, false, PBOX_FMT_FP32,
				PBOX_FMT_FP32);
	const struct pbox_pair *p;

	uses |= o->slots != 0 ? PBOX_USES_SLOTS : 0;
	uses |= strchr(o->box, ',') != NULL ? PBOX_USES_BOXES : 0;
	p = pbox_pair_in(uses);
	if (p != NULL)
		return pbox_fail(err, EINVAL, PBOX_PAIR_FMT, PBOX_PAIR_ARGS(p));
	if (clock && o->optimiser != PBOX_OPT_NONE && o->optimiser != PBOX_OPT_ADD)
		return pbox_fail(err, EINVAL,
			"--optimiser %s with --discipline clock: the box adds what workers push: leave --optimiser out",
			pbox_optimiser_name((unsigned)o->optimiser));
	if (o->policy == PBOX_POLICY_REASSIGN && (o->slots == 0 || !optimises))
		return pbox_fail(err, EINVAL,
			"--policy reassign shares out slots, with an optimiser on the box: add %s",
			o->slots == 0 ? "--slots, such as four times the workers"
				      : "--optimiser, such as sgd");
	if (o->slots != 0 && o->slots < o->workers)
		return pbox_fail(err, EINVAL,
			"--slots %u with %u workers: %u to %d, or none of them", o->slots,
			o->workers, o->workers, PBOX_MAX_SLOTS);
	return 0;
}

static int
library_options(struct testps_options *o, struct pbox_error *err)
{
	const char *library = asks_library(o), *fast = asks_fast(o);
	int ret;

	if (o->worker == TESTPS_FAST && library != NULL)
		return pbox_fail(err, EINVAL,
			"%s: the fast path of rounds does not have that: add --worker library",
			library);
	if (o->worker == TESTPS_FAST)
		return 0;
	if (fast != NULL)
		return pbox_fail(err, EINVAL,
			"%s with --worker library: only the fast path of rounds has that: leave one of them out",
			fast);
	ret = slot_times(o, err);
	if (ret == 0)
		ret = bound_of(o, err);
	return ret == 0 ? pairs(o, err) : ret;
}

/* What contradicts itself. */
static int
check(struct testps_options *o, struct pbox_error *err)
{
	unsigned numbers[16];
	uint32_t ip;
	uint16_t port;

	if (o->help != TESTPS_HELP_NONE || o->version)
		return 0;
	if (o->box[0] == '\0' && !o->loopback)
		return pbox_fail(err, EINVAL,
			"no box: give its address with --box, or make one here with --loopback");
	for (unsigned i = 0, more = o->box[0] != '\0'; more; i++) {
		int ret = testps_box_at(o->box, i, &ip, &port, err);

		if (ret < 0)
			return ret;
		more = ret > 0;
		if (more && i == TESTPS_BOXES_MAX)
			return pbox_fail(
				err, EINVAL, "--box: more than %d boxes", TESTPS_BOXES_MAX);
	}
	if (o->address.len == 0 && !o->loopback)
		return pbox_fail(err, EINVAL,
			"no address of our own: --address ADDRESS/LENGTH, such as 10.0.0.2/24; the kernel's is not used");
	if (o->rxq != o->txq)
		return pbox_fail(err, EINVAL,
			"--rxq %u and --txq %u: queues come in pairs: give the same number", o->rxq,
			o->txq);
	if (o->rxq != 0 && o->rxq != o->nb_cores)
		return pbox_fail(err, EINVAL,
			"--rxq %u with --nb-cores %u: each lcore has a queue pair of each port: give the same number",
			o->rxq, o->nb_cores);
	if (o->loopback && o->nb_cores > 1 && !o->reflected)
		return pbox_fail(err, EINVAL,
			"the box of --loopback has one queue pair: --nb-cores %u needs a real port",
			o->nb_cores);
	if (o->reflected && o->optimiser != PBOX_OPT_NONE)
		return pbox_fail(err, EINVAL,
			"--reflected returns gradients: --optimiser %s needs a box",
			pbox_optimiser_name((unsigned)o->optimiser));
	if (o->reflected && o->auth)
		return pbox_fail(err, EINVAL, "--reflected has no keys: --auth needs a box");
	if (o->hosts && o->address.len > 22 && o->workers > (1u << (32 - o->address.len)) - 2)
		return pbox_fail(err, EINVAL,
			"--hosts: the network of --address has no room for %u workers: use a shorter prefix, such as /16",
			o->workers);
	if (testps_numbers(o->sweep_workers, numbers, 16, err) < 0)
		return -EINVAL;
	return library_options(o, err);
}

/* pbox-perf's --time is --duration here, and a number alone means seconds in both; its --format is --dtype: the words for the parser;
 * how many. */
static int
words_of_perf(int argc, char *const argv[], char *out[], struct pbox_error *err)
{
	static char text[ARGS_MAX][DURATION_LEN];
	int n = 0;

	if (argc >= ARGS_MAX)
		return pbox_fail(err, E2BIG, "more than %d words", ARGS_MAX - 1);
	for (int i = 0; i < argc; i++, n++) {
		size_t name = strcspn(argv[i], "=");
		const char *value = argv[i][name] == '=' ? argv[i] + name + 1 : NULL;
		bool format = name == 8 && strncmp(argv[i], "--format", name) == 0;
		bool is_ours = format || (name == 6 && strncmp(argv[i], "--time", name) == 0) ||
			       (name == 10 && strncmp(argv[i], "--duration", name) == 0) ||
			       strcmp(argv[i], "-t") == 0;

		out[n] = argv[i];
		if (!is_ours || (value == NULL && i + 1 == argc))
			continue;
		if (value == NULL)
			value = argv[++i];
		if (format)
			snprintf(text[n], DURATION_LEN, "--dtype=%.32s", value);
		else
			snprintf(text[n], DURATION_LEN, "--duration=%.32s%s", value,
				*value != '\0' && value[strspn(value, "0123456789")] == '\0' ? "s"
											     : "");
		out[n] = text[n];
	}
	out[n] = NULL;
	return n;
}

struct pbox_conf *
testps_options_load(struct testps_options *o, int argc, char *const argv[], struct pbox_error *err)
{
	struct pbox_conf *conf = pbox_conf_new(&testps_options_table, o, err);
	char *words[ARGS_MAX];
	struct testps_load load;
	int n = words_of_perf(argc, argv, words, err);

	if (conf == NULL || n < 0) {
		pbox_conf_free(conf);
		return NULL;
	}
	if (pbox_conf_args(conf, n, words, err) != 0 || check(o, err) != 0 ||
		testps_load_of(&load, o, err) != 0) {
		pbox_conf_free(conf);
		return NULL;
	}
	return conf;
}
