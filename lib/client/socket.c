/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/udp.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/errqueue.h>

#include "client_impl.h"

/*
 * One unconnected socket for the control and all data endpoints: the box answers the address
 * that joined.
 */

#define RCVBUF        (16 << 20)
#define SNDBUF        (4 << 20)
#define SEND_PATIENCE 100 /* ms that a full send queue is waited for */
#define GSO_BYTES     65000
#define ECT0          0x02
#define ECN_MASK      0x03
#define ECN_CE        0x03
#define MIN_MTU       (PBOX_MTU_OVERHEAD + PBOX_JOIN_LEN)

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

static void
set_buffer(int fd, int force, int plain, int bytes)
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
choose_mtu(struct sock *s, unsigned wanted, const struct sockaddr_in *box,
	struct pbox_client_error *err)
{
	s->mtu = wanted != 0 ? wanted : route_mtu(box);
	if (s->mtu == 0)
		return client_fail(err, PBOX_C_UNREACHABLE,
			"no route to the box at %s: check the address and the routing table "
			"('ip route get %s')",
			inet_ntoa(box->sin_addr), inet_ntoa(box->sin_addr));
	if (s->mtu > MAX_FRAME + 28)
		s->mtu = MAX_FRAME + 28;
	if (s->mtu < MIN_MTU)
		return client_fail(
			err, PBOX_C_INVALID, "mtu is %u, at least %d is needed", s->mtu, MIN_MTU);
	return 0;
}

static int
bind_to(int fd, const char *address, struct pbox_client_error *err)
{
	struct sockaddr_in local = {.sin_family = AF_INET};

	if (inet_pton(AF_INET, address, &local.sin_addr) != 1)
		return client_fail(
			err, PBOX_C_INVALID, "bind: '%s' is not an IPv4 address", address);
	if (bind(fd, (struct sockaddr *)&local, sizeof(local)) != 0)
		return client_fail(err, PBOX_C_SYSTEM,
			"cannot bind to %s: %s; it must be an address of this host", address,
			strerror(errno));
	return 0;
}

static void
set_options(struct sock *s)
{
	int on = 1, tos = ECT0, discover = IP_PMTUDISC_DO, got = 0;
	socklen_t len = sizeof(got);

	set_buffer(s->fd, SO_RCVBUFFORCE, SO_RCVBUF, RCVBUF);
	set_buffer(s->fd, SO_SNDBUFFORCE, SO_SNDBUF, SNDBUF);
	if (getsockopt(s->fd, SOL_SOCKET, SO_RCVBUF, &got, &len) == 0 && got > 0)
		s->rcvbuf = (size_t)got;
	setsockopt(s->fd, IPPROTO_IP, IP_MTU_DISCOVER, &discover, sizeof(discover));
	setsockopt(s->fd, IPPROTO_IP, IP_RECVERR, &on, sizeof(on));
	setsockopt(s->fd, IPPROTO_IP, IP_RECVTOS, &on, sizeof(on));
	setsockopt(s->fd, IPPROTO_IP, IP_TOS, &tos, sizeof(tos));
	s->gro = setsockopt(s->fd, IPPROTO_UDP, UDP_GRO, &on, sizeof(on)) == 0;
}

int
sock_open(struct sock *s, const struct pbox_client_conf *conf, const struct sockaddr_in *box,
	struct pbox_client_error *err)
{
	int rc = choose_mtu(s, conf->mtu, box, err);

	s->fd = -1;
	if (rc != 0)
		return rc;
	s->rx = malloc((size_t)RX_MSGS * RX_SIZE);
	if (s->rx == NULL)
		return client_fail(err, PBOX_C_MEMORY, "no memory for receive buffers");
	s->fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (s->fd < 0) {
		rc = client_fail(
			err, PBOX_C_SYSTEM, "cannot open a UDP socket: %s", strerror(errno));
		goto fail;
	}
	if (conf->bind != NULL) {
		rc = bind_to(s->fd, conf->bind, err);
		if (rc != 0)
			goto fail;
	}
	set_options(s);
	return 0;
fail:
	sock_close(s);
	return rc;
}

void
sock_close(struct sock *s)
{
	if (s->fd >= 0)
		close(s->fd);
	s->fd = -1;
	free(s->rx);
	s->rx = NULL;
}

