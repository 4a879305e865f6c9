/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef CHAOS_OPS_H
#define CHAOS_OPS_H

#include "driver_sdk.h"

/* Between probing (chaos_ethdev.c) and the functions of the device (chaos_ops.c). */

struct chaos_port;

extern const struct eth_dev_ops chaos_ops;
int chaos_close(struct rte_eth_dev *dev);
void chaos_pool_free(struct chaos_port *port);

#endif /* CHAOS_OPS_H */
