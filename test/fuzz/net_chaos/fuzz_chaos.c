/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Any text as what telemetry is told to set. What is refused has changed nothing and says why; what
 * is taken is within its limits, and its own text brings the same again. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <chaos_conf.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUIRE(cond)            \
	do {                     \
		if (!(cond))     \
			abort(); \
	} while (0)

#define VALUE_MAX 640 /* as in chaos_telemetry.c */

static struct chaos_conf conf[CHAOS_DIRS];
static struct chaos_conf *const side[CHAOS_DIRS] = {&conf[CHAOS_RX], &conf[CHAOS_TX]};

static bool
probability(double p)
{
	return p >= 0 && p <= 1;
}

static void
within_limits(const struct chaos_conf *c)
{
	REQUIRE(probability(c->loss) && probability(c->burst) && probability(c->gilbert_bad));
	REQUIRE(probability(c->gilbert_good) && probability(c->gilbert_loss) &&
		probability(c->dup));
	REQUIRE(probability(c->reorder) && probability(c->corrupt) && probability(c->truncate));
	REQUIRE(probability(c->mark) && c->blackhole <= 1);
	REQUIRE(c->burst_len >= 1 && c->burst_len <= 1000000);
	REQUIRE(c->reorder_window >= 1 && c->reorder_window <= CHAOS_WINDOW_MAX);
	REQUIRE(c->reorder_us <= 60000000 && c->delay_us <= 60000000 && c->jitter_us <= 60000000);
	REQUIRE(c->target_terms <= CHAOS_TERMS);
	for (unsigned i = 0; i < c->target_terms; i++)
		REQUIRE(c->target[i].len >= 1 && c->target[i].len <= CHAOS_TERM_BYTES &&
			c->target[i].offset <= UINT16_MAX);
}

static void
same_again(const struct chaos_conf *c)
{
	char text[VALUE_MAX], again[VALUE_MAX], why[256];
	struct chaos_conf other;

	chaos_conf_defaults(&other);
	for (unsigned i = 0; chaos_settings[i].key != NULL; i++) {
		chaos_conf_get(c, i, text, sizeof(text));
		REQUIRE(strlen(text) < sizeof(text) - 1); /* all of it */
		REQUIRE(chaos_conf_set(&other, chaos_settings[i].key, text, why, sizeof(why)) == 0);
		chaos_conf_get(&other, i, again, sizeof(again));
		REQUIRE(strcmp(text, again) == 0);
	}
}

static int
set(void *ctx, const char *key, const char *value, char *why, size_t n)
{
	struct chaos_conf before[CHAOS_DIRS];
	int ret;

	(void)ctx;
	memcpy(before, conf, sizeof(conf));
	why[0] = '\0';
	ret = chaos_conf_set_port(side, key, value, why, n);
	if (ret < 0) {
		REQUIRE(why[0] != '\0' && memcmp(before, conf, sizeof(conf)) == 0);
		return ret;
	}
	REQUIRE(ret > 0 && ret <= 3);
	for (int d = 0; d < CHAOS_DIRS; d++) {
		REQUIRE((ret >> d & 1) != 0 || memcmp(&before[d], &conf[d], sizeof(conf[d])) == 0);
		within_limits(&conf[d]);
	}
	return 0;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1), why[64]; /* shorter than some sentences */

	REQUIRE(text != NULL);
	memcpy(text, data, size);
	text[size] = '\0';
	for (int d = 0; d < CHAOS_DIRS; d++) {
		chaos_conf_defaults(&conf[d]);
		REQUIRE(!chaos_conf_active(&conf[d]));
	}
	if (chaos_conf_each(text, set, NULL, why, sizeof(why)) != 0)
		REQUIRE(why[0] != '\0');
	for (int d = 0; d < CHAOS_DIRS; d++)
		same_again(&conf[d]);
	free(text);
	return 0;
}
