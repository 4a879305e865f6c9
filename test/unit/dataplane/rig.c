/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_eth_ring.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_malloc.h>

#include "eal.h"
#include "rig.h"

#define MEMORY    ((size_t)16 << 20)
#define POOL_SIZE 4096
#define STAGING   ((size_t)1 << 20)
#define PAGE      ((size_t)2 << 20)
#define BEFORE \
	((size_t)266 << 10) /* of the memory, before a page ends in the payload of an answer */

bool rig_telemetry;

static void
start_eal(void)
{
	/* more lcores than CPUs: they share the first */
	const char *const args[] = {"-m", "256", rig_telemetry ? "--telemetry" : "--no-telemetry",
		"--lcores", "0@0,1@0,2@0", NULL};

	unit_eal(args);
}

/* The device: rings [first, first + n) that the test holds the other ends of. */
static uint16_t
ring_device(struct rig *r, unsigned first, unsigned n)
{
	static unsigned number;
	char name[32];
	int id;

	number++;
	for (unsigned q = first; q < first + n; q++) {
		snprintf(name, sizeof(name), "rig_in_%u_%u", number, q);
		r->in[q] = rte_ring_create(name, 4096, SOCKET_ID_ANY, 0);
		snprintf(name, sizeof(name), "rig_out_%u_%u", number, q);
		r->out[q] = rte_ring_create(name, r->o.out_size > 0 ? r->o.out_size : 4096,
			SOCKET_ID_ANY, RING_F_EXACT_SZ);
		CU_ASSERT_FATAL(r->in[q] != NULL && r->out[q] != NULL);
	}
	snprintf(name, sizeof(name), "rig%u", number);
	id = rte_eth_from_rings(name, &r->in[first], n, &r->out[first], n, SOCKET_ID_ANY);
	CU_ASSERT_FATAL(id >= 0);
	return (uint16_t)id;
}

static void
make_pool(struct rig *r)
{
	static unsigned number;
	char name[32];

	snprintf(name, sizeof(name), "rig_pool_%u", number++);
	r->pool = rte_pktmbuf_pool_create(name, POOL_SIZE, 0, 0, 2048 + 128, SOCKET_ID_ANY);
	CU_ASSERT_PTR_NOT_NULL_FATAL(r->pool);
}

static void
open_port(struct rig *r, unsigned p, struct pbox_port_conf *c)
{
	const uint8_t mac[6] = RIG_MAC;
	struct pbox_error err = {0};

	*c = (struct pbox_port_conf){.id = ring_device(r, p, r->o.ports == 2 ? 1 : r->o.queues),
		.where = "[port 0]",
		.ip = RIG_IP + (p << 16),
		.prefix_len = 24,
		.mtu = 1500,
		.hold = r->o.hold,
		.control_port = PBOX_CONTROL_PORT,
		.n_cores = r->o.cores};
	for (unsigned i = 0; i < r->o.cores; i++)
		c->core[i] = (uint16_t)i;
	CU_ASSERT_FATAL(pbox_port_open(&r->port[p], c, &err) == 0);
	CU_ASSERT_FATAL(pbox_port_start(&r->port[p], &err) == 0);
	memcpy(r->port[p].nif.mac, mac, 6);
	CU_ASSERT(pbox_port_wait_link(&r->port[p], 100, NULL));
	if (r->o.copy)
		r->port[p].dev.tx_segments = false;
}

static void
open_ports(struct rig *r)
{
	const uint8_t node_of[4] = {0};
	struct pbox_port_conf c[RIG_QUEUES];
	struct pbox_error err = {0};
	int n;

	for (unsigned i = 0; i < r->o.cores; i++)
		r->core[i] = (struct pbox_port_core){.lcore = i + 1, .node = -1};
	for (unsigned p = 0; p < r->o.ports; p++)
		open_port(r, p, &c[p]);
	n = pbox_dp_plan(c, r->o.ports, node_of, PBOX_CONTROL_PORT, r->endpoint, 4, &err);
	UNIT_EQ_U64(n, r->o.cores * r->o.ports);
	r->n_endpoints = (unsigned)n;
}

