/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_SLOTS_H
#define PBOX_SLOTS_H

/**
 * @file
 * Nodes of the tree over the slots of a job (doc/protocol.md R5.2a), and who owns which slot (R5.2b).
 *
 * Pure functions: any thread, no allocation. Slots are 0 to slots - 1; a range of them is `first` to `end` - 1.
 */

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PBOX_MAX_SLOTS 4096
#define PBOX_MAX_LEVEL 12
/** The most nodes that a range consists of. */
#define PBOX_RANGE_NODES (2 * PBOX_MAX_LEVEL)

/** The slots first to first + 2^level - 1, cut to those that the job has. */
struct pbox_node {
	uint16_t first, level;
};

/** As `base` has it in PUSH, PUSHPULL and PUSH_OK. */
static inline uint32_t
pbox_node_code(struct pbox_node n)
{
	return n.first | (uint32_t)n.level << 16;
}

/** False: there is no such node in a tree over @p slots slots. */
static inline bool
pbox_node_decode(uint32_t code, unsigned slots, struct pbox_node *n)
{
	n->first = (uint16_t)code;
	n->level = (uint16_t)(code >> 16);
	return n->level <= PBOX_MAX_LEVEL && n->first < slots &&
	       (n->first & ((1u << n->level) - 1)) == 0;
}

/** The slot after its last one. */
static inline unsigned
pbox_node_end(struct pbox_node n, unsigned slots)
{
	unsigned end = n.first + (1u << n.level);

	return end < slots ? end : slots;
}

/** The largest node that begins at @p first, of those with slots up to @p end - 1 alone; of those with the same slots the
 * lowest. first < end <= slots. */
struct pbox_node pbox_node_at(unsigned first, unsigned end, unsigned slots);

/** The fewest nodes that the range consists of, in the order of their slots; @p nodes has room for PBOX_RANGE_NODES.
 * @return their number; 0 if first = end */
unsigned pbox_range_nodes(unsigned first, unsigned end, unsigned slots, struct pbox_node *nodes);

/** Is it one of these nodes of the range? */
bool pbox_node_is_of(struct pbox_node n, unsigned first, unsigned end, unsigned slots);

/** Without a plan: the first slot of worker @p worker of @p workers; with worker + 1: the slot after its last one. */
static inline unsigned
pbox_slots_of(unsigned worker, unsigned workers, unsigned slots)
{
	return (unsigned)((uint64_t)worker * slots / workers);
}

#ifdef __cplusplus
}
#endif

#endif /* PBOX_SLOTS_H */
