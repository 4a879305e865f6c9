/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* The map, made so: these are the boxes and the weights of a job. */

#include "agent.h"

void
apply_map(struct agent *a)
{
	a->applied = a->view.map.epoch;
}
