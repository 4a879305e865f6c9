/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* A data core's frames, a burst at a time: each is checked, and goes to what its table or its type does with it. */

#include <stdlib.h>
#include <string.h>

#include "verdict.h"

const struct pbox_stat_def pbox_shard_stat_defs[PBOX_SS_STATS] = {PBOX_SHARD_VALUES(PBOX_STAT_DEF)};

size_t
pbox_shard_bytes(void)
{
	return sizeof(struct pbox_shard);
}

struct pbox_shard *
pbox_shard_create(const struct pbox_shard_conf *conf)
{
	struct pbox_shard *s = conf->memory;
	uint8_t n_own = 0;

	PBOX_ASSERT(conf->max_jobs <= PBOX_MAX_JOBS && conf->n_endpoints <= PBOX_MAX_ENDPOINTS);
	if (s == NULL)
		s = aligned_alloc(PBOX_CACHE_LINE, sizeof(*s));
	if (s == NULL)
		return NULL;
	PBOX_ASSERT((uintptr_t)s % PBOX_CACHE_LINE == 0);
	memset(s, 0, sizeof(*s));
	s->conf = *conf;
	s->stats = conf->stats;
	s->on_heap = conf->memory == NULL;
	for (unsigned e = 0; e < conf->n_endpoints; e++)
		if (conf->endpoint[e].shard == conf->id) {
			s->own_endpoint[e] = true;
			s->own_index[e] = n_own++;
		}
	return s;
}

void
pbox_shard_destroy(struct pbox_shard *s)
{
	if (s == NULL)
		return;
	for (unsigned i = 0; i < s->conf.max_jobs; i++)
		if (s->job[i] != NULL)
			shard_drop_records(s, s->job[i]);
	if (s->on_heap)
		free(s);
}

void
pbox_shard_mail(struct pbox_shard *s, const struct pbox_mail *m, uint64_t now_ns)
{
	struct pbox_shard_job *j = m->job;

	s->now_ns = now_ns;
	PBOX_ASSERT(m->shard == s->conf.id && j->job->id < s->conf.max_jobs);
	PBOX_ASSERT(s->job[j->job->id] == (m->kind == PBOX_MAIL_OPEN_JOB ? NULL : j));
	/* what a mail changes is of no burst that goes on */
	PBOX_ASSERT(!s->inside && s->n_ready == 0 && s->n_batched == 0);
	switch (m->kind) {
	case PBOX_MAIL_OPEN_JOB:
		s->job[j->job->id] = j;
		break;
	case PBOX_MAIL_OPEN_TABLE:
		PBOX_ASSERT(m->table->t->id < PBOX_MAX_TABLES && j->table[m->table->t->id] == NULL);
		j->table[m->table->t->id] = m->table;
		break;
	case PBOX_MAIL_SNAPSHOT:
	case PBOX_MAIL_SNAPSHOT_END:
		shard_staging_mail(s, m);
		break;
	case PBOX_MAIL_RESTORERS:
		shard_restorers_changed(s, j);
		break;
	case PBOX_MAIL_CLOSE_JOB:
		shard_drop_records(s, j);
		s->job[j->job->id] = NULL;
		break;
	case PBOX_MAIL_MEMBERS:
		shard_members(s, j);
		break;
	case PBOX_MAIL_WHY:
		shard_why(j, m->why);
		break;
	case PBOX_MAIL_OWNERS:
		shard_owners_changed(s, j);
		break;
	case PBOX_MAIL_MOVES:
		shard_moves(s, j, m->table, m->moves);
		break;
	case PBOX_MAIL_QUOTA:
		shard_job_quota(j, &j->inbox.bounds);
		break;
	}
	s->conf.ops->mail(s->conf.ctx, m);
}

/* The rest of a session's checks, where it has tags, or the frame has one, or another incarnation. */
static __attribute__((noinline, cold)) enum pbox_shard_stat
check_tag(struct pbox_shard *s, const struct pbox_frame *f, struct pbox_shard_job *j)
{
	if (f->hdr.incarnation != s->conf.incarnation)
		return PBOX_SS_DROP_SESSION_INCARNATION;
	return pbox_job_auth_good(j->job, f) ? 0 : PBOX_SS_DROP_AUTH;
}

