/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <string.h>

#include "rig.h"

const char unit_suite[] = "dataplane: receiving";

static struct rig rig;
static struct worker w[RIG_WORKERS];

/* All counters of all layers, so that a test can see which ones moved. */
struct snapshot {
	uint64_t core[PBOX_CS_STATS], shard[PBOX_SS_STATS];
};

static struct snapshot
snapshot(void)
{
	struct snapshot s;

	for (unsigned i = 0; i < PBOX_CS_STATS; i++)
		s.core[i] = rig_core(&rig, i);
	for (unsigned i = 0; i < PBOX_SS_STATS; i++)
		s.shard[i] = rig_shard(&rig, i);
	return s;
}

/* Assert that one packet arrived, and moved exactly these outcomes: of the packet, of the frame
 * (0: none), of the shard (0: none). */
static void
outcome(const struct snapshot *before, unsigned packet, unsigned frame, unsigned shard)
{
	struct snapshot now = snapshot();

	UNIT_EQ_U64(now.core[PBOX_CS_RX_PACKETS] - before->core[PBOX_CS_RX_PACKETS], 1);
	for (unsigned i = PBOX_CS_FIRST_ACCEPT; i <= PBOX_CS_LAST_FRAME_DROP; i++)
		if (i != PBOX_CS_FRAMES && now.core[i] != before->core[i] && i != packet &&
			i != frame)
			printf("  %s moved, not only %s and %s\n", pbox_core_stat_defs[i].name,
				pbox_core_stat_defs[packet].name, pbox_core_stat_defs[frame].name);
	for (unsigned i = PBOX_CS_FIRST_ACCEPT; i <= PBOX_CS_LAST_DROP; i++)
		UNIT_EQ_U64(now.core[i] - before->core[i], i == packet);
	for (unsigned i = PBOX_CS_FRAMES_DATA; i <= PBOX_CS_LAST_FRAME_DROP; i++)
		UNIT_EQ_U64(now.core[i] - before->core[i], frame != 0 && i == frame);
	for (unsigned i = PBOX_SS_FIRST_ACCEPT; i <= PBOX_SS_LAST_DROP; i++)
		UNIT_EQ_U64(now.shard[i] - before->shard[i], shard != 0 && i == shard);
	rig_conserved(&rig);
}

static void
arp(void)
{
	const struct pbox_net_if me = {
		.mac = {2, 0, 0, 0, 1, 0}, .ip = 0x0A004E0A, .prefix_len = 24};
	uint8_t f[64] = {0};
	struct snapshot s;

	rig_start(&rig, &(struct rig_options){.queues = 1, .cores = 1});
	UNIT_EQ_U64(pbox_net_arp_request(f, sizeof(f), &me, RIG_IP), 42);
	s = snapshot();
	rig_put(&rig, 0, f, 42); /* shorter than a frame may be: the answer is padded */
	rig_pump(&rig);
	outcome(&s, PBOX_CS_RX_ARP_REQUEST, 0, 0);
	UNIT_EQ_U64(rig.n_other, 1);
	UNIT_EQ_U64(rig.other_len[0], 60);
	CU_ASSERT(memcmp(rig.other[0], me.mac, 6) == 0);
	CU_ASSERT(memcmp(rig.other[0] + 20, "\0\2", 2) == 0);              /* a reply */
	CU_ASSERT(memcmp(rig.other[0] + 22, rig.port[0].nif.mac, 6) == 0); /* our MAC */
	CU_ASSERT(memcmp(rig.other[0] + 28, &rig.port[0].nif.ip, 4) == 0);
	for (unsigned i = 42; i < 60; i++)
		UNIT_EQ_U64(rig.other[0][i], 0);
	/* for somebody else */
	UNIT_EQ_U64(pbox_net_arp_request(f, sizeof(f), &me, 0x63004E0A), 42);
	s = snapshot();
	rig_put(&rig, 0, f, 42);
	rig_pump(&rig);
	outcome(&s, PBOX_CS_DROP_NOT_OURS_IP, 0, 0);
	rig_stop(&rig);
}

