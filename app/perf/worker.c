/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include <pbox_wire.h>

#include "perf.h"

uint64_t
now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static double
cpu_seconds(void)
{
	struct rusage r;

	getrusage(RUSAGE_SELF, &r);
	return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) +
	       (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec) * 1e-6;
}

/* ---- all local workers together --------------------------------------------------------------- */

/** Meet; false when one of us has failed. */
static bool
meet(struct worker *w)
{
	struct perf *p = w->p;
	bool good;

	if (w->code != EXIT_GOOD) {
		pthread_mutex_lock(&p->lock);
		p->abort = true;
		pthread_mutex_unlock(&p->lock);
	}
	pthread_barrier_wait(&p->barrier);
	pthread_mutex_lock(&p->lock);
	good = !p->abort;
	pthread_mutex_unlock(&p->lock);
	pthread_barrier_wait(&p->barrier);
	return good;
}

/* ---- joining ------------------------------------------------------------------------------------ */

/** A copy of @p text, with the number of the local worker for each "%i". NULL: no memory. */
static char *
numbered(const char *text, unsigned index)
{
	size_t cap = 11 * strlen(text) + 1, at = 0;
	char *out = malloc(cap);

	for (const char *p = text; out != NULL && *p != 0; p++)
		if (p[0] == '%' && p[1] == 'i') {
			at += (size_t)snprintf(out + at, cap - at, "%u", index);
			p++;
		} else {
			out[at++] = *p;
		}
	if (out != NULL)
		out[at] = 0;
	return out;
}

/** The CPUs of this process, shared among its workers. */
static unsigned
threads_each(unsigned workers)
{
	cpu_set_t set;
	unsigned n = sched_getaffinity(0, sizeof(set), &set) == 0 ? (unsigned)CPU_COUNT(&set) : 1;

	n = n > workers ? n / workers : 1;
	return n < 64 ? n : 64;
}

static int
perf_join(struct worker *w)
{
	const struct options *o = &w->p->o;
	char *args = o->transport_args != NULL ? numbered(o->transport_args, w->index) : NULL;
	struct pbox_client_conf conf;
	int rc;

	pbox_client_conf_init(&conf);
	conf.box = o->box;
	conf.job = o->job;
	conf.secret = o->secret;
	conf.bind = o->bind;
	conf.run = o->run;
	conf.worker = o->worker < 0 ? -1 : o->worker + (int)w->index;
	conf.workers = o->workers;
	conf.slots = o->slots;
	conf.mtu = o->mtu;
	conf.window = o->window;
	conf.gso = o->gso;
	conf.auth = o->auth;
	conf.keep_copies = o->keep_copies;
	conf.spin_us = (int)o->spin_us;
	conf.threads = o->threads != 0 ? o->threads : threads_each(o->local);
	conf.lease_ms = o->lease_ms;
	conf.timeout_ms = conf.patience_ms =
		o->timeout_ms; /* of a round, with or without living workers */
	if (o->join_timeout_ms != 0)
		conf.join_timeout_ms = o->join_timeout_ms;
	conf.transport = o->transport;
	conf.transport_args = args;
	rc = pbox_client_open(&w->c, &conf, &w->err);
	free(args);
	if (rc != 0)
		return -1;
	w->number = pbox_client_worker(w->c);
	return 0;
}

static int
declare(struct worker *w)
{
	const struct options *o = &w->p->o;
	const struct model *m = &w->p->m;
	struct pbox_client_table t = {.size = sizeof(t),
		.mode = o->optimiser != PBOX_OPT_NONE ? PBOX_MODE_OPTIMISER : PBOX_MODE_ALLREDUCE,
		.op = (uint8_t)o->op,
		.optimiser = (uint8_t)o->optimiser,
		.push_format = (uint8_t)o->push_format,
		.pull_format = (uint8_t)o->pull_format,
		.n = m->n,
		.tensors = m->tensor};

	static const struct pbox_client_tensor vote = {"vote", 1, 0};
	struct pbox_client_table v = {.size = sizeof(v),
		.push_format = PBOX_FMT_FP32,
		.pull_format = PBOX_FMT_FP32,
		.n = 1,
		.tensors = &vote};
	int rc;

	/* it has no state: one that names its run, and is started again alone, goes on */
	t.first_round = o->run != NULL ? PBOX_CLIENT_ROUND_ANY : 0;
	v.first_round = t.first_round;
	rc = pbox_client_declare(w->c, &t, 0, &w->table, &w->err);
	if (rc == 0 && uses_votes(o))
		rc = pbox_client_declare(w->c, &v, 0, &w->vote_table, &w->err);
	if (rc == 0)
		w->before = pbox_client_next_round(w->c, w->table) - 1;
	return rc;
}

