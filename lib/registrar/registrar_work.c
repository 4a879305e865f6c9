/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * Work by plan (section 15 of the protocol): reports of workers in, owners of slots out. lib/work decides; this part
 * feeds it, gives the shards the owners, and sees that no worker computes a round by two plans:
 *
 *     a plan is made -> edition + 1, its map to the shards (ANNOUNCED) -> all have it -> from_round is two rounds after
 *     the last finished one, or that map goes out once more -> workers that ask WORK get it.
 *
 * While a mail with owners is out a worker that asks has to ask again.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <pbox_slots.h>
#include <pbox_work.h>

#include "registrar_work.h"

/* A worker that is silent for as long is asked whether it lives (R15.7). */
#define ASK_AFTER (150 * NS_PER_MS)
#define AGAIN_MS  2

bool
registrar_is_planned(const struct pbox_job *job)
{
	return job->policy == PBOX_POLICY_REASSIGN;
}

/* ---- owners ---------------------------------------------------------------------------------- */

bool
registrar_work_settled(const struct pbox_registrar *r, const struct pbox_job *job)
{
	for (unsigned i = 0; i < r->conf.n_shards; i++)
		if (pbox_shard_inbox(job->shard[i])->mails[PBOX_MAIL_OWNERS] > 0)
			return false;
	return true;
}

/* ---- the room -------------------------------------------------------------------------------- */

static size_t
heap_of(const struct pbox_job *job)
{
	return job->slots * 64u + job->workers * 1024u;
}

/* R15.2: those that have declared the table by now. After a restart of the box they say what they own. */
static void
find_first(struct pbox_job *job, bool *here)
{
	bool any = false;

	for (unsigned w = 0; w < job->workers; w++) {
		here[w] = registrar_has_session(job, w) && job->member[w].declared > TABLE;
		any |= here[w];
	}
	for (unsigned w = 0; w < job->workers; w++) {
		here[w] |= !any || job->least == 0 || job->resumed;
		work_member_of(job, w)->entered = here[w];
	}
}

static bool
work_begin(struct pbox_registrar *r, struct pbox_job *job)
{
	struct work *k = work_of(job);
	bool here[PBOX_WORK_MAX_WORKERS];
	const struct pbox_work_conf conf = {.workers = job->workers,
		.slots = job->slots,
		.everyone = true,
		.here = here,
		.nodes_most = job->nodes};
	struct pbox_error err;

	PBOX_ASSERT(registrar_is_planned(job) && k->room == NULL);
	if (!pbox_job_charge(job, heap_of(job)))
		return false;
	find_first(job, here);
	k->memory = calloc(PBOX_OWNER_MAPS * (size_t)job->slots, sizeof(*k->memory));
	k->room = k->memory != NULL ? pbox_work_create(&conf, &err) : NULL;
	if (k->room == NULL) {
		free(k->memory);
		k->memory = NULL;
		pbox_job_refund(job, heap_of(job));
		return false;
	}
	for (unsigned i = 0; i < PBOX_OWNER_MAPS; i++)
		job->owners.map[i] = k->memory + i * job->slots;
	k->claiming = job->resumed;
	for (unsigned i = 0; i < 2; i++)
		for (unsigned slot = 0; slot < job->slots; slot++)
			job->owners.map[i][slot] =
				k->claiming ? PBOX_SLOT_NOBODY : pbox_work_owners(k->room)[slot];
	k->begun_ns = k->round_ns = r->now_ns;
	registrar_work_publish(r, job);
	return true;
}

bool
registrar_work_is_open(const struct pbox_registrar *r, const struct pbox_job *job)
{
	return registrar_is_planned(job) && job->state == PBOX_JOB_OPEN && job->n_tables > 0 &&
	       job->table[TABLE]->built && !job->table[TABLE]->failed &&
	       job->table[TABLE]->shards_open == r->conf.n_shards;
}

bool
registrar_work_ready(struct pbox_registrar *r, struct pbox_job *job)
{
	if (!registrar_is_planned(job))
		return true;
	if (!registrar_work_is_open(r, job) || (work_of(job)->room == NULL && !work_begin(r, job)))
		return false;
	return registrar_work_settled(r, job);
}