/* The session checks of R6.11; 0 or the drop. */
static enum pbox_shard_stat
check_session(struct pbox_shard *s, const struct pbox_frame *f, struct pbox_shard_job **out)
{
	struct pbox_shard_job *j = f->hdr.job < s->conf.max_jobs ? s->job[f->hdr.job] : NULL;
	uint64_t token;

	if (j == NULL || f->hdr.worker >= j->job->workers)
		return PBOX_SS_DROP_SESSION_UNKNOWN;
	token = atomic_load_explicit(&j->job->token[f->hdr.worker], memory_order_acquire);
	if (token == 0)
		return PBOX_SS_DROP_SESSION_UNKNOWN;
	if (token != f->hdr.token)
		return PBOX_SS_DROP_SESSION_TOKEN;
	*out = j;
	if (((f->hdr.incarnation ^ s->conf.incarnation) | (f->hdr.flags & PBOX_F_AUTH) |
		    j->tagged) != 0)
		return check_tag(s, f, j);
	return 0;
}

/* Does a piece of the fragment begin where the INIT or FETCH says? */
static bool
is_piece(const struct pbox_table *t, const struct pbox_hdr *h, uint32_t elements)
{
	uint32_t offset = pbox_part_get(h).offset;

	return offset < elements && offset % t->init_elements == 0;
}

/* Format and length of R6.2, R6.4, R6.8; 0 or the drop. */
static enum pbox_shard_stat
check_payload(const struct pbox_frame *f, const struct target *g)
{
	const struct pbox_table *t = g->st->t;
	const struct pbox_hdr *h = &f->hdr;
	uint32_t elements = g->elements;
	unsigned format = t->push_format;

	if (h->type == PBOX_PULL || h->type == PBOX_NORM)
		return h->length == 0 ? 0 : PBOX_SS_DROP_LENGTH;
	if (h->type == PBOX_RESTORE) {
		format = shard_copy_format(t);
		if (h->format != format)
			return PBOX_SS_DROP_FORMAT;
		return h->length == 0 ||
				       h->length == pbox_payload_bytes(format, elements) + t->vector
			       ? 0
			       : PBOX_SS_DROP_LENGTH;
	}
	if (h->type == PBOX_FETCH) {
		if (t->mode != PBOX_MODE_OPTIMISER)
			return 0; /* forbidden, which comes later in the order */
		return h->length == 0 && is_piece(t, h, elements) ? 0 : PBOX_SS_DROP_LENGTH;
	}
	if (h->type == PBOX_INIT) {
		if (t->mode != PBOX_MODE_OPTIMISER)
			return 0; /* forbidden, too */
		format = PBOX_FMT_FP32;
	}
	if (__builtin_expect(t->mixed, 0) && h->format == PBOX_FMT_FP32)
		format = PBOX_FMT_FP32;
	if (h->format != format ||
		(pbox_format_is_block(format) && h->fmt_arg != pbox_format_arg(format)))
		return PBOX_SS_DROP_FORMAT;
	if (h->type == PBOX_INIT) {
		if (!is_piece(t, h, elements))
			return PBOX_SS_DROP_LENGTH;
		elements -= pbox_part_get(h).offset;
		if (elements > t->init_elements)
			elements = t->init_elements;
	}
	if (h->length != ((h->flags & PBOX_F_ZERO) != 0 ? 0 : pbox_payload_bytes(format, elements)))
		return PBOX_SS_DROP_LENGTH;
	return (h->flags & PBOX_F_LAST) != 0 || h->type == PBOX_INIT ? 0 : PBOX_SS_DROP_PARTIAL;
}

