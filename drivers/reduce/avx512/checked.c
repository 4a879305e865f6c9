/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * The checked sum. A CRC32C costs two carry-less multiplications for 64 bytes, as much time as 4 to 8
 * additions of floats; of n payloads it would take more time than their sum. But a CRC is linear:
 * what is multiplied here is, column by column of 64 bytes, not each payload but
 *
 *	plain:   the XOR of all n payloads D_k, and
 *	shifted: the XOR of D_k moved n-1-k columns towards the end.
 *
 * Their residues are the sums over k of r_k and of x^(512 k) r_k modulo P, where r_k is the
 * residue of payload k, and the same sums are made of the residues r'_k that the headers promise. If
 * only payload k is damaged, plain is right only if r_k = r'_k: the CRC32C's own judgement. If i
 * and j are, both are right only if their errors e_i and e_j have e_i = e_j and (1 + x^(512 (j-i)))
 * e_i = 0 modulo P = (x + 1) Q, that is if e_i and e_j are both multiples of Q (Q is irreducible of
 * degree 31 and the order of x is 2^31 - 1): two coincidences of one in 2^31, as if each had been looked
 * at alone. More at a time are two independent conditions of 32 bits.
 *
 * shifted is made in registers: late[k] is what payloads 0 to k have to say to the column in which
 * payload k is (late[k] = D_k ^ late[k-1] of the column before); late[n-1] is ready.
 *
 * The CRC of the sum itself, which answers carry, is made on the way while the sum is in registers.
 */

#include <string.h>

#include <pbox_crc_fold.h>

#include "kernels.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 8")

#define COLUMN    PBOX_CRC_COLUMN
#define AT_ONCE   2    /* columns; 4 need more registers than there are */
#define AHEAD     256  /* elements of dst that are fetched early: from the last-level cache 10 % */
#define SRC_AHEAD 1024 /* bytes of each source: from the last-level cache 12 %, in L2 -4 % */
#define CHAINS    PBOX_CRC_CHAINS /* of one source */

/* Constants of the field, computed at start. */
static struct {
	__m512i fold;           /* by one column, for both halves of each lane */
	__m512i far;            /* by CHAINS */
	__m512i last;           /* each lane to the end of its column */
	uint32_t bytes[COLUMN]; /* x^(8 i - 32): what times() takes to append i bytes of zeros */
	uint32_t back[COLUMN];  /* x^(-8 i - 32): to take i bytes of zeros away */
	uint32_t columns[GROUP_MAX];   /* x^(512 i - 32) */
	uint32_t plain[GROUP_MAX + 1]; /* what the preset of n CRCs is before the first column */
	uint32_t shifted[GROUP_MAX + 1];
} k;

static int clmul;

/* The preset, 32 bits of ones at the beginning of a column, n columns before it. */
static uint32_t
preset(int n)
{
	uint32_t r = 0;

	for (int bit = 0; bit < 32; bit++)
		r ^= pbox_crc_power(bit - n * 8 * COLUMN);
	return r;
}

__attribute__((constructor)) static void
make_constants(void)
{
	struct pbox_crc_by by;

	clmul = pbox_crc_folds();
	if (!clmul)
		return;
	pbox_crc_by_begin(&by);
	k.fold = _mm512_load_si512(by.fold);
	k.far = _mm512_load_si512(by.far);
	k.last = _mm512_load_si512(by.last);
	for (int i = 0; i < COLUMN; i++)
		k.bytes[i] = pbox_crc_power(8 * i - 32), k.back[i] = pbox_crc_power(-8 * i - 32);
	for (int i = 0; i < GROUP_MAX; i++) {
		k.columns[i] = pbox_crc_power(8 * COLUMN * i - 32);
		k.plain[i + 1] = k.plain[i] ^ preset(1);
		k.shifted[i + 1] = k.shifted[i] ^ preset(i + 1);
	}
}

INLINE __m512i
begin(uint32_t residue)
{
	return _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)residue));
}

static uint32_t
residue(__m512i a)
{
	return pbox_crc_residue(a, k.last);
}

INLINE __m128i
product(uint32_t a, uint32_t b)
{
	return _mm_clmulepi64_si128(_mm_cvtsi32_si128((int)a), _mm_cvtsi32_si128((int)b), 0);
}

INLINE uint32_t
reduced(__m128i p)
{
	return (uint32_t)_mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(p) << 1);
}

