/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* The dialogue of a worker with the box about plans (pbox_worker_plan.h): when it asks WORK and TASK, how often, and what it does
 * with an answer. One question is under way at a time, and beside it a report that nobody waits for. */

#include <errno.h>

#include "worker_impl.h"

#define AGAIN_MOST      100              /* ms: a box that names a longer pause is not believed */
#define REPORTS_EVERY   (50 * NS_PER_MS) /* R15.4: at most 20 times a second */
#define NEWCOMER_AGAIN  (10 * NS_PER_MS) /* R15.7a: 100 times a second */
#define RESTORING_AGAIN (2 * NS_PER_MS)  /* until a restarted box knows which round is next */

static_assert(sizeof(((struct pbox_worker_question *)0)->payload) >= PBOX_WORK_MOST &&
		      sizeof(((struct pbox_worker_question *)0)->payload) >= PBOX_TASK_MOST,
	"a question with all its ranges");
static_assert(sizeof(((struct pbox_worker_question *)0)->answer) >= PBOX_WORK_OK_MOST,
	"an answer with all its ranges");
static_assert(PBOX_CLIENT_DECISION == PBOX_SET_DECISION, "programs say it as the wire does");

/* ---- how a question ends ------------------------------------------------------------------------ */

static void
question_end(struct pbox_worker *w, struct pbox_worker_question *q)
{
	struct worker_plan *p = &w->plan;

	assert(!q->request.listed);
	if (q == &p->report) {
		p->reporting = false;
		if (q->err.code != PBOX_C_OK)
			p->late = q->err;
		return;
	}
	assert(p->first == q);
	p->first = q->next;
	if (p->first == NULL)
		p->last = NULL;
	q->next = NULL;
	*p->replied_tail = q;
	p->replied_tail = &q->next;
}

/** Why nothing is answered any more. */
static void
ended_text(const struct pbox_worker *w, struct pbox_client_error *err)
{
	if (w->failed)
		*err = w->fatal;
	else
		pbox_client_fail(err, PBOX_C_CLOSED, "the client was closed");
}

/** The deadline has passed; without a text where the box is silent. */
static void
question_expires(struct pbox_worker *w, struct pbox_worker_question *q)
{
	const char *what = q->kind == PBOX_WORKER_STEAL ? "TASK" : "WORK";

	if (q->request.listed)
		request_drop(worker_decider(w), &q->request);
	if (q->state != QUESTION_PAUSED)
		q->err = (struct pbox_client_error){.code = PBOX_C_DEADLINE};
	else if (q->ok.again_ms != 0 || q->kind != PBOX_WORKER_ENTER)
		pbox_client_fail(&q->err, PBOX_C_DEADLINE,
			"%s: owners of slots are still changing: does every worker live?", what);
	else
		pbox_client_fail(&q->err, PBOX_C_DEADLINE,
			"WORK: the job goes on with round %u, and has no slots for this worker yet: do the others end their rounds?",
			q->ok.now);
	question_end(w, q);
}

/* ---- questions ------------------------------------------------------------------------------------ */

static void
question_send(struct pbox_worker *w, struct pbox_worker_question *q, uint8_t type, size_t length)
{
	assert(length > 0 && !q->request.listed);
	q->request = (struct pbox_worker_request){.type = type,
		.payload = q->payload,
		.length = (uint16_t)length,
		.answer = q->answer,
		.answer_cap = sizeof(q->answer),
		.watched = true};
	q->state = QUESTION_SENT;
	request_ask(worker_decider(w), &q->request);
}

static void
question_pause(struct pbox_worker *w, struct pbox_worker_question *q, uint64_t ns)
{
	q->state = QUESTION_PAUSED;
	q->again_at = w->now + ns;
}

/** The box is not ready: for as long as it says. */
static uint64_t
again_ns(uint16_t again_ms)
{
	return (again_ms < AGAIN_MOST ? again_ms : AGAIN_MOST) * NS_PER_MS;
}

