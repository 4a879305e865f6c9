/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_mempool.h>

#include "health_priv.h"

static void
find_pool(struct rte_mempool *mp, void *arg)
{
	struct health *h = arg;

	/* others of this program are not ours to judge */
	if (strncmp(mp->name, "pbox_", 5) == 0 && h->n_pools < HEALTH_POOLS)
		h->pool[h->n_pools++] = (struct health_pool_seen){
			.pool = mp, .low = mp->size, .window_low = {mp->size, mp->size}};
}

struct health *
health_create(void)
{
	struct health *h = calloc(1, sizeof(*h));

	if (h == NULL)
		return NULL;
	for (unsigned i = 0; i < PBOX_PORT_CORES; i++)
		h->stat_fd[i] = -1;
	h->sample = calloc(3, sizeof(*h->sample));
	if (h->sample == NULL) {
		free(h);
		return NULL;
	}
	rte_mempool_walk(find_pool, h);
	return h;
}

void
health_destroy(struct health *h)
{
	if (h == NULL)
		return;
	for (unsigned i = 0; i < PBOX_PORT_CORES; i++)
		if (h->stat_fd[i] >= 0)
			close(h->stat_fd[i]);
	for (unsigned i = 0; i < PBOX_MAX_JOBS; i++) {
		free(h->job[i].asked); /* nobody answers any more */
		free(h->job[i].at[0]);
		free(h->job[i].at[1]);
	}
	free(h->sample);
	free(h);
}

/* Time that the thread of a core could have run and did not: the kernel keeps it. 0: not known. */
static uint64_t
stolen(struct pbox_control *c, unsigned i)
{
	struct health *h = c->health;
	int tid = pbox_dp_core_tid(c->conf.dp, i);
	unsigned long long ran, waited;
	char text[96];
	ssize_t n;

	if (h->stat_fd[i] < 0 && tid != 0) {
		snprintf(text, sizeof(text), "/proc/self/task/%d/schedstat", tid);
		h->stat_fd[i] = open(text, O_RDONLY | O_CLOEXEC);
	}
	if (h->stat_fd[i] < 0)
		return 0;
	n = pread(h->stat_fd[i], text, sizeof(text) - 1, 0);
	if (n <= 0)
		return 0;
	text[n] = '\0';
	return sscanf(text, "%llu %llu", &ran, &waited) == 2 ? waited : 0;
}

static void
health_take(struct pbox_control *c, struct health_sample *s)
{
	s->at_ns = pbox_dp_now(c->conf.dp);
	memset(s->shard, 0, sizeof(s->shard));
	for (unsigned i = 0; i < c->conf.n_cores; i++) {
		const uint64_t *core = pbox_dp_core_stats(c->conf.dp, i);
		const uint64_t *shard = pbox_dp_shard_stats(c->conf.dp, i);

		for (unsigned k = 0; k < PBOX_CS_STATS; k++)
			s->core[i][k] = pbox_stat_get(&core[k]);
		for (unsigned k = 0; k < PBOX_SS_STATS; k++)
			s->shard[k] += pbox_stat_get(&shard[k]);
		s->stolen_ns[i] = stolen(c, i);
	}
	for (unsigned i = 0; i < c->conf.n_ports; i++)
		for (unsigned k = 0; k < PORT_STATS; k++)
			s->port[i][k] = pbox_stat_get(&c->port_stat[i][k]);
}

/* The rounds of a job are where the counters do not say it: fragments of one round may be further than
 * others. The data cores know who is missing; they are asked while nothing comes, of an idle job once. */
static void
health_ask(struct pbox_control *c, const struct pbox_job_view *job)
{
	struct health_job *j = &c->health->job[job->id];
	const struct pbox_worker_stats *young = j->at[c->health->young];
	const struct pbox_worker_stats *old = j->at[c->health->young ^ 1];
	bool came = false;

	for (unsigned w = 0; w < job->workers && !came; w++)
		came = young[w].contributions != old[w].contributions;
	if (came)
		j->answered_ns = 0;
	else if (j->asked == NULL && (j->answered_ns == 0 || j->n_missing > 0))
		j->asked = pbox_registrar_why(c->registrar, job->job);
}