static void
work_job_end(struct pbox_registrar *r, struct pbox_job *job)
{
	struct work *k = work_of(job);

	(void)r;
	pbox_work_destroy(k->room);
	free(k->memory);
	k->room = NULL;
	k->memory = NULL;
}

/* A newcomer has begun when each fragment has the version before the round in which it has slots: it can do slots of that round then,
 * as others die, and not before (R15.7a). */
static void
look_at_newcomers(struct pbox_job *job)
{
	struct work *k = work_of(job);
	const uint16_t *map;

	if (!k->any_fresh || !registrar_work_finished(job, k->round - 1))
		return;
	map = work_map(job, k->round);
	for (unsigned slot = 0; slot < job->slots; slot++) {
		unsigned w = registrar_owner_at(map, slot);

		if (w < job->workers && work_member_of(job, w)->fresh && work_is_member(k, w)) {
			work_member_of(job, w)->fresh = false;
			pbox_work_fresh(k->room, w, false);
		}
	}
	k->any_fresh = false;
	for (unsigned w = 0; w < job->workers; w++)
		k->any_fresh |= work_member_of(job, w)->fresh;
}

/* The round in progress, by what the shards have finished. */
void
registrar_work_look(struct pbox_registrar *r, struct pbox_job *job)
{
	struct work *k = work_of(job);
	uint32_t finished = 0;

	registrar_finished(r, job, TABLE, &finished);
	/* what all fragments of a core have finished stays finished */
	PBOX_ASSERT(k->round == 0 || pbox_serial_diff(finished + 1, k->round) >= 0);
	if (k->round == finished + 1)
		return;
	k->round = finished + 1;
	k->round_ns = r->now_ns;
	if (!k->announced)
		work_room_round(k);
}

/* ---- members --------------------------------------------------------------------------------- */

/* Its slots go to others, in all rounds that are not finished. */
static void
work_gone(struct pbox_registrar *r, struct pbox_job *job, unsigned w)
{
	struct work *k = work_of(job);
	struct pbox_job_owners *o = &job->owners;
	const struct pbox_work_move *move;
	const struct pbox_work_plan *next;
	struct pbox_work_reason why;
	unsigned now = work_map_in(job, k->round), n;

	PBOX_ASSERT(!k->claiming && work_is_member(k, w)); /* it had slots to give */
	work_member_of(job, w)->fresh = false;
	n = pbox_work_gone(k->room, w, work_seconds(r, k), &move, &why);
	if (registrar_steal_gone(job, w, move, n))
		registrar_owners_give_as(job, o->map[now], w, pbox_work_plan(k->room)->owner);
	for (unsigned i = 0; i < n && !registrar_steal_is_on(job); i++)
		registrar_owners_give(o->map[now], job->slots, &move[i]);
	next = pbox_work_next(k->room);
	if (now == 1 || next == NULL) {
		registrar_owners_give_by_turns(job, k->room, o->map[!now], w);
	} else {
		registrar_owners_give_as(job, o->map[1], w, next->owner);
	}
	registrar_steal_gone_before(job, w);
	registrar_work_note(r, job, &why);
	k->tell = true;
	registrar_work_publish(r, job);
}

/* It has had the model of a round, and so can do slots of one. */
static bool
work_has_begun(const struct pbox_job *job, unsigned w)
{
	return work_member_of(job, w)->entered && !work_member_of(job, w)->fresh;
}

static bool
is_heard(const struct pbox_registrar *r, const struct pbox_job *job, unsigned w)
{
	return registrar_has_session(job, w) &&
	       pbox_registrar_silence(r, job, w, r->now_ns) < ASK_AFTER + 500 * NS_PER_MS;
}

/* A member, to whom slots can be given. One that was taken for dead may wait for its round, and not ask: it is a member again
 * where no other one lives that has begun. */
