/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "law.h"

/*
 * Chunks of a job move from box to box while it trains (R16.8 to R16.10 of the protocol): commands to the first box, and what must hold.
 * Each chunk has one owner in each epoch, and in a later one it answers nothing but RESTORE_OK before all workers have reported;
 * then it goes on from the version that they hold. Results are those of one box: the reference knows of no move.
 */

#define HOMES    192        /* epochs of a chunk */
#define AGAIN    (100 * MS) /* a command that cannot be done now */
#define TRIES    20
#define FAILOVER (SIM_COMMANDS + 0) /* commands that the death of a box needs */
#define TAKE_IN  (SIM_COMMANDS + 1)
#define LOOK     (SIM_COMMANDS + 2) /* of a person, after the first of them */
#define PATIENT  50                 /* of these, before the dead box is started after all */

/* Of a fragment; that of a chunk's first one has its homes. */
struct sim_moves {
	struct {
		uint16_t epoch;
		uint8_t box;
		bool gone_by;  /* its fragments went on by it */
		unsigned then; /* forgotten() */
	} home[HOMES];
	unsigned homes;
	uint32_t made[SIM_BOXES]; /* latest version that the box had when it was the owner */
	struct {
		uint16_t epoch; /* 0: none */
		uint32_t version;
		bool have;
	} told[SIM_WORKERS];
};

static struct sim_moves *
moves_of(struct sim_fragment *f)
{
	if (f->moves == NULL)
		f->moves = calloc(1, sizeof(*f->moves));
	PBOX_ASSERT(f->moves != NULL);
	return f->moves;
}

void
sim_moves_forget(struct sim_fragment *f)
{
	free(f->moves);
	f->moves = NULL;
}

void
sim_moves_run(struct sim *s, unsigned job)
{
	struct sim_job *j = &s->job[job];
	uint64_t run = sim_part(s, job)->run;

	if (!sim_is_fleet(&s->sc, &s->sc.job[job]) || s->box->number != j->decider ||
		run == j->mapped_run)
		return;
	for (uint32_t i = 0; i < j->n_fragments; i++) {
		struct sim_fragment *f = &j->fragment[i];

		sim_moves_forget(f);
		f->box = f->first_box;
		f->epoch = PBOX_MAP_EPOCH;
	}
	j->mapped_run = run;
}

static bool
is_later(uint16_t a, uint16_t b)
{
	return (int16_t)(a - b) > 0;
}

/* ---- commands ----------------------------------------------------------------------------------- */

void
sim_moves_plan(struct sim *s)
{
	if (s->sc.dead_box != 0)
		sim_at(s, s->now + s->sc.dies_ns + s->sc.told_ns, SIM_COMMAND, 0, FAILOVER, NULL);
	for (unsigned i = 0; i < s->sc.commands; i++) {
		struct sim_fault k = {.nth = i, .value = {s->sc.command[i].at}};

		if (sim_fault(s, &k, SIM_FAULT_MOVE, true))
			sim_at(s, s->now + k.value[0], SIM_COMMAND, 0, i, NULL);
	}
}

void
sim_moves_goes(struct sim *s)
{
	sim_at(s, s->now + s->sc.told_ns + SEC, SIM_COMMAND, 0, LOOK, NULL);
	sim_at(s, s->now + s->sc.told_ns, SIM_COMMAND, 0, FAILOVER, NULL);
}

static const struct pbox_job *
find_job(const struct sim *s, unsigned job)
{
	const struct pbox_job *k;

	for (unsigned i = 0; (k = s->code->registrar_job(s->box->registrar, i)) != NULL; i++)
		if ((unsigned)(k->name[3] - '0') == job)
			return k;
	return NULL;
}

