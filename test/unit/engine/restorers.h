/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef RESTORERS_H
#define RESTORERS_H

/* Workers of a box that has been restarted, reporting what they hold of chunk 0, fragment 0. */

#include "fixture.h"

#define ALL 0xFFu /* bitmap of workers: all of them are restorers */

extern struct fx_worker w[4];
extern const float v4[4], v5[4], g[4][4];
extern struct fx_table reduce, adam;

/* n workers join and declare table 0, those of the bitmap as restorers. */
void begin(uint16_t n, struct fx_table t, unsigned restorers);
struct pbox_hdr restore(unsigned i, uint32_t round, bool have);
void tell(unsigned i, uint32_t round, bool have);
/* With four fp32 values. */
void give(unsigned i, uint32_t round, const float *v);
/* The answer to this worker since the last frame. */
void expect_at(const char *file, int line, unsigned i, enum pbox_restore how, uint32_t base,
	uint32_t weight);
#define EXPECT(i, how, base, weight) \
	expect_at(__FILE__, __LINE__, i, PBOX_RESTORE_##how, base, weight)
void pull(unsigned i, uint32_t round);
void expect_result_at(const char *file, int line, unsigned i, uint32_t round, const float *v);
#define EXPECT_RESULT(i, round, v) expect_result_at(__FILE__, __LINE__, i, round, v)

#endif /* RESTORERS_H */