/* Which fragment it is about, and whether its payload can be. 0 or the drop. */
static enum pbox_shard_stat
find_fragment(const struct pbox_shard *s, const struct pbox_frame *f, struct target *g)
{
	const struct pbox_hdr *h = &f->hdr;
	uint32_t table = h->chunk >> PBOX_CHUNK_BITS;
	uint32_t index = h->chunk & ((1u << PBOX_CHUNK_BITS) - 1);

	g->chunk = h->chunk;
	g->frag = h->frag;
	if (table >= PBOX_MAX_TABLES || g->j->table[table] == NULL)
		return PBOX_SS_DROP_CHUNK_UNKNOWN;
	g->st = g->j->table[table];
	if (index >= g->st->t->n_chunks)
		return PBOX_SS_DROP_CHUNK_UNKNOWN;
	g->c = &g->st->t->chunk[index];
	if (!s->own_endpoint[g->c->endpoint])
		return PBOX_SS_DROP_CHUNK_UNKNOWN;
	if (h->map_epoch != g->c->epoch && !shard_is_of_left(g->c, f))
		return PBOX_SS_DROP_MAP_EPOCH;
	if (h->frag >= g->c->fragments)
		return PBOX_SS_DROP_FRAG_RANGE;
	g->fragment = &g->c->fragment[h->frag];
	g->elements = pbox_chunk_frag_elements(g->st->t, g->c, h->frag);
	return check_payload(f, g);
}

/* Some wires carry more than the MTU that was agreed upon; a PONG does not (R8.1). */
static enum pbox_shard_stat
check_ping(const struct pbox_shard *s, const struct pbox_frame *f)
{
	unsigned tag = (f->hdr.flags & PBOX_F_AUTH) != 0 ? PBOX_TAG_LEN : 0;

	return PBOX_MTU_OVERHEAD + f->hdr.length + tag <= s->conf.mtu ? 0 : PBOX_SS_DROP_LENGTH;
}

/* All checks but those of the round. 0 or the drop. The rate bounds contributions by when their rounds
 * end, if they are good for one. */
static enum pbox_shard_stat
shard_resolve(struct pbox_shard *s, const struct pbox_frame *f, struct target *g)
{
	enum pbox_shard_stat drop = check_session(s, f, &g->j);

	if (drop != 0)
		return drop;
	if (!verdict_is_contribution(f->hdr.type)) {
		drop = verdict_question(s, g, f);
		if (drop != 0)
			return drop;
	}
	if (f->hdr.type == PBOX_PING)
		return check_ping(s, f);
	drop = find_fragment(s, f, g);
	if (drop != 0 && verdict_is_contribution(f->hdr.type) &&
		!job_rate_take(&g->j->rate, s->now_ns))
		return PBOX_SS_DROP_RATE;
	return drop;
}

/* R13.4, R14.8: it is not the answer to another question. */
static __attribute__((noinline, cold)) void
shard_unsupported(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f,
	enum pbox_shard_stat what)
{
	shard_count(s, what);
	shard_send_error(s, g, f, PBOX_E_UNSUPPORTED);
}

static bool
act(struct pbox_shard *s, struct target *g, const struct pbox_frame *f)
{
	g->j->member[f->hdr.worker].ce |= f->ce;
	if (!verdict(s, g, f))
		return false;
	if (f->hdr.type == PBOX_PING) {
		shard_ping(s, g, f);
	} else if (f->hdr.type == PBOX_PULL) {
		if ((g->fragment->closed & PBOX_FRAGMENT_NOT_HERE) != 0)
			shard_send_unready(s, g, f);
		else if ((f->hdr.flags & PBOX_F_CUT) != 0)
			shard_unsupported(s, g, f, PBOX_SS_RX_PULL);
		else
			g->st->discipline->pull(s, g, f);
	} else if (f->hdr.type == PBOX_INIT) {
		bool brings = (f->hdr.flags & PBOX_F_HAVE) != 0 && g->st->discipline->bring != NULL;

		if (g->st->t->mode != PBOX_MODE_OPTIMISER || (f->hdr.worker != 0 && !brings))
			shard_count(s, PBOX_SS_DROP_INIT_FORBIDDEN);
		else if (brings)
			g->st->discipline->bring(s, g, f);
		else if ((f->hdr.flags & PBOX_F_LATEST) != 0 && g->st->discipline->moves_on)
			shard_unsupported(s, g, f, PBOX_SS_RX_INIT);
		else if ((f->hdr.flags & PBOX_F_LATEST) != 0)
			shard_give(s, g, f);
		else
			shard_initialise(s, g, f);
	} else if (f->hdr.type == PBOX_FETCH) {
		if (g->st->t->mode != PBOX_MODE_OPTIMISER)
			shard_count(s, PBOX_SS_DROP_INIT_FORBIDDEN);
		else if (g->st->discipline->moves_on)
			shard_unsupported(s, g, f, PBOX_SS_RX_FETCH);
		else if ((f->hdr.flags & PBOX_F_LATEST) != 0)
			shard_fetch_left(s, g, f);
		else
			shard_fetch(s, g, f);
	} else if (f->hdr.type == PBOX_NORM) {
		if ((g->fragment->closed & PBOX_FRAGMENT_NOT_HERE) != 0)
			shard_send_unready(s, g, f);
		else if (g->st->discipline->norm == NULL)
			shard_unsupported(s, g, f, PBOX_SS_RX_PULL);
		else
			g->st->discipline->norm(s, g, f);
	} else if (f->hdr.type == PBOX_RESTORE) {
		shard_send_batch(s);
		shard_restore(s, g, f);
	} else {
		return g->st->discipline->contribute(s, g, f);
	}
	return false;
}

