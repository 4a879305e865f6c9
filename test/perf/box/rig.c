/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_bus_vdev.h>
#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_malloc.h>
#include <rte_mempool.h>

#include "bench.h"

#define SECRET "bench"
#define DEVICE "net_memory0"

/* Ends the program: nothing can be measured. */
__attribute__((noreturn)) static void
fail(const char *what, const char *why)
{
	fprintf(stderr, "bench_box: %s: %s\n", what, why);
	exit(1);
}

/* Windows are what the registrar's share_of() gives: an equal part of one half for each job that may
 * come, so many times the workers. With twice that every job has its window whatever the others took. */
static uint32_t
hold_for(unsigned jobs, unsigned workers, uint32_t window)
{
	uint64_t hold = (uint64_t)4 * jobs * workers * window;

	return hold > UINT32_MAX / 2 ? UINT32_MAX / 2 : (uint32_t)hold;
}

/* Sizes that follow from the options. */
static void
plan(struct rig *r)
{
	const struct options *o = r->o;
	uint64_t buffers = o->resident / o->fragment, flight = (uint64_t)o->slots * o->workers;
	uint64_t answers, desc;
	uint32_t need = o->slots / o->jobs + o->train;

	r->mtu = (uint16_t)(o->fragment + PBOX_MTU_OVERHEAD);
	r->frag_elements = pbox_frag_elements(r->mtu, o->format, o->format);
	if (o->clock) /* an answer to PULL has the clocks of the workers beside its payload */
		r->mtu += pbox_shard_vector(PBOX_DISCIPLINE_CLOCK, o->workers);
	if (o->auth)
		r->mtu += PBOX_TAG_LEN;
	r->chunk_elements = 8192;
	r->elements = o->model / 4;
	r->hold = hold_for(o->jobs, o->workers, need);
	if (r->hold < 64)
		r->hold = 64;
	/* posted and held buffers together are the working set: the pool gives back the last used */
	desc = buffers > flight + 32 ? buffers - flight : 32;
	if (desc < buffers / 2)
		desc = buffers / 2;
	if (desc > 16384)
		desc = 16384;
	r->rx_desc = (uint32_t)RTE_ALIGN_FLOOR(desc, 8);
	/* two descriptors an answer, and a burst of packets may finish as many fragments */
	answers = (uint64_t)RTE_MAX(o->workers, 32u) * RTE_MIN(o->slots, 32u);
	r->tx_desc = (uint32_t)RTE_MIN(rte_align64pow2(2 * answers), (uint64_t)32768);
	if (r->tx_desc < 1024)
		r->tx_desc = 1024;
}

/* Bytes of all that is taken from EAL. */
static size_t
arena_bytes(const struct rig *r)
{
	const struct options *o = r->o;
	size_t states = 1 + pbox_optim_states(o->optimiser) + (o->format != PBOX_FMT_FP32);
	size_t fragments = r->elements / r->frag_elements + 1;
	size_t table = r->elements * 4 * states + fragments * 160 + (1u << 16);
	size_t rounds = (size_t)r->hold * (512 + 64 * (size_t)o->workers);

	return RTE_ALIGN_CEIL(o->jobs * table + rounds + o->jobs * (size_t)160 * (r->mtu + 64) +
				      ((size_t)4 << 20),
		(size_t)2 << 20);
}

static size_t
eal_bytes(const struct rig *r)
{
	size_t room = r->mtu + 3000u;

	return arena_bytes(r) + (r->hold + r->rx_desc + r->tx_desc + 2048) * room +
	       (size_t)2 * r->tx_desc * 640 + ((size_t)24 << 20);
}

