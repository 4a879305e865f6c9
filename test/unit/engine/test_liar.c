/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * Members of a job that lie as boldly as can be: right frames of all modes, of which fields have all bits, the first and the last values, and
 * those beside and half a circle from what would be right. Beside them two honest jobs make rounds: each has the bits and the answers that it
 * has without them. PBOX_LIES: frames a mode, 20,000 if it is not there.
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <pbox_slots.h>

#include "fixture.h"

const char unit_suite[] = "engine: bold liars";

#define MS      UINT64_C(1000000)
#define F       352 /* elements of a fragment, and of a chunk */
#define CHUNKS  12
#define LIARS   3
#define HONEST  2
#define LIVES   1500 /* frames after which the liars' job begins again */
#define SLOTS   16
#define PAYLOAD 1410

static const struct pbox_registrar_boxes list = {
	.boxes = 3,
	.at = {{{10, 0, 0, 1}, 7269}, {{10, 0, 0, 2}, 7269}, {{10, 0, 0, 3}, 7269}},
	.release = "0.1.0",
};

struct mode {
	const char *name;
	bool fleet, restores;
	uint8_t box, policy, mode, optimiser, discipline;
	uint8_t types[12]; /* control frames and data frames that they send, 0: no more */
	uint8_t must[4];   /* answers that some of them have: else they never got there */
};

static const struct mode modes[] = {
	{.name = "work by plan",
		.policy = PBOX_POLICY_REASSIGN,
		.mode = PBOX_MODE_OPTIMISER,
		.optimiser = PBOX_OPT_SGD,
		.types = {PBOX_WORK, PBOX_WORK, PBOX_TASK, PBOX_TASK, PBOX_PUSHPULL, PBOX_PUSHPULL,
			PBOX_PULL, PBOX_PUSH, PBOX_INIT, PBOX_SET, PBOX_STATUS},
		.must = {PBOX_WORK_OK, PBOX_TASK_OK, PBOX_TASK, PBOX_RESULT}},
	{.name = "work by plan, restored",
		.restores = true,
		.policy = PBOX_POLICY_REASSIGN,
		.mode = PBOX_MODE_OPTIMISER,
		.optimiser = PBOX_OPT_MOMENTUM,
		.types = {PBOX_WORK, PBOX_WORK, PBOX_TASK, PBOX_RESTORE, PBOX_RESTORE,
			PBOX_PUSHPULL, PBOX_FETCH, PBOX_INIT},
		.must = {PBOX_WORK_OK, PBOX_TASK_OK, PBOX_RESTORE_OK}},
	{.name = "clocks",
		.mode = PBOX_MODE_OPTIMISER,
		.optimiser = PBOX_OPT_ADD,
		.discipline = PBOX_DISCIPLINE_CLOCK,
		.types = {PBOX_PUSH, PBOX_PUSH, PBOX_PULL, PBOX_PULL, PBOX_PUSHPULL, PBOX_INIT,
			PBOX_SET, PBOX_STATUS, PBOX_FETCH},
		.must = {PBOX_PUSH_OK, PBOX_RESULT}},
	{.name = "clocks, restored",
		.restores = true,
		.mode = PBOX_MODE_OPTIMISER,
		.optimiser = PBOX_OPT_ADD,
		.discipline = PBOX_DISCIPLINE_CLOCK,
		.types = {PBOX_RESTORE, PBOX_RESTORE, PBOX_PUSH, PBOX_PULL, PBOX_INIT, PBOX_MAP},
		.must = {PBOX_RESTORE_OK, PBOX_PUSH_OK, PBOX_RESULT}},
	{.name = "the first box",
		.fleet = true,
		.mode = PBOX_MODE_OPTIMISER,
		.optimiser = PBOX_OPT_MOMENTUM,
		.types = {PBOX_HOMES, PBOX_HOMES, PBOX_HOMES, PBOX_BOXES, PBOX_STATS, PBOX_PUSHPULL,
			PBOX_RESTORE, PBOX_FETCH, PBOX_INIT, PBOX_PULL, PBOX_SET},
		.must = {PBOX_HOMES_OK, PBOX_NOT_READY, PBOX_RESULT, PBOX_FETCHED}},
	{.name = "the first box, started again",
		.fleet = true,
		.restores = true,
		.mode = PBOX_MODE_OPTIMISER,
		.optimiser = PBOX_OPT_MOMENTUM,
		.types = {PBOX_HOMES, PBOX_HOMES, PBOX_RESTORE, PBOX_RESTORE, PBOX_FETCH, PBOX_INIT,
			PBOX_STATS, PBOX_PUSHPULL, PBOX_BOXES},
		.must = {PBOX_HOMES_OK, PBOX_NOT_READY, PBOX_RESTORE_OK}},
	{.name = "another box",
		.fleet = true,
		.box = 1,
		.mode = PBOX_MODE_OPTIMISER,
		.optimiser = PBOX_OPT_MOMENTUM,
		.types = {PBOX_HOMES, PBOX_HOMES, PBOX_RESTORE, PBOX_FETCH, PBOX_INIT,
			PBOX_PUSHPULL, PBOX_PULL, PBOX_STATS},
		.must = {PBOX_HOMES_OK, PBOX_NOT_READY, PBOX_RESULT}},
};

