/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* The other side in this process, on an lcore of its own: at the other end of a pair of rings a box (its own
 * libraries, as the daemon puts them together), or a reflector that sends back what it gets (reflect.c). */

#include <errno.h>
#include <stdlib.h>

#include <rte_byteorder.h>
#include <rte_eth_ring.h>
#include <rte_ethdev.h>
#include <rte_ip.h>
#include <rte_lcore.h>
#include <rte_malloc.h>
#include <sodium.h>

#include <pbox_control.h>

#include "loopback.h"
#include "reflect.h"
#include "testps.h"

#define RING        4096
#define HOLD        4096 /* packets that the box may keep */
#define ROUND_BYTES 512  /* of a round in progress, and of each worker in it */
#define PART_BYTES  64
#define MTU         9000
#define MEMORY_MIN  ((size_t)64 << 20)
#define MEMORY_MAX  ((size_t)4 << 30)
#define DRAIN_NS    UINT64_C(1000000000)
#define MIRROR_MAC  "02:50:42:00:ff:01"

struct loopback {
	uint16_t ours, theirs;
	unsigned lcore;
	struct rte_ring *to, *from;
	struct reflect *reflect;
	struct pbox_port port;
	struct pbox_port_core core;
	struct pbox_engine_endpoint endpoint;
	struct pbox_job_conf job;
	void *memory;
	size_t size;
	struct pbox_arena *arena;
	struct pbox_dp *dp;
	struct pbox_control *control;
};

uint16_t
loopback_port(const struct loopback *b)
{
	return b->ours;
}

