/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <pbox_base.h>
#include <pbox_reduce.h>

#include "unit.h"

const char unit_suite[] = "reduce: sums";

#define SOURCES_MAX 130
#define ELEMS_MAX   4224
#define NEXT        24
#define HEADER      62
#define MARK        0x5A5A5A5Au

/* What the elements of a source are made of. */
enum material {
	TAME,    /* every operation gives a number: bits must be equal */
	ONE_NAN, /* the same, and one source has NaNs: bits must be equal */
	WILD,    /* any bits at all: equal, or both NaN */
	MATERIALS
};

struct fixture {
	struct pbox_random r;
	uint8_t *memory; /* SOURCES_MAX stretches, each ended by a page that must not be touched */
	size_t stretch;
	const void *src[SOURCES_MAX];
	const void *next[NEXT]; /* to be fetched, not read: most of it is not there */
	float weight[SOURCES_MAX];
	float *acc, *want, *got; /* ELEMS_MAX + 16 each */
	enum material material;
};

static struct fixture fx;

static uint32_t
bits(float f)
{
	uint32_t u;

	memcpy(&u, &f, 4);
	return u;
}

static uint32_t
fp32_material(struct pbox_random *r, enum material m, int nan_here)
{
	uint64_t x = pbox_random_u64(r);
	uint32_t u = (uint32_t)x;

	if (m == WILD)
		return x >> 32 & 1 ? u : u & 0x80000000; /* -0 and +0 often */
	if (nan_here && (x >> 32) % 5 == 0)
		return u | 0x7FC00000; /* quiet, any payload and sign */
	switch ((x >> 40) % 8) {
	case 0:
		return u & 0x80000000; /* zeros */
	case 1:
		return u & 0x807FFFFF; /* subnormal */
	default:                       /* exponents 2^-27 to 2^28, where sums round and cancel */
		return (u & 0x807FFFFF) | (uint32_t)(100 + (x >> 48) % 56) << 23;
	}
}

static void
fill(uint8_t *p, enum pbox_format elem, size_t elems, int nan_here)
{
	for (size_t i = 0; i < elems; i++) {
		uint32_t u = fp32_material(&fx.r, fx.material, nan_here);
		uint16_t h = (uint16_t)(u >> 16);
		float f;

		memcpy(&f, &u, 4);
		if (elem == PBOX_FMT_FP16 && fx.material != WILD)
			pbox_reduce_scalar.pack(&h, elem, &f, 1);
		if (elem == PBOX_FMT_FP16 && fx.material != WILD && (h & 0x7FFF) == 0x7C00)
			h ^= 0x7C00; /* no infinities */
		if (elem == PBOX_FMT_FP32)
			memcpy(p + i * 4, &u, 4);
		else
			memcpy(p + i * 2, &h, 2);
	}
}