/** Does round a come after round b, or is it that (R6.1)? */
static bool
is_reached(uint32_t a, uint32_t b)
{
	return rounds_apart(a, b) >= 0;
}

/** What the worker owns now, as the ranges that its nodes consist of. */
static uint16_t
own_ranges(const struct pbox_worker *w, struct pbox_slot_range *range)
{
	for (unsigned i = 0; i < w->nodes; i++)
		range[i] = (struct pbox_slot_range){
			w->node[i].first, (uint16_t)pbox_node_end(w->node[i], w->slots)};
	return w->nodes;
}

/** What it owns in a round: where a plan that it knows begins by then it has pushed nothing by the one before (R15.8a). */
static uint16_t
claim_ranges(const struct pbox_worker *w, uint32_t round, struct pbox_slot_range *range)
{
	const struct worker_plan *p = &w->plan;

	if (p->next_from == 0 || !is_reached(round, p->next_from))
		return own_ranges(w, range);
	memcpy(range, p->next, p->next_ranges * sizeof(*range));
	return p->next_ranges;
}

/** All fragments have finished the round that it asks about, and after a restart the box does not know any more who had which slots in it: it
 * hears of the round in progress, and reports nothing of that (R15.8a). */
static void
ask_later(struct pbox_worker_question *q, struct pbox_work_ask *m)
{
	q->later = q->ok.now;
	if (m->trained != PBOX_WORK_UNKNOWN)
		m->trained += q->later - m->round;
	m->round = q->later;
	m->slots = 0;
}

static void
ask_work(struct pbox_worker *w, struct pbox_worker_question *q)
{
	struct pbox_work_ask m = q->work;
	bool newcomer = q->kind == PBOX_WORKER_LOOK || q->kind == PBOX_WORKER_ENTER;

	m.table = q->table->number;
	m.edition = w->plan.edition;
	m.ranges = 0;
	q->later = 0;
	if (q->kind == PBOX_WORKER_LOOK)
		m.trained = PBOX_WORK_UNKNOWN;
	if (newcomer)
		m.slots = 0;
	else if (q->ok.again_ms != 0 && rounds_apart(q->ok.now, m.round) > 0)
		ask_later(q, &m);
	m.payloads = w->nodes < m.slots ? w->nodes : m.slots;
	if (!newcomer)
		m.ranges = claim_ranges(w, m.round, m.range);
	w->plan.asked_at = w->now;
	question_send(w, q, PBOX_WORK, pbox_work_ask_encode(q->payload, sizeof(q->payload), &m));
}

static void
ask_task(struct pbox_worker *w, struct pbox_worker_question *q)
{
	struct pbox_task m = {.table = q->table->number, .round = q->work.round};

	m.ranges = own_ranges(w, m.range);
	question_send(w, q, PBOX_TASK, pbox_task_encode(q->payload, sizeof(q->payload), &m));
}

/** The first time, and again. */
static void
question_ask(struct pbox_worker *w, struct pbox_worker_question *q)
{
	if (q->kind == PBOX_WORKER_STEAL)
		ask_task(w, q);
	else
		ask_work(w, q);
}

/** Are slots in that round, or may they be, others than they were? */
static bool
turn_changes(const struct pbox_worker *w, uint32_t round)
{
	const struct worker_plan *p = &w->plan;

	return p->again || pbox_worker_owners_changed(w) ||
	       (p->next_from != 0 && is_reached(round, p->next_from));
}

static void
told(struct pbox_worker *w, const struct pbox_work_ok *ok)
{
	struct worker_plan *p = &w->plan;

	p->number = ok->plan;
	p->members = ok->members;
	p->leads = ok->leads;
}

