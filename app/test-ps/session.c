/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* What main does with all lanes together. Every wait has a deadline: --timeout. */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_ether.h>
#include <rte_launch.h>
#include <sodium.h>

#include "library.h"
#include "loopback.h"
#include "session.h"

#define LEAVE_US (5 * US_SECOND) /* of 1024 workers, on a machine with other work */

static void
session_nap(void)
{
	static const struct timespec t = {.tv_nsec = 200000};

	nanosleep(&t, NULL);
}

bool
session_failed(struct testps *t, struct pbox_error *err)
{
	for (unsigned i = 0; i < t->lanes; i++)
		if (atomic_load(&t->lane[i]->failed)) {
			if (err != NULL)
				*err = t->lane[i]->err;
			return true;
		}
	return false;
}

/* Until @p done says so for all lanes. */
int
session_await(struct testps *t, bool (*done)(const struct lane *l, int want), int want,
	uint64_t patience, struct pbox_error *err)
{
	uint64_t end = testps_now(t) + patience;
	unsigned i = 0;

	for (;;) {
		while (i < t->lanes && done(t->lane[i], want))
			i++;
		if (i == t->lanes)
			return 0;
		session_hops(t);
		if (session_failed(t, err))
			return -EIO;
		if (testps_now(t) > end)
			return -ETIMEDOUT;
		if (session_lost(t) && !atomic_load(&t->rejoining)) {
			if (session_rejoin(t, err) != 0)
				return -EIO;
			end = testps_now(t) + patience;
		}
		session_nap();
	}
}

static bool
at_level(const struct lane *l, int want)
{
	return (int)atomic_load(&l->level) >= want;
}

int
session_reach(struct testps *t, enum level want, const char *what, struct pbox_error *err)
{
	int ret;

	for (unsigned i = 0; i < t->lanes; i++)
		atomic_store(&t->lane[i]->level_wanted, (int)want);
	ret = session_await(t, at_level, (int)want, t->opt.timeout_ns / 1000, err);
	if (ret == -ETIMEDOUT)
		pbox_fail(err, ETIMEDOUT, "%s did not end in %.1f s: %s", what,
			(double)t->opt.timeout_ns / 1e9,
			want == LEVEL_JOINED
				? "the box answers ARP but not the workers: its log names the reason, and its port is --box ADDRESS:PORT"
				: "the box waits for something; usertools/pbox-ctl why names it");
	return ret;
}

/* ---- addresses -------------------------------------------------------------------------------- */

static uint32_t
next_hop(const struct pbox_port *p, uint32_t ip)
{
	uint32_t mask = rte_cpu_to_be_32(
		p->nif.prefix_len == 0 ? 0 : UINT32_MAX << (32 - p->nif.prefix_len));

	if (((ip ^ p->nif.ip) & mask) == 0)
		return ip;
	return p->conf.gateway;
}

static bool
all_known(const struct lane *l, int n)
{
	const struct testps *t = l->t;

	for (unsigned p = 0; p < t->n_ports && p < t->workers; p++)
		for (int i = 0; i < n; i++)
			if (!atomic_load(&t->hop[p][i].known))
				return false;
	return true;
}

/* Place of @p ip in the table of hops, which gets it if it is new; -1: no way to it. */
static int
hop_add(struct testps *t, uint32_t ip, struct pbox_error *err)
{
	unsigned n = atomic_load(&t->hops), i = 0;
	const uint8_t *b = (const uint8_t *)&ip;

	while (i < n && t->hop[0][i].ip != next_hop(&t->port[0], ip))
		i++;
	if (i < n)
		return (int)i;
	if (n == TESTPS_HOPS)
		return pbox_fail(err, E2BIG, "more than %d addresses of boxes", TESTPS_HOPS);
	for (unsigned p = 0; p < t->n_ports; p++) {
		struct hop *h = &t->hop[p][n];

		h->ip = next_hop(&t->port[p], ip);
		if (h->ip == 0)
			return pbox_fail(err, EHOSTUNREACH,
				"%u.%u.%u.%u is not in the network of --address: give a --gateway, or another --address",
				b[0], b[1], b[2], b[3]);
		if (t->opt.box_mac[0] != '\0') {
			struct rte_ether_addr mac;

			if (rte_ether_unformat_addr(t->opt.box_mac, &mac) != 0)
				return pbox_fail(err, EINVAL,
					"--box-mac %s: six bytes such as 02:00:00:00:00:01",
					t->opt.box_mac);
			memcpy(h->mac, mac.addr_bytes, sizeof(h->mac));
			atomic_store(&h->known, true);
		} else {
			atomic_store(&h->known, false);
		}
	}
	atomic_store(&t->hops, n + 1);
	return (int)n;
}

