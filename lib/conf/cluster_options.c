/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* [cluster NAME]: how pbox-agent reaches etcd. */

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "options_rows.h"

/* clang-format off */
#define TARGET struct pbox_cluster_options
const struct pbox_conf_option conf_cluster_options[] = {
	ROW(STRING, "etcd", etcd,
		.flags = PBOX_CONF_REQUIRED,
		.example = "http://10.0.0.9:2379, http://10.0.0.10:2379, http://10.0.0.11:2379",
		.brief = "endpoints of etcd's members, 3.4 or later",
		.more = "All of them: any one that answers is enough. https:// for TLS."),
	ROW(PATH, "ca", ca,
		.example = "/etc/pbox/etcd-ca.pem",
		.brief = "certificates that sign etcd's",
		.more = "For https://. Without it, those that this host trusts."),
	ROW(PATH, "cert", cert,
		.example = "/etc/pbox/etcd-client.pem",
		.brief = "certificate of this client, with its key",
		.more = "Where etcd has --client-cert-auth."),
	ROW(PATH, "key", key,
		.example = "/etc/pbox/etcd-client.key",
		.brief = "private key of cert"),
	ROW(STRING, "user", user,
		.example = "pbox",
		.brief = "user of etcd",
		.more = "Where etcd has auth enabled. It needs readwrite on the prefix /pbox/NAME/."),
	ROW(SECRET, "password", password,
		.min = 1,
		.example = "file:/etc/pbox/etcd.password",
		.brief = "password of user"),
	RANGE(DURATION, "lease", lease_ns, 5 * S, 300 * S,
		.def = "15s",
		.brief = "silence of an agent after which its box is gone",
		.more = "Alike at all boxes. Longer than etcd takes to choose another leader."),
	RANGE(DURATION, "failover", failover_ns, 10 * S, 86400 * S,
		.zero = "none",
		.def = "30s",
		.brief = "jobs go on without a box that is gone for so long",
		.more = "The agent of the box that decides in the job gives its chunks to the others then, while they train; if that box is gone, the next one of the list takes its place. Twice the lease or more: an agent that was away needs one to serve again. The timeout of workers must be longer than lease, failover and 10 s together. none: a person does it (pbox-ctl failover)."),
	ROW(BOOL, "balance", balance,
		.def = "no",
		.example = "yes",
		.brief = "chunks move away from a box that is slow",
		.more = "Of jobs at all boxes, while they train, by what their workers measure; the agent of the box that decides does it. Weights that a person has set stay. no: it only says which box is slow."),
	RANGE(U32, "balance-window", balance_window, 5, 10000, .unit = "rounds",
		.def = "20",
		.brief = "rounds measured before boxes are compared",
		.more = "A box is slow after two such windows."),
	ROW(BOOL, "balance-scale", balance_scale,
		.def = "no",
		.example = "yes",
		.brief = "balance takes boxes in, and lets boxes go",
		.more = "Takes in those without chunks, and lets go those that rounds do not miss. Needs balance."),
};
#undef TARGET
/* clang-format on */

static_assert(
	sizeof(conf_cluster_options) / sizeof(conf_cluster_options[0]) == CONF_CLUSTER_OPTIONS,
	"options_rows.h says how many there are");

