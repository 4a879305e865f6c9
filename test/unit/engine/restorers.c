/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <string.h>

#include "restorers.h"

struct fx_worker w[4];
const float v4[4] = {4, 40, 400, 4000}, v5[4] = {5, 50, 500, 5000};
const float g[4][4] = {{1, 2, 3, 4}, {0.5f, -1, 2, 0.25f}, {8, 8, 8, 8}, {-1, -2, -3, -4}};
struct fx_table reduce = {.elements = 4, .op = PBOX_OP_SUM};
struct fx_table adam = {
	.elements = 4, .mode = PBOX_MODE_OPTIMISER, .op = PBOX_OP_MEAN, .optimiser = PBOX_OPT_ADAM};

void
begin(uint16_t n, struct fx_table t, unsigned restorers)
{
	for (uint16_t i = 0; i < n; i++)
		fx_join(&w[i], "vision", i, n);
	for (uint16_t i = 0; i < n; i++) {
		t.flags = (restorers >> i & 1) != 0 ? PBOX_DECLARE_RESTORE : PBOX_DECLARE_CONTINUE;
		UNIT_EQ_U64(fx_declare(&w[i], 0, &t)->hdr.type, PBOX_DECLARED);
	}
	fx_clear();
}

struct pbox_hdr
restore(unsigned i, uint32_t round, bool have)
{
	struct pbox_hdr h = fx_data(&w[i], PBOX_RESTORE, 0, 0, round);

	h.flags = have ? PBOX_F_HAVE : 0;
	h.format = PBOX_FMT_FP32;
	h.aux = 2;
	h.weight = 10 + i;
	return h;
}

void
tell(unsigned i, uint32_t round, bool have)
{
	struct pbox_hdr h = restore(i, round, have);

	fx_clear();
	CU_ASSERT_FALSE(fx_rx(0, &w[i], &h, NULL));
}

void
give(unsigned i, uint32_t round, const float *v)
{
	struct pbox_hdr h = restore(i, round, true);

	h.length = 16;
	fx_clear();
	CU_ASSERT_FALSE(fx_rx(0, &w[i], &h, v));
}

void
expect_at(const char *file, int line, unsigned i, enum pbox_restore how, uint32_t base,
	uint32_t weight)
{
	char text[200] = "no answer";
	bool ok = false;

	for (unsigned k = 0; k < fx.n_sent; k++) {
		const struct pbox_hdr *h = &fx.sent[k].hdr;

		if (h->worker != i || h->type != PBOX_RESTORE_OK)
			continue;
		ok = h->aux == how && h->base == base && h->weight == weight && h->length == 0;
		snprintf(text, sizeof(text), "worker %u: %s, base %u, weight %u", i,
			pbox_restore_name(h->aux), h->base, h->weight);
	}
	CU_assertImplementation(ok, (unsigned)line, text, file, "", CU_FALSE);
}

void
pull(unsigned i, uint32_t round)
{
	struct pbox_hdr h = fx_data(&w[i], PBOX_PULL, 0, 0, round);

	fx_clear();
	fx_rx(0, &w[i], &h, NULL);
}

void
expect_result_at(const char *file, int line, unsigned i, uint32_t round, const float *v)
{
	bool ok = false;

	for (unsigned k = 0; k < fx.n_sent; k++) {
		const struct fx_sent *s = &fx.sent[k];

		if (s->hdr.worker == i && s->hdr.type == PBOX_RESULT && s->hdr.round == round)
			ok = memcmp(s->payload, v, 16) == 0;
	}
	CU_assertImplementation(ok, (unsigned)line, "RESULT", file, "", CU_FALSE);
}
