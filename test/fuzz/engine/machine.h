/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef MACHINE_H
#define MACHINE_H

/* A registrar and two shards with what must hold of them at any time: see machine.c. */

#include <pbox_registrar.h>
#include <pbox_shard.h>

#define M_INCARNATION 0xB0B0
#define M_SHARDS      2
#define M_CHUNKS      64

/* What WELCOME and MAPPED said last. */
struct m_seen {
	struct pbox_welcome welcome;
	uint64_t cookie;
	uint32_t frag_elements;
	struct {
		uint32_t id, elements;
		uint16_t endpoint, table;
	} chunk[M_CHUNKS];
	unsigned n_chunks;
};

extern struct m_seen m_seen;
extern uint64_t m_now;
extern bool m_hold_mail;
/* What the box sends goes there as well, unless NULL. */
extern void (*m_sent)(const struct pbox_send *s);

void m_begin(void);
/* As if killed, and started again: it has forgotten everything. Time goes on. */
void m_restart(void);
/* Encode header and CRC, and in a session with auth the flag and the tag, around the payload at
 * @p buf + PBOX_HDR_LEN. Returns the frame's size. */
size_t m_seal(uint8_t *buf, struct pbox_hdr *h);
/* The same of an answer to the session with @p token, with a tag if its flags have AUTH. */
size_t m_seal_answer(uint8_t *buf, struct pbox_hdr *h, uint64_t token);
/* Frames that shards and the registrar have accepted. */
uint64_t m_accepted(void);
/* Ends all jobs: everything must be given back. */
void m_end(void);
/* A datagram as it came from the network, to the core of one shard; @p size up to 65535. Control
 * frames go to the registrar. @p repair: give its frames their right CRC first. */
void m_datagram(unsigned shard, const struct pbox_peer *from, const uint8_t *data, size_t size,
	bool repair);
void m_tick(uint64_t ns);
void m_mail(void); /* deliver what was held back */
void m_shutdown(void);

#endif /* MACHINE_H */
