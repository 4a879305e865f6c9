/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sock_diag.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "relay.h"

#define BUFFER  (8 << 20) /* of a socket; as much of it as the kernel allows */
#define IDLE_NS UINT64_C(60000000000)

static int
udp_socket(const struct sockaddr_in *address)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int on = 1, size = BUFFER;

	if (fd < 0)
		return -1;
	setsockopt(fd, IPPROTO_IP, IP_RECVTOS, &on, sizeof(on));
	if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof(size)) != 0)
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size));
	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size)) != 0)
		setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	if (bind(fd, (const struct sockaddr *)address, sizeof(*address)) != 0) {
		close(fd);
		return -1;
	}
	return fd;
}

int
sockets_watch(struct relay *r, int fd, enum source source, unsigned index)
{
	struct epoll_event e = {.events = EPOLLIN, .data.u32 = (uint32_t)source << 16 | index};

	return epoll_ctl(r->poll, EPOLL_CTL_ADD, fd, &e);
}

void
sockets_ignore(struct relay *r, int fd)
{
	epoll_ctl(r->poll, EPOLL_CTL_DEL, fd, NULL);
}

static struct sockaddr_in
socket_address(struct in_addr address, unsigned port)
{
	return (struct sockaddr_in){
		.sin_family = AF_INET, .sin_addr = address, .sin_port = htons((uint16_t)port)};
}

static int
open_ears(struct relay *r)
{
	for (unsigned i = 0; i < r->o.n_ranges; i++) {
		const struct range *g = &r->o.range[i];

		for (unsigned k = 0; k < g->n; k++, r->n_ears++) {
			struct sockaddr_in a = socket_address(g->listen, g->listen_port + k);
			int fd = udp_socket(&a);

			if (fd < 0 || sockets_watch(r, fd, SOURCE_EAR, r->n_ears) != 0)
				return failed(
					"cannot listen on %s:%u: %s: is the address one of this network namespace?",
					inet_ntoa(g->listen), g->listen_port + k, strerror(errno));
			r->ear[r->n_ears] = fd;
		}
	}
	return 0;
}

static int
enter(const char *name)
{
	char path[4096];
	int fd, ret;

	snprintf(path, sizeof(path), "%s%s", strchr(name, '/') != NULL ? "" : "/run/netns/", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return failed("--box-netns %s: %s", path, strerror(errno));
	ret = setns(fd, CLONE_NEWNET);
	if (ret != 0)
		failed("--box-netns %s: cannot enter it: %s", path, strerror(errno));
	close(fd);
	return ret != 0 ? EXIT_FAILED : 0;
}

int
sockets_open(struct relay *r)
{
	struct sockaddr_in any = {.sin_family = AF_INET};
	int status = open_ears(r);

	if (status == 0 && r->o.box_netns != NULL)
		status = enter(r->o.box_netns);
	memset(r->hash, -1, sizeof(r->hash));
	for (unsigned i = 0; status == 0 && i < r->o.flows; i++) {
		r->flow[i].fd = udp_socket(&any);
		if (r->flow[i].fd < 0 || sockets_watch(r, r->flow[i].fd, SOURCE_FLOW, i) != 0)
			return failed("no socket for flow %u: %s", i, strerror(errno));
	}
	return status;
}

/* ---- flows ------------------------------------------------------------------------------- */

static unsigned
hash_of(const struct sockaddr_in *a)
{
	uint64_t key = (uint64_t)a->sin_addr.s_addr << 16 | a->sin_port;

	return (unsigned)(key * UINT64_C(0x9E3779B97F4A7C15) >> 54) % RELAY_FLOWS;
}

static void
forget(struct relay *r, unsigned i)
{
	int32_t *at = &r->hash[hash_of(&r->flow[i].worker)];

	while (*at != (int32_t)i)
		at = &r->flow[*at].next;
	*at = r->flow[i].next;
	r->flow[i].used = false;
}

/* The flow of a worker, a new one or that of a worker long silent if need be; -1: none is free. */
static int
flow_of(struct relay *r, const struct sockaddr_in *worker, uint64_t now)
{
	int32_t *head = &r->hash[hash_of(worker)], i;
	unsigned oldest = 0;

	for (i = *head; i >= 0; i = r->flow[i].next) {
		const struct sockaddr_in *w = &r->flow[i].worker;

		if (w->sin_addr.s_addr == worker->sin_addr.s_addr &&
			w->sin_port == worker->sin_port)
			return i;
	}
	for (unsigned k = 0; k < r->o.flows; k++) {
		if (!r->flow[k].used) {
			oldest = k;
			break;
		}
		if (r->flow[k].last_ns < r->flow[oldest].last_ns)
			oldest = k;
	}
	if (r->flow[oldest].used) {
		if (now - r->flow[oldest].last_ns < IDLE_NS)
			return -1;
		forget(r, oldest);
	}
	r->flow[oldest].used = true;
	r->flow[oldest].use++;
	r->flow[oldest].worker = *worker;
	r->flow[oldest].next = *head;
	*head = (int32_t)oldest;
	return (int)oldest;
}

unsigned
sockets_flows(const struct relay *r)
{
	unsigned n = 0;

	for (unsigned i = 0; i < r->o.flows; i++)
		n += r->flow[i].used;
	return n;
}

/* ---- datagrams --------------------------------------------------------------------------- */

/* Room for one control message: the TOS byte, which comes as a byte and goes as an int. */
union tos_room {
	char bytes[CMSG_SPACE(sizeof(int))];
	struct cmsghdr align;
};

struct batch {
	struct frame *frame[RELAY_BATCH];
	struct mmsghdr msg[RELAY_BATCH];
	struct iovec iov[RELAY_BATCH];
	struct sockaddr_in address[RELAY_BATCH];
	union tos_room tos[RELAY_BATCH];
};

static void
batch_set(struct batch *b, unsigned i, size_t len)
{
	b->iov[i] = (struct iovec){.iov_base = b->frame[i]->data, .iov_len = len};
	b->msg[i].msg_hdr = (struct msghdr){.msg_name = &b->address[i],
		.msg_namelen = sizeof(b->address[i]),
		.msg_iov = &b->iov[i],
		.msg_iovlen = 1};
}

static uint8_t
tos_of(struct msghdr *h)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(h); c != NULL; c = CMSG_NXTHDR(h, c))
		if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS)
			return *CMSG_DATA(c);
	return 0;
}

