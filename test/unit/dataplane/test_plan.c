/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <poll.h>
#include <string.h>

#include "../../../lib/dataplane/core.h"
#include "unit.h"

const char unit_suite[] = "dataplane: decisions";

static void
endpoints(void)
{
	const struct pbox_port_conf port[2] = {
		{.ip = 0x01004E0A, .n_cores = 2, .core = {0, 1}, .where = "[port 0]"},
		{.ip = 0x01014E0A, .n_cores = 2, .core = {1, 3}, .where = "[port 1]"},
	};
	const uint8_t node_of[4] = {0, 0, 1, 1};
	struct pbox_engine_endpoint e[8];
	struct pbox_error err = {0};

	UNIT_EQ_U64(pbox_dp_plan(port, 2, node_of, 7269, e, 8, &err), 4);
	UNIT_EQ_U64(e[0].addr.udp, 7270);
	UNIT_EQ_U64(e[0].shard, 0);
	UNIT_EQ_U64(e[1].addr.udp, 7271);
	/* the same core at another port: same UDP port, other address */
	UNIT_EQ_U64(e[2].addr.udp, 7271);
	UNIT_EQ_U64(e[2].shard, 1);
	CU_ASSERT(memcmp(e[2].addr.ipv4, "\x0a\x4e\x01\x01", 4) == 0);
	UNIT_EQ_U64(e[3].addr.udp, 7273);
	UNIT_EQ_U64(e[3].node, 1);
	CU_ASSERT(pbox_dp_plan(port, 2, node_of, 7269, e, 3, &err) < 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "[port 1]"));
	CU_ASSERT(pbox_dp_plan(port, 2, node_of, 65532, e, 8, &err) < 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "control-port 65532"));
	UNIT_EQ_U64(pbox_dp_plan(port, 2, node_of, 65531, e, 8, &err), 4);
}

/* Links without a switch: one address, whichever port a worker hangs on. */
static void
shared_address(void)
{
	struct pbox_port_conf port[3] = {
		{.ip = 0x01004E0A, .n_cores = 2, .core = {0, 1}, .where = "[port 0]"},
		{.ip = 0x01014E0A, .n_cores = 1, .core = {1}, .where = "[port 1]"},
		{.ip = 0x01004E0A, .n_cores = 2, .core = {0, 1}, .where = "[port 2]"},
	};
	const uint8_t node_of[2] = {0, 0};
	struct pbox_engine_endpoint e[8];
	struct pbox_error err = {0};

	UNIT_EQ_U64(pbox_dp_plan(port, 3, node_of, 7269, e, 8, &err), 3);
	CU_ASSERT(memcmp(e[0].addr.ipv4, "\x0a\x4e\x00\x01", 4) == 0);
	UNIT_EQ_U64(e[1].shard, 1);
	CU_ASSERT(memcmp(e[2].addr.ipv4, "\x0a\x4e\x01\x01", 4) == 0);
	port[2].core[1] = 2;
	CU_ASSERT(pbox_dp_plan(port, 3, node_of, 7269, e, 8, &err) < 0);
	CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "[port 0] and [port 2] share an address"));
	port[2].n_cores = 1;
	CU_ASSERT(pbox_dp_plan(port, 3, node_of, 7269, e, 8, &err) < 0);
}

static void
idle_auto(void)
{
	UNIT_EQ_U64(pbox_dp_idle_auto(4, 8, false), PBOX_IDLE_POLL);
	UNIT_EQ_U64(pbox_dp_idle_auto(4, 6, false), PBOX_IDLE_POLL);
	/* a CPU for the control thread alone starves everything else */
	UNIT_EQ_U64(pbox_dp_idle_auto(4, 5, false), PBOX_IDLE_SLEEP);
	UNIT_EQ_U64(pbox_dp_idle_auto(1, 2, false), PBOX_IDLE_SLEEP);
	/* nobody else would get a CPU */
	UNIT_EQ_U64(pbox_dp_idle_auto(4, 4, false), PBOX_IDLE_SLEEP);
	UNIT_EQ_U64(pbox_dp_idle_auto(4, 8, true), PBOX_IDLE_SLEEP);
	UNIT_EQ_U64(pbox_dp_idle_auto(1, 1, false), PBOX_IDLE_SLEEP);
}

