/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <assert.h>

#ifdef __SSE4_2__
#include <nmmintrin.h>
#endif

#include "codec.h"
#include "pbox_wire.h"

static_assert(PBOX_AT_CRC + 4 == PBOX_HDR_LEN, "the CRC ends the header");
static_assert((14 + 20 + 8 + PBOX_HDR_LEN) % 8 == 0, "R1.4");
static_assert(20 + 8 + PBOX_HDR_LEN == PBOX_MTU_OVERHEAD, "R5.8");
static_assert(PBOX_F_AUTH == PBOX_TAG_LEN, "pbox_tag_len()");
static_assert(sizeof(struct pbox_hdr) == 56, "a host header has no holes");

/* Bit t is set when version 1 has type t. */
#define BIT(symbol, number, ...) UINT64_C(1) << (number) |
#define KNOWN_TYPES              (PBOX_TYPES(BIT) 0)

static inline bool
type_known(unsigned type)
{
	return type < 64 && (KNOWN_TYPES >> type & 1);
}

/* Nobody has keys then (R11.1). */
static inline bool
before_session(unsigned type)
{
	return type == PBOX_HELLO || type == PBOX_RETRY || type == PBOX_JOIN;
}

static inline void
frame_load(struct pbox_hdr *h, const uint8_t *p)
{
	h->token = pbox_ld64(p + PBOX_AT_TOKEN);
	h->incarnation = pbox_ld32(p + PBOX_AT_INCARNATION);
	h->chunk = pbox_ld32(p + PBOX_AT_CHUNK);
	h->round = pbox_ld32(p + PBOX_AT_ROUND);
	h->base = pbox_ld32(p + PBOX_AT_BASE);
	h->weight = pbox_ld32(p + PBOX_AT_WEIGHT);
	h->ts = pbox_ld32(p + PBOX_AT_TS);
	h->held = pbox_ld32(p + PBOX_AT_HELD);
	h->flags = pbox_ld16(p + PBOX_AT_FLAGS);
	h->job = pbox_ld16(p + PBOX_AT_JOB);
	h->worker = pbox_ld16(p + PBOX_AT_WORKER);
	h->frag = pbox_ld16(p + PBOX_AT_FRAG);
	h->length = pbox_ld16(p + PBOX_AT_LENGTH);
	h->map_epoch = pbox_ld16(p + PBOX_AT_MAP_EPOCH);
	h->served = pbox_ld16(p + PBOX_AT_SERVED);
	h->aux = pbox_ld16(p + PBOX_AT_AUX);
	h->type = p[PBOX_AT_TYPE];
	h->prio = p[PBOX_AT_PRIO];
	h->format = p[PBOX_AT_FORMAT];
	h->fmt_arg = p[PBOX_AT_FMT_ARG];
}

/* Everything of R2.1 but the CRC, in two halves: what is before it, and what is after it. */
static inline enum pbox_wire_drop
check_shape(const uint8_t *p, size_t len, bool first, struct pbox_hdr *hdr, size_t *size)
{
	size_t need;

	if (__builtin_expect(len < PBOX_HDR_LEN, 0))
		return first ? PBOX_WIRE_TRUNCATED : PBOX_WIRE_TRAILING;
	if (__builtin_expect(p[PBOX_AT_MAGIC] != PBOX_MAGIC, 0))
		return PBOX_WIRE_MAGIC;
	if (__builtin_expect(p[PBOX_AT_VERSION] != PBOX_VERSION_WIRE, 0)) {
		frame_load(hdr, p); /* an answer by R2.2 says what it was */
		return PBOX_WIRE_VERSION;
	}
	need = PBOX_HDR_LEN + (size_t)pbox_ld16(p + PBOX_AT_LENGTH) +
	       pbox_tag_len(pbox_ld16(p + PBOX_AT_FLAGS));
	if (__builtin_expect(need > len, 0))
		return PBOX_WIRE_TRUNCATED;
	*size = need;
	return PBOX_WIRE_OK;
}

