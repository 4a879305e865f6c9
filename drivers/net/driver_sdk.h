/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef DRIVER_SDK_H
#define DRIVER_SDK_H

/* The driver's side of ethdev and of the virtual bus: DPDK's own headers where they are installed,
 * else our declarations of the one release that we know. */

#if __has_include(<ethdev_driver.h>) && __has_include(<bus_vdev_driver.h>)
#include <ethdev_driver.h>
#include <bus_vdev_driver.h>
#include <rte_flow_driver.h>
#else
#include "driver_abi_22_11.h"
#endif

#endif /* DRIVER_SDK_H */
