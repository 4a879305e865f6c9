/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* The table of the registrar's parts. */

#include "registrar_impl.h"

#define PART(name) [PART_##name] = &registrar_##name##_part,
const struct registrar_part *const registrar_parts[REGISTRAR_PARTS_END] = {REGISTRAR_PARTS(PART)};
