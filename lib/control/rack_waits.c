/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* R18.8, a rack's box: whom of its own workers each job waits for. */

#include <stdio.h>

#include "numbers.h"
#include "rack_waits.h"

#define SECOND     (1000 * NS_PER_MS)
#define EVERY      SECOND
#define QUIET      (1500 * NS_PER_MS) /* a worker that lives says something each second */
#define UNANSWERED (3 * SECOND)       /* the upper box: it is asked twice a second */
#define YOUNG      (300 * NS_PER_MS)  /* of a round: its contributions are under way */
#define OLDEST     16

/* Of the oldest rounds that have waited for a while; the first of them. */
static const struct pbox_why_round *
waits_rounds(const struct pbox_why *why, unsigned workers, uint64_t now, uint64_t *missing)
{
	const struct pbox_why_round *oldest[OLDEST], *first = NULL;
	unsigned n = pbox_why_oldest(why, OLDEST, oldest);

	for (unsigned i = 0; i < n; i++) {
		uint64_t any = 0;

		if (oldest[i]->up || now < oldest[i]->since_ns + YOUNG)
			continue;
		for (unsigned k = 0; k < (workers + 63) / 64; k++) {
			missing[k] |= oldest[i]->missing[k];
			any |= oldest[i]->missing[k];
		}
		if (any != 0 && first == NULL)
			first = oldest[i];
	}
	return first;
}

/* Nothing waits for them here yet; but other racks may. */
static bool
waits_silent(const struct pbox_control *c, const struct pbox_job_view *j, uint64_t now,
	uint64_t *missing)
{
	bool any = false;

	for (unsigned w = 0; w < j->workers; w++) {
		struct pbox_member_view m;

		pbox_registrar_view_member(c->registrar, j->job, w, now, &m);
		if (m.removed || (m.state == PBOX_MEMBER_JOINED && m.silent_ns < QUIET))
			continue;
		missing[w / 64] |= UINT64_C(1) << w % 64;
		any = true;
	}
	return any;
}

static void
waits_text(const struct pbox_control *c, const struct pbox_job_view *j, const struct pbox_why *why,
	uint64_t now, char *text, size_t cap)
{
	static const char *const state[] = {
		[PBOX_MEMBER_ABSENT] = "never joined",
		[PBOX_MEMBER_JOINED] = "joined",
		[PBOX_MEMBER_LEFT] = "left",
		[PBOX_MEMBER_SILENT] = "silent beyond its lease",
	};
	uint64_t missing[PBOX_MAX_WORKERS / 64] = {0};
	const struct pbox_why_round *r = waits_rounds(why, j->workers, now, missing);
	struct pbox_member_view m;
	char who[80];
	unsigned w = 0;
	int n;

	text[0] = '\0';
	if (r == NULL && !waits_silent(c, j, now, missing))
		return;
	while ((missing[w / 64] >> w % 64 & 1) == 0)
		w++;
	numbers_workers(missing, j->workers, who, sizeof(who));
	pbox_registrar_view_member(c->registrar, j->job, w, now, &m);
	n = snprintf(text, cap, "%s (", who);
	if (m.host[0] != '\0')
		n += snprintf(text + n, cap - (size_t)n, "host %.40s, ", m.host);
	n += snprintf(text + n, cap - (size_t)n, "%s", state[m.state]);
	if (m.silent_ns != UINT64_MAX)
		n += snprintf(text + n, cap - (size_t)n, ", heard %.1f s ago",
			(double)m.silent_ns / (double)SECOND);
	n += snprintf(text + n, cap - (size_t)n, ")");
	if (r != NULL)
		snprintf(text + n, cap - (size_t)n, ", with round %u of chunk %u", r->round,
			r->chunk & ((1u << PBOX_CHUNK_BITS) - 1));
}

static const struct pbox_job *
waits_next(struct pbox_control *c)
{
	const struct pbox_job *job = pbox_registrar_job(c->registrar, c->rack_waits.next);

	c->rack_waits.next = job != NULL ? c->rack_waits.next + 1 : 0;
	return job;
}

static void
waits_answered(struct pbox_control *c)
{
	const struct pbox_job *job =
		pbox_registrar_job_numbered(c->registrar, c->rack_waits.asked_id);
	struct pbox_job_view j;
	char text[256];

	if (job == NULL)
		return;
	pbox_registrar_view_job(c->registrar, job, &j);
	if (j.begun_ns != c->rack_waits.asked_begun)
		return;
	waits_text(c, &j, c->rack_waits.why, c->now_ns, text, sizeof(text));
	pbox_uplinks_says(c->uplinks, job, text);
}

void
rack_waits_step(struct pbox_control *c)
{
	struct pbox_why *why = c->rack_waits.why;
	const struct pbox_job *job;
	struct pbox_job_view j;

	if (why != NULL) {
		if (why->answered < why->shards)
			return;
		waits_answered(c);
		rack_waits_stop(c);
	}
	if (c->now_ns < c->rack_waits.at)
		return;
	job = waits_next(c);
	if (job == NULL) { /* all have been asked */
		c->rack_waits.at = c->now_ns + EVERY;
		return;
	}
	pbox_registrar_view_job(c->registrar, job, &j);
	c->rack_waits.why = pbox_registrar_why(c->registrar, job);
	c->rack_waits.asked_id = j.id;
	c->rack_waits.asked_begun = j.begun_ns;
}

void
rack_waits_stop(struct pbox_control *c)
{
	if (c->rack_waits.why != NULL)
		pbox_registrar_why_end(c->rack_waits.why);
	c->rack_waits.why = NULL;
}

bool
rack_waits_above(const struct pbox_control *c, const struct pbox_uplink_view *v, uint64_t now,
	char text[RACK_WAITS_TEXT])
{
	uint64_t silent = now > v->heard_ns ? now - v->heard_ns : 0;
	int n;

	text[0] = '\0';
	if (v->heard_ns == 0 || silent > UNANSWERED) {
		if (v->heard_ns == 0)
			snprintf(text, RACK_WAITS_TEXT, "it has not answered yet");
		else
			snprintf(text, RACK_WAITS_TEXT,
				"no answer from it for %.1f s: is it up, and the link of rack %u?",
				(double)silent / (double)SECOND, c->conf.registrar.rack.rack);
		return true;
	}
	if (v->missing < 0 || v->missing == (int)c->conf.registrar.rack.rack)
		return false;
	n = snprintf(text, RACK_WAITS_TEXT, "rack %d", v->missing);
	if (v->rack_state == PBOX_MEMBER_ABSENT)
		n += snprintf(text + n, RACK_WAITS_TEXT - (size_t)n, " (never joined)");
	else
		n += snprintf(text + n, RACK_WAITS_TEXT - (size_t)n,
			" (host %s, %sheard %.1f s ago)", v->rack_host,
			v->rack_state == PBOX_MEMBER_SILENT ? "silent beyond its lease, "
			: v->rack_state == PBOX_MEMBER_LEFT ? "left, "
							    : "",
			v->rack_silent_ms / 1000.0);
	if (v->rack_waits[0] != '\0')
		snprintf(text + n, RACK_WAITS_TEXT - (size_t)n, ", which waits for %s",
			v->rack_waits);
	return true;
}
