/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "health_priv.h"
#include "numbers.h"
#include "reply.h"

/* What the samples say, in words. */

#define STUCK_NS       (300 * NS_PER_MS) /* a core that turns not even when idle */
#define STOLEN         100               /* permille of the time that others have its CPU */
#define FULL           950               /* permille of the time that a core is busy */
#define POOL_LOW       16                /* one in so many packets is left */
#define SLOW_SHARE     4 / 5             /* of the time that contributions wait, for one worker, */
#define SLOW_TIME      200               /* permille of the time: that long the others waited */
#define FEW_FRAMES     64                /* of all workers of a job, to an endpoint */
#define SLOW_FRAGMENTS 4                 /* fewer are chance */
#define LOSSY          10                /* permille of contributions that are sent again */
#define LOSSY_FRAMES   8
#define MUTE_FRAMES    8                  /* that a core sends, of which none is taken */
#define START_NS       (5000 * NS_PER_MS) /* workers of a job may start so far apart */
#define ALIVE_NS       (1500 * NS_PER_MS) /* what lives says something each second */

#define MISSED_ADVICE "start it again, or repair its network; or see policy = shrink"

struct list {
	struct pbox_control *c;
	const struct health_sample *a, *b; /* the window */
	struct health_finding *f;
	unsigned n, max;
};

/* Room for one more; harmful ones come before others, or push them out. */
static struct health_finding *
findings_next(struct list *l, const char *cause, bool harmful)
{
	unsigned at = l->n;

	if (harmful)
		while (at > 0 && !l->f[at - 1].harmful)
			at--;
	if (at == l->max)
		return NULL;
	if (l->n < l->max)
		l->n++;
	memmove(&l->f[at + 1], &l->f[at], (l->n - 1 - at) * sizeof(l->f[0]));
	l->f[at] = (struct health_finding){.cause = cause, .harmful = harmful, .worker = -1};
	return &l->f[at];
}

