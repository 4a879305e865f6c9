/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "pbox_base.h"

static uint64_t
splitmix64(uint64_t *x)
{
	uint64_t z = (*x += UINT64_C(0x9E3779B97F4A7C15));

	z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
	return z ^ (z >> 31);
}

static uint64_t
rotl(uint64_t x, unsigned k)
{
	return x << k | x >> (64 - k);
}

void
pbox_random_seed(struct pbox_random *r, uint64_t seed)
{
	for (unsigned i = 0; i < 4; i++)
		r->s[i] = splitmix64(&seed);
}

uint64_t
pbox_random_u64(struct pbox_random *r)
{
	uint64_t *s = r->s, result = rotl(s[1] * 5, 7) * 9, t = s[1] << 17;

	s[2] ^= s[0];
	s[3] ^= s[1];
	s[1] ^= s[2];
	s[0] ^= s[3];
	s[2] ^= t;
	s[3] = rotl(s[3], 45);
	return result;
}

uint64_t
pbox_random_below(struct pbox_random *r, uint64_t n)
{
	uint64_t limit = -n % n, x; /* 2^64 mod n values at the bottom are refused */

	PBOX_ASSERT(n > 0);
	do
		x = pbox_random_u64(r);
	while (x < limit);
	return x % n;
}

double
pbox_random_unit(struct pbox_random *r)
{
	return (double)(pbox_random_u64(r) >> 11) * 0x1p-53;
}