/** What it pushes in each round; with weighted means each slot by itself (R5.2b). */
static int
take_nodes(struct worker *w)
{
	unsigned most = pbox_client_slots(w->c);
	struct pbox_client_node *node = calloc(most, sizeof(*node));

	w->node = node;
	if (node == NULL)
		return -1;
	w->nodes = (unsigned)pbox_client_nodes(w->c, 0, node, most);
	if (w->p->o.op == PBOX_OP_WEIGHTED_MEAN) {
		unsigned first = node[0].first;
		unsigned end = node[w->nodes - 1].first + node[w->nodes - 1].slots;

		w->nodes = end - first;
		for (unsigned k = 0; k < w->nodes; k++)
			node[k] = (struct pbox_client_node){(uint16_t)(first + k), 1};
	}
	return 0;
}

static int
allocate(struct worker *w)
{
	const struct options *o = &w->p->o;
	const struct model *m = &w->p->m;
	unsigned in = wire_size(o->push_format), out = wire_size(o->pull_format);

	if (take_nodes(w) == 0) {
		w->in = pbox_client_alloc(w->c, w->nodes * m->elements * in + 1);
		w->push = calloc((size_t)w->nodes * m->n + 1, sizeof(*w->push));
		w->weight = calloc(w->nodes, sizeof(*w->weight));
	}
	/* a transport's own memory is for what it sends */
	w->out = o->transport == NULL ? pbox_client_alloc(w->c, m->elements * out + 1)
				      : malloc(m->elements * out + 1);
	w->io = calloc(m->n, sizeof(*w->io));
	w->handle = calloc(m->n, sizeof(*w->handle));
	if (w->in == NULL || w->push == NULL || w->weight == NULL || w->out == NULL ||
		w->io == NULL || w->handle == NULL) {
		w->err.code = PBOX_C_MEMORY;
		snprintf(w->err.text, sizeof(w->err.text), "no memory for %u x %llu elements",
			w->nodes, (unsigned long long)m->elements);
		return -1;
	}
	for (unsigned i = 0; i < m->n; i++)
		w->io[i] = (struct pbox_client_io){
			i, w->in + m->first[i] * in, w->out + m->first[i] * out};
	return 0;
}

/** Formats of blocks: the reference has to know where fragments begin (R5.8). */
static int
perf_cut(struct worker *w)
{
	struct perf *p = w->p;
	struct pbox_client_stats s = {.size = sizeof(s)};
	unsigned fragment;

	if (w->index != 0 || !pbox_format_is_block(p->o.push_format) || p->o.check == CHECK_NONE)
		return 0;
	pbox_client_stats(w->c, &s);
	fragment = pbox_frag_elements(
		s.mtu - (s.auth != 0 ? PBOX_TAG_LEN : 0), p->o.push_format, p->o.pull_format);
	w->err.code = PBOX_C_INVALID;
	return blocks_cut(&p->ref.blocks, &p->m, fragment, w->err.text, sizeof(w->err.text));
}

/** Initial parameters and hyper-parameters. */
static int
perf_prepare(struct worker *w)
{
	const struct options *o = &w->p->o;
	const struct model *m = &w->p->m;
	struct pbox_client_hyper h[PBOX_HYPER_IDS];
	struct pbox_hyper hyper = o->hyper;
	unsigned n = 0;
	struct pbox_client_io *io;
	float *param;
	int rc = 0;

	if (o->optimiser == PBOX_OPT_NONE)
		return 0;
	for (unsigned id = 1; id < PBOX_HYPER_IDS; id++)
		if ((perf_uses(o->optimiser) & 1u << id) != 0)
			h[n++] = (struct pbox_client_hyper){id, *pbox_hyper_at(&hyper, id)};
	rc = pbox_client_set(w->c, w->table, PBOX_ALL_GROUPS, 0, h, n, &w->err);
	if (rc == 0 && w->number == 0) {
		w->param = param = malloc(m->elements * sizeof(*param) + 1);
		io = calloc(m->n, sizeof(*io));
		if (param == NULL || io == NULL) {
			snprintf(w->err.text, sizeof(w->err.text), "no memory for parameters");
			free(io);
			return -1;
		}
		data_init(o, 0, m->elements, param);
		for (unsigned i = 0; i < m->n; i++)
			io[i] = (struct pbox_client_io){i, param + m->first[i], NULL};
		rc = pbox_client_run(w->c, w->table, PBOX_CLIENT_INIT, io, m->n, 1, 0, &w->err);
		free(io);
		if (rc == 0) { /* else it may still be sent */
			free(param);
			w->param = NULL;
		}
	}
	if (rc == 0)
		rc = pbox_client_run(w->c, w->table, PBOX_CLIENT_PULL, w->io, m->n, 1, 0, &w->err);
	return rc;
}

