/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "health.h"
#include "reply.h"

/*
 * pbox-agent says through telemetry how the fleet is, and for how long that holds: what is wrong becomes a finding of
 * this box, and so does its silence. The box itself does nothing else about it.
 */

#define FIRST_NS (30 * ONE_SECOND) /* from the start of the box: so long it may take */
#define LONGEST  3600              /* seconds */

bool
agent_finding(const struct pbox_control *c, uint64_t now_ns, struct health_finding *f)
{
	const struct agent_said *a = &c->agent;

	*f = (struct health_finding){.cause = "cluster", .harmful = true, .worker = -1};
	if (a->said_ns != 0 && now_ns > a->until_ns) {
		snprintf(f->text, sizeof(f->text),
			"pbox-agent has said nothing for %" PRIu64
			" s: etcd takes this box for gone, and the others take its chunks",
			(now_ns - a->said_ns) / ONE_SECOND);
	} else if (a->said_ns == 0 && c->conf.cluster && now_ns > c->started_ns + FIRST_NS) {
		snprintf(f->text, sizeof(f->text),
			"there is a [cluster] in the configuration, and pbox-agent has not come");
	} else if (a->said_ns != 0 && a->wrong) {
		f->harmful = a->harmful;
		snprintf(f->text, sizeof(f->text), "%s", a->text);
		snprintf(f->next, sizeof(f->next), "%s", a->next);
		return true;
	} else {
		return false;
	}
	snprintf(f->next, sizeof(f->next),
		"start it: systemctl start pbox-agent; its log says why it ended");
	return true;
}

/* "15", or "15,1,TEXT|NEXT" */
static bool
agent_take(struct pbox_control *c, const char *params)
{
	struct agent_said a = {0};
	char *end, *cut;
	unsigned long seconds = strtoul(params, &end, 10);

	if (params[0] < '0' || params[0] > '9' || seconds == 0 || seconds > LONGEST)
		return false;
	if (*end == ',') {
		if ((end[1] != '0' && end[1] != '1') || end[2] != ',' || end[3] == '\0')
			return false;
		a.wrong = true;
		a.harmful = end[1] == '1';
		snprintf(a.text, sizeof(a.text), "%.*s", (int)strcspn(end + 3, "|"), end + 3);
		cut = strchr(end + 3, '|');
		snprintf(a.next, sizeof(a.next), "%s", cut != NULL ? cut + 1 : "");
		pbox_mask(a.text);
		pbox_mask(a.next);
	} else if (*end != '\0') {
		return false;
	}
	a.said_ns = pbox_dp_now(c->conf.dp);
	a.until_ns = a.said_ns + seconds * ONE_SECOND;
	if (a.wrong && (!c->agent.wrong || strcmp(a.text, c->agent.text) != 0))
		pbox_log(a.harmful ? PBOX_LOG_WARN : PBOX_LOG_INFO, "cluster: %s", a.text);
	else if (!a.wrong && c->agent.wrong)
		pbox_log(PBOX_LOG_INFO, "cluster: all is well again");
	c->agent = a;
	return true;
}

void
control_agent(struct pbox_control *c, const char *params, struct rte_tel_data *d)
{
	const struct agent_said *a = &c->agent;
	uint64_t now;

	if (params != NULL && params[0] != '\0' && !agent_take(c, params)) {
		reply_error(d,
			"SECONDS that it holds, 1 to %d; where something is wrong SECONDS,HARMFUL,TEXT|NEXT, with HARMFUL 0 or 1",
			LONGEST);
		return;
	}
	now = pbox_dp_now(c->conf.dp);
	reply_text(d, "agent", "%s",
		a->said_ns == 0     ? "has not come"
		: now > a->until_ns ? "silent"
		: a->wrong          ? "wrong"
				    : "well");
	if (a->said_ns != 0)
		rte_tel_data_add_dict_u64(d, "said_ms", (now - a->said_ns) / NS_PER_MS);
	if (a->wrong) {
		reply_text(d, "text", "%s", a->text);
		reply_text(d, "next", "%s", a->next);
	}
}
