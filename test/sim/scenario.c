/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>
#include <string.h>

#include "law.h"
#include "law_blocks.h"
#include "law_updates.h"

#define SIM_SLOTS   4096
#define SIM_SUMMED  800000 /* elements of all slots in all rounds, */
#define SIM_RECORDS 24000  /* slots of all fragments in flight, */
#define SIM_HELD    1500   /* and packets of all jobs */
#define SIM_FOLDED  64     /* sums that a shard keeps for a job before its rounds end */
#define SIM_ALONE   4      /* boxes of scenarios without fleets, */
#define SIM_CRASHED 3      /* and how often they crash */
#define SIM_BROUGHT 12000  /* and frames, where each slot takes one, roughly */

/* One call a statement, or nested: C leaves the order of operands open, and a seed must mean the same
 * to all compilers. */
static uint64_t
range(struct pbox_random *r, uint64_t low, uint64_t high)
{
	return low + pbox_random_below(r, high - low + 1);
}

static bool
one_in(struct pbox_random *r, unsigned n)
{
	return pbox_random_below(r, n) == 0;
}

static uint64_t
tensor_size(struct pbox_random *r, uint32_t f)
{
	switch (range(r, 0, 9)) {
	case 0:
		return 0;
	case 1:
		return 1;
	case 2:
		return f - 1;
	case 3:
		return f;
	case 4:
		return f + 1;
	case 5:
		return range(r, 1, 10ull * f);
	default:
		return range(r, 1, f - 1);
	}
}

static void
make_table(struct pbox_random *r, struct sim_table_spec *t, uint32_t id, bool all_reduce,
	unsigned mtu, unsigned size)
{
	struct pbox_declare *d = &t->fixed;
	uint32_t f;

	t->law = &sim_law_rounds;
	*d = (struct pbox_declare){.table = id};
	d->tensors = one_in(r, 12) ? 0 : (uint32_t)range(r, 1, size);
	d->mode = all_reduce || one_in(r, 2) ? PBOX_MODE_ALLREDUCE : PBOX_MODE_OPTIMISER;
	d->op = (uint8_t)range(r, PBOX_OP_SUM, PBOX_OP_WEIGHTED_MEAN);
	d->push_format = one_in(r, 2) ? PBOX_FMT_FP32 : (uint8_t)range(r, 1, 3);
	d->pull_format = one_in(r, 2) ? PBOX_FMT_FP32 : (uint8_t)range(r, 1, 3);
	if (d->mode == PBOX_MODE_OPTIMISER)
		d->optimiser = (uint8_t)range(r, PBOX_OPT_SGD, PBOX_OPT_ADAMW);
	f = pbox_frag_elements(mtu, d->push_format, d->pull_format);
	for (uint32_t i = 0; i < d->tensors; i++) {
		t->tensor[i].elements = tensor_size(r, f);
		t->tensor[i].group = one_in(r, 3) ? (uint16_t)range(r, 0, 2) : 0;
		snprintf(t->tensor[i].name, sizeof(t->tensor[i].name), "layer%u.weight", i);
	}
}

/* Fragments of a job, roughly. */
static uint64_t
fragments(const struct sim_job_spec *j, unsigned mtu)
{
	uint64_t n = 0;

	for (unsigned t = 0; t < j->tables; t++) {
		const struct pbox_declare *d = &j->table[t].fixed;
		uint32_t f = pbox_frag_elements(mtu, d->push_format, d->pull_format);

		for (uint32_t i = 0; i < d->tensors; i++)
			n += j->table[t].tensor[i].elements / f + 1;
	}
	return n;
}

/* Nothing is drawn for it: the other scenarios of old seeds stay what they were. */
static void
choose_policy(struct sim_job_spec *j, bool never)
{
	j->shrink = j->restarts > 0 && !never && !j->sets && !j->dies && j->death_ns / MS % 2 == 0;
	for (unsigned t = 0; j->shrink && t < j->tables; t++)
		j->shrink = j->table[t].fixed.mode == PBOX_MODE_ALLREDUCE;
	if (j->shrink)
		j->push_percent = 0;
}

