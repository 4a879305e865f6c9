/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "law_blocks.h"
#include "law_replica.h"
#include "law_updates.h"
#include "law.h"

#define TICK     (50 * MS)
#define PATIENCE (60 * SEC)  /* without progress: a hang */
#define SLOW     (180 * SEC) /* but where three of four frames of a fragment are lost each way */

void
sim_fail(struct sim *s, const char *fmt, ...)
{
	va_list ap;

	if (s->failed)
		return;
	s->failed = true;
	s->invariant = fmt;
	va_start(ap, fmt);
	vsnprintf(s->why, sizeof(s->why), fmt, ap);
	va_end(ap);
	sim_note(s, "FAILED: %s", s->why);
}

void
sim_trace(struct sim *s, const char *fmt, ...)
{
	va_list ap;

	if (!s->verbose)
		return;
	printf("%12.3f us ", (double)(s->now - SIM_BEGIN) / 1000.0);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
}

uint64_t
sim_mix(uint64_t a, uint64_t b)
{
	uint64_t x = a ^ (b + UINT64_C(0x9E3779B97F4A7C15) + (a << 6) + (a >> 2));

	x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
	x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
	return x ^ x >> 31;
}

void
sim_hash(struct sim *s, uint64_t x)
{
	uint64_t *hash = &s->box->hash;

	*hash = (*hash ^ x) * UINT64_C(0x100000001B3);
	*hash ^= *hash >> 29;
}

bool
sim_chance(struct sim *s, double p)
{
	return p > 0.0 && pbox_random_unit(&s->box->random) < p;
}

uint64_t
sim_below(struct sim *s, uint64_t n)
{
	return n == 0 ? 0 : pbox_random_below(&s->box->random, n);
}

void
sim_at(struct sim *s, uint64_t at, enum sim_kind kind, unsigned job, unsigned worker, void *p)
{
	sim_at_box(s, s->box->number,
		&(struct sim_event){.at = at, .kind = kind, .job = job, .worker = worker, .p = p});
}

void
sim_at_box(struct sim *s, unsigned box, const struct sim_event *e)
{
	struct sim_event of = *e;

	of.box = box;
	s->boxes[box].queued++;
	sim_queue_push(&s->queue, &of);
}

bool
sim_is_here(const struct sim *s, unsigned job)
{
	return sim_is_at(&s->sc, &s->sc.job[job], s->box->number);
}

bool
sim_is_home(const struct sim *s, unsigned job)
{
	return s->sc.job[job].box == s->box->number;
}

struct sim_part *
sim_part(struct sim *s, unsigned job)
{
	return &s->job[job].part[s->box->number];
}

void
sim_inexact(struct sim *s, unsigned job)
{
	for (unsigned b = 0; b < s->sc.boxes; b++)
		s->boxes[b].exact &= !sim_is_at(&s->sc, &s->sc.job[job], b);
}

bool
sim_was_restarted(const struct sim *s, unsigned job)
{
	for (unsigned b = 0; b < s->sc.boxes; b++)
		if (sim_is_at(&s->sc, &s->sc.job[job], b) && s->boxes[b].generation > 0)
			return true;
	return false;
}

uint64_t
sim_progress(const struct sim *s)
{
	uint64_t at = s->box->progress_at;

	for (unsigned b = 0; s->box->number < s->sc.fleet && b < s->sc.fleet; b++)
		at = s->boxes[b].progress_at > at ? s->boxes[b].progress_at : at;
	return at;
}

void
sim_forget_map(struct sim_job *j)
{
	for (uint32_t i = 0; i < j->n_fragments; i++) {
		blocks_forget(&j->fragment[i]);
		replica_free(&j->fragment[i]);
		updates_free(&j->fragment[i]);
		sim_reference_forget(&j->fragment[i]);
		sim_moves_forget(&j->fragment[i]);
		free(j->fragment[i].piece);
		free(j->fragment[i].slot);
		free(j->fragment[i].given);
		free(j->fragment[i].snapshot.param);
		free(j->fragment[i].snapshot.s0);
		free(j->fragment[i].snapshot.s1);
	}
	hold_forget(j);
	free(j->fragment);
	j->fragment = NULL;
	j->n_fragments = 0;
	for (unsigned t = 0; t < SIM_TABLES; t++) {
		free(j->first_number[t]);
		j->first_number[t] = NULL;
		for (unsigned i = 0; i < SIM_TENSORS; i++)
			free(j->tensor[t][i].piece);
	}
	memset(j->tensor, 0, sizeof(j->tensor));
	j->shared = false;
}

