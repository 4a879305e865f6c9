/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <pbox_proof.h>

#include "worker_impl.h"

/* The handshake: HELLO, RETRY, JOIN, WELCOME (section 4 of the protocol), and again when the session was lost
 * (rejoin.c). */

#define COOKIE_LIFE (7 * NS_PER_S) /* R4.2: at least 8 s */
/* R9.3: JOINs with several cookies, in a time */
#define SPREE_TIME (10 * NS_PER_MS)
#define SPREE_MOST 4

/* ---- sending --------------------------------------------------------------------------- */

static void
send_hello(struct join *j)
{
	struct session *s = j->s;
	struct pbox_hello m = {PBOX_VERSION_WIRE, PBOX_VERSION_WIRE};
	uint8_t buf[PBOX_HELLO_LEN] = {0};
	struct pbox_hdr h = {.type = PBOX_HELLO, .chunk = j->id, .length = sizeof(buf)};
	struct iovec iov = {buf, sizeof(buf)};

	pbox_hello_encode(buf, sizeof(buf), &m);
	j->hellos++;
	j->heard = 0;
	link_frame(&s->w->lane[0]->link, s, &s->box, &h, &iov, 1, false);
	link_flush(&s->w->lane[0]->link);
}

/** What this worker cannot do without (R4.10). */
static uint32_t
join_needs(const struct session *s)
{
	return (s->w->conf.slots != 0 ? 1u << PBOX_CAN_SLOTS : 0) |
	       (s != worker_decider(s->w) ? 1u << PBOX_CAN_BOXES : 0) |
	       (s->w->conf.policy == PBOX_POLICY_REASSIGN ? 1u << PBOX_CAN_WORK : 0);
}

/** All boxes of a job make fragments for the smallest MTU that they hear of: the others hear that of the one that was asked first, too, whichever
 * decides by now. */
static uint16_t
join_mtu(const struct session *s)
{
	const struct session *first = s->w->boxes > 1 ? s->w->box[s->w->list.box] : s;
	unsigned mtu = s->w->lane[0]->link.port->mtu;

	if (s != first && first->mtu + first->tag < mtu)
		mtu = first->mtu + first->tag;
	return (uint16_t)(mtu < 65535 ? mtu : 65535);
}

static void
send_join(struct join *j, const struct pbox_retry *with)
{
	struct session *s = j->s;
	uint32_t window = s->w->lane[0]->link.port->window;
	struct pbox_join m = {
		.cookie = with->cookie,
		.nonce = j->nonce,
		.worker = j->worker < 0 ? PBOX_NO_WORKER : (uint16_t)j->worker,
		.workers = (uint16_t)s->w->conf.workers,
		.mtu = join_mtu(s),
		.window = (uint16_t)window,
		.lease_ms = s->w->conf.lease_ms,
		.policy = (uint8_t)s->w->conf.policy,
		.auth = auth_possible(),
		.revision = PBOX_REVISION,
		.number = j->number,
		.can = join_needs(s) | 1u << PBOX_CAN_CLOCK | 1u << PBOX_CAN_BOXES |
		       1u << PBOX_CAN_BLOCK,
		.needs = join_needs(s),
		.slots = (uint16_t)s->w->conf.slots,
		.least = (uint16_t)s->w->conf.least,
	};
	uint8_t buf[PBOX_JOIN_LEN] = {0};
	struct pbox_hdr h = {.type = PBOX_JOIN,
		.chunk = j->id,
		.incarnation = with->incarnation,
		.length = sizeof(buf)};
	struct iovec iov = {buf, sizeof(buf)};

	memcpy(m.run, s->w->run, sizeof(m.run));
	snprintf(m.job, sizeof(m.job), "%s", s->w->job);
	snprintf(m.host, sizeof(m.host), "%s", s->w->host);
	pbox_join_encode(buf, sizeof(buf), &m);
	pbox_proof(buf + PBOX_JOIN_PROOF_AT, s->w->secret, strlen(s->w->secret),
		PBOX_JOIN_PROOF_PREFIX, buf, sizeof(buf), PBOX_JOIN_PROOF_AT);
	j->joins++;
	link_frame(&s->w->lane[0]->link, s, &s->box, &h, &iov, 1, false);
	link_flush(&s->w->lane[0]->link);
}