/* ---- rounds ---------------------------------------------------------------------------------------- */

/** Where the elements of its nodes are. */
static uint8_t *
node_in(const struct worker *w, unsigned node, uint64_t element)
{
	return w->in + (node * w->p->m.elements + element) * wire_size(w->p->o.push_format);
}

/** Push and pull tensors first to first + n - 1. */
static int
submit_data(
	struct worker *w, unsigned first, unsigned n, uint8_t priority, pbox_client_handle *handle)
{
	struct pbox_client_op op = {.size = sizeof(op),
		.table = w->table,
		.kind = PBOX_CLIENT_PUSHPULL,
		.io = &w->io[first],
		.n = n,
		.weight = w->weight[0],
		.priority = priority,
		.by_nodes = w->p->o.slots != 0,
		.nodes = w->nodes,
		.node_in = w->push,
		.node_weight = w->weight};

	for (unsigned k = 0; op.by_nodes && k < w->nodes; k++)
		for (unsigned i = 0; i < n; i++)
			w->push[k * n + i] = node_in(w, k, w->p->m.first[first + i]);
	return pbox_client_submit(w->c, &op, handle, &w->err);
}

static int
exchange_data(struct worker *w, unsigned data_round)
{
	const struct options *o = &w->p->o;
	unsigned n = w->p->m.n;
	int rc = 0;

	for (unsigned k = 0; k < w->nodes; k++)
		w->weight[k] = data_weight(o, w->node[k], data_round);
	if (!o->per_tensor) {
		pbox_client_handle handle;

		rc = submit_data(w, 0, n, 0, &handle);
		return rc == 0 ? pbox_client_wait(w->c, handle, 0, &w->err) : rc;
	}
	for (unsigned i = n; i-- > 0 && rc == 0;) /* as a backward pass: last first */
		rc = submit_data(w, i, 1, (uint8_t)(i < 255 ? i : 255), &w->handle[i]);
	for (unsigned i = 0; i < n && rc == 0; i++)
		rc = pbox_client_wait(w->c, w->handle[i], 0, &w->err);
	return rc;
}

static int
exchange(struct worker *w, unsigned data_round)
{
	const struct pbox_client_io io = {0, &w->vote, &w->votes};
	const struct pbox_client_op vote = {.size = sizeof(vote),
		.table = w->vote_table,
		.kind = PBOX_CLIENT_PUSHPULL,
		.io = &io,
		.n = 1,
		.weight = 1};
	pbox_client_handle h;
	int rc, voted;

	if (!uses_votes(&w->p->o))
		return exchange_data(w, data_round);
	rc = pbox_client_submit(w->c, &vote, &h, &w->err);
	if (rc != 0)
		return rc;
	rc = exchange_data(w, data_round);
	if (rc == 0 || w->before == 0)
		return rc == 0 ? pbox_client_wait(w->c, h, 0, &w->err) : rc;
	/* its votes may be a round behind its data: nobody else pushes these in the last one */
	voted = pbox_client_wait(w->c, h, 1, NULL);
	return voted == 0 && w->votes != 0 ? 0 : rc;
}

/**
 * A worker that was started again alone may have found a round half done. The fragments that had not ended are one
 * round behind the others ever since, and the other workers wait for those: one more. Its other fragments go too
 * far, where nobody follows: whether it ends does not matter.
 */
static void
catch_up(struct worker *w)
{
	struct pbox_client_error err = w->err;

	if (w->before != 0 && w->code == EXIT_GOOD)
		(void)exchange_data(w, 1);
	w->err = err;
}

/**
 * Does this worker know what the result must be? Only of one with the contributions of all. Once it has missed any, a sum
 * has no known value unless it is the same in each round: those that were away are in other rounds of theirs than the others.
 * And parameters stem from all rounds, as residuals do; those of the box end with it.
 */
static bool
is_checkable(struct worker *w, unsigned round)
{
	struct pbox_client_stats s = {.size = sizeof(s)};
	const struct options *o = &w->p->o;
	bool blocks = pbox_format_is_block(o->push_format);
	bool sums = o->optimiser == PBOX_OPT_NONE && !blocks;
	bool away = pbox_client_next_round(w->c, w->table) != w->before + round + 1;

	pbox_client_stats(w->c, &s);
	if (s.partial_results > w->partial && w->unchecked == 0)
		w->contributors = s.contributors;
	w->lost_residuals |= blocks && s.restarts > 0;
	if (s.partial_results == w->partial && !w->lost_residuals &&
		(sums ? !data_varies(o) || (w->unchecked == 0 && !away)
		      : w->unchecked == 0 && !away && w->before == 0))
		return true;
	w->partial = s.partial_results;
	w->unchecked++;
	return false;
}

