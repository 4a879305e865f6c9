/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>
#include <rte_cycles.h>
#include <rte_ethdev.h>
#include <rte_version.h>

#include "json.h"
#include "library.h"
#include "loopback.h"
#include "testps.h"

#define FORMAT 1

static void
cpu_model(char *buf, size_t size)
{
	FILE *f = fopen("/proc/cpuinfo", "re");
	char line[256];

	snprintf(buf, size, "unknown");
	while (f != NULL && fgets(line, sizeof(line), f) != NULL)
		if (strncmp(line, "model name", 10) == 0 && strchr(line, ':') != NULL) {
			snprintf(buf, size, "%s", strchr(line, ':') + 2);
			buf[strcspn(buf, "\n")] = '\0';
			break;
		}
	if (f != NULL)
		fclose(f);
}

static json_t *
machine(void)
{
	struct utsname u = {0};
	char cpu[128];

	uname(&u);
	cpu_model(cpu, sizeof(cpu));
	return json_pack("{s:s, s:s, s:i, s:f, s:s, s:s}", "host", u.nodename, "cpu", cpu, "cpus",
		(int)sysconf(_SC_NPROCESSORS_ONLN), "tsc_ghz", (double)rte_get_tsc_hz() * 1e-9,
		"kernel", u.release, "dpdk", rte_version());
}

static json_t *
ports(const struct testps *t)
{
	json_t *list = json_array();

	for (unsigned p = 0; p < t->n_ports; p++) {
		const struct pbox_port *x = &t->port[p];
		struct rte_eth_stats s = {0};

		rte_eth_stats_get(x->conf.id, &s);
		json_array_append_new(list,
			json_pack("{s:s, s:s, s:i, s:i, s:I, s:I, s:I, s:I}", "name", x->dev.name,
				"driver", x->dev.driver, "mtu", (int)x->mtu, "queues",
				(int)x->n_queues, "ipackets", (json_int_t)s.ipackets, "opackets",
				(json_int_t)s.opackets, "imissed", (json_int_t)s.imissed,
				"rx_nombuf", (json_int_t)s.rx_nombuf));
	}
	return list;
}

static json_t *
lcores(const struct testps *t)
{
	json_t *list = json_array();

	for (unsigned i = 0; i < t->lanes; i++) {
		const struct lane *l = t->lane[i];
		uint64_t turns = pbox_stat_get(&l->stats[LS_TURNS]);
		uint64_t busy = pbox_stat_get(&l->stats[LS_TURNS_BUSY]);
		uint64_t sent = pbox_stat_get(&l->stats[LS_CONTRIBUTIONS]);

		json_array_append_new(
			list, json_pack("{s:i, s:I, s:f}", "lcore", (int)l->lcore, "contributions",
				      (json_int_t)sent, "busy",
				      turns > 0 ? (double)busy / (double)turns : 0.0));
	}
	return list;
}

static json_t *
settings(const struct testps *t)
{
	const struct testps_load *l = t->open ? &t->now : &t->load;

	return json_pack(
		"{s:s, s:i, s:s, s:I, s:i, s:i, s:i, s:I, s:s, s:s, s:s, s:i, s:i, s:b, s:b, s:b, s:s, s:s}",
		"job", t->opt.job, "workers", (int)l->workers, "model", l->model, "elements",
		(json_int_t)t->model.elements, "fragments", (int)t->plan.n, "fragment",
		(int)pbox_payload_bytes(t->data.push, t->plan.frag_elements), "window",
		(int)l->window, "trial_ms", (json_int_t)(t->opt.trial_ns / 1000000), "push",
		pbox_format_name(l->push), "pull", pbox_format_name(l->pull), "optimiser",
		pbox_optimiser_name(l->optimiser), "nb_cores", (int)t->lanes, "burst",
		(int)t->opt.burst, "check", !t->opt.no_check, "loopback", t->opt.loopback,
		"reflected", t->opt.reflected, "compute", t->opt.compute, "worker",
		t->opt.worker == TESTPS_LIBRARY ? "library" : "fast");
}

