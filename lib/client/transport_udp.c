/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/udp.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/errqueue.h>

#include "client_impl.h"

/*
 * The transport "udp", kernel sockets: one unconnected socket for the control and all data endpoints, since the box
 * answers the address that joined. A lane has a connected socket of the same port (SO_REUSEPORT) for each of its endpoints: the
 * kernel gives what comes from there to that, and all else to the first one. Segmentation offloads (UDP_SEGMENT, UDP_GRO) carry trains
 * of frames; it copies.
 */

#define RCVBUF        (16 << 20)
#define SNDBUF        (4 << 20)
#define SEND_PATIENCE 100 /* ms that a full send queue is waited for */
#define TX_MSGS       64  /* in one sendmmsg */
#define TRAIN_BYTES   65000
#define TRAIN_MAX     64   /* UDP_MAX_SEGMENTS of the kernel */
#define TRAIN_AGAIN   4096 /* datagrams that leave alone before a train is tried again */
#define RX_MSGS       64
#define RX_SIZE       65536
#define RX_STRIDE     (RX_SIZE + 33 * 64) /* or all datagrams would meet in the same cache sets */
#define RX_CONTROL    16                  /* words */
#define RX_VIEWS      (RX_MSGS * 64)
#define TIMER_SLACK   (10 * NS_PER_US) /* the default of 50 us is as long as a short wait */
#define ECT0          0x02
#define ECN_MASK      0x03
#define MAX_SOCKETS   64 /* endpoints of a lane */

/** Datagrams that leave as one message of the kernel's. */
struct train {
	struct pbox_client_peer *to;
	const struct iovec *iov;
	uint32_t iovs, bytes;
	uint16_t seg, segs; /* bytes of each but the last; how many */
	bool closed;
	struct iovec piece; /* all of it; empty: it is in several pieces */
};

struct udp {
	struct pbox_client_transport t;
	int fd, event; /* fd: what is sent goes there; of a lane the first of its sockets */
	int sockets[MAX_SOCKETS];
	unsigned n, turn;         /* sockets; the one that is looked at first */
	struct sockaddr_in local; /* of a lane */
	struct sockaddr_in
		only; /* of a lane: its only endpoint, to which its socket is connected */
	unsigned
		refused_train; /* the length of trains before the kernel took none; 0: it did not say so */
	unsigned alone;        /* datagrams since then */
	uint8_t *buf;          /* RX_MSGS x RX_STRIDE */
	struct mmsghdr rx[RX_MSGS];
	struct iovec rx_iov[RX_MSGS];
	struct sockaddr_in rx_from[RX_MSGS];
	uint64_t rx_control[RX_MSGS][RX_CONTROL];
	struct pbox_client_rx view[RX_VIEWS];
};

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

static void
udp_set_buffer(int fd, int force, int plain, int bytes)
{
	if (setsockopt(fd, SOL_SOCKET, force, &bytes, sizeof(bytes)) != 0)
		setsockopt(fd, SOL_SOCKET, plain, &bytes, sizeof(bytes));
}

/** MTU of the route to the box, as the kernel knows it. */
static unsigned
route_mtu(const struct sockaddr_in *box)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), mtu = 0;
	socklen_t len = sizeof(mtu);

	if (fd < 0)
		return 0;
	if (connect(fd, (const struct sockaddr *)box, sizeof(*box)) != 0 ||
		getsockopt(fd, IPPROTO_IP, IP_MTU, &mtu, &len) != 0)
		mtu = 0;
	close(fd);
	return mtu > 0 ? (unsigned)mtu : 0;
}

static int
choose_mtu(
	struct udp *s, const struct pbox_client_transport_conf *conf, struct pbox_client_error *err)
{
	s->t.mtu = conf->mtu != 0 ? conf->mtu : route_mtu(&conf->box);
	if (s->t.mtu == 0)
		return pbox_client_fail(err, PBOX_C_UNREACHABLE,
			"no route to the box at %s: check the address and the routing table ('ip route get %s')",
			inet_ntoa(conf->box.sin_addr), inet_ntoa(conf->box.sin_addr));
	if (s->t.mtu > MAX_FRAME + 28)
		s->t.mtu = MAX_FRAME + 28;
	return 0;
}