int
conf_cluster_name(const char *name, struct pbox_error *err)
{
	for (const char *c = name; *c != '\0'; c++)
		if (!((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
			    (*c >= '0' && *c <= '9') || strchr("._-", *c) != NULL))
			return pbox_fail(
				err, EINVAL, "a fleet's name has letters, digits, ., _ and -");
	return 0;
}

/* One endpoint: a scheme, and what may be a host with a port. */
static int
cluster_endpoint(const char *url, struct pbox_error *err)
{
	const char *host = strncmp(url, "http://", 7) == 0    ? url + 7
			   : strncmp(url, "https://", 8) == 0 ? url + 8
							      : NULL;

	if (host == NULL)
		return pbox_fail(err, EINVAL,
			"'%s' begins with neither http:// nor https://: write endpoints like http://10.0.0.9:2379",
			url);
	if (host[0] == '\0' || host[strcspn(host, "/?#@ ")] != '\0')
		return pbox_fail(err, EINVAL,
			"'%s' is no endpoint: write a host and a port alone, like http://10.0.0.9:2379",
			url);
	return 0;
}

int
pbox_options_etcd(
	const char *text, char url[PBOX_OPTIONS_ETCDS][PBOX_OPTIONS_URL], struct pbox_error *err)
{
	unsigned n = 0;

	for (const char *at = text;;) {
		size_t len;

		at += strspn(at, " \t");
		len = strcspn(at, ", \t");
		if (n == PBOX_OPTIONS_ETCDS)
			return pbox_fail(err, EINVAL, "etcd has %u endpoints here at most",
				PBOX_OPTIONS_ETCDS);
		if (len >= PBOX_OPTIONS_URL)
			return pbox_fail(err, EINVAL, "an endpoint has %u bytes at most",
				PBOX_OPTIONS_URL - 1);
		memcpy(url[n], at, len);
		url[n][len] = '\0';
		if (len > 0 && url[n][len - 1] == '/')
			url[n][len - 1] = '\0';
		if (cluster_endpoint(url[n], err) != 0)
			return -EINVAL;
		if ((strncmp(url[0], "https", 5) == 0) != (strncmp(url[n], "https", 5) == 0))
			return pbox_fail(err, EINVAL, "%s and %s: all with TLS (https://), or none",
				url[0], url[n]);
		for (unsigned i = 0; i < n; i++)
			if (strcmp(url[i], url[n]) == 0)
				return pbox_fail(err, EINVAL, "%s is there twice", url[n]);
		n++;
		at += len + strspn(at + len, " \t");
		if (*at == '\0')
			return (int)n;
		if (*at++ != ',')
			return pbox_fail(err, EINVAL, "write commas between the endpoints");
	}
}

int
conf_cluster_check(
	const struct pbox_options *o, const struct pbox_conf *conf, struct pbox_error *err)
{
	const struct pbox_cluster_options *c = &o->clusters[0];
	char url[PBOX_OPTIONS_ETCDS][PBOX_OPTIONS_URL], where[256];
	struct pbox_error why;

	if (o->n_clusters == 0)
		return 0;
	if (pbox_options_etcd(c->etcd, url, &why) < 0)
		return pbox_fail(err, EINVAL, "%s: %s",
			pbox_conf_where(conf, c->etcd, where, sizeof(where)), why.text);
	pbox_conf_where(conf, c, where, sizeof(where));
	if (o->boxes[0] == '\0')
		return pbox_fail(err, EINVAL,
			"%s needs boxes: write boxes = with an address of each box above all sections",
			where);
	if (c->failover_ns != 0 && c->failover_ns < 2 * c->lease_ns)
		return pbox_fail(err, EINVAL,
			"%s: failover is shorter than two leases (%" PRIu64
			" s): an agent that was away for a moment needs one until its box serves again: write failover = %" PRIu64
			"s or longer",
			where, 2 * c->lease_ns / S, 2 * c->lease_ns / S);
	if (c->balance_scale && !c->balance)
		return pbox_fail(err, EINVAL,
			"%s: balance-scale is a part of balance: write balance = yes, too", where);
	if ((c->cert[0] == '\0') != (c->key[0] == '\0'))
		return pbox_fail(
			err, EINVAL, "%s: cert and key go together: set both, or none", where);
	if ((c->user[0] == '\0') != (c->password.len == 0))
		return pbox_fail(
			err, EINVAL, "%s: user and password go together: set both, or none", where);
	if (strncmp(url[0], "https", 5) != 0 && (c->ca[0] != '\0' || c->cert[0] != '\0'))
		return pbox_fail(err, EINVAL,
			"%s: ca and cert are for TLS, and the endpoints are http://: write https://",
			where);
	return 0;
}

uint64_t
pbox_options_timeout(const struct pbox_cluster_options *c)
{
	return c->failover_ns != 0 ? c->lease_ns + c->failover_ns + 10 * S : 0;
}