/* What a kernel leaves in the checksum field when hardware shall finish it. */
#define MS UINT64_C(1000000)

static struct idle_step
step(enum pbox_idle mode, bool interrupts, unsigned empty, uint64_t quiet_ns)
{
	return idle_next(&(struct idle_state){.mode = mode,
		.wakes = true,
		.interrupts = interrupts,
		.empty = empty,
		.quiet_ns = quiet_ns});
}

static void
step_is(struct idle_step s, unsigned what, uint64_t ns)
{
	UNIT_EQ_U64(s.what, what);
	UNIT_EQ_U64(s.ns, ns);
}

static void
idle_steps(void)
{
	const enum pbox_idle both[] = {PBOX_IDLE_SLEEP, PBOX_IDLE_INTERRUPT};
	struct idle_state s = {.mode = PBOX_IDLE_SLEEP,
		.wakes = true,
		.interrupts = true,
		.empty = 1000,
		.quiet_ns = 3600 * 1000 * MS};

	/* these never leave the CPU */
	step_is(step(PBOX_IDLE_POLL, true, 1000000, 3600 * 1000 * MS), IDLE_PAUSE, 0);
	step_is(step(PBOX_IDLE_YIELD, true, 1000000, 3600 * 1000 * MS), IDLE_YIELD, 0);
	for (unsigned i = 0; i < 2; i++) {
		/* where work has just been, however long it was quiet before */
		step_is(step(both[i], true, 1, 0), IDLE_PAUSE, 0);
		step_is(step(both[i], true, 16, 1000 * MS), IDLE_PAUSE, 0);
		step_is(step(both[i], true, 17, 0), IDLE_YIELD, 0);
		step_is(step(both[i], true, 48, 1000 * MS), IDLE_YIELD, 0);
		/* it is quiet: packets wake it, or are looked for */
		step_is(step(both[i], true, 49, 50 * MS), IDLE_WAIT, 20 * MS);
		step_is(step(both[i], false, 49, 50 * MS), IDLE_WAIT, 2 * MS);
		step_is(step(both[i], true, 1u << 31, UINT64_MAX), IDLE_WAIT, 20 * MS);
		/* not yet */
		step_is(step(both[i], false, 49, 50 * MS - 1), IDLE_NAP, 5000);
		step_is(step(both[i], false, 56, 50 * MS - 1), IDLE_NAP, 10000);
		step_is(step(both[i], false, 79, 50 * MS - 1), IDLE_NAP, 40000);
		step_is(step(both[i], false, 80, 50 * MS - 1), IDLE_NAP, 60000);
		step_is(step(both[i], false, 1u << 31, 50 * MS - 1), IDLE_NAP, 60000);
	}
	step_is(step(PBOX_IDLE_SLEEP, true, 80, 50 * MS - 1), IDLE_NAP, 60000);
	step_is(step(PBOX_IDLE_INTERRUPT, true, 49, 0), IDLE_WAIT, MS);
	/* a round that waits for its time needs turns */
	s.pending = true;
	step_is(idle_next(&s), IDLE_NAP, 60000);
	s.mode = PBOX_IDLE_INTERRUPT;
	step_is(idle_next(&s), IDLE_WAIT, MS);
	/* and a core that nobody can call is never long away */
	s.pending = s.wakes = false;
	step_is(idle_next(&s), IDLE_NAP, 60000);
}

/* There is something to be read: a wait for it ends. */
static bool
rung(const struct waker *w)
{
	struct pollfd fd = {.fd = w->fd, .events = POLLIN};

	return poll(&fd, 1, 0) == 1;
}

