/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* The operator's commands that make a new map of a job at several boxes (R16.11, R16.12): moves, scale, weigh, failover. */

#include <errno.h>
#include <stdlib.h>

#include <pbox_spread.h>

#include "registrar_impl.h"

/* A box that was started again may have given numbers to maps that it has forgotten, and no worker remembers: some. The one that decided before this
 * one has given fewer than so many after its own such step (registrar_homes_unknown()). */
#define FORGOTTEN 256
#define TAKEN     (2 * FORGOTTEN)

/* Epochs are compared modulo 2^16: a chunk has moved in one of so many maps. Single moves may still bring it on. */
#define EPOCHS_APART 32000
#define EPOCHS_LAST  32700
#define LOOK_EVERY   (100 * NS_PER_MS)

/* Of a job. */
struct moves {
	uint64_t look_ns; /* when chunks of boxes that are out are looked for next */
	/* of a command of which chunks are left to move: */
	uint32_t weight[PBOX_MAX_BOXES];
	bool left;
	uint64_t slice_ns; /* when some have moved last, */
	uint32_t round;    /* and the latest round that had ended here then */
};

static struct moves *
moves_of(const struct pbox_job *job)
{
	return registrar_job_state(job, PART_moves);
}

void
pbox_registrar_view_moving(
	const struct pbox_registrar *r, const struct pbox_job *job, struct pbox_moving_view *out)
{
	registrar_homes_moving(r, job, out);
	out->more = moves_of(job)->left;
}

/* May chunks of the job move at all? After the loss of a box tables that are not mapped yet may be waiting for just that. */
static int
can_move(const struct pbox_registrar *r, const struct pbox_job *job, bool lost,
	struct pbox_error *err)
{
	if (registrar_boxes_stay(job, err) < 0)
		return -ENOTSUP;
	if (job->window < 2)
		return pbox_fail(err, EINVAL,
			"job '%s' has a window of 1, and chunks move in jobs with 2 or more: give it more memory or packets",
			job->name);
	for (uint32_t i = 0; i < job->n_tables; i++) {
		const struct pbox_job_table *jt = job->table[i];

		if ((!lost && (jt->failed || !jt->built || jt->shards_open < r->conf.n_shards)) ||
			(jt->restoring && !jt->moving))
			return pbox_fail(err, EAGAIN,
				"table %u of job '%s' is not mapped, or is being restored: wait until it is, or has failed",
				i, job->name);
	}
	return 0;
}

/* And by a command to this box? */
static int
may_move(const struct pbox_registrar *r, const struct pbox_job *job, bool lost,
	struct pbox_error *err)
{
	const struct pbox_endpoint *at = &r->conf.boxes.at[job->decider];
	int ret;

	if (r->conf.boxes.boxes < 2)
		return pbox_fail(err, EINVAL, "this box is alone: 'boxes' names several");
	if (!registrar_decides(r, job))
		return pbox_fail(err, EINVAL,
			"chunks of job '%s' move by a command to the box that decides: box %u, at %u.%u.%u.%u",
			job->name, job->decider, at->ipv4[0], at->ipv4[1], at->ipv4[2],
			at->ipv4[3]);
	ret = can_move(r, job, lost, err);
	if (ret < 0)
		return ret;
	for (unsigned w = 0; w < job->workers; w++)
		if (registrar_homes_forgotten(job) && !registrar_homes_told(job, w))
			return pbox_fail(err, EAGAIN,
				"worker %u of job '%s' has not said yet which box has which chunk, after a restart of this one, or since it decides: wait for it",
				w, job->name);
	return 0;
}

/* Chunks go to no box that is out. */
static int
may_take(const struct pbox_job *job, unsigned box, struct pbox_error *err)
{
	if ((job->out >> box & 1) == 0)
		return 0;
	return pbox_fail(err, EINVAL,
		"box %u is out of job '%s' (failover): start it, and take it in again: pbox-ctl scale %s BOXES, naming all that are to serve",
		box, job->name, job->name);
}