/* Where the command wants the chunk; no box: it stays. */
static unsigned
wanted(const struct sim *s, unsigned i, const struct sim_fragment *f, uint32_t chunk, uint32_t n)
{
	uint32_t x = s->sc.command[i].x, from = x % n, to = from + (x >> 16) % (n - from);
	unsigned box = s->sc.command[i].box, fleet = s->sc.fleet;

	switch (s->sc.command[i].what) {
	case 0: /* some of them move, */
		return chunk >= from && chunk <= to ? box : fleet;
	case 1: /* all to one box, */
		return box;
	case 2: /* all that one has to the others, */
		return f->box == box ? (box + 1 + chunk % (fleet - 1)) % fleet : fleet;
	default: /* and all, to one after the other */
		return (chunk + x) % fleet;
	}
}

/* False: not now. */
static bool
move_table(struct sim *s, unsigned i, unsigned job, unsigned table, const struct pbox_job *k)
{
	uint32_t n = s->job[job].chunks[table];
	struct pbox_error err = {0};

	for (uint32_t c = 0; c < n; c++) {
		const struct sim_fragment *f =
			sim_find(&s->job[job], table << PBOX_CHUNK_BITS | c, 0);
		unsigned box = f != NULL ? wanted(s, i, f, c, n) : s->sc.fleet;
		int ret;

		if (box == s->sc.fleet)
			continue;
		ret = s->code->registrar_move(
			s->box->registrar, k->id, table, c, c, box, s->now, &err);
		if (ret == -EAGAIN)
			return false;
		if (ret > 0)
			sim_inexact(s, job);
		if (ret > 0)
			sim_note(s, "chunk %x of job %u is to move to box %u", f->chunk, job, box);
	}
	return true;
}

/* One of them, for one job; -EAGAIN: not now. */
static int
give(struct sim *s, unsigned command, const struct pbox_job *k)
{
	uint16_t all = (uint16_t)((1u << s->sc.fleet) - 1);
	struct pbox_error err = {0};
	unsigned stateless;
	int ret;

	if (command == FAILOVER)
		ret = s->code->registrar_failover(
			s->box->registrar, k->id, s->sc.dead_box, true, s->now, &stateless, &err);
	else
		ret = s->code->registrar_scale(s->box->registrar, k->id, all, s->now, &err);
	if (ret < 0)
		sim_note(s, "job %s: %s", k->name, err.text);
	/* the one that has taken the place has died before anybody heard of that: this box names the first one */
	if (command == FAILOVER && ret == -EINVAL && s->sc.first == SIM_FIRST_TWO)
		ret = s->code->registrar_failover(
			s->box->registrar, k->id, 0, true, s->now, &stateless, &err);
	return ret;
}

/* A crash of a box that is none of the scenario's list (fleet.h). */
static void
crash_at(struct sim *s, unsigned box, uint64_t at, unsigned crash)
{
	sim_at_box(s, box, &(struct sim_event){.at = at, .kind = SIM_CRASH, .worker = crash});
}

/* It is started, and a little before or after that its jobs take it in by a command. */
static void
comes_back(struct sim *s)
{
	uint64_t back = s->sc.back_ns > 0 ? s->sc.back_ns : 10 * MS;

	sim_at(s, s->now + back / 2 + sim_below(s, back), SIM_COMMAND, 0, TAKE_IN, NULL);
	if (s->sc.first == SIM_FIRST_CUT)
		s->sc.net.hole[s->sc.net.holes - 1].to = s->now + back;
	for (unsigned b = s->sc.first == SIM_FIRST_STAYS ? s->sc.dead_box : 0;
		s->sc.first != SIM_FIRST_CUT && b <= s->sc.dead_box; b++)
		crash_at(s, b, s->now + back, SIM_REVIVE);
}

/* The first box was started before it was taken in, or not at all: somebody may have joined it in between, and what it has is not of the run that
 * goes on. `why` says that it is to be started again (R16.12). */
static void
once_more(struct sim *s)
{
	uint64_t later = sim_below(s, 300 * MS);

	for (unsigned b = 0; b <= s->sc.dead_box; b++)
		crash_at(s, b, s->now + later, SIM_REVIVE);
}