static const struct mode *mode;
static struct pbox_random rnd;
static struct fx_worker liar[LIARS], honest[2][HONEST];
static uint32_t chunk[2],
	turn[2];      /* of the honest jobs: a chunk that is here, and their next round */
static unsigned life; /* runs of the liars' job so far */
static uint32_t round_now, rounds[CHUNKS]; /* the next of theirs, of any chunk and of each */
static uint16_t frag_len;                  /* of theirs, bytes */
static struct pbox_work_ok own[LIARS];
static struct pbox_homes homes; /* that a liar has heard */
static unsigned seen[256];      /* answers to liars, by type */
static const uint8_t junk[PAYLOAD] = {1, 2, 3};

static unsigned
below(unsigned n)
{
	return (unsigned)pbox_random_below(&rnd, n);
}

/* Instead of a value of so many bytes. */
static uint64_t
bold(uint64_t is, unsigned bytes)
{
	uint64_t max = bytes == 8 ? UINT64_MAX : (UINT64_C(1) << 8 * bytes) - 1;
	const uint64_t to[] = {0, 1, 2, 3, SLOTS - 1, SLOTS, CHUNKS, CHUNKS - 1, max, max - 1,
		max >> 1, (max >> 1) + 1, is + 1, is - 1, is + 32767, is + 32768, is - 32767,
		is + 256, is ^ (UINT64_C(1) << below(8 * bytes)), is + (max >> 1),
		is + (max >> 1) + 1, UINT64_C(0x7ff0000000000000), UINT64_C(0x412e848000000000),
		UINT64_C(0x3e112e0be826d695)};

	return to[below(sizeof(to) / sizeof(to[0]))] & max;
}

/* Some fields of a payload; most have their own size as their place. */
static void
spoil(uint8_t *p, size_t len)
{
	for (unsigned n = below(4); n > 0 && len > 0; n--) {
		unsigned bytes = 1u << below(4);
		size_t at = below((unsigned)len) / bytes * bytes;
		uint64_t v = 0;

		if (at + bytes > len)
			continue;
		memcpy(&v, p + at, bytes);
		v = bold(v, bytes);
		memcpy(p + at, &v, bytes);
	}
}

/* ---- the honest ---------------------------------------------------------------------------------- */

