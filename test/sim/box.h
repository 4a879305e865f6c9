/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef BOX_H
#define BOX_H

/* What the files of the simulated box share. */

#include "sim.h"

#define SIM_NODE_BYTES (4u << 20)

uint8_t *sim_box_region(unsigned box, unsigned node);
/* Version numbers of new tables begin at the scenario's first_round. */
void sim_box_advance_rounds(struct sim *s);
/* What its registrar has of a job; NULL: nothing. */
const struct pbox_job *sim_box_job(const struct sim *s, unsigned job);
/* A table of it that is mapped, or NULL. */
const struct pbox_table *sim_box_table(const struct sim *s, unsigned job, unsigned table);

/* Whatever the box sends passes here (check.c). */
void sim_check_send(struct sim *s, const struct pbox_send *out);
uint32_t sim_payload_crc(const struct pbox_send *out);
/* The memory of an answer changed before it was sent: may it? */
void sim_check_overwritten(struct sim *s, const struct pbox_send *out);
/* A contribution reaches the box, perhaps with damage that it has not found yet. */
void sim_check_arrival(struct sim *s, const struct sim_packet *p, const struct pbox_hdr *h,
	const uint8_t *payload, bool intact);
/* The n frames of a datagram that is forged, or of another box, have been given to a shard: nothing has changed but n
 * drops. */
void sim_check_forged(struct sim *s, const struct sim_shard *sh, const uint64_t *before,
	uint64_t held_bits, const struct pbox_hdr *h, unsigned n);
void sim_check_forged_control(
	struct sim *s, const uint64_t *before, const struct pbox_hdr *h, bool stray);

#endif /* BOX_H */
