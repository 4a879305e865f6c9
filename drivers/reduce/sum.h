/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/**
 * @file
 * The pass over a group, written once: to be included by a file that has defined INLINE, a vector `vec` of LANES floats,
 * `lanes` (which of them are there), ALL of these, and
 *
 *	vec vec_add(vec, vec), vec_load(const float *, lanes); void vec_store(float *, lanes, vec);
 *	vec vec_look(vec z, vec x, lanes): z + 0 x: a zero for as long as all x are finite; bool vec_finite(vec): are all of it zeros?
 *	vec term(const struct group *, unsigned k, enum pbox_format, int weighted, size_t i, lanes);
 *	SUM_REST(dst, g, done, elems, elem, weighted): the elements from number `done` on, fewer than LANES; true: their sums are finite
 *
 * n, elem and weighted are constants where functions are inlined. The tree is gone through depth first, a vector at
 * a time: then 4 registers hold all sums of 8 sources, and the others the pointers to these.
 */

#define VECTORS 4

/* The node of sources k to k + n - 1; n: 1 or 2. */
INLINE vec
sum_pair(const struct group *g, unsigned k, unsigned n, enum pbox_format elem, int weighted,
	size_t i, lanes m)
{
	vec x = term(g, k, elem, weighted, i, m);

	return n == 1 ? x : vec_add(x, term(g, k + 1, elem, weighted, i, m));
}

/* n: 1 to 4 */
INLINE vec
sum_quad(const struct group *g, unsigned k, unsigned n, enum pbox_format elem, int weighted,
	size_t i, lanes m)
{
	vec x = sum_pair(g, k, n < 2 ? n : 2, elem, weighted, i, m);

	return n <= 2 ? x : vec_add(x, sum_pair(g, k + 2, n - 2, elem, weighted, i, m));
}

INLINE void
sum_vector(float *dst, const struct group *g, unsigned n, const float *acc, enum pbox_format elem,
	int weighted, size_t i, lanes m, vec *z)
{
	vec x = sum_quad(g, 0, n < 4 ? n : 4, elem, weighted, i, m);

	if (n > 4)
		x = vec_add(x, sum_quad(g, 4, n - 4, elem, weighted, i, m));
	if (acc != NULL)
		x = vec_add(vec_load(acc + i, m), x);
	*z = vec_look(*z, x, m);
	vec_store(dst + i, m, x);
}

/* Of fewer elements than a vector has; true: the sums are finite. */
INLINE bool
sum_part(float *dst, const struct group *g, unsigned n, const float *acc, enum pbox_format elem,
	int weighted, size_t i, lanes m)
{
	vec z = vec_zero();

	sum_vector(dst, g, n, acc, elem, weighted, i, m, &z);
	return vec_finite(z);
}

/* What is left are fewer elements than a vector has. */
INLINE size_t
sum_whole(float *dst, const struct group *group, unsigned n, const float *acc, size_t elems,
	enum pbox_format elem, int weighted, bool *finite)
{
	struct group g = *group; /* in registers: a store to dst could change it */
	vec z[VECTORS];          /* one would make each vector wait for the one before */
	size_t i = 0;

	for (unsigned v = 0; v < VECTORS; v++)
		z[v] = vec_zero();

	for (; i + VECTORS * LANES <= elems; i += VECTORS * LANES)
		for (unsigned v = 0; v < VECTORS; v++)
			sum_vector(dst, &g, n, acc, elem, weighted, i + v * LANES, ALL, &z[v]);
	for (; i + LANES <= elems; i += LANES)
		sum_vector(dst, &g, n, acc, elem, weighted, i, ALL, &z[0]);
	*finite = vec_finite(vec_add(vec_add(z[0], z[1]), vec_add(z[2], z[3])));
	return i;
}

#define CASE(count) \
	case count: \
		return sum_whole(dst, g, count, NULL, elems, elem, weighted, finite)

INLINE size_t
sum_group(float *dst, const struct group *g, size_t elems, enum pbox_format elem, int weighted,
	bool *finite)
{
	if (g->acc != NULL)
		return sum_whole(dst, g, GROUP_MAX, g->acc, elems, elem, weighted, finite);
	switch (g->n) {
		CASE(1);
		CASE(2);
		CASE(3);
		CASE(4);
		CASE(5);
		CASE(6);
		CASE(7);
	default:
		return sum_whole(dst, g, GROUP_MAX, NULL, elems, elem, weighted, finite);
	}
}

/* One function a format, with and without weights. */
#define PASS(name, elem, weighted)                                               \
	static bool name(float *dst, const struct group *g, size_t elems)        \
	{                                                                        \
		bool finite;                                                     \
		size_t done = sum_group(dst, g, elems, elem, weighted, &finite); \
                                                                                 \
		if (done < elems)                                                \
			finite &= SUM_REST(dst, g, done, elems, elem, weighted); \
		return finite;                                                   \
	}

PASS(sum_fp32, PBOX_FMT_FP32, 0)
PASS(sum_fp32_weighted, PBOX_FMT_FP32, 1)
PASS(sum_bf16, PBOX_FMT_BF16, 0)
PASS(sum_bf16_weighted, PBOX_FMT_BF16, 1)
PASS(sum_fp16, PBOX_FMT_FP16, 0)
PASS(sum_fp16_weighted, PBOX_FMT_FP16, 1)
PASS(sum_int8, PBOX_FMT_INT8, 0)
PASS(sum_int8_weighted, PBOX_FMT_INT8, 1)
PASS(sum_mxfp4, PBOX_FMT_MXFP4, 0)
PASS(sum_mxfp4_weighted, PBOX_FMT_MXFP4, 1)

/* dst = acc + weight x the one source: one after the other instead of the tree. */
#define ADD_PASS(name, elem)                                                         \
	static bool name(float *dst, const struct group *g, size_t elems)            \
	{                                                                            \
		bool finite;                                                         \
		size_t done = sum_whole(dst, g, 1, g->acc, elems, elem, 1, &finite); \
                                                                                     \
		if (done < elems)                                                    \
			finite &= SUM_REST(dst, g, done, elems, elem, 1);            \
		return finite;                                                       \
	}

ADD_PASS(add_pass_fp32, PBOX_FMT_FP32)
ADD_PASS(add_pass_bf16, PBOX_FMT_BF16)
ADD_PASS(add_pass_fp16, PBOX_FMT_FP16)
ADD_PASS(add_pass_int8, PBOX_FMT_INT8)
ADD_PASS(add_pass_mxfp4, PBOX_FMT_MXFP4)

static inline group_sum
add_pass_of(const struct pbox_sources *s)
{
	static const group_sum passes[] = {
		[PBOX_FMT_FP32] = add_pass_fp32,
		[PBOX_FMT_BF16] = add_pass_bf16,
		[PBOX_FMT_FP16] = add_pass_fp16,
		[PBOX_FMT_INT8] = add_pass_int8,
		[PBOX_FMT_MXFP4] = add_pass_mxfp4,
	};

	return passes[s->elem];
}

static inline group_sum
pass_of(const struct pbox_sources *s)
{
	static const group_sum passes[][2] = {
		[PBOX_FMT_FP32] = {sum_fp32, sum_fp32_weighted},
		[PBOX_FMT_BF16] = {sum_bf16, sum_bf16_weighted},
		[PBOX_FMT_FP16] = {sum_fp16, sum_fp16_weighted},
		[PBOX_FMT_INT8] = {sum_int8, sum_int8_weighted},
		[PBOX_FMT_MXFP4] = {sum_mxfp4, sum_mxfp4_weighted},
	};

	return passes[s->elem][s->weight != NULL];
}