static inline enum pbox_wire_drop
check_meaning(const uint8_t *p, struct pbox_hdr *hdr)
{
	unsigned flags = pbox_ld16(p + PBOX_AT_FLAGS);

	if (__builtin_expect((flags & ~PBOX_F_KNOWN) != 0, 0))
		return PBOX_WIRE_FLAGS;
	if (__builtin_expect(!type_known(p[PBOX_AT_TYPE]), 0))
		return PBOX_WIRE_TYPE;
	if (__builtin_expect((flags & PBOX_F_AUTH) != 0, 0) && before_session(p[PBOX_AT_TYPE]))
		return PBOX_WIRE_AUTH;
	frame_load(hdr, p);
	return PBOX_WIRE_OK;
}

/*
 * The CRC of a header, 58 bytes: 7 words and a half. A call of ISA-L for so few bytes costs twice as
 * much as the instructions themselves. The words are values and no array: an array that is copied to a
 * frame lies in memory, and its copy in wider pieces waits for the stores of its words.
 */
struct words {
	uint64_t w0, w1, w2, w3, w4, w5, w6;
	uint16_t last;
};

static inline void
words_put(uint8_t *p, const struct words *x)
{
	pbox_st64(p, x->w0);
	pbox_st64(p + 8, x->w1);
	pbox_st64(p + 16, x->w2);
	pbox_st64(p + 24, x->w3);
	pbox_st64(p + 32, x->w4);
	pbox_st64(p + 40, x->w5);
	pbox_st64(p + 48, x->w6);
	pbox_st16(p + 56, x->last);
}

static inline uint32_t
header_crc(uint32_t crc, const struct words *x)
{
#ifdef __SSE4_2__
	uint64_t c = ~crc;

	c = _mm_crc32_u64(c, x->w0);
	c = _mm_crc32_u64(c, x->w1);
	c = _mm_crc32_u64(c, x->w2);
	c = _mm_crc32_u64(c, x->w3);
	c = _mm_crc32_u64(c, x->w4);
	c = _mm_crc32_u64(c, x->w5);
	c = _mm_crc32_u64(c, x->w6);
	return ~_mm_crc32_u16((uint32_t)c, x->last);
#else
	uint8_t bytes[PBOX_AT_CRC];

	words_put(bytes, x);
	return pbox_crc32c(crc, bytes, sizeof(bytes));
#endif
}

bool
pbox_frame_verify(const void *payload, uint32_t payload_crc)
{
	const uint8_t *p = (const uint8_t *)payload - PBOX_HDR_LEN;
	const struct words x = {pbox_ld64(p), pbox_ld64(p + 8), pbox_ld64(p + 16),
		pbox_ld64(p + 24), pbox_ld64(p + 32), pbox_ld64(p + 40), pbox_ld64(p + 48),
		pbox_ld16(p + 56)};

	return header_crc(payload_crc, &x) == pbox_ld32(p + PBOX_AT_CRC);
}

enum pbox_wire_drop
pbox_frame_decode(const void *buf, size_t len, bool first, struct pbox_hdr *hdr, size_t *size)
{
	const uint8_t *p = buf, *payload = p + PBOX_HDR_LEN;
	enum pbox_wire_drop why = check_shape(p, len, first, hdr, size);

	if (__builtin_expect(why != PBOX_WIRE_OK, 0))
		return why;
	if (__builtin_expect(!pbox_frame_verify(payload,
				     pbox_crc32c(0, payload, pbox_ld16(p + PBOX_AT_LENGTH))),
		    0))
		return PBOX_WIRE_CRC;
	return check_meaning(p, hdr);
}

