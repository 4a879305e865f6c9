/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sodium.h>
#include <sys/mman.h>

#include <pbox_reduce.h>

#include "eal.h"
#include "hunt.h"
#include "testps.h"
#include "unit.h"

static struct pbox_error err;

static void
start_eal(void)
{
	static const char *const args[] = {"-m", "64", "--no-telemetry", "--lcores", "0@0", NULL};

	unit_eal(args);
	CU_ASSERT_FATAL(sodium_init() >= 0);
}

/* 0, or negative with err: of words after the program's name. */
static int
load(struct testps_options *o, const char *words)
{
	char text[256], *argv[32] = {"pbox-testps"}, *save = NULL;
	struct pbox_conf *conf;
	int argc = 1;

	snprintf(text, sizeof(text), "%s", words);
	for (char *w = strtok_r(text, " ", &save); w != NULL; w = strtok_r(NULL, " ", &save))
		argv[argc++] = w;
	memset(o, 0, sizeof(*o));
	memset(&err, 0, sizeof(err));
	conf = testps_options_load(o, argc, argv, &err);
	pbox_conf_free(conf);
	return conf != NULL ? 0 : -1;
}

#define BOX "--box 10.0.0.1 --address 10.0.0.2/24 "

static void
test_options(void)
{
	static const struct {
		const char *words, *error;
	} wrong[] = {
		{"", "no box"},
		{"--box 10.0.0.1", "no address of our own"},
		{"--box host --address 10.0.0.2/24", "an IPv4 address"},
		{"--box 10.0.0.1:0 --address 10.0.0.2/24", "an IPv4 address"},
		{BOX "--workers 1025", "1025"},
		{BOX "--fragment 1000", "a multiple of 64"},
		{BOX "--rxq 2", "queues come in pairs"},
		{BOX "--rxq 2 --txq 2", "each lcore has a queue pair"},
		{BOX "--dtype fp8", "one of fp32, bf16, fp16"},
		{BOX "--dtype fp32,", "one of fp32, bf16, fp16, int8, mxfp4"},
		{BOX "--dtype int4", "one of fp32, bf16, fp16, int8, mxfp4"},
		{BOX "--dtype int8,fp32", "both ways"},
		{BOX "--format fp32,mxfp4", "both ways"},
		{BOX "--format=int8 --optimiser adam", "dtype int8 with optimiser adam"},
		{BOX "--loss 91", "per cent"},
		{BOX "--straggler 3", "3:20ms"},
		{BOX "--straggler 3:20", "3:20ms"},
		{BOX "--compute 20", "zero, profile"},
		{BOX "--hosts --workers 300", "has no room for 300 workers"},
		{BOX "--reflected --optimiser adam", "needs a box"},
		{"--loopback --nb-cores 2", "one queue pair"},
		{"--loopback --sweep-workers 1,,2", "apart by commas"},
		{"--loopback --sweep-workers 1,1025", "from 1 to 1024"},
		{"--loopback --search best", "best"},
	};
	struct testps_options o;
	struct testps_load l;

	for (unsigned i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		CU_ASSERT(load(&o, wrong[i].words) != 0);
		if (strstr(err.text, wrong[i].error) == NULL) {
			printf("'%s': %s\n", wrong[i].words, err.text);
			CU_FAIL("another error");
		}
	}
	CU_ASSERT_FATAL(
		load(&o, BOX
			"--workers 1024 --dtype bf16,fp32 --loss 0.5% --straggler 7:20ms --compute 3ms --optimiser adamw") ==
		0);
	CU_ASSERT_FATAL(testps_load_of(&l, &o, &err) == 0);
	CU_ASSERT(l.workers == 1024 && l.push == PBOX_FMT_BF16 && l.pull == PBOX_FMT_FP32);
	CU_ASSERT(l.loss == 0.005 && l.straggler == 7 && l.straggler_us == 20000);
	CU_ASSERT(l.compute_us == 3000 && !l.profile && l.optimiser == PBOX_OPT_ADAMW);
	CU_ASSERT_FATAL(load(&o, BOX "--format mxfp4 --reflected") == 0);
	CU_ASSERT_FATAL(testps_load_of(&l, &o, &err) == 0);
	CU_ASSERT(l.push == PBOX_FMT_MXFP4 && l.pull == PBOX_FMT_MXFP4);
	CU_ASSERT(load(&o, "--loopback") == 0);
	CU_ASSERT(load(&o, "--help") == 0);
}

