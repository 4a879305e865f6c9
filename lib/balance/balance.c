/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* The room: its memory, and what workers report. */

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "balance_impl.h"

#define EXPLORE 0.3
#define COOL    2
/* a longer round is a worker that was stopped */
#define SECONDS_MOST 86400.0

struct pbox_balance *
pbox_balance_create(const struct pbox_balance_conf *conf, struct pbox_error *err)
{
	struct pbox_balance *b;

	if (conf->boxes < 1 || conf->boxes > PBOX_BALANCE_BOXES || conf->workers < 1 ||
		conf->workers > PBOX_BALANCE_WORKERS) {
		pbox_fail(err, EINVAL,
			"%u boxes and %u workers: load is balanced for 1 to %u and 1 to %u",
			conf->boxes, conf->workers, PBOX_BALANCE_BOXES, PBOX_BALANCE_WORKERS);
		return NULL;
	}
	b = calloc(1, sizeof(*b));
	if (b != NULL) {
		b->round = calloc(conf->workers, sizeof(*b->round));
		b->sum = calloc((size_t)conf->workers * conf->boxes, sizeof(*b->sum));
		b->sorted = calloc(conf->workers, sizeof(*b->sorted));
	}
	if (b == NULL || b->round == NULL || b->sum == NULL || b->sorted == NULL) {
		pbox_balance_destroy(b);
		pbox_fail(err, ENOMEM, "no memory to balance %u boxes and %u workers", conf->boxes,
			conf->workers);
		return NULL;
	}
	b->conf = *conf;
	if (b->conf.window == 0)
		b->conf.window = PBOX_BALANCE_WINDOW;
	b->explore = EXPLORE;
	b->cool_next = COOL;
	pbox_random_seed(&b->random, conf->seed);
	return b;
}

void
pbox_balance_destroy(struct pbox_balance *b)
{
	if (b == NULL)
		return;
	free(b->round);
	free(b->sum);
	free(b->sorted);
	free(b);
}

static int
check_times(unsigned worker, const char *what, const struct pbox_balance_times *t,
	struct pbox_error *err)
{
	const double figure[] = {t->mean, t->sd, t->exposed};

	for (unsigned i = 0; i < 3; i++)
		if (!(figure[i] >= 0 && figure[i] <= SECONDS_MOST))
			return pbox_fail(err, EINVAL,
				"worker %u reports %g seconds for %s: a round takes 0 to %g",
				worker, figure[i], what, SECONDS_MOST);
	return 0;
}

static void
add(struct balance_sum *s, const struct pbox_balance_times *t)
{
	double n = t->rounds;

	s->rounds += n;
	s->mean += n * t->mean;
	s->var += n * (t->sd * t->sd + t->mean * t->mean);
	s->exposed += n * t->exposed;
}

int
pbox_balance_report(struct pbox_balance *b, unsigned worker, const struct pbox_balance_times *round,
	const struct pbox_balance_times *box, struct pbox_error *err)
{
	int rc;

	PBOX_ASSERT(worker < b->conf.workers);
	rc = check_times(worker, "a round", round, err);
	for (unsigned i = 0; i < b->conf.boxes && rc == 0; i++)
		rc = check_times(worker, "a box", &box[i], err);
	if (rc != 0)
		return rc;
	add(&b->round[worker], round);
	for (unsigned i = 0; i < b->conf.boxes; i++)
		add(&b->sum[worker * b->conf.boxes + i], &box[i]);
	return 0;
}

void
pbox_balance_discard(struct pbox_balance *b)
{
	memset(b->round, 0, b->conf.workers * sizeof(*b->round));
	memset(b->sum, 0, (size_t)b->conf.workers * b->conf.boxes * sizeof(*b->sum));
}

void
pbox_balance_view(const struct pbox_balance *b, unsigned box, struct pbox_balance_view *view)
{
	const struct balance_box *x = &b->box[box];

	PBOX_ASSERT(box < b->conf.boxes);
	*view = (struct pbox_balance_view){.measured = x->measured,
		.mean = x->last.mean,
		.ci = x->last.rounds > 0 ? 1.96 * x->last.sd / sqrt(x->last.rounds) : 0,
		.exposed = x->last.exposed,
		.per_mib = x->per_byte * 1048576,
		.slow = x->slow,
		.windows = x->windows};
}
