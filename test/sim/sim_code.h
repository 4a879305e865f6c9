/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef SIM_CODE_H
#define SIM_CODE_H

/* What the simulator calls of the engine and of lib/worker: as it is, or with planted bugs. */

#include <pbox_engine.h>
#include <pbox_registrar_operator.h>
#include <pbox_registrar_snapshot.h>
#include <pbox_registrar_view.h>
#include <pbox_shard.h>
#include <pbox_slots.h>
#include <pbox_uplinks.h>
#include <pbox_worker.h>

struct sim_code {
	struct pbox_shard *(*shard_create)(const struct pbox_shard_conf *conf);
	void (*shard_destroy)(struct pbox_shard *s);
	uint64_t (*shard_rx)(
		struct pbox_shard *s, const struct pbox_frame *frame, unsigned n, uint64_t now_ns);
	unsigned (*shard_pace)(struct pbox_shard *s, uint64_t now_ns);
	void (*shard_mail)(struct pbox_shard *s, const struct pbox_mail *m, uint64_t now_ns);
	uint32_t (*shard_held)(const struct pbox_shard *s);
	struct pbox_registrar *(*registrar_create)(const struct pbox_registrar_conf *conf);
	void (*registrar_destroy)(struct pbox_registrar *r);
	void (*registrar_rx)(struct pbox_registrar *r, const struct pbox_frame *f, uint64_t now_ns);
	void (*registrar_mail)(
		struct pbox_registrar *r, const struct pbox_mail *m, uint64_t now_ns);
	void (*registrar_heard)(struct pbox_registrar *r, uint64_t ns);
	void (*registrar_tick)(struct pbox_registrar *r, uint64_t now_ns);
	int (*registrar_scale)(struct pbox_registrar *r, uint16_t job, uint16_t set,
		uint64_t now_ns, struct pbox_error *err);
	int (*registrar_failover)(struct pbox_registrar *r, uint16_t job, unsigned box, bool force,
		uint64_t now_ns, unsigned *stateless, struct pbox_error *err);
	int (*registrar_move)(struct pbox_registrar *r, uint16_t job, uint32_t table,
		uint32_t first, uint32_t last, unsigned box, uint64_t now_ns,
		struct pbox_error *err);
	/* of a rack's box */
	void (*shard_down)(struct pbox_shard *s, const struct pbox_up *up, uint64_t now_ns);
	void (*registrar_loaded)(struct pbox_registrar *r, const struct pbox_job *job,
		uint32_t table, const struct pbox_error *err, uint64_t now_ns);
	void (*registrar_uplink_failed)(struct pbox_registrar *r, const struct pbox_job *job,
		const char *why, uint64_t now_ns);
	struct pbox_uplinks *(*uplinks_create)(const struct pbox_uplinks_conf *conf);
	void (*uplinks_destroy)(struct pbox_uplinks *s);
	int (*uplinks_uplink)(struct pbox_uplinks *s, const struct pbox_registrar_uplink *run,
		uint64_t now, unsigned *window, struct pbox_error *err);
	void (*uplinks_begin)(
		struct pbox_uplinks *s, const struct pbox_job *job, const uint8_t *run);
	void (*uplinks_end)(
		struct pbox_uplinks *s, const struct pbox_job *job, bool leaves, uint64_t now);
	int (*uplinks_restore)(struct pbox_uplinks *s, const struct pbox_job *job,
		const struct pbox_table *t, bool restoring);
	void (*uplinks_restored)(
		struct pbox_uplinks *s, const struct pbox_job *job, const struct pbox_table *t);
	void (*uplinks_restore_cancel)(
		struct pbox_uplinks *s, const struct pbox_job *job, uint32_t table);
	void (*uplinks_up)(struct pbox_uplinks *s, const struct pbox_up *up);
	void (*uplinks_rx)(struct pbox_uplinks *s, unsigned link, const struct pbox_client_rx *d,
		unsigned n, uint64_t now);
	uint64_t (*uplinks_step)(struct pbox_uplinks *s, uint64_t now);
	unsigned (*uplinks_pending)(const struct pbox_uplinks *s);

	unsigned (*registrar_jobs)(const struct pbox_registrar *r);
	const struct pbox_job *(*registrar_job)(const struct pbox_registrar *r, unsigned i);

	struct pbox_worker *(*worker_create)(const struct pbox_client_conf *conf,
		const struct sockaddr_in *box, struct pbox_worker_ops *port);
	void (*worker_destroy)(struct pbox_worker *w);
	void (*worker_boxes)(struct pbox_worker *w, const struct sockaddr_in *box, unsigned n);
	void (*worker_open)(struct pbox_worker *w, uint64_t now, uint64_t deadline);
	enum pbox_worker_state (*worker_state)(const struct pbox_worker *w);
	const struct pbox_client_error *(*worker_error)(const struct pbox_worker *w);
	void (*worker_rx)(
		struct pbox_worker *w, const struct pbox_client_rx *d, unsigned n, uint64_t now);
	uint64_t (*worker_tick)(struct pbox_worker *w, uint64_t now, uint64_t drained);
	void (*worker_shut)(struct pbox_worker *w);
	unsigned (*worker_number)(const struct pbox_worker *w);
	void (*worker_declare)(struct pbox_worker *w, struct pbox_worker_declaration *d);
	void (*worker_table_info)(
		const struct pbox_worker_table *t, struct pbox_worker_table_info *info);
	uint32_t (*worker_next_round)(
		const struct pbox_worker *w, struct pbox_worker_table *t, bool *restoring);
	unsigned (*worker_table_nodes)(
		const struct pbox_worker *w, const struct pbox_worker_table *t);
	struct pbox_node (*worker_table_node)(
		const struct pbox_worker *w, const struct pbox_worker_table *t, unsigned i);
	void (*worker_submit)(struct pbox_worker *w, struct pbox_worker_op *op);
	bool (*worker_plain)(struct pbox_worker_table *t, uint32_t round, bool plain);
	bool (*worker_slot_begin)(
		struct pbox_worker *w, uint32_t round, unsigned slot, uint64_t now);
	void (*worker_ask)(struct pbox_worker *w, struct pbox_worker_question *q);
	struct pbox_worker_question *(*worker_replied)(struct pbox_worker *w);
	void (*worker_norm_ask)(struct pbox_worker *w, struct pbox_worker_norm *q);
	struct pbox_worker_norm *(*worker_normed)(struct pbox_worker *w);
	struct pbox_worker_op *(*worker_finished)(struct pbox_worker *w);
	void (*worker_request)(struct pbox_worker *w, struct pbox_worker_request *r);
	struct pbox_worker_request *(*worker_answered)(struct pbox_worker *w);
	int (*worker_cut)(struct pbox_worker *w, struct pbox_worker_ops *const *port, unsigned n);
	unsigned (*worker_lanes)(const struct pbox_worker *w);
	unsigned (*worker_endpoints)(const struct pbox_worker *w, unsigned lane,
		const struct sockaddr_in **addr, unsigned cap);
	void (*worker_together)(struct pbox_worker *w, uint64_t now);
	bool (*worker_steady)(struct pbox_worker *w, unsigned lane, uint64_t now);
	bool (*worker_lane_rx)(struct pbox_worker *w, unsigned lane, const struct pbox_client_rx *d,
		unsigned n, uint64_t now);
	void (*worker_lane_rest)(struct pbox_worker *w, unsigned lane, uint64_t now);
	uint64_t (*worker_lane_tick)(
		struct pbox_worker *w, unsigned lane, uint64_t now, uint64_t drained);
};

#endif /* SIM_CODE_H */
