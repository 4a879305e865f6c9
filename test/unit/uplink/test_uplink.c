/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>
#include <string.h>

#include "unit.h"

#include "racks.h"

/*
 * Racks against one flat box: the same contributions, and the same bits at all workers, on bad networks and with boxes that are started
 * again in the middle of a round.
 */

const char unit_suite[] = "uplink: racks and an upper box";

#define TENSORS  3
#define ROUNDS   12
#define ELEMENTS (1000 + 7 + 400)

static const struct pbox_client_tensor tensor[TENSORS] = {
	{.elements = 1000}, {.elements = 7}, {.elements = 400}};

/* What a test makes of the world at each step; NULL: nothing. */
typedef void (*disturb_fn)(uint64_t step);

struct training {
	struct racks_conf conf;
	uint8_t op, format;
	const struct pbox_client_tensor *others; /* of the second half, in test_other_tensors() */
	uint8_t other_pull; /* of the second half of the workers, in test_other_formats() */
	disturb_fn disturb;
};

struct worker_state {
	struct pbox_worker_declaration d;
	struct {
		struct pbox_worker_op op;
		struct pbox_worker_entry e[TENSORS];
	} push;
	void *in, *out;
	unsigned round;
	bool submitted;
};

static struct worker_state state[WORKERS_MAX];
/* Of each round, the sum over all bytes of the result at each worker: they must be alike. */
static uint64_t sum[ROUNDS + 1];

static uint64_t
digest(const void *at, size_t n)
{
	uint64_t h = UINT64_C(1469598103934665603);

	for (size_t i = 0; i < n; i++)
		h = (h ^ ((const uint8_t *)at)[i]) * UINT64_C(1099511628211);
	return h;
}

/* Values whose sums depend on the order: of very different magnitudes. */
static float
value_of(unsigned worker, unsigned round, unsigned i)
{
	uint32_t x = worker * 2654435761u ^ round * 40503u ^ i * 2246822519u;

	x ^= x >> 15;
	x *= 2246822519u;
	x ^= x >> 13;
	return (float)((int32_t)x) / (float)(1u << (x % 29));
}

static size_t
size_of(uint8_t format)
{
	return format == PBOX_FMT_FP32 ? sizeof(float) : sizeof(uint16_t);
}

static void
fill(struct worker_state *s, unsigned worker, uint8_t format)
{
	for (unsigned i = 0; i < ELEMENTS; i++) {
		float x = value_of(worker, s->round, i);
		uint32_t bits;

		memcpy(&bits, &x, sizeof(bits));
		if (format == PBOX_FMT_FP32)
			((float *)s->in)[i] = x;
		else
			((uint16_t *)s->in)[i] = (uint16_t)(bits >> 16);
	}
}

static void
submit(struct worker_state *s, unsigned worker, const struct training *t)
{
	size_t at = 0, size = size_of(t->format);

	s->round++;
	fill(s, worker, t->format);
	memset(&s->push, 0, sizeof(s->push));
	s->push.op.table = s->d.table;
	s->push.op.kind = PBOX_CLIENT_PUSHPULL;
	s->push.op.weight = 1 + worker * 3 + s->round;
	s->push.op.n = TENSORS;
	for (unsigned i = 0; i < TENSORS; i++) {
		struct pbox_worker_entry *e = &s->push.op.e[i];

		e->op = &s->push.op;
		e->tensor = i;
		e->in = (const uint8_t *)s->in + at;
		e->out = (uint8_t *)s->out + at;
		at += tensor[i].elements * size;
	}
	s->submitted = true;
	pbox_worker_submit(racks.peer[worker].w, &s->push.op);
	racks.peer[worker].due = racks.now;
}

static void
ended(struct worker_state *s, const struct training *t)
{
	uint64_t d = digest(s->out, ELEMENTS * size_of(t->format));

	s->submitted = false;
	UNIT_EQ_U64(s->push.op.code, 0);
	if (sum[s->round] == 0)
		sum[s->round] = d;
	UNIT_EQ_U64(sum[s->round], d);
}

