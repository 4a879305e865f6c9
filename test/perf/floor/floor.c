/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <netinet/udp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "floor.h"

#define SOCKET_BUFFER (8 << 20)
#define WINDOW        4 /* trains on their way */
#define PATIENCE_S    2 /* without any answer */
#define HUGE          (2u << 20)

double
floor_cpu(void)
{
	struct rusage r;

	getrusage(RUSAGE_SELF, &r);
	return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) +
	       1e-6 * (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec);
}

void
floor_ready(void)
{
	printf("ready\n");
	fflush(stdout);
}

unsigned
floor_train_length(uint32_t fragment)
{
	unsigned n = FLOOR_TRAIN / fragment;

	return n > FLOOR_MOST ? FLOOR_MOST : n;
}

static uint32_t
payload_of(const struct floor_side *s)
{
	return s->fragment - FLOOR_HEAD;
}

static uint8_t *
head_of(const struct floor_side *s, uint32_t i)
{
	return s->head != NULL ? s->head + (size_t)i * FLOOR_HEAD
			       : s->payload + (size_t)i * s->fragment;
}

static uint8_t *
payload_at(const struct floor_side *s, uint32_t i)
{
	return s->head != NULL ? s->payload + (size_t)i * payload_of(s)
			       : s->payload + (size_t)i * s->fragment + FLOOR_HEAD;
}

/** What is sent: no two fragments are alike. */
static void
fill_fragment(const struct floor_side *s, uint32_t i)
{
	memcpy(head_of(s, i), &i, sizeof(i));
	for (uint32_t at = 0; at + 4 <= payload_of(s); at += 4) {
		uint32_t word = (i * (payload_of(s) / 4) + at / 4) * 0x9E3779B1u;

		memcpy(payload_at(s, i) + at, &word, sizeof(word));
	}
}

bool
floor_side_open(struct floor_side *s, uint32_t fragment, uint64_t bytes, bool pieces, bool fill)
{
	size_t size;

	*s = (struct floor_side){
		.fragment = fragment, .fragments = (uint32_t)(bytes / (fragment - FLOOR_HEAD))};
	size = ((size_t)s->fragments * fragment + HUGE) & ~(size_t)(HUGE - 1);
	s->payload = aligned_alloc(HUGE, size);
	if (s->payload == NULL || s->fragments == 0)
		return false;
	madvise(s->payload, size, MADV_HUGEPAGE);
	memset(s->payload, 0, size);
	if (pieces) {
		s->head = calloc(s->fragments, FLOOR_HEAD);
		if (s->head == NULL)
			return false;
	}
	for (uint32_t i = 0; fill && i < s->fragments; i++)
		fill_fragment(s, i);
	return true;
}

unsigned
floor_train(const struct floor_side *s, unsigned most, struct iovec *iov, unsigned *n)
{
	unsigned left = s->fragments - s->next, k = most < left ? most : left;
	uint32_t payload = payload_of(s);

	if (s->head == NULL) {
		iov[0] = (struct iovec){head_of(s, s->next), (size_t)k * s->fragment};
		*n = 1;
		return k;
	}
	for (unsigned i = 0; i < k; i++) {
		iov[2 * i] = (struct iovec){head_of(s, s->next + i), FLOOR_HEAD};
		iov[2 * i + 1] = (struct iovec){payload_at(s, s->next + i), payload};
	}
	*n = 2 * k;
	return k;
}

void
floor_number(struct floor_side *s, const uint8_t *head)
{
	uint32_t number;

	memcpy(&number, head, sizeof(number));
	s->numbers += number;
}

uint32_t
floor_unsummed(const struct floor_side *s)
{
	uint64_t round = (uint64_t)s->fragments * (s->fragments - 1) / 2,
		 rounds = s->moved / s->fragment / s->fragments;

	return s->numbers != round * rounds || s->moved / s->fragment % s->fragments != 0;
}

