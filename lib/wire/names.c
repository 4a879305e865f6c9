/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdint.h>
#include <string.h>

#include "pbox_wire_enums.h"

#define NAMES(what, ...)  NAMED(pbox_##what##_name, __VA_ARGS__)
#define LATERS(what, ...) NAMED(pbox_##what##_later, __VA_ARGS__)
#define NAMED(function, ...)                                                                      \
	const char *function(unsigned number)                                                     \
	{                                                                                         \
		static const char *const names[] = {__VA_ARGS__};                                 \
                                                                                                  \
		return number < sizeof(names) / sizeof(names[0]) && names[number] ? names[number] \
										  : "?";          \
	}

NAMES(type, PBOX_TYPES(PBOX_LIST_NAME))
NAMES(wire_drop, [PBOX_WIRE_OK] = "frame_ok", PBOX_WIRE_REFUSALS(PBOX_LIST_NAME))
NAMES(errcode, PBOX_ERRCODES(PBOX_LIST_NAME))
NAMES(format, [PBOX_FMT_NONE] = "none",
	PBOX_FORMATS(PBOX_LIST_NAME) PBOX_FORMATS_BLOCK(PBOX_LIST_NAME))
NAMES(optimiser, [PBOX_OPT_NONE] = "none", PBOX_OPTIMISERS(PBOX_LIST_NAME))
NAMES(hyper, PBOX_HYPERS(PBOX_LIST_NAME))
NAMES(op, PBOX_OPS(PBOX_LIST_NAME))
NAMES(restore, PBOX_RESTORES(PBOX_LIST_NAME))
NAMES(plain_why, PBOX_PLAIN_WHYS(PBOX_LIST_NAME))
NAMES(policy, PBOX_POLICIES(PBOX_LIST_NAME))
NAMES(discipline, PBOX_DISCIPLINES(PBOX_LIST_NAME))
NAMES(capability, PBOX_CAPABILITIES(PBOX_LIST_NAME))

LATERS(format, PBOX_FORMATS_LATER(PBOX_LIST_NAME))
LATERS(discipline, PBOX_DISCIPLINES_LATER(PBOX_LIST_NAME))

int
pbox_number(const char *(*name_of)(unsigned), const char *name, size_t len)
{
	for (unsigned i = 0; i <= UINT8_MAX; i++)
		if (name_of(i)[0] != '?' && strlen(name_of(i)) == len &&
			memcmp(name_of(i), name, len) == 0)
			return (int)i;
	return -1;
}
