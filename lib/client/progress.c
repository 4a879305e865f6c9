/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>

#include <pbox_worker_norm.h>
#include <pbox_worker_plan.h>

#include "client_impl.h"

/* The progress thread: drives the worker with the transport's datagrams and the clock. */

#define PUBLISH_EVERY (10 * NS_PER_MS)
#define RX_TURNS      4 /* receive bursts in one turn of the loop */

/* ---- datagrams and time ------------------------------------------------------------------------ */

void
progress_take(struct pbox_client *c, const struct pbox_client_rx *d, unsigned n, uint64_t now)
{
	bool alone = c->lanes > 1 && pbox_worker_steady(c->w, 0, now);

	if (alone && !pbox_worker_lane_rx(c->w, 0, d, n, now))
		return;
	lanes_lock_others(c, now);
	if (alone)
		pbox_worker_lane_rest(c->w, 0, now);
	else
		pbox_worker_rx(c->w, d, n, now);
	lanes_unlock_others(c);
}

uint64_t
progress_tick(struct pbox_client *c, uint64_t now, uint64_t drained)
{
	uint64_t due;

	if (c->lanes > 1 && !c->together && pbox_worker_steady(c->w, 0, now))
		return pbox_worker_lane_tick(c->w, 0, now, drained);
	if (!c->together)
		lanes_lock_others(c, now);
	due = pbox_worker_tick(c->w, now, drained);
	lanes_unlock_others(c);
	c->together = false;
	return due;
}

/** Up to @p turns bursts; returns how many datagrams came. */
static unsigned
progress_receive(struct pbox_client *c, unsigned turns, uint64_t now)
{
	unsigned total = 0;

	while (turns-- > 0) {
		const struct pbox_client_rx *d;
		unsigned n = lanes_receive(&c->lane[0], &d);

		progress_take(c, d, n, now);
		total += n;
		if (!c->t->more)
			break;
	}
	return total;
}

int
progress_open(struct pbox_client *c, struct pbox_client_error *err)
{
	uint64_t now = client_clock_ns();

	lanes_port(&c->lane[0]);
	c->w = pbox_worker_create(&c->conf, &c->box, &c->lane[0].port);
	if (c->w == NULL)
		return pbox_client_fail(err, PBOX_C_MEMORY, "no memory for a client");
	if (c->n_boxes > 1)
		pbox_worker_boxes(c->w, c->boxes, c->n_boxes);
	pbox_worker_open(c->w, now, now + c->conf.join_timeout_ms * NS_PER_MS);
	while (pbox_worker_state(c->w) == PBOX_WORKER_OPENING) {
		uint64_t due;

		now = client_clock_ns();
		due = pbox_worker_tick(c->w, now, now);
		if (pbox_worker_state(c->w) != PBOX_WORKER_OPENING)
			break;
		now = client_clock_ns();
		c->t->ops->wait(c->t, due > now ? due - now : 0);
		progress_receive(c, 1, client_clock_ns());
	}
	if (pbox_worker_state(c->w) != PBOX_WORKER_OPEN)
		return pbox_client_fail(
			err, pbox_worker_error(c->w)->code, "%s", pbox_worker_error(c->w)->text);
	pbox_worker_stats(c->w, &c->stats); /* pbox_client_stats() right after open */
	return 0;
}

/* ---- commands ---------------------------------------------------------------------------------- */

void
progress_submit(struct pbox_client *c)
{
	struct pbox_worker_op *op;

	pthread_mutex_lock(&c->lock);
	op = c->submitted;
	c->submitted = NULL;
	c->submitted_tail = &c->submitted;
	pthread_mutex_unlock(&c->lock);
	if (op == NULL)
		return;
	while (op != NULL) {
		struct pbox_worker_op *next = op->next;

		pbox_worker_submit(c->w, op);
		op = next;
	}
	lanes_wake(c);
}

static void
run_commands(struct pbox_client *c)
{
	struct cmd *cmd;

	if (!atomic_exchange(&c->kicked, false))
		return;
	pthread_mutex_lock(&c->lock);
	cmd = c->cmds;
	c->cmds = NULL;
	c->cmds_tail = &c->cmds;
	pthread_mutex_unlock(&c->lock);
	/* what was submitted before a command is there when that runs */
	progress_submit(c);
	if (cmd != NULL && c->lanes > 1) {
		lanes_lock_others(c, client_clock_ns());
		c->together = true;
	}
	while (cmd != NULL) {
		struct cmd *next = cmd->next;

		cmd->run(c, cmd);
		if (!cmd->open) {
			pthread_mutex_lock(&c->lock);
			cmd->done = true;
			pthread_cond_broadcast(&c->cond);
			pthread_mutex_unlock(&c->lock);
		}
		cmd = next;
	}
}

/* ---- what other threads see -------------------------------------------------------------------- */

