/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef PBOX_MODES_H
#define PBOX_MODES_H

/**
 * @file
 * Modes that the configuration names and other libraries work in, each written once: X(symbol, name). Options, messages
 * and telemetry take their names from these lists.
 */

#define PBOX_MODE_SYMBOL(symbol, name) symbol,
#define PBOX_MODE_NAME(symbol, name)   #name,

/** What a core does without packets: by itself, and all. */
#define PBOX_IDLE_LOOPS(X) \
	X(PBOX_IDLE_POLL, poll) X(PBOX_IDLE_YIELD, yield) X(PBOX_IDLE_SLEEP, sleep)
#define PBOX_IDLES(X) PBOX_IDLE_LOOPS(X) X(PBOX_IDLE_INTERRUPT, interrupt)
enum pbox_idle {
	PBOX_IDLE_AUTO =
		-1, /**< of the configuration: one of the others, by the CPUs that there are */
	PBOX_IDLES(PBOX_MODE_SYMBOL)
};

/** How packets come to their core. */
#define PBOX_STEERS(X)                                                             \
	X(PBOX_STEER_AUTO, auto) /**< by the device where it can, else by rings */ \
	X(PBOX_STEER_FLOW, flow) /**< by the device, or it is an error */          \
	X(PBOX_STEER_RING, ring) /**< by software */
enum pbox_steer { PBOX_STEERS(PBOX_MODE_SYMBOL) };

#endif /* PBOX_MODES_H */
