/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#ifndef WAKER_H
#define WAKER_H

/* How one thread that sleeps is woken by others, or by a signal handler. A call is never lost: one that comes before the
 * sleep is remembered, and then there is none. So who calls puts down what there is to do first, and who sleeps looks for
 * it after each sleep, and after each sleep that was refused. */

#include <stdatomic.h>
#include <stdbool.h>

enum { WAKER_AWAKE, WAKER_ASLEEP, WAKER_CALLED };

struct waker {
	_Atomic int state;
	int fd; /* an eventfd, to be waited for; -1: none */
};

/* 0 or -errno; then there is no fd. */
int waker_open(struct waker *w);
void waker_close(struct waker *w);
/* Those that sleep: false: somebody has called, so do not wait. */
bool waker_sleep(struct waker *w);
/* After the wait for fd that waker_sleep() has allowed. */
void waker_woke(struct waker *w);
/* Of waker_call(): the other thread waits. */
void waker_ring(const struct waker *w);

static inline void
waker_call(struct waker *w)
{
	/* one instruction that reads and writes: either we see that it sleeps, or it sees that we called */
	if (__builtin_expect(atomic_exchange(&w->state, WAKER_CALLED) == WAKER_ASLEEP, 0))
		waker_ring(w);
}

#endif /* WAKER_H */