static uint16_t
next_epoch(const struct pbox_job *job)
{
	bool knows = registrar_homes_made(job) ||
		     (!job->resumed && job->n_tables > 0 && job->table[0]->built);

	return (uint16_t)(job->map_epoch + (knows ? 1 : FORGOTTEN));
}

static int
check_epoch(const struct pbox_job *job, uint16_t epoch, uint16_t apart, struct pbox_error *err)
{

	for (uint32_t i = 0; i < job->n_tables; i++) {
		const struct pbox_table *t = &job->table[i]->t;

		for (uint32_t k = 0; t->plan != NULL && k < t->n_chunks; k++)
			if ((uint16_t)(epoch - t->plan[k].epoch) > apart)
				return pbox_fail(err, ERANGE,
					"job '%s' has had more than %u maps since chunk %u of table %u moved, and the box cannot compare more: move that chunk first: pbox-ctl moves %s %u %u BOX",
					job->name, apart, k, i, job->name, i, k);
	}
	return 0;
}

/* What the operator's commands begin with. */
static int
command_begin(struct pbox_registrar *r, const struct pbox_job *job, uint16_t id, bool lost,
	uint16_t apart, uint64_t now_ns, struct pbox_error *err)
{
	int ret;

	r->now_ns = now_ns;
	if (job == NULL || job->state != PBOX_JOB_OPEN)
		return pbox_fail(err, ENOENT, "there is no job %u", id);
	ret = may_move(r, job, lost, err);
	if (ret < 0)
		return ret;
	if (registrar_homes_unknown(job, next_epoch(job)))
		return pbox_fail(err, EAGAIN,
			"job '%s' has map %u, and no worker goes by it yet, or by one of the last before it: wait until the workers do",
			job->name, job->map_epoch);
	return check_epoch(job, next_epoch(job), apart, err);
}

int
pbox_registrar_move(struct pbox_registrar *r, uint16_t id, uint32_t table, uint32_t first,
	uint32_t last, unsigned box, uint64_t now_ns, struct pbox_error *err)
{
	struct pbox_job *job = id < r->conf.max_jobs ? r->job[id] : NULL;
	struct pbox_table *t;
	uint16_t epoch;
	int n = 0, ret;

	ret = command_begin(r, job, id, false, EPOCHS_LAST, now_ns, err);
	if (ret < 0)
		return ret;
	if (table >= job->n_tables)
		return pbox_fail(err, ENOENT, "job '%s' has %u table%s, from 0 on", job->name,
			job->n_tables, job->n_tables == 1 ? "" : "s");
	t = &job->table[table]->t;
	if (first > last || last >= t->n_chunks)
		return pbox_fail(err, ENOENT, "table %u of job '%s' has chunks 0 to %u", table,
			job->name, t->n_chunks > 0 ? t->n_chunks - 1 : 0);
	if (box >= r->conf.boxes.boxes)
		return pbox_fail(err, ENOENT, "job '%s' is at boxes 0 to %u", job->name,
			r->conf.boxes.boxes - 1u);
	ret = may_take(job, box, err);
	if (ret < 0)
		return ret;
	epoch = next_epoch(job);
	moves_of(job)->left = false;
	for (uint32_t i = first; i <= last; i++) {
		if (t->plan[i].box == box)
			continue;
		t->plan[i] = (struct pbox_table_home){.box = (uint8_t)box, .epoch = epoch};
		n++;
	}
	if (n == 0)
		return 0;
	registrar_event(r, PBOX_LOG_INFO, "job '%s': map %u: %d chunks of table %u go to box %u",
		job->name, epoch, n, table, box);
	registrar_homes_new(r, job, epoch, job->out);
	return n;
}

/* What becomes of tables with more than parameters in fp32 (R10.8); how many there are. */
static unsigned
lose_states(struct pbox_registrar *r, const struct pbox_job *job)
{
	unsigned n = 0;

	for (uint32_t i = 0; i < job->n_tables; i++) {
		const struct pbox_table *t = &job->table[i]->t;

		if (t->plan == NULL || !pbox_table_has_more(t))
			continue;
		registrar_event(r, PBOX_LOG_WARN,
			"job '%s': table %u (optimiser %s, results in %s) goes on with parameters as its workers have them, and what the optimiser had gathered of the chunks of that box is 0",
			job->name, i, pbox_optimiser_name(t->optimiser),
			pbox_format_name(t->pull_format));
		n++;
	}
	return n;
}

