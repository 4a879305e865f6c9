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
#define ELEMS_MAX   9400
#define SLOTS_MAX   4096
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
	const float *acc[PBOX_NODES_MAX]; /* ELEMS_MAX + 16 each, as are these */
	float *want, *got;
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

/* Of a sum, and some more, in whole cache lines. */
#define ROW_BYTES ((ELEMS_MAX + 31) / 16 * 64)

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
	for (unsigned j = 0; j < PBOX_NODES_MAX; j++)
		fx.acc[j] = aligned_alloc(64, ROW_BYTES);
	fx.want = aligned_alloc(64, ROW_BYTES);
	fx.got = aligned_alloc(64, ROW_BYTES);
	for (unsigned k = 0; k < SOURCES_MAX; k++)
		fx.weight[k] = k % 7 == 3 ? 0 : (float)(1 + pbox_random_below(&fx.r, 1000));
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

/* Element i of source k, as it enters the sum. */
static float
one_source(const struct pbox_sources *s, unsigned k, size_t i)
{
	const uint8_t *p = s->src[k];
	float x = 0.0f;

	if (p == NULL || (s->weight != NULL && s->weight[k] == 0))
		return 0.0f;
	pbox_reduce_scalar.unpack(&x, p + i * pbox_format_size(s->elem), s->elem, 1);
	return s->weight != NULL ? s->weight[k] * x : x;
}

/* R5.2a to the letter, one element: the value of the node of `slots` slots from `from` on; false: nobody contributes. */
static bool
one_node(const struct pbox_sources *s, unsigned from, unsigned slots, size_t i, float *x)
{
	unsigned base = s->base;
	bool left, right;
	float y;

	if (from >= s->base + s->n)
		return false;
	/* a sum that is there already */
	for (unsigned j = s->n_acc; j > 0; j--, base &= base - 1)
		if ((base & (base - 1)) == from && (base & -base) == slots) {
			*x = s->acc[j - 1][i];
			return true;
		}
	if (slots == 1) {
		if (from < s->base || s->src[from - s->base] == pbox_reduce_absent)
			return false;
		*x = one_source(s, from - s->base, i);
		return true;
	}
	left = one_node(s, from, slots / 2, i, x);
	right = one_node(s, from + slots / 2, slots / 2, i, &y);
	if (right)
		*x = left ? *x + y : y;
	return left || right;
}

static float
one_element(const struct pbox_sources *s, size_t i)
{
	float x;

	return one_node(s, 0, SLOTS_MAX, i, &x) ? x : s->n > 0 ? -0.0f : 0.0f;
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
		printf("\n  %s: n=%u format=%d weights=%d base=%u first=%zu elems=%zu material=%d: element %zu is %08x, not %08x\n",
			name, s->n, s->elem, s->weight != NULL, s->base, first, n, fx.material, i,
			bits(fx.got[i]), bits(fx.want[i]));
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

		if (s->src[k] == NULL || s->src[k] == pbox_reduce_absent)
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
		if (s->src[k] != NULL && s->src[k] != pbox_reduce_absent)
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
		if (s->n_acc > 0 && first == 0) {
			struct pbox_sources in_place = *s;
			const float *acc[PBOX_NODES_MAX];

			memcpy(acc, s->acc, s->n_acc * sizeof(*acc));
			memcpy(fx.got, acc[0], n * 4);
			acc[0] = fx.got;
			in_place.acc = acc;
			ops->sum(fx.got, &in_place, 0, n);
			compare(ops->name, s, first, n);
		}
	}
}

/* The sums of all slots before s->base. */
static void
add_folded(struct pbox_sources *s, size_t elems)
{
	s->acc = fx.acc;
	s->n_acc = (unsigned)__builtin_popcount(s->base);
	for (unsigned j = 0; j < s->n_acc; j++)
		fill((uint8_t *)(uintptr_t)fx.acc[j], PBOX_FMT_FP32, elems, 0);
}

