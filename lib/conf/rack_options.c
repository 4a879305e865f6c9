/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* upstream and rack: what they say, and what does not go with them. */

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <pbox_modes.h>
#include <pbox_pairs.h>

#include "options_rows.h"

#define WHERE_MAX 256
#define RACKS_MAX 4096
/* UDP ports below the control port that uplinks have (PBOX_UPLINKS). */
#define UPLINK_PORTS 16

int
pbox_options_upstream(const char *text, uint8_t addr[4], uint16_t *port, struct pbox_error *err)
{
	char ip[32];
	size_t len = strcspn(text, ":");
	unsigned n = 7269;
	int end = 0;

	snprintf(ip, sizeof(ip), "%.*s", (int)(len < 31 ? len : 31), text);
	if (inet_pton(AF_INET, ip, addr) != 1)
		return pbox_fail(err, EINVAL,
			"'%s' is no address: write that of the upper box, like 10.0.0.9", ip);
	if (text[len] == ':' && (sscanf(text + len + 1, "%5u%n", &n, &end) != 1 ||
					text[len + 1 + (size_t)end] != '\0' || n < 1 || n > 65535))
		return pbox_fail(err, EINVAL, "'%s' is no port: write 1 to 65535", text + len + 1);
	*port = (uint16_t)n;
	return 0;
}

int
pbox_options_rack(const char *text, unsigned *rack, unsigned *racks, struct pbox_error *err)
{
	int end = 0;

	if (sscanf(text, "%4u/%4u%n", rack, racks, &end) != 2 || text[end] != '\0' || *racks < 2 ||
		*racks > RACKS_MAX)
		return pbox_fail(err, EINVAL,
			"'%s' is no rack: write its number and how many there are, like 0/2", text);
	if (*rack >= *racks)
		return pbox_fail(err, EINVAL, "rack %u of %u: numbers are 0 to %u", *rack, *racks,
			*racks - 1);
	return 0;
}

static int
check_alone(const struct pbox_options *o, const struct pbox_conf *conf, struct pbox_error *err)
{
	char where[WHERE_MAX];
	int ret = 0;

	if (o->boxes[0] != '\0')
		ret = conf_pair(conf, o->boxes, PBOX_USES_RACKS | PBOX_USES_BOXES, err);
	if (ret == 0 && o->snapshot_dir[0] != '\0')
		ret = conf_pair(conf, o->snapshot_dir, PBOX_USES_RACKS | PBOX_USES_SNAPSHOTS, err);
	if (ret != 0)
		return ret;
	if (o->control_port <= UPLINK_PORTS)
		return pbox_fail(err, EINVAL,
			"%s: a rack's box uses the %u ports below it, too: take one above %u",
			pbox_conf_where(conf, &o->control_port, where, sizeof(where)), UPLINK_PORTS,
			UPLINK_PORTS);
	return conf_policies(o, conf, PBOX_USES_RACKS, err);
}

int
conf_rack_check(const struct pbox_options *o, const struct pbox_conf *conf, struct pbox_error *err)
{
	char where[WHERE_MAX];
	struct pbox_error why;
	unsigned rack, racks;
	uint8_t addr[4];
	uint16_t port;

	if (o->upstream[0] == '\0' && o->rack[0] == '\0')
		return 0;
	if (o->upstream[0] == '\0')
		return pbox_fail(err, EINVAL, "%s needs upstream: the address of the upper box",
			pbox_conf_where(conf, o->rack, where, sizeof(where)));
	if (o->rack[0] == '\0')
		return pbox_fail(err, EINVAL, "%s needs rack: which one this is, like 0/2",
			pbox_conf_where(conf, o->upstream, where, sizeof(where)));
	if (pbox_options_upstream(o->upstream, addr, &port, &why) != 0)
		return pbox_fail(err, EINVAL, "%s: %s",
			pbox_conf_where(conf, o->upstream, where, sizeof(where)), why.text);
	if (pbox_options_rack(o->rack, &rack, &racks, &why) != 0)
		return pbox_fail(err, EINVAL, "%s: %s",
			pbox_conf_where(conf, o->rack, where, sizeof(where)), why.text);
	for (unsigned p = 0; p < o->n_ports; p++)
		if (memcmp(addr, o->ports[p].address.addr, 4) == 0)
			return pbox_fail(err, EINVAL,
				"%s is the address of this box: write that of the upper one",
				pbox_conf_where(conf, o->upstream, where, sizeof(where)));
	return check_alone(o, conf, err);
}