/* The first chunk of table 0 that is at this box. */
static uint32_t
chunk_here(struct fx_worker *w)
{
	const struct fx_sent *s = fx_map(w, 0, 0);
	struct pbox_chunk_entry e;
	struct pbox_mapped page;
	struct pbox_cursor cur;

	CU_ASSERT_EQUAL_FATAL(s->hdr.type, PBOX_MAPPED);
	CU_ASSERT_EQUAL_FATAL(pbox_mapped_decode(s->payload, s->hdr.length, &page, &cur), 0);
	for (unsigned k = 0; k < page.count; k++) {
		CU_ASSERT_EQUAL_FATAL(pbox_mapped_next(&cur, &e), 0);
		if (e.endpoint >> 8 == mode->box)
			return e.chunk_id;
	}
	CU_FAIL_FATAL("no chunk is here");
	return 0;
}

static void
honest_begin(unsigned j)
{
	static const struct fx_table reduce = {.elements = CHUNKS * F, .op = PBOX_OP_SUM};

	for (uint16_t i = 0; i < HONEST; i++) {
		honest[j][i] = (struct fx_worker){.job = j == 0 ? "seven" : "eight",
			.worker = i,
			.workers = HONEST,
			.number = mode->box == 0 ? 0 : 7,
			.boxes = mode->fleet};
		CU_ASSERT_TRUE_FATAL(fx_try_join(&honest[j][i]));
	}
	for (unsigned i = 0; i < HONEST; i++)
		CU_ASSERT_EQUAL_FATAL(
			fx_declare(&honest[j][i], 0, &reduce)->hdr.type, PBOX_DECLARED);
	fx_work();
	for (unsigned i = 0; i < HONEST; i++)
		chunk[j] = chunk_here(&honest[j][i]);
	turn[j] = 1;
}

/* A round: nothing until the last one has come, then each has its result, and nobody else anything. */
static void
honest_round(unsigned j)
{
	static float v[F], sum[F];

	for (unsigned i = 0; i < F; i++) {
		v[i] = (float)(turn[j] % 1000) + (float)i + (float)j;
		sum[i] = HONEST * v[i];
	}
	fx_clear();
	for (unsigned i = 0; i < HONEST; i++) {
		struct pbox_hdr h = fx_data(&honest[j][i], PBOX_PUSHPULL, chunk[j], 0, turn[j]);
		bool held = false;

		UNIT_EQ_U64(fx.n_sent, 0);
		h.format = PBOX_FMT_FP32;
		h.length = sizeof(v);
		for (unsigned s = 0; s < FX_SHARDS; s++)
			held |= fx_rx(s, &honest[j][i], &h, v);
		CU_ASSERT_EQUAL(held, true);
	}
	UNIT_EQ_U64(fx.n_sent, HONEST);
	for (unsigned i = 0; i < fx.n_sent; i++) {
		UNIT_EQ_U64(fx.sent[i].hdr.type, PBOX_RESULT);
		UNIT_EQ_U64(fx.sent[i].hdr.round, turn[j]);
		CU_ASSERT_EQUAL(memcmp(fx.sent[i].payload, sum, sizeof(sum)), 0);
	}
	turn[j]++;
}

/* ---- the liars ----------------------------------------------------------------------------------- */

static struct fx_table
liars_table(void)
{
	return (struct fx_table){.elements = CHUNKS * F,
		.mode = mode->mode,
		.op = PBOX_OP_SUM,
		.optimiser = mode->optimiser,
		.discipline = mode->discipline,
		.flags = mode->restores ? PBOX_DECLARE_RESTORE : 0};
}

/* The length of a fragment, as the map has it. */
static void
liar_map(struct fx_worker *w)
{
	const struct fx_sent *s = fx_map(w, 0, 0);
	struct pbox_mapped page;
	struct pbox_cursor cur;

	if (s != NULL && s->hdr.type == PBOX_MAPPED &&
		pbox_mapped_decode(s->payload, s->hdr.length, &page, &cur) == 0)
		frag_len = (uint16_t)(4 * (page.frag_elements < F ? page.frag_elements : F));
}

