/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * Which box has which chunk of a job at several (R16.9 to R16.11). One box decides it: its plan. Workers ask it for that, and show it to
 * all boxes; so each learns what comes to it, and what leaves.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "registrar_impl.h"

/* Workers that have not asked for a new map are asked whether they live: so they hear of it. */
#define ASK_EVERY   (100 * NS_PER_MS)
#define ASK_TIMES   50
#define HOMES_FIXED 20 /* bytes of HOMES_OK, */
#define HOMES_ENTRY 8  /* and for each chunk */

/* The latest map of which a deciding box hears after a restart: what it makes then can still be compared with map 1, of which chunks may be
 * (EPOCHS_APART and FORGOTTEN in registrar_moves.c). */
#define HOMES_HEARD (32000 - 3 * 256)

/* R16.17: a worker that shows this box a map has shown it to all before, to prepare. So any other box knows of a map that is so many before the
 * newest at most, and numbers its own beyond that when it takes this one's place. */
#define HOMES_UNKNOWN 256

/* Of a job. */
struct homes {
	uint16_t mails;   /* MOVES under way */
	uint32_t table;   /* of these */
	uint32_t comes;   /* fragments that are new here with them */
	bool restores;    /* some of them are to be restored */
	uint32_t changes; /* how often homes or plans have changed */
	uint64_t ask_ns;  /* when workers are asked next */
	unsigned asked;   /* how often they were */
	uint16_t
		shown; /* the latest map that a worker has shown whole, and not to prepare alone; 0: none */
	/* The map that this box has made first since it was started, or took the place of the one that decided. */
	uint16_t first;
	bool made; /* it has made one */
	bool took; /* it has taken that place (R16.17) */
};

/* Of a worker's session. */
struct homes_member {
	uint16_t asked;  /* for the map of that epoch */
	bool knows;      /* it has asked, or shown all that it knew */
	uint16_t shown;  /* the map of that epoch, all of it, and not to prepare alone; 0: none */
	uint32_t tables; /* so many it has shown */
};

static struct homes *
homes_of(const struct pbox_job *job)
{
	return registrar_job_state(job, PART_homes);
}

static struct homes_member *
homes_member(const struct pbox_job *job, unsigned w)
{
	return registrar_member_state(job, PART_homes, w);
}

static bool
epoch_is_later(uint16_t a, uint16_t b)
{
	return (int16_t)(a - b) > 0;
}

static void
note_epoch(struct pbox_job *job, uint16_t epoch)
{
	if (epoch_is_later(epoch, atomic_load_explicit(&job->map_epoch, memory_order_relaxed)))
		atomic_store_explicit(&job->map_epoch, epoch, memory_order_relaxed);
}

/* Which boxes are out of use, and which one decides, is part of a map. A deciding box that was started again may have built tables before it
 * hears that. */
static void
note_out(const struct pbox_registrar *r, struct pbox_job *job, uint16_t epoch, uint16_t out,
	unsigned decider)
{
	uint16_t before = job->out;

	if (!epoch_is_later(epoch, job->out_epoch))
		return;
	job->out = out;
	job->out_epoch = epoch;
	job->decider = (uint8_t)decider;
	for (uint32_t i = 0; out != before && i < job->n_tables; i++)
		if (job->table[i]->built)
			registrar_share_new(r, job, i);
}

static void
homes_not_ready(struct pbox_registrar *r, const struct pbox_frame *f, const struct pbox_job *job,
	const char *text)
{
	struct pbox_not_ready m = {.expected = job->workers,
		.joined = (uint16_t)pbox_job_joined(job),
		.first_missing = PBOX_NO_WORKER,
		.silent_ms = NEVER_SEEN};

	snprintf(m.text, sizeof(m.text), "%s", text);
	registrar_reply(
		r, f, PBOX_NOT_READY, pbox_not_ready_encode(r->scratch, sizeof(r->scratch), &m));
}

/* ---- chunks that come and leave ----------------------------------------------------------------- */

/* What an entry of HOMES changes here. */
enum change { NOTHING, NOTED, COMES, LEAVES };

static enum change
change_of(const struct pbox_table *t, const struct pbox_homes *m, uint32_t i)
{
	const struct pbox_home *h = &m->home[i - m->first];
	bool prepare = (m->flags & PBOX_HOMES_PREPARE) != 0;

	if (!epoch_is_later(h->epoch, t->home[i].epoch))
		return NOTHING;
	if (h->box == t->box)
		return COMES;
	return prepare ? NOTHING : t->home[i].box == t->box ? LEAVES : NOTED;
}

