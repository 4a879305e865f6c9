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

struct pbox_worker;

/** A box was started again: of rounds in two phases it has lost all pushes, and what is left to be pushed waits until the program brings
 * all of them once more. */
void norm_box_restarted(struct pbox_worker *w);

#endif /* NORM_H */