static void
calls(void)
{
	struct waker w;

	CU_ASSERT_FATAL(waker_open(&w) == 0);
	/* before the sleep, once or twice: there is none, once */
	waker_call(&w);
	waker_call(&w);
	CU_ASSERT_FALSE(rung(&w)); /* no system call where nobody sleeps */
	CU_ASSERT_FALSE(waker_sleep(&w));
	CU_ASSERT_TRUE(waker_sleep(&w));
	CU_ASSERT_FALSE(rung(&w));
	/* in it: it ends */
	waker_call(&w);
	waker_call(&w);
	CU_ASSERT_TRUE(rung(&w));
	waker_woke(&w);
	CU_ASSERT_FALSE(rung(&w));
	/* one who has called in a sleep, and rings when that is over */
	CU_ASSERT_TRUE(waker_sleep(&w));
	UNIT_EQ_U64(atomic_exchange(&w.state, WAKER_CALLED), WAKER_ASLEEP);
	waker_woke(&w);
	waker_ring(&w);
	CU_ASSERT_TRUE(waker_sleep(&w));
	CU_ASSERT_TRUE(rung(&w)); /* for nothing */
	waker_woke(&w);
	CU_ASSERT_TRUE(waker_sleep(&w));
	CU_ASSERT_FALSE(rung(&w)); /* but not forever */
	waker_woke(&w);
	waker_close(&w);
	UNIT_EQ_U64((unsigned)(w.fd + 1), 0);
}

static void
partial_checksum(void)
{
	const struct pbox_net_if box = {.mac = {2, 0, 0, 0, 0, 1}, .ip = 0x01004E0A};
	const struct pbox_net_if peer = {.mac = {2, 0, 0, 0, 0, 2}, .ip = 0x02004E0A};
	struct pbox_net_udp_template t;
	struct pbox_net_pkt pkt;
	uint8_t f[142] = {0};
	uint64_t sum;
	uint16_t v;

	pbox_net_udp_template(&t, &peer, 5000, box.mac, box.ip, 7269, 0);
	pbox_net_udp_header(&t, f, 100, 1);
	memset(f + 42, 0x5A, 100);
	UNIT_EQ_U64(pbox_net_parse(f, sizeof(f), &box, PBOX_NET_F_UDP_DEFER, &pkt), PBOX_NET_UDP);
	CU_ASSERT(!pbox_dp_checksum_partial(f, &pkt)); /* none */
	pbox_net_udp_checksum_set(f, f + 42, 100);
	CU_ASSERT(!pbox_dp_checksum_partial(f, &pkt)); /* good */
	/* source and destination, protocol and length: RFC 768 */
	sum = pbox_net_sum(f + 26, 8, 0) + 0x1100 + (uint64_t)(108 << 8);
	v = pbox_net_sum_fold(sum);
	memcpy(f + 40, &v, 2);
	CU_ASSERT(pbox_dp_checksum_partial(f, &pkt));
	f[40] ^= 1;
	CU_ASSERT(!pbox_dp_checksum_partial(f, &pkt)); /* simply wrong */
}

/* Each counter has a name of its own and a help text. */
static void
counter_names(void)
{
	for (unsigned i = 0; i < PBOX_CS_STATS; i++) {
		CU_ASSERT_PTR_NOT_NULL_FATAL(pbox_core_stat_defs[i].name);
		CU_ASSERT_PTR_NOT_NULL(pbox_core_stat_defs[i].help);
		for (unsigned k = 0; k < i; k++)
			CU_ASSERT(strcmp(pbox_core_stat_defs[i].name,
					  pbox_core_stat_defs[k].name) != 0);
	}
}

const struct unit_test unit_tests[] = {
	{"endpoints", endpoints},
	{"shared address", shared_address},
	{"idle auto", idle_auto},
	{"idle steps", idle_steps},
	{"calls", calls},
	{"partial checksum", partial_checksum},
	{"counter names", counter_names},
	{NULL, NULL},
};