static int
udp_bind_to(int fd, const char *address, struct pbox_client_error *err)
{
	struct sockaddr_in local = {.sin_family = AF_INET};

	if (inet_pton(AF_INET, address, &local.sin_addr) != 1)
		return pbox_client_fail(
			err, PBOX_C_INVALID, "bind: '%s' is not an IPv4 address", address);
	if (bind(fd, (struct sockaddr *)&local, sizeof(local)) != 0)
		return pbox_client_fail(err, PBOX_C_SYSTEM,
			"cannot bind to %s: %s; it must be an address of this host", address,
			strerror(errno));
	return 0;
}

/** Returns the size of the receive buffer. */
uint32_t
transport_window(size_t rcvbuf, unsigned mtu)
{
	/* The kernel charges a datagram its buffer, not its length: 2304 bytes for one of 1500,
	 * and the next power of two plus 256 of skb and shared info for larger ones. */
	size_t truesize = 2048, n;

	while (truesize < mtu + 384u && truesize < (1u << 20))
		truesize *= 2;
	truesize += 256;
	n = rcvbuf / truesize;
	return n < 1 ? 1 : n > 65535 ? 65535 : (uint32_t)n;
}

static size_t
set_options(int fd)
{
	int on = 1, tos = ECT0, discover = IP_PMTUDISC_DO, got = 0;
	socklen_t len = sizeof(got);

	udp_set_buffer(fd, SO_RCVBUFFORCE, SO_RCVBUF, RCVBUF);
	udp_set_buffer(fd, SO_SNDBUFFORCE, SO_SNDBUF, SNDBUF);
	setsockopt(fd, IPPROTO_IP, IP_MTU_DISCOVER, &discover, sizeof(discover));
	setsockopt(fd, IPPROTO_IP, IP_RECVERR, &on, sizeof(on));
	setsockopt(fd, IPPROTO_IP, IP_RECVTOS, &on, sizeof(on));
	setsockopt(fd, IPPROTO_IP, IP_TOS, &tos, sizeof(tos));
	setsockopt(fd, IPPROTO_UDP, UDP_GRO, &on, sizeof(on));
	return getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &got, &len) == 0 && got > 0 ? (size_t)got : 0;
}

/** Make room in messages 0 to @p n - 1: the kernel leaves there how much of it it used. */
static void
rx_arm(struct udp *s, int n)
{
	for (int i = 0; i < n; i++) {
		s->rx_iov[i] = (struct iovec){s->buf + (size_t)i * RX_STRIDE, RX_SIZE};
		s->rx[i].msg_hdr = (struct msghdr){.msg_name = &s->rx_from[i],
			.msg_namelen = sizeof(s->rx_from[i]),
			.msg_iov = &s->rx_iov[i],
			.msg_iovlen = 1,
			.msg_control = s->rx_control[i],
			.msg_controllen = sizeof(s->rx_control[i])};
	}
}

static void
udp_close(struct pbox_client_transport *t)
{
	struct udp *s = (struct udp *)t;

	for (unsigned i = 0; i < s->n; i++)
		close(s->sockets[i]);
	if (s->event >= 0)
		close(s->event);
	free(s->buf);
	free(s);
}

/** Without sockets; NULL: no memory, or no eventfd. */
static struct udp *
udp_new(struct pbox_client_error *err)
{
	struct udp *s = calloc(1, sizeof(*s));

	if (s == NULL) {
		pbox_client_fail(err, PBOX_C_MEMORY, "no memory for a client");
		return NULL;
	}
	s->t.ops = &transport_udp;
	s->fd = -1;
	s->event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	s->buf = pbox_worker_room((size_t)RX_MSGS * RX_STRIDE);
	if (s->event < 0 || s->buf == NULL) {
		if (s->buf == NULL)
			pbox_client_fail(err, PBOX_C_MEMORY, "no memory for receive buffers");
		else
			pbox_client_fail(
				err, PBOX_C_SYSTEM, "cannot open an eventfd: %s", strerror(errno));
		udp_close(&s->t);
		return NULL;
	}
	rx_arm(s, RX_MSGS);
	s->t.batch = TX_MSGS;
	s->t.train_max = TRAIN_MAX;
	return s;
}