static void
set_up(void)
{
	size_t page = 4096;

	if (fx.memory != NULL)
		return;
	pbox_random_seed(&fx.r, 20260101);
	fx.stretch = ELEMS_MAX * 4 / page * page + 3 * page;
	fx.memory = mmap(NULL, fx.stretch * SOURCES_MAX, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CU_ASSERT_FATAL(fx.memory != MAP_FAILED);
	for (unsigned k = 0; k < SOURCES_MAX; k++)
		mprotect(fx.memory + (k + 1) * fx.stretch - page, page, PROT_NONE);
	for (unsigned k = 0; k < NEXT; k++)
		fx.next[k] = k % 5 == 3 ? NULL : fx.memory + (k + 1) * fx.stretch - 4096 - 64 * k;
	fx.acc = aligned_alloc(64, (ELEMS_MAX + 16) * 4);
	fx.want = aligned_alloc(64, (ELEMS_MAX + 16) * 4);
	fx.got = aligned_alloc(64, (ELEMS_MAX + 16) * 4);
	for (unsigned k = 0; k < SOURCES_MAX; k++)
		fx.weight[k] = (float)(1 + pbox_random_below(&fx.r, 1000));
}

/* Source k of n elements so that its last byte is `gap` bytes before the forbidden page: gap = 0
 * catches reads beyond the end, any other gap gives another alignment. */
static void
place(unsigned k, enum pbox_format elem, size_t n, size_t gap, int nan_here)
{
	uint8_t *end = fx.memory + (k + 1) * fx.stretch - 4096 - gap,
		*p = end - n * pbox_format_size(elem);

	fill(p, elem, n, nan_here);
	fx.src[k] = p;
}

/* A header before the payload, and in it the CRC of both. */
static void
seal(const void *payload, size_t bytes)
{
	uint8_t *p = (uint8_t *)(uintptr_t)payload;
	uint32_t crc;

	for (unsigned i = 0; i < HEADER; i++)
		p[(int)i - HEADER] = (uint8_t)pbox_random_u64(&fx.r);
	crc = pbox_reduce_crc32c(pbox_reduce_crc32c(0, p, bytes), p - HEADER, HEADER - 4);
	memcpy(p - 4, &crc, 4);
}

/* R5.2 to the letter, one element. */
static float
one_element(const struct pbox_sources *s, size_t i)
{
	float sum = s->acc != NULL ? s->acc[i] : 0.0f;

	for (unsigned k = 0; k < s->n; k++) {
		const uint8_t *p = s->src[k];
		float x = 0.0f;

		if (p != NULL)
			pbox_reduce_scalar.unpack(
				&x, p + i * pbox_format_size(s->elem), s->elem, 1);
		if (p != NULL && s->weight != NULL)
			x = s->weight[k] * x;
		sum = k == 0 && s->acc == NULL ? x : sum + x;
	}
	return sum;
}

static int
same(float a, float b)
{
	return bits(a) == bits(b) || (fx.material == WILD && isnan(a) && isnan(b));
}

static void
compare(const char *name, const struct pbox_sources *s, size_t first, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (same(fx.want[i], fx.got[i]))
			continue;
		printf("\n  %s: n=%u format=%d weights=%d acc=%d first=%zu elems=%zu material=%d: element %zu is %08x, not %08x\n",
			name, s->n, s->elem, s->weight != NULL, s->acc != NULL, first, n,
			fx.material, i, bits(fx.got[i]), bits(fx.want[i]));
		CU_FAIL("an implementation differs from the reference");
		return;
	}
	for (size_t i = n; i < n + 16; i++)
		UNIT_EQ_U64(bits(fx.got[i]), MARK);
}

static void
mark(float *p, size_t n)
{
	uint32_t u = MARK;

	for (size_t i = 0; i < n + 16; i++)
		memcpy(&p[i], &u, 4);
}

/* The same sum, and the CRC of what was written. */
static void
check_crc(const struct pbox_reduce_ops *ops, const struct pbox_sources *s, size_t first, size_t n)
{
	uint32_t crc_dst = MARK;
	struct pbox_sources c = *s;

	c.crc_dst = &crc_dst;
	c.next = fx.next;
	c.n_next = s->n < NEXT ? s->n : NEXT;
	mark(fx.got, n);
	ops->sum(fx.got, &c, first, n);
	compare(ops->name, s, first, n);
	UNIT_EQ_U64(crc_dst, pbox_reduce_crc32c(0, fx.got, n * 4));
}

/* Any bit of any frame, header and checksum too, and of more than one. */
static void
check_damage(const struct pbox_reduce_ops *ops, const struct pbox_sources *s, size_t n)
{
	size_t bytes = n * pbox_format_size(s->elem) + HEADER;
	unsigned damaged = 0, times = 1 + (unsigned)pbox_random_below(&fx.r, 3);
	struct {
		uint8_t *p;
		uint8_t bit;
	} at[3];

	for (unsigned i = 0; i < times; i++) {
		unsigned k = (unsigned)pbox_random_below(&fx.r, s->n);

		if (s->src[k] == NULL)
			continue;
		at[damaged].p =
			(uint8_t *)(uintptr_t)s->src[k] - HEADER + pbox_random_below(&fx.r, bytes);
		at[damaged].bit = (uint8_t)(1 << pbox_random_below(&fx.r, 8));
		*at[damaged].p ^= at[damaged].bit;
		damaged++;
	}
	ops->sum(fx.got, s, 0, n);
	/* the same bit flipped twice is none */
	if (damaged == 2 && at[0].p == at[1].p && at[0].bit == at[1].bit)
		damaged = 0;
	CU_ASSERT_EQUAL(*s->intact, damaged == 0);
	for (unsigned i = 0; i < damaged; i++)
		*at[i].p ^= at[i].bit;
}

/* The same sum with frames that are verified by it. */
static void
check_intact(const struct pbox_reduce_ops *ops, const struct pbox_sources *s, size_t n)
{
	struct pbox_sources c = *s;
	uint32_t crc_dst = MARK;
	bool intact = false;

	for (unsigned k = 0; k < s->n; k++)
		if (s->src[k] != NULL)
			seal(s->src[k], n * pbox_format_size(s->elem));
	c.intact = &intact;
	c.header = HEADER;
	c.crc_dst = &crc_dst;
	c.next = fx.next;
	c.n_next = s->n < NEXT ? s->n : NEXT;
	mark(fx.got, n);
	ops->sum(fx.got, &c, 0, n);
	compare(ops->name, s, 0, n);
	CU_ASSERT_TRUE(intact);
	UNIT_EQ_U64(crc_dst, pbox_reduce_crc32c(0, fx.got, n * 4));
	if (s->n > 0)
		check_damage(ops, &c, n);
}