/* ---- answers --------------------------------------------------------------------------- */

static bool
is_known(const struct join *j, const struct pbox_retry *m)
{
	for (unsigned i = 0; i < j->cookies; i++)
		if (j->cookie[i].cookie == m->cookie && j->cookie[i].incarnation == m->incarnation)
			return true;
	return false;
}

/** R9.3: an attacker may answer faster than the box, and more often. When there is no room for all, each RETRY is kept
 * with the same probability, whatever comes before and after it (reservoir sampling). */
static void
on_retry(struct join *j, const struct rx_frame *f)
{
	struct pbox_worker_ops *port = j->s->w->lane[0]->link.port;
	struct pbox_retry m;
	uint64_t at;

	if (pbox_retry_decode(f->payload, f->hdr.length, &m) != 0 || is_known(j, &m))
		return;
	j->heard++;
	if (j->cookies == 0)
		j->cookie_at = j->s->w->now;
	if (j->cookies < JOIN_COOKIES) {
		at = j->cookies++;
	} else {
		at = port->random(port->ctx) % j->heard;
		if (at >= JOIN_COOKIES)
			return;
		if (at < j->tried) { /* the tried ones are the first of the list */
			j->cookie[at] = j->cookie[--j->tried];
			at = j->tried;
		}
	}
	j->cookie[at] = m;
	if (j->renew) /* the pause after a refusal goes on */
		return;
	j->next_tx = 0;
	j->interval = JOIN_INTERVAL;
}

/** R4.5: a job without a secret accepts a worker with one, and cannot prove anything to it. A worker that requires auth
 * does not take that, nor does one to which the box has proven the secret before. */
static bool
may_be_insecure(const struct join *j)
{
	const uint32_t both = PBOX_WELCOME_INSECURE | PBOX_WELCOME_AUTH;

	return (j->welcome.flags & both) == PBOX_WELCOME_INSECURE && j->s->w->conf.auth == 0 &&
	       !refusal_is_provable(j);
}

static bool
welcome_proves(const struct rx_frame *f, const char *secret)
{
	return pbox_proof_good(secret, strlen(secret), PBOX_WELCOME_PROOF_PREFIX, f->payload,
		f->hdr.length, PBOX_WELCOME_PROOF_AT);
}

/** A WELCOME that says what ends the join: at once, if its proof is good. */
static void
welcome_refused(struct join *j, const struct rx_frame *f, unsigned kind,
	const struct pbox_client_error *why)
{
	if (j->unproven || j->s->w->secret[0] == 0)
		refusal_doubtful(j, f, kind, why);
	else
		join_finish(j, pbox_client_fail(&j->err, why->code, "%s", why->text));
}

/** Its numbers size and index what this worker has, so they are those that it asked for, or good for it. */
static bool
welcome_is_sound(const struct join *j)
{
	const struct pbox_welcome *m = &j->welcome;

	for (unsigned i = 0; i < m->endpoints; i++)
		if (m->endpoint[i].udp == 0)
			return false;
	return m->workers == j->s->w->conf.workers && m->worker < m->workers &&
	       (j->worker < 0 || m->worker == j->worker) && m->endpoints > 0 && m->lease_ms > 0 &&
	       m->window > 0 && m->number != 0 && m->token != 0 &&
	       /* no port has an MTU that is too small for a JOIN */
	       (m->mtu == 0 || m->mtu >= LINK_MIN_MTU);
}