/* The one that decides now dies, too. */
static void
second_goes(struct sim *s)
{
	uint64_t later = sim_below(s, sim_below(s, 2) == 0 ? 2 * SEC : 100 * MS);

	s->sc.dead_box = 1;
	crash_at(s, 1, s->now + later, SIM_DEATH);
}

/* Or begins. Who has left does not join a box that is taken in, and then those who have not wait for it. */
static bool
is_ending(const struct sim *s, unsigned job)
{
	for (unsigned i = 0; i < s->sc.job[job].workers; i++) {
		const struct sim_worker *w = s->job[job].worker[i];

		if (w->state != SIM_WORK)
			return true;
		for (unsigned t = 0; t < s->sc.job[job].tables; t++)
			if (w->done[t] + 4 > s->sc.job[job].rounds)
				return true;
	}
	return false;
}

/* The box that is given a command for the job: the one that decides, or takes its place. */
static struct sim_box *
asked(struct sim *s, unsigned job, unsigned command)
{
	if (command == FAILOVER && s->sc.first != SIM_FIRST_STAYS)
		return &s->boxes[s->sc.dead_box + 1];
	return &s->boxes[s->job[job].decider];
}

/* A box that has taken the place may have been started again before any worker had heard of it: then nobody knows that, and the command is given
 * once more. */
static void
look(struct sim *s, unsigned tries)
{
	struct sim_box *given = s->box;

	for (unsigned j = 0; j < s->sc.jobs; j++) {
		const struct pbox_job *k = NULL;

		s->box = &s->boxes[s->job[j].decider];
		if (s->job[j].decider != 0 && s->box->up && !s->job[j].over)
			k = find_job(s, j);
		if (k != NULL && k->decider != s->box->number)
			give(s, FAILOVER, k);
	}
	s->box = given;
	if (tries < PATIENT && s->box->unfinished > 0)
		sim_at(s, s->now + SEC, SIM_COMMAND, 0, LOOK, (void *)(uintptr_t)(tries + 1));
}

/* Until all jobs have it. A job that cannot go on without the box needs it back. */
static void
of_death(struct sim *s, unsigned command, unsigned tries)
{
	struct sim_box *given = s->box;
	bool any = s->sc.first != SIM_FIRST_STAYS || s->box->up, good = any, alone = true;

	for (unsigned j = 0; any && j < s->sc.jobs; j++) {
		const struct pbox_job *k;
		int ret = -EAGAIN;

		if (!sim_is_fleet(&s->sc, &s->sc.job[j]) || s->job[j].over ||
			(command == TAKE_IN && is_ending(s, j)))
			continue;
		s->box = asked(s, j, command);
		k = s->box->up ? find_job(s, j) : NULL;
		if (k != NULL)
			ret = give(s, command, k);
		if (ret >= 0 && command == FAILOVER && s->sc.first != SIM_FIRST_STAYS)
			s->job[j].decider = s->box->number;
		s->box = given;
		good &= ret != -EAGAIN;
		alone &= ret >= 0;
		if (ret < 0)
			continue;
		sim_inexact(s, j);
		sim_note(s,
			command == FAILOVER ? "job %u goes on without box %u"
					    : "job %u takes box %u in again",
			j, s->sc.dead_box);
	}
	if (!good && tries < PATIENT && s->box->unfinished > 0)
		sim_at(s, s->now + AGAIN, SIM_COMMAND, 0, command, (void *)(uintptr_t)(tries + 1));
	else if (command == FAILOVER && s->sc.first == SIM_FIRST_TWO && s->sc.dead_box == 0 &&
		 good && alone)
		second_goes(s);
	else if (command == TAKE_IN && s->sc.first != SIM_FIRST_STAYS)
		once_more(s);
	else if (command == FAILOVER && (s->sc.back_ns > 0 || !alone))
		comes_back(s);
	else if (command == FAILOVER && s->box->unfinished > 0)
		/* a first box that is started again before there is a table knows nothing of it */
		sim_at(s, s->now + 10 * AGAIN, SIM_COMMAND, 0, command, NULL);
}