/* Sources of first + elems elements each; some NULL or absent as the pattern says. acc: of the first slots there is a sum. */
static void
arrange(struct pbox_sources *s, size_t elems, unsigned nulls, bool acc)
{
	unsigned with_nan = s->n ? (unsigned)pbox_random_below(&fx.r, s->n) : 0;

	for (unsigned k = 0; k < s->n; k++) {
		place(k, s->elem, elems, pbox_random_below(&fx.r, 2) * (k * 5 % 64),
			fx.material == ONE_NAN && k == with_nan);
		if (nulls == 2 || (nulls == 1 && pbox_random_below(&fx.r, 3) == 0))
			fx.src[k] = pbox_random_below(&fx.r, 2) ? NULL : pbox_reduce_absent;
	}
	s->src = fx.src;
	if (acc)
		s->base = 1 + (unsigned)pbox_random_below(
				      &fx.r, pbox_random_below(&fx.r, 2) ? 16 : 3000);
	add_folded(s, elems);
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
		};
		size_t n = pbox_random_below(&fx.r, 40), first = i % 5;
		unsigned wrong = 0;

		fx.material = i % MATERIALS;
		arrange(&s, first + n, i / 4 % 3, i & 2);
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
	static const float *const folded[] = {minus, minus};
	static const struct {
		const void *src[2];
		unsigned n, base;
		uint32_t sum;
	} of[] = {
		{{minus, minus}, 2, 0, 0x80000000},
		{{minus}, 1, 0, 0x80000000},
		{{minus, NULL}, 2, 0, 0},
		/* absent slots add nothing */
		{{minus, pbox_reduce_absent}, 2, 0, 0x80000000},
		{{pbox_reduce_absent, minus}, 2, 2, 0x80000000},
		{{NULL}, 0, 3, 0x80000000},
		{{NULL}, 0, 0, 0},
	};

	set_up();
	for (unsigned i = 0; i < sizeof(of) / sizeof(of[0]); i++)
		for (unsigned j = 0; pbox_reduce_at(j) != NULL; j++) {
			struct pbox_sources s = {of[i].src, NULL, of[i].n, PBOX_FMT_FP32, NULL,
				folded, (unsigned)__builtin_popcount(of[i].base), of[i].base};

			if (!pbox_reduce_at(j)->usable())
				continue;
			pbox_reduce_at(j)->sum(fx.got, &s, 0, 2);
			UNIT_EQ_U64(bits(fx.got[1]), of[i].sum);
		}
}

/* What has no samples adds +0.0, also if it is the mean of none (NaN); whether it came damaged is seen (R2.5). */
static void
test_the_rule_about_weights(void)
{
	static const float weight[9] = {0, 3, 0, 0, 0, 0, 0, 0, 2};

	set_up();
	for (unsigned i = 0; i < 6; i++) {
		unsigned n = i % 2 == 0 ? 2 : 9;
		struct pbox_sources s = {
			.src = fx.src, .n = n, .elem = 1 + i / 2 % 3, .weight = weight};
		size_t size = pbox_format_size(s.elem), elems = 100;
		uint8_t one[4] = {0};
		float two = 2;

		pbox_reduce_scalar.pack(one, s.elem, &two, 1);
		for (unsigned k = 0; k < n; k++) {
			place(k, s.elem, elems, 64, 0);
			for (size_t e = 0; e < elems; e++) {
				uint8_t *p = (uint8_t *)(uintptr_t)fx.src[k] + e * size;

				if (weight[k] != 0)
					memcpy(p, one, size);
				else if (e % 3 != 0)
					memset(p, e % 3 == 1 ? 0xFF : 0x7F, size);
			}
		}
		check(&s, 0, elems);
		for (size_t e = 0; e < elems; e++)
			CU_ASSERT_EQUAL(fx.want[e], n == 2 ? 6.0f : 10.0f);
	}
}

/* The order matters: these would come out differently in any other. */
static void
test_the_tree(void)
{
	static const float big[] = {0x1p24f}, one[] = {1}, minus[] = {-0x1p24f};
	static const struct {
		const void *src[5];
		unsigned n;
		float sum;
	} of[] = {
		/* (2^24 + 1) + (1 - 2^24); from the left: 0 */
		{{big, one, one, minus}, 4, 1},
		/* (2^24 + (1 + 1)) - 2^24; without the place of slot 1: 1 */
		{{big, pbox_reduce_absent, one, one, minus}, 5, 2},
	};

	set_up();
	for (unsigned i = 0; i < sizeof(of) / sizeof(of[0]); i++)
		for (unsigned j = 0; pbox_reduce_at(j) != NULL; j++) {
			struct pbox_sources s = {of[i].src, NULL, of[i].n, PBOX_FMT_FP32, NULL};

			if (!pbox_reduce_at(j)->usable())
				continue;
			pbox_reduce_at(j)->sum(fx.got, &s, 0, 1);
			CU_ASSERT_EQUAL(fx.got[0], of[i].sum);
		}
}

