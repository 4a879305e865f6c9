/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <sodium.h>

#include "join.h"

/* HELLO, RETRY, JOIN, WELCOME (section 4 of the protocol): on the thread of open, which waits for the
 * end, and again on the progress thread when the session was lost (rejoin.c). */

#define COOKIE_LIFE  (7 * NS_PER_S) /* R4.2: at least 8 s */
#define MOST_RETRIES 4              /* to a HELLO (R9.3) */

void
join_prove(
	const char *secret, const char *prefix, const uint8_t *payload, size_t len, uint8_t *proof)
{
	crypto_auth_hmacsha256_state s;

	crypto_auth_hmacsha256_init(&s, (const uint8_t *)secret, strlen(secret));
	crypto_auth_hmacsha256_update(&s, (const uint8_t *)prefix, strlen(prefix));
	crypto_auth_hmacsha256_update(&s, payload, len);
	crypto_auth_hmacsha256_final(&s, proof);
	sodium_memzero(&s, sizeof(s));
}

/* ---- sending --------------------------------------------------------------------------- */

static void
send_hello(struct join *j)
{
	struct pbox_client *c = j->c;
	struct pbox_hello m = {PBOX_VERSION_WIRE, PBOX_VERSION_WIRE};
	uint8_t buf[PBOX_HELLO_LEN] = {0};
	struct pbox_hdr h = {.type = PBOX_HELLO, .chunk = j->id, .length = sizeof(buf)};
	struct iovec iov = {buf, sizeof(buf)};

	pbox_hello_encode(buf, sizeof(buf), &m);
	j->hellos++;
	j->retries = 0;
	link_frame(&c->link, &c->box, &h, &iov, 1, false);
	link_flush(&c->link);
}

static void
send_join(struct join *j)
{
	struct pbox_client *c = j->c;
	uint32_t window = c->link.t->window;
	struct pbox_join m = {
		.cookie = j->cookie,
		.nonce = j->nonce,
		.worker = j->worker < 0 ? PBOX_NO_WORKER : (uint16_t)j->worker,
		.workers = (uint16_t)c->conf.workers,
		.mtu = (uint16_t)(c->link.t->mtu < 65535 ? c->link.t->mtu : 65535),
		.window = (uint16_t)window,
		.lease_ms = c->conf.lease_ms,
		.policy = (uint8_t)c->conf.policy,
		.auth = auth_possible(),
		.number = j->number,
	};
	uint8_t buf[PBOX_JOIN_LEN] = {0};
	struct pbox_hdr h = {.type = PBOX_JOIN,
		.chunk = j->id,
		.incarnation = j->incarnation,
		.length = sizeof(buf)};
	struct iovec iov = {buf, sizeof(buf)};

	memcpy(m.run, c->run, sizeof(m.run));
	snprintf(m.job, sizeof(m.job), "%s", c->job);
	snprintf(m.host, sizeof(m.host), "%s", c->host);
	pbox_join_encode(buf, sizeof(buf), &m);
	join_prove(c->secret, PBOX_JOIN_PROOF_PREFIX, buf, sizeof(buf), buf + PBOX_JOIN_PROOF_AT);
	j->joins++;
	link_frame(&c->link, &c->box, &h, &iov, 1, false);
	link_flush(&c->link);
}

/* ---- answers --------------------------------------------------------------------------- */

void
join_finish(struct join *j, int rc)
{
	j->rc = rc;
	j->done = true;
}

/** R9.3: the first RETRY may be that of somebody who was faster than the box. */
static void
on_retry(struct join *j, const struct rx_frame *f)
{
	struct pbox_retry m;

	if (pbox_retry_decode(f->payload, f->hdr.length, &m) != 0 ||
		(j->have_cookie && m.cookie == j->cookie) || j->retries >= MOST_RETRIES)
		return;
	j->retries++;
	j->cookie = m.cookie;
	j->incarnation = m.incarnation;
	j->have_cookie = true;
	j->cookie_at = clock_ns();
	if (j->renew) /* a refusal has its time, too */
		return;
	j->next_tx = 0;
	j->interval = JOIN_INTERVAL;
}

/** R4.5: a job without a secret takes a worker with one, and cannot prove anything to it. Not where the worker
 * asks for auth, and not in the place of a box that has proven the secret before. */
static bool
may_be_insecure(const struct join *j)
{
	const uint32_t both = PBOX_WELCOME_INSECURE | PBOX_WELCOME_AUTH;

	return (j->welcome.flags & both) == PBOX_WELCOME_INSECURE && j->c->conf.auth == 0 &&
	       !refusal_is_provable(j);
}