static void
on_welcome(struct join *j, const struct rx_frame *f)
{
	struct session *s = j->s;
	struct pbox_welcome *m = &j->welcome;
	struct pbox_client_error why;
	uint32_t lacks;
	bool good;
	int rc;

	j->unproven = false;
	if (pbox_welcome_decode(f->payload, f->hdr.length, m) != 0) {
		pbox_client_fail(&why, PBOX_C_VERSION,
			"the WELCOME of %s cannot be read: the box is of another release than this library: install the same at both",
			s->name);
		refusal_doubtful(j, f, REFUSAL_UNREADABLE, &why);
		return;
	}
	if (m->nonce != j->nonce)
		return;
	good = welcome_proves(f, s->w->secret);
	if (!good && may_be_insecure(j))
		good = j->unproven = welcome_proves(f, "");
	if (!good && (m->flags & PBOX_WELCOME_INSECURE) != 0) {
		pbox_client_fail(&why, PBOX_C_SECRET,
			"job '%s' at %s says that it has no secret (insecure = yes), and %s: leave the secret out, or give the job one",
			s->w->job, s->name,
			s->w->conf.auth != 0 ? "this worker requires auth"
					     : "it had proven before that it knows this worker's");
		refusal_doubtful(j, f, REFUSAL_INSECURE, &why);
		return;
	}
	if (!good) {
		pbox_client_fail(&why, PBOX_C_SECRET,
			"%s could not prove that it knows the secret of job '%s': compare the secrets, or something else answers at that address",
			s->name, s->w->job);
		refusal_doubtful(j, f, REFUSAL_PROOF, &why);
		return;
	}
	if (!welcome_is_sound(j)) {
		pbox_client_fail(&why, PBOX_C_REFUSED,
			"the box's WELCOME is not sound: worker %u of %u, %u endpoints, lease %u ms, window %u, mtu %u, run %llu",
			m->worker, m->workers, m->endpoints, m->lease_ms, m->window, m->mtu,
			(unsigned long long)m->number);
		welcome_refused(j, f, REFUSAL_UNSOUND, &why);
		return;
	}
	lacks = join_needs(s) & ~m->flags;
	if (lacks != 0) {
		pbox_client_fail(&why, PBOX_C_VERSION,
			"joining job '%s' at %s: this box does not know %s: install the release of this worker's library there",
			s->w->job, s->name, pbox_capability_name((unsigned)__builtin_ctz(lacks)));
		welcome_refused(j, f, REFUSAL_INCAPABLE, &why);
		return;
	}
	rc = auth_welcome(j, f);
	if (rc != AUTH_IGNORE)
		join_finish(j, rc);
}

void
join_frame(struct join *j, const struct rx_frame *f)
{
	if (j->done || f->from.sin_addr.s_addr != j->s->box.addr.sin_addr.s_addr ||
		!join_asked(j, f->hdr.chunk))
		return;
	j->answered = true;
	if (f->hdr.type == PBOX_RETRY)
		on_retry(j, f);
	else if (f->hdr.type == PBOX_WELCOME)
		on_welcome(j, f);
	else if (f->hdr.type == PBOX_ERROR)
		refusal_frame(j, f);
}

/* ---- the exchange ---------------------------------------------------------------------- */

/** An attacker who does not see our requests cannot know the id, so he cannot refuse them (R9.3). */
static void
next_id(struct join *j)
{
	struct pbox_worker_ops *port = j->s->w->lane[0]->link.port;

	j->id_before = j->id;
	j->id = (uint32_t)port->random(port->ctx);
	while (j->id == 0 || j->id == j->id_before)
		j->id++;
	j->renew = false;
}

void
join_begin(struct join *j, struct session *s, int worker)
{
	struct pbox_worker *w = s->w;

	join_end(j);
	*j = (struct join){.s = s,
		.nonce = w->nonce,
		.worker = worker,
		.interval = JOIN_INTERVAL,
		.next_tx =
			w->turned && s == worker_decider(w) ? w->now + refer_pause(w->refers) : 0,
		.asked_ns = w->now};
	/* a worker without tables has nothing of its run: any run of the box that decides will do */
	j->number = s != worker_decider(w) ? worker_decider(w)->number
		    : w->tables > 0        ? s->number
					   : 0;
	next_id(j);
}

