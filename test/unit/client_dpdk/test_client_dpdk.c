/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "unit.h"
#include "wire.h"

const char unit_suite[] = "client: the DPDK transport";

#define OPS       (&pbox_client_transport_dpdk)
#define OWN_PLAIN "-- address=" WIRE_OWN "/24"

static struct pbox_client_error err;

#define HAS(part)                \
	CU_assertImplementation( \
		strstr(err.text, part) != NULL, __LINE__, err.text, __FILE__, "", CU_FALSE)

/* ---- arguments ------------------------------------------------------------------------------ */

static void
test_options(void)
{
	static const struct {
		const char *args, *says;
	} bad[] = {
		{NULL, "needs transport_args"},
		{"--in-memory --no-pci", "needs transport_args"},
		{"--", "address=A.B.C.D/PREFIX is missing"},
		{"-- address=10.0.0.1", "takes an IPv4 address and its prefix"},
		{"-- address=10.0.0.1/33", "takes an IPv4 address and its prefix"},
		{"-- address=10.0.0.1/", "takes an IPv4 address and its prefix"},
		{"-- address=10.0.0.1/2x", "takes an IPv4 address and its prefix"},
		{"-- address=0.0.0.0/24", "takes an IPv4 address and its prefix"},
		{"-- address=10.0.0.1/24 gateway=x", "gateway=x is not an IPv4 address"},
		{"-- address=10.0.0.1/24 idle=no", "idle=no is not known"},
		{"-- address=10.0.0.1/24 zero-copy=on", "zero-copy=on is not known"},
		{"-- address=10.0.0.1/24 addressx=1", "addressx=1 is not known"},
		{"-- address=10.0.0.1/24 sleep", "'sleep' is not NAME=VALUE"},
	};
	struct dpdk_options o;
	size_t eal;

	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		memset(&err, 0, sizeof(err));
		CU_ASSERT_EQUAL(dpdk_options(&o, bad[i].args, &eal, &err), PBOX_C_INVALID);
		HAS(bad[i].says);
	}
	CU_ASSERT_EQUAL(
		dpdk_options(&o,
			"--no-pci --vdev net_x--y,a=b -- address=10.0.0.2/24  gateway=10.0.0.9 port=net_x idle=sleep zero-copy=off",
			&eal, &err),
		0);
	UNIT_EQ_U64(eal, 29);
	CU_ASSERT(o.ip == inet_addr("10.0.0.2") && o.gateway == inet_addr("10.0.0.9"));
	CU_ASSERT(o.prefix_len == 24 && o.sleep && o.copy && strcmp(o.port, "net_x") == 0);
	CU_ASSERT_EQUAL(dpdk_options(&o, "--\n\taddress=10.0.0.2/32\n", &eal, &err), 0);
	CU_ASSERT(eal == 0 && !o.sleep && !o.copy && o.port[0] == 0 && o.gateway == 0);
}

/* ---- opening -------------------------------------------------------------------------------- */

static int
try_open(struct pbox_client_transport **t, const char *box, const char *args, const char *bind)
{
	struct pbox_client_transport_conf conf = {.args = args, .bind = bind, .timeout_ms = 300};

	conf.box.sin_family = AF_INET;
	conf.box.sin_port = htons(7269);
	inet_pton(AF_INET, box, &conf.box.sin_addr);
	memset(&err, 0, sizeof(err));
	return OPS->open(t, &conf, &err);
}

/** Opened on a wire of its own, with somebody who answers ARP meanwhile. */
static struct dpdk *
must_open(struct wire *w, const char *more)
{
	struct pbox_client_transport *t = NULL;
	char args[256];

	snprintf(args, sizeof(args), OWN_PLAIN " port=%u %s", w->id, more);
	wire_arp(w);
	CU_ASSERT_EQUAL(try_open(&t, WIRE_BOX, args, NULL), 0);
	wire_quiet(w);
	if (t == NULL)
		fprintf(stderr, "%s\n", err.text);
	CU_ASSERT_PTR_NOT_NULL_FATAL(t);
	return (struct dpdk *)t;
}

