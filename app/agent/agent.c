/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/*
 * The life of an agent: its box is looked at, the lease kept while the box answers, the keys of the fleet read when they
 * have changed; the one that decides writes the next map. What fails is tried again, later each time, and nothing else ends.
 */

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent.h"

#define BOX_EVERY   AGENT_S
#define BOX_ALIVE   (5 * AGENT_S) /* since its last answer */
#define LOOK_LEAST  (50 * AGENT_MS)
#define STATE_EVERY AGENT_S
#define PAUSE_FIRST (100 * AGENT_MS)
#define PAUSE_MOST  (2 * AGENT_S)
#define SILENCE \
	(5 * AGENT_S) /* of etcd, before a person hears of it: an election takes some seconds */
#define CLOCK_STEP 2  /* seconds */
#define CLOCK_SAID (600 * AGENT_S)

/* Weights of findings: the highest is shown. */
enum {
	BLAME_SLOW = 1,
	BLAME_CLOCK,
	BLAME_GONE,
	BLAME_FELL,
	BLAME_UNABLE,
	BLAME_LEFT,
	BLAME_LEASE,
	BLAME_SILENCE,
	BLAME_REFUSED,
	BLAME_TAKEN,
	BLAME_LIST
};

#define MEANWHILE "jobs go on, nobody is removed, and no box comes"

void
agent_blame(struct agent *a, int weight, bool harmful, const char *next, const char *fmt, ...)
{
	struct agent_finding *f = &a->finding;
	va_list ap;

	if (weight <= f->weight)
		return;
	f->weight = weight;
	f->harmful = harmful;
	va_start(ap, fmt);
	vsnprintf(f->text, sizeof(f->text), fmt, ap);
	va_end(ap);
	snprintf(f->next, sizeof(f->next), "%s", next);
}

bool
agent_holds(const struct agent *a, uint64_t now)
{
	return a->lease != 0 && now < a->sent_ns + a->ttl_ns;
}

bool
agent_decides(const struct agent *a)
{
	return a->seen && a->lease != 0 && a->view.decides == a->lease;
}

/* ---- etcd answers, or not -------------------------------------------------------------------------- */

static void
agent_failed(struct agent *a, int code, const struct pbox_error *err, uint64_t now)
{
	bool another = a->bad != -code;

	PBOX_ASSERT(code < 0);
	if (a->bad_ns == 0)
		a->bad_ns = now;
	a->bad = -code;
	a->why = *err;
	if (another && code != -EAGAIN)
		pbox_log(PBOX_LOG_WARN, "etcd: %s", err->text);
	else if (another)
		pbox_log(PBOX_LOG_INFO, "etcd: %s", err->text);
	a->pause_ns = a->pause_ns == 0 ? PAUSE_FIRST : a->pause_ns * 2;
	if (a->pause_ns > PAUSE_MOST)
		a->pause_ns = PAUSE_MOST;
	/* not all agents at the same moment */
	a->retry_ns =
		agent_now() + a->pause_ns / 2 + pbox_random_below(&a->random, a->pause_ns / 2 + 1);
}

static void
agent_answered(struct agent *a, uint64_t now)
{
	if (a->bad_ns != 0) {
		if (now - a->bad_ns >= SILENCE || a->bad != EAGAIN)
			pbox_log(PBOX_LOG_INFO, "etcd answers again, after %llu s",
				(unsigned long long)((now - a->bad_ns) / AGENT_S));
		/* boxes come back to it one after the other: nobody is removed meanwhile */
		if (now - a->bad_ns >= a->ttl_ns / 3)
			a->office_ns = a->office_ns != 0 ? now : 0;
	}
	a->bad_ns = 0;
	a->bad = 0;
	a->pause_ns = 0;
}

/* ---- the lease --------------------------------------------------------------------------------------- */

static void
agent_lost_lease(struct agent *a, const char *why)
{
	pbox_log(PBOX_LOG_WARN, "the lease has ended: %s", why);
	a->lease = 0;
	a->registered = false;
}

