/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_WIRE_FIELDS_H
#define PBOX_WIRE_FIELDS_H

/**
 * @file
 * Records of fixed layout, on the wire and in files: one table of fields both writes and reads a record.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** A field: its place in the record, and in the structure. It has the same size in both; numbers are little-endian in
 * the record, bytes are copied. */
struct pbox_field {
	uint16_t at, offset, size;
	bool bytes;
};

/* clang-format off */
#define PBOX_FIELD(type, member, at) \
	{(at), offsetof(struct type, member), sizeof(((struct type *)0)->member), false}
#define PBOX_FIELD_BYTES(type, member, at) \
	{(at), offsetof(struct type, member), sizeof(((struct type *)0)->member), true}
/* clang-format on */

/** Write a record of @p len bytes at @p p; bytes of no field are 0. @p f ends with {0}. */
void pbox_fields_put(uint8_t *p, size_t len, const struct pbox_field *f, const void *m);
/** Read the fields of the record at @p p, which must have them all, into @p m. */
void pbox_fields_get(const uint8_t *p, const struct pbox_field *f, void *m);

#endif /* PBOX_WIRE_FIELDS_H */