/** -1: none. */
static int
udp_socket(struct pbox_client_error *err)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		pbox_client_fail(
			err, PBOX_C_SYSTEM, "cannot open a UDP socket: %s", strerror(errno));
	return fd;
}

static int
udp_open(struct pbox_client_transport **out, const struct pbox_client_transport_conf *conf,
	struct pbox_client_error *err)
{
	struct udp *s = udp_new(err);
	int rc;

	if (s == NULL)
		return err->code;
	if (conf->args != NULL && conf->args[0] != 0) {
		rc = pbox_client_fail(err, PBOX_C_INVALID,
			"transport_args are given, but kernel sockets take none");
		goto fail;
	}
	rc = choose_mtu(s, conf, err);
	if (rc != 0)
		goto fail;
	s->fd = udp_socket(err);
	if (s->fd < 0) {
		rc = err->code;
		goto fail;
	}
	s->sockets[s->n++] = s->fd;
	if (conf->bind != NULL) {
		rc = udp_bind_to(s->fd, conf->bind, err);
		if (rc != 0)
			goto fail;
	}
	s->t.window = transport_window(set_options(s->fd), s->t.mtu);
	*out = &s->t;
	return 0;
fail:
	udp_close(&s->t);
	return rc;
}

/* ---- lanes ---------------------------------------------------------------------------- */

static int
udp_lane(struct pbox_client_transport *t, struct pbox_client_transport **out,
	struct pbox_client_error *err)
{
	struct udp *first = (struct udp *)t, *s;
	socklen_t len = sizeof(s->local);
	int on = 1;

	/* Not before it has its port: for a socket that has said this the kernel may choose the port of another process. */
	if (setsockopt(first->fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) != 0)
		return pbox_client_fail(err, PBOX_C_SYSTEM,
			"this kernel does not share a UDP port among sockets (SO_REUSEPORT: %s): set threads to 1",
			strerror(errno));
	s = udp_new(err);
	if (s == NULL)
		return err->code;
	if (getsockname(first->fd, (struct sockaddr *)&s->local, &len) != 0) {
		udp_close(&s->t);
		return pbox_client_fail(err, PBOX_C_SYSTEM,
			"the address of the first socket is not known: %s", strerror(errno));
	}
	s->t.mtu = first->t.mtu;
	s->t.window = first->t.window;
	*out = &s->t;
	return 0;
}

/** A socket of the lane's port that gets what comes from there; -1. */
static int
udp_socket_from(const struct udp *s, const struct sockaddr_in *from, struct pbox_client_error *err)
{
	int fd = udp_socket(err), on = 1;

	if (fd < 0)
		return -1;
	set_options(fd);
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) == 0 &&
		bind(fd, (const struct sockaddr *)&s->local, sizeof(s->local)) == 0 &&
		connect(fd, (const struct sockaddr *)from, sizeof(*from)) == 0)
		return fd;
	pbox_client_fail(err, PBOX_C_SYSTEM,
		"no second socket of the UDP port %u: %s; set threads to 1",
		ntohs(s->local.sin_port), strerror(errno));
	close(fd);
	return -1;
}

static int
udp_aim(struct pbox_client_transport *t, const struct sockaddr_in *const *from, unsigned n,
	struct pbox_client_error *err)
{
	struct udp *s = (struct udp *)t;
	int fresh[MAX_SOCKETS];

	n = n < MAX_SOCKETS ? n : MAX_SOCKETS; /* of the others the first socket gets what comes */
	/* the old ones stay until all are there: their numbers may be another file's as soon as they are closed */
	for (unsigned i = 0; i < n; i++) {
		fresh[i] = udp_socket_from(s, from[i], err);
		if (fresh[i] >= 0)
			continue;
		while (i-- > 0)
			close(fresh[i]);
		return err->code;
	}
	for (unsigned i = 0; i < s->n; i++)
		close(s->sockets[i]);
	memcpy(s->sockets, fresh, n * sizeof(fresh[0]));
	s->n = n;
	s->turn = 0;
	s->fd = n > 0 ? fresh[0] : -1;
	s->only = n == 1 ? *from[0] : (struct sockaddr_in){0};
	return 0;
}