static bool
somebody_else_lives(struct pbox_registrar *r, struct pbox_job *job, unsigned but)
{
	struct work *k = work_of(job);
	const struct pbox_work_move *move;
	unsigned back = job->workers;
	bool fresh = false;

	for (unsigned w = 0; w < job->workers; w++) {
		if (w == but || !is_heard(r, job, w))
			continue;
		if (work_is_member(k, w) && !work_member_of(job, w)->fresh)
			return true;
		fresh |= work_is_member(k, w);
		if (!work_is_member(k, w) && (back == job->workers || work_has_begun(job, w)))
			back = w;
	}
	/* newcomers can do slots of a round of which all fragments begin with one version */
	if (back == job->workers || (fresh && !work_has_begun(job, back)))
		return fresh && registrar_work_finished(job, k->round - 1);
	pbox_work_join(k->room, back, &move);
	return true;
}

static bool
is_dead(struct pbox_registrar *r, struct pbox_job *job, unsigned w)
{
	return !registrar_has_session(job, w) ||
	       (pbox_registrar_silence(r, job, w, r->now_ns) >= ASK_AFTER &&
		       registrar_ask_again(r, job, w) == REGISTRAR_DEAD);
}

/* Who is silent is asked; who does not answer loses its slots, and keeps its session. A session may have ended while nobody
 * else was heard. */
static void
look_at_members(struct pbox_registrar *r, struct pbox_job *job)
{
	struct work *k = work_of(job);

	for (unsigned w = 0; w < job->workers; w++)
		if (work_is_member(k, w) && is_dead(r, job, w) && somebody_else_lives(r, job, w))
			work_gone(r, job, w);
}

/* A process that joins again, as its session was lost, has the model still. */
static void
work_session_begin(struct pbox_registrar *r, struct pbox_job *job, unsigned w)
{
	struct work_member *m = work_member_of(job, w);

	(void)r;
	m->entered = m->had_begun && m->nonce == job->member[w].nonce;
	m->had_begun = false;
	m->nonce = job->member[w].nonce;
}

static void
work_session_end(struct pbox_registrar *r, struct pbox_job *job, unsigned w)
{
	struct work_member *m = work_member_of(job, w);
	struct work *k = work_of(job);

	m->had_begun = m->entered && !m->fresh;
	m->entered = m->fresh = false;
	if (k->room != NULL && !k->claiming && job->state == PBOX_JOB_OPEN &&
		work_is_member(k, w) && somebody_else_lives(r, job, w))
		work_gone(r, job, w);
}

/* All shards know who has the slots of one that is gone: those that wait for it ask at once when they are pinged (R15.8). */
static void
tell_members(struct pbox_registrar *r, struct pbox_job *job)
{
	struct work *k = work_of(job);

	k->tell = false;
	for (unsigned w = 0; w < job->workers; w++)
		if (work_is_member(k, w) && registrar_has_session(job, w))
			registrar_ping(r, job, w);
}

/* ---- plans ----------------------------------------------------------------------------------- */

/* All that live have said what they own, or had the time to. */
static void
end_claims(struct pbox_registrar *r, struct pbox_job *job)
{
	bool waits = false;

	for (unsigned w = 0; w < job->workers; w++)
		waits |= !work_member_of(job, w)->claimed && !is_dead(r, job, w);
	if (!registrar_claims_end(r, job, waits))
		return;
	registrar_work_publish(r, job);
	look_at_members(r, job);
}

static void
work_tick(struct pbox_registrar *r, struct pbox_job *job)
{
	struct work *k = work_of(job);

	if (!registrar_work_is_open(r, job) || (k->room == NULL && !work_begin(r, job)))
		return;
	registrar_work_look(r, job);
	look_at_newcomers(job);
	if (k->claiming) {
		end_claims(r, job);
		return;
	}
	look_at_members(r, job);
	if (!registrar_work_settled(r, job))
		return;
	if (k->tell)
		tell_members(r, job);
	registrar_plan_tick(r, job);
}

/* ---- WORK ------------------------------------------------------------------------------------ */

/* A program that draws its samples itself says no batch: then a slot counts as one. */
static uint32_t
slot_samples(const struct pbox_job *job, const struct pbox_work_ask *m)
{
	return m->batch >= job->slots ? m->batch / job->slots : 1;
}

