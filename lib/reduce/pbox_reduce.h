/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_REDUCE_H
#define PBOX_REDUCE_H

/**
 * @file
 * Summation and conversion kernels: the interface, the scalar reference, and the run-time choice.
 *
 * Every implementation gives the same bits as the scalar reference for every length and alignment:
 * each product and each sum is rounded to fp32 once, sums are made along the tree over the slots
 * (doc/protocol.md R5.2a). One thing is left open: where two different NaNs meet, which
 * of the two the result is (IEEE 754 leaves it open, and so do compilers). Sources are packet payloads and may be unaligned;
 * destinations are 64-byte aligned at element 0.
 *
 * Kernels are pure: any thread, no allocation. pbox_reduce_register and pbox_reduce_select run
 * before data threads start.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <pbox_wire_enums.h>

/** The most nodes that some of 4096 slots, from the first on, consist of. */
#define PBOX_NODES_MAX 12u

/** In place of a payload: nobody contributes to this slot. It adds -0.0, which is nothing. */
extern const char pbox_reduce_absent[];

/** The contributions of one fragment: those of slots base, base + 1, ... */
struct pbox_sources {
	const void *const *src; /**< n pointers; NULL: +0.0 everywhere (flag ZERO) */
	/** n factors, or NULL: all contributions count once. 0: +0.0 everywhere, whatever is there: a mean of no samples may
	 * be NaN (doc/protocol.md R5.2) */
	const float *weight;
	unsigned n;            /**< base + n: 4096 at most */
	enum pbox_format elem; /**< also int8 and mxfp4, whose elements are decoded on the way */
	/** NULL, or, with such a format and without weights, by source: is its payload fp32 instead? Sums alone look at it. */
	const bool *wide;
	/** Sums that are there already (folded earlier): of the nodes that slots 0 to base - 1 consist of, as base in bits has
	 * them, the last n_acc, the lowest bit's last. */
	const float *const *acc;
	unsigned n_acc, base;

	/**
	 * The checked sum: NULL, or set to whether all of these contributions are what was sent. Each
	 * source is then the payload of a frame as doc/protocol.md R2.4 has it: its last 4 bytes
	 * before the payload are the CRC32C of the payload and of the header without them, in this
	 * order. (NULL and absent sources are not looked at.) first must be 0 and elems all of the payload.
	 *
	 * A contribution that is damaged is found with the certainty of its CRC32C, two or more at
	 * a time with that of 64 bits: the CRC32C of their sum and that of their sum with each
	 * shifted against the one before are compared, which costs little more than nothing.
	 * pbox_reduce_intact() says which ones are damaged.
	 */
	bool *intact;
	unsigned header; /**< with intact: bytes of the header before each payload, 4 to 64 */

	/**
	 * NULL, or set to false where the sum that is made has a NaN or an infinity, and left as it is where all of it is finite: so it may
	 * be of several calls. Of contributions and sums that are not finite none becomes finite by what is added.
	 */
	bool *finite;

	uint32_t *crc_dst; /**< NULL, or set to the CRC32C of the elems floats written to dst */

	/**
	 * NULL, or n_next payloads as long as these, which will be summed next: their beginnings
	 * (the CPU's own prefetchers go on from there) are fetched while this sum runs. A hint,
	 * nothing is read; entries may be NULL.
	 */
	const void *const *next;
	unsigned n_next;
};

/** Of source k of a sum. */
static inline enum pbox_format
pbox_reduce_format(const struct pbox_sources *s, unsigned k)
{
	return s->wide != NULL && s->wide[k] ? PBOX_FMT_FP32 : s->elem;
}

struct pbox_reduce_ops {
	const char *name;    /**< "scalar", "avx2", "avx512" */
	unsigned rank;       /**< the highest usable one is chosen */
	int (*usable)(void); /**< does this CPU have what it needs */

	/**
	 * dst[i] = the sum of all acc_j[first + i] and w_k*p_k[first + i] along the tree for i in
	 * [0, elems): @p first is an offset in elements into every source and acc, not into dst,
	 * so that a caller can go through a fragment with one small buffer; in a format of blocks
	 * it is a multiple of PBOX_UNIT. A NULL source is
	 * +0.0 whatever its weight: it is added (a sum of -0.0 and it is +0.0). dst may be equal
	 * to acc_0 + first. n may be 0; without acc too the result is then +0.0. With s->intact every byte is read from memory once for
	 * both purposes. The sum is made whether or not they are intact.
	 */
	void (*sum)(float *dst, const struct pbox_sources *s, size_t first, size_t elems);

	/**
	 * One after the other, as tables in clocks have it (doc/protocol.md R14.4): dst[i] = ((acc_0[i] + w_0*p_0[i])
	 * + w_1*p_1[i]) + ... for i in [0, elems); a NULL source is w_k*0.0. s->acc has one, which dst may be;
	 * s->weight is there, n is 1 or more, elems at most a fragment's, and base, n_acc and crc_dst are not looked at. No source
	 * is absent. With s->intact as in sum: so dst is not acc there, if what is damaged shall not change that.
	 */
	void (*add)(float *dst, const struct pbox_sources *s, size_t elems);

	/**
	 * dst[i] = clamp(dst[i] * factor, -clip, clip); clip = 0 switches the clamp off.
	 * NaN stays NaN.
	 */
	void (*scale)(float *dst, float factor, float clip, size_t elems);

	/**
	 * fp32 -> bf16 / fp16, round to nearest even; fp32 is copied. A NaN becomes what PyTorch's
	 * scalar conversions (c10::BFloat16, c10::Half) make of it: 0x7FC0 in bf16, the sign and
	 * 0x7E00 in fp16. dst may be unaligned.
	 */
	void (*pack)(void *dst, enum pbox_format elem, const float *src, size_t elems);
	/**
	 * bf16 / fp16 -> fp32 (exact; a signalling NaN in fp16 becomes quiet); fp32 is copied.
	 * src may be unaligned.
	 */
	void (*unpack)(float *dst, const void *src, enum pbox_format elem, size_t elems);

	/**
	 * fp32 -> int8 / mxfp4 (doc/protocol.md R13.3), all of a payload. residual: NULL, or what earlier payloads have
	 * not said: it is added to src first, and is then what this one does not say. That of a block that is not finite
	 * stays. dst may be unaligned.
	 */
	void (*encode)(
		void *dst, enum pbox_format elem, const float *src, float *residual, size_t elems);
	/** int8 / mxfp4 -> fp32, one rounding. src may be unaligned. */
	void (*decode)(float *dst, const void *src, enum pbox_format elem, size_t elems);

	/** pbox_reduce_crc32c(), or what does the same faster. */
	uint32_t (*crc32c)(uint32_t crc, const void *buf, size_t len);
};

extern const struct pbox_reduce_ops pbox_reduce_scalar;

/** CRC32C of a buffer that is in a cache already; @p crc: 0, or that of the bytes before. Any thread. */
uint32_t pbox_reduce_crc32c(uint32_t crc, const void *buf, size_t len);
/** Is the frame intact whose payload of @p bytes is after its header? As s->intact. Any thread. */
bool pbox_reduce_intact(const void *payload, size_t bytes, unsigned header);

/** Drivers call this from a constructor. */
void pbox_reduce_register(const struct pbox_reduce_ops *ops);
/** By name, or the best usable one for NULL. NULL if the name is unknown or not usable here. */
const struct pbox_reduce_ops *pbox_reduce_select(const char *name);
/** The i-th registered implementation (the scalar one first), NULL after the last. */
const struct pbox_reduce_ops *pbox_reduce_at(unsigned i);

#endif /* PBOX_REDUCE_H */