static void
declare(unsigned i, const struct training *t)
{
	static struct pbox_client_table table[WORKERS_MAX];

	table[i] = (struct pbox_client_table){.size = sizeof(table[i]),
		.mode = PBOX_MODE_ALLREDUCE,
		.op = t->op,
		.optimiser = PBOX_OPT_NONE,
		.push_format = t->format,
		.pull_format = i < t->conf.workers / 2 ? t->format : t->other_pull,
		.n = TENSORS,
		.tensors = i < t->conf.workers / 2 || t->others == NULL ? tensor : t->others};
	state[i].d = (struct pbox_worker_declaration){.what = &table[i]};
	pbox_worker_declare(racks.peer[i].w, &state[i].d);
	racks.peer[i].due = racks.now;
}

/* Train, and leave what each round has given in sum[]. */
static void
train(const struct training *t)
{
	unsigned n = t->conf.workers, done = 0;
	uint64_t end;

	memset(sum, 0, sizeof(sum));
	memset(state, 0, sizeof(state));
	racks_begin(&t->conf);
	end = racks.now + 600 * SEC;
	for (unsigned i = 0; i < n; i++) {
		state[i].in = malloc(ELEMENTS * sizeof(float));
		state[i].out = malloc(ELEMENTS * sizeof(float));
		CU_ASSERT_FATAL(state[i].in != NULL && state[i].out != NULL);
	}
	for (uint64_t step = 0; done < n && racks.now < end; step++) {
		racks_step();
		if (t->disturb != NULL)
			t->disturb(step);
		done = 0;
		for (unsigned i = 0; i < n; i++) {
			struct worker_state *s = &state[i];
			struct pbox_worker *w = racks.peer[i].w;

			if (s->d.what == NULL && pbox_worker_state(w) == PBOX_WORKER_OPEN)
				declare(i, t);
			CU_ASSERT_FATAL(s->d.state != PBOX_WORKER_REFUSED);
			if (s->d.state == PBOX_WORKER_DECLARED && !s->submitted &&
				s->round < ROUNDS)
				submit(s, i, t);
			if (s->submitted && pbox_worker_finished(w) != NULL)
				ended(s, t);
			done += s->round == ROUNDS && !s->submitted;
		}
	}
	UNIT_EQ_U64(done, n);
	for (unsigned i = 0; i < n; i++) {
		free(state[i].in);
		free(state[i].out);
	}
	racks_end();
}

/* Both ways; the rounds must be alike, bit for bit. */
static void
compare(struct training t)
{
	uint64_t flat[ROUNDS + 1];
	struct training one = t;

	one.conf.racks = 0;
	one.conf.loss = 0;
	one.disturb = NULL;
	one.other_pull = t.other_pull = t.format;
	train(&one);
	memcpy(flat, sum, sizeof(flat));
	train(&t);
	for (unsigned r = 1; r <= ROUNDS; r++) {
		CU_ASSERT(flat[r] != 0);
		UNIT_EQ_U64(sum[r], flat[r]);
	}
}

static const struct training plain = {.conf = {.racks = 2, .workers = 4, .run = "run 1"},
	.op = PBOX_OP_SUM,
	.format = PBOX_FMT_FP32};

static void
test_two_racks(void)
{
	compare(plain);
}

/* The racks' workers declare otherwise, and both racks the same to the upper box, fragments in fp32: it refuses one by what they say. */
static void
refused(const struct training *t, const char *text)
{
	unsigned n = 0;
	uint64_t end;

	memset(state, 0, sizeof(state));
	racks_begin(&t->conf);
	for (unsigned i = 0; i < t->conf.workers; i++)
		racks.peer[i].may_fail = true;
	for (end = racks.now + 60 * SEC; n == 0 && racks.now < end;) {
		racks_step();
		for (unsigned i = 0; i < t->conf.workers; i++) {
			struct worker_state *s = &state[i];

			if (s->d.what == NULL &&
				pbox_worker_state(racks.peer[i].w) == PBOX_WORKER_OPEN)
				declare(i, t);
			if (pbox_worker_state(racks.peer[i].w) != PBOX_WORKER_FAILED)
				continue;
			n++;
			CU_ASSERT_PTR_NOT_NULL(
				strstr(pbox_worker_error(racks.peer[i].w)->text, text));
		}
	}
	CU_ASSERT(n > 0);
	racks_end();
}

