/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <pbox_pairs.h>

#include "worker_impl.h"

/* Checks of a program's arguments: configuration, table, MTU. */

#define NUMBERED(symbol, number, name, ...) ", " #number " " #name
#define MAX_ELEMENTS                        (1ull << 48)

/* R15.1a */
static int
check_least(const struct pbox_client_conf *conf, struct pbox_client_error *err)
{
	if (conf->least == 0)
		return 0;
	if (conf->least > conf->workers)
		return pbox_client_fail(err, PBOX_C_INVALID,
			"least is %u, and there are %u workers at most", conf->least,
			conf->workers);
	if (conf->policy != PBOX_POLICY_REASSIGN)
		return pbox_client_fail(err, PBOX_C_INVALID,
			"least is %u: workers come and go with policy reassign (2) alone",
			conf->least);
	if (conf->run == NULL || conf->run[0] == 0)
		return pbox_client_fail(err, PBOX_C_INVALID,
			"least is %u, and the run has no name: a worker that comes later finds it by that (run, PBOX_RUN)",
			conf->least);
	return 0;
}

int
pbox_worker_check(const struct pbox_client_conf *conf, struct pbox_client_error *err)
{
	size_t len;

	if (conf == NULL || conf->size < sizeof(*conf))
		return pbox_client_fail(err, PBOX_C_INVALID,
			"the configuration was not set up with pbox_client_conf_init");
	if (conf->box == NULL || conf->box[0] == 0)
		return pbox_client_fail(err, PBOX_C_INVALID, "no address of the box is given");
	len = conf->job != NULL ? strlen(conf->job) : 0;
	if (len < 1 || len >= PBOX_NAME_LEN)
		return pbox_client_fail(err, PBOX_C_INVALID,
			"the job's name has %zu bytes; 1 to %d are taken", len, PBOX_NAME_LEN - 1);
	if (!pbox_utf8_good(conf->job))
		return pbox_client_fail(err, PBOX_C_INVALID, "the job's name is not UTF-8");
	if (conf->workers < 1 || conf->workers > PBOX_MAX_WORKERS)
		return pbox_client_fail(err, PBOX_C_INVALID,
			"number of workers is %u; 1 to %d are taken", conf->workers,
			PBOX_MAX_WORKERS);
	if (conf->worker < -1 || conf->worker >= (int)conf->workers)
		return pbox_client_fail(err, PBOX_C_INVALID,
			"worker is %d; with %u workers it must be 0 to %u, or -1 for any",
			conf->worker, conf->workers, conf->workers - 1);
	if (conf->policy > PBOX_POLICY_REASSIGN)
		return pbox_client_fail(err, PBOX_C_INVALID,
			"policy is %u; 0 (wait), 1 (shrink) and 2 (reassign) are taken",
			conf->policy);
	if (conf->auth > 1)
		return pbox_client_fail(err, PBOX_C_INVALID,
			"auth is %u; 0 (as the box has it) and 1 (required) are taken", conf->auth);
	if (conf->slots != 0 && (conf->slots < conf->workers || conf->slots > PBOX_MAX_SLOTS))
		return pbox_client_fail(err, PBOX_C_INVALID,
			"slots is %u; with %u workers %u to %d are taken, or 0 for as many as workers",
			conf->slots, conf->workers, conf->workers, PBOX_MAX_SLOTS);
	if (conf->threads > PBOX_WORKER_LANES)
		return pbox_client_fail(err, PBOX_C_INVALID,
			"threads is %u; 1 to %d are taken, or 0 for as many as there are CPUs",
			conf->threads, PBOX_WORKER_LANES);
	return check_least(conf, err);
}

int
check_pairs(const struct pbox_client_table *d, uint32_t uses, const char *what,
	struct pbox_client_error *err)
{
	const struct pbox_pair *p;
	unsigned format;

	uses |= pbox_uses_of_table(d->mode == PBOX_MODE_OPTIMISER, d->discipline, d->hold != 0,
		d->push_format, d->pull_format);
	p = pbox_pair_in(uses);
	if (p == NULL)
		return 0;
	format = pbox_pair_format(p, d->push_format, d->pull_format);
	if (format != PBOX_FMT_NONE)
		return pbox_client_fail(err, PBOX_C_INVALID, "%s, format %s: " PBOX_PAIR_FMT, what,
			pbox_format_name(format), PBOX_PAIR_ARGS(p));
	return pbox_client_fail(err, PBOX_C_INVALID, "%s: " PBOX_PAIR_FMT, what, PBOX_PAIR_ARGS(p));
}

