/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <arpa/inet.h>

#include "rack_waits.h"
#include "reply.h"

/* Telemetry's /pbox/racks: at a rack's box its uplinks, at an upper box the racks of its jobs. */

#define RACKS_PAGE 20

/* How many rounds the latest contribution is ahead of what is finished everywhere. */
static uint32_t
racks_ahead(uint32_t round, uint32_t finished)
{
	return pbox_serial_diff(round, finished) > 0 ? round - finished : 0;
}

static void
add_heard(struct rte_tel_data *e, uint64_t silent_ns)
{
	if (silent_ns != UINT64_MAX)
		rte_tel_data_add_dict_u64(e, "heard_ms", silent_ns / NS_PER_MS);
}

/* Of a rack's box: the way up of one job. */
static void
add_uplink(struct pbox_control *c, const struct pbox_job_view *j, const struct pbox_uplink_view *v,
	struct rte_tel_data *e)
{
	static const char *const state[] = {[PBOX_UPLINK_JOINING] = "joining",
		[PBOX_UPLINK_MEMBER] = "joined",
		[PBOX_UPLINK_FAILED] = "failed"};
	uint32_t finished = pbox_registrar_job_round(c->registrar, j->job), newest = finished;
	uint64_t now = pbox_dp_now(c->conf.dp);
	char address[REPLY_ADDRESS], text[RACK_WAITS_TEXT];

	for (unsigned w = 0; w < j->workers; w++) {
		struct pbox_worker_stats s;

		pbox_registrar_worker(c->registrar, j->job, w, &s);
		if (pbox_serial_diff(s.round, newest) > 0)
			newest = s.round;
	}
	reply_text(e, "job", "%s", j->name);
	reply_text(e, "side", "%s", "upper");
	rte_tel_data_add_dict_u64(e, "rack", c->conf.registrar.rack.rack);
	rte_tel_data_add_dict_u64(e, "racks", c->conf.registrar.rack.racks);
	reply_text(e, "address", "%s", reply_address(c->conf.upper_ip, c->conf.upper_udp, address));
	reply_text(e, "state", "%s", state[v->state]);
	rte_tel_data_add_dict_u64(e, "window", v->window);
	rte_tel_data_add_dict_u64(e, "sums_up", v->pending);
	rte_tel_data_add_dict_u64(e, "ahead", racks_ahead(newest, finished));
	add_heard(e, v->heard_ns == 0 ? UINT64_MAX : now > v->heard_ns ? now - v->heard_ns : 0);
	if (rack_waits_above(c, v, now, text))
		reply_text(e, "waits_for", "%s", text);
}

/* Of an upper box: a rack, which is a worker here. */
static void
add_rack(struct pbox_control *c, const struct pbox_job_view *j, unsigned rack,
	const struct pbox_member_view *m, struct rte_tel_data *e)
{
	static const char *const state[] = {[PBOX_MEMBER_ABSENT] = "absent",
		[PBOX_MEMBER_JOINED] = "joined",
		[PBOX_MEMBER_LEFT] = "left",
		[PBOX_MEMBER_SILENT] = "silent"};
	struct pbox_worker_stats s;
	char address[REPLY_ADDRESS];

	pbox_registrar_worker(c->registrar, j->job, rack, &s);
	reply_text(e, "job", "%s", j->name);
	reply_text(e, "side", "%s", "rack");
	rte_tel_data_add_dict_u64(e, "rack", rack);
	rte_tel_data_add_dict_u64(e, "racks", j->workers);
	reply_text(e, "address", "%s", m->ip != 0 ? reply_address(m->ip, m->udp, address) : "");
	reply_text(e, "state", "%s", state[m->state]);
	rte_tel_data_add_dict_u64(e, "window", m->window);
	rte_tel_data_add_dict_u64(
		e, "ahead", racks_ahead(s.round, pbox_registrar_job_round(c->registrar, j->job)));
	add_heard(e, m->silent_ns);
	if (m->rack_waits != NULL && m->rack_waits[0] != '\0')
		reply_text(e, "waits_for", "%s", m->rack_waits);
}

/* An entry of the page: its number is where it is in the list of all. NULL: it is on another page. */
struct racks_page {
	struct rte_tel_data *d;
	unsigned first, i;
};

static bool
racks_page_has(struct racks_page *p)
{
	unsigned i = p->i++;

	if (i == p->first + RACKS_PAGE)
		rte_tel_data_add_dict_u64(p->d, "next", i);
	return i >= p->first && i < p->first + RACKS_PAGE;
}

static void
add_racks_of(struct pbox_control *c, const struct pbox_job_view *j, struct racks_page *p)
{
	struct pbox_uplink_view v;

	if (c->uplinks != NULL) {
		if (pbox_uplinks_view(c->uplinks, j->job, &v) && racks_page_has(p)) {
			struct rte_tel_data *e = reply_dict();

			add_uplink(c, j, &v, e);
			reply_add_numbered(p->d, "rack", p->i - 1, e);
		}
		return;
	}
	for (unsigned w = 0; w < j->workers; w++) {
		struct pbox_member_view m;
		struct rte_tel_data *e;

		pbox_registrar_view_member(c->registrar, j->job, w, pbox_dp_now(c->conf.dp), &m);
		if (!m.rack || !racks_page_has(p))
			continue;
		e = reply_dict();
		add_rack(c, j, w, &m, e);
		reply_add_numbered(p->d, "rack", p->i - 1, e);
	}
}

static void
on_racks(struct pbox_control *c, int n, char word[][PARAM_SIZE], struct rte_tel_data *d)
{
	struct racks_page p = {.d = d};
	const struct pbox_job *job;

	if (n > 0 && !params_number(word[0], UINT16_MAX, &p.first)) {
		reply_error(d, "FIRST is a number, what next was in the page before");
		return;
	}
	for (unsigned i = 0; (job = pbox_registrar_job(c->registrar, i)) != NULL; i++) {
		struct pbox_job_view j;

		pbox_registrar_view_job(c->registrar, job, &j);
		add_racks_of(c, &j, &p);
	}
}

const struct telemetry_command telemetry_rack_commands[] = {
	{"/pbox/racks", 1, on_racks,
		"Racks of jobs, or the way to the upper box. Parameter: FIRST, of a later page."},
	{0},
};