void
sim_job_lost(struct sim *s, unsigned job)
{
	sim_note(s, "job %u is lost", job);
	s->job[job].lost = true;
	for (unsigned i = 0; i < s->sc.job[job].workers; i++)
		sim_at(s, s->now, SIM_KILL, job, i, s);
}

/* Workers of a job by plan stop for a while, or for good. */
static void
plan_stops(struct sim *s, unsigned job)
{
	const struct sim_job_spec *spec = &s->sc.job[job];

	for (unsigned i = 0; i < spec->deaths + spec->stops; i++) {
		bool kill = i < spec->deaths;
		struct sim_fault k = {.job = (uint8_t)job,
			.nth = SIM_STOPS + i,
			.round = s->job[job].life,
			.value = {sim_below(s, sim_chance(s, 0.5) ? 500 * MS : 4 * SEC)}};

		k.worker = (uint8_t)sim_below(s, spec->workers);
		k.value[1] = kill ? 0 : 50 * MS + sim_below(s, sim_chance(s, 0.5) ? SEC : 3 * SEC);
		if (!sim_fault(s, &k, kill ? SIM_FAULT_KILL : SIM_FAULT_STOP, true))
			continue;
		sim_at(s, s->now + k.value[0], kill ? SIM_KILL : SIM_STOP, job, k.worker,
			(void *)(uintptr_t)k.value[1]);
	}
}

/* When killing and moving may happen: anywhere in the first part of a life. */
static void
plan_fates(struct sim *s, unsigned job)
{
	const struct sim_job_spec *spec = &s->sc.job[job];

	for (unsigned i = 0; i < spec->restarts + spec->rebinds; i++) {
		bool kill = i < spec->restarts;
		/* often while the first rounds are under way */
		struct sim_fault k = {.job = (uint8_t)job,
			.nth = i,
			.round = s->job[job].life,
			.value = {sim_below(s, sim_chance(s, 0.5) ? 50 * MS : 300 * MS)}};

		k.worker = (uint8_t)sim_below(s, spec->workers);
		if (sim_fault(s, &k, kill ? SIM_FAULT_KILL : SIM_FAULT_REBIND, true))
			sim_at(s, s->now + k.value[0], kill ? SIM_KILL : SIM_REBIND, job, k.worker,
				NULL);
	}
	plan_stops(s, job);
	if (spec->dies)
		for (unsigned w = 0; w < spec->workers; w++)
			sim_at(s, s->now + spec->death_ns, SIM_KILL, job, w, s);
}

/* A worker that joins while the job trains. */
static uint64_t
comes_later(const struct sim *s, unsigned job, unsigned worker)
{
	const struct sim_job_spec *spec = &s->sc.job[job];

	if (spec->least == 0 || worker < spec->least || spec->later_ns == 0)
		return 0;
	return sim_mix(s->sc.seed ^ UINT64_C(0x1A7E), (uint64_t)job << 16 | worker) %
	       spec->later_ns;
}

static void
start_life(struct sim *s, unsigned job)
{
	const struct sim_job_spec *spec = &s->sc.job[job];

	for (unsigned w = 0; w < spec->workers; w++)
		sim_at(s, s->now + sim_below(s, 20 * MS) + comes_later(s, job, w), SIM_START, job,
			w, NULL);
	plan_fates(s, job);
	sim_replace_plan(s, job);
}

static void
job_over(struct sim *s, struct sim_job *j)
{
	if (j->over)
		return;
	j->over = true;
	for (unsigned b = 0; b < s->sc.boxes; b++)
		s->boxes[b].unfinished -= sim_is_at(&s->sc, &s->sc.job[j - s->job], b);
}

static void
end_life(struct sim *s, unsigned job)
{
	struct sim_job *j = &s->job[job];
	const struct sim_job_spec *spec = &s->sc.job[job];

	for (uint32_t i = 0; i < j->n_fragments; i++)
		sim_spec(&s->sc, job, &j->fragment[i])->law->end(s, job, &j->fragment[i]);
	for (unsigned w = 0; w <= SIM_WORKERS; w++)
		sim_worker_kill(s, j->worker[w]);
	sim_forget_map(j);
	sim_plan_end(j);
	j->done = j->finished = j->down = j->gone = 0;
	if (++j->life < spec->lives)
		start_life(s, job);
	else
		job_over(s, j);
}

