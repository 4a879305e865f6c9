/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <string.h>

#include <pbox_wire_data.h>

#include "unit.h"

const char unit_suite[] = "wire: what frames say in the header";

/* Each field has a value of its own. */
#define ROUND  0x28272625u
#define BASE   0x2C2B2A29u
#define AUX    0x3433u
#define WEIGHT 0x38373635u

static struct pbox_hdr
fields(uint32_t round, uint32_t base, uint16_t aux, uint32_t weight, unsigned flags)
{
	return (struct pbox_hdr){.round = round,
		.base = base,
		.aux = aux,
		.weight = weight,
		.flags = (uint16_t)(PBOX_F_AUTH | flags)};
}

static void
same(const struct pbox_hdr *got, const struct pbox_hdr *want)
{
	UNIT_EQ_U64(got->round, want->round);
	UNIT_EQ_U64(got->base, want->base);
	UNIT_EQ_U64(got->aux, want->aux);
	UNIT_EQ_U64(got->weight, want->weight);
	UNIT_EQ_U64(got->flags, want->flags);
}

/* Is the message what has these fields, is all of it read again, and is nothing but these fields written? */
#define SAYS(name, want, ...)                                                           \
	do {                                                                            \
		const struct pbox_##name m_ = {__VA_ARGS__};                            \
		struct pbox_hdr want_ = want, got_ = fields(0, 0, 0, 0, 0), all_, two_; \
		struct pbox_##name again_;                                              \
                                                                                        \
		pbox_##name##_put(&got_, &m_);                                          \
		same(&got_, &want_);                                                    \
		again_ = pbox_##name##_get(&want_);                                     \
		two_ = fields(0, 0, 0, 0, 0);                                           \
		pbox_##name##_put(&two_, &again_);                                      \
		same(&two_, &want_);                                                    \
		memset(&all_, 0xFF, sizeof(all_));                                      \
		pbox_##name##_put(&all_, &m_);                                          \
		is_left(&all_);                                                         \
	} while (0)

/* What no message is about. */
static void
is_left(const struct pbox_hdr *h)
{
	UNIT_EQ_U64(h->token, UINT64_MAX);
	UNIT_EQ_U64(h->incarnation & h->chunk & h->ts & h->held, UINT32_MAX);
	UNIT_EQ_U64(h->flags & h->job & h->worker & h->frag & h->length, UINT16_MAX);
	UNIT_EQ_U64(h->map_epoch & h->served, UINT16_MAX);
	UNIT_EQ_U64(h->type & h->prio & h->format & h->fmt_arg, UINT8_MAX);
}

static void
pushes(void)
{
	SAYS(push_rounds, fields(ROUND, BASE, PBOX_LR_MUL_ONE, WEIGHT, 0), .round = ROUND,
		.from = BASE, .samples = WEIGHT);
	SAYS(push_slots, fields(ROUND, BASE, PBOX_LR_MUL_ONE, WEIGHT, 0), .round = ROUND,
		.node = BASE, .samples = WEIGHT);
	SAYS(push_clock, fields(ROUND, BASE, AUX, WEIGHT, 0), .clock = ROUND, .from = BASE,
		.samples = WEIGHT, .factor = AUX);
	SAYS(push_ok_rounds, fields(ROUND, BASE, 0, 0, 0), .round = ROUND, .version = BASE);
	SAYS(push_ok_slots, fields(ROUND, BASE, 0, 0, 0), .round = ROUND, .node = BASE);
	SAYS(push_ok_clock, fields(ROUND, BASE, 0, WEIGHT, 0), .clock = ROUND, .version = BASE,
		.slowest = WEIGHT);
	SAYS(push_ok_clock, fields(ROUND, BASE, 0, WEIGHT, PBOX_F_HAVE), .clock = ROUND,
		.version = BASE, .slowest = WEIGHT, .had = true);
}

static void
samples_of_a_push_are_those_of_either(void)
{
	struct pbox_hdr h = fields(ROUND, BASE, AUX, WEIGHT, 0);

	UNIT_EQ_U64(pbox_push_samples(&h), pbox_push_rounds_get(&h).samples);
	UNIT_EQ_U64(pbox_push_samples(&h), pbox_push_slots_get(&h).samples);
}

static void
pulls_and_results(void)
{
	SAYS(pull_rounds, fields(ROUND, 0, 0, 0, 0), .round = ROUND);
	SAYS(pull_rounds, fields(ROUND, 0, 0, 0, PBOX_F_LATEST), .round = ROUND, .latest = true);
	SAYS(pull_clock, fields(0, BASE, 0, 0, 0), .bound = BASE);
	SAYS(pull_clock, fields(0, 0, 0, 0, PBOX_F_LATEST), .bound = BASE, .latest = true);
	SAYS(result_rounds, fields(ROUND, ROUND, AUX, WEIGHT, 0), .version = ROUND,
		.samples = WEIGHT, .contributors = AUX);
	SAYS(result_clock, fields(ROUND, BASE, AUX, WEIGHT, 0), .version = ROUND, .own = BASE,
		.slowest = WEIGHT, .members = AUX);
}