static void
hear(struct pbox_control *c, struct health_job *j)
{
	const struct pbox_why_round *oldest = NULL;
	struct pbox_why *why = j->asked;

	if (why == NULL || why->answered < why->shards)
		return;
	pbox_why_oldest(why, 1, &oldest);
	j->answered_ns = c->now_ns;
	j->n_missing = 0;
	j->clocks = oldest != NULL && oldest->clocks;
	j->lag = oldest != NULL ? oldest->lag : 0;
	j->bound = oldest != NULL ? oldest->bound : 0;
	for (unsigned w = j->workers; oldest != NULL && w-- > 0;)
		if (oldest->uninitialised ? w == 0 : oldest->missing[w / 64] >> w % 64 & 1) {
			j->n_missing++;
			j->missing = w;
		}
	pbox_registrar_why_end(why);
	j->asked = NULL;
}

static bool
new_samples(struct health_job *j, uint16_t workers)
{
	j->workers = 0; /* no job has none: what was there is of another one */
	for (unsigned k = 0; k < 2; k++) {
		free(j->at[k]);
		j->at[k] = calloc(workers, sizeof(*j->at[k]));
		j->round[k] = 0;
	}
	if (j->at[0] == NULL || j->at[1] == NULL)
		return false;
	j->workers = workers;
	return true;
}

static void
take_job(struct pbox_control *c, const struct pbox_job_view *job)
{
	struct health *h = c->health;
	struct health_job *j = &h->job[job->id];

	if (j->begun_ns != job->begun_ns || j->workers != job->workers) {
		pbox_registrar_why_end(j->asked);
		j->asked = NULL;
		j->answered_ns = 0;
		if (!new_samples(j, job->workers))
			return; /* no memory: not looked at, and tried again with the next sample */
		j->begun_ns = job->begun_ns;
	}
	for (unsigned w = 0; w < job->workers; w++)
		pbox_registrar_worker(c->registrar, job->job, w, &j->at[h->young][w]);
	j->round[h->young] = pbox_registrar_job_round(c->registrar, job->job);
	health_ask(c, job);
}

/* Heartbeats, and how low pools get between two samples. */
static void
tick(struct pbox_control *c)
{
	struct health *h = c->health;

	for (unsigned i = 0; i < c->conf.n_cores; i++) {
		uint64_t loops = pbox_stat_get(&pbox_dp_core_stats(c->conf.dp, i)[PBOX_CS_LOOPS]);

		if (loops != h->loops[i] || h->turned_ns[i] == 0)
			h->turned_ns[i] = c->now_ns;
		h->loops[i] = loops;
	}
	for (unsigned i = 0; i < h->n_pools; i++) {
		struct health_pool_seen *p = &h->pool[i];
		uint32_t free = rte_mempool_avail_count(p->pool);

		if (free < p->low)
			p->low = free;
		if (free < p->window_low[h->young])
			p->window_low[h->young] = free;
	}
}

void
health_step(struct pbox_control *c)
{
	struct health *h = c->health;
	const struct pbox_job *job;
	struct pbox_job_view view;

	if (c->now_ns < h->tick_at)
		return;
	h->tick_at = c->now_ns + HEALTH_TICK;
	tick(c);
	for (unsigned i = 0; i < PBOX_MAX_JOBS; i++)
		hear(c, &h->job[i]);
	if (h->sample[h->young].at_ns != 0 && c->now_ns - h->sample[h->young].at_ns < HEALTH_HALF)
		return;
	h->young ^= 1;
	health_take(c, &h->sample[h->young]);
	for (unsigned i = 0; (job = pbox_registrar_job(c->registrar, i)) != NULL; i++) {
		pbox_registrar_view_job(c->registrar, job, &view);
		take_job(c, &view);
	}
	for (unsigned i = 0; i < h->n_pools; i++)
		h->pool[i].window_low[h->young] = rte_mempool_avail_count(h->pool[i].pool);
}

const struct health_sample *
health_begin(const struct health *h)
{
	const struct health_sample *s = &h->sample[h->young ^ 1];

	return s->at_ns != 0 ? s : NULL;
}

const struct health_sample *
health_now(struct pbox_control *c)
{
	health_take(c, &c->health->sample[2]);
	return &c->health->sample[2];
}

