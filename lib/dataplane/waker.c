/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "waker.h"

int
waker_open(struct waker *w)
{
	atomic_init(&w->state, WAKER_AWAKE);
	w->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	return w->fd >= 0 ? 0 : -errno;
}

void
waker_close(struct waker *w)
{
	if (w->fd >= 0)
		close(w->fd);
	w->fd = -1;
}

bool
waker_sleep(struct waker *w)
{
	int state = WAKER_AWAKE;

	if (atomic_compare_exchange_strong(&w->state, &state, WAKER_ASLEEP))
		return true;
	atomic_exchange(&w->state, WAKER_AWAKE);
	return false;
}

void
waker_woke(struct waker *w)
{
	uint64_t calls;

	atomic_exchange(&w->state, WAKER_AWAKE);
	/* always: one who had called before the last sleep ended may have rung after it. Nobody has rung: none is read */
	if (read(w->fd, &calls, sizeof(calls)) < 0)
		return;
}

void
waker_ring(const struct waker *w)
{
	const uint64_t one = 1;
	int error = errno; /* of what a signal has interrupted */

	/* full: it wakes as well */
	if (write(w->fd, &one, sizeof(one)) < 0)
		errno = error;
}
