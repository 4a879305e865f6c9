/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>
#include <string.h>

#include "box.h"
#include "law.h"

/* What must hold at a box whatever its tables are; what a fragment must be is its law (law.h). */

static void
check_welcome(struct sim *s, const struct pbox_send *out, unsigned job)
{
	const struct pbox_job_conf *conf = &s->box->conf[job];
	const struct sim_job_spec *spec = &s->sc.job[job];
	struct sim_part *j = sim_part(s, job);
	struct pbox_welcome m;
	bool tags;

	if (pbox_welcome_decode(out->payload, out->hdr.length, &m) < 0 ||
		m.worker >= spec->workers || m.workers != spec->workers || m.window == 0 ||
		m.endpoints != s->sc.endpoints || m.number == 0) {
		sim_fail(s, "WELCOME cannot be read, or is for worker %u of %u, window %u",
			m.worker, m.workers, m.window);
		return;
	}
	if (!pbox_proof_good(conf->secret, conf->secret_len, PBOX_WELCOME_PROOF_PREFIX,
		    out->payload, out->hdr.length, PBOX_WELCOME_PROOF_AT))
		sim_fail(s, "WELCOME with a wrong proof");
	tags = (m.flags & PBOX_WELCOME_AUTH) != 0;
	if (tags != spec->auth || tags != (out->tag_key != NULL))
		sim_fail(s, "WELCOME of job %u says %s auth", job, tags ? "" : "no");
	if (spec->slots != 0 && (m.flags >> PBOX_CAN_SLOTS & 1) == 0)
		sim_fail(s, "WELCOME of job %u does not say that the box knows slots", job);
	sim_fleet_welcome(s, job, &m);
	if (j->run != m.number)
		j->begun = s->now;
	j->run = m.number;
	j->window = m.window;
	if (j->token[m.worker] == m.token)
		return;
	j->token[m.worker] = m.token;
	pbox_auth_job_destroy(j->auth[m.worker].job);
	j->auth[m.worker].job = NULL;
	if (!tags)
		return;
	j->auth[m.worker].job =
		pbox_auth_job_create(NULL, conf->secret, conf->secret_len, m.incarnation, m.job);
	PBOX_ASSERT(j->auth[m.worker].job != NULL);
	pbox_auth_keys(&j->auth[m.worker].keys, conf->secret, conf->secret_len, &m);
}

static void
check_mapped(struct sim *s, const struct pbox_send *out, unsigned job)
{
	struct pbox_mapped m;
	struct pbox_cursor cur;

	if (pbox_mapped_decode(out->payload, out->hdr.length, &m, &cur) < 0) {
		sim_fail(s, "MAPPED cannot be read");
		return;
	}
	if (m.count == 0 && m.first < m.chunks)
		sim_fail(s, "MAPPED without a chunk");
	sim_moves_run(s, job);
	sim_map_page(s, job, &m, &cur);
}

bool
sim_frame_fits(
	const struct sim *s, unsigned job, const struct sim_fragment *f, const struct pbox_hdr *h)
{
	return f->box == s->box->number &&
	       (f->epoch == h->map_epoch || sim_is_clock(sim_spec(&s->sc, job, f)));
}

static void
check_fragment(struct sim *s, const struct pbox_send *out, unsigned job)
{
	const struct pbox_hdr *h = &out->hdr;
	struct sim_fragment *f = sim_find(&s->job[job], h->chunk, h->frag);
	const struct sim_law *law;

	/* a late copy of a frame, after its job has ended: mails that say so to the shards are on their way */
	if (f == NULL && s->job[job].n_fragments == 0)
		return;
	if (f == NULL) {
		sim_fail(s, "%s of a fragment that nobody knows", pbox_type_name(h->type));
		return;
	}
	if (!sim_frame_fits(s, job, f, h)) {
		sim_moves_answer(s, job, f, out);
		return;
	}
	law = sim_spec(&s->sc, job, f)->law;
	if (h->type == PBOX_RESULT)
		law->result(s, job, f, out);
	else if (h->type == PBOX_WAIT)
		law->wait(s, job, f, h);
	else if (h->type == PBOX_PUSH_OK)
		law->pushed(s, job, f, h);
	else
		law->restored(s, job, f, h);
}

/* What a box says to a worker of a job that lives elsewhere, a copy of whose frame went astray: nothing that a session
 * has. */
static void
check_stranger(struct sim *s, const struct pbox_hdr *h, unsigned job)
{
	if (h->type == PBOX_RETRY || (h->type == PBOX_ERROR && h->aux != PBOX_E_SESSION) ||
		(h->type == PBOX_ERROR && h->length == 0 && h->incarnation == s->box->incarnation))
		return;
	sim_fail(s, "box %u sends %s to a worker of job %u, which lives on box %u", s->box->number,
		pbox_type_name(h->type), job, s->sc.job[job].box);
}

uint32_t
sim_payload_crc(const struct pbox_send *out)
{
	uint8_t payload[SIM_MTU];

	pbox_send_payload(payload, out);
	return out->hdr.length > 0 ? pbox_crc32c(0, payload, out->hdr.length) : 0;
}