/** A round has ended, and nothing changes: a report goes by itself, if the last one was a while ago. */
static void
turn_passes(struct pbox_worker *w, struct pbox_worker_question *q)
{
	struct worker_plan *p = &w->plan;

	if (w->ops ==
		NULL) /* else what is unfinished is of the round before, and its nodes count */
		nodes_begin_round(w, q->work.round);
	if (!p->reporting && w->now - p->asked_at >= REPORTS_EVERY) {
		p->report = (struct pbox_worker_question){.kind = PBOX_WORKER_REPORT,
			.table = q->table,
			.deadline = w->now + w->conf.timeout_ms * NS_PER_MS,
			.work = q->work};
		p->reporting = true;
		ask_work(w, &p->report);
	}
	q->ok = (struct pbox_work_ok){.table = q->table->number,
		.edition = p->edition,
		.plan = p->number,
		.members = p->members,
		.leads = p->leads};
	question_end(w, q);
}

/** Ask, unless something has to be known first. */
static void
question_begin(struct pbox_worker *w, struct pbox_worker_question *q)
{
	struct worker_plan *p = &w->plan;
	bool restoring = false;

	if (p->late.code != PBOX_C_OK) { /* what the box thought of a report */
		q->err = p->late;
		p->late.code = PBOX_C_OK;
		question_end(w, q);
		return;
	}
	if (q->work.round == 0) {
		uint32_t round = pbox_worker_next_round(w, q->table, &restoring);

		if (restoring) {
			q->again_at = w->now + RESTORING_AGAIN;
			return;
		}
		q->work.round = round;
	}
	if (q->kind == PBOX_WORKER_TURN && !turn_changes(w, q->work.round)) {
		turn_passes(w, q);
		return;
	}
	if (p->reporting) /* the box gets one WORK of a worker at a time */
		return;
	q->began = w->now;
	question_ask(w, q);
}

/* ---- answers -------------------------------------------------------------------------------------- */

static void
own_fails(struct pbox_client_error *err, int rc, const char *busy)
{
	if (rc == -EBUSY)
		pbox_client_fail(err, PBOX_C_INVALID, "%s", busy);
	else if (rc == -ENOMEM)
		pbox_client_fail(err, PBOX_C_MEMORY,
			"no memory for the codes of the slots that the box gives this worker");
	else
		pbox_client_fail(err, PBOX_C_REFUSED,
			"the box gives this worker slots that the job does not have, or too many pieces");
}

/** What was heard is of a later round: until then its slots are what they were. */
static void
own_later(const struct pbox_worker *w, struct pbox_worker_question *q)
{
	struct pbox_work_ok *ok = &q->ok;

	memcpy(ok->next_range, ok->range, sizeof(ok->range));
	ok->next_ranges = ok->ranges;
	ok->next_plan = ok->plan;
	ok->next_from = q->later;
	ok->ranges = own_ranges(w, ok->range);
}

/** Has the worker pushed of the round? */
static bool
asker_has_pushed(const struct pbox_worker_question *q)
{
	const struct pbox_worker_table *t = q->table;

	for (uint32_t i = 0; i < t->frags; i++)
		if (t->frag[i].pushed && is_reached(t->frag[i].round, q->work.round))
			return true;
	return false;
}

static void
work_own(struct pbox_worker *w, struct pbox_worker_question *q)
{
	struct worker_plan *p = &w->plan;
	int rc;

	if (q->later != 0)
		own_later(w, q);
	else if (q->table->encoded != NULL && asker_has_pushed(q))
		nodes_begin_round(w, q->work.round);
	rc = pbox_worker_own(w, q->ok.edition, q->ok.range, q->ok.ranges);
	if (rc == 0 && q->later == 0)
		nodes_begin_round(w, q->work.round);

	if (rc != 0) {
		own_fails(&q->err, rc,
			"a push is unfinished: wait for it before the box is asked for slots");
	} else {
		p->edition = q->ok.edition;
		p->next_from = q->ok.next_from;
		p->next_ranges = q->ok.next_ranges;
		memcpy(p->next, q->ok.next_range, p->next_ranges * sizeof(*p->next));
		p->again = false;
		q->changed = true;
		q->nodes = w->nodes;
	}
	question_end(w, q);
}