/* Workers of one rack push and pull fp32, those of the other pull bf16. */
static void
test_other_formats(void)
{
	struct training t = plain;

	t.other_pull = PBOX_FMT_BF16;
	refused(&t, "declares 'workers push fp32, pull ");
}

/* Two tensors of one size have changed places: their sums would be of one and the other. */
static void
test_other_tensors(void)
{
	struct pbox_client_tensor others[TENSORS];
	struct training t = plain;

	memcpy(others, tensor, sizeof(others));
	others[0].name = "1"; /* those without a name have their number */
	others[1].name = "0";
	t.others = others;
	t.other_pull = t.format;
	refused(&t, "tensors ");
}

static void
test_ops(void)
{
	for (uint8_t op = PBOX_OP_SUM; op <= PBOX_OP_WEIGHTED_MEAN; op++)
		for (uint8_t format = PBOX_FMT_FP32; format <= PBOX_FMT_BF16; format++) {
			struct training t = plain;

			t.op = op;
			t.format = format;
			t.conf.workers = 8;
			t.conf.seed = op;
			compare(t);
		}
}

static void
test_three_racks(void)
{
	struct training t = plain;

	t.conf.racks = 3;
	t.conf.workers = 12;
	t.op = PBOX_OP_MEAN;
	compare(t);
}

static void
test_loss(void)
{
	for (unsigned seed = 1; seed <= 12; seed++) {
		struct training t = plain;

		t.conf.loss = 30;
		t.conf.seed = seed;
		t.conf.racks = 2 + seed % 2;
		t.conf.workers = 2 * t.conf.racks;
		t.op = seed % 4;
		compare(t);
	}
}

/* ---- boxes that are started again --------------------------------------------------------------------- */

static unsigned victims, every;
static uint64_t restart_at, crash_at;
static unsigned crashes;

static void
kill_some(uint64_t step)
{
	(void)step;
	if (crash_at == 0)
		crash_at = racks.now + every * MS;
	if (restart_at == 0 && racks.now >= crash_at && crashes < 6 && state[0].round > 1) {
		for (unsigned b = 0; b <= racks.conf.racks; b++)
			if ((victims >> b & 1) != 0)
				racks_crash(b);
		crashes++;
		restart_at = racks.now + 30 * MS;
	}
	if (restart_at != 0 && racks.now >= restart_at) {
		for (unsigned b = 0; b <= racks.conf.racks; b++)
			if (!racks.box[b].up)
				racks_start(b);
		restart_at = 0;
		crash_at = racks.now + 700 * MS + every * MS;
	}
}

static void
restarts(unsigned which, unsigned seeds)
{
	for (unsigned seed = 1; seed <= seeds; seed++) {
		struct training t = plain;

		victims = which;
		every = seed;
		restart_at = crash_at = 0;
		crashes = 0;
		t.disturb = kill_some;
		t.conf.seed = seed;
		t.conf.loss = 5;
		t.op = PBOX_OP_MEAN;
		compare(t);
		CU_ASSERT(crashes > 0);
	}
}

static void
test_rack_restarts(void)
{
	restarts(1u << 1, 10);
	restarts(1u << 2, 10);
}

static void
test_upper_restarts(void)
{
	restarts(1u << 0, 10);
}

static void
test_both_restart(void)
{
	restarts(1u << 0 | 1u << 1, 10);
	restarts(1u << 0 | 1u << 2, 10);
	restarts(1u << 0 | 1u << 1 | 1u << 2, 10);
}

const struct unit_test unit_tests[] = {
	{"two racks of two", test_two_racks},
	{"racks with other formats", test_other_formats},
	{"racks with other tensors", test_other_tensors},
	{"all ops, fp32 and bf16", test_ops},
	{"three racks of four", test_three_racks},
	{"30 % loss", test_loss},
	{"a rack's box is started again", test_rack_restarts},
	{"the upper box is started again", test_upper_restarts},
	{"the upper box and boxes of racks are started again", test_both_restart},
	{NULL, NULL},
};
