/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <rte_launch.h>
#include <rte_lcore.h>
#include <sodium.h>

#include "box.h"

static const char *const reduce_name[] = {NULL, "scalar", "avx2", "avx512"};
static const char *const idle_name[] = {PBOX_IDLES(PBOX_MODE_NAME)};

/* For the signal handler. */
static _Atomic(struct pbox_control *) stoppable;
static volatile sig_atomic_t stop_wanted, reload_wanted;

static void
serve_on_signal(int sig)
{
	struct pbox_control *c = atomic_load(&stoppable);

	(void)sig;
	stop_wanted = 1;
	if (c != NULL)
		pbox_control_stop(c);
}

static int
kernels(struct box *b, struct pbox_error *err)
{
	const char *name = reduce_name[b->opt.reduce];

	b->reduce = pbox_reduce_select(name);
	if (b->reduce == NULL)
		return pbox_fail(err, ENOTSUP,
			"reduce = %s: this CPU, or this build, does not have it: use auto", name);
	b->optim = name != NULL ? pbox_optim_select(name) : NULL;
	if (b->optim == NULL)
		b->optim = pbox_optim_select(NULL);
	return 0;
}

void
jobs_conf(const struct pbox_options *opt, struct pbox_job_conf *out)
{
	for (unsigned i = 0; i < opt->n_jobs; i++) {
		const struct pbox_job_options *o = &opt->jobs[i];

		out[i] = (struct pbox_job_conf){
			.name = o->name,
			.secret = (const char *)o->secret.bytes,
			.secret_len = o->secret.len,
			.workers = o->workers,
			.bounds = o->bounds,
			.max_jobs = o->max_jobs,
			.auth = o->auth,
			.snapshot = o->snapshot == PBOX_OPTION_SNAPSHOT_YES ||
				    (o->snapshot == PBOX_OPTION_SNAPSHOT_AUTO &&
					    strcmp(o->name, "*") != 0),
			.snapshot_space = o->snapshot_space,
			.policy = (int8_t)o->policy,
		};
	}
}

static uint64_t
unix_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void
boxes_conf(const struct box *b, struct pbox_registrar_boxes *out)
{
	uint8_t addr[PBOX_OPTIONS_BOXES][4];
	struct pbox_error err;
	int n;

	_Static_assert(PBOX_OPTIONS_BOXES == PBOX_MAX_BOXES, "of the configuration, and of a job");
	if (b->opt.boxes[0] == '\0')
		return;
	n = pbox_options_boxes(b->opt.boxes, addr, &err);
	out->boxes = (uint8_t)n;
	out->box = (uint8_t)pbox_options_box(&b->opt, &err);
	out->release = PBOX_VERSION;
	for (int i = 0; i < n; i++) {
		memcpy(out->at[i].ipv4, addr[i], 4);
		out->at[i].udp = (uint16_t)b->opt.control_port;
	}
}

/* Which rack this is, and its upper box; nothing, of another box. */
static void
rack_conf(const struct box *b, struct pbox_control_conf *out)
{
	unsigned rack, racks;
	struct pbox_error err;
	uint8_t addr[4];

	if (b->opt.upstream[0] == '\0')
		return;
	pbox_options_rack(b->opt.rack, &rack, &racks, &err);
	pbox_options_upstream(b->opt.upstream, addr, &out->upper_udp, &err);
	memcpy(&out->upper_ip, addr, sizeof(addr));
	out->registrar.rack = (struct pbox_registrar_rack){(uint16_t)rack, (uint16_t)racks};
	out->host = b->opt.rack;
}

static struct pbox_registrar_conf
registrar_conf(struct box *b)
{
	struct pbox_registrar_conf c = {
		.incarnation = b->incarnation,
		.cookie_key = b->cookie_key,
		.first_run = pbox_registrar_first_run(unix_ns()),
		.max_jobs = (uint16_t)b->opt.max_jobs,
		.max_workers = (uint16_t)b->opt.max_workers,
		.chunk_elements = (uint32_t)(b->opt.chunk_bytes / 4),
		.lease_ms = (uint32_t)(b->opt.lease_ns / 1000000),
		.grace_ms = (uint32_t)(b->opt.grace_ns / 1000000),
		.mtu = b->mtu,
		.hold = b->opt.hold,
		.n_shards = b->n_cores,
		.endpoint = b->endpoint,
		.n_endpoints = b->n_endpoints,
		.job = b->job,
		.n_jobs = b->opt.n_jobs,
	};

	jobs_conf(&b->opt, b->job);
	boxes_conf(b, &c.boxes);
	memcpy(c.arena, b->arena, sizeof(c.arena));
	return c;
}

