/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucontext.h>

#include "world.h"

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

#define STACK   (1u << 19)
#define QUEUE   256
#define BURST   8
#define SECOND  UINT64_C(1000000000)
#define LONGEST SECOND

struct datagram {
	uint8_t *data;
	size_t len;
	uint8_t host, ecn;
};

static struct {
	bool on;
	uint64_t now;
	struct datagram queue[QUEUE], burst[BURST];
	struct pbox_client_rx rx[BURST];
	unsigned n_queue, n_burst;
	bool woken;
	/* the progress thread */
	ucontext_t program, progress;
	void *(*main)(void *);
	void *arg;
	bool started, finished, inside;
	struct {
		void *fake;
		const void *bottom;
		size_t size;
	} stack[2]; /* of the program; of the thread */
} w;
static uint8_t room[STACK] __attribute__((aligned(64)));
static struct pbox_client_transport transport;

/* ---- the clock ------------------------------------------------------------------------------ */

int __real_clock_gettime(clockid_t id, struct timespec *t);
int __wrap_clock_gettime(clockid_t id, struct timespec *t);

int
__wrap_clock_gettime(clockid_t id, struct timespec *t)
{
	if (!w.on || id != CLOCK_MONOTONIC)
		return __real_clock_gettime(id, t);
	w.now += 100; /* so that who waits for a time gets there */
	*t = (struct timespec){(time_t)(w.now / SECOND), (long)(w.now % SECOND)};
	return 0;
}

uint64_t
world_now(void)
{
	return w.now;
}

void
world_pass(uint64_t ns)
{
	w.now += ns;
}

/* ---- two threads in turn ---------------------------------------------------------------------- */

static void
change(bool inside)
{
	w.inside = inside;
#if SANITIZED
	__sanitizer_start_switch_fiber(
		&w.stack[!inside].fake, w.stack[inside].bottom, w.stack[inside].size);
#endif
	REQUIRE(swapcontext(inside ? &w.program : &w.progress, inside ? &w.progress : &w.program) ==
		0);
#if SANITIZED
	__sanitizer_finish_switch_fiber(
		w.stack[w.inside].fake, &w.stack[!w.inside].bottom, &w.stack[!w.inside].size);
#endif
}

static void
progress_main(void)
{
#if SANITIZED
	__sanitizer_finish_switch_fiber(NULL, &w.stack[0].bottom, &w.stack[0].size);
#endif
	w.main(w.arg);
	w.finished = true;
	change(false);
	abort();
}

void
world_yield(void)
{
	REQUIRE(!w.inside);
	if (w.started && !w.finished)
		change(true);
}

int __real_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg);
int __wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg);
int __real_pthread_join(pthread_t t, void **value);
int __wrap_pthread_join(pthread_t t, void **value);
int __real_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m);
int __wrap_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m);
int __real_pthread_cond_timedwait(
	pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *until);
int __wrap_pthread_cond_timedwait(
	pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *until);

int
__wrap_pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*fn)(void *), void *arg)
{
	if (!w.on)
		return __real_pthread_create(t, a, fn, arg);
	REQUIRE(!w.started && getcontext(&w.progress) == 0);
	w.progress.uc_stack.ss_sp = room;
	w.progress.uc_stack.ss_size = sizeof(room);
	w.progress.uc_link = NULL;
	w.stack[1].bottom = room;
	w.stack[1].size = sizeof(room);
	w.main = fn;
	w.arg = arg;
	makecontext(&w.progress, progress_main, 0);
	w.started = true;
	*t = pthread_self();
	return 0;
}

int
__wrap_pthread_join(pthread_t t, void **value)
{
	if (!w.on)
		return __real_pthread_join(t, value);
	while (!w.finished)
		world_yield();
	return 0;
}

/* Who waits looks again after every turn of the progress thread. */
int
__wrap_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m)
{
	if (!w.on)
		return __real_pthread_cond_wait(c, m);
	REQUIRE(w.started && !w.finished);
	pthread_mutex_unlock(m);
	world_yield();
	pthread_mutex_lock(m);
	return 0;
}

int
__wrap_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *until)
{
	if (!w.on)
		return __real_pthread_cond_timedwait(c, m, until);
	if (w.now >= (uint64_t)until->tv_sec * SECOND + (uint64_t)until->tv_nsec)
		return ETIMEDOUT;
	return __wrap_pthread_cond_wait(c, m);
}

