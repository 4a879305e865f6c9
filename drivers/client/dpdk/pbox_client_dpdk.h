/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_CLIENT_DPDK_H
#define PBOX_CLIENT_DPDK_H

/**
 * @file
 * The transport "dpdk" of libpbox-client: a worker that owns a DPDK port sends and receives through
 * it without the kernel. pbox_client_dpdk(3) is the page for users.
 *
 *	conf.transport = "dpdk";
 *	conf.transport_args = "--in-memory -a 0000:3b:00.1 -- address=10.0.0.2/24";
 *
 * Nothing has to be linked for that: libpbox-client loads libpbox-client-dpdk.so.1. A program that
 * links it anyway, or the static library, registers it first:
 *
 *	pbox_client_transport_register(&pbox_client_transport_dpdk, &err);
 *
 * transport_args: arguments of EAL, the word "--", and these, separated by blanks:
 *
 *	address=A.B.C.D/PREFIX  of the port; required
 *	gateway=A.B.C.D         next hop to boxes outside the subnet
 *	port=NUMBER or NAME     default: the first that no other client of the process has
 *	idle=poll|sleep         with nothing to do, poll on (a CPU of its own), or sleep between
 *	                        looks (for CPUs that others need); default: poll
 *	zero-copy=auto|off      auto: send tensors without a copy, where the port can; default: auto
 *
 * EAL: started by the first open of a process that has arguments before the "--"; later opens give
 * the same ones, or none. An application that has called rte_eal_init() itself gives none.
 * The thread that opens keeps its CPU affinity; without -l, -c or --lcores EAL gets one lcore on
 * the CPU that the thread is on, without --log-level it says warnings only.
 *
 * Ports: each client has one of its own. It stays configured when the client closes, for the next
 * one that asks for it, with an MTU up to the first one's. No other part of the program may use it.
 *
 * Threads: a client has one progress thread, whatever pbox_client_conf.threads says: more of them would need a port that gives
 * the answers of each endpoint to a queue of its own, and many do not.
 *
 * Memory: pbox_client_alloc() gives memory that the port can send from. So does memory that EAL
 * knows otherwise (rte_malloc, or rte_extmem_register with rte_dev_dma_map for this device).
 * Everything else is copied once, into the packet; pbox_client_stats counts both.
 *
 * Errors of open: PBOX_C_INVALID (arguments), PBOX_C_SYSTEM (EAL or the port), PBOX_C_MEMORY,
 * PBOX_C_UNREACHABLE (no link, or nobody answers ARP).
 */

#include <pbox_client_transport.h>

#ifdef __cplusplus
extern "C" {
#endif

extern PBOX_CLIENT_API const struct pbox_client_transport_ops pbox_client_transport_dpdk;

#ifdef __cplusplus
}
#endif

#endif /* PBOX_CLIENT_DPDK_H */