/* All implementations against the scalar one, with dst apart from acc and in its place. */
static void
check(const struct pbox_sources *s, size_t first, size_t n)
{
	mark(fx.want, n);
	pbox_reduce_scalar.sum(fx.want, s, first, n);
	for (unsigned j = 0; pbox_reduce_at(j) != NULL; j++) {
		const struct pbox_reduce_ops *ops = pbox_reduce_at(j);

		if (!ops->usable())
			continue;
		mark(fx.got, n);
		ops->sum(fx.got, s, first, n);
		compare(ops->name, s, first, n);
		check_crc(ops, s, first, n);
		if (first == 0)
			check_intact(ops, s, n);
		if (s->acc != NULL && first == 0) {
			struct pbox_sources in_place = *s;

			memcpy(fx.got, s->acc, n * 4);
			in_place.acc = fx.got;
			ops->sum(fx.got, &in_place, 0, n);
			compare(ops->name, s, first, n);
		}
	}
}

/* Sources of first + elems elements each; some NULL as the pattern says. */
static void
arrange(struct pbox_sources *s, size_t elems, unsigned nulls)
{
	unsigned with_nan = s->n ? (unsigned)pbox_random_below(&fx.r, s->n) : 0;

	for (unsigned k = 0; k < s->n; k++) {
		place(k, s->elem, elems, pbox_random_below(&fx.r, 2) * (k * 5 % 64),
			fx.material == ONE_NAN && k == with_nan);
		if (nulls == 2 || (nulls == 1 && pbox_random_below(&fx.r, 3) == 0))
			fx.src[k] = NULL;
	}
	s->src = fx.src;
	if (s->acc != NULL)
		fill((uint8_t *)fx.acc, PBOX_FMT_FP32, elems, 0);
}

static const unsigned counts[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 33, 64, 65, 130};
#define COUNTS (sizeof(counts) / sizeof(counts[0]))

/* Bit by bit, from the polynomial. */
static uint32_t
crc32c_by_definition(const uint8_t *p, size_t n)
{
	uint32_t crc = 0xFFFFFFFF;

	for (size_t i = 0; i < n; i++) {
		crc ^= p[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78 : 0);
	}
	return ~crc;
}

static void
test_the_crc_is_crc32c(void)
{
	uint8_t text[300] = "123456789";

	UNIT_EQ_U64(pbox_reduce_crc32c(0, text, 9), 0xE3069283);
	UNIT_EQ_U64(pbox_reduce_crc32c(0, text, 0), 0);
	set_up();
	for (size_t i = 0; i < sizeof(text); i++)
		text[i] = (uint8_t)pbox_random_u64(&fx.r);
	for (size_t n = 0; n <= sizeof(text); n++) {
		uint32_t whole = crc32c_by_definition(text, n);

		UNIT_EQ_U64(pbox_reduce_crc32c(0, text, n), whole);
		UNIT_EQ_U64(pbox_reduce_crc32c(
				    pbox_reduce_crc32c(0, text, n / 3), text + n / 3, n - n / 3),
			whole);
	}
}

static void
test_the_reference_is_the_rule(void)
{
	set_up();
	for (unsigned i = 0; i < 4000; i++) {
		struct pbox_sources s = {
			.n = counts[i % COUNTS],
			.elem = 1 + i % 3,
			.weight = i & 1 ? fx.weight : NULL,
			.acc = i & 2 ? fx.acc : NULL,
		};
		size_t n = pbox_random_below(&fx.r, 40), first = i % 5;
		unsigned wrong = 0;

		fx.material = i % MATERIALS;
		arrange(&s, first + n, i / 4 % 3);
		mark(fx.want, n);
		pbox_reduce_scalar.sum(fx.want, &s, first, n);
		for (size_t e = 0; e < n; e++)
			wrong += !same(fx.want[e], one_element(&s, first + e));
		UNIT_EQ_U64(wrong, 0);
		UNIT_EQ_U64(bits(fx.want[n]), MARK);
	}
}