static bool
has_chunks(const struct pbox_job *job, unsigned box)
{
	struct pbox_homes_view view;

	pbox_registrar_view_homes(job, &view);
	return view.chunks[box] > 0;
}

/* The job goes on without these boxes, by a map of that epoch: how many chunks go. */
static int
moves_without(struct pbox_registrar *r, struct pbox_job *job, uint16_t lost, uint16_t epoch,
	unsigned *stateless)
{
	uint16_t out = (uint16_t)(job->out | lost);
	int n = registrar_share_lost(job, out, r->conf.boxes.boxes, epoch);

	for (unsigned b = 0; b < r->conf.boxes.boxes; b++) {
		if ((lost >> b & 1) == 0)
			continue;
		registrar_event(r, PBOX_LOG_WARN,
			"job '%s': map %u: box %u is out, and its %d chunks go to the others",
			job->name, epoch, b, n);
		PBOX_ASSERT_WALK(!has_chunks(job, b)); /* nothing stays where nobody serves it */
	}
	*stateless = lose_states(r, job); /* chunks may not have left it yet, by an earlier map */
	registrar_homes_new(r, job, epoch, out);
	return n;
}

/* Has it heard from its workers which tables the job has, and which maps (R10.2, R16.7)? */
static int
may_take_place(const struct pbox_job *job, struct pbox_error *err)
{
	bool knows = job->n_tables > 0;

	for (uint32_t i = 0; i < job->n_tables; i++)
		knows &= job->table[i]->built || job->table[i]->restorers == 0;
	if (knows)
		return 0;
	return pbox_fail(err, EAGAIN,
		"job '%s' has no table here yet, or this box was started again and its workers have not said yet what they have: wait for them; a job without tables begins again at box 0",
		job->name);
}

/*
 * Boxes from the one that decides on, up to this one, which takes its place (R16.17): bits in @p lost; each between is out, or one of @p dead.
 * @p epoch: of the map by which it does; those of two boxes that do so are never alike.
 */
static int
place_taken(const struct pbox_registrar *r, const struct pbox_job *job, uint16_t dead,
	uint16_t *lost, uint16_t *epoch, struct pbox_error *err)
{
	unsigned boxes = r->conf.boxes.boxes, box = job->decider;
	const struct pbox_endpoint *at;

	*lost = 0;
	*epoch = job->map_epoch;
	for (unsigned b = box; b != r->conf.boxes.box; b = (b + 1) % boxes) {
		*epoch = (uint16_t)(*epoch + TAKEN);
		at = &r->conf.boxes.at[b];
		if (b != box && ((job->out | dead) >> b & 1) == 0)
			return pbox_fail(err, EINVAL,
				"box %u of job '%s' takes the place of box %u: give the command there, at %u.%u.%u.%u. If that one is dead, too: here, with --force",
				b, job->name, box, at->ipv4[0], at->ipv4[1], at->ipv4[2],
				at->ipv4[3]);
		*lost |= (uint16_t)(1u << b);
	}
	return 0;
}

/* The boxes that this one takes the place of may live: not if no round needs them, for they have no chunks. */
static int
place_is_free(const struct pbox_registrar *r, const struct pbox_job *job, uint16_t lost,
	struct pbox_error *err)
{
	for (unsigned b = 0; b < r->conf.boxes.boxes; b++)
		if ((lost >> b & 1) != 0 && has_chunks(job, b))
			return registrar_times_still(r, job, err);
	return 0;
}

/*
 * R16.17: the box that decides is dead, and this one takes its place, if it is the next one that is not out. What it does not know of maps
 * it hears from workers, as after a restart.
 */