const struct pbox_worker_stats *
health_job_begin(const struct health *h, const struct pbox_job_view *job, uint32_t *round)
{
	const struct health_job *j = &h->job[job->id];
	const struct health_sample *s = health_begin(h);

	if (s == NULL || j->begun_ns != job->begun_ns || job->begun_ns > s->at_ns)
		return NULL;
	*round = j->round[h->young ^ 1];
	return j->at[h->young ^ 1];
}

unsigned
health_job_missing(const struct health *h, const struct pbox_job_view *job, unsigned *who)
{
	const struct health_job *j = &h->job[job->id];

	if (j->begun_ns != job->begun_ns || j->answered_ns == 0)
		return 0;
	*who = j->missing;
	return j->n_missing;
}

bool
health_job_clocks(
	const struct health *h, const struct pbox_job_view *job, uint32_t *lag, uint32_t *bound)
{
	const struct health_job *j = &h->job[job->id];
	unsigned who;

	*lag = j->lag;
	*bound = j->bound;
	return health_job_missing(h, job, &who) > 0 && j->clocks;
}

uint64_t
health_window_ns(const struct pbox_control *c)
{
	const struct health_sample *s = health_begin(c->health);

	return s != NULL ? pbox_dp_now(c->conf.dp) - s->at_ns : 0;
}

static uint32_t
permille(uint64_t part, uint64_t all)
{
	return all == 0 ? 0 : part >= all ? 1000 : (uint32_t)(part * 1000 / all);
}

void
health_core(struct pbox_control *c, unsigned i, struct health_core *out)
{
	const struct health_sample *a = health_begin(c->health);
	const uint64_t *v = pbox_dp_core_stats(c->conf.dp, i);
	uint64_t delta[PBOX_CS_STATS], now = pbox_dp_now(c->conf.dp), all = 0;
	uint64_t turned = c->health->turned_ns[i];

	*out = (struct health_core){.stolen_ns = stolen(c, i)};
	out->heartbeat_ns = turned != 0 && now > turned ? now - turned : 0;
	if (a == NULL || now <= a->at_ns)
		return;
	for (unsigned k = 0; k < PBOX_CS_STATS; k++)
		delta[k] = pbox_stat_get(&v[k]) - a->core[i][k];
	out->stolen_permille = permille(out->stolen_ns - a->stolen_ns[i], now - a->at_ns);
	out->busy_permille = permille(
		(uint64_t)((double)delta[PBOX_CS_CYCLES_BUSY] * 1e9 / (double)rte_get_tsc_hz()),
		now - a->at_ns);
	if (delta[PBOX_CS_RX_PACKETS] + delta[PBOX_CS_HANDOFF_IN] > 0)
		out->cycles_per_packet = delta[PBOX_CS_CYCLES_BUSY] /
					 (delta[PBOX_CS_RX_PACKETS] + delta[PBOX_CS_HANDOFF_IN]);
	for (unsigned k = 0; k < HEALTH_STAGES; k++)
		all += delta[PBOX_CS_STAGE_MAIL + k];
	for (unsigned k = 0; k < HEALTH_STAGES; k++)
		out->stage_permille[k] = permille(delta[PBOX_CS_STAGE_MAIL + k], all);
}

bool
health_pool(struct pbox_control *c, unsigned i, struct health_pool *out)
{
	const struct health *h = c->health;
	const struct health_pool_seen *p = &h->pool[i];
	uint32_t lowest;

	if (i >= h->n_pools)
		return false;
	*out = (struct health_pool){.size = p->pool->size,
		.free = rte_mempool_avail_count(p->pool),
		.low = p->low,
		.node = p->pool->socket_id};
	snprintf(out->name, sizeof(out->name), "%s", p->pool->name);
	for (unsigned k = 0; k < RTE_MAX_LCORE && p->pool->cache_size > 0; k++)
		out->cached += __atomic_load_n(&p->pool->local_cache[k].len, __ATOMIC_RELAXED);
	lowest = p->window_low[0] < p->window_low[1] ? p->window_low[0] : p->window_low[1];
	out->window_low = lowest < out->free ? lowest : out->free;
	if (out->free < out->low)
		out->low = out->free;
	return true;
}
