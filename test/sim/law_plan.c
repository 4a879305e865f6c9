/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>
#include <string.h>

#include "box.h"
#include "law.h"

/*
 * Rounds of work by plan (section 15 of the protocol). The result is that of all slots, of whatever worker (law_rounds.c),
 * and each slot counts by its owner alone. Owners are read out of the mails that the shards get, where they hold from the
 * moment in which they come, and out of WORK_OK, which says the workers' parts of them: the two are compared with
 * arithmetic of this file.
 */

#define KEPT     8 /* editions of which is known what workers have heard */
#define NO_OWNER UINT16_MAX
#define MAPS     3
#define GIVEN_AWAY \
	(12 * SEC) /* slots of a worker that is dead: black holes and restarts take some of it */

/* Owners as a shard has them. */
struct at_shard {
	bool any, full; /* it has got some in this life of the box; each slot had one */
	uint32_t edition, from, plan;
	uint32_t announced,
		highest; /* the newest plan; the last round that was finished here when it came */
	uint32_t only;   /* the round in which map[2] holds */
	uint16_t *map[MAPS];
};

/* What workers have heard of a plan in an edition. */
struct said {
	unsigned generation;
	uint32_t edition, plan;
	uint16_t *owner;
	bool by[SIM_WORKERS];
	unsigned workers;
};

struct sim_owners {
	struct at_shard shard[SIM_SHARDS];
	struct said said[KEPT];
	unsigned n_said;
	uint32_t edition[SIM_WORKERS]; /* the highest that it has heard of */
	bool passed_over[SIM_WORKERS]; /* it has had no slots for a time */
	uint64_t died[SIM_WORKERS];
	uint64_t since;                 /* the box started */
	uint32_t given[PBOX_MAX_SLOTS]; /* the last round in which it was given up, */
	uint16_t given_by[PBOX_MAX_SLOTS];
	uint32_t changes;
};

static unsigned
slots_of_job(const struct sim *s, unsigned job)
{
	return s->sc.job[job].slots;
}

static uint16_t *
new_map(unsigned slots)
{
	uint16_t *map = malloc(slots * sizeof(*map));

	PBOX_ASSERT(map != NULL);
	for (unsigned i = 0; i < slots; i++)
		map[i] = NO_OWNER;
	return map;
}

static struct sim_owners *
owners_of(struct sim *s, unsigned job)
{
	struct sim_job *j = &s->job[job];

	if (j->owners != NULL)
		return j->owners;
	j->owners = calloc(1, sizeof(*j->owners));
	PBOX_ASSERT(j->owners != NULL);
	for (unsigned i = 0; i < SIM_SHARDS; i++)
		for (unsigned k = 0; k < MAPS; k++)
			j->owners->shard[i].map[k] = new_map(slots_of_job(s, job));
	for (unsigned i = 0; i < KEPT; i++)
		j->owners->said[i].owner = new_map(slots_of_job(s, job));
	return j->owners;
}

void
sim_plan_end(struct sim_job *j)
{
	if (j->owners == NULL)
		return;
	for (unsigned i = 0; i < SIM_SHARDS; i++)
		for (unsigned k = 0; k < MAPS; k++)
			free(j->owners->shard[i].map[k]);
	for (unsigned i = 0; i < KEPT; i++)
		free(j->owners->said[i].owner);
	free(j->owners);
	j->owners = NULL;
}

/* Whose the slot is in a round, at the fragment's shard; NO_OWNER: anyone's. Before a shard has got any it is plan 0. */
static unsigned
owner_at(struct sim *s, unsigned job, const struct sim_fragment *f, uint32_t round, unsigned slot)
{
	const struct sim_job_spec *spec = &s->sc.job[job];
	const struct at_shard *a = &owners_of(s, job)->shard[s->box->endpoint[f->endpoint].shard];
	unsigned w = 0;

	if (a->any && a->only != 0 && round == a->only)
		return a->map[2][slot];
	if (a->any)
		return a->map[a->from != 0 && pbox_serial_diff(round, a->from) >= 0][slot];
	if (spec->least > 0) /* of those that had declared the table (R15.2) */
		return NO_OWNER;
	while (sim_slots_of(spec, w + 1) <= slot)
		w++;
	return w;
}