static void
make_job(struct pbox_random *r, struct sim_job_spec *j, unsigned mtu, uint64_t budget,
	unsigned workers)
{
	bool wrap = one_in(r, 12), never_shrinks;
	unsigned size = one_in(r, 2) ? SIM_TENSORS : 6;
	uint64_t per_round;

	j->workers = workers != 0 ? workers : (unsigned)range(r, 1, one_in(r, 3) ? SIM_WORKERS : 5);
	j->tables = (unsigned)range(r, 1, one_in(r, 3) ? SIM_TABLES : 1);
	j->mtu = (uint16_t)range(r, SIM_LEAST, mtu);
	for (unsigned t = 0; t < j->tables; t++)
		make_table(r, &j->table[t], t, wrap, j->mtu, size);
	per_round = j->workers * (fragments(j, j->mtu) + 1);
	j->rounds = (unsigned)range(r, 1, 20);
	while (j->rounds > 1 && j->rounds * per_round > budget)
		j->rounds--;
	if (wrap)
		j->first_round = UINT32_MAX - (uint32_t)range(r, 0, j->rounds);
	j->barrier = one_in(r, 2);
	j->any_number = one_in(r, 4);
	j->pull0 = !one_in(r, 3);
	never_shrinks = one_in(r, 4);
	j->sets = one_in(r, 2);
	j->zeros = one_in(r, 3);
	j->setters = (unsigned)range(r, 1, j->workers < 3 ? j->workers : 3);
	/* with all workers silent the job would end (R8.2) */
	j->restarts = one_in(r, 3) && j->workers > 1
			      ? (unsigned)range(r, 1, j->workers < 4 ? j->workers - 1 : 3)
			      : 0;
	j->rebinds = one_in(r, 6) ? (unsigned)range(r, 1, 3) : 0;
	if (wrap) /* to go on with round 0 is not something that a program can say */
		j->restarts = 0;
	j->push_percent = one_in(r, 3) ? (unsigned)range(r, 1, 100) : 0;
	j->lives = one_in(r, 10) ? 2 : 1;
	j->compute_ns = one_in(r, 3) ? range(r, 0, 200) * MS : range(r, 0, 2000) * US;
	j->dies = one_in(r, 15);
	j->death_ns = range(r, 1, 300) * MS;
	if (j->dies)
		j->lives = 1;
	choose_policy(j, never_shrinks);
}

static void
make_network(struct pbox_random *r, struct sim_network_spec *n)
{
	n->burst = one_in(r, 3) ? 3 : 1;
	n->delay_ns = range(r, 1, 200) * US;
	n->jitter_ns = range(r, 0, 100) * US;
	if (!one_in(r, 4))
		n->loss = one_in(r, 4) ? 0.3 * pbox_random_unit(r) : 0.03 * pbox_random_unit(r);
	if (!one_in(r, 3))
		n->dup = 0.1 * pbox_random_unit(r);
	if (!one_in(r, 3)) {
		/* as if up to 64 later datagrams passed it */
		n->reorder = pbox_random_unit(r);
		n->reorder_ns = range(r, 1, 64) * 20 * US;
	}
	if (one_in(r, 20)) /* some come very late */
		n->reorder_ns = range(r, 1, 300) * MS;
	if (one_in(r, 3))
		n->corrupt = one_in(r, 4) ? 0.3 * pbox_random_unit(r) : 0.03 * pbox_random_unit(r);
	if (one_in(r, 4))
		n->truncate = 0.05 * pbox_random_unit(r);
	if (one_in(r, 6))
		n->target_loss = 0.7 * pbox_random_unit(r);
	n->holes = one_in(r, 5) ? (unsigned)range(r, 1, 4) : 0;
	for (unsigned i = 0; i < n->holes; i++) {
		n->hole[i].from = range(r, 0, 2000) * MS;
		n->hole[i].to = n->hole[i].from + range(r, 1, one_in(r, 3) ? 2000 : 100) * MS;
	}
}