static int
take_place(struct pbox_registrar *r, struct pbox_job *job, const struct pbox_registrar_take *how,
	unsigned *stateless, struct pbox_error *err)
{
	unsigned box = job->decider;
	uint16_t lost, epoch;
	int ret = place_taken(r, job, how->force ? UINT16_MAX : how->dead, &lost, &epoch, err);

	if (ret == 0)
		ret = can_move(r, job, true, err);
	if (ret == 0)
		ret = may_take(job, r->conf.boxes.box, err);
	if (ret == 0)
		ret = may_take_place(job, err);
	if (ret == 0 && !how->force)
		ret = place_is_free(r, job, lost, err);
	if (ret == 0)
		ret = check_epoch(job, epoch, EPOCHS_APART, err);
	if (ret < 0 || how->only_try)
		return ret;
	registrar_event(
		r, PBOX_LOG_WARN, "job '%s': this box decides, in place of box %u", job->name, box);
	moves_of(job)->left = false;
	registrar_homes_take(r, job);
	registrar_times_take(r, job);
	return moves_without(r, job, lost & (uint16_t)~job->out, epoch, stateless);
}

int
pbox_registrar_take(struct pbox_registrar *r, uint16_t id, unsigned box,
	const struct pbox_registrar_take *how, uint64_t now_ns, unsigned *stateless,
	struct pbox_error *err)
{
	struct pbox_job *job = id < r->conf.max_jobs ? r->job[id] : NULL;

	*stateless = 0;
	r->now_ns = now_ns;
	if (job == NULL || job->state != PBOX_JOB_OPEN || r->conf.boxes.boxes < 2)
		return pbox_fail(err, ENOENT, "there is no job %u at several boxes", id);
	if (box != job->decider || registrar_decides(r, job))
		return pbox_fail(err, EINVAL,
			"box %u decides in job '%s', and this is box %u: it cannot take the place of box %u",
			job->decider, job->name, r->conf.boxes.box, box);
	return take_place(r, job, how, stateless, err);
}

int
pbox_registrar_failover(struct pbox_registrar *r, uint16_t id, unsigned box, bool force,
	uint64_t now_ns, unsigned *stateless, struct pbox_error *err)
{
	struct pbox_job *job = id < r->conf.max_jobs ? r->job[id] : NULL;
	struct pbox_registrar_take how = {.force = force};
	int ret;

	*stateless = 0;
	r->now_ns = now_ns;
	if (job != NULL && job->state == PBOX_JOB_OPEN && r->conf.boxes.boxes > 1 &&
		box == job->decider && !registrar_decides(r, job))
		return take_place(r, job, &how, stateless, err);
	ret = command_begin(r, job, id, true, EPOCHS_APART, now_ns, err);
	if (ret < 0)
		return ret;
	if (box == job->decider)
		return pbox_fail(err, EINVAL,
			"box %u decides in job '%s', and is the one that is asked: if it is dead, give the command to the next box of the list",
			box, job->name);
	if (box >= r->conf.boxes.boxes)
		return pbox_fail(err, ENOENT, "job '%s' is at boxes 0 to %u", job->name,
			r->conf.boxes.boxes - 1u);
	/* it may be out, and have chunks: this box was started again, and the workers came with them after that */
	if ((job->out >> box & 1) != 0 && !has_chunks(job, box))
		return 0;
	ret = force ? 0 : registrar_times_lives(r, job, box, err);
	if (ret < 0)
		return ret;
	moves_of(job)->left = false;
	return moves_without(r, job, (uint16_t)(1u << box), next_epoch(job), stateless);
}

/* Homes by the weights, all tables one after the other: how many chunks move. */
static int
scale_homes(const struct pbox_job *job, const uint32_t *weight, unsigned boxes, uint8_t *home,
	struct pbox_error *err)
{
	int64_t lack[PBOX_MAX_BOXES] = {0};
	int all = 0;

	for (uint32_t i = 0; i < job->n_tables; i++) {
		const struct pbox_table *t = &job->table[i]->t;
		int n;

		for (uint32_t k = 0; k < t->n_chunks; k++)
			home[k] = t->plan[k].box;
		n = pbox_spread(&t->layout, boxes, weight, home, lack);
		if (n < 0)
			return pbox_fail(err, ENOMEM, "no memory to share out table %u", i);
		all += n;
		home += t->n_chunks;
	}
	return all;
}