/* The announcement of our address goes out through a core. */
static void
announce(void)
{
	rig_start(&rig, &(struct rig_options){.queues = 1, .cores = 1});
	UNIT_EQ_U64(pbox_dp_announce(rig.dp, 0), 0);
	rig_pump(&rig);
	UNIT_EQ_U64(rig.n_other, 1);
	UNIT_EQ_U64(rig.other_len[0], 60);
	CU_ASSERT(memcmp(rig.other[0], "\xff\xff\xff\xff\xff\xff", 6) == 0);
	rig_stop(&rig);
}

static void
ping(void)
{
	uint8_t f[128] = {0}, echo[56] = {0};
	struct snapshot s;
	uint16_t sum;

	rig_start(&rig, &(struct rig_options){.queues = 1, .cores = 1});
	worker_frame(0, 1, echo, sizeof(echo), f);
	f[23] = 1; /* ICMP in place of UDP */
	f[24] = f[25] = 0;
	sum = pbox_net_checksum(f + 14, 20);
	memcpy(f + 24, &sum, 2);
	memset(f + 34, 0, 64);
	f[34] = 8;
	f[41] = 3;
	memset(f + 42, 0xA5, 56);
	sum = pbox_net_checksum(f + 34, 64);
	memcpy(f + 36, &sum, 2);
	s = snapshot();
	rig_put(&rig, 0, f, 98);
	rig_pump(&rig);
	outcome(&s, PBOX_CS_RX_ICMP_ECHO, 0, 0);
	UNIT_EQ_U64(rig.n_other, 1);
	UNIT_EQ_U64(rig.other_len[0], 98);
	UNIT_EQ_U64(rig.other[0][34], 0); /* an echo reply */
	UNIT_EQ_U64(pbox_net_checksum(rig.other[0] + 34, 64), 0);
	CU_ASSERT(memcmp(rig.other[0] + 42, f + 42, 56) == 0);
	rig_stop(&rig);
}

/* Send a datagram of these bytes to a UDP port, mutated by one byte; see what becomes of it. */
static void
try(uint16_t to, const void *payload, size_t len, unsigned packet, unsigned frame, unsigned shard)
{
	uint8_t f[2048];
	struct snapshot s = snapshot();

	rig_put(&rig, 0, f, worker_frame(0, to, payload, len, f));
	rig_pump(&rig);
	outcome(&s, packet, frame, shard);
}

static size_t
push_frame(uint8_t *out, unsigned length, struct pbox_hdr **h)
{
	static struct pbox_hdr hdr;

	hdr = (struct pbox_hdr){.type = PBOX_PUSHPULL,
		.token = w[0].token,
		.job = w[0].job,
		.worker = 0,
		.incarnation = w[0].incarnation,
		.chunk = w[0].chunk[0].chunk_id,
		.round = 1,
		.map_epoch = 1,
		.format = PBOX_FMT_FP32,
		.flags = PBOX_F_LAST,
		.aux = PBOX_LR_MUL_ONE,
		.weight = 1,
		.length = (uint16_t)length};
	memset(out + PBOX_HDR_LEN, 0, length);
	*h = &hdr;
	return PBOX_HDR_LEN + length;
}

static void
join_two(unsigned elements)
{
	for (unsigned i = 0; i < 2; i++)
		CU_ASSERT_FATAL(worker_join(&rig, &w[i], i, 2));
	for (unsigned i = 0; i < 2; i++)
		CU_ASSERT_FATAL(worker_declare(&w[i], elements));
	for (unsigned i = 0; i < 2; i++)
		CU_ASSERT_FATAL(worker_map(&w[i]));
}