static bool
shard_is_ours(unsigned type)
{
	return verdict_is_contribution(type) || type == PBOX_PULL || type == PBOX_INIT ||
	       type == PBOX_RESTORE || type == PBOX_FETCH || type == PBOX_NORM || type == PBOX_PING;
}

static void
shard_refuse(struct pbox_shard *s, const struct target *g, const struct pbox_frame *f,
	enum pbox_shard_stat why)
{
	/* who sends too much is not worth a look at the payload */
	if (why != PBOX_SS_DROP_RATE && !verdict_intact(s, f))
		return;
	shard_count(s, why);
	if (why <= PBOX_SS_DROP_SESSION_INCARNATION)
		shard_send_error(s, NULL, f, PBOX_E_SESSION);
	else if (why == PBOX_SS_DROP_MAP_EPOCH)
		shard_moved_away(s, g, f);
}

/* Fetch ahead: the fragment, then what it points to. */
static void
shard_look_up(struct pbox_shard *s, const struct pbox_frame *frame, unsigned n,
	struct target *target, enum pbox_shard_stat *drop)
{
	for (unsigned i = 0; i < n; i++) {
		target[i].fragment = NULL;
		target[i].verdict = (struct verdict){0};
		drop[i] = shard_is_ours(frame[i].hdr.type) ? shard_resolve(s, &frame[i], &target[i])
							   : PBOX_SS_DROP_TYPE;
		if (drop[i] == 0 && target[i].fragment != NULL)
			__builtin_prefetch(target[i].fragment, 1);
	}
	for (unsigned i = 0; i < n; i++) {
		const struct pbox_record *r;

		if (drop[i] != 0 || target[i].fragment == NULL)
			continue;
		r = target[i].fragment->record;
		if (r == NULL)
			continue;
		__builtin_prefetch(r, 1);
	}
}

void
pbox_shard_away(struct pbox_shard *s, uint64_t ns)
{
	s->away_ns = ns;
}

uint64_t
pbox_shard_rx(struct pbox_shard *s, const struct pbox_frame *frame, unsigned n, uint64_t now_ns)
{
	struct target target[PBOX_SHARD_BURST];
	enum pbox_shard_stat drop[PBOX_SHARD_BURST];
	uint64_t held = 0;

	PBOX_ASSERT(n <= PBOX_SHARD_BURST && s->n_ready == 0 && s->n_batched == 0 && !s->inside);
	s->inside = true;
	s->n_pushed = 0;
	s->now_ns = now_ns;
	pbox_stat_add(&s->stats[PBOX_SS_RX_FRAMES], n);
	/* first look all fragments up, so that their cache lines travel while others are worked on */
	shard_look_up(s, frame, n, target, drop);
	for (unsigned i = 0; i < n; i++) {
		if (drop[i] == 0)
			held |= (uint64_t)act(s, &target[i], &frame[i]) << i;
		else
			shard_refuse(s, &target[i], &frame[i], drop[i]);
	}
	shard_finish_ready(s);
	s->inside = false;
	return held;
}

uint32_t
pbox_shard_held(const struct pbox_shard *s)
{
	return (uint32_t)pbox_stat_get(&s->stats[PBOX_SS_HELD]);
}