/* R15.4a: may it have slots? */
static bool
holds_slot(const struct pbox_job *job, const struct pbox_work_ask *m)
{
	return m->fits >= slot_samples(job, m);
}

static void
take_memory(struct pbox_job *job, unsigned w, const struct pbox_work_ask *m)
{
	struct registrar_work_seen *seen = &work_member_of(job, w)->seen;

	if (m->fits == UINT32_MAX)
		return;
	seen->fits = m->fits;
	seen->samples = slot_samples(job, m);
	if (m->slots == 0) /* else with what it has computed */
		pbox_work_fits(work_of(job)->room, w, m->round - 1, holds_slot(job, m));
}

static bool
take_report(struct pbox_registrar *r, const struct pbox_frame *f, struct pbox_job *job,
	const struct pbox_work_ask *m)
{
	const struct pbox_work_report report = {.round = m->round - 1,
		.slots = m->slots,
		.payloads = m->payloads,
		.fits = holds_slot(job, m),
		.compute = m->compute,
		.fixed = m->fixed,
		.up = m->up,
		.down = m->down};
	struct work *k = work_of(job);
	struct registrar_work_seen *seen = &work_member_of(job, f->hdr.worker)->seen;
	struct pbox_error err;

	if (pbox_serial_diff(m->round, k->round + 1) > 0)
		return registrar_refuse(r, f, PBOX_E_BAD_REQUEST, k->round,
			"worker %u asks for round %u, and round %u is in progress", f->hdr.worker,
			m->round, k->round);
	take_memory(job, f->hdr.worker, m);
	if (m->slots == 0)
		return true;
	if (pbox_work_report(k->room, f->hdr.worker, &report, &err) < 0)
		return registrar_refuse(r, f, PBOX_E_BAD_REQUEST, m->round, "%s", err.text);
	seen->round = m->round - 1;
	seen->seconds = m->fixed + m->compute + m->up + m->down;
	return true;
}

/* Where it has got more pieces than it can bring, some become one. */
static void
join_pieces(
	struct pbox_registrar *r, struct pbox_job *job, unsigned w, const struct pbox_work_ask *m)
{
	const struct pbox_job_owners *o = &job->owners;
	unsigned in = work_map_in(job, m->round);
	uint16_t *map = work_map(job, m->round);
	struct pbox_slot_range range[PBOX_RANGE_NODES];
	bool any = false;
	uint16_t n;

	if (!registrar_owners_ranges(job, map, w, range, &n))
		any |= registrar_owners_join(job, map, w, m->range, m->ranges);
	if (in == 0 && o->from != 0 && !registrar_owners_ranges(job, o->map[1], w, range, &n))
		any |= registrar_owners_join(job, o->map[1], w, NULL, 0);
	if (any)
		registrar_work_publish(r, job);
}

/* R15.7a: what it must know before it begins. */
static void
tell_newcomer(const struct pbox_job *job, const struct pbox_work_ask *m, struct pbox_work_ok *a)
{
	const struct work *k = work_of(job);
	const struct pbox_table *t = &job->table[TABLE]->t;
	struct pbox_hyper h;

	a->now = k->round;
	a->trained = k->training.said ? k->round + k->training.offset : PBOX_WORK_UNKNOWN;
	if (m->group >= t->n_groups)
		return;
	h = *pbox_schedule_at(&t->schedule[m->group], k->round - 1);
	for (unsigned i = 0; i < PBOX_WORK_HYPERS; i++)
		if (pbox_hyper_at(&h, i + 1) != NULL)
			a->hyper[i] = *pbox_hyper_at(&h, i + 1);
}