/* A stuck core may be the main thread: there is nobody to return to. What it holds, the kernel takes. */
static void
end_without(unsigned core)
{
	(void)core;
	log_end();
	_exit(EXIT_FAILURE);
}

static struct pbox_dp_conf
dataplane_conf(struct box *b, const struct pbox_dp_region *region, unsigned n_regions)
{
	return (struct pbox_dp_conf){
		.port = b->port,
		.n_ports = b->n_ports,
		.core = b->core,
		.n_cores = b->n_cores,
		.endpoint = b->endpoint,
		.n_endpoints = b->n_endpoints,
		.control_port = (uint16_t)b->opt.control_port,
		.uplinks = b->opt.upstream[0] != '\0' ? 16 : 0,
		.incarnation = b->incarnation,
		.cookie_key = b->cookie_key,
		.max_jobs = (uint16_t)b->opt.max_jobs,
		.idle = b->idle,
		.reduce = b->reduce,
		.optim = b->optim,
		.region = region,
		.n_regions = n_regions,
	};
}

static struct pbox_control_conf
control_conf(struct box *b)
{
	struct pbox_control_conf cc = {
		.dp = b->dp,
		.port = b->port,
		.n_ports = b->n_ports,
		.n_cores = b->n_cores,
		.core = b->core,
		.registrar = registrar_conf(b),
		.stats_interval_ns = b->opt.stats_interval_ns,
		.drain_ns = b->opt.drain_ns,
		.late = end_without,
		.notify = b->notify.fd >= 0 ? &b->notify : NULL,
		.report = b->report,
		.capture = b->capture,
		.cluster = b->opt.n_clusters > 0,
		.reload = reload,
		.reload_ctx = b,
		.compare = reload_compare,
		.snapshot =
			{
				.dir = b->snapshot != NULL ? b->opt.snapshot_dir : NULL,
				.memory = b->snapshot,
				.size = b->opt.snapshot_memory,
				.interval_ns = b->opt.snapshot_interval_ns,
				.final_ns = b->opt.snapshot_final_ns,
				.keep = b->opt.snapshot_keep,
				.space = b->opt.snapshot_space,
				.age_ns = b->opt.snapshot_age_ns,
				.compress = b->opt.snapshot_compress,
			},
	};

	rack_conf(b, &cc);
	pbox_options_parity(
		b->opt.snapshot_parity, &cc.snapshot.stripe_data, &cc.snapshot.stripe_parity, NULL);
	return cc;
}

int
planes_create(struct box *b, struct pbox_error *err)
{
	struct pbox_dp_region region[PBOX_MAX_NODES];
	struct pbox_dp_conf dc;
	struct pbox_control_conf cc;
	unsigned n_regions = 0;
	int ret = kernels(b, err);

	if (ret != 0)
		return ret;
	if (sodium_init() < 0)
		return pbox_fail(err, EIO, "libsodium does not start: no random numbers");
	do
		b->incarnation = randombytes_random();
	while (b->incarnation == 0);
	randombytes_buf(b->cookie_key, sizeof(b->cookie_key));
	for (unsigned i = 0; i < b->n_nodes; i++)
		if (b->memory[i] != NULL)
			region[n_regions++] =
				(struct pbox_dp_region){b->memory[i], b->memory_size[i]};
	dc = dataplane_conf(b, region, n_regions);
	b->dp = pbox_dp_create(&dc, err);
	if (b->dp == NULL)
		return -ENOMEM;
	host_capture(b);
	cc = control_conf(b);
	b->control = pbox_control_create(&cc, err);
	return b->control != NULL ? 0 : -ENOMEM;
}

void
planes_destroy(struct box *b)
{
	pbox_control_destroy(b->control);
	pbox_dp_destroy(b->dp);
	b->control = NULL;
	b->dp = NULL;
}

/* What the cores really do without packets: ports may have no interrupts. */
static const char *
idle_text(const struct box *b)
{
	unsigned granted = 0;

	for (unsigned i = 0; i < b->n_ports; i++)
		granted += b->port[i].rx_intr;
	if (b->idle != PBOX_IDLE_INTERRUPT || granted == b->n_ports)
		return idle_name[b->idle];
	return granted == 0 ? "sleep (no port has interrupts)"
			    : "interrupt, sleep where a port has none";
}