/* What came is counted, and says how far their rounds are. */
static void
note_answers(void)
{
	for (unsigned i = 0; i < fx.n_sent; i++) {
		const struct pbox_hdr *h = &fx.sent[i].hdr;

		seen[h->type]++;
		if (h->type == PBOX_RESULT && h->chunk < CHUNKS && h->job == liar[0].job_no)
			rounds[h->chunk] = h->round + 1;
		if (h->type == PBOX_WORK_OK && h->worker < LIARS)
			pbox_work_ok_decode(fx.sent[i].payload, h->length, &own[h->worker]);
	}
	fx_clear();
}

static void
liar_joins(unsigned i)
{
	const struct fx_table t = liars_table();
	struct fx_worker *w = &liar[i];

	*w = (struct fx_worker){.job = "five",
		.worker = (uint16_t)i,
		.workers = LIARS,
		.policy = mode->policy,
		.slots = mode->policy == PBOX_POLICY_REASSIGN ? SLOTS : 0,
		.run = {1, (uint8_t)life, (uint8_t)(life >> 8)},
		.number = mode->box == 0 ? 0 : 7 + life,
		.boxes = mode->fleet};
	if (!fx_try_join(w)) {
		w->token = 0;
		return;
	}
	fx_declare(w, 0, &t);
	fx_work();
	liar_map(w);
}

static const struct pbox_job *
liars_job(void)
{
	for (unsigned i = 0; i < 4; i++) {
		const struct pbox_job *k = pbox_registrar_job(fx.registrar, i);

		if (k != NULL && strcmp(k->name, "five") == 0)
			return k;
	}
	return NULL;
}

/* Who of them is gone, by its lies or a command, comes again; all do after a while, in a new run. */
static void
liars_come(bool anew)
{
	for (unsigned i = 0; anew && i < LIARS; i++)
		if (liar[i].token != 0)
			fx_control(&liar[i], PBOX_LEAVE, NULL, 0);
	for (unsigned i = 0; anew && liars_job() != NULL && i < LIARS; i++)
		pbox_registrar_kick(
			fx.registrar, liars_job()->id, i, "", fx.now, &(struct pbox_error){0});
	life += anew;
	if (anew) {
		fx_tick();
		round_now = 1;
		memset(own, 0, sizeof(own));
		for (unsigned c = 0; c < CHUNKS; c++)
			rounds[c] = 1;
		homes = (struct pbox_homes){.chunks = CHUNKS, .epoch = 1};
	}
	for (unsigned i = 0; i < LIARS; i++) {
		const struct fx_sent *s = liar[i].token != 0 && !anew
						  ? fx_control(&liar[i], PBOX_PING, NULL, 0)
						  : NULL;

		if (s == NULL || s->hdr.type != PBOX_PONG)
			liar_joins(i);
	}
}

static size_t
right_payload(unsigned type, uint8_t *p)
{
	struct pbox_work_ask work = {.round = round_now + below(2),
		.slots = (uint16_t)below(SLOTS),
		.payloads = 1,
		.fits = UINT32_MAX,
		.trained = 0,
		.compute = 1e-3 * (1 + below(100)),
		.seed = PBOX_WORK_NONE,
		.samples = PBOX_WORK_NONE,
		.ranges = (uint16_t)below(3)};
	struct pbox_task task = {.round = round_now, .ranges = (uint16_t)below(3)};
	struct pbox_stats_msg stats = {.boxes = 3, .rounds = round_now, .seconds = 1, .squares = 1};
	struct pbox_homes shown = homes;
	struct pbox_map map = {0, below(CHUNKS)};
	struct pbox_set set = {.group = PBOX_ALL_GROUPS, .count = 1, .from_round = round_now + 1};

	for (unsigned i = 0; i < 2; i++)
		work.range[i] = task.range[i] =
			(struct pbox_slot_range){(uint16_t)(8 * i), (uint16_t)(8 * i + 8)};
	task.first = (uint16_t)below(SLOTS);
	task.end = (uint16_t)(task.first + below(SLOTS - task.first));
	set.param[0].id = PBOX_HYPER_LR;
	set.param[0].value = .5;
	shown.count = below(3) == 0 ? 0 : CHUNKS;
	shown.first = 0;
	shown.epoch = shown.count == 0 ? 0 : homes.epoch;
	shown.flags = (uint16_t)below(4);
	switch (type) {
	case PBOX_WORK:
		return pbox_work_ask_encode(p, PAYLOAD, &work);
	case PBOX_TASK:
		return pbox_task_encode(p, PAYLOAD, &task);
	case PBOX_STATS:
		return pbox_stats_encode(p, PAYLOAD, &stats);
	case PBOX_HOMES:
		return pbox_homes_encode(p, PAYLOAD, &shown);
	case PBOX_MAP:
		return pbox_map_encode(p, PAYLOAD, &map);
	case PBOX_SET:
		return pbox_set_encode(p, PAYLOAD, &set);
	default:
		return 0;
	}
}

