/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_BOUNDS_H
#define PBOX_BOUNDS_H

/**
 * @file
 * What an operator lets a job have. It goes as it is from the option table to the data cores, and may change while the
 * job runs: it is a value, copied whole.
 */

#include <stdint.h>

struct pbox_job_bounds {
	uint64_t memory;   /**< bytes on all nodes together; 0: no limit but the box's */
	uint64_t lease_ns; /**< 0: the box's default */
	uint64_t grace_ns; /**< 0: the box's default */
	uint32_t rate;     /**< contributions summed a second and core; 0: no limit */
	uint32_t
		repeats; /**< frames that move no round, a second, worker and core (R6.12); 0: no limit */
	uint32_t requests; /**< control frames a second, session and core (R6.12); 0: no limit */
};

#endif /* PBOX_BOUNDS_H */