/** The first round in which a newcomer has slots, by what the box says about a round that is not over; 0: it is not known yet. Then
 * the ranges of @p ok are those of that round. */
static uint32_t
first_with_slots(uint32_t round, struct pbox_work_ok *ok)
{
	if (ok->ranges > 0)
		return round;
	if (ok->next_from == 0 || ok->next_ranges == 0)
		return 0;
	round = ok->next_from;
	ok->ranges = ok->next_ranges;
	memcpy(ok->range, ok->next_range, sizeof(ok->range));
	ok->plan = ok->next_plan;
	ok->next_plan = ok->next_from = ok->next_ranges = 0;
	return round;
}

/** R15.7a */
static void
enter_answered(struct pbox_worker *w, struct pbox_worker_question *q)
{
	struct pbox_work_ask *m = &q->work;
	uint32_t first;

	if (rounds_apart(q->ok.now, m->round) > 0) {
		m->trained += q->ok.now - m->round;
		m->round = q->ok.now;
		ask_work(w, q);
		return;
	}
	first = first_with_slots(m->round, &q->ok);
	if (first == 0 || !is_reached(q->ok.now, first)) {
		question_pause(w, q, NEWCOMER_AGAIN);
		return;
	}
	if (pbox_worker_begin_at(w, q->table, first) != 0) {
		pbox_client_fail(&q->err, PBOX_C_INVALID,
			"this worker has pushed, or an operation is unfinished: it is no newcomer");
		question_end(w, q);
		return;
	}
	m->trained += first - m->round;
	m->round = first;
	work_own(w, q);
}

static void
work_answered(struct pbox_worker *w, struct pbox_worker_question *q)
{
	struct pbox_work_ok *ok = &q->ok;

	if (pbox_work_ok_decode(q->answer, q->request.answer_len, ok) != 0) {
		pbox_client_fail(&q->err, PBOX_C_REFUSED, "WORK: the box's answer cannot be read");
		question_end(w, q);
		return;
	}
	if (ok->again_ms != 0 && q->kind != PBOX_WORKER_REPORT) {
		question_pause(w, q, again_ns(ok->again_ms));
		return;
	}
	q->open = ok->again_ms != 0;
	if (!q->open)
		told(w, ok);
	if (q->kind == PBOX_WORKER_ENTER)
		enter_answered(w, q);
	else if (q->kind == PBOX_WORKER_WORK || q->kind == PBOX_WORKER_TURN)
		work_own(w, q);
	else
		question_end(w, q);
}

static void
task_answered(struct pbox_worker *w, struct pbox_worker_question *q)
{
	struct pbox_task_ok ok;
	int rc;

	if (pbox_task_ok_decode(q->answer, q->request.answer_len, &ok) != 0) {
		pbox_client_fail(&q->err, PBOX_C_REFUSED, "TASK: the box's answer cannot be read");
	} else if (ok.again_ms != 0) {
		uint64_t ns = again_ns(ok.again_ms);

		/* who asks no more hears of slots that it has got by R15.8 */
		q->open = w->now + ns > q->began + q->most;
		if (!q->open) {
			question_pause(w, q, ns);
			return;
		}
	} else if (ok.ranges > 0) {
		nodes_begin_round(w, q->work.round);
		rc = pbox_worker_gain(w, ok.range, ok.ranges);
		if (rc != 0)
			own_fails(&q->err, rc,
				"a push is unfinished: ask for slots before it, or after it has ended");
		else
			q->gained = w->nodes;
	}
	question_end(w, q);
}

static void
question_answered(struct pbox_worker *w, struct pbox_worker_question *q)
{
	bool task = q->kind == PBOX_WORKER_STEAL;
	struct pbox_client_error ended;

	ended_text(w, &ended);
	if (pbox_worker_result(&q->request, task ? PBOX_TASK_OK : PBOX_WORK_OK,
		    task ? "TASK" : "WORK", &ended, &q->err) != 0)
		question_end(w, q);
	else if (task)
		task_answered(w, q);
	else
		work_answered(w, q);
}