void
report_make(struct box *b)
{
	FILE *to = fmemopen(b->report, sizeof(b->report), "w");
	char guard[512];

	memory_budget(b, &b->budget);
	if (to == NULL)
		return;
	for (unsigned i = 0; i < b->n_ports; i++)
		pbox_port_report(&b->port[i], b->lcore_of, to);
	pbox_budget_report(&b->budget, to);
	fprintf(to, "cores: %u data cores, idle %s%s; sums %s, optimisers %s\n", b->n_cores,
		idle_text(b), b->cpu_shared ? " (they share CPUs)" : "", b->reduce->name,
		b->optim->name);
	if (b->guarded) {
		pbox_guard_report(guard, sizeof(guard));
		fprintf(to, "guard: %s, system calls %s\n", guard,
			b->sandboxed ? "filtered" : "not filtered");
	}
	fclose(to);
}

static bool
core_serves(const struct box *b, unsigned core)
{
	unsigned e = 0;

	while (e < b->n_endpoints && b->endpoint[e].shard != core)
		e++;
	return e < b->n_endpoints;
}

static void
warn(bool check, const char *fmt, ...)
{
	char text[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (check)
		printf("WARN %s\n", text);
	else
		pbox_log(PBOX_LOG_WARN, "%s", text);
}

void
jobs_warn(const struct pbox_options *o, const struct pbox_conf *conf, bool check)
{
	char where[256];

	for (unsigned i = 0; i < o->n_jobs; i++) {
		const struct pbox_conf_secret *s = &o->jobs[i].secret;

		if (o->jobs[i].snapshot == PBOX_OPTION_SNAPSHOT_YES && o->snapshot_dir[0] == '\0')
			warn(check, "%s: none are taken: set snapshot-dir and snapshot-memory",
				pbox_conf_where(conf, &o->jobs[i].snapshot, where, sizeof(where)));
		pbox_conf_where(conf, s, where, sizeof(where));
		if (s->exposed)
			warn(check, "%s: others may read the file, and join: chmod go= it", where);
		else if (s->len > 0 && s->plain && pbox_conf_exposed(conf))
			warn(check,
				"%s: others may read the secret: chmod go= %s, or write it into a file of its own and secret = file:PATH",
				where, o->config);
	}
}

/* Of the files that pbox-agent reads, as this user. */
static void
cluster_file(
	const char *path, const void *member, bool secret, const struct pbox_conf *conf, bool check)
{
	char where[256];
	struct stat st;

	if (path[0] == '\0')
		return;
	pbox_conf_where(conf, member, where, sizeof(where));
	if (access(path, R_OK) != 0)
		warn(check, "%s: pbox-agent cannot read it: %s", where, strerror(errno));
	else if (secret && stat(path, &st) == 0 && (st.st_mode & (S_IRWXG | S_IRWXO)) != 0)
		warn(check, "%s: others may read the key: chmod go= it", where);
}

void
cluster_warn(const struct pbox_options *o, const struct pbox_conf *conf, bool check)
{
	const struct pbox_cluster_options *c = &o->clusters[0];
	char where[256];

	if (o->n_clusters == 0)
		return;
	cluster_file(c->ca, c->ca, false, conf, check);
	cluster_file(c->cert, c->cert, false, conf, check);
	cluster_file(c->key, c->key, true, conf, check);
	pbox_conf_where(conf, &c->password, where, sizeof(where));
	if (c->password.exposed)
		warn(check, "%s: others may read the file: chmod go= it", where);
	else if (c->password.len > 0 && c->password.plain && pbox_conf_exposed(conf))
		warn(check,
			"%s: others may read the password: chmod go= %s, or write it into a file of its own and password = file:PATH",
			where, o->config);
}

/* "OK   line" for --check; notes are warnings. */
void
report_print(const struct box *b, bool check)
{
	for (const char *p = b->report; p != NULL && *p != '\0';) {
		size_t n = strcspn(p, "\n");

		printf("%s%.*s\n", check ? "OK   " : "", (int)n, p);
		p += n;
		p += *p == '\n';
	}
	for (unsigned i = 0; i < b->n_ports; i++)
		for (unsigned k = 0; k < b->port[i].n_notes; k++)
			warn(check, "port %u (%s): %s", b->port[i].conf.id, b->port[i].dev.name,
				b->port[i].note[k]);
	for (unsigned i = 0; i < b->n_cores; i++)
		if (!core_serves(b, i))
			warn(check,
				"lcore %u (NUMA node %d) serves no port: give EAL lcores of the ports' nodes with -l, or name it in cores of a port",
				b->core[i].lcore, b->core[i].node);
	for (unsigned i = 0; i < b->n_nodes; i++)
		if (b->memory_far[i] >= 0)
			warn(check,
				"parameters of NUMA node %d lie on node %d: use hugepages, or free memory there",
				b->node[i], b->memory_far[i]);
	if (b->guarded && !b->sandboxed && b->opt.sandbox == PBOX_OPTION_SANDBOX_AUTO)
		warn(check, "no sandbox: %s", b->no_sandbox);
	jobs_warn(&b->opt, b->conf, check);
	cluster_warn(&b->opt, b->conf, check);
	if (check)
		printf("OK   jobs: %u, endpoints: %u\n", b->opt.n_jobs, b->n_endpoints);
}

bool
serve_stop_wanted(void)
{
	return stop_wanted != 0;
}

/* The control thread reads the configuration again. */
static void
on_hangup(int sig)
{
	struct pbox_control *c = atomic_load(&stoppable);

	(void)sig;
	reload_wanted = 1;
	if (c != NULL)
		pbox_control_reload(c);
}

static void
catch_signals(void)
{
	struct sigaction sa = {.sa_handler = serve_on_signal};

	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGINT, &sa, NULL);
	sa.sa_handler = on_hangup;
	sa.sa_flags = SA_RESTART;
	sigaction(SIGHUP, &sa, NULL);
	sa.sa_handler = SIG_IGN;
	sigaction(SIGPIPE, &sa, NULL);
}

