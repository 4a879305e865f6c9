/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>

#include "client_impl.h"

/* Does the path carry full frames, and trains of them? PINGs to the data endpoints (R8.1). */

#define PATIENCE    (2 * NS_PER_S)
#define AT_LEAST    (500 * NS_PER_MS)
#define INTERVAL    (40 * NS_PER_MS)
#define TRAIN_TRIES 3
#define TRAIN_WAIT  (60 * NS_PER_MS)
#define TRAIN_MAX   32
#define ID_SMALL    0x50000000u
#define ID_FULL     0x51000000u
#define ID_TRAIN    0x52000000u

struct path {
	struct pbox_client *c;
	bool small[PBOX_MAX_ENDPOINTS], full[PBOX_MAX_ENDPOINTS], train[TRAIN_MAX];
	uint32_t full_length;
	struct pbox_error_msg *ended; /* code 0: it lives */
};

static void
path_frame(void *ctx, const struct rx_frame *f)
{
	struct path *p = ctx;
	uint32_t i = f->hdr.chunk & 0xFFFFFF, kind = f->hdr.chunk & 0xFF000000;

	if (f->hdr.token != p->c->token)
		return;
	if (f->sure)
		p->c->doubt_ns = 0;
	if (f->hdr.type == PBOX_ERROR) {
		p->c->now = clock_ns();
		/* R11.6: whose it is the PINGs tell, which go on */
		if (!f->sure && (f->hdr.length > 0 || auth_doubts(p->c)))
			return;
		if (f->hdr.length == 0 ||
			pbox_error_decode(f->payload, f->hdr.length, p->ended) != 0)
			*p->ended = (struct pbox_error_msg){.code = f->hdr.aux};
		text_tame(p->ended->text);
		if (p->ended->code != PBOX_E_SESSION)
			p->ended->code = 0;
	}
	if (session_asks(&f->hdr)) {
		p->c->now = clock_ns();
		session_echo(p->c, f);
		link_flush(&p->c->link);
	}
	if (f->hdr.type != PBOX_PONG)
		return;
	if (kind == ID_SMALL && i < p->c->endpoints)
		p->small[i] = true;
	else if (kind == ID_FULL && i < p->c->endpoints && f->hdr.length == p->full_length)
		p->full[i] = true;
	else if (kind == ID_TRAIN && i < TRAIN_MAX)
		p->train[i] = true;
}

static void
ping(struct path *p, unsigned ep, uint32_t id, void *payload, uint32_t length)
{
	struct pbox_client *c = p->c;
	struct iovec iov = {payload, length};
	struct pbox_hdr h;

	c->now = clock_ns();
	session_header(c, &h, PBOX_PING);
	h.chunk = id;
	h.length = (uint16_t)length;
	link_frame(&c->link, &c->ep[ep].peer, &h, &iov, length > 0, false);
}

static unsigned
missing(const bool *seen, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (!seen[i])
			return i;
	return n;
}

static void
collect(struct path *p, uint64_t until, const bool *seen, unsigned n)
{
	uint64_t now;

	while (missing(seen, n) < n && p->ended->code == 0 && (now = clock_ns()) < until) {
		link_wait(&p->c->link, until - now);
		link_receive(&p->c->link, 1, path_frame, p);
	}
}