/** R13.6: without an optimiser a format of blocks goes both ways. */
static int
check_blocks_fit(const struct pbox_client_table *d, struct pbox_client_error *err)
{
	bool block = pbox_format_is_block(d->push_format) || pbox_format_is_block(d->pull_format);

	if (!block || d->mode == PBOX_MODE_OPTIMISER || d->push_format == d->pull_format)
		return 0;
	return pbox_client_fail(err, PBOX_C_INVALID,
		"push format %s and pull format %s: a format of blocks goes both ways; give the same one for both",
		pbox_format_name(d->push_format), pbox_format_name(d->pull_format));
}

/** R13.9 */
static int
check_mixed(const struct pbox_client_table *d, struct pbox_client_error *err)
{
	if (d->mixed == 0)
		return 0;
	if (d->mixed > 1)
		return pbox_client_fail(err, PBOX_C_INVALID,
			"mixed is %u; 0, or 1 (pushes may be fp32 as well) is taken", d->mixed);
	if (!pbox_format_is_block(d->push_format) || d->discipline != PBOX_DISCIPLINE_ROUNDS)
		return pbox_client_fail(err, PBOX_C_INVALID,
			"mixed pushes of a table that pushes %s in %s: in a format of blocks and in rounds alone",
			pbox_format_name(d->push_format), pbox_discipline_name(d->discipline));
	if (d->op == PBOX_OP_WEIGHTED_MEAN)
		return pbox_client_fail(err, PBOX_C_INVALID,
			"mixed pushes with op weighted_mean: push sums over samples, with op sample_mean");
	return 0;
}

int
pbox_worker_check_table(const struct pbox_client_table *d, struct pbox_client_error *err)
{
	const char *later;
	uint64_t sum = 0;

	if (d->size < sizeof(*d) || (d->n > 0 && d->tensors == NULL))
		return pbox_client_fail(err, PBOX_C_INVALID,
			"the table's description is incomplete (size field, list of tensors)");
	if (d->mode > PBOX_MODE_OPTIMISER || d->op > PBOX_OP_WEIGHTED_MEAN ||
		d->optimiser >= PBOX_OPTIMISERS_END ||
		(d->mode == PBOX_MODE_OPTIMISER) != (d->optimiser != PBOX_OPT_NONE))
		return pbox_client_fail(err, PBOX_C_INVALID,
			"mode %u, op %u, optimiser %u do not go together: mode 0 is without, mode 1 with an optimiser (1 to %u); op is 0 to 3",
			d->mode, d->op, d->optimiser, PBOX_OPTIMISERS_END - 1);
	if (pbox_discipline_name(d->discipline)[0] == '?')
		return pbox_client_fail(err, PBOX_C_INVALID,
			"discipline %u is none of this library: 0 rounds, 1 clock", d->discipline);
	if (d->discipline == PBOX_DISCIPLINE_CLOCK &&
		(d->op != PBOX_OP_SUM || d->optimiser != PBOX_OPT_ADD))
		return pbox_client_fail(err, PBOX_C_INVALID,
			"a table in clocks takes op sum and optimiser add (mode 1), not %s and %s: its optimiser runs at the workers, which push updates",
			pbox_op_name(d->op), pbox_optimiser_name(d->optimiser));
	if (d->hold > 1 || (d->hold && d->mode != PBOX_MODE_OPTIMISER))
		return pbox_client_fail(err, PBOX_C_INVALID,
			"hold is %u; 0, or 1 (two phases a round) in mode 1, is taken", d->hold);
	later = pbox_format_later(
		pbox_format_later(d->push_format)[0] != '?' ? d->push_format : d->pull_format);
	if (later[0] != '?')
		return pbox_client_fail(err, PBOX_C_INVALID,
			"element format %s is one of a later release: this library has fp32, bf16, fp16, int8 and mxfp4",
			later);
	if (pbox_format_wide(d->push_format) == 0 || pbox_format_wide(d->pull_format) == 0)
		return pbox_client_fail(err, PBOX_C_INVALID,
			"element format %u or %u does not exist: 1 fp32" PBOX_FORMATS_16(NUMBERED)
				PBOX_FORMATS_BLOCK(NUMBERED),
			d->push_format, d->pull_format);
	if (check_blocks_fit(d, err) != 0 || check_pairs(d, 0, "the table", err) != 0 ||
		check_mixed(d, err) != 0)
		return PBOX_C_INVALID;
	for (unsigned i = 0; i < d->n; i++) {
		if (d->tensors[i].elements > MAX_ELEMENTS ||
			(sum += d->tensors[i].elements) > MAX_ELEMENTS)
			return pbox_client_fail(err, PBOX_C_INVALID,
				"tensor %u has %llu elements: too many", i,
				(unsigned long long)d->tensors[i].elements);
	}
	return 0;
}

int
pbox_worker_check_mtu(unsigned mtu, struct pbox_client_error *err)
{
	return mtu >= LINK_MIN_MTU ? 0
				   : pbox_client_fail(err, PBOX_C_INVALID,
					     "mtu is %u, at least %d is needed", mtu, LINK_MIN_MTU);
}