/* Sums that wait on all levels, and at most as many. */
static void
test_all_slots(void)
{
	static const void *src[SLOTS_MAX];

	set_up();
	fx.material = TAME;
	for (unsigned base = 0; base < SLOTS_MAX; base = 2 * base + 1)
		for (unsigned less = 0; less < 3; less++) {
			struct pbox_sources s = {.n = SOURCES_MAX, .elem = PBOX_FMT_FP32};

			arrange(&s, 5, 0, false);
			for (unsigned k = 0; k < SLOTS_MAX; k++)
				src[k] = fx.src[pbox_random_below(&fx.r, SOURCES_MAX)];
			s.src = src;
			s.base = base;
			s.n = SLOTS_MAX - base < less ? 0 : SLOTS_MAX - base - less;
			add_folded(&s, 5);
			check(&s, 0, 5);
			for (unsigned i = 0; i < 5; i++)
				CU_ASSERT(same(fx.want[i], one_element(&s, i)));
		}
}

/* Slots that are absent one by one, in stretches, or nearly all, and now and then +0.0 (flag ZERO). */
static void
leave_out(const void **src, unsigned n)
{
	unsigned often = (unsigned)pbox_random_below(&fx.r, 4);

	for (unsigned k = 0; k < n; k++) {
		if (often == 0 && pbox_random_below(&fx.r, 2) == 0)
			src[k] = pbox_reduce_absent;
		if (often == 1 && pbox_random_below(&fx.r, 30) != 0)
			src[k] = pbox_reduce_absent;
		if (often == 3 && pbox_random_below(&fx.r, 15) == 0)
			src[k] = NULL;
	}
	for (unsigned stretch = 0; often >= 2 && stretch < 4 && n > 0; stretch++) {
		unsigned k = (unsigned)pbox_random_below(&fx.r, n);
		unsigned end = k + (unsigned)pbox_random_below(&fx.r, stretch == 0 ? n : 40);

		for (; k < end && k < n; k++)
			src[k] = pbox_reduce_absent;
	}
}

static void
test_absent_slots(void)
{
	static const size_t lengths[] = {1, 16, 37, 64, 100};

	set_up();
	for (unsigned i = 0; i < 3000; i++) {
		size_t elems = lengths[i % 5];
		unsigned wrong = 0;
		struct pbox_sources s = {
			.n = (unsigned)pbox_random_below(&fx.r, i % 3 == 0 ? 20 : SOURCES_MAX),
			.elem = 1 + i % 3,
			.weight = i % 7 == 0 ? fx.weight : NULL,
		};

		fx.material = i % MATERIALS;
		arrange(&s, elems, 0, i & 1);
		leave_out(fx.src, s.n);
		check(&s, 0, elems);
		for (size_t e = 0; e < elems; e++)
			wrong += !same(fx.want[e], one_element(&s, e));
		UNIT_EQ_U64(wrong, 0);
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
				};

				fx.material = turn / 5 % MATERIALS;
				arrange(&s, n, turn % 7 < 4 ? 0 : turn % 7 < 6 ? 1 : 2, v / 6);
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
	static const size_t lengths[] = {352, 2047, 2048, 2049, 2240, 4095, 4200, 4608, 4609, 9300};

	set_up();
	for (unsigned i = 0; i < 10 * COUNTS; i++) {
		struct pbox_sources s = {
			.n = counts[i / 10],
			.elem = 1 + i % 3,
			.weight = i & 1 ? fx.weight : NULL,
		};

		fx.material = i % MATERIALS;
		arrange(&s, lengths[i % 10], i % 2, i & 2);
		check(&s, 0, lengths[i % 10]);
		check(&s, 100, lengths[i % 10] - 100);
	}
}

const struct unit_test unit_tests[] = {
	{"the checksum is CRC32C", test_the_crc_is_crc32c},
	{"the reference is rule R5.2a to the letter", test_the_reference_is_the_rule},
	{"the rule about zeros", test_the_rule_about_zeros},
	{"the rule about weights of 0", test_the_rule_about_weights},
	{"sums are made along the tree over the slots", test_the_tree},
	{"as many slots as there may be", test_all_slots},
	{"absent slots", test_absent_slots},
	{"all implementations alike: every length", test_every_length},
	{"all implementations alike: every alignment", test_every_alignment},
	{"all implementations alike: fragments of a jumbo frame", test_fragments_of_a_jumbo_frame},
	{NULL, NULL},
};
