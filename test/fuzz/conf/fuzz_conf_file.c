/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Any text as the configuration file of pbox: accepted, or an error with a text. What is accepted
 * survives the round through pbox_conf_dump() but for its secrets. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pbox_options.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct pbox_options o, again;
static char dump[1 << 18];

/* "file:" would let the input read files of this machine */
static bool
names_a_file(const uint8_t *data, size_t size)
{
	return memmem(data, size, "file:", 5) != NULL;
}

static void
round_trip(const struct pbox_conf *conf)
{
	struct pbox_conf *second = pbox_conf_new(&pbox_options_table, &again, NULL);
	FILE *f = fmemopen(dump, sizeof(dump), "w");
	struct pbox_error err;

	PBOX_ASSERT(f != NULL && second != NULL);
	pbox_conf_dump(conf, f);
	PBOX_ASSERT(!ferror(f) && fclose(f) == 0);
	if (pbox_conf_text(second, "dump", dump, strlen(dump), &err) != 0) {
		fprintf(stderr, "%s\n%s", err.text, dump);
		abort();
	}
	PBOX_ASSERT(o.n_ports == again.n_ports && o.n_jobs == again.n_jobs);
	PBOX_ASSERT(memcmp(&o.memory, &again.memory, sizeof(o.memory)) == 0);
	PBOX_ASSERT(memcmp(o.ports, again.ports, o.n_ports * sizeof(o.ports[0])) == 0);
	PBOX_ASSERT(strcmp(o.log_file, again.log_file) == 0);
	PBOX_ASSERT(o.lease_ns == again.lease_ns && o.drain_ns == again.drain_ns);
	pbox_conf_free(second);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pbox_error err = {0, ""};
	struct pbox_conf *conf;
	char where[64];
	int ret;

	/* a dump of many sections with long values would not fit */
	if (size > 8192 || names_a_file(data, size))
		return 0;
	conf = pbox_conf_new(&pbox_options_table, &o, &err);
	PBOX_ASSERT(conf != NULL);
	ret = pbox_conf_text(conf, "f", (const char *)data, size, &err);
	PBOX_ASSERT((ret != 0) == (err.text[0] != '\0'));
	PBOX_ASSERT(o.n_ports <= PBOX_OPTIONS_PORTS && o.n_jobs <= PBOX_OPTIONS_JOBS);
	for (unsigned i = 0; i < o.n_ports; i++)
		pbox_conf_where(conf, &o.ports[i].mtu, where, sizeof(where));
	if (ret == 0) {
		round_trip(conf);
		if (pbox_conf_complete(conf, &err) == 0)
			pbox_options_check(&o, conf, &err);
	}
	pbox_conf_free(conf);
	return 0;
}