static void
close_all(struct dpdk *s, struct wire *w)
{
	const struct dpdk_port *p = s->port;
	struct rte_mbuf *m;

	while ((m = wire_take(w)) != NULL)
		rte_pktmbuf_free(m);
	OPS->close(&s->t);
	CU_ASSERT(wire_clean(w, p));
	wire_close(w);
}

static void
test_open(void)
{
	struct pbox_client_transport *t = NULL, *other = NULL;
	struct wire *w = wire_open(1024);
	struct rte_mbuf *m;
	struct dpdk *s;

	CU_ASSERT_EQUAL(try_open(&t, WIRE_BOX, OWN_PLAIN, "10.0.0.1"), PBOX_C_INVALID);
	HAS("bind is for kernel sockets");
	CU_ASSERT_EQUAL(try_open(&t, WIRE_BOX, "-l 0 " OWN_PLAIN, NULL), PBOX_C_INVALID);
	HAS("has started EAL already");
	CU_ASSERT_EQUAL(try_open(&t, WIRE_BOX, OWN_PLAIN " port=77", NULL), PBOX_C_INVALID);
	HAS("there is no port '77'");
	CU_ASSERT_EQUAL(try_open(&t, "10.8.0.1", OWN_PLAIN, NULL), PBOX_C_UNREACHABLE);
	HAS("no gateway= to it");
	CU_ASSERT_EQUAL(try_open(&t, WIRE_BOX, OWN_PLAIN, NULL), PBOX_C_UNREACHABLE);
	HAS("nobody answers ARP for " WIRE_BOX);
	while ((m = wire_take(w)) != NULL)
		rte_pktmbuf_free(m);
	s = must_open(w, ""); /* the port was given back each time */
	CU_ASSERT(s->t.mtu == 1500 && s->t.window > 0 && s->t.batch > 0 && s->t.train_max < 2);
	CU_ASSERT_EQUAL(try_open(&other, WIRE_BOX, OWN_PLAIN, NULL), PBOX_C_INVALID);
	HAS("all 1 ports have clients");
	close_all(s, w);
}

/* ---- sending -------------------------------------------------------------------------------- */

static uint8_t head[64], foreign[1400];

/** Send one datagram, and take the packet off the wire. */
static struct rte_mbuf *
send_one(struct dpdk *s, struct wire *w, struct pbox_client_peer *to, const void *payload,
	uint32_t len, bool stays)
{
	struct iovec iov[2] = {{head, sizeof(head)}, {(void *)(uintptr_t)payload, len}};
	struct pbox_client_tx d = {.to = to,
		.iov = iov,
		.n = len > 0 ? 2 : 1,
		.bytes = (uint32_t)sizeof(head) + len,
		.stays = stays};
	struct rte_mbuf *m;

	OPS->send(&s->t, &d, 1);
	m = wire_take(w);
	CU_ASSERT_PTR_NOT_NULL_FATAL(m);
	return m;
}

/** What the box would read. */
static void
check_packet(struct wire *w, const struct dpdk *s, struct rte_mbuf *m, const void *payload,
	uint32_t len, uint16_t port)
{
	uint8_t flat[2048];
	struct pbox_net_pkt k;

	rte_pktmbuf_read(m, 0, m->pkt_len, flat);
	if (m->nb_segs == 1)
		memcpy(flat, rte_pktmbuf_mtod(m, void *), m->pkt_len);
	CU_ASSERT_EQUAL(pbox_net_parse(flat, m->pkt_len, &w->box, 0, &k), PBOX_NET_UDP);
	CU_ASSERT(k.src_ip == s->o.ip && k.src_port == s->udp && k.dst_port == port);
	CU_ASSERT(k.ecn == 2 && memcmp(k.src_mac, s->port->p.nif.mac, 6) == 0);
	UNIT_EQ_U64(k.payload_len, sizeof(head) + len);
	CU_ASSERT(memcmp(flat + k.payload_offset, head, sizeof(head)) == 0);
	CU_ASSERT(len == 0 || memcmp(flat + k.payload_offset + sizeof(head), payload, len) == 0);
}