/* ---- owners at the shards ------------------------------------------------------------------------------- */

/* The last round that some fragment of the shard has finished, as far as anybody has heard. */
static uint32_t
highest_at(const struct sim *s, unsigned job, unsigned shard)
{
	const struct sim_job *j = &s->job[job];
	uint32_t highest = 0;

	for (uint32_t i = 0; i < j->n_fragments; i++)
		if (s->box->endpoint[j->fragment[i].endpoint].shard == shard &&
			j->fragment[i].published > highest)
			highest = j->fragment[i].published;
	return highest;
}

/* Each slot has an owner, a worker of the job; when the box has been started again, all wait for what workers say. */
static void
take_map(struct sim *s, unsigned job, struct at_shard *a, uint16_t *to, const uint16_t *from)
{
	const struct sim_job_spec *spec = &s->sc.job[job];
	unsigned nobodies = 0;

	for (unsigned slot = 0; slot < spec->slots; slot++) {
		unsigned w = from[slot] & PBOX_SLOT_WORKER;

		nobodies += w == PBOX_SLOT_NOBODY;
		if (w != PBOX_SLOT_NOBODY && w >= spec->workers)
			sim_fail(s, "job %u: slot %u is worker %u's, of %u", job, slot, w,
				spec->workers);
		to[slot] = (uint16_t)(w == PBOX_SLOT_NOBODY ? NO_OWNER : w);
	}
	if (nobodies > 0 && (s->box->generation == 0 || a->full))
		sim_fail(s, "job %u: %u slots of nobody", job, nobodies);
	a->full |= nobodies == 0;
}

static void
note_passed_over(struct sim *s, unsigned job, const struct at_shard *a)
{
	const struct sim_job_spec *spec = &s->sc.job[job];

	for (unsigned w = 0; w < spec->workers; w++) {
		bool has[2] = {false, false};

		for (unsigned slot = 0; slot < spec->slots; slot++)
			for (unsigned k = 0; k < 2; k++)
				has[k] |= a->map[k][slot] == w || a->map[k][slot] == NO_OWNER;
		if (!has[0] || (a->from != 0 && !has[1]))
			owners_of(s, job)->passed_over[w] = true;
	}
}

static bool
has_any(const uint16_t *map, unsigned slots, unsigned w)
{
	for (unsigned slot = 0; slot < slots; slot++)
		if ((map[slot] & PBOX_SLOT_WORKER) == w)
			return true;
	return false;
}

/* R15.10c: a worker that loses a slot of a round by a steal has given it up in that round before, or all of its slots are others', as it is dead. */
static void
check_stolen(
	struct sim *s, unsigned job, const struct at_shard *a, const struct pbox_job_owners *now)
{
	struct sim_owners *o = owners_of(s, job);
	bool same = a->only == now->only && a->full;

	if (s->job[job].n_fragments == 0) /* it has ended */
		return;
	for (unsigned i = 0; i < s->sc.shards; i++)
		if (now->only == 0 || pbox_serial_diff(now->only, highest_at(s, job, i)) <= 0)
			return; /* that round is over */
	for (unsigned slot = 0; slot < slots_of_job(s, job); slot++) {
		bool newer = now->from != 0 && pbox_serial_diff(now->only, now->from) >= 0;
		unsigned was = same ? a->map[2][slot] : now->map[newer][slot] & PBOX_SLOT_WORKER;
		unsigned is = now->map[2][slot] & PBOX_SLOT_WORKER;

		if (was >= SIM_WORKERS || was == is || o->died[was] != 0 || o->passed_over[was] ||
			!has_any(now->map[newer], slots_of_job(s, job), was) ||
			(o->given[slot] == now->only && o->given_by[slot] == was))
			continue;
		if (s->sc.job[job].stops == 0 && s->box->generation == 0)
			sim_fail(s,
				"job %u: slot %u of round %u is worker %u's, and worker %u has not given it up",
				job, slot, now->only, is, was);
	}
}

