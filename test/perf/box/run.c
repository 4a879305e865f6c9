/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_cycles.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_malloc.h>
#include <rte_pause.h>

#include "bench.h"

#define BURST      32 /* packets of the generator between two turns, as the box takes them */
#define DEADLINE_S 120
/* Longer than any turn, and than any wait for the next packets: another program had the CPU. A turn
 * may finish a fragment of all workers. */
#define INTERRUPTED_US(workers) (400 + 2 * (workers))

/* Orders to the box's core, and what it reports. */
enum { BOX_TURN, BOX_REST, BOX_CLEAR, BOX_KERNEL, BOX_CLOCK, BOX_END };
static struct {
	_Atomic int wanted __attribute__((aligned(64)));
	_Atomic int done; /* the last order that was carried out */
	struct rig *rig;
	struct gen *gen;
	struct run_times t;
	uint64_t last, too_long;
	void (*kernel)(const struct rig *r, const struct gen_log *log, size_t from, size_t end);
	double ghz_ratio;
} box = {.wanted = BOX_REST, .done = -1};

/* One turn of the box, timed. */
static inline void
turn(struct rig *r)
{
	void *core = pbox_dp_core(r->dp, 0);
	uint64_t begin = rte_rdtsc_precise(), end;
	unsigned work = pbox_dp_turn(core);

	end = rte_rdtsc_precise();
	if (work == 0)
		return;
	if (box.last != 0 && end - box.last < box.too_long) {
		box.t.total += end - box.last;
		box.t.total_packets += work;
	}
	if (end - begin < box.too_long) {
		box.t.busy += end - begin;
		box.t.packets += work;
	}
	box.t.all_busy += end - begin;
	box.t.all_packets += work;
	box.last = end;
}

void
box_turn(struct rig *r)
{
	if (r->o->lockstep)
		turn(r);
	else
		rte_pause();
}

/* The same slots with the same payloads in the same order, and nothing around. */
static void
bare_sum(const struct rig *r, const struct gen_log *log, size_t from, size_t end)
{
	unsigned n = r->o->workers;

	for (size_t i = from; i < end; i++) {
		struct pbox_sources s = {
			.src = &log->payload[i * n], .n = n, .elem = r->o->format, .acc = NULL};

		r->real_reduce->sum(log->result[i], &s, 0, r->frag_elements);
	}
}

/* The same with the check of every payload, and the next payloads on their way. */
static void
bare_checked(const struct rig *r, const struct gen_log *log, size_t from, size_t end)
{
	unsigned n = r->o->workers;
	bool intact;

	for (size_t i = from; i < end; i++) {
		struct pbox_sources s = {.src = &log->payload[i * n],
			.n = n,
			.elem = r->o->format,
			.intact = &intact,
			.header = PBOX_HDR_LEN,
			.next = i + 1 < log->n ? &log->payload[(i + 1) * n] : NULL,
			.n_next = i + 1 < log->n ? n : 0};

		r->real_reduce->sum(log->result[i], &s, 0, r->frag_elements);
	}
}

static float *scratch_s0, *scratch_s1;
static float *scratch;

/* The same with the optimiser fused in, on parameters and states that are not the box's. */
static void
bare_update(const struct rig *r, const struct gen_log *log, size_t from, size_t end)
{
	struct pbox_optim_scalars k;
	struct pbox_hyper h;
	unsigned n = r->o->workers;

	pbox_hyper_defaults(&h, r->o->optimiser);
	rig_hyper(r->o, &h);
	pbox_optim_scalars(&k, &h, r->o->optimiser, 10);
	for (size_t i = from; i < end; i++) {
		struct pbox_sources s = {
			.src = &log->payload[i * n], .n = n, .elem = r->o->format, .acc = NULL};
		size_t at = (size_t)(log->result[i] - scratch);
		struct pbox_update u = {.reduce = r->real_reduce,
			.optim = r->real_optim,
			.kind = r->o->optimiser,
			.k = &k,
			.factor = 1.0f / (float)n,
			.param = log->result[i],
			.s0 = scratch_s0 != NULL ? scratch_s0 + at : NULL,
			.s1 = scratch_s1 != NULL ? scratch_s1 + at : NULL};

		pbox_optim_update(&u, &s, r->frag_elements);
	}
}