/* What the shards do of one page. */
struct page_moves {
	struct pbox_moves *of[PBOX_MAX_SHARDS];
	uint32_t index[PBOX_HOMES_MOST], n; /* those that come */
	struct pbox_chunk memory[PBOX_HOMES_MOST];
};

static void
free_moves(const struct pbox_registrar *r, struct page_moves *p)
{
	for (unsigned s = 0; s < r->conf.n_shards; s++)
		free(p->of[s]);
}

static bool
add_move(
	const struct pbox_registrar *r, struct page_moves *p, unsigned endpoint, struct pbox_move m)
{
	struct pbox_moves **of = &p->of[r->conf.endpoint[endpoint].shard];

	if (*of == NULL)
		*of = calloc(1, sizeof(**of) + PBOX_HOMES_MOST * sizeof(m));
	if (*of == NULL)
		return false;
	(*of)->move[(*of)->n++] = m;
	return true;
}

/* Memory for those that come; and for each shard what becomes of its chunks. -errno with err: nothing has changed. */
static int
prepare(struct pbox_registrar *r, struct pbox_job *job, struct pbox_table *t,
	const struct pbox_homes *m, struct page_moves *p, struct pbox_error *err)
{
	size_t bytes = t->bytes;
	uint32_t k = 0;
	bool good = true;
	int ret;

	PBOX_ASSERT(homes_of(job)->mails == 0); /* pages one after the other */
	for (uint32_t i = m->first; i < m->first + m->count; i++)
		if (change_of(t, m, i) == COMES)
			p->index[p->n++] = i;
	ret = pbox_table_take(t, p->index, p->n, r->place, r->conf.n_endpoints, r->load,
		pbox_job_left(job), p->memory, err);
	if (ret < 0)
		return ret;
	job->bytes += t->bytes - bytes;
	for (uint32_t i = m->first; good && i < m->first + m->count; i++) {
		enum change what = change_of(t, m, i);
		struct pbox_move x = {.chunk = i, .epoch = m->home[i - m->first].epoch};

		if (what == COMES) {
			x.comes = true;
			x.memory = p->memory[k++];
			x.apart = t->chunk[i].endpoint == PBOX_ELSEWHERE;
			good = add_move(r, p, x.memory.endpoint, x);
		} else if (what == LEAVES) {
			good = add_move(r, p, t->layout.chunk[i].endpoint, x);
		}
	}
	PBOX_ASSERT(!good || k == p->n); /* all that come have got their memory */
	return good ? 0 : pbox_fail(err, ENOMEM, "out of memory for moves of table %u", t->id);
}

static void
post_moves(struct pbox_registrar *r, struct pbox_job *job, struct pbox_job_table *jt,
	struct page_moves *p)
{
	struct homes *h = homes_of(job);

	PBOX_ASSERT(h->mails == 0 && jt->built);
	h->table = jt->t.id;
	h->comes = 0;
	h->restores = p->n > 0;
	for (uint32_t k = 0; k < p->n; k++)
		if (jt->t.chunk[p->index[k]].endpoint == PBOX_ELSEWHERE)
			h->comes += p->memory[k].fragments;
	if (p->n > 0)
		registrar_restore_moves(job, jt);
	for (unsigned s = 0; s < r->conf.n_shards; s++)
		h->mails += p->of[s] != NULL;
	for (unsigned s = 0; s < r->conf.n_shards; s++) {
		struct pbox_mail mail = {.kind = PBOX_MAIL_MOVES,
			.job = job->shard[s],
			.table = pbox_shard_table_of(job->shard[s], jt->t.id),
			.moves = p->of[s]};

		if (p->of[s] == NULL)
			continue;
		p->of[s] = NULL;
		registrar_mail(r, &mail);
	}
}

