/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <rte_common.h>
#include <rte_eal.h>

#include "eal.h"
#include "unit.h"

/* EAL leaves its folder, which is empty without a shared configuration. */
static void
remove_runtime_dir(void)
{
	rmdir(rte_eal_get_runtime_dir());
}

void
unit_eal(const char *const args[])
{
	static const char *const always[] = {
		"--no-huge", "--no-pci", "--no-shconf", "--log-level", "error"};
	static char program[40], prefix[80], *argv[32] = {program};
	static bool started;
	int argc = 1;

	if (started)
		return;
	started = true;
	snprintf(program, sizeof(program), "unit_%s", unit_suite);
	snprintf(prefix, sizeof(prefix), "--file-prefix=%s_%d", program, (int)getpid());
	argv[argc++] = prefix;
	for (unsigned i = 0; i < RTE_DIM(always); i++)
		argv[argc++] = (char *)(uintptr_t)always[i];
	for (unsigned i = 0; args[i] != NULL; i++) {
		CU_ASSERT_FATAL(argc < (int)RTE_DIM(argv) - 1);
		argv[argc++] = (char *)(uintptr_t)args[i];
	}
	CU_ASSERT_FATAL(rte_eal_init(argc, argv) >= 0);
	atexit(remove_runtime_dir);
}