/* Additions that wait for each other take a cycle each: how fast does the core really run? Of registers: Intel's cores since
 * Golden Cove make one of several that have a constant. */
static double
real_ratio(void)
{
	double best = 0;

	for (int k = 0; k < 50; k++) {
		uint64_t x = 1, one = 1, n = 400000, begin = rte_rdtsc_precise();

		for (uint64_t i = 0; i < n / 8; i++)
			__asm__ volatile(
				"add %1,%0\n\tadd %1,%0\n\tadd %1,%0\n\tadd %1,%0\n\tadd %1,%0\n\tadd %1,%0\n\tadd %1,%0\n\tadd %1,%0"
				: "+r"(x)
				: "r"(one));
		begin = rte_rdtsc_precise() - begin;
		if ((double)n / (double)begin > best)
			best = (double)n / (double)begin;
	}
	return best;
}

/* In pieces about as long as a turn, so that those in which another program ran can be left out. */
static void
time_kernel(void)
{
	size_t n = box.gen->log.n, piece = 1 + 64 / box.rig->o->workers;

	box.t.kernel = box.t.slots = 0;
	for (size_t i = 0; i < n; i += piece) {
		size_t end = i + piece < n ? i + piece : n;
		uint64_t t = rte_rdtsc_precise();

		box.kernel(box.rig, &box.gen->log, i, end);
		t = rte_rdtsc_precise() - t;
		if (t < box.too_long) {
			box.t.kernel += t;
			box.t.slots += end - i;
		}
	}
}

static void
obey(int what)
{
	switch (what) {
	case BOX_CLEAR:
		memset(&box.t, 0, sizeof(box.t));
		box.last = 0;
		box.too_long =
			box.rig->o->only_rounds
				? UINT64_MAX
				: rte_get_tsc_hz() / 1000000 * INTERRUPTED_US(box.rig->o->workers);
		box.t.allocations = alloc_count();
		break;
	case BOX_REST:
		box.t.allocations = alloc_count() - box.t.allocations;
		break;
	case BOX_KERNEL:
		time_kernel();
		break;
	case BOX_CLOCK:
		box.ghz_ratio = real_ratio();
		break;
	}
}

/* On the box's core. */
static int
box_main(void *arg)
{
	struct rig *r = arg;
	int last = -1, wanted; /* the first order may come before the first look */

	for (;;) {
		wanted = atomic_load_explicit(&box.wanted, memory_order_acquire);
		if (wanted == BOX_END)
			return 0;
		if (wanted == BOX_TURN)
			turn(r);
		else if (wanted != last)
			obey(wanted);
		if (wanted != last)
			atomic_store_explicit(&box.done, wanted, memory_order_release);
		last = wanted;
	}
}

static void
order(const struct rig *r, int what)
{
	if (r->o->lockstep) {
		obey(what);
		return;
	}
	atomic_store_explicit(&box.wanted, what, memory_order_release);
	if (what == BOX_END)
		return;
	while (atomic_load_explicit(&box.done, memory_order_acquire) != what)
		rte_pause();
}

/* One run of one kind of packets; false: it does not come to its end. */
static bool
run(struct rig *r, struct gen *g, enum traffic kind, uint64_t packets, struct run_times *t)
{
	time_t end = time(NULL) + DEADLINE_S;
	uint64_t before = rig_core(r, PBOX_CS_RX_PACKETS);
	unsigned idle = 0;

	gen_begin(g, kind, packets);
	order(r, BOX_CLEAR);
	order(r, BOX_TURN);
	while (!gen_done(g)) {
		bool moved = gen_step(g, BURST);

		if (r->o->lockstep)
			turn(r);
		if (moved)
			idle = 0;
		else if (++idle % 65536 == 0 && time(NULL) > end)
			return false;
	}
	/* what is only dropped shows in the box's counters alone */
	while (rig_core(r, PBOX_CS_RX_PACKETS) - before < g->sent) {
		if (r->o->lockstep)
			turn(r);
		else
			rte_delay_us_block(20);
		if (++idle % 65536 == 0 && time(NULL) > end)
			return false;
	}
	order(r, BOX_REST);
	*t = box.t;
	return true;
}