/* ---- time ------------------------------------------------------------------------------------------- */

/** @p drained  as pbox_worker_tick: no time-out ends while an answer may be waiting */
static void
question_tick(struct pbox_worker *w, struct pbox_worker_question *q, uint64_t drained)
{
	if (q->state == QUESTION_SENT && !q->request.listed)
		question_answered(w, q);
	else if (drained != 0 && drained >= q->deadline)
		question_expires(w, q);
	else if (q->state == QUESTION_NEW && w->now >= q->again_at)
		question_begin(w, q);
	else if (q->state == QUESTION_PAUSED && w->now >= q->again_at)
		question_ask(w, q);
}

static void
plan_tick(struct pbox_worker *w, uint64_t drained)
{
	struct worker_plan *p = &w->plan;
	struct pbox_worker_question *q;

	if (w->failed || w->shut)
		return;
	if (p->reporting)
		question_tick(w, &p->report, drained);
	do {
		q = p->first;
		if (q != NULL)
			question_tick(w, q, drained);
	} while (p->first != q); /* the next one has its turn at once */
}

static uint64_t
question_due(const struct worker_plan *p, const struct pbox_worker_question *q)
{
	uint64_t due = q->again_at;

	if (q->state == QUESTION_SENT)
		return q->request.listed ? q->deadline : 0;
	if (q->state == QUESTION_NEW && p->reporting && due == 0)
		return q->deadline;
	return due < q->deadline ? due : q->deadline;
}

static uint64_t
plan_due(const struct pbox_worker *w)
{
	const struct worker_plan *p = &w->plan;
	uint64_t due = UINT64_MAX, t;

	if (p->reporting)
		due = question_due(p, &p->report);
	t = p->first != NULL ? question_due(p, p->first) : UINT64_MAX;
	return t < due ? t : due;
}

static void
plan_fail(struct pbox_worker *w)
{
	struct worker_plan *p = &w->plan;

	assert(w->failed || w->shut);
	p->reporting = false;
	while (p->first != NULL) {
		ended_text(w, &p->first->err);
		question_end(w, p->first);
	}
}

/* A worker that waits, and is pinged, may have got slots of one that is gone (R15.8). */
static void
plan_heard(struct session *s, const struct pbox_hdr *h)
{
	if (h->type != PBOX_PING || !s->w->planned)
		return;
	for (unsigned i = 0; i < s->endpoints; i++)
		loss_asked(&s->ep[i], s->w->now);
}

static void
plan_begin(struct pbox_worker *w)
{
	w->plan.replied_tail = &w->plan.replied;
}

/* Owners change at any time, and lanes read who they are. */
static bool
plan_steady(const struct pbox_worker *w)
{
	return !w->planned && w->plan.first == NULL;
}

const struct worker_part plan_part = {
	.name = "work by plan",
	.begin = plan_begin,
	.heard = plan_heard,
	.frame = task_frame,
	.tick = plan_tick,
	.due = plan_due,
	.steady = plan_steady,
	.fail = plan_fail,
};

/* ---- the host's --------------------------------------------------------------------------------- */

void
pbox_worker_ask(struct pbox_worker *w, struct pbox_worker_question *q)
{
	struct worker_plan *p = &w->plan;

	q->next = NULL;
	q->state = QUESTION_NEW;
	q->again_at = 0;
	if (p->last != NULL)
		p->last->next = q;
	else
		p->first = q;
	p->last = q;
	if (w->failed || w->shut)
		plan_fail(w);
}

struct pbox_worker_question *
pbox_worker_replied(struct pbox_worker *w)
{
	struct pbox_worker_question *q = w->plan.replied;

	w->plan.replied = NULL;
	w->plan.replied_tail = &w->plan.replied;
	return q;
}