static int
agent_lease(struct agent *a, uint64_t now, struct pbox_error *err)
{
	bool alive = a->box.answered_ns != 0 && now - a->box.answered_ns < BOX_ALIVE;
	int ret;

	if (!alive || (a->lease != 0 && now < a->keep_ns))
		return 0;
	if (a->lease != 0) {
		ret = ask_keep(&a->etcd, a->lease, err);
		if (ret == -ENOENT) {
			agent_lost_lease(a, "its keep-alive came too late, or somebody revoked it");
			a->keep_ns = 0;
			return 0;
		}
	} else {
		ret = ask_grant(&a->etcd, a->ttl_ns / AGENT_S, &a->lease, err);
		if (ret == 0)
			pbox_log(PBOX_LOG_INFO, "lease %llx of %llu s",
				(unsigned long long)a->lease,
				(unsigned long long)(a->ttl_ns / AGENT_S));
	}
	if (ret != 0)
		return ret;
	/* from when it was asked for: etcd's own clock has begun no earlier */
	a->sent_ns = now;
	a->keep_ns = now + a->ttl_ns / 3;
	return 0;
}

/* ---- the keys ------------------------------------------------------------------------------------------ */

static void
agent_list(const struct agent *a, char *out, size_t size)
{
	size_t n = 0;

	out[0] = '\0';
	for (unsigned i = 0; i < a->box.n && n < size; i++)
		n += (size_t)snprintf(
			out + n, size - n, "%s%s", i > 0 ? ", " : "", a->box.address[i]);
}

/* With another list this box has another number: its former key, which this lease keeps, is that of another box now. 1: one is gone. */
static int
agent_leave_number(struct agent *a, struct pbox_error *err)
{
	char key[PBOX_FLEET_KEY];
	int ret;

	for (unsigned i = 0; i < PBOX_FLEET_BOXES; i++) {
		if (i == a->box.number || !a->view.member[i].here ||
			a->view.member[i].lease != a->lease)
			continue;
		ret = ask_delete(&a->etcd, pbox_fleet_key_box(key, a->fleet, i), err);
		if (ret == 0)
			pbox_log(PBOX_LOG_INFO,
				"this box is number %u of the list now, and number %u no more",
				a->box.number, i);
		return ret < 0 ? ret : 1;
	}
	return 0;
}

/* 1: a key was written, and the view is old; 0: nothing is to be done. */
static int
agent_register(struct agent *a, struct pbox_error *err)
{
	const struct pbox_fleet_member *there = &a->view.member[a->box.number];
	struct pbox_fleet_member m = {.here = true};
	struct pbox_etcd_compare compare = {.revision = there->revision};
	char key[PBOX_FLEET_KEY];
	int ret;

	PBOX_ASSERT(a->box.number < a->box.n && a->lease != 0);
	snprintf(m.address, sizeof(m.address), "%s", a->box.address[a->box.number]);
	snprintf(m.release, sizeof(m.release), "%s", a->box.release);
	agent_list(a, m.list, sizeof(m.list));
	a->taken.code = 0;
	if (there->here && strcmp(there->address, m.address) != 0) {
		pbox_fail(&a->taken, EEXIST,
			"box %u of fleet %s is %s at etcd, and this one is %s: the same list (boxes) at all boxes",
			a->box.number, a->fleet, there->address, m.address);
		return 0;
	}
	if (there->here && there->lease != a->lease && a->registered) {
		pbox_fail(&a->taken, EEXIST,
			"another pbox-agent has registered box %u (%s): end one of the two",
			a->box.number, m.address);
		return 0;
	}
	if (there->here && there->lease == a->lease && strcmp(there->release, m.release) == 0 &&
		strcmp(there->list, m.list) == 0) {
		a->registered = true;
		return 0;
	}
	compare.key = pbox_fleet_key_box(key, a->fleet, a->box.number);
	ret = ask_put(&a->etcd, &compare, 1, key, pbox_fleet_member_write(&m), a->lease, err);
	if (ret == 1) {
		a->registered = true;
		pbox_log(PBOX_LOG_INFO, "box %u (%s) is registered in fleet %s", a->box.number,
			m.address, a->fleet);
	}
	return ret < 0 ? ret : 1;
}