bool
run_rounds(struct rig *r, struct gen *g, uint64_t packets, struct run_times *t)
{
	return run(r, g, T_ROUNDS, packets, t);
}

/* Ticks a payload. */
static double
kernel(struct rig *r,
	void (*f)(const struct rig *r, const struct gen_log *log, size_t from, size_t end))
{
	box.kernel = f;
	order(r, BOX_KERNEL);
	order(r, BOX_TURN); /* so that the next order is a new one */
	order(r, BOX_REST);
	return (double)box.t.kernel / ((double)box.t.slots * r->o->workers);
}

static int
by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double
median(double *v, unsigned n)
{
	qsort(v, n, sizeof(*v), by_value);
	return v[n / 2];
}

/* Results of the bare kernel go where the box put its own, or where nothing of the box is. */
static void
places(struct rig *r, struct gen *g)
{
	size_t unit = r->frag_elements, n = r->elements / unit;

	if (n > ((size_t)64 << 20) / (unit * 4))
		n = ((size_t)64 << 20) / (unit * 4);
	for (size_t i = 0; i < g->log.n; i++)
		if (scratch != NULL)
			g->log.result[i] = scratch + i % n * unit;
}

static void
make_scratch(const struct rig *r)
{
	size_t bytes = r->elements * 4, most = (size_t)64 << 20;
	unsigned states = pbox_optim_states(r->o->optimiser);

	if (r->o->optimiser == PBOX_OPT_NONE && r->o->format == PBOX_FMT_FP32)
		return;
	bytes = bytes < most ? bytes : most;
	scratch = calloc(1 + states, bytes + 64);
	scratch = (float *)(void *)(((uintptr_t)scratch + 63) & ~(uintptr_t)63);
	bytes &= ~(size_t)63;
	scratch_s0 = states > 0 ? scratch + bytes / 4 : NULL;
	scratch_s1 = states > 1 ? scratch + bytes / 2 : NULL;
}

/* No sum, and all is taken for intact: the payload is not read. Of the result there is no checksum. */
static void
no_sum(float *dst, const struct pbox_sources *s, size_t first, size_t elems)
{
	(void)dst;
	(void)first;
	(void)elems;
	if (s->intact != NULL)
		*s->intact = true;
	if (s->crc_dst != NULL)
		*s->crc_dst = 0;
}

/* The sum, unchecked. */
static void
unchecked_sum(float *dst, const struct pbox_sources *s, size_t first, size_t elems)
{
	struct pbox_sources plain = *s;

	plain.crc_dst = NULL;
	plain.intact = NULL;
	box.rig->real_reduce->sum(dst, &plain, first, elems);
	no_sum(dst, s, first, elems);
}

static void
no_scale(float *dst, float factor, float clip, size_t elems)
{
	(void)dst;
	(void)factor;
	(void)clip;
	(void)elems;
}

static void
no_pack(void *dst, enum pbox_format elem, const float *src, size_t elems)
{
	(void)dst;
	(void)elem;
	(void)src;
	(void)elems;
}

static void
no_step(float *p, const float *g, float *s0, float *s1, const struct pbox_optim_scalars *k,
	size_t elems)
{
	(void)p;
	(void)g;
	(void)s0;
	(void)s1;
	(void)k;
	(void)elems;
}

enum kernels { K_NONE, K_UNCHECKED, K_REAL };

/* The box keeps pointers to our copies of the operations. */
static void
use_kernels(struct rig *r, enum kernels which)
{
	static struct pbox_optim_def no_steps[PBOX_OPTIMISERS_END];

	r->reduce = *r->real_reduce;
	r->optim = *r->real_optim;
	if (which == K_UNCHECKED)
		r->reduce.sum = unchecked_sum;
	if (which != K_NONE)
		return;
	r->reduce.sum = no_sum;
	r->reduce.scale = no_scale;
	r->reduce.pack = no_pack;
	for (int k = 1; k < PBOX_OPTIMISERS_END; k++) {
		no_steps[k] = *r->real_optim->of[k];
		no_steps[k].step = no_step;
		r->optim.of[k] = &no_steps[k];
	}
}