/* a * b * x^32 */
INLINE uint32_t
times(uint32_t a, uint32_t b)
{
	return reduced(product(a, b));
}

/* The CRC of the header behind a payload whose residue is 0, and what the frame says: what remains
 * is the residue of the payload, with `covered` bytes of zeros behind it. */
static uint32_t
promised(const uint8_t *payload, unsigned covered)
{
	const uint8_t *p = payload - covered - 4;
	uint64_t crc = 0, word;
	uint32_t sent;

	for (; covered >= 8; covered -= 8, p += 8) {
		memcpy(&word, p, 8);
		crc = _mm_crc32_u64(crc, word);
	}
	for (; covered > 0; covered--, p++)
		crc = _mm_crc32_u8((uint32_t)crc, *p);
	memcpy(&sent, payload - 4, 4);
	return ~sent ^ (uint32_t)crc;
}

struct promise {
	uint32_t plain, shifted;
};

INLINE struct promise
promises(const struct group *g, unsigned n, unsigned covered)
{
	__m128i sum = _mm_setzero_si128();
	struct promise p = {0, 0};

	for (unsigned j = 0; j < n; j++) {
		uint32_t r = promised(g->src[j], covered);

		p.plain ^= r;
		sum = _mm_xor_si128(sum, product(r, k.columns[j]));
	}
	p.shifted = reduced(sum);
	return p;
}

/* Everything that the loop needs, in registers: a store to dst could change what g points to. */
struct state {
	const uint8_t *src[GROUP_MAX];
	float weight[GROUP_MAX];
	const float *acc;
	__m512i plain, shifted, result, fold;
	__m512i late[GROUP_MAX];
	__m512 zero[AT_ONCE]; /* + 0 x all sums: it stays that while they are finite */
};

