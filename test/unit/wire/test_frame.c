/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>

#include <pbox_wire.h>

#include "unit.h"

const char unit_suite[] = "wire: frames";

/* Every field has a value of its own, so that no two can be swapped unnoticed. */
static const struct pbox_hdr sample = {
	.token = 0x0807060504030201,
	.incarnation = 0x1C1B1A19,
	.chunk = 0x201F1E1D,
	.round = 0x28272625,
	.base = 0x2C2B2A29,
	.weight = 0x38373635,
	.ts = 0x3C3B3A39,
	.held = 0x403F3E3D,
	.flags = PBOX_F_LAST | PBOX_F_RETX,
	.job = 0x1211,
	.worker = 0x1413,
	.frag = 0x2221,
	.length = 5,
	.map_epoch = 0x2E2D,
	.served = 0x302F,
	.aux = 0x3433,
	.type = PBOX_PUSHPULL,
	.prio = 0x77,
	.format = PBOX_FMT_FP32,
	.fmt_arg = 0x32,
};

/** A frame of @p length payload bytes i, i + 1, ... at @p buf; returns its size. */
static size_t
make(uint8_t *buf, uint16_t length)
{
	struct pbox_hdr h = sample;

	h.length = length;
	for (unsigned i = 0; i < length; i++)
		buf[PBOX_HDR_LEN + i] = (uint8_t)(i * 7 + length);
	return pbox_frame_seal(buf, &h);
}

/** Give a frame whose header was tampered with its right CRC. */
static void
reseal(uint8_t *f)
{
	uint16_t length = (uint16_t)(f[28] | f[29] << 8);
	uint32_t crc = pbox_crc32c(pbox_crc32c(0, f + PBOX_HDR_LEN, length), f, 58);

	for (unsigned i = 0; i < 4; i++)
		f[58 + i] = (uint8_t)(crc >> 8 * i);
}

static enum pbox_wire_drop
check(const uint8_t *f, size_t len)
{
	struct pbox_hdr h;
	size_t size;

	return pbox_frame_decode(f, len, true, &h, &size);
}

/** The definition, bit by bit. */
static uint32_t
crc_reference(const uint8_t *p, size_t len)
{
	uint32_t crc = 0xFFFFFFFF;

	while (len-- > 0) {
		crc ^= *p++;
		for (int i = 0; i < 8; i++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78 : 0);
	}
	return ~crc;
}

static void
test_crc32c(void)
{
	uint8_t b[1500]; /* from 512 on several columns of vectors at once */

	/* RFC 3720, B.4 */
	memset(b, 0, 32);
	UNIT_EQ_U64(pbox_crc32c(0, b, 32), 0x8A9136AA);
	memset(b, 0xFF, 32);
	UNIT_EQ_U64(pbox_crc32c(0, b, 32), 0x62A8AB43);
	for (unsigned i = 0; i < 32; i++)
		b[i] = (uint8_t)i;
	UNIT_EQ_U64(pbox_crc32c(0, b, 32), 0x46DD794E);
	UNIT_EQ_U64(pbox_crc32c(0, "123456789", 9), 0xE3069283);
	UNIT_EQ_U64(pbox_crc32c(0, NULL, 0), 0);
	UNIT_EQ_U64(pbox_crc32c(0xE3069283, b, 0), 0xE3069283);
	for (unsigned i = 0; i < sizeof(b); i++)
		b[i] = (uint8_t)(i * 31 + i / 256);
	for (unsigned at = 0; at < 17; at++)
		for (unsigned len = 0; len <= 300; len++)
			UNIT_EQ_U64(pbox_crc32c(0, b + at, len), crc_reference(b + at, len));
	for (unsigned len = 301; len <= 1400; len++)
		UNIT_EQ_U64(pbox_crc32c(0, b + len % 65, len), crc_reference(b + len % 65, len));
	for (unsigned cut = 0; cut <= 300; cut++)
		UNIT_EQ_U64(pbox_crc32c(pbox_crc32c(0, b, cut), b + cut, 300 - cut),
			crc_reference(b, 300));
	for (unsigned cut = 1; cut < 1400; cut += 13)
		UNIT_EQ_U64(pbox_crc32c(pbox_crc32c(0, b, cut), b + cut, 1400 - cut),
			crc_reference(b, 1400));
}