json_t *
json_figures(const struct figures *f)
{
	json_t *o = json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "seconds", f->seconds,
		"rounds_per_s", f->rounds, "push_gbit_per_s", f->push_gbit, "pull_gbit_per_s",
		f->pull_gbit, "contributions_per_s", f->contributions, "again", f->again, "busy",
		f->busy);

	json_object_set_new(o, "latency_ns",
		json_pack("{s:I, s:I, s:I, s:I}", "p50", (json_int_t)f->p50, "p90",
			(json_int_t)f->p90, "p99", (json_int_t)f->p99, "max", (json_int_t)f->max));
	return o;
}

static json_t *
json_of_counters(const struct figures *f)
{
	json_t *o = json_object();

	for (unsigned k = 0; k < LS_STATS; k++)
		json_object_set_new(o, lane_stat_defs[k].name, json_integer((json_int_t)f->v[k]));
	return o;
}

json_t *
json_results(struct testps *t)
{
	char when[32];
	time_t now = time(NULL);
	struct tm tm;

	strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &tm));
	return json_pack("{s:s, s:i, s:s, s:s, s:i, s:o, s:o, s:o, s:o}", "program", "pbox-testps",
		"format", FORMAT, "version", PBOX_VERSION, "time", when, "rejoined",
		(int)t->rejoined, "machine", machine(), "settings", settings(t), "ports", ports(t),
		"lcores", lcores(t));
}

/* --worker library: how it was asked to play, and which slots each worker has done. */
static json_t *
json_library(const struct testps *t)
{
	json_t *list = json_array();
	uint32_t plan = 0;

	for (unsigned w = 0; w < t->workers; w++) {
		const struct library *b = t->lane[w % t->lanes]->library;
		const struct library_worker *x = &b->x[w / t->lanes];

		plan = RTE_MAX(plan, b->plan);
		json_array_append_new(
			list, json_pack("{s:i, s:I, s:I, s:I}", "worker", (int)w, "rounds",
				      (json_int_t)x->round, "slots", (json_int_t)x->all_slots,
				      "slot_time_us", (json_int_t)(library_slot_ns(t, w) / 1000)));
	}
	return json_pack("{s:i, s:s, s:s, s:s, s:i, s:i, s:o}", "slots",
		(int)(t->opt.slots != 0 ? t->opt.slots : t->workers), "policy",
		pbox_policy_name((unsigned)t->opt.policy), "discipline",
		pbox_discipline_name((unsigned)t->opt.discipline), "bound", t->opt.bound, "boxes",
		(int)t->n_boxes, "plans", (int)plan, "workers", list);
}

void
json_counters(json_t *results, const struct figures *f)
{
	json_object_set_new(results, "counters", json_of_counters(f));
}

int
json_try(const char *path, struct pbox_error *err)
{
	bool there = access(path, F_OK) == 0;
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);

	if (fd < 0)
		return pbox_fail(
			err, errno, "--json %s cannot be written: %s", path, strerror(errno));
	close(fd);
	if (!there)
		unlink(path);
	return 0;
}

int
json_save(json_t *results, const char *path, struct pbox_error *err)
{
	int ret = 0;

	if (results == NULL)
		return pbox_fail(err, ENOMEM, "no memory for the results");
	if (json_dump_file(results, path, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) != 0)
		ret = pbox_fail(err, EIO, "--json %s cannot be written: %s", path, strerror(errno));
	json_decref(results);
	return ret;
}

int
json_write(struct testps *t, const struct figures *f, struct pbox_error *err)
{
	json_t *o = json_results(t);
	uint64_t frames, copies;

	json_object_set_new(o, "result", json_figures(f));
	if (loopback_reflected(t->loopback, &frames, &copies))
		json_object_set_new(o, "reflector",
			json_pack("{s:I, s:I}", "frames", (json_int_t)frames, "copies",
				(json_int_t)copies));
	if (t->open && t->opt.worker == TESTPS_LIBRARY)
		json_object_set_new(o, "library", json_library(t));
	json_counters(o, f);
	return json_save(o, t->opt.json, err);
}