void
sim_plan_mail(struct sim *s, const struct pbox_mail *m)
{
	unsigned job = (unsigned)(pbox_shard_job_of(m->job)->name[3] - '0');
	const struct pbox_job_owners *now = &pbox_shard_inbox(m->job)->owners;
	struct sim_owners *o = owners_of(s, job);
	struct at_shard *a = &o->shard[m->shard];

	if (a->any && pbox_serial_diff(now->edition, a->edition) < 0)
		sim_fail(s, "job %u: shard %u has owners of edition %u, after %u", job, m->shard,
			now->edition, a->edition);
	if (now->from != 0 && (!a->any || now->plan != a->announced)) {
		a->announced = now->plan;
		a->highest = highest_at(s, job, m->shard);
	}
	a->any = true;
	a->edition = now->edition;
	a->from = now->from;
	a->plan = now->plan;
	check_stolen(s, job, a, now);
	a->only = now->only;
	for (unsigned k = 0; k < (a->only != 0 ? 3 : 2); k++)
		take_map(s, job, a, a->map[k], now->map[k]);
	note_passed_over(s, job, a);
	o->changes++;
}

/* The box has crashed: its shards know nothing. */
void
sim_plan_forget(struct sim *s, unsigned job)
{
	struct sim_owners *o = s->job[job].owners;

	if (o == NULL)
		return;
	for (unsigned i = 0; i < SIM_SHARDS; i++)
		o->shard[i].any = o->shard[i].full = false;
	o->since = s->now;
}

/* A worker says that it gives up slots of a round. */
void
sim_plan_gives(struct sim *s, unsigned job, const struct pbox_hdr *h, const uint8_t *payload)
{
	struct sim_owners *o;
	struct pbox_task m;

	if (!s->sc.job[job].plan || h->worker >= SIM_WORKERS ||
		h->token != sim_part(s, job)->token[h->worker] ||
		pbox_task_decode(payload, h->length, &m) != 0 || m.wish == 0)
		return;
	o = owners_of(s, job);
	for (unsigned slot = m.first; slot < m.end; slot++) {
		o->given[slot] = m.round;
		o->given_by[slot] = h->worker;
	}
}

/* R15.10c: all shards know that they are its own before it does. */
void
sim_plan_tasked(struct sim *s, unsigned job, const struct pbox_send *out)
{
	struct sim_owners *o = owners_of(s, job);
	struct pbox_task_ok m;

	if (pbox_task_ok_decode(out->payload, out->hdr.length, &m) != 0) {
		sim_fail(s, "TASK_OK that cannot be read");
		return;
	}
	for (unsigned i = 0; i < m.ranges; i++)
		for (unsigned slot = m.range[i].first; slot < m.range[i].end; slot++)
			for (unsigned k = 0; k < s->sc.shards; k++) {
				const struct at_shard *a = &o->shard[k];
				unsigned w = a->map[2][slot];

				if (!a->any || (a->only == m.round && w == out->hdr.worker))
					continue;
				if (a->only != m.round)
					w = a->map[a->from != 0 &&
						   pbox_serial_diff(m.round, a->from) >= 0][slot];
				if (w != out->hdr.worker && w != NO_OWNER)
					sim_fail(s,
						"job %u: worker %u hears that slot %u of round %u is its own, which is worker %u's at shard %u",
						job, out->hdr.worker, slot, m.round, w, k);
			}
}

/* ---- what workers hear --------------------------------------------------------------------------------- */

