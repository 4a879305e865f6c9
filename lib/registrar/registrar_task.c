/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * TASK (R15.10 of the protocol): a worker that has computed its slots asks for some of one that would end last.
 *
 *     thief: TASK -> the others are asked where they are -> thief: TASK again -> lib/work says whose slots -> that worker is
 *     asked to give them up -> it has -> their owner in this round changes, and all shards hear it -> thief: TASK again ->
 *     TASK_OK with the slots.
 *
 * Between these the thief has to ask again. Who does not ask costs nothing.
 */

#include "registrar_work.h"

#define AGAIN_MS   1
#define FRESH      (10 * NS_PER_MS) /* what a worker has said of itself */
#define ASK_AGAIN  (3 * NS_PER_MS)  /* it has not answered */
#define TRIES      5 /* so many times: then nothing is stolen from it in this round */
#define WISH_AGAIN (5 * NS_PER_MS)

/* ---- what workers are asked ------------------------------------------------------------------- */

static void
send_wish(struct pbox_registrar *r, const struct pbox_job *job, unsigned w)
{
	struct task_member *m = task_member_of(job, w);
	const struct pbox_task wish = {.table = TABLE,
		.round = task_of(job)->round,
		.wish = m->wish,
		.first = m->first,
		.end = m->end};
	struct pbox_send out = {.hdr = {.type = PBOX_TASK}};

	m->sent_ns = r->now_ns;
	out.payload = r->scratch;
	out.hdr.length = (uint16_t)pbox_task_encode(r->scratch, sizeof(r->scratch), &wish);
	out.payload_crc = pbox_crc32c(0, r->scratch, out.hdr.length);
	registrar_send(r, job, w, &out);
}

static void
wish_for(struct pbox_registrar *r, const struct pbox_job *job, unsigned w, unsigned first,
	unsigned end)
{
	struct task_member *m = task_member_of(job, w);

	/* one wish at a time: what it asks for may be given up already */
	PBOX_ASSERT(first <= end && end <= job->slots && !registrar_steal_waits(job, w));
	if (++task_of(job)->wishes == 0)
		task_of(job)->wishes++;
	m->wish = task_of(job)->wishes;
	m->first = (uint16_t)first;
	m->end = (uint16_t)end;
	send_wish(r, job, w);
}

/* Is it known which of its slots it has not begun, or does it not matter? If not it is asked. */
static bool
has_answered(struct pbox_registrar *r, const struct pbox_job *job, unsigned w)
{
	struct task_member *m = task_member_of(job, w);
	struct pbox_work_view v;

	pbox_work_view(work_of(job)->room, w, &v);
	if (!v.member || v.slots == 0 || m->done || m->tries >= TRIES ||
		!registrar_has_session(job, w) || registrar_steal_waits(job, w) ||
		(m->heard_ns != 0 && r->now_ns - m->heard_ns < FRESH))
		return true;
	if (m->wish != 0 && r->now_ns - m->sent_ns < ASK_AGAIN)
		return false;
	m->tries++;
	wish_for(r, job, w, 0, 0);
	return false;
}

static bool
all_are_known(struct pbox_registrar *r, const struct pbox_job *job, unsigned but)
{
	bool known = true;

	for (unsigned w = 0; w < job->workers; w++)
		known &= w == but || has_answered(r, job, w);
	return known;
}

/* ---- slots change hands ------------------------------------------------------------------------ */

static void
forget_round(struct pbox_job *job)
{
	struct work *k = work_of(job);
	struct task *t = task_of(job);

	if (t->round == k->round)
		return;
	t->round = k->round;
	for (unsigned w = 0; w < job->workers; w++) {
		struct task_member *m = task_member_of(job, w);

		m->wish = 0;
		m->heard_ns = 0;
		m->tries = 0;
		m->done = m->tell = false;
		pbox_work_keeps(k->room, w, true);
	}
}

/* More nodes than a worker can bring. */
static bool
is_too_many(const struct pbox_job *job, unsigned w, const struct pbox_work_move *move)
{
	struct pbox_node node[PBOX_RANGE_NODES];
	struct pbox_slot_range range[PBOX_RANGE_NODES];
	uint16_t ranges = 0;
	unsigned n;

	if (!registrar_owners_ranges(job, work_map(job, task_of(job)->round), w, range, &ranges))
		return true;
	n = pbox_range_nodes(move->first, move->end, job->slots, node);
	for (unsigned i = 0; i < ranges; i++)
		n += pbox_range_nodes(range[i].first, range[i].end, job->slots, node);
	return n > PBOX_RANGE_NODES;
}

