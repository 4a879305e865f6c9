/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Round trips of workers, as an operator sees them, and answers to PINGs. */

#include "registrar_impl.h"

/* Where no answer comes, the last figure stays. */
#define RTT_EVERY (1000 * NS_PER_MS)
#define RTT_LOOK  (5 * NS_PER_MS)

struct measure {
	bool wanted;
	uint32_t us;       /* 0: not known */
	uint64_t asked_ns; /* a PING that asks for it; 0: none is under way */
	uint64_t next_ns;  /* when the next one may leave */
};

struct measuring {
	uint64_t until_ns; /* until then answers to PINGs are expected */
};

static struct measure *
measure_of(const struct pbox_job *job, unsigned w)
{
	return registrar_member_state(job, PART_measure, w);
}

void
pbox_registrar_measure(struct pbox_registrar *r, uint16_t id, unsigned w)
{
	struct pbox_job *job = id < r->conf.max_jobs ? r->job[id] : NULL;

	if (job != NULL && w < job->workers)
		measure_of(job, w)->wanted = true;
}

static void
measure_tick(struct pbox_registrar *r, struct pbox_job *job)
{
	for (unsigned w = 0; w < job->workers; w++) {
		struct measure *m = measure_of(job, w);

		if (!m->wanted || r->now_ns < m->next_ns || !registrar_has_session(job, w))
			continue;
		m->wanted = false;
		m->asked_ns = r->now_ns;
		m->next_ns = r->now_ns + RTT_EVERY;
		((struct measuring *)registrar_state(r, PART_measure))->until_ns =
			r->now_ns + RTT_LOOK;
		registrar_ping(r, job, w);
	}
}

bool
pbox_registrar_measuring(const struct pbox_registrar *r, uint64_t now_ns)
{
	return now_ns < ((struct measuring *)registrar_state(r, PART_measure))->until_ns;
}

/* A PING of a worker has come, perhaps the answer to one of the box. */
static void
measured(const struct pbox_registrar *r, struct measure *m)
{
	uint64_t ns = r->now_ns - m->asked_ns;

	if (m->asked_ns == 0 || r->now_ns < m->asked_ns)
		return;
	m->asked_ns = 0;
	m->us = ns < NS_PER_US ? 1 : (uint32_t)(ns / NS_PER_US);
}

uint32_t
registrar_rtt_us(const struct pbox_job *job, unsigned w)
{
	return measure_of(job, w)->us;
}

static void
on_ping(struct pbox_registrar *r, const struct pbox_frame *f, struct pbox_job *job)
{
	size_t room = PBOX_CONTROL_MTU - PBOX_MTU_OVERHEAD - pbox_tag_len(f->hdr.flags);
	size_t len = f->hdr.length < room ? f->hdr.length : room;
	const struct registrar_addressee to = registrar_sender(r, f);

	count_control(r, PBOX_RS_RX_PING);
	measured(r, measure_of(job, f->hdr.worker));
	if (!f->answered)
		registrar_answer(r, &to, PBOX_PONG, f->payload, len);
}

const struct registrar_part registrar_measure_part = {
	.name = "round trips",
	.types = {{on_ping, PBOX_PING}},
	.tick = measure_tick,
	.state = sizeof(struct measuring),
	.member_state = sizeof(struct measure),
};