static size_t
free_hugepages(void)
{
	FILE *f = fopen("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "re");
	unsigned long n = 0;

	if (f == NULL)
		return 0;
	if (fscanf(f, "%lu", &n) != 1)
		n = 0;
	fclose(f);
	return n;
}

static void
remove_runtime_dir(void)
{
	rmdir(rte_eal_get_runtime_dir());
}

static void
start_eal(struct rig *r)
{
	static char prefix[32], lcores[64], memory[24];
	size_t mib = (eal_bytes(r) >> 20) + 1;
	char *argv[24];
	int argc = 0;

	if (r->o->telemetry != NULL)
		snprintf(prefix, sizeof(prefix), "%s", r->o->telemetry);
	else
		snprintf(prefix, sizeof(prefix), "bench%d", getpid());
	/* the box's core is lcore 0; main is the generator's, or the one that there is */
	if (r->o->lockstep)
		snprintf(lcores, sizeof(lcores), "0@%u", r->o->box_cpu);
	else
		snprintf(lcores, sizeof(lcores), "0@%u,1@%u", r->o->box_cpu, r->o->gen_cpu);
	r->huge = !r->o->no_huge && free_hugepages() * 2 >= mib + mib / 16 + 8;
	snprintf(memory, sizeof(memory), "%zu", mib * 2 + mib / 4);
	argv[argc++] = "bench_box";
	argv[argc++] = "--no-pci";
	argv[argc++] = r->o->telemetry != NULL ? "--telemetry" : "--no-telemetry";
	argv[argc++] = "--file-prefix";
	argv[argc++] = prefix;
	argv[argc++] = "--log-level";
	argv[argc++] = "error";
	argv[argc++] = "--lcores";
	argv[argc++] = lcores;
	argv[argc++] = "--main-lcore";
	argv[argc++] = r->o->lockstep ? "0" : "1";
	if (r->huge) {
		argv[argc++] = "--in-memory";
	} else {
		argv[argc++] = "--no-huge";
		argv[argc++] = "--no-shconf";
		argv[argc++] = "-m";
		argv[argc++] = memory;
	}
	argv[argc] = NULL;
	atexit(remove_runtime_dir); /* after telemetry, whose socket is in it */
	if (rte_eal_init(argc, argv) < 0)
		fail("EAL does not start", "see its lines above");
}

static void
open_port(struct rig *r)
{
	struct pbox_port_conf c = {.where = "bench",
		.ip = rte_cpu_to_be_32(RTE_IPV4(10, 78, 0, 1)),
		.prefix_len = 16,
		.mtu = r->mtu,
		.queues = 1,
		.rx_desc = (uint16_t)r->rx_desc,
		.tx_desc = (uint16_t)r->tx_desc,
		.hold = r->hold,
		.control_port = PBOX_CONTROL_PORT,
		.n_cores = 1};
	static const uint8_t node_of[1];
	struct pbox_error err = {0};

	if (rte_vdev_init(DEVICE, "") != 0 || rte_eth_dev_get_port_by_name(DEVICE, &c.id) != 0)
		fail("port", "the driver net_mem does not start");
	r->port_id = c.id;
	if (pbox_port_open(&r->port, &c, &err) != 0 || pbox_port_start(&r->port, &err) != 0)
		fail("port", err.text);
	pbox_port_wait_link(&r->port, 100, NULL);
	if (pbox_dp_plan(&c, 1, node_of, PBOX_CONTROL_PORT, &r->endpoint, 1, &err) != 1)
		fail("endpoints", err.text);
	if (pbox_mem_peer_open(&r->peer, c.id, 0) != 0)
		fail("port", "no way to its other side");
}

static void
choose_kernels(struct rig *r)
{
	const char *name = r->o->kernel;

	r->real_reduce = pbox_reduce_select(name);
	if (r->real_reduce == NULL)
		fail(name, "this CPU, or this build, does not have it");
	r->real_optim = name != NULL ? pbox_optim_select(name) : NULL;
	if (r->real_optim == NULL)
		r->real_optim = pbox_optim_select(NULL);
	r->reduce = *r->real_reduce;
	r->optim = *r->real_optim;
}

static void
create_planes(struct rig *r)
{
	const struct pbox_dp_region region = {r->memory, r->memory_size};
	const struct pbox_dp_conf dc = {.port = &r->port,
		.n_ports = 1,
		.core = &r->core,
		.n_cores = 1,
		.endpoint = &r->endpoint,
		.n_endpoints = 1,
		.control_port = PBOX_CONTROL_PORT,
		.incarnation = 77,
		.max_jobs = (uint16_t)r->o->jobs,
		.idle = PBOX_IDLE_POLL,
		.reduce = &r->reduce,
		.optim = &r->optim,
		.region = &region,
		.n_regions = 1};
	struct pbox_control_conf cc = {.port = &r->port,
		.n_ports = 1,
		.n_cores = 1,
		.core = &r->core,
		.drain_ns = 1000000000,
		.registrar = {.incarnation = 77,
			.max_jobs = (uint16_t)r->o->jobs,
			.max_workers = PBOX_MAX_WORKERS,
			.chunk_elements = r->chunk_elements,
			.lease_ms = 24 * 3600 * 1000,
			.mtu = r->mtu,
			.hold = r->hold,
			.n_shards = 1,
			.endpoint = &r->endpoint,
			.n_endpoints = 1,
			.arena = {r->arena},
			.job = &r->job_conf,
			.n_jobs = 1}};
	struct pbox_error err = {0};

	r->dp = pbox_dp_create(&dc, &err);
	if (r->dp == NULL)
		fail("data plane", err.text);
	cc.dp = r->dp;
	r->control = pbox_control_create(&cc, &err);
	if (r->control == NULL)
		fail("control", err.text);
}

void
rig_start(struct rig *r, const struct options *o)
{
	memset(r, 0, sizeof(*r));
	r->o = o;
	plan(r);
	start_eal(r);
	choose_kernels(r);
	r->core = (struct pbox_port_core){.lcore = 0, .node = (int)rte_socket_id()};
	r->job_conf = (struct pbox_job_conf){
		.name = "*", .secret = SECRET, .secret_len = strlen(SECRET), .auth = o->auth};
	open_port(r);
	r->memory_size = arena_bytes(r);
	r->memory = rte_zmalloc("bench_arena", r->memory_size, 64);
	if (r->memory == NULL)
		fail("memory", "the model does not fit: choose a smaller one");
	r->arena = pbox_arena_create(r->memory, r->memory_size);
	create_planes(r);
}

bool
rig_stop(struct rig *r)
{
	uint64_t received, accepted, dropped;
	bool good;

	pbox_dp_stop(r->dp);
	pbox_dp_drain(r->dp);
	pbox_port_close(&r->port);
	good = pbox_control_conserved(r->dp, &received, &accepted, &dropped) &&
	       pbox_dp_mbufs_missing(r->dp) == 0 && pbox_port_mbufs_missing(&r->port) == 0;
	pbox_control_destroy(r->control);
	pbox_dp_destroy(r->dp);
	pbox_arena_destroy(r->arena);
	rte_free(r->memory);
	pbox_port_free(&r->port);
	rte_vdev_uninit(DEVICE);
	for (unsigned j = 0; r->job != NULL && j < r->o->jobs; j++) {
		free(r->job[j].token);
		free(r->job[j].keys);
		pbox_worker_destroy(r->job[j].host.w);
	}
	free(r->job);
	free(r->headers);
	free(r->control_headers);
	return good;
}

uint64_t
rig_core(const struct rig *r, enum pbox_core_stat what)
{
	return pbox_dp_total(r->dp, what);
}

uint64_t
rig_shard(const struct rig *r, enum pbox_shard_stat what)
{
	return pbox_stat_get(&pbox_dp_shard_stats(r->dp, 0)[what]);
}