void
sim_check_send(struct sim *s, const struct pbox_send *out)
{
	uint32_t ip = ntohl(out->peer->ip);
	unsigned job = ip >> 8 & 0xFF;
	const struct pbox_hdr *h = &out->hdr;

	if (out->payload_crc != sim_payload_crc(out))
		sim_fail(s, "%s with a wrong CRC of its payload", pbox_type_name(h->type));
	if (!sim_is_here(s, job)) {
		check_stranger(s, h, job);
		return;
	}
	if (sim_is_of_before(s, job, out))
		return;
	if (s->box->request != 0 && h->type != PBOX_WELCOME &&
		(size_t)h->length + PBOX_HDR_LEN > s->box->request)
		sim_fail(s, "%s of %u bytes answers %zu bytes of nobody", pbox_type_name(h->type),
			h->length + PBOX_HDR_LEN, s->box->request);
	if (h->incarnation != s->box->incarnation)
		sim_fail(s, "%s of another incarnation", pbox_type_name(h->type));
	if (h->type == PBOX_WELCOME)
		check_welcome(s, out, job);
	if (h->type == PBOX_WORK_OK)
		sim_plan_said(s, job, out);
	if (h->type == PBOX_TASK_OK)
		sim_plan_tasked(s, job, out);
	if (h->type == PBOX_HOMES_OK)
		sim_moves_homes(s, job, out);
	if (h->type == PBOX_MAPPED)
		check_mapped(s, out, job);
	if (h->type == PBOX_NORM_OK)
		hold_normed(s, job, out);
	if (h->type == PBOX_RESULT || h->type == PBOX_WAIT || h->type == PBOX_RESTORE_OK ||
		h->type == PBOX_PUSH_OK)
		check_fragment(s, out, job);
}

void
sim_check_overwritten(struct sim *s, const struct pbox_send *out)
{
	uint32_t ip = ntohl(out->peer->ip);
	unsigned job = ip >> 8 & 0xFF, worker = out->hdr.worker;
	struct sim_job *j = &s->job[job];
	struct sim_fragment *f = sim_find(j, out->hdr.chunk, out->hdr.frag);

	/* a worker whose token has changed is gone */
	if ((ip & 0xFF) <= SIM_WORKERS && f != NULL && sim_frame_fits(s, job, f, &out->hdr) &&
		worker < SIM_WORKERS && j->worker[(ip & 0xFF) - 1]->state == SIM_WORK &&
		sim_part(s, job)->token[worker] == out->hdr.token)
		sim_spec(&s->sc, job, f)->law->overwritten(s, job, f, &out->hdr);
}

void
sim_check_arrival(struct sim *s, const struct sim_packet *p, const struct pbox_hdr *h,
	const uint8_t *payload, bool intact)
{
	unsigned job = p->ip >> 8 & 0xFF;
	struct sim_job *j = &s->job[job];
	const struct sim_law *law;
	struct sim_fragment *f;

	if ((h->type != PBOX_PUSH && h->type != PBOX_PUSHPULL && h->type != PBOX_PULL) || p->half ||
		h->worker >= SIM_WORKERS || h->token != sim_part(s, job)->token[h->worker])
		return;
	f = sim_find(j, h->chunk, h->frag);
	if (f == NULL || !sim_frame_fits(s, job, f, h))
		return;
	law = sim_spec(&s->sc, job, f)->law;
	if (h->type != PBOX_PULL)
		law->contribution(s, job, f, h, payload, intact);
	else if (law->asked != NULL && intact)
		law->asked(s, job, f, h);
}

void
sim_check_forged(struct sim *s, const struct sim_shard *sh, const uint64_t *before,
	uint64_t held_bits, const struct pbox_hdr *h, unsigned n)
{
	uint64_t drops = 0, other = 0;

	for (unsigned i = 0; i < PBOX_SS_STATS; i++) {
		uint64_t d = sh->stats[i] - before[i];

		if (i == PBOX_SS_RX_FRAMES || i == PBOX_SS_TX_OTHER || i == PBOX_SS_TX_WAIT)
			continue;
		/* before INIT every round is early */
		if ((i >= PBOX_SS_FIRST_DROP && i <= PBOX_SS_LAST_DROP) || i == PBOX_SS_RX_EARLY)
			drops += d;
		else
			other += d != 0;
	}
	if (drops != n || other != 0 || held_bits != 0)
		sim_fail(s, "a forged %s of job %u worker %u round %u changed something",
			pbox_type_name(h->type), h->job, h->worker, h->round);
}

void
sim_check_forged_control(
	struct sim *s, const uint64_t *before, const struct pbox_hdr *h, bool stray)
{
	uint64_t drops = 0, other = 0;

