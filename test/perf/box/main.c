/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>

#include "bench.h"

int
main(int argc, char **argv)
{
	static struct options o;
	static struct result res;
	int status = options_parse(&o, argc, argv);

	if (status >= 0)
		return status;
	if (!options_complete(&o))
		return 2;
	pbox_keep_heap();
	run_all(&o, &res);
	if (o.telemetry != NULL) {
		if (!res.ok)
			fprintf(stderr, "bench_box: %s\n", res.why);
		return res.ok ? 0 : 1;
	}
	if (o.json)
		printf("{\"benchmark\":\"box\",\"results\":[");
	result_print(&res, o.json, true);
	if (o.json)
		printf("\n],\"summary\":{\"kernel_share\":%.4f,\"gbit_per_s\":%.2f}}\n", res.share,
			res.gbit);
	return res.ok ? 0 : 1;
}