static void
on_welcome(struct join *j, const struct rx_frame *f)
{
	struct pbox_client *c = j->c;
	uint8_t copy[128 + 8 * PBOX_MAX_ENDPOINTS], proof[PBOX_PROOF_LEN];
	struct pbox_welcome *m = &j->welcome;
	struct pbox_client_error why;
	bool good;
	int rc;

	j->unproven = false;
	if (f->hdr.length > sizeof(copy) ||
		pbox_welcome_decode(f->payload, f->hdr.length, m) != 0 || m->nonce != j->nonce)
		return;
	memcpy(copy, f->payload, f->hdr.length);
	memset(copy + PBOX_WELCOME_PROOF_AT, 0, PBOX_PROOF_LEN);
	join_prove(c->secret, PBOX_WELCOME_PROOF_PREFIX, copy, f->hdr.length, proof);
	good = sodium_memcmp(proof, m->proof, sizeof(proof)) == 0;
	if (!good && may_be_insecure(j)) {
		join_prove("", PBOX_WELCOME_PROOF_PREFIX, copy, f->hdr.length, proof);
		good = sodium_memcmp(proof, m->proof, sizeof(proof)) == 0;
		j->unproven = good;
	}
	if (!good && (m->flags & PBOX_WELCOME_INSECURE) != 0) {
		client_fail(&why, PBOX_C_SECRET,
			"job '%s' at %s says that it has no secret (insecure = yes), and %s: "
			"leave the secret out, or give the job one",
			c->job, c->box_name,
			c->conf.auth != 0 ? "this worker requires auth"
					  : "it had proven before that it knows this worker's");
		refusal_doubtful(j, f, REFUSAL_INSECURE, &why);
		return;
	}
	if (!good) {
		client_fail(&why, PBOX_C_SECRET,
			"%s could not prove that it knows the secret of job '%s': compare "
			"the secrets, or something else answers at that address",
			c->box_name, c->job);
		refusal_doubtful(j, f, REFUSAL_PROOF, &why);
		return;
	}
	/* what was too small for our JOIN is not the MTU of any port */
	if (m->endpoints == 0 || m->worker >= m->workers || m->lease_ms == 0 || m->window == 0 ||
		m->number == 0 || (m->mtu != 0 && m->mtu < LINK_MIN_MTU)) {
		client_fail(&why, PBOX_C_REFUSED,
			"the box's WELCOME is not sound: worker %u of %u, %u endpoints, "
			"lease %u ms, window %u, mtu %u, run %llu",
			m->worker, m->workers, m->endpoints, m->lease_ms, m->window, m->mtu,
			(unsigned long long)m->number);
		if (j->unproven || c->secret[0] == 0)
			refusal_doubtful(j, f, REFUSAL_UNSOUND, &why);
		else
			join_finish(j, client_fail(j->err, why.code, "%s", why.text));
		return;
	}
	rc = auth_welcome(j, f);
	if (rc != AUTH_IGNORE)
		join_finish(j, rc);
}

bool
join_asked(const struct join *j, uint32_t id)
{
	return id != 0 && (id == j->id || id == j->id_before);
}