	for (unsigned i = PBOX_RS_FIRST_ACCEPT; i < PBOX_RS_STATS; i++) {
		uint64_t d = s->box->stats[i] - before[i];

		if ((i >= PBOX_RS_FIRST_DROP && i <= PBOX_RS_LAST_DROP) ||
			(stray && (i == PBOX_RS_RX_HELLO || i == PBOX_RS_RX_JOIN)))
			drops += d;
		else
			other += d != 0 && !(stray && i == PBOX_RS_REFUSED);
	}
	if (drops != 1 || other != 0)
		sim_fail(s, "a forged %s of job %u worker %u changed something",
			pbox_type_name(h->type), h->job, h->worker);
}

static void
check_counters(struct sim *s, const uint64_t *v, unsigned first, unsigned last, uint64_t frames,
	const char *who)
{
	uint64_t sum = 0;

	for (unsigned i = first; i <= last; i++)
		sum += v[i];
	if (sum != v[0] || v[0] != frames)
		sim_fail(s, "%s: %llu frames given, %llu counted, %llu accepted or dropped", who,
			(unsigned long long)frames, (unsigned long long)v[0],
			(unsigned long long)sum);
}

void
sim_box_check_counters(struct sim *s)
{
	for (unsigned i = 0; i < s->sc.shards; i++) {
		const struct sim_shard *sh = &s->box->shard[i];

		check_counters(
			s, sh->stats, PBOX_SS_FIRST_ACCEPT, PBOX_SS_LAST_DROP, sh->frames, "shard");
	}
	check_counters(s, s->box->stats, PBOX_RS_FIRST_ACCEPT, PBOX_RS_LAST_DROP, s->box->frames,
		"registrar");
}

/* Its nodes are more than the box has counted on when the job began. */
static bool
is_slot_by_slot(const struct sim_job_spec *j)
{
	bool any = false;

	for (unsigned t = 0; t < j->tables; t++)
		any |= j->table[t].fixed.op == PBOX_OP_WEIGHTED_MEAN;
	return any && j->slots != 0;
}

void
sim_box_check_end(struct sim *s)
{
	uint64_t contributions = 0, rounds = 0, refused = 0;
	bool lossless_hold = true;

	if (!s->box->up) /* it stays dead */
		return;
	for (unsigned i = 0; i < s->sc.jobs; i++)
		lossless_hold &=
			!sim_is_here(s, i) ||
			(s->sc.job[i].restarts == 0 && s->sc.job[i].push_percent == 0 && /* R6.9 */
				!sim_any_held(&s->sc, i) &&
				s->sc.job[i].deaths + s->sc.job[i].stops + s->sc.commands == 0 &&
				!is_slot_by_slot(&s->sc.job[i]));
	sim_box_check_counters(s);
	for (unsigned i = 0; i < s->sc.shards; i++) {
		const struct sim_shard *sh = &s->box->shard[i];

		if (sh->held != 0 || sh->stats[PBOX_SS_HELD] != 0)
			sim_fail(s, "shard %u still holds %llu packets", i,
				(unsigned long long)sh->held);
		if (sh->stats[PBOX_SS_ROUNDS_OPEN] != 0)
			sim_fail(s, "shard %u has open rounds", i);
		contributions += sh->stats[PBOX_SS_RX_CONTRIBUTION] - sh->stats[PBOX_SS_TAKEN_BACK];
		rounds += sh->stats[PBOX_SS_ROUNDS];
		refused += sh->stats[PBOX_SS_DROP_NO_RECORD] + sh->stats[PBOX_SS_DROP_NO_BUFFER];
		if (sh->stats[PBOX_SS_ROUNDS_PACED] != 0)
			sim_fail(s, "shard %u has rounds that wait for a rate", i);
	}
	if (s->box->exact && contributions != s->box->expected_contributions)
		sim_fail(s, "%llu contributions counted, %llu made",
			(unsigned long long)contributions,
			(unsigned long long)s->box->expected_contributions);
	if (s->box->exact && rounds != s->box->expected_rounds)
		sim_fail(s, "%llu rounds of fragments finished, of %llu",
			(unsigned long long)rounds, (unsigned long long)s->box->expected_rounds);
	if (lossless_hold && refused != 0)
		sim_fail(s, "%llu contributions within the window found no room",
			(unsigned long long)refused);
	if (s->box->stats[PBOX_RS_JOBS] != 0 || s->box->stats[PBOX_RS_WORKERS] != 0 ||
		s->box->stats[PBOX_RS_TABLES] != 0)
		sim_fail(s, "jobs, workers or tables are left");
	sim_box_check_memory(s);
}

void
sim_box_check_memory(struct sim *s)
{
	for (unsigned n = 0; n < SIM_NODES; n++) {
		const uint64_t *p = (const void *)sim_box_region(s->box->number, n);
		uint64_t any = 0;

		if (pbox_arena_used(s->box->arena[n]) != 0)
			sim_fail(s, "%zu bytes of node %u are still in use",
				pbox_arena_used(s->box->arena[n]), n);
		/* what was freed last may wait for that */
		pbox_arena_clear(s->box->arena[n], SIM_NODE_BYTES);
		for (size_t i = 0; i < SIM_NODE_BYTES / 8; i++)
			any |= p[i];
		if (any != 0)
			sim_fail(s, "memory given back is not zero");
	}
}