/* The payload is as long as it is said to be, for the sanitizers. */
static void
liar_asks(struct fx_worker *w, unsigned type)
{
	uint8_t p[PAYLOAD], *exact;
	size_t len = right_payload(type, p);
	const struct fx_sent *s;

	spoil(p, len);
	if (below(16) == 0)
		len = below((unsigned)len + 1);
	exact = malloc(len + 1);
	CU_ASSERT_PTR_NOT_NULL_FATAL(exact);
	memcpy(exact, p, len);
	s = fx_control(w, type, exact, len);
	free(exact);
	if (s != NULL && s->hdr.type == PBOX_HOMES_OK && below(2) == 0) {
		struct pbox_homes heard;

		/* the first box never says what nobody can read */
		CU_ASSERT_EQUAL(pbox_homes_decode(s->payload, s->hdr.length, &heard), 0);
		if (heard.count == CHUNKS)
			homes = heard;
	}
}

static void
liar_brings(struct fx_worker *w, unsigned type)
{
	struct pbox_hdr h =
		fx_data(w, (enum pbox_type)type, below(CHUNKS), 0, round_now + below(2));
	bool payload = type == PBOX_PUSH || type == PBOX_PUSHPULL || type == PBOX_INIT ||
		       (type == PBOX_RESTORE && below(2) == 0);

	h.map_epoch = homes.epoch;
	h.base = mode->policy == PBOX_POLICY_REASSIGN
			 ? pbox_node_code((struct pbox_node){
				   (uint16_t)(below(SLOTS) & ~3u), (uint16_t)below(3)})
			 : below(4);
	h.flags = (uint16_t)(below(2) ? PBOX_F_LAST : PBOX_F_HAVE);
	h.flags |= below(4) == 0 ? PBOX_F_LATEST : 0;
	h.aux = type == PBOX_FETCH || type == PBOX_INIT ? below(4) : h.aux;
	h.format = payload ? PBOX_FMT_FP32 : 0;
	h.length = payload ? frag_len : 0;
	if (payload && type == PBOX_RESTORE && mode->discipline == PBOX_DISCIPLINE_CLOCK)
		h.length = (uint16_t)(frag_len + LIARS);
	for (unsigned n = below(4); n > 0; n--)
		switch (below(9)) {
		case 0:
			h.chunk = (uint32_t)bold(h.chunk, 4);
			break;
		case 1:
			h.frag = (uint16_t)bold(h.frag, 2);
			break;
		case 2:
			h.round = (uint32_t)bold(h.round, 4);
			break;
		case 3:
			h.base = (uint32_t)bold(h.base, 4);
			break;
		case 4:
			h.aux = (uint32_t)bold(h.aux, sizeof(h.aux));
			break;
		case 5:
			h.weight = (uint32_t)bold(h.weight, sizeof(h.weight));
			break;
		case 6:
			h.map_epoch = (uint16_t)bold(h.map_epoch, 2);
			break;
		case 7:
			h.flags = (uint16_t)bold(h.flags, 2) & (uint16_t)~PBOX_F_AUTH;
			break;
		default:
			h.length = (uint16_t)(bold(h.length, 2) % PAYLOAD);
			h.format = (uint8_t)below(4);
		}
	fx_clear();
	for (unsigned s = 0; s < FX_SHARDS; s++)
		fx_rx(s, w, &h, h.length > 0 ? junk : NULL);
}

