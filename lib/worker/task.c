/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "worker_impl.h"

/* Slots that are stolen within a round (R15.10): which the program has begun, and what is given up to others. */

static bool
is_begun(const struct pbox_worker *w, unsigned slot)
{
	return (w->task.begun[slot / 64] >> slot % 64 & 1) != 0;
}

static bool
task_owns(const struct pbox_worker *w, unsigned slot)
{
	for (unsigned i = 0; i < w->nodes; i++)
		if (slot >= w->node[i].first && slot < pbox_node_end(w->node[i], w->slots))
			return true;
	return false;
}

static bool
pushes(const struct pbox_worker *w)
{
	for (const struct pbox_worker_op *op = w->ops; op != NULL; op = op->all_next)
		if (op->kind == PBOX_CLIENT_PUSHPULL || op->kind == PBOX_CLIENT_PUSH)
			return true;
	return false;
}

/* The first of the slots up to `end` that it can give up, `first` at the least: it has begun none of them. */
static unsigned
not_begun_from(const struct pbox_worker *w, unsigned first, unsigned end)
{
	unsigned from = end;

	while (from > first && task_owns(w, from - 1) && !is_begun(w, from - 1))
		from--;
	return from;
}

/* Its nodes without the slots first to end - 1, where these end with a node. What is left may be more nodes than it had. False: too many, or no
 * memory for their codes; then it keeps the slots. */
static bool
give_up(struct pbox_worker *w, uint32_t round, unsigned first, unsigned end)
{
	struct pbox_node node[PBOX_RANGE_NODES], part[PBOX_RANGE_NODES];
	unsigned n = 0, stop = end;

	assert(w->planned && first < end && end <= w->slots && !pushes(w));
	for (unsigned i = 0; i < w->nodes; i++) {
		unsigned from = w->node[i].first, until = pbox_node_end(w->node[i], w->slots);
		unsigned parts = 1;

		if (from < end && until > end)
			return false;
		part[0] = w->node[i];
		if (until > first && from < end) {
			stop = until;
			parts = from < first ? pbox_range_nodes(from, first, w->slots, part) : 0;
		}
		if (n + parts > PBOX_RANGE_NODES)
			return false;
		memcpy(&node[n], part, parts * sizeof(*part));
		n += parts;
	}
	if (stop != end)
		return false;
	for (uint32_t i = 0; i < w->tables; i++)
		if (encode_room(w->table[i], n) != 0)
			return false;
	/* should they come back in this round, the box may have them from another by then */
	nodes_begin_round(w, round);
	for (unsigned i = first; i < end; i++)
		w->kept.slot[i / 64] &= ~(UINT64_C(1) << i % 64);
	w->nodes = (uint16_t)n;
	memcpy(w->node, node, n * sizeof(*node));
	w->task.moved = true;
	return true;
}

/* What it has not begun, as ranges. */
static void
list_left(const struct pbox_worker *w, struct pbox_task *m)
{
	m->ranges = 0;
	for (unsigned slot = 0, end; slot < w->slots; slot = end) {
		end = slot + 1;
		if (!task_owns(w, slot) || is_begun(w, slot))
			continue;
		while (end < w->slots && task_owns(w, end) && !is_begun(w, end))
			end++;
		if (m->ranges == PBOX_WORK_RANGES)
			return;
		m->range[m->ranges++] = (struct pbox_slot_range){(uint16_t)slot, (uint16_t)end};
	}
}

static void
task_answer(struct session *s, const struct pbox_task *m)
{
	uint8_t buf[PBOX_TASK_MOST];
	struct iovec iov = {buf, pbox_task_encode(buf, sizeof(buf), m)};
	struct pbox_hdr h;

	header_fill(s, &h, PBOX_TASK, s->w->now);
	h.length = (uint16_t)iov.iov_len;
	link_frame(&s->w->lane[0]->link, s, &s->box, &h, &iov, 1, false);
	link_flush(&s->w->lane[0]->link); /* buf goes */
}

/* The box wishes to know where this worker is, and perhaps slots of it. */
bool
task_frame(struct session *s, const struct rx_frame *f)
{
	struct pbox_worker *w = s->w;
	struct worker_task *t = &w->task;
	struct pbox_task m, a;
	bool here;

	if (f->hdr.type != PBOX_TASK)
		return false;
	/* wishes are numbered: one that was answered, and comes late, gets nothing any more */
	if (!w->planned || pbox_task_decode(f->payload, f->hdr.length, &m) != 0 || m.wish == 0 ||
		m.end > w->slots || (t->token == s->token && rounds_apart(m.wish, t->wish) < 0)) {
		w->count.rx_dropped++;
		return true;
	}
	here = t->on && m.round == t->round && !pushes(w);
	if (m.wish != t->wish || t->token != s->token) {
		t->wish = m.wish;
		t->token = s->token;
		t->end = m.end;
		t->first = (uint16_t)(here ? not_begun_from(w, m.first, m.end) : m.end);
		if (t->first < t->end && !give_up(w, m.round, t->first, t->end))
			t->first = t->end;
	}
	a = (struct pbox_task){.table = m.table,
		.round = m.round,
		.wish = m.wish,
		.first = t->first,
		.end = t->end};
	if (here) {
		a.since_us = (uint32_t)((w->now - t->begun_at) / NS_PER_US);
		list_left(w, &a);
	}
	task_answer(s, &a);
	return true;
}

/* ---- the host's -------------------------------------------------------------------------------- */

bool
pbox_worker_slot_begin(struct pbox_worker *w, uint32_t round, unsigned slot, uint64_t now)
{
	struct worker_task *t = &w->task;

	assert(slot < w->slots);
	if (!t->on || t->round != round) {
		memset(t->begun, 0, sizeof(t->begun));
		t->round = round;
		t->on = true;
	}
	if (!task_owns(w, slot))
		return false;
	if (!is_begun(w, slot))
		t->begun_at = now;
	t->begun[slot / 64] |= UINT64_C(1) << slot % 64;
	return true;
}