static void
verify(struct worker *w, unsigned round)
{
	const struct reference *ref = &w->p->ref;
	uint64_t bad = 0, wrong;

	if (!is_checkable(w, round))
		return;
	wrong = reference_compare(ref, w->out, 0, w->p->m.elements, &bad, &w->largest_off);
	w->checked += w->p->m.elements;
	if (wrong > 0 && w->mismatches == 0) {
		w->first_bad = bad;
		w->first_bad_round = w->before + round;
		w->first_got = from_wire(w->out, w->p->o.pull_format, bad);
		w->first_want = ref->result[bad];
	}
	w->mismatches += wrong;
}

/** Does the leader want another round? The same answer for all local workers. Rounds are the run's, that of a worker that was
 * started again alone too. */
static bool
another(struct worker *w, unsigned round)
{
	struct perf *p = w->p;
	uint64_t of_run = (uint64_t)w->before + round;
	bool stop;

	if (w->index == 0) {
		pthread_mutex_lock(&p->lock);
		if (of_run > p->o.warmup && p->end_ns == 0 && p->o.seconds > 0)
			p->end_ns = now_ns() + (uint64_t)(p->o.seconds * 1e9);
		p->stop = atomic_load(&p->interrupted) ||
			  (p->o.seconds > 0 ? p->end_ns != 0 && now_ns() >= p->end_ns
					    : of_run > (uint64_t)p->o.warmup + p->o.rounds);
		pthread_mutex_unlock(&p->lock);
	}
	if (!meet(w))
		return false;
	pthread_mutex_lock(&p->lock);
	stop = p->stop;
	pthread_mutex_unlock(&p->lock);
	w->vote = stop;
	return uses_votes(&p->o) ? w->votes == 0 : !stop;
}

static void
count_round(struct worker *w, uint64_t ns)
{
	struct pbox_client_stats s = {.size = sizeof(s)};

	hist_add(w->hist, ns);
	atomic_fetch_add(&w->busy_ns, ns);
	atomic_store(&w->last_ns, now_ns());
	atomic_fetch_add(&w->rounds, 1);
	pbox_client_stats(w->c, &s);
	atomic_store(&w->retransmitted, s.retransmitted_frames - w->begin.retransmitted_frames);
	atomic_store(&w->probes, s.probes - w->begin.probes);
}

static void
perf_rounds(struct worker *w)
{
	const struct options *o = &w->p->o;
	bool counts = false;

	for (unsigned round = 1; another(w, round); round++) {
		unsigned data_round = data_varies(o) ? round : 1;
		bool check = o->check == CHECK_ALL || (o->check == CHECK_FIRST && round == 1);
		uint64_t start;

		if (!counts && (uint64_t)w->before + round > o->warmup) {
			counts = true;
			pbox_client_stats(w->c, &w->begin);
			if (w->index == 0)
				w->p->cpu_begin = cpu_seconds();
		}
		for (unsigned k = 0; (round == 1 || data_varies(o)) && k < w->nodes; k++)
			data_fill(o, w->node[k], data_round, 0, w->p->m.elements, node_in(w, k, 0));
		if (check)
			reference_round(&w->p->ref, data_round, round, w->index, o->local);
		if (!meet(w))
			return;
		start = now_ns();
		if (exchange(w, data_round) != 0) {
			w->code = EXIT_ROUND;
			atomic_store(&w->p->interrupted, true);
		} else if (counts) {
			count_round(w, now_ns() - start);
		}
		if (check && w->code == EXIT_GOOD)
			verify(w, round);
	}
	if (w->index == 0)
		w->p->cpu_end = cpu_seconds();
	catch_up(w);
}

void *
worker_main(void *arg)
{
	struct worker *w = arg;

	w->begin.size = w->stats.size = sizeof(w->stats);
	if (perf_join(w) != 0 || allocate(w) != 0)
		w->code = EXIT_JOIN;
	/* with --worker 0 to K-1 all here, a failure of one must not leave others waiting */
	if (meet(w)) {
		if (w->index == 0)
			report_start(w->p);
		if (declare(w) != 0 || perf_cut(w) != 0 || perf_prepare(w) != 0)
			w->code = EXIT_JOIN;
		if (w->c != NULL)
			pbox_client_stats(w->c, &w->begin);
		if (meet(w))
			perf_rounds(w);
	}
	if (w->c != NULL) {
		pbox_client_stats(w->c, &w->stats);
		pbox_client_free(w->c, w->in);
		if (w->p->o.transport == NULL)
			pbox_client_free(w->c, w->out);
		pbox_client_close(w->c);
	}
	if (w->p->o.transport != NULL)
		free(w->out);
	free(w->node);
	free(w->push);
	free(w->weight);
	free(w->param);
	free(w->io);
	free(w->handle);
	atomic_fetch_sub(&w->p->running, 1);
	return NULL;
}
