/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Whether the map that etcd has is the one that was seen last. An etcd that was restored from a snapshot counts epochs and revisions again. */

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "pbox_fleet.h"

static void
history_fell(struct pbox_fleet_history *h, const struct pbox_fleet_view *view)
{
	const struct pbox_fleet_map *now = &view->map;

	if (!view->has_map)
		pbox_fail(&h->fell, ESTALE,
			"etcd has lost the map, which was of epoch %" PRIu64
			": what persons have set is as this agent remembers it, or gone",
			h->map.epoch);
	else if (now->epoch < h->map.epoch)
		pbox_fail(&h->fell, ESTALE,
			"the map in etcd went back from epoch %" PRIu64 " to %" PRIu64
			": etcd was restored or has lost data, and what was set in between is gone",
			h->map.epoch, now->epoch);
	else if (view->revision < h->revision)
		pbox_fail(&h->fell, ESTALE,
			"etcd went back from revision %" PRId64 " to %" PRId64
			": it was restored or is another one, and what was set in between is gone",
			h->revision, view->revision);
	else if (now->epoch == h->map.epoch && memcmp(now, &h->map, sizeof(*now)) != 0)
		pbox_fail(&h->fell, ESTALE,
			"there are two maps of epoch %" PRIu64
			": etcd was restored or has lost data, and what was set in between is gone",
			now->epoch);
}

void
pbox_fleet_history_note(struct pbox_fleet_history *h, const struct pbox_fleet_view *view)
{
	if (h->serial != 0)
		history_fell(h, view);
	h->revision = view->revision;
	if (!view->has_map || (h->serial != 0 && memcmp(&view->map, &h->map, sizeof(h->map)) == 0))
		return;
	PBOX_ASSERT(view->map.epoch > 0);
	h->map = view->map;
	h->serial++;
}