void
session_hops(struct testps *t)
{
	for (unsigned i = 0; i < t->lanes; i++) {
		struct lane *l = t->lane[i];
		uint32_t ip = atomic_exchange(&l->hop_wanted, 0);
		struct pbox_error err;

		if (ip != 0 && hop_add(t, ip, &err) < 0)
			lane_fail(l, "%s", err.text);
	}
}

static int
session_resolve(struct testps *t, struct pbox_error *err)
{
	const uint8_t *b = (const uint8_t *)&t->box_ip;
	int ret = session_await(
		t, all_known, (int)atomic_load(&t->hops), t->opt.timeout_ns / 1000, err);

	if (ret == -ETIMEDOUT)
		pbox_fail(err, EHOSTUNREACH,
			"nobody answers ARP for %u.%u.%u.%u: is the box up, and on the other side of port %u (%s)?",
			b[0], b[1], b[2], b[3], t->port[0].conf.id, t->port[0].dev.name);
	return ret;
}

static void
control_templates(struct testps *t, unsigned hop)
{
	for (unsigned w = 0; w < t->workers; w++)
		pbox_net_udp_template(&t->control_to[w], &t->nif[w], t->udp[w],
			t->hop[lane_port_of(t, w)][hop].mac, t->box_ip, t->box_port, 0);
}

int
session_find_box(struct testps *t, struct pbox_error *err)
{
	int hop, ret;

	atomic_store(&t->hops, 0);
	hop = hop_add(t, t->box_ip, err);
	ret = hop < 0 ? hop : session_resolve(t, err);
	if (ret == 0)
		control_templates(t, (unsigned)hop);
	return ret;
}

int
session_find_endpoints(struct testps *t, struct pbox_error *err)
{
	unsigned n = t->session.endpoints;
	int hop[PBOX_MAX_ENDPOINTS], ret;

	for (unsigned e = 0; e < n; e++) {
		hop[e] = hop_add(t, t->session.endpoint[e].sin_addr.s_addr, err);
		if (hop[e] < 0)
			return hop[e];
	}
	ret = session_resolve(t, err);
	if (ret != 0)
		return ret;
	free(t->data_to);
	t->data_to = aligned_alloc(64, (size_t)t->workers * n * sizeof(*t->data_to));
	if (t->data_to == NULL)
		return pbox_fail(err, ENOMEM, "no memory for %u workers", t->workers);
	for (unsigned w = 0; w < t->workers; w++)
		for (unsigned e = 0; e < n; e++) {
			const struct sockaddr_in *a = &t->session.endpoint[e];

			pbox_net_udp_template(&t->data_to[w * n + e], &t->nif[w], t->udp[w],
				t->hop[lane_port_of(t, w)][hop[e]].mac, a->sin_addr.s_addr,
				ntohs(a->sin_port), 0);
		}
	return 0;
}

/* ---- lanes ------------------------------------------------------------------------------------ */

/* The lanes run while a session is there: between sessions main changes what they look at. */
int
session_lanes_start(struct testps *t, struct pbox_error *err)
{
	uint8_t run[sizeof(t->run) / 2];

	randombytes_buf(run, sizeof(run));
	sodium_bin2hex(t->run, sizeof(t->run), run, sizeof(run));
	for (unsigned i = 0; i < t->lanes; i++) {
		struct lane *l = t->lane[i];

		l->workers = t->workers / t->lanes + (i < t->workers % t->lanes);
		if (t->opt.worker == TESTPS_LIBRARY) {
			if (library_make(l, err) != 0)
				return -ENOMEM;
		} else if (!t->opt.reflected && control_make(l, err) != 0) {
			return -ENOMEM;
		}
		l->waiting = 0;
		atomic_store(&l->hop_wanted, 0);
		l->set_done = l->rejoins = false;
		atomic_store(&l->lost, false);
		atomic_store(&l->forget, false);
		atomic_store(&l->again, false);
		atomic_store(&l->level_wanted, LEVEL_NONE);
		atomic_store(&l->level, LEVEL_NONE);
		atomic_store(&l->left, 0);
		atomic_store(&l->running, false);
		atomic_store(&l->frozen, false);
		atomic_store(&l->acknowledged, false);
		atomic_store(&l->failed, false);
		atomic_store(&l->end, false);
		l->err.text[0] = '\0';
	}
	for (unsigned i = 0; i < t->lanes; i++)
		rte_eal_remote_launch(lane_main, t->lane[i], t->lane[i]->lcore);
	t->lanes_run = true;
	return 0;
}

