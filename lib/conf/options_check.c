/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* The box's options are loaded, and compared with each other. */

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <pbox_pairs.h>
#include <pbox_wire.h>

#include "options_rows.h"

#define WHERE_MAX 256

static uint32_t
options_check_number(const uint8_t a[4])
{
	return (uint32_t)a[0] << 24 | (uint32_t)a[1] << 16 | (uint32_t)a[2] << 8 | a[3];
}

static bool
can_be_a_host(uint32_t a)
{
	return a >> 24 != 0 && a >> 24 != 127 && a >> 24 < 224;
}

static int
check_address(
	const struct pbox_port_options *p, const struct pbox_conf *conf, struct pbox_error *err)
{
	uint32_t a = options_check_number(p->address.addr), host;
	char where[WHERE_MAX];

	host = p->address.len < 32 ? UINT32_MAX >> p->address.len : 0;
	pbox_conf_where(conf, &p->address, where, sizeof(where));
	if (!can_be_a_host(a))
		return pbox_fail(err, EINVAL, "%s: that cannot be the address of a port", where);
	/* networks of two and one addresses have no others (RFC 3021) */
	if (p->address.len < 31 && ((a & host) == 0 || (a & host) == host))
		return pbox_fail(err, EINVAL,
			"%s: that is the %s address of the network: take one in between", where,
			(a & host) == 0 ? "first" : "broadcast");
	return 0;
}

/** One address for several ports is a mistake unless all of them say that it is none. */
static int
check_same_address(const struct pbox_port_options *a, const struct pbox_port_options *b,
	const struct pbox_conf *conf, struct pbox_error *err)
{
	char where[WHERE_MAX], other[WHERE_MAX];

	if (memcmp(a->address.addr, b->address.addr, 4) != 0)
		return 0;
	pbox_conf_where(conf, &a->address, other, sizeof(other));
	pbox_conf_where(conf, &b->address, where, sizeof(where));
	if (!a->shared || !b->shared)
		return pbox_fail(err, EINVAL,
			"two ports have the same address: %s, %s (where no switch connects their links, write shared = yes in both)",
			other, where);
	if (a->address.len != b->address.len)
		return pbox_fail(err, EINVAL,
			"a shared address has one length of its network: %s, %s", other, where);
	return 0;
}

static int
check_ports(const struct pbox_options *o, const struct pbox_conf *conf, struct pbox_error *err)
{
	char where[WHERE_MAX], other[WHERE_MAX];
	int ret;

	if (o->n_ports == 0)
		return pbox_fail(err, EINVAL,
			"no port is configured (file: %s): add a [port 0] section with an address there (pbox alone also takes --port 0:address=10.0.0.1/24)",
			o->config);
	for (unsigned i = 0; i < o->n_ports; i++) {
		const struct pbox_port_options *p = &o->ports[i];
		unsigned cores = pbox_conf_cores_count(&p->cores);

		ret = check_address(p, conf, err);
		for (unsigned j = 0; j < i && ret == 0; j++)
			ret = check_same_address(&o->ports[j], p, conf, err);
		if (ret != 0)
			return ret;
		if (cores > 0 && p->queues > cores)
			return pbox_fail(err, EINVAL,
				"%s needs a core for each queue, and %s has %u: add cores, or set fewer queues",
				pbox_conf_where(conf, &p->queues, where, sizeof(where)),
				pbox_conf_where(conf, &p->cores, other, sizeof(other)), cores);
	}
	return 0;
}

static int
check_job(const struct pbox_options *o, const struct pbox_job_options *j,
	const struct pbox_conf *conf, struct pbox_error *err)
{
	char where[WHERE_MAX], other[WHERE_MAX];

	pbox_conf_where(conf, j, where, sizeof(where));
	if (!pbox_utf8_good(j->name))
		return pbox_fail(err, EINVAL,
			"%s: the name is not UTF-8, and no worker can have it: write the file in UTF-8",
			where);
	if (j->secret.len == 0 && !j->insecure)
		return pbox_fail(err, EINVAL,
			"%s has no secret: add secret = file:PATH, or insecure = yes to let anyone join",
			where);
	if (j->auth && j->secret.len == 0)
		return pbox_fail(err, EINVAL,
			"%s has auth = yes and no secret, from which the keys are made: add secret = file:PATH",
			where);
	if (j->secret.len != 0 && j->insecure)
		return pbox_fail(
			err, EINVAL, "%s has a secret and insecure = yes: remove one", where);
	if (j->max_jobs > 1 && strcmp(j->name, "*") != 0)
		return pbox_fail(err, EINVAL,
			"%s: a section with a name has one job: write max-jobs in [job *], or before all sections",
			pbox_conf_where(conf, &j->max_jobs, where, sizeof(where)));
	if (j->workers > o->max_workers)
		return pbox_fail(err, EINVAL, "%s is more than %s: raise max-workers",
			pbox_conf_where(conf, &j->workers, where, sizeof(where)),
			pbox_conf_where(conf, &o->max_workers, other, sizeof(other)));
	return 0;
}