void
sim_moves_command(struct sim *s, unsigned command, unsigned tries)
{
	struct sim_box *given = s->box;
	bool good = s->box->up;

	if (command == LOOK) {
		look(s, tries);
		return;
	}
	if (command >= SIM_COMMANDS) {
		of_death(s, command, tries);
		return;
	}
	for (unsigned j = 0; j < s->sc.jobs; j++) {
		const struct pbox_job *k;

		s->box = asked(s, j, command);
		if (!s->box->up || !sim_is_fleet(&s->sc, &s->sc.job[j]) || s->job[j].over)
			continue;
		k = find_job(s, j);
		for (unsigned t = 0; t < s->sc.job[j].tables; t++)
			good &= k != NULL && s->job[j].first_number[t] != NULL &&
				move_table(s, command, j, t, k);
	}
	s->box = given;
	if (!good && tries < TRIES && s->box->unfinished > 0)
		sim_at(s, s->now + AGAIN, SIM_COMMAND, 0, command, (void *)(uintptr_t)(tries + 1));
}

/* ---- owners --------------------------------------------------------------------------------------- */

/* How often those that decide have forgotten which maps they have made. */
static unsigned
forgotten(const struct sim *s)
{
	unsigned n = s->boxes[0].generation;

	for (unsigned b = 1; s->sc.first != SIM_FIRST_STAYS && b <= s->sc.dead_box + 1; b++)
		n += s->boxes[b].generation;
	return n;
}

/* One in each epoch. */
static void
note_home(struct sim *s, struct sim_fragment *f, const struct pbox_home *h)
{
	struct sim_moves *m = moves_of(f);

	for (unsigned i = 0; i < m->homes; i++) {
		if (m->home[i].epoch != h->epoch)
			continue;
		/*
		 * Each chunk that moves by a command is a map of its own, and if all that have heard of more than 255 are started again a number
		 * comes once more (R16.11). Operators do not give so many commands while nobody goes by any.
		 */
		if (m->home[i].box != h->box && !m->home[i].gone_by &&
			m->home[i].then != forgotten(s)) {
			m->home[i].box = h->box;
			m->home[i].then = forgotten(s);
			return;
		}
		if (m->home[i].box != h->box)
			sim_fail(s,
				"by map %u chunk %x is at box %u, says box %u, and was at box %u",
				h->epoch, f->chunk, h->box, s->box->number, m->home[i].box);
		return;
	}
	if (h->epoch == PBOX_MAP_EPOCH && h->box != f->first_box)
		sim_fail(s,
			"by the first map chunk %x is at box %u, says box %u, and was at box %u",
			f->chunk, h->box, s->box->number, f->first_box);
	if (m->homes == HOMES) {
		sim_fail(s, "chunk %x has had %u owners", f->chunk, m->homes);
		return;
	}
	m->home[m->homes].epoch = h->epoch;
	m->home[m->homes].gone_by = false;
	m->home[m->homes].then = forgotten(s);
	m->home[m->homes++].box = h->box;
}

static unsigned
home_in(struct sim *s, unsigned job, const struct sim_fragment *f, uint16_t epoch)
{
	struct sim_fragment *first = sim_find(&s->job[job], f->chunk, 0);
	const struct sim_moves *m = moves_of(first);

	if (epoch == PBOX_MAP_EPOCH)
		return f->first_box;
	for (unsigned i = 0; i < m->homes; i++)
		if (m->home[i].epoch == epoch)
			return m->home[i].box;
	return SIM_BOXES;
}

/* ---- a move ---------------------------------------------------------------------------------------- */

static void moved(struct sim *s, unsigned job, struct sim_fragment *f, uint16_t epoch,
	uint32_t base, bool without);