static int
scale_weights(
	const struct pbox_registrar *r, const uint32_t *weight, unsigned n, struct pbox_error *err)
{
	uint64_t sum = 0;

	for (unsigned b = 0; b < n; b++) {
		if (weight[b] > 1u << 20)
			return pbox_fail(err, EINVAL, "a weight is %u at most", 1u << 20);
		sum += weight[b];
	}
	if (n != r->conf.boxes.boxes || sum == 0)
		return pbox_fail(err, EINVAL,
			"write a weight for each of the %u boxes, not 0 for all of them",
			(unsigned)r->conf.boxes.boxes);
	return 0;
}

/*
 * Chunks move in slices, each by a map of its own, so that the rounds in which they do get hardly longer: a slice has 1/SLICES of the job's
 * elements, and SLICE_LEAST at least, for also a map costs something. The next one goes when every worker has asked for the map, and
 * SLICE_ROUNDS have ended, or after SLICE_PATIENCE: perhaps no table of this box is trained.
 */
#define SLICES         32
#define SLICE_LEAST    65536
#define SLICE_ROUNDS   2
#define SLICE_PATIENCE (2000 * NS_PER_MS)

static uint32_t
latest_round(const struct pbox_registrar *r, const struct pbox_job *job)
{
	uint32_t latest = 0, round;

	for (uint32_t i = 0; i < job->n_tables; i++)
		if (job->table[i]->built && job->table[i]->shards_open == r->conf.n_shards &&
			registrar_finished(r, job, job->table[i]->t.id, &round) && round > latest)
			latest = round;
	return latest;
}

static uint64_t
slice_elements(const struct pbox_job *job)
{
	uint64_t all = 0;

	for (uint32_t i = 0; i < job->n_tables; i++)
		all += job->table[i]->t.layout.elements;
	return all / SLICES > SLICE_LEAST ? all / SLICES : SLICE_LEAST;
}

/* The first chunks that are not where they should be, by a map of that epoch; *left: others remain. */
static int
slice(struct pbox_job *job, const uint8_t *home, uint16_t epoch, bool *left)
{
	uint64_t most = slice_elements(job), elements = 0;
	size_t at = 0;
	int n = 0;

	for (uint32_t i = 0; i < job->n_tables; i++) {
		struct pbox_table *t = &job->table[i]->t;

		for (uint32_t k = 0; k < t->n_chunks; k++, at++) {
			if (t->plan[k].box == home[at])
				continue;
			if (n > 0 && elements + t->layout.chunk[k].elements > most) {
				*left = true;
				return n;
			}
			elements += t->layout.chunk[k].elements;
			t->plan[k] = (struct pbox_table_home){.box = home[at], .epoch = epoch};
			n++;
		}
	}
	return n;
}

/* Homes by weights, or as many of them as a map may change. How many chunks have to move; -errno with err. */
static int
moves_share(struct pbox_registrar *r, struct pbox_job *job, const uint32_t *weight,
	struct pbox_error *err)
{
	unsigned boxes = r->conf.boxes.boxes;
	uint16_t epoch = next_epoch(job), out = job->out;
	struct moves *m = moves_of(job);
	size_t chunks = 1;
	uint8_t *home;
	int all, now;

	PBOX_ASSERT(registrar_decides(r, job) && boxes > 1);
	m->left = false;
	for (uint32_t i = 0; i < job->n_tables; i++)
		chunks += job->table[i]->t.n_chunks;
	home = malloc(chunks);
	if (home == NULL)
		return pbox_fail(err, ENOMEM, "no memory to share out job '%s'", job->name);
	all = scale_homes(job, weight, boxes, home, err);
	now = all > 0 ? slice(job, home, epoch, &m->left) : 0;
	free(home);
	if (all < 0)
		return all;
	for (unsigned b = 0; b < boxes; b++)
		if (weight[b] > 0)
			out &= (uint16_t) ~(1u << b);
	if (now == 0 && out == job->out)
		return 0;
	memmove(m->weight, weight, boxes * sizeof(*weight));
	m->slice_ns = r->now_ns;
	m->round = latest_round(r, job);
	registrar_event(r, PBOX_LOG_INFO, "job '%s': map %u: %d of %d chunks go to other boxes",
		job->name, epoch, now, all);
	registrar_homes_new(r, job, epoch, out);
	return all;
}