/* From a generator of its own: what other parts of a scenario are does not follow from it. */
static void
make_boxes(struct sim_scenario *sc, uint64_t seed, unsigned boxes)
{
	struct pbox_random r;

	pbox_random_seed(&r, seed ^ UINT64_C(0xB0CE5));
	sc->boxes = one_in(&r, 2) ? (unsigned)range(&r, 2, SIM_ALONE) : 1;
	if (boxes != 0)
		sc->boxes = boxes;
	sc->stray = one_in(&r, 2) ? (unsigned)range(&r, 1, 100) : 0;
	for (unsigned i = 0; i < sc->jobs; i++)
		sc->job[i].box = i == 0 ? 0 : (unsigned)range(&r, 0, sc->boxes - 1);
	for (unsigned i = 0; i < SIM_CRASHED; i++)
		sc->crash[i].box = sc->job[range(&r, 0, sc->jobs - 1)].box;
}

bool
sim_crashes(const struct sim_scenario *sc, unsigned box)
{
	for (unsigned i = 0; i < sc->crashes; i++)
		if (sc->crash[i].box == box)
			return true;
	return false;
}

bool
sim_is_fleet(const struct sim_scenario *sc, const struct sim_job_spec *j)
{
	return j->box < sc->fleet;
}

bool
sim_is_at(const struct sim_scenario *sc, const struct sim_job_spec *j, unsigned box)
{
	return box == j->box || (sim_is_fleet(sc, j) && box < sc->fleet);
}

bool
sim_job_crashes(const struct sim_scenario *sc, const struct sim_job_spec *j)
{
	if (sim_box_dies(sc) && sim_is_fleet(sc, j))
		return true;
	for (unsigned b = 0; b < sc->boxes; b++)
		if (sim_is_at(sc, j, b) && sim_crashes(sc, b))
			return true;
	return false;
}

/* From a generator of its own, too. shrinks: jobs keep policy shrink, and more boxes crash: few jobs have it. */
static void
make_crashes(struct sim_scenario *sc, uint64_t seed, bool shrinks)
{
	struct pbox_random r;
	bool possible = true;

	pbox_random_seed(&r, seed ^ UINT64_C(0xB0CA5));
	/* versions of a job that begins near 2^32 are made by hand, in one incarnation */
	for (unsigned i = 0; i < sc->jobs; i++)
		possible &= sc->job[i].first_round == 0;
	if ((!one_in(&r, 3) && !shrinks) || !possible)
		return;
	sc->crashes = (unsigned)range(&r, 1, one_in(&r, 3) ? SIM_CRASHED : 1);
	sc->snapshots = one_in(&r, 2) ? (unsigned)range(&r, 1, 6) : 0;
	for (unsigned i = 0; i < sc->crashes; i++) {
		sc->crash[i].at = range(&r, 1, one_in(&r, 2) ? 60 : 600) * MS;
		sc->crash[i].down_ns = range(&r, 0, one_in(&r, 3) ? 2000 : 50) * MS;
	}
	for (unsigned i = 0; i < sc->jobs; i++) {
		if (!sim_crashes(sc, sc->job[i].box))
			continue;
		sc->job[i].setters = sc->job[i].workers; /* somebody is left who knows */
		sc->job[i].shrink &= shrinks;
		sc->job[i].push_percent =
			0; /* a push that is lost with the box is the program's to repeat */
		sc->job[i].any_number =
			false; /* nor is a number that one comes back with another's */
	}
}

