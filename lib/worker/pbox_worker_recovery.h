/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_WORKER_RECOVERY_H
#define PBOX_WORKER_RECOVERY_H

/**
 * @file
 * Constants of loss recovery and congestion control (R6.4, R6.9, R6.10) that all workers have in common: those of this
 * library, and a host with a data path of its own. Times are ms.
 */

#define PBOX_RECOVERY_TOLERATED \
	(1.0 / 32)             /**< of the frames of a round trip: the window shrinks beyond that */
#define PBOX_RECOVERY_FEW   16 /**< frames under way, which may all be lost */
#define PBOX_RECOVERY_LOSSY 200 /**< for so long after a proven loss others are likely */
#define PBOX_RECOVERY_PEAK  50  /**< the longest round trip of late decays in this time */
#define PBOX_RECOVERY_HELD \
	20 /**< until a question about a contribution that the box has, at least */
#define PBOX_RECOVERY_PROBED \
	250 /**< until the next question, at most, while the box may not have it */
#define PBOX_RECOVERY_LONGEST 1000 /**< of all time-outs */
#define PBOX_RECOVERY_SHIFT   8    /**< a time-out doubles so often */

#endif /* PBOX_WORKER_RECOVERY_H */