static void
write_model(char *path, const char *text)
{
	int fd = mkstemp(path);

	CU_ASSERT_FATAL(fd >= 0);
	CU_ASSERT_FATAL(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	close(fd);
}

static void
test_model(void)
{
	char good[] = "/tmp/testps-XXXXXX", bad[] = "/tmp/testps-XXXXXX";
	struct model m;

	CU_ASSERT(model_read(&m, "64K", &err) == 0 && m.n == 1 && m.elements == 16384);
	model_free(&m);
	CU_ASSERT(model_read(&m, "1G", &err) == 0 && m.elements == 1u << 28);
	model_free(&m);
	CU_ASSERT(model_read(&m, "3", &err) != 0);
	CU_ASSERT(model_read(&m, "4MB", &err) != 0 && strstr(err.text, "neither a size") != NULL);
	write_model(good, "tensor,elements\n# comment\na,10,250\nb,0\n\nc,90,750\r\n");
	CU_ASSERT(model_read(&m, good, &err) == 0);
	CU_ASSERT(m.n == 3 && m.elements == 100 && m.compute_us == 1000);
	CU_ASSERT(strcmp(m.tensor[2].name, "c") == 0 && m.tensor[2].elements == 90);
	model_free(&m);
	write_model(bad, "a,10\nb,x\n");
	CU_ASSERT(model_read(&m, bad, &err) != 0 && strstr(err.text, "line 2") != NULL);
	unlink(good);
	unlink(bad);
}

/* Every fragment of every chunk once, those of an endpoint together, and the last tensor first. */
static void
test_plan(void)
{
	struct pbox_worker_chunk chunk[] = {
		{.id = 100, .elements = 250, .endpoint = 0, .tensor = 0},
		{.id = 101, .elements = 100, .endpoint = 2, .tensor = 1},
		{.id = 102, .elements = 30, .endpoint = 0, .tensor = 2},
	};
	const struct map map = {
		.info = {.chunks = 3, .frag_elements = 100, .map_epoch = 1, .base = 7},
		.chunk = chunk};
	struct tensor tensor[] = {{.elements = 250}, {.elements = 90}, {.elements = 40}};
	const struct model m = {.n = 3, .tensor = tensor, .elements = 380};
	struct testps_load load = {.compute_us = 3000};
	struct plan p;

	CU_ASSERT_FATAL(plan_make(&p, &map, 3, &m, &load, &err) == 0);
	CU_ASSERT(p.n == 5 && p.timed && p.round == 7);
	CU_ASSERT(p.first[0] == 0 && p.first[1] == 4 && p.first[2] == 4 && p.first[3] == 5);
	/* tensor 2 is ready before tensor 0 */
	CU_ASSERT(p.f[0].chunk == 102 && p.f[0].elements == 30 && p.f[0].release_us > 1000);
	CU_ASSERT(p.f[1].chunk == 100 && p.f[3].frag == 2 && p.f[3].elements == 50);
	CU_ASSERT(p.f[1].release_us > p.f[0].release_us && p.f[3].release_us <= 3000);
	CU_ASSERT(p.f[4].chunk == 101 && p.f[4].endpoint == 2);
	CU_ASSERT(p.f[p.chunk_first[1]].chunk == 101 && p.chunk_first[2] == 0);
	CU_ASSERT(p.n_lengths == 3 && p.length[p.f[4].length] == 100);
	for (unsigned i = 1; i < p.n; i++)
		CU_ASSERT(p.f[i].at >= p.f[i - 1].at + p.f[i - 1].elements);
	plan_free(&p);
	load.compute_us = 0;
	CU_ASSERT(plan_make(&p, &map, 3, &m, &load, &err) == 0 && !p.timed);
	CU_ASSERT(p.f[0].chunk == 100);
	plan_free(&p);
}

/* What is expected is the sum of what is sent (R5.2a), for every seed and length. */
static void
check_sums(unsigned workers, uint8_t push, uint8_t pull, uint8_t optimiser)
{
	struct tensor tensor = {.elements = 5000};
	const struct model m = {.n = 1, .tensor = &tensor, .elements = 5000};
	struct testps_load load = {
		.workers = workers, .push = push, .pull = pull, .optimiser = optimiser};
	const unsigned size = pbox_format_size(push);
	float(*x)[64] = malloc(workers * sizeof(*x));
	uint8_t packed[64 * sizeof(float)];
	struct pbox_auth_job *auth = pbox_auth_job_create(NULL, "secret", 6, 1, 0);
	struct reference reference;
	struct data d;
	struct plan p;

	CU_ASSERT_FATAL(plan_reflected(&p, 64, &m, &load, &err) == 0);
	CU_ASSERT_FATAL(auth != NULL);
	CU_ASSERT_FATAL(data_make(&d, &p, &load, false, auth, &err) == 0);
	CU_ASSERT_FATAL(reference_make(&reference, &d, &p, &err) == 0);
	for (uint32_t round = 1; round < 4; round++)
		for (uint32_t f = 0; f < p.n; f++) {
			uint32_t n = p.f[f].elements;
			size_t bytes = n * pbox_format_size(pull);
			uint8_t digest[PBOX_AUTH_DIGEST_LEN];
			struct wanted want;

			data_want(&d, &reference, &p, f, round, 0, &want);
			CU_ASSERT(want.crc == pbox_crc32c(0, want.payload, bytes));
			pbox_auth_digest(auth, want.payload, bytes, digest);
			CU_ASSERT(memcmp(digest, want.digest, sizeof(digest)) == 0);
			if (optimiser != PBOX_OPT_NONE)
				continue;
			for (unsigned w = 0; w < workers; w++) {
				const uint8_t *sent =
					d.pattern[(data_seed(round, f) + w) % PATTERNS];

				pbox_reduce_scalar.unpack(x[w], sent, push, n);
				CU_ASSERT(d.pattern_crc[p.f[f].length * PATTERNS +
							(data_seed(round, f) + w) % PATTERNS] ==
					  pbox_crc32c(0, sent, (size_t)n * size));
			}
			for (unsigned half = 1; half < workers; half *= 2)
				for (unsigned w = 0; w + half < workers; w += 2 * half)
					for (uint32_t i = 0; i < n; i++)
						x[w][i] += x[w + half][i];
			pbox_reduce_scalar.pack(packed, pull, x[0], n);
			CU_ASSERT(memcmp(packed, want.payload, bytes) == 0);
		}
	/* neighbours are different */
	CU_ASSERT(data_seed(1, 0) != data_seed(1, 1) && data_seed(1, 0) != data_seed(2, 0));
	reference_free(&reference);
	data_free(&d);
	plan_free(&p);
	pbox_auth_job_destroy(auth);
	free(x);
}

static void
test_sums(void)
{
	start_eal();
	check_sums(1, PBOX_FMT_FP32, PBOX_FMT_FP32, PBOX_OPT_NONE);
	check_sums(40, PBOX_FMT_FP32, PBOX_FMT_BF16, PBOX_OPT_NONE);
	check_sums(3, PBOX_FMT_FP16, PBOX_FMT_FP32, PBOX_OPT_NONE);
	check_sums(5, PBOX_FMT_BF16, PBOX_FMT_FP16, PBOX_OPT_ADAM);
}

/* One step of SGD, by hand. */
static void
test_step(void)
{
	struct tensor tensor = {.elements = 100};
	const struct model m = {.n = 1, .tensor = &tensor, .elements = 100};
	const struct testps_load load = {.workers = 2,
		.push = PBOX_FMT_FP32,
		.pull = PBOX_FMT_FP32,
		.optimiser = PBOX_OPT_SGD};
	struct reference reference;
	struct data d;
	struct plan p;
	struct wanted want;
	float got[100];

	start_eal();
	CU_ASSERT_FATAL(plan_reflected(&p, 112, &m, &load, &err) == 0);
	CU_ASSERT_FATAL(data_make(&d, &p, &load, false, NULL, &err) == 0);
	CU_ASSERT_FATAL(reference_make(&reference, &d, &p, &err) == 0);
	data_want(&d, &reference, &p, 0, 1, 0, &want);
	memcpy(got, want.payload, sizeof(got));
	for (unsigned i = 0; i < 100; i++) {
		float g = d.sum[data_seed(1, 0)][i] * 0.5f;

		CU_ASSERT(got[i] == d.init[i] - 0.01f * g);
	}
	/* a second look is the same step */
	data_want(&d, &reference, &p, 0, 1, 1, &want);
	CU_ASSERT(memcmp(got, want.payload, sizeof(got)) == 0);
	data_want(&d, &reference, &p, 0, 2, 0, &want);
	CU_ASSERT(memcmp(got, want.payload, sizeof(got)) != 0);
	reference_free(&reference);
	data_free(&d);
	plan_free(&p);
}

/* ---- the search of a rate ------------------------------------------------------------------ */

/* A box and a machine: what is carried, how soft that bound is, how many trials fail by chance. */
struct bed {
	double carries, soft, unlucky;
	uint64_t random;
};

static double
chance(struct bed *b)
{
	b->random ^= b->random << 13;
	b->random ^= b->random >> 7;
	b->random ^= b->random << 17;
	return (double)(b->random >> 11) * 0x1p-53;
}

static bool
bed_trial(struct bed *b, double rate)
{
	double x = b->soft > 0 ? (rate - b->carries) / (b->carries * b->soft)
			       : (rate <= b->carries ? -100 : 100);

	return chance(b) < (1 - b->unlucky) / (1 + exp(x));
}

static double
bed_search(struct bed *b, double most, struct hunt *h)
{
	hunt_begin(h, most);
	while (!hunt_done(h, 0.02, 40)) {
		double rate = hunt_next(h);

		hunt_add(h, rate, bed_trial(b, rate));
	}
	return hunt_best(h);
}

/* Of how many of 200 pairs the two are less than 5 % apart; all are beside what is carried. */
static unsigned
agreeing(double soft, double unlucky, unsigned *trials)
{
	static struct hunt h;
	unsigned agree = 0;

	*trials = 0;
	for (unsigned k = 0; k < 200; k++) {
		struct bed b = {.carries = 1e6 * (0.2 + 0.005 * k),
			.soft = soft,
			.unlucky = unlucky,
			.random = k + 1};
		double one = bed_search(&b, 1e6, &h), other;

		*trials += h.trials;
		other = bed_search(&b, 1e6, &h);
		agree += fabs(one / other - 1) < 0.05;
		if (unlucky == 0)
			CU_ASSERT(fabs(one / b.carries - 1) < 3 * soft + 0.02);
	}
	return agree;
}

static void
test_hunt(void)
{
	unsigned trials;

	UNIT_EQ_U64(agreeing(0, 0, &trials), 200);
	CU_ASSERT(trials < 200 * 25);
	UNIT_EQ_U64(agreeing(0.01, 0, &trials), 200);
	CU_ASSERT(agreeing(0.01, 0.1, &trials) >= 198);
	CU_ASSERT(agreeing(0.01, 0.25, &trials) >= 190);
	CU_ASSERT(agreeing(0.03, 0.1, &trials) >= 170);
}

/* A machine that becomes slower: rates that were good fail when they are tried again. Trials contradict each other, and are
 * counted; one that was good is always known. */
static void
test_hunt_changed(void)
{
	static struct hunt h;
	struct bed b = {.carries = 9e5, .random = 3};
	double low, high, from, to;
	unsigned again = 0;

	hunt_begin(&h, 1e6);
	CU_ASSERT(hunt_good(&h) == 0);
	for (unsigned i = 0; !hunt_done(&h, -1, 40); i++) {
		double rate = hunt_next(&h);
		bool before = false;

		for (unsigned k = 0; k < h.trials; k++)
			before |= h.trial[k].good && h.trial[k].rate == rate;
		again += before;
		if (i == 20)
			b.carries = 3e5;
		hunt_add(&h, rate, bed_trial(&b, rate));
	}
	CU_ASSERT(again >= h.again && h.again >= 3);
	hunt_between(&h, &from, &to);
	low = from;
	high = to;
	CU_ASSERT(hunt_disagree(&h, &low, &high) * 8 > h.trials);
	CU_ASSERT(low <= 3e5 * 1.03 || high >= 8.5e5);
	CU_ASSERT(hunt_good(&h) > 0);
	/* an estimate below all that was good */
	hunt_begin(&h, 1e6);
	hunt_add(&h, 5e5, true);
	for (unsigned i = 0; i < 30; i++)
		hunt_add(&h, 1e5, false);
	CU_ASSERT(hunt_best(&h) < 1e5 && hunt_good(&h) == 5e5);
}

/* What one unlucky trial says is taken back; and what goes through without a limit is no bound. */
static void
test_hunt_again(void)
{
	static struct hunt h;
	struct bed b = {.carries = 9e5, .random = 7};
	double low, high;

	hunt_begin(&h, 1e6);
	hunt_add(&h, 3e5, false);
	hunt_add(&h, 3e5, false);
	CU_ASSERT(hunt_best(&h) < 3e5);
	while (!hunt_done(&h, 0.02, 40))
		hunt_add(&h, hunt_next(&h), bed_trial(&b, hunt_next(&h)));
	CU_ASSERT(fabs(hunt_best(&h) / 9e5 - 1) < 0.02);
	hunt_between(&h, &low, &high);
	CU_ASSERT(low <= hunt_best(&h) && hunt_best(&h) <= high && high - low <= 0.02 * high);
	b.carries = 2.7e6;
	CU_ASSERT(fabs(bed_search(&b, 1e6, &h) / 2.7e6 - 1) < 0.02);
	/* nothing is ever good, or all is: an end of what can be found, and an end of trials */
	b.carries = 0;
	CU_ASSERT(bed_search(&b, 1e6, &h) < 3e4 && h.trials <= 40 && h.good == 0);
	b.carries = 1e9;
	CU_ASSERT(fabs(bed_search(&b, 1e6, &h) / 8e6 - 1) < 0.02);
}

/* Every length and alignment, and one bit of each byte, which differ from one alignment to the next. What is in
 * front is something else, and after it is nothing: @p end is where memory ends. */
static void
check_compare(compare_fn *same, uint8_t *end)
{
	enum { N = 300 };
	static uint8_t a[N + 64];

	for (unsigned i = 0; i < sizeof(a); i++)
		a[i] = (uint8_t)(i * 7 + (i >> 3));
	for (unsigned shift = 0; shift < 64; shift++)
		for (unsigned n = 0; n <= N; n += shift % 8 == 0 ? 1 : 7) {
			uint8_t *b = end - n;

			for (unsigned i = 1; i <= 64; i++)
				b[-(int)i] = (uint8_t)~a[shift];
			memcpy(b, a + shift, n);
			CU_ASSERT_FATAL(same(a + shift, b, n, end) && same(b, a + shift, n, b));
			for (unsigned i = 0; i < n; i++) {
				b[i] ^= (uint8_t)(1u << (i + shift) % 8);
				CU_ASSERT_FATAL(!same(a + shift, b, n, end));
				b[i] ^= (uint8_t)(1u << (i + shift) % 8);
			}
		}
}

/* As long as fragments are: every bit of one. */
static void
check_long(compare_fn *same, const uint8_t *a, uint8_t *b, uint32_t n)
{
	CU_ASSERT_FATAL(same(a, b, n, b));
	for (uint32_t i = 0; i < n * 8; i++) {
		b[i / 8] ^= (uint8_t)(1u << i % 8);
		CU_ASSERT_FATAL(!same(a, b, n, a));
		b[i / 8] ^= (uint8_t)(1u << i % 8);
	}
}

static void
test_compare(void)
{
	static const uint32_t lengths[] = {64, 1408, 8896, 8940};
	compare_fn *const fn[] = {compare_plain, compare_select()};
	static uint8_t a[8940], b[8940];
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	uint8_t *m =
		mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CU_ASSERT_FATAL(m != MAP_FAILED && mprotect(m + page, page, PROT_NONE) == 0);
	for (unsigned i = 0; i < sizeof(a); i++)
		a[i] = b[i] = (uint8_t)(i * 11 + (i >> 8));
	for (unsigned f = 0; f < sizeof(fn) / sizeof(fn[0]); f++) {
		check_compare(fn[f], m + page);
		for (unsigned i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
			check_long(fn[f], a, b, lengths[i]);
	}
	munmap(m, 2 * page);
}

const char unit_suite[] = "testps";
const struct unit_test unit_tests[] = {
	{"options", test_options},
	{"model", test_model},
	{"plan", test_plan},
	{"sums", test_sums},
	{"step", test_step},
	{"hunt", test_hunt},
	{"hunt again", test_hunt_again},
	{"hunt changed", test_hunt_changed},
	{"compare", test_compare},
	{NULL, NULL},
};