static int
check_jobs(const struct pbox_options *o, const struct pbox_conf *conf, struct pbox_error *err)
{
	int ret;

	if (o->n_jobs == 0)
		return pbox_fail(err, EINVAL,
			"no job is configured (file: %s), so no worker could join: add a [job NAME] section with a secret",
			o->config);
	for (unsigned i = 0; i < o->n_jobs; i++) {
		ret = check_job(o, &o->jobs[i], conf, err);
		if (ret != 0)
			return ret;
	}
	return 0;
}

int
pbox_options_parity(const char *text, unsigned *data, unsigned *parity, struct pbox_error *err)
{
	int end = 0;

	if (sscanf(text, "%2u+%2u%n", data, parity, &end) == 2 && text[end] == '\0' && *data >= 1 &&
		*data <= 64 && *parity <= 16)
		return 0;
	return pbox_fail(err, EINVAL, "write 1 to 64, +, and 0 to 16, like 16+2");
}

int
pbox_options_boxes(const char *text, uint8_t addr[PBOX_OPTIONS_BOXES][4], struct pbox_error *err)
{
	int n = 0;

	for (const char *at = text;; n++) {
		size_t len;
		char one[32];

		at += strspn(at, " \t");
		len = strcspn(at, ", \t");
		snprintf(one, sizeof(one), "%.*s", (int)(len < 31 ? len : 31), at);
		if (n == PBOX_OPTIONS_BOXES)
			return pbox_fail(
				err, EINVAL, "a job is at %u boxes at most", PBOX_OPTIONS_BOXES);
		if (inet_pton(AF_INET, one, addr[n]) != 1)
			return pbox_fail(err, EINVAL,
				"'%s' is no address: write one of each box, like 10.0.0.1, 10.0.0.2",
				one);
		for (int i = 0; i < n; i++)
			if (memcmp(addr[i], addr[n], 4) == 0)
				return pbox_fail(
					err, EINVAL, "%s is there twice: name each box once", one);
		at += len + strspn(at + len, " \t");
		if (*at == '\0')
			break;
		if (*at++ != ',')
			return pbox_fail(err, EINVAL, "write commas between the addresses");
	}
	if (n == 0)
		return pbox_fail(
			err, EINVAL, "that is one box: name all of them, or leave the option out");
	return n + 1;
}

int
pbox_options_box(const struct pbox_options *o, struct pbox_error *err)
{
	uint8_t addr[PBOX_OPTIONS_BOXES][4];
	int n = pbox_options_boxes(o->boxes, addr, err), box = -1;

	for (int i = 0; i < n; i++)
		for (unsigned p = 0; p < o->n_ports; p++) {
			if (memcmp(addr[i], o->ports[p].address.addr, 4) != 0 || box == i)
				continue;
			if (box >= 0)
				return pbox_fail(err, EINVAL,
					"two of them are this box, number %d and number %d: name each box by one address",
					box + 1, i + 1);
			box = i;
		}
	if (n < 0)
		return n;
	if (box < 0)
		return pbox_fail(err, EINVAL,
			"none of them is the address of a port of this box: name it, too");
	return box;
}

int
conf_pair(const struct pbox_conf *conf, const void *value, uint32_t uses, struct pbox_error *err)
{
	const struct pbox_pair *p = pbox_pair_in(uses);
	char where[WHERE_MAX];

	return p == NULL ? 0
			 : pbox_fail(err, EINVAL, "%s: " PBOX_PAIR_FMT,
				   pbox_conf_where(conf, value, where, sizeof(where)),
				   PBOX_PAIR_ARGS(p));
}

int
conf_policies(const struct pbox_options *o, const struct pbox_conf *conf, uint32_t uses,
	struct pbox_error *err)
{
	int ret = 0;

