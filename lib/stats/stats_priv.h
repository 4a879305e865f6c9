/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef STATS_PRIV_H
#define STATS_PRIV_H

#include <pthread.h>

#include "pbox_stats.h"

struct pbox_stats {
	pthread_mutex_t lock;
	unsigned capacity;
	unsigned top;                     /* slots at and above were never used */
	struct pbox_stats_block blocks[]; /* a free one has n = 0 */
};

#endif /* STATS_PRIV_H */