static void
create_planes(struct rig *r)
{
	const struct pbox_dp_region region = {r->memory, r->memory_size};
	const struct pbox_dp_conf dc = {.port = r->port,
		.n_ports = r->o.ports,
		.core = r->core,
		.n_cores = r->o.cores,
		.endpoint = r->endpoint,
		.n_endpoints = r->n_endpoints,
		.control_port = PBOX_CONTROL_PORT,
		.incarnation = 77,
		.max_jobs = 4,
		.idle = PBOX_IDLE_SLEEP,
		.reduce = &pbox_reduce_scalar,
		.optim = &pbox_optim_scalar,
		.region = &region,
		.n_regions = 1};
	struct pbox_control_conf cc = {.port = r->port,
		.n_ports = r->o.ports,
		.n_cores = r->o.cores,
		.core = r->core,
		.drain_ns = r->o.drain_ns > 0 ? r->o.drain_ns : 1000000000,
		.report = r->o.report,
		.notify = r->o.notify,
		.snapshot = {.dir = r->o.snapshot_dir,
			.memory = r->staging,
			.size = STAGING,
			.keep = 2,
			.stripe_data = 4,
			.stripe_parity = 1},
		.registrar = {.incarnation = 77,
			.max_jobs = 4,
			.max_workers = 16,
			.chunk_elements = 704,
			.lease_ms = 30000,
			.mtu = 1500,
			.hold = r->o.hold,
			.n_shards = r->o.cores,
			.endpoint = r->endpoint,
			.n_endpoints = r->n_endpoints,
			.arena = {r->arena},
			.job = &r->job,
			.n_jobs = 1}};
	struct pbox_error err = {0};

	r->dp = pbox_dp_create(&dc, &err);
	if (r->dp == NULL)
		printf("%s\n", err.text);
	CU_ASSERT_PTR_NOT_NULL_FATAL(r->dp);
	cc.dp = r->dp;
	r->control = pbox_control_create(&cc, &err);
	CU_ASSERT_PTR_NOT_NULL_FATAL(r->control);
}

void
rig_start(struct rig *r, const struct rig_options *o)
{
	memset(r, 0, sizeof(*r));
	r->o = *o;
	if (r->o.ports == 0)
		r->o.ports = 1;
	if (r->o.ports == 2)
		r->o.queues = 2; /* rings */
	if (r->o.hold == 0)
		r->o.hold = 1024;
	start_eal();
	for (unsigned w = 0; w < RIG_WORKERS; w++)
		r->inbox[w] = calloc(RIG_INBOX, sizeof(*r->inbox[w]));
	r->job = (struct pbox_job_conf){.name = "j",
		.secret = RIG_SECRET,
		.secret_len = strlen(RIG_SECRET),
		.bounds.requests = r->o.requests};
	make_pool(r);
	open_ports(r);
	r->memory_size = MEMORY;
	r->memory = rte_zmalloc("rig", PAGE + MEMORY, PAGE);
	CU_ASSERT_PTR_NOT_NULL_FATAL(r->memory);
	r->memory = (uint8_t *)r->memory + PAGE - BEFORE;
	r->arena = pbox_arena_create(r->memory, MEMORY);
	r->staging = aligned_alloc(64, STAGING);
	CU_ASSERT_PTR_NOT_NULL_FATAL(r->staging);
	create_planes(r);
	for (unsigned i = 0; r->o.lcores && i < r->o.cores; i++)
		rte_eal_remote_launch(pbox_dp_run, pbox_dp_core(r->dp, i), i + 1);
}

void
rig_stop(struct rig *r)
{
	pbox_dp_stop(r->dp);
	rte_eal_mp_wait_lcore();
	if (r->o.lcores)
		rig_collect(r);
	pbox_dp_drain(r->dp);
	rig_collect(r);
	for (unsigned p = 0; p < r->o.ports; p++)
		pbox_port_close(&r->port[p]);
	rig_conserved(r);
	UNIT_EQ_U64(pbox_dp_mbufs_missing(r->dp), 0);
	for (unsigned p = 0; p < r->o.ports; p++)
		UNIT_EQ_U64(pbox_port_mbufs_missing(&r->port[p]), 0);
	UNIT_EQ_U64(rte_mempool_in_use_count(r->pool), 0);
	pbox_control_destroy(r->control);
	pbox_dp_destroy(r->dp);
	UNIT_EQ_U64(pbox_arena_used(r->arena), 0);
	pbox_arena_destroy(r->arena);
	rte_free((uint8_t *)r->memory - (PAGE - BEFORE));
	free(r->staging);
	for (unsigned p = 0; p < r->o.ports; p++)
		pbox_port_free(&r->port[p]);
	rte_mempool_free(r->pool);
	for (unsigned q = 0; q < r->o.queues; q++) {
		rte_ring_free(r->in[q]);
		rte_ring_free(r->out[q]);
	}
	for (unsigned w = 0; w < RIG_WORKERS; w++)
		free(r->inbox[w]);
}

void
rig_put_mbuf(struct rig *r, unsigned queue, struct rte_mbuf *m)
{
	CU_ASSERT_FATAL(rte_ring_enqueue(r->in[queue], m) == 0);
}

void
rig_put(struct rig *r, unsigned queue, const void *frame, size_t len)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(r->pool);

	CU_ASSERT_FATAL(m != NULL && len <= rte_pktmbuf_tailroom(m));
	memcpy(rte_pktmbuf_append(m, (uint16_t)len), frame, len);
	rig_put_mbuf(r, queue, m);
}