void
sock_errors(struct sock *s)
{
	for (;;) {
		uint8_t control[512];
		struct sockaddr_in to;
		struct msghdr msg = {.msg_name = &to,
			.msg_namelen = sizeof(to),
			.msg_control = control,
			.msg_controllen = sizeof(control)};

		if (recvmsg(s->fd, &msg, MSG_ERRQUEUE | MSG_DONTWAIT) < 0)
			return;
		for (struct cmsghdr *h = CMSG_FIRSTHDR(&msg); h != NULL; h = CMSG_NXTHDR(&msg, h)) {
			struct sock_extended_err e;

			if (h->cmsg_level != IPPROTO_IP || h->cmsg_type != IP_RECVERR)
				continue;
			memcpy(&e, CMSG_DATA(h), sizeof(e));
			s->icmp_errno = (int)e.ee_errno;
			if (e.ee_errno == EMSGSIZE)
				s->icmp_mtu = e.ee_info;
		}
	}
}

/* ---- sending -------------------------------------------------------------------------- */

/** Can the frame join the message that is being built last? */
static bool
joins(const struct sock *s, const struct tx_msg *m, const struct sockaddr_in *to, uint32_t bytes)
{
	if (m->closed || m->to != to)
		return false;
	if (bytes == PBOX_HDR_LEN)
		return m->heads && m->bytes + bytes <= s->mtu - 28;
	return s->gso && !m->heads && bytes <= m->seg && m->segs < s->gso_segs &&
	       m->bytes + bytes <= GSO_BYTES;
}

void
sock_frame(struct sock *s, const struct sockaddr_in *to, const struct pbox_hdr *hdr,
	const struct iovec *iov, unsigned n)
{
	uint32_t bytes = PBOX_HDR_LEN, crc = 0;
	struct tx_msg *m;
	uint8_t *head;

	if (s->n_iovs + n + 1 > TX_IOVS || s->n_hdrs == TX_HDRS || s->n_msgs == TX_MSGS)
		sock_flush(s);
	for (unsigned i = 0; i < n; i++) {
		crc = pbox_crc32c(crc, iov[i].iov_base, iov[i].iov_len);
		bytes += (uint32_t)iov[i].iov_len;
	}
	head = s->hdr[s->n_hdrs++];
	pbox_frame_encode(head, hdr, crc);
	m = s->n_msgs > 0 ? &s->msg[s->n_msgs - 1] : NULL;
	if (m == NULL || !joins(s, m, to, bytes)) {
		m = &s->msg[s->n_msgs++];
		*m = (struct tx_msg){.to = to,
			.iov = s->n_iovs,
			.seg = (uint16_t)bytes,
			.heads = bytes == PBOX_HDR_LEN};
	}
	s->iov[s->n_iovs++] = (struct iovec){head, PBOX_HDR_LEN};
	for (unsigned i = 0; i < n; i++)
		s->iov[s->n_iovs++] = iov[i];
	m->closed = bytes < m->seg; /* only the last frame of a GSO train may be shorter */
	m->segs++;
	m->iovs += n + 1;
	m->bytes += bytes;
	s->tx_frames++;
	s->tx_bytes += bytes;
}

/** Deal with the failure of one message; true: try it again. */
static bool
send_failed(struct sock *s, int error, unsigned *patience)
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
		s->icmp_errno = EMSGSIZE;
		sock_errors(s);
		break;
	case EIO: /* no checksum offload below, and a kernel that needs it for trains */
	case EINVAL:
		s->gso = false;
		break;
	default: /* an ICMP error of an earlier datagram is reported by the next call */
		sock_errors(s);
		if (*patience == 0)
			break;
		(*patience)--;
		return true;
	}
	s->tx_failed++; /* a lost frame like any other: the timers see to it */
	return false;
}

void
sock_flush(struct sock *s)
{
	struct mmsghdr mm[TX_MSGS];
	union {
		char room[CMSG_SPACE(sizeof(uint16_t))];
		struct cmsghdr align;
	} control[TX_MSGS];
	unsigned patience = 4;

	if (s->n_msgs == 0)
		return;
	memset(mm, 0, sizeof(mm[0]) * s->n_msgs);
	for (unsigned i = 0; i < s->n_msgs; i++) {
		const struct tx_msg *m = &s->msg[i];
		struct msghdr *h = &mm[i].msg_hdr;

		h->msg_name = (void *)(uintptr_t)m->to;
		h->msg_namelen = sizeof(*m->to);
		h->msg_iov = &s->iov[m->iov];
		h->msg_iovlen = m->iovs;
		if (m->segs > 1 && !m->heads) {
			struct cmsghdr *cm = &control[i].align;

			cm->cmsg_level = IPPROTO_UDP;
			cm->cmsg_type = UDP_SEGMENT;
			cm->cmsg_len = CMSG_LEN(sizeof(uint16_t));
			memcpy(CMSG_DATA(cm), &m->seg, sizeof(m->seg));
			h->msg_control = control[i].room;
			h->msg_controllen = sizeof(control[i].room);
		}
	}
	for (unsigned at = 0; at < s->n_msgs;) {
		int n = sendmmsg(s->fd, mm + at, s->n_msgs - at, 0);

		if (n > 0)
			at += (unsigned)n;
		else if (!send_failed(s, errno, &patience))
			at++;
	}
	s->n_msgs = s->n_iovs = s->n_hdrs = 0;
}

