/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 the PBox authors
 */

/* Any text as what telemetry is asked to set. What is refused has changed nothing and says why; what
 * is taken is within its limits, and its own text brings the same again. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pbox_fault.h>

#include "../require.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct pbox_fault_conf conf[PBOX_FAULT_DIRS];
static struct pbox_fault_conf *const side[PBOX_FAULT_DIRS] = {
	&conf[PBOX_FAULT_RX], &conf[PBOX_FAULT_TX]};

static bool
probability(double p)
{
	return p >= 0 && p <= 1;
}

static void
within_limits(const struct pbox_fault_conf *c)
{
	REQUIRE(probability(c->loss) && probability(c->burst) && probability(c->gilbert_bad));
	REQUIRE(probability(c->gilbert_good) && probability(c->gilbert_loss) &&
		probability(c->dup));
	REQUIRE(probability(c->reorder) && probability(c->corrupt) && probability(c->truncate));
	REQUIRE(probability(c->mark) && c->blackhole <= 1);
	REQUIRE(c->burst_len >= 1 && c->burst_len <= 1000000);
	REQUIRE(c->reorder_window >= 1 && c->reorder_window <= PBOX_FAULT_WINDOW_MAX);
	REQUIRE(c->reorder_us <= 60000000 && c->delay_us <= 60000000 && c->jitter_us <= 60000000);
	REQUIRE(c->target_terms <= PBOX_FAULT_TERMS);
	for (unsigned i = 0; i < c->target_terms; i++)
		REQUIRE(c->target[i].len >= 1 && c->target[i].len <= PBOX_FAULT_TERM_BYTES &&
			c->target[i].offset <= UINT16_MAX);
}

static void
same_again(const struct pbox_fault_conf *c)
{
	char text[PBOX_FAULT_VALUE_MAX], again[PBOX_FAULT_VALUE_MAX], why[256];
	struct pbox_fault_conf other;

	pbox_fault_conf_defaults(&other);
	for (unsigned i = 0; pbox_fault_settings[i].key != NULL; i++) {
		pbox_fault_conf_get(c, i, text, sizeof(text));
		REQUIRE(strlen(text) < sizeof(text) - 1); /* all of it */
		REQUIRE(pbox_fault_conf_set(
				&other, pbox_fault_settings[i].key, text, why, sizeof(why)) == 0);
		pbox_fault_conf_get(&other, i, again, sizeof(again));
		REQUIRE(strcmp(text, again) == 0);
	}
}

static int
set(void *ctx, const char *key, const char *value, char *why, size_t n)
{
	struct pbox_fault_conf before[PBOX_FAULT_DIRS];
	int ret;

	(void)ctx;
	memcpy(before, conf, sizeof(conf));
	why[0] = '\0';
	ret = pbox_fault_conf_set_side(side, key, value, why, n);
	if (ret < 0) {
		REQUIRE(why[0] != '\0' && memcmp(before, conf, sizeof(conf)) == 0);
		return ret;
	}
	REQUIRE(ret > 0 && ret <= 3);
	for (int d = 0; d < PBOX_FAULT_DIRS; d++) {
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
	for (int d = 0; d < PBOX_FAULT_DIRS; d++) {
		pbox_fault_conf_defaults(&conf[d]);
		REQUIRE(!pbox_fault_conf_active(&conf[d]));
	}
	if (pbox_fault_conf_each(text, set, NULL, why, sizeof(why)) != 0)
		REQUIRE(why[0] != '\0');
	for (int d = 0; d < PBOX_FAULT_DIRS; d++)
		same_again(&conf[d]);
	free(text);
	return 0;
}