/* ---- the transport ---------------------------------------------------------------------------- */

static void
forget(struct datagram *d, unsigned *n)
{
	for (unsigned i = 0; i < *n; i++)
		free(d[i].data);
	*n = 0;
}

void
world_deliver(const uint8_t *data, size_t len, uint8_t host, uint8_t ecn)
{
	struct datagram *d;

	if (w.n_queue == QUEUE)
		return;
	d = &w.queue[w.n_queue++];
	*d = (struct datagram){malloc(len > 0 ? len : 1), len, host, ecn};
	REQUIRE(d->data != NULL);
	memcpy(d->data, data, len);
}

static int
on_open(struct pbox_client_transport **out, const struct pbox_client_transport_conf *conf,
	struct pbox_client_error *err)
{
	(void)conf;
	(void)err;
	transport = (struct pbox_client_transport){.ops = &world_transport,
		.mtu = WORLD_MTU,
		.batch = 64,
		.window = 64,
		.train_max = 8};
	*out = &transport;
	return 0;
}

static void
on_close(struct pbox_client_transport *t)
{
	(void)t;
}

/* Whatever was answered: what is sent is sound, and fits. */
static void
on_send(struct pbox_client_transport *t, const struct pbox_client_tx *d, unsigned n)
{
	static uint8_t buf[65536];

	REQUIRE(n > 0 && n <= t->batch);
	for (unsigned i = 0; i < n; i++) {
		size_t len = 0, size;

		for (uint32_t k = 0; k < d[i].n; k++) {
			REQUIRE(len + d[i].iov[k].iov_len <= WORLD_MTU - 28);
			memcpy(buf + len, d[i].iov[k].iov_base, d[i].iov[k].iov_len);
			len += d[i].iov[k].iov_len;
		}
		REQUIRE(len == d[i].bytes);
		for (size_t at = 0; at < len; at += size) {
			struct pbox_hdr h;

			REQUIRE(pbox_frame_decode(buf + at, len - at, at == 0, &h, &size) ==
				PBOX_WIRE_OK);
			box_frame(&h, buf + at + PBOX_HDR_LEN);
		}
	}
}

static unsigned
on_recv(struct pbox_client_transport *t, const struct pbox_client_rx **out)
{
	unsigned n = w.n_queue < BURST ? w.n_queue : BURST;

	forget(w.burst, &w.n_burst);
	for (unsigned i = 0; i < n; i++) {
		w.burst[i] = w.queue[i];
		w.rx[i] = (struct pbox_client_rx){.data = w.burst[i].data,
			.len = (uint32_t)w.burst[i].len,
			.ecn = w.burst[i].ecn};
		w.rx[i].from.sin_family = AF_INET;
		w.rx[i].from.sin_addr.s_addr = htonl(0x7f000000u | w.burst[i].host);
	}
	w.n_burst = n;
	w.n_queue -= n;
	memmove(w.queue, w.queue + n, w.n_queue * sizeof(w.queue[0]));
	t->more = w.n_queue > 0;
	*out = w.rx;
	return n;
}

static void
on_wait(struct pbox_client_transport *t, uint64_t ns)
{
	(void)t;
	if (w.n_queue == 0 && !w.woken)
		box_idle();
	if (w.n_queue == 0 && !w.woken)
		w.now += ns < LONGEST ? ns : LONGEST;
	w.woken = false;
	if (w.inside)
		change(false);
}

static void
on_wake(struct pbox_client_transport *t)
{
	(void)t;
	w.woken = true;
}

const struct pbox_client_transport_ops world_transport = {
	.abi = PBOX_CLIENT_TRANSPORT_ABI,
	.name = "world",
	.open = on_open,
	.close = on_close,
	.send = on_send,
	.recv = on_recv,
	.wait = on_wait,
	.wake = on_wake,
};

void
world_begin(void)
{
	memset(&w, 0, sizeof(w));
	w.on = true;
	w.now = 1000 * SECOND;
#if SANITIZED
	/* what returned last on this stack did not */
	__asan_unpoison_memory_region(room, sizeof(room));
#endif
}

void
world_end(void)
{
	REQUIRE(!w.inside && (!w.started || w.finished));
	forget(w.queue, &w.n_queue);
	forget(w.burst, &w.n_burst);
	w.on = false;
}