/*
 * Where the time goes, from the differences of runs that leave parts of the way out (TSC cycles a
 * packet; everything else stays the same, and no run is disturbed by looking at the clock inside):
 *
 *   foreign                     receive, parse, give back
 *   empty   - foreign           open the header, look session and slot up (and the CRC of a header)
 *   pull    - empty             build an answer and transmit it
 *   rounds  - unchecked         CRCs of payloads and result, in the pass that sums them
 *   unchecked - without kernels sum and optimiser
 *   and the rest                hold, finish and release a contribution; CRC of the answer where it
 *                               is not just the sum
 */
static bool
stages(struct rig *r, struct gen *g, struct result *res)
{
	enum { FOREIGN, EMPTY, PULL, NONE, UNCHECKED, ALL, PARTS };
	static const struct {
		enum traffic kind;
		enum kernels kernels;
	} part[PARTS] = {{T_FOREIGN, K_REAL}, {T_EMPTY, K_REAL}, {T_PULL, K_REAL},
		{T_ROUNDS, K_NONE}, {T_ROUNDS, K_UNCHECKED}, {T_ROUNDS, K_REAL}};
	double cost[PARTS][MAX_RUNS], m[PARTS];

	g->check_sums = false;
	for (unsigned i = 0; i < r->o->runs; i++)
		for (unsigned k = 0; k < PARTS; k++) {
			struct run_times t;
			bool ended;

			use_kernels(r, part[k].kernels);
			ended = run(r, g, part[k].kind, r->o->packets, &t);
			use_kernels(r, K_REAL);
			if (!ended)
				return false;
			cost[k][i] = (double)t.busy / (double)t.packets;
		}
	for (unsigned k = 0; k < PARTS; k++)
		m[k] = median(cost[k], r->o->runs);
	res->receive = m[FOREIGN];
	res->lookup = m[EMPTY] - m[FOREIGN];
	res->answer = m[PULL] - m[EMPTY];
	res->crc = m[ALL] - m[UNCHECKED];
	res->sum = m[UNCHECKED] - m[NONE];
	res->engine = m[NONE] - m[EMPTY] - res->answer;
	res->outside = m[NONE] - res->answer;
	return true;
}

static double
tsc_ghz(void)
{
	return (double)rte_get_tsc_hz() * 1e-9;
}

static bool
measure(struct rig *r, struct gen *g, struct result *res)
{
	double total[MAX_RUNS], busy[MAX_RUNS], bare[MAX_RUNS], share[MAX_RUNS], part[MAX_RUNS],
		fused[MAX_RUNS], checked[MAX_RUNS], checked_share[MAX_RUNS];
	unsigned n = r->o->runs;

	for (unsigned i = 0; i < n; i++) {
		struct rte_malloc_socket_stats before = {0}, after = {0};
		struct run_times t;

		g->logging = g->check_sums = true;
		rte_malloc_get_socket_stats((int)rte_socket_id(), &before);
		if (!run(r, g, T_ROUNDS, r->o->packets, &t))
			return false;
		g->logging = false;
		rte_malloc_get_socket_stats((int)rte_socket_id(), &after);
		res->allocations += t.allocations + (after.alloc_count - before.alloc_count);
		res->packets = g->sent;
		/* all a packet */
		busy[i] = (double)t.busy / (double)t.packets;
		total[i] = r->o->lockstep ? busy[i] : (double)t.total / (double)t.total_packets;
		part[i] = busy[i] / total[i];
		bare[i] = share[i] = fused[i] = checked[i] = checked_share[i] = 0;
		if (r->o->only_rounds)
			continue;
		places(r, g);
		bare[i] = kernel(r, bare_sum);
		share[i] = bare[i] / total[i];
		checked[i] = kernel(r, bare_checked);
		checked_share[i] = checked[i] / total[i];
		fused[i] = 1;
		if (r->o->optimiser != PBOX_OPT_NONE)
			fused[i] = kernel(r, bare_update) / bare[i];
		pbox_control_step(r->control);
	}
	res->share = median(share, n);
	res->optim_ratio = median(fused, n);
	res->checked_tsc = median(checked, n);
	res->checked_share = median(checked_share, n);
	res->busy_share = median(part, n);
	res->tsc_fragment = median(busy, n);
	res->ns_fragment = res->tsc_fragment / tsc_ghz();
	res->kernel_tsc = median(bare, n);
	res->mpps = tsc_ghz() * 1e3 / median(total, n);
	res->gbit = res->mpps * r->o->fragment * 8e-3;
	res->kernel_gbit =
		res->kernel_tsc > 0 ? tsc_ghz() / res->kernel_tsc * r->o->fragment * 8 : 0;
	return true;
}