static void
test_the_rule_about_zeros(void)
{
	static const float minus[] = {-0.0f, -0.0f};
	const void *both[] = {minus, minus}, *with_null[] = {minus, NULL}, *only[] = {minus};
	struct pbox_sources s = {.elem = PBOX_FMT_FP32};

	set_up();
	for (unsigned j = 0; pbox_reduce_at(j) != NULL; j++) {
		const struct pbox_reduce_ops *ops = pbox_reduce_at(j);

		if (!ops->usable())
			continue;
		s.acc = NULL;
		s.src = both, s.n = 2;
		ops->sum(fx.got, &s, 0, 2);
		UNIT_EQ_U64(bits(fx.got[1]), 0x80000000);
		s.src = only, s.n = 1;
		ops->sum(fx.got, &s, 0, 2);
		UNIT_EQ_U64(bits(fx.got[1]), 0x80000000);
		s.src = with_null, s.n = 2;
		ops->sum(fx.got, &s, 0, 2);
		UNIT_EQ_U64(bits(fx.got[1]), 0);
		s.acc = minus, s.n = 0;
		ops->sum(fx.got, &s, 0, 2);
		UNIT_EQ_U64(bits(fx.got[1]), 0x80000000);
		s.acc = NULL;
		ops->sum(fx.got, &s, 0, 2);
		UNIT_EQ_U64(bits(fx.got[1]), 0);
	}
}

/* The order matters: these would come out differently in any other. */
static void
test_worker_order(void)
{
	static const float a[] = {0x1p24f}, b[] = {1}, c[] = {-0x1p24f};
	const void *src[] = {a, b, c, b};
	struct pbox_sources s = {src, NULL, 4, PBOX_FMT_FP32, NULL};

	set_up();
	for (unsigned j = 0; pbox_reduce_at(j) != NULL; j++) {
		if (!pbox_reduce_at(j)->usable())
			continue;
		pbox_reduce_at(j)->sum(fx.got, &s, 0, 1);
		CU_ASSERT_EQUAL(fx.got[0], 1.0f);
	}
}

static void
test_every_length(void)
{
	unsigned turn = 0;

	set_up();
	for (size_t n = 0; n <= 257; n++)
		for (unsigned c = 0; c < COUNTS; c++)
			for (unsigned v = 0; v < 12; v++, turn++) {
				struct pbox_sources s = {
					.n = counts[c],
					.elem = 1 + v % 3,
					.weight = v / 3 & 1 ? fx.weight : NULL,
					.acc = v / 6 ? fx.acc : NULL,
				};

				fx.material = turn / 5 % MATERIALS;
				arrange(&s, n, turn % 7 < 4 ? 0 : turn % 7 < 6 ? 1 : 2);
				check(&s, 0, n);
			}
}

static void
test_every_alignment(void)
{
	set_up();
	fx.material = TAME;
	for (size_t align = 0; align < 64; align++)
		for (size_t n = 1; n <= 81; n += 8)
			for (enum pbox_format e = PBOX_FMT_FP32; e <= PBOX_FMT_FP16; e++) {
				struct pbox_sources s = {.src = fx.src, .n = 3, .elem = e};

				place(0, e, n + 9, align, 0);
				place(1, e, n + 9, align * 5 % 64, 0);
				place(2, e, n + 9, 0, 0);
				check(&s, 0, n + 9);
				check(&s, 9, n); /* and an offset of a block within a fragment */
			}
}

static void
test_fragments_of_a_jumbo_frame(void)
{
	static const size_t lengths[] = {352, 2047, 2048, 2049, 2240, 4095, 4096, 4200};

	set_up();
	for (unsigned i = 0; i < 8 * COUNTS; i++) {
		struct pbox_sources s = {
			.n = counts[i / 8],
			.elem = 1 + i % 3,
			.weight = i & 1 ? fx.weight : NULL,
			.acc = i & 2 ? fx.acc : NULL,
		};

		fx.material = i % MATERIALS;
		arrange(&s, lengths[i % 8], i % 2);
		check(&s, 0, lengths[i % 8]);
		check(&s, 100, lengths[i % 8] - 100);
	}
}

const struct unit_test unit_tests[] = {
	{"the checksum is CRC32C", test_the_crc_is_crc32c},
	{"the reference is rule R5.2 to the letter", test_the_reference_is_the_rule},
	{"the rule about zeros", test_the_rule_about_zeros},
	{"sums run in worker order", test_worker_order},
	{"all implementations alike: every length", test_every_length},
	{"all implementations alike: every alignment", test_every_alignment},
	{"all implementations alike: fragments of a jumbo frame", test_fragments_of_a_jumbo_frame},
	{NULL, NULL},
};