/* A thief has slots of its own: are they known to be its own everywhere? */
enum has { HAS_NONE, HAS_SOON, HAS };

/* Its own by the room: by the map, too, or wished of a victim that has not given them up yet. What was nobody's it gets. */
static enum has
thief_has(struct pbox_registrar *r, struct pbox_job *job, unsigned w,
	const struct pbox_work_move *move)
{
	const uint16_t *map = work_map(job, task_of(job)->round);
	bool all = true, any = false;

	for (unsigned slot = move->first; slot < move->end; slot++) {
		unsigned owner = registrar_owner_at(map, slot);

		all &= owner == w;
		if (owner != PBOX_SLOT_NOBODY)
			continue;
		registrar_steal_settle(job, slot, slot + 1);
		any = true;
	}
	if (any)
		registrar_post(r, job, PBOX_MAIL_OWNERS);
	return all ? HAS : HAS_SOON;
}

static enum has
find_slots(struct pbox_registrar *r, struct pbox_job *job, unsigned w)
{
	struct work *k = work_of(job);
	struct pbox_work_move move;
	struct pbox_work_reason why;

	if (!pbox_work_task(k->room, w, work_seconds(r, k), &move, &why))
		return registrar_steal_is_asking(job) ? HAS_SOON : HAS_NONE;
	PBOX_ASSERT(move.first < move.end && move.end <= job->slots && move.to == w);
	registrar_steal_begin(job);
	if (move.from == move.to)
		return thief_has(r, job, w, &move);
	if (is_too_many(job, w, &move)) {
		pbox_work_hand(k->room, move.first, move.end, move.from);
		return HAS_NONE;
	}
	wish_for(r, job, move.from, move.first, move.end);
	pbox_work_keeps(k->room, move.from, true); /* one wish at a time */
	return HAS_SOON;
}

/* What the victim has not given up is its own again. */
static void
give_back(struct pbox_job *job, unsigned w, unsigned first, unsigned end)
{
	if (first < end)
		pbox_work_hand(work_of(job)->room, first, end, w);
}

static void
change_hands(
	struct pbox_registrar *r, struct pbox_job *job, unsigned w, unsigned first, unsigned end)
{
	const uint16_t *owner = pbox_work_owners(work_of(job)->room);
	struct task *t = task_of(job);

	PBOX_ASSERT(first < end && registrar_steal_is_on(job));
	registrar_steal_settle(job, first, end);
	task_member_of(job, w)->gave += end - first;
	t->steals++;
	t->stolen += end - first;
	pbox_stat_add(&r->stats[PBOX_RS_STOLEN], end - first);
	for (unsigned slot = first; slot < end; slot++)
		if (owner[slot] < job->workers) {
			task_member_of(job, owner[slot])->got++;
			task_member_of(job, owner[slot])->tell = true;
		}
	registrar_post(r, job, PBOX_MAIL_OWNERS);
}

/* ---- TASK -------------------------------------------------------------------------------------- */

static bool
is_in(const struct pbox_task *m, unsigned slot)
{
	for (unsigned i = 0; i < m->ranges; i++)
		if (slot >= m->range[i].first && slot < m->range[i].end)
			return true;
	return false;
}

/* It has begun all slots that it does not name; or (idle) those that it names. */
static void
note_begun(struct pbox_registrar *r, struct pbox_job *job, unsigned w, const struct pbox_task *m,
	bool idle)
{
	struct work *k = work_of(job);
	const uint16_t *owner = pbox_work_owners(k->room);
	double at = work_seconds(r, k) - m->since_us / 1e6;

	for (unsigned slot = 0; slot < job->slots; slot++)
		if (owner[slot] == w && is_in(m, slot) == idle)
			pbox_work_begun(k->room, w, slot, slot + 1, at > 0 ? at : 0);
}

/* A worker says where it is, and what it gives up. */
static void
take_answer(struct pbox_registrar *r, struct pbox_job *job, unsigned w, const struct pbox_task *m)
{
	struct task_member *s = task_member_of(job, w);
	unsigned first = s->first, end = s->end, given = m->first;

	if (task_of(job)->round != work_of(job)->round || s->wish == 0 || m->wish != s->wish)
		return;
	s->wish = 0;
	s->heard_ns = r->now_ns;
	s->tries = 0;
	pbox_work_keeps(work_of(job)->room, w, m->ranges == 0);
	if (m->round != task_of(job)->round || given == m->end || m->end != end || given < first)
		given = end;
	PBOX_ASSERT(first <= given && given <= end); /* no more than was wished */
	give_back(job, w, first, given);
	note_begun(r, job, w, m, false);
	if (given < end)
		change_hands(r, job, w, given, end);
}

