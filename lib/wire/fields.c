/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <string.h>

#include "pbox_wire_fields.h"

static void
field_copy(uint8_t *to, const uint8_t *from, const struct pbox_field *f)
{
	if (f->bytes || __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__)
		memcpy(to, from, f->size);
	else
		for (unsigned i = 0; i < f->size; i++)
			to[i] = from[f->size - 1 - i];
}

void
pbox_fields_put(uint8_t *p, size_t len, const struct pbox_field *f, const void *m)
{
	memset(p, 0, len);
	for (; f->size > 0; f++)
		field_copy(p + f->at, (const uint8_t *)m + f->offset, f);
}

void
pbox_fields_get(const uint8_t *p, const struct pbox_field *f, void *m)
{
	for (; f->size > 0; f++)
		field_copy((uint8_t *)m + f->offset, p + f->at, f);
}
