/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef UNIT_EAL_H
#define UNIT_EAL_H

/**
 * Start the EAL, once in a program: no privileges, no hugepages, no PCI device, nothing shared
 * with another process; its folder goes with the program. A failure ends the test.
 *
 * @param args  what else the EAL gets, ended by NULL; at most 20
 */
void unit_eal(const char *const args[]);

#endif /* UNIT_EAL_H */
