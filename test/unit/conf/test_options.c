/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <pbox_options.h>
#include <pbox_pairs.h>

#include "unit.h"

const char unit_suite[] = "options of pbox";

static struct pbox_options o;
static struct pbox_error err;
static char path[] = P_tmpdir "/pbox-options-XXXXXX";

/* Load the text as a file, with the further arguments (NULL: none). */
static struct pbox_conf *
load(const char *text, const char *arg1, const char *arg2)
{
	char *argv[] = {(char *)"pbox", (char *)"-c", path, (char *)arg1, (char *)arg2};
	int fd = mkstemp(strcpy(path, P_tmpdir "/pbox-options-XXXXXX"));
	struct pbox_conf *conf;

	CU_ASSERT_FATAL(fd >= 0);
	CU_ASSERT_EQUAL(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
	memset(&err, 0, sizeof(err));
	conf = pbox_options_load(&o, arg1 == NULL ? 3 : arg2 == NULL ? 4 : 5, argv, &err);
	unlink(path);
	return conf;
}

static void
bad(const char *text, const char *message)
{
	static const struct pbox_options wiped;
	struct pbox_conf *conf = load(text, NULL, NULL);
	char got[sizeof(err.text)], *at;

	CU_ASSERT_PTR_NULL(conf);
	CU_ASSERT_EQUAL(memcmp(&o, &wiped, sizeof(o)), 0);
	pbox_conf_free(conf);
	/* FILE for the name that is another each time */
	snprintf(got, sizeof(got), "%s", err.text);
	while ((at = strstr(got, path)) != NULL) {
		memmove(at + 4, at + strlen(path), strlen(at + strlen(path)) + 1);
		memcpy(at, "FILE", 4);
	}
	CU_ASSERT_STRING_EQUAL(got, message);
	if (strcmp(got, message) != 0)
		printf("\n got: %s\nwant: %s\n", got, message);
}

#define PORT "[port 0]\naddress = 10.0.0.1/24\n"
#define JOB  "[job a]\nsecret = hunter22\n"

static void
test_misplaced(void)
{
	char *eal[] = {(char *)"pbox", (char *)"-l", (char *)"0", (char *)"--log-level=8",
		(char *)"--vdev", (char *)"net_null0", (char *)"--no-huge", NULL};
	char *ours[] = {(char *)"pbox", (char *)"-l", (char *)"0", (char *)"--config=x.conf",
		(char *)"--check", NULL};
	char *port[] = {(char *)"pbox", (char *)"--port", (char *)"0:address=10.0.0.1/24", NULL};

	CU_ASSERT_PTR_NULL(pbox_options_misplaced(7, eal));
	CU_ASSERT_PTR_NULL(pbox_options_misplaced(1, ours));
	CU_ASSERT_STRING_EQUAL(pbox_options_misplaced(5, ours), "--config");
	CU_ASSERT_STRING_EQUAL(pbox_options_misplaced(3, port), "--port");
}

static void
test_exposed_secret(void)
{
	static const mode_t mode[] = {0600, 0400, 0640, 0604, 0602};
	char text[256], file[] = P_tmpdir "/pbox-secret-XXXXXX";
	int fd = mkstemp(file);

	CU_ASSERT_FATAL(fd >= 0);
	CU_ASSERT_EQUAL(write(fd, "hunter22\n", 9), 9);
	snprintf(text, sizeof(text), PORT "[job a]\nsecret = file:%s\n", file);
	for (unsigned i = 0; i < sizeof(mode) / sizeof(mode[0]); i++) {
		struct pbox_conf *conf;

		CU_ASSERT_EQUAL(fchmod(fd, mode[i]), 0);
		conf = load(text, NULL, NULL);
		CU_ASSERT_PTR_NOT_NULL_FATAL(conf);
		CU_ASSERT_EQUAL(o.jobs[0].secret.exposed, i >= 2);
		pbox_conf_free(conf);
	}
	close(fd);
	unlink(file);
}

static void
test_defaults(void)
{
	struct pbox_conf *conf = load(PORT JOB, NULL, NULL);

	CU_ASSERT_PTR_NOT_NULL_FATAL(conf);
	CU_ASSERT_EQUAL(o.cores_idle, PBOX_IDLE_AUTO);
	UNIT_EQ_U64(o.memory, 0);
	UNIT_EQ_U64(o.hold, 4096);
	UNIT_EQ_U64(o.max_jobs, 16);
	UNIT_EQ_U64(o.max_workers, 1024);
	UNIT_EQ_U64(o.chunk_bytes, 32768);
	UNIT_EQ_U64(o.control_port, 7269);
	UNIT_EQ_U64(o.lease_ns, UINT64_C(30000000000));
	UNIT_EQ_U64(o.grace_ns, UINT64_C(600000000000));
	UNIT_EQ_U64(o.drain_ns, 2000000000);
	CU_ASSERT_EQUAL(o.log_level, PBOX_LOG_INFO);
	UNIT_EQ_U64(o.stats_interval_ns, 0);
	CU_ASSERT_EQUAL(o.reduce, PBOX_OPTION_REDUCE_AUTO);
	UNIT_EQ_U64(o.n_ports, 1);
	UNIT_EQ_U64(o.ports[0].mtu, 0);
	UNIT_EQ_U64(o.ports[0].queues, 0);
	CU_ASSERT_EQUAL(o.ports[0].steer, PBOX_STEER_AUTO);
	UNIT_EQ_U64(pbox_conf_cores_count(&o.ports[0].cores), 0);
	UNIT_EQ_U64(o.n_jobs, 1);
	UNIT_EQ_U64(o.jobs[0].workers, 0);
	UNIT_EQ_U64(o.jobs[0].bounds.lease_ns, 0);
	UNIT_EQ_U64(o.jobs[0].bounds.grace_ns, 0);
	CU_ASSERT_EQUAL(o.jobs[0].policy, PBOX_POLICY_ANY);
	pbox_conf_free(conf);
	pbox_options_wipe(&o);
	UNIT_EQ_U64(o.jobs[0].secret.bytes[0], 0);
}

static void
test_everything_set(void)
{
	struct pbox_conf *conf = load(
		"cores-idle = interrupt\nmemory = 8G\nhold = 8192\nmax-jobs = 4\nmax-workers = 64\n"
		"chunk-bytes = 64K\ncontrol-port = 7000\nlease = 5s\ngrace = none\ndrain = none\nreduce = avx512\n"
		"log-level = debug\nlog-file = /x/y\nstats-interval = 1s\n"
		"[port 0000:03:00.0]\naddress = 10.0.0.1/24\nmtu = 9000\n"
		"queues = 2\nrx-desc = 1024\ntx-desc = 512\nsteer = ring\ncores = 2-3\n"
		"[job *]\ninsecure = yes\nmax-jobs = 3\n[job a b]\nsecret = hunter22\nworkers = 8\nmemory = 1G\n"
		"lease = 10s\ngrace = 60s\npolicy = shrink\n",
		"--port", "0000:03:00.0:mtu=1500");

	CU_ASSERT_PTR_NOT_NULL(conf);
	CU_ASSERT_STRING_EQUAL(err.text, "");
	CU_ASSERT_EQUAL(o.cores_idle, PBOX_IDLE_INTERRUPT);
	UNIT_EQ_U64(o.grace_ns, 0);
	UNIT_EQ_U64(o.drain_ns, 0);
	CU_ASSERT_EQUAL(o.reduce, PBOX_OPTION_REDUCE_AVX512);
	CU_ASSERT_EQUAL(o.log_level, PBOX_LOG_DEBUG);
	CU_ASSERT_STRING_EQUAL(o.ports[0].name, "0000:03:00.0");
	UNIT_EQ_U64(o.ports[0].mtu, 1500);
	CU_ASSERT_EQUAL(o.ports[0].steer, PBOX_STEER_RING);
	UNIT_EQ_U64(o.jobs[1].bounds.lease_ns, UINT64_C(10000000000));
	UNIT_EQ_U64(o.jobs[1].bounds.grace_ns, UINT64_C(60000000000));
	UNIT_EQ_U64(o.jobs[0].max_jobs, 3);
	UNIT_EQ_U64(o.jobs[1].max_jobs, 0);
	pbox_conf_free(conf);
	conf = load(PORT JOB, NULL, NULL);
	pbox_conf_free(conf);
}

static void
test_contradictions(void)
{
	struct pbox_conf *conf;

	bad(JOB,
		"no port is configured (file: FILE): add a [port 0] section with an address there (pbox alone also takes --port 0:address=10.0.0.1/24)");
	bad(PORT,
		"no job is configured (file: FILE), so no worker could join: add a [job NAME] section with a secret");
	bad(JOB "[port 0]\nmtu = 9000",
		"[port 0] (FILE line 3) has no 'address': add address = 10.0.0.1/24");
	bad(JOB PORT "[port 1]\naddress = 10.0.0.1/16",
		"two ports have the same address: [port 0] address = 10.0.0.1/24 (FILE line 4), [port 1] address = 10.0.0.1/16 (FILE line 6) (where no switch connects their links, write shared = yes in both)");
	bad(JOB PORT "shared = yes\n[port 1]\naddress = 10.0.0.1/24",
		"two ports have the same address: [port 0] address = 10.0.0.1/24 (FILE line 4), [port 1] address = 10.0.0.1/24 (FILE line 7) (where no switch connects their links, write shared = yes in both)");
	bad(JOB PORT "shared = yes\n[port 1]\nshared = yes\naddress = 10.0.0.1/16",
		"a shared address has one length of its network: [port 0] address = 10.0.0.1/24 (FILE line 4), [port 1] address = 10.0.0.1/16 (FILE line 8)");
	conf = load(
		JOB PORT "shared = yes\n[port 1]\nshared = yes\naddress = 10.0.0.1/24", NULL, NULL);
	CU_ASSERT(o.ports[0].shared && o.ports[1].shared);
	pbox_conf_free(conf);
	bad("hold = 512\n" PORT JOB,
		"hold = 512 (FILE line 1) is less than max-workers = 1024 (default): a core must hold a packet of each worker: raise hold, or lower max-workers");
	bad("chunk-bytes = 10000\n" PORT JOB,
		"chunk-bytes = 10000 (FILE line 1) is not a multiple of 64");
	bad(PORT "queues = 3\ncores = 1,2\n" JOB,
		"[port 0] queues = 3 (FILE line 3) needs a core for each queue, and [port 0] cores = 1-2 (FILE line 4) has 2: add cores, or set fewer queues");
	bad(PORT JOB "max-jobs = 2",
		"[job a] max-jobs = 2 (FILE line 5): a section with a name has one job: write max-jobs in [job *], or before all sections");
	bad(PORT "[job a]\n",
		"[job a] (FILE line 3) has no secret: add secret = file:PATH, or insecure = yes to let anyone join");
	bad(PORT JOB "insecure = yes",
		"[job a] (FILE line 3) has a secret and insecure = yes: remove one");
	bad("max-workers = 4\n" PORT JOB "workers = 5",
		"[job a] workers = 5 (FILE line 6) is more than max-workers = 4 (FILE line 1): raise max-workers");
	bad(PORT JOB "policy = shirnk",
		"FILE line 5: [job a] policy: 'shirnk' is not any, wait, shrink or reassign: did you mean 'shrink'?");
	bad("[port eth/0]",
		"FILE line 1: [port eth/0]: a port is a number or a DPDK device, like 0, net_tap0 or 0000:03:00.0");
	bad("[port 01]",
		"FILE line 1: [port 01]: port numbers are 0 to 9999, without leading zeros");
	bad(PORT "mtu = 1400",
		"FILE line 3: [port 0] mtu: '1400' is out of range: 1500 to 65000 bytes, or auto");
}

/* What a configuration says of what is used: lines of the box's, and of a job. */
static const struct said {
	unsigned use;
	const char *box, *job;
} said[] = {
	{PBOX_USES_BOXES, "boxes = 10.0.0.1, 10.0.0.2\n", ""},
	{PBOX_USES_RACKS, "upstream = 10.0.0.9\nrack = 0/2\n", ""},
	{PBOX_USES_SNAPSHOTS, "snapshot-dir = /tmp\nsnapshot-memory = 64M\n", ""},
	{PBOX_USES_PLAN, "", "policy = reassign\n"},
	{PBOX_USES_SHRINK, "", "policy = shrink\n"},
};

/* Each two of them: doc/modes.md. An option is given once, so a section has one policy. */
static void
test_modes(void)
{
	unsigned refused = 0;

	for (unsigned a = 0; a < sizeof(said) / sizeof(said[0]); a++)
		for (unsigned b = a + 1; b < sizeof(said) / sizeof(said[0]); b++) {
			const struct pbox_pair *p = pbox_pair_in(said[a].use | said[b].use);
			char text[512], want[384] = "";
			struct pbox_conf *conf;

			if (said[a].job[0] != '\0' && said[b].job[0] != '\0')
				continue;
			snprintf(text, sizeof(text), "%s%s" PORT JOB "%s%s", said[a].box,
				said[b].box, said[a].job, said[b].job);
			if (p != NULL)
				snprintf(
					want, sizeof(want), "): " PBOX_PAIR_FMT, PBOX_PAIR_ARGS(p));
			conf = load(text, NULL, NULL);
			CU_ASSERT_EQUAL(conf == NULL, p != NULL);
			CU_ASSERT_PTR_NOT_NULL(strstr(err.text, want));
			if (strstr(err.text, want) == NULL)
				printf("\n got: %s\nwant: %s\n", err.text, want);
			refused += p != NULL;
			pbox_conf_free(conf);
		}
	UNIT_EQ_U64(refused, 6);
}

static void
test_addresses(void)
{
	bad(JOB "[port 0]\naddress = 127.0.0.1/8\n",
		"[port 0] address = 127.0.0.1/8 (FILE line 4): that cannot be the address of a port");
	bad(JOB "[port 0]\naddress = 10.0.0.0/24\n",
		"[port 0] address = 10.0.0.0/24 (FILE line 4): that is the first address of the network: take one in between");
	bad(JOB "[port 0]\naddress = 10.0.0.255/24\n",
		"[port 0] address = 10.0.0.255/24 (FILE line 4): that is the broadcast address of the network: take one in between");
	static const char *const ends[] = {"10.0.0.0/31", "10.0.0.1/31", "10.0.0.7/32"};

	for (unsigned i = 0; i < 3; i++) {
		char text[128];
		struct pbox_conf *conf;

		snprintf(text, sizeof(text), JOB "[port 0]\naddress = %s\n", ends[i]);
		conf = load(text, NULL, NULL);
		CU_ASSERT_PTR_NOT_NULL(conf);
		pbox_conf_free(conf);
	}
}

static void
test_help_needs_nothing_else(void)
{
	struct pbox_conf *conf = load("nonsense", "--help", "all");

	CU_ASSERT_PTR_NOT_NULL(conf);
	CU_ASSERT_EQUAL(o.help, PBOX_OPTION_HELP_ALL);
	pbox_conf_free(conf);
	conf = load("nonsense", "-V", NULL);
	CU_ASSERT_PTR_NOT_NULL(conf);
	CU_ASSERT_TRUE(o.version);
	pbox_conf_free(conf);
}

static void
test_no_file(void)
{
	static const char *const argv[] = {"pbox", "--config", "none", "--port",
		"0:address=10.0.0.1/24", "--job", "a:insecure=yes"};
	static const char *const missing[] = {"pbox", "--config", "/nonexistent/pbox.conf"};
	struct pbox_conf *conf = pbox_options_load(&o, 7, (char *const *)argv, &err);

	CU_ASSERT_PTR_NOT_NULL(conf);
	pbox_conf_free(conf);
	CU_ASSERT_PTR_NULL(pbox_options_load(&o, 3, (char *const *)missing, &err));
	CU_ASSERT_STRING_EQUAL(
		err.text, "cannot read /nonexistent/pbox.conf: No such file or directory");
}

/* The sample, or help 1 or 2; good until the next call. */
static char *
written(void (*sample)(const struct pbox_conf_table *, FILE *), int help)
{
	static char text[65536];
	FILE *f = fmemopen(text, sizeof(text), "w");

	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	if (sample != NULL)
		sample(&pbox_options_table, f);
	else
		pbox_conf_help(&pbox_options_table, help == 2, f);
	CU_ASSERT_EQUAL(fclose(f), 0);
	return text;
}

static void
test_help_fits_a_screen(void)
{
	for (int all = 1; all <= 2; all++) {
		char *text = written(NULL, all);
		unsigned lines = 0;

		for (char *s = text; *s != '\0'; lines++) {
			size_t n = strcspn(s, "\n");

			CU_ASSERT(n < 80);
			CU_ASSERT(n == 0 || s[n - 1] != ' ');
			s += n + (s[n] == '\n');
		}
		CU_ASSERT(all == 2 || lines <= 23); /* and the prompt */
		CU_ASSERT(all == 1 || lines > 40);
	}
}

static void
test_briefs_are_brief(void)
{
	const struct pbox_conf_table *t = &pbox_options_table;

	for (unsigned s = 0; s < t->n_sections; s++)
		for (unsigned i = 0; i < t->sections[s].n_options; i++) {
			const char *brief = t->sections[s].options[i].brief;

			CU_ASSERT(strlen(brief) <= 50 && brief[strlen(brief) - 1] != '.');
		}
}

static void
test_committed_sample_is_the_generated_one(void)
{
	char *text = written(pbox_conf_sample, 0);
	static char committed[65536];
	FILE *f = fopen(SAMPLE_FILE, "r");
	size_t n;

	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	n = fread(committed, 1, sizeof(committed) - 1, f);
	committed[n] = '\0';
	fclose(f);
	CU_ASSERT(strcmp(text, committed) == 0);
	if (strcmp(text, committed) != 0)
		printf("\nrun: pbox-conf-gen sample > config/pbox.conf.sample\n");
}

/* As it is but for the secret's file; and with each `#key = value` line made active. */
static void
test_the_sample_is_a_good_configuration(void)
{
	char *text = written(pbox_conf_sample, 0), *at;
	static const char secret[] = "file:/etc/pbox/example.secret", other[] = "hunter22";
	struct pbox_conf *conf;

	at = strstr(text, secret);
	CU_ASSERT_PTR_NOT_NULL_FATAL(at);
	memset(at, ' ', strlen(secret));
	memcpy(at, other, strlen(other));
	conf = load(text, NULL, NULL);
	CU_ASSERT_STRING_EQUAL(err.text, "");
	CU_ASSERT_PTR_NOT_NULL(conf);
	pbox_conf_free(conf);
	at = strstr(text, "\n#[cluster"); /* which has no snapshots, either */
	CU_ASSERT_PTR_NOT_NULL_FATAL(at);
	*at = '\0';
	for (at = text; (at = strstr(at, "\n#")) != NULL; at++)
		if (at[2] != ' ' && strncmp(at, "\n#insecure", 10) != 0 &&
			strncmp(at, "\n#upstream", 10) != 0 && strncmp(at, "\n#rack", 6) != 0 &&
			strncmp(at, "\n#boxes", 7) != 0) /* which have no snapshots */
			at[1] = ' ';
	conf = load(text, NULL, NULL);
	CU_ASSERT_STRING_EQUAL(err.text, "");
	CU_ASSERT_PTR_NOT_NULL(conf);
	if (conf != NULL) {
		UNIT_EQ_U64(o.ports[0].mtu, 9000);
		CU_ASSERT_EQUAL(pbox_conf_source(conf, &o.stats_interval_ns), PBOX_CONF_FILE);
	}
	pbox_conf_free(conf);
}

static void
test_cluster(void)
{
	static const char list[] = "boxes = 10.0.0.1, 10.0.0.2\n";
	char url[PBOX_OPTIONS_ETCDS][PBOX_OPTIONS_URL], text[1024];
	struct pbox_conf *conf;

#define CLUSTER(lines) PORT JOB "[cluster f-1]\n" lines
	snprintf(text, sizeof(text), "%s%s", list,
		CLUSTER("etcd = http://10.0.0.9:2379/, http://e2:2379\nuser = u\npassword = p\n"));
	conf = load(text, NULL, NULL);
	CU_ASSERT_STRING_EQUAL(err.text, "");
	CU_ASSERT_PTR_NOT_NULL_FATAL(conf);
	UNIT_EQ_U64(o.n_clusters, 1);
	UNIT_EQ_U64(o.clusters[0].lease_ns, 15000000000);
	UNIT_EQ_U64(o.clusters[0].failover_ns, 30000000000);
	/* a worker's limit that is not given is longer */
	CU_ASSERT(pbox_options_timeout(&o.clusters[0]) < UINT64_C(60000000000));
	CU_ASSERT(!o.clusters[0].balance && !o.clusters[0].balance_scale);
	UNIT_EQ_U64(o.clusters[0].balance_window, 20);
	CU_ASSERT_EQUAL(pbox_options_etcd(o.clusters[0].etcd, url, &err), 2);
	CU_ASSERT_STRING_EQUAL(url[0], "http://10.0.0.9:2379");
	CU_ASSERT_STRING_EQUAL(url[1], "http://e2:2379");
	pbox_conf_free(conf);
	bad(CLUSTER("etcd = http://a:1\n"),
		"[cluster f-1] (FILE line 5) needs boxes: write boxes = with an address of each box above all sections");
	bad("boxes = 10.0.0.1, 10.0.0.2\n" CLUSTER("lease = 9s\n"),
		"[cluster f-1] (FILE line 6) has no 'etcd': add etcd = http://10.0.0.9:2379, http://10.0.0.10:2379, http://10.0.0.11:2379");
	bad("boxes = 10.0.0.1, 10.0.0.2\n" CLUSTER("etcd = 10.0.0.9:2379\n"),
		"[cluster f-1] etcd = 10.0.0.9:2379 (FILE line 7): '10.0.0.9:2379' begins with neither http:// nor https://: write endpoints like http://10.0.0.9:2379");
	bad("boxes = 10.0.0.1, 10.0.0.2\n" CLUSTER("etcd = http://a:1/v3\n"),
		"[cluster f-1] etcd = http://a:1/v3 (FILE line 7): 'http://a:1/v3' is no endpoint: write a host and a port alone, like http://10.0.0.9:2379");
	bad("boxes = 10.0.0.1, 10.0.0.2\n" CLUSTER("etcd = http://a:1, https://b:1\n"),
		"[cluster f-1] etcd = http://a:1, https://b:1 (FILE line 7): http://a:1 and https://b:1: all with TLS (https://), or none");
	bad("boxes = 10.0.0.1, 10.0.0.2\n" CLUSTER("etcd = http://a:1, http://a:1\n"),
		"[cluster f-1] etcd = http://a:1, http://a:1 (FILE line 7): http://a:1 is there twice");
	bad("boxes = 10.0.0.1, 10.0.0.2\n" CLUSTER("etcd = https://a:1\ncert = c\n"),
		"[cluster f-1] (FILE line 6): cert and key go together: set both, or none");
	bad("boxes = 10.0.0.1, 10.0.0.2\n" CLUSTER("etcd = http://a:1\nuser = u\n"),
		"[cluster f-1] (FILE line 6): user and password go together: set both, or none");
	bad("boxes = 10.0.0.1, 10.0.0.2\n" CLUSTER("etcd = http://a:1\nca = c\n"),
		"[cluster f-1] (FILE line 6): ca and cert are for TLS, and the endpoints are http://: write https://");
	bad("boxes = 10.0.0.1, 10.0.0.2\n" CLUSTER(
		    "etcd = http://a:1\nlease = 60s\nfailover = 30s\n"),
		"[cluster f-1] (FILE line 6): failover is shorter than two leases (120 s): an agent that was away for a moment needs one until its box serves again: write failover = 120s or longer");
	bad("boxes = 10.0.0.1, 10.0.0.2\n" CLUSTER("etcd = http://a:1\nbalance-scale = yes\n"),
		"[cluster f-1] (FILE line 6): balance-scale is a part of balance: write balance = yes, too");
	bad("boxes = 10.0.0.1, 10.0.0.2\n" PORT JOB "[cluster a/b]\netcd = http://a:1\n",
		"FILE line 6: [cluster a/b]: a fleet's name has letters, digits, ., _ and -");
}

/* Every option is in the manual page, and every line of it is a request or text for roff. */
static void
test_the_manual_page_has_all(void)
{
	char *text = NULL, want[128];
	size_t size;
	FILE *f = open_memstream(&text, &size);

	CU_ASSERT_PTR_NOT_NULL_FATAL(f);
	pbox_conf_man(&pbox_options_table, f);
	CU_ASSERT_EQUAL_FATAL(fclose(f), 0);
	CU_ASSERT(strncmp(text, ".SH OPTIONS\n", 12) == 0);
	for (unsigned s = 0; s < pbox_options_table.n_sections; s++) {
		const struct pbox_conf_section *sec = &pbox_options_table.sections[s];

		snprintf(want, sizeof(want), ".SS [%s ", sec->name);
		CU_ASSERT(s == 0 || strstr(text, want) != NULL);
		for (unsigned i = 0; i < sec->n_options; i++) {
			const char *name = sec->options[i].name;
			char roff[80];
			size_t n = 0;

			for (const char *p = name; *p != '\0'; p++) {
				if (*p == '-' && s == 0)
					roff[n++] = '\\';
				roff[n++] = *p;
			}
			roff[n] = '\0';
			snprintf(want, sizeof(want), "\\fB%s%s\\fR", s == 0 ? "\\-\\-" : "", roff);
			if (strstr(text, want) == NULL)
				printf("no %s\n", want);
			CU_ASSERT(strstr(text, want) != NULL);
		}
	}
	for (const char *p = text; (p = strstr(p, "\n.")) != NULL; p++)
		CU_ASSERT(strncmp(p + 1, ".TP\n", 4) == 0 || strncmp(p + 1, ".SS ", 4) == 0);
	free(text);
}

/* ---- two files compared -------------------------------------------------------------------- */

static char told[1024];

static void
tell(void *ctx, enum pbox_conf_change what, const struct pbox_conf_section *section,
	const struct pbox_conf_option *option, const char *text)
{
	static const char *const word[] = {"=", "+", "-"};
	size_t at = strlen(told);
	unsigned flags = option != NULL ? option->flags : 0;

	(void)ctx;
	/* without its place */
	snprintf(told + at, sizeof(told) - at, "%s %s%s %.*s\n", word[what],
		section->name[0] != '\0' ? section->name : "global",
		flags & PBOX_CONF_LIVE   ? " live"
		: flags & PBOX_CONF_NEXT ? " next"
					 : "",
		(int)strcspn(text, "("), text);
}

static void
differ(const char *old, const char *now, const char *want)
{
	static struct pbox_options before;
	struct pbox_conf *a, *b;

	told[0] = '\0';
	a = pbox_conf_new(&pbox_options_table, &before, &err);
	CU_ASSERT_PTR_NOT_NULL_FATAL(a);
	CU_ASSERT_EQUAL_FATAL(pbox_conf_text(a, "old", old, strlen(old), &err), 0);
	b = load(now, NULL, NULL);
	CU_ASSERT_PTR_NOT_NULL_FATAL(b);
	memcpy(before.config, o.config, sizeof(o.config)); /* another name each time */
	pbox_conf_differ(a, b, tell, NULL);
	CU_ASSERT_STRING_EQUAL(told, want);
	if (strcmp(told, want) != 0)
		printf("\n got: %s\nwant: %s\n", told, want);
	pbox_conf_free(a);
	pbox_conf_free(b);
	pbox_options_wipe(&before);
}

static void
test_differ(void)
{
	differ(PORT JOB, "# nothing but a comment\n" PORT JOB, "");
	/* the same in other words */
	differ("lease = 2s\n" PORT JOB, "lease = 2000ms\n" PORT JOB, "");
	differ(PORT JOB, "hold = 8192\nlog-level = debug\n" PORT "mtu = 9000\n" JOB "rate = 5000\n",
		"= global hold = 8192 \n= global live log-level = debug \n= port [port 0] mtu = 9000 \n"
		"= job live [job a] rate = 5000 \n");
	/* back to the default */
	differ("memory = 8M\n" PORT JOB "workers = 2\n", PORT JOB,
		"= global memory = auto \n= job next [job a] workers = any \n");
	/* a secret is compared, not shown; one that only begins like the other is another */
	differ(PORT JOB, PORT "[job a]\nsecret = hunter222\n", "= job next [job a] secret = \n");
	/* by their names, in whatever order */
	differ(PORT JOB "[job b]\nsecret = hunter22\n", PORT "[job c]\nsecret = hunter22\n" JOB,
		"+ job [job c] \n- job [job b] \n");
	differ(PORT JOB, "[port 1]\naddress = 10.0.0.1/24\n" JOB,
		"+ port [port 1] \n- port [port 0] \n");
}

const struct unit_test unit_tests[] = {
	{"defaults", test_defaults},
	{"options of pbox before --", test_misplaced},
	{"a secret that others can read", test_exposed_secret},
	{"everything set", test_everything_set},
	{"contradictions", test_contradictions},
	{"what goes together", test_modes},
	{"addresses of ports", test_addresses},
	{"--help needs nothing else", test_help_needs_nothing_else},
	{"without a file", test_no_file},
	{"--help fits a screen", test_help_fits_a_screen},
	{"briefs are brief", test_briefs_are_brief},
	{"the committed sample is the generated one", test_committed_sample_is_the_generated_one},
	{"the manual page has all", test_the_manual_page_has_all},
	{"two files compared", test_differ},
	{"the sample is a good configuration", test_the_sample_is_a_good_configuration},
	{"[cluster NAME]", test_cluster},
	{NULL, NULL},
};