/* The ear that is a port of the box; -1: it is not the box's. */
static int
ear_of(const struct relay *r, const struct sockaddr_in *from)
{
	unsigned port = ntohs(from->sin_port);

	for (unsigned i = 0; i < r->o.n_ranges; i++) {
		const struct range *g = &r->o.range[i];

		if (g->to.s_addr == from->sin_addr.s_addr && port >= g->to_port &&
			port < (unsigned)g->to_port + g->n)
			return (int)(g->first_ear + port - g->to_port);
	}
	return -1;
}

/* Whose it is, and where it goes; false: nobody's. */
static bool
address(struct relay *r, enum source source, unsigned index, const struct sockaddr_in *from,
	struct frame *f, uint64_t now)
{
	int other = source == SOURCE_EAR ? flow_of(r, from, now) : ear_of(r, from);

	if (other < 0 || (source == SOURCE_FLOW && !r->flow[index].used))
		return false;
	f->flow = (uint16_t)(source == SOURCE_EAR ? (unsigned)other : index);
	f->ear = (uint16_t)(source == SOURCE_EAR ? index : (unsigned)other);
	f->use = r->flow[f->flow].use;
	r->flow[f->flow].last_ns = now;
	return true;
}

void
sockets_receive(struct relay *r, enum source source, unsigned index, uint64_t now)
{
	static struct batch b; /* there is one thread */
	enum pbox_fault_dir dir = source == SOURCE_EAR ? PBOX_FAULT_RX : PBOX_FAULT_TX;
	int fd = source == SOURCE_EAR ? r->ear[index] : r->flow[index].fd, got;
	unsigned n = 0;

	while (n < RELAY_BATCH && 2 * (n + 1) <= pbox_fault_line_room(r->line[dir]) &&
		(b.frame[n] = frame_get(r)) != NULL) {
		batch_set(&b, n, RELAY_DATAGRAM);
		b.msg[n].msg_hdr.msg_control = &b.tos[n];
		b.msg[n].msg_hdr.msg_controllen = sizeof(b.tos[n]);
		n++;
	}
	got = n > 0 ? recvmmsg(fd, b.msg, n, MSG_DONTWAIT, NULL) : 0;
	for (unsigned i = 0; i < n; i++) {
		struct frame *f = b.frame[i];

		if ((int)i >= got || !address(r, source, index, &b.address[i], f, now)) {
			r->n[dir].refused += (int)i < got;
			frame_put(r, f);
			continue;
		}
		f->len = b.msg[i].msg_len;
		f->tos = tos_of(&b.msg[i].msg_hdr);
		r->n[dir].in++;
		pbox_fault_line_put(r->line[dir], f, now, 2 * (n - i - 1));
	}
}

