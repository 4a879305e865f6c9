/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_log.h>
#include <rte_pdump.h>

#include "box.h"

int
host_start(struct box *b, int argc, char **argv, struct pbox_error *err)
{
	int ret;

	ret = eal_check(argc, argv, err);
	if (ret != 0)
		return ret;
	/* EAL reads its arguments up to "--" */
	ret = rte_eal_init(argc, argv);
	if (ret < 0)
		return pbox_fail(err, rte_errno > 0 ? rte_errno : EINVAL,
			"EAL does not start%s%s%s: see its lines above. Without hugepages: --no-huge -m 512; another pbox on this host: --file-prefix NAME",
			rte_errno > 0 ? " (" : "", rte_errno > 0 ? rte_strerror(rte_errno) : "",
			rte_errno > 0 ? ")" : "");
	b->eal = true;
	log_level_of_eal();
	guard_files(b);
	return 0;
}

/* Not before the box has what it needs: where memory is short, nothing can be captured. Nor without
 * hugepages, or with --in-memory. */
void
host_capture(struct box *b)
{
	b->capture = rte_eal_has_hugepages() && rte_pdump_init() == 0;
}

void
host_stop(struct box *b)
{
	if (b->capture)
		rte_pdump_uninit();
	/* it stops ports that were never started, and says that they were not */
	rte_log_set_level_pattern("lib.ethdev", RTE_LOG_WARNING);
	if (b->eal)
		rte_eal_cleanup();
	b->eal = false;
}
