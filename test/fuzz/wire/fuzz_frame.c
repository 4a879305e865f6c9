/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * A datagram through the frame decoder. The first byte says whether each frame is given its right
 * CRC first: a fuzzer does not guess CRCs, and would never see what comes after that check.
 */

#include <stdlib.h>

#include <pbox_wire.h>

#include "../require.h"
#include "../reseal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/** What was accepted is what an encoder writes, byte for byte. A tag is the caller's. */
static void
encode_again(const uint8_t *p, const struct pbox_hdr *h, size_t size)
{
	uint8_t *out = malloc(size);

	REQUIRE(size == PBOX_HDR_LEN + (size_t)h->length + pbox_tag_len(h->flags));
	REQUIRE(out != NULL);
	memcpy(out + PBOX_HDR_LEN, p + PBOX_HDR_LEN, size - PBOX_HDR_LEN);
	REQUIRE(pbox_frame_seal(out, h) == size);
	REQUIRE(memcmp(out, p, size) == 0);
	free(out);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint8_t *copy;
	size_t at = 0, len;

	if (size < 1 || size > 65536)
		return 0;
	len = size - 1;
	copy = malloc(len ? len : 1); /* of exactly the datagram, for the address sanitiser */
	REQUIRE(copy != NULL);
	memcpy(copy, data + 1, len);
	while (at < len) {
		struct pbox_hdr h;
		size_t step = 0;
		enum pbox_wire_drop r;

		if (data[0] & 1)
			reseal(copy + at, len - at);
		r = pbox_frame_decode(copy + at, len - at, at == 0, &h, &step);
		REQUIRE(r < PBOX_WIRE_DROPS);
		REQUIRE(pbox_wire_drop_name(r)[0] == 'f');
		if (r == PBOX_WIRE_OK) {
			REQUIRE(pbox_type_name(h.type)[0] != '?');
			encode_again(copy + at, &h, step);
		} else if (r != PBOX_WIRE_CRC && r != PBOX_WIRE_FLAGS && r != PBOX_WIRE_TYPE &&
			   r != PBOX_WIRE_AUTH) {
			REQUIRE(step == 0);
			break;
		}
		REQUIRE(step >= PBOX_HDR_LEN && step <= len - at);
		at += step;
	}
	free(copy);
	return 0;
}