/* A box that answers a new process so has restored all that has come to it, perhaps of nobody. */
static void
settled(struct sim *s, unsigned job, struct sim_fragment *f, const struct pbox_home *h)
{
	struct sim_job *j = &s->job[job];
	uint32_t chunk = f->chunk;

	for (; f < j->fragment + j->n_fragments && f->chunk == chunk; f++) {
		uint32_t base = moves_of(f)->made[s->box->number];

		for (unsigned w = 0; w < SIM_WORKERS; w++)
			if (f->moves->told[w].epoch == h->epoch && f->moves->told[w].version > base)
				base = f->moves->told[w].version;
		if (is_later(h->epoch, f->epoch))
			moved(s, job, f, h->epoch, base, false);
	}
}

void
sim_moves_homes(struct sim *s, unsigned job, const struct pbox_send *out)
{
	struct pbox_homes m;

	if (sim_part(s, job)->run != s->job[job].mapped_run)
		return; /* of another run than the first box has */
	if (pbox_homes_decode(out->payload, out->hdr.length, &m) < 0 || m.table >= SIM_TABLES) {
		sim_fail(s, "HOMES_OK cannot be read");
		return;
	}
	for (uint32_t i = 0; i < m.count && !s->failed; i++) {
		struct sim_fragment *f =
			sim_find(&s->job[job], m.table << PBOX_CHUNK_BITS | (m.first + i), 0);

		if (f != NULL)
			note_home(s, f, &m.home[i]);
		if (f != NULL && s->box->shown == 0 && m.home[i].box == s->box->number)
			settled(s, job, f, &m.home[i]);
	}
}

static void
check_bytes(struct sim *s, unsigned job, const struct sim_fragment *f, uint32_t version,
	const uint8_t *payload, const char *what)
{
	size_t bytes =
		(size_t)f->elements * pbox_format_wide(sim_spec(&s->sc, job, f)->fixed.pull_format);

	if (f->answer[0] == NULL || version == 0 || version > f->version ||
		f->version - version > 1 || f->no_result ||
		(version != f->version && f->version - 1 == 0))
		return;
	if (memcmp(f->answer[version & 1], payload, bytes) != 0)
		sim_fail(s, "job %u chunk %x frag %u: %s of version %u has other bytes", job,
			f->chunk, f->frag, what, version);
}

void
sim_moves_told(struct sim *s, unsigned job, struct sim_fragment *f, const struct pbox_hdr *h,
	const uint8_t *payload)
{
	struct sim_moves *m = moves_of(f);

	if (!is_later(h->map_epoch, f->epoch))
		return;
	if (is_later(m->told[h->worker].epoch, h->map_epoch) && m->told[h->worker].epoch != 0)
		return;
	m->told[h->worker].epoch = h->map_epoch;
	m->told[h->worker].version = h->round;
	m->told[h->worker].have = (h->flags & PBOX_F_HAVE) != 0;
	(void)s;
	(void)job;
	rounds_note_given(f, h, payload);
}

/* A new process has nothing that it could report; and who has done all may have left. */
static bool
must_report(const struct sim *s, unsigned job, unsigned worker)
{
	for (unsigned i = 0; i < s->sc.job[job].workers; i++) {
		const struct sim_worker *w = s->job[job].worker[i];

		if (w->id == worker && w->state == SIM_WORK)
			return !w->restarted;
	}
	return false;
}

/* R16.13: what only the former owner had is lost with that alone; then the reference loses it, too. */
static void
goes_without(struct sim *s, unsigned job, struct sim_fragment *f, uint32_t base)
{
	if (!rounds_has_more(s, job, f) || (!sim_was_restarted(s, job) && !sim_box_dies(&s->sc)))
		sim_fail(s, "job %u chunk %x frag %u goes on at box %u without what its owner had",
			job, f->chunk, f->frag, s->box->number);
	else if (f->given == NULL || f->given_version != base)
		sim_fail(s, "job %u chunk %x frag %u: version %u is nobody's", job, f->chunk,
			f->frag, base);
	if (s->failed)
		return;
	sim_reference_begin(&s->sc, job, s->job[job].life, f);
	rounds_from_worker(s, job, f, base);
}