/* The next slice, if the one before is done. */
static void
moves_share_on(struct pbox_registrar *r, struct pbox_job *job)
{
	struct moves *m = moves_of(job);
	struct pbox_error err;

	if (registrar_staging_is_of(r, job)) {
		/* a snapshot is of one map at all boxes (R16.16): other boxes come to its round a little later than this one */
		m->slice_ns = r->now_ns;
		m->round = latest_round(r, job);
		return;
	}
	if (!registrar_homes_all_asked(job))
		return;
	if ((int32_t)(latest_round(r, job) - m->round) < SLICE_ROUNDS &&
		r->now_ns - m->slice_ns < SLICE_PATIENCE)
		return;
	for (uint32_t i = 0; i < job->n_tables; i++)
		if (job->table[i]->restoring)
			return;
	if (command_begin(r, job, job->id, false, EPOCHS_APART, r->now_ns, &err) < 0)
		return;
	if (moves_share(r, job, m->weight, &err) < 0)
		registrar_event(r, PBOX_LOG_WARN, "job '%s': chunks stay where they are: %s",
			job->name, err.text);
}

int
pbox_registrar_weigh(struct pbox_registrar *r, uint16_t id, const uint32_t *weight, unsigned n,
	uint64_t now_ns, struct pbox_error *err)
{
	struct pbox_job *job = id < r->conf.max_jobs ? r->job[id] : NULL;
	int ret = command_begin(r, job, id, false, EPOCHS_APART, now_ns, err);

	if (ret == 0)
		ret = scale_weights(r, weight, n, err);
	if (ret < 0)
		return ret;
	return moves_share(r, job, weight, err);
}

int
pbox_registrar_scale(struct pbox_registrar *r, uint16_t id, uint16_t set, uint64_t now_ns,
	struct pbox_error *err)
{
	struct pbox_job *job = id < r->conf.max_jobs ? r->job[id] : NULL;
	uint32_t weight[PBOX_MAX_BOXES];
	int ret = command_begin(r, job, id, false, EPOCHS_APART, now_ns, err);

	if (ret < 0)
		return ret;
	if (set == 0 || set >> r->conf.boxes.boxes != 0)
		return pbox_fail(err, ENOENT, "job '%s' is at boxes 0 to %u: name some of them",
			job->name, r->conf.boxes.boxes - 1u);
	for (unsigned b = 0; b < PBOX_MAX_BOXES; b++)
		weight[b] = set >> b & 1;
	return moves_share(r, job, weight, err);
}

/* Boxes may be out, and have chunks: this one was started again, heard that they are, and then of the chunks from workers. */
static void
moves_tick(struct pbox_registrar *r, struct pbox_job *job)
{
	struct moves *m = moves_of(job);
	struct pbox_error err;
	unsigned stateless;

	if (m->left && registrar_decides(r, job))
		moves_share_on(r, job);
	if (r->conf.boxes.boxes < 2 || r->now_ns < m->look_ns)
		return;
	m->look_ns = r->now_ns + LOOK_EVERY;
	if (!registrar_decides(r, job)) {
		registrar_times_ended(r, job, latest_round(r, job));
		return;
	}
	if (job->out == 0)
		return;
	for (unsigned b = 0; b < r->conf.boxes.boxes; b++)
		if ((job->out >> b & 1) != 0 && has_chunks(job, b))
			pbox_registrar_failover(r, job->id, b, true, r->now_ns, &stateless, &err);
}

const struct registrar_part registrar_moves_part = {
	.name = "chunks that move",
	.tick = moves_tick,
	.job_state = sizeof(struct moves),
};