void
join_end(struct join *j)
{
	auth_end(j->auth);
	j->auth = NULL;
}

/** Send a JOIN with each cookie that was not tried yet; false: some have to wait. */
static bool
try_cookies(struct join *j)
{
	uint64_t now = j->s->w->now;

	if (now - j->spree_at >= SPREE_TIME) {
		j->spree_at = now;
		j->spree = 0;
	}
	for (; j->tried < j->cookies; j->tried++) {
		if (j->spree == SPREE_MOST) {
			j->next_tx = j->spree_at + SPREE_TIME;
			return false;
		}
		j->spree++;
		send_join(j, &j->cookie[j->tried]);
	}
	return true;
}

/** Not before the host asks. */
static bool
waits_for_host(const struct join *j)
{
	return j->s->w->asked_alone && !j->s->w->asked && j->number == 0;
}

uint64_t
join_due(const struct join *j)
{
	return waits_for_host(j) ? UINT64_MAX : j->next_tx;
}

void
join_tick(struct join *j)
{
	uint64_t now = j->s->w->now;

	if (j->cookies > 0 && now - j->cookie_at > COOKIE_LIFE)
		j->cookies = j->tried = 0;
	if (now < j->next_tx || waits_for_host(j))
		return;
	if (refusal_holds(j)) {
		join_finish(j, refusal_verdict(j));
		return;
	}
	if (j->renew)
		next_id(j);
	if (j->cookies == 0)
		send_hello(j);
	if (j->tried == j->cookies) /* nothing new: try all of them again */
		j->tried = 0;
	if (!try_cookies(j))
		return;
	j->next_tx = now + j->interval;
	j->interval = j->interval * 2 < JOIN_INTERVAL_MAX ? j->interval * 2 : JOIN_INTERVAL_MAX;
}

int
join_expired(struct join *j)
{
	struct session *s = j->s;
	double waited = s->w->conf.join_timeout_ms / 1000.0;
	unsigned port = ntohs(s->box.addr.sin_port);

	if (j->doubt.n > 0)
		return refusal_verdict(j);
	if (j->refused.text[0] != 0)
		return pbox_client_fail(&j->err, PBOX_C_REFUSED,
			"joining job '%s' at %s: still not taken in after %.1f s: %s; 'pbox-ctl workers %s' names the hosts",
			s->w->job, s->name, waited, j->refused.text, s->w->job);
	if (j->refused.code != 0) {
		char who[48];

		snprintf(who, sizeof(who),
			s->w->conf.worker < 0 ? "all %u workers have" : "worker %u has",
			s->w->conf.worker < 0 ? s->w->conf.workers : (unsigned)s->w->conf.worker);
		return pbox_client_fail(&j->err, PBOX_C_REFUSED,
			"joining job '%s' at %s: %s a live session, still after %.1f s: another process runs with this number, or a killed one's lease has not ended; 'pbox-ctl workers %s' names its host",
			s->w->job, s->name, who, waited, s->w->job);
	}
	if (j->answered)
		return pbox_client_fail(&j->err, PBOX_C_UNREACHABLE,
			"the box at %s answers HELLO, but %u JOINs went unanswered in %.1f s: its log names the reason ('control_malformed', 'cookie'), or datagrams of %d bytes do not get through",
			s->name, j->joins, waited, PBOX_JOIN_LEN + PBOX_HDR_LEN + 28);
	if (s->w->lane[0]->link.port->path_errno == ECONNREFUSED)
		return pbox_client_fail(&j->err, PBOX_C_UNREACHABLE,
			"%s: the host is up, but nothing listens on its UDP port %u (ICMP port unreachable; %u HELLOs in %.1f s): is this the address of a port of the box, and not of its management interface?",
			s->name, port, j->hellos, waited);
	return pbox_client_fail(&j->err, PBOX_C_UNREACHABLE,
		"no answer from %s: %u HELLOs went unanswered in %.1f s%s%s; check that the box is up and has this address (it answers ping), and that no firewall drops UDP port %u",
		s->name, j->hellos, waited,
		s->w->lane[0]->link.port->path_errno != 0 ? ", last error: " : "",
		s->w->lane[0]->link.port->path_errno != 0
			? strerror(s->w->lane[0]->link.port->path_errno)
			: "",
		port);
}