static void
test_send(void)
{
	struct wire *w = wire_open(1024);
	struct dpdk *s = must_open(w, "");
	struct pbox_client_peer peer = {.addr = {.sin_family = AF_INET, .sin_port = htons(7270)}};
	uint8_t *own = OPS->alloc(&s->t, 1400);
	struct rte_mbuf *m;

	CU_ASSERT_PTR_NOT_NULL_FATAL(own);
	peer.addr.sin_addr.s_addr = w->box.ip;
	for (unsigned i = 0; i < 1400; i++)
		own[i] = foreign[i] = (uint8_t)(i * 7);
	for (unsigned i = 0; i < sizeof(head); i++)
		head[i] = (uint8_t)(200 - i);
	m = send_one(s, w, &peer, own, 1400, true);
	UNIT_EQ_U64(m->nb_segs, 2);
	CU_ASSERT(rte_pktmbuf_mtod(m->next, uint8_t *) == own);
	check_packet(w, s, m, own, 1400, 7270);
	UNIT_EQ_U64(s->refs, 1);
	UNIT_EQ_U64(s->t.tx_by_ref, 1400);
	rte_pktmbuf_free(m);
	UNIT_EQ_U64(s->refs, 0);

	m = send_one(s, w, &peer, own, 1400, false); /* it may change at once */
	memset(own, 0, 1400);
	UNIT_EQ_U64(m->nb_segs, 1);
	check_packet(w, s, m, foreign, 1400, 7270);
	rte_pktmbuf_free(m);
	m = send_one(s, w, &peer, foreign, 1400, true); /* memory that EAL does not know */
	UNIT_EQ_U64(m->nb_segs, 1);
	check_packet(w, s, m, foreign, 1400, 7270);
	rte_pktmbuf_free(m);
	UNIT_EQ_U64(s->t.tx_copied, 2800);
	m = send_one(s, w, &peer, own, 100, true); /* too short to be worth it */
	UNIT_EQ_U64(m->nb_segs, 1);
	check_packet(w, s, m, own, 100, 7270);
	rte_pktmbuf_free(m);
	m = send_one(s, w, &peer, NULL, 0, false);
	check_packet(w, s, m, NULL, 0, 7270);
	rte_pktmbuf_free(m);
	UNIT_EQ_U64(s->t.tx_by_ref, 1400);
	UNIT_EQ_U64(s->t.tx_failed, 0);
	OPS->free(&s->t, own);
	close_all(s, w);
}

static void
test_copy_only(void)
{
	struct wire *w = wire_open(1024);
	struct dpdk *s = must_open(w, "zero-copy=off");
	struct pbox_client_peer peer = {.addr = {.sin_family = AF_INET, .sin_port = htons(7270)}};
	uint8_t *own = OPS->alloc(&s->t, 1400);
	struct rte_mbuf *m;

	peer.addr.sin_addr.s_addr = w->box.ip;
	m = send_one(s, w, &peer, own, 1400, true);
	UNIT_EQ_U64(m->nb_segs, 1);
	UNIT_EQ_U64(s->t.tx_by_ref, 0);
	UNIT_EQ_U64(s->t.tx_copied, 1400);
	rte_pktmbuf_free(m);
	OPS->free(&s->t, own);
	close_all(s, w);
}