static void
counters(struct rig *r, const struct gen *g, struct result *res)
{
	res->copied = rig_core(r, PBOX_CS_TX_COPIED_BYTES);
	res->shared = rig_core(r, PBOX_CS_TX_SHARED_BYTES);
	res->dropped = rig_core(r, PBOX_CS_TX_DROPPED) + rig_core(r, PBOX_CS_TX_NO_MBUF) +
		       rig_shard(r, PBOX_SS_DROP_NO_RECORD) + rig_shard(r, PBOX_SS_DROP_NO_BUFFER);
	res->folds = rig_shard(r, PBOX_SS_FOLDS);
	res->verified = g->verified;
	res->wrong = g->wrong;
	res->resident_bytes = (double)g->buffers * r->o->fragment;
	res->rx_desc = r->rx_desc;
	res->window = r->job[0].window;
	res->slots = r->o->slots;
}

static void
describe(struct rig *r, struct result *res)
{
	snprintf(res->kernel, sizeof(res->kernel), "%s", r->real_reduce->name);
	snprintf(res->optim, sizeof(res->optim), "%s", r->real_optim->name);
	res->huge = r->huge;
	res->n_runs = r->o->runs;
	if (!r->o->only_rounds)
		order(r, BOX_CLOCK);
	res->tsc_ghz = tsc_ghz();
	res->core_ghz = box.ghz_ratio * tsc_ghz();
}

void
run_all(const struct options *o, struct result *res)
{
	static struct rig r;
	static struct gen g;
	struct run_times t;

	*res = (struct result){.o = *o};
	res->receive = res->lookup = res->crc = res->engine = res->sum = res->answer = -1;
	res->outside = -1;
	rig_start(&r, o);
	box.rig = &r;
	box.gen = &g;
	if (!o->lockstep) {
		rte_eal_remote_launch(box_main, &r, 0);
		order(&r, BOX_REST);
		order(&r, BOX_TURN);
	}
	rig_join(&r);
	gen_start(&g, &r);
	make_scratch(&r);
	g.check_sums = true;
	/* to warm up: all buffers get their payloads */
	res->ok = run(&r, &g, T_ROUNDS, o->only_rounds ? o->packets : 4096 + o->packets / 8, &t);
	describe(&r, res);
	if (o->telemetry != NULL)
		res->ok = res->ok && watch_run(&r, &g);
	else
		res->ok = res->ok && measure(&r, &g, res);
	if (res->ok && o->stages)
		res->ok = stages(&r, &g, res);
	if (res->ok)
		counters(&r, &g, res);
	else
		snprintf(res->why, sizeof(res->why), "a run does not end");
	res->real_fragment = res->tsc_fragment * res->core_ghz / res->tsc_ghz;
	order(&r, BOX_END);
	rte_eal_mp_wait_lcore();
	if (g.wrong > 0)
		snprintf(res->why, sizeof(res->why), "%s", g.why);
	res->ok = res->ok && g.wrong == 0;
	gen_free(&g);
	if (!rig_stop(&r) && res->ok) {
		res->ok = false;
		snprintf(res->why, sizeof(res->why),
			"packets are missing, or counters do not add up");
	}
}