void
floor_moved(struct floor_side *s, unsigned fragments)
{
	s->moved += (uint64_t)fragments * s->fragment;
	s->next += fragments;
	if (s->next == s->fragments)
		s->next = 0;
}

/* ---- sockets --------------------------------------------------------------------------------- */

static void
set_size(int fd, int force, int plain)
{
	int bytes = SOCKET_BUFFER;

	if (setsockopt(fd, SOL_SOCKET, force, &bytes, sizeof(bytes)) != 0)
		setsockopt(fd, SOL_SOCKET, plain, &bytes, sizeof(bytes));
}

static int
open_socket(const char *local, const char *peer, uint32_t fragment)
{
	int fd = socket(AF_INET, SOCK_DGRAM, 0), on = 1, seg = (int)fragment;
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(FLOOR_PORT)}, b = a;
	struct timeval patience = {PATIENCE_S, 0};

	if (inet_aton(local, &a.sin_addr) == 0 || inet_aton(peer, &b.sin_addr) == 0 || fd < 0)
		return -1;
	set_size(fd, SO_RCVBUFFORCE, SO_RCVBUF);
	set_size(fd, SO_SNDBUFFORCE, SO_SNDBUF);
	if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) != 0 ||
		setsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &seg, sizeof(seg)) != 0 ||
		setsockopt(fd, IPPROTO_UDP, UDP_GRO, &on, sizeof(on)) != 0 ||
		bind(fd, (const struct sockaddr *)&a, sizeof(a)) != 0 ||
		connect(fd, (const struct sockaddr *)&b, sizeof(b)) != 0)
		return -1;
	return fd;
}

static bool
send_train(int fd, struct floor_side *s, unsigned most, unsigned *sent)
{
	struct iovec iov[2 * FLOOR_MOST];
	struct msghdr m = {.msg_iov = iov};
	unsigned n, k = floor_train(s, most, iov, &n);

	m.msg_iovlen = n;
	if (sendmsg(fd, &m, 0) != (ssize_t)((size_t)k * s->fragment))
		return false;
	floor_moved(s, k);
	*sent = k;
	return true;
}

/** What has come of a train, into its place: nothing is copied twice. 0: nothing has, or it is not whole fragments. */
static unsigned
receive_train(int fd, struct floor_side *s)
{
	struct iovec iov[2 * FLOOR_MOST];
	struct msghdr m = {.msg_iov = iov};
	unsigned n;
	ssize_t got;

	floor_train(s, FLOOR_MOST, iov, &n);
	m.msg_iovlen = n;
	got = recvmsg(fd, &m, 0);
	if (got <= 0 || (m.msg_flags & MSG_TRUNC) != 0 || (size_t)got % s->fragment != 0)
		return 0;
	n = (unsigned)((size_t)got / s->fragment);
	for (unsigned i = 0; i < n; i++)
		floor_number(s, head_of(s, s->next + i));
	floor_moved(s, n);
	return n;
}

/** Fragments in a buffer from @p first on whose payload is not that of their number: trains may overtake each other (a sender that changes
 * CPUs), so places do not say what is there. */
static uint32_t
wrong(const struct floor_side *got, const struct floor_side *want, uint32_t first)
{
	uint32_t bad = 0, payload = payload_of(got), number;

	for (uint32_t i = first; i < got->fragments; i++) {
		memcpy(&number, head_of(got, i), sizeof(number));
		bad += number >= want->fragments ||
		       memcmp(payload_at(got, i), payload_at(want, number), payload) != 0;
	}
	return bad;
}