/* From a generator of its own, too. A whole run is replaced where nothing else happens to its workers. */
static void
make_replaced(struct sim_scenario *sc, uint64_t seed)
{
	struct pbox_random r;

	pbox_random_seed(&r, seed ^ UINT64_C(0x2E91));
	for (unsigned i = 0; i < sc->jobs; i++) {
		struct sim_job_spec *j = &sc->job[i];
		bool wanted = one_in(&r, 3);

		j->named = one_in(&r, 2);
		if (!wanted || sim_crashes(sc, j->box) || j->restarts > 0 || j->rebinds > 0 ||
			j->lives > 1 || j->dies || j->first_round != 0)
			continue;
		j->replaced = j->named ? (unsigned)range(&r, 1, j->workers) : j->workers;
		j->any_number &= j->named; /* else numbers that come back are others' */
	}
}

/* From a generator of its own, too. */
static void
make_auth(struct sim_scenario *sc, uint64_t seed)
{
	struct pbox_random r;

	pbox_random_seed(&r, seed ^ UINT64_C(0xA07));
	for (unsigned i = 0; i < sc->jobs; i++) {
		struct sim_job_spec *j = &sc->job[i];

		j->auth = one_in(&r, 3);
	}
}

/* From a generator of its own, too. */
static void
make_rate(struct sim_scenario *sc, uint64_t seed)
{
	struct pbox_random r;

	pbox_random_seed(&r, seed ^ UINT64_C(0x2A7E));
	if (one_in(&r, 5))
		sc->rate = (uint32_t)range(&r, 1000, one_in(&r, 2) ? 5000 : 100000);
}

/* From a generator of its own, too. Somebody sends copies of old frames, workers move, and more of them die: their leases must end. */
static void
make_recordings(struct sim_scenario *sc, uint64_t seed)
{
	struct pbox_random r;

	pbox_random_seed(&r, seed ^ UINT64_C(0x2EC0));
	sc->recorded = (unsigned)range(&r, 5, one_in(&r, 3) ? 300 : 50);
	sc->moves = true;
	for (unsigned i = 0; i < sc->jobs; i++) {
		struct sim_job_spec *j = &sc->job[i];
		bool dies = one_in(&r, 3);
		unsigned rebinds = (unsigned)range(&r, 0, 3);

		if (j->replaced > 0 || j->dies)
			continue;
		if (dies && !sim_crashes(sc, j->box) && j->restarts == 0 && j->lives == 1)
			j->dies = true;
		else
			j->rebinds += rebinds;
	}
}

static unsigned
draw_slots(struct pbox_random *r, const struct sim_job_spec *j)
{
	unsigned n = j->workers;

	switch (range(r, 0, 7)) {
	case 0:
		return SIM_SLOTS;
	case 1:
		return n;
	case 2:
		while ((n & (n - 1)) != 0)
			n++;
		return n << range(r, 0, 2);
	default:
		return (unsigned)range(r, n, 64);
	}
}

/* As many as one can wait for: programs and reference make the contribution of each slot, and a worker sends each where
 * nodes are of one. */
static void
fit_slots(const struct sim_scenario *sc, struct sim_job_spec *j)
{
	uint64_t frames = fragments(j, j->mtu) + 1, elements = 0;
	unsigned least = j->rounds < 4 ? j->rounds : 4; /* rounds are worth more than slots */
	bool single = false;

	for (unsigned t = 0; t < j->tables; t++) {
		single |= j->table[t].fixed.op == PBOX_OP_WEIGHTED_MEAN;
		for (uint32_t i = 0; i < j->table[t].fixed.tensors; i++)
			elements += j->table[t].tensor[i].elements;
	}
	/* what the box drops for want of room is not there when it goes on without somebody */
	while (j->shrink && single && j->slots / 2 >= j->workers)
		j->slots /= 2;
	/* nor does the box have memory for any number of rounds of many slots */
	while (j->slots / 2 >= j->workers &&
		(uint64_t)j->slots * j->workers * sc->endpoints * sc->jobs > SIM_RECORDS)
		j->slots /= 2;
	while (j->slots / 2 >= j->workers &&
		(least * j->slots * elements > SIM_SUMMED ||
			(single && least * j->slots * frames > SIM_BROUGHT)))
		j->slots /= 2;
	while (j->rounds > 1 && (j->rounds * j->slots * elements > SIM_SUMMED ||
					(single && j->rounds * j->slots * frames > SIM_BROUGHT)))
		j->rounds--;
}