/* ---- receiving ------------------------------------------------------------------------ */

static void
parse_datagram(struct sock *s, const uint8_t *buf, size_t len, struct rx_frame *f,
	rx_handler handler, void *ctx)
{
	bool first = true;

	while (len > 0) {
		size_t size = 0;
		enum pbox_wire_drop drop = pbox_frame_decode(buf, len, first, &f->hdr, &size);

		if (drop == PBOX_WIRE_OK && size >= PBOX_HDR_LEN && size <= len) {
			s->rx_frames++;
			f->payload = buf + PBOX_HDR_LEN;
			handler(ctx, f);
		} else {
			s->rx_dropped++;
			if ((drop != PBOX_WIRE_CRC && drop != PBOX_WIRE_FLAGS &&
				    drop != PBOX_WIRE_TYPE && drop != PBOX_WIRE_AUTH) ||
				size == 0 || size > len)
				return;
		}
		buf += size;
		len -= size;
		first = false;
	}
}

static void
parse_message(struct sock *s, struct msghdr *h, const uint8_t *buf, size_t len, rx_handler handler,
	void *ctx)
{
	struct rx_frame f = {0};
	size_t seg = len;

	for (struct cmsghdr *cm = CMSG_FIRSTHDR(h); cm != NULL; cm = CMSG_NXTHDR(h, cm)) {
		if (cm->cmsg_level == IPPROTO_UDP && cm->cmsg_type == UDP_GRO) {
			int size;

			memcpy(&size, CMSG_DATA(cm), sizeof(size));
			if (size > 0 && (size_t)size < len) {
				seg = (size_t)size;
				s->gro_seen = true;
			}
		} else if (cm->cmsg_level == IPPROTO_IP && cm->cmsg_type == IP_TOS) {
			f.ce = (*CMSG_DATA(cm) & ECN_MASK) == ECN_CE;
		}
	}
	memcpy(&f.from, h->msg_name, sizeof(f.from));
	s->rx_bytes += len;
	while (len > 0) {
		size_t one = len < seg ? len : seg;

		parse_datagram(s, buf, one, &f, handler, ctx);
		buf += one;
		len -= one;
	}
}

unsigned
sock_receive(struct sock *s, unsigned turns, rx_handler handler, void *ctx)
{
	unsigned total = 0;

	while (turns-- > 0) {
		struct mmsghdr mm[RX_MSGS];
		struct iovec iov[RX_MSGS];
		struct sockaddr_in from[RX_MSGS];
		uint64_t control[RX_MSGS][16];
		int n;

		for (unsigned i = 0; i < RX_MSGS; i++) {
			iov[i] = (struct iovec){s->rx + (size_t)i * RX_SIZE, RX_SIZE};
			mm[i].msg_hdr = (struct msghdr){.msg_name = &from[i],
				.msg_namelen = sizeof(from[i]),
				.msg_iov = &iov[i],
				.msg_iovlen = 1,
				.msg_control = control[i],
				.msg_controllen = sizeof(control[i])};
		}
		n = recvmmsg(s->fd, mm, RX_MSGS, MSG_DONTWAIT, NULL);
		if (n <= 0) {
			if (n < 0 && errno != EAGAIN && errno != EINTR)
				sock_errors(s);
			break;
		}
		for (int i = 0; i < n; i++)
			parse_message(
				s, &mm[i].msg_hdr, iov[i].iov_base, mm[i].msg_len, handler, ctx);
		total += (unsigned)n;
		if (n < RX_MSGS)
			break;
	}
	return total;
}

void
sock_wait(struct sock *s, int event, uint64_t ns)
{
	struct pollfd p[2] = {{.fd = s->fd, .events = POLLIN}, {.fd = event, .events = POLLIN}};
	struct timespec t = {(time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S)};

	uint64_t drain;

	if (ppoll(p, event >= 0 ? 2 : 1, &t, NULL) <= 0)
		return;
	if ((p[0].revents & POLLERR) != 0)
		sock_errors(s);
	if ((p[1].revents & POLLIN) != 0 && read(event, &drain, sizeof(drain)) < 0)
		return; /* somebody else was faster; there is nobody else */
}