static void say(struct health_finding *f, const char *advice, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static void
say(struct health_finding *f, const char *advice, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(f->text, sizeof(f->text), fmt, ap);
	va_end(ap);
	snprintf(f->next, sizeof(f->next), "%s", advice);
}

#define JOB(job)     utf7_brief((char[UTF7_BRIEF]){0}, (job)->name, 24)
#define HOST(host)   utf7_brief((char[UTF7_BRIEF]){0}, host, 20)
#define TENSOR(name) utf7_brief((char[UTF7_BRIEF]){0}, name, 40)

static void
find_cores(struct list *l)
{
	static const char other[] =
		"another program runs on its CPU: isolate it (isolcpus), or give EAL other CPUs (-l)";

	for (unsigned i = 0; i < l->c->conf.n_cores; i++) {
		unsigned lcore = l->c->conf.core[i].lcore;
		struct health_finding *f = NULL;
		struct health_core h;

		health_core(l->c, i, &h);
		if (l->b->core[i][PBOX_CS_LOOPS] == 0)
			continue; /* it has not begun */
		if (h.heartbeat_ns > STUCK_NS && (f = findings_next(l, "stuck_core", true)) != NULL)
			say(f, other, "data core %u (lcore %u) has not turned for %" PRIu64 " ms",
				i, lcore, h.heartbeat_ns / NS_PER_MS);
		else if (h.stolen_permille > STOLEN &&
			 (f = findings_next(l, "starved_core", true)) != NULL)
			say(f, other,
				"data core %u (lcore %u) is starved: %u %% of the time it waits for its CPU",
				i, lcore, h.stolen_permille / 10);
		else if (h.busy_permille > FULL &&
			 (f = findings_next(l, "busy_core", false)) != NULL)
			say(f, "more data cores (-l), or queues of the port, would go faster",
				"data core %u (lcore %u) is busy for %u %% of the time: it bounds the rate",
				i, lcore, h.busy_permille / 10);
	}
}

/* A queue that takes nothing: all other cores may go on, and the jobs wait. */
static void
find_mute(struct list *l)
{
	for (unsigned i = 0; i < l->c->conf.n_cores; i++) {
		const uint64_t *a = l->a->core[i], *b = l->b->core[i];
		uint64_t n = b[PBOX_CS_TX_DROPPED] - a[PBOX_CS_TX_DROPPED];
		struct health_finding *f;

		if (n >= MUTE_FRAMES && b[PBOX_CS_TX_PACKETS] == a[PBOX_CS_TX_PACKETS] &&
			b[PBOX_CS_TX_HANDOFF] == a[PBOX_CS_TX_HANDOFF] &&
			(f = findings_next(l, "mute_core", true)) != NULL)
			say(f, "a virtual port: queues of both sides the same; else is its link up?",
				"data core %u (lcore %u) sends nothing: its port took none of %" PRIu64
				" packets",
				i, l->c->conf.core[i].lcore, n);
	}
}

/* Who else has the address of a port; and an interface that takes no frames of the port's size. */
static void
find_address(struct list *l, unsigned i)
{
	const struct address *a = &l->c->address[i];
	const struct pbox_port *p = &l->c->conf.port[i];
	const uint8_t *ip = (const uint8_t *)&p->nif.ip, *m = a->mac;
	bool same = memcmp(m, p->nif.mac, 6) == 0;
	struct health_finding *f;
	char advice[160];

	if (a->kernel_if[0] != '\0' && (f = findings_next(l, "address_conflict", true)) != NULL) {
		snprintf(advice, sizeof(advice), "ip addr del %u.%u.%u.%u/%u dev %s", ip[0], ip[1],
			ip[2], ip[3], p->nif.prefix_len, a->kernel_if);
		say(f, advice,
			"port %u (%s): the kernel has the address %u.%u.%u.%u as well, on interface %s",
			p->conf.id, p->dev.name, ip[0], ip[1], ip[2], ip[3], a->kernel_if);
	}
	if (control_claimed(l->c, i) && (f = findings_next(l, "address_conflict", true)) != NULL)
		say(f,
			same ? "a second box, with the same MAC address, or a loop in the network: find it at the switch"
			     : "give one of the two another address; the switch knows where that MAC is",
			"port %u (%s): %s claims the address %u.%u.%u.%u (MAC %02x:%02x:%02x:%02x:%02x:%02x)",
			p->conf.id, p->dev.name, same ? "another box" : "another host", ip[0],
			ip[1], ip[2], ip[3], m[0], m[1], m[2], m[3], m[4], m[5]);
	if (a->mtu != 0 && (f = findings_next(l, "mtu", true)) != NULL) {
		snprintf(advice, sizeof(advice), "ip link set %s mtu %u", p->dev.kernel_if, p->mtu);
		say(f, advice, "port %u (%s): its interface %s has an MTU of %u, the box sends %u",
			p->conf.id, p->dev.name, p->dev.kernel_if, a->mtu, p->mtu);
	}
}

static void
find_ports(struct list *l)
{
	static const struct {
		enum port_stat what;
		const char *cause, *text, *advice;
	} lost[] = {
		{PORT_RX_MISSED, "missed", "packets came and were not fetched in time",
			"more cores or queues; cores-idle = poll; larger rx-desc"},
		{PORT_RX_NO_MBUF, "full_pool", "packets came and found no packet buffer",
			"raise hold"},
		{PORT_RX_ERRORS, "bad_link", "packets came damaged", "cable, transceiver, duplex"},
		{PORT_TX_ERRORS, "bad_link", "packets were not sent", "is the interface up?"},
	};

	for (unsigned i = 0; i < l->c->conf.n_ports; i++) {
		struct pbox_port *p = &l->c->conf.port[i];
		struct health_finding *f;

		if (p->link_up == 0 && (f = findings_next(l, "link_down", true)) != NULL) {
			char advice[96];

			say(f, pbox_port_link_advice(p, advice, sizeof(advice)),
				"port %u (%s) has no link", p->conf.id, p->dev.name);
		}
		find_address(l, i);
		for (unsigned k = 0; k < sizeof(lost) / sizeof(lost[0]); k++) {
			uint64_t n = l->b->port[i][lost[k].what] - l->a->port[i][lost[k].what];

			if (n > 0 && (f = findings_next(l, lost[k].cause, true)) != NULL)
				say(f, lost[k].advice, "port %u (%s): %" PRIu64 " %s", p->conf.id,
					p->dev.name, n, lost[k].text);
		}
	}
}

static void
find_pools(struct list *l)
{
	struct health_finding *f;
	struct health_pool p;

	for (unsigned i = 0; health_pool(l->c, i, &p); i++)
		if (p.window_low < p.size / POOL_LOW &&
			(f = findings_next(l, "full_pool", true)) != NULL)
			say(f, "raise hold; is somebody slow, so that many packets are held?",
				"pool %s is full: %u of %u packets were free", p.name, p.window_low,
				p.size);
}

/* Drops that are not noise of the network. */
static void
find_drops(struct list *l)
{
	static const struct {
		bool shard;
		unsigned what;
		const char *cause, *advice;
		bool wanted; /* the operator has set it so */
	} drops[] = {
		{false, PBOX_CS_DROP_HANDOFF_FULL, "ring_full",
			"a data core is overloaded, or shares its CPU"},
		{false, PBOX_CS_DROP_CONTROL_FULL, "ring_full",
			"leave the control thread a CPU; or somebody floods the control port"},
		{false, PBOX_CS_DROP_CONTROL_RATE, "rate",
			"raise 'requests' of the job, or look at who asks so much"},
		{false, PBOX_CS_DROP_SEGMENTS, "mtu",
			"equal MTUs everywhere; ethtool -K IFACE tx-udp-segmentation off"},
		{false, PBOX_CS_DROP_IP_FRAGMENT, "mtu",
			"a worker's MTU is larger than the path's"},
		{false, PBOX_CS_FRAME_CRC, "damaged", "memory or offload of a host or a switch"},
		{false, PBOX_CS_TX_DROPPED, "not_sent", "larger tx-desc; a slow virtual port"},
		{false, PBOX_CS_TX_NO_MBUF, "full_pool", "raise hold; larger tx-desc"},
		{true, PBOX_SS_DROP_CRC, "damaged", "memory or offload of a host or a switch"},
		{true, PBOX_SS_DROP_RATE, "rate",
			"raise the job's rate or repeats; or look at who sends so much"},
		{true, PBOX_SS_PACED, "rate", "the job is at its rate: raise it, or let it be",
			true},
		{true, PBOX_SS_DROP_NO_RECORD, "full_pool",
			"raise hold; a worker exceeds its window: a foreign client?"},
		{true, PBOX_SS_DROP_NO_BUFFER, "full_pool",
			"raise hold; a worker exceeds its window: a foreign client?"},
		{true, PBOX_SS_DROP_REPLAYED, "replayed", "who is on that network?"},
	};

	for (unsigned k = 0; k < sizeof(drops) / sizeof(drops[0]); k++) {
		const struct pbox_stat_def *d = drops[k].shard
							? &pbox_shard_stat_defs[drops[k].what]
							: &pbox_core_stat_defs[drops[k].what];
		struct health_finding *f;
		uint64_t n = 0;

		for (unsigned i = 0; !drops[k].shard && i < l->c->conf.n_cores; i++)
			n += l->b->core[i][drops[k].what] - l->a->core[i][drops[k].what];
		if (drops[k].shard)
			n = l->b->shard[drops[k].what] - l->a->shard[drops[k].what];
		if (n > 0 && (f = findings_next(l, drops[k].cause, !drops[k].wanted)) != NULL)
			say(f, drops[k].advice, "%s: %" PRIu64 " %s", d->name, n, d->unit);
	}
}

static struct pbox_member_view
findings_member(const struct list *l, const struct pbox_job_view *job, unsigned w)
{
	struct pbox_member_view m;

	pbox_registrar_view_member(l->c->registrar, job->job, w, l->b->at_ns, &m);
	return m;
}

static struct health_finding *
next_of_worker(struct list *l, const char *cause, const struct pbox_job_view *job, unsigned w)
{
	struct health_finding *f = findings_next(l, cause, true);

	if (f != NULL) {
		snprintf(f->job, sizeof(f->job), "%s", job->name);
		f->worker = (int)w;
	}
	return f;
}

/* Of all the time that contributions waited for the last one: who came last, and for how long? Data cores
 * count only what they saw: who comes while they are away is not late. */
static void
find_last(struct list *l, const struct pbox_job_view *job, const struct pbox_worker_stats *a,
	uint32_t rounds)
{
	uint64_t all = 0, most = 0, fragments = 0, window = l->b->at_ns - l->a->at_ns, each;
	struct health_finding *f;
	unsigned who = 0;

	for (unsigned w = 0; w < job->workers; w++) {
		struct pbox_worker_stats b;

		pbox_registrar_worker(l->c->registrar, job->job, w, &b);
		all += b.waited_ns - a[w].waited_ns;
		if (b.waited_ns - a[w].waited_ns <= most)
			continue;
		most = b.waited_ns - a[w].waited_ns;
		fragments = b.last - a[w].last;
		who = w;
	}
	if (job->workers < 2 || fragments < SLOW_FRAGMENTS || most < all * SLOW_SHARE)
		return;
	/* fragments of a round wait at the same time */
	each = most / fragments;
	if (each * rounds * 1000 < window * SLOW_TIME)
		return;
	f = next_of_worker(l, "slow_worker", job, who);
	if (f != NULL)
		say(f, "its host is slower, does more, or its packets get lost: top, ethtool -S there",
			"job '%s': worker %u (%s) is slow: %" PRIu64
			" %% of all waiting is for it, %" PRIu64 " ms each time",
			JOB(job), who, HOST(findings_member(l, job, who).host), most * 100 / all,
			each / NS_PER_MS);
}

static const char *
absence(const struct pbox_member_view *m)
{
	return m->state == PBOX_MEMBER_SILENT ? "silent beyond its lease"
	       : m->state == PBOX_MEMBER_LEFT ? "gone"
					      : "not here yet";
}

/* A worker's library answers each second while its program computes. */
static const char *
waits_advice(const struct pbox_member_view *m)
{
	return m->silent_ns < ALIVE_NS
		       ? "it lives: its program computes, or waits for something else; pbox-ctl why JOB names tensors and rounds"
		       : "on its host: is its process stopped or dead (ps), is its network cut (ping this box)?";
}

static void
waits_for(struct list *l, const struct pbox_job_view *job, unsigned who, unsigned behind)
{
	struct pbox_member_view m = findings_member(l, job, who);
	struct health_finding *f = next_of_worker(l, "slow_worker", job, who);
	uint32_t clocks, bound;
	char others[32] = "";

	if (behind == 2)
		snprintf(others, sizeof(others), ", and for another one");
	else if (behind > 2)
		snprintf(others, sizeof(others), ", and for %u others", behind - 1);
	if (f == NULL)
		return;
	if (health_job_clocks(l->c->health, job, &clocks, &bound)) {
		bool dead = m.state != PBOX_MEMBER_JOINED;

		f->cause = dead ? "dead_worker" : f->cause;
		say(f, dead ? MISSED_ADVICE : waits_advice(&m),
			"job '%s': worker %u (%s)%s%s is %u clocks behind: pulls of bound %u wait for it%s",
			JOB(job), who, m.host[0] != '\0' ? HOST(m.host) : "no host",
			dead ? ", " : "", dead ? absence(&m) : "", clocks, bound, others);
		return;
	}
	if (m.state != PBOX_MEMBER_JOINED) {
		f->cause = "dead_worker";
		say(f, MISSED_ADVICE, "job '%s' waits for worker %u (%s), which is %s%s", JOB(job),
			who, m.host[0] != '\0' ? HOST(m.host) : "no host", absence(&m), others);
		return;
	}
	say(f, waits_advice(&m), "job '%s' waits for worker %u (%s), heard %" PRIu64 " ms ago%s",
		JOB(job), who, HOST(m.host),
		m.silent_ns == UINT64_MAX ? 0 : m.silent_ns / NS_PER_MS, others);
}

/* No round was finished. While nothing came at all the data cores have said who is missing; else: if
 * somebody has begun a new round, who has not? */
static void
find_behind(struct list *l, const struct pbox_job_view *job, const struct pbox_worker_stats *a,
	uint32_t done)
{
	uint32_t newest = done;
	unsigned who = 0, behind = health_job_missing(l->c->health, job, &who);

	if (behind > 0) {
		waits_for(l, job, who, behind);
		return;
	}
	for (unsigned w = 0; w < job->workers; w++)
		if (pbox_serial_diff(a[w].round, newest) > 0)
			newest = a[w].round;
	for (unsigned w = 0; w < job->workers && newest != done; w++) {
		struct pbox_worker_stats b;

		pbox_registrar_worker(l->c->registrar, job->job, w, &b);
		if (findings_member(l, job, w).removed || pbox_serial_diff(newest, b.round) <= 0)
			continue;
		if (behind++ == 0)
			who = w;
	}
	if (behind > 0)
		waits_for(l, job, who, behind);
}

/* Who sends contributions again loses packets, his or the answers. */
static void
find_lossy(struct list *l, const struct pbox_job_view *job, const struct pbox_worker_stats *a)
{
	uint64_t worst = 0, sum_repeats = 0, sum = 0;
	unsigned lossy = 0, who = 0, active = 0;
	struct health_finding *f;

	for (unsigned w = 0; w < job->workers; w++) {
		struct pbox_worker_stats b;
		uint64_t repeats, all;

		pbox_registrar_worker(l->c->registrar, job->job, w, &b);
		repeats = b.repeats - a[w].repeats;
		all = b.contributions - a[w].contributions + repeats;
		active += all > 0;
		sum_repeats += repeats;
		sum += all;
		if (repeats < LOSSY_FRAMES || repeats * 1000 < all * LOSSY)
			continue;
		lossy++;
		if (repeats * 1000 / all > worst) {
			worst = repeats * 1000 / all;
			who = w;
		}
	}
	if (lossy == 0)
		return;
	if (lossy > 1 && lossy * 2 > active) {
		f = findings_next(l, "lossy_link", true);
		if (f == NULL)
			return;
		snprintf(f->job, sizeof(f->job), "%s", job->name);
		say(f, "the port of the box, or its switch: ethtool -S, /pbox/ports; buffers, flow control",
			"job '%s': %u workers repeat %.1f %%: the box's link loses packets",
			JOB(job), lossy, (double)sum_repeats * 100 / (double)sum);
		return;
	}
	f = next_of_worker(l, "lossy_link", job, who);
	if (f != NULL)
		say(f, "cable, switch port and socket buffers of that host: ethtool -S, doc/train-reference.md",
			"job '%s': worker %u (%s) repeats %.1f %%: its link loses packets",
			JOB(job), who, HOST(findings_member(l, job, who).host), (double)worst / 10);
}

/* Is there a table that rounds can begin with? */
static bool
findings_has_begun(const struct list *l, const struct pbox_job_view *job)
{
	struct pbox_table_view t;

	if (job->tables == 0)
		return false;
	pbox_registrar_view_table(l->c->registrar, job->job, 0, &t);
	return t.built;
}

/* Of whom no round can begin, for good: who was never here, and who has gone before it declared anything. */
static const char *
never_began(const struct pbox_member_view *m)
{
	if (m->removed || m->declared > 0)
		return NULL;
	return m->state == PBOX_MEMBER_ABSENT   ? "never joined"
	       : m->state == PBOX_MEMBER_LEFT   ? "left before it declared a tensor"
	       : m->state == PBOX_MEMBER_SILENT ? "been silent beyond its lease"
						: NULL;
}

/* No round can begin before all workers have joined. */
static void
find_absent(struct list *l, const struct pbox_job_view *job)
{
	uint64_t absent[PBOX_MAX_WORKERS / 64] = {0}, age = l->b->at_ns - job->begun_ns;
	const char *how = NULL, *other;
	struct health_finding *f;
	unsigned n = 0, who = 0;
	char text[100];

	if (l->b->at_ns < job->begun_ns + START_NS || findings_has_begun(l, job))
		return;
	for (unsigned w = 0; w < job->workers; w++) {
		struct pbox_member_view m = findings_member(l, job, w);

		other = never_began(&m);
		if (other == NULL)
			continue;
		absent[w / 64] |= UINT64_C(1) << w % 64;
		if (n++ == 0)
			who = w;
		/* strings of the same function */
		how = how == NULL || how == other ? other : "not begun";
	}
	if (n == 0 || (f = next_of_worker(l, "dead_worker", job, who)) == NULL)
		return;
	if (n > 1)
		f->worker = -1;
	numbers_workers(absent, job->workers, text, sizeof(text));
	say(f,
		strcmp(how, "never joined") == 0
			? "start them, with this box's address, the job's name, its secret, and these numbers"
			: "the error that its program ended with says why: secret, tensors, MTU of the way here",
		"job '%s' has waited for %" PRIu64 " s for %s, which %s %s", JOB(job),
		age / ONE_SECOND, text, n == 1 ? "has" : "have", how);
}

/* What its workers may have under way is so little that round trips bound its rate, whatever the network carries. */
static void
find_windows(struct list *l, const struct pbox_job_view *job)
{
	struct health_finding *f;

	if (job->window == 0 || (uint32_t)job->window * job->workers >= FEW_FRAMES ||
		(f = findings_next(l, "small_window", false)) == NULL)
		return;
	snprintf(f->job, sizeof(f->job), "%s", job->name);
	say(f, "raise hold; a small memory, or a rate of the job, makes windows small, too",
		"job '%s': its %u workers have windows of %u frame%s: round trips bound its rate",
		JOB(job), job->workers, job->window, job->window == 1 ? "" : "s");
}

/* Nothing of the run says so, and its results are others from here on. */
static void
find_stateless(struct list *l, const struct pbox_job_view *job)
{
	uint32_t stateless = pbox_registrar_stateless(l->c->registrar, job->job);
	struct health_finding *f;

	if (stateless == 0 || (f = findings_next(l, "state_lost", true)) == NULL)
		return;
	snprintf(f->job, sizeof(f->job), "%s", job->name);
	say(f, "a checkpoint has it; before a box is stopped 'pbox-ctl safe' there says whether it is needed",
		"job '%s': %u fragments went on without what their optimiser had gathered: the box that had it was stopped or lost too early",
		JOB(job), stateless);
}

/* One worker's NaN is in the parameters of all. */
static void
find_sick(struct list *l, const struct pbox_job_view *job)
{
	struct pbox_sick_view sick;
	struct health_finding *f;

	if (!pbox_registrar_sick(l->c->registrar, job->job, &sick) ||
		(f = findings_next(l, "not_finite", true)) == NULL)
		return;
	snprintf(f->job, sizeof(f->job), "%s", job->name);
	f->worker = sick.worker;
	if (sick.worker < 0)
		say(f, "scale the loss down, or lower the learning rate",
			"job '%s': the sum overflowed in tensor '%s', element %" PRIu64
			", round %u: what workers sent was finite",
			JOB(job), TENSOR(sick.tensor), sick.element, sick.round);
	else if (findings_member(l, job, (unsigned)sick.worker).rack)
		say(f, "'pbox-ctl health' at the box of that rack names its worker and tensor",
			"job '%s': the sum of rack %s has %s in round %u", JOB(job),
			HOST(findings_member(l, job, (unsigned)sick.worker).host), sick.what,
			sick.round);
	else
		say(f, "on its host: data, memory (ECC), GPU; torch.autograd.set_detect_anomaly",
			"job '%s': worker %u (%s) sent %s in tensor '%s', element %" PRIu64
			", round %u",
			JOB(job), (unsigned)sick.worker,
			HOST(findings_member(l, job, (unsigned)sick.worker).host), sick.what,
			TENSOR(sick.tensor), sick.element, sick.round);
}

static void
find_jobs(struct list *l)
{
	const struct pbox_job *at;

	for (unsigned i = 0; (at = pbox_registrar_job(l->c->registrar, i)) != NULL; i++) {
		const struct pbox_worker_stats *a;
		struct pbox_job_view view, *job = &view;
		uint32_t was, now;

		pbox_registrar_view_job(l->c->registrar, at, job);
		if (job->state != PBOX_JOB_OPEN)
			continue;
		find_stateless(l, job);
		find_sick(l, job);
		if (job->kept_ns == 0)
			find_absent(l, job);
		a = health_job_begin(l->c->health, job, &was);
		if (a == NULL)
			continue;
		now = pbox_registrar_job_round(l->c->registrar, at);
		if (now != was) {
			find_windows(l, job);
			find_last(l, job, a, now - was);
		} else {
			find_behind(l, job, a, now);
		}
		find_lossy(l, job, a);
	}
}

static void
find_refused(struct list *l)
{
	struct health_finding found;

	for (unsigned i = 0; refused_finding(l->c, i, l->b->at_ns, &found); i++) {
		struct health_finding *f = findings_next(l, found.cause, found.harmful);

		if (f != NULL)
			*f = found;
	}
}

static void
find_snapshots(struct list *l)
{
	struct health_finding found;

	for (unsigned i = 0; snapshot_finding(l->c, i, &found); i++) {
		struct health_finding *f = findings_next(l, found.cause, found.harmful);

		if (f != NULL)
			*f = found;
	}
}

static void
find_agent(struct list *l)
{
	struct health_finding found;

	if (agent_finding(l->c, l->b->at_ns, &found)) {
		struct health_finding *f = findings_next(l, found.cause, found.harmful);

		if (f != NULL)
			*f = found;
	}
}

unsigned
health_findings(struct pbox_control *c, struct health_finding *f, unsigned max)
{
	struct list l = {.c = c, .a = health_begin(c->health), .f = f, .max = max};

	if (l.a == NULL)
		return 0;
	l.b = health_now(c);
	find_cores(&l);
	find_mute(&l);
	find_ports(&l);
	find_pools(&l);
	find_jobs(&l);
	find_refused(&l);
	find_drops(&l);
	find_snapshots(&l);
	find_agent(&l);
	return l.n;
}

void
health_reply(const struct health_finding *f, unsigned number, struct rte_tel_data *d)
{
	struct rte_tel_data *e = reply_dict();

	reply_text(e, "cause", "%s", f->cause);
	rte_tel_data_add_dict_int(e, "harmful", f->harmful);
	if (f->job[0] != '\0')
		reply_text(e, "job", "%s", f->job);
	if (f->worker >= 0)
		rte_tel_data_add_dict_int(e, "worker", f->worker);
	reply_text(e, "text", "%s", f->text);
	reply_text(e, "next", "%s", f->next);
	reply_add_numbered(d, "finding", number, e);
}
