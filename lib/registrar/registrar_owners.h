/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef REGISTRAR_OWNERS_H
#define REGISTRAR_OWNERS_H

/* Maps of owners (section 15 of the protocol): slots go to others, and what a worker has. */

#include <pbox_work.h>

#include "registrar_impl.h"

static inline unsigned
registrar_owner_at(const uint16_t *map, unsigned slot)
{
	return map[slot] & PBOX_SLOT_WORKER;
}

void registrar_owners_give(uint16_t *map, unsigned slots, const struct pbox_work_move *m);
void registrar_owners_give_by_turns(
	const struct pbox_job *job, const struct pbox_work *room, uint16_t *map, unsigned from);
void registrar_owners_give_as(
	const struct pbox_job *job, uint16_t *map, unsigned from, const uint16_t *owner);
bool registrar_owners_join(const struct pbox_job *job, uint16_t *map, unsigned w,
	const struct pbox_slot_range *own, unsigned n);
bool registrar_owners_ranges(const struct pbox_job *job, const uint16_t *map, unsigned w,
	struct pbox_slot_range *out, uint16_t *ranges);

#endif /* REGISTRAR_OWNERS_H */