/** The worker: all of its buffer @p rounds times, and as much back. Prints one JSON object. */
static int
work(int fd, struct floor_side *out, struct floor_side *in, unsigned rounds)
{
	uint64_t total = (uint64_t)rounds * out->fragments, sent = 0, got = 0;
	unsigned train = floor_train_length(out->fragment), n;
	uint32_t end = 0;
	struct timespec a, b;
	double used = floor_cpu();

	clock_gettime(CLOCK_MONOTONIC, &a);
	while (got < total) {
		while (sent < total && sent - got <= (uint64_t)train * WINDOW) {
			if (!send_train(fd, out, train, &n)) {
				perror("floor: send");
				return 1;
			}
			sent += n;
		}
		n = receive_train(fd, in);
		if (n == 0) {
			fprintf(stderr,
				"floor: %llu fragments sent, %llu came back, then nothing for %d s, or a part of one\n",
				(unsigned long long)sent, (unsigned long long)got, PATIENCE_S);
			return 1;
		}
		got += n;
	}
	used = floor_cpu() - used;
	clock_gettime(CLOCK_MONOTONIC, &b);
	for (int i = 0; i < 3;
		i++) /* shorter than a fragment: the end. It lands where fragment 0 is */
		if (send(fd, &end, sizeof(end), 0) < 0)
			break;
	printf("{\"cpu_s\": %.6f, \"seconds\": %.6f, \"bytes\": %llu, \"back\": %llu, \"wrong\": %u}\n",
		used, (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec),
		(unsigned long long)out->moved, (unsigned long long)in->moved,
		wrong(in, out, 0) + floor_unsummed(in));
	return 0;
}

/** A far end that is a socket as well: as many fragments as have come go back. */
static bool
far_socket(int fd, struct floor_side *in, struct floor_side *answers)
{
	for (;;) {
		unsigned n = receive_train(fd, in), sent;

		if (n == 0) /* the end, or patience is over */
			return in->moved > 0;
		for (; n > 0; n -= sent)
			if (!send_train(fd, answers, n, &sent)) {
				perror("floor: answer");
				return false;
			}
	}
}

static int
usage(void)
{
	fputs("Usage: bench_floor worker|socket LOCAL PEER FRAGMENT MBYTES flat|sent|pieces ROUNDS\n"
	      "       bench_floor ring DEVICE - FRAGMENT MBYTES flat|sent|pieces ROUNDS\n"
	      "One side of the smallest program that moves bytes over UDP as a worker does. test/perf/floor/bench runs it.\n",
		stderr);
	return 2;
}

static int
fail(const char *what)
{
	fprintf(stderr, "floor: %s: %s\n", what, strerror(errno));
	return 1;
}

int
main(int argc, char **argv)
{
	struct floor_side in, out;
	uint32_t fragment;
	uint64_t bytes;
	bool pieces, sent, ok;
	double used;
	int fd = -1;

	if (argc != 8)
		return usage();
	fragment = (uint32_t)strtoul(argv[4], NULL, 10);
	bytes = (uint64_t)(strtod(argv[5], NULL) * 1e6);
	pieces = strcmp(argv[6], "pieces") == 0;
	sent = pieces || strcmp(argv[6], "sent") == 0;
	if (fragment <= FLOOR_HEAD || fragment > FLOOR_TRAIN)
		return usage();
	if (!floor_side_open(&out, fragment, bytes, sent, true) ||
		!floor_side_open(&in, fragment, bytes, pieces, false))
		return fail("no memory for the buffers");
	if (strcmp(argv[1], "ring") != 0) {
		fd = open_socket(argv[2], argv[3], fragment);
		if (fd < 0)
			return fail("no socket with segmentation offload");
	}
	if (strcmp(argv[1], "worker") == 0)
		return work(fd, &out, &in, (unsigned)strtoul(argv[7], NULL, 10));
	if (fd >= 0)
		floor_ready();
	used = floor_cpu();
	ok = fd < 0 ? floor_ring(argv[2], &in, &out) : far_socket(fd, &in, &out);
	used = floor_cpu() - used;
	printf("{\"cpu_s\": %.6f, \"bytes\": %llu, \"back\": %llu, \"wrong\": %u}\n", used,
		(unsigned long long)in.moved, (unsigned long long)out.moved,
		floor_unsummed(&in) + (fd >= 0 ? wrong(&in, &out, 1) : 0));
	return ok ? 0 : 1;
}