static void
read_errors_of(struct udp *s, int fd)
{
	for (;;) {
		uint8_t control[512];
		struct sockaddr_in to;
		struct msghdr msg = {.msg_name = &to,
			.msg_namelen = sizeof(to),
			.msg_control = control,
			.msg_controllen = sizeof(control)};

		if (recvmsg(fd, &msg, MSG_ERRQUEUE | MSG_DONTWAIT) < 0)
			return;
		for (struct cmsghdr *h = CMSG_FIRSTHDR(&msg); h != NULL; h = CMSG_NXTHDR(&msg, h)) {
			struct sock_extended_err e;

			if (h->cmsg_level != IPPROTO_IP || h->cmsg_type != IP_RECVERR)
				continue;
			memcpy(&e, CMSG_DATA(h), sizeof(e));
			s->t.path_errno = (int)e.ee_errno;
			if (e.ee_errno == EMSGSIZE)
				s->t.path_mtu = e.ee_info;
		}
	}
}

static void
read_errors(struct udp *s)
{
	for (unsigned i = 0; i < s->n; i++)
		read_errors_of(s, s->sockets[i]);
}

/* ---- sending -------------------------------------------------------------------------- */

/** Can the datagram be the next of the train? */
static bool
udp_joins(const struct udp *s, const struct train *m, const struct pbox_client_tx *d)
{
	return !m->closed && m->to == d->to && d->bytes <= m->seg && m->segs < s->t.train &&
	       m->bytes + d->bytes <= TRAIN_BYTES;
}

/** Datagrams one after the other in memory are one piece of the kernel's. */
static void
extend(struct train *m, const struct pbox_client_tx *d)
{
	bool follows = d->n == 1 && m->piece.iov_len == m->bytes &&
		       d->iov[0].iov_base == (uint8_t *)m->piece.iov_base + m->bytes;

	m->piece.iov_len = follows ? m->bytes + d->bytes : 0;
}

/** Put datagrams together, at most TX_MSGS trains; returns how many datagrams these take. */
static unsigned
couple(const struct udp *s, const struct pbox_client_tx *d, unsigned n, struct train *m,
	unsigned *trains)
{
	unsigned i, k = 0;

	for (i = 0; i < n; i++) {
		struct train *last = k > 0 ? &m[k - 1] : NULL;

		if (last == NULL || !udp_joins(s, last, &d[i])) {
			if (k == TX_MSGS)
				break;
			last = &m[k++];
			*last = (struct train){.to = d[i].to,
				.iov = d[i].iov,
				.seg = (uint16_t)d[i].bytes,
				.piece = {d[i].iov[0].iov_base, 0}};
		}
		extend(last, &d[i]);
		last->closed = d[i].bytes < last->seg; /* only the last one may be shorter */
		last->segs++;
		last->iovs += d[i].n;
		last->bytes += d[i].bytes;
	}
	*trains = k;
	return i;
}

/** Deal with the failure of one message; true: try it again. */
static bool
send_failed(struct udp *s, int error, unsigned *patience)
{
	struct pollfd p = {.fd = s->fd, .events = POLLOUT};

	switch (error) {
	case EINTR:
		return true;
	case EAGAIN:
	case ENOBUFS:
		if (*patience == 0)
			break;
		(*patience)--;
		poll(&p, 1, error == EAGAIN ? SEND_PATIENCE : 1);
		return true;
	case EMSGSIZE:
		s->t.path_errno = EMSGSIZE;
		read_errors(s);
		break;
	case EINVAL: /* a route that is a black hole */
		s->t.path_errno = ENETUNREACH;
		break;
	default: /* an ICMP error of an earlier datagram is reported by the next call */
		read_errors(s);
		if (*patience == 0)
			break;
		(*patience)--;
		return true;
	}
	return false;
}

static bool
is_train_refused(const struct train *m, int error)
{
	/* EIO: no checksum offload below, and a kernel that needs it for trains */
	return m->segs > 1 && (error == EIO || error == EINVAL);
}