void
progress_stats(const struct pbox_client *c, struct pbox_client_stats *s)
{
	pbox_worker_stats(c->w, s);
	for (unsigned i = 0; i < c->lanes; i++) {
		const struct pbox_client_transport *t = c->lane[i].t;

		s->tx_by_ref += t->tx_by_ref;
		s->tx_copied += t->tx_copied;
		s->tx_failed += t->tx_failed;
		s->rx_failed += t->rx_failed;
		s->gro_active |= t->merging;
	}
}

/** Lock held. */
static void
publish_answered(struct pbox_worker_request *r)
{
	while (r != NULL) {
		struct pbox_worker_request *next = r->next;

		((struct call *)(void *)((char *)r - offsetof(struct call, request)))->cmd.done =
			true;
		r = next;
	}
}

/** Lock held; returns those to call when it is not. */
static struct pbox_worker_op *
publish_finished(struct pbox_worker_op *op)
{
	struct pbox_worker_op *calls = NULL, **tail = &calls;

	while (op != NULL) {
		struct pbox_worker_op *next = op->next;

		op->next = NULL;
		if (op_of(op)->notify != NULL) {
			*tail = op;
			tail = &op->next;
		}
		op_of(op)->done =
			true; /* without notify it may be gone once the lock is released */
		op = next;
	}
	return calls;
}

static void
notify(struct pbox_client *c, struct pbox_worker_op *calls)
{
	while (calls != NULL) {
		struct pbox_worker_op *next = calls->next;
		struct op *op = op_of(calls);

		op->notify(op->notify_ctx, calls->code,
			calls->text[0] != 0 ? calls->text : pbox_client_code_name(calls->code));
		handle_free_op(c, op);
		calls = next;
	}
}

/** Publish what has ended, for threads that wait, and statistics. */
static void
progress_publish(struct pbox_client *c, uint64_t now, bool idle)
{
	struct pbox_worker_op *done;
	struct pbox_worker_request *answered;
	struct pbox_worker_question *replied;
	struct pbox_worker_norm *normed;
	struct pbox_client_stats stats;
	bool lost, declared;

	lanes_lock(c);
	done = pbox_worker_finished(c->w);
	answered = pbox_worker_answered(c->w);
	replied = pbox_worker_replied(c->w);
	normed = pbox_worker_normed(c->w);
	lost = pbox_worker_state(c->w) == PBOX_WORKER_FAILED && c->fatal.code == 0;
	declared = c->declare != NULL && !c->declare->ended &&
		   c->declare->d.state != PBOX_WORKER_DECLARING;
	lanes_unlock(c);
	if (done == NULL && answered == NULL && replied == NULL && normed == NULL && !lost &&
		!declared && !idle && now - c->published_at < PUBLISH_EVERY)
		return;
	for (struct pbox_worker_op *op = done; op != NULL; op = op->next)
		if (op->code !=
			0) { /* zero copy: without an answer its memory may still be in a queue */
			if (c->t->ops->quiesce != NULL)
				c->t->ops->quiesce(c->t);
			break;
		}
	c->published_at = now;
	if (c->lanes == 1)
		progress_stats(c, &stats);
	pthread_mutex_lock(&c->lock);
	if (c->lanes == 1) /* else pbox_client_stats() asks the lanes */
		c->stats = stats;
	if (lost)
		c->fatal = *pbox_worker_error(c->w);
	if (declared)
		c->declare->ended = true;
	if (done != NULL || answered != NULL || replied != NULL || normed != NULL || lost ||
		declared)
		pthread_cond_broadcast(&c->cond);
	publish_answered(answered);
	work_publish(replied);
	norm_publish(normed);
	done = publish_finished(done);
	pthread_mutex_unlock(&c->lock);
	notify(c, done);
}

/* ---- the loop ---------------------------------------------------------------------------------- */

void *
progress_main(void *arg)
{
	struct pbox_client *c = arg;
	struct pbox_client_transport *t = c->t;
	uint64_t spin = (uint64_t)c->conf.spin_us * NS_PER_US;

	if (t->ops->attach != NULL)
		t->ops->attach(t);
	while (!c->ending) {
		uint64_t began = client_clock_ns(), now, due, gathering = 0;
		unsigned got;

		lanes_lock(c);
		got = progress_receive(c, RX_TURNS, began);
		run_commands(c);
		now = client_clock_ns();
		due = progress_tick(c, now, got == 0 || !t->more ? began : 0);
		if (got > 0 && !t->more && spin == 0)
			gathering = pbox_worker_lane_gather(c->w, 0);
		lanes_unlock(c);
		if (got > 0)
			c->spin_until = now + spin;
		progress_publish(c, now, got == 0);
		if ((got > 0 && gathering == 0) || c->ending || atomic_load(&c->kicked))
			continue;
		now = client_clock_ns();
		if (due > now && now >= c->spin_until) {
			t->gather_ns = gathering; /* more answers may come first */
			t->ops->wait(t, due - now);
		}
	}
	progress_publish(c, client_clock_ns(), true);
	if (t->ops->detach != NULL)
		t->ops->detach(t);
	return NULL;
}