/* The new owner goes on from `base`. */
static void
moved(struct sim *s, unsigned job, struct sim_fragment *f, uint16_t epoch, uint32_t base,
	bool without)
{
	struct sim_moves *m = moves_of(f), *first = moves_of(sim_find(&s->job[job], f->chunk, 0));
	bool more = rounds_has_more(s, job, f) && !without;
	uint32_t most = 0, own;

	for (unsigned i = 0; i < first->homes; i++)
		first->home[i].gone_by |= first->home[i].epoch == epoch;
	/* it may have been here all the time, and gone and come again by maps that no box was shown between */
	own = f->box == s->box->number ? f->published : m->made[s->box->number];
	for (unsigned w = 0; w < s->sc.job[job].workers && !s->failed; w++) {
		if (m->told[w].epoch == epoch)
			most = m->told[w].version > most ? m->told[w].version : most;
		else if (must_report(s, job, w) && !sim_was_restarted(s, job))
			sim_fail(s,
				"job %u chunk %x frag %u goes on at box %u before worker %u has reported",
				job, f->chunk, f->frag, s->box->number, w);
	}
	if (base != most && !(more && base == most + 1) && (base != own || base < most))
		sim_fail(s, "job %u chunk %x frag %u goes on at box %u at version %u, not %u", job,
			f->chunk, f->frag, s->box->number, base, most);
	if (f->ready && base != f->version && base + 1 != f->version)
		sim_fail(s,
			"job %u chunk %x frag %u goes on at box %u at version %u, and has been at %u",
			job, f->chunk, f->frag, s->box->number, base, f->version);
	if (without && !s->failed)
		goes_without(s, job, f, base);
	m->made[f->box] = f->published;
	sim_note(s, "chunk %x frag %u of job %u has moved from box %u to box %u, at version %u",
		f->chunk, f->frag, job, f->box, s->box->number, base);
	f->box = (uint8_t)s->box->number;
	f->epoch = epoch;
	f->restored_in = s->box->incarnation;
	f->published = base;
	slots_reset(f, base);
	s->box->progress_at = s->now;
}

void
sim_moves_answer(struct sim *s, unsigned job, struct sim_fragment *f, const struct pbox_send *out)
{
	const struct pbox_hdr *h = &out->hdr;
	unsigned home = home_in(s, job, f, h->map_epoch);

	if (home != s->box->number && s->box->forging)
		return; /* nobody sent it there */
	if (home != s->box->number) {
		sim_fail(s, "box %u answers %s of chunk %x by map %u, by which box %u has it",
			s->box->number, pbox_type_name(h->type), f->chunk, h->map_epoch, home);
		return;
	}
	if (!is_later(h->map_epoch, f->epoch)) {
		/* nobody takes it any more; and what there is of it is right */
		if (h->type == PBOX_RESULT)
			check_bytes(s, job, f, h->round, out->payload, "a late RESULT");
	} else if (h->type == PBOX_RESTORE_OK && h->aux == PBOX_RESTORE_DONE) {
		moved(s, job, f, h->map_epoch, h->base, h->weight == 1);
	} else if (h->type == PBOX_RESTORE_OK && h->aux == PBOX_RESTORE_LOST) {
		if (!sim_was_restarted(s, job))
			sim_fail(s, "job %u chunk %x frag %u is lost on its way to box %u", job,
				f->chunk, f->frag, s->box->number);
	} else if (h->type == PBOX_RESULT || h->type == PBOX_PUSH_OK) {
		sim_fail(s, "box %u answers %s of chunk %x before it has come there",
			s->box->number, pbox_type_name(h->type), f->chunk);
	}
}