/* What it shows that is new here. 1: the shards do it; 0: nothing is left to do; or -errno with err. */
static int
adopt(struct pbox_registrar *r, struct pbox_job *job, struct pbox_job_table *jt,
	const struct pbox_homes *m, struct pbox_error *err)
{
	struct pbox_table *t = &jt->t;
	struct page_moves *p = calloc(1, sizeof(*p));
	unsigned comes = 0, leaves = 0;
	int ret = p != NULL ? prepare(r, job, t, m, p, err)
			    : pbox_fail(err, ENOMEM, "out of memory for moves of table %u", t->id);

	if (ret < 0) {
		if (p != NULL)
			free_moves(r, p);
		free(p);
		return ret;
	}
	for (uint32_t i = m->first; i < m->first + m->count; i++) {
		const struct pbox_home *h = &m->home[i - m->first];
		enum change what = change_of(t, m, i);

		if (epoch_is_later(h->epoch, t->plan[i].epoch)) { /* it has forgotten its plan */
			t->plan[i] = (struct pbox_table_home){.box = h->box, .epoch = h->epoch};
			note_epoch(job, h->epoch);
			homes_of(job)->changes++;
		}
		if (what == NOTHING)
			continue;
		/* no chunk is by a later map than the newest that is known of it */
		PBOX_ASSERT(!epoch_is_later(h->epoch, t->plan[i].epoch));
		comes += what == COMES;
		leaves += what == LEAVES;
		t->home[i] = (struct pbox_table_home){.box = h->box, .epoch = h->epoch};
		homes_of(job)->changes++;
	}
	note_epoch(job, m->epoch);
	note_out(r, job, m->epoch, m->out, pbox_homes_decides(m));
	if (comes + leaves > 0) {
		jt->finished.known = jt->look.on = false;
		registrar_event(r, PBOX_LOG_INFO,
			"job '%s': of table %u, by map %u, %u chunks come and %u leave", job->name,
			t->id, m->epoch, comes, leaves);
		post_moves(r, job, jt, p);
	}
	free_moves(r, p);
	free(p);
	return homes_of(job)->mails > 0;
}

/* A shard has done it. */
static void
homes_moved(struct pbox_registrar *r, const struct pbox_mail *m)
{
	struct pbox_job *job = pbox_shard_job_of(m->job);
	struct homes *h = homes_of(job);
	struct pbox_job_table *jt = job->table[h->table];

	PBOX_ASSERT(h->table < job->n_tables && jt->built);
	(void)r;
	free(m->moves);
	PBOX_ASSERT(h->mails > 0);
	if (--h->mails > 0)
		return;
	jt->t.n_fragments += h->comes;
	/* whose versions may be lower than all that was here */
	jt->finished.known = jt->look.on = false;
	if (h->restores)
		registrar_restore_moving(jt);
}

/* ---- HOMES ------------------------------------------------------------------------------------------ */

static uint32_t
version_here(const struct pbox_table *t, uint32_t i)
{
	const struct pbox_chunk *c = &t->chunk[i];
	uint32_t lowest = 0;

	for (unsigned f = 0; t->home[i].box == t->box && f < c->fragments; f++) {
		uint32_t v = pbox_chunk_frag_version(c, f);

		if (f == 0 || pbox_serial_diff(v, lowest) < 0)
			lowest = v;
	}
	return lowest;
}

/* Chunks `first` and on: by the plan, or as they are. */
static void
reply_homes(struct pbox_registrar *r, const struct pbox_frame *f, struct pbox_job *job,
	const struct pbox_table *t, struct pbox_homes *m, bool plan)
{
	uint32_t left = t->n_chunks - m->first, most = PBOX_HOMES_MOST;
	uint32_t room =
		(r->conf.mtu - PBOX_MTU_OVERHEAD - PBOX_TAG_LEN - HOMES_FIXED) / HOMES_ENTRY;

	PBOX_ASSERT(m->first <= t->n_chunks && t->home != NULL);
	/* no port of this box has a smaller MTU */
	most = room < most ? room : most;
	if (plan)
		m->count = (uint16_t)(left < most ? left : most);
	m->chunks = t->n_chunks;
	m->epoch = job->map_epoch;
	m->flags = pbox_homes_decided(job->decider);
	m->out = job->out;
	for (uint32_t i = m->first; i < m->first + m->count; i++) {
		const struct pbox_table_home *h = plan ? &t->plan[i] : &t->home[i];
		bool here = !plan && h->box == t->box;

		m->home[i - m->first] = (struct pbox_home){
			.box = h->box,
			.endpoint = (uint8_t)(here ? t->layout.chunk[i].endpoint : 0),
			.epoch = h->epoch,
			.version = here ? version_here(t, i) : 0,
		};
	}
	registrar_reply(r, f, PBOX_HOMES_OK, pbox_homes_encode(r->scratch, sizeof(r->scratch), m));
}

/* A box that was started again has the table's chunks where the first map had them, until a worker that had the table before shows what has
 * moved. Is there one that has not yet? New processes have nothing to show, though chunks that come wait for all workers. */