/* The 16 elements of a column that element i is the first of. */
INLINE __m512
elements(__m512i d, enum pbox_format elem, unsigned half)
{
	__m256i h = half ? _mm512_extracti64x4_epi64(d, 1) : _mm512_castsi512_si256(d);

	if (elem == PBOX_FMT_FP32)
		return _mm512_castsi512_ps(d);
	if (elem == PBOX_FMT_FP16)
		return _mm512_cvtph_ps(h);
	return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

/* Source j comes to the tree; node: those that wait, of 1, 2 and 4 sources, and of 8. */
INLINE void
join(__m512 *node, unsigned j, __m512 x)
{
	unsigned level = 0;

	for (; j >> level & 1; level++)
		x = _mm512_add_ps(node[level], x);
	node[level] = x;
}

/* The sum of n sources. */
INLINE __m512
root(const __m512 *node, unsigned n)
{
	unsigned level = (unsigned)__builtin_ctz(n);
	__m512 x = node[level];

	while (n >> ++level != 0)
		if (n >> level & 1)
			x = _mm512_add_ps(node[level], x);
	return x;
}

/* `count` columns from element i on, source by source; of the last one `bytes` are there. count,
 * with_crc (the CRC of the result is asked for) and chain (one source after the other is added to acc: there is no tree) are
 * constants. */
INLINE void
columns(float *dst, struct state *c, size_t i, unsigned count, size_t bytes, enum pbox_format elem,
	int weighted, int with_crc, int chain, unsigned n)
{
	unsigned size = elem == PBOX_FMT_FP32 ? 4 : 2, halves = 4 / size;
	__mmask64 there = bytes < COLUMN ? ((__mmask64)1 << bytes) - 1 : ~(__mmask64)0;
	size_t left = bytes / size;
	__mmask16 m[2] = {avx512_lanes(left), avx512_lanes(left > 16 ? left - 16 : 0)};
	__m512i all[AT_ONCE], late[AT_ONCE], before = _mm512_setzero_si512();
	__m512 node[AT_ONCE * 2][GROUP_BITS + 1];

	for (unsigned v = 0; v < count * halves; v++)
		__builtin_prefetch(dst + i + AHEAD + 16 * v, 1);
	for (unsigned v = 0; v < count; v++)
		all[v] = late[v] = _mm512_setzero_si512();
	for (unsigned v = 0; chain && v < count * halves; v++)
		node[v][0] = _mm512_maskz_loadu_ps(m[v % halves], c->acc + i + 16 * v);
	UNROLL for (unsigned j = 0; j < n; j++)
	{
		for (unsigned v = 0; v < count; v++) {
			__m512i d = _mm512_maskz_loadu_epi8(
					there, c->src[j] + i * size + v * COLUMN),
				moved = before;

			__builtin_prefetch(c->src[j] + i * size + v * COLUMN + SRC_AHEAD);
			__asm__("" : "+v"(d)); /* or it is loaded again for each of its uses */
			all[v] = _mm512_xor_si512(all[v], d);
			before = late[v];
			late[v] = _mm512_xor_si512(d, moved);
			for (unsigned h = 0; h < halves; h++) {
				__m512 x = elements(d, elem, h);

				if (weighted)
					x = _mm512_mul_ps(_mm512_set1_ps(c->weight[j]), x);
				if (chain)
					node[v * halves + h][0] =
						_mm512_add_ps(node[v * halves + h][0], x);
				else
					join(node[v * halves + h], j, x);
			}
		}
		before = c->late[j];
		c->late[j] = late[count - 1];
	}
	for (unsigned v = 0; v < count; v++) {
		c->plain = pbox_crc_fold(c->plain, all[v], c->fold);
		c->shifted = pbox_crc_fold(c->shifted, late[v], c->fold);
	}
	for (unsigned v = 0; v < count * halves; v++) {
		__mmask16 part = m[v % halves];
		__m512 x = chain ? node[v][0] : root(node[v], n);

		if (!chain && c->acc != NULL)
			x = _mm512_add_ps(_mm512_maskz_loadu_ps(part, c->acc + i + 16 * v), x);
		c->zero[v] = _mm512_fmadd_ps(x, c->zero[v], c->zero[v]);
		_mm512_mask_storeu_ps(dst + i + 16 * v, part, x);
		/* 2-byte elements may end in the first half */
		if (with_crc && (v % halves == 0 || part != 0))
			c->result = pbox_crc_fold(c->result,
				_mm512_castps_si512(_mm512_maskz_mov_ps(part, x)), c->fold);
	}
}

INLINE unsigned
found(bool intact, __m512 zero)
{
	return (intact ? GROUP_INTACT : 0u) |
	       (_mm512_cmp_ps_mask(zero, zero, _CMP_UNORD_Q) == 0 ? GROUP_FINITE : 0u);
}

/* elem, weighted, with_crc, chain and n are constants where this is inlined. */
INLINE unsigned
sum_checked(float *dst, const struct group *g, size_t elems, unsigned header, uint32_t *crc_dst,
	enum pbox_format elem, int weighted, int with_crc, int chain, unsigned n)
{
	unsigned size = elem == PBOX_FMT_FP32 ? 4 : 2, covered = header - 4;
	unsigned count = elem == PBOX_FMT_FP32 ? AT_ONCE : AT_ONCE / 2;
	size_t in_column = COLUMN / size, i = 0, rest = elems % in_column * size;
	struct promise p = promises(g, n, covered);
	struct state c = {
		.acc = g->acc,
		.fold = k.fold,
		.plain = begin(k.plain[n]),
		.shifted = begin(k.shifted[n]),
		.result = begin(k.plain[1]),
		.zero = {_mm512_setzero_ps(), _mm512_setzero_ps()},
	};
	uint32_t pad = rest > 0 ? COLUMN - (uint32_t)rest : 0;

	for (unsigned j = 0; j < n; j++) {
		c.src[j] = g->src[j];
		c.weight[j] = g->weight[j];
	}
	for (unsigned j = 0; j < n; j++)
		c.late[j] = _mm512_setzero_si512();
	for (; i + count * in_column <= elems; i += count * in_column)
		columns(dst, &c, i, count, COLUMN, elem, weighted, with_crc, chain, n);
	for (; i < elems; i += in_column) {
		size_t left = (elems - i) * size;

		columns(dst, &c, i, 1, left < COLUMN ? left : COLUMN, elem, weighted, with_crc,
			chain, n);
	}
	if (with_crc)
		*crc_dst = ~times(residue(c.result), k.back[(0 - elems * sizeof(*dst)) % COLUMN]);
	UNROLL for (unsigned j = 1; j < n; j++) c.shifted =
		pbox_crc_fold(c.shifted, c.late[n - 1 - j], c.fold);
	/* the promises have the header's place behind them, the residues zeros up to a column */
	return found(times(residue(c.plain), k.bytes[covered]) == times(p.plain, k.bytes[pad]) &&
			     times(residue(c.shifted), k.bytes[covered]) ==
				     times(p.shifted, k.bytes[pad]),
		_mm512_add_ps(c.zero[0], c.zero[1]));
}

/*
 * One source has no others that its CRC could share the time of: CHAINS columns are under way at a time, each folded onto
 * the one CHAINS later, as in lib/wire/crc_vector.c. Where the result is the payload as it is, so is its CRC.
 */
struct one {
	const uint8_t *src;
	const float *acc;
	__m512 weight;
	__m512i far, near;
	__m512i data[CHAINS], result[CHAINS];
	__m512 zero[CHAINS]; /* as in struct state */
};

/* The column that begins with element i, of which `bytes` are there: number v of CHAINS, or (chained 0) the next of chain
 * 0. v and what comes after i and bytes are constants. */
INLINE void
column_of_one(float *dst, struct one *c, unsigned v, size_t i, size_t bytes, int chained,
	enum pbox_format elem, int weighted, int with_crc, int adds)
{
	unsigned size = elem == PBOX_FMT_FP32 ? 4 : 2, halves = 4 / size;
	__mmask64 there = bytes < COLUMN ? ((__mmask64)1 << bytes) - 1 : ~(__mmask64)0;
	__m512i by = chained ? c->far : c->near;
	__m512i d = _mm512_maskz_loadu_epi8(there, c->src + i * size);

	__builtin_prefetch(c->src + i * size + SRC_AHEAD);
	__asm__("" : "+v"(d)); /* or it is loaded again for each of its uses */
	c->data[v] = pbox_crc_fold(c->data[v], d, by);
	UNROLL for (unsigned h = 0; h < halves; h++)
	{
		size_t left = bytes / size > 16 * h ? bytes / size - 16 * h : 0;
		__m512i *crc = &c->result[chained ? (v * halves + h) % CHAINS : 0];
		__mmask16 part = avx512_lanes(left);
		__m512 x = elements(d, elem, h);

		__builtin_prefetch(dst + i + 16 * h + AHEAD, 1);
		if (weighted)
			x = _mm512_mul_ps(c->weight, x);
		if (adds)
			x = _mm512_add_ps(_mm512_maskz_loadu_ps(part, c->acc + i + 16 * h), x);
		c->zero[v] = _mm512_fmadd_ps(x, c->zero[v], c->zero[v]);
		_mm512_mask_storeu_ps(dst + i + 16 * h, part, x);
		/* 2-byte elements may end in the first half */
		if (with_crc && (h == 0 || left > 0))
			*crc = pbox_crc_fold(
				*crc, _mm512_castps_si512(_mm512_maskz_mov_ps(part, x)), by);
	}
}

INLINE __m512i
chains_end(const __m512i *chain)
{
	__m512i a = chain[0];

	UNROLL for (unsigned v = 1; v < CHAINS; v++) a = pbox_crc_fold(a, chain[v], k.fold);
	return a;
}

/* As sum_checked() for one source; adds: to acc. */
INLINE unsigned
one_checked(float *dst, const struct group *g, size_t elems, unsigned header, uint32_t *crc_dst,
	enum pbox_format elem, int weighted, int with_crc, int adds)
{
	unsigned size = elem == PBOX_FMT_FP32 ? 4 : 2, covered = header - 4;
	int same = elem == PBOX_FMT_FP32 && !weighted && !adds, makes_crc = with_crc && !same;
	size_t in_column = COLUMN / size, i = 0, rest = elems % in_column * size;
	uint32_t promise = promised(g->src[0], covered),
		 pad = rest > 0 ? COLUMN - (uint32_t)rest : 0;
	struct one c = {
		.src = g->src[0],
		.acc = g->acc,
		.weight = _mm512_set1_ps(g->weight[0]),
		.far = k.far,
		.near = k.fold,
	};

	UNROLL for (unsigned v = 0; v < CHAINS; v++)
	{
		c.data[v] = c.result[v] = _mm512_setzero_si512();
		c.zero[v] = _mm512_setzero_ps();
	}
	/* one column before the first, which is number CHAINS - 1 */
	c.data[CHAINS - 1] = c.result[CHAINS - 1] = begin(k.plain[1]);
	for (; i + CHAINS * in_column <= elems; i += CHAINS * in_column)
		UNROLL for (unsigned v = 0; v < CHAINS; v++) column_of_one(
			dst, &c, v, i + v * in_column, COLUMN, 1, elem, weighted, makes_crc, adds);
	c.data[0] = chains_end(c.data);
	if (makes_crc)
		c.result[0] = chains_end(c.result);
	for (; i < elems; i += in_column) {
		size_t left = (elems - i) * size;

		column_of_one(dst, &c, 0, i, left < COLUMN ? left : COLUMN, 0, elem, weighted,
			makes_crc, adds);
	}
	if (with_crc)
		*crc_dst = ~times(residue(same ? c.data[0] : c.result[0]),
			k.back[(0 - elems * sizeof(*dst)) % COLUMN]);
	return found(times(residue(c.data[0]), k.bytes[covered]) == times(promise, k.bytes[pad]),
		_mm512_add_ps(
			_mm512_add_ps(c.zero[0], c.zero[1]), _mm512_add_ps(c.zero[2], c.zero[3])));
}

#define CASE(count)                 \
	case count:                 \
		return sum_checked( \
			dst, g, elems, header, crc_dst, elem, weighted, with_crc, add, count)

/* elem, weighted, with_crc and add are constants where this is inlined. */
INLINE unsigned
sum_checked_of(float *dst, const struct group *g, size_t elems, unsigned header, uint32_t *crc_dst,
	enum pbox_format elem, int weighted, int with_crc, int add)
{
	switch (g->n) {
	case 1:
		return one_checked(dst, g, elems, header, crc_dst, elem, weighted, with_crc, add);
		CASE(2);
		CASE(3);
		CASE(4);
		CASE(5);
		CASE(6);
		CASE(7);
	default:
		return sum_checked(
			dst, g, elems, header, crc_dst, elem, weighted, with_crc, add, 8);
	}
}

#define CHECKED(name, elem, weighted, with_crc)                                                \
	static unsigned name(float *dst, const struct group *g, size_t elems, unsigned header, \
		uint32_t *crc_dst)                                                             \
	{                                                                                      \
		return sum_checked_of(                                                         \
			dst, g, elems, header, crc_dst, elem, weighted, with_crc, 0);          \
	}

CHECKED(checked_fp32, PBOX_FMT_FP32, 0, 0)
CHECKED(checked_fp32_weighted, PBOX_FMT_FP32, 1, 0)
CHECKED(checked_fp32_crc, PBOX_FMT_FP32, 0, 1)
CHECKED(checked_bf16, PBOX_FMT_BF16, 0, 0)
CHECKED(checked_bf16_weighted, PBOX_FMT_BF16, 1, 0)
CHECKED(checked_bf16_crc, PBOX_FMT_BF16, 0, 1)
CHECKED(checked_fp16, PBOX_FMT_FP16, 0, 0)
CHECKED(checked_fp16_weighted, PBOX_FMT_FP16, 1, 0)
CHECKED(checked_fp16_crc, PBOX_FMT_FP16, 0, 1)

#define ADD_CHECKED(name, elem)                                                                \
	static unsigned name(float *dst, const struct group *g, size_t elems, unsigned header, \
		uint32_t *crc_dst)                                                             \
	{                                                                                      \
		(void)crc_dst;                                                                 \
		return sum_checked_of(dst, g, elems, header, NULL, elem, 1, 0, 1);             \
	}

ADD_CHECKED(add_fp32, PBOX_FMT_FP32)
ADD_CHECKED(add_bf16, PBOX_FMT_BF16)
ADD_CHECKED(add_fp16, PBOX_FMT_FP16)

group_sum_checked
avx512_add_checked(enum pbox_format elem)
{
	static const group_sum_checked passes[] = {
		[PBOX_FMT_FP32] = add_fp32,
		[PBOX_FMT_BF16] = add_bf16,
		[PBOX_FMT_FP16] = add_fp16,
	};

	if (elem >= PBOX_FMT_INT8) /* so short that folding gains little */
		return NULL;
	return clmul ? passes[elem] : NULL;
}

struct checked_passes
avx512_checked(const struct pbox_sources *s)
{
	static const struct checked_passes passes[][2] = {
		[PBOX_FMT_FP32] = {{checked_fp32, checked_fp32_crc}, {checked_fp32_weighted}},
		[PBOX_FMT_BF16] = {{checked_bf16, checked_bf16_crc}, {checked_bf16_weighted}},
		[PBOX_FMT_FP16] = {{checked_fp16, checked_fp16_crc}, {checked_fp16_weighted}},
	};

	if (s->elem >= PBOX_FMT_INT8) /* so short that folding gains little */
		return (struct checked_passes){NULL, NULL};
	return clmul ? passes[s->elem][s->weight != NULL] : (struct checked_passes){NULL, NULL};
}