static void
send_task(struct pbox_registrar *r, const struct pbox_frame *f, const struct pbox_job *job,
	const struct pbox_task *m, enum has has)
{
	struct pbox_task_ok a = {.table = m->table, .round = m->round};

	if (has == HAS_SOON)
		a.again_ms = AGAIN_MS;
	if (has == HAS && registrar_owners_ranges(
				  job, work_map(job, m->round), f->hdr.worker, a.range, &a.ranges))
		task_member_of(job, f->hdr.worker)->tell = false;
	registrar_reply(
		r, f, PBOX_TASK_OK, pbox_task_ok_encode(r->scratch, sizeof(r->scratch), &a));
}

static enum has
answer_idle(struct pbox_registrar *r, struct pbox_job *job, unsigned w, const struct pbox_task *m)
{
	struct work *k = work_of(job);

	if (pbox_serial_diff(m->round, k->round) < 0)
		return HAS_NONE;
	if (k->claiming || k->announced || m->round != k->round || k->in_room != k->round ||
		!registrar_work_settled(r, job) || !registrar_work_finished(job, k->round - 1))
		return HAS_SOON;
	if (!work_is_member(k, w) || !work_member_of(job, w)->entered)
		return HAS_NONE;
	forget_round(job);
	task_member_of(job, w)->done = true;
	note_begun(r, job, w, m, true);
	/* it may have given slots up, and its answer be lost: they are its own no more (R15.10c) */
	if (registrar_steal_waits(job, w) || !all_are_known(r, job, w))
		return HAS_SOON;
	return find_slots(r, job, w);
}

static void
on_task(struct pbox_registrar *r, const struct pbox_frame *f, struct pbox_job *job)
{
	struct work *k = work_of(job);
	struct pbox_task m;

	if (pbox_task_decode(f->payload, f->hdr.length, &m) < 0) {
		count_control(r, PBOX_RS_DROP_MALFORMED);
		return;
	}
	count_control(r, PBOX_RS_RX_TASK);
	if (!registrar_is_planned(job)) {
		registrar_refuse(r, f, PBOX_E_BAD_REQUEST, 0,
			"job '%s' has policy %s: only one with policy reassign has slots that can be stolen",
			job->name, pbox_policy_name(job->policy));
		return;
	}
	if (m.table != TABLE || !registrar_work_is_open(r, job) || k->room == NULL) {
		registrar_refuse(
			r, f, PBOX_E_BAD_REQUEST, m.table, "table %u has no plan yet", m.table);
		return;
	}
	registrar_work_look(r, job);
	if (m.wish != 0) {
		take_answer(r, job, f->hdr.worker, &m);
		return;
	}
	if (pbox_serial_diff(m.round, k->round + 1) > 0) {
		registrar_refuse(r, f, PBOX_E_BAD_REQUEST, k->round,
			"worker %u asks for slots of round %u, and round %u is in progress",
			f->hdr.worker, m.round, k->round);
		return;
	}
	send_task(r, f, job, &m, m.round == 0 ? HAS_NONE : answer_idle(r, job, f->hdr.worker, &m));
}

/* Wishes whose answer may be lost, and who has got slots and does not ask for them any more. */
static void
task_tick(struct pbox_registrar *r, struct pbox_job *job)
{
	if (task_of(job)->wishes == 0 || task_of(job)->round != work_of(job)->round)
		return;
	for (unsigned w = 0; w < job->workers; w++) {
		struct task_member *m = task_member_of(job, w);

		if (!registrar_has_session(job, w))
			continue;
		if (registrar_steal_waits(job, w) && r->now_ns - m->sent_ns >= WISH_AGAIN)
			send_wish(r, job, w);
		if (m->tell && registrar_work_settled(r, job)) {
			m->tell = false;
			registrar_ping(r, job, w);
		}
	}
}

const struct registrar_part registrar_task_part = {
	.name = "slots that are stolen",
	.types = {{on_task, PBOX_TASK}},
	.tick = task_tick,
	.job_state = sizeof(struct task),
	.member_state = sizeof(struct task_member),
};