static int
agent_run_for_office(struct agent *a, struct pbox_error *err)
{
	struct pbox_etcd_compare compare = {.create = true};
	char key[PBOX_FLEET_KEY];
	int ret;

	if (!a->registered || a->view.candidate != 0)
		return 0;
	PBOX_ASSERT(a->lease != 0); /* a candidate goes with its lease */
	compare.key = pbox_fleet_key_candidate(key, a->fleet, a->lease);
	ret = ask_put(&a->etcd, &compare, 1, key, pbox_fleet_candidate_write(a->box.number),
		a->lease, err);
	return ret < 0 ? ret : 1;
}

static void
agent_facts(const struct agent *a, uint64_t now, struct pbox_fleet_facts *f)
{
	*f = (struct pbox_fleet_facts){.view = &a->view,
		.n_boxes = a->box.n,
		.address = AGENT_LIST(a),
		.before = a->history.serial != 0 ? &a->history.map : NULL,
		.office_ns = a->office_ns,
		.ttl_ns = a->ttl_ns,
		.now_ns = now};
	memcpy(f->here_ns, a->here_ns, sizeof(f->here_ns));
}

/* The next map, with the conditions that the old one is still there, and that this agent still decides. */
static int
agent_decide(struct agent *a, uint64_t now, struct pbox_error *err)
{
	static struct pbox_fleet_map next;
	struct pbox_fleet_facts facts;
	struct pbox_etcd_compare compare[2] = {{.revision = a->view.map_revision},
		{.create = true, .revision = a->view.candidate}};
	char key[PBOX_FLEET_KEY], mine[PBOX_FLEET_KEY];
	uint64_t at;
	int ret;

	PBOX_ASSERT(agent_decides(a) && a->office_ns != 0);
	agent_facts(a, now, &facts);
	a->wrong.code = 0;
	ret = pbox_fleet_decide(&facts, &next, &a->wrong);
	if (ret <= 0) {
		at = pbox_fleet_decide_at(&facts);
		if (ret == 0 && at < a->look_ns)
			a->look_ns = at;
		return 0;
	}
	PBOX_ASSERT(!a->view.has_map || next.epoch > a->view.map.epoch);
	compare[0].key = pbox_fleet_key(key, a->fleet, "map");
	compare[1].key = pbox_fleet_key_candidate(mine, a->fleet, a->lease);
	ret = ask_put(&a->etcd, compare, 2, key, pbox_fleet_map_write(&next), 0, err);
	if (ret == 1)
		pbox_log(PBOX_LOG_INFO, "map of epoch %llu: %s", (unsigned long long)next.epoch,
			next.why);
	return ret < 0 ? ret : 1;
}

static void
agent_history(struct agent *a)
{
	char said[sizeof(a->history.fell.text)];

	snprintf(said, sizeof(said), "%s", a->history.fell.code != 0 ? a->history.fell.text : "");
	pbox_fleet_history_note(&a->history, &a->view);
	if (a->history.fell.code != 0 && strcmp(said, a->history.fell.text) != 0)
		pbox_log(PBOX_LOG_WARN, "%s", a->history.fell.text);
}

static void
agent_seen(struct agent *a, uint64_t now)
{
	bool decides;

	a->seen = true;
	a->view_ns = now;
	agent_history(a);
	for (unsigned i = 0; i < PBOX_FLEET_BOXES; i++)
		if (a->view.member[i].here) {
			a->here_ns[i] = a->here_ns[i] == 0 ? now : a->here_ns[i];
			a->away_ns[i] = 0;
		} else {
			a->here_ns[i] = 0;
			a->away_ns[i] = a->away_ns[i] == 0 ? now : a->away_ns[i];
		}
	PBOX_ASSERT(!a->view.has_map || a->history.serial > 0);
	decides = agent_decides(a);
	if (decides && a->office_ns == 0) {
		a->office_ns = now;
		pbox_log(PBOX_LOG_INFO, "this agent decides for fleet %s", a->fleet);
	} else if (!decides && a->office_ns != 0) {
		a->office_ns = 0;
		pbox_log(PBOX_LOG_INFO, "this agent does not decide any more");
	}
}