static struct said *
said_of(struct sim *s, unsigned job, uint32_t edition, uint32_t plan)
{
	struct sim_owners *o = owners_of(s, job);
	struct said *t;

	for (unsigned i = 0; i < KEPT && i < o->n_said; i++) {
		t = &o->said[i];
		if (t->generation == s->box->generation && t->edition == edition && t->plan == plan)
			return t;
	}
	t = &o->said[o->n_said++ % KEPT];
	t->generation = s->box->generation;
	t->edition = edition;
	t->plan = plan;
	t->workers = 0;
	memset(t->by, 0, sizeof(t->by));
	for (unsigned i = 0; i < slots_of_job(s, job); i++)
		t->owner[i] = NO_OWNER;
	return t;
}

/* Two workers that hear of the same owners have no slot in common, and all members together have all. */
static void
say(struct sim *s, unsigned job, struct said *t, unsigned w, const struct pbox_slot_range *range,
	unsigned n, unsigned members)
{
	unsigned slots = slots_of_job(s, job);

	for (unsigned i = 0; i < n; i++)
		for (unsigned slot = range[i].first; slot < range[i].end; slot++) {
			if (slot >= slots) {
				sim_fail(s, "job %u: worker %u hears that slot %u is its own", job,
					w, slot);
				return;
			}
			if (t->owner[slot] != NO_OWNER && t->owner[slot] != w)
				sim_fail(s,
					"job %u: slot %u has two owners in edition %u, plan %u: workers %u and %u",
					job, slot, t->edition, t->plan, t->owner[slot], w);
			t->owner[slot] = (uint16_t)w;
		}
	t->workers += n > 0 && !t->by[w]; /* who has none may be no member */
	t->by[w] |= n > 0;
	for (unsigned slot = 0; slot < slots && t->workers == members; slot++)
		if (t->owner[slot] == NO_OWNER)
			sim_fail(s,
				"job %u: slot %u is nobody's in edition %u, plan %u, of all that %u workers have heard",
				job, slot, t->edition, t->plan, members);
}

/* R15.6: where a plan was announced, nobody had finished the round before the one from which it holds. */
static void
check_from(struct sim *s, unsigned job, uint32_t plan, uint32_t from)
{
	for (unsigned i = 0; i < s->sc.shards; i++) {
		const struct at_shard *a = &owners_of(s, job)->shard[i];

		if (a->announced == plan && pbox_serial_diff(from, a->highest + 2) < 0)
			sim_fail(s,
				"job %u: plan %u holds from round %u, and round %u had ended when shard %u heard of it",
				job, plan, from, a->highest, i);
	}
}

/* Ranges of a round in which slots were stolen: they are no plan's. */
static bool
is_of_one_round(const struct sim_owners *o, unsigned shards, const struct pbox_work_ok *m)
{
	bool one = m->next_from != 0 && m->next_plan == m->plan;

	for (unsigned i = 0; i < shards; i++)
		one |= m->next_from != 0 && o->shard[i].any && o->shard[i].only + 1 == m->next_from;
	return one;
}

void
sim_plan_said(struct sim *s, unsigned job, const struct pbox_send *out)
{
	struct sim_owners *o = owners_of(s, job);
	unsigned w = out->hdr.worker;
	struct pbox_work_ok m;

	if (!s->sc.job[job].plan || w >= s->sc.job[job].workers ||
		pbox_work_ok_decode(out->payload, out->hdr.length, &m) != 0) {
		sim_fail(s, "WORK_OK that cannot be read, or of a job without plans");
		return;
	}
	if (m.again_ms != 0)
		return;
	if (pbox_serial_diff(m.edition, o->edition[w]) < 0)
		sim_fail(s, "job %u worker %u hears of edition %u, after %u", job, w, m.edition,
			o->edition[w]);
	o->edition[w] = m.edition;
	if (!is_of_one_round(o, s->sc.shards, &m))
		say(s, job, said_of(s, job, m.edition, m.plan), w, m.range, m.ranges, m.members);
	if (m.next_from == 0)
		return;
	if (m.next_plan != m.plan && pbox_serial_diff(m.next_plan, m.plan) <= 0)
		sim_fail(s, "job %u: plan %u follows plan %u", job, m.next_plan, m.plan);
	if (m.next_plan != m.plan)
		check_from(s, job, m.next_plan, m.next_from);
	say(s, job, said_of(s, job, m.edition, m.next_plan), w, m.next_range, m.next_ranges,
		m.members);
}

