/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>

#include "worker_impl.h"

/*
 * A job at several boxes (section 16): which they are, and whether they are alike. The worker joins the one that decides, asks
 * it for the list, and joins the others for the run that it has.
 */

struct session *
boxes_session(struct pbox_worker *w, const struct sockaddr_in *at)
{
	struct session *s = calloc(1, sizeof(*s));
	char address[INET_ADDRSTRLEN];

	assert(w->boxes < WORKER_BOXES);
	if (s == NULL)
		return NULL;
	s->w = w;
	s->index = w->boxes;
	s->box.addr = *at;
	snprintf(s->name, sizeof(s->name), "%s:%u",
		inet_ntop(AF_INET, &at->sin_addr, address, sizeof(address)), ntohs(at->sin_port));
	s->ep = calloc(PBOX_MAX_ENDPOINTS, sizeof(*s->ep));
	if (s->ep == NULL) {
		free(s);
		return NULL;
	}
	w->box[w->boxes++] = s;
	return s;
}

static const char *
boxes_address(const struct pbox_endpoint *e, char text[32])
{
	snprintf(
		text, 32, "%u.%u.%u.%u:%u", e->ipv4[0], e->ipv4[1], e->ipv4[2], e->ipv4[3], e->udp);
	return text;
}

static bool
is_at(const struct pbox_endpoint *e, const struct sockaddr_in *a)
{
	return memcmp(e->ipv4, &a->sin_addr, 4) == 0 && htons(e->udp) == a->sin_port;
}

/** The list, in words. */
static const char *
boxes_text(const struct pbox_boxes_ok *m, char text[512])
{
	char address[32];

	text[0] = 0;
	for (unsigned i = 0; i < m->boxes; i++)
		pbox_text_add(
			text, 512, "%s%s", i > 0 ? ", " : "", boxes_address(&m->at[i], address));
	return text;
}

/** Does the program name the boxes that there are, all or one of them? */
static bool
boxes_named(struct pbox_worker *w, const struct pbox_boxes_ok *m)
{
	char list[512], text[INET_ADDRSTRLEN];

	for (unsigned k = 0; k < w->n_named; k++) {
		unsigned i = 0;

		while (i < m->boxes && !is_at(&m->at[i], &w->named[k]))
			i++;
		if (i < m->boxes)
			continue;
		text_fail(w, PBOX_C_MISMATCH,
			"%s:%u is none of the boxes of job '%s', which are %s: name these, or one of them (a box that has several addresses is in the list with one)",
			inet_ntop(AF_INET, &w->named[k].sin_addr, text, sizeof(text)),
			ntohs(w->named[k].sin_port), w->job, boxes_text(m, list));
		return false;
	}
	if (w->n_named < 2 || w->n_named == m->boxes)
		return true;
	text_fail(w, PBOX_C_MISMATCH,
		"%u boxes are named, and job '%s' is at %u: %s: name these, or one of them",
		w->n_named, w->job, m->boxes, boxes_text(m, list));
	return false;
}

/** The box that decides has said which others there are: join them. */
static bool
boxes_begin(struct session *first, const struct pbox_boxes_ok *m)
{
	struct pbox_worker *w = first->w;

	if (m->box != m->decides) { /* it has heard so since it took this worker in */
		w->turned = true;
		rejoin_begin(first, REJOIN_FORGOTTEN); /* and refers it now */
		return false;
	}
	if (!boxes_named(w, m))
		return false;
	w->list = *m;
	for (unsigned i = 0; i < m->boxes; i++) {
		struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(m->at[i].udp)};
		struct session *s = first;

		memcpy(&at.sin_addr, m->at[i].ipv4, 4);
		if (i != m->box)
			s = boxes_session(w, &at);
		if (s == NULL) {
			text_fail(w, PBOX_C_MEMORY, "no memory for a session with %u boxes",
				m->boxes);
			return false;
		}
		s->deadline = first->deadline; /* session_tick() opens it */
	}
	/* each has its place in the list, and the one that was joined is the first up to here */
	for (unsigned i = 0; i < m->box; i++) {
		w->box[i] = w->box[i + 1];
		w->box[i]->index = i;
	}
	w->box[m->box] = first;
	first->index = m->box;
	out_set(w, m->out, m->decides);
	w->homes.decided = first->boxes.request.map_epoch;
	for (unsigned i = 0; i < m->boxes; i++)
		w->box[i]->retired = w->box[i]->out;
	/* the socket has room for the answers of all of them */
	for (unsigned i = 0; i < first->endpoints; i++)
		window_limit(&first->ep[i].win,
			nodes_window(
				w, first->window / m->boxes > 0 ? first->window / m->boxes : 1));
	return true;
}