/* Each wrong field: one named drop, and nothing else moves. */
static void
one_drop_each(void)
{
	enum { DATA = PBOX_CONTROL_PORT + 1 };
	uint8_t p[2048];
	struct pbox_hdr *h;
	size_t n;

	rig_start(&rig, &(struct rig_options){.queues = 1, .cores = 1});
	join_two(352);
	/* packets */
	try(DATA + 1, p, 0, PBOX_CS_DROP_UDP_UNKNOWN_PORT, 0, 0);
	try(9, p, 10, PBOX_CS_DROP_UDP_UNKNOWN_PORT, 0, 0);
	/* frames */
	try(DATA, p, 0, PBOX_CS_RX_DATA, PBOX_CS_FRAME_TRUNCATED, 0);
	memset(p, 0x11, sizeof(p));
	try(DATA, p, 500, PBOX_CS_RX_DATA, PBOX_CS_FRAME_MAGIC, 0);
	n = push_frame(p, 1408, &h);
	pbox_frame_seal(p, h);
	try(DATA, p, n - 1, PBOX_CS_RX_DATA, PBOX_CS_FRAME_TRUNCATED, 0);
	p[n - 1] ^= 1;
	h->type = PBOX_PUSH; /* of a PUSHPULL the shard verifies the CRC, and late */
	memcpy(p, "\xB5\x01\x21", 3);
	try(DATA, p, n, PBOX_CS_RX_DATA, PBOX_CS_FRAME_CRC, 0);
	p[1] = 2;
	try(DATA, p, n, PBOX_CS_RX_DATA, PBOX_CS_FRAME_VERSION, 0);
	n = push_frame(p, 1408, &h);
	h->flags |= 0x100;
	pbox_frame_seal(p, h);
	try(DATA, p, n, PBOX_CS_RX_DATA, PBOX_CS_FRAME_FLAGS, 0);
	h->flags = PBOX_F_LAST;
	h->type = 0x55;
	pbox_frame_seal(p, h);
	try(DATA, p, n, PBOX_CS_RX_DATA, PBOX_CS_FRAME_TYPE, 0);
	/* the shard's, in the order of R6.11 */
#define WRONG(field, value, drop)  \
	push_frame(p, 1408, &h);   \
	h->field = value;          \
	n = pbox_frame_seal(p, h); \
	try(DATA, p, n, PBOX_CS_RX_DATA, PBOX_CS_FRAMES_DATA, PBOX_SS_DROP_##drop)
	WRONG(job, 3, SESSION_UNKNOWN);
	WRONG(worker, 9, SESSION_UNKNOWN);
	WRONG(token, 1, SESSION_TOKEN);
	WRONG(incarnation, 78, SESSION_INCARNATION);
	WRONG(map_epoch, 9, MAP_EPOCH);
	WRONG(chunk, 999, CHUNK_UNKNOWN);
	WRONG(frag, 4, FRAG_RANGE);
	WRONG(format, PBOX_FMT_BF16, FORMAT);
	WRONG(length, 1404, LENGTH);
	WRONG(flags, 0, PARTIAL);
	WRONG(round, 0, ROUND_STALE);
	WRONG(round, 3, ROUND_FUTURE);
	WRONG(type, PBOX_RESULT, TYPE);
#undef WRONG
	n = push_frame(p, 1408, &h);
	pbox_frame_seal(p, h);
	try(DATA, p, n, PBOX_CS_RX_DATA, PBOX_CS_FRAMES_DATA, PBOX_SS_RX_CONTRIBUTION);
	rig_stop(&rig);
}

/* Several frames in a datagram: each is judged, the packet is held once for each that stays. */
static void
trains(void)
{
	uint8_t p[2048], f[2048];
	struct pbox_hdr *h;
	size_t n = 0;

	rig_start(&rig, &(struct rig_options){.queues = 1, .cores = 1});
	join_two(100 + 352); /* a fragment of 352 elements and one of 100 */
	n = push_frame(p, 400, &h);
	h->frag = 1;
	n = pbox_frame_seal(p, h);
	push_frame(p + n, 400, &h); /* the same again: a duplicate */
	h->frag = 1;
	n += pbox_frame_seal(p + n, h);
	h->type = PBOX_PING;
	h->length = 0;
	n += pbox_frame_seal(p + n, h);
	h->type = PBOX_STATUS; /* for the control thread */
	h->length = 4;
	memset(p + n + PBOX_HDR_LEN, 0, 4);
	n += pbox_frame_seal(p + n, h);
	memset(p + n, 7, 5); /* and a tail */
	n += 5;
	rig_put(&rig, 0, f, worker_frame(0, PBOX_CONTROL_PORT + 1, p, n, f));
	rig_pump(&rig);
	UNIT_EQ_U64(rig_shard(&rig, PBOX_SS_RX_CONTRIBUTION), 1);
	UNIT_EQ_U64(rig_shard(&rig, PBOX_SS_RX_DUP_PENDING), 1);
	UNIT_EQ_U64(rig_shard(&rig, PBOX_SS_RX_PING), 1);
	UNIT_EQ_U64(rig_shard(&rig, PBOX_SS_HELD), 1);
	UNIT_EQ_U64(rig_core(&rig, PBOX_CS_FRAMES_CONTROL), 1);
	UNIT_EQ_U64(rig_core(&rig, PBOX_CS_FRAME_TRAILING), 1);
	UNIT_EQ_U64(pbox_stats_total(pbox_control_stats(rig.control), "registrar", "rx_status"), 1);
	/* more pings than a burst holds */
	n = 0;
	for (unsigned i = 0; i < 22; i++) {
		h->type = PBOX_PING;
		h->length = 0;
		n += pbox_frame_seal(p + n, h);
	}
	for (unsigned i = 0; i < 10; i++)
		rig_put(&rig, 0, f, worker_frame(0, PBOX_CONTROL_PORT + 1, p, n, f));
	rig_pump(&rig);
	UNIT_EQ_U64(rig_shard(&rig, PBOX_SS_RX_PING), 221);
	rig_conserved(&rig);
	rig_stop(&rig);
}

/* A wrong UDP checksum is no reason to drop: the CRC of the frame decides (R2.4). */
static void
checksums(void)
{
	uint8_t p[2048], f[2048];
	struct pbox_hdr *h;
	size_t n, len;
	uint16_t sum;

	rig_start(&rig, &(struct rig_options){.queues = 1, .cores = 1});
	join_two(352);
	n = push_frame(p, 1408, &h);
	pbox_frame_seal(p, h);
	len = worker_frame(0, PBOX_CONTROL_PORT + 1, p, n, f);
	memcpy(f + 40, "\x12\x34", 2);
	rig_put(&rig, 0, f, len);
	rig_pump(&rig);
	UNIT_EQ_U64(rig_shard(&rig, PBOX_SS_RX_CONTRIBUTION), 1);
	UNIT_EQ_U64(rig_core(&rig, PBOX_CS_UDP_CHECKSUM_PARTIAL), 0);
	/* left to hardware: the sum of the pseudo header */
	len = worker_frame(1, PBOX_CONTROL_PORT + 1, p, n, f);
	sum = pbox_net_sum_fold(pbox_net_sum(f + 26, 8, 0) + 0x1100 +
				(uint64_t)((((n + 8) & 0xFF) << 8) | (n + 8) >> 8));
	memcpy(f + 40, &sum, 2);
	rig_put(&rig, 0, f, len);
	rig_pump(&rig);
	UNIT_EQ_U64(rig_core(&rig, PBOX_CS_UDP_CHECKSUM_PARTIAL), 1);
	UNIT_EQ_U64(rig_shard(&rig, PBOX_SS_RX_FRAMES), 2);
	/* cut off on the way */
	rig_put(&rig, 0, f, len - 100);
	rig_pump(&rig);
	UNIT_EQ_U64(rig_core(&rig, PBOX_CS_DROP_IP_TRUNCATED), 1);
	rig_stop(&rig);
}

/* A packet in two buffers: made one where it fits, dropped by name where not. */
static void
segments(void)
{
	uint8_t p[2048], f[2048];
	struct rte_mbuf *a, *b;
	struct pbox_hdr *h;
	size_t n, len;

	rig_start(&rig, &(struct rig_options){.queues = 1, .cores = 1});
	join_two(352);
	n = push_frame(p, 1408, &h);
	pbox_frame_seal(p, h);
	len = worker_frame(0, PBOX_CONTROL_PORT + 1, p, n, f);
	a = rte_pktmbuf_alloc(rig.pool);
	b = rte_pktmbuf_alloc(rig.pool);
	CU_ASSERT_FATAL(a != NULL && b != NULL);
	memcpy(rte_pktmbuf_append(a, 700), f, 700);
	memcpy(rte_pktmbuf_append(b, (uint16_t)(len - 700)), f + 700, len - 700);
	UNIT_EQ_U64(rte_pktmbuf_chain(a, b), 0);
	rig_put_mbuf(&rig, 0, a);
	rig_pump(&rig);
	UNIT_EQ_U64(rig_shard(&rig, PBOX_SS_RX_CONTRIBUTION), 1);
	a = rte_pktmbuf_alloc(rig.pool);
	b = rte_pktmbuf_alloc(rig.pool);
	CU_ASSERT_FATAL(a != NULL && b != NULL);
	rte_pktmbuf_append(a, 2000);
	rte_pktmbuf_append(b, 2000);
	UNIT_EQ_U64(rte_pktmbuf_chain(a, b), 0);
	rig_put_mbuf(&rig, 0, a);
	rig_pump(&rig);
	UNIT_EQ_U64(rig_core(&rig, PBOX_CS_DROP_SEGMENTS), 1);
	rig_stop(&rig);
}

/* More than the rings between core and control hold. */
static void
rings_full(void)
{
	uint8_t p[256] = {0}, f[512];
	struct pbox_hdr hello = {.type = PBOX_HELLO, .length = 64};
	struct pbox_hdr ping_hdr = {.type = PBOX_PING};
	size_t n = pbox_frame_seal(p, &hello), len;

	rig_start(&rig, &(struct rig_options){.queues = 1, .cores = 2});
	len = worker_frame(0, PBOX_CONTROL_PORT, p, n, f);
	for (unsigned i = 0; i < 1100; i++)
		rig_put(&rig, 0, f, len);
	for (unsigned i = 0; i < 100; i++)
		rig_turn(&rig);
	UNIT_EQ_U64(rig_core(&rig, PBOX_CS_RX_CONTROL), 1024);
	UNIT_EQ_U64(rig_core(&rig, PBOX_CS_DROP_CONTROL_FULL), 76);
	rig_pump(&rig);
	/* core 1 is not there to take its packets */
	n = pbox_frame_seal(p, &ping_hdr);
	len = worker_frame(0, PBOX_CONTROL_PORT + 2, p, n, f);
	for (unsigned i = 0; i < 600; i++)
		rig_put(&rig, 0, f, len);
	for (unsigned i = 0; i < 100; i++)
		pbox_dp_turn(pbox_dp_core(rig.dp, 0));
	UNIT_EQ_U64(rig_core(&rig, PBOX_CS_DROP_HANDOFF_FULL), 600 - 512);
	rig_stop(&rig); /* those 512 are in the ring: counted as drop_stopped */
}

/* As many as it gets before the control thread turns. */
static void
status(const struct worker *v, uint16_t to, unsigned n)
{
	static uint32_t now = 7777; /* of the workers: each request is a new one, no copy */
	const struct pbox_status m = {0};
	uint8_t p[256], f[512], payload[64];
	struct pbox_hdr h = {.type = PBOX_STATUS,
		.token = v->token,
		.job = v->job,
		.worker = (uint16_t)v->n,
		.incarnation = v->incarnation,
		.chunk = 7777,
		.length = (uint16_t)pbox_status_encode(payload, sizeof(payload), &m)};
	size_t len;

	memcpy(p + PBOX_HDR_LEN, payload, h.length);
	for (unsigned i = 0; i < n; i++) {
		h.ts = ++now;
		len = worker_frame(v->n, to, p, pbox_frame_seal(p, &h), f);
		rig_put(&rig, 0, f, len);
	}
	for (unsigned i = 0; i < 100; i++)
		rig_turn(&rig);
}

static unsigned
answers(unsigned n, enum pbox_type type)
{
	unsigned got = 0;

	rig_collect(&rig);
	for (unsigned i = rig.got[n]; i < rig.n_inbox[n]; i++) {
		const struct rig_datagram *d = &rig.inbox[n][i % RIG_INBOX];
		struct pbox_hdr h;
		size_t size;

		CU_ASSERT_EQUAL(pbox_frame_decode(d->bytes, d->len, true, &h, &size), PBOX_WIRE_OK);
		got += h.type == type;
	}
	rig.got[n] = rig.n_inbox[n];
	return got;
}

/* Strangers have one way to the control thread, and frames with a good token another, which goes first. In that one
 * who has asked much gets no more than half. */
static void
two_ways(void)
{
	struct pbox_hdr hello = {.type = PBOX_HELLO, .length = 64};
	uint8_t p[256] = {0}, f[512];
	size_t len = worker_frame(2, PBOX_CONTROL_PORT, p, pbox_frame_seal(p, &hello), f);
	uint64_t before, full;

	/* one a second: none is earned while this runs, and 8192 are there */
	rig_start(&rig, &(struct rig_options){.queues = 1, .cores = 1, .requests = 1});
	join_two(352);
	rig_pump(&rig);
	for (unsigned i = 0; i < 1100; i++)
		rig_put(&rig, 0, f, len);
	for (unsigned i = 0; i < 100; i++)
		rig_turn(&rig);
	UNIT_EQ_U64(rig_core(&rig, PBOX_CS_DROP_CONTROL_FULL), 1100 - 1024);
	answers(0, PBOX_STATUS_OK);
	answers(2, PBOX_RETRY);
	UNIT_EQ_U64(pbox_dp_control_waiting(rig.dp, 0), 0);
	status(&w[0], PBOX_CONTROL_PORT, 3);
	status(&w[0], PBOX_CONTROL_PORT + 1, 2); /* and from a data port */
	UNIT_EQ_U64(pbox_dp_control_waiting(rig.dp, 0), 5);
	UNIT_EQ_U64(rig_core(&rig, PBOX_CS_FRAMES_CONTROL), 2);
	UNIT_EQ_U64(rig_core(&rig, PBOX_CS_DROP_CONTROL_FULL), 1100 - 1024);
	/* before any more than their part of strangers */
	CU_ASSERT(pbox_control_step(rig.control) > 0);
	rig_turn(&rig);
	UNIT_EQ_U64(pbox_dp_control_waiting(rig.dp, 0), 0);
	UNIT_EQ_U64(answers(0, PBOX_STATUS_OK), 5);
	CU_ASSERT(answers(2, PBOX_RETRY) < 100);
	rig_pump(&rig);

	/* more than half of what a session may have saved up */
	for (unsigned i = 0; i < 10; i++) {
		status(&w[0], PBOX_CONTROL_PORT, 430);
		rig_pump(&rig);
	}
	full = rig_core(&rig, PBOX_CS_DROP_CONTROL_FULL);
	before = rig_core(&rig, PBOX_CS_RX_CONTROL);
	status(&w[0], PBOX_CONTROL_PORT, 600);
	UNIT_EQ_U64(rig_core(&rig, PBOX_CS_RX_CONTROL) - before, 513);
	UNIT_EQ_U64(rig_core(&rig, PBOX_CS_DROP_CONTROL_FULL) - full, 600 - 513);
	/* the rest is for the other one */
	status(&w[1], PBOX_CONTROL_PORT, 600);
	UNIT_EQ_U64(pbox_dp_control_waiting(rig.dp, 0), 1024);
	UNIT_EQ_U64(rig_core(&rig, PBOX_CS_RX_CONTROL) - before, 1024);
	UNIT_EQ_U64(rig_core(&rig, PBOX_CS_DROP_CONTROL_FULL) - full, 1200 - 1024);
	status(&w[1], PBOX_CONTROL_PORT + 1, 1);
	UNIT_EQ_U64(rig_core(&rig, PBOX_CS_FRAME_CONTROL_FULL), 1);
	rig_pump(&rig);
	rig_conserved(&rig);
	/* and at the end of what it has there is nothing, on either way */
	for (unsigned i = 0; i < 10; i++) {
		status(&w[0], PBOX_CONTROL_PORT, 430);
		rig_pump(&rig);
	}
	before = rig_core(&rig, PBOX_CS_RX_CONTROL);
	full = rig_core(&rig, PBOX_CS_DROP_CONTROL_RATE);
	status(&w[0], PBOX_CONTROL_PORT, 100);
	CU_ASSERT(rig_core(&rig, PBOX_CS_DROP_CONTROL_RATE) > full);
	status(&w[1], PBOX_CONTROL_PORT, 100);
	CU_ASSERT(rig_core(&rig, PBOX_CS_RX_CONTROL) >= before + 100);
	rig_pump(&rig);
	rig_stop(&rig);
}

/* A device that keeps what it has sent until its queue is full, and a core that keeps what it gets back
 * from there, leave packets for what control has to say. */
static void
control_packets(void)
{
	struct rte_mbuf *kept[PBOX_PORT_CACHE * 3 / 2];
	unsigned n = 0;

	rig_start(&rig, &(struct rig_options){.queues = 1, .cores = 1, .out_size = 1024});
	UNIT_EQ_U64(rig.port[0].n_txd, 1024);
	while (n < RTE_DIM(kept)) {
		CU_ASSERT_FATAL(pbox_dp_announce(rig.dp, 0) == 0);
		rig_turn(&rig);
		if (rte_ring_full(rig.out[0]))
			CU_ASSERT_FATAL(rte_ring_dequeue(rig.out[0], (void **)&kept[n++]) == 0);
	}
	UNIT_EQ_U64(rig_core(&rig, PBOX_CS_TX_PACKETS), 1024 + n - 1);
	/* the core is late */
	for (unsigned i = 0; i < 1024; i++)
		UNIT_EQ_U64(pbox_dp_announce(rig.dp, 0), 0);
	UNIT_EQ_U64(pbox_dp_control_lost(rig.dp), 0);
	rte_pktmbuf_free_bulk(kept, n);
	rig_stop(&rig);
}

/* Anything: accepted or one named drop, and everything comes back. */
static void
random_frames(void)
{
	struct pbox_random rnd;
	uint8_t good[2048], p[2048], f[2048];
	struct pbox_hdr *h;
	size_t n, len;

	rig_start(&rig, &(struct rig_options){.queues = 2, .cores = 2});
	join_two(5000);
	pbox_random_seed(&rnd, 42);
	n = push_frame(p, 1408, &h);
	pbox_frame_seal(p, h);
	len = worker_frame(0, PBOX_CONTROL_PORT + 1, p, n, good);
	for (unsigned i = 0; i < 20000; i++) {
		size_t cut = len;

		memcpy(f, good, len);
		if (pbox_random_below(&rnd, 2) == 0) { /* a frame of a random header, sealed */
			for (unsigned k = 2; k < 58; k++)
				if (pbox_random_below(&rnd, 8) == 0)
					f[42 + k] = (uint8_t)pbox_random_u64(&rnd);
			f[42 + 28] = good[42 + 28];
			f[42 + 29] = good[42 + 29];
		}
		for (uint64_t k = pbox_random_below(&rnd, 4); k > 0; k--)
			f[pbox_random_below(&rnd, len)] ^=
				(uint8_t)(1 << pbox_random_below(&rnd, 8));
		if (pbox_random_below(&rnd, 4) == 0)
			cut = pbox_random_below(&rnd, len);
		f[37] = (uint8_t)(good[37] + pbox_random_below(&rnd, 3) - 1); /* control, 0, 1 */
		rig_put(&rig, (unsigned)pbox_random_below(&rnd, 2), f, cut);
		if (i % 100 == 99)
			rig_pump(&rig);
	}
	rig_pump(&rig);
	UNIT_EQ_U64(rig_core(&rig, PBOX_CS_RX_PACKETS), 20000 + 8);
	rig_conserved(&rig);
	/* the box still works */
	for (unsigned i = 0; i < 2; i++) {
		rig.got[i] = rig.n_inbox[i];
		CU_ASSERT(worker_map(&w[i]));
	}
	rig_stop(&rig);
}

const struct unit_test unit_tests[] = {
	{"ARP", arp},
	{"announcement", announce},
	{"ping", ping},
	{"one drop each", one_drop_each},
	{"trains", trains},
	{"checksums", checksums},
	{"packets in segments", segments},
	{"rings full", rings_full},
	{"two ways to the control thread", two_ways},
	{"packets of control", control_packets},
	{"random frames", random_frames},
	{NULL, NULL},
};