	for (unsigned i = 0; ret == 0 && i < o->n_jobs; i++)
		if (o->jobs[i].policy != PBOX_POLICY_ANY)
			ret = conf_pair(conf, &o->jobs[i].policy,
				uses | pbox_uses_of_policy(o->jobs[i].policy), err);
	return ret;
}

static int
check_boxes(const struct pbox_options *o, const struct pbox_conf *conf, struct pbox_error *err)
{
	char where[WHERE_MAX];
	struct pbox_error why;

	if (o->boxes[0] == '\0')
		return 0;
	pbox_conf_where(conf, o->boxes, where, sizeof(where));
	if (pbox_options_box(o, &why) < 0)
		return pbox_fail(err, EINVAL, "%s: %s", where, why.text);
	return conf_policies(o, conf, PBOX_USES_BOXES, err);
}

static int
check_snapshots(const struct pbox_options *o, const struct pbox_conf *conf, struct pbox_error *err)
{
	char where[WHERE_MAX];
	struct pbox_error why;
	unsigned data, parity;

	if (pbox_options_parity(o->snapshot_parity, &data, &parity, &why) != 0)
		return pbox_fail(err, EINVAL, "%s: %s",
			pbox_conf_where(conf, o->snapshot_parity, where, sizeof(where)), why.text);
	if (o->snapshot_dir[0] != '\0' && o->snapshot_memory == 0)
		return pbox_fail(err, EINVAL,
			"%s needs snapshot-memory: as much as the largest table with its optimiser state takes, like 2G",
			pbox_conf_where(conf, o->snapshot_dir, where, sizeof(where)));
	if (o->snapshot_dir[0] == '\0' && o->snapshot_memory > 0)
		return pbox_fail(err, EINVAL, "%s needs snapshot-dir: where they are written",
			pbox_conf_where(conf, &o->snapshot_memory, where, sizeof(where)));
	return 0;
}

int
pbox_options_check(
	const struct pbox_options *o, const struct pbox_conf *conf, struct pbox_error *err)
{
	char where[WHERE_MAX], other[WHERE_MAX];
	int ret;

	/* one fragment of a full job must fit: its last payload may be that of worker 0 */
	if (o->hold < o->max_workers)
		return pbox_fail(err, EINVAL,
			"%s is less than %s: a core must hold a packet of each worker: raise hold, or lower max-workers",
			pbox_conf_where(conf, &o->hold, where, sizeof(where)),
			pbox_conf_where(conf, &o->max_workers, other, sizeof(other)));
	if (o->chunk_bytes % 64 != 0)
		return pbox_fail(err, EINVAL, "%s is not a multiple of 64",
			pbox_conf_where(conf, &o->chunk_bytes, where, sizeof(where)));
	ret = check_snapshots(o, conf, err);
	if (ret == 0)
		ret = check_ports(o, conf, err);
	if (ret == 0)
		ret = check_boxes(o, conf, err);
	if (ret == 0)
		ret = conf_rack_check(o, conf, err);
	if (ret == 0)
		ret = conf_cluster_check(o, conf, err);
	if (ret != 0)
		return ret;
	return check_jobs(o, conf, err);
}

struct pbox_conf *
pbox_options_load(struct pbox_options *o, int argc, char *const argv[], struct pbox_error *err)
{
	struct pbox_error why;
	struct pbox_conf *conf;
	int ret;

	memset(o, 0, sizeof(*o));
	conf = pbox_conf_new(&pbox_options_table, o, err);
	if (conf == NULL)
		return NULL;
	if (pbox_conf_args(conf, argc, argv, err) != 0)
		goto fail;
	if (o->help != PBOX_OPTION_HELP_NONE || o->version || o->counters)
		return conf;
	if (strcmp(o->config, "none") != 0) {
		ret = pbox_conf_file(conf, o->config, &why);
		if (ret != 0 && (ret != -ENOENT ||
					pbox_conf_source(conf, o->config) != PBOX_CONF_DEFAULT)) {
			pbox_fail(err, why.code, "%s", why.text);
			goto fail;
		}
	}
	if (pbox_conf_complete(conf, err) != 0 || pbox_options_check(o, conf, err) != 0)
		goto fail;
	return conf;

fail:
	pbox_conf_free(conf);
	pbox_options_wipe(o);
	return NULL;
}