void
sim_worker_finished(struct sim *s, struct sim_worker *w)
{
	struct sim_job *j = &s->job[w->job];

	if (w->state == SIM_DONE)
		return;
	w->state = SIM_DONE;
	s->box->progress_at = s->now;
	sim_note(s, "worker %u/%u is done", w->job, w->number);
	j->done += !w->plan.left;
	if (j->done + j->gone == s->sc.job[w->job].workers)
		sim_at(s, s->now, SIM_START, w->job, SIM_ALL, NULL); /* not under its feet */
}

static void
on_kill(struct sim *s, struct sim_worker *w, bool forever)
{
	uint64_t back;

	if (forever) {
		sim_note(s, "worker %u/%u falls silent forever", w->job, w->number);
		sim_worker_kill(s, w);
		w->state = SIM_DEAD;
		s->box->progress_at = s->now;
		sim_inexact(s, w->job);
		job_over(s, &s->job[w->job]);
	} else if (s->sc.job[w->job].plan) {
		sim_plan_kill(s, w);
	} else if (w->state >= SIM_DECLARE && w->state <= SIM_WORK && !w->finished &&
		   !w->was_down && s->job[w->job].down + 1 < s->sc.job[w->job].workers) {
		sim_note(s, "worker %u/%u is killed", w->job, w->number);
		s->job[w->job].down++;
		sim_worker_kill(s, w);
		back = s->now + sim_below(s, 1000 * MS);
		if (s->sc.job[w->job].shrink) { /* often it is gone for longer than its lease */
			sim_inexact(s, w->job);
			if (sim_chance(s, 0.7))
				back += s->sc.lease_ms * MS;
		}
		sim_at(s, back, SIM_START, w->job, w->number, s);
	}
}

static void
on_start(struct sim *s, const struct sim_event *e)
{
	if (e->worker == SIM_ALL)
		end_life(s, e->job);
	else
		sim_worker_start(s, s->job[e->job].worker[e->worker], e->p != NULL);
}

static void
on_rebind(struct sim *s, struct sim_worker *w)
{
	if (w->state != SIM_WORK)
		return;
	sim_note(s, "worker %u/%u gets another UDP port%s", w->job, w->number,
		s->sc.moves ? ", at another host" : "");
	w->udp = (uint16_t)(w->udp + 1);
	if (s->sc.moves)
		w->ip ^= 1u << 16;
}

static void
to_worker(struct sim *s, struct sim_packet *p)
{
	unsigned job = p->ip >> 8 & 0xFF, worker = (p->ip & 0xFF) - 1;

	if (worker < SIM_WORKERS && sim_plan_is_stopped(s, s->job[job].worker[worker], p))
		return;
	if (sim_record_is_his(p))
		sim_record_receive(s, p);
	else if (worker < SIM_WORKERS)
		sim_worker_receive(s, s->job[job].worker[worker], p);
	else
		sim_straggler_receive(s, job, p);
	sim_packet_free(p);
}

static void
on_tick(struct sim *s)
{
	const struct sim_network_spec *net = &s->sc.net;
	uint64_t patience =
		net->target_loss + net->loss + net->bad_loss + net->corrupt > 0.5 ? SLOW : PATIENCE;
	bool jobs;

	if (s->box->up)
		sim_box_tick(s);
	for (unsigned j = 0; j < s->sc.jobs; j++) {
		for (unsigned w = 0; sim_is_home(s, j) && w < s->sc.job[j].workers; w++)
			sim_timing_look(s, s->job[j].worker[w]);
		if (sim_is_home(s, j))
			sim_plan_look(s, j);
	}
	if (s->box->unfinished > 0 && s->now - sim_progress(s) > patience) {
		char text[256] = "";
		size_t n = 0;

		for (unsigned i = 0; i < s->sc.jobs; i++)
			for (unsigned w = 0;
				sim_is_here(s, i) && w < s->sc.job[i].workers && n < 200; w++)
				n += (size_t)snprintf(text + n, sizeof(text) - n, " %u/%u:%u", i, w,
					s->job[i].worker[w]->state);
		sim_fail(s, "nothing has moved at box %u for %u s; states:%s", s->box->number,
			(unsigned)(patience / SEC), text);
	}
	jobs = s->box->up && s->code->registrar_jobs(s->box->registrar) > 0;
	/* crashes that are to come keep the run going, too */
	if (s->box->unfinished == 0 && (jobs || s->box->queued > SIM_CRASHES) &&
		s->now - sim_progress(s) > patience)
		sim_fail(s, "all workers are gone for %u s, and box %u still has jobs",
			(unsigned)(patience / SEC), s->box->number);
	if (s->box->unfinished > 0 || s->box->queued > 0 || (!s->box->up && !s->box->dead) || jobs)
		sim_at(s, s->now + TICK, SIM_TICK, 0, 0, NULL);
}