static bool
homes_to_be_shown(const struct pbox_job *job, const struct pbox_job_table *jt)
{
	for (unsigned w = 0; w < job->workers; w++) {
		const struct pbox_member *mb = &job->member[w];

		if (registrar_has_session(job, w) && !mb->holds_none &&
			mb->declared > jt->fixed.table && registrar_is_restorer(jt, w) &&
			homes_member(job, w)->tables <= jt->fixed.table)
			return true;
	}
	return false;
}

static void
homes_question(struct pbox_registrar *r, const struct pbox_frame *f, struct pbox_job *job,
	const struct pbox_job_table *jt, struct pbox_homes *m)
{
	const struct pbox_table *t = &jt->t;
	struct homes_member *w = homes_member(job, f->hdr.worker);

	/* who has the table shows it to all boxes anyway, and learns there: others may wait for that */
	if (jt->restored && job->member[f->hdr.worker].holds_none && homes_to_be_shown(job, jt)) {
		homes_not_ready(r, f, job,
			"workers that have the table have not shown where its chunks are");
		return;
	}
	if (m->first > t->n_chunks)
		m->first = t->n_chunks;
	w->asked = job->map_epoch;
	w->knows = true;
	reply_homes(r, f, job, t, m, true);
}

bool
registrar_homes_forgotten(const struct pbox_job *job)
{
	if (homes_of(job)->took)
		return true;
	for (uint32_t i = 0; i < job->n_tables; i++)
		if (job->table[i]->restored)
			return true;
	return false;
}

/* The box that decides takes from no worker what it has decided since it was started, and before it decides
 * anything after a restart nothing that would keep it from that (R16.9). Has a member this epoch from it, or from before the restart? */
static bool
homes_may_be(const struct pbox_job *job, uint16_t epoch, uint16_t known)
{
	const struct homes *h = homes_of(job);

	if (registrar_homes_forgotten(job) && !h->made)
		return (uint16_t)(epoch - PBOX_MAP_EPOCH) <= HOMES_HEARD;
	return !epoch_is_later(epoch, known) ||
	       (registrar_homes_forgotten(job) && epoch_is_later(h->first, epoch));
}

static bool
homes_are_mine(const struct pbox_job *job, const struct pbox_table *t, const struct pbox_homes *m)
{
	const struct homes *own = homes_of(job);

	for (unsigned i = 0; i < m->count; i++) {
		const struct pbox_table_home *h = &t->plan[m->first + i];
		bool decided = !registrar_homes_forgotten(job) ||
			       (own->made && !epoch_is_later(own->first, h->epoch));

		if (!homes_may_be(job, m->home[i].epoch, h->epoch) ||
			(decided && m->home[i].epoch == h->epoch && m->home[i].box != h->box))
			return false;
	}
	return homes_may_be(job, m->epoch, job->map_epoch);
}

/* R16.17: it was taken for dead, and another box decides by this map, whose number none of this one's can have. */
static bool
homes_taken(const struct pbox_registrar *r, const struct pbox_job *job, const struct pbox_homes *m)
{
	return pbox_homes_decides(m) != r->conf.boxes.box &&
	       epoch_is_later(m->epoch, (uint16_t)(job->map_epoch + HOMES_UNKNOWN - 1));
}

/* Of boxes that there are; the one that decides is never out. */
static bool
homes_fit(const struct pbox_registrar *r, const struct pbox_table *t, const struct pbox_homes *m)
{
	for (unsigned i = 0; i < m->count; i++)
		if (m->home[i].box >= r->conf.boxes.boxes)
			return false;
	return m->chunks == t->n_chunks && t->home != NULL &&
	       pbox_homes_decides(m) < r->conf.boxes.boxes &&
	       (m->out >> pbox_homes_decides(m) & 1) == 0 && m->out >> r->conf.boxes.boxes == 0;
}

/* False: it is refused, and nothing has changed. */
static bool
homes_check(struct pbox_registrar *r, const struct pbox_frame *f, const struct pbox_job *job,
	const struct pbox_table *t, const struct pbox_homes *m)
{
	if (!homes_fit(r, t, m))
		return registrar_refuse(r, f, PBOX_E_BAD_REQUEST, m->table,
			"table %u has %u chunks at boxes 0 to %u, and the one that decides is never out",
			m->table, t->n_chunks, r->conf.boxes.boxes - 1u);
	if (registrar_decides(r, job) && !homes_taken(r, job, m) && !homes_are_mine(job, t, m))
		return registrar_refuse(r, f, PBOX_E_BAD_REQUEST, m->table,
			"worker %u shows map %u of table %u, chunks %u and on, which this box has not made: its newest is map %u",
			f->hdr.worker, m->epoch, m->table, m->first, job->map_epoch);
	return true;
}