/** What was copied, its CRC, and nothing around it. */
static void
copies(const uint8_t *from, unsigned at, unsigned len)
{
	uint8_t to[1600];

	memset(to, 0xA5, sizeof(to));
	UNIT_EQ_U64(pbox_crc32c_copy(0x1234, to + at, from, len), pbox_crc32c(0x1234, from, len));
	CU_ASSERT(memcmp(to + at, from, len) == 0);
	for (unsigned i = 0; i < sizeof(to); i++)
		CU_ASSERT((i >= at && i < at + len) || to[i] == 0xA5);
}

static void
test_crc32c_copy(void)
{
	uint8_t b[1500];

	for (unsigned i = 0; i < sizeof(b); i++)
		b[i] = (uint8_t)(i * 31 + i / 256);
	for (unsigned len = 0; len <= 1408; len++)
		copies(b + len % 65, len * 7 % 67, len);
}

static void
test_header_layout(void)
{
	/* offsets and sizes of the table in section 2, written by hand */
	static const uint8_t want[58] = {
		0xB5, 1, 0x24, 0x77, 0x03, 0x00,                /* magic to flags */
		0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, /* token */
		0x11, 0x12, 0x13, 0x14, 0x19, 0x1A, 0x1B, 0x1C, /* job, worker, incarnation */
		0x1D, 0x1E, 0x1F, 0x20, 0x21, 0x22, 0x05, 0x00, /* chunk, frag, length */
		0x25, 0x26, 0x27, 0x28, 0x29, 0x2A, 0x2B, 0x2C, /* round, base */
		0x2D, 0x2E, 0x2F, 0x30, 0x01, 0x32,             /* map_epoch, served, format */
		0x33, 0x34, 0x35, 0x36, 0x37, 0x38,             /* aux, weight */
		0x39, 0x3A, 0x3B, 0x3C, 0x3D, 0x3E, 0x3F, 0x40, /* ts, held */
	};
	uint8_t f[PBOX_HDR_LEN + 5], with[2 * PBOX_HDR_LEN];
	uint32_t crc;

	memcpy(f + PBOX_HDR_LEN, "hello", 5);
	UNIT_EQ_U64(pbox_frame_seal(f, &sample), sizeof(f));
	CU_ASSERT_EQUAL(memcmp(f, want, sizeof(want)), 0);
	/* payload first, then the header (R2.4) */
	memcpy(with, "hello", 5);
	memcpy(with + 5, want, sizeof(want));
	crc = crc_reference(with, 5 + sizeof(want));
	UNIT_EQ_U64(f[58] | f[59] << 8 | f[60] << 16 | (uint32_t)f[61] << 24, crc);
	/* one pass over a payload serves many headers */
	memset(with, 0xEE, sizeof(with));
	pbox_frame_encode(with, &sample, pbox_crc32c(0, "hello", 5));
	CU_ASSERT_EQUAL(memcmp(f, with, PBOX_HDR_LEN), 0);
	CU_ASSERT_EQUAL(with[PBOX_HDR_LEN], 0xEE);
}

static uint64_t
next_random(uint64_t *x)
{
	*x = *x * 6364136223846793005u + 1442695040888963407u;
	return *x >> 32 | *x << 32;
}

/* one template, and what each of its receivers gets */
static void
test_template(void)
{
	uint64_t x = 3;

	for (unsigned i = 0; i < 1000; i++) {
		uint8_t want[PBOX_HDR_LEN], got[PBOX_HDR_LEN];
		struct pbox_frame_template t;
		struct pbox_hdr h, other;
		struct pbox_hdr_to to;
		uint32_t crc = (uint32_t)next_random(&x);

		for (size_t k = 0; k < sizeof(h); k++)
			((uint8_t *)&h)[k] = (uint8_t)next_random(&x);
		other = h; /* of which these fields are not looked at */
		other.token = next_random(&x);
		other.ts = other.held = (uint32_t)next_random(&x);
		other.worker = other.flags = (uint16_t)next_random(&x);
		to = (struct pbox_hdr_to){.token = h.token,
			.ts = h.ts,
			.held = h.held,
			.worker = h.worker,
			.flags = h.flags};
		pbox_frame_encode(want, &h, crc);
		pbox_frame_template(&t, &other, crc);
		pbox_frame_encode_to(got, &t, &to);
		CU_ASSERT_EQUAL(memcmp(got, want, sizeof(want)), 0);
	}
}