/* A frame as it should be. */
static void
does_right(
	unsigned i, enum pbox_type type, uint32_t c, uint32_t round, uint32_t base, uint16_t flags)
{
	struct pbox_hdr h = fx_data(&liar[i], type, c, 0, round);

	h.map_epoch = mode->fleet && homes.count == CHUNKS ? homes.home[c].epoch : PBOX_MAP_EPOCH;
	h.flags = flags;
	h.base = base;
	h.aux = type == PBOX_INIT ? 0 : h.aux;
	if (type != PBOX_RESTORE || (flags & PBOX_F_LAST) != 0) {
		h.format = PBOX_FMT_FP32;
		h.length = frag_len;
	}
	h.flags &= (uint16_t) ~(type == PBOX_RESTORE ? PBOX_F_LAST : 0);
	if (type == PBOX_RESTORE && mode->discipline == PBOX_DISCIPLINE_CLOCK) {
		h.aux = 1;
		h.length = (uint16_t)(h.length > 0 ? h.length + LIARS : 0);
	}
	fx_clear();
	for (unsigned s = 0; s < FX_SHARDS; s++)
		fx_rx(s, &liar[i], &h, h.length > 0 ? junk : NULL);
	note_answers();
}

/* Its own slots of a round, or its push. */
static void
brings_own(unsigned i, uint32_t c)
{
	struct pbox_node node[PBOX_RANGE_NODES];

	if (mode->policy != PBOX_POLICY_REASSIGN) {
		does_right(i, mode->discipline == PBOX_DISCIPLINE_CLOCK ? PBOX_PUSH : PBOX_PUSHPULL,
			c, mode->discipline == PBOX_DISCIPLINE_CLOCK ? round_now : rounds[c], 0,
			PBOX_F_LAST);
		return;
	}
	for (unsigned k = 0; k < own[i].ranges; k++) {
		unsigned n =
			pbox_range_nodes(own[i].range[k].first, own[i].range[k].end, SLOTS, node);

		while (n-- > 0)
			does_right(i, PBOX_PUSHPULL, c, rounds[c], pbox_node_code(node[n]),
				PBOX_F_LAST);
	}
}

/* A round of all of them, so that there is something to lie about. */
static void
liars_work(void)
{
	uint8_t p[PAYLOAD];

	for (unsigned i = 0; mode->policy == PBOX_POLICY_REASSIGN && i < LIARS; i++) {
		struct pbox_work_ask m = {.round = rounds[0],
			.fits = UINT32_MAX,
			.seed = PBOX_WORK_NONE,
			.samples = PBOX_WORK_NONE,
			.edition = own[i].edition,
			.ranges = own[i].ranges};

		memcpy(m.range, own[i].range, sizeof(m.range));
		fx_control(&liar[i], PBOX_WORK, p, pbox_work_ask_encode(p, sizeof(p), &m));
		note_answers();
	}
	for (uint32_t c = 0; c < CHUNKS; c++)
		for (unsigned i = 0; i < LIARS; i++) {
			if (i == 0 && !mode->restores && rounds[c] == 1)
				does_right(0, PBOX_INIT, c, 0, 0, PBOX_F_LAST);
			if (mode->restores && rounds[c] == 1)
				does_right(i, PBOX_RESTORE, c, 4, 0, PBOX_F_HAVE);
			if (mode->restores && rounds[c] == 1 && i == LIARS - 1)
				for (unsigned k = 0; k < LIARS; k++)
					does_right(k, PBOX_RESTORE, c, 4, 0,
						PBOX_F_HAVE | PBOX_F_LAST);
			if (mode->restores && rounds[c] == 1 && i == LIARS - 1)
				rounds[c] = 5;
		}
	for (uint32_t c = 0; c < CHUNKS; c++)
		for (unsigned i = 0; i < LIARS; i++)
			brings_own(i, c);
	for (uint32_t c = 0; c < CHUNKS; c++)
		round_now = rounds[c] > round_now ? rounds[c] : round_now;
	round_now += mode->discipline == PBOX_DISCIPLINE_CLOCK;
}