static void
note_shown(struct homes *h, uint16_t epoch)
{
	if (h->shown == 0 || epoch_is_later(epoch, h->shown))
		h->shown = epoch;
}

static void
homes_shown(struct pbox_registrar *r, const struct pbox_frame *f, struct pbox_job *job,
	struct pbox_job_table *jt, struct pbox_homes *m)
{
	struct pbox_error err = {0};
	int ret;

	if (!homes_check(r, f, job, &jt->t, m))
		return;
	if (homes_of(job)->mails > 0) {
		homes_not_ready(r, f, job, "chunks come and leave");
		return;
	}
	ret = adopt(r, job, jt, m, &err);
	if (ret < 0)
		registrar_event(r, PBOX_LOG_WARN, "job '%s': %s", job->name, err.text);
	if (ret != 0) {
		homes_not_ready(r, f, job, ret < 0 ? err.text : "chunks come and leave");
		return;
	}
	if ((m->flags & PBOX_HOMES_RESTORE) == 0) {
		registrar_restore_without(r, job, jt, f->hdr.worker);
		/* not before all boxes know that nothing of it is to be waited for */
		if ((m->flags & PBOX_HOMES_PREPARE) == 0 && registrar_restoring(r, job, jt) > 0) {
			homes_not_ready(r, f, job, "chunks that come are being restored");
			return;
		}
	}
	if ((m->flags & PBOX_HOMES_PREPARE) == 0 && m->first + m->count == m->chunks) {
		struct homes_member *w = homes_member(job, f->hdr.worker);

		if (w->tables <= m->table)
			w->tables = m->table + 1;
		if (m->table + 1 == job->n_tables) {
			w->knows = true;
			w->shown = m->epoch;
			note_shown(homes_of(job), m->epoch);
		}
	}
	reply_homes(r, f, job, &jt->t, m, false);
}

static void
on_homes(struct pbox_registrar *r, const struct pbox_frame *f, struct pbox_job *job)
{
	struct pbox_job_table *jt;
	struct pbox_homes m;

	if (r->conf.boxes.boxes < 2) {
		count_control(r, PBOX_RS_DROP_TYPE);
		registrar_unsupported(r, f, pbox_type_name(f->hdr.type));
		return;
	}
	if (pbox_homes_decode(f->payload, f->hdr.length, &m) < 0) {
		count_control(r, PBOX_RS_DROP_MALFORMED);
		return;
	}
	count_control(r, PBOX_RS_RX_HOMES);
	jt = m.table < job->member[f->hdr.worker].declared ? job->table[m.table] : NULL;
	if (jt == NULL)
		registrar_refuse(
			r, f, PBOX_E_BAD_REQUEST, m.table, "declare table %u first", m.table);
	else if (jt->failed)
		registrar_refuse(
			r, f, (enum pbox_errcode)jt->error.code, m.table, "%s", jt->error.text);
	else if (jt->fixed.discipline == PBOX_DISCIPLINE_CLOCK)
		registrar_refuse(r, f, PBOX_E_BAD_REQUEST, m.table,
			"table %u is in clocks, and its chunks stay where they are", m.table);
	else if (!jt->built || jt->shards_open < r->conf.n_shards)
		homes_not_ready(r, f, job, "the table is not mapped yet");
	else if (m.count == 0 && m.epoch == 0)
		homes_question(r, f, job, jt, &m);
	else
		homes_shown(r, f, job, jt, &m);
}

/* ---- new maps -------------------------------------------------------------------------------------- */

/* The workers hear of a new map at once. */
static void
ask_workers(struct pbox_registrar *r, struct pbox_job *job)
{
	struct homes *h = homes_of(job);

	h->asked++;
	h->ask_ns = r->now_ns + ASK_EVERY;
	for (unsigned w = 0; w < job->workers; w++)
		if (registrar_has_session(job, w) && homes_member(job, w)->asked != job->map_epoch)
			registrar_ping(r, job, w);
}

static void
homes_tick(struct pbox_registrar *r, struct pbox_job *job)
{
	const struct homes *h = homes_of(job);

	if (h->ask_ns != 0 && r->now_ns >= h->ask_ns && h->asked < ASK_TIMES)
		ask_workers(r, job);
}

