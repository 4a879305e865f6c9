/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include "worker_impl.h"

/*
 * Congestion control of one endpoint: the congestion window. rtt.c measures the round-trip time.
 *
 * Additive increase. The decrease is half the rate of frames that were marked (ECN), or lost beyond what is tolerated,
 * in a round trip, as DCTCP does with marks (RFC 8257). A full queue loses much at once and nearly halves the window,
 * as in TCP. Losses of a few in a hundred are those of a bad link, which does not get better if it is used less; BBRv2
 * draws the same line. Where a queue overflows by little, it loses about that much and no more; a network that shall
 * lose nothing marks. The box has granted a window for which it and the switch before it have room, so an eighth
 * of it is always safe.
 */

#define FIRST_RTO (20 * NS_PER_MS)

#define GATHER_LEAST 32 /* frames in the network */
#define GATHER_MIN   (50 * NS_PER_US)
#define GATHER_MAX   (500 * NS_PER_US)

void
window_init(struct window *w, uint32_t max, uint64_t min_rto, uint64_t now)
{
	assert(max > 0);
	memset(w, 0, sizeof(*w));
	w->max = max;
	w->size = max < FIRST_WINDOW ? max : FIRST_WINDOW;
	w->ssthresh = max;
	w->min_rto = min_rto;
	w->rto = min_rto > FIRST_RTO ? min_rto : FIRST_RTO;
	w->pto = w->pause = w->rto;
	w->epoch_at = now;
}

void
window_limit(struct window *w, uint32_t max)
{
	assert(max > 0);
	if (max >= w->max)
		return;
	w->max = max;
	w->size = w->size < max ? w->size : max;
	w->ssthresh = w->ssthresh < max ? w->ssthresh : max;
}

static void
window_shrink(struct window *w, double by)
{
	double min = w->max / 8.0 > 2.0 ? w->max / 8.0 : 2.0;

	w->size *= 1.0 - by;
	if (w->size < min)
		w->size = min;
	if (w->size > w->max)
		w->size = w->max;
	w->ssthresh = w->size;
}

static void
epoch_end(struct window *w, uint64_t now)
{
	double all = w->answered + w->lost, lost, bad;

	/* at least a window of frames: among fewer, one loss would seem many */
	if (now - w->epoch_at < w->srtt || all < w->size)
		return;
	w->loss_rate += (w->lost / all - w->loss_rate) / 4;
	lost = w->lost / all - PBOX_RECOVERY_TOLERATED;
	bad = w->marked / all + (lost > 0 ? lost : 0);
	if (bad > 0)
		window_shrink(w, bad < 1.0 ? bad / 2 : 0.5);
	w->answered = w->lost = w->marked = 0;
	w->epoch_at = now;
}

void
window_answered(struct window *w, bool limited, uint64_t now)
{
	assert(w->size <= w->max); /* what the box has granted (R6.9) */
	w->answered++;
	epoch_end(w, now);
	if (!limited || w->size >= w->max)
		return;
	w->size += w->size < w->ssthresh ? 1.0 : 1.0 / w->size;
	if (w->size > w->max)
		w->size = w->max;
}

void
window_lost(struct window *w, uint64_t now)
{
	w->lost++;
	epoch_end(w, now);
}

void
window_marked(struct window *w, uint64_t now)
{
	w->marked++;
	if (w->ssthresh > w->size)
		w->ssthresh = w->size;
	epoch_end(w, now);
}

void
window_silent(struct window *w)
{
	window_shrink(w, 0.5);
}

/*
 * A turn of the loop costs the same system calls and the same wake-up for one answer as for a hundred, and what it
 * sends leaves as one train. So while many frames are in flight and queue somewhere (the round trip is longer than it
 * must be), the worker lets answers gather for a part of the time that the queue takes. Three quarters of the window
 * are still in flight then. It does not delay a few frames, nor a path without a queue.
 */
uint64_t
window_gather(const struct window *w, uint32_t out)
{
	uint64_t t = w->srtt / 4;

	if (out < GATHER_LEAST || w->srtt <= w->rtt_min)
		return 0;
	if (t > (w->srtt - w->rtt_min) / 2)
		t = (w->srtt - w->rtt_min) / 2;
	if (t < GATHER_MIN)
		return 0;
	return t < GATHER_MAX ? t : GATHER_MAX;
}
