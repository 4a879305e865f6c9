/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef DEVICE_H
#define DEVICE_H

/* test_device.c: the pure part, and the device without its data */

void test_gather(void);
void test_headers(void);
void test_arguments(void);
void test_addresses(void);
void test_link(void);
void test_made_again(void);
void test_queues(void);
void test_interrupts(void);

#endif /* DEVICE_H */