/* Nodes of a worker, at the most. */
static unsigned
most_nodes(const struct sim_job_spec *j)
{
	unsigned n = 1;

	for (unsigned own = (j->slots + j->workers - 1) / j->workers; own > 1; own /= 2)
		n += 2;
	return n;
}

/* From a generator of its own, too: one that gives none to those seeds of regressions.txt that are older. Returns how many packets the box
 * may have to hold for them beside those that one node a worker makes. */
static unsigned
make_slots(struct sim_scenario *sc, uint64_t seed)
{
	bool wanted[SIM_JOBS];
	struct pbox_random r;
	unsigned units = 0;

	pbox_random_seed(&r, seed ^ UINT64_C(0x671F2));
	for (unsigned i = 0; i < SIM_JOBS; i++)
		wanted[i] = one_in(&r, 3);
	for (unsigned i = 0; i < sc->jobs; i++) {
		struct sim_job_spec *j = &sc->job[i];
		unsigned slots = draw_slots(&r, j);
		bool plain = one_in(&r, 8);

		if (!wanted[i])
			continue;
		j->slots = slots;
		j->plain = plain;
		fit_slots(sc, j);
		/* pushes alone are not bounded by windows: what the box folds early must be enough for all of them (R6.9) */
		if ((fragments(j, j->mtu) + 1) * (33u - (unsigned)__builtin_clz(slots)) >
			SIM_FOLDED)
			j->push_percent = 0;
		units += j->workers * 2 * (most_nodes(j) - 1);
	}
	return units;
}

#define CRASHES_OFTEN 3

/* A job that lasts, at a box that crashes again after its workers have come back. */
static void
crash_often(struct pbox_random *r, struct sim_scenario *sc, struct sim_job_spec *j)
{
	uint64_t at = range(r, 20, 400) * MS;
	unsigned n = 0;

	j->compute_ns = range(r, 5, 300) * MS;
	j->rounds = (unsigned)range(r, 5, 20);
	j->pulls_each = (unsigned)range(r, 0, 7);
	for (unsigned i = 0; i < sc->crashes; i++)
		if (sc->crash[i].box != j->box)
			sc->crash[n++] = sc->crash[i];
	for (; n < CRASHES_OFTEN; n++, at += range(r, 900, 3500) * MS) {
		sc->crash[n].box = j->box;
		sc->crash[n].at = at;
		sc->crash[n].down_ns = range(r, 0, 100) * MS;
	}
	sc->crashes = n;
}

/* From a generator of its own, too: of those where a box is restarted another one. */
static void
make_clocks(struct sim_scenario *sc, uint64_t seed)
{
	struct pbox_random r, crash;

	pbox_random_seed(&r, seed ^ UINT64_C(0xC10C5));
	pbox_random_seed(&crash, seed ^ UINT64_C(0xC10C5C4A));
	for (unsigned i = 0; i < SIM_JOBS; i++) {
		struct sim_job_spec *j = &sc->job[i];
		bool wanted = one_in(&r, 4), crashes = sim_crashes(sc, j->box);
		bool also = one_in(&crash, 2), often = one_in(&crash, 2), any = false;

		for (unsigned t = 0; t < SIM_TABLES; t++) {
			struct pbox_declare *d = &j->table[t].fixed;

			if (one_in(&r, 4) || !(crashes ? also : wanted) || i >= sc->jobs ||
				t >= j->tables || j->slots > 0 || j->shrink ||
				j->first_round != 0 || j->replaced > 0 ||
				d->mode != PBOX_MODE_OPTIMISER)
				continue;
			d->op = PBOX_OP_SUM;
			d->optimiser = PBOX_OPT_ADD;
			d->discipline = PBOX_DISCIPLINE_CLOCK;
			j->table[t].law = &sim_law_clock;
			any = true;
		}
		if (any && crashes && often)
			crash_often(&crash, sc, j);
	}
}

