/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Round-trip time of an endpoint, and the retransmission time-out that follows from it (RFC 6298). */

#include "worker_impl.h"

#define MAX_RTO    (PBOX_RECOVERY_LONGEST * NS_PER_MS)
#define MIN_PTO    NS_PER_MS
#define PEAK_DECAY (PBOX_RECOVERY_PEAK * NS_PER_MS)

void
rtt_sample(struct window *w, uint64_t rtt, uint64_t now)
{
	uint64_t rto;

	if (w->srtt == 0) {
		w->srtt = rtt;
		w->rttvar = rtt / 2;
		w->rtt_min = rtt;
	} else {
		uint64_t dev = rtt > w->srtt ? rtt - w->srtt : w->srtt - rtt;

		w->rttvar = w->rttvar - w->rttvar / 4 + dev / 4;
		w->srtt = w->srtt - w->srtt / 8 + rtt / 8;
		if (rtt < w->rtt_min)
			w->rtt_min = rtt;
	}
	/* With thousands of samples a second the variance forgets the pauses of a shared CPU, which come
	 * a few times a second: so the peak decays slowly. */
	if (now - w->peak_at > PEAK_DECAY) {
		w->rtt_peak -= w->rtt_peak / 8;
		w->peak_at = now;
	}
	if (rtt > w->rtt_peak) {
		w->rtt_peak = rtt;
		w->peak_at = now;
	}
	rto = w->srtt + 4 * w->rttvar;
	w->pto = rto < MIN_PTO ? MIN_PTO : rto;
	if (rto < w->rtt_peak + w->rtt_peak / 4)
		rto = w->rtt_peak + w->rtt_peak / 4;
	w->pause = rto < MIN_PTO ? MIN_PTO : rto;
	if (rto < w->min_rto)
		rto = w->min_rto;
	w->rto = rto < MAX_RTO ? rto : MAX_RTO;
	if (w->pto > w->rto)
		w->pto = w->rto;
	if (w->pause > w->rto)
		w->pause = w->rto;
}
