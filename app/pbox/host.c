/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <string.h>

#include <rte_common.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_log.h>
#include <rte_pdump.h>

#include "box.h"

/* What eal_check() does not see beforehand, in EAL's words. */
static int
host_failed(int code, struct pbox_error *err)
{
	static const struct {
		const char *part, *next; /* of its first error */
	} hint[] = {
		{"ugepage", ". Without hugepages: --no-huge -m 512"},
		{"emory", ". Its memory: -m MIB (without hugepages: --no-huge -m 512)"},
		{"lock", ". Another pbox on this host: --file-prefix NAME"},
		{"parse device", ". A --vdev: the name of its driver, such as net_af_packet0"},
		{"affinity",
			". Its CPUs: those of -l or --lcores, which must be among those that this process may use"},
	};
	const char *cause = log_error_of_eal(), *next = "";

	for (unsigned i = 0; i < RTE_DIM(hint) && next[0] == '\0'; i++)
		if (strstr(cause, hint[i].part) != NULL)
			next = hint[i].next;
	if (cause[0] == '\0')
		cause = code > 0 ? rte_strerror(code) : "see its lines above";
	return pbox_fail(err, code > 0 ? code : EINVAL, "EAL does not start: %s%s", cause, next);
}

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
		return host_failed(rte_errno, err);
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