/* From a generator of its own, too. Pulls of tables in clocks that wait for the slowest worker. */
static void
make_bounds(struct sim_scenario *sc, uint64_t seed)
{
	struct pbox_random r;

	pbox_random_seed(&r, seed ^ UINT64_C(0xB0));
	for (unsigned i = 0; i < SIM_JOBS; i++)
		sc->job[i].lag = one_in(&r, 2) ? 1 + (uint32_t)pbox_random_below(&r, 3) : 0;
}

/*
 * From a generator of its own, too. A large table on a bad network that becomes a good one: what the losses have done to windows must end.
 * Windows are as small as that takes few frames.
 */
static void
make_calm(struct sim_scenario *sc, uint64_t seed)
{
	struct sim_job_spec *j = &sc->job[0];
	struct sim_table_spec *t = &j->table[0];
	struct pbox_random r;
	uint32_t f;

	pbox_random_seed(&r, seed ^ UINT64_C(0xCA17));
	if (!one_in(&r, 25))
		return;
	sc->jobs = 1;
	sc->crashes = sc->noise = sc->rate = 0;
	sc->shards = 1;
	sc->endpoints = (unsigned)range(&r, 1, 2);
	sc->net = (struct sim_network_spec){.burst = 1,
		.delay_ns = range(&r, 20, 200) * US,
		.loss = 0.1 + 0.2 * pbox_random_unit(&r),
		.calm_ns = range(&r, 50, 200) * MS};
	*j = (struct sim_job_spec){.workers = (unsigned)range(&r, 1, 3),
		.tables = 1,
		.rounds = 25,
		.mtu = sc->mtu,
		.setters = 1,
		.barrier = one_in(&r, 2),
		.compute_ns = 250 * MS};
	*t = (struct sim_table_spec){.law = &sim_law_rounds};
	t->fixed = (struct pbox_declare){.tensors = SIM_TENSORS,
		.mode = PBOX_MODE_ALLREDUCE,
		.push_format = PBOX_FMT_FP32,
		.pull_format = PBOX_FMT_FP32};
	f = pbox_frag_elements(j->mtu, PBOX_FMT_FP32, PBOX_FMT_FP32);
	for (unsigned i = 0; i < SIM_TENSORS; i++)
		t->tensor[i].elements = range(&r, 1, 6 * f);
	sc->hold = 2 * j->workers * sc->endpoints * (unsigned)range(&r, 6, 16);
}

/* Of three boxes with several endpoints the workers of one have several threads. Drawn apart: the numbers of other parts stay. */
static void
make_lanes(struct sim_scenario *sc, uint64_t seed)
{
	struct pbox_random r;

	pbox_random_seed(&r, seed ^ 0x4C414E45);
	if (sc->endpoints > 1 && one_in(&r, 3))
		sc->lanes = (unsigned)range(&r, 2, SIM_LANES);
}