static void
ready_line(const struct box *b)
{
	const uint8_t *ip = (const uint8_t *)&b->port[0].nif.ip;

	printf("ready: serving %u jobs on %u endpoints, control %u.%u.%u.%u:%u\n", b->opt.n_jobs,
		b->n_endpoints, ip[0], ip[1], ip[2], ip[3], b->opt.control_port);
}

/* From the ports' start until a signal; all cores have returned then. The report comes after the
 * start, which finds out about links and steering. */
int
serve(struct box *b, struct pbox_error *err)
{
	unsigned own = 0;
	int ret;

	catch_signals();
	ret = ports_start(b, err);
	if (ret == 0)
		ret = guard_on(b, err);
	if (ret != 0)
		return ret;
	report_make(b);
	report_print(b, false);
	ret = log_begin(err);
	if (ret == 0)
		ret = pbox_control_start(b->control, err);
	if (ret != 0)
		return ret;
	atomic_store(&stoppable, b->control);
	if (stop_wanted)
		pbox_control_stop(b->control);
	if (reload_wanted)
		pbox_control_reload(b->control);
	for (unsigned i = 0; i < b->n_cores; i++)
		if (b->lcore_of[i] != rte_get_main_lcore())
			rte_eal_remote_launch(pbox_dp_run, pbox_dp_core(b->dp, i), b->lcore_of[i]);
		else
			own = i;
	ready_line(b);
	pbox_dp_run(pbox_dp_core(b->dp, own));
	rte_eal_mp_wait_lcore();
	pbox_control_join(b->control);
	atomic_store(&stoppable, NULL);
	log_end();
	return 0;
}

/* After the ports are closed: has everything come back, does everything add up? */
int
stopped_line(struct box *b)
{
	unsigned all = pbox_dp_mbufs(b->dp), missing = pbox_dp_mbufs_missing(b->dp);
	unsigned kept = 0;
	uint64_t received, accepted, dropped;
	bool conserved = pbox_control_conserved(b->dp, &received, &accepted, &dropped);

	for (unsigned i = 0; i < b->n_ports; i++) {
		all += pbox_port_mbufs(&b->port[i]);
		missing += pbox_port_mbufs_missing(&b->port[i]);
		kept += pbox_port_mbufs_kept(&b->port[i]);
	}
	if (kept > 0)
		pbox_log(PBOX_LOG_INFO, "%u packets stay with a driver that gives none back", kept);
	printf("stopped: mbufs %u of %u returned, received %" PRIu64 " = accepted %" PRIu64
	       " + dropped %" PRIu64 "%s\n",
		all - missing, all, received, accepted, dropped,
		conserved ? "" : " (they do not add up)");
	return missing == kept && conserved ? 0 : 1;
}