static void
arrived(struct sim *s, const struct sim_packet *p)
{
	uint32_t crc = 0;

	if (p->len >= PBOX_HDR_LEN)
		memcpy(&crc, p->data + PBOX_HDR_LEN - sizeof(crc), sizeof(crc));
	sim_hash(s, sim_mix(p->len, crc));
	s->frames++;
}

static void
handle(struct sim *s, const struct sim_event *e)
{
	struct sim_packet *p = e->p;
	struct sim_worker *w = e->worker <= SIM_WORKERS ? s->job[e->job].worker[e->worker] : NULL;

	if ((e->kind == SIM_POLL || e->kind == SIM_PACE || e->kind == SIM_DMA ||
		    e->kind == SIM_MAIL_SHARD || e->kind == SIM_MAIL_REGISTRAR) &&
		e->job != s->box->generation) {
		free(e->p); /* of a box that is no more */
		return;
	}
	switch (e->kind) {
	case SIM_TO_BOX:
		arrived(s, p);
		if (s->box->up)
			sim_box_arrive(s, p);
		else
			sim_packet_free(p);
		break;
	case SIM_TO_WORKER:
		arrived(s, p);
		to_worker(s, p);
		break;
	case SIM_POLL:
		sim_box_poll(s, e->worker);
		break;
	case SIM_PACE:
		sim_box_pace(s, e->worker);
		break;
	case SIM_DMA:
		sim_box_dma(s, e->p);
		break;
	case SIM_MAIL_SHARD:
	case SIM_MAIL_REGISTRAR:
		sim_box_mail(s, e->worker, e->p, e->kind == SIM_MAIL_SHARD);
		break;
	case SIM_TICK:
		on_tick(s);
		break;
	case SIM_WORKER_TIMER:
		sim_worker_timer(s, w);
		break;
	case SIM_START:
		on_start(s, e);
		break;
	case SIM_KILL:
		on_kill(s, w, e->p != NULL);
		break;
	case SIM_STOP:
		sim_plan_stop(s, w, (uint64_t)(uintptr_t)e->p);
		break;
	case SIM_REBIND:
		on_rebind(s, w);
		break;
	case SIM_REPLACE:
		sim_replace(s, e->job);
		break;
	case SIM_STRAGGLER_GO:
		sim_straggler_go(s, e->job);
		break;
	case SIM_CRASH:
		sim_restart_crash(s, e->worker);
		break;
	case SIM_BOX_START:
		sim_restart_start(s);
		break;
	case SIM_SNAPSHOT:
		sim_restart_snapshot(s);
		break;
	case SIM_RECORDED:
		sim_record_replay(s, p);
		break;
	case SIM_COMMAND:
		sim_moves_command(s, e->worker, (unsigned)(uintptr_t)e->p);
		break;
	}
}

static void
begin_box(struct sim *s, unsigned number, uint64_t salt)
{
	struct sim_box *b = s->box = &s->boxes[number];
	uint64_t seed = s->sc.seed ^ salt ^ (uint64_t)number << 56;

	b->sim = s;
	b->number = number;
	b->exact = true;
	b->progress_at = SIM_BEGIN;
	pbox_random_seed(&b->random, ~seed);
	pbox_random_seed(&b->recorder, seed ^ UINT64_C(0x2EC02D));
	pbox_random_seed(&b->strayer, seed ^ UINT64_C(0x57A4));
	sim_box_start(s);
	sim_restart_plan(s);
	if (number == 0)
		sim_moves_plan(s);
	for (unsigned j = 0; j < s->sc.jobs; j++) {
		b->unfinished += sim_is_here(s, j);
		if (sim_is_home(s, j))
			start_life(s, j);
	}
	sim_at(s, s->now + TICK, SIM_TICK, 0, 0, NULL);
}

