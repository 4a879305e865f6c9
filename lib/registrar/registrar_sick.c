/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <stdio.h>

#include "registrar_impl.h"

/* Whose contributions make sums that are not finite (R6.16): the log, and what is said of it. */

/* Lines of one worker, or of sums that overflow, are so far apart; and what is older is not said any more. */
#define SICK_EVERY (60000 * NS_PER_MS)

struct sick_said {
	uint64_t fragments; /* that were known then */
	uint64_t logged_ns; /* 0: never */
};

struct sick_job {
	uint64_t all; /* what the shards had found when it was looked at last */
	struct sick_said overflow;
};

/* Of all shards, the latest series. False: nothing was found in the last minute. */
static bool
sick_of(const struct pbox_registrar *r, const struct pbox_job *job, unsigned w,
	struct pbox_sick *out)
{
	bool any = false;

	for (unsigned i = 0; i < r->conf.n_shards; i++) {
		struct pbox_sick k;
		uint64_t fragments = any ? out->fragments : 0;

		if (job->shard[i] == NULL || !pbox_shard_sick(job->shard[i], w, &k) ||
			r->now_ns > k.last_ns + SICK_EVERY)
			continue;
		/* of two series that touch the one that began first, else the later one */
		if (!any ||
			(pbox_serial_diff(k.first, out->first) < 0
					? pbox_serial_diff(k.last, out->first) >= -1
					: pbox_serial_diff(k.first, out->last) > 1) ||
			(k.first == out->first &&
				(k.chunk < out->chunk ||
					(k.chunk == out->chunk && k.element < out->element))))
			*out = k;
		out->fragments = fragments + k.fragments;
		any = true;
	}
	return any;
}

static uint64_t
all_of(const struct pbox_registrar *r, const struct pbox_job *job)
{
	uint64_t n = 0;

	for (unsigned i = 0; i < r->conf.n_shards; i++)
		if (job->shard[i] != NULL)
			n += pbox_shard_sick_all(job->shard[i]);
	return n;
}

/* The tensor that has it, and which element of that. */
static const char *
sick_at(const struct pbox_job *job, const struct pbox_sick *k, uint64_t *element)
{
	uint32_t table = k->chunk >> PBOX_CHUNK_BITS,
		 index = k->chunk & ((1u << PBOX_CHUNK_BITS) - 1), at = k->element;
	const struct pbox_job_table *jt = table < job->n_tables ? job->table[table] : NULL;
	const struct pbox_layout_chunk *lc;

	*element = 0;
	if (jt == NULL || !jt->built || index >= jt->t.n_chunks)
		return "?";
	lc = &jt->t.layout.chunk[index];
	for (unsigned i = 0; i < lc->segments; i++) {
		const struct pbox_segment *x = &jt->t.layout.segment[lc->first_segment + i];

		*element = x->offset + at;
		if (at < x->elements)
			return jt->tensor[x->tensor].name;
		at -= x->elements;
	}
	return "?";
}

static const char *const sick_kind[] = {[PBOX_SICK_NAN] = "a NaN",
	[PBOX_SICK_INFINITE] = "an infinity",
	[PBOX_SICK_MINUS_INFINITE] = "a negative infinity"};

static void
sick_words(
	const struct pbox_job *job, unsigned w, const struct pbox_sick *k, char *text, size_t cap)
{
	uint64_t element;
	const char *tensor = sick_at(job, k, &element);

	if (w < job->workers)
		snprintf(text, cap,
			"worker %u (%s) sent %s: element %llu of tensor '%s' in round %u", w,
			job->member[w].host, sick_kind[k->kind], (unsigned long long)element,
			tensor, k->first);
	else
		snprintf(text, cap,
			"the sum overflowed, and is %s: element %llu of tensor '%s' in round %u, where the contributions of all workers are finite",
			sick_kind[k->kind], (unsigned long long)element, tensor, k->first);
}

/* Is it the cause, rather than the other one? What began in an earlier round; a worker rather than an overflow. */
static bool
comes_first(const struct pbox_sick *k, const struct pbox_sick *than)
{
	return pbox_serial_diff(k->first, than->first) < 0;
}

static bool
is_newer_series(const struct pbox_sick *k, const struct pbox_sick *than)
{
	return k->last_ns != than->last_ns ? k->last_ns > than->last_ns
					   : pbox_serial_diff(k->last, than->last) > 0;
}

bool
pbox_registrar_sick(
	const struct pbox_registrar *r, const struct pbox_job *job, struct pbox_sick_view *out)
{
	struct pbox_sick newest = {0}, cause = {0}, k;
	unsigned others = 0;
	char *text = out->text;
	int n;

	*out = (struct pbox_sick_view){.worker = -1};
	if (all_of(r, job) == 0)
		return false;
	for (unsigned w = 0; w <= job->workers; w++)
		if (sick_of(r, job, w, &k) &&
			(newest.fragments == 0 || is_newer_series(&k, &newest)))
			newest = k;
	for (unsigned w = 0; w <= job->workers; w++) {
		if (!sick_of(r, job, w, &k) || pbox_serial_diff(newest.first, k.last) > 1)
			continue;
		others += out->fragments > 0;
		if (out->fragments > 0 && !comes_first(&k, &cause))
			continue;
		cause = k;
		out->worker = w < job->workers ? (int)w : -1;
		out->fragments = k.fragments;
	}
	if (out->fragments == 0)
		return false;
	out->round = cause.first;
	out->last = newest.last;
	out->what = sick_kind[cause.kind];
	out->tensor = sick_at(job, &cause, &out->element);
	sick_words(job, out->worker < 0 ? job->workers : (unsigned)out->worker, &cause, text,
		sizeof(out->text));
	n = (int)strlen(text);
	if (others > 0)
		snprintf(text + n, sizeof(out->text) - (size_t)n,
			", and so did %u other%s in that round or since", others,
			others == 1 ? "" : "s");
	return true;
}

static struct sick_said *
said_of(const struct pbox_job *job, unsigned w)
{
	return w < job->workers
		       ? registrar_member_state(job, PART_sick, w)
		       : &((struct sick_job *)registrar_job_state(job, PART_sick))->overflow;
}

static void
sick_tick(struct pbox_registrar *r, struct pbox_job *job)
{
	struct sick_job *mine = registrar_job_state(job, PART_sick);
	uint64_t all = all_of(r, job);

	if (all == mine->all)
		return;
	mine->all = all;
	for (unsigned w = 0; w <= job->workers; w++) {
		struct sick_said *said = said_of(job, w);
		struct pbox_sick k;
		char text[400];

		if (!sick_of(r, job, w, &k) || k.fragments == said->fragments)
			continue;
		said->fragments = k.fragments;
		if (said->logged_ns != 0 && r->now_ns - said->logged_ns < SICK_EVERY)
			continue;
		said->logged_ns = r->now_ns;
		sick_words(job, w, &k, text, sizeof(text));
		registrar_event(r, PBOX_LOG_WARN, "job '%s': %s (%llu fragments so far)", job->name,
			text, (unsigned long long)k.fragments);
	}
}

const struct registrar_part registrar_sick_part = {
	.name = "sick workers",
	.tick = sick_tick,
	.job_state = sizeof(struct sick_job),
	.member_state = sizeof(struct sick_said),
};