bool
sim_plan_was_passed_over(struct sim *s, unsigned job, unsigned w)
{
	return w < SIM_WORKERS && owners_of(s, job)->passed_over[w];
}

void
sim_plan_dead(struct sim *s, unsigned job, unsigned w)
{
	if (w >= SIM_WORKERS)
		return;
	owners_of(s, job)->died[w] = s->now;
	sim_part(s, job)->restorer[0][w] = 0; /* nobody waits for what it would report */
}

/* R15.7: the slots of a dead worker are others', as long as there are any. */
void
sim_plan_look(struct sim *s, unsigned job)
{
	struct sim_owners *o = s->job[job].owners;

	if (o == NULL || s->job[job].over || !s->box->up || s->now - o->since < GIVEN_AWAY)
		return;
	for (unsigned i = 0; i < s->sc.shards; i++) {
		const struct at_shard *a = &o->shard[i];

		for (unsigned slot = 0; a->any && slot < slots_of_job(s, job); slot++) {
			unsigned w = a->map[a->from != 0][slot];

			if (w == NO_OWNER || o->died[w] == 0 || s->now - o->died[w] < GIVEN_AWAY)
				continue;
			sim_fail(s, "job %u: slot %u is still worker %u's, which died %llu ms ago",
				job, slot, w, (unsigned long long)((s->now - o->died[w]) / MS));
			return;
		}
	}
}

/* ---- frames --------------------------------------------------------------------------------------------------- */

/* The slots of a node; false: there is no such node. */
static bool
node_of(const struct sim_job_spec *spec, uint32_t base, unsigned *first, unsigned *end)
{
	unsigned level = base >> 16;

	*first = base & 0xFFFF;
	if (level > 12 || *first % (1u << level) != 0 || *first >= spec->slots)
		return false;
	*end = *first + (1u << level) < spec->slots ? *first + (1u << level) : spec->slots;
	return true;
}

static bool
owns(struct sim *s, unsigned job, const struct sim_fragment *f, const struct pbox_hdr *h,
	unsigned first, unsigned end)
{
	for (unsigned slot = first; slot < end; slot++) {
		unsigned w = owner_at(s, job, f, h->round, slot);

		if (w != h->worker && w != NO_OWNER)
			return false;
	}
	return true;
}

/* What others bring of a slot than its owner counts for nothing. */
static void
plan_contribution(struct sim *s, unsigned job, struct sim_fragment *f, const struct pbox_hdr *h,
	const uint8_t *payload, bool intact)
{
	const struct sim_job_spec *spec = &s->sc.job[job];
	unsigned first, end;

	(void)payload;
	if (!node_of(spec, h->base, &first, &end) || end > f->slots) {
		if (intact)
			sim_fail(s, "job %u worker %u brings node %x of %u slots", job, h->worker,
				h->base, spec->slots);
		return;
	}
	if (!owns(s, job, f, h, first, end))
		return;
	if (intact)
		f->slot[first].width = (uint16_t)(1u << (h->base >> 16));
	for (struct sim_slot *l = f->slot + first; l < f->slot + end; l++) {
		if (pbox_serial_diff(h->round, l->opened) > 0)
			l->opened = h->round;
		if (!intact || pbox_serial_diff(h->round, l->arrived) <= 0)
			continue;
		l->arrived = h->round;
		l->at = s->now;
		s->box->progress_at = s->now;
	}
}

