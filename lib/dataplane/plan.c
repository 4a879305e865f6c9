/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>

#include "pbox_dataplane.h"

/* An earlier port with the address of port @p p, or @p p. */
static unsigned
plan_same_address(const struct pbox_port_conf *port, unsigned p)
{
	unsigned k = 0;

	while (port[k].ip != port[p].ip)
		k++;
	return k;
}

static bool
same_cores(const struct pbox_port_conf *a, const struct pbox_port_conf *b)
{
	return a->n_cores == b->n_cores &&
	       memcmp(a->core, b->core, a->n_cores * sizeof(a->core[0])) == 0;
}

int
pbox_dp_plan(const struct pbox_port_conf *port, unsigned n_ports, const uint8_t *node_of,
	uint16_t control_port, struct pbox_engine_endpoint *out, unsigned max,
	struct pbox_error *err)
{
	unsigned n = 0;

	for (unsigned p = 0; p < n_ports; p++) {
		unsigned first = plan_same_address(port, p);

		/* a worker that reaches one of them must reach all cores by it */
		if (!same_cores(&port[first], &port[p]))
			return pbox_fail(err, EINVAL,
				"%s and %s share an address and have different cores: give both the same (cores = ...)",
				port[first].where, port[p].where);
		for (unsigned i = 0; i < port[p].n_cores && first == p; i++) {
			uint16_t core = port[p].core[i];

			if (control_port + 1u + core > UINT16_MAX)
				return pbox_fail(err, E2BIG,
					"control-port %u leaves no UDP ports for %u cores: choose a lower one",
					control_port, core + 1u);
			if (n == max)
				return pbox_fail(err, E2BIG,
					"ports times cores is more than %u endpoints: give each port fewer cores (cores = ... in %s)",
					max, port[p].where);
			memcpy(out[n].addr.ipv4, &port[p].ip, 4);
			out[n].addr.udp = (uint16_t)(control_port + 1 + core);
			out[n].shard = core;
			out[n].node = node_of[core];
			n++;
		}
	}
	return (int)n;
}