/**
 * The datagrams of a train that the kernel has refused, one by one. If they leave it is the train that this route does
 * not take, else the route takes nothing (a black hole is EINVAL as well), which says nothing about trains.
 */
static void
send_apart(struct udp *s, const struct train *m)
{
	const struct iovec *iov = m->iov, *end = iov + m->iovs;
	unsigned left = 0, n = 0;

	for (uint32_t bytes; iov < end; n++) {
		struct msghdr h = {.msg_name = &m->to->addr,
			.msg_namelen = sizeof(m->to->addr),
			.msg_iov = (struct iovec *)(uintptr_t)iov};

		for (bytes = 0; iov < end && bytes < m->seg; bytes += (uint32_t)(iov++)->iov_len)
			h.msg_iovlen++;
		if (sendmsg(s->fd, &h, 0) >= 0)
			left++;
		else if (errno == EINVAL)
			s->t.path_errno = ENETUNREACH;
	}
	s->t.tx_failed += n - left;
	if (left > 0 && s->t.train > 1) {
		s->refused_train = s->t.train;
		s->alone = 0;
		s->t.train = 1;
	}
}

/** Another route, or device, may take trains. */
static void
trains_again(struct udp *s, unsigned datagrams)
{
	if (s->t.train > 1)
		s->refused_train = 0; /* the worker has tried the path */
	if (s->refused_train == 0)
		return;
	s->alone += datagrams;
	if (s->alone >= TRAIN_AGAIN) {
		s->t.train = s->refused_train;
		s->refused_train = 0;
	}
}

static void
send_trains(struct udp *s, const struct train *m, unsigned n)
{
	struct mmsghdr mm[TX_MSGS];
	union {
		char room[CMSG_SPACE(sizeof(uint16_t))];
		struct cmsghdr align;
	} control[TX_MSGS];
	unsigned patience = 4;

	memset(mm, 0, sizeof(mm[0]) * n);
	for (unsigned i = 0; i < n; i++) {
		struct msghdr *h = &mm[i].msg_hdr;

		if (memcmp(&m[i].to->addr, &s->only, sizeof(s->only)) != 0) {
			h->msg_name = &m[i].to->addr;
			h->msg_namelen = sizeof(m[i].to->addr);
		} /* else the kernel has its route */
		h->msg_iov = (struct iovec *)(uintptr_t)(m[i].piece.iov_len > 0 ? &m[i].piece
										: m[i].iov);
		h->msg_iovlen = m[i].piece.iov_len > 0 ? 1 : m[i].iovs;
		if (m[i].segs > 1) {
			struct cmsghdr *cm = &control[i].align;

			cm->cmsg_level = IPPROTO_UDP;
			cm->cmsg_type = UDP_SEGMENT;
			cm->cmsg_len = CMSG_LEN(sizeof(uint16_t));
			memcpy(CMSG_DATA(cm), &m[i].seg, sizeof(m[i].seg));
			h->msg_control = control[i].room;
			h->msg_controllen = sizeof(control[i].room);
		}
	}
	for (unsigned at = 0; at < n;) {
		int sent = sendmmsg(s->fd, mm + at, n - at, 0);

		if (sent > 0) {
			at += (unsigned)sent;
		} else if (is_train_refused(&m[at], errno)) {
			send_apart(s, &m[at++]);
		} else if (!send_failed(s, errno, &patience)) {
			/* a loss like any other: loss recovery retransmits */
			s->t.tx_failed += m[at].segs;
			at++;
		}
	}
}

static void
udp_send(struct pbox_client_transport *t, const struct pbox_client_tx *d, unsigned n)
{
	struct udp *s = (struct udp *)t;

	trains_again(s, n);
	while (n > 0) {
		struct train m[TX_MSGS];
		unsigned trains, taken = couple(s, d, n, m, &trains);

		send_trains(s, m, trains);
		d += taken;
		n -= taken;
	}
	t->batch = t->train > 1 ? PBOX_CLIENT_TX_BATCH : TX_MSGS;
}

/* ---- receiving ------------------------------------------------------------------------ */

/** The datagrams of one message, as views from @p v on; returns how many. */
static unsigned
udp_split(struct udp *s, struct msghdr *h, const uint8_t *buf, uint32_t len,
	struct pbox_client_rx *v, unsigned room)
{
	struct pbox_client_rx one = {0};
	uint32_t seg = len;
	unsigned n = 0;

