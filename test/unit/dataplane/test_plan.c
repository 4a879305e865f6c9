/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <string.h>

#include <pbox_dataplane.h>

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
	{"partial checksum", partial_checksum},
	{"counter names", counter_names},
	{NULL, NULL},
};
