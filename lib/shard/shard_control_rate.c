/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <pbox_wire_at.h>

#include "shard_impl.h"

/*
 * Rate limits of control frames: token buckets of a session, a job, and a source address without a session
 * (R6.12). They are on the core that has received the datagram, before the ring to the control thread.
 * (pbox_error_rate.h limits answers ERROR SESSION.) Frames of live sessions have a way of their own, and
 * those of who has asked little go on where others' wait. Keep-alives are answered here.
 */

/* Of a session, of a job and of an address without a session: how many may be saved up. */
#define SESSION_BURST 8192
#define JOB_BURST     32768
#define SOURCE_BURST  4096
/* A job may ask as much as so many of its sessions, an address this often. */
#define JOB_SESSIONS       10
#define SOURCE_INTERVAL_NS 500000

/* Frames that a worker sends in one turn have one time: no more of one time are charged to it. */
#define SESSION_AT_ONCE 64

/* A token bucket in units of time. quiet: it is more than half full. */
static bool
spend(uint64_t *empty_ns, uint32_t interval_ns, unsigned burst, unsigned n, uint64_t now_ns,
	bool *quiet)
{
	uint64_t full = (uint64_t)burst * interval_ns, cost = (uint64_t)n * interval_ns;

	if (*empty_ns == 0 || now_ns - *empty_ns > full)
		*empty_ns = now_ns - full;
	if (now_ns - *empty_ns < cost)
		return false;
	*empty_ns += cost;
	*quiet &= now_ns - *empty_ns >= full / 2;
	return true;
}

/* Each frame of a datagram is a request. */
static unsigned
requests(const uint8_t *at, size_t len)
{
	unsigned n = 0;

	while (len >= PBOX_HDR_LEN) {
		size_t size = PBOX_HDR_LEN + pbox_ld16(at + PBOX_AT_LENGTH);

		size += (pbox_ld16(at + PBOX_AT_FLAGS) & PBOX_F_AUTH) != 0 ? PBOX_TAG_LEN : 0;
		n++;
		if (size >= len)
			break;
		at += size;
		len -= size;
	}
	return n > 0 ? n : 1;
}

static struct pbox_shard_job *
session_of(const struct pbox_shard *s, const struct pbox_hdr *h)
{
	struct pbox_shard_job *j = h->job < s->conf.max_jobs ? s->job[h->job] : NULL;

	if (h->token == 0 || j == NULL || h->worker >= j->job->workers ||
		h->incarnation != s->conf.incarnation ||
		atomic_load_explicit(&j->job->token[h->worker], memory_order_acquire) != h->token)
		return NULL;
	return j;
}

/* Strangers share an entry with those that fall into it: it is given to another when it is full again. */
static enum pbox_gate
stranger(struct pbox_shard *s, uint32_t ip, unsigned n, bool proven)
{
	/* upper bits of the product: the lower ones come from the lower ones of `ip`, the network's part of the address */
	struct shard_source *e =
		&s->source[(ip * 2654435761u ^ s->conf.incarnation) >> (32 - SHARD_SOURCES_LOG)];
	uint64_t full = (uint64_t)SOURCE_BURST * SOURCE_INTERVAL_NS;
	bool quiet = true;

	if (e->ip != ip && s->now_ns - e->empty_ns > full)
		*e = (struct shard_source){.ip = ip};
	return spend(proven ? &e->joined_ns : &e->empty_ns, SOURCE_INTERVAL_NS, SOURCE_BURST, n,
		       s->now_ns, &quiet)
		       ? PBOX_GATE_STRANGER
		       : PBOX_GATE_RATE;
}

/* Anyone can send in the name of an address, and use up what that may ask: who gets what is sent there has an account of
 * his own for his JOINs. */
static bool
control_is_proven(const struct pbox_shard *s, const struct pbox_frame *f)
{
	return s->conf.cookie_key != NULL && f->hdr.type == PBOX_JOIN &&
	       f->hdr.length >= sizeof(uint64_t) &&
	       pbox_cookie_good(s->conf.cookie_key, pbox_job_from(&f->peer),
		       s->now_ns / PBOX_COOKIE_TICK_NS, pbox_ld64(f->payload));
}

/* Copies of frames are nobody's requests: somebody with a recording of a session would use up with it what that may ask,
 * and its lease would end. n: frames of the datagram. */
static bool
shard_gate_is_copy(
	struct pbox_shard_job *j, const struct pbox_frame *f, unsigned n, uint64_t now_ns)
{
	struct pbox_job_fresh *c = &j->job->fresh[f->hdr.worker];
	uint64_t at = pbox_fresh_time(c, f->hdr.ts, f->hdr.held, now_ns);
	uint64_t newest = atomic_load_explicit(&c->asked, memory_order_relaxed);

	if (at > newest) {
		atomic_store_explicit(&c->asked, at, memory_order_relaxed);
		atomic_store_explicit(&c->at_once, n, memory_order_relaxed);
		return false;
	}
	return at < newest || atomic_fetch_add_explicit(&c->at_once, n, memory_order_relaxed) + n >
				      SESSION_AT_ONCE;
}

enum pbox_gate
pbox_shard_gate(struct pbox_shard *s, const uint8_t *at, size_t len, const struct pbox_peer *peer,
	uint64_t now_ns)
{
	struct pbox_frame f = {.peer = *peer, .payload = at + PBOX_HDR_LEN};
	struct pbox_shard_job *j;
	struct shard_member *m;
	unsigned n = requests(at, len);
	bool quiet = true, intact;
	size_t size;

	s->now_ns = now_ns;
	intact = pbox_frame_decode(at, len, true, &f.hdr, &size) == PBOX_WIRE_OK;
	/* its CRC says nothing of who sent it, but a tag that covers it does */
	if (!intact || (j = session_of(s, &f.hdr)) == NULL || !pbox_job_auth_good(j->job, &f))
		return stranger(s, peer->ip, n, intact && n == 1 && control_is_proven(s, &f));
	if (j->request_ns != 0 && shard_gate_is_copy(j, &f, n, now_ns))
		return stranger(s, peer->ip, n, false);
	m = &j->member[f.hdr.worker];
	if (j->request_ns != 0 &&
		(!spend(&m->request_empty_ns, j->request_ns, SESSION_BURST, n, now_ns, &quiet) ||
			!spend(&j->request_empty_ns, j->request_ns / JOB_SESSIONS, JOB_BURST, n,
				now_ns, &quiet)))
		return PBOX_GATE_RATE;
	if (f.hdr.type == PBOX_PING && f.hdr.length == 0 && size == len &&
		shard_keep_alive(s, j, &f))
		return PBOX_GATE_ANSWERED;
	return quiet ? PBOX_GATE_QUIET : PBOX_GATE_SESSION;
}