/* No piece of a packet goes over the end of a page: there are devices that leave out what cannot be mapped whole. */
static void
check_pieces(struct rig *r, const struct rte_mbuf *m)
{
	r->pieces = RTE_MAX(r->pieces, m->nb_segs);
	for (; m != NULL; m = m->next) {
		uintptr_t at = (uintptr_t)rte_pktmbuf_mtod(m, void *);

		if (RTE_MBUF_HAS_EXTBUF(m))
			UNIT_EQ_U64(at / PAGE, (at + m->data_len - 1) / PAGE);
	}
}

/* File a packet of the box by worker. */
static void
file(struct rig *r, unsigned ring, struct rte_mbuf *m)
{
	const void *payload_at = m->nb_segs > 1 ? rte_pktmbuf_mtod(m->next, void *) : NULL;
	uint8_t flat[2048];
	const uint8_t *f = rte_pktmbuf_read(m, 0, m->pkt_len, flat);
	unsigned w;

	CU_ASSERT_FATAL(f != NULL && m->pkt_len <= sizeof(flat));
	check_pieces(r, m);
	w = m->pkt_len >= 42 && f[12] == 8 && f[13] == 0 && f[23] == 17
		    ? pbox_net_get_be16(f + 36) % 100u
		    : RIG_WORKERS;
	if (w < RIG_WORKERS && r->o.ports == 2) {
		/* to the worker's socket at this port, from our address there */
		UNIT_EQ_U64(pbox_net_get_be16(f + 36) / 100, 50 + ring);
		UNIT_EQ_U64(f[28], ring);
		UNIT_EQ_U64(f[32], ring);
	}
	if (w < RIG_WORKERS) {
		struct rig_datagram *d = &r->inbox[w][r->n_inbox[w]++ % RIG_INBOX];

		d->ring = (uint8_t)ring;
		d->len = (uint16_t)(m->pkt_len - 42);
		memcpy(d->bytes, f + 42, d->len);
		d->payload_at = payload_at;
	} else if (r->n_other < 64) {
		memcpy(r->other[r->n_other], f, m->pkt_len);
		r->other_len[r->n_other++] = (uint16_t)m->pkt_len;
	}
	rte_pktmbuf_free(m);
}

void
rig_collect(struct rig *r)
{
	struct rte_mbuf *m;

	for (unsigned q = 0; q < r->o.queues; q++)
		while (rte_ring_dequeue(r->out[q], (void **)&m) == 0)
			file(r, q, m);
}

void
rig_turn(struct rig *r)
{
	for (unsigned i = 0; !r->o.lcores && i < r->o.cores; i++)
		pbox_dp_turn(pbox_dp_core(r->dp, i));
}

void
rig_pump(struct rig *r)
{
	/* a request takes a few turns: core, control, mail to the shards and back, core */
	for (unsigned quiet = 0; quiet < 4; quiet++) {
		uint64_t before = rig_core(r, PBOX_CS_LOOPS_BUSY);

		rig_turn(r);
		if ((!r->o.threads && pbox_control_step(r->control) > 0) ||
			rig_core(r, PBOX_CS_LOOPS_BUSY) != before)
			quiet = 0;
		rig_collect(r);
		if (r->o.lcores)
			usleep(100);
	}
}

uint64_t
rig_core(const struct rig *r, enum pbox_core_stat what)
{
	return pbox_dp_total(r->dp, what);
}

uint64_t
rig_shard(const struct rig *r, enum pbox_shard_stat what)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < r->o.cores; i++)
		n += pbox_stat_get(&pbox_dp_shard_stats(r->dp, i)[what]);
	return n;
}

static uint64_t
sum(uint64_t (*get)(const struct rig *, unsigned), const struct rig *r, unsigned first,
	unsigned last)
{
	uint64_t n = 0;

	for (unsigned i = first; i <= last; i++)
		n += get(r, i);
	return n;
}

static uint64_t
get_core(const struct rig *r, unsigned what)
{
	return rig_core(r, what);
}

static uint64_t
get_shard(const struct rig *r, unsigned what)
{
	return rig_shard(r, what);
}

void
rig_conserved(const struct rig *r)
{
	uint64_t received, accepted, dropped;

	CU_ASSERT(pbox_control_conserved(r->dp, &received, &accepted, &dropped));
	UNIT_EQ_U64(received, accepted + dropped);
	UNIT_EQ_U64(rig_core(r, PBOX_CS_FRAMES),
		rig_core(r, PBOX_CS_FRAMES_DATA) + rig_core(r, PBOX_CS_FRAMES_CONTROL) +
			sum(get_core, r, PBOX_CS_FIRST_FRAME_DROP, PBOX_CS_LAST_FRAME_DROP));
	UNIT_EQ_U64(rig_core(r, PBOX_CS_FRAMES_DATA), rig_shard(r, PBOX_SS_RX_FRAMES));
	UNIT_EQ_U64(rig_shard(r, PBOX_SS_RX_FRAMES),
		sum(get_shard, r, PBOX_SS_FIRST_ACCEPT, PBOX_SS_LAST_DROP));
}