void
session_lanes_stop(struct testps *t)
{
	for (unsigned i = 0; i < t->lanes && t->lane[i] != NULL; i++)
		atomic_store(&t->lane[i]->end, true);
	for (unsigned i = 0; i < t->lanes && t->lane[i] != NULL; i++) {
		struct lane *l = t->lane[i];

		rte_eal_wait_lcore(l->lcore);
		for (unsigned p = 0; p < t->n_ports; p++) {
			rte_pktmbuf_free_bulk(l->out[p].m, l->out[p].n);
			l->out[p].n = 0;
		}
		control_free(l);
		library_free(l);
	}
	t->lanes_run = false;
}

/* ---- opening and closing ------------------------------------------------------------------------ */

static int
open_reflected(struct testps *t, struct pbox_error *err)
{
	uint32_t elements = pbox_frag_elements(t->mtu, t->now.push, t->now.push);
	struct session *s = &t->session;

	*s = (struct session){.endpoints = 1, .window = 256, .mtu = t->mtu, .lease_ms = 5000};
	if (t->now.window != 0)
		s->window = (uint16_t)t->now.window;
	s->endpoint[0].sin_addr.s_addr = t->box_ip;
	s->endpoint[0].sin_port = htons((uint16_t)(t->box_port + 1));
	for (unsigned w = 0; w < t->workers; w++)
		t->token[w] = w + 1;
	if (t->session.endpoints != 0 && session_find_endpoints(t, err) != 0)
		return -EHOSTUNREACH;
	return plan_reflected(&t->plan, elements, &t->model, &t->now, err);
}

static int
open_box(struct testps *t, struct pbox_error *err)
{
	int ret = session_reach(t, LEVEL_JOINED, "joining", err);

	if (ret == 0)
		ret = session_reach(t, LEVEL_MAPPED, "declaring the tensors", err);
	if (t->opt.worker == TESTPS_LIBRARY)
		return ret;
	if (ret == 0)
		ret = session_find_endpoints(t, err);
	if (ret == 0)
		ret = auth_make(t, err);
	if (ret == 0)
		ret = plan_make(&t->plan, &t->map, t->session.endpoints, &t->model, &t->now, err);
	return ret;
}

static int
make_rounds(struct testps *t, struct pbox_error *err)
{
	int ret = 0;

	if (t->opt.worker == TESTPS_LIBRARY) {
		t->data.push = t->now.push;
		for (unsigned i = 0; ret == 0 && i < t->lanes; i++)
			ret = library_ready(t->lane[i], err);
		return ret;
	}
	ret = data_make(&t->data, &t->plan, &t->now, t->opt.reflected, t->auth, err);
	if (ret == 0)
		ret = ports_payloads(t, err);
	for (unsigned i = 0; ret == 0 && i < t->lanes; i++)
		ret = rounds_make(t->lane[i], err);
	return ret;
}

static int
open_all(struct testps *t, struct pbox_error *err)
{
	int ret = model_read(&t->model, t->load.model, err);

	if (ret == 0)
		ret = control_table(t, err);
	if (ret == 0)
		ret = workers_address(t, err);
	if (ret == 0)
		ret = session_lanes_start(t, err);
	if (ret != 0)
		return ret;
	ret = session_find_box(t, err);
	if (ret != 0)
		return ret;
	ret = t->opt.reflected ? open_reflected(t, err) : open_box(t, err);
	if (ret == 0)
		ret = make_rounds(t, err);
	if (ret == 0 && !t->opt.reflected)
		ret = session_reach(t, LEVEL_READY, "initialising the parameters", err);
	return ret;
}

static unsigned
mtu_of(const struct testps *t, unsigned fragment)
{
	unsigned mtu = t->port[0].mtu;

	for (unsigned p = 1; p < t->n_ports; p++)
		mtu = RTE_MIN(mtu, (unsigned)t->port[p].mtu);
	return fragment == 0 ? mtu : fragment + PBOX_MTU_OVERHEAD;
}

int
session_join(struct testps *t, struct pbox_error *err)
{
	unsigned mtu = mtu_of(t, t->load.fragment);
	int ret;

	session_leave(t);
	if (mtu > mtu_of(t, 0))
		return pbox_fail(err, EMSGSIZE,
			"fragments of %u bytes need an MTU of %u, and the port has %u: use at most %u",
			t->load.fragment, mtu, mtu_of(t, 0),
			(mtu_of(t, 0) - PBOX_MTU_OVERHEAD) & ~63u);
	t->mtu = (uint16_t)mtu;
	t->now = t->load;
	t->rejoined = 0;
	atomic_store(&t->limit, 0);
	ret = open_all(t, err);
	if (ret != 0)
		session_leave(t);
	else
		t->open = true;
	return ret;
}

