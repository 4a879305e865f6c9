/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>

#include "racks.h"

/* What happens in the run of a seed. */

#define MISHAP_FROM (5 * MS)

static uint64_t
below(struct pbox_random *r, uint64_t n)
{
	return n == 0 ? 0 : pbox_random_below(r, n);
}

static bool
chance(struct pbox_random *r, double p)
{
	return pbox_random_unit(r) < p;
}

static void
make_job(struct racks_spec *sp, struct pbox_random *r)
{
	static const unsigned part[] = {1, 2, 4};

	sp->racks = 2 + (unsigned)below(r, 10) / 4; /* 2: 4 of 10, 3: 4, 4: 2 */
	if (chance(r, 0.6)) {
		sp->workers = sp->racks * part[below(r, sp->racks > 3 ? 2 : 3)];
	} else {
		unsigned per = 1 + (unsigned)below(r, 3), slots = 1;

		while (slots < per)
			slots *= 2;
		sp->workers = sp->racks * per;
		sp->slots = sp->racks * (slots << below(r, 3));
	}
	sp->rounds = 3 + (unsigned)below(r, RACKS_ROUNDS - 2);
	sp->tables = 1 + (unsigned)below(r, RACKS_TABLES);
	for (unsigned t = 0; t < sp->tables; t++) {
		struct racks_table *x = &sp->table[t];

		x->op = (uint8_t)below(r, PBOX_OP_WEIGHTED_MEAN + 1);
		/* of several slots the node is rounded, and not the slots: another sum (R5.2b) */
		x->push = sp->slots == 0 && chance(r, 0.3) ? PBOX_FMT_BF16 : PBOX_FMT_FP32;
		x->pull = chance(r, 0.3) ? PBOX_FMT_BF16 : PBOX_FMT_FP32;
		x->tensors = 1 + (unsigned)below(r, RACKS_TENSORS);
		for (unsigned i = 0; i < x->tensors; i++)
			x->elements[i] = (uint32_t)below(r, chance(r, 0.3) ? 20 : 1500);
		x->elements[0]++;
	}
}

static void
make_boxes(struct racks_spec *sp, struct pbox_random *r)
{
	for (unsigned i = 0; i < 2; i++) {
		sp->shards[i] = 1 + (unsigned)below(r, RACKS_SHARDS);
		sp->hold[i] = 1024;
	}
	/* windows of few frames, as well as of all; the upper one is large enough for a frame at each endpoint of a rack (R18.6) */
	if (chance(r, 0.6))
		sp->hold[0] = 5 * sp->racks * 2 * sp->shards[1] + (unsigned)below(r, 60);
	if (chance(r, 0.4))
		sp->hold[1] = 40 + (unsigned)below(r, 200);
	sp->mtu = SIM_LEAST + (unsigned)below(r, chance(r, 0.7) ? 100 : 900);
	sp->chunk_elements = 128 + (unsigned)below(r, chance(r, 0.7) ? 128 : 1024);
	sp->auth = chance(r, 0.2);
	sp->late_dma = chance(r, 0.5);
	sp->ahead = chance(r, 0.5);
	sp->compute_ns = below(r, 2) * below(r, 5 * MS);
}

static void
make_net(struct racks_net *n, struct pbox_random *r, double loss)
{
	static const double most[] = {0.0, 0.01, 0.1, 0.3};

	n->loss = loss >= 0.0 ? loss : most[below(r, 4)] * pbox_random_unit(r);
	n->dup = chance(r, 0.5) ? 0.1 * pbox_random_unit(r) : 0.0;
	n->reorder = chance(r, 0.7) ? 0.3 * pbox_random_unit(r) : 0.0;
	n->damage = chance(r, 0.4) ? 0.03 * pbox_random_unit(r) : 0.0;
	n->delay_ns = 5 * US + below(r, 100 * US);
	n->jitter_ns = 1 + below(r, 100 * US);
	n->reorder_ns = 1 + below(r, chance(r, 0.3) ? 30 * MS : 2 * MS);
}

