/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdint.h>
#include <string.h>

#include "pbox_wire_enums.h"

#define NAMES(what, ...)                                                                          \
	const char *pbox_##what##_name(unsigned number)                                           \
	{                                                                                         \
		static const char *const names[] = {__VA_ARGS__};                                 \
                                                                                                  \
		return number < sizeof(names) / sizeof(names[0]) && names[number] ? names[number] \
										  : "?";          \
	}

NAMES(type, PBOX_TYPES(PBOX_LIST_NAME))
NAMES(wire_drop, [PBOX_WIRE_OK] = "frame_ok", PBOX_WIRE_REFUSALS(PBOX_LIST_NAME))
NAMES(errcode, PBOX_ERRCODES(PBOX_LIST_NAME))
/* the reserved ones too: "format int8 is not granted" says more than "format 16" */
NAMES(format, [PBOX_FMT_NONE] = "none", PBOX_FORMATS(PBOX_LIST_NAME)[16] = "int8", [17] = "int4",
	[18] = "int2", [19] = "mxfp8", [20] = "mxfp4")
NAMES(optimiser, [PBOX_OPT_NONE] = "none", PBOX_OPTIMISERS(PBOX_LIST_NAME))
NAMES(hyper, PBOX_HYPERS(PBOX_LIST_NAME))
NAMES(op, PBOX_OPS(PBOX_LIST_NAME))
NAMES(restore, PBOX_RESTORES(PBOX_LIST_NAME))
NAMES(policy, PBOX_POLICIES(PBOX_LIST_NAME))

int
pbox_number(const char *(*name_of)(unsigned), const char *name, size_t len)
{
	for (unsigned i = 0; i <= UINT8_MAX; i++)
		if (name_of(i)[0] != '?' && strlen(name_of(i)) == len &&
			memcmp(name_of(i), name, len) == 0)
			return (int)i;
	return -1;
}