static void
test_quiesce(void)
{
	struct wire *w = wire_open(1024);
	struct dpdk *s = must_open(w, "");
	struct pbox_client_peer peer = {.addr = {.sin_family = AF_INET, .sin_port = htons(7270)}};
	uint8_t *own = OPS->alloc(&s->t, 1400);
	struct rte_mbuf *m;

	peer.addr.sin_addr.s_addr = w->box.ip;
	m = send_one(s, w, &peer, own, 1400, true);
	rte_pktmbuf_free(m);
	OPS->quiesce(&s->t);
	CU_ASSERT(s->by_ref);
	m = send_one(s, w, &peer, own, 1400, true);
	UNIT_EQ_U64(m->nb_segs, 2);
	OPS->quiesce(&s->t); /* this driver does not let go: no more of the caller's memory */
	CU_ASSERT(!s->by_ref);
	rte_pktmbuf_free(m);
	m = send_one(s, w, &peer, own, 1400, true);
	UNIT_EQ_U64(m->nb_segs, 1);
	rte_pktmbuf_free(m);
	OPS->free(&s->t, own);
	close_all(s, w);
}

static void
test_full_queue(void)
{
	struct wire *w = wire_open(100);
	struct dpdk *s = must_open(w, "idle=sleep");
	struct pbox_client_peer peer = {.addr = {.sin_family = AF_INET, .sin_port = htons(7270)}};
	struct iovec iov[64];
	struct pbox_client_tx d[64];

	peer.addr.sin_addr.s_addr = w->box.ip;
	for (unsigned i = 0; i < 64; i++) {
		iov[i] = (struct iovec){head, sizeof(head)};
		d[i] = (struct pbox_client_tx){
			.to = &peer, .iov = &iov[i], .n = 1, .bytes = sizeof(head)};
	}
	OPS->send(&s->t, d, 64);
	UNIT_EQ_U64(s->t.tx_failed, 0);
	OPS->send(&s->t, d, 64);
	UNIT_EQ_U64(s->t.tx_failed, 28);
	UNIT_EQ_U64(rte_ring_count(w->out), 100);
	close_all(s, w);
}

/** An endpoint whose MAC is not known yet: asked for, and sent to when the answer is here. */
static void
test_late_arp(void)
{
	struct wire *w = wire_open(1024);
	struct dpdk *s = must_open(w, "");
	struct pbox_client_peer peer = {.addr = {.sin_family = AF_INET, .sin_port = htons(7270)}};
	struct iovec iov = {head, sizeof(head)};
	struct pbox_client_tx d = {.to = &peer, .iov = &iov, .n = 1, .bytes = sizeof(head)};
	const struct pbox_client_rx *v;
	struct pbox_net_pkt k;
	uint8_t frame[64];
	struct rte_mbuf *m;

	w->box.ip = inet_addr("10.9.0.7");
	w->box.mac[5] = 7;
	peer.addr.sin_addr.s_addr = w->box.ip;
	OPS->send(&s->t, &d, 1);
	UNIT_EQ_U64(s->t.tx_failed, 1);
	m = wire_take(w);
	CU_ASSERT_PTR_NOT_NULL_FATAL(m);
	CU_ASSERT_EQUAL(pbox_net_parse(rte_pktmbuf_mtod(m, void *), m->data_len, &w->box, 0, &k),
		PBOX_NET_ARP_REQUEST);
	UNIT_EQ_U64(m->pkt_len, 60);
	rte_pktmbuf_free(m);
	wire_give(w, frame, pbox_net_arp_reply(frame, sizeof(frame), &w->box, &k));
	UNIT_EQ_U64(OPS->recv(&s->t, &v), 0);
	OPS->send(&s->t, &d, 1);
	m = wire_take(w);
	CU_ASSERT_PTR_NOT_NULL_FATAL(m);
	check_packet(w, s, m, NULL, 0, 7270);
	rte_pktmbuf_free(m);
	close_all(s, w);
}

/* ---- receiving ------------------------------------------------------------------------------ */