/** Take over what WELCOME says of an endpoint, and start there with a new window. */
static int
settle_endpoint(struct session *s, struct ep *ep, const struct pbox_endpoint *e, uint32_t window)
{
	struct flight *flight = ep->flight;
	struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons(e->udp)};

	memcpy(&addr.sin_addr, e->ipv4, 4);
	if (window > ep->flights) {
		flight = reallocarray(flight, window, sizeof(*flight));
		if (flight == NULL)
			return -ENOMEM;
	}
	/* the transport knows an endpoint by the pointer to its peer, and keeps a cookie in it */
	if (memcmp(&addr, &ep->peer.addr, sizeof(addr)) != 0)
		ep->peer = (struct pbox_client_peer){.addr = addr};
	*ep = (struct ep){.s = s,
		.lane = lane_of(s, (unsigned)(ep - s->ep)),
		.peer = ep->peer,
		.flight = flight,
		.flights = window > ep->flights ? window : ep->flights,
		.thresh = MIN_THRESH};
	window_init(
		&ep->win, nodes_window(s->w, window), s->w->conf.min_rto_us * NS_PER_US, s->w->now);
	memset(flight, 0, window * sizeof(*flight));
	for (uint32_t k = window; k-- > 0;) {
		flight[k].next = ep->free;
		ep->free = &flight[k];
	}
	return 0;
}

int
join_settle(struct join *j)
{
	struct session *s = j->s;
	const struct pbox_welcome *m = &j->welcome;
	const struct pbox_worker_ops *port = s->w->lane[0]->link.port;
	uint32_t hold = port->window / m->endpoints / s->w->boxes;
	uint32_t window = m->window;

	if (s->w->conf.window != 0 && s->w->conf.window < window)
		window = s->w->conf.window;
	if (hold < window)
		window = hold > 0 ? hold : 1;
	if (window > MAX_WINDOW)
		window = MAX_WINDOW;
	s->token = m->token;
	if (s == worker_decider(s->w)) {
		s->w->renumbered |= s->number != m->number || s->w->turned;
		if (s->w->turned)
			s->w->first_number = 0;
		s->w->turned = false;
	}
	s->number = m->number;
	if (s->w->first_number == 0)
		s->w->first_number = m->number;
	out_drop(s); /* what was answered in the session before */
	s->listed = false;
	s->job_number = m->job;
	s->w->worker = m->worker;
	s->w->workers = m->workers;
	nodes_settle(s->w);
	s->incarnation = m->incarnation;
	s->can = m->flags;
	s->unproven = j->unproven;
	s->proven |= !j->unproven;
	s->lease_ms = m->lease_ms;
	s->tag = j->auth != NULL ? PBOX_TAG_LEN : 0;
	s->mtu = (m->mtu != 0 && m->mtu < join_mtu(s) ? m->mtu : join_mtu(s)) - s->tag;
	s->window = (uint16_t)window;
	s->granted = m->window;
	s->endpoints = m->endpoints;
	auth_end(s->auth);
	s->auth = j->auth;
	j->auth = NULL;
	s->doubt_ns = 0;
	for (unsigned i = 0; i < m->endpoints; i++)
		if (settle_endpoint(s, &s->ep[i], &m->endpoint[i], window) != 0)
			return pbox_client_fail(
				&j->err, PBOX_C_MEMORY, "no memory for a window of %u", window);
	return 0;
}