/* What an operator looks at, and does. */
static void
operator_looks(bool commands)
{
	const struct pbox_job *k = liars_job();
	struct pbox_homes_view view;
	struct pbox_error err;
	unsigned stateless;

	if (k == NULL)
		return;
	pbox_registrar_view_homes(k, &view);
	CU_ASSERT_EQUAL(view.out & ~6u, 0);
	if (!mode->fleet || !commands)
		return;
	fx_clear();
	switch (below(3)) {
	case 0:
		pbox_registrar_scale(fx.registrar, k->id, (uint16_t)(1 + below(7)), fx.now, &err);
		break;
	case 1:
		pbox_registrar_move(
			fx.registrar, k->id, 0, below(CHUNKS), CHUNKS - 1, below(3), fx.now, &err);
		break;
	default:
		pbox_registrar_failover(
			fx.registrar, k->id, 1 + below(2), below(2) != 0, fx.now, &stateless, &err);
	}
}

/* A first box that has forgotten nothing makes all maps itself. */
static void
lie(void)
{
	unsigned n = 0;
	struct fx_worker *w = &liar[below(LIARS)];
	const struct pbox_job *k = liars_job();
	bool decides = mode->fleet && mode->box == 0 && !mode->restores && k != NULL;
	uint16_t epoch = decides ? k->map_epoch : 0, out = decides ? k->out : 0;
	unsigned type;

	while (n < sizeof(mode->types) && mode->types[n] != 0)
		n++;
	type = mode->types[below(n)];
	if (type < PBOX_FIRST_DATA_TYPE)
		liar_asks(w, type);
	else
		liar_brings(w, type);
	note_answers();
	if (decides && liars_job() == k) {
		UNIT_EQ_U64(k->map_epoch, epoch);
		UNIT_EQ_U64(k->out, out);
	}
}

static void
lies(unsigned m)
{
	const char *said = getenv("PBOX_LIES");
	unsigned long frames = said != NULL ? strtoul(said, NULL, 10) : 20000;

	mode = &modes[m];
	pbox_random_seed(&rnd, m + 1);
	if (mode->fleet)
		fx.boxes = list;
	fx.boxes.box = mode->box;
	memset(seen, 0, sizeof(seen));
	fx_begin();
	for (unsigned j = 0; j < 2; j++)
		honest_begin(j);
	liars_come(true);
	for (unsigned long i = 1; i <= frames; i++) {
		lie();
		fx.now += MS / 10;
		if (i % 200 == 0)
			fx_tick();
		if (i % 97 == 0)
			fx_work();
		if (i % 50 == 0)
			honest_round(i / 50 % 2);
		if (i % 64 == 0)
			liars_come(i % LIVES < 64);
		if (i % 40 == 0)
			liars_work();
		if (i % 101 == 0)
			operator_looks(i % 303 == 0);
	}
	UNIT_EQ_U64(turn[0] + turn[1], 2 + frames / 50);
	for (unsigned i = 0; i < sizeof(mode->must) && mode->must[i] != 0; i++)
		CU_ASSERT(seen[mode->must[i]] > 0);
	fx_end();
}

#define LIES(n)                    \
	static void lies_##n(void) \
	{                          \
		lies(n);           \
	}
LIES(0)
LIES(1)
LIES(2)
LIES(3)
LIES(4)
LIES(5)
LIES(6)

const struct unit_test unit_tests[] = {
	{"work by plan", lies_0},
	{"work by plan, restored", lies_1},
	{"clocks", lies_2},
	{"clocks, restored", lies_3},
	{"the first box", lies_4},
	{"the first box, started again", lies_5},
	{"another box", lies_6},
	{NULL, NULL},
};