void
sim_scenario_make(struct sim_scenario *sc, uint64_t seed, const struct sim_limits *limits)
{
	struct pbox_random r;
	uint64_t budget;
	unsigned units = 0;

	memset(sc, 0, sizeof(*sc));
	pbox_random_seed(&r, seed);
	sc->seed = seed;
	sc->shards = limits->shards != 0 ? limits->shards : (unsigned)range(&r, 1, SIM_SHARDS);
	sc->endpoints = sc->shards * (unsigned)range(&r, 1, 2);
	sc->jobs = limits->jobs != 0 ? limits->jobs
				     : (unsigned)range(&r, 1, one_in(&r, 3) ? SIM_JOBS : 1);
	sc->mtu = (uint16_t)(one_in(&r, 8) ? SIM_MTU : range(&r, SIM_LEAST, 700));
	sc->chunk_elements = (uint32_t)range(&r, 1, 400);
	sc->lease_ms = (uint32_t)range(&r, 5000, 8000);
	sc->late_dma = one_in(&r, 2);
	sc->train = one_in(&r, 3) ? (unsigned)range(&r, 2, 8) : 1;
	sc->noise = one_in(&r, 2) ? (unsigned)range(&r, 1, 100) : 0;
	make_network(&r, &sc->net);
	if (limits->loss >= 0.0)
		sc->net.loss = limits->loss;
	budget = (one_in(&r, 10) ? 40000 : range(&r, 200, 12000)) / sc->jobs;
	for (unsigned i = 0; i < sc->jobs; i++) {
		make_job(&r, &sc->job[i], sc->mtu, budget, limits->workers);
		units += sc->job[i].workers * 2;
	}
	make_boxes(sc, seed, limits->boxes);
	make_crashes(sc, seed, limits->crashes_shrink);
	make_replaced(sc, seed);
	make_auth(sc, seed);
	make_rate(sc, seed);
	units += make_slots(sc, seed);
	if (!limits->fleets)
		make_clocks(sc, seed);
	make_bounds(sc, seed);
	if (!limits->recordings && !limits->fleets)
		units += sim_scenario_plans(sc, seed);
	if (limits->recordings)
		make_recordings(sc, seed);
	blocks_scenario(sc, seed, limits);
	updates_scenario(sc, seed, limits);
	sim_scenario_hold(sc, seed, limits);
	/* what all jobs need at least, up to generous windows; half of it may be kept for jobs that are not there */
	sc->hold = units * (uint32_t)(1 + pbox_random_below(&r, one_in(&r, 2) ? 3 : 40));
	if (sc->hold < 2 * units)
		sc->hold = 2 * units;
	/* one that comes back begins with other fragments than those that went on */
	for (unsigned i = 0; i < sc->jobs; i++)
		if (sc->job[i].shrink)
			sc->hold = 40 * units;
		else if (sc->job[i].slots > 0 &&
			 sc->hold > SIM_HELD) /* memory is as small as that */
			sc->hold = 2 * units > SIM_HELD ? 2 * units : SIM_HELD;
	if (!limits->recordings && !limits->fleets)
		make_calm(sc, seed);
	make_lanes(sc, seed);
	if (limits->fleets)
		sim_scenario_fleets(sc, seed, limits->clocks);
	if (limits->moves)
		sim_scenario_moves(sc, seed, limits->deciders);
}

static void
print_job(const struct sim_job_spec *j, unsigned i, const char *at)
{
	printf("  job %u at %s %u: %u workers, %u rounds from %u, %u lives, mtu %u,%s%s%s%s%s%s%s%s %u restarts, %u rebinds, %u%% push\n",
		i, at, j->box, j->workers, j->rounds, j->first_round, j->lives, j->mtu,
		j->barrier ? " barrier" : "", j->any_number ? " any" : "", j->pull0 ? " pull0" : "",
		j->dies ? " dies" : "", j->sets ? " sets" : "", j->zeros ? " zeros" : "",
		j->shrink ? " shrink" : "", j->auth ? " auth" : "", j->restarts, j->rebinds,
		j->push_percent);
	if (j->slots > 0)
		printf("    %u slots%s\n", j->slots, j->plain ? ", plain operations" : "");
	if (j->plan)
		printf("    by plan: %u us a slot, %u deaths, %u stops%s%s, begins with %u\n",
			(unsigned)(j->slot_ns / US), j->deaths, j->stops,
			j->steals ? ", slots are stolen" : "", j->ahead ? ", ahead" : "",
			j->least > 0 ? j->least : j->workers);
	if (j->replaced > 0)
		printf("    replaced by a run of %u workers%s\n", j->replaced,
			j->named ? ", by name" : "");
	for (unsigned t = 0; t < j->tables; t++) {
		const struct pbox_declare *d = &j->table[t].fixed;
		uint64_t n = 0;

		for (uint32_t k = 0; k < d->tensors; k++)
			n += j->table[t].tensor[k].elements;
		printf("    table %u in %s: %u tensors, %llu elements, %s/%s, push %s, pull %s\n",
			t, j->table[t].law->name, d->tensors, (unsigned long long)n,
			pbox_op_name(d->op), pbox_optimiser_name(d->optimiser),
			pbox_format_name(d->push_format), pbox_format_name(d->pull_format));
	}
}