static void
waits(void)
{
	SAYS(wait_rounds, fields(0, BASE, AUX, WEIGHT, 0), .version = BASE, .contributors = AUX,
		.missing = WEIGHT);
	SAYS(wait_rounds, fields(0, BASE, AUX, PBOX_WAIT_NOBODY, PBOX_F_HAVE), .version = BASE,
		.contributors = AUX, .missing = PBOX_WAIT_NOBODY, .have = true);
	SAYS(wait_slots, fields(0, BASE, AUX, WEIGHT, 0), .version = ROUND, .slot = BASE,
		.contributors = AUX, .missing = WEIGHT);
	SAYS(wait_slots, fields(0, BASE, AUX, WEIGHT, PBOX_F_HAVE), .version = BASE, .slot = ROUND,
		.contributors = AUX, .missing = WEIGHT, .have = true);
	SAYS(wait_clock, fields(0, BASE, AUX, WEIGHT, 0), .version = BASE, .missing = WEIGHT,
		.lacks = AUX);
}

static void
restores(void)
{
	struct pbox_restore_ok done = {.state = PBOX_RESTORE_DONE, .own = 7};
	struct pbox_hdr h = fields(0, 0, 0, 0, 0);

	SAYS(part, fields(ROUND, BASE, AUX, WEIGHT, 0), .version = ROUND, .offset = BASE,
		.array = AUX, .samples = WEIGHT);
	SAYS(restore_rounds, fields(ROUND, BASE, AUX, WEIGHT, 0), .version = ROUND, .source = BASE,
		.contributors = AUX, .samples = WEIGHT);
	SAYS(restore_rounds, fields(ROUND, BASE, AUX, WEIGHT, PBOX_F_HAVE), .version = ROUND,
		.source = BASE, .contributors = AUX, .samples = WEIGHT, .have = true);
	SAYS(restore_clock, fields(ROUND, BASE, AUX, WEIGHT, PBOX_F_HAVE), .version = ROUND,
		.own = BASE, .epoch = AUX, .slowest = WEIGHT, .answered = 1, .have = true);
	SAYS(restore_clock, fields(0, BASE, 0, WEIGHT, 0), .own = BASE, .slowest = 1,
		.answered = WEIGHT);
	SAYS(restore_ok, fields(0, BASE, PBOX_RESTORE_NOTED, WEIGHT, 0), .version = BASE,
		.state = PBOX_RESTORE_NOTED, .missing = WEIGHT);
	SAYS(restore_ok, fields(0, BASE, PBOX_RESTORE_FETCH, WEIGHT, 0), .version = BASE,
		.state = PBOX_RESTORE_FETCH, .arrays = WEIGHT);
	pbox_restore_ok_put(&h, &done);
	UNIT_EQ_U64(pbox_restore_ok_get(&h).own, 7);
	UNIT_EQ_U64(pbox_restore_ok_get(&h).stateless, 7);
}

static void
control_frames(void)
{
	struct pbox_hdr h = {.type = PBOX_ERROR};

	pbox_code_put(&h, PBOX_E_ELSEWHERE);
	UNIT_EQ_U64(h.aux, 21);
	UNIT_EQ_U64(pbox_code_get(&h), PBOX_E_ELSEWHERE);
	h = (struct pbox_hdr){.type = PBOX_LEFT};
	CU_ASSERT_FALSE(pbox_shutdown_get(&h));
	pbox_shutdown_put(&h);
	UNIT_EQ_U64(h.aux, 1);
	CU_ASSERT_TRUE(pbox_shutdown_get(&h));
	h.chunk = 1; /* it answers a LEAVE */
	CU_ASSERT_FALSE(pbox_shutdown_get(&h));
	h = (struct pbox_hdr){.type = PBOX_PING};
	pbox_nonce_put(&h, 0x0807060504030201);
	UNIT_EQ_U64(h.round, 0x04030201);
	UNIT_EQ_U64(h.base, 0x08070605);
	UNIT_EQ_U64(pbox_nonce_get(&h), 0x0807060504030201);
}

const struct unit_test unit_tests[] = {
	{"pushes and their answers", pushes},
	{"the samples of a push, with a node or without", samples_of_a_push_are_those_of_either},
	{"pulls and results", pulls_and_results},
	{"WAIT", waits},
	{"parts of fragments, RESTORE and its answers", restores},
	{"codes, a shutdown, nonces", control_frames},
	{NULL, NULL},
};
