/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>

#include "worker_impl.h"

/* Path MTU discovery: PINGs to the data endpoints (R8.1) show whether the path carries full frames, and trains of them. */

#define PATIENCE    (2 * NS_PER_S)
#define AT_LEAST    (500 * NS_PER_MS)
#define INTERVAL    (40 * NS_PER_MS)
#define TRAIN_TRIES 3
#define TRAIN_WAIT  (60 * NS_PER_MS)
#define ID_SMALL    0x50000000u
#define ID_FULL     0x51000000u
#define ID_TRAIN    0x52000000u

int
path_begin(struct session *s, uint64_t deadline)
{
	struct path *p = &s->path;
	uint64_t now = s->w->now;

	path_end(s);
	*p = (struct path){.began = now, .full_length = s->mtu - PBOX_MTU_OVERHEAD};
	p->deadline = deadline < now + AT_LEAST ? now + AT_LEAST : deadline;
	p->payload = malloc(p->full_length);
	if (p->payload == NULL)
		return pbox_client_fail(&s->join.err, PBOX_C_MEMORY, "no memory for a frame");
	for (uint32_t i = 0; i < p->full_length; i++)
		p->payload[i] = (uint8_t)i;
	s->w->lane[0]->link.port->path_errno = 0;
	return 0;
}

void
path_end(struct session *s)
{
	if (s->path.payload != NULL) /* PINGs that have not left read it */
		link_flush(&s->w->lane[0]->link);
	free(s->path.payload);
	s->path.payload = NULL;
}

/** The box has no such session, or says so. */
static void
path_on_error(struct session *s, const struct rx_frame *f)
{
	struct path *p = &s->path;

	/* R11.6: the PINGs go on, and their answers show whether it was the box's */
	if (!f->sure && (f->hdr.length > 0 || auth_doubts(s)))
		return;
	if (f->hdr.length == 0 || pbox_error_decode(f->payload, f->hdr.length, &p->why_ended) != 0)
		p->why_ended = (struct pbox_error_msg){.code = pbox_code_get(&f->hdr)};
	pbox_text_tame(p->why_ended.text);
	p->ended = p->why_ended.code == PBOX_E_SESSION;
}

void
path_frame(struct session *s, const struct rx_frame *f)
{
	struct path *p = &s->path;
	uint32_t i = f->hdr.chunk & 0xFFFFFF, kind = f->hdr.chunk & 0xFF000000;

	if (f->hdr.token != s->token)
		return;
	if (f->sure)
		s->doubt_ns = 0;
	if (f->hdr.type == PBOX_ERROR)
		path_on_error(s, f);
	if (session_asks(&f->hdr))
		header_echo(s, f);
	if (f->hdr.type != PBOX_PONG)
		return;
	if (kind == ID_SMALL && i < s->endpoints)
		p->small[i] = true;
	else if (kind == ID_FULL && i < s->endpoints && f->hdr.length == p->full_length)
		p->full[i] = true;
	else if (kind == ID_TRAIN && i < PATH_TRAIN_MAX)
		p->train[i] = true;
}

static void
path_ping(struct session *s, unsigned ep, uint32_t id, uint32_t length)
{
	struct iovec iov = {s->path.payload, length};
	struct pbox_hdr h;

	header_fill(s, &h, PBOX_PING, s->w->now);
	h.chunk = id;
	h.length = (uint16_t)length;
	link_frame(&s->w->lane[0]->link, s, &s->ep[ep].peer, &h, &iov, length > 0, false);
}

static unsigned
missing(const bool *seen, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (!seen[i])
			return i;
	return n;
}

static int
path_verdict(struct session *s, unsigned bad)
{
	struct path *p = &s->path;
	const struct pbox_worker_ops *port = s->w->lane[0]->link.port;
	unsigned udp = ntohs(s->ep[bad].peer.addr.sin_port);
	char addr[INET_ADDRSTRLEN];

	inet_ntop(AF_INET, &s->ep[bad].peer.addr.sin_addr, addr, sizeof(addr));
	if (!p->small[bad])
		return pbox_client_fail(&p->err, PBOX_C_UNREACHABLE,
			"the box at %s took this worker in, but its data endpoint %s:%u does not answer PING (for %.1f s): a firewall may drop that UDP port, the address is not reachable from here, or the core of the box that serves it gets no CPU (see the box's log and 'pbox-ctl health')",
			s->name, addr, udp, (double)(s->w->now - p->began) / NS_PER_S);
	if (port->path_errno == EMSGSIZE && port->path_mtu != 0)
		return pbox_client_fail(&p->err, PBOX_C_MTU,
			"datagrams of %u bytes do not get to %s:%u: the path's MTU is %u; set mtu to %u here, or raise the MTU on the way",
			s->mtu + s->tag, addr, udp, port->path_mtu, port->path_mtu);
	return pbox_client_fail(&p->err, PBOX_C_MTU,
		"datagrams of %u bytes do not get to %s:%u and back (small ones do): a link or switch on the way has a smaller MTU than this host and the box; raise it there, or set mtu to 1500 here",
		s->mtu + s->tag, addr, udp);
}

/** True when the sizes are known, or will not be. */
static bool
sizes(struct session *s)
{
	struct path *p = &s->path;
	uint64_t now = s->w->now;
	unsigned n = s->endpoints, bad = missing(p->full, n);

	if (bad == n)
		return true;
	if (p->answered == 0 && missing(p->small, n) == n)
		p->answered = now;
	if (now < p->next)
		return false;
	/* A path that carries small ones would have carried large ones by then. A core that gets
	 * no CPU answers nothing, and has until the deadline. */
	if (p->next != 0 &&
		(now >= p->deadline || (p->answered != 0 && now - p->answered >= PATIENCE))) {
		p->rc = path_verdict(s, bad);
		return true;
	}
	for (unsigned i = 0; i < n; i++) {
		if (!p->small[i])
			path_ping(s, i, ID_SMALL + i, 0);
		if (!p->full[i])
			path_ping(s, i, ID_FULL + i, p->full_length);
	}
	p->next = now + INTERVAL;
	return false;
}

/** Send a train that the kernel cuts into frames (GSO). Data uses trains if all of it arrives. True: that is known. */
static bool
trains(struct session *s)
{
	struct path *p = &s->path;
	struct pbox_worker_ops *port = s->w->lane[0]->link.port;
	uint32_t n = 65000 / (s->mtu + s->tag - 28);

	if (n > PATH_TRAIN_MAX)
		n = PATH_TRAIN_MAX;
	if (n > port->train_max)
		n = port->train_max;
	if (n > s->window)
		n = s->window;
	if (p->tries == 0 && s->w->boxes > 1 && n > port->train)
		n = port->train; /* what the way to each box carries */
	if (p->tries == 0)
		port->train = s->w->conf.gso != 0 && n >= 2 ? n : 1;
	if (port->train == 1 || s->w->conf.gso > 0 || missing(p->train, n) == n)
		return true;
	if (p->tries > 0 && s->w->now < p->next)
		return false;
	if (p->tries == TRAIN_TRIES) {
		port->train = 1;
		return true;
	}
	p->tries++;
	link_flush(&s->w->lane[0]->link); /* a train of its own */
	for (uint32_t i = 0; i < n; i++)
		path_ping(s, 0, ID_TRAIN + i, p->full_length);
	p->next = s->w->now + TRAIN_WAIT;
	return false;
}

void
path_tick(struct session *s)
{
	struct path *p = &s->path;

	if (!p->ended && !p->trains)
		p->trains = sizes(s);
	if (!p->ended && p->trains)
		p->done = p->rc != 0 || trains(s);
}
