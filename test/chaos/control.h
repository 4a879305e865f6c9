/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef CONTROL_H
#define CONTROL_H

void test_shared(void);
void test_external(void);
void test_idle_sender(void);
void test_full_port(void);
void test_queues(void);
void test_device(void);
void test_ownership(void);
void test_arguments(void);
void test_telemetry(void);
void test_stats_reset(void);

#endif /* CONTROL_H */