static void
test_round_trip(void)
{
	static const uint16_t lengths[] = {0, 1, 2, 63, 64, 65, 1408, 8906, 65473, 65535};
	static uint8_t buf[PBOX_HDR_LEN + 65535 + 8];

	for (unsigned i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
		for (unsigned at = 0; at < 8; at++) {
			struct pbox_hdr h, want = sample;
			size_t size = 0, n = make(buf + at, lengths[i]);

			want.length = lengths[i];
			memset(&h, 0xAA, sizeof(h));
			CU_ASSERT_EQUAL(pbox_frame_decode(buf + at, n, true, &h, &size), 0);
			UNIT_EQ_U64(size, n);
			CU_ASSERT_EQUAL(memcmp(&h, &want, sizeof(h)), 0);
		}
}

static void
test_types_and_flags(void)
{
	uint8_t f[PBOX_HDR_LEN];

	make(f, 0);
	for (unsigned type = 0; type < 256; type++) {
		bool known = (type >= 0x01 && type <= 0x1C) || (type >= 0x20 && type <= 0x2E);

		f[2] = (uint8_t)type;
		reseal(f);
		UNIT_EQ_U64(check(f, sizeof(f)), known ? PBOX_WIRE_OK : PBOX_WIRE_TYPE);
		CU_ASSERT_EQUAL(strcmp(pbox_type_name(type), "?") != 0, known);
	}
	make(f, 0);
	for (unsigned bit = 0; bit < 16; bit++) {
		f[4] = (uint8_t)(1u << bit);
		f[5] = (uint8_t)(1u << bit >> 8);
		reseal(f);
		if (bit != 4) /* AUTH, below */
			UNIT_EQ_U64(check(f, sizeof(f)), bit < 8 ? PBOX_WIRE_OK : PBOX_WIRE_FLAGS);
	}
}

/* R2.1: of a frame with several faults the first in the order of the rule is named. */
static void
test_order_of_drops(void)
{
	uint8_t f[PBOX_HDR_LEN + 8 + PBOX_TAG_LEN];
	size_t n = make(f, 8);

	f[2] = PBOX_JOIN;
	f[4] = PBOX_F_AUTH;
	reseal(f);
	n += PBOX_TAG_LEN;
	UNIT_EQ_U64(check(f, n), PBOX_WIRE_AUTH);
	f[2] = 0x55;
	reseal(f);
	UNIT_EQ_U64(check(f, n), PBOX_WIRE_TYPE);
	f[5] = 0x80;
	reseal(f);
	UNIT_EQ_U64(check(f, n), PBOX_WIRE_FLAGS);
	f[60] ^= 1;
	UNIT_EQ_U64(check(f, n), PBOX_WIRE_CRC);
	UNIT_EQ_U64(check(f, n - 1), PBOX_WIRE_TRUNCATED);
	f[1] = 2;
	UNIT_EQ_U64(check(f, n - 1), PBOX_WIRE_VERSION);
	f[0] = 0xB4;
	UNIT_EQ_U64(check(f, n - 1), PBOX_WIRE_MAGIC);
	UNIT_EQ_U64(check(f, PBOX_HDR_LEN - 1), PBOX_WIRE_TRUNCATED);
}

static void
test_auth_tag_counts(void)
{
	uint8_t f[PBOX_HDR_LEN + 8 + PBOX_TAG_LEN + 10] = {0};
	struct pbox_hdr h;
	size_t size = 0, n = make(f, 8);

	f[4] = PBOX_F_AUTH;
	reseal(f);
	UNIT_EQ_U64(check(f, n + PBOX_TAG_LEN - 1), PBOX_WIRE_TRUNCATED);
	UNIT_EQ_U64(pbox_frame_decode(f, sizeof(f), true, &h, &size), PBOX_WIRE_OK);
	UNIT_EQ_U64(size, n + PBOX_TAG_LEN);
	UNIT_EQ_U64(h.flags, PBOX_F_AUTH);
	UNIT_EQ_U64(h.length, 8);
	UNIT_EQ_U64(pbox_frame_seal(f, &h), size);
	/* the tag is somebody else's to check */
	f[n] ^= 1;
	UNIT_EQ_U64(check(f, n + PBOX_TAG_LEN), PBOX_WIRE_OK);
	for (unsigned type = 0; type < 256; type++) {
		bool never = type == PBOX_HELLO || type == PBOX_RETRY || type == PBOX_JOIN;

		f[2] = (uint8_t)type;
		reseal(f);
		if (strcmp(pbox_type_name(type), "?") == 0)
			continue;
		UNIT_EQ_U64(pbox_frame_decode(f, sizeof(f), true, &h, &size),
			never ? PBOX_WIRE_AUTH : PBOX_WIRE_OK);
		UNIT_EQ_U64(size, n + PBOX_TAG_LEN); /* what follows the tag can still be good */
	}
}

/* A contribution with a tag that fills its datagram is left for later as one without is. */
static void
test_open_with_tag(void)
{
	uint8_t f[PBOX_HDR_LEN + PBOX_DEFER_MIN + PBOX_TAG_LEN + 1] = {0};
	size_t size = 0, n = make(f, PBOX_DEFER_MIN);
	struct pbox_hdr h;
	bool later;

	f[2] = PBOX_PUSHPULL;
	f[4] = PBOX_F_AUTH;
	reseal(f);
	n += PBOX_TAG_LEN;
	UNIT_EQ_U64(pbox_frame_open(f, n, &h, &size, &later), PBOX_WIRE_OK);
	CU_ASSERT(later);
	UNIT_EQ_U64(size, n);
	CU_ASSERT(pbox_frame_verify(
		f + PBOX_HDR_LEN, pbox_crc32c(0, f + PBOX_HDR_LEN, PBOX_DEFER_MIN)));
	UNIT_EQ_U64(pbox_frame_open(f, n + 1, &h, &size, &later), PBOX_WIRE_OK);
	CU_ASSERT_FALSE(later); /* another frame follows */
	UNIT_EQ_U64(pbox_frame_open(f, n - 1, &h, &size, &later), PBOX_WIRE_TRUNCATED);
}

static void
test_every_truncation(void)
{
	uint8_t f[PBOX_HDR_LEN + 40];
	size_t n = make(f, 40);

	/* a copy of exactly the bytes, so that the address sanitiser sees a read beyond them */
	for (size_t len = 0; len < n; len++) {
		uint8_t *copy = malloc(len ? len : 1);
		struct pbox_hdr h;
		size_t size = 4711;

		memcpy(copy, f, len);
		UNIT_EQ_U64(pbox_frame_decode(copy, len, true, &h, &size), PBOX_WIRE_TRUNCATED);
		UNIT_EQ_U64(pbox_frame_decode(copy, len, false, &h, &size),
			len < PBOX_HDR_LEN ? PBOX_WIRE_TRAILING : PBOX_WIRE_TRUNCATED);
		UNIT_EQ_U64(size, 4711);
		free(copy);
	}
}

static void
test_every_bit_is_guarded(void)
{
	uint8_t f[PBOX_HDR_LEN + 9];
	size_t n = make(f, 9);

	for (unsigned bit = 0; bit < n * 8; bit++) {
		f[bit / 8] ^= (uint8_t)(1u << bit % 8);
		CU_ASSERT_NOT_EQUAL(check(f, n), PBOX_WIRE_OK);
		f[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	UNIT_EQ_U64(check(f, n), PBOX_WIRE_OK);
}

static void
test_version_tells_the_header(void)
{
	uint8_t f[PBOX_HDR_LEN];
	struct pbox_hdr h = {0};
	size_t size;

	make(f, 0);
	f[1] = 2;
	UNIT_EQ_U64(pbox_frame_decode(f, sizeof(f), true, &h, &size), PBOX_WIRE_VERSION);
	UNIT_EQ_U64(h.type, PBOX_PUSHPULL);
	UNIT_EQ_U64(h.chunk, sample.chunk);
}

static void
test_trains(void)
{
	uint8_t d[4 * (PBOX_HDR_LEN + 100) + 61];
	size_t len = 0, at, size, frames;
	struct pbox_hdr h;
	enum pbox_wire_drop r;

	for (uint16_t i = 0; i < 4; i++)
		len += make(d + len, (uint16_t)(i * 33));
	/* no rest, then 1 to 61 bytes of one (R1.2) */
	for (unsigned rest = 0; rest < 62; rest++) {
		memset(d + len, 0xB5, rest);
		r = PBOX_WIRE_OK;
		for (at = frames = 0; at < len + rest; at += size, frames++) {
			r = pbox_frame_decode(d + at, len + rest - at, at == 0, &h, &size);
			if (r != PBOX_WIRE_OK)
				break;
			UNIT_EQ_U64(h.length, frames * 33);
		}
		UNIT_EQ_U64(frames, 4);
		UNIT_EQ_U64(r, rest ? PBOX_WIRE_TRAILING : PBOX_WIRE_OK);
	}
	/* a damaged payload in the middle costs its own frame alone */
	d[62 + 62 + 33 - 1] ^= 0x10;
	for (at = frames = 0; at < len; at += size) {
		r = pbox_frame_decode(d + at, len - at, at == 0, &h, &size);
		if (r == PBOX_WIRE_OK)
			frames++;
		else
			UNIT_EQ_U64(r, PBOX_WIRE_CRC);
	}
	UNIT_EQ_U64(at, len);
	UNIT_EQ_U64(frames, 3);
}

static void
test_fragment_sizes(void)
{
	UNIT_EQ_U64(pbox_format_size(PBOX_FMT_FP32), 4);
	UNIT_EQ_U64(pbox_format_size(PBOX_FMT_BF16), 2);
	UNIT_EQ_U64(pbox_format_size(PBOX_FMT_FP16), 2);
	UNIT_EQ_U64(pbox_format_size(0), 0);
	UNIT_EQ_U64(pbox_format_size(16), 0);
	/* floor64(1500 - 90) = 1408 */
	UNIT_EQ_U64(pbox_frag_elements(1500, PBOX_FMT_FP32, PBOX_FMT_FP32), 352);
	UNIT_EQ_U64(pbox_frag_elements(1500, PBOX_FMT_BF16, PBOX_FMT_FP32), 352);
	UNIT_EQ_U64(pbox_frag_elements(1500, PBOX_FMT_FP32, PBOX_FMT_FP16), 352);
	UNIT_EQ_U64(pbox_frag_elements(1500, PBOX_FMT_BF16, PBOX_FMT_FP16), 704);
	UNIT_EQ_U64(pbox_frag_elements(9000, PBOX_FMT_FP32, PBOX_FMT_FP32), 2224);
	UNIT_EQ_U64(pbox_frag_elements(154, PBOX_FMT_FP32, PBOX_FMT_FP32), 16);
	UNIT_EQ_U64(pbox_frag_elements(153, PBOX_FMT_FP32, PBOX_FMT_FP32), 0);
	UNIT_EQ_U64(pbox_frag_elements(0, PBOX_FMT_FP32, PBOX_FMT_FP32), 0);
	UNIT_EQ_U64(pbox_frag_elements(1500, PBOX_FMT_NONE, PBOX_FMT_FP32), 0);
	UNIT_EQ_U64(
		pbox_frag_elements(1500, PBOX_FMT_INT8, PBOX_FMT_MXFP4), 352); /* R13.6: as fp32 */
	UNIT_EQ_U64(pbox_frag_elements(1500, PBOX_FMT_FP32, 17), 0);
	UNIT_EQ_U64(pbox_init_elements(1500), 352);
}

static void
test_names(void)
{
	CU_ASSERT_STRING_EQUAL(pbox_type_name(PBOX_PUSHPULL), "PUSHPULL");
	CU_ASSERT_STRING_EQUAL(pbox_type_name(PBOX_NOT_READY), "NOT_READY");
	CU_ASSERT_STRING_EQUAL(pbox_type_name(0x1D), "?");
	CU_ASSERT_STRING_EQUAL(pbox_type_name(~0u), "?");
	CU_ASSERT_STRING_EQUAL(pbox_wire_drop_name(PBOX_WIRE_CRC), "frame_crc");
	CU_ASSERT_STRING_EQUAL(pbox_wire_drop_name(PBOX_WIRE_TRAILING), "frame_trailing");
	CU_ASSERT_STRING_EQUAL(pbox_wire_drop_name(PBOX_WIRE_DROPS), "?");
	CU_ASSERT_STRING_EQUAL(pbox_errcode_name(PBOX_E_WORKER_TAKEN), "WORKER_TAKEN");
	CU_ASSERT_STRING_EQUAL(pbox_errcode_name(PBOX_E_SHUTDOWN), "SHUTDOWN");
	CU_ASSERT_STRING_EQUAL(pbox_errcode_name(PBOX_E_ELSEWHERE + 1), "?");
	CU_ASSERT_STRING_EQUAL(pbox_format_name(PBOX_FMT_FP32), "fp32");
	CU_ASSERT_STRING_EQUAL(pbox_format_name(4), "?");
	CU_ASSERT_STRING_EQUAL(pbox_format_name(16), "int8");
	CU_ASSERT_STRING_EQUAL(pbox_format_name(17), "?"); /* nobody is offered it */
	CU_ASSERT_STRING_EQUAL(pbox_format_later(17), "int4");
	CU_ASSERT_STRING_EQUAL(pbox_format_later(21), "?");
	CU_ASSERT_STRING_EQUAL(pbox_format_later(PBOX_FMT_FP32), "?");
	CU_ASSERT_STRING_EQUAL(pbox_discipline_name(1), "clock");
	CU_ASSERT_STRING_EQUAL(pbox_discipline_later(1), "?");
	CU_ASSERT_STRING_EQUAL(pbox_discipline_later(2), "turn");
	CU_ASSERT_STRING_EQUAL(pbox_policy_name(2), "reassign");
	CU_ASSERT_STRING_EQUAL(pbox_capability_name(5), "?"); /* INSECURE of WELCOME */
	CU_ASSERT_STRING_EQUAL(pbox_capability_name(6), "slots");
	CU_ASSERT_STRING_EQUAL(pbox_optimiser_name(PBOX_OPT_ADAMW), "adamw");
	CU_ASSERT_STRING_EQUAL(pbox_optimiser_name(PBOX_OPTIMISERS_END), "?");
	CU_ASSERT_STRING_EQUAL(pbox_op_name(PBOX_OP_WEIGHTED_MEAN), "weighted_mean");
	CU_ASSERT_STRING_EQUAL(pbox_op_name(4), "?");
	CU_ASSERT_STRING_EQUAL(pbox_restore_name(PBOX_RESTORE_LOST), "lost");
	CU_ASSERT_STRING_EQUAL(pbox_restore_name(PBOX_RESTORE_LATE), "late");
	CU_ASSERT_STRING_EQUAL(pbox_restore_name(PBOX_RESTORE_FETCH), "fetch");
	CU_ASSERT_STRING_EQUAL(pbox_restore_name(6), "?");
	CU_ASSERT_STRING_EQUAL(pbox_hyper_name(PBOX_HYPER_WEIGHT_DECAY), "weight_decay");
	CU_ASSERT_STRING_EQUAL(pbox_policy_name(PBOX_POLICY_SHRINK), "shrink");
	CU_ASSERT_EQUAL(pbox_number(pbox_optimiser_name, "adamw", 4), PBOX_OPT_ADAM);
	CU_ASSERT_EQUAL(pbox_number(pbox_optimiser_name, "adamw", 5), PBOX_OPT_ADAMW);
	CU_ASSERT_EQUAL(pbox_number(pbox_format_name, "fp32", 4), PBOX_FMT_FP32);
	CU_ASSERT_EQUAL(pbox_number(pbox_type_name, "PONG", 4), PBOX_PONG);
	CU_ASSERT_EQUAL(pbox_number(pbox_type_name, "?", 1), -1);
	CU_ASSERT_EQUAL(pbox_number(pbox_hyper_name, "", 0), -1);
	for (unsigned i = 0; i < PBOX_WIRE_DROPS; i++)
		CU_ASSERT_STRING_NOT_EQUAL(pbox_wire_drop_name(i), "?");
	for (unsigned i = 0; i <= PBOX_E_UNSUPPORTED; i++)
		CU_ASSERT_STRING_NOT_EQUAL(pbox_errcode_name(i), "?");
}

const struct unit_test unit_tests[] = {
	{"CRC32C against RFC 3720 and its definition", test_crc32c},
	{"CRC32C of what is copied", test_crc32c_copy},
	{"each field is at its offset", test_header_layout},
	{"one header for several receivers", test_template},
	{"decode returns what encode wrote", test_round_trip},
	{"known types and flags", test_types_and_flags},
	{"drops in the order of R2.1", test_order_of_drops},
	{"the tag of AUTH counts", test_auth_tag_counts},
	{"a contribution with a tag is opened", test_open_with_tag},
	{"every truncation is refused", test_every_truncation},
	{"every bit is guarded", test_every_bit_is_guarded},
	{"another version shows its header", test_version_tells_the_header},
	{"trains", test_trains},
	{"fragment sizes", test_fragment_sizes},
	{"names", test_names},
	{NULL, NULL},
};
