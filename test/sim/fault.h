/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef FAULT_H
#define FAULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct sim;
struct sim_packet;

/*
 * What goes wrong in a run, as a list: every decision that was drawn against a datagram, a mail, a
 * worker or the box. A run can be repeated with some of them only (shrink.c). A decision is known by
 * what it hits, not by when it was drawn, so that the others stay what they are.
 */
enum sim_fault_kind {
	SIM_FAULT_LOSE,
	SIM_FAULT_REPEAT,
	SIM_FAULT_DELAY,     /* value[0]: ns more than the way takes */
	SIM_FAULT_DAMAGE,    /* value[0]: up to four places, 16 bits each; value[1]: 8 bits each */
	SIM_FAULT_CUT,       /* value[0]: bytes left */
	SIM_FAULT_FORGE,     /* value[0]: random number, value[1]: what is forged */
	SIM_FAULT_SLOW_MAIL, /* value[0]: ns */
	SIM_FAULT_KILL,      /* value[0]: ns after the beginning of the worker's job */
	SIM_FAULT_REBIND,    /* the same */
	SIM_FAULT_REPLACE,   /* the same */
	SIM_FAULT_CRASH,     /* value[0]: ns after the beginning; job: the box */
	SIM_FAULT_SNAPSHOT,  /* the same; no fault, but what a crash is survived by */
	SIM_FAULT_STRAY,     /* value[0]: the box that a copy goes to */
	SIM_FAULT_RECORD,    /* value[0]: ns until it is sent again, value[1]: how (record.c) */
	SIM_FAULT_HALVES, /* value[0]: ns from one to the other; odd: the right one first. value[1]: ns before that */
	SIM_FAULT_STOP, /* value[0]: ns after the beginning of the worker's job, value[1]: ns */
	SIM_FAULT_MOVE, /* value[0]: ns after the beginning; no fault either */
	SIM_FAULT_KINDS
};

struct sim_fault {
	uint32_t chunk, round, nth; /* nth: of all that are alike */
	uint16_t frag;
	uint8_t kind, type, job, worker; /* type of the first frame */
	bool to_box, forged;
	uint8_t copy; /* 0: the first to be delivered */
	uint8_t box;  /* of several that a job is at */
	uint64_t value[2];
};

struct sim_faults {
	struct sim_fault *f;
	size_t n, cap;
	bool fixed; /* f is not to be moved: what is beyond cap is forgotten */
};

/* k is the fault as drawn, or not drawn: does it happen? Its values may become others. */
bool sim_fault(struct sim *s, struct sim_fault *k, enum sim_fault_kind kind, bool drawn);
/* Begin k for this datagram: which one it is. */
void sim_fault_of(struct sim *s, struct sim_fault *k, const struct sim_packet *p, bool to_box);
/* Number of those before it that are alike. */
uint32_t sim_fault_nth(struct sim *s, const struct sim_fault *k);
void sim_faults_add(struct sim_faults *l, const struct sim_fault *k);
void sim_faults_sort(struct sim_faults *l);
/* One line a fault, for people and for sim_faults_read(). */
void sim_faults_print(const struct sim_faults *l, FILE *to);
bool sim_faults_line(struct sim_faults *l, const char *line);

#endif /* FAULT_H */