static void
send_work(struct pbox_registrar *r, const struct pbox_frame *f, struct pbox_job *job,
	const struct pbox_work_ask *m, uint16_t again_ms)
{
	const struct pbox_job_owners *o = &job->owners;
	const struct work *k = work_of(job);
	struct pbox_work_ok a = {.table = m->table,
		.edition = o->edition,
		.again_ms = again_ms,
		.leads = PBOX_NO_WORKER};
	bool stolen = o->only != 0 && o->only == m->round;
	unsigned in = work_map_in(job, m->round);
	bool fits = true, next = o->from != 0 && in == 0;

	for (unsigned w = job->workers; w-- > 0;)
		if (work_is_member(k, w)) {
			a.members++;
			a.leads = w;
		}
	a.plan = k->plan[in];
	tell_newcomer(job, m, &a);
	registrar_decision_say(job, m->round, &a);
	if (again_ms != 0) { /* R15.8a: for which round it is to say what it owns */
		a.now = registrar_claims_round(job, m->round);
	} else {
		fits = registrar_owners_ranges(
			job, work_map(job, m->round), f->hdr.worker, a.range, &a.ranges);
		if (stolen || next) { /* after a round with steals slots are whose they were */
			a.next_from = stolen ? m->round + 1 : o->from;
			in = work_map_in(job, a.next_from);
			a.next_plan = k->plan[in];
			fits = fits && registrar_owners_ranges(job, o->map[in], f->hdr.worker,
					       a.next_range, &a.next_ranges);
		}
	}
	if (!fits) {
		registrar_refuse(r, f, PBOX_E_FULL, PBOX_RANGE_NODES,
			"worker %u has got slots of workers that are gone in more than %u pieces: start the job again with fewer slots",
			f->hdr.worker, PBOX_RANGE_NODES);
		return;
	}
	registrar_reply(
		r, f, PBOX_WORK_OK, pbox_work_ok_encode(r->scratch, sizeof(r->scratch), &a));
}

/* A newcomer, or one that was taken for dead, is a member from here on. One that began in the middle of a round cannot do slots of
 * an earlier one. */
static void
work_enter(struct pbox_registrar *r, struct pbox_job *job, unsigned w, uint32_t round)
{
	struct work *k = work_of(job);
	const struct pbox_work_move *move;
	bool newcomer = !work_member_of(job, w)->entered;
	unsigned n;

	PBOX_ASSERT(k->room != NULL && !k->claiming);
	if ((work_is_member(k, w) && work_member_of(job, w)->entered) ||
		!registrar_work_finished(job, round - 1))
		return;
	work_member_of(job, w)->entered = true;
	if (work_is_member(k, w))
		return;
	n = pbox_work_join(k->room, w, &move);
	work_member_of(job, w)->fresh = newcomer && n == 0;
	pbox_work_fresh(k->room, w, newcomer && n == 0);
	k->any_fresh |= newcomer && n == 0;
	if (n > 0 && registrar_steal_is_on(job))
		registrar_owners_give_as(job, job->owners.map[work_map_in(job, k->round)],
			PBOX_SLOT_NOBODY, pbox_work_plan(k->room)->owner);
	for (unsigned i = 0; i < n; i++)
		registrar_owners_give(work_map(job, k->round), job->slots, &move[i]);
	if (n > 0)
		registrar_work_publish(r, job);
}

/* R15.7a: nobody lives that could finish the round in progress, which some fragments have finished. Who is a member already waits as long as
 * one that could has a session. */
static bool
is_too_late(struct pbox_registrar *r, struct pbox_job *job, unsigned w)
{
	struct work *k = work_of(job);

	if (work_has_begun(job, w) || registrar_work_finished(job, k->round - 1))
		return false;
	for (unsigned i = 0; i < job->workers; i++) {
		bool lives = work_member_of(job, w)->fresh ? registrar_has_session(job, i)
							   : is_heard(r, job, i);

		if (i != w && work_has_begun(job, i) && lives)
			return false;
	}
	return true;
}

