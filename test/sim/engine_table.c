/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Compiled twice: for the real engine, and (with other names, see plant.py) for the one with
 * planted bugs. */

#include "sim.h"

const struct sim_engine SIM_ENGINE_NAME = {
	.shard_create = pbox_shard_create,
	.shard_destroy = pbox_shard_destroy,
	.shard_rx = pbox_shard_rx,
	.shard_pace = pbox_shard_pace,
	.shard_mail = pbox_shard_mail,
	.shard_held = pbox_shard_held,
	.registrar_create = pbox_registrar_create,
	.registrar_destroy = pbox_registrar_destroy,
	.registrar_rx = pbox_registrar_rx,
	.registrar_mail = pbox_registrar_mail,
	.registrar_heard = pbox_registrar_heard,
	.registrar_tick = pbox_registrar_tick,
	.registrar_jobs = pbox_registrar_jobs,
	.registrar_job = pbox_registrar_job,
};