void
sim_scenario_print(const struct sim_scenario *sc)
{
	const struct sim_network_spec *n = &sc->net;

	printf("seed %llu: %u boxes of %u shards, %u endpoints, %u jobs, mtu %u, chunks of %u, hold %u, lease %u ms, trains of %u, %u lanes, noise %u/1000%s\n",
		(unsigned long long)sc->seed, sc->boxes, sc->shards, sc->endpoints, sc->jobs,
		sc->mtu, sc->chunk_elements, sc->hold, sc->lease_ms, sc->train,
		sc->lanes > 1 ? sc->lanes : 1, sc->noise, sc->late_dma ? ", late dma" : "");
	printf("  network: loss %.3f in bursts of %u, target %.2f, dup %.3f, corrupt %.3f, truncate %.3f, delay %llu+%llu us, reorder %.2f by %llu us, %u holes\n",
		n->loss, n->burst, n->target_loss, n->dup, n->corrupt, n->truncate,
		(unsigned long long)(n->delay_ns / US), (unsigned long long)(n->jitter_ns / US),
		n->reorder, (unsigned long long)(n->reorder_ns / US), n->holes);
	if (n->calm_ns != 0)
		printf("  the network is clean after %llu ms\n",
			(unsigned long long)(n->calm_ns / MS));
	if (sc->recorded != 0)
		printf("  of 1000 datagrams %u are kept and sent again; workers move\n",
			sc->recorded);
	if (sc->boxes > 1 && sc->stray != 0)
		printf("  copies of %u of 1000 datagrams go to another box\n", sc->stray);
	if (sc->fleet != 0)
		printf("  %u boxes have one list; %u of 100 workers name all of them\n", sc->fleet,
			sc->named);
	if (n->bad_loss > 0.0)
		printf("  box %u has losses of its own: %.3f\n", n->bad_box, n->bad_loss);
	for (unsigned i = 0; i < n->holes; i++)
		if (n->hole[i].boxes != 0)
			printf("  hole %u: from %llu to %llu ms, boxes %x\n", i,
				(unsigned long long)(n->hole[i].from / MS),
				(unsigned long long)(n->hole[i].to / MS), n->hole[i].boxes);
	if (sc->rate != 0)
		printf("  a job may send %u frames a second to each core\n", sc->rate);
	for (unsigned i = 0; i < sc->crashes; i++)
		printf("  box %u crashes after %llu ms and is down for %llu ms\n", sc->crash[i].box,
			(unsigned long long)(sc->crash[i].at / MS),
			(unsigned long long)(sc->crash[i].down_ns / MS));
	for (unsigned i = 0; i < sc->commands; i++)
		printf("  chunks move after %llu ms: command %u, %u, box %u\n",
			(unsigned long long)(sc->command[i].at / MS), sc->command[i].what,
			sc->command[i].x, sc->command[i].box);
	if (sim_box_dies(sc))
		printf("  box %u %s after %llu ms, its jobs go on without it %llu ms later, and it comes back %llu ms after that (0: never)\n",
			sc->dead_box,
			sc->first == SIM_FIRST_CUT   ? "is cut off"
			: sc->first == SIM_FIRST_TWO ? "and then the next one dies"
						     : "dies",
			(unsigned long long)(sc->dies_ns / MS),
			(unsigned long long)(sc->told_ns / MS),
			(unsigned long long)(sc->back_ns / MS));
	for (unsigned i = 0; i < sc->jobs; i++)
		print_job(&sc->job[i], i, sim_is_fleet(sc, &sc->job[i]) ? "all boxes from" : "box");
}