static void
begin(struct sim *s, const struct sim_scenario *sc, const struct sim_how *how)
{
	s->sc = *sc;
	s->code = sim_planted != 0 ? &sim_code_planted : &sim_code_real;
	s->verbose = how->verbose;
	s->words = how->words;
	s->only = how->only;
	s->made = how->made;
	s->now = SIM_BEGIN;
	if (how->alone != 0)
		s->sc.stray = 0;
	for (unsigned i = 0; i < s->sc.net.holes; i++) {
		s->sc.net.hole[i].from += SIM_BEGIN;
		s->sc.net.hole[i].to += SIM_BEGIN;
	}
	if (how->verbose)
		sim_scenario_print(&s->sc);
	for (unsigned j = 0; j < s->sc.jobs; j++) {
		for (unsigned w = 0; w <= SIM_WORKERS; w++) {
			s->job[j].worker[w] = calloc(1, sizeof(struct sim_worker));
			PBOX_ASSERT(s->job[j].worker[w] != NULL);
			*s->job[j].worker[w] = (struct sim_worker){
				.job = j, .number = w, .ip = 0x0A000001u + (j << 8) + w};
		}
	}
	for (unsigned i = 0; i < s->sc.boxes; i++)
		if (how->alone == 0 || (how->alone >> i & 1) != 0)
			begin_box(s, i, how->salt);
}

static void
end(struct sim *s)
{
	struct sim_event e;

	for (unsigned i = 0; i < s->sc.boxes && !s->failed; i++) {
		s->box = &s->boxes[i];
		if (s->box->sim != NULL)
			sim_box_check_end(s);
	}
	while (sim_queue_pop(&s->queue, &e)) {
		if (e.kind == SIM_TO_BOX || e.kind == SIM_TO_WORKER || e.kind == SIM_RECORDED)
			sim_packet_free(e.p);
		else if (e.kind == SIM_DMA || e.kind == SIM_MAIL_SHARD ||
			 e.kind == SIM_MAIL_REGISTRAR)
			free(e.p);
	}
	free(s->queue.e);
	for (unsigned j = 0; j < s->sc.jobs; j++) {
		s->box = &s->boxes[s->sc.job[j].box];
		sim_forget_map(&s->job[j]);
		sim_plan_end(&s->job[j]);
		for (unsigned w = 0; w <= SIM_WORKERS; w++) {
			sim_worker_kill(s, s->job[j].worker[w]);
			free(s->job[j].worker[w]);
		}
		for (unsigned b = 0; b < SIM_BOXES; b++)
			for (unsigned w = 0; w < SIM_WORKERS; w++)
				pbox_auth_job_destroy(s->job[j].part[b].auth[w].job);
	}
	for (unsigned i = 0; i < s->sc.boxes; i++) {
		s->box = &s->boxes[i];
		sim_box_stop(s);
	}
	free(s->alike);
}

static void
result_of(const struct sim_box *b, struct sim_result *out)
{
	struct sim_box_result *r = &out->box[b->number];

	if (b->sim == NULL) /* it had no part in the run */
		return;
	r->hash = b->hash;
	out->hash = out->hash == 0 ? b->hash : sim_mix(out->hash, b->hash);
	for (unsigned k = 0; k < PBOX_SS_STATS; k++) {
		r->shard[k] = b->past_shard[k];
		for (unsigned i = 0; i < SIM_SHARDS; i++)
			r->shard[k] += b->shard[i].stats[k];
	}
	for (unsigned k = 0; k < PBOX_RS_STATS; k++)
		r->registrar[k] = b->stats[k] + b->past_registrar[k];
}

void
sim_run(struct sim_result *out, const struct sim_scenario *sc, const struct sim_how *how)
{
	struct sim *s = calloc(1, sizeof(*s));
	struct sim_event e;

	PBOX_ASSERT(s != NULL);
	begin(s, sc, how);
	while (!s->failed && sim_queue_pop(&s->queue, &e)) {
		PBOX_ASSERT(e.at >= s->now);
		s->now = e.at;
		s->box = &s->boxes[e.box];
		s->box->queued--;
		if (++s->events == how->events)
			sim_fail(s, "%llu events are no end", (unsigned long long)how->events);
		sim_hash(s, sim_mix(e.at, (uint64_t)e.kind << 32 | e.job << 16 | e.worker));
		handle(s, &e);
		if (s->box->progress_at != s->box->moved_at) {
			s->box->moved_at = s->box->progress_at;
			s->moving = s->frames;
		}
		if (how->live != NULL) {
			how->live->events = s->events;
			how->live->frames = how->live->moving = s->frames;
		}
	}
	end(s);
	*out = (struct sim_result){.ok = !s->failed,
		.events = s->events,
		.virtual_ns = s->now - SIM_BEGIN,
		.frames = s->frames,
		.moving = s->moving,
		.invariant = s->invariant};
	for (unsigned i = 0; i < s->sc.boxes; i++)
		result_of(&s->boxes[i], out);
	memcpy(out->why, s->why, sizeof(out->why));
	free(s);
}