static int
open_rings(struct loopback *b, struct pbox_error *err)
{
	int ours, theirs;

	b->to = rte_ring_create("testps_to", RING, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
	b->from =
		rte_ring_create("testps_from", RING, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
	if (b->to == NULL || b->from == NULL)
		return pbox_fail(err, ENOMEM, "no memory for rings: give EAL more with -m");
	ours = rte_eth_from_rings("testps", &b->from, 1, &b->to, 1, SOCKET_ID_ANY);
	theirs = rte_eth_from_rings("testps_box", &b->to, 1, &b->from, 1, SOCKET_ID_ANY);
	if (ours < 0 || theirs < 0)
		return pbox_fail(err, EIO, "the driver net_ring does not start");
	b->ours = (uint16_t)ours;
	b->theirs = (uint16_t)theirs;
	return 0;
}

int
loopback_open(struct testps *t, struct pbox_error *err)
{
	struct loopback *b = rte_zmalloc("loopback", sizeof(*b), 64);
	int ret;

	if (b == NULL)
		return pbox_fail(err, ENOMEM, "no memory for a box: give EAL more with -m");
	b->lcore = RTE_MAX_LCORE;
	t->loopback = b;
	ret = t->opt.reflected ? reflect_open(&b->ours, err) : open_rings(b, err);
	if (ret != 0)
		return ret;
	/* nobody answers ARP there */
	if (t->opt.reflected)
		snprintf(t->opt.box_mac, sizeof(t->opt.box_mac), "%s", MIRROR_MAC);
	if (t->opt.address.len == 0)
		t->opt.address = (struct pbox_conf_prefix){{10, 78, 4, 1}, 16};
	if (t->opt.box[0] == '\0') {
		t->box_ip = rte_cpu_to_be_32(RTE_IPV4(10, 78, 0, 1));
		t->box_port = PBOX_CONTROL_PORT;
		t->boxes[0] = (struct sockaddr_in){.sin_family = AF_INET,
			.sin_port = rte_cpu_to_be_16(PBOX_CONTROL_PORT),
			.sin_addr.s_addr = t->box_ip};
		t->n_boxes = 1;
	}
	if (t->load.fragment == 0)
		t->load.fragment = (MTU - PBOX_MTU_OVERHEAD) & ~63;
	return 0;
}

/* ---- a box -------------------------------------------------------------------------------------- */

/* The largest piece that EAL has; with hugepages that it takes as it needs them it may be 0. */
static size_t
largest(void)
{
	size_t most = 0;

	for (unsigned i = 0; i < rte_socket_count(); i++) {
		struct rte_malloc_socket_stats s;

		if (rte_malloc_get_socket_stats(rte_socket_id_by_idx(i), &s) == 0 &&
			s.greatest_free_size > most)
			most = s.greatest_free_size;
	}
	return most;
}

static int
box_memory(struct testps *t, struct loopback *b, struct pbox_error *err)
{
	struct model m;
	int ret = model_read(&m, t->load.model, err);

	if (ret != 0)
		return ret;
	/* parameters, two states, a packed copy; rounds in progress */
	b->size = MEMORY_MIN + m.elements * 18 +
		  (size_t)HOLD * (ROUND_BYTES + (size_t)PART_BYTES * t->load.workers);
	b->size = RTE_MIN(MEMORY_MAX, b->size);
	model_free(&m);
	if (t->opt.memory != 0)
		b->size = t->opt.memory;
	else if (t->opt.interactive || t->opt.cmdline_file[0] != '\0')
		b->size = RTE_MIN(MEMORY_MAX, RTE_MAX(b->size, largest() / 2));
	b->memory = rte_zmalloc("testps_box", b->size, 64);
	if (b->memory == NULL)
		return pbox_fail(err, ENOMEM,
			"no memory for a box of %zu MiB: give EAL more with -m, or use a smaller --model, or less --memory",
			b->size >> 20);
	b->arena = pbox_arena_create(b->memory, b->size);
	return 0;
}

static int
box_planes(struct testps *t, struct loopback *b, struct pbox_error *err)
{
	const struct pbox_dp_region region = {b->memory, b->size};
	uint32_t incarnation = randombytes_random() | 1;
	const struct pbox_dp_conf dc = {.port = &b->port,
		.n_ports = 1,
		.core = &b->core,
		.n_cores = 1,
		.endpoint = &b->endpoint,
		.n_endpoints = 1,
		.control_port = t->box_port,
		.incarnation = incarnation,
		.max_jobs = 1,
		.idle = t->opt.idle,
		.reduce = pbox_reduce_select(NULL),
		.optim = pbox_optim_select(NULL),
		.region = &region,
		.n_regions = 1};
	struct pbox_control_conf cc = {.port = &b->port,
		.n_ports = 1,
		.n_cores = 1,
		.core = &b->core,
		.drain_ns = DRAIN_NS,
		.registrar = {.incarnation = incarnation,
			.max_jobs = 1,
			.max_workers = PBOX_MAX_WORKERS,
			.chunk_elements = 8192,
			.lease_ms = 5000,
			.mtu = b->port.mtu,
			.hold = HOLD,
			.n_shards = 1,
			.endpoint = &b->endpoint,
			.n_endpoints = 1,
			.arena = {b->arena},
			.job = &b->job,
			.n_jobs = 1}};

	b->job = (struct pbox_job_conf){.name = "*",
		.secret = (const char *)t->opt.secret.bytes,
		.secret_len = t->opt.secret.len,
		.auth = t->opt.auth,
		.policy = (uint8_t)t->opt.policy};
	b->dp = pbox_dp_create(&dc, err);
	if (b->dp == NULL)
		return -ENOMEM;
	cc.dp = b->dp;
	b->control = pbox_control_create(&cc, err);
	return b->control != NULL ? 0 : -ENOMEM;
}

static int
box_open(struct testps *t, struct loopback *b, struct pbox_error *err)
{
	const struct pbox_port_conf c = {.id = b->theirs,
		.where = "--loopback",
		.steer_where = "--loopback",
		.ip = t->box_ip,
		.prefix_len = t->opt.address.len,
		.mtu = t->port[0].mtu,
		.queues = 1,
		.tx_desc = RING, /* what is not read yet: there are buffers for it */
		.steer = PBOX_STEER_RING,
		.hold = HOLD,
		.control_port = t->box_port,
		.n_cores = 1};
	static const uint8_t node_of[1];
	int ret = pbox_port_open(&b->port, &c, err);

	if (ret == 0)
		ret = pbox_port_start(&b->port, err);
	if (ret != 0)
		return ret;
	pbox_port_wait_link(&b->port, 100, NULL);
	b->core = (struct pbox_port_core){.lcore = b->lcore, .node = -1};
	if (pbox_dp_plan(&c, 1, node_of, t->box_port, &b->endpoint, 1, err) != 1)
		return -EINVAL;
	ret = box_memory(t, b, err);
	return ret == 0 ? box_planes(t, b, err) : ret;
}

/* ---- both ----------------------------------------------------------------------------------------- */

int
loopback_start(struct testps *t, struct pbox_error *err)
{
	struct loopback *b = t->loopback;
	unsigned lcore;
	int ret;

	RTE_LCORE_FOREACH_WORKER(lcore)
	{
		bool taken = false;

		for (unsigned i = 0; i < t->lanes; i++)
			taken |= t->lane[i]->lcore == lcore;
		if (!taken) {
			b->lcore = lcore;
			break;
		}
	}
	if (t->opt.reflected) {
		b->reflect = reflect_start(b->ours, t->lanes, b->lcore, err);
		return b->reflect != NULL ? 0 : -EIO;
	}
	ret = box_open(t, b, err);
	if (ret != 0)
		return ret;
	ret = pbox_control_start(b->control, err);
	if (ret != 0)
		return ret;
	return rte_eal_remote_launch(pbox_dp_run, pbox_dp_core(b->dp, 0), b->lcore);
}

void
loopback_forget(const struct loopback *b)
{
	if (b != NULL && b->reflect != NULL)
		reflect_forget(b->reflect);
}

bool
loopback_reflected(const struct loopback *b, uint64_t *frames, uint64_t *copies)
{
	if (b == NULL || b->reflect == NULL)
		return false;
	reflect_counts(b->reflect, frames, copies);
	return true;
}

void
loopback_stop(struct testps *t)
{
	struct loopback *b = t->loopback;

	if (b == NULL)
		return;
	reflect_stop(b->reflect);
	if (b->control != NULL) {
		pbox_control_stop(b->control);
		rte_eal_wait_lcore(b->lcore);
		pbox_control_join(b->control);
	}
	if (b->dp != NULL)
		pbox_dp_drain(b->dp);
	pbox_port_close(&b->port);
	pbox_control_destroy(b->control);
	pbox_dp_destroy(b->dp);
	if (b->arena != NULL)
		pbox_arena_destroy(b->arena);
	rte_free(b->memory);
	pbox_port_free(&b->port);
	rte_free(b);
	t->loopback = NULL;
}
