/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef GUARD_IMPL_H
#define GUARD_IMPL_H

#include "pbox_guard.h"

/* threads.c: call @p fn in every thread of the process, this one last. In the others it runs in a
 * signal handler: system calls only. Returns the first negative errno that it returned, or
 * -ETIMEDOUT for a thread that takes no signals. */
int guard_all_threads(int (*fn)(const void *arg), const void *arg, struct pbox_error *err);

/* syscalls.c: what a running box calls without conditions; a list that ends with -1. Those that do
 * not exist on this machine are negative too: skip them (__NR_SCMP_ERROR ends). */
extern const int guard_allowed[];
extern const unsigned guard_allowed_count;

#endif /* GUARD_IMPL_H */