static void
on_work(struct pbox_registrar *r, const struct pbox_frame *f, struct pbox_job *job)
{
	struct pbox_work_ask m;
	unsigned w = f->hdr.worker;
	struct work *k = work_of(job);

	if (pbox_work_ask_decode(f->payload, f->hdr.length, &m) < 0) {
		count_control(r, PBOX_RS_DROP_MALFORMED);
		return;
	}
	count_control(r, PBOX_RS_RX_WORK);
	if (!registrar_is_planned(job)) {
		registrar_refuse(r, f, PBOX_E_BAD_REQUEST, 0,
			"job '%s' has policy %s: only one with policy reassign has work by plan",
			job->name, pbox_policy_name(job->policy));
		return;
	}
	if (m.table != TABLE || !registrar_work_is_open(r, job)) {
		registrar_refuse(
			r, f, PBOX_E_BAD_REQUEST, m.table, "table %u is not mapped yet", m.table);
		return;
	}
	if (k->room == NULL && !work_begin(r, job)) {
		registrar_refuse(r, f, PBOX_E_NO_MEMORY, 0, "no memory for the plans of job '%s'",
			job->name);
		return;
	}
	registrar_work_look(r, job);
	if (k->claiming) {
		registrar_claims_take(job, w, &m);
		end_claims(r, job);
		if (k->claiming) {
			send_work(r, f, job, &m, CLAIM_AGAIN);
			return;
		}
	}
	if (!registrar_trains_alike(r, f, &k->training, &m) || !take_report(r, f, job, &m))
		return;
	if (is_too_late(r, job, w)) {
		registrar_refuse(r, f, PBOX_E_LOST, k->round,
			"the workers of job '%s' died in the middle of round %u, and nobody has the model of the round before it: start the job again from a checkpoint, with another name of the run",
			job->name, k->round);
		return;
	}
	if (m.trained != PBOX_WORK_UNKNOWN)
		work_enter(r, job, w, m.round);
	if (registrar_work_settled(r, job))
		registrar_plan_fix(r, job);
	if (registrar_work_settled(r, job) && !k->announced)
		join_pieces(r, job, w, &m);
	send_work(r, f, job, &m,
		registrar_work_settled(r, job) && !k->announced && !registrar_steal_waits(job, w)
			? 0
			: AGAIN_MS);
}

/* ---- what is to be seen ---------------------------------------------------------------------- */

bool
pbox_registrar_view_work(
	const struct pbox_registrar *r, const struct pbox_job *job, struct pbox_job_work *out)
{
	const struct work *k = work_of(job);
	const struct task *t = task_of(job);
	unsigned first = k->n_changes > CHANGES ? k->n_changes - CHANGES : 0;

	(void)r;
	*out = (struct pbox_job_work){.round = k->round, .steals = t->steals, .stolen = t->stolen};
	if (k->room == NULL)
		return false;
	out->plan = k->plan[work_map_in(job, k->round)];
	out->edition = job->owners.edition;
	out->next_from = pbox_work_next(k->room) != NULL ? job->owners.from : 0;
	out->predicted = pbox_work_plan(k->room)->seconds;
	for (unsigned i = first; i < k->n_changes; i++)
		out->change[out->changes++] = k->change[i % CHANGES];
	return true;
}

void
pbox_registrar_view_worker_work(const struct pbox_registrar *r, const struct pbox_job *job,
	unsigned worker, struct pbox_member_work *out)
{
	const struct work *k = work_of(job);
	const struct task_member *t = task_member_of(job, worker);
	const struct registrar_work_seen *seen = &work_member_of(job, worker)->seen;
	const uint16_t *map;
	struct pbox_work_view v;

	(void)r;
	*out = (struct pbox_member_work){.round = seen->round,
		.seen = seen->seconds,
		.fits = seen->fits,
		.samples = seen->samples,
		.got = t->got,
		.gave = t->gave};
	if (k->room == NULL)
		return;
	map = work_map(job, k->round);
	pbox_work_view(k->room, worker, &v);
	out->member = v.member;
	out->slot_seconds = v.cost.slot;
	out->predicted = pbox_work_plan(k->room)->finish[worker];
	for (unsigned slot = 0; slot < job->slots; slot++)
		out->slots += registrar_owner_at(map, slot) == worker;
}

const struct registrar_part registrar_work_part = {
	.name = "work by plan",
	.types = {{on_work, PBOX_WORK}},
	.session_begin = work_session_begin,
	.session_end = work_session_end,
	.tick_all = registrar_plan_begin,
	.tick = work_tick,
	.job_end = work_job_end,
	.state = sizeof(struct registrar_plans),
	.job_state = sizeof(struct work),
	.member_state = sizeof(struct work_member),
};