void
join_frame(void *ctx, const struct rx_frame *f)
{
	struct join *j = ctx;

	if (j->done || f->from.sin_addr.s_addr != j->c->box.addr.sin_addr.s_addr ||
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

/** Who does not see our requests cannot know it: what refuses was asked (R9.3). */
static void
next_id(struct join *j)
{
	j->id_before = j->id;
	j->id = randombytes_random();
	while (j->id == 0 || j->id == j->id_before)
		j->id++;
	j->renew = false;
}

void
join_begin(struct join *j, struct pbox_client *c, uint64_t nonce, int worker,
	struct pbox_client_error *err)
{
	join_end(j);
	*j = (struct join){
		.c = c, .err = err, .nonce = nonce, .worker = worker, .interval = JOIN_INTERVAL};
	/* who has nothing of its run begins, wherever that is */
	j->number = c->tables > 0 ? c->number : 0;
	next_id(j);
}

void
join_end(struct join *j)
{
	auth_end(j->auth);
	j->auth = NULL;
}

uint64_t
join_tick(struct join *j, uint64_t now)
{
	if (j->have_cookie && now - j->cookie_at > COOKIE_LIFE)
		j->have_cookie = false;
	if (now >= j->next_tx) {
		if (refusal_stands(j, now)) {
			join_finish(j, refusal_verdict(j));
			return now;
		}
		if (j->renew)
			next_id(j);
		j->next_tx = now + j->interval;
		j->interval =
			j->interval * 2 < JOIN_INTERVAL_MAX ? j->interval * 2 : JOIN_INTERVAL_MAX;
		if (j->have_cookie)
			send_join(j);
		else
			send_hello(j);
	}
	return j->next_tx;
}

static int
expired(struct join *j)
{
	struct pbox_client *c = j->c;
	double s = c->conf.join_timeout_ms / 1000.0;
	unsigned port = ntohs(c->box.addr.sin_port);

	if (j->doubt.n > 0)
		return refusal_verdict(j);
	if (j->refused.text[0] != 0)
		return client_fail(j->err, PBOX_C_REFUSED,
			"joining job '%s' at %s: still not taken in after %.1f s: %s; 'pbox-ctl "
			"workers %s' names the hosts",
			c->job, c->box_name, s, j->refused.text, c->job);
	if (j->refused.code != 0) {
		char who[48];

		snprintf(who, sizeof(who),
			c->conf.worker < 0 ? "all %u workers have" : "worker %u has",
			c->conf.worker < 0 ? c->conf.workers : (unsigned)c->conf.worker);
		return client_fail(j->err, PBOX_C_REFUSED,
			"joining job '%s' at %s: %s a live session, still after %.1f s: another "
			"process runs with this number, or a killed one's lease has not ended; "
			"'pbox-ctl workers %s' names its host",
			c->job, c->box_name, who, s, c->job);
	}
	if (j->answered)
		return client_fail(j->err, PBOX_C_UNREACHABLE,
			"the box at %s answers HELLO, but %u JOINs went unanswered in %.1f s: its "
			"log "
			"names the reason ('control_malformed', 'cookie'), or datagrams of %d "
			"bytes do "
			"not get through",
			c->box_name, j->joins, s, PBOX_JOIN_LEN + PBOX_HDR_LEN + 28);
	if (c->link.t->path_errno == ECONNREFUSED)
		return client_fail(j->err, PBOX_C_UNREACHABLE,
			"%s: the host is up, but nothing listens on its UDP port %u (ICMP port "
			"unreachable; %u HELLOs in %.1f s): is this the address of a port of the "
			"box, "
			"and not of its management interface?",
			c->box_name, port, j->hellos, s);
	return client_fail(j->err, PBOX_C_UNREACHABLE,
		"no answer from %s: %u HELLOs went unanswered in %.1f s%s%s; check that the box is "
		"up "
		"and has this address (it answers ping), and that no firewall drops UDP port %u",
		c->box_name, j->hellos, s, c->link.t->path_errno != 0 ? ", last error: " : "",
		c->link.t->path_errno != 0 ? strerror(c->link.t->path_errno) : "", port);
}

static int
exchange(struct join *j, uint64_t deadline)
{
	struct pbox_client *c = j->c;

	while (!j->done) {
		uint64_t now = clock_ns(), until;

		if (now >= deadline)
			return expired(j);
		until = join_tick(j, now);
		if (until > deadline)
			until = deadline;
		now = clock_ns();
		link_wait(&c->link, until > now ? until - now : 0);
		link_receive(&c->link, 1, join_frame, j);
	}
	return j->rc;
}

/** Take over what WELCOME says of an endpoint, and begin there as new. */
static int
settle_endpoint(
	struct pbox_client *c, struct ep *ep, const struct pbox_endpoint *e, uint32_t window)
{
	struct flight *flight = ep->flight;
	struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons(e->udp)};

	memcpy(&addr.sin_addr, e->ipv4, 4);
	if (window > ep->flights) {
		flight = reallocarray(flight, window, sizeof(*flight));
		if (flight == NULL)
			return -ENOMEM;
	}
	/* the transport knows an endpoint by the address of its peer, and may have more to remember
	 * than the address */
	if (memcmp(&addr, &ep->peer.addr, sizeof(addr)) != 0)
		ep->peer = (struct pbox_client_peer){.addr = addr};
	*ep = (struct ep){.peer = ep->peer,
		.flight = flight,
		.flights = window > ep->flights ? window : ep->flights,
		.thresh = MIN_THRESH};
	window_init(&ep->win, window, c->conf.min_rto_us * NS_PER_US, c->now);
	memset(flight, 0, window * sizeof(*flight));
	for (uint32_t k = window; k-- > 0;) {
		flight[k].next = ep->free;
		ep->free = &flight[k];
	}
	return 0;
}

int
join_settle(struct pbox_client *c, struct join *j, struct pbox_client_error *err)
{
	const struct pbox_welcome *w = &j->welcome;
	uint32_t hold = c->link.t->window / w->endpoints;
	uint32_t window = w->window;

	if (c->conf.window != 0 && c->conf.window < window)
		window = c->conf.window;
	if (hold < window)
		window = hold > 0 ? hold : 1;
	if (window > MAX_WINDOW)
		window = MAX_WINDOW;
	pthread_mutex_lock(&c->lock); /* of some of this others ask (declare.c) */
	c->token = w->token;
	c->number = w->number;
	c->job_number = w->job;
	c->worker = w->worker;
	c->workers = w->workers;
	c->incarnation = w->incarnation;
	c->unproven = j->unproven;
	c->stats.unproven = j->unproven; /* who has just opened it may ask at once */
	c->proven |= !j->unproven;
	c->lease_ms = w->lease_ms;
	c->tag = j->auth != NULL ? PBOX_TAG_LEN : 0;
	c->mtu = (w->mtu != 0 && w->mtu < c->link.t->mtu ? w->mtu : c->link.t->mtu) - c->tag;
	c->window = (uint16_t)window;
	c->endpoints = w->endpoints;
	c->generation++;
	pthread_mutex_unlock(&c->lock);
	auth_end(c->link.auth);
	c->link.auth = j->auth;
	j->auth = NULL;
	c->doubt_ns = 0;
	for (unsigned i = 0; i < w->endpoints; i++)
		if (settle_endpoint(c, &c->ep[i], &w->endpoint[i], window) != 0)
			return client_fail(
				err, PBOX_C_MEMORY, "no memory for a window of %u", window);
	return 0;
}

/** Leave a session that cannot be used, without waiting for the answer: the number is free for the
 * next attempt, also when one of these gets lost. */
static void
give_back(struct pbox_client *c)
{
	struct pbox_hdr h;

	session_header(c, &h, PBOX_LEAVE);
	h.chunk = 1;
	link_frame(&c->link, &c->box, &h, NULL, 0, false);
	link_flush(&c->link);
	link_frame(&c->link, &c->box, &h, NULL, 0, false);
	link_flush(&c->link);
}

/** One session, and whether it can be used. */
static int
attempt(struct pbox_client *c, struct join *j, uint64_t deadline, struct pbox_client_error *err)
{
	struct pbox_error_msg why = {0};
	int rc = exchange(j, deadline);

	if (rc == 0)
		rc = join_settle(c, j, err);
	if (rc == 0)
		rc = path_check(c, deadline, &why, err);
	if (rc == CLIENT_RENEWED) {
		snprintf(j->refused.text, sizeof(j->refused.text), "%s",
			why.text[0] != 0 ? why.text
					 : "it ended this worker's session, as the job's run "
					   "ended, or another one began");
		j->refused.code = PBOX_E_SESSION;
	}
	return rc;
}

int
join_session(struct pbox_client *c, struct pbox_client_error *err)
{
	uint64_t deadline = clock_ns() + c->conf.join_timeout_ms * NS_PER_MS;
	struct join j = {0};
	char name[64];
	int rc;

	snprintf(name, sizeof(name), "%s:%u", inet_ntoa(c->box.addr.sin_addr),
		ntohs(c->box.addr.sin_port));
	c->box_name = strdup(name);
	c->ep = calloc(PBOX_MAX_ENDPOINTS, sizeof(*c->ep));
	if (c->box_name == NULL || c->ep == NULL)
		return client_fail(err, PBOX_C_MEMORY, "no memory for a client");
	randombytes_buf(&c->nonce, sizeof(c->nonce));
	atomic_store(&c->next_id, randombytes_random() | 1);
	do { /* a session that ends at once was that of a run that made way: it joins the next one */
		struct pbox_error_msg refused = j.refused;

		join_begin(&j, c, c->nonce, c->conf.worker, err);
		j.refused = refused;
		j.next_tx = clock_ns() + (refused.code != 0 ? JOIN_INTERVAL : 0);
		rc = attempt(c, &j, deadline, err);
		join_end(&j);
	} while (rc == CLIENT_RENEWED);
	if (rc != 0 && c->token != 0)
		give_back(c);
	return rc;
}
