/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/**
 * @file
 * Encoding in blocks unit by unit, written once: to be included by a file that has defined INLINE and
 *
 *	void encode_int8(uint8_t *unit, const float *src, float *residual);
 *	void encode_mx(uint8_t *scale, uint8_t *codes, const float *src, float *residual);
 *
 * of a whole unit, and of a block of PBOX_MX_BLOCK elements; residual NULL: there is none. elem, and whether there is a residual, are
 * constants where functions are inlined.
 */

INLINE size_t
encode_units(uint8_t *dst, enum pbox_format elem, const float *src, float *residual, size_t elems)
{
	size_t i = 0;

	for (; i + PBOX_UNIT <= elems; i += PBOX_UNIT) {
		if (elem == PBOX_FMT_INT8)
			encode_int8(dst, src + i, residual == NULL ? NULL : residual + i);
		for (unsigned b = 0; elem != PBOX_FMT_INT8 && b < PBOX_UNIT / PBOX_MX_BLOCK; b++)
			encode_mx(dst + b, dst + PBOX_UNIT_SCALES + b * PBOX_MX_BLOCK / 2,
				src + i + b * PBOX_MX_BLOCK,
				residual == NULL ? NULL : residual + i + b * PBOX_MX_BLOCK);
		dst += pbox_payload_bytes(elem, PBOX_UNIT);
	}
	return i;
}

INLINE void
encode_all(void *dst, enum pbox_format elem, const float *src, float *residual, size_t elems)
{
	size_t done;

	if (elem == PBOX_FMT_INT8)
		done = residual == NULL ? encode_units(dst, PBOX_FMT_INT8, src, NULL, elems)
					: encode_units(dst, PBOX_FMT_INT8, src, residual, elems);
	else
		done = residual == NULL ? encode_units(dst, PBOX_FMT_MXFP4, src, NULL, elems)
					: encode_units(dst, PBOX_FMT_MXFP4, src, residual, elems);
	pbox_block_encode((uint8_t *)dst + pbox_payload_bytes(elem, done), elem, src + done,
		residual == NULL ? NULL : residual + done, elems - done);
}