/* A watch that has not said what the view shows hears nothing: another one, elsewhere. */
static void
agent_check_watch(struct agent *a, bool asked, int64_t last)
{
	if (!asked && last != 0 && a->view.last != last && a->etcd.watch.curl != NULL &&
		a->etcd.watch.created)
		watch_stop(&a->etcd, 0);
}

/* Read the keys; write what is missing of them. */
static int
agent_look(struct agent *a, uint64_t now, struct pbox_error *err)
{
	bool asked = a->etcd.watch.dirty;
	int64_t last = a->view.last;
	int ret;

	a->etcd.watch.dirty = false;
	a->look_ns = now + a->ttl_ns / 3;
	ret = ask_view(&a->etcd, a->fleet, a->lease, &a->view, &a->sets, err);
	if (ret != 0) {
		a->look_ns = now;
		return ret;
	}
	agent_check_watch(a, asked, last);
	agent_seen(a, now);
	a->alarm.code = 0;
	ask_alarm(&a->etcd, &a->alarm);
	if (a->lease != 0 && a->box.n > 0)
		ret = agent_leave_number(a, err);
	if (ret == 0 && a->lease != 0 && a->box.n > 0)
		ret = agent_register(a, err);
	if (ret == 0 && a->lease != 0)
		ret = agent_run_for_office(a, err);
	if (ret == 0 && agent_decides(a))
		ret = agent_decide(a, now, err);
	if (ret != 0)
		a->look_ns = now + LOOK_LEAST;
	return ret < 0 ? ret : 0;
}

static void
agent_etcd(struct agent *a, uint64_t now)
{
	struct pbox_error err = {0};
	int ret;

	if (now < a->retry_ns)
		return;
	ret = agent_lease(a, now, &err);
	if (ret == 0 &&
		(now >= a->look_ns || (a->etcd.watch.dirty && now >= a->view_ns + LOOK_LEAST)))
		ret = agent_look(a, now, &err);
	else if (ret == 0)
		return;
	if (ret != 0)
		agent_failed(a, ret, &err, now);
	else
		agent_answered(a, now);
}

/* ---- findings ---------------------------------------------------------------------------------------------- */

static void
agent_clock(struct agent *a, uint64_t now)
{
	struct timespec wall;
	int64_t offset, step;

	clock_gettime(CLOCK_REALTIME, &wall);
	offset = wall.tv_sec * (int64_t)AGENT_S + wall.tv_nsec - (int64_t)now;
	step = a->wall_ns != 0 ? offset - a->wall_ns : 0;
	a->wall_ns = offset;
	if (step > -CLOCK_STEP * (int64_t)AGENT_S)
		return;
	a->set_ns = now;
	a->set_back_s = (uint64_t)-step / AGENT_S;
	pbox_log(PBOX_LOG_WARN,
		"this host's clock was set back by %llu s: leases and waits do not depend on it; certificates and the times of logs do",
		(unsigned long long)a->set_back_s);
}

static void
agent_blame_etcd(struct agent *a, uint64_t now)
{
	if (a->bad_ns != 0 && a->bad == EAGAIN && now - a->bad_ns >= SILENCE)
		agent_blame(a, BLAME_SILENCE, true, a->why.text,
			a->etcd.n > 1 ? "none of etcd's %u endpoints serves: " MEANWHILE
				      : "etcd does not serve: " MEANWHILE,
			a->etcd.n);
	else if (a->bad_ns != 0 && a->bad != EAGAIN)
		agent_blame(a, BLAME_REFUSED, true, MEANWHILE, "etcd: %.180s", a->why.text);
	if (a->alarm.code == ENOSPC)
		agent_blame(a, BLAME_REFUSED, true,
			"etcdctl compact, defrag, alarm disarm; a larger --quota-backend-bytes",
			"%s", a->alarm.text);
	else if (a->alarm.code == EIO)
		agent_blame(a, BLAME_REFUSED, true, "etcdctl alarm list; replace that member", "%s",
			a->alarm.text);
}