	for (struct cmsghdr *cm = CMSG_FIRSTHDR(h); cm != NULL; cm = CMSG_NXTHDR(h, cm)) {
		if (cm->cmsg_level == IPPROTO_UDP && cm->cmsg_type == UDP_GRO) {
			int size;

			memcpy(&size, CMSG_DATA(cm), sizeof(size));
			if (size > 0 && (uint32_t)size < len) {
				seg = (uint32_t)size;
				s->t.merging = true;
			}
		} else if (cm->cmsg_level == IPPROTO_IP && cm->cmsg_type == IP_TOS) {
			one.ecn = *CMSG_DATA(cm) & ECN_MASK;
		}
	}
	memcpy(&one.from, h->msg_name, sizeof(one.from));
	while (len > 0 && n < room) {
		one.data = buf;
		one.len = len < seg ? len : seg;
		v[n++] = one;
		buf += one.len;
		len -= one.len;
	}
	if (len > 0)
		s->t.rx_failed += (len + seg - 1) / seg;
	return n;
}

static unsigned
udp_recv(struct pbox_client_transport *t, const struct pbox_client_rx **out)
{
	struct udp *s = (struct udp *)t;
	unsigned views = 0;
	int n = 0;

	for (unsigned i = 0; i < s->n && n < RX_MSGS; i++) {
		int fd = s->sockets[(s->turn + i) % s->n];
		int got = recvmmsg(fd, s->rx + n, RX_MSGS - (unsigned)n, MSG_DONTWAIT, NULL);

		if (got < 0 && errno != EAGAIN && errno != EINTR)
			read_errors_of(s, fd);
		n += got > 0 ? got : 0;
	}
	s->turn += s->n > 1; /* each is the first one in turn */
	t->more = n == RX_MSGS;
	*out = s->view;
	for (int i = 0; i < n; i++)
		views += udp_split(s, &s->rx[i].msg_hdr, s->rx_iov[i].iov_base, s->rx[i].msg_len,
			s->view + views, RX_VIEWS - views);
	rx_arm(s, n);
	return views;
}

static void
udp_wait(struct pbox_client_transport *t, uint64_t ns)
{
	struct udp *s = (struct udp *)t;
	/* without the socket in the list no datagram wakes this thread */
	bool look = t->gather_ns == 0 || t->gather_ns >= ns;
	uint64_t time = look ? ns : t->gather_ns, drain;
	struct pollfd p[1 + MAX_SOCKETS];
	struct timespec ts = {(time_t)(time / NS_PER_S), (long)(time % NS_PER_S)};

	p[0] = (struct pollfd){.fd = s->event, .events = POLLIN};
	for (unsigned i = 0; i < s->n; i++)
		p[1 + i] = (struct pollfd){.fd = s->sockets[i], .events = POLLIN};
	if (ppoll(p, look ? 1 + s->n : 1, &ts, NULL) <= 0)
		return;
	for (unsigned i = 0; look && i < s->n; i++)
		if ((p[1 + i].revents & POLLERR) != 0)
			read_errors_of(s, s->sockets[i]);
	if ((p[0].revents & POLLIN) != 0 && read(s->event, &drain, sizeof(drain)) < 0)
		return;
}

static void
udp_attach(struct pbox_client_transport *t)
{
	(void)t;
	prctl(PR_SET_TIMERSLACK, TIMER_SLACK, 0, 0, 0);
}

static void
udp_wake(struct pbox_client_transport *t)
{
	uint64_t one = 1;

	if (write(((struct udp *)t)->event, &one, sizeof(one)) < 0)
		return; /* the counter is full: it wakes the thread as well */
}

const struct pbox_client_transport_ops transport_udp = {
	.abi = PBOX_CLIENT_TRANSPORT_ABI,
	.name = "udp",
	.open = udp_open,
	.close = udp_close,
	.send = udp_send,
	.recv = udp_recv,
	.wait = udp_wait,
	.wake = udp_wake,
	.attach = udp_attach,
	.lane = udp_lane,
	.aim = udp_aim,
};