static void
make_mishap(struct racks_spec *sp, struct pbox_random *r, struct racks_mishap *m)
{
	m->at = MISHAP_FROM + below(r, chance(r, 0.5) ? 50 * MS : 400 * MS);
	m->ns = below(r, chance(r, 0.7) ? 100 * MS : 3 * SEC);
	switch (below(r, 8)) {
	case 0:
	case 1:
	case 2:
		m->kind = RACKS_CRASH;
		m->who = 1u << (1 + below(r, sp->racks));
		break;
	case 3:
	case 4:
		m->kind = RACKS_CRASH;
		m->who = 1;
		break;
	case 5:
		m->kind = RACKS_KILL;
		m->who = (unsigned)below(r, sp->workers);
		break;
	case 6:
		m->kind = RACKS_CUT;
		m->who = (unsigned)below(r, sp->racks);
		m->ns = chance(r, 0.3) ? 30 * SEC : m->ns;
		break;
	default:
		m->kind = RACKS_REPLACE;
	}
}

/* Boxes of racks die together with the upper one. Numbers of its own: what else happens is what it was before there was that. */
static void
make_together(struct racks_spec *sp, uint64_t seed)
{
	struct pbox_random r;

	pbox_random_seed(&r, seed ^ UINT64_C(0x70C3));
	sp->hasty = true;
	for (unsigned i = 0; i < sp->mishaps; i++) {
		struct racks_mishap *m = &sp->mishap[i];

		/* a rack of one worker that was killed has nothing without its box */
		sp->hasty = sp->hasty && m->kind != RACKS_KILL;
		if (m->kind != RACKS_CRASH || !chance(&r, 0.35))
			continue;
		m->who |= 1;
		for (unsigned k = 1; k <= sp->racks; k++)
			if (chance(&r, m->who == 1 ? 0.7 : 0.3))
				m->who |= 1u << k;
	}
	sp->hasty = sp->hasty && seed % 2 == 1;
}

void
racks_spec_make(struct racks_spec *sp, uint64_t seed, double loss)
{
	struct pbox_random r;

	*sp = (struct racks_spec){.seed = seed};
	pbox_random_seed(&r, seed ^ UINT64_C(0x2AC45));
	make_job(sp, &r);
	make_boxes(sp, &r);
	make_net(&sp->within, &r, loss);
	make_net(&sp->between, &r, loss);
	if (chance(&r, 0.6))
		sp->mishaps = 1 + (unsigned)below(&r, 3);
	for (unsigned i = 0; i < sp->mishaps; i++)
		make_mishap(sp, &r, &sp->mishap[i]);
	make_together(sp, seed);
	if (sp->mishaps >
		0) /* R6.9: the window of one that comes back may be full of rounds that others have not begun */
		sp->ahead = false;
}

static void
print_net(const char *name, const struct racks_net *n)
{
	printf("%s: loss %.3f, twice %.3f, late %.3f by up to %llu us, damaged %.3f, %llu to %llu us\n",
		name, n->loss, n->dup, n->reorder, (unsigned long long)(n->reorder_ns / US),
		n->damage, (unsigned long long)(n->delay_ns / US),
		(unsigned long long)((n->delay_ns + n->jitter_ns) / US));
}

void
racks_spec_print(const struct racks_spec *sp)
{
	static const char *const kind[] = {
		"crash of boxes", "worker killed", "link of rack cut", "another run"};

	printf("seed %llu: %u racks, %u workers, %u slots, %u rounds, %u + %u endpoints, MTU %u, hold %u + %u%s%s%s%s\n",
		(unsigned long long)sp->seed, sp->racks, sp->workers, racks_slots(sp), sp->rounds,
		sp->shards[0], sp->shards[1], sp->mtu, sp->hold[0], sp->hold[1],
		sp->auth ? ", tags" : "", sp->late_dma ? ", late reads" : "",
		sp->ahead ? ", ahead" : "", sp->hasty ? ", hasty" : "");
	for (unsigned t = 0; t < sp->tables; t++) {
		printf("table %u: op %u, formats %u, %u:", t, sp->table[t].op, sp->table[t].push,
			sp->table[t].pull);
		for (unsigned i = 0; i < sp->table[t].tensors; i++)
			printf(" %u", sp->table[t].elements[i]);
		putchar('\n');
	}
	print_net("in racks", &sp->within);
	print_net("between them", &sp->between);
	for (unsigned i = 0; i < sp->mishaps; i++)
		printf("after %llu us: %s %x, for %llu us\n",
			(unsigned long long)(sp->mishap[i].at / US), kind[sp->mishap[i].kind],
			sp->mishap[i].who, (unsigned long long)(sp->mishap[i].ns / US));
}