/* All boxes without a lease, in one sentence. */
static void
agent_blame_gone(struct agent *a)
{
	const struct pbox_fleet_map *map = &a->view.map;
	char boxes[120] = "";
	unsigned gone = 0;
	size_t n = 0;

	for (unsigned i = 0; a->seen && a->view.has_map && i < map->n_boxes; i++) {
		if (map->box[i].state != PBOX_FLEET_GONE)
			continue;
		if (n < sizeof(boxes))
			n += (size_t)snprintf(boxes + n, sizeof(boxes) - n, "%sbox %u (%s)",
				gone > 0 ? ", " : "", i, map->box[i].address);
		gone++;
	}
	if (gone > 0)
		agent_blame(a, BLAME_GONE, true,
			gone == 1
				? "is it running, and pbox-agent beside it? It comes back by itself"
				: "are they running, and pbox-agent beside each? They come back by themselves",
			gone == 1
				? "%s is gone: it has no lease, and the others have its chunks"
				: "%s are gone: they have no lease, and the others have their chunks",
			boxes);
}

/* Jobs in which this box decides, as it thinks, and nobody follows it: it was dead for the others, and another one has taken its place. */
static void
agent_blame_left(struct agent *a)
{
	const struct pbox_fleet_map *map = &a->view.map;

	for (unsigned i = 0; a->seen && a->view.has_map && i < a->box.n_jobs; i++) {
		const struct box_job *job = &a->box.job[i];
		unsigned said = pbox_fleet_map_decides(map, job->name, job->run);
		char next[sizeof(a->finding.next)];

		if (job->decider != a->box.number || said >= map->n_boxes || said == a->box.number)
			continue;
		snprintf(next, sizeof(next),
			"start this box again; then, at box %u, pbox-ctl scale %.40s takes it in",
			said, job->name);
		agent_blame(a, BLAME_LEFT, true, next,
			"job '%.60s' goes on without this box: box %u (%s) decides in place of it",
			job->name, said, map->box[said].address);
	}
}

static void
agent_judge(struct agent *a, uint64_t now)
{
	const struct pbox_fleet_map *map = &a->view.map;
	char slow[200];

	a->finding = (struct agent_finding){0};
	agent_blame_etcd(a, now);
	if (a->taken.code != 0)
		agent_blame(a, BLAME_TAKEN, true, "pbox-ctl cluster shows who is registered", "%s",
			a->taken.text);
	if (agent_decides(a) && a->wrong.code != 0)
		agent_blame(a, BLAME_LIST, true, "pbox-ctl boxes shows the list of a box", "%s",
			a->wrong.text);
	if (a->history.fell.code != 0)
		agent_blame(a, BLAME_FELL, true,
			"pbox-ctl cluster shows who is drained, and the weights: set them again, then systemctl restart pbox-agent",
			"%s", a->history.fell.text);
	if (a->unable.code != 0)
		agent_blame(a, BLAME_UNABLE, true, "pbox-ctl moves shows what was done", "%s",
			a->unable.text);
	if (a->lost.code != 0)
		agent_blame(a, BLAME_UNABLE, true,
			"start that box again; if it runs, pbox-agent beside it, or repair its way to etcd",
			"%s", a->lost.text);
	if (a->seen && !agent_holds(a, now))
		agent_blame(a, BLAME_LEASE, true, "the log of pbox-agent says why",
			"this box has no lease: it serves on, and takes no chunks");
	agent_blame_gone(a);
	agent_blame_left(a);
	for (unsigned i = 0; a->seen && i < a->box.n_jobs; i++)
		for (unsigned b = 0; b < map->n_boxes; b++)
			if (((a->box.job[i].out & ~apply_back(a, &a->box.job[i])) >> b & 1) != 0 &&
				map->box[b].state == PBOX_FLEET_SERVES)
				agent_blame(a, BLAME_GONE, true,
					"has it been started again? Then pbox-ctl scale takes it in",
					"job '%.60s' goes on without box %u (failover)",
					a->box.job[i].name, b);
	if (a->set_ns != 0 && now - a->set_ns < CLOCK_SAID)
		agent_blame(a, BLAME_CLOCK, false,
			"does a time service run? Certificates and times of logs depend on it, leases do not",
			"this host's clock was set back by %llu s",
			(unsigned long long)a->set_back_s);
	if (load_finding(a, slow, sizeof(slow)))
		agent_blame(a, BLAME_SLOW, false,
			"pbox-ctl cluster shows the times of all boxes: its link, its CPU, or what else runs there",
			"%s", slow);
}