static bool
has_left(const struct lane *l, int want __rte_unused)
{
	return atomic_load(&l->left) == l->workers;
}

void
session_leave(struct testps *t)
{
	t->open = false;
	if (t->lanes_run) {
		for (unsigned i = 0; i < t->lanes; i++) {
			atomic_store(&t->lane[i]->running, false);
			atomic_store(&t->lane[i]->failed, false);
			atomic_store(&t->lane[i]->level_wanted, LEVEL_LEFT);
		}
		if (!t->opt.reflected)
			session_await(t, has_left, 0, LEAVE_US, NULL);
		session_lanes_stop(t);
	}
	loopback_forget(t->loopback);
	ports_payloads_free(t);
	for (unsigned i = 0; i < t->lanes && t->lane[i] != NULL; i++) {
		struct lane *l = t->lane[i];

		rounds_free(l);
	}
	auth_free(t);
	data_free(&t->data);
	plan_free(&t->plan);
	model_free(&t->model);
	workers_free(t);
	free(t->tensor);
	t->tensor = NULL;
	free(t->map.chunk);
	t->map = (struct map){0};
	t->session = (struct session){0};
	atomic_store(&t->hops, 0);
}

/* ---- rounds --------------------------------------------------------------------------------------- */

static uint32_t
highest_round(const struct testps *t)
{
	uint32_t r = 0;

	for (unsigned i = 0; i < t->lanes; i++) {
		uint32_t x = atomic_load(&t->lane[i]->round);

		r = x > r ? x : r;
	}
	return r;
}

int
session_run(struct testps *t, uint32_t rounds, struct pbox_error *err)
{
	uint32_t done;

	if (!t->open)
		return pbox_fail(err, ENOTCONN, "no session");
	done = highest_round(t);
	atomic_store(&t->limit, rounds > 0 && rounds < NO_LIMIT - done ? done + rounds : NO_LIMIT);
	for (unsigned i = 0; i < t->lanes; i++) {
		atomic_store(&t->lane[i]->idle, false);
		atomic_store(&t->lane[i]->running, true);
	}
	t->begun_us = testps_now(t);
	t->ended_us = 0;
	return 0;
}

static bool
is_idle(const struct lane *l, int want __rte_unused)
{
	return l->workers == 0 || atomic_load(&l->idle);
}

bool
session_running(const struct testps *t)
{
	for (unsigned i = 0; t->open && i < t->lanes; i++)
		if (atomic_load(&t->lane[i]->running) && !is_idle(t->lane[i], 0))
			return true;
	return false;
}

static bool
has_acknowledged(const struct lane *l, int want)
{
	return atomic_load(&l->acknowledged) == (want != 0);
}

static void
freeze(struct testps *t, bool on)
{
	for (unsigned i = 0; i < t->lanes; i++)
		atomic_store(&t->lane[i]->frozen, on);
	session_await(t, has_acknowledged, on, US_SECOND, NULL);
}

int
session_stop(struct testps *t, struct pbox_error *err)
{
	uint64_t rate = atomic_load(&t->rate);
	int ret;

	if (!t->open)
		return 0;
	/* a round that would take longer than a second is finished without it */
	if ((uint64_t)t->workers * t->plan.n > rate)
		atomic_store(&t->rate, 0);
	/* also of a start with a number of rounds, and --rounds: what was begun ends, nothing else begins */
	if (session_running(t)) {
		freeze(t, true);
		atomic_store(&t->limit, RTE_MIN(atomic_load(&t->limit), highest_round(t)));
		freeze(t, false);
	}
	ret = session_await(t, is_idle, 0, t->opt.timeout_ns / 1000, err);
	if (t->ended_us == 0)
		t->ended_us = testps_now(t);
	for (unsigned i = 0; i < t->lanes; i++)
		atomic_store(&t->lane[i]->running, false);
	atomic_store(&t->rate, rate);
	if (ret == -ETIMEDOUT)
		pbox_fail(err, ETIMEDOUT,
			"the rounds in progress did not end in %.1f s: the box answers no more, or waits for others; see show workers, and usertools/pbox-ctl why",
			(double)t->opt.timeout_ns / 1e9);
	return ret;
}