static void
plan_result(struct sim *s, unsigned job, struct sim_fragment *f, const struct pbox_send *out)
{
	const struct at_shard *a = &owners_of(s, job)->shard[s->box->endpoint[f->endpoint].shard];

	if (a->any && out->hdr.prio != (uint8_t)a->edition)
		sim_fail(s, "job %u chunk %x frag %u: RESULT says edition %u, which is %u", job,
			f->chunk, f->frag, out->hdr.prio, a->edition);
	sim_law_rounds.result(s, job, f, out);
}

/* What is its own and was not heard of is missing, and nothing else. */
static void
plan_wait(struct sim *s, unsigned job, struct sim_fragment *f, const struct pbox_hdr *h)
{
	const struct sim_job_spec *spec = &s->sc.job[job];
	uint32_t next = f->published + 1;
	uint32_t round = pbox_serial_diff(h->round, next) > 0 ? h->round : next;
	unsigned end = f->slots;
	bool have = (h->flags & PBOX_F_HAVE) != 0;

	if (h->aux > f->slots || (h->weight >= spec->workers && h->weight != UINT32_MAX))
		sim_fail(s, "WAIT names %u contributors and worker %u of %u", h->aux, h->weight,
			spec->workers);
	if (h->worker >= spec->workers)
		return;
	if (!have &&
		(h->base >= f->slots ||
			!owns(s, job, f, &(struct pbox_hdr){.worker = h->worker, .round = round},
				h->base, h->base + 1))) {
		sim_fail(s,
			"job %u chunk %x frag %u: WAIT of round %u says that slot %u is missing, which is not worker %u's",
			job, f->chunk, f->frag, h->round, h->base, h->worker);
		return;
	}
	if (!have)
		end = h->base;
	for (unsigned slot = 0; slot < end; slot++)
		if (owner_at(s, job, f, round, slot) == h->worker &&
			!slots_opened(f, slot, slot + 1, round)) {
			sim_fail(s,
				"job %u chunk %x frag %u: WAIT of round %u says that worker %u has brought slot %u, and it has not come",
				job, f->chunk, f->frag, h->round, h->worker, slot);
			return;
		}
}

static void
plan_pushed(struct sim *s, unsigned job, struct sim_fragment *f, const struct pbox_hdr *h)
{
	unsigned first, end;

	if (!node_of(&s->sc.job[job], h->base, &first, &end) ||
		(owns(s, job, f, h, first, end) && !slots_opened(f, first, end, h->round)))
		sim_fail(s,
			"job %u chunk %x frag %u: PUSH_OK of round %u to worker %u names node %x, which has not come",
			job, f->chunk, f->frag, h->round, h->worker, h->base);
}

/* Who owes something to the round after it needs it. */
static void
plan_overwritten(struct sim *s, unsigned job, struct sim_fragment *f, const struct pbox_hdr *h)
{
	for (unsigned slot = 0; slot < f->slots; slot++)
		if (owner_at(s, job, f, h->round + 1, slot) == h->worker &&
			pbox_serial_diff(f->slot[slot].arrived, h->round) <= 0) {
			sim_fail(s,
				"job %u chunk %x frag %u: version %u was overwritten before worker %u had it",
				job, f->chunk, f->frag, h->round, h->worker);
			return;
		}
}

static void
plan_completed(struct sim *s, const struct sim_worker *w, const struct sim_op *o,
	const struct sim_piece *p, const uint8_t *got)
{
	sim_law_rounds.completed(s, w, o, p, got);
}

/* How many contributions there are depends on who owned what. */
static void
plan_round_end(struct sim *s, unsigned job, const struct sim_fragment *f)
{
	(void)job;
	(void)f;
	sim_inexact(s, job);
}

const struct sim_law sim_law_plan = {
	.name = "rounds, by plan",
	.contribution = plan_contribution,
	.result = plan_result,
	.wait = plan_wait,
	.pushed = plan_pushed,
	.overwritten = plan_overwritten,
	.completed = plan_completed,
	.end = plan_round_end,
	.keep = rounds_keep,
	.load = rounds_load,
	.forget = rounds_forget,
	.told = rounds_told,
	.restored = rounds_restored,
};