/* ---- the loop ------------------------------------------------------------------------------------------------- */

static void
agent_box(struct agent *a, uint64_t now)
{
	struct pbox_error err = {0};
	int ret;

	if (now < a->box_ns)
		return;
	ret = box_look(&a->box, &err);
	a->box_ns = agent_now() + BOX_EVERY;
	if (ret != 0 && a->box_bad != -ret)
		pbox_log(PBOX_LOG_WARN, "%s", err.text);
	else if (ret == 0 && a->box_bad != 0)
		pbox_log(PBOX_LOG_INFO, "the box answers again");
	a->box_bad = -ret;
}

static uint64_t
agent_earlier(uint64_t x, uint64_t y)
{
	return x < y ? x : y;
}

static void
agent_step(struct agent *a)
{
	uint64_t now = agent_now(), next, sets = UINT64_MAX;

	agent_clock(a, now);
	agent_box(a, now);
	now = agent_now();
	agent_etcd(a, now);
	now = agent_now();
	if (a->looked != a->history.serial) {
		/* which boxes a job goes on without may have changed since the last look: a new map is made so by what is there now */
		a->looked = a->history.serial;
		a->box_ns = 0;
		agent_box(a, now);
		now = agent_now();
	}
	if (a->seen && a->view.has_map && agent_holds(a, now) && a->bad_ns == 0) {
		apply_map(a);
		load_step(a);
		sets = sets_step(a, agent_decides(a), now);
	}
	agent_judge(a, now);
	if (now >= a->report_ns || strcmp(a->finding.text, a->reported.text) != 0)
		state_report(a, now);
	if (now >= a->state_ns || a->etcd.watch.dirty) {
		state_write(a, now);
		a->state_ns = now + STATE_EVERY;
	}
	if (a->seen && a->bad_ns == 0)
		watch_step(&a->etcd, a->prefix, a->view.revision + 1);
	next = agent_earlier(a->box_ns, a->state_ns);
	next = agent_earlier(next, agent_earlier(a->look_ns, a->report_ns));
	if (a->lease != 0)
		next = agent_earlier(next, a->keep_ns);
	next = agent_earlier(next, sets);
	if (a->etcd.watch.dirty)
		next = now;
	if (a->bad_ns != 0)
		next = a->retry_ns > now ? agent_earlier(a->box_ns, a->retry_ns) : now;
	etcd_wait(&a->etcd, next > now + LOOK_LEAST ? next : now + LOOK_LEAST);
}

int
agent_run(struct agent *a, volatile const int *quit)
{
	char key[PBOX_FLEET_KEY];
	struct pbox_error err;

	pbox_fleet_key(a->prefix, a->fleet, "");
	a->ttl_ns = a->conf->lease_ns;
	pbox_random_seed(&a->random, agent_now());
	while (!*quit)
		agent_step(a);
	/* Another one decides at once; the lease stays: an agent that is started again within it finds all as it was. */
	if (a->lease != 0 && a->bad_ns == 0)
		ask_delete(&a->etcd, pbox_fleet_key_candidate(key, a->fleet, a->lease), &err);
	pbox_log(PBOX_LOG_INFO, "stopped");
	return 0;
}