static void
test_receive(void)
{
	struct wire *w = wire_open(1024);
	struct dpdk *s = must_open(w, "");
	const struct pbox_client_rx *v;
	uint8_t cut[PBOX_NET_HEADERS_LEN + 10];
	struct rte_mbuf *m;

	wire_datagram(w, s, 7270, s->udp, "first", 5, 2);
	wire_datagram(w, s, 7269, s->udp, "second!", 7, 3);
	wire_datagram(w, s, 7269, (uint16_t)(s->udp - 1), "not for us", 10, 0);
	UNIT_EQ_U64(OPS->recv(&s->t, &v), 2);
	CU_ASSERT(!s->t.more);
	CU_ASSERT(v[0].len == 5 && memcmp(v[0].data, "first", 5) == 0 && v[0].ecn == 2);
	CU_ASSERT(v[0].from.sin_family == AF_INET && v[0].from.sin_port == htons(7270));
	CU_ASSERT(v[0].from.sin_addr.s_addr == w->box.ip);
	CU_ASSERT(v[1].len == 7 && memcmp(v[1].data, "second!", 7) == 0 && v[1].ecn == 3);
	UNIT_EQ_U64(rte_mempool_in_use_count(w->pool), 2); /* they are ours until the next recv */
	UNIT_EQ_U64(OPS->recv(&s->t, &v), 0);
	UNIT_EQ_U64(rte_mempool_in_use_count(w->pool), 0);

	wire_datagram(w, s, 7269, s->udp, foreign, 100, 0);
	UNIT_EQ_U64(OPS->recv(&s->t, &v), 1);
	memcpy(cut, v[0].data - PBOX_NET_HEADERS_LEN, sizeof(cut));
	wire_give(w, cut, sizeof(cut)); /* a frame that a driver has cut */
	UNIT_EQ_U64(OPS->recv(&s->t, &v), 0);
	UNIT_EQ_U64(s->t.rx_failed, 1);

	for (unsigned i = 0; i < DPDK_RX_BURST + 3; i++)
		wire_datagram(w, s, 7269, s->udp, &i, sizeof(i), 0);
	UNIT_EQ_U64(OPS->recv(&s->t, &v), DPDK_RX_BURST);
	CU_ASSERT(s->t.more);
	OPS->wait(&s->t, 1000000000); /* there is something: it comes back at once */
	UNIT_EQ_U64(OPS->recv(&s->t, &v), 3);
	CU_ASSERT(v[2].len == 4 && v[2].data[0] == DPDK_RX_BURST + 2);
	m = wire_take(w);
	CU_ASSERT_PTR_NULL(m);
	close_all(s, w);
}

static void
test_answers(void)
{
	struct wire *w = wire_open(1024);
	struct dpdk *s = must_open(w, "");
	const struct pbox_client_rx *v;
	uint8_t frame[128] = {0}, echo[PBOX_NET_ETH_LEN + PBOX_NET_IP_LEN + 8 + 32] = {0};
	struct pbox_net_udp_template t;
	struct pbox_net_pkt k;
	struct rte_mbuf *m;
	uint16_t sum;

	wire_give(w, frame, pbox_net_arp_request(frame, sizeof(frame), &w->box, s->o.ip));
	wire_give(w, frame,
		pbox_net_arp_request(frame, sizeof(frame), &w->box, inet_addr("10.9.0.3")));
	UNIT_EQ_U64(OPS->recv(&s->t, &v), 0);
	m = wire_take(w);
	CU_ASSERT_PTR_NOT_NULL_FATAL(m);
	CU_ASSERT_EQUAL(pbox_net_parse(rte_pktmbuf_mtod(m, void *), m->data_len, &w->box, 0, &k),
		PBOX_NET_ARP_REPLY);
	CU_ASSERT(k.src_ip == s->o.ip && memcmp(k.arp_mac, s->port->p.nif.mac, 6) == 0);
	UNIT_EQ_U64(m->pkt_len, 60);
	rte_pktmbuf_free(m);
	CU_ASSERT_PTR_NULL(wire_take(w));

	/* a ping: the headers of a datagram, with another protocol and no UDP in it */
	pbox_net_udp_template(&t, &w->box, 0, s->port->p.nif.mac, s->o.ip, 0, 0);
	pbox_net_udp_header(&t, echo, 32, 9);
	memset(echo + 34, 0, sizeof(echo) - 34);
	echo[23] = 1;
	memset(echo + 24, 0, 2);
	sum = pbox_net_checksum(echo + 14, 20);
	memcpy(echo + 24, &sum, 2);
	echo[34] = 8;
	echo[50] = 42;
	sum = pbox_net_checksum(echo + 34, 40);
	memcpy(echo + 36, &sum, 2);
	wire_give(w, echo, sizeof(echo));
	UNIT_EQ_U64(OPS->recv(&s->t, &v), 0);
	m = wire_take(w);
	CU_ASSERT_PTR_NOT_NULL_FATAL(m);
	memcpy(frame, rte_pktmbuf_mtod(m, void *), sizeof(echo));
	CU_ASSERT(frame[34] == 0 && frame[50] == 42 && pbox_net_checksum(frame + 34, 40) == 0);
	CU_ASSERT(memcmp(frame, w->box.mac, 6) == 0 && memcmp(frame + 30, &w->box.ip, 4) == 0);
	rte_pktmbuf_free(m);
	close_all(s, w);
}

