/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Compiled twice: for the real engine and worker, and (with other names, see plant.py) for those with
 * planted bugs. */

#include "sim.h"

/* With several lanes these need what all lanes have; time goes on at the next turn. */

static uint32_t
next_round(const struct pbox_worker *w, struct pbox_worker_table *t, bool *restoring)
{
	pbox_worker_together((struct pbox_worker *)(uintptr_t)w, 0);
	return pbox_worker_next_round(w, t, restoring);
}

static void
declare(struct pbox_worker *w, struct pbox_worker_declaration *d)
{
	pbox_worker_together(w, 0);
	pbox_worker_declare(w, d);
}

static void
request(struct pbox_worker *w, struct pbox_worker_request *r)
{
	pbox_worker_together(w, 0);
	pbox_worker_request(w, r);
}

static void
ask(struct pbox_worker *w, struct pbox_worker_question *q)
{
	pbox_worker_together(w, 0);
	pbox_worker_ask(w, q);
}

static void
norm_ask(struct pbox_worker *w, struct pbox_worker_norm *q)
{
	pbox_worker_together(w, 0);
	pbox_worker_norm_ask(w, q);
}

static bool
slot_begin(struct pbox_worker *w, uint32_t round, unsigned slot, uint64_t now)
{
	pbox_worker_together(w, 0);
	return pbox_worker_slot_begin(w, round, slot, now);
}

const struct sim_code SIM_CODE_NAME = {
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
	.registrar_move = pbox_registrar_move,
	.registrar_scale = pbox_registrar_scale,
	.registrar_failover = pbox_registrar_failover,
	.shard_down = pbox_shard_down,
	.registrar_loaded = pbox_registrar_loaded,
	.registrar_uplink_failed = pbox_registrar_uplink_failed,
	.uplinks_create = pbox_uplinks_create,
	.uplinks_destroy = pbox_uplinks_destroy,
	.uplinks_uplink = pbox_uplinks_uplink,
	.uplinks_begin = pbox_uplinks_begin,
	.uplinks_end = pbox_uplinks_end,
	.uplinks_restore = pbox_uplinks_restore,
	.uplinks_restored = pbox_uplinks_restored,
	.uplinks_restore_cancel = pbox_uplinks_restore_cancel,
	.uplinks_up = pbox_uplinks_up,
	.uplinks_rx = pbox_uplinks_rx,
	.uplinks_step = pbox_uplinks_step,
	.uplinks_pending = pbox_uplinks_pending,
	.registrar_jobs = pbox_registrar_jobs,
	.registrar_job = pbox_registrar_job,
	.worker_create = pbox_worker_create,
	.worker_destroy = pbox_worker_destroy,
	.worker_boxes = pbox_worker_boxes,
	.worker_open = pbox_worker_open,
	.worker_state = pbox_worker_state,
	.worker_error = pbox_worker_error,
	.worker_rx = pbox_worker_rx,
	.worker_tick = pbox_worker_tick,
	.worker_shut = pbox_worker_shut,
	.worker_number = pbox_worker_number,
	.worker_declare = declare,
	.worker_table_info = pbox_worker_table_info,
	.worker_next_round = next_round,
	.worker_table_nodes = pbox_worker_table_nodes,
	.worker_table_node = pbox_worker_table_node,
	.worker_submit = pbox_worker_submit,
	.worker_plain = pbox_worker_plain,
	.worker_slot_begin = slot_begin,
	.worker_ask = ask,
	.worker_replied = pbox_worker_replied,
	.worker_norm_ask = norm_ask,
	.worker_normed = pbox_worker_normed,
	.worker_finished = pbox_worker_finished,
	.worker_request = request,
	.worker_answered = pbox_worker_answered,
	.worker_cut = pbox_worker_cut,
	.worker_lanes = pbox_worker_lanes,
	.worker_endpoints = pbox_worker_endpoints,
	.worker_together = pbox_worker_together,
	.worker_steady = pbox_worker_steady,
	.worker_lane_rx = pbox_worker_lane_rx,
	.worker_lane_rest = pbox_worker_lane_rest,
	.worker_lane_tick = pbox_worker_lane_tick,
};