static void
add_tos(struct batch *b, unsigned i, uint8_t tos)
{
	struct msghdr *h = &b->msg[i].msg_hdr;
	int value = tos;

	if (tos == 0)
		return;
	b->tos[i].align = (struct cmsghdr){
		.cmsg_len = CMSG_LEN(sizeof(value)), .cmsg_level = IPPROTO_IP, .cmsg_type = IP_TOS};
	h->msg_control = &b->tos[i];
	h->msg_controllen = sizeof(b->tos[i]);
	memcpy(CMSG_DATA(&b->tos[i].align), &value, sizeof(value));
}

/* Where a frame goes: the socket; -1: its worker has gone. */
static int
way_of(const struct relay *r, enum pbox_fault_dir dir, const struct frame *f,
	struct sockaddr_in *to)
{
	const struct flow *flow = &r->flow[f->flow];
	const struct range *g = r->o.range;

	if (!flow->used || flow->use != f->use)
		return -1;
	if (dir == PBOX_FAULT_TX) {
		*to = flow->worker;
		return r->ear[f->ear];
	}
	while (f->ear >= g->first_ear + g->n)
		g++;
	*to = socket_address(g->to, g->to_port + (unsigned)f->ear - g->first_ear);
	return flow->fd;
}

/* Those of one socket in one call. What the kernel does not take now is lost, as in a queue that is
 * full. */
static void
send_batch(struct relay *r, enum pbox_fault_dir dir, int fd, struct batch *b, unsigned n)
{
	unsigned done = 0;

	while (done < n) {
		int sent = fd >= 0 ? sendmmsg(fd, b->msg + done, n - done, MSG_DONTWAIT) : -1;

		if (sent > 0) {
			r->n[dir].out += (unsigned)sent;
			done += (unsigned)sent;
		} else if (fd < 0 || errno != EINTR) {
			r->n[dir].unsent++;
			done++;
		}
	}
	for (unsigned i = 0; i < n; i++)
		frame_put(r, b->frame[i]);
}

static void
send_line(struct relay *r, enum pbox_fault_dir dir, uint64_t now)
{
	static struct batch b;
	void **frames;
	uint32_t n;

	pbox_fault_line_release(r->line[dir], now);
	while ((n = pbox_fault_line_ready(r->line[dir], &frames)) > 0) {
		unsigned k = 0;
		int fd = -1;

		for (; k < n && k < RELAY_BATCH; k++) {
			struct frame *f = frames[k];
			int its = way_of(r, dir, f, &b.address[k]);

			if (k > 0 && its != fd)
				break;
			fd = its;
			b.frame[k] = f;
			batch_set(&b, k, f->len);
			add_tos(&b, k, f->tos);
		}
		pbox_fault_line_taken(r->line[dir], k);
		send_batch(r, dir, fd, &b, k);
	}
}

void
sockets_send(struct relay *r, uint64_t now)
{
	send_line(r, PBOX_FAULT_RX, now);
	send_line(r, PBOX_FAULT_TX, now);
}

uint64_t
sockets_missed(const struct relay *r, enum pbox_fault_dir dir)
{
	unsigned n = dir == PBOX_FAULT_RX ? r->n_ears : r->o.flows;
	uint64_t missed = 0;

	for (unsigned i = 0; i < n; i++) {
		uint32_t info[SK_MEMINFO_VARS] = {0};
		socklen_t len = sizeof(info);

		if (getsockopt(dir == PBOX_FAULT_RX ? r->ear[i] : r->flow[i].fd, SOL_SOCKET,
			    SO_MEMINFO, info, &len) == 0)
			missed += info[SK_MEMINFO_DROPS];
	}
	return missed;
}