enum pbox_wire_drop
pbox_frame_open(const void *buf, size_t len, struct pbox_hdr *hdr, size_t *size, bool *unverified)
{
	const uint8_t *p = buf;

	*unverified = false;
	/* a lone contribution that fills its datagram; all else is short or rare */
	if (__builtin_expect(len < PBOX_HDR_LEN + PBOX_DEFER_MIN ||
				     p[PBOX_AT_TYPE] != PBOX_PUSHPULL ||
				     pbox_ld16(p + PBOX_AT_FLAGS) & ~PBOX_F_KNOWN ||
				     len != PBOX_HDR_LEN + (size_t)pbox_ld16(p + PBOX_AT_LENGTH) +
						     pbox_tag_len(pbox_ld16(p + PBOX_AT_FLAGS)) ||
				     p[PBOX_AT_MAGIC] != PBOX_MAGIC ||
				     p[PBOX_AT_VERSION] != PBOX_VERSION_WIRE,
		    0))
		return pbox_frame_decode(buf, len, true, hdr, size);
	*unverified = true;
	*size = len;
	frame_load(hdr, p);
	return PBOX_WIRE_OK;
}

static_assert(PBOX_AT_TOKEN == 6 && PBOX_AT_WORKER == 16 && PBOX_AT_FRAG == 26 &&
		      PBOX_AT_BASE == 34 && PBOX_AT_SERVED == 40 && PBOX_AT_WEIGHT == 46 &&
		      PBOX_AT_TS == 50 && PBOX_AT_HELD == 54,
	"the words of a header");

static inline void template(
	struct pbox_frame_template *t, const struct pbox_hdr *h, uint32_t payload_crc)
{
	t->w[0] = PBOX_MAGIC | PBOX_VERSION_WIRE << 8 | (uint64_t)h->type << 16 |
		  (uint64_t)h->prio << 24;
	t->w[1] = (uint64_t)h->job << 48;
	t->w[2] = (uint64_t)h->incarnation << 16 | (uint64_t)h->chunk << 48;
	t->w[3] = h->chunk >> 16 | (uint64_t)h->frag << 16 | (uint64_t)h->length << 32 |
		  (uint64_t)h->round << 48;
	t->w[4] = h->round >> 16 | (uint64_t)h->base << 16 | (uint64_t)h->map_epoch << 48;
	t->w[5] = h->served | (uint64_t)h->format << 16 | (uint64_t)h->fmt_arg << 24 |
		  (uint64_t)h->aux << 32 | (uint64_t)h->weight << 48;
	t->w[6] = h->weight >> 16;
	t->payload_crc = payload_crc;
}

static inline void
encode_to(uint8_t *p, const struct pbox_frame_template *t, const struct pbox_hdr_to *to)
{
	const struct words x = {
		.w0 = t->w[0] | (uint64_t)to->flags << 32 | to->token << 48,
		.w1 = t->w[1] | to->token >> 16,
		.w2 = t->w[2] | to->worker,
		.w3 = t->w[3],
		.w4 = t->w[4],
		.w5 = t->w[5],
		.w6 = t->w[6] | (uint64_t)to->ts << 16 | (uint64_t)to->held << 48,
		.last = (uint16_t)(to->held >> 16),
	};

	words_put(p, &x);
	pbox_st32(p + PBOX_AT_CRC, header_crc(t->payload_crc, &x));
}

void
pbox_frame_template(struct pbox_frame_template *t, const struct pbox_hdr *h, uint32_t payload_crc)
{
	template(t, h, payload_crc);
}

void
pbox_frame_encode_to(void *buf, const struct pbox_frame_template *t, const struct pbox_hdr_to *to)
{
	encode_to(buf, t, to);
}

void
pbox_frame_encode(void *buf, const struct pbox_hdr *h, uint32_t payload_crc)
{
	const struct pbox_hdr_to to = {.token = h->token,
		.ts = h->ts,
		.held = h->held,
		.worker = h->worker,
		.flags = h->flags};
	struct pbox_frame_template t;

	template(&t, h, payload_crc);
	encode_to(buf, &t, &to);
}

size_t
pbox_frame_seal(void *buf, const struct pbox_hdr *hdr)
{
	const uint8_t *payload = (const uint8_t *)buf + PBOX_HDR_LEN;

	pbox_frame_encode(buf, hdr, pbox_crc32c(0, payload, hdr->length));
	return PBOX_HDR_LEN + (size_t)hdr->length + pbox_tag_len(hdr->flags);
}