/* ---- waiting -------------------------------------------------------------------------------- */

static void *
wake_later(void *t)
{
	usleep(20000);
	OPS->wake(t);
	return NULL;
}

static void
test_wait(const char *idle)
{
	struct wire *w = wire_open(1024);
	struct dpdk *s = must_open(w, idle);
	const struct pbox_client_rx *v;
	uint64_t begin = dpdk_now_ns();
	pthread_t thread;

	OPS->wait(&s->t, 3 * NS_MS);
	CU_ASSERT(dpdk_now_ns() - begin >= 3 * NS_MS);
	begin = dpdk_now_ns();
	CU_ASSERT_EQUAL(pthread_create(&thread, NULL, wake_later, &s->t), 0);
	OPS->wait(&s->t, 200 * NS_S);
	CU_ASSERT(dpdk_now_ns() - begin >= 15 * NS_MS && dpdk_now_ns() - begin < 100 * NS_S);
	pthread_join(thread, NULL);
	OPS->wake(&s->t); /* before the wait: it counts */
	begin = dpdk_now_ns();
	OPS->wait(&s->t, 200 * NS_S);
	wire_datagram(w, s, 7269, s->udp, "x", 1, 0);
	OPS->wait(&s->t, 200 * NS_S);
	CU_ASSERT(dpdk_now_ns() - begin < 100 * NS_S);
	UNIT_EQ_U64(OPS->recv(&s->t, &v), 1);
	close_all(s, w);
}

static void
test_wait_poll(void)
{
	test_wait("idle=poll");
}

static void
test_wait_sleep(void)
{
	test_wait("idle=sleep");
}

/** The next client of the process gets the port, not what was meant for the one before. */
static void
test_reopen(void)
{
	struct wire *w = wire_open(1024);
	struct dpdk *s = must_open(w, "");
	const struct pbox_client_rx *v;
	const struct dpdk_port *p = s->port;
	uint16_t udp = s->udp;

	wire_datagram(w, s, 7269, udp, "late", 4, 0);
	OPS->close(&s->t);
	s = must_open(w, "");
	CU_ASSERT(s->port == p);
	s->udp = udp;
	UNIT_EQ_U64(OPS->recv(&s->t, &v), 0);
	wire_datagram(w, s, 7269, udp, "new", 3, 0);
	UNIT_EQ_U64(OPS->recv(&s->t, &v), 1);
	close_all(s, w);
}

const struct unit_test unit_tests[] = {
	{"arguments", test_options},
	{"opening and its errors", test_open},
	{"sending by reference and by copy", test_send},
	{"copies only", test_copy_only},
	{"quiesce", test_quiesce},
	{"a full queue", test_full_queue},
	{"a next hop that is not known yet", test_late_arp},
	{"receiving", test_receive},
	{"ARP and ping are answered", test_answers},
	{"waiting, polling", test_wait_poll},
	{"waiting, sleeping", test_wait_sleep},
	{"the next client", test_reopen},
	{NULL, NULL},
};