static int
check_sizes(struct path *p, uint8_t *payload, uint64_t deadline, struct pbox_client_error *err)
{
	struct pbox_client *c = p->c;
	unsigned n = c->endpoints, bad;
	uint64_t began = clock_ns(), answered = 0; /* all small ones are */
	char addr[INET_ADDRSTRLEN];

	c->link.t->path_errno = 0;
	do {
		uint64_t until = clock_ns() + INTERVAL;

		for (unsigned i = 0; i < n; i++) {
			if (!p->small[i])
				ping(p, i, ID_SMALL + i, NULL, 0);
			if (!p->full[i])
				ping(p, i, ID_FULL + i, payload, p->full_length);
		}
		link_flush(&c->link);
		collect(p, until, p->full, n);
		if (answered == 0 && missing(p->small, n) == n)
			answered = clock_ns();
		/* who answers small ones would have answered large ones by then; a core that gets
		 * no CPU answers nothing, and may have until the deadline */
	} while (missing(p->full, n) < n && p->ended->code == 0 && clock_ns() < deadline &&
		 (answered == 0 || clock_ns() - answered < PATIENCE));
	bad = missing(p->full, n);
	if (bad == n)
		return 0;
	if (p->ended->code != 0)
		return CLIENT_RENEWED;
	inet_ntop(AF_INET, &c->ep[bad].peer.addr.sin_addr, addr, sizeof(addr));
	if (!p->small[bad])
		return client_fail(err, PBOX_C_UNREACHABLE,
			"the box at %s took this worker in, but its data endpoint %s:%u does not "
			"answer PING (for %.1f s): a firewall may drop that UDP port, the address "
			"is not reachable from here, or the core of the box that serves it gets no "
			"CPU (the box's log and 'pbox-ctl health' tell)",
			c->box_name, addr, ntohs(c->ep[bad].peer.addr.sin_port),
			(double)(clock_ns() - began) / NS_PER_S);
	if (c->link.t->path_errno == EMSGSIZE && c->link.t->path_mtu != 0)
		return client_fail(err, PBOX_C_MTU,
			"datagrams of %u bytes do not get to %s:%u: the path's MTU is %u; set mtu "
			"to "
			"%u here, or raise the MTU on the way",
			c->mtu + c->tag, addr, ntohs(c->ep[bad].peer.addr.sin_port),
			c->link.t->path_mtu, c->link.t->path_mtu);
	return client_fail(err, PBOX_C_MTU,
		"datagrams of %u bytes do not get to %s:%u and back (small ones do): a link or "
		"switch "
		"on the way has a smaller MTU than this host and the box; raise it there, or set "
		"mtu to "
		"1500 here",
		c->mtu + c->tag, addr, ntohs(c->ep[bad].peer.addr.sin_port));
}

/** Trains that the kernel cuts into frames; what gets through is what is used later. */
static void
check_trains(struct path *p, uint8_t *payload)
{
	struct pbox_client *c = p->c;
	struct pbox_client_transport *t = c->link.t;
	uint32_t n = 65000 / (c->mtu + c->tag - 28);

	if (n > TRAIN_MAX)
		n = TRAIN_MAX;
	if (n > t->train_max)
		n = t->train_max;
	if (n > c->window)
		n = c->window;
	t->train = c->conf.gso != 0 && n >= 2 ? n : 1;
	if (t->train == 1 || c->conf.gso > 0)
		return;
	for (unsigned try = 0; try < TRAIN_TRIES && missing(p->train, n) < n; try++) {
		for (uint32_t i = 0; i < n; i++)
			ping(p, 0, ID_TRAIN + i, payload, p->full_length);
		link_flush(&c->link);
		collect(p, clock_ns() + TRAIN_WAIT, p->train, n);
	}
	if (missing(p->train, n) < n)
		t->train = 1;
}

int
path_check(struct pbox_client *c, uint64_t deadline, struct pbox_error_msg *ended,
	struct pbox_client_error *err)
{
	struct path p = {.c = c, .full_length = c->mtu - PBOX_MTU_OVERHEAD, .ended = ended};
	uint64_t now = clock_ns();
	uint8_t *payload = malloc(p.full_length);
	int rc;

	if (payload == NULL)
		return client_fail(err, PBOX_C_MEMORY, "no memory for a frame");
	for (uint32_t i = 0; i < p.full_length; i++)
		payload[i] = (uint8_t)i;
	if (deadline < now + AT_LEAST)
		deadline = now + AT_LEAST;
	rc = check_sizes(&p, payload, deadline, err);
	if (rc == 0)
		check_trains(&p, payload);
	free(payload);
	return rc;
}
