/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef NORM_H
#define NORM_H

/* The norm of a round (R6.15): norm.c. */

struct pbox_worker_norm;

struct norms {
	struct pbox_worker_norm *first; /* not answered; a table has one at most */
	struct pbox_worker_norm *ended; /* for the host */
};

#endif /* NORM_H */