void
registrar_homes_new(struct pbox_registrar *r, struct pbox_job *job, uint16_t epoch, uint16_t out)
{
	struct homes *h = homes_of(job);

	/* one box makes maps, is in all of them, and gives each a later number (R16.9, R16.12, R16.17) */
	PBOX_ASSERT(registrar_decides(r, job) && (out >> r->conf.boxes.box & 1) == 0);
	PBOX_ASSERT(epoch_is_later(epoch, job->map_epoch));
	note_epoch(job, epoch);
	note_out(r, job, epoch, out, job->decider);
	if (!h->made)
		h->first = epoch;
	h->asked = 0;
	h->made = true;
	ask_workers(r, job);
}

void
registrar_homes_begin(struct pbox_job *job, uint16_t epoch)
{
	note_epoch(job, epoch);
}

bool
registrar_homes_steady(
	const struct pbox_job *job, const struct pbox_job_table *jt, uint32_t *changes)
{
	const struct pbox_table *t = &jt->t;

	*changes = homes_of(job)->changes;
	if (homes_of(job)->mails > 0 || jt->moving)
		return false;
	for (uint32_t i = 0; i < t->n_chunks; i++)
		if (t->plan[i].epoch != t->home[i].epoch)
			return false;
	return true;
}

void
registrar_homes_take(const struct pbox_registrar *r, struct pbox_job *job)
{
	struct homes *h = homes_of(job);

	PBOX_ASSERT(!registrar_decides(r, job));
	job->decider = r->conf.boxes.box;
	h->took = true;
	h->made = false;
	h->shown = 0;
	/* it hears from all of them which box has which chunk */
	for (unsigned w = 0; w < job->workers; w++)
		homes_member(job, w)->knows = false;
}

bool
registrar_homes_unknown(const struct pbox_job *job, uint16_t epoch)
{
	const struct homes *h = homes_of(job);
	uint16_t known = h->first;

	if (h->shown != 0 && epoch_is_later(h->shown, known))
		known = h->shown;
	return h->made && (uint16_t)(epoch - known) >= HOMES_UNKNOWN;
}

bool
registrar_homes_made(const struct pbox_job *job)
{
	return homes_of(job)->made;
}

bool
registrar_homes_all_asked(const struct pbox_job *job)
{
	for (unsigned w = 0; w < job->workers; w++)
		if (registrar_has_session(job, w) && homes_member(job, w)->asked != job->map_epoch)
			return false;
	return true;
}

bool
registrar_homes_told(const struct pbox_job *job, unsigned worker)
{
	return homes_member(job, worker)->knows;
}

/* A worker without tables has nothing to show, and one that began before any chunk had moved neither. */
static bool
has_shown(const struct pbox_job *job, unsigned w)
{
	uint16_t shown = homes_member(job, w)->shown;

	return job->member[w].declared == 0 ||
	       !epoch_is_later(job->map_epoch, shown != 0 ? shown : PBOX_MAP_EPOCH);
}

void
registrar_homes_moving(
	const struct pbox_registrar *r, const struct pbox_job *job, struct pbox_moving_view *out)
{
	*out = (struct pbox_moving_view){
		.epoch = job->map_epoch,
		.busy = homes_of(job)->mails > 0,
	};
	for (unsigned w = 0; w < job->workers; w++)
		out->unshown += registrar_has_session(job, w) && !has_shown(job, w);
	for (uint32_t k = 0; k < job->n_tables; k++) {
		const struct pbox_job_table *jt = job->table[k];
		struct pbox_shard_restoring restoring;

		if (!jt->built)
			continue;
		for (uint32_t i = 0; jt->t.home != NULL && i < jt->t.n_chunks; i++) {
			out->here += jt->t.home[i].box == jt->t.box;
			out->planned += jt->t.plan[i].box == jt->t.box;
		}
		restoring = registrar_restoring_of(r, job, k);
		out->restoring += restoring.left;
		out->needed += restoring.needed;
		out->stateless += restoring.stateless;
	}
}

const struct registrar_part registrar_homes_part = {
	.name = "which box has which chunk",
	.types = {{on_homes, PBOX_HOMES}},
	.mails = 1u << PBOX_MAIL_MOVES,
	.mail = homes_moved,
	.tick = homes_tick,
	.job_state = sizeof(struct homes),
	.member_state = sizeof(struct homes_member),
};
