/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef RACK_WAITS_H
#define RACK_WAITS_H

/* What a rack's job waits for in its rack, and above; with the control's lock. */

#include <pbox_uplinks.h>

#include "control_priv.h"

/* Once a second each job is asked, and its uplink says it to the upper box (R18.8). */
void rack_waits_step(struct pbox_control *c);
void rack_waits_stop(struct pbox_control *c);
/* Whom the upper box waits for, and whom that rack waits for, in words. False: for nobody, or it is not known. */
#define RACK_WAITS_TEXT 512
bool rack_waits_above(const struct pbox_control *c, const struct pbox_uplink_view *v, uint64_t now,
	char text[RACK_WAITS_TEXT]);

#endif /* RACK_WAITS_H */