/** What the boxes must have in common; in words what is not. */
static bool
boxes_alike(const struct session *s, const struct pbox_boxes_ok *m, char *why, size_t cap)
{
	const struct session *first = s->w->box[s->w->list.box];
	const struct pbox_boxes_ok *f = &s->w->list;
	char a[512], b[512];

	why[0] = 0;
	if (strcmp(m->release, f->release) != 0)
		pbox_text_add(why, cap,
			"the box at %s is of release %s, and that at %s of %s: install the same at both",
			s->name, m->release, first->name, f->release);
	else if (m->boxes != f->boxes || memcmp(m->at, f->at, sizeof(m->at)) != 0)
		pbox_text_add(why, cap,
			"the box at %s says that the job's boxes are %s, and that at %s that they are %s: give all the same list ('boxes')",
			s->name, boxes_text(m, a), first->name, boxes_text(f, b));
	else if (m->box != s->index)
		pbox_text_add(why, cap,
			"the box at %s is number %u of the job's boxes (%s), and has answered for number %u: both addresses lead to one box",
			s->name, m->box + 1, boxes_text(m, a), s->index + 1);
	else if (s->incarnation == first->incarnation && s != first)
		pbox_text_add(why, cap,
			"the addresses %s and %s lead to one box: name each box once ('boxes')",
			first->name, s->name);
	else if (m->cores != f->cores)
		pbox_text_add(why, cap,
			"the box at %s has %u data cores, and that at %s has %u: give both the same number of lcores (-l)",
			s->name, m->cores, first->name, f->cores);
	else if (m->chunk_elements != f->chunk_elements)
		pbox_text_add(why, cap,
			"the box at %s has chunk-bytes = %u, and that at %s has %u: set the same at both",
			s->name, 4 * m->chunk_elements, first->name, 4 * f->chunk_elements);
	else if (m->mtu < f->mtu)
		pbox_text_add(why, cap,
			"the box at %s has an MTU of %u, and that at %s one of %u, for which tables are mapped: raise it there",
			s->name, m->mtu, first->name, f->mtu);
	else if (s->tag != first->tag)
		pbox_text_add(why, cap,
			"job '%s' has auth = %s at %s, and auth = %s at %s: set the same at both",
			s->w->job, s->tag > 0 ? "yes" : "no", s->name,
			first->tag > 0 ? "yes" : "no", first->name);
	return why[0] == 0;
}

/** A worker without tables goes by what the one that decides says of the map, or another box of the run, which knows a later one (R16.17). */
static void
boxes_decided(const struct session *s, const struct pbox_boxes_ok *m)
{
	struct pbox_worker *w = s->w;
	uint16_t epoch = s->boxes.request.map_epoch;
	bool later = (int16_t)(epoch - w->homes.decided) > 0 && m->decides != w->homes.decider &&
		     s->number == worker_decider(w)->number;

	if (w->tables > 0 || (s != worker_decider(w) && !later))
		return;
	w->homes.decided = epoch;
	out_set(w, m->out, m->decides);
}

static bool
boxes_take(struct session *s, const struct pbox_boxes_ok *m)
{
	struct pbox_worker *w = s->w;
	char why[1200];

	if (w->boxes == 1)
		return boxes_begin(s, m);
	if (boxes_alike(s, m, why, sizeof(why))) {
		boxes_decided(s, m);
		return true;
	}
	text_fail(w, PBOX_C_MISMATCH, "%s", why);
	return false;
}

/** A box that knows no others. */
static bool
boxes_alone(struct session *s)
{
	struct pbox_worker *w = s->w;

	if (w->boxes == 1 && w->n_named < 2)
		return true;
	text_fail(w, PBOX_C_MISMATCH,
		"the box at %s knows of no others, and this worker of %u: give each of them the same list ('boxes' in its configuration)",
		s->name, w->boxes > 1 ? w->boxes : w->n_named);
	return false;
}

void
boxes_tick(struct session *s)
{
	struct boxes_ask *a = &s->boxes;
	struct pbox_boxes_ok m;

	if (s->listed || rejoin_pauses(s))
		return;
	if ((s->can & 1u << PBOX_CAN_BOXES) == 0) {
		s->listed = boxes_alone(s);
		return;
	}
	if (!a->asked) {
		a->asked = true;
		request_begin(s, &a->request, PBOX_BOXES, NULL, 0, 0, a->answer, sizeof(a->answer));
	}
	if (a->request.listed)
		return;
	a->asked = false;
	if (a->request.answer_type == 0)
		return;
	if (a->request.answer_type != PBOX_BOXES_OK ||
		pbox_boxes_ok_decode(a->answer, a->request.answer_len, &m) != 0 ||
		(m.out >> m.decides & 1) != 0) {
		text_fail(s->w, PBOX_C_REFUSED,
			"the box at %s does not say which the job's boxes are", s->name);
		return;
	}
	s->listed = boxes_take(s, &m);
	for (unsigned i = 0; i < s->w->boxes && s->w->failed; i++)
		header_leave(s->w->box[i]); /* its number is free for the next attempt */
}

bool
boxes_ready(const struct pbox_worker *w)
{
	for (unsigned i = 0; i < w->boxes; i++)
		if (!w->box[i]->out && (w->box[i]->phase != SESSION_OPEN || !w->box[i]->listed))
			return false;
	return true;
}

/** The box that decides has another run now, or another box says that it must have: the numbers are its. */
static void
boxes_follow(struct pbox_worker *w, uint64_t drained)
{
	(void)drained;
	decider_tick(w);
	if (w->boxes < 2)
		return;
	if (w->astray && worker_decider(w)->phase == SESSION_OPEN)
		rejoin_begin(worker_decider(w), REJOIN_FORGOTTEN);
	for (unsigned i = 0; w->renumbered && i < w->boxes; i++) {
		struct session *s = w->box[i];

		if (s == worker_decider(w))
			continue;
		if (s->retired)
			continue; /* it joins the run that there is then */
		if (s->phase == SESSION_OPEN) {
			rejoin_renew(s);
		} else {
			path_end(s);
			s->phase = SESSION_CLOSED;
		}
	}
	w->astray = w->renumbered = false;
}

static bool
boxes_steady(const struct pbox_worker *w)
{
	return w->boxes < 2 || (!w->renumbered && !w->astray); /* one box has nobody to follow */
}

const struct worker_part boxes_part = {
	.name = "several boxes",
	.tick = boxes_follow,
	.steady = boxes_steady,
};
